"""Silence that tells of slices: groups, classes and scores that a row lacks, or has too many of.
The attacker is an approved coordinator that asks for slices under noise. Whatever rows hold, a site
that joined sends as many messages of the same sizes, and each row counts in stated places that it
decides by itself."""

import logging

import numpy as np
import pytest
from conformance import ExchangeEngine, FlowerEngine
from hostile import VICTIM, Attacker, exact_policy
from odd import Raises
from silent import messages

import fedgauge as fg
from fedgauge.engines.contribution import count_leniently
from fedgauge.secagg import Stage

ROWS, ODD = 40, 3
GROUPS = fg.BinaryTask(groups={"sex": ["women", "men"], "age": ["old"]}, models=("new", "old"))
CLASSES = fg.MulticlassTask(labels=["cat", "dog", "owl"], also=["confusion", "ranks", "top"])
LABELS = fg.MultilabelTask(labels=["fever", "cough"])
PAIR = fg.BinaryTask(models=("new", "old"), pairs=[("new", "old")], paired_brier=True)


@pytest.fixture(autouse=True)
def quiet(caplog):
    """What nodes tell their operators is not what is tested here."""
    caplog.set_level(logging.CRITICAL, logger="flwr.fedgauge")


@pytest.fixture(params=["exchange", "flower"])
def engine(request, folder, monkeypatch):
    kind = {"exchange": ExchangeEngine, "flower": FlowerEngine}[request.param]
    return kind(folder, monkeypatch)


def plan_of(task, *, exact=False):
    return fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(4, outside="clip"),
        fg.Cohort(4, 1),
        task=task,
        privacy=None if exact else fg.DistributedDP(1.0),
    )


class Columns:
    """Rows as columns that can be changed before they are handed over."""

    def __init__(self, task, seed):
        rng, layout = np.random.default_rng(seed), task.layout
        kinds = rng.integers(0, layout.by_block, ROWS)
        classes = np.array(layout.classes or (0, 1), dtype=object)
        self.labels = classes[kinds]
        if layout.labels > 1:
            self.labels = rng.integers(0, 2, (ROWS, layout.labels)).astype(object)
        shape = (ROWS,) if layout.scores == 1 else (ROWS, layout.scores)
        self.scores = {name: rng.random(shape) for name in layout.models or (None,)}
        self.groups = {
            name: rng.choice(values, ROWS).astype(object) for name, values in layout.groups
        }

    def rows(self):
        scores = self.scores.get(None, self.scores)
        return fg.Examples.leniently(self.labels, scores, group=self.groups or None)


def changed(columns, part, value, key, place):
    """Some rows of a column hold something else."""
    column, rows = getattr(columns, part), slice(ODD * place, ODD * place + ODD)
    if key:
        target = column[key[0]].astype(object)
        target[(rows, *key[1:])] = value
        column[key[0]] = target
    else:
        column[rows] = value


def without(part, key):
    return lambda columns: getattr(columns, part).pop(key)


def with_scores(change):
    return lambda columns: columns.scores.update({None: change(columns.scores[None])})


def cell(part, value, *key):
    return lambda columns, place=0: changed(columns, part, value, key, place)


# What is odd, and where such a row counts: the same change with what it counts as.
ROW_BY_ROW = {
    "no group": (GROUPS, cell("groups", None, "sex"), cell("groups", "unlisted", "sex")),
    "NaN as a group": (GROUPS, cell("groups", np.nan, "age"), cell("groups", "x", "age")),
    "a number as a group": (GROUPS, cell("groups", 7.5, "sex"), cell("groups", "x", "sex")),
    "bytes as a group": (GROUPS, cell("groups", b"men", "sex"), cell("groups", "x", "sex")),
    "a group that raises": (GROUPS, cell("groups", Raises(), "sex"), cell("groups", "x", "sex")),
    "NaN in two groupings": (GROUPS, cell("scores", np.nan, "new"), cell("scores", 0, "new")),
    "a label of no class": (CLASSES, cell("labels", "ant"), cell("labels", "cat")),
    "no class": (CLASSES, cell("labels", None), cell("labels", "cat")),
    "a class that raises": (CLASSES, cell("labels", Raises()), cell("labels", "cat")),
    "NaN in one of three": (CLASSES, cell("scores", np.nan, None, 1), cell("scores", 0, None, 1)),
    "text in one of three": (CLASSES, cell("scores", "low", None, 2), cell("scores", 0, None, 2)),
    "a score that raises": (CLASSES, cell("scores", Raises(), None, 0), cell("scores", 0, None, 0)),
    "infinite": (CLASSES, cell("scores", np.inf, None, 1), cell("scores", 1, None, 1)),
    "one of two labels": (LABELS, cell("labels", [1, None]), cell("labels", [1, 0])),
    "a third value": (LABELS, cell("labels", ["x", 1]), cell("labels", [0, 1])),
    "NaN of one model": (PAIR, cell("scores", np.nan, "old"), cell("scores", 0, "old")),
    "beyond the axis": (PAIR, cell("scores", 7.0, "new"), cell("scores", 1, "new")),
}
ALL_AT_ONCE = {
    "two of three columns": (CLASSES, with_scores(lambda scores: scores[:, :2])),
    "six columns": (CLASSES, with_scores(lambda scores: np.tile(scores, 2))),
    "one column": (CLASSES, with_scores(lambda scores: scores[:, 0])),
    "one of two labels": (LABELS, lambda rows: vars(rows).update(labels=rows.labels[:, 0])),
    "no such model": (PAIR, without("scores", "old")),
    "no such grouping": (GROUPS, without("groups", "age")),
}


def assert_alike(one, other):
    """All counts, and those in tables."""
    np.testing.assert_array_equal(one.counts, other.counts)
    assert len(one.tables) == len(other.tables)
    for ours, theirs in zip(one.tables, other.tables, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("kind", ROW_BY_ROW)
def test_an_odd_row_counts_in_a_stated_place(kind):
    """Which it decides by itself: the rows beside it stay where they are."""
    task, spoil, mend = ROW_BY_ROW[kind]
    spoiled, placed = Columns(task, 50), Columns(task, 50)
    spoil(spoiled)
    mend(placed)
    (one, odd), (other, _) = (
        count_leniently(plan_of(task), each.rows) for each in (spoiled, placed)
    )
    assert odd.failure == ""
    assert odd.rows == ROWS
    assert odd.not_finite in (0, ODD)  # a score counts once, however rows are grouped
    assert_alike(one, other)


def test_masked_scores_count_in_the_first_bin():
    masked, placed = Columns(CLASSES, 50), Columns(CLASSES, 50)
    scores = masked.scores[None]
    masked.scores[None] = np.ma.MaskedArray(scores, np.tile(np.arange(ROWS) < ODD, (3, 1)).T)
    changed(placed, "scores", 0, (None, slice(None)), 0)
    (one, odd), (other, _) = (count_leniently(plan_of(CLASSES), c.rows) for c in (masked, placed))
    assert odd.not_finite == 3 * ODD
    assert_alike(one, other)


@pytest.mark.parametrize("kind", ALL_AT_ONCE)
def test_columns_that_do_not_fit_count_as_no_rows(kind):
    """Nothing that one row holds decides that."""
    task, spoil = ALL_AT_ONCE[kind]
    columns, plan = Columns(task, 50), plan_of(task)
    spoil(columns)
    counted, odd = count_leniently(plan, columns.rows)
    assert odd.failure
    assert_alike(counted, plan.histogram())


TASKS = {"groups": GROUPS, "classes": CLASSES, "labels": LABELS, "pair": PAIR}


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS.keys())
def test_rows_of_slices_do_not_change_a_sites_messages(engine, task):
    """Clean ones; all kinds of odd ones, some of each; columns that do not fit."""
    plan, others = plan_of(task), {f"site-{i}": Columns(task, seed=i).rows() for i in range(4)}
    clean, odd, unfit = (Columns(task, 50) for _ in range(3))
    kinds = [spoil for of, spoil, _ in ROW_BY_ROW.values() if of is task]
    for place, spoil in enumerate(kinds):
        spoil(odd, place)
    next(spoil for of, spoil in ALL_AT_ONCE.values() if of is task)(unfit)
    expected = messages(engine, plan, clean.rows(), others)
    assert len(expected[0]) == len(Stage)
    for each in (odd, unfit):
        assert messages(engine, plan, each.rows(), others) == expected


@pytest.mark.parametrize("kind", ["a label of no class", "NaN in one of three"])
def test_an_exact_sum_stops_at_rows_of_no_class_or_score(folder, kind):
    """Zeros would be bare; that is one bit, and it costs one of the site's exact sums."""
    task, spoil, _ = ROW_BY_ROW[kind]
    task, columns = fg.MulticlassTask(labels=task.labels), Columns(task, 50)
    spoil(columns)
    others = {f"site-{i}": Columns(task, seed=i).rows() for i in range(4)}
    policy = exact_policy(labels=("cat", "dog", "owl"), exact_scores=3, min_cell=0)
    attack = Attacker(folder, {VICTIM: columns.rows(), **others}, policy=policy)
    plan = fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(4, outside="clip"), fg.Cohort(5, 1), task=task
    )
    stage, error = attack.ask(plan).refusals[VICTIM]
    assert stage == Stage.MASK
    assert "3 of " in str(error)
    assert attack.entries() == ["reserve", "commit"]
