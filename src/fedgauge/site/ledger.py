"""The privacy ledger: its rules, what has been spent, and what is left.

Also when a site joins the second of two rounds.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Final, Literal, NamedTuple, Self

from fedgauge.data.fingerprint import Fingerprint
from fedgauge.errors import BudgetExceeded, LedgerError, PlanRefused
from fedgauge.site.exact_sums import (
    ExactRules,
    ExactSum,
    Sites,
    check_data,
    check_join,
    check_vote,
    count_sums,
)
from fedgauge.site.ledger_entries import (
    FIRST,
    NOBODY,
    Account,
    Asked,
    Balance,
    Cost,
    Departure,
    Entry,
    Kind,
    StandingUse,
    Step,
    SumRoster,
    Turn,
    decode,
    encode,
)
from fedgauge.site.ledger_file import Chain, Pages
from fedgauge.storage import WAIT_SECONDS

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
    roster: SumRoster | None = None
    certain: bool = True
    plan: str | None = None
    data: Fingerprint | None = None
    survivors: frozenset[bytes] | None = None
    asked: Asked = NOBODY
    departures: tuple[Departure, ...] = ()
    flips: str | None = None
    turn: Turn | None = None

    def departure(self, step: Step) -> Departure | None:
        """What left at a step; None where nothing did."""
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
                entry.session and not spend and (entry.roster or not cost.is_exact_sum)
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
            case Entry("commit" | "release" as kind, bytes() as session) if spend and spend.is_open:
                status: Status = "committed" if kind == "commit" else "released"
                self.spends[session] = spend._replace(status=status)
            case Entry(kind="sent", session=bytes() as session, left=Departure() as left) if (
                spend and not spend.is_open
            ):
                self.spends[session] = spend._replace(
                    sent=True, departures=(*spend.departures, left)
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
        """All sessions; of those paid for together, such as two rounds, the one furthest on."""
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

    def uses(self, approval: str) -> int:
        """How many evaluations were joined under a standing approval; not those given back."""
        return sum(
            spend.asked.standing is not None
            and spend.asked.standing.approval == approval
            and spend.first is None
            and spend.status != "released"
            for spend in self.spends.values()
        )

    def kinds_of_release(self, dataset: str) -> set[bool]:
        """Whether exact sums, and whether noisy ones, left a dataset or are under way."""
        return {
            spend.cost.is_exact_sum
            for spend in self.spends.values()
            if spend.account.dataset == dataset and spend.status != "released"
        }


def charge(scope: Account, account: Account, cost: Cost) -> Cost:
    """What a plan on an account costs an account that covers it."""
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
                f"reserved {total_of(held)}; asked {told}. Raise the limit with `fedgauge ledger "
                "set-limit`, if the person responsible for the data agrees."
            )


def total_of(costs: Sequence[Cost]) -> Cost:
    """What costs add up to, as the decimals they print as."""
    if any(cost.is_exact_sum for cost in costs):
        return Cost(float("inf"), 0.0)
    return Cost(
        float(sum((cost.exact_epsilon for cost in costs), Fraction())),
        float(min(sum((cost.exact_delta for cost in costs), Fraction()), Fraction(1))),
    )


_NOT_THERE: Final = (
    "the plan is for the second of two rounds, and this site did not join the first, or has given "
    "it up. Ask for an invitation to both."
)


def check_second(
    books: Books, account: Account, cost: Cost, asked: Asked, exact: ExactSum | None, turn: Turn
) -> None:
    """Refuse a second round of anything but an evaluation that this site joined from the start.

    `exact` says who is invited to which plan, as it was before bins were found.
    """
    first = books.spends.get(turn.first or b"")
    if first is None or first.turn != FIRST or first.status == "released" or exact is None:
        raise PlanRefused(_NOT_THERE)
    for what, same in (
        ("plan", (exact.plan, asked.dated) == (first.plan, first.asked.dated)),
        ("coordinator", asked.coordinator == first.asked.coordinator),
        ("model", asked.model == first.asked.model),
        ("roster", _invited(exact) == _invited(first)),
        ("dataset, or cost", (account, cost) == (first.account, first.cost)),
    ):
        if not same:
            raise PlanRefused(
                f"the second of two rounds has another {what} than the first, which this site "
                "joined. Ask for a new evaluation."
            )
    if books.second_of(turn.first or b"") is not None:
        raise PlanRefused(
            "this site joined another second round of that evaluation, and each has one: sums over "
            "other bins can be subtracted from each other. Ask for a new evaluation."
        )
    if first.survivors is not None and len(first.survivors) != turn.clients:
        raise PlanRefused(
            "the bins are not those of the first round that this site was in: it was over another "
            "number of sites. Ask for a new evaluation."
        )
    if cost.is_exact_sum:
        _check_exact(books, account, first, turn)


def _invited(sum_: ExactSum | Spend) -> Sites | None:
    return None if sum_.roster is None else sum_.roster.sites


def _check_exact(books: Books, account: Account, first: Spend, turn: Turn) -> None:
    """Refuse a second exact sum that, less others, shows a site's counts or narrower bins."""
    if first.survivors is None:
        raise PlanRefused(
            "this site did not see the first of two exact sums to its end, and the difference of "
            "the two would show its counts. Ask for a new evaluation."
        )
    others = (each.turn for each in books.exact_sums(account.dataset))
    if any(other is not None and other.bins not in ("", turn.bins) for other in others):
        raise PlanRefused(
            "an earlier exact sum on this dataset found other bins under the same plan, and sums "
            "over other bins can be subtracted from each other. Run with noise (mix_exact)."
        )


def check_same_sites(books: Books, second: Spend, sites: Sites) -> None:
    """Refuse a second exact sum over other sites than the first was over."""
    if second.first is not None and books.spends[second.first].survivors != sites:
        raise PlanRefused(
            "the second of two exact sums would be over other sites than the first, and their "
            "difference would show those. Start again when all of them are there, or with noise."
        )


_ID_BYTES: Final = 32
_LEAST_DIGITS: Final = 8  # of an id, as entries are shown with
_PREFIX: Final = re.compile(f"[0-9a-f]{{{_LEAST_DIGITS},{2 * _ID_BYTES}}}")
_DIGEST: Final = re.compile("[0-9a-f]{64}")


class Ledger:
    """What a site's data may cost in privacy, has cost, and is about to.

    A session is reserved before the site takes part, committed before its rows are read, and
    released only if they never were. Costs on one dataset add up, whatever their units and
    neighbours: basic composition, which holds for plans chosen one after another, each knowing the
    results before. An account (dataset, unit, neighbours) can have a limit besides that of its
    dataset; all plans are charged to that of labels (label, flip). Every call checks the whole
    ledger, and what a call returns from has reached the disk.

    Parameters
    ----------
    path
        The SQLite file, on a local disk, made by :meth:`create`.
    head
        A small file beside the site's key that names the last entry: it shows an old copy of the
        ledger.
    witness
        A second such file on another disk or machine, made by :meth:`appoint`: it shows old copies
        of ledger and head together.
    timeout
        Seconds to wait for another process that uses the ledger.

    Examples
    --------
    >>> import tempfile
    >>> account, cost = Account("stroke-2026", "example", "add-remove"), Cost(0.5, 0.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger.create(Path(folder, "ledger.sqlite"), head=Path(folder, "head"))
    ...     ledger.reserve(bytes(32), account, cost, default_limit=Cost(1.0, 1e-6))
    ...     ledger.commit(bytes(32))
    ...     ledger.status(bytes(32))
    'committed'
    """

    def __init__(
        self,
        path: str | Path,
        *,
        head: str | Path,
        witness: str | Path | None = None,
        timeout: float = WAIT_SECONDS,
    ) -> None:
        self._path = Path(path)
        second = None if witness is None else Path(witness)
        self._chain = Chain(self._path, Path(head), witness=second, timeout=timeout)

    @classmethod
    def create(cls, path: str | Path, *, head: str | Path) -> Self:
        """Make a ledger in which nothing is spent, and its head; LedgerError where one is."""
        ledger = cls(path, head=head)
        ledger._chain.create()
        return ledger

    def appoint(self, witness: str | Path) -> None:
        """Write the head to a witness too: a new file or this ledger's; every use then names it."""
        self._chain.appoint(Path(witness))

    def __repr__(self) -> str:
        return f"Ledger({str(self._path)!r})"

    def reserve(
        self,
        session: bytes,
        account: Account,
        cost: Cost,
        *,
        default_limit: Cost,
        mix_exact: bool = False,
        asked: Asked = NOBODY,
        exact: ExactSum | None = None,
        rules: ExactRules | None = None,
        flips: str | None = None,
        turn: Turn | None = None,
        check_only: bool = False,
    ) -> None:
        """Set a cost aside for a session, or refuse it; the same again changes nothing.

        Parameters
        ----------
        session
            The session's id, 32 bytes.
        account, cost
            Whose privacy is spent, and how much. An exact sum (infinite epsilon) meets no limit,
            but does not go together with differential privacy on the same dataset.
        default_limit
            The limit of a dataset that has none of its own.
        mix_exact
            Allow exact sums and differential privacy on one dataset.
        asked
            Who asked for the session, for the log of what left.
        exact, rules
            The plan and, of an exact sum, who is invited and, where known, the rows; what the site
            allows.
        flips
            The digest of labels as flipped, where those are all that is told. Sessions that tell
            the same flips are charged once, together; each can be taken up until it ends.
        turn
            Which of two rounds it is. The second costs nothing more, and has to be of the
            evaluation that the first was of.
        check_only
            Refuse what would be refused, and write nothing.
        """
        _check_session(session)
        _check_limit(default_limit)
        with self._open() as (pages, books):
            spend = books.spends.get(session)
            if spend is not None:
                _check_again(session, spend, account, cost, flips)
                return
            if turn is not None and turn.first is not None:
                check_second(books, account, cost, asked, exact, turn)
            else:
                if asked.standing is not None:
                    _check_uses(books, asked.standing)
                if not mix_exact:
                    check_mix(books, account, cost)
                _check_room(books, account, cost, exact, rules, flips, default_limit)
            if exact is not None and exact.data is not None and rules is not None:
                _check_data(books, account.dataset, exact.data, rules)
            if not check_only:
                pages.append(_reserved(session, account, cost, exact, asked, flips, turn))

    def commit(self, session: bytes) -> None:
        """Spend what a session reserved, before its rows are read; again: no change."""
        with self._open() as (pages, books):
            spend = _known(books, session)
            if spend.status == "released":
                raise LedgerError(
                    f"session {_short(session)} was released: its budget is given back. "
                    "A new attempt needs a new session."
                )
            if spend.status == "reserved":
                pages.append(encode(Entry("commit", session)))

    def release(self, session: bytes) -> None:
        """Give back what a session reserved, whose rows were never read; again: no change."""
        with self._open() as (pages, books):
            spend = _known(books, session)
            if spend.status == "committed":
                raise LedgerError(
                    f"session {_short(session)} is committed: its rows were counted, or may have "
                    "been. What was spent cannot be given back."
                )
            if spend.status == "reserved":
                pages.append(encode(Entry("release", session)))

    def status(self, session: bytes) -> Status | None:
        """What became of a session; None when the ledger does not know it."""
        _check_session(session)
        with self._open() as (_, books):
            spend = books.spends.get(session)
        return None if spend is None else spend.status

    def spend(self, session: bytes) -> Spend:
        """A session that the ledger knows: its cost, who asked for it, and what left in it."""
        with self._open() as (_, books):
            return _known(books, session)

    def count_exact(self, dataset: str) -> int:
        """How many exact sums a dataset has had, those under way or to come included."""
        with self._open() as (_, books):
            return count_sums(books.exact_sums(dataset))

    def uses(self, approval: str) -> int:
        """How many evaluations were joined under a standing approval; not those given back."""
        with self._open() as (_, books):
            return books.uses(approval)

    def sessions(self) -> dict[bytes, Spend]:
        """All sessions and what became of each, oldest first."""
        with self._open() as (_, books):
            return books.spends

    def find(self, digits: str) -> bytes:
        """The one session whose id begins with these hexadecimal digits, 8 of them or more."""
        if not _PREFIX.fullmatch(digits):
            raise LedgerError(
                f"an evaluation is named by the first {_LEAST_DIGITS} hexadecimal digits of its "
                "id, or more, as `fedgauge ledger pending` shows them."
            )
        found = [session for session in self.sessions() if session.hex().startswith(digits)]
        if not found:
            raise LedgerError(
                f"no evaluation in the ledger begins with {digits}. `fedgauge ledger pending` "
                "lists those that are open."
            )
        if len(found) > 1:
            listed = ", ".join(session.hex() for session in found)
            raise LedgerError(f"several evaluations begin with {digits}: {listed}. Add digits.")
        return found[0]

    def check_account(self, session: bytes, account: Account) -> None:
        """Refuse to count rows of other data than those that a session was reserved for."""
        reserved = self.spend(session).account
        if reserved != account:
            raise LedgerError(
                f"session {_short(session)} was reserved for {reserved}, and this is {account} "
                "now: its rows would be charged to the wrong data. Abandon that evaluation, or "
                "finish it under the old name."
            )

    def record_sent(self, session: bytes, left: Departure) -> None:
        """Record what is about to leave at a step of a session; the same again: no change.

        From then on nothing else leaves at that step, and a contribution only once its cost is
        spent.
        """
        with self._open() as (pages, books):
            spend = (_committed if left.is_contribution else _live)(books, session)
            before = spend.departure(left.step)
            if before not in (None, left):
                raise LedgerError(
                    f"session {_short(session)} sent something else at this step ({left.step}). A "
                    "new attempt needs a new session."
                )
            if before is None:
                kind: Kind = "sent" if left.is_contribution else "reply"
                pages.append(encode(Entry(kind, session, left=left)))

    def record_reports(self, session: bytes, left: Departure, rows: Fingerprint) -> None:
        """Record reports that are about to leave in one of two rounds, or refuse them.

        Each round's reports leave once, and both rounds' are of the same rows in the same order: a
        row is known by its place, and one that moved would be reported in both.
        """
        with self._open() as (pages, books):
            spend = _committed(books, session)
            if spend.departure(left.step) is not None:
                raise LedgerError(
                    f"reports of this round left before, in session {_short(session)}. Send those "
                    "again if they were lost: new ones of the same rows cost privacy again."
                )
            if spend.sent and spend.data != rows:
                raise PlanRefused(
                    "the rows are not those that reports of the first round were made of, or not "
                    "in the same order, so that some would be reported twice. Name the file as it "
                    "was then, and keep it until both rounds are over."
                )
            if not spend.sent:
                pages.append(encode(Entry("data", session, data=rows)))
            pages.append(encode(Entry("sent", session, left=left)))

    def record_data(self, session: bytes, data: Fingerprint, *, rules: ExactRules) -> None:
        """Record what rows an exact sum is about to be on, or refuse them."""
        with self._open() as (pages, books):
            spend = _known(books, session)
            if spend.data is None:
                _check_data(books, spend.account.dataset, data, rules, besides=session)
                pages.append(encode(Entry("data", session, data=data)))
            elif not data.fits(spend.data):
                raise PlanRefused(
                    "the rows changed since this site joined the exact sum. Put the data back as "
                    "they were, or abandon the evaluation."
                )

    def check_sites(self, session: bytes, sites: Iterable[bytes], *, rules: ExactRules) -> None:
        """Refuse an exact sum of which these sites are left, before anything is counted."""
        with self._open() as (_, books):
            spend = _known(books, session)
            if spend.exact is not None:
                earlier = books.exact_sums(spend.account.dataset, besides=session)
                check_same_sites(books, spend, frozenset(sites))
                check_vote(earlier, spend.exact, frozenset(sites), rules)

    def record_survivors(
        self, session: bytes, survivors: Iterable[bytes], *, rules: ExactRules, certain: bool = True
    ) -> None:
        """Record whose sum a session is about to reveal, or refuse it.

        Exact sums over several sets of sites can be added and subtracted, so they are judged
        together with earlier ones on the dataset (:mod:`fedgauge.site.exact_sums`). Recording the
        same set again changes nothing. Noisy sums are recorded without that.

        Not `certain`: members check their neighbours only, so a coordinator can name survivors who
        are not in the sum. Such a sum must be the only exact one on its dataset.
        """
        chosen = frozenset(survivors)
        if any(len(key) != _ID_BYTES for key in chosen):
            raise LedgerError(f"survivors are given by their public keys, {_ID_BYTES} bytes each.")
        with self._open() as (pages, books):
            spend = _committed(books, session)
            if spend.survivors is not None:
                if spend.survivors != chosen:
                    raise LedgerError(
                        f"session {_short(session)} was recorded with other survivors. One "
                        "session reveals one sum: a new attempt needs a new session."
                    )
                return
            if spend.exact is not None:
                earlier = books.exact_sums(spend.account.dataset, besides=session)
                check_same_sites(books, spend, chosen)
                check_vote(earlier, spend.exact, chosen, rules)
            pages.append(encode(Entry("survivors", session, survivors=chosen, certain=certain)))

    def set_limit(self, account: Account, limit: Cost) -> None:
        """Set the limit of a dataset, or an account's own beside it; one below costs stops it."""
        _check_limit(limit)
        with self._open() as (pages, _):
            pages.append(encode(Entry("limit", account=account, cost=limit)))

    def balances(self) -> list[Balance]:
        """How every account stands, in order; exact sums are in that of labels left out."""
        with self._open() as (_, books):
            accounts = sorted(books.accounts())
        return [
            _balance(books, account, books.limits.get(account))
            for account in accounts
            if not account.is_whole
        ]

    def totals(self, *, default_limit: Cost) -> list[Balance]:
        """How every dataset stands that had noisy sums or has a limit, exact sums left out."""
        with self._open() as (_, books):
            noisy = {spend.account for spend in books.spends.values() if not spend.exact}
        names = sorted({account.dataset for account in noisy | set(books.limits)})
        return [_total(books, name, default_limit) for name in names]

    def total(self, dataset: str, *, default_limit: Cost) -> Balance:
        """How one dataset stands, exact sums left out."""
        with self._open() as (_, books):
            return _total(books, dataset, default_limit)

    def datasets(self) -> set[str]:
        """All datasets that something was spent on, or that have a limit."""
        with self._open() as (_, books):
            return {account.dataset for account in books.accounts()}

    def entries(self) -> list[Entry]:
        """All entries, oldest first."""
        with self._chain.open() as pages:
            return _decode_all(pages)

    @contextmanager
    def _open(self) -> Iterator[tuple[Pages, Books]]:
        with self._chain.open() as pages:
            yield pages, Books.of(_decode_all(pages))


def _total(books: Books, dataset: str, default_limit: Cost) -> Balance:
    whole = Account.whole(dataset)
    return _balance(books, whole, books.limits.get(whole, default_limit))


def _balance(books: Books, account: Account, limit: Cost | None) -> Balance:
    # What exact sums have no part in: they have an account of their own.
    held = books.noisy if account.is_whole or account.is_label else books.held
    spent, reserved = held(account, "committed"), held(account, "reserved")
    return Balance(account, limit, total_of(spent), total_of(reserved))


def _decode_all(pages: Pages) -> list[Entry]:
    return [decode(number, line) for number, line in enumerate(pages.lines, start=1)]


def _check_session(session: bytes) -> None:
    if not isinstance(session, bytes) or len(session) != _ID_BYTES:
        raise LedgerError(f"a session id is {_ID_BYTES} bytes.")


def _check_limit(limit: Cost) -> None:
    if limit.is_exact_sum:
        raise LedgerError("a limit must be finite: exact sums are allowed by the site file.")


def _known(books: Books, session: bytes) -> Spend:
    _check_session(session)
    try:
        return books.spends[session]
    except KeyError:
        raise LedgerError(
            f"session {_short(session)} is not in the ledger. Reserve its budget first."
        ) from None


def _check_again(
    session: bytes, spend: Spend, account: Account, cost: Cost, flips: str | None
) -> None:
    """Refuse to take up a session that is over, or another one under its name."""
    # The same flips again tell nothing that was not paid for: whatever else a session sends at
    # that step is refused.
    under_way = spend.is_open or (flips is not None and spend.status == "committed")
    if not under_way or (spend.account, spend.cost, spend.flips) != (account, cost, flips):
        raise LedgerError(
            f"session {_short(session)} is in the ledger already, as {spend.status}. "
            "A new attempt needs a new session."
        )


def _check_room(
    books: Books,
    account: Account,
    cost: Cost,
    exact: ExactSum | None,
    rules: ExactRules | None,
    flips: str | None,
    default_limit: Cost,
) -> None:
    """Refuse what is beyond a limit, of costs or of exact sums."""
    if not cost.is_exact_sum:
        due = cost if flips is None else _due(books, account, cost, flips)
        check_budget(books, account, due, default_limit)
    elif exact is None or exact.roster is None or rules is None:
        raise LedgerError("an exact sum is reserved with its roster and the site's rules.")
    else:
        check_join(books.exact_sums(account.dataset), exact, rules)


def _check_uses(books: Books, standing: StandingUse) -> None:
    """Refuse to use a standing approval once too often."""
    used = books.uses(standing.approval)
    if used >= standing.most:
        raise PlanRefused(
            f"the standing approval {standing.approval[:_LEAST_DIGITS]} was used {used:,} times, "
            f"and it is for {standing.most:,}. Ask the approver for another."
        )


def _due(books: Books, account: Account, cost: Cost, flips: str) -> Cost:
    """What is left to be paid for labels as flipped: nothing, where they were charged before."""
    if not account.is_label or cost.is_exact_sum or not _DIGEST.fullmatch(flips):
        raise LedgerError("flips are charged to labels, by their digest: 64 hexadecimal digits.")
    before = books.cost_of_flips(account, flips)
    if before is None:
        return cost
    if before != cost:
        raise LedgerError(
            f"flips {flips[:_LEAST_DIGITS]} were charged as {before}, and {cost} was asked for. "
            "Flips have one epsilon: ask for that."
        )
    return Cost(0.0, 0.0)


def _reserved(
    session: bytes,
    account: Account,
    cost: Cost,
    exact: ExactSum | None,
    asked: Asked,
    flips: str | None,
    turn: Turn | None,
) -> str:
    """The entry of a new session; who is invited to a noisy sum concerns its second round alone."""
    told = ExactSum(None, None) if exact is None else exact
    if not cost.is_exact_sum:
        told = ExactSum(None if turn is None else told.roster, told.plan)
    entry = Entry(
        "reserve",
        session,
        account=account,
        cost=cost,
        roster=told.roster,
        certain=told.certain,
        plan=told.plan,
        data=told.data,
        asked=asked,
        flips=flips,
        turn=turn,
    )
    return encode(entry)


def _live(books: Books, session: bytes) -> Spend:
    spend = _known(books, session)
    if spend.status == "released":
        raise LedgerError(
            f"session {_short(session)} was released: nothing more leaves in it. A new attempt "
            "needs a new session."
        )
    return spend


def _committed(books: Books, session: bytes) -> Spend:
    spend = _known(books, session)
    if spend.status != "committed":
        raise LedgerError(
            f"session {_short(session)} is {spend.status}: it has to be committed before anything "
            "else is recorded of it."
        )
    return spend


def _short(session: bytes) -> str:
    return session.hex()[:12]


def _check_data(
    books: Books, dataset: str, data: Fingerprint, rules: ExactRules, *, besides: bytes = b""
) -> None:
    earlier = books.exact_sums(dataset, besides=besides)
    check_data(data, earlier, books.exact_data_elsewhere(dataset), rules)
