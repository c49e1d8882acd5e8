import itertools
import math
from typing import get_args

import msgspec
import numpy as np
import pytest

from fedgauge import Axis, ScoreHistogram
from fedgauge.errors import FedgaugeError, PlanError, PrivacyWarning
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.task import LabelTask
from fedgauge.privacy import (
    AnyPrivacyModel,
    Cohort,
    DistributedDP,
    LocalDP,
    PrivacyModel,
    SecureAggregation,
)

NAN, INF = float("nan"), float("inf")
APPROXIMATE = ("skellam", "discrete-gaussian")


@pytest.mark.parametrize("epsilon", [0, 0.0, -1, -0.5, NAN, INF, -INF, "1", None, [1.0], 1j, True])
def test_epsilon_is_a_positive_number(epsilon):
    with pytest.raises(PlanError, match="epsilon"):
        DistributedDP(epsilon)


@pytest.mark.parametrize("epsilon", [1, 1e-3, 20, np.float64(0.5)])
def test_a_usual_epsilon_passes_quietly(epsilon):
    assert DistributedDP(epsilon).epsilon == epsilon


@pytest.mark.parametrize("epsilon", [20.1, 50.0, 1e6])
def test_an_absurd_epsilon_warns(epsilon):
    with pytest.warns(PrivacyWarning, match="protects nobody") as caught:
        DistributedDP(epsilon)
    assert len(caught) == 1


def test_the_warning_points_at_the_caller():
    with pytest.warns(PrivacyWarning) as caught:
        DistributedDP(100.0)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("delta", [1e-6, 0.0, 0.5])
def test_polya_refuses_a_delta_and_says_why(delta):
    with pytest.raises(PlanError, match=r"polya.*takes no delta.*skellam"):
        DistributedDP(1.0, delta)


@pytest.mark.parametrize("noise", APPROXIMATE)
@pytest.mark.parametrize("delta", [None, 0, 0.0, 1, 1.0, -1e-6, 2.0, NAN, INF, "1e-6", True])
def test_other_noise_needs_a_delta_between_0_and_1(noise, delta):
    with pytest.raises(PlanError, match="delta"):
        DistributedDP(1.0, delta, noise=noise)


@pytest.mark.parametrize("noise", APPROXIMATE)
def test_other_noise_takes_a_delta(noise):
    assert DistributedDP(1.0, 1e-6, noise=noise).delta == 1e-6


@pytest.mark.parametrize(
    ("name", "value", "choice"),
    [
        ("noise", "laplace", "discrete-gaussian"),
        ("noise", None, "polya"),
        ("unit", "row", "subject"),
        ("unit", 1, "client"),
        ("neighbours", "zero-out", "replace-one"),
        ("neighbours", ["add-remove"], "add-remove"),
    ],
)
def test_unknown_choices_are_refused_with_the_known(name, value, choice):
    with pytest.raises(PlanError, match=rf"{name} must be one of .*{choice}"):
        DistributedDP(1.0, **{name: value})


@pytest.mark.parametrize("cap", [0, -1, 10**30, True, 1.0, 2.5, "2", None, NAN])
@pytest.mark.parametrize("unit", ["subject", "client"])
def test_max_per_unit_is_a_positive_whole_number(unit, cap):
    with pytest.raises(PlanError, match="max_per_unit"):
        DistributedDP(1.0, unit=unit, max_per_unit=cap)


def test_an_example_is_one_row():
    assert DistributedDP(1.0, max_per_unit=1).max_per_unit == 1
    with pytest.raises(PlanError, match="one row"):
        DistributedDP(1.0, max_per_unit=2)


def test_specs_are_frozen_and_strict():
    spec = DistributedDP(1.0)
    with pytest.raises(AttributeError):
        spec.epsilon = 2.0
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"model": "distributed-dp", "epsilon": 1.0, "seed": 3}, DistributedDP)


@pytest.mark.parametrize(
    "spec",
    [
        DistributedDP(0.3),
        DistributedDP(1.0, 1e-7, noise="skellam", unit="client", max_per_unit=9),
        DistributedDP(1.0, unit="subject", max_per_unit=2, neighbours="replace-one"),
    ],
)
def test_specs_survive_the_journey_in_a_plan(spec):
    plan = EvaluationPlan.for_histogram(Axis.uniform(4, outside="clip"), Cohort(), privacy=spec)
    assert EvaluationPlan.from_bytes(plan.to_bytes()).privacy == spec
    assert EvaluationPlan.from_toml(plan.to_toml()).privacy == spec


def test_a_distributed_plan_cannot_smuggle_in_a_bad_spec():
    plan = EvaluationPlan.for_histogram(
        Axis.uniform(4, outside="clip"), Cohort(), privacy=DistributedDP(0.3)
    )
    data = plan.to_bytes()
    assert b'"epsilon":0.3' in data
    for bad in (b"0.0", b"-1.0", b'"x"'):
        with pytest.raises(FedgaugeError):
            EvaluationPlan.from_bytes(data.replace(b'"epsilon":0.3', b'"epsilon":' + bad))


def test_an_axis_that_refuses_scores_is_refused_under_privacy():
    with pytest.raises(PlanError, match="leak"):
        EvaluationPlan.for_histogram(Axis.uniform(4), Cohort(), privacy=DistributedDP(1.0))


def node_counts(tree, rows):
    """All counts that are sent for some rows (label, leaf), by the code that sends them."""
    bins = math.prod(tree)
    histogram = ScoreHistogram(Axis.uniform(bins))
    if rows:
        labels, leaves = zip(*rows, strict=True)
        histogram.update(labels, (np.array(leaves) + 0.5) / bins)
    return np.concatenate([level.ravel() for level in histogram.levels(tree)])


@pytest.mark.parametrize("tree", [(2,), (3,), (2, 2), (4, 2), (2, 2, 2)])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize(("unit", "cap"), [("example", 1), ("subject", 2), ("client", 3)])
def test_sensitivity_is_the_largest_change_of_all_counts(tree, unit, cap, neighbours):
    rows = list(itertools.product((0, 1), range(math.prod(tree))))
    if cap == 3:
        rows = rows[:3] + rows[-3:]
    units = [
        node_counts(tree, held)
        for size in range(cap + 1)
        for held in itertools.combinations_with_replacement(rows, size)
    ]
    others = [units[0]] if neighbours == "add-remove" else units
    changes = np.array(units)[:, None] - np.array(others)
    spec = DistributedDP(1.0, unit=unit, max_per_unit=cap, neighbours=neighbours)
    sensitivity = spec.sensitivity(levels=len(tree))
    assert sensitivity.l1 == np.abs(changes).sum(axis=2).max()
    assert sensitivity.l2 == pytest.approx(np.sqrt((changes**2).sum(axis=2).max()), rel=1e-12)
    assert spec.level_sensitivity * len(tree) == sensitivity.l1


@pytest.mark.parametrize("value", [1.5, "3", True, None])
@pytest.mark.parametrize("name", ["min_survivors", "max_colluding"])
def test_cohorts_are_whole_numbers(name, value):
    with pytest.raises(PlanError, match=name):
        Cohort(**{name: value})


def test_cohorts_have_somebody():
    with pytest.raises(PlanError, match="min_survivors"):
        Cohort(min_survivors=0)
    with pytest.raises(PlanError, match="max_colluding"):
        Cohort(max_colluding=-1)
    assert Cohort(np.int64(4), np.int64(0)) == Cohort(min_survivors=4, max_colluding=0)


# What every model answers


EVERY_MODEL = (
    SecureAggregation(),
    DistributedDP(1.0),
    DistributedDP(1.0, delta=1e-6, noise="skellam"),
    LocalDP(1.0),
    LocalDP(1.0, unit="label"),
)


def test_the_list_is_complete():
    assert {type(model) for model in EVERY_MODEL} == set(get_args(AnyPrivacyModel))


@pytest.mark.parametrize("model", EVERY_MODEL, ids=repr)
def test_a_model_that_says_it_adds_noise_does_and_claims_epsilon_for_it(model):
    cohort = Cohort(5) if model.needs_cohort else None
    task = LabelTask() if model.flips_labels else None
    plan = EvaluationPlan.under(model, Axis.uniform(8, outside="clip"), cohort=cohort, task=task)
    plan.check_promise()
    variances = plan.noise_variances(5)
    if model.flips_labels:
        variances = plan.node_variances(np.full((2, 8), 5.0))[0].ravel()
    assert all(variance > 0 for variance in variances)
    assert bool(len(variances)) == plan.is_noisy == model.adds_noise
    stated = plan.statement("enforced")
    assert stated.model == model.name
    assert stated.epsilon == (model.budget.epsilon if model.adds_noise else None)
    assert (stated.epsilon is None) == (model.budget is None) == (not model.adds_noise)
    assert (stated.cohort is None) == (not model.needs_cohort)
    assert model.sends_reports == plan.final.sends_reports
    assert model.flips_labels == plan.final.flips_labels
    for words in (model.title, model.trust, model.promise, model.unprotected):
        assert words
        assert not words.endswith(" ")


def test_a_model_that_forgets_its_noise_cannot_be_planned_with():
    class Forgetful(PrivacyModel, frozen=True, tag="forgetful"):
        adds_noise = True
        sends_reports = False
        kind = "forgetful"

    with pytest.raises(NotImplementedError):
        EvaluationPlan.under(Forgetful(), Axis.uniform(8, outside="clip"), cohort=Cohort(5))


def test_noise_without_a_cohort_is_not_stated():
    with pytest.raises(PlanError, match="noise comes from a cohort"):
        DistributedDP(1.0).state(None, draws=[], claim="simulated")


@pytest.mark.parametrize("model", [SecureAggregation(), DistributedDP(1.0)], ids=lambda m: m.kind)
def test_a_model_of_sums_has_no_reports(model):
    axis = Axis.uniform(4, outside="clip")
    with pytest.raises(PlanError, match=f"{model.kind} sends no reports"):
        EvaluationPlan.for_reports(axis, model)
