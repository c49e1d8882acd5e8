"""Options that name groups, classes, labels and models: the task they make, and their columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, cast

import typer

import fedgauge as fg
from fedgauge.cli.options import Positive, ScoreOption, read_lists, read_names, read_pairs

if TYPE_CHECKING:
    from fedgauge.cli.client_files import RowFiles
    from fedgauge.data.files import GroupColumns, LabelColumns, ScoreColumns
    from fedgauge.plan.task import MeasuredTask, ScoredTask

_MOST_VALUES = 8  # of a column that are named
_MOST_NAMES = 20  # of slices
Crossed = Annotated[
    bool, typer.Option("--crossed", help="Count all combinations of several --group.")
]
Also = Annotated[
    list[str] | None,
    typer.Option("--also", help="For several classes, also count: confusion,ranks,top."),
]
PairOption = Annotated[
    list[str] | None,
    typer.Option(
        "--pair",
        help="Two models to count together, for a sharper comparison: new,old; may be repeated. "
        r"\[default: the only two]",
    ),
]
Margin = Annotated[
    float | None,
    typer.Option(
        "--margin",
        help="How much lower a model's AUC may be before it counts as inferior.",
        rich_help_panel="Groups, classes and models",
    ),
]


@dataclass(frozen=True, kw_only=True)
class PartOptions:
    """Which part of a result is meant."""

    panel: ClassVar[str] = "Groups, classes and models"

    group: Annotated[str | None, typer.Option(help="Use only this group.")] = None
    model: Annotated[str | None, typer.Option(help="Use only this model.")] = None
    label: Annotated[str | None, typer.Option("--class", help="Use only this class, or label.")] = (
        None
    )

    def of(self, result: fg.Evaluation) -> fg.Evaluation:
        """The part of a result that is named, or the whole; what there is, where a name is not."""
        named = {"group": self.group, "model": self.model, "class": self.label}
        if not any(name is not None for name in named.values()):
            return result
        task = result.plan.task
        there = {
            "group": tuple(task.groups_told),
            "model": tuple(task.models),
            "class": tuple(filter(None, task.labels_told)),
        }
        for kind, name in named.items():
            if name is None or name in there[kind]:
                continue
            if not there[kind]:
                raise fg.InputError(
                    f"this result does not distinguish by {kind}. Leave out --{kind}."
                )
            names = "; ".join(there[kind][:_MOST_NAMES])
            more = "; ..." if len(there[kind]) > _MOST_NAMES else ""
            raise fg.InputError(f"this result has no {kind} {name!r}. There are: {names}{more}.")
        return result.select(model=self.model, group=self.group, label=self.label)


class SliceColumns(NamedTuple):
    """Where labels, scores and groups are, as :class:`fedgauge.ScoreFile` is told."""

    label: LabelColumns
    score: ScoreColumns
    group: GroupColumns = None

    @property
    def name(self) -> str:
        """What is evaluated, in a legend."""
        return self.score if isinstance(self.score, str) else "pooled"


@dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """Where labels, scores and groups are, and what is told apart by them."""

    panel: ClassVar[str] = "Groups, classes and models"

    label: Annotated[
        str | None,
        typer.Option(help="Column of the true label. For several labels a row: fever=y1,cough=y2."),
    ] = None
    score: ScoreOption = None
    class_scores: Annotated[
        list[str] | None, typer.Option(help="Columns of the score of each class: cat=p1,dog=p2.")
    ] = None
    model_score: Annotated[
        list[str] | None,
        typer.Option(help="A model and the column of its score: new=p. Repeat it for each model."),
    ] = None
    group: Annotated[
        list[str] | None,
        typer.Option(
            help="A column and the groups in it: sex=women,men; may be repeated. With --plan: "
            "sex=COLUMN."
        ),
    ] = None
    crossed: Crossed = False
    also: Also = None
    pair: PairOption = None
    positive: Positive = None

    def check(self) -> None:
        """Refuse scores that are named in two ways, or in none."""
        given = {
            "--score": self.score,
            "--class-scores": self.class_scores or None,
            "--model-score": self.model_score or None,
        }
        named = [option for option, value in given.items() if value is not None]
        if self.label is None:
            raise fg.InputError("which column is the label? Say --label COLUMN.")
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

    def task(self, *, one_by_one: bool, files: RowFiles) -> tuple[ScoredTask, SliceColumns]:
        """What is told apart, and where; `files` say what a column could be grouped by."""
        self.check()
        groups = self.groups(files)
        group: GroupColumns = {name: name for name in groups} or None
        apart = self.apart(one_by_one=one_by_one)
        if self.class_scores:
            return self._of_classes(apart, groups, group)
        if not self.model_score:
            task = apart.task(groups=groups)
            return task, SliceColumns(str(self.label), str(self.score), group)
        models = _one_each(read_lists("--model-score", self.model_score))
        if len(models) < 2:
            raise fg.InputError(
                "--model-score names one model. Name another one, or use --score COLUMN."
            )
        task = apart.task(groups=groups, models=list(models))
        return task, SliceColumns(str(self.label), models, group)

    def groups(self, files: RowFiles) -> dict[str, tuple[str, ...]]:
        """The groups of each column that is named; `files` say what others could be."""
        for text in self.group or ():
            if "=" not in text:
                raise fg.InputError(f"--group {text} needs {_what_a_group_needs(files, text)}")
        return read_lists("--group", self.group or ())

    def apart(self, *, one_by_one: bool) -> SliceOptions:
        """What is told apart beyond the columns."""
        return SliceOptions(self.positive, self.crossed, self.also, self.pair, one_by_one)

    def _of_classes(
        self, apart: SliceOptions, groups: Mapping[str, Sequence[str]], group: GroupColumns
    ) -> tuple[ScoredTask, SliceColumns]:
        scores = read_pairs("--class-scores", ",".join(self.class_scores or ()))
        if len(scores) < 2:
            raise fg.InputError(
                "--class-scores names one class, and there are at least two. Name all of them, "
                "such as cat=p1,dog=p2; one score that tells two classes apart is --score."
            )
        label = str(self.label)
        if "=" not in label:
            task = apart.task(groups=groups, classes=list(scores))
            return task, SliceColumns(label, list(scores.values()), group)
        labels = read_pairs("--label", label)
        _require_same("--class-scores", scores, labels, "--label")
        task = apart.task(groups=groups, labels=list(labels))
        return task, SliceColumns(list(labels.values()), [scores[name] for name in labels], group)

    def planned(self, task: MeasuredTask) -> SliceColumns:
        """The columns that a plan's task is counted in, where the plan says all else."""
        from fedgauge.cli.exchange import SiteColumns

        self.check()
        rows = SiteColumns(
            label=self.label,
            score=self.score,
            class_scores=self.class_scores,
            model_score=self.model_score,
            group=self.group,
        )
        return SliceColumns(*rows.scored("").by_task(task))


class SliceOptions(NamedTuple):
    """What is told apart beyond the columns, as written; `reported` rows have no joint scores."""

    positive: str | None
    crossed: bool
    also: Sequence[str] | None
    pair: Sequence[str] | None
    reported: bool

    def task(
        self,
        *,
        groups: Mapping[str, Sequence[str]],
        models: Sequence[str] = (),
        classes: Sequence[str] = (),
        labels: Sequence[str] = (),
    ) -> ScoredTask:
        """The task that names make: of two classes, of several `classes`, or several `labels`."""
        several: dict[str, Any] = {"groups": groups, "models": models, "crossed": self.crossed}
        if not (classes or labels):
            _refuse(self.also, "--also is for several classes. Name them, or leave it out.")
            pairs = [read_names("--pair", pair) for pair in self.pair or ()]
            if len(models) == 2 and not pairs and not self.reported:  # as of models= in evaluate
                pairs = [tuple(models)]
            # What is no pair is refused there.
            return fg.BinaryTask(self.positive, pairs=cast("Any", pairs), **several)
        if self.positive is not None:
            raise fg.PlanError(
                "--positive is for two classes with one score. Of several classes each has its "
                "own. Leave it out."
            )
        _refuse(self.pair, "--pair is for models that tell two classes apart. Leave it out.")
        if labels:
            _refuse(self.also, "--also is for classes, of which a row has one. Leave it out.")
            return fg.MultilabelTask(labels=labels, **several)
        also = read_names("--also", ",".join(self.also)) if self.also else ()
        return fg.MulticlassTask(labels=classes, also=also, **several)


def _refuse(given: object, reason: str) -> None:
    if given:
        raise fg.PlanError(reason)


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


def _what_a_group_needs(files: RowFiles, text: str) -> str:
    """What is to be said of a group option that has no values, or no column."""
    if "," in text:
        return f"the column that holds these groups: --group COLUMN={text}."
    told = f"the groups to distinguish, such as --group {text}=women,men."
    return f"{told} {_values(files, text)}".rstrip()


def _values(files: RowFiles, column: str) -> str:
    """What a column of the caller's own files holds, in words; nothing where it is not there."""
    from fedgauge.data.files import some_labels

    try:
        values = some_labels(files.placed(column), most=_MOST_VALUES)
    except fg.FedgaugeError:
        return ""
    if values is None:
        return f"Column {column!r} has more than {_MOST_VALUES} different values."
    return f"Column {column!r} has {', '.join(map(repr, values))}."


def check_groups(result: fg.Evaluation, columns: SliceColumns, files: RowFiles) -> list[str]:
    """What is wrong with groups that no row is in; refused where that is so of all of them."""
    task = result.plan.task
    if not (task.groups and isinstance(columns.group, Mapping)):
        return []
    warnings = []
    for grouping in task.layout.groupings:
        listed = [g.name for g in task.groups_told.values() if g.grouping == grouping and g.listed]
        empty = [name for name in listed if _seems_empty(result, name)]
        if not empty:
            continue
        named = [str(columns.group[name]) for name in grouping]
        where = f"column {' and '.join(map(repr, named))}"
        told = " ".join(_values(files, name) for name in named)
        if len(empty) == len(listed):
            # Under noise nobody can tell a group that is not there from one that is hidden.
            if not result.plan.is_noisy:
                raise fg.InputError(
                    f"no row is of a group that was named for {where}: all are in 'other'. Check "
                    f"the spelling. {told}"
                )
            warnings.append(
                f"noise hides every group named for {where}. Check the spelling. {told}"
            )
        elif len(grouping) == 1:  # combinations may well be empty
            some = f"group {', '.join(map(repr, empty[:_MOST_VALUES]))} of {where}"
            if result.plan.is_noisy:
                warnings.append(f"noise hides {some}. Check the spelling. {told}")
            else:
                warnings.append(f"no row is of {some}. {told}")
    return warnings


def _seems_empty(result: fg.Evaluation, group: str) -> bool:
    scored = result.plan.task.slices[0]  # any score will do: rows are the same
    part = result.select(model=scored.model, group=group, label=scored.label)
    if result.plan.is_noisy:
        return part.withheld is not None
    return group not in result.released.joined and not part.examples
