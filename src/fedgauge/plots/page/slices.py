"""Classes, groups and models of a result, as tables: all of them, and what sets them apart."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Final

from fedgauge.errors import InputError, UndefinedMetric
from fedgauge.measures.intervals import Estimate, show, show_count
from fedgauge.plan.slices import Sliced
from fedgauge.plots.page.markup import folded, paragraph, table
from fedgauge.results.evaluation import Evaluation
from fedgauge.results.gaps import Gaps

_AVERAGED: Final = ("roc_auc", "average_precision")
_MOST_PAIRS: Final = 6  # of models that are compared


def tables_of(result: Evaluation) -> str:
    """Tables of a result's slices; nothing where it is of one."""
    if len(result.slices) == 1:
        return ""
    return "".join([_every(result), *_averages(result), *_gaps(result), *_compared(result)])


def _every(result: Evaluation) -> str:
    rows = [[str(part.slice), *_in_brief(part)] for part in result.slices]
    columns = ["slice", "examples", "positive", "ROC AUC", "average precision"]
    return table("Every slice", columns, rows, name="slices")


def _in_brief(part: Evaluation) -> list[str]:
    if part.withheld is not None:
        return ["", "", f"withheld: {part.withheld}", ""]
    numbers = [show_count(part.examples), show_count(part.positives)]
    return numbers + [_read(part, name) for name in _AVERAGED]


def _read(part: Evaluation, metric: str) -> str:
    try:
        return words(getattr(part, metric))
    except UndefinedMetric:
        return "undefined"


def words(estimate: Estimate) -> str:
    """A number and its interval."""
    value, ends = show(estimate.value), estimate.interval
    return value if ends is None else f"{value} ({show(ends.low)} to {show(ends.high)})"


def _averages(result: Evaluation) -> Iterator[str]:
    """Averages of classes and, where it was counted, which class was predicted of which."""
    for part in _whole_models(result):
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


def _whole_models(result: Evaluation) -> list[Evaluation]:
    task = result.plan.task
    if isinstance(task, Sliced) and task.models and result.slice.model is None:
        return [result.select(model=name) for name in task.models]
    return [result]


def _gaps(result: Evaluation) -> Iterator[str]:
    """How far groups differ, of each model and class."""
    task = result.plan.task
    if not (isinstance(task, Sliced) and task.groups):
        return
    for part in result.slices:
        if part.slice.group is None:
            gaps = part.gaps("roc_auc")
            of = "" if str(part.slice) == "all" else f" of {part.slice}"
            told = paragraph(gaps.verdict) + _gap_table(gaps, of)
            yield folded(f"Gaps between groups in ROC AUC{of}", told)


def _gap_table(gaps: Gaps, of: str) -> str:
    rows = [
        [
            f"{each.group} - {each.against}",
            show(each.first.value),
            show(each.second.value),
            words(each.difference),
            f"{show(each.joint.low)} to {show(each.joint.high)}",
            "yes" if each.stands_out else "no",
        ]
        for each in gaps.pairs
    ]
    columns = ["gap", "first", "second", "difference", "all gaps together", "stands out"]
    return table(f"Gaps in {gaps.metric}{of}", columns, rows, name="gaps")


def _compared(result: Evaluation) -> Iterator[str]:
    """How models differ on the same rows, where these have one label."""
    task = result.plan.task
    if not isinstance(task, Sliced) or task.labels_told != (None,) or result.mapped_by is not None:
        return
    if result.slice.model is not None:
        return
    for one, other in list(combinations(task.models, 2))[:_MOST_PAIRS]:
        try:
            comparison = result.compare(one, other)
            rows = [("ROC AUC", words(comparison.roc_auc))]
        except UndefinedMetric as error:
            yield paragraph(f"{one} and {other} cannot be compared: {error}")
            continue
        for title, name in (
            ("average precision", "average_precision"),
            ("Brier score", "brier_score"),
        ):
            try:
                rows.append((title, words(getattr(comparison, name))))
            except (UndefinedMetric, InputError):
                continue
        caption = f"{one} less {other}, {comparison.basis}"
        yield paragraph(comparison.verdict)
        yield table(caption, ["metric", "difference"], rows, name="models")
