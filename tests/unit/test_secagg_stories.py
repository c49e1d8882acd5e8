"""Attacks on secure summation by telling members different stories or the keys of others."""

import itertools
from contextlib import suppress

import pytest
from masks import public_key
from plans import small_plan
from scene import BOSS, KEYS, STRANGER, VICTIM, Scene, changed, refuses, sealed, sets_aside

from fedgauge.errors import CohortTooSmall, ProtocolError
from fedgauge.protocol import EVERYONE, Envelope, session_id
from fedgauge.secagg import Stage, SummationServer
from fedgauge.secagg.graph import Graph
from fedgauge.secagg.messages import (
    Advertisement,
    Advertisements,
    Ballot,
    Masked,
    Peer,
    Quorum,
    Survivors,
    Terms,
    Vote,
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
    lie = scene.request(VICTIM, Advertisements(present=scene.bitmap(*range(6)), peers=peers))
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


# Alive to some, dead to others


def test_a_vote_is_cast_once():
    """The victim alive in one list and dead in another would give both of its secrets."""
    scene = Scene().until(Stage.AGREE)
    client, first = scene.clients[0], scene.server.requests[0]
    second = scene.request(0, Survivors(survivors=scene.bitmap(0, 1, 3, 4, 5), complaints=[]))
    vote = client.receive(first)
    for machine in (client, scene.restored(0)):
        refuses(machine, second, "answered already")
        assert machine.receive(first) == vote
    assert len(scene.duties[0].agreed) == 1


def test_nobody_opens_both_secrets_of_one_member():
    """Shares of the own mask for survivors, of the key for those who dropped out."""
    scene = Scene(silent={5: Stage.MASK}).until(Stage.OPEN)
    for reply in scene.answers().values():
        opening = scene.opening(reply)
        assert [part.member for part in opening.masks] == [0, 1, 2, 3, 4]
        assert [part.member for part in opening.keys] == [5]
    scene.finish()


def voted(reply):
    """A member's signature under the survivors."""
    return Ballot.from_bytes(Envelope.from_bytes(reply).body).vote


def votes(scene, survivors, voters):
    """Machines that were asked to agree to a list, and their signatures."""
    request = Survivors(survivors=scene.bitmap(*survivors), complaints=[])
    machines = {m: scene.restored(m) for m in voters}
    signed = {
        m: voted(machine.receive(scene.request(m, request))) for m, machine in machines.items()
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
    """Every way to tell the five honest members one of two lists, with a colluder for both.

    An exact sum opens only where everybody in it was told the same.
    """
    scene = Scene().until(Stage.AGREE)
    lists = (range(6), (0, 1, 3, 4, 5))  # with the victim and without it
    needed = (3, 3) if scene.plan.is_noisy else (5, 4)  # besides the colluder
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
            assert bool(results[0]) == (len(told[0]) >= needed[0])
            assert bool(results[1]) == (len(told[1]) >= needed[1])
    assert splits == 16


def test_votes_for_another_list_do_not_count():
    """Half the members are told one list, half another: nobody opens."""
    scene = Scene().until(Stage.AGREE)
    groups = [((0, 1, 2, 3, 4, 5), (0, 1, 2)), ((0, 1, 3, 4, 5), (3, 4, 5))]
    (ones, first), (twos, second) = (votes(scene, *group) for group in groups)
    for member, machine in (ones | twos).items():
        same, different = (first, second) if member in first else (second, first)
        survivors = groups[member not in first][0]
        sharing = scene.sharing(member, survivors)
        others = {*survivors} - {member}
        mixed = [Vote(m, s) for m, s in sorted((same | different).items()) if m in others]
        lie = scene.request(member, Quorum(votes=mixed, sharing=sharing), stage=Stage.OPEN)
        refuses(machine, lie, "did not vote for the same survivors")
        honest = [Vote(m, s) for m, s in sorted(same.items()) if m in others]
        lie = scene.request(member, Quorum(votes=honest, sharing=sharing), stage=Stage.OPEN)
        refuses(machine, lie, "holders agree", CohortTooSmall)


def test_an_exact_sum_needs_the_vote_of_everybody_in_it():
    """One member that refuses stops it, however many others vote; noise protects without that."""
    scene = Scene(silent={5: Stage.MASK, VICTIM: Stage.AGREE}).until(Stage.AGREE)
    before = scene.server.to_bytes()
    if scene.plan.is_noisy:
        assert scene.finish().survivors == (0, 1, 2, 3, 4)
        return
    with pytest.raises(CohortTooSmall, match="4 members answered and 5 are needed"):
        scene.server.step(scene.answers())
    assert scene.server.to_bytes() == before
    # Nor does a member open when the server goes on all the same.
    replies = scene.answers()
    for member, reply in replies.items():
        given = {m: Envelope.from_bytes(r).signature for m, r in replies.items() if m != member}
        body = Quorum(
            votes=[Vote(m, s) for m, s in given.items()], sharing=scene.sharing(member, range(5))
        )
        lie = scene.request(member, body, stage=Stage.OPEN)
        refuses(scene.clients[member], lie, "4 holders agree .* 5 are needed", CohortTooSmall)
        assert reply


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
    body = scene.agreed(0)
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
    body = scene.agreed(0)
    dropped = Envelope.from_bytes(sealed(KEYS[5], 5, body, **place)).signature
    extra = {
        "twice": [one],
        "own": [Vote(0, scene.vote(0))],
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
    sets_aside(scene, VICTIM, reply, "did not sign what it was told")
