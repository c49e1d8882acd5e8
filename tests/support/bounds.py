"""Whether bounds and intervals hold the numbers of pooled data, and axes to try that on."""

import math
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from sklearn import metrics as sk
from strategies import GRID

import fedgauge as fg
from fedgauge import Aligned, Axis, UndefinedMetric
from fedgauge.metrics.thresholds import Outcomes

ROUNDING = 1e-11


@st.composite
def axes(draw):
    """Few bins of every kind, or the default; those that clip do so inside the scores."""
    bins = draw(st.integers(1, 12))
    kinds = ["uniform", "logit", "edges", "narrow", "cut", "values", "probabilities"]
    kind = draw(st.sampled_from(kinds))
    cuts = sorted(draw(st.sets(st.integers(1, 2 * GRID - 1), min_size=2, max_size=11)))
    if kind == "uniform":
        return Axis.uniform(bins, outside=draw(st.sampled_from(["refuse", "clip"])))
    if kind == "logit":
        return Axis.logit(bins, limit=draw(st.sampled_from([1.0, 5.0, 36.0])))
    if kind == "edges":
        return Axis.from_edges([0.0, *(c / (2 * GRID) for c in cuts), 1.0])
    if kind == "narrow":
        return Axis.uniform(bins, 0.25, 0.75, outside="clip")
    if kind == "cut":
        return Axis.from_edges([c / (2 * GRID) for c in cuts], outside="clip")
    if kind == "probabilities":
        return Axis.probabilities(c / (2 * GRID) for c in cuts)
    return Axis.from_values([c / (2 * GRID) for c in cuts[: draw(st.integers(1, 12))]], "clip")


def pooled(data, axis, estimator=Aligned()):  # noqa: B008
    return fg.evaluate({"a": data}, axis=axis, estimator=estimator)


def outcomes_of(data, threshold):
    labels, scores = data
    flagged = scores >= threshold
    return Outcomes(
        *(
            float(np.sum(side & (labels == label)))
            for side, label in ((flagged, 1), (flagged, 0), (~flagged, 1), (~flagged, 0))
        )
    )


def true_metrics(outcomes):
    """Metrics by their textbook formulas; NaN where undefined."""
    tp, fp, fn, tn = outcomes

    def rate(above, below):
        return above / (above + below) if above + below else math.nan

    recall, fpr = rate(tp, fn), rate(fp, tn)
    sides = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    return {
        "precision": rate(tp, fp),
        "recall": recall,
        "specificity": rate(tn, fp),
        "npv": rate(tn, fn),
        "accuracy": rate(tp + tn, fp + fn),
        "balanced_accuracy": (recall + rate(tn, fp)) / 2,
        "f1": rate(2 * tp, fp + fn),
        "mcc": (tp * tn - fp * fn) / math.sqrt(sides) if sides else math.nan,
        "youden_j": recall - fpr,
        "fpr": fpr,
        "fnr": rate(fn, tp),
        "flagged": rate(tp + fp, fn + tn),
        "prevalence": rate(tp + fn, fp + tn),
    }


def auprg_of(data):
    """Area under precision gain over recall gain from 0 (Flach & Kull 2015), from raw data."""
    fpr, tpr, _ = sk.roc_curve(*data, drop_intermediate=False)
    ratio = data[0].sum() / (1 - data[0]).sum()
    start, area = ratio / (1 + ratio), 0.0
    for (f0, t0), (f1, t1) in pairwise(zip(fpr, tpr, strict=True)):
        if t1 <= start:
            continue
        if t0 < start:
            f0, t0 = f0 + (start - t0) / (t1 - t0) * (f1 - f0), start
        width = ratio / t0 - ratio / t1
        area += width * ((1 - f0 / t0) + (1 - f1 / t1)) / 2
    return area


def plain_partial(data, max_fpr):
    standard = sk.roc_auc_score(*data, max_fpr=max_fpr)
    if max_fpr == 1:
        return standard
    chance = max_fpr**2 / 2
    return (2 * standard - 1) * (max_fpr - chance) + chance


def check(estimate, truth=None, scale=(-math.inf, math.inf)):
    numbers = [estimate.value, *estimate.bounds, *estimate.parts.values()]
    assert all(math.isfinite(number) for number in numbers)
    low, high = estimate.bounds
    slack = ROUNDING * max(1.0, abs(low), abs(high))
    assert low <= estimate.value <= high
    if truth is not None:
        assert low - slack <= truth <= high + slack
    if estimate.low is not None:
        assert math.isfinite(estimate.low)
        assert math.isfinite(estimate.high)
        assert scale[0] <= estimate.low <= estimate.value <= estimate.high <= scale[1]
        assert 0.5 <= estimate.level < 1
    assert scale[0] - slack <= low <= high <= scale[1] + slack


def check_includes_bounds(estimate):
    """Without noise an interval for the population includes all that binning allows."""
    low, high = estimate.bounds
    slack = ROUNDING * max(1.0, abs(low), abs(high))
    assert estimate.low <= low + slack
    assert high - slack <= estimate.high


SCALES = {"mcc": (-1, 1), "youden_j": (-1, 1)}


def check_threshold(at, examples, threshold):
    outcomes = outcomes_of(examples, threshold)
    undefined = set()
    expected = true_metrics(outcomes)
    for name, truth in expected.items():
        try:
            estimate = getattr(at, name)
        except UndefinedMetric:
            undefined.add(name)
            continue
        check(estimate, None if math.isnan(truth) else truth, SCALES.get(name, (0, 1)))
        check_includes_bounds(estimate)
    assert {name: expected[name] for name in undefined if not math.isnan(expected[name])} == {}
    found = at.confusion_matrix
    for estimate, truth in zip((found.tp, found.fp, found.fn, found.tn), outcomes, strict=True):
        check(estimate, truth, (0, math.inf))


def check_losses(result, labels, scores):
    """Losses of these rows; entropy is not normalized of one class."""
    log_loss, rate = sk.log_loss(labels, scores, labels=[0, 1]), labels.mean()
    found = [(result.log_loss, log_loss, math.inf)]
    found += [(result.brier_score, np.mean((scores - labels) ** 2), 1)]
    if 0 < rate < 1:
        entropy = -rate * math.log(rate) - (1 - rate) * math.log(1 - rate)
        found += [(result.normalized_entropy, log_loss / entropy, math.inf)]
    else:
        with pytest.raises(UndefinedMetric, match="both classes"):
            result.normalized_entropy  # noqa: B018
    for estimate, truth, most in found:
        check(estimate, truth, (0, most))
        check_includes_bounds(estimate)
