"""fedgauge measures a classifier on data nobody may pool."""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from fedgauge.errors import (
    AxisError,
    AxisMismatch,
    BudgetExceeded,
    CalibratorError,
    CohortTooSmall,
    CountOverflow,
    ExchangeError,
    FedgaugeError,
    InputError,
    InputWarning,
    IntakeError,
    LabelError,
    LedgerError,
    NoSignal,
    PlanError,
    PlanRefused,
    PrivacyWarning,
    ProtocolError,
    RecordError,
    ReportRefused,
    ResultWithheld,
    SiteError,
    UndefinedMetric,
)
from fedgauge.escaping import escape_record

if TYPE_CHECKING:
    from fedgauge import planner
    from fedgauge.data.examples import Examples
    from fedgauge.data.files import ScoreFile, ScoreTable
    from fedgauge.data.ids import IdTable
    from fedgauge.data.queries import ScoreQuery
    from fedgauge.engines.contribution import count
    from fedgauge.engines.simulation import evaluate
    from fedgauge.estimation.distribution import Aligned, Quantile, Range
    from fedgauge.histograms.axis import Axis
    from fedgauge.histograms.calibrator import Calibrator
    from fedgauge.histograms.histogram import ScoreHistogram
    from fedgauge.histograms.two_round import TwoRound
    from fedgauge.local.messages import encode_rows
    from fedgauge.local.server import ReportServer
    from fedgauge.metrics.bands import Band
    from fedgauge.metrics.calibration import CalibrationCurve
    from fedgauge.metrics.calibration_tests import BrierDecomposition, CalibrationTest
    from fedgauge.metrics.curves import (
        DetCurve,
        GainCurve,
        PrCurve,
        PrGainCurve,
        RocCurve,
        area_error,
        exact_pr_curve,
        exact_roc_curve,
    )
    from fedgauge.metrics.decisions import DecisionCurve
    from fedgauge.metrics.estimate import Estimate
    from fedgauge.metrics.multiclass import ClassConfusion
    from fedgauge.metrics.thresholds import AtThreshold, ConfusionMatrix
    from fedgauge.monitoring.diff import Differences, diff
    from fedgauge.monitoring.trend import Trend, read_trend
    from fedgauge.monitoring.trend_file import Alarm
    from fedgauge.plan import (
        BinaryTask,
        EvaluationPlan,
        HistogramRound,
        MulticlassTask,
        MultilabelTask,
        ScoreSums,
        Slice,
    )
    from fedgauge.plots.calibration import DecisionCurveDisplay, ReliabilityDisplay
    from fedgauge.plots.comparison import ComparisonDisplay, ConfusionMatrixDisplay, GapDisplay
    from fedgauge.plots.curves import (
        DetCurveDisplay,
        GainDisplay,
        PrecisionRecallDisplay,
        PrGainDisplay,
        RocCurveDisplay,
    )
    from fedgauge.privacy import Cohort, DistributedDP, LocalDP, PrivacyStatement, SecureAggregation
    from fedgauge.results.comparison import Comparison
    from fedgauge.results.evaluation import Evaluation
    from fedgauge.results.groups import Gap, Gaps
    from fedgauge.results.signature import Signature
    from fedgauge.site import Site
    from fedgauge.vertical.auc import LabelAuc
    from fedgauge.vertical.evaluate import evaluate_vertical
    from fedgauge.vertical.forecast import LabelOutlook, plan_vertical

__version__ = "0.1.0"

__all__ = [
    "Alarm",
    "Aligned",
    "AtThreshold",
    "Axis",
    "AxisError",
    "AxisMismatch",
    "Band",
    "BinaryTask",
    "BrierDecomposition",
    "BudgetExceeded",
    "CalibrationCurve",
    "CalibrationTest",
    "Calibrator",
    "CalibratorError",
    "ClassConfusion",
    "Cohort",
    "CohortTooSmall",
    "Comparison",
    "ComparisonDisplay",
    "ConfusionMatrix",
    "ConfusionMatrixDisplay",
    "CountOverflow",
    "DecisionCurve",
    "DecisionCurveDisplay",
    "DetCurve",
    "DetCurveDisplay",
    "Differences",
    "DistributedDP",
    "Estimate",
    "Evaluation",
    "EvaluationPlan",
    "Examples",
    "ExchangeError",
    "FedgaugeError",
    "GainCurve",
    "GainDisplay",
    "Gap",
    "GapDisplay",
    "Gaps",
    "HistogramRound",
    "IdTable",
    "InputError",
    "InputWarning",
    "IntakeError",
    "LabelAuc",
    "LabelError",
    "LabelOutlook",
    "LedgerError",
    "LocalDP",
    "MulticlassTask",
    "MultilabelTask",
    "NoSignal",
    "PlanError",
    "PlanRefused",
    "PrCurve",
    "PrGainCurve",
    "PrGainDisplay",
    "PrecisionRecallDisplay",
    "PrivacyStatement",
    "PrivacyWarning",
    "ProtocolError",
    "Quantile",
    "Range",
    "RecordError",
    "ReliabilityDisplay",
    "ReportRefused",
    "ReportServer",
    "ResultWithheld",
    "RocCurve",
    "RocCurveDisplay",
    "ScoreFile",
    "ScoreHistogram",
    "ScoreQuery",
    "ScoreSums",
    "ScoreTable",
    "SecureAggregation",
    "Signature",
    "Site",
    "SiteError",
    "Slice",
    "Trend",
    "TwoRound",
    "UndefinedMetric",
    "area_error",
    "count",
    "diff",
    "encode_rows",
    "evaluate",
    "evaluate_vertical",
    "exact_pr_curve",
    "exact_roc_curve",
    "plan_vertical",
    "planner",
    "read_trend",
]

# Where those names live, and the packages. Each is loaded when it is first asked for: all
# of them together take five times as long as NumPy.
_HOMES: Final = {
    "data.examples": "Examples",
    "data.files": "ScoreFile ScoreTable",
    "data.ids": "IdTable",
    "data.queries": "ScoreQuery",
    "engines.contribution": "count",
    "engines.simulation": "evaluate",
    "estimation.distribution": "Aligned Quantile Range",
    "histograms.axis": "Axis",
    "histograms.calibrator": "Calibrator",
    "histograms.histogram": "ScoreHistogram",
    "histograms.two_round": "TwoRound",
    "local.messages": "encode_rows",
    "local.server": "ReportServer",
    "metrics.bands": "Band",
    "metrics.calibration": "CalibrationCurve",
    "metrics.calibration_tests": "BrierDecomposition CalibrationTest",
    "metrics.curves": "DetCurve GainCurve PrCurve PrGainCurve "
    "RocCurve area_error exact_pr_curve exact_roc_curve",
    "metrics.decisions": "DecisionCurve",
    "metrics.estimate": "Estimate",
    "metrics.multiclass": "ClassConfusion",
    "metrics.thresholds": "AtThreshold ConfusionMatrix",
    "monitoring.diff": "Differences diff",
    "monitoring.trend": "Trend read_trend",
    "monitoring.trend_file": "Alarm",
    "plan": "BinaryTask EvaluationPlan HistogramRound "
    "MulticlassTask MultilabelTask ScoreSums Slice",
    "plots.calibration": "DecisionCurveDisplay ReliabilityDisplay",
    "plots.comparison": "ComparisonDisplay ConfusionMatrixDisplay GapDisplay",
    "plots.curves": "DetCurveDisplay GainDisplay "
    "PrGainDisplay PrecisionRecallDisplay RocCurveDisplay",
    "privacy": "Cohort DistributedDP LocalDP PrivacyStatement SecureAggregation",
    "results.evaluation": "Evaluation",
    "results.groups": "Gap Gaps",
    "results.comparison": "Comparison",
    "results.signature": "Signature",
    "site": "Site",
    "vertical.auc": "LabelAuc",
    "vertical.evaluate": "evaluate_vertical",
    "vertical.forecast": "LabelOutlook plan_vertical",
}
_ROOMS: Final = (
    "arrays data engines escaping estimation histograms keys local metrics monitoring plan "
    "planner plots privacy protocol report results secagg site storage vertical"
)
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names.split()}


if not TYPE_CHECKING:  # which would take every name for one that exists

    def __getattr__(name: str) -> Any:
        if name in _ROOMS.split():
            return import_module(f"fedgauge.{name}")
        if name not in _HOME_OF:
            raise AttributeError(f"module 'fedgauge' has no attribute {name!r}")
        value = getattr(import_module(f"fedgauge.{_HOME_OF[name]}"), name)
        globals()[name] = value  # the next time it is found without this function
        return value

    def __dir__() -> list[str]:
        return [*__all__, "__version__"]


logging.getLogger("fedgauge").addHandler(logging.NullHandler())
logging.getLogger("fedgauge").addFilter(escape_record)
