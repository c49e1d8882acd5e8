"""The confusion matrix at a threshold: exact at bin edges, a range between them."""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from fedgauge.binning.axis import Axis
from fedgauge.errors import InputError
from fedgauge.estimation.pooled import PooledCounts
from fedgauge.typing import Floats

Ratio = tuple[tuple[float, float, float, float], tuple[float, float, float, float]]

# A rate is a / (a + b), with the weights of (tp, fp, fn, tn) in a and in b.
RATIOS: dict[str, Ratio] = {
    "precision": ((1, 0, 0, 0), (0, 1, 0, 0)),
    "recall": ((1, 0, 0, 0), (0, 0, 1, 0)),
    "specificity": ((0, 0, 0, 1), (0, 1, 0, 0)),
    "npv": ((0, 0, 0, 1), (0, 0, 1, 0)),
    "accuracy": ((1, 0, 0, 1), (0, 1, 1, 0)),
    "fpr": ((0, 1, 0, 0), (0, 0, 0, 1)),
    "fnr": ((0, 0, 1, 0), (1, 0, 0, 0)),
    "flagged": ((1, 1, 0, 0), (0, 0, 1, 1)),
    "prevalence": ((1, 0, 1, 0), (0, 1, 0, 1)),
}


def f_beta_ratio(beta: float) -> Ratio:
    """F-beta as a ratio: recall counts beta times as much as precision."""
    square = beta * beta
    return (1 + square, 0, 0, 0), (0, 1, square, 0)


class Cells(NamedTuple):
    """Counts of the four outcomes."""

    tp: float
    fp: float
    fn: float
    tn: float

    def ratio(self, weights: Ratio) -> float:
        """A rate of these counts; NaN where nothing is counted."""
        above, below = (sum(map(float.__mul__, map(float, w), self)) for w in weights)
        return above / (above + below) if above + below > 0 else math.nan

    @property
    def mcc(self) -> float:
        """Matthews correlation; NaN where a row or a column is empty."""
        tp, fp, fn, tn = self
        sides = (tp + fp, tp + fn, tn + fp, tn + fn)
        if min(sides) <= 0:
            return math.nan
        found = (tp * tn - fp * fn) / math.prod(map(math.sqrt, sides))
        return min(max(found, -1.0), 1.0)  # rounding

    @property
    def mcc_gradient(self) -> tuple[float, float, float, float]:
        """Derivatives of the Matthews correlation by the four counts."""
        tp, fp, fn, tn = self
        flagged, positives, negatives, cleared = tp + fp, tp + fn, tn + fp, tn + fn
        scale = math.prod(map(math.sqrt, (flagged, positives, negatives, cleared)))
        half = self.mcc / 2.0
        return (
            tn / scale - half * (1 / flagged + 1 / positives),
            -fn / scale - half * (1 / flagged + 1 / negatives),
            -fp / scale - half * (1 / cleared + 1 / positives),
            tp / scale - half * (1 / cleared + 1 / negatives),
        )


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


class ThresholdCells:
    """The outcomes at one threshold, at best, at worst and likely, and the noise in them.

    Attributes
    ----------
    likely
        Counts with the open bin divided evenly.
    """

    def __init__(self, pooled: PooledCounts, threshold: float) -> None:
        self._pooled = pooled
        self.split = split(pooled.axis, threshold)
        first, is_open, share = self.split
        flags = np.zeros(pooled.axis.bins)
        flags[first:] = 1.0
        if is_open:
            more = flags.copy()
            more[first - 1] = 1.0
            self._flags = [flags, more]
            even = flags.copy()
            even[first - 1] = share
        else:
            self._flags, even = [flags], flags
        self.likely = self._cells(pooled.counts, even, even)

    @staticmethod
    def _cells(counts: Floats, of_negatives: Floats, of_positives: Floats) -> Cells:
        negatives, positives = counts
        tp, fp = float(positives @ of_positives), float(negatives @ of_negatives)
        return Cells(
            tp, fp, float(positives @ (1.0 - of_positives)), float(negatives @ (1.0 - of_negatives))
        )

    def corners(self) -> Iterator["Corner"]:
        """Every way in which the open bin's positives and negatives can all be flagged or not.

        Each metric rises or falls with the true and with the false positives, so its extremes
        over all that the open bin allows are among these.
        """
        for negative, positive in itertools.product(self._flags, repeat=2):
            yield Corner(
                self._cells(self._pooled.counts, negative, positive),
                self._cells(self._pooled.unbiased, negative, positive),
                self._noise(negative, positive),
            )

    def _noise(self, of_negatives: Floats, of_positives: Floats) -> Floats:
        """Noise covariance of (tp, fp, fn, tn)."""
        if not self._pooled.noisy:
            return np.zeros((4, 4))
        weights = np.zeros((4, 2, len(of_positives)))
        weights[0, 1], weights[2, 1] = of_positives, 1.0 - of_positives
        weights[1, 0], weights[3, 0] = of_negatives, 1.0 - of_negatives
        return self._pooled.covariance(weights[:, np.newaxis], weights)


class Corner(NamedTuple):
    """One way to count an open bin: repaired and unbiased counts, and the noise in them."""

    cells: Cells
    unbiased: Cells
    noise: Floats


def extremes(cells: ThresholdCells, metric: Callable[[Cells], float]) -> tuple[float, float]:
    """Least and most that a metric can be; NaN where no corner defines it."""
    found = [metric(corner.cells) for corner in cells.corners()]
    defined = [value for value in found if not math.isnan(value)]
    return (min(defined), max(defined)) if defined else (math.nan, math.nan)
