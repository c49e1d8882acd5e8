"""Groups of bins: which bins they hold, what is summed, and how surely."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedgauge as fg
from fedgauge.estimation.pooled import redraw
from fedgauge.measures.forecasts import Forecasts
from fedgauge.measures.groups import Groups
from fedgauge.measures.reading import Reading

VALUES = [0.0, 0.1, 0.2, 0.3, 0.5, 0.6, 0.8, 0.9, 1.0]


def forecasts(labels, scores, **options):
    result = fg.evaluate({"a": (labels, scores)}, **options)
    return Forecasts.of(Reading(result.pooled, result.estimator, result.level))


def known(labels, scores):
    return forecasts(labels, scores, axis=fg.Axis.from_values(sorted(set(scores))))


def test_a_score_on_an_edge_belongs_above_it():
    # 3/15, 9/15 and 12/15 as floats, and the last group is closed.
    labels, scores = [0, 1, 0, 1, 1], [0.2, 0.6, 0.8, 1.0, 0.0]
    groups = Groups.of(known(labels, scores), 15)
    assert groups.owners.tolist() == [0, 1, 2, 3, 4]
    assert groups.predicted.tolist() == [0.0, 0.2, 0.6, 0.8, 1.0]
    by_edge = np.floor(np.array(sorted(scores)) * 15 + 1e-9).clip(max=14)
    assert by_edge.tolist() == [0, 3, 9, 12, 14]


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


def test_given_edges():
    groups = Groups.of(known([0, 1, 1, 0], [0.1, 0.5, 0.7, 0.9]), [0, 0.5, 0.8, 1])
    assert groups.counts.tolist() == [1.0, 2.0, 1.0]
    assert groups.edges.least.tolist() == [0.1, 0.5, 0.9]


@pytest.mark.parametrize(
    ("bins", "strategy", "told"),
    [
        (0, "uniform", "whole number from 1"),
        (True, "uniform", "whole number from 1"),
        (2.5, "uniform", "whole number from 1"),
        (10, "equal", "strategy must be"),
        ([0, 0.5], "uniform", "rise from 0 to 1"),
        ([0, 0.5, 0.5, 1], "uniform", "rise from 0 to 1"),
        ([0, 0.5, 1], "quantile", "not both"),
    ],
)
def test_wrong_groups_are_told(bins, strategy, told):
    result = fg.evaluate({"a": ([0, 1], [0.2, 0.7])})
    with pytest.raises(fg.InputError, match=told):
        result.calibration_curve(bins, strategy=strategy)


def test_sums_are_those_of_the_rows():
    rng = np.random.default_rng(1)
    scores = rng.choice(VALUES, 500)
    labels = (rng.random(500) < scores).astype(int)
    groups = Groups.of(known(labels, scores), 5)
    owner = np.minimum((scores * 5).astype(int), 4)
    off = labels - scores
    assert groups.excess == pytest.approx(np.bincount(owner, off), abs=1e-9)
    assert np.diag(groups.covariance) == pytest.approx(np.bincount(owner, off**2), abs=1e-9)
    assert groups.predicted == pytest.approx(np.bincount(owner, scores) / np.bincount(owner))
    assert groups.observed == pytest.approx(np.bincount(owner, labels) / np.bincount(owner))


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
    sites = {str(i): (labels[i::5], scores[i::5]) for i in range(5)}
    result = fg.evaluate(sites, plan, seed=3)
    groups = Groups.of(Forecasts.of(Reading(result.pooled, result.estimator, 0.95)), 4)
    exact = result.pooled.counts
    drawn = redraw(np.broadcast_to(exact, (3000, 2, 16)), tree, result.pooled.variances, rng)
    x = groups.forecasts.scores
    by_bin = drawn[:, 1] * (1 - x) - drawn[:, 0] * x
    sums = by_bin @ groups.members.T
    assert np.var(sums, axis=0) == pytest.approx(np.diag(groups.noise), rel=0.25)
    assert np.cov(sums.T) == pytest.approx(groups.noise, abs=0.15 * np.diag(groups.noise).max())
