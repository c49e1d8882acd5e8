"""Periods that data come in: which file holds the rows of a week, and what that week is called."""

import re
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Final, NamedTuple, Self

from fedgauge.errors import SiteError

_FIELD: Final = re.compile(r"\{([^{}]*)\}")
# The name of a period, by the fields that a pattern must have for it.
_NAMES: Final = {
    frozenset({"year"}): "{year}",
    frozenset({"year", "quarter"}): "{year}-Q{quarter}",
    frozenset({"year", "month"}): "{year}-{month}",
    frozenset({"year", "week"}): "{year}-W{week}",
    frozenset({"year", "month", "day"}): "{year}-{month}-{day}",
}


class FilePattern(NamedTuple):
    """The path of a file of rows, with a field such as ``{week}`` where periods differ.

    `period` is the same of a period's name, empty where the path has no field.

    >>> weekly = FilePattern.read("scores/{year}-W{week}.csv")
    >>> weekly.on(date(2026, 11, 19))
    ('scores/2026-W46.csv', '2026-W46')
    """

    path: str
    period: str

    @classmethod
    def read(cls, path: str) -> Self:
        """The pattern that a site file states; SiteError where it does not name one period."""
        fields = frozenset(_FIELD.findall(path))
        period = _NAMES.get(fields, "") if fields else ""
        if fields and not period:
            raise SiteError(
                "path must name one kind of period: {year}; {year} and {quarter}; {year} and "
                "{month}; {year} and {week}; or {year}, {month} and {day}. It has "
                f"{', '.join(f'{{{field}}}' for field in sorted(fields))}."
            )
        if "{" in _FIELD.sub("", path) or "}" in _FIELD.sub("", path):
            raise SiteError("path has a brace that is not closed, or not opened.")
        return cls(path, period)

    def on(self, day: date) -> tuple[str, str]:
        """The path and the name of the last period that was over before a day."""
        fields = _fields(self.period, day)
        return tuple(_FIELD.sub(lambda found: fields[found[1]], text) for text in self)  # type: ignore[return-value]

    def path_of(self, period: str) -> str | None:
        """The path of the file of a period; None where this is not the name of one."""
        form = _FIELD.sub(lambda field: rf"(?P<{field[1]}>\d{{{_DIGITS[field[1]]}}})", self.period)
        found = re.fullmatch(form, period, re.ASCII) if form else None
        return None if found is None else _FIELD.sub(lambda field: found[field[1]], self.path)

    @property
    def folder(self) -> Path:
        """The folder that holds the files of all periods."""
        fixed = [*_until_field(Path(self.path).parent)]
        return Path(*fixed)


_DIGITS: Final = {"year": 4, "quarter": 1, "month": 2, "week": 2, "day": 2}


def _until_field(folder: Path) -> Iterator[str]:
    for part in folder.parts:
        if _FIELD.search(part):
            return
        yield part


def _fields(period: str, day: date) -> dict[str, str]:
    """The fields of the last period before a day, as text."""
    if "{day}" in period:
        first = day
    elif "{week}" in period:
        first = day - timedelta(days=day.weekday())
    elif "{month}" in period:
        first = day.replace(day=1)
    elif "{quarter}" in period:
        first = day.replace(day=1, month=day.month - (day.month - 1) % 3)
    else:
        first = day.replace(day=1, month=1)
    last = first - timedelta(days=1)
    iso = last.isocalendar()
    # The days around New Year may be in a week of the other year (ISO 8601).
    numbers = {
        "year": iso.year if "{week}" in period else last.year,
        "quarter": (last.month + 2) // 3,
        "month": last.month,
        "week": iso.week,
        "day": last.day,
    }
    return {field: f"{number:0{_DIGITS[field]}}" for field, number in numbers.items()}
