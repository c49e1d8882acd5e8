"""The coordinator's side of a secure summation: checks replies, forwards them, opens one sum."""

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedgauge.errors import CohortTooSmall, FedgaugeError, ProtocolError
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.plan import EvaluationPlan
from fedgauge.protocol import COORDINATOR, EVERYONE, Envelope, Requests
from fedgauge.secagg import masking, secret_sharing
from fedgauge.secagg.client import apply_pair_mask
from fedgauge.secagg.evidence import (
    Dispute,
    Evidence,
    Fault,
    File,
    Signed,
    WrongDealing,
    WrongShare,
    secret_behind,
)
from fedgauge.secagg.graph import choose_graph, picks
from fedgauge.secagg.messages import (
    RUN_BYTES,
    Advertisement,
    Advertisements,
    Agreement,
    Ballot,
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
    Vote,
    agreement,
    complaint,
    opening,
    receipt,
    sharing,
    to_bitmap,
)
from fedgauge.secagg.secret_sharing import DIGEST_BYTES, Box, Kind, is_share
from fedgauge.storage import MALFORMED


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


class ServerState(msgspec.Struct):
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

    def __init__(self, invitation: Invitation, kept: ServerState) -> None:
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
            for dealer, each in said.complaints.items():
                complaints[dealer][holder] = each
        return complaints


class Unmasking:
    """One attempt to open a sum with the shares that members told.

    Shares other than those dealt are left out: `threshold` right ones are enough. `evidence` shows
    who told wrong ones.
    """

    def __init__(self, invitation: Invitation, kept: ServerState, dealings: Dealings) -> None:
        self._invitation = invitation
        self._kept = kept
        self._dealings = dealings
        self._told: dict[tuple[Kind, int], list[Opened]] = {}
        self.evidence: list[Evidence] = []

    def take(self, openings: Mapping[int, Opening]) -> None:
        """Gather what holders told; wrong shares become evidence."""
        session, shared = self._invitation.session, self._kept.shared
        for holder, opened in openings.items():
            for kind, parts in zip(Kind, (opened.masks, opened.keys), strict=True):
                for dealer, share in ((part.member, part.share) for part in parts):
                    checks = shared[dealer].checks(dealer, holder)
                    if is_share(share, kind, checks, session, dealer, holder):
                        told = self._told.setdefault((kind, dealer), [])
                        told.append(Opened(holder, share))
                    else:
                        self.evidence.append(self._wrong(kind, dealer, holder, share, opened))

    def total(self, length: int, bits: int) -> masking.Words:
        """The sum without its masks."""
        session, kept = self._invitation.session, self._kept
        total = masking.from_bytes(kept.words, length, bits).copy()
        for member in kept.survivors:
            key = masking.derive(
                self._secret(Kind.MASK, member), session=session, purpose=b"own mask"
            )
            np.subtract(total, masking.mask(key, length, bits), out=total)
        for member in sorted(kept.shared.keys() - kept.survivors.keys()):
            self._lift(total, member, bits)
        return total

    def _lift(self, total: masking.Words, dropped: int, bits: int) -> None:
        """Complete the masks that survivors share with a dropped member."""
        kept = self._kept
        key = masking.AgreementKey(self._secret(Kind.KEY, dropped))
        shared, mine = kept.shared, kept.shared[dropped].boxes
        for member in kept.survivors:
            if member in mine or dropped in shared[member].boxes:
                other, session = kept.advertised(member).mask_key, self._invitation.session
                apply_pair_mask(total, key, other, dropped, member, session, bits)

    def _secret(self, kind: Kind, dealer: int) -> bytes:
        threshold = self._invitation.graph.threshold
        told = sorted(self._told.get((kind, dealer), []), key=lambda part: part.member)
        if len(told) < threshold:
            raise CohortTooSmall(
                f"{len(told)} shares of a member's secret came and {threshold} are needed."
            )
        used, keys = told[:threshold], self._kept.advertised(dealer)
        secret = secret_behind(
            {part.member + 1: secret_sharing.share_from_bytes(part.share) for part in used},
            kind,
            self._kept.shared[dealer].commitment,
            keys.mask_key,
            self._invitation.session,
        )
        if secret is None:
            signed, keys_signed = self._kept.shared[dealer].signed, self._kept.keys_of(dealer)
            self.evidence.append(WrongDealing(dealer, kind, signed, keys_signed, used))
            raise ProtocolError("a member dealt wrong shares, so the sum cannot be opened.")
        return secret

    def _wrong(
        self, kind: Kind, dealer: int, holder: int, share: bytes, opening: Opening
    ) -> WrongShare:
        return WrongShare(
            dealer,
            holder,
            kind,
            share,
            self._kept.shared[dealer].signed,
            list(self._dealings.boxes_to(holder).values()),
            self._kept.survivors[holder].receipt,
            Opening.digests(opening.masks, opening.keys),
            opening.signature,
        )


class Reader:
    """Reads replies of the round that a summation is in."""

    def __init__(
        self, invitation: Invitation, kept: ServerState, dealings: Dealings, key: SigningKey
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
        if sizes != (masking.COMMITMENT_BYTES, 2 * DIGEST_BYTES) or not all(
            box.has_right_size for box in shares.boxes
        ):
            raise ProtocolError("shares or a commitment have the wrong size.")
        boxes = {box.member: box for box in shares.boxes}
        return Dealt(shares.commitment, shares.own, boxes, signature)

    def _checked_input(self, member: int, masked: Masked) -> tuple[masking.Words, Input]:
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
        values = masking.from_bytes(
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
                secret_sharing.share_from_bytes(part.share)
        told = opening(self._invitation.session, Opening.digests(opened.masks, opened.keys))
        self._require_word(member, opened.signature, Stage.OPEN, told)
        return opened

    def _require_word(self, member: int, signature: bytes, stage: Stage, told: Agreement) -> None:
        if not self._invitation.is_signed(member, signature, stage, told.to_bytes()):
            raise ProtocolError("a member did not sign what it was told or says.")


_MOST_NAMED: Final = 5  # members in one error
_NO_NAMES: Final[Mapping[bytes, str]] = MappingProxyType({})
Replies = Mapping[int, bytes] | Iterable[tuple[int, bytes]]


class Sum(NamedTuple):
    """The outcome: the sum, and the indices of the members in it."""

    total: NDArray[np.int64]
    survivors: tuple[int, ...]


class Confirmed(NamedTuple):
    """What shows that members confirmed whose numbers are in the sum, with what each signed."""

    invitation: bytes
    present: bytes
    sharers: bytes
    survivors: bytes
    setting: bytes
    votes: tuple[Vote, ...]


class SummationServer:
    """A coordinator of one summation; see :meth:`invite`.

    `requests` are what is to be sent now; :meth:`step` takes the replies and gives the next
    requests, or the sum. A reply that does not fit is set aside, and its sender counts as dropped
    out. In errors members are called by `names`, by default their public keys.
    """

    def __init__(
        self, invitation: Invitation, key: SigningKey, *, names: Mapping[bytes, str] = _NO_NAMES
    ) -> None:
        self._invitation = invitation
        self._key = key
        self._names = names
        self._hold(ServerState(invitation=invitation.data))
        self._checked: dict[int, tuple[bytes, Any]] = {}  # replies of this stage, and what they say

    @classmethod
    def invite(
        cls,
        plan: EvaluationPlan,
        members: Iterable[bytes],
        key: SigningKey,
        *,
        model: bytes = b"",
        names: Mapping[bytes, str] = _NO_NAMES,
    ) -> "SummationServer":
        """A new attempt with a fresh run id, for the members with these public keys.

        `model` is the digest of what they will be sent to score with; empty where nothing is.
        """
        ordered = sorted(set(members))
        masking.word_bits(len(ordered), plan.most_per_count)  # refuses sums that do not fit
        graph = choose_graph(len(ordered), plan.terms.sum_cohort)
        invitation = Invitation.made(plan, ordered, key, os.urandom(RUN_BYTES), graph, model=model)
        return cls(invitation, key, names=names)

    def invite_again(self, plan: EvaluationPlan) -> "SummationServer":
        """Invite the same members to another sum, with the same model."""
        invitation = self._invitation
        return self.invite(
            plan, invitation.members, self._key, model=invitation.model, names=self._names
        )

    @classmethod
    def from_bytes(
        cls, data: bytes, key: SigningKey, *, names: Mapping[bytes, str] = _NO_NAMES
    ) -> "SummationServer":
        """Go on from a saved state."""
        try:
            state = msgspec.msgpack.decode(data, type=ServerState)
        except MALFORMED:
            raise ProtocolError("a saved state cannot be read.") from None
        server = cls(Invitation(state.invitation), key, names=names)
        server._hold(state)
        return server

    def _hold(self, state: ServerState) -> None:
        self._state = state
        self._dealings = Dealings(self._invitation, state)

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
    def evidence(self) -> File:
        """What shows who broke the rules, for others to check: of each kind one."""
        found = {
            (fault.member, fault.proved, type(evidence)): evidence
            for fault, evidence in zip(self.faults, self._state.evidence, strict=True)
        }
        return File(invitation=self._invitation.data, found=list(found.values()))

    @property
    def faults(self) -> list[Fault]:
        """Who broke the rules, as far as it shows by now; also after a step that failed."""
        return [evidence.judged(self._invitation) for evidence in self._state.evidence]

    @property
    def blame(self) -> list[str]:
        """The faults in words."""
        return [fault.in_words(self.name) for fault in self.faults]

    def name(self, member: int) -> str:
        """What a member is called."""
        public = self._invitation.members[member]
        return self._names.get(public, key_to_text(public))

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
    def paid_in_words(self) -> str:
        """Why to wait rather than to start again, once members have sent their numbers."""
        if self._invitation.follows is not None:
            spent = "The budget of both rounds is spent"
        elif self.stage < Stage.MASK:
            return ""
        elif self.stage == Stage.MASK:
            spent = "Sites that submitted have spent their budget"
        else:
            spent = "All sites have spent their budget"
        return f"{spent}, and starting again would spend it again: wait."

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
        state = self._state
        asked: dict[Stage, Iterable[int]] = {
            Stage.ADVERTISE: range(len(self._invitation.members)),
            Stage.SHARE: state.peers,
            Stage.MASK: state.shared,
            Stage.AGREE: state.survivors,
            Stage.OPEN: state.votes,
        }
        return Requests(sorted(asked[self.stage]), self._request)

    def check(self, member: int, reply: bytes) -> None:
        """Refuse a reply that does not fit the last request; the next step need not check it."""
        self._checked.setdefault(member, (reply, self._opened(member, reply)))

    def step(self, replies: Replies) -> Requests | Sum:
        """The next requests, or the sum once the last round is over."""
        # A step that fails must leave no trace: work on a copy.
        before = self._state
        self._hold(msgspec.structs.replace(before, refused=dict(before.refused)))
        try:
            return self._step(replies.items() if isinstance(replies, Mapping) else replies)
        except BaseException:
            # Except for who is to blame.
            before.evidence = self._state.evidence
            self._hold(before)
            raise
        finally:
            self._checked.clear()  # another stage asks for something else

    def _step(self, replies: Iterable[tuple[int, bytes]]) -> Requests | Sum:
        state, accepted = self._state, self._accepted(replies)
        match self.stage:
            case Stage.ADVERTISE:
                state.peers = self._of_one_setting(dict(accepted))
                state.present_bits = self._bitmap(state.peers)
                self._require(state.peers, self.needed)
            case Stage.SHARE:
                state.shared = dict(accepted)
                state.sharer_bits = self._bitmap(state.shared)
                self._require(state.shared, self.needed)
            case Stage.MASK:
                self._add_up(accepted)
                state.survivor_bits = self._bitmap(state.survivors)
                self._require(state.survivors, self.needed)
            case Stage.AGREE:
                self._count(dict(accepted))
                self._require(state.votes, self._votes_needed)
                self._require_openable()
            case Stage.OPEN:
                return self._unmask(dict(accepted))
        state.stage += 1
        self._hold(state)
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
        if member not in self.requests:
            raise ProtocolError("a reply comes from somebody who was not asked.")
        reader = Reader(self._invitation, self._state, self._dealings, self._key)
        return reader.read(member, reply)

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

    def _roster(self, member: int) -> Advertisements:
        peers = [self._state.peers[other] for other in sorted(self._dealings.picks(member))]
        return Advertisements(present=self._state.present_bits, peers=peers)

    def _inbox(self, member: int) -> Inbox:
        shared, known = self._state.shared, self._dealings.picks(member)
        senders = self._dealings.senders_to(member)
        return Inbox(
            sharers=self._state.sharer_bits,
            peers=[self._state.peers[sender] for sender in senders if sender not in known],
            boxes=[
                msgspec.structs.replace(shared[sender].boxes[member], member=sender)
                for sender in senders
            ],
        )

    def _survivors(self, member: int) -> Survivors:
        complaints = self._dealings.complaints_of(member)
        return Survivors(
            survivors=self._state.survivor_bits,
            complaints=[
                msgspec.structs.replace(said, member=holder)
                for holder, said in sorted(complaints.items())
            ],
        )

    def _quorum(self, member: int) -> Quorum:
        votes = self._state.votes
        holders = sorted(self._dealings.picks(member) & votes.keys())
        needed = self._votes_needed - 1
        survivors = self._state.survivors
        return Quorum(
            votes=[Vote(holder, votes[holder]) for holder in holders[:needed]],
            sharing=[
                Vote(m, survivors[m].sharing)
                for m in self._dealings.held_by(member)
                if m in survivors
            ],
        )

    def _add_up(self, masked: Iterable[tuple[int, tuple[masking.Words, Input]]]) -> None:
        total = np.zeros(self._length, dtype=masking.word_type(self._bits))
        survivors = {}
        for member, (values, said) in masked:
            np.add(total, values, out=total)
            survivors[member] = said
        self._state.survivors, self._state.words = survivors, total.tobytes()

    def _count(self, ballots: dict[int, tuple[bytes, Signed]]) -> None:
        """Keep the votes, and see who lied where somebody complained."""
        state = self._state
        state.votes = {member: vote for member, (vote, _) in ballots.items()}
        state.ballots = {
            member: said
            for member, (_, said) in ballots.items()
            if self._dealings.complaints_of(member)
        }
        state.evidence = self._dealings.disputes

    def _require_openable(self) -> None:
        """Stop where too few could open what they hold, before any secret is opened."""
        state, threshold = self._state, self._invitation.graph.threshold
        for dealer in state.shared:
            able = self._dealings.holders_of(dealer) & state.votes.keys()
            if len(able) < threshold:
                raise CohortTooSmall(
                    f"{len(able)} members hold shares of {self.name(dealer)} and {threshold} are "
                    f"needed, so the sum cannot be opened.{self._who(state.votes)}"
                )

    def _unmask(self, openings: dict[int, Opening]) -> Sum:
        unmasking = Unmasking(self._invitation, self._state, self._dealings)
        unmasking.take(openings)
        try:
            total = unmasking.total(self._length, self._bits)
        except ProtocolError as error:
            self._state.evidence = [*self._dealings.disputes, *unmasking.evidence]
            helps = "; start again."
            if isinstance(error, CohortTooSmall) and len(openings) < len(self.requests):
                helps = f", and nothing is lost. {self.paid_in_words}"
            raise type(error)(f"{error} Nothing was learned{helps}{self._who(openings)}") from None
        self._state.evidence = [*self._dealings.disputes, *unmasking.evidence]
        return Sum(masking.decode(total, self._bits), tuple(sorted(self._state.survivors)))

    def _bitmap(self, members: Iterable[int]) -> bytes:
        return to_bitmap(members, len(self._invitation.members))

    def _require(self, answered: Collection[int], needed: int) -> None:
        if len(answered) < needed:
            otherwise = ", or start again with the members who are there."
            if self._invitation.follows is not None and not self._invitation.plan.is_noisy:
                otherwise = (
                    ": the second of two exact sums is over the members of the first. If they do "
                    "not come back, start again with noise, or when all of them are there."
                )
            elif self._invitation.is_unanimous and needed == len(self.requests):
                otherwise = ": an exact sum needs them all."
            elif self.paid_in_words:
                otherwise = f". {self.paid_in_words}"
            raise CohortTooSmall(
                f"{len(answered)} members answered and {needed} are needed. Wait for more"
                f"{otherwise}{self._who(answered)}"
            )

    def _who(self, answered: Collection[int]) -> str:
        told, refused = [], self._state.refused
        silent = [m for m in self.requests if m not in answered and m not in refused]
        if silent:
            more = len(silent) - _MOST_NAMED
            named = ", ".join(map(self.name, silent[:_MOST_NAMED]))
            told.append(f"Missing: {named}{f' and {more:,} more' if more > 0 else ''}.")
        told += [
            f"Set aside: {self.name(m)}, {why}" for m, why in list(refused.items())[:_MOST_NAMED]
        ]
        told += self.blame[:_MOST_NAMED]
        return "".join(f" {sentence}" for sentence in told)

    @property
    def _length(self) -> int:
        return self._invitation.plan.numbers

    @property
    def _bits(self) -> int:
        return self._invitation.bits
