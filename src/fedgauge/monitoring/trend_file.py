"""A trend as plain data, as CSV and in words, with its alarms."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from fedgauge.errors import InputError
from fedgauge.escaping import csv_text
from fedgauge.estimation.distribution import Aligned
from fedgauge.metrics.estimate import metrics_of, show
from fedgauge.metrics.thresholds import AtThreshold
from fedgauge.monitoring.drift import DISTRIBUTION, POWER, WINDOW, Run, Watched
from fedgauge.privacy.accounting import compose
from fedgauge.privacy.models import PrivacyStatement
from fedgauge.results.evaluation import Evaluation
from fedgauge.storage import open_regular

if TYPE_CHECKING:
    from fedgauge.monitoring.trend import Trend

_TESTS: Final = {
    "jump": "this look is far from those before it",
    "shift": "the last three looks together are far from those before them",
    "drift": "looks so far add up to a move one way",
}


class Alarm(NamedTuple):
    """Something that moved by more than chance, sampling and noise explain.

    Attributes
    ----------
    look
        The name of the look that raised it.
    metric, threshold
        What moved; the threshold where it is at one.
    tests
        Which tests say so: ``jump``, ``shift``, ``drift``.
    by
        How far the look is from the mean of those before it.
    course
        How a drift came, where that is clear: ``little by little``, or ``at once at`` a look.

    Examples
    --------
    >>> print(fg.Alarm("2026-W10", "recall", 0.5, ("jump",), -0.0821))
    2026-W10: recall at 0.5 moved by -0.0821 (this look is far from those before it)
    """

    look: str
    metric: str
    threshold: float | None
    tests: tuple[str, ...]
    by: float
    course: str | None = None

    @property
    def why(self) -> str:
        """What the tests say, in words."""
        told = "; ".join(_TESTS[test] for test in self.tests)
        return told if self.course is None else f"{told}, {self.course}"

    def __str__(self) -> str:
        what = title(self.metric, self.threshold)
        return f"{self.look}: {what} moved by {self.by:+.4f} ({self.why})"


def title(name: str, at: float | None = None) -> str:
    """Something that is watched, as tables call it."""
    rows = {row.name: row.title for kind in (Evaluation, AtThreshold) for row in metrics_of(kind)}
    told = rows.get(name, name.replace("_", " "))
    return told if at is None else f"{told} at {at:g}"


_MANY: Final = 3  # things in a sentence
_NOTHING_YET: Final = "only one look shows anything: there is nothing to compare it with yet"
_NONE: Final = "no look shows anything: noise or too few rows hide all of them"


def verdict(trend: Trend) -> str:
    """What moved, in a sentence."""
    if len(trend._told) < 2:
        return _NOTHING_YET if trend._told else _NONE
    looks = f"{len(trend.results):,} looks"
    if not trend.alarms:
        return f"no alarm in {looks}: nothing watched moved by more than chance explains"
    first: dict[tuple[str, float | None], Alarm] = {}
    for each in trend.alarms:
        first.setdefault((each.metric, each.threshold), each)
    told = [f"{title(*key)} (first at {each.look})" for key, each in first.items()]
    more = f" and {len(told) - _MANY} more" if len(told) > _MANY else ""
    return (
        f"{len(first)} of {len(trend._runs)} watched things moved by more than chance in {looks}: "
        f"{', '.join(told[:_MANY])}{more}"
    )


def of_watched(trend: Trend, watched: Watched) -> str:
    """The alarms of one thing that is watched."""
    raised = [each for each in trend.alarms if each[1:3] == (watched.name, watched.at)]
    if not raised:
        return "No alarm."
    first, last = raised[0], raised[-1]
    looks = f"{len(raised)} looks, {first.look} to {last.look}" if raised[1:] else first.look
    return f"Alarm at {looks}. At {first.look} it moved by {first.by:+.4f}: {first.why}."


def visible(trend: Trend, watched: Watched) -> str:
    """How large a change would have to be, from the last look on."""
    least = trend.least(watched.name, watched.at)
    if least is None:
        return "There are too few rows to say which changes would be found from now on."
    where = " in a share of scores" if watched.name == DISTRIBUTION else ""
    return (
        f"From now on, a lasting change by {least:.4f}{where} would be found within {WINDOW} looks "
        f"with a chance of about {POWER:.0%}; smaller ones may be missed."
    )


def budget(trend: Trend) -> str:
    """What all looks cost together."""
    if trend.spent is None:
        return "looks protect different units, so their costs cannot be added"
    epsilon, delta = trend.spent
    if math.isinf(epsilon):
        return "some looks are exact sums, which promise no epsilon"
    return f"epsilon {show(epsilon)}, delta {delta:.2g} for someone in every look"


def signatures(trend: Trend) -> str:
    """How many looks are signed, by how many keys, none compared: unsigned ones may be edited."""
    keys = [each.signature.key for each in trend.results.values()]
    signed = [key for key in keys if key is not None]
    otherwise = sum(each.estimator != Aligned() for each in trend.results.values())
    told = f"{len(signed):,} of {len(keys):,} looks signed"
    if signed:
        number = len(set(signed))
        told += f" by {'one key' if number == 1 else f'{number:,} keys'}, not checked here"
    if len(signed) < len(keys):
        told += "; the others may have been edited"
    if otherwise:
        told += (
            f"; {otherwise:,} of them read by another estimator than the usual one, which no "
            "signature covers"
        )
    return told


def in_full(trend: Trend) -> str:
    """As a terminal prints it."""
    first, last = trend.looks[0], trend.looks[-1]
    lines = [f"{len(trend.results):,} looks, {first} to {last} ({trend.order})"]
    for watched in trend._runs:
        if watched.name != DISTRIBUTION:
            told = trend.estimate(last, watched.name, watched.at)
            lines.append(f"{title(watched.name, watched.at)}, last: {told or 'undefined'}")
    moved = trend.shifts[last]
    if moved is not None:
        psi = f"PSI {moved.psi:.4f}, {moved.psi_expected:.4f} by chance"
        lines.append(f"scores, last: {psi}; KS {moved.ks:.4f}")
    lines += [f"ALARM {each}" for each in trend.alarms] or [trend.verdict]
    seen = [
        f"{title(each.name, each.at)} {least:.4f}"
        for each in trend._runs
        if (least := trend.least(each.name, each.at)) is not None
    ]
    if seen:
        found = f"found within {WINDOW} looks with about {POWER:.0%} chance"
        lines.append(f"least lasting change from now on that is {found}: {', '.join(seen)}")
    lines += [f"withheld: {name}" for name in trend.withheld]
    lines += [f"false alarms: {trend.promise}", f"budget: {budget(trend)}"]
    return "\n".join([*lines, f"signatures: {signatures(trend)}"])


FORMAT: Final = "fedgauge-trend/1"


class TrendRow(NamedTuple):
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


_EMPTY: Final = (None,) * (len(TrendRow._fields) - 4)


def rows_of(trend: Trend) -> list[TrendRow]:
    """All rows, by look."""
    rows = []
    leasts = {watched: run.least for watched, run in trend._runs.items()}
    for look in trend.results:
        place = trend._told.index(look) if look in trend._told else None
        for watched, run in trend._runs.items():
            head = look, trend.when[look], watched.name, watched.at
            if place is None:
                rows.append(TrendRow(*head, *_EMPTY))
                continue
            least = _known(leasts[watched][place])
            rows.append(TrendRow(*head, *_value(trend, look, watched), *_tests(run, place, least)))
        moved = trend.shifts[look]
        for name in ("psi", "psi_expected"):
            value = None if moved is None else getattr(moved, name)
            rows.append(TrendRow(look, trend.when[look], name, None, value, *_EMPTY[1:]))
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
        "budget": budget(trend),
        "signatures": signatures(trend),
        "watched": [
            {
                "metric": each.name,
                "threshold": each.at,
                "title": title(each.name, each.at),
                "verdict": of_watched(trend, each),
                "visible": visible(trend, each),
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


def to_csv(rows: Iterable[TrendRow]) -> bytes:
    """The rows as a file."""
    return csv_text([TrendRow._fields, *rows]).encode()


def is_trend(path: Path) -> bool:
    """Whether a file is a trend that was saved: as JSON, or as CSV."""
    with open_regular(path) as file:
        start = file.read(200)
    return start.startswith(
        (f'{{"format":"{FORMAT}"'.encode(), ",".join(TrendRow._fields).encode())
    )


def _known(number: Any) -> float | None:
    return float(number) if np.isfinite(number) else None
