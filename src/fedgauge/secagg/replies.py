"""What a reply must be: judged by what its sender was asked, before anything is made of it."""

from typing import Any

from fedgauge.errors import ProtocolError
from fedgauge.keys import SigningKey
from fedgauge.protocol import COORDINATOR, EVERYONE, Envelope
from fedgauge.secagg import crypto, shamir, words
from fedgauge.secagg.boxes import DIGEST_BYTES
from fedgauge.secagg.evidence import Signed
from fedgauge.secagg.kept import Dealings, Dealt, Input, Kept
from fedgauge.secagg.messages import (
    Advertisement,
    Agreement,
    Ballot,
    Invitation,
    Masked,
    Opening,
    Peer,
    SealedOpening,
    Shares,
    Stage,
    complaint,
    opening,
    receipt,
    sharing,
)


class Reader:
    """Reads replies of the round that a summation is in.

    Parameters
    ----------
    invitation, kept, dealings
        Who was asked for what, and what they said so far.
    key
        The coordinator's key, which openings are sealed for.
    """

    def __init__(
        self, invitation: Invitation, kept: Kept, dealings: Dealings, key: SigningKey
    ) -> None:
        self._invitation = invitation
        self._kept = kept
        self._dealings = dealings
        self._key = key

    def read(self, member: int, reply: bytes) -> Any:
        """What a member's reply says, as the coordinator keeps it; ProtocolError if it misfits."""
        stage = Stage(self._kept.stage)
        envelope = Envelope.from_bytes(reply)
        envelope.check(
            self._invitation.members[member],
            session=self._invitation.session,
            stage=stage,
            sender=member,
            recipients={EVERYONE if stage == Stage.ADVERTISE else COORDINATOR},
        )
        return self._understood(stage, member, envelope)

    def _understood(self, stage: Stage, member: int, envelope: Envelope) -> Any:
        """The reply as the coordinator keeps it."""
        body = envelope.body
        match stage:
            case Stage.ADVERTISE:
                Advertisement.from_bytes(body).check()
                return Peer(member, body, envelope.signature)
            case Stage.SHARE:
                return self._checked_shares(member, Shares.from_bytes(body), envelope.signature)
            case Stage.MASK:
                return self._checked_input(member, Masked.from_bytes(body))
            case Stage.AGREE:
                ballot = self._checked_ballot(member, Ballot.from_bytes(body))
                return ballot.vote, Signed(body, envelope.signature)
            case _:
                theirs = self._kept.advertised(member).box_key
                opened = SealedOpening.from_bytes(body).opened(
                    self._invitation, member, theirs, self._key
                )
                return self._checked_opening(member, opened)

    def _checked_shares(self, member: int, shares: Shares, signature: bytes) -> Dealt:
        if [box.member for box in shares.boxes] != sorted(self._dealings.picks(member)):
            raise ProtocolError("shares are not for the neighbours that were picked.")
        sizes = (len(shares.commitment), len(shares.own))
        if sizes != (crypto.COMMITMENT_BYTES, 2 * DIGEST_BYTES) or not all(
            box.has_right_size for box in shares.boxes
        ):
            raise ProtocolError("shares or a commitment have the wrong size.")
        boxes = {box.member: box for box in shares.boxes}
        return Dealt(shares.commitment, shares.own, boxes, signature)

    def _checked_input(self, member: int, masked: Masked) -> tuple[words.Words, Input]:
        session = self._invitation.session
        told = sharing(session, self._kept.present_bits, self._kept.sharer_bits)
        self._require_word(member, masked.sharing, Stage.MASK, told)
        boxes = self._dealings.boxes_to(member)
        self._require_word(member, masked.receipt, Stage.MASK, receipt(session, boxes.values()))
        complaints = {said.member: said for said in masked.complaints}
        if len(complaints) != len(masked.complaints):
            raise ProtocolError("a member complains twice of the same.")
        for dealer, said in complaints.items():
            if said.box != boxes.get(dealer):
                raise ProtocolError("a member complains of a box that it was not sent.")
            self._require_word(member, said.signature, Stage.MASK, complaint(session, said.box))
        values = words.from_bytes(
            masked.words, self._invitation.plan.numbers, self._invitation.bits
        )
        return values, Input(masked.sharing, masked.receipt, complaints)

    def _checked_ballot(self, member: int, ballot: Ballot) -> Ballot:
        self._require_word(
            member, ballot.vote, Stage.AGREE, self._kept.agreement(self._invitation.session)
        )
        answered = sorted(answer.member for answer in ballot.answers)
        if answered != sorted(self._dealings.complaints_of(member)):
            raise ProtocolError("a member does not answer the complaints about its boxes.")
        for answer in ballot.answers:
            if answer.box_key != self._kept.advertised(answer.member).box_key:
                raise ProtocolError("a member says that it sealed a box for another key.")
        return ballot

    def _checked_opening(self, member: int, opened: Opening) -> Opening:
        survivors = self._kept.survivors.keys()
        held = {*self._dealings.held_by(member), member}
        asked = (held & survivors, held - survivors)
        for parts, wanted in zip((opened.masks, opened.keys), asked, strict=True):
            if sorted(part.member for part in parts) != sorted(wanted):
                raise ProtocolError("a member opens other shares than it was asked for.")
            for part in parts:
                shamir.share_from_bytes(part.share)
        told = opening(self._invitation.session, Opening.digests(opened.masks, opened.keys))
        self._require_word(member, opened.signature, Stage.OPEN, told)
        return opened

    def _require_word(self, member: int, signature: bytes, stage: Stage, told: Agreement) -> None:
        if not self._invitation.is_signed(member, signature, stage, told.to_bytes()):
            raise ProtocolError("a member did not sign what it was told or says.")
