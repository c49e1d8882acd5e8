"""Calibrators fitted to counts: what each gives, where there is little to fit to, and to whom."""

import numpy as np
import pytest
from rows import split
from scipy.special import expit

import fedgauge as fg
from fedgauge.estimation.counts import PooledCounts, redraw
from fedgauge.histograms.calibrator import Beta, LogOddsLine, Steps
from fedgauge.metrics import calibrators
from fedgauge.metrics.calibration import Forecasts
from fedgauge.metrics.calibration_tests import covariance, noise_weights, solve
from fedgauge.metrics.calibrators import METHODS
from fedgauge.metrics.ranking import Reading

FORMS = {
    "auto": LogOddsLine,
    "beta": Beta,
    "isotonic": Steps,
    "platt": Beta,
    "temperature": Beta,
    "binning": Steps,
    "bbq": Steps,
    "scaling-binning": Steps,
}
STRICT = ("auto", "beta", "platt", "temperature")
GRID = np.linspace(0.0, 1.0, 501)
SHIFT = "so this one moves all log-odds by one number"


def forecasts_of(counts, variances=(), tree=None, edges=None):
    """Forecasts of counts by class and bin, on a uniform axis unless edges are given."""
    counts = np.asarray(counts, dtype=np.float64)
    bins = counts.shape[1]
    axis = fg.Axis.from_edges(edges) if edges else fg.Axis.uniform(bins)
    pooled = PooledCounts(axis, counts, tree or (bins,), tuple(variances))
    return Forecasts.of(Reading(pooled, fg.Aligned(), 0.95))


def overconfident(rows, seed=0):
    """Labels, scores whose log-odds are twice the true ones, and the truth."""
    rng = np.random.default_rng(seed)
    log_odds = rng.normal(-0.5, 1.2, rows)
    labels = (rng.random(rows) < expit(log_odds)).astype(int)
    return labels, expit(2.0 * log_odds)


def evaluated(rows=20_000, privacy=None):
    labels, scores = overconfident(rows)
    if privacy is None:
        return fg.evaluate({"a": (labels, scores)}, axis=fg.Axis.uniform(1024))
    hints = {"examples": rows, "positive_rate": 0.4}
    return fg.evaluate(split(labels, scores, 20), privacy=privacy, seed=1, **hints)


@pytest.fixture(scope="module")
def results():
    return {
        "exact": evaluated(),
        "distributed": evaluated(privacy=fg.DistributedDP(1.0)),
        "local": evaluated(privacy=fg.LocalDP(5.0)),
    }


@pytest.mark.parametrize("kind", ["exact", "distributed", "local"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_the_map(results, kind, method):
    calibrator = results[kind].calibrator(method)
    assert calibrator.method == method
    assert calibrator.is_monotone or method in ("binning", "bbq")
    assert calibrator.is_strict == (method in STRICT)
    assert type(calibrator.form) is FORMS[method]
    assert calibrator.fitted.caution == ""
    found = calibrator.transform(GRID)
    assert np.all((found >= 0) & (found <= 1))
    # The truth has half the log-odds of the scores. Mean distances are 0.002 to 0.05, the largest
    # for steps under local noise; that of the scores themselves is 0.11.
    inside = (GRID > 0.02) & (GRID < 0.98)
    truth = np.sqrt(GRID[inside]) / (np.sqrt(GRID[inside]) + np.sqrt(1 - GRID[inside]))
    assert np.abs(found[inside] - truth).mean() < (0.07 if kind == "local" else 0.04)


def test_a_map_says_what_it_was_fitted_on_and_is_the_same_from_a_saved_result(results, tmp_path):
    exact, noisy = (results[kind].calibrator().fitted for kind in ("exact", "distributed"))
    assert (exact.examples, exact.epsilon, exact.delta) == (20_000, None, None)
    assert exact.privacy == "no differential privacy"
    assert noisy.examples == pytest.approx(20_000, abs=200)
    assert noisy.epsilon == 1.0
    assert noisy.privacy.startswith("epsilon 1, delta")
    assert noisy.privacy.endswith("for one example")
    assert noisy.plan == results["distributed"].plan.digest
    for name, result in results.items():
        result.to_json(tmp_path / f"{name}.json")
        again = fg.Evaluation.from_json(tmp_path / f"{name}.json")
        for method in ("auto", "isotonic", "bbq"):
            assert again.calibrator(method) == result.calibrator(method), (name, method)


def test_what_has_no_map_is_refused(results):
    with pytest.raises(fg.InputError, match=r"must be one of auto, beta, .*; got 'best'"):
        results["exact"].calibrator("best")
    result = fg.evaluate({"a": ([0, 1], [-3.0, 4.0])}, axis=fg.Axis.uniform(8, low=-5, high=5))
    with pytest.raises(fg.UndefinedMetric, match="probabilities"):
        result.calibrator()
    axis = fg.Axis.uniform(8, outside="clip")
    clients, privacy = split(*overconfident(60), 20), fg.DistributedDP(0.01)
    hidden = fg.evaluate(clients, axis=axis, privacy=privacy, seed=1)
    with pytest.raises(fg.NoSignal):
        hidden.calibrator()


@pytest.mark.parametrize("method", METHODS)
def test_a_class_without_examples_is_refused(method):
    for counts, missing in (([[3, 4], [0, 0]], "positive"), ([[0, 0], [3, 4]], "negative")):
        with pytest.raises(fg.UndefinedMetric, match=f"no client has a {missing} example"):
            calibrators.fit(forecasts_of(counts), method)


LITTLE = {
    "two examples": [[1, 0, 0, 0], [0, 0, 0, 1]],
    "few examples": [[2, 1, 0, 0], [0, 1, 1, 1]],
    "all scores alike": [[0, 30, 0, 0], [0, 10, 0, 0]],
    "two scores": [[30, 0, 0, 5], [10, 0, 0, 20]],
    "separated": [[40, 50, 0, 0], [0, 0, 60, 30]],
    "one bin": [[30], [10]],
    "empty bins": [[60, 0, 0, 0, 0, 30, 0, 2], [5, 0, 0, 0, 0, 30, 0, 60]],
}


@pytest.mark.parametrize("name", LITTLE)
@pytest.mark.parametrize("method", METHODS)
def test_little_to_fit_to_gives_a_sensible_map(name, method):
    forecasts = forecasts_of(LITTLE[name])
    form = calibrators.fit(forecasts, method)
    found = form.apply(GRID)
    assert np.all((found >= 0) & (found <= 1))
    assert method == "bbq" or np.all(np.diff(found) >= -1e-12)
    # As many positives as there were.
    if method != "temperature":
        predicted = form.apply(forecasts.scores) @ forecasts.totals
        assert predicted == pytest.approx(forecasts.counts[1].sum(), rel=0.05, abs=0.5)


@pytest.mark.parametrize("method", ["auto", "beta", "platt"])
def test_where_all_scores_are_alike_the_map_moves_them_alike(method):
    form = calibrators.fit(forecasts_of(LITTLE["all scores alike"]), method)
    odds = np.array([0.1, 0.375, 0.6])
    moved = form.apply(odds)
    assert moved[1] == pytest.approx(0.25, abs=1e-3)
    shifts = np.log(moved / (1 - moved)) - np.log(odds / (1 - odds))
    assert np.ptp(shifts) < 1e-6


def test_a_map_says_what_it_was_fitted_on_and_carries_cautions(monkeypatch):
    told = calibrators.caution(forecasts_of(LITTLE["two scores"]))
    assert told == (
        "there is little to tell the shape of a map by: its slope is known to 0.3 either way"
    )
    assert calibrators.caution(forecasts_of(LITTLE["one bin"])).endswith("known not at all")
    assert calibrators.caution(forecasts_of(np.array(LITTLE["two scores"]) * 100)) is None
    axis, rows = fg.Axis.uniform(32, outside="clip"), overconfident(2000)
    result = fg.evaluate({"a": rows}, axis=axis, privacy=fg.LocalDP(2.0), seed=1)
    assert result.calibrator("isotonic").fitted.caution.endswith(SHIFT)
    result = evaluated(5000)
    monkeypatch.setattr(fg.Evaluation, "caution", "an end bin is crowded")
    assert result.calibrator().fitted.caution == "the result that it was fitted on has a caution"


@pytest.mark.parametrize("method", METHODS)
def test_where_noise_hides_the_shape_all_log_odds_move_by_one_number(method):
    forecasts = forecasts_of([[30, 25, 12, 4], [4, 9, 14, 20]], [40.0])
    form = calibrators.fit(forecasts, method)
    assert (form.a, form.b) == (1.0, 1.0)
    assert calibrators.caution(forecasts).endswith(SHIFT)
    enough = forecasts_of(np.array([[30, 25, 12, 4], [4, 9, 14, 20]]) * 20, [40.0])
    assert type(calibrators.fit(enough, method)) is FORMS[method]
    assert calibrators.caution(enough) is None


def test_scores_that_point_the_wrong_way_give_a_flat_map_and_a_caution():
    forecasts = forecasts_of([[20, 100, 300], [300, 100, 20]])
    assert "check which label counts as positive" in calibrators.caution(forecasts)
    beta = calibrators.fit(forecasts, "beta")
    assert (beta.a, beta.b) == (0.0, 0.0)
    assert np.ptp(calibrators.fit(forecasts, "isotonic").apply(GRID)) == 0
    auto = calibrators.fit(forecasts, "auto")
    assert auto.is_strict
    assert np.ptp(auto.apply(GRID[50:-50])) < 0.02


def test_one_side_may_bend_and_auto_bends_where_beta_cannot():
    # Negative at low scores, so `a` is 0 and the others are fitted again without it.
    counts = [[80, 85, 90, 60, 20, 5], [20, 15, 10, 40, 80, 95]]
    beta = calibrators.fit(forecasts_of(counts), "beta")
    assert beta.a == 0.0
    assert beta.b > 0.5
    predicted = beta.apply(forecasts_of(counts).scores) @ np.full(6, 100.0)
    assert predicted == pytest.approx(260, abs=1e-4)
    rng = np.random.default_rng(4)
    z = rng.normal(-0.5, 1.8, 100_000)
    truth = expit(0.5 * z + 0.5 * np.sin(z))
    labels = (rng.random(len(z)) < truth).astype(int)
    result = fg.evaluate({"a": (labels, expit(z))}, axis=fg.Axis.uniform(4096))
    auto, beta = (
        np.abs(result.calibrator(method).transform(expit(z)) - truth).mean()
        for method in ("auto", "beta")
    )
    assert auto < 0.006 < 0.03 < beta


def test_auto_does_not_overshoot():
    # The lowest scores come true so often that full steps of Newton's method would go ever farther.
    edges = [0.0, 0.001, 0.03, 0.12, 0.27, 0.45, 0.64, 0.82, 0.97, 0.999, 1.0]
    shares = np.array([0.5, 0.35, 0.57, 0.61, 0.62, 0.75, 0.79, 0.99, 0.99, 0.99])
    counts = np.array([1.0 - shares, shares]) * 100_000
    forecasts = forecasts_of(counts, (2000.0,), edges=edges)
    found = calibrators.fit(forecasts, "auto").apply(forecasts.scores)
    np.testing.assert_allclose(found, shares, atol=0.12)


def test_noise_takes_no_share_to_0_or_1_and_makes_fewer_groups():
    # The first count is below 0 by noise: a value of 0 would make one positive cost endlessly.
    released = np.array([[900.0, 700.0, 300.0, 100.0], [-6.0, 90.0, 200.0, 400.0]])
    for method in ("isotonic", "binning", "bbq"):
        noisy = calibrators.fit(forecasts_of(released, [40.0]), method)
        assert min(noisy.values) > 1e-4, method
    exact = calibrators.fit(forecasts_of(np.maximum(released, 0)), "isotonic")
    assert exact.values[0] == 0.0
    rising = np.arange(64.0)
    counts = [200 - 2 * rising, 50 + 2 * rising]
    exact = calibrators.fit(forecasts_of(counts), "binning")
    noisy = calibrators.fit(forecasts_of(counts, [900.0]), "binning")
    assert len(exact.values) == 25  # the cube root of 16,000
    assert len(noisy.values) < 12


def test_scores_of_0_and_1_do_not_lead_a_map_astray():
    labels, scores = overconfident(5000)
    scores[labels == 0] = np.where(scores[labels == 0] < 0.05, 0.0, scores[labels == 0])
    result = fg.evaluate({"a": (labels, scores)}, axis=fg.Axis.uniform(1024))
    for method in METHODS:
        found = result.calibrator(method).transform([0.0, 0.3, 0.5, 0.7, 1.0])
        assert np.all(np.diff(found) > -0.05), method
        assert found[2] == pytest.approx(0.5, abs=0.15), method


def line(forecasts):
    return np.stack([np.ones(len(forecasts.scores)), forecasts.log_odds], axis=1)


COUNTS = [[90, 70, 40, 30, 12], [10, 20, 35, 60, 88]]


def test_an_offset_moves_and_a_ridge_pulls_what_is_estimated():
    forecasts = forecasts_of(COUNTS)
    design = line(forecasts)
    plain = solve(forecasts, design)
    moved = solve(forecasts, design, offset=forecasts.log_odds)
    np.testing.assert_allclose(plain.coefficients - moved.coefficients, [0.0, 1.0], atol=1e-8)
    np.testing.assert_allclose(plain.probabilities, moved.probabilities)
    # Columns that say the same still have a solution.
    one = np.ones((5, 1))
    twice = solve(forecasts, np.hstack([one, one]))
    assert twice.converged
    np.testing.assert_allclose(twice.probabilities, solve(forecasts, one).probabilities)
    separated = forecasts_of([[50, 30, 0, 0], [0, 0, 20, 60]])
    assert not solve(separated, line(separated)).converged
    held = solve(separated, line(separated), ridge=np.array([0.0, 10.0]))
    stronger = solve(separated, line(separated), ridge=np.array([0.0, 100.0]))
    assert held.converged
    assert stronger.converged
    assert 0 < stronger.coefficients[1] < held.coefficients[1]


def test_noisy_counts_weigh_less_where_rows_are_few_and_enter_as_released():
    counts = np.array(COUNTS, dtype=np.float64)
    counts[:, 2] = 1.0
    forecasts = forecasts_of(counts, (25.0,))
    weights = noise_weights(forecasts, np.full(5, 0.5))
    assert weights[2] < 0.05 < 0.5 < weights[0]
    # The negative count belongs to the sum: without it the rate would be too high.
    released = np.array([[30.0, 30.0], [-4.0, 12.0]])
    forecasts = forecasts_of(released, (9.0,))
    fit = solve(forecasts, np.ones((2, 1)))
    p, w = fit.probabilities, fit.weights
    assert fit.converged
    assert abs((w * (released[1] * (1 - p) - released[0] * p)).sum()) < 1e-6


def test_scores_far_from_the_truth_do_not_stop_the_search_where_it_began():
    # Weights of the outer bins grow tenfold on the way: each single step seems to lead astray.
    edges = [0.0, 0.029, 0.121, 0.267, 0.448, 0.642, 0.823, 0.956, 1.0]
    counts = [
        [18901.0, 14208.0, 8151.0, 5076.0, 3389.0, 2485.0, 2430.0, 2258.0],
        [4040.0, 3091.0, 2531.0, 2900.0, 4096.0, 6180.0, 9641.0, 10624.0],
    ]
    forecasts = forecasts_of(counts, (9000.0,), edges=edges)
    odds = forecasts.log_odds
    logs = [-np.logaddexp(0.0, -odds), np.logaddexp(0.0, odds)]
    design = np.stack([np.ones(8), *logs], axis=1)
    fit = solve(forecasts, design, offset=odds, ridge=np.array([0.0, 10.0, 10.0]))
    assert fit.converged
    np.testing.assert_allclose(1.0 + fit.coefficients[1:], [0.32, 0.74], atol=0.02)


def test_noise_over_a_tree_enters_the_variance_exactly():
    rng = np.random.default_rng(5)
    counts = np.array([[400, 300, 200, 100], [50, 100, 200, 300]], dtype=np.float64)
    tree, variances = (2, 2), (40.0, 60.0)
    forecasts = forecasts_of(counts, variances, tree)
    fit = solve(forecasts, line(forecasts))
    exact = forecasts_of(counts)
    sampling = covariance(exact, fit)
    many = np.array(
        [
            solve(forecasts_of(each, variances, tree), line(forecasts)).coefficients
            for each in redraw(np.broadcast_to(counts, (800, 2, 4)), tree, variances, rng)
        ]
    )
    expected = np.diag(covariance(forecasts, fit) - sampling)
    # Relative error of a variance from 800 draws: 5% and more by the noise's tails; five of those
    # are exceeded once in a million runs.
    np.testing.assert_allclose(many.var(axis=0), expected, rtol=0.25)
