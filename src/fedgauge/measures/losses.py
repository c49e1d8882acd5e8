"""Scores as probabilities: log loss, Brier score and normalized entropy from pooled counts.

Both losses are means over examples. Counts say which bin an example is in, not where in it;
so each class and bin has a least, a most and a likely loss.
"""

import math
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgauge.binning.axis import Axis
from fedgauge.errors import UndefinedMetric
from fedgauge.measures.areas import Bounded
from fedgauge.typing import Floats

Loss = Literal["log", "squared"]

CLIP: Final = float(np.finfo(np.float64).eps)  # scikit-learn's log_loss keeps this far from 0, 1
_PARTS: Final = 8  # of a bin, in which scores are taken as evenly spread
_NARROW: Final = 1e-3
_NARROWEST: Final = 1e-100  # width of a bin that curves pass through: its cube is still a float
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_STEEPEST: Final = 0.02
_ABOVE_ONE: Final = float(np.nextafter(1.0, 2.0))  # where merged bins of known values up to 1 end
LIKELY_OFF: Final = 0.1  # widths by which the middle of a bin's scores is typically misjudged


class Positions(NamedTuple):
    """Where in its bin the mean score of each class lies, from 0 to 1, and how surely.

    `mean` and `deviation` are by class and bin; `reach` bounds the error of an exact mean and
    is None where noise makes it unbounded.
    """

    mean: Floats
    deviation: Floats
    reach: float | None


class BinLosses(NamedTuple):
    """Losses of an example by class and bin: likely mean and mean square, least and most.

    `even` is the mean if scores spread evenly over each bin.
    """

    mean: Floats
    square: Floats
    even: Floats
    least: Floats
    most: Floats


def positions(
    counts: Floats,
    sums: NDArray[Any],
    steps: int,
    *,
    noise: tuple[float, float] | None,
    merged: bool = False,
) -> Positions:
    """Mean positions from sums of positions in whole steps.

    `noise` holds the noise variances of a sum and of a count; None where both are exact.
    `merged` says that bins were merged, and sums rounded once more.
    """
    held = np.maximum(counts, 1.0)
    mean = np.where(counts > 0, np.clip(sums / (steps * held), 0.0, 1.0), 0.5)
    if noise is None:  # each position was rounded to a step
        deviation = np.where(counts > 0, 1.0 / steps, np.inf)
        return Positions(mean, deviation, (1.0 if merged else 0.5) / steps)
    of_sum, of_count = noise
    deviation = np.sqrt(of_sum / steps**2 + mean**2 * of_count) / held
    return Positions(mean, deviation, None)


def bin_losses(
    axis: Axis, counts: Floats, loss: Loss, positions: Positions | None = None
) -> BinLosses:
    """The losses of examples in each bin.

    Within a bin the scores of a class follow a monotone cubic through its cumulative counts,
    or lean towards the mean where that was measured.
    """
    require_probabilities(axis, "log loss and Brier score")
    edges = np.minimum(axis.edges, 1.0)  # a merged bin of the value 1 ends a float above it
    if axis.kind == "values":  # clipping or not, a score most likely is its bin's value
        exact = _losses(edges[:-1], loss)
        least, most = (exact, exact) if axis.separates_all else _extremes(axis, loss, None)
        return BinLosses(exact, exact**2, exact, least, most)
    lower, upper = edges[:-1], edges[1:]
    even = _even_means(lower, upper, loss)
    share, middle = within_bins(axis.edges, counts)
    parts = np.linspace(lower, upper, _PARTS + 1, axis=-1)
    inside = _even_means(parts[:, :-1], parts[:, 1:], loss)
    mean, square = (share * inside).sum(axis=-1), (share * inside**2).sum(axis=-1)
    if positions is not None:
        mean, square = _leaning(lower, upper, loss, likely(middle, positions))
    least, most = _extremes(axis, loss, positions)
    mean, even = np.clip(mean, least, most), np.clip(even, least, most)
    return BinLosses(mean, np.maximum(square, mean**2), even, least, most)


def mean_loss(counts: Floats, losses: BinLosses) -> Bounded:
    """Mean loss over all examples, with the bounds of binning."""
    total = float(counts.sum())
    value, lowest, highest = (
        float(np.sum(counts * each)) / total for each in (losses.mean, losses.least, losses.most)
    )
    slack = 1e-12 * max(abs(highest), 1.0)
    return Bounded(value, max(lowest - slack, 0.0), highest + slack)


def entropy(rate: float) -> float:
    """Entropy of a share of positives, in nats: the log loss of always predicting that share."""
    if not 0 < rate < 1:
        raise UndefinedMetric(
            "normalized entropy needs examples of both classes: with one class the base rate "
            "predicts perfectly."
        )
    return -rate * math.log(rate) - (1.0 - rate) * math.log1p(-rate)


def require_probabilities(axis: Axis, measure: str) -> None:
    """Refuse an axis on which scores are no probabilities."""
    if axis.low < 0 or axis.high > _ABOVE_ONE:
        raise UndefinedMetric(
            f"{measure} need probabilities; this axis runs from {axis.low:g} to "
            f"{axis.high:g}. Score with probabilities, on an axis within 0 and 1."
        )


def _losses(scores: Floats, loss: Loss) -> Floats:
    """Loss at each score, for a negative and for a positive."""
    off: Floats = np.array([scores, 1.0 - scores])
    if loss == "squared":
        return off**2
    right = np.array([1.0 - scores, scores])  # not 1 - off, which loses small scores
    losses: Floats = -np.log(np.clip(right, CLIP, 1.0 - CLIP))
    return losses


def _own_losses(scores: Floats, loss: Loss) -> Floats:
    """Loss at scores of each class, for an example of that class."""
    return np.array([_losses(row, loss)[label] for label, row in enumerate(scores)])


def _even_means(lower: Floats, upper: Floats, loss: Loss) -> Floats:
    """Mean loss of scores spread evenly from lower to upper, for both classes."""
    from scipy.special import xlogy  # loaded only where losses are asked for

    off_low, off_high = np.array([lower, 1.0 - upper]), np.array([upper, 1.0 - lower])
    if loss == "squared":
        squares: Floats = (off_low**2 + off_low * off_high + off_high**2) / 3.0
        return squares
    # The probability given to the true class; not 1 - off, which loses small scores.
    low, high = np.array([1.0 - upper, lower]), np.array([1.0 - lower, upper])
    width, middle = high - low, np.maximum(0.5 * (low + high), CLIP)
    narrow = (width < _NARROW * high) | (width <= 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = 1.0 - (xlogy(high, high) - xlogy(low, low)) / width
        series = -np.log(middle) + (width / middle) ** 2 / 24.0
    means: Floats = np.where(narrow, series, exact)
    return means


def within_bins(edges: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Shares of each bin's examples in its parts, and where their mean lies, by class."""
    from scipy.interpolate import PchipInterpolator

    bins = len(edges) - 1
    places = np.arange(bins * _PARTS + 1) / _PARTS
    ends = np.interp(places, np.arange(bins + 1), edges)
    shares = np.full((*counts.shape, _PARTS), 1.0 / _PARTS)
    curved = bins > 1 and np.diff(edges).min() >= _NARROWEST
    for row, share in zip(counts, shares, strict=True):
        total = row.sum()
        if total <= 0 or not curved:
            continue
        cumulative = np.append(0.0, np.cumsum(row)) / total
        parts = np.diff(PchipInterpolator(edges, cumulative)(ends)).reshape(bins, _PARTS)
        parts = np.maximum(parts, 0.0)
        held = parts.sum(axis=1)
        used = held > 0
        share[used] = parts[used] / held[used, np.newaxis]
    middles = (np.arange(_PARTS) + 0.5) / _PARTS
    return shares, shares @ middles


def likely(middle: Floats, positions: Positions) -> Floats:
    """The measured position, weighed against what the counts suggest by inverse variance."""
    weight = LIKELY_OFF**2 / (LIKELY_OFF**2 + positions.deviation**2)
    return np.clip(middle + weight * (positions.mean - middle), _STEEPEST, 1.0 - _STEEPEST)


def _leaning(lower: Floats, upper: Floats, loss: Loss, position: Floats) -> tuple[Floats, Floats]:
    """Mean and mean square of the loss when scores lean towards a mean position.

    The position in the bin is x**c for x spread evenly, whose mean is 1 / (1 + c).
    """
    even = 0.5 * (_NODES + 1.0)
    place = even ** ((1.0 - position) / position)[..., np.newaxis]
    scores = lower[:, np.newaxis] + (upper - lower)[:, np.newaxis] * place
    each = _own_losses(scores, loss)
    return each @ _WEIGHTS / 2.0, each**2 @ _WEIGHTS / 2.0


def _extremes(axis: Axis, loss: Loss, positions: Positions | None) -> tuple[Floats, Floats]:
    """Least and most that the mean loss of each class and bin can be."""
    edges = axis.edges.copy()
    if axis.outside == "clip":  # the end bins hold every score beyond them
        edges[0], edges[-1] = 0.0, 1.0
    ends = _losses(edges, loss)
    least = np.array([ends[0, :-1], ends[1, 1:]])
    most = np.array([ends[0, 1:], ends[1, :-1]])
    if positions is None or positions.reach is None:
        return least, most
    # Both losses are convex: their mean is at least the loss at the mean score (Jensen), and
    # at most that of scores which all lie on the bin's ends.
    lower, width = axis.edges[:-1], np.diff(axis.edges)
    reach = np.array([[-positions.reach], [positions.reach]])
    near = np.clip(positions.mean + reach, 0.0, 1.0)
    far = np.clip(positions.mean - reach, 0.0, 1.0)
    jensen = _own_losses(lower + width * near, loss)
    chord = ends[:, :-1] + far * np.diff(ends, axis=1)
    known = np.ones(len(lower), dtype=bool)
    known[0] = edges[0] == axis.low
    known[-1] &= edges[-1] == axis.high
    return np.where(known, np.maximum(least, jensen), least), np.where(
        known, np.minimum(most, chord), most
    )
