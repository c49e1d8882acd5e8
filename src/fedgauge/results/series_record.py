"""A series of results as plain data: rows by look and metric, what is promised and was spent."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from fedgauge.errors import InputError
from fedgauge.escaping import csv_text
from fedgauge.measures.watching import DISTRIBUTION, Run, Watched
from fedgauge.privacy.accounting import compose
from fedgauge.privacy.models import PrivacyStatement
from fedgauge.results import series_words
from fedgauge.results.alarms import title
from fedgauge.storage.whole import open_regular

if TYPE_CHECKING:
    from fedgauge.results.series import Trend

FORMAT: Final = "fedgauge-trend/1"


class Row(NamedTuple):
    """One thing that is watched at one look: None for what is not known."""

    look: str
    when: str | None
    metric: str
    threshold: float | None
    value: float | None
    low: float | None
    high: float | None
    level: float | None
    moved: float | None
    z: float | None
    least: float | None
    alarm: str | None


_EMPTY: Final = (None,) * (len(Row._fields) - 4)


def rows_of(trend: Trend) -> list[Row]:
    """All rows, by look."""
    rows = []
    leasts = {watched: run.least for watched, run in trend._runs.items()}
    for look in trend.results:
        place = trend._told.index(look) if look in trend._told else None
        for watched, run in trend._runs.items():
            head = look, trend.when[look], watched.name, watched.at
            if place is None:
                rows.append(Row(*head, *_EMPTY))
                continue
            least = _known(leasts[watched][place])
            rows.append(Row(*head, *_value(trend, look, watched), *_tests(run, place, least)))
        moved = trend.shifts[look]
        for name in ("psi", "psi_expected"):
            value = None if moved is None else getattr(moved, name)
            rows.append(Row(look, trend.when[look], name, None, value, *_EMPTY[1:]))
    return rows


def _value(trend: Trend, look: str, watched: Watched) -> tuple[Any, ...]:
    """The value, its interval and level; of the distribution KS, which has none."""
    if watched.name == DISTRIBUTION:
        moved = trend.shifts[look]
        return None if moved is None else moved.ks, None, None, None
    found = trend.estimate(look, watched.name, watched.at)
    return (None,) * 4 if found is None else (found.value, found.low, found.high, found.level)


def _tests(run: Run, place: int, least: float | None) -> tuple[Any, ...]:
    nearest = run.nearest(place)
    by, z = (_known(each[place, nearest]) for each in (run.moved.by, run.moved.z))
    tests = ", ".join(test for test, told in run.alarms.items() if told[place])
    return by, z, least, tests or None


def record_of(trend: Trend) -> dict[str, Any]:
    """The trend as plain data."""
    return {
        "format": FORMAT,
        "rate": trend.rate,
        "promise": trend.promise,
        "verdict": trend.verdict,
        "order": trend.order,
        "looks": _looks(trend),
        "withheld": trend.withheld,
        "skipped": dict(trend.skipped),
        "spent": _pair(trend.spent),
        "budget": series_words.budget(trend),
        "signatures": series_words.signatures(trend),
        "watched": [
            {
                "metric": each.name,
                "threshold": each.at,
                "title": title(each.name, each.at),
                "verdict": series_words.of_watched(trend, each),
                "visible": series_words.visible(trend, each),
            }
            for each in trend._runs
        ],
        "alarms": [each._asdict() | {"words": str(each)} for each in trend.alarms],
        "rows": [each._asdict() for each in trend._rows],
    }


def _looks(trend: Trend) -> list[dict[str, Any]]:
    """What each look is of, what it promises, and what those up to it have cost together."""
    told, stated = [], []
    for name, result in trend.results.items():
        stated.append(result.privacy)
        told.append(
            {
                "name": name,
                "when": trend.when[name],
                "examples": None if name in trend.withheld else result.examples,
                "clients": result.clients,
                "model": result.plan.privacy.title,
                "epsilon": result.privacy.epsilon,
                "delta": result.privacy.delta,
                "unit": result.privacy.unit,
                "claim": result.privacy.claim,
                "spent": _pair(spent_on(stated)),
                "signature": result.signature.in_words,
            }
        )
    return told


def spent_on(stated: Iterable[PrivacyStatement]) -> tuple[float, float] | None:
    """Epsilon and delta of several looks together; None where they protect different units."""
    try:
        return compose(stated)
    except InputError:
        return None


def _pair(spent: tuple[float, float] | None) -> dict[str, float] | None:
    """As JSON has it: nothing for what is not finite."""
    if spent is None or math.isinf(spent[0]):
        return None
    return {"epsilon": spent[0], "delta": spent[1]}


def to_csv(rows: Iterable[Row]) -> bytes:
    """The rows as a file."""
    return csv_text([Row._fields, *rows]).encode()


def is_trend(path: Path) -> bool:
    """Whether a file is a trend that was saved: as JSON, or as CSV."""
    with open_regular(path) as file:
        start = file.read(200)
    return start.startswith((f'{{"format":"{FORMAT}"'.encode(), ",".join(Row._fields).encode()))


def _known(number: Any) -> float | None:
    return float(number) if np.isfinite(number) else None
