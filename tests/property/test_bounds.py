"""Bounds hold the number of the pooled data, whatever the data, the axis and the threshold."""

import math
import tempfile
from functools import cache
from itertools import pairwise
from pathlib import Path

import bounds
import hypothesis.strategies as st
import numpy as np
import pytest
from counts import counts_on
from hypothesis import Phase, assume, example, given, settings
from sklearn import metrics as sk
from strategies import ON_GRID, labelled

import fedgauge as fg
from fedgauge import Aligned, Axis, Quantile, UndefinedMetric
from fedgauge.estimation.counts import PooledCounts
from fedgauge.metrics.estimate import metrics_of
from fedgauge.metrics.thresholds import (
    Correlation,
    Outcomes,
    Ratio,
    ThresholdOutcomes,
    f_beta_ratio,
)

ROWS = metrics_of(fg.AtThreshold)
CLUSTERED = st.builds(
    lambda centre, step: float(np.clip(centre + step * 2.0**-50, 0, 1)),
    st.sampled_from([0.0, 0.25, 1 / 3, 0.5, 1.0]),
    st.integers(-3, 3),
)
SCORES = st.one_of(ON_GRID, CLUSTERED, st.floats(0, 1))
NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)  # where an example takes long


@st.composite
def thresholds(draw, data, axis):
    """On edges and a float beside them, on scores, between, outside, infinite."""
    near = st.builds(
        lambda x, side: float(np.nextafter(x, side)),
        st.sampled_from([*axis.edges.tolist(), *data[1].tolist()]),
        st.sampled_from([-math.inf, math.inf]),
    )
    return draw(
        st.one_of(
            st.sampled_from([*axis.edges.tolist(), *data[1].tolist(), -math.inf, math.inf]),
            near,
            st.floats(-0.5, 1.5),
        )
    )


POSITIVE_ON_TOP = (np.array([1, 1, 1, 0]), np.array([0.95, 0.91, 0.3, 0.3]))


@pytest.mark.filterwarnings("ignore::fedgauge.errors.InputWarning")  # of reversed scores
@settings(deadline=None, max_examples=60)
@given(
    st.data(),
    labelled(SCORES),
    bounds.axes(),
    st.sampled_from([Aligned(), Aligned("linear"), Quantile(5)]),
    st.sampled_from([1, 30]),  # as many of each row that its bin looks like a tie
)
def test_bounds_of_every_area_hold_that_of_the_pooled_data(data, examples, axis, estimator, times):
    examples = tuple(np.repeat(each, times) for each in examples)
    result = bounds.pooled(examples, axis, estimator)
    labels, scores = examples
    max_fpr = data.draw(st.one_of(st.floats(0.01, 1), st.just(1 / (len(labels) - labels.sum()))))
    positive, negative = scores[labels == 1], scores[labels == 0]
    won = np.sum(positive[:, None] > negative) + np.sum(positive[:, None] == negative) / 2
    every = np.unique(scores)
    gaps = [abs(np.mean(positive >= t) - np.mean(negative >= t)) for t in every]
    for estimate, truth, scale in (
        (result.roc_auc, sk.roc_auc_score(labels, scores), (0, 1)),
        (result.average_precision, sk.average_precision_score(labels, scores), (0, 1)),
        (result.partial_auc(max_fpr), sk.roc_auc_score(*examples, max_fpr=max_fpr), (0, 1)),
        (
            result.partial_auc(max_fpr, standardise=False),
            bounds.plain_partial(examples, max_fpr),
            (0, max_fpr),
        ),
        (result.auprg, bounds.auprg_of(examples), (-math.inf, 1)),
        (result.ks_statistic, max(gaps), (0, 1)),
        (result.mann_whitney_u, won, (0, len(positive) * len(negative))),
    ):
        bounds.check(estimate, truth, scale)
        if estimate.low is not None and axis.kind != "probabilities":
            bounds.check_includes_bounds(estimate)


@settings(deadline=None, max_examples=150)
@given(labelled(SCORES, both=False), bounds.axes())
@example((np.array([1, 0]), np.array([1e-9, 0.5])), Axis.from_edges([0, 1e-9, 2e-9, 1]))
@example((np.array([1, 0]), np.array([0.0, 0.5])), Axis.from_edges([0, 1e-17, 0.5, 1]))
@example((np.array([1, 0]), np.array([1e-9, 0.5])), Axis.from_values([1e-9, 0.5]))
def test_bounds_of_losses_hold_those_of_the_pooled_data(examples, axis):
    bounds.check_losses(bounds.pooled(examples, axis), *examples)


@settings(deadline=None, max_examples=80)
@given(st.data(), labelled(SCORES, both=False), bounds.axes(), st.sampled_from([0.5, 1.0, 3.0]))
def test_bounds_at_any_threshold_hold_the_numbers_of_the_pooled_data(data, examples, axis, beta):
    threshold = data.draw(thresholds(examples, axis))
    at = bounds.pooled(examples, axis).at_threshold(threshold)
    bounds.check_threshold(at, examples, threshold)
    tp, fp, fn, _ = bounds.outcomes_of(examples, threshold)
    square = beta**2
    if tp + fp + fn:
        truth = (1 + square) * tp / ((1 + square) * tp + fp + square * fn)
        bounds.check(at.f_beta(beta), truth, (0, 1))


CLIPPED = Axis.uniform(4, 0.25, 0.75, outside="clip")
THRESHOLD_CASES = {
    "a bin of positives on top": (POSITIVE_ON_TOP, Axis.uniform(10), 0.93),
    "a bin of positives at the bottom": (
        (np.array([1, 1, 0, 1]), np.array([0.01, 0.09, 0.5, 0.6])),
        Axis.uniform(10),
        0.05,
    ),
    "a score on the top edge": ((np.array([0, 1]), np.array([0.5, 1.0])), Axis.uniform(4), 1.0),
    "a score above a clipped axis": ((np.array([0, 1]), np.array([0.5, 0.99])), CLIPPED, 0.9),
    "a score below a clipped axis": ((np.array([0, 1]), np.array([0.1, 0.6])), CLIPPED, 0.2),
    "the top of clipped values": (
        (np.array([0, 1, 1]), np.array([0.2, 0.7, 1.0])),
        Axis.from_values([0, 0.5, 1], outside="clip"),
        1.0,
    ),
}


@pytest.mark.parametrize("case", THRESHOLD_CASES)
def test_bounds_at_awkward_thresholds(case):
    examples, axis, threshold = THRESHOLD_CASES[case]
    bounds.check_threshold(
        bounds.pooled(examples, axis).at_threshold(threshold), examples, threshold
    )


@settings(deadline=None, max_examples=250)
@given(st.data(), labelled(SCORES, both=False, most=40), bounds.axes())
def test_corners_hold_every_ratio(data, examples, axis):
    threshold = data.draw(thresholds(examples, axis))
    counts = PooledCounts(axis, counts_on(axis, *examples), (axis.bins,))
    outcomes = ThresholdOutcomes(counts, threshold)
    truth = bounds.outcomes_of(examples, threshold)
    ratios = [row.formula for row in ROWS if isinstance(row.formula, Ratio)]
    for ratio in (*ratios, f_beta_ratio(0.3), f_beta_ratio(4)):
        value = ratio.value(truth)
        low, high = ratio.extremes(outcomes.corners)
        if not math.isnan(value):
            assert low - 1e-12 <= value <= high + 1e-12
    if not outcomes.split.open:
        assert outcomes.likely == truth


METRICS = {
    **{row.name: row.formula for row in ROWS},
    "f0.2": f_beta_ratio(0.2),
    "f5": f_beta_ratio(5),
}
# How each metric moves with true and with false positives, class totals held.
RISES_WITH_TP = {*METRICS} - {"fnr", "specificity", "fpr", "prevalence"}
FALLS_WITH_FP = {*METRICS} - {"fpr", "recall", "fnr", "flagged", "prevalence"}
STILL = {"tp": {"specificity", "fpr", "prevalence"}, "fp": {"recall", "fnr", "prevalence"}}


@pytest.mark.parametrize("name", METRICS)
@settings(deadline=None, max_examples=100)
@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_every_metric_rises_or_falls_with_true_and_with_false_positives(name, tp, fp, fn, tn):
    """What `corners` rests on; strictly between undefined neighbours."""
    metric = METRICS[name].value
    here = metric(Outcomes(float(tp), float(fp), float(fn), float(tn)))
    one_more = {
        "tp": Outcomes(tp + 1.0, float(fp), fn - 1.0, float(tn)) if fn else None,
        "fp": Outcomes(float(tp), fp + 1.0, float(fn), tn - 1.0) if tn else None,
    }
    for outcome, moved in one_more.items():
        if moved is None or math.isnan(here) or math.isnan(metric(moved)):
            continue
        step = metric(moved) - here
        if name in STILL[outcome]:
            assert abs(step) < 1e-12
        elif outcome == "tp":
            assert step > -1e-12 if name in RISES_WITH_TP else step < 1e-12
        else:
            assert step < 1e-12 if name in FALLS_WITH_FP else step > -1e-12


@settings(deadline=None, max_examples=100)
@given(st.lists(st.floats(0.5, 500), min_size=4, max_size=4))
def test_gradient_of_the_matthews_correlation_is_its_derivative(counts):
    mcc = Correlation()
    gradient = mcc.gradient(Outcomes(*counts))
    for i in range(4):
        step = 1e-5 * counts[i]
        up, down = list(counts), list(counts)
        up[i] += step
        down[i] -= step
        numerical = (mcc.value(Outcomes(*up)) - mcc.value(Outcomes(*down))) / (2 * step)
        assert gradient[i] == pytest.approx(numerical, rel=1e-4, abs=1e-9)


def everything(result, threshold):
    """All estimates of a result by name; undefined ones by their message."""
    at = cache(lambda: result.at_threshold(threshold))
    asks = {
        **{
            row.name: lambda name=row.name: getattr(result, name)
            for row in metrics_of(fg.Evaluation)
        },
        "partial": lambda: result.partial_auc(0.4),
        "plain": lambda: result.partial_auc(0.4, standardise=False),
        **{f"{row.name} at": lambda name=row.name: getattr(at(), name) for row in ROWS},
        **{
            f"{outcome} at": lambda outcome=outcome: getattr(at().confusion_matrix, outcome)
            for outcome in Outcomes._fields
        },
    }
    found = {}
    for name, ask in asks.items():
        try:
            found[name] = ask()
        except UndefinedMetric as error:
            found[name] = str(error)
    return found


def saved_and_loaded(result):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        result.to_json(path)
        return fg.Evaluation.from_json(path)


@settings(deadline=None, max_examples=15)
@given(st.data(), labelled(SCORES, both=False), bounds.axes())
def test_levels_are_nested_and_survive_json(data, examples, axis):
    threshold = data.draw(thresholds(examples, axis))
    result = bounds.pooled(examples, axis)
    wide, narrow = (everything(result.at_level(level), threshold) for level in (0.99, 0.5))
    middle = everything(result, threshold)
    for name, one in narrow.items():
        if isinstance(one, str):
            assert wide[name] == middle[name] == one
            continue
        assert wide[name].bounds == middle[name].bounds == one.bounds
        assert wide[name].value == one.value
        if one.low is not None:
            chain = [e.low for e in (wide[name], middle[name], one)]
            chain += [e.high for e in (one, middle[name], wide[name])]
            assert all(a <= b + 1e-12 for a, b in pairwise(chain)), (name, chain)
            assert (wide[name].level, one.level) == (0.99, 0.5)
    assert everything(saved_and_loaded(result), threshold) == middle


def test_a_level_survives_json():
    result = bounds.pooled(POSITIVE_ON_TOP, Axis.uniform(10)).at_level(0.8)
    back = saved_and_loaded(result)
    assert back.level == 0.8
    assert everything(back, 0.5) == everything(result, 0.5)
    assert back.record == result.record


RANGES = {
    "calibration_in_the_large": (-1, 1),
    "calibration_slope": (-math.inf, math.inf),
    "calibration_intercept": (-math.inf, math.inf),
    "auprg": (-math.inf, 1),
    "log_loss": (0, math.inf),
    "normalized_entropy": (0, math.inf),
    "mann_whitney_u": (0, math.inf),
    "mcc at": (-1, 1),
    "youden_j at": (-1, 1),
    "plain": (0, 0.4),
    **{f"{cell} at": (0, math.inf) for cell in ("tp", "fp", "fn", "tn")},
}


ESTIMATORS = [Aligned(), Aligned("linear"), fg.Range(), fg.Range("l1")]
ESTIMATORS += [Quantile(6), Quantile(16, pr="combine")]


@st.composite
def noisy_results(draw):
    tree = draw(st.sampled_from([(1,), (4,), (12,), (3, 4), (2, 2, 3), (2, 3, 2)]))
    epsilon = draw(st.sampled_from([0.02, 0.3, 1.0, 8.0]))
    size = draw(st.sampled_from([3, 10, 40, 400, 5000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    labels = (rng.random(size) < draw(st.sampled_from([0.01, 0.3, 0.5, 0.9]))).astype(int)
    apart = draw(st.sampled_from([0.0, 1.0, 8.0]))
    scores = 1 / (1 + np.exp(-rng.normal(apart * (labels - 0.5), 1)))
    axis = Axis.uniform(math.prod(tree), outside="clip")
    return fg.evaluate(
        {f"site-{i}": (labels[i::3], scores[i::3]) for i in range(3)},
        axis=axis,
        tree=tree,
        privacy=fg.DistributedDP(epsilon),
        estimator=draw(st.sampled_from(ESTIMATORS)),
        seed=draw(st.integers(0, 2**20)),
    )


@pytest.mark.filterwarnings("ignore::fedgauge.PrivacyWarning")
@settings(deadline=None, max_examples=50, phases=NO_SHRINKING)
@given(noisy_results(), st.sampled_from([-math.inf, 0.0, 0.3, 0.5, 0.75, 1.0, 1.5, math.inf]))
def test_noisy_estimates_are_sane(result, threshold):
    found = everything(result, threshold)
    assume(not all(isinstance(estimate, str) for estimate in found.values()))
    for name, estimate in found.items():
        if isinstance(estimate, str):
            continue
        scale = RANGES.get(name, (0, 1))
        assert estimate.level == 0.95
        if "calibration" in name:  # of the population, and bounds of what the same examples show
            assert scale[0] <= estimate.low <= estimate.value <= estimate.high <= scale[1]
            assert estimate.bounds[0] <= estimate.bounds[1]
            assert all(0 <= part < math.inf for part in estimate.parts.values())
            continue
        bounds.check(estimate, None, scale)
        if estimate.low is not None:
            assert set(estimate.parts) == {"binning", "noise", "sampling"}
            assert min(estimate.parts.values()) >= 0


@pytest.mark.filterwarnings("ignore::fedgauge.PrivacyWarning")
@settings(deadline=None, max_examples=8, phases=NO_SHRINKING)
@given(noisy_results(), st.sampled_from([0.3, 0.5, 1.0]))
def test_noisy_levels_are_nested_and_survive_json(result, threshold):
    wide, narrow = (everything(result.at_level(level), threshold) for level in (0.99, 0.5))
    middle = everything(result, threshold)
    for name, one in narrow.items():
        if isinstance(one, str):
            assert wide[name] == middle[name] == one
            continue
        chain = [e.bounds[0] for e in (wide[name], middle[name], one)]
        chain += [e.bounds[1] for e in (one, middle[name], wide[name])]
        assert all(a <= b or math.isclose(a, b, abs_tol=1e-9) for a, b in pairwise(chain)), name
        if one.low is not None:
            chain = [e.low for e in (wide[name], middle[name], one)]
            chain += [e.high for e in (one, middle[name], wide[name])]
            assert all(a <= b + 1e-9 for a, b in pairwise(chain)), (name, chain)
    assert everything(saved_and_loaded(result), threshold) == middle


@pytest.mark.filterwarnings("ignore::fedgauge.PrivacyWarning")
@settings(deadline=None, max_examples=20, phases=NO_SHRINKING)
@given(noisy_results())
def test_noisy_bands_are_sane(result):
    try:
        result.roc_curve()
    except UndefinedMetric:
        return
    for kind in ("simultaneous", "pointwise"):
        for band, lowest in (
            (result.roc_band(kind), 0),
            (result.det_band(kind), 0),
            (result.pr_band(kind), 0),
            (result.prg_band(kind), -math.inf),
        ):
            assert np.all(np.isfinite(band.low))
            assert np.all((lowest <= band.low) & (band.low <= band.high) & (band.high <= 1))
