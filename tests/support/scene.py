"""An attempt at a secure sum whose coordinator is in the test's hands. Its signing key included, so
what it says is signed rightly. A network attacker has no key at all."""

import os

import msgspec
import numpy as np
import pytest
from duties import Giving
from plans import small_plan

from fedgauge.errors import CohortTooSmall, ProtocolError
from fedgauge.keys import SigningKey
from fedgauge.protocol import COORDINATOR, EVERYONE, Envelope
from fedgauge.secagg import Invitation, Stage, Sum, SummationClient, SummationServer
from fedgauge.secagg import messages as messages_module
from fedgauge.secagg.graph import Graph, choose_graph, picks
from fedgauge.secagg.masking import AgreementKey
from fedgauge.secagg.messages import (
    Advertisement,
    Advertisements,
    Ballot,
    Inbox,
    Masked,
    Opening,
    Quorum,
    SealedOpening,
    Shares,
    Survivors,
    Vote,
    agreement,
    opening,
    to_bitmap,
)

KEYS = sorted((SigningKey.from_bytes(bytes([i] * 32)) for i in range(12)), key=lambda k: k.public)
BOSS = SigningKey.from_bytes(b"c" * 32)
STRANGER = SigningKey.from_bytes(b"s" * 32)
REQUESTS = {2: Advertisements, 3: Inbox, 4: Survivors, 5: Quorum}
REPLIES = {1: Advertisement, 2: Shares, 3: Masked, 4: Ballot}
VICTIM = 2
# Public keys with which everybody agrees on the same secret: 0, 1, a point of order 8, p - 1.
LOW_ORDER = [
    bytes(32),
    b"\1" + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    b"\xec" + b"\xff" * 30 + b"\x7f",
]


class Scene:
    """Six members, of whom one may collude; the threshold is four."""

    def __init__(self, plan=None, *, members=6, run=b"r" * 32, graph=None, silent=(), settings=()):
        self.plan = plan or small_plan()
        graph = graph or choose_graph(members, self.plan.cohort)
        publics = [key.public for key in KEYS[:members]]
        self.invitation = Invitation.made(self.plan, publics, BOSS, run, graph)
        self.session = self.invitation.session
        self.server = SummationServer(self.invitation, BOSS)
        values = np.random.default_rng(0).integers(-900, 900, (members, self.plan.numbers))
        self.duties = [Giving(row) for row in values]
        self.clients = [
            SummationClient.join(
                self.invitation, key, duty, setting=dict(settings).get(member, b"s" * 32)
            )
            for member, (key, duty) in enumerate(zip(KEYS[:members], self.duties, strict=True))
        ]
        self.box_keys = [AgreementKey(self.secrets(m)["box_key"]) for m in range(members)]
        self.replied = {}  # by stage
        self.silent = dict(silent)  # member: the stage from which on it says nothing

    def until(self, stage, *, refused=()):
        """All goes well up to where the requests of `stage` are made; none of them is sent."""
        while self.server.stage < stage:
            self.step(refused=refused)
        return self

    def step(self, *, refused=()):
        """The members answer, and the server takes a step."""
        stage = self.server.stage
        self.replied[stage] = self.answers()
        outcome = self.server.step(self.replied[stage])
        assert self.server.refused.keys() == {*refused}
        return outcome

    def answers(self):
        stage = self.server.stage
        here = [m for m in self.server.requests if self.silent.get(m, 9) > stage]
        return {m: self.clients[m].receive(self.server.requests[m]) for m in here}

    def answer_with(self, client, roster):
        """The victim's answers to this roster and to the honest boxes after it."""
        replies = self.answers_of_others() | {VICTIM: client.receive(roster)}
        boxes = self.server.step(replies)
        client.receive(boxes[VICTIM])

    def answers_of_others(self):
        requests = self.server.requests
        return {m: self.clients[m].receive(requests[m]) for m in requests if m != VICTIM}

    def finish(self, *, refused=()):
        """The rest goes well, with the right sum."""
        outcome = None
        while not isinstance(outcome, Sum):
            outcome = self.step(refused=refused)
        assert list(outcome.survivors) == sorted(set(outcome.survivors))
        rows = [self.duties[m].values for m in outcome.survivors]
        np.testing.assert_array_equal(outcome.total, np.sum(rows, axis=0))
        return outcome

    def asked(self, member):
        """The body of the request that is due."""
        envelope = Envelope.from_bytes(self.server.requests[member])
        return REQUESTS[envelope.stage].from_bytes(envelope.body)

    def request(self, member, body, **place):
        """What the coordinator says to a member, rightly signed."""
        place = {"stage": self.server.stage, "session": self.session, "recipient": member} | place
        return sealed(BOSS, COORDINATOR, body, **place)

    def reply(self, member, body, **place):
        """What a dishonest member says to the coordinator, rightly signed."""
        stage = self.server.stage
        to = EVERYONE if stage == Stage.ADVERTISE else COORDINATOR
        place = {"stage": stage, "session": self.session, "recipient": to} | place
        if isinstance(body, Opening):
            told = opening(self.session, Opening.digests(body.masks, body.keys)).to_bytes()
            where = place | {"stage": Stage.OPEN, "recipient": EVERYONE}
            signature = Envelope.from_bytes(sealed(KEYS[member], member, told, **where)).signature
            body = changed(body, signature=signature)
            body = SealedOpening.of(body, self.invitation, member, self.box_keys[member])
        return sealed(KEYS[member], member, body, **place)

    def opening(self, reply):
        """What a member opens, as the coordinator reads it."""
        sender = Envelope.from_bytes(reply).sender
        return opening_in(reply, self.invitation, self.box_keys[sender].public)

    def said(self, member):
        reply = self.answers()[member]
        envelope = Envelope.from_bytes(reply)
        if envelope.stage == Stage.OPEN:
            return self.opening(reply)
        return REPLIES[envelope.stage].from_bytes(envelope.body)

    def vote(self, member):
        """A member's signature under the survivors."""
        reply = self.replied[Stage.AGREE][member]
        return Ballot.from_bytes(Envelope.from_bytes(reply).body).vote

    def agreed(self, member):
        """What a member's vote is a signature under."""
        state = self.secrets(member)
        parts = [state[name] for name in ("present", "sharers", "survivors", "setting")]
        return agreement(self.session, *parts).to_bytes()

    def sharing(self, member, survivors):
        """What other survivors signed about who shared, where everybody picks everybody."""
        replies = {m: self.replied[Stage.MASK][m] for m in survivors if m != member}
        masked = {m: Masked.from_bytes(Envelope.from_bytes(r).body) for m, r in replies.items()}
        return [Vote(m, masked[m].sharing) for m in sorted(masked)]

    def bitmap(self, *members):
        return to_bitmap(members, len(self.invitation.members))

    def restored(self, member):
        saved = self.clients[member].to_bytes()
        return SummationClient.from_bytes(saved, KEYS[member], self.duties[member])

    def secrets(self, member):
        return msgspec.msgpack.decode(self.clients[member].to_bytes(), strict=False)

    def picked(self, member):
        return set(picks(self.secrets(member)["seed"], member, self.invitation.graph).tolist())


def opening_in(reply, invitation, box, key=BOSS):
    """What a reply opens; `box` is the public box key of its sender."""
    envelope = Envelope.from_bytes(reply)
    body = SealedOpening.from_bytes(envelope.body)
    return body.opened(invitation, envelope.sender, box, key)


def sealed(key, sender, body, *, stage, session, recipient):
    body = body if isinstance(body, bytes) else body.to_bytes()
    return Envelope.sealed(
        key, session=session, stage=stage, sender=sender, recipient=recipient, body=body
    ).to_bytes()


def changed(body, /, **fields):
    return msgspec.structs.replace(body, **fields)


def refuses(client, request, match, error=ProtocolError):
    """The client refuses, and remembers nothing of it."""
    before = client.to_bytes()
    with pytest.raises(error, match=match):
        client.receive(request)
    assert client.to_bytes() == before


def sets_aside(scene, member, reply, match):
    """The server refuses one member's reply, and goes on without that member. Not without its vote
    on an exact sum: that one is waited for."""
    with pytest.raises(ProtocolError, match=match):
        scene.server.check(member, reply)
    before = scene.server.to_bytes()
    replies = scene.answers() | {member: reply}
    if scene.server.stage == Stage.AGREE and not scene.plan.is_noisy:
        with pytest.raises(CohortTooSmall):
            scene.server.step(replies)
        assert scene.server.to_bytes() == before
        return
    outcome = scene.server.step(replies)
    assert match in scene.server.refused[member]
    assert member not in outcome
    scene.server = SummationServer.from_bytes(before, BOSS)


def sparse_scenes(monkeypatch):
    """Scenes of ten members who pick four each, the same ones in every run. That is too few to be
    safe, so that check is off."""
    monkeypatch.setattr(os, "urandom", np.random.default_rng(1).bytes)
    monkeypatch.setattr(messages_module, "is_safe", lambda *_: True)
    monkeypatch.setattr(messages_module, "survivors_needed", lambda *_: 4)
    return lambda **options: Scene(members=10, graph=Graph(10, 4, 3), **options)
