"""Attacks on secure summation by a coordinator: guessing secrets, isolating, different stories."""

import itertools
import os
from contextlib import suppress

import numpy as np
import pytest
import scipy.stats
from duties import Giving
from masks import public_key, stripped
from plans import small_plan
from scene import BOSS, KEYS, STRANGER, VICTIM, Scene, changed, refuses, sealed, sets_aside

from fedgauge import Axis, Cohort, EvaluationPlan
from fedgauge.errors import CohortTooSmall, PlanError, ProtocolError
from fedgauge.keys import SigningKey
from fedgauge.protocol import EVERYONE, Envelope, session_id
from fedgauge.secagg import Invitation, Stage, SummationClient, SummationServer, masking, messages
from fedgauge.secagg import secret_sharing as boxes_module
from fedgauge.secagg.graph import Graph, choose_graph
from fedgauge.secagg.messages import Advertisements, Masked, Peer, Quorum, Survivors, Vote
from fedgauge.secagg.secret_sharing import join, share_from_bytes

WEAK_GRAPHS = [
    *[(5, 3), (5, 1), (5, 0), (5, -1), (5, 7), (4, 4), (3, 3), (1, 1), (0, 1), (-5, 4)],
    *[(6, 4), (2**40, 4), (5, 2**40), (2**63, 4), (-(2**63), 4)],
]
# With a colluder, member 0, all of the victim's holders but too few are said to be gone.
ALONE = [(0, VICTIM), (0, 1, VICTIM), (VICTIM,)]
THREE = pytest.mark.parametrize("stage", [Stage.SHARE, Stage.MASK, Stage.AGREE])
pytestmark = pytest.mark.usefixtures("both_kinds")
STORIES = ["another plan", "another run", "another member", "another threshold"]


def test_secrets_are_32_bytes_of_the_operating_system(monkeypatch):
    """Masks from short seeds can be guessed: a mask of 28 bits takes seconds."""
    given = []

    def urandom(size, real=os.urandom):
        given.append(real(size))
        return given[-1]

    monkeypatch.setattr(os, "urandom", urandom)
    scene = Scene().until(Stage.MASK)
    names = ("mask_key", "box_key", "own_mask")
    found = [scene.secrets(m)[name] for m in range(6) for name in names]
    assert {len(secret) for secret in found} == {32}
    assert set(found) <= set(given)
    assert len(set(found)) == len(found)


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
    real_mask, real_seal = masking.mask, masking.seal

    def mask(key, *args):
        masks.append(key)
        return real_mask(key, *args)

    def seal(key, *args):
        boxes.append(key)
        return real_seal(key, *args)

    monkeypatch.setattr(masking, "mask", mask)
    monkeypatch.setattr(boxes_module, "seal", seal)
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
    openings = {m: scene.opening(reply) for m, reply in scene.answers().items()}
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


@pytest.mark.parametrize("graph", WEAK_GRAPHS, ids=str)
def test_a_graph_that_protects_too_little_is_refused(graph):
    """A low threshold or degree lets the server and a few colluders open a single input.

    Nobody joins, not even where nobody looked at the plan: no share may leave.
    """
    publics = [key.public for key in KEYS[:6]]
    invitation = Invitation.made(small_plan(), publics, BOSS, bytes(32), Graph(6, *graph))
    for look in (lambda: invitation.plan, lambda: SummationClient.join(invitation, KEYS[0], None)):
        with pytest.raises(ProtocolError, match="neighbours too few, or a threshold too low"):
            look()


def test_a_sparse_graph_that_protects_too_little_is_refused():
    publics = sorted(SigningKey.from_bytes(i.to_bytes(32, "big")).public for i in range(300))
    plan = small_plan(Cohort(100, 3))
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
        invitation = Invitation.made(small_plan(cohort), publics, BOSS, bytes(32), worse)
        with pytest.raises(ProtocolError, match="neighbours too few, or a threshold too low"):
            _ = invitation.plan


def story(scene, left):
    """What the victim hears where only these members are said to be left."""
    bitmap, asked = scene.bitmap(*left), scene.asked(VICTIM)
    if scene.server.stage == Stage.AGREE:
        return Survivors(survivors=bitmap, complaints=[])
    peers = [peer for peer in asked.peers if peer.member in left]
    if scene.server.stage == Stage.SHARE:
        return Advertisements(present=bitmap, peers=peers)
    boxes = [box for box in asked.boxes if box.member in left]
    return messages.Inbox(sharers=bitmap, peers=peers, boxes=boxes)


@pytest.mark.parametrize("left", ALONE)
@THREE
def test_a_victim_with_few_left_refuses(left, stage):
    scene = Scene().until(stage)
    lie = scene.request(VICTIM, story(scene, left))
    refuses(scene.clients[VICTIM], lie, "members are left", CohortTooSmall)
    assert scene.duties[VICTIM].asked == (stage == Stage.AGREE)
    assert scene.duties[VICTIM].agreed == []
    scene.finish()


@THREE
def test_a_victim_whose_neighbours_are_gone_refuses(sparse, stage):
    """Enough members in all, but two of the victim's four picks are said to be gone."""
    scene = sparse().until(stage)
    picked = sorted(scene.picked(VICTIM))
    for gone, refused in ((2, False), (3, True)):
        lie = scene.request(VICTIM, story(scene, set(range(10)) - {*picked[:gone]}))
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


def test_too_few_survivors_for_the_plan_and_strangers_are_refused():
    """Five are needed here, where the threshold alone would let four pass."""
    scene = Scene(small_plan(Cohort(5, 1))).until(Stage.AGREE)
    assert scene.invitation.graph.threshold == 4
    lie = scene.request(VICTIM, Survivors(survivors=scene.bitmap(0, 1, VICTIM, 3), complaints=[]))
    refuses(scene.clients[VICTIM], lie, "4 members are left and 5 are needed", CohortTooSmall)
    scene.finish()
    with pytest.raises(ProtocolError, match="not among the invited"):
        SummationClient.join(Scene().invitation, STRANGER, Giving(None))


@THREE
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
    lie = scene.request(VICTIM, Survivors(survivors=everyone, complaints=[]))
    refuses(scene.clients[VICTIM], lie, "said not to have shared")
    scene.finish()
    scene = Scene(silent={5: Stage.ADVERTISE}).until(Stage.MASK)
    lie = scene.request(VICTIM, changed(scene.asked(VICTIM), sharers=everyone))
    refuses(scene.clients[VICTIM], lie, "said to be absent")
    scene.finish()


@pytest.mark.parametrize("bitmap", [b"", b"\xfc\0", b"\xff", b"\xfe", b"\xfd"])
@THREE
def test_sets_have_one_form(stage, bitmap):
    """Two forms of one set would be two stories with the same meaning."""
    scene = Scene().until(stage)
    field = {2: "present", 3: "sharers", 4: "survivors"}[stage]
    lie = scene.request(VICTIM, changed(scene.asked(VICTIM), **{field: bitmap}))
    refuses(scene.clients[VICTIM], lie, "a set of members")


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


def other_scene(name):
    plan = {"another plan": small_plan(bins=3)}.get(name)
    run = {"another run": b"R" * 32}.get(name, b"r" * 32)
    graph = {"another threshold": Graph(6, 5, 5)}.get(name)
    members = {"another member": 7}.get(name, 6)
    return Scene(plan, run=run, graph=graph, members=members)


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
    scene = Scene()
    terms = messages.Terms.from_bytes(Envelope.from_bytes(scene.invitation.data).body)
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
    sessions = {session_id(changed(terms, **{f: new}).to_bytes()) for f, new in others.items()}
    assert len(sessions | {scene.session}) == 1 + len(others)


def test_members_refuse_a_peer_in_another_setting_also_after_a_restart():
    """Whose run is configured otherwise counts something else, whatever the server says."""
    scene = Scene(settings={5: b"o" * 32}).until(Stage.SHARE, refused={5})
    one = scene.clients[5].receive(scene.invitation.data)
    envelope = Envelope.from_bytes(one)
    roster = scene.asked(VICTIM)
    peers = [*roster.peers, Peer(5, envelope.body, envelope.signature)]
    lie = scene.request(VICTIM, Advertisements(present=scene.bitmap(*range(6)), peers=peers))
    refuses(scene.clients[VICTIM], lie, "configured otherwise")
    scene.clients[VICTIM] = scene.restored(VICTIM)
    scene.server = SummationServer.from_bytes(scene.server.to_bytes(), BOSS)
    assert scene.until(Stage.MASK, refused={5}).finish(refused={5}).survivors == (0, 1, 2, 3, 4)


@pytest.mark.parametrize("odd", [{0}, {5}, {2, 4}])
def test_a_server_goes_on_with_the_setting_of_most(odd):
    scene = Scene(settings=dict.fromkeys(odd, b"o" * 32)).until(Stage.SHARE, refused=odd)
    assert scene.server.requests.keys() == set(range(6)) - odd
    assert {scene.server.refused[m] for m in odd} == {"its run is configured otherwise."}


FORGERS = {
    "the old signature": None,
    "the coordinator's signature": BOSS,
    "a stranger's signature": STRANGER,
    "another member's signature": KEYS[0],
}


def swapped(scene, peer, field, forger, stage=Stage.ADVERTISE):
    """The advertisement of a peer with a key of the attacker in it."""
    body = changed(
        messages.Advertisement.from_bytes(peer.body), **{field: public_key(b"k" * 32)}
    ).to_bytes()
    signature = peer.signature
    if forger is not None:
        place = {"stage": stage, "session": scene.session, "recipient": EVERYONE}
        envelope = sealed(forger, peer.member, body, **place)
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
    scene = Scene().until(Stage.SHARE)
    known = scene.asked(VICTIM).peers[0]
    # Member 0 colludes: it signs a second advertisement itself.
    second = swapped(scene, known, "mask_key", KEYS[known.member])
    scene.until(Stage.MASK)
    inbox = scene.asked(VICTIM)
    lie = scene.request(VICTIM, changed(inbox, peers=[second]))
    refuses(scene.clients[VICTIM], lie, "were not asked for")
    scene.finish()


def test_keys_are_those_that_their_member_signed_as_keys():
    scene = Scene().until(Stage.SHARE)
    roster = scene.asked(VICTIM)
    first, second, *rest = roster.peers
    names = first.member, second.member
    peers = [changed(second, member=names[0]), changed(first, member=names[1]), *rest]
    lie = scene.request(VICTIM, changed(roster, peers=peers))
    refuses(scene.clients[VICTIM], lie, "not signed by that member")
    # What a member signed as a vote, for everyone too, is not taken for its keys.
    peer = roster.peers[0]
    forged = swapped(scene, peer, "mask_key", KEYS[peer.member], stage=Stage.AGREE)
    lie = scene.request(VICTIM, changed(roster, peers=[forged, *roster.peers[1:]]))
    refuses(scene.clients[VICTIM], lie, "not signed by that member")


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
    return messages.Ballot.from_bytes(Envelope.from_bytes(reply).body).vote


def votes(scene, survivors, voters):
    """Machines that were asked to agree to a list, and their signatures."""
    request = Survivors(survivors=scene.bitmap(*survivors), complaints=[])
    machines = {m: scene.restored(m) for m in voters}
    signed = {m: voted(each.receive(scene.request(m, request))) for m, each in machines.items()}
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
        votes = [Vote(m, s) for m, s in given.items()]
        body = Quorum(votes=votes, sharing=scene.sharing(member, range(5)))
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
