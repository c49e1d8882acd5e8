"""Differences of two estimates: gaps between groups, and two models on the same rows."""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from fedgauge.arrays import Floats
from fedgauge.errors import InputError
from fedgauge.metrics import areas, ranking
from fedgauge.metrics.areas import require_probabilities
from fedgauge.metrics.decisions import Decision, benefit_of_model
from fedgauge.metrics.estimate import Estimate, Interval, critical, holding
from fedgauge.metrics.ranking import Reading
from fedgauge.metrics.thresholds import AtThreshold, Formula, Outcomes, ThresholdMetrics, split

_ALL: Final = Interval(-math.inf, math.inf)


def gap(first: Estimate, second: Estimate, *, overlapping: bool = False) -> Estimate:
    """The difference of two estimates of different rows, with an interval.

    Sampling and noise are independent, so distances of the intervals' ends add in squares (Zou &
    Donner 2008, MOVER), and the interval is as skewed as theirs: for rates as Newcombe's (1998,
    method 10), for AUCs on the log-odds scale. Without noise what binning allows adds up in full.

    Of `overlapping` rows nobody knows how far the errors go together. The distances then add up,
    which is conservative.

    Examples
    --------
    >>> women = Estimate(0.8, (0.8, 0.8), 0.7, 0.88, 0.95, {"sampling": 0.045})
    >>> men = Estimate(0.6, (0.6, 0.6), 0.52, 0.68, 0.95, {"sampling": 0.04})
    >>> gap(women, men)
    Estimate(0.2000, interval 0.0719..0.3131 at 95%)
    >>> gap(women, men, overlapping=True)
    Estimate(0.2000, interval 0.0200..0.3600 at 95%)
    """
    told = _gap(first.unshrunk, second.unshrunk, overlapping=overlapping)
    return told.moved_to(first.value - second.value)


def _gap(first: Estimate, second: Estimate, *, overlapping: bool) -> Estimate:
    value = first.value - second.value
    bounds = _bounds(first, second)
    join = operator.add if overlapping else math.hypot
    reaches = _reach(first, second, join), _reach(second, first, join)
    interval = holding(Interval(value - reaches[0], value + reaches[1]), value)
    parts = {
        name: (operator.add if name == "binning" else join)(
            first.parts.get(name, 0.0), second.parts.get(name, 0.0)
        )
        for name in {**first.parts, **second.parts}
    }
    return Estimate(
        value,
        (bounds.low, bounds.high),
        interval.low,
        interval.high,
        first.level,
        parts,
        first.caution or second.caution,
    )


def level_of_each(level: float, comparisons: int) -> float:
    """The level of each of several intervals that all hold at once (Bonferroni).

    Some pair of many groups is far apart by chance: among ten with 40 positives each, two recalls
    differ by 0.2 on average (`studies/gap_coverage.py`).
    """
    return 1.0 - (1.0 - level) / max(comparisons, 1)


def _reach(first: Estimate, second: Estimate, join: Callable[[float, float], float]) -> float:
    """How far the difference may lie below its value: the first lower, the second higher."""
    if first.low is None or second.high is None:
        raise InputError("a gap needs a metric with an interval, and this one has none.")
    below, above = first.value - first.low, second.high - second.value
    sure_below = _sure(first, first.value - first.bounds[0], below)
    sure_above = _sure(second, second.bounds[1] - second.value, above)
    return join(below - sure_below, above - sure_above) + sure_below + sure_above


def _sure(estimate: Estimate, allowed: float, reach: float) -> float:
    """The part of an interval that binning takes: added where the interval holds all it allows."""
    allowed = min(allowed, estimate.parts.get("binning", allowed))
    return allowed if "noise" not in estimate.parts and allowed <= reach else 0.0


def _bounds(first: Estimate, second: Estimate) -> Interval:
    (low, high), (least, most) = first.bounds, second.bounds
    if not all(map(math.isfinite, (low, high, least, most))):
        return _ALL
    return Interval(low - most, high - least)


_STEP: Final = 1e-7  # of all examples, to differentiate a formula by
# What bins may hide of a model's area or loss before smooth scores within them are a mere guess.
# Of 9,000 rows on two bins it is 0.39 where these are alike, and the interval covers; from 0.6 on,
# where one of them has most rows, it does not, and on one bin any two models would be equal.
_COARSE: Final = 0.4
# Shorter intervals than this, of what bins may hide of Brier scores, covered 60 to 83% of two
# forests and of rounded scores.
_GUESSED: Final = 0.1
_WIDE: Final = 2.0  # times what chance and noise alone make it
_FEW_DECIDE: Final = "few rows or wide bins decide, so it is wide"
_WITHIN: Final = "so short that it depends on how scores lie within bins, which is a guess"


@dataclass(frozen=True, eq=False)
class Joint:
    """Counts of both scores together."""

    counts: Floats  # by class and the range in each model; unbiased under noise
    starts: tuple[tuple[int, ...], tuple[int, ...]]  # the first bin of each range, by model
    variance: float  # of the noise in one cell; 0 without
    is_all: bool  # whether each model's own counts, and their noise, are sums of these cells


@dataclass(frozen=True, eq=False)
class ModelPair:
    """Two models read from the same rows, and what is known of both together, if anything is."""

    first: Reading
    second: Reading
    joint: Joint | None
    apart: bool = False  # whether each is of rows of its own, as local reports are

    @property
    def readings(self) -> tuple[Reading, Reading]:
        """Both."""
        return self.first, self.second

    @property
    def level(self) -> float:
        """Confidence of the intervals."""
        return self.first.level

    def roc_auc(self) -> Estimate:
        """Difference of the areas under the ROC curves (DeLong et al. 1988, from counts)."""
        ends = [ranking.roc_auc(each) for each in self.readings]
        counts = [each.pooled.counts for each in self.readings]
        straight = [areas.straight_auc(*each) for each in counts]
        unbiased = [areas.straight_auc(*each.pooled.unbiased) for each in self.readings]
        gradients = [areas.auc_gradient(each) for each in counts]
        if self.joint is not None and self.joint.is_all and not self.first.tied.all():
            gradients = [_area_gradient(each.unshrunk) for each in self.readings]
        if self.joint is None or any(end.caution for end in ends):
            return self._from_ends(ends, gradients)
        return self._normal(
            self.joint, ends, gradients, straight, np.subtract(unbiased, straight).tolist()
        )

    def average_precision(self) -> Estimate:
        """Difference of the average precisions."""
        ends = [ranking.average_precision(each) for each in self.readings]
        gradients = [areas.average_precision_gradient(each.pooled.counts) for each in self.readings]
        off = 0.0 if self.first.pooled.noisy else _binning(ends)
        return self._from_ends(ends, gradients, off)

    def brier_score(self) -> Estimate:
        """Difference of the Brier scores; negative where the first model is better."""
        ends = [ranking.mean_loss(each, "squared") for each in self.readings]
        gradients, even, shifts = [], [], []
        for end, each in zip(ends, self.readings, strict=True):
            pooled, by_bin = each.pooled, each.losses("squared")
            total = float(pooled.counts.sum())
            gradients.append((by_bin.mean - end.value) / total)
            even.append(float(np.sum(pooled.counts * by_bin.even)) / total)
            shifts.append(float(np.sum((pooled.unbiased - pooled.counts) * gradients[-1])))
        if self.joint is None:
            return self._from_ends(ends, gradients)
        found = self._normal(self.joint, ends, gradients, even, shifts)
        if not self.first.pooled.noisy or found.caution or found.high is None or found.low is None:
            return found
        guessed = found.high - found.low < _GUESSED * found.parts["binning"]
        return replace(found, caution=_WITHIN if guessed else None)

    def at_threshold(self, threshold: float) -> "DifferencesAt":
        """Differences of the metrics at a threshold."""
        return DifferencesAt(self, threshold)

    def net_benefit(self, threshold: float) -> Estimate:
        """Difference of the net benefits at a threshold."""
        require_probabilities(self.first.pooled.axis, "net benefits")
        checked = Decision(self.first.pooled, threshold, self.level).threshold
        return DifferencesAt(self, checked)._estimate(
            "net_benefit", benefit_of_model(checked), "there is no example"
        )

    def _deviations(
        self, ends: list[Estimate], gradients: list[Floats], joint: Joint
    ) -> tuple[float, float]:
        """Standard deviations of a difference, by sampling and by noise.

        Where all is read from the cells, each moves the difference by its rows and its noise. Else
        cells tell how far the models' errors go together; within a range scores are taken as
        independent, on the safe side.
        """
        if joint.is_all:
            one, other = gradients
            moves = (one[:, :, np.newaxis] - other[:, np.newaxis, :]) ** 2
            sampled = float(np.sum(joint.counts * moves))  # of noisy cells, so maybe negative
            return math.sqrt(max(sampled, 0.0)), math.sqrt(joint.variance * float(moves.sum()))
        one, other = (
            _by_range(gradient, reading.pooled.counts, starts)
            for gradient, reading, starts in zip(
                gradients, self.readings, joint.starts, strict=True
            )
        )
        covariance = float(np.einsum("cij,ci,cj->", joint.counts, one, other))
        sampling, noise = ([end.parts.get(k, 0.0) for end in ends] for k in ("sampling", "noise"))
        return _of_difference(sampling, covariance), _of_difference(noise, 0.0)

    def _normal(
        self,
        joint: Joint,
        ends: list[Estimate],
        gradients: list[Floats],
        others: list[float],
        shifts: list[float],
    ) -> Estimate:
        """A normal interval around where unbiased counts put the difference.

        Where a second view of the same counts (`others`) differs, that counts as error. What any
        data could do is in the bounds; where bins leave nearly everything open, also in the
        interval.
        """
        sampling, noise = self._deviations(ends, gradients, joint)
        value = ends[0].unshrunk.value - ends[1].unshrunk.value
        centre = value + shifts[0] - shifts[1]
        off = others[0] - others[1] - value
        reach = math.hypot(critical(self.level) * math.hypot(sampling, noise), off)
        if max(end.parts.get("binning", 0.0) for end in ends) > _COARSE:
            reach += _binning(ends)
        interval = Interval(max(centre - reach, -1.0), min(centre + reach, 1.0))
        return self._made(ends, interval, {"sampling": sampling, "noise": noise})

    def _from_ends(
        self, ends: list[Estimate], gradients: list[Floats], off: float = 0.0
    ) -> Estimate:
        """An interval from those of both models (Zou & Donner 2008, MOVER for dependent values).

        The distances to their ends are joined by the correlation of their errors: -1 where nothing
        is known of it, which is conservative, and 0 where each model is reported of other rows.
        """
        correlation, parts = 0.0 if self.apart else -1.0, {}
        for kind in ("sampling", "noise"):
            both = [end.parts.get(kind, 0.0) for end in ends]
            parts[kind] = math.hypot(*both) if self.apart else sum(both)
        if self.joint is not None:
            both = [math.hypot(*(e.parts.get(k, 0.0) for k in ("sampling", "noise"))) for e in ends]
            sampling, noise = self._deviations(ends, gradients, self.joint)
            parts = {"sampling": sampling, "noise": noise}
            spread = sampling**2 + noise**2
            if min(both) > 0:
                free = (both[0] ** 2 + both[1] ** 2 - spread) / (2.0 * both[0] * both[1])
                correlation = min(max(free, -1.0), 1.0)
        one, other = (end.unshrunk for end in ends)
        value = one.value - other.value
        down = _joined(one.value - _low(one), _high(other) - other.value, correlation)
        up = _joined(_high(one) - one.value, other.value - _low(other), correlation)
        return self._made(ends, Interval(value - down - off, value + up + off), parts)

    def _made(self, ends: list[Estimate], interval: Interval, parts: dict[str, float]) -> Estimate:
        one, other = (end.unshrunk for end in ends)
        value = one.value - other.value
        bounds = (one.bounds[0] - other.bounds[1], one.bounds[1] - other.bounds[0])
        low, high = holding(interval, value)
        if not self.first.pooled.noisy:
            parts = {kind: part for kind, part in parts.items() if kind != "noise"}
        caution = one.caution or other.caution
        chance = critical(self.level) * math.hypot(*parts.values())
        if caution is None and high - low > _WIDE * 2.0 * chance:
            caution = _FEW_DECIDE
        parts = {"binning": _binning(ends)} | parts
        told = Estimate(value, bounds, low, high, self.level, parts, caution)
        return told.moved_to(ends[0].value - ends[1].value)


class DifferencesAt(ThresholdMetrics):
    """Differences of two models' metrics when scores from a threshold up are flagged."""

    def __init__(self, pair: ModelPair, threshold: float) -> None:
        self._pair = pair
        self._ends = [AtThreshold(each.pooled, threshold, each.level) for each in pair.readings]
        self.threshold = self._ends[0].threshold

    def _estimate(self, name: str, formula: Formula, undefined: str) -> Estimate:
        ends = [each._estimate(name, formula, undefined) for each in self._ends]
        gradients = [self._gradient(each, formula) for each in self._pair.readings]
        return self._pair._from_ends(ends, gradients, _binning(ends))

    def _gradient(self, reading: Reading, formula: Formula) -> Floats:
        """What one more example of each class and bin does to the metric."""
        counts = reading.pooled.counts
        first, is_open, share = split(reading.pooled.axis, self.threshold)
        flags = (np.arange(counts.shape[1]) >= first).astype(float)
        if is_open:
            flags[first - 1] = share
        negatives, positives = counts
        outcomes = np.array(
            Outcomes(
                tp=positives @ flags,
                fp=negatives @ flags,
                fn=positives @ (1.0 - flags),
                tn=negatives @ (1.0 - flags),
            )
        )
        # A half more of each outcome, so that no formula is undefined.
        step, start = _STEP * float(counts.sum()), outcomes + 0.5
        value = formula.value(Outcomes(*start))
        tp, fp, fn, tn = (
            (formula.value(Outcomes(*moved)) - value) / step for moved in start + step * np.eye(4)
        )
        return np.array([fp * flags + tn * (1.0 - flags), tp * flags + fn * (1.0 - flags)])

    def __repr__(self) -> str:
        return f"<DifferencesAt {self.threshold:.6g}: precision, recall, ...>"


def _area_gradient(reading: Reading) -> Floats:
    """What one more example of each class and bin does to the area under the smooth ROC curve.

    It moves further than straight lines, whose gradient is known: by 6% on 8 bins, 0 on 16.
    """

    def area(counts: Floats) -> float:
        return replace(reading, pooled=replace(reading.pooled, released=counts)).roc.path.area()

    counts = reading.pooled.counts
    now, step = area(counts), 1e-3 * float(counts.mean())
    moved = counts + step * np.eye(counts.size).reshape(-1, *counts.shape)
    slopes: Floats = np.array([area(each) - now for each in moved]).reshape(counts.shape) / step
    return slopes


def _by_range(gradient: Floats, counts: Floats, starts: tuple[int, ...]) -> Floats:
    """The mean gradient of a class's examples in each range; that of its bins where none are."""
    if not starts:
        return gradient
    held = counts + 1e-9  # so that empty ranges have a mean too
    sums = np.add.reduceat(held, starts, axis=1)
    means: Floats = np.add.reduceat(held * gradient, starts, axis=1) / sums
    return means


def _of_difference(ends: list[float], covariance: float) -> float:
    """Standard deviation of a difference, between what perfect correlations leave."""
    one, other = ends
    covariance = min(max(covariance, -one * other), one * other)
    return math.sqrt(max(one**2 + other**2 - 2.0 * covariance, 0.0))


def _joined(one: float, other: float, correlation: float) -> float:
    return math.sqrt(max(one**2 + other**2 - 2.0 * correlation * one * other, 0.0))


def _binning(ends: list[Estimate]) -> float:
    return sum(end.parts.get("binning", 0.0) for end in ends)


def _low(end: Estimate) -> float:
    return end.value if end.low is None else end.low


def _high(end: Estimate) -> float:
    return end.value if end.high is None else end.high
