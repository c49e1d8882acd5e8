"""What no plan may hold, beyond what its rounds refuse."""

import math
from typing import TYPE_CHECKING, Final

from fedgauge.binning.axis import MOST_POINTS, Axis
from fedgauge.errors import PlanError
from fedgauge.plan.task import LabelTask

if TYPE_CHECKING:
    from fedgauge.plan.plan import EvaluationPlan

MOST_MIN_CELL: Final = 1_000_000
NO_SMALL_CELLS: Final = (
    "min_cell is for exact sums: under differential privacy noise hides small cells. Leave it out."
)


def check_rules(plan: "EvaluationPlan") -> None:
    """Refuse a plan that promises, sums or merges what it cannot."""
    _check_apart(plan)
    _check_reported(plan)
    _check_min_cell(plan)


def require_clipping(axis: Axis) -> None:
    """Refuse an axis that refuses scores, where that would leak."""
    if axis.outside != "clip":
        raise PlanError(
            "under differential privacy a client may not refuse scores, since a refusal that "
            'depends on data is a leak. Make the axis with outside="clip".'
        )


def check_unit(plan: "EvaluationPlan") -> None:
    """Refuse a promise for labels where more than them is counted, or the other way round."""
    if plan.privacy.protects_labels != isinstance(plan.task, LabelTask):
        raise PlanError(
            "a promise for labels (unit='label') goes with a task of labels apart from scores, "
            "and no other. Evaluate with fedgauge.evaluate_vertical, or protect examples."
        )


def _check_apart(plan: "EvaluationPlan") -> None:
    """Refuse what needs scores where label parties have none, but bins that they were told."""
    if isinstance(plan.task, LabelTask) and (plan.sum_steps or plan.calibrator is not None):
        raise PlanError(
            "label parties have no scores to sum or to map. Leave out score sums and the map: "
            "whoever scored the examples maps scores before they are given bins."
        )


def _check_reported(plan: "EvaluationPlan") -> None:
    """Refuse tables in local reports, whose noise differs from cell to cell."""
    if plan.privacy.sends_reports and plan.task.tables(plan.axis, noisy=True):
        raise PlanError(
            "local reports are about one score at a time, and not about scores of a row "
            "together. Leave out pairs, paired_brier and also, or use DistributedDP."
        )


def _check_min_cell(plan: "EvaluationPlan") -> None:
    least = plan.min_cell
    if isinstance(least, bool) or not isinstance(least, int):
        raise PlanError(f"min_cell must be a whole number, got {type(least).__name__}.")
    if least == 0:
        return
    if not 2 <= least <= MOST_MIN_CELL:
        raise PlanError(
            f"min_cell must be 0, which merges nothing, or lie between 2 and {MOST_MIN_CELL:,}."
        )
    if plan.privacy.adds_noise:
        raise PlanError(NO_SMALL_CELLS)
    if not all(table.hides_small for table in plan.tables):
        raise PlanError("the plan has a table whose small cells cannot be merged (min_cell).")
    if plan.axis.bins > MOST_POINTS:
        raise PlanError(f"small cells are merged on at most {MOST_POINTS:,} bins. Use fewer.")
    if plan.sum_steps and not math.isfinite(plan.axis.high - plan.axis.low):
        raise PlanError("merged bins are too wide for score sums. Narrow the axis.")
