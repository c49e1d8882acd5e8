"""`AtThreshold`: a row for each metric at a threshold, with its formula; thresholds to choose."""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, Final, NamedTuple, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from fedgauge import _html
from fedgauge.arrays import Floats
from fedgauge.errors import InputError, UndefinedMetric
from fedgauge.estimation.counts import SIGNAL, PooledCounts
from fedgauge.histograms.axis import Axis
from fedgauge.metrics.estimate import (
    UNIT,
    Estimate,
    Interval,
    Metric,
    accepted,
    critical,
    difference,
    holding,
    metrics_of,
    next_to_end,
    within,
)

_FEW_TO_CHOOSE: Final = 50  # below: recall at thresholds for a precision, coverage 84 to 89%
_CHOSEN: Final = f"the threshold was chosen by fewer than {_FEW_TO_CHOOSE} examples of a class"
_DIVIDED: Final = "wide, since the threshold lies within a bin: name it (`at=`) before counting"
_FEW_HITS: Final = 3.0  # hits or misses up to which Wilson's interval may be too short
_FEW: Final = 5  # examples with an outcome, below which a correlation is rough


class Outcomes(NamedTuple):
    """Counts of the four outcomes, or weights for them."""

    tp: float = 0.0
    fp: float = 0.0
    fn: float = 0.0
    tn: float = 0.0


class ThresholdSplit(NamedTuple):
    """How a threshold divides the bins: those from `first` up are flagged."""

    first: int
    open: bool  # whether any part of the bin below may be flagged
    share: float  # the part flagged if its scores spread evenly


def split(axis: Axis, threshold: float) -> ThresholdSplit:
    """Which bins a threshold flags."""
    t = float(threshold)
    if math.isnan(t):
        raise InputError("a threshold must be a number.")
    if math.isinf(t):
        return ThresholdSplit(axis.bins if t > 0 else 0, False, 0.0)
    edges, last = axis.edges, axis.bins
    if axis.separates_all:
        return ThresholdSplit(int(np.searchsorted(edges[:-1], t, side="left")), False, 0.0)
    clips = axis.outside == "clip"
    if t > axis.high:
        return ThresholdSplit(last, clips, 0.0)
    if t <= axis.low:  # scores below the axis, where it clips, sit in its first bin
        return ThresholdSplit(1, True, 1.0) if clips else ThresholdSplit(0, False, 0.0)
    bin_ = min(int(np.searchsorted(edges, t, side="right")) - 1, last - 1)
    if edges[bin_] == t:
        return ThresholdSplit(bin_, False, 0.0)
    width = edges[bin_ + 1] - edges[bin_]
    even = (edges[bin_ + 1] - t) / width if axis.kind != "values" else 0.0
    return ThresholdSplit(bin_ + 1, True, float(even))


class Corner(NamedTuple):
    """One way to count an open bin: repaired and unbiased outcomes, and the noise in them."""

    outcomes: Outcomes
    unbiased: Outcomes
    noise: Floats  # covariance of (tp, fp, fn, tn)


class ThresholdOutcomes:
    """The outcomes at one threshold: likely ones, and all that the open bin allows."""

    def __init__(self, pooled: PooledCounts, threshold: float) -> None:
        self._pooled = pooled
        self.split = split(pooled.axis, threshold)
        first, is_open, share = self.split
        # With an open bin, two places divide what is flagged: above it and below.
        self._divided = pooled.divides(first) or (is_open and pooled.divides(first - 1))
        self.clean = not (is_open or self._divided)
        flags = np.zeros(pooled.axis.bins)
        flags[first:] = 1.0
        self._flags, even = [flags], flags
        if is_open:
            more, even = flags.copy(), flags.copy()
            more[first - 1], even[first - 1] = 1.0, share
            self._flags.append(more)
        self.likely = _counted(pooled.likely, even, even)
        self.unshrunk = _counted(pooled.counts, even, even)

    @cached_property
    def corners(self) -> tuple[Corner, ...]:
        """Every way in which the open bin's positives and negatives can all be flagged or not.

        Metrics rise or fall with true and with false positives, so their extremes are among these.
        So it is with bins that a map divides and that are flagged in part.
        """
        corners = self._corners(self._pooled)
        if self._divided:
            for up in itertools.product((False, True), repeat=2):
                corners += self._corners(self._pooled.moved(negatives_up=up[0], positives_up=up[1]))
        return corners

    def _corners(self, pooled: PooledCounts) -> tuple[Corner, ...]:
        pairs = list(itertools.product(self._flags, self._flags))
        return tuple(
            Corner(_counted(pooled.counts, *pair), _counted(pooled.unbiased, *pair), noise)
            for pair, noise in zip(pairs, _noise(pooled, pairs), strict=True)
        )


def _noise(pooled: PooledCounts, pairs: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Noise covariance of (tp, fp, fn, tn) in each corner."""
    weights = np.zeros((len(pairs), len(Outcomes._fields), *pooled.counts.shape))
    for corner, (of_negatives, of_positives) in zip(weights, pairs, strict=True):
        corner[0, 1], corner[2, 1] = of_positives, 1.0 - of_positives
        corner[1, 0], corner[3, 0] = of_negatives, 1.0 - of_negatives
    return pooled.covariance(weights[:, :, np.newaxis], weights[:, np.newaxis])


def _counted(counts: Floats, of_negatives: Floats, of_positives: Floats) -> Outcomes:
    """Outcomes when these shares of each bin are flagged."""
    negatives, positives = counts
    return Outcomes(
        tp=float(positives @ of_positives),
        fp=float(negatives @ of_negatives),
        fn=float(positives @ (1.0 - of_positives)),
        tn=float(negatives @ (1.0 - of_negatives)),
    )


class Formula(ABC):
    """A metric as a function of the outcomes, which rises or falls with tp and with fp."""

    limit: ClassVar[float] = math.nan  # what it tends to where it is undefined

    @property
    def scale(self) -> Interval:
        """Where it can lie."""
        return Interval(0.0, 1.0)

    @abstractmethod
    def value(self, outcomes: Outcomes) -> float:
        """The metric; NaN where it is undefined."""

    @abstractmethod
    def interval(self, corner: Corner, z: float, *, sampling: bool) -> Interval:
        """What noise, and with `sampling` chance, leave open, z standard deviations far."""

    @abstractmethod
    def variances(self, corner: Corner) -> tuple[float, float]:
        """Variance by noise and by sampling, to first order."""

    @abstractmethod
    def slopes(self, outcomes: Outcomes) -> Floats:
        """Derivatives of the metric by the four counts."""

    @abstractmethod
    def has_base(self, corner: Corner) -> bool:
        """Whether what it divides by stands out of the noise."""

    def caution(self, corners: Sequence[Corner]) -> str | None:  # noqa: ARG002
        """Why the interval is rough, if it is."""
        return None

    def extremes(self, corners: Sequence[Corner]) -> Interval:
        """Least and most that the metric can be; NaN where no corner defines it."""
        values = [self.value(corner.outcomes) for corner in corners]
        values = [self.limit if math.isnan(value) else value for value in values]
        defined = [value for value in values if not math.isnan(value)]
        return Interval(min(defined), max(defined)) if defined else Interval(math.nan, math.nan)


@dataclass(frozen=True)
class Ratio(Formula):
    """A rate a / (a + b) of weighted outcomes: `part` weighs those in a, `rest` those in b."""

    part: Outcomes
    rest: Outcomes

    def value(self, outcomes: Outcomes) -> float:
        """The rate; NaN where nothing is counted."""
        part, rest = (
            sum(float(weight) * count for weight, count in zip(weights, outcomes, strict=True))
            for weights in (self.part, self.rest)
        )
        return part / (part + rest) if part + rest > 0 else math.nan

    def interval(self, corner: Corner, z: float, *, sampling: bool) -> Interval:
        """Values that a score test does not reject.

        For a ratio x, (1 - x) a - x b has mean zero, and the variance of counts with that ratio
        plus the noise. Without noise and with weights of 1 this is Wilson's interval (1927); with
        noise alone it is Fieller's (1954). Wilson's covers 84% where the ratio is so near to 0 or 1
        that mostly nothing is on that side. So without noise, where up to 3 are, that end is at
        least as far as a Poisson law puts it (Brown, Cai & DasGupta 2001).
        """
        part, rest = self._weights
        both = part + rest
        counts = np.maximum(np.array(corner.outcomes), 0.0)
        a, b = (float(weights @ np.array(corner.unbiased)) for weights in (part, rest))
        if a + b <= 0:
            return Interval(0.0, 1.0)
        total = float(both @ counts)
        mean_part, mean_rest = (_mean_weight(weights, counts) for weights in (part, rest))
        linear, square = (float(weights @ corner.noise @ both) for weights in (part, both))
        constant = float(part @ corner.noise @ part)

        def variance(x: float) -> float:
            chance = total * x * (1.0 - x) * ((1.0 - x) * mean_part + x * mean_rest)
            noise = constant - 2.0 * x * linear + x * x * square  # of part - x * both
            return noise + (chance if sampling else 0.0)

        start = min(max(a / (a + b), 0.0), 1.0)
        span = accepted(start, lambda x: (1.0 - x) * a - x * b, variance, z)
        if square > 0 or not sampling:
            return span
        least = _least_share(a, mean_part, total, z)
        return Interval(
            min(span.low, least), max(span.high, 1.0 - _least_share(b, mean_rest, total, z))
        )

    def variances(self, corner: Corner) -> tuple[float, float]:
        """Variance by noise and by sampling, to first order."""
        slope = self.slopes(corner.outcomes)
        counts = np.maximum(np.array(corner.outcomes), 0.0)
        return noise_variance(slope, corner), float(slope**2 @ counts)

    def slopes(self, outcomes: Outcomes) -> Floats:
        """Derivatives of the rate by the four counts; 0 where nothing is counted."""
        part, rest = self._weights
        counts = np.maximum(np.array(outcomes), 0.0)
        total = float((part + rest) @ counts)
        if total <= 0:
            return np.zeros(len(counts))
        x = float(part @ counts) / total
        slope: Floats = ((1.0 - x) * part - x * rest) / total
        return slope

    def has_base(self, corner: Corner) -> bool:
        """Whether the examples that it is a share of stand out of the noise."""
        part, rest = self._weights
        return stand_out(part + rest, corner)

    @cached_property
    def _weights(self) -> tuple[Floats, Floats]:
        return np.array(self.part, dtype=np.float64), np.array(self.rest, dtype=np.float64)


def noise_variance(weights: Floats, corner: Corner) -> float:
    """Variance of weighted outcomes by noise; none is left where both classes' cancels."""
    return max(float(weights @ corner.noise @ weights), 0.0)  # rounding


def stand_out(weights: Floats, corner: Corner) -> bool:
    """Whether weighted outcomes are more than noise: by as much as a class must be."""
    deviation = math.sqrt(noise_variance(weights, corner))
    return float(weights @ np.array(corner.unbiased)) > SIGNAL * deviation


def _least_share(weighted: float, weight: float, total: float, z: float) -> float:
    """The least share that a Poisson law allows up to 3 rarer examples; 1, no limit, of others."""
    from scipy.special import gammaincinv

    count = weighted / weight if weight > 0 else 0.0
    if not 0.0 < count <= _FEW_HITS or 2.0 * weighted >= total:
        return 1.0
    return float(gammaincinv(count, math.erfc(z / math.sqrt(2.0)))) * weight / total


def _mean_weight(weights: Floats, counts: Floats) -> float:
    counted = float(weights @ counts)
    return float(weights**2 @ counts) / counted if counted > 0 else float(weights.max())


@dataclass(frozen=True)
class Difference(Formula):
    """``middle + slope * (first - second)`` of two rates of different examples."""

    first: Ratio
    second: Ratio
    middle: float = 0.0
    slope: float = 1.0

    @property
    def scale(self) -> Interval:
        """Where it can lie."""
        return Interval(self.middle - self.slope, self.middle + self.slope)

    def value(self, outcomes: Outcomes) -> float:
        """The difference; NaN where a rate is undefined."""
        return self._moved(self.first.value(outcomes) - self.second.value(outcomes))

    def interval(self, corner: Corner, z: float, *, sampling: bool) -> Interval:
        """From the intervals of both rates, whose examples are independent."""
        rates = self.first, self.second
        spans = [rate.interval(corner, z, sampling=sampling) for rate in rates]
        one, other = (
            min(max(rate.value(corner.outcomes), span.low), span.high)
            for rate, span in zip(rates, spans, strict=True)
        )
        return Interval(*map(self._moved, difference(spans[0], spans[1], (one, other))))

    def variances(self, corner: Corner) -> tuple[float, float]:
        """Variance by noise and by sampling, to first order."""
        pairs = zip(self.first.variances(corner), self.second.variances(corner), strict=True)
        by_noise, by_sampling = (self.slope**2 * (one + other) for one, other in pairs)
        return by_noise, by_sampling

    def slopes(self, outcomes: Outcomes) -> Floats:
        """Derivatives of the difference by the four counts."""
        return self.slope * (self.first.slopes(outcomes) - self.second.slopes(outcomes))

    def has_base(self, corner: Corner) -> bool:
        """Whether both rates have one."""
        return self.first.has_base(corner) and self.second.has_base(corner)

    def _moved(self, gap: float) -> float:
        return self.middle + self.slope * gap


# Flagged, positive, negative and cleared examples.
_SIDES: Final = (
    Outcomes(tp=1, fp=1),
    Outcomes(tp=1, fn=1),
    Outcomes(fp=1, tn=1),
    Outcomes(fn=1, tn=1),
)


class Correlation(Formula):
    """The Matthews correlation of label and prediction; as one side empties it tends to 0."""

    limit = 0.0

    @property
    def scale(self) -> Interval:
        """Where it can lie."""
        return Interval(-1.0, 1.0)

    def value(self, outcomes: Outcomes) -> float:
        """The correlation; NaN where a row or a column of the matrix is empty."""
        tp, fp, fn, tn = outcomes
        sides = (tp + fp, tp + fn, tn + fp, tn + fn)
        if min(sides) <= 0:
            return math.nan
        correlation = (tp * tn - fp * fn) / math.prod(map(math.sqrt, sides))
        return min(max(correlation, -1.0), 1.0)  # rounding

    def slopes(self, outcomes: Outcomes) -> Floats:
        """Derivatives by the four counts, with half an example more of each."""
        return np.array(self.gradient(_half_more(outcomes)))

    def gradient(self, outcomes: Outcomes) -> Outcomes:
        """Derivatives of the correlation by the four counts."""
        tp, fp, fn, tn = outcomes
        flagged, positives, negatives, cleared = tp + fp, tp + fn, tn + fp, tn + fn
        scale = math.prod(map(math.sqrt, (flagged, positives, negatives, cleared)))
        half = self.value(outcomes) / 2.0
        return Outcomes(
            tp=tn / scale - half * (1 / flagged + 1 / positives),
            fp=-fn / scale - half * (1 / flagged + 1 / negatives),
            fn=-fp / scale - half * (1 / cleared + 1 / positives),
            tn=tp / scale - half * (1 / cleared + 1 / negatives),
        )

    def interval(self, corner: Corner, z: float, *, sampling: bool) -> Interval:
        """Normal on Fisher's scale, which stays within (-1, 1)."""
        value = self.value(_half_more(corner.outcomes))
        by_noise, by_sampling = self.variances(corner)
        variance = by_noise + (by_sampling if sampling else 0.0)
        reach, middle = z * math.sqrt(variance) / (1.0 - value * value), math.atanh(value)
        return Interval(math.tanh(middle - reach), math.tanh(middle + reach))

    def variances(self, corner: Corner) -> tuple[float, float]:
        """Variance by noise and by sampling, to first order."""
        gradient = self.slopes(corner.outcomes)
        counts = np.array(_half_more(corner.outcomes))
        return noise_variance(gradient, corner), float(gradient**2 @ counts)

    def has_base(self, corner: Corner) -> bool:
        """Whether examples on either side, and of either class, stand out of the noise."""
        return all(stand_out(np.array(side, dtype=np.float64), corner) for side in _SIDES)

    def caution(self, corners: Sequence[Corner]) -> str | None:
        """Few examples of an outcome say little about it."""
        few = min(min(corner.outcomes) for corner in corners) < _FEW
        return f"fewer than {_FEW} examples have one of the four outcomes" if few else None


def _half_more(outcomes: Outcomes) -> Outcomes:
    """Half an example more of every outcome: one that happens to be empty is not surely so."""
    return Outcomes(*(count + 0.5 for count in outcomes))


# Rates of one class alone: of positives that are flagged, of negatives that are.
RECALL: Final = Ratio(Outcomes(tp=1), Outcomes(fn=1))
FPR: Final = Ratio(Outcomes(fp=1), Outcomes(tn=1))


def f_beta_ratio(beta: float) -> Ratio:
    """F-beta as a ratio: recall counts beta times as much as precision."""
    square = beta * beta
    return Ratio(Outcomes(tp=1 + square), Outcomes(fp=1, fn=square))


class ThresholdMetric(Metric):
    """A metric at a threshold: its formula, its source, and when it is undefined."""

    def __init__(
        self,
        formula: Formula,
        *,
        title: str,
        undefined: str,
        doc: str,
        source: str = "by definition",
        listed: bool = True,
    ) -> None:
        super().__init__(self.read, title, listed=listed)
        self.__doc__ = doc
        self.formula = formula
        self.source = source
        self.undefined = undefined

    def read(self, at: "ThresholdMetrics") -> Estimate:
        """The metric at one threshold."""
        return at._estimate(self.name, self.formula, self.undefined)


class ConfusionMatrix(NamedTuple):
    """Counts of the four outcomes, in the order of scikit-learn's ``ravel()``.

    Examples
    --------
    >>> result = fg.evaluate({"a": ([0, 1, 1, 0], [0.2, 0.7, 0.9, 0.6])})
    >>> matrix = result.at_threshold(0.5).confusion_matrix
    >>> matrix.tp.value, matrix.fp.value, matrix.fn.value, matrix.tn.value
    (2.0, 1.0, 0.0, 1.0)
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
        source="Fawcett 2006",
    )
    recall = ThresholdMetric(
        RECALL,
        title="recall",
        undefined="there is no positive example",
        doc="Share of positives that are flagged, the true positive rate: tp / (tp + fn).",
        source="Fawcett 2006",
    )
    specificity = ThresholdMetric(
        Ratio(Outcomes(tn=1), Outcomes(fp=1)),
        title="specificity",
        undefined="there is no negative example",
        doc="Share of negatives that are not flagged: tn / (tn + fp).",
        source="Fawcett 2006",
    )
    npv = ThresholdMetric(
        Ratio(Outcomes(tn=1), Outcomes(fn=1)),
        title="NPV",
        undefined="every example scores at or above it",
        doc="Share of examples not flagged that are negative: tn / (tn + fn).",
        source="Altman & Bland 1994",
    )
    accuracy = ThresholdMetric(
        Ratio(Outcomes(tp=1, tn=1), Outcomes(fp=1, fn=1)),
        title="accuracy",
        undefined="there is no example",
        doc="Share of examples on the right side: (tp + tn) / n.",
        source="Fawcett 2006",
    )
    balanced_accuracy = ThresholdMetric(
        Difference(RECALL, FPR, middle=0.5, slope=0.5),
        title="balanced accuracy",
        undefined="one class has no example",
        doc="Mean of recall and specificity: (tp / (tp + fn) + tn / (tn + fp)) / 2.",
        source="Brodersen et al. 2010",
    )
    f1 = ThresholdMetric(
        f_beta_ratio(1.0),
        title="F1",
        undefined="there is no positive example and none is flagged",
        doc="Harmonic mean of precision and recall: 2 tp / (2 tp + fp + fn).",
        source="van Rijsbergen 1979",
    )
    mcc = ThresholdMetric(
        Correlation(),
        title="MCC",
        undefined="one class has no example, or all examples lie on one side of it",
        doc="Matthews correlation of label and prediction: "
        "(tp tn - fp fn) / sqrt((tp + fp) (tp + fn) (tn + fp) (tn + fn)).",
        source="Matthews 1975",
    )
    youden_j = ThresholdMetric(
        Difference(RECALL, FPR),
        title="Youden's J",
        undefined="one class has no example",
        doc="Recall less the false positive rate: tp / (tp + fn) - fp / (fp + tn).",
        source="Youden 1950",
    )
    fpr = ThresholdMetric(
        FPR,
        title="false positive rate",
        undefined="there is no negative example",
        doc="Share of negatives that are flagged: fp / (fp + tn).",
        source="Fawcett 2006",
    )
    fnr = ThresholdMetric(
        Ratio(Outcomes(fn=1), Outcomes(tp=1)),
        title="false negative rate",
        listed=False,
        undefined="there is no positive example",
        doc="Share of positives that are missed: fn / (fn + tp).",
        source="Fawcett 2006",
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
        source="Altman & Bland 1994",
    )

    def f_beta(self, beta: float) -> Estimate:
        """F-beta: recall counts `beta` times as much as precision.

        Formula: ``(1 + b^2) tp / ((1 + b^2) tp + fp + b^2 fn)`` with b for beta.

        Source: van Rijsbergen 1979.

        Beware: large values of beta with few positives.
        """
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

    On a bin edge under secure aggregation, values are those of the pooled data. Between edges
    `bounds` say what the data allows, and intervals include that.

    Attributes
    ----------
    threshold
        The threshold.
    on_edge
        Whether it divides bins cleanly.

    Examples
    --------
    >>> result = fg.evaluate({"a": ([0, 1, 1, 0], [0.2, 0.7, 0.9, 0.6])})
    >>> result.at_threshold(0.5).recall
    Estimate(1.0000, interval 0.3424..1.0000 at 95%)
    """

    def __init__(
        self, pooled: PooledCounts, threshold: float, level: float, *, chosen: bool = False
    ) -> None:
        self.threshold = check_threshold(threshold)
        few = chosen and min(pooled.negatives, pooled.positives) < _FEW_TO_CHOOSE
        self._caution = _CHOSEN if few else None
        self._pooled = pooled
        self._level = level
        self._outcomes = ThresholdOutcomes(pooled, self.threshold)
        self.on_edge = self._outcomes.clean

    @cached_property
    def confusion_matrix(self) -> ConfusionMatrix:
        """Counts of true and false negatives and positives.

        Formula: the four counts themselves, in the order tn, fp, fn, tp.

        Source: Fawcett 2006.

        Interval: none. Under noise the bounds are for each count alone, not for all four at once.
        """
        return ConfusionMatrix(*map(self._count, ConfusionMatrix._fields))

    def __float__(self) -> float:
        return self.threshold

    def __repr__(self) -> str:
        return f"<AtThreshold {self.threshold:.6g}: {', '.join(self._main())}, ...>"

    def _main(self) -> list[str]:
        """The first metrics in words."""
        told = []
        for row in metrics_of(AtThreshold)[:5]:
            try:
                told.append(f"{row.name} {getattr(self, row.name).value:.4g}")
            except UndefinedMetric:
                told.append(f"{row.name} undefined")
        return told

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
        return _html.table(rows, caption=f"At threshold {self.threshold:.6g}")

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
        divided = allowed.high - allowed.low > z * math.hypot(of_noise, of_sampling)  # over a third
        return Estimate(
            value,
            (bounds.low, bounds.high),
            interval.low,
            interval.high,
            self._level,
            parts | {"sampling": of_sampling},
            formula.caution(corners)
            or self._caution
            or self._pooled.faint
            or (_DIVIDED if divided and not self.on_edge else None)
            or (next_to_end(value, of_noise) if noisy and formula.scale == UNIT else None),
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
    """The bin edge, or infinity, that :meth:`fedgauge.Evaluation.threshold_for` asks for."""
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
