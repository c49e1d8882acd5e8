"""Noise laws as tables, a client's share of the noise, and draws from both.

A table holds cumulative probabilities in 128-bit fixed point; a uniform 128-bit number picks a
value by inversion. A draw differs from the true law only by rounding and cut tails, in total
variation at most by :attr:`DrawTable.distance`.
"""

import bisect
import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, Literal, assert_never

import numpy as np
from numpy.typing import NDArray

from fedgauge.errors import PlanError
from fedgauge.privacy.cohort import Cohort
from fedgauge.privacy.keystream import WordSource

BITS: Final = 128
_PRECISION: Final = 400  # bits; leaves 2^-250 after the longest recurrences
_TAIL_BITS: Final = 120
TAIL_RATE: Final = _TAIL_BITS * math.log(2)  # tails are cut where exp(-TAIL_RATE) is left
_MOST_VALUES: Final = 1 << 18
TOO_WIDE: Final = "the noise is too wide to be drawn exactly. Raise epsilon, or send fewer levels."

Draws = NDArray[np.int64]


class DrawTable:
    """A law on consecutive integers from `first`, ready to be drawn from.

    `cumulative` is ``round(2**128 P(X <= first + i))`` for every value but the last; `mean` and
    `variance` are those of the true law; `distance` bounds the total variation of a draw from it.
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
    """Cumulative probabilities but the last; `ratio` (a) and `mass` (P(0)) in units of 2^-bits."""
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
    """Masses from `start` until the tail, <= ``P(k) ratio(k) / (1 - ratio(k))``, is negligible."""
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


Noise = Literal["polya", "skellam", "discrete-gaussian"]

_TINY: Final = 1e-300


class ShareLaw:
    """The law of the sum of `shares` of the clients' shares of noise at one node.

    `parameter` is the strength of `parties` honest shares together, as a plan states it: the budget
    for polya, the Poisson mean for skellam, sigma squared for the discrete Gaussian. `sensitivity`
    is how far one unit can move all numbers with this noise, in the L1 norm; only polya needs it.
    """

    def __init__(
        self, noise: Noise, parameter: float, *, parties: int, shares: int = 1, sensitivity: int
    ) -> None:
        self._repeats, self._signed, self._parts = 1, False, math.inf
        part = Fraction(shares, parties)
        self._table: DrawTable
        match noise:
            case "polya":
                # M differences of NB(1/M, 1 - a) add up to discrete Laplace with parameter a.
                self._table = negative_binomial(part, Fraction(parameter) / sensitivity)
                self._parts = shares / parties
            case "skellam":
                self._table = poisson(Fraction(parameter) * part)
            case "discrete-gaussian":
                # Sums of discrete Gaussians are not discrete Gaussian: draw every share.
                self._table = discrete_gaussian(Fraction(parameter) / parties)
                self._repeats, self._signed = shares, True
            case _:
                assert_never(noise)

    @property
    def variance(self) -> float:
        """Variance of the noise at one node; never quite zero, since it divides."""
        return max(self._table.variance * (self._repeats if self._signed else 2), _TINY)

    @property
    def reach(self) -> int:
        """Largest absolute value that can be drawn: tables are finite."""
        first, last = self._table.first, self._table.first + len(self._table.cumulative)
        if self._signed:
            return self._repeats * max(abs(first), abs(last))
        return last - first

    @property
    def parts(self) -> float:
        """Discrete Laplace laws that the sum is made of; infinite where its tails are lighter."""
        return self._parts

    @property
    def distance(self) -> float:
        """Bound on the total-variation distance of one draw to the ideal law."""
        return self._table.distance * (self._repeats if self._signed else 2)

    def draw(self, source: WordSource, shape: tuple[int, ...]) -> Draws:
        """Independent noise for each node."""
        count = int(np.prod(shape))
        if not self._signed:
            draws = self._table.draw(source, 2 * count)
            return (draws[:count] - draws[count:]).reshape(shape)
        total = np.zeros(count, dtype=np.int64)
        for _ in range(self._repeats):
            total += self._table.draw(source, count)
        return total.reshape(shape)


def table_values(noise: Noise, parameter: float, *, parties: int, sensitivity: int) -> float:
    """About how many values the table of one share or of all of them has, before it is made."""
    rate = TAIL_RATE
    match noise:
        case "polya":
            return rate * sensitivity / parameter
        case "skellam":  # Bernstein's bound on both tails of a Poisson law
            return 2 * (rate / 3 + math.sqrt(2 * rate * parameter))
        case "discrete-gaussian":
            return 2 * math.sqrt(2 * rate * parameter / parties)
        case _:
            assert_never(noise)


def honest_parties(cohort: Cohort) -> int:
    """Survivors whose noise nobody else knows; the noise is calibrated to them.

    Possible colluders can subtract their shares. More survivors than the least only add noise.
    """
    parties = cohort.min_survivors - cohort.max_colluding
    if parties < 1:
        raise PlanError(
            f"no noise is left when {cohort.max_colluding} of {cohort.min_survivors} clients "
            "collude. Raise min_survivors above max_colluding."
        )
    return parties


def at_most(budget: Fraction) -> float:
    """The largest float that is not above an exact budget."""
    value = float(budget)
    return value if Fraction(value) <= budget else float(np.nextafter(value, 0.0))
