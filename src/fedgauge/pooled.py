"""What reached the server: counts on an axis, and how noisy they are."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedgauge import repair
from fedgauge.axis import Axis
from fedgauge.lookup import Floats

SIGNAL: Final = 4.0  # standard deviations that a class must stand out of the noise


@dataclass(frozen=True, eq=False)
class PooledCounts:
    """Counts of negatives and positives by bin, and the noise in them.

    Attributes
    ----------
    axis
        The score axis.
    released
        Counts by class and bin: whole numbers, or under noise unbiased estimates, which may
        be negative.
    tree, variances
        Branchings over the bins and the noise variance of one node at each level; no
        variances where there is no noise.
    """

    axis: Axis
    released: NDArray[Any]
    tree: tuple[int, ...]
    variances: tuple[float, ...] = ()

    @property
    def noisy(self) -> bool:
        """Whether noise was added on the way."""
        return bool(self.variances)

    @cached_property
    def unbiased(self) -> Floats:
        """The counts in floats, as released: right on average, possibly negative."""
        return np.asarray(self.released, dtype=np.float64)

    @cached_property
    def counts(self) -> Floats:
        """The counts made non-negative; the same without noise."""
        return repair.monotone(self.unbiased)

    @property
    def negatives(self) -> float:
        """Number of negatives; an estimate under noise."""
        return float(self.counts[0].sum())

    @property
    def positives(self) -> float:
        """Number of positives; an estimate under noise."""
        return float(self.counts[1].sum())

    @property
    def hidden(self) -> str | None:
        """The class that does not stand out of the noise, if one does not."""
        totals = self.unbiased.sum(axis=1)
        for total, name in zip(totals, ("negatives", "positives"), strict=True):
            if total < SIGNAL * self.spread_of_totals:
                return name
        return None

    @property
    def spread_of_totals(self) -> float:
        """Standard deviation of the noise in the total of a class."""
        return math.sqrt(repair.total_variance(self.tree, self.variances)) if self.noisy else 0.0

    def covariance(self, left: Floats, right: Floats) -> Floats:
        """Noise covariance of weighted sums of the released counts of one class.

        Weights have bins as their last axis.
        """
        if not self.noisy:
            return np.zeros(left.shape[:-1])
        return repair.noise_covariance(self.tree, self.variances, left, right)

    def noise_variance(self, weights: Floats) -> Floats:
        """Noise variance of ``sum(weights * released)``, weights by class and bin."""
        variance: Floats = self.covariance(weights, weights).sum(axis=-1)
        return variance

    def redrawn(self, draws: int, rng: np.random.Generator, *, sampling: bool) -> Floats:
        """Counts as they would come out again, by draw, class and bin.

        The noise is drawn anew around the likely counts and repaired in the same way; with
        `sampling` the examples are too, as a bootstrap does. A way to see what chance does
        to a result: this noise protects nothing.
        """
        start = np.broadcast_to(self.counts, (draws, *self.counts.shape))
        drawn = rng.poisson(start).astype(np.float64) if sampling else start
        if not self.noisy:
            return drawn
        flat = drawn.reshape(2 * draws, -1)
        noisy = redraw(flat, self.tree, self.variances, rng)
        return repair.monotone(noisy).reshape(drawn.shape)


def redraw(
    counts: Floats, tree: Sequence[int], variances: Sequence[float], rng: np.random.Generator
) -> Floats:
    """Counts as they would come out of the same mechanism: noise, then least squares.

    A way to see what noise does to a result. The noise here protects nothing.
    """
    levels = []
    for depth, variance in enumerate(variances):
        nodes = math.prod(tree[: depth + 1])
        exact = counts.reshape(len(counts), nodes, -1).sum(axis=2)
        levels.append(exact + rng.laplace(0.0, math.sqrt(variance / 2), exact.shape))
    return repair.consistent(levels, tree, variances)
