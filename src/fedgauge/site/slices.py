"""What of its rows a site lets a plan tell apart: labels, groups, scores, and these together."""

import math

from fedgauge.data.labels import Label, meaning
from fedgauge.errors import PlanRefused
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.names import quoted
from fedgauge.plan.task import LabelTask, MeasuredTask, MulticlassTask, measured_by
from fedgauge.site.policy import Policy


def judge_sizes(policy: Policy, bins: int, counts: int) -> None:
    """Refuse an axis finer, or counts more, than the site file allows.

    Both can be told before anything is built.
    """
    if bins > policy.max_bins:
        raise PlanRefused(
            f"the plan's axis has {bins:,} bins, this site allows {policy.max_bins:,} (max_bins)."
        )
    if counts > policy.max_counts:
        raise PlanRefused(
            f"the plan asks for {counts:,} counts, this site allows {policy.max_counts:,} "
            "(max_counts). Tell fewer groups, classes or models apart, or use fewer bins."
        )


def judge_slices(policy: Policy, plan: EvaluationPlan) -> None:
    """Refuse labels, groups or counts outside of the site file; reads no data.

    Of two rounds, what either of them asks for.
    """
    task = measured_by(plan.task)
    if isinstance(task, LabelTask):
        _judge_apart(plan, task)
    _judge_labels(policy, task)
    _judge_groups(policy, task)
    whole = plan.whole
    for sent, terms in zip(whole.rounds, whole.terms_by_round, strict=True):
        judge_sizes(policy, math.prod(terms.tree), sent.numbers(terms))


def judge_exact_slices(policy: Policy, plan: EvaluationPlan) -> None:
    """Refuse slices of an exact sum by which whoever chooses the plan could single out.

    Under noise none of this matters: the budget is for all that a row is counted in.
    """
    layout = measured_by(plan.task).layout
    if layout.by_row > policy.exact_scores:
        raise PlanRefused(
            f"the plan counts {layout.by_row:,} scores of each row without noise, and this site "
            f"allows {policy.exact_scores:,} (exact_scores): one that is the other moved a little "
            "shows what lies between two edges. Allow more if you know how the scores were made, "
            "or plan with noise."
        )
    for name, values in layout.groups:
        for value in values:
            _judge_exact_group(policy, name, value)
    _judge_exact_tables(policy, plan)


def _judge_exact_group(policy: Policy, name: str, value: str) -> None:
    """Refuse a group of an exact sum that the site file does not list.

    A number that many share in one column is one patient's in another, and the plan names the
    column: so it is listed with its grouping.
    """
    named = f"{name}={value}" in policy.exact_groups
    if named or (value in policy.exact_groups and not value.isdecimal()):
        return
    raise PlanRefused(
        f"the plan tells the group {quoted(value)} of {quoted(name)} apart without noise, which "
        f"is not among those allowed here: {', '.join(policy.exact_groups) or 'none'} "
        "(exact_groups). A group may be one patient: list those that are not, numbers with their "
        'grouping ("ward=7"), or plan with noise.'
    )


def _judge_exact_tables(policy: Policy, plan: EvaluationPlan) -> None:
    """Refuse tables of an exact sum: their cells are small, or cannot be merged."""
    if not all(table.hides_small for table in plan.tables) and policy.min_cell:
        raise PlanRefused(
            "the plan counts without noise what has small cells that cannot be merged (confusion, "
            "ranks, top, paired_brier), and this site wants none below "
            f"{policy.min_cell} (min_cell). Plan with noise, or leave it out."
        )
    if any(table.hides_small for table in plan.tables):
        if not policy.exact_pairs:
            raise PlanRefused(
                "the plan counts two scores of each row together without noise, and few rows have "
                "both within the same ranges. This site does not allow it (exact_pairs). Plan with "
                "noise, or leave out pairs."
            )
        if not plan.min_cell:
            raise PlanRefused(
                "the plan shows two scores of each row together without noise, and hides no small "
                "cells of them. Plan with a min_cell, or with noise."
            )


def _judge_labels(policy: Policy, task: MeasuredTask) -> None:
    """Refuse labels that the site file does not list.

    Which labels rows have would show in whether a site falls silent.
    """
    # One that is not named is 1; so it is in each column of several labels a row.
    asked: tuple[Label, ...] = (1 if task.positive is None else task.positive,)
    told = "calls {} the positive label"
    if isinstance(task, MulticlassTask):
        asked, told = tuple(task.labels), "tells the class {} apart"
    allowed = {meaning(label) for label in policy.labels}
    for label in asked:
        if meaning(label) not in allowed:
            raise PlanRefused(
                f"the plan {told.format(quoted(label))}, which is not among those allowed here: "
                f"{', '.join(policy.labels) or 'none'} (labels)."
            )


def _judge_groups(policy: Policy, task: MeasuredTask) -> None:
    """Refuse more groups than the site file allows."""
    layout, most = task.layout, policy.max_groups
    groups = sum(map(layout.cells, layout.groupings)) if layout.groups else 0
    if groups > most:
        allowed = f"{most:,}" if most else "none"
        raise PlanRefused(
            f"the plan tells {groups:,} groups apart, and this site allows {allowed} "
            "(max_groups; 'other' is one, too): the more groups, the fewer people are in each."
        )


def _judge_apart(plan: EvaluationPlan, task: LabelTask) -> None:
    """Refuse labels apart from scores where the bins, which the scorer chose, show a label."""
    if not plan.privacy.adds_noise:
        raise PlanRefused(
            "the plan asks for an exact sum of labels by bins that the asker chose, and a "
            "label alone in its bin would be bare. Plan with noise: "
            "DistributedDP(epsilon, unit='label', neighbours='flip')."
        )
    if not task.assignment:
        raise PlanRefused(
            "the plan does not say which bins examples were given (assignment), so parties "
            "might count by different ones. It comes from `fedgauge vertical assign`."
        )
