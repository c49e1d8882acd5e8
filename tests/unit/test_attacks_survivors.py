"""Attacks on secure summation by calling a member alive to some and dead to others."""

import itertools
from contextlib import suppress

import pytest
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

from fedgauge.errors import CohortTooSmall, ProtocolError
from fedgauge.protocol import EVERYONE, Envelope
from fedgauge.secagg import Stage
from fedgauge.secagg.messages import (
    Ballot,
    Masked,
    Quorum,
    Survivors,
    Vote,
)

pytestmark = pytest.mark.usefixtures("both_kinds")

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
