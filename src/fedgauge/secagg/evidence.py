"""Who broke the rules of a secure summation, shown by what members signed.

Evidence holds messages as they were signed: whoever has the invitation can check it without
believing the coordinator. Nobody who kept to the rules can be proved guilty. A complaint without
the dealer's answer is only said, for an answer can be left out: `restart` does not act on it.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from fedgauge.errors import ProtocolError
from fedgauge.protocol import COORDINATOR, EVERYONE, Message
from fedgauge.secagg import masking, secret_sharing
from fedgauge.secagg.messages import (
    Advertisement,
    Ballot,
    Invitation,
    Opened,
    Shares,
    Stage,
    complaint,
    opening,
    receipt,
)
from fedgauge.secagg.secret_sharing import Box, Kind, is_share

_NOTHING: Final = "what is said to be evidence shows nothing."
MOST_EACH: Final = 4  # things about a member: proved of each of three kinds, or a complaint


class Fault(NamedTuple):
    """What a member did; `other` is whom it concerns, `proved` whether it is shown or only said."""

    member: int
    words: str
    other: int
    proved: bool = True

    def in_words(self, name: Callable[[int], str]) -> str:
        """The fault as a sentence, with names."""
        return self.words.format(member=name(self.member), other=name(self.other))


class Signed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a member said, and its signature."""

    body: bytes
    signature: bytes


class Dispute(msgspec.Struct, frozen=True, array_like=True, tag="dispute"):
    """A holder complains of a box. Whether it opens with the dealer's own key for it decides."""

    dealer: int
    holder: int
    shares: Signed  # what the dealer sent
    keys: Signed  # what the holder advertised
    complaint: bytes  # the holder's signature
    ballot: Signed | None  # the dealer's answer; None where there is none

    def judged(self, invitation: Invitation) -> Fault:
        """Who lied."""
        session, dealer, holder = invitation.session, self.dealer, self.holder
        box = _box_for(holder, _shares(invitation, dealer, self.shares))
        body = complaint(session, box.digest(dealer, holder)).to_bytes()
        _require(invitation.is_signed(holder, self.complaint, Stage.MASK, body))
        if self.ballot is None:
            said = "{other} says that it cannot open a box of shares from {member}. No answer of "
            said += "{member} is here, so nothing is shown."
            return Fault(dealer, said, holder, proved=False)
        _require(
            _is_said(invitation, dealer, self.ballot, Stage.AGREE, COORDINATOR)
            and _is_said(invitation, holder, self.keys, Stage.ADVERTISE, EVERYONE)
        )
        answers = Ballot.from_bytes(self.ballot.body).answers
        answered = [answer for answer in answers if answer.member == holder]
        theirs = Advertisement.from_bytes(self.keys.body).box_key
        # Else a holder could advertise a second key, for which the box was not made.
        _require(len(answered) == 1 and answered[0].box_key == theirs)
        try:
            box.shown(answered[0].key, theirs, session, dealer, holder)
        except ProtocolError:
            return Fault(
                dealer, "{member} sent {other} a box of shares that does not open.", holder
            )
        lied = "{member} complained of a box of shares from {other} that does open."
        return Fault(holder, lied, dealer)


class WrongShare(msgspec.Struct, frozen=True, array_like=True, tag="share"):
    """A holder opened another share than it was dealt."""

    dealer: int
    holder: int
    kind: Kind
    share: bytes
    shares: Signed
    boxes: list[bytes]  # digests of all boxes that the holder confirmed with `receipt`
    receipt: bytes
    opened: list[bytes]  # digests of all shares that it told, signed by `opening`
    opening: bytes

    def judged(self, invitation: Invitation) -> Fault:
        """That the holder lied."""
        session, dealer, holder = invitation.session, self.dealer, self.holder
        shares = _shares(invitation, dealer, self.shares)
        told = opening(session, self.opened).to_bytes()
        _require(
            invitation.is_signed(holder, self.opening, Stage.OPEN, told)
            and Opened(dealer, self.share).digest(self.kind) in self.opened
        )
        checks = shares.own
        if dealer != holder:
            box = _box_for(holder, shares)
            # Else the box could have been altered on its way to the holder.
            received = receipt(session, self.boxes).to_bytes()
            _require(
                invitation.is_signed(holder, self.receipt, Stage.MASK, received)
                and box.digest(dealer, holder) in self.boxes
            )
            checks = box.checks
        _require(not is_share(self.share, self.kind, checks, session, dealer, holder))
        return Fault(holder, "{member} opened another share than it was dealt by {other}.", dealer)


class WrongDealing(msgspec.Struct, frozen=True, array_like=True, tag="dealing"):
    """Shares as they were dealt do not give the secret that the dealer is bound to."""

    dealer: int
    kind: Kind
    shares: Signed
    keys: Signed
    opened: list[Opened]

    def judged(self, invitation: Invitation) -> Fault:
        """That the dealer lied."""
        session, dealer = invitation.session, self.dealer
        shares = _shares(invitation, dealer, self.shares)
        _require(_is_said(invitation, dealer, self.keys, Stage.ADVERTISE, EVERYONE))
        holders = [part.member for part in self.opened]
        _require(len(set(holders)) == len(holders) == invitation.graph.threshold)
        _require(all(0 <= holder < len(invitation.members) for holder in holders))
        for holder, share in ((part.member, part.share) for part in self.opened):
            own = holder == dealer
            checks = shares.own if own else _box_for(holder, shares).checks
            _require(is_share(share, self.kind, checks, session, dealer, holder))
        points = {
            part.member + 1: secret_sharing.share_from_bytes(part.share) for part in self.opened
        }
        keys = Advertisement.from_bytes(self.keys.body)
        _require(
            secret_behind(points, self.kind, shares.commitment, keys.mask_key, session) is None
        )
        return Fault(dealer, "{member} dealt shares that do not belong together.", dealer)


Evidence = Dispute | WrongShare | WrongDealing


class File(Message, frozen=True):
    """Evidence as it is handed on, with the invitation that it is judged by."""

    invitation: bytes
    found: list[Evidence]

    def judged(self) -> list[Fault]:
        """What it shows; what shows nothing is passed over, so that it hides nothing either."""
        invitation = Invitation(self.invitation)
        most = MOST_EACH * len(invitation.members)
        if len(self.found) > most:
            raise ProtocolError(
                f"evidence about {len(invitation.members):,} members has at most {most:,} parts, "
                f"got {len(self.found):,}."
            )
        faults = []
        for evidence in self.found:
            with suppress(ProtocolError):
                faults.append(evidence.judged(invitation))
        if self.found and not faults:
            raise ProtocolError(_NOTHING)
        return faults


def secret_behind(
    shares: dict[int, int], kind: Kind, commitment: bytes, mask_key: bytes, session: bytes
) -> bytes | None:
    """The secret that shares give, by point; None where it is not the one that was announced."""
    try:
        secret = secret_sharing.secret_from_int(secret_sharing.join(shares))
    except ProtocolError:
        return None
    if kind is Kind.MASK:
        return secret if masking.commitment(secret, session) == commitment else None
    return secret if masking.AgreementKey(secret).public == mask_key else None


def _shares(invitation: Invitation, dealer: int, said: Signed) -> Shares:
    _require(_is_said(invitation, dealer, said, Stage.SHARE, COORDINATOR))
    return Shares.from_bytes(said.body)


def _is_said(invitation: Invitation, member: int, said: Signed, stage: Stage, to: int) -> bool:
    return invitation.is_signed(member, said.signature, stage, said.body, to=to)


def _box_for(holder: int, shares: Shares) -> Box:
    boxes = [box for box in shares.boxes if box.member == holder]
    _require(len(boxes) == 1)
    return boxes[0]


def _require(holds: bool) -> None:
    if not holds:
        raise ProtocolError(_NOTHING)
