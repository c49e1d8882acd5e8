"""The coordinator's side of a secure summation: it forwards, adds up, and opens one sum."""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedgauge.errors import CohortTooSmall, FedgaugeError, ProtocolError
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.plan import EvaluationPlan
from fedgauge.protocol import COORDINATOR, Envelope, Requests
from fedgauge.secagg import words
from fedgauge.secagg.boxes import Box
from fedgauge.secagg.evidence import Fault, File, Signed
from fedgauge.secagg.graph import choose_graph
from fedgauge.secagg.kept import Dealings, Input, Kept
from fedgauge.secagg.messages import (
    RUN_BYTES,
    Advertisement,
    Inbox,
    Invitation,
    Opening,
    Peer,
    Quorum,
    Roster,
    Stage,
    Survivors,
    Vote,
    to_bitmap,
)
from fedgauge.secagg.opening import Unmasking
from fedgauge.secagg.replies import Reader
from fedgauge.storage.whole import MALFORMED

_MOST_NAMED: Final = 5  # members in one error
_NO_NAMES: Final[Mapping[bytes, str]] = MappingProxyType({})
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
    names
        What members are called in errors, by public key; by default their keys.
    """

    def __init__(
        self, invitation: Invitation, key: SigningKey, *, names: Mapping[bytes, str] = _NO_NAMES
    ) -> None:
        self._invitation = invitation
        self._key = key
        self._names = names
        self._hold(Kept(invitation=invitation.data))
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
        words.word_bits(len(ordered), plan.most_per_count)  # refuses sums that do not fit
        graph = choose_graph(len(ordered), plan.sum_cohort)
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
            state = msgspec.msgpack.decode(data, type=Kept)
        except MALFORMED:
            raise ProtocolError("a saved state cannot be read.") from None
        server = cls(Invitation(state.invitation), key, names=names)
        server._hold(state)
        return server

    def _hold(self, state: Kept) -> None:
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
            return "Both rounds are paid for, and again where they are started again: wait."
        match self.stage:
            case Stage.ADVERTISE | Stage.SHARE:
                return ""
            case Stage.MASK:
                return "Who submitted has paid, and pays again where it is started again: wait."
            case _:
                return "Everybody has paid, and pays again where it is started again: wait."

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

    def _roster(self, member: int) -> Roster:
        peers = [self._state.peers[other] for other in sorted(self._dealings.picks(member))]
        return Roster(present=self._state.present_bits, peers=peers)

    def _inbox(self, member: int) -> Inbox:
        shared, known = self._state.shared, self._dealings.picks(member)
        senders = self._dealings.senders_to(member)
        return Inbox(
            sharers=self._state.sharer_bits,
            peers=[self._state.peers[sender] for sender in senders if sender not in known],
            boxes=[_from(sender, shared[sender].boxes[member]) for sender in senders],
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

    def _add_up(self, masked: Iterable[tuple[int, tuple[words.Words, Input]]]) -> None:
        total = np.zeros(self._length, dtype=words.word_type(self._bits))
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
        return Sum(words.decode(total, self._bits), tuple(sorted(self._state.survivors)))

    def _bitmap(self, members: Iterable[int]) -> bytes:
        return to_bitmap(members, len(self._invitation.members))

    def _require(self, answered: Collection[int], needed: int) -> None:
        if len(answered) < needed:
            otherwise = ", or start again with the members who are there."
            if self._is_second_exact:
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

    @property
    def _is_second_exact(self) -> bool:
        return self._invitation.follows is not None and not self._invitation.plan.is_noisy

    def _who(self, answered: Collection[int]) -> str:
        """Sentences that name whom it lies with."""
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


def _from(sender: int, box: Box) -> Box:
    """A box as its holder gets it."""
    return msgspec.structs.replace(box, member=sender)
