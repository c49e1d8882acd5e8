"""Files of rows and data frames, read in batches; which columns hold labels and scores."""

import difflib
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedgauge.arrays import Floats
from fedgauge.data.columns import (
    Column,
    distinct,
    filled,
    floats_of,
    pick,
    read_column,
    read_leniently,
    spelled_numbers,
    to_numpy,
)
from fedgauge.data.examples import (
    AlikeRows,
    Examples,
    Label,
    Ranks,
    RowSource,
    meaning,
    numbers_of,
)
from fedgauge.data.text_files import (
    TEXT,
    UTF8,
    Dialect,
    OpenTable,
    Skip,
    Text,
    Types,
    check_header,
    not_numbers,
    open_text,
    read_numbers,
)
from fedgauge.errors import InputError, located
from fedgauge.storage import NOT_REGULAR, open_regular

_BATCH_ROWS: Final = 65_536
_BLOCK_BYTES: Final = 1 << 20
_OTHER_DELIMITERS: Final = (";", "\t", "|", ",")
_MOST_NAMES: Final = 30
_MOST_LOOKED_INTO: Final = 100  # files, for an error message
# Of Parquet: rows that are all alike take hardly any bytes, and no scores are.
_FEW_ROWS: Final = 1 << 24
_FEW_BYTES: Final = 1 << 28
_MOST_PER_BYTE: Final = 100
_GZIP: Final = b"\x1f\x8b"
_PARQUET: Final = (".parquet", ".pq")
WORDS: Final = pa.dictionary(pa.int32(), pa.string())  # labels, ids, names: few, and often again


def check_file(path: Path, columns: Sequence[str], dialect: Dialect) -> Text | None:
    """Refuse a file that cannot be read, or lacks one of the columns; None if it is no text."""
    checked_opener(path, columns, dialect)
    ending = ending_of(path)
    return None if ending in _PARQUET else dialect.text(path, ending)


def ending_of(path: Path) -> str:
    """What the name of a file says about its format, that it is compressed aside."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"] and len(suffixes) > 1
    return suffixes[-2] if packed else path.suffix.lower()


Opener = Callable[[Types, Skip], OpenTable]


def checked_opener(path: Path, columns: Sequence[str], dialect: Dialect) -> Opener:
    """How to open the file; refuses what can be refused before reading rows."""
    check_distinct(columns)
    with located(str(path)):
        opener = _opener(path, dialect)
        check_columns(columns, _names_in(opener))
    return opener


def column_names(path: Path, dialect: Dialect) -> list[str]:
    """The names of all columns of a file."""
    with located(str(path)):
        return _names_in(_opener(path, dialect))


def _names_in(opener: Opener) -> list[str]:
    try:
        # Rows may be malformed; whether that matters is for who reads them to say.
        names: list[str] = opener({}, lambda: None).schema.names
    except UnicodeDecodeError:  # in Parquet; text is checked before
        raise InputError("a column has a name that is no text. Export the file again.") from None
    return names


def _opener(path: Path, dialect: Dialect) -> Opener:
    start = _start(path)
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InputError(
            "its name is not UTF-8, and Arrow opens no such file. Rename it."
        ) from None
    ending, is_gzip = ending_of(path), path.suffix.lower() == ".gz"
    is_parquet = start.startswith(b"PAR1")
    if ending in _PARQUET:
        if not is_parquet:
            raise InputError(
                "this is not a Parquet file, although its name says so. Export it again."
            )
        if dialect != Dialect():
            raise InputError(
                "only text files have a separator, a decimal mark and an encoding. Leave "
                "(separator=...), (decimal=...) and (encoding=...) out for Parquet files."
            )
        return lambda types, _: _open_parquet(path, types)
    if ending in TEXT:
        if is_parquet:
            raise InputError("this is a Parquet file, not CSV. Rename it to end in .parquet.")
        if not is_gzip and start.startswith(_GZIP):
            raise InputError("this is a gzip file. Rename it to end in .gz.")
        if is_gzip and not start.startswith(_GZIP):
            raise InputError("this is not a gzip file, although its name says so. Export it again.")
        text = dialect.text(path, ending)
        check_header(text)
        return lambda types, skip: open_text(text, types, skip)
    raise InputError(
        f"cannot tell the format from the ending {path.suffix!r}: use .csv, .tsv, .parquet or "
        ".xlsx."
    )


def _start(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            start = file.read(4)
    except FileNotFoundError:
        raise InputError("there is no such file. Check its name and folder.") from None
    except IsADirectoryError:
        raise InputError(
            "this is a folder. Name the files in it, e.g. with a * pattern, or pass it to "
            "ScoreTable."
        ) from None
    except OSError as error:
        more = " Rows are read more than once: save them to a file." * (
            error.strerror == NOT_REGULAR
        )
        raise InputError(f"cannot be read: {error.strerror}.{more}") from None
    if not start:
        raise InputError("the file is empty (0 bytes). Export it again.")
    return start


def _open_parquet(path: Path, types: Types) -> OpenTable:
    import pyarrow.parquet as pq  # here, for it takes a while and most files are CSV

    try:
        metadata = pq.read_metadata(path)
        flat = {metadata.schema.column(i).path for i in range(metadata.num_columns)}
        # Buffered, not pre-buffered: pages are read as they are needed.
        file = pq.ParquetFile(
            path,
            metadata=metadata,
            read_dictionary=[name for name in flat if types.get(name) == WORDS],
            buffer_size=_BLOCK_BYTES,
            pre_buffer=False,
        )
        # Not of single columns: what PyArrow throws there ends the process.
        groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    except (pa.ArrowException, OSError):
        raise InputError("the Parquet file is damaged or cut short. Export it again.") from None
    most = _MOST_PER_BYTE * path.stat().st_size
    if metadata.num_rows > _FEW_ROWS + most or any(
        group.total_byte_size > _FEW_BYTES + most for group in groups
    ):
        raise InputError(
            "the Parquet file claims to hold more rows than fit in its bytes. Export it again."
        )

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for batch in file.iter_batches(_BATCH_ROWS, columns=list(types), use_threads=False):
                for column in batch.columns:
                    if pa.types.is_dictionary(column.type):  # whose places nobody checked
                        pa.DictionaryArray.from_arrays(column.indices, column.dictionary)
                yield batch
        except (pa.ArrowException, OSError):
            raise InputError("the Parquet file is damaged. Export it again.") from None

    return OpenTable(file.schema_arrow, batches())


def check_distinct(columns: Sequence[str]) -> None:
    """Refuse one column in two places."""
    twice = [repr(name) for name, times in Counter(columns).items() if times > 1]
    if twice:
        listed = ", ".join(twice)
        raise InputError(
            f"one column cannot be two things, and {listed} is named more than once. Name "
            "different columns."
        )


def check_columns(wanted: Sequence[str], present: Sequence[str]) -> None:
    """Refuse a column that is not there, or there twice."""
    seen = Counter(present)
    for name in wanted:
        if not seen[name]:
            raise InputError(f"there is no column {name!r}. {list_columns(present, name)}")
        if seen[name] > 1:
            raise InputError(f"{seen[name]} columns are named {name!r}. Rename all but one.")


def check_plain(schema: pa.Schema, columns: Iterable[str]) -> None:
    """Refuse a column of lists."""
    for name in columns:
        if pa.types.is_nested(schema.field(name).type):
            raise InputError(f"column {name!r} holds lists. Name a column of plain values.")


def list_columns(names: Sequence[str], wanted: str = "") -> str:
    """Which columns there are, and which is like the wanted one; never values of a row."""
    # Without a header the first row, a person's label and score, stands in its place.
    other = next((sign for sign in _OTHER_DELIMITERS if len(names) == 1 and sign in names[0]), None)
    if any(_is_number(part) for name in names for part in (name.split(other) if other else [name])):
        return "The first row looks like data: add a row with the names of the columns."
    if other is not None:
        return (
            f"The header is one column that holds {other!r}. If that is the separator, name it "
            "(separator=...)."
        )
    shown = ", ".join(repr(name) for name in names[:_MOST_NAMES])
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    plain = {name.strip().casefold(): name for name in names}
    like = difflib.get_close_matches(wanted.strip().casefold(), plain, n=1)
    meant = f"Did you mean {plain[like[0]]!r}? " if like else ""
    return f"{meant}The columns are {shown}{more}."


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class Respelled(NamedTuple):
    """Labels as a file spells them, where its plan does it otherwise.

    `planned` is the plan's positive label, None for 1. Without a `negative` label all others are.
    """

    positive: Label
    negative: Label | None
    planned: Label | None

    def translated(self, column: Any) -> pa.DictionaryArray:
        """The labels as the plan spells them, each by itself, whatever the others are."""
        codes, words = distinct(read_leniently("y_true", column))
        mapped = pa.array([self._translated(word) for word in words], pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32(), mask=codes < 0), mapped)

    def _translated(self, word: Any) -> str:
        try:
            means = meaning(word)
        except (InputError, ArithmeticError, ValueError):
            return "neither"
        if means == meaning(self.positive):
            return str(1 if self.planned is None else self.planned)
        if self.negative is None or means == meaning(self.negative):
            return "0" if self.planned is None else f"not {self.planned}"
        return "neither"


LabelColumns = str | Sequence[str]
ScoreColumns = str | Sequence[str] | Mapping[str, str | Sequence[str]]
GroupColumns = str | Mapping[str, str] | None
Get = Callable[[str], Any]


class NamedColumns(NamedTuple):
    """Names of the columns that examples are made of, and what stands before decimals.

    `scores` are by model, `groups` by grouping, None where there is one that has no name. With
    several classes a model has several columns; with several labels there are as many.
    """

    labels: tuple[str, ...]
    scores: tuple[tuple[str | None, tuple[str, ...]], ...]
    groups: tuple[tuple[str | None, str], ...] = ()
    subject: str | None = None
    decimal: str = "."
    respelled: "Respelled | None" = None

    @classmethod
    def read(
        cls,
        label: LabelColumns,
        score: ScoreColumns,
        group: GroupColumns = None,
        subject: str | None = None,
        decimal: str = ".",
        respelled: "Respelled | None" = None,
    ) -> "NamedColumns":
        """The columns as a user names them."""
        by_model = score if isinstance(score, Mapping) else {None: score}
        by_grouping = group if isinstance(group, Mapping) else {None: group} if group else {}
        scores = tuple((name, _several("score", each)) for name, each in by_model.items())
        groups = tuple((name, _one("group", each)) for name, each in by_grouping.items())
        if len({len(columns) for _, columns in scores}) != 1:
            raise InputError(
                "score must name as many columns for each model, in the order of the classes."
            )
        return cls(_several("label", label), scores, groups, subject, decimal, respelled)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns of scores."""
        return tuple(name for _, columns in self.scores for name in columns)

    @property
    def words(self) -> tuple[str, ...]:
        """All others."""
        groups = (name for _, name in self.groups)
        return (*self.labels, *groups, *([self.subject] if self.subject else []))

    @property
    def all(self) -> tuple[str, ...]:
        """The columns to read."""
        return self.numbers + self.words

    @property
    def types(self) -> dict[str, pa.DataType]:
        """What each is read as in a text file."""
        return dict.fromkeys(self.all, WORDS) | dict.fromkeys(self.numbers, pa.float64())

    @property
    def lenient_types(self) -> Types:
        """The same where a score that is no number, being text, spoils no other."""
        return self.types | dict.fromkeys(self.numbers, pa.string())

    def examples(self, batch: pa.RecordBatch) -> Examples:
        """The examples of one batch of rows."""

        def scores_of(name: str) -> Floats:
            column = batch[name]
            if is_text(column.type):
                return read_numbers(name, column.cast(pa.string()), ".")
            return _scores_of(name, column, ".")

        return self._made(Examples, batch.__getitem__, scores_of, read_column)

    def lenient_examples(self, batch: pa.RecordBatch) -> Examples:
        """The same of rows that may hold anything."""

        def scores_of(name: str) -> Floats:
            return self.lenient_scores(name, batch[name])

        return self._made(Examples.leniently, batch.__getitem__, scores_of, read_leniently)

    def row_examples(self, columns: Mapping[str, list[Any]], *, leniently: bool) -> Examples:
        """The examples of rows whose columns are lists, as a database returns them."""

        def values_of(name: str) -> Column:
            return read_leniently(name, columns[name])

        def scores_of(name: str) -> Floats:
            with located(f"column {name!r}"):
                return numbers_of(values_of(name))

        if leniently:
            return self._made(
                Examples.leniently, values_of, lambda n: floats_of(values_of(n)), read_leniently
            )
        return self._made(Examples, values_of, scores_of, read_column)

    def lenient_frame_examples(self, frame: Any) -> Examples:
        """The examples of a data frame whose rows may hold anything."""

        def values_of(name: str) -> Any:
            return frame[name].to_native()

        def scores_of(name: str) -> Floats:
            return floats_of(read_leniently("y_score", values_of(name)))

        return self._made(Examples.leniently, values_of, scores_of, read_leniently)

    def frame_examples(self, frame: Any) -> Examples:
        """The examples of a data frame."""

        def values_of(name: str) -> Any:
            return frame[name].to_native()

        def scores_of(name: str) -> Floats:
            with located(f"column {name!r}"):
                return numbers_of(read_column("y_score", values_of(name)))

        return self._made(Examples, values_of, scores_of, read_column)

    def _made(
        self,
        make: Callable[..., Examples],
        values_of: Get,
        scores_of: Get,
        read: Callable[[str, Any], Column],
    ) -> Examples:
        labels = [values_of(name) for name in self.labels]
        if self.respelled is not None:
            labels = [self.respelled.translated(each) for each in labels]
        if len(labels) > 1:
            labels = [_side_by_side([read("y_true", each) for each in labels])]
        scores = {model: _table([scores_of(n) for n in names]) for model, names in self.scores}
        groups = {grouping: values_of(name) for grouping, name in self.groups}
        return make(
            labels[0],
            scores.get(None, scores),
            group=groups.get(None, groups) if groups else None,
            subject=values_of(self.subject) if self.subject else None,
        )

    def lenient_scores(self, name: str, column: pa.Array) -> Floats:
        """The scores, NaN where there is no number; only a type that has none is refused."""
        return _scores_of(name, column, self.decimal)


def _scores_of(name: str, column: pa.Array, decimal: str) -> Floats:
    """The numbers of a column, NaN where there is none; only a type that has none is refused."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if is_text(kind):
        return spelled_numbers(name, column.cast(kind), decimal)
    if pa.types.is_decimal(kind):
        # Arrow's own cast of decimals misses the nearest float by one, in every second case.
        return spelled_numbers(name, column.cast(pa.string()), ".")
    try:
        # Unsafe: a whole number that floats cannot tell from the next one is near enough.
        numbers = column.cast(kind).cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(not_numbers(name)) from None
    return filled(numbers, np.float64(np.nan))


def is_text(kind: pa.DataType) -> bool:
    """Whether a column holds text, each word once or not."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _several(what: str, columns: Any) -> tuple[str, ...]:
    if isinstance(columns, str):
        return (columns,)
    if not isinstance(columns, Sequence) or not columns:
        raise InputError(f"{what} must name a column, or several in a list.")
    return tuple(_one(what, each) for each in columns)


def _one(what: str, column: Any) -> str:
    if not isinstance(column, str):
        raise InputError(f"{what} must name columns by text, got {type(column).__name__}.")
    return column


def _table(columns: list[Any]) -> Any:
    """Scores side by side; a column alone stays one."""
    if len(columns) == 1:
        return columns[0]
    # Columns stay contiguous, as they are counted one by one.
    return np.stack([numbers_of(read_column("y_score", each)) for each in columns]).T


def _side_by_side(columns: list[Column]) -> NDArray[Any]:
    """Labels of which none becomes another by what stands beside it."""
    arrays = [to_numpy(column) for column in columns]
    kinds = {array.dtype for array in arrays}
    table = np.empty((len(arrays), len(arrays[0])), kinds.pop() if len(kinds) == 1 else object)
    for row, array in zip(table, arrays, strict=True):
        row[:] = array
    return table.T


FRAME: Final = "the data frame"  # as errors call it
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
        from fedgauge.data.lazy_frames import LazyRows

        return LazyRows(frame)
    return frame if isinstance(frame, nw.DataFrame) else None


def frame_batches(
    frame: Any, client: str, columns: NamedColumns
) -> Iterator[tuple[pa.DictionaryArray, Examples]]:
    """Batches of examples, each with the name of every row's client."""
    names = names_of(client, frame[client].to_native(), "client")
    for number, batch in enumerate(columns.frame_examples(frame).split(_BATCH_ROWS)):
        start = number * _BATCH_ROWS
        yield names[start : start + len(batch)], batch


def names_of(column: str, values: Any, what: str) -> pa.DictionaryArray:
    """The name in each row, of a client or whatever else it is, without blanks around it."""
    codes, words = distinct(read_column(column, values))
    if any(isinstance(word, _NESTED) for word in words):
        raise InputError(f"column {column!r} holds lists, not names.")
    names = [str(word).strip() for word in words]
    if np.any(codes < 0) or not all(names):
        raise InputError(
            f"column {column!r} names no {what} in some rows. Fill them in or drop them."
        )
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    chosen = np.array([places[name] for name in names], dtype=np.int32).take(codes)
    return pa.DictionaryArray.from_arrays(pa.array(chosen), pa.array(places, pa.string()))


class _TableRows(RowSource):
    """Rows of which those without a label or a score may be left out."""

    _columns: NamedColumns
    _drops = False

    def __repr__(self) -> str:
        labels, scores = (
            "+".join(map(repr, each)) for each in (self._columns.labels, self._columns.numbers)
        )
        return f"<{type(self).__name__} of {self}: label {labels}, score {scores}{self._told}>"

    @property
    def _told(self) -> str:
        """What else there is to say."""
        return ""

    def _kept(self, batches: Iterator[Examples]) -> Iterator[Examples]:
        dropped = 0
        for batch in batches:
            kept = batch.select(batch.is_complete) if self._drops else batch
            dropped += len(batch) - len(kept)
            yield kept
        self.dropped = dropped


class ScoreFile(_TableRows):
    r"""A file with the labels and scores of one client, one row an example.

    Call it for its examples, batch after batch: memory does not depend on the size of the file,
    which every call reads again. Errors name columns and the file, never a value in it.

    Parameters
    ----------
    path
        A ``.csv``, ``.tsv`` (also ``.gz``), ``.parquet`` or ``.xlsx`` file; of a workbook the first
        sheet.
    label, score
        Names of the columns. A score of ``45%`` is 0.45. For several classes `score` is a list of
        columns, in the order of the task's classes; for several models a mapping from their names
        to a column or a list. For several labels `label` is a list, and `score` one in the same
        order.
    group
        The column of groups; for several groupings a mapping from their names.
    subject
        The column of the subject's id, where privacy protects subjects.
    separator, decimal, encoding
        Of a text file: what stands between columns (by default a comma or, in ``.tsv``, a tab),
        what before decimals, and how letters are written, such as ``"cp1252"``. In a workbook
        `decimal` is for numbers that are kept as text.
    drop_missing
        Leave out rows without a label or without a score. Once all rows are read, `dropped` says
        how many these were. They are refused otherwise.
    respelled
        How the file spells labels, where its plan does it otherwise.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "scores.csv"
    >>> _ = path.write_text("y,p_new,p_old,sex\n1,0.9,0.7,women\n0,0.2,0.4,men\n")
    >>> file = ScoreFile(path, label="y", score={"new": "p_new", "old": "p_old"}, group="sex")
    >>> [batch] = file()
    >>> batch.scores["old"].tolist(), batch.groups[None].to_pylist()
    ([0.7, 0.4], ['women', 'men'])
    """

    def __init__(
        self,
        path: str | Path,
        *,
        label: LabelColumns,
        score: ScoreColumns,
        group: GroupColumns = None,
        subject: str | None = None,
        separator: str | None = None,
        decimal: str = ".",
        encoding: str = UTF8,
        drop_missing: bool = False,
        respelled: Respelled | None = None,
    ) -> None:
        self.path = Path(path)
        self._columns = NamedColumns.read(label, score, group, subject, decimal, respelled)
        dialect = Dialect(separator, decimal, encoding)
        self._open = checked_opener(self.path, self._columns.all, dialect)
        self._drops = drop_missing

    @property
    def name(self) -> str:
        """The file's name without its endings: the client's name."""
        return name_of(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def __call__(self) -> Iterator[Examples]:
        """The examples, batch after batch."""
        batches = self._open(self._columns.types, None).batches
        yield from self._kept(map(self._columns.examples, batches))

    def leniently(self, skip: Callable[[], None]) -> Iterator[Examples]:
        """The examples, whatever a row holds: a score that is no number is NaN.

        A row of a text file with too few or too many fields is left out, and `skip` called. Refused
        is only what concerns the file: that it breaks off, an open quote, a line longer than a
        megabyte.
        """
        batches = self._open(self._columns.lenient_types, skip).batches
        yield from self._kept(map(self._columns.lenient_examples, batches))

    def check(self) -> None:
        """Refuse columns whose type is not that of a label, a score or an id.

        Reads the types that the file states or, of text, its first rows. To stop at some odd rows
        would tell of them. So it is the wrong column only where no score of the first rows is a
        number, and another separator only where none of them has as many columns as the header.
        """
        with located(str(self)):
            _check_types(self._open, self._columns)


def _check_types(opener: Opener, columns: NamedColumns) -> None:
    """Refuse a column of the wrong type; of text columns by the first rows."""
    skipped: list[None] = []
    table = opener(columns.lenient_types, lambda: skipped.append(None))
    check_schema(table.schema, columns)
    text = [name for name in columns.numbers if is_text(table.schema.field(name).type)]
    first = next(table.batches, None) if text else None
    if first is not None and len(first):
        for name in text:
            scores = columns.lenient_scores(name, first[name])
            if first[name].null_count < len(first) and np.isnan(scores).all():
                raise InputError(not_numbers(name))
    elif skipped:
        raise InputError(
            "no row has as many columns as the header. Check the separator (separator=...)."
        )


def check_schema(schema: pa.Schema, columns: NamedColumns) -> None:
    """Refuse a column whose type is not that of a label, a score or an id."""
    check_plain(schema, columns.words)
    for name in columns.numbers:
        columns.lenient_scores(name, pa.nulls(0, schema.field(name).type))


class ScoreTable(_TableRows):
    """Labels and scores of many clients, told apart by a column, or of one client.

    Parameters
    ----------
    source
        A file, a folder, or several, with files as for :class:`ScoreFile`; below a folder
        ``site=a`` all rows have ``a`` in the column ``site``. Or a data frame of pandas, polars or
        pyarrow; a lazy one (DuckDB, ibis, Polars, PySpark, Dask) counts its rows itself where it
        can.
    client
        The column of the client's name. Without one the table holds the rows of one client.
    label, score, group, subject, separator, decimal, encoding, drop_missing
        As for :class:`ScoreFile`.

    Examples
    --------
    >>> frame = pa.table({"site": ["a", "a", "b"], "y": [0, 1, 1], "p": [0.2, 0.7, 0.9]})
    >>> fg.evaluate(ScoreTable(frame, client="site", label="y", score="p")).clients
    2
    >>> fg.evaluate({"all": ScoreTable(frame, label="y", score="p")}).clients
    1
    """

    def __init__(
        self,
        source: Any,
        *,
        client: str | None = None,
        label: LabelColumns,
        score: ScoreColumns,
        group: GroupColumns = None,
        subject: str | None = None,
        separator: str | None = None,
        decimal: str = ".",
        encoding: str = UTF8,
        drop_missing: bool = False,
    ) -> None:
        self._client = client
        self._columns = NamedColumns.read(label, score, group, subject, decimal)
        wanted = (*self._columns.all, *([] if client is None else [client]))
        if isinstance(source, Iterator):
            source = list(source)
        dialect = Dialect(separator, decimal, encoding)
        self._frame, self._open = open_source(source, wanted, dialect)
        self._lazy: Any = self._open.get(FRAME)
        is_frame = self._lazy is not None or self._frame is not None
        self._called = FRAME if is_frame else ", ".join(map(str, paths_of(source)))
        self._drops = drop_missing

    def __str__(self) -> str:
        return self._called

    @property
    def _told(self) -> str:
        return "" if self._client is None else f", client {self._client!r}"

    def __call__(self) -> Iterator[Examples]:
        """The examples, batch after batch, whose client it is aside."""
        yield from self._kept(self._strictly())

    def _strictly(self) -> Iterator[Examples]:
        if self._frame is not None:
            yield from self._columns.frame_examples(self._frame).split(_BATCH_ROWS)
        for opener in self._open.values():
            yield from map(self._columns.examples, opener(self._columns.types, None).batches)

    def leniently(self, skip: Callable[[], None]) -> Iterator[Examples]:
        """The examples, whatever a row holds; see :class:`ScoreFile`."""
        yield from self._kept(self._leniently(skip))

    def _leniently(self, skip: Callable[[], None]) -> Iterator[Examples]:
        if self._frame is not None:
            yield from self._columns.lenient_frame_examples(self._frame).split(_BATCH_ROWS)
        for opener in self._open.values():
            batches = opener(self._columns.lenient_types, skip).batches
            yield from map(self._columns.lenient_examples, batches)

    def check(self) -> None:
        """Refuse columns whose type is not that of a label, a score or an id."""
        for place, opener in self._open.items():
            with located(str(place)):
                _check_types(opener, self._columns)

    def counted(self, ranks: Ranks) -> AlikeRows | None:
        """The rows, counted where they are, if that is a lazy frame that can count them."""
        labels, scores = self._columns.labels, self._columns.numbers
        if self._lazy is None or self._drops or (len(labels), len(scores)) != (1, 1):
            return None
        counted: AlikeRows | None = self._lazy.counted(labels[0], scores[0], ranks)
        return counted

    def batches(self) -> Iterator[tuple[pa.DictionaryArray, Examples]]:
        """Batches of examples, each with the name of every row's client."""
        dropped = 0
        for names, batch in self._all_batches(self._named_client()):
            complete = batch.is_complete if self._drops else slice(None)
            kept = batch.select(complete)
            dropped += len(batch) - len(kept)
            yield pick(names, complete), kept
        self.dropped = dropped

    def _all_batches(self, client: str) -> Iterator[tuple[pa.DictionaryArray, Examples]]:
        if self._frame is not None:
            yield from frame_batches(self._frame, client, self._columns)
        for opener in self._open.values():
            for batch in opener({**self._columns.types, client: WORDS}, None).batches:
                yield names_of(client, batch[client], "client"), self._columns.examples(batch)

    def clients_of_lazy_frame(self) -> set[str]:
        """The names of all clients of a lazy frame."""
        client = self._named_client()
        return set(names_of(client, self._lazy.distinct(client), "client").to_pylist())

    def _named_client(self) -> str:
        if self._client is None:
            raise InputError(
                "this table has no column of clients. Name it (client=...), or pass the table as "
                'the rows of one client: {"site-a": table}.'
            )
        return self._client


def open_source(
    source: Any, wanted: Sequence[str], dialect: Dialect
) -> tuple[Any, dict[Path | str, Opener]]:
    """The data frame, or how to open each file, or FRAME if it is lazy; refuses missing columns.

    Of a folder these are the files in it.
    """
    frame = frame_of(source)
    if frame is None:
        openers: dict[Path | str, Opener] = {}
        for path in paths_of(source):
            if path.is_dir():
                from fedgauge.data.folders import open_folder

                openers.update(open_folder(path, wanted, dialect))
            else:
                openers[path] = checked_opener(path, wanted, dialect)
        return None, openers
    with located(FRAME):
        check_distinct(wanted)
        check_columns(wanted, frame.columns)
    return (None, {FRAME: frame}) if callable(frame) else (frame, {})


def paths_of(source: Any) -> list[Path]:
    """One path, or several."""
    paths = [source] if isinstance(source, str | Path) else source
    if isinstance(paths, Iterable) and not isinstance(paths, Mapping):
        paths = list(paths)
        if not paths:
            raise InputError("there are no files. Name at least one.")
        if all(isinstance(path, str | Path) for path in paths):
            refuse_repeated_files(paths)
            return [Path(path) for path in paths]
    raise InputError(
        "expected a path, several, or a data frame of pandas, polars or pyarrow, got "
        f"{type(source).__name__}."
    )


def name_of(path: Path) -> str:
    """A file's name without its endings."""
    return path.name[: -len("".join(path.suffixes))]


def refuse_repeated_files(paths: Sequence[str | Path]) -> None:
    """Refuse one file under two paths: its rows would count twice."""
    seen: dict[str, str] = {}
    for path in paths:
        file, name = os.path.realpath(path), str(path)
        if file in seen:
            named = "given twice" if seen[file] == name else f"the same file as {seen[file]}"
            raise InputError(f"{name} is {named}, and its rows would count twice. Name it once.")
        seen[file] = name


class PlacedColumn(NamedTuple):
    """A column of a file, and how that is written."""

    path: Path
    column: str
    dialect: Dialect = Dialect()


def some_labels(columns: Iterable[PlacedColumn], *, most: int) -> list[str] | None:
    """The labels in the first rows of files, in order; None for more than `most`, as rows have."""
    found: set[str] = set()
    opened = (
        (column, opener)
        for path, column, dialect in columns
        for opener in open_source(path, (column,), dialect)[1].values()
    )
    for column, opener in itertools.islice(opened, _MOST_LOOKED_INTO):
        table = opener({column: pa.string()}, lambda: None)
        for batch in itertools.islice(table.batches, 1):
            found.update(
                str(value) for value in batch[column].unique().to_pylist() if value is not None
            )
        if len(found) > most:
            return None
    return sorted(found)
