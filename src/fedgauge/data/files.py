"""Score tables on disk: CSV and Parquet files read in batches, never whole."""

import codecs
import io
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from fedgauge.data.columns import floats_of, read_leniently
from fedgauge.data.examples import Examples
from fedgauge.errors import InputError, located
from fedgauge.typing import Floats

_BATCH_ROWS: Final = 65_536
_BLOCK_BYTES: Final = 1 << 20
_DELIMITERS: Final = {".csv": ",", ".tsv": "\t"}
_MOST_NAMES: Final = 30
_PARQUET: Final = (".parquet", ".pq")
_WORDS: Final = pa.dictionary(pa.int32(), pa.string())  # labels, ids, names: few, and often again


class ScoreFile:
    """A file with the labels and scores of one client, one row an example.

    Call it for its examples, batch after batch. Every call reads the file again, so memory
    does not depend on its size. Errors name columns and the file, never a value in it.

    Parameters
    ----------
    path
        A ``.csv``, ``.tsv`` (also ``.gz``) or ``.parquet`` file.
    label, score, subject
        Names of the columns; `subject` only where privacy protects subjects.
    """

    def __init__(
        self, path: str | Path, *, label: str, score: str, subject: str | None = None
    ) -> None:
        self.path = Path(path)
        self._columns = _Columns(label, score, subject)
        self._open = _checked_opener(self.path, self._columns.all)

    @property
    def name(self) -> str:
        """The file's name without its endings: the client's name."""
        return self.path.name[: -len("".join(self.path.suffixes))]

    def __str__(self) -> str:
        return str(self.path)

    def __call__(self) -> Iterator[Examples]:
        """The examples, batch after batch."""
        for batch in self._open(self._columns.all, None).batches:
            yield self._columns.examples(batch)

    def leniently(self, skip: Callable[[], None]) -> Iterator[Examples]:
        """The examples, whatever a row holds: where it holds no number its score is NaN.

        A row of a text file with too few or too many fields is left out, and `skip` called. What
        concerns the file as a whole is still refused: that it breaks off, a quote that is never
        closed, a line longer than a megabyte.
        """
        for batch in self._open(self._columns.all, skip).batches:
            yield self._columns.lenient_examples(batch)

    def check(self) -> None:
        """Refuse columns whose type is not that of a label, a score or an id.

        Reads the types that the file states or, of text, its first rows. Some rows without a
        number are no matter of type, and for a site to stop at them would tell of them: only
        where no score of the first rows is a number is it the wrong column.
        """
        with located(str(self)):
            table = self._open(self._columns.all, lambda: None)
            score, *others = self._columns.all
            for name in others:
                if pa.types.is_nested(table.schema.field(name).type):
                    raise InputError(f"column {name!r} holds lists. Name a column of plain values.")
            kind = table.schema.field(score).type
            _lenient_scores(pa.array([], kind), score)
            for batch in itertools.islice(table.batches, 1 if _is_text(kind) else 0):
                numbers = _lenient_scores(batch[score], score)
                if batch[score].null_count < len(batch) and np.all(np.isnan(numbers)):
                    raise InputError(_not_numbers(score))


class ScoreTable:
    """Files with the labels and scores of many clients, told apart by a column.

    Parameters
    ----------
    paths
        Files as for :class:`ScoreFile`.
    client, label, score, subject
        Names of the columns; `subject` only where privacy protects subjects.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        *,
        client: str,
        label: str,
        score: str,
        subject: str | None = None,
    ) -> None:
        if not paths:
            raise InputError("there are no files. Name at least one.")
        self._client = client
        self._columns = _Columns(label, score, subject)
        self._wanted = (*self._columns.all, client)
        self._open = {Path(path): _checked_opener(Path(path), self._wanted) for path in paths}

    def __str__(self) -> str:
        return ", ".join(map(str, self._open))

    def batches(self) -> Iterator[tuple[NDArray[Any], Examples]]:
        """Batches of examples, each with the name of every row's client."""
        for opener in self._open.values():
            for batch in opener(self._wanted, None).batches:
                yield self._names(batch[self._client]), self._columns.examples(batch)

    def _names(self, column: pa.Array) -> NDArray[Any]:
        if column.null_count:
            raise InputError(
                f"column {self._client!r} names no client in {column.null_count:,} or more rows. "
                "Fill them in or drop them."
            )
        if pa.types.is_nested(column.type):
            raise InputError(f"column {self._client!r} holds lists, not names of clients.")
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        names = np.array([str(name) for name in column.dictionary.to_pylist()], dtype=object)
        chosen: NDArray[Any] = names[column.indices.to_numpy(zero_copy_only=False)]
        return chosen


def some_labels(paths: Sequence[str | Path], column: str, *, most: int) -> list[str] | None:
    """The values of a column, in order; None where there are more than `most`.

    Of the first rows of each file, for who holds the files: so few values are a column's labels,
    and more would be its rows.
    """
    found: set[str] = set()
    for path in map(Path, paths):
        table = _checked_opener(path, (column,))((column,), lambda: None)
        for batch in itertools.islice(table.batches, 1):
            found.update(
                str(value) for value in batch[column].unique().to_pylist() if value is not None
            )
        if len(found) > most:
            return None
    return sorted(found)


class _Columns(NamedTuple):
    """Names of the columns that examples are made of."""

    label: str
    score: str
    subject: str | None

    @property
    def all(self) -> tuple[str, ...]:
        """The columns to read, the score first."""
        return (self.score, self.label, *([self.subject] if self.subject else []))

    def examples(self, batch: pa.RecordBatch) -> Examples:
        """The examples of one batch of rows."""
        try:
            scores = batch[self.score].cast(pa.float64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise InputError(_not_numbers(self.score)) from None
        return Examples(
            batch[self.label], scores, subject=batch[self.subject] if self.subject else None
        )

    def lenient_examples(self, batch: pa.RecordBatch) -> Examples:
        """The same of rows that may hold anything."""
        return Examples.leniently(
            batch[self.label],
            _lenient_scores(batch[self.score], self.score),
            subject=batch[self.subject] if self.subject else None,
        )


def _lenient_scores(column: pa.Array, name: str) -> Floats:
    """The scores, NaN where there is no number; only a type that has none is refused."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    try:
        # Unsafe: a whole number that floats cannot tell from the next one is near enough.
        numbers = column.cast(kind).cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if not _is_text(kind):
            raise InputError(_not_numbers(name)) from None
        return floats_of(read_leniently(name, column))
    floats: Floats = numbers.to_numpy(zero_copy_only=False)
    return floats


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


class _Table:
    """An open file: its schema, and its batches."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self.schema = schema
        self.batches = batches


# Called when a malformed row is left out; None where such a row is an error.
Skip = Callable[[], None] | None
Opener = Callable[[Sequence[str], Skip], _Table]


def _checked_opener(path: Path, columns: Sequence[str]) -> Opener:
    """How to open the file; refuses what can be refused before reading rows."""
    if len(set(columns)) < len(columns):
        listed = ", ".join(map(repr, columns))
        raise InputError(f"one column cannot be two things: got {listed}. Name different ones.")
    with located(str(path)):
        opener = _opener(path)
        try:
            # Rows may be malformed; whether that matters is for who reads them to say.
            present = opener((), lambda: None).schema.names
        except UnicodeDecodeError:
            raise InputError(_bad_csv(())) from None
        _check_columns(columns, present)
    return opener


def _opener(path: Path) -> Opener:
    try:
        if path.is_dir():
            raise InputError("this is a folder. Name the files in it, e.g. with a * pattern.")
        if path.stat().st_size == 0:
            raise InputError("the file is empty (0 bytes). Export it again.")
    except FileNotFoundError:
        raise InputError("there is no such file. Check its name and folder.") from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}.") from None
    suffixes = [suffix.lower() for suffix in path.suffixes]
    ending = suffixes[-2] if suffixes[-1:] == [".gz"] and len(suffixes) > 1 else path.suffix.lower()
    is_parquet = _starts_with(path, b"PAR1")
    if ending in _PARQUET:
        if not is_parquet:
            raise InputError("this is not a Parquet file, whatever its name says. Export it again.")
        return lambda columns, _: _open_parquet(path, columns)
    if ending in _DELIMITERS:
        if is_parquet:
            raise InputError("this is a Parquet file, not CSV. Rename it to end in .parquet.")
        if suffixes[-1] != ".gz" and _starts_with(path, b"\x1f\x8b"):
            raise InputError("this is a gzip file. Rename it to end in .gz.")
        if suffixes[-1] == ".gz" and not _starts_with(path, b"\x1f\x8b"):
            raise InputError("this is not a gzip file, whatever its name says. Export it again.")
        return lambda columns, skip: _open_csv(path, columns, _DELIMITERS[ending], skip)
    raise InputError(
        f"cannot tell the format from the ending {path.suffix!r}: use .csv, .tsv or .parquet."
    )


def _starts_with(path: Path, magic: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(magic)) == magic
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}.") from None


def _open_parquet(path: Path, columns: Sequence[str]) -> _Table:
    import pyarrow.parquet as pq  # here, for it takes a while and most files are CSV

    try:
        metadata = pq.read_metadata(path)
        flat = {metadata.schema.column(i).path for i in range(metadata.num_columns)}
        # Buffered, not pre-buffered: pages are read as they are needed.
        file = pq.ParquetFile(
            path,
            metadata=metadata,
            read_dictionary=[name for name in columns if name in flat],
            buffer_size=_BLOCK_BYTES,
            pre_buffer=False,
        )
    except (pa.ArrowInvalid, OSError):
        raise InputError("the Parquet file is damaged or cut short. Export it again.") from None

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from file.iter_batches(_BATCH_ROWS, columns=list(columns), use_threads=False)
        except (pa.ArrowInvalid, OSError):
            raise InputError("the Parquet file is damaged. Export it again.") from None

    return _Table(file.schema_arrow, batches())


def _open_csv(path: Path, columns: Sequence[str], delimiter: str, skip: Skip) -> _Table:
    # Text for every column but the score: a label's kind must not depend on the first block.
    score, *rest = columns or (None,)
    number = pa.string() if skip else pa.float64()  # as text, one that is none spoils no other
    types = dict.fromkeys(rest, _WORDS) | ({score: number} if score else {})
    parse_options = pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    if skip:
        parse_options.invalid_row_handler = _skipping(skip)
    try:
        compression = "gzip" if path.suffix.lower() == ".gz" else None
        stream = pa.input_stream(path, compression=compression)
        reader = pa.csv.open_csv(
            _Utf8Rows(stream) if skip else stream,
            read_options=pa.csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
            parse_options=parse_options,
            convert_options=pa.csv.ConvertOptions(
                include_columns=list(columns),
                column_types=types,
                strings_can_be_null=True,
            ),
        )
    except (pa.ArrowInvalid, OSError) as error:
        if "Empty CSV" in str(error):
            raise InputError("there are no examples below the header. Export it again.") from None
        if columns and skip is None:
            _open_csv(path, (), delimiter, None)  # complains if it is not for the score
        # Arrow's own message can quote a row.
        raise InputError(_bad_csv(columns)) from None

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except (pa.ArrowInvalid, OSError):
            raise InputError(_bad_csv(columns)) from None

    return _Table(reader.schema, batches())


class _Utf8Rows(io.RawIOBase):
    r"""The bytes of a text file; those of its rows that are not UTF-8 are spelled out (``\\xfc``).

    Arrow gives up a file for one such byte. The header stays as it is, to be refused.
    """

    def __init__(self, source: pa.NativeFile) -> None:
        self._source = source
        self._in_rows = self._ended = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._waiting = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        # Filled up to the size: Arrow takes a first block without a newline for no table.
        while not self._ended and len(self._waiting) < size:
            chunk = self._source.read(size)
            self._ended = not chunk
            self._waiting += self._mend(chunk)
        given, self._waiting = self._waiting[:size], self._waiting[size:]
        return given

    def _mend(self, chunk: bytes) -> bytes:
        if not (chunk or self._in_rows):
            self._in_rows = True
            return b"\n"  # without which a header alone is no table
        header = b""
        if chunk and not self._in_rows:
            head, newline, rest = chunk.partition(b"\n")
            header, chunk, self._in_rows = head + newline, rest, bool(newline)
        if not chunk.isascii() or self._decoder.getstate()[0]:
            chunk = self._decoder.decode(chunk, final=not chunk and not header).encode()
        return header + chunk if header else chunk


def _skipping(skip: Callable[[], None]) -> Callable[[Any], str]:
    def handle(row: Any) -> str:
        del row
        skip()
        return "skip"

    return handle


def _bad_csv(columns: Sequence[str]) -> str:
    told = "the file does not read as UTF-8 text with the same number of columns in every row"
    if columns:
        return f"{told}, or {_not_numbers(columns[0])}"
    return f"{told}. Export it again."


def _not_numbers(column: str) -> str:
    return (
        f"column {column!r} holds values that are not numbers. Check which column holds the score."
    )


def _check_columns(wanted: Sequence[str], present: Sequence[str]) -> None:
    seen = Counter(present)
    for name in wanted:
        if not seen[name]:
            raise InputError(f"there is no column {name!r}. {_list_columns(present)}")
        if seen[name] > 1:
            raise InputError(f"{seen[name]} columns are named {name!r}. Rename all but one.")


def _list_columns(names: Sequence[str]) -> str:
    # Without a header the first row, a person's label and score, stands in its place.
    if any(_is_number(name) for name in names):
        return "The first row looks like data: add a row with the names of the columns."
    shown = ", ".join(repr(name) for name in names[:_MOST_NAMES])
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"The columns are {shown}{more}."


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
