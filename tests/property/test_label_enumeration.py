"""Privacy of labels by enumeration: all labels of a few examples, every flip, all outputs; also
where one party answers alone. Counts are those that a label party sends, laws those that are drawn
from. Noise of different nodes is independent, so the largest log-ratio is a sum over nodes."""

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from losses import log_law, moves_of_flips, worst_loss

import fedgauge as fg
from fedgauge.data.row_checks import NO_BIN, Places
from fedgauge.engines.contribution import count_rows, to_numbers
from fedgauge.plan.task import LabelTask
from fedgauge.vertical.auc import MECHANISMS, DiscreteGaussian, DiscreteLaplace, rho_of
from fedgauge.vertical.files import terms_of

TREES = [(2,), (3,), (2, 2), (4, 2)]
LABEL = fg.DistributedDP(1.0, unit="label", neighbours="flip")
COHORT = fg.Cohort(min_survivors=4, max_colluding=1)
HONEST = 3
SLACK = 1e-12


def plan_for(tree, privacy=LABEL, cohort=COHORT):
    axis = fg.Axis.from_values(range(math.prod(tree)), outside="clip")
    return fg.EvaluationPlan.under(privacy, axis, cohort=cohort, task=LabelTask(), tree=tree)


@pytest.mark.parametrize("tree", TREES, ids=str)
@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_the_worst_loss_is_epsilon(tree, epsilon):
    plan = plan_for(tree, fg.DistributedDP(epsilon, unit="label", neighbours="flip"))
    bins = [place % math.prod(tree) for place in range(4)]
    loss = worst_loss(plan.noise_laws(shares=HONEST), moves_of_flips(plan, bins))
    assert 0.999 * epsilon <= loss <= epsilon + SLACK


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_any_bins_cost_the_same(tree):
    """Whoever assigns bins may do it as it likes: all examples alone, or all in one bin."""
    plan = plan_for(tree)
    for bins in ([0, 0, 0], [0, math.prod(tree) - 1], [1]):
        loss = worst_loss(plan.noise_laws(shares=HONEST), moves_of_flips(plan, bins))
        assert loss == pytest.approx(1.0, abs=1e-3)


def test_outputs_one_by_one():
    plan = plan_for((2,))
    (law,) = plan.noise_laws(shares=HONEST)
    logs = log_law(law._table)
    middle, outputs = len(logs) // 2, np.array(list(itertools.product(range(-6, 7), repeat=2)))
    one, other = (
        to_numbers(plan, count_rows(plan, (np.array(labels), np.array([0.0, 1.0]))))
        for labels in ((0, 1), (1, 1))
    )
    ratio = logs[middle + outputs - one].sum(axis=1) - logs[middle + outputs - other].sum(axis=1)
    assert np.abs(ratio).max() == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("tree", [(2, 2), (4, 2)], ids=str)
def test_noise_at_every_level_for_one_level_is_found_out(tree):
    flat = plan_for((math.prod(tree),))
    (law,) = flat.noise_laws(shares=HONEST)
    plan = plan_for(tree)
    assert worst_loss([law] * len(tree), moves_of_flips(plan, [0, 1])) >= 1.999


def test_noise_of_one_class_for_two_and_a_lost_share_are_found_out():
    """Noise for one row more or less, on both classes: a flip moves two counts."""
    axis = fg.Axis.uniform(2, outside="clip")
    plan = fg.EvaluationPlan.under(fg.DistributedDP(1.0), axis, cohort=COHORT)
    rows = [to_numbers(plan, count_rows(plan, ([label], [0.2]))) for label in (0, 1)]
    moved = [np.abs(rows[0] - rows[1])[np.newaxis]]
    assert worst_loss(plan.noise_laws(shares=HONEST), moved) >= 1.999
    plan = plan_for((2,), cohort=fg.Cohort(min_survivors=4, max_colluding=0))
    loss = worst_loss(plan.noise_laws(shares=3), moves_of_flips(plan, [0, 1]))
    assert loss == pytest.approx(1.27, abs=0.01)


def test_exact_totals_of_positives_would_tell():
    """Beside an exact number of positives a flip is told for sure, whatever the noise."""
    plan = plan_for((2,))
    totals = {
        int(to_numbers(plan, count_rows(plan, (np.array(labels), np.zeros(2)))).sum())
        for labels in ((0, 1), (1, 1))
    }
    assert len(totals) == 2  # so it is never sent: a plan has one round, of noisy positives
    assert plan.numbers == 2
    assert plan.is_noisy


def test_a_promise_for_labels_goes_with_labels_alone_and_nothing_else_flips():
    axis, replaced = fg.Axis.from_values(range(4), outside="clip"), {"neighbours": "replace-one"}
    mixed = [(LABEL, None), (fg.DistributedDP(1.0), LabelTask())]
    for privacy, task in [*mixed, (fg.DistributedDP(1.0, **replaced), LabelTask())]:
        with pytest.raises(fg.PlanError, match="goes with a task of labels"):
            fg.EvaluationPlan.under(privacy, axis, cohort=COHORT, task=task)
    label, flip = {"unit": "label"}, {"neighbours": "flip"}
    for options in (label, flip, flip | {"unit": "subject"}, label | flip | {"max_per_unit": 2}):
        with pytest.raises(fg.PlanError):
            fg.DistributedDP(1.0, **options)


ALONE = fg.Cohort(1, 0)
LAPLACE = [name for name, row in MECHANISMS.items() if row.noise == "polya"]
EXAMPLES = 6  # doubled ranks from 0 to 10
TOLD = [[0, 2, 4, 6, 8, 10], [10, 10, 10], [0, 10]]  # as far apart as can be
TOLD += [[0, 0, NO_BIN, 9], [NO_BIN, 7], [7], [0], [NO_BIN], []]


def label_dp(epsilon=1.0, **options):
    return fg.DistributedDP(epsilon, unit="label", neighbours="flip", **options)


@pytest.mark.parametrize("tree", [(3,), (2, 2)], ids=str)
@pytest.mark.parametrize("bins", [[0, 0, 1], [0, 1, 2], [2]], ids=str)
def test_what_one_party_adds_is_all_of_the_noise(tree, bins):
    axis = fg.Axis.from_values(range(math.prod(tree)), outside="clip")
    plan = fg.EvaluationPlan.under(label_dp(), axis, cohort=ALONE, task=LabelTask(), tree=tree)
    assert plan.is_alone
    loss = worst_loss(plan.noise_laws(shares=1), moves_of_flips(plan, bins))
    assert 0.999 <= loss <= 1.0 + 1e-12


def test_what_one_of_several_adds_is_not():
    """So a plan that divides the noise is not answered alone."""
    axis = fg.Axis.from_values(range(2), outside="clip")
    for cohort in (fg.Cohort(2, 0), fg.Cohort(4, 1)):
        plan = fg.EvaluationPlan.under(label_dp(), axis, cohort=cohort, task=LabelTask())
        assert not plan.is_alone
        assert worst_loss(plan.noise_laws(shares=1), moves_of_flips(plan, [0, 1])) > 1.2


@pytest.mark.parametrize("told", TOLD, ids=str)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_ranks_make_a_label_cost_more(told, mechanism):
    """Whoever tells ranks may tell any: a flip costs the two noises together epsilon, exactly."""
    gaussian = mechanism not in LAPLACE
    options = {"delta": 1e-6, "noise": "discrete-gaussian"} if gaussian else {}
    privacy = label_dp(0.7, **options)
    plan = fg.EvaluationPlan.for_pairs(mechanism, EXAMPLES, privacy)
    terms = terms_of(plan, Places(pa.array(range(len(told))), np.array(told, dtype=np.int32)))
    budget = 2 * rho_of(0.7, 1e-6) if gaussian else privacy.epsilon
    for rank in told:
        if rank != NO_BIN:
            moved = abs(rank - terms.centre)
            cost = sum(map(cost_of, (terms.positives, terms.ranks), (1, moved)))
            assert cost <= budget


def cost_of(law, moved):
    """Epsilon of a shift under discrete Laplace noise; twice the rho under discrete Gaussian."""
    if not moved:
        return 0
    match law:
        case DiscreteLaplace(scale=scale):
            return moved / scale  # ZeroDivisionError: it would be told for sure
        case DiscreteGaussian(sigma2=sigma2):
            return moved**2 / sigma2
