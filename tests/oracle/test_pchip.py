"""The estimators' paths against SciPy's interpolators, built here from the words of the method."""

import numpy as np
import pytest
from counts import counts_on
from scipy.interpolate import PchipInterpolator
from scipy.optimize import brentq

import fedgauge as fg
from fedgauge import Aligned, Axis, Quantile
from fedgauge.estimation.distribution import estimate, from_exact_quantiles, horner
from fedgauge.metrics.curves import pr_curve, roc_curve


def examples(seed, size=400, decimals=None):
    rng = np.random.default_rng(seed)
    labels = (rng.uniform(size=size) < 0.3).astype(int)
    scores = rng.beta(1.5 + 2 * labels, 3 - labels)
    return labels, scores if decimals is None else np.round(scores, decimals)


def edge_rates(axis, labels, scores):
    """Rates at each edge by looking at every example, from the top; edges without news dropped."""
    thresholds = np.append(np.inf, axis.edges[-2::-1])
    fpr, tpr = (np.array([np.mean(scores[labels == k] >= t) for t in thresholds]) for k in (0, 1))
    news = np.append(True, np.diff(fpr + tpr) > 0)
    return fpr[news], tpr[news]


axes = pytest.mark.parametrize(
    "axis",
    [Axis.uniform(3), Axis.uniform(16), Axis.uniform(128), Axis.logit(32), Axis.uniform(4096)],
    ids=repr,
)


@axes
@pytest.mark.parametrize("seed", range(3))
def test_aligned_is_pchip_in_the_sum_of_both_rates(axis, seed):
    labels, scores = examples(seed, decimals=2 if seed == 2 else None)
    fpr, tpr = edge_rates(axis, labels, scores)
    u = fpr + tpr
    d = estimate(axis, counts_on(axis, labels, scores), Aligned())
    assert len(d.width) == len(u) - 1
    for share in (0.0, 0.1, 0.5, 0.8, 1.0):
        at = u[:-1] + share * np.diff(u)
        for pieces, rate in ((d.fpr_pieces, fpr), (d.tpr_pieces, tpr)):
            found = horner(pieces, share * d.width)
            np.testing.assert_allclose(found, PchipInterpolator(u, rate)(at), atol=1e-13)


@axes
def test_aligned_linear_is_interp_in_the_sum_of_both_rates(axis):
    labels, scores = examples(5)
    fpr, tpr = edge_rates(axis, labels, scores)
    u = fpr + tpr
    d = estimate(axis, counts_on(axis, labels, scores), Aligned("linear"))
    for share in (0.25, 0.75):
        at = u[:-1] + share * np.diff(u)
        found = horner(d.tpr_pieces, share * d.width)
        np.testing.assert_allclose(found, np.interp(at, u, tpr), atol=1e-13)


@pytest.mark.parametrize("seed", range(3))
def test_calling_an_aligned_curve_inverts_scipys_interpolator(seed):
    labels, scores = examples(seed)
    axis = Axis.uniform(16)
    fpr, tpr = edge_rates(axis, labels, scores)
    u = fpr + tpr
    along_fpr, along_tpr = PchipInterpolator(u, fpr), PchipInterpolator(u, tpr)
    result = fg.evaluate({"a": (labels, scores)}, axis=axis)
    positives, negatives = labels.sum(), (1 - labels).sum()
    for x in np.random.default_rng(seed).uniform(0.01, 0.99, 25):
        at = brentq(lambda v, x=x: along_fpr(v) - x, 0, 2, xtol=1e-14)
        assert result.roc_curve()(x) == pytest.approx(along_tpr(at), abs=1e-8)
        at = brentq(lambda v, x=x: along_tpr(v) - x, 0, 2, xtol=1e-14)
        precision = x * positives / (x * positives + along_fpr(at) * negatives)
        assert result.pr_curve()(x) == pytest.approx(precision, abs=1e-8)


def survival(scores, levels, quantiles, interpolation):
    """1 - ECDF at the scores: 1 up to the lowest quantile, 0 above the highest."""
    knots = np.unique(quantiles)
    at = np.array([1 - levels[quantiles == knot].mean() for knot in knots])
    if interpolation == "pchip":
        inside = PchipInterpolator(knots, at)(np.clip(scores, knots[0], knots[-1]))
    else:
        inside = np.interp(scores, knots, at)
    return np.where(scores <= knots[0], 1, np.where(scores > knots[-1], 0, inside))


@pytest.mark.parametrize("interpolation", ["pchip", "linear"])
@pytest.mark.parametrize("quantiles", [4, 16, 64])
@pytest.mark.parametrize("seed", range(3))
def test_quantile_paths_are_scipys_survivals(seed, quantiles, interpolation):
    labels, scores = examples(seed, decimals=2 if seed == 2 else None)
    estimator = Quantile(quantiles, interpolation, "combine")
    d = from_exact_quantiles(labels, scores, estimator)
    levels = np.linspace(0, 1, quantiles)
    upper, width = d.thresholds[1:-1], -np.diff(d.thresholds[1:])
    for share in (0.0, 0.3, 0.7, 1.0):
        at = upper - share * width
        at = np.clip(at, d.thresholds[2:], None)
        open_at = np.nextafter(at, np.inf) if share == 1.0 else at  # jumps come after the run
        for own, pieces in ((0, d.fpr_pieces), (1, d.tpr_pieces)):
            found = horner(pieces[:, 1::2], share * width)
            expected = survival(
                open_at, levels, np.quantile(scores[labels == own], levels), interpolation
            )
            np.testing.assert_allclose(found, expected, atol=1e-10)
        found = horner(d.flagged_pieces[:, 1::2], share * width) / len(labels)
        expected = survival(open_at, levels, np.quantile(scores, levels), interpolation)
        np.testing.assert_allclose(found, expected, atol=1e-10)


@pytest.mark.parametrize("pr", ["separate", "combine"])
@pytest.mark.parametrize("interpolation", ["pchip", "linear"])
def test_calling_a_quantile_curve_looks_up_scipys_survivals(interpolation, pr):
    labels, scores = examples(1)
    d = from_exact_quantiles(labels, scores, Quantile(12, interpolation, pr))
    levels = np.linspace(0, 1, 12)
    positives, negatives = labels.sum(), (1 - labels).sum()

    def along(s, group):
        return float(survival(np.array([s]), levels, np.quantile(group, levels), interpolation)[0])

    def fpr_at(s):
        return along(s, scores[labels == 0])

    def tpr_at(s):
        return along(s, scores[labels == 1])

    low, high = scores.min(), scores.max()
    for x in np.random.default_rng(9).uniform(0.05, 0.95, 20):
        s = brentq(lambda v, x=x: fpr_at(v) - x, low, high, xtol=1e-15)
        assert roc_curve(d)(x) == pytest.approx(tpr_at(s), abs=1e-8)
        s = brentq(lambda v, x=x: tpr_at(v) - x, low, high, xtol=1e-15)
        if pr == "separate":
            flagged = positives * x + negatives * fpr_at(s)
        else:
            flagged = len(labels) * along(s, scores)
        assert pr_curve(d)(x) == pytest.approx(min(positives * x / flagged, 1), abs=1e-8)
