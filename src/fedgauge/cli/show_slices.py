"""Tables of slices: groups and gaps, models, classes, averages and confusion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any, Final, TypeVar

import numpy as np
from rich.table import Table

import fedgauge as fg
from fedgauge.cli.terminal import plain_table, screen, with_interval
from fedgauge.metrics.estimate import metrics_of, show_count
from fedgauge.plan.task import REST

MOST_ROWS = 20  # of a table; of more a reader remembers none
_WIDE = 80  # characters below which intervals stand below their values
_VERY_WIDE = 110  # from which there is room for one more column of them
_LEAST_NAME = 14  # characters of a name
_TAIL = 4  # of these at its end: names of a series differ there
_NAMED = 3  # slices in a reason
T = TypeVar("T")


def is_wide() -> bool:
    """Whether there is room for a third column of numbers with intervals."""
    return screen.width >= _VERY_WIDE


def fitting(name: object) -> str:
    """A name as the title of a row: its ends, where it is long."""
    text, most = str(name), max(_LEAST_NAME, screen.width // 4)
    return text if len(text) <= most else f"{text[: most - 3 - _TAIL]}...{text[-_TAIL:]}"


def first(names: Sequence[T]) -> Sequence[T]:
    """As many as a table shows."""
    return names[:MOST_ROWS]


class Notes:
    """Which numbers of a table are rough, and why some are missing; no note of `before` again."""

    def __init__(self, before: Notes | None = None) -> None:
        self._rough: set[str] = set()
        self._missing: dict[str, list[str]] = {}
        self._said: set[str] = set() if before is None else {*before._missing}

    def number(
        self, name: object, read: Callable[[], fg.Estimate], *, of: float | None = None
    ) -> str:
        """A number with its interval, or that it is withheld, undefined or of no examples."""
        if of == 0:
            return "no examples"
        try:
            estimate = read()
        except fg.UndefinedMetric as error:
            hidden = isinstance(error, fg.NoSignal)
            if str(error) not in self._said:
                self._missing.setdefault(str(error), []).append(fitting(name))
            return "withheld" if hidden else "undefined"
        if estimate.caution:
            self._rough.add(estimate.caution)
        return with_interval(estimate, below=screen.width < _WIDE)

    @property
    def lines(self) -> list[str]:
        """In words."""
        told = []
        for reason, names in self._missing.items():
            named = list(dict.fromkeys(names))
            more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
            told.append(f"{', '.join(named[:_NAMED])}{more}: {reason}")
        return [*told, *(f"* rough: {why}" for why in sorted(self._rough))]


def slice_table(title: str, columns: Sequence[str]) -> Table:
    """A table with names on the left and numbers on the right."""
    table = plain_table()
    table.add_column(title)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def close(table: Table, notes: Notes, *first_lines: str) -> Table:
    """The table with what is to know about it below."""
    table.caption = "\n".join([*first_lines, *notes.lines])
    return table


def left_out(number: int, option: str) -> tuple[str, ...]:
    """How to see slices that a table leaves out, if it does."""
    if not number:
        return ()
    told = f"{number:,} more: all are in --json FILE, and `fedgauge show FILE {option} NAME` shows"
    return (f"{told} one.",)


def reads(part: Any, name: str, *, at: float | None = None) -> Callable[[], fg.Estimate]:
    """How a metric of a result is read, at a threshold or over all."""

    def read() -> fg.Estimate:
        point = part if at is None else part.at_threshold(at)
        estimate: fg.Estimate = getattr(point, name)
        return estimate

    return read


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
    return result.plan.task.labels_told[0] is not None and result.slice.label is None


def class_tables(result: fg.Evaluation, thresholds: Sequence[float]) -> Iterator[Table | str]:
    """A row for each class and each average; at thresholds; by the highest score of rows."""
    task = result.plan.task
    if result.slice.group in result.released.joined:
        return
    labels = [str(label) for label in task.labels_told]
    parts = [(name, result.select(label=name)) for name in first(labels)]
    notes = Notes()
    table = _class_areas(task.label_noun, parts, notes)
    lines = (*left_out(len(labels) - len(parts), "--class"), *_turned_round(parts))
    yield close(table, notes, *lines)
    yield _averages(result)
    for at in thresholds:
        yield _at_threshold(result, parts, at, notes)
    if task.also and result.plan.tables:
        yield from _by_highest(result)


def _of_class(part: fg.Evaluation) -> float | None:
    """How many rows are of a class; None where noise hides that."""
    return None if part.plan.is_noisy else part.positives


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
        yield f"{told}: other classes score higher. Check which column belongs to which class."


def _class_areas(kind: str, parts: Sequence[tuple[str, fg.Evaluation]], notes: Notes) -> Table:
    metrics = ["roc_auc", *(["average_precision"] if is_wide() else [])]
    titles = [getattr(fg.Evaluation, name).title for name in metrics]
    counted = "examples" if kind == "class" else "positives"
    table = slice_table(kind, [counted, "share", *titles])
    for name, part in parts:
        share = f"{part.positives / part.examples:.1%}" if part.examples else ""
        cells = (notes.number(name, reads(part, metric), of=_of_class(part)) for metric in metrics)
        table.add_row(fitting(name), show_count(part.positives), share, *cells)
    return table


def _averages(result: fg.Evaluation) -> Table:
    table, notes = slice_table("average", ["ROC AUC", "average precision"]), Notes()
    rows = dict(_AVERAGES)
    task = result.plan.task
    if task.label_noun == "class" and len(task.labels_told) <= _MOST_PAIRED:
        rows |= _ONE_BY_ONE
    for title, how in rows.items():
        read = (partial(result.macro, name, **how) for name in ("roc_auc", "average_precision"))
        table.add_row(title, *(notes.number(title, each) for each in read))
    return close(table, notes)


def _at_threshold(
    result: fg.Evaluation, parts: Sequence[tuple[str, fg.Evaluation]], at: float, before: Notes
) -> Table:
    metrics = ("recall", "precision")
    table = slice_table(f"{result.plan.task.label_noun}, at {at:.6g}", metrics)
    notes = Notes(before)
    for name, part in parts:
        cells = (
            notes.number(name, reads(part, metric, at=at), of=_of_class(part)) for metric in metrics
        )
        table.add_row(fitting(name), *cells)
    table.add_row()
    for title, how in _AVERAGES.items():
        read = (partial(result.macro, name, at=at, **how) for name in metrics)
        table.add_row(title, *(notes.number(title, each) for each in read))
    return close(table, notes)


def _by_highest(result: fg.Evaluation) -> Iterator[Table | str]:
    """What the highest score of each row says: the matrix, and numbers of it."""
    task = result.plan.task
    rows: dict[str, Callable[[], fg.Estimate]] = {}
    if "confusion" in task.also:
        matrix = result.confusion_matrix()
        yield confusion_table(matrix)
        rows |= {row.title: reads(matrix, row.name) for row in metrics_of(type(matrix))}
    if "ranks" in task.also:
        rows |= {
            f"top-{k} accuracy": partial(result.top_k_accuracy, k)
            for k in _TOP
            if k < len(task.labels_told)
        }
    if "top" in task.also:
        for name in ("expected_calibration_error", "brier_score"):
            title = getattr(fg.Evaluation, name).title
            rows[f"top label: {title}"] = partial(_of_top_label, result, name)
    table, notes = slice_table("by the highest score", ["value"]), Notes()
    for title, read in rows.items():
        table.add_row(title, notes.number(title, read))
    yield close(table, notes)


def _of_top_label(result: fg.Evaluation, name: str) -> fg.Estimate:
    estimate: fg.Estimate = getattr(result.top_label(), name)
    return estimate


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
    table.caption = f"Columns are the predicted class, in the same order; {what}."
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


_MOST_PAIRS = 3  # of models that are compared in full: more have a line each
_MOST_COMPARED = 50  # groups of which every pair is: 1,225 of them
_NO_GAP = "no two groups to compare"


def slice_tables(
    result: fg.Evaluation, thresholds: Sequence[float], margin: float | None = None
) -> Iterator[Table | str]:
    """All that a result holds beside the whole: its models, its classes, its groups."""
    task = result.plan.task
    if result.is_several and result.mapped_by is not None:  # of which there are no averages
        yield "Scores that go through a map are shown by themselves: --class NAME or --model NAME."
        return
    models: Sequence[str] = () if result.slice.model is not None else task.models
    if models:
        yield from model_tables(result, models, thresholds, margin)
    for model in first(models) or (None,):
        part = result if model is None else result.select(model=model)
        if not (has_classes(part) or _has_groups(part)):
            return
        if model is not None:
            yield f"Model {fitting(model)}"
        if has_classes(part):
            yield from class_tables(part, thresholds)
        if _has_groups(part):
            yield from group_tables(part, thresholds)


def _has_groups(result: fg.Evaluation) -> bool:
    return bool(result.plan.task.groups) and result.slice.group is None


def group_tables(result: fg.Evaluation, thresholds: Sequence[float]) -> Iterator[Table]:
    """A row for each group, and how far groups are apart."""
    parts, hidden = _groups(result)
    notes = Notes()
    yield close(_areas(parts, notes), notes, *left_out(hidden, "--group"))
    if not has_classes(result):
        for at in thresholds:
            yield at_threshold("group", parts, at, notes)
    yield gap_table(result, thresholds)


def _groups(result: fg.Evaluation) -> tuple[list[tuple[str, fg.Evaluation]], int]:
    task = result.plan.task
    told = [name for name in task.groups_told if name not in result.released.joined]
    parts = [(name, result.select(group=name)) for name in first(told)]
    kept = [each for each in parts if task.groups_told[each[0]].listed or each[1].examples]
    return [("all", result), *kept], len(told) - len(parts)


def _areas(parts: Sequence[tuple[str, fg.Evaluation]], notes: Notes) -> Table:
    """Areas under curves by group; of several classes their mean."""
    if has_classes(parts[0][1]):
        table = slice_table("group", ["examples", "macro ROC AUC"])
        for name, part in parts:
            auc = notes.number(name, partial(part.macro, "roc_auc"), of=part.examples)
            table.add_row(fitting(name), show_count(part.examples), auc)
        return table
    metrics = ["roc_auc", *(["average_precision"] if is_wide() else [])]
    titles = [getattr(fg.Evaluation, name).title for name in metrics]
    table = slice_table("group", ["examples", "positive", *titles])
    for name, part in parts:
        # Of a group that noise hides the share would be noise.
        told = part.examples and part.withheld is None
        share = f"{part.positives / part.examples:.1%}" if told else ""
        cells = (notes.number(name, reads(part, metric), of=part.examples) for metric in metrics)
        table.add_row(fitting(name), show_count(part.examples), share, *cells)
    return table


def at_threshold(
    kind: str, parts: Sequence[tuple[str, fg.Evaluation]], at: float, before: Notes
) -> Table:
    """What is flagged at a threshold, and how rightly."""
    metrics = ["recall", "precision", *(["fpr"] if is_wide() else [])]
    titles = [getattr(fg.AtThreshold, name).title for name in metrics]
    table, notes = slice_table(f"{kind}, at {at:.6g}", titles), Notes(before)
    for name, part in parts:
        cells = (
            notes.number(name, reads(part, metric, at=at), of=part.examples) for metric in metrics
        )
        table.add_row(fitting(name), *cells)
    return close(table, notes)


def gap_table(result: fg.Evaluation, thresholds: Sequence[float]) -> Table:
    """The largest gap between groups in each metric, and whether it is more than chance."""
    level = f"{result.level * 100:g}%"
    table, notes = slice_table("largest gap in", [f"value and {level} interval"]), Notes()
    table.add_column("stands out")
    table.add_column("between")
    labels = _labels(result)
    asked: list[tuple[str, float | None]] = [("roc_auc", None)]
    if not labels:
        asked += [(name, at) for at in thresholds for name in ("recall", "fpr")]
    compared, some, against = 0, False, _against(result)
    for label in first(labels) or [None]:
        part = result if label is None else result.select(label=label)
        for metric, at in asked:
            gaps = part.gaps(metric, at=at, against=against)
            compared, some = gaps.compared, some or bool(gaps.pairs)
            title = gaps.metric if label is None else f"{fitting(label)}: {gaps.metric}"
            table.add_row(title, *_largest(gaps, notes))
    told = "A gap stands out if it is larger than chance: its interval leaves out 0"
    together = f", and holds for all {compared:,} gaps together" if compared > 1 else ""
    lines = [f"{told}{together}."] if some else []
    if against is not None:
        lines.append("With this many groups, each is compared with all rows outside it.")
    return close(table, notes, *lines, *left_out(len(labels) - len(first(labels)), "--class"))


def _against(result: fg.Evaluation) -> str | None:
    """What groups are compared with: each other, or the rest where that would take long."""
    told = result.plan.task.groups_told.values()
    sizes = Counter(each.grouping for each in told if each.listed)
    return REST if any(size > _MOST_COMPARED for size in sizes.values()) else None


def _labels(result: fg.Evaluation) -> list[str | None]:
    """Its classes or labels; none where it is of one."""
    return list(result.plan.task.labels_told) if has_classes(result) else []


def _largest(gaps: fg.Gaps, notes: Notes) -> tuple[str, str, str]:
    try:
        widest = gaps.largest
    except fg.NoSignal:
        return "none", "", _NO_GAP
    low, high = widest.joint
    told = notes.number(gaps.metric, lambda: replace(widest.difference, low=low, high=high))
    among = f", {len(gaps.standing_out)} of {gaps.compared}" if gaps.compared > 1 else ""
    out = f"yes{among}" if widest.stands_out else "no"
    return told, out, f"{fitting(widest.group)} - {fitting(widest.against)}"


def model_tables(
    result: fg.Evaluation, models: Sequence[str], thresholds: Sequence[float], margin: float | None
) -> Iterator[Table | str]:
    """A row for each model, and how they compare two by two."""
    parts = [(name, result.select(model=name)) for name in first(models)]
    several = has_classes(parts[0][1])
    titles = ["macro ROC AUC"] if several else ["ROC AUC", "average precision"]
    table, notes = slice_table("model", titles), Notes()
    for name, part in parts:
        names = ("roc_auc", "average_precision")
        readings = [partial(part.macro, names[0])] if several else [reads(part, n) for n in names]
        table.add_row(
            fitting(name), *(notes.number(name, each, of=part.examples) for each in readings)
        )
    yield close(table, notes, *left_out(len(models) - len(parts), "--model"))
    if not several:
        for at in thresholds:
            yield at_threshold("model", parts, at, notes)
    pairs = list(combinations(models, 2))
    if several or len(pairs) > _MOST_PAIRS:
        yield "\n".join(_verdicts(result, pairs, margin))
    else:
        for pair in pairs:
            yield comparison_table(result.compare(*pair, margin=margin), thresholds)


def _verdicts(
    result: fg.Evaluation, pairs: Sequence[tuple[str, str]], margin: float | None
) -> Iterator[str]:
    """What each pair of models shows, in a line; of several classes, by each."""
    labels = _labels(result.select(model=pairs[0][0])) or [None]
    every = [(pair, label) for pair in pairs for label in labels]
    bases = []
    for pair, label in first(every):
        part = result if label is None else result.select(label=label)
        comparison = part.compare(*pair, margin=margin)
        told = _verdict(comparison)
        yield told if label is None else f"{result.plan.task.label_noun} {fitting(label)}: {told}"
        bases.append(comparison.basis)
    if len(every) > len(bases):
        yield f"{len(every) - len(bases):,} more: result.compare of what --json FILE holds."
    yield from (f"Basis: {basis}." for basis in dict.fromkeys(bases))


def _verdict(comparison: fg.Comparison) -> str:
    try:
        return comparison.verdict
    except fg.UndefinedMetric as error:
        return f"{comparison.first} and {comparison.second} cannot be compared: {error}"


def comparison_table(comparison: fg.Comparison, thresholds: Sequence[float]) -> Table:
    """Two models' differences, and what they show."""
    level = f"{comparison.pair.readings[0].level * 100:g}%"
    names = f"{fitting(comparison.first)} less {fitting(comparison.second)}"
    table, notes = slice_table(names, [f"difference, {level}"]), Notes()
    rows = {
        getattr(fg.Evaluation, name).title: reads(comparison, name)
        for name in ("roc_auc", "average_precision", "brier_score")
    }
    for at in thresholds:
        for name in ("recall", "precision"):
            rows[f"{name} at {at:.6g}"] = reads(comparison, name, at=at)
    for title, read in rows.items():
        try:
            table.add_row(title, notes.number(title, read))
        except fg.InputError:  # as the Brier score of what is no probability
            continue
    return close(table, notes, f"Verdict: {_verdict(comparison)}", f"Basis: {comparison.basis}.")
