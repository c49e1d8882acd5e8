"""Several results next to each other: what heads a page of more than one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from fedgauge.errors import InputError, UndefinedMetric
from fedgauge.measures.intervals import show_count
from fedgauge.plots.page.forests import words
from fedgauge.plots.page.markup import paragraph, table
from fedgauge.plots.page.slices import whole_models
from fedgauge.results.evaluation import Evaluation

_NUMBERS: Final = {
    "ROC AUC": "roc_auc",
    "average precision": "average_precision",
    "Brier score": "brier_score",
}
_NOTE: Final = (
    "Overlapping intervals do not say whether two results differ; `fedgauge diff a.json b.json` "
    "does."
)


def beside(results: Mapping[str, Evaluation]) -> str:
    """Headline numbers with intervals, a row for each result and model; nothing for one result."""
    if len(results) == 1:
        return ""
    rows = [row for name, result in results.items() for row in _rows(name, result)]
    columns = ["result", *_NUMBERS, "examples", "epsilon", "claim"]
    return table("All results", columns, rows, name="results") + paragraph(_NOTE, "small")


def _rows(name: str, result: Evaluation) -> Iterator[list[str]]:
    for part in whole_models(result):
        of = f", model {part.slice.model}" if part.slice.model else ""
        average = ", macro average" if part.is_several else ""
        numbers = [_number(part, metric) for metric in _NUMBERS.values()]
        examples = "hidden" if part.withheld is not None else show_count(part.examples)
        epsilon = "none" if part.privacy.epsilon is None else f"{part.privacy.epsilon:g}"
        whole = [examples, epsilon, part.privacy.claim]
        yield [f"{name}{of}{average}", *numbers, *whole]


def _number(part: Evaluation, metric: str) -> str:
    try:
        return words(part.macro(metric) if part.is_several else getattr(part, metric))
    except (UndefinedMetric, InputError):  # hidden, not defined, or not averaged
        return "undefined"
