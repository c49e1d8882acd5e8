"""What a client's counts tell its operator: classes, groups, and columns that look swapped."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedgauge.data.oddities import Counted, Oddities, Parts
from fedgauge.plan.slices import OTHER
from fedgauge.plan.task import AnyTask, MulticlassTask, MultilabelTask, SearchTask

_ENOUGH: Final = 50  # rows of a class, to say that its scores are lower than another class's


def summarise(task: AnyTask, counts: NDArray[Any], oddities: Oddities) -> Counted:
    """What a client's rows came to, by its counts in channels and bins; for its operator.

    Examples
    --------
    >>> import fedgauge as fg
    >>> task = fg.BinaryTask(groups={"sex": ["women", "men"]})
    >>> plan = fg.EvaluationPlan.for_histogram(fg.Axis.uniform(4), fg.Cohort(3), task=task)
    >>> histogram = plan.histogram()
    >>> rows = fg.Examples([0, 1, 1], [0.1, 0.9, 0.4], group=["men", "women", "none"])
    >>> oddities = histogram.update_leniently([rows])
    >>> summarise(task, histogram.counts, oddities).in_words
    '3 rows: 2 positive, 0 clipped into the end bins, 0 odd; by sex: women (1), men (1), other (1)'
    """
    if isinstance(task, SearchTask):  # of which no class is told
        return Counted(None, oddities)
    labels, positives = _labels(task, counts), None
    if labels is None:
        (whole, *_) = task.slices  # of all rows, by the first score
        positives = int(counts[list(task.contrast(whole).positives)].sum())
    groups = tuple(_groups(task, counts))
    return Counted(positives, oddities, labels, groups, _swapped(task, counts))


def _labels(task: AnyTask, counts: NDArray[Any]) -> Parts | None:
    """Rows of each class, or positives of each label, where there are several."""
    if not isinstance(task, MulticlassTask | MultilabelTask):
        return None
    whole = task.slices[: len(task.labels_told)]  # of the first model
    rows = {
        str(each.label): int(counts[list(task.contrast(each).positives)].sum()) for each in whole
    }
    return Parts("of classes" if isinstance(task, MulticlassTask) else "positive", rows)


def _groups(task: AnyTask, counts: NDArray[Any]) -> list[Parts]:
    """Rows of each value of every grouping, by the first score."""
    layout, parts = task.layout, []
    for name, values in layout.groups:
        block = next(each for each in layout.blocks if name in each.grouping)
        size = layout.cells(block.grouping) * layout.by_block
        rows = counts[block.first : block.first + size].sum(axis=1)
        sizes = [len(dict(layout.groups)[each]) + 1 for each in block.grouping]
        by_value = np.moveaxis(rows.reshape(*sizes, -1), block.grouping.index(name), 0)
        totals = by_value.reshape(len(values) + 1, -1).sum(axis=1).tolist()
        parts.append(Parts(name, dict(zip((*values, OTHER), totals, strict=True))))
    return parts


def _swapped(task: AnyTask, counts: NDArray[Any]) -> tuple[str, ...]:
    """Classes by whose score another one of them has the highest scores on average.

    A poor model does that to some class, but hardly so that each of them is the highest by the
    score of another one: cats by that of dogs, and dogs by that of cats.
    """
    if not isinstance(task, MulticlassTask):
        return ()
    layout, classes, bins = task.layout, len(task.labels), counts.shape[1]
    highest = np.arange(classes)
    for block in layout.blocks[: classes * len(layout.groupings)]:  # of the first model
        size = layout.cells(block.grouping) * classes
        by_class = counts[block.first : block.first + size].reshape(-1, classes, bins).sum(axis=0)
        rows, means = by_class.sum(axis=1), np.full(classes, -np.inf)
        np.divide(by_class @ np.arange(bins), rows, out=means, where=rows >= _ENOUGH)
        if rows[block.column] >= _ENOUGH:
            highest[block.column] = means.argmax()
    wrong = np.flatnonzero(highest != np.arange(classes))
    if not np.array_equal(np.sort(highest[wrong]), wrong):
        return ()
    return tuple(str(task.labels[number]) for number in wrong.tolist())
