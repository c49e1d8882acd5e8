"""A trend as one HTML file: what moved in words, and a figure of all that is watched.

All numbers are those of the trend's record, in the digits in which the library prints them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from html import escape
from itertools import pairwise
from pathlib import Path
from statistics import median
from string import Template
from typing import Any, Final

from fedgauge.escaping import printable
from fedgauge.metrics.estimate import show
from fedgauge.monitoring.drift import DISTRIBUTION
from fedgauge.monitoring.trend import Trend
from fedgauge.report.html import facts, folded, paragraph, plain_json, policy, table, text_of
from fedgauge.storage import open_regular, write_whole

_MARK: Final = b'<meta name="generator" content="fedgauge trend">'
_HEAD: Final = 1024  # bytes within which it stands
_TICKS: Final = {"wide": 6, "narrow": 3}  # on the axis of time
_LONGEST: Final = 11  # characters of a tick
_SPARE: Final = 0.08  # of a figure's height, above and below what is in it
_GAP: Final = 3.0  # usual steps without a look, from which it is shown as a gap
_HEADLINE: Final = 6  # numbers of the last look
_NO_VALUE: Final = {"value": None, "low": None, "high": None, "alarm": None}
Entry = Mapping[str, Any]


def save_trend(trend: Trend, path: str | Path, *, name: str) -> None:
    """Write the page of a trend to an HTML file."""
    write_whole(path, trend_page(trend, name=name).encode())


def trend_page(trend: Trend, *, name: str) -> str:
    """A trend as the text of one HTML file."""
    record = trend.record
    style, script = text_of("page.css"), text_of("figures.js", "trend.js")
    filled = Template(text_of("trend.html")).substitute(
        title=escape(name),
        policy=policy(style, script),
        style=style,
        script=script,
        short=_in_short(record),
        looks=_looks(record),
        data=plain_json(_data(record)),
    )
    return printable(filled)


def is_trend_page(path: Path) -> bool:
    """Whether a file is the page of a trend that fedgauge wrote."""
    with open_regular(path) as file:
        return _MARK in file.read(_HEAD)


# Words


def _in_short(record: Entry) -> str:
    """The verdict, alarms, and what both rest on."""
    alarms = [each["words"] for each in record["alarms"]]
    verdict = f"{_capital(record['verdict'])}."
    told = [paragraph(verdict, "caution lead" if alarms else "lead")]
    if alarms:
        moved = {(each["metric"], each["threshold"]) for each in record["alarms"]}
        told.append(
            _listed(
                f"{_capital(each['title'])}. {each['verdict']}"
                for each in record["watched"]
                if (each["metric"], each["threshold"]) in moved
            )
        )
        told.append(folded(f"Every alarm ({len(alarms):,}), newest first", _listed(alarms[::-1])))
    looks = record["looks"]
    span = looks[0]["name"] if len(looks) == 1 else f"{looks[0]['name']} to {looks[-1]['name']}"
    rows = [
        ("looks", f"{len(looks):,}: {span}"),
        ("order", record["order"]),
        ("false alarms", record["promise"]),
        ("budget", record["budget"]),
        ("signatures", record["signatures"]),
    ]
    if record["withheld"]:
        rows.append(("in no test", f"{', '.join(record['withheld'])}: withheld, as the table says"))
    if record["skipped"]:
        rows.append(("left out", f"files that are no results: {', '.join(record['skipped'])}"))
    return "".join([*told, facts(rows)])


def _listed(words: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(each)}</li>' for each in words)}</ul>"


def _looks(record: Entry) -> str:
    """What each look is of, what it promises, and what all up to it cost; files left out."""
    columns = ["look", "when", "examples", "clients", "privacy", "promise", "spent so far"]
    columns += ["claim", "signature"]
    rows = [
        [
            each["name"],
            each["when"] or "",
            "" if each["examples"] is None else f"{each['examples']:,}",
            f"{each['clients']:,}",
            each["model"],
            _promised(each),
            "" if each["spent"] is None else show(each["spent"]["epsilon"]),
            each["claim"],
            each["signature"],
        ]
        for each in record["looks"]
    ]
    told = table("What each look is of, and what it promises", columns, rows, name="looks")
    if record["withheld"]:
        told += table(
            "Looks in no test", ["look", "why"], _pairs(record["withheld"]), name="withheld"
        )
    if record["skipped"]:
        told += table("Files left out", ["file", "why"], _pairs(record["skipped"]), name="left-out")
    return told


def _promised(look: Entry) -> str:
    if look["epsilon"] is None:
        return "no epsilon"
    delta = f", delta {look['delta']:.3g}" if look["delta"] else ""
    return f"epsilon {look['epsilon']:g}{delta} for one {look['unit']}"


def _pairs(reasons: Mapping[str, str]) -> list[list[str]]:
    return [list(each) for each in reasons.items()]


# Numbers


def _data(record: Entry) -> dict[str, Any]:
    looks = record["looks"]
    places = _places([each["when"] for each in looks])
    by_key: dict[tuple[str, float | None], list[Entry]] = {}
    for row in record["rows"]:
        by_key.setdefault((row["metric"], row["threshold"]), []).append(row)
    figures = []
    for each in record["watched"]:
        rows = by_key[each["metric"], each["threshold"]]
        figures.append(_watched(each, rows))
        if each["metric"] == DISTRIBUTION:
            figures.append(_psi(by_key["psi", None], by_key["psi_expected", None]))
    budget = _budget(looks)
    numbers = [each for each in figures if each["where"] in ("numbers", "thresholds")]
    return {
        "looks": [each["name"] for each in looks],
        "places": places,
        "gaps": _gaps(places),
        "limits": _spread(places, 0.02),
        "ticks": {name: _ticks(looks, places, most) for name, most in _TICKS.items()},
        "axis": "Day" if all(each["when"] for each in looks) else "Look, oldest first",
        "level": next((f"{row['level'] * 100:g}%" for row in record["rows"] if row["level"]), ""),
        "headline": [[each["title"], *each["rows"][-1][:2]] for each in numbers[:_HEADLINE]],
        "figures": [*figures, *([budget] if budget else [])],
    }


def _watched(each: Entry, rows: Sequence[Entry]) -> dict[str, Any]:
    """One thing that is watched; of scores the largest difference of shares (KS)."""
    scores = each["metric"] == DISTRIBUTION
    at = each["threshold"]
    title = "Scores: KS against the looks before" if scores else _capital(each["title"])
    return {
        "id": each["metric"] if at is None else f"{each['metric']}-at-{at:g}",
        "where": "scores" if scores else "numbers" if at is None else "thresholds",
        "title": title,
        "label": "KS" if scores else _capital(each["title"]),
        "note": f"{each['verdict']} {each['visible']}",
        "columns": ["look", "value", "interval", "moved by", "deviate", "would be seen", "alarm"],
        "rows": [_shown(row) for row in rows],
        **_drawn(rows, 0.0 if scores else None),
    }


def _shown(row: Entry) -> list[str]:
    """A row as the library prints its numbers."""
    ends = "" if row["low"] is None else f"{show(row['low'])} to {show(row['high'])}"
    return [
        _or_not(row["value"], show, "undefined"),
        ends,
        _or_not(row["moved"], lambda by: f"{by:+.4f}"),
        _or_not(row["z"], lambda z: f"{z:+.2f}"),
        _or_not(row["least"], lambda least: f"{least:.4f}"),
        row["alarm"] or "",
    ]


def _psi(rows: Sequence[Entry], expected: Sequence[Entry]) -> dict[str, Any]:
    """PSI next to what it is while nothing changes."""
    told = _drawn(rows, 0.0, others=expected)
    return {
        "id": "psi",
        "where": "scores",
        "title": "Scores: PSI against the looks before",
        "label": "PSI",
        "note": (
            "Dashed: what PSI is on average while nothing changes, by sampling and noise alone. "
            "Alarms are raised by the shares of scores, not by PSI."
        ),
        "columns": ["look", "PSI", "by chance"],
        "rows": [
            [_or_not(row["value"], show), _or_not(by["value"], show)]
            for row, by in zip(rows, expected, strict=True)
        ],
        **told,
    }


def _budget(looks: Sequence[Entry]) -> dict[str, Any] | None:
    """Epsilon up to each look; None where some have none, or they do not add up."""
    if any(each["spent"] is None for each in looks):
        return None
    spent = [_NO_VALUE | {"value": each["spent"]["epsilon"]} for each in looks]
    return {
        "id": "budget",
        "where": "privacy",
        "title": "Epsilon spent",
        "label": "Epsilon, in total",
        "note": "What all looks so far cost someone who is in all of them: their sum.",
        "columns": ["look", "epsilon", "delta", "epsilon in total", "delta in total"],
        "rows": [
            [
                f"{each['epsilon']:g}",
                f"{each['delta'] or 0:.3g}",
                show(each["spent"]["epsilon"]),
                f"{each['spent']['delta']:.3g}",
            ]
            for each in looks
        ],
        "steps": True,
        **_drawn(spent, 0.0),
    }


def _drawn(
    rows: Sequence[Entry], floor: float | None, others: Sequence[Entry] = ()
) -> dict[str, Any]:
    """What a figure is drawn from: values, intervals, alarms, and how high it reaches."""
    ends = [
        each[name]
        for each in [*rows, *others]
        for name in ("value", "low", "high")
        if each[name] is not None
    ]
    limits = _spread([*ends, *([] if floor is None or not ends else [floor])], _SPARE)
    return {
        "reach": limits if floor is None else [floor, limits[1]],
        "value": [_rounded(each["value"]) for each in rows],
        "low": [_rounded(each["low"]) for each in rows],
        "high": [_rounded(each["high"]) for each in rows],
        "other": [_rounded(each["value"]) for each in others],
        "alarms": [place for place, each in enumerate(rows) if each["alarm"]],
    }


# Time


def _places(when: Sequence[str | None]) -> list[float]:
    """Where looks stand: by their days, so that gaps are seen, or one after the other."""
    if not all(when):
        return [float(place) for place in range(len(when))]
    days = [datetime.fromisoformat(each) for each in when if each]
    return [round((day - days[0]) / timedelta(days=1), 3) for day in days]


def _gaps(places: Sequence[float]) -> list[int]:
    """Looks before which there was none for long."""
    steps = [after - before for before, after in pairwise(places)]
    usual = median(steps) if steps else 0.0
    return [at for at, step in enumerate(steps, 1) if step > _GAP * usual > 0.0]


def _ticks(looks: Sequence[Entry], places: Sequence[float], most: int) -> list[list[Any]]:
    """Days that are evenly apart; or names of looks that are."""
    number = min(most, len(looks))
    if number == 1 or places[0] == places[-1]:
        return [[places[0], _brief(looks[0]["when"] or looks[0]["name"])]]
    if all(each["when"] for each in looks):
        start = datetime.fromisoformat(looks[0]["when"])
        step = places[-1] / (number - 1)
        days = [round(step * k) for k in range(number)]
        return [[day, f"{start + timedelta(days=day):%Y-%m-%d}"] for day in dict.fromkeys(days)]
    chosen = dict.fromkeys(round((len(looks) - 1) * k / (number - 1)) for k in range(number))
    return [[places[at], _brief(looks[at]["name"])] for at in chosen]


def _brief(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}\u2026"


def _spread(ends: Sequence[float], spare: float) -> list[float]:
    """From the least to the largest, and something more on both sides."""
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    more = spare * (high - low) or max(abs(high) * 0.1, 0.05)
    return [float(f"{low - more:.6g}"), float(f"{high + more:.6g}")]


def _rounded(number: float | None) -> float | None:
    return None if number is None or not math.isfinite(number) else float(f"{number:.5g}")


def _or_not(number: float | None, tell: Callable[[float], str], without: str = "") -> str:
    return without if number is None else tell(number)


def _capital(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}"
