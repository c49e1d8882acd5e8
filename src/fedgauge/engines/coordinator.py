"""The coordinator of an exchange: starts it, advances it from round to round, gets the result.

By steps that a person asks for, or by itself (:class:`EvaluationSeries`).
"""

import hashlib
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from fedgauge import storage
from fedgauge.engines.exchange import INVITATION, Exchange, Progress, listed, place_of
from fedgauge.engines.folder import is_remote, open_folder
from fedgauge.engines.network import KnownTotals, conclude, follow
from fedgauge.engines.participant import STEPS
from fedgauge.errors import ExchangeError, FedgaugeError, PlanError, ProtocolError, SiteError
from fedgauge.estimation.distribution import Aligned
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.two_rounds import require_whole
from fedgauge.protocol import COORDINATOR
from fedgauge.results.evaluation import Evaluation
from fedgauge.secagg import Invitation, Stage, Sum, SummationServer
from fedgauge.site import Site
from fedgauge.storage import MALFORMED, MOST_STATE, read_bounded

_MOST_NOTE: Final = 10_000  # bytes
_DIGITS: Final = 32  # of an id, in the name of its state
FindTotals = Callable[[Site, EvaluationPlan], KnownTotals | None]


def _no_totals(site: Site, plan: EvaluationPlan) -> None:
    del site
    if plan.task.of_labels:
        raise PlanError(
            "the plan is for labels apart from scores, and it is not known how many examples each "
            "party has in each bin. Start it with `fedgauge exchange start`, or pass totals=."
        )


def _require_parties(totals: KnownTotals, members: Collection[bytes], site: Site) -> None:
    strangers = [member for member in members if member not in totals.parties]
    if strangers:
        raise ExchangeError(
            f"{', '.join(map(site.called, strangers))} sent no roster, so the plan has no bins for "
            "their labels. Invite the others with --invite, or assign again with all rosters."
        )


def invited(
    site: Site,
    plan: EvaluationPlan,
    members: Collection[bytes],
    *,
    totals: FindTotals = _no_totals,
) -> SummationServer:
    """A new attempt at a plan, with these members; nobody has been told of it."""
    plan.check_time()
    require_whole(plan)
    known = totals(site, plan)
    if known is not None:
        _require_parties(known, members, site)
    return SummationServer.invite(plan, members, site.key, names=site.peers)


class StillWaiting(ExchangeError):
    """Sites have not answered yet; `answered` of them have, and `needed` would do."""

    def __init__(self, told: str, *, answered: int, needed: int) -> None:
        super().__init__(told)
        self.answered = answered
        self.needed = needed


class Coordinator:
    """Who starts an exchange, advances it from round to round, and gets the result.

    `totals` finds what the site keeps of a plan for labels apart from scores, such as
    :func:`fedgauge.vertical.files.totals_for`. Without it such plans are refused.
    """

    def __init__(self, exchange: Exchange, site: Site, *, totals: FindTotals = _no_totals) -> None:
        self._exchange = exchange
        self._site = site
        self._totals = totals

    def start(self, plan: EvaluationPlan, members: list[bytes]) -> SummationServer:
        """Invite the members with these public keys."""
        server = invited(self._site, plan, members, totals=self._totals)
        self.begin(server)
        return server

    def begin(self, server: SummationServer) -> None:
        """Put the invitation to an attempt into the folder."""
        self._store(server)
        try:
            self._exchange.write_first(server.invitation)
        except FedgaugeError:
            self._path(server.invitation).unlink()
            raise

    def advance(
        self, *, without_missing: bool = False, evaluation: str | None = None
    ) -> Progress | Evaluation:
        """Begin the next round, or compute and save the result after the last one.

        Where the plan searches, the second sum begins after the last round of the first. An
        invitation that was lost is written again. `evaluation`, how its id begins, says which one,
        where needed.
        """
        self._restore(evaluation)
        self._load()  # says who may advance, before anything is locked
        with storage.locked(self._sessions / "coordinator.lock"):
            return self._advance(without_missing=without_missing)

    def _restore(self, evaluation: str | None) -> None:
        """Write an invitation again that is gone, damaged or replaced, from what is stored here."""
        try:
            found = self._exchange.invitation()
        except FedgaugeError:
            lost = self._lost(evaluation) if self._exchange.has_folder or evaluation else None
            if lost is None:
                raise
        else:
            here = self._path(found)
            if here.exists() and here.stem.startswith((evaluation or "").lower()[:_DIGITS]):
                return
            # Another's, or an old one. Other files say whether this is the folder of one under way.
            lost = self._lost(evaluation) if self._exchange.sessions() or evaluation else None
        if lost is not None:
            invitation = self._read_state(lost).invitation
            self._exchange.write_request(invitation, Stage.ADVERTISE, COORDINATOR, invitation.data)

    def _lost(self, evaluation: str | None) -> Path | None:
        """The state of the evaluation whose files are in the folder; None where there is none."""
        pending = sorted(self._sessions.glob("*.server"))
        here = self._exchange.sessions()
        if evaluation is not None:
            begin = evaluation.lower()[:_DIGITS]
            pending = [path for path in pending if path.stem.startswith(begin)]
        elif here:
            pending = [path for path in map(self._named, sorted(here)) if path in pending]
        if len(pending) > 1:
            raise ExchangeError(
                f"there is no {INVITATION} that can be read, and this site has started several "
                f"evaluations: {', '.join(path.stem[:8] for path in pending)}. Say which with "
                "--evaluation."
            )
        return pending[0] if pending else None

    def _advance(self, *, without_missing: bool) -> Progress | Evaluation:
        server = self._load()
        self._write_requests(server)  # again, where a crash or somebody took one away
        invitation = server.invitation
        replies, aside = self._exchange.replies(invitation, server.stage, server.check)
        missing = [member for member in server.requests if member not in replies]
        if missing and not without_missing:
            raise StillWaiting(
                self._waiting(server, missing, aside),
                answered=len(server.requests) - len(missing),
                needed=server.answers_needed,
            )
        try:
            outcome = server.step(replies)
        finally:
            self._exchange.write_evidence(invitation, server.evidence)
        if isinstance(outcome, Sum):
            if not invitation.plan.is_search:
                totals = self._totals(self._site, invitation.plan)
                key = self._site.key
                result = conclude(server, outcome, key=key, estimator=Aligned(), totals=totals)
                self._exchange.write_result(result.record.to_json())
                self._path(invitation).unlink()
                return result
            server = follow(server, outcome)
        self._store(server)
        self._write_requests(server)
        return self._exchange.progress()

    def _waiting(self, server: SummationServer, missing: list[int], aside: dict[str, str]) -> str:
        names = ", ".join(map(server.name, missing))
        ignored = f"Set aside: {listed(aside)}. " if aside else ""
        told = (
            f"{place_of(server.invitation.plan, server.stage)} waits for {names} to "
            f"{STEPS[server.stage]}. "
            f"{ignored}`fedgauge exchange advance` again then"
        )
        if len(server.requests) - len(missing) < server.answers_needed:
            paid = f" {server.paid_in_words}" if server.paid_in_words else ""
            return f"{told}: {server.answers_needed} of {len(server.requests)} are needed.{paid}"
        return (
            f"{told}, or go on without them: --without-missing ({server.needed} must stay to the "
            "end)."
        )

    def members_without(self, names: Collection[str]) -> list[bytes]:
        """Whom to invite to another attempt: the members but these, or but those at fault."""
        invitation = self._exchange.invitation()
        if invitation.coordinator != self._site.key.public:
            raise ExchangeError(
                f"site {self._site.name!r} did not start this exchange. Its coordinator does that, "
                "with --site naming the site file it was started with."
            )
        called = {self._exchange.name(invitation, m): m for m in range(len(invitation.members))}
        unknown = [name for name in names if name not in called]
        if unknown:
            raise ExchangeError(
                f"{', '.join(unknown)} was not invited to this exchange (--without). It has "
                f"{', '.join(sorted(called))}."
            )
        out = {called[name] for name in names}
        if not names:
            faults = self._exchange.faults(invitation)
            out = {fault.member for fault in faults if fault.proved}
        if not out:
            raise ExchangeError(
                "there is no evidence that anybody broke the rules. Name the sites to leave out: "
                "--without NAME."
            )
        return [key for member, key in enumerate(invitation.members) if member not in out]

    @property
    def is_under_way(self) -> bool:
        """Whether this site started the exchange, and has neither finished nor abandoned it."""
        return self._path(self._exchange.invitation()).exists()

    def abandon(self) -> None:
        """Give up the exchange, and say so in its folder: its sites need not keep budget for it."""
        invitation = self._exchange.invitation()
        if self._path(invitation).exists():
            self._exchange.write_end(invitation)
            self._path(invitation).unlink()

    def _load(self) -> SummationServer:
        invitation = self._exchange.invitation()
        try:
            return self._read_state(self._path(invitation))
        except FileNotFoundError:
            if self._exchange.progress().finished:
                raise ExchangeError(
                    f"the evaluation is finished: its result is {self._exchange.result_path}."
                ) from None
            raise ExchangeError(
                f"site {self._site.name!r} did not start this exchange, or has abandoned it. Its "
                "coordinator advances it, with --site naming the site file it was started with."
            ) from None

    def _read_state(self, path: Path) -> SummationServer:
        try:
            state = read_bounded(path, MOST_STATE)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise SiteError(f"cannot read the state of an exchange: {error.strerror}.") from None
        return SummationServer.from_bytes(state, self._site.key, names=self._site.peers)

    def _store(self, server: SummationServer) -> None:
        path = self._path(server.invitation)
        try:
            self._sessions.mkdir(mode=0o700, exist_ok=True)
            storage.replace(path, server.to_bytes())
        except OSError as error:
            raise SiteError(f"cannot store the state of an exchange: {error.strerror}.") from None

    def _write_requests(self, server: SummationServer) -> None:
        invitation, stage = server.invitation, server.stage
        if stage == Stage.ADVERTISE:
            self._exchange.write_request(invitation, stage, COORDINATOR, invitation.data)
            return
        for member, request in server.requests.items():
            self._exchange.write_request(invitation, stage, member, request)

    @property
    def _sessions(self) -> Path:
        return self._site.folder / "sessions"

    def _path(self, invitation: Invitation) -> Path:
        """Where an evaluation is stored; a second round takes the first one's place, once."""
        return self._named(invitation.follows or invitation.session)

    def _named(self, evaluation: bytes) -> Path:
        return self._sessions / f"{evaluation.hex()[:_DIGITS]}.server"


class _RunNote(msgspec.Struct, frozen=True):
    """Which attempt of a run is under way, and since when its present round is."""

    evaluation: str
    place: str
    round: tuple[str, int]
    since: datetime


class Waiting(NamedTuple):
    """A run that goes on once sites have answered; `why` says for what, in words.

    `overdue` says that the round took longer than the deadline, and cannot go on without them.
    """

    place: str  # the name of its folder
    exchange: Exchange
    progress: Progress
    why: str
    overdue: bool = False


class Finished(NamedTuple):
    """A run that came to its result, which its folder has, too."""

    place: str
    exchange: Exchange
    result: Evaluation


class EvaluationSeries:
    """One evaluation of a plan after another, each in a dated folder of its own within a folder.

    Where one is under way it is taken up: its state is in the coordinator's `sessions`.

    Parameters
    ----------
    folder
        The folder of all evaluations, or its address.
    site, plan, members
        The coordinator, what is measured, and the public keys of who is invited.
    totals
        As for :class:`Coordinator`.
    deadline
        How long a round waits for all. After it, the run goes on without who is missing, where the
        plan allows it; None: it waits.
    min_sites
        The fewest answers with which it goes on then; the plan may need more.
    restart
        Begin again, without who broke the rules, where that stopped an attempt.
    """

    def __init__(
        self,
        folder: str | Path,
        site: Site,
        plan: EvaluationPlan,
        members: Collection[bytes],
        *,
        totals: FindTotals = _no_totals,
        deadline: timedelta | None = None,
        min_sites: int = 0,
        restart: bool = False,
    ) -> None:
        self._folder = open_folder(folder)
        self._site = site
        self._plan = plan
        self._members = members
        self._totals = totals
        self._deadline = deadline
        self._min_sites = min_sites
        self._restart = restart
        where = str(self._folder)
        if not is_remote(where):
            where = os.path.realpath(where)  # however it is spelled, from wherever
        named = hashlib.sha256(f"{plan.digest} {where}".encode()).hexdigest()[:32]
        self._path = site.folder / "sessions" / f"{named}.run"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep another process from running the same plan in the same folder."""
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            with storage.locked(self._path.with_suffix(".run-lock"), timeout=0):
                yield
        except OSError as error:
            raise SiteError(f"cannot use {self._path.parent}: {error.strerror}.") from None

    def step(self, now: datetime) -> Waiting | Finished:
        """Do what can be done now: start, go on to the next round, or get the result.

        Having got it once, it is got again until :meth:`close`.
        """
        note = self._note() or self._begin(now, self._members)
        exchange = Exchange(self._folder.folder(note.place), self._site)
        state = self._site.folder / "sessions" / f"{note.evaluation}.server"
        if not state.exists():
            if (finished := self._finished(note, exchange)) is not None:
                return finished
            if note.round[1] == Stage.OPEN:
                raise ExchangeError(
                    f"the evaluation in {exchange.result_path} was in its last round, and its "
                    "result is not there: it was abandoned, or the file was taken away. To start "
                    f"a new one, remove {self._path}."
                )
            self.close()  # it was abandoned
            return self.step(now)
        exchange.make()
        coordinator = Coordinator(exchange, self._site, totals=self._totals)
        try:
            outcome = self._advanced(coordinator, note, now)
        except StillWaiting as waiting:
            return Waiting(
                note.place, exchange, exchange.progress(), str(waiting), self._is_over(note, now)
            )
        except ProtocolError:
            faulty = [fault for fault in exchange.faults(exchange.invitation()) if fault.proved]
            if not (self._restart and faulty):
                raise
            members = coordinator.members_without(())
            self._begin(now, members)
            coordinator.abandon()
            return self.step(now)
        if isinstance(outcome, Evaluation):
            return Finished(note.place, exchange, outcome)
        present = (outcome.invitation.session.hex(), int(outcome.stage))
        self._save(msgspec.structs.replace(note, round=present, since=now))
        return Waiting(note.place, exchange, outcome, "")

    def close(self) -> None:
        """Let the next step start a new evaluation: the result of this one was taken."""
        self._path.unlink(missing_ok=True)

    def _advanced(
        self, coordinator: Coordinator, note: _RunNote, now: datetime
    ) -> Progress | Evaluation:
        """The outcome of the next step, without who is missing once the deadline is over."""
        try:
            return coordinator.advance(evaluation=note.evaluation)
        except StillWaiting as waiting:
            if waiting.answered < max(waiting.needed, self._min_sites) or not self._is_over(
                note, now
            ):
                raise
        return coordinator.advance(without_missing=True, evaluation=note.evaluation)

    def _is_over(self, note: _RunNote, now: datetime) -> bool:
        return self._deadline is not None and now - note.since >= self._deadline

    def _begin(self, now: datetime, members: Collection[bytes]) -> _RunNote:
        """Invite the members; what is started is noted first, so that it is not started twice."""
        server = invited(self._site, self._plan, members, totals=self._totals)
        session = server.invitation.session.hex()
        place = f"{now:%Y-%m-%d}-{session[:8]}"
        note = _RunNote(session[:_DIGITS], place, (session, int(Stage.ADVERTISE)), now)
        exchange = Exchange(self._folder.folder(place), self._site)
        self._folder.make()
        self._save(note)
        Coordinator(exchange, self._site, totals=self._totals).begin(server)
        return note

    def _finished(self, note: _RunNote, exchange: Exchange) -> Finished | None:
        """The result that an earlier step put into the folder, and was killed before it said so.

        Others could put in that of another evaluation, invitation and all.
        """
        try:
            invitation = exchange.invitation()
            evaluation = (invitation.follows or invitation.session).hex()
            is_mine = invitation.coordinator == self._site.key.public
            if not (is_mine and evaluation.startswith(note.evaluation)):
                return None
            result = exchange.result(invitation)
        except FedgaugeError:
            return None
        return Finished(note.place, exchange, Evaluation.from_bytes(result))

    def _note(self) -> _RunNote | None:
        try:
            return msgspec.json.decode(read_bounded(self._path, _MOST_NOTE), type=_RunNote)
        except FileNotFoundError:
            return None
        except (OSError, *MALFORMED):
            raise SiteError(
                f"{self._path}, which says what is under way, is damaged. Remove it; `fedgauge "
                "exchange status` shows the evaluations in the folder."
            ) from None

    def _save(self, note: _RunNote) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            storage.replace(self._path, msgspec.json.encode(note))
        except OSError as error:
            raise SiteError(f"cannot write {self._path}: {error.strerror}.") from None
