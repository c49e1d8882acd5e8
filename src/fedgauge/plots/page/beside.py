"""Several results next to each other: what heads a page of more than one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from fedgauge.errors import InputError, UndefinedMetric
from fedgauge.measures.intervals import show_count
from fedgauge.plan.task import LabelTask
from fedgauge.plots.page.forests import words
from fedgauge.plots.page.markup import paragraph, table
from fedgauge.plots.page.slices import whole_models
from fedgauge.results.evaluation import Evaluation
from fedgauge.results.proof import Signature

_NUMBERS: Final = {
    "ROC AUC": "roc_auc",
    "average precision": "average_precision",
    "Brier score": "brier_score",
}
_NOTE: Final = (
    "Overlapping intervals do not say whether two results differ; `fedgauge diff a.json b.json` "
    "does."
)


def beside(results: Mapping[str, Evaluation], signed: Mapping[str, Signature] | None = None) -> str:
    """Headline numbers with intervals, a row for each result and model; nothing for one result.

    What is not as it was `signed` is named first.
    """
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
        counted = part.reports is not None or isinstance(part.plan.task, LabelTask)
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
