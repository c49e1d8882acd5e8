"""Areas, distances and losses from pooled counts, with the bounds that binning allows."""

import math
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgauge.arrays import Floats
from fedgauge.errors import UndefinedMetric
from fedgauge.estimation.distribution import NARROWEST
from fedgauge.histograms.axis import Axis
from fedgauge.metrics.curves import PrCurve, RocCurve

_ROUNDING: Final = 1e-13
_AHEAD: Final = 9  # from where the series of digamma is exact to the last place
_SERIES: Final = (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12, 0.0)
_POINTS: Final = 9  # on each piece of a curve, where it is taken as lines


Tied = NDArray[np.bool_] | bool  # in which bins all scores are equal; of all bins alike


class Bounded(NamedTuple):
    """A value and the range in which the number of the pooled data lies."""

    value: float
    lowest: float
    highest: float


def roc_auc(roc: RocCurve, counts: Floats, *, tied: Tied) -> Bounded:
    """Area under the ROC curve; pairs within a bin go either way, unless its scores are `tied`.

    AUC = (sum_i p_i (sum_{j<i} n_j) + p_i n_i / 2 +- p_i n_i / 2) / (n+ n-)
    """
    negatives, positives = counts
    middle = straight_auc(negatives, positives)
    if np.all(tied):
        return Bounded(middle, middle, middle)
    pairs = np.where(tied, 0.0, positives * negatives).sum()
    half = float(pairs) / float(2 * negatives.sum() * positives.sum())
    return _within(roc.path.area(), middle - half, middle + half)


def straight_auc(negatives: Floats, positives: Floats) -> float:
    """AUC when scores in a bin are tied: straight lines between the points at the edges."""
    below = np.cumsum(negatives) - 0.5 * negatives
    return float(positives @ below) / float(negatives.sum() * positives.sum())


def auc_gradient(counts: Floats) -> Floats:
    """What one more example of each class and bin does to the AUC.

    The centred placements of DeLong et al. 1988: a positive's is the share of negatives below it,
    half of those in its bin included.
    """
    negatives, positives = counts
    of_negatives, of_positives = negatives.sum(), positives.sum()
    placed = (np.cumsum(negatives) - 0.5 * negatives) / of_negatives
    above = (of_positives - np.cumsum(positives) + 0.5 * positives) / of_positives
    auc = float(positives @ placed) / of_positives
    return np.array([(above - auc) / of_negatives, (placed - auc) / of_positives])


def auc_runs(counts: Floats) -> Floats:
    """How far the gradient of the AUC runs across each bin, from its lower edge to its upper."""
    negatives, positives = counts
    runs: Floats = np.array([-positives, negatives]) / (negatives.sum() * positives.sum())
    return runs


def auc_sampling_variance(counts: Floats, *, tied: Tied) -> float:
    """Variance of the AUC over samples of examples (DeLong et al. 1988), from bins.

    Unless `tied`, a bin's placements spread evenly over what the bin allows.
    """
    totals = counts.sum(axis=1)
    squares = auc_gradient(counts) ** 2
    squares += np.where(tied, 0.0, auc_runs(counts) ** 2 / 12.0)
    by_class = (counts * squares).sum(axis=1)
    return float(np.sum(by_class * totals / np.maximum(totals - 1.0, 1.0)))


def average_precision(
    pr: PrCurve, counts: Floats, *, tied: Tied, of_rows: float | None = None
) -> Bounded:
    """Average precision: the area under the PR curve, or what is known `of_rows`.

    Highest when each bin's positives come first and tie; lowest when its negatives come first and
    no two positives tie.
    """
    negatives, positives = counts[:, ::-1]
    hits, wrong = np.cumsum(positives), np.cumsum(negatives)
    total = float(hits[-1])
    if np.all(tied):
        exact = _ratio_sum(positives, hits, hits + wrong) / total
        return Bounded(exact, exact, exact)
    # In this order rounding leaves at least the hits below the line, however few they are.
    ahead = np.where(np.flip(tied), wrong, wrong - negatives)
    highest = _ratio_sum(positives, hits, hits + ahead) / total
    value = pr.path.area() if of_rows is None else of_rows
    return _within(value, min(_least_precision(counts, tied), highest), highest)


def precision_one_by_one(counts: Floats, *, tied: Tied) -> float:
    """Average precision of examples: its mean over all orders within bins that are not `tied`.

    A positive is among those flagged at its own score; a smooth curve has half of it there. With 25
    positives among 500 its area is lower by 0.01.
    """
    negatives, positives = counts[:, ::-1]
    both = negatives + positives
    hits, flagged = np.cumsum(positives) - positives, np.cumsum(both) - both
    # A bin's example j of d is positive with chance p / d, and of the j - 1 ahead of it then on
    # average r = (p - 1) / (d - 1) are: the sum over j of (a + 1 + r (j - 1)) / (f + j).
    rest = np.divide(positives - 1.0, both - 1.0, out=np.zeros_like(both), where=both > 1)
    harmonic = digamma(flagged + both + 1.0) - digamma(flagged + 1.0)
    summed = rest * both + (hits + 1.0 - rest * (flagged + 1.0)) * harmonic
    through = np.divide(hits + positives, flagged + both, out=np.zeros_like(both), where=both > 0)
    summed = np.where(np.flip(tied), both * through, summed)
    return _ratio_sum(positives, summed, both) / float(positives.sum())


def _least_precision(counts: Floats, tied: Tied) -> float:
    """Average precision when in bins not `tied` negatives come first and no two positives tie."""
    negatives, positives = counts[:, ::-1]
    hits, wrong = np.cumsum(positives), np.cumsum(negatives)
    total = float(hits[-1])
    # In one bin with all its negatives ahead: sum over k = 1..p of (a + k) / (a + k + w),
    # a positives flagged before and w negatives flagged: p - w (H(a + p + w) - H(a + w)).
    above, below = digamma(hits + wrong + 1.0), digamma(hits - positives + wrong + 1.0)
    flagged = np.maximum(hits + wrong, 1.0)
    each = np.where(np.flip(tied), positives * hits / flagged, positives - wrong * (above - below))
    lowest = float(np.sum(each)) / total
    return lowest - 4 * float(np.finfo(float).eps) * float(wrong @ above) / total


def precision_range(worst: Floats, best: Floats, *, tied: Tied) -> tuple[float, float]:
    """What average precision can be where counts lie anywhere between two.

    `worst` has positives as low and negatives as high as they can be, `best` the reverse. Moving up
    into a tie can cost a positive precision, so the ends are not those of both. Lowest when nothing
    ties; highest when each positive has the best precision of all bins up to its own.
    """
    lowest = _least_precision(worst, tied=False)
    negatives, positives = best
    hits, wrong = (np.cumsum(row[::-1])[::-1] for row in (positives, negatives))
    bottom = hits + np.where(tied, wrong, wrong - negatives)
    precision = np.divide(hits, bottom, out=np.zeros_like(hits), where=bottom > 0)
    reached = np.maximum.accumulate(precision)
    highest = float(positives @ reached) / float(positives.sum())
    return lowest, highest


def digamma(numbers: Floats) -> Floats:
    """The digamma function, for numbers from 1 on, within a few units of the last place.

    Loading SciPy's takes longer than reading a file and measuring what is in it.
    """
    end = numbers + _AHEAD
    passed = sum(1.0 / (numbers + step) for step in range(_AHEAD))
    # Abramowitz and Stegun 6.3.18: log n - 1 / (2n) - sum over k of B_2k / (2k n^2k).
    tail = np.polyval(_SERIES, 1.0 / end**2) + 0.5 / end
    result: Floats = np.log(end) - (tail + passed)
    return result


def straight_average_precision(counts: Floats) -> Floats:
    """Area under the PR curve from rates straight between edges; last axes: class and bin."""
    negatives, positives = counts[..., 0, ::-1], counts[..., 1, ::-1]
    both = negatives + positives
    hits = np.cumsum(positives, axis=-1) - positives
    flagged = np.cumsum(both, axis=-1) - both
    # Between two edges the integral of (a + p t) / (f + d t) p dt over t in [0, 1].
    with np.errstate(divide="ignore", invalid="ignore"):
        share = positives / both
        start = np.where(flagged > 0, (hits - flagged * share) / both, 0.0)
        curved = np.where(flagged > 0, start * np.log1p(both / flagged), 0.0)
    area = np.where(positives > 0, positives * (share + curved), 0.0).sum(axis=-1)
    result: Floats = area / np.maximum(positives.sum(axis=-1), np.finfo(float).tiny)
    return result


def average_precision_gradient(counts: Floats) -> Floats:
    """What one more example of each class and bin, the last axes, does to average precision.

    Derivatives of sum_i p_i q_i / n+, with precision q_i = t_i / f_i in the middle of bin i.
    """
    negatives, positives = counts[..., 0, ::-1], counts[..., 1, ::-1]
    total = positives.sum(axis=-1, keepdims=True)
    hits = np.cumsum(positives, axis=-1) - 0.5 * positives
    flagged = np.cumsum(negatives + positives, axis=-1) - 0.5 * (negatives + positives)
    flagged = np.maximum(flagged, np.finfo(float).tiny)
    precision = hits / flagged
    # An example moves the precision of its own bin by half, of those below in full.
    pull = positives / flagged
    up, down = _below(pull * (1.0 - precision)), _below(pull * precision)
    value = (positives * precision).sum(axis=-1, keepdims=True) / total
    gradient = np.stack([-down / total, (precision - value + up) / total], axis=-2)
    rising: Floats = gradient[..., ::-1]
    return rising


def average_precision_variance(counts: Floats, *, tied: Tied) -> Floats:
    """Variance of average precision over samples of examples, to first order."""
    squares = average_precision_gradient(counts) ** 2
    squares += np.where(tied, 0.0, average_precision_runs(counts) ** 2 / 12.0)
    variance: Floats = (counts * squares).sum(axis=(-2, -1))
    return variance


def average_precision_runs(counts: Floats) -> Floats:
    """How far the gradient of average precision runs across each bin."""
    negatives, positives = counts[..., 0, ::-1], counts[..., 1, ::-1]
    both = negatives + positives
    hits, flagged = np.cumsum(positives, axis=-1), np.cumsum(both, axis=-1)
    middle = np.maximum(flagged - 0.5 * both, np.finfo(float).tiny)
    precision = (hits - 0.5 * positives) / middle
    with np.errstate(divide="ignore", invalid="ignore"):
        after = np.where(flagged > 0, hits / flagged, precision)
        before = np.where(flagged > both, (hits - positives) / (flagged - both), precision)
    pull = positives / middle
    runs = np.stack([pull * precision, before - after + pull * (1.0 - precision)], axis=-2)
    rising: Floats = (runs / positives.sum(axis=-1)[..., np.newaxis, np.newaxis])[..., ::-1]
    return rising


def misplaced(counts: Floats) -> bool:
    """Whether any negative is in the bin of a positive, or above it."""
    negatives, positives = (np.flatnonzero(row > 0) for row in counts)
    return bool(negatives.max(initial=-1) >= positives.min(initial=len(counts[0])))


def _below(weights: Floats) -> Floats:
    """Sums from the middle of each bin down, bins given from the top."""
    return np.cumsum(weights[..., ::-1], axis=-1)[..., ::-1] - 0.5 * weights


def partial_auc(
    roc: RocCurve, rates: tuple[Floats, Floats], max_fpr: float, *, tied: Tied
) -> Bounded:
    """Area under the ROC curve up to a false positive rate, not standardised; see `edge_rates`."""
    fpr, tpr = rates
    if np.all(tied):
        straight = area_up_to(fpr, tpr, max_fpr)
        return Bounded(straight, straight, straight)
    middle = area_up_to(*roc.path.sample(_POINTS), max_fpr)
    lowest = area_up_to(*_corners(fpr, tpr, tied, positives_first=False), max_fpr)
    highest = area_up_to(*_corners(fpr, tpr, tied, positives_first=True), max_fpr)
    return _within(middle, lowest, highest)


def standardised(area: float, max_fpr: float) -> float:
    """A partial area on the scale of an AUC: 0.5 is chance, 1 is perfect (McClish 1989)."""
    chance = 0.5 * max_fpr * max_fpr
    return 0.5 * (1.0 + (area - chance) / (max_fpr - chance))


def auprg(roc: RocCurve, rates: tuple[Floats, Floats], ratio: float, *, tied: Tied) -> Bounded:
    """Area under the PR-gain curve (Flach & Kull 2015); `ratio` is positives per negative."""
    fpr, tpr = rates
    if np.all(tied):
        straight = straight_auprg(fpr, tpr, ratio)
        return Bounded(straight, straight, straight)
    middle = straight_auprg(*roc.path.sample(_POINTS), ratio)
    lowest = straight_auprg(*_corners(fpr, tpr, tied, positives_first=False), ratio)
    highest = straight_auprg(*_corners(fpr, tpr, tied, positives_first=True), ratio)
    value = min(max(middle, lowest), highest)
    rounding = _ROUNDING * max(1.0, abs(lowest))
    return Bounded(value, lowest - rounding, min(highest + rounding, 1.0))


def straight_auprg(fpr: Floats, tpr: Floats, ratio: float) -> float:
    """Area under the precision-recall-gain curve through points joined by lines.

    With r positives for each negative, precision gain is 1 - F / T and recall gain 1 + r - r / T: a
    line in ROC space is a line here. The area begins at recall gain 0, where T = r / (1 + r).
    """
    start = ratio / (1.0 + ratio)
    fpr_start = _rightmost(fpr, tpr, start)
    beyond = tpr > start
    fpr, tpr = np.append(fpr_start, fpr[beyond]), np.append(start, tpr[beyond])
    recall_gain = 1.0 + ratio - ratio / tpr
    precision_gain = 1.0 - fpr / tpr
    return float(np.sum(np.diff(recall_gain) * (precision_gain[1:] + precision_gain[:-1])) / 2.0)


def largest_gap(rates: tuple[Floats, Floats], *, tied: Tied) -> tuple[Bounded, int]:
    """The largest ``|TPR - FPR|`` (Kolmogorov-Smirnov), and its edge, counted from the top."""
    fpr, tpr = rates
    gaps = np.abs(tpr - fpr)
    where = int(np.argmax(gaps))
    value = float(gaps[where])
    inside = np.maximum(tpr[1:] - fpr[:-1], fpr[1:] - tpr[:-1])
    inside = np.where(np.flip(tied), 0.0, inside)
    return Bounded(value, value, min(max(value, float(inside.max())), 1.0)), where


def gap_range(
    worst: tuple[Floats, Floats], best: tuple[Floats, Floats], *, tied: Tied
) -> tuple[float, float]:
    """What `largest_gap` can be where rates lie anywhere between two, edge by edge."""
    (high_fpr, low_tpr), (low_fpr, high_tpr) = worst, best
    lowest = max(float(np.max(low_tpr - high_fpr)), float(np.max(low_fpr - high_tpr)), 0.0)
    highest = max(float(np.max(high_tpr - low_fpr)), float(np.max(high_fpr - low_tpr)))
    # Within a bin one rate can be that of the edge below, the other of that above.
    inside = np.maximum(high_tpr[1:] - low_fpr[:-1], high_fpr[1:] - low_tpr[:-1])
    highest = max(highest, float(np.max(np.where(np.flip(tied), 0.0, inside))))
    return lowest, min(highest, 1.0)


def edge_rates(counts: Floats) -> tuple[Floats, Floats]:
    """False and true positive rates at infinity and at each edge, descending."""
    from_top = np.cumsum(counts[..., ::-1], axis=-1)
    rates = np.zeros((*counts.shape[:-1], counts.shape[-1] + 1))
    rates[..., 1:] = from_top / from_top[..., -1:]
    return rates[..., 0, :], rates[..., 1, :]


def _corners(
    fpr: Floats, tpr: Floats, tied: Tied, *, positives_first: bool
) -> tuple[Floats, Floats]:
    """The path that takes each bin's positives first, or its negatives; straight where `tied`."""
    rising, other = (tpr, fpr) if positives_first else (fpr, tpr)
    first, last = np.repeat(rising, 2)[1:], np.repeat(other, 2)[:-1]
    first[1::2] = np.where(np.flip(tied), first[:-1:2], first[1::2])  # every second is a corner
    return (last, first) if positives_first else (first, last)


def area_up_to(fpr: Floats, tpr: Floats, max_fpr: float) -> float:
    """Area under a path of lines from FPR 0 to `max_fpr`."""
    end = np.searchsorted(fpr, max_fpr, side="right")
    x, y = fpr[:end], tpr[:end]
    if end < len(fpr):
        share = (max_fpr - x[-1]) / (fpr[end] - x[-1])
        x, y = np.append(x, max_fpr), np.append(y, y[-1] + share * (tpr[end] - y[-1]))
    return float(np.sum(np.diff(x) * (y[1:] + y[:-1])) / 2.0)


def _rightmost(fpr: Floats, tpr: Floats, recall: float) -> float:
    """The highest FPR at which a rising path of lines has a recall below 1."""
    end = int(np.searchsorted(tpr, recall, side="right"))
    share = (recall - tpr[end - 1]) / (tpr[end] - tpr[end - 1])
    return float(fpr[end - 1] + share * (fpr[end] - fpr[end - 1]))


def _ratio_sum(weights: Floats, top: Floats, bottom: Floats) -> float:
    used = weights > 0
    return float(np.sum(weights[used] * top[used] / bottom[used]))


def _within(value: float, lowest: float, highest: float) -> Bounded:
    """The value moved into its range, and the range widened by what rounding may have cost."""
    value = min(max(value, lowest), highest)
    return Bounded(value, max(lowest - _ROUNDING, 0.0), min(highest + _ROUNDING, 1.0))


Loss = Literal["log", "squared"]

CLIP: Final = float(np.finfo(np.float64).eps)  # scikit-learn's log_loss keeps this far from 0, 1
_PARTS: Final = 8  # of a bin, in which scores are taken as evenly spread
_NARROW: Final = 1e-3
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_STEEPEST: Final = 0.02
_ABOVE_ONE: Final = float(np.nextafter(1.0, 2.0))  # where merged bins of known values up to 1 end
LIKELY_OFF: Final = 0.1  # widths by which the middle of a bin's scores is typically misjudged


class Positions(NamedTuple):
    """Where in its bin the mean score of each class lies, from 0 to 1, by class and bin."""

    mean: Floats
    deviation: Floats
    reach: float | None  # bound of the error of an exact mean; None under noise


class BinLosses(NamedTuple):
    """Losses of an example by class and bin: likely mean and mean square, least and most."""

    mean: Floats
    square: Floats
    even: Floats  # the mean if scores spread evenly over each bin
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
    """Mean positions from sums of positions in whole steps; merged bins were rounded once more.

    `noise` holds the noise variances of a sum and of a count; None where both are exact.
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

    Within a bin, scores of a class follow a monotone cubic through its cumulative counts, or lean
    towards the mean where that was measured.
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
    square = np.where(least < most, np.maximum(square, mean**2), mean**2)
    return BinLosses(mean, square, even, least, most)


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
    wide = np.diff(edges) >= NARROWEST  # others are of one value, and bend nothing
    around = np.append(edges[:-1][wide], edges[1:][wide][-1:])
    for row, share in zip(counts, shares, strict=True):
        total = row.sum()
        if total <= 0 or bins == 1 or not wide.any():
            continue
        cumulative = np.append(0.0, np.cumsum(row[wide])) / total
        parts = np.diff(PchipInterpolator(around, cumulative)(ends)).reshape(bins, _PARTS)
        parts = np.maximum(parts, 0.0)
        held = parts.sum(axis=1)
        used = wide & (held > 0)
        share[used] = parts[used] / held[used, np.newaxis]
    middles = (np.arange(_PARTS) + 0.5) / _PARTS
    return shares, shares @ middles


def likely(middle: Floats, positions: Positions) -> Floats:
    """The measured position, weighed against what the counts suggest by inverse variance."""
    weight = LIKELY_OFF**2 / (LIKELY_OFF**2 + positions.deviation**2)
    return np.clip(middle + weight * (positions.mean - middle), _STEEPEST, 1.0 - _STEEPEST)


def _leaning(lower: Floats, upper: Floats, loss: Loss, position: Floats) -> tuple[Floats, Floats]:
    """Mean and mean square of the loss where scores lean towards a mean position.

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
