"""Repaired counts are nearer to the truth. What the repair of trees is, unbiased and as noisy as it
says, tests/property/test_repair.py holds exactly."""

import numpy as np

from fedgauge.estimation.repair import monotone


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
