"""Smooth maps of a few numbers, fitted to counts: beta calibration, Platt, temperature."""

from typing import Final, NamedTuple

import numpy as np

from fedgauge.binning.forms import Beta
from fedgauge.measures.estimating import Fit, solve
from fedgauge.measures.forecasts import Forecasts
from fedgauge.typing import Floats

RIDGE: Final = 10.0  # pulls each slope to 1, that of the scores as they are


class Shaped(NamedTuple):
    """Log-odds ``intercept + slopes @ shapes``, no slope negative, and the fit behind them."""

    intercept: float
    slopes: Floats
    fit: Fit


def beta(forecasts: Forecasts) -> Beta:
    """Beta calibration (Kull et al. 2017): log-odds ``c + a log(x) - b log(1 - x)``."""
    return _form(_plain(forecasts, _logarithms(forecasts)))


def platt(forecasts: Forecasts) -> Beta:
    """Platt scaling of the log-odds: a line. Of probabilities it is worse than no map."""
    return _form(_plain(forecasts, forecasts.log_odds[np.newaxis]))


def temperature(forecasts: Forecasts) -> Beta:
    """One factor for all log-odds (Guo et al. 2017)."""
    return _form(_plain(forecasts, forecasts.log_odds[np.newaxis], intercept=False))


def shift(forecasts: Forecasts) -> Beta:
    """All log-odds moved by one number."""
    fit = solve(forecasts, np.ones((len(forecasts.scores), 1)), offset=forecasts.log_odds)
    return Beta(1.0, 1.0, float(fit.coefficients[0]))


def held_beta(forecasts: Forecasts) -> tuple[Beta, Floats]:
    """Beta calibration held to the scores by a ridge, and its probabilities by bin."""
    shaped = _fitted(forecasts, _logarithms(forecasts), intercept=True, ridge=RIDGE)
    return _form(shaped), shaped.fit.probabilities


def slope(forecasts: Forecasts) -> tuple[float, float]:
    """The slope of a line in log-odds, and one over its variance, a ridge aside."""
    design = np.stack([np.ones(len(forecasts.scores)), forecasts.log_odds], axis=1)
    fit = solve(forecasts, design, offset=forecasts.log_odds, ridge=np.array([0.0, RIDGE]))
    information = 1.0 / float(np.linalg.inv(fit.bread)[1, 1])
    return 1.0 + float(fit.coefficients[1]), max(0.0, information - RIDGE)


def _logarithms(forecasts: Forecasts) -> Floats:
    """The logarithm of the score, and minus that of its complement."""
    log_odds = forecasts.log_odds
    return np.array([-np.logaddexp(0.0, -log_odds), np.logaddexp(0.0, log_odds)])


def _form(shaped: Shaped) -> Beta:
    return Beta(float(shaped.slopes[0]), float(shaped.slopes[-1]), shaped.intercept)


def _plain(forecasts: Forecasts, shapes: Floats, *, intercept: bool = True) -> Shaped:
    """The likeliest coefficients; where there are none, or noise, a ridge holds them.

    There are none where classes are separated, or bins too few to tell coefficients apart.
    """
    if not forecasts.pooled.noisy and np.count_nonzero(forecasts.totals) > len(shapes):
        free = _fitted(forecasts, shapes, intercept=intercept, ridge=0.0)
        if free.fit.converged:
            return free
    return _fitted(forecasts, shapes, intercept=intercept, ridge=RIDGE)


def _fitted(forecasts: Forecasts, shapes: Floats, *, intercept: bool, ridge: float) -> Shaped:
    """Slopes of the shapes; the most negative is set to 0 and the others are fitted again."""
    slopes = np.zeros(len(shapes))
    free = np.arange(len(shapes))
    while True:
        columns = [np.ones(shapes.shape[1])] * intercept + list(shapes[free])
        pulls = np.array([0.0] * intercept + [ridge] * len(free))
        design = np.stack(columns, axis=1) if columns else np.zeros((shapes.shape[1], 0))
        fit = solve(forecasts, design, offset=shapes[free].sum(axis=0), ridge=pulls)
        slopes[free] = 1.0 + fit.coefficients[intercept:]
        if np.all(slopes >= 0):
            return Shaped(float(fit.coefficients[0]) if intercept else 0.0, slopes, fit)
        worst = int(np.argmin(slopes))
        slopes[worst] = 0.0
        free = free[free != worst]
