"""Rows count alike from every source: on any axis, at edges and their neighbours, odd or not."""

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from databases import MISSING, connected, find_postgres
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plans import noisy_plan

import fedgauge as fg
from fedgauge.engines.contribution import count_leniently, count_rows
from fedgauge.histograms.cut_points import CutPoints
from sources import INSIDE, LAZY, sources

# What ibis calls of DuckDB.
pytestmark = pytest.mark.filterwarnings("ignore:fetch_.* is deprecated:DeprecationWarning")
few = settings(
    deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
TINY = 5e-324
ABOVE_ONE = math.nextafter(1, 2)
AXES = {
    "auto": fg.Axis.probabilities(),
    "at": fg.Axis.probabilities([0.1, 0.3, 0.7]),
    "powers": fg.Axis.uniform(4096),
    "tenths": fg.Axis.uniform(10),
    "many": fg.Axis.uniform(1000),
    "wide": fg.Axis.uniform(64, -8, 8),
    "coarse": fg.Axis.uniform(16, -8192, 8192),
    "odd": fg.Axis.uniform(7, -0.3, 2.2, outside="clip"),
    "logit": fg.Axis.logit(100),
    "fine logit": fg.Axis.logit(1024),
    "asinh": fg.Axis.asinh(50),
    "edges": fg.Axis.from_edges([-1e300, -TINY, 0.0, TINY, 0.3, math.nextafter(0.3, 1), 1e300]),
    "values": fg.Axis.from_values([0, 1, 2.5, 10]),
    "clipped values": fg.Axis.from_values([0, 0.1, 0.2, 0.3], outside="clip"),
    "one": fg.Axis.uniform(1),
}
IN_PLACE = {*AXES} - {"many", "fine logit"}  # by a lazy frame: the others have too many parts


@pytest.fixture(scope="module")
def databases():
    with connected() as all_of_them:
        yield all_of_them


@pytest.mark.skipif(find_postgres() is None, reason=MISSING)
def test_postgres_is_among_the_sources(databases, tmp_path):
    """Without it, the tests below are about the others."""
    forms = sources(pa.table({"y": [1], "p": [0.5]}), databases, tmp_path)
    assert set(INSIDE) <= set(forms)


def plan_of(axis):
    return fg.EvaluationPlan.for_histogram(axis, fg.Cohort(3))


def counted(monkeypatch):
    """Collects what is counted in place."""
    found = []
    for home in ("data.lazy_frames.LazyRows", "data.queries.ScoreQuery"):
        name = f"fedgauge.{home}.counted"
        path, owner, method = name.rsplit(".", 2)
        original = getattr(getattr(__import__(path, fromlist=[owner]), owner), method)

        def watched(*given, original=original):
            rows = original(*given)
            found.append(rows is not None)
            return rows

        monkeypatch.setattr(name, watched)
    return found


def edges_and_neighbours(axis):
    edges = axis.edges[:: max(1, axis.bins // 300)]
    edges = np.unique(np.concatenate([edges, axis.edges[-3:], axis.edges[:3]]))
    near = [np.nextafter(edges, -np.inf), edges, np.nextafter(edges, np.inf)]
    return np.concatenate(near)


@pytest.mark.parametrize("name", AXES)
def test_all_edges_and_their_neighbours_count_as_in_memory(name, databases, tmp_path, monkeypatch):
    axis = AXES[name]
    scores = edges_and_neighbours(axis)
    if axis.outside == "refuse":
        inside = (scores >= axis.low) & (scores <= axis.high)
        scores = scores[inside & np.isin(scores, axis.edges) if name == "values" else inside]
    labels = np.arange(len(scores)) % 2 == 0
    expected = count_rows(plan_of(axis), (labels, scores))
    index = np.minimum(np.searchsorted(axis.edges, scores, side="right") - 1, axis.bins - 1)
    if name not in ("odd", "values", "clipped values", "asinh"):  # which NumPy knows nothing of
        by_hand = np.bincount(index[labels & (axis.edges[index] <= scores)], minlength=axis.bins)
        if axis.edges[-1] != axis.edges[-2]:
            np.testing.assert_array_equal(expected.counts[1], by_hand)
    table = pa.table({"y": labels, "p": scores})
    for form, data in sources(table, databases, tmp_path).items():
        in_place = counted(monkeypatch)
        assert count_rows(plan_of(axis), data) == expected, form
        if form in INSIDE or (form in LAZY and name in IN_PLACE):
            assert in_place == [True], form
        elif form in LAZY:
            assert in_place == [False], form
        monkeypatch.undo()


# What a score counts as on four bins between 0 and 1: its bin where odd rows are refused, None if
# it is one; and under noise.
FLOATS = {
    "missing": (None, None, 0),
    "nan": (math.nan, None, 0),
    "inf": (math.inf, None, 3),
    "-inf": (-math.inf, None, 0),
    "-0.0": (-0.0, 0, 0),
    "subnormal": (TINY, 0, 0),
    "negative subnormal": (-TINY, None, 0),
    "below an edge": (math.nextafter(0.25, 0), 0, 0),
    "an edge": (0.25, 1, 1),
    "the top": (1.0, 3, 3),
    "above the top": (ABOVE_ONE, None, 3),
    "far below": (-1e308, None, 0),
}
TEXT = {
    "a number": ("0.5", 2, 2),
    "with spaces": (" 0.5 ", 2, 2),
    "an exponent": ("5e-1", 2, 2),
    "a word": ("high", None, 0),
    "a percentage": ("50%", 2, 2),
    "nan": ("nan", None, 0),
    "inf": ("inf", None, 3),
    "too large": ("1e400", None, 3),
    "missing": (None, None, 0),
}
DECIMALS = {
    "an edge": (Decimal("0.25"), 1, 1),
    "nearest to an edge": (Decimal("0.2499999999999999999"), 1, 1),
    "below an edge": (Decimal("0.24999999999999994"), 0, 0),
    "missing": (None, None, 0),
    "above the top": (Decimal("1.01"), None, 3),
}
WHOLE = {"zero": (0, 0, 0), "one": (1, 3, 3), "two": (2, None, 3), "missing": (None, None, 0)}
TRUTHS = {"true": (True, 3, 3), "false": (False, 0, 0)}
REALS = {"an edge": (0.25, 1, 1), "nan": (math.nan, None, 0), "missing": (None, None, 0)}
SCORES = {
    "float64": FLOATS,
    "float32": REALS,
    "decimal": DECIMALS,
    "int64": WHOLE,
    "bool": TRUTHS,
    "string": TEXT,
}
KINDS = {
    "float64": pa.float64(),
    "float32": pa.float32(),
    "decimal": pa.decimal128(38, 30),
    "int64": pa.int64(),
    "bool": pa.bool_(),
    "string": pa.string(),
}
ODD_SCORES = [(kind, name) for kind, values in SCORES.items() for name in values]


def outcome(data):
    """In which class and bin a row counts where odd ones are refused, and under noise."""
    quoted = []
    try:
        histogram = count_rows(plan_of(fg.Axis.uniform(4)), data)
        strictly = np.argwhere(histogram.counts).tolist()
    except fg.FedgaugeError as error:
        strictly = None
        quoted = [each for each in ("high", "%", "1e400", "1.01", "maybe") if each in str(error)]
    histogram, oddities = count_leniently(noisy_plan(bins=4), lambda: data)
    assert oddities.rows == 1, oddities
    assert not quoted
    return strictly, np.argwhere(histogram.counts).tolist()


@pytest.mark.parametrize(("kind", "name"), ODD_SCORES)
def test_an_odd_score_has_one_outcome_from_every_source(kind, name, databases, tmp_path):
    score, strictly, leniently = SCORES[kind][name]
    expected = (None if strictly is None else [[1, strictly]], [[1, leniently]])
    table = pa.table({"y": [True], "p": pa.array([score], KINDS[kind])})
    for form, data in sources(table, databases, tmp_path).items():
        if form in INSIDE and kind in ("decimal", "bool", "string"):
            with pytest.raises(fg.InputError, match="whole or floating type"):
                data.check()
        elif (form, kind) != ("csv", "bool"):  # there "True" is text
            assert outcome(data) == expected, form


# The class of a label where odd ones are refused, None if it is one; and under noise.
LABELS = {
    "true": (True, pa.bool_(), 1, 1),
    "false": (False, pa.bool_(), 0, 0),
    "missing": (None, pa.bool_(), None, 0),
    "one": (1, pa.int64(), 1, 1),
    "two": (2, pa.int64(), None, 0),
    "a float": (1.0, pa.float64(), 1, 1),
    "text": ("1", pa.string(), 1, 1),
    "text with spaces": (" 1 ", pa.string(), 1, 1),
    "text of a float": ("1.0", pa.string(), 1, 1),
    "text of a truth": ("True", pa.string(), 1, 1),
    "a truth as PostgreSQL prints it": ("t", pa.string(), None, 0),
    "a word": ("maybe", pa.string(), None, 0),
    "missing text": (None, pa.string(), None, 0),
}


@pytest.mark.parametrize("name", LABELS)
def test_an_odd_label_has_one_outcome_from_every_source(name, databases, tmp_path):
    label, kind, strictly, leniently = LABELS[name]
    expected = (None if strictly is None else [[strictly, 2]], [[leniently, 2]])
    table = pa.table({"y": pa.array([label], kind), "p": [0.5]})
    for form, data in sources(table, databases, tmp_path).items():
        assert outcome(data) == expected, form


def test_32_bit_floats_count_as_what_they_hold(databases, tmp_path):
    axis = fg.Axis.from_edges([0, 0.1, float(np.float32(0.1)), 1])
    table = pa.table({"y": [1], "p": pa.array([0.1], pa.float32())})
    for form, data in sources(table, databases, tmp_path).items():
        if form not in ("csv",):  # whose text is that of a 64-bit float
            assert count_rows(plan_of(axis), data).counts[1].tolist() == [0, 0, 1], form


def test_decimals_count_as_the_nearest_float(databases, tmp_path):
    """Which the casts of Arrow and DuckDB miss by one, in every second case."""
    given = np.random.default_rng(0).integers(1, 10**17, 200)
    decimals = [Decimal(int(each)).scaleb(-17) for each in given]
    nearest = sorted(map(float, decimals))
    axis = fg.Axis.from_edges([0.0, *nearest, 1.0])
    column = pa.array(decimals, KINDS["decimal"])
    assert column.cast(pa.float64()).to_pylist() != [*map(float, decimals)]
    table = pa.table({"y": [1] * 200, "p": column})
    for form, data in sources(table, databases, tmp_path).items():
        if form not in INSIDE:
            counted = count_rows(plan_of(axis), data)
            assert counted.counts[1].tolist() == [0] + [1] * 200, form


SCORE = st.floats(0, 1) | st.floats() | st.none() | st.sampled_from([0.25, 0.3, 1.0, -0.0, TINY])
LABEL = st.booleans() | st.none()


@few
@given(
    st.lists(st.tuples(LABEL, SCORE), min_size=1, max_size=40),
    st.sampled_from(sorted(AXES)),
)
def test_any_rows_count_alike_from_every_source(databases, tmp_path, rows, name):
    labels, scores = zip(*rows, strict=True)
    table = pa.table({"y": pa.array(labels, pa.bool_()), "p": pa.array(scores, pa.float64())})
    axis = fg.Axis.from_spec(AXES[name].spec)
    clipping = fg.Axis.uniform(16, -1, 1, outside="clip")
    noisy = fg.EvaluationPlan.for_histogram(clipping, fg.Cohort(3), privacy=fg.DistributedDP(1.0))
    wanted = None
    for form, data in sources(table, databases, tmp_path).items():
        try:
            strictly = count_rows(plan_of(axis), data).counts.tolist()
        except fg.FedgaugeError as error:
            strictly = str(error).rpartition(": ")[2]
        histogram, oddities = count_leniently(noisy, lambda data=data: data)
        assert histogram.sum() == len(rows)
        got = (strictly, histogram.counts.tolist(), oddities)
        wanted = wanted or got
        assert got == wanted, form


@given(st.sampled_from(sorted(AXES)), st.lists(st.floats(allow_nan=True), max_size=20))
def test_the_axis_judges_a_score_of_a_rank_as_every_score_of_it(name, scores):
    axis = AXES[name]
    cuts, array = CutPoints(axis), np.array(scores, dtype=np.float64)
    ranks = np.searchsorted(cuts.values, array, side="right")
    ranks[np.isnan(array)] = cuts.rank_of_missing
    stand_ins = cuts.scores(ranks)
    np.testing.assert_array_equal(axis.place_any(stand_ins).bins, axis.place_any(array).bins)
    np.testing.assert_array_equal(np.isfinite(stand_ins), np.isfinite(array))
    for stand_in, score in zip(stand_ins, array, strict=True):
        pair = [axis.place(np.array([each])) for each in (stand_in, score)]
        assert (pair[0] is None) == (pair[1] is None)
        assert axis.count_beyond(stand_ins) == axis.count_beyond(array)
