"""Score tables: CSV and Parquet files read in batches, never whole, or a data frame."""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedgauge.data.columns import from_arrow
from fedgauge.data.examples import Examples
from fedgauge.data.frames import frame_batches, frame_of, no_client, no_names
from fedgauge.data.named_columns import (
    GroupColumns,
    LabelColumns,
    NamedColumns,
    ScoreColumns,
    is_text,
)
from fedgauge.data.openers import (
    WORDS,
    Dialect,
    check_columns,
    check_distinct,
    checked_opener,
    not_numbers,
)
from fedgauge.errors import InputError, located


class ScoreFile:
    r"""A file with the labels and scores of one client, one row an example.

    Call it for its examples, batch after batch. Every call reads the file again, so memory
    does not depend on its size. Errors name columns and the file, never a value in it.

    Parameters
    ----------
    path
        A ``.csv``, ``.tsv`` (also ``.gz``) or ``.parquet`` file.
    label, score
        Names of the columns. Of several classes `score` is a list of columns, in the order of the
        task's classes; of several models a mapping from their names to a column or a list. Of
        several labels a row `label` is a list, and `score` one in the same order.
    group
        Where rows are of groups, the column; of several groupings a mapping from their names.
    subject
        The column of the subject's id, where privacy protects subjects.
    separator, decimal
        Of a text file, what stands between columns (by default a comma or, in ``.tsv``, a tab)
        and before decimals: ``"."`` or ``","``.

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
    ) -> None:
        self.path = Path(path)
        self._columns = NamedColumns.read(label, score, group, subject, decimal)
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
            for name in self._columns.words:
                if pa.types.is_nested(table.schema.field(name).type):
                    raise InputError(f"column {name!r} holds lists. Name a column of plain values.")
            kinds = {name: table.schema.field(name).type for name in self._columns.numbers}
            for name, kind in kinds.items():
                self._columns.lenient_scores(name, pa.array([], kind))
            text = [name for name, kind in kinds.items() if is_text(kind)]
            first = next(table.batches, None) if text else None
            if first is not None and len(first):
                for name in text:
                    self._check_numbers(name, first[name])
            elif skipped:
                raise InputError(
                    "no row has as many columns as the header. Check what stands between columns "
                    "(separator=...)."
                )

    def _check_numbers(self, name: str, column: pa.Array) -> None:
        missing = column.null_count == len(column)
        if not missing and np.all(np.isnan(self._columns.lenient_scores(name, column))):
            raise InputError(not_numbers(name))


class ScoreTable:
    """Labels and scores of many clients, told apart by a column: files, or a data frame.

    Parameters
    ----------
    source
        A file, or several, as for :class:`ScoreFile`; or a data frame of pandas, polars or
        pyarrow.
    client
        The column of the client's name.
    label, score, group, subject, separator, decimal
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
        label: LabelColumns,
        score: ScoreColumns,
        group: GroupColumns = None,
        subject: str | None = None,
        separator: str | None = None,
        decimal: str = ".",
    ) -> None:
        self._client = client
        self._columns = NamedColumns.read(label, score, group, subject, decimal)
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
            yield from frame_batches(self._frame, self._client, self._columns)
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
