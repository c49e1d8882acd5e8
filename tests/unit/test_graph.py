"""Graphs of secure summation: the bounds they rest on, and which one is chosen."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from duties import Giving
from graph_samples import FALSE_ALARM, SIGMAS, at_least, log2, random_picks, seed_of, subsets
from refusals import refused
from scene import opening_in
from sites import open_policy

from fedgauge import Axis
from fedgauge.engines.participant import SiteDuties
from fedgauge.errors import PlanError, PlanRefused, ProtocolError
from fedgauge.keys import SigningKey
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy import Cohort
from fedgauge.protocol import Envelope
from fedgauge.secagg import Invitation, SummationClient, SummationServer, masking, messages
from fedgauge.secagg import client as client_machine
from fedgauge.secagg import graph as graphs
from fedgauge.secagg.graph import (
    COMPLETION_BITS,
    MOST_COMPLETE,
    MOST_MEMBERS,
    PRIVACY_BITS,
    Graph,
    check_members,
    choose_graph,
    is_safe,
    picks,
    strength,
    survivors_needed,
)
from fedgauge.secagg.messages import Advertisement
from fedgauge.secagg.server import Input, Reader
from fedgauge.site import Site, create_site
from fedgauge.site.ledger_entries import SumRoster


@pytest.mark.parametrize(
    ("n", "k"),
    [(9, 5), (16, 16), (199, 50), (200, 198), (999, 78), (999, 262), (4999, 94), (99_999, 30)],
)
def test_tails_of_marked_picks(n, k):
    g = np.unique(np.geomspace(1, n, 12).astype(int))
    found = graphs._tail(g, n, k)
    for i, marked in enumerate(g.tolist()):
        for j in sorted({0, 1, 2, k // 3, k // 2, 2 * k // 3, k - 1, k}):
            # So far out that floating point cannot hold the number itself: 2^-2000 and less.
            expected = log2(at_least(j, n, marked, k))
            assert found[i, j] == pytest.approx(expected, rel=1e-8, abs=1e-9), (marked, j)
    # All but two are marked, so of ten picks eight are: rounding must not make it less.
    assert graphs._tail(np.array([998]), 1000, 10)[0, :9].tolist() == [0.0] * 9
    assert graphs._tail(np.array([0]), 1000, 10)[0].tolist() == [0.0] + [-math.inf] * 10


def isolated_sets(picked, n, t, colluding):
    """How many sets there are whose members all have t holders in them or among colluders.

    The last members collude; a set has at most half of the others. `picked` holds graphs.
    """
    found = np.zeros(len(picked), dtype=int)
    honest = n - colluding
    for chosen in subsets(range(honest), range(1, honest // 2 + 1)):
        inside = [*chosen, *range(honest, n)]
        holders = 1 + picked[:, list(chosen)][:, :, inside].sum(axis=2)
        found += (holders >= t).all(axis=1)
    return found


@pytest.mark.parametrize(
    ("n", "k", "t", "colluding"),
    [(4, 2, 2, 0), (5, 2, 2, 0), (5, 2, 3, 1), (5, 3, 3, 2), (5, 4, 2, 0), (6, 5, 3, 1)],
)
def test_the_bound_on_isolation_counts_isolated_sets_exactly(n, k, t, colluding):
    """All graphs: members pick on their own, so the bound is the mean number of such sets."""
    honest = n - colluding
    choices = [
        [set(c) for c in itertools.combinations([j for j in range(n) if j != i], k)]
        for i in range(honest)
    ]
    every = list(itertools.product(*choices))
    picked = np.zeros((len(every), n, n), dtype=bool)
    for row, graph in zip(picked, every, strict=True):
        for member, chosen in enumerate(graph):
            row[member, list(chosen)] = True
    mean = isolated_sets(picked, n, t, colluding).mean()
    assert mean > 0
    assert 2 ** graphs._isolation(n, k, t, colluding) == pytest.approx(mean, rel=1e-12)


def test_the_bound_does_not_depend_on_how_it_is_added_up(monkeypatch):
    whole = graphs._isolation(300, 60, 36, 10)
    assert -300 < whole < 0
    for cells in (1, 61, 1000, 10_000):
        monkeypatch.setattr(graphs, "_CELLS", cells)
        assert graphs._isolation(300, 60, 36, 10) == pytest.approx(whole, rel=1e-12)
    # Sets below the threshold are never isolated.
    assert graphs._isolation(20, 19, 11, 0) == -math.inf
    assert graphs._isolation(20, 19, 10, 0) > 0
    assert graphs._isolation(3, 2, 2, 2) == -math.inf  # one honest member is nobody's rest


@pytest.mark.parametrize(
    ("n", "k", "t", "colluding"),
    [(6, 2, 2, 2), (8, 3, 3, 3), (9, 4, 4, 4), (9, 4, 4, 2), (10, 5, 4, 1), (10, 5, 5, 6)],
)
def test_both_secrets_are_open_to_enough_colluding_holders(n, k, t, colluding):
    """One member's picks in all ways, and all ways to tell its holders different stories."""
    open_to_both = 0
    for chosen in itertools.combinations(range(1, n), k):
        crooks = sum(member > n - 1 - colluding for member in chosen)
        honest = k + 1 - crooks
        # Some of the honest holders open its mask, the others its key; crooks open both.
        open_to_both += any(
            one + crooks >= t and honest - one + crooks >= t for one in range(honest + 1)
        )
    chance = Fraction(open_to_both, math.comb(n - 1, k))
    bound = graphs._both_secrets(n, k, t, colluding)
    assert bound == pytest.approx(log2(n * chance), abs=1e-9)


def test_the_lowest_threshold_is_the_first_that_keeps_one_secret():
    for n, k, colluding in [(300, 40, 0), (300, 40, 15), (1000, 78, 50), (1000, 200, 300)]:
        t = graphs._lowest_threshold(n, k, colluding)
        assert graphs._both_secrets(n, k, t, colluding) <= graphs._EACH
        assert graphs._both_secrets(n, k, t - 1, colluding) > graphs._EACH
    assert graphs._lowest_threshold(300, 8, 250) is None
    # A threshold of half of the holders leaves both secrets open.
    assert graphs._both_secrets(100, 9, 5, 0) == 0.0
    assert graphs._both_secrets(100, 9, 6, 0) == -math.inf
    assert graphs._both_secrets(100, 9, 10, 99) == -math.inf  # the member itself is a holder


@pytest.mark.parametrize("colluding", [0, 1, 30, 31])
def test_a_sparse_graph_proves_that_more_than_half_of_the_honest_are_in_the_sum(colluding):
    n = 300
    most = (n - colluding) // 2 + 1 + colluding
    graph = choose_graph(n, Cohort(most, colluding))
    assert not graph.is_complete
    assert is_safe(graph, Cohort(most, colluding))
    assert not is_safe(graph, Cohort(most + 1, colluding))
    with pytest.raises(PlanError, match=f"Lower min_survivors to {most} or less"):
        choose_graph(n, Cohort(most + 1, colluding))


def test_a_complete_graph_proves_whatever_is_asked_and_opens_from_its_threshold():
    for n, colluding in [(3, 0), (10, 3), (200, 1), (200, 150)]:
        cohort = Cohort(n, colluding)
        assert is_safe(choose_graph(n, cohort), cohort)
    # Also where a sparse graph would do.
    assert is_safe(Graph(300, 299, 151), Cohort(300, 1))
    assert survivors_needed(Graph(10, 9, 6), Cohort(3, 1)) == 6
    assert survivors_needed(Graph(10, 9, 6), Cohort(8, 1)) == 8
    # Ten members of whom two collude: more than six holders.
    for threshold in range(1, 11):
        assert is_safe(Graph(10, 9, threshold), Cohort(3, 2)) == (threshold >= 7)


def test_complete_graphs_leave_nothing_to_chance():
    """All sets of members, for all small numbers of members and colluders."""
    for n in range(1, 41):
        for colluding in range(n):
            cohort = Cohort(min_survivors=1, max_colluding=colluding)
            graph = choose_graph(n, cohort)
            t = graph.threshold
            assert graph.is_complete
            assert graph.degree == n - 1
            assert 1 <= t <= n
            # A set of half of the honest members, or fewer, stays below the threshold.
            assert not any(a + colluding >= t for a in range((n - colluding) // 2 + 1))
            # No two groups that have only colluders in common both reach it: no two sums.
            assert 2 * t > n + colluding
            # And it is no higher than that takes.
            assert 2 * (t - 1) <= n + colluding
            if n > 1:
                assert strength(graph, cohort).privacy == -math.inf
                assert is_safe(graph, cohort)


def test_two_hundred_members_still_pick_everybody():
    for colluding in (0, 1, 50, 150, 199):
        cohort = Cohort(3, colluding)
        graph = choose_graph(MOST_COMPLETE, cohort)
        assert graph == (200, 199, (200 + colluding) // 2 + 1)
        assert is_safe(graph, cohort)
    assert not choose_graph(MOST_COMPLETE + 1, Cohort(3, 1)).is_complete
    cohort = Cohort(100, 5)
    chosen = choose_graph(300, cohort)
    graphs.strength.cache_clear()
    assert choose_graph(300, cohort) == chosen  # the choice does not change


SIZES = [
    (n, round(m * n), round(c * n) if c < 1 else c)
    for n in (201, 300, 700, 1000)
    for m in (0.01, 0.5)
    for c in (0, 1, 0.05, 0.2)
] + [(5000, 2500, 250), (10_000, 5000, 500)]


@pytest.mark.parametrize(("n", "m", "colluding"), SIZES)
def test_chosen_graphs_are_safe_and_within_reach(n, m, colluding):
    cohort = Cohort(m, colluding)
    graph = choose_graph(n, cohort)
    k, t = graph.degree, graph.threshold
    assert graph.members == n
    assert 2 <= t <= k + 1 <= n
    assert 2 * t > k + 1
    assert is_safe(graph, cohort)
    promised = strength(graph, cohort)
    assert promised.privacy <= -PRIVACY_BITS
    parts = [graphs._isolation(n, k, t, colluding), graphs._both_secrets(n, k, t, colluding)]
    assert promised.privacy >= max(parts)
    needed = survivors_needed(graph, cohort)
    assert max(m, t) <= needed <= n
    assert promised.dropouts <= n - needed
    assert promised.dropouts >= n // 10  # what it was made for
    # The typical share of colluders among holders.
    assert 2 * t > (k + 1) + k * colluding / n


def test_the_degree_grows_like_the_logarithm():
    few, many = (choose_graph(n, Cohort(n // 2, n // 20)) for n in (1000, 10_000))
    assert few.degree < many.degree <= 1.5 * few.degree
    assert many.degree < 150


@pytest.mark.parametrize(("n", "m", "colluding"), [(201, 90, 1), (300, 150, 15), (1000, 500, 50)])
def test_a_weaker_graph_than_the_chosen_one_protects_less(n, m, colluding):
    cohort = Cohort(m, colluding)
    _, k, t = choose_graph(n, cohort)
    privacy = [strength(Graph(n, k, s), cohort).privacy for s in range(1, t + 1)]
    assert all(lower >= higher for lower, higher in itertools.pairwise(privacy))
    assert privacy[-2] > privacy[-1]
    # The first and all below are beyond what is promised, and so is half of everything.
    assert not is_safe(Graph(n, k, t - 3), cohort)
    for weak in (Graph(n, k, (k + 1) // 2), Graph(n, k // 2, t // 2), Graph(n, k // 2, 2 + k // 4)):
        assert not is_safe(weak, cohort)
    # And with more colluders than it was made for.
    assert not is_safe(Graph(n, k, t), Cohort(m, 2 * colluding + n // 10))


def test_what_is_no_graph_or_picks_too_few_neighbours_is_not_safe():
    cohort, most = Cohort(3, 1), 2**63
    of_300 = [(0, 1), (-1, 1), (40, 0), (40, -5), (40, 42), (300, 200), (most, 200), (40, most)]
    for graph in (*(Graph(300, *each) for each in (*of_300, (-most, -most))), Graph(1, 0, 1)):
        assert not is_safe(graph, cohort)
        assert strength(graph, cohort).privacy == 0.0
    cohort = Cohort(3, 1)
    assert is_safe(Graph(200, 199, 101), cohort)
    assert not is_safe(Graph(200, 198, 150), cohort)
    assert is_safe(Graph(201, 198, 150), cohort)
    assert is_safe(Graph(201, 200, 102), cohort)


def test_members_that_are_too_many_or_too_few_or_all_collude_are_refused():
    check_members(MOST_MEMBERS, Cohort(3, 1))
    check_members(5, Cohort(5, 1))
    check_members(5, Cohort(3, 4))
    for members, cohort, told in (
        (MOST_MEMBERS + 1, Cohort(3, 1), "at most 20,000"),
        (4, Cohort(5, 1), "needs 5 survivors and there are 4 members"),
        *((5, Cohort(3, colluding), "all members may collude") for colluding in (5, 6, 2**24)),
    ):
        refused(PlanError, told, check_members, members, cohort)
    refused(PlanError, "needs 5 survivors", choose_graph, 4, Cohort(5, 1))


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
    for n, m, colluding in ((3, 3, 1), (10, 3, 1), (10, 10, 4), (40, 25, 3)):  # complete graphs
        cohort = Cohort(m, colluding)
        graph = choose_graph(n, cohort)
        assert survivors_needed(graph, cohort) == max(m, graph.threshold)
        assert strength(graph, cohort).dropouts == n - max(m, graph.threshold)


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


def test_picks_depend_on_every_bit_of_the_seed_and_are_all_others_where_all_are_picked():
    graph, seed = Graph(1000, 78, 52), bytes(16)
    others = [bytes(i) + bytes([1 << b]) + bytes(15 - i) for i in range(16) for b in range(8)]
    assert len({tuple(picks(s, 7, graph).tolist()) for s in (seed, *others)}) == 129
    for n in (2, 3, 10, 200):
        for me in range(n):
            chosen = picks(seed_of(me), me, Graph(n, n - 1, 1))
            assert chosen.tolist() == [other for other in range(n) if other != me]


@pytest.mark.parametrize(("n", "k", "me"), [(6, 2, 0), (6, 2, 3), (6, 3, 5)])
def test_every_set_is_picked_as_often_as_any_other(n, k, me):
    trials = 3000
    counts = dict.fromkeys(itertools.combinations([m for m in range(n) if m != me], k), 0)
    for number in range(trials):
        counts[tuple(picks(seed_of(me, number), me, Graph(n, k, k)).tolist())] += 1
    expected = trials / len(counts)
    statistic = sum((count - expected) ** 2 / expected for count in counts.values())
    assert statistic < scipy.stats.chi2(len(counts) - 1).isf(FALSE_ALARM)


class TwoStories:
    """A crooked coordinator: two machines on one invitation, and each member is sent to one.

    Forty members pick eight, and six holders open a secret. Such a graph is too small to be
    safe, so that check is off; what is asked here is what members can be made to do.
    """

    GRAPH = Graph(40, 8, 6)

    def __init__(self, monkeypatch, seed):
        monkeypatch.setattr(messages, "is_safe", lambda *_: True)
        # An honest coordinator sets aside what its own machine did not ask for.
        monkeypatch.setattr(SummationServer, "_require_openable", lambda _: None)
        monkeypatch.setattr(Reader, "_checked_input", unchecked_input)
        monkeypatch.setattr(client_machine.os, "urandom", np.random.default_rng(seed).bytes)
        boss, *keys = (SigningKey.from_bytes(bytes([i] * 32)) for i in range(41))
        self.keys = sorted(keys, key=lambda key: key.public)
        plan = EvaluationPlan.for_histogram(Axis.uniform(2), Cohort(6, 2), largest=1000)
        publics = [key.public for key in self.keys]
        invitation = Invitation.made(plan, publics, boss, b"r" * 32, self.GRAPH)
        self.machines = [SummationServer(invitation, boss) for _ in range(2)]
        self.duties = [Giving(np.arange(4) + 10 * member) for member in range(40)]
        self.clients = [
            SummationClient.join(invitation, key, duty)
            for key, duty in zip(self.keys, self.duties, strict=True)
        ]
        self.twins = {}
        self.refused = {}
        replies = [client.receive(invitation.data) for client in self.clients]
        self.replies = [dict(enumerate(replies))] * 2
        said = [Advertisement.from_bytes(Envelope.from_bytes(r).body) for r in replies]
        seeds = [advertised.seed for advertised in said]
        self.opening = lambda reply, member: opening_in(
            reply, invitation, said[member].box_key, boss
        )
        self.picked = [
            set(picks(seed, member, self.GRAPH).tolist()) for member, seed in enumerate(seeds)
        ]

    def pickers(self, member):
        return {other for other in range(40) if member in self.picked[other]}

    def step(self, *told):
        """Each machine takes the replies of the members it is to know of."""
        for machine, replies, members in zip(self.machines, self.replies, told, strict=True):
            if members is not None:
                machine.step({m: replies[m] for m in members if m in replies})

    def ask(self, first, second, both=()):
        """Members answer the machine they are sent to; those who collude answer both."""
        one, two = (machine.requests for machine in self.machines)
        self.twins = self.twins or {member: self.copy(member) for member in both}
        answers = {m: self.receive(self.clients[m], m, one) for m in first}
        answers |= {m: self.receive(self.clients[m], m, two) for m in second}
        # A reply can be handed to either machine.
        self.replies = [
            answers | {m: self.receive(self.twins[m], m, one) for m in both},
            answers | {m: self.receive(self.clients[m], m, two) for m in both},
        ]

    def receive(self, client, member, requests):
        try:
            return client.receive(requests[member])
        except ProtocolError as error:
            self.refused[member] = str(error)
            return b""

    def copy(self, member):
        saved = self.clients[member].to_bytes()
        return SummationClient.from_bytes(saved, self.keys[member], self.duties[member])

    def opened(self):
        """By member, the holders who opened its own mask, and those who opened its key."""
        masks, keys = {}, {}
        for holder, reply in filter(all, self.replies[0].items() | self.replies[1].items()):
            opening = self.opening(reply, holder)
            for part in opening.masks:
                masks.setdefault(part.member, set()).add(holder)
            for part in opening.keys:
                keys.setdefault(part.member, set()).add(holder)
        return masks, keys


def unchecked_input(reader, _, masked):
    invitation = reader._invitation
    values = masking.from_bytes(masked.words, invitation.plan.numbers, invitation.bits)
    return values, Input(masked.sharing, masked.receipt, {})


@pytest.mark.parametrize("victim", [9, 15, 22])
def test_nobody_is_laid_bare_by_holders_who_are_called_dropped(monkeypatch, victim):
    """A member masks with holders who later lose their keys, and others open its own mask.

    Of nine holders two collude: one too few to open both of its secrets. The victim is told of
    three more, `called_dropped`, and vouches for the sum with them; everybody else is told that
    these three dropped out and opens their keys, and the three holders that the victim was not
    told of open its own mask. Two, three and itself are enough to vouch and to open, so no mask
    would be left.
    """
    scene = TwoStories(monkeypatch, seed=3)
    everybody = set(range(40))
    holders = sorted(scene.picked[victim])
    colluding, called_dropped, hidden = set(holders[:2]), set(holders[2:5]), set(holders[5:])
    first = {victim} | called_dropped
    second = everybody - first - colluding
    # Those who picked the victim would mask with it: it is not told of them.
    known = everybody - hidden - (scene.pickers(victim) - first - colluding)
    scene.step(everybody, everybody)
    scene.ask((), everybody)
    scene.step(known, everybody)
    scene.ask(first, second, both=colluding)
    scene.step(known, everybody - called_dropped)
    scene.ask(first, second, both=colluding)
    scene.step(first | colluding, second | colluding)
    assert not scene.refused  # all goes well for the coordinator up to here
    scene.ask({victim}, second)
    masks, keys = scene.opened()
    # The two who collude hold shares of the victim's mask, and tell them without being asked.
    assert len(masks[victim] | colluding) < scene.GRAPH.threshold
    assert {scene.refused[holder] for holder in hidden} == {OTHER_STORY}
    # Whoever does not hold a share of the victim's goes on.
    assert called_dropped <= keys.keys()


def test_a_survivor_who_masked_with_others_is_not_opened(monkeypatch):
    """Those who would notice that a member is made up are not summed by those who do not.

    Whoever picked a member asks for its keys. If these could be told that it is not there,
    and their masks be opened by others who are told that it is, anybody could be made up.
    """
    scene, invented = TwoStories(monkeypatch, seed=5), 20
    everybody = set(range(40))
    noticing = scene.pickers(invented)
    others = everybody - noticing
    scene.step(everybody, everybody)
    scene.ask((), everybody)
    scene.step(everybody - {invented}, everybody)
    scene.ask(noticing, others)
    scene.step(None, everybody)
    scene.ask((), others)
    scene.step(None, others)
    assert not scene.refused
    scene.ask((), others)
    masks, _ = scene.opened()
    assert noticing
    assert masks
    assert not noticing & masks.keys()
    assert scene.refused.keys() == others & set().union(*(scene.picked[m] for m in noticing))
    assert set(scene.refused.values()) == {OTHER_STORY}


@pytest.mark.parametrize("lists", ["three apart", "the same"])
@pytest.mark.parametrize("n", [200, 201])
def test_named_survivors_are_proof_only_where_everybody_is_checked(tmp_path, monkeypatch, n, lists):
    """Exact sums over sets that nobody can be certain of may differ by one member.

    In a sparse graph a coordinator calls all who picked two members dropped, and names the two
    among the survivors though they never came: the sum is over the others, V. Later it asks for
    the sum over V and a victim. The lists differ by three members, the sums by the victim. With
    the same list twice, a member who came only once is the difference.
    """
    monkeypatch.setattr(Site, "judge", lambda *_, **__: None)  # of strangers, as here
    boss = SigningKey.from_bytes(b"c" * 32)
    site = create_site(tmp_path, name="a", dataset="stroke", policy=open_policy())
    numbers = (i.to_bytes(32, "big") for i in range(n - 1))
    members = [site.key.public, *(SigningKey.from_bytes(number).public for number in numbers)]
    plan = EvaluationPlan.for_histogram(Axis.uniform(2), Cohort(20, 1))
    graph = choose_graph(n, plan.cohort)
    assert graph.is_complete == (n == 200)

    def confirm(run, survivors):
        invitation = Invitation.made(plan, members, boss, run, graph)
        duties = SiteDuties(site, None, None, print)
        duties.invitation = invitation
        site.reserve(
            invitation.session,
            plan,
            roster=SumRoster(frozenset(members), invitation.needed),
            certain=graph.is_complete,
        )
        site.ledger.commit(invitation.session)
        duties.agree(survivors)

    confirm(b"1" * 32, members[:150])
    second = members[:150] if lists == "the same" else [*members[:148], members[150]]
    if graph.is_complete:
        confirm(b"2" * 32, second)
    else:
        refused(PlanRefused, "cannot be certain who is in the sum", confirm, b"2" * 32, second)


OTHER_STORY = "a survivor was told another story about who shared."
