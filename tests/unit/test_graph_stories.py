"""What the argument for sparse graphs rests on: two stories are worth no more than one."""

import numpy as np
import pytest
from duties import Giving
from scene import opening_in
from sites import open_policy

from fedgauge import Axis
from fedgauge.engines.duties import SiteDuties
from fedgauge.errors import PlanRefused, ProtocolError
from fedgauge.keys import SigningKey
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy import Cohort
from fedgauge.protocol import Envelope
from fedgauge.secagg import Invitation, SummationClient, SummationServer, messages, words
from fedgauge.secagg import client as client_machine
from fedgauge.secagg.graph import (
    Graph,
    choose_graph,
    picks,
)
from fedgauge.secagg.kept import Input
from fedgauge.secagg.messages import Advertisement
from fedgauge.secagg.replies import Reader
from fedgauge.site import Site, create_site
from fedgauge.site.entries import Roster

# What the argument rests on: two stories are worth no more than one


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
    values = words.from_bytes(masked.words, invitation.plan.numbers, invitation.bits)
    return values, Input(masked.sharing, masked.receipt, {})


@pytest.mark.parametrize("victim", [9, 14, 21])
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
    scene, invented = TwoStories(monkeypatch, seed=3), 20
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
            roster=Roster(frozenset(members), invitation.needed),
            certain=graph.is_complete,
        )
        site.ledger.commit(invitation.session)
        duties.agree(survivors)

    confirm(b"1" * 32, members[:150])
    second = members[:150] if lists == "the same" else [*members[:148], members[150]]
    if graph.is_complete:
        confirm(b"2" * 32, second)
    else:
        with pytest.raises(PlanRefused, match="cannot be certain who is in the sum"):
            confirm(b"2" * 32, second)


OTHER_STORY = "a survivor was told another story about who shared."
