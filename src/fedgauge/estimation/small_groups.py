"""Small groups: those of an exact sum that merged bins cannot hide are counted in another one.

A group with a few examples of a class shows them, whatever the bins; and left out, it is the total
less the others. So it is counted together with further groups, until no count is small.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedgauge.binning.table import Kept
from fedgauge.binning.tables import AnyTable, TableSum
from fedgauge.estimation.cells import is_large, kept_edges, merge_at, merge_small
from fedgauge.estimation.released import Released
from fedgauge.plan.slices import Sliced
from fedgauge.plan.task import AnyTask
from fedgauge.typing import Indices


def hide_small(task: AnyTask, released: Released, least: int, sum_steps: int) -> Released:
    """The release with small groups joined and bins merged: no count is above 0 and below `least`.

    Bins are merged as they would be without groups, and then further. So edges are among those of
    the result that the same plan without groups has of the same rows, and between two edges, one of
    each result, lies no small count either.

    Raises
    ------
    ResultWithheld
        If a class has examples, and fewer than `least` in all.
    """
    if not isinstance(task, Sliced) or not task.groups:
        return merge_small(released, least, sum_steps)
    kept = kept_edges(ungrouped(task, released.counts), least)
    joined = too_small(task, released.counts, least)
    counts = np.zeros_like(released.counts)
    np.add.at(counts, joining(task, joined), released.counts)
    further = kept_edges(np.add.reduceat(counts, kept[:-1], axis=1), least)
    tables = tuple(_together(task, each, joined) for each in released.tables)
    joint = replace(released, counts=counts, joined=joined, tables=tables)
    return merge_at(joint, Kept(kept, kept[further]), least, sum_steps)


def too_small(task: Sliced, counts: NDArray[np.int64], least: int) -> tuple[str, ...]:
    """Names of groups that are counted in the last one of their grouping, "other".

    Those with examples of a class, and fewer than `least`; where "other" is then still small, also
    the listed ones from the last up. Which ones those are is public: the smallest of them, or the
    best fitting, would tell of their sizes. Nothing is joined where it would not help.

    Examples
    --------
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
    task: Sliced, grouping: tuple[str, ...], totals: NDArray[np.int64], least: int
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


def joining(task: Sliced, joined: tuple[str, ...]) -> Indices:
    """Where the counts of each channel go when these groups are counted in the last one."""
    places = np.arange(task.rows)
    for name in joined:
        group = task.groups_told[name]
        last = task.layout.cells(group.grouping) - 1
        places[_channels(task, group.grouping, group.cell)] = _channels(task, group.grouping, last)
    return places


def _together(task: Sliced, told: TableSum, joined: tuple[str, ...]) -> TableSum:
    """A table with these groups counted in the last one, where it tells them apart."""
    cells, rows = told.by_group(task.layout).copy(), joined_cells(task, told.table, joined)
    cells[-1] += cells[rows].sum(axis=0)
    cells[rows] = 0
    return told._replace(values=cells.ravel())


def joined_cells(task: Sliced, table: AnyTable, joined: tuple[str, ...]) -> list[int]:
    """Which of these groups a table tells apart, by number."""
    groups = [task.groups_told[name] for name in joined]
    return [group.cell for group in groups if group.grouping == table.grouping]


def ungrouped(task: Sliced, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The counts that the same task without groups would have."""
    grouping = task.layout.groupings[0]
    cells = task.layout.cells(grouping)
    whole: NDArray[np.int64] = np.sum(
        [counts[_channels(task, grouping, cell)] for cell in range(cells)], axis=0
    )
    return whole


def _channels(task: Sliced, grouping: tuple[str, ...], cell: int) -> list[int]:
    """All channels of one group: of each block, and of each class."""
    layout = task.layout
    return [
        layout.channel(block, cell, number)
        for block in layout.blocks
        if block.grouping == grouping
        for number in range(layout.by_block)
    ]
