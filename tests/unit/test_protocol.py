"""Envelopes: signed for one place, with one form, and refused otherwise."""

import hashlib
import itertools
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgauge import protocol as protocol_module
from fedgauge.errors import ProtocolError
from fedgauge.keys import SigningKey
from fedgauge.protocol import (
    COORDINATOR,
    EVERYONE,
    MOST_BYTES,
    VERSION,
    Envelope,
    Message,
    is_signed,
    session_id,
)
from fedgauge.secagg.messages import (
    Agreement,
    Peer,
    Roster,
    Survivors,
    Terms,
)

KEY = SigningKey.from_bytes(b"k" * 32)
OTHER = SigningKey.from_bytes(b"o" * 32)
PLACE = {"session": b"s" * 32, "stage": 3, "sender": 2}
SEALED = Envelope.sealed(KEY, **PLACE, recipient=COORDINATOR, body=b"body")


def check(envelope, public=KEY.public, recipients=(COORDINATOR,), **place):
    envelope.check(public, **PLACE | place, recipients=set(recipients))


def changed(message, **fields):
    return msgspec.structs.replace(message, **fields)


# Envelopes


def test_an_envelope_arrives_as_it_was_sealed():
    arrived = Envelope.from_bytes(SEALED.to_bytes())
    assert arrived == SEALED
    assert (arrived.version, arrived.body, arrived.recipient) == (VERSION, b"body", COORDINATOR)
    check(arrived)
    check(arrived, recipients=(EVERYONE, COORDINATOR, 7))


def test_an_envelope_is_an_array_of_its_fields():
    fields = msgspec.msgpack.decode(SEALED.to_bytes())
    assert fields == [3, b"s" * 32, 3, 2, -1, b"body", SEALED.signature]


@pytest.mark.parametrize(
    "fields",
    [
        {"session": b"S" + b"s" * 31},
        {"session": b""},
        {"stage": 2},
        {"stage": 4},
        {"sender": 3},
        {"sender": COORDINATOR},
        {"recipient": EVERYONE},
        {"recipient": 2},
        {"body": b"bodY"},
        {"body": b""},
        {"body": b"body\0"},
        {"signature": bytes(64)},
        {"signature": b""},
        {"signature": SEALED.signature[:-1]},
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
    with pytest.raises(ProtocolError, match="not signed"):
        check(altered, recipients=[altered.recipient], **place)


@pytest.mark.parametrize(
    ("expected", "match"),
    [
        ({"session": b"S" * 32}, "another session"),
        ({"stage": 2}, "of stage 3 came where 2 is due"),
        ({"sender": 1}, "from or to somebody else"),
        ({"recipients": [2, EVERYONE]}, "from or to somebody else"),
        ({"recipients": []}, "from or to somebody else"),
        ({"public": OTHER.public}, "not signed"),
        ({"public": b"short"}, "not signed"),
    ],
)
def test_an_envelope_out_of_place_is_refused(expected, match):
    with pytest.raises(ProtocolError, match=match):
        check(SEALED, **expected)


@pytest.mark.parametrize("version", [0, 1, 2, 4, -1, 2**40])
def test_another_version_is_refused(version):
    altered = changed(SEALED, version=version).to_bytes()
    with pytest.raises(ProtocolError, match=f"version {version}; this fedgauge speaks 3"):
        Envelope.from_bytes(altered)


def test_the_version_is_signed():
    body = protocol_module._signed(VERSION, b"s" * 32, 3, 2, COORDINATOR, b"body")
    assert struct.pack("<Bqqq", VERSION, 3, 2, COORDINATOR) in body
    assert KEY.sign(body) == SEALED.signature


def test_no_two_places_are_signed_alike():
    sessions, numbers, bodies = (
        [b"", b"s" * 32, b"s" * 33],
        [-2, -1, 0, 1, 256, 2**40],
        [b"", b"\1"],
    )
    signed = [
        protocol_module._signed(VERSION, *place)
        for place in itertools.product(sessions, numbers, numbers, numbers, bodies)
    ]
    assert len(set(signed)) == len(signed)


def test_a_signed_message_is_no_session_or_agreement():
    """Whatever is signed with a key says what it is; no body can pose as something else."""
    for body in (b"", b"fedgauge session\0"):
        signed = protocol_module._signed(VERSION, b"s" * 32, 3, 2, COORDINATOR, body)
        assert signed.startswith(b"fedgauge message\0")


@pytest.mark.parametrize("name", ["stage", "sender", "recipient"])
@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_numbers_out_of_range_are_refused(name, number):
    place = PLACE | {"recipient": COORDINATOR, "body": b""} | {name: number}
    with pytest.raises(ProtocolError, match="out of range"):
        Envelope.sealed(KEY, **place)


def test_a_number_too_large_to_be_signed_is_refused_when_it_arrives():
    huge = Envelope.from_bytes(changed(SEALED, recipient=2**64 - 1).to_bytes())
    with pytest.raises(ProtocolError, match="out of range"):
        check(huge, recipients=[2**64 - 1])


def test_is_signed_is_what_check_asks():
    place = (b"s" * 32, 3, 2, COORDINATOR, b"body")
    assert is_signed(KEY.public, SEALED.signature, *place)
    assert not is_signed(OTHER.public, SEALED.signature, *place)
    for i, other in enumerate((b"t" * 32, 4, 3, EVERYONE, b"bodies")):
        assert not is_signed(KEY.public, SEALED.signature, *place[:i], other, *place[i + 1 :])


# One form for each message


def test_every_shorter_envelope_is_refused():
    whole = SEALED.to_bytes()
    for length in range(len(whole)):
        with pytest.raises(ProtocolError, match="incomplete: its end is missing"):
            Envelope.from_bytes(whole[:length])


@pytest.mark.parametrize(
    "data",
    [
        SEALED.to_bytes() + b"\0",
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
    ],
    ids=range(13),
)
def test_what_is_no_envelope_is_refused(data):
    with pytest.raises(ProtocolError, match="Envelope"):
        Envelope.from_bytes(data)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (b"\x97", b"\xdc\x00\x07"),  # the array's length in 16 bits
        (b"\x97", b"\xdd\x00\x00\x00\x07"),  # in 32
        (b"\xc4\x04body", b"\xc5\x00\x04body"),  # the length of bytes in 16 bits
        (b"\xc4\x20" + b"s" * 32 + b"\x03", b"\xc4\x20" + b"s" * 32 + b"\xcc\x03"),  # uint 8
        (b"\xc4\x20" + b"s" * 32 + b"\x03", b"\xc4\x20" + b"s" * 32 + b"\xd0\x03"),  # int 8
        (
            b"\xc4\x20" + b"s" * 32 + b"\x03",
            b"\xc4\x20" + b"s" * 32 + b"\xcf" + b"\0" * 7 + b"\x03",
        ),
        (b"\x02\xff", b"\x02\xd1\xff\xff"),  # -1 in 16 bits
    ],
)
def test_another_way_to_write_the_same_message_is_refused(short, long):
    """Else one message would have several digests, and a repeated request could look new."""
    whole = SEALED.to_bytes()
    assert whole.count(short) == 1
    longer = whole.replace(short, long)
    # The words are the same to a reader who does not ask how they were written.
    assert msgspec.msgpack.decode(longer) == msgspec.msgpack.decode(whole)
    with pytest.raises(ProtocolError, match="not in its one form"):
        Envelope.from_bytes(longer)


@given(data=st.binary(max_size=200))
def test_bytes_from_nowhere_are_refused_or_read_as_written(data):
    for kind in (Envelope, Terms, Roster, Survivors, Agreement):
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
    def refuse(*_, **__):
        raise AssertionError("it was read")

    monkeypatch.setattr(protocol_module.msgspec.msgpack, "decode", refuse)
    monkeypatch.setattr(protocol_module, "MOST_BYTES", 1000)
    with pytest.raises(ProtocolError, match="at most 1,000 bytes, got 1,001"):
        Envelope.from_bytes(bytes(1001))
    with pytest.raises(AssertionError, match="it was read"):
        Envelope.from_bytes(bytes(1000))


def test_the_longest_message_holds_the_longest_input():
    assert MOST_BYTES >= 2**25 * 8


def test_messages_cannot_be_changed():
    with pytest.raises(AttributeError):
        SEALED.body = b"other"


class Nested(Message, frozen=True):
    """A message with records in it."""

    peers: list[Peer]


def test_extra_fields_are_refused():
    longer = msgspec.msgpack.encode([*msgspec.msgpack.decode(SEALED.to_bytes()), 0])
    with pytest.raises(ProtocolError, match="not a message"):
        Envelope.from_bytes(longer)


def test_extra_fields_of_records_are_refused():
    plain = [[[1, b"body", b"signature"]]]
    assert Nested.from_bytes(msgspec.msgpack.encode(plain)).peers == [
        Peer(1, b"body", b"signature")
    ]
    plain[0][0].append(0)
    with pytest.raises(ProtocolError, match="not a message"):
        Nested.from_bytes(msgspec.msgpack.encode(plain))


# Sessions


def test_a_session_is_named_by_32_bytes_that_depend_on_all_terms():
    terms = bytes(range(50))
    others = [terms[:i] + bytes([terms[i] ^ 1]) + terms[i + 1 :] for i in range(50)]
    named = {session_id(some) for some in (terms, *others, terms[:-1], terms + b"\0", b"")}
    assert len(named) == 54
    assert {len(session) for session in named} == {32}
    assert session_id(terms) == session_id(terms)


def test_a_session_is_not_the_digest_of_something_else():
    assert session_id(b"terms") != hashlib.sha256(b"terms").digest()
