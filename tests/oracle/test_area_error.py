"""Area Error against closed forms, exact fractions, quadrature and brute force."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from counts import counts_on
from scipy.integrate import quad
from scipy.interpolate import PchipInterpolator
from scipy.optimize import brentq

import fedgauge as fg
from fedgauge import Aligned, Axis, InputError, Quantile, area_error
from fedgauge import exact_pr_curve as exact_pr
from fedgauge import exact_roc_curve as exact_roc
from fedgauge.estimation.distribution import estimate, from_exact_quantiles
from fedgauge.metrics.curves import pr_curve, roc_curve

ESTIMATORS = [
    Aligned(),
    Aligned("linear"),
    Quantile(12),
    Quantile(12, "linear"),
    Quantile(12, pr="combine"),
    Quantile(12, "linear", "combine"),
]
estimators = pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
PERFECT = ([0, 0, 1, 1], [1, 2, 3, 4])
INVERTED = ([1, 1, 0, 0], [1, 2, 3, 4])
CHANCE = ([0, 0, 1, 1], [1, 1, 1, 1])
RAMP = ([0, 0, 1], [1, 2, 2])  # (0, 0), (1/2, 1), (1, 1)
JUMP = ([0, 1, 1], [1, 1, 2])  # (0, 0), (0, 1/2), (1, 1)


def ranked(word):
    """Examples ranked best first, as in "+-+"."""
    return [int(letter == "+") for letter in word], list(range(len(word), 0, -1))


def examples(seed, size=300, positive=0.4):
    rng = np.random.default_rng(seed)
    labels = (rng.uniform(size=size) < positive).astype(int)
    labels[:2] = 0, 1
    scores = rng.beta(1.5 + 1.5 * labels, 3 - labels)
    return labels, np.round(scores, 2) if seed % 2 else scores


def estimated(labels, scores, estimator, bins=24):
    result = fg.evaluate({"a": (labels, scores)}, axis=Axis.uniform(bins), estimator=estimator)
    return result.roc_curve(), result.pr_curve()


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (PERFECT, CHANCE, 1 / 2),
        (INVERTED, CHANCE, 1 / 2),
        (PERFECT, INVERTED, 1),
        (RAMP, CHANCE, 1 / 4),
        (JUMP, CHANCE, 1 / 4),
        (RAMP, JUMP, 1 / 6),  # they cross at 1/3, inside a piece of both
        (PERFECT, RAMP, 1 / 4),
        (ranked("+-+-"), ranked("-+-+"), 1 / 2),
        (ranked("+-+-"), CHANCE, 1 / 4),
        (ranked("-+-+"), CHANCE, 1 / 4),
        (ranked("-++-"), CHANCE, 1 / 4),
        (ranked("+--+"), ranked("-++-"), 1 / 2),
        (ranked("+-"), ranked("-+-"), 1 / 2),
    ],
)
def test_roc_areas_between_known_polygons(one, other, expected):
    one, other = exact_roc(*one), exact_roc(*other)
    assert area_error(one, other) == pytest.approx(expected, abs=1e-14)
    assert area_error(other, one) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (PERFECT, CHANCE, 1 / 2),
        (PERFECT, INVERTED, (2 / 3 + 1 / 2) / 2),
        (INVERTED, CHANCE, 1 / 12),
        (ranked("+-+-"), ranked("-+-+"), (1 / 2 + 1 / 6) / 2),
        (ranked("+-+"), ranked("-+"), (1 / 2 + 1 / 6) / 2),
        (ranked("+--"), ranked("-+-+-+"), (1 / 2 + 1 / 2 + 1 / 2) / 3),
    ],
)
def test_pr_areas_between_known_steps(one, other, expected):
    one, other = exact_pr(*one), exact_pr(*other)
    assert area_error(one, other) == pytest.approx(expected, abs=1e-14)
    assert area_error(other, one) == pytest.approx(expected, abs=1e-14)


def rational_points(labels, scores):
    """ROC knots as fractions."""
    labels, scores = np.asarray(labels), np.asarray(scores)
    n, p = int((labels == 0).sum()), int(labels.sum())
    points = [(Fraction(0), Fraction(0))]
    for t in np.unique(scores)[::-1]:
        flagged = labels[scores >= t]
        points.append((Fraction(int((flagged == 0).sum()), n), Fraction(int(flagged.sum()), p)))
    return points


def rational_line(points, left, right):
    """The heights just right of `left` and just left of `right`, with no knot between."""
    for (x0, y0), (x1, y1) in pairwise(points):
        if x0 <= left and right <= x1 and x0 < x1:
            slope = (y1 - y0) / (x1 - x0)
            return y0 + slope * (left - x0), y0 + slope * (right - x0)
    raise AssertionError


def rational_area(one, other):
    """Area between two polylines, in exact arithmetic."""
    total = Fraction(0)
    for left, right in pairwise(sorted({x for x, _ in one} | {x for x, _ in other})):
        a0, a1 = rational_line(one, left, right)
        b0, b1 = rational_line(other, left, right)
        first, last, width = a0 - b0, a1 - b1, right - left
        if first * last >= 0:
            total += abs(first + last) * width / 2
        else:
            total += (first**2 + last**2) / (abs(first) + abs(last)) * width / 2
    return total


@pytest.mark.parametrize("seed", range(8))
def test_polylines_match_exact_fractions(seed):
    rng = np.random.default_rng(seed)
    pair = []
    for size, grades in ((30, 6), (41, 9)):
        labels = rng.integers(0, 2, size)
        labels[:2] = 0, 1
        pair.append((labels, rng.integers(0, grades, size)))
    expected = rational_area(*(rational_points(*data) for data in pair))
    found = area_error(*(exact_roc(*data) for data in pair))
    assert found == pytest.approx(float(expected), abs=1e-13)


@pytest.mark.parametrize("seed", range(4))
def test_aligned_linear_roc_matches_exact_fractions(seed):
    labels, scores = examples(seed, size=80)
    bins = 7
    binned = np.minimum((scores * bins).astype(int), bins - 1)
    expected = rational_area(rational_points(labels, binned), rational_points(labels, scores))
    roc, _ = estimated(labels, scores, Aligned("linear"), bins)
    assert area_error(roc, exact_roc(labels, scores)) == pytest.approx(float(expected), abs=1e-13)


@pytest.mark.parametrize("seed", range(3))
def test_pchip_roc_matches_quadrature(seed):
    labels, scores = examples(seed, size=40)
    axis = Axis.uniform(5)
    exact = exact_roc(labels, scores)
    d = estimate(axis, counts_on(axis, labels, scores), Aligned())
    u = d.fpr + d.tpr
    fpr, tpr = PchipInterpolator(u, d.fpr), PchipInterpolator(u, d.tpr)
    cuts = set(u)
    for x in np.unique(exact.fpr)[1:-1]:
        cuts.add(brentq(lambda v, x=x: fpr(v) - x, 0, 2, xtol=1e-15))

    def gap(v):
        return abs(tpr(v) - np.interp(fpr(v), exact.fpr, exact.tpr)) * fpr(v, 1)

    expected = sum(
        quad(gap, a, b, epsabs=1e-12, epsrel=1e-9, limit=200)[0] for a, b in pairwise(sorted(cuts))
    )
    assert area_error(roc_curve(d), exact) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("negatives", [1, 10, 100, 10_000])
def test_pr_of_two_straight_bins_has_a_closed_form(negatives):
    # One positive above 1/2; below it one positive, last of all, and the negatives. On the
    # lower piece P = (1 + v) / (1 + m v), m = 1 + negatives; the truth there is 2 / (1 + m).
    labels = [1, *[0] * negatives, 1]
    scores = [0.75, *np.linspace(0.4, 0.2, negatives), 0.1]
    _, pr = estimated(labels, scores, Aligned("linear"), bins=2)
    m = 1 + negatives
    area = 1 / m + (m - 1) / m**2 * np.log1p(m)
    assert pr.path.area() == pytest.approx((1 + area) / 2, abs=1e-9)
    expected = (area - 2 / (1 + m)) / 2
    assert area_error(pr, exact_pr(labels, scores)) == pytest.approx(expected, abs=1e-9)


def test_pr_crossing_a_step_has_a_closed_form():
    # Two positives above 1/2; below it two tied with one negative, and another negative. On the
    # lower piece P = (1 + v) / (1 + 2 v) falls through the truth, 4/5, at v = 1/3.
    labels, scores = [1, 1, 1, 1, 0, 0], [0.9, 0.8, 0.3, 0.3, 0.3, 0.1]
    _, pr = estimated(labels, scores, Aligned("linear"), bins=2)

    def gap(a, b):
        return (b - a) / 2 + np.log((1 + 2 * b) / (1 + 2 * a)) / 4 - 4 / 5 * (b - a)

    expected = (gap(0, 1 / 3) - gap(1 / 3, 1)) / 2
    assert area_error(pr, exact_pr(labels, scores)) == pytest.approx(expected, abs=1e-9)


def samples(found, levels, interpolation, grid):
    """1 - ECDF at the grid from above, and at its knots from both sides."""
    knots = np.unique(found)
    at = np.array([1 - levels[found == knot].mean() for knot in knots])
    if interpolation == "pchip" and len(knots) > 2:
        inside = PchipInterpolator(knots, at)(np.clip(grid, knots[0], knots[-1]))
    else:
        inside = np.interp(grid, knots, at)
    before = np.where(grid < knots[0], 1, np.where(grid >= knots[-1], 0, inside))
    after = np.where(grid <= knots[0], 1, np.where(grid > knots[-1], 0, inside))
    return before, after


def sampled_path(labels, scores, estimator, bins, fine):
    """(fpr, tpr, flagged) densely along the path, by SciPy and the words of the method."""
    positives, negatives = labels.sum(), (1 - labels).sum()
    edges = np.linspace(0, 1, bins + 1)
    place = np.minimum((scores * bins).astype(int), bins - 1)
    if isinstance(estimator, Aligned):
        fpr, tpr = (
            np.append(0, np.cumsum(np.bincount(place[labels == k], minlength=bins)[::-1]))
            for k in (0, 1)
        )
        news = np.append(True, np.diff(fpr + tpr) > 0)
        fpr, tpr = fpr[news] / negatives, tpr[news] / positives
        u = fpr + tpr
        v = np.concatenate([np.linspace(a, b, fine + 1)[:-1] for a, b in pairwise(u)] + [u[-1:]])
        if estimator.interpolation == "pchip":
            fpr, tpr = PchipInterpolator(u, fpr)(v), PchipInterpolator(u, tpr)(v)
        else:
            fpr, tpr = np.interp(v, u, fpr), np.interp(v, u, tpr)
        return fpr, tpr, negatives * fpr + positives * tpr
    q = estimator.quantiles
    levels = np.arange(q) / (q - 1)
    found = []
    for group in (place[labels == 0], place[labels == 1], place):
        share = np.cumsum(np.bincount(group, minlength=bins))
        found.append([edges[np.argmax(share * (q - 1) >= k * len(group))] for k in range(q)])
    found = np.array(found)
    knots = np.unique(found)[::-1]
    grid = [np.linspace(a, b, fine + 1)[1:-1] for a, b in pairwise(knots)]
    paths = []
    for own in found:
        before, after = samples(own, levels, estimator.interpolation, knots)
        parts = []
        for i in range(len(knots)):
            parts.append(np.linspace(before[i], after[i], fine))
            if i < len(grid):
                parts.append(samples(own, levels, estimator.interpolation, grid[i])[1])
        paths.append(np.concatenate(parts))
    fpr, tpr, share = paths
    separate = negatives * fpr + positives * tpr
    return fpr, tpr, separate if estimator.pr == "separate" else len(labels) * share


def brute_force(x, y, truth, breaks):
    """Sum of |y - truth(x)| dx over the middles of short chords, cut where the truth breaks."""
    x = np.maximum.accumulate(x)
    chord = np.searchsorted(x, breaks, side="right") - 1
    inner = (chord < len(x) - 1) & (x[chord] < breaks)
    breaks, chord = breaks[inner], chord[inner]
    share = (breaks - x[chord]) / (x[chord + 1] - x[chord])
    height = y[chord] + share * (y[chord + 1] - y[chord])
    x, y = np.insert(x, chord + 1, breaks), np.insert(y, chord + 1, height)
    middle = (x[1:] + x[:-1]) / 2
    return np.sum(np.abs((y[1:] + y[:-1]) / 2 - truth(middle)) * np.diff(x))


@estimators
@pytest.mark.parametrize("bins", [6, 40])
@pytest.mark.parametrize("seed", range(3))
def test_roc_matches_dense_sampling(estimator, seed, bins):
    labels, scores = examples(seed)
    fpr, tpr, _ = sampled_path(labels, scores, estimator, bins, 60_000 // bins)
    exact = exact_roc(labels, scores)
    roc, _ = estimated(labels, scores, estimator, bins)
    truth, breaks = true_height(exact)
    wanted = brute_force(fpr, tpr, truth, breaks)
    assert area_error(roc, exact) == pytest.approx(wanted, abs=1e-6)


@estimators
@pytest.mark.parametrize("positive", [0.4, 0.03])
@pytest.mark.parametrize("bins", [6, 40])
@pytest.mark.parametrize("seed", range(3))
def test_pr_matches_dense_sampling(estimator, seed, bins, positive):
    labels, scores = examples(seed, positive=positive)
    _, tpr, flagged = sampled_path(labels, scores, estimator, bins, 60_000 // bins)
    first = np.argmax(flagged > 1e-9)  # before it, 0 / 0
    precision = np.minimum(labels.sum() * tpr[first:] / flagged[first:], 1)
    precision = np.append(np.full(first, precision[0]), precision)
    exact = exact_pr(labels, scores)
    _, pr = estimated(labels, scores, estimator, bins)
    truth, breaks = true_height(exact)
    wanted = brute_force(tpr, precision, truth, breaks)
    assert area_error(pr, exact) == pytest.approx(wanted, abs=1e-6)


def true_height(exact):
    """The exact curve as a function made of its knots, and where it breaks."""
    if isinstance(exact, fg.RocCurve):
        return lambda x: np.interp(x, exact.fpr, exact.tpr), np.unique(exact.fpr)
    recall, height = exact.recall[::-1], exact.precision[::-1]
    return lambda x: height[np.searchsorted(recall, x, side="left")], np.unique(recall)


def test_exact_quantiles_have_an_area_error():
    labels, scores = examples(2, size=2000)
    for kind, exact in ((roc_curve, exact_roc), (pr_curve, exact_pr)):
        errors = [
            area_error(
                kind(from_exact_quantiles(labels, scores, Quantile(q))), exact(labels, scores)
            )
            for q in (4, 64)
        ]
        assert errors[0] > 2 * errors[1] > 0


def test_curves_that_do_not_compare_or_are_not_exact_are_refused():
    labels, scores = examples(0)
    for one, other in ((exact_roc, exact_pr), (exact_pr, exact_roc)):
        with pytest.raises(InputError, match="two ROC curves or two PR curves"):
            area_error(one(labels, scores), other(labels, scores))
    _, pr = estimated(labels, scores, Aligned("linear"))
    with pytest.raises(InputError, match="second curve must be exact"):
        area_error(exact_pr(labels, scores), pr)


@pytest.mark.parametrize("estimator", [Aligned(), Quantile(12)], ids=repr)
def test_the_second_curve_must_be_exact(estimator):
    labels, scores = examples(0)
    roc, pr = estimated(labels, scores, estimator)
    for exact, curve in ((exact_roc, roc), (exact_pr, pr)):
        with pytest.raises(InputError, match="second curve must be exact"):
            area_error(exact(labels, scores), curve)
