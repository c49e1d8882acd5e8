"""Which counts a row adds to: its scores, times its groups, times the classes its labels tell."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedgauge.arrays import Floats
from fedgauge.data.columns import Column, coded, codes_of, distinct
from fedgauge.data.examples import Y_TRUE, Examples, Label, Meaning, meaning
from fedgauge.errors import InputError, LabelError

_DECIMAL_ZERO: Final = re.compile(r"(?<=\d)\.0+\Z")
TWO: Final[tuple[Label, ...]] = ()  # classes that one label tells apart from all others


class Block(NamedTuple):
    """Channels that a row is in one of: for one of its scores, and one way to group rows.

    `model` and `column` say which score, `grouping` which groups; `first` is its first channel.
    """

    model: str | None
    column: int
    grouping: tuple[str, ...]
    first: int


_FOLLOWS: Final[Any] = field(init=False, repr=False, compare=False)


@dataclass(frozen=True)
class Layout:
    """Which channels rows are counted in.

    A row whose value of a grouping is not listed is in a group of its own, the last.
    """

    positive: Label | None = None  # label of the positive class; None where labels are bool or 0/1
    classes: tuple[Label, ...] = TWO  # labels of several classes, each with a score
    labels: int = 1  # how many labels of its own a row has, each with a score
    # names of the models whose scores a row has; empty where there is one
    models: tuple[str, ...] = ()
    groups: tuple[tuple[str, tuple[str, ...]], ...] = ()  # values of each grouping, by its name
    crossed: bool = False  # groups are all combinations of groupings; else rows count once by each
    names: tuple[str, ...] = ()  # columns of scores, or of labels, in a frame
    together: bool = False  # rows of all classes are counted in one channel, by their score alone

    is_plain: bool = _FOLLOWS  # one score and one label, of two classes, and no group
    by_block: int = _FOLLOWS  # classes that a block tells apart
    scores: int = _FOLLOWS  # that each model gives a row
    by_row: int = _FOLLOWS  # scores of a row, of all models together
    groupings: tuple[tuple[str, ...], ...] = _FOLLOWS  # the ways in which rows are grouped
    per_row: int = _FOLLOWS  # how many counts, at each level, one row adds to: its sensitivity
    sizes: tuple[int, ...] = _FOLLOWS  # channels of each block
    channels: int = _FOLLOWS  # rows of counts

    def __post_init__(self) -> None:
        by_block = 1 if self.together else len(self.classes) or 2
        scores = len(self.classes) or self.labels
        by_row = max(len(self.models), 1) * scores
        names = tuple(name for name, _ in self.groups)
        each = tuple((name,) for name in names) or ((),)
        groupings = (names,) if self.crossed else each
        of_score = tuple(self.cells(grouping) * by_block for grouping in groupings)
        # Once: they are asked for at every batch.
        vars(self).update(
            is_plain=not (self.classes or self.models or self.groups) and self.labels == 1,
            by_block=by_block,
            scores=scores,
            by_row=by_row,
            groupings=groupings,
            per_row=by_row * len(groupings),
            sizes=of_score * by_row,
            channels=by_row * sum(of_score),
        )

    def cells(self, grouping: tuple[str, ...]) -> int:
        """How many groups there are in one of these ways, those of other values included."""
        sizes = {name: len(values) + 1 for name, values in self.groups}
        return math.prod(sizes[name] for name in grouping)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """All blocks, in the order of their channels."""
        blocks, first = [], 0
        for model in self.models or (None,):
            for column in range(self.scores):
                for grouping in self.groupings:
                    blocks.append(Block(model, column, grouping, first))
                    first += self.cells(grouping) * self.by_block
        return tuple(blocks)

    def rows(self, block: Block) -> slice:
        """The channels of a block, which are next to each other."""
        return slice(block.first, block.first + self.cells(block.grouping) * self.by_block)

    def channel(self, block: Block, cell: int, of_class: int) -> int:
        """The channel of one class in one group of a block."""
        return block.first + cell * self.by_block + of_class

    @cached_property
    def strata(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The block of each channel by number, and which of its strata the channel is in.

        A row in a stratum of one block is in the same stratum of every block grouped alike: it is
        of one group and, where its scores are of one label, of one class.
        """
        blocks = np.empty(self.channels, dtype=np.intp)
        strata = np.empty(self.channels, dtype=np.intp)
        apart = self.by_block if self.labels > 1 else 1
        for number, block in enumerate(self.blocks):
            rows = self.rows(block)
            blocks[rows] = number
            strata[rows] = np.arange(rows.stop - rows.start) // apart
        return blocks, strata


PLAIN: Final = Layout()


class ChannelReader:
    """Finds the channels of one client's rows, batch after batch; counts what was odd."""

    def __init__(self, layout: Layout, *, leniently: bool = False) -> None:
        self._layout = layout
        kind = LenientLabelReader if leniently else LabelReader
        if layout.classes:
            self._readers: list[Any] = [ClassReader(layout.classes, leniently=leniently)]
        else:
            self._readers = [kind(layout.positive) for _ in range(layout.labels)]

    @property
    def missing(self) -> int:
        """Labels that were missing."""
        return sum(reader.missing for reader in self._readers)

    @property
    def unusable(self) -> int:
        """Labels that told no class."""
        return sum(reader.unusable for reader in self._readers)

    def merge(self, other: "ChannelReader") -> None:
        """Add what another one counted."""
        for mine, theirs in zip(self._readers, other._readers, strict=True):
            mine.missing += theirs.missing
            mine.unusable += theirs.unusable

    def complaint(self) -> str:
        """What is wrong with unusable labels and how to mend it."""
        if self._layout.labels > 1:  # whose positive one cannot be named
            return "are neither bool nor 0/1. Recode them"
        return next(str(r.complaint()) for r in self._readers if r.unusable)

    def __call__(self, batch: Examples) -> Iterator[tuple[Floats, NDArray[Any]]]:
        """Scores and channels of a batch's rows, block after block."""
        layout = self._layout
        told = self._classes(batch)
        if layout.together:
            told = [np.zeros_like(each) for each in told]
        if layout.is_plain:
            yield batch.y_score, told[0]
            return
        groups = {grouping: self._cells(batch, grouping) for grouping in layout.groupings}
        for block in layout.blocks:
            classes = told[0 if layout.classes else block.column]
            cells = groups[block.grouping] * layout.by_block
            yield self._scores(batch, block), block.first + cells + classes

    def alike(self, labels: Column, times: NDArray[np.int64]) -> NDArray[Any]:
        """Channels of plain rows that stand for so many each."""
        return np.asarray(self._readers[0].read_any(labels, times)) * (not self._layout.together)

    def _classes(self, batch: Examples) -> list[NDArray[Any]]:
        labels, several = batch.labels, self._layout.labels
        if isinstance(labels, np.ndarray) and labels.ndim == 2:
            if labels.shape[1] != several:
                raise LabelError(_many_labels(labels.shape[1], several))
            order = self._order("y_true", batch.names.get(Y_TRUE, ()))
            pairs = zip(self._readers, labels.T[order], strict=True)
            return [reader(np.ascontiguousarray(column)) for reader, column in pairs]
        if several > 1:
            raise LabelError(f"the task has {several} labels a row, and y_true is one column.")
        return [self._readers[0](labels)]

    def _scores(self, batch: Examples, block: Block) -> Floats:
        scores = batch.scores.get(block.model)
        if scores is None:
            raise InputError(_no_model(block.model, batch.scores, len(self._layout.names)))
        wanted = self._layout.scores
        if wanted == 1 and scores.ndim == 1:
            return scores
        if scores.ndim != 2 or scores.shape[1] != wanted:
            got = "one column" if scores.ndim == 1 else f"{scores.shape[1]} columns"
            raise InputError(f"y_score has {got}, and the task {wanted} classes. Give each one.")
        order = self._order("y_score", batch.names.get(block.model, ()))
        return np.ascontiguousarray(scores[:, order[block.column]])

    def _order(self, what: str, named: tuple[str, ...]) -> list[int]:
        """Where the column of each class or label is: by name, where columns have such names."""
        wanted = self._layout.names
        if {*named}.isdisjoint(wanted):
            return list(range(self._layout.scores))
        if sorted(named) != sorted(wanted):
            raise InputError(
                f"{what} has columns named like some of the classes, and others that are not. "
                "Name each column like its class, or pass an array with columns in the plan's "
                "order."
            )
        return [named.index(name) for name in wanted]

    def _cells(self, batch: Examples, grouping: tuple[str, ...]) -> NDArray[Any]:
        cells: NDArray[Any] = np.zeros(len(batch), dtype=np.intp)
        for name, values in self._layout.groups:
            if name in grouping:
                column = batch.groups.get(name)
                if column is None and len(self._layout.groups) == 1:
                    column = batch.groups.get(None)
                if column is None:
                    raise InputError(_no_grouping(name, batch.groups))
                cells = cells * (len(values) + 1) + group_codes(column, values)
        return cells


class LabelReader:
    """Turns the labels of one client, batch after batch, into 0 and 1.

    Without `positive` labels must be bool or 0/1. Text that spells a number or a truth value counts
    as that value, so that labels from CSV, a command line or a data frame compare alike.
    """

    classes: ClassVar[int] = 2

    def __init__(self, positive: Label | None) -> None:
        self._positive = None if positive is None else meaning(positive)
        self._negative: float | str | None = None
        self._has_positive = False
        self.missing = 0
        self.unusable = 0

    def __call__(self, labels: Column) -> NDArray[Any]:
        """The labels as integers, 1 for positive; counts those that are neither."""
        if isinstance(labels, pa.DictionaryArray):
            return self.read_any(labels)
        if labels.dtype.kind == "b":
            labels = labels.view(np.uint8)
        if labels.dtype.kind in "iu" and self._positive in (None, 1.0):
            # A bitwise OR of 0 or 1 says all of them are 0 or 1.
            union = int(np.bitwise_or.reduce(labels)) if labels.size else 0
            if union in (0, 1) and self._negative in (None, 0.0):
                # Later batches are compared with what this one held.
                self._has_positive |= union == 1
                if self._negative is None and labels.size and not np.bitwise_and.reduce(labels):
                    self._negative = 0.0
                return labels
        return self.read_any(labels)

    def read_any(self, labels: Column, times: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """The same of labels of any kind, each of which may stand for several rows."""

        def rows(chosen: NDArray[np.bool_]) -> int:
            return int(np.count_nonzero(chosen) if times is None else times[chosen].sum())

        codes, meanings = self._encode(labels)
        self.missing += rows(codes < 0)
        judged = np.array([*map(self._judge, meanings), 0], dtype=np.int8)
        read = judged.take(codes)  # a missing label, code -1, reads the 0 at the end
        self.unusable += rows(read < 0)
        return np.maximum(read, 0, out=read)

    def _encode(self, labels: Column) -> tuple[NDArray[Any], list[Meaning]]:
        """Codes of the labels (-1 where missing) and the meaning of each code."""
        try:
            encoded = coded(labels)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            # The reason would quote a label.
            raise InputError(
                "y_true mixes kinds of values, or holds none usable as labels."
            ) from None
        codes = codes_of(encoded)
        values = encoded.dictionary.to_pylist()
        return _drop_missing(codes, [math.nan if v is None else meaning(v) for v in values])

    def _judge(self, meaning: Meaning) -> int:
        """1 for positive, 0 for negative, -1 for a label that is neither."""
        if meaning is None:
            return -1
        if meaning != meaning:  # missing, and counted as such
            return 0
        if self._positive is None:
            return int(meaning) if meaning in (0.0, 1.0) else -1
        if meaning == self._positive:
            self._has_positive = True
            return 1
        if self._negative is None:
            self._negative = meaning
        return 0 if meaning == self._negative else -1

    def complaint(self) -> str:
        """What is wrong with unusable labels and how to mend it."""
        if self._positive is None:
            return "are neither bool nor 0/1. Name the positive label (positive=...)"
        if not self._has_positive:
            told = "are neither the positive label, which no row has, nor one other"
            return f"{told}. Check its spelling"
        return "are a third value beside the positive label and one other. Recode them"


class LenientLabelReader(LabelReader):
    """Reads any labels at all: one that is not positive is negative, a missing one too.

    It counts what :class:`LabelReader` would complain of. Which label it saw first decides how many
    it calls a third value, never how a row is read, nor in how much work.
    """

    def __call__(self, labels: Column) -> NDArray[Any]:
        """The labels as integers, 1 for positive; counts those that are neither."""
        return self.read_any(labels)

    def _encode(self, labels: Column) -> tuple[NDArray[Any], list[Meaning]]:
        codes, values = distinct(labels)
        return _drop_missing(codes, [_meaning_if_any(value) for value in values])


def _drop_missing(
    codes: NDArray[Any], meanings: list[Meaning]
) -> tuple[NDArray[Any], list[Meaning]]:
    kept = [-1 if meaning != meaning else code for code, meaning in enumerate(meanings)]
    return np.array([*kept, -1]).take(codes), meanings  # code -1 reads the last


def _meaning_if_any(label: Any) -> Meaning:
    try:
        return math.nan if label is None else meaning(label)
    except Exception:  # an object can raise anything
        return None


class ClassReader:
    """Turns labels into numbers of classes; where rows must all count, others are the first."""

    def __init__(self, classes: tuple[Label, ...], *, leniently: bool) -> None:
        self._numbers = {meaning(label): number for number, label in enumerate(classes)}
        self._leniently = leniently
        self.missing = self.unusable = 0

    def __call__(self, labels: Column) -> NDArray[Any]:
        """The number of each row's class."""
        codes, values = distinct(labels)
        numbers = np.array([*map(self._number, values), -2], dtype=np.intp)
        read = numbers.take(codes)  # a missing label, code -1, reads the last
        self.missing += int(np.count_nonzero(read == -2))
        self.unusable += int(np.count_nonzero(read == -1))
        return np.maximum(read, 0, out=read)

    def _number(self, label: Any) -> int:
        try:
            if label is None:
                return -2
            read = meaning(label)
            return -2 if read != read else self._numbers.get(read, -1)
        except Exception:
            if self._leniently:  # an object can raise anything
                return -1
            raise

    def complaint(self) -> str:
        """What is wrong with unusable labels and how to mend it."""
        return "are none of the task's classes. Name all of them, or recode the labels"


def group_codes(column: Column, values: tuple[str, ...]) -> NDArray[Any]:
    """The number of each row's group; those of no listed value have the last."""
    codes, found = distinct(column)
    numbers = {value: number for number, value in enumerate(values)}
    by_code = [*(_group(value, numbers) for value in found), len(values)]
    chosen: NDArray[Any] = np.array(by_code, dtype=np.intp).take(codes)
    return chosen


def _group(value: Any, numbers: Mapping[str, int]) -> int:
    """The number of a value's group, as text: 7, 7.0, "7" and "7.0" are one unless listed apart."""
    try:
        word = str(value).strip()
    except Exception:  # an object can raise anything
        return len(numbers)
    whole = _DECIMAL_ZERO.sub("", word)
    return numbers.get(word, numbers.get(whole, len(numbers)))


def _no_grouping(name: str, groups: Mapping[str | None, Any]) -> str:
    if not groups:
        return (
            f"the task has groups by {name!r}, and the examples have none: Examples(y_true, "
            "y_score, group=...)."
        )
    return (
        f"the task has groups by {name!r}, and the groups of the examples have another name or "
        f"none: Examples(y_true, y_score, group={{{name!r}: ...}})."
    )


def _many_labels(columns: int, several: int) -> str:
    if several == 1:
        return (
            f"y_true has {columns} columns, and the task one label a row. Pass one column: of "
            "classes marked by 0 and 1, the name of the marked one."
        )
    return f"y_true has {columns} columns, and the task {several} labels a row."


def _no_model(model: str | None, scores: Mapping[str | None, Any], classes: int) -> str:
    if model is None and classes:
        return (
            "y_score maps names to columns, which is for models (models=...). For several classes "
            "pass an array with a column for each, in the plan's order, or a data frame."
        )
    if model is None:
        return (
            "these examples have scores of several models, and the task is for one. Name the "
            "models (models=...)."
        )
    named = [name for name in scores if name is not None]
    if not named:
        return "the task has several models: y_score must map their names to scores."
    return f"the examples have no scores of the model {model!r}."
