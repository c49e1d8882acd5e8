"""Count examples by channel and bin; histograms of many clients add up to the pooled one."""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedgauge.arrays import Floats, Indices
from fedgauge.data.columns import Column
from fedgauge.data.examples import Examples, Label
from fedgauge.data.row_checks import Oddities
from fedgauge.errors import AxisError, AxisMismatch, CountOverflow, InputError, LabelError
from fedgauge.histograms.axis import Axis
from fedgauge.histograms.calibrator import Calibrator
from fedgauge.histograms.channels import PLAIN, Block, ChannelReader, Layout
from fedgauge.histograms.tables import AnyTable, TableRows

Counts = NDArray[np.int64]
T = TypeVar("T", bound="_Tally")
Draw = Callable[[int], NDArray[np.integer[Any]]]  # a block's number for each of so many rows
_Counted = tuple[Counts, Counts | None, list[Counts]]  # by channel and bin; score sums; tables

_BATCH_ROWS: Final = 131_072  # large enough to share threads fairly, small enough for the cache
_THREADED_ROWS: Final = 1 << 20
_MOST_THREADS: Final = 4
_MOST_EXAMPLES: Final = 2**62
_MOST_STEPS: Final = 256  # so a site that allows sums knows how fine; a batch adds up exactly


class ScoreHistogram:
    """Counts of examples by channel and bin of a score axis.

    The task names the channels: slices times classes. A binary evaluation of one model has two, its
    negatives and its positives. Only histograms on equal axes add.

    Parameters
    ----------
    axis
        The score axis.
    layout
        Which channels rows are counted in; by default those of two classes.
    sum_steps
        Where positive, also sum up where the scores lie within their bins, in this many steps to a
        bin (:attr:`sums`).
    calibrator
        What scores go through before they are binned.
    tables
        What else of the rows is counted (:attr:`tables`).
    draw
        Where each row is counted in one block only: which one, for so many rows; -1 for none.

    Examples
    --------
    >>> axis = Axis.uniform(4)
    >>> a, b = ScoreHistogram(axis), ScoreHistogram(axis)
    >>> a.update([0, 1], [0.1, 0.9])
    >>> b.update([0, 1], [0.3, 0.9])
    >>> (a + b).counts
    array([[1, 1, 0, 0],
           [0, 0, 0, 2]])
    """

    __slots__ = (
        "_axis",
        "_calibrator",
        "_counted",
        "_counts",
        "_draw",
        "_layout",
        "_sum_steps",
        "_sums",
        "_tables",
    )

    def __init__(
        self,
        axis: Axis,
        *,
        layout: Layout = PLAIN,
        sum_steps: int = 0,
        calibrator: Calibrator | None = None,
        tables: tuple[AnyTable, ...] = (),
        draw: Draw | None = None,
    ) -> None:
        if sum_steps:
            check_sums(axis, sum_steps)
        self._axis = axis
        self._layout = layout
        self._calibrator = calibrator
        self._sum_steps = sum_steps
        self._counts: Counts = np.zeros((layout.channels, axis.bins), dtype=np.int64)
        self._sums: Counts | None = np.zeros_like(self._counts) if sum_steps else None
        self._tables = tables
        self._draw = draw
        self._counted = _no_rows(tables, layout, axis)

    @classmethod
    def from_counts(
        cls, axis: Axis, counts: ArrayLike, *, layout: Layout = PLAIN
    ) -> "ScoreHistogram":
        """A histogram with known counts, one row for each channel."""
        shape = (layout.channels, axis.bins)
        try:
            array = np.asarray(counts)
        except (ValueError, OverflowError):
            raise InputError(f"counts must be whole numbers of shape {shape}.") from None
        if array.shape != shape or array.dtype.kind not in "iu":
            raise InputError(
                f"counts must be whole numbers of shape {shape}, "
                f"got {array.dtype} of shape {array.shape}."
            )
        if np.any(array < 0) or np.any(array > _MOST_EXAMPLES):
            raise InputError(f"counts must lie between 0 and {_MOST_EXAMPLES:,}.")
        histogram = cls(axis, layout=layout)
        histogram._add(array.astype(np.int64), None)
        return histogram

    @property
    def axis(self) -> Axis:
        """The score axis."""
        return self._axis

    @property
    def channels(self) -> int:
        """How many rows there are."""
        return len(self._counts)

    @property
    def counts(self) -> Counts:
        """Counts by channel and bin, read-only."""
        return _read_only(self._counts)

    @property
    def sums(self) -> Counts | None:
        """Sums of the places of scores within their bins, read-only; None where not asked for.

        A score s in a bin from a to b adds ``round((s - a) / (b - a) * sum_steps)``.
        """
        return None if self._sums is None else _read_only(self._sums)

    @property
    def tables(self) -> tuple[Counts, ...]:
        """What the rows add up to in each of the tables, read-only."""
        return tuple(map(_read_only, self._counted))

    def sum(self) -> int:
        """Number of examples counted, each once whatever counts it adds to."""
        return int(self._counts.sum()) // self._layout.per_row

    def update(self, y_true: Any, y_score: Any, *, positive: Label | None = None) -> None:
        """Count more examples. Either all rows are counted or, on an error, none."""
        self.update_batches([Examples(y_true, y_score)], positive=positive)

    def update_batches(
        self,
        batches: Iterable[Examples],
        *,
        positive: Label | None = None,
        may_be_empty: bool = False,
    ) -> None:
        """Count one client's examples in bounded memory; on an error none of them."""
        tally = self._tally(_Tally, positive)
        for examples in batches:
            tally.count(examples)
        self._add(*tally.checked(may_be_empty=may_be_empty))

    def update_alike(
        self,
        labels: Column,
        scores: Floats,
        times: Counts,
        *,
        leniently: bool = False,
        may_be_empty: bool = False,
    ) -> Oddities:
        """Count one client's plain rows: so many of each label and score; say what is odd of them.

        Odd rows are refused, unless it is to be done `leniently`.
        """
        tally = self._tally(_LenientTally if leniently else _Tally, None)
        tally.count_alike(labels, scores, times)
        self._add(*(tally.counted if leniently else tally.checked(may_be_empty=may_be_empty)))
        return tally.oddities

    def update_leniently(
        self, batches: Iterable[Examples], *, positive: Label | None = None
    ) -> Oddities:
        """Count every row of one client, whatever it holds, and say what was odd.

        Each row adds to one bin of each of its scores, and once to each table. Only that row
        decides where: see :class:`Oddities`.
        """
        tally = self._tally(_LenientTally, positive)
        for examples in batches:
            tally.count(examples)
        self._add(*tally.counted)
        return tally.oddities

    def _tally(self, kind: type[T], positive: Label | None) -> T:
        """What rows are counted in first; a positive label that is named here counts."""
        layout = self._layout if positive is None else replace(self._layout, positive=positive)
        return kind(self._axis, layout, self._sum_steps, self._calibrator, self._tables, self._draw)

    def _add(self, counts: Counts, sums: Counts | None, tables: Sequence[Counts] = ()) -> None:
        # Neither a bin nor any total taken later may wrap; half the range is slack for
        # the rounding of this floating-point sum. A sum is at most its count times the steps.
        examples = self._counts.sum(dtype=np.float64) + counts.sum(dtype=np.float64)
        most = _MOST_EXAMPLES // max(self._sum_steps, 1)
        if examples > most:
            raise CountOverflow(f"more than {most:,} examples do not fit the counts.")
        self._counts += counts
        if self._sums is not None and sums is not None:
            self._sums += sums
        for ours, theirs in zip(self._counted, tables, strict=True):
            ours += theirs

    def levels(self, tree: Sequence[int]) -> list[Counts]:
        """Counts of the nodes at each level of a tree over the bins, leaves last, without the root.

        `tree` lists the branchings from the root down; their product is the number of bins.
        """
        check_tree(tree, self._axis.bins)
        widths = [self._axis.bins // math.prod(tree[: depth + 1]) for depth in range(len(tree))]
        return [self._counts.reshape(self.channels, -1, width).sum(axis=2) for width in widths]

    def __add__(self, other: object) -> "ScoreHistogram":
        if not isinstance(other, ScoreHistogram):
            return NotImplemented
        total = self._empty()
        total._add(self._counts, self._sums, self._counted)
        total += other
        return total

    def __iadd__(self, other: object) -> "ScoreHistogram":
        if not isinstance(other, ScoreHistogram):
            return NotImplemented
        if self._axis != other._axis:
            raise AxisMismatch(
                f"cannot add histograms on axes {self._axis.digest[:8]} and "
                f"{other._axis.digest[:8]}. Build both with the same axis."
            )
        if self._calibrator != other._calibrator:
            raise AxisMismatch(
                "cannot add histograms of scores that went through different maps. Build both with "
                "the same calibrator."
            )
        if self.channels != other.channels:
            raise AxisMismatch(
                f"cannot add histograms of {self.channels} and of {other.channels} channels. Build "
                "both for the same task."
            )
        if self._sum_steps != other._sum_steps:
            raise AxisMismatch(
                f"cannot add histograms with score sums of {self._sum_steps} and of "
                f"{other._sum_steps} steps. Build both with the same sum_steps."
            )
        if self._tables != other._tables:
            raise AxisMismatch(
                "cannot add histograms with different tables. Build both for the same plan."
            )
        self._add(other._counts, other._sums, other._counted)
        return self

    def __radd__(self, other: object) -> "ScoreHistogram":
        # The built-in sum() starts from 0.
        if other != 0:
            return NotImplemented
        return self + self._empty()

    def _empty(self) -> "ScoreHistogram":
        return ScoreHistogram(
            self._axis,
            layout=self._layout,
            sum_steps=self._sum_steps,
            calibrator=self._calibrator,
            tables=self._tables,
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ScoreHistogram)
            and self._axis == other._axis
            and self._calibrator == other._calibrator
            and self._sum_steps == other._sum_steps
            and np.array_equal(self._counts, other._counts)
            and _equal(self._sums, other._sums)
            and self._tables == other._tables
            and all(map(np.array_equal, self._counted, other._counted))
        )

    __hash__ = None  # type: ignore[assignment]  # counts change

    def __repr__(self) -> str:
        return f"ScoreHistogram({self._axis!r}, {self.sum():,} examples)"


def mapped(scores: Floats, calibrator: Calibrator | None) -> Floats:
    """The scores of rows on their way to bins; the axis judges those that a map cannot take."""
    if calibrator is None:
        return scores
    # NumPy's logarithm of a number depends on how its array lies in memory, and a row that stays as
    # it is must not change that for the others, nor the time that they take.
    inside = (scores >= 0.0) & (scores <= 1.0)
    return np.where(inside, calibrator.form.apply(np.where(inside, scores, 0.5)), scores)


class _Tally:
    """Counts of one client's rows so far, and of the rows that cannot be counted."""

    _lenient: ClassVar[bool] = False

    def __init__(
        self,
        axis: Axis,
        layout: Layout,
        sum_steps: int,
        calibrator: Calibrator | None,
        tables: tuple[AnyTable, ...],
        draw: Draw | None = None,
    ) -> None:
        self._axis = axis
        self._layout = layout
        self._calibrator = calibrator
        self._reader = ChannelReader(layout, leniently=self._lenient)
        self._counts: Counts = np.zeros((layout.channels, axis.bins), dtype=np.int64)
        self._sum_steps = sum_steps
        self._sums: Counts | None = np.zeros_like(self._counts) if sum_steps else None
        self._tables = tables
        self._draw = draw
        self._counted = _no_rows(tables, layout, axis)
        self._rows = self._infinite = self._refused = 0

    def count(self, examples: Examples) -> None:
        """Count more rows, on several threads where that pays."""
        workers = min(_MOST_THREADS, os.cpu_count() or 1)
        in_any_order = (
            self._layout == PLAIN and self._draw is None
        )  # no positive label to watch for
        if len(examples) < _THREADED_ROWS or workers < 2 or not in_any_order:
            self._count_here(examples)
            return
        make = type(self)
        tallies = [
            make(self._axis, self._layout, self._sum_steps, self._calibrator, self._tables)
            for _ in range(workers)
        ]
        spans = examples.split(-(-len(examples) // workers))
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(_Tally._count_here, tallies, spans))
        for tally in tallies:
            self._merge(tally)

    def count_alike(self, labels: Column, scores: Floats, times: Counts) -> None:
        """Count plain rows, so many of each label and score."""
        axis, finite = self._axis, np.isfinite(scores)
        bins, inside, *_ = axis.place_any(scores)
        beyond = (inside != scores) | (axis.separates_all & (axis.edges.take(bins) != scores))
        self._rows += int(times.sum())
        self._infinite += int(times[~finite].sum())
        if self._lenient or axis.outside == "refuse":
            self._refused += int(times[finite & beyond].sum())
        np.add.at(self._counts, (self._reader.alike(labels, times), bins), times)

    def _count_here(self, examples: Examples) -> None:
        most = max(_BATCH_ROWS, self._counts.size)
        for batch in examples.split(most) if len(examples) > most else (examples,):
            self._rows += len(batch)
            rows = TableRows(self._layout, self._axis) if self._tables else None
            drawn = None if self._draw is None else self._draw(len(batch))
            for number, (raw, channels) in enumerate(self._reader(batch)):
                block = self._layout.blocks[number]
                placed = self._place(mapped(raw, self._calibrator))
                if placed is not None:
                    if rows is not None:
                        rows.add(block, channels, *placed)
                    mine = slice(None) if drawn is None else drawn == number
                    index, scores = placed
                    self._count_block(block, channels[mine], index[mine], scores[mine])
            if rows is not None and rows.is_whole:
                for table, counted in zip(self._tables, self._counted, strict=True):
                    counted += table.count(rows)

    def _count_block(
        self, block: Block, channels: NDArray[Any], index: Indices, scores: Floats
    ) -> None:
        """Count one score of each row, in the channel that it is in."""
        # Of many classes all channels are far more than those of one block.
        rows = self._layout.rows(block)
        counts = self._counts[rows]
        places = None if self._sums is None else self._places(scores, index)
        index += np.multiply(channels - block.first, self._axis.bins, dtype=np.intp)
        counts += np.bincount(index, minlength=counts.size).reshape(counts.shape)
        if self._sums is not None:
            # Whole numbers in floats, exact: a batch has at most 2^25 rows.
            sums = np.bincount(index, places, minlength=counts.size).reshape(counts.shape)
            self._sums[rows] += sums.astype(np.int64)

    def _place(self, scores: Floats) -> tuple[Indices, Floats] | None:
        """Bin of each score, and the scores; None if one has none, and that is noted."""
        index = self._axis.place(scores)
        if index is not None:
            return index, scores
        self._infinite += int(np.count_nonzero(~np.isfinite(scores)))
        self._refused += self._axis.count_refused(scores)
        return None

    def _places(self, scores: Floats, index: Indices) -> Floats:
        """Where each score lies within its bin, in whole steps."""
        edges = self._axis.edges
        start = edges.take(index)
        # Clipped first: outside, scores lie beyond their bins, if need be beyond all floats.
        inside = np.clip(scores, self._axis.low, self._axis.high) - start
        return np.rint(inside / (edges.take(index + 1) - start) * self._sum_steps)

    def _merge(self, other: "_Tally") -> None:
        self._counts += other._counts
        if self._sums is not None and other._sums is not None:
            self._sums += other._sums
        for ours, theirs in zip(self._counted, other._counted, strict=True):
            ours += theirs
        self._rows += other._rows
        self._infinite += other._infinite
        self._refused += other._refused
        self._reader.merge(other._reader)

    @property
    def counted(self) -> _Counted:
        """What the rows come to."""
        return self._counts, self._sums, self._counted

    @property
    def _odd_scores(self) -> tuple[int, int]:
        """Scores that are not finite, and others beyond the axis."""
        times = len(self._layout.groupings)  # that each score was looked at
        return self._infinite // times, self._refused // times

    @property
    def oddities(self) -> Oddities:
        """What was odd about the rows."""
        layout, (not_finite, clipped) = self._layout, self._odd_scores
        return Oddities(
            rows=self._rows,
            not_finite=not_finite,
            clipped=clipped,
            missing_labels=self._reader.missing,
            other_labels=self._reader.unusable,
            by_row=layout.by_row,
            labels_by_row=layout.labels,
            of_classes=bool(layout.classes),
        )

    def checked(self, *, may_be_empty: bool = False) -> _Counted:
        """What the rows come to, if every row could be counted."""
        rows, reader = self._rows, self._reader
        scores, labels = rows * self._layout.by_row, rows * self._layout.labels
        infinite, refused = self._odd_scores
        if not rows and not may_be_empty:
            raise InputError("there are no examples. Leave this client out, or check its export.")
        if infinite:
            raise InputError(
                f"{infinite:,} of {scores:,} scores are missing, NaN or infinite. "
                "Drop those rows or score them again."
            )
        if refused:
            axis = self._axis
            where = f"axis [{axis.low:g}, {axis.high:g}]"
            if axis.kind == "values":
                where = f"axis of {axis.bins:,} values"
            raise InputError(
                f"{refused:,} of {scores:,} scores lie outside the {where}. Use "
                "an axis that covers them, or outside='clip' to count them in the end bins "
                "(float32 rounding can lift a probability just above 1). Where their scale is not "
                "known, axis='two-round' finds it."
            )
        if reader.missing:
            raise InputError(
                f"{reader.missing:,} of {labels:,} labels are missing. Drop those rows."
            )
        if reader.unusable:
            raise LabelError(f"{reader.unusable:,} of {labels:,} labels {reader.complaint()}.")
        return self.counted


class _LenientTally(_Tally):
    """The same of rows that all count."""

    _lenient = True

    def _place(self, scores: Floats) -> tuple[Indices, Floats]:
        placed = self._axis.place_any(scores)
        self._infinite += placed.not_finite
        self._refused += placed.clipped
        return placed.bins, placed.scores


def check_tree(tree: Sequence[int], bins: int) -> None:
    """Refuse branchings that do not multiply to the number of bins."""
    if not tree or any(not isinstance(b, int) or b < 1 for b in tree) or math.prod(tree) != bins:
        raise AxisError(
            f"tree {tuple(tree)} does not divide {bins:,} bins: its branchings must be positive "
            "and multiply to the number of bins."
        )


def check_sums(axis: Axis, steps: int) -> None:
    """Refuse score sums in steps that are none, or on bins that have no places in between."""
    if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= _MOST_STEPS:
        raise AxisError(f"score sums have a whole number of steps, from 1 to {_MOST_STEPS}.")
    if axis.kind == "values":
        raise AxisError(
            "on an axis of known values the scores are known already. Leave the score sums out."
        )
    with np.errstate(over="ignore"):
        widths = np.diff(axis.edges)
    if not np.all(np.isfinite(widths)):
        raise AxisError("the bins are too wide for score sums. Narrow the axis, or leave them out.")


def _no_rows(tables: tuple[AnyTable, ...], layout: Layout, axis: Axis) -> list[Counts]:
    """The cells of tables before any row."""
    return [np.zeros(table.cells(layout, axis), dtype=np.int64) for table in tables]


def _equal(ours: Counts | None, theirs: Counts | None) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    return np.array_equal(ours, theirs)


def _read_only(counts: Counts) -> Counts:
    view = counts.view()
    view.setflags(write=False)
    return view
