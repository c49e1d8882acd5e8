"""A site that takes part in a real evaluation, whatever carries its messages.

It judges the plan before any data is read, keeps the privacy budget, counts its data once, and
remembers every session so that a crash loses nothing and repeats nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final, NamedTuple

from fedgauge.data.examples import Data, read_batches
from fedgauge.data.fingerprint import Fingerprint, Fingerprinter
from fedgauge.data.oddities import Counted
from fedgauge.engines.duties import (
    Delivery,
    SiteDuties,
    Stopped,
    check_ledger,
    judge_invitation,
    naming,
    say,
)
from fedgauge.errors import (
    ExchangeError,
    FedgaugeError,
    LedgerError,
    PlanRefused,
    ProtocolError,
    SiteError,
)
from fedgauge.keys import key_to_text
from fedgauge.plan import EvaluationPlan, expiry
from fedgauge.plan.summary import summarise
from fedgauge.plan.task import LabelTask
from fedgauge.protocol import Envelope
from fedgauge.secagg import Invitation, Stage, SummationClient
from fedgauge.site import Site
from fedgauge.site.approvals import keep_approval, require_approval
from fedgauge.site.books import Spend
from fedgauge.site.entries import FIRST, Asked, Departure, Roster, Step
from fedgauge.storage import durable
from fedgauge.storage.whole import MOST_STATE, read_bounded

STEPS: Final[dict[Stage, Step]] = {
    Stage.ADVERTISE: "join",
    Stage.SHARE: "share",
    Stage.MASK: "submit",
    Stage.AGREE: "confirm",
    Stage.OPEN: "reveal",
}
NOT_JOINED: Final = (
    "this site did not join that evaluation, or has ended it: when told to, when its plan expired "
    "(not_after), or after some days (session_days). Join it, or ask for a new invitation."
)


class Pending(NamedTuple):
    """An evaluation that a site joined and that is not over.

    `readable` says whether the state that it would go on from is intact, or was never stored;
    `overdue` whether it is given up at the next request to this site.
    """

    session: bytes
    spend: Spend
    readable: bool
    overdue: bool


def require_scores(plan: EvaluationPlan) -> None:
    """Refuse a plan for labels apart from scores, which rows of both are not counted under."""
    if isinstance(plan.task, LabelTask):
        raise PlanRefused(
            "the plan is for labels apart from scores, and this site is asked for rows of both."
        )


def require_labels(plan: EvaluationPlan) -> None:
    """Refuse a plan for rows that have a label and a score, where labels alone are counted."""
    if not isinstance(plan.task, LabelTask):
        raise PlanRefused(
            "the plan is for rows that have a label and a score, and this site is asked for labels "
            "apart from scores."
        )


def refuse_unread(site: Site) -> None:
    """Refuse, where a site wants each evaluation approved, what nobody can read in time."""
    if site.approvers:
        raise PlanRefused(
            "this site requires each evaluation to be approved (approvers), and nobody can "
            "read and sign while a run waits. Evaluate by files: `fedgauge exchange`."
        )


class Participant:
    """One site's side of any number of sessions.

    Parameters
    ----------
    site
        The site's trust anchor.
    data
        A function that finds the site's data; asked for once in a session, after the plan was
        judged and the budget spent. Before an exact sum of scores that the site has, also at join.
    check
        Asked at join, before anything is reserved: refuses data that cannot be read under the
        plan, by what is known without reading rows.
    delivery
        What the request brings to score with; None where the site's data hold the scores.
    tell
        Told, in sentences, what the site's operator should know.
    show
        Shown what the rows came to, once they were read; without it `tell` is told what was odd.
        For the site's operator alone.

    Notes
    -----
    What fails here is for the site's operator. To the server a site that refuses looks like
    one that fell silent. Under noise refusals come before the budget is spent and depend on no
    row; from then on nothing about rows stops a site. An exact sum is refused at join where rows
    changed, and stops where they cannot be counted, for zeros in it would be bare; that silence
    is one bit about the data.
    """

    def __init__(
        self,
        site: Site,
        data: Callable[[], Data] | None = None,
        *,
        check: Callable[[EvaluationPlan], None] = require_scores,
        delivery: Delivery | None = None,
        tell: Callable[[str], None] = lambda _: None,
        show: Callable[[Counted], None] | None = None,
    ) -> None:
        self._site = site
        self._data = data
        self._check = check
        self._delivery = delivery
        self._tell = tell
        self._show = show

    def answer(self, request: bytes) -> bytes:
        """The reply to a request, stored before it is given; the same one if asked again."""
        envelope = Envelope.from_bytes(request)
        if envelope.stage == Stage.ADVERTISE:
            return self._join(request)
        # Two processes that answer at once would both draw noise under the same masks.
        with self._alone():
            self._end_overdue()
            client = self.session(envelope.session)
            if client.stage < Stage.MASK:
                _require_unsent(self._site, envelope.session)
            _require_latest(self._site, envelope.session, envelope.stage, client.stage)
            try:
                reply = client.receive(request)
            except Stopped as stopped:
                self.forget(envelope.session)  # no second attempt
                raise stopped.reason from None
            # Stored first, recorded as sent next, sent last: a crash repeats no noise.
            self._store(client)
            reply = self._recorded(envelope.session, Stage(envelope.stage), reply)
            if client.stage == Stage.MASK:
                for dealer in client.unopened:
                    name = self._site.peers.get(dealer, key_to_text(dealer))
                    say(
                        self._tell,
                        f"{name} sent this site shares that do not open. This site goes on without "
                        "them, and says so to the coordinator.",
                    )
            return reply

    def session(self, session: bytes) -> SummationClient:
        """The state of a session that this site joined."""
        try:
            state = read_bounded(self._path(session), MOST_STATE)
        except FileNotFoundError:
            raise ExchangeError(NOT_JOINED) from None
        except OSError as error:
            raise SiteError(f"cannot read the state of a session: {error.strerror}.") from None
        duties = SiteDuties(self._site, self._data, self._delivery, self._tell, self._show)
        client = SummationClient.from_bytes(state, self._site.key, duties)
        duties.invitation, duties.setting = client.invitation, client.setting
        duties.noise_key = client.noise_key
        return client

    def pending(self) -> list[Pending]:
        """Evaluations that are neither over nor abandoned, oldest first; nothing is changed."""
        listed = []
        for session, spend in self._site.ledger.sessions().items():
            stored, client = self._path(session).exists(), self._stored(session)
            over = client is not None and client.stage == Stage.OPEN and spend.turn != FIRST
            if spend.is_open or (stored and not over):
                readable = client is not None or not stored
                overdue = self._is_overdue(session, spend)
                listed.append(Pending(session, spend, readable, overdue))
        return listed

    def has_left(self, session: bytes) -> bool:
        """Whether a session is paid for and not over: what others need of this site is here."""
        client = self._stored(session)
        paid = self._site.ledger.status(session) == "committed"
        return paid and client is not None and client.stage < Stage.OPEN

    def is_between(self, first: bytes, *second: bytes) -> bool:
        """Whether a first of two rounds is paid for, and this site can still count in the second.

        `second` is left out before there is an invitation to it.
        """
        status = self._site.ledger.status
        if status(first) != "committed" or "committed" in map(status, second):
            return False
        return any(self._path(session).exists() for session in (first, *second))

    def has_joined(self, session: bytes) -> bool:
        """Whether a session was ever joined here."""
        return self._site.ledger.status(session) is not None or self._path(session).exists()

    def abandon(self, *sessions: bytes) -> None:
        """Stop sessions and delete their keys; the budget comes back if it was not spent."""
        with self._alone():
            for session in sessions:
                self._end(session)

    def _end(self, session: bytes) -> None:
        if self._site.ledger.status(session) == "reserved":
            self._site.ledger.release(session)
        self.forget(session)

    def _end_overdue(self) -> None:
        """End every session whose time is over, so that none of them is counted late."""
        for session, spend in self._site.ledger.sessions().items():
            kept = spend.is_open or self._path(session).exists()
            if kept and self._is_overdue(session, spend):
                self._end(session)

    def _is_overdue(self, session: bytes, spend: Spend) -> bool:
        """Whether a session was open for too long, or its plan expired before it was counted."""
        if spend.status == "released":  # and then the process was killed
            return True
        # Also joined by a clock that was so far ahead: set right, it would reach the end in years.
        if abs(expiry.now() - spend.since) > timedelta(days=self._site.policy.session_days):
            return True
        client = self._stored(session) if spend.is_open else None
        return client is not None and client.invitation.plan.has_expired

    def _stored(self, session: bytes) -> SummationClient | None:
        """The state of a session; None where there is none that can be read."""
        try:
            return self.session(session)
        except FedgaugeError:
            return None

    def remember(self, session: bytes, note: bytes) -> None:
        """Keep a note beside the state of a session that this site joined."""
        try:
            durable.replace(self._path(session, "note"), note)
        except OSError as error:
            raise SiteError(f"cannot store a note on a session: {error.strerror}.") from None

    def recall(self, session: bytes) -> bytes | None:
        """The note on a session; None where there is none."""
        try:
            return read_bounded(self._path(session, "note"), MOST_STATE)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SiteError(f"cannot read a note on a session: {error.strerror}.") from None

    def forget(self, session: bytes) -> None:
        """Delete what is remembered of a session."""
        for path in (self._path(session, kind) for kind in ("client", "note", "approval")):
            durable.remove_leftovers(path)
            with suppress(FileNotFoundError):
                path.unlink()
                durable.sync_folder(path.parent)

    def _join(self, request: bytes) -> bytes:
        invitation = Invitation(request)
        if self._path(invitation.session).exists():
            return self._join_again(invitation)
        plan = judge_invitation(self._site, invitation, of_model=self._delivery is not None)
        if invitation.follows is not None:
            self._require_first(invitation, invitation.follows)
        approver = self._approver(invitation)
        self._check(plan)
        data, counted = (None, None) if plan.is_noisy else self._read(plan)
        reply = self._reserved(invitation, plan, approver, data)
        if counted is not None and self._show is not None:  # after all else: it changes nothing
            say(self._show, counted)
        return reply

    def _require_first(self, invitation: Invitation, first: bytes) -> None:
        """Refuse a second round of what this site did not join, or gave up; reads no rows."""
        check_ledger(self._site, invitation)
        if self.session(first).setting != self._setting:
            raise ProtocolError(
                "the second of two rounds came in another run, or with another config, than the "
                "first, so rows may be scored otherwise. Ask for a new evaluation."
            )

    def _take_up(self, first: bytes, session: bytes) -> None:
        """Bring along what the second of two rounds needs of the first: rows and approval."""
        keep_approval(self._site, first, session)
        note = self.recall(first)
        if note is not None:
            self.remember(session, note)

    def _reserved(
        self,
        invitation: Invitation,
        plan: EvaluationPlan,
        approver: bytes | None,
        data: Fingerprint | None,
    ) -> bytes:
        """The reply to an invitation that is accepted, once its cost is set aside."""
        request = invitation.data
        with self._alone():
            self._end_overdue()  # what they reserved may be what is missing
            if self._path(invitation.session).exists():
                return self._join_again(invitation)
            self._site.reserve(
                invitation.session,
                plan,
                roster=Roster(frozenset(invitation.members), invitation.needed),
                certain=invitation.graph.is_complete,
                data=data,
                asked=Asked(invitation.coordinator, invitation.model, approver),
            )
            _require_latest(self._site, invitation.session, Stage.ADVERTISE, 0)
            if invitation.follows is not None:
                self._take_up(invitation.follows, invitation.session)
            duties = SiteDuties(self._site, self._data, self._delivery, self._tell, self._show)
            client = SummationClient.join(invitation, self._site.key, duties, setting=self._setting)
            self._store(client)
            reply = self._recorded(invitation.session, Stage.ADVERTISE, client.receive(request))
            if invitation.follows is not None:
                self._end(invitation.follows)  # its sum was opened, with this site or without
            return reply

    @property
    def _setting(self) -> bytes:
        return b"" if self._delivery is None else self._delivery.setting

    def _join_again(self, invitation: Invitation) -> bytes:
        reply = self.session(invitation.session).receive(invitation.data)
        return self._recorded(invitation.session, Stage.ADVERTISE, reply)

    def _recorded(self, session: bytes, stage: Stage, reply: bytes) -> bytes:
        """A reply, once the ledger says that it left."""
        self._site.ledger.record_sent(session, Departure.of(STEPS[stage], reply))
        return reply

    def _approver(self, invitation: Invitation) -> bytes | None:
        """Who approved of an evaluation, where this site wants that."""
        if not self._site.approvers:
            return None
        if self._delivery is not None:
            refuse_unread(self._site)
        # Of two rounds the first is approved of.
        evaluation = invitation.follows or invitation.session
        return require_approval(self._site, evaluation, invitation.plan)

    def _read(self, plan: EvaluationPlan) -> tuple[Fingerprint | None, Counted | None]:
        """The rows of an exact sum, where no model is needed to have them.

        Whether they changed is judged. What they would count as is only shown: a refusal here
        would cost the asker nothing.
        """
        if self._delivery is not None:
            return None, None
        if self._data is None:
            raise ExchangeError("the plan is for an exact sum: name the data when joining.")
        return fingerprint_rows(self._site, plan, self._data())

    def _store(self, client: SummationClient) -> None:
        path = self._path(client.invitation.session)
        try:
            durable.replace(path, client.to_bytes())
        except OSError as error:
            raise SiteError(f"cannot store the state of a session: {error.strerror}.") from None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes of this site from answering meanwhile."""
        sessions = self._site.folder / "sessions"
        with ExitStack() as stack:
            try:
                sessions.mkdir(mode=0o700, exist_ok=True)
                stack.enter_context(durable.locked(sessions / "lock"))
            except OSError as error:
                raise SiteError(f"cannot use {sessions}: {error.strerror}.") from None
            yield  # outside: what fails meanwhile, such as reading data, is not the folder's fault

    def _path(self, session: bytes, kind: str = "client") -> Path:
        return self._site.folder / "sessions" / f"{session.hex()[:32]}.{kind}"


def fingerprint_rows(site: Site, plan: EvaluationPlan, data: Data) -> tuple[Fingerprint, Counted]:
    """The fingerprint of rows, and what they would count as under a plan."""
    taken, histogram = Fingerprinter(site.fingerprint_key), plan.histogram()
    with naming(data):
        rows = taken.watch(read_batches(data))
        oddities = histogram.update_leniently(rows)
    return taken.fingerprint(), summarise(plan.task, histogram.counts, oddities)


def _require_latest(site: Site, session: bytes, asked: int, answered: int) -> None:
    """Refuse to go on from a state that is older than what left.

    It would hold other keys than others were told of, and the site would seem to lie.
    """
    if answered < asked <= Stage.OPEN and site.ledger.has_left(session, STEPS[Stage(asked)]):
        raise LedgerError(
            "this site's state of that evaluation is older than what it sent: it sent something "
            "else at this step. A new attempt needs a new invitation."
        )


def _require_unsent(site: Site, session: bytes) -> None:
    """Refuse to go on from an old copy of a session: it would use its masks again."""
    status = site.ledger.status(session)
    if status not in ("reserved", "committed") or site.ledger.is_sent(session):
        raise ExchangeError(
            "this site's numbers already left in that evaluation, or its budget was given "
            "back. A new attempt needs a new invitation."
        )
