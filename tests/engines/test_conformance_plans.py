"""On every engine: groups, classes, labels and models give what a simulation gives; plans of two
rounds have the same bins, the same counts, the same who may leave; and impossible counts, sent by
one member of five, is refused or under noise cautioned. A secure sum cannot tell who it was."""

import warnings

import numpy as np
import pytest
from conformance import CLIENTS, EVERYBODY, OTHERS
from counts import counts_of, pooled_counts, pooled_sums
from plans import exact_plan, noisy_plan

import fedgauge as fg
from fedgauge.plan.explain import explain
from fedgauge.secagg import Stage
from noise import without_noise
from poison import at, poison, sums_at

pytestmark = pytest.mark.usefixtures("few_redraws", "quick_disk")
KINDS = np.array(["cat", "dog", "owl"])
PAIR = {"models": ("new", "old"), "pairs": [("new", "old")]}
BY = {"sex": ["women", "men"], "age": ["old"]}
TASKS = {
    "crossed": fg.BinaryTask(groups=BY, crossed=True),
    "labels": fg.MultilabelTask(labels=["fever", "cough"], groups=BY),
    "classes": fg.MulticlassTask(labels=KINDS.tolist(), also=["confusion", "ranks", "top"]),
    "models": fg.MulticlassTask(labels=KINDS.tolist(), models=("new", "old"), also=["confusion"]),
    "pair": fg.BinaryTask(**PAIR),
    "pair by group": fg.BinaryTask(**PAIR, groups={"sex": ["women", "men"]}),
}


def draw(task, rows, seed):
    rng = np.random.default_rng(seed)
    layout = task.layout
    kind = rng.integers(0, layout.by_block, rows)
    labels = KINDS[kind] if layout.classes else kind
    if layout.labels > 1:
        labels = rng.integers(0, 2, (rows, layout.labels))
    groups = {name: rng.choice([*values, "unknown"], rows) for name, values in layout.groups}
    of_models = {}
    for model in layout.models or (None,):
        scores = rng.random((rows, layout.scores))
        scores[np.arange(rows), kind % layout.scores] += 0.3
        of_models[model] = np.clip(scores if layout.scores > 1 else scores[:, 0], 0, 1)
    scores = of_models if layout.models else of_models[None]
    return fg.Examples(labels, scores, group=groups or None)


def clients_of(task, rows=80):
    return {name: draw(task, rows + 10 * i, seed=i) for i, name in enumerate(EVERYBODY)}


def assert_same(result, expected):
    """All counts, tables, metrics and curves."""
    assert result.record.slices == expected.record.slices
    np.testing.assert_array_equal(result.released.counts, expected.released.counts)
    assert len(result.released.tables) == len(expected.released.tables)
    for ours, theirs in zip(result.released.tables, expected.released.tables, strict=True):
        assert ours.table == theirs.table
        np.testing.assert_array_equal(ours.values, theirs.values)


@pytest.mark.parametrize("kind", TASKS)
def test_an_exact_sum_of_slices_is_that_of_a_simulation(engine, kind):
    least = 5 if kind in ("pair", "pair by group", "crossed") else 0
    plan = exact_plan(bins=8, task=TASKS[kind], min_cell=least)
    clients = clients_of(plan.task)
    assert_same(engine.run(plan, clients), fg.evaluate(clients, plan=plan))


@pytest.mark.parametrize("kind", TASKS)
def test_slices_under_noise_are_those_of_a_simulation(engine, kind, tmp_path, monkeypatch):
    without_noise(monkeypatch)
    plan, clients = noisy_plan(task=TASKS[kind], bins=8), clients_of(TASKS[kind])
    result = engine.run(plan, clients)
    assert engine.refusals == {}
    expected = fg.evaluate(clients, plan=plan)
    assert_same(result, expected)
    assert result.released.counts.sum() == pytest.approx(
        sum(map(len, clients.values())) * plan.task.per_row
    )
    # Saved and read again, all of it is there and fits what was signed.
    result.to_json(tmp_path / "r.json")
    again = fg.Evaluation.from_json(tmp_path / "r.json")
    assert again.record == result.record
    signed = again.signature.by({engine.key.public: "the coordinator"})
    assert signed.state == ("unsigned" if engine.claim == "simulated" else "verified")


@pytest.mark.parametrize("kind", ["classes", "pair"])
def test_what_a_client_sends_is_as_large_as_the_plan_says(engine, kind):
    """Whatever its rows."""
    plan, sizes = noisy_plan(task=TASKS[kind], bins=8), set()

    def on_reply(_name, stage, data):
        if stage == Stage.MASK:
            sizes.add(len(data))
        return data

    engine.run(plan, clients_of(TASKS[kind]), on_reply=on_reply)
    (size,) = sizes
    assert plan.bytes_per_client < size < plan.bytes_per_client + 500
    assert f"{plan.bytes_per_client:,} bytes" in explain(plan)


def grouped(clients, groups=("a", "b", "few")):
    """The same rows with a group each; "few" has one row at each client."""
    rng, rows = np.random.default_rng(8), {}
    for name, (labels, scores) in clients.items():
        group = rng.choice(groups[:2], len(labels)).astype(object)
        group[0] = groups[2]
        rows[name] = fg.Examples(labels, scores, group=group)
    return rows


def test_groups_are_counted_and_small_ones_hidden(engine, tmp_path):
    task = fg.BinaryTask(groups={"g": ["a", "few", "b"]})
    plan = exact_plan(bins=64, min_cell=10, task=task)
    clients = grouped(CLIENTS)
    result = engine.run(plan, clients)
    assert result.released.joined == ("few", "b")  # "other" has no rows: b hides the few
    assert result.record.slices == fg.evaluate(clients, plan=plan).record.slices
    with pytest.raises(fg.NoSignal, match="group few is not shown"):
        _ = result.select(group="few").roc_auc
    result.to_json(tmp_path / "r.json")
    again = fg.Evaluation.from_json(tmp_path / "r.json")
    assert (again.record, str(again)) == (result.record, str(result))
    assert again.signature.state == result.signature.state != "broken"


def test_groups_under_noise(engine):
    plan = noisy_plan(5.0, bins=16, task=fg.BinaryTask(groups={"g": ["a", "few", "b"]}))
    result = engine.run(plan, grouped(CLIENTS))
    exact = fg.evaluate(grouped(CLIENTS), task=plan.task, axis=plan.axis)
    for group in ("a", "b"):
        part, true = (each.select(group=group) for each in (result, exact))
        # Noise of deviation 0.2 in each of 16 bins: beyond 50 with a chance far below 1e-9.
        assert abs(part.positives - true.positives) < 50
    assert abs(result.select(group="few").pooled.unbiased.sum() - len(CLIENTS)) < 50


def test_rows_without_groups_are_not_counted_by_group(engine):
    plan = exact_plan(task=fg.BinaryTask(groups={"g": ["a"]}))
    with pytest.raises(fg.FedgaugeError):
        engine.run(plan, CLIENTS)


TWO = fg.TwoRound(12, share=0.5, coarse=fg.Axis.uniform(32, outside="clip"))


@pytest.fixture
def plans():
    """Plans of two rounds without noise, and with noise that comes once in 10^7 runs."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "epsilon 45 protects nobody", fg.PrivacyWarning)
        made = {"exact": fg.SecureAggregation(), "noiseless": fg.DistributedDP(45.0)}
        yield {
            name: fg.EvaluationPlan.for_histogram(TWO, fg.Cohort(3, 1), privacy=privacy)
            for name, privacy in made.items()
        }


def assert_both_rounds(result, plan, first, then):
    """What each round is over: the bins follow from the first, the counts are of the second."""
    coarse = pooled_counts(plan, CLIENTS, first).sum(axis=0)
    assert result.plan.found.counts == tuple(coarse.tolist())
    assert result.plan.found.clients == len(first)
    assert result.axis == result.plan.found.axis
    np.testing.assert_array_equal(counts_of(result), pooled_counts(result.plan, CLIENTS, then))
    assert result.clients == len(then)
    assert result.plan.whole == plan


@pytest.mark.parametrize("kind", ["exact", "noiseless"])
def test_both_rounds_are_over_the_pooled_rows(engine, plans, kind):
    result = engine.run(plans[kind], CLIENTS)
    assert_both_rounds(result, plans[kind], EVERYBODY, EVERYBODY)
    assert result.record.slices == fg.evaluate(CLIENTS, plan=plans[kind], seed=1).record.slices
    assert not engine.refusals


def test_slices_are_told_apart_in_the_second_round(engine):
    rng = np.random.default_rng(5)
    clients = {
        name: fg.Examples.leniently(y, s, group={"sex": rng.choice(["women", "men"], len(y))})
        for name, (y, s) in CLIENTS.items()
    }
    plan = fg.EvaluationPlan.for_histogram(
        TWO, fg.Cohort(3, 1), task=fg.BinaryTask(groups={"sex": ["women"]})
    )
    result = engine.run(plan, clients)
    assert result.record.slices == fg.evaluate(clients, plan=plan).record.slices


@pytest.mark.parametrize("stage", [Stage.ADVERTISE, Stage.MASK, Stage.AGREE])
def test_who_leaves_between_the_rounds_is_survived_under_noise(engine, plans, stage):
    result = engine.run(plans["noiseless"], CLIENTS, silent_then={"site-1": stage})
    then = EVERYBODY if stage > Stage.MASK else OTHERS
    assert_both_rounds(result, plans["noiseless"], EVERYBODY, then)


def test_who_missed_the_first_round_counts_in_the_second_under_noise(engine, plans):
    result = engine.run(plans["noiseless"], CLIENTS, silent={"site-1": Stage.MASK})
    assert_both_rounds(result, plans["noiseless"], OTHERS, EVERYBODY)


@pytest.mark.parametrize("stage", [Stage.ADVERTISE, Stage.MASK, Stage.AGREE])
def test_who_leaves_between_exact_sums_ends_the_evaluation(engine, plans, stage):
    with pytest.raises(fg.CohortTooSmall, match="4 members answered and 5 are needed"):
        engine.run(plans["exact"], CLIENTS, silent_then={"site-1": stage})


LARGEST = 10**6  # five of them and their sums fit 32 bits, and so does what the member sends
EXACT = exact_plan(largest=LARGEST)
SUMS = exact_plan(score_sums=True)
COUNTS, SCORES = pooled_counts(EXACT, CLIENTS), pooled_sums(SUMS, CLIENTS)
FEWEST = int(COUNTS[1].argmin())
TOP = EXACT.axis.bins - 1
HUGE = [(1, TOP, 2**29)]
NEGATIVE = [(1, FEWEST, -COUNTS[1, FEWEST] - 1)]
UNCHANGED_TOTALS = [*NEGATIVE, (1, TOP, COUNTS[1, FEWEST] + 1)]
IMPOSSIBLE = {
    "huge": (EXACT, at(EXACT, *HUGE), "above the plan's largest"),
    "negative": (EXACT, at(EXACT, *NEGATIVE), "a count of the sum is negative"),
    "unchanged-totals": (EXACT, at(EXACT, *UNCHANGED_TOTALS), "a count of the sum is negative"),
    "small-cells-merged": (
        exact_plan(min_cell=10),
        at(EXACT, *UNCHANGED_TOTALS),
        "a count of the sum is negative",
    ),
    "negative-score-sum": (SUMS, sums_at(SUMS, 0, 3, -SCORES[0, 3] - 1), "a score sum is negative"),
    "large-score-sum": (
        SUMS,
        sums_at(SUMS, 0, 3, SUMS.final.sum_steps * COUNTS[0, 3] - SCORES[0, 3] + 1),
        "a score sum is above",
    ),
}


@pytest.mark.parametrize(("plan", "added", "told"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_an_exact_sum_that_no_rows_have_is_refused(engine, monkeypatch, plan, added, told):
    sent = poison(monkeypatch, added)
    with pytest.raises(fg.ProtocolError, match=told) as refused:
        engine.run(plan, CLIENTS)
    assert len(sent) == len(CLIENTS)
    assert "start again without sites you distrust" in str(refused.value)
    assert refused.value.exit_code == 1


def test_as_many_rows_as_all_may_have_are_not_refused(engine, monkeypatch):
    """What no check can see: up to the limit of all members, whoever sends it."""
    most = 5 * LARGEST - COUNTS[1, TOP]
    poison(monkeypatch, at(EXACT, (1, TOP, most)))
    result = engine.run(EXACT, CLIENTS)
    assert result.positives == COUNTS[1].sum() + most


@pytest.mark.parametrize("tree", [None, (4, 8)], ids=["flat", "tree"])
@pytest.mark.parametrize(
    "changes",
    [HUGE, [(1, 0, -400)], [(1, 0, -400), (1, TOP, 400)]],
    ids=["huge", "negative", "unchanged-totals"],
)
def test_under_noise_it_is_a_caution(engine, monkeypatch, tmp_path, tree, changes):
    plan = noisy_plan(1.0, bins=32, tree=tree, largest=LARGEST)
    poison(monkeypatch, at(plan, *changes))
    result = engine.run(plan, CLIENTS)
    assert "impossible counts" in result.caution
    assert str(result).splitlines()[-1] == f"caution            {result.caution}"
    result.to_json(tmp_path / "r.json")
    assert fg.Evaluation.from_json(tmp_path / "r.json").caution == result.caution


@pytest.mark.parametrize("score_sums", [False, True])
def test_honest_members_are_not_cautioned(engine, score_sums):
    """Chance of a false alarm: 1e-6."""
    clients = {**CLIENTS, "site-1": (np.zeros(0, dtype=int), np.zeros(0))}
    result = engine.run(noisy_plan(1.0, score_sums=score_sums), clients)
    assert result.caution is None
    assert len(str(result).splitlines()) == 6
