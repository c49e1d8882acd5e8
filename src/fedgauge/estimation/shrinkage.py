"""Likely counts under noise, from a smooth ratio of both classes.

Noise is as large in a bin with few examples as in one with many. What most bins have in common is
that the ratio of positives to negatives changes little from one to the next: modes, ties and gaps
of scores are in both classes, and cancel in it. So counts are taken as Poisson draws around
intensities whose ratio is smooth in log-odds and which else are as rough as they like. Where a bin
holds much more than its noise its count hardly moves; where it holds less it follows the ratio
around it. Post-processing of what was released: it costs no privacy.

The likely path of log intensities is found by damped Newton steps for three degrees of smoothness,
which are then weighed by how likely each makes what was released (empirical Bayes; Laplace's
approximation).
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple, Protocol, Self

import numpy as np

from fedgauge.arrays import Floats
from fedgauge.histograms.axis import Axis

MOST_BINS: Final = 256  # time grows with the cube of them
_BENDS: Final = (0.1, 0.5, 2.5)  # how much the slope of the log ratio changes along log-odds
_MIDDLE: Final = 1  # of them
_LEVEL: Final = 9.0  # variances of what both classes have in common: its level, ...
_TILT: Final = 9.0
_WAVES: Final = 64.0
_ROUGH: Final = 4.0  # ... and what every bin has of its own
_OFFSET: Final = 4.0  # variances of the log ratio: its level, ...
_SLOPE: Final = 16.0
_UNEVEN: Final = 0.05**2
_AT_ENDS: Final = 1.0  # ... and what end bins have besides, which hold all that is beyond them
_SHARES: Final = (1e-6, 1 - 1e-6)  # of positives, as far as a ratio can be told
_END_WIDTH: Final = 1.0  # least width in log-odds of a bin that ends at 0 or 1
_WIDEST: Final = 4.0  # and most, as of one next to a bin for scores of 0: no line leads so far
_FARTHEST: Final = 36.0  # log-odds of an edge: beyond, float64 cannot tell 1 - p from 1
_LARGEST: Final = 44.0  # logarithm of a count
_FEWEST: Final = 1e-9  # of a class in a bin, so that none is without any
_KNOWN: Final = 1e-9  # of its noise is left in a sum that is known, so that it can be divided by
_FIRST_STEPS: Final = 20  # with the expected curvature, from far away; then Newton's method
_STEPS: Final = 40
_STRIDE: Final = 4.0  # that one step moves an intensity at most, in logarithms
_FLATTEST: Final = 0.25  # part of the expected curvature that a step counts on at least
_HALVINGS: Final = 8
_CLOSE: Final = 1e-3
_NEAR: Final = 0.1  # as close as is enough to plan by


def shrunk(axis: Axis, noisy: Floats, noise: Floats, *, quick: bool = False) -> Floats | None:
    """Likely counts of negatives and positives, by at most `MOST_BINS` bins; None if not found.

    `noisy` are unbiased counts by class and bin; both classes have examples. `noise` is the
    covariance of their noise, negatives first. `quick` takes one degree of smoothness, in a fifth
    of the time.

    >>> noisy = np.array([[90.0, 41.0, 12.0, 8.0], [12.0, 4.0, 38.0, 95.0]])
    >>> shrunk(Axis.uniform(4), noisy, 16 * np.eye(8)).round()
    array([[90., 40., 14.,  7.],
           [11.,  7., 37., 95.]])
    """
    prior = _prior(axis)
    totals = np.maximum(noisy.sum(axis=1), _FEWEST)
    level, ratio = np.log(totals / axis.bins).mean(), np.log(totals[1] / totals[0])
    half = (prior.centred + ratio) / 2
    family = _Poisson(np.concatenate([level - half, level + half]))
    with _one_thread():
        seen = _Seen.of(family, noisy.ravel(), noise)
        if quick:
            likely = _averaged(seen, [prior.of_both[_MIDDLE]], _NEAR)
        else:
            likely = _averaged(seen, prior.of_both, _CLOSE)
    return None if likely is None else likely.reshape(noisy.shape)


def shrunk_within(axis: Axis, noisy: Floats, totals: Floats, noise: Floats) -> Floats | None:
    """Likely positives by bin where the numbers of examples are known: only the ratio is not.

    None if they are not found.

    >>> noisy, totals = np.array([[12.0, -3.0, 38.0, 95.0], [100.0, 50.0, 50.0, 100.0]])
    >>> shrunk_within(Axis.uniform(4), noisy, totals, 16 * np.eye(4)).round()
    array([10.,  4., 36., 96.])
    """
    # Bins without examples have no ratio, and no positives.
    kept = totals > 0
    noisy, held, noise = noisy[kept], totals[kept], noise[np.ix_(kept, kept)]
    share = np.clip(noisy.sum() / held.sum(), *_SHARES)
    prior = _prior(axis)
    family = _Binomial(prior.centred[kept] + np.log(share / (1 - share)), held)
    covariances = [covariance[np.ix_(kept, kept)] for covariance in prior.of_ratio]
    likely = np.zeros(len(totals))
    with _one_thread():
        found = _averaged(_Seen.of(family, noisy, noise), covariances, _CLOSE)
    if found is None:
        return None
    likely[kept] = np.minimum(found, held - _FEWEST)
    return likely


def _one_thread() -> AbstractContextManager[object]:
    """Threads of linear algebra wait for each other longer than such small matrices take.

    Ten times as long where other work is going on. Needs threadpoolctl, which scikit-learn brings.
    """
    controller = _threads()
    return nullcontext() if controller is None else controller.limit(limits=1, user_api="blas")


@lru_cache(maxsize=1)
def _threads() -> Any:
    import scipy.linalg  # noqa: F401  (whose threads are among those found)

    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()


class _Prior(NamedTuple):
    """What is likely before anything is counted, for each degree of smoothness.

    `centred` are log-odds from their middle bin, along which a calibrated log ratio rises. The
    covariances are those of the log intensities of both classes, and of the log ratio.
    """

    centred: Floats
    of_both: tuple[Floats, ...]
    of_ratio: tuple[Floats, ...]


@lru_cache(maxsize=8)  # up to 8 MB each
def _prior(axis: Axis) -> _Prior:
    places = _places(axis)
    x = places - np.median(places)
    slopes, bends, each = np.outer(x, x), _integrated_wiener(x), np.eye(axis.bins)
    common = _LEVEL + _TILT * slopes / max(slopes.max(), 1.0) + _WAVES * bends + _ROUGH * each
    ends = np.zeros_like(each)
    ends[0, 0] = ends[-1, -1] = _AT_ENDS
    ratios = [
        _OFFSET + _SLOPE * slopes + bend**2 * bends + _UNEVEN * each + ends for bend in _BENDS
    ]
    both = [
        np.block([[common + r / 4, common - r / 4], [common - r / 4, common + r / 4]])
        for r in ratios
    ]
    return _Prior(x, tuple(both), tuple(ratios))


def _places(axis: Axis) -> Floats:
    """Middles of bins in log-odds, from anywhere; by rank where scores are no probabilities."""
    from scipy.special import logit

    if axis.low < 0 or axis.high > 1 or axis.kind == "values" or axis.bins < 3:
        by_rank: Floats = 2 * logit((np.arange(axis.bins) + 0.5) / axis.bins)
        return by_rank
    widths = np.diff(np.clip(logit(axis.edges[1:-1]), -_FARTHEST, _FARTHEST))
    widths = np.minimum(widths, _WIDEST)
    first, last = np.maximum(widths[[0, -1]], _END_WIDTH)
    edges = np.cumsum([0.0, first, *widths, last])
    middles: Floats = (edges[1:] + edges[:-1]) / 2
    return middles


def _integrated_wiener(x: Floats) -> Floats:
    """Covariance of a path from 0 whose slope is a random walk, to both sides."""
    far = np.abs(x)
    near, beyond = np.minimum.outer(far, far), np.maximum.outer(far, far)
    same_side = np.multiply.outer(x, x) > 0
    covariance: Floats = np.where(same_side, near**2 * (3 * beyond - near) / 6, 0.0)
    return covariance


class _Moments(NamedTuple):
    """Mean counts, their variances and skews, where a path of log intensities is.

    A mean rises with the path by its variance, the logarithm of a variance by its skew: the third
    moment over the second.
    """

    mean: Floats
    variance: Floats
    skew: Floats | float


class _Family(Protocol):
    """What counts are drawn from."""

    def at(self, path: Floats) -> _Moments:
        """Moments where log intensities, or log-odds, are so far from those likely at first."""


class _Poisson(NamedTuple):
    """Counts with log intensities that are likely at first."""

    start: Floats

    def at(self, path: Floats) -> _Moments:
        mean = np.exp(np.clip(self.start + path, -_LARGEST, _LARGEST))
        return _Moments(mean, mean, 1.0)


class _Binomial(NamedTuple):
    """Counts of known totals, with log-odds that are likely at first."""

    start: Floats
    totals: Floats

    def at(self, path: Floats) -> _Moments:
        from scipy.special import expit

        log_odds = np.clip(self.start + path, -_LARGEST, _LARGEST)
        share, rest = expit(log_odds), expit(-log_odds)
        return _Moments(self.totals * share, self.totals * share * rest, rest - share)


class _Seen(NamedTuple):
    """What was released, and its noise: covariances by block, each of it independent of others.

    Bins of one block have a node above them in common; of a flat tree each bin is one, of local
    reports all are in one. `alone` is the noise variance of each count if all others were known.
    """

    family: _Family
    noisy: Floats
    noise: Floats
    alone: Floats

    @classmethod
    def of(cls, family: _Family, noisy: Floats, noise: Floats) -> Self:
        blocks = _blocks(noise)
        if len(blocks) == 1:
            # The total of local reports is known, and no count varies alone.
            known = blocks + _KNOWN * blocks * np.eye(len(noisy))
            return cls(family, noisy, known, np.zeros(len(noisy)))
        alone = 1 / np.diagonal(np.linalg.inv(blocks), axis1=1, axis2=2)
        return cls(family, noisy, blocks, alone.ravel())


def _blocks(matrix: Floats) -> Floats:
    """The smallest square blocks of one size along the diagonal that hold all there is."""
    whole, held = len(matrix), np.count_nonzero(matrix)
    for size in (each for each in range(1, whole) if whole % each == 0):
        number = np.arange(whole // size)
        blocks = matrix.reshape(-1, size, len(number), size)[number, :, number]
        if np.count_nonzero(blocks) == held:
            return blocks
    return matrix[np.newaxis]


class _Fit(NamedTuple):
    """Under one degree of smoothness: the path, counts, and the logarithm of how likely it is."""

    path: Floats
    counts: Floats
    evidence: float
    found: bool


def _averaged(seen: _Seen, covariances: Sequence[Floats], close: float) -> Floats | None:
    """Likely counts under each degree of smoothness, as likely as that is; None if not found."""
    every = [_fit(seen, covariance, close) for covariance in covariances]
    # Where the likeliest is not found, the others contradict what was released.
    if not max(every, key=lambda fit: fit.evidence).found:
        return None
    fits = [fit for fit in every if fit.found]
    evidence = np.array([fit.evidence for fit in fits])
    weights = np.exp(evidence - evidence.max())
    counts = weights @ np.array([fit.counts for fit in fits]) / weights.sum()
    return np.asarray(np.maximum(counts, _FEWEST))


def _fit(seen: _Seen, covariance: Floats, close: float) -> _Fit:
    """The likely path, f = covariance @ pull, and likely counts.

    It solves pull = variance * (noise + diag(variance))^-1 (noisy - mean), all of them at f. Where
    noise is independent it is the mode where noisy + noise is drawn from Poisson(mean + noise).
    """
    # From the likely start: one nearer to what was seen, or to the path of a stiffer covariance,
    # saves steps and leads to another mode where the ratio is no slope.
    f, pull = np.zeros((2, len(seen.noisy)))
    found = False
    for number in range(_STEPS):
        view = _View.of(seen, f)
        if number < _FIRST_STEPS:
            wanted = view.wanted(covariance)
            step, more = covariance @ wanted - f, wanted - pull
            size = _damped(view, (f, pull), (step, more))
        else:
            try:
                step, more, size = _newton(view, covariance, pull)
            except np.linalg.LinAlgError:  # singular: there is no step from here
                break
        found = np.abs(step).max() < close
        if not size:  # and where a step is not finite, none of it is taken
            break
        f, pull = f + size * step, pull + size * more
        if found:
            break
    view = _View.of(seen, f)
    mean, rise, _ = view.moments
    joint = view.joint(covariance, rise)
    misfit = (seen.noisy - mean) @ view.weighed + f @ pull
    evidence = float(-misfit / 2 - np.log(np.diag(joint)).sum())
    return _Fit(f, mean + rise * view.weighed, evidence, found)


@dataclass(frozen=True, eq=False)
class _View:
    """What was seen, from one path: moments, and by block the spread of counts around means."""

    seen: _Seen
    path: Floats
    moments: _Moments
    spread: Floats

    @classmethod
    def of(cls, seen: _Seen, path: Floats) -> Self:
        moments = seen.family.at(path)
        number, size, _ = seen.noise.shape
        rise = moments.variance.reshape(number, size, 1) * np.eye(size)
        return cls(seen, path, moments, seen.noise + rise)

    @cached_property
    def weighed(self) -> Floats:
        """What is left to explain, over the spread."""
        return self.over_spread(self.seen.noisy - self.moments.mean)

    def over_spread(self, left: Floats) -> Floats:
        if len(self.spread) > 1:
            return _times(self._inverse, left)
        return _solved(self._factor, left)

    @cached_property
    def _inverse(self) -> Floats:
        alone = self.spread.shape[1] == 1
        return np.asarray(1 / self.spread if alone else np.linalg.inv(self.spread), dtype=float)

    @property
    def missing(self) -> Floats:
        """What a pull must be so that it is held: variance * (noise + diag(variance))^-1 left."""
        return self.moments.variance * self.weighed

    def slope(self) -> Floats:
        """By block, how `missing` changes with the path."""
        number, size, _ = self.spread.shape
        _, rise, skew = self.moments
        columns = rise.reshape(number, 1, size)
        over = rise.reshape(number, size, 1) * np.linalg.inv(self.spread)
        bent = (skew * self.missing).reshape(number, 1, size)
        return np.asarray((np.eye(size) - over) * bent - over * columns)

    @cached_property
    def _factor(self) -> Floats:
        return _cholesky(self.spread[0].copy())

    def joint(self, covariance: Floats, rise: Floats) -> Floats:
        """Factor of the covariance of counts that rise so fast with a path of such a covariance."""
        joint = rise[:, np.newaxis] * covariance
        joint *= rise
        number, size, _ = self.spread.shape
        each = np.arange(number)
        joint.reshape(number, size, number, size)[each, :, each] += self.spread
        return _cholesky(joint)

    def wanted(self, covariance: Floats) -> Floats:
        """What pulls the path to where a step of Newton's method takes it."""
        _, rise, skew = self.moments
        # How much steeper than expected the equation is here: exact where noise is independent.
        steeper = 1 - skew * self.weighed * self.seen.alone / rise
        steeper = np.sqrt(np.maximum(steeper, _FLATTEST))
        ahead, left = steeper * rise, _times(self.spread, self.weighed / steeper)
        joint = self.joint(covariance, ahead)
        return np.asarray(ahead * _solved(joint, ahead * self.path + left))


def _newton(view: _View, covariance: Floats, pull: Floats) -> tuple[Floats, Floats, float]:
    """A step of Newton's method, and the part of it that brings the equation nearer."""
    number, size, _ = view.spread.shape
    whole = len(pull)
    bent = (view.slope() @ covariance.reshape(number, size, whole)).reshape(whole, whole)
    lacking = pull - view.missing
    more = np.asarray(np.linalg.solve(np.eye(whole) - bent, -lacking), dtype=np.float64)
    step = covariance @ more
    part = min(1.0, _STRIDE / max(float(np.abs(step).max()), _CLOSE))
    start = float(lacking @ covariance @ lacking)
    for _ in range(_HALVINGS):
        there = pull + part * more - _View.of(view.seen, view.path + part * step).missing
        if float(there @ covariance @ there) < start:
            return step, more, part
        part /= 2
    return step, more, 0.0


def _times(blocks: Floats, vector: Floats) -> Floats:
    """A matrix that is nothing but these blocks, times a vector."""
    return np.asarray(blocks @ vector.reshape(len(blocks), -1, 1)).ravel()


def _cholesky(matrix: Floats) -> Floats:
    """The upper factor of a symmetric matrix, which is overwritten."""
    from scipy.linalg.lapack import dpotrf  # without checks that take longer than small factors

    factor, failed = dpotrf(matrix.T, overwrite_a=True)
    if failed:
        raise np.linalg.LinAlgError("a covariance is not positive definite.")
    return np.asarray(factor)


def _solved(factor: Floats, right: Floats) -> Floats:
    """The matrix of a factor, into a vector."""
    from scipy.linalg.lapack import dpotrs

    return np.asarray(dpotrs(factor, right)[0])


def _damped(view: _View, at: tuple[Floats, Floats], step: tuple[Floats, Floats]) -> float:
    """The part of a step that is no further than one may go, and makes what was seen likelier."""

    def misfit(size: float) -> float:
        f, pull = (before + size * move for before, move in zip(at, step, strict=True))
        left = view.seen.noisy - view.seen.family.at(f).mean
        return float(left @ view.over_spread(left) + f @ pull)

    size = min(1.0, _STRIDE / max(float(np.abs(step[0]).max()), _CLOSE))
    start = (view.seen.noisy - view.moments.mean) @ view.weighed + at[0] @ at[1]
    for _ in range(_HALVINGS):
        if misfit(size) <= start:
            break
        size /= 2
    return size
