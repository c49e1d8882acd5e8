"""A noisy tree becomes consistent by least squares, then monotone; bad input is refused."""

import heapq
import itertools
import math

import numpy as np
import pytest
from refusals import refused

from fedgauge import PlanError
from fedgauge.estimation.repair import consistent, leaf_variance, monotone, noise_covariance, smooth


def total_variance(tree, variances):
    every = np.ones(int(math.prod(tree)))
    return float(noise_covariance(tree, variances, every, every))


def noisy_levels(tree, channels=3, seed=0):
    rng = np.random.default_rng(seed)
    nodes = itertools.accumulate(tree, lambda product, branching: product * branching)
    return [rng.normal(10, 20, (channels, count)) for count in nodes]


def test_one_level_valid_counts_and_totals_come_back_and_arguments_stay():
    # Pooling three ties near 2^53 would round them.
    counts = np.array([[2**52 - 1, 0, 0, 3, 0, 0, 0, 2**51], [0, 0, 1, 0, 7, 0, 0, 2**53 - 9]])
    leaves = counts.astype(np.float64)
    repaired = monotone(leaves)
    np.testing.assert_array_equal(repaired.astype(np.int64), counts)
    assert not np.shares_memory(repaired, leaves)
    leaves = np.array([[0.7, -0.4, 1.1, 0.0, 0.0]])
    assert np.cumsum(monotone(leaves))[-1] == np.cumsum(leaves)[-1]
    for level in (np.array([[3, -1, 4], [1, 5, -9]]), np.array([[0.1, -0.2, 0.3]])):
        leaves = consistent([level], (3,), (2.0,))
        np.testing.assert_array_equal(leaves, level)
        assert leaves.dtype == np.float64
        assert not np.shares_memory(leaves, level)
    levels, leaves = noisy_levels((3, 4)), np.array([[3.0, -1.0, 4.0]])
    before = [level.copy() for level in levels]
    consistent(levels, (3, 4), (1.0, 2.0))
    for level, copy in zip(levels, before, strict=True):
        np.testing.assert_array_equal(level, copy)
    monotone(leaves)
    np.testing.assert_array_equal(leaves, [[3.0, -1.0, 4.0]])


def test_values_far_outside_are_smoothed():
    for loss, series, expected in (
        # Squares feel how far outside a value lies, absolute values do not.
        ("l2", [0.5, 0.5, -2.5, 0.9], [0.0, 0.0, 0.0, 0.9]),
        ("l1", [0.5, 0.5, -2.5, 0.9], [0.5, 0.5, 0.5, 0.9]),
        ("l2", [-3.0, 1.5, 1.25], [0.0, 1.0, 1.0]),
        ("l1", [-1e25, 0.25, 1e25], [0.0, 0.25, 1.0]),
    ):
        np.testing.assert_allclose(smooth(np.array(series), loss), expected, atol=1e-9)


def test_many_points_rise_exactly_and_match_a_heap():
    series = np.linspace(0, 1, 1000) + np.random.default_rng(2).normal(0, 0.2, 1000)
    smoothed = smooth(series, "l1")
    assert np.all(np.diff(smoothed) >= 0)
    assert smoothed.min() >= 0
    assert smoothed.max() <= 1
    clipped = np.clip(series, 0, 1)
    assert np.abs(smoothed - clipped).sum() == pytest.approx(least_fall_cost(clipped), rel=1e-9)
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


def test_levels_that_do_not_fit_the_tree_are_refused():
    for levels, remedy in (
        ([np.zeros((2, 6))], "one for each level"),
        ([np.zeros((2, 2)), np.zeros((2, 6)), np.zeros((2, 6))], "one for each level"),
        ([np.zeros((2, 3)), np.zeros((2, 6))], "the tree that the counts were summed over"),
        ([np.zeros((2, 2)), np.zeros((2, 5))], "the tree that the counts were summed over"),
        ([np.zeros((2, 2)), np.zeros((1, 6))], "the tree that the counts were summed over"),
        ([np.zeros(2), np.zeros(6)], "Reshape"),
        ([np.zeros((0, 2)), np.zeros((0, 6))], "Reshape"),
        ([np.zeros((2, 2)), np.full((2, 6), np.nan)], "Check the noise"),
    ):
        refused(PlanError, remedy, consistent, levels, (2, 3), (1.0, 1.0))


@pytest.mark.parametrize("function", [total_variance, leaf_variance])
def test_trees_and_variances_that_cannot_be_are_refused(function):
    for tree, variances, remedy in (
        ((2, 3), (1.0,), "at each level"),
        ((2, 3), (1.0, 1.0, 1.0), "at each level"),
        ((2, 3), (1.0, 0.0), "use the leaves"),
        ((2, 3), (-1.0, 1.0), "use the leaves"),
        ((2, 3), (math.inf, 1.0), "use the leaves"),
        ((2, 3), (1.0, math.nan), "use the leaves"),
        ((2, 0), (1.0, 1.0), "positive branching"),
        ((2, 1.5), (1.0, 1.0), "positive branching"),
        ((), (), "positive branching"),
    ):
        refused(PlanError, remedy, function, tree, variances)
        levels = [np.zeros((1, 2)), np.zeros((1, 6))]
        refused(PlanError, remedy, consistent, levels, tree, variances)


def test_leaves_and_series_that_cannot_be_repaired_are_refused():
    for leaves in ([0.0] * 4, [[[0.0] * 2] * 2], [[], []], [[1.0, np.inf]]):
        refused(PlanError, r"Reshape|Check the noise", monotone, np.array(leaves))
    for series in (np.zeros((2, 2)), np.zeros(0), np.array([0.1, np.nan])):
        for loss in ("l1", "l2"):
            refused(PlanError, r"Reshape|Check the noise", smooth, series, loss)
    refused(PlanError, "one of l1, l2, got 'huber'", smooth, np.array([0.1, 0.2]), "huber")
