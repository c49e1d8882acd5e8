"""`evaluate` under distributed differential privacy: what is promised, planned, drawn and kept.
Seeds are fixed: a test of a sample passes always or never, and says how rarely a fresh seed would
fail a right implementation."""

import json

import numpy as np
import pytest
from counts import counts_of
from ddp import MODELS, POLYA, ROWS, clipping, easy_rows, every_model, exact_counts
from refusals import refused
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
    assert stated.delta > 0
    assert asked <= stated.delta <= asked + 2**-80
    assert found.plan.privacy == privacy


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
    assert lines[5] == "values             smoothed to reduce noise (docs/shrinkage.md)"
    assert lines[0].startswith("6 clients, about ")
    assert "at 95%" in lines[1]
    assert "epsilon 1, delta " in lines[3]
    assert "simulated" in lines[3]


@pytest.mark.parametrize(("delta", "examples"), [(1e-3, 1_000), (0.1, 3_000)])
def test_delta_that_could_publish_an_example_warns(clients, delta, examples):
    privacy = fg.DistributedDP(1.0, delta=delta, noise="skellam")
    with pytest.warns(fg.PrivacyWarning, match=f"not below 1 / {examples:,}"):
        fg.evaluate(clients, privacy=privacy, examples=examples, tree=(8,))


def test_a_small_delta_does_not_warn_and_an_absurd_epsilon_does(clients):
    # Warnings are errors here.
    privacy = fg.DistributedDP(1.0, delta=0.99e-3, noise="skellam")
    fg.evaluate(clients, privacy=privacy, examples=1_000, tree=(8,))
    with pytest.warns(fg.PrivacyWarning, match="epsilon 1000 protects nobody"):
        privacy = fg.DistributedDP(1000.0)
    found = fg.evaluate(clients, privacy=privacy, tree="flat")
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
    Discrete Laplace noise of epsilon 1 comes from 2 honest clients; 6 clients add their shares."""
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


def test_without_hints_planned_as_for_30000_rows_and_a_tree_sets_the_bins(clients):
    for epsilon, tree in ((1.0, (8, 8)), (0.3, (24,)), (0.1, (12,))):
        privacy = fg.DistributedDP(epsilon)
        plan = fg.evaluate(clients, privacy=privacy).plan
        known = {"examples": 30_000, "positive_rate": 0.2}
        same = fg.planner.propose(privacy=privacy, clients=len(clients), **known)
        assert (plan.axis, plan.tree) == (same.axis, same.tree)
        assert plan.tree == tree
    plan = fg.evaluate(clients, privacy=POLYA, tree="flat").plan
    assert plan.axis.spec == clipping(64).spec
    assert plan.tree == (64,)
    assert plan.rounds == (fg.HistogramRound((64,), (1.0,)),)
    plan = fg.evaluate(clients, privacy=POLYA, tree=(16, 8)).plan
    assert plan.axis.spec == clipping(128).spec
    assert plan.tree == (16, 8)
    assert plan.rounds == (fg.HistogramRound((16, 128), (0.5, 0.5)),)


def test_hints_choose_what_the_planner_proposes(clients):
    found = fg.evaluate(clients, privacy=POLYA, examples=3_000, positive_rate=0.3)
    planned = fg.planner.propose(privacy=POLYA, clients=6, examples=3_000, positive_rate=0.3)
    assert found.plan == planned
    assert found.plan.digest == planned.digest
    plan = fg.evaluate(clients, privacy=POLYA, examples=3_000, tree=(8, 4)).plan
    assert plan.tree == (8, 4)
    reference = fg.planner.reference_axis(32, fg.planner.DEFAULT_POSITIVE_RATE)
    assert plan.axis == fg.planner.with_edges(reference)
    flat = fg.evaluate(clients, privacy=POLYA, positive_rate=0.3, tree="flat").plan
    assert flat.tree == (64,)
    assert flat.axis == fg.planner.with_edges(fg.planner.reference_axis(64, 0.3))


@pytest.mark.parametrize(
    "scores", [ROWS[1], 3 * ROWS[1]], ids=["inside the axis", "outside the axis"]
)
def test_axis_that_refuses_is_refused(scores):
    with pytest.raises(fg.PlanError, match='outside="clip"'):
        fg.evaluate(split(ROWS[0], scores, 6), privacy=POLYA, axis=fg.Axis.uniform(16))


@pytest.mark.parametrize("options", [{}, {"tree": (4, 4)}, {"axis": clipping(16)}])
def test_scores_outside_are_clipped(options):
    labels, scores = ROWS
    wide = split(labels, 3 * scores - 1, 6)
    narrow = split(labels, np.clip(3 * scores - 1, 0, 1), 6)
    wide, narrow = (fg.evaluate(c, privacy=POLYA, seed=1, **options) for c in (wide, narrow))
    assert wide.record == narrow.record


@every_model
def test_plan_and_shortcuts_agree(clients, privacy):
    cohort = fg.Cohort(5, 2)
    plan = fg.EvaluationPlan.for_histogram(clipping(64), cohort, tree=(8, 8), privacy=privacy)
    by_plan = fg.evaluate(clients, plan, seed=9)
    by_options = fg.evaluate(
        clients, privacy=privacy, axis=clipping(64), tree=(8, 8), cohort=cohort, seed=9
    )
    assert by_plan.record == by_options.record
    assert by_plan.plan is plan


def test_plan_that_breaks_its_promise_is_refused_before_data_is_read():
    plan = fg.EvaluationPlan.for_histogram(clipping(8), fg.Cohort(6), privacy=POLYA)
    text = plan.to_bytes().replace(b'"noise":[1.0]', b'"noise":[1.5]')
    loose = fg.EvaluationPlan.from_bytes(text)

    def unread():
        raise AssertionError("data was read")

    with pytest.raises(fg.PlanError, match="promises epsilon 1 but its noise costs more"):
        fg.evaluate({f"s{i}": unread for i in range(6)}, loose)


BAD_HINTS = {
    "examples": (0, -5, float("nan"), float("inf"), "many"),
    "positive_rate": (0.0, 1.0, float("nan"), "few"),
}


@pytest.mark.parametrize(("name", "hint"), [(n, hint) for n in BAD_HINTS for hint in BAD_HINTS[n]])
@pytest.mark.parametrize("axis", ["auto", clipping(8)], ids=["auto", "given axis"])
def test_bad_hints_are_refused(clients, name, hint, axis):
    refused(fg.PlanError, name, fg.evaluate, clients, privacy=POLYA, axis=axis, **{name: hint})


@pytest.mark.parametrize("colluding", [6, 7])
def test_everybody_colluding_is_refused(clients, colluding):
    with pytest.raises(fg.PlanError, match=f"no noise is left when {colluding} of 6"):
        fg.evaluate(clients, privacy=POLYA, cohort=fg.Cohort(6, colluding))
    for privacy in MODELS.values():
        with pytest.raises(fg.PlanError, match="no noise is left when 1 of 1 clients collude"):
            fg.evaluate({"alone": ROWS}, privacy=privacy)


def test_cohorts_of_two_or_of_nobody_who_colludes(clients):
    found = fg.evaluate(split(*ROWS, sites=2), privacy=POLYA, tree="flat", seed=1)
    assert found.privacy.cohort == fg.Cohort(2, 1)
    # One client's shares alone are the noise of epsilon 1, and two add theirs.
    ratio = np.exp(-1)
    stated = found.record.slices[0].variances[0][0]
    assert stated == pytest.approx(2 * 2 * ratio / (1 - ratio) ** 2)
    found = fg.evaluate(clients, privacy=POLYA, cohort=fg.Cohort(1, 0), tree="flat", seed=1)
    ratio = np.exp(-1)
    stated = found.record.slices[0].variances[0][0]
    assert stated == pytest.approx(6 * 2 * ratio / (1 - ratio) ** 2)


@every_model
def test_no_signal_is_no_curve(clients, privacy, tmp_path):
    privacy = fg.DistributedDP(0.02, delta=privacy.delta, noise=privacy.noise)
    found = fg.evaluate(clients, privacy=privacy, tree="flat", seed=1)
    for ask in (
        lambda: found.roc_auc,
        lambda: found.average_precision,
        found.roc_curve,
        found.pr_curve,
    ):
        refused(fg.NoSignal, r"no signal: the noise .* Use a larger epsilon", ask)
    assert "no signal" in str(found)
    assert len(str(found).splitlines()) == 5
    for estimator in (fg.Quantile(16), fg.Range()):
        with pytest.raises(fg.NoSignal):
            found.with_estimator(estimator).roc_curve()
    found.to_json(tmp_path / "r.json")
    plain = json.loads((tmp_path / "r.json").read_text())["slices"][0]
    assert plain["metrics"] == {}
    assert plain["curves"] == {"roc": None, "pr": None}
    loaded = fg.Evaluation.from_json(tmp_path / "r.json")
    assert loaded.record == found.record
    with pytest.raises(fg.NoSignal):
        loaded.roc_curve()


def test_no_signal_tells_which_class_is_hidden_or_nowhere():
    labels, scores = easy_rows(3_000, seed=3, rate=0.004)
    found = fg.evaluate(split(labels, scores, 6), privacy=POLYA, tree="flat", seed=1)
    refused(fg.NoSignal, "hides the number of positives", found.roc_curve)
    # Whether a class is missing is not said for sure: that would be a leak.
    labels, scores = ROWS
    found = fg.evaluate(split(np.ones_like(labels), scores, 6), privacy=POLYA, seed=1)
    refused(fg.NoSignal, "negatives", found.roc_curve)


@pytest.mark.parametrize("seed", range(5))
def test_pure_noise_draws_no_curve(seed):
    """Each class needs four standard deviations: a false alarm has a chance below 1e-3 each."""
    tiny = {"a": ([0], [0.1]), "b": ([1], [0.9]), "c": ([1], [0.4])}
    found = fg.evaluate(tiny, privacy=fg.DistributedDP(0.3), seed=seed)
    with pytest.raises(fg.NoSignal):
        found.roc_curve()


ESTIMATORS = {
    "aligned": fg.Aligned(),
    "linear": fg.Aligned("linear"),
    "quantile": fg.Quantile(16),
    "combine": fg.Quantile(16, pr="combine"),
    "range l1": fg.Range("l1"),
    "range l2": fg.Range("l2"),
}


def is_rate(*values):
    return all(np.all((np.asarray(v) >= 0) & (np.asarray(v) <= 1)) for v in values)


@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS.keys())
@pytest.mark.parametrize("options", [{"axis": clipping(16)}, {"tree": (4, 4)}], ids=str)
def test_curves_of_few_noisy_rows_stay_within_their_range(estimator, options):
    """Tiny data near the gate: many negative counts, and curves wherever there is a signal."""
    clients, drawn = split(*easy_rows(240, seed=4, rate=0.4), 4), 0
    options = {"privacy": fg.DistributedDP(0.5), "estimator": estimator, **options}
    grid = np.linspace(0, 1, 101)
    for seed in range(60):
        found = fg.evaluate(clients, seed=seed, **options)
        assert found.negatives >= 0
        assert found.positives >= 0
        try:
            roc, pr = found.roc_curve(), found.pr_curve()
        except fg.NoSignal:
            continue
        drawn += 1
        assert is_rate(roc.fpr, roc.tpr, roc(grid), pr.precision, pr.recall, pr(grid))
        assert np.all(np.diff(roc.fpr) >= 0)
        assert np.all(np.diff(roc.tpr) >= 0)
        assert np.all(np.diff(pr.recall) <= 0)
        assert (roc.fpr[0], roc.tpr[0]) == (0, 0)
        assert (roc.fpr[-1], roc.tpr[-1]) == pytest.approx((1, 1))
        assert is_rate(roc.path.area(), pr.path.area())
        assert np.any(found.released.counts < 0)
    assert drawn >= 10


def test_negative_totals_do_not_crash():
    """Of 40 seeds some make a class, or both, come out below zero."""
    tiny = {"a": ([0], [0.1]), "b": ([1], [0.9]), "c": ([1], [0.4])}
    below = 0
    for seed in range(40):
        found = fg.evaluate(tiny, privacy=fg.DistributedDP(0.1), tree=(8,), seed=seed)
        below += bool(np.any(found.released.counts.sum(axis=1) < 0))
        text = str(found)
        assert len(text.splitlines()) == 5
        assert "nan" not in text
        assert found.negatives >= 0
        assert found.positives >= 0
    assert below > 10
