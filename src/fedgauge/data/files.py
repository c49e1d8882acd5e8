"""CSV and Parquet files and data frames, read in batches; which columns hold labels and scores."""

import codecs
import csv
import gzip
import io
import itertools
import math
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple
from weakref import WeakSet

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from fedgauge.arrays import Floats
from fedgauge.data.columns import (
    Column,
    distinct,
    filled,
    floats_of,
    from_arrow,
    read_column,
    read_leniently,
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
from fedgauge.errors import InputError, located
from fedgauge.storage import NOT_REGULAR, open_regular

_BATCH_ROWS: Final = 65_536
_BLOCK_BYTES: Final = 1 << 20
_DELIMITERS: Final = {".csv": ",", ".tsv": "\t"}
_DECIMALS: Final = (".", ",")
_OTHER_DELIMITERS: Final = (";", "\t", "|", ",")
_MOST_NAMES: Final = 30
_MOST_LOOKED_INTO: Final = 100  # files, for an error message
_MOST_COLUMNS: Final = 1 << 15
# Of Parquet: rows that are all alike take hardly any bytes, and no scores are.
_FEW_ROWS: Final = 1 << 24
_FEW_BYTES: Final = 1 << 28
_MOST_PER_BYTE: Final = 100
_GZIP: Final = b"\x1f\x8b"
_LINE: Final = re.compile(rb"[^\r\n]*")
_QUOTED: Final = re.compile(rb'(?:[^"\r\n]|"(?:[^"]|"")*+")*+')
_UNREADABLE: Final = (
    "the file does not read as UTF-8 text with the same number of columns in every row. Export it "
    "again."
)
_ASCII: Final = bytes(range(128))
_PARQUET: Final = (".parquet", ".pq")
_END_OF_LINE: Final = re.compile(rb"[\r\n]")  # as Arrow reads it
WORDS: Final = pa.dictionary(pa.int32(), pa.string())  # labels, ids, names: few, and often again


class Dialect(NamedTuple):
    """How a text file is written, where its ending does not say it."""

    separator: str | None
    decimal: str
    encoding: str = "utf-8"

    def delimiter(self, ending: str) -> str:
        """What stands between columns in a text file with this ending."""
        delimiter = _DELIMITERS[ending] if self.separator is None else self.separator
        if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n.':
            raise InputError(f"separator must be one character such as ';', got {delimiter!r}.")
        if self.decimal not in _DECIMALS:
            raise InputError(f"decimal must be '.' or ',', got {self.decimal!r}.")
        self._check_encoding()
        return delimiter

    def _check_encoding(self) -> None:
        """Refuse encodings in which a line break, or a separator, is other bytes than in ASCII."""
        try:
            plain = _ASCII.decode(self.encoding) == _ASCII.decode("ascii")
        except (LookupError, ValueError, TypeError):
            plain = False
        if not plain:
            raise InputError(
                "encoding must be that of a text with ASCII in it, such as 'utf-8', 'cp1252' or "
                f"'latin-1', got {self.encoding!r}. Export the file as UTF-8."
            )


class FileForm(NamedTuple):
    """How a file of rows is written: `delimiter` is None where it is no text but Parquet."""

    delimiter: str | None
    is_gzip: bool


def check_file(
    path: Path, columns: Sequence[str], *, separator: str | None, decimal: str
) -> FileForm:
    """Refuse a file that cannot be read, or lacks one of the columns; how it is written."""
    dialect = Dialect(separator, decimal)
    checked_opener(path, columns, dialect)
    ending = ending_of(path)
    delimiter = None if ending in _PARQUET else dialect.delimiter(ending)
    return FileForm(delimiter, path.suffix.lower() == ".gz")


def ending_of(path: Path) -> str:
    """What the name of a file says about its format, that it is compressed aside."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"] and len(suffixes) > 1
    return suffixes[-2] if packed else path.suffix.lower()


class OpenTable:
    """An open file, or what is read like one: its schema, and its batches."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self.schema = schema
        self.batches = batches


# Called when a malformed row is left out; None where such a row is an error.
Skip = Callable[[], None] | None
# Columns, and what each is in a text file: a label's kind must not depend on the first block.
Types = Mapping[str, pa.DataType]
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
    except UnicodeDecodeError:
        raise InputError(_UNREADABLE) from None
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
        if dialect != Dialect(None, "."):
            raise InputError(
                "only text files have a separator, a decimal mark and an encoding. Leave "
                "(separator=...), (decimal=...) and encoding out for Parquet files."
            )
        return lambda types, _: _open_parquet(path, types)
    if ending in _DELIMITERS:
        if is_parquet:
            raise InputError("this is a Parquet file, not CSV. Rename it to end in .parquet.")
        if not is_gzip and start.startswith(_GZIP):
            raise InputError("this is a gzip file. Rename it to end in .gz.")
        if is_gzip and not start.startswith(_GZIP):
            raise InputError("this is not a gzip file, although its name says so. Export it again.")
        text = _Text(path, dialect.delimiter(ending), dialect.decimal, dialect.encoding)
        _check_header(text)
        return lambda types, skip: _open_csv(text, types, skip)
    raise InputError(
        f"cannot tell the format from the ending {path.suffix!r}: use .csv, .tsv or .parquet."
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


def _check_header(text: "_Text") -> None:
    """Refuse more columns than a table of scores has: Arrow takes kilobytes for each."""
    try:
        with text.opened() as file:
            start = file.read(_BLOCK_BYTES)
    except (OSError, EOFError, zlib.error):
        return  # it is refused where it is read
    # A line, or the lines up to the end of a quote.
    header = max(_LINE.match(start)[0], _QUOTED.match(start)[0], key=len)  # type: ignore[index]
    if len(header) == _BLOCK_BYTES:
        raise InputError(_UNREADABLE)
    if header.count(text.delimiter.encode()) >= _MOST_COLUMNS:
        raise InputError(
            f"the header has more than {_MOST_COLUMNS:,} columns. Export only the columns that "
            "are needed, and check the separator (separator=...)."
        )


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


class _Text(NamedTuple):
    """A text file, and how it is written."""

    path: Path
    delimiter: str
    decimal: str
    encoding: str

    @property
    def is_gzip(self) -> bool:
        """Whether it is compressed."""
        return self.path.suffix.lower() == ".gz"

    @contextmanager
    def opened(self) -> Iterator[BinaryIO | gzip.GzipFile]:
        """Its bytes."""
        with open_regular(self.path) as file:
            if self.is_gzip:
                with gzip.GzipFile(fileobj=file) as unpacked:
                    yield unpacked
            else:
                yield file


def _open_csv(text: _Text, types: Types, skip: Skip) -> OpenTable:
    parse_options = pa.csv.ParseOptions(delimiter=text.delimiter, newlines_in_values=True)
    if skip:
        parse_options.invalid_row_handler = _skipping(skip)
    try:
        stream = pa.input_stream(text.path, compression="gzip" if text.is_gzip else None)
        reader = pa.csv.open_csv(
            _Utf8Rows(stream, text.encoding, most=None if types else 2 * _BLOCK_BYTES)
            if skip
            else stream,
            read_options=pa.csv.ReadOptions(
                block_size=_BLOCK_BYTES,
                use_threads=False,
                encoding="utf8" if skip else text.encoding,
            ),
            parse_options=parse_options,
            convert_options=pa.csv.ConvertOptions(
                include_columns=list(types),
                column_types=dict(types),
                strings_can_be_null=True,
                decimal_point=text.decimal,
            ),
        )
    except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
        if "Empty CSV" in str(error):
            raise InputError("there are no examples below the header. Export it again.") from None
        # Arrow's own message can quote a row.
        raise InputError(_bad_csv(text, types, str(error))) from None

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
            raise InputError(_bad_csv(text, types, str(error))) from None

    return OpenTable(reader.schema, batches())


class _Utf8Rows(io.RawIOBase):
    r"""The text of a file in UTF-8; bytes of rows that are no text are spelled out (``\\xfc``).

    Arrow gives up a file for one such byte. Those of the header stay as they are, to be refused.
    Where only names of columns are wanted, the file ends after so many bytes: Arrow reads far ahead
    in a thread of its own, and Python cannot end while that reads from here.
    """

    def __init__(self, source: pa.NativeFile, encoding: str, *, most: int | None) -> None:
        self._source = source
        self._header = codecs.getincrementaldecoder(encoding)("surrogateescape")
        self._left = math.inf if most is None else most
        self._in_rows = self._ended = False
        self._decoder = codecs.getincrementaldecoder(encoding)("backslashreplace")
        self._waiting = b""
        _READ_AHEAD.add(self)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        # Filled up to the size: Arrow takes a first block without a newline for no table.
        while not self._ended and len(self._waiting) < size:
            chunk = self._source.read(size)
            self._left -= len(chunk)
            self._ended = not chunk or self._left <= 0
            self._waiting += self._mend(chunk)
        given, self._waiting = self._waiting[:size], self._waiting[size:]
        return given

    def _mend(self, chunk: bytes) -> bytes:
        if not (chunk or self._in_rows):
            self._in_rows = True
            return b"\n"  # without which a header alone is no table
        header = b""
        if chunk and not self._in_rows:
            end = _END_OF_LINE.search(chunk)
            place = len(chunk) if end is None else end.end()
            header, chunk, self._in_rows = chunk[:place], chunk[place:], end is not None
        chunk = self._decoder.decode(chunk, final=not chunk and not header).encode()
        named = self._header.decode(header).encode(errors="surrogateescape")
        return named + chunk if named else chunk


_READ_AHEAD: Final = WeakSet[_Utf8Rows]()


def is_reading_ahead() -> bool:
    """Whether Arrow may still read a file in a thread of its own: Python must not end yet."""
    return bool(_READ_AHEAD)


def _skipping(skip: Callable[[], None]) -> Callable[[Any], str]:
    def handle(row: Any) -> str:
        del row
        skip()
        return "skip"

    return handle


def _bad_csv(text: _Text, types: Types, told: str) -> str:
    """What is wrong with a file, told without Arrow's words, which can quote a row."""
    if "conversion error to double" in told:
        return not_numbers(_column_of(text, types, told))
    try:
        odd = _first_odd_line(text)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error):
        odd = None  # it breaks off, is no text, or has a quote that is never closed
    if odd is None:
        return _UNREADABLE
    return odd_line(*odd)


def _column_of(text: _Text, types: Types, told: str) -> str:
    """The column of scores in which Arrow met no number."""
    place = re.match(r"In CSV column #(\d+)", told)
    names = _open_csv(text, {}, lambda: None).schema.names
    if place is not None and int(place[1]) < len(names):
        return str(names[int(place[1])])
    return next(name for name, kind in types.items() if kind == pa.float64())


def odd_line(line: int, fields: int, named: int) -> str:
    """What is said of a line with another number of columns than the header."""
    return (
        f"line {line:,} has {fields:,} columns where the header has {named:,}. Correct that line: "
        "put text that holds a separator or a line break in quotes."
    )


def _first_odd_line(text: _Text) -> tuple[int, int, int] | None:
    """The first line, as a text editor counts, with another number of columns than the header."""
    with text.opened() as file:
        words = io.TextIOWrapper(file, encoding=text.encoding, newline="")
        rows = csv.reader(_bounded_lines(words), delimiter=text.delimiter, strict=True)
        named = len(next(rows, ()))
        before = rows.line_num
        for row in rows:
            if row and len(row) != named:
                return before + 1, len(row), named
            before = rows.line_num
    return None


def _bounded_lines(file: io.TextIOWrapper) -> Iterator[str]:
    """The lines of a text, which is read no further than one that is longer than a block."""
    while line := file.readline(_BLOCK_BYTES):
        if len(line) == _BLOCK_BYTES:
            raise csv.Error
        yield line


def not_numbers(column: str) -> str:
    """What is said of a column of scores that are none."""
    return (
        f"column {column!r} holds values that are not numbers. Check which column holds the "
        "score, and the decimal mark (decimal=...)."
    )


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
            raise InputError(f"there is no column {name!r}. {list_columns(present)}")
        if seen[name] > 1:
            raise InputError(f"{seen[name]} columns are named {name!r}. Rename all but one.")


def check_plain(schema: pa.Schema, columns: Iterable[str]) -> None:
    """Refuse a column of lists."""
    for name in columns:
        if pa.types.is_nested(schema.field(name).type):
            raise InputError(f"column {name!r} holds lists. Name a column of plain values.")


def list_columns(names: Sequence[str]) -> str:
    """Which columns there are, in a sentence; not where these may be values of a row."""
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
    return f"The columns are {shown}{more}."


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
_NUMBER: Final = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"


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
            scores = _plain_scores(name, column)
            if is_text(column.type):
                unread = column.filter(pa.array(np.isnan(scores))).drop_null().unique()
                if not all(map(_is_number, unread.to_pylist())):
                    raise InputError(not_numbers(name))
            return scores

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
        if self.decimal != ".":
            # A point is then in no number, as where Arrow reads them.
            column = pc.replace_substring(pc.replace_substring(column, ".", "?"), ",", ".")
        return _plain_scores(name, column)


def _plain_scores(name: str, column: pa.Array) -> Floats:
    """The numbers of a column, NaN where there is none; only a type that has none is refused."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    # Arrow's own cast of decimals misses the nearest float by one, in every second case.
    if is_text(kind) or pa.types.is_decimal(kind):
        return _numbers_in(name, column.cast(kind).cast(pa.string()))
    try:
        # Unsafe: a whole number that floats cannot tell from the next one is near enough.
        numbers = column.cast(kind).cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(not_numbers(name)) from None
    return filled(numbers, np.float64(np.nan))


def _numbers_in(name: str, column: pa.Array) -> Floats:
    """The numbers that text spells, NaN where it spells none.

    Arrow casts all rows or none. To read the others in another way would take time that tells of
    one odd row. So Arrow always gets those that it can surely cast, all at once, and Python the
    rest.
    """
    plain = pc.match_substring_regex(column, _NUMBER)
    none = pa.nulls(1, column.type)[0]  # one of Python loads pandas, where that is installed
    numbers = filled(pc.if_else(plain, column, none).cast(pa.float64()), np.float64(np.nan)).copy()
    rest = pc.invert(plain)
    numbers[from_arrow(pc.indices_nonzero(rest))] = floats_of(
        read_leniently(name, column.filter(rest))
    )
    return numbers


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
    names = pa.array(names_of(client, frame[client].to_native(), "client")).dictionary_encode()
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


class ScoreFile(RowSource):
    r"""A file with the labels and scores of one client, one row an example.

    Call it for its examples, batch after batch: memory does not depend on the size of the file,
    which every call reads again. Errors name columns and the file, never a value in it.

    Parameters
    ----------
    path
        A ``.csv``, ``.tsv`` (also ``.gz``) or ``.parquet`` file.
    label, score
        Names of the columns. For several classes `score` is a list of columns, in the order of the
        task's classes; for several models a mapping from their names to a column or a list. For
        several labels `label` is a list, and `score` one in the same order.
    group
        The column of groups; for several groupings a mapping from their names.
    subject
        The column of the subject's id, where privacy protects subjects.
    separator, decimal, encoding
        Of a text file: what stands between columns (by default a comma or, in ``.tsv``, a tab),
        what before decimals, and how characters are written.
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
        encoding: str = "utf-8",
        respelled: Respelled | None = None,
    ) -> None:
        self.path = Path(path)
        self._columns = NamedColumns.read(label, score, group, subject, decimal, respelled)
        dialect = Dialect(separator, decimal, encoding)
        self._open = checked_opener(self.path, self._columns.all, dialect)

    @property
    def name(self) -> str:
        """The file's name without its endings: the client's name."""
        return name_of(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def __call__(self) -> Iterator[Examples]:
        """The examples, batch after batch."""
        for batch in self._open(self._columns.types, None).batches:
            yield self._columns.examples(batch)

    def leniently(self, skip: Callable[[], None]) -> Iterator[Examples]:
        """The examples, whatever a row holds: a score that is no number is NaN.

        A row of a text file with too few or too many fields is left out, and `skip` called. Refused
        is only what concerns the file: that it breaks off, an open quote, a line longer than a
        megabyte.
        """
        for batch in self._open(self._columns.lenient_types, skip).batches:
            yield self._columns.lenient_examples(batch)

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


class ScoreTable(RowSource):
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
    label, score, group, subject, separator, decimal
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
    ) -> None:
        self._client = client
        self._columns = NamedColumns.read(label, score, group, subject, decimal)
        wanted = (*self._columns.all, *([] if client is None else [client]))
        if isinstance(source, Iterator):
            source = list(source)
        self._frame, self._open = open_source(source, wanted, Dialect(separator, decimal))
        self._lazy: Any = self._open.get(FRAME)
        is_frame = self._lazy is not None or self._frame is not None
        self._called = FRAME if is_frame else ", ".join(map(str, paths_of(source)))

    def __str__(self) -> str:
        return self._called

    def __call__(self) -> Iterator[Examples]:
        """The examples, batch after batch, whose client it is aside."""
        if self._frame is not None:
            yield from self._columns.frame_examples(self._frame).split(_BATCH_ROWS)
        for opener in self._open.values():
            for batch in opener(self._columns.types, None).batches:
                yield self._columns.examples(batch)

    def leniently(self, skip: Callable[[], None]) -> Iterator[Examples]:
        """The examples, whatever a row holds; see :class:`ScoreFile`."""
        if self._frame is not None:
            yield from self._columns.lenient_frame_examples(self._frame).split(_BATCH_ROWS)
        for opener in self._open.values():
            for batch in opener(self._columns.lenient_types, skip).batches:
                yield self._columns.lenient_examples(batch)

    def check(self) -> None:
        """Refuse columns whose type is not that of a label, a score or an id."""
        for place, opener in self._open.items():
            with located(str(place)):
                _check_types(opener, self._columns)

    def counted(self, ranks: Ranks) -> AlikeRows | None:
        """The rows, counted where they are, if that is a lazy frame that can count them."""
        labels, scores = self._columns.labels, self._columns.numbers
        if self._lazy is None or (len(labels), len(scores)) != (1, 1):
            return None
        counted: AlikeRows | None = self._lazy.counted(labels[0], scores[0], ranks)
        return counted

    def batches(self) -> Iterator[tuple[pa.DictionaryArray, Examples]]:
        """Batches of examples, each with the name of every row's client."""
        client = self._named_client()
        if self._frame is not None:
            yield from frame_batches(self._frame, client, self._columns)
        for opener in self._open.values():
            for batch in opener({**self._columns.types, client: WORDS}, None).batches:
                yield self._names(batch[client]), self._columns.examples(batch)

    def clients_of_lazy_frame(self) -> set[str]:
        """The names of all clients of a lazy frame."""
        return set(self._names(self._lazy.distinct(self._named_client())).to_pylist())

    def _named_client(self) -> str:
        if self._client is None:
            raise InputError(
                "this table has no column of clients. Name it (client=...), or pass the table as "
                'the rows of one client: {"site-a": table}.'
            )
        return self._client

    def _names(self, column: pa.Array) -> pa.DictionaryArray:
        if column.null_count:
            raise InputError(no_client(self._named_client(), f"{column.null_count:,} or more rows"))
        if pa.types.is_nested(column.type):
            raise InputError(no_names(self._named_client()))
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        names = pa.array([str(name) for name in column.dictionary.to_pylist()], pa.string())
        return pa.DictionaryArray.from_arrays(column.indices, names)


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


def some_labels(
    paths: Sequence[str | Path], column: str, *, most: int, separator: str | None = None
) -> list[str] | None:
    """The labels in the first rows of files, in order; None for more than `most`, as rows have."""
    found: set[str] = set()
    _, openers = open_source(paths, (column,), Dialect(separator, "."))
    for opener in itertools.islice(openers.values(), _MOST_LOOKED_INTO):
        table = opener({column: pa.string()}, lambda: None)
        for batch in itertools.islice(table.batches, 1):
            found.update(
                str(value) for value in batch[column].unique().to_pylist() if value is not None
            )
        if len(found) > most:
            return None
    return sorted(found)
