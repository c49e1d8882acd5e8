"""What reached the server: counts on an axis, and how noisy they are."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from fedgauge.binning.axis import Axis
from fedgauge.errors import UndefinedMetric
from fedgauge.estimation import repair
from fedgauge.estimation.released import Released
from fedgauge.plan import EvaluationPlan, Slice
from fedgauge.plan.slices import OTHER, Contrast
from fedgauge.privacy.response import settle
from fedgauge.typing import Floats

SIGNAL: Final = 4.0  # standard deviations that a class must stand out of the noise
FAINT: Final = 6.0  # below which it is a weak base
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
    node_variances
        Under local DP, where noise differs between nodes and all counts add up to the public
        number of reports: the variance of every node at each level, given the counts.
    """

    axis: Axis
    released: NDArray[Any]
    tree: tuple[int, ...]
    variances: tuple[float, ...] = ()
    terms: tuple[int, int] = (1, 1)
    node_variances: Callable[[Floats], list[Floats]] | None = None
    _draws: dict[tuple[int, bool], Floats] = field(init=False, repr=False, default_factory=dict)

    @classmethod
    def of(cls, plan: EvaluationPlan, released: Released, slice_: Slice) -> Self:
        """What a release says of one slice."""
        return cls.between(plan, released, plan.task.contrast(slice_))

    @classmethod
    def between(cls, plan: EvaluationPlan, released: Released, contrast: Contrast) -> Self:
        """What a release says of any negatives and positives."""
        return cls(
            released.axis,
            np.stack([released.counts[list(rows)].sum(axis=0) for rows in contrast]),
            plan.tree if plan.is_noisy else (released.axis.bins,),
            plan.noise_variances(released.contributions),
            (len(contrast.negatives), len(contrast.positives)),
            plan.node_variances if plan.final.sends_reports else None,
        )

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
        if len(self._by_node) == 1:
            return self._by_node[0]
        leaf = repair.leaf_variance(self.tree, self.variances)
        return np.broadcast_to(leaf * self._terms, self.released.shape).copy()

    @property
    def _terms(self) -> Floats:
        """How many counts each class's are the sum of, for arrays of classes and bins."""
        return np.array(self.terms, dtype=np.float64)[:, np.newaxis]

    @cached_property
    def _by_node(self) -> list[Floats]:
        return self.node_variances(self.counts) if self.node_variances is not None else []

    def covariance(self, left: Floats, right: Floats) -> Floats:
        """Noise covariance of weighted sums of the released counts.

        Weights have classes and bins as their last two axes.
        """
        if not self.noisy:
            return np.zeros(np.broadcast_shapes(left.shape, right.shape)[:-2])
        if self.node_variances is not None:  # what all counts have in common is known
            left, right = (w - w.mean(axis=(-2, -1), keepdims=True) for w in (left, right))
        covariance: Floats
        if self.node_variances is not None:
            both = (repair.level_weights(self.tree, self.variances, w) for w in (left, right))
            covariance = np.sum(
                [
                    (a * b * variance).sum(axis=(-2, -1))
                    for a, b, variance in zip(*both, self._by_node, strict=True)
                ],
                axis=0,
            )
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
        start = np.broadcast_to(self.counts, (draws, *self.counts.shape))
        drawn = rng.poisson(start).astype(np.float64) if sampling else start
        if not self.noisy:
            return drawn
        noisy = redraw(
            drawn,
            self.tree,
            self.variances,
            rng,
            node_variances=self._by_node,
            terms=self._terms,
        )
        return repair.monotone(noisy.reshape(-1, noisy.shape[-1])).reshape(drawn.shape)


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


def redraw(
    counts: Floats,
    tree: Sequence[int],
    variances: Sequence[float],
    rng: np.random.Generator,
    *,
    node_variances: Sequence[Floats] = (),
    terms: Floats | float = 1.0,
) -> Floats:
    """Counts as they would come out of the same mechanism again: noise, then least squares.

    A way to see what noise does to a result. The noise here protects nothing. `counts` have
    classes and bins as their last two axes; `node_variances` are those of every node
    at each level, where they differ; `terms` is how many counts those of each class are a sum of.
    """
    levels = []
    noise: Sequence[float | Floats] = node_variances or variances
    for depth, variance in enumerate(noise):
        nodes = math.prod(tree[: depth + 1])
        exact = counts.reshape(*counts.shape[:-1], nodes, -1).sum(axis=-1)
        noisy = exact + rng.laplace(0.0, np.sqrt(np.asarray(variance) * terms / 2), exact.shape)
        levels.append(noisy.reshape(-1, nodes))
    leaves = repair.consistent(levels, tree, variances).reshape(counts.shape)
    return settle(leaves, counts.sum(axis=(-2, -1), keepdims=True)) if node_variances else leaves
