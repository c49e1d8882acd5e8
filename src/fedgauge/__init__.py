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
    from fedgauge.binning.axis import Axis
    from fedgauge.binning.calibrator import Calibrator
    from fedgauge.binning.histogram import ScoreHistogram
    from fedgauge.binning.search import TwoRound
    from fedgauge.data.examples import Examples
    from fedgauge.data.files import ScoreFile, ScoreTable
    from fedgauge.data.ids import IdTable
    from fedgauge.engines.simulation import evaluate
    from fedgauge.engines.vertical import evaluate_vertical
    from fedgauge.estimation.distribution import Aligned, Quantile, Range
    from fedgauge.measures.bands import Band
    from fedgauge.measures.benefit import DecisionCurve
    from fedgauge.measures.brier import BrierDecomposition
    from fedgauge.measures.calibration import CalibrationCurve
    from fedgauge.measures.confusion import ClassConfusion
    from fedgauge.measures.curves import (
        DetCurve,
        GainCurve,
        PrCurve,
        PrGainCurve,
        RocCurve,
        area_error,
        exact_pr_curve,
        exact_roc_curve,
    )
    from fedgauge.measures.goodness import CalibrationTest
    from fedgauge.measures.intervals import Estimate
    from fedgauge.measures.thresholds import AtThreshold, ConfusionMatrix
    from fedgauge.plan import (
        BinaryTask,
        EvaluationPlan,
        HistogramRound,
        MulticlassTask,
        MultilabelTask,
        ScoreSums,
        Slice,
    )
    from fedgauge.plots.calibration import ReliabilityDisplay
    from fedgauge.plots.decision import DecisionCurveDisplay
    from fedgauge.plots.displays import (
        DetCurveDisplay,
        GainDisplay,
        PrecisionRecallDisplay,
        PrGainDisplay,
        RocCurveDisplay,
    )
    from fedgauge.plots.forest import ComparisonDisplay, GapDisplay
    from fedgauge.plots.matrix import ConfusionMatrixDisplay
    from fedgauge.privacy import (
        Cohort,
        DistributedDP,
        LocalDP,
        PrivacyStatement,
        SecureAggregation,
    )
    from fedgauge.reports.intake import ReportServer
    from fedgauge.reports.messages import encode_rows
    from fedgauge.results.alarms import Alarm
    from fedgauge.results.compared import Comparison
    from fedgauge.results.differences import Differences, diff
    from fedgauge.results.evaluation import Evaluation
    from fedgauge.results.gaps import Gap, Gaps
    from fedgauge.results.proof import Signature
    from fedgauge.results.series import Trend, read_trend
    from fedgauge.site import Site
    from fedgauge.vertical.auc import LabelAuc
    from fedgauge.vertical.outlook import LabelOutlook, plan_vertical

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

# Where those names live, and the rooms of the house. Each is loaded when it is first asked for: all
# of them together take five times as long as NumPy.
_HOMES: Final = {
    "binning.axis": ["Axis"],
    "binning.calibrator": ["Calibrator"],
    "binning.histogram": ["ScoreHistogram"],
    "binning.search": ["TwoRound"],
    "data.examples": ["Examples"],
    "data.files": ["ScoreFile", "ScoreTable"],
    "data.ids": ["IdTable"],
    "engines.simulation": ["evaluate"],
    "engines.vertical": ["evaluate_vertical"],
    "estimation.distribution": ["Aligned", "Quantile", "Range"],
    "measures.bands": ["Band"],
    "measures.brier": ["BrierDecomposition"],
    "measures.calibration": ["CalibrationCurve"],
    "measures.benefit": ["DecisionCurve"],
    "measures.curves": [
        "DetCurve",
        "GainCurve",
        "PrCurve",
        "PrGainCurve",
        "RocCurve",
        "area_error",
        "exact_pr_curve",
        "exact_roc_curve",
    ],
    "measures.confusion": ["ClassConfusion"],
    "measures.goodness": ["CalibrationTest"],
    "measures.intervals": ["Estimate"],
    "measures.thresholds": ["AtThreshold", "ConfusionMatrix"],
    "plan": [
        "BinaryTask",
        "EvaluationPlan",
        "HistogramRound",
        "MulticlassTask",
        "MultilabelTask",
        "ScoreSums",
        "Slice",
    ],
    "plots.calibration": ["ReliabilityDisplay"],
    "plots.decision": ["DecisionCurveDisplay"],
    "plots.displays": [
        "DetCurveDisplay",
        "GainDisplay",
        "PrecisionRecallDisplay",
        "PrGainDisplay",
        "RocCurveDisplay",
    ],
    "plots.forest": ["ComparisonDisplay", "GapDisplay"],
    "plots.matrix": ["ConfusionMatrixDisplay"],
    "privacy": ["Cohort", "DistributedDP", "LocalDP", "PrivacyStatement", "SecureAggregation"],
    "reports.intake": ["ReportServer"],
    "reports.messages": ["encode_rows"],
    "results.compared": ["Comparison"],
    "results.alarms": ["Alarm"],
    "results.differences": ["Differences", "diff"],
    "results.evaluation": ["Evaluation"],
    "results.gaps": ["Gap", "Gaps"],
    "results.proof": ["Signature"],
    "results.series": ["Trend", "read_trend"],
    "site": ["Site"],
    "vertical.auc": ["LabelAuc"],
    "vertical.outlook": ["LabelOutlook", "plan_vertical"],
}
_ROOMS: Final = [
    "binning",
    "data",
    "engines",
    "estimation",
    "keys",
    "measures",
    "plan",
    "planner",
    "plots",
    "privacy",
    "protocol",
    "reports",
    "results",
    "secagg",
    "site",
    "storage",
    "typing",
]
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # which would take every name for one that exists

    def __getattr__(name: str) -> Any:
        if name in _ROOMS:
            return import_module(f"fedgauge.{name}")
        if name not in _HOME_OF:
            raise AttributeError(f"module 'fedgauge' has no attribute {name!r}")
        value = getattr(import_module(f"fedgauge.{_HOME_OF[name]}"), name)
        globals()[name] = value  # the next time it is found without this function
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_ROOMS})


logging.getLogger("fedgauge").addHandler(logging.NullHandler())
logging.getLogger("fedgauge").addFilter(escape_record)
