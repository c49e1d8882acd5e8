"""Distances of noisy sums from zero: values, ends of intervals, and how often they hold."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgauge.measures.inversion import Deviations, invert

Z = 1.959964


def sums(values, scale=1.0):
    values = np.array(values, dtype=float)
    return Deviations(values, np.eye(len(values)) * scale**2, np.ones(len(values)))


def test_far_from_zero_it_is_the_plain_distance():
    found = invert(sums([40.0, -30.0]), 1, Z)
    assert found.value == pytest.approx(70.0, abs=0.1)
    half = Z * math.sqrt(2)
    assert found.interval.low == pytest.approx(70.0 - half, abs=0.2)
    assert found.interval.high == pytest.approx(70.0 + half, abs=0.2)


def test_what_chance_gives_counts_for_nothing():
    # As much as fifteen sums around zero give on average: nothing is left, and zero is held.
    found = invert(sums([math.sqrt(2 / math.pi)] * 15), 1, Z)
    assert found.value == pytest.approx(0.0, abs=1e-3)
    assert found.interval.low == 0.0
    assert found.interval.high > 3.0


def test_less_than_chance_gives_still_has_an_interval():
    low, high = invert(sums([0.01] * 15), 1, Z).interval
    assert low == 0.0
    assert high == pytest.approx(invert(sums([0.05] * 15), 1, Z).interval.high, rel=0.2)
    assert high > 1.0


def test_certain_sums_are_what_they_are():
    found = invert(sums([3.0, -1.0], scale=1e-12), 1, Z)
    assert found.value == pytest.approx(4.0, abs=1e-9)
    assert found.interval == pytest.approx((4.0, 4.0), abs=1e-9)


def test_nothing_at_all():
    assert invert(sums([0.0, 0.0]), 1, Z).value == 0.0
    assert invert(sums([]), 1, Z).interval == (0.0, 0.0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-50, 50), min_size=1, max_size=8),
    st.floats(0.01, 10),
    st.sampled_from([1, 2]),
)
def test_the_interval_holds_the_value_and_scales(values, scale, power):
    found = invert(sums(values), power, Z)
    assert 0.0 <= found.interval.low <= found.value <= found.interval.high
    plain = float(np.sum(np.abs(values) ** power))
    assert found.value <= plain + 1e-9 + 1e-6 * plain  # chance only ever adds
    larger = invert(sums(np.array(values) * scale, scale), power, Z)
    assert larger.value == pytest.approx(found.value * scale**power, rel=2e-3, abs=1e-3)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("centre", [0.0, 0.7, 3.0])
@pytest.mark.parametrize("correlation", [0.0, 0.4])
def test_intervals_hold_the_truth(power, centre, correlation):
    """Of 400 draws at least 363 hold it: at 94% coverage, fewer happen less than once in 1000."""
    rng = np.random.default_rng([power, int(10 * centre), int(10 * correlation)])
    groups, draws = 12, 400
    signs = np.where(np.arange(groups) % 2, 1.0, -1.0)
    covariance = np.full((groups, groups), correlation / groups) + np.eye(groups)
    centres = centre * signs
    truth = groups * centre**power
    drawn = rng.multivariate_normal(centres, covariance, draws)
    found = [invert(Deviations(each, covariance, np.ones(groups)), power, Z) for each in drawn]
    held = sum(each.interval.low <= truth <= each.interval.high for each in found)
    assert held >= 363
    if centre == 3.0:  # and the value is right on average
        mean = np.mean([each.value for each in found])
        assert mean == pytest.approx(truth, rel=0.05)
