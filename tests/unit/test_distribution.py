from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from refusals import refused
from scipy.integrate import quad
from scipy.interpolate import PchipInterpolator

from fedgauge import Aligned, Axis, InputError, PlanError, Quantile, UndefinedMetric
from fedgauge.estimation.distribution import (
    ParametricCurve,
    _roots_within,
    derivative,
    estimate,
    from_exact_quantiles,
    horner,
    linear_pieces,
    monotone_cubics,
    shifted,
)

COUNTS = np.array([[5, 0, 3, 2, 0, 1, 0, 0], [0, 0, 1, 4, 0, 2, 3, 0]])
ESTIMATORS = [
    Aligned(),
    Aligned(interpolation="linear"),
    Quantile(quantiles=5),
    Quantile(quantiles=16, interpolation="linear"),
    Quantile(quantiles=16, pr="combine"),
    Quantile(quantiles=2, interpolation="linear", pr="combine"),
]
estimators = pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)


def path_ends(d):
    at_start = np.vstack([d.fpr_pieces[-1], d.tpr_pieces[-1]])
    at_end = np.vstack([horner(d.fpr_pieces, d.width), horner(d.tpr_pieces, d.width)])
    return at_start, at_end


def left_edge_quantiles(axis, row, quantiles):
    """The left edge of the first bin up to which a share k / (Q - 1) of the examples lie."""
    total, found = int(row.sum()), []
    for k in range(quantiles):
        reached, i = int(row[0]), 0
        while reached * (quantiles - 1) < k * total:
            i += 1
            reached += int(row[i])
        found.append(axis.edges[i])
    return found


def mean_levels(found):
    """Each distinct quantile with the mean of its levels."""
    levels = {}
    for k, quantile in enumerate(found):
        levels.setdefault(quantile, []).append(Fraction(k, len(found) - 1))
    return np.array([[q, float(sum(ks) / len(ks))] for q, ks in sorted(levels.items())]).T


def survival_at(thresholds, found, interpolation):
    """Share of the class at or above each threshold, by the words of the estimator."""
    knots, levels = mean_levels(found)
    if interpolation == "pchip" and len(knots) > 2:
        inside = 1 - PchipInterpolator(knots, levels)(np.clip(thresholds, knots[0], knots[-1]))
    else:
        inside = 1 - np.interp(thresholds, knots, levels)
    return np.where(thresholds <= knots[0], 1.0, np.where(thresholds > knots[-1], 0.0, inside))


@estimators
def test_a_path_joins_and_leads_from_nobody_to_everybody(estimator):
    d = estimate(Axis.uniform(8), COUNTS, estimator)
    start, end = path_ends(d)
    np.testing.assert_array_equal(start[:, 0], 0.0)
    np.testing.assert_allclose(end[:, -1], 1.0, rtol=0, atol=1e-15)
    np.testing.assert_allclose(end[:, :-1], start[:, 1:], rtol=0, atol=1e-15)
    assert np.all(d.width > 0)
    assert d.thresholds[0] == np.inf
    assert np.all(np.diff(d.thresholds) < 0)
    assert len(d.thresholds) == len(d.fpr) == len(d.tpr)
    assert (d.fpr[0], d.tpr[0], d.fpr[-1], d.tpr[-1]) == (0, 0, 1, 1)
    assert (d.negatives, d.positives) == (11, 10)
    for row, missing in enumerate(("negative", "positive")):
        counts = COUNTS.copy()
        counts[row] = 0
        refused(UndefinedMetric, missing, estimate, Axis.uniform(8), counts, estimator)


@pytest.mark.parametrize("interpolation", ["pchip", "linear"])
def test_separate_counts_flagged_examples_of_both_classes(interpolation):
    for estimator in (Aligned(interpolation), Quantile(5, interpolation)):
        d = estimate(Axis.uniform(8), COUNTS, estimator)
        np.testing.assert_allclose(
            d.flagged_pieces, 11 * d.fpr_pieces + 10 * d.tpr_pieces, rtol=1e-14
        )


@pytest.mark.parametrize("outside", ["refuse", "clip"])
def test_known_values_are_joined_straight_and_step(outside):
    """Also under noise, where an axis clips: whoever lists the values says that there are ties."""
    d = estimate(Axis.from_values(range(8), outside), COUNTS, Aligned("pchip"))
    assert d.steps.all()
    assert not d.fpr_pieces[:2].any()


@pytest.mark.parametrize("quantiles", [11, 21, 50, 101])
def test_a_quantile_whose_rank_is_whole_stays_in_its_bin(quantiles):
    # 0.1 * 3 * 10 is more than 3 in floats: a rank must be compared in whole numbers.
    bins = quantiles - 1
    axis = Axis.uniform(bins)
    counts = np.ones((2, bins), dtype=int)
    d = estimate(axis, counts, Quantile(quantiles, "linear"))
    found = left_edge_quantiles(axis, counts[0], quantiles)
    np.testing.assert_array_equal(d.thresholds[1:], np.unique(found)[::-1])
    expected = survival_at(d.thresholds[1:], found, "linear")
    np.testing.assert_allclose(d.tpr[1:], expected, rtol=0, atol=1e-13)


def test_equal_quantiles_are_one_knot_and_combined_ones_those_of_all():
    counts = np.array([[4, 4, 4], [0, 12, 0]])
    d = estimate(Axis.from_edges([0.0, 1.0, 2.0, 3.0]), counts, Quantile(5, "linear"))
    np.testing.assert_array_equal(d.thresholds, [np.inf, 2.0, 1.0, 0.0])
    # Levels 0, 1/4 | 1/2 | 3/4, 1 of the negatives; 0 | 1/4, ..., 1 of the positives.
    np.testing.assert_allclose(d.fpr, [0, 1 - 7 / 8, 1 - 1 / 2, 1], atol=1e-15)
    np.testing.assert_allclose(d.tpr, [0, 0, 1 - 5 / 8, 1], atol=1e-15)
    axis, estimator = Axis.uniform(8), Quantile(5, "linear", "combine")
    d = estimate(axis, COUNTS, estimator)
    found = left_edge_quantiles(axis, COUNTS.sum(axis=0), 5)
    expected = 21 * survival_at(d.thresholds[1:], found, "linear")
    np.testing.assert_allclose(horner(d.flagged_pieces, d.width)[::2], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("pr", ["separate", "combine"])
@pytest.mark.parametrize("interpolation", ["pchip", "linear"])
def test_a_class_whose_quantiles_are_all_equal_jumps_once(interpolation, pr):
    for counts in ([[3], [2]], [[3, 0], [2, 0]], [[9, 0, 0], [1, 5, 3]], [[1, 5, 3], [9, 0, 0]]):
        counts = np.array(counts)
        d = estimate(Axis.uniform(counts.shape[1]), counts, Quantile(8, interpolation, pr))
        assert (d.fpr[0], d.tpr[0], d.fpr[-1], d.tpr[-1]) == (0, 0, 1, 1)
        for row, rate in zip(counts, (d.fpr, d.tpr), strict=True):
            if not row[1:].any():
                np.testing.assert_array_equal(np.unique(rate), [0, 1])


def test_exact_quantiles_need_both_classes_and_no_others():
    for labels in ([0, 1, 2], [0, 1, -1], [0.0, 1.0, np.nan]):
        with pytest.raises(InputError, match="labels 0 and 1"):
            from_exact_quantiles(labels, [0.1, 0.2, 0.3], Quantile())
    for labels in ([0, 0], [1, 1], []):
        with pytest.raises(UndefinedMetric):
            from_exact_quantiles(labels, np.arange(len(labels)), Quantile())


WAYS = [(kind, way) for kind in (Aligned, Quantile) for way in ("cubic", "", None)]


def test_estimators_that_do_not_exist_are_refused():
    for make, told in (
        *((lambda q=q: Quantile(q), f"a whole number from 2, got {q}") for q in (1, 0, -4)),
        *((lambda k=k, w=w: k(interpolation=w), "one of pchip, linear") for k, w in WAYS),
        (lambda: Quantile(pr="both"), "pr must be one of separate, combine, got 'both'"),
    ):
        refused(PlanError, told, make)
        with pytest.raises(AttributeError):
            Quantile().interpolation = "linear"


def cubic_curve(seed, *, pieces=6, flats=False):
    """A monotone cubic x(u), y(u) from (0, 0) to (1, 1), and the interpolators behind it."""
    rng = np.random.default_rng(seed)
    u = np.cumsum(rng.uniform(0.1, 1.0, pieces + 1))
    rises = rng.uniform(0.1, 1.0, (2, pieces))
    if flats:
        rises[0, ::3] = 0.0
        rises[1, 1::3] = 0.0
    x, y = np.cumsum(np.insert(rises, 0, 0.0, axis=1), axis=1)
    x, y = (PchipInterpolator(u, side / side[-1]) for side in (x, y))
    return ParametricCurve(np.diff(u), x.c, y.c), u, x, y


def polyline(points):
    x, y = np.array(points, dtype=float).T
    width = np.ones(len(x) - 1)
    return ParametricCurve(
        width, linear_pieces(width, x[:-1], x[1:]), linear_pieces(width, y[:-1], y[1:])
    )


# A flat start, a flat middle of two pieces and a flat end: verticals of the curve y(x).
VERTICALS = polyline(
    [(0, 0), (0, 0.1), (0.5, 0.3), (0.5, 0.4), (0.5, 0.6), (1, 0.8), (1, 0.9), (1, 1)]
)


def test_pieces_are_cubics_from_start_to_end():
    rng = np.random.default_rng(0)
    coefficients, t = rng.normal(size=(4, 9)), rng.normal(size=9)
    expected = [np.polyval(coefficients[:, i], t[i]) for i in range(9)]
    np.testing.assert_allclose(horner(coefficients, t), expected, rtol=1e-13)
    # Many offsets for each piece.
    coefficients = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0], [3.0, 1.0]])
    found = horner(coefficients[:, np.arange(2)[:, None]], np.array([[0.0, 1.0, 2.0]]))
    np.testing.assert_array_equal(found, [[3.0, 4.0, 11.0], [1.0, 3.0, 9.0]])
    rng = np.random.default_rng(2)
    coefficients, origin, t = rng.normal(size=(4, 8)), rng.normal(size=8), rng.normal(size=8)
    expected = np.transpose([np.polyder(column) for column in coefficients.T])
    np.testing.assert_allclose(derivative(coefficients), expected, rtol=1e-15)
    np.testing.assert_allclose(
        horner(shifted(coefficients, origin), t), horner(coefficients, origin + t), rtol=1e-12
    )
    np.testing.assert_array_equal(shifted(coefficients, np.zeros(8)), coefficients)
    width, start, end = np.array([0.5, 2.0]), np.array([1.0, 3.0]), np.array([2.0, -1.0])
    pieces = linear_pieces(width, start, end)
    assert pieces.shape == (4, 2)
    assert not pieces[:2].any()
    np.testing.assert_array_equal(horner(pieces, np.zeros(2)), start)
    np.testing.assert_array_equal(horner(pieces, width), end)
    np.testing.assert_array_equal(horner(pieces, width / 2), (start + end) / 2)


LINES = {
    "rising": lambda rng, n: np.cumsum(rng.exponential(size=(2, n)), axis=1),
    "falling": lambda rng, n: -np.cumsum(rng.exponential(size=(2, n)), axis=1),
    "in steps": lambda rng, n: np.cumsum(rng.poisson(0.5, (2, n)), axis=1).astype(float),
    "to and fro": lambda rng, n: rng.integers(-2, 3, (2, n)).astype(float),
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES.keys())
def test_monotone_cubics_are_scipy_s_bit_for_bit(line):
    rng = np.random.default_rng(0)
    for points in [3, 4, 5, *rng.integers(6, 60, 100)]:
        x = np.cumsum(rng.uniform(0.1, 1.0, points) * 10.0 ** rng.integers(-9, 3, points))
        y = line(rng, points)
        both = monotone_cubics(x, y)
        for row, cubics in zip(y, both.swapaxes(0, 1), strict=True):
            np.testing.assert_array_equal(cubics, PchipInterpolator(x, row).c)
            np.testing.assert_array_equal(cubics, monotone_cubics(x, row))


def found_roots(cubic, begin, finish):
    roots = _roots_within(
        np.array(cubic, dtype=float)[:, None], np.array([begin]), np.array([finish])
    )
    assert np.all((roots >= begin) & (roots <= finish))
    return np.sort(roots[roots != finish])


@pytest.mark.parametrize("seed", range(5))
def test_roots_within_finds_what_numpy_finds(seed):
    rng = np.random.default_rng(seed)
    for cubic in rng.normal(size=(100, 4)):
        begin, finish = np.sort(rng.uniform(-2, 2, 2))
        real = np.roots(cubic)
        real = np.sort(real[np.abs(real.imag) < 1e-9].real)
        expected = real[(real > begin) & (real < finish)]
        np.testing.assert_allclose(found_roots(cubic, begin, finish), expected, atol=1e-8)


def test_roots_within_of_degenerate_cubics():
    two, half = np.poly([0.25, 0.75]), [0.5]
    for cubic, expected in (
        *(([0, *two], [0.25, 0.75]), ([1e-17, *two], [0.25, 0.75])),
        *(([0, *np.poly([0.25, 1.75])], [0.25]), ([0, 0, 2, -1], half)),
        *(([0, 1, 0, 1], []), ([0, 0, 2, 1], []), ([0, 0, 0, 1], []), ([0, 0, 0, -1], [])),
        *(([1, 0, 0, -0.125], half), ([1, 0, -0.25, 0], half), ([1e-12, -1e-9, 2, -1], half)),
    ):
        found = found_roots(cubic, 0.0, 1.0)
        found = found[found > 1e-12]  # an end of the range may count as a root or not
        np.testing.assert_allclose(found, expected, atol=1e-8)
    assert np.all(np.isfinite(found_roots([0, 0, 0, 0], 0.25, 0.75)))
    tiny = found_roots([0, 0, 1e9, -0.5], 0.0, 1e-9)
    np.testing.assert_allclose(tiny, [0.5e-9], rtol=1e-12)


@pytest.mark.parametrize(
    ("roots", "needed"),
    [((0.5, 0.5), []), ((0.25, 0.5, 0.5), [0.25]), ((0.5, 0.5, 0.75), [0.75]), ((0.5,) * 3, [0.5])],
)
def test_roots_within_may_skip_a_root_without_a_change_of_sign(roots, needed):
    cubic = np.pad(np.poly(roots), (3 - len(roots), 0))
    found = found_roots(cubic, 0.0, 1.0)
    for root in needed:
        assert np.min(np.abs(found - root)) < 1e-4
    for root in found:
        assert np.min(np.abs(root - np.array(roots))) < 1e-4


@pytest.mark.parametrize("side", ["start", "end"])
@pytest.mark.parametrize("seed", range(3))
def test_locate_inverts_a_rising_abscissa(side, seed):
    curve, u, x, y = cubic_curve(seed)
    inside = np.random.default_rng(seed).uniform(u[0], u[-1], 200)
    piece, t = curve.locate(x(inside), side=side)
    np.testing.assert_allclose(u[piece] + t, inside, atol=1e-7)
    np.testing.assert_allclose(curve.at(x(inside), side=side), y(inside), atol=1e-7)


def test_side_picks_an_end_of_a_vertical():
    x = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
    at = {side: VERTICALS.at(x, side=side) for side in ("start", "end")}
    np.testing.assert_allclose(at["start"], [0.0, 0.2, 0.3, 0.7, 0.8], atol=1e-12)
    np.testing.assert_allclose(at["end"], [0.1, 0.2, 0.6, 0.7, 1.0], atol=1e-12)
    for side, piece, offset in (("start", 1, 1.0), ("end", 4, 0.0)):
        found, t = VERTICALS.locate(np.array([0.5]), side=side)
        assert found == [piece]
        np.testing.assert_allclose(t, offset, atol=1e-12)
    curve, u, x, y = cubic_curve(4, pieces=12, flats=True)
    knots = x(u)
    assert np.all(curve.at(knots, side="start") <= y(u) + 1e-6)
    assert np.all(curve.at(knots, side="end") >= y(u) - 1e-6)


RAMP, ONE = linear_pieces(np.ones(1), np.zeros(1), np.ones(1)), np.eye(4)[:, 3:]


def quotient(over, under):
    return ParametricCurve(np.ones(1), RAMP, over, under)


def test_areas_of_known_shapes_and_ordinates_of_quotients():
    t, piece = np.array([0.0, 0.25, 0.5, 0.75, 1.0]), np.zeros(5, int)
    limit = quotient(3 * RAMP, 4 * RAMP).ordinate(np.array([0]), np.array([0.0]))
    np.testing.assert_allclose(limit, 0.75)  # of 0 / 0
    nobody = ParametricCurve(np.ones(1), *[np.zeros((4, 1))] * 3)
    np.testing.assert_array_equal(nobody.ordinate(piece, t), 1.0)
    cut = quotient(2 * RAMP, ONE)
    np.testing.assert_array_equal(cut.ordinate(piece, t), [0.0, 0.5, 1.0, 1.0, 1.0])
    assert polyline([(0, 0), (1, 1)]).area() == pytest.approx(0.5, abs=1e-15)
    assert polyline([(0, 0), (0, 1), (1, 1)]).area() == pytest.approx(1.0, abs=1e-15)
    assert VERTICALS.area() == pytest.approx(0.5 * 0.2 + 0.5 * 0.7, abs=1e-15)
    assert quotient(3 * RAMP, ONE).area() == pytest.approx(1 - 1 / 6, abs=1e-9)
    # Integral of e / (e + t) over [0, 1]: precision of a model with 1 / e negatives a positive.
    for scale in (1.0, 0.1, 1e-2, 1e-4):
        found = quotient(scale * ONE, scale * ONE + RAMP).area()
        assert found == pytest.approx(scale * np.log1p(1 / scale), abs=1e-9)


@pytest.mark.parametrize("flats", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_area_is_the_integral_of_y_dx(seed, flats):
    curve, u, x, y = cubic_curve(seed, flats=flats)
    slope = x.derivative()
    expected = sum(quad(lambda v: y(v) * slope(v), a, b)[0] for a, b in pairwise(u))
    assert curve.area() == pytest.approx(expected, abs=1e-12)


def monomial_curve(coefficients):
    return ParametricCurve(np.ones(1), RAMP, np.array(coefficients, dtype=float)[:, None])


def distance_to_line(curve, points):
    x, y = np.array(points, dtype=float).T
    return curve.distance(x[:-1], x[1:], y[:-1], y[1:])


def test_distance_to_known_lines_cuts_at_crossings_and_passes_over_verticals():
    for coefficients, points, expected in (
        ([0, 1, 0, 0], [(0, 0), (1, 1)], 1 / 6),
        ([1, 0, 0, 0], [(0, 0), (1, 1)], 1 / 4),
        ([0, 1, 0, 0], [(0, 0.25), (1, 0.25)], 1 / 4),
        ([0, 0, 1, 0], [(0, 1), (1, 0)], 1 / 2),
        ([0, 0, 1, 0], [(0, 0), (0.5, 0), (1, 0)], 1 / 2),
        ([0, 0, 1, 0], [(0, 0), (0.3, 0.3), (1, 1)], 0),
        ([0, 0, 1, 0], [(0, 0), (0.5, 1), (1, 1)], 1 / 4),
    ):
        found = distance_to_line(monomial_curve(coefficients), points)
        assert found == pytest.approx(expected, abs=1e-13)
    gap = np.poly([0.2, 0.5, 0.8])
    ends = np.polyval(np.polyint(gap), [0, 0.2, 0.5, 0.8, 1])
    expected = np.abs(np.diff(ends)).sum()
    curve = monomial_curve(np.polyadd(gap, [0.5, 0.25]))
    found = distance_to_line(curve, [(0, 0.25), (1, 0.75)])
    assert found == pytest.approx(expected, abs=1e-13)
    starts, ends = np.array([0.0, 0.5]), np.array([0.5, 1.0])
    level = np.array([0.25, 0.75])  # of steps that jump
    found = monomial_curve([0, 0, 1, 0]).distance(starts, ends, level, level)
    assert found == pytest.approx(1 / 8, abs=1e-14)
    found = distance_to_line(VERTICALS, [(0, 0), (1, 1)])
    below = 0.5 * (0.1**2 / 0.6 + 0.2**2 / 0.6)  # from (0, 0.1) to (0.5, 0.3) against y = x
    assert found == pytest.approx(2 * below, abs=1e-14)  # and its mirror image


def test_samples_lie_on_the_curve_and_hold_both_ends_of_each_piece():
    width = np.array([2.0, 1.0])
    curve = ParametricCurve(
        width,
        linear_pieces(width, np.array([0.0, 0.5]), np.array([0.5, 1.0])),
        linear_pieces(width, np.array([0.0, 0.8]), np.array([0.6, 1.0])),
    )
    x, y = curve.sample(3)
    np.testing.assert_allclose(x, [0.0, 0.25, 0.5, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(y, [0.0, 0.3, 0.6, 0.8, 0.9, 1.0])
