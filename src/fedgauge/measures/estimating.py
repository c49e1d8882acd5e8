"""How the odds of a positive depend on the score: one estimating equation for all such models.

A model gives a bin the probability p of a positive, q of a negative, with the log-odds
``offset + design @ coefficients``. Its coefficients solve ::

    sum over bins of w * design * (n+ q - n- p)  =  ridge * coefficients
    w = n p q / (n p q + v (p^2 + q^2))

where v is the noise variance of a count. The sum is linear in the counts, which are taken as
released, right on average even where negative; weights come from repaired counts. Without
noise every w is 1, and this is logistic regression on grouped rows.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from fedgauge.measures.forecasts import Forecasts
from fedgauge.typing import Floats

_STEPS: Final = 100
_HALVINGS: Final = 30
_NEARER: Final = 0.9  # of the slope along a step, at most, is left at its end
_NEAR: Final = 1e-18  # squared standard errors from the solution
_STILL: Final = 1e-6  # log-odds
_FARTHEST: Final = 40.0  # log-odds, beyond which a probability is 0 or 1 in floats


@dataclass(frozen=True, eq=False)
class Fit:
    """A model of the odds, fitted to forecasts.

    Attributes
    ----------
    design
        One row for each bin, one column for each coefficient.
    coefficients
        What solves the equation.
    probabilities
        Of a positive, by bin, according to the model.
    weights
        How much each bin counts: 1 without noise.
    bread
        The slope of the equation: the information on the coefficients, ridge included.
    converged
        Whether a solution was reached. None is where the classes are separated and no ridge
        holds the coefficients back.
    """

    design: Floats
    coefficients: Floats
    probabilities: Floats
    weights: Floats
    bread: Floats
    converged: bool


def solve(
    forecasts: Forecasts,
    design: Floats,
    *,
    offset: Floats | None = None,
    ridge: Floats | float = 0.0,
) -> Fit:
    """Coefficients that solve the estimating equation, by Newton's method with halved steps.

    Parameters
    ----------
    forecasts
        The counts by bin, and their noise.
    design
        One row for each bin, one column for each coefficient.
    offset
        Log-odds that are given, by bin; by default none.
    ridge
        What pulls coefficients to 0, the same for all or one for each.

    Examples
    --------
    >>> import fedgauge as fg
    >>> from fedgauge.measures.reading import Reading
    >>> result = fg.evaluate({"a": ([0, 1, 0, 1, 1], [0.2, 0.2, 0.6, 0.6, 0.6])})
    >>> forecasts = Forecasts.of(Reading(result.pooled, result.estimator, result.level))
    >>> fit = solve(forecasts, np.ones((len(forecasts.scores), 1)))
    >>> round(float(np.exp(fit.coefficients[0])), 6)  # three positives for two negatives
    1.5
    """
    offset = np.zeros(len(design)) if offset is None else offset
    pull = np.broadcast_to(np.asarray(ridge, dtype=np.float64), design.shape[1:])
    equation = _Equation(forecasts, design, offset, pull)
    at = equation.at(np.zeros(design.shape[1]))
    for number in range(_STEPS):
        step = np.linalg.pinv(at.bread, hermitian=True) @ at.score
        away = float(at.score @ step)
        # Where classes are separated the score fades while log-odds go on growing by about 1.
        still = bool(np.abs(design @ step).max() <= _STILL)
        if still and away <= _NEAR:
            return at.fitted(design, converged=True)
        # Weights change along a step, and with them what is solved: that it leads uphill shows
        # only where they are held.
        for halving in range(_HALVINGS):
            near = equation.at(at.coefficients + step / 2**halving, at.weights)
            if abs(float(near.score @ step)) <= _NEARER * away:
                break
        else:  # no step comes nearer: as near as rounding allows, or nowhere
            return at.fitted(design, converged=still)
        held = near.weights if number >= _STEPS // 2 else None
        at = equation.at(near.coefficients, held)
    return at.fitted(design, converged=False)


def covariance(forecasts: Forecasts, fit: Fit) -> Floats:
    """Covariance of the coefficients, by sampling and by noise: the sandwich.

    It holds where the model is wrong, since each bin's squared error is taken from its
    counts. A ridge is part of the bread: the variance is around where it pulls to.
    """
    by_sampling = sampling_covariance(forecasts, fit)
    if not forecasts.pooled.noisy:
        return by_sampling
    p, pulls = fit.probabilities, fit.design.T * fit.weights
    by_count = np.stack([-pulls * p, pulls * (1.0 - p)], axis=1)
    meat = forecasts.pooled.covariance(by_count[:, np.newaxis], by_count[np.newaxis])
    return by_sampling + _sandwich(fit, meat)


def sampling_covariance(forecasts: Forecasts, fit: Fit) -> Floats:
    """The part of the covariance that examples drawn anew make."""
    p = fit.probabilities
    negatives, positives = forecasts.counts
    by_bin = fit.weights**2 * (positives * (1.0 - p) ** 2 + negatives * p**2)
    return _sandwich(fit, (fit.design.T * by_bin) @ fit.design)


def _sandwich(fit: Fit, meat: Floats) -> Floats:
    inverse = np.linalg.pinv(fit.bread, hermitian=True)
    sandwich: Floats = inverse @ meat @ inverse
    return sandwich


def probabilities(log_odds: Floats) -> Floats:
    """Probabilities of log-odds, never quite 0 or 1."""
    each: Floats = 1.0 / (1.0 + np.exp(-np.clip(log_odds, -_FARTHEST, _FARTHEST)))
    return each


@dataclass(frozen=True, eq=False)
class _Equation:
    """What is solved."""

    forecasts: Forecasts
    design: Floats
    offset: Floats
    ridge: Floats

    def at(self, coefficients: Floats, weights: Floats | None = None) -> "_Point":
        """The equation at some coefficients, with the weights that belong to them, or others."""
        p = probabilities(self.offset + self.design @ coefficients)
        q = 1.0 - p
        if weights is None:
            weights = noise_weights(self.forecasts, p)
        negatives, positives = self.forecasts.pooled.unbiased
        score = self.design.T @ (weights * (positives * q - negatives * p))
        information = (self.design.T * (weights * self.forecasts.totals * p * q)) @ self.design
        return _Point(
            coefficients,
            p,
            weights,
            score - self.ridge * coefficients,
            information + np.diag(self.ridge),
        )


class _Point(NamedTuple):
    """The equation at some coefficients: how far from solved, and how steep."""

    coefficients: Floats
    probabilities: Floats
    weights: Floats
    score: Floats
    bread: Floats

    def fitted(self, design: Floats, *, converged: bool) -> Fit:
        return Fit(
            design, self.coefficients, self.probabilities, self.weights, self.bread, converged
        )


def noise_weights(forecasts: Forecasts, p: Floats) -> Floats:
    """The share of sampling in the variance of ``n+ q - n- p``, by bin: 1 without noise."""
    if not forecasts.pooled.noisy:
        return np.ones(len(p))
    q = 1.0 - p
    sampling = forecasts.totals * p * q
    weights: Floats = sampling / (sampling + forecasts.noise * (p**2 + q**2))
    return weights
