"""Sums of the places of scores within bins: right for every row, and the same however spread."""

import bisect
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
AXES = {
    "dyadic": Axis.uniform(16),
    "hundredths": Axis.uniform(100),
    "sevenths": Axis.uniform(7),
    "wider": Axis.uniform(33, -0.2, 1.3),
    "logit": Axis.logit(20),
    "edges": Axis.from_edges([0.0, 0.1, 0.3, 0.30000000000000004, 0.31, 0.99, 1.0]),
    "clipping": Axis.uniform(9, 0.2, 0.8, outside="clip"),
    "clipping far away": Axis.from_edges([-1e300, 0.0, 1.0, 1e300], outside="clip"),
    "subnormal": Axis.from_edges([0.0, 5e-324, 2e-323, 1.0]),
    "one bin": Axis.uniform(1),
}
every_axis = pytest.mark.parametrize("name", AXES)
every_steps = st.sampled_from([1, 2, 7, 255, 256])


@st.composite
def rows(draw, axis, most=60):
    """Labels and scores: decimals, ties, scores at edges and beside them; outside, if clipped."""
    edges = axis.edges[(axis.edges >= 0) & (axis.edges <= 1)]
    beside = [*np.nextafter(edges, 0.5), *np.nextafter(edges, 0.0)]
    kinds = [
        st.integers(0, 100).map(lambda k: k / 100),
        st.sampled_from([*edges.tolist(), *map(float, beside), 0.5]),
        st.floats(0.0, 1.0),
    ]
    if axis.outside == "clip":
        kinds += [st.sampled_from([-3.0, 7.0, -1.7e308, 1.7e308, 0.2, 0.8])]
    pairs = draw(st.lists(st.tuples(st.booleans(), st.one_of(kinds)), min_size=1, max_size=most))
    labels, scores = zip(*pairs, strict=True)
    return np.array(labels), np.array(scores)


def histogram(axis, labels, scores, steps):
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
def test_sums_are_those_of_a_loop_over_the_rows_however_split(name, data):
    axis, steps = AXES[name], data.draw(every_steps)
    labels, scores = data.draw(rows(axis))
    found = histogram(axis, labels, scores, steps)
    assert found.sums.dtype == np.int64
    assert found.sums.tolist() == brute_force(axis, labels, scores, steps)
    assert np.all(found.sums >= 0)
    assert np.all(found.sums <= steps * found.counts)
    plain = ScoreHistogram(axis)
    plain.update(labels, scores)
    np.testing.assert_array_equal(found.counts, plain.counts)
    pooled = histogram(axis, labels, scores, steps)
    owner = np.array(
        data.draw(st.lists(st.integers(0, 5), min_size=len(labels), max_size=len(labels)))
    )
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


@every_axis
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
