"""Known totals: counts between 0 and them, and one noise for both classes."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import fedgauge as fg
from fedgauge.estimation.counts import LabelCounts, PooledCounts
from fedgauge.estimation.repair import consistent, level_weights, noise_covariance, within_totals
from fedgauge.estimation.shrinkage import MOST_BINS
from fedgauge.metrics.ranking import Reading, roc_auc


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 9))
@example(227, 5)  # fitting both sides in turn once is not enough here
def test_the_nearest_counts_within_totals(seed, bins):
    rng = np.random.default_rng(seed)
    totals = rng.integers(0, 6, bins).astype(float)
    noisy = rng.normal(totals / 2, 3)
    found = within_totals(noisy[np.newaxis], totals[np.newaxis])[0]
    assert np.all((found >= 0) & (found <= totals))

    def distance(counts):
        return float(np.sum((np.cumsum(counts) - np.cumsum(noisy)) ** 2))

    best = minimize(distance, totals / 2, bounds=[(0, most) for most in totals], tol=1e-14)
    assert distance(found) <= best.fun + 1e-9 * (1 + best.fun)


def test_many_rows_are_repaired_like_each_alone_and_possible_counts_come_back():
    rng = np.random.default_rng(0)
    totals = rng.integers(0, 6, (600, 12)).astype(float)
    noisy = rng.normal(totals / 2, 3)
    together = within_totals(noisy, totals)
    alone = [within_totals(noisy[[row]], totals[[row]])[0] for row in range(0, 600, 7)]
    assert np.array_equal(together[::7], alone)
    assert np.array_equal(within_totals(together, totals), together)


def label_counts(tree=(4, 4), variance=8.0, seed=0):
    rng = np.random.default_rng(seed)
    totals = rng.integers(20, 60, 16)
    positives = rng.binomial(totals, np.linspace(0.1, 0.9, 16))
    axis = fg.Axis.uniform(16)
    return LabelCounts(axis, np.array([totals - positives, positives]), tree, (variance,) * 2)


def test_noise_of_a_sum_is_that_of_positives_which_are_no_negatives():
    weights = np.random.default_rng(1).normal(size=(2, 16))
    moved = weights[1] - weights[0]
    expected = moved @ leaf_covariance((4, 4), (8.0, 8.0)) @ moved
    assert label_counts().noise_variance(weights) == pytest.approx(expected)


def test_known_totals_have_no_noise_and_counts_drawn_anew_are_possible():
    pooled = label_counts()
    assert pooled.noise_variance(np.ones((2, 16))) == 0.0
    assert pooled.deviation_of_totals > 0
    pooled = label_counts(variance=200.0)
    for sampling in (False, True):
        drawn = pooled.redrawn(50, sampling=sampling)
        assert drawn.shape == (50, 2, 16)
        assert drawn.min() >= 0
        if not sampling:
            assert np.array_equal(drawn.sum(axis=1), np.broadcast_to(pooled.totals, (50, 16)))


@st.composite
def trees(draw):
    sizes = st.lists(st.integers(1, 5), min_size=1, max_size=4)
    tree = tuple(draw(sizes.filter(lambda t: math.prod(t) <= 60)))
    variances = draw(st.lists(st.floats(0.01, 100), min_size=len(tree), max_size=len(tree)))
    return tree, tuple(variances), draw(st.integers(0, 2**20))


def leaf_covariance(tree, variances):
    """The inverse of the information that all levels have on the leaves."""
    bins, nodes = math.prod(tree), 1
    information = np.zeros((bins, bins))
    for branching, variance in zip(tree, variances, strict=True):
        nodes *= branching
        level = np.repeat(np.eye(nodes), bins // nodes, axis=1)
        information += level.T @ level / variance
    return np.linalg.inv(information)


@settings(deadline=None, max_examples=150)
@given(trees())
def test_covariance_of_sums_is_that_of_the_leaves(case):
    tree, variances, seed = case
    rng = np.random.default_rng(seed)
    bins = math.prod(tree)
    covariance = leaf_covariance(tree, variances)
    left, right = rng.normal(size=(2, 3, 2, bins))
    found = noise_covariance(tree, variances, left, right)
    expected = np.einsum("abi,ij,abj->ab", left, covariance, right)
    scale = np.abs(covariance).max() * bins
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * scale)
    ones = np.ones(bins)
    assert noise_covariance(tree, variances, ones, ones) == pytest.approx(
        covariance.sum(), rel=1e-6
    )
    one = np.eye(bins)[rng.integers(bins)]
    assert noise_covariance(tree, variances, one, one) == pytest.approx(covariance[0, 0], rel=1e-6)


def noisy(counts, tree=(2, 2), variances=(4.0, 9.0)):
    counts = np.array(counts, dtype=np.float64)
    return PooledCounts(fg.Axis.uniform(counts.shape[1], outside="clip"), counts, tree, variances)


def test_noise_variance_adds_both_classes():
    pooled = noisy([[30, 20, 10, 5], [5, 10, 20, 30]])
    weights = np.array([[1.0, 2, 3, 4], [0, 0, 1, -1]])
    covariance = leaf_covariance((2, 2), (4.0, 9.0))
    expected = sum(row @ covariance @ row for row in weights)
    assert pooled.noise_variance(weights) == pytest.approx(expected)
    many = np.stack([weights, 2 * weights])
    np.testing.assert_allclose(pooled.noise_variance(many), [expected, 4 * expected])


def test_exact_counts_have_no_noise_and_repaired_ones_keep_totals():
    counts = np.array([[3, 0, 1], [0, 2, 2]])
    pooled = PooledCounts(fg.Axis.uniform(3), counts, (3,))
    assert not pooled.noisy
    assert pooled.hidden is None
    assert pooled.deviation_of_totals == 0
    assert (pooled.negatives, pooled.positives) == (4, 4)
    np.testing.assert_array_equal(pooled.counts, counts)
    assert pooled.noise_variance(np.ones((2, 3))) == 0
    np.testing.assert_array_equal(pooled.redrawn(5, sampling=False), [counts])
    assert PooledCounts(fg.Axis.uniform(2), np.array([[0, 0], [1, 2]]), (2,)).hidden is None
    pooled = noisy([[30, -5, 10, 5], [5, 10, 20, 30]])
    assert pooled.counts.min() >= 0
    assert pooled.negatives == pytest.approx(40)
    assert pooled.unbiased[0, 1] == -5


def test_a_class_must_stand_out_of_the_noise():
    for counts, hidden in (
        ([[300, 0, 0, 0], [0, 0, 0, 300]], None),
        ([[300, 0, 0, 0], [0, 0, 0, 3]], "positives"),
        ([[-4, 2, 1, 0], [0, 0, 0, 300]], "negatives"),
        ([[1, 1, 1, 1], [1, 1, 1, 1]], "negatives"),
    ):
        assert noisy(counts).hidden == hidden
    limit = 4 * math.sqrt(leaf_covariance((2, 2), (4.0, 9.0)).sum())
    just = noisy([[limit + 0.01, 0, 0, 0], [limit - 0.01, 0, 0, 0]])
    assert just.hidden == "positives"


def test_draws_spread_as_stated_false_alarm_below_one_in_a_million():
    """Variances from 4,000 draws of Laplace noise are off by 3.5%; 20% are five of these."""
    tree, variances = (4, 4), (6.0, 3.0)
    counts = np.full((2, 16), 1000.0)
    pooled = PooledCounts(fg.Axis.uniform(16, outside="clip"), counts, tree, variances)
    rng = np.random.default_rng(5)
    weights = rng.normal(size=16)
    draws = pooled.redrawn(4000, sampling=False)[:, 1] @ weights
    stated = noise_covariance(tree, variances, weights, weights)
    assert draws.var() == pytest.approx(stated, rel=0.2)
    assert draws.mean() == pytest.approx(counts[1] @ weights, abs=6 * math.sqrt(stated / 4000))
    both = pooled.redrawn(4000, sampling=True)[:, 1] @ weights
    assert both.var() == pytest.approx(stated + counts[1] @ weights**2, rel=0.2)


def test_draws_are_made_once_and_nobody_changes_them(monkeypatch):
    pooled = noisy([[30, 20, 10, 5], [5, 10, 20, 30]])
    for sampling in (False, True):
        first = pooled.redrawn(7, sampling=sampling)
        assert first.shape == (7, 2, 4)
        assert pooled.redrawn(7, sampling=sampling) is first
        assert not first.flags.writeable
        assert pooled.redrawn(8, sampling=sampling) is not first
    monkeypatch.setattr("fedgauge.estimation.counts._REMEMBERED", 100)
    large = pooled.redrawn(9, sampling=True)
    assert pooled.redrawn(9, sampling=True) is not large
    np.testing.assert_array_equal(pooled.redrawn(9, sampling=True), large)
    monkeypatch.undo()
    drawn = pooled.redrawn(50, sampling=True)  # what is not shrunk shares its draws
    assert pooled.unshrunk.redrawn(50, sampling=True) is drawn
    other = replace(pooled, released=2 * pooled.released)
    assert not np.array_equal(other.redrawn(50, sampling=True), drawn)


@pytest.mark.parametrize("tree", [(12,), (3, 4), (2, 3, 2)], ids=str)
def test_level_weights_are_what_consistency_does_backwards(tree):
    rng = np.random.default_rng(2)
    variances = rng.uniform(0.5, 3.0, len(tree))
    weights = rng.normal(size=12)
    nodes = [math.prod(tree[: depth + 1]) for depth in range(len(tree))]
    levels = [rng.normal(size=(1, count)) for count in nodes]
    pulls = level_weights(tree, variances, weights)
    through = sum(float(pull @ level[0]) for pull, level in zip(pulls, levels, strict=True))
    assert through == pytest.approx(float(weights @ consistent(levels, tree, variances)[0]))


def test_likely_counts_are_others_only_under_noise_and_where_they_are_to_be():
    rows = np.array([[60.0, 30.0, 12.0, 3.0], [4.0, 9.0, 20.0, 41.0]])
    pooled = noisy(rows)
    assert pooled.is_shrunk
    assert not np.allclose(pooled.likely, pooled.counts)
    np.testing.assert_allclose(pooled.likely.sum(axis=1), pooled.counts.sum(axis=1))
    for same in (
        pooled.unshrunk,
        PooledCounts(pooled.axis, rows, (2, 2)),  # exact
        noisy(rows * [[1.0], [0.0]]),  # without positives there is no ratio
    ):
        assert not same.is_shrunk
        assert same.likely is same.counts
        assert same.unshrunk.counts is same.counts
    many = MOST_BINS + 1
    fine = PooledCounts(fg.Axis.uniform(many), np.ones((2, many)), (many,), (1.0,))
    assert not fine.is_shrunk


@pytest.mark.parametrize(
    ("rows", "lumps"),
    [
        ([300, 400, 500, 600, 500, 400, 300, 200], []),  # smooth
        ([900, 0, 800, 0, 600, 0, 500, 0], [0, 2, 4, 6]),  # rounded
        ([2400, 300, 100, 100, 50, 50, 100, 800], [0, 7]),  # saturated
        ([2400, 450, 200, 100, 90, 50, 50, 50], []),  # smooth, and crowded at 0
        ([9, 9, 60, 9, 9, 9, 9, 9], []),  # within noise
    ],
)
def test_lumps_are_bins_that_hold_far_more_than_those_beside_them(rows, lumps):
    axis, counts = fg.Axis.uniform(8, outside="clip"), np.array([rows, np.full(8, 20)])
    noisy = PooledCounts(axis, counts, (8,), (25.0,))
    assert np.flatnonzero(noisy.lumps).tolist() == lumps
    caution = roc_auc(Reading(noisy, fg.Aligned(), 0.95)).caution or ""
    assert ("tied" in caution) == bool(lumps)
    assert not PooledCounts(axis, counts, (8,)).lumps.any()
