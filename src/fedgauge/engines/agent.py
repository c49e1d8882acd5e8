"""The agent of a site: it finds invitations in a folder, and answers them as the site file says.

It only decides which step is due. What a step may do is judged where the step is, and what must not
be lost is in the folder, the ledger and the site's `sessions`: an agent can be killed at any time.
"""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from traceback import extract_tb
from typing import Final, Literal, NamedTuple

import msgspec

from fedgauge import storage
from fedgauge.engines.exchange import INVITATION, Exchange, join, submit, take_part
from fedgauge.engines.folder import Folder, open_folder
from fedgauge.engines.participant import STEPS, Participant, judge_origin
from fedgauge.engines.review import review
from fedgauge.errors import FedgaugeError, PlanRefused, SiteError
from fedgauge.secagg import Invitation, Stage
from fedgauge.site import Site
from fedgauge.site.rows import NamedRows, Rows
from fedgauge.site.site import days_seen, seen_path

Kind = Literal["joined", "answered", "waiting", "refused", "warning", "ended", "failed"]

_MOST_LOOKS: Final = 50  # in one step, at folders whose turn it is; what is under way comes first
_MOST_SEEN: Final = 1000  # invitations whose first day is remembered
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
_DAY: Final = timedelta(days=1)
_SOON: Final = timedelta(seconds=10)  # until another look where something was in the way
# Doubled each time, until it is this long. A site file that was changed ends all pauses.
_LONGEST: Final[dict[Kind, timedelta]] = {
    "refused": timedelta(hours=1),
    "failed": timedelta(minutes=5),
    "waiting": timedelta(minutes=1),
}
_TOLERATED: Final = timedelta(minutes=10)  # by which good clocks are set back


class Event(NamedTuple):
    """What the agent did, or why it did not, for the operator of its site alone."""

    time: datetime
    place: str  # the folder's name
    evaluation: str  # how its id begins
    kind: Kind
    told: str


@dataclass
class _Look:
    """When to look at a folder again, and what was told of it last."""

    after: datetime = _NEVER
    pause: timedelta = _SOON
    mine: bool = False  # this site takes part in what is under way there, and nowhere further
    evaluation: str = ""
    stage: int = 0  # the last that the coordinator asked for there, by its signature
    told: frozenset[str] = frozenset()

    def put_off(self, now: datetime, kind: Kind) -> None:
        """Look again later, and later each time."""
        self.after = now + self.pause
        self.pause = min(2 * self.pause, _LONGEST[kind])


class Agent:
    """A site that takes part by itself in what comes to a folder.

    Parameters
    ----------
    folder
        The folder, or its address. It holds an invitation, or folders that hold one each.
    site_file
        The site's file. It is read again at every step: a change of it needs no restart.
    kinds
        What an operator may have named who joined by hand, as for
        :func:`fedgauge.engines.exchange.submit`.

    Notes
    -----
    What goes wrong in one evaluation is told, tried again later, and does not concern the others.
    But huge files in the shared folder slow all of them.

    The rows are those of the last period that was over on the day on which the invitation was first
    seen, however late it is joined.
    """

    def __init__(
        self, folder: str | Path, site_file: Path, *, kinds: Sequence[type[Rows]] = (NamedRows,)
    ) -> None:
        self._folder = open_folder(folder)
        self._site_file = site_file
        self._kinds = kinds
        self._looks: dict[str, _Look] = {}
        self._site: Site | None = None
        self._trouble = ""

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep a second agent of the same site from running."""
        sessions = Site.from_toml(self._site_file).folder / "sessions"
        try:
            sessions.mkdir(mode=0o700, exist_ok=True)
            with storage.locked(sessions / "agent.lock", timeout=0):
                yield
        except OSError as error:
            raise SiteError(f"cannot use {sessions}: {error.strerror}.") from None

    def step(self, now: datetime) -> list[Event]:
        """Do whatever can be done now, and say what is new."""
        try:
            site = Site.from_toml(self._site_file)
            due = self._due(site, now)
        except FedgaugeError as error:
            before, self._trouble = self._trouble, str(error)
            return [] if before == self._trouble else [Event(now, "", "", "failed", str(error))]
        self._trouble = ""
        return [event for place in due for event in self._look_at(place, site, now)]

    def _due(self, site: Site, now: datetime) -> list[str]:
        """The folders to look at: those in which this site takes part, and some of the others."""
        places = self._folder.folders()
        if self._folder.holds(INVITATION):
            places.append("")
        self._looks = {place: self._looks.get(place, _Look()) for place in places}
        if self._site is None or site.written != self._site.written:
            for look in self._looks.values():
                look.after, look.pause = _NEVER, _SOON
        self._site = site
        due = [place for place in places if self._looks[place].after <= now]
        due.sort(key=lambda place: self._looks[place].after)
        mine = [place for place in due if self._looks[place].mine]
        others = (place for place in due if not self._looks[place].mine)
        invited = (place for place in others if self._is_invited(place, now))
        return [*mine, *islice(invited, _MOST_LOOKS)]

    def _is_invited(self, place: str, now: datetime) -> bool:
        """Whether there is an invitation, or what a look will tell; else it is put off."""
        with suppress(FedgaugeError):
            if not self._at(place).holds(INVITATION):
                self._looks[place].put_off(now, "refused")
                return False
        return True

    def _at(self, place: str) -> Folder:
        return self._folder.folder(place) if place else self._folder

    def _look_at(self, place: str, site: Site, now: datetime) -> Iterator[Event]:
        """Do what is due in one folder, and say what was not told before."""
        look = self._looks[place]
        visit = _Visit(self._at(place), site, now, self._kinds, was_mine=look.mine)
        said: list[tuple[Kind, str]] = []
        try:
            said.extend(visit.steps())
        except FedgaugeError as error:
            said.append(("failed" if visit.mine else "refused", str(error)))
        except Exception as error:  # a fault in one evaluation must not stop the others
            said.append(("failed", _fault(error)))
        said = [*(("warning", told) for told in visit.warnings), *said]
        look.evaluation = visit.evaluation or look.evaluation
        look.stage = visit.stage or look.stage
        look.mine = visit.mine and not visit.over and self._is_furthest(look)
        if visit.over:
            look.after = now + _DAY
        elif said and said[-1][0] in _LONGEST:
            look.put_off(now, said[-1][0])
        elif look.mine:
            look.after, look.pause = now, _SOON
        else:
            look.put_off(now, "waiting" if visit.mine else "refused")
        before, look.told = look.told, frozenset(told for _, told in said)
        for kind, told in said:
            if told not in before:
                yield Event(now, place, visit.evaluation, kind, told)

    def _is_furthest(self, look: _Look) -> bool:
        """Whether an evaluation is furthest there: copies of its files come to their turn only."""
        for other in self._looks.values():
            if other is not look and other.mine and other.evaluation == look.evaluation:
                if other.stage >= look.stage:
                    return False
                other.mine = False
        return True


class _Visit:
    """One look at one folder; `mine` and `over` say afterwards how its evaluation stands."""

    def __init__(
        self,
        folder: Folder,
        site: Site,
        now: datetime,
        kinds: Sequence[type[Rows]],
        *,
        was_mine: bool,
    ) -> None:
        self._exchange = Exchange(folder, site)
        self._folder = folder
        self._where = shlex.quote(str(folder))
        self._site = site
        self._now = now
        self._kinds = kinds
        self._told: list[str] = []
        self.mine = was_mine
        self.over = False
        self.evaluation = ""
        self.stage = 0

    def steps(self) -> Iterator[tuple[Kind, str]]:
        """Do what is due."""
        invitation = self._exchange.invitation()
        first = invitation.follows or invitation.session
        self.evaluation = first.hex()[:8]
        judge_origin(self._site, invitation)  # a stranger's is not read any further
        known = self._site.ledger.sessions()
        spend = known.get(invitation.session) or known.get(first)
        was_mine, self.mine = self.mine, spend is not None and spend.status != "released"
        progress = self._exchange.progress()
        self.stage = progress.stage + len(Stage) * (invitation.follows is not None)
        asked = self._site.name in progress.missing
        reveals = asked and progress.stage == Stage.OPEN  # late, and yet it deletes its keys
        if self._exchange.has_ended(invitation) or (progress.finished and not reveals):
            self.over = True
            if self.mine:
                Participant(self._site).abandon(*{invitation.session, first})
            if was_mine and progress.finished:
                yield "ended", f"finished: the result is {self._exchange.result_path}"
            elif was_mine:
                yield "ended", "the coordinator gave up this attempt. Nothing more leaves in it."
        elif asked and progress.stage == Stage.ADVERTISE and not self.mine:
            yield from self._join(invitation)
        elif asked:
            yield from self._answer(progress.stage)

    @property
    def warnings(self) -> list[str]:
        """What the operator should see to, however the visit ended."""
        return [*self._told, *self._exchange.in_the_way]

    def _join(self, invitation: Invitation) -> Iterator[tuple[Kind, str]]:
        """Join an evaluation that the site file, the approvers and the rows allow."""
        self._require_clock()
        self._remember_day(invitation.session)
        self._require_patience(invitation)
        site = self._site.in_session(invitation.session)
        seen = review(site, invitation)
        if seen.refusal is not None:
            yield "refused", seen.refusal
            return
        if site.approvers and seen.approver is None:
            why = seen.unapproved or "an approver signs first"
            yield "waiting", f"{why}. They run `fedgauge exchange review {self._where}`"
            return
        if site.written.agent.answer == "ask":
            yield "waiting", f"join it with `fedgauge exchange join {self._where}`"
            return
        join(self._exchange, site, kinds=self._kinds, tell=self._told.append)
        self.mine = True
        yield (
            "joined",
            f"plan {invitation.plan_digest[:8]}, asked for by {seen.coordinator}, with "
            f"{len(seen.sites)} sites, on {site.dataset}",
        )

    def _answer(self, stage: Stage) -> Iterator[tuple[Kind, str]]:
        """Answer the request of a round, also one that was answered and whose reply is gone."""
        match stage:
            case Stage.ADVERTISE:
                join(self._exchange, self._site, kinds=self._kinds)
            case Stage.MASK:
                submit(self._exchange, self._site, kinds=self._kinds, tell=self._told.append)
            case _:
                take_part(self._exchange, self._site, stage)
        yield "answered", f"{STEPS[stage]}: round {stage:d} of {len(Stage)}"

    def _require_clock(self) -> None:
        """Refuse to join by a clock that was set back: days and limits would not hold."""
        for entry in self._site.ledger.entries()[-1:]:
            if self._now < entry.time - _TOLERATED:
                raise SiteError(
                    f"the clock of this machine is behind the ledger, whose last entry is of "
                    f"{entry.time:%Y-%m-%d %H:%M} UTC. Set the clock."
                )

    def _require_patience(self, invitation: Invitation) -> None:
        """Refuse more invitations of a coordinator than a day may have."""
        of_today = [
            spend
            for spend in self._site.ledger.sessions().values()
            if spend.asked.coordinator == invitation.coordinator and spend.first is None
            if self._now - spend.since < _DAY
        ]
        most = self._site.written.agent.daily
        if len(of_today) >= most:
            raise PlanRefused(
                f"this site joined {len(of_today):,} evaluations of this coordinator within a day, "
                f"and [agent] in its file allows {most:,} (daily)."
            )

    def _remember_day(self, session: bytes) -> None:
        """Remember the day on which this invitation was first seen."""
        path, seen = seen_path(self._site), days_seen(self._site)
        if session.hex() not in seen:
            seen = dict([*seen.items(), (session.hex(), self._now.date())][-_MOST_SEEN:])
            path.parent.mkdir(mode=0o700, exist_ok=True)
            storage.replace(path, msgspec.json.encode(seen))


def _fault(error: Exception) -> str:
    """An error that no step expects, without its own words, which can quote a row."""
    if isinstance(error, OSError):
        return f"the system says: {error.strerror}."
    place = extract_tb(error.__traceback__)[-1]
    return (
        f"this is a fault in fedgauge: {type(error).__name__} in {Path(place.filename).name}, line "
        f"{place.lineno}. Please report this line."
    )
