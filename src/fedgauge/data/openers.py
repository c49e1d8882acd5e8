"""CSV and Parquet files opened as tables, batch after batch; what is wrong with one is told."""

import codecs
import csv
import gzip
import io
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import pyarrow as pa
import pyarrow.csv

from fedgauge.errors import InputError, located
from fedgauge.storage.whole import NOT_REGULAR, open_regular

_BATCH_ROWS: Final = 65_536
_BLOCK_BYTES: Final = 1 << 20
_DELIMITERS: Final = {".csv": ",", ".tsv": "\t"}
_DECIMALS: Final = (".", ",")
_OTHER_DELIMITERS: Final = (";", "\t", "|", ",")
_MOST_NAMES: Final = 30
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
_PARQUET: Final = (".parquet", ".pq")
_END_OF_LINE: Final = re.compile(rb"[\r\n]")  # as Arrow reads it
WORDS: Final = pa.dictionary(pa.int32(), pa.string())  # labels, ids, names: few, and often again


class Dialect(NamedTuple):
    """How a text file is written, where its ending does not say it."""

    separator: str | None
    decimal: str

    def delimiter(self, ending: str) -> str:
        """What stands between columns in a text file with this ending."""
        delimiter = _DELIMITERS[ending] if self.separator is None else self.separator
        if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n.':
            raise InputError(f"separator must be one character such as ';', got {delimiter!r}.")
        if self.decimal not in _DECIMALS:
            raise InputError(f"decimal must be '.' or ',', got {self.decimal!r}.")
        return delimiter


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


class _Table:
    """An open file: its schema, and its batches."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self.schema = schema
        self.batches = batches


# Called when a malformed row is left out; None where such a row is an error.
Skip = Callable[[], None] | None
# Columns, and what each is in a text file: a label's kind must not depend on the first block.
Types = Mapping[str, pa.DataType]
Opener = Callable[[Types, Skip], _Table]


def checked_opener(path: Path, columns: Sequence[str], dialect: Dialect) -> Opener:
    """How to open the file; refuses what can be refused before reading rows."""
    check_distinct(columns)
    with located(str(path)):
        opener = _opener(path, dialect)
        check_columns(columns, _names_in(opener))
    return opener


def column_names(path: Path, *, separator: str | None, decimal: str) -> list[str]:
    """The names of all columns of a file."""
    with located(str(path)):
        return _names_in(_opener(path, Dialect(separator, decimal)))


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
            raise InputError("this is not a Parquet file, whatever its name says. Export it again.")
        if dialect != Dialect(None, "."):
            raise InputError(
                "only text files have something between columns and before decimals. Leave "
                "(separator=...) and (decimal=...) out for Parquet files."
            )
        return lambda types, _: _open_parquet(path, types)
    if ending in _DELIMITERS:
        if is_parquet:
            raise InputError("this is a Parquet file, not CSV. Rename it to end in .parquet.")
        if not is_gzip and start.startswith(_GZIP):
            raise InputError("this is a gzip file. Rename it to end in .gz.")
        if is_gzip and not start.startswith(_GZIP):
            raise InputError("this is not a gzip file, whatever its name says. Export it again.")
        text = _Text(path, dialect.delimiter(ending), dialect.decimal)
        _check_header(text)
        return lambda types, skip: _open_csv(text, types, skip)
    raise InputError(
        f"cannot tell the format from the ending {path.suffix!r}: use .csv, .tsv or .parquet."
    )


def _start(path: Path) -> bytes:
    """The first bytes of a file of rows, of which there must be some."""
    try:
        with open_regular(path) as file:
            start = file.read(4)
    except FileNotFoundError:
        raise InputError("there is no such file. Check its name and folder.") from None
    except IsADirectoryError:
        raise InputError("this is a folder. Name the files in it, e.g. with a * pattern.") from None
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
            f"the header has more than {_MOST_COLUMNS:,} columns. Export the columns that are "
            "needed, and check what stands between them (separator=...)."
        )


def _open_parquet(path: Path, types: Types) -> _Table:
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
    except (pa.ArrowException, OSError):
        raise InputError("the Parquet file is damaged or cut short. Export it again.") from None
    if metadata.num_rows > _FEW_ROWS + _MOST_PER_BYTE * path.stat().st_size or any(
        chunk.total_uncompressed_size > _FEW_BYTES + _MOST_PER_BYTE * chunk.total_compressed_size
        for chunk in _chunks(metadata)
    ):
        raise InputError(
            "the Parquet file claims to hold more rows than fit in its bytes. Export it again."
        )

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from file.iter_batches(_BATCH_ROWS, columns=list(types), use_threads=False)
        except (pa.ArrowException, OSError):
            raise InputError("the Parquet file is damaged. Export it again.") from None

    return _Table(file.schema_arrow, batches())


def _chunks(metadata: Any) -> Iterator[Any]:
    """What is said of each column of each group of rows."""
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        yield from map(group.column, range(group.num_columns))


class _Text(NamedTuple):
    """A text file, and how it is written."""

    path: Path
    delimiter: str
    decimal: str

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


def _open_csv(text: _Text, types: Types, skip: Skip) -> _Table:
    parse_options = pa.csv.ParseOptions(delimiter=text.delimiter, newlines_in_values=True)
    if skip:
        parse_options.invalid_row_handler = _skipping(skip)
    try:
        stream = pa.input_stream(text.path, compression="gzip" if text.is_gzip else None)
        reader = pa.csv.open_csv(
            _Utf8Rows(stream, most=None if types else 2 * _BLOCK_BYTES) if skip else stream,
            read_options=pa.csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
            parse_options=parse_options,
            convert_options=pa.csv.ConvertOptions(
                include_columns=list(types),
                column_types=dict(types),
                strings_can_be_null=True,
                decimal_point=text.decimal,
            ),
        )
    except (pa.ArrowInvalid, OSError) as error:
        if "Empty CSV" in str(error):
            raise InputError("there are no examples below the header. Export it again.") from None
        # Arrow's own message can quote a row.
        raise InputError(_bad_csv(text, types, str(error))) from None

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except (pa.ArrowInvalid, OSError) as error:
            raise InputError(_bad_csv(text, types, str(error))) from None

    return _Table(reader.schema, batches())


class _Utf8Rows(io.RawIOBase):
    r"""The bytes of a text file; those of its rows that are not UTF-8 are spelled out (``\\xfc``).

    Arrow gives up a file for one such byte. The header stays as it is, to be refused. Where names
    of columns are all that is wanted, the file ends after so many bytes: Arrow reads far ahead in
    a thread of its own, and Python cannot end while that reads from here.
    """

    def __init__(self, source: pa.NativeFile, *, most: int | None) -> None:
        self._source = source
        self._left = math.inf if most is None else most
        self._in_rows = self._ended = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._waiting = b""

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
        return header + chunk if header else chunk


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
        f"line {line:,} has {fields:,} columns where the header has {named:,}. Mend that line; "
        "text that holds a separator or a line break stands in quotes."
    )


def _first_odd_line(text: _Text) -> tuple[int, int, int] | None:
    """The first line with another number of columns than the header, and both numbers.

    Arrow counts rows, of which one can span several lines and a blank line is none.
    """
    with text.opened() as file:
        words = io.TextIOWrapper(file, encoding="utf-8", newline="")
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
        f"column {column!r} holds values that are not numbers. Check which column holds the score, "
        "and what stands before decimals (decimal=...)."
    )


def check_distinct(columns: Sequence[str]) -> None:
    """Refuse one column in two places."""
    twice = [repr(name) for name, times in Counter(columns).items() if times > 1]
    if twice:
        listed = ", ".join(twice)
        raise InputError(
            f"one column cannot be two things, and {listed} is named more than once. Name "
            "different ones."
        )


def check_columns(wanted: Sequence[str], present: Sequence[str]) -> None:
    """Refuse a column that is not there, or there twice."""
    seen = Counter(present)
    for name in wanted:
        if not seen[name]:
            raise InputError(f"there is no column {name!r}. {list_columns(present)}")
        if seen[name] > 1:
            raise InputError(f"{seen[name]} columns are named {name!r}. Rename all but one.")


def list_columns(names: Sequence[str]) -> str:
    """Which columns there are, in a sentence; not where these may be values of a row."""
    # Without a header the first row, a person's label and score, stands in its place.
    other = next((sign for sign in _OTHER_DELIMITERS if len(names) == 1 and sign in names[0]), None)
    if any(_is_number(part) for name in names for part in (name.split(other) if other else [name])):
        return "The first row looks like data: add a row with the names of the columns."
    if other is not None:
        return (
            f"The header is one column that holds {other!r}. If that stands between columns, say "
            "so (separator=...)."
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
