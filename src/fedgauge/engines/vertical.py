"""Scores at one party, labels at others, in one process: nothing is protected on the way."""

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedgauge.binning.axis import Axis
from fedgauge.data.labels import Label
from fedgauge.engines.simulation import Summation, Tree, run, source_of
from fedgauge.errors import PlanError
from fedgauge.estimation.distribution import Aligned, Estimator
from fedgauge.estimation.released import Released
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.task import LabelTask
from fedgauge.privacy import AnyPrivacyModel, Cohort, DistributedDP
from fedgauge.results.evaluation import Evaluation
from fedgauge.vertical.assignment import assign, padded
from fedgauge.vertical.design import choose_tree
from fedgauge.vertical.joining import Joined, join

_DEFAULT_RATE: Final = 0.2
_BINS: Final = 64
LABEL_DP: Final = DistributedDP(1.0, unit="label", neighbours="flip")


def evaluate_vertical(
    scores: Any,
    labels: Mapping[str, Any],
    *,
    privacy: AnyPrivacyModel = LABEL_DP,
    cohort: Cohort | None = None,
    tree: Tree = "auto",
    positive_rate: float | None = None,
    positive: Label | None = None,
    estimator: Estimator = Aligned(),
    seed: int | None = None,
    summation: Summation = "plain",
) -> Evaluation:
    """Evaluate scores of one party against labels that others hold, with privacy for labels.

    Parameters
    ----------
    scores
        From ids to scores: a mapping, or a pair of columns.
    labels
        From the names of label parties to their labels by id, each likewise. No id is at two
        parties; ids without a score, and scores without a label, are left out.
    privacy
        What each label is promised.
    cohort
        Which label parties must take part; by default all of them, one of whom may collude. One
        or two parties each add all of the noise, so that neither needs the other.
    tree
        Branchings over the bins; ``"flat"``, 64 bins; or ``"auto"``, those with the least error to
        expect of so many examples, and a bin for each score where few are distinct.
    positive_rate
        About what share of examples is positive: public knowledge or a guess, which only places
        the bins. By default 0.2.
    positive
        The label of the positive class, where labels are not bool or 0/1.
    estimator, seed
        As for :func:`fedgauge.evaluate`.

    Examples
    --------
    >>> scores = {i: (i % 10) / 10 for i in range(2000)}
    >>> labels = {"a": {i: i % 10 > 6 for i in range(900)}}
    >>> labels["b"] = {i: i % 10 > 4 for i in range(900, 2000)}
    >>> result = evaluate_vertical(scores, labels, seed=1)
    >>> result.roc_auc.value > 0.9
    True
    """
    joined = join(scores, labels)
    rate = _DEFAULT_RATE if positive_rate is None else positive_rate
    if not 0 < rate < 1:
        raise PlanError(f"positive_rate must lie between 0 and 1, got {positive_rate!r}.")
    cohort = cohort or _everybody(len(joined.parties))
    branchings = _branchings(tree, privacy, cohort, joined, rate)
    bins = math.prod(branchings)
    # A bin for each distinct score loses nothing: worth the noise of twice as many bins.
    most_values = 2 * bins if tree == "auto" else bins
    assignment = assign(joined.scores, bins, rate, most_values=most_values)
    branchings = _fitting(branchings, assignment.axis)
    axis = padded(assignment.axis, math.prod(branchings))
    plan = EvaluationPlan.under(
        privacy,
        Axis.from_values(list(range(axis.bins)), outside="clip"),
        cohort=cohort,
        task=LabelTask(positive),
        tree=branchings,
    )
    ends = np.cumsum([len(column) for column in joined.labels])
    by_party = np.split(assignment.bins.astype(np.float64), ends[:-1])
    clients = dict(zip(joined.parties, zip(joined.labels, by_party, strict=True), strict=True))
    released = run(clients, plan, source_of(seed), summation)
    totals = np.bincount(assignment.bins, minlength=axis.bins)
    hints = () if positive_rate is None else (f"positive_rate {positive_rate}",)
    statement = plan.statement("simulated", hints)
    return Evaluation(plan, statement, completed(released, axis, totals), estimator=estimator)


def completed(released: Released, axis: Axis, totals: NDArray[np.int64]) -> Released:
    """What is known once the positives are: the rest of every bin is negative."""
    (positives,) = released.counts
    return Released(axis, np.array([totals - positives, positives]), released.clients)


def _everybody(parties: int) -> Cohort:
    return Cohort(parties, max_colluding=max(parties - 1, 0) if parties <= 2 else 1)


def _branchings(
    tree: Tree, privacy: AnyPrivacyModel, cohort: Cohort, joined: Joined, rate: float
) -> tuple[int, ...]:
    if not isinstance(tree, str):
        return tuple(tree)
    if tree == "auto" and privacy.adds_noise:
        return choose_tree(
            privacy,
            cohort,
            parties=len(joined.parties),
            examples=len(joined.scores),
            positive_rate=rate,
        )
    return (_BINS,)


def _fitting(tree: tuple[int, ...], axis: Axis) -> tuple[int, ...]:
    """Branchings over the bins of an axis and as few more as can be: ties make more, or fewer."""
    below = math.prod(tree[1:])
    if axis.kind == "values" or axis.bins < below:
        return (axis.bins,)
    return (-(-axis.bins // below), *tree[1:])
