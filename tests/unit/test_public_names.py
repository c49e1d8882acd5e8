"""What others build on: public names, the call everybody meets, the fields of a saved result."""

import inspect
import json

import pytest

import fedgauge as fg
from fedgauge import planner

NAMES = """
Aligned AtThreshold Axis AxisError AxisMismatch Band BinaryTask BudgetExceeded Cohort CohortTooSmall
ConfusionMatrix CountOverflow DetCurve DetCurveDisplay DistributedDP Estimate Evaluation
EvaluationPlan Examples ExchangeError FedgaugeError GainCurve GainDisplay HistogramRound InputError
IntakeError LabelError LedgerError LocalDP NoSignal PlanError PlanRefused PrCurve PrGainCurve
PrGainDisplay PrecisionRecallDisplay PrivacyStatement PrivacyWarning ProtocolError Quantile Range
RecordError
ReportRefused ReportServer ResultWithheld RocCurve RocCurveDisplay ScoreFile ScoreHistogram
ScoreSums ScoreTable SecureAggregation Signature Site SiteError UndefinedMetric area_error
encode_rows evaluate exact_pr_curve exact_roc_curve planner
"""


def test_names_of_the_package():
    assert fg.__all__ == NAMES.split()
    missing = [name for name in fg.__all__ if not hasattr(fg, name)]
    assert missing == []


def test_names_of_the_planner():
    assert {"Needs", "Shape", "needs", "predict", "propose", "reference_axis"} <= set(
        planner.__all__
    )
    assert all(hasattr(planner, name) for name in planner.__all__)


def test_names_of_the_flower_module():
    flower = pytest.importorskip("fedgauge.flower", reason="Flower is not installed")
    assert flower.__all__ == ["attach", "evaluate"]
    assert list(inspect.signature(flower.attach).parameters) == ["app", "score"]
    taken = inspect.signature(flower.evaluate).parameters
    assert list(taken)[:2] == ["grid", "plan"]
    assert {"arrays", "timeout"} <= set(taken)


def test_the_call_everybody_meets():
    taken = inspect.signature(fg.evaluate).parameters
    assert list(taken)[:2] == ["clients", "plan"]
    assert all(each.kind is each.KEYWORD_ONLY for each in list(taken.values())[2:])
    defaults = {name: each.default for name, each in taken.items()}
    assert defaults == {
        "clients": inspect.Parameter.empty,
        "plan": None,
        "privacy": fg.SecureAggregation(),
        "axis": "auto",
        "tree": "auto",
        "cohort": None,
        "estimator": fg.Aligned(),
        "examples": None,
        "positive_rate": None,
        "positive": None,
        "score_sums": False,
        "seed": None,
    }


def test_fields_of_a_saved_result(tmp_path):
    clients = {f"site-{i}": ([0, 1, 0, 1], [0.1, 0.7, 0.4, 0.9]) for i in range(3)}
    result = fg.evaluate(clients, privacy=fg.DistributedDP(8.0), score_sums=True, seed=1)
    result.to_json(tmp_path / "result.json")
    saved = json.loads((tmp_path / "result.json").read_bytes())
    assert saved["format"] == "fedgauge-evaluation/1"
    assert set(saved) == {
        *("format", "plan", "privacy", "estimator", "clients", "slices", "reports", "level")
    }
    assert set(saved["plan"]) == {"task", "axis", "tree", "privacy", "cohort", "rounds"}
    assert set(saved["privacy"]) == {
        *("model", "unit", "neighbours", "epsilon", "delta", "cohort", "public_inputs", "claim")
    }
    (part,) = saved["slices"]
    assert set(part) == {
        *("model", "group", "label", "counts", "variances", "metrics", "curves", "score_sums")
    }
    assert set(part["metrics"]["roc_auc"]) == {
        *("value", "bounds", "low", "high", "level", "parts", "caution")
    }
    assert {name: set(curve) for name, curve in part["curves"].items()} == {
        "roc": {"fpr", "tpr", "thresholds"},
        "pr": {"precision", "recall", "thresholds"},
    }
