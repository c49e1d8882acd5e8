"""Neighbouring bins in groups: what calibrators of steps sum over."""

from dataclasses import dataclass

import numpy as np

from fedgauge.measures.forecasts import Forecasts
from fedgauge.typing import Floats, Indices


@dataclass(frozen=True, eq=False)
class Partition:
    """Every bin in a group, in order.

    Attributes
    ----------
    owners
        The group of each bin, from 0, never falling.
    groups
        How many there are; some may hold no bin.
    """

    owners: Indices
    groups: int

    @classmethod
    def equal_mass(cls, totals: Floats, groups: int) -> "Partition":
        """About so many groups with about as many examples each, none of them empty.

        A bin belongs to the group that the middle one of its examples lies in; without examples,
        to its neighbour's.

        Examples
        --------
        >>> Partition.equal_mass(np.array([0.0, 1.0, 0.0, 1.0, 2.0]), 2).owners
        array([0, 0, 0, 0, 1])
        """
        middles = np.cumsum(totals) - totals / 2.0
        wanted = np.floor(middles * groups / totals.sum())
        firsts = np.flatnonzero(np.diff(wanted, prepend=-1.0))
        firsts = firsts[np.add.reduceat(totals, firsts) > 0]
        firsts[0] = 0
        owners = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(totals)))
        return cls(owners, len(firsts))

    @classmethod
    def equal_width(cls, scores: Floats, groups: int) -> "Partition":
        """So many left-closed groups of equal width from 0 to 1; a bin is where its mean score is.

        Examples
        --------
        >>> Partition.equal_width(np.array([0.1, 0.5, 0.9]), 2).owners
        array([0, 1, 1])
        """
        return cls(np.searchsorted(np.arange(1, groups) / groups, scores, "right"), groups)

    def sums(self, by_bin: Floats) -> Floats:
        """Sums over the bins of each group."""
        total = np.bincount(self.owners, by_bin, minlength=self.groups)
        return total.astype(np.float64, copy=False)

    def noise_variance(self, forecasts: Forecasts, weights: Floats) -> Floats:
        """Noise variance of each group's sum of counts, weighed by class and bin."""
        if not forecasts.pooled.noisy:
            return np.zeros(self.groups)
        members = np.arange(self.groups)[:, np.newaxis] == self.owners
        return forecasts.pooled.noise_variance(weights * members[:, np.newaxis])

    def excess(self, forecasts: Forecasts, p: Floats) -> tuple[Floats, Floats, Floats]:
        """Positives above what p promised, and its variance by sampling and by noise.

        The excess is right on average under noise; the variances are those where p holds.
        """
        weights = np.array([-p, 1.0 - p])
        return (
            self.sums((weights * forecasts.pooled.unbiased).sum(axis=0)),
            self.sums(forecasts.totals * p * (1.0 - p)),
            self.noise_variance(forecasts, weights),
        )
