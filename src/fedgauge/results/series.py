"""A series of results of one model over time: what moved, what is an alarm, and what it cost."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from fedgauge.errors import InputError, UndefinedMetric
from fedgauge.measures.intervals import Estimate, show
from fedgauge.measures.metric import metrics_of
from fedgauge.measures.thresholds import AtThreshold, check_threshold
from fedgauge.measures.watching import (
    RATE,
    Looks,
    Run,
    Shift,
    Watched,
    first_groups,
    follow,
    shift,
    watch,
)
from fedgauge.privacy.accounting import compose
from fedgauge.results.dated import Order, dated_files
from fedgauge.results.evaluation import Evaluation
from fedgauge.results.frame import Backend, frame_of
from fedgauge.results.likeness import require_series
from fedgauge.storage.whole import write_whole

FORMAT: Final = "fedgauge-trend/1"
_DISTRIBUTION: Final = "score_distribution"
_TESTS: Final = {
    "jump": "this look is far from those before it",
    "shift": "the last three looks together are far from those before them",
    "drift": "looks have moved one way, little by little",
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
    """

    look: str
    metric: str
    threshold: float | None
    tests: tuple[str, ...]
    by: float

    def __str__(self) -> str:
        at = "" if self.threshold is None else f" at {self.threshold:g}"
        why = "; ".join(_TESTS[test] for test in self.tests)
        return f"{self.look}: {_title(self.metric)}{at} moved by {self.by:+.4f} ({why})"


class _Row(NamedTuple):
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
    alarm: str | None


@dataclass(frozen=True, eq=False)
class Trend:
    """Results of one model over time.

    Made by :func:`fedgauge.read_trend` or :meth:`of`.

    Attributes
    ----------
    results
        The result of each look, by its name, oldest first.
    when
        The day, or week, of each look; None where that is not known.
    at
        Thresholds at which recall, false positive rate and precision are watched.
    rate
        The chance that any alarm is ever raised while nothing changes, at most.
    order
        What the order of looks rests on, in words.
    skipped
        Files that are no looks, and why.
    """

    results: Mapping[str, Evaluation]
    when: Mapping[str, str | None]
    at: tuple[float, ...] = ()
    rate: float = RATE
    order: str = "as given"
    skipped: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        results: Mapping[str, Evaluation],
        *,
        at: Sequence[float] = (),
        rate: float = RATE,
        when: Mapping[str, str | None] | None = None,
        order: str = "as given",
        skipped: Mapping[str, str] | None = None,
    ) -> Trend:
        """A trend of results, oldest first, by the names of looks.

        Each look is taken to be of rows of its own. Of rows that are in several looks alarms are
        rarer than stated.

        Examples
        --------
        >>> import numpy as np, fedgauge as fg
        >>> rng = np.random.default_rng(0)
        >>> def week(signal):
        ...     y = rng.random(5000) < 0.3
        ...     s = 1 / (1 + np.exp(1 - signal * y - rng.normal(size=5000)))
        ...     return fg.evaluate({"a": (y, s)})
        >>> weeks = {f"week {n}": week(1.5 if n < 5 else 1.1) for n in range(1, 7)}
        >>> trend = fg.Trend.of(weeks)
        >>> trend.alarms[0].look, trend.alarms[0].metric
        ('week 5', 'roc_auc')
        """
        if not results:
            raise InputError("a trend is of results, and there are none.")
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 0.5:
            raise InputError(f"rate must lie above 0 and up to 0.5, such as 0.05, got {rate!r}.")
        require_series(results)
        days = dict.fromkeys(results) if when is None else when
        chosen = tuple(check_threshold(each) for each in at)
        return cls(dict(results), days, chosen, float(rate), order, dict(skipped or {}))

    @property
    def looks(self) -> tuple[str, ...]:
        """The names of the looks, oldest first."""
        return tuple(self.results)

    @cached_property
    def withheld(self) -> dict[str, str]:
        """Looks that tell nothing, and why: they are in no test."""
        told: dict[str, str] = {}
        for name, result in self.results.items():
            try:
                _ = result._signal
            except UndefinedMetric as error:
                told[name] = str(error)
        return told

    @property
    def _told(self) -> list[str]:
        return [name for name in self.results if name not in self.withheld]

    @cached_property
    def _pooled(self) -> list[Any]:
        return [self.results[name].pooled for name in self._told]

    def _first(self, number: int) -> Looks:
        return Looks.of(self._pooled[:number])

    @cached_property
    def _runs(self) -> dict[Watched, Run]:
        if not self._told:
            return {}
        watched = watch(self._first(len(self._told)).axis, self.at)
        return follow(self._first, len(self._told), watched, self.rate)

    @cached_property
    def shifts(self) -> dict[str, Shift | None]:
        """How far the scores of each look are from those before: PSI, what it is by chance, KS."""
        told: dict[str, Shift | None] = dict.fromkeys(self.results)
        if self._told:
            groups = first_groups(self._first(1))
            for number, name in enumerate(self._told, 1):
                told[name] = shift(self._first(number), groups)
        return told

    @cached_property
    def alarms(self) -> tuple[Alarm, ...]:
        """What moved by more than chance, by look."""
        found = []
        for place, look in enumerate(self._told):
            for watched, run in self._runs.items():
                tests = tuple(test for test, told in run.alarms.items() if told[place])
                if tests:
                    by = float(run.moved.by[place, run.nearest(place)])
                    found.append(Alarm(look, watched.name, watched.at, tests, by))
        return tuple(found)

    @property
    def spent(self) -> tuple[float, float] | None:
        """Epsilon and delta of all looks together, for whoever is in each of them.

        Infinite with an exact sum; None where looks protect different units.
        """
        try:
            return compose(result.privacy for result in self.results.values())
        except InputError:
            return None

    def estimate(self, look: str, metric: str, at: float | None = None) -> Estimate | None:
        """A metric of a look with its interval; None where it is withheld or not defined."""
        result = self.results[look]
        if metric == "prevalence":
            at = -math.inf
        try:
            found: Estimate = getattr(result if at is None else result.at_threshold(at), metric)
        except UndefinedMetric:
            return None
        return found

    def to_frame(self, *, backend: Backend = "pandas") -> Any:
        """One row for each look and each thing that is watched.

        Its columns are `look`, `when`, `metric`, `threshold`, the `value` with its interval (`low`,
        `high`) at `level`, how far it `moved` from the mean of the looks before, that as a normal
        deviate (`z`), and the tests that raise an `alarm`. Of ``score_distribution`` the value is
        the largest difference of shares of scores below an edge (KS); ``psi`` and
        ``psi_expected``, what it is on average without a change, have rows of their own.
        """
        return frame_of(_Row._fields, self._rows, backend)

    @cached_property
    def _rows(self) -> list[_Row]:
        rows = []
        for look in self.results:
            place = self._told.index(look) if look in self._told else None
            for watched, run in self._runs.items():
                rows.append(self._row(look, place, watched, run))
            moved = self.shifts[look]
            for name in ("psi", "psi_expected"):
                value = None if moved is None else getattr(moved, name)
                rows.append(_Row(look, self.when[look], name, None, value, *(None,) * 6))
        return rows

    def _row(self, look: str, place: int | None, watched: Watched, run: Run) -> _Row:
        head = look, self.when[look], watched.name, watched.at
        if place is None:
            return _Row(*head, *(None,) * 7)
        numbers: tuple[float | None, float | None, float | None, float | None] = (None,) * 4
        if watched.name == _DISTRIBUTION:
            moved = self.shifts[look]
            numbers = (None if moved is None else moved.ks, None, None, None)
        elif (e := self.estimate(look, watched.name, watched.at)) is not None:
            numbers = e.value, e.low, e.high, e.level
        nearest = run.nearest(place)
        by, z = (_known(each[place, nearest]) for each in (run.moved.by, run.moved.z))
        tests = ", ".join(test for test, told in run.alarms.items() if told[place])
        return _Row(*head, *numbers, by, z, tests or None)

    def to_json(self, path: str | Path) -> None:
        """Save the numbers of the trend: rows as in :meth:`to_frame`, alarms, budget."""
        write_whole(path, msgspec.json.encode(self.record))

    def to_csv(self, path: str | Path) -> None:
        """Save the rows of :meth:`to_frame` as CSV."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(_Row._fields)
        writer.writerows(self._rows)
        write_whole(path, text.getvalue().encode())

    @property
    def record(self) -> dict[str, Any]:
        """The trend as plain data."""
        epsilon, delta = self.spent or (math.inf, 0.0)
        spent = {"epsilon": epsilon, "delta": delta} if math.isfinite(epsilon) else None
        return {
            "format": FORMAT,
            "rate": self.rate,
            "order": self.order,
            "looks": [{"name": name, "when": self.when[name]} for name in self.looks],
            "withheld": self.withheld,
            "skipped": dict(self.skipped),
            "spent": spent,
            "alarms": [each._asdict() | {"words": str(each)} for each in self.alarms],
            "rows": [each._asdict() for each in self._rows],
        }

    @property
    def promise(self) -> str:
        """How often alarms are false, in words."""
        return (
            f"at most {self.rate:.3g} of series in which nothing changes ever raise an alarm, "
            f"however long they are and over all {len(self._runs)} things that are watched"
        )

    def __repr__(self) -> str:
        return f"<Trend of {len(self.results)} looks: {len(self.alarms)} alarms>"

    def __str__(self) -> str:
        first, last = self.looks[0], self.looks[-1]
        lines = [f"{len(self.results):,} looks, {first} to {last} ({self.order})"]
        for watched in self._runs:
            if watched.name != _DISTRIBUTION:
                told = self.estimate(last, watched.name, watched.at)
                at = "" if watched.at is None else f" at {watched.at:g}"
                lines.append(f"{_title(watched.name)}{at}, last: {told or 'undefined'}")
        moved = self.shifts[last]
        if moved is not None:
            psi = f"PSI {moved.psi:.4f}, {moved.psi_expected:.4f} by chance"
            lines.append(f"scores, last: {psi}; KS {moved.ks:.4f}")
        if len(self._told) < 2:
            lines.append("one look that tells something: there is nothing to compare it with yet")
        lines += [f"ALARM {each}" for each in self.alarms] or ["no alarm"]
        lines += [f"withheld: {name}" for name in self.withheld]
        return "\n".join([*lines, f"false alarms: {self.promise}", f"budget: {self._budget}"])

    @property
    def _budget(self) -> str:
        if self.spent is None:
            return "looks protect different units, so what they cost does not add up"
        epsilon, delta = self.spent
        if math.isinf(epsilon):
            return "some looks are exact sums, which promise no epsilon"
        return f"epsilon {show(epsilon)}, delta {delta:.2g} for whoever is in every look"


def read_trend(
    folder: str | Path,
    *,
    by: Order = "name",
    at: Sequence[float] = (),
    rate: float = RATE,
    model: str | None = None,
    group: str | None = None,
    label: str | None = None,
) -> Trend:
    """The trend of all results that are saved in a folder.

    Parameters
    ----------
    folder
        Where results are saved as JSON, one file for each look. Other files are skipped, and
        :attr:`Trend.skipped` says why.
    by
        What says when a look was, since results do not: ``"name"``, the dates in the names of the
        files (``2026-11-16``, ``20261116`` or ``2026-W47``) if all have one, else their order,
        in which ``week-10`` is after ``week-9``; ``"time"``, when files were last changed, which
        copying may lose.
    at, rate
        As for :class:`Trend`.
    model, group, label
        Of results with several slices, the one that is watched.

    Examples
    --------
    >>> import tempfile, fedgauge as fg
    >>> folder = tempfile.mkdtemp()
    >>> for week, high in (("2026-W01", 0.9), ("2026-W02", 0.8)):
    ...     rows = ([0, 1] * 100, [0.1, high] * 100)
    ...     fg.evaluate({"a": rows}).to_json(f"{folder}/{week}.json")
    >>> trend = fg.read_trend(folder)
    >>> trend.looks, trend.order
    (('2026-W01', '2026-W02'), 'by the dates in the names of the files')
    """
    files, when, order, skipped = dated_files(Path(folder), by)
    chosen = {}
    for name, path in files.items():
        result = Evaluation.from_json(path)
        if (model, group, label) != (None, None, None):
            result = result.select(model=model, group=group, label=label)
        chosen[name] = result
    return Trend.of(chosen, at=at, rate=rate, when=when, order=order, skipped=skipped)


def is_trend(path: Path) -> bool:
    """Whether a file is a trend that was saved: as JSON, or as CSV."""
    with path.open("rb") as file:
        start = file.read(200)
    return start.startswith((f'{{"format":"{FORMAT}"'.encode(), ",".join(_Row._fields).encode()))


def _known(number: Any) -> float | None:
    return float(number) if np.isfinite(number) else None


def _title(name: str) -> str:
    rows = {row.name: row.title for kind in (Evaluation, AtThreshold) for row in metrics_of(kind)}
    return rows.get(name, name.replace("_", " "))
