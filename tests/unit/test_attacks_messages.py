"""Attacks on secure summation by messages out of place."""

import msgspec
import pytest
from plans import small_plan
from scene import BOSS, KEYS, STRANGER, VICTIM, Scene, changed, refuses, sealed, sets_aside

from fedgauge.errors import ProtocolError
from fedgauge.protocol import COORDINATOR, EVERYONE, Envelope, session_id
from fedgauge.secagg import Invitation, Stage, SummationClient
from fedgauge.secagg.messages import (
    Terms,
)

pytestmark = pytest.mark.usefixtures("both_kinds")

# Messages out of place


def test_a_saved_state_goes_on_with_its_own_key_only():
    scene = Scene().until(Stage.SHARE)
    saved = scene.clients[VICTIM].to_bytes()
    with pytest.raises(ProtocolError):
        SummationClient.from_bytes(saved, STRANGER, scene.duties[VICTIM])
    for place in range(0, len(saved), 7):
        with pytest.raises(ProtocolError):
            SummationClient.from_bytes(saved[:place], KEYS[VICTIM], scene.duties[VICTIM])


def test_a_state_from_before_there_were_keys_of_noise_gets_one():
    """And never a key that everybody knows."""
    scene = Scene().until(Stage.SHARE)
    saved = msgspec.msgpack.decode(scene.clients[VICTIM].to_bytes())
    read = [SummationClient.from_bytes(msgspec.msgpack.encode(saved), KEYS[VICTIM], None)]
    del saved["noise_key"]
    for _ in range(2):
        read.append(SummationClient.from_bytes(msgspec.msgpack.encode(saved), KEYS[VICTIM], None))
    assert {len(client.noise_key) for client in read} == {32}
    assert len({client.noise_key for client in read}) == 3


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


def test_messages_of_another_version_are_refused():
    scene = Scene().until(Stage.SHARE)
    envelope = Envelope.from_bytes(scene.server.requests[VICTIM])
    for version in (0, 1, 2, 4, -1):
        lie = changed(envelope, version=version).to_bytes()
        refuses(scene.clients[VICTIM], lie, "version")


def test_messages_have_one_form():
    """The same content in other bytes would be another message with the same signature."""
    scene = Scene().until(Stage.SHARE)
    request = scene.server.requests[VICTIM]
    assert request[:2] == b"\x97\x03"
    longer = b"\x97\xcc\x03" + request[2:]  # the version in two bytes
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
