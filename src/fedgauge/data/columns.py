"""Columns at the door: arrays, lists and data-frame columns, each in a form to compute with."""

from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedgauge.errors import InputError

Column: TypeAlias = NDArray[Any] | pa.DictionaryArray
Rows = slice | NDArray[np.bool_] | NDArray[np.intp]
_TEXT: Final = (pa.string(), pa.large_string())


def read_column(name: str, values: Any) -> Column:
    """The values as a flat array, without a copy where that is possible.

    Text in Arrow stays there, each distinct word once: as Python objects it would cost many
    times as much.
    """
    if isinstance(values, pa.Array | pa.ChunkedArray):
        values = _from_arrow(values)
        if isinstance(values, pa.DictionaryArray):
            return values
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InputError(f"{name} has masked rows. Drop them: array.compressed().")
    if not isinstance(values, np.ndarray):
        values = _from_frame(name, values)
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


def _from_arrow(values: pa.Array | pa.ChunkedArray) -> Column:
    kind, chunked = values.type, isinstance(values, pa.ChunkedArray)
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        # Of one chunk, and missing nowhere but in the codes.
        if kind in _TEXT and not chunked and not values.dictionary.null_count:
            return values
        # ChunkedArray.to_numpy gives a null the last value of the dictionary (pyarrow 26).
        values = values.cast(kind)
    if kind in _TEXT:
        encoded = values.dictionary_encode()
        return encoded.combine_chunks() if chunked else encoded
    array: NDArray[Any] = values.to_numpy() if chunked else values.to_numpy(zero_copy_only=False)
    return array


def _from_frame(name: str, values: Any) -> Any:
    import narwhals as nw  # here, for arrays and files do without

    native = nw.from_native(values, allow_series=True, pass_through=True)
    if isinstance(native, nw.DataFrame | nw.LazyFrame):
        raise InputError(f"{name} is a table; pass one column of it.")
    return native.to_numpy() if isinstance(native, nw.Series) else values


def pick(column: Column, rows: Rows) -> Column:
    """Some rows of a column: a slice is a view; a mask, or places in any order, a copy."""
    if not isinstance(column, pa.DictionaryArray) or isinstance(rows, slice):
        return column[rows]
    return column.filter(pa.array(rows)) if rows.dtype == bool else column.take(pa.array(rows))


def coded(column: Column) -> pa.DictionaryArray:
    """The column as codes of its distinct values, these in the order in which they appear."""
    if isinstance(column, pa.DictionaryArray):
        # Some of a column's rows have the dictionary of all of them.
        used = column.indices.dictionary_encode()
        return pa.DictionaryArray.from_arrays(used.indices, column.dictionary.take(used.dictionary))
    if column.dtype == np.float16:
        column = column.astype(np.float32)  # not every Arrow encodes halves
    return pa.array(column, from_pandas=True).dictionary_encode()


def to_numpy(column: Column) -> NDArray[Any]:
    """The column as NumPy holds it: text as objects, None where it is missing."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode().to_numpy(zero_copy_only=False)
    return column
