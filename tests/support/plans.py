"""Plans as tests need them: few bins, small cohorts."""

import math

from fedgauge import Axis, Cohort, DistributedDP, EvaluationPlan


def plan_for(
    privacy=None,
    tree=None,
    cohort=Cohort(3, 1),  # noqa: B008
    *,
    bins=None,
    outside="clip",
    **options,
):
    """A plan for sums, on equal bins that clip unless told otherwise."""
    axis = Axis.uniform(bins or math.prod(tree), outside=outside)
    return EvaluationPlan.for_histogram(axis, cohort, tree=tree, privacy=privacy, **options)


def small_plan(cohort=Cohort(4, 1), bins=2, largest=1000):  # noqa: B008
    """A plan whose words are short, for machines that sum in the test itself."""
    return plan_for(None, None, cohort, bins=bins, outside="refuse", largest=largest)


def small_noisy_plan(cohort=Cohort(4, 1), bins=2, largest=1000):  # noqa: B008
    """As `small_plan`, with noise: a sum that is opened without everybody's vote."""
    return plan_for(DistributedDP(1.0), None, cohort, bins=bins, largest=largest)


def report_plan(privacy, tree, bins=None):
    axis = Axis.uniform(bins or math.prod(tree), outside="clip")
    return EvaluationPlan.for_reports(axis, privacy, tree=tree)


def exact_plan(*, bins=32, **options):
    """Of 5 clients 4 must stay: a threshold above half of the clients and of one colluder."""
    return plan_for(bins=bins, **options)


def noisy_plan(epsilon=1.0, *, bins=32, privacy=None, **options):
    """As `exact_plan`, with noise."""
    return plan_for(privacy or DistributedDP(epsilon), bins=bins, **options)
