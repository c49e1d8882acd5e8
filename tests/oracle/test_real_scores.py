"""Scores of real models on real data: the pooled numbers against scikit-learn."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

import fedgauge as fg

SCORES = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "scores"
AXES = {"auto": "auto", "coarse": fg.Axis.uniform(32), "logit": fg.Axis.logit(1024)}
ROUNDING = 1e-12


@pytest.fixture(
    scope="module", params=["adult_logistic", "adult_xgboost", "bank_logistic", "bank_xgboost"]
)
def path(request):
    path = SCORES / f"{request.param}.parquet"
    if not path.exists():
        pytest.skip(f"needs {path}, which is not part of the project")
    return path


@pytest.fixture(scope="module")
def pooled(path):
    table = pq.read_table(path)
    return table["y"].to_numpy(), table["p"].to_numpy().astype(np.float64)


def by_site(path, **options):
    table = fg.ScoreTable([path], client="site", label="y", score="p")
    return fg.evaluate(table, **options)


@pytest.mark.parametrize("axis", AXES.values(), ids=AXES.keys())
@pytest.mark.parametrize("estimator", [fg.Aligned(), fg.Quantile(256)], ids=["aligned", "quantile"])
def test_bounds_hold_the_numbers_of_scikit_learn(path, pooled, axis, estimator):
    result = by_site(path, axis=axis, estimator=estimator)
    for estimate, exact in (
        (result.roc_auc, roc_auc_score(*pooled)),
        (result.average_precision, average_precision_score(*pooled)),
    ):
        low, high = estimate.bounds
        assert low - ROUNDING <= exact <= high + ROUNDING
        assert low <= estimate.value <= high


def test_default_axis_pins_the_numbers_down(path, pooled):
    result = by_site(path)
    assert result.roc_auc.value == pytest.approx(roc_auc_score(*pooled), abs=2e-5)
    # A crowded top bin hides in which order its examples come, and precision starts there.
    exact = average_precision_score(*pooled)
    assert result.average_precision.value == pytest.approx(exact, abs=5e-4)
    low, high = result.average_precision.bounds
    assert high - low < 2e-3


def test_curves_are_close(path, pooled):
    result = by_site(path)
    assert fg.area_error(result.roc_curve(), fg.exact_roc_curve(*pooled)) < 2e-4
    assert fg.area_error(result.pr_curve(), fg.exact_pr_curve(*pooled)) < 1e-3


CLIPPING = {
    "exact": ({}, fg.Axis.uniform(64, outside="clip")),
    "exact, fine": ({}, fg.Axis.uniform(4096, outside="clip")),
    "epsilon 0.1": ({"privacy": fg.DistributedDP(0.1)}, "auto"),
    "epsilon 1": ({"privacy": fg.DistributedDP(1.0)}, "auto"),
    "epsilon 1, 64 bins": ({"privacy": fg.DistributedDP(1.0)}, fg.Axis.uniform(64, outside="clip")),
    "epsilon 1, logit": ({"privacy": fg.DistributedDP(1.0)}, fg.Axis.logit(64, outside="clip")),
    "local 3": ({"privacy": fg.LocalDP(3.0)}, "auto"),
    "local 5": ({"privacy": fg.LocalDP(5.0)}, fg.Axis.uniform(64, outside="clip")),
}
UNITS = {
    "percent": lambda p: 100 * p,
    "points": lambda p: np.round(1000 * p),
    "logits": lambda p: np.log(p / (1 - p)),
}


def cautions(pooled, change, options, axis, seeds=3):
    """Of several draws of noise those that have a caution."""
    labels, scores = pooled[0], change(np.clip(pooled[1], 1e-12, 1 - 1e-12))
    clients = {str(i): (labels[i::10], scores[i::10]) for i in range(10)}
    if options:
        options = options | {"examples": len(labels), "positive_rate": float(labels.mean())}
    draws = [{"seed": seed} for seed in range(seeds)] if options else [{}]
    told = [fg.evaluate(clients, axis=axis, **options, **draw).caution for draw in draws]
    return [caution for caution in told if caution], len(draws)


@pytest.mark.parametrize(("options", "axis"), CLIPPING.values(), ids=CLIPPING)
def test_healthy_scores_have_no_caution(pooled, options, axis):
    """False alarm below 1e-5 for each case: no file is near the line."""
    told, _ = cautions(pooled, lambda p: p, options, axis)
    assert not told


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(("options", "axis"), CLIPPING.values(), ids=CLIPPING)
def test_the_same_scores_in_another_unit_have_one(pooled, unit, options, axis):
    told, draws = cautions(pooled, UNITS[unit], options, axis)
    assert len(told) == draws
    assert all("percent, points or logits" in caution for caution in told)
