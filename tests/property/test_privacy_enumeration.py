"""Privacy of polya noise by enumeration: all neighbours of small inputs, all outputs. The noise of
different nodes is independent, so the log-ratio of the probabilities of an output under two inputs
is a sum over nodes, and its largest value the sum of the nodes' largest values. Laws are read from
the tables that are drawn from, outputs go as far as a node has 2^-80 of probability, and counts
come from the code that makes them."""

import itertools
import math
from functools import cache

import msgspec
import numpy as np
import plans
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from losses import count_rows, log_law, worst_loss

import fedgauge
from fedgauge import Axis, Examples, HistogramRound, ScoreHistogram
from fedgauge.privacy import Cohort, DistributedDP
from fedgauge.privacy.units import limit_rows
from noise import level_noise, share_law

TREES = [(2,), (3,), (2, 2), (4, 2)]
SLACK = 1e-12
COHORT = Cohort(min_survivors=4, max_colluding=1)


def plan_for(spec, tree, cohort=COHORT, **options):
    return plans.plan_for(spec, tree, cohort, **options)


HONEST = 3  # survivors that do not collude, when as many are lost and corrupted as may be
EXAMPLE = DistributedDP(1.0)
FLIP = DistributedDP(1.0, neighbours="replace-one")
TWO_ROWS = DistributedDP(1.0, unit="subject", max_per_unit=2)


@cache
def neighbour_changes(spec, tree, base=()):
    """By level, how far every node moves, for every pair of neighbouring inputs. A unit hands in
    any rows, one more than its cap too; `base` are the rows of another unit."""
    rows = list(itertools.product((0, 1), range(math.prod(tree))))
    most = 1 if spec.unit == "example" else spec.max_per_unit + 1
    held = [
        count_rows(tree, spec, (base, unit))
        for size in range(1, most + 1)
        for unit in itertools.combinations_with_replacement(rows, size)
    ]
    held = np.unique(held, axis=0)
    nothing = count_rows(tree, spec, (base, ()))[None]
    others = held if spec.neighbours == "replace-one" else nothing
    changes = np.abs(held[:, None] - others[None]).reshape(-1, held.shape[1])
    changes = np.unique(changes, axis=0)
    ends = np.cumsum([2 * math.prod(tree[: depth + 1]) for depth in range(len(tree))])
    return np.split(changes, ends[:-1], axis=1)


def loss_of(plan, honest, *, truth=None, base=()):
    """Loss of a plan's noise from `honest` shares; `truth` says who the neighbours are."""
    spec = msgspec.structs.replace(truth or plan.privacy, epsilon=1.0)  # they do not depend on it
    changes = neighbour_changes(spec, plan.tree, base)
    return worst_loss(plan.noise_laws(shares=honest), changes)


SPECS = [
    DistributedDP(epsilon, unit=unit, max_per_unit=cap, neighbours=neighbours)
    for epsilon in (0.3, 1.0)
    for unit, cap in (("example", 1), ("subject", 2), ("client", 1), ("client", 2))
    for neighbours in ("add-remove", "replace-one")
]
every_tree = pytest.mark.parametrize("tree", TREES, ids=str)
every_spec = pytest.mark.parametrize(
    "spec", SPECS, ids=lambda s: f"{s.epsilon}-{s.unit}-{s.max_per_unit}-{s.neighbours}"
)


@every_tree
@every_spec
def test_the_worst_loss_is_epsilon(spec, tree):
    loss = loss_of(plan_for(spec, tree), HONEST)
    assert 0.999 * spec.epsilon <= loss <= spec.epsilon + SLACK


@pytest.mark.parametrize("tree", [(2,), (3,)], ids=str)
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("unit", ["subject", "client"])
def test_rows_of_a_unit_together_or_apart_cost_at_most_epsilon(unit, neighbours, tree):
    spec = DistributedDP(1.0, unit=unit, max_per_unit=3, neighbours=neighbours)
    assert 0.999 <= loss_of(plan_for(spec, tree), HONEST) <= 1 + SLACK
    together, apart = [(0, 0)] * 3, [(0, 0), (0, 1), (1, 0)]
    for rows in (together, apart, together + apart):
        change = count_rows(tree, spec, ((), tuple(rows))) - count_rows(tree, spec, ((), ()))
        assert np.abs(change).sum() == 3


@every_tree
@pytest.mark.parametrize("unit", ["example", "subject", "client"])
def test_what_others_hold_changes_nothing(tree, unit):
    spec = DistributedDP(1.0, unit=unit, neighbours="replace-one")
    alone = neighbour_changes(spec, tree)
    for base in (((0, 0),), ((1, 1), (1, 1), (0, 1))):
        with_others = neighbour_changes(spec, tree, base)
        assert all(map(np.array_equal, alone, with_others))


@pytest.mark.parametrize("colluding", [0, 1, 3])
@pytest.mark.parametrize("tree", [(2, 2), (4, 2)], ids=str)
@pytest.mark.parametrize("spec", [EXAMPLE, FLIP], ids=lambda spec: spec.neighbours)
def test_dropouts_and_subtracted_shares_cost_at_most_epsilon(spec, tree, colluding):
    plan = plan_for(spec, tree, Cohort(min_survivors=5, max_colluding=colluding))
    losses = {}
    for survivors, known in itertools.product(range(5, 10), range(colluding + 1)):
        losses[survivors, known] = loss_of(plan, survivors - known)
    assert max(losses.values()) <= 1 + SLACK
    # The worst is when as many are lost and as many collude as the cohort allows for.
    assert losses[5, colluding] == max(losses.values()) >= 0.999
    # One more lost, and the promise would be broken: that sum is never released.
    if colluding < 3:
        assert loss_of(plan, 4 - colluding) > 1.02


@settings(deadline=None, max_examples=25)
@given(
    st.floats(0.2, 3.0),
    st.lists(st.integers(1, 5), min_size=2, max_size=2),
    st.sampled_from(["add-remove", "replace-one"]),
    st.integers(1, 6),
)
def test_any_split_over_levels_costs_epsilon(epsilon, weights, neighbours, honest):
    spec = DistributedDP(epsilon, neighbours=neighbours)
    cohort = Cohort(min_survivors=honest + 1, max_colluding=1)
    plan = plan_for(spec, (2, 2), cohort, weights=weights)
    loss = loss_of(plan, honest)
    assert 0.999 * epsilon <= loss <= epsilon * (1 + SLACK)


@pytest.mark.parametrize("level", [0.1, 0.5, 2.0])
def test_the_enumerated_law_is_the_ideal_one(level):
    (law,) = plan_for(DistributedDP(level), (2,)).noise_laws(shares=HONEST)
    logs = log_law(law._table)
    away = np.abs(np.arange(len(logs)) - len(logs) // 2)
    ideal = math.log(math.tanh(level / 2)) - level * away
    np.testing.assert_allclose(logs, ideal, rtol=0, atol=SLACK)


@pytest.mark.parametrize("spec", [EXAMPLE, FLIP], ids=lambda spec: spec.neighbours)
def test_outputs_of_a_whole_tree_one_by_one(spec):
    # Two classes with two leaves: 11^4 outputs, for every pair of neighbours.
    plan = plan_for(spec, (2,))
    (law,) = plan.noise_laws(shares=HONEST)
    logs = log_law(law._table)
    middle, outputs = len(logs) // 2, np.array(list(itertools.product(range(-5, 6), repeat=4)))
    rows = list(itertools.product((0, 1), range(2)))
    units = [(row,) for row in rows]
    pairs = itertools.permutations(units, 2) if spec is FLIP else ((unit, ()) for unit in units)
    ratios = []
    for one, other in pairs:
        probabilities = [
            logs[middle + outputs - count_rows((2,), spec, ((), rows))].sum(axis=1)
            for rows in (one, other)
        ]
        ratios.append(np.abs(probabilities[0] - probabilities[1]).max())
    assert len(ratios) == (12 if spec is FLIP else 4)
    assert max(ratios) <= 1 + SLACK
    assert max(ratios) == pytest.approx(loss_of(plan, HONEST), abs=SLACK)


def for_fewer_levels(tree):
    """A budget that forgets one level."""
    plan, levels = plan_for(EXAMPLE, tree), len(tree)
    noise = level_noise(EXAMPLE, COHORT, levels - 1)
    sent = HistogramRound(plan.final.nodes, (*noise, noise[-1]))
    return msgspec.structs.replace(plan, rounds=(sent,)), EXAMPLE


WRONG = {
    # Noise calibrated to the 8 clients invited instead of those that survive.
    "for invited": (lambda tree: (plan_for(EXAMPLE, tree, Cohort(8, 1)), EXAMPLE), 2.5),
    # Noise that counts on the shares of colluders.
    "for colluders too": (lambda tree: (plan_for(EXAMPLE, tree, Cohort(4, 0)), EXAMPLE), 1.4),
    "for fewer levels": (for_fewer_levels, 1.999),
    # A label flip that is counted as one path.
    "for one path": (lambda tree: (plan_for(EXAMPLE, tree), FLIP), 1.999),
    # A subject with two rows that is counted as one row.
    "for one row": (lambda tree: (plan_for(EXAMPLE, tree), TWO_ROWS), 1.999),
}


@pytest.mark.parametrize("tree", [(2, 2), (4, 2)], ids=str)
@pytest.mark.parametrize(("mutation", "least"), WRONG.values(), ids=WRONG)
def test_wrong_calibration_is_found_out(mutation, least, tree):
    plan, truth = mutation(tree)
    assert loss_of(plan, HONEST, truth=truth) >= least > 1


@pytest.mark.parametrize(("sites", "loss"), [(20, 1.19), (3, 3.1)])
def test_a_reader_who_subtracts_a_share_nobody_allowed_for(sites, loss):
    # method.md, section 4, for 8 levels: noise calibrated to all sites, one of which reads.
    tree, path = (2,) * 8, [np.array([[1]])] * 8
    wrong = plan_for(EXAMPLE, tree, Cohort(min_survivors=sites, max_colluding=0))
    assert worst_loss(wrong.noise_laws(shares=sites - 1), path) == pytest.approx(loss, rel=0.01)
    right = plan_for(EXAMPLE, tree, Cohort(min_survivors=sites, max_colluding=1))
    assert worst_loss(right.noise_laws(shares=sites - 1), path) == pytest.approx(1, abs=SLACK)


def with_sums(spec, tree, steps, cohort=COHORT):
    """A plan with score sums in any number of steps."""
    plan = plan_for(spec, tree, cohort, score_sums=True)
    sums = msgspec.structs.replace(plan.final.sums, steps=steps)
    return msgspec.structs.replace(plan, rounds=(msgspec.structs.replace(plan.final, sums=sums),))


def numbers_of(tree, steps, spec, units):
    """All numbers of a client with these units of rows (label, leaf, place within the leaf)."""
    bins = math.prod(tree)
    total = ScoreHistogram(Axis.uniform(bins, outside="clip"), sum_steps=steps)

    def add(rows, ids):
        if rows:
            labels, leaves, places = zip(*rows, strict=True)
            # A row at the upper end of a leaf is as close to it as floats allow.
            ends = np.nextafter((np.array(leaves) + 1) / bins, 0)
            scores = np.minimum((np.array(leaves) + np.array(places)) / bins, ends)
            total.update_batches(limit_rows([Examples(labels, scores, subject=ids)], spec.unit_cap))

    if spec.unit == "client":
        for rows in units:
            add(rows, None)
    else:
        add([row for rows in units for row in rows], [i for i, u in enumerate(units) for _ in u])
    parts = [*total.levels(tree), total.sums]
    return np.concatenate([part.ravel() for part in parts])


@cache
def all_numbers(tree, steps, unit, cap):
    """The numbers of a client with any one unit."""
    spec = DistributedDP(1.0, unit=unit, max_per_unit=cap)
    rows = list(itertools.product((0, 1), range(math.prod(tree)), (0.0, 0.4, 1.0)))
    held = [
        numbers_of(tree, steps, spec, ((), rows_held))
        for size in range(1, (1 if unit == "example" else cap + 1) + 1)
        for rows_held in itertools.combinations_with_replacement(rows, size)
    ]
    return np.unique(held, axis=0)


def sums_changes(plan, truth=None):
    """By level, sums last, how far every number moves, for every pair of neighbours."""
    spec, tree = truth or plan.privacy, plan.tree
    held = all_numbers(tree, plan.final.sum_steps, spec.unit, spec.max_per_unit)
    nothing = numbers_of(tree, plan.final.sum_steps, spec, ((), ()))[None]
    others = held if spec.neighbours == "replace-one" else nothing
    changes = np.abs(held[:, None] - others[None]).reshape(-1, held.shape[1])
    changes = np.unique(changes, axis=0)
    sizes = [2 * math.prod(tree[: depth + 1]) for depth in range(len(tree))]
    return np.split(changes, np.cumsum(sizes), axis=1)


SUMS_SPECS = [
    DistributedDP(16.0, unit=unit, max_per_unit=cap, neighbours=neighbours)
    for unit, cap in (("example", 1), ("subject", 2), ("client", 1), ("client", 2))
    for neighbours in ("add-remove", "replace-one")
]
every_sums_spec = pytest.mark.parametrize(
    "spec", SUMS_SPECS, ids=lambda s: f"{s.unit}-{s.max_per_unit}-{s.neighbours}"
)


@every_sums_spec
@pytest.mark.parametrize("steps", [1, 3, 256])
def test_the_sensitivity_of_sums_is_the_one_that_their_noise_is_made_for(spec, steps):
    plan = with_sums(spec, (2,), steps)
    *_, moves = sums_changes(plan)
    sensitivity = int(moves.sum(axis=1).max())
    assert sensitivity == steps * spec.level_sensitivity
    a = math.exp(-plan.final.sums.noise / sensitivity)
    stated = plan.sums_law(shares=HONEST).variance
    assert stated == pytest.approx(2 * a / (1 - a) ** 2, rel=1e-9)


@every_sums_spec
@pytest.mark.parametrize(("tree", "steps"), [((2,), 256), ((3,), 8), ((2, 2), 8)], ids=str)
def test_counts_and_sums_together_cost_epsilon(spec, tree, steps):
    if steps == 256 and spec.level_sensitivity == 4:
        spec = msgspec.structs.replace(spec, epsilon=20.0)  # else the law is long
    plan = with_sums(spec, tree, steps)
    laws_sent = [*plan.noise_laws(shares=HONEST), plan.sums_law(shares=HONEST)]
    loss = worst_loss(laws_sent, sums_changes(plan))
    assert 0.999 * spec.epsilon <= loss <= spec.epsilon * (1 + SLACK)


@pytest.mark.parametrize("sensitivity", [1, 7, 8])
def test_a_wrong_sensitivity_of_sums_is_found_out(sensitivity):
    """Noise for less than all steps: at 1 of 8 steps a row's sum costs eight times its share."""
    spec = DistributedDP(16.0)
    plan = with_sums(spec, (2,), 8)
    (law,), share = plan.noise_laws(shares=HONEST), plan.final.sums.noise
    wrong = share_law(spec, share, parties=HONEST, shares=HONEST, sensitivity=sensitivity)
    found = worst_loss([law, wrong], sums_changes(plan))
    assert share == pytest.approx(16 / 5)
    # The noise of one level has the other 4/5.
    expected = 16 * 4 / 5 + share * 8 / sensitivity
    assert found == pytest.approx(expected, rel=1e-6)
    assert (found <= 16 * (1 + SLACK)) == (sensitivity == 8)


def test_a_flipped_label_moves_two_sums():
    plan = with_sums(EXAMPLE, (2,), 8)
    assert sums_changes(plan)[-1].sum(axis=1).max() == 8
    assert sums_changes(plan, truth=FLIP)[-1].sum(axis=1).max() == 16


BASE = {
    "a": ([0, 1, 1, 0, 1], [0.1, 0.9, 0.8, 0.3, 0.7]),
    "b": ([0, 0, 1], [0.2, 0.4, 0.6]),
    "c": ([1, 0], [0.55, 0.45]),
}
NEIGHBOURS = {
    "a row more": {**BASE, "c": ([1, 0, 1], [0.55, 0.45, 0.99])},
    "a row less": {**BASE, "c": ([1], [0.55])},
    "no row left": {**BASE, "c": ([], [])},  # a refusal would tell the neighbours apart
    "a flipped label": {**BASE, "c": ([0, 0], [0.55, 0.45])},
    "a moved score": {**BASE, "c": ([1, 0], [1e300, 0.45])},
    "another client": {**BASE, "a": ([0] * 50, np.linspace(0, 1, 50))},
}
HINTS = [
    {},
    {"examples": 1000, "positive_rate": 0.3},
    {"tree": (4, 4)},
    {"tree": (4, 4), "positive_rate": 0.3},
    {"tree": "flat", "positive_rate": 0.3},
    {"axis": Axis.logit(8, outside="clip"), "cohort": Cohort(min_survivors=2)},
    {"tree": (4, 4), "score_sums": True},
]


@pytest.mark.parametrize("hints", HINTS, ids=lambda hints: "-".join(hints) or "none")
@pytest.mark.parametrize("privacy", [EXAMPLE, DistributedDP(0.5, unit="client")])
def test_neighbours_have_byte_identical_plans(privacy, hints):
    one = fedgauge.evaluate(BASE, privacy=privacy, seed=1, **hints)
    for change, data in NEIGHBOURS.items():
        other = fedgauge.evaluate(data, privacy=privacy, seed=1, **hints)
        assert one.plan.to_bytes() == other.plan.to_bytes(), change
        assert one.plan.digest == other.plan.digest
        assert one.privacy == other.privacy
        assert one.clients == other.clients
