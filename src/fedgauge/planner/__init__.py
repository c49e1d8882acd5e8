"""Choose an axis, a tree and noise from public hints, and predict the errors they give.

The planner never sees data. It plays the evaluation through on score distributions that
are plausible for the hints, with the noise the privacy model asks for, and takes the
design with the least error. All of it is repeatable: same hints, same plan.

Examples
--------
>>> hints = {"clients": 5, "examples": 20_000, "positive_rate": 0.2}
>>> plan = fg.planner.propose(privacy=fg.DistributedDP(1.0), **hints)
>>> plan.axis.bins, plan.privacy.epsilon
(64, 1.0)
"""

from fedgauge.planner.requirements import CALIBRATION_ERROR, ROC_AREA_ERROR, Needs, needs
from fedgauge.planner.search import (
    DEFAULT_EXAMPLES,
    DEFAULT_POSITIVE_RATE,
    EXACT_BINS,
    MIN_CELL,
    Scores,
    Thresholds,
    check_hints,
    check_scores,
    check_thresholds,
    predict,
    propose,
    with_edges,
)
from fedgauge.planner.simulated import SHAPES, Shape, reference_axis

__all__ = [
    "CALIBRATION_ERROR",
    "DEFAULT_EXAMPLES",
    "DEFAULT_POSITIVE_RATE",
    "EXACT_BINS",
    "MIN_CELL",
    "ROC_AREA_ERROR",
    "SHAPES",
    "Needs",
    "Scores",
    "Shape",
    "Thresholds",
    "check_hints",
    "check_scores",
    "check_thresholds",
    "needs",
    "predict",
    "propose",
    "reference_axis",
    "with_edges",
]
