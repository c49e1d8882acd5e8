"""Labels of one client as 0 and 1, whatever they are spelled with."""

import math
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedgauge.data.columns import Column, coded, codes_of, distinct
from fedgauge.errors import InputError

Label = bool | int | float | str
Meaning = float | str | None  # NaN where a label is missing, None where it means nothing


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
            return self._read_any(labels)
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
        return self._read_any(labels)

    def _read_any(self, labels: Column) -> NDArray[Any]:
        codes, meanings = self._encode(labels)
        self.missing += int(np.count_nonzero(codes < 0))
        judged = np.array([*map(self._judge, meanings), 0], dtype=np.int8)
        read = judged.take(codes)  # a missing label, code -1, reads the 0 at the end
        self.unusable += int(np.count_nonzero(read < 0))
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

    It counts what :class:`LabelReader` would complain of. Which label it saw first decides how
    many it calls a third value, never how a row is read, nor in how much work.
    """

    def __call__(self, labels: Column) -> NDArray[Any]:
        """The labels as integers, 1 for positive; counts those that are neither."""
        return self._read_any(labels)

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
