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
_DRAWS: Final = 400
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
            "no calibration slope: the scores separate the classes, so it has no end. Look at "
            "the calibration curve."
        )
    return fit


def integrated_index(forecasts: Forecasts, level: float) -> Estimate:
    """Mean distance of scores from a smooth curve of what came true (Austin & Steyerberg 2019).

    The curve is a restricted cubic spline of the log-odds with at most five knots. Its own
    wobble is taken off the value.
    """
    require_both_classes(forecasts.pooled.negatives, forecasts.pooled.positives)
    fit = _spline_fit(forecasts)
    total = float(forecasts.totals.sum())
    shares = forecasts.totals / total

    def index(coefficients: Floats) -> Floats:
        smooth = probabilities(forecasts.log_odds + coefficients @ fit.design.T)
        distances: Floats = np.abs(smooth - forecasts.scores) @ shares
        return distances

    seen = float(index(fit.coefficients))
    both = covariance(forecasts, fit)
    rng = np.random.default_rng(0)  # a way to see what chance does: it protects nothing
    drawn = index(rng.multivariate_normal(fit.coefficients, both, _DRAWS, method="eigh"))
    value = max(2.0 * seen - float(drawn.mean()), 0.0)
    far = float(np.quantile(drawn, (1.0 + level) / 2.0))
    low, high = max(2.0 * seen - far, 0.0), min(max(far, value), 1.0)
    parts = {"sampling": float(drawn.std())}
    caution = _few(forecasts) or forecasts.pooled.faint or _bent(forecasts, fit)
    return Estimate(value, (0.0, 1.0), min(low, value), high, level, parts, caution)


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
