"""Bands around curves."""

import math
from functools import cache

import numpy as np
import pytest
from refusals import refused
from rows import split
from scipy.special import ndtr, ndtri
from scipy.stats import kstwo, norm

import fedgauge as fg
from fedgauge import Axis, InputError
from fedgauge.estimation.counts import PooledCounts
from fedgauge.metrics.bands import DET, GAIN, PR, PR_GAIN, ROC, _reaches
from fedgauge.metrics.estimate import Metric

pytestmark = pytest.mark.filterwarnings("ignore:.*the ROC AUC is below 0.4")

KINDS = ("simultaneous", "pointwise")
kinds = pytest.mark.parametrize("kind", KINDS)


@cache
def make(name):
    rng = np.random.default_rng(3)
    labels = (np.arange(300) % 3 == 0).astype(int)
    scores = np.clip(rng.normal(0.4 + 0.2 * labels, 0.15), 0, 1)
    tied = np.round(scores, 1)
    rows, axis = {
        "fine": ((labels, scores), Axis.uniform(256)),
        "coarse": ((labels, scores), Axis.uniform(5)),
        "values": ((labels, tied), Axis.from_values(tied)),
        "perfect": ((labels, 0.2 + 0.6 * labels), Axis.uniform(10)),
        "inverted": ((labels, 0.8 - 0.6 * labels), Axis.uniform(10)),
        "tiny": (([0, 1, 1], [0.1, 0.4, 0.8]), Axis.uniform(8)),
        "noisy": ((labels, scores), Axis.uniform(16, outside="clip")),
    }[name]
    if name == "noisy":
        return fg.evaluate(split(*rows, 3), privacy=fg.DistributedDP(2.0), axis=axis, seed=5)
    return fg.evaluate({"a": rows}, axis=axis)


RESULTS = ("fine", "coarse", "values", "perfect", "inverted", "tiny", "noisy")
results = pytest.mark.parametrize("name", RESULTS)


def every_band(result, kind):
    return {name: getattr(result, f"{name}_band")(kind) for name in ("roc", "det", "pr", "prg")}


@results
@kinds
def test_bands_run_from_left_to_right_and_hold_their_curve(name, kind):
    result = make(name)
    for curve, band in every_band(result, kind).items():
        assert (band.kind, band.level) == (kind, 0.95)
        assert (band.x[0], band.x[-1]) == (0, 1)
        assert np.all(np.diff(band.x) > 0)
        assert band.x.shape == band.low.shape == band.high.shape
        assert np.all(band.low <= band.high)
        assert np.all(band.high <= 1)
        assert np.all(band.low >= (-math.inf if curve == "prg" else 0))
        assert np.all(np.isfinite(band.low))
        # Where a curve is vertical, or rounding decides on which side a knot is, either end.
        drawn = getattr(result, f"{curve}_curve")()
        near = [drawn(np.clip(band.x + step, 0, 1)) for step in (-1e-6, 0.0, 1e-6)]
        low, high = np.minimum.reduce(near), np.maximum.reduce(near)
        if curve == "pr":  # precision at recall 0 is a convention
            low[0], high[0] = 0, 1
        missed = (band.low > high + 1e-6) | (band.high < low - 1e-6)
        assert not np.any(missed), (curve, band.x[missed])
        if curve == "roc":
            assert band.high[-1] == 1
            assert kind == "pointwise" or (band.low[0], band.low[-1]) == (0, 1)


@pytest.mark.parametrize("name", ["fine", "coarse", "noisy", "tiny"])
def test_simultaneous_bands_and_those_of_a_higher_level_are_wider(name):
    wide, narrow = (every_band(make(name), kind) for kind in KINDS)
    for curve, band in wide.items() if name != "tiny" else ():
        wider = (band.high - band.low) >= (narrow[curve].high - narrow[curve].low)
        assert wider.mean() > 0.95
    for kind in KINDS:
        wide, narrow = (every_band(make(name).at_level(level), kind) for level in (0.99, 0.6))
        for curve, band in wide.items():
            assert (band.level, narrow[curve].level) == (0.99, 0.6)
            assert np.all(band.low <= narrow[curve].low + 1e-9)
            assert np.all(band.high >= narrow[curve].high - 1e-9)


def test_simultaneous_bands_are_the_curve_moved_by_kolmogorovs_distances():
    """Campbell's band at knots close together; that of precision gain moves both rates too."""
    result = make("fine")
    band, gain = result.roc_band(), result.prg_band()
    part = math.sqrt(0.95)
    of_fpr, of_tpr = (float(kstwo.ppf(part, n)) for n in (result.negatives, result.positives))
    inner = (band.x > of_fpr + 0.01) & (band.x < 1 - of_fpr - 0.01)
    for end, sign in ((band.low, -1), (band.high, 1)):
        moved = result.roc_curve()(band.x[inner] + sign * of_fpr) + sign * of_tpr
        np.testing.assert_allclose(end[inner], np.clip(moved, 0, 1), atol=0.04)
    ratio = result.positives / result.negatives
    recall = ratio / (1 + ratio - gain.x)
    fpr, tpr, _ = result.roc_curve()
    inner = recall + of_tpr < 0.98
    highest = np.interp(recall[inner] + of_tpr, tpr, fpr) + of_fpr
    moved = (1 - gain.low[inner]) * recall[inner]
    np.testing.assert_allclose(moved, np.clip(highest, 0, 1), atol=0.06)


def test_noise_widens_a_simultaneous_band():
    noisy = make("noisy")._pooled
    exact = _reaches(PooledCounts(noisy.axis, noisy.counts, noisy.tree), 0.95)
    assert np.all(np.array(_reaches(noisy, 0.95)[:2]) > 1.01 * np.array(exact[:2]))


@pytest.mark.parametrize("band", ["roc_band", "det_band", "pr_band", "prg_band"])
def test_bands_of_one_class_or_of_no_known_kind_are_refused(band):
    for kind in ("nonsense", "Pointwise", ""):
        refused(InputError, r"simultaneous.*pointwise", getattr(make("tiny"), band), kind)
    for label in (0, 1):
        result = fg.evaluate({"a": ([label] * 3, [0.1, 0.2, 0.3])}, axis=Axis.uniform(4))
        refused(fg.UndefinedMetric, "no client has a", getattr(result, band))


SEPARATION, RATE = 1.5, 0.2


@pytest.fixture(scope="module")
def result():
    rng = np.random.default_rng(4)
    labels = (rng.random(4000) < RATE).astype(int)
    return fg.evaluate({"a": (labels, ndtr(rng.normal(SEPARATION * labels - 1, 1)))})


def true_gain(share):
    threshold = np.linspace(-9, 9, 20_001)
    found, wrong = norm.sf(threshold, SEPARATION), norm.sf(threshold)
    return np.interp(share, (RATE * found + (1 - RATE) * wrong)[::-1], found[::-1])


@kinds
def test_gain_band_holds_the_curve(result, kind):
    band, curve = result.gain_band(kind), result.gain_curve()
    assert (band.level, band.kind) == (0.95, kind)
    assert np.all(band.low <= curve(band.x) + 0.003)
    assert np.all(band.high >= curve(band.x) - 0.003)
    assert (band.low[0], band.high[0], band.low[-1], band.high[-1]) == (0, 0, 1, 1)
    assert np.all(np.diff(band.low) >= 0)
    assert np.all(np.diff(band.high) >= 0)
    assert np.all(band.high - band.low < 0.3)


def test_simultaneous_gain_band_holds_the_truth_and_ends_at_what_is_flagged(result):
    band, pointwise = result.gain_band(), result.gain_band("pointwise")
    truth = true_gain(band.x)
    assert np.all((band.low <= truth + 1e-9) & (truth <= band.high + 1e-9))
    middle = slice(40, 200)
    assert np.mean(band.high[middle] - band.low[middle]) > np.mean(
        pointwise.high[middle] - pointwise.low[middle]
    )
    narrow = result.at_level(0.8).gain_band()
    assert np.all(narrow.high - narrow.low <= band.high - band.low + 1e-12)
    few = fg.evaluate({"a": ([0] * 30 + [1] * 30, np.linspace(0.1, 0.9, 60))}).gain_band()
    assert few.high[40] < 0.1 / 0.3  # at least 30% are positive, by a wide margin
    assert few.high[40] > 0.1 / 0.5


@kinds
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


DISPLAYS = {
    ROC: fg.RocCurveDisplay,
    PR: fg.PrecisionRecallDisplay,
    DET: fg.DetCurveDisplay,
    PR_GAIN: fg.PrGainDisplay,
    GAIN: fg.GainDisplay,
}
every_kind = pytest.mark.parametrize("kind", DISPLAYS, ids=lambda kind: kind.name)


@every_kind
def test_points_lie_on_the_curve_that_a_result_has(kind, result):
    curve = getattr(result, f"{kind.name}_curve")()
    assert len({each.name for each in DISPLAYS}) == len({each.title for each in DISPLAYS}) == 5
    x, y = curve.points()
    assert len(x) == len(y) > 500
    assert np.all(np.diff(x) > -1e-12)
    assert (x[0], x[-1]) == pytest.approx((0, 1))
    # Where the curve is vertical, both ends of it and all between have one abscissa.
    apart = np.diff(x) > 1e-6
    single = np.flatnonzero(apart[:-1] & apart[1:]) + 1
    assert len(single) > 300
    np.testing.assert_allclose(curve(x[single]), y[single], atol=1e-6)


@every_kind
@pytest.mark.parametrize("band", ["pointwise", "simultaneous"])
def test_a_display_draws_what_the_row_says(kind, band, result):
    display = DISPLAYS[kind].from_evaluation(result, band=band)
    for drawn, read in zip(display.band, getattr(result, f"{kind.name}_band")(band), strict=True):
        np.testing.assert_array_equal(drawn, read)
    if kind.area is None:
        assert display.area is None
    else:
        name, _ = kind.area
        assert isinstance(getattr(fg.Evaluation, name), Metric)
        assert display.area is getattr(result, name)
