"""Cautions: how often honest members cause one, and how often a hostile one is noticed.

Seeds are fixed; a fresh seed would fail a correct implementation with the probability that the
test states.
"""

import numpy as np
import pytest
from plans import plan_for
from scipy.stats import binom

import fedgauge as fg
from fedgauge.engines.contribution import draw_noise, release
from fedgauge.estimation import impossible
from fedgauge.privacy.keystream import SimulatedKeystream

CLIENTS = 5
RESULTS = 2000
FALSE_ALARM = 1e-6
PLANS = {
    "flat": ((32,), fg.DistributedDP(1.0), {}),
    "tree": ((4, 8), fg.DistributedDP(1.0), {}),
    "deep": ((2, 2, 2, 4), fg.DistributedDP(1.0), {"weights": (1, 4, 2, 8)}),
    "sums": ((4, 8), fg.DistributedDP(1.0), {"score_sums": True}),
    "skellam": ((4, 8), fg.DistributedDP(1.0, 1e-6, noise="skellam"), {}),
    "gaussian": ((4, 8), fg.DistributedDP(1.0, 1e-6, noise="discrete-gaussian"), {}),
}
every_plan = pytest.mark.parametrize("case", PLANS.values(), ids=PLANS)


def cautions(case, counts=0, results=RESULTS):
    """How many of so many results have one; without rows nothing but noise is in the sum."""
    tree, privacy, options = case
    plan = plan_for(privacy, tree, fg.Cohort(4, 1), **options)
    levels = [
        np.broadcast_to(counts, (2, 32)).reshape(2, n, -1).sum(axis=2) for n in plan.final.nodes
    ]
    exact = np.concatenate([level.ravel() for level in levels])
    exact = np.pad(exact, (0, plan.numbers - exact.size))
    source = SimulatedKeystream(1)
    drawn = (draw_noise(plan, source, shares=CLIENTS) for _ in range(results))
    return sum(
        impossible.caution(plan, release(plan, exact + noise, CLIENTS)) is not None
        for noise in drawn
    )


@every_plan
def test_noise_alone_is_cautioned_no_more_often_than_stated(case, monkeypatch):
    """At a rate that can be counted; all bins are empty, where false alarms are likeliest."""
    stated = 0.05
    monkeypatch.setattr(impossible, "FALSE_ALARM", stated)
    assert cautions(case) <= binom.isf(FALSE_ALARM, RESULTS, stated)


@every_plan
def test_the_stated_rate_is_not_far_too_low(case, monkeypatch):
    """The bound is a bound, not a wall: at a stated rate of 1 in all bins some are noticed."""
    monkeypatch.setattr(impossible, "FALSE_ALARM", 100.0)
    assert cautions(case, results=200) > 0


@every_plan
def test_no_honest_result_of_many_is_cautioned(case):
    assert cautions(case, results=500) == 0  # false alarm 5e-4 at the most


def moved(number, *, rows=0):
    """So many positives taken from an inner bin and put in the top one, of so many in each."""
    counts = np.full((2, 32), rows)
    counts[1, 10] -= number
    counts[1, -1] += number
    return counts


@every_plan
def test_negative_counts_that_leave_totals_unchanged_are_noticed(case):
    """At epsilon 1, 100 examples too many taken from a bin show in at least 99% of results."""
    assert cautions(case, moved(100), results=300) >= 297


def test_negative_counts_that_rows_of_others_cover_are_not():
    """What no check can see."""
    assert cautions(PLANS["flat"], moved(100, rows=100), results=300) == 0
