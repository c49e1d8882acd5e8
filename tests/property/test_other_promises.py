"""What a plan made for one unit promises to others, by enumeration of small inputs. A site's budget
rests on it: whomever plans protect, each costs a row that counts or does not at most its epsilon
and delta, and a row that is replaced, or whose label is the other one, at most two steps. The
ledger's module states this in general (`fedgauge.site.ledger`); how losses are found is in
test_privacy_enumeration.py."""

import itertools
import math
from functools import cache, partial

import numpy as np
import pytest
from losses import count_rows, log_law, worst_loss
from plans import plan_for

import fedgauge as fg
from fedgauge.engines import contribution
from fedgauge.plan.task import LabelTask
from fedgauge.privacy import Cohort, DistributedDP
from fedgauge.site import Account, Cost
from fedgauge.site.ledger import charge

COHORT, HONEST = Cohort(min_survivors=4, max_colluding=1), 3
SLACK = 1e-12
TREES = [(2,), (2, 2)]
SPECS = [
    DistributedDP(0.7, unit=unit, max_per_unit=cap, neighbours=neighbours)
    for unit, cap in (("example", 1), ("subject", 1), ("subject", 2), ("client", 1), ("client", 2))
    for neighbours in ("add-remove", "replace-one")
]
every_tree = pytest.mark.parametrize("tree", TREES, ids=str)
every_spec = pytest.mark.parametrize(
    "spec", SPECS, ids=lambda s: f"{s.unit}-{s.max_per_unit}-{s.neighbours}"
)


def loss_between(spec, tree, pairs):
    """Largest loss between inputs in pairs; an input is the rows of each of its units."""
    counts = cache(partial(count_rows, tree, spec))
    moved = {tuple(np.abs(counts(one) - counts(other))) for one, other in pairs}
    ends = np.cumsum([2 * math.prod(tree[: depth + 1]) for depth in range(len(tree))])
    changes = np.split(np.array(sorted(moved)), ends[:-1], axis=1)
    return worst_loss(plan_for(spec, tree, COHORT).noise_laws(shares=HONEST), changes)


def rows_of(tree):
    return list(itertools.product((0, 1), range(math.prod(tree))))


def holdings(spec, tree):
    """All rows, in order, that a unit may hand in: one more than count, too."""
    most = 1 if spec.unit == "example" else spec.max_per_unit + 1
    return itertools.chain(
        *(itertools.product(rows_of(tree), repeat=size) for size in range(1, most + 1))
    )


def without(rows, place):
    return (*rows[:place], *rows[place + 1 :])


def is_replacing(spec):
    return spec.neighbours == "replace-one"


@every_tree
@every_spec
def test_rows_that_count_or_not_cost_at_most_epsilon(spec, tree):
    """One, whatever the unit: this is what the plans on a dataset add up to. Or some of a unit."""
    # Few enough that none steps in.
    held = [rows for rows in holdings(spec, tree) if len(rows) <= spec.max_per_unit]
    one = [((rows,), (without(rows, place),)) for rows in held for place in range(len(rows))]
    loss = loss_between(spec, tree, one)
    assert loss <= spec.epsilon + SLACK
    assert loss == pytest.approx(spec.epsilon / (spec.max_per_unit * spec.moves), rel=1e-3)
    some = [
        ((rows,), (tuple(kept),))
        for rows in held
        for size in range(len(rows))
        for kept in itertools.combinations(rows, size)
    ]
    assert loss_between(spec, tree, some) <= spec.epsilon + SLACK


@every_tree
@every_spec
def test_a_row_that_is_replaced_or_for_which_another_steps_in(spec, tree):
    """One step under replace-one; else a unit goes and comes again, and no less will do."""
    pairs = []
    for rows in holdings(spec, tree):
        for place in range(len(rows)):
            pairs.append(((rows,), (without(rows, place),)))
            pairs += [
                ((rows,), ((*rows[:place], row, *rows[place + 1 :]),)) for row in rows_of(tree)
            ]
    steps = 1 if is_replacing(spec) else 2
    loss = loss_between(spec, tree, pairs)
    assert loss <= steps * spec.epsilon + SLACK
    if spec.max_per_unit == 1:
        assert loss >= 0.999 * steps * spec.epsilon


def test_a_row_that_goes_can_move_two_counts():
    """The cap lets another row of the subject in: counted as one step it would be found out."""
    spec = DistributedDP(0.7, unit="subject")
    rows = ((0, 0), (1, 1))
    assert loss_between(spec, (2,), [((rows,), (rows[1:],))]) >= 0.999 * 2 * spec.epsilon
    assert loss_between(spec, (2,), [((rows,), (rows[:1],))]) == 0


@every_spec
def test_a_whole_unit_there_or_not_costs_epsilon_under_either_relation(spec):
    pairs = [((rows,), ((),)) for rows in holdings(spec, (2, 2))]
    assert loss_between(spec, (2, 2), pairs) <= spec.epsilon + SLACK


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_a_person_of_several_rows_is_that_many_steps_from_plans_for_rows(neighbours):
    spec, tree = DistributedDP(0.7, neighbours=neighbours), (2,)
    held = list(itertools.product(rows_of(tree), repeat=3))
    gone = loss_between(spec, tree, [((rows,), ((),)) for rows in held])
    assert gone <= 3 * spec.epsilon + SLACK
    other = loss_between(spec, tree, [((one,), (two,)) for one in held for two in held])
    steps = 3 if is_replacing(spec) else 6
    assert 0.999 * steps * spec.epsilon <= other <= steps * spec.epsilon + SLACK


@pytest.mark.parametrize("unit", ["subject", "client"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_rows_of_two_units_are_twice_as_many_steps(unit, neighbours):
    spec, tree = DistributedDP(0.7, unit=unit, neighbours=neighbours), (2,)
    held = [((one,), (two,)) for one in rows_of(tree) for two in rows_of(tree)]
    assert loss_between(spec, tree, [(units, ((), ())) for units in held]) <= 2 * 0.7 + SLACK
    steps = 2 if is_replacing(spec) else 4
    other = loss_between(spec, tree, itertools.product(held, held))
    assert 0.999 * steps * 0.7 <= other <= steps * 0.7 + SLACK


def escaping(law, epsilon, moves):
    """The least delta at some epsilon when nodes move so far, over all outputs of these nodes."""
    one = other = np.ones(1)
    mass = np.exp(log_law(law._table))
    for move in moves:
        still, moved = np.pad(mass, (0, move)), np.pad(mass, (move, 0))
        one, other = np.multiply.outer(one, still), np.multiply.outer(other, moved)
    return max(
        float(np.maximum(p - math.exp(epsilon) * q, 0).sum())
        for p, q in ((one, other), (other, one))
    )


@pytest.mark.parametrize("unit", ["example", "subject", "client"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_deltas_of_rows(unit, neighbours):
    """A row that counts or not: delta. One that is replaced: (1 + e^epsilon) delta, or delta."""
    spec = DistributedDP(
        1.0, delta=1e-3, noise="skellam", unit=unit, neighbours=neighbours
    )  # fmt: skip
    (law,) = plan_for(spec, (2,), COHORT).noise_laws(shares=HONEST)
    assert escaping(law, 1.0, [1]) <= 1e-3
    if is_replacing(spec):
        assert 0.9e-3 < escaping(law, 1.0, [1, 1]) <= 1e-3
        return
    assert 0.9e-3 < escaping(law, 1.0, [1]) <= 1e-3
    bound = (1 + math.e) * 1e-3
    assert max(escaping(law, 2.0, [1, 1]), escaping(law, 2.0, [2])) <= bound
    # Neither epsilon nor delta alone will do.
    assert escaping(law, 1.0, [1, 1]) > bound
    assert escaping(law, 2.0, [2]) > 1e-3


def charged(spec, delta=0.0):
    """What the ledger charges a dataset's labels for a plan."""
    plan = plan_for(spec, (2,), COHORT) if spec.unit != "label" else label_plan((2,))
    stated = plan.statement("enforced")
    account = Account("stroke", stated.unit, stated.neighbours)
    return charge(Account.labels("stroke"), account, Cost(spec.epsilon, delta))


def flips_of(spec, tree):
    """A unit's rows before and after one label of theirs flips, within the cap or beyond."""
    for rows in holdings(spec, tree):
        for place, (label, leaf) in enumerate(rows):
            yield (rows,), ((*rows[:place], (1 - label, leaf), *rows[place + 1 :]),)


@every_tree
@every_spec
def test_a_flipped_label_costs_no_more_than_is_charged(spec, tree):
    loss = loss_between(spec, tree, flips_of(spec, tree))
    assert loss <= charged(spec).epsilon + SLACK
    # Where one row is all that counts of a unit, no less will do.
    assert loss == pytest.approx(charged(spec).epsilon / spec.max_per_unit, rel=1e-3)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_the_delta_that_is_charged_for_a_flipped_label(neighbours):
    spec = DistributedDP(1.0, delta=1e-3, noise="skellam", neighbours=neighbours)
    (law,) = plan_for(spec, (2,), COHORT).noise_laws(shares=HONEST)
    cost = charged(spec, delta=1e-3)
    steps = 1 if is_replacing(spec) else 2
    assert cost.epsilon == steps
    assert 0 <= cost.delta / sum(math.exp(s) * 1e-3 for s in range(steps)) - 1 < 1e-14
    assert escaping(law, cost.epsilon, [1, 1]) <= cost.delta


def label_plan(tree):
    axis = fg.Axis.from_values(range(math.prod(tree)), outside="clip")
    privacy = fg.DistributedDP(0.7, unit="label", neighbours="flip")
    return fg.EvaluationPlan.under(privacy, axis, cohort=COHORT, task=LabelTask(), tree=tree)


def loss_of_labels(tree, pairs):
    """Largest loss between labelled bins in pairs, under a plan for labels."""
    plan, moved = label_plan(tree), []
    for pair in pairs:
        counts = [
            contribution.count_rows(
                plan, (np.array(labels, dtype=int), np.array(bins, dtype=float))
            )
            for labels, bins in pair
        ]
        one, other = (contribution.to_numbers(plan, each) for each in counts)
        moved.append(np.abs(one - other))
    changes = np.split(np.array(moved), np.cumsum(plan.final.nodes)[:-1], axis=1)
    return worst_loss(plan.noise_laws(shares=HONEST), changes)


@every_tree
def test_a_row_whose_label_counts_or_not_costs_a_plan_for_labels_epsilon(tree):
    """So these are in the sum of all plans; that the row is there they take for public."""
    bins = (0, 1, 1)
    labelled = list(itertools.product((0, 1), repeat=3))
    gone = [((ys, bins), (without(ys, p), without(bins, p))) for ys in labelled for p in range(3)]
    assert 0.999 * 0.7 <= loss_of_labels(tree, gone) <= 0.7 + SLACK
    flipped = [((ys, bins), ((1 - ys[0], *ys[1:]), bins)) for ys in labelled]
    assert 0.999 * 0.7 <= loss_of_labels(tree, flipped) <= 0.7 + SLACK
    assert charged(label_plan(tree).privacy).epsilon == 0.7


def test_a_mix_of_plans_costs_a_row_what_they_add_up_to():
    """Each has noise of its own, so losses add up: epsilon is the sum, under any mix."""
    row, tree = (((1, 0),),), (2, 2)
    losses = [loss_between(spec, tree, [(row, ((),))]) for spec in SPECS]
    assert 0.5 * sum(s.epsilon for s in SPECS) < sum(losses) <= sum(s.epsilon for s in SPECS)


def test_a_mix_of_plans_costs_a_label_what_its_account_is_charged():
    """Charged as to rows, plans under which rows come or go would cost it twice as much."""
    tree = (2, 2)
    specs = [spec for spec in SPECS if spec.max_per_unit == 1]
    losses = [loss_between(spec, tree, flips_of(spec, tree)) for spec in specs]
    losses.append(loss_of_labels(tree, [(((1,), (0,)), ((0,), (0,)))]))
    specs.append(label_plan(tree).privacy)
    total = sum(charged(spec).epsilon for spec in specs)
    assert 0.999 * total <= sum(losses) <= total + SLACK
    assert sum(losses) > sum(spec.epsilon for spec in specs)
