"""Counts read through a calibrator's map: the bins where it puts them, and the noise they keep.

Where a map rises, a bin becomes the range between its mapped ends, and holds what it held. Bins
that a map sends to one value become one, in which all scores tie. A bin in which a map steps, or
stops rising, is divided: each part has a share of it, as likely as neighbouring bins make it, and
the most that its upper or lower part could hold bounds every number.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from fedgauge.arrays import Floats, Indices
from fedgauge.errors import InputError
from fedgauge.estimation.counts import PooledCounts
from fedgauge.estimation.distribution import NARROWEST, horner, linear_pieces, monotone_cubics
from fedgauge.histograms.axis import Axis, AxisSpec, Outside
from fedgauge.histograms.calibrator import Calibrator

_ABOVE_ONE: Final = float(np.nextafter(1.0, 2.0))  # where merged bins of known values up to 1 end
_TIED: Final = 2.0  # steps of a float: scores no further apart tie once they are mapped
_GROUPS_AT_ONCE: Final = 64


class _Cells(NamedTuple):
    """Parts of bins on each of which a map rises or stands still, in the order of scores.

    `bins` are those that they are of, `starts` and `stops` the scores that they reach from and to,
    `low` and `high` the same mapped: equal where the map stands still.
    """

    bins: Indices
    starts: Floats
    stops: Floats
    low: Floats
    high: Floats


def mapped(pooled: PooledCounts, calibrator: Calibrator) -> PooledCounts:
    """The counts as they are of mapped scores.

    Where a map is strictly increasing nothing but the axis changes. Scores that a map sends to the
    same float tie, as they do for those who apply it. An axis that clips is taken to reach from 0
    to 1: its end bins hold every score beyond them. Known values are mapped one by one; where
    others count as the one below, bounds allow for scores in between if the map always rises.
    InputError if the axis reaches beyond probabilities.

    >>> from fedgauge.histograms.calibrator import Calibrator, Steps
    >>> pooled = PooledCounts(Axis.uniform(4), np.array([[4, 3, 2, 1], [1, 2, 3, 4]]), (4,))
    >>> mapped(pooled, Calibrator("binning", Steps([0.5], [0.3, 0.7]))).counts
    array([[7., 3.],
           [3., 7.]])
    """
    axis = pooled.axis
    check_probabilities(axis)
    edges = _reaching(axis)
    known = axis.kind == "values"
    cells = _points(axis, calibrator) if known else _cells(edges, calibrator)
    onto, groups = _regrouped(cells, axis.outside if known else "refuse")
    if len(groups) == onto.bins == axis.bins and np.array_equal(groups, np.arange(axis.bins)):
        return replace(pooled, axis=onto, counted_on=pooled.counted_on or axis)
    shares = _shares(edges, pooled.counts, cells)
    return _gathered(pooled, onto, _Parts(cells.bins, groups, shares))


def check_probabilities(axis: Axis) -> None:
    """Refuse an axis whose scores no calibrator maps."""
    if axis.low < 0 or axis.high > _ABOVE_ONE:
        raise InputError(
            f"a calibrator maps probabilities; the axis of this result runs from {axis.low:g} to "
            f"{axis.high:g}. Score with probabilities, on an axis within 0 and 1."
        )


class _Parts(NamedTuple):
    """Which bin each part is of, which group it goes to, and its share of each class there."""

    bins: Indices
    groups: Indices
    shares: Floats


@dataclass(frozen=True, eq=False)
class RegroupedCounts(PooledCounts):
    """Counts by groups of bins, or of parts of them, and the noise in those.

    All of it is linear in the counts by bin, and follows from them: noise by their covariance,
    counts drawn anew by those drawn there.
    """

    source: PooledCounts = field(kw_only=True)  # the counts by bin
    parts: _Parts = field(kw_only=True)  # where each part of a bin goes, in the order of bins

    @property
    def noisy(self) -> bool:
        """Whether noise was added on the way."""
        return self.source.noisy

    @cached_property
    def counts(self) -> Floats:
        """The counts made non-negative bin by bin, then gathered."""
        return _gather(self.source.counts, self.parts)

    @property
    def is_shrunk(self) -> bool:
        """Whether the likely counts by bin are others than those that noise left."""
        return self.shrinks and self.source.is_shrunk

    @cached_property
    def likely(self) -> Floats:
        """The likely counts by bin, gathered."""
        return _gather(self.source.likely, self.parts) if self.is_shrunk else self.counts

    @cached_property
    def leaf_variances(self) -> Floats:
        """Noise variance of each count."""
        variances = np.zeros(self.released.shape)
        each = np.arange(self.axis.bins)
        for some in np.split(each, range(_GROUPS_AT_ONCE, len(each), _GROUPS_AT_ONCE)):
            for row in range(len(variances)):
                weights = np.zeros((len(some), *variances.shape))
                weights[np.arange(len(some)), row, some] = 1.0
                variances[row, some] = self.noise_variance(weights)
        return variances

    @cached_property
    def divided(self) -> bool:
        """Whether parts of one bin are in several groups."""
        lowest, highest = self._reach
        return bool(np.any(lowest < highest))

    def divides(self, first: int) -> bool:
        """Whether a bin has parts in groups below `first` and in others."""
        lowest, highest = self._reach
        return bool(np.any((lowest < first) & (first <= highest)))

    def moved(self, *, negatives_up: bool, positives_up: bool) -> PooledCounts:
        """The counts with each divided bin in whole where its highest part is, or its lowest."""
        shares = np.zeros(self.parts.shares.shape)
        for row, up in zip(shares, (negatives_up, positives_up), strict=True):
            there = self.parts.groups == self._reach[int(up)][self.parts.bins]
            first = np.unique(self.parts.bins[there], return_index=True)[1]
            row[np.flatnonzero(there)[first]] = 1.0
        return _gathered(self.source, self.axis, self.parts._replace(shares=shares))

    @cached_property
    def _reach(self) -> tuple[Indices, Indices]:
        """The lowest and the highest group that each bin has a part in."""
        starts = _starts(self.parts.bins)
        groups = self.parts.groups
        return np.minimum.reduceat(groups, starts), np.maximum.reduceat(groups, starts)

    def covariance(self, left: Floats, right: Floats) -> Floats:
        """Noise covariance of weighted sums of the counts."""
        return self.source.covariance(self._by_bin(left), self._by_bin(right))

    def _by_bin(self, weights: Floats) -> Floats:
        """What weights of groups come to for the bins that they are gathered from."""
        bins, groups, shares = self.parts
        by_bin: Floats = np.add.reduceat(weights[..., groups] * shares, _starts(bins), axis=-1)
        return by_bin

    def redrawn(self, draws: int, *, sampling: bool) -> Floats:
        """Counts as they would come out again, by draw, class and group."""
        return _gather(self.source.redrawn(draws, sampling=sampling), self.parts)


def _gathered(source: PooledCounts, axis: Axis, parts: _Parts) -> PooledCounts:
    released = _gather(source.unbiased, parts)
    return RegroupedCounts(axis, released, (axis.bins,), source=source, parts=parts)


def _gather(counts: Floats, parts: _Parts) -> Floats:
    """Counts by group; those given have bins as their last axis."""
    order = np.argsort(parts.groups, kind="stable")
    each = counts[..., parts.bins[order]] * parts.shares[:, order]
    gathered: Floats = np.add.reduceat(each, _starts(parts.groups[order]), axis=-1)
    return gathered


def _starts(sorted_: Indices) -> Indices:
    """Where runs of equal numbers start."""
    return np.flatnonzero(np.diff(sorted_, prepend=sorted_[0] - 1))


def _reaching(axis: Axis) -> Floats:
    """The edges between which scores lie: those of an axis that clips reach from 0 to 1."""
    edges = axis.edges.copy()
    if axis.outside == "clip":
        edges[0], edges[-1] = 0.0, max(1.0, edges[-1])
    return edges


def _points(axis: Axis, calibrator: Calibrator) -> _Cells:
    """One cell for each known value."""
    values = axis.thresholds
    onto = calibrator.transform(values)
    return _Cells(np.arange(axis.bins), values, values, onto, onto)


def _cells(edges: Floats, calibrator: Calibrator) -> _Cells:
    """Bins cut where the map begins or ceases to stand still."""
    ends, values = calibrator.form.stretches()
    # The last bin is closed, so its end is a place of its own where a step begins there.
    inside = ends[(ends > edges[0]) & (ends <= edges[-1])]
    starts = np.union1d(edges[:-1], inside)
    stops = np.append(starts[1:], edges[-1])
    bins = np.searchsorted(edges[:-1], starts, side="right") - 1
    still = values[np.searchsorted(ends, starts, side="right")]
    low, high = (calibrator.transform(np.minimum(scores, 1.0)) for scores in (starts, stops))
    narrow = high - low <= _TIED * np.spacing(high)
    still = np.where(np.isnan(still) & narrow, low, still)
    rises = np.isnan(still)
    return _Cells(bins, starts, stops, np.where(rises, low, still), np.where(rises, high, still))


def _regrouped(cells: _Cells, outside: Outside) -> tuple[Axis, Indices]:
    """The axis of mapped scores, and the bin of each cell; `outside` is for unknown values."""
    rises = cells.low < cells.high
    if not rises.any():
        values, groups = np.unique(cells.low, return_inverse=True)
        return Axis.from_values(values, outside), groups
    # A map that rises anywhere never falls, so equal values are neighbours.
    new = np.append(True, rises[1:] | rises[:-1] | (np.diff(cells.low) > 0))
    low, tied = cells.low[new], ~rises[new]
    # Scores that tie are a range one float wide; who rises from there starts above them.
    low[1:] = np.where(tied[:-1], np.maximum(low[1:], np.nextafter(low[:-1], 2.0)), low[1:])
    end = np.nextafter(low[-1], 2.0) if tied[-1] else cells.high[-1]
    edges = np.append(low, end)
    # Not `from_edges`: this axis is in no plan, and may have as many bins as any.
    spec = AxisSpec("edges", len(low), "refuse", "", points=tuple(edges.tolist()))
    return Axis(edges, spec), np.cumsum(new) - 1


def _shares(edges: Floats, counts: Floats, cells: _Cells) -> Floats:
    """The share of its bin's examples that each cell has, by class.

    By a monotone cubic through the cumulative counts of a class, as losses are; by its width where
    a class has none.
    """
    shares = np.ones((len(counts), len(cells.bins)))
    alone = np.bincount(cells.bins)[cells.bins] == 1
    if alone.all():
        return shares
    wide = np.diff(edges) >= NARROWEST  # others are of one value, and no map divides them
    around = np.append(edges[:-1][wide], edges[1:][wide][-1:])
    cumulative = np.pad(np.cumsum(counts[:, wide], axis=1), ((0, 0), (1, 0)))
    width = np.maximum(np.diff(edges), NARROWEST)
    if len(around) > 2:
        pieces = monotone_cubics(around, cumulative)
    else:
        lines = [linear_pieces(width[wide], row[:-1], row[1:]) for row in cumulative]
        pieces = np.stack(lines, axis=1)
    piece, lower = np.maximum(np.cumsum(wide) - 1, 0)[cells.bins], edges[cells.bins]
    below, above = (
        horner(pieces[:, :, piece], ends - lower) for ends in (cells.starts, cells.stops)
    )
    part = np.maximum(above - below, 0.0)
    starts = _starts(cells.bins)
    held = np.add.reduceat(part, starts, axis=1)[:, cells.bins]
    even = (cells.stops - cells.starts) / width[cells.bins]
    with np.errstate(divide="ignore", invalid="ignore"):
        likely = np.where(held > 0, part / held, even)
    return np.where(alone, shares, likely)
