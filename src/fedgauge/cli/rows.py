"""Rows of slices on the terminal: names that fit, numbers with intervals, why some have none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rich.table import Table

import fedgauge as fg
from fedgauge.cli.terminal import plain_table, screen, with_interval

MOST_ROWS = 20  # of a table; of more a reader remembers none
_WIDE = 80  # characters below which intervals stand below their values
_VERY_WIDE = 110  # from which there is room for one more column of them
_LEAST_NAME = 14  # characters of a name
_TAIL = 4  # of these at its end: names of a series differ there
_NAMED = 3  # slices in a reason
T = TypeVar("T")


def is_wide() -> bool:
    """Whether there is room for a third column of numbers with intervals."""
    return screen.width >= _VERY_WIDE


def fitting(name: object) -> str:
    """A name as the title of a row: its ends, where it is long."""
    text, most = str(name), max(_LEAST_NAME, screen.width // 4)
    return text if len(text) <= most else f"{text[: most - 3 - _TAIL]}...{text[-_TAIL:]}"


def first(names: Sequence[T]) -> Sequence[T]:
    """As many as a table shows."""
    return names[:MOST_ROWS]


class Notes:
    """What is to know about a table: which of its numbers are rough, and why some are not there.

    What was said below a table `before` is not said again.
    """

    def __init__(self, before: Notes | None = None) -> None:
        self._rough: set[str] = set()
        self._missing: dict[str, list[str]] = {}
        self._said: set[str] = set() if before is None else {*before._missing}

    def number(self, name: object, read: Callable[[], fg.Estimate]) -> str:
        """A number with its interval, or that it is withheld or undefined."""
        try:
            estimate = read()
        except fg.UndefinedMetric as error:
            hidden = isinstance(error, fg.NoSignal)
            if str(error) not in self._said:
                self._missing.setdefault(str(error), []).append(fitting(name))
            return "withheld" if hidden else "undefined"
        if estimate.caution:
            self._rough.add(estimate.caution)
        return with_interval(estimate, below=screen.width < _WIDE)

    @property
    def lines(self) -> list[str]:
        """In words."""
        told = []
        for reason, names in self._missing.items():
            named = list(dict.fromkeys(names))
            more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
            told.append(f"{', '.join(named[:_NAMED])}{more}: {reason}")
        return [*told, *(f"* rough: {why}" for why in sorted(self._rough))]


def number_of(
    notes: Notes, name: object, part: fg.Evaluation, read: Callable[[], fg.Estimate]
) -> str:
    """A number of a slice; one without examples has none, which needs no explanation."""
    return notes.number(name, read) if part.examples else "no examples"


def slice_table(title: str, columns: Sequence[str]) -> Table:
    """A table with names on the left and numbers on the right."""
    table = plain_table()
    table.add_column(title)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def close(table: Table, notes: Notes, *first_lines: str) -> Table:
    """The table with what is to know about it below."""
    table.caption = "\n".join([*first_lines, *notes.lines])
    return table


def left_out(number: int, option: str) -> tuple[str, ...]:
    """How to see slices that a table leaves out, if it does."""
    if not number:
        return ()
    told = f"{number:,} more: all are in --json FILE, and `fedgauge show FILE {option} NAME` shows"
    return (f"{told} one.",)


def reads(part: Any, name: str, *, at: float | None = None) -> Callable[[], fg.Estimate]:
    """How a metric of a result is read, at a threshold or over all."""

    def read() -> fg.Estimate:
        point = part if at is None else part.at_threshold(at)
        estimate: fg.Estimate = getattr(point, name)
        return estimate

    return read
