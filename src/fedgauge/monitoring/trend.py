"""`Trend`: a series of saved results of one model, with alarms and the budget it cost."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from fedgauge.errors import InputError, UndefinedMetric
from fedgauge.escaping import in_one_line
from fedgauge.metrics.estimate import Estimate
from fedgauge.metrics.thresholds import check_threshold
from fedgauge.monitoring import trend_file
from fedgauge.monitoring.diff import require_series
from fedgauge.monitoring.drift import (
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
from fedgauge.monitoring.trend_file import Alarm, TrendRow, record_of, rows_of, spent_on, to_csv
from fedgauge.results.evaluation import Evaluation
from fedgauge.results.record import FORMAT
from fedgauge.results.summary import Backend, frame_of
from fedgauge.storage import MALFORMED, MOST_RESULT, read_bounded, write_whole

_START: Final = f'{{"format":"{FORMAT}"'.encode()
_DATE: Final = re.compile(r"(?<!\d)(\d{4})-?(\d{2})-?(\d{2})(?!\d)")
_RESULT: Final = "result.json"  # as an evaluation by files calls it
_WEEK: Final = re.compile(r"(?<!\d)(\d{4})-?[Ww](\d{2})(?!\d)")


class Dated(NamedTuple):
    """Files of results by the names of looks, oldest first."""

    files: dict[str, Path]
    when: dict[str, str | None]
    order: str
    skipped: dict[str, str]


class _DatedHeader(msgspec.Struct):
    format: str


def dated_files(*places: Path) -> Dated:
    """The results in files and folders, oldest first.

    An evaluation by files leaves its ``result.json`` in a folder of its own, whose name says when
    it was: these folders stand for it.
    """
    found: dict[Path, None] = {}
    skipped = {}
    for place in places:
        if not place.exists():
            raise InputError(
                f"cannot read {place}: there is no such file or folder. Name the saved results of "
                "all looks, or the folder that they are in."
            )
        for path in sorted(place.iterdir()) if place.is_dir() else [place]:
            path = path / _RESULT if (path / _RESULT).is_file() else path
            reason = _why_skipped(path)
            if reason is None:
                found[path] = None
            elif path == place:
                raise InputError(f"{place} is no result of a look: {reason}. Leave it out.")
            else:
                skipped[in_one_line(path.name)] = reason
    if not found:
        raise InputError(
            f"{', '.join(map(str, places)) or 'nothing'} holds no result. Save one of each look there: "
            "`fedgauge evaluate --json FOLDER/2026-11-16.json`."
        )
    days = _days([*found])
    files: dict[str, Path] = {}
    for path in sorted(found, key=lambda each: (days[each], _natural(each))):
        name = in_one_line(_named(path))
        if name in files:
            raise InputError(f"{files[name]} and {path} have one name. Rename one.")
        files[name] = path
    _require_one_a_day(files, days)
    told = {name: days[path] or None for name, path in files.items()}
    return Dated(files, told, _in_words(days), skipped)


def _named(path: Path) -> str:
    """What names the look of a file."""
    return path.absolute().parent.name if path.name == _RESULT else path.stem


def _require_one_a_day(files: Mapping[str, Path], days: Mapping[Path, str]) -> None:
    """Refuse two results of one date: two sites or models would be taken for one series."""
    for (named, one), (also, other) in pairwise(files.items()):
        if days[one] and days[one] == days[other]:
            raise InputError(
                f"{named} and {also} have one date in their names. A folder holds one "
                "result of each look: keep those of other sites or models in another one."
            )


def _why_skipped(path: Path) -> str | None:
    if path.is_dir():
        return "it is a folder"
    if path.suffix.lower() != ".json":
        return "its name does not end in .json"
    try:
        data = read_bounded(path, MOST_RESULT)
        header = msgspec.json.decode(data, type=_DatedHeader)
    except MALFORMED:
        # A result that was cut short is a look that would be missing: its reader refuses it.
        return None if data.startswith(_START) else "it is no result of fedgauge"
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    kind = header.format.partition("/")[0]
    return None if kind == FORMAT.partition("/")[0] else f"it holds {kind!r}, which is no result"


def _days(paths: list[Path]) -> dict[Path, str]:
    """When each look was, as text that sorts; empty where that is not known."""
    days = {path: _day(_named(path)) for path in paths}
    if all(days.values()) or not any(days.values()):
        return days
    undated = [_named(path) for path, day in days.items() if not day]
    raise InputError(
        f"{undated[0]} has no date in its name, and other files have one. Name all of them in one "
        "way, such as 2026-11-16.json."
    )


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
    parts = re.split(r"(\d+)", _named(path))
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts]


def _in_words(days: Mapping[Path, str]) -> str:
    if all(days.values()):
        return "by the dates in the names of the files"
    return "by the names of the files, which have no dates"


@dataclass(frozen=True, eq=False)
class Trend:
    """Results of one model over time, made by :func:`fedgauge.read_trend` or :meth:`of`.

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

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def week():
    ...     y = rng.random(5000) < 0.3
    ...     return fg.evaluate({"a": (y, 1 / (1 + np.exp(1 - 1.5 * y - rng.normal(size=5000))))})
    >>> trend = fg.Trend.of({f"week {n}": week() for n in range(1, 7)})
    >>> trend.verdict
    'no alarm in 6 looks: nothing watched moved by more than chance explains'
    >>> round(trend.least("roc_auc"), 3)  # a lasting change that three more looks would find
    0.022
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

        Each look is taken to be of rows of its own: where rows are in several, alarms are rarer
        than stated.

        Examples
        --------
        >>> def week(number, high):
        ...     return fg.evaluate({"a": ([0, 1] * (100 + number), [0.1, high] * (100 + number))})
        >>> weeks = {f"week {n}": week(n, 0.9 if n < 5 else 0.0) for n in range(1, 7)}
        >>> fg.Trend.of(weeks).alarms[0].look
        'week 5'
        """
        if not results:
            raise InputError("a trend is of results, and there are none.")
        if not all(isinstance(each, Evaluation) for each in results.values()):
            raise InputError(
                "a trend is of results by the names of looks. Read files with "
                "fg.Evaluation.from_json(path), or a folder with fg.read_trend(folder)."
            )
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 0.5:
            raise InputError(f"rate must lie above 0 and up to 0.5, such as 0.05, got {rate!r}.")
        require_series(results)
        days = dict.fromkeys(results) if when is None else when
        chosen = tuple(check_threshold(each) for each in at)
        trend = cls(dict(results), days, chosen, float(rate), order, dict(skipped or {}))
        if trend._told:
            _ = trend._all  # refuses axes that have nothing in common
        return trend

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

    @cached_property
    def _all(self) -> Looks:
        return Looks.of(self._pooled)

    def _first(self, number: int) -> Looks:
        """The first looks, on bins that these have in common: what later ones lack is no matter."""
        if all(each.axis == self._all.axis for each in self._pooled):
            return self._all.first(number)
        return Looks.of(self._pooled[:number])

    @cached_property
    def _runs(self) -> dict[Watched, Run]:
        if not self._told:
            return {}
        watched = watch(self._all.axis, self.at)
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
                    step = run.step(place) if "drift" in tests else None
                    course = None
                    if step is not None:
                        course = f"at once at {self._told[step]}" if step else "little by little"
                    found.append(Alarm(look, watched.name, watched.at, tests, by, course))
        return tuple(found)

    @property
    def spent(self) -> tuple[float, float] | None:
        """Epsilon and delta of all looks together, for someone who is in each of them.

        Infinite with an exact sum; None where looks protect different units.
        """
        return spent_on(result.privacy for result in self.results.values())

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
        deviate (`z`), the `least` change that would be found from then on (:meth:`least`), and the
        tests that raise an `alarm`. For ``score_distribution`` the value is the largest difference
        of shares of scores below an edge (KS); ``psi`` and ``psi_expected``, its mean without a
        change, have rows of their own.
        """
        return frame_of(TrendRow._fields, self._rows, backend)

    @cached_property
    def _rows(self) -> list[TrendRow]:
        return rows_of(self)

    def least(self, metric: str, at: float | None = None) -> float | None:
        """The least change, if it lasts, that the looks to come would find soon.

        From the last look on, within three looks, with a chance of about 0.9, if they are as large
        and as noisy as the last. For ``score_distribution`` a change of a share of scores. None
        where nothing could be compared.
        """
        for watched, run in self._runs.items():
            if (watched.name, watched.at) == (metric, at):
                found = float(run.least[-1])
                return found if math.isfinite(found) else None
        watched_ = ", ".join(dict.fromkeys(each.name for each in self._runs))
        raise InputError(
            f"{metric} is not watched there. Watched are: {watched_}; and at {self.at}."
        )

    def to_json(self, path: str | Path) -> None:
        """Save the numbers of the trend: rows as in :meth:`to_frame`, alarms, budget."""
        write_whole(path, msgspec.json.encode(self.record))

    def to_csv(self, path: str | Path) -> None:
        """Save the rows of :meth:`to_frame` as CSV."""
        write_whole(path, to_csv(self._rows))

    def to_html(self, path: str | Path, *, name: str | None = None) -> None:
        """Save a page for people: one HTML file that a browser opens without a network.

        Parameters
        ----------
        name
            Its title; by default the name of the file.

        Examples
        --------
        >>> import tempfile
        >>> week = lambda high: fg.evaluate({"a": ([0, 1] * 100, [0.1, high] * 100)})
        >>> trend = fg.Trend.of({"2026-W01": week(0.9), "2026-W02": week(0.8)})
        >>> trend.to_html(f"{tempfile.mkdtemp()}/trend.html")
        """
        from fedgauge.monitoring.page import save_trend  # only who wants a page waits for it

        save_trend(self, path, name=name or Path(path).stem)

    @property
    def record(self) -> dict[str, Any]:
        """The trend as plain data."""
        return record_of(self)

    @property
    def verdict(self) -> str:
        """What moved by more than chance, in a sentence."""
        return trend_file.verdict(self)

    @property
    def promise(self) -> str:
        """How often alarms are false, in words."""
        return (
            f"at most {self.rate:.3g} of series in which nothing changes ever raise an alarm, "
            f"however long they are, over all {len(self._runs)} watched things"
        )

    def __repr__(self) -> str:
        return f"<Trend of {len(self.results)} looks: {len(self.alarms)} alarms>"

    def __str__(self) -> str:
        return trend_file.in_full(self)


def read_trend(
    *places: str | Path,
    at: Sequence[float] = (),
    rate: float = RATE,
    model: str | None = None,
    group: str | None = None,
    label: str | None = None,
) -> Trend:
    """The trend of all results that are saved in files or folders.

    Results do not say when a look was. The dates in the names of the files do (``2026-11-16``,
    ``20261116`` or ``2026-W47``) if all have one, else the order of the names, in which ``week-10``
    is after ``week-9``. A file ``result.json`` has the name of its folder.

    Parameters
    ----------
    places
        Results saved as JSON, one file for each look, or folders with such files or with folders
        of evaluations. Other files in folders are skipped, and :attr:`Trend.skipped` says why.
    at, rate
        As for :class:`Trend`.
    model, group, label
        Of results with several slices, the one that is watched.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> for week, high in (("2026-W01", 0.9), ("2026-W02", 0.8)):
    ...     fg.evaluate({"a": ([0, 1], [0.1, high])}).to_json(f"{folder}/{week}.json")
    >>> trend = fg.read_trend(folder)
    >>> trend.looks, trend.order
    (('2026-W01', '2026-W02'), 'by the dates in the names of the files')
    """
    files, when, order, skipped = dated_files(*map(Path, places))
    chosen = {}
    for name, path in files.items():
        result = Evaluation.from_json(path)
        if (model, group, label) != (None, None, None):
            result = result.select(model=model, group=group, label=label)
        chosen[name] = result
    return Trend.of(chosen, at=at, rate=rate, when=when, order=order, skipped=skipped)
