"""Lazy frames: rows in a database, a cluster or a plan of Polars, counted there or read in batches.

Whatever narwhals knows: DuckDB relations, ibis tables, lazy frames of Polars, frames of PySpark and
of Dask.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import narwhals as nw
import pyarrow as pa

from fedgauge.data.examples import AlikeRows, Ranks
from fedgauge.data.text_files import OpenTable, Skip, Types
from fedgauge.errors import FedgaugeError, InputError

_BATCH_ROWS: Final = 65_536
_MOST_KINDS: Final = 1 << 20  # of rows that are told apart: fewer are soon fetched
_RANK, _LABEL, _TIMES = "fedgauge_rank", "fedgauge_label", "fedgauge_times"


class LazyRows:
    """The rows of a lazy frame."""

    def __init__(self, frame: "nw.LazyFrame[Any]") -> None:
        self._frame = frame
        with _telling("the columns of the lazy frame cannot be read"):
            self._schema = frame.collect_schema()

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return self._schema.names()

    def __call__(self, types: Types, skip: Skip) -> OpenTable:
        """Some of its columns, batch after batch, in as little memory as the library allows."""
        del skip  # all rows have all columns

        def batches() -> Iterator[pa.RecordBatch]:
            with _telling("the rows of the lazy frame cannot be read"):
                yield from _batches(self._frame.select(*types))

        none = self._frame.select(*types).head(0)
        with _telling("the columns of the lazy frame cannot be read"):
            return OpenTable(none.collect("pyarrow").to_native().schema, batches())

    def counted(self, label: str, score: str, ranks: Ranks) -> AlikeRows | None:
        """How many rows there are of each label and rank, counted where they are.

        None where the ranks have no short expression, where the score is not of a type whose cast
        to floats is exact and fails for no row, or where a library lacks a part of it.
        """
        kind = self._schema[score]
        of_text = self._frame.implementation.is_ibis()
        place = ranks.rank(nw.col(score).cast(nw.Float64()), _spelled if of_text else nw.lit)
        if place is None or not (kind.is_float() or kind.is_integer()):
            return None
        try:
            counts = (
                self._frame.select(place.alias(_RANK), nw.col(label).alias(_LABEL))
                .group_by(_RANK, _LABEL)
                .agg(nw.len().alias(_TIMES))
                .head(_MOST_KINDS + 1)
                .collect("pyarrow")
                .to_native()
            )
        except Exception:  # what really is wrong shows again where rows are read
            return None
        if len(counts) > _MOST_KINDS:
            return None
        rank, times = (counts[name].cast(pa.int64()).to_numpy() for name in (_RANK, _TIMES))
        return AlikeRows(counts[_LABEL], rank, times)

    def distinct(self, column: str) -> pa.Array:
        """The distinct values of a column, null among them if one is missing."""
        with _telling("the rows of the lazy frame cannot be read"):
            values = self._frame.select(column).unique().collect("pyarrow").to_native()
            return values.combine_chunks()[column].combine_chunks()


def _spelled(number: float) -> nw.Expr:
    """A number in the text of a query: DuckDB, for one, takes 0.9999999999999999 for a decimal."""
    return nw.lit(repr(number)).cast(nw.Float64())


@contextmanager
def _telling(told: str) -> Iterator[None]:
    """Refuse what a library refuses, without its words: they can quote a row."""
    try:
        yield
    except FedgaugeError:
        raise
    except Exception as error:
        raise InputError(
            f"{told}: {type(error).__name__}. Try it outside of fedgauge: collect() it."
        ) from None


def _batches(frame: "nw.LazyFrame[Any]") -> Iterator[pa.RecordBatch]:
    native: Any = frame.to_native()
    kind = frame.implementation
    if kind.is_duckdb():
        yield from native.to_arrow_reader(_BATCH_ROWS)
    elif kind.is_ibis():
        yield from native.to_pyarrow_batches(chunk_size=_BATCH_ROWS)
    elif kind.is_polars():
        for part in native.collect_batches(chunk_size=_BATCH_ROWS):
            yield from part.to_arrow().to_batches()
    elif kind.is_dask():
        for place in range(native.npartitions):
            part = nw.from_native(native.partitions[place].compute(), eager_only=True)
            yield from part.to_arrow().to_batches(_BATCH_ROWS)
    elif kind.is_pyspark() or kind.is_pyspark_connect():
        rows = native.toLocalIterator()
        while some := [tuple(row) for row in itertools.islice(rows, _BATCH_ROWS)]:
            columns = zip(*some, strict=True)
            yield pa.record_batch(dict(zip(frame.columns, map(pa.array, columns), strict=True)))
    else:
        yield from frame.collect("pyarrow").to_native().to_batches(_BATCH_ROWS)
