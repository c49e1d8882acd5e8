"""What is told apart, and so which channels are counted: slices times classes."""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final, NamedTuple

import msgspec
import numpy as np

from fedgauge.binning.axis import Axis
from fedgauge.binning.channels import Block, Layout
from fedgauge.binning.class_tables import Predicted, Ranked, TopScore
from fedgauge.binning.tables import AnyTable, JointScores, LossDifferences
from fedgauge.data.labels import Label, meaning
from fedgauge.errors import InputError, PlanError

_DIGEST: Final = re.compile("[0-9a-f]{64}")
_MOST_NAMES: Final = 1000  # of classes, groups or models: more are ids
_LONGEST: Final = 200  # characters of a name
_MOST_TOLD: Final = 20  # names in a sentence
OTHER: Final = "other"
TWO_CLASSES: Final = "how many positive and how many negative examples have a score"
CLASS_TABLES: Final[Mapping[str, type[Predicted | Ranked | TopScore]]] = {
    "confusion": Predicted,
    "ranks": Ranked,
    "top": TopScore,
}
_NO_PAIRS: Final = 'pairs must be a list of two of the models each, such as [("new", "old")].'


class Slice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One part of the result with curves of its own; None means all."""

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
    """Rows that have something in common: the values of one way of grouping them.

    `cell` is its number there. It is `listed` if the plan names all its values: rows of any other
    value are in the same way of grouping, but not in a group that means something.
    """

    name: str
    grouping: tuple[str, ...]
    cell: int
    listed: bool


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

    def contrast(self, slice_: Slice) -> Contrast:
        """The rows of counts that curves of a slice are made of."""
        raise NotImplementedError

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
    def per_row(self) -> int:
        """How many counts, at each level, one row adds to."""
        return self.layout.per_row

    def tables(self, axis: Axis, *, noisy: bool) -> tuple[AnyTable, ...]:
        """What its plans count besides the histogram, by axis and whether there is noise."""
        del axis, noisy
        return ()


class Sliced(Task, frozen=True, omit_defaults=True, kw_only=True):
    """A task whose rows may be of groups, and have scores of several models.

    Names are the plan's: a row of a group that is not named counts in a group of its own.
    """

    groups: Mapping[str, Sequence[str]] = {}
    models: Sequence[str] = ()
    crossed: bool = False

    def __post_init__(self) -> None:
        groups = {
            _name("a grouping", name): _names(f"groups of {name!r}", values)
            for name, values in dict(self.groups).items()
        }
        if any(OTHER in values for values in groups.values()):
            raise PlanError(f"{OTHER!r} is what rows of no listed group are in. Leave it out.")
        if self.crossed and len(groups) < 2:
            raise PlanError("only two or more groupings can be crossed. Leave crossed out.")
        msgspec.structs.force_setattr(self, "groups", groups)
        models = _names("models", self.models) if self.models else ()
        msgspec.structs.force_setattr(self, "models", models)
        cells = math.prod(len(values) + 1 for values in groups.values()) if self.crossed else 1
        if max(cells, len(models)) > _MOST_NAMES:
            raise PlanError(f"a task has at most {_MOST_NAMES:,} groups or models.")

    def __hash__(self) -> int:
        return hash(msgspec.json.encode(self))  # groups are in a mapping, which has no hash

    @property
    def labels_told(self) -> tuple[str | None, ...]:
        """Names of the classes, or labels, that have curves of their own; None for the only one."""
        return (None,)

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
        layout, found = self.layout, {}
        for grouping in layout.groupings if layout.groups else ():
            values = [(*dict(layout.groups)[name], OTHER) for name in grouping]
            for cell, each in enumerate(itertools.product(*values)):
                if len(layout.groups) == 1:
                    called = each[0]
                else:
                    pairs = zip(grouping, each, strict=True)
                    called = ", ".join(f"{name} {value}" for name, value in pairs)
                found[called] = Group(called, grouping, cell, OTHER not in each)
        return found

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

    def _cells(self, slice_: Slice, block: Block) -> tuple[int, ...]:
        """The groups of a block that a slice is made of: one, or all."""
        if slice_.group is None:
            return tuple(range(self.layout.cells(block.grouping)))
        return (self.groups_told[slice_.group].cell,)

    @cached_property
    def channels(self) -> tuple[Channel, ...]:
        """The counts that are sent, in order."""
        layout = self.layout
        if layout.is_plain:
            return tuple(Channel(Slice(), name) for name in Contrast._fields)
        names = {(each.grouping, each.cell): each.name for each in self.groups_told.values()}
        return tuple(
            Channel(
                Slice(block.model, names.get((block.grouping, cell)), self._label_of(block)),
                self._class_name(number),
            )
            for block in layout.blocks
            for cell in range(layout.cells(block.grouping))
            for number in range(layout.by_block)
        )

    @property
    def counted(self) -> str:
        """What is counted in each range of scores, in words."""
        score = f"a score of each model ({_listed(self.models)})" if self.models else "a score"
        return f"{self._examples}{self._by_group} have {score}"

    @property
    def _examples(self) -> str:
        return "how many positive and how many negative examples"

    @property
    def _by_group(self) -> str:
        if not self.groups:
            return ""
        every = [f"{name} ({_listed([*self.groups[name], OTHER])})" for name in self.groups]
        if self.crossed:
            return f" of each combination of {' and '.join(every)}"
        return f" of each group by {', and of each by '.join(every)}{',' * (len(every) > 1)}"

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """What else a plan tells apart: titles and names, and what a row then counts for."""
        rows = []
        if self.groups:
            every = [f"{name}: {_listed([*self.groups[name], OTHER])}" for name in self.groups]
            how = ""
            if len(every) > 1:
                how = "; crossed: a row counts once" if self.crossed else "; a row counts in each"
            rows.append(("groups", "; ".join(every) + how))
        return (*rows, ("models", _listed(self.models))) if self.models else tuple(rows)

    def _label_of(self, block: Block) -> str | None:
        return self.labels_told[block.column]

    def _class_name(self, number: int) -> str:
        return Contrast._fields[number]

    def _grouping(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        return tuple((name, tuple(values)) for name, values in self.groups.items())


class BinaryTask(Sliced, frozen=True, tag="binary"):
    """Tell positives from negatives by one score.

    Parameters
    ----------
    positive
        The label of the positive class; None where labels are bool or 0/1.
    groups
        Groups that rows are of: the values of each grouping, by its name.
    models
        Names of models that each give rows a score.
    crossed
        Of several groupings: whether groups are all combinations, of which a row is in one. Else
        a row is counted once for each grouping, which shares the privacy budget among them.
    pairs
        Pairs of models to be compared: their scores are also counted together. Under noise, where
        there are two models and no groups, that is all that is sent.
    paired_brier
        Whether the difference of the Brier scores of each pair is counted row by row, which under
        noise takes a part of the budget.

    Examples
    --------
    >>> [channel.name for channel in BinaryTask().channels]
    ['negatives', 'positives']
    >>> task = BinaryTask(groups={"sex": ["women", "men"]}, models=("new", "old"))
    >>> [str(each) for each in task.slices][:3]
    ['model new', 'model old', 'model new, group women']
    >>> task.per_row
    2
    """

    # Values from factories are always written: plans without slices are the bytes that they were.
    positive: Label | None = msgspec.field(default_factory=lambda: None)
    pairs: tuple[tuple[str, str], ...] = ()
    paired_brier: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        msgspec.structs.force_setattr(self, "positive", _positive(self.positive))
        msgspec.structs.force_setattr(self, "pairs", _pairs(self.pairs, self.models))
        if self.paired_brier and not self.pairs:
            raise PlanError("paired_brier is for pairs of models. Name them (pairs=).")

    def tables(self, axis: Axis, *, noisy: bool) -> tuple[AnyTable, ...]:
        """The scores of each pair together, and the differences of their losses if wanted."""
        joint = [JointScores.on(axis, pair, noisy=noisy) for pair in self.pairs]
        losses = [LossDifferences(models=pair) for pair in self.pairs if self.paired_brier]
        return (*joint, *losses)

    @cached_property
    def layout(self) -> Layout:
        """Which channels rows are counted in."""
        return Layout(
            self.positive,
            models=tuple(self.models),
            groups=self._grouping(),
            crossed=self.crossed,
        )

    def contrast(self, slice_: Slice) -> Contrast:
        """The rows of counts that curves of a slice are made of."""
        (block,) = self._blocks(slice_)
        channel, cells = self.layout.channel, self._cells(slice_, block)
        return Contrast(*(tuple(channel(block, cell, c) for cell in cells) for c in (0, 1)))


class MulticlassTask(Sliced, frozen=True, tag="multiclass"):
    """Tell several classes apart, each by a score of its own.

    Parameters
    ----------
    labels
        The labels of the classes, in the order of the columns of scores.
    also
        What else is counted, of the scores of a row together: ``"confusion"`` (which class has the
        highest), ``"ranks"`` (how many are higher than that of the true class, for top-k
        accuracy) and ``"top"`` (how high the highest is, for its calibration). Each shares the
        privacy budget as one more class would.
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

    positive: ClassVar[None] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        msgspec.structs.force_setattr(self, "labels", _labels(self.labels))
        also = (self.also,) if isinstance(self.also, str) else tuple(self.also)
        if not {*also} <= {*CLASS_TABLES} or len({*also}) < len(also):
            raise PlanError(f"also must name each once, of: {', '.join(CLASS_TABLES)}.")
        msgspec.structs.force_setattr(self, "also", also)

    def tables(self, axis: Axis, *, noisy: bool) -> tuple[AnyTable, ...]:
        """What is counted of all scores of a row together, of each model."""
        del axis, noisy
        return tuple(
            CLASS_TABLES[name](model=model)
            for model in self.models or (None,)
            for name in self.also
        )

    @property
    def labels_told(self) -> tuple[str | None, ...]:
        """Names of the classes."""
        return tuple(map(str, self.labels))

    @cached_property
    def layout(self) -> Layout:
        """Which channels rows are counted in."""
        return Layout(
            classes=tuple(self.labels),
            models=tuple(self.models),
            groups=self._grouping(),
            crossed=self.crossed,
        )

    def contrast(self, slice_: Slice) -> Contrast:
        """One class against all others, by its own score."""
        column = self.labels_told.index(slice_.label)
        block = self._blocks(slice_)[column]
        channel, cells = self.layout.channel, self._cells(slice_, block)
        others = [each for each in range(len(self.labels)) if each != column]
        return Contrast(
            tuple(channel(block, cell, other) for cell in cells for other in others),
            tuple(channel(block, cell, column) for cell in cells),
        )

    def pair(self, slice_: Slice, other: Slice) -> Contrast:
        """One class against one other, by the score of the first."""
        column, against = (self.labels_told.index(each.label) for each in (slice_, other))
        block = self._blocks(slice_)[column]
        channel, cells = self.layout.channel, self._cells(slice_, block)
        return Contrast(
            tuple(channel(block, cell, against) for cell in cells),
            tuple(channel(block, cell, column) for cell in cells),
        )

    def _class_name(self, number: int) -> str:
        return str(self.labels[number])

    @property
    def counted(self) -> str:
        """What is counted in each range of scores, in words."""
        return f"{super().counted} for each class"

    @property
    def _examples(self) -> str:
        return f"how many examples of each class ({_listed(self.labels_told)})"

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """What else a plan tells apart: titles and names."""
        return (("classes", _listed(self.labels_told)), *super().told)


class MultilabelTask(Sliced, frozen=True, tag="multilabel"):
    """Several labels of two classes each, independent of each other, each with a score.

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

    positive: ClassVar[None] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        msgspec.structs.force_setattr(self, "labels", _names("labels", self.labels))
        if len(self.labels) < 2:
            raise PlanError("one label is a BinaryTask.")

    @property
    def labels_told(self) -> tuple[str | None, ...]:
        """Names of the labels."""
        return tuple(self.labels)

    @cached_property
    def layout(self) -> Layout:
        """Which channels rows are counted in."""
        return Layout(
            labels=len(self.labels),
            models=tuple(self.models),
            groups=self._grouping(),
            crossed=self.crossed,
        )

    def contrast(self, slice_: Slice) -> Contrast:
        """One label, by its own score."""
        block = self._blocks(slice_)[self.labels_told.index(slice_.label)]
        channel, cells = self.layout.channel, self._cells(slice_, block)
        return Contrast(*(tuple(channel(block, cell, c) for cell in cells) for c in (0, 1)))

    @property
    def _examples(self) -> str:
        labels = _listed(self.labels_told)
        return f"for each label ({labels}) how many positive and how many negative examples"

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """What else a plan tells apart: titles and names."""
        return (("labels", _listed(self.labels_told)), *super().told)


class LabelTask(Task, frozen=True, tag="labels", omit_defaults=True):
    """Tell positives from negatives where one party scores the examples and others have labels.

    A label party counts its positives by bin, and that alone is sent. Whoever scored the examples
    knows how many of them each party has in each bin: the rest are negatives.

    `assignment` is the digest of the bins that the examples were given, empty where nobody is
    held to one (simulation). `self_scored` says that label parties scored their own examples, and
    another one only gave them bins.

    Examples
    --------
    >>> [channel.name for channel in LabelTask().channels]
    ['positives']
    """

    positive: Label | None = None
    assignment: str = ""
    self_scored: bool = False

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "positive", _positive(self.positive))
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


AnyTask = BinaryTask | MulticlassTask | MultilabelTask | LabelTask


def _listed(names: Sequence[Any]) -> str:
    """Names in a sentence."""
    more = f" and {len(names) - _MOST_TOLD:,} more" if len(names) > _MOST_TOLD else ""
    return ", ".join(map(str, names[:_MOST_TOLD])) + more


def _positive(label: Any) -> Label | None:
    if isinstance(label, np.generic):
        label = label.item()
    if not isinstance(label, bool | int | float | str | None):
        raise PlanError(f"positive must be one label, got {type(label).__name__}.")
    if isinstance(label, float) and not math.isfinite(label):
        raise PlanError("positive must be a finite number, a truth value or text.")
    return label


def _pairs(pairs: Any, models: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Pairs of the task's models, none of them twice."""
    if isinstance(pairs, str) or not isinstance(pairs, Sequence):
        raise PlanError(_NO_PAIRS)
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


def _labels(labels: Any) -> tuple[Label, ...]:
    """Labels of classes, no two of which mean the same."""
    if isinstance(labels, str) or not isinstance(labels, Sequence | np.ndarray):
        raise PlanError('labels must be a list of classes, such as ["cat", "dog", "owl"].')
    read = tuple(_positive(label) for label in labels)
    if any(label is None for label in read) or not 2 <= len(read) <= _MOST_NAMES:
        raise PlanError(f"a task of several classes has 2 to {_MOST_NAMES:,} labels.")
    if len({meaning(label) for label in read}) < len(read):
        raise PlanError("two of the labels mean the same class. Name each once.")
    return read  # type: ignore[return-value]


def _names(what: str, names: Any) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise PlanError(f"{what} must be a list of names.")
    read = tuple(_name(what, name) for name in names)
    if not read or len(read) > _MOST_NAMES:
        raise PlanError(f"{what} must be 1 to {_MOST_NAMES:,} names.")
    if len(set(read)) < len(read):
        raise PlanError(f"{what} has a name twice. Name each once.")
    return read


def _name(what: str, name: Any) -> str:
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise PlanError(f"{what} needs names that are text.")
    if len(name) > _LONGEST or name != name.strip():
        raise PlanError(
            f"{what} needs names of at most {_LONGEST} characters, without blanks around them."
        )
    return name
