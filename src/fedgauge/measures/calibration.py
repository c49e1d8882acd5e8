"""Calibration: whether of the examples that score 30% about 30% are positive.

All of it is read from groups of bins. Of counts that were drawn by chance, and under noise more
so, the plain distance from the diagonal is too large: it is above 0 also for scores that are
right. So values and intervals of errors come from inverting a test (`inversion`), and the plain
numbers stand on the curve.
"""

import math
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, get_args

import numpy as np

from fedgauge.errors import InputError, UndefinedMetric
from fedgauge.measures.forecasts import Forecasts
from fedgauge.measures.groups import Groups
from fedgauge.measures.intervals import Estimate, Interval, critical, holding, within
from fedgauge.measures.inversion import Deviations, Inverted, Power, invert
from fedgauge.typing import Floats, Indices

ErrorKind = Literal["expected", "maximum", "average", "rms"]

_KINDS: Final[tuple[ErrorKind, ...]] = get_args(ErrorKind)
FEW: Final = 20  # examples below which errors say little


@dataclass(frozen=True, eq=False)
class CalibrationCurve:
    """What came true against what the scores promised, by groups of bins.

    Attributes
    ----------
    predicted, observed
        Mean score and share of positives of each group.
    low, high
        Where that share lies in the population, for each group by itself.
    count
        Examples of each group; an estimate under noise.
    lower, upper
        Edges of each group.
    level
        Confidence of the intervals.
    rule
        How bins were grouped, in words.
    ece, mce, ace, rms
        The expected, maximum, average and root mean square calibration error of the points, as
        other packages print them: above 0 also for scores that are right. What they say of the
        population is ``result.calibration_error(...)``.

    Examples
    --------
    >>> import fedgauge as fg
    >>> sites = {"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 0, 1], [0.1, 0.6, 0.4])}
    >>> result = fg.evaluate(sites)
    >>> curve = result.calibration_curve(bins=2)
    >>> curve.observed.round(2).tolist(), curve.predicted.round(2).tolist()
    ([0.33, 0.67], [0.23, 0.73])
    """

    predicted: Floats = field(repr=False)
    observed: Floats = field(repr=False)
    low: Floats = field(repr=False)
    high: Floats = field(repr=False)
    count: Floats = field(repr=False)
    lower: Floats = field(repr=False)
    upper: Floats = field(repr=False)
    level: float
    rule: str
    ece: float
    mce: float
    ace: float
    rms: float


def calibration_curve(groups: Groups, level: float) -> CalibrationCurve:
    """The points of a reliability diagram."""
    _require_examples(groups)
    return CalibrationCurve(
        groups.predicted,
        groups.observed,
        *groups.intervals(critical(level)),
        groups.counts,
        *groups.edges,
        level,
        groups.rule,
        *(_plain(groups, kind, np.abs(groups.excess)) for kind in _KINDS),
    )


def calibration_error(groups: Groups, kind: ErrorKind, level: float) -> Estimate:
    """A distance of the points from the diagonal, of the population.

    Its bounds are about the plain number, which the same examples would give another package.
    """
    if kind not in _KINDS:
        raise InputError(f"kind must be one of {', '.join(map(repr, _KINDS))}, got {kind!r}.")
    _require_examples(groups)
    z = critical(level)
    found = _inverted(groups, kind, z)
    slack = _plain(groups, kind, z * np.sqrt(np.maximum(np.diag(groups.noise), 0.0)))
    plain, (least, most) = _plain(groups, kind, np.abs(groups.excess)), _bounds(groups, kind)
    sampling, noise = _shares_of(groups, kind)
    parts = {"binning": max(plain - least, most - plain), "sampling": sampling}
    if groups.forecasts.pooled.noisy:
        parts["noise"] = noise
    low, high = within(holding(found.interval, found.value), 0.0, 1.0)
    caution = groups.forecasts.pooled.faint or _caution(groups, kind)
    if groups.forecasts.pooled.noisy and kind in ("maximum", "average"):
        bounds = _bounds_in_noise(groups, kind, level)
    else:
        bounds = _bounds(groups, kind, slack)
    return Estimate(min(found.value, 1.0), bounds, low, high, level, parts, caution)


class _Value(NamedTuple):
    value: float
    interval: Interval


def _inverted(groups: Groups, kind: ErrorKind, z: float) -> _Value:
    """Value and interval in the population."""
    total = float(groups.counts.sum())
    if kind == "expected":
        found = _invert(groups, np.full(len(groups), 1.0 / total), 1, z)
        return _Value(found.value, found.interval)
    if kind == "rms":
        found = _invert(groups, 1.0 / (groups.counts * total), 2, z)
        low, high = map(math.sqrt, found.interval)
        return _Value(math.sqrt(found.value), Interval(low, high))
    seen: Indices = np.flatnonzero(groups.visible)
    if kind == "average":
        weights = np.zeros(len(groups))
        weights[seen] = 1.0 / (groups.counts[seen] * max(len(seen), 1))
        found = _invert(groups, weights, 1, z)
        return _Value(found.value, found.interval)
    return _largest(groups, seen, z)


def _invert(groups: Groups, weights: Floats, power: Power, z: float) -> Inverted:
    return invert(Deviations(groups.excess, groups.covariance, weights), power, z)


def _largest(groups: Groups, seen: Indices, z: float) -> _Value:
    """The largest distance: score intervals of all groups at once, by Bonferroni's inequality."""
    found = _invert(groups, np.full(len(groups), 1.0), 1, z)
    level = math.erf(z / math.sqrt(2.0))
    least, most = groups.intervals(critical(1.0 - (1.0 - level) / max(len(seen), 1)))
    below, above = groups.predicted - least, most - groups.predicted
    low = np.max(np.maximum(-below, -above)[seen], initial=0.0)
    high = np.max(np.maximum(below, above)[seen], initial=0.0)
    value = float(np.max((found.centres / groups.counts)[seen], initial=0.0))
    return _Value(value, Interval(float(low), float(high)))


def _plain(groups: Groups, kind: ErrorKind, distances: Floats) -> float:
    """An error of such distances of the sums, as if chance had no part in them."""
    counts, total = groups.counts, float(groups.counts.sum())
    if kind == "expected":
        return float(distances.sum()) / total
    if kind == "rms":
        return math.sqrt(float(np.sum(distances**2 / counts)) / total)
    seen = groups.visible
    each = distances[seen] / counts[seen]
    if not len(each):
        return 0.0
    return float(each.max() if kind == "maximum" else each.mean())


def _bounds(groups: Groups, kind: ErrorKind, slack: float = 0.0) -> Interval:
    """Where the plain error of the pooled examples lies, wherever in its bin a score does.

    All kinds are norms of the excesses, so noise moves them by no more than its own norm where the
    numbers of examples are those of all groups, or known.
    """
    reach, total = groups.reach, float(groups.counts.sum())
    least = np.maximum(np.maximum(reach.least, -reach.most), 0.0)
    most = np.maximum(np.abs(reach.least), np.abs(reach.most))
    some, maybe = reach.fewest > 0, reach.greatest > 0
    nearest = np.divide(least, reach.greatest, out=np.zeros_like(least), where=maybe)
    farthest = np.divide(most, reach.fewest, out=np.where(maybe, 1.0, 0.0), where=some)
    farthest = np.minimum(farthest, 1.0)
    if kind == "expected":
        ends = least.sum() / total, most.sum() / total
    elif kind == "rms":
        ends = math.sqrt(least @ nearest / total), math.sqrt(most @ farthest / total)
    elif kind == "maximum":
        ends = nearest.max(), farthest.max()
    else:
        ends = nearest.sum() / maybe.sum(), farthest.sum() / max(some.sum(), 1)
    return within(Interval(float(ends[0]) - slack, float(ends[1]) + slack), 0.0, 1.0)


def _bounds_in_noise(groups: Groups, kind: ErrorKind, level: float) -> Interval:
    """The same under noise where each distance is divided by the examples of its own group.

    The smallest groups then say most, and noise hides these first. So every group has bounds of its
    own, all at once by Bonferroni's inequality; one that noise hides may hold anything, or nothing.
    """
    reach, (of_excess, of_count) = groups.reach, groups.reach_noise
    z = critical(1.0 - (1.0 - level) / (2 * len(of_count)))
    fewest, greatest = reach.fewest - z * of_count, reach.greatest + z * of_count
    seen = fewest > 0
    least = np.maximum(np.maximum(reach.least, -reach.most) - z * of_excess, 0.0)
    most = np.maximum(np.abs(reach.least), np.abs(reach.most)) + z * of_excess
    nearest = np.divide(least, greatest, out=np.zeros_like(least), where=seen)
    farthest = np.minimum(np.divide(most, fewest, out=np.ones_like(most), where=seen), 1.0)
    if kind == "maximum":
        return within(Interval(float(nearest.max()), float(farthest.max())), 0.0, 1.0)
    return within(Interval(float(nearest.mean()), float(farthest.mean())), 0.0, 1.0)


def _shares_of(groups: Groups, kind: ErrorKind) -> tuple[float, float]:
    """Standard deviations of the plain number by sampling and by noise, to first order."""
    counts, total = groups.counts, float(groups.counts.sum())
    signs = np.sign(groups.excess)
    if kind == "expected":
        slopes = signs / total
    elif kind == "rms":
        root = max(_plain(groups, kind, np.abs(groups.excess)), 1e-300)
        slopes = groups.excess / (counts * total * root)
    else:
        slopes = np.where(groups.visible, signs / counts, 0.0)
        if kind == "average":
            slopes /= max(int(np.count_nonzero(groups.visible)), 1)
        else:
            largest = int(np.argmax(np.abs(groups.excess * slopes)))
            slopes = np.where(np.arange(len(groups)) == largest, slopes, 0.0)
    noise = float(slopes @ groups.noise @ slopes)
    both = float(slopes @ groups.covariance @ slopes)
    return math.sqrt(max(both - noise, 0.0)), math.sqrt(max(noise, 0.0))


def _caution(groups: Groups, kind: ErrorKind) -> str | None:
    if groups.counts.sum() < FEW:
        return f"there are fewer than {FEW} examples"
    if kind in ("maximum", "average") and not groups.visible.all():
        return "groups that do not stand out of the noise are left out"
    return None


def _require_examples(groups: Groups) -> None:
    if not len(groups):
        raise UndefinedMetric("measures of calibration need examples: there are none.")


def calibration_in_the_large(forecasts: Forecasts, level: float) -> Estimate:
    """Share of positives less the mean score: above 0 where scores are too low on the whole."""
    pooled, scores = forecasts.pooled, forecasts.scores
    total = float(forecasts.totals.sum())
    if total <= 0:
        raise UndefinedMetric("measures of calibration need examples: there are none.")
    weights = np.array([-scores, 1.0 - scores])
    value = float(np.sum(weights * pooled.unbiased)) / total
    # What noise does to the number of examples matters in proportion to the value.
    centred = (weights - value) / total
    noise = math.sqrt(max(float(pooled.noise_variance(centred)), 0.0))
    sampling = math.sqrt(float(np.sum(centred**2 * forecasts.counts)))
    z = critical(level)
    positives = float(pooled.unbiased[1].sum())
    least, most = (
        (positives - float(np.sum(forecasts.totals * each))) / total
        for each in (forecasts.highest, forecasts.lowest)
    )
    bounds = within(Interval(least - z * noise, most + z * noise), -1.0, 1.0)
    off = float(np.linalg.norm(forecasts.totals * forecasts.misplaced)) / total
    reach = z * math.hypot(sampling, noise, off)
    interval = within(Interval(value - reach, value + reach), -1.0, 1.0)
    parts = {"binning": max(value - least, most - value), "sampling": sampling}
    if pooled.noisy:
        parts["noise"] = noise
    caution = f"there are fewer than {FEW} examples" if total < FEW else pooled.faint
    value = min(max(value, -1.0), 1.0)
    return Estimate(value, holding(bounds, value), *interval, level, parts, caution)
