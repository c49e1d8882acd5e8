"""Whatever the tree, its noise and the counts: least squares, and the nearest monotone counts."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedgauge.estimation.repair import (
    consistent,
    leaf_variance,
    level_weights,
    monotone,
    node_variances,
    noise_covariance,
    smooth,
)

many = settings(deadline=None, max_examples=80)
trees = st.lists(st.integers(1, 5), min_size=1, max_size=4).filter(lambda t: math.prod(t) <= 60)
noises = st.floats(1e-3, 1e3)


def aggregations(tree):
    """Level by level, the matrix that sums leaves into nodes."""
    bins = math.prod(tree)
    widths = bins // np.cumprod(tree)
    return [np.kron(np.eye(bins // width), np.ones(width)) for width in widths]


@st.composite
def noisy_trees(draw):
    tree = draw(trees)
    variances = draw(st.lists(noises, min_size=len(tree), max_size=len(tree)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    channels = draw(st.integers(1, 3))
    nodes = np.cumprod(tree)
    return tree, variances, [rng.normal(0, 100, (channels, count)) for count in nodes]


def steps(points, height):
    """The corners of the set of rising series from 0 to a height: one step each."""
    return height * np.tri(points + 1, points, -1)[:, ::-1]


leaf_counts = arrays(
    np.float64,
    st.tuples(st.integers(1, 3), st.integers(1, 12)),
    elements=st.one_of(st.integers(-20, 40).map(float), st.floats(-100, 100, width=32)),
)
rates = arrays(np.float64, st.integers(1, 12), elements=st.floats(-0.5, 1.5, width=32))


@many
@given(noisy_trees())
def test_leaves_solve_the_weighted_least_squares_of_which_only_ratios_matter(noisy):
    tree, variances, levels = noisy
    weights = 1 / np.sqrt(variances)
    design = np.vstack([w * a for w, a in zip(weights, aggregations(tree), strict=True)])
    wanted = np.hstack([w * level for w, level in zip(weights, levels, strict=True)])
    expected = np.linalg.lstsq(design, wanted.T)[0].T
    # The oracle is off by up to 1e-7 where variances differ most; the repair by 1e-13.
    np.testing.assert_allclose(consistent(levels, tree, variances), expected, rtol=1e-6, atol=1e-6)
    leaves = consistent(levels, tree, variances)
    again = consistent([leaves @ a.T for a in aggregations(tree)], tree, variances)
    np.testing.assert_allclose(again, leaves, rtol=1e-9, atol=1e-9)
    scaled = consistent(levels, tree, [7 * variance for variance in variances])
    np.testing.assert_allclose(scaled, leaves, rtol=1e-8, atol=1e-8)
    truth = np.random.default_rng(0).integers(0, 1000, leaves.shape)
    pairs = zip(levels, aggregations(tree), strict=True)
    shifted = consistent([level + truth @ a.T for level, a in pairs], tree, variances)
    np.testing.assert_allclose(shifted, leaves + truth, rtol=1e-8, atol=1e-8)


def total_variance(tree, variances):
    every = np.ones(math.prod(tree))
    return float(noise_covariance(tree, variances, every, every))


@many
@given(noisy_trees())
def test_variances_are_the_brute_force_inverse_and_more_levels_never_add_to_them(noisy):
    tree, variances, _ = noisy
    information = sum(a.T @ a / v for a, v in zip(aggregations(tree), variances, strict=True))
    expected = np.linalg.inv(information)
    scale = np.abs(expected).max()
    unit = np.eye(math.prod(tree))
    covariance = noise_covariance(tree, variances, unit[:, np.newaxis], unit)
    np.testing.assert_allclose(covariance, expected, rtol=1e-7, atol=1e-7 * scale)
    np.testing.assert_allclose(np.diag(covariance), leaf_variance(tree, variances), rtol=1e-10)
    np.testing.assert_allclose(
        total_variance(tree, variances), expected.sum(), rtol=1e-6, atol=1e-7 * scale
    )
    bins, leaf_noise = math.prod(tree), variances[-1]
    assert leaf_variance(tree, variances) <= leaf_noise * (1 + 1e-12)
    assert total_variance(tree, variances) <= bins * leaf_noise * (1 + 1e-12)


@many
@given(leaf_counts)
def test_monotone_counts_keep_the_total_and_are_the_nearest(leaves):
    repaired = monotone(leaves)
    assert np.all(repaired >= 0)
    totals = np.maximum(leaves.sum(axis=1), 0)
    np.testing.assert_allclose(repaired.sum(axis=1), totals, rtol=1e-12, atol=1e-10)
    np.testing.assert_array_equal(monotone(repaired), repaired)
    # A point of a convex set is nearest to c exactly when no corner of the set makes an
    # acute angle with c seen from it.
    for given_leaves, found in zip(leaves, monotone(leaves), strict=True):
        given_cumulative, cumulative = np.cumsum(given_leaves)[:-1], np.cumsum(found)[:-1]
        corners = steps(len(cumulative), max(given_leaves.sum(), 0))
        angles = (corners - cumulative) @ (given_cumulative - cumulative)
        assert np.all(angles <= 1e-7)


@many
@given(arrays(np.int64, (2, 9), elements=st.integers(0, 2**49)))
def test_whole_counts_come_back_bit_for_bit(counts):
    np.testing.assert_array_equal(monotone(counts.astype(np.float64)), counts)
    levels = [counts.reshape(2, 3, 3).sum(axis=2), counts]
    np.testing.assert_array_equal(monotone(consistent(levels, (3, 3), (0.3, 7.0))), counts)


@many
@given(rates)
def test_smoothing_in_squares_is_the_nearest(series):
    smoothed = smooth(series, "l2")
    assert np.all(np.diff(smoothed) >= 0)
    assert np.all((smoothed >= 0) & (smoothed <= 1))
    assert np.all((steps(len(series), 1.0) - smoothed) @ (series - smoothed) <= 1e-10)


@many
@given(rates)
def test_smoothing_in_absolute_values_is_as_near_as_any(series):
    smoothed = smooth(series, "l1")
    assert np.all(np.diff(smoothed) >= 0)
    assert np.all((smoothed >= 0) & (smoothed <= 1))
    # Some best answer takes its values from the series, 0 and 1: try them all, left to
    # right, keeping the least cost of ending at or below each value.
    values = np.unique(np.append(np.clip(series, 0, 1), [0.0, 1.0]))
    cost = np.zeros(len(values))
    for value in series:
        cost = np.minimum.accumulate(cost + np.abs(values - value))
    np.testing.assert_allclose(np.abs(smoothed - series).sum(), cost[-1], atol=1e-6)


@many
@given(rates, st.sampled_from(["l1", "l2"]))
def test_smoothing_twice_is_smoothing_once(series, loss):
    smoothed = smooth(series, loss)
    np.testing.assert_allclose(smooth(smoothed, loss), smoothed, atol=1e-6)


@many
@given(noisy_trees())
def test_no_count_weighs_more_than_one_in_the_estimate_of_a_node(noisy):
    """What bounds of noise in estimates rest on; and its variance is that of these weights."""
    tree, variances, _ = noisy
    claimed = node_variances(tree, variances)
    for nodes, variance in zip(aggregations(tree), claimed, strict=True):
        by_level = level_weights(tree, variances, nodes)
        spread = sum(v * (w**2).sum(axis=1) for v, w in zip(variances, by_level, strict=True))
        np.testing.assert_allclose(spread, variance, rtol=1e-9)
        assert max(np.abs(weights).max() for weights in by_level) <= 1 + 1e-12
