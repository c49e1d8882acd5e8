"""Results read through a map: the numbers of raw scores that went through it, and their noise."""

import copy
import json
from functools import partial

import numpy as np
import pytest
import rows
from refusals import refused
from sklearn import metrics as sk

import fedgauge as fg
from fedgauge.estimation.counts import PooledCounts
from fedgauge.estimation.remapping import RegroupedCounts, mapped
from fedgauge.histograms.calibrator import Beta, Calibrator, Fitted, LogOddsLine, Steps
from fedgauge.metrics import bands
from fedgauge.metrics.estimate import metrics_of
from fedgauge.metrics.ranking import Reading

FORMS = {
    "temperature": Beta(0.6, 0.6, 0.0),
    "beta": Beta(1.4, 0.7, -0.3),
    "line": LogOddsLine([-3.0, -1.0, 0.5, 2.0], [-2.0, -1.2, 0.2, 1.1]),
    "line that rests": LogOddsLine([-3.0, -1.0, 0.5, 2.0], [-2.0, -0.4, -0.4, 1.1]),
    "steps": Steps([0.125, 0.375, 0.5, 0.875], [0.03, 0.15, 0.35, 0.6, 0.9]),
    "steps between edges": Steps([0.1234, 0.37171, 0.7219], [0.03, 0.15, 0.35, 0.9]),
    "steps that fall": Steps([0.125, 0.375, 0.5, 0.875], [0.03, 0.4, 0.15, 0.15, 0.9]),
    "one value": Beta(0.0, 0.0, -0.5),
}
MAPS = {name: Calibrator("auto", form) for name, form in FORMS.items()}
every_map = pytest.mark.parametrize("name", MAPS)
draw_rows = partial(rows.draw_log_odds, apart=1.8, deviation=1.3, low=-1.5)
ROWS = draw_rows(20_000, 0.3, seed=11)
AXIS = fg.Axis.uniform(4096)
PRIVACY = {
    "exact": {},
    "distributed": {"privacy": fg.DistributedDP(1.0), "tree": (8, 8)},
    "local": {"privacy": fg.LocalDP(5.0), "axis": fg.Axis.uniform(64, outside="clip")},
}


@pytest.fixture(scope="module")
def fine():
    return fg.evaluate({"a": ROWS}, axis=AXIS)


@pytest.fixture(scope="module", params=PRIVACY)
def any_result(request):
    options = PRIVACY[request.param]
    return fg.evaluate(rows.split(*draw_rows(3000, 0.3, seed=2), 3), seed=5, **options)


@every_map
def test_numbers_are_those_of_raw_scores_that_went_through_the_map(name, fine):
    labels, scores = ROWS[0], MAPS[name].transform(ROWS[1])
    result = fine.with_calibrator(MAPS[name])
    # A divided bin has some five examples, and any of them is on either side.
    close = 1e-4 if result.pooled.divided else 2e-6
    assert result.log_loss.value == pytest.approx(sk.log_loss(labels, scores), abs=close)
    assert result.brier_score.value == pytest.approx(np.mean((scores - labels) ** 2), abs=close)
    # The other way to judge a map is new data, and the map in front of the axis.
    large = fg.evaluate({"a": (labels, scores)}, axis=AXIS).calibration_in_the_large.value
    assert result.calibration_in_the_large.value == pytest.approx(large, abs=2e-4)
    truth = sk.roc_auc_score(labels, scores)
    assert result.roc_auc.value == pytest.approx(truth, abs=max(close, 5e-6))
    assert result.average_precision.value == pytest.approx(
        sk.average_precision_score(labels, scores), abs=2e-3
    )
    for threshold in (0.1, 0.35, 0.6):
        at = result.at_threshold(threshold)
        flagged = scores >= threshold
        assert at.recall.value == pytest.approx(flagged[labels == 1].mean(), abs=2e-4)
        assert at.fpr.value == pytest.approx(flagged[labels == 0].mean(), abs=2e-4)
        for rate, truth in (at.recall, flagged[labels == 1]), (at.fpr, flagged[labels == 0]):
            assert rate.bounds[0] - 1e-12 <= truth.mean() <= rate.bounds[1] + 1e-12


@every_map
def test_every_number_exists_under_every_privacy_model(name, any_result):
    result = any_result.with_calibrator(MAPS[name])
    for row in metrics_of(fg.Evaluation):
        if name == "one value" and "calibration" in row.name:  # a slope needs scores that differ
            continue
        estimate = getattr(result, row.name)
        assert np.isfinite([estimate.value, *estimate.parts.values()]).all()
        if "calibration" not in row.name:  # of which bounds are about the plain number, if any
            assert estimate.bounds[0] <= estimate.value <= estimate.bounds[1]
    for kind in ("simultaneous", "pointwise"):
        for band in (result.roc_band(kind), result.pr_band(kind), result.gain_band(kind)):
            assert np.all(band.low <= band.high)
    assert result.threshold_for(recall=0.8).recall.value >= 0.8 - 1e-9


def test_steps_tie_scores_and_may_order_them_anew(fine):
    result = fine.with_calibrator(MAPS["steps"])
    assert result.roc_curve().thresholds.tolist() == [np.inf, 0.9, 0.6, 0.35, 0.15, 0.03]
    fpr, tpr, _ = sk.roc_curve(ROWS[0], MAPS["steps"].transform(ROWS[1]), drop_intermediate=False)
    np.testing.assert_allclose(result.roc_curve().fpr, fpr, atol=1e-12)
    np.testing.assert_allclose(result.roc_curve().tpr, tpr, atol=1e-12)
    assert result.roc_auc.bounds[1] - result.roc_auc.bounds[0] < 1e-12
    result = fine.with_calibrator(MAPS["steps that fall"])
    assert result.roc_curve().thresholds.tolist() == [np.inf, 0.9, 0.4, 0.15, 0.03]
    assert result.at_threshold(0.4).on_edge
    flagged = MAPS["steps that fall"].transform(ROWS[1]) >= 0.4
    assert result.at_threshold(0.4).confusion_matrix.tp.value == (flagged & (ROWS[0] == 1)).sum()


def test_a_divided_bin_goes_either_way_or_as_neighbours_suggest():
    axis = fg.Axis.uniform(4)
    pooled = PooledCounts(axis, np.array([[40, 30, 20, 10], [10, 20, 30, 40]]), (4,))
    view = mapped(pooled, Calibrator("binning", Steps([0.4], [0.2, 0.7])))
    assert isinstance(view, RegroupedCounts)
    assert view.divided
    assert view.divides(1)
    assert not view.divides(2)
    low = view.moved(negatives_up=False, positives_up=False).counts
    high = view.moved(negatives_up=True, positives_up=True).counts
    np.testing.assert_array_equal(low, [[70, 30], [30, 70]])
    np.testing.assert_array_equal(high, [[40, 60], [10, 90]])
    mixed = view.moved(negatives_up=True, positives_up=False).counts
    np.testing.assert_array_equal(mixed, [[40, 60], [30, 70]])
    assert np.all((high[:, 0] < view.counts[:, 0]) & (view.counts[:, 0] < low[:, 0]))
    reading = Reading(view, fg.Aligned(), 0.95)
    np.testing.assert_array_equal(reading.worst.pooled.counts, mixed)
    np.testing.assert_allclose(view.counts.sum(axis=1), [100, 100])
    # Counts that rise put less below the middle of a bin, an empty class any share.
    axis = fg.Axis.uniform(3)
    pooled = PooledCounts(axis, np.array([[0, 0, 0], [10, 100, 400]]), (3,))
    view = mapped(pooled, Calibrator("binning", Steps([0.5], [0.2, 0.7])))
    assert 10 < view.counts[1, 0] < 50
    assert view.counts[0].tolist() == [0, 0]
    # The only bin is divided by width.
    pooled = PooledCounts(fg.Axis.uniform(1), np.array([[8], [4]]), (1,))
    view = mapped(pooled, Calibrator("binning", Steps([0.25], [0.2, 0.7])))
    np.testing.assert_allclose(view.counts, [[2, 6], [1, 3]])


def test_bands_hold_the_curve_however_a_bin_is_divided():
    """Of so many examples that bands are hardly wider than what the division leaves open."""
    counts = np.array([[40, 30, 20, 10], [10, 20, 30, 40]]) * 10**9
    pooled = PooledCounts(fg.Axis.uniform(4), counts, (4,))
    view = mapped(pooled, Calibrator("binning", Steps([0.4], [0.2, 0.7])))
    reading = Reading(view, fg.Aligned(), 0.95)
    roc, pr = bands.roc_band(reading, "simultaneous"), bands.pr_band(reading, "simultaneous")
    near = np.argmin(np.abs(roc.x - 0.3))  # all negatives up: 0.6 are flagged; down: 0.3
    assert roc.low[near] <= 1e-4
    assert roc.high[near] >= 0.9
    near = np.argmin(np.abs(pr.x - 0.7))
    assert pr.low[near] <= 0.7 / (0.7 + 0.6) + 1e-4
    assert pr.high[near] >= 0.7 / (0.7 + 0.0) - 1e-4


def test_exact_counts_stay_and_nothing_is_divided_where_steps_are_on_edges(fine):
    assert not fine.with_calibrator(MAPS["steps"]).pooled.divided
    assert not fine.pooled.divided
    assert not fine.pooled.divides(7)
    assert fine.pooled.moved(negatives_up=True, positives_up=False) is fine.pooled
    tied = fine.with_calibrator(Calibrator("binning", Steps([0.5], [0.2, 0.7]))).pooled
    assert not tied.is_shrunk
    assert tied.likely is tied.counts


def test_the_same_axis_and_counts_under_the_map_that_does_nothing(any_result):
    same = Calibrator("temperature", Beta(1.0, 1.0, 0.0))
    result = any_result.with_calibrator(same)
    edges = any_result.pooled.axis.edges
    np.testing.assert_allclose(result.pooled.axis.edges, edges, rtol=1e-14)
    for metric in ("log_loss", "brier_score", "expected_calibration_error", "calibration_slope"):
        before, after = getattr(any_result, metric), getattr(result, metric)
        assert after.value == pytest.approx(before.value, rel=1e-9, abs=1e-12)
        assert (after.low, after.high) == pytest.approx((before.low, before.high), rel=1e-6)


def test_known_values_are_mapped_one_by_one_and_stay_known_under_noise():
    labels, scores = np.array([0, 0, 1, 0, 1, 1]), [0.0, 0.25, 0.25, 0.5, 0.5, 1.0]
    result = fg.evaluate({"a": (labels, scores)}, axis=fg.Axis.from_values([0, 0.25, 0.5, 1]))
    steps = Calibrator("binning", Steps([0.3, 0.6], [0.2, 0.5, 0.5]))
    view = result.with_calibrator(steps)
    assert view.pooled.axis.edges.tolist() == [0.2, 0.5, 0.5]
    truth = np.mean((steps.transform(scores) - labels) ** 2)
    assert view.brier_score.value == pytest.approx(truth)
    assert view.brier_score.bounds[1] - view.brier_score.bounds[0] < 1e-9
    # There an axis clips: scores count as the value below, and are taken as that.
    known = np.arange(11) / 10
    rng = np.random.default_rng(8)
    labels = rng.integers(0, 2, 20_000)
    scores = known[np.clip(rng.normal(3 + 3 * labels, 2), 0, 10).astype(int)]
    result = fg.evaluate(
        rows.split(labels, scores, 3),
        axis=fg.Axis.from_values(known, outside="clip"),
        privacy=fg.DistributedDP(5.0),
        seed=1,
    )
    for name in ("beta", "steps"):
        view, onto = result.with_calibrator(MAPS[name]), MAPS[name].transform(scores)
        assert view.pooled.axis.kind == "values"
        assert view.log_loss.value == pytest.approx(sk.log_loss(labels, onto), abs=1e-3)
        assert view.roc_auc.value == pytest.approx(sk.roc_auc_score(labels, onto), abs=1e-3)


def test_scores_that_tie_or_are_clipped_under_a_map():
    """As they do for those who apply it: here all from log-odds 12 on become 1."""
    axis = fg.Axis.logit(64)
    steep = Calibrator("temperature", Beta(3.1, 3.1, 0.0))
    scores = np.array([0.2, 0.9999999, 1.0 - 2e-7, 0.4])
    labels = np.array([0, 0, 1, 1])
    result = fg.evaluate({"a": (labels, scores)}, axis=axis).with_calibrator(steep)
    assert result.pooled.axis.bins < axis.bins
    truth = sk.log_loss(labels, steep.transform(scores))
    assert result.log_loss.bounds[0] - 1e-9 <= truth <= result.log_loss.bounds[1] + 1e-9
    assert result.log_loss.value == pytest.approx(truth, rel=0.02)
    axis = fg.Axis.uniform(4, 0.25, 0.75, outside="clip")
    result = fg.evaluate({"a": ([0, 1], [0.1, 0.9])}, axis=axis)
    view = result.with_calibrator(MAPS["temperature"])
    assert (view.pooled.axis.low, view.pooled.axis.high) == (0.0, 1.0)
    steps = result.with_calibrator(Calibrator("binning", Steps([0.2, 0.85], [0.1, 0.5, 0.8])))
    assert steps.at_threshold(0.8).recall.bounds == (0.0, 1.0)


def test_score_sums_say_nothing_of_mapped_scores():
    plain, summed = (
        fg.evaluate({"a": ROWS}, axis=fg.Axis.uniform(20), score_sums=sums)
        for sums in (False, True)
    )
    assert summed.log_loss != plain.log_loss
    mapped_ones = [each.with_calibrator(MAPS["beta"]) for each in (plain, summed)]
    assert mapped_ones[0].log_loss == mapped_ones[1].log_loss
    assert mapped_ones[1].with_calibrator(None).log_loss == summed.log_loss


@every_map
def test_a_map_in_the_plan_comes_first(name):
    first = Calibrator("beta", Beta(0.8, 1.1, 0.1))
    result = fg.evaluate({"a": ROWS}, axis=AXIS, calibrator=first)
    view, again = result.with_calibrator(MAPS[name]), first.transform(ROWS[1])
    onto = MAPS[name].transform(again)
    assert view.brier_score.value == pytest.approx(np.mean((onto - ROWS[0]) ** 2), abs=1e-4)
    assert view.plan.calibrator == first
    assert view.mapped_by == MAPS[name]


def test_a_map_is_in_sample_where_it_was_fitted_and_stays_under_other_levels(fine):
    fitted = fine.calibrator("beta")
    assert fine.with_calibrator(fitted).at_level(0.9).in_sample
    other = fg.evaluate({"a": draw_rows(20_000, 0.3, seed=12)}, axis=AXIS)
    judged = other.with_calibrator(fitted)
    assert judged.log_loss.value < other.log_loss.value
    result = fine.with_calibrator(MAPS["steps"]).at_level(0.8).with_estimator(fg.Aligned("linear"))
    assert result.mapped_by == MAPS["steps"]
    assert (result.level, result.estimator) == (0.8, fg.Aligned("linear"))
    other = result.with_calibrator(MAPS["beta"])
    assert other.mapped_by == MAPS["beta"]
    assert other.brier_score.value == fine.with_calibrator(MAPS["beta"]).brier_score.value
    assert result.with_calibrator(None).mapped_by is None
    assert "calibrator" not in json.loads(fine.record.to_json())


def test_maps_that_fit_no_probabilities_or_are_none_are_refused(tmp_path, fine):
    result = fg.evaluate({"a": ([0, 1], [-3.0, 4.0])}, axis=fg.Axis.uniform(8, -5, 5))
    refused(fg.InputError, "runs from -5 to 5", result.with_calibrator, MAPS["beta"])
    plain = json.loads(result.record.to_json())
    plain["calibrator"] = json.loads(MAPS["beta"].to_bytes())
    (tmp_path / "r.json").write_text(json.dumps(plain))
    refused(fg.RecordError, "runs from -5 to 5", fg.Evaluation.from_json, tmp_path / "r.json")
    plain["calibrator"]["form"]["a"] = -1.0
    (tmp_path / "r.json").write_text(json.dumps(plain))
    refused(fg.RecordError, "negative", fg.Evaluation.from_json, tmp_path / "r.json")
    for wrong in ("map.json", 3):
        refused(fg.InputError, r"fg\.Calibrator\.from_json", fine.with_calibrator, wrong)


@pytest.mark.parametrize("name", ["steps", "steps between edges", "steps that fall"])
def test_noise_of_regrouped_counts_is_that_of_their_bins(name, any_result):
    source, view = any_result.pooled, any_result.with_calibrator(MAPS[name]).pooled
    rng = np.random.default_rng(3)
    weights = rng.normal(size=view.counts.shape)
    by_bin = rng.normal(size=source.counts.shape)  # what any counts come to is linear in them
    moved = PooledCounts(source.axis, by_bin, source.tree, source.variances)
    again = type(view)(view.axis, view.released, view.tree, source=moved, parts=view.parts)
    expanded = np.zeros(source.counts.shape)
    for row, bin_ in np.ndindex(*expanded.shape):
        one = np.zeros(expanded.shape)
        one[row, bin_] = 1.0
        parts = view.parts
        for part in np.flatnonzero(parts.bins == bin_):
            expanded[row, bin_] += weights[row, parts.groups[part]] * parts.shares[row, part]
    assert view.noisy == source.noisy
    assert view.noise_variance(weights) == pytest.approx(float(source.noise_variance(expanded)))
    each = np.eye(weights.size).reshape(-1, *weights.shape)
    np.testing.assert_allclose(
        view.leaf_variances.ravel(), [float(view.noise_variance(one)) for one in each]
    )
    assert view.deviation_of_totals == pytest.approx(source.deviation_of_totals)
    assert again.noisy == view.noisy


@pytest.mark.parametrize("sampling", [False, True])
def test_counts_drawn_anew_are_those_of_the_bins_regrouped(any_result, sampling):
    view = any_result.with_calibrator(MAPS["steps"]).pooled
    drawn = view.redrawn(50, sampling=sampling)
    by_bin = any_result.pooled.redrawn(50, sampling=sampling)
    edges = np.searchsorted(any_result.pooled.axis.edges, [0.0, 0.125, 0.375, 0.5, 0.875])
    np.testing.assert_allclose(drawn, np.add.reduceat(by_bin, edges, axis=-1), rtol=1e-9)


@every_map
def test_saved_and_loaded_it_is_the_same(name, any_result, tmp_path):
    result = any_result.with_calibrator(MAPS[name])
    result.to_json(tmp_path / "r.json")
    back = fg.Evaluation.from_json(tmp_path / "r.json")
    assert back.mapped_by == MAPS[name]
    assert back.record == result.record
    assert str(back) == str(result)
    np.testing.assert_array_equal(back.released.counts, any_result.released.counts)
    assert back.record.slices[0].variances == any_result.record.slices[0].variances
    assert back.with_calibrator(None).record == any_result.record
    assert copy.deepcopy(back).record == result.record


def fitted_on(result, **facts):
    return Calibrator(
        "beta", FORMS["beta"], Fitted(20_000, 6_000, "exact sum", plan=result.plan.digest, **facts)
    )


def test_a_map_judged_on_what_it_was_fitted_on_is_said_to_be(fine, tmp_path):
    inside = fine.with_calibrator(fitted_on(fine, source=fine.released.digest))
    assert inside.in_sample
    assert "\nmapped by          beta (a smooth curve of three numbers); in-sample: " in str(inside)
    inside.to_json(tmp_path / "r.json")
    assert fg.Evaluation.from_json(tmp_path / "r.json").in_sample
    other = fg.evaluate({"a": draw_rows(20_000, 0.3, seed=12)}, axis=AXIS)
    outside = other.with_calibrator(fitted_on(fine, source=fine.released.digest))
    assert not outside.in_sample
    assert str(outside).endswith("(a smooth curve of three numbers), fitted on 20,000 examples")
    assert not fine.with_calibrator(fitted_on(fine)).in_sample
    assert not fine.with_calibrator(MAPS["beta"]).in_sample
    assert str(fine.with_calibrator(MAPS["beta"])).endswith("(a smooth curve of three numbers)")
    assert not fine.in_sample
    assert "mapped by" not in str(fine)
    noisy = Fitted(4_980, 1_000, "epsilon 1", epsilon=1.0)
    told = str(fine.with_calibrator(Calibrator("beta", FORMS["beta"], noisy)))
    assert told.endswith("fitted on about 4,980 examples")


def test_a_digest_of_counts_survives_saving_and_tells_others_apart(any_result, fine, tmp_path):
    any_result.to_json(tmp_path / "r.json")
    again = fg.Evaluation.from_json(tmp_path / "r.json")
    assert again.released.digest == any_result.released.digest
    assert any_result.released.digest != fine.released.digest
    refused(fg.CalibratorError, "64 digits", Fitted, 1, 1, "", source="abc")


FARTHEST = {
    "beta": Beta(1.0, 1.0, -600.0),
    "upwards": Beta(1.0, 1.0, 600.0),
    "line": LogOddsLine([0.0, 1e-300, 1e-9, 1.0], [-744.4, -1.0, 5e-324, 5e-324]),
    "ends": LogOddsLine([-745.0, 745.0], [-1e6, 1e6]),
}


@pytest.mark.parametrize("name", FARTHEST)
def test_maps_to_the_ends_of_floats_leave_a_result_to_read(name, tmp_path):
    """A map in a file that somebody else made: numbers come out, whatever they are worth."""
    result = fg.evaluate({"a": ROWS}, axis=fg.Axis.logit(16))
    view = result.with_calibrator(Calibrator("auto", FARTHEST[name]))
    view.to_json(tmp_path / "result.json")
    again = fg.Evaluation.from_json(tmp_path / "result.json")
    assert np.isfinite([again.log_loss.value, again.brier_score.value, again.roc_auc.value]).all()
