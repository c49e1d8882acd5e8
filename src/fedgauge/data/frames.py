"""Data frames with the rows of many clients: pandas, polars or pyarrow to batches."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedgauge.data.columns import distinct, read_column
from fedgauge.data.examples import Examples
from fedgauge.data.named_columns import NamedColumns
from fedgauge.errors import InputError

_BATCH_ROWS: Final = 65_536
_NESTED: Final = (list, tuple, dict, set, np.ndarray)


def frame_of(source: Any) -> Any:
    """The source as a data frame; None where it is none, such as a path or several of them."""
    if isinstance(source, str | Path | list | tuple):
        return None  # before narwhals is loaded, which files do without
    import narwhals as nw

    try:
        frame = nw.from_native(source, pass_through=True)
    except ValueError:  # the one thing it asks of a table: names that are unique
        raise InputError(
            "the data frame has columns of the same name. Rename all but one of each."
        ) from None
    if isinstance(frame, nw.LazyFrame):
        raise InputError("the data frame is lazy, and has no rows yet. Call collect() on it first.")
    return frame if isinstance(frame, nw.DataFrame) else None


def frame_batches(
    frame: Any, client: str, columns: NamedColumns
) -> Iterator[tuple[NDArray[Any], Examples]]:
    """Batches of examples, each with the name of every row's client."""
    names = names_of(client, frame[client].to_native(), "client")
    for number, batch in enumerate(columns.frame_examples(frame).split(_BATCH_ROWS)):
        start = number * _BATCH_ROWS
        yield names[start : start + len(batch)], batch


def no_client(column: str, rows: str, what: str = "client") -> str:
    """What to say of rows that name no client."""
    return f"column {column!r} names no {what} in {rows}. Fill them in or drop them."


def no_names(column: str) -> str:
    """What to say of a column whose values are no names."""
    return f"column {column!r} holds lists, not names."


def names_of(column: str, values: Any, what: str) -> NDArray[Any]:
    """The name in each row, of a client or whatever else it is."""
    codes, words = distinct(read_column(column, values))
    if missing := int(np.count_nonzero(codes < 0)):
        raise InputError(no_client(column, "1 row" if missing == 1 else f"{missing:,} rows", what))
    if any(isinstance(word, _NESTED) for word in words):
        raise InputError(no_names(column))
    chosen: NDArray[Any] = np.array([str(word) for word in words], dtype=object)[codes]
    return chosen
