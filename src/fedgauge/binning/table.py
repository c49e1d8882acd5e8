"""What every table can be asked, and what a table may look at: rows as they were counted."""

from collections.abc import Callable
from typing import Any, ClassVar, Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedgauge.binning.axis import Axis
from fedgauge.binning.channels import Block, Layout
from fedgauge.typing import Floats, Indices

Score = tuple[str | None, int]  # a model's name, and which of its scores
_WITHOUT: Final = 0.0


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

    noise: float = _WITHOUT

    weight: ClassVar[int] = 1  # what a row adds to all cells together
    hides_small: ClassVar[bool] = False  # whether small cells can be merged (see `merged`)

    def __post_init__(self) -> None:
        # Defaults are left out by identity. Another 0, from JSON or a pickle, would be written, and
        # one plan have two forms, and two digests.
        if not self.noise:
            msgspec.structs.force_setattr(self, "noise", _WITHOUT)

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

    def merged(
        self, values: NDArray[Any], axis: Axis, kept: Indices, cut: Callable[..., Indices]
    ) -> tuple[Self, NDArray[Any]]:
        """The table with cells merged until none is small, on the axis that has `kept` edges.

        `cut` says which edges of counts, by channel and bin, stay so that none is small.
        """
        raise NotImplementedError

    def is_merging(self, planned: "Table", axis: Axis, merged: Axis) -> bool:
        """Whether it is a plan's table with some of its cells merged, on the `merged` axis."""
        del axis, merged
        return self == planned

    def margins(self, values: NDArray[Any], layout: Layout, axis: Axis) -> NDArray[Any] | None:
        """The histogram's counts, by channel and bin, where all of them are sums of cells."""
        del values, layout, axis
        return None

    def margin_terms(self, layout: Layout, axis: Axis) -> int:
        """How many cells each count of the histogram is a sum of; 0 where it is none."""
        del layout, axis
        return 0
