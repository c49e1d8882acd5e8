"""Files of rows written anew with one column more, or another, and the rest as it was."""

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
import pyarrow as pa

from fedgauge.arrays import Floats
from fedgauge.data.columns import floats_of, read_column
from fedgauge.data.files import check_file, ending_of
from fedgauge.data.text_files import UTF8, Dialect, Text, not_numbers, odd_line
from fedgauge.errors import InputError, located
from fedgauge.storage import written_whole

Transform = Callable[[Floats], Floats]
_BATCH_ROWS: Final = 65_536
_LONGEST: Final = 1 << 20  # bytes of a row, as where rows are counted
_BATCH_BYTES: Final = 1 << 22
_MARK: Final = b"\xef\xbb\xbf"  # that some programs put before UTF-8
_MISSING: Final = frozenset({b"", b"NA", b"N/A", b"#N/A", b"NULL", b"null", b"None", b"<NA>"})
_BROKEN: Final = "the file breaks off, or has a quote that is never closed. Export it again."
_TOO_LONG: Final = (
    f"a row is longer than {_LONGEST:,} bytes, or a quote is never closed. Export it again."
)

# A quoted field with whatever comes after it, or one without quotes. Possessive: a pair of quotes
# is never taken apart to end a field early.
_FIELD: Final = b'"(?:[^"]|"")*+"[^%b]*|[^"%b][^%b]*|'
_TO_QUOTE: Final = re.compile(rb'(?:[^"]|"")*+')

_NO_HEADER: Final = (
    "the first line does not hold the column names, or lines end in an unusual way. Export it "
    "again."
)


class Rewrite(NamedTuple):
    """A file of rows of which one column, `score`, is transformed; both files have one format."""

    source: Path
    target: Path
    score: str
    column: str | None  # a new last column; None puts it in the place of the scores
    separator: str | None = None
    decimal: str = "."
    encoding: str = UTF8

    def run(self, transform: Transform) -> int:
        """Write the target, all of it or nothing; returns how many rows there were.

        Memory does not depend on the size of the file. In text every byte of the other columns
        stays: quotes, digits, ends of lines, a byte order mark.
        """
        dialect = Dialect(self.separator, self.decimal, self.encoding)
        text = check_file(self.source, (self.score,), dialect)
        ending = ending_of(self.source)
        if ending_of(self.target) != ending:
            raise InputError(
                f"rows of a {ending} file are written as they are, into another. Give "
                f"{self.target} that ending."
            )
        with located(str(self.source)):
            if text is None:
                return _rewrite_parquet(self, transform)
            if text.is_workbook:
                raise InputError("a workbook is read, and not written. Save the sheet as CSV.")
            return _rewrite_text(self, transform, text)

    def check_new(self, names: list[str]) -> None:
        """Refuse to add a column that there is."""
        if self.column in names:
            raise InputError(
                f"there is a column {self.column!r} already. Name the new one (column=...), or "
                "put it in the place of the scores."
            )


def _applied(transform: Transform, scores: Floats, before: int) -> Floats:
    """The transformed scores of some rows; an error says which rows these are."""
    with located(f"rows {before + 1:,} to {before + len(scores):,}"):
        return transform(scores)


def _rewrite_parquet(asked: Rewrite, transform: Transform) -> int:
    import pyarrow.parquet as pq  # here, for it takes a while and most files are CSV

    rows = 0
    with pq.ParquetFile(asked.source, pre_buffer=False) as file:
        schema = file.schema_arrow
        asked.check_new(schema.names)
        place = schema.get_field_index(asked.score)
        if asked.column is None:
            schema = schema.set(place, pa.field(asked.score, pa.float64()))
        else:
            schema = schema.append(pa.field(asked.column, pa.float64()))
        with written_whole(asked.target) as out, pq.ParquetWriter(out, schema) as writer:
            for batch in _parquet_batches(file):
                scores = _numbers(batch.column(place), asked.score)
                made, columns = pa.array(_applied(transform, scores, rows)), list(batch.columns)
                if asked.column is None:
                    columns[place] = made
                else:
                    columns.append(made)
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
                rows += len(batch)
    return rows


def _parquet_batches(file: Any) -> Iterator[pa.RecordBatch]:
    try:
        yield from file.iter_batches(_BATCH_ROWS, use_threads=False)
    except (pa.ArrowException, OSError):
        raise InputError("the Parquet file is damaged. Export it again.") from None


def _numbers(column: pa.Array, name: str) -> Floats:
    try:
        return floats_of(read_column(name, column.cast(pa.float64())))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(not_numbers(name)) from None


class _Record(NamedTuple):
    """The fields of a record as written, none in a blank line; its end; the line it began in."""

    fields: list[bytes]
    end: bytes
    line: int


def _rewrite_text(asked: Rewrite, transform: Transform, text: Text) -> int:
    rows, delimiter = 0, text.delimiter.encode()
    with (
        _reading(text) as lines,
        written_whole(asked.target) as whole,
        _packed(whole, asked.target) as packed,
    ):
        out: Any = packed  # and there in the encoding that the file has
        if text.encoding != UTF8:
            out = codecs.EncodedFile(packed, UTF8, text.encoding)
        records = _records(lines, delimiter)
        header, end, _ = next(records)
        names = [_unquoted(field.removeprefix(_MARK)).decode() for field in header]
        asked.check_new(names)
        if asked.score not in names:
            raise InputError(_NO_HEADER)
        if asked.column is not None:
            header.append(_quoted(asked.column.encode(), delimiter))
        out.write(delimiter.join(header) + end)
        column = _Fields(asked, delimiter, names.index(asked.score))
        for batch in _batches(records, len(names)):
            scores = column.read(batch)
            made = _applied(transform, scores, rows) if len(scores) else scores
            out.writelines(column.written(batch, made))
            rows += len(scores)
    return rows


def _batches(records: Iterator[_Record], named: int) -> Iterator[list[_Record]]:
    """Records in batches of bounded size; refuses one with another number of fields."""
    batch: list[_Record] = []
    held = 0
    for each in records:
        if len(each.fields) not in (0, named):
            raise InputError(odd_line(each.line, len(each.fields), named))
        batch.append(each)
        held += sum(map(len, each.fields), len(each.fields))
        if len(batch) == _BATCH_ROWS or held > _BATCH_BYTES:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


class _Fields:
    """One column of text records: read as numbers, and written."""

    def __init__(self, asked: Rewrite, delimiter: bytes, place: int) -> None:
        self._asked = asked
        self._comma = asked.decimal == ","
        self._delimiter = delimiter
        self._place = place

    def read(self, records: list[_Record]) -> Floats:
        """The numbers, NaN where none is written."""
        fields = (each.fields for each in records)
        return np.array([self._number(each[self._place]) for each in fields if each])

    def _number(self, field: bytes) -> float:
        text = _unquoted(field).strip()
        if text in _MISSING:
            return np.nan
        if self._comma:
            text = text.replace(b".", b"?").replace(b",", b".")
        if text.endswith(b"%"):
            text = text[:-1].rstrip() + b"e-2"
        try:
            return float(text.replace(b"_", b"?"))  # which Python allows within numbers
        except ValueError:
            raise InputError(not_numbers(self._asked.score)) from None

    def written(self, records: list[_Record], numbers: Floats) -> Iterator[bytes]:
        """The records with these numbers, in all digits that tell them apart."""
        each = iter(numbers.tolist())
        for fields, end, _ in records:
            if not fields:
                yield end
                continue
            text = repr(next(each)).encode()
            if self._comma:
                text = _quoted(text.replace(b".", b","), self._delimiter)
            if self._asked.column is None:
                fields[self._place] = text
            else:
                fields.append(text)
            yield self._delimiter.join(fields) + end


def _records(lines: Iterator[bytes], delimiter: bytes) -> Iterator[_Record]:
    """The records of a text, and its blank lines after the first."""
    quoted = re.compile(_FIELD % ((re.escape(delimiter),) * 3))
    number = 1
    for line in lines:
        text, taken = (line, 1) if b'"' not in line else _whole(line, lines, delimiter)
        body = text.rstrip(b"\r\n")
        if body or number == 1:
            fields = body.split(delimiter) if b'"' not in body else _split(body, delimiter, quoted)
            yield _Record(fields, text[len(body) :], number)
        else:
            yield _Record([], text, number)
        number += taken


def _whole(line: bytes, lines: Iterator[bytes], delimiter: bytes) -> tuple[bytes, int]:
    """All of the record that begins with a line, and how many lines it takes."""
    parts, length = [line], len(line)
    is_open = _leaves_open(line, delimiter, within=False)
    while is_open:
        line = next(lines, b"")
        parts.append(line)
        length += len(line)
        if not line:
            raise InputError(_BROKEN)
        if length > _LONGEST:
            raise InputError(_TOO_LONG)
        is_open = _leaves_open(line, delimiter, within=True)
    return b"".join(parts), len(parts)


def _leaves_open(line: bytes, delimiter: bytes, *, within: bool) -> bool:
    """Whether a quote is open after a line, which begins `within` one or not."""
    place = 0
    while place < len(line):
        if within:
            place = _TO_QUOTE.match(line, place).end()  # type: ignore[union-attr]  # at least b""
            if place == len(line):
                return True
        elif line[place : place + 1] == b'"':
            within, place = True, place + 1
            continue
        within = False
        place = line.find(delimiter, place) + 1
        if not place:
            return False
    return within


def _split(body: bytes, delimiter: bytes, quoted: re.Pattern[bytes]) -> list[bytes]:
    """The fields of a whole record, some of which stand in quotes."""
    fields, place = [], 0
    while found := quoted.match(body, place):
        fields.append(found[0])
        if found.end() == len(body):
            break
        place = found.end() + len(delimiter)
    return fields


def _unquoted(field: bytes) -> bytes:
    if field[:1] == b'"' and field[-1:] == b'"':
        return field[1:-1].replace(b'""', b'"')
    return field


def _quoted(text: bytes, delimiter: bytes) -> bytes:
    """Text as a field: in quotes where it would else be read as something else."""
    if not any(sign in text for sign in (delimiter, b'"', b"\r", b"\n")):
        return text
    return b'"' + text.replace(b'"', b'""') + b'"'


@contextmanager
def _reading(text: Text) -> Iterator[Iterator[bytes]]:
    try:
        with text.opened() as file:
            if text.encoding == UTF8:
                yield _lines(file)
            else:
                words: Any = io.TextIOWrapper(file, text.encoding, newline="\n")
                yield (line.encode() for line in _lines(words))
    except UnicodeDecodeError as error:
        raise InputError(text.unreadable(error)) from None


def _lines(file: Any) -> Iterator[Any]:
    try:
        while line := file.readline(_LONGEST + 1):
            if len(line) > _LONGEST:
                raise InputError(_TOO_LONG)
            yield line
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError(_BROKEN) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}.") from None


@contextmanager
def _packed(file: BinaryIO, path: Path) -> Iterator[BinaryIO | gzip.GzipFile]:
    """The file, compressed on its way where its name says so; equal rows make equal bytes."""
    if path.suffix.lower() != ".gz":
        yield file
        return
    with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        yield packed
