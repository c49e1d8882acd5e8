"""`evaluate` under distributed differential privacy: what is promised, drawn and kept.

Seeds are fixed: a test of a sample passes always or never, and says how rarely a fresh seed
would fail a right implementation.
"""

import json

import numpy as np
import pytest
from counts import counts_of
from ddp import POLYA, ROWS, clipping, every_model, exact_counts
from rows import split
from scipy import stats

import fedgauge as fg
from fedgauge.engines.simulation import simulate

pytestmark = pytest.mark.usefixtures("few_redraws")
FALSE_ALARM = 1e-6


@every_model
def test_statement(clients, privacy):
    found = fg.evaluate(clients, privacy=privacy, examples=3_000, positive_rate=0.3, tree=(8, 4))
    stated = found.privacy
    assert stated.model == "distributed-dp"
    assert stated.claim == "simulated"
    assert (stated.unit, stated.neighbours) == ("example", "add-remove")
    assert stated.epsilon == 1.0
    assert stated.cohort == fg.Cohort(min_survivors=6, max_colluding=1)
    assert stated.public_inputs == ("examples 3000", "positive_rate 0.3")
    # The tables' own delta is part of the claim, and tiny.
    asked = privacy.delta or 0.0
    assert asked <= stated.delta <= asked + 2**-80
    assert found.plan.privacy == privacy


def test_pure_noise_states_the_distance_of_its_tables(clients):
    assert 0 < fg.evaluate(clients, privacy=POLYA).privacy.delta < 2**-80


@pytest.mark.parametrize(
    ("unit", "neighbours", "stated"),
    [
        ("example", "replace-one", "replace-one"),
        ("client", "replace-one", "replace-one"),
        ("client", "add-remove", "zero-out"),
    ],
)
def test_statement_names_unit_and_neighbours(clients, unit, neighbours, stated):
    privacy = fg.DistributedDP(1.0, unit=unit, neighbours=neighbours)
    found = fg.evaluate(clients, privacy=privacy)
    assert (found.privacy.unit, found.privacy.neighbours) == (unit, stated)
    assert f"for one {unit} ({stated})" in str(found)


def test_hints_are_listed_as_they_were_given_and_no_others(clients):
    assert fg.evaluate(clients, privacy=POLYA).privacy.public_inputs == ()
    found = fg.evaluate(clients, privacy=POLYA, positive_rate=0.3, tree="flat")
    assert found.privacy.public_inputs == ("positive_rate 0.3",)
    found = fg.evaluate(clients, privacy=POLYA, examples=1_234_567, tree=(8, 8))
    assert found.privacy.public_inputs == ("examples 1234567",)


def test_verdict(clients):
    lines = str(fg.evaluate(clients, privacy=POLYA, seed=1)).splitlines()
    assert len(lines) == 6
    assert (
        lines[5]
        == "values             of likely counts, which temper the noise (docs/shrinkage.md)"
    )
    assert lines[0].startswith("6 clients, about ")
    assert "at 95%" in lines[1]
    assert "epsilon 1, delta " in lines[3]
    assert "simulated" in lines[3]


@pytest.mark.parametrize(("delta", "examples"), [(1e-3, 1_000), (0.1, 3_000)])
def test_delta_that_could_publish_an_example_warns(clients, delta, examples):
    privacy = fg.DistributedDP(1.0, delta=delta, noise="skellam")
    with pytest.warns(fg.PrivacyWarning, match=f"not below 1 / {examples:,}"):
        fg.evaluate(clients, privacy=privacy, examples=examples, tree=(8,))


def test_small_delta_does_not_warn(clients):
    # Warnings are errors here.
    privacy = fg.DistributedDP(1.0, delta=0.99e-3, noise="skellam")
    fg.evaluate(clients, privacy=privacy, examples=1_000, tree=(8,))


def test_absurd_epsilon_warns_and_still_counts(clients):
    with pytest.warns(fg.PrivacyWarning, match="epsilon 1000 protects nobody"):
        privacy = fg.DistributedDP(1000.0)
    found = fg.evaluate(clients, privacy=privacy)
    np.testing.assert_array_equal(counts_of(found), exact_counts(found.plan.axis))
    assert len(str(found).splitlines()) == 6


@every_model
def test_a_seed_makes_it_repeatable_and_without_one_no_two_results_are_alike(clients, privacy):
    first, again, other = (fg.evaluate(clients, privacy=privacy, seed=seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(counts_of(first), counts_of(again))
    assert np.any(counts_of(first) != counts_of(other))
    assert first.record == again.record
    first, second = (counts_of(fg.evaluate(clients, privacy=privacy)) for _ in range(2))
    # 128 counts with noise of a deviation above 1 agree with a chance below 2^-128.
    assert np.any(first != second)
    plan = plan_under(privacy, len(clients))
    options = {"seed": 3, "summation": "every-share"}
    first, again = (counts_of(simulate(clients, plan, **options)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert np.any(first != exact_counts(clipping(64)))


def plan_under(privacy, sites, axis=None, *, cohort=None, tree=None):
    axis, cohort = axis or clipping(64), cohort or fg.Cohort(sites)
    return fg.EvaluationPlan.for_histogram(axis, cohort, privacy=privacy, tree=tree)


def noise_at_leaves(privacy, *, bins=8192, seed, every_share, cohort=None, sites=6):
    """Noise at the nodes of one flat level: 2 * bins independent draws."""
    result = simulate(
        split(*ROWS, sites=sites),
        plan_under(privacy, sites, clipping(bins), cohort=cohort),
        seed=seed,
        summation="every-share" if every_share else "plain",
    )
    exact = exact_counts(clipping(bins))
    return (result.released.counts - exact).ravel(), result


@every_model
@pytest.mark.parametrize("cohort", [None, fg.Cohort(4, 2)], ids=["everybody", "more than needed"])
def test_every_share_and_their_sum_follow_one_law(privacy, cohort):
    """False alarms: at most 1e-6 for each of two tests (Kolmogorov-Smirnov is conservative)."""
    alone, _ = noise_at_leaves(privacy, seed=11, every_share=True, cohort=cohort)
    together, found = noise_at_leaves(privacy, seed=12, every_share=False, cohort=cohort)
    assert not np.array_equal(alone, together)
    assert stats.ks_2samp(alone, together).pvalue > FALSE_ALARM
    # Mean squares against the variance stated in the result; their own errors are estimated.
    stated = found.record.slices[0].variances[0][0]
    for noise in (alone, together):
        squares = noise**2
        deviations = (squares.mean() - stated) / (squares.std() / np.sqrt(squares.size))
        assert abs(deviations) < stats.norm.isf(FALSE_ALARM / 2)


@every_model
def test_totals_of_both_ways_follow_one_law(privacy):
    """False alarms: at most 1e-6. Each total adds the noise of 64 leaves of one class."""
    totals = [
        noise_at_leaves(privacy, seed=seed, every_share=every)[0].reshape(-1, 64).sum(axis=1)
        for seed, every in ((21, True), (22, False))
    ]
    assert stats.ks_2samp(*totals).pvalue > FALSE_ALARM
    assert stats.levene(*totals).pvalue > FALSE_ALARM


def test_noise_is_calibrated_to_those_who_do_not_collude():
    """False alarm: 1e-6. With 2 of 4 colluding and 6 there, the variance is three times as large.

    Discrete Laplace noise of epsilon 1 comes from 2 honest clients; 6 clients add their shares.
    """
    noise, _ = noise_at_leaves(POLYA, seed=31, every_share=False, cohort=fg.Cohort(4, 2))
    expected = 3 * 2 * np.exp(-1) / (1 - np.exp(-1)) ** 2
    squares = noise**2
    deviations = (squares.mean() - expected) / (squares.std() / np.sqrt(squares.size))
    assert abs(deviations) < stats.norm.isf(FALSE_ALARM / 2)


@pytest.mark.parametrize("every_share", [False, True])
@every_model
def test_numbers_do_not_depend_on_who_holds_a_row(clients, privacy, every_share):
    labels, scores = ROWS
    order = np.random.default_rng(2).permutation(len(labels))
    uneven = np.split(order, [10, 20, 30, 500, 2_900])
    other = {f"s{i}": (labels[rows], scores[rows]) for i, rows in enumerate(uneven)}
    plan = plan_under(privacy, len(clients), tree=(8, 8))
    options = {"seed": 4, "summation": "every-share" if every_share else "plain"}
    assert simulate(other, plan, **options).record == simulate(clients, plan, **options).record


@every_model
@pytest.mark.parametrize("estimator", [fg.Aligned(), fg.Range("l1")], ids=["aligned", "range"])
def test_json_round_trip(clients, privacy, estimator, tmp_path):
    found = fg.evaluate(clients, privacy=privacy, tree=(8, 4), estimator=estimator, seed=2)
    path = tmp_path / "r.json"
    found.to_json(path)
    loaded = fg.Evaluation.from_json(path)
    assert loaded.record == found.record
    assert loaded.record.to_json() == path.read_bytes()
    assert str(loaded) == str(found)
    np.testing.assert_array_equal(counts_of(loaded), counts_of(found))
    plain = json.loads(path.read_text())["slices"][0]
    assert any(count != int(count) for row in plain["counts"] for count in row)
    assert np.shape(plain["variances"]) == (2, 32)
    assert np.min(plain["variances"]) > 0
    assert plain["metrics"]["roc_auc"]["level"] == 0.95


def test_counts_in_json_agree_with_the_tree(clients):
    """Least squares: the leaves' noise variance is below that of the leaves alone."""
    found = fg.evaluate(clients, privacy=POLYA, tree=(8, 4), seed=2)
    ratio = np.exp(-0.5)
    alone = 6 / 5 * 2 * ratio / (1 - ratio) ** 2
    assert 0.5 * alone < found.record.slices[0].variances[0][0] < alone
