"""The frozen statement of what is measured, how, and under which protection."""

from fedgauge.plan.label_rounds import FlipRound
from fedgauge.plan.plan import EvaluationPlan
from fedgauge.plan.rounds import HistogramRound, ReportRound, ScoreSums
from fedgauge.plan.task import BinaryTask, MulticlassTask, MultilabelTask, Slice

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
