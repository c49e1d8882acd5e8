"""End bins crowded with both classes: what scores in percent, points or logits leave if clipped.

An axis that clips counts whatever lies beyond it in its end bins, where nobody sees it. Models that
work put the classes at different ends; scores in another unit than the axis put both in one.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from fedgauge.binning.axis import Axis
from fedgauge.estimation.impossible import noise_reach
from fedgauge.estimation.labelled import counts_of
from fedgauge.estimation.pooled import PooledCounts
from fedgauge.estimation.released import Released
from fedgauge.plan import EvaluationPlan, Slice
from fedgauge.plan.names import listed

FALSE_ALARM: Final = 1e-6  # chance of a caution where no end bin is crowded, over both ends
SHARE: Final = 0.1  # of each class in one end bin: less is no crowd
EVEN: Final = 3.0  # times its share of the axis, which evenly spread scores would have there

_CAUTION: Final = (
    "the {end} bin of the axis, which also holds all scores {beyond} it, has over {share:.0%} of "
    "the negatives and of the positives. Were scores in percent, points or logits on an axis of "
    "{low:g} to {high:g}? Then all numbers are wrong: plan an axis with their range. Scores that "
    "truly crowd there, such as decisions of 0 and 1, are right, but bins do not tell them apart."
)


def caution_of(plan: EvaluationPlan, released: Released, slices: Sequence[Slice]) -> str | None:
    """The same of each of several scores; it says of which, where there are several."""
    told = {
        str(slice_): caution(plan, released, counts_of(plan, released, slice_), len(slices))
        for slice_ in slices
    }
    crowds = {name: text for name, text in told.items() if text is not None}
    if not crowds:
        return None
    text = next(iter(crowds.values()))
    return text if len(slices) == 1 else f"{listed([*crowds])}: {text}"


def caution(
    plan: EvaluationPlan, released: Released, pooled: PooledCounts, among: int = 1
) -> str | None:
    """What seems wrong where an end bin holds much of both classes; None where nothing does.

    Much is over :data:`SHARE` of the examples of a class, and over :data:`EVEN` times what evenly
    spread scores would put there: wide bins are no crowd. Where the population has less of one of
    the classes in each end bin, it is None but with probability :data:`FALSE_ALARM`, by noise and
    sampling; over `among` such questions together. An axis that refuses scores beyond it needs no
    caution. Of many classes scores near 0 are common, so there only the upper end is looked at.
    """
    axis = released.axis
    if axis.outside != "clip":
        return None
    ends = ((0, "first", "below"), (axis.bins - 1, "last", "above"))
    for place, end, beyond in ends[bool(plan.task.layout.classes) :]:
        share = max(SHARE, EVEN * _part_of(axis, place))
        if share < 1.0 and all(
            _holds_more(plan, released, pooled, row, place, share, among) for row in range(2)
        ):
            return _CAUTION.format(
                end=end, beyond=beyond, share=share, low=plan.axis.low, high=plan.axis.high
            )
    return None


def _part_of(axis: Axis, place: int) -> float:
    """What share of an axis a bin is: by its width, or one of the known values."""
    if axis.kind == "values":
        return 1.0 / axis.bins
    return float(axis.edges[place + 1] - axis.edges[place]) / (axis.high - axis.low)


def _holds_more(
    plan: EvaluationPlan,
    released: Released,
    pooled: PooledCounts,
    row: int,
    place: int,
    share: float,
    among: int,
) -> bool:
    """Whether a bin surely holds more than a share of one class."""
    weights = np.zeros(pooled.unbiased.shape)
    weights[row] = -share
    weights[row, place] += 1.0
    excess = float(np.sum(weights * pooled.unbiased))
    if excess <= 0.0:
        return False
    examples = max(float(pooled.unbiased[row].sum()), 0.0)
    variance = float(pooled.noise_variance(weights)) + examples * share * (1.0 - share)
    parts = math.inf
    if pooled.noisy and not (plan.final.sends_reports or plan.final.flips_labels):
        parts = released.clients * plan.noise_parts
    # Least squares weigh a bin and a total by up to 1 each, and a bound holds for weights up to 1.
    scale = 1.0 + share
    return excess > scale * noise_reach(variance / scale**2, parts, FALSE_ALARM / 2 / among)
