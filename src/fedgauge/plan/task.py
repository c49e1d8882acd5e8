"""What a classifier tells apart, and so which channels are counted: slices times classes."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, Final

import msgspec

from fedgauge.binning.axis import Axis
from fedgauge.binning.channels import Layout
from fedgauge.binning.class_tables import Predicted, Ranked, TopScore
from fedgauge.binning.search import TwoRound
from fedgauge.binning.tables import AnyTable, JointScores, LossDifferences
from fedgauge.data.labels import Label
from fedgauge.errors import PlanError
from fedgauge.plan.names import check_labels, check_names, check_pairs, check_positive, listed
from fedgauge.plan.slices import Channel, Contrast, Slice, Sliced, Task

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
        Groups that rows are of: the values of each grouping, by its name.
    models
        Names of models that each give rows a score.
    crossed
        Of several groupings: whether groups are all combinations, of which a row is in one. Else
        a row is counted once for each grouping, which shares the privacy budget among them.
    pairs
        Pairs of models to be compared: their scores are also counted together, in each group. Under
        noise, where there are two models, that is all that is sent.
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
        msgspec.structs.force_setattr(self, "positive", check_positive(self.positive))
        msgspec.structs.force_setattr(self, "pairs", check_pairs(self.pairs, self.models))
        if self.paired_brier and not self.pairs:
            raise PlanError("paired_brier is for pairs of models. Name them (pairs=).")

    def tables(self, axis: Axis, *, noisy: bool) -> tuple[AnyTable, ...]:
        """The scores of each pair together, and the differences of their losses if wanted."""
        each = list(itertools.product(self.pairs, self.layout.groupings))
        joint = [JointScores.on(axis, pair, grouping, noisy=noisy) for pair, grouping in each]
        if not self.paired_brier:
            return tuple(joint)
        return (*joint, *(LossDifferences(models=pair, grouping=way) for pair, way in each))

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
        return Layout(
            classes=tuple(self.labels),
            models=tuple(self.models),
            groups=self._grouping(),
            crossed=self.crossed,
            names=tuple(map(str, self.labels)),
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
        return f"how many examples of each class ({listed(self.labels_told)})"

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """What else a plan tells apart: titles and names."""
        return (("classes", listed(self.labels_told)), *super().told)


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
        msgspec.structs.force_setattr(self, "labels", check_names("labels", self.labels))
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
            names=tuple(self.labels),
        )

    def contrast(self, slice_: Slice) -> Contrast:
        """One label, by its own score."""
        block = self._blocks(slice_)[self.labels_told.index(slice_.label)]
        channel, cells = self.layout.channel, self._cells(slice_, block)
        return Contrast(*(tuple(channel(block, cell, c) for cell in cells) for c in (0, 1)))

    @property
    def _examples(self) -> str:
        labels = listed(self.labels_told)
        return f"for each label ({labels}) how many positive and how many negative examples"

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """What else a plan tells apart: titles and names."""
        return (("labels", listed(self.labels_told)), *super().told)


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
    """Find where scores are, before `of` is done: rows are counted by score alone.

    Each score of a row, of several models or classes, has a row of counts; they share the bins.
    """

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
