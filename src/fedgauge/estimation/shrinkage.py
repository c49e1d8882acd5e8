"""Likely counts under noise, from a smooth ratio of both classes.

Noise is as large in a bin with few examples as in one with many. What most bins have in common is
that the ratio of positives to negatives changes little from one to the next: modes, ties and gaps
of scores are in both classes, and cancel in it. So counts are taken as Poisson draws around
intensities whose ratio is smooth in log-odds and which else are as rough as they like. Where a bin
holds much more than its noise its count hardly moves; where it holds less it follows the ratio
around it. Post-processing of what was released: it costs no privacy.

The posterior mode is found by damped Gauss-Newton steps for three degrees of smoothness, which are
then weighed by how likely each makes what was released (empirical Bayes; Laplace's approximation).
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

import numpy as np

from fedgauge.binning.axis import Axis
from fedgauge.typing import Floats

MOST_BINS: Final = 256  # time grows with the cube of them
_BENDS: Final = (0.1, 0.5, 2.5)  # how much the slope of the log ratio changes along log-odds
_LEVEL: Final = 9.0  # variances of what both classes have in common: its level, ...
_TILT: Final = 9.0
_WAVES: Final = 64.0
_ROUGH: Final = 4.0  # ... and what every bin has of its own
_OFFSET: Final = 4.0  # variances of the log ratio: its level, ...
_SLOPE: Final = 0.49
_UNEVEN: Final = 0.05**2
_AT_ENDS: Final = 1.0  # ... and what end bins have besides, which hold all that is beyond them
_SHARES: Final = (1e-6, 1 - 1e-6)  # of positives, as far as a ratio can be told
_END_WIDTH: Final = 1.0  # least width in log-odds of a bin that ends at 0 or 1
_LARGEST: Final = 44.0  # logarithm of a count
_STEPS: Final = 20
_FARTHEST: Final = 4.0  # that one step moves an intensity, in logarithms
_HALVINGS: Final = 8
_CLOSE: Final = 1e-3


def shrunk(axis: Axis, noisy: Floats, noise: Floats) -> Floats:
    """Likely counts of negatives and positives by bin.

    Parameters
    ----------
    axis
        The bins, at most `MOST_BINS`.
    noisy
        Unbiased counts by class and bin; both classes have examples.
    noise
        Covariance of the noise in them, negatives first.

    Examples
    --------
    >>> noisy = np.array([[90.0, 41.0, 12.0, 8.0], [12.0, 4.0, 38.0, 95.0]])
    >>> shrunk(Axis.uniform(4), noisy, 16 * np.eye(8)).round()
    array([[90., 40., 14.,  8.],
           [11.,  8., 37., 95.]])
    """
    prior = _prior(axis)
    totals = noisy.sum(axis=1)
    level, ratio = np.log(totals / axis.bins).mean(), np.log(totals[1] / totals[0])
    half = (prior.centred + ratio) / 2
    family = _Poisson(np.concatenate([level - half, level + half]))
    return _averaged(family, noisy.ravel(), noise, prior.of_both).reshape(noisy.shape)


def shrunk_within(axis: Axis, noisy: Floats, totals: Floats, noise: Floats) -> Floats:
    """Likely positives by bin, where the numbers of examples are known: only the ratio is not.

    Examples
    --------
    >>> noisy, totals = np.array([[12.0, -3.0, 38.0, 95.0], [100.0, 50.0, 50.0, 100.0]])
    >>> shrunk_within(Axis.uniform(4), noisy, totals, 16 * np.eye(4)).round()
    array([10.,  5., 35., 95.])
    """
    # Bins without examples have no ratio, and no positives.
    kept = totals > 0
    noisy, held, noise = noisy[kept], totals[kept], noise[np.ix_(kept, kept)]
    share = np.clip(noisy.sum() / held.sum(), *_SHARES)
    prior = _prior(axis)
    family = _Binomial(prior.centred[kept] + np.log(share / (1 - share)), held)
    covariances = [covariance[np.ix_(kept, kept)] for covariance in prior.of_ratio]
    likely = np.zeros(len(totals))
    likely[kept] = np.minimum(_averaged(family, noisy, noise, covariances), held)
    return likely


class _Prior(NamedTuple):
    """What is likely before anything is counted, for each degree of smoothness.

    `centred` are log-odds from their middle bin, along which a calibrated log ratio rises. The
    covariances are those of the log intensities of both classes, and of the log ratio.
    """

    centred: Floats
    of_both: tuple[Floats, ...]
    of_ratio: tuple[Floats, ...]


@lru_cache(maxsize=32)
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
    """The middles of bins in log-odds; by their rank where scores are no probabilities."""
    from scipy.special import logit

    if axis.low < 0 or axis.high > 1 or axis.kind == "values" or axis.bins < 3:
        by_rank: Floats = 2 * logit((np.arange(axis.bins) + 0.5) / axis.bins)
        return by_rank
    inner = logit(axis.edges[1:-1])
    first, last = inner[1] - inner[0], inner[-1] - inner[-2]
    low, high = inner[0] - max(first, _END_WIDTH), inner[-1] + max(last, _END_WIDTH)
    edges = np.concatenate([[low], inner, [high]])
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
    """Mean counts and their variances, which are also how fast means rise with log intensities."""

    mean: Floats
    variance: Floats


class _Family(Protocol):
    """What counts are drawn from."""

    def at(self, moved: Floats) -> _Moments:
        """Moments where log intensities, or log-odds, have moved so far from the likely ones."""


class _Poisson(NamedTuple):
    """Counts with likely log intensities."""

    start: Floats

    def at(self, moved: Floats) -> _Moments:
        mean = np.exp(np.clip(self.start + moved, -_LARGEST, _LARGEST))
        return _Moments(mean, mean)


class _Binomial(NamedTuple):
    """Counts of known totals, with likely log-odds."""

    start: Floats
    totals: Floats

    def at(self, moved: Floats) -> _Moments:
        from scipy.special import expit

        share = expit(np.clip(self.start + moved, -_LARGEST, _LARGEST))
        return _Moments(self.totals * share, self.totals * share * (1 - share))


class _Fit(NamedTuple):
    """Likely counts under one degree of smoothness, and the logarithm of how likely that is."""

    counts: Floats
    evidence: float


def _averaged(
    family: _Family, noisy: Floats, noise: Floats, covariances: Sequence[Floats]
) -> Floats:
    """Likely counts under each degree of smoothness, as likely as that is."""
    fits = [_fit(family, noisy, noise, covariance) for covariance in covariances]
    evidence = np.array([fit.evidence for fit in fits])
    weights = np.exp(evidence - evidence.max())
    counts = weights @ np.array([fit.counts for fit in fits]) / weights.sum()
    return np.asarray(np.maximum(counts, 0.0))


def _fit(family: _Family, noisy: Floats, noise: Floats, covariance: Floats) -> _Fit:
    """The most likely path, f = covariance @ pull, by Gauss-Newton steps; and counts around it."""
    from scipy.linalg import cho_factor, cho_solve

    f, pull = np.zeros((2, len(noisy)))
    for _ in range(_STEPS):
        mean, rise = family.at(f)
        spread = noise + np.diag(rise)
        joint = cho_factor(rise[:, np.newaxis] * covariance * rise + spread, check_finite=False)
        wanted = rise * cho_solve(joint, rise * f + noisy - mean, check_finite=False)
        step, more = covariance @ wanted - f, wanted - pull
        size = _damped(family, noisy, spread, (f, pull), (step, more))
        f, pull = f + size * step, pull + size * more
        if np.abs(size * step).max() < _CLOSE:
            break
    mean, rise = family.at(f)
    spread = noise + np.diag(rise)
    joint, _ = cho_factor(rise[:, np.newaxis] * covariance * rise + spread, check_finite=False)
    left = noisy - mean
    weighed = cho_solve(cho_factor(spread, check_finite=False), left, check_finite=False)
    evidence = -0.5 * (left @ weighed + f @ pull) - np.log(np.diag(joint)).sum()
    return _Fit(mean + rise * weighed, float(evidence))


def _damped(
    family: _Family,
    noisy: Floats,
    spread: Floats,
    at: tuple[Floats, Floats],
    step: tuple[Floats, Floats],
) -> float:
    """The part of a step that is no further than one may go, and makes what was seen likelier."""
    from scipy.linalg import cho_factor, cho_solve

    factor = cho_factor(spread, check_finite=False)

    def misfit(size: float) -> float:
        f, pull = (before + size * move for before, move in zip(at, step, strict=True))
        left = noisy - family.at(f).mean
        return float(left @ cho_solve(factor, left, check_finite=False) + f @ pull)

    size = min(1.0, _FARTHEST / max(float(np.abs(step[0]).max()), _CLOSE))
    start = misfit(0.0)
    for _ in range(_HALVINGS):
        if misfit(size) <= start:
            break
        size /= 2
    return size
