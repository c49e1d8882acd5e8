"""Randomized response of labels: the chance of a flip, flips, and what flipped labels add up to.

Each label is told as it is, or with a chance of rho as the other one (Warner 1965). Its two
probabilities are then 1 - rho and rho, whichever label it is, so their ratio is (1 - rho) / rho.
"""

import numpy as np
from numpy.typing import NDArray

from fedgauge.privacy.keystream import WordSource
from fedgauge.privacy.oracles import KEEP, WHOLE, draw_bits, keeps, least, odds
from fedgauge.typing import Floats

Flags = NDArray[np.bool_]
Counts = NDArray[np.int64]


def least_chance(epsilon: float) -> int:
    """The least chance of a flip, out of 2^64, that keeps epsilon.

    1 / (e^epsilon + 1) is irrational. It is rounded up, so that the ratio of probabilities is at
    most e^epsilon.

    Examples
    --------
    >>> least_chance(1.0) / 2**64
    0.2689414213699951
    """
    return least(epsilon, lambda power: 1 / (power + 1), odds)


def is_chance(chance: int) -> bool:
    """Whether labels can be flipped with a chance and still tell something."""
    return 0 < chance < KEEP


def keeps_epsilon(chance: int, epsilon: float) -> bool:
    """Whether flips of this chance tell no more of a label than epsilon allows."""
    return keeps(odds(chance), epsilon)


def flip(labels: Flags, chance: int, source: WordSource) -> Flags:
    """The labels, each the other one with this chance out of 2^64, exactly."""
    return labels ^ draw_bits(source, chance, len(labels))


def debias(told: Counts, totals: Counts, chance: int) -> Floats:
    """Unbiased counts of positives, where so many of `totals` labels are told to be positive."""
    rho, contrast = _rates(chance)
    positives: Floats = (told - rho * totals) / contrast
    return positives


def retold(counts: Floats, chance: int) -> Floats:
    """How many labels were told to be of each class, where these are the unbiased counts.

    Examples
    --------
    >>> told, totals, chance = np.array([3, 7]), np.array([10, 9]), least_chance(1.0)
    >>> positives = debias(told, totals, chance)
    >>> retold(np.array([totals - positives, positives]), chance).round(9).tolist()
    [[7.0, 2.0], [3.0, 7.0]]
    """
    rho, contrast = _rates(chance)
    told: Floats = counts * contrast + rho * counts.sum(axis=0)
    return told


def variances(totals: Floats, chance: int) -> Floats:
    """Variance of each unbiased count: it is the same whatever the labels are."""
    rho, contrast = _rates(chance)
    by_bin: Floats = totals * (rho * (1.0 - rho) / contrast**2)
    return by_bin


def _rates(chance: int) -> tuple[float, float]:
    """rho, and 1 - 2 rho, which is divided by: rounded once, also where rho is nearly a half."""
    return chance / WHOLE, (WHOLE - 2 * chance) / WHOLE
