"""On every engine: data that do not fit the plan, and score sums."""

import itertools
import math

import numpy as np
import pytest
from conformance import (
    CLIENTS,
    EVERYBODY,
    OTHERS,
    ExchangeEngine,
    assert_goes_on,
    assert_sum_over,
    every_stage,
)
from counts import counts_of, pooled_counts, pooled_sums, sums_of
from plans import exact_plan, noisy_plan
from refusals import refused
from scipy import stats

import fedgauge as fg
from fedgauge.engines.simulation import simulate
from fedgauge.secagg import Stage

pytestmark = pytest.mark.usefixtures("few_redraws", "quick_disk")
FALSE_ALARM = 1e-6


def assert_left_out(engine, plan, clients, error, match):
    """The client `site-1` refuses: its operator is told, and the others go on."""
    if engine.one_process:
        refused(error, f"client 'site-1': .*{match}", engine.run, plan, clients)
        return
    result = engine.run(plan, clients)
    assert_sum_over(result, plan, clients, OTHERS)
    assert list(engine.refusals) == ["site-1"]
    assert isinstance(engine.refusals["site-1"], error)
    assert match in str(engine.refusals["site-1"])


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        (([0, 1], [0.5, float("nan")]), fg.InputError, "NaN"),
        (([0, 2], [0.5, 0.5]), fg.InputError, "label"),
        (lambda: [([0], [0.5]), ([1], [float("nan")])], fg.InputError, "NaN"),
    ],
    ids=["nan", "labels", "nan in the second chunk"],
)
def test_rows_that_do_not_fit_an_exact_sum(engine, data, error, match):
    assert_left_out(engine, exact_plan(), CLIENTS | {"site-1": data}, error, match)


def test_scores_outside_are_clipped_in_an_exact_sum(engine):
    # A site that refused them would tell of its scores by its silence.
    plan = exact_plan()
    clients = CLIENTS | {"site-1": ([0, 1], [-3.0, 1.5])}
    assert_sum_over(engine.run(plan, clients), plan, clients, EVERYBODY)


def test_a_client_without_rows_does_not_show(engine):
    plan, clients = exact_plan(), CLIENTS | {"site-1": ([], [])}
    if engine.one_process:  # who holds all data may be told
        refused(fg.InputError, r"client 'site-1': .*no", engine.run, plan, clients)
        return
    assert_sum_over(engine.run(plan, clients), plan, clients, EVERYBODY)


def test_too_few_are_left_when_rows_do_not_fit(engine):
    unfit = ([0, 1], [0.5, float("nan")])
    clients = CLIENTS | {"site-1": unfit, "site-2": unfit}
    with pytest.raises(fg.InputError if engine.one_process else fg.CohortTooSmall):
        engine.run(exact_plan(), clients)


@pytest.mark.parametrize("score_sums", [False, True])
def test_no_row_is_refused_under_noise(engine, noiseless, score_sums):
    plan = noiseless(score_sums=score_sums)
    clients = CLIENTS | {"site-1": ([0, 1], [-3.0, 1.5]), "site-2": ([], [])}
    assert_sum_over(engine.run(plan, clients), plan, clients, EVERYBODY)


def raises():
    raise OSError(5, "the tape is torn")


BROKEN = {
    "not numbers": ([0, 1, 1], [0.5, math.nan, 0.9], [0, 1, 1], [0.5, 0.0, 0.9]),
    "infinite": ([0, 1], [math.inf, -math.inf], [0, 1], [1.0, 0.0]),
    "a third label": ([0, 2, 1], [0.5, 0.5, 0.9], [0, 0, 1], [0.5, 0.5, 0.9]),
    "no labels": (["", None], [0.5, 0.6], [0, 0], [0.5, 0.6]),
}


@pytest.mark.parametrize("kind", [*BROKEN, "raises"])
def test_broken_rows_silence_nobody_under_noise(engine, noiseless, kind):
    """Between sites each counts in a stated place; in one process whoever holds all is told."""
    plan = noiseless()
    if kind == "raises":
        rows, counted = raises, ([], [])
    else:
        labels, scores, *counted = BROKEN[kind]
        rows = (labels, scores)
    clients = CLIENTS | {"site-1": rows}
    if engine.one_process:
        with pytest.raises((fg.InputError, OSError)):
            engine.run(plan, clients)
        return
    result = engine.run(plan, clients)
    assert_sum_over(result, plan, CLIENTS | {"site-1": tuple(counted)}, EVERYBODY)
    assert engine.refusals == {}


def test_rows_that_raise_stop_an_exact_sum(engine):
    """Zeros would be bare in it. The attempt counts, and there is no second one."""
    if engine.one_process:
        refused(OSError, "torn", engine.run, exact_plan(), CLIENTS | {"site-1": raises})
        return
    # Sites that have their scores look at the rows once before they join.
    readable = [[CLIENTS["site-1"]]] if type(engine) is ExchangeEngine else []
    clients = CLIENTS | {"site-1": lambda: readable.pop() if readable else raises()}
    assert_sum_over(engine.run(exact_plan(), clients), exact_plan(), CLIENTS, OTHERS)
    assert set(engine.refusals) == {"site-1"}
    told = str(engine.refusals["site-1"])
    assert told == "the rows could not be read or scored: OSError."
    sites = engine.sites(CLIENTS)
    assert sites.entries("site-1") == ["reserve", "commit"]
    assert not list((sites.folder / "site-1" / "sessions").glob("*.client"))


@pytest.mark.parametrize("score_sums", [False, True])
def test_the_largest_count_that_a_plan_allows(engine, score_sums):
    plan = exact_plan(largest=500, score_sums=score_sums)
    clients = CLIENTS | {"site-1": ([1] * 500, [0.9999] * 500)}
    result = engine.run(plan, clients)
    (assert_sums_over if score_sums else assert_sum_over)(result, plan, clients, EVERYBODY)
    assert (result.released.sums is not None) == score_sums


@pytest.mark.parametrize("score_sums", [False, True])
def test_larger_counts_are_refused_by_their_client(engine, score_sums):
    # Sums may be 256 times as large; the words are wide enough, yet a count must not use them.
    plan = exact_plan(largest=500, score_sums=score_sums)
    clients = CLIENTS | {"site-1": ([1] * 501, [0.25] * 501)}
    assert_left_out(engine, plan, clients, fg.CountOverflow, "larger than the 500")


def test_larger_counts_are_clipped_under_noise(engine, noiseless):
    plan = noiseless(largest=100)
    clients = {name: ([0, 1, 1], [0.1, 0.2, 0.9]) for name in CLIENTS}
    clients |= {"site-1": ([1] * 300, [0.25] * 300), "site-2": ([1] * 300, [0.25] * 300)}
    clipped = clients | {"site-1": ([1] * 100, [0.25] * 100), "site-2": ([1] * 100, [0.25] * 100)}
    assert_sum_over(engine.run(plan, clients), plan, clipped, EVERYBODY)


CROWDED = {f"site-{i}": ([0] * 50 + [1] * 50, [0.05] * 50 + [0.95] * 50) for i in range(5)}


def as_pairs(_folder):
    return CROWDED


def as_streams(_folder):
    return [(name, lambda pair=pair: [pair]) for name, pair in CROWDED.items()]


def as_table(folder):
    rows = [
        f"{name},{label},{score}"
        for name, (labels, scores) in CROWDED.items()
        for label, score in zip(labels, scores, strict=True)
    ]
    path = folder / "all.csv"
    path.write_text("\n".join(["site,y,p", *rows]))
    return fg.ScoreTable([path], client="site", label="y", score="p")


@pytest.mark.parametrize(
    ("summation", "given"),
    [
        *itertools.product(["plain", "every-share"], [as_pairs, as_streams, as_table]),
        *itertools.product(["secure"], [as_pairs, as_streams]),
    ],
)
@pytest.mark.parametrize("tree", [(2,), (2, 2)], ids=["flat", "tree"])
def test_larger_counts_are_clipped_in_every_way_to_sum(noiseless, summation, given, tree, tmp_path):
    plan = noiseless(largest=10, bins=math.prod(tree), tree=tree)
    result = simulate(given(tmp_path), plan, summation=summation)
    # 50 of each class at each site count as 10.
    assert (result.negatives, result.positives) == (50, 50)
    fits = noiseless(largest=50, bins=math.prod(tree), tree=tree)
    result = simulate(given(tmp_path), fits, summation=summation)
    assert (result.negatives, result.positives) == (250, 250)


@pytest.mark.parametrize(
    ("summation", "given"),
    [("plain", as_pairs), ("every-share", as_pairs), ("secure", as_pairs), ("plain", as_table)],
)
def test_larger_counts_are_refused_in_every_way_to_sum_without_noise(summation, given, tmp_path):
    with pytest.raises(fg.CountOverflow, match=r"client 'site-.'.*larger than the 49"):
        simulate(given(tmp_path), exact_plan(largest=49), summation=summation)
    fits = simulate(given(tmp_path), exact_plan(largest=50), summation=summation)
    assert fits.positives == 250


def assert_sums_over(result, plan, clients, names):
    assert_sum_over(result, plan, clients, names)
    np.testing.assert_array_equal(sums_of(result), pooled_sums(plan, clients, names))


@pytest.mark.parametrize(
    "axis",
    [
        fg.Axis.uniform(32, outside="clip"),
        fg.Axis.logit(64, outside="clip"),
        fg.Axis.from_edges([0.2, 0.35, 0.351, 0.9], outside="clip"),
    ],
    ids=["uniform", "logit", "edges that clip"],
)
def test_score_sums_are_those_of_the_pooled_rows(engine, axis, tmp_path):
    plan = fg.EvaluationPlan.for_histogram(axis, fg.Cohort(3, 1), score_sums=True)
    result = engine.run(plan, CLIENTS)
    assert_sums_over(result, plan, CLIENTS, EVERYBODY)
    assert result.record.slices == fg.evaluate(CLIENTS, plan=plan).record.slices
    result.to_json(tmp_path / "r.json")
    assert fg.Evaluation.from_json(tmp_path / "r.json").record == result.record


@every_stage
def test_score_sums_over_those_who_stay(engine, stage):
    plan = exact_plan(score_sums=True)
    if stage == Stage.AGREE:  # it is not opened without the vote of everybody in it
        assert_goes_on(engine, plan, stage, silent={"site-1": stage})
        return
    result = engine.run(plan, CLIENTS, silent={"site-1": stage})
    assert_sums_over(result, plan, CLIENTS, OTHERS if stage <= Stage.MASK else EVERYBODY)


def test_noise_on_score_sums_follows_the_law_of_the_survivors(make_engine):
    """Seeded. A right engine fails with a fresh seed once in a million times, each of three ways.
    4,096 draws that are independent of each other and of those on the counts. Shares of four
    survivors where three must stay: not quite discrete Laplace, so the law of one process is what
    they are held against, and its variance is computed here."""
    plan = noisy_plan(bins=2048, score_sums=True)
    result = make_engine(seed=5).run(plan, CLIENTS, silent={"site-1": Stage.MASK})
    noise = (sums_of(result) - pooled_sums(plan, CLIENTS, OTHERS)).ravel()
    ratio = math.exp(-plan.final.sums.noise / 256)
    variance = 4 / 2 * 2 * ratio / (1 - ratio) ** 2
    assert plan.sums_law(shares=4).variance == pytest.approx(variance, rel=1e-9)
    bound = stats.norm.isf(FALSE_ALARM / 2)
    assert abs(noise.mean()) < bound * math.sqrt(variance / noise.size)
    assert abs(np.mean(noise**2) / variance - 1) < bound * np.std(noise**2) / variance / 64
    plain = fg.evaluate({name: CLIENTS[name] for name in OTHERS}, plan=plan, seed=6)
    drawn = sums_of(plain) - pooled_sums(plan, CLIENTS, OTHERS)
    assert stats.ks_2samp(noise, drawn.ravel()).pvalue > FALSE_ALARM
    on_counts = (counts_of(result) - pooled_counts(plan, CLIENTS, OTHERS)).ravel()
    for one, other in ((noise, on_counts), (noise[1:], noise[:-1]), (noise[:2048], noise[2048:])):
        found = np.corrcoef(one, other)[0, 1] * math.sqrt(one.size)
        assert abs(found) < stats.norm.isf(FALSE_ALARM / 6)


def test_score_sums_are_clipped_under_noise(make_engine):
    """Seeded; the noise, of deviation 730, passes 40,000 once in 10^23 draws."""
    plan = noisy_plan(10.0, bins=2, largest=100, score_sums=True)
    rows = ([1] * 9000, [0.49] * 9000)  # at 251 of 256 steps
    result = make_engine(seed=3).run(plan, CLIENTS | {"site-1": rows})
    others = pooled_sums(plan, CLIENTS, OTHERS)
    assert others.min() > 0
    most = plan.final.largest * 256
    each = [np.minimum(pooled_sums(plan, CLIENTS, [name]), most) for name in OTHERS]
    clipped = np.sum([*each, [[0, 0], [most, 0]]], axis=0)
    assert np.abs(sums_of(result) - clipped).max() < 40_000 < 9000 * 251 - most
