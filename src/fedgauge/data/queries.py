"""Rows in a database: what a query returns over any connection of DB-API 2.0 or ADBC."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from fedgauge.data.examples import AlikeRows, Examples, Ranks, RowSource
from fedgauge.data.files import (
    GroupColumns,
    LabelColumns,
    NamedColumns,
    ScoreColumns,
    check_columns,
    check_distinct,
    check_schema,
)
from fedgauge.errors import FedgaugeError, InputError, located

_BATCH_ROWS: Final = 65_536
_DATABASE: Final = "FEDGAUGE_DATABASE"
_QUERY: Final = "the query"  # as errors call it
_REAL: Final = 700  # PostgreSQL's number of 32-bit floats
_EXACT: Final = frozenset({20, 21, 23, _REAL, 701})  # its whole numbers and floats
_NOT_LENIENT: Final = "SQLite"  # over ADBC, which gives up where a row is of another type
# The site's own query, with numbers alone put into it.
_COUNTING: Final = """\
select {rank}, {label}, count(*)
from (
{query}
) as scores ({columns})
group by 1, 2"""

_RUN_IT: Final = "Run it outside of fedgauge to see why"
_NOT_INSIDE: Final = "Counting inside is for PostgreSQL alone: elsewhere leave inside=True out"

Rows: TypeAlias = pa.RecordBatch | Mapping[str, list[Any]]


class ScoreQuery(RowSource):
    """The labels and scores of one client in a database: the rows that a query returns.

    Rows are read in batches, in Arrow where the driver has it (ADBC, DuckDB). Errors show neither
    a row nor what a driver says of one.

    Parameters
    ----------
    connection
        An open connection of DB-API 2.0 or ADBC, or a function that opens one. That is called, and
        its connection closed, each time rows are read.
    query
        What to run, in the database's SQL. It is never changed, but for being put in brackets.
    label, score, group, subject
        Names of columns of the result, as for :class:`ScoreFile`. Without them the result must have
        two columns, the label and the score.
    inside
        On PostgreSQL, count rows in the database, so that only counts leave it. The score must be
        of a whole or floating type; a plan that counts more than one label and one score of a row
        reads rows all the same.

    Examples
    --------
    >>> import sqlite3
    >>> connection = sqlite3.connect(":memory:")
    >>> _ = connection.execute("create table scores (y, p)")
    >>> _ = connection.executemany("insert into scores values (?, ?)", [(0, 0.2), (1, 0.9)])
    >>> fg.evaluate({"a": ScoreQuery(connection, "select y, p from scores")}).roc_auc.value
    1.0
    """

    def __init__(
        self,
        connection: Any,
        query: str,
        *,
        label: LabelColumns | None = None,
        score: ScoreColumns | None = None,
        group: GroupColumns = None,
        subject: str | None = None,
        inside: bool = False,
    ) -> None:
        if not (callable(connection) or callable(getattr(connection, "cursor", None))):
            raise InputError(
                "connection must be an open connection of DB-API 2.0 or ADBC, or a function that "
                f"opens one, got {type(connection).__name__}."
            )
        if not isinstance(query, str) or not query.strip():
            raise InputError("query must be text, such as 'select y, p from scores'.")
        if (label is None) != (score is None):
            raise InputError("name the columns of both, label and score, or of none of them.")
        self._connection = connection
        self._query = query.strip().rstrip(";")
        self._named = None
        if label is not None and score is not None:
            self._named = NamedColumns.read(label, score, group, subject)
            check_distinct(self._named.all)
        elif group is not None or subject is not None:
            raise InputError("where group or subject is named, name label and score, too.")
        self._inside = inside

    def __str__(self) -> str:
        return _QUERY

    def __call__(self) -> Iterator[Examples]:
        """The examples, batch after batch."""
        for columns, rows in self._batches():
            if isinstance(rows, Mapping):
                yield columns.row_examples(rows, leniently=False)
            else:
                yield columns.examples(rows)

    def leniently(self, skip: Callable[[], None]) -> Iterator[Examples]:
        """The examples, whatever a row holds; a query itself may still fail at one."""
        del skip  # all rows have all columns
        for columns, rows in self._batches(leniently=True):
            if isinstance(rows, Mapping):
                yield columns.row_examples(rows, leniently=True)
            else:
                yield columns.lenient_examples(rows)

    def check(self) -> None:
        """Refuse columns that are not there or, where the driver names types, of a wrong type."""
        with located(_QUERY), self._connected() as connection:
            _refuse_strict(connection)
            with _run(connection, self._query) as cursor:
                reader = _arrow_reader(cursor)
                columns = self._columns(_names(cursor) if reader is None else reader.schema.names)
                if reader is not None:
                    check_schema(_stored_types(reader.schema), columns)
            if self._inside:
                self._checked_inside(connection)

    def counted(self, ranks: Ranks) -> AlikeRows | None:
        """The rows, counted in the database, if that was asked for and is possible."""
        if not self._inside:
            return None
        with self._connected() as connection:
            return self._counted_by(connection, ranks)

    def _counted_by(self, connection: Any, ranks: Ranks) -> AlikeRows | None:
        names = self._checked_inside(connection)
        columns = self._columns(names)
        if (len(columns.labels), len(columns.numbers)) != (1, 1):
            return None
        label, score = (names.index(name) for name in (*columns.labels, *columns.numbers))
        query = counting_query(self._query, ranks, label, score, len(names))
        with _run(connection, query, _NOT_INSIDE) as cursor:
            found = cursor.fetchall()
        rank, labels, times = zip(*found, strict=True) if found else ((), (), ())
        return AlikeRows(
            np.fromiter(labels, dtype=object, count=len(labels)),
            np.array([ranks.rank_of_missing if each is None else each for each in rank], np.int64),
            np.array(times, dtype=np.int64),
        )

    def _checked_inside(self, connection: Any) -> list[str]:
        """The names of columns; refuses scores whose cast to floats can fail, or is not exact."""
        none = f"select * from (\n{self._query}\n) as scores where false"  # noqa: S608  (its own)
        with _run(connection, none) as cursor:
            names, kinds = _names(cursor), [each[1] for each in cursor.description]
        for score in self._columns(names).numbers:
            if not _is_exact(kinds[names.index(score)]):
                raise InputError(
                    f"column {score!r} is of no whole or floating type of PostgreSQL, so it is not "
                    "counted inside. Cast it in the query, or leave inside=True out."
                )
        return names

    def _columns(self, names: Sequence[str]) -> NamedColumns:
        """The columns that examples are made of; refuses those that are not there."""
        if self._named is not None:
            check_columns(self._named.all, names)
            return self._named
        if len(names) != 2:
            raise InputError(
                f"the query returns {len(names)} columns. Return two, the label and the score, or "
                "name them (label=..., score=...)."
            )
        check_columns(names, names)
        return NamedColumns.read(names[0], names[1])

    def _batches(self, *, leniently: bool = False) -> Iterator[tuple[NamedColumns, Rows]]:
        with self._connected() as connection:
            if leniently:
                _refuse_strict(connection)  # first: PostgreSQL answers nothing while it sends rows
            with _run(connection, self._query) as cursor:
                reader = _arrow_reader(cursor)
                names = _names(cursor) if reader is None else reader.schema.names
                columns = self._columns(names)
                if reader is not None:
                    for batch in reader:
                        yield columns, _stored(batch)
                else:
                    while rows := cursor.fetchmany(_BATCH_ROWS):
                        yield columns, _by_column(cursor, names, rows)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """The connection, closed afterwards if it was opened here."""
        if callable(getattr(self._connection, "cursor", None)):
            yield self._connection
            return
        with _telling("there is no connection to the database", "Check FEDGAUGE_DATABASE"):
            connection = self._connection()
        with closing(connection):
            yield connection


def connect_by_environment() -> Any:
    """The connection that the environment variable FEDGAUGE_DATABASE names.

    ``postgresql://...`` (also of a service file: ``postgresql:///?service=scores``),
    ``sqlite:///path``, ``duckdb:///path``, or ``module:function`` for a function that opens one.
    """
    named = os.environ.get(_DATABASE, "")
    scheme, _, rest = named.partition(":")
    if scheme in ("postgresql", "postgres"):
        try:
            return import_module("adbc_driver_postgresql.dbapi").connect(named)
        except ImportError:
            return import_module("psycopg").connect(named)
    path = rest.removeprefix("//").partition("?")[0]
    if scheme == "sqlite" and path:
        return import_module("sqlite3").connect(
            f"{Path(path).absolute().as_uri()}?mode=ro", uri=True
        )
    if scheme == "duckdb" and path:
        return import_module("duckdb").connect(path, read_only=True)
    if scheme and rest.isidentifier():
        return getattr(import_module(scheme), rest)()
    raise InputError(
        f"set {_DATABASE} to the database: postgresql://..., sqlite:///path, duckdb:///path, or "
        "module:function for a function of yours that opens a connection."
    )


def counting_query(query: str, ranks: Ranks, label: int, score: int, columns: int) -> str:
    """The query that counts the rows of another one on PostgreSQL, by rank of score and label.

    `label` and `score` are places among so many `columns`. Nothing enters its text but the other
    query and numbers.
    """
    names = [f"c{place + 1}" for place in range(columns)]
    return _COUNTING.format(
        rank=ranks.in_postgres(names[score]),
        label=names[label],
        query=query,
        columns=", ".join(names),
    )


@contextmanager
def _run(connection: Any, query: str, remedy: str = _RUN_IT) -> Iterator[Any]:
    """A cursor that has run the query."""
    with _telling("the query failed", remedy), closing(_cursor(connection)) as cursor:
        cursor.execute(query)
        if cursor.description is None:
            raise InputError("the query returns no rows. It must begin with select or with.")
        yield cursor


def _refuse_strict(connection: Any) -> None:
    """Refuse a driver that gives up for one odd row, where silence would tell of it."""
    info: Any = getattr(connection, "adbc_get_info", dict)()
    if info.get("vendor_name") == _NOT_LENIENT:
        raise InputError(
            "the ADBC driver of SQLite stops at a value of another type, so a site's silence would "
            "tell of it. Connect by Python's module sqlite3."
        )


def _cursor(connection: Any) -> Any:
    """A cursor whose rows come in batches: psycopg's usual one holds all of them."""
    if type(connection).__module__.partition(".")[0].startswith("psycopg"):
        return connection.cursor("fedgauge", withhold=bool(connection.autocommit))
    return connection.cursor()


def _arrow_reader(cursor: Any) -> Any:
    """Rows as batches of Arrow; None where the driver has none."""
    for name in ("to_arrow_reader", "fetch_record_batch"):
        if callable(getattr(cursor, name, None)):
            return getattr(cursor, name)()
    return None


def _stored_types(schema: pa.Schema) -> pa.Schema:
    kinds = (getattr(kind, "storage_type", kind) for kind in schema.types)
    return pa.schema(zip(schema.names, kinds, strict=True))


def _stored(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same, with values of types that are unknown to Arrow as they were sent."""
    for place, column in enumerate(batch.columns):
        if isinstance(column.type, pa.BaseExtensionType):
            batch = batch.set_column(place, batch.schema.names[place], column.storage)
    return batch


def _names(cursor: Any) -> list[str]:
    return [str(each[0]) for each in cursor.description]


def _is_exact(kind: Any) -> bool:
    """Whether the cast of a type to floats is exact, and fails for no row."""
    if isinstance(kind, pa.DataType):
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
    return kind in _EXACT


def _by_column(cursor: Any, names: Sequence[str], rows: Sequence[Any]) -> dict[str, list[Any]]:
    if isinstance(rows[0], Mapping):
        columns = {name: [row[name] for row in rows] for name in names}
    else:
        columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    for name, kind in zip(names, cursor.description, strict=True):
        if kind[1] == _REAL:
            # Read from their shortest digits, these are other numbers than the column holds.
            columns[name] = [
                float(np.float32(value)) if isinstance(value, float) else value
                for value in columns[name]
            ]
    return columns


@contextmanager
def _telling(what: str, remedy: str) -> Iterator[None]:
    """Refuse what a driver refuses, without its words: they can quote a row."""
    try:
        yield
    except FedgaugeError:
        raise
    except Exception as error:
        raise InputError(f"{what}: {type(error).__name__}. {remedy}.") from None
