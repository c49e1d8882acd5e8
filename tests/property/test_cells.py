"""Small cells: after merging no count is small, nothing moved, and no merging was needless."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, brier_score_loss, log_loss, roc_auc_score
from strategies import ON_GRID, labelled

import fedgauge as fg
from fedgauge.engines.simulation import simulate
from fedgauge.estimation.suppression import is_merging, kept_edges, merged_axis

many = settings(deadline=None, max_examples=150)
AXES = {
    "uniform": fg.Axis.uniform(16, outside="clip"),
    "grid": fg.Axis.uniform(24),
    "logit": fg.Axis.logit(12),
    "edges": fg.Axis.from_edges([0.0, 0.1, 0.3, 0.30000000000000004, 0.31, 0.99, 1.0]),
    "narrow": fg.Axis.uniform(9, 0.2, 0.8, outside="clip"),
    "values": fg.Axis.from_values(np.arange(25) / 24),
    "fewer values": fg.Axis.from_values(np.arange(0, 25, 3) / 24, outside="clip"),
}
every_axis = pytest.mark.parametrize("name", AXES)


@st.composite
def tables(draw, most_bins=9):
    """Counts by channel and bin, many of them zero or small."""
    channels, bins = draw(st.integers(1, 3)), draw(st.integers(1, most_bins))
    cell = st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4, 7])
    rows = st.lists(cell, min_size=bins, max_size=bins)
    return np.array(draw(st.lists(rows, min_size=channels, max_size=channels)))


def obeys(counts, least):
    return bool(np.all((counts == 0) | (counts >= least)))


def every_merging(bins):
    inner = range(1, bins)
    for size in range(bins):
        for chosen in itertools.combinations(inner, size):
            yield [0, *chosen, bins]


def cells(counts, kept):
    return np.add.reduceat(counts, kept[:-1], axis=1)


def held(counts):
    """Bins that hold examples."""
    return int(np.count_nonzero(counts.any(axis=0)))


@many
@given(tables(), st.integers(2, 5))
def test_no_merging_leaves_more_bins_that_hold_examples(counts, least):
    possible = [
        held(merged)
        for kept in every_merging(counts.shape[1])
        if obeys(merged := cells(counts, kept), least)
    ]
    if not possible:
        with pytest.raises(fg.ResultWithheld, match=f"smallest cell, {least}"):
            kept_edges(counts, least)
        return
    kept = kept_edges(counts, least)
    merged = cells(counts, kept)
    assert (kept[0], kept[-1]) == (0, counts.shape[1])
    assert np.all(np.diff(kept) > 0)
    assert obeys(merged, least)
    assert np.array_equal(merged.sum(axis=1), counts.sum(axis=1))
    assert held(merged) == max(possible)


@many
@given(tables(most_bins=12), st.integers(2, 5))
def test_an_edge_beside_empty_bins_is_none_of_a_merged_bin(counts, least):
    # It would show where the last of a few examples lies, as closely as the plan's axis.
    if not obeys(counts.sum(axis=1), least):
        return
    kept, empty = kept_edges(counts, least), ~counts.any(axis=0)
    for low, high in itertools.pairwise(kept):
        inside = ~empty[low:high]
        if np.count_nonzero(inside) > 1 and empty.any():
            below = kept[kept < low]
            # The bin below holds examples: an empty one would have been taken along.
            assert not below.size or not empty[below[-1] : low].all()
            assert high == len(empty) or not empty[high : kept[kept > high][0]].all()


@many
@given(tables(), st.integers(2, 5))
def test_counts_that_are_large_stay(counts, least):
    counts = np.where(counts < least, 0, counts)
    assert kept_edges(counts, least).tolist() == list(range(counts.shape[1] + 1))


def test_a_withheld_result_tells_no_count():
    counts = np.array([[500, 400], [2, 1]])
    with pytest.raises(fg.ResultWithheld) as caught:
        kept_edges(counts, 10)
    assert str(caught.value) == (
        "the result is withheld: a class has fewer examples than its plan's smallest cell, 10, so "
        "merging bins cannot hide them. Evaluate on more data, or agree on a smaller min_cell."
    )


def merged_result(axis, labels, scores, least, **options):
    plan = fg.EvaluationPlan.for_histogram(axis, fg.Cohort(1), min_cell=least, **options)
    return simulate({"a": (labels, scores)}, plan)


def usable(labels, least):
    return min(np.bincount(labels, minlength=2)) >= least


@every_axis
@many
@given(rows=labelled(ON_GRID, most=60), least=st.integers(2, 6))
def test_rates_at_the_edges_that_remain_are_those_of_the_rows(name, rows, least):
    labels, scores = rows
    axis = AXES[name]
    if not usable(labels, least):
        with pytest.raises(fg.ResultWithheld):
            merged_result(axis, *_inside(axis, labels, scores), least)
        return
    labels, scores = _inside(axis, labels, scores)
    result = merged_result(axis, labels, scores, least)
    released = result.released
    assert obeys(released.counts, least)
    assert released.counts.sum(axis=1).tolist() == np.bincount(labels, minlength=2).tolist()
    assert is_merging(axis, released.axis)
    assert set(released.axis.thresholds) <= set(axis.thresholds)
    for edge in released.axis.thresholds[1:]:
        found = result.at_threshold(float(edge))
        flagged = scores >= edge
        assert found.recall.bounds == pytest.approx([flagged[labels == 1].mean()] * 2, abs=1e-12)
        assert found.fpr.bounds == pytest.approx([flagged[labels == 0].mean()] * 2, abs=1e-12)


def _inside(axis, labels, scores):
    """Scores that the axis tells apart as they are: a value axis that clips moves the others."""
    if axis.kind == "values" and axis.outside == "clip":
        scores = axis.edges[axis.index(scores)]
    return labels, scores


@every_axis
@many
@given(rows=labelled(ON_GRID, most=60), least=st.integers(2, 6), sums=st.booleans())
def test_bounds_hold_what_the_rows_give(name, rows, least, sums):
    labels, scores = rows
    axis = AXES[name]
    if not usable(labels, least):
        return
    labels, scores = _inside(axis, labels, scores)
    options = {"score_sums": sums and axis.kind != "values"}
    result = merged_result(axis, labels, scores, least, **options)
    exact = {
        "roc_auc": roc_auc_score(labels, scores),
        "average_precision": average_precision_score(labels, scores),
        "brier_score": brier_score_loss(labels, scores),
        "log_loss": log_loss(labels, scores),
    }
    for name_, value in exact.items():
        low, high = getattr(result, name_).bounds
        assert low - 1e-9 <= value <= high + 1e-9, name_


@pytest.mark.parametrize("name", [name for name, axis in AXES.items() if axis.kind != "values"])
@many
@given(rows=labelled(ON_GRID, most=60), least=st.integers(2, 6))
def test_sums_of_merged_bins_are_those_of_the_rows(name, rows, least):
    labels, scores = rows
    axis = AXES[name]
    if not usable(labels, least):
        return
    released = merged_result(axis, labels, scores, least, score_sums=True).released
    edges = released.axis.edges
    inside = np.clip(scores, axis.low, axis.high)
    index = released.axis.index(inside)
    width = np.diff(edges)[index]
    places = (inside - edges[index]) / width * 256
    assert released.sums.dtype == np.int64
    slack = 0.5 + 1e-6  # each place was rounded to a step of a bin that is not wider, and the sum
    for label in (0, 1):
        rows_ = labels == label
        exact = np.bincount(index[rows_], places[rows_], minlength=released.axis.bins)
        off = np.abs(released.sums[label] - exact)
        assert np.all(off <= slack * (released.counts[label] + 1))
        assert np.all(released.sums[label] <= 256 * released.counts[label])


def test_merged_values_are_ranges_that_start_at_values():
    axis = fg.Axis.from_values([0.0, 0.25, 0.5, 1.0])
    two = merged_axis(axis, np.array([0, 2, 4]))
    assert two.edges.tolist() == [0.0, 0.5, 1.0]
    last = merged_axis(axis, np.array([0, 3, 4]))
    assert last.edges.tolist() == [0.0, 1.0, np.nextafter(1.0, 2.0)]
    assert not last.separates_all
    assert merged_axis(axis, np.arange(5)) is axis


@pytest.mark.parametrize(
    "edges", [[0.0, 0.3, 1.0], [0.25, 1.0], [0.0, 0.5], [0.0, 1.0, 2.0], [0.0, 0.5, 0.75]]
)
def test_other_axes_are_no_mergings(edges):
    axis = fg.Axis.uniform(4)
    assert is_merging(axis, fg.Axis.from_edges([0.0, 0.25, 1.0]))
    assert not is_merging(axis, fg.Axis.from_edges(edges))
    assert not is_merging(axis, fg.Axis.from_edges([0.0, 0.25, 1.0], outside="clip"))


@pytest.fixture
def merged(tmp_path):
    rng = np.random.default_rng(5)
    labels = rng.random(900) < 0.2
    scores = np.clip(rng.normal(0.3 + 0.2 * labels, 0.15), 0, 1)
    plan = fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(64, outside="clip"), fg.Cohort(1), min_cell=10, score_sums=True
    )
    result = simulate({"a": (labels, scores)}, plan)
    result.to_json(tmp_path / "result.json")
    return result, tmp_path / "result.json"


def test_a_merged_result_survives_json_and_says_that_bins_were_merged(merged):
    result, path = merged
    again = fg.Evaluation.from_json(path)
    assert again.released.axis == result.released.axis != result.plan.axis
    assert np.array_equal(again.released.counts, result.released.counts)
    assert np.array_equal(again.released.sums, result.released.sums)
    assert again.record == result.record
    assert str(again) == str(result)
    assert [row.threshold for row in again.threshold_table()] == [
        row.threshold for row in result.threshold_table()
    ]
    assert {row.threshold for row in again.threshold_table()} <= set(again.released.axis.edges)
    bins = result.released.axis.bins
    assert f"measured           {bins} bins, merged from 64, no count below 10, " in str(result)


def test_a_result_that_needed_no_merging_has_the_axis_of_its_plan(tmp_path):
    plan = fg.EvaluationPlan.for_histogram(fg.Axis.uniform(2), fg.Cohort(1), min_cell=2)
    simulate({"a": ([0, 0, 1, 1], [0.1, 0.2, 0.7, 0.9])}, plan).to_json(tmp_path / "r.json")
    assert "axis" not in json.loads((tmp_path / "r.json").read_bytes())
    assert fg.Evaluation.from_json(tmp_path / "r.json").released.axis == plan.axis


def _small(saved):
    counts = saved["slices"][0]["counts"]
    place = next(i for i, count in enumerate(counts[1]) if count)
    counts[1][place] = 9


def _other_axis(saved):
    points = saved["axis"]["points"]
    points[1] -= 1e-4
    saved["axis"]["digest"] = ""


BROKEN = {
    "a small count": _small,
    "no axis": lambda saved: saved.pop("axis"),
    "another axis": _other_axis,
    "no rule": lambda saved: saved["plan"].pop("min_cell"),
    "sums beyond": lambda saved: saved["slices"][0]["score_sums"][0].__setitem__(0, 1e9),
}


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_results_that_break_the_rule_are_refused(merged, change):
    _, path = merged
    saved = json.loads(path.read_bytes())
    change(saved)
    path.write_text(json.dumps(saved))
    with pytest.raises(fg.RecordError, match="not a fedgauge result"):
        fg.Evaluation.from_json(path)
