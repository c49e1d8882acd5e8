"""Attacks on secure summation by asking again, and by dishonest members."""

import os

import numpy as np
import pytest
from masks import hkdf, public_key
from scene import KEYS, LOW_ORDER, VICTIM, Scene, changed, refuses, sealed, sets_aside

from fedgauge.errors import CohortTooSmall, ProtocolError
from fedgauge.protocol import EVERYONE, Envelope
from fedgauge.secagg import Stage, crypto
from fedgauge.secagg.messages import (
    Advertisement,
    Box,
    Opened,
    Opening,
    Peer,
    Quorum,
    Shares,
)
from fedgauge.secagg.shamir import PRIME, join, share_from_bytes, share_to_bytes

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
    refuses(scene.clients[VICTIM], lie, "not made for whom it came to")
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
