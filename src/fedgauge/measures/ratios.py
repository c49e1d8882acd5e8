"""Intervals of rates and correlations of the four outcomes at a threshold."""

import math

import numpy as np

from fedgauge.measures.intervals import Interval, accepted, difference
from fedgauge.measures.outcomes import RATIOS, Cells, Corner, Ratio
from fedgauge.typing import Floats


def ratio_interval(corner: Corner, weights: Ratio, z: float, *, sampling: bool) -> Interval:
    """Values of a ratio that a score test does not reject.

    For a ratio x of weighted counts, (1 - x) a - x b has mean zero. Its variance is that of
    counts in which the ratio is x, and that of the noise. Without noise and with weights of 1
    this is Wilson's interval (1927); with noise alone it is Fieller's (1954).
    """
    above, below = (np.array(w, dtype=np.float64) for w in weights)
    cells = np.maximum(np.array(corner.cells), 0.0)
    a, b = (float(w @ np.array(corner.unbiased)) for w in (above, below))
    if a + b <= 0:
        return Interval(0.0, 1.0)
    total = float((above + below) @ cells)
    mean_above, mean_below = (_mean_weight(w, cells) for w in (above, below))

    both = above + below
    linear, square = (float(w @ corner.noise @ both) for w in (above, both))
    constant = float(above @ corner.noise @ above)

    def variance(x: float) -> float:
        chance = total * x * (1.0 - x) * ((1.0 - x) * mean_above + x * mean_below)
        noise = constant - 2.0 * x * linear + x * x * square  # of above - x * both
        return noise + (chance if sampling else 0.0)

    start = min(max(a / (a + b), 0.0), 1.0)
    return accepted(start, lambda x: (1.0 - x) * a - x * b, variance, z)


def _mean_weight(weights: Floats, cells: Floats) -> float:
    counted = float(weights @ cells)
    return float(weights**2 @ cells) / counted if counted > 0 else float(weights.max())


def ratio_variances(corner: Corner, weights: Ratio) -> tuple[float, float]:
    """Variance of a ratio by noise and by sampling, to first order."""
    above, below = (np.array(w, dtype=np.float64) for w in weights)
    cells = np.maximum(np.array(corner.cells), 0.0)
    total = float((above + below) @ cells)
    if total <= 0:
        return 0.0, 0.0
    x = float(above @ cells) / total
    slope = ((1.0 - x) * above - x * below) / total
    return float(slope @ corner.noise @ slope), float(slope**2 @ cells)


def gap_interval(corner: Corner, z: float, *, sampling: bool) -> Interval:
    """An interval for recall less the false positive rate, of independent examples."""
    rates = [RATIOS[name] for name in ("recall", "fpr")]
    spans = [ratio_interval(corner, rate, z, sampling=sampling) for rate in rates]
    values = [
        min(max(corner.cells.ratio(rate), span.low), span.high)
        for rate, span in zip(rates, spans, strict=True)
    ]
    return difference(spans[0], spans[1], (values[0], values[1]))


def mcc_interval(corner: Corner, z: float, *, sampling: bool) -> Interval:
    """Normal on Fisher's scale, which stays within (-1, 1)."""
    value, by_noise, by_sampling = mcc_moments(corner)
    variance = by_noise + (by_sampling if sampling else 0.0)
    reach, middle = z * math.sqrt(variance) / (1.0 - value * value), math.atanh(value)
    return Interval(math.tanh(middle - reach), math.tanh(middle + reach))


def mcc_moments(corner: Corner) -> tuple[float, float, float]:
    """The Matthews correlation and its variance by noise and by sampling, to first order."""
    # Half an example in every cell: a cell that happens to be empty is not surely so.
    cells = Cells(*(count + 0.5 for count in corner.cells))
    gradient = np.array(cells.mcc_gradient)
    by_noise = float(gradient @ corner.noise @ gradient)
    return cells.mcc, by_noise, float(gradient**2 @ np.array(cells))
