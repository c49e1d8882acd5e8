"""Text files of rows: how one is written, its batches, and what is wrong with it."""

import codecs
import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple
from weakref import WeakSet

import numpy as np
import pyarrow as pa
import pyarrow.csv

from fedgauge.arrays import Floats
from fedgauge.data.columns import spelled_numbers
from fedgauge.data.workbooks import SheetText
from fedgauge.errors import InputError
from fedgauge.storage import open_regular

UTF8: Final = "utf-8"
WORKBOOK: Final = ".xlsx"
_DELIMITERS: Final = {".csv": ",", ".tsv": "\t", WORKBOOK: "\t"}
TEXT: Final = frozenset(_DELIMITERS)
_DECIMALS: Final = (".", ",")
_BLOCK_BYTES: Final = 1 << 20
_MOST_COLUMNS: Final = 1 << 15
_LINE: Final = re.compile(r"[^\r\n]*")
_QUOTED: Final = re.compile(r'(?:[^"\r\n]|"(?:[^"]|"")*+")*+')
_NO_NUMBER: Final = "conversion error to double"
# Encodings that programs write, by the share of bytes beyond ASCII: some letters of a text in
# Latin script, most of a text in another one.
_LATIN: Final = ("cp1252", "cp1250", "mac_roman")
_OTHER_SCRIPTS: Final = ("shift_jis", "gb18030", "big5", "cp1251")
_MANY: Final = 0.2
_ANY_BYTES: Final = bytes(range(256))
_UNREADABLE: Final = (
    "the file does not read as {} text with the same number of columns in every row. Export it "
    "again."
)


class Dialect(NamedTuple):
    """How a text file is written, where its ending does not say it."""

    separator: str | None = None
    decimal: str = "."
    encoding: str = UTF8

    def text(self, path: Path, ending: str) -> "Text":
        """The text file with such an ending."""
        delimiter = _DELIMITERS[ending]
        is_workbook = ending == WORKBOOK
        if is_workbook and (self.separator is not None or self.encoding != UTF8):
            raise InputError(
                "a workbook has no separator and no encoding. Leave (separator=...) and "
                "(encoding=...) out for Excel files."
            )
        if self.separator is not None:
            delimiter = self.separator
        if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n.':
            raise InputError(f"separator must be one character such as ';', got {delimiter!r}.")
        if self.decimal not in _DECIMALS:
            raise InputError(f"decimal must be '.' or ',', got {self.decimal!r}.")
        return Text(path, delimiter, self.decimal, _known(self.encoding), is_workbook)


def _known(encoding: str) -> str:
    """The encoding as Python calls it."""
    try:
        "y,p\n".encode(encoding)
        _ANY_BYTES.decode(encoding, "backslashreplace")  # as rows are read that may hold anything
        return codecs.lookup(encoding).name
    except (LookupError, ValueError, TypeError):
        raise InputError(
            "encoding must be one that Python knows, such as utf-8, cp1252 or utf-16, got "
            f"{encoding!r}."
        ) from None


class OpenTable(NamedTuple):
    """An open file, or what is read like one: its schema, and its batches."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


# Called when a malformed row is left out; None where such a row is an error.
Skip = Callable[[], None] | None
# Columns, and what each is in a text file: a label's kind must not depend on the first block.
Types = Mapping[str, pa.DataType]


class Text(NamedTuple):
    """A text file, or the rows of a workbook as text, and how it is written."""

    path: Path
    delimiter: str
    decimal: str
    encoding: str
    is_workbook: bool

    @property
    def is_gzip(self) -> bool:
        """Whether it is compressed."""
        return self.path.suffix.lower() == ".gz"

    @contextmanager
    def opened(self) -> Iterator[BinaryIO | gzip.GzipFile | SheetText]:
        """Its bytes."""
        with open_regular(self.path) as file:
            if self.is_workbook:
                yield SheetText(file, self.decimal)
            elif self.is_gzip:
                with gzip.GzipFile(fileobj=file) as unpacked:
                    yield unpacked
            else:
                yield file

    def stream(self, *, leniently: bool, most: int | None) -> Any:
        """Its bytes in UTF-8, as Arrow takes them."""
        source = (
            SheetText(open_regular(self.path), self.decimal)
            if self.is_workbook
            else pa.input_stream(self.path, compression="gzip" if self.is_gzip else None)
        )
        if not (leniently or self.is_workbook) and self.encoding == UTF8:
            return source
        errors = "backslashreplace" if leniently else "strict"
        return _Recoded(source, codecs.getincrementaldecoder(self.encoding)(errors), most=most)

    def unreadable(self, error: Exception | None) -> str:
        """What is said of a text that cannot be read; never an excerpt of it."""
        if not isinstance(error, UnicodeError):
            return _UNREADABLE.format(self.encoding.upper())
        likely = [repr(name) for name in _likely(getattr(error, "object", b""))]
        such_as = f": likely {' or '.join(likely)}" if likely else ""
        return (
            f"the file is not {self.encoding.upper()} text. Name its encoding "
            f"(encoding=...){such_as}, or export it again as UTF-8."
        )


def _likely(sample: bytes) -> list[str]:
    """Encodings that such bytes may have."""
    if not sample:
        return []
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in sample:
        return ["utf-16"]
    high = sum(byte > 127 for byte in sample)
    listed = _OTHER_SCRIPTS if high > _MANY * len(sample) else _LATIN
    return [name for name in (UTF8, *listed) if _decoded(sample, name)[1] is None]


def _decoded(start: bytes, encoding: str) -> tuple[str, UnicodeDecodeError | None]:
    """The text that bytes begin with, and what ends it if not their end."""
    decode = codecs.getincrementaldecoder(encoding)().decode
    try:
        return decode(start), None
    except UnicodeDecodeError as error:
        return codecs.decode(start[: error.start], encoding), error
    except UnicodeError:  # UTF-16 that does not say in which order its bytes are
        return "", UnicodeDecodeError(encoding, start, 0, len(start), "no byte order mark")


def check_header(text: Text) -> None:
    """Refuse a header in another encoding, or with more columns than a table of scores has.

    Arrow takes kilobytes for each column.
    """
    try:
        with text.opened() as file:
            start = file.read(_BLOCK_BYTES)
    except (OSError, EOFError, zlib.error):
        return  # it is refused where it is read
    words, error = _decoded(start, text.encoding)
    # A line, or the lines up to the end of a quote.
    header = max(_LINE.match(words)[0], _QUOTED.match(words)[0], key=len)  # type: ignore[index]
    # As UTF-16 a text in another encoding has no lines, and its rows would be names of columns.
    if error is None and "y".encode(text.encoding) != b"y":
        error = UnicodeDecodeError(text.encoding, start, 0, len(start), "no line ends")
    if len(header) == len(words) and error is not None:
        raise InputError(text.unreadable(error))
    if len(header) >= _BLOCK_BYTES:
        raise InputError(text.unreadable(None))
    if header.count(text.delimiter) >= _MOST_COLUMNS:
        raise InputError(
            f"the header has more than {_MOST_COLUMNS:,} columns. Export only the columns that "
            "are needed, and check the separator (separator=...)."
        )


def open_text(text: Text, types: Types, skip: Skip) -> OpenTable:
    """The batches of a text file. A row that is malformed is left out if there is a `skip`."""
    parse_options = pa.csv.ParseOptions(delimiter=text.delimiter, newlines_in_values=True)
    if skip:
        parse_options.invalid_row_handler = _skipping(skip)
    try:
        reader = pa.csv.open_csv(
            text.stream(leniently=skip is not None, most=None if types else 2 * _BLOCK_BYTES),
            read_options=pa.csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
            parse_options=parse_options,
            convert_options=pa.csv.ConvertOptions(
                include_columns=list(types),
                column_types=dict(types),
                strings_can_be_null=True,
                decimal_point=text.decimal,
            ),
        )
    except (pa.ArrowInvalid, OSError, UnicodeError) as error:
        if "Empty CSV" in str(error):
            raise InputError("there are no examples below the header. Export it again.") from None
        if _NO_NUMBER in str(error):
            return _open_spelled(text, types, after=0)
        # Arrow's own message can quote a row.
        raise InputError(_what_is_wrong(text, error)) from None

    def batches() -> Iterator[pa.RecordBatch]:
        given = 0
        try:
            for batch in reader:
                given += len(batch)
                yield batch
        except (pa.ArrowInvalid, OSError, UnicodeError) as error:
            if _NO_NUMBER not in str(error):
                raise InputError(_what_is_wrong(text, error)) from None
            yield from _open_spelled(text, types, after=given).batches

    return OpenTable(reader.schema, batches())


def _open_spelled(text: Text, types: Types, *, after: int) -> OpenTable:
    """The rows after some, where Arrow met a number that it does not know, such as 45%."""
    numbers = [name for name, kind in types.items() if kind == pa.float64()]
    table = open_text(text, {**types, **dict.fromkeys(numbers, pa.string())}, None)
    schema = pa.schema([pa.field(each, kind) for each, kind in types.items()])

    def batches() -> Iterator[pa.RecordBatch]:
        left = after
        for batch in table.batches:
            part = batch.slice(min(left, len(batch)))
            left -= len(batch) - len(part)
            columns = [
                pa.array(read_numbers(name, part[name], text.decimal))
                if name in numbers
                else part[name]
                for name in types
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return OpenTable(schema, batches())


def read_numbers(name: str, column: pa.Array, decimal: str) -> Floats:
    """The numbers that a column of text spells, NaN where nothing stands; all else is refused."""
    numbers = spelled_numbers(name, column, decimal)
    unread = column.filter(pa.array(np.isnan(numbers))).drop_null().unique()
    if any(word.strip("+- ").casefold() != "nan" for word in unread.to_pylist()):
        raise InputError(not_numbers(name))
    return numbers


class _Recoded(io.RawIOBase):
    r"""The bytes of a text file, in UTF-8; leniently, others are spelled out (``\\xfc``).

    Arrow gives up a file for one such byte. Where only names of columns are wanted, the file ends
    after so many bytes: Arrow reads far ahead in a thread of its own, and Python cannot end while
    that reads from here.
    """

    def __init__(
        self, source: Any, decoder: codecs.IncrementalDecoder, *, most: int | None
    ) -> None:
        self._source = source
        self._left = math.inf if most is None else most
        self._in_rows = self._ended = False
        self._decoder = decoder
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
            words = self._decoder.decode(chunk, final=not chunk)
            self._in_rows = self._in_rows or "\n" in words or "\r" in words
            if not (chunk or self._in_rows or self._decoder.errors == "strict"):
                words += "\n"  # without which a header alone is no table
            self._waiting += words.encode()
        given, self._waiting = self._waiting[:size], self._waiting[size:]
        return given


_READ_AHEAD: Final = WeakSet[_Recoded]()


def is_reading_ahead() -> bool:
    """Whether Arrow may still read a file in a thread of its own: Python must not end yet."""
    return bool(_READ_AHEAD)


def _skipping(skip: Callable[[], None]) -> Callable[[Any], str]:
    def handle(row: Any) -> str:
        del row
        skip()
        return "skip"

    return handle


def _what_is_wrong(text: Text, error: Exception) -> str:
    """What is wrong with a file, told without Arrow's words, which can quote a row."""
    try:
        odd = _first_odd_line(text)
    except UnicodeError as found:
        error, odd = found, None
    except (OSError, EOFError, csv.Error, zlib.error):
        odd = None  # it breaks off, or has a quote that is never closed
    return text.unreadable(error) if odd is None else odd_line(*odd)


def odd_line(line: int, fields: int, named: int) -> str:
    """What is said of a line with another number of columns than the header."""
    return (
        f"line {line:,} has {fields:,} columns where the header has {named:,}. Correct that line: "
        "put text that holds a separator or a line break in quotes."
    )


def _first_odd_line(text: Text) -> tuple[int, int, int] | None:
    """The first line, as a text editor counts, with another number of columns than the header."""
    with text.opened() as file:
        words: Any = io.TextIOWrapper(file, text.encoding, newline="")
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
