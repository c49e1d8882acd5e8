"""What a model does at a threshold, and which threshold does what is wanted."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from numbers import Real
from typing import Any, Final, NamedTuple, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from fedgauge import notebook
from fedgauge.errors import InputError, UndefinedMetric
from fedgauge.estimation.pooled import SIGNAL, PooledCounts
from fedgauge.measures.intervals import Estimate, Interval, critical, holding, within
from fedgauge.measures.metric import Metric, metrics_of
from fedgauge.measures.outcomes import (
    Correlation,
    Difference,
    Formula,
    Outcomes,
    Ratio,
    ThresholdOutcomes,
)
from fedgauge.typing import Floats

# Rates of one class alone: of positives that are flagged, of negatives that are.
RECALL: Final = Ratio(Outcomes(tp=1), Outcomes(fn=1))
FPR: Final = Ratio(Outcomes(fp=1), Outcomes(tn=1))


def f_beta_ratio(beta: float) -> Ratio:
    """F-beta as a ratio: recall counts beta times as much as precision."""
    square = beta * beta
    return Ratio(Outcomes(tp=1 + square), Outcomes(fp=1, fn=square))


class ThresholdMetric(Metric):
    """A metric at a threshold: all there is to say about it.

    Attributes
    ----------
    formula
        How it follows from the four outcomes.
    undefined
        When it is not defined, after "undefined at threshold 0.5: ".
    """

    def __init__(
        self, formula: Formula, *, title: str, undefined: str, doc: str, listed: bool = True
    ) -> None:
        super().__init__(self.read, title, listed=listed)
        self.__doc__ = doc
        self.formula = formula
        self.undefined = undefined

    def read(self, at: "ThresholdMetrics") -> Estimate:
        """The metric at one threshold."""
        return at._estimate(self.name, self.formula, self.undefined)


class ConfusionMatrix(NamedTuple):
    """Counts of the four outcomes, in the order of scikit-learn's ``ravel()``.

    Examples
    --------
    >>> import fedgauge as fg
    >>> sites = {"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 0, 1], [0.1, 0.6, 0.4])}
    >>> result = fg.evaluate(sites)
    >>> matrix = result.at_threshold(0.5).confusion_matrix
    >>> matrix.tp.value, matrix.fp.value, matrix.fn.value, matrix.tn.value
    (2.0, 1.0, 1.0, 2.0)
    """

    tn: Estimate
    fp: Estimate
    fn: Estimate
    tp: Estimate


class ThresholdMetrics(ABC):
    """One row for each metric at a threshold, read by :meth:`_estimate`."""

    threshold: float

    @abstractmethod
    def _estimate(self, name: str, formula: Formula, undefined: str) -> Estimate:
        """A metric by its formula."""

    precision = ThresholdMetric(
        Ratio(Outcomes(tp=1), Outcomes(fp=1)),
        title="precision",
        undefined="no example scores at or above it",
        doc="Share of flagged examples that are positive: tp / (tp + fp).",
    )
    recall = ThresholdMetric(
        RECALL,
        title="recall",
        undefined="there is no positive example",
        doc="Share of positives that are flagged, the true positive rate: tp / (tp + fn).",
    )
    specificity = ThresholdMetric(
        Ratio(Outcomes(tn=1), Outcomes(fp=1)),
        title="specificity",
        undefined="there is no negative example",
        doc="Share of negatives that are not flagged: tn / (tn + fp).",
    )
    npv = ThresholdMetric(
        Ratio(Outcomes(tn=1), Outcomes(fn=1)),
        title="NPV",
        undefined="every example scores at or above it",
        doc="Share of examples not flagged that are negative: tn / (tn + fn).",
    )
    accuracy = ThresholdMetric(
        Ratio(Outcomes(tp=1, tn=1), Outcomes(fp=1, fn=1)),
        title="accuracy",
        undefined="there is no example",
        doc="Share of examples on the right side: (tp + tn) / n.",
    )
    balanced_accuracy = ThresholdMetric(
        Difference(RECALL, FPR, middle=0.5, slope=0.5),
        title="balanced accuracy",
        undefined="one class has no example",
        doc="Mean of recall and specificity.",
    )
    f1 = ThresholdMetric(
        f_beta_ratio(1.0),
        title="F1",
        undefined="there is no positive example and none is flagged",
        doc="Harmonic mean of precision and recall: 2 tp / (2 tp + fp + fn).",
    )
    mcc = ThresholdMetric(
        Correlation(),
        title="MCC",
        undefined="one class has no example, or all examples lie on one side of it",
        doc="Matthews correlation of label and prediction.",
    )
    youden_j = ThresholdMetric(
        Difference(RECALL, FPR),
        title="Youden's J",
        undefined="one class has no example",
        doc="Recall less the false positive rate (Youden 1950).",
    )
    fpr = ThresholdMetric(
        FPR,
        title="false positive rate",
        undefined="there is no negative example",
        doc="Share of negatives that are flagged: fp / (fp + tn).",
    )
    fnr = ThresholdMetric(
        Ratio(Outcomes(fn=1), Outcomes(tp=1)),
        title="false negative rate",
        listed=False,
        undefined="there is no positive example",
        doc="Share of positives that are missed: fn / (fn + tp).",
    )
    flagged = ThresholdMetric(
        Ratio(Outcomes(tp=1, fp=1), Outcomes(fn=1, tn=1)),
        title="share flagged",
        undefined="there is no example",
        doc="Share of examples that are flagged: (tp + fp) / n.",
    )
    prevalence = ThresholdMetric(
        Ratio(Outcomes(tp=1, fn=1), Outcomes(fp=1, tn=1)),
        title="share positive",
        listed=False,
        undefined="there is no example",
        doc="Share of examples that are positive: (tp + fn) / n.",
    )

    def f_beta(self, beta: float) -> Estimate:
        """F-beta: recall counts `beta` times as much as precision."""
        if not 0 < beta < math.inf:
            raise InputError(f"beta must be a positive number, got {beta!r}.")
        return self._estimate("f_beta", f_beta_ratio(beta), type(self).f1.undefined)

    def as_dict(self) -> dict[str, Estimate | None]:
        """All metrics by name; None where one is undefined."""
        estimates: dict[str, Estimate | None] = {}
        for row in metrics_of(ThresholdMetrics):
            try:
                estimates[row.name] = getattr(self, row.name)
            except UndefinedMetric:
                estimates[row.name] = None
        return estimates


class AtThreshold(ThresholdMetrics):
    """Metrics when examples with ``score >= threshold`` are flagged as positive.

    On a bin edge under secure aggregation, values are those of the pooled data. Between
    edges `bounds` say what the data allows, and intervals include that.

    Attributes
    ----------
    threshold
        The threshold.
    on_edge
        Whether it divides bins cleanly.

    Examples
    --------
    >>> import fedgauge as fg
    >>> sites = {"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 0, 1], [0.1, 0.6, 0.4])}
    >>> result = fg.evaluate(sites)
    >>> at = result.at_threshold(0.5)
    >>> at.precision
    Estimate(0.6667, interval 0.2077..0.9385 at 95%)
    >>> round(at.f1.value, 3)
    0.667
    """

    def __init__(self, pooled: PooledCounts, threshold: float, level: float) -> None:
        self.threshold = check_threshold(threshold)
        self._pooled = pooled
        self._level = level
        self._outcomes = ThresholdOutcomes(pooled, self.threshold)
        self.on_edge = self._outcomes.clean

    @cached_property
    def confusion_matrix(self) -> ConfusionMatrix:
        """Counts of true and false negatives and positives."""
        return ConfusionMatrix(*map(self._count, ConfusionMatrix._fields))

    def __float__(self) -> float:
        return self.threshold

    def __repr__(self) -> str:
        names = ", ".join(row.name for row in metrics_of(AtThreshold)[:5])
        return f"<AtThreshold {self.threshold:.6g}: {names}, ...>"

    def _repr_html_(self) -> str:
        estimates = self.as_dict()
        metrics = [
            (row.title, estimates[row.name]) for row in metrics_of(AtThreshold) if row.listed
        ]
        counts = self.confusion_matrix._asdict().items()
        rows = [
            (title, "undefined" if each is None else str(each))
            for title, each in (*metrics, *counts)
        ]
        return notebook.table(rows, caption=f"At threshold {self.threshold:.6g}")

    def _count(self, outcome: str) -> Estimate:
        value = getattr(self._outcomes.likely, outcome)
        corners = self._outcomes.corners
        if not self._pooled.noisy:
            counts = [getattr(corner.outcomes, outcome) for corner in corners]
            return Estimate(value, (min(counts), max(counts)))
        place, z = Outcomes._fields.index(outcome), critical(self._level)
        spans = []
        for corner in corners:
            count, reach = corner.unbiased[place], z * math.sqrt(corner.noise[place, place])
            spans.append(Interval(count - reach, count + reach))
        low, high = holding(_hull(spans), value)
        return Estimate(value, (max(low, 0.0), high), level=self._level)

    def _estimate(self, name: str, formula: Formula, undefined: str) -> Estimate:
        """A metric by its formula: that of likely outcomes, with where the truth lies."""
        told, value = self._told(name, formula, undefined), formula.value(self._outcomes.likely)
        return told if math.isnan(value) else told.moved_to(value)

    def _told(self, name: str, formula: Formula, undefined: str) -> Estimate:
        """A metric by its formula: what all corners say put together."""
        corners, z, noisy = self._outcomes.corners, critical(self._level), self._pooled.noisy
        value = self._value(name, formula, undefined)
        allowed = formula.extremes(corners)
        full = _hull([formula.interval(corner, z, sampling=True) for corner in corners])
        interval = within(holding(full, value, *allowed), *formula.scale)
        bounds = allowed
        if noisy:
            by_noise = _hull([formula.interval(corner, z, sampling=False) for corner in corners])
            bounds = within(holding(by_noise, *allowed), *formula.scale)
        bounds = holding(bounds, value)
        of_noise, of_sampling = map(math.sqrt, formula.variances(corners[0]))
        parts = {"binning": max(value - allowed.low, allowed.high - value)}
        parts |= {"noise": of_noise} if noisy else {}
        return Estimate(
            value,
            (bounds.low, bounds.high),
            interval.low,
            interval.high,
            self._level,
            parts | {"sampling": of_sampling},
            formula.caution(corners) or self._pooled.faint,
        )

    def _value(self, name: str, formula: Formula, undefined: str) -> float:
        """The value before counts are shrunk, or that of a corner, if only a corner defines it."""
        if self._pooled.noisy and not any(map(formula.has_base, self._outcomes.corners)):
            raise UndefinedMetric(
                f"{name} is undefined at threshold {self.threshold:g}: noise hides the examples "
                "that it divides by."
            )
        corners = [corner.outcomes for corner in self._outcomes.corners]
        for outcomes in (self._outcomes.unshrunk, *corners[::-1]):
            if not math.isnan(value := formula.value(outcomes)):
                return value
        raise UndefinedMetric(f"{name} is undefined at threshold {self.threshold:g}: {undefined}.")


def choose(
    pooled: PooledCounts,
    *,
    fpr: float | None = None,
    recall: float | None = None,
    precision: float | None = None,
    cost: tuple[float, float] | None = None,
) -> float:
    """The bin edge that does what is wanted, or infinity (flags nothing), or minus infinity.

    See :meth:`fedgauge.Evaluation.threshold_for`.
    """
    _check_wish({"fpr": fpr, "recall": recall, "precision": precision}, cost)
    negatives, positives = pooled.likely
    tp, fp = (np.append(0.0, np.cumsum(row[::-1])) for row in (positives, negatives))
    edges = np.append(np.inf, pooled.axis.thresholds[::-1])
    if pooled.axis.outside == "clip":  # scores below the axis are in its first bin
        edges[-1] = -np.inf
    slack = 1e-9
    if fpr is not None:
        _require(fp[-1], "negative")
        fits, best = fp <= fpr * fp[-1] + slack, tp
    elif recall is not None:
        _require(tp[-1], "positive")
        fits, best = tp >= recall * tp[-1] - slack, -fp
    elif precision is not None:
        flags = (tp + fp > 0) & np.append(False, _flagged_stand_out(pooled)[::-1])
        fits, best = flags & (tp >= precision * (tp + fp) - slack), tp
        if not np.any(fits):
            reached = float(np.max(tp[flags] / (tp + fp)[flags], initial=0.0))
            raise UndefinedMetric(
                f"no threshold reaches precision {precision:g}; the highest at a bin edge is "
                f"{reached:.4f}. Ask for less, or use finer bins."
            )
    else:
        fits, best = np.ones(len(tp), dtype=bool), -_cost(cost, fp, tp[-1] - tp)
    # Of equally good thresholds the highest, which comes first.
    return float(edges[int(np.argmax(np.where(fits, best, -np.inf)))])


def _flagged_stand_out(pooled: PooledCounts) -> NDArray[np.bool_]:
    """Whether the examples from each bin up are more than noise, by bin."""
    bins = pooled.axis.bins
    if not pooled.noisy:
        return np.ones(bins, dtype=bool)
    flagged = np.cumsum(pooled.unbiased.sum(axis=0)[::-1])[::-1]
    from_each = np.triu(np.ones((bins, bins)))
    variances = [
        float(pooled.noise_variance(np.broadcast_to(flags, (2, bins)))) for flags in from_each
    ]
    return np.asarray(flagged > SIGNAL * np.sqrt(variances))


def _check_wish(rates: Mapping[str, float | None], cost: Any) -> None:
    if sum(wish is not None for wish in (*rates.values(), cost)) != 1:
        raise InputError("say one thing that is wanted: fpr=, recall=, precision= or cost=.")
    for name, rate in rates.items():
        if rate is not None and not (isinstance(rate, Real) and 0 <= rate <= 1):
            raise InputError(f"{name} must lie between 0 and 1, got {rate!r}.")


def _cost(cost: Any, wrong: Floats, missed: Floats) -> Floats:
    try:
        of_wrong, of_missed = map(float, cost)
    except (TypeError, ValueError):
        raise InputError("cost is a pair: of a false positive and of a false negative.") from None
    if not (0 <= of_wrong < math.inf and 0 <= of_missed < math.inf) or of_wrong + of_missed == 0:
        raise InputError("costs must be finite, not negative, and not both 0.")
    return of_wrong * wrong + of_missed * missed


def _require(total: float, name: str) -> None:
    if total <= 0:
        raise UndefinedMetric(f"there is no {name} example, so its rate is undefined.")


def _hull(intervals: list[Interval]) -> Interval:
    return Interval(min(i.low for i in intervals), max(i.high for i in intervals))


def check_threshold(threshold: SupportsFloat | str) -> float:
    """A threshold as a number."""
    try:
        number = float(threshold)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number):
        raise InputError("a threshold must be a number.")
    return number
