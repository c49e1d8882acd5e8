"""The confusion matrix at a threshold."""

import math
from types import MappingProxyType

import numpy as np
import pytest
from refusals import refused

import fedgauge as fg
from fedgauge import Axis
from fedgauge.estimation.counts import PooledCounts
from fedgauge.metrics import thresholds
from fedgauge.metrics.estimate import critical, metrics_of
from fedgauge.metrics.thresholds import AtThreshold, Outcomes, Ratio, ThresholdOutcomes

QUARTERS = Axis.uniform(4)
CLIPPED = Axis.uniform(4, outside="clip")
VALUES = Axis.from_values([0.0, 0.5, 1.0])
CLIPPED_VALUES = Axis.from_values([0.0, 0.5, 1.0], outside="clip")
SINGLE = Axis.from_values([0.5], outside="clip")
ABOVE, BELOW = math.inf, -math.inf
PRECISION = AtThreshold.precision.formula

SPLITS = [
    (QUARTERS, ABOVE, (4, False, 0.0)),
    (QUARTERS, BELOW, (0, False, 0.0)),
    (QUARTERS, 1.5, (4, False, 0.0)),
    (QUARTERS, -0.5, (0, False, 0.0)),
    (QUARTERS, 0.0, (0, False, 0.0)),
    (QUARTERS, 0.25, (1, False, 0.0)),
    (QUARTERS, 0.75, (3, False, 0.0)),
    (QUARTERS, 1.0, (4, True, 0.0)),  # a score of 1 is in the last bin
    (QUARTERS, 0.3125, (2, True, 0.75)),
    (QUARTERS, 0.9375, (4, True, 0.25)),
    (QUARTERS, np.nextafter(0, 1), (1, True, 1.0)),
    (CLIPPED, ABOVE, (4, False, 0.0)),
    (CLIPPED, BELOW, (0, False, 0.0)),
    (CLIPPED, 1.5, (4, True, 0.0)),  # scores above are in the last bin
    (CLIPPED, 1.0, (4, True, 0.0)),
    (CLIPPED, 0.0, (1, True, 1.0)),  # scores below are in the first
    (CLIPPED, -3.0, (1, True, 1.0)),
    (CLIPPED, 0.5, (2, False, 0.0)),
    (CLIPPED, 0.125, (1, True, 0.5)),
    (VALUES, 0.0, (0, False, 0.0)),
    (VALUES, 0.25, (1, False, 0.0)),
    (VALUES, 0.5, (1, False, 0.0)),
    (VALUES, 0.75, (2, False, 0.0)),
    (VALUES, 1.0, (2, False, 0.0)),
    (VALUES, 2.0, (3, False, 0.0)),
    (VALUES, -2.0, (0, False, 0.0)),
    (CLIPPED_VALUES, 0.0, (1, True, 1.0)),
    (CLIPPED_VALUES, 0.5, (1, False, 0.0)),
    (CLIPPED_VALUES, 0.75, (2, True, 0.0)),
    (CLIPPED_VALUES, 1.0, (2, False, 0.0)),  # scores from 1 up, no others
    (CLIPPED_VALUES, 2.0, (3, True, 0.0)),
    (SINGLE, 0.5, (1, True, 1.0)),
    (SINGLE, 0.6, (1, True, 0.0)),
]
COUNTS = np.array([[80, 40, 20, 10], [10, 20, 40, 80]])
Z = critical(0.95)
ROWS = metrics_of(AtThreshold)
NAMES = tuple(row.name for row in ROWS)


@pytest.mark.parametrize(("axis", "threshold", "expected"), SPLITS, ids=repr)
def test_how_a_threshold_divides_the_bins(axis, threshold, expected):
    found = thresholds.split(axis, threshold)
    assert found[:2] == expected[:2]
    assert found.share == pytest.approx(expected[2], abs=1e-12)
    assert isinstance(found, thresholds.ThresholdSplit)


@pytest.mark.parametrize("axis", [QUARTERS, CLIPPED, VALUES], ids=repr)
def test_a_threshold_is_a_number(axis):
    refused(fg.InputError, "a threshold must be a number", thresholds.split, axis, math.nan)
    result = fg.evaluate({"a": ([0, 1], [0.0, 0.5])}, axis=axis)
    refused(fg.InputError, "a threshold must be a number", result.at_threshold, math.nan)


def outcomes(threshold, axis=QUARTERS):
    counts = np.array([[8, 4, 2, 1], [1, 2, 4, 8]])
    return ThresholdOutcomes(PooledCounts(axis, counts, (4,)), threshold)


def test_outcomes_between_edges():
    found = outcomes(0.375)
    assert found.likely == Outcomes(tp=13, fp=5, fn=2, tn=10)
    corners = {corner.outcomes for corner in found.corners}
    assert corners == {
        Outcomes(12, 3, 3, 12),
        Outcomes(14, 3, 1, 12),
        Outcomes(12, 7, 3, 8),
        Outcomes(14, 7, 1, 8),
    }
    of_all = Ratio(Outcomes(tp=1), Outcomes(fp=1, fn=1, tn=1))
    assert of_all.extremes(found.corners) == (12 / 30, 14 / 30)
    assert PRECISION.extremes(found.corners) == (12 / 19, 14 / 17)
    for last, expected in ((1, (0, 1)), (0, (math.nan, math.nan))):  # undefined ones are left out
        counts = np.array([[1, 0, 0, last], [1, 0, 0, last]])
        corners = ThresholdOutcomes(PooledCounts(QUARTERS, counts, (4,)), 0.9).corners
        np.testing.assert_array_equal(PRECISION.extremes(corners), expected)


def test_noise_of_outcomes_is_that_of_sums_of_bins():
    counts = np.array([[80.0, 40, 20, 10], [10, 20, 40, 80]])
    pooled = PooledCounts(CLIPPED, counts, (4,), (9.0,))
    (corner,) = ThresholdOutcomes(pooled, 0.25).corners
    # Three bins flagged, one not; classes and bins are independent on a flat tree.
    np.testing.assert_allclose(corner.noise, np.diag([27.0, 27.0, 9.0, 9.0]))
    tree = PooledCounts(CLIPPED, counts, (2, 2), (9.0, 9.0))
    (corner,) = ThresholdOutcomes(tree, 0.25).corners
    assert corner.noise[0, 2] == corner.noise[2, 0] != 0
    assert corner.noise[0, 1] == corner.noise[0, 3] == corner.noise[1, 2] == 0
    total = corner.noise[np.ix_([0, 2], [0, 2])].sum()
    assert total == pytest.approx(tree.deviation_of_totals**2)


def exact(threshold=0.5, axis=None):
    return AtThreshold(PooledCounts(axis or Axis.uniform(4), COUNTS, (4,)), threshold, 0.95)


def noisy(counts=COUNTS, threshold=0.5, variance=9.0, level=0.95):
    axis, bins = Axis.uniform(counts.shape[1], outside="clip"), counts.shape[1]
    pooled = PooledCounts(axis, counts.astype(float), (bins,), (variance,), shrinks=False)
    return AtThreshold(pooled, threshold, level)


def corner(counts, noise):
    return thresholds.Corner(Outcomes(*counts), Outcomes(*counts), np.asarray(noise, dtype=float))


def test_a_ratio_under_noise_has_fiellers_interval_or_none():
    """Roots of ((1 - x) a - x b)^2 = z^2 Var, a quadratic in x."""
    a, b = 300.0, 100.0
    noise = np.zeros((4, 4))
    noise[0, 0], noise[1, 1], noise[0, 1], noise[1, 0] = 90.0, 40.0, 15.0, 15.0
    found = PRECISION.interval(corner((a, b, 0.0, 0.0), noise), Z, sampling=False)
    va, vb, c = 90.0, 40.0, 15.0
    quadratic = [
        (a + b) ** 2 - Z * Z * (va + vb + 2 * c),
        -2 * a * (a + b) + 2 * Z * Z * (va + c),
        a * a - Z * Z * va,
    ]
    assert found == pytest.approx(sorted(np.roots(quadratic)), abs=1e-10)
    swamped = corner((3.0, 2.0, 5.0, 9.0), np.eye(4) * 400.0)
    assert PRECISION.interval(swamped, Z, sampling=False) == (0, 1)
    empty = corner((0.0, 0.0, 5.0, 9.0), np.eye(4))
    assert PRECISION.interval(empty, Z, sampling=True) == (0, 1)


def test_sampling_and_noise_widen_each_other():
    noise = np.diag([30.0, 30.0, 30.0, 30.0])
    noisy, exact = (corner((60.0, 40.0, 30.0, 70.0), each) for each in (noise, 0 * noise))
    ratios = [row.formula for row in ROWS if isinstance(row.formula, Ratio)]
    assert len(ratios) == 10
    for ratio in (*ratios, thresholds.f_beta_ratio(2)):
        alone = ratio.interval(exact, Z, sampling=True)
        by_noise = ratio.interval(noisy, Z, sampling=False)
        both = ratio.interval(noisy, Z, sampling=True)
        assert both.low < min(alone.low, by_noise.low)
        assert both.high > max(alone.high, by_noise.high)


def test_bounds_hold_values_between_edges_and_leave_sampling_out():
    at = noisy()
    for name in NAMES:
        found = getattr(at, name)
        assert found.low < found.bounds[0] < found.value < found.bounds[1] < found.high
        assert set(found.parts) == {"binning", "noise", "sampling"}
        assert found.parts["noise"] > 0
    on, between = exact(0.5), exact(0.4)
    assert on.on_edge
    assert not between.on_edge
    for name in set(NAMES) - {"prevalence"}:
        low, high = getattr(between, name).bounds
        assert low < getattr(between, name).value < high
        assert getattr(between, name).parts["binning"] > 0
        assert getattr(on, name).parts["binning"] == 0


def test_counts_have_bounds_and_a_level_under_noise_alone():
    found = noisy(threshold=0.5).confusion_matrix
    for cell, value in zip(found, (120, 30, 30, 120), strict=True):
        reach = Z * math.sqrt(2 * 9.0)  # two bins
        assert cell.value == value
        assert cell.bounds == pytest.approx((value - reach, value + reach))
        assert (cell.level, cell.low, cell.high) == (0.95, None, None)
    less = noisy(COUNTS // 10, variance=100.0).confusion_matrix
    assert all(cell.bounds[0] >= 0 for cell in less)
    found = exact(0.375).confusion_matrix
    assert found._fields == ("tn", "fp", "fn", "tp")
    assert [cell.level for cell in found] == [None] * 4
    assert (found.tp.value, found.tp.bounds) == (130, (120, 140))
    assert str(found.tp) == "130 (pooled data: 120 to 140)"


def test_covariances_at_a_threshold_are_computed_once(monkeypatch):
    at, calls = noisy(threshold=0.4), []
    covariance = PooledCounts.covariance
    monkeypatch.setattr(
        PooledCounts, "covariance", lambda *given: calls.append(1) or covariance(*given)
    )
    assert None not in at.as_dict().values()
    assert at.confusion_matrix.tp.value > 0
    assert len(calls) == 2  # of the four corners, and of the totals of the result


def test_a_row_says_all_about_a_metric_and_a_threshold_what_it_has():
    assert [row.title for row in ROWS if row.listed] == [
        *("precision", "recall", "specificity", "NPV", "accuracy", "balanced accuracy"),
        *("F1", "MCC", "Youden's J", "false positive rate", "share flagged"),
    ]
    assert all(row.__doc__.endswith(".") and row.undefined for row in ROWS)
    with pytest.raises(
        fg.UndefinedMetric, match=r"^precision is undefined at threshold inf: no example scores"
    ):
        exact(math.inf).precision  # noqa: B018
    at = exact(0.25)
    assert float(at) == at.threshold == 0.25
    assert repr(at) == (
        "<AtThreshold 0.25: precision 0.6667, recall 0.9333, specificity 0.5333, npv 0.8889, "
        "accuracy 0.7333, ...>"
    )
    assert isinstance(at.precision.parts, MappingProxyType)
    at = exact()
    found = at.as_dict()
    assert tuple(found) == NAMES
    assert all(found[name] == getattr(at, name) for name in NAMES)
    nothing = exact(math.inf).as_dict()
    assert {name for name, estimate in nothing.items() if estimate is None} == {"precision", "mcc"}


def test_matthews_correlation_of_few_is_rough_and_a_perfect_one_has_an_interval():
    def mcc(*counts):
        return AtThreshold(PooledCounts(Axis.uniform(2), np.array(counts), (2,)), 0.5, 0.95).mcc

    assert "fewer than 5 examples" in mcc([9, 4], [5, 6]).caution
    assert mcc([9, 5], [5, 6]).caution is None
    found = mcc([50, 0], [0, 50])
    assert found.value == found.high == pytest.approx(1)
    assert 0.8 < found.low < 1


def rows(counts):
    bins = counts.shape[1]
    labels = np.repeat(np.repeat([0, 1], bins), counts.ravel())
    scores = np.repeat(np.tile((np.arange(bins) + 0.5) / bins, 2), counts.ravel())
    return labels, scores


def test_tables_of_nine_edges_and_of_given_thresholds():
    for axis, expected in (
        (Axis.uniform(10), [i / 10 for i in range(1, 10)]),
        (Axis.uniform(1), [0.0]),
        (Axis.uniform(2), [0.0, 0.5]),
        (Axis.uniform(4096), [round(i * 409.6) / 4096 for i in range(1, 10)]),
        (Axis.from_values([0.05, 0.5, 0.95]), [0.05, 0.5, 0.95]),
    ):
        scores = [0.05, 0.5, 0.95, 0.5]
        result = fg.evaluate({"a": ([0, 1, 1, 0], scores)}, axis=axis)
        table = result.threshold_table()
        assert [at.threshold for at in table] == pytest.approx(expected)
        assert all(at.on_edge for at in table)
        assert set(map(float, table)) <= set(axis.thresholds.tolist())
    result = fg.evaluate({"a": rows(COUNTS)}, axis=Axis.uniform(4))
    table = result.threshold_table(t for t in (0.9, 0.1, math.inf))
    assert [at.threshold for at in table] == [0.9, 0.1, math.inf]
    assert table[0].recall == result.at_threshold(0.9).recall
    assert result.threshold_table([]) == []
    assert result.at_level(0.5).threshold_table([0.5])[0].recall.level == 0.5


def test_ks_statistic_is_where_youdens_j_is_largest():
    labels, scores = rows(COUNTS)
    result = fg.evaluate({"a": (labels, scores)}, axis=Axis.from_values(scores))
    j, found = result.at_threshold(0.5).youden_j, result.ks_statistic
    assert found.value == j.value
    assert found.parts["sampling"] == j.parts["sampling"]
    assert (found.low, found.high) == pytest.approx((j.low, j.high))


@pytest.mark.parametrize("size", [1, 5])
def test_ks_statistic_the_wrong_way_round_has_the_same_interval(size):
    counts = np.array([[6, 6], [8, 4]]) * size  # J = -1/6: its interval straddles 0 or not
    axis = Axis.from_values([0.25, 0.75])
    wrong = fg.evaluate({"a": rows(counts)}, axis=axis).ks_statistic
    right = fg.evaluate({"a": rows(counts[:, ::-1])}, axis=axis).ks_statistic
    assert wrong.value == pytest.approx(right.value)
    assert (wrong.low, wrong.high) == pytest.approx((right.low, right.high))
    assert wrong.high > wrong.value + 0.05


def test_nothing_is_said_where_noise_hides_a_class():
    clients = {f"site-{i}": ([0, 1, 0], [0.2, 0.8, 0.4]) for i in range(3)}
    result = fg.evaluate(
        clients, privacy=fg.DistributedDP(0.1), axis=Axis.uniform(8, outside="clip"), seed=1
    )
    for ask in (
        *[lambda: result.at_threshold(0.5), lambda: result.threshold_for(fpr=0.1)],
        *[lambda: result.log_loss, lambda: result.ks_statistic, result.threshold_table],
        *[result.roc_band, result.gain_curve, result.det_curve, result.prg_curve],
    ):
        refused(fg.NoSignal, "hides the number of", ask)


def test_a_threshold_chosen_by_few_examples_has_a_caution():
    for few, many in ((12, 400), (400, 12), (400, 400)):
        data = np.repeat([1, 0], [few, many]), np.linspace(1, 0, few + many)
        at = fg.evaluate({"a": data}).threshold_for(recall=0.8)
        assert ("chosen by fewer" in (at.recall.caution or "")) == (few != many)
        assert fg.evaluate({"a": data}).at_threshold(at.threshold).recall.caution is None


@pytest.fixture(scope="module")
def nobody_at_the_top():
    """No score is in the upper half of the axis, and noise is all that is counted there."""
    counts = np.zeros((2, 32))
    counts[:, :16] = 100.0
    counts[:, 16:] = np.random.default_rng(1).laplace(0, 2, (2, 16)).round()
    return counts


@pytest.mark.parametrize("threshold", [0.5, 0.51, 0.75, 31 / 32, 1.0, 7.0])
def test_a_share_of_noise_alone_is_undefined(nobody_at_the_top, threshold):
    at = noisy(nobody_at_the_top, threshold, variance=8.0)
    told = {name for name, estimate in at.as_dict().items() if estimate is None}
    assert told == {"precision", "mcc"}
    assert at.recall.value == pytest.approx(0.0, abs=0.05)
    with pytest.raises(fg.UndefinedMetric, match="noise hides the examples that it divides by"):
        _ = at.precision


def test_examples_that_stand_out_have_a_precision_and_noise_has_none(nobody_at_the_top):
    """As many as a class must have: 4 standard deviations of the noise in them."""
    counts = np.array(nobody_at_the_top)
    counts[:, -1] = 0.0
    deviation = math.sqrt(2 * 8.0)
    for flagged, defined in ((4 * deviation - 0.1, False), (4 * deviation + 0.1, True)):
        counts[1, -1] = flagged
        at = noisy(counts, 31 / 32, variance=8.0)
        assert (at.as_dict()["precision"] is not None) == defined
        assert (at.as_dict()["mcc"] is not None) == defined
        assert at.npv.value > 0
    at = noisy(nobody_at_the_top[:, ::-1], 0.25, variance=8.0)
    assert at.as_dict()["npv"] is None
    assert at.precision.value == pytest.approx(0.5, abs=0.02)
    counts[:, 16:] = 0.0
    counts[1, -1] = 9.0  # noise that looks like precision 1
    pooled = noisy(counts, variance=8.0)._pooled
    with pytest.raises(fg.UndefinedMetric, match=r"reaches precision 0\.9; the highest .* 0\.5"):
        thresholds.choose(pooled, precision=0.9)
    exactly = PooledCounts(pooled.axis, counts.astype(int), (32,))
    assert thresholds.choose(exactly, precision=0.9) == 31 / 32
