"""A site that takes part in a real evaluation: its sessions, its duties, and simulated nodes.

It judges the plan before any data is read, keeps the privacy budget, counts its data once, and
remembers every session so that a crash loses nothing and repeats nothing.
"""

import logging
import os
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedgauge import storage
from fedgauge.data.examples import Data, RowSource, read_batches
from fedgauge.data.fingerprint import Fingerprint, Fingerprinter
from fedgauge.data.row_checks import RowSummary
from fedgauge.engines.contribution import (
    contribution,
    count_exactly,
    count_leniently,
    count_rows,
    same_contribution,
    summarise,
)
from fedgauge.errors import (
    ExchangeError,
    FedgaugeError,
    InputError,
    LedgerError,
    PlanRefused,
    ProtocolError,
    SiteError,
    located,
)
from fedgauge.histograms.histogram import ScoreHistogram
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.plan import EvaluationPlan, plan
from fedgauge.privacy.keystream import Keystream
from fedgauge.protocol import Envelope
from fedgauge.secagg import Invitation, Stage, SummationClient
from fedgauge.secagg.masking import KEY_BYTES
from fedgauge.site import Site
from fedgauge.site.ledger import Spend
from fedgauge.site.ledger_entries import FIRST, Asked, Departure, Step, SumRoster
from fedgauge.site.site import keep_approval
from fedgauge.site.standing import Approved, Invited, approval_of
from fedgauge.storage import MOST_STATE, read_bounded

_LOG: Final = logging.getLogger("fedgauge")
T = TypeVar("T")


class Delivery(NamedTuple):
    """What comes along with a request where a model travels, by digests.

    `model` is all that this message brings to score with, the same for all members: bins, which
    differ, are bound by the plan. `setting` is the config of the run.
    """

    model: bytes
    setting: bytes


def judge_origin(site: Site, invitation: Invitation) -> None:
    """Refuse strangers' invitations, and plans with more bins than the site allows."""
    mine = site.key.public
    if invitation.coordinator == mine and mine not in invitation.members:
        raise PlanRefused(
            f"site {site.name!r} started this evaluation and does not take part in it. Name the "
            "site file of one that was invited, with --site."
        )
    judge_coordinator(site, invitation.coordinator)
    invitation.read_plan(site.policy.max_bins)


def judge_coordinator(site: Site, coordinator: bytes) -> None:
    """Refuse whoever may not ask this site for anything."""
    if coordinator not in site.coordinators:
        raise PlanRefused(
            "the coordinator is not approved here. If it should be, add its key with "
            "`fedgauge site trust --coordinator`."
        )


def judge_invitation(
    site: Site, invitation: Invitation, *, of_model: bool = False
) -> EvaluationPlan:
    """The plan of an invitation, with models or without, unless the site file refuses it."""
    judge_origin(site, invitation)  # before anything is built
    if of_model != bool(invitation.model):  # one that nobody will bring, or that nobody signed
        raise PlanRefused(
            "the invitation does not fit the way it came: a model that is sent needs its digest "
            "in the invitation, and scores that a site already has need none. Use the same "
            "version of fedgauge, and the same engine, everywhere."
        )
    plan = invitation.plan
    site.judge(
        plan, members=invitation.members, coordinator=invitation.coordinator, of_model=of_model
    )
    return plan


def invited(invitation: Invitation, session: bytes | None = None) -> Invited:
    """What approvals are compared with; of two rounds `session` may be the first."""
    return Invited(session or invitation.session, invitation.coordinator, tuple(invitation.members))


def check_ledger(site: Site, invitation: Invitation, data: Fingerprint | None = None) -> None:
    """Refuse what the ledger would, and write nothing; `data` are the rows of an exact sum."""
    site.reserve(
        invitation.session,
        invitation.plan,
        roster=SumRoster(frozenset(invitation.members), invitation.needed),
        certain=invitation.graph.is_complete,
        data=data,
        asked=Asked(invitation.coordinator, invitation.model),
        check_only=True,
    )


def say(tell: Callable[[T], None], told: T) -> None:
    """Tell the operator; where nobody can be told, that must not show in what is sent."""
    try:
        tell(told)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a closed pipe makes a console exit
        _LOG.error("could not show the operator a message: %s", type(error).__name__)


def naming(data: Data) -> AbstractContextManager[None]:
    """Name the file in what is said of its rows, where they are in one."""
    return located(str(data)) if isinstance(data, RowSource) else nullcontext()


class Stopped(Exception):
    """Rows that an exact sum cannot count: the session ends here."""

    def __init__(self, reason: FedgaugeError) -> None:
        self.reason = reason


class SiteDuties:
    """What the protocol asks of a site: its numbers once, and its word on the survivors."""

    def __init__(
        self,
        site: Site,
        data: Callable[[], Data] | None,
        delivery: Delivery | None,
        tell: Callable[[str], None],
        show: Callable[[RowSummary], None] | None = None,
    ) -> None:
        self._site = site
        self._data = data
        self._delivery = delivery
        self._tell = tell
        self._show = show
        self.invitation: Invitation | None = None
        self.setting = b""
        self.noise_key = b""

    def contribution(self, sharers: Sequence[bytes]) -> NDArray[np.int64]:
        """Counts and noise, the same for the same counts; budget is spent before rows are read."""
        assert self.invitation is not None  # noqa: S101  (set when the session is read)
        invitation, plan, ledger = self.invitation, self.invitation.plan, self._site.ledger
        if self._data is None:
            raise ExchangeError("it is time to submit, and no data was named.")
        self._check_delivered(invitation)
        self._judge_again()
        ledger.check_account(invitation.session, self._site.account(plan))
        ledger.check_sites(invitation.session, sharers, rules=self._site.rules(plan))
        ledger.commit(invitation.session)
        histogram = self._counted(plan) if plan.is_noisy else self._counted_exactly(plan)
        return same_contribution(plan, histogram, self.noise_key)

    def _check_delivered(self, invitation: Invitation) -> None:
        """Refuse to score with anything that other members did not agree to."""
        if self._delivery is None:
            return
        if self._delivery.model != invitation.model:
            raise ProtocolError(
                "the model that arrived is not the one that the invitation names, so other "
                "members may have got another one. Nothing was scored."
            )
        # A session outlives a run: the request may come in another one than the invitation did.
        if self._delivery.setting != self.setting:
            raise ProtocolError(
                "the request to score came in another run, or with another config, than the one "
                "this node joined in, so other members may count differently. Nothing was scored."
            )

    def _judge_again(self) -> None:
        """The site file may have changed since this site joined, or its approval be withdrawn."""
        assert self.invitation is not None  # noqa: S101  (set when the session is read)
        invitation, site = self.invitation, self._site
        site.judge(
            invitation.plan,
            members=invitation.members,
            coordinator=invitation.coordinator,
            of_model=self._delivery is not None,
        )
        # Also where no approver is left: the last one may have been struck off.
        if site.approvers or site.ledger.spend(invitation.session).asked.approver is not None:
            approval_of(site, invitation.plan, invited(invitation))

    def _counted(self, plan: EvaluationPlan) -> ScoreHistogram:
        """The rows under noise, whatever they are."""
        assert self._data is not None  # noqa: S101  (checked before)
        histogram, oddities = count_leniently(plan, self._data)
        self._tell_of(summarise(plan.task, histogram.counts, oddities))
        return histogram

    def _tell_of(self, counted: RowSummary) -> None:
        """Tell the operator what the rows came to: all of it, or what was odd."""
        if self._show is not None:
            say(self._show, counted)
            return
        for sentence in counted.oddities.in_words:
            say(self._tell, sentence)

    def _counted_exactly(self, plan: EvaluationPlan) -> ScoreHistogram:
        """The rows of an exact sum, if all can be counted and none changed."""
        assert self._data is not None and self.invitation is not None  # noqa: S101, PT018
        taken = Fingerprinter(self._site.fingerprint_key, with_scores=self._delivery is None)
        try:
            data = self._data()
            with naming(data):
                histogram, counted = count_exactly(plan, taken.watch(read_batches(data)), data)
            self._site.ledger.record_data(
                self.invitation.session, taken.fingerprint(), rules=self._site.rules(plan)
            )
        except FedgaugeError as error:
            raise Stopped(error) from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise Stopped(
                InputError(f"the rows could not be read or scored: {type(error).__name__}.")
            ) from error
        self._tell_of(counted)
        return histogram

    def agree(self, survivors: Sequence[bytes]) -> None:
        """The differencing guard, recorded before this site's word is given."""
        assert self.invitation is not None  # noqa: S101  (set when the session is read)
        self._judge_again()
        self._site.ledger.record_survivors(
            self.invitation.session,
            survivors,
            rules=self._site.rules(self.invitation.plan),
            certain=self.invitation.graph.is_complete,
        )


STEPS: Final[dict[Stage, Step]] = {
    Stage.ADVERTISE: "join",
    Stage.SHARE: "share",
    Stage.MASK: "submit",
    Stage.AGREE: "confirm",
    Stage.OPEN: "reveal",
}
NOT_JOINED: Final = (
    "this site did not join that evaluation, or has ended it: on request, when its plan expired "
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
    if plan.task.of_labels:
        raise PlanRefused(
            "the plan is for labels apart from scores, and this site is asked for rows of both."
        )


def require_labels(plan: EvaluationPlan) -> None:
    """Refuse a plan for rows that have a label and a score, where labels alone are counted."""
    if not plan.task.of_labels:
        raise PlanRefused(
            "the plan is for rows that have a label and a score, and this site is asked for labels "
            "apart from scores."
        )


def refuse_unread(site: Site) -> None:
    """Refuse, where a site wants each evaluation approved, what nobody can read in time."""
    if site.approvers:
        raise PlanRefused(
            "this site requires an approval of each evaluation (approvers), and nobody can read "
            "and sign while a run waits. Evaluate by files: `fedgauge exchange`."
        )


class Participant:
    """One site's side of any number of sessions.

    Parameters
    ----------
    site
        The site's trust anchor.
    data
        Finds the site's data; called once in a session, after the plan was judged and the budget
        spent. Before an exact sum of scores that the site has, also at join.
    check
        Called at join, before anything is reserved: refuses data that cannot be read under the
        plan, without reading rows.
    delivery
        What the request brings to score with; None where the site's data hold the scores.
    tell
        Takes sentences for the site's operator.
    show
        Takes the summary of the rows, for the operator alone; without it `tell` takes what was odd.

    Notes
    -----
    Errors here are for the site's operator. To the server a site that refuses looks like one that
    fell silent. Under noise refusals come before the budget is spent and depend on no row; from
    then on nothing about rows stops a site. An exact sum is refused at join where rows changed, and
    stops where they cannot be counted, for zeros in it would be bare; that silence is one bit about
    the data.
    """

    def __init__(
        self,
        site: Site,
        data: Callable[[], Data] | None = None,
        *,
        check: Callable[[EvaluationPlan], None] = require_scores,
        delivery: Delivery | None = None,
        tell: Callable[[str], None] = lambda _: None,
        show: Callable[[RowSummary], None] | None = None,
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
        site = self._site.in_session(session)
        duties = SiteDuties(site, self._data, self._delivery, self._tell, self._show)
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
        """Whether a first round is paid for, and this site can still count in the second."""
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
        if abs(plan.now() - spend.since) > timedelta(days=self._site.policy.session_days):
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
            storage.replace(self._path(session, "note"), note)
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
            storage.remove_leftovers(path)
            with suppress(FileNotFoundError):
                path.unlink()
                storage.sync_folder(path.parent)

    def _join(self, request: bytes) -> bytes:
        invitation = Invitation(request)
        if self._path(invitation.session).exists():
            return self._join_again(invitation)
        plan = judge_invitation(self._site, invitation, of_model=self._delivery is not None)
        site = self._site
        if invitation.follows is not None:
            site = site.in_session(invitation.follows)
            self._require_first(site, invitation, invitation.follows)
        approved = self._approved(site, invitation)
        self._check(plan)
        data, counted = (None, None) if plan.is_noisy else self._read(plan)
        reply = self._reserved(site, invitation, plan, approved, data)
        if counted is not None and self._show is not None:  # after all else: it changes nothing
            say(self._show, counted)
        return reply

    def _require_first(self, site: Site, invitation: Invitation, first: bytes) -> None:
        """Refuse a second round of what this site did not join, or gave up; reads no rows."""
        check_ledger(site, invitation)
        if self.session(first).setting != self._setting:
            raise ProtocolError(
                "the second of two rounds came in another run, or with another config, than the "
                "first, so rows may be scored otherwise. Ask for a new evaluation."
            )

    def _take_up(self, first: bytes, session: bytes) -> None:
        keep_approval(self._site, first, session)
        note = self.recall(first)
        if note is not None:
            self.remember(session, note)

    def _reserved(
        self,
        site: Site,
        invitation: Invitation,
        plan: EvaluationPlan,
        approved: Approved,
        data: Fingerprint | None,
    ) -> bytes:
        """The reply to an invitation that is accepted, once its cost is set aside."""
        request = invitation.data
        with self._alone():
            self._end_overdue()  # what they reserved may be what is missing
            if self._path(invitation.session).exists():
                return self._join_again(invitation)
            site.reserve(
                invitation.session,
                plan,
                roster=SumRoster(frozenset(invitation.members), invitation.needed),
                certain=invitation.graph.is_complete,
                data=data,
                asked=Asked(
                    invitation.coordinator,
                    invitation.model,
                    approved.approver,
                    standing=approved.standing,
                ),
            )
            _require_latest(self._site, invitation.session, Stage.ADVERTISE, 0)
            if invitation.follows is not None:
                self._take_up(invitation.follows, invitation.session)
            duties = SiteDuties(site, self._data, self._delivery, self._tell, self._show)
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

    def _approved(self, site: Site, invitation: Invitation) -> Approved:
        if not site.approvers:
            return Approved(None)
        if self._delivery is not None:
            refuse_unread(site)
        # Of two rounds the first is approved of.
        evaluation = invitation.follows or invitation.session
        return approval_of(site, invitation.plan, invited(invitation, evaluation))

    def _read(self, plan: EvaluationPlan) -> tuple[Fingerprint | None, RowSummary | None]:
        """The rows of an exact sum, where no model is needed to have them.

        Changed rows are refused. What they would count as is only shown: a refusal here would cost
        the asker nothing.
        """
        if self._delivery is not None:
            return None, None
        if self._data is None:
            raise ExchangeError("the plan is for an exact sum: name the data when joining.")
        return fingerprint_rows(self._site, plan, self._data())

    def _store(self, client: SummationClient) -> None:
        path = self._path(client.invitation.session)
        try:
            storage.replace(path, client.to_bytes())
        except OSError as error:
            raise SiteError(f"cannot store the state of a session: {error.strerror}.") from None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes of this site from answering meanwhile."""
        sessions = self._site.folder / "sessions"
        with ExitStack() as stack:
            try:
                sessions.mkdir(mode=0o700, exist_ok=True)
                stack.enter_context(storage.locked(sessions / "lock"))
            except OSError as error:
                raise SiteError(f"cannot use {sessions}: {error.strerror}.") from None
            yield  # outside: what fails meanwhile, such as reading data, is not the folder's fault

    def _path(self, session: bytes, kind: str = "client") -> Path:
        return self._site.folder / "sessions" / f"{session.hex()[:32]}.{kind}"


def fingerprint_rows(
    site: Site, plan: EvaluationPlan, data: Data
) -> tuple[Fingerprint, RowSummary]:
    """The fingerprint of rows, and what they would count as under a plan."""
    taken, histogram = Fingerprinter(site.fingerprint_key), plan.histogram()
    with naming(data):
        rows = taken.watch(read_batches(data))
        oddities = histogram.update_leniently(rows)
    return taken.fingerprint(), summarise(plan.task, histogram.counts, oddities)


def _require_latest(site: Site, session: bytes, asked: int, answered: int) -> None:
    """Refuse to go on from a state older than what left: its keys would differ from those sent."""
    ahead = answered < asked <= Stage.OPEN
    if ahead and site.ledger.spend(session).departure(STEPS[Stage(asked)]) is not None:
        raise LedgerError(
            "this site's state of that evaluation is older than what it sent: it sent something "
            "else at this step. A new attempt needs a new invitation."
        )


def _require_unsent(site: Site, session: bytes) -> None:
    """Refuse to go on from an old copy of a session: it would use its masks again."""
    status = site.ledger.status(session)
    if status not in ("reserved", "committed") or site.ledger.spend(session).sent:
        raise ExchangeError(
            "this site's numbers already left in that evaluation, or its budget was given "
            "back. A new attempt needs a new invitation."
        )


_KEY: Final = "key"


class SimulatedParticipant:
    """A node of a simulation: it makes up a key, trusts everybody and keeps no ledger.

    `memory` keeps keys and states between messages; `data` and `check` as for :class:`Participant`.
    """

    def __init__(
        self,
        memory: MutableMapping[str, Any],
        data: Callable[[], Data] | None = None,
        *,
        check: Callable[[EvaluationPlan], None] = require_scores,
    ) -> None:
        self._memory = memory
        self._data = data
        self._check = check
        if _KEY not in memory:
            memory[_KEY] = os.urandom(KEY_BYTES)
        self.key = SigningKey.from_bytes(memory[_KEY])

    def answer(self, request: bytes) -> bytes:
        """The reply to a request; to an empty one, the key that the node made up."""
        if not request:
            return self.key.public
        session = Envelope.from_bytes(request).session
        known = session.hex() in self._memory
        client = self.session(session) if known else self._joined(request)
        reply = client.receive(request)
        self._memory[session.hex()] = client.to_bytes()
        return reply

    def session(self, session: bytes) -> SummationClient:
        """The state of a session that this node joined."""
        if session.hex() not in self._memory:
            raise ExchangeError(NOT_JOINED)
        duties = _SimulatedDuties(self._data)
        client = SummationClient.from_bytes(self._memory[session.hex()], self.key, duties)
        duties.invitation = client.invitation
        return client

    def _joined(self, request: bytes) -> SummationClient:
        invitation = Invitation(request)
        self._check(invitation.plan)
        if invitation.follows is not None:
            self._require_first(invitation, invitation.follows)
        return SummationClient.join(invitation, self.key, _SimulatedDuties(self._data))

    def _require_first(self, invitation: Invitation, first: bytes) -> None:
        """Stay out where a site would: it did not join the first, or was not in that exact sum."""
        joined = self.session(first)
        if not invitation.plan.is_noisy and joined.stage < Stage.AGREE:
            raise PlanRefused(
                "this node did not see the first of two exact sums to its end, and the difference "
                "of the two would show its counts."
            )


class _SimulatedDuties:
    """Counts and noise of a simulated node."""

    def __init__(self, data: Callable[[], Data] | None) -> None:
        self._data = data
        self.invitation: Invitation | None = None

    def contribution(self, sharers: Sequence[bytes]) -> NDArray[np.int64]:
        """Counts and fresh noise."""
        del sharers
        # Set when the session is read; who is asked to count has named data.
        assert self.invitation is not None and self._data is not None  # noqa: S101, PT018
        plan = self.invitation.plan
        return contribution(plan, count_rows(plan, self._data()), Keystream())

    def agree(self, survivors: Sequence[bytes]) -> None:
        """There is nobody to refuse anything."""
