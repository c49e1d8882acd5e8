"""Crowded end bins: how often chance alone looks like one. Seeds are fixed; a fresh seed would fail
a correct implementation with the probability that the test states."""

import numpy as np
from plans import plan_for, report_plan
from scipy.stats import binom
from scripts import some_at_once

import fedgauge as fg
from fedgauge.engines.contribution import draw_noise, release
from fedgauge.engines.reports import simulate_reports
from fedgauge.estimation import sanity
from fedgauge.estimation.counts import PooledCounts
from fedgauge.privacy.keystream import SimulatedKeystream

BINS, CLIENTS, EXAMPLES = 64, 5, 1000
FALSE_ALARM = 1e-6
PLANS = {
    "exact": plan_for(None, None, fg.Cohort(4, 1), bins=BINS),
    "flat": plan_for(fg.DistributedDP(1.0), None, fg.Cohort(4, 1), bins=BINS),
    "noisy": plan_for(fg.DistributedDP(0.1), None, fg.Cohort(4, 1), bins=BINS),
    "tree": plan_for(fg.DistributedDP(0.5), (8, 8), fg.Cohort(4, 1)),
    "reports": report_plan(fg.LocalDP(2.0), (BINS,)),
    "report tree": report_plan(fg.LocalDP(2.0), (8, 8)),
}
every_plan = some_at_once("plan", PLANS.values(), 2, ids=PLANS)


def on_the_line():
    """In the last bin just so many of one class that it is no crowd, and of the other all."""
    shares = np.zeros((2, BINS))
    shares[0, -1], shares[0, :-1] = 0.1, 0.9 / (BINS - 1)
    shares[1, -1] = 1.0
    return shares


def cautions(plan, results):
    """How many of so many results of a population on the line have one."""
    rng, source = np.random.default_rng(3), SimulatedKeystream(1)
    (slice_,) = plan.task.slices
    told = 0
    for _ in range(results):
        rows = np.array([rng.multinomial(EXAMPLES, shares) for shares in on_the_line()])
        if plan.final.sends_reports:
            counted = fg.ScoreHistogram.from_counts(plan.axis, rows)
            released = simulate_reports(plan, counted, CLIENTS, source)
        else:
            levels = [rows.reshape(2, n, -1).sum(axis=2).ravel() for n in plan.final.nodes]
            total = np.concatenate(levels)
            if plan.is_noisy:
                total = total + draw_noise(plan, source, shares=CLIENTS)
            released = release(plan, total, CLIENTS)
        pooled = PooledCounts.of(plan, released, slice_)
        told += sanity.crowded_caution(plan, released, pooled) is not None
    return told


@every_plan
def test_cautions_of_a_population_on_the_line_are_near_the_stated_rate(plan, monkeypatch):
    """At a rate that can be counted."""
    stated, results = 0.05, 500
    monkeypatch.setattr(sanity, "FALSE_ALARM", stated)
    assert cautions(plan, results) <= binom.isf(FALSE_ALARM, results, stated)
    monkeypatch.setattr(sanity, "FALSE_ALARM", 1.9)
    assert cautions(plan, 200) > 0


@every_plan
def test_none_of_many_on_the_line_is_cautioned(plan):
    assert cautions(plan, 300) == 0  # false alarm 3e-4 at the most
