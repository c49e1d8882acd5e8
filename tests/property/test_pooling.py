"""However rows are spread, the sum is the pooled histogram, its edges are exact, and sums of the
places of scores within bins are right for every row."""

import bisect
import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedgauge as fg
from fedgauge import Axis, ScoreHistogram
from fedgauge.data.examples import read_batches
from fedgauge.engines.simulation import simulate

many = settings(deadline=None, max_examples=40)
SUMMED = {
    "dyadic": Axis.uniform(16),
    "hundredths": Axis.uniform(100),
    "sevenths": Axis.uniform(7),
    "thirtieths": Axis.uniform(30),
    "wider": Axis.uniform(33, -0.2, 1.3),
    "logit": Axis.logit(20),
    "edges": Axis.from_edges([0.0, 0.1, 0.3, 0.30000000000000004, 0.31, 0.99, 1.0]),
    "clipping": Axis.uniform(9, 0.2, 0.8, outside="clip"),
    "clipping far away": Axis.from_edges([-1e300, 0.0, 1.0, 1e300], outside="clip"),
    "subnormal": Axis.from_edges([0.0, 5e-324, 2e-323, 1.0]),
    "one bin": Axis.uniform(1),
}
AXES = SUMMED | {"values": Axis.from_values(np.arange(101) / 100)}
every_axis = pytest.mark.parametrize("name", AXES)
every_steps = st.sampled_from([1, 2, 7, 255, 256])


@st.composite
def rows(draw, axis, most=60):
    """Labels and scores: decimals, ties, scores at edges and beside them; outside, if clipped."""
    edges = axis.edges[(axis.edges >= 0) & (axis.edges <= 1)]
    kinds = [st.integers(0, 100).map(lambda k: k / 100), st.sampled_from(edges.tolist())]
    if not axis.separates_all:
        beside = np.nextafter(edges, 0.5).tolist() + np.nextafter(edges, 0.0).tolist()
        kinds += [st.sampled_from([*beside, 0.5]), st.floats(0.0, 1.0)]
    if axis.outside == "clip":
        kinds += [st.sampled_from([-3.0, 7.0, -1.7e308, 1.7e308, 0.2, 0.8])]
    pairs = draw(st.lists(st.tuples(st.booleans(), st.one_of(kinds)), min_size=1, max_size=most))
    labels, scores = zip(*pairs, strict=True)
    return np.array(labels), np.array(scores)


def histogram(axis, labels, scores, steps=0):
    made = ScoreHistogram(axis, sum_steps=steps)
    made.update(labels, scores)
    return made


def brute_force(axis, labels, scores, steps):
    """The definition, row by row in Python's own arithmetic."""
    edges = axis.edges.tolist()
    sums = np.zeros((2, axis.bins), dtype=object)
    for label, score in zip(labels.tolist(), scores.tolist(), strict=True):
        s = min(max(score, edges[0]), edges[-1])
        i = min(bisect.bisect_right(edges, s) - 1, axis.bins - 1)
        a, b = edges[i], edges[i + 1]
        sums[int(label), i] += round((s - a) / (b - a) * steps)
    return sums.tolist()


@every_axis
@many
@given(data=st.data())
def test_any_split_over_clients_and_chunks_gives_the_pooled_counts_and_sums(name, data):
    axis, steps = AXES[name], data.draw(every_steps) if name in SUMMED else 0
    labels, scores = data.draw(rows(axis))
    pooled = histogram(axis, labels, scores, steps)
    np.testing.assert_array_equal(pooled.counts, histogram(axis, labels, scores).counts)
    if steps:
        assert pooled.sums.dtype == np.int64
        assert pooled.sums.tolist() == brute_force(axis, labels, scores, steps)
        assert np.all(pooled.sums >= 0)
        assert np.all(pooled.sums <= steps * pooled.counts)
    clients = st.lists(st.integers(0, 7), min_size=len(labels), max_size=len(labels))
    owner = np.array(data.draw(clients))
    parts = [
        histogram(axis, labels[owner == i], scores[owner == i], steps) for i in np.unique(owner)
    ]
    assert sum(parts) == pooled
    cuts = sorted(data.draw(st.lists(st.integers(0, len(labels)), max_size=6)))
    streamed = ScoreHistogram(axis, sum_steps=steps)
    streamed.update_batches(
        read_batches(lambda: zip(np.split(labels, cuts), np.split(scores, cuts), strict=True))
    )
    assert streamed == pooled


@pytest.mark.parametrize("name", SUMMED)
@many
@given(data=st.data())
def test_mean_score_is_wrong_by_half_a_step_at_most(name, data):
    axis, steps = AXES[name], 256
    labels, scores = data.draw(rows(axis))
    found = histogram(axis, labels, scores, steps)
    clipped = np.clip(scores, axis.low, axis.high)
    index = axis.index(scores)
    for channel, place in zip(*np.nonzero(found.counts), strict=True):
        inside = clipped[(labels == channel) & (index == place)].tolist()
        a, b = (Fraction(edge) for edge in axis.edges[place : place + 2].tolist())
        mean = sum(map(Fraction, inside)) / len(inside)
        told = a + (b - a) * Fraction(
            int(found.sums[channel, place]), steps * int(found.counts[channel, place])
        )
        # Beyond half a step only the rounding of a float, at most 2^-50 of a bin.
        assert abs(told - mean) <= (b - a) * (Fraction(1, 2 * steps) + Fraction(1, 2**50))


@many
@given(data=st.data(), summation=st.sampled_from(["plain", "secure"]))
def test_an_evaluation_has_the_sums_of_the_pooled_rows(data, summation):
    axis = AXES["clipping"]
    parts = [data.draw(rows(axis, most=20)) for _ in range(3)]
    clients = {f"site-{i}": part for i, part in enumerate(parts)}
    plan = fg.EvaluationPlan.for_histogram(axis, fg.Cohort(len(clients)), score_sums=True)
    found = simulate(clients, plan, summation=summation)
    labels, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
    assert found.released.sums.tolist() == brute_force(axis, labels, scores, 256)


def confusion_from_counts(counts):
    """TN, FP, FN, TP at the lower edge of every bin."""
    at_or_above = counts[:, ::-1].cumsum(axis=1)[:, ::-1]
    (fp, tp), (negatives, positives) = at_or_above, counts.sum(axis=1)
    return np.stack([negatives - fp, fp, positives - tp, tp], axis=1)


@every_axis
@many
@given(data=st.data())
def test_every_lower_edge_has_the_confusion_matrix_of_the_pooled_rows(name, data):
    axis = AXES[name]
    labels, scores = data.draw(rows(axis))
    predicted = np.clip(scores, axis.low, axis.high) >= axis.thresholds[:, None]
    sides = itertools.product((~labels, labels), (~predicted, predicted))
    expected = np.stack([(own & flagged).sum(axis=1) for own, flagged in sides], axis=1)
    found = confusion_from_counts(histogram(axis, labels, scores).counts)
    np.testing.assert_array_equal(found, expected)


@many
@given(tree=st.lists(st.integers(1, 5), min_size=1, max_size=4), seed=st.integers(0, 2**32 - 1))
def test_levels_of_any_tree_add_up(tree, seed):
    rng = np.random.default_rng(seed)
    axis = Axis.uniform(int(np.prod(tree)))
    levels = histogram(axis, rng.random(50) < 0.5, rng.random(50)).levels(tree)
    nodes = np.cumprod(tree).tolist()
    assert [level.shape for level in levels] == [(2, count) for count in nodes]
    for parents, children, branching in zip(levels, levels[1:], tree[1:], strict=False):
        grouped = [children[:, start::branching] for start in range(branching)]
        np.testing.assert_array_equal(parents, sum(grouped))


@settings(deadline=None, max_examples=40)
@given(data=st.data(), name=st.sampled_from(sorted(AXES)))
def test_evaluating_streams_of_many_clients_equals_evaluating_the_pooled_rows(data, name):
    axis = AXES[name]
    parts = data.draw(st.lists(rows(axis, most=20), min_size=1, max_size=5))
    parts.append((np.array([False, True]), axis.thresholds[[0, -1]]))  # both classes are there
    labels, scores = (np.concatenate(column) for column in zip(*parts, strict=True))

    def stream(part):
        halves = [np.array_split(column, 2) for column in part]
        return lambda: (tuple(chunk) for chunk in zip(*halves, strict=True))

    clients = ((f"site-{i}", stream(part)) for i, part in enumerate(parts))
    found = fg.evaluate(clients, axis=axis)
    pooled = fg.evaluate({"all": (labels, scores)}, axis=axis)
    assert found.clients == len(parts)
    assert (found.negatives, found.positives) == (pooled.negatives, pooled.positives)
    assert found.roc_auc.value == pooled.roc_auc.value
    np.testing.assert_array_equal(found.roc_curve().tpr, pooled.roc_curve().tpr)
