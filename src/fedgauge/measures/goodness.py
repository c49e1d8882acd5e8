"""Tests of calibration: how often scores that are right would look as wrong as these."""

import math
from typing import NamedTuple

import numpy as np

from fedgauge.errors import UndefinedMetric
from fedgauge.measures.forecasts import Forecasts
from fedgauge.measures.groups import Groups
from fedgauge.typing import Floats


class CalibrationTest(NamedTuple):
    """A test of the hypothesis that scores are calibrated.

    Attributes
    ----------
    statistic
        Of the test: chi-squared with `degrees` of freedom, or standard normal.
    p_value
        How often scores that are right give one as large.
    degrees
        Degrees of freedom; None for a normal statistic.
    rule
        How bins were grouped, in words; None where they were not.

    Examples
    --------
    >>> import fedgauge as fg
    >>> sites = {"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 0, 1], [0.1, 0.6, 0.4])}
    >>> result = fg.evaluate(sites)
    >>> 0 <= result.spiegelhalter().p_value <= 1
    True
    """

    statistic: float
    p_value: float
    degrees: int | None = None
    rule: str | None = None


def hosmer_lemeshow(groups: Groups) -> CalibrationTest:
    """Hosmer & Lemeshow 1980, for scores made on other examples: a degree for each group.

    The variance of each group's sum is that of right scores, n x (1 - x), of the noise, and of
    where scores lie in bins that they crowd in.
    """
    from scipy.stats import chi2

    x, counts = groups.predicted, groups.counts
    variance = counts * x * (1.0 - x) + np.diag(groups.noise) + groups.hidden
    used = variance > 0
    wrong = bool(np.any(~used & (np.abs(groups.excess) > 0)))  # certain scores that failed
    statistic = math.inf if wrong else float(np.sum(groups.excess[used] ** 2 / variance[used]))
    degrees = int(np.count_nonzero(used))
    if not degrees and not wrong:
        raise UndefinedMetric("the Hosmer-Lemeshow test needs scores other than 0 and 1.")
    p_value = float(chi2.sf(statistic, degrees)) if degrees else 0.0
    return CalibrationTest(statistic, p_value, degrees, groups.rule)


def spiegelhalter(forecasts: Forecasts) -> CalibrationTest:
    """Spiegelhalter 1986: whether the Brier score is the one that right scores would have.

    z = sum (y - x)(1 - 2x) / sqrt(sum (1 - 2x)^2 x (1 - x)), with the noise of the counts, and
    where scores lie in bins that they crowd in, in the variance.
    """
    x, pooled = forecasts.scores, forecasts.pooled
    slant = 1.0 - 2.0 * x
    weights: Floats = np.array([-slant * x, slant * (1.0 - x)])
    variance = float(np.sum(forecasts.totals * slant**2 * x * (1.0 - x)))
    variance += float(pooled.noise_variance(weights))
    variance += float(np.sum((slant * forecasts.totals * forecasts.hidden) ** 2))
    if variance <= 0:
        raise UndefinedMetric("Spiegelhalter's test needs scores other than 0, 1/2 and 1.")
    z = float(np.sum(weights * pooled.unbiased)) / math.sqrt(variance)
    return CalibrationTest(z, math.erfc(abs(z) / math.sqrt(2.0)))
