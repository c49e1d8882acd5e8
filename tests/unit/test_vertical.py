"""Scores at one party, labels at others: joined by id, binned, counted, evaluated; rosters."""

import gzip
from decimal import Decimal

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refusals import refused
from rows import drawn, parties
from sklearn.metrics import average_precision_score, roc_auc_score

import fedgauge as fg
from fedgauge.data import row_checks
from fedgauge.data.files import ScoreFile
from fedgauge.data.ids import read_ids
from fedgauge.data.row_checks import KeyedColumns, KeyedFile, Places, ids_of
from fedgauge.engines.contribution import count_leniently
from fedgauge.errors import ExchangeError, InputError, PlanError, ProtocolError, SiteError
from fedgauge.keys import SigningKey
from fedgauge.plan.task import LabelTask
from fedgauge.site import create_site
from fedgauge.vertical import files
from fedgauge.vertical.bins import balanced_ranks
from fedgauge.vertical.files import Bins, Roster, assign_bins, check_rosters
from fedgauge.vertical.joining import join, scored_by_parties

SCORES = {1: 0.2, 2: 0.9, 3: 0.4, 4: 0.7}
BIG = 2**53
BY_NUMBER = {f"{i:03}": i / 10 for i in range(8)}
LABELS = {f"{i:03}": int(i > 3) for i in range(8)}
LABEL_DP = fg.DistributedDP(1.0, unit="label", neighbours="flip")
KEYS = [SigningKey.from_bytes(bytes([number]) * 32) for number in (1, 2, 3)]
LISTED = np.random.default_rng(3).random(600)


@pytest.mark.parametrize("number", [1, 2, 3, 20])
def test_the_answer_is_that_of_pooled_rows(number):
    labels, scores = drawn()
    ids = np.arange(len(labels))
    result = fg.evaluate_vertical((ids, scores), parties(labels, number), seed=1)
    low, high = result.roc_auc.bounds
    assert low <= roc_auc_score(labels, scores) <= high
    assert high - low < 0.1
    expected = average_precision_score(labels, scores)
    assert result.average_precision.value == pytest.approx(expected, abs=0.01)
    assert (result.privacy.unit, result.privacy.neighbours) == ("label", "flip")
    assert result.privacy.epsilon == 1.0
    cohort = result.plan.cohort
    assert (cohort.min_survivors - cohort.max_colluding == 1) == (number < 3)


def test_ties_are_exact_without_noise():
    labels, scores = drawn(5000, decimals=1)
    result = fg.evaluate_vertical(
        (np.arange(5000), scores), parties(labels, 4), privacy=fg.SecureAggregation()
    )
    assert result.roc_auc.value == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    labels, scores = drawn(400_000, seed=3)
    scores[::2] = 0.25
    rows, options = (np.arange(400_000), scores), {"tree": (16,), "positive_rate": 0.3}
    options["privacy"] = fg.SecureAggregation()
    result = fg.evaluate_vertical(rows, parties(labels, 4), **options)
    assert result.roc_auc.value == pytest.approx(roc_auc_score(labels, scores), abs=1e-4)


def test_labels_change_neither_plan_nor_bins_and_a_party_may_lack_positives():
    labels, scores = drawn(1000)
    ids = np.arange(1000)
    results = []
    for place in (None, 0, 999):
        flipped = labels.copy()
        if place is not None:
            flipped[place] ^= 1
        results.append(fg.evaluate_vertical((ids, scores), parties(flipped, 5), seed=1))
    assert len({result.plan.digest for result in results}) == 1
    assert len({result.released.axis.digest for result in results}) == 1
    labels, scores = drawn(3000)
    sides = parties(labels, 3)
    ids, values = sides["party 0"]
    sides["party 0"] = (ids, np.zeros_like(values))
    assert fg.evaluate_vertical((np.arange(3000), scores), sides, seed=1).roc_auc.value > 0.5


@pytest.mark.parametrize(("rows", "rate", "number"), [(3000, 0.3, 5), (20_000, 0.1, 4)])
def test_how_many_are_flagged_is_known(rows, rate, number):
    """The noise of both classes cancels there, but for rounding, which must not get in the way."""
    labels, scores = drawn(rows, rate)
    result = fg.evaluate_vertical((np.arange(rows), scores), parties(labels, number), seed=2)
    for threshold in np.linspace(0.01, 0.99, 40):
        at = result.at_threshold(threshold)
        assert at.flagged.parts["noise"] == pytest.approx(0.0, abs=1e-9)
        assert set(at.as_dict()) >= {"recall", "precision"}


def test_a_saved_result_and_the_secure_sum_say_the_same(tmp_path):
    labels, scores = drawn(3000)
    result = fg.evaluate_vertical((np.arange(3000), scores), parties(labels, 5), seed=2)
    result.to_json(tmp_path / "r.json")
    again = fg.Evaluation.from_json(tmp_path / "r.json")
    assert again.roc_auc == result.roc_auc
    assert again.record == result.record
    assert "scores at one party, labels at 5 others; 3,000 examples, about " in str(result)
    assert "privacy            label-DP, one label flipped: epsilon 1, delta " in str(result)
    labels, scores = drawn(300)
    options = {"privacy": fg.SecureAggregation(), "tree": (8,)}
    plain, secure = (
        fg.evaluate_vertical(
            (np.arange(300), scores), parties(labels, 3), summation=summation, **options
        )
        for summation in ("plain", "secure")
    )
    assert np.array_equal(plain.released.counts, secure.released.counts)


def test_what_cannot_be_joined_is_told():
    for scores, labels, told in (
        (SCORES, {}, "mapping from parties"),
        (SCORES, {"a": [0, 1]}, "mapping from ids, a pair"),
        (SCORES, {"a": {1: 0}, "b": {1: 1}}, "1 of 2 labels have an id .* at another party"),
        (([1, 1], [0.2, 0.3]), {"a": {1: 0}}, "1 of 2 scores have an id that another"),
        (([5, 1, 5, 5], [0.2] * 4), {"a": {1: 0}}, "2 of 4 scores have an id that another"),
        (([1, None], [0.2, 0.3]), {"a": {1: 0}}, "scores: 1 id is missing"),
        (([1, 2], [0.2]), {"a": {1: 0}}, "2 ids and 1 values"),
        ({1: float("nan"), 2: 0.5}, {"a": {1: 0, 2: 1}}, "1 of 2 scores are missing"),
    ):
        refused(fg.InputError, told, fg.evaluate_vertical, scores, labels)


def test_ids_without_a_match_are_counted_and_left_out():
    joined = join(SCORES, {"a": {1: 0, 9: 1}, "b": {3: 1}})
    assert joined.unscored == (1, 0)
    assert joined.unlabelled == 2
    assert joined.scores.tolist() == [0.2, 0.4]


def test_bins_of_rare_positives_and_of_few_scores():
    """Both classes fill bins evenly where scores are as the reference."""
    ranks = balanced_ranks(16, 0.05)
    assert np.all(np.diff(ranks) > 0)
    assert ranks[-1] > 0.98  # the top sixteenth holds few examples, where rare positives are
    # As if the odds were a quarter of those hinted: four to one are even.
    assert balanced_ranks(2, 0.8)[0] == pytest.approx(0.5, abs=1e-3)
    # Also some more than the bins that would be chosen; but as many as were asked for.
    labels, scores = drawn(2000, decimals=1)
    rows, sides = (np.arange(2000), scores), parties(labels, 4)
    assert fg.evaluate_vertical(rows, sides, seed=1).plan.tree == (len(np.unique(scores)),)
    assert fg.evaluate_vertical(rows, sides, tree=(4,), seed=1).released.axis.kind != "values"


def table(make, values, column):
    return make({"id": list(values), column: list(values.values())})


def csv(path, values, column, separator=",", decimal="."):
    rows = (f"{key}{separator}{value}".replace(".", decimal) for key, value in values.items())
    text = f"id{separator}{column}\n" + "".join(f"{row}\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def parquet(path, values, column):
    pq.write_table(table(pa.table, values, column), path)
    return path


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frames_are_read(make):
    joined = join(
        fg.IdTable(table(make, BY_NUMBER, "p"), id="id", value="p"),
        {"a": fg.IdTable(table(make, LABELS, "y"), id="id", value="y")},
    )
    assert joined.scores.tolist() == list(BY_NUMBER.values())
    assert joined.labels[0].tolist() == list(LABELS.values())


@pytest.mark.parametrize("name", ["s.csv", "s.csv.gz", "s.tsv", "s.parquet"])
def test_files_are_read(tmp_path, name):
    separator = "\t" if "tsv" in name else ","
    scores, labels = tmp_path / name, tmp_path / name.replace("s.", "y.")
    if name.endswith("parquet"):
        parquet(scores, BY_NUMBER, "p"), parquet(labels, LABELS, "y")
    else:
        csv(scores, BY_NUMBER, "p", separator), csv(labels, LABELS, "y", separator)
    given = fg.IdTable(labels, id="id", value="y")
    joined = join(fg.IdTable(scores, id="id", value="p"), {"a": given})
    assert joined.scores.tolist() == list(BY_NUMBER.values())
    assert joined.left_out is None
    assert joined.unlabelled == 0


def test_files_of_any_separators_and_kinds_are_one_table(tmp_path):
    path = csv(tmp_path / "s.csv", BY_NUMBER, "p", ";", ",")
    scores = fg.IdTable(path, id="id", value="p", separator=";", decimal=",")
    assert join(scores, {"a": LABELS}).scores.tolist() == list(BY_NUMBER.values())
    refused(fg.InputError, r"s.csv: .*separator", fg.IdTable, path, id="id", value="p")
    text = csv(tmp_path / "1.csv", {1: "no", 2: "yes"}, "y")
    whole = parquet(tmp_path / "2.parquet", {3: "no", 4: "yes"}, "y")
    labels = fg.IdTable([text, whole], id="id", value="y")
    joined = join({i: i / 10 for i in range(1, 5)}, {"a": labels})
    assert joined.scores.tolist() == [0.1, 0.2, 0.3, 0.4]
    assert joined.labels[0].to_pylist() == ["no", "yes", "no", "yes"]


def test_one_table_holds_the_labels_of_all_parties(tmp_path):
    frame = pd.DataFrame({"id": [1, 2, 3, 4], "y": [0, 1, 1, 0], "shop": ["b", "a", "b", "a"]})
    path = tmp_path / "y.csv"
    frame.to_csv(path, index=False)
    for source in (frame, path):
        labels = fg.IdTable(source, id="id", value="y", party="shop")
        joined = join({i: i / 10 for i in range(1, 5)}, labels)
        by_party = dict(zip(joined.parties, np.split(joined.scores, 2), strict=True))
        assert {k: v.tolist() for k, v in by_party.items()} == {"b": [0.1, 0.3], "a": [0.2, 0.4]}
    bare = frame.replace("a", None).head(2)
    nobodys = fg.IdTable(bare, id="id", value="y", party="shop")
    refused(fg.InputError, r"'shop' names no party in some rows", join, {1: 0.5}, nobodys)


def test_parties_that_score_may_hold_files(tmp_path):
    path = tmp_path / "all.csv"
    path.write_text("shop,y,p\na,no,0.1\nb,yes,0.2\na,yes,0.3\n")
    options = {"label": "y", "score": "p"}
    joined = scored_by_parties(fg.ScoreTable(path, client="shop", **options))
    assert joined.parties == ("a", "b")
    assert joined.scores.tolist() == [0.1, 0.3, 0.2]
    assert [column.to_pylist() for column in joined.labels] == [["no", "yes"], ["yes"]]
    alone = scored_by_parties({"a": fg.ScoreFile(path, **options)})
    assert alone.scores.tolist() == [0.1, 0.2, 0.3]


def test_ids_that_are_the_same():
    for one, other in (
        *[([7], ["7"]), ([7], np.array([7], dtype=np.uint8)), ([7], [7.0]), ([7], [Decimal(7)])],
        ([BIG + 1], [str(BIG + 1)]),
        (np.array([2**63 + 1], dtype=np.uint64), [str(2**63 + 1)]),
        *[([-7], ["-7"]), (["é"], ["é"]), (["7"], pd.Series(["7"], dtype="category"))],
        *[([7], pd.Series([7, None]).dropna()), ([7], pd.Index([7]))],
        *[([7], pd.Series([7], dtype="Int64")), (["a"], pl.Series(["a"]))],
        (["a"], pa.chunked_array([["a"]])),
    ):
        assert join((one, [0.5]), {"a": (other, [1])}).scores.tolist() == [0.5]
        assert join((other, [0.5]), {"a": (one, [1])}).scores.tolist() == [0.5]


def test_ids_that_are_not_the_same_and_why():
    for one, other, told in (
        ("7", "007", "1 would have one without leading zeros"),
        (7, "007", "1 would have one without leading zeros"),
        (7, "7.0", "1 would have one without the .0 at the end"),
        ("a", "a ", "1 would have one without the blanks around ids"),
        ("a", "A", "1 would have one if upper and lower case were one"),
        ("\u00e9", "e\u0301", "1 would have one in one form of Unicode"),
        ("7", " 007.0", "1 would have one without blanks, zeros and the like"),
        (BIG, BIG + 1, "Check that both sides use the same ids"),
        ("x", 7, "its ids are whole numbers, those of the scores text"),
        ("x", "7", "its ids are whole numbers, those of the scores text"),
    ):
        with pytest.raises(fg.InputError, match=r"^no label of party 'a' has a score") as caught:
            join({one: 0.5}, {"a": {other: 1}})
        assert told in str(caught.value)


def test_what_is_no_id_is_refused():
    for ids, told in (
        ([1.5], "^1 id is no whole number. Check"),
        ([float(BIG)], "^1 id is a decimal of .* no longer distinguish whole numbers"),
        ([float("inf")], "no longer distinguish whole numbers"),
        ([1.0, float("nan")], r"1 id is missing \(empty, null or NaN\)"),
        ([None, None], "2 ids are missing"),
        ([True], "must be text or whole numbers"),
        ([Decimal("1.5")], "must be text or whole numbers"),
        ([1, "a"], "not both"),
        ([2**64], "too large for a number"),
        ([["a"]], "must be text or whole numbers"),
        (np.ones((2, 2)), "no flat column"),
        (["\ud800"], "no flat column"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "must be text or whole numbers"),
        (7, "no flat column"),
    ):
        refused(fg.InputError, told, read_ids, ids)


def test_what_is_left_out_is_told():
    scores = {i: i / 100 for i in range(100)}
    labels = {"a": {i: i % 2 for i in range(60)} | {200: 1}}
    labels["b"] = {i: i % 2 for i in range(60, 90)}
    with pytest.warns(fg.InputWarning, match=r"^1 of 61 labels of party 'a' have no score") as told:
        fg.evaluate_vertical(scores, labels, seed=1)
    assert len(told) == 1
    assert told[0].filename == __file__
    scores = {i: i / 100 for i in range(50)}
    sides = {f"p{k}": {10 * k: 1, 100 + k: 0} for k in range(5)}
    assert join(scores, sides).left_out == (
        "1 of 2 labels of party 'p0', 1 of 2 labels of party 'p1', 1 of 2 labels of party 'p2' and "
        "2 of 2 more parties have no score and are left out."
    )
    joined = join(
        {"1": 0.5, "2": 0.6, "3": 0.7, "4": 0.8}, {"a": {"1": 1, "2": 1, "03": 0, "9": 0}}
    )
    assert joined.left_out == (
        "2 of 4 labels of party 'a' have no score and are left out. 1 of them would have one "
        "without leading zeros."
    )
    joined = join({"a": 0.5, "b": 0.6}, {"a": {f"x{i}": 1 for i in range(99)} | {"a": 0}})
    assert joined.left_out.startswith("99 of 100 labels")
    assert joined.scores.tolist() == [0.5]
    scores = {str(i): 0.5 for i in range(10)}
    labels = {"a": {f"{i:02}": 1 for i in range(10)} | {"3": 0}, "b": {"1": 0}}
    with pytest.raises(fg.InputError, match=r"^only 1 of 11 labels of party 'a' have a score: 10 "):
        join(scores, labels)


def test_repeats_within_a_party_and_between_parties_are_told_apart():
    for labels, told in (
        ({"a": ([1, 1], [0, 1])}, "1 of 2 labels .* at the same party"),
        ({"a": ([1, 2, 2], [0, 1, 1]), "b": ([1], [0])}, "1 of 4 labels .* at the same party"),
        ({"a": {1: 0, 9: 1}, "b": {9: 0, 1: 1}}, "2 of 4 labels .* at another party"),
        ({"a": {1: 1}, "b": {}}, "labels of party 'b': there are none"),
    ):
        refused(fg.InputError, told, join, {1: 0.5, 2: 0.6, 9: 0.1}, labels)


def test_no_complaint_quotes_an_id_or_a_label():
    scores = {"okapi-1": 0.5, "okapi-2": 0.6}
    for labels in ({"OKAPI-1": "zebra"}, {"okapi-1 ": "zebra"}, {"horse": "zebra"}, {7: "zebra"}):
        with pytest.raises(fg.InputError) as caught:
            fg.evaluate_vertical(scores, {"a": labels})
        told = str(caught.value).lower()
        assert not [secret for secret in ("okapi", "zebra", "horse") if secret in told]


def test_scores_that_are_no_numbers_are_refused(tmp_path):
    path = csv(tmp_path / "s.csv", {"1": "high"}, "p")
    for scores in (
        {1: "high"},
        fg.IdTable(pd.DataFrame({"id": [1], "p": ["high"]}), id="id", value="p"),
        fg.IdTable(path, id="id", value="p"),
        fg.IdTable(parquet(tmp_path / "s.parquet", {1: "high"}, "p"), id="id", value="p"),
    ):
        refused(fg.InputError, r"not numbers", join, scores, {"a": {1: 1}})


def test_a_table_names_what_it_lacks_and_an_empty_id_is_missing(tmp_path):
    path = csv(tmp_path / "s.csv", BY_NUMBER, "p")
    with pytest.raises(fg.InputError, match=r"s.csv: there is no column 'user'"):
        fg.IdTable(path, id="user", value="p")
    with pytest.raises(fg.InputError, match=r"the data frame: there is no column 'q'"):
        fg.IdTable(table(pd.DataFrame, BY_NUMBER, "p"), id="id", value="q")
    refused(fg.InputError, r"one column cannot be two things", fg.IdTable, path, id="p", value="p")
    path = csv(tmp_path / "s.csv", {"": 0.5, "b": 0.7}, "p")
    with pytest.raises(fg.InputError, match=r"s.csv: 1 id is missing"):
        join(fg.IdTable(path, id="id", value="p"), {"a": LABELS})


def rosters(of=Roster.of_ids, rows=None):
    rows = rows or [np.arange(i, 600, 3) for i in range(3)]
    return {key.public: of(each, key) for key, each in zip(KEYS, rows, strict=True)}


@pytest.fixture(scope="module")
def assigned():
    return assign_bins((np.arange(600), LISTED), rosters(), LABEL_DP)


def test_ids_are_compared_as_text_and_whole_numbers_as_digits():
    assert ids_of("x", [7, 10**18]).to_pylist() == ["7", str(10**18)]
    assert ids_of("x", ["007", "7 "]).to_pylist() == ["007", "7 "]
    assert ids_of("x", np.array([7.0, 8.0])).to_pylist() == ["7", "8"]
    assert ids_of("x", pa.array(["a", "b"]).dictionary_encode()).to_pylist() == ["a", "b"]
    refused(InputError, "labels: 1 id is missing", ids_of, "labels", [1, None])


def test_a_roster_says_nothing_of_the_order_of_rows():
    one, other = (Roster.of_ids(ids, KEYS[0]) for ids in (["b", "a", "c"], ["c", "b", "a"]))
    assert one == other
    assert one.ids == ("a", "b", "c")
    scored, again = (
        Roster.of_scores(np.array(s), KEYS[0], few_values=True)
        for s in ([0.5, 0.0, 0.5], [-0.0, 0.5, 0.5])
    )
    assert scored == again
    assert (scored.values.tolist(), scored.times.tolist()) == ([0.0, 0.5], [1, 2])
    assert scored.examples == 3


def test_a_party_cannot_sign_a_roster_that_counts_an_example_twice():
    for fields, told in (
        ({"ids": ("a", "a")}, "twice, or out of order"),
        ({"ids": ("b", "a")}, "twice, or out of order"),
        ({"ids": ("a",), "scores": bytes(8), "rows": bytes(8)}, "ids and scores"),
        ({"scores": bytes(7), "rows": bytes(7)}, "cut off"),
        ({"scores": bytes(16), "rows": bytes(8)}, "how many examples"),
        ({"scores": bytes(8), "rows": bytes(8)}, "not as they must be"),
        *(
            ({"scores": np.array(s).tobytes(), "rows": np.array(n).tobytes()}, "not as they must")
            for s, n in (([0.5, 0.5], [1, 1]), ([np.nan], [1]))
        ),
    ):
        roster = Roster._signed(KEYS[0], **fields)
        refused(ProtocolError, told, Roster.from_bytes, roster.to_bytes())


def test_what_are_no_rosters_or_bins_is_refused(assigned, tmp_path):
    for data in (b"", b"user,bought\n", Roster.of_ids(["a"], KEYS[0]).to_bytes()[:-1]):
        refused(ProtocolError, "not a roster", Roster.from_bytes, data)
    data = assigned.bins[KEYS[0].public].to_bytes()
    assert Bins.from_bytes(data) == assigned.bins[KEYS[0].public]
    for wrong in (b"", b"bin\n1\n", data[:-1], data + b"\0"):
        refused(ProtocolError, "bins", Bins.from_bytes, wrong)
    refused(InputError, "cannot read", Bins.load, tmp_path / "none.bins")


def test_rosters_go_together_or_are_refused():
    with pytest.raises(InputError, match="2 ids are on the rosters of two parties"):
        check_rosters(rosters(rows=[["a", "b"], ["b", "c"], ["c"]]))
    refused(InputError, "there are no rosters", check_rosters, {})
    refused(InputError, "no examples", check_rosters, rosters(rows=[["a"], ["b"], []]))
    mixed = rosters()
    mixed[KEYS[0].public] = Roster.of_scores(LISTED[:5], KEYS[0])
    refused(InputError, "some rosters have ids and others scores", check_rosters, mixed)
    refused(InputError, "1 of 2 ids come again", Roster.of_ids, ["a", "a"], KEYS[0])
    with pytest.raises(InputError, match="1 of 2 scores are missing"):
        Roster.of_scores(np.array([0.1, np.nan]), KEYS[0])
    check_rosters(rosters(Roster.of_scores, [LISTED[:9]] * 3))  # scores may be the same at two
    claimed = {"scores": np.array([0.5]).tobytes(), "rows": np.array([1 << 28]).tobytes()}
    mixed = {KEYS[0].public: Roster._signed(KEYS[0], **claimed)}
    refused(InputError, "more than 134,217,728 examples", check_rosters, mixed)


def test_every_example_is_in_the_bin_of_its_score(assigned):
    axis = assigned.totals.axis
    for key, rows in zip(KEYS, (np.arange(i, 600, 3) for i in range(3)), strict=True):
        places = assigned.bins[key.public].check(assigned.plan, key.public)
        expected = dict(zip(map(str, rows), axis.index(LISTED[rows]), strict=True))
        assert dict(zip(places.keys.to_pylist(), places.bins, strict=True)) == expected
    total = np.sum([counts for _, counts in assigned.totals.by_party], axis=0)
    assert total.tolist() == np.bincount(axis.index(LISTED), minlength=axis.bins).tolist()


def test_ids_without_a_score_have_no_bin_and_are_counted():
    rows = [[*range(i, 600, 3), f"only here {i}"] for i in range(3)]
    made = assign_bins(
        (np.arange(900), np.resize(LISTED, 900)),
        rosters(rows=[list(map(str, r)) for r in rows]),
        LABEL_DP,
    )
    assert list(made.unscored.values()) == [1, 1, 1]
    assert made.unlabelled == 300
    places = made.bins[KEYS[0].public].check(made.plan, KEYS[0].public)
    assert int(np.count_nonzero(places.bins == row_checks.NO_BIN)) == 1
    assert sum(sum(counts) for _, counts in made.totals.by_party) == 600


def test_parties_that_score_their_own_examples_get_bins_of_scores():
    parts = np.split(np.round(LISTED, 2), 3)
    made = assign_bins(None, rosters(Roster.of_scores, parts), LABEL_DP)
    assert sum(sum(counts) for _, counts in made.totals.by_party) == 600
    places = made.bins[KEYS[1].public].check(made.plan, KEYS[1].public)
    assert not places.by_id
    assert places.bins.tolist() == made.totals.axis.index(np.unique(parts[1])).tolist()
    refused(InputError, "rosters of ids go with scores", assign_bins, None, rosters(), LABEL_DP)
    with pytest.raises(InputError, match="rosters of ids go with scores"):
        assign_bins((np.arange(600), LISTED), rosters(Roster.of_scores, parts), LABEL_DP)


def test_scores_that_cannot_be_assigned_are_refused():
    for scores, told in (
        (([1, 2], np.ones(3)), "2 ids and 3 scores"),
        (([1, 1], np.ones(2)), "1 ids of the scores come twice"),
        (([1, 2], np.array([1.0, np.inf])), "1 of 2 scores are missing or infinite"),
        (([9001, 9002], np.ones(2)), "no id of the rosters"),
    ):
        refused(InputError, told, assign_bins, scores, rosters(), LABEL_DP)


def forged(assigned, **change):
    """Bins as a hostile scorer would make them: all digests fit, and only the content is wrong."""
    key = KEYS[0].public
    bins = msgspec.structs.replace(assigned.bins[key], commitments=(), **change)
    others = [pair for pair in assigned.bins[key].commitments if pair[0] != key]
    commitments = tuple(sorted([*others, (key, bins.commitment)]))
    task = LabelTask(None, files.assignment_digest(commitments))
    plan = msgspec.structs.replace(assigned.plan, task=task)
    return plan, msgspec.structs.replace(bins, commitments=commitments)


def as_places(*bins):
    return np.array(bins, "<i4").tobytes()


def test_a_scorer_cannot_assign_bins_that_break_the_promise(assigned):
    for change, told in (
        ({"ids": (), "scores": np.array([0.5, 0.5]).tobytes(), "places": as_places(0, 0)}, "twice"),
        ({"number": 7}, "another number of bins"),
        ({"ids": (), "scores": b"\0\0\0", "places": b""}, "cut off"),
    ):
        plan, bins = forged(assigned, **change)
        refused(ProtocolError, told, bins.check, plan, KEYS[0].public)


def test_bins_are_those_of_this_plan_and_commitments_hide_them(assigned):
    mine, theirs = (assigned.bins[key.public] for key in KEYS[:2])
    plain = fg.EvaluationPlan.for_histogram(fg.Axis.uniform(8), fg.Cohort(3))
    refused(ProtocolError, "of another evaluation", mine.check, plain, KEYS[0].public)
    swapped = msgspec.structs.replace(mine, commitments=theirs.commitments[:1])
    with pytest.raises(ProtocolError):
        swapped.check(assigned.plan, KEYS[0].public)
    # The same bins twice: nobody can tell, or try all bins of a party with few examples.
    again = assign_bins((np.arange(600), LISTED), rosters(), LABEL_DP)
    for key in KEYS:
        one, other = (made.bins[key.public] for made in (assigned, again))
        assert one.places == other.places
        assert one.commitment != other.commitment


def test_an_assignment_is_a_digest_and_its_totals_are_kept_by_who_scored(assigned, tmp_path):
    site, other = (create_site(tmp_path / name, name=name, dataset="x") for name in "ab")
    path = assigned.totals.keep(site)
    assert path.stat().st_mode & 0o077 == 0
    assert files.Totals.kept(site, assigned.plan) == assigned.totals
    refused(ExchangeError, "did not assign the bins", files.Totals.kept, other, assigned.plan)
    path.write_bytes(path.read_bytes().replace(b"fedgauge-totals/1", b"fedgauge-totals/2"))
    refused(SiteError, "damaged or changed", files.Totals.kept, site, assigned.plan)
    for wrong in ("../../etc", "AB" * 32, "ab" * 31):
        refused(PlanError, "64 hexadecimal digits", LabelTask, None, wrong)


def count(places, source, positive="yes", bins=4):
    axis = fg.Axis.from_values(range(bins), outside="clip")
    plan = fg.EvaluationPlan.for_histogram(
        axis, fg.Cohort(3), task=LabelTask(positive), privacy=LABEL_DP
    )
    histogram, oddities = count_leniently(plan, lambda: row_checks.PlacedRows(source, places))
    return histogram.counts[1].tolist(), oddities


def test_each_label_counts_in_the_bin_of_its_example_and_once(tmp_path):
    """The first row of an id counts; rows that are not asked about do not."""
    places = Places(
        ids_of("x", ["a", "b", "c", "d", "e"]), np.array([0, 1, 1, row_checks.NO_BIN, 3])
    )
    path = tmp_path / "labels.csv"
    path.write_text("id,y\nb,yes\na,yes\nb,no\nd,yes\nz,yes\n,yes\nc,no\nonly one field\n")
    counts, odd = count(places, KeyedFile(path, key="id", label="y"))
    assert counts == [1, 1, 0, 0]
    assert (odd.rows, odd.unlisted, odd.repeated, odd.unlabelled) == (3, 3, 1, 1)
    assert odd.malformed == 1
    told = " ".join(odd.in_words)
    assert "without a bin" in told
    assert "examples with a bin have no row: counted as negative" in told

    class Twice(KeyedColumns):
        def leniently(self, skip):
            yield from super().leniently(skip)
            yield self.keys, ["no", "yes"]

    places = Places(ids_of("x", ["a", "b"]), np.array([0, 1]))
    counts, odd = count(places, Twice(ids_of("x", ["a", "b"]), ["yes", "no"]))
    assert counts == [1, 0, 0, 0]
    assert odd.repeated == 2


def test_rows_are_found_by_their_scores(tmp_path):
    places = Places(pa.array([0.0, 0.25, 0.75]), np.array([0, 1, 3]))
    path = tmp_path / "rows.csv"
    path.write_text("y,p\nyes,0.25\nyes,0.25\nno,0.75\nyes,-0.0\nyes,0.5\nyes,what\n")
    counts, odd = count(places, row_checks.ScoredFile(ScoreFile(path, label="y", score="p")))
    assert counts == [1, 2, 0, 0]
    assert (odd.unlisted, odd.repeated) == (2, 0)


def test_labels_that_cannot_be_read_count_as_none(tmp_path):
    places = Places(ids_of("x", ["a"]), np.array([0]))
    path = tmp_path / "labels.csv"
    path.write_text("id,y\n")
    counts, odd = count(places, KeyedFile(path, key="id", label="y"))
    assert (counts, odd.unlabelled) == ([0, 0, 0, 0], 1)
    nobody = Places(ids_of("x", []), np.zeros(0, int))
    counts, odd = count(nobody, KeyedColumns(ids_of("x", ["a"]), ["yes"]))
    assert (counts, odd.unlisted) == ([0, 0, 0, 0], 1)


def test_a_column_of_lists_is_no_id(tmp_path):
    path = tmp_path / "labels.parquet"
    pq.write_table(pa.table({"id": [[1], [2]], "y": [0, 1]}), path)
    refused(InputError, "holds lists", KeyedFile(path, key="id", label="y").check)
    pq.write_table(pa.table({"id": [True, False], "y": [0, 1]}), path)
    refused(InputError, "text or whole numbers", KeyedFile(path, key="id", label="y").check)
    pq.write_table(pa.table({"id": [7, 8], "y": [0, 1]}), path)
    ((keys, _),) = KeyedFile(path, key="id", label="y").leniently(None)
    assert keys.to_pylist() == ["7", "8"]


def test_a_file_in_another_form_is_refused(assigned):
    """Fields in another order say the same, and would have another digest."""
    roster = Roster.of_ids(["a", "b"], KEYS[0])
    for file in (roster, assigned.bins[KEYS[0].public]):
        fields = msgspec.msgpack.decode(file.to_bytes())
        other = msgspec.msgpack.encode(dict(reversed(fields.items())))
        assert msgspec.msgpack.decode(other, type=type(file)) == file
        refused(ProtocolError, "as this fedgauge writes them", type(file).from_bytes, other)
