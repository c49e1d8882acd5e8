"""Complaints of boxes, and answers to them: what a coordinator sets aside, what a dealer refuses.

The first member complains of the victim's box without reason; what it says is altered.
"""

import os

import pytest
from hostile_member import false_complaint, turn
from plans import small_noisy_plan
from scene import KEYS, VICTIM, Scene, changed, refuses, sealed, sets_aside

import fedgauge as fg
from fedgauge.protocol import EVERYONE, Envelope
from fedgauge.secagg import Stage, shamir
from fedgauge.secagg.messages import Complaint, Opened, SealedOpening, complaint


@pytest.fixture(params=[None, small_noisy_plan()], ids=["exact", "noisy"])
def scene(request):
    """Where the complaint was made and not yet taken."""
    with pytest.MonkeyPatch.context() as turned:
        turn(turned, KEYS[0], [false_complaint()], peer=KEYS[VICTIM].public)
        scene = Scene(request.param).until(Stage.MASK)
        scene.answers()
    return scene


def word(scene, member, box):
    """A member's signature under a complaint."""
    body = complaint(scene.session, box)
    place = {"stage": Stage.MASK, "session": scene.session, "recipient": EVERYONE}
    return Envelope.from_bytes(sealed(KEYS[member], member, body, **place)).signature


def twice(_scene, said):
    return [said, said]


def of_another_box(scene, said):
    box = os.urandom(32)
    return [changed(said, box=box, signature=word(scene, 0, box))]


def of_another_dealer(_scene, said):
    return [changed(said, member=4)]


def of_itself(_scene, said):
    return [changed(said, member=0)]


def unsigned(scene, said):
    return [changed(said, signature=word(scene, 1, said.box))]


@pytest.mark.parametrize(
    ("alter", "why"),
    [
        (twice, "complains twice"),
        (of_another_box, "was not sent"),
        (of_another_dealer, "was not sent"),
        (of_itself, "was not sent"),
        (unsigned, "did not sign"),
    ],
)
def test_a_coordinator_sets_aside_what_is_no_complaint(scene, alter, why):
    masked = scene.said(0)
    (said,) = masked.complaints
    assert said.member == VICTIM
    reply = scene.reply(0, changed(masked, complaints=alter(scene, said)))
    sets_aside(scene, 0, reply, why)


def is_refused(scene, member, body, why):
    with pytest.raises(fg.ProtocolError, match=why):
        scene.server.check(member, scene.reply(member, body))


def test_a_coordinator_sets_aside_what_is_no_answer(scene):
    scene.until(Stage.AGREE)
    ballot = scene.said(VICTIM)
    (said,) = ballot.answers
    for answers in ([], [said, said], [said, changed(said, member=1)], [changed(said, member=1)]):
        is_refused(scene, VICTIM, changed(ballot, answers=answers), "does not answer the compl")
    other = changed(said, box_key=os.urandom(32))
    is_refused(scene, VICTIM, changed(ballot, answers=[other]), "sealed a box for another key")
    is_refused(scene, VICTIM, changed(ballot, vote=scene.said(1).vote), "did not sign")


def asks(scene, *complaints):
    asked = changed(scene.asked(VICTIM), complaints=list(complaints))
    return scene.request(VICTIM, asked)


def test_a_dealer_answers_to_whom_it_dealt_alone(scene):
    scene.until(Stage.AGREE)
    (said,) = scene.asked(VICTIM).complaints
    client = scene.restored(VICTIM)
    refuses(client, asks(scene, said, said), "comes twice")
    not_dealt = "not from a holder of this site's shares"
    refuses(client, asks(scene, changed(said, member=1)), not_dealt)
    refuses(client, asks(scene, changed(said, signature=word(scene, 1, said.box))), not_dealt)
    mine = Complaint(VICTIM, said.box, word(scene, VICTIM, said.box))
    refuses(client, asks(scene, mine), not_dealt)
    box = os.urandom(32)
    other = Complaint(0, box, word(scene, 0, box))
    refuses(client, asks(scene, other), "given another box than this site sent")
    refuses(client, asks(scene, said, changed(other, member=1)), not_dealt)
    client.receive(asks(scene, said))


def test_what_a_member_opens_is_under_its_signature(scene):
    """Else a wrong share could not be shown to be its own."""
    scene.until(Stage.OPEN)
    told = scene.said(1)
    assert {part.member for part in told.masks} == set(range(6))
    assert {part.member for part in scene.said(0).masks} == set(range(6)) - {VICTIM}
    high = Opened(told.masks[0].member, shamir.PRIME.to_bytes(33, "little"))
    is_refused(scene, 1, changed(told, masks=[high, *told.masks[1:]]), "not an element of the fi")
    more = Opened(VICTIM, told.masks[0].share)
    first = scene.said(0)
    is_refused(scene, 0, changed(first, masks=[*first.masks, more]), "opens other shares than")
    unsigned = changed(told, signature=first.signature)
    sealed_up = SealedOpening.of(unsigned, scene.invitation, 1, scene.box_keys[1])
    is_refused(scene, 1, sealed_up, "did not sign")
