"""What reached the server: counts on an axis, and how noisy they are."""

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from fedgauge.binning.axis import Axis
from fedgauge.errors import UndefinedMetric
from fedgauge.estimation import repair
from fedgauge.estimation.drawn import DrawnBlock, drawn_blocks, redraw
from fedgauge.estimation.released import Released
from fedgauge.estimation.shrinkage import MOST_BINS, shrunk
from fedgauge.plan import EvaluationPlan, Slice
from fedgauge.plan.slices import OTHER, Contrast
from fedgauge.typing import Floats

SIGNAL: Final = 4.0  # standard deviations that a class must stand out of the noise
FAINT: Final = 6.0  # below which it is a weak base
_SHARED: Final = 10  # rows in bins with others from which that is no chance, if none are near
_REMEMBERED: Final = 2**26  # bytes: draws up to this size are kept for the next metric or band


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
    terms
        How many released counts each class's are the sum of: several of one class have the noise
        of all.
    drawn
        Under local DP, where noise differs between nodes and all counts of a block add up to the
        public number of reports: the blocks that the counts are in, of which negatives and
        positives are the first sides.
    crowded
        Which bins hold a value that many scores share, where a first round found the bins.
    shrinks
        Whether likely counts follow a smooth ratio of both classes where noise is large.
    counted_on
        The axis that scores were counted on, where `axis` is what a map made of it.
    """

    axis: Axis
    released: NDArray[Any]
    tree: tuple[int, ...]
    variances: tuple[float, ...] = ()
    terms: tuple[int, int] = (1, 1)
    drawn: tuple[DrawnBlock, ...] = ()
    crowded: NDArray[np.bool_] | None = None
    shrinks: bool = True
    counted_on: Axis | None = None
    _draws: dict[tuple[int, bool], Floats] = field(init=False, repr=False, default_factory=dict)

    @classmethod
    def of(cls, plan: EvaluationPlan, released: Released, slice_: Slice) -> Self:
        """What a release says of one slice."""
        return cls.between(plan, released, plan.task.contrast(slice_))

    @classmethod
    def between(cls, plan: EvaluationPlan, released: Released, contrast: Contrast) -> Self:
        """What a release says of any negatives and positives."""
        drawn: tuple[DrawnBlock, ...] = ()
        if plan.final.sends_reports:
            drawn = drawn_blocks(plan, released.counts, contrast)
        pooled = cls(
            released.axis,
            np.stack([released.counts[list(rows)].sum(axis=0) for rows in contrast]),
            plan.tree if plan.is_noisy else (released.axis.bins,),
            plan.noise_variances(released.contributions),
            (len(contrast.negatives), len(contrast.positives)),
            drawn,
        )
        if plan.found is None:
            return pooled
        rows = pooled.counts.sum(axis=0)
        return replace(pooled, crowded=plan.found.two.crowds(released.axis, rows))

    def __getstate__(self) -> dict[str, Any]:
        # Without what follows from the rest: draws can be a hundred times as large.
        return {each.name: getattr(self, each.name) for each in fields(self)} | {"_draws": {}}

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
    def is_shrunk(self) -> bool:
        """Whether likely counts are others than those that noise left."""
        small = self.axis.bins <= MOST_BINS
        return self.noisy and self.shrinks and small and bool(self.counts.any(axis=1).all())

    @cached_property
    def likely(self) -> Floats:
        """The counts that values and curves are read from: under noise nearer to a smooth ratio."""
        return self._shrunk(self.counted_on or self.axis) if self.is_shrunk else self.counts

    @cached_property
    def unshrunk(self) -> Self:
        """The same, with the counts as noise left them for likely ones."""
        if not self.shrinks:
            return self
        same = replace(self, shrinks=False)
        known = {name: told for name, told in vars(self).items() if name in ("counts", "_draws")}
        vars(same).update(known)  # which no shrinking changes
        return same

    def _shrunk(self, axis: Axis) -> Floats:
        """Likely counts, with the totals of the counts."""
        likely = shrunk(axis, self.unbiased, self.noise_matrix)
        totals = self.counts.sum(axis=1, keepdims=True) / likely.sum(axis=1, keepdims=True)
        return np.asarray(likely * totals)

    @cached_property
    def noise_matrix(self) -> Floats:
        """Noise covariance of all counts, negatives first."""
        if self.drawn:
            matrix: Floats = np.sum([b.matrix(self.tree, self.variances) for b in self.drawn], 0)
            return matrix
        of_one = repair.leaf_covariance(self.tree, self.variances)
        return np.asarray(np.kron(np.diag(self.terms), of_one), dtype=np.float64)

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
        for row, (total, name) in enumerate(zip(totals, Contrast._fields, strict=True)):
            if total < SIGNAL * self.deviations_of_totals[row]:
                return name
        return None

    @cached_property
    def apart(self) -> bool:
        """Whether scores are on points so far apart that those in a bin are equal.

        As rounded scores are, or shares of votes: rows share bins, and no two bins side by side
        have rows. Of two smooth scores in the same bin or in adjoining ones, a third are in the
        same: that ten are, and none in an adjoining one, has a chance below 1e-4. Not told under
        noise, which leaves no bin empty, nor where end bins hold all that is beyond them.
        """
        if self.noisy or self.divided or self.axis.outside == "clip":
            return False
        rows = self.counts.sum(axis=0)
        shared = float(np.maximum(rows - 1.0, 0.0).sum())
        return shared >= _SHARED and not np.any((rows[1:] > 0) & (rows[:-1] > 0))

    @cached_property
    def single(self) -> NDArray[np.bool_]:
        """Which bins stand for one score: by their width, or as crowded as equal depth leaves none.

        A cubic through a bin that holds a tie would bend as if its scores differed.
        """
        single = self.axis.single
        return single if self.crowded is None else single | self.crowded

    @cached_property
    def deviations_of_totals(self) -> tuple[float, float]:
        """Standard deviation of the noise in the total of each class."""
        weights = np.zeros((2, *self.released.shape))
        weights[0, 0] = weights[1, 1] = 1.0
        negatives, positives = np.sqrt(self.noise_variance(weights)).tolist()
        return negatives, positives

    @property
    def deviation_of_totals(self) -> float:
        """Standard deviation of the noise in the total of a class: the larger of both."""
        return max(self.deviations_of_totals)

    @cached_property
    def faint(self) -> str | None:
        """Why noise makes intervals unreliable, if it does.

        Results are withheld where noise hides a class, so those just above are too high.
        """
        totals = (self.negatives, self.positives)
        pairs = zip(totals, self.deviations_of_totals, strict=True)
        if self.noisy and any(total < FAINT * deviation for total, deviation in pairs):
            return "the noise is a large part of the number of examples of a class"
        return None

    @property
    def leaf_variances(self) -> Floats:
        """Noise variance of each released count; its mean for local reports over a tree."""
        if self.drawn and len(self.tree) == 1:
            variances: Floats = np.sum([each.leaf_variances[:2] for each in self.drawn], axis=0)
            return variances
        leaf = repair.leaf_variance(self.tree, self.variances)
        return np.broadcast_to(leaf * self._terms, self.released.shape).copy()

    @property
    def _terms(self) -> Floats:
        """How many counts each class's are the sum of, for arrays of classes and bins."""
        return np.array(self.terms, dtype=np.float64)[:, np.newaxis]

    def covariance(self, left: Floats, right: Floats) -> Floats:
        """Noise covariance of weighted sums of the released counts.

        Weights have classes and bins as their last two axes.
        """
        if not self.noisy:
            return np.zeros(np.broadcast_shapes(left.shape, right.shape)[:-2])
        covariance: Floats
        if self.drawn:  # reports about different blocks are of different rows
            each = [b.covariance(self.tree, self.variances, left, right) for b in self.drawn]
            covariance = np.sum(each, axis=0)
        else:
            by_class = repair.noise_covariance(self.tree, self.variances, left, right)
            covariance = (by_class * self.terms).sum(axis=-1)
        return covariance

    def noise_variance(self, weights: Floats) -> Floats:
        """Noise variance of ``sum(weights * released)``."""
        return self.covariance(weights, weights)

    @property
    def divided(self) -> bool:
        """Whether a map divides bins, so that what is in some of these is not known for sure."""
        return False

    def divides(self, first: int) -> bool:  # noqa: ARG002
        """Whether a bin that a map divides is in part below the bin `first`, in part not."""
        return False

    def moved(self, *, negatives_up: bool, positives_up: bool) -> "PooledCounts":  # noqa: ARG002
        """The counts if each class had as much as can be in the upper parts of divided bins.

        Or as little. The same where no bin is divided.
        """
        return self

    def redrawn(self, draws: int, *, sampling: bool) -> Floats:
        """Counts as they would come out again, by draw, class and bin: the same at every call.

        The noise is drawn anew around the likely counts and repaired in the same way; with
        `sampling` the examples are too, as a bootstrap does. Where neither is, one draw says
        all. A way to see what chance does to a result: this noise protects nothing.
        """
        if not (self.noisy or sampling):
            return self.counts[np.newaxis]
        drawn = self._draws.get((draws, sampling))
        if drawn is None:
            drawn = self._redraw(draws, np.random.default_rng(0), sampling=sampling)
            drawn.flags.writeable = False
            if drawn.nbytes <= _REMEMBERED:
                self._draws[draws, sampling] = drawn
        return drawn

    def _redraw(self, draws: int, rng: np.random.Generator, *, sampling: bool) -> Floats:
        if self.drawn:
            # Around these counts: channel by channel noise leaves others above zero.
            noisy = self.counts + sum(
                block.moved(draws, self.tree, self.variances, rng, sampling=sampling)[:, :2]
                for block in self.drawn
            )
        else:
            start = np.broadcast_to(self.counts, (draws, *self.counts.shape))
            drawn = rng.poisson(start).astype(np.float64) if sampling else start
            if not self.noisy:
                return drawn
            noisy = redraw(drawn, self.tree, self.variances, rng, terms=self._terms)
        return repair.monotone(noisy.reshape(-1, noisy.shape[-1])).reshape(noisy.shape)


def require_examples(pooled: PooledCounts, group: str | None = None) -> None:
    """Refuse counts of nobody, which a group may have: they define nothing.

    `group` is the name of one that the plan lists, which may be spelled otherwise in the data.
    """
    if pooled.counts.any():
        return
    if group is None:
        raise UndefinedMetric("there is no example, so nothing is defined.")
    raise UndefinedMetric(
        f"there is no example of {group}, so nothing is defined. Rows of no listed group are in "
        f"{OTHER!r}: if there should be some, compare how both are spelled."
    )
