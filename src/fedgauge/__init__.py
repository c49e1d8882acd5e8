"""fedgauge measures a classifier on data nobody may pool."""

import logging

from fedgauge import planner
from fedgauge.axis import Axis
from fedgauge.bands import Band
from fedgauge.curves import (
    DetCurve,
    GainCurve,
    PrCurve,
    PrGainCurve,
    RocCurve,
    area_error,
    exact_pr_curve,
    exact_roc_curve,
)
from fedgauge.displays import (
    DetCurveDisplay,
    GainDisplay,
    PrecisionRecallDisplay,
    PrGainDisplay,
    RocCurveDisplay,
)
from fedgauge.distribution import Aligned, Quantile, Range
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
    LedgerError,
    NoSignal,
    PlanError,
    PlanRefused,
    PrivacyWarning,
    ProtocolError,
    RecordError,
    SiteError,
    UndefinedMetric,
)
from fedgauge.evaluation import Evaluation
from fedgauge.files import ScoreFile, ScoreTable
from fedgauge.histogram import ScoreHistogram
from fedgauge.intervals import Estimate
from fedgauge.operating import AtThreshold, ConfusionMatrix
from fedgauge.plan import BinaryTask, EvaluationPlan, HistogramRound
from fedgauge.privacy import Cohort, DistributedDP, PrivacyStatement, SecureAggregation
from fedgauge.scores import Examples
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
    "LedgerError",
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
    "RocCurve",
    "RocCurveDisplay",
    "ScoreFile",
    "ScoreHistogram",
    "ScoreTable",
    "SecureAggregation",
    "Site",
    "SiteError",
    "UndefinedMetric",
    "area_error",
    "evaluate",
    "exact_pr_curve",
    "exact_roc_curve",
    "planner",
]

logging.getLogger("fedgauge").addHandler(logging.NullHandler())
