"""Privacy of groups by enumeration: every row, of every group, listed or not, and all outputs. As
in test_privacy_enumeration.py: the noise of different counts is independent, so the largest
log-ratio is the sum of the counts' largest. Counts come from the code that makes them."""

import itertools
import math

import msgspec
import numpy as np
import plans
import pytest
from losses import worst_loss

from fedgauge import BinaryTask, Cohort, DistributedDP, Examples
from fedgauge.engines.contribution import count_batches
from fedgauge.histograms import channels
from fedgauge.privacy.units import limit_rows

SLACK = 1e-12
COHORT = Cohort(min_survivors=4, max_colluding=1)
HONEST = 3
BINS = 2
ONE = {"sex": ["women", "men"]}
TWO = {"sex": ["women"], "age": ["old"]}
TASKS = {
    "one": BinaryTask(groups=ONE),
    "each": BinaryTask(groups=TWO),
    "crossed": BinaryTask(groups=TWO, crossed=True),
}
VALUES = {"sex": ["women", "unheard of", "men", None], "age": ["old", "young", None]}


def plan_for(spec, task, tree=(BINS,)):
    return plans.plan_for(spec, tree, COHORT, task=task)


def counts_of(plan, rows):
    """All numbers that a client with these rows (label, leaf, groups) counts, level by level."""
    labels = [label for label, *_ in rows]
    scores = [(leaf + 0.5) / plan.axis.bins for _, leaf, *_ in rows]
    names = list(plan.task.groups)
    groups = {
        name: np.array([row[2 + place] for row in rows], dtype=object)
        for place, name in enumerate(names)
    }
    batch = Examples(labels, scores, group=groups, subject=["somebody"] * len(rows))
    histogram = count_batches(plan, limit_rows([batch], plan.privacy.unit_cap), may_be_empty=True)
    return np.concatenate([level.ravel() for level in histogram.levels(plan.tree)])


def changes_of(plan):
    """By level, how far every count moves, for every pair of neighbours."""
    spec = plan.privacy
    # Of several rows that a unit hands in, each of a listed value or of another one.
    most = None if spec.unit == "example" else 2
    every = [VALUES[name][:most] for name in plan.task.groups]
    rows = list(itertools.product((0, 1), range(plan.axis.bins), *every))
    sizes = range(1, 2 if spec.unit == "example" else spec.max_per_unit + 2)
    units = (unit for n in sizes for unit in itertools.combinations_with_replacement(rows, n))
    held = np.unique([counts_of(plan, unit) for unit in units], axis=0)
    others = held if spec.neighbours == "replace-one" else np.zeros_like(held[:1])
    changes = np.abs(held[:, None] - others[None]).reshape(-1, held.shape[1])
    changes = np.unique(changes, axis=0)
    ends = [
        plan.task.rows_sent * math.prod(plan.tree[: depth + 1]) for depth in range(len(plan.tree))
    ]
    return np.split(changes, np.cumsum(ends)[:-1], axis=1)


def loss_of(plan):
    return worst_loss(plan.noise_laws(shares=HONEST), changes_of(plan))


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("tree", [(2,), (2, 2)], ids=str)
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_groups_cost_epsilon(name, tree, neighbours):
    spec = DistributedDP(1.0, neighbours=neighbours)
    assert 0.999 <= loss_of(plan_for(spec, TASKS[name], tree)) <= 1 + SLACK


@pytest.mark.parametrize("name", TASKS)
def test_rows_of_a_subject_in_several_groups_cost_epsilon(name):
    spec = DistributedDP(1.0, unit="subject", max_per_unit=2)
    # One leaf: where rows lie changes nothing that groups do not.
    assert 0.999 <= loss_of(plan_for(spec, TASKS[name], (1,))) <= 1 + SLACK


def test_a_row_is_in_one_group_or_in_one_of_each_grouping():
    for name, times in (("one", 1), ("each", 2), ("crossed", 1)):
        (moves,) = changes_of(plan_for(DistributedDP(1.0), TASKS[name]))
        assert set(moves.sum(axis=1)) == {times}
        assert TASKS[name].per_row == times


def test_a_budget_that_is_not_shared_among_groupings_is_found_out():
    spec = DistributedDP(1.0)
    plan, once = plan_for(spec, TASKS["each"]), plan_for(spec, TASKS["crossed"])
    cheap = msgspec.structs.replace(plan, rounds=once.rounds)
    assert loss_of(cheap) == pytest.approx(2, abs=SLACK)


def test_groups_that_overlap_are_found_out(monkeypatch):
    """A reader that counts women also in the last group."""
    real = channels.ChannelReader.__call__

    def overlapping(self, batch):
        for scores, places in real(self, batch):
            women = places < 2
            again = scores[women], places[women] + 4
            yield tuple(map(np.concatenate, zip((scores, places), again, strict=True)))

    plan = plan_for(DistributedDP(1.0), TASKS["one"])
    monkeypatch.setattr(channels.ChannelReader, "__call__", overlapping)
    assert loss_of(plan) == pytest.approx(2, abs=SLACK)
