"""Noise for one number at a time, drawn exactly: whole numbers and fractions, never floats.

Tables of a law (`privacy/laws.py`) serve a million draws of narrow noise. A sum of ranks needs a
single draw that is a million wide, for which Canonne, Kamath & Steinke 2020, algorithms 1 to 3,
need a handful of random words. How long a draw takes says a little of how large it is: whoever
answers over a network answers at a time that does not depend on it.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from fedgauge.privacy.keystream import WordSource

_WORDS: Final = 16  # read at once


class RandomBits:
    """Uniform numbers and coins from random words."""

    def __init__(self, source: WordSource) -> None:
        self._source = source
        self._words: list[int] = []

    def below(self, limit: int) -> int:
        """A uniform number from 0 to below `limit`, any whole number."""
        bits = (limit - 1).bit_length()
        while True:
            number = self._bits(bits)
            if number < limit:
                return number

    def _bits(self, bits: int) -> int:
        number, words = 0, -(-bits // 64)
        for _ in range(words):
            if not self._words:
                self._words = self._source.words(_WORDS).tolist()
            number = (number << 64) | self._words.pop()
        return number >> (64 * words - bits)

    def happens(self, chance: Fraction) -> bool:
        """True with a chance from 0 to 1."""
        return self.below(chance.denominator) < chance.numerator

    def decays(self, exponent: Fraction) -> bool:
        """True with chance exp(-exponent), for an exponent of at least 0 (algorithm 1)."""
        while exponent > 1:
            if not self.decays(Fraction(1)):
                return False
            exponent -= 1
        terms = 1
        while self.happens(exponent / terms):
            terms += 1
        return terms % 2 == 1


@dataclass(frozen=True)
class DiscreteLaplace:
    """P(k) ~ exp(-|k| / scale) on all whole numbers; 0 for certain where the scale is 0.

    Examples
    --------
    >>> round(DiscreteLaplace(Fraction(3)).variance, 2)
    17.83
    """

    scale: Fraction

    @property
    def variance(self) -> float:
        """Variance of a draw."""
        if not self.scale or self.scale < Fraction(1, 1000):
            return 0.0  # below 1e-400
        return 0.5 / math.sinh(0.5 / float(self.scale)) ** 2

    def reach(self, chance: float) -> float:
        """How far a draw goes, to either side, with at most this probability beyond it.

        Of a discrete Laplace law, ``P(|k| >= t) = 2 exp(-t / scale) / (1 + exp(-1 / scale))``.
        """
        return float(self.scale) * math.log(2 / chance)

    def draw(self, bits: RandomBits) -> int:
        """One draw (algorithm 2)."""
        if not self.scale:
            return 0
        top, bottom = self.scale.numerator, self.scale.denominator
        while True:
            part = bits.below(top)
            if not bits.decays(Fraction(part, top)):
                continue
            whole = 0
            while bits.decays(Fraction(1)):
                whole += 1
            size, negative = (part + top * whole) // bottom, bits.below(2)
            if size or not negative:  # else 0 would come twice as often
                return -size if negative else size


@dataclass(frozen=True)
class DiscreteGaussian:
    """P(k) ~ exp(-k^2 / (2 sigma2)) on all whole numbers; 0 for certain where that is 0.

    Examples
    --------
    >>> DiscreteGaussian(Fraction(9)).variance
    9.0
    """

    sigma2: Fraction

    @property
    def variance(self) -> float:
        """At least the variance of a draw, and no more than 3% above it from a sigma of 0.6 on."""
        return float(self.sigma2)

    def reach(self, chance: float) -> float:
        """How far a draw goes, to either side, with at most this probability beyond it.

        Its moment generating function is at most a normal law's (Canonne, Kamath & Steinke 2020),
        and so by Chernoff's bound ``P(|k| >= t) <= 2 exp(-t^2 / (2 sigma2))``.
        """
        return math.sqrt(2 * float(self.sigma2) * math.log(2 / chance))

    def draw(self, bits: RandomBits) -> int:
        """One draw (algorithm 3)."""
        if not self.sigma2:
            return 0
        scale = math.isqrt(self.sigma2.numerator // self.sigma2.denominator) + 1
        proposed = DiscreteLaplace(Fraction(scale))
        while True:
            value = proposed.draw(bits)
            if bits.decays((abs(value) - self.sigma2 / scale) ** 2 / (2 * self.sigma2)):
                return value


Law = DiscreteLaplace | DiscreteGaussian
