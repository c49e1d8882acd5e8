"""Tables and figures of classes, groups and models, and of several results side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final, NamedTuple

import numpy as np

from fedgauge.errors import InputError, UndefinedMetric
from fedgauge.metrics.estimate import Estimate, Interval, show, show_count
from fedgauge.report.figures import read, rounded
from fedgauge.report.html import folded, paragraph, table
from fedgauge.results.comparison import Comparison
from fedgauge.results.evaluation import Evaluation
from fedgauge.results.groups import Gaps
from fedgauge.results.signature import Signature


class FigureRow(NamedTuple):
    """One estimate, with `ends` in place of its interval, or a word why there is none."""

    name: str
    estimate: Estimate | None
    ends: Interval | None = None
    note: str = "undefined"


def forest(
    name: str,
    title: str,
    label: str,
    rows: Iterable[FigureRow],
    *,
    note: str,
    line: tuple[float, str],
) -> dict[str, Any]:
    """A figure of rows, with a dashed line at a value, and what that value means.

    >>> women = Estimate(0.7, (0.7, 0.7), 0.6, 0.8, 0.95)
    >>> rows = [FigureRow("women", women), FigureRow("men", None)]
    >>> forest("by-slice", "By group", "ROC AUC", rows, note="", line=(0.5, "chance"))["rows"]
    [['women', 0.7, 0.6, 0.8, '0.7000 (0.6000 to 0.8000)'], ['men', None, None, None, 'undefined']]
    """
    told = [_plain(row) for row in rows]
    return {"id": name, "title": title, "label": label, "note": note, "line": line, "rows": told}


def words(estimate: Estimate, ends: Interval | None = None) -> str:
    """A number and its interval."""
    value, ends = show(estimate.value), ends or estimate.interval
    return value if ends is None else f"{value} ({show(ends.low)} to {show(ends.high)})"


def _plain(row: FigureRow) -> list[Any]:
    if row.estimate is None:
        return [row.name, None, None, None, row.note]
    ends = row.ends or row.estimate.interval or Interval(*row.estimate.bounds)
    numbers = rounded([row.estimate.value, *ends])
    return [row.name, *numbers, words(row.estimate, row.ends)]


_AT: Final = ("recall", "fpr", "precision", "flagged")  # equal odds, parity, and what flags mean
_USUAL: Final = 0.5
_MOST_PAIRS: Final = 6  # of models that are compared
_MOST_ROWS: Final = 40  # of a figure
_EQUAL: Final = (0.0, "no difference")
_OVER_ALL: Final = (
    ("ROC AUC", "roc_auc"),
    ("average precision", "average_precision"),
    ("Brier score, lower is better", "brier_score"),
)


class SliceFigures(NamedTuple):
    """Words and tables as HTML, and figures as plain data."""

    html: str = ""
    forests: tuple[dict[str, Any], ...] = ()


def gaps_between_groups(result: Evaluation, *, brief: bool) -> Iterator[SliceFigures]:
    """How far groups differ, of each model and class; if `brief`, in ROC AUC alone."""
    if not result.plan.task.groups:
        return
    for place, part in enumerate(each for each in result.slices if each.slice.group is None):
        of = "" if str(part.slice) == "all" else f" of {part.slice}"
        every = list(_measured(part, brief=brief))
        html = "".join(
            paragraph(f"In {gaps.metric}: {gaps.verdict}") + _gap_table(gaps, of) for gaps in every
        )
        rows = [
            FigureRow(f"{gaps.metric}: {each.group} - {each.against}", each.difference, each.joint)
            for gaps in every
            for each in gaps.pairs
        ]
        told = SliceFigures(folded(f"Gaps between groups{of}", html))
        if brief or not rows:
            yield told
            continue
        largest = sorted(rows, key=_size, reverse=True)[:_MOST_ROWS]
        kept = [row for row in rows if row in largest]
        few = "" if len(kept) == len(rows) else f" The {len(kept)} largest of {len(rows)}."
        note = (
            "The first group less the second. Intervals hold for all gaps of a metric together, "
            f"with {part.level * 100:g}% confidence. A gap whose interval leaves out 0 stands "
            f"out.{few}"
        )
        title = f"Gaps between groups{of}"
        figure = forest(f"gaps-{place}", title, "Difference", kept, note=note, line=_EQUAL)
        yield told._replace(forests=(figure,))


def _size(row: FigureRow) -> float:
    return 0.0 if row.estimate is None else abs(row.estimate.value)


def _measured(part: Evaluation, *, brief: bool) -> Iterator[Gaps]:
    """Gaps in ROC AUC, and in what happens at the edge nearest to one half, if there is one."""
    first = part.gaps("roc_auc")
    yield first
    axis = part.released.axis
    if brief or not first.pairs or not axis.low < _USUAL < axis.high:
        return
    edge = float(axis.thresholds[np.abs(axis.thresholds - _USUAL).argmin()])
    for metric in _AT:
        yield part.gaps(metric, at=edge)


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
    if not rows:
        return ""
    columns = ["gap", "first", "second", "difference", "all gaps together", "stands out"]
    return table(f"Gaps in {gaps.metric}{of}", columns, rows, name="gaps")


def models_compared(result: Evaluation) -> Iterator[SliceFigures]:
    """How models differ on the same rows, where these have one label."""
    task = result.plan.task
    if task.labels_told != (None,) or result.mapped_by is not None:
        return
    if result.slice.model is not None:
        return
    for place, (one, other) in enumerate(list(combinations(task.models, 2))[:_MOST_PAIRS]):
        try:
            comparison = result.compare(one, other)
            rows = list(_differences(comparison))
        except UndefinedMetric as error:
            yield SliceFigures(paragraph(f"{one} and {other} cannot be compared: {error}"))
            continue
        title = f"{one} less {other}"
        cells = [(row.name, "" if row.estimate is None else words(row.estimate)) for row in rows]
        html = paragraph(f"By these counts {comparison.verdict} This is {comparison.basis}.")
        html += table(title, ["metric", "difference"], cells, name="models")
        note = f"Lines are {result.level * 100:g}% intervals, {comparison.basis}."
        name = f"Differences: {title}"  # other than the table's: each has a button of that name
        figure = forest(f"models-{place}", name, "Difference", rows, note=note, line=_EQUAL)
        yield SliceFigures(html, (figure,))


def _differences(comparison: Comparison) -> Iterator[FigureRow]:
    for title, name in _OVER_ALL:
        try:
            yield FigureRow(title, getattr(comparison, name))
        except (UndefinedMetric, InputError):
            if name == "roc_auc":  # then there is nothing to say
                raise


_AVERAGED: Final = ("roc_auc", "average_precision")
_MANY: Final = 40  # rows: of more, those of groups have a figure of their own


def told_of(result: Evaluation, *, brief: bool) -> SliceFigures:
    """Tables and figures of a result's slices; nothing where it is of one."""
    if len(result.slices) == 1:
        return SliceFigures()
    apart = [*gaps_between_groups(result, brief=brief), *models_compared(result)]
    tables = [_every(result), *_averages(result), *(each.html for each in apart)]
    figures = [*_by_slice(result), *(figure for each in apart for figure in each.forests)]
    return SliceFigures("".join(tables), tuple(figures))


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
    note = f"Lines are {parts[0].level * 100:g}% intervals, each by itself."
    rows = [_row(part) for part in parts]
    return forest(name, title, "ROC AUC", rows, note=note, line=(0.5, "chance"))


def _row(part: Evaluation) -> FigureRow:
    if part.withheld is not None:
        return FigureRow(str(part.slice), None, note="withheld")
    return FigureRow(str(part.slice), read(part, "roc_auc"))


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
    averages = (read(part, name) for name in _AVERAGED)
    return numbers + ["undefined" if each is None else words(each) for each in averages]


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
    if task.models and result.slice.model is None:
        return [result.select(model=name) for name in task.models]
    return [result]


_NUMBERS: Final = {
    "ROC AUC": "roc_auc",
    "average precision": "average_precision",
    "Brier score": "brier_score",
}
_NOTE: Final = (
    "Overlapping intervals do not show whether two results differ. fedgauge diff a.json b.json "
    "shows it."
)


def beside(results: Mapping[str, Evaluation], signed: Mapping[str, Signature] | None = None) -> str:
    """Headline numbers, a row for each result and model, first what is not as it was `signed`."""
    if len(results) == 1:
        return ""
    rows = [row for name, result in results.items() for row in _rows(name, result)]
    columns = ["result", *_NUMBERS, "examples", "epsilon", "claim"]
    known = {name: result.signature for name, result in results.items()} | dict(signed or {})
    broken = [name for name, signature in known.items() if signature.state == "broken"]
    told = f"Do not use the numbers of {', '.join(broken)}: not what was signed."
    caution = paragraph(told, "caution") if broken else ""
    return caution + table("All results", columns, rows, name="results") + paragraph(_NOTE, "small")


def _rows(name: str, result: Evaluation) -> Iterator[list[str]]:
    for part in whole_models(result):
        of = f", model {part.slice.model}" if part.slice.model else ""
        average = ", macro average" if part.is_several else ""
        numbers = [_number(part, metric) for metric in _NUMBERS.values()]
        # How many reports, or scores, there are is known; of rows noise is all that is.
        counted = part.reports is not None or part.plan.task.of_labels
        about = "about " if part.plan.is_noisy and not counted else ""
        told = f"{about}{show_count(part.examples)}"
        examples = "hidden" if part.withheld is not None else told
        epsilon = "none" if part.privacy.epsilon is None else f"{part.privacy.epsilon:g}"
        whole = [examples, epsilon, part.privacy.claim]
        yield [f"{name}{of}{average}", *numbers, *whole]


def _number(part: Evaluation, metric: str) -> str:
    try:
        return words(part.macro(metric) if part.is_several else getattr(part, metric))
    except (UndefinedMetric, InputError):  # hidden, not defined, or not averaged
        return "undefined"
