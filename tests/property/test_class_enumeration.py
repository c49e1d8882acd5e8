"""Privacy of several classes and labels by enumeration: every row, every neighbour, every output.
As in test_privacy_enumeration.py: the largest log-ratio is a sum over the numbers that are sent, of
which one row moves several. What a row moves comes from the code that makes a client's numbers."""

import itertools
import math

import msgspec
import numpy as np
import pytest
from losses import worst_loss

import fedgauge as fg
from fedgauge.engines.contribution import to_numbers
from fedgauge.histograms import channels
from fedgauge.privacy import Cohort

SLACK = 1e-12
HONEST = 3
COHORT = Cohort(min_survivors=4, max_colluding=1)
BINS = 2
TABLES = ["confusion", "ranks", "top"]
ONE = {"sex": ["women", "men"]}
TWO = {"sex": ["women"], "age": ["old"]}
VALUES = {"sex": ["women", "men", None], "age": ["old", "unheard of"]}
TASKS = [
    fg.MulticlassTask(labels=["cat", "dog"]),
    fg.MulticlassTask(labels=["cat", "dog", "owl"]),
    fg.MulticlassTask(labels=["cat", "dog", "owl"], also=["confusion"]),
    fg.MulticlassTask(labels=["cat", "dog"], also=TABLES),
    fg.MulticlassTask(labels=["cat", "dog"], models=("new", "old"), also=["confusion"]),
    fg.MulticlassTask(labels=["cat", "dog"], groups={"sex": ["women"]}, also=TABLES),
    fg.MultilabelTask(labels=["fever", "cough", "rash"]),
    fg.MulticlassTask(labels=["cat", "dog"], groups=ONE, also=["confusion"]),
    fg.MulticlassTask(labels=["cat", "dog"], groups=TWO),
    fg.MulticlassTask(labels=["cat", "dog"], groups=TWO, crossed=True),
    fg.MultilabelTask(labels=["fever", "cough"], groups=ONE),
]
GROUPED = TASKS[8:]  # of which nothing but the histogram is sent


def name_of(task):
    return f"{len(task.labels)}-{len(task.groups)}-{task.per_row}-{type(task).__name__}"


def plan_for(task, neighbours, tree=(BINS,)):
    privacy = fg.DistributedDP(1.0, neighbours=neighbours)
    axis = fg.Axis.uniform(math.prod(tree), outside="clip")
    return fg.EvaluationPlan.for_histogram(axis, COHORT, task=task, privacy=privacy, tree=tree)


def rows_of(task):
    """Every row: labels, groups, and a score in either bin for each class or label."""
    width = len(task.labels)
    several = isinstance(task, fg.MultilabelTask)
    labels = itertools.product((0, 1), repeat=width) if several else task.labels
    scores = list(itertools.product((0.2, 0.8), repeat=width))
    models = task.models or (None,)
    columns = itertools.product(*(VALUES[name] for name in task.groups))
    for label, each, values in itertools.product(
        labels, itertools.product(scores, repeat=len(models)), list(columns)
    ):
        given = {model: np.array([row]) for model, row in zip(models, each, strict=True)}
        group = {
            name: np.array([value], dtype=object)
            for name, value in zip(task.groups, values, strict=True)
        }
        yield fg.Examples(
            np.array([label]) if several else [label],
            given if task.models else given[None],
            group=group or None,
        )


def changes_of(plan):
    """By law, how far every number moves, for every pair of neighbouring inputs."""
    sent = []
    for row in rows_of(plan.task):
        histogram = plan.histogram()
        histogram.update_batches([row])
        sent.append(to_numbers(plan, histogram))
    sent = np.unique(sent, axis=0)
    nothing = np.zeros_like(sent[:1])
    others = sent if plan.privacy.neighbours == "replace-one" else nothing
    moved = np.unique(np.abs(sent[:, None] - others).reshape(-1, sent.shape[1]), axis=0)
    ends = np.cumsum(
        [plan.task.rows_sent * nodes for nodes in plan.final.nodes]
        + list(plan.summed.cells(plan.terms))
    )
    return np.split(moved, ends[:-1], axis=1)


def loss_of(plan):
    laws = [*plan.noise_laws(shares=HONEST), *plan.summed.table_laws(plan.terms, HONEST)]
    return worst_loss(laws, changes_of(plan))


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("task", TASKS, ids=name_of)
def test_the_worst_loss_is_epsilon(task, neighbours):
    plan = plan_for(task, neighbours)
    assert 0.99 <= loss_of(plan) <= 1 + SLACK


def test_levels_of_a_tree_are_paid_for_in_every_class():
    plan = plan_for(TASKS[1], "add-remove", (2, 2))
    assert 0.999 <= loss_of(plan) <= 1 + SLACK


@pytest.mark.parametrize("task", TASKS, ids=name_of)
def test_a_budget_that_is_not_multiplied_is_noticed(task):
    """The noise of a plan for one score, on the counts of a task with several."""
    plan, plain = plan_for(task, "add-remove"), plan_for(fg.BinaryTask(), "add-remove")
    (sent,), (one,) = plan.rounds, plain.rounds
    cheap = [msgspec.structs.replace(table, noise=one.noise[0]) for table in sent.tables]
    mutant = msgspec.structs.replace(
        plan, rounds=(msgspec.structs.replace(sent, noise=one.noise, tables=tuple(cheap)),)
    )
    assert loss_of(mutant) > 1.9
    with pytest.raises(fg.PlanError, match="its noise costs more"):
        mutant.check_promise()


@pytest.mark.parametrize("task", GROUPED, ids=name_of)
def test_groups_of_classes_that_overlap_are_noticed(task, monkeypatch):
    """A reader that counts rows of the first group also in the last, by the first score."""
    real, layout = channels.ChannelReader.__call__, task.layout
    classes, cells = layout.by_block, layout.cells(layout.blocks[0].grouping)

    def overlapping(self, batch):
        for scores, places in real(self, batch):
            first = places < classes
            again = scores[first], places[first] + (cells - 1) * classes
            yield tuple(map(np.concatenate, zip((scores, places), again, strict=True)))

    plan = plan_for(task, "add-remove")
    monkeypatch.setattr(channels.ChannelReader, "__call__", overlapping)
    assert loss_of(plan) > 1.2
