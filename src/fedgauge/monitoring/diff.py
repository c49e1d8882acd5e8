"""`diff`: how far two results differ, and whether they can be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from msgspec.structs import asdict, astuple

from fedgauge import _html
from fedgauge.errors import InputError, NoSignal, UndefinedMetric
from fedgauge.metrics.differences import gap
from fedgauge.metrics.estimate import Estimate
from fedgauge.metrics.thresholds import AtThreshold, Formula, ThresholdMetrics
from fedgauge.results.evaluation import Evaluation
from fedgauge.results.summary import Backend, frame_of


def kinds(result: Evaluation) -> tuple[Any, Any]:
    """The maps that scores went through: before they were counted, and as they are read."""
    return result.plan.calibrator, result.mapped_by


def require_alike(first: Evaluation, second: Evaluation, names: tuple[str, str]) -> tuple[str, ...]:
    """Refuse results of which no number compares; note what else differs."""
    _require_one_task(first, second, names)
    one, other = (_positive(each) for each in (first, second))
    if one != other:
        raise InputError(
            f"{names[0]} and {names[1]} count different labels as positive, so their numbers do "
            "not compare. Evaluate one of them again with the positive label of the other."
        )
    mine, theirs = ({each.slice for each in result.slices} for result in (first, second))
    lone = len(mine) == 1 == len(theirs)
    if not lone and not mine & theirs:
        raise InputError(
            f"{names[0]} and {names[1]} have no model, class or group in common. Choose what is to "
            "be compared: result.select(model=...) of each."
        )
    return tuple(_notes(first, second, names, len(mine ^ theirs), lone=lone))


def _require_one_task(first: Evaluation, second: Evaluation, names: tuple[str, str]) -> None:
    """A class of several, chosen, may be a task of two classes; several are of one kind."""
    if not (first.is_several or second.is_several):
        return
    if first.is_several != second.is_several:
        several, single = names if first.is_several else names[::-1]
        raise InputError(
            f"{several} is of several classes, labels or models, {single} of one score. Choose one "
            "of the first: result.select(label=...) or select(model=...), --class or --model."
        )
    if type(first.plan.task) is not type(second.plan.task):
        raise InputError(
            f"{names[0]} and {names[1]} are of different kinds of task, so their numbers do not "
            "compare. Choose a class or label of each: result.select(label=...)."
        )


def require_series(results: Mapping[str, Evaluation]) -> None:
    """Refuse results that are no series of one model: other classes, other maps, one twice."""
    (first, result), *others = results.items()
    seen = {result.released.digest: first}
    result._require_one()
    _require_unbroken(results)
    for name, other in others:
        require_alike(result, other, (first, name))
        if other.slice != result.slice:
            raise InputError(f"{first} is of {result.slice}, {name} of {other.slice}: choose one.")
        if kinds(other) != kinds(result):
            raise InputError(
                f"{first} and {name} are of scores that went through different maps, so they are "
                "no series. Read both through one map, or none: result.with_calibrator(...)."
            )
        if other.released.digest in seen:
            raise InputError(
                f"{seen[other.released.digest]} and {name} are the same result. Each look counts "
                "once: leave one of them out."
            )
        seen[other.released.digest] = name
    _require_one_each(results)


def _require_one_each(results: Mapping[str, Evaluation]) -> None:
    """Refuse two signed results of one evaluation: its members confirmed one sum."""
    looks: dict[str, str] = {}
    for name, result in results.items():
        session = result.signature.session
        if session is not None and (first := looks.setdefault(session, name)) != name:
            raise InputError(
                f"{first} and {name} are of one evaluation, with different counts. Each look "
                "counts once: ask its coordinator which is right, and leave the other one out."
            )


def _require_unbroken(results: Mapping[str, Evaluation]) -> None:
    """Refuse what is not as it was signed, and signed results of different models."""
    models: dict[str, str] = {}
    for name, result in results.items():
        signature = result.signature
        if signature.state == "broken":
            raise InputError(
                f"{name} is not what was signed: {signature.reason}. Ask its coordinator for the "
                "result, or leave this file out."
            )
        if signature.model is not None:
            models.setdefault(signature.model, name)
    if len(models) > 1:
        one, other, *_ = models.values()
        raise InputError(
            f"{one} and {other} were signed for different models, so they are no series. Give each "
            "model a folder of its own; fg.diff compares two results."
        )


def _notes(
    first: Evaluation, second: Evaluation, names: tuple[str, str], unshared: int, *, lone: bool
) -> list[str]:
    one, other = first.plan, second.plan
    notes = []
    if lone and first.slice != second.slice:
        notes.append(f"{names[0]} is of {first.slice}, {names[1]} of {second.slice}")
    elif unshared:
        notes.append(f"{unshared:,} slices are in one of the results only and are left out")
    if kinds(first) != kinds(second):
        notes.append("scores were mapped by different calibrators, or only in one result")
    if one.axis != other.axis:
        notes.append("the axes differ, so each result has its own binning error")
    if one.privacy != other.privacy:
        notes.append("privacy differs, so one may be noisier than the other")
    if first.clients != second.clients:
        notes.append(f"{first.clients:,} clients took part in one, {second.clients:,} in the other")
    return notes


def _positive(result: Evaluation) -> str:
    """The positive class; without a name it is 1, or True."""
    if result.is_several:
        return "each"  # as slices name them
    if result.slice.label is not None:
        return result.slice.label
    positive = result.plan.task.positive
    return "1" if positive is None or positive is True else str(positive)


Rows = Literal["different", "overlapping"]
_BASIS: Final = {
    "different": "the two results are assumed to have different rows, and so independent errors",
    "overlapping": (
        "some rows may be in both results, so how their errors are correlated is not known, and "
        "intervals allow for any correlation"
    ),
    "same": (
        "both results have the same counts, so how their errors are correlated is not known, and "
        "intervals allow for any correlation"
    ),
}
_OF_PART: Final = ("recall", "precision", "fpr", "flagged")  # of a threshold, in words


class ThresholdDifferences(ThresholdMetrics):
    """Differences of two results' metrics when scores from a threshold up are flagged."""

    def __init__(self, first: AtThreshold, second: AtThreshold, *, overlapping: bool) -> None:
        self._ends = first, second
        self._overlapping = overlapping
        self.threshold = first.threshold

    def _estimate(self, name: str, formula: Formula, undefined: str) -> Estimate:
        one, other = (each._estimate(name, formula, undefined) for each in self._ends)
        return gap(one, other, overlapping=self._overlapping)

    def __repr__(self) -> str:
        return f"<ThresholdDifferences {self.threshold:.6g}: precision, recall, ...>"


@dataclass(frozen=True, eq=False)
class Differences:
    """How far two results differ, the first less the second. Each is an :class:`Estimate`.

    Made by :func:`fedgauge.diff`.

    Attributes
    ----------
    first, second
        The results, or the same part of both.
    names
        What they are called.
    basis
        What the intervals rest on, in words.
    notes
        What else differs between them: axes, privacy, maps, clients.
    overlapping
        Whether rows may be in both, so that intervals are as wide as can be.

    Examples
    --------
    >>> may = fg.evaluate({"a": ([0, 1, 1, 0] * 50, [0.1, 0.9, 0.8, 0.3] * 50)})
    >>> june = fg.evaluate({"a": ([0, 1, 1, 0] * 50, [0.1, 0.9, 0.2, 0.3] * 50)})
    >>> fg.diff(june, may).roc_auc
    Estimate(-0.2500, interval -0.3258..-0.1840 at 95%)
    """

    first: Evaluation
    second: Evaluation
    names: tuple[str, str]
    basis: str
    notes: tuple[str, ...]
    overlapping: bool

    @cached_property
    def roc_auc(self) -> Estimate:
        """Difference of the areas under the ROC curves."""
        return self._of(lambda result: result.roc_auc)

    @cached_property
    def average_precision(self) -> Estimate:
        """Difference of the average precisions."""
        return self._of(lambda result: result.average_precision)

    @cached_property
    def brier_score(self) -> Estimate:
        """Difference of the Brier scores: below 0, the first is better."""
        return self._of(lambda result: result.brier_score)

    @cached_property
    def log_loss(self) -> Estimate:
        """Difference of the log losses: below 0, the first is better."""
        return self._of(lambda result: result.log_loss)

    @cached_property
    def expected_calibration_error(self) -> Estimate:
        """Difference of the expected calibration errors: below 0, the first is better."""
        return self._of(lambda result: result.expected_calibration_error)

    @cached_property
    def calibration_in_the_large(self) -> Estimate:
        """Difference of what shares of positives are above mean scores."""
        return self._of(lambda result: result.calibration_in_the_large)

    @cached_property
    def calibration_slope(self) -> Estimate:
        """Difference of the calibration slopes."""
        return self._of(lambda result: result.calibration_slope)

    @cached_property
    def prevalence(self) -> Estimate:
        """Difference of the shares of examples that are positive."""
        return self._of(lambda result: result.at_threshold(float("-inf")).prevalence)

    def at_threshold(self, threshold: float) -> ThresholdDifferences:
        """Differences of precision, recall and more at a threshold."""
        one, other = (each.at_threshold(threshold) for each in (self.first, self.second))
        return ThresholdDifferences(one, other, overlapping=self.overlapping)

    @cached_property
    def slices(self) -> tuple[Differences, ...]:
        """The differences of each slice that both results have; itself where they are of one."""
        theirs = {part.slice for part in self.second.slices}
        mine = {part.slice for part in self.first.slices}
        if len(mine) == 1 == len(theirs):
            return (self,)
        return tuple(
            self.select(**asdict(part.slice)) for part in self.first.slices if part.slice in theirs
        )

    def select(
        self, *, model: str | None = None, group: Any = None, label: Any = None
    ) -> Differences:
        """The differences of one slice, as :meth:`Evaluation.select` names it."""
        one, other = (
            each.select(model=model, group=group, label=label) for each in (self.first, self.second)
        )
        return Differences(one, other, self.names, self.basis, self.notes, self.overlapping)

    @property
    def verdict(self) -> str:
        """What the difference of the ROC AUCs shows, in words."""
        auc, (one, other) = self.roc_auc, self.names
        if (auc.low or 0.0) > 0:
            return f"ROC AUC is higher in {one} than in {other}: {auc}."
        if (auc.high or 0.0) < 0:
            return f"ROC AUC is lower in {one} than in {other}: {auc}."
        return f"it is undecided whether ROC AUC differs between {one} and {other}: {auc}."

    def to_frame(self, thresholds: Iterable[float] = (), *, backend: Backend = "pandas") -> Any:
        """The differences as a data frame, one row for each slice and metric.

        Its columns are `model`, `group`, `label`, `threshold`, `metric`, the metric of both
        (`first`, `second`), their difference (`value`) with its interval (`low`, `high`), `level`
        and `caution`, which says why where there is none.
        """
        asked: list[tuple[float | None, str]] = [(None, name) for name in _TITLES]
        asked += [(float(at), name) for at in thresholds for name in _OF_PART]
        rows = [
            (*astuple(part.first.slice), at, name, *_numbers(part, name, at))
            for part in self.slices
            for at, name in asked
        ]
        return frame_of(_COLUMNS, rows, backend)

    def __repr__(self) -> str:
        return f"<Differences of {self.names[0]} less {self.names[1]}: {len(self.slices)} slices>"

    def __str__(self) -> str:
        rows = self._rows()
        width = max(len(title) for title, _ in rows)
        told = [f"{title:<{width}}  {text}" for title, text in rows]
        return "\n".join([f"{self.names[0]} less {self.names[1]}", *told])

    def _repr_html_(self) -> str:
        return _html.table(self._rows(), caption=f"{self.names[0]} less {self.names[1]}")

    def _rows(self) -> list[tuple[str, str]]:
        if len(self.slices) == 1:
            rows = [(row, _told(self, name)) for name, row in _TITLES.items()]
        else:
            rows = [
                (f"ROC AUC, {each.first.slice}", _told(each, "roc_auc")) for each in self.slices
            ]
        return [*rows, ("intervals", self.basis), *(("note", note) for note in self.notes)]

    def _of(self, read: Callable[[Evaluation], Estimate]) -> Estimate:
        return gap(read(self.first), read(self.second), overlapping=self.overlapping)


_TITLES: Final = {
    "roc_auc": "ROC AUC",
    "average_precision": "average precision",
    "brier_score": "Brier score",
    "log_loss": "log loss",
    "expected_calibration_error": "expected calibration error",
    "calibration_in_the_large": "calibration in the large",
    "calibration_slope": "calibration slope",
    "prevalence": "share positive",
}


_COLUMNS: Final = (
    *("model", "group", "label", "threshold", "metric"),
    *("first", "second", "value", "low", "high", "level", "caution"),
)


def diff(
    first: Evaluation,
    second: Evaluation,
    *,
    rows: Rows = "different",
    names: tuple[str, str] = ("first", "second"),
) -> Differences:
    """How far two results differ, the first less the second, with intervals.

    For results over time, or at different places; two models on the same rows are better counted
    together (:meth:`Evaluation.compare`). Slices that both have are compared one by one.

    Parameters
    ----------
    first, second
        The results. They may have different axes and privacy, which is noted, but not different
        classes. The second is read at the level of the first.
    rows
        ``"different"`` where no row is in both, so that errors are independent; ``"overlapping"``
        where some may be: then intervals are as wide as can be, as for the same counts read in two
        ways.
    names
        What the results are called.

    Examples
    --------
    >>> def month(high):
    ...     return fg.evaluate({"a": ([0, 1, 1, 0] * 50, [0.1, 0.9, high, 0.3] * 50)})
    >>> fg.diff(month(0.2), month(0.8), names=("June", "May")).verdict
    'ROC AUC is lower in June than in May: -0.2500 (-0.3258 to -0.1840 at 95%).'
    """
    for result in (first, second):
        if not isinstance(result, Evaluation):
            raise InputError(
                f"diff compares two results, got {type(result).__name__}. Read files with "
                "fg.Evaluation.from_json(path)."
            )
    if rows not in ("different", "overlapping"):
        raise InputError(f"rows must be 'different' or 'overlapping', got {rows!r}.")
    second = second.at_level(first.level)
    notes = require_alike(first, second, names)
    same = first.released.digest == second.released.digest
    if same and kinds(first) == kinds(second) and first.slice == second.slice:
        raise InputError("both are the same result. Name two different ones.")
    overlapping = same or rows == "overlapping"
    basis = _BASIS["same" if same else rows]
    return Differences(first, second, names, basis, notes, overlapping)


def _read(of: Any, name: str, at: float | None) -> Estimate:
    if name == "prevalence" and at is None and isinstance(of, Evaluation):
        at = float("-inf")
    estimate: Estimate = getattr(of if at is None else of.at_threshold(at), name)
    return estimate


def _numbers(part: Differences, name: str, at: float | None) -> tuple[Any, ...]:
    """A metric of both results, the difference, and why there is none."""
    try:
        one, other = (_read(each, name, at).value for each in (part.first, part.second))
        d = _read(part, name, at)
    except UndefinedMetric as error:  # as the loss of what is no probability
        return (None,) * 6 + (str(error),)
    return one, other, d.value, d.low, d.high, d.level, d.caution


def _told(part: Differences, name: str) -> str:
    try:
        return str(_read(part, name, None))
    except NoSignal:
        return "withheld"
    except UndefinedMetric:
        return "undefined"
