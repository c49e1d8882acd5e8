"""What the entries of a ledger come to, and what they leave room for.

A plan promises (epsilon, delta) for a unit U and its neighbours. What it promises to others
follows from two facts. Noise is added to counts, so how well two inputs are told apart depends
only on how their counts differ; and s steps from neighbour to neighbour cost s epsilon and
delta (1 + e^epsilon + ... + e^((s - 1) epsilon)). Let two inputs differ in rows of k units.

- The counted rows only go, or only come. Those of one unit are within its cap, so that a unit
  with just these rows, there or not, differs by the same counts: one step of add-remove and
  zero-out. Under replace-one they are what is seen of a step in which they turn into rows of the
  other class, whose counts have noise of their own. So s = k.
- Else, as when a row changes, or goes and one that was beyond the cap steps in: s = k under
  replace-one; under add-remove and zero-out a unit goes and comes again, s = 2 k.

One row that counts or does not, all else as it was counted, is in one unit of whatever kind:
k = s = 1. A local report has the same bound, as a mean over rows is no further from one of them
than the furthest row. So each plan costs each row, in this sense, its epsilon and delta whatever
its unit and neighbours, and those of all plans on a dataset add up to one sum with one limit. For
another score of a row each plan is one or two steps. To a unit of several rows the sum
promises as much only where all plans protect such units, which is what accounts are kept for.

A plan for labels (unit label, neighbours flip) takes it for public which rows there are and in
which bins. With these given, it counts positives alone: a row whose label does not count is
counted as a negative one, at most one flip away. A label told as flipped is as a local report is:
one that does not count is told like a label drawn at random. So such a plan, too, costs each row
its epsilon and delta, and is in the sum. That hides no row whose presence such plans show: of it
the sum says how little plans tell beyond that it is there, as counted or not.

A label that is the other one, all else as it was, moves the counts of one row, and which rows are
within a cap does not depend on labels: k = 1. So s = 1 under flip, under replace-one and of local
reports, and s = 2 under add-remove and zero-out, where the row's unit goes and comes again. What
s steps cost is what each plan on a dataset is charged on the account of its labels. Labels as
flipped are told once, however often they are used: all that is told of them is made of the same
flips, so that they are charged once, by their digest, as long as one session holds them.

A plan of two rounds is two sessions. Its epsilon and delta are for both together, so that they are
charged once, as long as one of the two holds them.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Final, Literal, NamedTuple, Self

from fedgauge.data.fingerprint import Fingerprint
from fedgauge.errors import BudgetExceeded, LedgerError
from fedgauge.site.entries import (
    NOBODY,
    Account,
    Asked,
    Cost,
    Departure,
    Entry,
    Roster,
    Step,
    Turn,
)
from fedgauge.site.exact import ExactSum

Status = Literal["reserved", "committed", "released"]

_ORDER: Final[dict[Status, int]] = {"released": 0, "reserved": 1, "committed": 2}
_ONE_STEP: Final = ("flip", "replace-one")  # neighbours between whom a label can flip


class Spend(NamedTuple):
    """One session's cost, when it was reserved, and what became of it."""

    account: Account
    cost: Cost
    since: datetime
    status: Status = "reserved"
    sent: bool = False
    roster: Roster | None = None
    certain: bool = True
    plan: str | None = None
    data: Fingerprint | None = None
    survivors: frozenset[bytes] | None = None
    asked: Asked = NOBODY
    departures: tuple[Departure, ...] = ()
    flips: str | None = None
    turn: Turn | None = None

    def departure(self, step: Step) -> Departure | None:
        """What left at a step; None where nothing did, or an earlier version did not say."""
        return next((each for each in self.departures if each.step == step), None)

    @property
    def exact(self) -> ExactSum | None:
        """What is known of the sum, where it has no noise."""
        if not self.cost.is_exact_sum:
            return None
        return ExactSum(
            self.roster, self.plan, self.certain, self.survivors, self.data, turn=self.turn
        )

    @property
    def first(self) -> bytes | None:
        """The session of the first of two rounds, where this is the second."""
        return None if self.turn is None else self.turn.first

    @property
    def is_open(self) -> bool:
        """Whether it is neither committed nor released."""
        return self.status == "reserved"


class Books(NamedTuple):
    """What the entries of a ledger come to."""

    spends: dict[bytes, Spend]
    limits: dict[Account, Cost]

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> Self:
        """Go through all entries in order."""
        books = cls({}, {})
        for entry in entries:
            books._add(entry)
        return books

    def _add(self, entry: Entry) -> None:
        spend = self.spends.get(entry.session or b"")
        match entry:
            case Entry(kind="limit", account=Account() as account, cost=Cost() as cost):
                self.limits[account] = cost
            case Entry(kind="reserve", account=Account() as account, cost=Cost() as cost) if (
                entry.session and not spend
            ):
                self.spends[entry.session] = Spend(
                    account,
                    cost,
                    entry.time,
                    roster=entry.roster,
                    certain=entry.certain,
                    plan=entry.plan,
                    data=entry.data,
                    asked=entry.asked,
                    flips=entry.flips,
                    turn=entry.turn,
                )
            case Entry(kind="commit", session=bytes() as session) if spend and spend.is_open:
                self.spends[session] = spend._replace(status="committed")
            case Entry(kind="release", session=bytes() as session) if spend and spend.is_open:
                self.spends[session] = spend._replace(status="released")
            case Entry(kind="sent", session=bytes() as session) if spend and not spend.is_open:
                left = () if entry.left is None else (entry.left,)
                self.spends[session] = spend._replace(
                    sent=True, departures=(*spend.departures, *left)
                )
            case Entry(kind="reply", session=bytes() as session, left=Departure() as left) if spend:
                self.spends[session] = spend._replace(departures=(*spend.departures, left))
            case Entry(kind="data", session=bytes() as session) if spend:
                self.spends[session] = spend._replace(data=entry.data)
            case Entry(kind="survivors", session=bytes() as session) if spend:
                self.spends[session] = spend._replace(
                    survivors=entry.survivors, certain=entry.certain
                )
            case _:
                raise LedgerError(f"entry {entry.number} of the ledger does not fit the others.")

    def accounts(self) -> set[Account]:
        """All accounts that something was spent on, or that have a limit."""
        return {spend.account for spend in self.spends.values()} | set(self.limits)

    def held(self, account: Account, *statuses: Status) -> list[Cost]:
        """What an account is charged for sessions in some states."""
        return [
            charge(account, spend.account, spend.cost)
            for spend in self._charged()
            if account.covers(spend.account) and spend.status in statuses
        ]

    def _charged(self) -> Iterable[Spend]:
        """All sessions, of those that are paid for together the one that went furthest.

        These are the two rounds of a plan, and all that tell the same flips.
        """
        once: dict[object, Spend] = {}
        for session, spend in self.spends.items():
            evaluation = spend.first or session
            what = evaluation if spend.flips is None else (spend.account, spend.flips)
            if what not in once or _ORDER[spend.status] > _ORDER[once[what].status]:
                once[what] = spend
        return once.values()

    def second_of(self, session: bytes) -> bytes | None:
        """The session that is the second round of a first one; None where there is none."""
        return next((each for each, spend in self.spends.items() if spend.first == session), None)

    def cost_of_flips(self, account: Account, flips: str) -> Cost | None:
        """What labels as flipped are charged by now; None where no session holds them."""
        live = (
            spend.cost
            for spend in self.spends.values()
            if (spend.account, spend.flips) == (account, flips) and spend.status != "released"
        )
        return next(live, None)

    def noisy(self, account: Account, *statuses: Status) -> list[Cost]:
        """The same without exact sums, which meet no limit."""
        return [cost for cost in self.held(account, *statuses) if not cost.is_exact_sum]

    def exact_sums(self, dataset: str, *, besides: bytes = b"") -> list[ExactSum]:
        """Exact sums on a dataset, those under way included, besides that of one session."""
        return [
            spend.exact
            for session, spend in self.spends.items()
            if spend.exact and spend.account.dataset == dataset
            if spend.status != "released" and session != besides
        ]

    def exact_data_elsewhere(self, dataset: str) -> list[Fingerprint]:
        """What the rows were of exact sums on other datasets."""
        return [
            spend.data
            for spend in self.spends.values()
            if spend.exact and spend.data and spend.account.dataset != dataset
            if spend.status != "released"
        ]

    def kinds_of_release(self, dataset: str) -> set[bool]:
        """Whether exact sums, and whether noisy ones, left a dataset or are under way."""
        return {
            spend.cost.is_exact_sum
            for spend in self.spends.values()
            if spend.account.dataset == dataset and spend.status != "released"
        }


def charge(scope: Account, account: Account, cost: Cost) -> Cost:
    """What a plan on an account costs an account that covers it.

    Examples
    --------
    >>> rows = Account("stroke-2026", "example", "add-remove")
    >>> charge(Account.labels("stroke-2026"), rows, Cost(1.0, 0.0)).epsilon
    2.0
    """
    if not scope.is_label or cost.is_exact_sum or account.neighbours in _ONE_STEP:
        return cost
    return cost.twice()


def check_mix(books: Books, account: Account, cost: Cost) -> None:
    """Refuse an exact sum where noise promised something, or noise where a sum gave it away."""
    kinds = books.kinds_of_release(account.dataset)
    if cost.is_exact_sum and False in kinds:
        raise BudgetExceeded(
            f"an evaluation with noise was begun on dataset {account.dataset}, and an exact sum "
            "would void that promise. Use noise here too, or set `mix_exact = true` in the site "
            "file."
        )
    if not cost.is_exact_sum and True in kinds:
        raise BudgetExceeded(
            f"an exact sum was begun on dataset {account.dataset}, which voids any promise of "
            "differential privacy on it. Use another dataset, or set `mix_exact = true` in the "
            "site file."
        )


def check_budget(books: Books, account: Account, cost: Cost, default_limit: Cost) -> None:
    """Refuse a cost beyond the limit of its dataset, or of its account where that has one."""
    whole = Account.whole(account.dataset)
    for scope, limit in {whole: default_limit, **books.limits}.items():
        if not scope.covers(account):
            continue
        held, asked = books.noisy(scope, "committed", "reserved"), charge(scope, account, cost)
        epsilon = sum((c.exact_epsilon for c in held), asked.exact_epsilon)
        delta = sum((c.exact_delta for c in held), asked.exact_delta)
        if epsilon > limit.exact_epsilon or delta > limit.exact_delta:
            told = f"{asked}" if asked == cost else f"{asked}, for a label that is the other one"
            raise BudgetExceeded(
                f"the privacy budget of {scope} does not allow this: limit {limit}; spent or "
                f"reserved {total_of(held)}; asked {told}. Raise the limit with "
                "`fedgauge ledger set-limit`, if whoever answers for the data agrees."
            )


def total_of(costs: Sequence[Cost]) -> Cost:
    """What costs add up to, as the decimals they print as."""
    if any(cost.is_exact_sum for cost in costs):
        return Cost(float("inf"), 0.0)
    return Cost(
        float(sum((cost.exact_epsilon for cost in costs), Fraction())),
        float(min(sum((cost.exact_delta for cost in costs), Fraction()), Fraction(1))),
    )
