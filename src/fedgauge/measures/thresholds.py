"""What a model does at a threshold, and which threshold does what is wanted."""

import math
from collections.abc import Callable
from functools import cached_property
from numbers import Real
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np

from fedgauge.errors import InputError, UndefinedMetric
from fedgauge.estimation.pooled import PooledCounts
from fedgauge.measures.intervals import (
    Estimate,
    Interval,
    critical,
    holding,
    within,
)
from fedgauge.measures.outcomes import RATIOS, Cells, Ratio, ThresholdCells, extremes, f_beta_ratio
from fedgauge.measures.ratios import (
    gap_interval,
    mcc_interval,
    mcc_moments,
    ratio_interval,
    ratio_variances,
)
from fedgauge.typing import Floats

NAMES: Final = (
    "precision",
    "recall",
    "specificity",
    "npv",
    "accuracy",
    "balanced_accuracy",
    "f1",
    "mcc",
    "youden_j",
    "fpr",
    "fnr",
    "flagged",
    "prevalence",
)
_FEW: Final = 5
_WHY_UNDEFINED: Final = {
    "precision": "no example scores at or above it",
    "npv": "every example scores at or above it",
    "recall": "there is no positive example",
    "fnr": "there is no positive example",
    "specificity": "there is no negative example",
    "fpr": "there is no negative example",
    "f1": "there is no positive example and none is flagged",
    "f_beta": "there is no positive example and none is flagged",
    "balanced_accuracy": "one class has no example",
    "youden_j": "one class has no example",
    "accuracy": "there is no example",
    "flagged": "there is no example",
    "prevalence": "there is no example",
    "mcc": "one class has no example, or all examples lie on one side of it",
}


class ConfusionMatrix(NamedTuple):
    """Counts of the four outcomes, in the order of scikit-learn's ``ravel()``."""

    tn: Estimate
    fp: Estimate
    fn: Estimate
    tp: Estimate


class AtThreshold:
    """Metrics when examples with ``score >= threshold`` are flagged as positive.

    On a bin edge under secure aggregation, values are those of the pooled data. Between
    edges `bounds` say what the data allows, and intervals include that.

    Attributes
    ----------
    threshold
        The threshold.
    on_edge
        Whether it divides bins cleanly.
    """

    def __init__(self, pooled: PooledCounts, threshold: float, level: float) -> None:
        self.threshold = float(threshold)
        self._pooled = pooled
        self._level = level
        self._cells = ThresholdCells(pooled, self.threshold)
        self.on_edge = not self._cells.split.open

    @cached_property
    def precision(self) -> Estimate:
        """Share of flagged examples that are positive: tp / (tp + fp)."""
        return self._ratio("precision", RATIOS["precision"])

    @cached_property
    def recall(self) -> Estimate:
        """Share of positives that are flagged, the true positive rate: tp / (tp + fn)."""
        return self._ratio("recall", RATIOS["recall"])

    @cached_property
    def specificity(self) -> Estimate:
        """Share of negatives that are not flagged: tn / (tn + fp)."""
        return self._ratio("specificity", RATIOS["specificity"])

    @cached_property
    def npv(self) -> Estimate:
        """Share of examples not flagged that are negative: tn / (tn + fn)."""
        return self._ratio("npv", RATIOS["npv"])

    @cached_property
    def accuracy(self) -> Estimate:
        """Share of examples on the right side: (tp + tn) / n."""
        return self._ratio("accuracy", RATIOS["accuracy"])

    @cached_property
    def fpr(self) -> Estimate:
        """Share of negatives that are flagged: fp / (fp + tn)."""
        return self._ratio("fpr", RATIOS["fpr"])

    @cached_property
    def fnr(self) -> Estimate:
        """Share of positives that are missed: fn / (fn + tp)."""
        return self._ratio("fnr", RATIOS["fnr"])

    @cached_property
    def flagged(self) -> Estimate:
        """Share of examples that are flagged: (tp + fp) / n."""
        return self._ratio("flagged", RATIOS["flagged"])

    @cached_property
    def prevalence(self) -> Estimate:
        """Share of examples that are positive: (tp + fn) / n."""
        return self._ratio("prevalence", RATIOS["prevalence"])

    @cached_property
    def f1(self) -> Estimate:
        """Harmonic mean of precision and recall: 2 tp / (2 tp + fp + fn)."""
        return self._ratio("f1", f_beta_ratio(1.0))

    def f_beta(self, beta: float) -> Estimate:
        """F-beta: recall counts `beta` times as much as precision."""
        if not 0 < beta < math.inf:
            raise InputError(f"beta must be a positive number, got {beta!r}.")
        return self._ratio("f_beta", f_beta_ratio(beta))

    @cached_property
    def balanced_accuracy(self) -> Estimate:
        """Mean of recall and specificity."""
        j = self._difference("balanced_accuracy")
        half = (1.0 + j.value) / 2.0
        ends = [(1.0 + end) / 2.0 for end in (*j.bounds, j.low or 0.0, j.high or 0.0)]
        parts = {name: part / 2.0 for name, part in j.parts.items()}
        return Estimate(
            half,
            (ends[0], ends[1]),
            ends[2],
            ends[3],
            j.level,
            MappingProxyType(parts),
            j.caution,
        )

    @cached_property
    def youden_j(self) -> Estimate:
        """Recall less the false positive rate (Youden 1950)."""
        return self._difference("youden_j")

    @cached_property
    def mcc(self) -> Estimate:
        """Matthews correlation of label and prediction."""
        value = self._likely("mcc", lambda cells: cells.mcc)
        z = critical(self._level)
        corners = list(self._cells.corners())
        few = min(min(corner.cells) for corner in corners) < _FEW
        _, *variances = mcc_moments(corners[0])
        return self._estimate(
            value,
            # As one side empties the correlation tends to 0.
            extremes(self._cells, lambda cells: 0.0 if math.isnan(cells.mcc) else cells.mcc),
            [mcc_interval(corner, z, sampling=False) for corner in corners],
            [mcc_interval(corner, z, sampling=True) for corner in corners],
            (variances[0], variances[1]),
            (-1.0, 1.0),
            f"fewer than {_FEW} examples have one of the four outcomes" if few else None,
        )

    @cached_property
    def confusion_matrix(self) -> ConfusionMatrix:
        """Counts of true and false negatives and positives."""
        tp, fp, fn, tn = (self._count(i) for i in range(4))
        return ConfusionMatrix(tn, fp, fn, tp)

    def as_dict(self) -> dict[str, Estimate | None]:
        """All metrics by name; None where one is undefined."""
        found: dict[str, Estimate | None] = {}
        for name in NAMES:
            try:
                found[name] = getattr(self, name)
            except UndefinedMetric:
                found[name] = None
        return found

    def __float__(self) -> float:
        return self.threshold

    def __repr__(self) -> str:
        return f"<AtThreshold {self.threshold:.6g}: {', '.join(NAMES[:5])}, ...>"

    def _likely(self, name: str, metric: Callable[[Cells], float]) -> float:
        """The likely value, or that of a corner, if only a corner defines it."""
        corners = [corner.cells for corner in self._cells.corners()]
        for cells in (self._cells.likely, *corners[::-1]):
            if not math.isnan(metric(cells)):
                return metric(cells)
        raise UndefinedMetric(
            f"{name} is undefined at threshold {self.threshold:g}: {_WHY_UNDEFINED[name]}."
        )

    def _ratio(self, name: str, weights: Ratio) -> Estimate:
        value = self._likely(name, lambda cells: cells.ratio(weights))
        z = critical(self._level)
        corners = list(self._cells.corners())
        return self._estimate(
            value,
            extremes(self._cells, lambda cells: cells.ratio(weights)),
            [ratio_interval(corner, weights, z, sampling=False) for corner in corners],
            [ratio_interval(corner, weights, z, sampling=True) for corner in corners],
            ratio_variances(corners[0], weights),
            (0.0, 1.0),
        )

    def _difference(self, name: str) -> Estimate:
        """Recall less the false positive rate, of independent examples."""
        value = self._likely(
            name, lambda cells: cells.ratio(RATIOS["recall"]) - cells.ratio(RATIOS["fpr"])
        )
        z = critical(self._level)
        corners = list(self._cells.corners())
        variances = np.sum(
            [ratio_variances(corners[0], RATIOS[rate]) for rate in ("recall", "fpr")], axis=0
        )
        return self._estimate(
            value,
            extremes(
                self._cells,
                lambda cells: cells.ratio(RATIOS["recall"]) - cells.ratio(RATIOS["fpr"]),
            ),
            [gap_interval(corner, z, sampling=False) for corner in corners],
            [gap_interval(corner, z, sampling=True) for corner in corners],
            (float(variances[0]), float(variances[1])),
            (-1.0, 1.0),
        )

    def _count(self, cell: int) -> Estimate:
        value = self._cells.likely[cell]
        low, high = extremes(self._cells, lambda cells: cells[cell])
        if not self._pooled.noisy:
            return Estimate(value, (low, high))
        z = critical(self._level)
        reaches = [
            (corner.unbiased[cell], z * math.sqrt(corner.noise[cell, cell]))
            for corner in self._cells.corners()
        ]
        bounds = holding(
            Interval(min(c - r for c, r in reaches), max(c + r for c, r in reaches)), value
        )
        return Estimate(value, (max(bounds.low, 0.0), bounds.high), level=self._level)

    def _estimate(
        self,
        value: float,
        allowed: tuple[float, float],
        noise_only: list[Interval],
        full: list[Interval],
        variances: tuple[float, float],
        scale: tuple[float, float],
        caution: str | None = None,
    ) -> Estimate:
        """Put together what the corners say; `variances` are those of noise and sampling."""
        bounds = within(holding(_hull(noise_only), *allowed), *scale)
        if not self._pooled.noisy:
            bounds = Interval(*allowed)
        interval = within(holding(_hull(full), value, *allowed), *scale)
        parts = {"binning": max(value - allowed[0], allowed[1] - value)}
        if self._pooled.noisy:
            parts["noise"] = math.sqrt(variances[0])
        parts["sampling"] = math.sqrt(variances[1])
        return Estimate(
            value,
            (min(bounds.low, value), max(bounds.high, value)),
            interval.low,
            interval.high,
            self._level,
            MappingProxyType(parts),
            caution or self._pooled.faint,
        )


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
    wanted = {"fpr": fpr, "recall": recall, "precision": precision, "cost": cost}
    given = [name for name, value in wanted.items() if value is not None]
    if len(given) != 1:
        raise InputError("say one thing that is wanted: fpr=, recall=, precision= or cost=.")
    for name in ("fpr", "recall", "precision"):
        rate = wanted[name]
        if rate is not None and not (isinstance(rate, Real) and 0 <= rate <= 1):
            raise InputError(f"{name} must lie between 0 and 1, got {rate!r}.")
    negatives, positives = pooled.counts
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
        fits, best = (tp + fp > 0) & (tp >= precision * (tp + fp) - slack), tp
        if not np.any(fits):
            reached = float(np.max(tp[1:] / np.maximum(tp[1:] + fp[1:], 1e-300), initial=0.0))
            raise UndefinedMetric(
                f"no threshold reaches precision {precision:g}; the highest at a bin edge is "
                f"{reached:.4f}. Ask for less, or use finer bins."
            )
    else:
        fits, best = np.ones(len(tp), dtype=bool), -_cost(cost, fp, tp[-1] - tp)
    # Of equally good thresholds the highest, which comes first.
    return float(edges[int(np.argmax(np.where(fits, best, -np.inf)))])


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
