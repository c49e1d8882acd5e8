"""`--clients`: a file of settings, in which each client has a file, columns and spelling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import fedgauge as fg
from fedgauge.cli.slice_options import SliceOptions
from fedgauge.errors import located
from fedgauge.storage import read_bounded

if TYPE_CHECKING:
    from fedgauge.cli.options import DialectOptions
    from fedgauge.data.files import PlacedColumn
    from fedgauge.plan.task import MeasuredTask, ScoredTask
    from fedgauge.site.rows import NamedRows

_MOST_BYTES = 1 << 22  # as of a site file
_SUCH_AS = 'such as path = "north.csv", label = "outcome", score = "risk"'


@dataclass(frozen=True)
class RowFiles:
    """Files of rows, each as it is written; a column may have another name in each."""

    clients: Mapping[str, NamedRows]

    @classmethod
    def alike(cls, files: Sequence[Path], label: str, dialect: DialectOptions) -> RowFiles:
        """Files that are written alike."""
        from fedgauge.site.rows import NamedRows

        return cls({str(path): NamedRows(str(path), label, **dialect) for path in files})

    @classmethod
    def load(cls, path: Path) -> RowFiles:
        """Those of a file of settings; paths are relative to it."""
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
        return cls({name: rows.on(today, path.parent) for name, rows in clients.items()})

    def placed(self, column: str) -> list[PlacedColumn]:
        """A column of groups in each file."""
        return [self._placed(rows, rows.groups.get(column, column)) for rows in self._all]

    @property
    def labels(self) -> list[PlacedColumn]:
        """The column of labels in each file; none where rows have several."""
        return [
            self._placed(rows, rows.label)
            for rows in self._all
            if isinstance(rows.label, str) and "=" not in rows.label
        ]

    @property
    def _all(self) -> Sequence[NamedRows]:
        return tuple(self.clients.values())

    @staticmethod
    def _placed(rows: NamedRows, column: str) -> PlacedColumn:
        from fedgauge.data.files import PlacedColumn
        from fedgauge.data.text_files import Dialect

        dialect = Dialect(rows.separator, rows.decimal, rows.encoding)
        return PlacedColumn(Path(rows.path), column, dialect)

    def task(self, apart: SliceOptions, groups: Mapping[str, Sequence[str]]) -> ScoredTask:
        """What the tables tell apart: models, classes and labels as the first one names them."""
        first = self._all[0]
        labels = () if isinstance(first.label, str) else tuple(first.label)
        return apart.task(
            groups=groups,
            models=tuple(first.models),
            classes=() if labels else tuple(first.classes),
            labels=labels,
        )

    def of_task(self, task: MeasuredTask) -> dict[str, fg.ScoreFile]:
        """The data of each client."""
        from fedgauge.data.files import refuse_repeated_files

        refuse_repeated_files([rows.path for rows in self._all])
        made: dict[str, Any] = {}
        for name, rows in self.clients.items():
            with located(f"client {name!r}"):
                made[name] = rows.of_task(task)
        return made
