"""Plans of two rounds over Flower messages: what is special to them, at nodes of either kind. That
both sums are right and dropouts survived is tested for all engines alike, between sites, in
test_conformance_plans.py; here the same is said of nodes of a simulation."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from counts import counts_of
from nodes import FIRST, MODEL, Federation, stage_of
from refusals import refused

import fedgauge as fg
import fedgauge.flower
from fedgauge.protocol import Envelope
from fedgauge.secagg import Stage

pytestmark = pytest.mark.usefixtures("quick_disk")
PAGE = Path(__file__).parents[2] / "docs" / "flower.md"
TWO = fg.TwoRound(12, share=0.5, coarse=fg.Axis.uniform(32, outside="clip"))
COHORT = fg.Cohort(min_survivors=4)
EXACT = fg.EvaluationPlan.for_histogram(TWO, COHORT)
NOISY = fg.EvaluationPlan.for_histogram(TWO, COHORT, privacy=fg.DistributedDP(1.0))
simulated = pytest.mark.parametrize("federation", ["simulated"], indirect=True)


def lost(gone, since, *, within):
    """Replies of one node are lost from a stage on, in the first or the second sum."""
    joined = 0

    def answered(place, stage, reply):
        nonlocal joined
        if place != gone or stage is None:
            return [reply]
        joined += stage == Stage.ADVERTISE
        return [] if joined == within and stage >= since else [reply]

    return answered


def assert_both_sums(nodes, result, *, without=()):
    coarse = nodes.truth(EXACT, without=without).sum(axis=0)
    assert result.plan.found.counts == tuple(coarse.tolist())
    assert np.array_equal(counts_of(result), nodes.truth(result.plan, without=without))
    assert result.plan.whole == EXACT


def test_both_sums_are_over_the_pooled_rows(federation):
    nodes = federation()
    result = nodes.evaluate(EXACT)
    assert_both_sums(nodes, result)
    assert result.privacy.claim == federation.claim
    assert result.axis == result.plan.found.axis


def test_nodes_score_once_in_each_round_with_the_same_model(federation):
    nodes = federation()
    nodes.evaluate(NOISY, arrays=MODEL)
    assert sorted(nodes.scored) == [(place, True) for place in range(6) for _ in range(2)]
    carrying = [each for each in nodes.grid.requests if "arrays" in each.content]
    assert [stage_of(each) for each in carrying] == [Stage.MASK] * 12
    sessions = [Envelope.from_bytes(m.content["fedgauge"]["request"]).session for m in carrying]
    assert len(set(sessions)) == 2


def test_what_both_rounds_cost_is_stated_and_charged_once(federation):
    nodes = federation()
    result = nodes.evaluate(NOISY)
    assert result.privacy.epsilon == 1.0
    for name in nodes.names if nodes.sites else ():
        (balance,) = nodes.sites.site(name).ledger.balances()
        assert float(balance.spent.epsilon) == 1.0


@simulated
@pytest.mark.parametrize(
    ("since", "within"), [(Stage.ADVERTISE, 2), (Stage.MASK, 2), (Stage.MASK, 1)]
)
def test_who_leaves_one_noisy_sum_is_missing_from_that_one(federation, since, within):
    nodes = federation(answered=lost(2, since, within=within))
    result = nodes.evaluate(NOISY)
    assert (result.plan.found.clients, result.clients) == ((5, 6) if within == 1 else (6, 5))


@simulated
@pytest.mark.parametrize("since", [Stage.ADVERTISE, Stage.MASK, Stage.AGREE])
def test_who_leaves_between_exact_sums_ends_the_evaluation(federation, since):
    nodes = federation(answered=lost(2, since, within=2))
    refused(fg.CohortTooSmall, "start again with noise, or when all of them", nodes.evaluate, EXACT)


def test_who_missed_the_first_exact_sum_is_not_in_the_second(federation):
    nodes = federation(answered=lost(2, Stage.MASK, within=1))
    assert_both_sums(nodes, nodes.evaluate(EXACT), without=[2])


def test_who_did_not_join_the_first_sum_does_not_join_the_second(federation, caplog):
    """It was connected when nodes told their keys, and then only from the second round on."""
    nodes = federation()
    apps = nodes.grid.apps
    away = apps[FIRST + 2]
    if nodes.sites:
        del apps[FIRST + 2]

    def answered(place, stage, reply):
        if stage is None and place == 5:
            del apps[FIRST + 2]
        elif stage == Stage.OPEN:
            apps[FIRST + 2] = away
        return [reply]

    nodes.grid._answered = answered
    result = nodes.evaluate(NOISY)
    assert result.plan.found.clients == result.clients == 5
    assert re.search("did not join (the first|that evaluation)", caplog.text)


def test_too_few_for_a_second_sum_are_told_that_it_is_paid_for(federation):
    nodes = federation()
    joined = []

    def answered(_place, stage, reply):
        joined.append(stage == Stage.ADVERTISE)
        return [] if sum(joined) > 8 else [reply]

    nodes.grid._answered = answered
    refused(fg.CohortTooSmall, r"2 members answered and 4 .* is spent", nodes.evaluate, NOISY)


def test_a_site_may_answer_at_another_node_in_the_second_round(folder):
    """As after a restart: at the node of a site that is gone by then."""
    nodes = Federation(folder)

    def answered(place, stage, reply):
        contexts = nodes.grid.contexts
        if stage == Stage.OPEN and place == 5 and nodes.grid.apps.pop(FIRST, None):
            contexts[FIRST + 5] = contexts[FIRST]
        return [reply]

    nodes.grid._answered = answered
    result = nodes.evaluate(NOISY)
    assert (result.plan.found.clients, result.clients) == (6, 5)


def test_a_plan_whose_bins_were_found_is_not_begun_with(federation):
    nodes = federation()
    found = nodes.evaluate(NOISY).plan
    asked = len(nodes.grid.log)
    refused(fg.PlanError, "Start with the plan of both rounds", nodes.evaluate, found)
    assert len(nodes.grid.log) == asked
    assert nodes.evaluate(found.whole).plan.whole == NOISY


def test_the_page_can_be_followed(federation):
    section = PAGE.read_text().split("## Scores of any scale")[1]
    (code, *_) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    nodes = federation()
    names = {"fedgauge": fg, "grid": nodes.grid, "trained": SimpleNamespace(arrays=MODEL)}
    evaluate = fedgauge.flower.evaluate
    site = nodes.sites and nodes.sites.site("consortium")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fedgauge.flower, "evaluate", lambda *a, **o: evaluate(*a, site=site, **o))
        exec(code, names)
    assert names["result"].axis == names["result"].plan.found.axis
    assert names["result"].axis.bins <= 48
    assert len(nodes.scored) == 12
