"""An evaluation by files: the folder, and what a site does at each step.

The coordinator writes requests into a folder, each site writes its reply, and the coordinator
advances to the next round. Files are signed, so whoever carries them can lose them but not change
them; everything private stays in the folder of the site file.

The second of two rounds has a folder within that of the first, with an invitation of its own. As
soon as it is there, every step is one of the second round.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from fedgauge.data.examples import Data
from fedgauge.data.row_checks import RowSummary
from fedgauge.engines.findings import allow, require_fit
from fedgauge.engines.folder import Folder, InTheWay, LocalFolder, beside, open_folder
from fedgauge.engines.participant import NOT_JOINED, STEPS, Participant, judge_origin
from fedgauge.errors import ExchangeError, FedgaugeError, PlanRefused
from fedgauge.escaping import in_one_line
from fedgauge.plan import EvaluationPlan
from fedgauge.protocol import COORDINATOR, EVERYONE, MOST_BYTES, Envelope
from fedgauge.results import signature
from fedgauge.results.record import Record
from fedgauge.secagg import Invitation, Stage
from fedgauge.secagg.evidence import MOST_EACH, Fault, File
from fedgauge.site import Site
from fedgauge.site.rows import NamedRows, Rows, read_note

INVITATION: Final = "invitation.fgx"
EVIDENCE: Final = "evidence.fgx"
SECOND: Final = "second"
RESULT: Final = "result.json"
REPORT: Final = "report.html"
ENDED: Final = "ended.fgx"
_MOST_END: Final = 1000  # bytes
_AFTER_ALL: Final = len(Stage) + 1  # the stage of what is said of a whole session
_MOST_EVIDENCE: Final = 1 << 25  # bytes: a thing or two of each of 200 members
_MOST_OF_ITSELF: Final = 2000  # bytes of one thing in evidence, but for
_MOST_OF_A_MEMBER: Final = 1000  # bytes that it holds of each member: a box, digests
_MOST_RESULT: Final = 1 << 26  # bytes: read at each step, and anybody may have put it there
_MOST_ASIDE: Final = 10  # files set aside that are named
HOLDS_ONE: Final = "{} holds an exchange already. Start in an empty folder."
_AGAIN: Final = "Copy it again, or ask its sender to run the command again."
_NAMED: Final = re.compile(r"-([0-9a-f]{8})$")  # by its evaluation, as `exchange run` does
M = TypeVar("M")
V = TypeVar("V")


@dataclass(frozen=True)
class Progress:
    """How far an exchange is; `paid` is how many sites have sent their numbers."""

    invitation: Invitation
    stage: Stage
    answered: tuple[str, ...]
    missing: tuple[str, ...]
    result: str | None  # the name of its file
    paid: int = 0
    set_aside: dict[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    proved: bool = False

    @property
    def finished(self) -> bool:
        """Whether the result is there, signed and confirmed."""
        return self.result is not None

    @property
    def verb(self) -> str:
        """What the sites do in this round."""
        return STEPS[self.stage]


class Exchange:
    """The folder that an evaluation's files pass through, as `site` sees it.

    It is shared by all, or there is one at each party and files are carried by hand. Names of
    others are those in the site file.
    """

    def __init__(self, folder: str | Path | Folder, site: Site) -> None:
        self._folder = open_folder(folder)
        self._site = site
        self.in_the_way: list[str] = []  # what others put where files were to go, in words
        self._result = RESULT

    @property
    def result_path(self) -> str:
        """Where the result is, once it was written or read here; before, where it will be."""
        return self._folder.place(self._result)

    @property
    def has_folder(self) -> bool:
        """Whether the folder is there."""
        return self._folder.missing() is None

    def invitation(self) -> Invitation:
        """What the exchange is about: of two rounds, the one that is under way."""
        folder = self._folder.folder(SECOND)
        if not folder.holds(INVITATION):
            return self._first()
        try:
            first = self._first()
            if knows(self._site, first) and not first.plan.has_two_rounds:
                return first  # anybody may have put a second one there
        except FedgaugeError:
            first = None  # lost or damaged, and not needed any more
        second = self._invited(folder)
        origin = None if first is None else (first.session, first.coordinator)
        if second.follows is None or origin not in (None, (second.follows, second.coordinator)):
            raise ExchangeError(
                f"{folder.place(INVITATION)} is not to the second round of the evaluation in "
                f"{self._folder}. {_AGAIN} Remove it, if the first round is not over."
            )
        return second

    def _first(self) -> Invitation:
        if not self._folder.holds(INVITATION):
            lacking = self._folder.missing()
            if lacking is None:
                lacking = f"there is no {INVITATION} in {self._folder}"
            else:
                lacking += f". Name the one that holds {INVITATION}"
            raise ExchangeError(
                f"{lacking}. Get it from the coordinator, who makes it with `fedgauge "
                "exchange start`, and again with `fedgauge exchange advance`."
            )
        return self._invited(self._folder)

    def _invited(self, folder: Folder) -> Invitation:
        """The invitation in a folder.

        Where others put some beside it, it is by who is known here, and for the evaluation after
        which the folder is named.
        """
        named = _NAMED.search(str(self._folder))

        def fits(invitation: Invitation) -> bool:
            evaluation = (invitation.follows or invitation.session).hex()
            is_it = named is None or evaluation.startswith(named[1])
            return is_it and knows(self._site, invitation)

        kind = "an invitation"
        found = _understood(folder, INVITATION, kind, Invitation, enough=fits)
        return max(found, key=lambda each: (fits(each), knows(self._site, each)))

    def _at(self, invitation: Invitation) -> Folder:
        """The folder that the files of a round pass through."""
        return self._folder if invitation.follows is None else self._folder.folder(SECOND)

    def _ready(self, invitation: Invitation) -> Folder:
        """The same, there to be written to."""
        folder = self._at(invitation)
        folder.make()
        return folder

    def name(self, invitation: Invitation, member: int) -> str:
        """What this site calls a member; its key where it knows none."""
        return self._site.called(invitation.members[member])

    def progress(self) -> Progress:
        """The current round, and who is awaited."""
        invitation = self.invitation()
        unused: dict[Stage, dict[str, str]] = {stage: {} for stage in Stage}
        asked = {stage: set(self._asked(invitation, stage, unused[stage])) for stage in Stage}
        stage = max((stage for stage in Stage if asked[stage]), default=Stage.ADVERTISE)
        replies, unread = self._signed_replies(invitation, stage)
        aside: dict[str, str] = {}  # named first: somebody has to remove them
        finished = self.is_finished(invitation, aside)
        try:
            faults = self.faults(invitation)
        except FedgaugeError as error:
            faults, aside[EVIDENCE] = [], in_one_line(str(error))
        names = {member: self.name(invitation, member) for member in asked[stage]}
        return Progress(
            invitation=invitation,
            stage=stage,
            answered=tuple(sorted(names[m] for m in names if m in replies)),
            missing=tuple(sorted(names[m] for m in names if m not in replies)),
            result=self._result if finished else None,
            paid=max(
                len(replies) if stage == Stage.MASK else len(asked[Stage.AGREE]),
                self._paid_first(invitation),
            ),
            set_aside=_some(aside | unread | unused[stage]),
            faults=tuple(
                fault.in_words(lambda member: self.name(invitation, member)) for fault in faults
            ),
            proved=any(fault.proved for fault in faults),
        )

    def _paid_first(self, invitation: Invitation) -> int:
        """How many sites paid for both rounds in the first, where this is the second."""
        if invitation.follows is None or not knows(self._site, invitation):
            return 0
        found = invitation.plan.found
        return 0 if found is None else found.clients

    def require_open(self, invitation: Invitation) -> None:
        """Refuse a step of an evaluation whose result is there: it would cost and not count."""
        try:
            judge_origin(self._site, invitation)
        except PlanRefused:
            return  # it is refused for that, before its plan is read
        if self.has_ended(invitation):
            raise ExchangeError(
                f"the coordinator gave up the evaluation in {self._folder}, so this site has "
                "nothing left to do, and this cost nothing. "
                f"`{self._abandoning}` gives back what was set aside."
            )
        if self.is_finished(invitation):
            reserved = self._site.ledger.status(invitation.session) == "reserved"
            back = f" `{self._abandoning}` gives back what was set aside."
            raise ExchangeError(
                f"the evaluation in {self._folder} is finished, so this site has nothing left to "
                "do, and this cost nothing. Its result is "
                f"{self.result_path}.{back if reserved else ''}"
            )

    @property
    def _abandoning(self) -> str:
        return f"fedgauge exchange abandon {shlex.quote(str(self._folder))}"

    def is_finished(self, invitation: Invitation, aside: dict[str, str] | None = None) -> bool:
        """Whether the result is there; `aside` gets why what is in its place is none."""
        try:
            self.result(invitation)
        except FedgaugeError as error:
            if aside is not None and self._folder.holds(RESULT):
                aside[RESULT] = in_one_line(str(error))
            return False
        return True

    def faults(self, invitation: Invitation) -> list[Fault]:
        """Who broke the rules, by evidence in the folder, which is judged again here."""
        folder = self._at(invitation)
        if not folder.holds(EVIDENCE):
            return []

        def judged(evidence: File) -> list[Fault]:
            if evidence.invitation != invitation.data:
                raise ExchangeError("it is evidence about another evaluation.")
            return evidence.judged()

        members = len(invitation.members)
        each = _MOST_OF_ITSELF + _MOST_OF_A_MEMBER * members
        most = len(invitation.data) + MOST_EACH * members * each
        versions = _evidence(folder, EVIDENCE, min(most, _MOST_EVIDENCE))
        found = _readable(versions, judged, enough=lambda _: False)
        return [*dict.fromkeys(chain.from_iterable(found))]

    def write_evidence(self, invitation: Invitation, evidence: File) -> None:
        """Put what shows who broke the rules into the folder, unless something is in the way."""
        if evidence.found:
            try:
                self._ready(invitation).write(EVIDENCE, evidence.to_bytes())
            except InTheWay as told:
                self.in_the_way.append(str(told))

    def write_first(self, invitation: Invitation) -> None:
        """Put a new invitation into the folder, unless there is one by then."""
        try:
            self._ready(invitation).write_new(INVITATION, invitation.data)
        except FileExistsError as error:
            raise ExchangeError(HOLDS_ONE.format(self._folder)) from error

    def write_result(self, data: bytes) -> None:
        """Put the result into the folder, for good."""
        self._result = self._folder.write(RESULT, data, for_good=True)

    def result(self, invitation: Invitation) -> bytes:
        """The result in the folder, signed and confirmed: anybody could put in another.

        These bytes were checked. Read again, the file may hold others.
        """

        def checked(version: tuple[str, bytes]) -> tuple[str, bytes]:
            _require_result(version[1], invitation)
            return version

        versions = self._folder.versions(RESULT, _MOST_RESULT)
        ((self._result, data),) = _readable(versions, checked)
        return data

    def write_report(self, page: str) -> str | None:
        """Put a report beside the result, unless something is in the way; where it is."""
        try:
            return self._folder.place(self._folder.write(REPORT, page.encode()))
        except InTheWay as told:
            self.in_the_way.append(str(told))
            return None

    def make(self) -> None:
        """Make the folder, if it is not there, or not any more."""
        self._folder.make()

    def write_end(self, invitation: Invitation) -> None:
        """Say, as its coordinator, that an attempt was given up: sites need not keep its budget."""
        told = Envelope.sealed(
            self._site.key,
            session=invitation.session,
            stage=_AFTER_ALL,
            sender=COORDINATOR,
            recipient=EVERYONE,
            body=b"",
        )
        self._ready(invitation).write(ENDED, told.to_bytes())

    def has_ended(self, invitation: Invitation) -> bool:
        """Whether the coordinator gave up this attempt, by its signature."""

        def check(version: tuple[str, bytes]) -> None:
            Envelope.from_bytes(version[1]).check(
                invitation.coordinator,
                session=invitation.session,
                stage=_AFTER_ALL,
                sender=COORDINATOR,
                recipients={EVERYONE},
            )

        try:
            _readable(self._at(invitation).versions(ENDED, _MOST_END), check)
        except FedgaugeError:
            return False
        return True

    def request_to_me(self, invitation: Invitation, stage: Stage) -> bytes:
        """The request of a round to this site."""
        if stage == Stage.ADVERTISE:
            return invitation.data
        if self._site.key.public not in invitation.members:
            raise PlanRefused(
                f"site {self._site.name!r} is not among those invited to {self._folder}. Name the "
                "site file of one that is, with --site, or ask the coordinator to invite this one."
            )
        me = invitation.members.index(self._site.key.public)
        aside: dict[str, str] = {}
        for data, envelope in self._requests(invitation, stage, aside):
            if envelope.recipient == me:
                return data
        self.require_open(invitation)
        ignored = f" Set aside: {listed(aside)}." if aside else ""
        raise ExchangeError(
            f"there is no request to {STEPS[stage]} for this site in {self._at(invitation)} yet: "
            f"the coordinator writes it with `fedgauge exchange advance`.{ignored}"
        )

    def write_request(self, invitation: Invitation, stage: Stage, member: int, data: bytes) -> None:
        """Put a request into the folder, unless it is there."""
        folder = self._ready(invitation)
        if stage == Stage.ADVERTISE:
            folder.write(INVITATION, data)
        else:
            name = _file_name(stage, member, self.name(invitation, member), "request")
            self._write_signed(folder, name, data)

    def write_reply(self, invitation: Invitation, stage: Stage, data: bytes) -> str:
        """Put this site's reply into the folder; where it went."""
        me = invitation.members.index(self._site.key.public)
        name = _file_name(stage, me, self._site.name, "reply")
        return self._write_signed(self._ready(invitation), name, data)

    def _write_signed(self, folder: Folder, name: str, data: bytes) -> str:
        """Write what is signed, under another name where something is in the way; where it went."""
        try:
            name = folder.write(name, data)
        except InTheWay as told:
            name = folder.write(beside(name, data), data)
            self.in_the_way.append(f"{told} What was to go there is in {folder.place(name)}.")
        return folder.place(name)

    def sessions(self) -> set[bytes]:
        """Evaluations that files in the folder say they belong to; nothing is checked."""
        files = _envelopes(self._folder, "*.fgx", {})
        return {envelope.session for _, _, envelope in files}

    def replies(
        self, invitation: Invitation, stage: Stage, check: Callable[[int, bytes], None]
    ) -> tuple[dict[int, bytes], dict[str, str]]:
        """Replies of a round that pass a check, by member, and files set aside with reasons."""
        replies: dict[int, bytes] = {}
        aside: dict[str, str] = {}
        folder = self._at(invitation)
        for name, data, envelope in _envelopes(folder, f"{stage:d}-*.reply.fgx", aside):
            try:
                check(envelope.sender, data)
            except FedgaugeError as error:
                aside[in_one_line(name)] = str(error)
            else:
                replies.setdefault(envelope.sender, data)
        return replies, aside

    def _signed_replies(
        self, invitation: Invitation, stage: Stage
    ) -> tuple[dict[int, bytes], dict[str, str]]:
        def check(member: int, data: bytes) -> None:
            if not 0 <= member < len(invitation.members):
                raise ExchangeError("it is not from a member.")
            envelope = Envelope.from_bytes(data)
            envelope.check(
                invitation.members[member],
                session=invitation.session,
                stage=stage,
                sender=member,
                recipients={envelope.recipient},
            )

        return self.replies(invitation, stage, check)

    def _asked(self, invitation: Invitation, stage: Stage, aside: dict[str, str]) -> Iterator[int]:
        if stage == Stage.ADVERTISE:
            yield from range(len(invitation.members))
            return
        for _, envelope in self._requests(invitation, stage, aside):
            if 0 <= envelope.recipient < len(invitation.members):
                yield envelope.recipient

    def _requests(
        self, invitation: Invitation, stage: Stage, aside: dict[str, str]
    ) -> Iterator[tuple[bytes, Envelope]]:
        """Requests of a round that the coordinator signed; others are set aside."""
        folder = self._at(invitation)
        for name, data, envelope in _envelopes(folder, f"{stage:d}-*.request.fgx", aside):
            try:
                envelope.check(
                    invitation.coordinator,
                    session=invitation.session,
                    stage=stage,
                    sender=COORDINATOR,
                    recipients={envelope.recipient},
                )
            except FedgaugeError as error:
                aside[in_one_line(name)] = str(error)
            else:
                yield data, envelope


def knows(site: Site, invitation: Invitation) -> bool:
    """Whether a site approves of the coordinator, or is it: a stranger's plan is not read."""
    return invitation.coordinator in {*site.coordinators, site.key.public}


def place_of(plan: EvaluationPlan, stage: Stage) -> str:
    """How far an evaluation is, in words."""
    if not plan.has_two_rounds:
        return f"round {stage:d} of {len(Stage)}"
    which = "first" if plan.is_search else "second"
    return f"step {stage:d} of {len(Stage)} in the {which} of two rounds"


def load_invitation(path: Path) -> Invitation:
    """An invitation in a file; its form and signature are checked, not who signed it."""
    (found,) = _understood(LocalFolder(path.parent), path.name, "an invitation", Invitation)
    return found


def examine(path: Path, site: Site) -> list[str]:
    """What a file of evidence shows, with the names that a site has for members."""
    (evidence,) = _evidence(LocalFolder(path.parent), path.name)
    members = Invitation(evidence.invitation).members
    faults = evidence.judged()
    return [fault.in_words(lambda member: site.called(members[member])) for fault in faults]


def _envelopes(
    folder: Folder, pattern: str, aside: dict[str, str]
) -> Iterator[tuple[str, bytes, Envelope]]:
    """Files in a folder that are envelopes; others are set aside."""
    for name in folder.names(pattern):
        try:
            data = folder.read(name, MOST_BYTES)
            envelope = Envelope.from_bytes(data)
        except ExchangeError as error:
            aside[in_one_line(name)] = in_one_line(str(error))
        except FedgaugeError as error:
            aside[in_one_line(name)] = f"{error} {_AGAIN}"
        else:
            yield name, data, envelope


def _evidence(folder: Folder, name: str, most: int = _MOST_EVIDENCE) -> list[File]:
    return _understood(folder, name, "evidence", File.from_bytes, enough=lambda _: False, most=most)


def _require_result(saved: bytes, invitation: Invitation) -> None:
    """Refuse what is not the result of an evaluation, signed and confirmed."""
    if not signature.is_signed(saved, invitation):
        raise ExchangeError("it is not the result that the coordinator signed for this evaluation.")
    found = signature.examine(saved, Record.from_json(saved))
    if found.state != "unknown key":
        raise ExchangeError(f"it is no result that counts: {found.in_words}.")


def _understood(
    folder: Folder,
    name: str,
    kind: str,
    read: Callable[[bytes], M],
    *,
    enough: Callable[[M], bool] = lambda _: True,
    most: int = MOST_BYTES,
) -> list[M]:
    """What the versions of a file say; an error names the file, and what to do."""

    def understood(data: bytes) -> M:
        try:
            return read(data)
        except FedgaugeError as error:
            place = folder.place(name)
            raise type(error)(f"cannot use {place} as {kind}: {error} {_AGAIN}") from None

    versions = (data for _, data in folder.versions(name, most))
    return _readable(versions, understood, enough=enough)


def _readable(
    versions: Iterable[V], read: Callable[[V], M], *, enough: Callable[[M], bool] = lambda _: True
) -> list[M]:
    """What those say that can be read, up to one that is enough; the first error where none can."""
    found, refused = [], []
    for data in versions:
        try:
            found.append(read(data))
        except FedgaugeError as error:
            refused.append(error)
            continue
        if enough(found[-1]):
            break
    if not found:
        raise refused[0]
    return found


def _file_name(stage: Stage, member: int, name: str, kind: str) -> str:
    """The name of a file from or to a member, who is numbered: two may have one name."""
    return f"{stage:d}-{STEPS[stage]}.{member + 1}.{name}.{kind}.fgx"


def _some(aside: dict[str, str]) -> dict[str, str]:
    """Some files set aside, and how many more: anybody may fill the folder."""
    more = len(aside) - _MOST_ASIDE
    if more <= 0:
        return aside
    return dict([*aside.items()][:_MOST_ASIDE]) | {f"{more:,} more": "for such reasons"}


def listed(aside: dict[str, str]) -> str:
    """Files set aside, with reasons."""
    return "; ".join(f"{name}: {reason.rstrip('.')}" for name, reason in _some(aside).items())


def join(
    exchange: Exchange,
    site: Site,
    rows: Rows | None = None,
    *,
    kinds: Sequence[type[Rows]] = (NamedRows,),
    tell: Callable[[str], None] = lambda _: None,
    show: Callable[[RowSummary], None] = lambda _: None,
    anyway: bool = False,
) -> str:
    """Answer an invitation, and remember which rows it is about; the file that was written.

    Rows that look wrong are refused before anything is reserved or sent, and `tell` gets what was
    found, unless the site file lets them join or its operator joins `anyway`.

    Joining again may name other rows as long as none were counted; those of an exact sum stay, and
    so do those of a second round, which are named at the first. Before an exact sum rows are read:
    `kinds`, `show` and `tell` as for :func:`submit`.
    """
    invitation = exchange.invitation()
    exchange.require_open(invitation)
    site = site.in_session(invitation.follows or invitation.session)
    by_hand, rows = rows is not None, _rows_to_join(site, invitation, rows, kinds)
    told = _teller(invitation, rows, tell, show)

    def check(plan: EvaluationPlan) -> None:
        rows.check(plan, site)
        if invitation.follows is not None:
            return
        if not anyway:
            require_fit(site, plan, rows, by_hand=by_hand, tell=tell)
        elif not by_hand:
            allow(site, rows)

    participant = Participant(
        site,
        lambda: rows.data(invitation.plan, site),
        check=check,
        show=told,
    )
    reply = participant.answer(invitation.data)
    named = _named_rows(participant, invitation, kinds)
    if named != rows:
        counted = participant.session(invitation.session).stage >= Stage.MASK
        if named is not None and (counted or not invitation.plan.is_noisy):
            raise ExchangeError(_other_rows(named, invitation.plan, counted=counted))
        rows.check(invitation.plan, site)  # who joined before was not checked with these
        participant.remember(invitation.session, msgspec.json.encode(rows))
    return exchange.write_reply(invitation, Stage.ADVERTISE, reply)


def _rows_to_join(
    site: Site, invitation: Invitation, rows: Rows | None, kinds: Sequence[type[Rows]]
) -> Rows:
    """The rows that were named, or that the site file declares; of a second round, the first's."""
    participant = Participant(site)
    if invitation.follows is None:
        before = _named_rows(participant, invitation, kinds)
        if before is not None and rows in (None, before):
            return before  # of the period in which it joined
        judge_origin(site, invitation)  # before its plan is read
        return site.rows(invitation.plan, rows)
    note = participant.recall(invitation.session) or participant.recall(invitation.follows)
    if note is None:
        raise ExchangeError(NOT_JOINED)
    named = read_note(note, kinds)
    if rows not in (None, named):
        raise ExchangeError(_other_rows(named, invitation.plan, counted=True))
    return named


class Submitted(NamedTuple):
    """The file that was written, and whether it holds what was counted on an earlier occasion."""

    path: str
    stood: bool


def submit(
    exchange: Exchange,
    site: Site,
    rows: Rows | None = None,
    *,
    kinds: Sequence[type[Rows]] = (NamedRows,),
    tell: Callable[[str], None],
    show: Callable[[RowSummary], None] = lambda _: None,
) -> Submitted:
    """Answer the third round with the rows named at the first.

    `rows` may say again which they are; others are refused. What was counted once stands: asked
    again, a site sends the same bytes, whatever its file holds by then.

    `kinds` are what an operator may have named when joining: with
    ``fedgauge.vertical.label_party.ROW_KINDS`` also labels apart from scores. For the operator
    alone, `tell` takes in sentences what is wrong with the rows, and `show` their summary once they
    were counted.
    """
    invitation = exchange.invitation()
    exchange.require_open(invitation)
    request = exchange.request_to_me(invitation, Stage.MASK)
    participant = Participant(site)
    named = _named_rows(participant, invitation, kinds)
    if named is None:
        raise ExchangeError(NOT_JOINED)
    stands = participant.session(invitation.session).stage >= Stage.MASK
    if rows not in (None, named):
        raise ExchangeError(_other_rows(named, invitation.plan, counted=stands))
    if not stands:
        named.check(invitation.plan, site)  # once more: a file may have been moved away
    told = _teller(invitation, named, tell, show)
    participant = Participant(site, lambda: named.data(invitation.plan, site), tell=tell, show=told)
    reply = participant.answer(request)
    return Submitted(exchange.write_reply(invitation, Stage.MASK, reply), stands)


def _teller(
    invitation: Invitation,
    rows: Rows,
    tell: Callable[[str], None],
    show: Callable[[RowSummary], None],
) -> Callable[[RowSummary], None]:
    """Shows what the rows of a file came to, and warns of what is wrong with them."""

    def told(counted: RowSummary) -> None:
        show(counted)
        for sentence in rows.warnings(counted, invitation.plan):
            tell(sentence)

    return told


def _named_rows(
    participant: Participant, invitation: Invitation, kinds: Sequence[type[Rows]]
) -> Rows | None:
    note = participant.recall(invitation.session)
    return None if note is None else read_note(note, kinds)


def _other_rows(named: Rows, plan: EvaluationPlan, *, counted: bool) -> str:
    done = "has submitted that: the first input stands" if counted else "submits that"
    if plan.is_noisy and not counted:
        remedy = "join again with them (`fedgauge exchange join`), then submit"
    else:
        remedy = "abandon this evaluation (`fedgauge exchange abandon`) and join a new one"
    return (
        f"this site joined with {named.path} ({named.columns}), and {done}. To evaluate other "
        f"rows, {remedy}."
    )


def take_part(
    exchange: Exchange, site: Site, stage: Stage, data: Callable[[], Data] | None = None
) -> str:
    """Answer the request of one round; the file that was written."""
    invitation = exchange.invitation()
    if stage < Stage.OPEN:  # a site that reveals late deletes its keys all the same
        exchange.require_open(invitation)
    request = exchange.request_to_me(invitation, stage)
    reply = Participant(site, data).answer(request)
    return exchange.write_reply(invitation, stage, reply)
