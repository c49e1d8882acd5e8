"""Ranks of scores in whole numbers, ties included, and the AUC as a sum of them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedgauge.errors import InputError
from fedgauge.typing import Floats, Indices

Ranks = NDArray[np.int64]


def doubled_midranks(scores: Floats) -> Ranks:
    """Twice the mean rank from 0 of each score: of scores below it, and of those it ties with.

    Doubled they are whole, so that noise on sums of them can be drawn exactly.

    Examples
    --------
    >>> doubled_midranks(np.array([0.1, 0.5, 0.5, 0.9])).tolist()
    [0, 3, 3, 6]
    """
    if not np.isfinite(scores).all():
        missing = int(np.count_nonzero(~np.isfinite(scores)))
        raise InputError(f"{missing:,} of {scores.size:,} scores are missing or infinite.")
    _, group, tied = np.unique(scores, return_inverse=True, return_counts=True)
    ranks: Ranks = (2 * (np.cumsum(tied) - tied) + tied - 1)[group]
    return ranks


def auc_of(positives: float, ranks: float, examples: int) -> float:
    """The AUC, from the number of positives and the sum of their doubled midranks.

    Exact where both are; under noise it can lie outside 0 to 1.

    Examples
    --------
    >>> auc_of(2, 9, 4)  # the second and the last of four, of which the middle two tie
    0.875
    """
    return (ranks - positives * (positives - 1)) / (2 * positives * (examples - positives))


def balance_rank(auc: float, positives: float, examples: int) -> float:
    """The doubled rank at which one positive more, or less, leaves the AUC as it is.

    To first order the AUC moves by ``(dS - c dP) / (2 P N)`` where c is this rank, S the sum of
    doubled ranks over positives, P their number and N that of negatives.
    """
    return 2 * (positives * (1 - auc) + auc * (examples - positives)) - 1


@dataclass(frozen=True, eq=False)
class PartyRanks:
    """What is known of the ranks of each party's examples, which are no secret.

    Attributes
    ----------
    examples
        How many there are in all.
    mean
        The mean doubled rank of each party, rounded: any whole number would do.
    reach
        How far a rank of the party is from its mean at most.
    highest
        The highest rank of the party.
    """

    examples: int
    mean: Ranks
    reach: Ranks
    highest: Ranks

    @classmethod
    def of(cls, ranks: Ranks, party: Indices, parties: int) -> "PartyRanks":
        """From the rank and the party of every example.

        Examples
        --------
        >>> known = PartyRanks.of(np.array([0, 2, 4, 8]), np.array([0, 1, 0, 1]), 2)
        >>> known.mean.tolist(), known.reach.tolist(), known.highest.tolist()
        ([2, 5], [2, 3], [4, 8])
        """
        rows = np.bincount(party, minlength=parties)
        sums = np.zeros(parties, dtype=np.int64)
        np.add.at(sums, party, ranks)
        mean = sums // np.maximum(rows, 1)
        reach, highest = np.zeros(parties, dtype=np.int64), np.zeros(parties, dtype=np.int64)
        np.maximum.at(reach, party, np.abs(ranks - mean[party]))
        np.maximum.at(highest, party, ranks)
        return cls(len(ranks), mean, reach, highest)

    @classmethod
    def evenly(cls, examples: int, parties: int, *, alike: bool) -> "PartyRanks":
        """Of distinct scores, as many at each party: dealt out in turn, or a range for each.

        Examples
        --------
        >>> PartyRanks.evenly(6, 2, alike=True).highest.tolist()
        [8, 10]
        >>> PartyRanks.evenly(6, 2, alike=False).highest.tolist()
        [4, 10]
        """
        party = np.arange(parties, dtype=np.int64)
        if alike:
            first, last = party, party + (examples - 1 - party) // parties * parties
        else:
            ends = -(-np.arange(parties + 1, dtype=np.int64) * examples // parties)
            first, last = ends[:-1], ends[1:] - 1
        return cls(examples, first + last, last - first, 2 * last)

    def __len__(self) -> int:
        return len(self.mean)
