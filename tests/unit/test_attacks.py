"""Known attacks on secure summation, each of which must fail.

The coordinator of a :class:`Scene` is in the test's hands, its signing key included, so what
it says is signed rightly. A network attacker has no key at all.
"""

import hmac
import itertools
import os
from contextlib import suppress

import msgspec
import numpy as np
import pytest
import scipy.stats
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedgauge import Axis, Cohort, EvaluationPlan
from fedgauge.errors import CohortTooSmall, PlanError, ProtocolError
from fedgauge.keys import SigningKey
from fedgauge.protocol import COORDINATOR, EVERYONE, Envelope, session_id
from fedgauge.secagg import Invitation, Stage, Sum, SummationClient, SummationServer, crypto
from fedgauge.secagg import client as client_module
from fedgauge.secagg import messages as messages_module
from fedgauge.secagg import server as server_module
from fedgauge.secagg.graph import Graph, choose_graph, picks
from fedgauge.secagg.messages import (
    Advertisement,
    Agreement,
    Box,
    Inbox,
    Masked,
    Opened,
    Opening,
    Peer,
    Quorum,
    Roster,
    Shares,
    Survivors,
    Terms,
    Vote,
    from_bitmap,
    to_bitmap,
)
from fedgauge.secagg.shamir import PRIME, join, share_from_bytes, share_to_bytes

KEYS = sorted((SigningKey.from_bytes(bytes([i] * 32)) for i in range(12)), key=lambda k: k.public)
BOSS = SigningKey.from_bytes(b"c" * 32)
STRANGER = SigningKey.from_bytes(b"s" * 32)
REQUESTS = {2: Roster, 3: Inbox, 4: Survivors, 5: Quorum}
REPLIES = {1: Advertisement, 2: Shares, 3: Masked, 4: Agreement, 5: Opening}
VICTIM = 2
# Public keys with which everybody agrees on the same secret: 0, 1, a point of order 8, p - 1.
LOW_ORDER = [
    bytes(32),
    b"\1" + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    b"\xec" + b"\xff" * 30 + b"\x7f",
]


class Giving:
    """Duties that give fixed values and count how often they are asked."""

    def __init__(self, values):
        self.values = values
        self.asked = 0
        self.agreed = []

    def contribution(self):
        self.asked += 1
        return self.values

    def agree(self, survivors):
        self.agreed.append(survivors)


class Scene:
    """Six members, of whom one may collude; the threshold is four."""

    def __init__(self, plan=None, *, members=6, run=b"r" * 32, graph=None, silent=()):
        self.plan = plan or plan_for()
        graph = graph or choose_graph(members, self.plan.cohort)
        publics = [key.public for key in KEYS[:members]]
        self.invitation = Invitation.made(self.plan, publics, BOSS, run, graph)
        self.session = self.invitation.session
        self.server = SummationServer(self.invitation, BOSS)
        values = np.random.default_rng(0).integers(-900, 900, (members, self.plan.numbers))
        self.duties = [Giving(row) for row in values]
        self.clients = [
            SummationClient.join(self.invitation, key, duty)
            for key, duty in zip(KEYS[:members], self.duties, strict=True)
        ]
        self.replied = {}  # by stage
        self.silent = dict(silent)  # member: the stage from which on it says nothing

    def until(self, stage):
        """All goes well up to where the requests of `stage` are made; none of them is sent."""
        while self.server.stage < stage:
            self.step()
        return self

    def step(self):
        """The members answer, and the server takes a step."""
        stage = self.server.stage
        self.replied[stage] = self.answers()
        outcome = self.server.step(self.replied[stage])
        assert not self.server.refused
        return outcome

    def answers(self):
        """Replies to the requests of this stage."""
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

    def finish(self):
        """The rest goes well, with the right sum."""
        outcome = None
        while not isinstance(outcome, Sum):
            outcome = self.step()
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
        to = EVERYONE if stage in (Stage.ADVERTISE, Stage.AGREE) else COORDINATOR
        place = {"stage": stage, "session": self.session, "recipient": to} | place
        return sealed(KEYS[member], member, body, **place)

    def said(self, member):
        """The body of what a member replied to the request that is due."""
        envelope = Envelope.from_bytes(self.answers()[member])
        return REPLIES[envelope.stage].from_bytes(envelope.body)

    def vote(self, member):
        """A member's vote for the survivors."""
        return Envelope.from_bytes(self.replied[Stage.AGREE][member])

    def sharing(self, member, survivors):
        """What other survivors signed about who shared, where everybody picks everybody."""
        replies = {m: self.replied[Stage.MASK][m] for m in survivors if m != member}
        masked = {m: Masked.from_bytes(Envelope.from_bytes(r).body) for m, r in replies.items()}
        return [Vote(m, masked[m].sharing) for m in sorted(masked)]

    def bitmap(self, *members):
        return to_bitmap(members, len(self.invitation.members))

    def restored(self, member):
        """A machine that goes on from where the member is now."""
        saved = self.clients[member].to_bytes()
        return SummationClient.from_bytes(saved, KEYS[member], self.duties[member])

    def secrets(self, member):
        """What the member's saved state holds."""
        return msgspec.msgpack.decode(self.clients[member].to_bytes(), strict=False)

    def picked(self, member):
        return set(picks(self.secrets(member)["seed"], member, self.invitation.graph).tolist())


def plan_for(cohort=None, bins=2):
    return EvaluationPlan.for_histogram(Axis.uniform(bins), cohort or Cohort(4, 1), largest=1000)


def sealed(key, sender, body, *, stage, session, recipient):
    body = body if isinstance(body, bytes) else body.to_bytes()
    return Envelope.sealed(
        key, session=session, stage=stage, sender=sender, recipient=recipient, body=body
    ).to_bytes()


def changed(body, **fields):
    return msgspec.structs.replace(body, **fields)


def refuses(client, request, match, error=ProtocolError):
    """The client refuses, and remembers nothing of it."""
    before = client.to_bytes()
    with pytest.raises(error, match=match):
        client.receive(request)
    assert client.to_bytes() == before


def sets_aside(scene, member, reply, match):
    """The server refuses one member's reply, and goes on without that member."""
    with pytest.raises(ProtocolError, match=match):
        scene.server.check(member, reply)
    before = scene.server.to_bytes()
    replies = scene.answers() | {member: reply}
    outcome = scene.server.step(replies)
    assert match in scene.server.refused[member]
    assert member not in outcome
    scene.server = SummationServer.from_bytes(before, BOSS)


@pytest.fixture
def sparse(monkeypatch):
    """Scenes of ten members who pick four each, the same ones in every run.

    That is too few to be safe, so that check is off.
    """
    monkeypatch.setattr(os, "urandom", np.random.default_rng(1).bytes)
    monkeypatch.setattr(messages_module, "is_safe", lambda *_: True)
    for module in (client_module, server_module):
        monkeypatch.setattr(module, "survivors_needed", lambda *_: 4)
    return lambda **options: Scene(members=10, graph=Graph(10, 4, 3), **options)


# Guessing keys


def test_secrets_are_32_bytes_of_the_operating_system(monkeypatch):
    """Masks from short seeds can be guessed: a mask of 28 bits takes seconds."""
    given = []

    def urandom(size, real=os.urandom):
        given.append(real(size))
        return given[-1]

    monkeypatch.setattr(os, "urandom", urandom)
    scene = Scene().until(Stage.MASK)
    found = [
        scene.secrets(m)[name] for m in range(6) for name in ("mask_key", "box_key", "own_mask")
    ]
    assert {len(secret) for secret in found} == {32}
    assert set(found) <= set(given)
    assert len(set(found)) == len(found)


def test_every_bit_of_a_secret_matters():
    """A key derived from a part of the shared secret is as weak as that part."""
    secret = int.from_bytes(os.urandom(32), "big")
    derived = {crypto.derive(secret.to_bytes(32, "big"), session=b"s", purpose=b"p")}
    for bit in range(256):
        other = (secret ^ 1 << bit).to_bytes(32, "big")
        derived.add(crypto.derive(other, session=b"s", purpose=b"p"))
    assert len(derived) == 257
    assert {len(key) for key in derived} == {32}


def hkdf(secret, salt, info):
    """RFC 5869, for one block."""
    extracted = hmac.digest(salt, secret, "sha256")
    return hmac.digest(extracted, info + b"\1", "sha256")


def keystream(key, numbers):
    stream = (
        Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(4 * numbers))
    )
    return np.frombuffer(stream, dtype="<u4")


def pair_mask(private, public, session, first, second, numbers):
    """The mask of a pair, from the private key of one and the public key of the other."""
    private = X25519PrivateKey.from_private_bytes(private)
    secret = private.exchange(X25519PublicKey.from_public_bytes(public))
    first, second = sorted((first, second))
    return keystream(hkdf(secret, session, b"fedgauge mask %d %d" % (first, second)), numbers)


def own_mask(secret, session, numbers):
    return keystream(hkdf(secret, session, b"fedgauge own mask"), numbers)


def public_key(private):
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def stripped(words, member, session, *, own=None, pairs=()):
    """A masked input less the masks that one knows; `pairs` has (other, private, public)."""
    rest = np.frombuffer(words, dtype="<u4").copy()
    if own is not None:
        rest -= own_mask(own, session, len(rest))
    for other, private, public in pairs:
        mask = pair_mask(private, public, session, member, other, len(rest))
        rest = rest - mask if member < other else rest + mask
    return rest.view("<i4")


def test_masks_are_the_whole_secrets_and_nothing_else():
    """Written down a second time, from X25519, HKDF and AES-256-CTR alone."""
    scene = Scene().until(Stage.MASK)
    secrets = [scene.secrets(m) for m in range(6)]
    for member in range(6):
        pairs = [
            (other, secrets[member]["mask_key"], public_key(secrets[other]["mask_key"]))
            for other in range(6)
            if other != member
        ]
        own = secrets[member]["own_mask"]
        found = stripped(scene.said(member).words, member, scene.session, own=own, pairs=pairs)
        np.testing.assert_array_equal(found, scene.duties[member].values)


def test_no_key_serves_two_purposes_pairs_or_sessions(monkeypatch):
    """Even if all members of two sessions had the same keys, no derived key would repeat.

    Otherwise the difference of two inputs under one mask would be in the open.
    """
    masks, boxes = [], []
    real_mask, real_seal = crypto.mask, crypto.seal

    def mask(key, *args):
        masks.append(key)
        return real_mask(key, *args)

    def seal(key, *args):
        boxes.append(key)
        return real_seal(key, *args)

    monkeypatch.setattr(crypto, "mask", mask)
    monkeypatch.setattr(crypto, "seal", seal)
    monkeypatch.setattr(os, "urandom", lambda size: b"\x5a" * size)
    for run in (b"1" * 32, b"2" * 32):
        Scene(run=run).until(Stage.AGREE)
    # In each session 30 boxes, 15 pairs' masks, each used by two, and own masks: those are
    # equal here because the members' randomness is.
    assert len(boxes) == len(set(boxes)) == 2 * 30
    assert len(masks) == 2 * (30 + 6)
    assert len(set(masks)) == 2 * (15 + 1)
    assert not set(masks) & set(boxes)


def test_masked_inputs_look_uniform_and_unrelated():
    """Equal contributions, all zeros, must not show; false alarms: 1 in 10^7."""
    plan = EvaluationPlan.for_histogram(Axis.uniform(8192), Cohort(4, 1), largest=1000)
    scene = Scene(plan)
    for duty in scene.duties:
        duty.values = np.zeros(plan.numbers, dtype=np.int64)
    scene.until(Stage.MASK)
    replies = scene.answers()
    words = [Masked.from_bytes(Envelope.from_bytes(replies[m]).body).words for m in range(6)]
    words = [np.frombuffer(data, dtype="<u4") for data in words]
    seen = [*words, *(one - other for one, other in itertools.combinations(words, 2))]
    for array in seen:
        counts = np.bincount(array.view(np.uint8), minlength=256)
        assert scipy.stats.chisquare(counts).pvalue > 1e-7 / len(seen)


# Different stories for different members


def other_scene(name):
    plan = {"another plan": plan_for(bins=3)}.get(name)
    run = {"another run": b"R" * 32}.get(name, b"r" * 32)
    graph = {"another threshold": Graph(6, 5, 5)}.get(name)
    members = {"another member": 7}.get(name, 6)
    return Scene(plan, run=run, graph=graph, members=members)


STORIES = ["another plan", "another run", "another member", "another threshold"]


@pytest.mark.parametrize("story", STORIES)
def test_members_told_different_invitations_refuse_each_other(story):
    """Members with another plan, cohort or threshold in mind are no protection."""
    one, other = Scene().until(Stage.SHARE), other_scene(story).until(Stage.SHARE)
    theirs = {peer.member: peer for peer in other.asked(VICTIM).peers}
    roster = one.asked(VICTIM)
    for member in (0, 5):
        peers = [theirs[member] if p.member == member else p for p in roster.peers]
        lie = one.request(VICTIM, changed(roster, peers=peers))
        refuses(one.clients[VICTIM], lie, "not signed by that member")
    one.finish()


@pytest.mark.parametrize("story", STORIES)
def test_a_server_refuses_members_of_another_invitation(story):
    one, other = Scene(), other_scene(story)
    for stage in Stage:
        one.until(stage)
        other.until(stage)
        if stage < Stage.OPEN:
            sets_aside(one, VICTIM, other.answers()[VICTIM], "another session or another plan")


def test_a_session_is_bound_to_all_that_was_proposed():
    """One run id for two proposals would make two sessions look like one, to a ledger too."""
    scenes = [Scene(), *map(other_scene, STORIES)]
    assert len({scene.session for scene in scenes}) == len(scenes)


def test_a_session_depends_on_each_part():
    scene = Scene()
    terms = Terms.from_bytes(Envelope.from_bytes(scene.invitation.data).body)
    others = {
        "plan": terms.plan + b" ",
        "run": b"R" * 32,
        "members": terms.members[1:],
        "coordinator": b"C" * 32,
        "degree": 4,
        "threshold": 5,
    }
    assert others.keys() == set(terms.__struct_fields__)
    sessions = {
        session_id(changed(terms, **{field: new}).to_bytes()) for field, new in others.items()
    }
    assert len(sessions | {scene.session}) == 1 + len(others)


# Swapped public keys

FORGERS = {
    "the old signature": None,
    "the coordinator's signature": BOSS,
    "a stranger's signature": STRANGER,
    "another member's signature": KEYS[0],
}


def swapped(scene, peer, field, forger, stage=Stage.ADVERTISE):
    """The advertisement of a peer with a key of the attacker in it."""
    body = changed(Advertisement.from_bytes(peer.body), **{field: public_key(b"k" * 32)}).to_bytes()
    signature = peer.signature
    if forger is not None:
        envelope = sealed(
            forger, peer.member, body, stage=stage, session=scene.session, recipient=EVERYONE
        )
        signature = Envelope.from_bytes(envelope).signature
    return Peer(peer.member, body, signature)


@pytest.mark.parametrize("forger", FORGERS)
@pytest.mark.parametrize("field", ["mask_key", "box_key"])
def test_a_swapped_public_key_is_refused(field, forger):
    """A server that puts its own key in a peer's place would know the masks of the pair."""
    scene = Scene().until(Stage.SHARE)
    roster = scene.asked(VICTIM)
    peers = [
        swapped(scene, peer, field, FORGERS[forger]) if peer.member == 4 else peer
        for peer in roster.peers
    ]
    lie = scene.request(VICTIM, changed(roster, peers=peers))
    refuses(scene.clients[VICTIM], lie, "not signed by that member")
    scene.finish()


def test_a_swapped_key_of_a_neighbour_by_the_others_choice_is_refused(sparse):
    """Where few are neighbours, some keys come with the boxes only."""
    scene = sparse().until(Stage.MASK)
    victim, picker = next(
        (a, b)
        for a, b in itertools.permutations(range(10), 2)
        if a in scene.picked(b) and b not in scene.picked(a) and b != 0  # 0 is a forger
    )
    inbox = scene.asked(victim)
    for field, forger in itertools.product(("mask_key", "box_key"), FORGERS.values()):
        peers = [swapped(scene, p, field, forger) if p.member == picker else p for p in inbox.peers]
        lie = scene.request(victim, changed(inbox, peers=peers))
        refuses(scene.clients[victim], lie, "not signed by that member")
    without = [peer for peer in inbox.peers if peer.member != picker]
    lie = scene.request(victim, changed(inbox, peers=without))
    refuses(scene.clients[victim], lie, "keys of members are missing")
    scene.finish()


def test_a_key_cannot_be_replaced_later():
    """A second advertisement for a known member, however signed."""
    scene = Scene().until(Stage.SHARE)
    known = scene.asked(VICTIM).peers[0]
    # Member 0 colludes: it signs a second advertisement itself.
    second = swapped(scene, known, "mask_key", KEYS[known.member])
    scene.until(Stage.MASK)
    inbox = scene.asked(VICTIM)
    lie = scene.request(VICTIM, changed(inbox, peers=[second]))
    refuses(scene.clients[VICTIM], lie, "were not asked for")
    scene.finish()


def test_keys_of_a_peer_under_another_name_are_refused():
    """Advertisements of two peers, exchanged."""
    scene = Scene().until(Stage.SHARE)
    roster = scene.asked(VICTIM)
    first, second, *rest = roster.peers
    names = first.member, second.member
    peers = [changed(second, member=names[0]), changed(first, member=names[1]), *rest]
    lie = scene.request(VICTIM, changed(roster, peers=peers))
    refuses(scene.clients[VICTIM], lie, "not signed by that member")


def test_a_signature_of_another_stage_is_no_advertisement():
    """What a member signed as a vote, for everyone too, is not taken for its keys."""
    scene = Scene().until(Stage.SHARE)
    roster = scene.asked(VICTIM)
    peer = roster.peers[0]
    forged = swapped(scene, peer, "mask_key", KEYS[peer.member], stage=Stage.AGREE)
    lie = scene.request(VICTIM, changed(roster, peers=[forged, *roster.peers[1:]]))
    refuses(scene.clients[VICTIM], lie, "not signed by that member")


# Alive to some, dead to others


def test_a_vote_is_cast_once():
    """The victim alive in one list and dead in another would give both of its secrets."""
    scene = Scene().until(Stage.AGREE)
    client, first = scene.clients[0], scene.server.requests[0]
    second = scene.request(0, Survivors(survivors=scene.bitmap(0, 1, 3, 4, 5)))
    vote = client.receive(first)
    for machine in (client, scene.restored(0)):
        refuses(machine, second, "answered already")
        assert machine.receive(first) == vote
    assert len(scene.duties[0].agreed) == 1


def test_nobody_opens_both_secrets_of_one_member():
    """Shares of the own mask for survivors, of the key for those who dropped out."""
    scene = Scene(silent={5: Stage.MASK}).until(Stage.OPEN)
    for reply in scene.answers().values():
        opening = Opening.from_bytes(Envelope.from_bytes(reply).body)
        assert [part.member for part in opening.masks] == [0, 1, 2, 3, 4]
        assert [part.member for part in opening.keys] == [5]
    scene.finish()


def votes(scene, survivors, voters):
    """Machines that were asked to agree to a list, and their signatures."""
    request = Survivors(survivors=scene.bitmap(*survivors))
    machines = {m: scene.restored(m) for m in voters}
    signed = {
        m: Envelope.from_bytes(machine.receive(scene.request(m, request))).signature
        for m, machine in machines.items()
    }
    return machines, signed


def opened(scene, machines, survivors, same, other):
    """Which machines open, when votes for the same list come first, then those for another."""
    found = set()
    for member, machine in machines.items():
        quorum = [Vote(m, s) for m, s in same.items() if m != member]
        more = [Vote(m, s) for m, s in other.items() if m not in same]
        for attempt in (quorum, quorum + more):
            body = Quorum(votes=attempt, sharing=scene.sharing(member, survivors))
            with suppress(ProtocolError):
                machine.receive(scene.request(member, body, stage=Stage.OPEN))
                found.add(member)
                break
    return found


def test_different_survivors_for_different_members_open_at_most_one_sum():
    """Every way to tell the five honest members one of two lists, with a colluder for both."""
    scene = Scene().until(Stage.AGREE)
    lists = (range(6), (0, 1, 3, 4, 5))  # with the victim and without it
    splits = 0
    for size in range(6):
        for second in itertools.combinations((0, 1, 3, 4), size):
            told = [set(range(5)) - {*second} | {VICTIM}, {*second}]
            (ones, first), (others, second) = (
                votes(scene, survivors, {*members, 5})
                for survivors, members in zip(lists, told, strict=True)
            )
            del ones[5], others[5]  # the colluder votes for both lists, but for nobody else
            results = (
                opened(scene, ones, lists[0], first, second),
                opened(scene, others, lists[1], second, first),
            )
            splits += 1
            assert not (results[0] and results[1])
            assert bool(results[0]) == (len(told[0]) >= 3)
            assert bool(results[1]) == (len(told[1]) >= 3)
    assert splits == 16


def test_votes_for_another_list_do_not_count():
    """Half the members are told one list, half another: nobody opens."""
    scene = Scene().until(Stage.AGREE)
    groups = [((0, 1, 2, 3, 4, 5), (0, 1, 2)), ((0, 1, 3, 4, 5), (3, 4, 5))]
    (ones, first), (others, second) = (votes(scene, *group) for group in groups)
    for member, machine in (ones | others).items():
        same, different = (first, second) if member in first else (second, first)
        sharing = scene.sharing(member, groups[member not in first][0])
        mixed = [Vote(m, s) for m, s in sorted((same | different).items()) if m not in (member, 2)]
        lie = scene.request(member, Quorum(votes=mixed, sharing=sharing), stage=Stage.OPEN)
        refuses(machine, lie, "did not vote for the same survivors")
        honest = [Vote(m, s) for m, s in sorted(same.items()) if m not in (member, 2)]
        lie = scene.request(member, Quorum(votes=honest, sharing=sharing), stage=Stage.OPEN)
        refuses(machine, lie, "holders agree", CohortTooSmall)


@pytest.mark.parametrize("about", ["present", "sharers"])
def test_votes_are_about_the_whole_story(about):
    """The same survivors, but other members said to be present, or to have shared."""
    last = {"present": Stage.SHARE, "sharers": Stage.MASK}[about]
    with_five, without = Scene(silent={5: last}), Scene(silent={5: last - 1})
    # The same machines in both stories up to here: only what they are told differs.
    without.clients = [with_five.restored(m) for m in range(6)]
    for scene in (with_five, without):
        scene.until(Stage.OPEN)
    assert with_five.server.requests.keys() == without.server.requests.keys()
    for member in range(5):
        lie = without.request(member, with_five.asked(member))
        refuses(with_five.clients[member], without.server.requests[member], "the same survivors")
        refuses(without.clients[member], lie, "the same survivors")
    with_five.finish()
    without.finish()


@pytest.mark.parametrize(
    "forger", [BOSS, STRANGER, KEYS[5]], ids=["coordinator", "stranger", "member"]
)
def test_votes_cannot_be_forged(forger):
    scene = Scene().until(Stage.OPEN)
    quorum = scene.asked(0)
    vote = quorum.votes[0]
    body = scene.vote(0).body
    place = {"stage": Stage.AGREE, "session": scene.session, "recipient": EVERYONE}
    forged = Envelope.from_bytes(sealed(forger, vote.member, body, **place)).signature
    votes = [Vote(vote.member, forged), *quorum.votes[1:]]
    lie = scene.request(0, changed(quorum, votes=votes))
    refuses(scene.clients[0], lie, "did not vote for the same survivors")
    scene.finish()


@pytest.mark.parametrize("change", ["twice", "own", "dropped", "beyond", "negative", "too few"])
def test_votes_count_once_and_from_holders_only(change):
    """One vote counted twice would be a quorum of too few."""
    scene = Scene(silent={5: Stage.MASK}).until(Stage.OPEN)
    quorum = scene.asked(0)
    one = quorum.votes[0]
    place = {"stage": Stage.AGREE, "session": scene.session, "recipient": EVERYONE}
    body = scene.vote(0).body
    dropped = Envelope.from_bytes(sealed(KEYS[5], 5, body, **place)).signature
    extra = {
        "twice": [one],
        "own": [Vote(0, scene.vote(0).signature)],
        "dropped": [Vote(5, dropped)],
        "beyond": [changed(one, member=6)],
        "negative": [changed(one, member=one.member - 6)],
        "too few": [],
    }[change]
    lie = scene.request(0, changed(quorum, votes=[*quorum.votes[:2], *extra]))
    match = "holders agree" if change == "too few" else "twice or from a member"
    refuses(scene.clients[0], lie, match)
    scene.finish()


@pytest.mark.parametrize("change", ["another story", "held back", "twice", "forged", "dropped"])
def test_survivors_whose_masks_are_opened_masked_with_the_opener(sparse, change):
    """Where few are neighbours, a victim could be told that honest holders did not share.

    It would then not mask with them, while they help to open its own mask.
    """
    scene = sparse(silent={9: Stage.MASK}).until(Stage.MASK)
    inbox = scene.asked(VICTIM)
    shown = scene.picked(VICTIM) | {box.member for box in inbox.boxes} | {VICTIM}
    hidden = min(set(range(10)) - shown)
    story = changed(inbox, sharers=scene.bitmap(*set(range(10)) - {hidden}))
    told = scene.restored(VICTIM).receive(scene.request(VICTIM, story))
    scene.until(Stage.OPEN)
    holder = min(scene.picked(VICTIM) - {9})
    quorum = scene.asked(holder)
    (place,) = [i for i, vote in enumerate(quorum.sharing) if vote.member == VICTIM]
    vote = quorum.sharing[place]
    rest = quorum.sharing[:place] + quorum.sharing[place + 1 :]
    other = Masked.from_bytes(Envelope.from_bytes(told).body).sharing
    sharing = {
        "another story": [*rest, Vote(VICTIM, other)],
        "held back": rest,
        "twice": [*rest, vote, vote],
        "forged": [*rest, Vote(VICTIM, BOSS.sign(b"anything"))],
        "dropped": [*rest, Vote(9, vote.signature)],
    }[change]
    match = {"another story": "another story", "forged": "another story"}.get(change, "held back")
    lie = scene.request(holder, changed(quorum, sharing=sharing))
    refuses(scene.clients[holder], lie, match)
    scene.finish()


def test_a_server_refuses_an_input_masked_under_another_story(sparse):
    scene = sparse().until(Stage.MASK)
    inbox = scene.asked(VICTIM)
    shown = scene.picked(VICTIM) | {box.member for box in inbox.boxes} | {VICTIM}
    sharers = scene.bitmap(*set(range(10)) - {min(set(range(10)) - shown)})
    lie = scene.request(VICTIM, changed(inbox, sharers=sharers))
    reply = scene.restored(VICTIM).receive(lie)
    sets_aside(scene, VICTIM, reply, "did not sign what it was told about who shared")


# Isolating a victim


WEAK_GRAPHS = [
    *[(5, 3), (5, 1), (5, 0), (5, -1), (5, 7), (4, 4), (3, 3), (1, 1), (0, 1), (-5, 4)],
    *[(6, 4), (2**40, 4), (5, 2**40), (2**63, 4), (-(2**63), 4)],
]


@pytest.mark.parametrize("graph", WEAK_GRAPHS, ids=str)
def test_a_graph_that_protects_too_little_is_refused(graph):
    """A low threshold or degree lets the server and a few colluders open a single input."""
    publics = [key.public for key in KEYS[:6]]
    invitation = Invitation.made(plan_for(), publics, BOSS, bytes(32), Graph(6, *graph))
    with pytest.raises(ProtocolError, match="neighbours too few, or a threshold too low"):
        _ = invitation.plan


@pytest.mark.parametrize("graph", WEAK_GRAPHS, ids=str)
def test_nobody_joins_with_a_graph_that_protects_too_little(graph):
    """Not even where nobody looked at the plan: shares must not leave under a low threshold."""
    publics = [key.public for key in KEYS[:6]]
    invitation = Invitation.made(plan_for(), publics, BOSS, bytes(32), Graph(6, *graph))
    with pytest.raises(ProtocolError, match="neighbours too few, or a threshold too low"):
        SummationClient.join(invitation, KEYS[0], Giving(None))


def test_a_sparse_graph_that_protects_too_little_is_refused():
    publics = sorted(SigningKey.from_bytes(i.to_bytes(32, "big")).public for i in range(300))
    plan = plan_for(Cohort(100, 3))
    good = choose_graph(300, plan.cohort)
    assert not good.is_complete
    assert Invitation.made(plan, publics, BOSS, bytes(32), good).plan == plan
    for cohort, worse in (
        (plan.cohort, good._replace(threshold=good.threshold - 6)),
        (plan.cohort, good._replace(degree=good.degree + 16)),
        (Cohort(150, 3), Graph(300, 10, 6)),
        (Cohort(100, 0), Graph(300, 60, 31)),  # a part of the members could be opened apart
        (Cohort(100, 30), Graph(300, 60, 42)),  # both secrets of a member could be opened
        (Cohort(170, 3), good),  # nothing proves that so many are in the sum
    ):
        invitation = Invitation.made(plan_for(cohort), publics, BOSS, bytes(32), worse)
        with pytest.raises(ProtocolError, match="neighbours too few, or a threshold too low"):
            _ = invitation.plan


@pytest.mark.parametrize("cohort", [Cohort(7, 1), Cohort(4, 6), Cohort(3, 2**70)])
@pytest.mark.parametrize("threshold", [4, 6])
def test_a_cohort_that_cannot_be_is_refused(cohort, threshold):
    publics = [key.public for key in KEYS[:6]]
    graph = Graph(6, 5, threshold)
    invitation = Invitation.made(plan_for(cohort), publics, BOSS, bytes(32), graph)
    with pytest.raises(PlanError):
        _ = invitation.plan


def test_a_stranger_cannot_join():
    with pytest.raises(ProtocolError, match="not among the invited"):
        SummationClient.join(Scene().invitation, STRANGER, Giving(None))


# With a colluder, member 0, all of the victim's holders but too few are said to be gone.
ALONE = [(0, VICTIM), (0, 1, VICTIM), (VICTIM,)]


@pytest.mark.parametrize("left", ALONE)
def test_a_victim_with_few_present_refuses(left):
    scene = Scene().until(Stage.SHARE)
    peers = [peer for peer in scene.asked(VICTIM).peers if peer.member in left]
    lie = scene.request(VICTIM, Roster(present=scene.bitmap(*left), peers=peers))
    refuses(scene.clients[VICTIM], lie, "holders of this site's shares", CohortTooSmall)
    scene.finish()


@pytest.mark.parametrize("left", ALONE)
def test_a_victim_with_few_sharers_refuses(left):
    scene = Scene().until(Stage.MASK)
    boxes = [box for box in scene.asked(VICTIM).boxes if box.member in left]
    lie = scene.request(VICTIM, Inbox(sharers=scene.bitmap(*left), peers=[], boxes=boxes))
    refuses(scene.clients[VICTIM], lie, "holders of this site's shares", CohortTooSmall)
    assert scene.duties[VICTIM].asked == 0
    scene.finish()


@pytest.mark.parametrize("left", ALONE)
def test_a_victim_with_few_survivors_refuses(left):
    scene = Scene().until(Stage.AGREE)
    lie = scene.request(VICTIM, Survivors(survivors=scene.bitmap(*left)))
    refuses(scene.clients[VICTIM], lie, "members are left", CohortTooSmall)
    assert scene.duties[VICTIM].agreed == []
    scene.finish()


@pytest.mark.parametrize("stage", [Stage.SHARE, Stage.MASK, Stage.AGREE])
def test_a_victim_whose_neighbours_are_gone_refuses(sparse, stage):
    """Enough members in all, but two of the victim's four picks are said to be gone."""
    scene = sparse().until(stage)
    picked = sorted(scene.picked(VICTIM))
    asked = scene.asked(VICTIM)
    for gone, refused in ((2, False), (3, True)):
        left = set(range(10)) - {*picked[:gone]}
        bitmap = scene.bitmap(*left)
        if stage == Stage.SHARE:
            body = Roster(present=bitmap, peers=[p for p in asked.peers if p.member in left])
        elif stage == Stage.MASK:
            peers = [p for p in asked.peers if p.member in left]
            body = Inbox(
                sharers=bitmap, peers=peers, boxes=[b for b in asked.boxes if b.member in left]
            )
        else:
            body = Survivors(survivors=bitmap)
        lie = scene.request(VICTIM, body)
        if refused:
            refuses(scene.clients[VICTIM], lie, "holders of this site's shares", CohortTooSmall)
        else:
            scene.restored(VICTIM).receive(lie)
    scene.finish()


def test_a_box_held_back_is_noticed():
    """Everybody shares with everybody here: a missing box is a lie about who shared."""
    scene = Scene().until(Stage.MASK)
    inbox = scene.asked(VICTIM)
    for place in range(5):
        boxes = inbox.boxes[:place] + inbox.boxes[place + 1 :]
        lie = scene.request(VICTIM, changed(inbox, boxes=boxes))
        refuses(scene.clients[VICTIM], lie, "held back")
    scene.finish()


def test_phantoms_are_noticed():
    """Members who count as present, or as sharers, without being there."""
    scene = Scene(silent={5: Stage.ADVERTISE}).until(Stage.SHARE)
    roster = scene.asked(VICTIM)
    lie = scene.request(VICTIM, changed(roster, present=scene.bitmap(*range(6))))
    refuses(scene.clients[VICTIM], lie, "keys of members are missing")
    scene = Scene(silent={5: Stage.SHARE}).until(Stage.MASK)
    inbox = scene.asked(VICTIM)
    lie = scene.request(VICTIM, changed(inbox, sharers=scene.bitmap(*range(6))))
    refuses(scene.clients[VICTIM], lie, "held back")
    scene.finish()


def test_phantoms_among_neighbours_are_noticed(sparse):
    scene = sparse().until(Stage.SHARE)
    roster = scene.asked(VICTIM)
    lie = scene.request(VICTIM, changed(roster, peers=roster.peers[1:]))
    refuses(scene.clients[VICTIM], lie, "keys of members are missing")
    scene.finish()


# Sets that do not fit


def test_too_few_survivors_for_the_plan():
    """Five are needed here, where the threshold alone would let four pass."""
    scene = Scene(plan_for(Cohort(5, 1))).until(Stage.AGREE)
    assert scene.invitation.graph.threshold == 4
    lie = scene.request(VICTIM, Survivors(survivors=scene.bitmap(0, 1, VICTIM, 3)))
    refuses(scene.clients[VICTIM], lie, "4 members are left and 5 are needed", CohortTooSmall)
    scene.finish()


@pytest.mark.parametrize("stage", [Stage.SHARE, Stage.MASK, Stage.AGREE])
def test_a_victim_said_to_be_gone_stops(stage):
    """Its shares would open the key of a member that is still there."""
    scene = Scene().until(stage)
    without = scene.bitmap(0, 1, 3, 4, 5)
    field = {2: "present", 3: "sharers", 4: "survivors"}[stage]
    lie = scene.request(VICTIM, changed(scene.asked(VICTIM), **{field: without}))
    refuses(scene.clients[VICTIM], lie, "said to have dropped out")
    scene.finish()


def test_sets_only_shrink():
    """A member back from the dead could have its key opened, and then be in the sum."""
    scene = Scene(silent={5: Stage.SHARE}).until(Stage.AGREE)
    everyone = scene.bitmap(*range(6))
    lie = scene.request(VICTIM, Survivors(survivors=everyone))
    refuses(scene.clients[VICTIM], lie, "said not to have shared")
    scene.finish()
    scene = Scene(silent={5: Stage.ADVERTISE}).until(Stage.MASK)
    lie = scene.request(VICTIM, changed(scene.asked(VICTIM), sharers=everyone))
    refuses(scene.clients[VICTIM], lie, "said to be absent")
    scene.finish()


@pytest.mark.parametrize("bitmap", [b"", b"\xfc\0", b"\xff", b"\xfe", b"\xfd"])
@pytest.mark.parametrize("stage", [Stage.SHARE, Stage.MASK, Stage.AGREE])
def test_sets_have_one_form(stage, bitmap):
    """Two forms of one set would be two stories with the same meaning."""
    scene = Scene().until(stage)
    field = {2: "present", 3: "sharers", 4: "survivors"}[stage]
    lie = scene.request(VICTIM, changed(scene.asked(VICTIM), **{field: bitmap}))
    refuses(scene.clients[VICTIM], lie, "a set of members")


def test_bitmaps_and_sets():
    for count in range(1, 20):
        for members in (set(), {0}, {count - 1}, set(range(count)), set(range(0, count, 3))):
            assert from_bitmap(to_bitmap(members, count), count) == members


def test_who_is_in_the_sum_can_be_refused():
    """Sums over nearly the same members give one member's values away: the site may say no."""
    scene = Scene(silent={5: Stage.MASK}).until(Stage.AGREE)
    told = []

    def agree(survivors):
        told.append(survivors)
        raise PlanError("too close to an earlier sum")

    scene.duties[VICTIM].agree = agree
    request = scene.server.requests[VICTIM]
    refuses(scene.clients[VICTIM], request, "too close", PlanError)
    assert told == [[key.public for key in KEYS[:5]]]
    assert scene.clients[VICTIM].stage == Stage.MASK


# Asking again


def test_an_opened_sum_is_not_opened_again():
    """A second quorum, of another list or of the same one, gets nothing."""
    scene = Scene().until(Stage.OPEN)
    first, quorum = scene.server.requests[0], scene.asked(0)
    others = [
        Quorum(votes=[], sharing=[]),
        changed(quorum, votes=quorum.votes[::-1]),
        changed(quorum, sharing=quorum.sharing[::-1]),
    ]
    client = scene.clients[0]
    opening = client.receive(first)
    for machine in (client, scene.restored(0)):
        assert machine.receive(first) == opening
        for other in others:
            refuses(machine, scene.request(0, other), "answered already")
        beyond = scene.request(0, quorum, stage=6)
        refuses(machine, beyond, "nothing left to answer")
    scene.finish()


def test_two_answers_share_no_nonce():
    """A state put back from a copy seals other shares under the same keys."""
    scene = Scene().until(Stage.SHARE)
    roster = scene.asked(VICTIM)
    nonces = []
    for peers in (roster.peers, roster.peers[::-1]):
        reply = scene.restored(VICTIM).receive(scene.request(VICTIM, changed(roster, peers=peers)))
        boxes = Shares.from_bytes(Envelope.from_bytes(reply).body).boxes
        nonces += [box.sealed[:12] for box in boxes]
    assert len(set(nonces)) == len(nonces) == 10


def test_nothing_secret_is_kept_after_opening():
    """A state stolen later must not open what was masked then."""
    scene = Scene(silent={5: Stage.MASK}).until(Stage.OPEN)
    before = scene.secrets(0)
    state = scene.clients[0].to_bytes()
    keys = [before[name] for name in ("mask_key", "box_key", "own_mask")]
    shares = {share for pair in before["held"].values() for share in pair}
    assert len(shares) == 12
    assert all(secret in state for secret in (*keys, *shares))
    opening = Opening.from_bytes(
        Envelope.from_bytes(scene.clients[0].receive(scene.server.requests[0])).body
    )
    told = {part.share for part in (*opening.masks, *opening.keys)}
    state = scene.clients[0].to_bytes()
    assert told < shares
    assert not any(secret in state for secret in (*keys, *(shares - told)))
    scene.finish()


def test_no_second_input_under_the_same_masks():
    """A retry that noises again under old masks gives the difference of two noises away."""
    scene = Scene().until(Stage.MASK)
    first, inbox = scene.server.requests[VICTIM], scene.asked(VICTIM)
    fewer = [box for box in inbox.boxes if box.member != 5]
    others = [
        changed(inbox, boxes=inbox.boxes[::-1]),
        changed(inbox, sharers=scene.bitmap(0, 1, 2, 3, 4), boxes=fewer),
    ]
    client = scene.clients[VICTIM]
    reply = client.receive(first)
    for machine in (client, scene.restored(VICTIM)):
        for other in others:
            refuses(machine, scene.request(VICTIM, other), "answered already")
        assert machine.receive(first) == reply
    assert scene.duties[VICTIM].asked == 1


def test_a_contribution_is_asked_for_once():
    """Over resends and restores at every stage."""
    scene = Scene()
    while scene.server.stage < Stage.OPEN:
        scene.step()
        for member in range(6):
            request = scene.server.requests[member]
            reply = scene.clients[member].receive(request)
            scene.clients[member] = scene.restored(member)
            assert scene.clients[member].receive(request) == reply
    scene.finish()
    assert [duty.asked for duty in scene.duties] == [1] * 6
    assert [len(duty.agreed) for duty in scene.duties] == [1] * 6


@pytest.mark.parametrize("public", LOW_ORDER, ids=["zero", "one", "order 8", "minus one"])
@pytest.mark.parametrize("field", ["mask_key", "box_key"])
def test_a_contribution_is_not_asked_for_before_all_is_checked(field, public):
    """A colluder's key that fails late makes the site draw noise and throw it away, each time.

    It has to be refused at the latest with the boxes, before the site's numbers are touched.
    """
    scene = Scene().until(Stage.SHARE)
    client, roster = scene.clients[VICTIM], scene.asked(VICTIM)
    peer = roster.peers[0]
    body = changed(Advertisement.from_bytes(peer.body), **{field: public}).to_bytes()
    place = {"stage": Stage.ADVERTISE, "session": scene.session, "recipient": EVERYONE}
    signature = Envelope.from_bytes(sealed(KEYS[peer.member], peer.member, body, **place)).signature
    peers = [Peer(peer.member, body, signature), *roster.peers[1:]]
    with pytest.raises(ProtocolError, match="not one that a secret can be agreed with"):
        scene.answer_with(client, scene.request(VICTIM, changed(roster, peers=peers)))
    assert scene.duties[VICTIM].asked == 0


# Dishonest members


@pytest.mark.parametrize("kind", ["masks", "keys"])
@pytest.mark.parametrize("place", [0, -1])
def test_a_wrong_share_gives_no_sum(kind, place):
    """A sum under a mask taken off wrongly would be any number that a member likes."""
    scene = Scene(silent={5: Stage.MASK}).until(Stage.OPEN)
    opening = scene.said(0)
    parts = list(getattr(opening, kind))
    # Not just 1 more: X25519 keys that differ in their lowest bits are the same.
    share = (share_from_bytes(parts[place].share) + 2**200) % PRIME
    parts[place] = Opened(parts[place].member, share_to_bytes(share))
    replies = scene.answers() | {0: scene.reply(0, changed(opening, **{kind: parts}))}
    before = scene.server.to_bytes()
    with pytest.raises(ProtocolError, match="wrong shares") as caught:
        scene.server.step(replies)
    assert not isinstance(caught.value, CohortTooSmall)
    assert scene.server.to_bytes() == before


def test_shares_of_a_number_that_is_no_secret_give_no_sum():
    """A share chosen so that a secret comes out as 2^256, which 32 bytes do not hold."""
    scene = Scene().until(Stage.OPEN)
    secret = scene.secrets(5)["own_mask"]
    opening = scene.said(0)
    weight = join({1: 1, 2: 0, 3: 0, 4: 0})  # of member 0's share among the four that are used
    shift = (2**256 - int.from_bytes(secret, "little")) * pow(weight, -1, PRIME)
    masks = list(opening.masks)
    masks[5] = Opened(5, share_to_bytes((share_from_bytes(masks[5].share) + shift) % PRIME))
    with pytest.raises(ProtocolError, match="do not belong together"):
        scene.server.step(scene.answers() | {0: scene.reply(0, changed(opening, masks=masks))})


def test_a_mask_other_than_the_one_committed_to_gives_no_sum():
    """A member could choose among several masks, and so among several sums, at the end."""
    scene = Scene().until(Stage.SHARE)
    replies = scene.answers()
    shares = Shares.from_bytes(Envelope.from_bytes(replies[5]).body)
    wrong = crypto.commitment(bytes(32), scene.session)
    replies[5] = scene.reply(5, changed(shares, commitment=wrong))
    scene.server.step(replies)
    scene.until(Stage.OPEN)
    with pytest.raises(ProtocolError, match="wrong shares"):
        scene.server.step(scene.answers())


@pytest.mark.parametrize("public", [*LOW_ORDER, b"", b"x" * 31, b"x" * 33])
@pytest.mark.parametrize("field", ["mask_key", "box_key"])
def test_a_public_key_of_low_order_is_set_aside(field, public):
    """The masks of all its pairs would be known to everybody."""
    scene = Scene()
    body = changed(Advertisement.from_bytes(Envelope.from_bytes(scene.answers()[5]).body))
    reply = scene.reply(5, changed(body, **{field: public}))
    sets_aside(scene, 5, reply, "not one that a secret can be agreed with")


@pytest.mark.parametrize("seed", [b"", b"x" * 15, b"x" * 17])
def test_a_seed_of_another_length_is_set_aside(seed):
    scene = Scene()
    body = Advertisement.from_bytes(Envelope.from_bytes(scene.answers()[5]).body)
    sets_aside(scene, 5, scene.reply(5, changed(body, seed=seed)), "a seed has the wrong length")


@pytest.mark.parametrize("place", [0, 4], ids=["first", "last"])
@pytest.mark.parametrize("junk", ["empty", "random", "flipped", "another's", "reflected", "old"])
def test_a_junk_box_is_refused(junk, place):
    """Boxes altered, made for somebody else, or of another session."""
    scene, other = Scene().until(Stage.MASK), Scene(run=b"o" * 32).until(Stage.MASK)
    inbox = scene.asked(VICTIM)
    box = inbox.boxes[place]
    sealed_box = {
        "empty": b"",
        "random": os.urandom(len(box.sealed)),
        "flipped": bytes([box.sealed[0] ^ 1]) + box.sealed[1:],
        "another's": inbox.boxes[1].sealed,
        "reflected": next(b.sealed for b in scene.asked(box.member).boxes if b.member == VICTIM),
        "old": other.asked(VICTIM).boxes[place].sealed,
    }[junk]
    boxes = [*inbox.boxes[:place], Box(box.member, sealed_box), *inbox.boxes[place + 1 :]]
    lie = scene.request(VICTIM, changed(inbox, boxes=boxes))
    refuses(scene.clients[VICTIM], lie, "not made for this member by its sender")
    assert scene.duties[VICTIM].asked == 0
    scene.finish()


@pytest.mark.parametrize("length", [0, 33, 65, 67, 99])
def test_a_box_holds_two_shares(length):
    """A member seals something else for its peer, rightly."""
    scene = Scene().until(Stage.MASK)
    inbox, secrets = scene.asked(VICTIM), scene.secrets(0)
    key = crypto.AgreementKey(secrets["box_key"])
    secret = key.agree(public_key(scene.secrets(VICTIM)["box_key"]))
    about = b"box 0 %d" % VICTIM
    key = hkdf(secret, scene.session, b"fedgauge " + about)
    box = Box(0, crypto.seal(key, bytes(length), scene.session + about))
    lie = scene.request(VICTIM, changed(inbox, boxes=[box, *inbox.boxes[1:]]))
    refuses(scene.clients[VICTIM], lie, "does not hold two shares")


@pytest.mark.parametrize("boxes", ["twice", "from itself", "from nobody", "from a negative"])
def test_boxes_come_once_and_from_sharers(boxes):
    scene = Scene().until(Stage.MASK)
    inbox = scene.asked(VICTIM)
    member = {"twice": 0, "from itself": VICTIM, "from nobody": 6, "from a negative": -1}[boxes]
    more = [*inbox.boxes, Box(member, inbox.boxes[0].sealed)]
    lie = scene.request(VICTIM, changed(inbox, boxes=more))
    refuses(scene.clients[VICTIM], lie, "twice or from members who did not share")


@pytest.mark.parametrize("change", ["another", "more", "fewer", "twice", "nobody", "itself"])
def test_shares_for_others_than_the_picks_are_set_aside(sparse, change):
    """A member may choose its holders by its seed only, which it could not choose."""
    scene = sparse().until(Stage.SHARE)
    shares, picked = scene.said(5), scene.picked(5)
    box, *rest = shares.boxes
    stranger = Box(min(set(range(10)) - picked - {5}), box.sealed)
    boxes = {
        "another": [stranger, *rest],
        "more": [*shares.boxes, stranger],
        "fewer": rest,
        "twice": [*shares.boxes, box],
        "nobody": [Box(10, box.sealed), *rest],
        "itself": [Box(5, box.sealed), *rest],
    }[change]
    reply = scene.reply(5, changed(shares, boxes=boxes))
    sets_aside(scene, 5, reply, "not for the neighbours that were picked")


@pytest.mark.parametrize("more", [-20, -1, 1, 100_000])
def test_shares_of_another_size_are_set_aside(more):
    """Boxes that cannot be opened would make their recipients stop, not their sender."""
    scene = Scene().until(Stage.SHARE)
    shares = scene.said(5)
    box, *rest = shares.boxes
    boxes = [Box(box.member, bytes(len(box.sealed) + more)), *rest]
    sets_aside(scene, 5, scene.reply(5, changed(shares, boxes=boxes)), "size")
    commitment = bytes(len(shares.commitment) + more)
    sets_aside(scene, 5, scene.reply(5, changed(shares, commitment=commitment)), "size")


@pytest.mark.parametrize("change", [b"", b"\0", b"\0" * 4, b"\0" * 4096])
def test_a_masked_input_of_another_length_is_set_aside(change):
    scene = Scene().until(Stage.MASK)
    masked = scene.said(5)
    longer = masked.words + change if change else masked.words[:-1]
    sets_aside(scene, 5, scene.reply(5, changed(masked, words=longer)), "not have the length")


@pytest.mark.parametrize(
    "change", ["both", "more", "fewer", "twice", "not in the field", "short", "long", "exchanged"]
)
def test_an_opening_of_other_shares_is_set_aside(change):
    scene = Scene(silent={5: Stage.MASK}).until(Stage.OPEN)
    opening = scene.said(1)
    masks, keys = opening.masks, opening.keys
    first = masks[0]
    masks, keys = {
        "both": (masks, [first, *keys]),
        "more": ([*masks, Opened(5, keys[0].share)], keys),
        "fewer": (masks[1:], keys),
        "twice": ([*masks, first], keys),
        "not in the field": ([Opened(0, PRIME.to_bytes(33, "little")), *masks[1:]], keys),
        "short": ([Opened(0, first.share[:-1]), *masks[1:]], keys),
        "long": ([Opened(0, first.share + b"\0"), *masks[1:]], keys),
        "exchanged": (keys, masks),
    }[change]
    reply = scene.reply(1, Opening(masks=masks, keys=keys))
    with pytest.raises(ProtocolError, match=r"other shares than|not an element of the field"):
        scene.server.check(1, reply)
    # Four others are enough: the sum is opened without this member's shares.
    total = scene.server.step(scene.answers() | {1: reply}).total
    assert 1 in scene.server.refused
    np.testing.assert_array_equal(total, sum(duty.values for duty in scene.duties[:5]))


# Messages out of place


def test_a_saved_state_goes_on_with_its_own_key_only():
    scene = Scene().until(Stage.SHARE)
    saved = scene.clients[VICTIM].to_bytes()
    with pytest.raises(ProtocolError):
        SummationClient.from_bytes(saved, STRANGER, scene.duties[VICTIM])
    for place in range(0, len(saved), 7):
        with pytest.raises(ProtocolError):
            SummationClient.from_bytes(saved[:place], KEYS[VICTIM], scene.duties[VICTIM])


@pytest.mark.parametrize("stage", Stage)
def test_replies_out_of_place_are_set_aside(stage):
    """Replayed masked inputs and the like: of another session, sender, stage or recipient."""
    scene, old = Scene().until(stage), Scene(run=b"o" * 32).until(stage)
    replies = scene.answers()
    if stage == Stage.OPEN:
        old_reply = old.answers()[1]
        with pytest.raises(ProtocolError, match="another session or another plan"):
            scene.server.check(1, old_reply)
        return
    body = Envelope.from_bytes(replies[1]).body
    earlier = stage - 1
    elsewhere = COORDINATOR if stage in (Stage.ADVERTISE, Stage.AGREE) else EVERYONE
    for reply, match in (
        (old.answers()[1], "another session or another plan"),
        (replies[0], "from or to somebody else"),
        (scene.reply(1, body, stage=earlier), f"of stage {earlier} came where {stage.value} is"),
        (scene.reply(1, body, stage=stage + 1), "came where"),
        (scene.reply(1, body, recipient=elsewhere), "from or to somebody else"),
        (scene.reply(1, body, recipient=0), "from or to somebody else"),
        (replies[1][:-1], "not a message"),
        (replies[1] + b"\0", "not a message"),
        (b"", "not a message"),
    ):
        sets_aside(scene, 1, reply, match)
    scene.finish()


@pytest.mark.parametrize("forger", [BOSS, STRANGER, KEYS[0]], ids=["boss", "stranger", "member"])
@pytest.mark.parametrize("stage", [*Stage][:-1])
def test_replies_signed_by_others_are_set_aside(stage, forger):
    scene = Scene().until(stage)
    envelope = Envelope.from_bytes(scene.answers()[1])
    place = {"stage": stage, "session": scene.session, "recipient": envelope.recipient}
    reply = sealed(forger, 1, envelope.body, **place)
    sets_aside(scene, 1, reply, "not signed by the one who is said to send it")


def test_the_replies_of_a_stage_count_once():
    """A second masked input of one member would be added a second time."""
    scene = Scene().until(Stage.MASK)
    replies = list(scene.answers().items())
    scene.server.step([*replies, *replies, (99, replies[0][1]), (-1, replies[0][1])])
    scene.finish()


def test_a_reply_of_a_member_who_is_out_is_not_checked_in():
    """Who was silent before, or is not a member at all, cannot trip the server up."""
    scene = Scene(silent={5: Stage.ADVERTISE}).until(Stage.SHARE)
    late = scene.reply(5, scene.said(0))
    with pytest.raises(ProtocolError):
        scene.server.check(5, late)
    for nobody in (6, 99, -1):
        with pytest.raises(ProtocolError):
            scene.server.check(nobody, scene.answers()[0])
    assert 5 not in scene.server.step(scene.answers() | {5: late})
    scene.finish()


@pytest.mark.parametrize("stage", [*Stage][1:])
def test_requests_out_of_place_are_refused(stage):
    """Truncated, reordered, of another plan or session, for another member, by others."""
    scene, old = Scene().until(stage), Scene(run=b"o" * 32).until(stage)
    plan = Scene(plan_for(bins=3)).until(stage)
    request, body = scene.server.requests[VICTIM], scene.asked(VICTIM)
    place = {"stage": stage, "session": scene.session, "recipient": VICTIM}
    for lie, match in (
        (old.server.requests[VICTIM], "another session or another plan"),
        (plan.server.requests[VICTIM], "another session or another plan"),
        (scene.server.requests[0], "from or to somebody else"),
        (scene.request(VICTIM, body, recipient=EVERYONE), "from or to somebody else"),
        (sealed(BOSS, 0, body, **place), "from or to somebody else"),
        (sealed(STRANGER, COORDINATOR, body, **place), "not signed by the one"),
        (sealed(KEYS[0], COORDINATOR, body, **place), "not signed by the one"),
        (sealed(KEYS[VICTIM], COORDINATOR, body, **place), "not signed by the one"),
        (scene.request(VICTIM, body, stage=stage + 1), "came where|nothing left"),
        (scene.request(VICTIM, body, stage=stage - 1), "answered already"),
        (scene.request(VICTIM, body.to_bytes() + b"\0"), "not a message of kind"),
        (scene.request(VICTIM, b""), "not a message of kind"),
        (request[:-1], "not a message of kind"),
        (request + b"\0", "not a message of kind"),
        (scene.invitation.data + b"\0", "not a message of kind"),
        (scene.replied[stage - 1][VICTIM], "answered already"),
    ):
        refuses(scene.clients[VICTIM], lie, match)
    altered = bytearray(request)
    altered[-1] ^= 1  # of the signature
    refuses(scene.clients[VICTIM], bytes(altered), "not signed by the one")
    scene.finish()


def test_messages_of_another_version_are_refused():
    scene = Scene().until(Stage.SHARE)
    envelope = Envelope.from_bytes(scene.server.requests[VICTIM])
    for version in (0, 2, -1):
        lie = changed(envelope, version=version).to_bytes()
        refuses(scene.clients[VICTIM], lie, "version")


def test_messages_have_one_form():
    """The same content in other bytes would be another message with the same signature."""
    scene = Scene().until(Stage.SHARE)
    request = scene.server.requests[VICTIM]
    assert request[:2] == b"\x97\x01"
    longer = b"\x97\xcc\x01" + request[2:]  # the version in two bytes
    refuses(scene.clients[VICTIM], longer, "not in its one form")
    longer = b"\xdc\x00\x07" + request[1:]  # the number of fields in three
    refuses(scene.clients[VICTIM], longer, "not in its one form")


def test_an_invitation_is_signed_by_the_coordinator_it_names():
    scene = Scene()
    envelope = Envelope.from_bytes(scene.invitation.data)
    place = {"stage": Stage.ADVERTISE, "session": scene.session, "recipient": EVERYONE}
    for forger in (STRANGER, KEYS[0]):
        with pytest.raises(ProtocolError, match="not signed"):
            Invitation(sealed(forger, COORDINATOR, envelope.body, **place))
    for wrong, match in (
        ({"stage": Stage.SHARE}, "came where"),
        ({"recipient": 0}, "somebody else"),
        ({"session": b"s" * 32}, "another session"),
    ):
        with pytest.raises(ProtocolError, match=match):
            Invitation(sealed(BOSS, COORDINATOR, envelope.body, **(place | wrong)))


@pytest.mark.parametrize("change", ["unsorted", "twice", "short", "long"])
def test_members_of_an_invitation_have_one_order(change):
    """Two names for one member, or one name for two, would let it count twice."""
    scene = Scene()
    terms = Terms.from_bytes(Envelope.from_bytes(scene.invitation.data).body)
    members = terms.members
    members = {
        "unsorted": [members[1], members[0], *members[2:]],
        "twice": [members[0], *members],
        "short": [members[0][:-1], *members[1:]],
        "long": [*members[:-1], members[-1] + b"\0"],
    }[change]
    terms = changed(terms, members=members)
    session = session_id(terms.to_bytes())
    place = {"stage": Stage.ADVERTISE, "session": session, "recipient": EVERYONE}
    with pytest.raises(ProtocolError, match=r"sorted and distinct|wrong length"):
        Invitation(sealed(BOSS, COORDINATOR, terms, **place))


# What the server and its colluders know is not enough


def held_shares(scene, holders, about):
    """Shares of a member's own mask and of its key, as their holders have them."""
    held = {h: scene.secrets(h)["held"][about] for h in holders}
    return [{h + 1: share_from_bytes(pair[kind]) for h, pair in held.items()} for kind in (0, 1)]


def test_fewer_holders_than_the_threshold_learn_nothing():
    """Three of four: interpolating gives other numbers, four give the secret."""
    scene = Scene().until(Stage.AGREE)
    for member in range(6):
        scene.clients[member].receive(scene.server.requests[member])
    secrets = scene.secrets(VICTIM)
    real = [int.from_bytes(secrets[name], "little") for name in ("own_mask", "mask_key")]
    for holders in itertools.combinations((0, 1, 3, 4, 5), 4):
        for shares, secret in zip(held_shares(scene, holders, VICTIM), real, strict=True):
            assert join(shares) == secret
            for fewer in itertools.combinations(shares, 3):
                assert join({point: shares[point] for point in fewer}) != secret


@pytest.mark.parametrize("late", [False, True], ids=["in the sum", "left out"])
def test_a_single_input_stays_hidden_after_the_sum_is_opened(late):
    """The server, colluder 0 and all that is opened, about a victim in the sum or left out.

    Member 5 drops out before its input. The victim's own input is left out of the sum where
    it comes too late: the server has it all the same.
    """
    scene = Scene(silent={5: Stage.MASK}).until(Stage.MASK)
    secrets = [scene.secrets(m) for m in range(6)]
    words = scene.said(VICTIM).words
    if late:
        scene.silent[VICTIM] = Stage.MASK
    scene.until(Stage.OPEN)
    openings = {
        m: Opening.from_bytes(Envelope.from_bytes(reply).body)
        for m, reply in scene.answers().items()
    }
    threshold = scene.invitation.graph.threshold

    def recovered(kind, member):
        shares = {
            holder + 1: share_from_bytes(part.share)
            for holder, opening in openings.items()
            for part in getattr(opening, kind)
            if part.member == member
        }
        if len(shares) < threshold:
            assert not shares
            return None
        return join(dict(list(shares.items())[:threshold])).to_bytes(32, "little")

    own = recovered("masks", VICTIM)
    key = recovered("keys", VICTIM)
    assert (own, key) == (
        (None, secrets[VICTIM]["mask_key"]) if late else (secrets[VICTIM]["own_mask"], None)
    )
    known = {0: secrets[0]["mask_key"], 5: recovered("keys", 5)}
    assert known[5] == secrets[5]["mask_key"]
    public = [public_key(secret["mask_key"]) for secret in secrets]
    if late:  # with the victim's key every pair's mask is known
        pairs = [(m, key, public[m]) for m in (0, 1, 3, 4, 5)]
        missing = {"own": secrets[VICTIM]["own_mask"]}
    else:
        pairs = [(m, known[m], public[VICTIM]) for m in known]
        missing = {"own": own}
    values = scene.duties[VICTIM].values
    rest = stripped(words, VICTIM, scene.session, own=own, pairs=pairs)
    # Not one of four words is right but by chance: 4 in 2^32.
    assert not (rest == values).any()
    # What is missing is exactly the masks that nobody told.
    if not late:
        pairs += [(m, secrets[m]["mask_key"], public[VICTIM]) for m in (1, 3, 4)]
    rest = stripped(words, VICTIM, scene.session, pairs=pairs, **missing)
    np.testing.assert_array_equal(rest, values)
    scene.finish()
