"""A server that tells every member of a noisy sum its own story: who is there, shared and survived.
Four members, of whom one colludes: each of the others is told one of ten stories. What the server
then knows is worked out from the shares that were really opened."""

import itertools
from collections import Counter

import numpy as np
import pytest
from duties import Giving
from envelopes import sealed
from plans import small_noisy_plan
from scene import BOSS, KEYS, opening_in

import fedgauge as fg
from fedgauge.errors import FedgaugeError
from fedgauge.protocol import COORDINATOR, EVERYONE, Envelope
from fedgauge.secagg import Invitation, Stage, SummationClient, messages
from fedgauge.secagg.graph import choose_graph
from fedgauge.secagg.masking import AgreementKey
from fedgauge.secagg.secret_sharing import Box, SharePair

COUNT, COLLUDER = 4, 0
HONEST = range(1, COUNT)


def stories(member):
    """All triples of who is there, shares and survives in which a member and two others survive."""
    others = [other for other in range(COUNT) if other != member]
    for reach in itertools.product(range(4), repeat=len(others)):
        sets = [
            frozenset({member, *(o for o, r in zip(others, reach, strict=True) if r >= least)})
            for least in (1, 2, 3)
        ]
        if len(sets[2]) >= COUNT - 1:
            yield tuple(sets)


class Told:
    """One evaluation in which each honest member hears its own story, and what comes of it."""

    def __init__(self, plan, story):
        graph = choose_graph(COUNT, plan.cohort)
        keys = KEYS[:COUNT]
        self.invitation = Invitation.made(plan, [k.public for k in keys], BOSS, b"r" * 32, graph)
        self.session, self.story = self.invitation.session, story
        self.clients = {
            m: SummationClient.join(self.invitation, keys[m], Giving(np.full(plan.numbers, m)))
            for m in HONEST
        }
        mine = AgreementKey(b"m" * 32).public
        body = messages.Advertisement(
            mask_key=mine, box_key=mine, seed=bytes(16), setting=b""
        ).to_bytes()
        self.peers = {COLLUDER: messages.Peer(COLLUDER, body, self.lie(Stage.ADVERTISE, body))}
        for m, client in self.clients.items():
            said = Envelope.from_bytes(client.receive(self.invitation.data))
            self.peers[m] = messages.Peer(m, said.body, said.signature)
        self.shares = self.ask(Stage.SHARE, HONEST, self.roster, messages.Shares)
        self.masked = self.ask(Stage.MASK, self.shares, self.inbox, messages.Masked)
        self.votes = self.ask(Stage.AGREE, self.masked, self.survivors, messages.Ballot)
        self.opened = self.ask(Stage.OPEN, self.votes, self.quorum, None)

    def ask(self, stage, members, make, kind):
        """What members reply; those who refuse are left out."""
        replies = {}
        for member in members:
            request = sealed(
                BOSS, self.session, stage, COORDINATOR, member, make(member).to_bytes()
            )
            try:
                reply = self.clients[member].receive(request.to_bytes())
            except FedgaugeError:
                continue
            replies[member] = (
                reply if kind is None else kind.from_bytes(Envelope.from_bytes(reply).body)
            )
        return replies

    def lie(self, stage, body):
        return sealed(KEYS[COLLUDER], self.session, stage, COLLUDER, EVERYONE, body).signature

    def bits(self, member):
        return [messages.to_bitmap(sorted(told), COUNT) for told in self.story[member]]

    def box_key(self, member):
        return messages.Advertisement.from_bytes(self.peers[member].body).box_key

    def roster(self, member):
        there = sorted(self.story[member][0] - {member})
        return messages.Advertisements(
            present=self.bits(member)[0], peers=[self.peers[each] for each in there]
        )

    def box(self, dealer, holder):
        """As it was dealt; the coordinator makes one where none was, in whoever's name."""
        if dealer in self.shares:
            for box in self.shares[dealer].boxes:
                if box.member == holder:
                    return Box(dealer, box.key, box.sealed, box.checks)
        junk, key = SharePair(bytes(33), bytes(33)), AgreementKey(b"k" * 32)
        made = Box.made(junk, key, self.box_key(holder), self.session, dealer, holder)
        return Box(dealer, made.key, made.sealed, made.checks)

    def inbox(self, member):
        boxes = [self.box(dealer, member) for dealer in sorted(self.story[member][1] - {member})]
        return messages.Inbox(sharers=self.bits(member)[1], peers=[], boxes=boxes)

    def survivors(self, member):
        return messages.Survivors(survivors=self.bits(member)[2], complaints=[])

    def quorum(self, member):
        """The votes of those who heard the same, and the colluder's for whatever is asked."""
        present, sharers, survivors = self.bits(member)
        all_told = messages.agreement(self.session, present, sharers, survivors, b"").to_bytes()
        masks_told = messages.sharing(self.session, present, sharers).to_bytes()
        alike = [m for m in self.votes if self.story[m] == self.story[member] and m != member]
        others = sorted(self.story[member][2] - {member})
        votes = {COLLUDER: self.lie(Stage.AGREE, all_told)}
        votes |= {m: self.votes[m].vote for m in alike}
        masks = {COLLUDER: self.lie(Stage.MASK, masks_told)}
        masks |= {m: told.sharing for m, told in self.masked.items()}
        return messages.Quorum(
            votes=[messages.Vote(m, votes[m]) for m in others if m in votes],
            sharing=[messages.Vote(m, masks.get(m, b"")) for m in others],
        )

    def known(self):
        """Members whose own mask, and whose key, enough holders opened or are in league."""
        openings = [
            opening_in(reply, self.invitation, self.box_key(member), BOSS)
            for member, reply in self.opened.items()
        ]
        needed = self.invitation.graph.threshold - 1  # the colluder has a share of its own
        told = [Counter(p.member for o in openings for p in o.masks)]
        told.append(Counter(p.member for o in openings for p in o.keys))
        return [{m for m in HONEST if shares[m] >= needed} for shares in told]

    def sums(self):
        """Sets of honest members whose sum is bare: no mask with others is left in it."""
        masks, keys = self.known()
        left = {m: self.story[m][1] - {m, COLLUDER} - keys for m in masks - keys}
        for m in masks & keys:
            left[m] = frozenset()
        found = set()
        for member in left:
            together, new = set(), {member}
            while new:
                together |= new
                new = {o for m in new for o in left.get(m, ())} - together
            if all(o in left and m in left[o] for m in together for o in left.get(m, {m})):
                found.add(frozenset(together))
        return found


@pytest.mark.parametrize("needed", [3, 4])
def test_one_sum_of_enough_members_is_all_that_stories_open(needed):
    plan = small_noisy_plan(fg.Cohort(needed, 1))
    mixed = list(itertools.product(*map(stories, HONEST)))
    alike = [told for told in mixed if told[0] == told[1]]  # a quorum is near
    opened = 0
    for told in alike[::3] + mixed[::31]:
        world = Told(plan, dict(zip(HONEST, told, strict=True)))
        masks, keys = world.known()
        assert not masks & keys
        found = world.sums()
        assert len(found) <= 1
        assert all(len(each) >= needed - 1 for each in found)  # the colluder takes itself off
        opened += len(found)
    assert opened
