"""Calibrators: one row for each way to fit a map to counts, and when not to trust it."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from fedgauge.arrays import Floats, Indices
from fedgauge.errors import InputError, UndefinedMetric
from fedgauge.histograms.calibrator import Beta, LogOddsLine, Steps
from fedgauge.metrics.calibration import Forecasts, Partition
from fedgauge.metrics.calibration_tests import Fit, probabilities, solve

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
    """The likeliest coefficients; a ridge holds them under noise, or where there are none.

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


_BALANCE: Final = 18.0  # of bias against noise, where the error was least in trials


def isotonic(forecasts: Forecasts) -> Steps:
    """Shares of positives that never fall, nearest to those of the bins (Zadrozny & Elkan 2002).

    Bins weigh as much as their shares are sure, by a beta curve: by its own share, a bin without
    positives would seem sure.
    """
    from scipy.optimize import isotonic_regression

    _, p = held_beta(forecasts)
    q, totals = 1.0 - p, forecasts.totals
    filled = np.flatnonzero(totals)
    negatives, positives = forecasts.pooled.unbiased
    with np.errstate(divide="ignore", invalid="ignore"):  # bins that hold nothing are left out
        shares = p + (positives * q - negatives * p) / totals
        weights = totals**2 / (totals + forecasts.noise * (p**2 + q**2) / (p * q))
    found = isotonic_regression(shares[filled], weights=weights[filled])
    firsts = found.blocks[:-1].astype(np.intp)
    sure = np.add.reduceat(weights[filled], firsts)
    curve = np.add.reduceat((weights * p)[filled], firsts) / sure
    values = np.maximum.accumulate(likely(forecasts, found.x[firsts], curve, sure))
    # Bins that hold nothing go half to the block below them, half to the one above.
    before = np.append(-1, filled)[firsts]
    return steps(forecasts, (before + filled[firsts] + 1) // 2, values)


def binning(forecasts: Forecasts) -> Steps:
    """The share of positives in groups of equal mass (Zadrozny & Elkan 2001)."""
    _, p = held_beta(forecasts)
    groups = Partition.equal_mass(forecasts.totals, groups_for(forecasts))
    values = shares(forecasts, p, groups)
    return steps(forecasts, np.arange(len(p)), values[groups.owners])


def scaling_binning(forecasts: Forecasts) -> Steps:
    """The mean of a beta curve in groups of equal mass (Kumar et al. 2019).

    It takes few values, so its calibration error can be measured, unlike a curve's.
    """
    _, p = held_beta(forecasts)
    totals = forecasts.totals
    groups = Partition.equal_mass(totals, cube_root(forecasts))
    means = groups.sums(totals * p) / groups.sums(totals)
    return steps(forecasts, np.arange(len(p)), means[groups.owners])


def cube_root(forecasts: Forecasts) -> int:
    """How many groups balance bias and sampling (Cormode & Markov 2023, theorem 7)."""
    return max(1, round(float(np.cbrt(forecasts.totals.sum()))))


def groups_for(forecasts: Forecasts) -> int:
    """How many groups balance bias, sampling and noise."""
    groups = cube_root(forecasts)
    if not forecasts.pooled.noisy:
        return groups
    tried = Partition.equal_mass(forecasts.totals, groups)
    both = tried.noise_variance(forecasts, np.ones_like(forecasts.counts))
    fewer = (forecasts.totals.sum() ** 2 / (_BALANCE * both.mean() / 2.0)) ** 0.25
    return max(1, min(groups, round(float(fewer))))


def shares(forecasts: Forecasts, p: Floats, groups: Partition) -> Floats:
    """Share of positives by group, from counts as released; 0 in a group without examples."""
    totals = groups.sums(forecasts.totals)
    excess, sampling, noise = groups.excess(forecasts, p)
    held = np.maximum(totals, 1e-300)
    curve = groups.sums(forecasts.totals * p) / held
    worth = totals * sampling / np.maximum(sampling + noise, 1e-300)
    return likely(forecasts, curve + excess / held, curve, worth)


def likely(forecasts: Forecasts, values: Floats, curve: Floats, examples: Floats) -> Floats:
    """Values as they are without noise; with it none surer than examples can tell, or the curve.

    Noise makes shares of 0 and 1, and beyond. So the ends are as far off as half an example of
    those that the counts are worth.
    """
    if not forecasts.pooled.noisy:
        return values
    margin = 0.5 / (examples + 1.0)
    return np.clip(values, np.minimum(margin, curve), np.maximum(1.0 - margin, curve))


def steps(forecasts: Forecasts, firsts: Indices, values: Floats) -> Steps:
    """Steps that begin with these bins; neighbours of the same value become one."""
    values = np.clip(values, 0.0, 1.0)
    new = np.append(True, np.diff(values) != 0)
    inner = forecasts.pooled.axis.edges[firsts[new][1:]]
    return Steps(tuple(inner.tolist()), tuple(values[new].tolist()))


_SPREAD: Final = 10.0  # the numbers of groups go from n^(1/3) / 10 to 10 n^(1/3)
_FEWEST: Final = 5  # examples in a group, on average
_TRIALS: Final = 64
_HOPELESS: Final = 80.0  # above the least criterion: evidence of e^-40
_ELBOW: Final = 0.001  # of the variance of the evidence: a fall that is none


def bbq(forecasts: Forecasts) -> Steps:
    """The average of histogram binning over numbers of groups of equal width."""
    numbers = _numbers_of_groups(float(forecasts.totals.sum()), noisy=forecasts.pooled.noisy)
    partitions = (Partition.equal_width(forecasts.scores, int(each)) for each in numbers)
    return _average(forecasts, partitions)


def _numbers_of_groups(examples: float, *, noisy: bool) -> Indices:
    """The numbers of groups tried: all, as netcal does; under noise, which is slow, a few."""
    root = float(np.cbrt(examples))
    most = max(1, min(math.ceil(examples / _FEWEST), math.ceil(root * _SPREAD)))
    least = min(max(1, math.floor(root / _SPREAD)), most)
    if noisy and most - least >= _TRIALS:
        return np.unique(np.geomspace(least, most, _TRIALS).round().astype(np.intp))
    return np.arange(least, most + 1)


def _average(forecasts: Forecasts, partitions: Iterable[Partition]) -> Steps:
    """Histogram binning by these partitions, each as likely as its evidence."""
    _, p = held_beta(forecasts)
    bins = _Bins.of(forecasts, p)
    criteria: list[float] = []
    values: dict[int, Floats] = {}
    for number, groups in enumerate(partitions):
        share, criterion = _model(forecasts, bins, groups)
        criteria.append(criterion)
        # Thousands of models over many bins are not all kept.
        if criterion <= min(criteria) + _HOPELESS:
            values[number] = np.where(np.isnan(share[groups.owners]), p, share[groups.owners])
    weights = _weights(np.array(criteria))
    mean = np.sum([weights[each] * value for each, value in values.items()], axis=0)
    return steps(forecasts, np.arange(len(p)), mean)


class _Bins(NamedTuple):
    """What models sum up, by bin."""

    totals: Floats
    promised: Floats  # positives by the curve
    excess: Floats
    sampling: Floats
    negatives: Floats
    positives: Floats
    curve: Floats  # its log-likelihood
    weights: Floats  # of both classes in the excess

    @classmethod
    def of(cls, forecasts: Forecasts, p: Floats) -> "_Bins":
        totals, released = forecasts.totals, forecasts.pooled.unbiased
        weights = np.array([-p, 1.0 - p])
        excess = (weights * released).sum(axis=0)
        curve = (released * np.log([1.0 - p, p])).sum(axis=0)
        negatives, positives = released
        sampling = totals * p * (1.0 - p)
        return cls(totals, totals * p, excess, sampling, negatives, positives, curve, weights)


def _model(forecasts: Forecasts, bins: _Bins, groups: Partition) -> tuple[Floats, float]:
    """The share of positives in each group of a model, and its BIC less that of the curve."""
    totals, promised, excess, sampling, negatives, positives, curve = map(groups.sums, bins[:-1])
    noise = groups.noise_variance(forecasts, bins.weights)
    with np.errstate(divide="ignore", invalid="ignore"):  # groups without examples: no share
        sure = sampling / (sampling + noise)
        mean = promised / totals
        share = likely(forecasts, mean + excess / totals, mean, totals * sure)
        gained = _times_log(positives, share) + _times_log(negatives, 1.0 - share) - curve
    filled = sampling > 0
    criterion = groups.groups * math.log(bins.totals.sum()) - 2.0 * float(
        sure[filled] @ gained[filled]
    )
    return share, criterion


def _times_log(count: Floats, share: Floats) -> Floats:
    product: Floats = count * np.log(np.where(count > 0, share, 1.0))
    return product


def _weights(criteria: Floats) -> Floats:
    """What each model counts: its evidence, but for those beyond the elbow of the sorted ones."""
    evidence = np.exp((criteria.min() - criteria) / 2.0)
    order = np.argsort(evidence)[::-1]
    falls = -np.diff(evidence[order])
    kept = 0
    while kept < len(falls) and falls[kept] == 0:
        kept += 1
    while kept < len(falls) and falls[kept] > _ELBOW * evidence.var():
        kept += 1
    weights = np.zeros(len(evidence))
    best = order[: kept + 1]
    weights[best] = evidence[best] / evidence[best].sum()
    return weights


# What bends are like before any are seen: how far, in log-odds, one goes on, with the logarithm of
# how likely that is; and its size, a log-normal variance. Tried on six shapes of miscalibration,
# from none to a step: a fixed, likely size costs 3% where there is no bend, and saves 25% where
# noise would hide one.
_LENGTHS: Final = {0.25: -4.0, 0.5: -2.0, 1.0: -1.0, 2.0: 0.0, 4.0: 0.0}
_SIZES: Final = np.geomspace(1e-5, 10.0, 31)
_PRIOR: Final = -0.5 * np.log(_SIZES / 0.1) ** 2
_ROUNDS: Final = 20  # of Newton's method at most
_FAR: Final = 1.0  # log-odds that one round moves a group by: from far off it would overshoot
_STILL: Final = 1e-4
_MOST: Final = 200  # groups
_FARTHEST: Final = 20.0  # log-odds of the outermost knots
_APART: Final = 0.25  # log-odds between knots
_LEAST_SLOPE: Final = 0.01  # so that the order of scores, and with it the AUC, stays


class Bend(NamedTuple):
    """A smooth curve over log-odds: for every length, how it is pulled at some centres."""

    centres: Floats
    pulls: Floats

    def at(self, log_odds: Floats) -> Floats:
        """How far it moves log-odds."""
        each = zip(_LENGTHS, self.pulls, strict=True)
        moved: Floats = np.sum(
            [_alike(log_odds, self.centres, length) @ pull for length, pull in each], axis=0
        )
        return moved


def smooth(forecasts: Forecasts) -> LogOddsLine:
    """Beta calibration, bent by what it leaves over, as far as that is surely known.

    What is left over in groups of equal mass is a difference in log-odds, with a variance. A
    Gaussian process is fitted to it, averaged over sizes and lengths of bends by their likelihood.
    """
    from scipy.optimize import isotonic_regression

    curve, p = held_beta(forecasts)
    totals = forecasts.totals
    groups = Partition.equal_mass(totals, min(cube_root(forecasts), _MOST))
    centres = groups.sums(totals * forecasts.log_odds) / groups.sums(totals)
    knots = np.union1d(np.arange(-_FARTHEST, _FARTHEST + _APART, _APART), centres)
    straight, bent = np.log(p) - np.log1p(-p), np.zeros(len(p))
    for _ in range(_ROUNDS):
        now = probabilities(straight + bent)
        excess, sampling, noise = groups.excess(forecasts, now)
        reached = groups.sums(totals * now * (1.0 - now) * bent) / sampling
        variances = (sampling + noise) / sampling**2
        wanted = reached + np.clip(excess / sampling, -_FAR, _FAR)
        bend = _believed(centres, wanted, variances).at(knots)
        before, bent = bent, np.interp(forecasts.log_odds, knots, bend)
        if np.abs(bent - before).max() <= _STILL:
            break
    odds = curve.c - curve.a * np.logaddexp(0.0, -knots) + curve.b * np.logaddexp(0.0, knots)
    weights = np.interp(knots, centres, 1.0 / variances)
    least = _LEAST_SLOPE * knots
    rising = least + isotonic_regression(odds + bend - least, weights=weights).x
    return LogOddsLine(tuple(knots.tolist()), tuple(rising.tolist()))


def _believed(centres: Floats, differences: Floats, variances: Floats) -> Bend:
    """The mean of a Gaussian process that saw the differences, over all sizes and lengths."""
    deviations = np.sqrt(variances)
    evidence, pulls = [], []
    for length, prior in _LENGTHS.items():
        between = _alike(centres, centres, length)
        # In terms of deviations the differences have variance 1, and any size has the same axes.
        values, axes = np.linalg.eigh(between / np.outer(deviations, deviations))
        spreads = 1.0 + _SIZES[:, np.newaxis] * np.maximum(values, 0.0)
        seen = axes.T @ (differences / deviations)
        evidence.append(prior + _PRIOR - 0.5 * (np.log(spreads) + seen**2 / spreads).sum(axis=1))
        pulls.append((axes @ (_SIZES[:, np.newaxis] / spreads * seen).T).T / deviations)
    beliefs = np.exp(np.array(evidence) - np.max(evidence))
    beliefs /= beliefs.sum()
    return Bend(centres, np.einsum("ls,lsg->lg", beliefs, np.array(pulls)))


def _alike(left: Floats, right: Floats, length: float) -> Floats:
    """Correlation of a smooth process at points so far apart."""
    apart = (left[:, np.newaxis] - right) / length
    alike: Floats = np.exp(-0.5 * apart**2)
    return alike


Form = Beta | LogOddsLine | Steps

# Information on the slope of a map: examples at even odds whose log-odds are 2 from their mean
# have 1 each. 30 positives at epsilon 1, or 120 at 0.3, came to 20 to 25; below that a map with a
# shape was often worse than the scores as they were.
_SHAPELESS: Final = 20.0
_VAGUE: Final = 100.0  # a slope known to 0.2 either way


@dataclass(frozen=True)
class Method:
    """How a map is fitted."""

    name: str  # as in ``result.calibrator(name)``
    title: str  # for people
    fit: Callable[[Forecasts], Form]


METHODS: Final = {
    row.name: row
    for row in (
        Method("auto", "beta calibration, moved where counts contradict it", smooth),
        Method("beta", "beta calibration (Kull et al. 2017)", beta),
        Method("isotonic", "isotonic regression (Zadrozny & Elkan 2002)", isotonic),
        Method("platt", "a line in log-odds (Platt 1999)", platt),
        Method("temperature", "one factor for log-odds (Guo et al. 2017)", temperature),
        Method("binning", "histogram binning (Zadrozny & Elkan 2001)", binning),
        Method("bbq", "Bayesian binning into quantiles (Naeini et al. 2015)", bbq),
        Method("scaling-binning", "a binned curve (Kumar et al. 2019)", scaling_binning),
    )
}


def fit(forecasts: Forecasts, method: str = "auto") -> Form:
    """The map that a method fits to forecasts.

    Where noise hides any shape, the map moves all log-odds by one number; :func:`caution` says so.
    """
    if method not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}; got {method!r}.")
    for count, name in zip(forecasts.counts.sum(axis=1), ("negative", "positive"), strict=True):
        if count <= 0:
            raise UndefinedMetric(
                f"no client has a {name} example, so there is no map to fit. Check which label "
                "counts as positive (positive=...)."
            )
    if forecasts.pooled.noisy and slope(forecasts)[1] < _SHAPELESS:
        return shift(forecasts)
    return METHODS[method].fit(forecasts)


def caution(forecasts: Forecasts) -> str | None:
    """Why a fitted map is not to be relied on, if it is not."""
    fitted, information = slope(forecasts)
    if forecasts.pooled.noisy and information < _SHAPELESS:
        return (
            "noise leaves too little to tell the shape of a map by, so this one moves all "
            "log-odds by one number"
        )
    if fitted < 0:
        return (
            "higher scores do not come with a larger share of positives, so the map is all but "
            "flat; check which label counts as positive"
        )
    if information < _VAGUE:
        known = f"to {1.96 / information**0.5:.1f} either way" if information > 1 else "not at all"
        return f"there is little to tell the shape of a map by: its slope is known {known}"
    return forecasts.pooled.faint
