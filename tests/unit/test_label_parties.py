"""Rosters, bins as parties are told them, and the totals that whoever scored keeps."""

import msgspec
import numpy as np
import pyarrow as pa
import pytest

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
    with pytest.raises(InputError, match="labels: 1 id is missing"):
        ids_of("labels", [1, None])


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
        *(
            ({"scores": np.array(s).tobytes(), "rows": np.array(n).tobytes()}, "not as they must")
            for s, n in (([0.5, 0.5], [1, 1]), ([np.nan], [1]))
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
