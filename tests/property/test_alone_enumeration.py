"""An answer alone has all of the noise: by enumeration, whatever bins or ranks were told."""

import math

import numpy as np
import pyarrow as pa
import pytest
from losses import moves_of_flips, worst_loss

import fedgauge as fg
from fedgauge.data.row_checks import NO_BIN, Places
from fedgauge.plan.task import LabelTask
from fedgauge.vertical.auc import MECHANISMS, DiscreteGaussian, DiscreteLaplace, rho_of
from fedgauge.vertical.files import terms_of

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
