"""What others build on: public names, the call everybody meets, the fields of a saved result."""

import ast
import inspect
import json
import pickle
from pathlib import Path

import pytest

import fedgauge as fg
from fedgauge import planner

NAMES = """
Alarm Aligned AtThreshold Axis AxisError AxisMismatch Band BinaryTask BrierDecomposition
BudgetExceeded CalibrationCurve CalibrationTest Calibrator CalibratorError ClassConfusion Cohort
CohortTooSmall Comparison ComparisonDisplay ConfusionMatrix ConfusionMatrixDisplay CountOverflow
DecisionCurve DecisionCurveDisplay DetCurve DetCurveDisplay Differences DistributedDP Estimate
Evaluation EvaluationPlan Examples ExchangeError FedgaugeError GainCurve GainDisplay Gap GapDisplay
Gaps HistogramRound IdTable InputError InputWarning IntakeError LabelAuc LabelError LabelOutlook
LedgerError LocalDP MulticlassTask MultilabelTask NoSignal PlanError PlanRefused PrCurve PrGainCurve
PrGainDisplay PrecisionRecallDisplay PrivacyStatement PrivacyWarning ProtocolError Quantile Range
RecordError ReliabilityDisplay ReportRefused ReportServer ResultWithheld RocCurve RocCurveDisplay
ScoreFile ScoreHistogram ScoreQuery ScoreSums ScoreTable SecureAggregation Signature Site SiteError
Slice Trend TwoRound UndefinedMetric area_error count diff encode_rows evaluate evaluate_vertical
exact_pr_curve exact_roc_curve plan_vertical planner read_trend
"""


def test_names_of_the_package_and_the_planner():
    assert fg.__all__ == NAMES.split()
    missing = [name for name in fg.__all__ if not hasattr(fg, name)]
    assert missing == []
    assert {"Needs", "Shape", "needs", "predict", "propose", "reference_axis"} <= set(
        planner.__all__
    )
    assert all(hasattr(planner, name) for name in planner.__all__)


def test_names_of_the_flower_module():
    flower = pytest.importorskip("fedgauge.flower", reason="Flower is not installed")
    assert flower.__all__ == ["attach", "attach_labels", "evaluate", "evaluate_vertical"]
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
        "task": None,
        "groups": None,
        "models": None,
        "examples": None,
        "positive_rate": None,
        "positive": None,
        "score_sums": False,
        "calibrator": None,
        "scores": None,
        "at": None,
        "seed": None,
    }


def test_fields_of_a_saved_result(tmp_path):
    clients = {f"site-{i}": ([0, 1] * 40, [0.1, 0.7, 0.4, 0.9] * 20) for i in range(3)}
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


def test_names_are_found_listed_and_completed():
    """They are loaded when asked for, and look as if they had been there all the time."""
    assert dir(fg) == sorted([*fg.__all__, "__version__"])
    assert all(hasattr(fg, name) for name in dir(fg))
    assert fg.privacy.compose([(1.0, 0.0)]) == (1.0, 0.0)
    assert pickle.loads(pickle.dumps(fg.Axis)) is fg.Axis  # noqa: S301
    with pytest.raises(AttributeError, match="module 'fedgauge' has no attribute 'Axes'"):
        fg.Axes  # noqa: B018
    with pytest.raises(ImportError):
        from fedgauge import Axes  # noqa: F401


def test_type_checkers_see_what_is_loaded_later():
    """The names behind `TYPE_CHECKING` are those of `__all__` that are not loaded at once."""
    tree = ast.parse(Path(fg.__file__).read_text())
    (hidden,) = (
        each for each in tree.body if isinstance(each, ast.If) and isinstance(each.test, ast.Name)
    )
    homes = {name.name: each.module for each in hidden.body for name in each.names}
    assert homes.pop("planner") == "fedgauge"
    assert homes == {name: f"fedgauge.{home}" for name, home in fg._HOME_OF.items()}
    at_once = set(fg.__all__) - set(homes) - {"planner"}
    assert {getattr(fg, name).__module__ for name in at_once} == {"fedgauge.errors"}
