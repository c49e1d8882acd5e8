"""A plan in words for a data-protection officer, and a summary of a client's own rows."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedgauge.data.examples import Label
from fedgauge.data.row_checks import Oddities, Parts, RowSummary
from fedgauge.plan.plan import EvaluationPlan
from fedgauge.plan.task import OTHER, Task, measured_by

_LABELS: Final = {
    "class": "Classes, of which a row has one",
    "label": "Labels, of which a row may have several",
}
LEARNT: Final = "What each party learns in the worst case"
_HOLDS: Final = (
    "In evaluations between sites that each keep their own rows. Their results say enforced. In a "
    "trial run, one program reads the rows of all sites, and the person who runs it sees them. "
    "Such a result says simulated, and none of this protects anybody."
)


def explain(plan: EvaluationPlan) -> str:
    """All that an officer decides by: the brief, each party's worst case, and an example."""
    return _as_text([*paragraphs(plan), _name(plan)])


def paragraphs(plan: EvaluationPlan) -> list[tuple[str, str]]:
    """The same with titles, but for which plan it is; each party's worst case is a line."""
    stated = plan.statement("enforced")
    learned = plan.privacy.learned(plan.cohort, plan.min_cell)
    parties = "\n  ".join(f"{who}: {what}" for who, what in learned)
    return [
        _positive(plan),
        *plan.in_words(),
        *_apart(plan),
        (LEARNT, parties),
        plan.privacy.worked(stated.delta, plan.min_cell),
        ("Where this holds", _HOLDS),
    ]


def brief(plan: EvaluationPlan) -> str:
    """What leaves each site under a plan, what is promised, and what is not protected."""
    return _as_text([_positive(plan), *plan.in_words(), *_apart(plan), _name(plan)])


def _positive(plan: EvaluationPlan) -> tuple[str, str]:
    """Which label is evaluated: the one that the data are about."""
    return "What counts as positive", measured_by(plan.task).positive_in_words


def _all(names: Iterable[Label]) -> str:
    """Every name, however many: what somebody must approve of hides behind no others."""
    return ", ".join(map(str, names))


def _apart(plan: EvaluationPlan) -> Iterator[tuple[str, str]]:
    """What rows are told apart by beyond two classes and one score, and what that shows."""
    task = measured_by(plan.task)
    if len(task.slices) == 1:
        return
    text = f"{' '.join(_kinds(task))} The result shows as much of each of these as of all rows"
    text += ", and how far groups differ." if task.groups else "."
    if task.groups and not plan.is_noisy:
        text += (
            " In an exact sum, groups make small numbers likelier. Someone who knows the group "
            "and range of one person, and finds one example there, learns that person's label."
        )
    yield "What is told apart", text


def _kinds(task: Task) -> Iterator[str]:
    labels = [name for name in task.labels_told if name is not None]
    if labels:
        yield f"{_LABELS[task.label_noun]}, with a score for each: {_all(labels)}."
    if task.models:
        yield f"Models that score the same rows: {_all(task.models)}."
    if task.pairs:
        pairs = "; ".join(f"{one} and {other}" for one, other in task.pairs)
        yield f"Both scores of a row are also counted together, of these models: {pairs}."
    if task.groups:
        every = [f"{name} ({_all([*task.groups[name], OTHER])})" for name in task.groups]
        how = " and ".join(every) + (", all combinations" if task.crossed else "")
        yield (
            f"Groups by {how}. Rows of no listed group, or where that is not known, are in "
            f"{OTHER!r}."
        )


def _name(plan: EvaluationPlan) -> tuple[str, str]:
    which = f"Plan {plan.digest[:32]}. Every site must hold the same one."
    if plan.not_after is not None:
        which += f" No site counts under it after {plan.not_after}, by its own clock."
    return "Which plan this is", which


def _as_text(paragraphs: Iterable[tuple[str, str]]) -> str:
    return "\n\n".join(f"{title}\n  {text}" for title, text in paragraphs)


_ENOUGH: Final = 50  # rows of a class, to say that its scores are lower than another class's


def summarise(task: Task, counts: NDArray[Any], oddities: Oddities) -> RowSummary:
    """A summary of a client's rows for its operator, from counts by channel and bin."""
    if task.two is not None:  # no class is told apart yet
        return RowSummary(None, oddities)
    labels, positives = _labels(task, counts), None
    if labels is None:
        (whole, *_) = task.slices  # of all rows, by the first score
        positives = int(counts[list(task.contrast(whole).positives)].sum())
    groups = tuple(_groups(task, counts))
    return RowSummary(positives, oddities, labels, groups, _swapped(task, counts))


def _labels(task: Task, counts: NDArray[Any]) -> Parts | None:
    """Rows of each class, or positives of each label, where there are several."""
    if task.labels_told == (None,):
        return None
    whole = task.slices[: len(task.labels_told)]  # of the first model
    rows = {
        str(each.label): int(counts[list(task.contrast(each).positives)].sum()) for each in whole
    }
    return Parts("of classes" if task.layout.classes else "positive", rows)


def _groups(task: Task, counts: NDArray[Any]) -> list[Parts]:
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


def _swapped(task: Task, counts: NDArray[Any]) -> tuple[str, ...]:
    """Classes that look mixed up: each scores highest, on average, in another of them."""
    layout, classes, bins = task.layout, len(task.layout.classes), counts.shape[1]
    if not classes:
        return ()
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
    return tuple(str(layout.classes[number]) for number in wrong.tolist())
