"""`Released`, what reached the server, and `PooledCounts`: one slice and how noisy it is.

Also counts of labels by bin, counts from local reports, and noise drawn again.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from fedgauge.arrays import Floats
from fedgauge.errors import UndefinedMetric
from fedgauge.estimation import repair
from fedgauge.estimation.shrinkage import MOST_BINS, shrunk, shrunk_within
from fedgauge.histograms.axis import Axis
from fedgauge.histograms.tables import TableSum
from fedgauge.plan import EvaluationPlan, Slice
from fedgauge.plan.task import OTHER, Contrast
from fedgauge.privacy.oracles import settle

_TWO: Final = 2  # channels of which none is hidden where a result is shown


@dataclass(frozen=True, eq=False)
class DrawnBlock:
    """Counts of one block, estimated from the reports about it, and what chance does to them.

    A report is about one block, drawn at random. Counts are of all rows, and add up to their public
    number. Noise is that of the oracle, in all channels of the block, and that of taking a sample
    of the rows, whose cells have a multinomial law.

    `sides` say what each channel adds to: 0, 1 and so on. The last may be one that nobody asks for,
    since the total is known.
    """

    released: Floats  # unbiased counts by channel and bin
    sides: NDArray[np.intp]
    # variances by level and channel, given the counts
    node_variances: Callable[[Floats], list[Floats]]
    blocks: int  # that a report may be about

    @cached_property
    def counts(self) -> Floats:
        """Likely counts by channel and bin, none negative."""
        counts, total = repair.monotone(self.released), self.released.sum()
        # Of many channels noise leaves more above zero than below: the total is known. Where there
        # are two and one is cut off, the result is withheld.
        return counts * (total / counts.sum()) if len(counts) > _TWO and total > 0 else counts

    @cached_property
    def terms(self) -> Floats:
        """How many channels add to each side."""
        return np.bincount(self.sides, minlength=2).astype(np.float64)

    @cached_property
    def by_side(self) -> Floats:
        """Counts by side and bin."""
        return self._summed(self.counts)

    @cached_property
    def by_node(self) -> list[Floats]:
        """Variance by noise of every node at each level, by side."""
        return [self._summed(each) for each in self.node_variances(self.counts)]

    @cached_property
    def leaf_variances(self) -> Floats:
        """Variance of each count by side and bin, of a flat tree."""
        (noise,) = self.by_node
        held = self.by_side
        return np.asarray(noise + (self.blocks - 1) * held * (1.0 - held / held.sum()))

    def _summed(self, by_channel: Floats) -> Floats:
        each = (by_channel[self.sides == side].sum(axis=0) for side in range(len(self.terms)))
        return np.stack(list(each))

    def covariance(
        self, tree: Sequence[int], variances: Sequence[float], left: Floats, right: Floats
    ) -> Floats:
        """Of weighted sums of the counts; weights have the first sides, and bins, as last axes."""
        weights = [self._every_side(each) for each in (left, right)]
        # What all counts have in common is known.
        both = (repair.level_weights(tree, variances, self._centred(each)) for each in weights)
        noise: Floats = np.sum(
            [
                (a * b * variance).sum(axis=(-2, -1))
                for a, b, variance in zip(*both, self.by_node, strict=True)
            ],
            axis=0,
        )
        return noise if self.blocks == 1 else noise + (self.blocks - 1) * self._sampled(*weights)

    def matrix(self, tree: Sequence[int], variances: Sequence[float]) -> Floats:
        """Noise covariance of all counts of the first two sides, by side and bin."""
        cells = _TWO * self.released.shape[1]
        each = self._every_side(np.eye(cells).reshape(cells, _TWO, -1))
        levels = repair.level_weights(tree, variances, self._centred(each))
        flat = [
            (w.reshape(cells, -1), v.ravel()) for w, v in zip(levels, self.by_node, strict=True)
        ]
        noise: Floats = np.sum([(w * v) @ w.T for w, v in flat], axis=0)
        if self.blocks == 1:
            return noise
        # A sum of squares, row by row: a difference would lose small variances beside large ones.
        held = self.by_side.ravel()
        shares = held[:cells] / held.sum()
        apart = np.sqrt(held)[:, np.newaxis] * (np.eye(len(held), cells) - shares)
        return np.asarray(noise + (self.blocks - 1) * apart.T @ apart)

    def _every_side(self, weights: Floats) -> Floats:
        missing = len(self.terms) - weights.shape[-2]
        return np.pad(weights, [(0, 0)] * (weights.ndim - 2) + [(0, missing), (0, 0)])

    def _centred(self, weights: Floats) -> Floats:
        cells = self.terms.sum() * weights.shape[-1]
        total = (weights * self.terms[:, np.newaxis]).sum(axis=(-2, -1), keepdims=True)
        return np.asarray(weights - total / cells)

    def _sampled(self, left: Floats, right: Floats) -> Floats:
        """Covariance in a sample of as many rows as there are, drawn with equal chances."""
        held, axes = self.by_side, (-2, -1)
        ends = (left * held).sum(axis=axes) * (right * held).sum(axis=axes)
        return np.asarray((left * right * held).sum(axis=axes) - ends / held.sum())

    def moved(
        self,
        draws: int,
        tree: Sequence[int],
        variances: Sequence[float],
        rng: np.random.Generator,
        *,
        sampling: bool,
    ) -> Floats:
        """How far counts would come out from these again, by draw, side and bin, not repaired."""
        held = np.broadcast_to(self.by_side, (draws, *self.by_side.shape))
        drawn = self._resampled(held, rng, sampling=sampling)
        again = redraw(
            drawn, tree, variances, rng, node_variances=self.by_node, channels=self.terms
        )
        return np.asarray(again - held)

    def _resampled(self, held: Floats, rng: np.random.Generator, *, sampling: bool) -> Floats:
        """Rows drawn for the block, times how many blocks there are, and anew if `sampling`."""
        if sampling:  # Poisson counts of 1 in so many rows are those of the rows, thinned
            return self.blocks * rng.poisson(held / self.blocks).astype(np.float64)
        if self.blocks == 1:
            return held
        # Times so much, Poisson counts vary by what thinning alone does; the total is known.
        scale = math.sqrt((self.blocks - 1) * self.blocks)
        moved = held + scale * (rng.poisson(held / self.blocks) - held / self.blocks)
        kept = held.sum(axis=(-2, -1), keepdims=True) / moved.sum(axis=(-2, -1), keepdims=True)
        return np.asarray(moved * kept)


def drawn_blocks(
    plan: EvaluationPlan, released: Floats, contrast: Contrast
) -> tuple[DrawnBlock, ...]:
    """The blocks of negatives and positives, from unbiased counts of all channels of reports."""
    sides = np.full(plan.task.rows_sent, len(contrast), dtype=np.intp)
    for side, channels in enumerate(contrast):
        sides[list(channels)] = side
    return tuple(
        _block(plan, number, released[rows], sides[rows])
        for number, rows in enumerate(_rows(plan))
        if np.any(sides[rows] < len(contrast))
    )


def every_block(plan: EvaluationPlan, released: Floats) -> tuple[DrawnBlock, ...]:
    """All blocks of local reports, with a side for each channel."""
    return tuple(
        _block(plan, number, released[rows], np.arange(rows.stop - rows.start))
        for number, rows in enumerate(_rows(plan))
    )


def _rows(plan: EvaluationPlan) -> list[slice]:
    layout = plan.task.layout
    return [layout.rows(block) for block in layout.blocks]


def _block(
    plan: EvaluationPlan, number: int, released: Floats, sides: NDArray[np.intp]
) -> DrawnBlock:
    noise = partial(plan.reported.node_variances, plan.terms, block=number)
    return DrawnBlock(released, sides, noise, len(plan.task.layout.blocks))


def redraw(
    counts: Floats,
    tree: Sequence[int],
    variances: Sequence[float],
    rng: np.random.Generator,
    *,
    node_variances: Sequence[Floats] = (),
    terms: Floats | float = 1.0,
    channels: Floats | None = None,
) -> Floats:
    """Counts as they would come out of the same mechanism again: noise, then least squares.

    The noise here protects nothing. `counts` have classes and bins as their last two axes;
    `node_variances` are those of every node at each level, where they differ; `terms` is how many
    counts those of each class are a sum of. For local reports it is `channels`, and in
    `node_variances` already.
    """
    levels = []
    noise: Sequence[float | Floats] = node_variances or variances
    for depth, variance in enumerate(noise):
        nodes = math.prod(tree[: depth + 1])
        exact = counts.reshape(*counts.shape[:-1], nodes, -1).sum(axis=-1)
        noisy = exact + rng.laplace(0.0, np.sqrt(np.asarray(variance) * terms / 2), exact.shape)
        levels.append(noisy.reshape(-1, nodes))
    leaves = repair.consistent(levels, tree, variances).reshape(counts.shape)
    if not node_variances:
        return leaves
    return settle(leaves, counts.sum(axis=(-2, -1), keepdims=True), channels)


@dataclass(frozen=True, eq=False)
class Released:
    """What a sum over clients, or many reports, tell.

    `counts` are whole numbers, or under noise least-squares estimates, which may be negative.
    `joined` are names of groups with too few examples to be shown: the last one of their grouping,
    "other", counts them, and their own counts are zeros that say nothing.
    """

    axis: Axis  # the plan's, or one with some of its bins merged
    counts: NDArray[Any]  # by channel and bin
    clients: int
    sums: NDArray[np.int64] | None = None  # score sums by channel and bin, with their noise
    reports: int | None = None  # how many local reports there were, which is public
    joined: tuple[str, ...] = ()
    tables: tuple[TableSum, ...] = ()  # sums of the cells of what else is counted
    doubted: tuple[str, ...] = ()  # label parties that answered alone, and sent what no labels have

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the counts and their axis: the same once they were saved and loaded."""
        counts = np.asarray(self.counts, dtype="<f8").tobytes()
        return hashlib.sha256(
            f"fedgauge-counts/1 {self.axis.digest}\n".encode() + counts
        ).hexdigest()

    @property
    def contributions(self) -> int:
        """How many shares of noise are in the counts: those of reports, or of clients."""
        return self.clients if self.reports is None else self.reports


SIGNAL: Final = 4.0  # standard deviations that a class must stand out of the noise
FAINT: Final = 6.0  # below which it is a weak base
_SHARED: Final = 10  # rows in bins with others from which that is no chance, if none are near
FINE: Final = 1024  # bins from which what scores do within them is less than one example does
_UNLIKELY: Final = 1e-4  # chance that smooth scores have an atom in any bin
_ALIKE: Final = (
    1.1  # times as wide as both neighbours, at most: a smooth density is then even there
)
_LUMP: Final = 4.0  # times what both neighbours of a bin hold, from which its scores may be tied
_SURE: Final = 2.0  # standard deviations of the noise in that
_DENSE: Final = 6.0  # and as dense as both: smooth scores that crowd at 0 reach five
_CROWD: Final = 5.0  # times an even share of both classes, likewise
_LUMPED: Final = "scores may be tied: some bins hold far more than those beside them"
_REMEMBERED: Final = 2**26  # bytes: draws up to this size are kept for the next metric or band


@dataclass(frozen=True, eq=False)
class PooledCounts:
    """Counts of negatives and positives by bin, and the noise in them.

    `released` are whole numbers, or under noise unbiased estimates, which may be negative. Under
    local DP noise differs between nodes, and all counts of a block add up to the public number of
    reports: `drawn` are the blocks, of which negatives and positives are the first sides.
    """

    axis: Axis
    released: NDArray[Any]  # by class and bin
    tree: tuple[int, ...]
    variances: tuple[float, ...] = ()  # of the noise of one node at each level
    terms: tuple[int, int] = (1, 1)  # how many released counts each class's are the sum of
    drawn: tuple[DrawnBlock, ...] = ()
    # bins with a value that many scores share, if a first round found the bins
    crowded: NDArray[np.bool_] | None = None
    shrinks: bool = True  # whether noisy counts follow a smooth ratio of both classes
    counted_on: Axis | None = None  # where a map made `axis` of it
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
        return repair.monotone(self.unbiased) if self.noisy else self.unbiased

    @property
    def is_shrunk(self) -> bool:
        """Whether likely counts are others than those that noise left."""
        return self.likely is not self.counts

    @cached_property
    def likely(self) -> Floats:
        """The counts that values and curves are read from: under noise nearer to a smooth ratio."""
        small = self.axis.bins <= MOST_BINS
        if not (self.noisy and self.shrinks and small and self.counts.any(axis=1).all()):
            return self.counts
        likely = self._shrunk(self.counted_on or self.axis)
        return self.counts if likely is None else likely

    @cached_property
    def unshrunk(self) -> Self:
        """The same, with the counts as noise left them for likely ones."""
        if not self.shrinks:
            return self
        same = replace(self, shrinks=False)
        known = {name: told for name, told in vars(self).items() if name in ("counts", "_draws")}
        vars(same).update(known)  # which no shrinking changes
        return same

    def _shrunk(self, axis: Axis) -> Floats | None:
        """Likely counts, with the totals of the counts."""
        likely = shrunk(axis, self.unbiased, self.noise_matrix)
        if likely is None:
            return None
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
        same: that ten are, and none in an adjoining one, has a chance below 1e-4. Unknown under
        noise, which leaves no bin empty, and where end bins hold all that is beyond them.
        """
        if self.noisy or self.divided or self.axis.outside == "clip":
            return False
        rows = self.counts.sum(axis=0)
        shared = float(np.maximum(rows - 1.0, 0.0).sum())
        return shared >= _SHARED and not np.any((rows[1:] > 0) & (rows[:-1] > 0))

    @cached_property
    def single(self) -> NDArray[np.bool_]:
        """Which bins stand for one score: by their width, as atoms, or crowded at equal depth.

        A cubic through a bin that holds a tie would bend as if its scores differed.
        """
        single = self.axis.single | self.atoms
        return single if self.crowded is None else single | self.crowded

    @cached_property
    def atoms(self) -> NDArray[np.bool_]:
        """In which bins scores are equal: surely, or because smooth ones would be in others, too.

        Of the rows in a bin and both beside it, smooth scores have about a third in the bin, and
        less than half, or than its share of the width. An atom has so many more that the chance of
        one in any bin is below 1e-4 (Chernoff 1952). Only fine bins of exact counts tell; not the
        outermost that are wider than a value, and of probabilities none that is wider than a
        quarter of its distance from 0 or 1: there models differ by factors.
        """
        axis, surely = self.axis, self.axis.tied
        if self.noisy or self.divided or axis.bins < FINE or surely.all():
            return surely
        rows, widths = self.counts.sum(axis=0), np.diff(axis.edges)
        if self.apart:
            likely = rows > 0
        else:
            around = np.convolve(widths, np.ones(3), mode="same")
            share = np.maximum(widths / around, 0.5)
            three = np.convolve(rows, np.ones(3), mode="same")
            likely = _tail(rows, three, share) < _UNLIKELY / axis.bins
            if axis.low >= 0 and axis.high <= 1:
                likely &= 4 * widths <= np.minimum(axis.edges[:-1], 1 - axis.edges[1:])
        wider = np.flatnonzero(~surely)
        likely[wider[[0, -1]]] = False
        atoms: NDArray[np.bool_] = surely | likely
        return atoms

    @cached_property
    def lumps(self) -> NDArray[np.bool_]:
        """Which bins may hold ties, under noise, which hides how scores lie within them.

        Those six times as dense as each of their neighbours, if they also hold four times as much,
        by more than chance explains, or five times their part of both classes; or what a first
        round found to be a crowd.
        """
        rows, widths = self.counts.sum(axis=0), np.diff(self.axis.edges)
        if not self.noisy or self.axis.kind == "values":
            return np.zeros(len(rows), dtype=bool)
        chance = rows + self.leaf_variances.sum(axis=0)
        reach = _SURE * np.sqrt(chance + _LUMP**2 * _most_beside(chance))
        of_both = np.prod(self.counts / np.maximum(self.counts.sum(axis=1, keepdims=True), 1.0), 0)
        lumps = rows - _LUMP * _most_beside(rows) > reach
        lumps |= np.sqrt(of_both) * len(rows) > _CROWD
        lumps &= (rows > _DENSE * widths * _most_beside(rows / widths)) & (rows >= rows.mean())
        lumps |= self.single
        return np.asarray(lumps & ~self.axis.single)

    @property
    def lumped(self) -> str | None:
        """Why what depends on how scores lie within bins is unreliable, if so."""
        return _LUMPED if self.lumps.any() else None

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
        """Why intervals are unreliable, if so: results that noise nearly hides are too high."""
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
        """Noise covariance of weighted sums of released counts; weights end in class and bin."""
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
        """The counts with as much, or as little, of a class as can be in upper parts of bins."""
        return self

    def redrawn(self, draws: int, *, sampling: bool) -> Floats:
        """Counts as they would come out again, by draw, class and bin: the same at every call.

        The noise is drawn anew around the likely counts and repaired in the same way; with
        `sampling` the examples are too, as a bootstrap does. Where neither is, one draw says all.
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


def _tail(hits: Floats, trials: Floats, share: Floats) -> Floats:
    """At most the chance of so many hits or more, where each trial hits with a chance `share`."""
    with np.errstate(divide="ignore", invalid="ignore"):
        part = hits / trials
        apart = np.where(part < 1, (1 - part) * np.log((1 - part) / (1 - share)), 0.0)
        apart = part * np.log(part / share) + apart
    tail: Floats = np.where(part > share, np.exp(-trials * np.nan_to_num(apart)), 1.0)
    return tail


def _most_beside(by_bin: Floats) -> Floats:
    """The larger of the numbers of both neighbours."""
    beside = np.pad(by_bin, 1)
    return np.maximum(beside[:-2], beside[2:])


def require_examples(pooled: PooledCounts, group: str | None = None) -> None:
    """Refuse counts of nobody, as of a group that the data spell otherwise: they define nothing."""
    if pooled.counts.any():
        return
    if group is None:
        raise UndefinedMetric("there is no example, so nothing is defined.")
    raise UndefinedMetric(
        f"there is no example of {group}, so nothing is defined. Rows of no listed group are in "
        f"{OTHER!r}. If there should be some of this group, check its spelling."
    )


def counts_of(plan: EvaluationPlan, released: Released, slice_: Slice) -> PooledCounts:
    """What a release says of one slice."""
    kind = LabelCounts if plan.task.of_labels else PooledCounts
    return kind.of(plan, released, slice_)


@dataclass(frozen=True, eq=False)
class LabelCounts(PooledCounts):
    """Negatives and positives that add up to known totals: the noise of one is that of both."""

    bin_variances: Floats | None = None  # of labels flipped at random; None where noise is a tree's

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

    def _shrunk(self, axis: Axis) -> Floats | None:
        positives = shrunk_within(axis, self.unbiased[1], self.totals, self.noise_matrix)
        if positives is None:
            return None
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
