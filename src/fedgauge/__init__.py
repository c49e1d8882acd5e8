"""fedgauge measures a classifier on data nobody may pool."""

import logging

from fedgauge import planner
from fedgauge.binning.axis import Axis
from fedgauge.binning.histogram import ScoreHistogram
from fedgauge.data.examples import Examples
from fedgauge.data.files import ScoreFile, ScoreTable
from fedgauge.engines.simulation import evaluate
from fedgauge.errors import (
    AxisError,
    AxisMismatch,
    BudgetExceeded,
    CohortTooSmall,
    CountOverflow,
    ExchangeError,
    FedgaugeError,
    InputError,
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
from fedgauge.estimation.distribution import Aligned, Quantile, Range
from fedgauge.measures.bands import Band
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
from fedgauge.measures.intervals import Estimate
from fedgauge.measures.thresholds import AtThreshold, ConfusionMatrix
from fedgauge.plan import BinaryTask, EvaluationPlan, HistogramRound, ScoreSums
from fedgauge.plots.displays import (
    DetCurveDisplay,
    GainDisplay,
    PrecisionRecallDisplay,
    PrGainDisplay,
    RocCurveDisplay,
)
from fedgauge.privacy import (
    Cohort,
    DistributedDP,
    LocalDP,
    PrivacyStatement,
    SecureAggregation,
)
from fedgauge.reports.intake import ReportServer
from fedgauge.reports.messages import encode_rows
from fedgauge.results.evaluation import Evaluation
from fedgauge.results.proof import Signature
from fedgauge.site import Site

__version__ = "0.1.0"

__all__ = [
    "Aligned",
    "AtThreshold",
    "Axis",
    "AxisError",
    "AxisMismatch",
    "Band",
    "BinaryTask",
    "BudgetExceeded",
    "Cohort",
    "CohortTooSmall",
    "ConfusionMatrix",
    "CountOverflow",
    "DetCurve",
    "DetCurveDisplay",
    "DistributedDP",
    "Estimate",
    "Evaluation",
    "EvaluationPlan",
    "Examples",
    "ExchangeError",
    "FedgaugeError",
    "GainCurve",
    "GainDisplay",
    "HistogramRound",
    "InputError",
    "IntakeError",
    "LabelError",
    "LedgerError",
    "LocalDP",
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
    "UndefinedMetric",
    "area_error",
    "encode_rows",
    "evaluate",
    "exact_pr_curve",
    "exact_roc_curve",
    "planner",
]

logging.getLogger("fedgauge").addHandler(logging.NullHandler())
