"""Several classes on the terminal: each of them, their averages, and what was predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from rich.table import Table

import fedgauge as fg
from fedgauge.cli.rows import Notes, close, first, fitting, is_wide, left_out, reads, slice_table
from fedgauge.cli.terminal import screen
from fedgauge.measures.intervals import show_count
from fedgauge.measures.metric import metrics_of
from fedgauge.plan.slices import Sliced
from fedgauge.plan.task import MulticlassTask

_AVERAGES: Final[dict[str, dict[str, Any]]] = {
    "macro average": {},
    "weighted average": {"average": "weighted"},
    "micro average": {"average": "micro"},
}
_ONE_BY_ONE: Final[dict[str, dict[str, Any]]] = {
    "macro, one against one": {"against": "one"},
    "weighted, one against one": {"average": "weighted", "against": "one"},
}
_MOST_PAIRED = 10  # classes of which all pairs are averaged: there are 90 of them
_MOST_CROSSED = 10  # classes whose confusion matrix fits a screen
_CROSSED_NAME = 12  # characters of a class to the left of it
_LEAST_COLUMN = 3  # and above it
_OF_CHANCE = 0.5  # ROC AUC of scores that say nothing
_TOP = (2, 3, 5)  # highest scores among which the class may be


def has_classes(result: fg.Evaluation) -> bool:
    """Whether it is of several classes or labels."""
    task = result.plan.task
    several = isinstance(task, Sliced) and task.labels_told[0] is not None
    return several and result.slice.label is None


def kind_of_labels(result: fg.Evaluation) -> str:
    """What classes are called: several labels a row are none."""
    return "class" if isinstance(result.plan.task, MulticlassTask) else "label"


def class_tables(result: fg.Evaluation, thresholds: Sequence[float]) -> Iterator[Table | str]:
    """A row for each class and each average; at thresholds; by the highest score of rows."""
    task = result.plan.task
    assert isinstance(task, Sliced)  # noqa: S101  (no other has classes)
    if result.slice.group in result.released.joined:
        return
    labels = [str(label) for label in task.labels_told]
    parts = [(name, result.select(label=name)) for name in first(labels)]
    notes = Notes()
    table = _areas(kind_of_labels(result), parts, notes)
    lines = (*left_out(len(labels) - len(parts), "--class"), *_turned_round(parts))
    yield close(table, notes, *lines)
    yield _averages(result)
    for at in thresholds:
        yield _at_threshold(result, parts, at, notes)
    if isinstance(task, MulticlassTask) and task.also and result.plan.tables:
        yield from _by_highest(result, task)


def _number(notes: Notes, name: str, part: fg.Evaluation, read: Callable[[], fg.Estimate]) -> str:
    """A number of a class; one that no row is of has none, which needs no explanation."""
    of_none = not (part.plan.is_noisy or part.positives)
    return "no examples" if of_none else notes.number(name, read)


def _turned_round(parts: Sequence[tuple[str, fg.Evaluation]]) -> Iterator[str]:
    """Which scores are surely higher for other classes than for their own: columns swapped."""
    names = []
    for name, part in parts:
        try:
            high = part.roc_auc.high
        except fg.UndefinedMetric:
            continue
        if high is not None and high < _OF_CHANCE:
            names.append(fitting(name))
    if names:
        told = ", ".join(first(names))
        yield f"{told}: other classes score higher. Check which column is of which class."


def _areas(kind: str, parts: Sequence[tuple[str, fg.Evaluation]], notes: Notes) -> Table:
    metrics = ["roc_auc", *(["average_precision"] if is_wide() else [])]
    titles = [getattr(fg.Evaluation, name).title for name in metrics]
    counted = "examples" if kind == "class" else "positives"
    table = slice_table(kind, [counted, "share", *titles])
    for name, part in parts:
        share = f"{part.positives / part.examples:.1%}" if part.examples else ""
        cells = (_number(notes, name, part, reads(part, metric)) for metric in metrics)
        table.add_row(fitting(name), show_count(part.positives), share, *cells)
    return table


def _averages(result: fg.Evaluation) -> Table:
    table, notes = slice_table("average", ["ROC AUC", "average precision"]), Notes()
    rows = dict(_AVERAGES)
    task = result.plan.task
    if isinstance(task, MulticlassTask) and len(task.labels) <= _MOST_PAIRED:
        rows |= _ONE_BY_ONE
    for title, how in rows.items():
        read = (partial(result.macro, name, **how) for name in ("roc_auc", "average_precision"))
        table.add_row(title, *(notes.number(title, each) for each in read))
    return close(table, notes)


def _at_threshold(
    result: fg.Evaluation, parts: Sequence[tuple[str, fg.Evaluation]], at: float, before: Notes
) -> Table:
    metrics = ("recall", "precision")
    table = slice_table(f"{kind_of_labels(result)}, at {at:.6g}", metrics)
    notes = Notes(before)
    for name, part in parts:
        cells = (_number(notes, name, part, reads(part, metric, at=at)) for metric in metrics)
        table.add_row(fitting(name), *cells)
    table.add_row()
    for title, how in _AVERAGES.items():
        read = (partial(result.macro, name, at=at, **how) for name in metrics)
        table.add_row(title, *(notes.number(title, each) for each in read))
    return close(table, notes)


def _by_highest(result: fg.Evaluation, task: MulticlassTask) -> Iterator[Table | str]:
    """What the highest score of each row says: the matrix, and numbers of it."""
    rows: dict[str, Callable[[], fg.Estimate]] = {}
    if "confusion" in task.also:
        matrix = result.confusion_matrix()
        yield confusion_table(matrix)
        rows |= {row.title: reads(matrix, row.name) for row in metrics_of(type(matrix))}
    if "ranks" in task.also:
        rows |= {
            f"top-{k} accuracy": partial(result.top_k_accuracy, k)
            for k in _TOP
            if k < len(task.labels)
        }
    if "top" in task.also:
        for name in ("expected_calibration_error", "brier_score"):
            title = getattr(fg.Evaluation, name).title
            rows[f"top label: {title}"] = _of_top_label(result, name)
    table, notes = slice_table("by the highest score", ["value"]), Notes()
    for title, read in rows.items():
        table.add_row(title, notes.number(title, read))
    yield close(table, notes)


def _of_top_label(result: fg.Evaluation, name: str) -> Callable[[], fg.Estimate]:
    return lambda: getattr(result.top_label(), name)


def confusion_table(matrix: fg.ClassConfusion) -> Table | str:
    """True classes by predicted ones: examples where they fit, else shares of each true class."""
    if len(matrix.labels) > _MOST_CROSSED:
        return (
            f"The confusion matrix of {len(matrix.labels)} classes is in --json FILE: "
            'fg.Evaluation.from_json("FILE").confusion_matrix().counts.'
        )
    counts = [[show_count(value) for value in row] for row in matrix.counts.tolist()]
    widest = max(len(cell) for row in counts for cell in row)
    of_counts = (widest + 2) * len(counts) + _CROSSED_NAME <= screen.width
    if not of_counts:
        shares = matrix.normalized("true")
        counts = [["" if np.isnan(p) else f"{p:.0%}" for p in row] for row in shares.tolist()]
        widest = max(len(cell) for row in counts for cell in row)
    room = max((screen.width - _CROSSED_NAME) // len(counts) - 2, widest, _LEAST_COLUMN)
    table = slice_table("true class", _cut(matrix.labels, room))
    for label, row in zip(_cut(matrix.labels, _CROSSED_NAME), counts, strict=True):
        table.add_row(label, *row)
    what = "examples" if of_counts else "shares of each true class"
    table.caption = f"Columns are the class that was predicted, in the same order; {what}."
    return table


def _cut(labels: Sequence[str], most: int) -> list[str]:
    """Names of so many characters: their beginnings, or both ends where these are alike."""
    cut = [each if len(each) <= most else f"{each[: most - 1]}." for each in labels]
    if len(set(cut)) == len(cut):
        return cut
    head = (most - 1) // 2
    tail = most - 1 - head
    return [
        each if len(each) <= most else f"{each[:head]}.{each[len(each) - tail :]}"
        for each in labels
    ]
