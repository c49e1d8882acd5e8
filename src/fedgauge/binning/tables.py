"""Tables: counts of other things than one score, which travel behind a histogram's.

A table has a fixed number of cells, and each row adds to it once: `weight` in all, as a rule 1 to
one cell. So to the accounting a table is one more level that a row is seen in. To add a kind:
subclass `Table` (`binning/table.py`) with a tag, answer `check`, `cells`, `count` and `in_words`,
and name it in :data:`AnyTable`; a task says in `Task.tables` which ones its plans send. All else
(noise, secure sums, files, signatures) works from these four answers. A result has the sums, in the
plan's order, in `result.released.tables`: of each the table (with its `noise`) and its `values`;
the variance of the noise in one of its cells is
`result.plan.table_variances(result.released.clients)[i]`.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar, Final, NamedTuple, Self

import msgspec
import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from fedgauge.binning.axis import Axis
from fedgauge.binning.channels import Layout
from fedgauge.binning.class_tables import Predicted, Ranked, TopScore
from fedgauge.binning.table import Table, TableRows
from fedgauge.errors import PlanError, ResultWithheld
from fedgauge.typing import Floats, Indices

MOST_CELLS: Final = 1 << 20  # of one table: as many numbers as histograms have
MOST_TABLES: Final = 64  # of one plan: each has noise of its own
# Ranges of a joint histogram's models. Without noise 32 widen an interval by 2 to 6%, 64 by 1 to 2.
# Under noise 16 balance its cost and theirs: 8 bias differences from 50,000 rows on.
RANGES: Final = 64
NOISY_RANGES: Final = 16
_HALF_POINTS: Final = 8  # of loss differences, on either side of 0
_BEND: Final = 4.0  # how much closer to 0 they lie: most differences are small
_LOGITS: Final = 7.0  # within which half of the ranges lie evenly


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
    # From a factory, so always written: a table has one form.
    starts: tuple[tuple[int, ...], tuple[int, ...]] = msgspec.field(
        default_factory=lambda: ((), ())
    )

    hides_small: ClassVar[bool] = True

    @classmethod
    def on(cls, axis: Axis, models: tuple[str, str], *, noisy: bool) -> "JointScores":
        """Of two models on an axis, in as many ranges as pay."""
        most, ranges = (2 * NOISY_RANGES, NOISY_RANGES) if noisy else (RANGES, RANGES)
        runs = () if axis.bins <= most else _even_runs(axis, ranges)
        return cls(models=models, starts=(runs, runs))

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

    def merged(
        self, values: NDArray[Any], axis: Axis, kept: Indices, cut: Callable[..., Indices]
    ) -> tuple[Self, NDArray[Any]]:
        """Ranges merged until every cell holds no row or enough.

        They start at edges that the histogram keeps: at any other, its counts less these would
        show few rows. The second model's ranges are merged evenly, the first's as `cut` says; of
        all such ways, the one with the finest square.
        """
        cube = values.reshape(-1, *self.ranges(axis))
        starts = []
        for place, own in enumerate(self.starts):
            edges = np.array(own) if own else np.arange(axis.bins)
            stay = np.flatnonzero(np.isin(edges, kept))
            cube = np.add.reduceat(cube, stay, axis=place + 1)
            starts.append(np.searchsorted(kept, edges[stay]))
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
        first, second = best
        cube = np.add.reduceat(np.add.reduceat(cube, first, axis=1), second, axis=2)
        runs = tuple(starts[0][first].tolist()), tuple(starts[1][second].tolist())
        return structs.replace(self, starts=runs), cube.ravel()

    def is_merging(self, planned: Table, axis: Axis, merged: Axis) -> bool:
        """Whether its ranges start where the plan's do."""
        if not isinstance(planned, JointScores):
            return False
        same = structs.replace(self, starts=planned.starts) == planned
        pairs = zip(self.starts, planned.starts, strict=True)
        return same and all(
            {*_edges(merged, ours)} <= {*_edges(axis, theirs)} for ours, theirs in pairs
        )


class LossDifferences(Table, frozen=True, tag="loss differences"):
    """How much larger one model's squared error is than another's, row by row.

    Each row's difference lies between two of 17 points from -1 to 1, and adds to both, `weight`
    in all, so that their mean is the difference: no midpoint stands for it, which would bias the
    mean of all. The points are closest around 0, where most differences lie.

    Examples
    --------
    >>> table = LossDifferences(models=("new", "old"))
    >>> table.points[:3].round(2), len(table.points)
    (array([-1.  , -0.61, -0.37]), 17)
    """

    models: tuple[str, str]

    weight: ClassVar[int] = 128  # a share is rounded to 1/256 of the way to the next point
    points: ClassVar[Floats] = np.sinh(
        _BEND * np.arange(-_HALF_POINTS, _HALF_POINTS + 1) / _HALF_POINTS
    ) / np.sinh(_BEND)

    def check(self, layout: Layout, axis: Axis) -> None:
        """Refuse models that there are not, and scores that are no probabilities."""
        _check_pair(self.models, layout)
        if axis.low < 0.0 or axis.high > 1.0:
            raise PlanError("loss differences are for scores from 0 to 1. Leave paired_brier out.")

    def cells(self, layout: Layout, axis: Axis) -> int:
        """One for each point."""
        del layout, axis
        return len(self.points)

    def count(self, rows: TableRows) -> NDArray[np.int64]:
        """The weight of each row, divided between the points around its difference."""
        label = rows.classes[0]
        one, other = ((np.clip(rows.scores[m, 0], 0.0, 1.0) - label) ** 2 for m in self.models)
        points, gap = self.points, np.clip(one - other, -1.0, 1.0)
        below = np.clip(np.searchsorted(points, gap, side="right") - 1, 0, len(points) - 2)
        way = (gap - points[below]) / (points[below + 1] - points[below])
        up = np.rint(way * self.weight).astype(np.int64)
        size = len(points)
        low = np.bincount(below, self.weight - up, minlength=size)
        high = np.bincount(below + 1, up, minlength=size)
        return (low + high).astype(np.int64)  # whole numbers in floats, exact: a batch is small

    def in_words(self, layout: Layout, axis: Axis) -> str:
        """What its numbers are."""
        del layout, axis
        return (
            f"by how much the squared error of {self.models[0]} exceeds that of {self.models[1]}, "
            f"as so many {self.weight}ths of examples near each of {len(self.points)} differences"
        )


AnyTable = JointScores | LossDifferences | Predicted | Ranked | TopScore
NO_JOINT: Final = (
    "the result is withheld: the scores of two models together leave cells smaller than the plan's "
    "smallest, and merging them cannot hide them. Evaluate on more data, or without pairs."
)


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
    kinds = [structs.replace(table, noise=0.0) for table in tables]
    if len({*kinds}) < len(kinds):
        raise PlanError("a plan has the same table twice. Name each once.")


def _check_pair(models: tuple[str, str], layout: Layout) -> None:
    first, second = models
    if first == second or not {first, second} <= {*layout.models}:
        raise PlanError(f"a pair is two of the task's models, got {first!r} and {second!r}.")
    if layout.classes or layout.labels > 1:
        raise PlanError("pairs of models are compared on two classes and one label.")


def _even_runs(axis: Axis, ranges: int) -> tuple[int, ...]:
    """Where as many runs of bins start as tell scores apart that nobody has seen.

    Between 0 and 1 half of them lie evenly, half evenly in log-odds: rare positives have all
    scores near 0. Elsewhere runs are of as many bins each.
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
