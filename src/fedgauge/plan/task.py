"""Tasks: what a classifier tells apart. Also slices, channels, and names of classes and groups."""

import itertools
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Final, NamedTuple

import msgspec
import numpy as np

from fedgauge.data.examples import Label, meaning
from fedgauge.errors import InputError, PlanError
from fedgauge.histograms.axis import Axis
from fedgauge.histograms.channels import Block, Layout
from fedgauge.histograms.tables import (
    MOST_TABLES,
    AnyTable,
    JointScores,
    Predicted,
    Ranked,
    TopScore,
)
from fedgauge.histograms.two_round import TwoRound

MOST_NAMES: Final = 1000  # of classes, groups or models: more are ids
_LONGEST: Final = 200  # characters of a name
_MOST_TOLD: Final = 20  # names in a sentence
_MOST_QUOTED: Final = 100  # characters of a label
_NO_PAIRS: Final = 'pairs must be a list of two of the models each, such as [("new", "old")].'


def listed(names: Sequence[Any]) -> str:
    """Names in a sentence."""
    more = f" and {len(names) - _MOST_TOLD:,} more" if len(names) > _MOST_TOLD else ""
    return ", ".join(map(str, names[:_MOST_TOLD])) + more


def quoted(label: object) -> str:
    """A label in a sentence: a plan may hold any text, and megabytes of it."""
    if isinstance(label, bool):
        return str(label).lower()
    text = repr(label)
    if len(text) <= _MOST_QUOTED:
        return text
    return f"{text[:_MOST_QUOTED]}... and {len(text) - _MOST_QUOTED:,} characters more"


def check_positive(label: Any) -> Label | None:
    """The label of a class; None where none is named."""
    if isinstance(label, np.generic):
        label = label.item()
    if not isinstance(label, bool | int | float | str | None):
        raise PlanError(f"positive must be one label, got {type(label).__name__}.")
    if isinstance(label, float) and not math.isfinite(label):
        raise PlanError("positive must be a finite number, a truth value or text.")
    return label


def check_pairs(pairs: Any, models: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Pairs of the task's models, none of them twice."""
    if isinstance(pairs, str) or not isinstance(pairs, Sequence):
        raise PlanError(_NO_PAIRS)
    if len(pairs) > MOST_TABLES:  # each has a table
        raise PlanError(f"a plan has at most {MOST_TABLES} tables.")
    read = []
    for pair in pairs:
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise PlanError(_NO_PAIRS)
        first, second = pair
        if first == second or first not in models or second not in models:
            raise PlanError(_NO_PAIRS)
        read.append((first, second))
    if len({frozenset(pair) for pair in read}) < len(read):
        raise PlanError("a pair of models is named twice. Name each once.")
    return tuple(read)


def check_labels(labels: Any) -> tuple[Label, ...]:
    """Labels of classes, no two of which mean the same."""
    if isinstance(labels, str) or not isinstance(labels, Sequence | np.ndarray):
        raise PlanError('labels must be a list of classes, such as ["cat", "dog", "owl"].')
    read = tuple(check_positive(label) for label in labels[: MOST_NAMES + 1])
    if any(label is None for label in read) or not 2 <= len(read) <= MOST_NAMES:
        raise PlanError(f"a task of several classes has 2 to {MOST_NAMES:,} labels.")
    for label in read:
        if isinstance(label, str):  # it stands in what officers read, as it is
            check_name("labels", label)
    meanings = [meaning(label) for label in read]
    if any(each != each for each in meanings):
        raise PlanError("a class is called like a missing value (NaN). Call it otherwise.")
    if len({*meanings}) < len(read):
        raise PlanError("two of the labels mean the same class. Name each once.")
    require_apart("labels", [label for label in read if isinstance(label, str)])
    return read  # type: ignore[return-value]


def require_apart(what: str, names: Sequence[Any]) -> None:
    """Refuse names that look alike: one text in two forms of Unicode would be two groups."""
    if len({shown(str(name)) for name in names}) < len(names):
        raise PlanError(
            f"{what} has two names that look the same, as é in one character and in two. Name each "
            "once, in the form that the data have."
        )


def shown(name: str) -> str:
    """What a name looks like: the same for all forms of Unicode that it can have."""
    return unicodedata.normalize("NFKC", name)


def check_names(what: str, names: Any) -> tuple[str, ...]:
    """Several names, none of them twice."""
    if isinstance(names, np.ndarray):
        names = names.tolist()
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise PlanError(f"{what} must be a list of names.")
    if not 1 <= len(names) <= MOST_NAMES:
        raise PlanError(f"{what} must be 1 to {MOST_NAMES:,} names.")
    read = tuple(check_name(what, name) for name in names)
    if len(set(read)) < len(read):
        raise PlanError(f"{what} has a name twice. Name each once.")
    require_apart(what, read)
    return read


def check_name(what: str, name: Any) -> str:
    """A name that can be printed and told from others."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise PlanError(f'{what} needs names that are text, and printable: write "1" for 1.')
    if len(name) > _LONGEST or name != name.strip():
        raise PlanError(
            f"{what} needs names of at most {_LONGEST} characters, without blanks around them."
        )
    return name


OTHER: Final = "other"
REST: Final = "rest"  # all rows outside a group
TWO_CLASSES: Final = "how many positive and how many negative examples have a score"


class Slice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One part of the result with curves of its own; None means all.

    Examples
    --------
    >>> rows = fg.Examples([0, 1, 1, 0], [0.2, 0.7, 0.9, 0.3], group=list("FFMM"))
    >>> [str(each.slice) for each in fg.evaluate({"a": rows}, groups=["F", "M"]).slices]
    ['all', 'group F', 'group M', 'group other']
    """

    model: str | None = None
    group: str | None = None
    label: str | None = None

    def __str__(self) -> str:
        named = (f"{name} {getattr(self, name)}" for name in self.__struct_fields__)
        told = [
            each
            for each, name in zip(named, self.__struct_fields__, strict=True)
            if getattr(self, name) is not None
        ]
        return ", ".join(told) or "all"


class Channel(NamedTuple):
    """One row of a histogram: examples of one class in one group, by one of their scores."""

    slice: Slice
    name: str


class Group(NamedTuple):
    """One group of one way to group rows."""

    name: str
    grouping: tuple[str, ...]
    cell: int  # its number there
    listed: bool  # whether the plan names it: "other" is not


class Contrast(NamedTuple):
    """The channels that add up to the negatives, and to the positives, that a slice tells apart."""

    negatives: tuple[int, ...]
    positives: tuple[int, ...]


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", dict=True):
    """What every task can be asked."""

    @property
    def layout(self) -> Layout:
        """Which channels rows are counted in."""
        raise NotImplementedError

    @property
    def slices(self) -> tuple[Slice, ...]:
        """The parts of the result."""
        raise NotImplementedError

    of_labels: ClassVar[bool] = False  # apart from scores, which another party has

    @property
    def whole(self) -> Slice:
        """What a result of all slices is about: all, or the only model or label there is."""
        models, labels = self.models, self.labels_told
        return Slice(
            model=models[0] if len(models) == 1 else None,
            label=labels[0] if len(labels) == 1 else None,
        )

    # What a task without slices answers; `Sliced` and the tasks below it know better.
    @property
    def positive(self) -> Label | None:
        """The label of the positive class; None where labels are bool or 0/1, or several."""
        return None

    @property
    def two(self) -> TwoRound | None:
        """How bins are found, in the first of two rounds; None in any other."""
        return None

    @property
    def assignment(self) -> str:
        """The digest of the bins that examples were given; empty where there is none."""
        return ""

    @property
    def self_scored(self) -> bool:
        """Whether parties with labels scored their own examples."""
        return False

    @property
    def crossed(self) -> bool:
        """Whether groups are all combinations of several groupings."""
        return False

    @property
    def pairs(self) -> Sequence[tuple[str, str]]:
        """Pairs of models whose scores are also counted together."""
        return ()

    @property
    def positive_in_words(self) -> str:
        """Which rows count as positive, for whoever must approve of it."""
        if self.positive is None:
            return (
                "The plan names no label: rows labelled 1 or true count as positive, all others as "
                "negative."
            )
        return f"Rows labelled {quoted(self.positive)} count as positive, all others as negative."

    @property
    def groups(self) -> Mapping[str, Sequence[str]]:
        """The groupings that rows are told apart by, and the values of each."""
        return {}

    @property
    def models(self) -> Sequence[str]:
        """The models that score the same rows; none where there is one score."""
        return ()

    @property
    def groups_told(self) -> Mapping[str, Group]:
        """The groups that have curves of their own, by what they are called."""
        return {}

    @property
    def labels_told(self) -> tuple[str | None, ...]:
        """Names of the classes, or labels, that have curves of their own; None for the only one."""
        return (None,)

    @property
    def label_noun(self) -> str:
        """What `labels_told` are called: of several labels a row none is a class."""
        return "class"

    @property
    def also(self) -> Sequence[str]:
        """What else is counted of the scores of a row together."""
        return ()

    def contrast(self, slice_: Slice) -> Contrast:
        """The rows of counts that curves of a slice are made of."""
        raise NotImplementedError

    def pair(self, slice_: Slice, other: Slice) -> Contrast:
        """One class against one other, by the score of the first."""
        del slice_, other
        raise InputError('labels are not told from each other: against="rest".')

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The counts that are sent, in order."""
        raise NotImplementedError

    @property
    def counted(self) -> str:
        """What is counted in each range of scores, in words."""
        return TWO_CLASSES

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """What else a plan tells apart: titles and names."""
        return ()

    @property
    def rows(self) -> int:
        """How many rows of counts a client has, sent or not, and a result."""
        return self.layout.channels

    @property
    def sent(self) -> slice:
        """Which rows of a client's histogram are sent."""
        return slice(0, self.rows)

    @property
    def rows_sent(self) -> int:
        """How many these are."""
        return len(range(self.rows)[self.sent])

    @property
    def per_row(self) -> int:
        """How many counts, at each level, one row adds to."""
        return self.layout.per_row

    def tables(self, axis: Axis, *, noisy: bool) -> tuple[AnyTable, ...]:
        """What its plans count besides the histogram, by axis and whether there is noise."""
        del axis, noisy
        return ()


class Sliced(Task, frozen=True, omit_defaults=True, kw_only=True):
    """A task with groups of rows and scores of several models; unnamed groups count as "other"."""

    groups: Mapping[str, Sequence[str]] = {}
    models: Sequence[str] = ()
    crossed: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.groups, Mapping):
            raise PlanError(
                'groups must map groupings to their values, such as {"sex": ["women", "men"]}.'
            )
        if len(self.groups) > MOST_NAMES:
            raise PlanError(f"a task has at most {MOST_NAMES:,} groupings.")
        groups = {
            check_name("a grouping", name): check_names(f"groups of {name!r}", values)
            for name, values in self.groups.items()
        }
        require_apart("groups", [*groups])
        told = {shown(value) for values in groups.values() for value in values}
        if OTHER in told:
            raise PlanError(f"{OTHER!r} is what rows of no listed group are in. Leave it out.")
        if REST in told:
            raise PlanError(f"{REST!r} is what all rows outside a group are called. Rename it.")
        if self.crossed and len(groups) < 2:
            raise PlanError("only two or more groupings can be crossed. Leave crossed out.")
        msgspec.structs.force_setattr(self, "groups", groups)
        none = isinstance(self.models, Sequence) and not self.models
        models = () if none else check_names("models", self.models)
        msgspec.structs.force_setattr(self, "models", models)
        cells = math.prod(len(values) + 1 for values in groups.values()) if self.crossed else 1
        if max(cells, len(models)) > MOST_NAMES:
            raise PlanError(f"a task has at most {MOST_NAMES:,} groups or models.")
        ways = (tuple(groups),) if self.crossed else tuple((name,) for name in groups)
        called = [shown(each) for way in ways for each, _ in _called(groups, way)]
        if len({*called}) < len(called):  # one of them would stand for both
            raise PlanError(
                "two groups are called the same, grouping and value together. Rename a grouping."
            )

    def __hash__(self) -> int:
        return hash(msgspec.json.encode(self))  # groups are in a mapping, which has no hash

    @cached_property
    def slices(self) -> tuple[Slice, ...]:
        """The parts of the result: of all rows first, then of each group."""
        pairs = list(itertools.product(self.models or (None,), self.labels_told))
        return tuple(
            Slice(model, group, label)
            for group in (None, *self.groups_told)
            for model, label in pairs
        )

    @cached_property
    def groups_told(self) -> dict[str, Group]:
        """The groups that have curves of their own, by what they are called."""
        return {
            called: Group(called, grouping, cell, OTHER not in values)
            for grouping in (self.layout.groupings if self.groups else ())
            for cell, (called, values) in enumerate(_called(self.groups, grouping))
        }

    def _blocks(self, slice_: Slice) -> tuple[Block, ...]:
        """The blocks that a slice's counts are in, of one way of grouping."""
        if slice_ not in self.slices:
            raise InputError(f"there is no slice of {slice_} in the plan.")
        grouping = self.layout.groupings[0]
        if slice_.group is not None:
            grouping = self.groups_told[slice_.group].grouping
        return tuple(
            block
            for block in self.layout.blocks
            if block.model == slice_.model and block.grouping == grouping
        )

    def contrast(self, slice_: Slice) -> Contrast:
        """The rows of counts that curves of a slice are made of, by its own score."""
        return self._against(slice_, (0,), 1)

    def _against(self, slice_: Slice, negatives: Sequence[int], positive: int) -> Contrast:
        """Some classes against one, by the score of a slice: in one group, or in all."""
        block = self._blocks(slice_)[self.labels_told.index(slice_.label)]
        cells: Sequence[int] = range(self.layout.cells(block.grouping))
        if slice_.group is not None:
            cells = (self.groups_told[slice_.group].cell,)
        channel = self.layout.channel
        return Contrast(
            tuple(channel(block, cell, each) for cell in cells for each in negatives),
            tuple(channel(block, cell, positive) for cell in cells),
        )

    @cached_property
    def channels(self) -> tuple[Channel, ...]:
        """The counts that are sent, in order."""
        layout = self.layout
        if layout.is_plain:
            return tuple(Channel(Slice(), name) for name in Contrast._fields)
        names = {(each.grouping, each.cell): each.name for each in self.groups_told.values()}
        labels = self.labels_told
        return tuple(
            Channel(
                Slice(block.model, names.get((block.grouping, cell)), labels[block.column]),
                self._class_name(number),
            )
            for block in layout.blocks
            for cell in range(layout.cells(block.grouping))
            for number in range(layout.by_block)
        )

    @property
    def counted(self) -> str:
        """What is counted in each range of scores, in words."""
        score = f"a score of each model ({listed(self.models)})" if self.models else "a score"
        return f"{self._examples}{self._by_group} have {score}"

    @property
    def _examples(self) -> str:
        return "how many positive and how many negative examples"

    @property
    def _by_group(self) -> str:
        if not self.groups:
            return ""
        every = [f"{name} ({listed([*self.groups[name], OTHER])})" for name in self.groups]
        if self.crossed:
            return f" of each combination of {' and '.join(every)}"
        return f" of each group by {', and of each by '.join(every)}{',' * (len(every) > 1)}"

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """What else a plan tells apart: titles and names, and what a row then counts for."""
        rows = []
        if self.groups:
            every = [f"{name}: {listed([*self.groups[name], OTHER])}" for name in self.groups]
            how = ""
            if len(every) > 1:
                how = "; crossed: a row counts once" if self.crossed else "; a row counts in each"
            rows.append(("groups", "; ".join(every) + how))
        return (*rows, ("models", listed(self.models))) if self.models else tuple(rows)

    def _class_name(self, number: int) -> str:
        return Contrast._fields[number]

    def _layout(self, **own: Any) -> Layout:
        """The channels of its groups and models, and of what a task has of its own."""
        groups = tuple((name, tuple(values)) for name, values in self.groups.items())
        return Layout(models=tuple(self.models), groups=groups, crossed=self.crossed, **own)


def _called(
    groups: Mapping[str, Sequence[str]], grouping: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What the groups of one way of grouping are called, and the values of each, in order."""
    for values in itertools.product(*((*groups[name], OTHER) for name in grouping)):
        pairs = zip(grouping, values, strict=True)
        several = ", ".join(f"{name} {value}" for name, value in pairs)
        yield (values[0] if len(groups) == 1 else several), values


_DIGEST: Final = re.compile("[0-9a-f]{64}")
CLASS_TABLES: Final[Mapping[str, type[Predicted | Ranked | TopScore]]] = {
    "confusion": Predicted,
    "ranks": Ranked,
    "top": TopScore,
}


class BinaryTask(Sliced, frozen=True, tag="binary"):
    """Tell positives from negatives by one score.

    Parameters
    ----------
    positive
        The label of the positive class; None where labels are bool or 0/1.
    groups
        The values of each grouping, by its name.
    models
        Names of the models that score each row.
    crossed
        Whether groups are all combinations of several groupings. Else a row counts once for each
        grouping, and they share the privacy budget.
    pairs
        Pairs of models to compare: their scores are also counted together, in each group. Under
        noise, with two models, nothing else is sent.

    Examples
    --------
    >>> task = BinaryTask(groups={"sex": ["women", "men"]}, models=("new", "old"))
    >>> [str(each) for each in task.slices][:3], task.per_row
    (['model new', 'model old', 'model new, group women'], 2)
    """

    # Values from factories are always written: plans without slices are the bytes that they were.
    positive: Label | None = msgspec.field(default_factory=lambda: None)
    pairs: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        msgspec.structs.force_setattr(self, "positive", check_positive(self.positive))
        msgspec.structs.force_setattr(self, "pairs", check_pairs(self.pairs, self.models))

    def tables(self, axis: Axis, *, noisy: bool) -> tuple[AnyTable, ...]:
        """The scores of each pair together."""
        each = itertools.product(self.pairs, self.layout.groupings)
        return tuple(JointScores.on(axis, pair, way, noisy=noisy) for pair, way in each)

    @cached_property
    def layout(self) -> Layout:
        """Which channels rows are counted in."""
        return self._layout(positive=self.positive)


class MulticlassTask(Sliced, frozen=True, tag="multiclass"):
    """Tell several classes apart, each by a score of its own.

    Parameters
    ----------
    labels
        The labels of the classes, in the order of the columns of scores.
    also
        Further counts for each row: ``"confusion"`` (the class with the highest score), ``"ranks"``
        (how many scores are above the true class's, for top-k accuracy) and ``"top"`` (the highest
        score, for its calibration). Each costs as much budget as one more class.
    groups, models, crossed
        As for :class:`BinaryTask`.

    Examples
    --------
    >>> task = MulticlassTask(labels=["cat", "dog", "owl"])
    >>> [str(each) for each in task.slices], task.per_row
    (['label cat', 'label dog', 'label owl'], 3)
    """

    labels: Sequence[Label]
    also: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        msgspec.structs.force_setattr(self, "labels", check_labels(self.labels))
        also = (self.also,) if isinstance(self.also, str) else tuple(self.also)
        if not {*also} <= {*CLASS_TABLES} or len({*also}) < len(also):
            raise PlanError(f"also must name each once, of: {', '.join(CLASS_TABLES)}.")
        msgspec.structs.force_setattr(self, "also", also)

    def tables(self, axis: Axis, *, noisy: bool) -> tuple[AnyTable, ...]:
        """What is counted of all scores of a row together, of each model."""
        del axis, noisy
        return tuple(
            CLASS_TABLES[name](model=model, grouping=grouping)
            for model in self.models or (None,)
            for name in self.also
            for grouping in self.layout.groupings
        )

    @property
    def labels_told(self) -> tuple[str | None, ...]:
        """Names of the classes."""
        return tuple(map(str, self.labels))

    @cached_property
    def layout(self) -> Layout:
        """Which channels rows are counted in."""
        return self._layout(classes=tuple(self.labels), names=tuple(map(str, self.labels)))

    def contrast(self, slice_: Slice) -> Contrast:
        """One class against all others, by its own score."""
        column = self.labels_told.index(slice_.label)
        others = [each for each in range(len(self.labels)) if each != column]
        return self._against(slice_, others, column)

    def pair(self, slice_: Slice, other: Slice) -> Contrast:
        """One class against one other, by the score of the first."""
        column, against = (self.labels_told.index(each.label) for each in (slice_, other))
        return self._against(slice_, (against,), column)

    def _class_name(self, number: int) -> str:
        return str(self.labels[number])

    @property
    def counted(self) -> str:
        """What is counted in each range of scores, in words."""
        return f"{super().counted} for each class"

    @property
    def positive_in_words(self) -> str:
        """Which rows count as positive: each class in turn."""
        return f"Each class in turn, all others as negative: {', '.join(map(str, self.labels))}."

    @property
    def _examples(self) -> str:
        return f"how many examples of each class ({listed(self.labels_told)})"

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """What else a plan tells apart: titles and names."""
        return (("classes", listed(self.labels_told)), *super().told)


class MultilabelTask(Sliced, frozen=True, tag="multilabel"):
    """Several independent labels of two classes each, with a score for each.

    Parameters
    ----------
    labels
        Their names, in the order of the columns of labels and of scores.
    groups, models, crossed
        As for :class:`BinaryTask`.

    Examples
    --------
    >>> MultilabelTask(labels=["fever", "cough"]).per_row
    2
    """

    labels: Sequence[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        msgspec.structs.force_setattr(self, "labels", check_names("labels", self.labels))
        if len(self.labels) < 2:
            raise PlanError("one label is a BinaryTask.")

    @property
    def labels_told(self) -> tuple[str | None, ...]:
        """Names of the labels."""
        return tuple(self.labels)

    @property
    def label_noun(self) -> str:
        """What labels are called: a row may have several."""
        return "label"

    @cached_property
    def layout(self) -> Layout:
        """Which channels rows are counted in."""
        return self._layout(labels=len(self.labels), names=tuple(self.labels))

    @property
    def positive_in_words(self) -> str:
        """Which rows count as positive, by each label."""
        names = ", ".join(self.labels)
        return f"Rows with 1 or true in the column of a label, all others as negative: {names}."

    @property
    def _examples(self) -> str:
        labels = listed(self.labels_told)
        return f"for each label ({labels}) how many positive and how many negative examples"

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """What else a plan tells apart: titles and names."""
        return (("labels", listed(self.labels_told)), *super().told)


class LabelTask(Task, frozen=True, tag="labels", omit_defaults=True):
    """Tell positives from negatives where one party has the scores and others have the labels.

    A label party sends only its positives by bin: the party with the scores knows the totals.
    `assignment` is the digest of the bins of the examples, empty in simulations. `self_scored`:
    label parties scored their own examples.
    """

    positive: Label | None = None
    assignment: str = ""
    self_scored: bool = False

    of_labels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "positive", check_positive(self.positive))
        if self.assignment and not _DIGEST.fullmatch(self.assignment):
            raise PlanError("assignment must be the digest of bins: 64 hexadecimal digits.")

    @property
    def layout(self) -> Layout:
        """Which channels rows are counted in."""
        return Layout(self.positive)

    @property
    def slices(self) -> tuple[Slice, ...]:
        """One: all rows."""
        return (Slice(),)

    def contrast(self, slice_: Slice) -> Contrast:
        """Both classes."""
        del slice_  # there is one
        return Contrast((0,), (1,))

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The counts that are sent."""
        return (Channel(Slice(), "positives"),)

    @property
    def sent(self) -> slice:
        """Which rows of a client's histogram these are."""
        return slice(1, 2)


ScoredTask = BinaryTask | MulticlassTask | MultilabelTask  # labels and scores in one place


class SearchTask(Task, frozen=True, tag="search"):
    """Count rows by score alone to find the bins of task `of`; all scores of a row share them."""

    of: ScoredTask
    two: TwoRound

    @property
    def positive(self) -> Label | None:
        """The label of the positive class, which is read and told apart in the second round."""
        return self.of.positive

    @cached_property
    def layout(self) -> Layout:
        """Which channels rows are counted in: one for each of their scores."""
        return replace(self.of.layout, groups=(), crossed=False, together=True)

    @property
    def slices(self) -> tuple[Slice, ...]:
        """None: no class is told apart, so there are no curves."""
        return ()

    def contrast(self, slice_: Slice) -> Contrast:
        """Refused: no class is told apart."""
        raise PlanError(f"the first of two rounds tells no classes apart, of {slice_}.")

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The counts that are sent, in order."""
        return tuple(Channel(Slice(block.model), "examples") for block in self.layout.blocks)

    @property
    def counted(self) -> str:
        """What is counted in each range of scores, in words."""
        return "how many examples, of both classes together, have a score"

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """What else a plan tells apart: titles and names."""
        return self.of.told


MeasuredTask = ScoredTask | LabelTask  # of which there is a result
AnyTask = MeasuredTask | SearchTask


def measured_by(task: AnyTask) -> MeasuredTask:
    """What a result is of in the end: what a search is for, any other task itself."""
    return task.of if isinstance(task, SearchTask) else task
