"""Cautions: how often honest members cause one, and how often a hostile one is noticed.

Seeds are fixed; a fresh seed would fail a correct implementation with the probability that the
test states.
"""

import numpy as np
import pytest
from plans import plan_for, report_plan
from scipy.stats import binom

import fedgauge as fg
from fedgauge.engines.contribution import draw_noise, release
from fedgauge.engines.reporting import release_reports, simulate_reports
from fedgauge.estimation import impossible
from fedgauge.privacy import response
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


# Local reports

REPORTS = 2000
LOCAL = {
    "flat": ((16,), fg.LocalDP(1.0)),
    "tree": ((4, 4), fg.LocalDP(1.0)),
    "strong": ((16,), fg.LocalDP(0.1)),
    "weak": ((16,), fg.LocalDP(5.0)),
    "hadamard": ((16,), fg.LocalDP(1.0, oracle="hadamard")),
}
every_local = pytest.mark.parametrize("case", LOCAL.values(), ids=LOCAL)


def local_cautions(case, results, rows):
    """How many of so many results of honest reports have one."""
    tree, privacy = case
    plan = report_plan(privacy, tree)
    counted = fg.ScoreHistogram.from_counts(plan.axis, rows)
    source = SimulatedKeystream(1)
    return sum(
        impossible.caution(plan, simulate_reports(plan, counted, 1, source)) is not None
        for _ in range(results)
    )


def in_few_bins():
    """All others are empty, where false alarms are likeliest."""
    rows = np.zeros((2, 16), dtype=int)
    rows[0, 3], rows[1, 12] = REPORTS // 2, REPORTS // 2
    return rows


@every_local
def test_honest_reports_are_cautioned_no_more_often_than_stated(case, monkeypatch):
    stated, results = 0.05, 300
    monkeypatch.setattr(impossible, "FALSE_ALARM", stated)
    assert local_cautions(case, results, in_few_bins()) <= binom.isf(FALSE_ALARM, results, stated)


@every_local
def test_the_stated_rate_of_reports_is_not_far_too_low(case, monkeypatch):
    monkeypatch.setattr(impossible, "FALSE_ALARM", 5.0)
    assert local_cautions(case, 100, in_few_bins()) > 0


def test_reports_that_deny_a_bin_are_noticed():
    """A fifth of all reports never have the bits of two bins that few rows are in."""
    plan = report_plan(fg.LocalDP(1.0), (16,))
    (oracle,) = plan.oracles
    source = SimulatedKeystream(2)
    leaves = np.repeat(np.flatnonzero(in_few_bins().ravel()), 5 * REPORTS)
    payloads = oracle.encode(leaves, source)
    bits = np.unpackbits(payloads, axis=1, count=oracle.cells)
    bits[::5, [7, 20]] = 0
    tallies = [bits.sum(axis=0, dtype=np.int64)]
    levels = response.debias(plan.oracles, tallies, [len(bits)], 2)
    variances = plan.noise_variances(len(bits))
    told = release_reports(plan, levels, variances, clients=1, reports=len(bits))
    assert impossible.caution(plan, told) is not None
