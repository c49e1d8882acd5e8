"""Attacks on secure summation by asking again, and by dishonest members."""

import os

import msgspec
import numpy as np
import pytest
from masks import hkdf, public_key
from plans import small_plan
from scene import (
    BOSS,
    KEYS,
    LOW_ORDER,
    STRANGER,
    VICTIM,
    Scene,
    changed,
    refuses,
    sealed,
    sets_aside,
)

from fedgauge.errors import CohortTooSmall, ProtocolError
from fedgauge.protocol import COORDINATOR, EVERYONE, Envelope
from fedgauge.secagg import Stage, SummationClient, masking
from fedgauge.secagg.messages import Advertisement, Masked, Opened, Opening, Peer, Quorum, Shares
from fedgauge.secagg.secret_sharing import PRIME, Box, SharePair, share_from_bytes, share_to_bytes


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


def test_no_key_nonce_or_noise_is_used_twice():
    """A state put back from a copy seals other shares under the same keys."""
    scene = Scene().until(Stage.SHARE)
    roster = scene.asked(VICTIM)
    nonces = []
    for peers in (roster.peers, roster.peers[::-1]):
        reply = scene.restored(VICTIM).receive(scene.request(VICTIM, changed(roster, peers=peers)))
        boxes = Shares.from_bytes(Envelope.from_bytes(reply).body).boxes
        nonces += [box.sealed[:12] for box in boxes]
    assert len(set(nonces)) == len(nonces) == 10
    # And never a key that everybody knows.
    saved = msgspec.msgpack.decode(scene.clients[VICTIM].to_bytes())
    keys = [client.noise_key for client in scene.clients]
    assert {len(key) for key in keys} == {32}
    assert len({*keys}) == len(keys)
    del saved["noise_key"]
    with pytest.raises(ProtocolError, match="cannot be read"):
        SummationClient.from_bytes(msgspec.msgpack.encode(saved), KEYS[VICTIM], None)


def test_nothing_secret_is_kept_after_opening():
    """A state stolen later must not open what was masked then."""
    scene = Scene(silent={5: Stage.MASK}).until(Stage.OPEN)
    before = scene.secrets(0)
    state = scene.clients[0].to_bytes()
    keys = [before[name] for name in ("mask_key", "box_key", "own_mask")]
    shares = {share for pair in before["held"].values() for share in pair}
    assert len(shares) == 12
    assert all(secret in state for secret in (*keys, *shares))
    opening = scene.opening(scene.clients[0].receive(scene.server.requests[0]))
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


def altered(scene, member, kind, place):
    opening = scene.said(member)
    parts = list(getattr(opening, kind))
    # Not just 1 more: X25519 keys that differ in their lowest bits are the same.
    share = (share_from_bytes(parts[place].share) + 2**200) % PRIME
    parts[place] = Opened(parts[place].member, share_to_bytes(share))
    return scene.reply(member, changed(opening, **{kind: parts}))


@pytest.mark.parametrize("kind", ["masks", "keys"])
@pytest.mark.parametrize("place", [0, -1])
def test_a_wrong_share_is_left_out_and_its_holder_named(kind, place):
    """A sum under a mask taken off wrongly would be any number that a member likes."""
    scene = Scene(silent={5: Stage.MASK}).until(Stage.OPEN)
    replies = scene.answers() | {0: altered(scene, 0, kind, place)}
    total = scene.server.step(replies).total
    np.testing.assert_array_equal(total, sum(duty.values for duty in scene.duties[:5]))
    assert [(fault.member, fault.proved) for fault in scene.server.faults] == [(0, True)]
    assert "another share than it was dealt" in scene.server.blame[0]


def test_too_many_wrong_shares_give_no_sum():
    scene = Scene(silent={5: Stage.MASK}).until(Stage.OPEN)
    replies = scene.answers() | {member: altered(scene, member, "masks", 3) for member in (0, 1)}
    before = scene.server.requests[0]
    with pytest.raises(CohortTooSmall, match="3 shares of a member's secret came and 4") as caught:
        scene.server.step(replies)
    assert {fault.member for fault in scene.server.faults} == {0, 1}
    assert str(caught.value).count("opened another share") == 2
    assert scene.server.requests[0] == before  # the step left no trace


def test_a_mask_other_than_the_one_committed_to_gives_no_sum():
    """A member could choose among several masks, and so among several sums, at the end."""
    scene = Scene().until(Stage.SHARE)
    replies = scene.answers()
    shares = Shares.from_bytes(Envelope.from_bytes(replies[5]).body)
    wrong = masking.commitment(bytes(32), scene.session)
    replies[5] = scene.reply(5, changed(shares, commitment=wrong))
    scene.server.step(replies)
    scene.until(Stage.OPEN)
    with pytest.raises(ProtocolError, match="dealt shares that do not belong together"):
        scene.server.step(scene.answers())
    assert [fault.member for fault in scene.server.faults] == [5]


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
@pytest.mark.parametrize(
    "junk",
    [
        *("empty", "random", "flipped", "another's", "reflected", "old"),
        *("low order", "other checks"),
    ],
)
def test_a_junk_box_does_not_stop_who_got_it(junk, place):
    """Boxes altered, made for somebody else, or of another session.

    Who could make a peer stop by one would choose who is in the sum.
    """
    scene, other = Scene().until(Stage.MASK), Scene(run=b"o" * 32).until(Stage.MASK)
    inbox = scene.asked(VICTIM)
    box = inbox.boxes[place]
    reflected = next(b for b in scene.asked(box.member).boxes if b.member == VICTIM)
    junk_box = {
        "empty": changed(box, sealed=b""),
        "random": changed(box, sealed=os.urandom(len(box.sealed))),
        "flipped": changed(box, sealed=bytes([box.sealed[0] ^ 1]) + box.sealed[1:]),
        "another's": changed(inbox.boxes[1], member=box.member),
        "reflected": changed(reflected, member=box.member),
        "old": other.asked(VICTIM).boxes[place],
        "low order": changed(box, key=bytes(32)),
        "other checks": changed(box, checks=bytes(64)),
    }[junk]
    boxes = [*inbox.boxes[:place], junk_box, *inbox.boxes[place + 1 :]]
    lie = scene.request(VICTIM, changed(inbox, boxes=boxes))
    machine = scene.restored(VICTIM)
    reply = machine.receive(lie)
    masked = Masked.from_bytes(Envelope.from_bytes(reply).body)
    assert [said.member for said in masked.complaints] == [box.member]
    assert machine.unopened == (KEYS[box.member].public,)
    # The coordinator, who altered it, cannot use what the victim signed against the dealer.
    sets_aside(scene, VICTIM, reply, "did not sign what it was told")
    scene.finish()


@pytest.mark.parametrize("length", [0, 33, 65, 67, 99])
def test_a_box_holds_two_shares(length):
    scene = Scene().until(Stage.MASK)
    inbox = scene.asked(VICTIM)
    key = masking.AgreementKey(os.urandom(32))
    about = b"box 0 %d" % VICTIM
    secret = key.agree(public_key(scene.secrets(VICTIM)["box_key"]))
    sealed_with = hkdf(secret, scene.session, b"fedgauge " + about)
    content = masking.seal(sealed_with, bytes(length), scene.session + about)
    shares = SharePair(bytes(33)[:length], bytes(max(0, length - 33)))
    box = Box(0, key.public, content, shares.checks(scene.session, 0, VICTIM))
    lie = scene.request(VICTIM, changed(inbox, boxes=[box, *inbox.boxes[1:]]))
    scene.clients[VICTIM].receive(lie)
    assert scene.clients[VICTIM].unopened == (KEYS[0].public,)


@pytest.mark.parametrize("boxes", ["twice", "from itself", "from nobody", "from a negative"])
def test_boxes_come_once_and_from_sharers(boxes):
    scene = Scene().until(Stage.MASK)
    inbox = scene.asked(VICTIM)
    member = {"twice": 0, "from itself": VICTIM, "from nobody": 6, "from a negative": -1}[boxes]
    more = [*inbox.boxes, changed(inbox.boxes[0], member=member)]
    lie = scene.request(VICTIM, changed(inbox, boxes=more))
    refuses(scene.clients[VICTIM], lie, "twice or from members who did not share")


@pytest.mark.parametrize("change", ["another", "more", "fewer", "twice", "nobody", "itself"])
def test_shares_for_others_than_the_picks_are_set_aside(sparse, change):
    """A member may choose its holders by its seed only, which it could not choose."""
    scene = sparse().until(Stage.SHARE)
    shares, picked = scene.said(5), scene.picked(5)
    box, *rest = shares.boxes
    stranger = changed(box, member=min(set(range(10)) - picked - {5}))
    boxes = {
        "another": [stranger, *rest],
        "more": [*shares.boxes, stranger],
        "fewer": rest,
        "twice": [*shares.boxes, box],
        "nobody": [changed(box, member=10), *rest],
        "itself": [changed(box, member=5), *rest],
    }[change]
    reply = scene.reply(5, changed(shares, boxes=boxes))
    sets_aside(scene, 5, reply, "not for the neighbours that were picked")


@pytest.mark.parametrize("more", [-20, -1, 1, 100_000])
def test_shares_of_another_size_are_set_aside(more):
    """Who sends boxes that nobody could open drops out at once."""
    scene = Scene().until(Stage.SHARE)
    shares = scene.said(5)
    box, *rest = shares.boxes
    boxes = [changed(box, sealed=bytes(len(box.sealed) + more)), *rest]
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
    reply = scene.reply(1, Opening(masks=masks, keys=keys, signature=b""))
    with pytest.raises(ProtocolError, match=r"other shares than|not an element of the field"):
        scene.server.check(1, reply)
    # Four others are enough: the sum is opened without this member's shares.
    total = scene.server.step(scene.answers() | {1: reply}).total
    assert 1 in scene.server.refused
    np.testing.assert_array_equal(total, sum(duty.values for duty in scene.duties[:5]))


pytestmark = pytest.mark.usefixtures("both_kinds")


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
    scene, old = Scene().until(stage), Scene(run=b"o" * 32).until(stage)
    replies = scene.answers()
    if stage == Stage.OPEN:
        old_reply = old.answers()[1]
        with pytest.raises(ProtocolError, match="another session or another plan"):
            scene.server.check(1, old_reply)
        return
    body = Envelope.from_bytes(replies[1]).body
    earlier = stage - 1
    elsewhere = COORDINATOR if stage == Stage.ADVERTISE else EVERYONE
    for reply, match in (
        (old.answers()[1], "another session or another plan"),
        (replies[0], "from or to somebody else"),
        (scene.reply(1, body, stage=earlier), f"of stage {earlier} came where {stage.value} is"),
        (scene.reply(1, body, stage=stage + 1), "came where"),
        (scene.reply(1, body, recipient=elsewhere), "from or to somebody else"),
        (scene.reply(1, body, recipient=0), "from or to somebody else"),
        (replies[1][:-1], "its end is missing"),
        (replies[1] + b"\0", "not a message"),
        (b"", "its end is missing"),
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


def test_replies_count_once_and_from_members_who_are_in():
    """A second masked input of one member would be added a second time."""
    scene = Scene().until(Stage.MASK)
    replies = list(scene.answers().items())
    scene.server.step([*replies, *replies, (99, replies[0][1]), (-1, replies[0][1])])
    scene.finish()
    # Who was silent before, or is not a member at all, cannot trip the server up.
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
    scene, old = Scene().until(stage), Scene(run=b"o" * 32).until(stage)
    plan = Scene(small_plan(bins=3)).until(stage)
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
        (scene.request(VICTIM, b""), "its end is missing"),
        (request[:-1], "its end is missing"),
        (request + b"\0", "not a message of kind"),
        (scene.invitation.data + b"\0", "not a message of kind"),
        (scene.replied[stage - 1][VICTIM], "answered already"),
    ):
        refuses(scene.clients[VICTIM], lie, match)
    altered = bytearray(request)
    altered[-1] ^= 1  # of the signature
    refuses(scene.clients[VICTIM], bytes(altered), "not signed by the one")
    scene.finish()
