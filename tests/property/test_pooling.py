"""However the rows are spread, the sum is the pooled histogram and its edges are exact."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix

import fedgauge
from fedgauge import Axis, ScoreHistogram
from fedgauge.data.examples import read_batches

many = settings(deadline=None, max_examples=30)
AXES = {
    "dyadic": Axis.uniform(16),
    "hundredths": Axis.uniform(100),
    "sevenths": Axis.uniform(7),
    "thirtieths": Axis.uniform(30),
    "wider": Axis.uniform(33, -0.2, 1.3),
    "logit": Axis.logit(20),
    "edges": Axis.from_edges([0.0, 0.1, 0.3, 0.30000000000000004, 0.31, 0.99, 1.0]),
    "values": Axis.from_values(np.arange(101) / 100),
    "clipping": Axis.uniform(9, 0.2, 0.8, outside="clip"),
    "one bin": Axis.uniform(1),
}
every_axis = pytest.mark.parametrize("name", AXES)
hundredths = st.integers(0, 100).map(lambda k: k / 100)


@st.composite
def rows(draw, axis, most=60):
    """Labels and scores: decimals, scores at edges and the floats beside them, any scores."""
    edges = axis.edges[(axis.edges >= 0) & (axis.edges <= 1)]
    kinds = [hundredths, st.sampled_from(edges.tolist())]
    if not axis.separates_all:
        beside = np.nextafter(edges, 0.5).tolist() + np.nextafter(edges, 0.0).tolist()
        kinds += [st.sampled_from(beside), st.floats(0.0, 1.0)]
    pairs = draw(st.lists(st.tuples(st.booleans(), st.one_of(kinds)), min_size=1, max_size=most))
    labels, scores = zip(*pairs, strict=True)
    return np.array(labels), np.array(scores)


def histogram(axis, labels, scores):
    made = ScoreHistogram(axis)
    made.update(labels, scores)
    return made


def confusion_from_counts(counts):
    """TN, FP, FN, TP at the lower edge of every bin."""
    at_or_above = counts[:, ::-1].cumsum(axis=1)[:, ::-1]
    (fp, tp), (negatives, positives) = at_or_above, counts.sum(axis=1)
    return np.stack([negatives - fp, fp, positives - tp, tp], axis=1)


def clipped(axis, scores):
    return np.clip(scores, axis.low, axis.high)


@every_axis
@many
@given(data=st.data())
def test_any_split_over_clients_and_chunks_gives_the_pooled_histogram(name, data):
    axis = AXES[name]
    labels, scores = data.draw(rows(axis))
    clients = data.draw(st.integers(1, 8))
    owner = np.array(
        data.draw(st.lists(st.integers(0, clients - 1), min_size=len(labels), max_size=len(labels)))
    )
    parts = [histogram(axis, labels[owner == i], scores[owner == i]) for i in np.unique(owner)]
    assert sum(parts) == histogram(axis, labels, scores)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(labels)), max_size=6)))

    def chunks():
        return zip(np.split(labels, cuts), np.split(scores, cuts), strict=True)

    streamed = ScoreHistogram(axis)
    streamed.update_batches(read_batches(chunks))
    assert streamed == histogram(axis, labels, scores)


@every_axis
@many
@given(data=st.data())
def test_every_lower_edge_has_the_confusion_matrix_of_the_pooled_rows(name, data):
    axis = AXES[name]
    labels, scores = data.draw(rows(axis))
    predicted = clipped(axis, scores) >= axis.thresholds[:, None]
    sides = itertools.product((~labels, labels), (~predicted, predicted))
    expected = np.stack([(own & flagged).sum(axis=1) for own, flagged in sides], axis=1)
    found = confusion_from_counts(histogram(axis, labels, scores).counts)
    np.testing.assert_array_equal(found, expected)


@every_axis
@settings(deadline=None, max_examples=4)
@given(data=st.data())
def test_every_lower_edge_agrees_with_scikit_learn(name, data):
    axis = AXES[name]
    labels, scores = data.draw(rows(axis))
    found = confusion_from_counts(histogram(axis, labels, scores).counts)
    for threshold, cells in zip(axis.thresholds, found, strict=True):
        matrix = confusion_matrix(labels, clipped(axis, scores) >= threshold, labels=[False, True])
        assert cells.tolist() == matrix.ravel().tolist()


@many
@given(data=st.data())
def test_clipping_keeps_inner_edges_exact(data):
    axis = AXES["clipping"]
    labels, scores = data.draw(rows(axis))
    found = confusion_from_counts(histogram(axis, labels, scores).counts)
    for threshold, (_, fp, _, tp) in zip(axis.thresholds[1:], found[1:], strict=True):
        assert fp == np.count_nonzero((scores >= threshold) & ~labels)
        assert tp == np.count_nonzero((scores >= threshold) & labels)


@many
@given(data=st.data(), bins=st.integers(1, 200))
def test_two_decimal_scores_on_any_uniform_axis(data, bins):
    axis = Axis.uniform(bins)
    scores = np.array(data.draw(st.lists(hundredths, min_size=1, max_size=60)))
    labels = np.arange(len(scores)) % 2 == 0
    found = confusion_from_counts(histogram(axis, labels, scores).counts)
    at_or_above = scores >= axis.thresholds[:, None]
    np.testing.assert_array_equal(found[:, 3], (at_or_above & labels).sum(axis=1))
    np.testing.assert_array_equal(found[:, 1], (at_or_above & ~labels).sum(axis=1))


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
    found = fedgauge.evaluate(clients, axis=axis)
    pooled = fedgauge.evaluate({"all": (labels, scores)}, axis=axis)
    assert found.clients == len(parts)
    assert (found.negatives, found.positives) == (pooled.negatives, pooled.positives)
    assert found.roc_auc.value == pooled.roc_auc.value
    np.testing.assert_array_equal(found.roc_curve().tpr, pooled.roc_curve().tpr)
