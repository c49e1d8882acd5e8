"""Tables: counts of other things than one score, which travel behind a histogram's.

A table has a fixed number of cells, and each row adds to it once: `weight` in all, as a rule 1 to
one cell. So to the accounting a table is one more level that a row is seen in. To add a kind:
subclass :class:`Table` with a tag, answer `check`, `cells`, `count` and `in_words`, and name it in
:data:`AnyTable`; a task says in `Task.tables` which ones its plans send. All else (noise, secure
sums, files, signatures) works from these four answers. A result has the sums, in the plan's order,
in `result.released.tables`: of each the table (with its `noise`) and its `values`; the variance of
the noise in one of its cells is `result.plan.table_variances(result.released.clients)[i]`.
"""

from typing import Any, ClassVar, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedgauge.binning.axis import Axis
from fedgauge.binning.channels import Block, Layout
from fedgauge.errors import PlanError
from fedgauge.typing import Floats, Indices

MOST_CELLS: Final = 1 << 20  # of one table: as many numbers as histograms have
MOST_TABLES: Final = 64  # of one plan: each has noise of its own

Score = tuple[str | None, int]  # a model's name, and which of its scores


class TableRows:
    """Rows of a batch as they were counted: all that a table may look at.

    Attributes
    ----------
    layout, axis
        What rows have, and how scores are binned.
    classes
        The number of each row's class, by the number of the label (0 where there is one).
    scores, bins
        By model and column: scores after the plan's map, each finite, and the bin of each. Where
        every row must count, what could not be read has a stated place already.
    """

    def __init__(self, layout: Layout, axis: Axis) -> None:
        self.layout, self.axis = layout, axis
        self.classes: dict[int, NDArray[Any]] = {}
        self.scores: dict[Score, Floats] = {}
        self.bins: dict[Score, Indices] = {}

    def add(self, block: Block, channels: NDArray[Any], bins: Indices, scores: Floats) -> None:
        """Note how the rows were counted in one block."""
        score = (block.model, block.column)
        if score not in self.bins:
            self.scores[score], self.bins[score] = scores, bins.copy()
            label = 0 if self.layout.classes else block.column
            self.classes[label] = (channels - block.first) % self.layout.by_block

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
    belongs to the plan, which calibrates it.
    """

    noise: float = 0.0

    weight: ClassVar[int] = 1  # what a row adds to all cells together
    hides_small: ClassVar[bool] = False  # whether it can be shown without small cells

    def check(self, layout: Layout, axis: Axis) -> None:
        """Refuse a table that rows of this layout do not have."""
        raise NotImplementedError

    def cells(self, layout: Layout, axis: Axis) -> int:
        """How many numbers it has."""
        raise NotImplementedError

    def count(self, rows: TableRows) -> NDArray[np.int64]:
        """What these rows add to each cell; each row adds `weight` in all, and decides alone."""
        raise NotImplementedError

    def in_words(self, layout: Layout, axis: Axis) -> str:
        """What its numbers are: "how many examples ..."."""
        raise NotImplementedError

    def margins(self, values: NDArray[Any], layout: Layout, axis: Axis) -> NDArray[Any] | None:
        """The histogram's counts, by channel and bin, where all of them are sums of cells."""
        del values, layout, axis
        return None

    def margin_terms(self, layout: Layout, axis: Axis) -> int:
        """How many cells each count of the histogram is a sum of; 0 where it is none."""
        del layout, axis
        return 0


class JointScores(Table, frozen=True, tag="joint"):
    """How many rows of each class have their scores of two models in each pair of ranges.

    Ranges are runs of the axis's bins. `starts` lists, for each of the models, the first bin of
    every run, 0 included; empty where each bin is a range.

    Examples
    --------
    >>> layout = Layout(models=("new", "old"))
    >>> table = JointScores(models=("new", "old"))
    >>> table.cells(layout, Axis.uniform(16))
    512
    """

    models: tuple[str, str]
    starts: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

    def check(self, layout: Layout, axis: Axis) -> None:
        """Refuse models or ranges that there are not."""
        first, second = self.models
        if first == second or not {first, second} <= {*layout.models}:
            raise PlanError(
                f"a joint histogram is of two of the task's models, got {first!r} and {second!r}."
            )
        if layout.classes or layout.labels > 1:
            raise PlanError("a joint histogram of two models is for two classes and one label.")
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

    def cells(self, layout: Layout, axis: Axis) -> int:
        """Two classes, times the ranges of one model, times those of the other."""
        first, second = self.ranges(axis)
        return layout.by_block * first * second

    def count(self, rows: TableRows) -> NDArray[np.int64]:
        """One to the cell of each row's class and ranges."""
        first, second = (
            _runs(starts, rows.bins[model, 0])
            for starts, model in zip(self.starts, self.models, strict=True)
        )
        sizes = self.ranges(rows.axis)
        cell = (rows.classes[0] * sizes[0] + first) * sizes[1] + second
        return np.bincount(cell, minlength=self.cells(rows.layout, rows.axis))

    def in_words(self, layout: Layout, axis: Axis) -> str:
        """What its numbers are."""
        del layout
        first, second = self.ranges(axis)
        return (
            "how many positive and how many negative examples have, at the same time, their score "
            f"of {self.models[0]} in each of {first:,} ranges and that of {self.models[1]} in each "
            f"of {second:,}"
        )

    def margins(self, values: NDArray[Any], layout: Layout, axis: Axis) -> NDArray[Any] | None:
        """Rows and columns added up, where these are all that the histogram has."""
        if not self.margin_terms(layout, axis):
            return None
        by_class = values.reshape(layout.by_block, axis.bins, axis.bins)
        sums = {self.models[0]: by_class.sum(axis=2), self.models[1]: by_class.sum(axis=1)}
        return np.concatenate([sums[model] for model in layout.models])

    def margin_terms(self, layout: Layout, axis: Axis) -> int:
        """As many as there are bins, for two models on all bins and no groups."""
        whole = len(layout.models) == 2 and not layout.groups and not any(self.starts)
        return axis.bins if whole else 0


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

    def cells(self, layout: Layout, axis: Axis) -> int:
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

    Examples
    --------
    >>> Predicted().cells(Layout(classes=("cat", "dog", "owl")), Axis.uniform(16))
    9
    """

    def count(self, rows: TableRows) -> NDArray[np.int64]:
        """One to the cell of each row's class and predicted class."""
        classes = len(rows.layout.classes)
        cell = rows.classes[0] * classes + np.argmax(self._scores(rows), axis=0)
        return np.bincount(cell, minlength=classes * classes)

    def in_words(self, layout: Layout, axis: Axis) -> str:
        """What its numbers are."""
        del axis
        return (
            f"how many examples of each of {len(layout.classes):,} classes have their highest "
            f"score{self._whose} for each of them"
        )


class Ranked(_OfClasses, frozen=True, tag="ranked"):
    """How many rows of each class have so many higher scores than that for their class.

    Of equal scores the first counts as the higher one, as for :class:`Predicted`.
    """

    def count(self, rows: TableRows) -> NDArray[np.int64]:
        """One to the cell of each row's class and rank."""
        scores, mine = self._scores(rows), rows.classes[0]
        classes = len(scores)
        own = scores[mine, np.arange(len(mine))]
        before = np.arange(classes)[:, np.newaxis] < mine
        rank = np.count_nonzero((scores > own) | ((scores == own) & before), axis=0)
        return np.bincount(mine * classes + rank, minlength=classes * classes)

    def in_words(self, layout: Layout, axis: Axis) -> str:
        """What its numbers are."""
        del axis
        return (
            f"for how many examples of each of {len(layout.classes):,} classes the score"
            f"{self._whose} for their class is the highest, the second highest and so on"
        )


class TopScore(_OfClasses, frozen=True, tag="top-score"):
    """How many rows have their highest score in each bin, by whether it is for their class."""

    def cells(self, layout: Layout, axis: Axis) -> int:
        """Wrong and right, times the bins."""
        del layout
        return 2 * axis.bins

    def count(self, rows: TableRows) -> NDArray[np.int64]:
        """One to the cell of each row: wrong or right, and the bin of its highest score."""
        top = np.argmax(self._scores(rows), axis=0)
        bins = np.stack([rows.bins[self.model, column] for column in range(top.max(initial=0) + 1)])
        right = top == rows.classes[0]
        cell = right * rows.axis.bins + bins[top, np.arange(len(top))]
        return np.bincount(cell, minlength=2 * rows.axis.bins)

    def in_words(self, layout: Layout, axis: Axis) -> str:
        """What its numbers are."""
        del layout
        return (
            f"how many examples have their highest score{self._whose} in each of {axis.bins:,} "
            "ranges, those where it is for the right class apart from the others"
        )


AnyTable = JointScores | Predicted | Ranked | TopScore


class TableSum(NamedTuple):
    """A table, and what all rows added up to in its cells."""

    table: AnyTable
    values: NDArray[Any]


def check_tables(tables: tuple[AnyTable, ...], layout: Layout, axis: Axis) -> None:
    """Refuse tables that rows of this layout do not have, or that are too many or too large."""
    if len(tables) > MOST_TABLES:
        raise PlanError(f"a plan has at most {MOST_TABLES} tables.")
    for table in tables:
        table.check(layout, axis)
        if table.cells(layout, axis) > MOST_CELLS:
            raise PlanError(f"a table has at most {MOST_CELLS:,} cells. Use fewer bins.")
    kinds = [msgspec.structs.replace(table, noise=0.0) for table in tables]
    if len({*kinds}) < len(kinds):
        raise PlanError("a plan has the same table twice. Name each once.")


def _runs(starts: tuple[int, ...], bins: Indices) -> Indices:
    """The run that each bin is in."""
    return np.searchsorted(starts, bins, side="right") - 1 if starts else bins
