"""Areas, distances, losses and their spreads against scikit-learn, SciPy and brute force."""

import math
from itertools import pairwise

import numpy as np
import pytest
from refusals import refused
from scipy import stats
from sklearn import metrics as sk

import fedgauge as fg
from fedgauge import Axis, InputError, UndefinedMetric
from fedgauge.metrics import areas
from fedgauge.metrics import estimate as intervals

pytestmark = pytest.mark.filterwarnings("ignore:.*the ROC AUC is below 0.4")


def draw(name, size=240):
    rng = np.random.default_rng(sum(map(ord, name)))
    labels = (np.arange(size) % 3 == 0).astype(int)
    if name == "tied":
        return labels, np.clip(rng.integers(0, 8, size) + 2 * labels, 0, 10) / 10
    if name == "worse than chance":
        return labels, np.round(rng.beta(3 - labels, 2 + labels), 2)
    if name == "rare":
        labels = (np.arange(4000) % 1000 == 7).astype(int)
        return labels, np.round(rng.beta(1 + 2 * labels, 4), 2)
    if name == "mostly positive":
        labels = (np.arange(size) % 12 != 0).astype(int)
        return labels, np.round(rng.beta(2 + labels, 3 - labels), 2)
    if name == "perfect":
        return labels, np.round(0.4 * rng.random(size) + 0.5 * labels, 2)
    if name == "inverted":
        return labels, np.round(0.4 * rng.random(size) + 0.5 * (1 - labels), 2)
    if name == "two rows":
        return np.array([0, 1]), np.array([0.3, 0.6])
    if name == "flat at the start":  # recall stays where it equals the share of positives
        return np.array([1, 0, 0, 1, 0, 1, 0, 1]), np.array([9, 8, 7, 9, 7, 5, 5, 3]) / 10
    if name == "constant":
        return labels, np.full(size, 0.25)
    return labels, np.round(rng.beta(2 + labels, 3 - labels), 3)


DATA = (
    "random",
    "tied",
    "worse than chance",
    "rare",
    "mostly positive",
    "perfect",
    "inverted",
    "two rows",
    "constant",
    "flat at the start",
)
data = pytest.mark.parametrize("name", DATA)


def on_values(name):
    labels, scores = draw(name)
    return fg.evaluate({"a": (labels, scores)}, axis=Axis.from_values(scores))


def check_exact(estimate, value, atol=1e-12):
    scale = max(1.0, abs(value))
    assert estimate.value == pytest.approx(value, abs=atol * scale)
    assert estimate.bounds == pytest.approx((value, value), abs=3 * atol * scale)


@data
@pytest.mark.parametrize("max_fpr", [0.001, 0.05, 0.3, 0.5, 0.999, 1.0])
def test_partial_area_is_scikit_learns(name, max_fpr):
    labels, scores = draw(name)
    result = on_values(name)
    standard = sk.roc_auc_score(labels, scores, max_fpr=max_fpr)
    check_exact(result.partial_auc(max_fpr), standard)
    fpr, tpr, _ = sk.roc_curve(labels, scores, drop_intermediate=False)
    # The plain area: fine steps below each knot and at the end.
    x = np.append(fpr[fpr <= max_fpr], max_fpr)
    inside = tpr[fpr <= max_fpr]
    after = int(np.argmax(fpr > max_fpr)) if np.any(fpr > max_fpr) else None
    end = inside[-1]
    if after is not None:
        share = (max_fpr - x[-2]) / (fpr[after] - x[-2])
        end = inside[-1] + share * (tpr[after] - inside[-1])
    check_exact(
        result.partial_auc(max_fpr, standardise=False), np.trapezoid(np.append(inside, end), x)
    )


@pytest.mark.parametrize("max_fpr", [0, -0.1, 1.1, math.nan, math.inf])
def test_no_partial_area(max_fpr):
    with pytest.raises(InputError, match="max_fpr must lie above 0 and at most at 1"):
        on_values("tied").partial_auc(max_fpr)


@data
def test_mann_whitney_u_and_ks_statistic_are_scipys_and_det_curve_scikit_learns(name):
    labels, scores = draw(name)
    u = stats.mannwhitneyu(scores[labels == 1], scores[labels == 0]).statistic
    found = on_values(name).mann_whitney_u
    check_exact(found, u)
    assert (found.low, found.high, found.level) == (None, None, None)
    d = stats.ks_2samp(scores[labels == 1], scores[labels == 0]).statistic
    check_exact(on_values(name).ks_statistic, d)
    found, expected = on_values(name).det_curve(), sk.det_curve(labels, scores)
    for part, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(part, wanted, atol=1e-12)
    x = np.linspace(0, 1, 21)
    np.testing.assert_allclose(found(x), 1 - found.roc(x), atol=0)


def precision_recall_gain(labels, scores):
    """Flach & Kull 2015, section 3, point by point; a crossing where recall gain is 0. Between two
    operating points true and false positives mix in proportion."""
    share = labels.mean()
    positives, negatives = labels.sum(), len(labels) - labels.sum()
    points = [(0.0, 0.0)]
    for t in np.unique(scores)[::-1]:
        flagged = scores >= t
        points.append((labels[flagged].sum(), (1 - labels)[flagged].sum()))
    curve = []
    for (tp0, fp0), (tp, fp) in pairwise(points):
        start = share * positives  # the true positives where recall is the share of positives
        if tp0 < start < tp:
            mixed = (start - tp0) / (tp - tp0)
            curve.append(gains(start, fp0 + mixed * (fp - fp0), positives, share))
        if tp >= start:
            curve.append(gains(tp, fp, positives, share))
    assert negatives > 0
    return curve


def gains(tp, fp, positives, share):
    precision, recall = tp / (tp + fp), tp / positives
    return tuple((rate - share) / ((1 - share) * rate) for rate in (precision, recall))


@data
def test_precision_recall_gain_is_that_of_the_papers_definition(name):
    labels, scores = draw(name)
    curve = precision_recall_gain(labels, scores)
    area = 0.0
    for (height0, width0), (height, width) in pairwise(curve):
        area += (width - width0) * (height + height0) / 2
    assert curve[0][1] == pytest.approx(0, abs=1e-12)
    assert curve[-1][1] == pytest.approx(1, abs=1e-12)
    check_exact(on_values(name).auprg, area, atol=1e-10)
    expected = np.array(precision_recall_gain(labels, scores))
    found = on_values(name).prg_curve()
    knots = np.column_stack([found.precision_gain, found.recall_gain])
    knots = knots[np.append(True, np.abs(np.diff(knots, axis=0)).max(axis=1) > 1e-12)]
    np.testing.assert_allclose(knots, expected, rtol=1e-9, atol=1e-9)
    # Thresholds belong to their points, but the first, which lies on the way to its own.
    for t, gain in list(zip(found.thresholds, found.recall_gain, strict=True))[1:]:
        recall = np.mean(scores[labels == 1] >= t)
        assert gain == pytest.approx(gains(recall, 1, 1, labels.mean())[1], abs=1e-9)
    # Between knots the curve is straight.
    x, y = np.clip(found.recall_gain, 0, 1), found.precision_gain
    apart = np.diff(x) > 1e-9
    middle, height = (x[:-1] + x[1:])[apart] / 2, (y[:-1] + y[1:])[apart] / 2
    np.testing.assert_allclose(found(middle), height, rtol=1e-6, atol=1e-6)


@data
def test_gain_and_lift_are_counted(name):
    labels, scores = draw(name)
    curve = on_values(name).gain_curve()
    for flagged, recall, t in zip(*curve, strict=True):
        assert flagged == pytest.approx(np.mean(scores >= t), abs=1e-12)
        assert recall == pytest.approx(np.mean(scores[labels == 1] >= t), abs=1e-12)
        assert curve(flagged) == pytest.approx(recall, abs=1e-9)
        if flagged > 0:
            precision = labels[scores >= t].mean()
            assert curve.lift(flagged) == pytest.approx(precision / labels.mean(), rel=1e-6)
    assert math.isnan(curve.lift(0.0))
    assert (curve.flagged[0], curve.recall[0]) == (0, 0)
    assert (curve.flagged[-1], curve.recall[-1]) == (1, 1)
    middle = (curve.flagged[:-1] + curve.flagged[1:]) / 2
    np.testing.assert_allclose(curve(middle), (curve.recall[:-1] + curve.recall[1:]) / 2, atol=1e-9)
    refused(InputError, "between 0 and 1", curve.lift, 1.5)


EXTREME = np.array([0.0, 1e-300, 1e-17, 3e-16, 1e-9, 1e-4, 0.3, 0.9999, 1 - 1e-9, 1 - 1e-16, 1.0])


@pytest.mark.parametrize("right", [True, False], ids=["mostly right", "mostly wrong"])
def test_losses_at_extreme_scores_are_scikit_learns(right):
    labels = (EXTREME > 0.5).astype(int)
    labels[[1, 6, 8]] = 1 - labels[[1, 6, 8]]
    if not right:
        labels = 1 - labels
    result = fg.evaluate({"a": (labels, EXTREME)}, axis=Axis.from_values(EXTREME))
    loss = sk.log_loss(labels, EXTREME)
    check_exact(result.log_loss, loss)
    check_exact(result.brier_score, sk.brier_score_loss(labels, EXTREME))
    base = stats.bernoulli(labels.mean()).entropy()
    check_exact(result.normalized_entropy, loss / base)


@data
def test_losses_are_scikit_learns(name):
    labels, scores = draw(name)
    result = on_values(name)
    loss = sk.log_loss(labels, scores)
    check_exact(result.log_loss, loss)
    check_exact(result.brier_score, sk.brier_score_loss(labels, scores))
    constant = np.full(len(labels), labels.mean())
    check_exact(result.normalized_entropy, loss / sk.log_loss(labels, constant), atol=1e-11)


@pytest.mark.parametrize("label", [0, 1])
def test_losses_of_one_class(label):
    scores = np.array([0.1, 0.5, 0.5, 0.9])
    labels = np.full(4, label)
    result = fg.evaluate({"a": (labels, scores)}, axis=Axis.from_values(scores))
    check_exact(result.log_loss, sk.log_loss(labels, scores, labels=[0, 1]))
    check_exact(result.brier_score, np.mean((scores - label) ** 2))
    for ask in ("normalized_entropy", "ks_statistic", "auprg", "mann_whitney_u"):
        refused(UndefinedMetric, r"class|no client has a", getattr, result, ask)


@pytest.mark.parametrize(
    "axis", [Axis.uniform(512), Axis.logit(512), Axis.uniform(512, outside="clip")], ids=repr
)
def test_losses_on_fine_bins_are_close(axis):
    rng = np.random.default_rng(8)
    scores = rng.beta(0.8, 2, 20_000)
    labels = (rng.random(20_000) < scores).astype(int)
    result = fg.evaluate({"a": (labels, scores)}, axis=axis)
    for found, value in (
        (result.log_loss, sk.log_loss(labels, scores)),
        (result.brier_score, sk.brier_score_loss(labels, scores)),
    ):
        assert found.bounds[0] <= value <= found.bounds[1]
        # The likely place in a bin is far better than what binning allows.
        assert abs(found.value - value) < 2e-4
        assert abs(found.value - value) < 0.2 * found.parts["binning"]


def test_losses_on_coarse_bins_follow_the_counts_around():
    """Scores as steep as their neighbours' counts say: nearer than evenly spread ones."""
    rng = np.random.default_rng(8)
    scores = rng.beta(0.8, 3, 20_000)
    labels = (rng.random(20_000) < scores).astype(int)
    result = fg.evaluate({"a": (labels, scores)}, axis=Axis.uniform(12))
    bins = np.floor(scores * 12).astype(int)
    ends = np.stack([bins, bins + 1]) / 12
    off = np.where(labels == 1, 1 - ends, ends)
    evenly = np.mean((off[0] ** 2 + off[0] * off[1] + off[1] ** 2) / 3)
    exact = sk.brier_score_loss(labels, scores)
    assert abs(result.brier_score.value - exact) < 0.3 * abs(evenly - exact)


def test_spread_of_losses_counts_what_happens_within_bins():
    rng = np.random.default_rng(9)
    scores, labels = rng.random(20_000), rng.integers(0, 2, 20_000)
    result = fg.evaluate({"a": (labels, scores)}, axis=Axis.uniform(3))
    for found, each in (
        (result.log_loss, -np.log(np.where(labels == 1, scores, 1 - scores))),
        (result.brier_score, (scores - labels) ** 2),
    ):
        exact = each.std() / math.sqrt(len(each))
        assert found.parts["sampling"] == pytest.approx(exact, rel=0.04)


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_bootstrap_intervals_are_about_normal_where_examples_are_many(level):
    """Quantiles of 200 draws are off by about a tenth of their distance."""
    result = fg.evaluate({"a": draw("tied", 3000)}, axis=Axis.from_values(np.arange(11) / 10))
    result = result.at_level(level)
    for found in (result.partial_auc(0.3), result.auprg):
        width = 2 * intervals.critical(level) * found.parts["sampling"]
        assert found.high - found.low == pytest.approx(width, rel=0.2)


@pytest.mark.parametrize("edges", [(-1, 0, 1), (0, 1, 1.5)], ids=str)
def test_losses_need_probabilities(edges):
    result = fg.evaluate({"a": ([0, 1], [0.2, 0.8])}, axis=Axis.from_edges(edges))
    for name in ("log_loss", "brier_score", "normalized_entropy"):
        refused(UndefinedMetric, "need probabilities; this axis runs from", getattr, result, name)
    assert result.roc_auc.value >= 0


def test_spread_of_losses_over_examples():
    labels, scores = draw("random")
    result = on_values("random")
    for found, each in (
        (result.log_loss, -np.log(np.where(labels == 1, scores, 1 - scores))),
        (result.brier_score, (scores - labels) ** 2),
    ):
        assert found.parts["sampling"] == pytest.approx(each.std() / math.sqrt(len(each)))
        reach = intervals.critical(0.95) * found.parts["sampling"]
        assert found.high == pytest.approx(found.value * math.exp(reach / found.value))
        assert found.low == pytest.approx(found.value * math.exp(-reach / found.value))


def test_spread_of_normalized_entropy_over_samples_false_alarm_below_one_in_a_million():
    """Standard deviations over 3,000 bootstrap samples are off by 1.3%; 8% are six of these."""
    labels, scores = draw("random")
    each = -np.log(np.where(labels == 1, scores, 1 - scores))
    rows = np.random.default_rng(3).integers(0, len(labels), (3000, len(labels)))
    rates = labels[rows].mean(axis=1)
    again = each[rows].mean(axis=1) / stats.bernoulli(rates).entropy()
    found = on_values("random").normalized_entropy
    assert found.parts["sampling"] == pytest.approx(again.std(), rel=0.08)


def delong(labels, scores):
    """DeLong et al. 1988, from every pair."""
    positive, negative = scores[labels == 1], scores[labels == 0]
    won = (positive[:, None] > negative) + (positive[:, None] == negative) / 2
    return sum(np.var(won.mean(axis=axis), ddof=1) / won.shape[1 - axis] for axis in (0, 1))


@pytest.mark.parametrize("name", ["random", "tied", "worse than chance", "rare", "mostly positive"])
def test_spread_of_the_auc_is_delongs(name):
    labels, scores = draw(name)
    exact = math.sqrt(delong(labels, scores))
    assert on_values(name).roc_auc.parts["sampling"] == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize(("bins", "off"), [(16, 0.02), (64, 0.003), (1024, 3e-4)])
def test_spread_of_the_auc_on_bins_is_near_delongs(bins, off):
    rng = np.random.default_rng(4)
    labels = (rng.random(1500) < 0.3).astype(int)
    scores = rng.beta(2 + labels, 3 - labels)
    result = fg.evaluate({"a": (labels, scores)}, axis=Axis.uniform(bins))
    exact = math.sqrt(delong(labels, scores))
    assert result.roc_auc.parts["sampling"] == pytest.approx(exact, rel=off)


def test_placements_spread_within_bins():
    """Scores spread evenly in two bins; a standard deviation 5% off would be seen."""
    counts = np.array([[300, 200], [100, 400]])
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 0, 1, 1], counts.ravel())
    bins = np.repeat([0, 1, 0, 1], counts.ravel())
    exact = np.mean([delong(labels, bins + rng.random(1000)) for _ in range(8)])
    found, tied = (areas.auc_sampling_variance(counts.astype(float), tied=t) for t in (False, True))
    assert found == pytest.approx(exact, rel=0.03)
    assert tied < 0.9 * exact


def test_interval_of_the_auc_is_normal_in_log_odds():
    result = on_values("random")
    auc, deviation = result.roc_auc.value, math.sqrt(delong(*draw("random")))
    z = stats.norm.ppf(0.975)
    odds = np.log(auc / (1 - auc)) + np.array([-1, 1]) * z * deviation / (auc * (1 - auc))
    expected = 1 / (1 + np.exp(-odds))
    assert (result.roc_auc.low, result.roc_auc.high) == pytest.approx(expected, abs=1e-12)


def numerical_gradient(function, counts, step=1e-4):
    gradient = np.zeros_like(counts)
    for place in np.ndindex(counts.shape):
        moved = [counts.copy(), counts.copy()]
        moved[0][place] += step
        moved[1][place] -= step
        gradient[place] = (function(moved[0]) - function(moved[1])) / (2 * step)
    return gradient


def middle_precision(counts):
    """Sum of p_i q_i / n+, q_i the precision in the middle of bin i."""
    negatives, positives = counts[:, ::-1]
    found = np.cumsum(positives) - positives / 2
    flagged = found + np.cumsum(negatives) - negatives / 2
    return float(positives @ (found / flagged)) / positives.sum()


COUNTS = [
    np.array([[30.0, 15, 4, 1], [2, 5, 6, 12]]),
    np.array([[3.0, 0, 4, 1, 7], [2, 5, 0, 12, 1]]),
    np.array([[900.0, 50, 9], [1, 2, 3]]),
    np.array([[5.0], [3]]),
]


@pytest.mark.parametrize("counts", COUNTS, ids=lambda counts: f"{counts.shape[1]} bins")
def test_gradients_are_numerical_derivatives(counts):
    for gradient, function in (
        (areas.auc_gradient(counts), lambda c: areas.straight_auc(*c)),
        (areas.average_precision_gradient(counts), middle_precision),
    ):
        expected = numerical_gradient(function, counts)
        np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-9)
        # Twice the examples are the same rates.
        np.testing.assert_allclose(np.sum(gradient * counts), 0, atol=1e-12)


def test_gradient_of_average_precision_takes_many_counts_at_once():
    stacked = np.stack([COUNTS[0], COUNTS[0][:, ::-1], COUNTS[0] * 3])
    for one, every in zip(stacked, areas.average_precision_gradient(stacked), strict=True):
        np.testing.assert_array_equal(areas.average_precision_gradient(one), every)
    for tied in (True, False):
        each = [areas.average_precision_variance(one, tied=tied) for one in stacked]
        np.testing.assert_allclose(areas.average_precision_variance(stacked, tied=tied), each)
    each = [areas.straight_average_precision(one) for one in stacked]
    np.testing.assert_allclose(areas.straight_average_precision(stacked), each)


@pytest.mark.parametrize("counts", COUNTS, ids=lambda counts: f"{counts.shape[1]} bins")
def test_straight_average_precision_is_the_area_under_the_straight_curve(counts):
    labels = np.repeat(np.repeat([0, 1], counts.shape[1]), counts.ravel().astype(int))
    bins = np.tile(np.arange(counts.shape[1]), 2)
    scores = (np.repeat(bins, counts.ravel().astype(int)) + 0.5) / counts.shape[1]
    result = fg.evaluate(
        {"a": (labels, scores)}, axis=Axis.uniform(counts.shape[1]), estimator=fg.Aligned("linear")
    )
    area = result.pr_curve().path.area()
    assert areas.straight_average_precision(counts) == pytest.approx(area, abs=1e-9)


def test_spread_of_average_precision_over_samples_false_alarm_below_one_in_a_million():
    """Standard deviations over 3,000 bootstrap samples are off by 1.3%; 10% are seven of these. The
    first-order formula itself is off by a few per cent at this size."""
    labels, scores = draw("random", 900)
    rng = np.random.default_rng(1)
    counts = np.array([np.histogram(scores[labels == y], 64, (0, 1))[0] for y in (0, 1)])
    again = areas.straight_average_precision(rng.poisson(counts, (3000, 2, 64)).astype(float))
    stated = math.sqrt(areas.average_precision_variance(counts.astype(float), tied=False))
    assert stated == pytest.approx(again.std(), rel=0.1)


def test_spread_of_the_auc_counts_classes_with_one_example():
    counts = np.array([[3.0, 2, 1], [0, 1, 0]])
    assert areas.auc_sampling_variance(counts, tied=True) > 0
    one = np.array([[0.0, 1], [1, 0]])
    assert areas.auc_sampling_variance(one, tied=True) == 0


@pytest.mark.parametrize("value", [0.0, 0.02, 0.5, 0.83, 0.999, 1.0])
@pytest.mark.parametrize(("positives", "negatives"), [(1, 1), (3, 12), (19, 400), (50, 2)])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_newcombes_interval_is_found_by_scanning(value, positives, negatives, level):
    z = intervals.critical(level)
    tried = np.linspace(0, 1, 200_001)
    # Hanley & McNeil 1982 with Newcombe's 2006 exponents: the mean of both class sizes.
    half = (positives + negatives) / 2 - 1
    spread = 1 + half * (1 - tried) / (2 - tried) + half * tried / (1 + tried)
    variance = tried * (1 - tried) * spread / (positives * negatives)
    kept = tried[(value - tried) ** 2 <= z * z * variance]
    found = intervals.newcombe_interval(value, positives, negatives, z)
    assert found == pytest.approx((kept.min(), kept.max()), abs=6e-6)
    assert found.low <= value <= found.high


def test_newcombes_interval_is_used_for_few_examples_and_for_perfect_ones():
    few = fg.evaluate(
        {"a": ([0, 1] * 6, np.arange(12) / 12)}, axis=Axis.from_values(np.arange(12) / 12)
    )
    found = few.roc_auc
    expected = intervals.newcombe_interval(found.value, 6, 6, intervals.critical(0.95))
    assert (found.low, found.high) == pytest.approx(expected, abs=1e-12)
    for name, value in (("perfect", 1.0), ("inverted", 0.0)):
        found = on_values(name).roc_auc
        expected = intervals.newcombe_interval(value, 80, 160, intervals.critical(0.95))
        assert (found.low, found.high) == pytest.approx(expected, abs=1e-12)
        assert 0 < found.high - found.low < 0.1


def test_perfect_average_precision_has_an_interval():
    found = on_values("perfect").average_precision
    # Clopper & Pearson: none of m misplaced is compatible with a share q of them.
    low, high = (1 - 0.025 ** (1 / m) for m in (80, 160))
    assert found.value == found.high == 1
    # Worst when the misplaced negatives lie above all positives, and the others below.
    ahead, kept = high * 160, (1 - low) * 80
    recall = np.linspace(0, 1, 1_000_001)
    precision = recall * kept / np.maximum(recall * kept + ahead, 1e-300)
    assert found.low == pytest.approx((1 - low) * precision.mean(), abs=1e-5)


def test_distances_add_in_squares():
    assert intervals.add_noise(0.5, intervals.Interval(0.2, 0.9), 0.0, 2.0) == pytest.approx(
        (0.2, 0.9)
    )
    assert intervals.add_noise(0.5, intervals.Interval(0.5, 0.5), 0.1, 2.0) == pytest.approx(
        (0.3, 0.7)
    )
    assert intervals.add_noise(0.5, intervals.Interval(0.2, 0.9), 0.2, 2.0) == pytest.approx(
        (0.5 - 0.5, 0.5 + math.hypot(0.4, 0.4))
    )
    first, second = intervals.Interval(0.5, 0.8), intervals.Interval(0.1, 0.3)
    assert intervals.difference(first, second, (0.7, 0.2)) == pytest.approx(
        (0.5 - math.hypot(0.2, 0.1), 0.5 + math.hypot(0.1, 0.1))
    )


@pytest.mark.parametrize("value", [1e-9, 0.2, 0.5, 0.99999])
@pytest.mark.parametrize("deviation", [0.0, 1e-3, 0.4])
def test_transformed_intervals(value, deviation):
    z = 1.96
    low, high = intervals.logit_interval(value, deviation, z)
    assert 0 <= low <= value * (1 + 1e-12)
    assert value * (1 - 1e-12) <= high <= 1
    if 0.1 < value < 0.9:
        reach = z * deviation / (value * (1 - value))
        odds = np.log([low / (1 - low), high / (1 - high)])
        assert odds == pytest.approx(np.log(value / (1 - value)) + np.array([-reach, reach]))
    low, high = intervals.log_interval(value, deviation, z)
    assert 0 <= low <= value <= high < math.inf
    assert low * high == pytest.approx(value * value)


@pytest.mark.parametrize("rate", [0.05, 0.3])
@pytest.mark.parametrize("size", [500, 20_000])
def test_average_precision_on_fine_bins_is_scikit_learns(size, rate):
    """The area under a smooth curve is half an example off for each positive: 0.01 with 25."""
    rng = np.random.default_rng(size)
    labels = rng.random(size) < rate
    scores = 1.0 / (1.0 + np.exp(-rng.normal(2.0 * labels - 2.0, 1.2)))
    result = fg.evaluate({"all": (labels, scores)}, axis=Axis.uniform(4096))
    off = abs(result.average_precision.value - sk.average_precision_score(labels, scores))
    smooth = result.pr_curve().path.area()
    assert off < 3e-4
    assert off < 0.2 * abs(smooth - sk.average_precision_score(labels, scores))


@pytest.mark.parametrize("digits", [1, 2, 3])
def test_rounded_scores_tie_on_bins_too(digits):
    rng = np.random.default_rng(digits)
    labels = rng.random(2000) < 0.2
    scores = np.round(1.0 / (1.0 + np.exp(-rng.normal(2.0 * labels - 2.0, 1.2))), digits)
    result = fg.evaluate({"all": (labels, scores)}, axis=Axis.uniform(4096))
    expected = sk.average_precision_score(labels, scores)
    assert result.average_precision.value == pytest.approx(expected, abs=1e-12)
    assert result.roc_auc.value == pytest.approx(sk.roc_auc_score(labels, scores), abs=1e-12)
    partial = sk.roc_auc_score(labels, scores, max_fpr=0.2)
    assert result.partial_auc(0.2).value == pytest.approx(partial, abs=1e-12)
    assert result.average_precision.bounds[0] < expected < result.average_precision.bounds[1]
