"""Saved results in a folder, and when each was: by the dates in their names, or by file times."""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from fedgauge.errors import InputError
from fedgauge.escaping import in_one_line
from fedgauge.results.record import FORMAT
from fedgauge.storage.whole import MALFORMED, MOST_RESULT, read_bounded

Order = Literal["name", "time"]
_START: Final = f'{{"format":"{FORMAT}"'.encode()
_DATE: Final = re.compile(r"(?<!\d)(\d{4})-?(\d{2})-?(\d{2})(?!\d)")
_WEEK: Final = re.compile(r"(?<!\d)(\d{4})-?[Ww](\d{2})(?!\d)")


class Dated(NamedTuple):
    """Files of results by the names of looks, oldest first."""

    files: dict[str, Path]
    when: dict[str, str | None]
    order: str
    skipped: dict[str, str]


class _Header(msgspec.Struct):
    format: str


def dated_files(folder: Path, by: Order) -> Dated:
    """The results in a folder, oldest first."""
    if by not in ("name", "time"):
        raise InputError(f"by must be 'name' or 'time', got {by!r}.")
    if not folder.is_dir():
        what = "it is a file" if folder.exists() else "there is no such folder"
        raise InputError(
            f"cannot read {folder}: {what}. Name the folder in which the results of all looks are "
            "saved."
        )
    found, skipped = [], {}
    for path in sorted(folder.iterdir()):
        reason = _why_skipped(path)
        if reason is None:
            found.append(path)
        else:
            skipped[in_one_line(path.name)] = reason
    if not found:
        raise InputError(
            f"{folder} holds no result. Save one of each look there: `fedgauge evaluate --json "
            "FOLDER/2026-11-16.json`."
        )
    days = _days(found, by)
    files: dict[str, Path] = {}
    for path in sorted(found, key=lambda each: (days[each], _natural(each))):
        name = in_one_line(path.stem)
        if name in files:
            raise InputError(f"{files[name].name} and {path.name} have one name. Rename one.")
        files[name] = path
    if by == "name":
        _require_one_a_day(files, days)
    told = {name: days[path] or None for name, path in files.items()}
    return Dated(files, told, _in_words(by, days), skipped)


def _require_one_a_day(files: Mapping[str, Path], days: Mapping[Path, str]) -> None:
    """Refuse two results of one date: two sites or models would be taken for one series."""
    for one, other in pairwise(files.values()):
        if days[one] and days[one] == days[other]:
            raise InputError(
                f"{one.name} and {other.name} have one date in their names. A folder holds one "
                "result of each look: keep those of other sites or models in another one."
            )


def _why_skipped(path: Path) -> str | None:
    if path.is_dir():
        return "it is a folder"
    if path.suffix.lower() != ".json":
        return "its name does not end in .json"
    try:
        data = read_bounded(path, MOST_RESULT)
        header = msgspec.json.decode(data, type=_Header)
    except MALFORMED:
        # A result that was cut short is a look that would be missing: its reader refuses it.
        return None if data.startswith(_START) else "it is no result of fedgauge"
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    kind = header.format.partition("/")[0]
    return None if kind == FORMAT.partition("/")[0] else f"it holds {kind!r}, which is no result"


def _days(paths: list[Path], by: Order) -> dict[Path, str]:
    """When each look was, as text that sorts; empty where that is not known."""
    if by == "time":
        return {path: _changed(path) for path in paths}
    days = {path: _day(path.stem) for path in paths}
    if all(days.values()) or not any(days.values()):
        return days
    undated = [path.name for path, day in days.items() if not day]
    raise InputError(
        f"{undated[0]} has no date in its name, and other files have one. Name all of them in one "
        "way, such as 2026-11-16.json, or order them by the times of the files (by time)."
    )


def _changed(path: Path) -> str:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    except (OSError, OverflowError, ValueError):
        raise InputError(
            f"{path.name} has no time of change that can be told. Order results by name."
        ) from None


def _day(name: str) -> str:
    """The one date in a name; empty where there is none, or no such day."""
    try:
        days = [date(*map(int, match)).isoformat() for match in _DATE.findall(name)]
        for year, week in _WEEK.findall(name):
            days.append(date.fromisocalendar(int(year), int(week), 1).isoformat())
    except ValueError:
        return ""
    return days[0] if len(days) == 1 else ""


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """A name such that week-10 sorts after week-9."""
    parts = re.split(r"(\d+)", path.stem)
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts]


def _in_words(by: Order, days: Mapping[Path, str]) -> str:
    if by == "time":
        return "by when files were last changed, which copying may lose"
    if all(days.values()):
        return "by the dates in the names of the files"
    return "by the names of the files, which have no dates"
