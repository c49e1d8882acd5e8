"""Tables: counts of other things than one score, which travel behind a histogram.

A table has a fixed number of cells, and each row adds 1 to one of them. So to the accounting a
table is one more level that a row is seen in. To add a kind:
subclass `Table` (`histograms/tables.py`) with a tag, answer `check`, `size`, `places` and `words`,
and name it in :data:`AnyTable`; a task says in `Task.tables` which ones its plans send. All else
(noise, secure sums, files, signatures) works from these four answers. Sums are in
`result.released.tables`, in the plan's order, and the variances of their noise in
`result.plan.table_variances(result.released.clients)`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final, NamedTuple, Self

import msgspec
import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from fedgauge.arrays import Floats, Indices
from fedgauge.errors import PlanError, ResultWithheld
from fedgauge.histograms.axis import Axis
from fedgauge.histograms.channels import Block, Layout

Score = tuple[str | None, int]  # a model's name, and which of its scores
_WITHOUT: Final = 0.0


class MergedEdges(NamedTuple):
    """Edges that stay of an axis, `edges`, among those that stay without groups, `ungrouped`."""

    ungrouped: Indices
    edges: Indices


class TableRows:
    """Rows of a batch as they were counted: all that a table may look at.

    `classes` has the number of each row's class, by the number of the label; `groups` that of its
    group, by the way in which rows are grouped. `scores`, by model and column, went through the
    plan's map and are finite; `bins` are theirs.
    """

    def __init__(self, layout: Layout, axis: Axis) -> None:
        self.layout, self.axis = layout, axis
        self.classes: dict[int, NDArray[Any]] = {}
        self.groups: dict[tuple[str, ...], NDArray[Any]] = {}
        self.scores: dict[Score, Floats] = {}
        self.bins: dict[Score, Indices] = {}

    def add(self, block: Block, channels: NDArray[Any], bins: Indices, scores: Floats) -> None:
        """Note how the rows were counted in one block."""
        score = (block.model, block.column)
        groups, classes = np.divmod(channels - block.first, self.layout.by_block)
        self.groups.setdefault(block.grouping, groups)
        if score not in self.bins:
            self.scores[score], self.bins[score] = scores, bins.copy()
            self.classes[0 if self.layout.classes else block.column] = classes

    @property
    def is_whole(self) -> bool:
        """Whether every score of the rows had a bin."""
        return len(self.bins) == max(len(self.layout.models), 1) * self.layout.scores


class Table(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    kw_only=True,
    tag_field="kind",
):
    """What every kind of table can be asked.

    `noise` is the strength of the noise on the sum of each cell (as of a level); 0 without. It
    belongs to the plan, which calibrates it. `grouping` is one of the layout's ways to group rows:
    the cells are then told apart by group, one group's after another's. A row is in one of them, so
    that costs no budget; a sum over groups has the noise of each.
    """

    noise: float = _WITHOUT
    grouping: tuple[str, ...] = ()

    hides_small: ClassVar[bool] = False  # whether small cells can be merged (see `merged`)
    by_class: ClassVar[bool] = (
        False  # whether cells of a group are those of one class after another
    )

    def __post_init__(self) -> None:
        # Defaults are left out by identity. Another 0, from JSON or a pickle, would be written, and
        # one plan have two forms, and two digests.
        if not self.noise:
            msgspec.structs.force_setattr(self, "noise", _WITHOUT)

    def check(self, layout: Layout, axis: Axis) -> None:
        """Refuse a table that rows of this layout do not have."""
        raise NotImplementedError

    def size(self, layout: Layout, axis: Axis) -> int:
        """How many numbers it has of each group."""
        raise NotImplementedError

    def places(self, rows: TableRows) -> NDArray[Any]:
        """The cell, among those of its group, that each row adds 1 to."""
        raise NotImplementedError

    def words(self, layout: Layout, axis: Axis) -> str:
        """What its numbers are, of each group: "how many examples ..."."""
        raise NotImplementedError

    def groups(self, layout: Layout) -> int:
        """How many groups it tells apart; 1 where it is of all rows."""
        return layout.cells(self.grouping)

    def cells(self, layout: Layout, axis: Axis) -> int:
        """How many numbers it has."""
        return self.groups(layout) * self.size(layout, axis)

    def count(self, rows: TableRows) -> NDArray[np.int64]:
        """What these rows add to each cell."""
        size, cells = self.size(rows.layout, rows.axis), self.cells(rows.layout, rows.axis)
        first = rows.groups[self.grouping] * size if self.grouping else 0
        return np.bincount(first + self.places(rows), minlength=cells)

    def totals(self, values: NDArray[Any], layout: Layout) -> NDArray[Any]:
        """What rows added, by group and class; by group alone where it does not tell classes."""
        classes = layout.by_block if self.by_class else 1
        summed: NDArray[Any] = values.reshape(self.groups(layout), classes, -1).sum(axis=2)
        return summed

    def by_range(
        self, values: NDArray[Any], counts: NDArray[Any], layout: Layout, axis: Axis
    ) -> Iterable[NDArray[Any]]:
        """Rows in ranges of one score by its cells, less those by counts; None for other tables."""
        del values, counts, layout, axis
        return ()

    def in_words(self, layout: Layout, axis: Axis) -> str:
        """What its numbers are: "how many examples ..."."""
        values = dict(layout.groups)
        every = [f"{name} ({', '.join(values[name])}, other)" for name in self.grouping]
        by_group = f", in each group by {' and '.join(every)}" if every else ""
        return f"{self.words(layout, axis)}{by_group}"

    def merged(
        self, values: NDArray[Any], axis: Axis, kept: MergedEdges, cut: Callable[..., Indices]
    ) -> tuple[Self, NDArray[Any]]:
        """The table with cells merged until none is small, on the axis that has the edges kept.

        `cut` says which edges of counts, by channel and bin, stay so that none is small.
        """
        raise NotImplementedError

    def is_merging(self, planned: "Table", axis: Axis, merged: Axis) -> bool:
        """Whether it is a plan's table with some of its cells merged, on the `merged` axis."""
        del axis, merged
        return self == planned

    def margins(
        self, values: NDArray[Any], layout: Layout, axis: Axis
    ) -> dict[Block, NDArray[Any]]:
        """The histogram's counts, by channel and bin, of blocks where they are sums of cells."""
        del values, layout, axis
        return {}

    def margin_terms(self, layout: Layout, axis: Axis) -> int:
        """How many cells each count of such a block is a sum of; 0 where there is none."""
        del layout, axis
        return 0


class _OfClasses(Table, frozen=True):
    """A table of rows by their scores for all classes, of one model."""

    model: str | None = None

    def check(self, layout: Layout, axis: Axis) -> None:
        """Refuse a table of classes where there are none, or of a model that there is not."""
        del axis
        if not layout.classes:
            raise PlanError("a table of predicted classes is for a task of several classes.")
        if self.model not in (layout.models or (None,)):
            raise PlanError(f"a table of predicted classes is of no model {self.model!r}.")

    def size(self, layout: Layout, axis: Axis) -> int:
        """The classes, times the classes or ranks."""
        del axis
        return len(layout.classes) ** 2

    def _scores(self, rows: TableRows) -> Floats:
        """Scores by class and row."""
        columns = range(len(rows.layout.classes))
        return np.stack([rows.scores[self.model, column] for column in columns])

    @property
    def _whose(self) -> str:
        return "" if self.model is None else f" of {self.model}"


class Predicted(_OfClasses, frozen=True, tag="predicted"):
    """How many rows of each class have their highest score for each class; the first of equals.

    >>> Predicted().cells(Layout(classes=("cat", "dog", "owl")), Axis.uniform(16))
    9
    """

    by_class: ClassVar[bool] = True

    def places(self, rows: TableRows) -> NDArray[Any]:
        """The cell of each row's class and predicted class."""
        classes = len(rows.layout.classes)
        cell: NDArray[Any] = rows.classes[0] * classes + np.argmax(self._scores(rows), axis=0)
        return cell

    def words(self, layout: Layout, axis: Axis) -> str:
        """What its numbers are."""
        del axis
        return (
            f"how many examples of each of {len(layout.classes):,} classes have their highest "
            f"score{self._whose} for each of them"
        )


class Ranked(_OfClasses, frozen=True, tag="ranked"):
    """How many rows of each class have so many higher scores; ties as for :class:`Predicted`."""

    by_class: ClassVar[bool] = True

    def places(self, rows: TableRows) -> NDArray[Any]:
        """The cell of each row's class and rank."""
        scores, mine = self._scores(rows), rows.classes[0]
        classes = len(scores)
        own = scores[mine, np.arange(len(mine))]
        before = np.arange(classes)[:, np.newaxis] < mine
        rank = np.count_nonzero((scores > own) | ((scores == own) & before), axis=0)
        cell: NDArray[Any] = mine * classes + rank
        return cell

    def words(self, layout: Layout, axis: Axis) -> str:
        """What its numbers are."""
        del axis
        return (
            f"for how many examples of each of {len(layout.classes):,} classes the score"
            f"{self._whose} for their class is the highest, the second highest and so on"
        )


class TopScore(_OfClasses, frozen=True, tag="top-score"):
    """How many rows have their highest score in each bin, by whether it is for their class."""

    def size(self, layout: Layout, axis: Axis) -> int:
        """Wrong and right, times the bins."""
        del layout
        return 2 * axis.bins

    def places(self, rows: TableRows) -> NDArray[Any]:
        """The cell of each row: wrong or right, and the bin of its highest score."""
        top = np.argmax(self._scores(rows), axis=0)
        bins = np.stack([rows.bins[self.model, column] for column in range(top.max(initial=0) + 1)])
        right = top == rows.classes[0]
        cell: NDArray[Any] = right * rows.axis.bins + bins[top, np.arange(len(top))]
        return cell

    def words(self, layout: Layout, axis: Axis) -> str:
        """What its numbers are."""
        del layout
        return (
            f"how many examples have their highest score{self._whose} in each of {axis.bins:,} "
            "ranges, those where it is for the right class apart from the others"
        )


MOST_CELLS: Final = 1 << 20  # of one table: as many numbers as histograms have
MOST_TABLES: Final = 64  # of one plan: each has noise of its own
# Ranges of a joint histogram's models. Without noise 32 widen an interval by 2 to 6%, 64 by 1 to 2.
RANGES: Final = 64
# Under noise fewer pay, and 8 to 16 where something is known of the rows (see `ranges_for`). Where
# nothing is: closer at both ends, since rare positives have all scores near 0. Of 16 ranges of
# equal width the AUC's difference is off by 0.9 deviations, with 20,000 positives of 200,000 rows.
NOISY_RANGES: Final = 16
FEWEST_RANGES: Final = 8
NOISY_EDGES: Final = (0.0, 0.01, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.99, 1.0)
_LOGITS: Final = 7.0  # within which half of the ranges lie evenly
_CLASSES: Final = 2  # of rows that pairs of models are compared on


class JointScores(Table, frozen=True, tag="joint"):
    """How many rows of each class have their scores of two models in each pair of ranges.

    Ranges are runs of the axis's bins. `starts` lists, for each of the models, the first bin of
    every run, 0 included; empty where each bin is a range.

    >>> JointScores(models=("new", "old")).cells(Layout(models=("new", "old")), Axis.uniform(16))
    512
    """

    models: tuple[str, str]
    # From a factory, so always written: a table has one form.
    starts: tuple[tuple[int, ...], tuple[int, ...]] = msgspec.field(
        default_factory=lambda: ((), ())
    )

    hides_small: ClassVar[bool] = True
    by_class: ClassVar[bool] = True

    @classmethod
    def on(
        cls, axis: Axis, models: tuple[str, str], grouping: tuple[str, ...] = (), *, noisy: bool
    ) -> "JointScores":
        """Of two models on an axis, in as many ranges as pay."""
        most, ranges = (2 * NOISY_RANGES, NOISY_RANGES) if noisy else (RANGES, RANGES)
        runs = () if axis.bins <= most else _even_runs(axis, ranges)
        return cls(models=models, grouping=grouping, starts=(runs, runs))

    def check(self, layout: Layout, axis: Axis) -> None:
        """Refuse models or ranges that there are not."""
        _check_pair(self.models, layout)
        for starts in self.starts:
            if starts and (
                starts[0] != 0 or starts[-1] >= axis.bins or np.any(np.diff(starts) < 1)
            ):
                raise PlanError(
                    "the ranges of a joint histogram must start at rising bins, from 0."
                )

    def ranges(self, axis: Axis) -> tuple[int, int]:
        """How many ranges each model's scores are told apart in."""
        first, second = (len(starts) or axis.bins for starts in self.starts)
        return first, second

    def size(self, layout: Layout, axis: Axis) -> int:
        """Two classes, times the ranges of one model, times those of the other."""
        first, second = self.ranges(axis)
        return layout.by_block * first * second

    def places(self, rows: TableRows) -> NDArray[Any]:
        """The cell of each row's class and ranges."""
        first, second = (
            _runs(starts, rows.bins[model, 0])
            for starts, model in zip(self.starts, self.models, strict=True)
        )
        sizes = self.ranges(rows.axis)
        cell: NDArray[Any] = (rows.classes[0] * sizes[0] + first) * sizes[1] + second
        return cell

    def words(self, layout: Layout, axis: Axis) -> str:
        """What its numbers are."""
        del layout
        first, second = self.ranges(axis)
        return (
            "how many positive and how many negative examples have, at the same time, their score "
            f"of {self.models[0]} in each of {first:,} ranges and that of {self.models[1]} in each "
            f"of {second:,}"
        )

    def margins(
        self, values: NDArray[Any], layout: Layout, axis: Axis
    ) -> dict[Block, NDArray[Any]]:
        """Rows and columns added up, where these are all that the histogram has of its grouping."""
        if not self.margin_terms(layout, axis):
            return {}
        cube = values.reshape(-1, axis.bins, axis.bins)  # by group and class
        sums = {self.models[0]: cube.sum(axis=2), self.models[1]: cube.sum(axis=1)}
        blocks = [each for each in layout.blocks if each.grouping == self.grouping]
        return {block: sums[str(block.model)] for block in blocks}

    def by_range(
        self, values: NDArray[Any], counts: NDArray[Any], layout: Layout, axis: Axis
    ) -> Iterator[NDArray[Any]]:
        """Rows and columns added up, by group, class and range, less the counts of either model."""
        cube = values.reshape(self.groups(layout), _CLASSES, *self.ranges(axis))
        grouping = self.grouping or layout.groupings[0]
        for model, starts, other in zip(self.models, self.starts, (3, 2), strict=True):
            block = next(b for b in layout.blocks if (b.model, b.grouping) == (model, grouping))
            told = counts[layout.rows(block)].reshape(-1, _CLASSES, axis.bins)
            told = told if self.grouping else told.sum(axis=0, keepdims=True)
            yield cube.sum(axis=other) - np.add.reduceat(told, starts or range(axis.bins), axis=2)

    def margin_terms(self, layout: Layout, axis: Axis) -> int:
        """As many as there are bins, for two models on all bins, by a way of grouping they have."""
        of_all = len(layout.models) == 2 and self.grouping in layout.groupings
        return axis.bins if of_all and not any(self.starts) else 0

    def merged(
        self, values: NDArray[Any], axis: Axis, kept: MergedEdges, cut: Callable[..., Indices]
    ) -> tuple[Self, NDArray[Any]]:
        """Ranges merged until every cell holds no row or enough.

        They start at edges that the histogram keeps: at any other, its counts less these would show
        few rows. Groups are first taken together, and then apart: so neither this table less that
        of the same plan without groups, nor one way of grouping less another, shows few rows.
        """
        cube = values.reshape(-1, *self.ranges(axis))  # by group and class
        runs = [np.array(own) if own else np.arange(axis.bins) for own in self.starts]
        for edges, apart in ((kept.ungrouped, _CLASSES), (kept.edges, len(cube))):
            stay = [np.flatnonzero(np.isin(own, edges)) for own in runs]
            runs = [own[each] for own, each in zip(runs, stay, strict=True)]
            cube = _added_up(cube, *stay)
            chosen = _finest(cube.reshape(-1, apart, *cube.shape[1:]).sum(axis=0), cut)
            runs = [own[each] for own, each in zip(runs, chosen, strict=True)]
            cube = _added_up(cube, *chosen)
        first, second = (tuple(np.searchsorted(kept.edges, own).tolist()) for own in runs)
        return structs.replace(self, starts=(first, second)), cube.ravel()

    def is_merging(self, planned: Table, axis: Axis, merged: Axis) -> bool:
        """Whether its ranges start where the plan's do."""
        if not isinstance(planned, JointScores):
            return False
        same = structs.replace(self, starts=planned.starts) == planned
        pairs = zip(self.starts, planned.starts, strict=True)
        return same and all(
            {*_edges(merged, ours)} <= {*_edges(axis, theirs)} for ours, theirs in pairs
        )


AnyTable = JointScores | Predicted | Ranked | TopScore
NO_JOINT: Final = (
    "the result is withheld: the scores of two models together leave cells smaller than the plan's "
    "smallest, and merging them cannot hide them. Evaluate on more data, or without pairs."
)


class TableSum(NamedTuple):
    """A table, and what all rows added up to in its cells."""

    table: AnyTable
    values: NDArray[Any]

    def by_group(self, layout: Layout) -> NDArray[Any]:
        """The values, by group and cell; one row where the table is of all rows."""
        return self.values.reshape(self.table.groups(layout), -1)


def ranges_for(examples: float, epsilon: float) -> int:
    """Ranges of two models' scores together under noise, for so many of the scarcer class.

    Noise grows with every cell, and matters less with more examples. Of 8, 9, 10, 12 and 16 ranges,
    half the cube root is where the interval of an AUC's difference is about shortest: for 1,500,
    5,000, 6,000 and 15,000 positives at epsilon 1.

    >>> ranges_for(5000, 1.0), ranges_for(15000, 1.0), ranges_for(5000, 0.1)
    (8, 12, 8)
    """
    half = int(math.cbrt(examples * epsilon) / 2.0)
    return min(max(half, FEWEST_RANGES), NOISY_RANGES)


def check_tables(tables: tuple[AnyTable, ...], layout: Layout, axis: Axis) -> None:
    """Refuse tables that rows of this layout do not have, or that are too many or too large."""
    if len(tables) > MOST_TABLES:
        raise PlanError(f"a plan has at most {MOST_TABLES} tables.")
    for table in tables:
        if table.grouping and table.grouping not in layout.groupings:
            raise PlanError("a table is by a grouping that the task has not.")
        table.check(layout, axis)
        if table.cells(layout, axis) > MOST_CELLS:
            raise PlanError(f"a table has at most {MOST_CELLS:,} cells. Use fewer bins or groups.")
    together = {
        (frozenset(table.models), structs.replace(table, noise=0.0, grouping=()))
        for table in tables
        if isinstance(table, JointScores)
    }
    if len({pair for pair, _ in together}) < len(together):
        # Merged each by itself, two of them less each other would show few rows.
        raise PlanError("the scores of a pair are counted together in one way, by each grouping.")
    kinds = [structs.replace(table, noise=0.0) for table in tables]
    if len({*kinds}) < len(kinds):
        raise PlanError("a plan has the same table twice. Name each once.")


def _check_pair(models: tuple[str, str], layout: Layout) -> None:
    first, second = models
    if first == second or not {first, second} <= {*layout.models}:
        raise PlanError(f"a pair is two of the task's models, got {first!r} and {second!r}.")
    if layout.classes or layout.labels > 1:
        raise PlanError("pairs of models are compared on two classes and one label.")


def are_all(tables: Sequence[AnyTable], layout: Layout, axis: Axis) -> bool:
    """Whether all counts of the histogram are sums of tables' cells."""
    return {*layout.groupings} <= {t.grouping for t in tables if t.margin_terms(layout, axis)}


def margins(tables: Sequence[TableSum], layout: Layout, axis: Axis) -> NDArray[Any]:
    """The counts of the histogram, where they are sums of tables' cells."""
    found: dict[Block, NDArray[Any]] = {}
    for table, values in tables:
        found |= table.margins(values, layout, axis)
    return np.concatenate([found[block] for block in layout.blocks])


def _added_up(cube: NDArray[Any], first: Indices, second: Indices) -> NDArray[Any]:
    """Cells of ranges that start at these, of either model."""
    summed: NDArray[Any] = np.add.reduceat(np.add.reduceat(cube, first, axis=1), second, axis=2)
    return summed


def _finest(cube: NDArray[Any], cut: Callable[..., Indices]) -> tuple[Indices, Indices]:
    """Where ranges of both models start so that no cell is small.

    The second model's ranges are merged evenly, the first's as `cut` says; of all such ways, the
    one with the finest square.
    """
    best = None
    width = 1
    while width < 2 * cube.shape[2]:
        second = np.arange(0, cube.shape[2], width)
        halved = np.add.reduceat(cube, second, axis=2)
        width *= 2
        with suppress(ResultWithheld):  # where a range of the second model is small in all
            first = cut(halved.transpose(0, 2, 1).reshape(-1, cube.shape[1]))[:-1]
            if best is None or min(len(first), len(second)) > min(map(len, best)):
                best = first, second
    if best is None:
        raise ResultWithheld(NO_JOINT)
    return best


def _even_runs(axis: Axis, ranges: int) -> tuple[int, ...]:
    """Where as many runs of bins start as tell scores apart that nobody has seen.

    Between 0 and 1 half of them lie evenly, half evenly in log-odds: rare positives have all scores
    near 0. Elsewhere runs are of as many bins each.
    """
    edges = axis.thresholds
    even = np.arange(axis.bins) / axis.bins
    if axis.low >= 0.0 and axis.high <= 1.0:
        with np.errstate(divide="ignore"):
            logits = np.clip(np.log(edges) - np.log1p(-np.minimum(edges, 1.0)), -_LOGITS, _LOGITS)
        even = 0.5 * edges + 0.5 * (logits / (2.0 * _LOGITS) + 0.5)
    starts = np.unique(np.searchsorted(even, np.arange(ranges) / ranges))
    return tuple(np.union1d([0], starts[starts < axis.bins]).tolist())


def _edges(axis: Axis, starts: tuple[int, ...]) -> list[float]:
    """The edges at which ranges start."""
    edges: list[float] = axis.thresholds[np.array(starts or range(axis.bins))].tolist()
    return edges


def _runs(starts: tuple[int, ...], bins: Indices) -> Indices:
    """The run that each bin is in."""
    return np.searchsorted(starts, bins, side="right") - 1 if starts else bins
