"""Noise shares: what each client adds, and what the sum of shares is."""

import math
from fractions import Fraction
from typing import Final, Literal, assert_never

import numpy as np

from fedgauge.errors import PlanError
from fedgauge.privacy import laws
from fedgauge.privacy.cohort import Cohort
from fedgauge.privacy.keystream import WordSource
from fedgauge.privacy.laws import Draws, DrawTable

Noise = Literal["polya", "skellam", "discrete-gaussian"]

_TINY: Final = 1e-300


class ShareLaw:
    """The law of the sum of some clients' shares at one node.

    Parameters
    ----------
    noise
        The mechanism.
    parameter
        Strength of the noise, as a plan states it: the budget for polya, the mean of each
        Poisson for skellam, sigma squared for the discrete Gaussian. It belongs to the sum of
        `parties` shares.
    parties
        Honest survivors that the noise must come from (M).
    shares
        How many shares are added up; 1 is what one client adds.
    sensitivity
        How far one unit can move all numbers that this noise is on, in the L1 norm. Polya
        noise follows from it; the parameters of the others account for it already.
    """

    def __init__(
        self,
        noise: Noise,
        parameter: float,
        *,
        parties: int,
        shares: int = 1,
        sensitivity: int,
    ) -> None:
        self._repeats, self._signed, self._parts = 1, False, math.inf
        part = Fraction(shares, parties)
        self._table: DrawTable
        match noise:
            case "polya":
                # M differences of NB(1/M, 1 - a) add up to discrete Laplace with parameter a.
                self._table = laws.negative_binomial(part, Fraction(parameter) / sensitivity)
                self._parts = shares / parties
            case "skellam":
                self._table = laws.poisson(Fraction(parameter) * part)
            case "discrete-gaussian":
                # Sums of discrete Gaussians are not discrete Gaussian: draw every share.
                self._table = laws.discrete_gaussian(Fraction(parameter) / parties)
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
    rate = laws.TAIL_RATE
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

    Whoever reads the result and took part can subtract a share of their own, so shares of
    possible colluders do not count. More survivors than the least only add noise.
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
