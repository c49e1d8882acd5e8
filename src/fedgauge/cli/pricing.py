"""Slices of a plan on the terminal: how `plan` names them, and what each costs in error."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

import fedgauge as fg
from fedgauge.cli.columns import read_lists, read_names
from fedgauge.cli.slicing import Told, task_of
from fedgauge.plan.slices import Sliced
from fedgauge.plan.task import measured_by

if TYPE_CHECKING:
    from fedgauge.plan.prediction import Prediction
    from fedgauge.plan.task import AnyTask

PlannedGroups = Annotated[
    list[str] | None,
    typer.Option("--group", help="Groups to tell apart: sex=women,men; may be repeated."),
]
Classes = Annotated[
    list[str] | None, typer.Option("--classes", help="Classes with a score each: flu,cold,well.")
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--labels", help="Several labels a row, a score each: fever,cough."),
]
Models = Annotated[
    list[str] | None, typer.Option("--models", help="Models that score the same rows: new,old.")
]
# What tables are called, by the tag that they have in a plan.
_TABLES = {
    "joint": "pairs of models together",
    "loss differences": "differences of losses",
    "predicted": "confusion",
    "ranked": "ranks",
    "top-score": "top labels",
}
_ADVICE = re.compile(r'DistributedDP\([^,]+, noise="([a-z-]+)", delta=([^)]+)\)')


def planned_task(
    told: Told,
    groups: Sequence[str],
    classes: str | None,
    labels: str | None,
    models: str | None,
) -> AnyTask:
    """The task that `plan` is told of."""
    if classes is not None and labels is not None:
        raise fg.PlanError(
            "--classes are those of which a row has one, --labels those of which it may have "
            "several. Use one."
        )
    for option, text in (("--classes", classes), ("--models", models), ("--labels", labels)):
        names = () if text is None else read_names(option, text)
        if any("=" in name for name in names):  # no column could be given to such a name
            bare = ",".join(name.partition("=")[0].strip() for name in names)
            raise fg.PlanError(
                f"{option} takes names alone, as {option} {bare}: each site names its own columns."
            )
        if len(names) == 1 and option != "--labels":
            raise fg.PlanError(f"{option} names one. Name at least two, or leave it out.")
    return task_of(
        told,
        groups=read_lists("--group", groups),
        models=() if models is None else read_names("--models", models),
        classes=() if classes is None else read_names("--classes", classes),
        labels=() if labels is None else read_names("--labels", labels),
    )


def whose_errors(task: AnyTask) -> str:
    """What the errors over all rows are of, after a blank; nothing where there is one score."""
    if not isinstance(task, Sliced) or len({(s.model, s.label) for s in task.slices}) == 1:
        return ""
    label = "label" if isinstance(task, fg.MultilabelTask) else "class"
    kinds = [label] * bool(task.slices[0].label) + ["model"] * bool(task.models)
    return f" of each {' of each '.join(kinds)}"


def errors_to_expect(predicted: Prediction, whose: str) -> Iterator[tuple[str, str]]:
    """Every error by its name: about how large, and between which sizes."""
    for title, mean, ends in _ranges(predicted):
        by = f"{ends} by what scores are like" if ends else ""
        yield title, f"{mean:.1e} expected{whose}{by}"


def _ranges(predicted: Prediction) -> Iterator[tuple[str, float, str]]:
    """The name of every error, its mean, and after a comma its range where it has one."""
    titles = ("ROC Area Error", "PR Area Error", "AUC error")
    for title, *sizes in zip(titles, predicted, *predicted.span, strict=True):
        _, low, high = (f"{size:.1e}" for size in sizes)
        yield title, sizes[0], f", {low} to {high}" if low != high else ""


def costs_of_slices(plan: fg.EvaluationPlan) -> Iterator[tuple[str, str]]:
    """What groups cost in error, who shares the budget, and what would have less noise."""
    predicted, task = plan.predicted, measured_by(plan.task)
    for name, errors in () if predicted is None else predicted.groups:
        roc, _, auc = (f"{title} {mean:.1e}{by}" for title, mean, by in _ranges(errors))
        yield f"In a group by {name}", f"{auc}; {roc}; if all are as large"
    if plan.is_noisy and not plan.final.sends_reports and isinstance(task, Sliced):
        parts = list(_parts(plan, task))
        if sum(count for count, _ in parts) > 1:
            shared = ", ".join(f"{count} for {what}" for count, what in parts)
            yield "Budget", f"shared by {sum(count for count, _ in parts)}: {shared}"
    if predicted is not None and predicted.advice is not None:
        yield "Better", _ADVICE.sub(r"--noise \1 --delta \2", predicted.advice)


def _parts(plan: fg.EvaluationPlan, task: Sliced) -> Iterator[tuple[int, str]]:
    """How many counts a row adds to, and what for."""
    tables = Counter(_TABLES[str(table.__struct_config__.tag)] for table in plan.tables)
    if plan.summed.nodes:
        layout = task.layout
        factors = [
            (len(task.models), "models"),
            (layout.scores, "labels" if isinstance(task, fg.MultilabelTask) else "classes"),
            (len(layout.groupings) if task.groups else 0, "groupings"),
            (len(plan.tree), "levels"),
        ]
        told = " x ".join(f"{count} {what}" for count, what in factors if count > 1)
        yield task.per_row * len(plan.tree), f"scores ({told})" if told else "scores"
    yield from ((count, what) for what, count in tables.items())
