"""`Examples`: labels and scores as checked batches, and what a label means."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fedgauge.arrays import Floats
from fedgauge.data.columns import (
    Column,
    Rows,
    are_missing,
    distinct,
    floats_of,
    pick,
    read_column,
    read_leniently,
    read_table,
    to_numpy,
)
from fedgauge.errors import InputError

Groups = Mapping[str | None, Column]
Scores = Mapping[str | None, Floats]
Names = Mapping[str | None, tuple[str, ...]]  # of columns, by model
Y_TRUE: Final = ""  # and of labels: no model is called so


@dataclass(frozen=True, eq=False)
class Examples:
    """Labels and scores of some examples, held in memory.

    Parameters
    ----------
    y_true
        One label for each example: bool, 0/1, or any two values when the positive one is named
        later. A list, NumPy array, or pandas / polars / pyarrow column. Where an example has
        several labels, an array with a column for each.
    y_score
        One number for each example; higher means more positive. For several classes an array with a
        column for each, or a data frame, whose columns go by name where they are called like the
        classes; for several models a mapping from their names.
    group
        The group of each example; for several groupings a mapping from their names.
    subject
        The id of the person behind each example, where a person is what privacy protects.

    Examples
    --------
    >>> Examples([0, 1], {"new": [0.1, 0.8], "old": [0.3, 0.4]}, group=["women", "men"])
    Examples(2 rows)
    """

    labels: Column
    scores: Scores
    groups: Groups
    subjects: Column | None
    names: Names

    def __init__(
        self, y_true: Any, y_score: Any, *, group: Any = None, subject: Any = None
    ) -> None:
        self._read(y_true, y_score, group, subject, leniently=False)

    @classmethod
    def leniently(
        cls, y_true: Any, y_score: Any, *, group: Any = None, subject: Any = None
    ) -> "Examples":
        """The same of rows that may hold anything; a score that is no number is NaN.

        Only columns as a whole are refused: their number, lengths, shape and type. No row decides
        about another, so a list is one column, whatever is in it: scores of several classes are an
        array or a frame.
        """
        examples = object.__new__(cls)
        examples._read(y_true, y_score, group, subject, leniently=True)
        return examples

    def _read(
        self, y_true: Any, y_score: Any, group: Any, subject: Any, *, leniently: bool
    ) -> None:
        read, numbers = (read_leniently, floats_of) if leniently else (read_column, numbers_of)
        y_true, named = read_table("y_true", y_true, lists=not leniently)
        names: dict[str | None, tuple[str, ...]] = {Y_TRUE: named}
        labels = _by_columns(y_true, lambda values: read("y_true", values))
        scores: dict[str | None, Floats] = {}
        for name, given in _named("y_score", y_score).items():
            values, names[name] = read_table("y_score", given, lists=not leniently)
            scores[name] = _by_columns(values, lambda each: numbers(read("y_score", each)))
        groups = {
            name: read("group", values)
            for name, values in ({} if group is None else _named("group", group)).items()
        }
        subjects = None if subject is None else read("subject", subject)
        self._set(labels, scores, groups, subjects, names)
        self._check_lengths()

    def _set(
        self, labels: Column, scores: Scores, groups: Groups, subjects: Column | None, names: Names
    ) -> None:
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "groups", groups)
        object.__setattr__(self, "subjects", subjects)

    def _check_lengths(self) -> None:
        rows = len(self)
        columns = [("y_true", self.labels), *(("y_score", each) for each in self.scores.values())]
        columns += [("group", each) for each in self.groups.values()]
        columns += [] if self.subjects is None else [("subject", self.subjects)]
        for name, column in columns:
            if len(column) != rows:
                raise InputError(
                    f"{name} has {len(column):,} rows and y_score {rows:,}. Each example needs "
                    "one of each."
                )

    @property
    def y_score(self) -> Floats:
        """The scores, where each example has one."""
        only = self.scores.get(None)
        if only is None or only.ndim > 1:
            raise InputError(
                "these examples have several scores each. Evaluate them with a task that names "
                "them: classes (MulticlassTask), or models."
            )
        return only

    @property
    def y_true(self) -> NDArray[Any]:
        """The labels in NumPy; `labels` holds them as they came, which is faster to read."""
        return to_numpy(self.labels)

    @property
    def subject(self) -> NDArray[Any] | None:
        """The ids of subjects in NumPy; `subjects` holds them as they came."""
        return None if self.subjects is None else to_numpy(self.subjects)

    def __len__(self) -> int:
        return len(next(iter(self.scores.values())))

    def __repr__(self) -> str:
        return f"Examples({len(self):,} rows)"

    @property
    def is_complete(self) -> NDArray[np.bool_]:
        """Which rows have a label and a score, and all of them where they have several."""
        flat = self.labels.ravel() if isinstance(self.labels, np.ndarray) else self.labels
        complete: NDArray[np.bool_]
        complete = np.all((distinct(flat)[0] >= 0).reshape(len(self), -1), axis=1)
        for scores in self.scores.values():
            complete &= ~np.any(np.isnan(scores).reshape(len(self), -1), axis=1)
        return complete

    def split(self, rows: int) -> Iterator["Examples"]:
        """The same examples as views of at most `rows` rows."""
        for start in range(0, len(self), rows):
            yield self.select(slice(start, start + rows))

    def select(self, rows: Rows) -> "Examples":
        """Some of the examples: a slice is a view, a mask a copy."""
        part = object.__new__(Examples)
        part._set(
            pick(self.labels, rows),
            {name: each[rows] for name, each in self.scores.items()},
            {name: pick(each, rows) for name, each in self.groups.items()},
            None if self.subjects is None else pick(self.subjects, rows),
            self.names,
        )
        return part


def _named(what: str, values: Any) -> Mapping[str | None, Any]:
    """Columns by name; one that has none is named None."""
    if not isinstance(values, Mapping):
        return {None: values}
    if not values or not all(isinstance(name, str) for name in values):
        raise InputError(f"{what} must map names to columns, and have at least one.")
    return values


def _by_columns(values: Any, read: Callable[[Any], Any]) -> Any:
    """The values as they are read; a table, with a column for each class or label, stays one."""
    if not isinstance(values, np.ndarray) or values.ndim != 2 or values.shape[1] < 2:
        return read(values)
    order: Literal["F", "C"] = "F" if values.flags.f_contiguous else "C"  # neither is copied
    return to_numpy(read(values.ravel(order))).reshape(values.shape, order=order)


class Ranks(Protocol):
    """How scores are told apart: by how many of some values each has reached."""

    @property
    def values(self) -> Floats:
        """The values, in order."""

    @property
    def rank_of_missing(self) -> int:
        """The rank of NaN and of a score that is missing."""

    def rank(self, score: Any, literal: Callable[[float], Any]) -> Any:
        """The rank of a column, as an expression of narwhals; None where that is too long."""

    def in_postgres(self, score: str) -> str:
        """The rank of a column, as text for PostgreSQL."""


class AlikeRows(NamedTuple):
    """How many rows there are of each rank and label, counted by whoever holds the rows."""

    labels: Any  # a column
    ranks: NDArray[np.int64]
    times: NDArray[np.int64]


class RowSource(ABC):
    """Where the rows of one client are: a file, a query, a table. Errors in it quote no row."""

    dropped = 0  # rows without a label or a score that were left out, if that was asked for

    @abstractmethod
    def __call__(self) -> Iterator[Examples]:
        """The examples, batch after batch."""

    @abstractmethod
    def leniently(self, skip: Callable[[], None]) -> Iterator[Examples]:
        """The examples, whatever a row holds; `skip` is called for a row that has to be left out.

        A score that is no number is NaN. Refused is only what concerns all rows.
        """

    def check(self) -> None:  # noqa: B027  (not all have types)
        """Refuse columns whose type is not that of a label, a score or an id; depends on no row."""

    def counted(self, ranks: Ranks) -> AlikeRows | None:
        """The rows, counted where they are; None if they are to be read and counted here."""
        del ranks
        return None


Pair = tuple[Any, Any]
Stream = Callable[[], Iterable["Pair | Examples"]]
Data = Pair | Examples | Stream


def read_batches(data: Data, make: Callable[[Any, Any], Examples] = Examples) -> Iterator[Examples]:
    """One client's data as batches, whatever form it came in; `make` reads each pair."""
    if isinstance(data, Examples):
        yield data
    elif callable(data):
        chunks = data()
        if not isinstance(chunks, Iterable):
            raise InputError(
                f"the function of a client returned {type(chunks).__name__}. It must return "
                "chunks, each (y_true, y_score) or Examples."
            )
        for chunk in chunks:
            yield chunk if isinstance(chunk, Examples) else make(*_pair(chunk))
    else:
        yield make(*_pair(data))


def _pair(pair: Any) -> Pair:
    if not isinstance(pair, tuple) or len(pair) != 2:
        size = f" of {len(pair)}" if isinstance(pair, Sized) else ""
        raise InputError(
            f"expected (y_true, y_score), Examples, or a function returning such pairs, "
            f"got {type(pair).__name__}{size}."
        )
    return pair


def numbers_of(column: Column) -> Floats:
    """The numbers of a column, NaN where one is missing; text that spells none is refused."""
    scores = to_numpy(column)
    if scores.dtype.kind in "fiub":
        return scores.astype(np.float64, copy=False)
    if scores.dtype.kind == "U":
        scores = scores.astype(object)
    if scores.dtype.kind == "O":
        with suppress(TypeError, ValueError, OverflowError):
            return np.where(are_missing(scores), np.nan, scores).astype(np.float64)
        numbers = floats_of(scores)  # which also knows 45%
        if not np.isnan(numbers).any():
            return numbers
    raise InputError("y_score holds values that are not numbers. Convert the column to floats.")


Label = bool | int | float | str
Meaning = float | str | None  # NaN where a label is missing, None where it means nothing


def meaning(label: Any) -> float | str:
    """What a label stands for: a number, or the text itself where it spells none."""
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, str):
        word = label.strip()
        if word.casefold() in ("true", "false"):
            return float(word.casefold() == "true")
        try:
            number = float(word)
            return int(word) if abs(number) >= 2**53 and word.lstrip("+-").isdigit() else number
        except ValueError:
            return word
    if isinstance(label, bool | int | float | Decimal):
        return label if isinstance(label, int) else float(label)
    raise InputError("labels must be numbers, truth values or text. Recode the label column.")
