"""For any axis and any scores, the bin found is the bin a binary search over the edges finds."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedgauge import Axis, AxisError

many = settings(deadline=None, max_examples=50)
units = st.floats(0.0, 1.0)
finite = st.floats(allow_nan=False, allow_infinity=False)
moderate = st.floats(-1e9, 1e9, allow_subnormal=False).map(lambda x: round(x, 12))


def points(elements, size=40):
    return st.lists(elements, min_size=2, max_size=size, unique_by=lambda x: x + 0.0).map(sorted)


@st.composite
def uniform(draw):
    bins = draw(st.integers(1, 300))
    low = draw(st.integers(-2000, 2000)) / draw(st.sampled_from([1, 10, 100, 1000, 7]))
    width = draw(st.integers(1, 4000)) / draw(st.sampled_from([1, 10, 100, 1000, 3]))
    return Axis.uniform(bins, low, low + width)


@st.composite
def uniform_floats(draw):
    low, high = sorted(draw(st.tuples(moderate, moderate)))
    try:
        return Axis.uniform(draw(st.integers(1, 300)), low, high)
    except AxisError:
        assume(False)


@st.composite
def logit(draw):
    return Axis.logit(draw(st.integers(1, 150)), limit=draw(st.floats(0.5, 36.0)))


@st.composite
def crowded(draw):
    """Runs of adjacent floats between wide gaps."""
    edges = []
    for start in draw(points(moderate, size=6)):
        edges.append(start)
        for _ in range(draw(st.integers(0, 40))):
            edges.append(math.nextafter(edges[-1], math.inf))
    return Axis.from_edges(sorted(set(edges)))


@st.composite
def towards_ends(draw):
    """Edges that crowd geometrically towards both ends of a range."""
    ratio = draw(st.floats(1.01, 4.0))
    low, width = draw(st.sampled_from([(0.0, 1.0), (-3.5, 5.75), (0.1, 0.8), (1e6, 1e-3)]))
    steps = width * 0.5 * ratio ** -np.arange(draw(st.integers(1, 120)), dtype=float)
    return Axis.from_edges(np.unique(np.concatenate([[low], low + steps, low + width - steps])))


@st.composite
def subnormal(draw):
    numbers = draw(points(st.integers(-1000, 1000)))
    return Axis.from_edges([number * 5e-324 for number in numbers])


@st.composite
def huge(draw):
    far = st.floats(1e308, allow_infinity=False)
    ends = {-draw(far), draw(far)}
    return Axis.from_edges(sorted(ends | set(draw(points(finite)))))


AXES = {
    "uniform": uniform(),
    "uniform between any floats": uniform_floats(),
    "logit": logit(),
    "hundredths": points(st.integers(-300, 300).map(lambda k: k / 100)).map(Axis.from_edges),
    "edges": points(moderate).map(Axis.from_edges),
    "values": points(moderate).map(lambda v: Axis.from_values(v, outside="clip")),
    "crowded": crowded(),
    "towards ends": towards_ends(),
    "subnormal": subnormal(),
    "huge": huge(),
    "any edges": points(finite).map(Axis.from_edges),
    "any values": points(finite).map(lambda v: Axis.from_values(v, outside="clip")),
}
every_kind = pytest.mark.parametrize("kind", AXES)


def oracle(axis, scores):
    index = np.searchsorted(axis.edges, scores, side="right") - 1
    return np.clip(index, 0, axis.bins - 1)


def at_and_around_edges(axis):
    edges = axis.edges
    with np.errstate(over="ignore"):  # beside the largest float lies infinity
        near = [edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf)]
    scores = np.concatenate(near)
    return scores[(scores >= axis.low) & (scores <= axis.high)]


def between(axis, shares):
    shares = np.array(shares, dtype=float)
    return np.clip(axis.low * (1 - shares) + axis.high * shares, axis.low, axis.high)


@every_kind
@many
@given(data=st.data(), shares=st.lists(units, max_size=30))
def test_bins_equal_a_binary_search_over_the_edges(kind, data, shares):
    axis = data.draw(AXES[kind])
    scores = np.concatenate([at_and_around_edges(axis), between(axis, shares)])
    np.testing.assert_array_equal(axis.place(scores), oracle(axis, scores))


@many
@given(axis=st.one_of(uniform(), logit(), towards_ends()), random=st.randoms())
def test_the_bin_of_a_score_does_not_depend_on_the_scores_beside_it(axis, random):
    scores = random.sample(at_and_around_edges(axis).tolist(), 3)
    alone = [int(axis.place(np.array([score]))[0]) for score in scores]
    assert axis.place(np.array(scores)).tolist() == alone


@many
@given(axis=st.one_of(uniform(), logit(), towards_ends()), scores=st.lists(finite, min_size=1))
def test_a_clipping_axis_takes_every_finite_score(axis, scores):
    clipping = Axis.from_edges(axis.edges, outside="clip")
    scores = np.array(scores)
    np.testing.assert_array_equal(clipping.place(scores), oracle(clipping, scores))
    assert clipping.count_refused(scores) == 0


@many
@given(axis=st.one_of(uniform(), logit(), towards_ends()), scores=st.lists(st.floats()))
def test_a_refusing_axis_counts_exactly_the_scores_without_a_bin(axis, scores):
    scores = np.array(scores)
    refused = sum(not axis.low <= score <= axis.high for score in scores.tolist())
    assert axis.count_refused(scores) == refused
    assert (axis.place(scores) is None) == (refused > 0)


@many
@given(values=points(moderate), others=st.lists(st.floats()))
def test_a_values_axis_takes_its_values_and_nothing_else(values, others):
    axis = Axis.from_values(values)
    assert axis.place(np.array(values)).tolist() == list(range(axis.bins))
    scores = np.concatenate([others, np.nextafter(values, np.inf), np.nextafter(values, -np.inf)])
    refused = sum(score not in values for score in scores.tolist())
    assert axis.count_refused(scores) == refused
    assert (axis.place(scores) is None) == (refused > 0)


@pytest.mark.parametrize("bins", [3, 7, 10, 30, 100, 300, 1000, 4096])
@pytest.mark.parametrize(("low", "high"), [(0, 1), (-1, 1), (0, 3), (0.1, 0.9), (-3.5, 2.25)])
def test_every_score_of_few_decimals_on_uniform_axes(bins, low, high):
    axis = Axis.uniform(bins, low, high)
    for unit in (10, 100, 1000):
        scores = np.arange(-4 * unit, 4 * unit + 1) / unit
        scores = scores[(scores >= low) & (scores <= high)]
        np.testing.assert_array_equal(axis.place(scores), oracle(axis, scores))


@every_kind
@many
@given(data=st.data())
def test_axes_survive_their_plain_form(kind, data):
    axis = data.draw(AXES[kind])
    again = Axis.from_spec(axis.spec)
    assert again == axis
    assert again.edges.tobytes() == axis.edges.tobytes()
