"""`fg.count` in tasks: histograms travel and add, and their sum is a client's data."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from plans import noisy_plan
from rows import draw_client

import fedgauge as fg
from fedgauge.engines.contribution import count_leniently

PLAN = fg.EvaluationPlan.for_histogram(fg.Axis.probabilities(), fg.Cohort(3))
LABELS, SCORES = draw_client(1000, seed=3)


def in_tasks(plan, tasks=4):
    for part in range(tasks):
        rows = LABELS[part::tasks], SCORES[part::tasks]
        yield pickle.loads(pickle.dumps(fg.count([rows, ([], [])], plan)))  # noqa: S301


def test_the_sum_of_tasks_is_the_data_of_a_client():
    total = sum(in_tasks(PLAN))
    others = {"b": draw_client(100, seed=1), "c": draw_client(100, seed=2)}
    expected = fg.evaluate({"a": (LABELS, SCORES)} | others, PLAN)
    assert fg.evaluate({"a": total} | others, PLAN).record == expected.record
    with pytest.raises(fg.InputError, match="no examples"):
        fg.evaluate({"a": fg.count([], PLAN)} | others, PLAN)


def test_columns_of_arrow_and_examples_are_counted():
    batch = pa.record_batch({"y": LABELS, "p": SCORES})
    expected = fg.count([(LABELS, SCORES)], PLAN)
    assert fg.count([(batch["y"], batch["p"])], PLAN) == expected
    assert fg.count([fg.Examples(LABELS, SCORES)], PLAN) == expected


def test_under_noise_odd_rows_count_in_their_place_and_else_are_refused():
    odd = [1, None, 0, 1], [0.5, 0.1, np.nan, 7.0]
    plan = noisy_plan(bins=4)
    with pytest.warns(fg.InputWarning) as told:
        counted = fg.count([odd], plan)
    assert counted == count_leniently(plan, lambda: odd)[0]
    assert len(told) == 3
    assert count_leniently(plan, lambda: counted) == (
        counted,
        count_leniently(plan, lambda: counted)[1],
    )
    with pytest.raises(fg.InputError, match="missing, NaN or infinite"):
        fg.count([odd], PLAN)
    with pytest.raises(fg.InputError, match="y_true has 1 rows and y_score 2"):
        fg.count([([1], [0.5, 0.2])], plan)


def test_plans_that_need_a_clients_rows_in_one_place_are_refused():
    capped = noisy_plan(bins=4, privacy=fg.DistributedDP(1.0, unit="client"))
    reports = fg.EvaluationPlan.for_reports(fg.Axis.uniform(4, outside="clip"), fg.LocalDP(1.0))
    two = fg.EvaluationPlan.for_histogram(fg.TwoRound(6), fg.Cohort(3))
    counted = fg.count([(LABELS, SCORES)], PLAN)
    for plan in (capped, reports, two):
        with pytest.raises(fg.PlanError, match="rows in one place"):
            fg.count([(LABELS, SCORES)], plan)
        with pytest.raises(fg.PlanError, match="rows in one place"):
            fg.evaluate(dict.fromkeys("abc", counted), plan)
    with pytest.raises(fg.PlanError, match="must be an EvaluationPlan"):
        fg.count([], None)


def test_counts_on_another_axis_are_refused():
    counted = fg.count([(LABELS, SCORES)], PLAN)
    with pytest.raises(fg.AxisMismatch, match="client 'a'"):
        fg.evaluate({"a": counted}, axis=fg.Axis.uniform(4))
