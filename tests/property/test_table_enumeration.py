"""Privacy of tables by enumeration: all neighbours of small inputs, all outputs. As in
test_privacy_enumeration.py. Changes come from the code that makes a client's numbers, for every row
of a small domain, and laws are those that are drawn from."""

import itertools

import msgspec
import numpy as np
import pytest
from losses import worst_loss

import fedgauge as fg
from fedgauge.engines.contribution import to_numbers
from fedgauge.histograms.tables import Table
from fedgauge.plan.task import BinaryTask

SLACK = 1e-12
COHORT = fg.Cohort(4, 1)
HONEST = 3
PAIR = {"models": ("new", "old"), "pairs": (("new", "old"),)}
TASKS = {
    "joint": BinaryTask(**PAIR),
    "joint, groups": BinaryTask(**PAIR, groups={"sex": ["w"]}),
    "joint, two groupings": BinaryTask(**PAIR, groups={"sex": ["w"], "age": ["young"]}),
    "joint, crossed": BinaryTask(**PAIR, groups={"sex": ["w"], "age": ["young"]}, crossed=True),
    "two pairs": BinaryTask(
        models=("new", "old", "third"), pairs=(("new", "old"), ("new", "third"))
    ),
}
SCORES = (0.1, 0.8)


def plan_for(task, neighbours="add-remove"):
    privacy = fg.DistributedDP(1.0, neighbours=neighbours)
    axis = fg.Axis.uniform(2, outside="clip")
    return fg.EvaluationPlan.for_histogram(axis, COHORT, task=task, privacy=privacy)


def every_row(plan):
    """The numbers of each client with one row."""
    models = plan.task.models
    found = []
    ages = ("young", "old") if "age" in plan.task.groups else ("",)
    for y, sex, age, *scores in itertools.product((0, 1), "wm", ages, *[SCORES] * len(models)):
        given = {"sex": [sex], "age": [age]}
        group = {name: given[name] for name in plan.task.groups} or None
        histogram = plan.histogram()
        named = dict(zip(models, ([s] for s in scores), strict=True))
        histogram.update_batches([fg.Examples([y], named, group=group)])
        found.append(to_numbers(plan, histogram))
    return np.unique(found, axis=0)


def loss_of(plan, *, rounds=None):
    """The worst loss among neighbours, with the noise of other rounds if some are given."""
    held = every_row(plan)
    none = np.zeros_like(held[:1])
    others = held if plan.privacy.neighbours == "replace-one" else none
    changes = np.abs(held[:, None] - others[None]).reshape(-1, held.shape[1])
    noisy = plan if rounds is None else msgspec.structs.replace(plan, rounds=rounds)
    laws = noisy.noise_laws(shares=HONEST) + noisy.summed.table_laws(noisy.terms, shares=HONEST)
    sizes = [plan.task.rows_sent * nodes for nodes in plan.final.nodes] + list(
        plan.summed.cells(plan.terms)
    )
    parts = np.split(np.unique(changes, axis=0), np.cumsum(sizes)[:-1], axis=1)
    return worst_loss(laws, parts)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("name", TASKS)
def test_the_worst_loss_is_epsilon(name, neighbours):
    plan = plan_for(TASKS[name], neighbours)
    plan.check_promise()
    assert 0.99 <= loss_of(plan) <= 1 + SLACK


@pytest.mark.parametrize("name", ["joint, two groupings", "two pairs"])
def test_noise_as_if_a_row_were_seen_once_breaks_the_promise(name):
    """The mutant: every table and level with the whole budget."""
    plan = plan_for(TASKS[name])
    (sent,) = plan.rounds
    tables = tuple(msgspec.structs.replace(table, noise=1.0) for table in sent.tables)
    cheap = msgspec.structs.replace(sent, tables=tables, noise=(1.0,) * len(sent.noise))
    assert loss_of(plan, rounds=(cheap,)) > 1.9
    with pytest.raises(fg.PlanError, match="its noise costs more"):
        msgspec.structs.replace(plan, rounds=(cheap,)).check_promise()


def test_a_table_whose_groups_overlap_breaks_the_promise(monkeypatch):
    """The mutant: a row of a group counts in "other" too."""
    plan = plan_for(TASKS["joint, groups"])
    monkeypatch.setattr(Table, "count", _overlapping(Table.count))
    assert loss_of(plan) > 1.9


def _overlapping(count):
    def counted(table, rows):
        cells = count(table, rows)
        by_group = cells.reshape(table.groups(rows.layout), -1)
        by_group[-1] += by_group[:-1].sum(axis=0)
        return cells

    return counted
