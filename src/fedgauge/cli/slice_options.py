"""Options that name groups, classes, labels and models: the task they make, and their columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer

import fedgauge as fg
from fedgauge.cli.options import make_dialect, read_lists, read_names, read_pairs

if TYPE_CHECKING:
    from fedgauge.data.files import GroupColumns, LabelColumns, ScoreColumns
    from fedgauge.plan.task import AnyTask

_MOST_VALUES = 8  # of a column that are named
_MOST_NAMES = 20  # of slices
ScoreOption = Annotated[
    str | None, typer.Option("--score", help="Column of the score; higher is more positive.")
]
ClassScores = Annotated[
    list[str] | None,
    typer.Option("--class-scores", help="Of several classes, the score of each: cat=p1,dog=p2."),
]
ModelScore = Annotated[
    list[str] | None,
    typer.Option("--model-score", help="Of several models, one and its score: new=p; repeated."),
]
GroupValues = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        help="A column and the groups in it: sex=women,men; may be repeated. With a plan its "
        "column: sex=COLUMN.",
    ),
]
Crossed = Annotated[
    bool, typer.Option("--crossed", help="Of several --group, count all combinations.")
]
Also = Annotated[
    list[str] | None,
    typer.Option("--also", help="Of classes, count also: confusion,ranks,top."),
]
PairOption = Annotated[
    list[str] | None,
    typer.Option(
        "--pair",
        help="Models to count together, so that they compare well: new,old; may be repeated. "
        r"\[default: the only two]",
    ),
]
PairedBrier = Annotated[
    bool, typer.Option("--paired-brier", help="Also count the differences of losses of pairs.")
]
OneGroup = Annotated[str | None, typer.Option("--group", help="Of this group alone.")]
OneModel = Annotated[str | None, typer.Option("--model", help="Of this model alone.")]
OneClass = Annotated[str | None, typer.Option("--class", help="Of this class, or label, alone.")]
Margin = Annotated[
    float | None,
    typer.Option("--margin", help="How much lower a model's AUC may be and it not inferior."),
]


class SliceColumns(NamedTuple):
    """Where labels, scores and groups are, as :class:`fedgauge.ScoreFile` is told."""

    label: LabelColumns
    score: ScoreColumns
    group: GroupColumns = None

    @property
    def name(self) -> str:
        """What is evaluated, in a legend."""
        return self.score if isinstance(self.score, str) else "pooled"


class Named(NamedTuple):
    """What `evaluate` is told of labels, scores and slices, as it was written."""

    label: str
    score: str | None
    class_scores: str | None
    model_score: Sequence[str]
    group: Sequence[str]

    def check(self) -> None:
        """Refuse scores that are named in two ways, or in none."""
        given = {
            "--score": self.score,
            "--class-scores": self.class_scores,
            "--model-score": self.model_score or None,
        }
        named = [option for option, value in given.items() if value is not None]
        if not named:
            raise fg.InputError(
                "which column is the score? Say --score COLUMN; of several classes --class-scores "
                "cat=p1,dog=p2, of several models --model-score new=p1 --model-score old=p2."
            )
        if len(named) > 1:
            raise fg.InputError(
                f"{' and '.join(named)} both name scores. Use one; for models of several classes "
                "make a plan, and evaluate it with --plan."
            )


class SliceOptions(NamedTuple):
    """What is told apart beyond the columns, as it was written.

    Of rows that are `reported` one by one none has its scores counted together.
    """

    positive: str | None = None
    crossed: bool = False
    also: str | None = None
    pair: Sequence[str] = ()
    paired_brier: bool = False
    reported: bool = False


def task_of(
    told: SliceOptions,
    *,
    groups: Mapping[str, Sequence[str]],
    models: Sequence[str] = (),
    classes: Sequence[str] = (),
    labels: Sequence[str] = (),
) -> AnyTask:
    """The task that names make: of two classes, of several (`classes`), or of several `labels`."""
    if classes or labels:
        if told.positive is not None:
            raise fg.PlanError(
                "--positive is for two classes with one score. Of several classes each has its "
                "own. Leave it out."
            )
        if told.pair or told.paired_brier:
            raise fg.PlanError("--pair is for models that tell two classes apart. Leave it out.")
        if labels:
            _refuse(told.also, "--also is for classes, of which a row has one. Leave it out.")
            return fg.MultilabelTask(
                labels=labels, groups=groups, models=models, crossed=told.crossed
            )
        also = () if told.also is None else read_names("--also", told.also)
        return fg.MulticlassTask(
            labels=classes, also=also, groups=groups, models=models, crossed=told.crossed
        )
    _refuse(told.also, "--also is for several classes. Name them, or leave it out.")
    pairs = [read_names("--pair", pair) for pair in told.pair]
    if len(models) == 2 and not pairs and not told.reported:  # as of models= in evaluate
        pairs = [tuple(models)]
    return fg.BinaryTask(
        told.positive,
        groups=groups,
        models=models,
        crossed=told.crossed,
        pairs=cast("Any", pairs),  # what is no pair is refused there
        paired_brier=told.paired_brier,
    )


def _refuse(given: object, reason: str) -> None:
    if given is not None:
        raise fg.PlanError(reason)


def task_and_columns(
    named: Named, told: SliceOptions, files: Sequence[Path]
) -> tuple[AnyTask, SliceColumns]:
    """What `evaluate` tells apart, and where; `files` say what a column could be grouped by."""
    named.check()
    for text in named.group:
        if "=" not in text:
            raise fg.InputError(f"--group {text} needs {_what_a_group_needs(files, text)}")
    groups = read_lists("--group", named.group)
    group: GroupColumns = {name: name for name in groups} or None
    if named.class_scores is not None:
        scores = read_pairs("--class-scores", named.class_scores)
        if len(scores) < 2:
            raise fg.InputError(
                "--class-scores names one class, and there are at least two. Name all of them, "
                "such as cat=p1,dog=p2; one score that tells two classes apart is --score."
            )
        classes = list(scores)
        if "=" not in named.label:
            task = task_of(told, groups=groups, classes=classes)
            return task, SliceColumns(named.label, list(scores.values()), group)
        labels = read_pairs("--label", named.label)
        _require_same("--class-scores", scores, labels, "--label")
        task = task_of(told, groups=groups, labels=list(labels))
        return task, SliceColumns(list(labels.values()), [scores[name] for name in labels], group)
    if named.model_score:
        models = _one_each(read_lists("--model-score", named.model_score))
        if len(models) < 2:
            raise fg.InputError(
                "--model-score names one model. Name another one, or use --score COLUMN."
            )
        return task_of(told, groups=groups, models=list(models)), SliceColumns(
            named.label, models, group
        )
    return task_of(told, groups=groups), SliceColumns(named.label, str(named.score), group)


def columns_of(task: AnyTask, named: Named) -> SliceColumns:
    """The columns that a plan's task is counted in, where the plan says all else."""
    from fedgauge.cli.exchange import SiteColumns as SiteColumns  # with all that sites need

    named.check()
    models, groups = list(named.model_score), list(named.group)
    rows = SiteColumns(named.label, named.score, named.class_scores, models, groups)
    return SliceColumns(*rows.scored("", make_dialect(None, None)).by_task(task))


def _one_each(models: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The one column of each model that tells two classes apart."""
    for name, columns in models.items():
        if len(columns) > 1:
            raise fg.InputError(
                f"--model-score {name}= names {len(columns)} columns, and a model of two classes "
                "has one score. Give the option once for each model. For models of several "
                "classes make a plan, and evaluate it with --plan."
            )
    return {name: columns[0] for name, columns in models.items()}


def _require_same(option: str, given: Collection[str], wanted: Collection[str], where: str) -> None:
    """Refuse names that are not those of another option."""
    if {*given} == {*wanted}:
        return
    missing = [name for name in wanted if name not in given]
    strange = [name for name in given if name not in wanted]
    told = f"{option} does not name {missing[0]!r}, which {where} has"
    if not missing:
        told = f"{option} names {strange[0]!r}, which {where} does not have"
    raise fg.InputError(f"{told}. Name each once: {', '.join(wanted)}.")


def _what_a_group_needs(files: Sequence[Path], text: str) -> str:
    """What is to be said of a group option that has no values, or no column."""
    if "," in text:
        return f"the column that holds these groups: --group COLUMN={text}."
    told = f"the groups that are told apart, such as --group {text}=women,men."
    return f"{told} {_values(files, text)}".rstrip()


def _values(files: Sequence[Path], column: str, separator: str | None = None) -> str:
    """What a column of the caller's own files holds, in words; nothing where it is not there."""
    from fedgauge.data.files import some_labels

    try:
        values = some_labels(files, column, most=_MOST_VALUES, separator=separator)
    except fg.FedgaugeError:
        return ""
    if values is None:
        return f"Column {column!r} has more than {_MOST_VALUES} different values."
    return f"Column {column!r} has {', '.join(map(repr, values))}."


def check_groups(
    result: fg.Evaluation, columns: SliceColumns, files: Sequence[Path], separator: str | None
) -> list[str]:
    """What is wrong with groups that no row is in; refused where that is so of all of them."""
    from fedgauge.plan.task import Sliced

    task = result.plan.task
    if not (isinstance(task, Sliced) and task.groups and isinstance(columns.group, Mapping)):
        return []
    warnings = []
    for grouping in task.layout.groupings:
        listed = [g.name for g in task.groups_told.values() if g.grouping == grouping and g.listed]
        empty = [name for name in listed if _seems_empty(result, name)]
        if not empty:
            continue
        named = [str(columns.group[name]) for name in grouping]
        where = f"column {' and '.join(map(repr, named))}"
        told = " ".join(_values(files, name, separator) for name in named)
        if len(empty) == len(listed):
            # Under noise nobody can tell a group that is not there from one that is hidden.
            if not result.plan.is_noisy:
                raise fg.InputError(
                    f"no row is of a group that was named for {where}: all are in 'other'. Check "
                    f"the spelling. {told}"
                )
            warnings.append(f"noise hides every group named for {where}. Is it spelled so? {told}")
        elif len(grouping) == 1:  # combinations may well be empty
            some = f"group {', '.join(map(repr, empty[:_MOST_VALUES]))} of {where}"
            if result.plan.is_noisy:
                warnings.append(f"noise hides {some}. Is it spelled so? {told}")
            else:
                warnings.append(f"no row is of {some}. {told}")
    return warnings


def _seems_empty(result: fg.Evaluation, group: str) -> bool:
    scored = result.plan.task.slices[0]  # any score will do: rows are the same
    part = result.select(model=scored.model, group=group, label=scored.label)
    if result.plan.is_noisy:
        return part.withheld is not None
    return group not in result.released.joined and not part.examples


def chosen(
    result: fg.Evaluation, *, group: str | None, model: str | None, label: str | None
) -> fg.Evaluation:
    """The part of a result that was named, or the whole; what there is, where a name is not."""
    from fedgauge.plan.task import Sliced

    task = result.plan.task
    if (group, model, label) == (None, None, None):
        return result
    sliced = task if isinstance(task, Sliced) else None
    there = {
        "group": () if sliced is None else tuple(sliced.groups_told),
        "model": () if sliced is None else tuple(sliced.models),
        "class": () if sliced is None else tuple(filter(None, sliced.labels_told)),
    }
    for kind, name in (("group", group), ("model", model), ("class", label)):
        if name is None or name in there[kind]:
            continue
        if not there[kind]:
            raise fg.InputError(f"this result is not told apart by {kind}. Leave out --{kind}.")
        names = "; ".join(there[kind][:_MOST_NAMES])
        more = "; ..." if len(there[kind]) > _MOST_NAMES else ""
        raise fg.InputError(f"this result has no {kind} {name!r}. There are: {names}{more}.")
    return result.select(model=model, group=group, label=label)
