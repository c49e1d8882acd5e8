"""Counts where the totals of bins are known, and of labels only the positives were counted."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from fedgauge.binning.axis import Axis
from fedgauge.estimation import repair
from fedgauge.estimation.pooled import PooledCounts
from fedgauge.estimation.released import Released
from fedgauge.estimation.shrinkage import shrunk_within
from fedgauge.plan import EvaluationPlan, Slice
from fedgauge.plan.task import LabelTask
from fedgauge.typing import Floats


def counts_of(plan: EvaluationPlan, released: Released, slice_: Slice) -> PooledCounts:
    """What a release says of one slice."""
    kind = LabelCounts if isinstance(plan.task, LabelTask) else PooledCounts
    return kind.of(plan, released, slice_)


@dataclass(frozen=True, eq=False)
class LabelCounts(PooledCounts):
    """Negatives and positives that add up to known totals: the noise of one is that of both.

    Attributes
    ----------
    bin_variances
        The noise variance of each bin, where it differs: that of labels flipped at random. None
        where noise was added to the counts of a tree.
    """

    bin_variances: Floats | None = None

    @classmethod
    def of(cls, plan: EvaluationPlan, released: Released, slice_: Slice) -> Self:
        """What a release says of one slice."""
        counts = super().of(plan, released, slice_)
        if not plan.final.flips_labels:
            return counts
        ((by_bin, _),) = plan.node_variances(counts.unbiased)
        return replace(counts, bin_variances=by_bin)

    @property
    def noisy(self) -> bool:
        """Whether noise was added on the way."""
        return bool(self.variances) or self.bin_variances is not None

    @cached_property
    def totals(self) -> Floats:
        """Examples by bin, which are known."""
        totals: Floats = np.rint(self.unbiased.sum(axis=0))
        return totals

    @cached_property
    def counts(self) -> Floats:
        """The counts made possible, from 0 to the totals; the same without noise."""
        if not self.noisy:
            return self.unbiased
        (counts,) = self._repaired(self.unbiased[np.newaxis, 1], self.totals[np.newaxis])
        return np.asarray(counts)

    def _shrunk(self, axis: Axis) -> Floats:
        positives = shrunk_within(axis, self.unbiased[1], self.totals, self.noise_matrix)
        # As many as counted, by shares of what bins have room for: none gets beyond its total.
        more = float(self.counts[1].sum() - positives.sum())
        room = self.totals - positives if more > 0 else positives
        if more:
            positives = np.clip(positives + room * (more / room.sum()), 0.0, self.totals)
        return np.stack([self.totals - positives, positives])

    @cached_property
    def noise_matrix(self) -> Floats:
        """Noise covariance of the positives, which is that of the negatives."""
        if self.bin_variances is not None:
            return np.diag(self.bin_variances)
        return repair.leaf_covariance(self.tree, self.variances)

    @property
    def leaf_variances(self) -> Floats:
        """Noise variance of each released count."""
        if self.bin_variances is not None:
            return np.broadcast_to(self.bin_variances, self.released.shape)
        return np.full(self.released.shape, repair.leaf_variance(self.tree, self.variances))

    def covariance(self, left: Floats, right: Floats) -> Floats:
        """Noise covariance of weighted sums of the released counts.

        A positive more is a negative less, so only the difference of their weights matters.
        """
        if not self.noisy:
            return np.zeros(np.broadcast_shapes(left.shape, right.shape)[:-2])
        left, right = (w[..., 1, :] - w[..., 0, :] for w in (left, right))
        if self.bin_variances is not None:
            by_bin: Floats = (left * right * self.bin_variances).sum(axis=-1)
            return by_bin
        return repair.noise_covariance(self.tree, self.variances, left, right)

    def _redraw(self, draws: int, rng: np.random.Generator, *, sampling: bool) -> Floats:
        start = np.broadcast_to(self.counts, (draws, *self.counts.shape))
        drawn = rng.poisson(start).astype(np.float64) if sampling else start
        if not self.noisy:
            return drawn
        positives, totals = drawn[:, 1], drawn.sum(axis=1)
        return self._repaired(self._with_noise(positives, rng), totals)

    def _with_noise(self, positives: Floats, rng: np.random.Generator) -> Floats:
        if self.bin_variances is not None:
            return rng.normal(positives, np.sqrt(self.bin_variances))
        levels = []
        for depth, variance in enumerate(self.variances):
            nodes = int(np.prod(self.tree[: depth + 1]))
            exact = positives.reshape(len(positives), nodes, -1).sum(axis=-1)
            levels.append(exact + rng.laplace(0.0, np.sqrt(variance / 2.0), exact.shape))
        return repair.consistent(levels, self.tree, self.variances)

    def _repaired(self, positives: Floats, totals: Floats) -> Floats:
        """Both classes, by draw, class and bin, from noisy positives."""
        nearest = repair.within_totals(positives, totals)
        return np.stack([totals - nearest, nearest], axis=1)
