"""Errors fall at least as fast as the papers' bounds, on few points of `studies/slopes.py`. Seeds
are fixed. A slope fails where the lower end of its interval at `LEVEL` is above the bound's: where
the two are equal, a fresh seed fails with a chance of 5e-5 for each of the 15 series here, below
one in a thousand in all."""

import numpy as np
import pytest

import error_series
import log_slopes

LEVEL = 1 - 1e-4


def check(found):
    series = list(found)
    assert len(series) == 3
    for each in series:
        bound = each.bounds[0]
        fit = log_slopes.fit(each.x, each.errors, LEVEL)
        assert log_slopes.keeps(each, bound, LEVEL), (each.quantity, fit)
        # An interval that holds any slope would check nothing: errors must surely fall.
        assert fit.high < log_slopes.exponent(each.x, bound) / 2, (each.quantity, fit)


def test_area_errors_against_bins(monkeypatch):
    monkeypatch.setattr(error_series, "LATTICE", 2**12)  # fine enough for 256 bins
    rng = np.random.default_rng(1)
    check(error_series.against_bins(error_series.WORLDS[0], [16, 64, 256], 6, rng))


@pytest.mark.parametrize("world", [0, 3])
def test_rates_between_edges_against_bins(world):
    rng = np.random.default_rng(2)
    check(error_series.rates_against_bins(error_series.WORLDS[world], [16, 64, 256], 40, rng))


def test_noise_alone_against_examples():
    """From 10^4 examples on: with fewer, counts repaired to be monotone lower the first error."""
    rng = np.random.default_rng(3)
    settings = [error_series.Setting(n, 1.0) for n in (10_000, 100_000, 1_000_000)]
    check(error_series.noise_errors(error_series.WORLDS[0], settings, "n epsilon", 60, rng))


def test_noisy_rates_against_examples():
    rng = np.random.default_rng(4)
    settings = [error_series.Setting(n, 1.0) for n in (1_000, 10_000, 100_000)]
    check(error_series.noisy_rates(error_series.WORLDS[0], settings, "n epsilon", 40, rng))


@pytest.mark.parametrize(("power", "kept"), [(-1.2, True), (-0.8, False)])
def test_a_slope_above_the_bound_is_seen(power, kept):
    """Errors of a known power, 20% of chance: 0.2 from the bound are 14 standard errors."""
    rng = np.random.default_rng(5)
    x = np.array([16.0, 64.0, 256.0, 1024.0])
    errors = x**power * rng.uniform(0.65, 1.35, (20, 4))
    bound = log_slopes.Bound("1/x", 1 / x)
    series = log_slopes.Series("", x, errors, (bound,))
    assert log_slopes.keeps(series, bound, LEVEL) is kept


def test_interval_covers_the_slope():
    """Of 400 intervals at 95% at least 360 cover: fewer have a chance below 1e-4."""
    rng = np.random.default_rng(6)
    x = np.array([1.0, 10.0, 100.0])
    fits = [log_slopes.fit(x, x**-0.5 * rng.uniform(0.65, 1.35, (20, 3))) for _ in range(400)]
    assert np.mean([fit.low <= -0.5 <= fit.high for fit in fits]) >= 0.9
