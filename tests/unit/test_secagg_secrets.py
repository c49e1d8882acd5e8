"""Attacks on secrets of secure summation: guessing them, and putting together what is known."""

import itertools
import os

import numpy as np
import pytest
import scipy.stats
from duties import Giving
from masks import public_key, stripped
from plans import small_plan
from scene import BOSS, KEYS, STRANGER, VICTIM, Scene, changed, refuses

from fedgauge import Axis, Cohort, EvaluationPlan
from fedgauge.errors import CohortTooSmall, PlanError, ProtocolError
from fedgauge.keys import SigningKey
from fedgauge.protocol import Envelope
from fedgauge.secagg import Invitation, Stage, SummationClient, masking
from fedgauge.secagg import secret_sharing as boxes_module
from fedgauge.secagg.graph import Graph, choose_graph
from fedgauge.secagg.messages import Advertisements, Inbox, Masked, Survivors
from fedgauge.secagg.secret_sharing import join, share_from_bytes

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
    derived = {masking.derive(secret.to_bytes(32, "big"), session=b"s", purpose=b"p")}
    for bit in range(256):
        other = (secret ^ 1 << bit).to_bytes(32, "big")
        derived.add(masking.derive(other, session=b"s", purpose=b"p"))
    assert len(derived) == 257
    assert {len(key) for key in derived} == {32}


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


# Isolating a victim


WEAK_GRAPHS = [
    *[(5, 3), (5, 1), (5, 0), (5, -1), (5, 7), (4, 4), (3, 3), (1, 1), (0, 1), (-5, 4)],
    *[(6, 4), (2**40, 4), (5, 2**40), (2**63, 4), (-(2**63), 4)],
]


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


def test_a_stranger_cannot_join():
    with pytest.raises(ProtocolError, match="not among the invited"):
        SummationClient.join(Scene().invitation, STRANGER, Giving(None))


# With a colluder, member 0, all of the victim's holders but too few are said to be gone.
ALONE = [(0, VICTIM), (0, 1, VICTIM), (VICTIM,)]


def story(scene, left):
    """What the victim hears where only these members are said to be left."""
    bitmap, asked = scene.bitmap(*left), scene.asked(VICTIM)
    if scene.server.stage == Stage.AGREE:
        return Survivors(survivors=bitmap, complaints=[])
    peers = [peer for peer in asked.peers if peer.member in left]
    if scene.server.stage == Stage.SHARE:
        return Advertisements(present=bitmap, peers=peers)
    boxes = [box for box in asked.boxes if box.member in left]
    return Inbox(sharers=bitmap, peers=peers, boxes=boxes)


THREE = pytest.mark.parametrize("stage", [Stage.SHARE, Stage.MASK, Stage.AGREE])


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
    scene = Scene(small_plan(Cohort(5, 1))).until(Stage.AGREE)
    assert scene.invitation.graph.threshold == 4
    lie = scene.request(VICTIM, Survivors(survivors=scene.bitmap(0, 1, VICTIM, 3), complaints=[]))
    refuses(scene.clients[VICTIM], lie, "4 members are left and 5 are needed", CohortTooSmall)
    scene.finish()


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
