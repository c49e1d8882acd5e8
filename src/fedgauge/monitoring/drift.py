"""Drift: tests of whether a metric moved between looks at a model, and which looks are alarms.

A quantity that is watched is a ratio of weighted counts, or a sum of such (the AUC: positives
placed among all negatives, negatives among all positives). Its weights are those of all looks so
far taken together, so that without a change every look deviates from 0 by chance alone: linear in
counts, with a variance that follows from the rows and the noise of the look, and not from how the
look itself came out.

A look is compared with the mean of the looks before it, weighed by their precision. These
comparisons are independent of each other (recursive residuals; Brown, Durbin & Evans 1975). Three
tests are made of them. *Jump*: one of them is far from 0. *Shift*: the last three together are.
Look t may spend 1/(t(t-1)) of the rate on each, which adds up to all of it however many looks there
will be. *Drift*: the sum of all is outside a boundary that a random walk crosses with at most that
chance, ever (Robbins 1970, the normal mixture). So no number of looks is set beforehand, and later
looks never change how an earlier one was judged.

Arrays may have axes of their own in front: many series at once.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import NormalDist
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgauge.arrays import Floats, Indices
from fedgauge.errors import InputError
from fedgauge.estimation.counts import PooledCounts
from fedgauge.estimation.repair import level_weights
from fedgauge.histograms.axis import Axis
from fedgauge.metrics.thresholds import split

WINDOW: Final = 3  # looks that a shift is seen in
_RHO: Final = 1.0  # of the mixture: the boundary is tightest about ten looks after the first
_LEAST: Final = 20.0  # rows that a ratio divides by: below, nothing is tested
_SIGNAL: Final = 4.0  # standard deviations that these must stand out of the noise
_FAR: Final = 37.0  # standard deviations beyond which floats know no smaller chance
POWER: Final = 0.9  # with which a change is found that is said to be large enough
_SKEWED: Final = 0.5  # as of four rows: of fewer the next variance cannot be told from the last
_NO_DEVIATION: Final = 1e-12
_NEAR: Final = 0.1  # deviates below which no tail matters
_CLEAR: Final = 4.0  # twice the logarithm of how much likelier
_HALVINGS: Final = 30  # of what is searched for: more digits than anybody reads


class Noise(NamedTuple):
    """The noise in counts of looks. Weights are by class and bin.

    `covariance` is that of two weighted sums, by look: of these looks, and perhaps of later ones.
    `loudest` is the largest share of the noise variance of a look's weighted sum that one drawn
    number has: 1 where that is not known.
    """

    covariance: Callable[[Floats, Floats], Floats]
    loudest: Callable[[Floats, int], Floats]


class Term(NamedTuple):
    """A ratio: what each row of a class and bin adds above, less the mean, and below."""

    above: Floats
    below: Floats


class Moved(NamedTuple):
    """How far a look is from those before it; not a number where there is too little to compare.

    `by` is the difference, `deviation` its standard deviation, `z` the difference as a normal
    deviate: less than the ratio of both where skewed counts or noise make far values likelier. That
    depends on `skew`, the third cumulant in standard deviations, `noisy`, the share of the variance
    that is noise, and `loud`, the share of the noise that one drawn number has at most.
    """

    by: Floats
    deviation: Floats
    z: Floats
    skew: Floats
    noisy: Floats
    loud: Floats


class Judged(NamedTuple):
    """How far each look is on the way to an alarm, by test: one from 1 up."""

    jump: Floats
    shift: Floats
    drift: Floats


def ratio(pool: Floats, above: Floats, below: Floats) -> tuple[Term, ...]:
    """The term of a mean of rows, centred at that of the pool."""
    base = _over(below * pool)
    mean = _over(above * pool) / np.where(base > 0, base, 1.0)
    return (Term(above - mean[..., np.newaxis, np.newaxis] * below, below),)


def area(pool: Floats) -> tuple[Term, ...]:
    """The terms of the area under the ROC curve: Hajek's projection, at the pool's classes.

    >>> positives, negatives = area(np.array([[3.0, 1.0], [1.0, 3.0]]))
    >>> positives.above[1].tolist()  # where positives stand among negatives, less the mean
    [-0.375, 0.125]
    """
    terms: list[Term] = []
    for row, other, sign in ((1, 0, 1.0), (0, 1, -1.0)):
        total = pool[..., other, :].sum(axis=-1, keepdims=True)
        shares = pool[..., other, :] / np.where(total > 0, total, 1.0)
        above, below = np.zeros_like(pool), np.zeros_like(pool)
        above[..., row, :] = sign * (np.cumsum(shares, axis=-1) - shares / 2.0)
        below[..., row, :] = 1.0
        terms += ratio(pool, above, below)
    return tuple(terms)


def moved(counts: Floats, terms: Sequence[Term], noise: Noise | None = None) -> Moved:
    """How far the last look is from those before it.

    `counts` are by look, class and bin, as released; `terms` what is watched, of the pool of all
    looks.

    >>> before, now = [[300, 100], [100, 300]], [[300, 100], [200, 200]]
    >>> counts = np.array([before, before, now], dtype=float)
    >>> found = moved(counts, area(counts.sum(axis=0)))
    >>> round(float(found.by), 3), round(float(found.z), 1)
    (-0.125, -6.3)
    """
    pool, looks = counts.sum(axis=-3), counts.shape[-3]
    by, sampling, third, of_noise = (np.zeros(counts.shape[:-2]) for _ in range(4))
    usable = np.ones(counts.shape[:-2], dtype=bool)
    bases = []
    for term in terms:
        base = _weighed(counts, term.below)
        usable &= base >= _LEAST
        if noise is not None:
            usable &= base >= _SIGNAL * np.sqrt(
                noise.covariance(term.below, term.below)[..., :looks]
            )
        base = np.maximum(base, 1.0)
        bases.append(base)
        by += _weighed(counts, term.above) / base
        of_pool = np.maximum(_over(term.below * pool), 1.0)
        squares = term.above * term.above * pool
        second, cubed = (_over(each) / of_pool for each in (squares, squares * term.above))
        sampling += np.maximum(second, 0.0)[..., np.newaxis] / base
        third += cubed[..., np.newaxis] / (base * base)
    loud = np.ones(())
    if noise is not None:
        pairs = list(zip(terms, bases, strict=True))
        for (one, its), (other, theirs) in product(pairs, repeat=2):
            covariance = noise.covariance(one.above, other.above)[..., :looks]
            of_noise += covariance / (its * theirs)
        last = [term.above / base[..., -1, np.newaxis, np.newaxis] for term, base in pairs]
        loud = noise.loudest(np.sum(last, axis=0), looks - 1)
    return _compared(by, sampling, of_noise, third, usable, loud)


def _compared(
    by: Floats, sampling: Floats, noise: Floats, third: Floats, usable: Any, loud: Floats
) -> Moved:
    """The last less the mean of the others, weighed by their precision."""
    variances = sampling + noise
    precise = usable[..., :-1] / np.maximum(variances[..., :-1], 1e-30)
    total = precise.sum(axis=-1, keepdims=True)
    weights = -precise / np.where(total > 0, total, 1.0)
    weights = np.concatenate([weights, np.ones_like(total)], axis=-1)
    gap, variance = (weights * by).sum(axis=-1), (weights**2 * variances).sum(axis=-1)
    deviation = np.sqrt(np.maximum(variance, 1e-30))  # where nothing ever varied
    skew = (weights**3 * third).sum(axis=-1) / deviation**3
    heard = weights**2 * noise
    total = heard.sum(axis=-1)
    noisy = np.minimum(total / deviation**2, 1.0)
    # Of an earlier look one number may be all of its noise, which is little of all.
    one = np.maximum(heard[..., -1] * loud, heard[..., :-1].max(axis=-1, initial=0.0))
    loud = np.where(total > 0, one / np.where(total > 0, total, 1.0), 1.0)
    z = _normal(gap / deviation, skew, noisy, loud)
    told = usable[..., -1] & usable[..., :-1].any(axis=-1)
    every = gap, deviation, z, skew, noisy, loud
    return Moved(*(np.where(told, each, np.nan) for each in every))


def judge(z: Floats, rate: float) -> Judged:
    """What the comparisons of looks show, by look on the first axis.

    `z` are the deviates, not a number where there is none; the first look has none. `rate` is the
    chance that any of the tests is ever an alarm without a change, at most.

    >>> judge(np.array([np.nan, 0.5, -0.2, -6.0]), 0.05).jump.round(2).tolist()
    [0.0, 0.19, 0.07, 1.88]
    """
    each = rate / len(Judged._fields)
    there, filled = np.isfinite(z), np.nan_to_num(z)
    number, summed = np.cumsum(there, axis=0), np.cumsum(filled, axis=0)
    ago = np.zeros_like(number)
    ago[WINDOW:] = number[:-WINDOW]
    earlier = np.zeros_like(summed)
    earlier[WINDOW:] = summed[:-WINDOW]
    looks = np.arange(1, len(z) + 1).reshape(-1, *(1,) * (z.ndim - 1))
    limits = np.reshape(
        [jump_limit(each, max(look, 2)) for look in range(1, len(z) + 1)], looks.shape
    )
    recent = (summed - earlier) / np.sqrt(np.maximum(number - ago, 1))
    steps = number + _RHO
    boundary = np.sqrt(steps * (np.log(steps / _RHO) - 2.0 * math.log(each)))
    told = (np.abs(filled) / limits, np.abs(recent) / limits, np.abs(summed) / boundary)
    return Judged(*(np.where(there, share, 0.0) for share in told))


def jump_limit(rate: float, look: int) -> float:
    """How far from 0 the comparison of a look must be to be an alarm.

    >>> [round(jump_limit(0.05, look), 2) for look in (2, 10, 52)]
    [2.24, 3.45, 4.28]
    """
    return -NormalDist().inv_cdf(rate / (look * (look - 1)) / 2.0)


def step_of(z: Floats) -> int | None:
    """Where a series moved at once; 0 where it moved little by little, None if that is not clear.

    All looks since a step are far from the mean of those before it, less and less as that takes
    them in, so the test for drift sees a single step, too. It is clear where one course is e^2
    times as likely as the other. `z` are as for :func:`judge`.

    >>> looks = np.arange(12.0)
    >>> before = (np.cumsum(looks) - looks) / np.maximum(looks, 1.0)
    >>> step_of(looks - before), step_of(np.where(looks >= 5, 25.0 / np.maximum(looks, 1.0), 0.0))
    (0, 5)
    """
    looks, there = np.arange(len(z)), np.isfinite(z)

    def explained(levels: Floats) -> float:
        before = (np.cumsum(levels) - levels) / np.maximum(looks, 1)
        # Two means differ: that of one look, and that of all before it.
        expected = np.where(there, (levels - before) * np.sqrt(looks / (looks + 1.0)), 0.0)
        squares = float(expected @ expected)
        return float(expected @ np.nan_to_num(z)) ** 2 / squares if squares else 0.0

    steps = [explained((looks >= look).astype(float)) for look in looks[1:]]
    # Two looks on a slope are no more than a step and what follows it.
    slopes = [explained(np.maximum(looks - look, 0.0)) for look in looks[:-WINDOW]]
    clearer = max(steps, default=0.0) - max(slopes, default=0.0)
    if abs(clearer) < _CLEAR:
        return None
    return 1 + int(np.argmax(steps)) if clearer > 0 else 0


def least_change(found: Moved, rate: float) -> Floats:
    """How large a lasting change must be to be found, by look on the first axis.

    One that begins after a look and raises an alarm within three looks with a chance of about
    :data:`POWER`: by the test for a shift, as if coming looks were as large and noisy as this one.
    Not a number where there was nothing to compare, or a handful of rows decides.

    >>> looks = Moved(*(np.array([each, each]) for each in (0.0, 0.01, 0.0, 0.0, 0.0, 1.0)))
    >>> round(float(least_change(looks, 0.05)[1]), 3)
    0.037
    """
    each = rate / len(Judged._fields)
    looks = np.arange(1, len(found.z) + 1).reshape(-1, *(1,) * (found.z.ndim - 1))
    limits = [jump_limit(each, look + WINDOW) for look in range(1, len(found.z) + 1)]
    wanted = (np.reshape(limits, looks.shape) + NormalDist().inv_cdf(POWER)) * math.sqrt(WINDOW)
    law = [np.nan_to_num(each) for each in (found.skew, found.noisy, found.loud)]
    # The looks after a change are soon among those that the next is compared with.
    left = [looks / (looks + after) for after in range(WINDOW)]
    least = np.zeros_like(found.z)
    for sign in (-1.0, 1.0):
        low, high = np.zeros_like(found.z), np.full_like(found.z, 1e3)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2.0
            told = sum(np.abs(_normal(sign * share * middle, *law)) for share in left)
            low, high = np.where(told < wanted, middle, low), np.where(told < wanted, high, middle)
        least = np.maximum(least, high)
    told = np.abs(law[0]) <= _SKEWED
    return np.where(told & (found.deviation > _NO_DEVIATION), least * found.deviation, np.nan)


def _normal(deviate: Floats, skew: Floats, noisy: Floats, loud: Floats) -> Floats:
    """A deviate with the tails of a normal one, of a sum of skewed counts and noise."""
    sign = np.where(deviate < 0, -1.0, 1.0)
    far = np.clip(sign * _unskewed(deviate, skew), 0.0, np.abs(deviate))
    far = np.minimum(far, _FAR)
    if not np.any(noisy > 0):
        return sign * far
    return sign * np.minimum(far, _heavy(far, noisy, loud))


def _unskewed(deviate: Floats, skew: Floats) -> Floats:
    """Less what a skewed law adds to its longer tail (Hall 1992: monotone Cornish-Fisher)."""
    c = np.where(np.abs(skew) < 1e-6, 1e-7, -skew / 6.0)
    told: Floats = ((1.0 + c * deviate) ** 3 - 1.0) / (3.0 * c) - c
    return told


def _heavy(deviate: Floats, noisy: Floats, loud: Floats) -> Floats:
    """The normal deviate that is as unlikely as this one, of which a share `noisy` is noise.

    Noise is a sum of numbers with tails no heavier than Laplace, of which none has more than a
    share `loud` of its variance. Of all such sums that of 1 / loud Laplace numbers, all alike, has
    the largest cumulants, since -log(1 - s t^2 / 2) is convex in s. Its tail is read off by saddle
    point: r* of Barndorff-Nielsen (1986), off by at most 0.02 here, where it is solved exactly.
    """
    normal, c = 1.0 - noisy, np.maximum(noisy * loud / 2.0, 1e-12)
    t = _saddle(deviate, normal * c, c)
    left = 1.0 - c * t**2
    cumulants = normal * t**2 / 2.0 - np.log(left) / np.maximum(loud, 1e-12)
    root = np.sqrt(np.maximum(2.0 * (t * deviate - cumulants), _NEAR**2))
    slope = t * np.sqrt(normal + noisy * (1.0 + c * t**2) / left**2)
    heavy: Floats = root + np.log(np.maximum(slope, _NEAR**2) / root) / root
    return np.where((noisy * loud < 1e-6) | (deviate < _NEAR), deviate, heavy)


def _saddle(deviate: Floats, first: Floats, c: Floats) -> Floats:
    """Where the cumulants rise as steeply as the deviate: first t^3 - x c t^2 - t + x = 0.

    It falls all the way from 0 to the end, the least of x and 1 / sqrt(c), beyond which there are
    no cumulants; six halvings, then Newton's steps.
    """
    low = np.zeros_like(deviate)
    end = np.minimum(deviate, (1.0 - 1e-9) / np.sqrt(c))
    high, second = end, deviate * c
    for _ in range(6):
        t = (low + high) / 2.0
        below = ((first * t - second) * t - 1.0) * t + deviate > 0
        low, high = np.where(below, t, low), np.where(below, high, t)
    t = (low + high) / 2.0
    for _ in range(4):
        value = ((first * t - second) * t - 1.0) * t + deviate
        slope = (3.0 * first * t - 2.0 * second) * t - 1.0
        t = np.clip(t - value / np.minimum(slope, -1e-12), low, high)
    return t


def _weighed(counts: Floats, weights: Floats) -> Floats:
    """The weighted sum over classes and bins, by look: weights are the same in all looks."""
    told: Floats = _flat(counts) @ _flat(weights)[..., np.newaxis]
    return told[..., 0]


def _flat(counts: Floats) -> Floats:
    return counts.reshape(*counts.shape[:-2], counts.shape[-2] * counts.shape[-1])


def _over(weighted: Floats) -> Floats:
    total: Floats = weighted.sum(axis=(-2, -1))
    return total


RATE: Final = 0.05
DISTRIBUTION: Final = "score_distribution"
_EDGES: Final = 3  # of an axis that tells scores apart: the ends, and one between
GROUPS: Final = 10  # of scores, as many in each at the first look
Terms = tuple[Term, ...]


class Watched(NamedTuple):
    """Something that is watched, at a threshold or over all.

    `of` gives its terms from the pool of all looks so far, the axis and what scores were at the
    first look: one set of them, or several of which any may move.
    """

    name: str
    of: Callable[[Floats, Axis, Floats], list[Terms]]
    at: float | None = None


@dataclass(frozen=True)
class Looks:
    """Counts of looks, by look, class and bin of one axis, and the noise in them."""

    axis: Axis
    counts: Floats
    noise: Noise | None

    @classmethod
    def of(cls, pooled: Sequence[PooledCounts]) -> "Looks":
        """Looks on the bins that all of them have: where bins were merged, those in common."""
        axes = [each.axis for each in pooled]
        axis = _common(axes)
        places = [_places(each, axis) for each in axes]
        counts = np.stack(
            [
                _gathered(each.unbiased, at, axis.bins)
                for each, at in zip(pooled, places, strict=True)
            ]
        )

        alike = [_noise_of(each, at) for each, at in zip(pooled, places, strict=True)]
        kinds = list(dict.fromkeys(alike))
        of_each = [kinds.index(each) for each in alike]
        firsts = [alike.index(kind) for kind in kinds]

        def covariance(left: Floats, right: Floats) -> Floats:
            told = [pooled[k].covariance(left[:, places[k]], right[:, places[k]]) for k in firsts]
            return np.array(told)[of_each]

        def loudest(weights: Floats, look: int) -> Floats:
            return _loudest(pooled[look], weights[:, places[look]])

        noisy = any(each.noisy for each in pooled)
        return cls(axis, counts, Noise(covariance, loudest) if noisy else None)

    def first(self, number: int) -> "Looks":
        """The first so many of them."""
        return Looks(self.axis, self.counts[:number], self.noise)


def _noise_of(pooled: PooledCounts, places: Indices) -> Any:
    """What the noise in counts hangs on: the same for looks that were summed by one plan."""
    if not _is_summed(pooled):
        return id(pooled)
    return pooled.tree, pooled.variances, pooled.terms, places.tobytes()


def _loudest(pooled: PooledCounts, weights: Floats) -> Floats:
    """The loudest node's share of the noise of a weighted sum; local reports are not loud."""
    if pooled.drawn:
        return np.zeros(())
    if not pooled.noisy or not _is_summed(pooled):
        return np.ones(())
    return loudest_node(pooled.tree, pooled.variances, weights)


def loudest_node(tree: Sequence[int], variances: Sequence[float], weights: Floats) -> Floats:
    """The largest share of the noise variance of a weighted sum that is one node's."""
    by_level = zip(level_weights(tree, variances, weights), variances, strict=True)
    heard = [variance * each**2 for each, variance in by_level]
    total = np.sum([each.sum(axis=(-2, -1)) for each in heard], axis=0)
    most = np.max([each.max(axis=(-2, -1)) for each in heard], axis=0)
    told: Floats = np.where(total > 0, most / np.where(total > 0, total, 1.0), 1.0)
    return told


def _is_summed(pooled: PooledCounts) -> bool:
    """Whether all noise is that of the nodes of a tree: not of reports, labels alone, or a map."""
    return type(pooled) is PooledCounts and not pooled.drawn


class Run(NamedTuple):
    """One thing that is watched, over all looks."""

    moved: Moved  # how far each look is from those before it, by look and by what may move
    judged: Judged  # how far that is on the way to an alarm
    rate: float  # the part of the rate that each of what may move has

    @property
    def alarms(self) -> dict[str, NDArray[np.bool_]]:
        """Whether a look raises an alarm, by test: any of what may move is enough."""
        return {
            test: np.asarray((told >= 1.0).any(axis=1))
            for test, told in self.judged._asdict().items()
        }

    def step(self, look: int) -> int | None:
        """How the drift at a look came, as :func:`step_of` says it."""
        column = int(np.argmax(self.judged.drift[look]))
        return step_of(self.moved.z[: look + 1, column])

    def nearest(self, look: int) -> int:
        """Which of what may move is nearest to an alarm at a look."""
        return int(np.argmax(np.max([each[look] for each in self.judged], axis=0)))

    @property
    def least(self) -> Floats:
        """The least lasting change that would be found, by look: of what moves least visibly."""
        told: Floats = least_change(self.moved, self.rate).max(axis=1)
        return told


def follow(
    first: Callable[[int], Looks], number: int, watched: Sequence[Watched], rate: float = RATE
) -> dict[Watched, Run]:
    """How each look stands to those before it, in all that is watched.

    `first` gives the first so many looks, on bins that all of these have, and `number` is how many
    there are. `rate` is the chance that any alarm is ever raised while nothing changes, at most;
    each thing that is watched has the same part of it.
    """
    starts = first_groups(first(1))
    found: dict[Watched, list[list[Moved]]] = {each: [] for each in watched}
    for look in range(1, number + 1):
        looks = first(look)
        pool = looks.counts.sum(axis=-3)
        for each, told in found.items():
            contrasts = each.of(pool, looks.axis, starts)
            told.append([moved(looks.counts, terms, looks.noise) for terms in contrasts])
    return {each: _run(told, rate / len(watched)) for each, told in found.items()}


def _run(told: list[list[Moved]], rate: float) -> Run:
    fields = range(len(Moved._fields))
    every = Moved(*(np.array([[m[k] for m in look] for look in told]) for k in fields))
    rate /= every.z.shape[1]
    return Run(every, judge(every.z, rate), rate)


def watch(axis: Axis, at: Sequence[float]) -> tuple[Watched, ...]:
    """What is watched of scores on an axis: without losses where they are no probabilities."""
    watched = [Watched("roc_auc", _area), Watched("prevalence", _prevalence)]
    if axis.low >= 0.0 and axis.high <= np.nextafter(1.0, 2.0):
        watched.append(Watched("calibration_in_the_large", _in_the_large))
        watched.append(Watched("brier_score", _brier))
    watched.append(Watched(DISTRIBUTION, _distribution))
    for threshold in at:
        for name, rows in _AT.items():
            watched.append(Watched(name, _at(threshold, *rows), threshold))
    return tuple(watched)


class Shift(NamedTuple):
    """How far the scores of a look are from those of the looks before it."""

    psi: float  # population stability index, over as many groups as the first look had tenths
    psi_expected: float  # its mean while nothing changes: sampling and noise push it up
    ks: float  # largest difference of the shares of scores below a bin edge


def shift(looks: Looks, starts: Floats) -> Shift | None:
    """How far the last look's scores are from those before; None where noise hides them."""
    rows = looks.counts.sum(axis=1)
    totals = rows.sum(axis=1)
    if len(totals) < 2 or totals[-1] <= 0 or totals[:-1].sum() <= 0:
        return None
    before = rows[:-1].sum(axis=0)
    groups = np.searchsorted(starts, looks.axis.edges[:-1], side="right")
    indicators = (groups == np.unique(groups)[:, np.newaxis]).astype(np.float64)
    now, then = indicators @ rows[-1] / totals[-1], indicators @ before / totals[:-1].sum()
    pooled = indicators @ rows.sum(axis=0) / totals.sum()
    held = pooled > 0
    # Half a row where none is, or noise says fewer, so that the logarithm is one.
    one, other = np.maximum(now, 0.5 / totals[-1]), np.maximum(then, 0.5 / totals[:-1].sum())
    psi = float(np.sum(((one - other) * np.log(one / other))[held]))
    variances = pooled * (1.0 - pooled) * (1.0 / totals[-1] + 1.0 / totals[:-1].sum())
    if looks.noise is not None:
        over = np.append(np.full(len(totals) - 1, totals[:-1].sum()), totals[-1])
        for place, (group, share) in enumerate(zip(indicators, pooled, strict=True)):
            weights = np.broadcast_to(group - share, looks.counts.shape[1:])
            of_looks = looks.noise.covariance(weights, weights)[: len(over)]
            variances[place] += (of_looks / over**2).sum()
    expected = float(np.sum((variances / np.where(held, pooled, 1.0))[held]))
    ks = np.abs(np.cumsum(rows[-1]) / totals[-1] - np.cumsum(before) / totals[:-1].sum()).max()
    return Shift(psi, expected, float(ks))


def first_groups(looks: Looks) -> Floats:
    """Where the tenths of the first look's scores end, by bin edges."""
    rows = np.maximum(looks.counts[..., 0, :, :].sum(axis=-2), 0.0)
    rows = rows.reshape(-1, rows.shape[-1]).mean(axis=0)  # of many series at once, the same
    shares = np.cumsum(rows)[:-1] / max(float(rows.sum()), 1.0)
    wanted = np.arange(1, GROUPS) / GROUPS
    near = np.abs(shares[:, np.newaxis] - wanted).argmin(axis=0) if len(shares) else []
    return looks.axis.edges[1:-1][np.unique(np.asarray(near, dtype=np.intp))]


def _area(pool: Floats, axis: Axis, starts: Floats) -> list[Terms]:
    del axis, starts
    return [area(pool)]


def _prevalence(pool: Floats, axis: Axis, starts: Floats) -> list[Terms]:
    del axis, starts
    return [ratio(pool, _of_class(pool, 0.0, 1.0), np.ones(pool.shape[-2:]))]


def _in_the_large(pool: Floats, axis: Axis, starts: Floats) -> list[Terms]:
    del starts
    score = _scores(axis)
    return [ratio(pool, np.stack([-score, 1.0 - score]), np.ones(pool.shape[-2:]))]


def _brier(pool: Floats, axis: Axis, starts: Floats) -> list[Terms]:
    del starts
    score = _scores(axis)
    return [ratio(pool, np.stack([score**2, (1.0 - score) ** 2]), np.ones(pool.shape[-2:]))]


def _distribution(pool: Floats, axis: Axis, starts: Floats) -> list[Terms]:
    """The shares of scores from each of the first look's tenths up, at edges that are there."""
    edges = axis.edges[1:-1]
    if not len(edges) or not len(starts):
        return [ratio(pool, np.ones(pool.shape[-2:]), np.ones(pool.shape[-2:]))] * GROUPS
    near = np.abs(edges[:, np.newaxis] - starts).argmin(axis=0) + 1
    from_each = (np.arange(axis.bins) >= near[:, np.newaxis]).astype(np.float64)
    ones = np.ones(pool.shape[-2:])
    return [ratio(pool, np.broadcast_to(flags, pool.shape[-2:]), ones) for flags in from_each]


_AT: Final = {  # rows that are counted, and those among which, of negatives and positives
    "recall": ((0.0, 1.0), (0.0, 1.0), False),
    "fpr": ((1.0, 0.0), (1.0, 0.0), False),
    "precision": ((0.0, 1.0), (1.0, 1.0), True),
}


def _at(
    threshold: float, counted: tuple[float, float], among: tuple[float, float], flagged: bool
) -> Callable[[Floats, Axis, Floats], list[Terms]]:
    def of(pool: Floats, axis: Axis, starts: Floats) -> list[Terms]:
        del starts
        first, is_open, share = split(axis, threshold)
        flags = (np.arange(axis.bins) >= first).astype(np.float64)
        if is_open:
            flags[first - 1] = share
        below = _of_class(pool, *among)
        return [ratio(pool, _of_class(pool, *counted) * flags, below * flags if flagged else below)]

    return of


def _of_class(pool: Floats, negatives: float, positives: float) -> Floats:
    weights = np.empty(pool.shape[-2:])
    weights[0], weights[1] = negatives, positives
    return weights


def _scores(axis: Axis) -> Floats:
    """The middle of each bin, or its value."""
    scores: Floats = axis.edges[:-1]
    if axis.kind != "values":
        scores = (axis.edges[:-1] + axis.edges[1:]) / 2.0
    return np.clip(scores, 0.0, 1.0)


def _common(axes: Sequence[Axis]) -> Axis:
    """The axis of all, or one with the edges that all have."""
    first, *others = axes
    if all(each == first for each in others):
        return first
    if any((each.low, each.high) != (first.low, first.high) for each in others):
        raise InputError(
            "the axes of these results reach from and to different scores, so they are no series. "
            "Evaluate all looks on one axis: by the same plan."
        )
    edges = first.edges
    for each in others:
        edges = np.intersect1d(edges, each.edges)
    if len(edges) < _EDGES:
        raise InputError(
            "the axes of these results have no bin edge in common, so they are no series. Evaluate "
            "all looks on one axis: by the same plan."
        )
    return Axis.from_edges(edges, first.outside)


def _places(axis: Axis, common: Axis) -> Indices:
    """The bin of the common axis that each bin is in."""
    if axis == common:
        return np.arange(axis.bins)
    return np.searchsorted(common.edges, axis.edges[:-1], side="right") - 1


def _gathered(counts: Floats, places: Indices, bins: int) -> Floats:
    return np.stack([np.bincount(places, row, minlength=bins) for row in counts])
