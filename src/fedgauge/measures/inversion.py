"""Distances of noisy sums from zero: their value and interval by inverting a test along a path.

Sums D_k are normal around d_k with known variances. What is wanted is sum w_k |d_k|, or
sum w_k d_k^2; the same of the D_k is too large, most of all where all d_k are 0.
"""

import math
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

import numpy as np

from fedgauge.measures.intervals import Interval
from fedgauge.typing import Floats

_STEPS: Final = 64
_REFINEMENTS: Final = 3
_PAST: Final = 1.0 + 1e-12
_FAR: Final = 12.0  # deviations above what was seen where no interval ends

Power = Literal[1, 2]


class Deviations(NamedTuple):
    """Sums, each with its deviation from zero, and how they vary.

    `sums` and `covariance` are as measured; `weights` is what each counts for.
    """

    sums: Floats
    covariance: Floats
    weights: Floats

    @property
    def scales(self) -> Floats:
        """Standard deviations of the sums."""
        scales: Floats = np.sqrt(np.maximum(np.diag(self.covariance), 1e-300))
        return scales


class Inverted(NamedTuple):
    """A distance: its value, its interval, and where the sums lie that have this value."""

    value: float
    interval: Interval
    centres: Floats


def invert(deviations: Deviations, power: Power, z: float) -> Inverted:
    """The distance whose expected statistic is the one seen, and all that a test accepts.

    The test compares T = sum w |D|^power with its mean and deviation when the centres are those
    on a path through what was seen: towards zero each centre shrinks as
    ``max(0, |D| - l^2 s^2 / |D|)``, away from zero all grow by the same number of deviations.
    Where T is even less than centres of zero would give, the interval is that of as much.

    Examples
    --------
    >>> chance = Deviations(np.array([1.0, -1.2]), np.eye(2), np.ones(2))
    >>> found = invert(chance, 1, 1.96)
    >>> found.value < 2.2, found.interval.low
    (True, 0.0)
    """
    seen, scales = np.abs(deviations.sums), deviations.scales
    statistic = float(np.sum(deviations.weights * seen**power))
    moments = _moments(deviations, power)
    whole = float(np.max(seen / scales, initial=0.0)) * _PAST  # rounding leaves nothing above 0

    def centres(places: Floats) -> Floats:
        """Sums at places along the path: what was seen at 0, all zero at `-whole`."""
        at = places[:, np.newaxis]
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            lost = np.where((at < 0) & (seen > 0), (at * scales) ** 2 / seen, 0.0)
        moved: Floats = np.maximum(np.where(at < 0, seen - lost, seen + at * scales), 0.0)
        return moved

    def above(times: float, level: float) -> Callable[[Floats], Floats]:
        def gap(places: Floats) -> Floats:
            mean, deviation = moments(centres(places))
            return mean + times * deviation - level

        return gap

    (least,), _ = moments(np.zeros((1, len(seen))))
    # Chance only ever adds, so what is expected where sums are as seen is no less than was seen.
    places = np.array(
        [
            _crossing(above(0.0, statistic), -whole, 0.0),
            _crossing(above(z, statistic), -whole, 0.0),
            _crossing(above(-z, max(statistic, float(least))), -whole, _FAR + z),
        ]
    )
    path = centres(places)
    value, low, high = (float(each) for each in (deviations.weights * path**power).sum(axis=-1))
    return Inverted(value, Interval(min(low, value), max(high, value)), path[0])


def _crossing(rises: Callable[[Floats], Floats], low: float, high: float) -> float:
    """Where a function that rises crosses zero; the nearer end if it does not."""
    for _ in range(_REFINEMENTS):
        at = np.linspace(low, high, _STEPS + 1)
        gaps = rises(at)
        if gaps[0] >= 0:
            return low
        if not (gaps >= 0).any():
            return high
        first = int(np.argmax(gaps >= 0))
        low, high = float(at[first - 1]), float(at[first])
    below, above = gaps[first - 1 : first + 1]
    return low - (high - low) * float(below / (above - below))


def _moments(deviations: Deviations, power: Power) -> Callable[[Floats], tuple[Floats, Floats]]:
    """Mean and deviation of the statistic for centres, one row for each set of them."""
    from scipy.special import erf

    weights, scales = deviations.weights, deviations.scales
    signs = np.sign(deviations.sums)
    apart = deviations.covariance * np.outer(signs, signs)
    np.fill_diagonal(apart, 0.0)

    def squared(centres: Floats) -> tuple[Floats, Floats]:
        mean = (weights * (centres**2 + scales**2)).sum(axis=-1)
        own = (weights**2 * (2.0 * scales**4 + 4.0 * (centres * scales) ** 2)).sum(axis=-1)
        slopes = 2.0 * weights * centres
        joint = np.einsum("ij,jk,ik->i", slopes, apart, slopes)
        return mean, np.sqrt(np.maximum(own + joint, 0.0))

    def folded(centres: Floats) -> tuple[Floats, Floats]:
        ratio = centres / scales
        side = erf(ratio / math.sqrt(2.0))  # probability of the centre's side, less the other's
        each = scales * math.sqrt(2.0 / math.pi) * np.exp(-(ratio**2) / 2.0) + centres * side
        own = (weights**2 * np.maximum(centres**2 + scales**2 - each**2, 0.0)).sum(axis=-1)
        # Of two that vary together, the first term of the Hermite series of their moduli.
        slopes = weights * side
        joint = np.einsum("ij,jk,ik->i", slopes, apart, slopes)
        return (weights * each).sum(axis=-1), np.sqrt(np.maximum(own + joint, 0.0))

    return folded if power == 1 else squared
