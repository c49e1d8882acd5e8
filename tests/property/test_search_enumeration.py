"""Privacy of two rounds by enumeration: every row more or less, every first sum, and all outputs.
The second round depends on data twice: by what it counts, and by its edges, which follow from the
first sum. So every first sum is enumerated, its edges are found by the code that finds them, and
the loss of the second round is that of counts between these edges. As in
test_privacy_enumeration.py laws are read from the tables that are drawn from, and the noise of
different counts is independent: the largest log-ratio of second sums is the sum of the counts'
largest."""

import itertools
import math
from functools import cache

import msgspec
import numpy as np
import pytest
from losses import log_law, node_loss

import fedgauge as fg
from fedgauge.engines.contribution import count_rows, find_bins, to_numbers
from fedgauge.estimation.counts import Released
from fedgauge.privacy import Cohort

SLACK = 1e-12
COHORT = Cohort(min_survivors=4, max_colluding=1)
HONEST = 3
WITHIN = (0.1, 0.6)  # where rows lie in a coarse bin
NOTHING = ()


def plan_for(spec, bins=3, coarse=2, task=None, share=0.25):
    axis = fg.Axis.uniform(coarse, 0.0, float(coarse), outside="clip")
    two = fg.TwoRound(bins, share=share, coarse=axis)
    return fg.EvaluationPlan.for_histogram(two, COHORT, privacy=spec, task=task)


def rows_of(task, coarse):
    """Every row, as (label, scores, groups)."""
    places = [bin_ + within for bin_ in range(coarse) for within in WITHIN]
    labels = getattr(task, "labels", (0, 1))
    groups = itertools.product(*([*values, None] for values in task.groups.values()))
    scores = itertools.product(places, repeat=task.layout.by_row)
    return list(itertools.product(labels, scores, list(groups)))


def examples_of(task, rows):
    labels, scores, groups = zip(*rows, strict=True)
    columns = np.array(scores)
    if task.models:
        columns = dict(zip(task.models, columns.T, strict=True))
    elif task.layout.by_row == 1:
        columns = columns[:, 0]
    values = zip(*groups, strict=True)
    group = {
        name: np.array(each, dtype=object) for name, each in zip(task.groups, values, strict=True)
    }
    return fg.Examples(list(labels), columns, group=group or None, subject=["one"] * len(rows))


def counts_of(plan, task, rows):
    """The numbers, before noise, that a client with these rows of one unit sends."""
    if not rows:
        return np.zeros(plan.numbers, dtype=np.int64)
    return to_numbers(plan, count_rows(plan, examples_of(task, rows)))


@cache
def units_of(task, coarse, unit, cap):
    """What one unit may hold: of a subject one row more than counts."""
    rows = rows_of(task, coarse)
    most = 1 if unit == "example" else cap + 1
    sizes = range(1, most + 1)
    return [u for size in sizes for u in itertools.combinations_with_replacement(rows, size)]


class Neighbours:
    """All pairs of neighbouring inputs of a plan, and how far each moves the counts of a round."""

    def __init__(self, plan, truth=None):
        spec, self._task = truth or plan.privacy, plan.task.of
        coarse = plan.axis.bins
        units = units_of(self._task, coarse, spec.unit, spec.max_per_unit)
        self._units = [NOTHING, *units]
        if spec.neighbours == "replace-one":
            pairs = itertools.combinations(range(1, len(self._units)), 2)
        else:
            pairs = ((0, number) for number in range(1, len(self._units)))
        self._one, self._other = np.array(list(pairs)).T

    def moves(self, plan):
        """What a pair adds to each count of a round, less what its other input adds."""
        counts = np.array([counts_of(plan, self._task, unit) for unit in self._units])
        return counts[self._other] - counts[self._one]


def log_ratio(law, outputs, moves):
    """By output and pair: how the chance of outputs changes if the counts, zero, move."""
    logs = log_law(law._table)
    middle = len(logs) // 2
    chances = logs[middle + outputs[:, None, :] - moves[None]] - logs[middle + outputs][:, None, :]
    return chances.sum(axis=2)


def worst_after(law, moves):
    """By pair: the largest log-ratio of all outputs of a round whose counts move."""
    if law is None:  # counts without noise tell every move
        return np.where(np.any(moves, axis=1), math.inf, 0.0)
    shifts, places = np.unique(np.abs(moves), return_inverse=True)
    table = np.array([node_loss(law, shift) for shift in shifts.tolist()])
    return table[places.reshape(moves.shape)].sum(axis=1)


def noise_of(plan):
    (law,) = plan.noise_laws(shares=HONEST)
    return law


def edges_after(plan, output):
    """The plan of the second round, of a first sum."""
    counts = output.reshape(plan.task.rows_sent, -1).astype(float)
    return find_bins(plan, Released(plan.axis, counts, HONEST))


def outputs_of(plan, reach):
    """Every sum of a round whose numbers lie within reach."""
    return np.array(list(itertools.product(range(-reach, reach + 1), repeat=plan.numbers)))


def loss_of(plan, *, truth=None, second=noise_of, reach=3, base=NOTHING):
    """The largest loss of both rounds: over first sums, what they cost and what follows costs.
    `base` are rows that others hold."""
    neighbours = Neighbours(plan, truth)
    held, outputs = counts_of(plan, plan.task.of, base), outputs_of(plan, reach)
    first = np.abs(log_ratio(noise_of(plan), outputs - held, neighbours.moves(plan)))
    after, worst = {}, 0.0
    for output, cost in zip(outputs, first, strict=True):
        located = edges_after(plan, output)
        if located.axis not in after:
            after[located.axis] = worst_after(second(located), neighbours.moves(located))
        worst = max(worst, float((cost + after[located.axis]).max()))
    assert len(after) > 1  # else nothing was found
    return worst


SPECS = [
    fg.DistributedDP(1.0),
    fg.DistributedDP(1.0, neighbours="replace-one"),
    fg.DistributedDP(0.3),
    fg.DistributedDP(1.0, unit="subject", max_per_unit=2),
]
SLICED = {
    "groups": fg.BinaryTask(groups={"sex": ["women"]}),
    "two groupings": fg.BinaryTask(groups={"sex": ["women"], "age": ["old"]}),
    "crossed": fg.BinaryTask(groups={"sex": ["women"], "age": ["old"]}, crossed=True),
    "classes": fg.MulticlassTask(labels=["cat", "dog"]),
    "models": fg.BinaryTask(models=("new", "old")),
}


def name_of(spec):
    return f"{spec.epsilon}-{spec.unit}-{spec.neighbours}"


@pytest.mark.parametrize("spec", SPECS, ids=name_of)
def test_both_rounds_together_cost_epsilon(spec):
    loss = loss_of(plan_for(spec))
    assert 0.999 * spec.epsilon <= loss <= spec.epsilon + SLACK


@pytest.mark.parametrize(("bins", "coarse"), [(4, 2), (3, 3), (4, 3)])
@pytest.mark.parametrize("spec", SPECS[:2], ids=name_of)
def test_other_numbers_of_bins_cost_epsilon(spec, bins, coarse):
    assert 0.999 <= loss_of(plan_for(spec, bins, coarse), reach=2) <= 1 + SLACK


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9])
def test_any_share_of_the_first_round_costs_epsilon(share):
    plan = plan_for(fg.DistributedDP(1.0), share=share)
    assert 0.999 <= loss_of(plan) <= 1 + SLACK
    alone = worst_after(noise_of(plan), Neighbours(plan).moves(plan)).max()
    assert alone == pytest.approx(share, rel=1e-9)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("name", SLICED)
def test_rows_that_count_several_times_cost_epsilon(name, neighbours):
    spec = fg.DistributedDP(1.0, neighbours=neighbours)
    assert 0.999 <= loss_of(plan_for(spec, task=SLICED[name]), reach=2) <= 1 + SLACK


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_what_others_hold_changes_nothing(neighbours):
    plan = plan_for(fg.DistributedDP(1.0, neighbours=neighbours))
    rows = rows_of(plan.task.of, plan.axis.bins)
    for base in itertools.combinations_with_replacement(rows[:3], 2):
        assert 0.999 <= loss_of(plan, base=base) <= 1 + SLACK


def test_outputs_of_both_rounds_one_by_one():
    """Each pair of a first and a second sum: `loss_of` takes the largest loss of these."""
    plan = plan_for(fg.DistributedDP(1.0))
    neighbours, outputs = Neighbours(plan), outputs_of(plan, 4)
    first = log_ratio(noise_of(plan), outputs, neighbours.moves(plan))
    second, worst = {}, 0.0
    for output, ratio in zip(outputs, first, strict=True):
        located = edges_after(plan, output)
        if located.axis not in second:
            sums, moves = outputs_of(located, 2), neighbours.moves(located)
            second[located.axis] = log_ratio(noise_of(located), sums, moves)
        worst = max(worst, float(np.abs(ratio + second[located.axis]).max()))
    assert worst <= 1 + SLACK
    assert worst == pytest.approx(loss_of(plan), abs=SLACK)


def replaced(plan, **noise):
    """The plan with other noise; refused, as any is that costs more than it promises."""
    first, second = plan.rounds
    changed = (
        msgspec.structs.replace(first, noise=noise.get("first", first.noise)),
        msgspec.structs.replace(second, noise=noise.get("second", second.noise)),
    )
    plan = msgspec.structs.replace(plan, rounds=changed)
    with pytest.raises(fg.PlanError, match="its noise costs more"):
        plan.check_promise()
    return plan


def test_shares_that_add_to_more_than_epsilon_are_found_out():
    plan = plan_for(fg.DistributedDP(1.0))
    assert loss_of(replaced(plan, second=(1.0,))) == pytest.approx(1.25, abs=SLACK)
    assert loss_of(replaced(plan, first=(0.5,))) == pytest.approx(1.25, abs=SLACK)


@pytest.mark.parametrize("name", ["two groupings", "classes", "models"])
def test_a_share_that_is_not_divided_among_counts_of_a_row_is_found_out(name):
    plan = plan_for(fg.DistributedDP(1.0), task=SLICED[name])
    assert loss_of(replaced(plan, second=(0.75,)), reach=2) >= 1.7


def test_noise_for_one_row_or_side_or_none_in_a_round_is_found_out():
    plan = plan_for(fg.DistributedDP(1.0))
    two_rows = fg.DistributedDP(1.0, unit="subject", max_per_unit=1)
    assert loss_of(plan, truth=fg.DistributedDP(1.0, neighbours="replace-one")) >= 1.9
    assert loss_of(plan, truth=two_rows) >= 1.9  # of which the plan leaves out none
    assert loss_of(plan, second=lambda _: None) == math.inf
    with pytest.raises(fg.PlanError, match="positive noise"):
        msgspec.structs.replace(
            plan, rounds=(plan.rounds[0], msgspec.structs.replace(plan.rounds[1], noise=()))
        )


def test_edges_of_exact_counts_are_found_out():
    """Edges that follow from rows and not from the noisy sum tell some neighbours apart."""
    plan = plan_for(fg.DistributedDP(1.0))
    task, rows = plan.task.of, rows_of(plan.task.of, plan.axis.bins)
    told_apart = 0
    for base in itertools.combinations_with_replacement(rows, 2):
        exact = [
            edges_after(plan, counts_of(plan, task, held)) for held in (base, (*base, rows[0]))
        ]
        told_apart += exact[0].axis != exact[1].axis
    assert told_apart  # the edges are in the result: these have a loss without bound


def test_the_second_round_is_of_the_noisy_first_sum():
    """In the engine: what the plan of the result holds is what was drawn, not what was counted."""
    clients = {name: ([0, 1] * 50, np.linspace(-3, 3, 100)) for name in "abcd"}
    two = fg.TwoRound(4, coarse=fg.Axis.asinh(16))
    result = fg.evaluate(clients, axis=two, privacy=fg.DistributedDP(0.5), seed=1)
    exact = fg.evaluate(clients, axis=two, seed=1)
    assert sum(exact.plan.found.counts) == 400
    assert result.plan.found.counts != exact.plan.found.counts
    assert result.axis == result.plan.found.axis
