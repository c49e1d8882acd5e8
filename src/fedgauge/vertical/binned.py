"""The bins of scored examples, and the plan by which label parties count in them."""

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgauge.binning.axis import Axis
from fedgauge.data.labels import Label
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.task import LabelTask
from fedgauge.privacy import AnyPrivacyModel, Cohort
from fedgauge.typing import Floats, Tree
from fedgauge.vertical.assignment import assign, padded
from fedgauge.vertical.choice import check_rate, everybody
from fedgauge.vertical.design import FLAT_BINS, choose_tree


class Binned(NamedTuple):
    """Which bins examples are in, and the plan by which labels are counted."""

    plan: EvaluationPlan
    axis: Axis
    bins: NDArray[np.int32]
    rate: float
    hints: tuple[str, ...]

    @property
    def totals(self) -> NDArray[np.int64]:
        """Examples by bin."""
        return np.bincount(self.bins, minlength=self.axis.bins)


def bin_scores(
    scores: Floats,
    parties: int,
    privacy: AnyPrivacyModel,
    *,
    cohort: Cohort | None = None,
    tree: Tree = "auto",
    positive_rate: float | None = None,
    positive: Label | None = None,
    only: Literal["roc_auc"] | None = None,
    self_scored: bool = False,
) -> Binned:
    """Bins for scores, and a plan to count so many parties' labels by, from what is public.

    Examples
    --------
    >>> from fedgauge.privacy import DistributedDP
    >>> privacy = DistributedDP(1.0, unit="label", neighbours="flip")
    >>> binned = bin_scores(np.linspace(0, 1, 5000), 4, privacy)
    >>> binned.axis.bins == binned.plan.axis.bins, int(binned.totals.sum())
    (True, 5000)
    """
    rate = check_rate(positive_rate)
    if cohort is None and privacy.needs_cohort:
        cohort = everybody(parties)
    branchings = _branchings(tree, privacy, cohort, parties, len(scores), rate, only)
    bins = math.prod(branchings)
    # A bin for each distinct score loses nothing: worth the noise of twice as many bins.
    most_values = 2 * bins if tree == "auto" else bins
    assignment = assign(scores, bins, rate, most_values=most_values)
    branchings = _fitting(branchings, assignment.axis)
    axis = padded(assignment.axis, math.prod(branchings))
    plan = EvaluationPlan.under(
        privacy,
        Axis.from_values(list(range(axis.bins)), outside="clip"),
        cohort=cohort,
        task=LabelTask(positive, self_scored=self_scored),
        tree=branchings,
    )
    hints = () if positive_rate is None else (f"positive_rate {positive_rate}",)
    return Binned(plan, axis, assignment.bins, rate, hints)


def _branchings(
    tree: Tree,
    privacy: AnyPrivacyModel,
    cohort: Cohort | None,
    parties: int,
    examples: int,
    rate: float,
    only: Literal["roc_auc"] | None,
) -> tuple[int, ...]:
    if not isinstance(tree, str):
        return tuple(tree)
    # Over flipped labels, which need no cohort, a tree gains nothing.
    if tree == "auto" and privacy.adds_noise and cohort is not None:
        return choose_tree(
            privacy,
            cohort,
            parties=parties,
            examples=examples,
            positive_rate=rate,
            only=only,
        )
    return (FLAT_BINS,)


def _fitting(tree: tuple[int, ...], axis: Axis) -> tuple[int, ...]:
    """Branchings over the bins of an axis and as few more as can be: ties make more, or fewer."""
    below = math.prod(tree[1:])
    if axis.kind == "values" or axis.bins < below:
        return (axis.bins,)
    return (-(-axis.bins // below), *tree[1:])
