"""A site that takes part in a real evaluation, whatever carries its messages.

It judges the plan before any data is read, keeps the privacy budget, counts its data once, and
remembers every session so that a crash loses nothing and repeats nothing.
"""

import logging
import os
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgauge.binning.histogram import ScoreHistogram
from fedgauge.data.examples import Data, read_batches
from fedgauge.data.fingerprint import Fingerprint, Fingerprinter
from fedgauge.engines.contribution import contribution, count_leniently, count_rows
from fedgauge.errors import (
    ExchangeError,
    FedgaugeError,
    InputError,
    PlanRefused,
    ProtocolError,
    SiteError,
)
from fedgauge.keys import SigningKey
from fedgauge.plan import EvaluationPlan, expiry
from fedgauge.plan.sizes import peek
from fedgauge.privacy.keystream import Keystream
from fedgauge.protocol import Envelope
from fedgauge.secagg import Invitation, Stage, SummationClient
from fedgauge.secagg.crypto import KEY_BYTES
from fedgauge.secagg.words import check_size
from fedgauge.site import Site
from fedgauge.site.approvals import require_approval
from fedgauge.site.books import Spend
from fedgauge.site.entries import Asked, Departure, Roster, Step
from fedgauge.storage import durable

_LOG: Final = logging.getLogger("fedgauge")
_KEY: Final = "key"
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


class Delivery(NamedTuple):
    """What comes along with a request where a model travels, by digests.

    `model` is all that this message brings to score with; `setting` the config of the run.
    """

    model: bytes
    setting: bytes


class Pending(NamedTuple):
    """An evaluation that a site joined and that is not over.

    `readable` says whether the state that it would go on from is intact, or was never stored;
    `overdue` whether it is given up at the next request to this site.
    """

    session: bytes
    spend: Spend
    readable: bool
    overdue: bool


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
        Told, in sentences, what the site's operator should know of the rows.

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
        check: Callable[[EvaluationPlan], None] = lambda _: None,
        delivery: Delivery | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._site = site
        self._data = data
        self._check = check
        self._delivery = delivery
        self._tell = tell

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
            try:
                reply = client.receive(request)
            except _Stopped as stopped:
                self.forget(envelope.session)  # no second attempt
                raise stopped.reason from None
            # Stored first, recorded as sent next, sent last: a crash repeats no noise.
            self._store(client)
            reply = self._recorded(envelope.session, Stage(envelope.stage), reply)
            if client.stage == Stage.MASK:
                for dealer in client.unopened:
                    _say(
                        self._tell,
                        f"{self._site.peers[dealer]} sent this site shares that do not open. This "
                        "site goes on without them, and says so to the coordinator.",
                    )
            return reply

    def session(self, session: bytes) -> SummationClient:
        """The state of a session that this site joined."""
        try:
            state = self._path(session).read_bytes()
        except FileNotFoundError:
            raise ExchangeError(NOT_JOINED) from None
        except OSError as error:
            raise SiteError(f"cannot read the state of a session: {error.strerror}.") from None
        duties = _Duties(self._site, self._data, self._delivery, self._tell)
        client = SummationClient.from_bytes(state, self._site.key, duties)
        duties.invitation, duties.setting = client.invitation, client.setting
        return client

    def pending(self) -> list[Pending]:
        """Evaluations that are neither over nor abandoned, oldest first; nothing is changed."""
        listed = []
        for session, spend in self._site.ledger.sessions().items():
            stored, client = self._path(session).exists(), self._stored(session)
            over = client is not None and client.stage == Stage.OPEN
            if spend.is_open or (stored and not over):
                readable = client is not None or not stored
                overdue = self._is_overdue(session, spend)
                listed.append(Pending(session, spend, readable, overdue))
        return listed

    def abandon(self, session: bytes) -> None:
        """Stop a session and delete its keys; the budget comes back if it was not spent."""
        with self._alone():
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
        if expiry.now() - spend.since > timedelta(days=self._site.policy.session_days):
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
            return self._path(session, "note").read_bytes()
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
        approver = self._approver(invitation)
        self._check(plan)
        data = None if plan.is_noisy else self._fingerprint()
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
            duties = _Duties(self._site, self._data, self._delivery, self._tell)
            setting = b"" if self._delivery is None else self._delivery.setting
            client = SummationClient.join(invitation, self._site.key, duties, setting=setting)
            self._store(client)
            return self._recorded(invitation.session, Stage.ADVERTISE, client.receive(request))

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
            raise PlanRefused(
                "this site wants each evaluation approved (approvers), and nobody can read and "
                "sign while a run waits. Use `fedgauge exchange`, or a site file without "
                "approvers, with a dataset and a ledger of its own."
            )
        return require_approval(self._site, invitation.session, invitation.plan)

    def _fingerprint(self) -> Fingerprint | None:
        """Of the rows of an exact sum, where no model is needed to have them."""
        if self._delivery is not None:
            return None
        if self._data is None:
            raise ExchangeError("the plan is for an exact sum: name the data when joining.")
        taken = Fingerprinter(self._site.fingerprint_key)
        for batch in read_batches(self._data()):
            taken.add(batch)
        return taken.fingerprint()

    def _store(self, client: SummationClient) -> None:
        path = self._path(client.invitation.session)
        try:
            durable.replace(path, client.to_bytes())
            durable.remove_leftovers(path)  # of a process that was killed; they hold keys
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


def judge_origin(site: Site, invitation: Invitation) -> None:
    """Refuse an invitation whose plan is not worth reading: strangers' ones, and huge ones."""
    if invitation.coordinator not in site.coordinators:
        raise PlanRefused(
            "the coordinator is not approved here. If it should be, add its key with "
            "`fedgauge site trust --coordinator`."
        )
    site.judge_bins(peek(invitation.plan_bytes).bins)


def judge_invitation(
    site: Site, invitation: Invitation, *, of_model: bool = False
) -> EvaluationPlan:
    """The plan of an invitation, unless the site file refuses it; reads no data.

    `of_model` says whether the way it came brings models.
    """
    judge_origin(site, invitation)  # before anything is built
    if of_model != bool(invitation.model):  # one that nobody will bring, or that nobody signed
        raise PlanRefused(
            "the invitation and the way it came do not fit: a model that is sent needs its "
            "digest in the invitation, and scores that a site has need none. Use the same "
            "version of fedgauge, and the same engine, everywhere."
        )
    plan = invitation.plan
    site.judge(
        plan,
        members=invitation.members,
        coordinator=invitation.coordinator,
        of_model=of_model,
    )
    return plan


def _require_unsent(site: Site, session: bytes) -> None:
    """Refuse to go on from an old copy of a session: it would add new noise under old masks."""
    status = site.ledger.status(session)
    if status not in ("reserved", "committed") or site.ledger.is_sent(session):
        raise ExchangeError(
            "this site's numbers already left in that evaluation, or its budget was given "
            "back. A new attempt needs a new invitation."
        )


def _say(tell: Callable[[str], None], sentence: str) -> None:
    """Tell the operator; where nobody can be told, that must not show in what is sent."""
    try:
        tell(sentence)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a closed pipe makes a console exit
        _LOG.error("could not tell the operator something: %s", type(error).__name__)


class _Stopped(Exception):
    """Rows that an exact sum cannot count: the session ends here."""

    def __init__(self, reason: FedgaugeError) -> None:
        self.reason = reason


class _Duties:
    """What the protocol asks of a site: its numbers once, and its word on the survivors."""

    def __init__(
        self,
        site: Site,
        data: Callable[[], Data] | None,
        delivery: Delivery | None,
        tell: Callable[[str], None],
    ) -> None:
        self._site = site
        self._data = data
        self._delivery = delivery
        self._tell = tell
        self.invitation: Invitation | None = None
        self.setting = b""

    def contribution(self, sharers: Sequence[bytes]) -> NDArray[np.int64]:
        """Counts and fresh noise.

        The budget is spent before rows are read or a model is called: what they turn out to be
        no longer changes what it costs.
        """
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
        return contribution(plan, histogram, Keystream())

    def _check_delivered(self, invitation: Invitation) -> None:
        """Refuse to score with anything that other members did not agree to."""
        if self._delivery is None:
            return
        if self._delivery.model != invitation.model:
            raise ProtocolError(
                "what came to score with is not what the invitation names, so other members may "
                "have got something else. Nothing was scored."
            )
        # A session outlives a run: the request may come in another one than the invitation did.
        if self._delivery.setting != self.setting:
            raise ProtocolError(
                "the request to score came in another run, or with another config, than the one "
                "this node joined in, so other members may count otherwise. Nothing was scored."
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
        if site.approvers or site.ledger.asked(invitation.session).approver is not None:
            require_approval(site, invitation.session, invitation.plan)

    def _counted(self, plan: EvaluationPlan) -> ScoreHistogram:
        """The rows under noise, whatever they are."""
        assert self._data is not None  # noqa: S101  (checked before)
        histogram, oddities = count_leniently(plan, self._data)
        for sentence in oddities.in_words:
            _say(self._tell, sentence)
        return histogram

    def _counted_exactly(self, plan: EvaluationPlan) -> ScoreHistogram:
        """The rows of an exact sum, if all can be counted and none changed."""
        assert self._data is not None and self.invitation is not None  # noqa: S101, PT018
        taken = Fingerprinter(self._site.fingerprint_key, with_scores=self._delivery is None)
        try:
            data = self._data()
            histogram = count_rows(plan, lambda: taken.watch(read_batches(data)))
            check_size(histogram.counts, plan.summed.largest)
            self._site.ledger.record_data(
                self.invitation.session, taken.fingerprint(), rules=self._site.rules(plan)
            )
        except FedgaugeError as error:
            raise _Stopped(error) from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise _Stopped(
                InputError(f"the rows could not be read or scored: {type(error).__name__}.")
            ) from error
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


class SimulatedParticipant:
    """A node of a simulation: it makes up a key, trusts everybody and keeps no ledger.

    Parameters
    ----------
    memory
        Where keys and states stay between messages.
    data
        The node's data.
    """

    def __init__(self, memory: MutableMapping[str, Any], data: Callable[[], Data]) -> None:
        self._memory = memory
        self._data = data
        if _KEY not in memory:
            memory[_KEY] = os.urandom(KEY_BYTES)
        self._key = SigningKey.from_bytes(memory[_KEY])

    def answer(self, request: bytes) -> bytes:
        """The reply to a request; to an empty one, the key that the node made up."""
        if not request:
            return self._key.public
        duties = _SimulatedDuties(self._data)
        envelope = Envelope.from_bytes(request)
        name = envelope.session.hex()
        if name in self._memory:
            client = SummationClient.from_bytes(self._memory[name], self._key, duties)
        else:
            client = SummationClient.join(Invitation(request), self._key, duties)
        duties.invitation = client.invitation
        reply = client.receive(request)
        self._memory[name] = client.to_bytes()
        return reply


class _SimulatedDuties:
    """Counts and noise of a simulated node."""

    def __init__(self, data: Callable[[], Data]) -> None:
        self._data = data
        self.invitation: Invitation | None = None

    def contribution(self, sharers: Sequence[bytes]) -> NDArray[np.int64]:
        """Counts and fresh noise."""
        del sharers
        assert self.invitation is not None  # noqa: S101  (set before anything is received)
        plan = self.invitation.plan
        return contribution(plan, count_rows(plan, self._data()), Keystream())

    def agree(self, survivors: Sequence[bytes]) -> None:
        """There is nobody to refuse anything."""
