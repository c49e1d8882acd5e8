"""Groups of neighbouring bins: mass shared out, nothing lost, noise as the tree has it."""

import numpy as np
import pytest

import fedgauge as fg
from fedgauge.estimation.pooled import PooledCounts
from fedgauge.measures.forecasts import Forecasts
from fedgauge.measures.partition import Partition
from fedgauge.measures.reading import Reading


def test_masses_are_about_equal():
    rng = np.random.default_rng(0)
    totals = rng.poisson(20, 500).astype(float)
    groups = Partition.equal_mass(totals, 10)
    assert groups.groups == 10
    assert np.ptp(groups.sums(totals)) <= 2 * totals.max()


@pytest.mark.parametrize(
    ("totals", "owners"),
    [
        ([0, 0, 5, 0, 5, 0], [0, 0, 0, 1, 1, 1]),
        ([10, 0, 0, 0], [0, 0, 0, 0]),
        ([0, 0, 0, 10], [0, 0, 0, 0]),
        ([1], [0]),
        ([8, 1, 1, 8], [0, 0, 1, 1]),
    ],
)
def test_bins_without_examples_join_a_neighbour(totals, owners):
    totals = np.array(totals, dtype=float)
    groups = Partition.equal_mass(totals, 2)
    np.testing.assert_array_equal(groups.owners, owners)
    assert np.all(groups.sums(totals) > 0)


def test_noise_of_a_group_is_that_of_its_node():
    counts = np.full((2, 4), 50.0)
    pooled = PooledCounts(fg.Axis.uniform(4), counts, (2, 2), (3.0, 5.0))
    forecasts = Forecasts.of(Reading(pooled, fg.Aligned(), 0.95))
    halves = Partition(np.array([0, 0, 1, 1]), 2)
    weights = np.zeros((2, 4))
    weights[1] = 1.0
    # A node's own count, variance 3, and its children's sum, 10: 1 / (1/3 + 1/10).
    np.testing.assert_allclose(halves.noise_variance(forecasts, weights), [30 / 13] * 2)


def test_the_excess_is_that_of_counts_as_released():
    released = np.array([[10.0, 4.0], [-2.0, 6.0]])
    pooled = PooledCounts(fg.Axis.uniform(2), released, (2,), (1.0,))
    forecasts = Forecasts.of(Reading(pooled, fg.Aligned(), 0.95))
    excess, _, noise = Partition(np.array([0, 1]), 2).excess(forecasts, np.array([0.1, 0.5]))
    np.testing.assert_allclose(excess, [-2 * 0.9 - 10 * 0.1, 6 * 0.5 - 4 * 0.5])
    np.testing.assert_allclose(noise, [0.81 + 0.01, 0.5])
