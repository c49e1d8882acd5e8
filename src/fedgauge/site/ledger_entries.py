"""What a ledger holds, as plain data, and the one way each entry is written."""

import hashlib
import math
from datetime import UTC, datetime
from fractions import Fraction
from numbers import Real
from typing import Final, Literal, NamedTuple, Self

import msgspec

from fedgauge.data.fingerprint import Fingerprint
from fedgauge.errors import LedgerError, SiteError
from fedgauge.keys import key_from_text, key_to_text
from fedgauge.plan import plan as plans
from fedgauge.storage import MALFORMED

Kind = Literal["reserve", "commit", "reply", "sent", "release", "data", "survivors", "limit"]
Step = Literal["join", "share", "submit", "confirm", "reveal", "encode", "second", "answer"]

_ALL: Final = "all"  # no plan's unit
_LABEL: Final = ("label", "flip")
_NO_MORE: Final = 1 + Fraction(1, 2**50)  # a float's exponential is within 2^-52 of the true one
_COUNTED: Final = ("submit", "encode", "second", "answer")  # where rows leave, in some form


class Account(msgspec.Struct, frozen=True, order=True):
    """Whose privacy is spent: a dataset, the unit protected, and its neighbours.

    Examples
    --------
    >>> str(Account("stroke-2026", "subject", "add-remove")), str(Account.whole("stroke-2026"))
    ('stroke-2026 (subject, add-remove)', 'stroke-2026 (all plans)')
    """

    dataset: str
    unit: str
    neighbours: str

    @classmethod
    def whole(cls, dataset: str) -> Self:
        """All accounts of a dataset together."""
        return cls(dataset, _ALL, _ALL)

    @classmethod
    def labels(cls, dataset: str) -> Self:
        """The labels of a dataset, each of which may be the other one: all plans spend them."""
        return cls(dataset, *_LABEL)

    @property
    def is_whole(self) -> bool:
        """Whether it stands for all accounts of its dataset."""
        return self.unit == _ALL

    @property
    def is_label(self) -> bool:
        """Whether it stands for the labels of its dataset."""
        return (self.unit, self.neighbours) == _LABEL

    def covers(self, other: "Account") -> bool:
        """Whether what is spent on the other account is spent on this one."""
        takes_all = self.is_whole or self.is_label
        return self == other or (takes_all and self.dataset == other.dataset)

    def __str__(self) -> str:
        about = "all plans" if self.is_whole else f"{self.unit}, {self.neighbours}"
        return f"{self.dataset} ({about})"


class Cost(msgspec.Struct, frozen=True):
    """A price, or a limit, in privacy; added and compared in decimals, so ten times 0.1 is 1."""

    epsilon: float  # infinite for an exact sum
    delta: float

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real):
                raise LedgerError(f"{name} must be a number, got {type(value).__name__}.")
            try:
                msgspec.structs.force_setattr(self, name, float(value))
            except OverflowError:
                raise LedgerError(f"{name} is too large for a number.") from None
        if not self.epsilon >= 0:
            raise LedgerError(f"epsilon must be 0 or more, got {self.epsilon!r}.")
        if not 0 <= self.delta <= 1:
            raise LedgerError(f"delta must be between 0 and 1, got {self.delta!r}.")

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:.12g}, delta {self.delta:.12g}"

    @property
    def is_exact_sum(self) -> bool:
        """Whether this is the cost of a release without noise."""
        return math.isinf(self.epsilon)

    @property
    def exact_epsilon(self) -> Fraction:
        """Epsilon as the decimal it prints as; not for exact sums."""
        return Fraction(repr(self.epsilon))

    @property
    def exact_delta(self) -> Fraction:
        """Delta as the decimal it prints as."""
        return Fraction(repr(self.delta))

    def twice(self) -> "Cost":
        """What two steps from neighbour to neighbour cost, and no less; not for exact sums.

        From P(A) <= e^epsilon Q(A) + delta and the same of Q and R follows P(A) <= e^(2 epsilon)
        R(A) + (1 + e^epsilon) delta.
        """
        # From e^700 on any delta that is worth the name is 1.
        grown = 1 + Fraction(math.exp(min(self.epsilon, 700.0))) * _NO_MORE
        delta = min(self.exact_delta * grown, Fraction(1))
        return Cost(_at_least(2 * self.exact_epsilon), _at_least(delta))


def _at_least(amount: Fraction) -> float:
    """A float that does not print as less."""
    near = float(amount)
    return near if Fraction(repr(near)) >= amount else math.nextafter(near, math.inf)


class Balance(NamedTuple):
    """How an account stands; `limit` is None where it has none."""

    account: Account
    limit: Cost | None
    spent: Cost
    reserved: Cost


class SumRoster(NamedTuple):
    """Who may be in a sum: the sites invited, and how many of them it needs at least."""

    sites: frozenset[bytes]
    needed: int


class StandingUse(NamedTuple):
    """That a session is a use of a standing approval, and how many uses that has."""

    approval: str  # its id
    most: int


class Asked(NamedTuple):
    """Who asked for a session, for which model, and who at the site approved of it."""

    coordinator: bytes | None = None  # public key; None for reports, of the site's own accord
    model: bytes = b""  # digest; empty where no model travels
    approver: bytes | None = None  # public key; None where the site file wants no approvals
    dated: str | None = None  # digest of a plan that expires; exact sums compare the one without
    standing: StandingUse | None = None  # where it was approved ahead, with others


NOBODY: Final = Asked()


class Turn(NamedTuple):
    """Which of two rounds a session is."""

    first: bytes | None = None  # the session of the first round; None where this is it
    bins: str = ""  # of the second: the digest of its bins
    clients: int = 0  # sites that were, as it says, in the sum of the first


FIRST: Final = Turn()


class Departure(NamedTuple):
    """What is about to leave a site at one step of a session."""

    step: Step
    size: int
    sha256: str

    @classmethod
    def of(cls, step: Step, data: bytes) -> Self:
        """Of these bytes."""
        return cls(step, len(data), hashlib.sha256(data).hexdigest())

    @property
    def is_contribution(self) -> bool:
        """Whether it is made of the site's rows."""
        return self.step in _COUNTED


class Entry(NamedTuple):
    """One entry of a ledger; what does not belong to its kind is None.

    A contribution leaves with an entry of kind ``"sent"``, any other reply with one of kind
    ``"reply"``. It gets its number and its time when it is written.
    """

    kind: Kind
    session: bytes | None = None
    account: Account | None = None
    cost: Cost | None = None
    survivors: frozenset[bytes] | None = None
    certain: bool = True  # whether the sum is proved to be over exactly the survivors
    roster: SumRoster | None = None
    plan: str | None = None
    data: Fingerprint | None = None
    asked: Asked = NOBODY
    left: Departure | None = None
    flips: str | None = None  # labels as flipped, which cost once for all their sessions
    turn: Turn | None = None  # of plans of two rounds, which cost once
    number: int = 0
    time: datetime = datetime.min.replace(tzinfo=UTC)


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An entry as written. JSON has no infinity, hence the word."""

    time: str
    kind: Kind
    session: str | None = None
    account: Account | None = None
    epsilon: float | Literal["inf"] | None = None
    delta: float | None = None
    survivors: tuple[str, ...] | None = None
    certain: bool = True
    roster: tuple[str, ...] | None = None
    needed: int | None = None
    plan: str | None = None
    data: Fingerprint | None = None
    coordinator: str | None = None
    model: str = ""
    approver: str | None = None
    dated: str | None = None
    standing: StandingUse | None = None
    left: tuple[Step, int, str] | None = None
    flips: str | None = None
    turn: tuple[str, str, int] | None = None


def encode(entry: Entry) -> str:
    """The line of a new entry, dated now."""
    cost, roster, asked, turn = entry.cost, entry.roster, entry.asked, entry.turn
    line = _Line(
        time=plans.now().isoformat(timespec="seconds"),
        kind=entry.kind,
        session=None if entry.session is None else entry.session.hex(),
        account=entry.account,
        epsilon=None if cost is None else "inf" if cost.is_exact_sum else cost.epsilon,
        delta=None if cost is None else cost.delta,
        survivors=None if entry.survivors is None else _keys(entry.survivors),
        certain=entry.certain,
        roster=None if roster is None else _keys(roster.sites),
        needed=None if roster is None else roster.needed,
        plan=entry.plan,
        data=entry.data,
        coordinator=None if asked.coordinator is None else key_to_text(asked.coordinator),
        model=asked.model.hex(),
        approver=None if asked.approver is None else key_to_text(asked.approver),
        dated=asked.dated,
        standing=asked.standing,
        left=entry.left,
        flips=entry.flips,
        turn=None if turn is None else ((turn.first or b"").hex(), turn.bins, turn.clients),
    )
    return msgspec.json.encode(line).decode()


def _keys(sites: frozenset[bytes]) -> tuple[str, ...]:
    return tuple(map(key_to_text, sorted(sites)))


def _turn(first: str, bins: str, clients: int) -> Turn:
    return Turn(bytes.fromhex(first), bins, clients) if first else FIRST


def decode(number: int, text: str) -> Entry:
    """The entry that a line holds."""
    try:
        line = msgspec.json.decode(text, type=_Line)
        cost = None
        if line.epsilon is not None and line.delta is not None:
            cost = Cost(math.inf if line.epsilon == "inf" else line.epsilon, line.delta)
        survivors, roster = line.survivors, None
        if line.roster is not None and line.needed is not None:
            roster = SumRoster(frozenset(map(key_from_text, line.roster)), line.needed)
        return Entry(
            kind=line.kind,
            session=None if line.session is None else bytes.fromhex(line.session),
            account=line.account,
            cost=cost,
            survivors=None if survivors is None else frozenset(map(key_from_text, survivors)),
            certain=line.certain,
            roster=roster,
            plan=line.plan,
            data=line.data,
            asked=Asked(
                None if line.coordinator is None else key_from_text(line.coordinator),
                bytes.fromhex(line.model),
                None if line.approver is None else key_from_text(line.approver),
                line.dated,
                line.standing,
            ),
            left=None if line.left is None else Departure(*line.left),
            flips=line.flips,
            turn=None if line.turn is None else _turn(*line.turn),
            number=number,
            time=datetime.fromisoformat(line.time),
        )
    except (*MALFORMED, ValueError, SiteError, LedgerError):
        raise LedgerError(
            f"entry {number} of the ledger cannot be read: a later version of fedgauge wrote "
            "it, or it was altered. Use the latest version."
        ) from None
