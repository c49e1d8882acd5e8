"""Known totals: counts between 0 and them, and one noise for both classes."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import fedgauge as fg
from fedgauge.estimation.labelled import LabelCounts
from fedgauge.estimation.repair import consistent, within_totals


@settings(max_examples=60, deadline=None)
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


def test_many_rows_are_repaired_like_each_alone():
    rng = np.random.default_rng(0)
    totals = rng.integers(0, 6, (600, 12)).astype(float)
    noisy = rng.normal(totals / 2, 3)
    together = within_totals(noisy, totals)
    alone = [within_totals(noisy[[row]], totals[[row]])[0] for row in range(0, 600, 7)]
    assert np.array_equal(together[::7], alone)


def test_possible_counts_come_back():
    counts = np.array([[1.0, 0.0, 3.0]])
    assert np.array_equal(within_totals(counts, np.array([[1.0, 2.0, 3.0]])), counts)


def label_counts(tree=(4, 4), variance=8.0, seed=0):
    rng = np.random.default_rng(seed)
    totals = rng.integers(20, 60, 16)
    positives = rng.binomial(totals, np.linspace(0.1, 0.9, 16))
    axis = fg.Axis.uniform(16)
    return LabelCounts(axis, np.array([totals - positives, positives]), tree, (variance,) * 2)


def test_noise_of_a_sum_is_that_of_noise_drawn_again():
    """The variance of 4,000 draws lies within 15%: right code fails less than once in 10^6."""
    pooled = label_counts()
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(2, 16))
    exact = pooled.unbiased[1]
    draws = []
    for _ in range(4000):
        levels = [
            exact.reshape(1, nodes, -1).sum(axis=2) + rng.laplace(0, 2.0, (1, nodes))
            for nodes in (4, 16)
        ]
        (positives,) = consistent(levels, pooled.tree, pooled.variances)
        both = np.array([pooled.totals - positives, positives])
        draws.append(np.sum(weights * both))
    assert np.var(draws) == pytest.approx(float(pooled.noise_variance(weights)), rel=0.15)


def test_what_counts_have_in_common_has_no_noise():
    pooled = label_counts()
    assert pooled.noise_variance(np.ones((2, 16))) == 0.0
    assert pooled.deviation_of_totals > 0


def test_counts_drawn_anew_are_possible():
    pooled = label_counts(variance=200.0)
    for sampling in (False, True):
        drawn = pooled.redrawn(50, sampling=sampling)
        assert drawn.shape == (50, 2, 16)
        assert drawn.min() >= 0
        if not sampling:
            assert np.array_equal(drawn.sum(axis=1), np.broadcast_to(pooled.totals, (50, 16)))


def test_known_totals_have_less_noise_than_two_noisy_classes():
    """AUC noise at most 0.6 of that of both classes noisy under replace-one."""
    rng = np.random.default_rng(2)
    labels = (rng.random(20_000) < 0.3).astype(int)
    scores = 1 / (1 + np.exp(-rng.normal(1.5 * labels)))
    ids = np.arange(20_000)
    parts = {str(k): (ids[k::10], labels[k::10]) for k in range(10)}
    apart = fg.evaluate_vertical((ids, scores), parts, tree=(64,), positive_rate=0.3, seed=1)
    together = fg.evaluate(
        {str(k): (labels[k::10], scores[k::10]) for k in range(10)},
        axis=fg.Axis.from_edges(apart.released.axis.edges.tolist(), outside="clip"),
        privacy=fg.DistributedDP(1.0, neighbours="replace-one"),
        seed=1,
    )
    assert apart.roc_auc.parts["noise"] <= 0.6 * together.roc_auc.parts["noise"]
