"""How a smooth map would have to bend the scores: calibration slope, intercept and index."""

import math
from typing import Final, Literal

import numpy as np

from fedgauge.errors import UndefinedMetric
from fedgauge.estimation.distribution import require_both_classes
from fedgauge.measures.estimating import (
    Fit,
    covariance,
    probabilities,
    sampling_covariance,
    solve,
)
from fedgauge.measures.forecasts import Forecasts
from fedgauge.measures.groups import GROUPS, Groups
from fedgauge.measures.intervals import Estimate, critical
from fedgauge.typing import Floats

_ANY: Final = (-math.inf, math.inf)
_DRAWS: Final = 200
_MULTIPLES: Final = np.concatenate([np.arange(0.0, 2.0, 0.1), [2.0, 2.5, 3.0, 4.0, 6.0, 10.0]])
_FEW: Final = 30  # positives or negatives, noise accounted for, that a slope takes
_KNOTS: Final = (0.05, 0.275, 0.5, 0.725, 0.95)  # quantiles, Harrell 2015
_RIDGE: Final = 1e-3  # so that separated classes have a solution
_BENT: Final = 2.0  # deviations by which residuals exceed what chance leaves


def line(forecasts: Forecasts, part: Literal["slope", "intercept"], level: float) -> Estimate:
    """Slope or intercept of the log-odds of a positive in those of the score (Cox 1958).

    1 and 0 where scores are right. A slope below 1 says that scores are too far from the base
    rate: too confident. What the pooled examples would give has no bounds: within a bin the
    log-odds of scores can be anything that its edges allow.
    """
    fit = _line_fit(forecasts)
    deviations = np.sqrt(np.diag(covariance(forecasts, fit)))
    at = 1 if part == "slope" else 0
    value, deviation = float(fit.coefficients[at]), float(deviations[at])
    reach = critical(level) * deviation
    by_sampling = math.sqrt(float(sampling_covariance(forecasts, fit)[at, at]))
    parts = {"sampling": by_sampling}
    if forecasts.pooled.noisy:
        parts["noise"] = math.sqrt(max(deviation**2 - by_sampling**2, 0.0))
    caution = _few(forecasts) or forecasts.pooled.faint
    return Estimate(value, _ANY, value - reach, value + reach, level, parts, caution)


def _line_fit(forecasts: Forecasts) -> Fit:
    require_both_classes(forecasts.pooled.negatives, forecasts.pooled.positives)
    used = forecasts.totals > 0
    if np.ptp(forecasts.log_odds[used]) == 0:
        raise UndefinedMetric("a calibration slope needs different scores: these are all alike.")
    fit = solve(forecasts, np.stack([np.ones(len(used)), forecasts.log_odds], axis=1))
    if not fit.converged:
        raise UndefinedMetric(
            "no calibration slope: the scores separate the classes, or noise leaves too little of "
            "them, so it has no end. Look at the calibration curve."
        )
    return fit


def integrated_index(forecasts: Forecasts, level: float) -> Estimate:
    """Mean distance of scores from a smooth curve of what came true (Austin & Steyerberg 2019).

    The curve is a restricted cubic spline of the log-odds with at most five knots. Value and
    interval are those multiples of its bend that, redrawn with the curve's own wobble, give an
    index like the one seen.
    """
    require_both_classes(forecasts.pooled.negatives, forecasts.pooled.positives)
    fit = _spline_fit(forecasts)
    used = forecasts.totals > 0
    shares = forecasts.totals[used] / forecasts.totals.sum()
    design, odds, scores = fit.design[used], forecasts.log_odds[used], forecasts.scores[used]

    def index(coefficients: Floats) -> Floats:
        smooth = probabilities(odds + coefficients @ design.T)
        distances: Floats = np.abs(smooth - scores) @ shares
        return distances

    rng = np.random.default_rng(0)  # a way to see what chance does: it protects nothing
    zero = np.zeros(len(fit.coefficients))
    wobble = rng.multivariate_normal(zero, covariance(forecasts, fit), _DRAWS, method="eigh")
    redrawn = [index(times * fit.coefficients + wobble) for times in _MULTIPLES]
    tails = (0.5, (1.0 + level) / 2.0, (1.0 - level) / 2.0)
    seen = float(index(fit.coefficients))
    # The median, and each end of what is redrawn, rises with the multiple: read where it is `seen`.
    at = [
        np.interp(seen, np.maximum.accumulate(np.quantile(redrawn, tail, axis=1)), _MULTIPLES)
        for tail in tails
    ]
    value, low, high = (float(index(each * fit.coefficients)) if each else 0.0 for each in at)
    high = max(high, float(np.quantile(redrawn[0], tails[1])))
    parts = {"sampling": float(np.std(index(fit.coefficients + wobble)))}
    caution = _few(forecasts) or forecasts.pooled.faint or _bent(forecasts, fit)
    return Estimate(value, (0.0, 1.0), min(low, value), min(high, 1.0), level, parts, caution)


def _spline_fit(forecasts: Forecasts) -> Fit:
    """A spline of how far the log-odds of a positive are from those of the score."""
    used = np.flatnonzero(forecasts.totals > 0)
    odds = forecasts.log_odds[used]
    shares = np.cumsum(forecasts.totals[used]) / forecasts.totals.sum()
    knots = np.unique(np.interp(_KNOTS, shares, odds))
    columns = [np.ones(len(forecasts.scores)), forecasts.log_odds]
    if len(used) > len(knots) > 2:
        columns += _restricted(forecasts.log_odds, knots)
    while True:  # what noise leaves may not determine all columns
        design = np.stack(columns, axis=1)
        fit = solve(forecasts, design, offset=forecasts.log_odds, ridge=_RIDGE)
        if fit.converged or len(columns) == 1:
            return fit
        columns.pop()


def _restricted(x: Floats, knots: Floats) -> list[Floats]:
    """Columns of a cubic spline that is straight beyond its outer knots (Harrell 2015)."""
    *inner, before, last = knots
    scale = (last - knots[0]) ** 2

    def bent(knot: float) -> Floats:
        return np.maximum(x - knot, 0.0) ** 3

    return [
        (
            bent(knot)
            - bent(before) * (last - knot) / (last - before)
            + bent(last) * (before - knot) / (last - before)
        )
        / scale
        for knot in inner
    ]


def _bent(forecasts: Forecasts, fit: Fit) -> str | None:
    """Whether what came true bends more than the spline does."""
    groups = Groups.of(forecasts, GROUPS, "quantile")
    p, weights = fit.probabilities, groups.members
    rest = weights @ ((forecasts.pooled.unbiased * [-p, 1.0 - p]).sum(axis=0))
    variance = weights @ (forecasts.totals * p * (1.0 - p)) + np.diag(
        groups.noise_of(np.array([-p, 1.0 - p]))
    )
    degrees = max(len(groups) - fit.design.shape[1], 1)
    statistic = float(np.sum(rest**2 / np.maximum(variance, 1e-300)))
    if statistic > degrees + _BENT * math.sqrt(2.0 * degrees):
        return "what came true bends more than the smooth curve"
    return None


def _few(forecasts: Forecasts) -> str | None:
    smaller = min(forecasts.pooled.negatives, forecasts.pooled.positives)
    return f"a class has fewer than {_FEW} examples" if smaller < _FEW else None
