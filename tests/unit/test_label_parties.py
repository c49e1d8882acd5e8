"""Rosters, bins as parties are told them, and the totals that whoever scored keeps."""

import copy
import json
import pickle
from fractions import Fraction

import commands
import msgspec
import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import roc_auc_score

import fedgauge as fg
from fedgauge.data.files import ScoreFile
from fedgauge.data.row_checks import (
    NO_BIN,
    KeyedColumns,
    KeyedFile,
    PlacedRows,
    Places,
    ScoredFile,
    ids_of,
)
from fedgauge.engines.contribution import count_leniently
from fedgauge.errors import ExchangeError, InputError, PlanError, ProtocolError, SiteError
from fedgauge.keys import SigningKey
from fedgauge.plan.task import LabelTask
from fedgauge.site import create_site
from fedgauge.vertical.auc import (
    MECHANISMS,
    DiscreteLaplace,
    PairAnswer,
    PartyRanks,
    PartyTerms,
    auc_estimate,
    auc_of,
    balance_rank,
    doubled_midranks,
    noisy_pair,
)
from fedgauge.vertical.files import (
    Bins,
    Roster,
    Totals,
    assign_bins,
    assignment_digest,
    check_rosters,
)

LABEL_DP = fg.DistributedDP(1.0, unit="label", neighbours="flip")
KEYS = [SigningKey.from_bytes(bytes([number]) * 32) for number in (1, 2, 3)]
SCORES = np.random.default_rng(3).random(600)


def rosters(of=Roster.of_ids, rows=None):
    rows = rows or [np.arange(i, 600, 3) for i in range(3)]
    return {key.public: of(each, key) for key, each in zip(KEYS, rows, strict=True)}


@pytest.fixture(scope="module")
def assigned():
    return assign_bins((np.arange(600), SCORES), rosters(), LABEL_DP)


# Ids


def test_ids_are_compared_as_text_and_whole_numbers_as_digits():
    assert ids_of("x", [7, 10**18]).to_pylist() == ["7", str(10**18)]
    assert ids_of("x", ["007", "7 "]).to_pylist() == ["007", "7 "]
    assert ids_of("x", np.array([7.0, 8.0])).to_pylist() == ["7", "8"]
    assert ids_of("x", pa.array(["a", "b"]).dictionary_encode()).to_pylist() == ["a", "b"]


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        ([1, None], "labels: 1 id is missing"),
        ([1.5, 2.0], "labels: 1 id is no whole number"),
        ([2.0**53, 1.0], "labels: 1 id is a decimal"),
        ([[1], [2]], "text or whole numbers"),
        ([True, False], "text or whole numbers"),
        (["a", 1], "not both"),
    ],
)
def test_what_is_no_id_is_refused_and_counted(ids, told):
    with pytest.raises(InputError, match=told):
        ids_of("labels", ids)


# Rosters


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


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"ids": ("a", "c")}, "not signed"),
        ({"party": KEYS[1].public}, "not signed"),
        ({"format": "fedgauge-roster/2"}, "as this fedgauge writes"),
        ({"signature": bytes(64)}, "not signed"),
    ],
)
def test_a_roster_that_was_changed_is_refused(change, told):
    roster = msgspec.structs.replace(Roster.of_ids(["a", "b"], KEYS[0]), **change)
    with pytest.raises(ProtocolError, match=told):
        Roster.from_bytes(roster.to_bytes())


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"ids": ("a", "a")}, "twice, or out of order"),
        ({"ids": ("b", "a")}, "twice, or out of order"),
        ({"ids": ("a",), "scores": bytes(8), "rows": bytes(8)}, "ids and scores"),
        ({"scores": bytes(7), "rows": bytes(7)}, "cut off"),
        ({"scores": bytes(16), "rows": bytes(8)}, "how many examples"),
        ({"scores": bytes(8), "rows": bytes(8)}, "not as they must be"),
        (
            {"scores": np.array([0.5, 0.5]).tobytes(), "rows": np.array([1, 1]).tobytes()},
            "not as they must be",
        ),
        (
            {"scores": np.array([np.nan]).tobytes(), "rows": np.array([1]).tobytes()},
            "not as they must be",
        ),
    ],
)
def test_a_party_cannot_sign_a_roster_that_counts_an_example_twice(fields, told):
    roster = Roster._signed(KEYS[0], **fields)
    with pytest.raises(ProtocolError, match=told):
        Roster.from_bytes(roster.to_bytes())


def test_what_is_no_roster_is_refused():
    for data in (b"", b"user,bought\n", Roster.of_ids(["a"], KEYS[0]).to_bytes()[:-1]):
        with pytest.raises(ProtocolError, match="not a roster"):
            Roster.from_bytes(data)


def test_rosters_go_together_or_are_refused():
    with pytest.raises(InputError, match="2 ids are on the rosters of two parties"):
        check_rosters(rosters(rows=[["a", "b"], ["b", "c"], ["c"]]))
    with pytest.raises(InputError, match="there are no rosters"):
        check_rosters({})
    with pytest.raises(InputError, match="no examples"):
        check_rosters(rosters(rows=[["a"], ["b"], []]))
    mixed = rosters()
    mixed[KEYS[0].public] = Roster.of_scores(SCORES[:5], KEYS[0])
    with pytest.raises(InputError, match="some rosters have ids and others scores"):
        check_rosters(mixed)
    with pytest.raises(InputError, match="1 of 2 ids come again"):
        Roster.of_ids(["a", "a"], KEYS[0])
    with pytest.raises(InputError, match="1 of 2 scores are missing"):
        Roster.of_scores(np.array([0.1, np.nan]), KEYS[0])
    check_rosters(rosters(Roster.of_scores, [SCORES[:9]] * 3))  # scores may be the same at two
    claimed = {"scores": np.array([0.5]).tobytes(), "rows": np.array([1 << 28]).tobytes()}
    mixed = {KEYS[0].public: Roster._signed(KEYS[0], **claimed)}
    with pytest.raises(InputError, match="more than 134,217,728 examples"):
        check_rosters(mixed)


# Bins


def test_every_example_is_in_the_bin_of_its_score(assigned):
    axis = assigned.totals.axis
    for key, rows in zip(KEYS, (np.arange(i, 600, 3) for i in range(3)), strict=True):
        places = assigned.bins[key.public].check(assigned.plan, key.public)
        expected = dict(zip(map(str, rows), axis.index(SCORES[rows]), strict=True))
        assert dict(zip(places.keys.to_pylist(), places.bins, strict=True)) == expected
    total = np.sum([counts for _, counts in assigned.totals.by_party], axis=0)
    assert total.tolist() == np.bincount(axis.index(SCORES), minlength=axis.bins).tolist()


def test_ids_without_a_score_have_no_bin_and_are_counted():
    rows = [[*range(i, 600, 3), f"only here {i}"] for i in range(3)]
    made = assign_bins(
        (np.arange(900), np.resize(SCORES, 900)),
        rosters(rows=[list(map(str, r)) for r in rows]),
        LABEL_DP,
    )
    assert list(made.unscored.values()) == [1, 1, 1]
    assert made.unlabelled == 300
    places = made.bins[KEYS[0].public].check(made.plan, KEYS[0].public)
    assert int(np.count_nonzero(places.bins == NO_BIN)) == 1
    assert sum(sum(counts) for _, counts in made.totals.by_party) == 600


def test_parties_that_score_their_own_examples_get_bins_of_scores():
    parts = np.split(np.round(SCORES, 2), 3)
    made = assign_bins(None, rosters(Roster.of_scores, parts), LABEL_DP)
    assert sum(sum(counts) for _, counts in made.totals.by_party) == 600
    places = made.bins[KEYS[1].public].check(made.plan, KEYS[1].public)
    assert not places.by_id
    assert places.bins.tolist() == made.totals.axis.index(np.unique(parts[1])).tolist()
    with pytest.raises(InputError, match="rosters of ids go with scores"):
        assign_bins(None, rosters(), LABEL_DP)
    with pytest.raises(InputError, match="rosters of ids go with scores"):
        assign_bins((np.arange(600), SCORES), rosters(Roster.of_scores, parts), LABEL_DP)


@pytest.mark.parametrize(
    ("scores", "told"),
    [
        (([1, 2], np.ones(3)), "2 ids and 3 scores"),
        (([1, 1], np.ones(2)), "1 ids of the scores come twice"),
        (([1, 2], np.array([1.0, np.inf])), "1 of 2 scores are missing or infinite"),
        (([9001, 9002], np.ones(2)), "no id of the rosters"),
    ],
)
def test_scores_that_cannot_be_assigned_are_refused(scores, told):
    with pytest.raises(InputError, match=told):
        assign_bins(scores, rosters(), LABEL_DP)


def forged(assigned, **change):
    """Bins as a hostile scorer would make them: all digests fit, and only the content is wrong."""
    key = KEYS[0].public
    bins = msgspec.structs.replace(assigned.bins[key], commitments=(), **change)
    others = [pair for pair in assigned.bins[key].commitments if pair[0] != key]
    commitments = tuple(sorted([*others, (key, bins.commitment)]))
    task = LabelTask(None, assignment_digest(commitments))
    plan = msgspec.structs.replace(assigned.plan, task=task)
    return plan, msgspec.structs.replace(bins, commitments=commitments)


def as_places(*bins):
    return np.array(bins, "<i4").tobytes()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"places": as_places(0, 1)}, "2 bins for 200 examples"),
        ({"ids": ("a",), "places": as_places(-2)}, "outside 0 to"),
        ({"ids": ("a",), "places": as_places(10_000)}, "outside 0 to"),
        ({"ids": ("a", "a"), "places": as_places(0, 1)}, "an example twice"),
        ({"ids": (), "scores": np.array([0.5, 0.5]).tobytes(), "places": as_places(0, 0)}, "twice"),
        ({"number": 7}, "another number of bins"),
    ],
)
def test_a_scorer_cannot_assign_bins_that_break_the_promise(assigned, change, told):
    plan, bins = forged(assigned, **change)
    with pytest.raises(ProtocolError, match=told):
        bins.check(plan, KEYS[0].public)


def test_places_are_whole_numbers_of_four_bytes(assigned):
    plan, bins = forged(assigned, ids=("a",), places=b"\0\0\0")
    with pytest.raises(ProtocolError, match="cut off"):
        bins.check(plan, KEYS[0].public)
    plan, bins = forged(assigned, ids=(), scores=b"\0\0\0", places=b"")
    with pytest.raises(ProtocolError, match="cut off"):
        bins.check(plan, KEYS[0].public)


def test_bins_are_those_of_this_party_and_plan(assigned):
    mine, theirs = (assigned.bins[key.public] for key in KEYS[:2])
    with pytest.raises(ProtocolError, match="for another party"):
        theirs.check(assigned.plan, KEYS[0].public)
    with pytest.raises(ProtocolError, match="were changed"):
        msgspec.structs.replace(mine, places=mine.places[::-1]).check(assigned.plan, KEYS[0].public)
    other = assign_bins((np.arange(600), SCORES[::-1]), rosters(), LABEL_DP)
    with pytest.raises(ProtocolError, match="of another evaluation"):
        mine.check(other.plan, KEYS[0].public)
    with pytest.raises(ProtocolError, match="of another evaluation"):
        mine.check(
            fg.EvaluationPlan.for_histogram(fg.Axis.uniform(8), fg.Cohort(3)), KEYS[0].public
        )
    swapped = msgspec.structs.replace(mine, commitments=theirs.commitments[:1])
    with pytest.raises(ProtocolError):
        swapped.check(assigned.plan, KEYS[0].public)


def test_commitments_hide_bins(assigned):
    """The same bins twice: nobody can tell, or try all bins of a party with few examples."""
    again = assign_bins((np.arange(600), SCORES), rosters(), LABEL_DP)
    for key in KEYS:
        one, other = (made.bins[key.public] for made in (assigned, again))
        assert one.places == other.places
        assert one.commitment != other.commitment


def test_what_are_no_bins_is_refused(assigned, tmp_path):
    data = assigned.bins[KEYS[0].public].to_bytes()
    assert Bins.from_bytes(data) == assigned.bins[KEYS[0].public]
    for wrong in (b"", b"bin\n1\n", data[:-1], data + b"\0"):
        with pytest.raises(ProtocolError, match="bins"):
            Bins.from_bytes(wrong)
    with pytest.raises(InputError, match="cannot read"):
        Bins.load(tmp_path / "none.bins")


def test_an_assignment_is_named_by_a_digest_and_nothing_else():
    for wrong in ("../../etc", "AB" * 32, "ab" * 31):
        with pytest.raises(PlanError, match="64 hexadecimal digits"):
            LabelTask(None, wrong)


# Totals


def test_totals_are_kept_by_the_site_that_scored(assigned, tmp_path):
    site, other = (create_site(tmp_path / name, name=name, dataset="x") for name in "ab")
    path = assigned.totals.keep(site)
    assert path.stat().st_mode & 0o077 == 0
    assert Totals.kept(site, assigned.plan) == assigned.totals
    with pytest.raises(ExchangeError, match="did not assign the bins"):
        Totals.kept(other, assigned.plan)
    path.write_bytes(path.read_bytes().replace(b"fedgauge-totals/1", b"fedgauge-totals/2"))
    with pytest.raises(SiteError, match="damaged or changed"):
        Totals.kept(site, assigned.plan)


# Rows


def count(places, source, positive="yes", bins=4):
    axis = fg.Axis.from_values(range(bins), outside="clip")
    plan = fg.EvaluationPlan.for_histogram(
        axis, fg.Cohort(3), task=LabelTask(positive), privacy=LABEL_DP
    )
    histogram, oddities = count_leniently(plan, lambda: PlacedRows(source, places))
    return histogram.counts[1].tolist(), oddities


def test_each_label_counts_in_the_bin_of_its_example_and_once(tmp_path):
    """The first row of an id counts; rows that are not asked about do not."""
    places = Places(ids_of("x", ["a", "b", "c", "d", "e"]), np.array([0, 1, 1, NO_BIN, 3]))
    path = tmp_path / "labels.csv"
    path.write_text("id,y\nb,yes\na,yes\nb,no\nd,yes\nz,yes\n,yes\nc,no\nonly one field\n")
    counts, odd = count(places, KeyedFile(path, key="id", label="y"))
    assert counts == [1, 1, 0, 0]
    assert (odd.rows, odd.unlisted, odd.repeated, odd.unlabelled) == (3, 3, 1, 1)
    assert odd.malformed == 1
    told = " ".join(odd.in_words)
    assert "without a bin" in told
    assert "examples with a bin have no row: counted as negative" in told


def test_repeated_ids_are_found_across_batches():
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
    counts, odd = count(places, ScoredFile(ScoreFile(path, label="y", score="p")))
    assert counts == [1, 2, 0, 0]
    assert (odd.unlisted, odd.repeated) == (2, 0)


def test_labels_that_cannot_be_read_count_as_none(tmp_path):
    places = Places(ids_of("x", ["a"]), np.array([0]))
    path = tmp_path / "labels.csv"
    path.write_text("id,y\n")
    counts, odd = count(places, KeyedFile(path, key="id", label="y"))
    assert (counts, odd.unlabelled) == ([0, 0, 0, 0], 1)
    counts, odd = count(
        Places(ids_of("x", []), np.zeros(0, int)), KeyedColumns(ids_of("x", ["a"]), ["yes"])
    )
    assert (counts, odd.unlisted) == ([0, 0, 0, 0], 1)


def test_a_column_of_lists_is_no_id(tmp_path):
    import pyarrow.parquet as pq

    path = tmp_path / "labels.parquet"
    pq.write_table(pa.table({"id": [[1], [2]], "y": [0, 1]}), path)
    with pytest.raises(InputError, match="holds lists"):
        KeyedFile(path, key="id", label="y").check()
    pq.write_table(pa.table({"id": [True, False], "y": [0, 1]}), path)
    with pytest.raises(InputError, match="text or whole numbers"):
        KeyedFile(path, key="id", label="y").check()
    pq.write_table(pa.table({"id": [7, 8], "y": [0, 1]}), path)
    ((keys, _),) = KeyedFile(path, key="id", label="y").leniently(None)
    assert keys.to_pylist() == ["7", "8"]


# One form


def test_a_file_in_another_form_is_refused(assigned):
    """Fields in another order say the same, and would have another digest."""
    roster = Roster.of_ids(["a", "b"], KEYS[0])
    for file in (roster, assigned.bins[KEYS[0].public]):
        fields = msgspec.msgpack.decode(file.to_bytes())
        other = msgspec.msgpack.encode(dict(reversed(fields.items())))
        assert msgspec.msgpack.decode(other, type=type(file)) == file
        with pytest.raises(ProtocolError, match="as this fedgauge writes them"):
            type(file).from_bytes(other)


GAUSSIAN = fg.DistributedDP(1.0, 1e-6, noise="discrete-gaussian", unit="label", neighbours="flip")
NOTHING = DiscreteLaplace(Fraction(0))


def drawn(rows=4000, decimals=None, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.random(rows) < 0.3
    scores = rng.normal(1.5 * labels)
    return labels, scores if decimals is None else scores.round(decimals)


def privacy_of(name):
    return GAUSSIAN if MECHANISMS[name].noise == "discrete-gaussian" else LABEL_DP


def by_party(labels, scores, number, *, apart=False):
    order = np.argsort(scores) if apart else np.arange(len(labels))
    rows = np.array_split(order, number) if apart else [order[k::number] for k in range(number)]
    return {f"party {k}": (labels[at], scores[at]) for k, at in enumerate(rows)}


@pytest.mark.parametrize("decimals", [None, 1, 0])
def test_the_auc_of_doubled_midranks_is_scikit_learns(decimals):
    labels, scores = drawn(decimals=decimals)
    ranks = doubled_midranks(scores)
    found = auc_of(int(labels.sum()), int(ranks[labels].sum()), len(labels))
    assert found == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("number", [1, 3, 40])
def test_pairs_without_noise_give_the_auc(name, number):
    labels, scores = drawn(decimals=1)
    ranks, party = doubled_midranks(scores), np.arange(len(labels)) % number
    known = PartyRanks.of(ranks, party, number)
    pairs = [
        noisy_pair(
            labels[party == k],
            ranks[party == k],
            PartyTerms(terms.centre, NOTHING, NOTHING),
            None,
        )
        for k, terms in enumerate(MECHANISMS[name].terms(known, privacy_of(name)))
    ]
    found = auc_estimate(pairs, MECHANISMS[name], known, privacy_of(name))
    assert found.value == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


def test_the_balance_rank_leaves_the_auc_alone():
    at = balance_rank(0.8, 1000, 5000)
    total = 0.8 * 2 * 1000 * 4000 + 1000 * 999
    assert auc_of(1001, total + at, 5000) == pytest.approx(0.8, abs=1e-6)
    assert auc_of(1001, total + at + 2000, 5000) > 0.8001


def test_parties_differ_in_what_they_send():
    ranks = np.array([0, 2, 4, 6, 8, 10])
    known = PartyRanks.of(ranks, np.array([0, 0, 0, 1, 1, 2]), 4)
    splits = {name: row.split(known) for name, row in MECHANISMS.items()}
    assert splits["laplace-global"].reach.tolist() == [10, 10, 10, 10]
    assert splits["laplace-local"].reach.tolist() == [4, 8, 10, 0]
    assert splits["orthogonal"].reach.tolist() == [2, 1, 0, 0]
    assert splits["orthogonal"].centre.tolist() == [2, 7, 10, 0]
    # A party whose ranks are all alike spends everything on its positives.
    assert (splits["adaptive"].share == 2**16).tolist() == [False, False, True, True]
    part = splits["adaptive"].share[1] / 2**16
    assert part == pytest.approx(7 ** (2 / 3) / (7 ** (2 / 3) + 1), abs=1e-4)


@pytest.mark.parametrize("name", MECHANISMS)
def test_any_mechanism_can_be_asked_for(name):
    labels, scores = drawn(20_000)
    result = fg.evaluate_vertical(
        None,
        by_party(labels, scores, 3),
        only="roc_auc",
        mechanism=name,
        privacy=privacy_of(name),
        seed=1,
    )
    low, high = result.roc_auc.bounds
    assert low <= roc_auc_score(labels, scores) <= high
    assert high - low < 0.1
    assert (result.mechanism, result.parties, result.examples) == (name, 3, 20_000)
    stated = result.privacy
    assert (stated.unit, stated.neighbours, stated.epsilon) == ("label", "flip", 1.0)
    assert (stated.delta, stated.cohort) == (privacy_of(name).delta or 0.0, None)


def test_scores_by_id_and_scores_of_parties_are_the_same():
    labels, scores = drawn()
    ids = np.arange(len(labels))
    apart = {f"party {k}": (ids[k::3], labels[k::3]) for k in range(3)}
    together = by_party(labels, scores, 3)
    for options in ({}, {"only": "roc_auc"}, {"only": "roc_auc", "mechanism": "adaptive"}):
        one = fg.evaluate_vertical((ids, scores), apart, seed=1, **options)
        other = fg.evaluate_vertical(None, together, seed=1, **options)
        assert one.roc_auc == other.roc_auc


@pytest.mark.parametrize(
    ("number", "apart", "expected"),
    [(1, False, True), (2, False, True), (20, False, False), (3, True, True), (400, True, False)],
)
def test_auto_takes_pairs_of_few_parties_or_of_parties_that_differ(number, apart, expected):
    labels, scores = drawn(200_000)
    result = fg.evaluate_vertical(
        None, by_party(labels, scores, number, apart=apart), only="roc_auc", seed=1
    )
    assert (result.mechanism != "histogram") == expected
    assert result.predicted[result.mechanism] == min(result.predicted.values())
    assert set(result.predicted) == {"histogram", *MECHANISMS} - {"gaussian"}


def test_flipped_labels_leave_nothing_to_choose():
    parties, flips = by_party(*drawn(), 3), fg.LocalDP(1.0, unit="label")
    alone = fg.evaluate_vertical(None, parties, privacy=flips, only="roc_auc", seed=1)
    assert alone.roc_auc == fg.evaluate_vertical(None, parties, privacy=flips, seed=1).roc_auc
    assert (alone.mechanism, list(alone.predicted)) == ("histogram", ["histogram"])


def test_labels_choose_nothing():
    labels, scores = drawn()
    one, other = (
        fg.evaluate_vertical(None, by_party(read, scores, 3), only="roc_auc", seed=1)
        for read in (labels, np.roll(labels, 1))
    )
    assert one.predicted == other.predicted
    assert one.mechanism == other.mechanism


def test_a_histogram_may_give_the_auc_alone():
    labels, scores = drawn()
    parties = by_party(labels, scores, 5)
    same = {"tree": (16,), "seed": 1}
    alone = fg.evaluate_vertical(None, parties, only="roc_auc", mechanism="histogram", **same)
    assert alone.roc_auc == fg.evaluate_vertical(None, parties, **same).roc_auc


def test_hidden_positives_are_told():
    labels, scores = np.arange(40) < 2, np.arange(40.0)
    with pytest.raises(fg.NoSignal, match="hides the number of positives"):
        fg.evaluate_vertical(
            None, by_party(labels, scores, 4), only="roc_auc", mechanism="adaptive", seed=1
        )


def test_hidden_negatives_are_told():
    known = PartyRanks.of(np.arange(0, 2000, 2), np.zeros(1000, dtype=int), 1)
    with pytest.raises(fg.NoSignal, match="hides the number of negatives"):
        auc_estimate([PairAnswer(998, 10**6)], MECHANISMS["laplace-local"], known, LABEL_DP)


@pytest.mark.parametrize(
    ("name", "least", "most"), [("adaptive", 2.0, 2.17), ("gaussian", 1.959, 1.961)]
)
def test_bounds_and_intervals_know_the_noise(name, least, most):
    """Noise of one party is Laplace: 1.96 deviations hold 94% of it, 2.16 hold 95%."""
    known = PartyRanks.of(np.arange(0, 20_000, 2), np.zeros(10_000, dtype=int), 1)
    privacy = privacy_of(name)
    (terms,) = MECHANISMS[name].terms(known, privacy)
    ranks = round(0.8 * 2 * 3000 * 7000 + 3000 * 2999) - terms.centre * 3000
    found = auc_estimate([PairAnswer(3000, ranks)], MECHANISMS[name], known, privacy)
    noise, sampling = found.parts["noise"], found.parts["sampling"]
    reach = (found.bounds[1] - found.bounds[0]) / 2
    assert least <= reach / noise <= most
    assert (found.high - found.low) / 2 == pytest.approx(np.hypot(reach, 1.96 * sampling), rel=0.01)


def test_an_impossible_auc_is_brought_back():
    known = PartyRanks.of(np.arange(0, 2000, 2), np.zeros(1000, dtype=int), 1)
    found = auc_estimate([PairAnswer(300, 10**6)], MECHANISMS["laplace-local"], known, LABEL_DP)
    assert (found.value, found.bounds[1], found.high) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mechanism": "adaptive"}, "adaptive gives the AUC and nothing else"),
        ({"only": "roc_auc", "mechanism": "magic"}, "mechanism must be one of auto, histogram"),
        ({"privacy": fg.DistributedDP(1.0)}, "Say LocalDP.epsilon, unit='label'. or Distributed"),
        ({"only": "f1"}, "only must be 'roc_auc' or None"),
        ({"only": "roc_auc", "mechanism": "gaussian"}, "needs DistributedDP with noise='discrete"),
        (
            {"only": "roc_auc", "mechanism": "adaptive", "privacy": GAUSSIAN},
            "needs DistributedDP with noise='polya'",
        ),
    ],
)
def test_what_cannot_be_had_is_refused(options, told):
    with pytest.raises(fg.PlanError, match=told):
        fg.evaluate_vertical({1: 0.5}, {"a": {1: 1}}, **options)


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ({}, "mapping from parties to their labels and scores"),
        ({"a": [0, 1]}, r"party 'a': expected \(y_true, y_score\)"),
        ({"a": ([0, 1], [0.5])}, "party 'a'"),
        ({"a": ([0, 1], [0.5, np.nan])}, "1 of 2 scores are missing or infinite"),
        ({"a": ([0, 1, None], [0.5, 0.6, 0.7])}, "party 'a': 1 of 3 labels are missing"),
        ({"a": ([0, 1, 7], [0.5, 0.6, 0.7])}, "party 'a': 1 of 3 labels are neither bool"),
    ],
)
def test_labels_and_scores_that_do_not_go_together_are_refused(labels, told):
    with pytest.raises(fg.InputError, match=told):
        fg.evaluate_vertical(None, labels, only="roc_auc", mechanism="adaptive")


@pytest.fixture
def result():
    return fg.evaluate_vertical(
        None, by_party(*drawn(), 1), only="roc_auc", mechanism="adaptive", seed=1
    )


def test_a_result_is_saved_and_loaded(result, tmp_path):
    result.to_json(tmp_path / "auc.json")
    again = fg.LabelAuc.from_json(tmp_path / "auc.json")
    assert str(again) == str(result)
    assert (again.roc_auc, again.privacy) == (result.roc_auc, result.privacy)
    assert again.predicted == result.predicted


@pytest.mark.parametrize("text", [b"{}", b"\xff", b'{"format": "fedgauge-evaluation/1"}'])
def test_other_files_are_refused(text, tmp_path):
    path = tmp_path / "other.json"
    path.write_bytes(text)
    with pytest.raises(fg.RecordError, match=r"other\.json"):
        fg.LabelAuc.from_json(path)


def without(record, *path):
    """The record without what is at a path."""
    name, *rest = path
    left = {key: value for key, value in record.items() if key != name}
    return left | {name: without(record[name], *rest)} if rest else left


ODD = {
    "no noise": lambda r: without(r, "roc_auc", "parts", "noise"),
    "no parts": lambda r: without(r, "roc_auc", "parts"),
    "no epsilon": lambda r: without(r, "privacy", "epsilon"),
    "an AUC of 17": lambda r: r | {"roc_auc": r["roc_auc"] | {"value": 17}},
    "no interval": lambda r: r | {"roc_auc": r["roc_auc"] | {"low": None}},
    "an interval upside down": lambda r: r | {"roc_auc": r["roc_auc"] | {"low": 0.99, "high": 0.1}},
    "a level of 2": lambda r: r | {"roc_auc": r["roc_auc"] | {"level": 2}},
    "negative noise": lambda r: r | {"roc_auc": r["roc_auc"] | {"parts": {"noise": -1}}},
    "words": lambda r: r | {"roc_auc": r["roc_auc"] | {"caution": "\x1b[2J VERIFIED"}},
    "no parties": lambda r: r | {"parties": 0},
    "far too many": lambda r: r | {"examples": 1 << 70},
    "another mechanism": lambda r: r | {"mechanism": "\x1b[2J"},
    "another prediction": lambda r: r | {"predicted": {"\u202e": 0.1}},
    "another model": lambda r: r | {"privacy": r["privacy"] | {"epsilon": -1.0}},
    "doubts": lambda r: r | {"doubted": [f"shop-{k}" for k in range(9)]},
}


@pytest.mark.parametrize("change", ODD.values(), ids=ODD)
def test_fields_that_are_missing_or_odd_are_one_line(result, tmp_path, change):
    """A result without its noise was a traceback."""
    path = tmp_path / "auc.json"
    result.to_json(path)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    for command in ("show", "verify"):
        told = commands.complaint(commands.run(command, path), 1)
        assert "not an AUC that fedgauge saved" in told


def test_an_exact_auc_alone_is_shown_and_saved(tmp_path):
    """It was a traceback: there is no noise, and no epsilon."""
    exact = fg.evaluate_vertical(
        None, by_party(*drawn(), 1), only="roc_auc", privacy=fg.SecureAggregation()
    )
    assert "no differential privacy" in str(exact)
    exact.to_json(tmp_path / "auc.json")
    assert str(fg.LabelAuc.from_json(tmp_path / "auc.json")) == str(exact)


def test_another_version_is_told(result, tmp_path):
    path = tmp_path / "auc.json"
    result.to_json(path)
    path.write_text(path.read_text().replace("label-auc/1", "label-auc/2"))
    with pytest.raises(fg.RecordError, match="another version"):
        fg.LabelAuc.from_json(path)


def test_a_result_says_what_it_is(result):
    text = str(result)
    assert "mechanism:  adaptive" in text
    assert "labels:     4,000, at 1 party" in text
    assert "label-DP, one label flipped: epsilon 1" in text
    assert "label-DP" in result._repr_html_()
    assert str(copy.deepcopy(result)) == str(pickle.loads(pickle.dumps(result))) == text  # noqa: S301
