"""Whether something moved between looks at a model: tests that know sampling, noise and looks.

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
chance, ever (Robbins 1970, the normal mixture). So no number of looks is set beforehand, and what a
look was judged to be never changes by later ones.

Arrays may have axes of their own in front: many series at once.
"""

import math
from collections.abc import Callable, Sequence
from itertools import product
from statistics import NormalDist
from typing import Any, Final, NamedTuple

import numpy as np

from fedgauge.typing import Floats

WINDOW: Final = 3  # looks that a shift is seen in
_RHO: Final = 1.0  # of the mixture: the boundary is tightest about ten looks after the first
_LEAST: Final = 20.0  # rows that a ratio divides by: below, nothing is tested
_SIGNAL: Final = 4.0  # standard deviations that these must stand out of the noise
_FAR: Final = 37.0  # standard deviations beyond which floats know no smaller chance
POWER: Final = 0.9  # with which a change is found that is said to be large enough
_SKEWED: Final = 0.5  # as of four rows: of fewer the next variance cannot be told from the last
_NO_DEVIATION: Final = 1e-12
_NEAR: Final = 0.1  # deviates below which no tail matters
_HALVINGS: Final = 30  # of what is searched for: more digits than anybody reads


class Noise(NamedTuple):
    """The noise in counts of looks. Weights are by class and bin.

    `covariance` is that of two weighted sums, by look: of these looks, and perhaps of later ones.
    `loudest` is the share of the noise variance of a weighted sum of one look that a single number
    has at most, of all that were drawn: 1 where that is not known.
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
    deviate: less than the ratio of both where skewed counts or noise make far values likelier.
    These are told by `skew`, the third cumulant in standard deviations, `noisy`, the share of the
    variance that is noise, and `loud`, the share of the noise that one drawn number has at most.
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

    Examples
    --------
    >>> import numpy as np
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

    Parameters
    ----------
    counts
        By look, class and bin, as released.
    terms
        What is watched, of the pool of all these looks.
    noise
        The noise in the counts, if there is some.

    Examples
    --------
    >>> import numpy as np
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

    Parameters
    ----------
    z
        The deviates, not a number where there is none; the first look has none.
    rate
        The chance that any of the tests is ever an alarm without a change, at most.

    Examples
    --------
    >>> import numpy as np
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

    Examples
    --------
    >>> [round(jump_limit(0.05, look), 2) for look in (2, 10, 52)]
    [2.24, 3.45, 4.28]
    """
    return -NormalDist().inv_cdf(rate / (look * (look - 1)) / 2.0)


def least_change(found: Moved, rate: float) -> Floats:
    """How large a lasting change must be to be found, by look on the first axis.

    One that begins after a look and raises an alarm within three looks with a chance of about
    :data:`POWER`: by the test for a shift, as if coming looks were as large and noisy as this one.
    Not a number where there was nothing to compare, or a handful of rows decides.

    Examples
    --------
    >>> import numpy as np
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
    """The sum over classes and bins."""
    total: Floats = weighted.sum(axis=(-2, -1))
    return total
