"""The Brier score in parts: what miscalibration adds, what telling examples apart takes off."""

import math
from typing import NamedTuple

import numpy as np

from fedgauge.measures.calibration import calibration_error
from fedgauge.measures.forecasts import Forecasts
from fedgauge.measures.groups import Groups
from fedgauge.measures.intervals import Estimate, Interval, critical, holding, within
from fedgauge.typing import Floats

_MOST = 0.25  # of a share times what is left


class BrierDecomposition(NamedTuple):
    """Brier score = reliability - resolution + uncertainty (Murphy 1973), by groups of bins.

    What chance adds is taken off the first two, so they add up to the score on average only; the
    spread of scores within groups is left out.

    Attributes
    ----------
    reliability
        Mean squared distance of groups from the diagonal: 0 where scores are right.
    resolution
        Mean squared distance of the groups' shares of positives from the share of all.
    uncertainty
        The score of always predicting the share of positives.
    rule
        How bins were grouped, in words.

    Examples
    --------
    >>> import fedgauge as fg
    >>> sites = {"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 0, 1], [0.1, 0.6, 0.4])}
    >>> result = fg.evaluate(sites)
    >>> parts = result.brier_decomposition(bins=2)
    >>> round(parts.uncertainty.value, 3)
    0.25
    """

    reliability: Estimate
    resolution: Estimate
    uncertainty: Estimate
    rule: str


def brier_decomposition(groups: Groups, level: float) -> BrierDecomposition:
    """The parts of the Brier score."""
    return BrierDecomposition(
        _squared(calibration_error(groups, "rms", level)),
        _resolution(groups, level),
        _uncertainty(groups.forecasts, level),
        groups.rule,
    )


def _squared(error: Estimate) -> Estimate:
    low, high = error.low or 0.0, error.high or 0.0
    parts = {name: 2.0 * error.value * part for name, part in error.parts.items()}
    least, most = error.bounds
    return Estimate(
        error.value**2, (least**2, most**2), low**2, high**2, error.level, parts, error.caution
    )


def _resolution(groups: Groups, level: float) -> Estimate:
    """What chance adds is taken off: the variance of each group's share."""
    counts, shares = groups.counts, groups.observed
    total = float(counts.sum())
    rate = float(counts @ shares) / total
    own = counts * shares * (1.0 - shares) + np.diag(groups.noise)
    plain = float(counts @ shares**2) / total - rate**2
    value = plain - float(np.sum(own / counts * (1.0 - counts / total))) / total
    mean_square = plain + rate**2
    of_positive = 2.0 * shares - shares**2 - mean_square - 2.0 * rate * (1.0 - rate)
    of_negative = -(shares**2) - mean_square + 2.0 * rate**2
    gradient = np.array([of_negative, of_positive]) @ groups.members / total
    return _around(groups.forecasts, value, plain, gradient, level)


def _uncertainty(forecasts: Forecasts, level: float) -> Estimate:
    everything = Groups.of(forecasts, 1)
    (rate,), z = everything.observed, critical(level)
    span = everything.intervals(z)
    ends = [p * (1.0 - p) for p in (float(span.least[0]), float(span.most[0]))]
    value = float(rate * (1.0 - rate))
    highest = _MOST if span.least[0] <= 0.5 <= span.most[0] else max(ends)
    towards = np.array([[-rate], [1.0 - rate]]) * np.ones(len(forecasts.scores))
    gradient = (1.0 - 2.0 * rate) * towards / float(forecasts.totals.sum())
    around = _around(forecasts, value, value, gradient, level)
    low, high = holding(Interval(min(ends), highest), value)
    return Estimate(value, around.bounds, low, high, level, around.parts, around.caution)


def _around(
    forecasts: Forecasts, value: float, plain: float, gradient: Floats, level: float
) -> Estimate:
    """An estimate by its gradient in the counts; `plain` is what the same counts say."""
    pooled, z = forecasts.pooled, critical(level)
    sampling = math.sqrt(float(np.sum(forecasts.counts * gradient**2)))
    noise = math.sqrt(max(float(pooled.noise_variance(gradient)), 0.0))
    reach = z * math.hypot(sampling, noise)
    value = min(max(value, 0.0), _MOST)
    low, high = within(Interval(value - reach, value + reach), 0.0, _MOST)
    bounds = within(Interval(plain - z * noise, plain + z * noise), 0.0, _MOST)
    parts = {"sampling": sampling} | ({"noise": noise} if pooled.noisy else {})
    return Estimate(value, bounds, low, high, level, parts, pooled.faint)
