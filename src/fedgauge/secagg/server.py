"""The coordinator's side of a secure summation: it forwards, adds up, and opens one sum."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedgauge.errors import CohortTooSmall, FedgaugeError, ProtocolError
from fedgauge.keys import SigningKey
from fedgauge.plan import EvaluationPlan
from fedgauge.protocol import COORDINATOR, EVERYONE, Envelope, Requests, is_signed
from fedgauge.secagg import crypto, shamir, words
from fedgauge.secagg.client import apply_pair_mask
from fedgauge.secagg.graph import choose_graph, picks
from fedgauge.secagg.messages import (
    RUN_BYTES,
    Advertisement,
    Agreement,
    Box,
    Inbox,
    Invitation,
    Masked,
    Opening,
    Peer,
    Quorum,
    Roster,
    SealedOpening,
    Shares,
    Stage,
    Survivors,
    Vote,
    agreement,
    sharing,
    to_bitmap,
)

_BOX_BYTES: Final = 2 * shamir.SHARE_BYTES + crypto.SEAL_BYTES
Replies = Mapping[int, bytes] | Iterable[tuple[int, bytes]]


class Sum(NamedTuple):
    """The outcome: the sum, and the indices of the members in it."""

    total: NDArray[np.int64]
    survivors: tuple[int, ...]


class Confirmed(NamedTuple):
    """What shows that members confirmed whose numbers are in the sum.

    The invitation, who was there, shared and survived, the setting they counted in, and what
    each member signed about it.
    """

    invitation: bytes
    present: bytes
    sharers: bytes
    survivors: bytes
    setting: bytes
    votes: tuple[Vote, ...]


class _Shared(msgspec.Struct, frozen=True, array_like=True):
    """What a member sent in the second round; boxes by recipient."""

    commitment: bytes
    boxes: dict[int, bytes]


class _State(msgspec.Struct):
    """All that the coordinator remembers between rounds: nothing in it is unmasked."""

    invitation: bytes
    stage: int = Stage.ADVERTISE
    peers: dict[int, Peer] = {}
    shared: dict[int, _Shared] = {}
    survivors: dict[int, bytes] = {}  # with what each signed about who shared
    setting: bytes = b""  # what the members' runs have in common
    present_bits: bytes = b""
    sharer_bits: bytes = b""
    survivor_bits: bytes = b""
    words: bytes = b""
    votes: dict[int, bytes] = {}
    refused: dict[int, str] = {}


class SummationServer:
    """A coordinator of one summation.

    `requests` are what is to be sent now; :meth:`step` takes the replies and gives the next
    requests, or the sum. A reply that does not fit is set aside, and its sender counts as
    dropped out.

    Parameters
    ----------
    invitation
        Whom to ask for what; see :meth:`invite`.
    key
        The coordinator's signing key.
    """

    def __init__(self, invitation: Invitation, key: SigningKey) -> None:
        self._invitation = invitation
        self._key = key
        self._state = _State(invitation=invitation.data)
        self._checked: dict[int, tuple[bytes, Any]] = {}  # replies of this stage, and what they say
        self._picks: dict[int, frozenset[int]] = {}
        self._senders: dict[int, list[int]] = {}

    @classmethod
    def invite(
        cls,
        plan: EvaluationPlan,
        members: Iterable[bytes],
        key: SigningKey,
        *,
        model: bytes = b"",
    ) -> "SummationServer":
        """A new attempt with a fresh run id, for the members with these public keys.

        `model` is the digest of what they will be sent to score with; empty where nothing is.
        """
        ordered = sorted(set(members))
        words.word_bits(len(ordered), plan.most_per_count)  # refuses sums that do not fit
        graph = choose_graph(len(ordered), plan.sum_cohort)
        invitation = Invitation.made(plan, ordered, key, os.urandom(RUN_BYTES), graph, model=model)
        return cls(invitation, key)

    @classmethod
    def from_bytes(cls, data: bytes, key: SigningKey) -> "SummationServer":
        """Go on from a saved state."""
        try:
            state = msgspec.msgpack.decode(data, type=_State)
        except msgspec.MsgspecError:
            raise ProtocolError("a saved state cannot be read.") from None
        server = cls(Invitation(state.invitation), key)
        server._state = state
        return server

    def to_bytes(self) -> bytes:
        """The state to go on from."""
        return msgspec.msgpack.encode(self._state)

    @property
    def invitation(self) -> Invitation:
        """What the members are invited to."""
        return self._invitation

    @property
    def stage(self) -> Stage:
        """The stage whose replies are awaited."""
        return Stage(self._state.stage)

    @property
    def refused(self) -> Mapping[int, str]:
        """Members whose replies were set aside, and why."""
        return self._state.refused

    @property
    def needed(self) -> int:
        """How many members must stay to the end."""
        return self._invitation.needed

    @property
    def answers_needed(self) -> int:
        """How many members must answer in this round."""
        match self.stage:
            case Stage.AGREE:
                return self._votes_needed
            case Stage.OPEN:
                return self._invitation.graph.threshold
            case _:
                return self.needed

    @property
    def confirmed(self) -> Confirmed:
        """What the members confirmed, once they did."""
        state = self._state
        return Confirmed(
            self._invitation.data,
            state.present_bits,
            state.sharer_bits,
            state.survivor_bits,
            state.setting,
            tuple(Vote(member, state.votes[member]) for member in sorted(state.votes)),
        )

    @property
    def requests(self) -> Requests:
        """What is to be sent now, by member."""
        state, make = self._state, self._request
        match self.stage:
            case Stage.ADVERTISE:
                return Requests(range(len(self._invitation.members)), make)
            case Stage.SHARE:
                return Requests(sorted(state.peers), make)
            case Stage.MASK:
                return Requests(sorted(state.shared), make)
            case Stage.AGREE:
                return Requests(sorted(state.survivors), make)
            case _:
                return Requests(sorted(state.votes), make)

    def check(self, member: int, reply: bytes) -> None:
        """Refuse a reply that is not a member's reply to what it was sent last.

        The next step does not verify the same bytes again.
        """
        self._checked.setdefault(member, (reply, self._opened(member, reply)))

    def step(self, replies: Replies) -> Requests | Sum:
        """The next requests, or the sum once the last round is over."""
        # A step that fails must leave no trace: work on a copy.
        before, self._state = self._state, msgspec.structs.replace(self._state)
        self._state.refused = dict(before.refused)
        try:
            return self._step(replies.items() if isinstance(replies, Mapping) else replies)
        except BaseException:
            self._state = before
            raise
        finally:
            self._checked.clear()  # another stage asks for something else

    def _step(self, replies: Iterable[tuple[int, bytes]]) -> Requests | Sum:
        state, accepted = self._state, self._accepted(replies)
        match self.stage:
            case Stage.ADVERTISE:
                state.peers = self._of_one_setting(dict(accepted))
                state.present_bits = self._bitmap(state.peers)
                self._require(len(state.peers), self.needed)
            case Stage.SHARE:
                state.shared = dict(accepted)
                state.sharer_bits = self._bitmap(state.shared)
                self._require(len(state.shared), self.needed)
            case Stage.MASK:
                self._add_up(accepted)
                state.survivor_bits = self._bitmap(state.survivors)
                self._require(len(state.survivors), self.needed)
            case Stage.AGREE:
                state.votes = dict(accepted)
                self._require(len(state.votes), self._votes_needed)
            case Stage.OPEN:
                return self._unmask(dict(accepted))
        state.stage += 1
        return self.requests

    def _accepted(self, replies: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, Any]]:
        """What each awaited member says; others, second replies and misfits are set aside."""
        awaited = set(self.requests)
        for member, reply in replies:
            if member not in awaited:
                continue
            try:
                said = self._said(member, reply)
            except FedgaugeError as error:
                self._state.refused[member] = str(error)
            else:
                awaited.discard(member)
                self._state.refused.pop(member, None)
                yield member, said

    def _said(self, member: int, reply: bytes) -> Any:
        """What a reply says; taken, not kept, from those that were checked."""
        checked = self._checked.pop(member, None)
        if checked is not None and checked[0] == reply:
            return checked[1]
        return self._opened(member, reply)

    def _opened(self, member: int, reply: bytes) -> Any:
        stage = self.stage
        envelope = Envelope.from_bytes(reply)
        if member not in self.requests:
            raise ProtocolError("a reply comes from somebody who was not asked.")
        to_all = stage in (Stage.ADVERTISE, Stage.AGREE)
        envelope.check(
            self._invitation.members[member],
            session=self._invitation.session,
            stage=stage,
            sender=member,
            recipients={EVERYONE if to_all else COORDINATOR},
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
                return self._checked_shares(member, Shares.from_bytes(body))
            case Stage.MASK:
                return self._checked_input(member, Masked.from_bytes(body))
            case Stage.AGREE:
                if Agreement.from_bytes(body) != self._agreement():
                    raise ProtocolError("a member agrees to something else.")
                return envelope.signature
            case _:
                theirs = self._advertised(member).box_key
                opening = SealedOpening.from_bytes(body).opened(
                    self._invitation, member, theirs, self._key
                )
                return self._checked_opening(member, opening)

    def _checked_shares(self, member: int, shares: Shares) -> _Shared:
        boxes = {box.member: box.sealed for box in shares.boxes}
        if boxes.keys() != self._present_picks(member) or len(boxes) != len(shares.boxes):
            raise ProtocolError("shares are not for the neighbours that were picked.")
        # Their sender is to drop out, not those who could not open them.
        sizes = {len(sealed) for sealed in boxes.values()}
        if sizes - {_BOX_BYTES} or len(shares.commitment) != crypto.COMMITMENT_BYTES:
            raise ProtocolError("shares or a commitment have the wrong size.")
        return _Shared(shares.commitment, boxes)

    def _checked_input(self, member: int, masked: Masked) -> tuple[words.Words, bytes]:
        session, public = self._invitation.session, self._invitation.members[member]
        told = sharing(session, self._state.present_bits, self._state.sharer_bits).to_bytes()
        if not is_signed(public, masked.sharing, session, Stage.MASK, member, EVERYONE, told):
            raise ProtocolError("a member did not sign what it was told about who shared.")
        return words.from_bytes(masked.words, self._length, self._bits), masked.sharing

    def _checked_opening(self, member: int, opening: Opening) -> Opening:
        survivors = self._state.survivors.keys()
        held = {*self._senders_to(member), member}
        asked = (held & survivors, held - survivors)
        for parts, wanted in zip((opening.masks, opening.keys), asked, strict=True):
            if sorted(part.member for part in parts) != sorted(wanted):
                raise ProtocolError("a member opens other shares than it was asked for.")
            for part in parts:
                shamir.share_from_bytes(part.share)
        return opening

    def _request(self, member: int) -> bytes:
        if self.stage == Stage.ADVERTISE:
            return self._invitation.data
        make = {
            Stage.SHARE: self._roster,
            Stage.MASK: self._inbox,
            Stage.AGREE: self._survivors,
            Stage.OPEN: self._quorum,
        }[self.stage]
        return Envelope.sealed(
            self._key,
            session=self._invitation.session,
            stage=self.stage,
            sender=COORDINATOR,
            recipient=member,
            body=make(member).to_bytes(),
        ).to_bytes()

    def _of_one_setting(self, peers: dict[int, Peer]) -> dict[int, Peer]:
        """Those who count in the setting of most; they would not go on with the others."""
        settings = {
            member: Advertisement.from_bytes(peer.body).setting for member, peer in peers.items()
        }
        counts = Counter(settings.values())
        self._state.setting = max(
            counts, key=lambda setting: (counts[setting], setting), default=b""
        )
        for member, setting in settings.items():
            if setting != self._state.setting:
                self._state.refused[member] = "its run is configured otherwise."
                del peers[member]
        return peers

    @property
    def _votes_needed(self) -> int:
        return self._invitation.votes_needed(len(self._state.survivors))

    def _roster(self, member: int) -> Roster:
        peers = [self._state.peers[other] for other in sorted(self._present_picks(member))]
        return Roster(present=self._state.present_bits, peers=peers)

    def _inbox(self, member: int) -> Inbox:
        shared, known = self._state.shared, self._present_picks(member)
        senders = self._senders_to(member)
        return Inbox(
            sharers=self._state.sharer_bits,
            peers=[self._state.peers[sender] for sender in senders if sender not in known],
            boxes=[Box(sender, shared[sender].boxes[member]) for sender in senders],
        )

    def _survivors(self, _: int) -> Survivors:
        return Survivors(survivors=self._state.survivor_bits)

    def _quorum(self, member: int) -> Quorum:
        votes = self._state.votes
        holders = sorted(self._present_picks(member) & votes.keys())
        needed = self._votes_needed - 1
        survivors = self._state.survivors
        return Quorum(
            votes=[Vote(holder, votes[holder]) for holder in holders[:needed]],
            sharing=[Vote(m, survivors[m]) for m in self._senders_to(member) if m in survivors],
        )

    def _present_picks(self, member: int) -> frozenset[int]:
        if member not in self._picks:
            chosen = picks(self._advertised(member).seed, member, self._invitation.graph)
            self._picks[member] = frozenset(chosen.tolist()) & self._state.peers.keys()
        return self._picks[member]

    def _senders_to(self, member: int) -> list[int]:
        """Members who sent shares to this one."""
        if not self._senders:
            for sender in sorted(self._state.shared):
                for recipient in self._state.shared[sender].boxes:
                    self._senders.setdefault(recipient, []).append(sender)
        return self._senders.get(member, [])

    def _agreement(self) -> Agreement:
        state, session = self._state, self._invitation.session
        return agreement(
            session, state.present_bits, state.sharer_bits, state.survivor_bits, state.setting
        )

    def _add_up(self, masked: Iterable[tuple[int, tuple[words.Words, bytes]]]) -> None:
        total = np.zeros(self._length, dtype=words.word_type(self._bits))
        survivors = {}
        for member, (values, signature) in masked:
            np.add(total, values, out=total)
            survivors[member] = signature
        self._state.survivors, self._state.words = survivors, total.tobytes()

    def _unmask(self, openings: dict[int, Opening]) -> Sum:
        session = self._invitation.session
        total = words.from_bytes(self._state.words, self._length, self._bits).copy()
        masks, keys = _gathered(openings)
        for member in self._state.survivors:
            secret = self._joined(member, masks)
            if crypto.commitment(secret, session) != self._state.shared[member].commitment:
                raise ProtocolError(_WRONG_SHARES)
            key = crypto.derive(secret, session=session, purpose=b"own mask")
            np.subtract(total, crypto.mask(key, self._length, self._bits), out=total)
        for member in sorted(self._state.shared.keys() - self._state.survivors.keys()):
            self._lift(total, member, self._joined(member, keys))
        return Sum(words.decode(total, self._bits), tuple(sorted(self._state.survivors)))

    def _lift(self, total: words.Words, dropped: int, secret: bytes) -> None:
        """Complete the masks that survivors share with a dropped member."""
        key = crypto.AgreementKey(secret)
        if key.public != self._advertised(dropped).mask_key:
            raise ProtocolError(_WRONG_SHARES)
        shared, mine = self._state.shared, self._state.shared[dropped].boxes
        for member in self._state.survivors:
            if member in mine or dropped in shared[member].boxes:
                other = self._advertised(member).mask_key
                apply_pair_mask(
                    total, key, other, dropped, member, self._invitation.session, self._bits
                )

    def _joined(self, member: int, shares: dict[int, dict[int, int]]) -> bytes:
        threshold, held = self._invitation.graph.threshold, shares.get(member, {})
        if len(held) < threshold:
            raise CohortTooSmall(
                f"{len(held)} shares of a member's secret came and {threshold} are needed. "
                "Start again with the members who are there."
            )
        points = sorted(held)[:threshold]
        return shamir.secret_from_int(shamir.join({point: held[point] for point in points}))

    def _advertised(self, member: int) -> Advertisement:
        return Advertisement.from_bytes(self._state.peers[member].body)

    def _bitmap(self, members: Iterable[int]) -> bytes:
        return to_bitmap(members, len(self._invitation.members))

    def _require(self, count: int, needed: int) -> None:
        if count < needed:
            otherwise = (
                ": an exact sum needs them all."
                if self._invitation.is_unanimous and needed == len(self.requests)
                else ", or start again with the members who are there."
            )
            raise CohortTooSmall(
                f"{count} members answered and {needed} are needed. Wait for more{otherwise}"
            )

    @property
    def _length(self) -> int:
        return self._invitation.plan.numbers

    @property
    def _bits(self) -> int:
        return self._invitation.bits


_WRONG_SHARES = (
    "a member told wrong shares, so the sum cannot be opened. Start again; nothing was learned."
)


def _gathered(
    openings: Mapping[int, Opening],
) -> tuple[dict[int, dict[int, int]], dict[int, dict[int, int]]]:
    """Shares of masks and of keys: by member, then by the holder's point."""
    masks: dict[int, dict[int, int]] = {}
    keys: dict[int, dict[int, int]] = {}
    for holder, opening in openings.items():
        for gathered, parts in ((masks, opening.masks), (keys, opening.keys)):
            for part in parts:
                shares = gathered.setdefault(part.member, {})
                shares[holder + 1] = shamir.share_from_bytes(part.share)
    return masks, keys
