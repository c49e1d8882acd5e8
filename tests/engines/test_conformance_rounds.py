"""Plans of two rounds on every engine: the same bins, the same counts, the same who may leave."""

import warnings

import numpy as np
import pytest
from conformance import CLIENTS, EVERYBODY, OTHERS
from counts import counts_of, pooled_counts

import fedgauge as fg
from fedgauge.secagg import Stage

pytestmark = pytest.mark.usefixtures("few_redraws", "quick_disk")
TWO = fg.TwoRound(12, share=0.5, coarse=fg.Axis.uniform(32, outside="clip"))


@pytest.fixture
def plans():
    """Plans of two rounds without noise, and with noise that comes once in 10^7 runs."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "epsilon 45 protects nobody", fg.PrivacyWarning)
        made = {"exact": fg.SecureAggregation(), "noiseless": fg.DistributedDP(45.0)}
        yield {
            name: fg.EvaluationPlan.for_histogram(TWO, fg.Cohort(3, 1), privacy=privacy)
            for name, privacy in made.items()
        }


def assert_both_rounds(result, plan, first, then):
    """What each round is over: the bins follow from the first, the counts are of the second."""
    coarse = pooled_counts(plan, CLIENTS, first).sum(axis=0)
    assert result.plan.found.counts == tuple(coarse.tolist())
    assert result.plan.found.clients == len(first)
    assert result.axis == result.plan.found.axis
    np.testing.assert_array_equal(counts_of(result), pooled_counts(result.plan, CLIENTS, then))
    assert result.clients == len(then)
    assert result.plan.whole == plan


@pytest.mark.parametrize("kind", ["exact", "noiseless"])
def test_both_rounds_are_over_the_pooled_rows(engine, plans, kind):
    result = engine.run(plans[kind], CLIENTS)
    assert_both_rounds(result, plans[kind], EVERYBODY, EVERYBODY)
    assert result.record.slices == fg.evaluate(CLIENTS, plan=plans[kind], seed=1).record.slices
    assert not engine.refusals


def test_slices_are_told_apart_in_the_second_round(engine):
    rng = np.random.default_rng(5)
    clients = {
        name: fg.Examples.leniently(y, s, group={"sex": rng.choice(["women", "men"], len(y))})
        for name, (y, s) in CLIENTS.items()
    }
    plan = fg.EvaluationPlan.for_histogram(
        TWO, fg.Cohort(3, 1), task=fg.BinaryTask(groups={"sex": ["women"]})
    )
    result = engine.run(plan, clients)
    assert result.record.slices == fg.evaluate(clients, plan=plan).record.slices


@pytest.mark.parametrize("stage", [Stage.ADVERTISE, Stage.MASK, Stage.AGREE])
def test_who_leaves_between_the_rounds_is_survived_under_noise(engine, plans, stage):
    result = engine.run(plans["noiseless"], CLIENTS, silent_then={"site-1": stage})
    then = EVERYBODY if stage > Stage.MASK else OTHERS
    assert_both_rounds(result, plans["noiseless"], EVERYBODY, then)


def test_who_missed_the_first_round_counts_in_the_second_under_noise(engine, plans):
    result = engine.run(plans["noiseless"], CLIENTS, silent={"site-1": Stage.MASK})
    assert_both_rounds(result, plans["noiseless"], OTHERS, EVERYBODY)


@pytest.mark.parametrize("stage", [Stage.ADVERTISE, Stage.MASK, Stage.AGREE])
def test_who_leaves_between_exact_sums_ends_the_evaluation(engine, plans, stage):
    with pytest.raises(fg.CohortTooSmall, match="4 members answered and 5 are needed"):
        engine.run(plans["exact"], CLIENTS, silent_then={"site-1": stage})
