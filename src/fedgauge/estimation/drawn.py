"""What chance does to counts: noise drawn again, and reports about one block drawn at random."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fedgauge.estimation import repair
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.slices import Contrast
from fedgauge.privacy.response import settle
from fedgauge.typing import Floats

_TWO: Final = 2  # channels of which none is hidden where a result is shown


@dataclass(frozen=True, eq=False)
class DrawnBlock:
    """Counts of one block, estimated from the reports about it, and what chance does to them.

    A report is about one block, drawn at random. Counts are of all rows, and add up to their
    public number. Noise is that of the oracle, in all channels of the block; and that only a sample
    of the rows is reported of, whose cells have a multinomial law.

    Attributes
    ----------
    released
        Unbiased counts by channel and bin.
    sides
        What each channel adds to: 0, 1 and so on. The last one may be what nobody asks for, and
        counts nevertheless: the total is known.
    node_variances
        Variance by noise of every node at each level, by channel, given the counts.
    blocks
        How many blocks a report is about one of.
    """

    released: Floats
    sides: NDArray[np.intp]
    node_variances: Callable[[Floats], list[Floats]]
    blocks: int

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
        """Of weighted sums of the counts; weights have sides and bins as their last two axes.

        Sides after those that are weighted have no weight.
        """
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
        """How far counts would come out from these again, by draw, side and bin, not repaired.

        With `sampling` of other rows. The last side, if nobody asks for it, is among them.
        """
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
    """The blocks that negatives and positives of local reports are in: sides 0 and 1.

    `released` has unbiased counts of all channels.
    """
    sides = np.full(plan.channels, len(contrast), dtype=np.intp)
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
    noise = partial(plan.block_variances, number)
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

    A way to see what noise does to a result. The noise here protects nothing. `counts` have
    classes and bins as their last two axes; `node_variances` are those of every node
    at each level, where they differ; `terms` is how many counts those of each class are a sum of.
    Of local reports it is `channels`, and in `node_variances` already.
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
