"""Repaired leaves are unbiased, as noisy as claimed, and less noisy than leaves alone. Each
replicate is a channel. Seeds are fixed; a fresh seed would fail a correct implementation with the
probability that the test states."""

import numpy as np
import pytest
from scipy.stats import chi2

from fedgauge.estimation.repair import consistent, leaf_variance, monotone, noise_covariance

REPLICATES = 20_000
FALSE_ALARM = 1e-6
CASES = {"(4, 4)": ((4, 4), (1.0, 1.0)), "(2, 3, 4)": ((2, 3, 4), (0.25, 0.5, 1.0))}
every_case = pytest.mark.parametrize(("tree", "epsilons"), CASES.values(), ids=CASES.keys())


def repaired(tree, epsilons, seed):
    """Leaf estimates under discrete Laplace noise, the true leaves, the noise variances."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 200, np.prod(tree))
    ratios = np.exp(-np.asarray(epsilons))
    variances = 2 * ratios / (1 - ratios) ** 2
    levels = []
    for nodes, ratio in zip(np.cumprod(tree), ratios, strict=True):
        shape = (REPLICATES, nodes)
        noise = rng.geometric(1 - ratio, shape) - rng.geometric(1 - ratio, shape)
        levels.append(truth.reshape(nodes, -1).sum(axis=1) + noise)
    return consistent(levels, tree, variances), truth, variances


@every_case
def test_estimates_are_unbiased_false_alarm_one_in_a_million(tree, epsilons):
    leaves, truth, variances = repaired(tree, epsilons, seed=11)
    error = leaves.mean(axis=0) - truth
    unit = np.eye(len(truth))
    covariance = noise_covariance(tree, variances, unit[:, np.newaxis], unit)
    # Mahalanobis distance of the mean error: chi-squared by the central limit theorem.
    distance = REPLICATES * error @ np.linalg.solve(covariance, error)
    assert distance < chi2.isf(FALSE_ALARM, len(truth))


@every_case
def test_variances_are_as_claimed_false_alarm_one_in_a_million(tree, epsilons):
    leaves, truth, variances = repaired(tree, epsilons, seed=12)
    every = np.ones(len(truth))
    for errors, claimed in (
        ((leaves - truth)[:, 0], leaf_variance(tree, variances)),
        ((leaves - truth)[:, -1], leaf_variance(tree, variances)),
        ((leaves - truth).sum(axis=1), noise_covariance(tree, variances, every, every)),
    ):
        # Mean of squares, its own standard error estimated; 5.2 deviations leave 2e-7
        # on both sides together, for each of three numbers.
        squares = errors**2
        deviations = (squares.mean() - claimed) / (squares.std() / np.sqrt(REPLICATES))
        assert abs(deviations) < 5.2


@every_case
def test_leaves_vary_less_than_leaves_alone_false_alarm_below_one_in_a_million(tree, epsilons):
    # Expected ratios of variances are 0.80 and 0.87 for a leaf, 0.20 and 0.38 for the
    # total. Standard errors are below 0.005, so both limits are ten deviations away.
    leaves, truth, variances = repaired(tree, epsilons, seed=13)
    errors = leaves - truth
    assert np.mean(errors**2) < 0.95 * variances[-1]
    assert np.mean(errors.sum(axis=1) ** 2) < 0.5 * len(truth) * variances[-1]


def test_monotone_rates_lie_nearer_to_sparse_truth_false_alarm_below_one_in_a_million():
    # Mostly empty bins, where noisy counts are often negative. Squared errors of the rates
    # fall to 0.64 of their size; over 2,000 replicates 0.8 is 18 deviations away.
    truth = np.zeros(64)
    truth[[5, 40]] = 500
    noisy = truth + np.random.default_rng(14).normal(0, 10, (2_000, 64))

    def squared_error(leaves):
        cumulative = np.cumsum(leaves, axis=1)
        return np.mean((cumulative / cumulative[:, -1:] - np.cumsum(truth) / truth.sum()) ** 2)

    assert squared_error(monotone(noisy)) < 0.8 * squared_error(noisy)
