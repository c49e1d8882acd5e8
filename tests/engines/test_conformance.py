"""One suite that every engine passes: the same plan and clients give the same result.

What an engine is, and how another one joins, is in `conformance.py`.
"""

import math
import os
import warnings

import numpy as np
import pytest
from conformance import (
    ENGINES,
    counts_of,
    draw_clients,
    pooled_counts,
    pooled_sums,
    sums_of,
)
from scipy import stats

import fedgauge as fg
from fedgauge.keys import SigningKey
from fedgauge.protocol import Envelope
from fedgauge.secagg import Invitation, Stage
from fedgauge.secagg.messages import Survivors

FALSE_ALARM = 1e-6
CLIENTS = draw_clients(5)
EVERYBODY = list(CLIENTS)
OTHERS = [name for name in CLIENTS if name != "site-1"]
every_stage = pytest.mark.parametrize("stage", Stage, ids=lambda stage: stage.name.lower())


@pytest.fixture(autouse=True)
def few_redraws(monkeypatch):
    """Bounds that come fast. How good they are is tested in tests/statistics."""
    monkeypatch.setattr("fedgauge.measures.estimates._DRAWS", 12)


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch):
    """No waiting for the disk: nothing here crashes."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(params=ENGINES.values(), ids=ENGINES.keys())
def make_engine(request, tmp_path, monkeypatch):
    def make(seed=None):
        return request.param(tmp_path, monkeypatch, seed=seed)

    return make


@pytest.fixture
def engine(make_engine):
    return make_engine()


def exact_plan(*, bins=32, cohort=None, **options):
    """Of 5 clients 4 must stay: a threshold above half of the clients and of one colluder."""
    return fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(bins, outside="clip"), cohort or fg.Cohort(3, 1), **options
    )


def noisy_plan(epsilon=1.0, *, bins=32, cohort=None, privacy=None, **options):
    return fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(bins, outside="clip"),
        cohort or fg.Cohort(3, 1),
        privacy=privacy or fg.DistributedDP(epsilon),
        **options,
    )


@pytest.fixture
def noiseless():
    """A DP plan with an epsilon so large that noise comes once in 10^11 runs.

    It shows what is clipped; and exact sums over cohorts that differ by one are refused.
    """

    def make(**options):
        return noisy_plan(30.0, **options)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "epsilon 30 protects nobody", fg.PrivacyWarning)
        yield make


def assert_sum_over(result, plan, clients, names):
    np.testing.assert_array_equal(counts_of(result), pooled_counts(plan, clients, names))
    assert result.clients == len(names)
    assert result.plan == plan


# The same result everywhere


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


@pytest.mark.parametrize("make_plan", [exact_plan, noisy_plan])
def test_claim(engine, make_plan):
    stated = engine.run(make_plan(), CLIENTS).privacy
    assert stated == make_plan().statement(engine.claim)


def test_result_survives_json(engine, tmp_path):
    result = engine.run(noisy_plan(), CLIENTS)
    result.to_json(tmp_path / "r.json")
    assert fg.Evaluation.from_json(tmp_path / "r.json").record == result.record


def test_runs_do_not_disturb_each_other(engine):
    plan = exact_plan()
    for _ in range(2):
        assert_sum_over(engine.run(plan, CLIENTS), plan, CLIENTS, EVERYBODY)


# Noise


def convolved(masses, times):
    total = np.array([1.0])
    for _ in range(times):
        total = np.convolve(total, masses)
    return total


def noise_masses(privacy, plan, survivors):
    """The law of the noise of the sum, from SciPy: masses of -reach..reach."""
    parties = plan.cohort.min_survivors - plan.cohort.max_colluding
    (strength,) = plan.rounds[0].noise
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
            total = convolved(share / share.sum(), survivors)
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

    4,096 independent draws. The law is the one that `fg.evaluate` draws from.
    """
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
    """Seeded, false alarm 1e-6: leaves and inner nodes of the tree are drawn on their own.

    The bins are least-squares estimates; their mean square is the variance stated.
    """
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


# Clients that leave


@every_stage
def test_sum_over_those_who_stay(engine, stage):
    plan = exact_plan()
    result = engine.run(plan, CLIENTS, silent={"site-1": stage})
    # Counts that were sent are in the sum, whatever their sender does later.
    assert_sum_over(result, plan, CLIENTS, OTHERS if stage <= Stage.MASK else EVERYBODY)
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
def test_several_leave(engine, silent, gone):
    clients, plan = draw_clients(7), exact_plan()
    result = engine.run(plan, clients, silent=silent)
    assert_sum_over(result, plan, clients, [name for name in clients if name not in gone])


@every_stage
def test_too_few_stay(engine, stage):
    silent = {"site-1": stage, "site-3": stage}
    with pytest.raises(fg.CohortTooSmall, match="are needed"):
        engine.run(exact_plan(), CLIENTS, silent=silent)


@every_stage
def test_the_plan_may_need_all(engine, stage):
    plan = exact_plan(cohort=fg.Cohort(5, 1))
    silent = {"site-1": stage}
    if stage <= Stage.MASK:
        with pytest.raises(fg.CohortTooSmall, match="5 are needed"):
            engine.run(plan, CLIENTS, silent=silent)
    else:  # it is in the sum, and its secrets are opened without it
        assert_sum_over(engine.run(plan, CLIENTS, silent=silent), plan, CLIENTS, EVERYBODY)


# Data that do not fit the plan


def assert_left_out(engine, plan, clients, error, match):
    """The client `site-1` refuses: its operator is told, and the others go on."""
    if engine.one_process:
        with pytest.raises(error, match=f"client 'site-1': .*{match}"):
            engine.run(plan, clients)
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
        with pytest.raises(fg.InputError, match=r"client 'site-1': .*no"):
            engine.run(plan, clients)
        return
    assert_sum_over(engine.run(plan, clients), plan, clients, EVERYBODY)


def test_too_few_are_left_when_rows_do_not_fit(engine):
    unfit = ([0, 1], [0.5, float("nan")])
    clients = CLIENTS | {"site-1": unfit, "site-2": unfit}
    with pytest.raises(fg.InputError if engine.one_process else fg.CohortTooSmall):
        engine.run(exact_plan(), clients)


def test_no_row_is_refused_under_noise(engine, noiseless):
    plan = noiseless()
    clients = CLIENTS | {"site-1": ([0, 1], [-3.0, 1.5]), "site-2": ([], [])}
    assert_sum_over(engine.run(plan, clients), plan, clients, EVERYBODY)


def test_the_largest_count_that_a_plan_allows(engine):
    plan = exact_plan(largest=500)
    clients = CLIENTS | {"site-1": ([1] * 500, [0.25] * 500)}
    assert_sum_over(engine.run(plan, clients), plan, clients, EVERYBODY)


def test_larger_counts_are_refused_by_their_client(engine):
    plan = exact_plan(largest=500)
    clients = CLIENTS | {"site-1": ([1] * 501, [0.25] * 501)}
    if engine.one_process:
        with pytest.raises(fg.CountOverflow, match="larger than the 500"):
            engine.run(plan, clients)
        return
    assert_left_out(engine, plan, clients, fg.CountOverflow, "larger than the 500")


def test_larger_counts_are_clipped_under_noise(engine, noiseless):
    plan = noiseless(largest=100)
    clients = {name: ([0, 1, 1], [0.1, 0.2, 0.9]) for name in CLIENTS}
    clients |= {"site-1": ([1] * 300, [0.25] * 300), "site-2": ([1] * 300, [0.25] * 300)}
    clipped = clients | {"site-1": ([1] * 100, [0.25] * 100), "site-2": ([1] * 100, [0.25] * 100)}
    assert_sum_over(engine.run(plan, clients), plan, clipped, EVERYBODY)


# Score sums


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


def test_without_being_asked_for_nobody_sends_score_sums(engine):
    assert engine.run(exact_plan(), CLIENTS)._sums is None


@every_stage
def test_score_sums_over_those_who_stay(engine, stage):
    plan = exact_plan(score_sums=True)
    result = engine.run(plan, CLIENTS, silent={"site-1": stage})
    assert_sums_over(result, plan, CLIENTS, OTHERS if stage <= Stage.MASK else EVERYBODY)


def test_a_client_without_rows_adds_nothing_to_score_sums(engine, noiseless):
    plan = noiseless(score_sums=True)
    clients = CLIENTS | {"site-2": ([], [])}
    assert_sum_over(engine.run(plan, clients), plan, clients, EVERYBODY)


def test_noise_on_score_sums_follows_the_law_of_the_survivors(make_engine):
    """Seeded. A right engine fails with a fresh seed once in a million times, each of three ways.

    4,096 draws that are independent of each other and of those on the counts. Shares of four
    survivors where three must stay: not quite discrete Laplace, so the law of one process is what
    they are held against, and its variance is computed here.
    """
    plan = noisy_plan(bins=2048, score_sums=True)
    result = make_engine(seed=5).run(plan, CLIENTS, silent={"site-1": Stage.MASK})
    noise = (sums_of(result) - pooled_sums(plan, CLIENTS, OTHERS)).ravel()
    ratio = math.exp(-plan.rounds[0].sums.noise / 256)
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


def test_counts_beside_score_sums_may_not_be_larger_either(engine):
    # Sums may be 256 times as large; the words are wide enough, yet a count must not use them.
    plan = exact_plan(largest=500, score_sums=True)
    fits = CLIENTS | {"site-1": ([1] * 500, [0.9999] * 500)}
    assert_sums_over(engine.run(plan, fits), plan, fits, EVERYBODY)
    larger = CLIENTS | {"site-1": ([1] * 501, [0.25] * 501)}
    if engine.one_process:
        with pytest.raises(fg.CountOverflow, match="larger than the 500"):
            engine.run(plan, larger)
        return
    with pytest.raises(fg.CohortTooSmall):  # the sums of both runs would show one site
        engine.run(plan, larger)
    assert "larger than the 500" in str(engine.refusals["site-1"])


def test_score_sums_are_clipped_under_noise(make_engine):
    """Seeded; the noise, of deviation 730, passes 40,000 once in 10^23 draws."""
    plan = noisy_plan(10.0, bins=2, largest=100, score_sums=True)
    rows = ([1] * 9000, [0.49] * 9000)  # at 251 of 256 steps
    result = make_engine(seed=3).run(plan, CLIENTS | {"site-1": rows})
    others = pooled_sums(plan, CLIENTS, OTHERS)
    assert others.min() > 0
    most = plan.rounds[0].largest * 256
    each = [np.minimum(pooled_sums(plan, CLIENTS, [name]), most) for name in OTHERS]
    clipped = np.sum([*each, [[0, 0], [most, 0]]], axis=0)
    assert np.abs(sums_of(result) - clipped).max() < 40_000 < 9000 * 251 - most


# Messages altered, replayed or swapped on their way


def flipped(data):
    """One bit of the body changed, so that the form stays what it was."""
    place = len(data) // 2
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def at(stage, change, *, name="site-1"):
    """A courier that changes what one client sends or gets in one round."""

    def carry(who, when, data):
        return change(data) if (who, when) == (name, stage) else data

    return carry


class Recorder:
    """A courier that keeps a copy of everything."""

    def __init__(self):
        self.seen = {}

    def __call__(self, name, stage, data):
        self.seen[name, stage] = data
        return data


SPOILED = {
    "flipped": flipped,
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda _: b"",
    "lost": lambda _: None,
}
every_spoiling = pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED.keys())


@every_stage
@every_spoiling
def test_spoiled_reply_counts_as_none(engine, stage, spoil):
    plan = exact_plan()
    result = engine.run(plan, CLIENTS, on_reply=at(stage, spoil))
    assert_sum_over(result, plan, CLIENTS, OTHERS if stage <= Stage.MASK else EVERYBODY)


@every_stage
@every_spoiling
def test_spoiled_request_is_refused(engine, stage, spoil):
    plan = exact_plan()
    result = engine.run(plan, CLIENTS, on_request=at(stage, spoil))
    assert_sum_over(result, plan, CLIENTS, OTHERS if stage <= Stage.MASK else EVERYBODY)
    assert list(engine.refusals) == ["site-1"]


@every_stage
def test_replayed_reply_counts_as_none(engine, noiseless, stage):
    """From an earlier run of the same plan between the same parties with the same keys."""
    plan, earlier = noiseless(), Recorder()
    engine.run(plan, CLIENTS, on_reply=earlier)
    replay = at(stage, lambda _: earlier.seen["site-1", stage])
    result = engine.run(plan, CLIENTS, on_reply=replay)
    assert_sum_over(result, plan, CLIENTS, OTHERS if stage <= Stage.MASK else EVERYBODY)


@every_stage
def test_replayed_request_is_refused(engine, noiseless, stage):
    plan, earlier = noiseless(), Recorder()
    engine.run(plan, CLIENTS, on_request=earlier)
    replay = at(stage, lambda _: earlier.seen["site-1", stage])
    result = engine.run(plan, CLIENTS, on_request=replay)
    assert_sum_over(result, plan, CLIENTS, OTHERS if stage <= Stage.MASK else EVERYBODY)


def test_replay_of_all_replies_gives_nothing(engine):
    plan, earlier = exact_plan(), Recorder()
    engine.run(plan, CLIENTS, on_reply=earlier)
    with pytest.raises(fg.CohortTooSmall):
        engine.run(plan, CLIENTS, on_reply=lambda name, stage, _: earlier.seen[name, stage])


class Mixup:
    """A courier that in one round hands the first client's message over as the second's too."""

    def __init__(self, stage):
        self.stage, self.seen = stage, {}

    def __call__(self, name, stage, data):
        if stage == self.stage:
            self.seen[name] = data
            if len(self.seen) == 2:
                return self.seen[next(iter(self.seen))]
        return data

    @property
    def second(self):
        return list(self.seen)[1]

    def stay(self):
        """Who is in the sum when nobody heard of the second, from then on."""
        return [name for name in CLIENTS if self.stage > Stage.MASK or name != self.second]


@every_stage
def test_reply_of_somebody_else_counts_as_none(engine, stage):
    plan, mixup = exact_plan(), Mixup(stage)
    result = engine.run(plan, CLIENTS, on_reply=mixup)
    assert_sum_over(result, plan, CLIENTS, mixup.stay())


@pytest.mark.parametrize("stage", list(Stage)[1:], ids=lambda stage: stage.name.lower())
def test_request_to_somebody_else_is_refused(engine, stage):
    plan, mixup = exact_plan(), Mixup(stage)
    result = engine.run(plan, CLIENTS, on_request=mixup)
    assert_sum_over(result, plan, CLIENTS, mixup.stay())
    assert list(engine.refusals) == [mixup.second]


@pytest.mark.parametrize("stage", list(Stage)[1:], ids=lambda stage: stage.name.lower())
def test_request_of_an_earlier_round_moves_nobody(engine, stage):
    """Asked again what it answered, a client repeats its answer, which is of no use now."""
    plan, asked, answered = exact_plan(), Recorder(), Recorder()

    def ask_again(name, when, data):
        asked(name, when, data)
        before = Stage(stage - 1)
        return asked.seen["site-1", before] if (name, when) == ("site-1", stage) else data

    result = engine.run(plan, CLIENTS, on_request=ask_again, on_reply=answered)
    assert_sum_over(result, plan, CLIENTS, OTHERS if stage <= Stage.MASK else EVERYBODY)
    if ("site-1", stage) in answered.seen:
        assert answered.seen["site-1", stage] == answered.seen["site-1", Stage(stage - 1)]


def test_counts_under_another_signature_are_left_out(engine):
    """A reply signed anew by somebody who is not the client, with a body of the right form."""
    plan, stranger = exact_plan(), SigningKey.generate()

    def forge(data):
        said = Envelope.from_bytes(data)
        return Envelope.sealed(
            stranger,
            session=said.session,
            stage=said.stage,
            sender=said.sender,
            recipient=said.recipient,
            body=said.body,
        ).to_bytes()

    result = engine.run(plan, CLIENTS, on_reply=at(Stage.MASK, forge))
    assert_sum_over(result, plan, CLIENTS, OTHERS)


# Two plans at once


@pytest.mark.parametrize(
    "other",
    [
        exact_plan(bins=16),
        exact_plan(cohort=fg.Cohort(4, 1)),
        exact_plan(largest=1000),
        exact_plan(),
    ],
    ids=["axis", "cohort", "largest", "same plan, another run"],
)
def test_client_that_holds_another_plan_is_left_out(engine, other):
    """Both invitations are signed by the coordinator, and name the same members."""
    plan = exact_plan()

    def invite_elsewhere(data):
        mine = Invitation(data)
        return Invitation.made(other, mine.members, engine.key, bytes(range(32)), mine.graph).data

    result = engine.run(plan, CLIENTS, on_request=at(Stage.ADVERTISE, invite_elsewhere))
    assert_sum_over(result, plan, CLIENTS, OTHERS)


def test_two_plans_for_two_halves_give_no_result(engine):
    plan, other = exact_plan(), exact_plan(bins=16)
    made = []

    def invite_elsewhere(name, stage, data):
        if stage != Stage.ADVERTISE or name in EVERYBODY[:3]:
            return data
        mine = Invitation(data)
        if not made:
            made.append(
                Invitation.made(other, mine.members, engine.key, bytes(32), mine.graph).data
            )
        return made[0]

    with pytest.raises(fg.CohortTooSmall):
        engine.run(plan, CLIENTS, on_request=invite_elsewhere)


def told_otherwise(engine, names):
    """A courier by which a coordinator tells some clients of fewer survivors than there are."""

    def lie(name, stage, data):
        if stage != Stage.AGREE or name not in names:
            return data
        said = Envelope.from_bytes(data)
        left_out = 0b10000000 if said.recipient else 0b00001000  # not the one who is told
        fewer = Survivors.from_bytes(said.body).survivors[0] & ~left_out
        return Envelope.sealed(
            engine.key,
            session=said.session,
            stage=said.stage,
            sender=said.sender,
            recipient=said.recipient,
            body=Survivors(survivors=bytes([fewer])).to_bytes(),
        ).to_bytes()

    return lie


def test_client_told_of_other_survivors_is_outvoted(engine):
    plan = exact_plan()
    result = engine.run(plan, CLIENTS, on_request=told_otherwise(engine, {"site-0"}))
    assert_sum_over(result, plan, CLIENTS, EVERYBODY)


def test_half_the_clients_told_of_other_survivors(engine):
    """A coordinator that tells two stories opens nothing: four must vote for the same one."""
    with pytest.raises(fg.CohortTooSmall, match="3 members answered and 4 are needed"):
        engine.run(exact_plan(), CLIENTS, on_request=told_otherwise(engine, {"site-0", "site-3"}))


# Sites that judge what they are invited to


@pytest.fixture(
    params=[kind for kind in ENGINES.values() if not kind.one_process],
    ids=[name for name, kind in ENGINES.items() if not kind.one_process],
)
def judging(request, tmp_path, monkeypatch):
    engine = request.param(tmp_path, monkeypatch)
    engine.sites(CLIENTS)
    return engine


@pytest.mark.parametrize(
    ("plan", "match"),
    [
        (exact_plan(bins=8192), "max_bins"),
        (exact_plan(cohort=fg.Cohort(2, 1)), "min_cohort"),
        (exact_plan(cohort=fg.Cohort(3, 0)), "max_colluding"),
        (exact_plan(cohort=fg.Cohort(3, 2)), "collude"),
    ],
    ids=["axis", "cohort", "nobody colludes", "one is left"],
)
def test_plan_that_sites_do_not_allow(judging, plan, match):
    with pytest.raises(fg.CohortTooSmall):
        judging.run(plan, CLIENTS)
    assert set(judging.refusals) == set(CLIENTS)
    for name, error in judging.refusals.items():
        assert isinstance(error, fg.PlanRefused)
        assert match in str(error)
        assert judging.sites(CLIENTS).entries(name) == []


def test_budget_is_spent_once_by_each_who_sent(judging):
    judging.run(
        noisy_plan(),
        CLIENTS,
        silent={
            "site-1": Stage.MASK,
        },
    )
    sites = judging.sites(CLIENTS)
    for name in OTHERS:
        assert sites.entries(name) == ["reserve", "commit", "survivors"]
        (balance,) = sites.site(name).ledger.balances()
        assert (balance.spent.epsilon, balance.reserved.epsilon) == (1.0, 0.0)
    assert sites.entries("site-1") == ["reserve"]


def test_exact_sums_over_cohorts_that_differ_by_one(judging):
    """The difference of the two sums would be the counts of one site."""
    plan = exact_plan()
    assert_sum_over(judging.run(plan, CLIENTS), plan, CLIENTS, EVERYBODY)
    with pytest.raises(fg.CohortTooSmall):
        judging.run(plan, CLIENTS, silent={"site-1": Stage.MASK})
    assert set(judging.refusals) == set(OTHERS)
    assert {type(error) for error in judging.refusals.values()} == {fg.PlanRefused}
    assert_sum_over(judging.run(plan, CLIENTS), plan, CLIENTS, EVERYBODY)


def test_noisy_sums_may_differ_by_one(judging, noiseless):
    plan = noiseless()
    judging.run(plan, CLIENTS)
    result = judging.run(plan, CLIENTS, silent={"site-1": Stage.MASK})
    assert_sum_over(result, plan, CLIENTS, OTHERS)
