"""Files of rows written anew with one column more, or another, and the rest as it was."""

import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
import pyarrow as pa

from fedgauge.data.columns import floats_of, read_column
from fedgauge.data.openers import FileForm, check_file, ending_of, not_numbers, odd_line
from fedgauge.errors import InputError, located
from fedgauge.storage.whole import written_whole
from fedgauge.typing import Floats

Transform = Callable[[Floats], Floats]
_BATCH_ROWS: Final = 65_536
_LONGEST: Final = 1 << 20  # bytes of a row, as where rows are counted
_MARK: Final = b"\xef\xbb\xbf"  # that some programs put before UTF-8
_MISSING: Final = frozenset({b"", b"NA", b"N/A", b"#N/A", b"NULL", b"null", b"None", b"<NA>"})
_BROKEN: Final = "the file breaks off, or has a quote that is never closed. Export it again."

_NO_HEADER: Final = (
    "the first line is not the one with the names of the columns, or lines end in an unusual way. "
    "Export it again."
)


class Rewrite(NamedTuple):
    """A file of rows, and what becomes of one of its columns.

    Parameters
    ----------
    source, target
        Files of one format; of text each may be compressed (``.gz``) or not.
    score
        The column that is transformed.
    column
        The name of a new last column; None puts it in the place of the scores.
    separator, decimal
        As for :class:`fedgauge.ScoreFile`.
    """

    source: Path
    target: Path
    score: str
    column: str | None
    separator: str | None = None
    decimal: str = "."

    def run(self, transform: Transform) -> int:
        """Write the target, all of it or nothing; returns how many rows there were.

        Memory does not depend on the size of the file. Of text every byte of the other columns
        stays as it was: quotes, digits, ends of lines, a byte order mark.
        """
        form = check_file(
            self.source, (self.score,), separator=self.separator, decimal=self.decimal
        )
        ending = ending_of(self.source)
        if ending_of(self.target) != ending:
            raise InputError(
                f"rows of a {ending} file are written as they are, into another. Give "
                f"{self.target} that ending."
            )
        with located(str(self.source)):
            return (
                _rewrite_parquet(self, transform)
                if form.delimiter is None
                else (_rewrite_text(self, transform, form, form.delimiter.encode()))
            )

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
    """The fields of a record as they are written, what ends its line, and the line it began in."""

    fields: list[bytes]
    end: bytes
    line: int


def _rewrite_text(asked: Rewrite, transform: Transform, form: FileForm, delimiter: bytes) -> int:
    rows = 0
    with (
        _reading(asked.source, form) as source,
        written_whole(asked.target) as whole,
        _packed(whole, asked.target) as out,
    ):
        records = _records(source, delimiter)
        header, end, _ = next(records)
        names = [_unquoted(field.removeprefix(_MARK)).decode() for field in header]
        asked.check_new(names)
        if asked.score not in names:
            raise InputError(_NO_HEADER)
        if asked.column is not None:
            header.append(_quoted(asked.column.encode(), delimiter))
        out.write(delimiter.join(header) + end)
        column = _Fields(asked, delimiter, names.index(asked.score))
        while batch := list(islice(records, _BATCH_ROWS)):
            for each in batch:
                if len(each.fields) != len(names):
                    raise InputError(odd_line(each.line, len(each.fields), len(names)))
            made = _applied(transform, column.read(batch), rows)
            out.writelines(column.written(batch, made))
            rows += len(batch)
    return rows


class _Fields:
    """One column of text records: read as numbers, and written."""

    def __init__(self, asked: Rewrite, delimiter: bytes, place: int) -> None:
        self._asked = asked
        self._comma = asked.decimal == ","
        self._delimiter = delimiter
        self._place = place

    def read(self, records: list[_Record]) -> Floats:
        """The numbers, NaN where none is written."""
        return np.array([self._number(each.fields[self._place]) for each in records])

    def _number(self, field: bytes) -> float:
        text = _unquoted(field).strip()
        if text in _MISSING:
            return np.nan
        if self._comma:
            text = text.replace(b".", b"?").replace(b",", b".")
        try:
            return float(text.replace(b"_", b"?"))  # which Python allows within numbers
        except ValueError:
            raise InputError(not_numbers(self._asked.score)) from None

    def written(self, records: list[_Record], numbers: Floats) -> Iterator[bytes]:
        """The records with these numbers, in all digits that tell them apart."""
        for (fields, end, _), number in zip(records, numbers.tolist(), strict=True):
            text = repr(number).encode()
            if self._comma:
                text = _quoted(text.replace(b".", b","), self._delimiter)
            if self._asked.column is None:
                fields[self._place] = text
            else:
                fields.append(text)
            yield self._delimiter.join(fields) + end


def _records(source: Iterable[bytes], delimiter: bytes) -> Iterator[_Record]:
    """The records of a text; blank lines are none, and go with the record before."""
    quoted = re.compile(b'"(?:[^"]|"")*"[^%b]*|[^"%b][^%b]*|' % ((re.escape(delimiter),) * 3))
    lines = enumerate(source, start=1)
    waiting: _Record | None = None
    for number, line in lines:
        if waiting is not None and not line.strip(b"\r\n"):
            waiting = waiting._replace(end=waiting.end + line)
            continue
        if waiting is not None:
            yield waiting
        waiting = _record(number, line, lines, delimiter, quoted)
    if waiting is not None:
        yield waiting


def _record(
    number: int,
    line: bytes,
    lines: Iterator[tuple[int, bytes]],
    delimiter: bytes,
    quoted: re.Pattern[bytes],
) -> _Record:
    """The record that begins with a line; one with a line break in quotes takes more of them."""
    while True:
        body = line.rstrip(b"\r\n")
        fields = body.split(delimiter) if b'"' not in body else _split(body, delimiter, quoted)
        if fields is not None:
            return _Record(fields, line[len(body) :], number)
        _, more = next(lines, (0, b""))
        if not more or len(line) > _LONGEST:
            raise InputError(_BROKEN)
        line += more


def _split(body: bytes, delimiter: bytes, quoted: re.Pattern[bytes]) -> list[bytes] | None:
    """The fields of a record some of which stand in quotes; None where a quote is open."""
    fields, place = [], 0
    while found := quoted.match(body, place):
        end = found.end()
        if body[end : end + 1] not in (b"", delimiter):
            return None
        fields.append(found[0])
        if end == len(body):
            return fields
        place = end + 1
    return None


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
def _reading(path: Path, form: FileForm) -> Iterator[Iterable[bytes]]:
    try:
        with gzip.open(path) if form.is_gzip else path.open("rb") as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError):
        raise InputError(_BROKEN) from None


@contextmanager
def _packed(file: BinaryIO, path: Path) -> Iterator[BinaryIO | gzip.GzipFile]:
    """The file, compressed on its way where its name says so; equal rows make equal bytes."""
    if path.suffix.lower() != ".gz":
        yield file
        return
    with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        yield packed
