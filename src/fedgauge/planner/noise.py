"""Which noise is less: Polya's, or for a small delta Skellam's."""

from typing import Final

import msgspec

from fedgauge.binning.axis import Axis
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.task import AnyTask
from fedgauge.privacy import AnyPrivacyModel, Cohort, DistributedDP

# Counts that a row adds to, below which Polya noise is less: from 9 on it is not, at epsilon 1 and
# delta 1e-6, and accounting for Skellam's takes a while.
_FEWEST_SEEN: Final = 5
_DELTA: Final = 1e-6
_BINS: Final = 8  # of the plans compared: their noise does not depend on it


def usual_delta(examples: int) -> float:
    """Well below the share of one example."""
    return min(_DELTA, 0.1 / examples)


def less_noise(privacy: AnyPrivacyModel, task: AnyTask, delta: float) -> DistributedDP | None:
    """The same promise but for a `delta`, by Skellam noise, where it is less than Polya's.

    Polya noise grows with the number of counts that a row adds to, Skellam noise with its root.
    None where Polya noise is less, or is not asked for.

    Examples
    --------
    >>> from fedgauge.plan import MulticlassTask
    >>> privacy = DistributedDP(1.0)
    >>> less_noise(privacy, MulticlassTask(labels=range(3)), 1e-6) is None
    True
    >>> less_noise(privacy, MulticlassTask(labels=range(12)), 1e-6).noise
    'skellam'
    """
    if not isinstance(privacy, DistributedDP) or privacy.noise != "polya":
        return None
    if task.per_row < _FEWEST_SEEN:
        return None
    axis, cohort = Axis.uniform(_BINS, outside="clip"), Cohort(min_survivors=3)
    other = msgspec.structs.replace(privacy, noise="skellam", delta=delta)
    polya, skellam = (
        EvaluationPlan.under(model, axis, cohort=cohort, task=task).noise_variances(3)[0]
        for model in (privacy, other)
    )
    return other if skellam < polya else None
