"""Labels and scores at the door: arrays and data-frame columns become checked batches."""

from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedgauge.data.columns import (
    Column,
    Rows,
    floats_of,
    pick,
    read_column,
    read_leniently,
    to_numpy,
)
from fedgauge.errors import InputError
from fedgauge.typing import Floats


@dataclass(frozen=True, eq=False)
class Examples:
    """Labels and scores of some examples, held in memory.

    Parameters
    ----------
    y_true
        One label for each example: bool, 0/1, or any two values when the positive
        one is named later. A list, NumPy array, or pandas / polars / pyarrow column.
    y_score
        One number for each example; higher means more positive. Same kinds of input.
    subject
        The id of the person behind each example, where a person is what privacy protects.

    Examples
    --------
    >>> len(Examples([0, 1, 1], [0.1, 0.8, 0.4]))
    3
    """

    labels: Column
    y_score: Floats
    subjects: Column | None

    def __init__(self, y_true: Any, y_score: Any, *, subject: Any = None) -> None:
        labels = read_column("y_true", y_true)
        scores = read_column("y_score", y_score)
        subjects = None if subject is None else read_column("subject", subject)
        _check_lengths(labels, scores, subjects)
        self._set(labels, numbers_of(scores), subjects)

    @classmethod
    def leniently(cls, y_true: Any, y_score: Any, *, subject: Any = None) -> "Examples":
        """The same of rows that may hold anything; a score that is no number is NaN.

        What is refused concerns columns as a whole: their number, lengths, shape and type. What
        one row holds decides about that row alone.
        """
        labels = read_leniently("y_true", y_true)
        scores = floats_of(read_leniently("y_score", y_score))
        subjects = None if subject is None else read_leniently("subject", subject)
        _check_lengths(labels, scores, subjects)
        examples = object.__new__(cls)
        examples._set(labels, scores, subjects)
        return examples

    def _set(self, labels: Column, scores: Floats, subjects: Column | None) -> None:
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "y_score", scores)
        object.__setattr__(self, "subjects", subjects)

    @property
    def y_true(self) -> NDArray[Any]:
        """The labels in NumPy; `labels` holds them as they came, which is faster to read."""
        return to_numpy(self.labels)

    @property
    def subject(self) -> NDArray[Any] | None:
        """The ids of subjects in NumPy; `subjects` holds them as they came."""
        return None if self.subjects is None else to_numpy(self.subjects)

    def __len__(self) -> int:
        return len(self.y_score)

    def __repr__(self) -> str:
        return f"Examples({len(self):,} rows)"

    def split(self, rows: int) -> Iterator["Examples"]:
        """The same examples as views of at most `rows` rows."""
        for start in range(0, len(self), rows):
            yield self.select(slice(start, start + rows))

    def select(self, rows: Rows) -> "Examples":
        """Some of the examples: a slice is a view, a mask a copy."""
        part = object.__new__(Examples)
        subjects = None if self.subjects is None else pick(self.subjects, rows)
        part._set(pick(self.labels, rows), self.y_score[rows], subjects)
        return part


def _check_lengths(labels: Column, scores: Column, subjects: Column | None) -> None:
    for name, column in (("y_true", labels), ("subject", subjects)):
        if column is not None and len(column) != len(scores):
            raise InputError(
                f"{name} has {len(column):,} rows and y_score {len(scores):,}. "
                "Each example needs one of both."
            )


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
    if scores.dtype.kind == "O":
        try:
            valid = pa.array(scores, from_pandas=True).is_valid().to_numpy(zero_copy_only=False)
            return np.where(valid, scores, np.nan).astype(np.float64)
        except (TypeError, ValueError, OverflowError, pa.ArrowException):
            pass
    raise InputError("y_score holds values that are not numbers. Convert the column to floats.")
