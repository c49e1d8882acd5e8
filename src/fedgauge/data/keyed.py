"""Labels that are named, by an id or a score, and the bin that each example was given."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedgauge.data.columns import pick, read_leniently
from fedgauge.data.examples import Examples
from fedgauge.data.files import ScoreFile
from fedgauge.data.ids import is_whole, read_ids
from fedgauge.data.oddities import LeftOut
from fedgauge.data.openers import WORDS, Dialect, Skip, checked_opener, not_numbers
from fedgauge.errors import InputError, located
from fedgauge.typing import Floats

ID: Final = pa.large_string()
NO_BIN: Final = -1
Keyed = tuple[pa.Array, Any]


def ids_of(what: str, values: Any) -> pa.Array:
    """Ids as text, whole numbers as their digits: what is compared when sides are joined.

    Examples
    --------
    >>> ids_of("scores", [7, 8]).to_pylist(), ids_of("scores", ["007"]).to_pylist()
    (['7', '8'], ['007'])
    """
    with located(what):
        return read_ids(values).cast(ID)


def lenient_ids(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The same of a column that may hold anything: null where there is no id."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_floating(kind):  # whole numbers, some of which were missing
        whole = pc.and_(pc.equal(pc.floor(column), column), pc.less(pc.abs(column), 2.0**53))
        column = pc.if_else(whole, column, None).cast(pa.int64())
    elif not (is_whole(kind) or pa.types.is_string(kind) or kind in (ID, pa.null())):
        raise InputError("ids must be text or whole numbers.")
    return column.cast(ID)


class KeyedFile:
    """A file of labels by id, one row an example.

    Parameters
    ----------
    path
        As for :class:`ScoreFile`.
    key, label
        Names of the columns.
    separator, decimal
        As for :class:`ScoreFile`.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        key: str,
        label: str,
        separator: str | None = None,
        decimal: str = ".",
    ) -> None:
        self.path = Path(path)
        self._key, self._label = key, label
        self._types = {key: pa.string(), label: WORDS}
        self._open = checked_opener(self.path, (key, label), Dialect(separator, decimal))

    def __str__(self) -> str:
        return str(self.path)

    def leniently(self, skip: Skip) -> Iterator[Keyed]:
        """Ids and labels, batch after batch, whatever a row holds; see :class:`ScoreFile`."""
        for batch in self._open(self._types, skip).batches:
            yield lenient_ids(batch[self._key]), batch[self._label]

    def keys(self) -> Iterator[pa.Array]:
        """The ids alone, batch after batch; no label is read."""
        for batch in self._open({self._key: pa.string()}, lambda: None).batches:
            yield lenient_ids(batch[self._key])

    def check(self) -> None:
        """Refuse columns whose type is not that of an id or a label; reads no row."""
        with located(str(self)):
            schema = self._open(self._types, lambda: None).schema
            for name in self._types:
                if pa.types.is_nested(schema.field(name).type):
                    raise InputError(f"column {name!r} holds lists. Name a column of plain values.")
            lenient_ids(pa.array([], schema.field(self._key).type))


class ScoredFile:
    """A file of labels and scores of one party, whose rows are named by their scores."""

    def __init__(self, file: ScoreFile) -> None:
        self._file = file

    def __str__(self) -> str:
        return str(self._file)

    def leniently(self, skip: Skip) -> Iterator[Keyed]:
        """Scores and labels, batch after batch, whatever a row holds."""
        for batch in self._file.leniently(skip or (lambda: None)):
            yield pa.array(batch.y_score + 0.0), batch.labels  # -0 and 0 are one score

    def check(self) -> None:
        """As of the file itself."""
        self._file.check()


def ids_in(path: str | Path, *, key: str, separator: str | None = None) -> pa.Array:
    """The ids in a file, and nothing else of it."""
    column = _column_in(Path(path), key, pa.string(), Dialect(separator, "."))
    with located(str(path)):
        return read_ids(column).cast(ID)


def scores_in(
    path: str | Path, *, score: str, separator: str | None = None, decimal: str = "."
) -> Floats:
    """The scores in a file, and nothing else of it."""
    column = _column_in(Path(path), score, pa.float64(), Dialect(separator, decimal))
    with located(str(path)):
        try:
            values: Floats = column.cast(pa.float64()).to_numpy()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise InputError(not_numbers(score)) from None
    return values


def _column_in(path: Path, name: str, kind: pa.DataType, dialect: Dialect) -> pa.ChunkedArray:
    opener = checked_opener(path, (name,), dialect)
    with located(str(path)):
        table = opener({name: kind}, None)
        column = pa.chunked_array(
            [batch[name] for batch in table.batches], table.schema.field(name).type
        )
        if not len(column):
            raise InputError("there are no rows in it. Export it again.")
    return column


class KeyedSource(Protocol):
    """Where named labels come from."""

    def leniently(self, skip: Skip) -> Iterator[Keyed]:
        """Keys and labels, batch after batch; `skip` is called for a row that has neither."""


@dataclass(frozen=True)
class KeyedColumns:
    """Named labels in memory."""

    keys: pa.Array
    labels: Any

    def __str__(self) -> str:
        return "labels in memory"  # errors name their source, and never quote it

    def leniently(self, skip: Skip) -> Iterator[Keyed]:
        """All of them at once."""
        del skip  # columns have no malformed rows
        yield self.keys, self.labels


@dataclass(frozen=True, eq=False)
class Places:
    """The bin of each example that a party is asked about.

    Attributes
    ----------
    keys
        What names an example: an id as text, or its score. None comes twice.
    bins
        The bin of each, :data:`NO_BIN` where it has none.
    """

    keys: pa.Array
    bins: NDArray[np.int32]

    @property
    def by_id(self) -> bool:
        """Whether a key names one row, and not all rows of a score."""
        return bool(self.keys.type == ID)


class PlacedRows:
    """A label party's rows as engines count them: labels, and bins for scores.

    A row that is not asked about is left out, and so is a second row of the same id: each label
    counts in one place at most, which no other label decides.

    Parameters
    ----------
    source
        The party's labels.
    places
        The bins, as the party was told them.
    """

    def __init__(self, source: KeyedSource, places: Places) -> None:
        self._source, self._places = source, places
        self.odd: LeftOut = {}

    def __str__(self) -> str:
        return str(self._source)

    def __call__(self) -> Iterator[Examples]:
        """Labels and bins, batch after batch."""
        return self.leniently(lambda: None)

    def leniently(self, skip: Callable[[], None]) -> Iterator[Examples]:
        """The same; afterwards `odd` says what did not fit, and how often."""
        places = self._places
        asked = np.append(places.bins != NO_BIN, False)  # the last stands for keys not listed
        seen = np.zeros(len(asked), dtype=bool)
        unlisted = repeated = 0
        for keys, labels in self._source.leniently(skip):
            place = pc.index_in(keys, value_set=places.keys, skip_nulls=True)
            found = pc.fill_null(place, -1).to_numpy(zero_copy_only=False)
            listed = asked[found]
            first = listed & self._first(found, seen) if places.by_id else listed
            seen[found[listed]] = True
            unlisted += int(np.count_nonzero(~listed))
            repeated += int(np.count_nonzero(listed & ~first))
            chosen = pick(read_leniently("labels", labels), first)
            yield Examples.leniently(chosen, places.bins[found[first]].astype(np.float64))
        unlabelled = int(np.count_nonzero(asked & ~seen))
        self.odd = {"unlisted": unlisted, "repeated": repeated, "unlabelled": unlabelled}

    @staticmethod
    def _first(found: NDArray[np.int32], seen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which rows are the first of their id."""
        first = np.zeros(len(found), dtype=bool)
        first[np.unique(found, return_index=True)[1]] = True
        return first & ~seen[found]
