"""Columns at the door: arrays, lists and data-frame columns, each in a form to compute with."""

import re
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedgauge.arrays import Floats
from fedgauge.errors import InputError

Column: TypeAlias = NDArray[Any] | pa.DictionaryArray
Rows = slice | NDArray[np.bool_] | NDArray[np.intp]
_TEXT: Final = (pa.string(), pa.large_string())
_PLAIN: Final = frozenset({bool, int, float, str})  # values that one memo entry can stand for
_KINDS: Final = {bool: "b", int: "iu", float: "f"}
_PLAIN_NUMBER: Final = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
_PERCENT: Final = re.compile(r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))\s*%\s*")


def read_column(name: str, values: Any) -> Column:
    """The values as a flat array, without a copy where that is possible.

    Text in Arrow stays there, each distinct word once: Python objects would take many times as
    much.
    """
    if isinstance(values, pa.Array | pa.ChunkedArray):
        values = _from_arrow(values)
        if isinstance(values, pa.DictionaryArray):
            return values
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InputError(f"{name} has masked rows. Drop them: array.compressed().")
    if not isinstance(values, np.ndarray):
        values = _from_frame(name, values)
    return _flat(name, values)


def read_leniently(name: str, values: Any) -> Column:
    """The values as a flat array in which no row changes what another one holds.

    Masked rows are None. A list of several kinds stays a list of objects, where :func:`read_column`
    would refuse or convert it. Only what is no flat column at all is refused.
    """
    if isinstance(values, np.ma.MaskedArray):
        masked, values = np.ma.getmaskarray(values), np.asarray(values)
        if masked.any():
            values = values.astype(object)
            values[masked] = None
    if not isinstance(values, np.ndarray | list | tuple | pa.Array | pa.ChunkedArray):
        values = _from_frame(name, values, leniently=True)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return _from_arrow_leniently(values)
    if isinstance(values, list | tuple):
        return _from_list(values)
    return _flat(name, values)


def read_only_column(name: str, values: Any) -> Column:
    """The same of a column, and of a frame or an array that has no other one."""
    if isinstance(values, np.ndarray) and values.ndim == 2 and values.shape[1] == 1:
        return read_column(name, values[:, 0])
    if isinstance(values, np.ndarray | list | tuple | pa.Array | pa.ChunkedArray):
        return read_column(name, values)
    import narwhals as nw  # here, for arrays and files do without

    native = nw.from_native(values, allow_series=True, pass_through=True)
    if isinstance(native, nw.DataFrame) and len(native.columns) == 1:
        values = native[native.columns[0]].to_native()
    return read_column(name, values)


def read_table(name: str, values: Any, *, lists: bool) -> tuple[Any, tuple[str, ...]]:
    """An array of a table's columns, and their names; other values come back as they are.

    Tables are frames and, where `lists` are allowed, equally long lists. Numbers that a frame gave
    its columns for want of names are no names.
    """
    if isinstance(values, np.matrix):
        return np.asarray(values), ()
    if isinstance(values, np.ndarray):
        return values, ()
    if hasattr(type(values), "toarray"):
        raise InputError(f"{name} is a sparse array. Pass all its values: array.toarray().")
    if isinstance(values, list | tuple):
        rows = (
            lists
            and bool(values)
            and all(isinstance(row, list | tuple | np.ndarray) for row in values)
        )
        is_table = rows and len({len(row) for row in values}) == 1
        return (np.array(values) if is_table else values), ()
    if not hasattr(type(values), "columns"):  # which a lazy frame would have to find out
        return values, ()
    import narwhals as nw  # here, for arrays and files do without

    try:
        frame = nw.from_native(values, eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError:
        raise InputError(f"{name} has two columns with the same name. Rename one.") from None
    if not isinstance(frame, nw.DataFrame) or len(frame.columns) == 1:
        return values, ()
    names = [*frame.columns]
    unnamed = names == [*range(len(names))]
    return frame.to_numpy(), () if unnamed else tuple(map(str, names))


def floats_of(column: Column) -> Floats:
    """The numbers of a column, NaN where there is none: text that spells one counts as one."""
    if isinstance(column, pa.DictionaryArray):
        codes, words = distinct(column)
        return np.array([*map(_number, words), np.nan]).take(codes)
    if column.dtype.kind in "fiub":
        with np.errstate(all="ignore"):
            return column.astype(np.float64, copy=False)
    if column.dtype.kind in "OUS":
        return np.fromiter(map(_number, column.tolist()), np.float64, len(column))
    raise InputError("y_score holds values that are not numbers. Convert the column to floats.")


def spelled_numbers(name: str, column: pa.Array, decimal: str) -> Floats:
    """The numbers that text spells, NaN where it spells none; 45% is 0.45.

    Arrow casts all rows or none. To read the others in another way would take time that tells of
    one odd row. So Arrow always gets those that it can surely cast, all at once, and Python the
    rest.
    """
    if decimal != ".":
        # A point is then in no number, as where Arrow reads them.
        column = pc.replace_substring(pc.replace_substring(column, ".", "?"), ",", ".")
    plain = pc.match_substring_regex(column, _PLAIN_NUMBER)
    none = pa.nulls(1, column.type)[0]  # one of Python loads pandas, where that is installed
    numbers = filled(pc.if_else(plain, column, none).cast(pa.float64()), np.float64(np.nan)).copy()
    rest = pc.invert(plain)
    numbers[from_arrow(pc.indices_nonzero(rest))] = floats_of(
        read_leniently(name, column.filter(rest))
    )
    return numbers


def distinct(column: Column) -> tuple[NDArray[Any], list[Any]]:
    """Codes of a column's values, -1 where missing, and the values; no row decides on another."""
    if not isinstance(column, pa.DictionaryArray) and not _is_of_one_kind(column):
        return _number_objects(column.tolist())
    try:
        encoded = coded(column)
        return codes_of(encoded), _words(encoded.dictionary)
    except Exception:  # whatever Arrow cannot hold: the other rows must not suffer
        return _number_objects(to_numpy(column).tolist())


def _words(dictionary: pa.Array) -> list[Any]:
    try:
        words: list[Any] = dictionary.to_pylist()
        return words
    except UnicodeDecodeError:
        octets = dictionary.cast(pa.large_binary()).to_pylist()
        return [word.decode(errors="surrogateescape") for word in octets]


def _flat(name: str, values: Any) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, OverflowError):
        raise InputError(f"{name} is not a flat list of values.") from None
    if array.ndim != 1 and name not in ("y_true", "y_score"):
        raise InputError(f"{name} has {array.ndim} dimensions. Pass one value for each example.")
    if array.ndim != 1:
        raise InputError(
            f"{name} has {array.ndim} dimensions; this binary evaluation takes one label "
            "and one score for each example. Pass the column of the positive class."
        )
    return array


def _from_list(values: list[Any] | tuple[Any, ...]) -> NDArray[Any]:
    kinds = set(map(type, values))
    expected = _KINDS.get(kinds.pop(), "") if len(kinds) == 1 else ""
    if expected:
        array = np.asarray(values)
        if array.dtype.kind in expected:  # large whole numbers can come out as floats, all of them
            return array
    return np.fromiter(values, dtype=object, count=len(values))


def _is_of_one_kind(column: NDArray[Any]) -> bool:
    """Whether Arrow holds the values as they are; of several kinds it makes one."""
    if column.dtype.kind != "O":
        return True
    kinds = set(map(type, column)) - {type(None)}
    return len(kinds) <= 1 and kinds <= _PLAIN


def _number_objects(values: list[Any]) -> tuple[NDArray[Any], list[Any]]:
    numbers: dict[Any, int] = {}
    kept: list[Any] = []
    codes = np.empty(len(values), dtype=np.int64)
    for row, value in enumerate(values):
        if type(value) in _PLAIN and value == value:
            code = numbers.setdefault((type(value), value), len(kept))
        else:  # objects of other classes may claim to equal one another: each has its own code
            code = -1 if _is_missing(value) else len(kept)
        if code == len(kept):
            kept.append(value)
        codes[row] = code
    return codes, kept


def are_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of some objects stand for no value."""
    try:
        valid = pa.array(values, from_pandas=True).is_valid()
    except (TypeError, ValueError, OverflowError, pa.ArrowException):  # of several kinds
        return np.fromiter(map(_is_missing, values), dtype=bool, count=len(values))
    return ~from_arrow(valid)


def _is_missing(value: Any) -> bool:
    try:
        return value is None or not pa.scalar(value, from_pandas=True).is_valid
    except Exception:  # no value that Arrow knows, so not one that is missing
        return False


def _number(value: Any) -> float:
    try:
        return float(value)
    except Exception:  # an object can raise anything
        percent = _PERCENT.fullmatch(value) if type(value) is str else None
        # The exponent rounds once, where a division would round again.
        return float(f"{percent[1]}e-2") if percent else np.nan


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
    if chunked:
        array: NDArray[Any] = values.to_numpy()
        return array
    return from_arrow(values)


def from_arrow(values: pa.Array) -> NDArray[Any]:
    """The values in NumPy, without a copy where that is possible."""
    kind = values.type
    if not values.null_count and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return np.from_dlpack(values)  # Arrow's own way loads pandas, where that is installed
    array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return array


def filled(values: pa.Array, missing: np.generic) -> NDArray[Any]:
    """The values in NumPy, of the type of what stands for a missing one."""
    # A scalar of Python loads pandas, where that is installed.
    one = pa.Array.from_buffers(values.type, 1, [None, pa.py_buffer(missing.tobytes())])
    return from_arrow(pc.coalesce(values, one[0]))


def _from_arrow_leniently(values: pa.Array | pa.ChunkedArray) -> Column:
    kind = values.type
    # In NumPy one missing row would make floats of all of them, and the same one of long ids. Also
    # where none is missing: how long that takes would tell.
    if pa.types.is_decimal(kind) or pa.types.is_integer(kind):
        values = values.cast(pa.string())
    return _from_arrow(values)


def _from_frame(name: str, values: Any, *, leniently: bool = False) -> Any:
    import narwhals as nw  # here, for arrays and files do without

    native = nw.from_native(values, allow_series=True, pass_through=True)
    if isinstance(native, nw.DataFrame | nw.LazyFrame):
        several = " For several groupings, map their names to columns." if name == "group" else ""
        raise InputError(f"{name} is a table; pass one column of it.{several}")
    if not isinstance(native, nw.Series):
        return values
    if leniently and native.dtype.is_integer():
        return native.to_arrow()
    return native.to_numpy()


def pick(column: Column, rows: Rows) -> Column:
    """Some rows of a column: a slice is a view; a mask, or places in any order, a copy."""
    if not isinstance(column, pa.DictionaryArray) or isinstance(rows, slice):
        return column[rows]
    return column.filter(pa.array(rows)) if rows.dtype == bool else column.take(pa.array(rows))


def stack(columns: Sequence[Column]) -> Column:
    """Columns one below the other."""
    if len(columns) == 1:
        return columns[0]
    words = [column for column in columns if isinstance(column, pa.DictionaryArray)]
    if len(words) < len(columns):
        return np.concatenate([to_numpy(column) for column in columns])
    return _from_arrow(pa.chunked_array([column.cast(pa.large_string()) for column in words]))


def coded(column: Column) -> pa.DictionaryArray:
    """The column as codes of its distinct values, these in the order in which they appear."""
    if isinstance(column, pa.DictionaryArray):
        # Some of a column's rows have the dictionary of all of them.
        used = column.indices.dictionary_encode()
        return pa.DictionaryArray.from_arrays(used.indices, column.dictionary.take(used.dictionary))
    if column.dtype == np.float16:
        column = column.astype(np.float32)  # not every Arrow encodes halves
    return pa.array(column, from_pandas=True).dictionary_encode()


def codes_of(encoded: pa.DictionaryArray) -> NDArray[Any]:
    """The codes in NumPy, -1 where a value is missing."""
    return filled(encoded.indices, np.int32(-1))


def to_numpy(column: Column) -> NDArray[Any]:
    """The column as NumPy holds it: text as objects, None where it is missing."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode().to_numpy(zero_copy_only=False)
    return column
