"""How a smooth map would have to bend the scores: calibration slope, intercept and index."""

import math
from collections.abc import Callable
from typing import Final, NamedTuple

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
_KNOTS: Final = (5, 8, 14)  # as many as needed; at even quantiles from _TAIL on, Harrell 2015
_TAIL: Final = 0.04
_FINE: Final = 256
_RIDGE: Final = 1e-3  # so that separated classes have a solution
_BENT: Final = 2.0  # deviations by which residuals exceed what chance leaves


class Line(NamedTuple):
    """The straight line that the log-odds of a positive follow in those of the score (Cox 1958).

    1 and 0 where scores are right. A slope below 1 says that scores are too far from the base
    rate: too confident. What the pooled examples would give has no bounds: within a bin the
    log-odds of scores can be anything that its edges allow.
    """

    slope: Estimate
    intercept: Estimate


def line(forecasts: Forecasts, level: float) -> Line:
    """Calibration slope and intercept."""
    fit = _line_fit(forecasts)
    both, sampled = (
        np.sqrt(np.maximum(np.diag(each(forecasts, fit)), 0.0))
        for each in (covariance, sampling_covariance)
    )
    caution = _few(forecasts) or forecasts.pooled.faint or _crowded(forecasts)

    def of(at: int) -> Estimate:
        value, deviation, sampling = (float(each[at]) for each in (fit.coefficients, both, sampled))
        reach = critical(level) * deviation
        parts = {"sampling": sampling}
        if forecasts.pooled.noisy:
            parts["noise"] = math.sqrt(max(deviation**2 - sampling**2, 0.0))
        return Estimate(value, _ANY, value - reach, value + reach, level, parts, caution)

    return Line(slope=of(1), intercept=of(0))


def _line_fit(forecasts: Forecasts) -> Fit:
    require_both_classes(forecasts.pooled.negatives, forecasts.pooled.positives)
    used = forecasts.totals > 0
    if np.ptp(forecasts.log_odds[used]) == 0:
        raise UndefinedMetric("a calibration slope needs different scores: these are all alike.")
    fit = solve(forecasts, np.stack([np.ones(len(used)), forecasts.log_odds], axis=1))
    if not fit.converged or _separated(forecasts):
        raise UndefinedMetric(
            "no calibration slope: the scores separate the classes, or noise leaves too little of "
            "them, so it has no end. Look at the calibration curve."
        )
    return fit


def _crowded(forecasts: Forecasts) -> str | None:
    """A caution where the bins next to 0 and 1, whose log-odds have no end, hold most examples."""
    vague = np.flatnonzero(forecasts.misplaced[[0, -1]] > 0)
    if forecasts.totals[[0, -1]][vague].sum() <= forecasts.totals.sum() / 2:
        return None
    return "most examples are in an end bin, of any log-odds: use bins of equal width in log-odds"


def _separated(forecasts: Forecasts) -> bool:
    """Whether the scores of one class share at most one place with the other's.

    Then a steeper slope is always likelier (Albert & Anderson 1984), but where the classes share a
    bin the information on it fades so fast that a search comes to rest. Noisy counts cannot tell.
    """
    if forecasts.pooled.noisy:
        return False
    negatives, positives = (forecasts.log_odds[counts > 0] for counts in forecasts.counts)
    return bool(positives.min() >= negatives.max() or positives.max() <= negatives.min())


def integrated_index(forecasts: Forecasts, level: float) -> Estimate:
    """Mean distance of scores from a smooth curve of what came true (Austin & Steyerberg 2019).

    The curve is a restricted cubic spline of the log-odds. Value and interval are those multiples
    of its bend that, redrawn with the curve's own wobble, give an index like the one seen. What
    another smoother would say of the pooled examples has no bounds.
    """
    require_both_classes(forecasts.pooled.negatives, forecasts.pooled.positives)
    fit, caution = _smooth(forecasts)
    index = _index_of(forecasts, fit)
    rng = np.random.default_rng(0)  # a way to see what chance does: it protects nothing
    variances, directions = np.linalg.eigh(covariance(forecasts, fit))
    deviations = directions * np.sqrt(np.maximum(variances, 0.0))  # rounding makes some negative
    wobble = rng.normal(size=(_DRAWS, len(variances))) @ deviations.T
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
    caution = _few(forecasts) or forecasts.pooled.faint or caution
    return Estimate(value, _ANY, min(low, value), min(high, 1.0), level, parts, caution)


def _index_of(forecasts: Forecasts, fit: Fit) -> Callable[[Floats], Floats]:
    """The mean distance as a function of coefficients, over a few hundred groups of bins."""
    groups = Groups.of(forecasts, _FINE, "quantile")
    shares = groups.members * forecasts.totals
    shares /= shares.sum(axis=1, keepdims=True)
    design, odds, scores = (
        shares @ each for each in (fit.design, forecasts.log_odds, forecasts.scores)
    )
    odds = np.where(np.count_nonzero(shares, axis=1) == 1, odds, _log_odds(scores))
    weights = groups.counts / groups.counts.sum()

    def index(coefficients: Floats) -> Floats:
        smooth = probabilities(odds + coefficients @ design.T)
        distances: Floats = np.abs(smooth - scores) @ weights
        return distances

    return index


def _log_odds(scores: Floats) -> Floats:
    odds: Floats = np.log(scores) - np.log1p(-scores)
    return odds


def _smooth(forecasts: Forecasts) -> tuple[Fit, str | None]:
    """A spline with as many knots as what came true needs, and whether it needs more."""
    for knots in _KNOTS:
        fit = _spline_fit(forecasts, knots)
        caution = _bent(forecasts, fit)
        if caution is None:
            break
    return fit, caution


def _spline_fit(forecasts: Forecasts, number: int) -> Fit:
    """A spline of how far the log-odds of a positive are from those of the score."""
    used = np.flatnonzero(forecasts.totals > 0)
    odds = forecasts.log_odds[used]
    shares = np.cumsum(forecasts.totals[used]) / forecasts.totals.sum()
    knots = np.unique(np.interp(np.linspace(_TAIL, 1.0 - _TAIL, number), shares, odds))
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
    groups = Groups.of(forecasts, 2 * GROUPS, "quantile")
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
