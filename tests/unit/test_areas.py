from fractions import Fraction
from functools import cache
from itertools import permutations, product

import numpy as np
import pytest

import fedgauge as fg
from fedgauge import (
    Aligned,
    Axis,
    UndefinedMetric,
)
from fedgauge.estimation.distribution import estimate
from fedgauge.metrics.areas import average_precision, precision_one_by_one, roc_auc
from fedgauge.metrics.curves import pr_curve, roc_curve

TINY = [
    [[1], [1]],
    [[2], [2]],
    [[3], [3]],
    [[1], [4]],
    [[1, 1], [1, 1]],
    [[0, 2], [2, 1]],
    [[2, 1], [0, 3]],
    [[1, 0, 2], [1, 2, 1]],
    [[1, 1, 1], [1, 1, 1]],
    [[0, 0, 1], [1, 0, 0]],
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
    assert precision_one_by_one(np.array(counts, dtype=float)) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("counts", TINY)
def test_known_values_have_one_arrangement(counts):
    counts = np.array(counts)
    axis = Axis.from_values(range(counts.shape[1]))
    groups = [(int(n), int(p)) for n, p in counts.T[::-1]]
    for metric, value_of in ((roc_auc, auc_of), (average_precision, ap_of)):
        found = measure(metric, counts, axis=axis)
        expected = float(value_of(groups))
        assert found == pytest.approx((expected, expected, expected), abs=1e-12)


@pytest.mark.parametrize(
    "counts",
    [
        [[0, 2], [1, 0]],
        [[0, 3, 2], [1, 0, 0]],
        [[1, 0, 1, 0, 0], [0, 1, 0, 1, 3]],
        [[2_000_000, 0, 2_000_000], [0, 1, 0]],
    ],
)
def test_bounds_of_separated_bins_do_not_cross(counts):
    found = measure(average_precision, counts)
    assert found.lowest <= found.value <= found.highest


@pytest.mark.parametrize("metric", [roc_auc, average_precision])
def test_separated_bins_leave_no_doubt_and_one_bin_leaves_almost_all(metric):
    assert measure(metric, [[2, 1, 0, 0], [0, 0, 3, 1]]) == pytest.approx((1, 1, 1), abs=1e-12)
    found = measure(metric, [[1000], [1]])
    assert found.highest == 1
    assert found.lowest == pytest.approx(0 if metric is roc_auc else 1 / 1001, abs=1e-10)
    assert found.value == pytest.approx(0.5 if metric is roc_auc else 1 / 1001, abs=1e-12)


@pytest.mark.parametrize("axis", [Axis.uniform(2), Axis.from_values([0, 1])], ids=repr)
@pytest.mark.parametrize("metric", ["roc_auc", "average_precision", "auprg", "ks_statistic"])
@pytest.mark.parametrize(("label", "absent"), [(1, "negative"), (0, "positive")])
def test_a_metric_needs_both_classes(metric, label, absent, axis):
    result = fg.evaluate({"a": ([label] * 3, [0, 1, 1])}, axis=axis)
    with pytest.raises(UndefinedMetric, match=absent):
        getattr(result, metric)


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


def test_a_rest_of_rounding_among_the_highest_scores():
    """Repaired counts can leave 4e-16 of a positive in a bin of some negatives."""
    found = measure(average_precision, [[300.0, 4.0], [2.0, 2.0**-51]])
    assert 0.0 <= found.lowest <= found.highest <= 1.0
