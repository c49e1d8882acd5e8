"""Labels and scores at the door: arrays and data-frame columns become checked batches."""

from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedgauge.errors import InputError
from fedgauge.typing import Floats

Label = bool | int | float | str
Labels = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
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

    y_true: Labels
    y_score: Floats
    subject: NDArray[Any] | None

    def __init__(self, y_true: Any, y_score: Any, *, subject: Any = None) -> None:
        labels = _column("y_true", y_true)
        scores = _column("y_score", y_score)
        if len(labels) != len(scores):
            raise InputError(
                f"y_true has {len(labels):,} rows and y_score {len(scores):,}. "
                "Each example needs one of both."
            )
        subjects = None if subject is None else _column("subject", subject)
        if subjects is not None and len(subjects) != len(scores):
            raise InputError(
                f"subject has {len(subjects):,} rows and y_score {len(scores):,}. "
                "Each example needs one of both."
            )
        self._set(labels, _floats(scores), subjects)

    def _set(self, labels: Labels, scores: Floats, subjects: NDArray[Any] | None) -> None:
        object.__setattr__(self, "y_true", labels)
        object.__setattr__(self, "y_score", scores)
        object.__setattr__(self, "subject", subjects)

    def __len__(self) -> int:
        return len(self.y_score)

    def __repr__(self) -> str:
        return f"Examples({len(self):,} rows)"

    def split(self, rows: int) -> Iterator["Examples"]:
        """The same examples as views of at most `rows` rows."""
        for start in range(0, len(self), rows):
            yield self.select(slice(start, start + rows))

    def select(self, rows: slice | NDArray[np.bool_]) -> "Examples":
        """Some of the examples: a slice is a view, a mask a copy."""
        part = object.__new__(Examples)
        subjects = None if self.subject is None else self.subject[rows]
        part._set(self.y_true[rows], self.y_score[rows], subjects)
        return part


Pair = tuple[Any, Any]
Stream = Callable[[], Iterable["Pair | Examples"]]
Data = Pair | Examples | Stream


def read_batches(data: Data) -> Iterator[Examples]:
    """One client's data as batches, whatever form it came in."""
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
            yield chunk if isinstance(chunk, Examples) else _from_pair(chunk)
    else:
        yield _from_pair(data)


def _from_pair(pair: Any) -> Examples:
    if not isinstance(pair, tuple) or len(pair) != 2:
        size = f" of {len(pair)}" if isinstance(pair, Sized) else ""
        raise InputError(
            f"expected (y_true, y_score), Examples, or a function returning such pairs, "
            f"got {type(pair).__name__}{size}."
        )
    return Examples(*pair)


def _column(name: str, values: Any) -> NDArray[Any]:
    """A flat array of the values, without a copy where that is possible."""
    if isinstance(values, pa.Array):
        values = pa.chunked_array([values])
    if isinstance(values, pa.ChunkedArray) and pa.types.is_dictionary(values.type):
        # ChunkedArray.to_numpy gives a null the last value of the dictionary (pyarrow 26).
        values = values.cast(values.type.value_type)
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InputError(f"{name} has masked rows. Drop them: array.compressed().")
    if not isinstance(values, np.ndarray):
        native = nw.from_native(values, allow_series=True, pass_through=True)
        if isinstance(native, nw.DataFrame | nw.LazyFrame):
            raise InputError(f"{name} is a table; pass one column of it.")
        values = native.to_numpy() if isinstance(native, nw.Series) else values
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, OverflowError):
        raise InputError(f"{name} is not a flat list of values.") from None
    if array.ndim != 1:
        raise InputError(
            f"{name} has {array.ndim} dimensions; this binary evaluation takes one label "
            "and one score for each example. Pass the column of the positive class."
        )
    return array


def _floats(scores: NDArray[Any]) -> Floats:
    if scores.dtype.kind in "fiub":
        return scores.astype(np.float64, copy=False)
    if scores.dtype.kind == "O":
        try:
            valid = pa.array(scores, from_pandas=True).is_valid().to_numpy(zero_copy_only=False)
            return np.where(valid, scores, np.nan).astype(np.float64)
        except (TypeError, ValueError, OverflowError, pa.ArrowException):
            pass
    raise InputError("y_score holds values that are not numbers. Convert the column to floats.")


class LabelReader:
    """Turns the labels of one client, batch after batch, into 0 and 1.

    Parameters
    ----------
    positive
        The label of the positive class. Without it labels must be bool or 0/1.

    Notes
    -----
    Text that spells a number or a truth value counts as that value, so that a label
    read from CSV, typed on a command line or held in a data frame compares alike.
    """

    def __init__(self, positive: Label | None) -> None:
        self._positive = None if positive is None else _meaning(positive)
        self._negative: float | str | None = None
        self.missing = 0
        self.unusable = 0

    def __call__(self, labels: Labels) -> NDArray[Any]:
        """The labels as integers, 1 for positive; counts those that are neither."""
        if labels.dtype.kind == "b":
            labels = labels.view(np.uint8)
        if labels.dtype.kind in "iu" and self._positive in (None, 1.0):
            # A bitwise OR of 0 or 1 says all of them are 0 or 1.
            union = int(np.bitwise_or.reduce(labels)) if labels.size else 0
            if union in (0, 1):
                return labels
        return self._read_any(labels)

    def _read_any(self, labels: Labels) -> NDArray[Any]:
        codes, meanings = _encode(labels)
        self.missing += int(np.count_nonzero(codes < 0))
        outcome = np.array([self._judge(meaning) for meaning in meanings] + [0])
        unusable = outcome < 0
        self.unusable += int(np.count_nonzero(unusable[codes]))
        read: NDArray[Any] = np.maximum(outcome, 0)[codes]
        return read

    def _judge(self, meaning: float | str) -> int:
        """1 for positive, 0 for negative, -1 for a label that is neither."""
        if self._positive is None:
            return int(meaning) if meaning in (0.0, 1.0) else -1
        if meaning == self._positive:
            return 1
        if self._negative is None:
            self._negative = meaning
        return 0 if meaning == self._negative else -1

    def complaint(self) -> str:
        """What is wrong with unusable labels and how to mend it."""
        if self._positive is None:
            return "are neither bool nor 0/1. Name the positive label (positive=...)"
        return "are a third value beside the positive label and one other. Recode them"


def _encode(labels: Labels) -> tuple[NDArray[Any], list[float | str]]:
    """Codes of the labels (-1 where missing) and the meaning of each code."""
    if labels.dtype == np.float16:
        labels = labels.astype(np.float32)  # not every Arrow encodes halves
    try:
        encoded = pa.array(labels, from_pandas=True).dictionary_encode()
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        # The reason would quote a label.
        raise InputError("y_true mixes kinds of values, or holds none usable as labels.") from None
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    values = encoded.dictionary.to_pylist()
    if None in values:  # a column of nothing but nulls
        return np.full(len(labels), -1), []
    meanings = [_meaning(value) for value in values]
    nan = [code for code, meaning in enumerate(meanings) if meaning != meaning]
    return np.where(np.isin(codes, nan), -1, codes), meanings


def _meaning(label: Any) -> float | str:
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
