"""The four outcomes at a threshold, and the formulas that turn them into metrics.

At a bin edge the outcomes are exact. Between edges one bin is open, and they have a range: its
corners. A formula gives a value for each corner, and an interval from the noise in it.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, NamedTuple

import numpy as np

from fedgauge.binning.axis import Axis
from fedgauge.errors import InputError
from fedgauge.estimation.pooled import SIGNAL, PooledCounts
from fedgauge.measures.intervals import Interval, accepted, difference
from fedgauge.typing import Floats

_FEW: Final = 5  # examples with an outcome, below which a correlation is rough


class Outcomes(NamedTuple):
    """Counts of the four outcomes, or weights for them."""

    tp: float = 0.0
    fp: float = 0.0
    fn: float = 0.0
    tn: float = 0.0


class Split(NamedTuple):
    """How a threshold divides the bins.

    Bins from `first` up are flagged; of the bin below it, if `open`, any part may be, and
    `share` is flagged if its scores spread evenly.
    """

    first: int
    open: bool
    share: float


def split(axis: Axis, threshold: float) -> Split:
    """Which bins a threshold flags."""
    t = float(threshold)
    if math.isnan(t):
        raise InputError("a threshold must be a number.")
    if math.isinf(t):
        return Split(axis.bins if t > 0 else 0, False, 0.0)
    edges, last = axis.edges, axis.bins
    if axis.separates_all:
        return Split(int(np.searchsorted(edges[:-1], t, side="left")), False, 0.0)
    clips = axis.outside == "clip"
    if t > axis.high:
        return Split(last, clips, 0.0)
    if t <= axis.low:  # scores below the axis, where it clips, sit in its first bin
        return Split(1, True, 1.0) if clips else Split(0, False, 0.0)
    bin_ = min(int(np.searchsorted(edges, t, side="right")) - 1, last - 1)
    if edges[bin_] == t:
        return Split(bin_, False, 0.0)
    width = edges[bin_ + 1] - edges[bin_]
    even = (edges[bin_ + 1] - t) / width if axis.kind != "values" else 0.0
    return Split(bin_ + 1, True, float(even))


class Corner(NamedTuple):
    """One way to count an open bin: repaired and unbiased outcomes, and the noise in them.

    `noise` is the covariance of (tp, fp, fn, tn).
    """

    outcomes: Outcomes
    unbiased: Outcomes
    noise: Floats


class ThresholdOutcomes:
    """The outcomes at one threshold: likely ones, and all that the open bin allows.

    Attributes
    ----------
    split
        How the threshold divides the bins.
    clean
        Whether it is known of every example on which side it is.
    likely
        Outcomes of likely counts, with the open bin divided evenly.
    unshrunk
        The same of counts as noise left them.
    """

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

        Each metric rises or falls with the true and with the false positives, so its extremes
        over all that the open bin allows are among these. So it is with bins that a map divides
        and that are flagged in part.
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
    """A metric as a function of the outcomes, which rises or falls with tp and with fp.

    Where it is undefined it tends to `limit`; NaN if to nothing.
    """

    limit: ClassVar[float] = math.nan

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

        For a ratio x, (1 - x) a - x b has mean zero. Its variance is that of counts in which
        the ratio is x, and that of the noise. Without noise and with weights of 1 this is
        Wilson's interval (1927); with noise alone it is Fieller's (1954).
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
        return accepted(start, lambda x: (1.0 - x) * a - x * b, variance, z)

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
