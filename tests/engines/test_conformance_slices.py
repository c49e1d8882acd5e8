"""On every engine: groups, classes, labels and models give what a simulation gives."""

import numpy as np
import pytest
from conformance import CLIENTS, EVERYBODY
from plans import exact_plan, noisy_plan

import fedgauge as fg
from fedgauge.plan.explain import explain
from fedgauge.secagg import Stage
from noise import without_noise

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
    "losses": fg.BinaryTask(**PAIR, paired_brier=True, groups={"sex": ["women", "men"]}),
}


def draw(task, rows, seed):
    """Rows such as a task asks for."""
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


@pytest.mark.parametrize("kind", [kind for kind in TASKS if kind != "losses"])
def test_an_exact_sum_of_slices_is_that_of_a_simulation(engine, kind):
    """No plan hides small cells of loss differences, and sites send no pair without."""
    least = 5 if kind in ("pair", "crossed") else 0
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
