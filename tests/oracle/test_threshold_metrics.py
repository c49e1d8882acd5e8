"""Metrics at a threshold against scikit-learn, their intervals against closed forms."""

import math

import numpy as np
import pytest
from refusals import refused
from scipy.special import ndtr, ndtri
from scipy.stats import chi2
from sklearn import metrics as sk

import fedgauge as fg
from fedgauge import Axis, InputError, UndefinedMetric
from fedgauge.metrics.estimate import metrics_of

NAMES = [row.name for row in metrics_of(fg.AtThreshold)]


def draw(name):
    rng = np.random.default_rng(sum(map(ord, name)))
    if name == "random":
        labels = (rng.random(300) < 0.4).astype(int)
        return labels, np.round(20 * rng.beta(2 + labels, 3 - labels)) / 20
    if name == "tied":
        labels = (rng.random(200) < 0.5).astype(int)
        return labels, np.clip(rng.integers(0, 8, 200) + 2 * labels, 0, 10) / 10
    if name == "0.1% positive":
        labels = (np.arange(4000) % 1000 == 7).astype(int)
        return labels, np.round(20 * rng.beta(1 + 2 * labels, 6)) / 20
    if name in ("negatives only", "positives only"):
        return np.full(40, int(name.startswith("p"))), np.round(rng.random(40), 1)
    size = int(name.split()[0])  # tiny
    labels = rng.permutation(np.arange(size) % 2)
    return labels, np.round(rng.random(size), 1)


DATA = (
    "random",
    "tied",
    "0.1% positive",
    "negatives only",
    "positives only",
    *(f"{size} rows" for size in range(1, 6)),
)
AXES = {
    "uniform": lambda _: Axis.uniform(10),
    "uniform, clip": lambda _: Axis.uniform(6, 0.2, 0.8, outside="clip"),
    "logit": lambda _: Axis.logit(6, limit=2),
    "logit, clip": lambda _: Axis.logit(5, limit=3, outside="clip"),
    "edges": lambda _: Axis.from_edges([0.0, 0.05, 0.1, 0.3, 0.31, 0.5, 0.9, 1.0]),
    "edges, clip": lambda _: Axis.from_edges([0.1, 0.2, 0.5, 0.6], outside="clip"),
    "values": lambda scores: Axis.from_values(scores),
    "values, clip": lambda _: Axis.from_values(np.arange(2, 8) / 10, outside="clip"),
}
CASES = [
    *((name, kind) for name in DATA for kind in AXES if kind.startswith(("uniform", "values"))),
    *((name, kind) for name in ("random", "5 rows") for kind in AXES if kind[0] in "le"),
]


def pool(labels, scores, axis):
    """Results of two clients (or of one row)."""
    half = (len(labels) + 1) // 2
    parts = {"a": slice(None, half), "b": slice(half, None)}
    clients = {
        site: (labels[part], scores[part]) for site, part in parts.items() if labels[part].size
    }
    return fg.evaluate(clients, axis=axis)


def exact_thresholds(axis):
    """Where counts are exact: every lower edge, but not the lowest where scores are clipped."""
    inner = axis.thresholds[1:] if axis.outside == "clip" else axis.thresholds
    return [-math.inf, *inner.tolist(), math.inf]


def scikit_learns(labels, predicted):
    """Every metric by name; NaN where it is undefined."""
    both = 0 < labels.sum() < len(labels)
    (tn, fp), (fn, tp) = sk.confusion_matrix(labels, predicted, labels=[0, 1])
    (npv, precision), (specificity, recall), (_, f1), _ = sk.precision_recall_fscore_support(
        labels, predicted, labels=[0, 1], zero_division=np.nan
    )
    correlates = both and 0 < predicted.sum() < len(labels)
    return {
        "precision": precision,
        "recall": recall,
        "specificity": specificity,
        "npv": npv,
        "accuracy": sk.accuracy_score(labels, predicted),
        "balanced_accuracy": (sk.balanced_accuracy_score(labels, predicted) if both else math.nan),
        "f1": f1,
        "mcc": sk.matthews_corrcoef(labels, predicted) if correlates else math.nan,
        "youden_j": (
            sk.balanced_accuracy_score(labels, predicted, adjusted=True) if both else math.nan
        ),
        "fpr": 1 - specificity,
        "fnr": 1 - recall,
        "flagged": predicted.mean(),
        "prevalence": labels.mean(),
    }, (tn, fp, fn, tp)


@pytest.mark.parametrize(("name", "kind"), CASES, ids=str)
def test_every_metric_at_every_edge_is_scikit_learns(name, kind):
    labels, scores = draw(name)
    axis = AXES[kind](scores)
    result = pool(labels, scores, axis)
    undefined = 0
    for threshold in exact_thresholds(axis):
        at = result.at_threshold(threshold)
        expected, cells = scikit_learns(labels, (scores >= threshold).astype(int))
        assert at.on_edge
        assert [e.value for e in at.confusion_matrix] == list(cells)
        assert all(e.bounds == (e.value, e.value) for e in at.confusion_matrix)
        assert set(expected) == set(NAMES)
        for metric, value in expected.items():
            if math.isnan(value):
                undefined += 1
                with pytest.raises(UndefinedMetric, match=rf"{metric} is undefined at threshold"):
                    getattr(at, metric)
                continue
            found = getattr(at, metric)
            assert found.value == pytest.approx(value, abs=1e-12), (metric, threshold)
            assert found.bounds == pytest.approx((value, value), abs=1e-12)
            assert found.parts["binning"] == pytest.approx(0, abs=1e-15)
            assert found.low <= found.value <= found.high
            assert found.level == 0.95
    assert undefined >= 4  # at both infinities precision or npv, and mcc


@pytest.mark.parametrize("beta", [0.25, 0.5, 1, 2, 10])
@pytest.mark.parametrize("name", ["random", "0.1% positive", "4 rows"])
def test_f_beta_is_scikit_learns(name, beta):
    labels, scores = draw(name)
    result = pool(labels, scores, Axis.uniform(16))
    for threshold in (-math.inf, 0.25, 0.5, 0.75):
        expected = sk.fbeta_score(labels, scores >= threshold, beta=beta, zero_division=0)
        found = result.at_threshold(threshold).f_beta(beta)
        assert found.value == pytest.approx(expected, abs=1e-12)
        assert found.low <= found.value <= found.high


def test_f_beta_of_one_is_f1_and_of_no_positive_number_nothing():
    at = pool(*draw("random"), Axis.uniform(16)).at_threshold(0.5)
    assert at.f_beta(1) == at.f1
    for beta in (0, -1, math.nan, math.inf):
        refused(InputError, "beta must be a positive number", at.f_beta, beta)


ONE_CLASS = dict.fromkeys(("balanced_accuracy", "youden_j", "mcc"), "one class has no example")
NO_POSITIVE = ONE_CLASS | dict.fromkeys(("recall", "fnr"), "there is no positive example")
ONE_SIDE = {"mcc": "all examples lie on one side of it"}
REASONS = {
    ("random", math.inf): ONE_SIDE | {"precision": "no example scores at or above it"},
    ("random", -math.inf): ONE_SIDE | {"npv": "every example scores at or above it"},
    ("negatives only", 0.5): NO_POSITIVE,
    ("negatives only", math.inf): NO_POSITIVE
    | {
        "precision": "no example scores at or above it",
        "f1": "there is no positive example and none is flagged",
    },
    ("positives only", 0.5): ONE_CLASS
    | dict.fromkeys(("specificity", "fpr"), "there is no negative example"),
}


@pytest.mark.parametrize(("name", "threshold"), REASONS, ids=str)
def test_what_is_undefined_says_why(name, threshold):
    at = pool(*draw(name), Axis.uniform(8)).at_threshold(threshold)
    reasons = REASONS[name, threshold]
    for metric, reason in reasons.items():
        refused(UndefinedMetric, reason, getattr, at, metric)
    assert {metric for metric, found in at.as_dict().items() if found is None} == set(reasons)


def test_one_class_still_has_its_rate():
    labels, scores = draw("positives only")
    at = pool(labels, scores, Axis.uniform(8)).at_threshold(0.5)
    assert at.precision.value == 1
    assert at.recall.value == at.accuracy.value == np.mean(scores >= 0.5)
    assert at.npv.value == 0


def wilson(successes, total, level):
    """Wilson 1927, in closed form; for 1 to 3 of the rarer outcome Brown, Cai & DasGupta 2001."""
    z = float(ndtri((1 + level) / 2))
    p, shrink = successes / total, 1 + z * z / total
    middle = (p + z * z / (2 * total)) / shrink
    reach = z / shrink * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total))
    low, high = middle - reach, middle + reach
    few, alpha = min(successes, total - successes), 2 * float(ndtr(-z))
    if 1 <= few <= 3 and 2 * few < total:
        far = chi2.ppf(alpha, 2 * few) / 2 / total
        return (min(low, far), high) if few == successes else (low, max(high, 1 - far))
    return low, high


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize("name", ["random", "0.1% positive", "3 rows"])
def test_intervals_of_rates_are_wilsons(name, level):
    labels, scores = draw(name)
    result = pool(labels, scores, Axis.uniform(8)).at_level(level)
    for threshold in (-math.inf, 0.125, 0.5, 0.875, math.inf):
        flagged = scores >= threshold
        right = flagged == (labels == 1)
        at = result.at_threshold(threshold).as_dict()
        for metric, group, success in (
            ("precision", flagged, labels == 1),
            ("recall", labels == 1, flagged),
            ("specificity", labels == 0, ~flagged),
            ("npv", ~flagged, labels == 0),
            ("accuracy", flagged | ~flagged, right),
            ("fpr", labels == 0, flagged),
            ("fnr", labels == 1, ~flagged),
            ("flagged", flagged | ~flagged, flagged),
            ("prevalence", flagged | ~flagged, labels == 1),
        ):
            total, successes = int(group.sum()), int((group & success).sum())
            if not total:
                assert at[metric] is None
                continue
            low, high = wilson(successes, total, level)
            found = at[metric]
            assert (found.low, found.high) == pytest.approx((max(low, 0), min(high, 1)), abs=1e-12)
            p = successes / total
            assert found.parts["sampling"] == pytest.approx(math.sqrt(p * (1 - p) / total))


def test_difference_of_rates_is_newcombes():
    # Newcombe 1998, method 10: squares of the distances to the ends of both Wilson intervals.
    labels, scores = draw("random")
    at = pool(labels, scores, Axis.uniform(8)).at_threshold(0.5)
    sides = [(int((scores[labels == y] >= 0.5).sum()), int((labels == y).sum())) for y in (1, 0)]
    (p, q), ((p_low, p_high), (q_low, q_high)) = (
        [found / total for found, total in sides],
        [wilson(*side, 0.95) for side in sides],
    )
    low = p - q - math.hypot(p - p_low, q_high - q)
    high = p - q + math.hypot(p_high - p, q - q_low)
    assert (at.youden_j.low, at.youden_j.high) == pytest.approx((low, high), abs=1e-12)
    balanced = at.balanced_accuracy
    assert (balanced.low, balanced.high) == pytest.approx(((1 + low) / 2, (1 + high) / 2))
    assert balanced.parts["sampling"] == pytest.approx(at.youden_j.parts["sampling"] / 2)


def test_spread_of_f1_and_mcc_over_samples_false_alarm_below_one_in_a_million():
    """Standard deviations over 4,000 samples are off by 1.1%; 8% are seven of these."""
    rng = np.random.default_rng(5)
    cells = rng.multinomial(2000, [0.2, 0.1, 0.15, 0.55], 4000)  # tp, fp, fn, tn
    counts = np.array([[0.55, 0.1], [0.15, 0.2]]) * 2000
    labels = np.repeat([0, 0, 1, 1], counts.ravel().astype(int))
    scores = np.repeat([0.25, 0.75, 0.25, 0.75], counts.ravel().astype(int))
    at = pool(labels, scores, Axis.uniform(2)).at_threshold(0.5)
    tp, fp, fn, tn = cells.T.astype(float)
    f1 = 2 * tp / (2 * tp + fp + fn)
    mcc = (tp * tn - fp * fn) / np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    for found, drawn in ((at.f1, f1), (at.mcc, mcc)):
        assert found.parts["sampling"] == pytest.approx(drawn.std(), rel=0.08)
        middle = np.quantile(drawn, [0.025, 0.975])
        # The interval stands on the estimate, the draws around it: same width.
        assert found.high - found.low == pytest.approx(np.ptp(middle), rel=0.1)
        assert found.low < found.value < found.high


def brute_force(labels, scores, axis, *, fpr=None, recall=None, precision=None, cost=None):
    """All edges and infinity, from the highest down: the first of the best."""
    best = None
    for t in [math.inf, *axis.thresholds[::-1].tolist()]:
        flagged = scores >= t
        tp, fp = int((flagged & (labels == 1)).sum()), int((flagged & (labels == 0)).sum())
        positives, negatives = int(labels.sum()), int((labels == 0).sum())
        if fpr is not None:
            fits, merit = fp <= fpr * negatives + 1e-9, tp
        elif recall is not None:
            fits, merit = tp >= recall * positives - 1e-9, -fp
        elif precision is not None:
            fits, merit = tp + fp > 0 and tp >= precision * (tp + fp) - 1e-9, tp
        else:
            fits, merit = True, -(cost[0] * fp + cost[1] * (positives - tp))
        if fits and (best is None or merit > best[0]):
            best = merit, t
    return best


WANTED = [
    *({"fpr": rate} for rate in (0, 0.01, 0.1, 0.5, 1)),
    *({"recall": rate} for rate in (0, 0.2, 0.9, 1)),
    *({"precision": rate} for rate in (0, 0.3, 0.6, 0.9, 1)),
    *({"cost": pair} for pair in ((1, 1), (1, 0), (0, 1), (1, 25), (40, 1), (0.5, 0.5))),
]


@pytest.mark.parametrize("kind", ["uniform", "logit", "edges", "values"])
@pytest.mark.parametrize("name", ["random", "tied", "0.1% positive", "3 rows", "5 rows"])
def test_threshold_for_is_the_best_of_all_edges(name, kind):
    labels, scores = draw(name)
    axis = AXES[kind](scores)
    result = pool(labels, scores, axis)
    for wanted in WANTED:
        best = brute_force(labels, scores, axis, **wanted)
        if best is None:
            with pytest.raises(UndefinedMetric, match="no threshold reaches precision"):
                result.threshold_for(**wanted)
            continue
        at = result.threshold_for(**wanted)
        assert at.threshold == best[1], wanted
        assert at.on_edge
        for metric, rate in wanted.items():
            if metric == "fpr":
                assert at.fpr.value <= rate + 1e-9
            elif metric != "cost":
                assert getattr(at, metric).value >= rate - 1e-9


def test_what_is_reached_between_edges_only_is_out_of_reach():
    labels, scores = [0, 1, 0, 1], [0.1, 0.2, 0.6, 0.7]  # 0.65 would have precision 1
    result = fg.evaluate({"a": (labels, scores)}, axis=Axis.uniform(2))
    with pytest.raises(UndefinedMetric, match=r"precision 0\.9; the highest .* is 0\.5000"):
        result.threshold_for(precision=0.9)


def test_nothing_is_flagged_where_nothing_may_be():
    result = fg.evaluate({"a": ([1, 0], [0.2, 0.9])}, axis=Axis.uniform(4))
    at = result.threshold_for(fpr=0)
    assert at.threshold == math.inf
    assert at.confusion_matrix.fp.value == at.confusion_matrix.tp.value == 0
    assert result.threshold_for(cost=(5, 1)).threshold == math.inf


@pytest.mark.parametrize(
    ("labels", "wanted", "word"),
    [([0, 0], {"recall": 0.5}, "positive"), ([1, 1], {"fpr": 0.5}, "negative")],
    ids=["recall", "fpr"],
)
def test_a_rate_of_nobody_is_undefined(labels, wanted, word):
    result = fg.evaluate({"a": (labels, [0.2, 0.9])}, axis=Axis.uniform(4))
    refused(UndefinedMetric, f"there is no {word} example", result.threshold_for, **wanted)


@pytest.mark.parametrize("wanted", WANTED, ids=str)
@pytest.mark.parametrize(
    "axis", [AXES["uniform, clip"](None), AXES["values, clip"](None)], ids=repr
)
def test_threshold_for_keeps_its_word_where_scores_are_clipped(axis, wanted):
    labels, scores = draw("random")
    result = pool(labels, scores, axis)
    try:
        chosen = result.threshold_for(**wanted).threshold
    except UndefinedMetric:
        assert "precision" in wanted
        return
    flagged = scores >= chosen
    for metric, rate in wanted.items():
        if metric == "fpr":
            assert flagged[labels == 0].mean() <= rate + 1e-9
        elif metric == "recall":
            assert flagged[labels == 1].mean() >= rate - 1e-9
        elif metric == "precision":
            assert labels[flagged].mean() >= rate - 1e-9


NO_RATES = [{"fpr": -0.1}, {"recall": 1.5}, {"precision": math.nan}, {"fpr": "x"}]
NO_COSTS = (3, (1,), (1, 2, 3), (0, 0), (-1, 2), (1, math.inf), (math.nan, 1), ("x", 1))


@pytest.mark.parametrize(
    "wanted",
    [{}, {"fpr": 0.1, "recall": 0.5}, *NO_RATES, *({"cost": cost} for cost in NO_COSTS)],
    ids=str,
)
def test_what_cannot_be_wanted(wanted):
    with pytest.raises(InputError):
        pool(*draw("random"), Axis.uniform(16)).threshold_for(**wanted)
