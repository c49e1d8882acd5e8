"""Score tables on disk: CSV and Parquet files read in batches, never whole."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from fedgauge.data.examples import Examples
from fedgauge.errors import InputError, located

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
        for batch in self._open(self._columns.all).batches:
            yield self._columns.examples(batch)


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
            for batch in opener(self._wanted).batches:
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


class _Table:
    """An open file: its schema, and its batches."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self.schema = schema
        self.batches = batches


Opener = Callable[[Sequence[str]], _Table]


def _checked_opener(path: Path, columns: Sequence[str]) -> Opener:
    """How to open the file; refuses what can be refused before reading rows."""
    if len(set(columns)) < len(columns):
        listed = ", ".join(map(repr, columns))
        raise InputError(f"one column cannot be two things: got {listed}. Name different ones.")
    with located(str(path)):
        opener = _opener(path)
        try:
            present = opener(()).schema.names
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
        return lambda columns: _open_parquet(path, columns)
    if ending in _DELIMITERS:
        if is_parquet:
            raise InputError("this is a Parquet file, not CSV. Rename it to end in .parquet.")
        if suffixes[-1] != ".gz" and _starts_with(path, b"\x1f\x8b"):
            raise InputError("this is a gzip file. Rename it to end in .gz.")
        if suffixes[-1] == ".gz" and not _starts_with(path, b"\x1f\x8b"):
            raise InputError("this is not a gzip file, whatever its name says. Export it again.")
        return lambda columns: _open_csv(path, columns, _DELIMITERS[ending])
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


def _open_csv(path: Path, columns: Sequence[str], delimiter: str) -> _Table:
    # Text for every column but the score: a label's kind must not depend on the first block.
    score, *rest = columns or (None,)
    types = dict.fromkeys(rest, _WORDS) | ({score: pa.float64()} if score else {})
    try:
        compression = "gzip" if path.suffix.lower() == ".gz" else None
        reader = pa.csv.open_csv(
            pa.input_stream(path, compression=compression),
            read_options=pa.csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
            parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                include_columns=list(columns), column_types=types, strings_can_be_null=True
            ),
        )
    except (pa.ArrowInvalid, OSError) as error:
        if "Empty CSV" in str(error):
            raise InputError("there are no examples below the header. Export it again.") from None
        # Arrow's own message can quote a row.
        raise InputError(_bad_csv(columns)) from None

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except (pa.ArrowInvalid, OSError):
            raise InputError(_bad_csv(columns)) from None

    return _Table(reader.schema, batches())


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
