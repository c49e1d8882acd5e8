"""Classes, groups and models of a result: all of them, and what sets them apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from fedgauge.errors import InputError, UndefinedMetric
from fedgauge.measures.intervals import Estimate, show_count
from fedgauge.plan.slices import Sliced
from fedgauge.plots.page.forests import Row, forest, words
from fedgauge.plots.page.gaps import Told, gaps_between_groups, models_compared
from fedgauge.plots.page.markup import folded, paragraph, table
from fedgauge.results.evaluation import Evaluation

_AVERAGED: Final = ("roc_auc", "average_precision")
_MANY: Final = 40  # rows: of more, those of groups have a figure of their own


def told_of(result: Evaluation, *, brief: bool) -> Told:
    """Tables and figures of a result's slices; nothing where it is of one."""
    if len(result.slices) == 1:
        return Told()
    apart = [*gaps_between_groups(result, brief=brief), *models_compared(result)]
    tables = [_every(result), *_averages(result), *(each.html for each in apart)]
    figures = [*_by_slice(result), *(figure for each in apart for figure in each.forests)]
    return Told("".join(tables), tuple(figures))


def _by_slice(result: Evaluation) -> Iterator[dict[str, Any]]:
    """ROC AUC of every slice, from top to bottom."""
    parts = list(result.slices)
    if len(parts) <= _MANY:
        yield _figure(parts, "by-slice", "ROC AUC by slice")
        return
    whole = [part for part in parts if part.slice.group is None]
    yield _figure(whole, "by-slice", "ROC AUC of all rows")
    grouped = [part for part in parts if part.slice.group is not None]
    if grouped:
        yield _figure(grouped, "by-group", "ROC AUC by group")


def _figure(parts: Sequence[Evaluation], name: str, title: str) -> dict[str, Any]:
    note = f"Lines are intervals at {parts[0].level * 100:g}%, each by itself."
    rows = [_row(part) for part in parts]
    return forest(name, title, "ROC AUC", rows, note=note, line=(0.5, "chance"))


def _row(part: Evaluation) -> Row:
    if part.withheld is not None:
        return Row(str(part.slice), None, note="withheld")
    return Row(str(part.slice), _read(part, "roc_auc"))


def _every(result: Evaluation) -> str:
    rows = [[str(part.slice), *_in_brief(part)] for part in result.slices]
    columns = ["slice", "examples", "positive", "ROC AUC", "average precision"]
    reasons = dict.fromkeys(part.withheld for part in result.slices if part.withheld is not None)
    why = "".join(paragraph(f"Withheld: {reason}", "small") for reason in reasons)
    inside = table("Every slice", columns, rows, name="slices") + why
    return folded(f"All {len(rows)} slices", inside) if len(rows) > _MANY else inside


def _in_brief(part: Evaluation) -> list[str]:
    if part.withheld is not None:
        return ["withheld"] * 4
    numbers = [show_count(part.examples), show_count(part.positives)]
    return numbers + [_in_words(_read(part, name)) for name in _AVERAGED]


def _read(part: Evaluation, metric: str) -> Estimate | None:
    try:
        estimate: Estimate = getattr(part, metric)
    except UndefinedMetric:
        return None
    return estimate


def _in_words(estimate: Estimate | None) -> str:
    return "undefined" if estimate is None else words(estimate)


def _averages(result: Evaluation) -> Iterator[str]:
    """Averages of classes and, where it was counted, which class was predicted of which."""
    for part in whole_models(result):
        if not part.has_average:
            continue
        rows = []
        for average in ("macro", "weighted"):
            try:
                numbers = [words(part.macro(name, average=average)) for name in _AVERAGED]
            except UndefinedMetric:
                continue
            rows.append([average, *numbers])
        of = f" of {part.slice}" if part.slice.model else ""
        columns = ["average", "ROC AUC", "average precision"]
        if rows:
            yield table(f"Averages of classes{of}", columns, rows, name="averages")
        yield from _confusion(part, of)


def _confusion(part: Evaluation, of: str) -> Iterator[str]:
    try:
        matrix = part.confusion_matrix()
    except (InputError, UndefinedMetric):  # it was not counted
        return
    shares = matrix.normalized("true")
    rows = [
        [name, *(f"{share:.1%} ({show_count(n)})" for share, n in zip(*pair, strict=True))]
        for name, *pair in zip(matrix.labels, shares, matrix.counts, strict=True)
    ]
    columns = ["true \\ predicted", *matrix.labels]
    yield table(f"Confusion matrix{of}: shares of the true class", columns, rows, name="confusion")


def whole_models(result: Evaluation) -> list[Evaluation]:
    """A result of each model; itself where there is one."""
    task = result.plan.task
    if isinstance(task, Sliced) and task.models and result.slice.model is None:
        return [result.select(model=name) for name in task.models]
    return [result]
