"""`--clients`: a file of settings, in which each client has a file, columns and spelling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import fedgauge as fg
from fedgauge.cli.slice_options import SliceOptions
from fedgauge.cli.terminal import warn
from fedgauge.errors import located
from fedgauge.storage import read_bounded

if TYPE_CHECKING:
    from fedgauge.cli.options import DialectOptions
    from fedgauge.data.examples import RowSource
    from fedgauge.data.files import PlacedColumn
    from fedgauge.plan.task import MeasuredTask, ScoredTask
    from fedgauge.site.rows import NamedRows

_MOST_LABELS = 5  # more are no labels
_MOST_BYTES = 1 << 22  # as of a site file
_SUCH_AS = 'such as path = "north.csv", label = "outcome", score = "risk"'


@dataclass(frozen=True)
class RowFiles:
    """Files of rows, each as it is written: the column of labels, and other names of columns."""

    labels: Sequence[PlacedColumn]
    others: Sequence[Mapping[str, str]]

    @classmethod
    def alike(cls, files: Sequence[Path], label: str, dialect: DialectOptions) -> RowFiles:
        """Files that are written alike."""
        from fedgauge.data.files import PlacedColumn
        from fedgauge.data.text_files import Dialect

        places = [PlacedColumn(path, label, Dialect(**dialect)) for path in files]
        return cls(places, [{}] * len(places))

    def placed(self, column: str) -> list[PlacedColumn]:
        """A column of groups in each file."""
        return [
            label._replace(column=others.get(column, column))
            for label, others in zip(self.labels, self.others, strict=True)
        ]


class ClientFiles:
    """The files of clients by name, as a file of settings has them; paths are relative to it."""

    def __init__(self, path: Path) -> None:
        from fedgauge.site.rows import NamedRows

        try:
            clients = msgspec.toml.decode(
                read_bounded(path, _MOST_BYTES), type=dict[str, NamedRows]
            )
        except OSError as error:
            raise fg.InputError(f"cannot read {path}: {error.strerror}.") from None
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            told = str(error) if isinstance(error, msgspec.MsgspecError) else "this is not TOML"
            raise fg.InputError(f"{path}: {told}. Each client has a table, {_SUCH_AS}.") from None
        if not clients:
            raise fg.InputError(f"{path} names no client. Each has a table, {_SUCH_AS}.")
        today = date.today()
        self._clients = {name: rows.on(today, path.parent) for name, rows in clients.items()}

    @property
    def row_files(self) -> RowFiles:
        """Where the labels are."""
        rows = [each for each in self._clients.values() if not each.query]
        return RowFiles([*map(_placed, rows)], [each.groups for each in rows])

    def task(self, apart: SliceOptions, groups: Mapping[str, Sequence[str]]) -> ScoredTask:
        """What the tables tell apart: models, classes and labels as the first one names them."""
        first = next(iter(self._clients.values()))
        labels = () if isinstance(first.label, str) else tuple(first.label)
        return apart.task(
            groups=groups,
            models=tuple(first.models),
            classes=() if labels else tuple(first.classes),
            labels=labels,
        )

    def of_task(self, task: MeasuredTask) -> dict[str, RowSource]:
        """The data of each client."""
        from fedgauge.data.files import refuse_repeated_files

        refuse_repeated_files([rows.path for rows in self._clients.values() if not rows.query])
        made: dict[str, RowSource] = {}
        for name, rows in self._clients.items():
            with located(f"client {name!r}"):
                made[name] = rows.of_task(task)
                if rows.positive is not None and not rows.query:
                    _warn_unless_there(name, rows, rows.positive)
        return made


def _placed(rows: NamedRows) -> PlacedColumn:
    """Where the labels are; the column is ``=`` where rows have several."""
    from fedgauge.data.files import PlacedColumn
    from fedgauge.data.text_files import Dialect

    column = rows.label if isinstance(rows.label, str) else "="
    dialect = Dialect(rows.separator, rows.decimal, rows.encoding)
    return PlacedColumn(Path(rows.path), column, dialect)


def _warn_unless_there(name: str, rows: NamedRows, positive: str) -> None:
    """Say that a positive label may be misspelt: all rows would be negative."""
    from fedgauge.data.examples import meaning
    from fedgauge.data.files import some_labels

    labels = some_labels([_placed(rows)], most=_MOST_LABELS)
    if labels and meaning(positive) not in map(meaning, labels):
        told = ", ".join(sorted({repr(label.strip()) for label in labels}))
        warn(f"client {name!r}: no row at its beginning has the label {positive!r}, but {told}.")
