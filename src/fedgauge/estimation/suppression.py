"""Suppression of small cells: bins and small groups of an exact sum merged until none is small.

A bin with a few examples shows where the score of each of them lies. Merged bins have edges that
all channels share, so at those that remain every rate is what it was.
"""

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedgauge.arrays import Floats, Indices
from fedgauge.errors import ResultWithheld
from fedgauge.estimation.counts import Released
from fedgauge.histograms.axis import Axis
from fedgauge.histograms.tables import AnyTable, MergedEdges, TableSum
from fedgauge.plan.task import AnyTask, Task

_NONE: Final = -1  # no way to cut
_CUTS: Final = 1 << 32  # more than there are: a number of cells and a cut go in one number


def merge_small(released: Released, least: int, sum_steps: int) -> Released:
    """The release with as many bins as leave every count at zero, or at `least` or more.

    Sums of places within bins are expressed in the wider bins, in `sum_steps` to a bin, and rounded
    to whole steps. ResultWithheld if a channel has examples, and fewer than `least` in all.
    """
    kept = kept_edges(released.counts, least)
    return merge_at(released, MergedEdges(kept, kept), least, sum_steps)


def merge_at(released: Released, stay: MergedEdges, least: int, sum_steps: int) -> Released:
    """The release with the edges that are kept alone, and tables with no small cell on these."""
    kept = stay.edges
    axis = merged_axis(released.axis, kept)
    tables = tuple(
        TableSum(
            *table.merged(values, released.axis, stay, lambda counts: kept_edges(counts, least))
        )
        for table, values in released.tables
    )
    if axis is released.axis:
        return replace(released, tables=tables)
    counts = np.add.reduceat(released.counts, kept[:-1], axis=1)
    sums = released.sums
    if sums is not None:
        sums = _merged_sums(released.axis.edges, kept, released.counts, sums, sum_steps)
    return replace(released, axis=axis, counts=counts, sums=sums, tables=tables)


def kept_edges(counts: NDArray[np.int64], least: int) -> Indices:
    """Which edges stay, the first and the last included.

    As many bins that hold examples stay as can: an exact dynamic programme. Empty bins stay where
    those beside them needed no merging. A merged bin takes the empty ones beside it along, since an
    edge close to it would show where the last of few examples lies.

    >>> kept_edges(np.array([[9, 2, 1, 0, 8], [5, 0, 6, 0, 9]]), 3).tolist()
    [0, 1, 4, 5]
    """
    held = np.flatnonzero(counts.any(axis=0))
    if is_large(counts, least) or not held.size:
        return np.arange(counts.shape[1] + 1)
    totals = counts.sum(axis=1)
    if not is_large(totals, least):
        raise ResultWithheld(
            f"the result is withheld: a class has fewer examples than its plan's smallest cell, "
            f"{least}, so merging bins cannot hide them. Evaluate on more data, or agree on a "
            "smaller min_cell."
        )
    cuts = _most_cells(counts[:, held], least)
    return _edges_at(cuts, held, counts.shape[1])


def edges_beside(
    edges: Floats, rows: NDArray[np.int64], others: Floats, counts: NDArray[np.int64], least: int
) -> Indices:
    """Which edges stay beside another sum of the same rows: no small count lies between the two.

    `rows` lie between the edges, and `counts` of them between those of the other sum, `others`.

    >>> edges, others = np.array([0.0, 3.0, 5.0, 8.0]), np.array([0.0, 4.0, 8.0])
    >>> rows, counts = np.array([20, 20, 20]), np.array([21, 39])
    >>> edges_beside(edges, rows, others, counts, 10).tolist()  # one row from 3 to 4
    [0, 2, 3]
    """
    below = np.append(0, np.cumsum(rows))
    other = np.append(0, np.cumsum(counts))
    before = np.clip(np.searchsorted(others, edges, side="right") - 1, 0, len(counts) - 1)
    between = np.array([below - other[before], other[before + 1] - below])
    fits = np.all((between <= 0) | (between >= least), axis=0)
    fits[[0, -1]] = True
    return np.flatnonzero(fits)


def is_large(counts: NDArray[Any], least: int) -> bool:
    """Whether every count is zero, or at least so large."""
    return not np.any((counts > 0) & (counts < least))


def merged_axis(axis: Axis, kept: Indices) -> Axis:
    """The axis with these of its edges alone; known values become ranges up to the next bin's."""
    if len(kept) == axis.bins + 1:
        return axis
    edges = axis.edges[kept]
    if edges[-1] == edges[-2]:  # the last of known values, alone in its bin
        edges[-1] = np.nextafter(edges[-1], np.inf)
    return Axis.from_edges(edges.tolist(), axis.outside)


def is_merging(axis: Axis, merged: Axis) -> bool:
    """Whether an axis is another one with some of its bins merged."""
    inner = np.searchsorted(axis.thresholds, merged.thresholds)
    kept = np.append(inner, axis.bins)
    return bool(kept[0] == 0 and np.all(np.diff(kept) > 0)) and merged_axis(axis, kept) == merged


def _most_cells(counts: NDArray[np.int64], least: int) -> list[int]:
    """Where to cut bins, all of which hold examples, into the most cells without small counts.

    A cell from cut i to cut j is right for a channel if it holds none of it, which is so from some
    i on, or enough, which is so up to some i. Between the two, i is wrong. So the cuts that may
    come before j are a few ranges, and the best of each is looked up.
    """
    sums = np.pad(np.cumsum(counts, axis=1), ((0, 0), (1, 0)))
    none = np.array([np.searchsorted(row, row) for row in sums]).T.tolist()
    enough = np.array([np.searchsorted(row, row - least, "right") - 1 for row in sums]).T.tolist()
    most, before = _LargestInRange(), [0]
    most.append(0)
    for j in range(1, sums.shape[1]):
        found, right = _NONE, j - 1
        for first, last in sorted(zip(none[j], enough[j], strict=True), reverse=True):
            found = max(found, most.between(first, right))
            right = min(right, last)
        found = max(found, most.between(0, right))
        cells, cut = divmod(found, _CUTS)
        most.append((cells + 1) * _CUTS + j if found > _NONE else _NONE)
        before.append(cut)
    cuts = [counts.shape[1]]
    while cuts[-1]:
        cuts.append(before[cuts[-1]])
    return cuts[::-1]


class _LargestInRange:
    """Numbers one after another, and the largest between any two places."""

    def __init__(self) -> None:
        # Row k holds, at every place, the largest of 2^k numbers up to there.
        self._rows: list[list[int]] = [[]]

    def append(self, number: int) -> None:
        """One more number."""
        self._rows[0].append(number)
        place = len(self._rows[0]) - 1
        width = 1
        while 2 * width <= place + 1:
            level = width.bit_length()
            if level == len(self._rows):
                self._rows.append([_NONE] * place)
            row = self._rows[level - 1]
            self._rows[level].append(max(row[place], row[place - width]))
            width *= 2

    def between(self, first: int, last: int) -> int:
        """The largest from `first` to `last`; -1 where nothing lies between."""
        if first > last:
            return _NONE
        level = (last - first + 1).bit_length() - 1
        row = self._rows[level]
        return max(row[last], row[first + (1 << level) - 1])


def _edges_at(cuts: list[int], held: Indices, bins: int) -> Indices:
    """The edges that cuts between the bins that hold examples stand for."""
    # Of the empty bins before each cell, all edges stay if the cells on both sides are bins as
    # they were; else one, as far as can be from a cell that was merged.
    first, last = held[cuts[:-1]], held[np.array(cuts[1:]) - 1]
    single = [True, *(first == last).tolist(), True]
    low, high = [0, *(last + 1).tolist()], [*first.tolist(), bins]
    gaps = zip(low, high, single[:-1], single[1:], strict=True)
    return np.concatenate([_gap(*gap) for gap in gaps])


def _gap(low: int, high: int, single_below: bool, single_above: bool) -> Indices:
    """The edges that stay among those from `low` to `high`, between which bins are empty."""
    if single_below and single_above:
        return np.arange(low, high + 1)
    if single_below:
        return np.array([low])
    return np.array([high if single_above else (low + high) // 2])


def _merged_sums(
    edges: Floats, kept: Indices, counts: NDArray[np.int64], sums: NDArray[np.int64], steps: int
) -> NDArray[np.int64]:
    """Sums of places within merged bins, from those within their parts."""
    owner = np.repeat(np.arange(len(kept) - 1), np.diff(kept))
    lower, width = edges[kept[:-1]][owner], np.diff(edges[kept])[owner]
    moved = counts * ((edges[:-1] - lower) / width * steps) + sums * (np.diff(edges) / width)
    # Whole steps: parts of unlike widths could be told from all digits of one fraction.
    merged = np.rint(np.add.reduceat(moved, kept[:-1], axis=1)).astype(np.int64)
    return np.clip(merged, 0, steps * np.add.reduceat(counts, kept[:-1], axis=1))


def hide_small(task: AnyTask, released: Released, least: int, sum_steps: int) -> Released:
    """The release with small groups joined and bins merged: no count is above 0 and below `least`.

    Bins are merged as they would be without groups, and then further. So edges are among those of
    the result that the same plan without groups has of the same rows, and between two edges, one of
    each result, lies no small count either. ResultWithheld if a class has examples, and too few in
    all.
    """
    if not task.groups:
        return merge_small(released, least, sum_steps)
    kept = kept_edges(ungrouped(task, released.counts), least)
    joined = too_small(task, released.counts, least)
    counts = np.zeros_like(released.counts)
    np.add.at(counts, joining(task, joined), released.counts)
    further = kept_edges(np.add.reduceat(counts, kept[:-1], axis=1), least)
    tables = tuple(_together(task, each, joined) for each in released.tables)
    joint = replace(released, counts=counts, joined=joined, tables=tables)
    return merge_at(joint, MergedEdges(kept, kept[further]), least, sum_steps)


def too_small(task: Task, counts: NDArray[np.int64], least: int) -> tuple[str, ...]:
    """Names of groups that are counted in the last one of their grouping, "other".

    Those with examples of a class, and fewer than `least`; where "other" is then still small, also
    the listed ones from the last up. Which ones those are is public: the smallest of them, or the
    best fitting, would tell of their sizes. Nothing is joined where it would not help.

    >>> from fedgauge.plan.task import BinaryTask
    >>> task = BinaryTask(groups={"kind": ["a", "b", "c"]})
    >>> counts = np.array([[50], [40], [50], [3], [50], [40], [0], [0]])  # negatives, positives
    >>> too_small(task, counts, 10)  # b is, and no row is in "other": c comes too
    ('b', 'c')
    """
    return tuple(
        name
        for grouping in task.layout.groupings
        for name in _too_small(task, grouping, counts.sum(axis=1), least)
    )


def _too_small(
    task: Task, grouping: tuple[str, ...], totals: NDArray[np.int64], least: int
) -> list[str]:
    names = [each.name for each in task.groups_told.values() if each.grouping == grouping]
    # By group, and by block and class: scores of several models are of the same rows, and a group
    # that one of them hid and another showed would be hidden nowhere.
    places = np.array([_channels(task, grouping, cell) for cell in range(len(names))])
    counts = totals[places]
    small = [not is_large(row, least) for row in counts]
    if not any(small):
        return []
    joined = [*np.flatnonzero(small[:-1]), len(names) - 1]
    for cell in range(len(names) - 2, -1, -1):
        if is_large(counts[joined].sum(axis=0), least):
            break
        if cell not in joined:
            joined.append(cell)
    return [names[cell] for cell in sorted(joined)[:-1]]


def joining(task: Task, joined: tuple[str, ...]) -> Indices:
    """Where the counts of each channel go when these groups are counted in the last one."""
    places = np.arange(task.rows)
    for name in joined:
        group = task.groups_told[name]
        last = task.layout.cells(group.grouping) - 1
        places[_channels(task, group.grouping, group.cell)] = _channels(task, group.grouping, last)
    return places


def _together(task: Task, told: TableSum, joined: tuple[str, ...]) -> TableSum:
    """A table with these groups counted in the last one, where it tells them apart."""
    cells, rows = told.by_group(task.layout).copy(), joined_cells(task, told.table, joined)
    cells[-1] += cells[rows].sum(axis=0)
    cells[rows] = 0
    return told._replace(values=cells.ravel())


def joined_cells(task: Task, table: AnyTable, joined: tuple[str, ...]) -> list[int]:
    """Which of these groups a table tells apart, by number."""
    groups = [task.groups_told[name] for name in joined]
    return [group.cell for group in groups if group.grouping == table.grouping]


def ungrouped(task: Task, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The counts that the same task without groups would have."""
    grouping = task.layout.groupings[0]
    cells = task.layout.cells(grouping)
    whole: NDArray[np.int64] = np.sum(
        [counts[_channels(task, grouping, cell)] for cell in range(cells)], axis=0
    )
    return whole


def _channels(task: Task, grouping: tuple[str, ...], cell: int) -> list[int]:
    """All channels of one group: of each block, and of each class."""
    layout = task.layout
    return [
        layout.channel(block, cell, number)
        for block in layout.blocks
        if block.grouping == grouping
        for number in range(layout.by_block)
    ]
