"""Negatives against positives: what every metric, curve and band is read from."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np

from fedgauge.arrays import Floats
from fedgauge.estimation.counts import PooledCounts
from fedgauge.estimation.distribution import (
    Aligned,
    Estimator,
    Range,
    ScoreDistribution,
    estimate,
    require_both_classes,
    shrinks,
)
from fedgauge.metrics.areas import (
    BinLosses,
    Loss,
    Positions,
    bin_losses,
    edge_rates,
    precision_one_by_one,
    tied_precision,
)
from fedgauge.metrics.curves import PrCurve, RocCurve, pr_curve, roc_curve

FINE: Final = 1024  # bins from which what scores do within them is less than one example does


@dataclass(frozen=True, eq=False)
class Reading:
    """Two rows of counts, negatives and positives, and what follows from both, once.

    All measures compare two rows: those of a :class:`~fedgauge.plan.task.Contrast`. Which
    channels they are, and how many there are, only the task knows.

    Attributes
    ----------
    pooled
        The counts.
    estimator
        How curves are drawn between the bin edges.
    level
        Confidence of intervals and bands and, under noise, of bounds.
    positions
        Where in the bins the scores lie, if that was measured.
    """

    pooled: PooledCounts
    estimator: Estimator
    level: float
    positions: Positions | None = None
    _losses: dict[Loss, BinLosses] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.pooled.shrinks and not shrinks(self.estimator):
            object.__setattr__(self, "pooled", self.pooled.unshrunk)

    @property
    def tied(self) -> bool:
        """Whether all scores in a bin are equal."""
        return self.pooled.axis.separates_all

    @property
    def precision_of_rows(self) -> float | None:
        """Average precision of examples, where bins are so fine that they tell it; else None."""
        pooled = self.pooled
        if pooled.noisy or pooled.divided or not isinstance(self.estimator, Aligned):
            return None
        require_both_classes(pooled.negatives, pooled.positives)
        if pooled.apart:
            return tied_precision(pooled.counts)
        if pooled.axis.bins < FINE or pooled.single.any():
            return None
        return precision_one_by_one(pooled.counts)

    @cached_property
    def distribution(self) -> ScoreDistribution:
        """The rates of both rows along all thresholds; needs examples of both."""
        pooled, smooths = self.pooled, isinstance(self.estimator, Range)
        counts = pooled.unbiased if smooths else pooled.likely
        return estimate(
            pooled.axis, counts, self.estimator, straight=pooled.apart, single=pooled.single
        )

    @cached_property
    def roc(self) -> RocCurve:
        """The ROC curve."""
        return roc_curve(self.distribution)

    @cached_property
    def pr(self) -> PrCurve:
        """The PR curve."""
        return pr_curve(self.distribution)

    @cached_property
    def rates(self) -> tuple[Floats, Floats]:
        """False and true positive rates at threshold infinity and at each edge, descending."""
        return edge_rates(self.pooled.likely)

    @cached_property
    def unshrunk(self) -> "Reading":
        """The same from counts as noise left them: what intervals and bounds are made of."""
        return replace(self, pooled=self.pooled.unshrunk) if self.pooled.is_shrunk else self

    @cached_property
    def ratio(self) -> float:
        """Number of positives for each negative."""
        require_both_classes(self.pooled.negatives, self.pooled.positives)
        return self.pooled.positives / self.pooled.negatives

    @cached_property
    def worst(self) -> "Reading":
        """The same with positives as low and negatives as high as divided bins allow."""
        return self._moved(negatives_up=True, positives_up=False)

    @cached_property
    def best(self) -> "Reading":
        """The same with positives as high and negatives as low as divided bins allow."""
        return self._moved(negatives_up=False, positives_up=True)

    def _moved(self, *, negatives_up: bool, positives_up: bool) -> "Reading":
        if not self.pooled.divided:
            return self
        pooled = self.pooled.moved(negatives_up=negatives_up, positives_up=positives_up)
        return replace(self, pooled=pooled if self.pooled.shrinks else pooled.unshrunk)

    def losses(self, loss: Loss) -> BinLosses:
        """Losses of examples in each bin."""
        if loss not in self._losses:
            counts, axis = self.pooled.counts, self.pooled.axis
            self._losses[loss] = bin_losses(axis, counts, loss, self.positions)
        return self._losses[loss]

    def redrawn(self, draws: int, *, sampling: bool) -> Floats:
        """Counts as they would come out again, where both rows then have examples."""
        drawn = self.pooled.redrawn(draws, sampling=sampling)
        usable = np.all(drawn.sum(axis=-1) > 0, axis=-1)
        return drawn if usable.all() else drawn[usable]
