"""Ids, and what goes with each: mappings, columns, data frames and files as two columns.

An id is text or a whole number. A whole number is the text that spells it, so that a column of a
Parquet file can be joined with one of a CSV file: 7 is "7", never "007".
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedgauge.data.columns import Column, distinct, from_arrow, pick, read_column, stack, to_numpy
from fedgauge.data.examples import numbers_of
from fedgauge.data.files import FRAME, WORDS, names_of, open_source
from fedgauge.data.text_files import UTF8, Dialect
from fedgauge.errors import InputError, located

_TEXT: Final = pa.large_string()  # of which an array may hold more than 2 GiB
_INEXACT: Final = float(2**53)  # from here on floats skip whole numbers


class Identified(NamedTuple):
    """Ids, whole numbers or text, and the score or label that goes with each."""

    ids: pa.Array
    values: Column

    @classmethod
    def of(cls, ids: Any, values: Any, *, numbers: bool) -> "Identified":
        """Two columns of the same length; `numbers` says whether values are scores."""
        read = read_ids(ids)
        column = read_column("y_score" if numbers else "y_true", values)
        if len(read) != len(column):
            raise InputError(f"there are {len(read):,} ids and {len(column):,} values.")
        return cls(read, numbers_of(column) if numbers else column)


class IdTable:
    """Scores or labels of examples by their ids: columns of a file, or of a data frame.

    Parameters
    ----------
    source
        As for :class:`ScoreTable`.
    id, value
        Names of the columns: of the id, and of the score or the label. In a text file ids are text.
    party
        The column that names the label party, where one table holds the labels of several.
    separator, decimal, encoding
        As for :class:`ScoreFile`.

    Examples
    --------
    >>> frame = pa.table({"user": [1, 2, 3, 4], "p": [0.2, 0.7, 0.9, 0.4], "y": [0, 1, 1, 0]})
    >>> scores = IdTable(frame, id="user", value="p")
    >>> labels = {"shop": IdTable(frame, id="user", value="y")}
    >>> fg.evaluate_vertical(scores, labels, privacy=fg.SecureAggregation()).roc_auc.value
    1.0
    """

    def __init__(
        self,
        source: Any,
        *,
        id: str,  # noqa: A002  (what everybody calls it)
        value: str,
        party: str | None = None,
        separator: str | None = None,
        decimal: str = ".",
        encoding: str = UTF8,
    ) -> None:
        self.party = party
        self._id, self._value = id, value
        wanted = (id, value) if party is None else (id, value, party)
        self._frame, self._open = open_source(source, wanted, Dialect(separator, decimal, encoding))

    def __str__(self) -> str:
        return ", ".join(map(str, self._open)) or FRAME

    def read(self, *, numbers: bool) -> Identified:
        """Ids and values; `numbers` says whether these are scores."""
        return _stacked([part for part, _ in self._parts(numbers=numbers)])

    def by_party(self) -> dict[str, Identified]:
        """Ids and labels of each party."""
        parts = list(self._parts(numbers=False))
        ids, values = _stacked([part for part, _ in parts])
        codes, names = distinct(np.concatenate([names for _, names in parts]))
        rows = np.split(np.argsort(codes, kind="stable"), np.bincount(codes).cumsum()[:-1])
        return {
            name: Identified(ids.take(pa.array(own)), pick(values, own))
            for name, own in zip(names, rows, strict=True)
        }

    def _parts(self, *, numbers: bool) -> Iterator[tuple[Identified, NDArray[Any]]]:
        """Ids and values of each file, or of the frame, and the party of every row."""
        types = {self._id: pa.string(), self._value: pa.float64() if numbers else WORDS}
        if self.party is not None:
            types[self.party] = WORDS
        for place in (self,) if self._frame is not None else self._open:
            with located(str(place)):
                columns = self._columns(place, types)
                part = Identified.of(columns[self._id], columns[self._value], numbers=numbers)
                names = np.empty(0, dtype=object)
                if self.party is not None:
                    named = names_of(self.party, columns[self.party], "party")
                    names = to_numpy(named)
            yield part, names

    def _columns(self, place: Any, types: Mapping[str, pa.DataType]) -> Mapping[str, Any]:
        if self._frame is not None:
            return {name: self._frame[name].to_native() for name in types}
        batches = list(self._open[place](types, None).batches)
        if not batches:
            raise InputError("there are no rows in it. Export it again.")
        return {name: pa.chunked_array([batch[name] for batch in batches]) for name in types}


def read_ids(values: Any) -> pa.Array:
    """A column of ids as 64-bit whole numbers or as text; anything else is refused."""
    ids = _to_arrow(values)
    if pa.types.is_dictionary(ids.type):
        ids = ids.cast(ids.type.value_type)
    kind = ids.type
    if ids.null_count:
        # One of them is enough for pandas to make decimals of whole numbers: no second complaint.
        missing = _count(ids.null_count, "id is missing", "ids are missing")
        raise InputError(f"{missing} (empty, null or NaN). Fill them in, or drop these rows.")
    if pa.types.is_floating(kind):
        return _whole(ids.cast(pa.float64()))
    if is_whole(kind) or pa.types.is_null(kind):
        try:
            return ids.cast(pa.int64())
        except pa.ArrowInvalid:  # more than 64 bits: still whole numbers
            return ids.cast(_TEXT)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ids.cast(_TEXT)
    raise InputError("ids must be text or whole numbers. Convert the column.")


def is_whole(kind: pa.DataType) -> bool:
    """Whether a column of this type holds whole numbers."""
    return bool(pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0))


def together(sides: Sequence[pa.Array]) -> list[pa.Array]:
    """Ids of several sides in one form: as whole numbers where all are, else as text.

    >>> numbers, words = together([read_ids([7, 12]), read_ids(["007", "12"])])
    >>> numbers.to_pylist(), words.to_pylist()
    (['7', '12'], ['007', '12'])
    """
    if len({side.type for side in sides}) <= 1:
        return list(sides)
    return [side.cast(_TEXT) for side in sides]


def _stacked(parts: Sequence[Identified]) -> Identified:
    ids = together([part.ids for part in parts])
    return Identified(pa.concat_arrays(ids), stack([part.values for part in parts]))


def _to_arrow(values: Any) -> pa.Array:
    try:
        if not isinstance(values, np.ndarray | list | tuple | range | pa.Array | pa.ChunkedArray):
            import narwhals as nw  # here, for arrays and files do without

            native = nw.from_native(values, allow_series=True, pass_through=True)
            values = native.to_arrow() if isinstance(native, nw.Series) else values
        if not isinstance(values, pa.Array | pa.ChunkedArray):
            values = pa.array(values, from_pandas=True)
    except OverflowError:
        raise InputError("ids are too large for a number. Write them as text.") from None
    except (pa.ArrowException, TypeError, ValueError):  # whose reason can quote an id
        raise InputError(
            "ids are no flat column of one kind. Ids are text or whole numbers, not both."
        ) from None
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _whole(ids: pa.Array) -> pa.Array:
    """Whole numbers that are held as decimals, as pandas does where another id was missing."""
    numbers = from_arrow(ids)
    if large := int(np.sum(np.abs(numbers) >= _INEXACT)):  # also infinite ones
        are = _count(large, "id is a decimal", "ids are decimals")
        raise InputError(
            f"{are} of 2^53 or more, where decimals no longer distinguish whole numbers. Read the "
            "column as text, or as whole numbers."
        )
    if broken := int(np.count_nonzero(numbers % 1)):
        are = _count(broken, "id is no whole number", "ids are no whole numbers")
        raise InputError(f"{are}. Check which column holds the id.")
    return ids.cast(pa.int64())


def _count(number: int, one: str, many: str) -> str:
    return f"1 {one}" if number == 1 else f"{number:,} {many}"
