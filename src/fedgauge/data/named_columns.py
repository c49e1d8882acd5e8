"""Which columns of a table hold labels, scores, groups and ids; its rows as examples."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedgauge.data.columns import (
    Column,
    floats_of,
    from_arrow,
    read_column,
    read_leniently,
    to_numpy,
)
from fedgauge.data.examples import Examples, numbers_of
from fedgauge.data.openers import WORDS, Types, not_numbers
from fedgauge.errors import InputError, located
from fedgauge.typing import Floats

LabelColumns = str | Sequence[str]
ScoreColumns = str | Sequence[str] | Mapping[str, str | Sequence[str]]
GroupColumns = str | Mapping[str, str] | None
Get = Callable[[str], Any]
_NUMBER: Final = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"


class NamedColumns(NamedTuple):
    """Names of the columns that examples are made of, and what stands before decimals.

    `scores` are by model, `groups` by grouping, None where there is one that has no name. Of
    several classes a model has several columns; of several labels there are as many.

    Examples
    --------
    >>> columns = NamedColumns.read("y", {"new": "p_new", "old": "p_old"}, group={"sex": "s"})
    >>> columns.all
    ('p_new', 'p_old', 'y', 's')
    """

    labels: tuple[str, ...]
    scores: tuple[tuple[str | None, tuple[str, ...]], ...]
    groups: tuple[tuple[str | None, str], ...] = ()
    subject: str | None = None
    decimal: str = "."

    @classmethod
    def read(
        cls,
        label: LabelColumns,
        score: ScoreColumns,
        group: GroupColumns = None,
        subject: str | None = None,
        decimal: str = ".",
    ) -> "NamedColumns":
        """The columns as a user names them."""
        by_model = score if isinstance(score, Mapping) else {None: score}
        by_grouping = group if isinstance(group, Mapping) else {None: group} if group else {}
        scores = tuple((name, _several("score", each)) for name, each in by_model.items())
        groups = tuple((name, _one("group", each)) for name, each in by_grouping.items())
        if len({len(columns) for _, columns in scores}) != 1:
            raise InputError(
                "score must name as many columns for each model, in the order of the classes."
            )
        return cls(_several("label", label), scores, groups, subject, decimal)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns of scores."""
        return tuple(name for _, columns in self.scores for name in columns)

    @property
    def words(self) -> tuple[str, ...]:
        """All others."""
        groups = (name for _, name in self.groups)
        return (*self.labels, *groups, *([self.subject] if self.subject else []))

    @property
    def all(self) -> tuple[str, ...]:
        """The columns to read."""
        return self.numbers + self.words

    @property
    def types(self) -> dict[str, pa.DataType]:
        """What each is read as in a text file."""
        return dict.fromkeys(self.all, WORDS) | dict.fromkeys(self.numbers, pa.float64())

    @property
    def lenient_types(self) -> Types:
        """The same where a score that is no number, being text, spoils no other."""
        return self.types | dict.fromkeys(self.numbers, pa.string())

    def examples(self, batch: pa.RecordBatch) -> Examples:
        """The examples of one batch of rows."""

        def scores_of(name: str) -> pa.Array:
            try:
                return batch[name].cast(pa.float64())
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                raise InputError(not_numbers(name)) from None

        return self._made(Examples, batch.__getitem__, scores_of, read_column)

    def lenient_examples(self, batch: pa.RecordBatch) -> Examples:
        """The same of rows that may hold anything."""

        def scores_of(name: str) -> Floats:
            return self.lenient_scores(name, batch[name])

        return self._made(Examples.leniently, batch.__getitem__, scores_of, read_leniently)

    def frame_examples(self, frame: Any) -> Examples:
        """The examples of a data frame."""

        def values_of(name: str) -> Any:
            return frame[name].to_native()

        def scores_of(name: str) -> Floats:
            with located(f"column {name!r}"):
                return numbers_of(read_column("y_score", values_of(name)))

        return self._made(Examples, values_of, scores_of, read_column)

    def _made(
        self,
        make: Callable[..., Examples],
        values_of: Get,
        scores_of: Get,
        read: Callable[[str, Any], Column],
    ) -> Examples:
        labels = [values_of(name) for name in self.labels]
        if len(labels) > 1:
            labels = [_side_by_side([read("y_true", each) for each in labels])]
        scores = {model: _table([scores_of(n) for n in names]) for model, names in self.scores}
        groups = {grouping: values_of(name) for grouping, name in self.groups}
        return make(
            labels[0],
            scores.get(None, scores),
            group=groups.get(None, groups) if groups else None,
            subject=values_of(self.subject) if self.subject else None,
        )

    def lenient_scores(self, name: str, column: pa.Array) -> Floats:
        """The scores, NaN where there is no number; only a type that has none is refused."""
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if self.decimal != ".":
            # A point is then in no number, as where Arrow reads them.
            column = pc.replace_substring(pc.replace_substring(column, ".", "?"), ",", ".")
        if is_text(kind):
            return _numbers_in(name, column.cast(kind))
        try:
            # Unsafe: a whole number that floats cannot tell from the next one is near enough.
            numbers = column.cast(kind).cast(pa.float64(), safe=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise InputError(not_numbers(name)) from None
        return from_arrow(numbers.fill_null(np.nan))


def _numbers_in(name: str, column: pa.Array) -> Floats:
    """The numbers that text spells, NaN where it spells none.

    Arrow casts all rows or none. If the others were then read in another way, the time that takes
    would tell of one row that is no number. So Arrow is given those that it can surely cast, always
    all of them at once, and Python always the rest, also where that is nothing.
    """
    plain = pc.match_substring_regex(column, _NUMBER)
    numbers = from_arrow(
        pc.if_else(plain, column, None).cast(pa.float64()).fill_null(np.nan)
    ).copy()
    rest = pc.invert(plain)
    numbers[from_arrow(pc.indices_nonzero(rest))] = floats_of(
        read_leniently(name, column.filter(rest))
    )
    return numbers


def is_text(kind: pa.DataType) -> bool:
    """Whether a column holds text, each word once or not."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _several(what: str, columns: Any) -> tuple[str, ...]:
    if isinstance(columns, str):
        return (columns,)
    if not isinstance(columns, Sequence) or not columns:
        raise InputError(f"{what} must name a column, or several in a list.")
    return tuple(_one(what, each) for each in columns)


def _one(what: str, column: Any) -> str:
    if not isinstance(column, str):
        raise InputError(f"{what} must name columns by text, got {type(column).__name__}.")
    return column


def _table(columns: list[Any]) -> Any:
    """Scores side by side; a column alone stays one."""
    if len(columns) == 1:
        return columns[0]
    # Columns stay contiguous, as they are counted one by one.
    return np.stack([numbers_of(read_column("y_score", each)) for each in columns]).T


def _side_by_side(columns: list[Column]) -> NDArray[Any]:
    """Labels of which none becomes another by what stands beside it."""
    arrays = [to_numpy(column) for column in columns]
    kinds = {array.dtype for array in arrays}
    table = np.empty((len(arrays), len(arrays[0])), kinds.pop() if len(kinds) == 1 else object)
    for row, array in zip(table, arrays, strict=True):
        row[:] = array
    return table.T
