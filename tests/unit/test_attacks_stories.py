"""Attacks on secure summation by telling members different stories or the keys of others."""

import itertools

import pytest
from masks import public_key
from plans import small_plan
from scene import (
    BOSS,
    KEYS,
    STRANGER,
    VICTIM,
    Scene,
    changed,
    refuses,
    sealed,
    sets_aside,
)

from fedgauge.protocol import EVERYONE, Envelope, session_id
from fedgauge.secagg import Stage, SummationServer
from fedgauge.secagg.graph import Graph
from fedgauge.secagg.messages import (
    Advertisement,
    Peer,
    Roster,
    Terms,
)

pytestmark = pytest.mark.usefixtures("both_kinds")

# Different stories for different members


def other_scene(name):
    plan = {"another plan": small_plan(bins=3)}.get(name)
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
        "model": b"m" * 32,
        "box": b"b" * 32,
    }
    assert others.keys() == set(terms.__struct_fields__)
    sessions = {
        session_id(changed(terms, **{field: new}).to_bytes()) for field, new in others.items()
    }
    assert len(sessions | {scene.session}) == 1 + len(others)


# Different settings


def test_members_refuse_a_peer_in_another_setting():
    """Whose run is configured otherwise counts something else, whatever the server says."""
    scene = Scene(settings={5: b"o" * 32}).until(Stage.SHARE, refused={5})
    one = scene.clients[5].receive(scene.invitation.data)
    envelope = Envelope.from_bytes(one)
    roster = scene.asked(VICTIM)
    peers = [*roster.peers, Peer(5, envelope.body, envelope.signature)]
    lie = scene.request(VICTIM, Roster(present=scene.bitmap(*range(6)), peers=peers))
    refuses(scene.clients[VICTIM], lie, "configured otherwise")


@pytest.mark.parametrize("odd", [{0}, {5}, {2, 4}])
def test_a_server_goes_on_with_the_setting_of_most(odd):
    scene = Scene(settings=dict.fromkeys(odd, b"o" * 32)).until(Stage.SHARE, refused=odd)
    assert scene.server.requests.keys() == set(range(6)) - odd
    assert {scene.server.refused[m] for m in odd} == {"its run is configured otherwise."}


def test_a_setting_outlives_a_restart():
    scene = Scene(settings={5: b"o" * 32}).until(Stage.SHARE, refused={5})
    scene.clients[VICTIM] = scene.restored(VICTIM)
    scene.server = SummationServer.from_bytes(scene.server.to_bytes(), BOSS)
    assert scene.until(Stage.MASK, refused={5}).finish(refused={5}).survivors == (0, 1, 2, 3, 4)


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
