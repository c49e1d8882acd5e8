"""Slices on the terminal: groups and the gaps between them, models and how they compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations

from rich.table import Table

import fedgauge as fg
from fedgauge.cli.classes import class_tables, has_classes, kind_of_labels
from fedgauge.cli.rows import (
    Notes,
    close,
    first,
    fitting,
    is_wide,
    left_out,
    number_of,
    reads,
    slice_table,
)
from fedgauge.measures.intervals import show_count
from fedgauge.plan.slices import REST, Sliced

_MOST_PAIRS = 3  # of models that are compared in full: more have a line each
_MOST_COMPARED = 50  # groups of which every pair is: 1,225 of them
_NO_GAP = "no two groups to compare"


def slice_tables(
    result: fg.Evaluation, thresholds: Sequence[float], margin: float | None = None
) -> Iterator[Table | str]:
    """All that a result holds beside the whole: its models, its classes, its groups."""
    task = result.plan.task
    if not isinstance(task, Sliced):
        return
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
    task = result.plan.task
    return isinstance(task, Sliced) and bool(task.groups) and result.slice.group is None


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
    """All rows and the first groups that have some, and how many more there are."""
    task = result.plan.task
    assert isinstance(task, Sliced)  # noqa: S101  (no other has groups)
    told = [name for name in task.groups_told if name not in result.released.joined]
    parts = [(name, result.select(group=name)) for name in first(told)]
    kept = [each for each in parts if task.groups_told[each[0]].listed or each[1].examples]
    return [("all", result), *kept], len(told) - len(parts)


def _areas(parts: Sequence[tuple[str, fg.Evaluation]], notes: Notes) -> Table:
    """Areas under curves by group; of several classes their mean."""
    if has_classes(parts[0][1]):
        table = slice_table("group", ["examples", "macro ROC AUC"])
        for name, part in parts:
            auc = number_of(notes, name, part, partial(part.macro, "roc_auc"))
            table.add_row(fitting(name), show_count(part.examples), auc)
        return table
    metrics = ["roc_auc", *(["average_precision"] if is_wide() else [])]
    titles = [getattr(fg.Evaluation, name).title for name in metrics]
    table = slice_table("group", ["examples", "positive", *titles])
    for name, part in parts:
        # Of a group that noise hides the share would be noise.
        told = part.examples and part.withheld is None
        share = f"{part.positives / part.examples:.1%}" if told else ""
        cells = (number_of(notes, name, part, reads(part, metric)) for metric in metrics)
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
        cells = (number_of(notes, name, part, reads(part, metric, at=at)) for metric in metrics)
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
    told = "What stands out is more than chance: its interval leaves out 0"
    together = f", and holds for all {compared:,} gaps together" if compared > 1 else ""
    lines = [f"{told}{together}."] if some else []
    if against is not None:
        lines.append("Of so many groups each is compared with all rows outside it.")
    return close(table, notes, *lines, *left_out(len(labels) - len(first(labels)), "--class"))


def _against(result: fg.Evaluation) -> str | None:
    """What groups are compared with: each other, or the rest where that would take long."""
    task = result.plan.task
    assert isinstance(task, Sliced)  # noqa: S101  (no other has groups)
    sizes = Counter(each.grouping for each in task.groups_told.values() if each.listed)
    return REST if any(size > _MOST_COMPARED for size in sizes.values()) else None


def _labels(result: fg.Evaluation) -> list[str | None]:
    """Its classes or labels; none where it is of one."""
    task = result.plan.task
    return list(task.labels_told) if has_classes(result) and isinstance(task, Sliced) else []


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
        table.add_row(fitting(name), *(number_of(notes, name, part, each) for each in readings))
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
        yield told if label is None else f"{kind_of_labels(result)} {fitting(label)}: {told}"
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
