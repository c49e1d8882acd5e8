"""Bands of the cumulative gain and DET curves."""

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import norm

import fedgauge as fg

SEPARATION, RATE = 1.5, 0.2
KINDS = ["pointwise", "simultaneous"]


@pytest.fixture(scope="module")
def result():
    rng = np.random.default_rng(4)
    labels = (rng.random(4000) < RATE).astype(int)
    return fg.evaluate({"a": (labels, ndtr(rng.normal(SEPARATION * labels - 1, 1)))})


def true_gain(share):
    threshold = np.linspace(-9, 9, 20_001)
    found, wrong = norm.sf(threshold, SEPARATION), norm.sf(threshold)
    return np.interp(share, (RATE * found + (1 - RATE) * wrong)[::-1], found[::-1])


@pytest.mark.parametrize("kind", KINDS)
def test_gain_band_holds_the_curve(result, kind):
    band, curve = result.gain_band(kind), result.gain_curve()
    assert (band.level, band.kind) == (0.95, kind)
    assert np.all(band.low <= curve(band.x) + 0.003)
    assert np.all(band.high >= curve(band.x) - 0.003)
    assert (band.low[0], band.high[0], band.low[-1], band.high[-1]) == (0, 0, 1, 1)
    assert np.all(np.diff(band.low) >= 0)
    assert np.all(np.diff(band.high) >= 0)
    assert np.all(band.high - band.low < 0.3)


def test_simultaneous_gain_band_holds_the_truth(result):
    band, pointwise = result.gain_band(), result.gain_band("pointwise")
    truth = true_gain(band.x)
    assert np.all((band.low <= truth + 1e-9) & (truth <= band.high + 1e-9))
    middle = slice(40, 200)
    assert np.mean(band.high[middle] - band.low[middle]) > np.mean(
        pointwise.high[middle] - pointwise.low[middle]
    )


def test_gain_bands_of_lower_confidence_are_narrower(result):
    wide, narrow = result.gain_band(), result.at_level(0.8).gain_band()
    assert np.all(narrow.high - narrow.low <= wide.high - wide.low + 1e-12)


def test_nobody_finds_more_than_is_flagged():
    few = fg.evaluate({"a": ([0] * 30 + [1] * 30, np.linspace(0.1, 0.9, 60))}).gain_band()
    assert few.high[40] < 0.1 / 0.3  # at least 30% are positive, by a wide margin
    assert few.high[40] > 0.1 / 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_det_band_is_the_roc_band_at_points_even_in_deviates(result, kind):
    det, roc = result.det_band(kind), result.roc_band(kind)
    assert (det.x[0], det.x[-1]) == (0, 1)
    np.testing.assert_allclose(np.diff(ndtri(det.x[1:-1])), 0.02, atol=1e-9)
    middle = (det.x > 0.05) & (det.x < 0.95)
    np.testing.assert_allclose(
        det.low[middle], 1 - np.interp(det.x[middle], roc.x, roc.high), atol=0.02
    )
    np.testing.assert_allclose(
        det.high[middle], 1 - np.interp(det.x[middle], roc.x, roc.low), atol=0.02
    )
