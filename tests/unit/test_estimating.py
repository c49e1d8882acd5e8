"""The estimating equation: logistic regression without noise, weighed by it with noise."""

import numpy as np
import pytest

import fedgauge as fg
from fedgauge.estimation.pooled import PooledCounts, redraw
from fedgauge.measures.estimating import covariance, noise_weights, solve
from fedgauge.measures.forecasts import Forecasts
from fedgauge.measures.reading import Reading


def forecasts_of(counts, variances=(), tree=None):
    """Forecasts of counts by class and bin, on a uniform axis."""
    counts = np.asarray(counts, dtype=np.float64)
    bins = counts.shape[1]
    pooled = PooledCounts(fg.Axis.uniform(bins=bins), counts, tree or (bins,), variances)
    return Forecasts.of(Reading(pooled, "linear", 0.95))


def line(forecasts):
    return np.stack([np.ones(len(forecasts.scores)), forecasts.log_odds], axis=1)


COUNTS = [[90, 70, 40, 30, 12], [10, 20, 35, 60, 88]]


def test_without_noise_it_is_logistic_regression_on_the_rows():
    sm = pytest.importorskip("statsmodels.api")
    forecasts = forecasts_of(COUNTS)
    design = line(forecasts)
    fit = solve(forecasts, design)
    model = sm.GLM(np.array(COUNTS)[::-1].T, design, family=sm.families.Binomial()).fit()
    np.testing.assert_allclose(fit.coefficients, model.params, rtol=1e-8)
    assert fit.converged
    np.testing.assert_array_equal(fit.weights, 1.0)


def test_without_noise_the_variance_is_that_of_rows_one_by_one():
    sm = pytest.importorskip("statsmodels.api")
    forecasts = forecasts_of(COUNTS)
    design = line(forecasts)
    rows = np.concatenate([np.repeat(design, COUNTS[0], 0), np.repeat(design, COUNTS[1], 0)])
    labels = np.repeat([0.0, 1.0], [sum(COUNTS[0]), sum(COUNTS[1])])
    model = sm.GLM(labels, rows, family=sm.families.Binomial()).fit(cov_type="HC0")
    found = covariance(forecasts, solve(forecasts, design))
    np.testing.assert_allclose(found, model.cov_params(), rtol=1e-8)


def test_an_offset_moves_what_is_estimated():
    forecasts = forecasts_of(COUNTS)
    design = line(forecasts)
    plain = solve(forecasts, design)
    moved = solve(forecasts, design, offset=forecasts.log_odds)
    np.testing.assert_allclose(plain.coefficients - moved.coefficients, [0.0, 1.0], atol=1e-8)
    np.testing.assert_allclose(plain.probabilities, moved.probabilities)


def test_a_ridge_pulls_to_zero_and_holds_separated_classes():
    separated = forecasts_of([[50, 30, 0, 0], [0, 0, 20, 60]])
    assert not solve(separated, line(separated)).converged
    held = solve(separated, line(separated), ridge=np.array([0.0, 10.0]))
    stronger = solve(separated, line(separated), ridge=np.array([0.0, 100.0]))
    assert held.converged
    assert stronger.converged
    assert 0 < stronger.coefficients[1] < held.coefficients[1]


def test_columns_that_say_the_same_still_have_a_solution():
    forecasts = forecasts_of(COUNTS)
    one = np.ones((5, 1))
    twice = solve(forecasts, np.hstack([one, one]))
    assert twice.converged
    np.testing.assert_allclose(twice.probabilities, solve(forecasts, one).probabilities)


def test_noise_makes_bins_with_few_rows_count_less():
    counts = np.array(COUNTS, dtype=np.float64)
    counts[:, 2] = 1.0
    forecasts = forecasts_of(counts, (25.0,))
    weights = noise_weights(forecasts, np.full(5, 0.5))
    assert weights[2] < 0.05 < 0.5 < weights[0]


def test_the_equation_takes_counts_as_released():
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
    pooled = PooledCounts(fg.Axis.from_edges(edges), np.array(counts), (8,), (9000.0,))
    forecasts = Forecasts.of(Reading(pooled, fg.Aligned(), 0.95))
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
            for each in redraw(np.broadcast_to(counts, (2000, 2, 4)), tree, variances, rng)
        ]
    )
    expected = np.diag(covariance(forecasts, fit) - sampling)
    # Relative error of a variance from 2,000 draws: 3.2% and more by the noise's tails; five
    # of those are exceeded once in a million runs.
    np.testing.assert_allclose(many.var(axis=0), expected, rtol=0.25)
