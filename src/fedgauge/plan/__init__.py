"""The frozen statement of what is measured, how, and under which protection."""

from fedgauge.plan.plan import EvaluationPlan
from fedgauge.plan.rounds import BinaryTask, HistogramRound, ScoreSums

__all__ = ["BinaryTask", "EvaluationPlan", "HistogramRound", "ScoreSums"]
