"""Who picks whom in a secure sum, and how many may drop out."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from graph_samples import FALSE_ALARM, SIGMAS, at_least, random_picks, seed_of

from fedgauge.privacy import Cohort
from fedgauge.secagg import graph as graphs
from fedgauge.secagg.graph import (
    COMPLETION_BITS,
    Graph,
    choose_graph,
    picks,
    strength,
    survivors_needed,
)

# Dropouts


def keeps_holders(picked, lost, t):
    """Whether survivors keep t holders, themselves included, and the lost ones t others."""
    here = ~lost
    return (picked[:, here].sum(axis=1) + here >= t).all()


@pytest.mark.parametrize(("n", "m", "colluding"), [(201, 100, 5), (300, 150, 15)])
def test_as_many_dropouts_as_promised_do_no_harm(n, m, colluding):
    cohort = Cohort(m, colluding)
    graph = choose_graph(n, cohort)
    promised = strength(graph, cohort).dropouts
    assert promised >= n // 10
    rng = np.random.default_rng(n)
    failures, beyond = 0, 0
    for made in range(10):
        picked = np.zeros((n, n), dtype=bool)
        for member in range(n):
            picked[member, picks(seed_of(made, member), member, graph)] = True
        for _ in range(30):
            order = rng.permutation(n)
            failures += not keeps_holders(picked, order < promised, graph.threshold)
            many = n - graph.threshold * n // graph.degree
            beyond += not keeps_holders(picked, order < many, graph.threshold)
    # 300 trials with a chance of 2^-20 each: a false alarm in 3,500 runs, were seeds not fixed.
    assert failures == 0
    assert beyond == 300  # the trial can fail


@pytest.mark.parametrize(
    ("n", "k", "t", "dropped"),
    [(12, 5, 3, 4), (12, 5, 4, 2), (20, 8, 5, 6), (20, 6, 7, 0), (9, 8, 5, 4)],
)
def test_the_chance_that_a_sum_fails_is_bounded(n, k, t, dropped):
    trials = 20_000
    rng = np.random.default_rng((n, k, t))
    picked = random_picks(rng, n, k, trials)
    lost = rng.permuted(np.tile(np.arange(n) < dropped, (trials, 1)), axis=1)
    holders = (picked & ~lost[:, None, :]).sum(axis=2) + ~lost
    failed = (holders < t).any(axis=1).mean()
    bound = 2 ** graphs._completion(n, k, t, dropped)
    assert failed <= bound + SIGMAS / (2 * math.sqrt(trials))
    # Exactly: a survivor needs t - 1 of its picks, a lost member t; the bound takes n of both.
    short = [1 - at_least(t - 1, n - 1, n - 1 - dropped, k), 0]
    if dropped:
        short[1] = 1 - at_least(t, n - 1, n - dropped, k)
    assert bound == pytest.approx(float(n * sum(short)), rel=1e-9)


def test_promised_dropouts_are_the_most_that_do_no_harm():
    cohort = Cohort(100, 15)
    graph = choose_graph(300, cohort)
    promised = strength(graph, cohort).dropouts
    assert promised < 300 - survivors_needed(graph, cohort)
    assert graphs._completion(*graph, promised) <= -COMPLETION_BITS
    assert graphs._completion(*graph, promised + 1) > -COMPLETION_BITS


@pytest.mark.parametrize(("n", "m", "colluding"), [(3, 3, 1), (10, 3, 1), (10, 10, 4), (40, 25, 3)])
def test_complete_graphs_lose_members_down_to_what_is_needed(n, m, colluding):
    cohort = Cohort(m, colluding)
    graph = choose_graph(n, cohort)
    needed = survivors_needed(graph, cohort)
    assert needed == max(m, graph.threshold)
    assert strength(graph, cohort).dropouts == n - needed


# Picks


@pytest.mark.parametrize(("n", "k"), [(10, 3), (10, 8), (300, 40), (1000, 78)])
def test_picks_are_distinct_others_and_repeat(n, k):
    graph = Graph(n, k, k)
    for me in sorted({0, 1, n // 2, n - 1}):
        for number in range(20):
            seed = seed_of(n, number)
            chosen = picks(seed, me, graph)
            assert len(chosen) == k
            assert (np.diff(chosen) > 0).all()
            assert chosen.min() >= 0
            assert chosen.max() < n
            assert me not in chosen
            assert chosen.tolist() == picks(seed, me, graph).tolist()


def test_picks_depend_on_every_bit_of_the_seed():
    graph, seed = Graph(1000, 78, 52), bytes(16)
    others = [bytes(i) + bytes([1 << b]) + bytes(15 - i) for i in range(16) for b in range(8)]
    assert len({tuple(picks(s, 7, graph).tolist()) for s in (seed, *others)}) == 129


@pytest.mark.parametrize("n", [2, 3, 10, 200])
def test_in_a_complete_graph_everybody_picks_all_others(n):
    for me in range(n):
        chosen = picks(seed_of(me), me, Graph(n, n - 1, 1))
        assert chosen.tolist() == [other for other in range(n) if other != me]


def test_every_member_is_picked_as_often_as_any_other():
    n, k, me, trials = 60, 12, 17, 3000
    graph, others, share = Graph(60, 12, 9), n - 1, k / (n - 1)
    counts = np.zeros(n)
    for number in range(trials):
        counts[picks(seed_of(number), me, graph)] += 1
    counts = np.delete(counts, me)
    # Picks without replacement: counts are negatively correlated, which takes one degree.
    spread = trials * share * (1 - share) * others / (others - 1)
    statistic = ((counts - trials * share) ** 2).sum() / spread
    law = scipy.stats.chi2(others - 1)
    assert law.ppf(FALSE_ALARM / 2) < statistic < law.isf(FALSE_ALARM / 2)


@pytest.mark.parametrize(("n", "k", "me"), [(6, 2, 0), (6, 2, 3), (6, 3, 5)])
def test_every_set_is_picked_as_often_as_any_other(n, k, me):
    trials = 3000
    counts = dict.fromkeys(itertools.combinations([m for m in range(n) if m != me], k), 0)
    for number in range(trials):
        counts[tuple(picks(seed_of(me, number), me, Graph(n, k, k)).tolist())] += 1
    expected = trials / len(counts)
    statistic = sum((count - expected) ** 2 / expected for count in counts.values())
    assert statistic < scipy.stats.chi2(len(counts) - 1).isf(FALSE_ALARM)
