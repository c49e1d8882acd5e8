"""Privacy of reports about one of several blocks by enumeration: all rows, all blocks, all reports.
A row is in one cell of each block. The law of a report, its block and its message, is that of the
code: cells come from the code that encodes rows, chances from the plan. As in
test_local_enumeration.py, exact fractions throughout."""

import itertools
from fractions import Fraction

import msgspec
import numpy as np
import pytest
from report_laws import law_of, power, worst

import fedgauge as fg
from fedgauge.local import messages
from fedgauge.privacy.keystream import SimulatedKeystream

AXIS = fg.Axis.uniform(2, outside="clip")
EPSILON = 1.0
SCORES = (0.2, 0.8)
BY_SEX = {"sex": ["women"]}
TASKS = {
    "groups": fg.BinaryTask(groups=BY_SEX),
    "each": fg.BinaryTask(groups=BY_SEX | {"age": ["old"]}),
    "classes": fg.MulticlassTask(labels=["cat", "dog", "owl"]),
    "labels": fg.MultilabelTask(labels=["fever", "cough"]),
    "models": fg.BinaryTask(models=("new", "old")),
}


def plan_for(name, oracle="oue"):
    return fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(EPSILON, oracle=oracle), task=TASKS[name])


def every_row(task):
    """Examples that hold every kind of row once: all labels, bins of all scores, and groups."""
    several = isinstance(task, fg.MultilabelTask)
    labels = {
        "MulticlassTask": lambda: list(task.labels),
        "MultilabelTask": lambda: list(itertools.product((0, 1), repeat=len(task.labels))),
    }.get(type(task).__name__, lambda: [0, 1])()
    width = task.layout.scores * max(len(task.models), 1)
    groups = [[*values, "unheard of"] for values in task.groups.values()]
    rows = list(itertools.product(labels, itertools.product(SCORES, repeat=width), *groups))
    y = np.array([row[0] for row in rows])
    scores = np.array([row[1] for row in rows])
    names = list(task.groups)
    given = {n: np.array([row[2 + k] for row in rows]) for k, n in enumerate(names)} or None
    if task.models:
        scores = {model: scores[:, k] for k, model in enumerate(task.models)}
    elif not several and task.layout.scores == 1:
        scores = scores[:, 0]
    return fg.Examples(y, scores, group=given)


def cells_of(plan, rows, monkeypatch):
    """The cell of every row in each block, from the code that encodes rows."""
    blocks = len(plan.task.layout.blocks)
    found = []
    for block in range(blocks):
        monkeypatch.setattr(messages, "draw_topics", lambda *drawn, b=block: np.full(drawn[1], b))
        read = messages._LeafCells(plan, rows, SimulatedKeystream(1)).read(10_000)
        found.append(np.concatenate([cells for _, cells in read]))
    return np.stack(found, axis=1)


def laws_of(plan, cells, drawn=None):
    """Probability of each block and message, for every row."""
    by_block = [law_of(oracle) for oracle in plan.oracles]
    share = Fraction(1, len(by_block))
    chances = drawn or (lambda _: [share] * len(by_block))
    return [
        {
            (block, said): chance * probability
            for block, chance in enumerate(chances(row))
            for said, probability in by_block[block][cell[block]].items()
        }
        for row, cell in enumerate(cells)
    ]


@pytest.mark.parametrize("oracle", ["oue", "hadamard"])
@pytest.mark.parametrize("name", TASKS)
def test_ratios_of_all_reports_are_at_most_e_to_epsilon(name, oracle, monkeypatch):
    plan = plan_for(name, oracle)
    cells = np.unique(cells_of(plan, every_row(plan.task), monkeypatch), axis=0)
    low, _ = power(EPSILON)
    assert 1 < worst(laws_of(plan, cells.tolist())) <= low
    for block, own in zip(plan.oracles, cells.T, strict=True):
        assert {*own} == {*range(block.cells)}  # a row is in one cell, and each has rows


def test_a_block_that_depends_on_the_row_or_reports_about_two_break_epsilon(monkeypatch):
    plan = plan_for("models")
    cells = cells_of(plan, every_row(plan.task), monkeypatch).tolist()
    _, high = power(EPSILON)

    def likelier(row):  # as if rows of one class spoke of one model a little more often
        more = Fraction(1, 2) + Fraction(cells[row][0] >= AXIS.bins, 10)
        return [more, 1 - more]

    assert worst(laws_of(plan, cells, likelier)) > high
    one, other = (law_of(oracle) for oracle in plan.oracles)
    laws = [
        {
            (first, second): p * q
            for first, p in one[cell[0]].items()
            for second, q in other[cell[1]].items()
        }
        for cell in cells
    ]
    assert worst(laws) > power(EPSILON)[1]


@pytest.mark.parametrize("name", TASKS)
def test_what_is_drawn_depends_on_the_words_alone(name):
    plan, spoken = plan_for(name), set()
    rows = every_row(plan.task)
    form = messages.ReportFormat(plan)
    for row in range(len(rows)):
        alike = rows.select(np.full(60, row))
        (message,) = fg.encode_rows(plan, alike, source=SimulatedKeystream(4))
        spoken.add(tuple(len(part.ids) for part in form.read(message)))
    assert len(spoken) == 1
    assert min(*spoken) > 0 or len(plan.oracles) == 1
    assert sum(*spoken) == 60


def test_a_plan_with_too_little_noise_in_one_block_is_refused():
    plan = plan_for("classes")
    plan.check_promise()
    *noise, last = plan.final.noise
    altered = msgspec.structs.replace(plan.final, noise=(*noise, last - 1))
    with pytest.raises(fg.PlanError, match="cost more"):
        msgspec.structs.replace(plan, rounds=(altered,)).check_promise()
