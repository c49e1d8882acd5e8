"""The Brier score in parts, calibration slope, intercept and index, and tests of calibration."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from fedgauge.arrays import Floats
from fedgauge.errors import UndefinedMetric
from fedgauge.estimation.distribution import require_both_classes
from fedgauge.metrics.calibration import (
    FARTHEST,
    GROUPS,
    Forecasts,
    Groups,
    calibration_error,
)
from fedgauge.metrics.estimate import Estimate, Interval, critical, holding, within
from fedgauge.metrics.ranking import Reading, reading_metric

_MOST = 0.25  # of a share times what is left


class BrierDecomposition(NamedTuple):
    """Brier score = reliability - resolution + uncertainty (Murphy 1973), by groups of bins.

    What chance adds is taken off the first two, so they add up on average only. The spread of
    scores within groups is left out.

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
    >>> result = fg.evaluate({"a": ([0, 1, 1, 0], [0.2, 0.7, 0.9, 0.6])})
    >>> round(result.brier_decomposition(bins=2).uncertainty.value, 3)
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


_STEPS: Final = 100
_HALVINGS: Final = 30
_NEARER: Final = 0.9  # of the slope along a step, at most, is left at its end
_NEAR: Final = 1e-18  # squared standard errors from the solution
_SOME: Final = 0.1  # of the examples, in noisy end bins: grids on 8 bins covered 3%
_STILL: Final = 1e-6  # log-odds
_FARTHEST: Final = 40.0  # log-odds, beyond which a probability is 0 or 1 in floats


@dataclass(frozen=True, eq=False)
class Fit:
    """A model of the odds, fitted to forecasts."""

    design: Floats  # a row for each bin, a column for each coefficient
    coefficients: Floats
    probabilities: Floats  # of a positive, by bin, according to the model
    weights: Floats  # how much each bin counts: 1 without noise
    bread: Floats  # slope of the equation: information on the coefficients, ridge included
    converged: bool  # not where classes are separated and no ridge holds coefficients back


def solve(
    forecasts: Forecasts,
    design: Floats,
    *,
    offset: Floats | None = None,
    ridge: Floats | float = 0.0,
    plain: bool = False,
) -> Fit:
    """Coefficients that solve the estimating equation, by Newton's method with halved steps.

    `offset` holds log-odds that are given, by bin; `ridge` pulls all coefficients, or each, to 0.
    `plain` takes smoothed counts, each bin with weight 1: maximum likelihood, with one root.
    """
    offset = np.zeros(len(design)) if offset is None else offset
    pull = np.broadcast_to(np.asarray(ridge, dtype=np.float64), design.shape[1:])
    equation = _Equation(forecasts, design, offset, pull, plain)
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

    It holds where the model is wrong: squared errors come from the counts. A ridge is part of the
    bread, so the variance is around where it pulls to.
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
    forecasts: Forecasts
    design: Floats
    offset: Floats
    ridge: Floats
    plain: bool

    def at(self, coefficients: Floats, weights: Floats | None = None) -> "_Point":
        """The equation at some coefficients, with the weights that belong to them, or others."""
        p = probabilities(self.offset + self.design @ coefficients)
        q = 1.0 - p
        pooled = self.forecasts.pooled
        if weights is None:
            weights = np.ones(len(p)) if self.plain else noise_weights(self.forecasts, p)
        negatives, positives = pooled.likely if self.plain else pooled.unbiased
        totals = negatives + positives if self.plain else self.forecasts.totals
        score = self.design.T @ (weights * (positives * q - negatives * p))
        information = (self.design.T * (weights * totals * p * q)) @ self.design
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


_ANY: Final = (-math.inf, math.inf)
_DRAWS: Final = 200
_MULTIPLES: Final = np.concatenate([np.arange(0.0, 2.0, 0.1), [2.0, 2.5, 3.0, 4.0, 6.0, 10.0]])
_FEW: Final = 30  # positives or negatives, noise accounted for, that a slope takes
_UNSURE: Final = 0.3  # of a slope (1 if less) that its deviation is: such intervals are too wide
_KNOTS: Final = (5, 8, 14)  # as many as needed; at even quantiles from _TAIL on, Harrell 2015
_TAIL: Final = 0.04
_FINE: Final = 256
_RIDGE: Final = 1e-3  # so that separated classes have a solution
_BENT: Final = 2.0  # deviations by which residuals exceed what chance leaves


class Line(NamedTuple):
    """The straight line that the log-odds of a positive follow in those of the score (Cox 1958).

    1 and 0 where scores are right; a slope below 1 means too confident. There are no bounds: within
    a bin the log-odds of scores can be anything that its edges allow.
    """

    slope: Estimate
    intercept: Estimate


@reading_metric("calibration slope")
def calibration_slope(reading: Reading) -> Estimate:
    """Slope of the log-odds of a positive in those of the score: 1 where scores are right.

    Formula: b, where the log-odds of a positive are ``a + b logit x``. Below 1 scores are too far
    from the base rate: too confident. It solves ``sum (1, logit x) (p q' - n p') = 0`` over bins,
    with ``p' = 1 - q'`` the fitted probability: logistic regression. Under noise p and n are
    smoothed counts.

    Source: Cox 1958; Van Calster et al. 2019.

    Bounds: none. Near 0 and 1 a bin allows any log-odds.

    Interval: sandwich variance, normal. It includes that bins hide where scores lie in them.

    Undefined: where the scores separate the classes, also if they share one bin (Albert & Anderson
    1984).

    Beware: fewer than 30 of a class; most examples in an end bin; few bins, whose bias does not
    average out. It is no proof of calibration where the curve bends.
    """
    return reading.once(line).slope


@reading_metric("calibration intercept")
def calibration_intercept(reading: Reading) -> Estimate:
    """Intercept beside that slope: 0 where scores are right.

    Formula: a of the same line. Everything else is as for the slope.

    Source: Cox 1958; Van Calster et al. 2019.
    """
    return reading.once(line).intercept


def line(reading: Reading) -> Line:
    """Calibration slope and intercept."""
    forecasts, level = reading.once(Forecasts.of), reading.level
    fit = _line_fit(forecasts)
    both, sampled = (
        np.sqrt(np.maximum(np.diag(each(forecasts, fit)), 0.0))
        for each in (covariance, sampling_covariance)
    )
    within = _misplaced(forecasts, fit)
    pooled = forecasts.pooled
    caution = _few(forecasts) or pooled.faint or _crowded(forecasts) or pooled.lumped
    steepness = max(abs(float(fit.coefficients[1])), 1.0)
    if pooled.noisy and not caution and both[1] > _UNSURE * steepness:
        caution = "the noise is large next to the slope: a wide interval"

    def of(at: int) -> Estimate:
        value, deviation, sampling = (float(each[at]) for each in (fit.coefficients, both, sampled))
        reach = critical(level) * math.hypot(deviation, within[at])
        parts = {"sampling": sampling}
        if forecasts.pooled.noisy:
            parts["noise"] = math.sqrt(max(deviation**2 - sampling**2, 0.0))
        return Estimate(value, _ANY, value - reach, value + reach, level, parts, caution)

    return Line(slope=of(1), intercept=of(0))


def _misplaced(forecasts: Forecasts, fit: Fit) -> Floats:
    """How far the coefficients typically are off, since bins hide where in them scores lie."""
    p, (negatives, positives) = fit.probabilities, forecasts.counts
    chance = np.clip(forecasts.scores, FARTHEST, 1.0 - FARTHEST)
    # A score moves its place on the line, and what the line says there.
    moved = -fit.design.T * fit.coefficients[1] * forecasts.totals * p * (1.0 - p)
    moved[1] += positives * (1.0 - p) - negatives * p
    moved *= np.minimum(forecasts.misplaced / (chance * (1.0 - chance)), 1.0)
    return np.sqrt(np.maximum(np.diag(_sandwich(fit, moved @ moved.T)), 0.0))


def _line_fit(forecasts: Forecasts) -> Fit:
    require_both_classes(forecasts.pooled.negatives, forecasts.pooled.positives)
    used = forecasts.totals > 0
    if np.ptp(forecasts.log_odds[used]) == 0:
        raise UndefinedMetric("a calibration slope needs different scores: these are all alike.")
    fit = solve(forecasts, np.stack([np.ones(len(used)), forecasts.log_odds], axis=1), plain=True)
    if not fit.converged or _separated(forecasts):
        raise UndefinedMetric(
            "no calibration slope: the scores separate the classes, or noise leaves too little of "
            "them, so it has no end. Look at the calibration curve."
        )
    return fit


def _crowded(forecasts: Forecasts) -> str | None:
    """A caution where scores of 0 or 1, or most examples in the bins next to them, decide."""
    used = forecasts.scores[forecasts.totals > 0]
    if min(used.min(), 1.0 - used.max()) <= FARTHEST:
        return f"scores of 0 or 1, whose log-odds have no end, count as {FARTHEST:g} away from them"
    vague = np.flatnonzero(forecasts.misplaced[[0, -1]] > 0)
    # Noise hides ties at 0 and 1, which turn the line as half of all examples else do.
    most = _SOME if forecasts.pooled.noisy else 0.5
    if forecasts.totals[[0, -1]][vague].sum() <= most * forecasts.totals.sum():
        return None
    return "many examples are in an end bin, of any log-odds: use bins of equal width in log-odds"


def _separated(forecasts: Forecasts) -> bool:
    """Whether the scores of one class share at most one place with the other's.

    Then a steeper slope is always likelier (Albert & Anderson 1984), but in a shared bin its
    information fades so fast that a search comes to rest. Noisy counts cannot tell.
    """
    if forecasts.pooled.noisy:
        return False
    negatives, positives = (forecasts.log_odds[counts > 0] for counts in forecasts.counts)
    return bool(positives.min() >= negatives.max() or positives.max() <= negatives.min())


@reading_metric("integrated calibration index")
def integrated_calibration_index(reading: Reading) -> Estimate:
    """Mean distance of scores from a smooth curve of what comes true (ICI).

    Formula: mean of ``|c(x) - x|``, with c a restricted cubic spline in logit x of 5, 8 or 14
    knots, as many as are needed.

    Source: Austin & Steyerberg 2019; Harrell 2015.

    Bounds: none, because another smoother gives another number.

    Interval: those multiples of the curve's bend that, redrawn 200 times with the curve's own
    wobble, give an index like the one seen. So is the value.

    Beware: jumps, and other places where what came true bends more than the curve; below 30 of a
    class.
    """
    forecasts, level = reading.once(Forecasts.of), reading.level
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
    caution = _few(forecasts) or forecasts.pooled.faint or caution or forecasts.pooled.lumped
    return Estimate(value, _ANY, min(low, value), min(high, 1.0), level, parts, caution)


def _index_of(forecasts: Forecasts, fit: Fit) -> Callable[[Floats], Floats]:
    """The mean distance as a function of coefficients, over a few hundred groups of bins."""
    groups = Groups.of(forecasts, _FINE, "quantile")
    shares = groups.members * forecasts.totals
    shares /= shares.sum(axis=1, keepdims=True)
    design, odds, scores = (
        shares @ each for each in (fit.design, forecasts.log_odds, forecasts.scores)
    )
    with np.errstate(divide="ignore"):  # scores of exactly 0 or 1 are a group by themselves
        joined = np.log(scores) - np.log1p(-scores)
    odds = np.where(np.count_nonzero(shares, axis=1) == 1, odds, joined)
    weights = groups.counts / groups.counts.sum()

    def index(coefficients: Floats) -> Floats:
        smooth = probabilities(odds + coefficients @ design.T)
        distances: Floats = np.abs(smooth - scores) @ weights
        return distances

    return index


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


class CalibrationTest(NamedTuple):
    """A test of the hypothesis that scores are calibrated.

    Attributes
    ----------
    statistic
        Chi-squared with `degrees` of freedom, or standard normal.
    p_value
        How often scores that are right give one as large.
    degrees
        Degrees of freedom; None for a normal statistic.
    rule
        How bins were grouped, in words; None where they were not.

    Examples
    --------
    >>> result = fg.evaluate({"a": ([0, 1, 1, 0], [0.2, 0.7, 0.9, 0.6])})
    >>> 0 <= result.spiegelhalter().p_value <= 1
    True
    """

    statistic: float
    p_value: float
    degrees: int | None = None
    rule: str | None = None


def hosmer_lemeshow(groups: Groups) -> CalibrationTest:
    """Hosmer & Lemeshow 1980, for scores made on other examples: a degree for each group.

    Variance: n x (1 - x) of right scores, the noise, and unknown places of scores in crowded bins.
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

    z = sum (y - x)(1 - 2x) / sqrt(sum (1 - 2x)^2 x (1 - x)), plus variance of noise and crowded
    bins.
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
