"""The site file: what a site allows, whom it trusts, and which slices a plan may have."""

import math
import os
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Final, Literal, Self, get_args

import msgspec

from fedgauge.data.examples import Label, meaning
from fedgauge.errors import PlanRefused, SiteError, located
from fedgauge.keys import is_anybodys, key_from_text
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.limits import check_bins, has_long_keys
from fedgauge.plan.task import Task, measured_by, quoted
from fedgauge.privacy import AnyPrivacyModel, DistributedDP, SecureAggregation
from fedgauge.privacy.models import tag_of
from fedgauge.site.ledger_entries import Cost
from fedgauge.site.rows import NamedRows
from fedgauge.storage import bounded, faults, open_regular, require_own

LEAST_COHORT: Final = 3
_PRIVATE_FOLDERS: Final = ("sessions", "answers")
FORMAT: Final = 1
_MOST_DAYS: Final = 3650
_MOST_BYTES: Final = 1 << 22  # tens of thousands of peers

# Names become parts of file names: no separators, nothing hidden, no "..".
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


MODELS: Final = tuple(sorted(map(tag_of, get_args(AnyPrivacyModel))))
EXACT: Final = tag_of(SecureAggregation)


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The limits that a plan must stay within."""

    models: tuple[str, ...] = (tag_of(DistributedDP),)  # privacy models that plans may use
    labels: tuple[str, ...] = ("1",)  # that plans may call positive, or tell apart as classes
    min_cohort: int = LEAST_COHORT  # fewest sites in a sum, and that exact sums may show together
    min_colluding: int = 1  # fewest that a plan must allow for (its `max_colluding`)
    max_epsilon: float = 1.0  # most that one plan may cost
    max_delta: float = 1e-6
    max_bins: int = 4096  # finest axis
    max_counts: int = 4_000_000  # most numbers: bins, times groups, classes and models
    # For which exact sums must have room: more than this site ever has, since a count that does
    # not fit makes it fall silent.
    rows_per_bin: int = 1_000_000
    # Whether plans may sum up scores within bins. In an exact sum they show the score of an example
    # alone in its bin, to 1/512 of the bin.
    score_sums: bool = False
    max_groups: int = 0  # most, those of no listed value included; 0 refuses plans for groups
    # Most that all plans on a dataset cost together, unless the ledger sets another limit.
    budget_epsilon: float = 3.0
    budget_delta: float = 1e-5
    mix_exact: bool = False  # whether exact sums and differential privacy may meet on one dataset
    # Whether this site joins with rows that look wrong to it, such as reversed labels, or stops
    # before it does and asks its operator.
    findings: Literal["stop", "join"] = "stop"
    # After so many an evaluation is given up: its keys are deleted, and what it reserved comes back
    # where nothing was counted.
    session_days: int = 30
    exact_sums: int = 3  # most on one dataset, where `models` allows any
    min_bin_width: float = 1 / 128  # least in an exact sum, in units of the score before any map
    # Digests of axes that exact sums may use whatever their widths; where a plan has a map, of the
    # axis before it, which a refusal names.
    axes: tuple[str, ...] = ()
    min_cell: int = 10  # fewest examples in a bin of an exact sum's result, besides none
    # Whether exact sums may leave out silent sites. Sums over different sites can be subtracted
    # from each other: what a site sees of that is checked, not what it is left out of.
    exact_dropouts: bool = False
    # Most scores of each row that an exact sum may count, over classes, labels and models. Each has
    # edges of its own: of two that differ by a little, counts show what lies between.
    exact_scores: int = 1
    # Whether exact sums may count the scores of two models together. Few patients have both within
    # the same ranges: many are alone there.
    exact_pairs: bool = False
    # Values that exact sums may tell groups apart by, as spelled in the data: a plan could name one
    # that a single patient has. Numbers need their grouping (``"ward=7"``).
    exact_groups: tuple[str, ...] = ()
    # Whether exact sums may be of a model that the coordinator sends, who can single out a patient
    # by it.
    exact_of_models: bool = False
    min_new_rows: int = 100  # by which a dataset must differ from another with exact sums

    def __post_init__(self) -> None:
        for model in self.models:
            if model not in MODELS:
                raise SiteError(f"models must be among {', '.join(MODELS)}, got {model!r}.")
        if self.min_cohort < LEAST_COHORT:
            raise SiteError(
                f"min_cohort must be at least {LEAST_COHORT}, got {self.min_cohort}: in a sum "
                "over two, each knows the other's part."
            )
        least_one = "min_colluding", "max_bins", "max_counts", "rows_per_bin", "session_days"
        for name in (*least_one, "exact_scores"):
            if getattr(self, name) < 1:
                raise SiteError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.session_days > _MOST_DAYS:
            raise SiteError(f"session_days must be at most {_MOST_DAYS:,}: keys go some day.")
        for name in ("exact_sums", "min_cell", "min_new_rows", "max_groups"):
            if getattr(self, name) < 0:
                raise SiteError(f"{name} must be 0 or more, got {getattr(self, name)}.")
        if not 0 <= self.min_bin_width < math.inf:
            raise SiteError(f"min_bin_width must be 0 or more, got {self.min_bin_width!r}.")
        for name in ("max_epsilon", "budget_epsilon"):
            if not 0 < getattr(self, name) < math.inf:
                raise SiteError(f"{name} must be a positive number, got {getattr(self, name)!r}.")
        for name in ("max_delta", "budget_delta"):
            if not 0 <= getattr(self, name) < 1:
                raise SiteError(
                    f"{name} must be 0 or more and below 1, got {getattr(self, name)!r}."
                )

    @property
    def allows_exact(self) -> bool:
        """Whether plans without noise are allowed."""
        return EXACT in self.models

    @property
    def default_limit(self) -> Cost:
        """The limit of datasets that have none of their own in the ledger."""
        return Cost(self.budget_epsilon, self.budget_delta)

    def after_exact(self, count: int) -> str:
        """How a dataset stands that had so many exact sums, in words."""
        most = f" of {self.exact_sums}" if self.allows_exact else ", no more allowed"
        return f"exact sums: {count}{most}{'' if self.mix_exact else '; noise refused'}"


class AgentRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How `fedgauge site run` answers what the rest of the site file allows."""

    # "policy": whatever is allowed; "ask": an operator joins each evaluation, the rest runs.
    answer: Literal["policy", "ask"] = "policy"
    daily: int = 10  # most evaluations of one coordinator that are joined within a day

    def __post_init__(self) -> None:
        if self.daily < 0:
            raise SiteError(f"daily must be 0 or more, got {self.daily}.")


class Party(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A peer, a coordinator or an approver that the site trusts, by its public key."""

    name: str
    key: str

    def __post_init__(self) -> None:
        check_name("name", self.name)
        if is_anybodys(key_from_text(self.key)):
            raise SiteError(
                f"the key of {self.name} is one that anybody can sign with. Ask for one that "
                "`fedgauge site init` made."
            )

    @property
    def public(self) -> bytes:
        """The key's bytes."""
        return key_from_text(self.key)


class Accepted(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which version of a consortium's file a site accepted, and whom it trusts because of it."""

    name: str
    version: int
    digest: str
    coordinator: str
    key: str  # of the coordinator, which signed that version
    sites: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.version < 1:
            raise SiteError(f"the version of a consortium must be 1 or more, got {self.version}.")


class SiteFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A site file as written."""

    format: int
    name: str
    dataset: str
    key: str
    ledger: str
    witness: str | None = None
    policy: Policy = msgspec.field(default_factory=Policy)
    agent: AgentRules = msgspec.field(default_factory=AgentRules)
    data: NamedRows | None = None
    coordinators: tuple[Party, ...] = ()
    peers: tuple[Party, ...] = ()
    approvers: tuple[Party, ...] = ()
    consortium: Accepted | None = None

    def __post_init__(self) -> None:
        check_name("name", self.name)
        check_name("dataset", self.dataset)
        for name in ("key", "ledger", "witness"):
            path = getattr(self, name)
            if path is not None and (not path or "\0" in path):
                raise SiteError(f"{name} must be the path of a file.")
        if self.data is not None:
            with located("[data]"):
                self._check_data(self.data)

    def _check_data(self, data: NamedRows) -> None:
        if bool(data.path) == bool(data.query) or "\0" in data.path:
            raise SiteError("name the path of a file, or a query: one of both.")
        if not data.label:
            raise SiteError("label must name the column of the label.")
        if data.negative is not None and data.positive is None:
            raise SiteError("negative is named without positive. Name both, or positive alone.")
        if data.positive_rate is not None and not 0 < data.positive_rate < 1:
            raise SiteError(f"positive_rate must be between 0 and 1, got {data.positive_rate!r}.")
        period = data.pattern.period
        if data.periods is not None and not period:
            raise SiteError(
                "periods are stated, and the path is the same in all of them. Leave periods out, "
                "or name files by period: scores/{year}-W{week}.csv."
            )
        if data.periods is not None:
            check_name("dataset, with a period,", self.dataset_on(date.max))

    def dataset_on(self, day: date) -> str:
        """What budgets are about on a day: a period alone where the file says that all differ."""
        if self.data is None or self.data.periods is None:
            return self.dataset
        _, period = self.data.pattern.on(day)
        return f"{self.dataset}-{period}"

    def path_of(self, dataset: str) -> str | None:
        """The path of the rows of a dataset that is a period of its data; None where it is none."""
        start = f"{self.dataset}-"
        if self.data is None or self.data.periods is None or not dataset.startswith(start):
            return None
        return self.data.pattern.path_of(dataset.removeprefix(start))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read and check a site file; SiteError says what is wrong where."""
        if has_long_keys(text):
            raise SiteError("a key in it has too many parts.")
        try:
            file = msgspec.toml.decode(text, type=cls)
        except msgspec.MsgspecError as error:
            raise SiteError(str(error)) from None
        except (RecursionError, ValueError):
            raise SiteError("it is nested too deeply, or a number in it is too long.") from None
        if file.format != FORMAT:
            raise SiteError(
                f"it has format {file.format}, and this fedgauge reads {FORMAT}. Use the latest "
                "version."
            )
        return file


def read_consortium(path: Path) -> Accepted | None:
    """The consortium that a site accepted, by its file."""
    return SiteFile.from_text(read_site_file(path)).consortium


def read_site_file(path: Path) -> str:
    """The text of a site file, unless others than its owner may change whom it trusts."""
    try:
        with open_regular(path) as file:
            opened = os.fstat(file.fileno())
            text = bounded(file, _MOST_BYTES).decode().replace("\r\n", "\n")
        require_own(path, SiteError, opened=opened)
        require_own_folder(path.parent)
    except FileNotFoundError:
        raise SiteError(
            f"there is no site file {path}. Name yours with --site, or make one with `fedgauge "
            "site init`."
        ) from None
    except IsADirectoryError:
        raise SiteError(f"{path} is a folder. Name the site file in it: {path}/site.toml") from None
    except OSError as error:
        raise SiteError(f"cannot read site file {path}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise SiteError(f"site file {path} is not text in UTF-8.") from None
    return text


def require_own_folder(folder: Path) -> None:
    """Refuse a site's folder that others may write to, and what is private in it if they read."""
    for told in folder_faults(folder):
        raise SiteError(told)


def folder_faults(folder: Path) -> Iterator[str]:
    """Each thing by which others could do so, with the command that mends it."""
    yield from faults(folder)
    for name in _PRIVATE_FOLDERS:
        yield from faults(folder / name, private=True)


def by_key(kind: str, parties: tuple[Party, ...]) -> dict[bytes, str]:
    """Names by public key; SiteError where a key or a name comes twice."""
    names: dict[bytes, str] = {}
    taken: set[str] = set()
    for party in parties:
        if party.public in names:
            raise SiteError(f"{kind} {names[party.public]!r} and {party.name!r} have the same key.")
        # Names that differ only by case are one file on some systems.
        if party.name.lower() in taken:
            raise SiteError(f"the name {party.name!r} comes twice among the {kind}.")
        names[party.public] = party.name
        taken.add(party.name.lower())
    return names


def check_name(what: str, name: str) -> None:
    """Refuse a name that could not be part of a file name everywhere."""
    if not _NAME.fullmatch(name):
        raise SiteError(
            f"{what} must be 1 to 64 letters (a to z), digits, dots, dashes or underscores and "
            f"begin with a letter or digit, got {name!r}."
        )


def judge_slices(policy: Policy, plan: EvaluationPlan) -> None:
    """Refuse labels, groups or counts outside of the site file, of either round; reads no data."""
    task = measured_by(plan.task)
    if task.of_labels:
        _judge_apart(plan, task)
    _judge_labels(policy, task)
    _judge_groups(policy, task)
    whole = plan.whole
    for sent, terms in zip(whole.rounds, whole.terms_by_round, strict=True):
        check_bins(math.prod(terms.tree), policy.max_bins)
        counts = sent.numbers(terms)
        if counts > policy.max_counts:
            raise PlanRefused(
                f"the plan asks for {counts:,} counts, this site allows {policy.max_counts:,} "
                "(max_counts). Tell fewer groups, classes or models apart, or use fewer bins."
            )


def judge_exact_slices(policy: Policy, plan: EvaluationPlan) -> None:
    """Refuse slices of an exact sum by which whoever chooses the plan could single out.

    Under noise none of this matters: the budget is for all that a row is counted in.
    """
    layout = measured_by(plan.task).layout
    if layout.by_row > policy.exact_scores:
        raise PlanRefused(
            f"the plan counts {layout.by_row:,} scores of each row without noise, and this site "
            f"allows {policy.exact_scores:,} (exact_scores): a score that is another one shifted "
            "slightly shows what lies between two edges. Allow more if you know how the scores "
            "were made, or plan with noise."
        )
    for name, values in layout.groups:
        for value in values:
            _judge_exact_group(policy, name, value)
    _judge_exact_tables(policy, plan)


def _judge_exact_group(policy: Policy, name: str, value: str) -> None:
    """Refuse a group of an exact sum that the site file does not list.

    Numbers are listed with their grouping: one that many share in one column is one patient's in
    another, and the plan names the column.
    """
    named = f"{name}={value}" in policy.exact_groups
    if named or (value in policy.exact_groups and not value.isdecimal()):
        return
    raise PlanRefused(
        f"the plan tells the group {quoted(value)} of {quoted(name)} apart without noise, which "
        f"is not among those allowed here: {', '.join(policy.exact_groups) or 'none'} "
        "(exact_groups). A group may be one patient: list those that are not, numbers with their "
        'grouping ("ward=7"), or plan with noise.'
    )


def _judge_exact_tables(policy: Policy, plan: EvaluationPlan) -> None:
    """Refuse tables of an exact sum: their cells are small, or cannot be merged."""
    if not all(table.hides_small for table in plan.tables) and policy.min_cell:
        raise PlanRefused(
            "the plan counts without noise what has small cells that cannot be merged (confusion, "
            f"ranks, top), and this site wants none below {policy.min_cell} (min_cell). Plan with "
            "noise, or leave it out."
        )
    if any(table.hides_small for table in plan.tables):
        if not policy.exact_pairs:
            raise PlanRefused(
                "the plan counts two scores of each row together without noise, and few rows have "
                "both within the same ranges. This site does not allow it (exact_pairs). Plan with "
                "noise, or leave out pairs."
            )
        if not plan.min_cell:
            raise PlanRefused(
                "the plan shows two scores of each row together without noise, and hides no small "
                "cells of them. Plan with a min_cell, or with noise."
            )


def _judge_labels(policy: Policy, task: Task) -> None:
    """Refuse unlisted labels: which labels rows have would show in whether a site falls silent."""
    # One that is not named is 1; so it is in each column of several labels a row.
    asked: tuple[Label, ...] = (1 if task.positive is None else task.positive,)
    told = "calls {} the positive label"
    if task.layout.classes:
        asked, told = task.layout.classes, "tells the class {} apart"
    allowed = {meaning(label) for label in policy.labels}
    for label in asked:
        if meaning(label) not in allowed:
            raise PlanRefused(
                f"the plan {told.format(quoted(label))}, which is not among those allowed here: "
                f"{', '.join(policy.labels) or 'none'} (labels)."
            )


def _judge_groups(policy: Policy, task: Task) -> None:
    layout, most = task.layout, policy.max_groups
    groups = sum(map(layout.cells, layout.groupings)) if layout.groups else 0
    if groups > most:
        allowed = f"{most:,}" if most else "none"
        raise PlanRefused(
            f"the plan tells {groups:,} groups apart, and this site allows {allowed} "
            "(max_groups; 'other' is one, too): the more groups, the fewer people are in each."
        )


def _judge_apart(plan: EvaluationPlan, task: Task) -> None:
    """Refuse labels apart from scores where the bins, which the scorer chose, show a label."""
    if not plan.privacy.adds_noise:
        raise PlanRefused(
            "the plan asks for an exact sum of labels by bins that the asker chose, which would "
            "show a label that is alone in its bin. Plan with noise: DistributedDP(epsilon, "
            "unit='label', neighbours='flip')."
        )
    if not task.assignment:
        raise PlanRefused(
            "the plan does not say which bins examples were given (assignment), so parties "
            "might count by different ones. It comes from `fedgauge vertical assign`."
        )
