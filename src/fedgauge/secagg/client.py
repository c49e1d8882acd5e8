"""One member's side of a secure summation: five requests, each answered once."""

import hashlib
import os
from collections.abc import Iterable, Sequence, Set
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedgauge.errors import CohortTooSmall, ProtocolError
from fedgauge.keys import SigningKey
from fedgauge.protocol import COORDINATOR, EVERYONE, Envelope
from fedgauge.secagg import masking, secret_sharing
from fedgauge.secagg.graph import picks
from fedgauge.secagg.messages import (
    SEED_BYTES,
    Advertisement,
    Advertisements,
    Agreement,
    Ballot,
    BoxKey,
    Complaint,
    Inbox,
    Invitation,
    Masked,
    Opened,
    Opening,
    Peer,
    Quorum,
    SealedOpening,
    Shares,
    Stage,
    Survivors,
    agreement,
    complaint,
    from_bitmap,
    opening,
    receipt,
    sharing,
)
from fedgauge.secagg.secret_sharing import Box, SharePair
from fedgauge.storage import MALFORMED


class Duties(Protocol):
    """What a summation asks of whoever takes part in it."""

    def contribution(self, sharers: Sequence[bytes]) -> NDArray[np.int64]:
        """The values to be added, noise included; asked for once, before anything is counted.

        It is told with whom they are masked, and raises to refuse.
        """

    def agree(self, survivors: Sequence[bytes]) -> None:
        """Told who is in the sum, before this member votes to open it; raises to refuse."""


class _Keys(msgspec.Struct, frozen=True, array_like=True):
    """What a peer advertised."""

    mask: bytes
    box: bytes


class _State(msgspec.Struct):
    """All that a member remembers between requests. Secret: it holds the keys."""

    invitation: bytes
    stage: int
    noise_key: bytes
    answered: dict[bytes, bytes] = {}
    mask_key: bytes = b""
    box_key: bytes = b""
    seed: bytes = b""
    setting: bytes = b""
    own_mask: bytes = b""
    present: bytes = b""
    sharers: bytes = b""
    survivors: bytes = b""
    peers: dict[int, _Keys] = {}
    sent: dict[int, bytes] = {}  # digests of boxes, by holder
    held: dict[int, SharePair] = {}
    unopened: list[int] = []  # who sent a box that does not open


class SummationClient:
    """A member that has been invited; see :meth:`join`, and :meth:`from_bytes` to go on later.

    A repeated request gets the same bytes; any other one of a stage that was answered is refused.
    Errors are for the member's own operator: the server sees only a member that fell silent.
    """

    def __init__(
        self, invitation: Invitation, key: SigningKey, duties: Duties, state: _State
    ) -> None:
        self._invitation = invitation
        self._key = key
        self._duties = duties
        self._state = state
        self._me = invitation.members.index(key.public)

    @classmethod
    def join(
        cls, invitation: Invitation, key: SigningKey, duties: Duties, *, setting: bytes = b""
    ) -> "SummationClient":
        """Accept an invitation with fresh keys; :meth:`receive` gives the answer to it.

        `setting` is what all members must have in common besides the invitation.
        """
        if key.public not in invitation.members:
            raise ProtocolError("this site is not among the invited.")
        _ = invitation.plan  # refused where its graph protects too little
        state = _State(
            invitation=invitation.data,
            stage=Stage.ADVERTISE,
            noise_key=os.urandom(masking.KEY_BYTES),
            mask_key=os.urandom(masking.KEY_BYTES),
            box_key=os.urandom(masking.KEY_BYTES),
            seed=os.urandom(SEED_BYTES),
            setting=setting,
        )
        client = cls(invitation, key, duties, state)
        advertisement = Advertisement(
            mask_key=masking.AgreementKey(state.mask_key).public,
            box_key=masking.AgreementKey(state.box_key).public,
            seed=state.seed,
            setting=setting,
        )
        reply = client._sealed(Stage.ADVERTISE, EVERYONE, advertisement.to_bytes())
        state.answered[_digest(invitation.data)] = reply
        return client

    @classmethod
    def from_bytes(cls, data: bytes, key: SigningKey, duties: Duties) -> "SummationClient":
        """Go on from a saved state."""
        try:
            state = msgspec.msgpack.decode(data, type=_State)
        except MALFORMED:
            raise ProtocolError("a saved state cannot be read.") from None
        invitation = Invitation(state.invitation)
        if key.public not in invitation.members:
            raise ProtocolError("a saved state belongs to another key than this site's.")
        return cls(invitation, key, duties, state)

    def to_bytes(self) -> bytes:
        """The state to go on from. It holds private keys until the sum is opened."""
        return msgspec.msgpack.encode(self._state)

    @property
    def stage(self) -> Stage:
        """The last stage answered."""
        return Stage(self._state.stage)

    @property
    def invitation(self) -> Invitation:
        """What the client was invited to."""
        return self._invitation

    @property
    def setting(self) -> bytes:
        """What the client signed, when it joined, that it counts in."""
        return self._state.setting

    @property
    def noise_key(self) -> bytes:
        """What the member draws its noise with: a secret of this session, gone once it counted."""
        return self._state.noise_key

    @property
    def unopened(self) -> tuple[bytes, ...]:
        """Public keys of members who sent shares that do not open."""
        return tuple(self._invitation.members[member] for member in self._state.unopened)

    def receive(self, request: bytes) -> bytes:
        """The reply to a request."""
        digest = _digest(request)
        if digest in self._state.answered:
            return self._state.answered[digest]
        envelope = Envelope.from_bytes(request)
        if envelope.stage <= self._state.stage:
            raise ProtocolError(
                f"stage {envelope.stage} was answered already, to another request. "
                "A new attempt needs a new invitation."
            )
        if self._state.stage == Stage.OPEN:
            raise ProtocolError("the sum was opened already; there is nothing left to answer.")
        due = Stage(self._state.stage + 1)
        envelope.check(
            self._invitation.coordinator,
            session=self._invitation.session,
            stage=due,
            sender=COORDINATOR,
            recipients={self._me},
        )
        # A request that is refused must leave no trace: work on a copy.
        state = msgspec.structs.replace(
            self._state,
            answered=dict(self._state.answered),
            peers=dict(self._state.peers),
            sent=dict(self._state.sent),
            held=dict(self._state.held),
            unopened=list(self._state.unopened),
        )
        body = self._answer(due, envelope.body, state)
        state.stage = due
        state.answered[digest] = self._sealed(due, COORDINATOR, body)
        self._state = state
        return state.answered[digest]

    def _answer(self, stage: Stage, body: bytes, state: _State) -> bytes:
        match stage:
            case Stage.SHARE:
                return self._share(Advertisements.from_bytes(body), state).to_bytes()
            case Stage.MASK:
                return self._mask(Inbox.from_bytes(body), state).to_bytes()
            case Stage.AGREE:
                return self._agree(Survivors.from_bytes(body), state).to_bytes()
            case _:
                return self._open(Quorum.from_bytes(body), state).to_bytes()

    def _share(self, roster: Advertisements, state: _State) -> Shares:
        present = self._members(roster.present)
        self._require_me(present)
        self._require_enough(len(present))
        mine = self._picked(state) & present
        self._require_holders(len(mine) + 1)
        self._meet(roster.peers, mine, state)
        state.present, state.own_mask = roster.present, os.urandom(masking.KEY_BYTES)
        points = [member + 1 for member in sorted(mine | {self._me})]
        threshold = self._invitation.graph.threshold
        masks = secret_sharing.split(
            secret_sharing.secret_to_int(state.own_mask), points, threshold
        )
        keys = secret_sharing.split(secret_sharing.secret_to_int(state.mask_key), points, threshold)
        session, me = self._invitation.session, self._me
        dealt = {
            point - 1: SharePair(
                secret_sharing.share_to_bytes(masks[point]),
                secret_sharing.share_to_bytes(keys[point]),
            )
            for point in points
        }
        boxes = []
        for member in sorted(mine):
            key, theirs = self._key_of_box(member, state), state.peers[member].box
            box = Box.made(dealt[member], key, theirs, session, me, member)
            state.sent[member] = box.digest(me, member)
            boxes.append(box)
        state.held[me] = dealt[me]
        return Shares(
            commitment=masking.commitment(state.own_mask, session),
            own=dealt[me].checks(session, me, me),
            boxes=boxes,
        )

    def _mask(self, inbox: Inbox, state: _State) -> Masked:
        sharers = self._members(inbox.sharers)
        if not sharers <= self._members(state.present):
            raise ProtocolError("members are said to have shared who were said to be absent.")
        self._require_me(sharers)
        self._require_enough(len(sharers))
        mine = self._picked(state) & sharers
        self._require_holders(len(mine) + 1)
        theirs = {box.member for box in inbox.boxes}
        if len(theirs) != len(inbox.boxes) or not theirs <= sharers - {self._me}:
            raise ProtocolError("boxes of shares come twice or from members who did not share.")
        if self._invitation.graph.is_complete and theirs != mine:
            raise ProtocolError("boxes of shares are held back.")
        self._meet(inbox.peers, theirs - set(state.peers), state)
        complaints, digests = self._take(inbox.boxes, state)
        state.sharers = inbox.sharers
        session = self._invitation.session
        told = (self._sharing(state), receipt(session, digests))
        signatures = [self._signed(Stage.MASK, body) for body in told]
        numbers = self._masked(mine | theirs, state)
        state.noise_key = b""  # with which guesses of the counts could be tested
        return Masked(
            words=numbers.tobytes(),
            sharing=signatures[0],
            receipt=signatures[1],
            complaints=complaints,
        )

    def _take(self, boxes: Iterable[Box], state: _State) -> tuple[list[Complaint], list[bytes]]:
        """Keep the shares in boxes; complaints of those that do not open, digests of all."""
        # To stop at a box that does not open would let who dealt it choose who is in the sum.
        session, me = self._invitation.session, self._me
        mine = masking.AgreementKey(state.box_key)
        complaints, digests = [], []
        for box in sorted(boxes, key=lambda box: box.member):
            digests.append(box.digest(box.member, me))
            try:
                state.held[box.member] = box.opened(mine, session, box.member, me)
            except ProtocolError:
                state.unopened.append(box.member)
                signature = self._signed(Stage.MASK, complaint(session, digests[-1]))
                complaints.append(Complaint(box.member, digests[-1], signature))
        return complaints, digests

    def _masked(self, neighbours: Iterable[int], state: _State) -> masking.Words:
        plan, session = self._invitation.plan, self._invitation.session
        most, bits = plan.most_per_count, self._invitation.bits
        key = masking.derive(state.own_mask, session=session, purpose=b"own mask")
        total = masking.mask(key, plan.numbers, bits).copy()
        mask_key = masking.AgreementKey(state.mask_key)
        for member in neighbours:
            apply_pair_mask(
                total, mask_key, state.peers[member].mask, self._me, member, session, bits
            )
        # Last, when nothing that others sent can fail any more: it is asked for once.
        members = self._invitation.members
        sharers = sorted(self._members(state.sharers))
        values = self._duties.contribution([members[member] for member in sharers])
        if values.shape != (plan.numbers,):
            raise ProtocolError(
                f"the contribution has {values.size:,} numbers, the plan asks for {plan.numbers:,}."
            )
        return total + masking.encode(values, most, bits)

    def _agree(self, request: Survivors, state: _State) -> Ballot:
        survivors = self._members(request.survivors)
        self._require_me(survivors)
        if not survivors <= self._members(state.sharers):
            raise ProtocolError("members are said to survive who were said not to have shared.")
        self._require_enough(len(survivors))
        self._require_holders(len(self._picked(state) & survivors) + 1)
        answers = self._answers(request.complaints, state)
        members = self._invitation.members
        self._duties.agree([members[member] for member in sorted(survivors)])
        state.survivors = request.survivors
        return Ballot(vote=self._signed(Stage.AGREE, self._agreement(state)), answers=answers)

    def _answers(self, complaints: Sequence[Complaint], state: _State) -> list[BoxKey]:
        """Keys of the boxes that holders complain of."""
        # Only of boxes as they were sent: an honest holder opens those, so who complains of one
        # lies, and learns nothing that it did not know.
        invitation = self._invitation
        holders = [said.member for said in complaints]
        if len(set(holders)) != len(holders):
            raise ProtocolError("a complaint comes twice.")
        for said in complaints:
            body = complaint(invitation.session, said.box).to_bytes()
            if said.member not in state.sent or not invitation.is_signed(
                said.member, said.signature, Stage.MASK, body
            ):
                raise ProtocolError("a complaint is not from a holder of this site's shares.")
            if state.sent[said.member] != said.box:
                raise ProtocolError(
                    "a holder was given another box than this site sent: who carried it, or the "
                    "coordinator, altered it."
                )
        return [BoxKey(m, self._key_of_box(m, state).private, state.peers[m].box) for m in holders]

    def _open(self, quorum: Quorum, state: _State) -> SealedOpening:
        survivors, sharers = self._members(state.survivors), self._members(state.sharers)
        self._check_votes(quorum, self._picked(state) & survivors, state)
        self._check_sharing(quorum, state.held.keys() & survivors - {self._me}, state)
        held, dropped = sorted(state.held.items()), sharers - survivors
        masks = [Opened(member, pair.mask) for member, pair in held if member in survivors]
        keys = [Opened(member, pair.key) for member, pair in held if member in dropped]
        told = opening(self._invitation.session, Opening.digests(masks, keys))
        opened = Opening(masks=masks, keys=keys, signature=self._signed(Stage.OPEN, told))
        box_key = masking.AgreementKey(state.box_key)
        sealed = SealedOpening.of(opened, self._invitation, self._me, box_key)
        # Nothing below is needed again: what was not told now can never be told.
        state.mask_key = state.box_key = state.own_mask = b""
        state.held.clear()
        return sealed

    def _check_votes(self, quorum: Quorum, holders: frozenset[int], state: _State) -> None:
        """Holders of this member's shares, enough of them, were told the same."""
        # The own vote is one. Where all must vote, all are holders.
        needed = self._invitation.votes_needed(len(self._members(state.survivors))) - 1
        voters = [vote.member for vote in quorum.votes]
        if len(set(voters)) != len(voters) or not holders.issuperset(voters):
            raise ProtocolError("a vote comes twice or from a member that does not count.")
        if len(voters) < needed:
            raise CohortTooSmall(
                f"{len(voters) + 1} holders agree on the survivors and {needed + 1} are needed."
            )
        body = self._agreement(state).to_bytes()
        said = self._invitation.is_signed
        if not all(said(v.member, v.signature, Stage.AGREE, body) for v in quorum.votes):
            raise ProtocolError(
                "a holder did not vote for the same survivors: members were told different "
                "things, or its vote was altered."
            )

    def _check_sharing(self, quorum: Quorum, owners: Set[int], state: _State) -> None:
        """Survivors whose masks this member helps to open have masked with it."""
        if sorted(vote.member for vote in quorum.sharing) != sorted(owners):
            raise ProtocolError("what survivors were told is held back, or comes twice.")
        body = self._sharing(state).to_bytes()
        said = self._invitation.is_signed
        if not all(said(v.member, v.signature, Stage.MASK, body) for v in quorum.sharing):
            raise ProtocolError("a survivor was told another story about who shared.")

    def _agreement(self, state: _State) -> Agreement:
        session = self._invitation.session
        return agreement(session, state.present, state.sharers, state.survivors, state.setting)

    def _sharing(self, state: _State) -> Agreement:
        return sharing(self._invitation.session, state.present, state.sharers)

    def _meet(self, peers: Sequence[Peer], expected: Iterable[int], state: _State) -> None:
        """Take the keys of exactly the expected members, each signed by its owner."""
        if sorted(peer.member for peer in peers) != sorted(expected):
            raise ProtocolError("keys of members are missing, come twice or were not asked for.")
        for peer in peers:
            if not self._invitation.is_signed(
                peer.member, peer.signature, Stage.ADVERTISE, peer.body
            ):
                raise ProtocolError("a member's keys are not signed by that member.")
            keys = Advertisement.from_bytes(peer.body)
            if keys.setting != state.setting:
                raise ProtocolError(
                    "a member's run is configured otherwise than this one's, so their sum would "
                    "mix different things."
                )
            state.peers[peer.member] = _Keys(keys.mask_key, keys.box_key)

    def _key_of_box(self, holder: int, state: _State) -> masking.AgreementKey:
        purpose = b"key of box " + masking.pair(self._me, holder)
        session = self._invitation.session
        return masking.AgreementKey(masking.derive(state.box_key, session=session, purpose=purpose))

    def _picked(self, state: _State) -> frozenset[int]:
        return frozenset(picks(state.seed, self._me, self._invitation.graph).tolist())

    def _members(self, bitmap: bytes) -> frozenset[int]:
        return from_bitmap(bitmap, len(self._invitation.members))

    def _require_holders(self, count: int) -> None:
        threshold = self._invitation.graph.threshold
        if count < threshold:
            raise CohortTooSmall(
                f"{count} holders of this site's shares are left and {threshold} are needed."
            )

    def _require_enough(self, count: int) -> None:
        needed = self._invitation.needed
        if count < needed:
            raise CohortTooSmall(
                f"{count} members are left and {needed} are needed; nothing is opened."
            )

    def _require_me(self, members: frozenset[int]) -> None:
        if self._me not in members:
            raise ProtocolError("this site is said to have dropped out, so it stops here.")

    def _sealed(self, stage: Stage, recipient: int, body: bytes) -> bytes:
        return self._envelope(stage, recipient, body).to_bytes()

    def _signed(self, stage: Stage, told: Agreement) -> bytes:
        """The member's signature under something that others can compare."""
        return self._envelope(stage, EVERYONE, told.to_bytes()).signature

    def _envelope(self, stage: Stage, recipient: int, body: bytes) -> Envelope:
        return Envelope.sealed(
            self._key,
            session=self._invitation.session,
            stage=stage,
            sender=self._me,
            recipient=recipient,
            body=body,
        )


def apply_pair_mask(
    total: masking.Words,
    mine: masking.AgreementKey,
    peer: bytes,
    me: int,
    other: int,
    session: bytes,
    bits: int,
) -> None:
    """Add the mask that two members share, with opposite signs at the two, in place."""
    first, second = sorted((me, other))
    purpose = b"mask " + masking.pair(first, second)
    key = masking.derive(mine.agree(peer), session=session, purpose=purpose)
    mask = masking.mask(key, len(total), bits)
    if me == first:
        np.add(total, mask, out=total)
    else:
        np.subtract(total, mask, out=total)


def _digest(request: bytes) -> bytes:
    return hashlib.sha256(request).digest()
