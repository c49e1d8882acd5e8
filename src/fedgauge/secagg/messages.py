"""What is said in each round of a secure summation.

======  ===================  ====================  =====================================
stage   request              reply                 what the client then knows or did
======  ===================  ====================  =====================================
1       `Invitation`         `Advertisement`       the plan, and all who may take part
2       `Advertisements`     `Shares`              who is there, and its neighbours' keys
3       `Inbox`              `Masked`              the shares it holds for others
4       `Survivors`          `Ballot`              whose inputs are in the sum
5       `Quorum`             `SealedOpening`       that others were told the same
======  ===================  ====================  =====================================

Members are named by their index in the invitation, sets of members by bitmaps.
"""

import hashlib
from collections.abc import Iterable
from enum import IntEnum
from functools import cached_property
from typing import Final, Self

import msgspec
import numpy as np

from fedgauge.errors import ProtocolError
from fedgauge.histograms.axis import MOST_BINS
from fedgauge.keys import SigningKey
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.limits import first_session
from fedgauge.protocol import COORDINATOR, EVERYONE, Envelope, Message, is_signed, session_id
from fedgauge.secagg.graph import MOST_MEMBERS, Graph, check_members, is_safe, survivors_needed
from fedgauge.secagg.masking import KEY_BYTES, AgreementKey, derive, seal, unseal, word_bits
from fedgauge.secagg.secret_sharing import DIGEST_BYTES, Box, Kind

RUN_BYTES: Final = 32
SEED_BYTES: Final = 16


class Stage(IntEnum):
    """The rounds."""

    ADVERTISE = 1
    SHARE = 2
    MASK = 3
    AGREE = 4
    OPEN = 5


class Terms(Message, frozen=True):
    """What an invitation invites to."""

    plan: bytes
    run: bytes
    members: list[bytes]
    coordinator: bytes
    degree: int
    threshold: int
    model: bytes
    box: bytes


class Invitation:
    """An invitation whose form and signature are checked.

    `model` is the digest of what the coordinator sends to be scored with; empty where no model
    travels. Like all that is proposed, it is part of the session that everybody signs.

    Judge who the coordinator is before reading :attr:`plan`: only a trusted one's is worth the
    work.
    """

    def __init__(self, data: bytes) -> None:
        envelope = Envelope.from_bytes(data)
        terms = Terms.from_bytes(envelope.body)
        members = terms.members
        keys = (*members, terms.coordinator, terms.run, terms.box)
        if any(len(key) != KEY_BYTES for key in keys):
            raise ProtocolError("an invitation holds keys of a wrong length.")
        if members != sorted(set(members)) or len(members) > MOST_MEMBERS:
            raise ProtocolError("the members of an invitation must be sorted and distinct.")
        if len(terms.model) not in (0, DIGEST_BYTES):
            raise ProtocolError("an invitation names its model by a digest of a wrong length.")
        self.data = data
        self.members = members
        self.coordinator = terms.coordinator
        self.model = terms.model
        self.run = terms.run
        self.box = terms.box
        self.graph = Graph(len(members), terms.degree, terms.threshold)
        self.session = session_id(envelope.body)
        self._terms = terms
        self._plan: EvaluationPlan | None = None
        envelope.check(
            terms.coordinator,
            session=self.session,
            stage=Stage.ADVERTISE,
            sender=COORDINATOR,
            recipients={EVERYONE},
        )

    @property
    def plan(self) -> EvaluationPlan:
        """The plan; refused when the graph does not protect its cohort."""
        return self.read_plan()

    def read_plan(self, most_bins: int = MOST_BINS) -> EvaluationPlan:
        """The same; the first time it is read, refused with more bins, before these are made."""
        if self._plan is not None:
            return self._plan
        plan = EvaluationPlan.from_bytes(self._terms.plan, most_bins=most_bins)
        check_members(len(self.members), plan.terms.sum_cohort)
        if not is_safe(self.graph, plan.terms.sum_cohort):
            raise ProtocolError(
                "the invitation proposes neighbours too few, or a threshold too low, to protect "
                "the cohort of its plan."
            )
        self._plan = plan
        return plan

    @property
    def plan_digest(self) -> str:
        """The digest of the plan, told without reading it."""
        return hashlib.sha256(self._terms.plan).hexdigest()

    @cached_property
    def follows(self) -> bytes | None:
        """The session of the first of two rounds, told without reading the plan of the second.

        None where this is no second round; empty where its bins were found in no session.
        """
        return first_session(self._terms.plan)

    @property
    def is_unanimous(self) -> bool:
        """Whether a sum is opened with the vote of everybody in it, or not at all.

        Without noise one sum too many can lay a member bare, so each can stop it. Members that know
        their neighbours only could not tell that all have voted.
        """
        return self.graph.is_complete and not self.plan.is_noisy

    @property
    def needed(self) -> int:
        """Fewest members that may be in the sum.

        In the second of two exact sums as many as in the first: the difference of sums over other
        members would show those that are missing.
        """
        least = survivors_needed(self.graph, self.plan.terms.sum_cohort)
        found = self.plan.found
        return least if found is None or self.plan.is_noisy else max(least, found.clients)

    def votes_needed(self, survivors: int) -> int:
        """How many members must have been told of the same survivors."""
        return survivors if self.is_unanimous else self.graph.threshold

    def is_signed(
        self, member: int, signature: bytes, stage: Stage, body: bytes, *, to: int = EVERYONE
    ) -> bool:
        """Whether a member signed this in a round."""
        if not 0 <= member < len(self.members):
            return False
        return is_signed(self.members[member], signature, self.session, stage, member, to, body)

    @property
    def bits(self) -> int:
        """Width of the words that are summed."""
        return word_bits(len(self.members), self.plan.most_per_count)

    @classmethod
    def made(
        cls,
        plan: EvaluationPlan,
        members: Iterable[bytes],
        key: SigningKey,
        run: bytes,
        graph: Graph,
        *,
        model: bytes = b"",
    ) -> "Invitation":
        """A new invitation, signed by the coordinator."""
        terms = Terms(
            plan=plan.to_bytes(),
            run=run,
            members=sorted(set(members)),
            coordinator=key.public,
            degree=graph.degree,
            threshold=graph.threshold,
            model=model,
            box=box_key(key, run).public,
        )
        body = terms.to_bytes()
        envelope = Envelope.sealed(
            key,
            session=session_id(body),
            stage=Stage.ADVERTISE,
            sender=COORDINATOR,
            recipient=EVERYONE,
            body=body,
        )
        return cls(envelope.to_bytes())


class Advertisement(Message, frozen=True):
    """Fresh keys of one member, the seed of its picks, and the setting it counts in.

    `setting` is a digest of what besides the invitation decides its numbers, such as the config of
    a run, or empty. Members go on only with those who signed the same.
    """

    mask_key: bytes
    box_key: bytes
    seed: bytes
    setting: bytes

    def check(self) -> None:
        """Refuse keys that nobody can agree on a secret with."""
        if len(self.seed) != SEED_BYTES:
            raise ProtocolError("a seed has the wrong length.")
        if len(self.setting) not in (0, DIGEST_BYTES):
            raise ProtocolError("a setting is a digest of a wrong length.")
        for key in (self.mask_key, self.box_key):
            AgreementKey(bytes(KEY_BYTES)).agree(key)


class Peer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An advertisement as forwarded: the envelope can be rebuilt from it."""

    member: int
    body: bytes
    signature: bytes


class Advertisements(Message, frozen=True):
    """Who is there; advertisements of the member's picks."""

    present: bytes
    peers: list[Peer]


class Shares(Message, frozen=True):
    """Sealed shares for every holder, and a commitment to the own mask."""

    commitment: bytes
    own: bytes  # digests of the shares that the member keeps
    boxes: list[Box]


class Inbox(Message, frozen=True):
    """Who shared; shares from those who picked the member, and their advertisements."""

    sharers: bytes
    peers: list[Peer]
    boxes: list[Box]


class Complaint(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """That a box does not open, by its digest, signed as :func:`complaint` says."""

    member: int  # who dealt the box; to the dealer: the holder
    box: bytes
    signature: bytes


class Masked(Message, frozen=True):
    """The contribution under all masks, signatures, and complaints of boxes that do not open."""

    words: bytes
    sharing: bytes
    receipt: bytes
    complaints: list[Complaint]


class Survivors(Message, frozen=True):
    """Whose masked inputs are in the sum, and who complains of the member's boxes."""

    survivors: bytes
    complaints: list[Complaint]


class Agreement(Message, frozen=True):
    """What one member was told, signed for the others to compare."""

    told: bytes


class BoxKey(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The key of one box, by which everybody can see what it holds."""

    member: int
    key: bytes
    box_key: bytes  # that of the holder, as the dealer was told


class Ballot(Message, frozen=True):
    """A member's signature under :func:`agreement`, and its answers to complaints."""

    vote: bytes
    answers: list[BoxKey]


class Vote(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Another member's signature under what this one was told, too."""

    member: int
    signature: bytes


class Quorum(Message, frozen=True):
    """That others were told the same."""

    votes: list[Vote]  # of the member's holders, about the survivors
    sharing: list[Vote]  # of survivors whose masks it helps to open, about who shared


class Opened(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One share: of a survivor's own mask, or of a dropped member's key. Never both."""

    member: int
    share: bytes

    def digest(self, kind: Kind) -> bytes:
        """What stands for it in the signature of an opening."""
        about = b"%s %d\0" % (kind.name.encode(), self.member)
        return hashlib.sha256(b"fedgauge opened\0" + about + self.share).digest()


class Opening(Message, frozen=True):
    """The shares that take the masks off the sum; they travel in a :class:`SealedOpening`."""

    masks: list[Opened]
    keys: list[Opened]
    signature: bytes  # under :func:`opening`: one share can be shown without the others

    @staticmethod
    def digests(masks: Iterable[Opened], keys: Iterable[Opened]) -> list[bytes]:
        """What stands for each share in the signature."""
        kinds = zip(Kind, (masks, keys), strict=True)
        return [opened.digest(kind) for kind, parts in kinds for opened in parts]


class SealedOpening(Message, frozen=True):
    """An opening for the coordinator alone: others learn of the sum only what is published."""

    sealed: bytes

    @classmethod
    def of(cls, opening: Opening, invitation: Invitation, member: int, mine: AgreementKey) -> Self:
        """Seal what a member opens, with its own key and the coordinator's."""
        key, about = _opening_key(invitation.session, member, mine.agree(invitation.box))
        return cls(sealed=seal(key, opening.to_bytes(), about))

    def opened(
        self, invitation: Invitation, member: int, theirs: bytes, key: SigningKey
    ) -> Opening:
        """What it holds, by the coordinator's signing key and the member's public box key."""
        secret = box_key(key, invitation.run).agree(theirs)
        sealed_with, about = _opening_key(invitation.session, member, secret)
        return Opening.from_bytes(unseal(sealed_with, self.sealed, about))


def box_key(key: SigningKey, run: bytes) -> AgreementKey:
    """What members seal their openings with, of one run and one coordinator."""
    return AgreementKey(key.derive(b"openings " + run))


def _opening_key(session: bytes, member: int, secret: bytes) -> tuple[bytes, bytes]:
    about = b"opening %d" % member
    return derive(secret, session=session, purpose=about), session + about


def agreement(
    session: bytes, present: bytes, sharers: bytes, survivors: bytes, setting: bytes
) -> Agreement:
    """What members agree on: who takes part, as they were told, and the setting they count in."""
    return _told(b"agreement", session, present, sharers, survivors, setting)


def sharing(session: bytes, present: bytes, sharers: bytes) -> Agreement:
    """What a member was told before it masked: with whom it did."""
    return _told(b"sharing", session, present, sharers)


def receipt(session: bytes, boxes: Iterable[bytes]) -> Agreement:
    """Which boxes a holder was sent: their digests, in the order of those who dealt them."""
    return _told(b"receipt", session, *boxes)


def complaint(session: bytes, box: bytes) -> Agreement:
    """That a holder cannot open a box."""
    return _told(b"complaint", session, box)


def opening(session: bytes, digests: Iterable[bytes]) -> Agreement:
    """Which shares a holder tells, by :meth:`Opening.digests`."""
    return _told(b"opening", session, *digests)


def _told(what: bytes, session: bytes, *parts: bytes) -> Agreement:
    told = hashlib.sha256(b"fedgauge " + what + b"\0" + session)
    for part in parts:
        told.update(hashlib.sha256(part).digest())
    return Agreement(told=told.digest())


def to_bitmap(members: Iterable[int], count: int) -> bytes:
    """A set of members as sent."""
    bits = np.zeros(count, dtype=np.uint8)
    bits[np.fromiter(members, dtype=np.int64)] = 1
    return np.packbits(bits).tobytes()


def from_bitmap(data: bytes, count: int) -> frozenset[int]:
    """The set behind a bitmap."""
    if len(data) != (count + 7) // 8:
        raise ProtocolError("a set of members has the wrong length.")
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8))
    if bits[count:].any():
        raise ProtocolError("a set of members names some that do not exist.")
    return frozenset(np.flatnonzero(bits[:count]).tolist())
