"""What every table can be asked, and what a table may look at: rows as they were counted."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Final, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedgauge.binning.axis import Axis
from fedgauge.binning.channels import Block, Layout
from fedgauge.typing import Floats, Indices

Score = tuple[str | None, int]  # a model's name, and which of its scores
_WITHOUT: Final = 0.0


class Kept(NamedTuple):
    """Edges that stay of an axis whose small cells are merged.

    `ungrouped` are those that the same plan without groups keeps, on the same rows; `edges` those
    of the result, which are among them.
    """

    ungrouped: Indices
    edges: Indices


class TableRows:
    """Rows of a batch as they were counted: all that a table may look at.

    Attributes
    ----------
    layout, axis
        What rows have, and how scores are binned.
    classes
        The number of each row's class, by the number of the label (0 where there is one).
    groups
        The number of each row's group, by the way in which rows are grouped.
    scores, bins
        By model and column: scores after the plan's map, each finite, and the bin of each. Where
        every row must count, what could not be read has a stated place already.
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

    weight: ClassVar[int] = 1  # what a row adds to all cells together
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

    def places(self, rows: TableRows) -> Sequence[tuple[NDArray[Any], NDArray[Any] | None]]:
        """The cells, among those of its group, that each row adds to, and how much: 1 where None.

        Each row adds `weight` in all, and decides alone.
        """
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
        total = np.zeros(cells, dtype=np.int64)
        for place, added in self.places(rows):
            # Whole numbers, in floats where they are weighted: exact, since a batch is small.
            total += np.bincount(first + place, added, minlength=cells).astype(np.int64)
        return total

    def totals(self, values: NDArray[Any], layout: Layout) -> NDArray[Any]:
        """What rows added, by group and class; by group alone where it does not tell classes."""
        classes = layout.by_block if self.by_class else 1
        summed: NDArray[Any] = values.reshape(self.groups(layout), classes, -1).sum(axis=2)
        return summed

    def by_range(
        self, values: NDArray[Any], counts: NDArray[Any], layout: Layout, axis: Axis
    ) -> Iterable[NDArray[Any]]:
        """Numbers of rows in ranges of scores by its cells, less those by the histogram's counts.

        None of a table that tells no ranges of one score. Without noise all are 0.
        """
        del values, counts, layout, axis
        return ()

    def in_words(self, layout: Layout, axis: Axis) -> str:
        """What its numbers are: "how many examples ..."."""
        values = dict(layout.groups)
        every = [f"{name} ({', '.join(values[name])}, other)" for name in self.grouping]
        by_group = f", in each group by {' and '.join(every)}" if every else ""
        return f"{self.words(layout, axis)}{by_group}"

    def merged(
        self, values: NDArray[Any], axis: Axis, kept: Kept, cut: Callable[..., Indices]
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
