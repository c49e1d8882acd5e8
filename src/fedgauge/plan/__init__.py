"""The frozen statement of what is measured, how, and under which protection."""

from fedgauge.plan.flipped import FlipRound
from fedgauge.plan.plan import EvaluationPlan
from fedgauge.plan.reported import ReportRound
from fedgauge.plan.slices import Slice
from fedgauge.plan.summed import HistogramRound, ScoreSums
from fedgauge.plan.task import BinaryTask, MulticlassTask, MultilabelTask

__all__ = [
    "BinaryTask",
    "EvaluationPlan",
    "FlipRound",
    "HistogramRound",
    "MulticlassTask",
    "MultilabelTask",
    "ReportRound",
    "ScoreSums",
    "Slice",
]
