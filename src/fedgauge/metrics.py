"""Numbers from pooled counts: each is a value with the bounds that binning allows."""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

from fedgauge.curves import pr_curve, roc_curve
from fedgauge.distribution import ScoreDistribution, require_both_classes
from fedgauge.lookup import Floats

_ROUNDING: Final = 1e-13


class Bounded(NamedTuple):
    """A value and the range in which the number of the pooled data lies."""

    value: float
    lowest: float
    highest: float


def roc_auc(distribution: ScoreDistribution, counts: NDArray[Any], *, tied: bool) -> Bounded:
    """Area under the ROC curve.

    Pairs within a bin may be ordered either way, unless scores in a bin are `tied`:

    AUC = (sum_i p_i (sum_{j<i} n_j) + p_i n_i / 2 +- p_i n_i / 2) / (n+ n-)
    """
    negatives, positives = np.asarray(counts, dtype=np.float64)
    require_both_classes(negatives.sum(), positives.sum())
    pairs = float(negatives.sum() * positives.sum())
    below = np.cumsum(negatives) - negatives
    half = float(positives @ negatives) / (2 * pairs)
    middle = float(positives @ below) / pairs + half
    if tied:
        return Bounded(middle, middle, middle)
    return _within(roc_curve(distribution).path.area(), middle - half, middle + half)


def average_precision(
    distribution: ScoreDistribution, counts: NDArray[Any], *, tied: bool
) -> Bounded:
    """Average precision: the area under the PR curve.

    Highest when in each bin the positives come first and tie, lowest when the negatives
    come first and no two positives tie.
    """
    negatives, positives = np.asarray(counts, dtype=np.float64)[:, ::-1]
    require_both_classes(negatives.sum(), positives.sum())
    found, wrong = np.cumsum(positives), np.cumsum(negatives)
    total = float(found[-1])
    if tied:
        exact = _ratio_sum(positives, found, found + wrong) / total
        return Bounded(exact, exact, exact)
    area = pr_curve(distribution).path.area()
    before = found - positives
    highest = _ratio_sum(positives, found, found + wrong - negatives) / total
    # In one bin with all its negatives ahead: sum over k = 1..p of (a + k) / (a + k + w),
    # a positives found before and w negatives flagged: p - w (H(a + p + w) - H(a + w)).
    above, below = digamma(found + wrong + 1.0), digamma(before + wrong + 1.0)
    lowest = float(np.sum(positives - wrong * (above - below))) / total
    rounding = 4 * np.finfo(float).eps * float(wrong @ above) / total
    return _within(area, float(min(lowest, highest) - rounding), float(highest))


def _ratio_sum(weights: Floats, top: Floats, bottom: Floats) -> float:
    used = weights > 0
    return float(np.sum(weights[used] * top[used] / bottom[used]))


def _within(value: float, lowest: float, highest: float) -> Bounded:
    """The value moved into its range, and the range widened by what rounding may have cost."""
    value = min(max(value, lowest), highest)
    return Bounded(value, max(lowest - _ROUNDING, 0.0), min(highest + _ROUNDING, 1.0))
