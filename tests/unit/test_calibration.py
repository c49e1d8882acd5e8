"""Calibration measures: what they say, of which data, and where they have nothing to say."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from rows import split

import fedgauge as fg
from fedgauge.estimation.counts import PooledCounts, redraw
from fedgauge.metrics.calibration import Deviations, Forecasts, Groups, Partition, invert
from fedgauge.metrics.estimate import metrics_of
from fedgauge.metrics.ranking import Reading

OF_CALIBRATION = [row.name for row in metrics_of(fg.Evaluation) if "calibration" in row.name]


def drawn(rows, seed=0, *, bend=1.0, shift=0.0):
    """Scores, and labels whose log-odds are those of the scores times `bend`, plus `shift`."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(-1.0, 1.5, rows)
    return (rng.random(rows) < 1 / (1 + np.exp(-bend * odds - shift))), 1 / (1 + np.exp(-odds))


def pooled(rows, sites=10, **options):
    return fg.evaluate(split(*rows, sites), **options)


@pytest.fixture(scope="module")
def overconfident():
    return pooled(drawn(40_000, bend=0.5, shift=0.3))


def test_wrong_scores_are_found_out_and_parts_of_the_brier_score_add_up(overconfident):
    assert overconfident.expected_calibration_error.low > 0.05
    assert overconfident.calibration_slope.value == pytest.approx(0.5, abs=0.03)
    assert overconfident.calibration_intercept.value == pytest.approx(0.3, abs=0.05)
    assert overconfident.calibration_in_the_large.low > 0.05
    assert overconfident.integrated_calibration_index.low > 0.05
    assert overconfident.hosmer_lemeshow().p_value < 1e-12
    assert overconfident.spiegelhalter().p_value < 1e-12
    parts = overconfident.brier_decomposition(100)
    total = parts.reliability - parts.resolution + parts.uncertainty
    assert total == pytest.approx(overconfident.brier_score.value, abs=2e-4)
    for each in (parts.reliability, parts.resolution, parts.uncertainty):
        assert each.low <= each.value <= each.high
    rate = overconfident.positives / (overconfident.positives + overconfident.negatives)
    assert parts.uncertainty.value == pytest.approx(rate * (1 - rate))
    assert parts.rule == "100 groups of equal width, left-closed"


def test_positives_at_both_ends_have_no_slope_under_noise_either():
    """Weights that depended on the fitted line had a second root here, near -3."""
    rng = np.random.default_rng(5)
    labels = rng.random(4000) < 0.3
    odds = rng.normal(np.where(labels, rng.choice([-2.0, 2.0], 4000), 0.0), 0.7)
    rows = labels, 1 / (1 + np.exp(-odds))
    exact = pooled(rows).calibration_slope
    for seed in range(3):
        noisy = pooled(rows, privacy=fg.DistributedDP(0.1), seed=seed).calibration_slope
        assert noisy.value == pytest.approx(exact.value, abs=0.4)
        assert noisy.low < exact.value < noisy.high


def test_noise_widens_every_interval_and_may_hide_calibration():
    rows = drawn(40_000, bend=0.5, shift=0.3)
    axis = fg.Axis.uniform(32, outside="clip")
    exact = pooled(rows, axis=axis)
    noisy = pooled(rows, axis=axis, privacy=fg.DistributedDP(0.02), seed=4)
    for name in ("calibration_in_the_large", "calibration_slope", "calibration_intercept"):
        wide, narrow = getattr(noisy, name), getattr(exact, name)
        assert wide.high - wide.low > 1.1 * (narrow.high - narrow.low)
        assert wide.parts["noise"] > 0
    curve, sharp = noisy.calibration_curve(), exact.calibration_curve()
    assert np.mean(curve.high - curve.low) > np.mean(sharp.high - sharp.low)
    rows = drawn(100)
    result = pooled(rows, privacy=fg.DistributedDP(0.01), seed=1)
    with pytest.raises(fg.NoSignal):
        _ = result.expected_calibration_error


def test_what_cannot_be_asked_is_refused(overconfident):
    for ask, told in (
        (lambda result: result.with_calibrator(result.calibrator()).calibrator(), "already mapped"),
        (lambda result: result.calibration_error("worst"), "'expected', 'maximum', 'average', "),
        *(
            (lambda result, ask=ask, bins=bins: getattr(result, ask)(bins), "bins must be a whole")
            for ask in ("calibration_curve", "hosmer_lemeshow")
            for bins in ("a", [0, "b", 1], None, [[0, 1]])
        ),
        *(
            (lambda result, b=bins, s=strategy: result.calibration_curve(b, strategy=s), told)
            for bins, strategy, told in (
                *((wrong, "uniform", "whole number from 1") for wrong in (0, True, 2.5)),
                (10, "equal", "strategy must be"),
                *((wrong, "uniform", "rise from 0 to 1") for wrong in ([0, 0.5], [0, 0.5, 0.5, 1])),
                ([0, 0.5, 1], "quantile", "not both"),
            )
        ),
    ):
        refused(fg.InputError, told, ask, overconfident)


@pytest.mark.parametrize("name", [*OF_CALIBRATION, "hosmer_lemeshow", "spiegelhalter"])
def test_scores_that_are_no_probabilities(name):
    axis = fg.Axis.uniform(16, -4, 4)
    result = fg.evaluate({"a": ([0, 1, 1], [-2.0, 1.0, 3.0])}, axis=axis)
    with pytest.raises(fg.UndefinedMetric, match="need probabilities"):
        getattr(result, name)() if callable(getattr(type(result), name)) else getattr(result, name)


CROWD = np.append([1e-5, 2e-5], np.linspace(1e-5, 5e-3, 3000))


def test_where_there_is_no_slope_there_are_errors():
    for labels, scores, told in (
        ([0, 0, 0], [0.1, 0.2, 0.6], "no client has a positive"),
        ([0, 0, 1, 1], [0.1, 0.2, 0.8, 0.9], "separate the classes"),
        ([0, 1, 1], [0.5, 0.5, 0.5], "all alike"),
        # Classes that share one bin alone: the likelihood rises with the slope for ever.
        (np.arange(3002) < 2, CROWD, "the scores separate the classes"),
    ):
        result = fg.evaluate({"a": (labels, scores)}, axis=fg.Axis.uniform(4096))
        for name in ("calibration_slope", "calibration_intercept"):
            refused(fg.UndefinedMetric, told, getattr, result, name)
        assert result.expected_calibration_error.value >= (0.01 if "positive" in told else 0)
        off = result.calibration_in_the_large.value
        assert off == pytest.approx(np.mean(labels) - np.mean(scores), abs=1e-3)
        groups = np.unique(np.floor(np.array(scores) * 15))
        assert len(result.calibration_curve().count) == len(groups)


def test_certain_scores_and_few_examples():
    axis = fg.Axis.from_values([0.0, 1.0])
    right = fg.evaluate({"a": ([0, 1, 1], [0.0, 1.0, 1.0])}, axis=axis)
    assert right.expected_calibration_error.value == 0.0
    for test in (right.hosmer_lemeshow, right.spiegelhalter):
        with pytest.raises(fg.UndefinedMetric):
            test()
    wrong = fg.evaluate({"a": ([1, 1, 0], [0.0, 1.0, 1.0])}, axis=axis)
    assert wrong.hosmer_lemeshow().p_value == 0.0
    few = fg.evaluate({"a": ([0, 1, 0, 1], [0.2, 0.4, 0.7, 0.9])})
    assert "fewer than 20" in few.expected_calibration_error.caution
    assert "fewer than 30" in few.calibration_slope.caution


def test_scores_that_crowd_in_one_bin(overconfident):
    """The test allows for where in the bin they lie, which chance alone does not; slopes warn."""
    rng = np.random.default_rng(0)
    scores = rng.beta(0.05, 50, 100_000)
    labels = rng.random(100_000) < scores
    result = fg.evaluate({"a": (labels, scores)}, axis=fg.Axis.uniform(4096))
    curve = result.calibration_curve(10, strategy="quantile")
    x, off = curve.predicted, curve.count * (curve.observed - curve.predicted)
    by_chance = np.sum(off**2 / (curve.count * x * (1 - x)))
    assert result.hosmer_lemeshow().statistic < 0.8 * by_chance
    assert "end bin" in result.calibration_slope.caution
    assert overconfident.calibration_slope.caution is None


def test_bounds_in_noise_hold_the_plain_errors_of_the_rows():
    """Small groups, which noise moves most, must not carry the bounds along."""
    for seed in range(20):
        labels, scores = drawn(6000, seed, bend=0.7)
        axis = fg.Axis.uniform(60, outside="clip")
        result = pooled((labels, scores), axis=axis, privacy=fg.DistributedDP(0.1), seed=seed)
        owner = np.minimum((scores * 15).astype(int), 14)
        held = np.bincount(owner, minlength=15)
        far = (np.abs(np.bincount(owner, labels - scores, minlength=15)) / held)[held > 0]
        for kind, plain in (("maximum", far.max()), ("average", far.mean())):
            low, high = result.calibration_error(kind).bounds
            assert low <= plain <= high


def test_score_sums_place_the_scores():
    """All scores at the lower end of wide bins: sums of scores tell, counts alone cannot."""
    rng = np.random.default_rng(8)
    scores = rng.choice([0.01, 0.26, 0.51, 0.76], 8000)
    labels = rng.random(8000) < scores
    axis = fg.Axis.uniform(4)
    plan = fg.EvaluationPlan.for_histogram(axis, fg.Cohort(2), score_sums=True)
    told = pooled((labels, scores), 2, plan=plan)
    blind = pooled((labels, scores), 2, axis=axis)
    assert abs(told.calibration_in_the_large) < 0.015
    assert abs(blind.calibration_in_the_large) > 0.08
    low, high = blind.calibration_in_the_large.bounds
    assert low <= told.calibration_in_the_large.value <= high


def test_class_means_would_tell_the_label():
    """With 15 wide bins a slope from the pooled mean stays near 1 for right scores.

    Means of each class put positives higher: the slope is then about 22 standard errors off
    (method of Cox 1958 on grouped scores). Ours stays within 6.
    """
    rows = drawn(50_000, seed=3)
    result = pooled(rows, axis=fg.Axis.uniform(15))
    slope = result.calibration_slope
    error = slope.parts["sampling"]
    assert abs(slope - 1) < 6 * error


def forecasts(labels, scores, **options):
    result = fg.evaluate({"a": (labels, scores)}, **options)
    return Forecasts.of(Reading(result.pooled, result.estimator, result.level))


def known(labels, scores):
    return forecasts(labels, scores, axis=fg.Axis.from_values(sorted(set(scores))))


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 40), st.lists(st.integers(0, 120), min_size=1, max_size=40))
def test_equal_widths_are_left_closed_for_every_number(number, numerators):
    """Scores k / number lie on edges: each belongs to the group that begins there."""
    scores = np.unique(np.array([min(k, number) for k in numerators]) / number)
    labels = np.zeros(len(scores), dtype=int)
    groups = Groups.of(known(labels, scores.tolist()), number)
    wanted = np.minimum(np.searchsorted(np.arange(number + 1) / number, scores, "right"), number)
    assert groups.owners.tolist() == np.unique(wanted, return_inverse=True)[1].tolist()


def test_equal_mass():
    rng = np.random.default_rng(5)
    scores = rng.random(4000) ** 2
    groups = Groups.of(forecasts(rng.random(4000) < scores, scores), 10, "quantile")
    assert len(groups) == 10
    assert np.abs(groups.counts - 400).max() < 20
    assert groups.rule == "10 groups of equal mass"


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(1, 40),
    st.integers(1, 20),
    st.sampled_from(["expected", "maximum", "average", "rms"]),
)
def test_bounds_hold_the_plain_error_of_the_rows(seed, bins, number, kind):
    """Wherever in its bin a score lies, also where the edge of a group divides the bin."""
    rng = np.random.default_rng(seed)
    scores = rng.random(60) ** rng.integers(1, 4)
    labels = (rng.random(60) < scores).astype(int)
    result = fg.evaluate({"a": (labels, scores)}, axis=fg.Axis.uniform(bins))
    owner = np.minimum((scores * number).astype(int), number - 1)
    held = np.bincount(owner) > 0
    off = np.abs(np.bincount(owner, labels - scores))[held]
    counts = np.bincount(owner)[held]
    plain = {
        "expected": off.sum() / 60,
        "maximum": (off / counts).max(),
        "average": (off / counts).mean(),
        "rms": np.sqrt((off**2 / counts).sum() / 60),
    }[kind]
    low, high = result.calibration_error(kind, bins=number).bounds
    assert low - 1e-9 <= plain <= high + 1e-9


@pytest.mark.parametrize("tree", [(16,), (4, 4)])
def test_noise_of_groups_is_that_of_noise_drawn_again(tree):
    """Variances of 3,000 draws lie within 25%: right code fails less than once in 10^6."""
    axis = fg.Axis.uniform(16, outside="clip")
    plan = fg.EvaluationPlan.under(fg.DistributedDP(1.0), axis, cohort=fg.Cohort(5), tree=tree)
    rng = np.random.default_rng(2)
    scores = rng.random(3000)
    labels = (rng.random(3000) < scores).astype(int)
    result = fg.evaluate(split(labels, scores, 5), plan, seed=3)
    groups = Groups.of(Forecasts.of(Reading(result.pooled, result.estimator, 0.95)), 4)
    exact = result.pooled.counts
    drawn = redraw(np.broadcast_to(exact, (3000, 2, 16)), tree, result.pooled.variances, rng)
    x = groups.forecasts.scores
    by_bin = drawn[:, 1] * (1 - x) - drawn[:, 0] * x
    sums = by_bin @ groups.members.T
    assert np.var(sums, axis=0) == pytest.approx(np.diag(groups.noise), rel=0.25)
    assert np.cov(sums.T) == pytest.approx(groups.noise, abs=0.15 * np.diag(groups.noise).max())


def test_bins_without_examples_join_a_neighbour():
    for totals, owners in (
        ([0, 0, 5, 0, 5, 0], [0, 0, 0, 1, 1, 1]),
        ([10, 0, 0, 0], [0, 0, 0, 0]),
        ([0, 0, 0, 10], [0, 0, 0, 0]),
        ([1], [0]),
        ([8, 1, 1, 8], [0, 0, 1, 1]),
    ):
        groups = Partition.equal_mass(np.array(totals, dtype=float), 2)
        np.testing.assert_array_equal(groups.owners, owners)
        assert np.all(groups.sums(np.array(totals, dtype=float)) > 0)


def test_noise_and_excess_of_groups_are_those_of_nodes_and_counts_as_released():
    counts = np.full((2, 4), 50.0)
    pooled = PooledCounts(fg.Axis.uniform(4), counts, (2, 2), (3.0, 5.0))
    forecasts = Forecasts.of(Reading(pooled, fg.Aligned(), 0.95))
    halves = Partition(np.array([0, 0, 1, 1]), 2)
    weights = np.zeros((2, 4))
    weights[1] = 1.0
    # A node's own count, variance 3, and its children's sum, 10: 1 / (1/3 + 1/10).
    np.testing.assert_allclose(halves.noise_variance(forecasts, weights), [30 / 13] * 2)
    released = np.array([[10.0, 4.0], [-2.0, 6.0]])
    pooled = PooledCounts(fg.Axis.uniform(2), released, (2,), (1.0,))
    forecasts = Forecasts.of(Reading(pooled, fg.Aligned(), 0.95))
    excess, _, noise = Partition(np.array([0, 1]), 2).excess(forecasts, np.array([0.1, 0.5]))
    np.testing.assert_allclose(excess, [-2 * 0.9 - 10 * 0.1, 6 * 0.5 - 4 * 0.5])
    np.testing.assert_allclose(noise, [0.81 + 0.01, 0.5])


Z = 1.959964


def sums(values, scale=1.0):
    values = np.array(values, dtype=float)
    return Deviations(values, np.eye(len(values)) * scale**2, np.ones(len(values)))


def test_sums_far_from_zero_are_distances_and_certain_ones_what_they_are():
    found = invert(sums([40.0, -30.0]), 1, Z)
    assert found.value == pytest.approx(70.0, abs=0.1)
    half = Z * math.sqrt(2)
    assert found.interval.low == pytest.approx(70.0 - half, abs=0.2)
    assert found.interval.high == pytest.approx(70.0 + half, abs=0.2)
    found = invert(sums([3.0, -1.0], scale=1e-12), 1, Z)
    assert found.value == pytest.approx(4.0, abs=1e-9)
    assert found.interval == pytest.approx((4.0, 4.0), abs=1e-9)
    assert invert(sums([0.0, 0.0]), 1, Z).value == 0.0
    assert invert(sums([]), 1, Z).interval == (0.0, 0.0)


def test_what_chance_gives_counts_for_nothing():
    # As much as fifteen sums around zero give on average: nothing is left, and zero is held.
    found = invert(sums([math.sqrt(2 / math.pi)] * 15), 1, Z)
    assert found.value == pytest.approx(0.0, abs=1e-3)
    assert found.interval.low == 0.0
    assert found.interval.high > 3.0
    # Less than chance gives still has an interval.
    low, high = invert(sums([0.01] * 15), 1, Z).interval
    assert low == 0.0
    assert high == pytest.approx(invert(sums([0.05] * 15), 1, Z).interval.high, rel=0.2)
    assert high > 1.0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-50, 50), min_size=1, max_size=8),
    st.floats(0.01, 10),
    st.sampled_from([1, 2]),
)
def test_the_interval_holds_the_value_and_scales(values, scale, power):
    found = invert(sums(values), power, Z)
    assert 0.0 <= found.interval.low <= found.value <= found.interval.high
    plain = float(np.sum(np.abs(values) ** power))
    assert found.value <= plain + 1e-9 + 1e-6 * plain  # chance only ever adds
    larger = invert(sums(np.array(values) * scale, scale), power, Z)
    assert larger.value == pytest.approx(found.value * scale**power, rel=2e-3, abs=1e-3)
