"""The privacy ledger of a site: what may be spent on its data, what is reserved, what is gone."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from fedgauge.data.fingerprint import Fingerprint
from fedgauge.errors import LedgerError, PlanRefused
from fedgauge.site.books import Books, Spend, Status, check_budget, check_mix, total_of
from fedgauge.site.chain import Chain, Pages
from fedgauge.site.entries import (
    NOBODY,
    Account,
    Asked,
    Balance,
    Cost,
    Departure,
    Entry,
    Kind,
    Step,
    Turn,
    decode,
    encode,
)
from fedgauge.site.exact import (
    ExactRules,
    ExactSum,
    check_data,
    check_join,
    check_vote,
    count_sums,
)
from fedgauge.site.second import check_same_sites, check_second
from fedgauge.storage.durable import WAIT_SECONDS

_ID_BYTES: Final = 32
_LEAST_DIGITS: Final = 8  # of an id, as entries are shown with
_PREFIX: Final = re.compile(f"[0-9a-f]{{{_LEAST_DIGITS},{2 * _ID_BYTES}}}")
_DIGEST: Final = re.compile("[0-9a-f]{64}")


class Ledger:
    """What a site's data may cost in privacy, has cost, and is about to.

    A session is reserved before the site takes part, committed before its rows are read, and
    released only if they never were. Costs on one dataset add up, whatever their units and
    neighbours: basic composition, which holds for plans chosen one after another, each knowing
    the results before. An account (dataset, unit, neighbours) can have a limit besides that of
    its dataset; all plans are charged to that of labels (label, flip). Every call checks the whole
    ledger, and what a call returns from has reached the disk.

    Parameters
    ----------
    path
        The SQLite file, on a local disk, made by :meth:`create`.
    head
        A small file, kept beside the site's key, that names the last entry: with it, an old
        copy of the ledger is noticed.
    witness
        A second such file on another disk or machine, made by :meth:`appoint`: with it, old
        copies of ledger and head together are noticed.
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
        """Write the head to a witness too, which is given whenever the ledger is used from now on.

        A file that is there must be the witness of this ledger.
        """
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
        """Set a cost aside for a session, or refuse it.

        Reserving again what is still reserved changes nothing, so that a session can be taken
        up after a crash.

        Parameters
        ----------
        session
            The session's id, 32 bytes.
        account
            Whose privacy is spent.
        cost
            What the session costs. An exact sum (infinite epsilon) meets no limit, but does
            not go together with differential privacy on the same dataset.
        default_limit
            The limit of a dataset that has none of its own.
        mix_exact
            Allow exact sums and differential privacy on one dataset.
        asked
            Who asked for the session, for the log of what left.
        exact, rules
            The plan and, of an exact sum, who is invited and, where they are known by now, the
            rows; and what the site allows.
        flips
            The digest of labels as flipped, where those are all that is told. Sessions that tell
            the same flips are charged once, together; each can be taken up until it ends, as they
            have nothing else to tell.
        turn
            Of a plan of two rounds: which of them it is. The second costs nothing more, and has to
            be of the evaluation that the first was of (:mod:`fedgauge.site.second`).
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
                pages.append(encode("commit", session=session))

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
                pages.append(encode("release", session=session))

    def status(self, session: bytes) -> Status | None:
        """What became of a session; None when the ledger does not know it."""
        _check_session(session)
        with self._open() as (_, books):
            spend = books.spends.get(session)
        return None if spend is None else spend.status

    def asked(self, session: bytes) -> Asked:
        """Who asked for a session, and who approved of it."""
        with self._open() as (_, books):
            return _known(books, session).asked

    def count_exact(self, dataset: str) -> int:
        """How many exact sums a dataset has had, those under way or to come included."""
        with self._open() as (_, books):
            return count_sums(books.exact_sums(dataset))

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
        with self._open() as (_, books):
            reserved = _known(books, session).account
        if reserved != account:
            raise LedgerError(
                f"session {_short(session)} was reserved for {reserved}, and this is {account} "
                "now: its rows would be charged to the wrong data. Abandon that evaluation, or "
                "finish it under the old name."
            )

    def record_sent(self, session: bytes, left: Departure) -> None:
        """Record what is about to leave at a step of a session; the same again: no change.

        From then on the session sends nothing else at that step. A contribution leaves only once
        its cost is spent.
        """
        with self._open() as (pages, books):
            spend = (_committed if left.is_contribution else _live)(books, session)
            before = spend.departure(left.step)
            if before not in (None, left):
                raise LedgerError(
                    f"session {_short(session)} sent something else at this step ({left.step}). A "
                    "new attempt needs a new session."
                )
            if before is None and not (left.is_contribution and spend.sent):
                kind: Kind = "sent" if left.is_contribution else "reply"
                pages.append(encode(kind, session=session, left=left))

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
                pages.append(encode("data", session=session, data=rows))
            pages.append(encode("sent", session=session, left=left))

    def has_left(self, session: bytes, step: Step) -> bool:
        """Whether something left at a step of a session, or may have."""
        with self._open() as (_, books):
            return _known(books, session).departure(step) is not None

    def is_sent(self, session: bytes) -> bool:
        """Whether a session's contribution left, or may have."""
        with self._open() as (_, books):
            return _known(books, session).sent

    def record_data(self, session: bytes, data: Fingerprint, *, rules: ExactRules) -> None:
        """Record what rows an exact sum is about to be on, or refuse them."""
        with self._open() as (pages, books):
            spend = _known(books, session)
            if spend.data is None:
                _check_data(books, spend.account.dataset, data, rules, besides=session)
                pages.append(encode("data", session=session, data=data))
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
        together with earlier ones on the dataset (:mod:`fedgauge.site.exact`). Recording the same
        set again changes nothing. Noisy sums are recorded without that.

        Parameters
        ----------
        session
            A committed session.
        survivors
            Public keys of the sites in the sum.
        rules
            What the site allows.
        certain
            Whether the sum is proved to be over exactly these sites. Where members check their
            neighbours only, a coordinator can name some who are not in it: such a sum must be
            the only exact one on its dataset.
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
            pages.append(encode("survivors", session=session, survivors=chosen, certain=certain))

    def set_limit(self, account: Account, limit: Cost) -> None:
        """Set the limit of an account or of a whole dataset, from now on.

        One lower than what is spent stops spending. One of an account is met besides that of its
        dataset.
        """
        _check_limit(limit)
        with self._open() as (pages, _):
            pages.append(encode("limit", account=account, cost=limit))

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
    elif exact is None or rules is None:
        raise LedgerError("an exact sum is reserved with its roster and the site's rules.")
    else:
        check_join(books.exact_sums(account.dataset), exact, rules)


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
    return encode(
        "reserve",
        session=session,
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
