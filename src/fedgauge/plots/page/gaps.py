"""How far groups differ, and models on the same rows: tables, and rows of figures."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any, Final, NamedTuple

import numpy as np

from fedgauge.errors import InputError, UndefinedMetric
from fedgauge.measures.intervals import show
from fedgauge.plan.slices import Sliced
from fedgauge.plots.page.forests import Row, forest, words
from fedgauge.plots.page.markup import folded, paragraph, table
from fedgauge.results.compared import Comparison
from fedgauge.results.evaluation import Evaluation
from fedgauge.results.gaps import Gap, Gaps

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


class Told(NamedTuple):
    """Words and tables as HTML, and figures as plain data."""

    html: str = ""
    forests: tuple[dict[str, Any], ...] = ()


def gaps_between_groups(result: Evaluation, *, brief: bool) -> Iterator[Told]:
    """How far groups differ, of each model and class; if `brief`, in ROC AUC alone."""
    task = result.plan.task
    if not (isinstance(task, Sliced) and task.groups):
        return
    for place, part in enumerate(each for each in result.slices if each.slice.group is None):
        of = "" if str(part.slice) == "all" else f" of {part.slice}"
        every = list(_measured(part, brief=brief))
        html = "".join(
            paragraph(f"In {gaps.metric}: {gaps.verdict}") + _gap_table(gaps, of) for gaps in every
        )
        rows = [_gap_row(gaps.metric, each) for gaps in every for each in gaps.pairs]
        told = Told(folded(f"Gaps between groups{of}", html))
        if brief or not rows:
            yield told
            continue
        largest = sorted(rows, key=_size, reverse=True)[:_MOST_ROWS]
        kept = [row for row in rows if row in largest]
        few = "" if len(kept) == len(rows) else f" The {len(kept)} largest of {len(rows)}."
        note = (
            f"The first group less the second. Lines hold together for all gaps of a metric, with "
            f"{part.level * 100:g}% confidence: a line that misses 0 stands out.{few}"
        )
        title = f"Gaps between groups{of}"
        figure = forest(f"gaps-{place}", title, "Difference", kept, note=note, line=_EQUAL)
        yield told._replace(forests=(figure,))


def _size(row: Row) -> float:
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


def _gap_row(metric: str, each: Gap) -> Row:
    return Row(f"{metric}: {each.group} - {each.against}", each.difference, each.joint)


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


def models_compared(result: Evaluation) -> Iterator[Told]:
    """How models differ on the same rows, where these have one label."""
    task = result.plan.task
    if not isinstance(task, Sliced) or task.labels_told != (None,) or result.mapped_by is not None:
        return
    if result.slice.model is not None:
        return
    for place, (one, other) in enumerate(list(combinations(task.models, 2))[:_MOST_PAIRS]):
        try:
            comparison = result.compare(one, other)
            rows = list(_differences(comparison))
        except UndefinedMetric as error:
            yield Told(paragraph(f"{one} and {other} cannot be compared: {error}"))
            continue
        title = f"{one} less {other}"
        cells = [(row.name, "" if row.estimate is None else words(row.estimate)) for row in rows]
        html = paragraph(f"By these counts {comparison.verdict} This is {comparison.basis}.")
        html += table(title, ["metric", "difference"], cells, name="models")
        note = f"Lines are intervals at {result.level * 100:g}%, {comparison.basis}."
        name = f"Differences: {title}"  # other than the table's: each has a button of that name
        figure = forest(f"models-{place}", name, "Difference", rows, note=note, line=_EQUAL)
        yield Told(html, (figure,))


def _differences(comparison: Comparison) -> Iterator[Row]:
    for title, name in _OVER_ALL:
        try:
            yield Row(title, getattr(comparison, name))
        except (UndefinedMetric, InputError):
            if name == "roc_auc":  # then there is nothing to say
                raise
