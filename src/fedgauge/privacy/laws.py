"""Noise laws as tables, and draws from them at a stated distance from the true law.

A table holds the cumulative probabilities of a law in 128-bit fixed point, computed in
high precision; a uniform 128-bit number picks a value by inversion. What is drawn differs
from the true law only by the rounding of the table and by its cut tails, and
:attr:`DrawTable.distance` bounds that difference in total variation.
"""

import bisect
import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedgauge.errors import PlanError
from fedgauge.privacy.keystream import WordSource

BITS: Final = 128
_PRECISION: Final = 400  # bits; leaves 2^-250 after the longest recurrences
_TAIL_BITS: Final = 120
TAIL_RATE: Final = _TAIL_BITS * math.log(2)  # tails are cut where exp(-TAIL_RATE) is left
_MOST_VALUES: Final = 1 << 18
TOO_WIDE: Final = "the noise is too wide to be drawn exactly. Raise epsilon, or send fewer levels."

Draws = NDArray[np.int64]


class DrawTable:
    """A law on consecutive integers, ready to be drawn from.

    Attributes
    ----------
    first
        The smallest value.
    cumulative
        ``round(2**128 P(X <= first + i))`` for every value but the last.
    mean, variance
        Moments of the true law.
    distance
        Bound on the total-variation distance of one draw to the true law.
    """

    def __init__(self, first: int, cumulative: list[int], mean: Any, variance: Any) -> None:
        self.first = first
        self.cumulative = tuple(cumulative)
        self.mean, self.variance = float(mean), float(variance)
        # Each rounded step moves at most 2^-129 between neighbours; the cut tails move to the ends.
        self.distance = len(cumulative) * 2.0 ** -(BITS + 1) + 2.0**-_TAIL_BITS
        self._high = np.array([min(c >> 64, 2**64 - 1) for c in cumulative], dtype=np.uint64)

    def draw(self, source: WordSource, count: int) -> Draws:
        """Independent draws."""
        words = source.words(count)
        if not self.cumulative:  # noise so small that one value has all the mass
            return np.full(count, self.first, dtype=np.int64)
        index = np.searchsorted(self._high, words, side="right")
        # 128 bits decide; the low 64 are drawn only where the high 64 leave it open.
        for i in np.flatnonzero(self._high.take(index - 1) == words):
            number = (int(words[i]) << 64) | int(source.words(1)[0])
            index[i] = bisect.bisect_right(self.cumulative, number)
        return index.astype(np.int64) + self.first


@lru_cache(maxsize=256)
def negative_binomial(parts: Fraction, epsilon: Fraction | float) -> DrawTable:
    """NB with shape `parts` and a = exp(-epsilon): P(k) ~ Gamma(k + parts) / k! a^k."""
    import mpmath  # here and below: only who draws noise waits for it

    _check_width(Fraction(TAIL_RATE) / Fraction(epsilon))  # which may be below all floats
    with mpmath.workprec(_PRECISION):
        a, r = mpmath.exp(-_exactly(Fraction(epsilon))), _exactly(parts)
        # Masses rise from the first one, and with them its rounding, by a factor of at most 1 / it.
        bits = _PRECISION + 2 * _TAIL_BITS + math.ceil(-mpmath.log((1 - a) ** r, 2))
        mean, variance = r * a / (1 - a), r * a / (1 - a) ** 2
    with mpmath.workprec(2 * bits):
        a, r = mpmath.exp(-_exactly(Fraction(epsilon))), _exactly(parts)
        scale = mpmath.mpf(2) ** bits
        ratio, first = int(a * scale), int((1 - a) ** r * scale)
    return DrawTable(0, _negative_binomial_steps(parts, ratio, first, bits), mean, variance)


def _negative_binomial_steps(parts: Fraction, ratio: int, mass: int, bits: int) -> list[int]:
    """Cumulative probabilities of all values but the last, in fixed point.

    `ratio` is a and `mass` is P(0), both in units of 2^-bits. Whole numbers, since the tables of
    wide noise have 10^5 values and mpmath takes ten times as long.
    """
    above, below = parts.numerator, parts.denominator
    tail, shift = bits - (_TAIL_BITS + 2), bits - BITS
    total, half = 0, 1 << (shift - 1)
    cumulative: list[int] = []
    # More shares than parties make the tails longer, though not twice as long.
    for k in range(2 * _MOST_VALUES):
        # P(k + 1) / P(k) = rising / whole; where to end is said in `_above`.
        rising, divisor = ratio * (k * below + above), (k + 1) * below
        left = (divisor << bits) - rising
        if left > 0 and mass * rising < left << tail:
            return cumulative
        total += mass
        cumulative.append((total + half) >> shift)
        mass = (mass * rising >> bits) // divisor
    raise PlanError(TOO_WIDE)


@lru_cache(maxsize=256)
def poisson(mean: Fraction) -> DrawTable:
    """Poisson: P(k) ~ mean^k / k!."""
    import mpmath

    with mpmath.workprec(_PRECISION):
        rate = _exactly(mean)
        mode = int(mpmath.floor(rate))
        peak = mpmath.exp(mode * mpmath.log(rate) - rate - mpmath.loggamma(mode + 1))
        above = _above(peak, mode, lambda k: rate / (k + 1))
        below = _below(peak, mode, lambda k: k / rate, least=0)
        return DrawTable(mode - len(below), _cumulated(below[::-1] + above), rate, rate)


@lru_cache(maxsize=256)
def discrete_laplace(epsilon: float) -> DrawTable:
    """P(k) ~ exp(-epsilon |k|)."""
    import mpmath

    _check_width(TAIL_RATE / epsilon)
    with mpmath.workprec(_PRECISION):
        a = mpmath.exp(-mpmath.mpf(epsilon))
        above = _above((1 - a) / (1 + a), 0, lambda _: a)
        cumulative = _cumulated(above[:0:-1] + above)
        return DrawTable(1 - len(above), cumulative, 0.0, 2 * a / (1 - a) ** 2)


@lru_cache(maxsize=256)
def discrete_gaussian(sigma2: Fraction) -> DrawTable:
    """P(k) ~ exp(-k^2 / (2 sigma2))."""
    import mpmath

    with mpmath.workprec(_PRECISION):
        s = _exactly(sigma2)
        above = _above(mpmath.mpf(1), 0, lambda k: mpmath.exp(-(2 * k + 1) / (2 * s)))
        total = 2 * mpmath.fsum(above) - above[0]
        above = [mass / total for mass in above]
        variance = 2 * mpmath.fsum(k * k * mass for k, mass in enumerate(above))
        return DrawTable(1 - len(above), _cumulated(above[:0:-1] + above), 0.0, variance)


def _check_width(values: float | Fraction) -> None:
    if values > _MOST_VALUES:
        raise PlanError(TOO_WIDE)


def _exactly(number: Fraction) -> Any:
    import mpmath

    return mpmath.mpf(number.numerator) / number.denominator


def _cumulated(masses: list[Any]) -> list[int]:
    """Cumulative probabilities of all values but the last, in fixed point."""
    import mpmath

    scale = mpmath.mpf(2) ** BITS
    total, cumulative = mpmath.mpf(0), []
    for mass in masses[:-1]:
        total += mass
        cumulative.append(int(mpmath.nint(total * scale)))
    return cumulative


def _above(mass: Any, start: int, ratio: Callable[[int], Any]) -> list[Any]:
    """Masses at start, start + 1, ... until what is left is negligible.

    ``ratio(k) = P(k + 1) / P(k)`` never increases for these laws once below 1, so the tail
    after k is at most ``P(k) ratio(k) / (1 - ratio(k))``.
    """
    import mpmath

    tail = mpmath.mpf(2) ** -(_TAIL_BITS + 2)
    masses = [mass]
    for k in range(start, start + _MOST_VALUES):
        step = ratio(k)
        if step < 1 and masses[-1] * step / (1 - step) < tail:
            return masses
        masses.append(masses[-1] * step)
    raise PlanError(TOO_WIDE)


def _below(mass: Any, start: int, ratio: Callable[[int], Any], *, least: int) -> list[Any]:
    """Masses at start - 1, start - 2, ... likewise; ``ratio(k) = P(k - 1) / P(k)``."""
    import mpmath

    tail = mpmath.mpf(2) ** -(_TAIL_BITS + 2)
    masses: list[Any] = []
    for k in range(start, least, -1):
        step = ratio(k)
        if step < 1 and mass * step / (1 - step) < tail:
            break
        mass = mass * step
        masses.append(mass)
    return masses
