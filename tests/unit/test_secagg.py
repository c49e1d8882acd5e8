"""Messages of a secure sum: sets of members, advertisements, invitations."""

import hashlib
import itertools
import math
import struct
from contextlib import nullcontext

import msgspec
import numpy as np
import pytest
from consortium import Consortium
from hypothesis import given
from hypothesis import strategies as st
from plans import noisy_plan
from refusals import refused
from scene import KEYS, Scene, changed
from sites import open_policy

from fedgauge import Axis, protocol
from fedgauge.engines.participant import Participant, SiteDuties
from fedgauge.errors import CohortTooSmall, PlanError, PlanRefused, ProtocolError
from fedgauge.keys import SigningKey
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy import Cohort
from fedgauge.protocol import COORDINATOR, EVERYONE, Envelope, session_id
from fedgauge.secagg import messages
from fedgauge.secagg.graph import MOST_MEMBERS, choose_graph
from fedgauge.secagg.messages import Invitation, Stage, Terms, from_bitmap, to_bitmap
from fedgauge.site import Site, create_site
from fedgauge.site.ledger_entries import SumRoster

KEY = SigningKey.from_bytes(b"k" * 32)
OTHER = SigningKey.from_bytes(b"o" * 32)
PLAN = EvaluationPlan.for_histogram(Axis.uniform(4), Cohort(3, 1))
MEMBERS = sorted(SigningKey.from_bytes(bytes([i] * 32)).public for i in range(5))
GRAPH = choose_graph(5, PLAN.cohort)
INVITATION = Invitation.made(PLAN, MEMBERS, KEY, b"r" * 32, GRAPH)
ENVELOPE = Envelope.from_bytes(INVITATION.data)
TERMS = Terms.from_bytes(ENVELOPE.body)
pytestmark = pytest.mark.usefixtures("both_kinds")
every_stage = pytest.mark.parametrize("stage", Stage)
PLACE = {"session": b"s" * 32, "stage": 3, "sender": 2}
SEALED = Envelope.sealed(KEY, **PLACE, recipient=COORDINATOR, body=b"body")


@given(data=st.data())
def test_sets_travel_as_bitmaps(data):
    count = data.draw(st.integers(1, 70))
    members = data.draw(st.frozensets(st.integers(0, count - 1)))
    sent = to_bitmap(members, count)
    assert len(sent) == -(-count // 8)
    assert from_bitmap(sent, count) == members


def test_the_first_member_is_the_first_bit():
    assert to_bitmap([0], 9) == b"\x80\x00"
    assert to_bitmap([8], 9) == b"\x00\x80"
    assert to_bitmap(iter([0, 7]), 9) == b"\x81\x00"
    assert to_bitmap([], 9) == b"\x00\x00"
    assert from_bitmap(b"\xff\x80", 9) == set(range(9))


@pytest.mark.parametrize("count", [1, 7, 8, 9, 15, 16, 17])
def test_a_bitmap_has_one_length_and_names_nobody_beyond_the_members(count):
    right = to_bitmap([], count)
    for length in {0, len(right) - 1, len(right) + 1, len(right) + 8}:
        refused(ProtocolError, "wrong length", from_bitmap, bytes(length), count)
    for beyond in range(count, 8 * len(right)):
        wrong = np.arange(8 * len(right)) == beyond
        refused(ProtocolError, "do not exist", from_bitmap, np.packbits(wrong).tobytes(), count)


def test_sets_and_agreements_before_and_after_masking_differ():
    told = {}
    for session, *sets in itertools.product([b"s" * 32, b"t" * 32], *[[b"\x80", b"\xc0"]] * 4):
        told[messages.agreement(session, *sets).told] = (session, *sets)
    assert len(told) == 32
    assert {len(digest) for digest in told} == {32}
    # Sets of several lengths are not run together.
    parts = (b"ab", b"c", b"d", b"e"), (b"a", b"bc", b"d", b"e")
    assert len({messages.agreement(b"s" * 32, *each).told for each in parts}) == 2
    parts = (b"s" * 32, b"\x80", b"\xc0")
    others = [(b"t" * 32, *parts[1:]), (parts[0], b"\x81", parts[2]), (*parts[:2], b"\xc1")]
    told = {messages.sharing(*p).told for p in (parts, *others)}
    assert len(told) == 4
    assert messages.agreement(*parts, b"", b"").told not in told
    digests = b"".join(hashlib.sha256(members).digest() for members in parts[1:])
    expected = hashlib.sha256(b"fedgauge sharing\0" + parts[0] + digests).digest()
    assert messages.sharing(*parts).told == expected


def advertised(**fields):
    keys = {"mask_key": OTHER.public, "box_key": KEY.public, "seed": b"s" * 16, "setting": b""}
    return messages.Advertisement(**keys | fields)


@pytest.mark.parametrize("length", [1, 31, 33, 64])
def test_an_advertised_setting_is_a_digest_or_nothing(length):
    advertised(setting=b"d" * 32).check()
    refused(ProtocolError, "setting", advertised(setting=bytes(length)).check)


def proposed(terms, key=KEY, **place):
    """An invitation with other terms, rightly signed by the coordinator it names."""
    body = terms if isinstance(terms, bytes) else terms.to_bytes()
    place = {
        "session": session_id(body),
        "stage": Stage.ADVERTISE,
        "sender": COORDINATOR,
        "recipient": EVERYONE,
    } | place
    return Envelope.sealed(key, **place, body=body).to_bytes()


def test_an_invitation_says_what_it_invites_to():
    arrived = Invitation(INVITATION.data)
    assert arrived.plan == PLAN
    assert arrived.members == MEMBERS
    assert arrived.coordinator == KEY.public
    assert arrived.graph == GRAPH == (5, 4, 4)
    assert arrived.session == INVITATION.session
    assert arrived.data == INVITATION.data
    assert arrived.bits == 64
    assert arrived.model == b""
    named = Invitation.made(PLAN, MEMBERS, KEY, b"r" * 32, GRAPH, model=b"m" * 32)
    assert Invitation(named.data).model == b"m" * 32
    assert Invitation(proposed(TERMS)).data == INVITATION.data
    shuffled = [*reversed(MEMBERS), MEMBERS[2]]
    assert Invitation.made(PLAN, shuffled, KEY, b"r" * 32, GRAPH).data == INVITATION.data
    plan = EvaluationPlan.for_histogram(Axis.uniform(4), Cohort(3, 1), largest=1000)
    assert Invitation.made(plan, MEMBERS, KEY, b"r" * 32, GRAPH).bits == 32


def test_who_must_vote():
    """Everybody, on an exact sum in which all know each other; else as many as open secrets."""
    noisy = noisy_plan(bins=4)
    exact, other = (Invitation.made(p, MEMBERS, KEY, b"r" * 32, GRAPH) for p in (PLAN, noisy))
    assert exact.is_unanimous
    assert [exact.votes_needed(survivors) for survivors in (4, 5)] == [4, 5]
    assert not other.is_unanimous
    assert [other.votes_needed(survivors) for survivors in (4, 5)] == [4, 4]
    many = [SigningKey.from_bytes(i.to_bytes(32, "big")).public for i in range(201)]
    plan = EvaluationPlan.for_histogram(Axis.uniform(4), Cohort(20, 1))
    for count in (200, 201):
        graph = choose_graph(count, plan.cohort)
        sparse = Invitation.made(plan, many[:count], KEY, b"r" * 32, graph)
        assert sparse.is_unanimous == (count == 200)
        assert sparse.votes_needed(180) == (180 if count == 200 else graph.threshold)


def test_an_invitation_that_is_not_signed_in_its_place_is_refused():
    for data in (
        changed(ENVELOPE, signature=bytes(64)).to_bytes(),
        *[changed(ENVELOPE, session=b"s" * 32).to_bytes(), changed(ENVELOPE, stage=2).to_bytes()],
        *[changed(ENVELOPE, sender=0).to_bytes(), changed(ENVELOPE, recipient=0).to_bytes()],
        *[proposed(TERMS, OTHER), proposed(TERMS, session=b"s" * 32)],
        *[proposed(TERMS, stage=Stage.SHARE), proposed(TERMS, sender=0)],
        *[proposed(TERMS, recipient=COORDINATOR), proposed(b"no terms")],
        *[proposed(TERMS.to_bytes() + b"\0"), TERMS.to_bytes(), b""],
    ):
        with pytest.raises(ProtocolError):
            Invitation(data)


@pytest.mark.parametrize(
    "fields",
    [
        {"plan": TERMS.plan + b" "},
        {"plan": TERMS.plan.replace(b'"min_survivors":3', b'"min_survivors":2')},
        *[{"run": b"R" * 32}, {"members": MEMBERS[:-1]}],
        *[{"members": [*MEMBERS[:-1], b"\xff" * 32]}, {"coordinator": OTHER.public}, {"degree": 3}],
        *[{"threshold": 5}, {"model": b"m" * 32}],
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_terms_that_are_altered_on_the_way_are_refused(fields):
    altered = changed(TERMS, **fields)
    assert altered != TERMS
    with pytest.raises(ProtocolError):
        Invitation(changed(ENVELOPE, body=altered.to_bytes()).to_bytes())
    # Also with the session that the altered terms would have.
    resealed = changed(ENVELOPE, body=altered.to_bytes(), session=session_id(altered.to_bytes()))
    refused(ProtocolError, "not signed", Invitation, resealed.to_bytes())


def test_terms_of_a_wrong_form_are_refused_though_signed():
    for fields, match in (
        ({"members": MEMBERS[::-1]}, "sorted and distinct"),
        ({"members": [MEMBERS[0], *MEMBERS]}, "sorted and distinct"),
        ({"members": [*MEMBERS[:4], MEMBERS[3]]}, "sorted and distinct"),
        ({"members": [i.to_bytes(32, "big") for i in range(MOST_MEMBERS + 1)]}, "sorted and"),
        ({"members": [*MEMBERS[:4], b"\xff" * 31]}, "wrong length"),
        ({"members": [b"", *MEMBERS[1:]]}, "wrong length"),
        ({"members": [*MEMBERS[:4], b"\xff" * 33]}, "wrong length"),
        ({"run": b"r" * 31}, "wrong length"),
        ({"run": b"r" * 64}, "wrong length"),
        ({"coordinator": KEY.public[:-1]}, "wrong length"),
        ({"model": b"m"}, "wrong length"),
        ({"model": b"m" * 31}, "wrong length"),
        ({"model": b"m" * 33}, "wrong length"),
    ):
        refused(ProtocolError, match, Invitation, proposed(changed(TERMS, **fields)))


def plan_of(terms):
    return Invitation(proposed(terms)).plan


def test_a_graph_is_judged_by_the_plan_once_it_is_asked_for(monkeypatch):
    assert plan_of(changed(TERMS, threshold=5)) == PLAN  # protects as well
    plan = TERMS.plan.replace(b'"max_colluding":1', b'"max_colluding":3')
    refused(ProtocolError, "threshold too low", plan_of, changed(TERMS, plan=plan))

    # A site judges first who the coordinator is: reading a plan can be made costly.
    def refuse(*_, **__):
        raise AssertionError("it was read")

    monkeypatch.setattr(EvaluationPlan, "from_bytes", refuse)
    invitation = Invitation(INVITATION.data)
    with pytest.raises(AssertionError, match="it was read"):
        _ = invitation.plan


def test_a_plan_that_cannot_be_or_does_not_fit_is_refused():
    for plan in (
        *[b"", b"{}", TERMS.plan + b" ", TERMS.plan[:-1], TERMS.plan.replace(b":", b": ", 1)],
        TERMS.plan.replace(b'"min_survivors":3', b'"min_survivors":0'),
        TERMS.plan.replace(b'"min_survivors":3', b'"min_survivors":6'),
        TERMS.plan.replace(b'"max_colluding":1', b'"max_colluding":5'),
        TERMS.plan.replace(b'"max_colluding":1', b'"max_colluding":1,"more":1'),
        TERMS.plan.replace(b'"max_colluding":1', b'"max_colluding":1180591620717411303424'),
        b"\xff" + TERMS.plan,
    ):
        assert plan != TERMS.plan
        with pytest.raises(PlanError):
            plan_of(changed(TERMS, plan=plan))


@pytest.fixture
def verified(monkeypatch):
    seen, verify = [], protocol.verify

    def watched(public, message, signature):
        seen.append(public)
        return verify(public, message, signature)

    monkeypatch.setattr(protocol, "verify", watched)
    return seen


def waiting_for_votes(scene, stage):
    """An exact sum waits for the votes of all; any other goes on without those set aside."""
    waits = stage == Stage.AGREE and not scene.plan.is_noisy
    return pytest.raises(CohortTooSmall) if waits else nullcontext()


def checked(scene, replies):
    for member, reply in replies.items():
        scene.server.check(member, reply)


@every_stage
def test_a_step_does_not_verify_what_was_checked(stage, verified):
    scene = Scene().until(stage)
    replies, before = scene.answers(), scene.server.to_bytes()
    verified.clear()
    checked(scene, replies)
    assert scene.server.to_bytes() == before  # nothing of it is stored
    # Besides the message: who shared and which boxes came; the vote; the shares told.
    more = {Stage.MASK: 2, Stage.AGREE: 1, Stage.OPEN: 1}
    assert len(verified) == len(replies) * (1 + more.get(stage, 0))
    verified.clear()
    outcome = scene.server.step({member: bytes(bytearray(r)) for member, r in replies.items()})
    assert verified == []
    assert not scene.server.refused
    if stage == Stage.OPEN:
        assert outcome.survivors == tuple(range(6))
    else:
        scene.finish()


@every_stage
def test_a_step_verifies_what_was_not_checked(stage, verified):
    scene = Scene().until(stage)
    replies = scene.answers()
    checked(scene, {0: replies[0], 1: replies[1]})
    verified.clear()
    scene.server.step(replies)
    assert sorted(set(verified)) == [key.public for key in KEYS[2:6]]


@every_stage
def test_another_reply_than_the_checked_one_is_verified(stage, verified):
    scene = Scene().until(stage)
    replies = scene.answers()
    checked(scene, replies)
    forged = changed(Envelope.from_bytes(replies[1]), signature=bytes(64)).to_bytes()
    verified.clear()
    with waiting_for_votes(scene, stage):
        scene.server.step(replies | {1: forged})
        assert scene.server.refused.keys() == {1}
    assert verified == [KEYS[1].public]


def test_a_second_reply_that_passes_leaves_the_first_one_checked(verified):
    """Which of two files of one member counts is not for the check to say."""
    scene = Scene()
    replies = scene.answers()
    other = scene.reply(1, scene.said(0))
    scene.server.check(1, replies[1])
    scene.server.check(1, other)
    verified.clear()
    scene.server.step(replies)
    assert KEYS[1].public not in verified
    again = Scene()
    again.server.check(1, replies[1])
    verified.clear()
    again.server.step(replies | {1: other})
    assert KEYS[1].public in verified


def test_a_step_that_fails_forgets_what_was_checked(verified):
    scene = Scene()
    replies = scene.answers()
    checked(scene, replies)
    with pytest.raises(CohortTooSmall):
        scene.server.step({0: replies[0]})
    verified.clear()
    scene.server.step(replies)
    assert len(verified) == len(replies)
    scene.finish()


@pytest.mark.parametrize("stage", [*Stage][1:])
def test_a_check_does_not_reach_into_the_next_stage(stage):
    scene = Scene().until(stage - 1)
    late = scene.answers()
    scene.server.check(1, late[1])
    scene.step()
    match = f"a message of stage {stage - 1} came where {stage:d} is due."
    with waiting_for_votes(scene, stage):
        scene.server.step(scene.answers() | {1: late[1]})
        assert scene.server.refused[1] == match


def new_keys(count):
    return [SigningKey.generate().public for _ in range(count)]


@pytest.mark.parametrize(("colluding", "shown"), [(1, False), (2, True)])
def test_colluders_know_their_own_part_of_a_difference(tmp_path, monkeypatch, colluding, shown):
    """Sums over V and x, and over V and two colluders: their difference is x to these two."""
    site = create_site(tmp_path, name="a", dataset="stroke", policy=open_policy())
    members = [site.key.public, *new_keys(9)]
    monkeypatch.setattr(Site, "judge", lambda *_, **__: None)  # of strangers, as here
    plan = EvaluationPlan.for_histogram(Axis.uniform(2, outside="clip"), Cohort(5, colluding))
    boss = SigningKey.generate()

    def confirm(run, survivors):
        invited = [*survivors, *new_keys(6)]  # the six never come
        graph = choose_graph(len(invited), plan.cohort)
        duties = SiteDuties(site, None, None, print)
        duties.invitation = invitation = Invitation.made(plan, invited, boss, run, graph)
        roster = SumRoster(frozenset(invited), invitation.needed)
        site.reserve(invitation.session, plan, roster=roster)
        site.ledger.commit(invitation.session)
        duties.agree(survivors)

    confirm(b"1" * 32, members[:8])
    second = [*members[:7], *members[8:]]  # one less, two more
    if shown:
        refused(PlanRefused, "sum over 3 sites", confirm, b"2" * 32, second)
    else:
        confirm(b"2" * 32, second)


@pytest.mark.parametrize("error", [OSError(32, "Broken pipe"), SystemExit(1)])
def test_an_operator_who_cannot_be_told_does_not_silence_a_site(tmp_path, error):
    """Odd rows are told on a console, which fails where its pipe is closed; clean rows are not."""
    names = ["a", "b", "c"]
    sites = Consortium.make(tmp_path, names)
    run, rows = tmp_path / "run", ([0, 1], [0.5, math.nan])
    sites.start(run, noisy_plan())
    sites.play(run, dict.fromkeys(names, rows), until=Stage.SHARE)
    exchange = sites.exchange(run, "a")
    request = exchange.request_to_me(exchange.invitation(), Stage.MASK)

    def tell(_):
        raise error

    assert Participant(sites.site("a"), lambda: rows, tell=tell).answer(request)
    assert sites.entries("a") == ["reserve", "commit", "sent"]


def check(envelope, public=KEY.public, recipients=(COORDINATOR,), **place):
    envelope.check(public, **PLACE | place, recipients=set(recipients))


def test_an_envelope_arrives_as_it_was_sealed():
    arrived = Envelope.from_bytes(SEALED.to_bytes())
    assert arrived == SEALED
    assert (arrived.version, arrived.body, arrived.recipient) == (
        protocol.VERSION,
        b"body",
        COORDINATOR,
    )
    check(arrived)
    check(arrived, recipients=(EVERYONE, COORDINATOR, 7))
    fields = msgspec.msgpack.decode(SEALED.to_bytes())
    assert fields == [1, b"s" * 32, 3, 2, -1, b"body", SEALED.signature]
    with pytest.raises(AttributeError):
        SEALED.body = b"other"


@pytest.mark.parametrize(
    "fields",
    [
        *[{"session": b"S" + b"s" * 31}, {"session": b""}, {"stage": 2}, {"stage": 4}],
        *[{"sender": 3}, {"sender": COORDINATOR}, {"recipient": EVERYONE}, {"recipient": 2}],
        *[{"body": b"bodY"}, {"body": b""}, {"body": b"body\0"}, {"signature": bytes(64)}],
        *[{"signature": b""}, {"signature": SEALED.signature[:-1]}],
        {"signature": SEALED.signature + b"\0"},
        {"signature": SEALED.signature[32:] + SEALED.signature[:32]},
    ],
    ids=str,
)
def test_an_altered_envelope_is_refused(fields):
    altered = Envelope.from_bytes(changed(SEALED, **fields).to_bytes())
    with pytest.raises(ProtocolError):
        check(altered)
    # Also where the altered field is what was expected: only the signature can tell then.
    place = {name: value for name, value in fields.items() if name in PLACE}
    refused(ProtocolError, "not signed", check, altered, recipients=[altered.recipient], **place)


def test_an_envelope_out_of_place_is_refused():
    for expected, match in (
        ({"session": b"S" * 32}, "another session"),
        ({"stage": 2}, "of stage 3 came where 2 is due"),
        ({"sender": 1}, "from or to somebody else"),
        ({"recipients": [2, EVERYONE]}, "from or to somebody else"),
        ({"recipients": []}, "from or to somebody else"),
        ({"public": OTHER.public}, "not signed"),
        ({"public": b"short"}, "not signed"),
    ):
        refused(ProtocolError, match, check, SEALED, **expected)


@pytest.mark.parametrize("version", [0, 2, 3, -1, 2**40])
def test_another_version_is_refused(version):
    altered = changed(SEALED, version=version).to_bytes()
    with pytest.raises(ProtocolError, match=f"version {version}; this fedgauge speaks 1"):
        Envelope.from_bytes(altered)


def test_what_is_signed_says_its_version_kind_and_place():
    body = protocol._signed(b"s" * 32, 3, 2, COORDINATOR, b"body")
    assert struct.pack("<Bqqq", protocol.VERSION, 3, 2, COORDINATOR) in body
    assert KEY.sign(body) == SEALED.signature
    sessions, numbers, bodies = (
        [b"", b"s" * 32, b"s" * 33],
        [-2, -1, 0, 1, 256, 2**40],
        [b"", b"\1"],
    )
    places = itertools.product(sessions, numbers, numbers, numbers, bodies)
    signed = [protocol._signed(*place) for place in places]
    assert len(set(signed)) == len(signed)
    # Whatever is signed with a key says what it is; no body can pose as something else.
    for body in (b"", b"fedgauge session\0"):
        signed = protocol._signed(b"s" * 32, 3, 2, COORDINATOR, body)
        assert signed.startswith(b"fedgauge message\0")


def test_numbers_out_of_range_are_refused():
    for name, number in itertools.product(["stage", "sender", "recipient"], [2**63, -(2**63) - 1]):
        place = PLACE | {"recipient": COORDINATOR, "body": b""} | {name: number}
        refused(ProtocolError, "out of range", Envelope.sealed, KEY, **place)
    huge = Envelope.from_bytes(changed(SEALED, recipient=2**64 - 1).to_bytes())
    refused(ProtocolError, "out of range", check, huge, recipients=[2**64 - 1])


def test_is_signed_is_what_check_asks():
    place = (b"s" * 32, 3, 2, COORDINATOR, b"body")
    assert protocol.is_signed(KEY.public, SEALED.signature, *place)
    assert not protocol.is_signed(OTHER.public, SEALED.signature, *place)
    for i, other in enumerate((b"t" * 32, 4, 3, EVERYONE, b"bodies")):
        assert not protocol.is_signed(
            KEY.public, SEALED.signature, *place[:i], other, *place[i + 1 :]
        )


def test_every_shorter_envelope_is_refused():
    whole = SEALED.to_bytes()
    for length in range(len(whole)):
        with pytest.raises(ProtocolError, match="incomplete: its end is missing"):
            Envelope.from_bytes(whole[:length])


def test_what_is_no_envelope_is_refused():
    for data in (
        SEALED.to_bytes() + b"\0",
        msgspec.msgpack.encode([*msgspec.msgpack.decode(SEALED.to_bytes()), 0]),
        SEALED.to_bytes() + SEALED.to_bytes(),
        msgspec.msgpack.encode(msgspec.msgpack.decode(SEALED.to_bytes())[:-1]),
        msgspec.msgpack.encode(msgspec.structs.asdict(SEALED)),
        msgspec.msgpack.encode([1.0, *msgspec.msgpack.decode(SEALED.to_bytes())[1:]]),
        msgspec.msgpack.encode(["1", *msgspec.msgpack.decode(SEALED.to_bytes())[1:]]),
        msgspec.msgpack.encode([True, *msgspec.msgpack.decode(SEALED.to_bytes())[1:]]),
        msgspec.msgpack.encode([None] * 7),
        msgspec.msgpack.encode([]),
        b"\xc1",
        b"\x91" * 100_000,
        b"{}",
        # Text is no bytes, though its letters are the same.
        SEALED.to_bytes().replace(b"\xc4\x04body", b"\xa4body"),
    ):
        refused(ProtocolError, "Envelope", Envelope.from_bytes, data)


def test_another_way_to_write_the_same_message_is_refused():
    """Else one message would have several digests, and a repeated request could look new."""
    for short, long in (
        (b"\x97", b"\xdc\x00\x07"),  # the array's length in 16 bits
        (b"\x97", b"\xdd\x00\x00\x00\x07"),  # in 32
        (b"\xc4\x04body", b"\xc5\x00\x04body"),  # the length of bytes in 16 bits
        (b"sss\x03", b"sss\xcc\x03"),  # uint 8
        (b"sss\x03", b"sss\xd0\x03"),  # int 8
        (b"sss\x03", b"sss\xcf" + b"\0" * 7 + b"\x03"),  # uint 64
        (b"\x02\xff", b"\x02\xd1\xff\xff"),  # -1 in 16 bits
    ):
        whole = SEALED.to_bytes()
        assert whole.count(short) == 1
        longer = whole.replace(short, long)
        # The words are the same to a reader who does not ask how they were written.
        assert msgspec.msgpack.decode(longer) == msgspec.msgpack.decode(whole)
        refused(ProtocolError, "not in its one form", Envelope.from_bytes, longer)


@given(data=st.binary(max_size=200))
def test_bytes_from_nowhere_are_refused_or_read_as_written(data):
    for kind in (Envelope, Terms, messages.Advertisements, messages.Survivors, messages.Agreement):
        try:
            message = kind.from_bytes(data)
        except ProtocolError:
            continue
        assert message.to_bytes() == data


@given(data=st.data())
def test_one_changed_byte_is_never_taken_for_the_same(data):
    whole = bytearray(SEALED.to_bytes())
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ProtocolError):
        check(Envelope.from_bytes(bytes(whole)))


def test_a_message_too_long_is_refused_unread(monkeypatch):
    assert protocol.MOST_BYTES >= 2**25 * 8

    def refuse(*_, **__):
        raise AssertionError("it was read")

    monkeypatch.setattr(protocol.msgspec.msgpack, "decode", refuse)
    monkeypatch.setattr(protocol, "MOST_BYTES", 1000)
    refused(ProtocolError, "at most 1,000 bytes, got 1,001", Envelope.from_bytes, bytes(1001))
    refused(AssertionError, "it was read", Envelope.from_bytes, bytes(1000))


class Nested(protocol.Message, frozen=True):
    peers: list[messages.Peer]


def test_extra_fields_of_records_are_refused():
    plain = [[[1, b"body", b"signature"]]]
    read = Nested.from_bytes(msgspec.msgpack.encode(plain))
    assert read.peers == [messages.Peer(1, b"body", b"signature")]
    plain[0][0].append(0)
    refused(ProtocolError, "not a message", Nested.from_bytes, msgspec.msgpack.encode(plain))


def test_a_session_is_named_by_32_bytes_that_depend_on_all_terms():
    terms = bytes(range(50))
    others = [terms[:i] + bytes([terms[i] ^ 1]) + terms[i + 1 :] for i in range(50)]
    named = {session_id(some) for some in (terms, *others, terms[:-1], terms + b"\0", b"")}
    assert len(named) == 54
    assert {len(session) for session in named} == {32}
    assert session_id(terms) == session_id(terms) != hashlib.sha256(terms).digest()
