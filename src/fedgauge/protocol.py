"""Signed messages of a protocol of several rounds, without I/O."""

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Self

import msgspec

from fedgauge.errors import ProtocolError
from fedgauge.keys import SigningKey, verify
from fedgauge.storage import MALFORMED

VERSION: Final = 1
COORDINATOR: Final = -1
EVERYONE: Final = -2
_TRUNCATED: Final = "Input data was truncated"  # as msgspec says it
MOST_BYTES: Final = 1 << 28  # of one message: a masked input of 33 million 64-bit counts


class Requests(Mapping[int, bytes]):
    """Requests by member, each made when it is read; reading twice gives the same bytes."""

    def __init__(self, members: Iterable[int], make: Callable[[int], bytes]) -> None:
        self._members = dict.fromkeys(members)
        self._make = make

    def __getitem__(self, member: int) -> bytes:
        if member not in self._members:
            raise KeyError(member)
        return self._make(member)

    def __contains__(self, member: object) -> bool:
        return member in self._members  # without making the request, as Mapping would

    def __iter__(self) -> Iterator[int]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


class Message(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True
):
    """What one round says; unknown fields are refused."""

    def to_bytes(self) -> bytes:
        """The message as sent."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a message in exactly the form it is sent in."""
        try:
            message = msgspec.msgpack.decode(data, type=cls)
        except MALFORMED as error:
            if str(error) == _TRUNCATED:
                raise ProtocolError("this is incomplete: its end is missing.") from None
            raise ProtocolError(f"this is not a message of kind {cls.__name__}.") from None
        if message.to_bytes() != data:
            raise ProtocolError(f"a message of kind {cls.__name__} is not in its one form.")
        return message


class Envelope(Message, frozen=True):
    """A signed message: who says it, to whom, at which stage of which session.

    `sender` and `recipient` are indices of members, :data:`COORDINATOR` or :data:`EVERYONE`.
    """

    version: int
    session: bytes
    stage: int
    sender: int
    recipient: int
    body: bytes
    signature: bytes

    @classmethod
    def sealed(
        cls,
        key: SigningKey,
        *,
        session: bytes,
        stage: int,
        sender: int,
        recipient: int,
        body: bytes,
    ) -> Self:
        """The body, signed together with its place."""
        signature = key.sign(_signed(session, stage, sender, recipient, body))
        return cls(
            version=VERSION,
            session=session,
            stage=stage,
            sender=sender,
            recipient=recipient,
            body=body,
            signature=signature,
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read an envelope; its signature is not checked yet."""
        if len(data) > MOST_BYTES:
            raise ProtocolError(f"a message has at most {MOST_BYTES:,} bytes, got {len(data):,}.")
        envelope = super().from_bytes(data)
        if envelope.version != VERSION:
            raise ProtocolError(
                f"a message has version {envelope.version}; this fedgauge speaks {VERSION}. "
                "Use the same version of fedgauge everywhere."
            )
        return envelope

    def check(
        self, public: bytes, *, session: bytes, stage: int, sender: int, recipients: set[int]
    ) -> None:
        """Refuse an envelope that is out of place or not signed by `public`."""
        if self.session != session:
            raise ProtocolError("a message belongs to another session or another plan.")
        if self.stage != stage:
            raise ProtocolError(f"a message of stage {self.stage} came where {stage} is due.")
        if self.sender != sender or self.recipient not in recipients:
            raise ProtocolError("a message is from or to somebody else.")
        if not is_signed(public, self.signature, session, stage, sender, self.recipient, self.body):
            raise ProtocolError("a message is not signed by the one who is said to send it.")


def is_signed(
    public: bytes,
    signature: bytes,
    session: bytes,
    stage: int,
    sender: int,
    recipient: int,
    body: bytes,
) -> bool:
    """Whether `public` signed this body at this place."""
    return verify(public, _signed(session, stage, sender, recipient, body), signature)


def _signed(session: bytes, stage: int, sender: int, recipient: int, body: bytes) -> bytes:
    try:
        place = struct.pack("<Bqqq", VERSION, stage, sender, recipient)
    except struct.error:
        raise ProtocolError("a message has numbers out of range.") from None
    return b"fedgauge message\0" + hashlib.sha256(session).digest() + place + body


def session_id(terms: bytes) -> bytes:
    """The id of one attempt, from all that was proposed: the plan, a fresh run id, the members."""
    return hashlib.sha256(b"fedgauge session\0" + terms).digest()
