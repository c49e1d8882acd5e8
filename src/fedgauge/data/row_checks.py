"""Odd rows: each gets a stated place and spoils no other, and its operator gets a summary.

Also rows that are named by ids or scores, each with the bin it was given.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedgauge.arrays import Floats
from fedgauge.data.columns import pick, read_leniently
from fedgauge.data.examples import Data, Examples, Label, RowSource, read_batches
from fedgauge.data.files import (
    WORDS,
    Dialect,
    ScoreFile,
    Skip,
    check_plain,
    checked_opener,
    not_numbers,
)
from fedgauge.data.ids import is_whole, read_ids
from fedgauge.errors import FedgaugeError, InputError, located

_BEYOND: Final = "lie beyond the axis"
_IN_AN_END: Final = "counted in an end bin"
_NEGATIVE: Final = "counted as negative"
_FIRST: Final = "counted as the first class"
_NEITHER: Final = "neither the positive label nor one other"
_REFUSED: Final = (
    "an exact sum stops at them, at `submit`, and the attempt counts. Correct the file before "
    "that. If this site has joined, abandon the evaluation and ask for a new invitation"
)
_MANY_CLIPPED: Final = 0.1  # of the rows: rounding above 1 is rare, another scale is not
_MANY_ODD: Final = 0.1  # of the rows: then the columns or the file are hardly those meant
_MANY_UNLISTED: Final = 0.5  # of the rows: then the groups that were asked for are hardly there
_SOME_UNLISTED: Final = 0.1  # the same where a listed group has no row at all
_FEW: Final = 10  # rows of a group in an exact sum: as the default of min_cell
_MOST_TOLD: Final = 10  # classes or groups in a sentence


class LeftOut(TypedDict, total=False):
    """Rows that were left out, and examples that have none, as :class:`Oddities` calls them."""

    malformed: int
    unlisted: int
    repeated: int
    unlabelled: int


@dataclass(frozen=True)
class Oddities:
    """How many of a client's rows were odd, and how.

    Under noise a row that cannot be counted as it is must not silence a client, for silence would
    tell of the row. Such a row has a stated place: a score that is missing or no number in the
    first bin, one beyond the axis in the bin at that end, a label that is missing or not the
    positive one among the negatives, of several classes in the first one, a group that is missing
    or not listed in "other". Rows without the id of a subject, where a plan protects subjects, are
    left out: nobody could say whose they are.

    >>> Oddities(rows=1200, not_finite=3).in_words
    ['3 of 1,200 scores are missing, infinite or no numbers: counted in an end bin.']
    """

    rows: int = 0  # that were counted
    not_finite: int = 0  # scores that are missing, NaN, infinite or no numbers
    clipped: int = 0  # other scores beyond the axis
    missing_labels: int = 0
    other_labels: int = 0  # neither positive nor the one other value, or of no class
    no_subject: int = 0  # rows without the id of a subject, where the plan protects subjects
    malformed: int = 0  # rows of a text file that were left out, with too few fields or too many
    over_largest: int = 0  # counts that were cut down to the plan's largest
    unlisted: int = 0  # labels apart from scores: rows of examples that have no bin
    repeated: int = 0  # the same: further rows of an example
    unlabelled: int = 0  # examples that have a bin and no row
    failure: str = ""  # why no row could be counted; empty if they could
    by_row: int = 1  # scores that each row has
    labels_by_row: int = 1
    of_classes: bool = False

    @property
    def in_words(self) -> list[str]:
        """Short sentences for the operator, of which none quotes a row; empty if all is well."""
        told = [f"{what}: {place}." for what, place in self._found()]
        return [*told, f"no row was counted: {self.failure}"] if self.failure else told

    def as_refused(self, *, clips: bool) -> list[str]:
        """The same where odd rows are refused, as in an exact sum, whose axis may clip scores."""
        told = [
            f"{what}: {place if clips and what.endswith(_BEYOND) else _REFUSED}."
            for what, place in self._found()
        ]
        return [*told, f"the rows cannot be counted: {self.failure}"] if self.failure else told

    def _found(self) -> list[tuple[str, str]]:
        """What is odd, and where it counts under noise."""
        scores = f"of {self.rows * self.by_row:,} scores"
        labels = f"of {self.rows * self.labels_by_row:,} labels"
        known = "none of the plan's classes" if self.of_classes else _NEITHER
        place = _FIRST if self.of_classes else _NEGATIVE
        found = [
            (self.not_finite, f"{scores} are missing, infinite or no numbers", _IN_AN_END),
            (self.clipped, f"{scores} {_BEYOND}", "counted in its end bins"),
            (self.missing_labels, f"{labels} are missing", place),
            (self.other_labels, f"{labels} are {known}", place),
            (self.no_subject, "rows have no subject id", "left out"),
            (self.malformed, "rows have too few or too many fields", "left out"),
            (self.over_largest, "counts are above the plan's largest", "cut down to it"),
            (self.unlisted, "rows are of examples without a bin", "left out"),
            (self.repeated, "rows have the id of a row before", "left out"),
            (self.unlabelled, "examples with a bin have no row", _NEGATIVE),
        ]
        return [(f"{count:,} {what}", place) for count, what, place in found if count]


class Parts(NamedTuple):
    """How the rows are spread over what a plan lists: classes, labels or groups.

    `name` is that of a grouping, `rows` those of each value; of groups the last are unlisted ones.
    """

    name: str
    rows: dict[str, int]

    @property
    def in_words(self) -> str:
        """Rows of each value, or how many values have some where there are many."""
        if len(self.rows) > _MOST_TOLD:
            held = sum(1 for rows in self.rows.values() if rows)
            return f"{held:,} of {len(self.rows):,} have rows"
        return ", ".join(f"{value} ({rows:,})" for value, rows in self.rows.items())


@dataclass(frozen=True)
class RowSummary:
    """What a site's rows came to. It stays at the site: shown to its operator, never sent.

    >>> RowSummary(300, Oddities(rows=1200, clipped=2, missing_labels=3)).in_words
    '1,200 rows: 300 positive, 2 clipped into the end bins, 3 odd'
    """

    positives: int | None  # None where that is not one number
    oddities: Oddities
    labels: Parts | None = None  # rows of each class, or positives of each label
    groups: tuple[Parts, ...] = ()  # rows of each group, by grouping
    swapped: tuple[str, ...] = ()  # classes whose scores look like another one's

    @property
    def in_words(self) -> str:
        """Rows, positives, clipped and odd ones, in one line."""
        odd = self.oddities
        left_out = odd.no_subject + odd.malformed + odd.unlisted + odd.repeated
        classes = "" if self.positives is None else f"{self.positives:,} positive, "
        if self.labels is not None:
            classes = f"{self.labels.name} {self.labels.in_words}, "
        scores = " scores" if odd.by_row > 1 else ""
        told = (
            f"{odd.rows:,} rows: {classes}{odd.clipped:,}{scores} clipped into the end bins, "
            f"{odd.not_finite + odd.missing_labels + odd.other_labels:,} odd"
        )
        told += "".join(f"; by {parts.name}: {parts.in_words}" for parts in self.groups)
        return f"{told}; {left_out:,} left out" if left_out else told

    def warnings(
        self,
        positive: Label | None,
        low: float,
        high: float,
        *,
        exact: bool = False,
        clips: bool = True,
    ) -> list[str]:
        """What an operator should see to before it is too late; quotes no row.

        `positive` is the plan's label, `low` and `high` are the ends of its axis, `exact` says
        whether odd rows are refused, and `clips` whether scores beyond the axis are not.
        """
        rows, odd = self.oddities.rows, self.oddities
        told = odd.as_refused(clips=clips) if exact else odd.in_words
        if odd.clipped > _MANY_CLIPPED * rows * odd.by_row:
            scale = (
                f"It goes from {low:g} to {high:g}, so percentages, logits or points do not fit: "
                "convert the scores, or ask for a plan with an axis for them."
            )
            told = [f"{each} {scale}" if _BEYOND in each else each for each in told]
        if odd.failure:
            return told
        if not rows:
            return [*told, "there are no rows that count. Check the export."]
        told += self._one_sided(positive)
        if self.swapped:
            told.append(
                f"the scores of {_listed(self.swapped)} look swapped. Check which column belongs "
                "to which class."
            )
        told += [sentence for parts in self.groups for sentence in _unlisted(parts, rows)]
        return told + [each for parts in self.groups if exact for each in _few(parts)]

    @property
    def is_doubtful(self) -> bool:
        """Whether what is wrong suggests another file, other columns or another spelling."""
        rows, odd = self.oddities.rows, self.oddities
        if odd.failure or not rows:
            return True
        scores, labels = rows * odd.by_row, rows * odd.labels_by_row
        shares = (
            max(odd.clipped, odd.not_finite) / scores,
            (odd.missing_labels + odd.other_labels) / labels,
            (odd.malformed + odd.no_subject) / (rows + odd.malformed + odd.no_subject),
        )
        one_sided = bool(self._one_sided(None)) and odd.labels_by_row == 1
        unlisted = any(_unlisted(parts, rows) for parts in self.groups)
        return max(shares) > _MANY_ODD or one_sided or unlisted or bool(self.swapped)

    def _one_sided(self, positive: Label | None) -> list[str]:
        """That one class has all rows, or none."""
        rows = self.oddities.rows
        if self.labels is None:
            if self.positives not in (0, rows):
                return []  # or where that is not one number
            return [
                f"{'all' if self.positives else 'none'} of {rows:,} rows are positive, which in "
                f"the plan is {1 if positive is None else positive!r}. Check the label column; "
                f"{RELABEL}"
            ]
        if self.oddities.of_classes:
            full = [name for name, count in self.labels.rows.items() if count == rows]
            told = [f"all of {rows:,} rows are of the class {name}" for name in full]
            return [f"{each}. Check the label column." for each in told]
        sides = {name: count for name, count in self.labels.rows.items() if count in (0, rows)}
        return [
            f"{'all' if count else 'none'} of {rows:,} rows have the label {name}, which is 1 in "
            "its column. Check that column."
            for name, count in sides.items()
        ]


def _unlisted(parts: Parts, rows: int) -> list[str]:
    """That the groups of a plan are hardly those of the file."""
    *listed, (_, other) = parts.rows.items()
    empty = [name for name, count in listed if not count]
    if other <= (_SOME_UNLISTED if empty else _MANY_UNLISTED) * rows:
        return []
    told = f"{other:,} of {rows:,} rows are of no listed group of {parts.name}"
    told += f", and none are of {_listed(empty)}" if empty else ""
    return [
        f"{told}: they count in 'other'. Check the column, and that it spells groups as the plan "
        "does."
    ]


def _few(parts: Parts) -> list[str]:
    """That groups of an exact sum are of few rows here, as those of ids are."""
    *listed, _ = parts.rows.items()
    few = [name for name, count in listed if 0 < count < _FEW]
    if not few:
        return []
    return [
        f"fewer than {_FEW} rows are of {_listed(few)}, by {parts.name}, and the sum has no "
        "noise: if other sites have as few, the coordinator sees them. Check that the column "
        "does not hold ids, or ask for a plan with noise."
    ]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_TOLD:,} more" if len(names) > _MOST_TOLD else ""
    return ", ".join(names[:_MOST_TOLD]) + more


# A label is the plan's to say, and a site's file may forbid it: no option of a site's commands.
RELABEL: Final = (
    "recode it, or ask for a plan made with `fedgauge plan --positive LABEL`, whose label the site "
    "file must list (labels)."
)


def in_short(error: BaseException) -> str:
    """What went wrong, without what a foreign message might quote."""
    if isinstance(error, FedgaugeError):  # whose messages hold no values
        return str(error)
    return f"reading the rows ended in {type(error).__name__}."


ID: Final = pa.large_string()
NO_BIN: Final = -1
Keyed = tuple[pa.Array, Any]


def ids_of(what: str, values: Any) -> pa.Array:
    """Ids as text, whole numbers as their digits: what is compared when sides are joined."""
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
    """A file of labels by id, one row an example, with options as for :class:`ScoreFile`."""

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
            check_plain(schema, self._types)
            lenient_ids(pa.nulls(0, schema.field(self._key).type))


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
    """The bin of each example that a party is asked about."""

    keys: pa.Array  # an id as text, or a score; none comes twice
    bins: NDArray[np.int32]  # :data:`NO_BIN` where an example has none

    @property
    def by_id(self) -> bool:
        """Whether a key names one row, and not all rows of a score."""
        return bool(self.keys.type == ID)


class PlacedRows(RowSource):
    """A label party's rows as engines count them: labels, and bins for scores.

    A row that is not asked about is left out, and so is a second row of the same id: each label
    counts in one place at most, which no other label decides.
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


class LenientRows:
    """The data of a client, batch after batch; rows may hold anything.

    Refused is only what concerns the data as a whole: columns of unequal length, of a wrong shape
    or type, a file that breaks off.
    """

    def __init__(self, data: Data) -> None:
        self._data = data
        self._malformed = 0

    def __iter__(self) -> Iterator[Examples]:
        """The batches; counts rows of a text file that are left out."""
        batches = self._batches()
        while True:
            try:
                batch = next(batches, None)
            except (Exception, KeyboardInterrupt):
                raise
            except BaseException as error:  # a function that exits, a panic in Rust
                raise InputError(in_short(error)) from error
            if batch is None:
                return
            yield batch

    @property
    def left_out(self) -> LeftOut:
        """What of the rows read so far was left out."""
        if isinstance(self._data, PlacedRows):
            return {**self._data.odd, "malformed": self._malformed}
        return {"malformed": self._malformed}

    def _batches(self) -> Iterator[Examples]:
        if isinstance(self._data, RowSource):
            return self._data.leniently(self._skip)
        return read_batches(self._data, Examples.leniently)

    def _skip(self) -> None:
        self._malformed += 1
