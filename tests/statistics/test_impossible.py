"""Cautions: how often honest members cause one, and how often a hostile one is noticed. Seeds are
fixed; a fresh seed would fail a correct implementation with the probability that the test
states."""

import numpy as np
import pytest
from plans import plan_for, report_plan
from scipy.stats import binom
from scripts import some_at_once

import fedgauge as fg
from fedgauge.engines.contribution import draw_noise, release
from fedgauge.engines.reports import release_reports, simulate_reports
from fedgauge.estimation import sanity
from fedgauge.estimation.counts import Released
from fedgauge.plan.task import LabelTask
from fedgauge.privacy.keystream import SimulatedKeystream
from fedgauge.privacy.local import debias, flip
from fedgauge.privacy.oracles import debias as debias_reports
from fedgauge.vertical.auc import MECHANISMS, PartyRanks, is_pair_possible, noisy_pair

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
every_plan = some_at_once("case", PLANS.values(), 2, ids=PLANS)


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
        sanity.impossible_caution(plan, release(plan, exact + noise, CLIENTS)) is not None
        for noise in drawn
    )


@every_plan
def test_cautions_of_noise_alone_are_near_the_stated_rate(case, monkeypatch):
    """At a rate that can be counted; all bins are empty, where false alarms are likeliest."""
    stated = 0.05
    monkeypatch.setattr(sanity, "FALSE_ALARM", stated)
    assert cautions(case) <= binom.isf(FALSE_ALARM, RESULTS, stated)
    # The bound is a bound, not a wall: at a stated rate of 1 in all bins some are noticed.
    monkeypatch.setattr(sanity, "FALSE_ALARM", 100.0)
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


REPORTS = 2000
LOCAL = {
    "flat": ((16,), fg.LocalDP(1.0)),
    "tree": ((4, 4), fg.LocalDP(1.0)),
    "strong": ((16,), fg.LocalDP(0.1)),
    "weak": ((16,), fg.LocalDP(5.0)),
    "hadamard": ((16,), fg.LocalDP(1.0, oracle="hadamard")),
}
every_local = some_at_once("case", LOCAL.values(), 2, ids=LOCAL)


def local_cautions(case, results, rows):
    """How many of so many results of honest reports have one."""
    tree, privacy = case
    plan = report_plan(privacy, tree)
    counted = fg.ScoreHistogram.from_counts(plan.axis, rows)
    source = SimulatedKeystream(1)
    return sum(
        sanity.impossible_caution(plan, simulate_reports(plan, counted, 1, source)) is not None
        for _ in range(results)
    )


def in_few_bins():
    """All others are empty, where false alarms are likeliest."""
    rows = np.zeros((2, 16), dtype=int)
    rows[0, 3], rows[1, 12] = REPORTS // 2, REPORTS // 2
    return rows


@every_local
def test_cautions_of_honest_reports_are_near_the_stated_rate(case, monkeypatch):
    stated, results = 0.05, 300
    monkeypatch.setattr(sanity, "FALSE_ALARM", stated)
    assert local_cautions(case, results, in_few_bins()) <= binom.isf(FALSE_ALARM, results, stated)
    monkeypatch.setattr(sanity, "FALSE_ALARM", 5.0)
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
    levels = debias_reports(plan.oracles, tallies, [len(bits)], 2)
    variances = plan.noise_variances(len(bits))
    told = release_reports(plan, levels, variances, clients=1, reports=len(bits))
    assert sanity.impossible_caution(plan, told) is not None


TOTALS = np.repeat([0, 1, 10, 100], 8)  # examples of a party by bin
LABELS = {"none positive": 0.0, "all positive": 1.0}
every_label = pytest.mark.parametrize("share", LABELS.values(), ids=LABELS)
every_tree = pytest.mark.parametrize("tree", [(32,), (8, 4), None], ids=["flat", "tree", "flips"])


def label_dp(noise="polya"):
    options = {} if noise == "polya" else {"noise": noise, "delta": 1e-6}
    return fg.DistributedDP(1.0, unit="label", neighbours="flip", **options)


def alone_plan(tree):
    axis, task = fg.Axis.from_values(range(32), outside="clip"), LabelTask("yes", "ab" * 32)
    if tree is None:
        return fg.EvaluationPlan.under(fg.LocalDP(1.0, unit="label"), axis, task=task, tree=(32,))
    return fg.EvaluationPlan.under(label_dp(), axis, cohort=fg.Cohort(1, 0), task=task, tree=tree)


def doubted_answers(plan, share, stated, results):
    """How many of so many answers are doubted: with none or all positive, false alarms are most."""
    source, found = SimulatedKeystream(3), 0
    counts = (TOTALS * share).astype(np.int64)
    for _ in range(results):
        levels = ()
        if plan.privacy.flips_labels:
            labels, bins = np.full(TOTALS.sum(), bool(share)), np.repeat(np.arange(32), TOTALS)
            told = np.bincount(bins[flip(labels, plan.flipped.chance, source)], minlength=32)
            positives = debias(told, TOTALS, plan.flipped.chance)
        else:
            shapes = [(nodes, -1) for nodes in plan.final.nodes]
            exact = [counts.reshape(shape).sum(axis=1) for shape in shapes]
            numbers = np.concatenate(exact) + draw_noise(plan, source)
            (positives,) = release(plan, numbers, 1).counts
            levels = np.split(numbers, np.cumsum(plan.final.nodes)[:-1])
        released = Released(plan.axis, np.array([TOTALS - positives, positives]), 1)
        found += not sanity.is_possible(plan, released, stated, levels)
    return found


@every_tree
@every_label
def test_an_answer_is_doubted_no_more_often_than_stated(tree, share):
    """Each of 2,000 with a chance of 0.05: more than this are doubted once in a million."""
    most = binom.isf(FALSE_ALARM, RESULTS, 0.05)
    assert doubted_answers(alone_plan(tree), share, 0.05, RESULTS) <= most


@every_tree
def test_the_stated_rate_of_answers_is_not_far_too_low(tree):
    assert doubted_answers(alone_plan(tree), 0.0, 20.0, 200) > 0


@pytest.mark.parametrize("positives", [0, 1, 300, 1000])
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_pair_is_doubted_no_more_often_than_stated(name, positives):
    """Of the highest ranks, or of all or none: where it is likeliest."""
    ranks, mechanism = 2 * np.arange(1000), MECHANISMS[name]
    known = PartyRanks.of(ranks, np.zeros(1000, dtype=int), 1)
    (terms,) = mechanism.terms(known, label_dp(mechanism.noise))
    labels, source = np.arange(1000) >= 1000 - positives, SimulatedKeystream(4)
    pairs = [noisy_pair(labels, ranks, terms, source) for _ in range(RESULTS)]

    def doubted(chance):
        return sum(not is_pair_possible(pair, ranks, terms, chance) for pair in pairs)

    assert doubted(0.05) <= binom.isf(FALSE_ALARM, RESULTS, 0.05)
    assert doubted(1e-6) == 0  # false alarm 2e-3 at the most
    assert doubted(0.5) > 0
