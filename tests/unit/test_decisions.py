"""Net benefit at a threshold, and decision curves."""

import math
from dataclasses import replace

import numpy as np
import pytest
from refusals import refused

import fedgauge as fg
from fedgauge import Axis
from fedgauge.estimation.counts import PooledCounts
from fedgauge.metrics.decisions import Decision, Worth, benefit_of_model, likeliest
from fedgauge.metrics.thresholds import Corner, Outcomes


def counted(*outcomes):
    return Corner(Outcomes(*outcomes), Outcomes(*outcomes), np.zeros((4, 4)))


def calibrated(n=4000, rate=0.2, separation=1.5, seed=0):
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < rate).astype(int)
    odds = separation * rng.normal(separation * labels) - separation**2 / 2
    return labels, 1 / (1 + np.exp(-odds - math.log(rate / (1 - rate))))


@pytest.fixture(scope="module")
def result():
    return fg.evaluate({"a": calibrated(seed=1), "b": calibrated(seed=2)}, axis=Axis.uniform(100))


def test_a_threshold_is_a_risk_and_scores_must_be_probabilities(result):
    for threshold in (0.0, 1.0, -0.1, math.nan, math.inf, True, "0.2", None):
        refused(fg.InputError, "must lie between 0 and 1", result.net_benefit, threshold)
    refused(fg.InputError, "must lie between 0 and 1", result.decision_curve, [0.2, 1.0])
    for thresholds in ([], "a", 0.2, ["b"]):
        refused(fg.InputError, "a list of risks", result.decision_curve, thresholds)
    np.testing.assert_array_equal(result.decision_curve((0.3, 0.1, 0.3)).thresholds, [0.1, 0.3])
    points = result.threshold_table([0.25])
    assert result.decision_curve(points).thresholds[0] == 0.25
    result = fg.evaluate({"a": ([0, 1], [-1.0, 2.0])}, axis=Axis.uniform(10, -5, 5))
    for ask in (lambda: result.net_benefit(0.2), result.decision_curve):
        refused(fg.UndefinedMetric, "net benefits need probabilities", ask)


def test_usual_thresholds_are_edges_near_hundredths_and_finer_where_positives_are_rare(result):
    curve = result.decision_curve()
    np.testing.assert_allclose(curve.thresholds, np.arange(1, 100) / 100)
    fine = fg.evaluate({"a": calibrated()})
    usual = fine.decision_curve().thresholds
    assert np.isin(usual, fine.released.axis.edges).all()
    assert all(fine.at_threshold(t).on_edge for t in usual)
    rare = fg.evaluate({"a": calibrated(20_000, rate=0.004)})
    thresholds = rare.decision_curve().thresholds
    assert np.count_nonzero(thresholds < 0.009) >= 20
    assert 0 < thresholds[0] < 0.001
    labels, scores = [0, 1, 0, 1], [0.2, 0.2, 0.8, 0.8]
    known = fg.evaluate({"a": (labels, scores)}, axis=Axis.from_values([0.2, 0.8]))
    assert len(known.decision_curve().thresholds) >= 99
    clipped = fg.evaluate({"a": (labels, scores)}, axis=Axis.uniform(4, 0.1, 0.9, outside="clip"))
    np.testing.assert_allclose(clipped.decision_curve().thresholds, [0.3, 0.5, 0.7])
    single = fg.evaluate({"a": (labels, scores)}, axis=Axis.uniform(1))
    assert len(single.decision_curve().thresholds) >= 99


def test_the_difference_to_treating_everybody_is_exact_and_has_an_interval_of_its_own(result):
    curve = result.decision_curve()
    np.testing.assert_allclose(
        curve.advantage, curve.net_benefit - np.maximum(curve.treat_all, 0.0), atol=1e-12
    )
    for low, value, high in (
        (curve.low, curve.net_benefit, curve.high),
        (curve.treat_all_low, curve.treat_all, curve.treat_all_high),
        (curve.advantage_low, curve.advantage, curve.advantage_high),
    ):
        assert np.all(low <= value)
        assert np.all(value <= high)
    curve = result.decision_curve([0.05])
    of_difference = curve.advantage_high - curve.advantage_low
    assert of_difference < 0.5 * (curve.high - curve.low)
    assert curve.low < curve.treat_all_high
    assert curve.advantage_low > 0


def test_useful_ranges_with_gaps_and_of_a_model_without_skill(result):
    curve = result.decision_curve()
    sure, likely = curve.useful, curve.likely_useful
    for ranges, holds in ((sure, curve.advantage_low > 0), (likely, curve.advantage > 0)):
        inside = [any(low <= t <= high for low, high in ranges) for t in curve.thresholds]
        np.testing.assert_array_equal(inside, holds)
    assert any(low < 0.2 < 0.6 < high for low, high in sure)
    assert likely[0].low <= sure[0].low
    assert sure[-1].high < likely[-1].high
    few = result.decision_curve([0.2, 0.4])
    assert repr(few) == "<DecisionCurve at 2 thresholds: useful 0.2 to 0.4>"
    thresholds = np.arange(1, 10) / 10
    low = np.array([1, 1, -1, 1, -1, -1, 1, 1, 1.0])
    several = fg.DecisionCurve(thresholds, *[low] * 9, level=0.95)
    assert several.useful == ((0.1, 0.2), (0.4, 0.4), (0.7, 0.9))
    turned = fg.DecisionCurve(thresholds, *[-low] * 9, level=0.95)
    assert turned.likely_useful == ((0.3, 0.3), (0.5, 0.6))
    rng = np.random.default_rng(3)
    curve = fg.evaluate({"a": (rng.integers(0, 2, 3000), rng.random(3000))}).decision_curve()
    assert curve.useful == ()
    assert repr(curve).endswith("useful nowhere>")


def test_intervals_end_where_the_test_just_rejects():
    """With equal worths as Tango 1998 has it: what is likeliest at the end decides its variance."""
    span = benefit_of_model(0.5).interval(counted(12, 1, 2, 29), 1.959964, sampling=True)
    for end in span:
        p, q = likeliest(12, 1, 44, 1.0, end)
        assert (11 - 44 * end) ** 2 == pytest.approx(1.959964**2 * 44 * (p + q - end**2), rel=1e-6)
    assert span.low < 11 / 44 < span.high
    span = benefit_of_model(0.5).interval(counted(0, 0, 10, 90), 1.96, sampling=True)
    assert -0.05 < span.low < 0 < span.high < 0.05
    everybody = Worth(1.0, Outcomes(tp=1, fn=1), 1.0, Outcomes(fp=1, tn=1))
    span = everybody.interval(counted(20, 30, 10, 40), 1.96, sampling=True)
    share = fg.AtThreshold.prevalence.formula.interval(counted(20, 30, 10, 40), 1.96, sampling=True)
    assert span == pytest.approx([2 * end - 1 for end in share], abs=1e-9)


@pytest.mark.parametrize("odds", [0.05, 1.0, 19.0])
@pytest.mark.parametrize("mean", [-0.03, 0.0, 0.02, 0.3])
def test_likeliest_shares(odds, mean):
    gained, lost, counted_ = 30.0, 12.0, 400.0
    p, q = likeliest(gained, lost, counted_, odds, mean)
    assert p - odds * q == pytest.approx(mean)

    def likelihood(q):
        rest = 1 - mean - (1 + odds) * q
        return gained * np.log(mean + odds * q) + lost * np.log(q) + (counted_ - 42) * np.log(rest)

    grid = np.linspace(max(0, -mean / odds), (1 - mean) / (1 + odds), 20_003)[1:-1]
    assert likelihood(q) >= likelihood(grid).max() - 1e-9


def test_few_outcomes_that_count_are_a_caution_and_levels_are_nested(result):
    assert result.net_benefit(0.2).caution is None
    few = result.net_benefit(0.99)
    assert "fewer than 3 examples have one of the outcomes weighed" in few.caution
    wide, narrow = (result.at_level(level).net_benefit(0.2) for level in (0.99, 0.8))
    assert wide.low < narrow.low < narrow.high < wide.high
    assert result.at_level(0.8).decision_curve([0.2]).low == pytest.approx([narrow.low])


def test_no_examples_and_one_class():
    alone = fg.evaluate({"a": ([0, 0], [0.1, 0.6])}, axis=Axis.uniform(10))
    assert alone.net_benefit(0.5).value == pytest.approx(-0.5)
    assert alone.decision_curve([0.5]).treat_all[0] == pytest.approx(-1.0)
    pooled = PooledCounts(Axis.uniform(10), np.zeros((2, 10)), (10,))
    with pytest.raises(fg.UndefinedMetric, match=r"undefined at threshold 0\.5: there is no"):
        Decision(pooled, 0.5, 0.95).net_benefit()


@pytest.mark.parametrize("tree", [(16,), (4, 4)])
def test_noise_is_that_of_the_weights(tree):
    """The part of noise is the variance of the weighted counts, by the tree's covariance."""
    axis = Axis.uniform(16, outside="clip")
    counts = np.random.default_rng(0).poisson(200, (2, 16)).astype(float)
    pooled = PooledCounts(axis, counts, tree, (50.0,) * len(tree), shrinks=False)
    found = Decision(pooled, 0.25, 0.95).net_benefit()
    weights = np.zeros((2, 16))
    weights[1, 4:], weights[0, 4:] = 1.0, -1 / 3
    total = counts.sum()
    deviation = math.sqrt(pooled.noise_variance((weights - found.value) / total))
    assert found.parts["noise"] == pytest.approx(deviation)
    assert found.bounds[1] - found.bounds[0] == pytest.approx(2 * 1.96 * deviation, rel=0.01)
    assert found.high - found.low > found.bounds[1] - found.bounds[0]


def test_the_interval_is_centred_on_counts_as_they_were_released():
    """Repair moves counts that noise made negative; the interval does not follow it."""
    axis = Axis.uniform(4, outside="clip")
    released = np.array([[900.0, -400.0, 300.0, 100.0], [50.0, 60.0, 120.0, 200.0]])
    pooled = PooledCounts(axis, released, (4,), (900.0,), shrinks=False)
    found = Decision(pooled, 0.25, 0.95).net_benefit()
    repaired = Decision(replace(pooled, released=pooled.counts), 0.25, 0.95).net_benefit()
    assert found.value == repaired.value
    unbiased = 380.0 / 1330.0  # no negatives from 0.25 up
    assert unbiased > found.value + 0.02
    assert found.high - repaired.high == pytest.approx(unbiased - found.value, rel=0.3)


def test_local_reports():
    clients = {"a": calibrated(20_000, seed=1)}
    local = fg.evaluate(clients, privacy=fg.LocalDP(4.0), seed=1)
    found, exact = local.net_benefit(0.125), fg.evaluate(clients).net_benefit(0.125)
    assert found.bounds[0] < exact < found.bounds[1]
    assert found.parts["noise"] > 0
    assert local.decision_curve().caution == local.pooled.faint
