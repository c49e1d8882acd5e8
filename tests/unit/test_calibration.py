"""Calibration measures: what they say, of which data, and where they have nothing to say."""

import math

import numpy as np
import pytest

import fedgauge as fg
from fedgauge.measures.metric import metrics_of

ERRORS = ("expected", "maximum", "average", "rms")
OF_CALIBRATION = [row.name for row in metrics_of(fg.Evaluation) if "calibration" in row.name]


def drawn(rows, seed=0, *, bend=1.0, shift=0.0):
    """Scores, and labels whose log-odds are those of the scores times `bend`, plus `shift`."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(-1.0, 1.5, rows)
    return (rng.random(rows) < 1 / (1 + np.exp(-bend * odds - shift))), 1 / (1 + np.exp(-odds))


def sites(rows, number=10):
    return {str(i): tuple(part[i::number] for part in rows) for i in range(number)}


@pytest.fixture(scope="module")
def overconfident():
    return fg.evaluate(sites(drawn(40_000, bend=0.5, shift=0.3)))


def test_right_scores_have_an_error_of_about_zero():
    result = fg.evaluate(sites(drawn(40_000)))
    error = result.expected_calibration_error
    plain = result.calibration_curve().ece
    assert error.low == 0.0
    assert error.value < plain < error.high + 0.003
    assert error.bounds[0] <= plain <= error.bounds[1]
    assert result.calibration_slope.low < 1 < result.calibration_slope.high
    assert result.calibration_intercept.low < 0 < result.calibration_intercept.high
    assert result.hosmer_lemeshow().p_value > 0.001
    assert result.spiegelhalter().p_value > 0.001


def test_wrong_scores_are_found_out(overconfident):
    assert overconfident.expected_calibration_error.low > 0.05
    assert overconfident.calibration_slope.value == pytest.approx(0.5, abs=0.03)
    assert overconfident.calibration_intercept.value == pytest.approx(0.3, abs=0.05)
    assert overconfident.calibration_in_the_large.low > 0.05
    assert overconfident.integrated_calibration_index.low > 0.05
    assert overconfident.hosmer_lemeshow().p_value < 1e-12
    assert overconfident.spiegelhalter().p_value < 1e-12


def test_the_parts_of_the_brier_score_add_up(overconfident):
    parts = overconfident.brier_decomposition(100)
    total = parts.reliability - parts.resolution + parts.uncertainty
    assert total == pytest.approx(overconfident.brier_score.value, abs=2e-4)
    for each in (parts.reliability, parts.resolution, parts.uncertainty):
        assert each.low <= each.value <= each.high
    rate = overconfident.positives / (overconfident.positives + overconfident.negatives)
    assert parts.uncertainty.value == pytest.approx(rate * (1 - rate))
    assert parts.rule == "100 groups of equal width, left-closed"


def test_noise_widens_every_interval():
    rows = drawn(40_000, bend=0.5, shift=0.3)
    axis = fg.Axis.uniform(32, outside="clip")
    exact = fg.evaluate(sites(rows), axis=axis)
    noisy = fg.evaluate(sites(rows), axis=axis, privacy=fg.DistributedDP(0.02), seed=4)
    for name in ("calibration_in_the_large", "calibration_slope", "calibration_intercept"):
        wide, narrow = getattr(noisy, name), getattr(exact, name)
        assert wide.high - wide.low > 1.1 * (narrow.high - narrow.low)
        assert wide.parts["noise"] > 0
    curve, sharp = noisy.calibration_curve(), exact.calibration_curve()
    assert np.mean(curve.high - curve.low) > np.mean(sharp.high - sharp.low)


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_kinds_of_errors(overconfident, kind, strategy):
    error = overconfident.calibration_error(kind, bins=10, strategy=strategy)
    assert 0 <= error.low <= error.value <= error.high <= 1
    curve = overconfident.calibration_curve(10, strategy=strategy)
    plain = {"expected": "ece", "maximum": "mce", "average": "ace", "rms": "rms"}[kind]
    assert error.bounds[0] <= getattr(curve, plain) <= error.bounds[1]
    distance = np.abs(curve.observed - curve.predicted)
    weights = curve.count / curve.count.sum()
    by_hand = {
        "expected": weights @ distance,
        "maximum": distance.max(),
        "average": distance.mean(),
        "rms": math.sqrt(weights @ distance**2),
    }
    assert getattr(curve, plain) == pytest.approx(by_hand[kind], abs=1e-12)


@pytest.mark.parametrize("bins", ["a", [0, "b", 1], None, [[0, 1]]])
def test_groups_that_are_none_are_told(overconfident, bins):
    with pytest.raises(fg.InputError, match="bins must be a whole number"):
        overconfident.calibration_curve(bins)
    with pytest.raises(fg.InputError, match="bins must be a whole number"):
        overconfident.hosmer_lemeshow(bins)


@pytest.mark.parametrize("thresholds", ["a", 0.2, [], ["b"]])
def test_risks_that_are_none_are_told(overconfident, thresholds):
    with pytest.raises(fg.InputError, match="a list of risks"):
        overconfident.decision_curve(thresholds)


def test_no_map_is_fitted_through_a_map(overconfident):
    mapped = overconfident.with_calibrator(overconfident.calibrator("beta"))
    with pytest.raises(fg.InputError, match="read through a map"):
        mapped.calibrator()


def test_a_kind_that_does_not_exist_is_told(overconfident):
    with pytest.raises(fg.InputError, match="'expected', 'maximum', 'average', 'rms'"):
        overconfident.calibration_error("worst")


@pytest.mark.parametrize("name", [*OF_CALIBRATION, "hosmer_lemeshow", "spiegelhalter"])
def test_scores_that_are_no_probabilities(name):
    axis = fg.Axis.uniform(16, -4, 4)
    result = fg.evaluate({"a": ([0, 1, 1], [-2.0, 1.0, 3.0])}, axis=axis)
    with pytest.raises(fg.UndefinedMetric, match="need probabilities"):
        getattr(result, name)() if callable(getattr(type(result), name)) else getattr(result, name)


def test_one_class_has_errors_but_no_slope():
    result = fg.evaluate({"a": ([0, 0, 0], [0.1, 0.2, 0.6])})
    assert result.expected_calibration_error.value > 0
    assert result.calibration_in_the_large.value == pytest.approx(-0.3, abs=1e-3)
    with pytest.raises(fg.UndefinedMetric):
        _ = result.calibration_slope


def test_separated_classes_have_no_slope():
    result = fg.evaluate({"a": ([0, 0, 1, 1], [0.1, 0.2, 0.8, 0.9])})
    with pytest.raises(fg.UndefinedMetric, match="separate the classes"):
        _ = result.calibration_slope


def test_scores_all_alike_have_no_slope():
    result = fg.evaluate({"a": ([0, 1, 1], [0.5, 0.5, 0.5])})
    with pytest.raises(fg.UndefinedMetric, match="all alike"):
        _ = result.calibration_slope
    assert result.expected_calibration_error.value >= 0
    assert len(result.calibration_curve().count) == 1


def test_certain_scores():
    axis = fg.Axis.from_values([0.0, 1.0])
    right = fg.evaluate({"a": ([0, 1, 1], [0.0, 1.0, 1.0])}, axis=axis)
    assert right.expected_calibration_error.value == 0.0
    with pytest.raises(fg.UndefinedMetric):
        right.hosmer_lemeshow()
    with pytest.raises(fg.UndefinedMetric):
        right.spiegelhalter()
    wrong = fg.evaluate({"a": ([1, 1, 0], [0.0, 1.0, 1.0])}, axis=axis)
    assert wrong.hosmer_lemeshow().p_value == 0.0


def test_few_examples_are_cautioned():
    result = fg.evaluate({"a": ([0, 1, 0, 1], [0.2, 0.4, 0.7, 0.9])})
    assert "fewer than 20" in result.expected_calibration_error.caution
    assert "fewer than 30" in result.calibration_slope.caution


def test_scores_that_crowd_in_one_bin(overconfident):
    """The test allows for where in the bin they lie, which chance alone does not; slopes warn."""
    rng = np.random.default_rng(0)
    scores = rng.beta(0.05, 50, 100_000)
    labels = rng.random(100_000) < scores
    result = fg.evaluate({"a": (labels, scores)})
    curve = result.calibration_curve(10, strategy="quantile")
    x, off = curve.predicted, curve.count * (curve.observed - curve.predicted)
    by_chance = np.sum(off**2 / (curve.count * x * (1 - x)))
    assert result.hosmer_lemeshow().statistic < 0.8 * by_chance
    assert "end bin" in result.calibration_slope.caution
    assert overconfident.calibration_slope.caution is None


def test_classes_that_share_one_bin_alone_have_no_slope():
    """The likelihood rises with the slope for ever, though no edge parts the classes."""
    scores = np.append([1e-5, 2e-5], np.linspace(1e-5, 5e-3, 3000))
    result = fg.evaluate({"a": (np.arange(3002) < 2, scores)})
    for name in ("calibration_slope", "calibration_intercept"):
        with pytest.raises(fg.UndefinedMetric, match="the scores separate the classes"):
            getattr(result, name)


def test_bounds_in_noise_hold_the_plain_errors_of_the_rows():
    """Small groups, which noise moves most, must not carry the bounds along."""
    for seed in range(20):
        labels, scores = drawn(6000, seed, bend=0.7)
        axis = fg.Axis.uniform(60, outside="clip")
        result = fg.evaluate(
            sites((labels, scores)), axis=axis, privacy=fg.DistributedDP(0.1), seed=seed
        )
        owner = np.minimum((scores * 15).astype(int), 14)
        held = np.bincount(owner, minlength=15)
        far = (np.abs(np.bincount(owner, labels - scores, minlength=15)) / held)[held > 0]
        for kind, plain in (("maximum", far.max()), ("average", far.mean())):
            low, high = result.calibration_error(kind).bounds
            assert low <= plain <= high


def test_noise_that_hides_a_class_hides_calibration():
    rows = drawn(100)
    result = fg.evaluate(sites(rows), privacy=fg.DistributedDP(0.01), seed=1)
    with pytest.raises(fg.NoSignal):
        _ = result.expected_calibration_error


@pytest.mark.parametrize("privacy", [None, fg.DistributedDP(1.0), fg.LocalDP(4.0)])
def test_a_saved_result_says_the_same(privacy, tmp_path):
    rows = drawn(20_000, bend=0.7)
    options = {} if privacy is None else {"privacy": privacy, "seed": 1}
    result = fg.evaluate(sites(rows), **options)
    result.to_json(tmp_path / "r.json")
    again = fg.Evaluation.from_json(tmp_path / "r.json")
    for name in OF_CALIBRATION:
        assert getattr(again, name) == getattr(result, name)
    assert again.hosmer_lemeshow() == result.hosmer_lemeshow()
    assert again.calibration_curve().ece == result.calibration_curve().ece


def test_score_sums_place_the_scores():
    """All scores at the lower end of wide bins: sums of scores tell, counts alone cannot."""
    rng = np.random.default_rng(8)
    scores = rng.choice([0.01, 0.26, 0.51, 0.76], 8000)
    labels = rng.random(8000) < scores
    axis = fg.Axis.uniform(4)
    plan = fg.EvaluationPlan.for_histogram(axis, fg.Cohort(2), score_sums=True)
    told = fg.evaluate(sites((labels, scores), 2), plan)
    blind = fg.evaluate(sites((labels, scores), 2), axis=axis)
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
    result = fg.evaluate(sites(rows), axis=fg.Axis.uniform(15))
    slope = result.calibration_slope
    error = slope.parts["sampling"]
    assert abs(slope - 1) < 6 * error


@pytest.mark.parametrize("kind", ["expected", "rms"])
def test_noise_alone_is_not_taken_for_miscalibration(kind):
    """Of 20 results of right scores at least 14 have an interval that holds 0.

    At 95% coverage fewer happen less than once in 10^4; without the noise in the variance of the
    groups' sums hardly any holds it.
    """
    axis = fg.Axis.uniform(16, outside="clip")
    held = 0
    for seed in range(20):
        result = fg.evaluate(
            sites(drawn(4000, seed)), axis=axis, privacy=fg.DistributedDP(0.05), seed=seed
        )
        held += result.calibration_error(kind).low == 0.0
    assert held >= 14


@pytest.mark.parametrize("name", ["hosmer_lemeshow", "spiegelhalter"])
def test_tests_of_calibration_allow_for_noise(name):
    """Of 20 results of right scores at most 6 are rejected at 5%.

    More happen less than once in 10^4. Without the noise in their variances over half would be.
    """
    axis = fg.Axis.uniform(16, outside="clip")
    rejected = 0
    for seed in range(20):
        result = fg.evaluate(
            sites(drawn(4000, seed)), axis=axis, privacy=fg.DistributedDP(0.05), seed=seed
        )
        rejected += getattr(result, name)().p_value < 0.05
    assert rejected <= 6
