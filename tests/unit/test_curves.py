"""Curves through their knots, the areas under them, and how far binning can move both."""

from fractions import Fraction
from functools import cache
from itertools import permutations, product

import numpy as np
import pytest
from refusals import refused

import fedgauge as fg
from fedgauge import Aligned, Axis, InputError, Quantile, ScoreHistogram, UndefinedMetric
from fedgauge.estimation.distribution import estimate, from_exact_quantiles
from fedgauge.metrics.areas import average_precision, precision_one_by_one, roc_auc
from fedgauge.metrics.curves import exact_pr_curve, exact_roc_curve, pr_curve, roc_curve

ESTIMATORS = [
    Aligned(),
    Aligned("linear"),
    Quantile(5),
    Quantile(24, "linear"),
    Quantile(24, pr="combine"),
    Quantile(5, "linear", "combine"),
]
# From a histogram of so many bins, from exact quantiles, or the exact curve.
CASES = [(estimator, bins) for estimator in ESTIMATORS for bins in (3, 16, 200)]
CASES += [(estimator, "exact") for estimator in ESTIMATORS if isinstance(estimator, Quantile)]
CASES += [(None, "exact")]
LABELS = np.repeat([0, 1], [60, 40])
SCORES = np.round(np.random.default_rng(0).beta(2 + 2 * LABELS, 4 - 2 * LABELS), 2)


def drawn_from(estimator, bins):
    if bins == "exact":
        return from_exact_quantiles(LABELS, SCORES, estimator)
    histogram = ScoreHistogram(Axis.uniform(bins))
    histogram.update(LABELS, SCORES)
    return estimate(histogram.axis, histogram.counts, estimator)


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def roc(request):
    if request.param[0] is None:
        return exact_roc_curve(LABELS, SCORES)
    return roc_curve(drawn_from(*request.param))


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def pr(request):
    if request.param[0] is None:
        return exact_pr_curve(LABELS, SCORES)
    return pr_curve(drawn_from(*request.param))


def test_roc_passes_through_its_knots_and_is_the_upper_end_of_a_vertical(roc):
    # Where the curve is vertical a knot lies between the two ends of the vertical.
    x = np.clip(roc.fpr, 0, 1)
    assert np.all(roc(x) >= roc.tpr - 1e-6)
    assert np.all(roc.path.at(x, side="start") <= roc.tpr + 1e-6)
    assert roc.thresholds[0] == np.inf
    assert np.all(np.diff(roc.thresholds) < 0)
    just_right = np.append(np.clip(roc.fpr[:-1], 0, 1) + 1e-13, 1.0)
    np.testing.assert_allclose(roc(np.clip(roc.fpr, 0, 1)), roc(just_right), atol=1e-4)


@pytest.mark.parametrize("interpolation", ["pchip", "linear"])
def test_a_jump_of_one_class_alone_is_vertical(interpolation):
    for labels, scores, quantiles in (
        ([1, 0], [1 / 24, 1.0], 3),
        ([1, 0, 0], [0.3, 0.9, 0.1], 4),
        ([1, 1, 0, 0], [0.7, 0.8, 0.9, 0.1], 7),
        ([1, 0, 0, 0], [0.6, 0.9, 0.2, 0.1], 10),
    ):
        # Rounding must not tilt it: read off at a knot, the curve is at the upper end.
        for bins in range(20, 30):
            result = fg.evaluate({"a": (labels, scores)}, axis=Axis.uniform(bins))
            roc = result.with_estimator(Quantile(quantiles, interpolation)).roc_curve()
            assert np.all(roc(roc.fpr) >= roc.tpr - 1e-6)


def test_pr_passes_through_its_knots(pr):
    # Where the curve is vertical, precision falls from its first point to its last.
    # At recall 0 precision can be 0 / 0.
    reached = pr.recall > 0
    x, y = pr.recall[reached], pr.precision[reached]
    assert np.all(pr(x) >= y - 1e-6)
    if pr.path.bottom is not None:
        assert np.all(pr.path.at(x, side="end") <= y + 1e-6)


@pytest.mark.parametrize("interpolation", ["pchip", "linear"])
@pytest.mark.parametrize("bins", [16, 200])
def test_combined_precision_is_the_same_at_knots_and_between(interpolation, bins):
    pr = pr_curve(drawn_from(Quantile(8, interpolation, "combine"), bins))
    lone = np.flatnonzero(np.abs(np.diff(pr.recall, prepend=2)) > 1e-3)
    lone = lone[(pr.recall[lone] > 0) & (pr.recall[lone] < 1)]
    assert len(lone) > 3
    np.testing.assert_allclose(pr(pr.recall[lone]), pr.precision[lone], atol=1e-6)


def test_combine_differs_from_separate_between_the_ends():
    x = np.linspace(0.1, 0.9, 50)
    separate, combine = (
        pr_curve(drawn_from(Quantile(8, pr=pr), 64))(x) for pr in ("separate", "combine")
    )
    assert np.abs(separate - combine).max() > 1e-3


@pytest.mark.parametrize("make", [exact_roc_curve, exact_pr_curve])
def test_curves_refuse_what_is_no_rate_and_both_zeros_are_one_score(make):
    for x in (-1e-9, 1.000001, [0.5, 2], np.nan, np.inf, -np.inf):
        refused(InputError, "between 0 and 1", make(LABELS, SCORES), x)
    found, expected = make([0, 1], [0.0, -0.0]), make([0, 1], [0.0, 0.0])
    np.testing.assert_array_equal(found.thresholds, expected.thresholds)


def test_exact_pr_is_the_precision_of_the_highest_threshold_that_reaches_a_recall():
    pr = exact_pr_curve(LABELS, SCORES)
    for recall in [*np.random.default_rng(2).uniform(0.001, 1, 50), 0.25, 0.5, 0.975, 1.0]:
        for t in np.sort(SCORES)[::-1]:
            flagged = t <= SCORES
            if LABELS[flagged].sum() >= 40 * recall - 1e-9:
                break
        assert pr(recall) == pytest.approx(LABELS[flagged].mean(), abs=1e-12)
    assert exact_pr_curve([0, 1, 1], [0.9, 0.5, 0.1])(0.0) == 0
    assert exact_pr_curve([1, 0, 1], [0.9, 0.9, 0.1])(0.0) == 0.5


@pytest.mark.parametrize("make", [exact_roc_curve, exact_pr_curve])
def test_exact_curves_read_any_two_labels(make):
    scores = [0.3, 0.7, 0.5, 0.4]
    expected = make([0, 1, 0, 1], scores)
    for labels, positive in (
        *((["n", "y", "n", "y"], "y"), ([2, 7, 2, 7], 7), ([1, 0, 1, 0], 0)),
        *(([False, True, False, True], None), ([0.0, 1.0, 0.0, 1.0], None)),
    ):
        for found, column in zip(make(labels, scores, positive=positive), expected, strict=True):
            np.testing.assert_array_equal(found, column)


@pytest.mark.parametrize("make", [exact_roc_curve, exact_pr_curve])
def test_exact_curves_refuse_what_they_cannot_measure(make):
    for labels, scores in (
        *(([0, 1], [0.1, np.nan]), ([0, 1], [0.1, np.inf]), ([0, 1], [0.1]), ([0, 1], ["a", "b"])),
        *(([0, 1, odd], [0.1, 0.2, 0.3]) for odd in (2, None)),
        *(([[0, 1]], [[0.1, 0.2]]), ([[0, 1], [1, 1]], [0.1, 0.2])),
    ):
        with pytest.raises(InputError):
            make(labels, scores)
    for labels, told in (([1, 1], "negative"), ([0, 0], "positive"), (np.zeros(0, int), None)):
        refused(UndefinedMetric, told, make, labels, np.arange(len(labels)) / 10)


def test_curves_are_frozen_and_short_to_print():
    curve = exact_roc_curve([0, 1], [0.2, 0.8])
    assert "path" not in repr(curve)
    assert next(iter(curve)) is curve.fpr
    with pytest.raises(AttributeError):
        curve.fpr = curve.tpr


@pytest.mark.parametrize("kind", ["roc", "pr", "det", "prg", "gain"])
def test_a_curve_gives_what_it_is_given(kind):
    rows = ([0, 0, 1, 1, 0, 1], [0.1, 0.4, 0.35, 0.8, 0.2, 0.9])
    curve = getattr(fg.evaluate({"a": rows}), f"{kind}_curve")()
    readers = [curve, curve.lift] if kind == "gain" else [curve]
    for read in readers:
        for alone in (0.4, 1, np.float64(0.4), np.array(0.4), fg.Estimate(0.4, (0.3, 0.5))):
            assert type(read(alone)) is float
            assert read(alone) == read([float(alone)])[0]
        grid = np.array([[0.1, 0.2, 0.3], [0.4, 0.0, 1.0]])
        np.testing.assert_array_equal(read(grid), [[read(x) for x in row] for row in grid])
        assert read([0.4]).shape == (1,)
        assert read([]).shape == (0,)


TINY = [
    *([[1], [1]], [[2], [2]], [[3], [3]], [[1], [4]], [[1, 1], [1, 1]], [[0, 2], [2, 1]]),
    *([[2, 1], [0, 3]], [[1, 0, 2], [1, 2, 1]], [[1, 1, 1], [1, 1, 1]], [[0, 0, 1], [1, 0, 0]]),
]


def measure(metric, counts, estimator=Aligned(), axis=None):  # noqa: B008
    counts = np.array(counts, dtype=float)
    axis = axis or Axis.uniform(counts.shape[1])
    curve = {roc_auc: roc_curve, average_precision: pr_curve}[metric]
    return metric(curve(estimate(axis, counts, estimator)), counts, tied=axis.separates_all)


@cache
def rankings(negatives, positives):
    """All ways to rank examples, best first, as groups (negatives, positives) that tie."""
    if not negatives and not positives:
        return [()]
    found = []
    for n, p in product(range(negatives + 1), range(positives + 1)):
        if n or p:
            found += [((n, p), *rest) for rest in rankings(negatives - n, positives - p)]
    return found


def arrangements(counts):
    """All rankings of pooled data that give these counts."""
    bins = [rankings(n, p) for n, p in reversed(list(zip(*counts, strict=True)))]
    for choice in product(*bins):
        yield [group for ranked in choice for group in ranked]


def auc_of(groups):
    """Share of pairs in the right order, ties by half, pair by pair."""
    won = total = Fraction(0)
    for i, (_, p) in enumerate(groups):
        for j, (n, _) in enumerate(groups):
            won += p * n * (Fraction(1, 2) if i == j else int(i < j))
            total += p * n
    return won / total


def ap_of(groups):
    """Precision at each threshold, weighted by the gain in recall."""
    found = flagged = 0
    area = Fraction(0)
    for n, p in groups:
        found, flagged = found + p, flagged + n + p
        area += p * Fraction(found, flagged)
    return area / found


@pytest.mark.parametrize("counts", TINY)
@pytest.mark.parametrize(("metric", "value_of"), [(roc_auc, auc_of), (average_precision, ap_of)])
def test_bounds_are_the_extremes_of_all_arrangements(metric, value_of, counts):
    possible = [value_of(groups) for groups in arrangements(counts)]
    found = measure(metric, counts)
    assert found.lowest == pytest.approx(float(min(possible)), abs=1e-12)
    assert found.highest == pytest.approx(float(max(possible)), abs=1e-12)


@pytest.mark.parametrize("counts", TINY)
def test_examples_one_by_one_are_the_mean_over_all_orders(counts):
    bins = [[0] * n + [1] * p for n, p in reversed(list(zip(*counts, strict=True)))]
    orders = product(*(list(permutations(each)) for each in bins))
    untied = [ap_of([(1 - row, row) for each in order for row in each]) for order in orders]
    expected = float(sum(untied) / len(untied))
    found = precision_one_by_one(np.array(counts, dtype=float), tied=np.zeros(len(bins), bool))
    assert found == pytest.approx(expected, abs=1e-14)


def test_bounds_of_separated_bins_and_of_a_rest_of_rounding_do_not_cross():
    """Repaired counts can leave 4e-16 of a positive in a bin of some negatives."""
    for counts in (
        [[0, 2], [1, 0]],
        [[0, 3, 2], [1, 0, 0]],
        [[1, 0, 1, 0, 0], [0, 1, 0, 1, 3]],
        [[2_000_000, 0, 2_000_000], [0, 1, 0]],
        [[300.0, 4.0], [2.0, 2.0**-51]],
    ):
        found = measure(average_precision, counts)
        assert 0.0 <= found.lowest <= found.value <= found.highest <= 1.0


@pytest.mark.parametrize("metric", [roc_auc, average_precision])
def test_separated_bins_leave_no_doubt_and_one_bin_leaves_almost_all(metric):
    assert measure(metric, [[2, 1, 0, 0], [0, 0, 3, 1]]) == pytest.approx((1, 1, 1), abs=1e-12)
    found = measure(metric, [[1000], [1]])
    assert found.highest == 1
    assert found.lowest == pytest.approx(0 if metric is roc_auc else 1 / 1001, abs=1e-10)
    assert found.value == pytest.approx(0.5 if metric is roc_auc else 1 / 1001, abs=1e-12)


@pytest.mark.parametrize("negatives", [10**3, 10**6, 10**9, 10**12])
@pytest.mark.parametrize("positives", [[1, 0], [0, 1], [3, 2]])
def test_lowest_average_precision_holds_when_positives_are_rare(negatives, positives):
    exact, found, flagged = Fraction(0), 0, 0
    for p in reversed(positives):
        flagged += negatives
        for _ in range(p):
            found, flagged = found + 1, flagged + 1
            exact += Fraction(found, flagged)
    exact /= sum(positives)
    lowest = measure(average_precision, [[negatives, negatives], positives]).lowest
    assert 0 <= lowest <= exact
    assert lowest >= exact - Fraction(negatives, 10**13) - Fraction(1, 10**12)


@pytest.mark.parametrize("positives", [100, 10**4, 10**5])
def test_lowest_average_precision_of_many_positives(positives):
    k = np.arange(1, positives + 1)
    expected = np.mean(k / (k + 5 * positives))
    lowest = measure(average_precision, [[5 * positives], [positives]]).lowest
    assert lowest == pytest.approx(expected, rel=1e-9)


def test_an_estimate_says_how_far_binning_can_move_it():
    result = fg.evaluate({"a": ([0, 1, 0, 1], [0.1, 0.4, 0.6, 0.9])}, axis=Axis.uniform(2))
    found = result.roc_auc
    low, high = found.bounds
    assert set(found.parts) == {"binning", "sampling"}
    assert found.parts["binning"] == max(found.value - low, high - found.value)
    assert (low, high) == pytest.approx((0.25, 0.75), abs=1e-12)
    assert float(found) == found.value
    assert found.low < low < high < found.high
    assert found.level == 0.95
