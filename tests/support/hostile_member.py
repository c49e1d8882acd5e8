"""One member of a secure sum that does not keep to the protocol; its messages are signed rightly.
It runs a changed program: a :class:`Deed` says in which round it does what. The changes reach its
machine in three ways only. :func:`turn` wraps `SummationClient.receive`, and so works on every
engine that sums in this process; :func:`_replaced` swaps `split`, `unseal`, `Box.made` or
`SealedOpening.of` while the hostile machine answers; and the body of its reply is altered and
signed again."""

import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import NamedTuple
from unittest import mock

import msgspec
from envelopes import sealed

from fedgauge.errors import ProtocolError
from fedgauge.keys import SigningKey
from fedgauge.protocol import EVERYONE, Envelope
from fedgauge.secagg import Stage, SummationClient, SummationServer, client, masking, secret_sharing
from fedgauge.secagg import secret_sharing as boxes_module
from fedgauge.secagg.messages import Ballot, Inbox, Opening, SealedOpening, Shares, opening
from fedgauge.secagg.secret_sharing import Box

# What moves a secret: X25519 does not look at the three lowest bits of a key.
_FAR = 1 << 100


class Place(NamedTuple):
    """The index of the hostile member, of the one that it wants to harm, and its signing key."""

    me: int
    peer: int
    key: SigningKey


@dataclass(frozen=True)
class Deed:
    """What a member does otherwise in one round."""

    stage: Stage
    # A context in which the member's own machine answers, by its place and the request.
    during: Callable[[Place, bytes], AbstractContextManager[None]] = lambda *_: nullcontext()
    # The body it signs instead, by its place and the honest body.
    say: Callable[[Place, bytes], bytes] | None = None
    silent: bool = False  # whether it says nothing


def turn(monkeypatch, key, deeds, *, peer):
    """Make the member with this signing key hostile; `peer` is the public key of its victim. Gives
    the list of deeds that were done, which grows. An engine takes a deed that fails for silence, so
    tests look at it."""
    receive, done = SummationClient.receive, []

    def hostile(machine, request):
        members = machine.invitation.members
        if machine._key.public != key.public or peer not in members:
            return receive(machine, request)
        place = Place(members.index(key.public), members.index(peer), key)
        asked = Envelope.from_bytes(request)
        now = [deed for deed in deeds if deed.stage == asked.stage]
        if any(deed.silent for deed in now):
            done.extend(now)
            raise ProtocolError("this member says nothing.")
        with ExitStack() as changes:
            for deed in now:
                changes.enter_context(deed.during(place, asked.body))
            reply = receive(machine, request)
        for deed in now:
            if deed.say is not None:
                reply = said_instead(key, reply, lambda body, deed=deed: deed.say(place, body))
            done.append(deed)
        return reply

    monkeypatch.setattr(SummationClient, "receive", hostile)
    return done


def said_instead(key, message, alter):
    """A message with another body, at the same place, signed by `key`."""
    envelope = Envelope.from_bytes(message)
    body = alter(envelope.body)
    assert body != envelope.body
    return sealed(
        key, envelope.session, envelope.stage, envelope.sender, envelope.recipient, body
    ).to_bytes()


def _other(told, **fields):
    return msgspec.structs.replace(told, **fields)


def _said(kind, body, **changes):
    """A body some fields of which are changed."""
    told = kind.from_bytes(body)
    return _other(
        told, **{name: to(getattr(told, name)) for name, to in changes.items()}
    ).to_bytes()


def silent(stage):
    """It says nothing, and so takes no further part."""
    return Deed(stage, silent=True)


def malformed(stage):
    """It signs what is no message of this round."""
    return Deed(stage, say=lambda _place, _body: msgspec.msgpack.encode(["nonsense"]))


def junk_boxes(*, to_all=False, late=False):
    """Boxes of the right size that nobody can open, for its victim or for everybody."""
    return _boxes(
        lambda box: _other(box, sealed=os.urandom(len(box.sealed))), to_all=to_all, late=late
    )


def other_checks(*, late=False):
    """A box with the right shares for its victim, and checks of others."""
    return _boxes(lambda box: _other(box, checks=os.urandom(len(box.checks))), late=late)


def other_box_key(public=None, *, late=False):
    """A box that is said to be sealed with another key than it is: a fresh one by default."""

    def unmatched(box):
        other = public or masking.AgreementKey(os.urandom(masking.KEY_BYTES)).public
        return msgspec.structs.replace(box, key=other)

    return _boxes(unmatched, late=late)


def _boxes(alter, *, to_all=False, late=False):
    """Boxes that are made otherwise; its machine answers for them as if they were right. Those
    altered late, when they have left it, it does not know: it says nothing about them."""

    def during(place, _request):
        made = Box.made

        def other(*parts):
            box = made(*parts)
            return alter(box) if to_all or box.member == place.peer else box

        return _replaced("made", other, Box)

    def say(place, body):
        shares = Shares.from_bytes(body)
        boxes = [alter(b) if to_all or b.member == place.peer else b for b in shares.boxes]
        return msgspec.structs.replace(shares, boxes=boxes).to_bytes()

    return Deed(Stage.SHARE, say=say) if late else Deed(Stage.SHARE, during=during)


def wrong_shares(*, to_all=False):
    """Boxes that open and match their checks, and do not hold what is committed to. A share off the
    polynomial for its victim, or shares of another secret for all."""

    def during(place, _request):
        split = secret_sharing.split

        def wrong(secret, holders, threshold, **options):
            if to_all:
                return split(secret ^ _FAR, holders, threshold, **options)
            shares = split(secret, holders, threshold, **options)
            point = place.peer + 1
            return shares | {point: (shares[point] + _FAR) % secret_sharing.PRIME}

        return _replaced("split", wrong, secret_sharing, client)

    return Deed(Stage.SHARE, during=during)


def wrong_commitment():
    """A commitment to another secret than the one whose shares it deals."""
    other = os.urandom(masking.COMMITMENT_BYTES)
    return Deed(Stage.SHARE, say=lambda _, body: _said(Shares, body, commitment=lambda _: other))


def false_complaint(*, about_all=False):
    """It says of a box that can be opened that it cannot."""

    def during(place, request):
        boxes = Inbox.from_bytes(request).boxes
        about = {box.sealed for box in boxes if about_all or box.member == place.peer}
        unseal = masking.unseal

        def unable(key, box, *more, **options):
            if box in about:
                raise ProtocolError("a box cannot be opened.")
            return unseal(key, box, *more, **options)

        return _replaced("unseal", unable, masking, boxes_module)

    return Deed(Stage.MASK, during=during)


def answers(alter):
    """What it answers to complaints about its boxes, beside its vote, is altered."""
    return Deed(Stage.AGREE, say=lambda _, body: _said(Ballot, body, answers=alter))


def withheld(_answers):
    return []


def made_up(said):
    """Keys that are none, in an answer."""
    return [msgspec.structs.replace(each, key=os.urandom(masking.KEY_BYTES)) for each in said]


def cut_short(said):
    """Keys of a wrong length, in an answer."""
    return [msgspec.structs.replace(each, key=each.key[1:]) for each in said]


def sealed_for_another(said):
    """That the boxes were for keys that nobody advertised."""
    return [msgspec.structs.replace(each, box_key=os.urandom(masking.KEY_BYTES)) for each in said]


def wrong_opening(*, of_all=False, signed=True):
    """Shares that are not the ones it got: of its victim's secret, or of everybody's."""

    def altered(place, parts):
        return [
            msgspec.structs.replace(part, share=_moved(part.share))
            if of_all or part.member == place.peer
            else part
            for part in parts
        ]

    return _opens(
        lambda place, told: msgspec.structs.replace(
            told, masks=altered(place, told.masks), keys=altered(place, told.keys)
        ),
        signed=signed,
    )


def short_opening():
    return _opens(lambda _, told: msgspec.structs.replace(told, masks=told.masks[1:]))


def junk_opening():
    """An opening that the coordinator cannot read."""

    def junk(sealed):
        return os.urandom(len(sealed))

    return Deed(Stage.OPEN, say=lambda _, body: _said(SealedOpening, body, sealed=junk))


def _opens(alter, *, signed=True):
    def during(place, _request):
        seal = SealedOpening.of

        def other(told, invitation, *more):
            told = alter(place, told)
            if signed:
                told = _signed_opening(place, told, invitation.session)
            return seal(told, invitation, *more)

        return _replaced("of", other, SealedOpening)

    return Deed(Stage.OPEN, during=during)


def _signed_opening(place, told, session):
    """What a member tells, under its signature."""
    envelope = sealed(
        place.key,
        session,
        Stage.OPEN,
        place.me,
        EVERYONE,
        opening(session, Opening.digests(told.masks, told.keys)).to_bytes(),
    )
    return msgspec.structs.replace(told, signature=envelope.signature)


def _moved(share):
    return secret_sharing.share_to_bytes(
        (secret_sharing.share_from_bytes(share) + _FAR) % secret_sharing.PRIME
    )


@contextmanager
def _replaced(name, function, *places):
    """Other code for the hostile machine, wherever it is called by this name; it is called."""
    other = mock.Mock(side_effect=function)
    with ExitStack() as stack:
        for place in places:
            if hasattr(place, name):
                stack.enter_context(mock.patch.object(place, name, other))
        yield
    assert other.called


def forgeries(sent):
    """Copies of what was sent with one number or one byte in it changed, at many places. Messages
    within messages included: their signatures no longer fit."""
    if isinstance(sent, list):
        for at, each in enumerate(sent):
            yield from ([*sent[:at], other, *sent[at + 1 :]] for other in forgeries(each))
    elif isinstance(sent, bytes):
        places = range(0, len(sent), max(1, len(sent) // 8))
        yield from (sent[:at] + bytes([sent[at] ^ 1]) + sent[at + 1 :] for at in places)
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            inner = msgspec.msgpack.decode(sent)
            if isinstance(inner, list):
                yield from map(msgspec.msgpack.encode, forgeries(inner))
    elif isinstance(sent, int):
        yield from (other for other in range(-2, 7) if other != sent)


def watched(monkeypatch):
    """All servers that take a step from now on, the last one last."""
    servers, step = [], SummationServer.step

    def seen(server, replies):
        servers.append(server)
        return step(server, replies)

    monkeypatch.setattr(SummationServer, "step", seen)
    return servers


# Whom a sentence is also about: the one that something was done to, or who says so.
_CONCERNED = re.compile(
    r"(?<= sent )\S+(?= a box of shares that does not open\.)"
    r"|\S+(?= says that it cannot open a box of shares from )"
    r"|(?<= complained of a box of shares from )\S+(?= that does open\.)"
    r"|(?<= opened another share than it was dealt by )\S+(?=\.)"
)


def named(text, names):
    """Which of these members a text holds at fault: those of whom it is not only said to whom."""
    return {name for name in names if name in _CONCERNED.sub("", text)}


def at_fault(server, *, proved=None):
    """The public keys of those whom a server holds at fault; proved, only said, or both."""
    return {
        server.invitation.members[fault.member]
        for fault in server.faults
        if proved in (None, fault.proved)
    }
