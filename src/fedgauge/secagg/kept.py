"""What a coordinator keeps between rounds: nothing in it is unmasked."""

import msgspec

from fedgauge.secagg.boxes import Box
from fedgauge.secagg.evidence import Evidence, Signed
from fedgauge.secagg.messages import Advertisement, Complaint, Peer, Shares, Stage


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

    def complains(self, holder: int, dealer: int) -> bool:
        """Whether a holder could not open its box, as it says; who sent no input says nothing."""
        said = self.survivors.get(holder)
        return said is not None and dealer in said.complaints
