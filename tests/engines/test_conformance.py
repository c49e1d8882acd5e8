"""One suite that every engine passes: the same plan and clients give the same result. What an
engine is, and how another one joins, is in `tests/support/conformance.py`."""

import math
from functools import reduce

import numpy as np
import pytest
from conformance import CLIENTS, EVERYBODY, OTHERS, assert_goes_on, assert_sum_over, every_stage
from counts import counts_of, pooled_counts
from plans import exact_plan, noisy_plan
from refusals import refused
from rows import draw_clients
from scipy import stats

import fedgauge as fg
from fedgauge.histograms.calibrator import LogOddsLine
from fedgauge.secagg import Stage

pytestmark = pytest.mark.usefixtures("few_redraws", "quick_disk")
FALSE_ALARM = 1e-6


@pytest.mark.parametrize(
    ("axis", "tree"),
    [
        (fg.Axis.uniform(32, outside="clip"), None),
        (fg.Axis.uniform(64, outside="clip"), (8, 8)),
        (fg.Axis.logit(64, outside="clip"), None),
        (fg.Axis.from_edges([0, 0.1, 0.35, 0.351, 1], outside="clip"), None),
        (fg.Axis.uniform(4096, outside="clip"), None),
    ],
    ids=["uniform", "tree", "logit", "edges", "fine"],
)
def test_exact_sum_is_that_of_the_pooled_rows(engine, axis, tree):
    plan = fg.EvaluationPlan.for_histogram(axis, fg.Cohort(3, 1), tree=tree)
    result = engine.run(plan, CLIENTS)
    assert_sum_over(result, plan, CLIENTS, EVERYBODY)
    # All metrics and curves too, and so any two engines agree.
    assert result.record.slices == fg.evaluate(CLIENTS, plan=plan).record.slices


@pytest.mark.parametrize("make", [exact_plan, noisy_plan])
def test_rows_go_through_the_map_of_the_plan(engine, make):
    line = LogOddsLine((-2.0, 0.0, 2.0), (-3.0, -1.0, 2.5))
    plan = make().with_calibrator(fg.Calibrator("auto", line))
    through = {n: (y, plan.calibrator.transform(s)) for n, (y, s) in CLIENTS.items()}
    counts, expected = counts_of(engine.run(plan, CLIENTS)), pooled_counts(plan, through)
    # The chance that noise of deviation 1.4 is off by 50 somewhere is below 1e-12.
    np.testing.assert_allclose(counts, expected, atol=50 if plan.is_noisy else 0)
    assert np.abs(expected - pooled_counts(plan, CLIENTS)).max() > 50


@pytest.mark.parametrize("score_sums", [False, True])
def test_small_cells_are_merged_before_anything_is_shown(engine, score_sums, tmp_path):
    plan = exact_plan(bins=256, min_cell=10, score_sums=score_sums)
    result = engine.run(plan, CLIENTS)
    counts, exact = counts_of(result), pooled_counts(plan, CLIENTS, EVERYBODY)
    assert np.any((exact > 0) & (exact < 10))
    assert np.all((counts == 0) | (counts >= 10))
    np.testing.assert_array_equal(counts.sum(axis=1), exact.sum(axis=1))
    assert result.record.slices == fg.evaluate(CLIENTS, plan=plan).record.slices
    result.to_json(tmp_path / "r.json")
    assert fg.Evaluation.from_json(tmp_path / "r.json").record == result.record


def test_a_class_too_small_to_be_shown_is_withheld(engine):
    plan = exact_plan(min_cell=10)
    clients = {name: (np.zeros(40, dtype=int), np.full(40, 0.2)) for name in CLIENTS}
    clients["site-1"][0][:3] = 1
    refused(fg.ResultWithheld, "smallest cell, 10", engine.run, plan, clients)


@pytest.mark.parametrize("least", [0, 10])
def test_no_rows_anywhere_are_no_result(engine, least):
    clients = {name: (np.zeros(0, dtype=int), np.zeros(0)) for name in CLIENTS}
    with pytest.raises(fg.FedgaugeError, match="there are no examples"):
        engine.run(exact_plan(min_cell=least), clients)


@pytest.mark.parametrize("plan", [exact_plan(), noisy_plan(1.0)], ids=["exact", "noisy"])
def test_what_sites_enforced_is_signed_by_the_coordinator_and_survives_json(engine, plan, tmp_path):
    result = engine.run(plan, CLIENTS, silent={"site-4": Stage.MASK})
    result.to_json(tmp_path / "result.json")
    for each in (result, fg.Evaluation.from_json(tmp_path / "result.json")):
        assert each.record == result.record
        assert each.privacy == plan.statement(engine.claim)
        signature = each.signature.by({engine.key.public: "the coordinator"})
        if engine.claim == "simulated":
            assert (signature.state, signature.simulated) == ("unsigned", True)
        else:
            assert signature.state == "verified"
            assert signature.in_words.endswith("confirmed by 4 of 4 sites")


def test_labels_of_text(engine):
    plan = exact_plan(task=fg.BinaryTask(positive="ill"))
    words = {
        name: (np.where(labels == 1, "ill", "well"), scores)
        for name, (labels, scores) in CLIENTS.items()
    }
    assert_sum_over(engine.run(plan, words), plan, words, EVERYBODY)


def test_a_client_of_one_class_and_one_of_one_row(engine):
    clients = CLIENTS | {"site-1": ([1], [0.999]), "site-2": ([0] * 40, [0.25] * 40)}
    plan = exact_plan()
    assert_sum_over(engine.run(plan, clients), plan, clients, EVERYBODY)


def test_the_fewest_clients(engine):
    clients = draw_clients(3)
    plan = exact_plan()
    assert_sum_over(engine.run(plan, clients), plan, clients, list(clients))


def test_runs_do_not_disturb_each_other(engine):
    plan = exact_plan()
    for _ in range(2):
        assert_sum_over(engine.run(plan, CLIENTS), plan, CLIENTS, EVERYBODY)


def noise_masses(privacy, plan, survivors):
    """The law of the noise of the sum, from SciPy: masses of -reach..reach."""
    parties = plan.cohort.min_survivors - plan.cohort.max_colluding
    (strength,) = plan.final.noise
    values = np.arange(-150, 151)
    match privacy.noise:
        case "polya":
            half = stats.nbinom.pmf(np.arange(151), survivors / parties, -math.expm1(-strength))
            return values, np.convolve(half, half[::-1])
        case "skellam":
            mean = strength * survivors / parties
            return values, stats.skellam.pmf(values, mean, mean)
        case _:
            share = np.exp(-(np.arange(-60, 61) ** 2) / (2 * strength / parties))
            total = reduce(np.convolve, [share / share.sum()] * survivors)
            middle = len(total) // 2
            return values, total[middle - 150 : middle + 151]


def assert_follows(noise, values, masses):
    """Pearson's chi-square over cells of at least 20 expected; false alarms: FALSE_ALARM."""
    expected = masses * len(noise)
    likely = values[expected >= 20]
    low, high = likely[0], likely[-1]
    seen = np.bincount(np.clip(noise, low, high) - low, minlength=high - low + 1)
    wanted = expected[(values >= low) & (values <= high)]
    wanted[0] += expected[values < low].sum()
    wanted[-1] += expected[values > high].sum()
    assert len(wanted) >= 5
    assert stats.chisquare(seen, wanted, sum_check=False).pvalue > FALSE_ALARM


MODELS = {
    "polya": fg.DistributedDP(1.0),
    "skellam": fg.DistributedDP(1.0, delta=1e-6, noise="skellam"),
    "discrete-gaussian": fg.DistributedDP(1.0, delta=1e-6, noise="discrete-gaussian"),
}


@pytest.mark.parametrize("privacy", MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize("silent", [{}, {"site-1": Stage.MASK}, {"site-1": Stage.AGREE}])
def test_noise_follows_the_law_of_the_survivors(make_engine, privacy, silent):
    """Seeded. A right engine fails with a fresh seed once in a million times, each of two ways.
    4,096 independent draws. The law is the one that `fg.evaluate` draws from."""
    plan = noisy_plan(bins=2048, privacy=privacy)
    result = make_engine(seed=5).run(plan, CLIENTS, silent=silent)
    stay = OTHERS if Stage.MASK in silent.values() else EVERYBODY
    noise = (counts_of(result) - pooled_counts(plan, CLIENTS, stay)).astype(np.int64).ravel()
    values, masses = noise_masses(privacy, plan, len(stay))
    assert masses.sum() == pytest.approx(1, abs=1e-9)
    assert_follows(noise, values, masses)
    # The variance that the result states is that of this law.
    stated = np.array(result.record.slices[0].variances)
    np.testing.assert_allclose(stated, np.sum(masses * values**2), rtol=1e-6)
    plain = fg.evaluate({name: CLIENTS[name] for name in stay}, plan=plan, seed=6)
    drawn = counts_of(plain) - pooled_counts(plan, CLIENTS, stay)
    assert stats.ks_2samp(noise, drawn.ravel()).pvalue > FALSE_ALARM


def test_noise_on_every_level(make_engine):
    """Seeded, false alarm 1e-6: leaves and inner nodes of the tree are drawn on their own. The bins
    are least-squares estimates; their mean square is the variance stated."""
    plan = noisy_plan(bins=2048, tree=(64, 32))
    result = make_engine(seed=9).run(plan, CLIENTS)
    noise = counts_of(result) - pooled_counts(plan, CLIENTS)
    stated = np.array(result.record.slices[0].variances)
    squares = (noise**2 / stated).reshape(-1, 32).mean(axis=1)  # one node's children
    deviations = (squares.mean() - 1) / (squares.std() / np.sqrt(squares.size))
    assert abs(deviations) < stats.norm.isf(FALSE_ALARM / 2)
    assert np.any(noise != np.round(noise))


def test_noise_is_fresh_every_time(engine):
    """128 draws of a deviation above 1 agree with a chance below 2^-128."""
    plan = noisy_plan(bins=64)
    first, second = (counts_of(engine.run(plan, CLIENTS)) for _ in range(2))
    assert np.any(first != second)


@every_stage
def test_sum_over_those_who_stay(engine, make_plan, stage):
    assert_goes_on(engine, make_plan(), stage, silent={"site-1": stage})
    assert engine.refusals == {}


@pytest.mark.parametrize(
    ("silent", "gone"),
    [
        ({"site-0": Stage.SHARE, "site-4": Stage.MASK}, {"site-0", "site-4"}),
        ({"site-0": Stage.MASK, "site-4": Stage.OPEN}, {"site-0"}),
        ({"site-0": Stage.ADVERTISE, "site-4": Stage.AGREE}, {"site-0"}),
        ({"site-2": Stage.AGREE, "site-3": Stage.OPEN}, set()),
    ],
)
def test_several_leave(engine, make_plan, silent, gone):
    clients, plan = draw_clients(7), make_plan()
    if Stage.AGREE in silent.values() and not plan.is_noisy:
        with pytest.raises(fg.CohortTooSmall, match=r"members answered and [67] are needed"):
            engine.run(plan, clients, silent=silent)
        return
    result = engine.run(plan, clients, silent=silent)
    assert_sum_over(result, plan, clients, [name for name in clients if name not in gone])


@every_stage
def test_too_few_stay(engine, stage):
    silent = {"site-1": stage, "site-3": stage}
    refused(fg.CohortTooSmall, "are needed", engine.run, exact_plan(), CLIENTS, silent=silent)


@every_stage
def test_the_plan_may_need_all(engine, make_plan, stage):
    plan = make_plan(cohort=fg.Cohort(5, 1))
    silent = {"site-1": stage}
    if stage <= Stage.MASK:
        refused(fg.CohortTooSmall, "5 are needed", engine.run, plan, CLIENTS, silent=silent)
    else:  # it is in the sum, and its secrets are opened without it
        assert_goes_on(engine, plan, stage, silent=silent)
