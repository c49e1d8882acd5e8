"""A noisy tree becomes consistent by least squares, then monotone; bad input is refused."""

import heapq
import itertools
import math

import numpy as np
import pytest
from trees import aggregations

from fedgauge import Axis, PlanError, ScoreHistogram
from fedgauge.estimation.repair import (
    consistent,
    leaf_variance,
    monotone,
    noise_covariance,
    smooth,
)

TREES = {
    "flat": ((6,), (2.0,)),
    "two levels": ((3, 4), (1.0, 5.0)),
    "three levels": ((2, 3, 4), (0.5, 7.0, 2.0)),
    "binary": ((2,) * 5, (1.0, 2.0, 3.0, 4.0, 5.0)),
    "single children": ((1, 3, 1, 2, 1), (1.0, 2.0, 0.5, 3.0, 1.5)),
    "one bin": ((1,), (3.0,)),
    "lopsided noise": ((4, 4), (1e-3, 1e3)),
}
every_tree = pytest.mark.parametrize(("tree", "variances"), TREES.values(), ids=TREES.keys())


def leaf_covariance(tree, variances):
    """Covariance of single leaves, bins by bins."""
    unit = np.eye(math.prod(tree))
    return noise_covariance(tree, variances, unit[:, np.newaxis], unit)


def total_variance(tree, variances):
    """Variance of the sum of all leaves."""
    every = np.ones(int(math.prod(tree)))
    return float(noise_covariance(tree, variances, every, every))


def noisy_levels(tree, channels=3, seed=0):
    rng = np.random.default_rng(seed)
    nodes = itertools.accumulate(tree, lambda product, branching: product * branching)
    return [rng.normal(10, 20, (channels, count)) for count in nodes]


def sums(leaves, tree):
    return [leaves @ aggregation.T for aggregation in aggregations(tree)]


# Consistency


@every_tree
def test_leaves_are_the_weighted_least_squares_solution(tree, variances):
    levels = noisy_levels(tree)
    weights = [1 / np.sqrt(variance) for variance in variances]
    design = np.vstack([w * a for w, a in zip(weights, aggregations(tree), strict=True)])
    wanted = np.hstack([w * level for w, level in zip(weights, levels, strict=True)])
    expected = np.linalg.lstsq(design, wanted.T)[0].T
    np.testing.assert_allclose(consistent(levels, tree, variances), expected, rtol=1e-7, atol=1e-7)


def test_equal_noise_on_a_binary_tree_follows_the_published_recurrence():
    # Hay et al. 2010, theorem 3, with k = 2; a leaf has height 1. The root is not
    # observed, so each node of the first level is the root of a tree of its own.
    tree = (2, 2, 2, 2)
    levels = noisy_levels(tree, channels=1)

    def upward(depth, node):
        height = len(tree) - depth
        if height == 1:
            return levels[depth][0, node]
        below = sum(upward(depth + 1, 2 * node + side) for side in (0, 1))
        own = levels[depth][0, node]
        return (2**height - 2 ** (height - 1)) / (2**height - 1) * own + (2 ** (height - 1) - 1) / (
            2**height - 1
        ) * below

    def downward(depth, node):
        if depth == 0:
            return upward(depth, node)
        pair = sum(upward(depth, 2 * (node // 2) + side) for side in (0, 1))
        return upward(depth, node) + (downward(depth - 1, node // 2) - pair) / 2

    expected = [downward(3, leaf) for leaf in range(16)]
    np.testing.assert_allclose(consistent(levels, tree, [3.0] * 4)[0], expected, rtol=1e-12)


def test_one_level_comes_back_as_it_was_and_not_as_the_same_memory():
    for level in (np.array([[3, -1, 4], [1, 5, -9]]), np.array([[0.1, -0.2, 0.3]])):
        leaves = consistent([level], (3,), (2.0,))
        np.testing.assert_array_equal(leaves, level)
        assert leaves.dtype == np.float64
        assert not np.shares_memory(leaves, level)


def test_a_nearly_exact_level_decides_its_sums():
    tree = (2, 3)
    levels = noisy_levels(tree)
    near_parents = sums(consistent(levels, tree, (1e-9, 1.0)), tree)[0]
    np.testing.assert_allclose(near_parents, levels[0], atol=1e-6)
    np.testing.assert_allclose(consistent(levels, tree, (1.0, 1e-9)), levels[1], atol=1e-6)


@pytest.mark.parametrize("largest", [10, 2**48])
def test_counts_of_a_histogram_without_noise_come_back_bit_for_bit(largest):
    rng = np.random.default_rng(1)
    for tree in [(24,), (2, 12), (3, 2, 4), (2, 2, 2, 3)] * 20:
        counts = rng.integers(0, largest, (2, 24))
        histogram = ScoreHistogram.from_counts(Axis.uniform(24), counts)
        leaves = consistent(histogram.levels(tree), tree, rng.uniform(0.1, 9.0, len(tree)))
        np.testing.assert_array_equal(leaves, counts)


def test_the_levels_given_are_left_alone():
    levels = noisy_levels((3, 4))
    before = [level.copy() for level in levels]
    consistent(levels, (3, 4), (1.0, 2.0))
    for level, copy in zip(levels, before, strict=True):
        np.testing.assert_array_equal(level, copy)


# Variances


@every_tree
def test_covariance_is_the_inverse_of_the_information(tree, variances):
    information = sum(a.T @ a / v for a, v in zip(aggregations(tree), variances, strict=True))
    covariance = leaf_covariance(tree, variances)
    np.testing.assert_allclose(covariance @ information, np.eye(math.prod(tree)), atol=1e-7)
    np.testing.assert_allclose(covariance, covariance.T, rtol=1e-12, atol=1e-12)


@every_tree
def test_covariance_is_that_of_the_estimates(tree, variances):
    # The estimates are linear in the counts: feed unit counts to see the whole map.
    nodes = sum(len(aggregation) for aggregation in aggregations(tree))
    cuts = np.cumsum([len(aggregation) for aggregation in aggregations(tree)])[:-1]
    response = consistent(np.split(np.eye(nodes), cuts, axis=1), tree, variances).T
    noise = np.repeat(variances, np.diff([0, *cuts, nodes]))
    covariance = leaf_covariance(tree, variances)
    np.testing.assert_allclose(covariance, (response * noise) @ response.T, rtol=1e-9, atol=1e-9)


@every_tree
def test_one_leaf_and_the_total_agree_with_the_covariance(tree, variances):
    covariance = leaf_covariance(tree, variances)
    np.testing.assert_allclose(np.diag(covariance), leaf_variance(tree, variances), rtol=1e-12)
    assert total_variance(tree, variances) == pytest.approx(covariance.sum(), rel=1e-9)


def test_variances_by_hand():
    # A parent's own count (variance 1) and its four leaves' sum (variance 4): 4/5.
    assert total_variance((4, 4), (1, 1)) == pytest.approx(4 * 4 / 5)
    assert leaf_variance((4, 4), (1, 1)) == pytest.approx(3 / 4 + 4 / 5 / 16)
    assert total_variance((64,), (2,)) == 128
    assert leaf_variance((64,), (2,)) == 2


# Monotone counts


@pytest.mark.parametrize(
    ("leaves", "expected"),
    [
        ([3, -1, 4], [2.5, 0, 3.5]),
        ([-2, 5, 1], [0, 3, 1]),
        ([5, 2, -3], [4, 0, 0]),  # nothing may lie above the total, whatever is pooled
        ([-5, 9, -1, -1], [0, 2, 0, 0]),
        ([4, -4, 4, -4, 4], [2, 0, 0, 0, 2]),
        ([-1, -2, -3], [0, 0, 0]),
        ([-1, 3, -4], [0, 0, 0]),
        ([1, 1, -2], [0, 0, 0]),
        ([0, 0, 0], [0, 0, 0]),
        ([-7], [0]),
        ([7], [7]),
        ([-1, 3], [0, 2]),
    ],
)
def test_monotone_by_hand(leaves, expected):
    np.testing.assert_allclose(monotone(np.array([leaves])), [expected], atol=1e-12)


def test_channels_are_repaired_apart():
    leaves = np.array([[3.0, -1.0, 4.0], [0.5, 2.0, 0.0], [-1.0, -1.0, 1.0]])
    alone = np.vstack([monotone(leaves[[channel]]) for channel in range(3)])
    np.testing.assert_array_equal(monotone(leaves), alone)


def test_valid_counts_come_back_bit_for_bit_and_as_a_copy():
    # Pooling three ties near 2^53 would round them.
    counts = np.array([[2**52 - 1, 0, 0, 3, 0, 0, 0, 2**51], [0, 0, 1, 0, 7, 0, 0, 2**53 - 9]])
    leaves = counts.astype(np.float64)
    repaired = monotone(leaves)
    np.testing.assert_array_equal(repaired.astype(np.int64), counts)
    assert not np.shares_memory(repaired, leaves)


def test_the_total_is_held_exactly_where_pooling_would_round_it():
    leaves = np.array([[0.7, -0.4, 1.1, 0.0, 0.0]])
    assert np.cumsum(monotone(leaves))[-1] == np.cumsum(leaves)[-1]


def test_monotone_leaves_its_argument_alone():
    leaves = np.array([[3.0, -1.0, 4.0]])
    monotone(leaves)
    np.testing.assert_array_equal(leaves, [[3.0, -1.0, 4.0]])


# Smoothing


@pytest.mark.parametrize(
    ("loss", "series", "expected"),
    [
        ("l2", [0.0, 0.6, 0.2, 0.1, 1.0], [0.0, 0.3, 0.3, 0.3, 1.0]),
        ("l1", [0.0, 0.6, 0.2, 0.1, 1.0], [0.0, 0.2, 0.2, 0.2, 1.0]),
        # Squares feel how far outside a value lies, absolute values do not.
        ("l2", [0.5, 0.5, -2.5, 0.9], [0.0, 0.0, 0.0, 0.9]),
        ("l1", [0.5, 0.5, -2.5, 0.9], [0.5, 0.5, 0.5, 0.9]),
        ("l2", [-3.0, 1.5, 1.25], [0.0, 1.0, 1.0]),
        ("l1", [-3.0, 1.5, 1.25], [0.0, 1.0, 1.0]),
        ("l1", [-1e25, 0.25, 1e25], [0.0, 0.25, 1.0]),
        ("l2", [4.0], [1.0]),
        ("l1", [-4.0], [0.0]),
        ("l1", [0.3], [0.3]),
    ],
)
def test_smoothing_by_hand(loss, series, expected):
    np.testing.assert_allclose(smooth(np.array(series), loss), expected, atol=1e-9)


def all_rising(grid, length):
    return np.array(list(itertools.combinations_with_replacement(grid, length)))


@pytest.mark.parametrize(("loss", "power"), [("l1", 1), ("l2", 2)])
def test_no_rising_series_on_a_grid_is_nearer(loss, power):
    rng = np.random.default_rng(5)
    candidates = all_rising(np.linspace(0, 1, 13), 5)
    for _ in range(40):
        series = rng.integers(-3, 16, 5) / 12
        best = (np.abs(candidates - series) ** power).sum(axis=1).min()
        found = (np.abs(smooth(series, loss) - series) ** power).sum()
        assert found <= best + 1e-12
        if loss == "l1":  # the grid holds a best answer: values of the series, 0 and 1
            assert found == pytest.approx(best, abs=1e-9)


def test_many_points_rise_exactly_and_match_a_heap():
    series = np.linspace(0, 1, 1000) + np.random.default_rng(2).normal(0, 0.2, 1000)
    smoothed = smooth(series, "l1")
    assert np.all(np.diff(smoothed) >= 0)
    assert smoothed.min() >= 0
    assert smoothed.max() <= 1
    clipped = np.clip(series, 0, 1)
    assert np.abs(smoothed - clipped).sum() == pytest.approx(least_fall_cost(clipped), rel=1e-9)


def test_falls_below_the_tolerance_of_the_solver_are_levelled_too():
    smoothed = smooth(0.62 + 1e-7 * np.array([0, 0, 0, -1, 1, 0, 0, 0, 2, -1]), "l1")
    assert np.all(np.diff(smoothed) >= 0)


def least_fall_cost(series):
    """Least sum of absolute changes that makes a series rise: the slope trick."""
    cost, highest = 0.0, []
    for value in series.tolist():
        heapq.heappush(highest, -value)
        if -highest[0] > value:
            cost += -heapq.heappop(highest) - value
            heapq.heappush(highest, -value)
    return cost


# Refusals


@pytest.mark.parametrize(
    ("levels", "remedy"),
    [
        ([np.zeros((2, 6))], "one for each level"),
        ([np.zeros((2, 2)), np.zeros((2, 6)), np.zeros((2, 6))], "one for each level"),
        ([np.zeros((2, 3)), np.zeros((2, 6))], "the tree that the counts were summed over"),
        ([np.zeros((2, 2)), np.zeros((2, 5))], "the tree that the counts were summed over"),
        ([np.zeros((2, 2)), np.zeros((1, 6))], "the tree that the counts were summed over"),
        ([np.zeros(2), np.zeros(6)], "Reshape"),
        ([np.zeros((0, 2)), np.zeros((0, 6))], "Reshape"),
        ([np.zeros((2, 2)), np.full((2, 6), np.nan)], "Check the noise"),
    ],
)
def test_levels_that_do_not_fit_the_tree_are_refused(levels, remedy):
    with pytest.raises(PlanError, match=remedy):
        consistent(levels, (2, 3), (1.0, 1.0))


@pytest.mark.parametrize("function", [total_variance, leaf_variance])
@pytest.mark.parametrize(
    ("tree", "variances", "remedy"),
    [
        ((2, 3), (1.0,), "at each level"),
        ((2, 3), (1.0, 1.0, 1.0), "at each level"),
        ((2, 3), (1.0, 0.0), "use the leaves"),
        ((2, 3), (-1.0, 1.0), "use the leaves"),
        ((2, 3), (math.inf, 1.0), "use the leaves"),
        ((2, 3), (1.0, math.nan), "use the leaves"),
        ((2, 0), (1.0, 1.0), "positive branching"),
        ((2, 1.5), (1.0, 1.0), "positive branching"),
        ((), (), "positive branching"),
    ],
)
def test_trees_and_variances_that_cannot_be_are_refused(function, tree, variances, remedy):
    with pytest.raises(PlanError, match=remedy):
        function(tree, variances)
    levels = [np.zeros((1, 2)), np.zeros((1, 6))]
    with pytest.raises(PlanError, match=remedy):
        consistent(levels, tree, variances)


@pytest.mark.parametrize(
    "leaves", [np.zeros(4), np.zeros((1, 2, 2)), np.zeros((2, 0)), np.array([[1.0, np.inf]])]
)
def test_leaves_without_channels_or_limits_are_refused(leaves):
    with pytest.raises(PlanError, match=r"Reshape|Check the noise"):
        monotone(leaves)


@pytest.mark.parametrize("loss", ["l1", "l2"])
@pytest.mark.parametrize("series", [np.zeros((2, 2)), np.zeros(0), np.array([0.1, np.nan])])
def test_series_that_cannot_be_smoothed_are_refused(series, loss):
    with pytest.raises(PlanError, match=r"Reshape|Check the noise"):
        smooth(series, loss)


def test_an_unknown_loss_is_refused_with_the_choices():
    with pytest.raises(PlanError, match="one of l1, l2, got 'huber'"):
        smooth(np.array([0.1, 0.2]), "huber")
