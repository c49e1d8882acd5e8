"""Which rows a site has: a file and its columns, as its operator or its site file names them."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, Self, TypeVar

import msgspec

from fedgauge.data.examples import Data, RowSource
from fedgauge.data.files import (
    LabelColumns,
    Respelled,
    ScoreColumns,
    ScoreFile,
    column_names,
    list_columns,
)
from fedgauge.data.queries import ScoreQuery, connect_by_environment
from fedgauge.data.row_checks import RowSummary
from fedgauge.data.text_files import UTF8, Dialect
from fedgauge.errors import ExchangeError, InputError
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.task import AnyTask, MeasuredTask, listed, measured_by
from fedgauge.site.periods import FilePattern
from fedgauge.storage import MALFORMED

if TYPE_CHECKING:
    from fedgauge.site.site import Site  # which imports this file

PERIODS: Final = (
    "The site file states that nobody has rows in two periods, so each has a budget of its own."
)
_MOST_SHOWN: Final = 5  # names in an option, as an example
_THE_QUERY: Final = "the query in [data]"  # in the place of a path
_REPEATED: Final = ("--model-score", "--group")


class Rows(Protocol):
    """A site's rows, as its operator named them when joining."""

    @property
    def path(self) -> str:
        """The file."""

    @property
    def columns(self) -> str:
        """The columns in words."""

    def check(self, plan: EvaluationPlan, site: "Site") -> None:
        """Refuse, before anything is spent, a file that cannot be counted under a plan."""

    def data(self, plan: EvaluationPlan, site: "Site") -> Data:
        """The rows."""

    def warnings(self, counted: RowSummary, plan: EvaluationPlan) -> list[str]:
        """What is wrong with the rows, as far as they were counted; each names the file."""


class NamedRows(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a site's rows are, as named when joining, or in the table ``[data]`` of its site file.

    Names are those of the plan: `classes` has the column of scores of each class or label, `models`
    the columns of each model, in the order of the plan's classes, and `groups` the column of a
    grouping, unless that has the grouping's name. With several labels a row `label` has the column
    of each. `positive` is the positive label as the file spells it, where the plan spells it
    otherwise; without `negative` all others are negative. The rest is as for :class:`ScoreFile`.

    A site file may name a `query` instead of a path, for the database that the environment variable
    FEDGAUGE_DATABASE names; `inside` as for :class:`fedgauge.ScoreQuery`. No plan changes its text.

    In a site file `path` is relative to that file, and may have fields such as ``{week}``
    (:class:`fedgauge.site.periods.FilePattern`). `periods` is then the statement that nobody has
    rows in two periods. `positive_rate` is the share of positives that the site expects.
    """

    path: str = ""
    label: str | dict[str, str] = ""
    score: str = ""
    subject: str | None = None
    separator: str | None = None
    decimal: str = "."
    encoding: str = UTF8
    drop_missing: bool = False
    classes: dict[str, str] = {}
    models: dict[str, tuple[str, ...]] = {}
    groups: dict[str, str] = {}
    positive: str | None = None
    negative: str | None = None
    periods: Literal["disjoint"] | None = None
    query: str = ""
    inside: bool = False
    positive_rate: float | None = None

    @property
    def pattern(self) -> FilePattern:
        """The path as a site file states it."""
        return FilePattern.read(self.path)

    def on(self, day: date, folder: Path) -> Self:
        """The rows of the last period before a day, where a site file in this folder names them."""
        if self.query:
            return msgspec.structs.replace(self, path=_THE_QUERY)
        path, _ = self.pattern.on(day)
        return msgspec.structs.replace(self, path=str(folder / path), periods=None)

    def narrowed(self, plan: EvaluationPlan) -> Self:
        """The same without the columns that a plan does not ask for."""
        task = measured_by(plan.task)
        layout, cap = task.layout, plan.privacy.unit_cap
        several = any(task.labels_told)
        return msgspec.structs.replace(
            self,
            score="" if layout.models or several else self.score,
            classes=self.classes if several and not layout.models else {},
            models={name: self.models[name] for name in layout.models if name in self.models},
            groups={name: self.groups[name] for name, _ in layout.groups if name in self.groups},
            positive=None if several else self.positive,
            negative=None if several else self.negative,
            positive_rate=None,
            subject=self.subject if cap is not None and cap.unit == "subject" else None,
        )

    def file(self, plan: EvaluationPlan) -> RowSource:
        """The file, if it and the columns that a plan asks for are there; or the query."""
        return self.of_task(plan.task)

    def of_task(self, task: AnyTask) -> RowSource:
        """The same for what a task tells apart."""
        label, score, group = self.by_task(task)
        if self.query:
            if self.positive is not None or self.drop_missing:
                raise InputError(
                    "positive and drop_missing are for files. Let the query name rows and labels "
                    "as they are to be."
                )
            return ScoreQuery(
                connect_by_environment,
                self.query,
                label=label,
                score=score,
                group=group,
                subject=self.subject,
                inside=self.inside,
            )
        return ScoreFile(
            self.path,
            label=label,
            score=score,
            group=group,
            subject=self.subject,
            separator=self.separator,
            decimal=self.decimal,
            encoding=self.encoding,
            drop_missing=self.drop_missing,
            respelled=self._respelled(measured_by(task)),
        )

    def _respelled(self, task: MeasuredTask) -> Respelled | None:
        if self.positive is None:
            return None
        if task.layout.classes or task.layout.labels > 1:
            raise InputError("positive is for plans of two classes. Leave it out.")
        return Respelled(self.positive, self.negative, task.positive)

    def by_task(self, task: AnyTask) -> tuple[LabelColumns, ScoreColumns, dict[str, str]]:
        """The columns of labels, scores and groups, in the order of a task."""
        task = measured_by(task)
        return self._labels(task), self._scores(task), self._groups(task)

    def check(self, plan: EvaluationPlan, site: object) -> None:
        """Refuse, before anything is spent, a file that cannot be counted under a plan."""
        del site  # any site's
        self.checked(plan)

    def checked(self, plan: EvaluationPlan) -> RowSource:
        """The file, unless it cannot be counted under a plan; reads its first rows."""
        if plan.task.of_labels:
            raise InputError(
                "the plan is for labels apart from scores. Name the column of ids, and the bins "
                "that this site was sent: --id COLUMN --bins FILE."
            )
        self._check_groups(measured_by(plan.task))
        file = self.file(plan)
        file.check()
        cap = plan.privacy.unit_cap
        if cap is not None and cap.unit == "subject" and self.subject is None:
            raise InputError(
                "the plan protects subjects, so each row needs the id of its subject. Name its "
                "column with --subject."
            )
        return file

    def _check_groups(self, task: MeasuredTask) -> None:
        """Refuse a file without a column that nobody named but the plan."""
        groups = self._groups(task)
        unnamed = [name for name in groups if name not in self.groups]
        if self.query or not unnamed:  # a query is checked with all of its columns
            return
        dialect = Dialect(self.separator, self.decimal, self.encoding)
        present = column_names(Path(self.path), dialect)
        missing = [name for name in unnamed if name not in present]
        if missing:
            raise InputError(
                f"{self.path}: the plan has groups by {listed(missing)}, and there is no column of "
                f"that name. Name it: {_options('--group', missing)}. {list_columns(present)}"
            )

    def _labels(self, task: MeasuredTask) -> str | list[str]:
        if task.layout.labels > 1:
            if isinstance(self.label, str):
                raise InputError(
                    "the plan has several labels a row. Name the column of each: "
                    f"{_options('--label', task.labels_told)}."
                )
            return list(_by_name("--label", self.label, task.labels_told))
        if not isinstance(self.label, str):
            raise InputError("the plan has one label a row. Name its column: --label COLUMN.")
        return self.label

    def _scores(self, task: MeasuredTask) -> str | list[str] | dict[str, list[str]]:
        models = task.layout.models
        names = tuple(filter(None, task.labels_told))
        if models:
            given = _by_name("--model-score", self.models, models, task.layout.scores)
            if any(len(columns) != task.layout.scores for columns in given):
                wanted = f"{len(names)} columns, of {listed(names)}" if names else "one column"
                raise InputError(f"--model-score takes for each model {wanted}.")
            return dict(zip(models, map(list, given), strict=True))
        if self.models:
            raise InputError("the plan is of one model. Leave out --model-score.")
        if names:
            return list(_by_name("--class-scores", self.classes, names))
        if not self.score:
            raise InputError("the plan has one score a row. Name its column: --score COLUMN.")
        return self.score

    def _groups(self, task: MeasuredTask) -> dict[str, str]:
        names = [name for name, _ in task.layout.groups]
        other = [name for name in self.groups if name not in names]
        if other:
            has = f"It has: {listed(names)}" if names else "It has none: leave out --group"
            raise InputError(f"the plan has no groups by {listed(other)}. {has}.")
        return {name: self.groups.get(name, name) for name in names}

    @property
    def columns(self) -> str:
        """The columns in words."""
        label = self.label if isinstance(self.label, str) else _pairs(self.label)
        models = {name: "/".join(columns) for name, columns in self.models.items()}
        score = self.score or _pairs(models or self.classes)
        groups = f", groups {_pairs(self.groups)}" if self.groups else ""
        return f"label {label}, score {score}{groups}"

    def data(self, plan: EvaluationPlan, site: object) -> Data:
        """The rows."""
        del site  # the same for all
        return self.file(plan)

    def warnings(self, counted: RowSummary, plan: EvaluationPlan) -> list[str]:
        """What is wrong with the rows, as far as they were counted; each names the file."""
        axis = plan.axis
        told = counted.warnings(
            plan.task.positive,
            axis.low,
            axis.high,
            exact=not plan.is_noisy,
            clips=axis.outside == "clip",
        )
        return [f"{self.path}: {sentence}" for sentence in told]


T = TypeVar("T")


def _by_name(
    option: str, given: Mapping[str, T], names: Sequence[str | None], columns: int = 1
) -> list[T]:
    """What is named for each of the plan's names, in its order: so many columns each."""
    other = [name for name in given if name not in names]
    missing = [name for name in names if name not in given]
    if not (other or missing):
        return [given[str(name)] for name in names]
    told = "" if not given else f"{option} lacks {listed(missing)}, and "
    if other:
        told = f"{option} names {listed(other)}, and "
    raise InputError(
        f"{told}the plan has {listed(names)}. Name their columns: "
        f"{_options(option, names, columns)}."
    )


def column_options(task: AnyTask) -> str:
    """The options by which an operator names the columns of a plan's rows, as they are typed.

    >>> from fedgauge.plan import BinaryTask
    >>> column_options(BinaryTask(models=["new", "old"], groups={"sex": ["women"]}))
    '--label COLUMN --model-score new=COLUMN --model-score old=COLUMN --group sex=COLUMN'
    """
    task = measured_by(task)
    layout = task.layout
    names = tuple(filter(None, task.labels_told))
    label = _options("--label", names) if layout.labels > 1 else "--label COLUMN"
    score = _options("--class-scores", names) if names else "--score COLUMN"
    if layout.models:
        score = _options("--model-score", layout.models, layout.scores)
    groups = _options("--group", [name for name, _ in layout.groups])
    return " ".join(filter(None, (label, score, groups)))


def _options(option: str, names: Sequence[str | None], columns: int = 1) -> str:
    """An option, with the names that it takes, and so many columns for each."""
    each = ",".join(["COLUMN"] * min(columns, _MOST_SHOWN) + ["..."] * (columns > _MOST_SHOWN))
    shown = [f"{name}={each}" for name in names[:_MOST_SHOWN]]
    more = "..." if len(names) > _MOST_SHOWN else ""
    if option in _REPEATED:
        return " ".join([f"{option} {shlex.quote(each)}" for each in shown] + [more] * bool(more))
    return f"{option} {shlex.quote(','.join([*shown, *filter(None, [more])]))}"


def _pairs(named: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={column}" for name, column in named.items())


def read_note(note: bytes, kinds: Sequence[type[Rows]] = (NamedRows,)) -> Rows:
    """Rows of one of these kinds, as they were noted when a site joined."""
    for kind in kinds:
        with suppress(*MALFORMED):
            return msgspec.json.decode(note, type=kind)
    raise ExchangeError(
        "this site's record of which rows it joined with is damaged. Abandon this evaluation and "
        "join a new one."
    )
