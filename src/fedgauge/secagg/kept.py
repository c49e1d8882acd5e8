"""What a coordinator keeps between rounds: nothing in it is unmasked."""

from collections import defaultdict
from functools import cached_property

import msgspec

from fedgauge.secagg.boxes import Box
from fedgauge.secagg.evidence import Dispute, Evidence, Signed
from fedgauge.secagg.graph import picks
from fedgauge.secagg.messages import (
    Advertisement,
    Agreement,
    Complaint,
    Invitation,
    Peer,
    Shares,
    Stage,
    agreement,
)


class Dealt(msgspec.Struct, frozen=True, array_like=True):
    """What a member sent in the second round, as it signed it; boxes by holder, in order."""

    commitment: bytes
    own: bytes
    boxes: dict[int, Box]
    signature: bytes

    @property
    def signed(self) -> Signed:
        """The message itself."""
        shares = Shares(commitment=self.commitment, own=self.own, boxes=list(self.boxes.values()))
        return Signed(shares.to_bytes(), self.signature)

    def checks(self, dealer: int, holder: int) -> bytes:
        """Digests of the shares that a holder was dealt."""
        return self.own if dealer == holder else self.boxes[holder].checks


class Input(msgspec.Struct, frozen=True, array_like=True):
    """What came with a member's masked input, which is added up at once."""

    sharing: bytes
    receipt: bytes
    complaints: dict[int, Complaint]  # by who dealt the box


class Kept(msgspec.Struct):
    """The state of a summation at its coordinator."""

    invitation: bytes
    stage: int = Stage.ADVERTISE
    peers: dict[int, Peer] = {}
    shared: dict[int, Dealt] = {}
    survivors: dict[int, Input] = {}
    setting: bytes = b""  # what the members' runs have in common
    present_bits: bytes = b""
    sharer_bits: bytes = b""
    survivor_bits: bytes = b""
    words: bytes = b""
    votes: dict[int, bytes] = {}
    ballots: dict[int, Signed] = {}  # of those who had a complaint to answer
    refused: dict[int, str] = {}
    evidence: list[Evidence] = []

    def advertised(self, member: int) -> Advertisement:
        """A member's keys."""
        return Advertisement.from_bytes(self.peers[member].body)

    def keys_of(self, member: int) -> Signed:
        """A member's keys, as it signed them."""
        return Signed(self.peers[member].body, self.peers[member].signature)

    def agreement(self, session: bytes) -> Agreement:
        """What members are asked to agree on."""
        return agreement(
            session, self.present_bits, self.sharer_bits, self.survivor_bits, self.setting
        )


class Dealings:
    """Who dealt shares to whom, and who complains of whom, at one moment of a summation."""

    def __init__(self, invitation: Invitation, kept: Kept) -> None:
        self._invitation = invitation
        self._kept = kept
        self._picks: dict[int, frozenset[int]] = {}

    def picks(self, member: int) -> frozenset[int]:
        """The members present that one picked."""
        if member not in self._picks:
            seed = self._kept.advertised(member).seed
            chosen = picks(seed, member, self._invitation.graph)
            self._picks[member] = frozenset(chosen.tolist()) & self._kept.peers.keys()
        return self._picks[member]

    def senders_to(self, member: int) -> list[int]:
        """Members who sent shares to this one, in order."""
        return self._senders.get(member, [])

    def boxes_to(self, member: int) -> dict[int, bytes]:
        """Digests of the boxes for a member, by who dealt them, in order."""
        shared = self._kept.shared
        return {
            sender: shared[sender].boxes[member].digest(sender, member)
            for sender in self.senders_to(member)
        }

    def complaints_of(self, dealer: int) -> dict[int, Complaint]:
        """Complaints of a member's boxes, by holder."""
        return self._complaints.get(dealer, {})

    def held_by(self, member: int) -> list[int]:
        """Members of whom this one holds shares, by what it said, in order."""
        senders = self.senders_to(member)
        return [sender for sender in senders if member not in self.complaints_of(sender)]

    def holders_of(self, dealer: int) -> set[int]:
        """Members who hold shares of this one, itself included, by what they said."""
        return {dealer, *self._kept.shared[dealer].boxes} - self.complaints_of(dealer).keys()

    @property
    def disputes(self) -> list[Evidence]:
        """All complaints, with what decides who lied."""
        kept = self._kept
        return [
            Dispute(
                dealer,
                holder,
                kept.shared[dealer].signed,
                kept.keys_of(holder),
                said.signature,
                kept.ballots.get(dealer),
            )
            for dealer, complaints in sorted(self._complaints.items())
            for holder, said in sorted(complaints.items())
        ]

    @cached_property
    def _senders(self) -> dict[int, list[int]]:
        senders: dict[int, list[int]] = {}
        for sender in sorted(self._kept.shared):
            for recipient in self._kept.shared[sender].boxes:
                senders.setdefault(recipient, []).append(sender)
        return senders

    @cached_property
    def _complaints(self) -> dict[int, dict[int, Complaint]]:
        complaints: defaultdict[int, dict[int, Complaint]] = defaultdict(dict)
        for holder, said in self._kept.survivors.items():
            for dealer, complaint in said.complaints.items():
                complaints[dealer][holder] = complaint
        return complaints
