"""Score tables: CSV and Parquet files read in batches, never whole, or a data frame."""

import codecs
import csv
import gzip
import io
import itertools
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from fedgauge.data.columns import floats_of, from_arrow, read_leniently
from fedgauge.data.examples import Examples
from fedgauge.data.frames import frame_batches, frame_of, no_client, no_names
from fedgauge.errors import InputError, located
from fedgauge.typing import Floats

_BATCH_ROWS: Final = 65_536
_BLOCK_BYTES: Final = 1 << 20
_DELIMITERS: Final = {".csv": ",", ".tsv": "\t"}
_DECIMALS: Final = (".", ",")
_OTHER_DELIMITERS: Final = (";", "\t", "|", ",")
_MOST_NAMES: Final = 30
_UNREADABLE: Final = (
    "the file does not read as UTF-8 text with the same number of columns in every row. Export it "
    "again."
)
_PARQUET: Final = (".parquet", ".pq")
WORDS: Final = pa.dictionary(pa.int32(), pa.string())  # labels, ids, names: few, and often again


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
    separator, decimal
        Of a text file, what stands between columns (by default a comma or, in ``.tsv``, a tab)
        and before decimals: ``"."`` or ``","``.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        label: str,
        score: str,
        subject: str | None = None,
        separator: str | None = None,
        decimal: str = ".",
    ) -> None:
        self.path = Path(path)
        self._columns = _Columns(label, score, subject, decimal)
        dialect = Dialect(separator, decimal)
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
        """The examples, whatever a row holds: where it holds no number its score is NaN.

        A row of a text file with too few or too many fields is left out, and `skip` called. What
        concerns the file as a whole is still refused: that it breaks off, a quote that is never
        closed, a line longer than a megabyte.
        """
        for batch in self._open(self._columns.lenient_types, skip).batches:
            yield self._columns.lenient_examples(batch)

    def check(self) -> None:
        """Refuse columns whose type is not that of a label, a score or an id.

        Reads the types that the file states or, of text, its first rows. Some rows without a
        number are no matter of type, and for a site to stop at them would tell of them: only
        where no score of the first rows is a number is it the wrong column, and only where none of
        them has as many columns as the header is it another separator.
        """
        with located(str(self)):
            skipped: list[None] = []
            table = self._open(self._columns.lenient_types, lambda: skipped.append(None))
            score, *others = self._columns.all
            for name in others:
                if pa.types.is_nested(table.schema.field(name).type):
                    raise InputError(f"column {name!r} holds lists. Name a column of plain values.")
            kind = table.schema.field(score).type
            self._columns.lenient_scores(pa.array([], kind))
            first = next(table.batches, None) if _is_text(kind) else None
            if first is not None and first[score].null_count < len(first):
                if np.all(np.isnan(self._columns.lenient_scores(first[score]))):
                    raise InputError(not_numbers(score))
            elif skipped and not first:
                raise InputError(
                    "no row has as many columns as the header. Check what stands between columns "
                    "(separator=...)."
                )


class ScoreTable:
    """Labels and scores of many clients, told apart by a column: files, or a data frame.

    Parameters
    ----------
    source
        A file, or several, as for :class:`ScoreFile`; or a data frame of pandas, polars or
        pyarrow.
    client, label, score, subject
        Names of the columns; `subject` only where privacy protects subjects.
    separator, decimal
        As for :class:`ScoreFile`.

    Examples
    --------
    >>> import fedgauge as fg
    >>> import pyarrow as pa
    >>> frame = pa.table({"site": ["a", "a", "b"], "y": [0, 1, 1], "p": [0.2, 0.7, 0.9]})
    >>> table = ScoreTable(frame, client="site", label="y", score="p")
    >>> fg.evaluate(table).clients
    2
    """

    def __init__(
        self,
        source: Any,
        *,
        client: str,
        label: str,
        score: str,
        subject: str | None = None,
        separator: str | None = None,
        decimal: str = ".",
    ) -> None:
        self._client = client
        self._columns = _Columns(label, score, subject, decimal)
        self._wanted = (*self._columns.all, client)
        self._frame, self._open = frame_of(source), {}
        if self._frame is not None:
            with located(str(self)):
                check_distinct(self._wanted)
                check_columns(self._wanted, self._frame.columns)
            return
        paths = paths_of(source)
        dialect = Dialect(separator, decimal)
        self._open = {path: checked_opener(path, self._wanted, dialect) for path in paths}

    def __str__(self) -> str:
        return ", ".join(map(str, self._open)) or "the data frame"

    def batches(self) -> Iterator[tuple[NDArray[Any], Examples]]:
        """Batches of examples, each with the name of every row's client."""
        if self._frame is not None:
            label, score, subject, _ = self._columns
            yield from frame_batches(
                self._frame, client=self._client, label=label, score=score, subject=subject
            )
        for opener in self._open.values():
            for batch in opener({**self._columns.types, self._client: WORDS}, None).batches:
                yield self._names(batch[self._client]), self._columns.examples(batch)

    def _names(self, column: pa.Array) -> NDArray[Any]:
        if column.null_count:
            raise InputError(no_client(self._client, f"{column.null_count:,} or more rows"))
        if pa.types.is_nested(column.type):
            raise InputError(no_names(self._client))
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        names = np.array([str(name) for name in column.dictionary.to_pylist()], dtype=object)
        chosen: NDArray[Any] = names[from_arrow(column.indices)]
        return chosen


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
    seen: dict[Path, str] = {}
    for path in paths:
        file, name = Path(path).resolve(), str(path)
        if file in seen:
            named = "given twice" if seen[file] == name else f"the same file as {seen[file]}"
            raise InputError(f"{name} is {named}, and its rows would count twice. Name it once.")
        seen[file] = name


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


def some_labels(
    paths: Sequence[str | Path], column: str, *, most: int, separator: str | None = None
) -> list[str] | None:
    """The values of a column, in order; None where there are more than `most`.

    Of the first rows of each file, for who holds the files: so few values are a column's labels,
    and more would be its rows.
    """
    found: set[str] = set()
    for path in map(Path, paths):
        opener = checked_opener(path, (column,), Dialect(separator, "."))
        table = opener({column: pa.string()}, lambda: None)
        for batch in itertools.islice(table.batches, 1):
            found.update(
                str(value) for value in batch[column].unique().to_pylist() if value is not None
            )
        if len(found) > most:
            return None
    return sorted(found)


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


class _Columns(NamedTuple):
    """Names of the columns that examples are made of, and what stands before decimals."""

    label: str
    score: str
    subject: str | None
    decimal: str

    @property
    def all(self) -> tuple[str, ...]:
        """The columns to read, the score first."""
        return (self.score, self.label, *([self.subject] if self.subject else []))

    @property
    def types(self) -> dict[str, pa.DataType]:
        """What each is read as in a text file."""
        return dict.fromkeys(self.all, WORDS) | {self.score: pa.float64()}

    @property
    def lenient_types(self) -> dict[str, pa.DataType]:
        """The same where a score that is no number, being text, spoils no other."""
        return {**self.types, self.score: pa.string()}

    def examples(self, batch: pa.RecordBatch) -> Examples:
        """The examples of one batch of rows."""
        try:
            scores = batch[self.score].cast(pa.float64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise InputError(not_numbers(self.score)) from None
        return Examples(
            batch[self.label], scores, subject=batch[self.subject] if self.subject else None
        )

    def lenient_examples(self, batch: pa.RecordBatch) -> Examples:
        """The same of rows that may hold anything."""
        return Examples.leniently(
            batch[self.label],
            self.lenient_scores(batch[self.score]),
            subject=batch[self.subject] if self.subject else None,
        )

    def lenient_scores(self, column: pa.Array) -> Floats:
        """The scores, NaN where there is no number; only a type that has none is refused."""
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if self.decimal != ".":
            # A point is then in no number, as where Arrow reads them.
            column = pc.replace_substring(pc.replace_substring(column, ".", "?"), ",", ".")
        try:
            # Unsafe: a whole number that floats cannot tell from the next one is near enough.
            numbers = column.cast(kind).cast(pa.float64(), safe=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            if not _is_text(kind):
                raise InputError(not_numbers(self.score)) from None
            return floats_of(read_leniently(self.score, column))
        return from_arrow(numbers)


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
# Columns, and what each is in a text file: a label's kind must not depend on the first block.
Types = Mapping[str, pa.DataType]
Opener = Callable[[Types, Skip], _Table]


def checked_opener(path: Path, columns: Sequence[str], dialect: Dialect) -> Opener:
    """How to open the file; refuses what can be refused before reading rows."""
    check_distinct(columns)
    with located(str(path)):
        opener = _opener(path, dialect)
        try:
            # Rows may be malformed; whether that matters is for who reads them to say.
            present = opener({}, lambda: None).schema.names
        except UnicodeDecodeError:
            raise InputError(_UNREADABLE) from None
        check_columns(columns, present)
    return opener


def _opener(path: Path, dialect: Dialect) -> Opener:
    try:
        if path.is_dir():
            raise InputError("this is a folder. Name the files in it, e.g. with a * pattern.")
        if path.stat().st_size == 0:
            raise InputError("the file is empty (0 bytes). Export it again.")
    except FileNotFoundError:
        raise InputError("there is no such file. Check its name and folder.") from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}.") from None
    ending, is_gzip = ending_of(path), path.suffix.lower() == ".gz"
    is_parquet = _starts_with(path, b"PAR1")
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
        if not is_gzip and _starts_with(path, b"\x1f\x8b"):
            raise InputError("this is a gzip file. Rename it to end in .gz.")
        if is_gzip and not _starts_with(path, b"\x1f\x8b"):
            raise InputError("this is not a gzip file, whatever its name says. Export it again.")
        text = _Text(path, dialect.delimiter(ending), dialect.decimal)
        return lambda types, skip: _open_csv(text, types, skip)
    raise InputError(
        f"cannot tell the format from the ending {path.suffix!r}: use .csv, .tsv or .parquet."
    )


def _starts_with(path: Path, magic: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(magic)) == magic
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}.") from None


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
    except (pa.ArrowInvalid, OSError):
        raise InputError("the Parquet file is damaged or cut short. Export it again.") from None

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from file.iter_batches(_BATCH_ROWS, columns=list(types), use_threads=False)
        except (pa.ArrowInvalid, OSError):
            raise InputError("the Parquet file is damaged. Export it again.") from None

    return _Table(file.schema_arrow, batches())


class _Text(NamedTuple):
    """A text file, and how it is written."""

    path: Path
    delimiter: str
    decimal: str

    @property
    def is_gzip(self) -> bool:
        """Whether it is compressed."""
        return self.path.suffix.lower() == ".gz"


def _open_csv(text: _Text, types: Types, skip: Skip) -> _Table:
    parse_options = pa.csv.ParseOptions(delimiter=text.delimiter, newlines_in_values=True)
    if skip:
        parse_options.invalid_row_handler = _skipping(skip)
    try:
        stream = pa.input_stream(text.path, compression="gzip" if text.is_gzip else None)
        reader = pa.csv.open_csv(
            _Utf8Rows(stream) if skip else stream,
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


def _bad_csv(text: _Text, types: Types, told: str) -> str:
    """What is wrong with a file, told without Arrow's words, which can quote a row."""
    if "conversion error to double" in told:
        return not_numbers(next(name for name, kind in types.items() if kind == pa.float64()))
    try:
        odd = _first_odd_line(text)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error):
        odd = None  # it breaks off, is no text, or has a quote that is never closed
    if odd is None:
        return _UNREADABLE
    return odd_line(*odd)


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
    opened = gzip.open if text.is_gzip else open
    with opened(text.path, "rt", encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter=text.delimiter, strict=True)
        named = len(next(rows, ()))
        before = rows.line_num
        for row in rows:
            if row and len(row) != named:
                return before + 1, len(row), named
            before = rows.line_num
    return None


def not_numbers(column: str) -> str:
    """What is said of a column of scores that are none."""
    return (
        f"column {column!r} holds values that are not numbers. Check which column holds the score, "
        "and what stands before decimals (decimal=...)."
    )


def check_distinct(columns: Sequence[str]) -> None:
    """Refuse one column in two places."""
    if len(set(columns)) < len(columns):
        listed = ", ".join(map(repr, columns))
        raise InputError(f"one column cannot be two things: got {listed}. Name different ones.")


def check_columns(wanted: Sequence[str], present: Sequence[str]) -> None:
    """Refuse a column that is not there, or there twice."""
    seen = Counter(present)
    for name in wanted:
        if not seen[name]:
            raise InputError(f"there is no column {name!r}. {_list_columns(present)}")
        if seen[name] > 1:
            raise InputError(f"{seen[name]} columns are named {name!r}. Rename all but one.")


def _list_columns(names: Sequence[str]) -> str:
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
