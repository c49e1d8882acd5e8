"""The axis: its edges to the last bit, its digest, which bin a score falls in."""

import math
from fractions import Fraction
from functools import partial

import mpmath
import msgspec
import numpy as np
import pytest
from refusals import refused

from fedgauge import Axis, AxisError
from fedgauge.histograms.axis import BinLookup, _uniform_edges

AXES = {
    "uniform": Axis.uniform(7, -3.5, 2.25),
    "uniform clipping": Axis.uniform(100, outside="clip"),
    "logit": Axis.logit(16, limit=9.5),
    "edges": Axis.from_edges([-1.0, 0.1, 0.5, 4.0]),
    "values": Axis.from_values([0.0, 0.2, 0.6, 1.0]),
    "one value": Axis.from_values([0.5], outside="clip"),
}


DIGESTS = {
    "2163ce51a645bcb743faba193eb57e833e15ade65c03743163b60c1bcf1d9338": Axis.uniform(4096),
    "3491fefea35a3347648b6a85294e81807e1c62a549429526b53fd180649b3582": Axis.uniform(100),
    "ee7e3b349b4ae9de491dd5c8b978eb4eb54eccbd19373ddac3e69f4d70507f1b": Axis.uniform(7, -3.5, 2.25),
    "61bb9fa0373ab1c34453fde91c094ca7caf58a76257a62a3e19aadbc4a70c31a": Axis.logit(64),
    "69d4ffe192ccdec2d0de76c027e7b30d4c4e42630a85708ae2e5f516711cd1b9": Axis.logit(4096),
    "35260245a182fdc6e990f2dc42024ae48f873f92e76e8d4b5bacc785b4f76fd4": Axis.probabilities(),
}


def test_digests_and_decimal_edges_are_the_same_on_every_machine():
    assert {axis.digest: axis for axis in DIGESTS.values()} == DIGESTS
    assert Axis.uniform(8, 0.1, 0.9).edges.tolist() == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    assert Axis.uniform(100).edges.tolist() == [float(f"{i}e-2") for i in range(101)]


@pytest.mark.parametrize("at", [(), (0.3, 1e-9, 0.99999999), (0.5,)], ids=str)
def test_probabilities_have_bins_for_0_and_1_and_edges_at_thresholds(at):
    axis = Axis.probabilities(at)
    edges = axis.edges
    assert {*at, 0.5, 2.0**-52, 1 - 2.0**-52, *(np.arange(4096) / 4096)} <= {*edges}
    assert np.flatnonzero(axis.tied).tolist() == [0, axis.bins - 1]
    assert not Axis.probabilities(at, "clip").tied.any()
    assert (axis == Axis.probabilities()) == (at in ((), (0.5,)))
    assert Axis.from_spec(axis.spec) == axis
    scores = np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, 1)])
    scores = np.append(scores, np.random.default_rng(0).random(10_000) ** 30)
    bins = np.searchsorted(edges[1:-1], scores, side="right")
    np.testing.assert_array_equal(axis.index(scores), bins)
    np.testing.assert_array_equal(axis.place_any(scores).bins, bins)
    with pytest.raises(AxisError, match="between 0 and 1"):
        Axis.probabilities([1.0])


RANGES = [
    *((1, 0.0, 1.0), (100, 0.0, 1.0), (7, -3.5, 2.25), (4096, 0.1, 0.9), (999, -1, 1e6)),
    (10, 1e-20, 1.0),
    (64, 0.0, 1e-300),
    (3, 0.1234567890123456, 1.0),
    (1000, -math.pi, math.e),
    (17, -8e307, 8e307),
    (4, 0.0, 2e-323),
]


@pytest.mark.parametrize(("bins", "low", "high"), RANGES)
def test_uniform_edges_are_the_floats_nearest_to_the_exact_ones(bins, low, high):
    start, stop = Fraction(repr(low)), Fraction(repr(high))
    edges = _uniform_edges(bins, low, high)
    assert len(edges) == bins + 1
    for i, edge in enumerate(edges.tolist()):
        exact = start + (stop - start) * i / bins
        error = abs(Fraction(edge) - exact)
        for neighbour in (math.nextafter(edge, -math.inf), math.nextafter(edge, math.inf)):
            assert error <= abs(Fraction(neighbour) - exact)


def correctly_rounded(number):
    _, mantissa, exponent, _ = number._mpf_
    return float(Fraction(int(mantissa)) * Fraction(2) ** exponent)


@pytest.mark.parametrize(("bins", "limit"), [(257, 16.0), (257, 36.0), (3, 2.5), (50, 0.1)])
def test_logit_edges_are_correctly_rounded(bins, limit):
    with mpmath.workprec(300):
        span = mpmath.mpf(repr(limit))
        odds = [-span + 2 * span * i / (bins - 2) for i in range(bins - 1)]
        inner = [correctly_rounded(1 / (1 + mpmath.exp(-x))) for x in odds]
    assert Axis.logit(bins, limit=limit).edges.tolist() == [0.0, *inner, 1.0]
    assert Axis.logit(1).edges.tolist() == [0.0, 1.0]
    assert Axis.logit(2).edges.tolist() == [0.0, 0.5, 1.0]


def test_given_points_make_the_axis():
    axis = Axis.from_edges(iter([-1, 0.1, 7]))
    assert axis.edges.tolist() == [-1.0, 0.1, 7.0]
    assert (axis.kind, axis.bins, axis.low, axis.high) == ("edges", 2, -1.0, 7.0)
    assert axis.thresholds.tolist() == [-1.0, 0.1]
    axis = Axis.from_values([0.6, 0.0, 0.6, 1.0])
    assert axis.bins == 3
    assert axis.thresholds.tolist() == [0.0, 0.6, 1.0]
    assert axis == Axis.from_values([0.0, 0.6, 1.0])
    given = np.array([0.0, 0.5, 1.0])
    axis = Axis.from_edges(given)
    given[1] = 0.7
    assert axis.edges[1] == 0.5


@pytest.mark.parametrize("name", AXES)
def test_edges_are_read_only(name):
    with pytest.raises(ValueError, match="read-only"):
        AXES[name].edges[0] = -9.0
    with pytest.raises(ValueError, match="read-only"):
        AXES[name].thresholds[0] = -9.0
    with pytest.raises(AttributeError):
        AXES[name].bins = 8


def test_axes_with_the_same_edges_are_the_same_axis_and_any_difference_makes_another():
    uniform = Axis.uniform(10)
    given = Axis.from_edges([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    assert uniform.digest == given.digest
    assert uniform == given
    assert len({uniform, given}) == 1
    assert Axis.from_values([0.0, 1.0]).digest != Axis.from_edges([0.0, 1.0]).digest
    others = [Axis.uniform(11), Axis.uniform(10, 0.0, math.nextafter(1.0, 2.0)), Axis.logit(10)]
    others += [Axis.uniform(10, outside="clip"), Axis.from_values([i / 10 for i in range(10)])]
    assert all(uniform != other for other in [*others, "uniform"])


def test_negative_zero_and_zero_are_one_edge():
    assert Axis.from_edges([-0.0, 1.0]).digest == Axis.from_edges([0.0, 1.0]).digest
    assert Axis.uniform(4, -0.0).digest == Axis.uniform(4).digest
    assert Axis.from_values([-0.0, 0.0, 1.0]).digest == Axis.from_values([0.0, 1.0]).digest
    assert Axis.uniform(3, -0.0).index([-0.0, 0.0]).tolist() == [0, 0]
    assert Axis.uniform(2, -1.0, 1.0).index([-0.0, 0.0]).tolist() == [1, 1]
    assert Axis.from_values([0.0, 1.0]).index([-0.0]).tolist() == [0]


def test_repr_is_code_that_makes_the_axis_and_stays_short():
    for axis in AXES.values():
        assert eval(repr(axis), {"Axis": Axis}) == axis  # noqa: S307
    assert len(repr(Axis.from_edges(np.linspace(0, 1, 1000)))) < 200


def test_bins_are_left_closed_and_the_last_one_closed():
    axis = Axis.uniform(4)
    scores = [0.0, math.nextafter(0.25, 0), 0.25, 0.5, 0.75, math.nextafter(1.0, 0), 1.0]
    assert axis.index(scores).tolist() == [0, 0, 1, 2, 3, 3, 3]
    assert axis.index(0.3).tolist() == [1]
    assert axis.index([]).tolist() == []
    single = Axis.from_values([0.7])
    assert (single.bins, single.low, single.high) == (1, 0.7, 0.7)
    assert single.index([0.7, 0.7]).tolist() == [0, 0]
    assert single.count_refused(np.array([0.7, math.nextafter(0.7, 1), 0.0])) == 2


def test_scores_outside_are_clipped_and_only_a_refusing_values_axis_separates_all():
    axis = Axis.uniform(10, outside="clip")
    scores = np.array([-1e308, -0.1, 0.05, 1.1, 1e308])
    kept = scores.copy()
    assert axis.index(scores).tolist() == [0, 0, 0, 9, 9]
    axis.place(scores)
    assert scores.tolist() == kept.tolist()
    assert axis.count_refused(np.array([-5.0, 5.0])) == 0
    assert Axis.from_values([0.0, 1.0]).separates_all
    assert not Axis.from_values([0.0, 1.0], outside="clip").separates_all
    assert not Axis.uniform(1 << 16).separates_all
    assert not Axis.logit(8).separates_all
    assert not Axis.from_edges([0.0, 1.0]).separates_all


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("outside", ["refuse", "clip"])
def test_nan_and_infinity_are_refused_even_when_clipping(outside, score):
    for axis in (Axis.uniform(8, outside=outside), Axis.from_values([0, 0.5, 1], outside)):
        assert axis.place(np.array([0.5, score, 0.5])) is None
        assert axis.count_refused(np.array([0.5, score, score])) == 2
        refused(AxisError, "1 of 3 scores", axis.index, [0.5, score, 0.5])


@pytest.mark.parametrize(
    "scores",
    [[0.5, 1.123456789], ["123456789"], [None, {"123456789": 1}], [123456789 * 10**400]],
    ids=["outside", "text", "objects", "large"],
)
def test_a_refusal_never_quotes_a_score(scores):
    with pytest.raises(AxisError) as caught:
        Axis.uniform(4).index(scores)
    assert "123456789" not in str(caught.value)


KINDS = (Axis.uniform, Axis.logit, Axis.from_edges, Axis.from_values)
BOUNDS = (math.nan, math.inf, -math.inf, "wide", None, [1.0], 10**400)
RANGES_OF_NONE = ((1.0, 0.0), (0.5, 0.5), (0.0, -0.0), (-1e308, 1e308), (1, 0))
IMPOSSIBLE = [
    *(
        (make, (bins,), told)
        for make in (Axis.uniform, Axis.logit)
        for bins, told in (
            *((0, "at least 1 bin"), (-3, "at least 1 bin"), (True, "whole number, got bool")),
            *((4.0, "whole number, got float"), ("4", "whole number, got str")),
            (None, "whole number, got NoneType"),
            (10**9, "1,000,000,000 bins would need 8.0 GB"),
            (2**20 + 1, "at most 1,048,576"),
        )
    ),
    *((Axis.uniform, (4, *ends), "finite low < high") for ends in RANGES_OF_NONE),
    *((Axis.uniform, (4, bound, 1.0), "low must be a finite number") for bound in BOUNDS),
    *((Axis.uniform, (4, 0.0, bound), "high must be a finite number") for bound in BOUNDS),
    (Axis.uniform, (4, 1.0, math.nextafter(1.0, 2.0)), "widen the range or use fewer bins"),
    (partial(Axis.logit, limit=1e-14), (4096,), "use fewer bins"),
    *(
        (partial(Axis.logit, limit=limit), (8,), "limit must")
        for limit in (0.0, -1.0, 36.5, math.nan, math.inf, "far")
    ),
    *(
        (partial(make, outside=outside), (given,), "outside must be 'refuse' or 'clip'")
        for make, given in zip(KINDS, (4, 4, [0, 1], [0, 1]), strict=True)
        for outside in ("ignore", None, "", True)
    ),
    *((Axis.from_edges, (edges,), "at least two edges") for edges in ([], [0.5])),
    *(
        (Axis.from_edges, (edges,), "must increase")
        for edges in ([0.0, 0.0, 1.0], [0.0, 1.0, 0.5], [0.0, -0.0])
    ),
    *((Axis.from_edges, (edges,), "finite") for edges in ([0.0, math.nan, 1.0], [0.0, math.inf])),
    (Axis.from_edges, ([[0.0, 1.0], [2.0, 3.0]],), "flat"),
    *((Axis.from_edges, (edges,), "edges must be numbers") for edges in (["a", "b"], 7)),
    (Axis.from_edges, ([0, 10**400],), "edges must be"),
    (Axis.from_values, ([],), "at least one value"),
    (Axis.from_values, ([math.nan],), "finite"),
    (Axis.from_values, (["a"],), "numbers"),
]


@pytest.mark.parametrize(("make", "given", "told"), IMPOSSIBLE, ids=range(len(IMPOSSIBLE)))
def test_impossible_axes(make, given, told):
    refused(AxisError, told, make, *given)


@pytest.mark.parametrize("make", [Axis.uniform, Axis.logit])
def test_numpy_whole_numbers_of_bins(make):
    axis = make(np.int64(6))
    assert axis == make(6)
    assert type(axis.bins) is int
    assert type(axis.spec.bins) is int


ALTERED, OTHER_FIELDS = "changed on the way", "lacks a field or has one of another kind"


def test_a_spec_of_another_axis_or_kind_is_refused():
    for name, change, told in (
        ("uniform", {"high": 2.5}, ALTERED),
        ("uniform", {"bins": 8}, ALTERED),
        ("uniform", {"outside": "clip"}, ALTERED),
        ("logit", {"limit": 9.0}, ALTERED),
        ("edges", {"points": (-1.0, 0.1, 0.6, 4.0)}, ALTERED),
        ("values", {"points": (0.0, 0.2, 0.7, 1.0)}, ALTERED),
        ("values", {"outside": "clip"}, ALTERED),
        *((name, {"digest": "f" * 64}, ALTERED) for name in AXES),
        ("uniform", {"low": None}, OTHER_FIELDS),
        ("uniform", {"limit": 16.0}, OTHER_FIELDS),
        ("uniform", {"kind": "edges"}, OTHER_FIELDS),
        ("logit", {"limit": None}, OTHER_FIELDS),
        ("logit", {"low": 0.0}, OTHER_FIELDS),
        ("edges", {"points": None}, OTHER_FIELDS),
        ("values", {"high": 1.0}, OTHER_FIELDS),
        *((name, {"bins": 9}, "says 9 bins") for name in ("edges", "values")),
    ):
        refused(AxisError, told, Axis.from_spec, msgspec.structs.replace(AXES[name].spec, **change))


@pytest.mark.parametrize("name", AXES)
def test_scores_beyond_the_ends_are_counted_as_those_that_are_clipped(name):
    axis = AXES[name]
    scores = np.array([axis.low, axis.high, axis.low - 1, axis.high + 1, 1e300, np.nan, np.inf])
    assert axis.count_beyond(scores) == axis.place_any(scores).clipped == 3
    assert axis.count_beyond(np.array([])) == 0


NEAR = 2.875 * 2.0 ** -np.arange(40)
CROWDED = np.array([0.0, *(0.3 + np.arange(50) * 2.0**-52), 1.0])

EDGES = {
    "dyadic": (np.arange(65) / 64, "direct"),
    "one bin": (np.array([-2.0, 5.0]), "direct"),
    "one value": (np.array([0.7, 0.7]), "search"),
    "decimal": (np.arange(101) / 100, "table"),
    "shifted": (Axis.uniform(30, -1.7, 2.9).edges, "table"),
    "logit": (Axis.logit(512).edges, "table"),
    "geometric": (2.0 ** -np.arange(40, -1, -1), "table"),
    "towards both ends": (np.unique([*(-3.5 + NEAR), *(2.25 - NEAR)]), "table"),
    "crowded": (CROWDED, "search"),
}


def oracle(edges, scores):
    index = np.searchsorted(edges, scores, side="right") - 1
    return np.minimum(index, len(edges) - 2)


def around(edges):
    near = np.concatenate([edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf)])
    return near[(near >= edges[0]) & (near <= edges[-1])]


@pytest.mark.parametrize("name", EDGES)
def test_each_kind_of_edges_takes_the_expected_way_and_gives_bins_away(name):
    edges, expected = EDGES[name]
    lookup = BinLookup(edges)
    searched = "table" if lookup._comparisons <= 4 else "search"
    assert ("direct" if lookup._direct is not None else searched) == expected
    scores = around(edges)
    kept = scores.copy()
    lookup(scores, touches_top=True)[:] = -1  # the caller's to change
    np.testing.assert_array_equal(scores, kept)
    np.testing.assert_array_equal(lookup(scores, touches_top=True), oracle(edges, scores))
