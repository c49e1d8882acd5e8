"""A label party: the rows that it names in an exchange, and what it answers over a network."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fedgauge.data.columns import floats_of, read_leniently
from fedgauge.data.examples import Data
from fedgauge.data.files import ScoreFile
from fedgauge.data.row_checks import (
    ID,
    KeyedColumns,
    KeyedFile,
    PlacedRows,
    Places,
    RowSummary,
    ScoredFile,
    ids_of,
)
from fedgauge.data.text_files import UTF8
from fedgauge.engines.participant import (
    Participant,
    SimulatedParticipant,
    judge_coordinator,
    refuse_unread,
)
from fedgauge.errors import InputError, PlanRefused, ProtocolError, located
from fedgauge.keys import SigningKey
from fedgauge.plan import EvaluationPlan
from fedgauge.protocol import COORDINATOR, EVERYONE, Envelope, Message
from fedgauge.secagg import Stage
from fedgauge.site import Site
from fedgauge.site.rows import NamedRows, Rows
from fedgauge.vertical.files import Bins, Roster, require_listed
from fedgauge.vertical.joining import written_otherwise

ROSTER: Final = 0  # before the first round of a sum, so that no signature is good for both
_NONCE_BYTES: Final = 32

Answering = Participant | SimulatedParticipant


class NamedLabels(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a label party's rows are, and the bins of its examples."""

    path: str
    label: str
    key: str  # the column of ids or, where `scored`, of the party's own scores
    bins: str
    scored: bool = False
    separator: str | None = None
    decimal: str = "."
    encoding: str = UTF8

    @property
    def columns(self) -> str:
        """The columns in words."""
        return f"label {self.label}, {'score' if self.scored else 'id'} {self.key}"

    def source(self) -> KeyedFile | ScoredFile:
        """The labels and what names them, if the file and its columns are there."""
        if self.scored:
            return ScoredFile(
                ScoreFile(
                    self.path,
                    label=self.label,
                    score=self.key,
                    separator=self.separator,
                    decimal=self.decimal,
                    encoding=self.encoding,
                )
            )
        return self._by_id()

    def _by_id(self) -> KeyedFile:
        return KeyedFile(
            self.path,
            key=self.key,
            label=self.label,
            separator=self.separator,
            decimal=self.decimal,
            encoding=self.encoding,
        )

    def check(self, plan: EvaluationPlan, site: Site) -> None:
        """Refuse, before anything is spent, labels or bins that are not for this plan and site."""
        if not plan.task.of_labels:
            raise InputError(
                "the plan is for rows that have a label and a score. Leave out --id and --bins, "
                "and name the column of scores: --score COLUMN."
            )
        self.source().check()
        self.places(plan, site)

    def places(self, plan: EvaluationPlan, site: Site) -> Places:
        """The bin of each example."""
        with located(self.bins):
            bins = Bins.load(self.bins)
            places = bins.check(plan, site.key.public)
            if places.by_id == self.scored:
                raise InputError(
                    "these bins go by ids. Name their column: --id COLUMN."
                    if self.scored
                    else "these bins go by scores. Name their column, --score, and leave out --id."
                )
            require_listed(site, bins.ids, bins.scores)
        return places

    def data(self, plan: EvaluationPlan, site: Site) -> Data:
        """The rows: labels, and bins for scores."""
        return PlacedRows(self.source(), self.places(plan, site))

    def warnings(self, counted: RowSummary, plan: EvaluationPlan) -> list[str]:
        """What is wrong with the rows, as far as they were counted; each names the file."""
        told = counted.warnings(plan.task.positive, plan.axis.low, plan.axis.high)
        told = [each.replace("`fedgauge plan", "`fedgauge vertical assign") for each in told]
        if counted.oddities.unlisted and (mismatch := self._mismatch(counted.oddities.rows)):
            told.append(mismatch)
        return [f"{self.path}: {sentence}" for sentence in told]

    def _mismatch(self, rows: int) -> str | None:
        """Whether other examples are meant than were asked about, of which so many have rows.

        It is said and never refused: which examples have rows may tell of labels, as where buyers
        alone are exported, and silence would tell it to whoever chose the examples.
        """
        more, way = 0, ""
        if not self.scored:
            with suppress(Exception):  # what cannot be read was told by who counted it
                own = pa.chunked_array(list(self._by_id().keys()), ID).combine_chunks()
                listed = ids_of("bins", list(Bins.load(self.bins).ids))
                other = own.filter(pc.invert(pc.is_in(own, value_set=listed))).drop_null()
                more, way = written_otherwise(other, listed)
        if rows and more <= rows:
            return None
        told = "few rows are" if rows else "no row is"
        told += " of an example that has a bin"
        told += f": {more:,} {'more ' if rows else ''}would be {way}" if more else ""
        return f"{told}. Check the column {self.key!r}, and that it is written as on the roster."


ROW_KINDS: Final[tuple[type[Rows], ...]] = (NamedRows, NamedLabels)


class Wanted(Message, frozen=True):
    """What a coordinator asks label parties for: a roster of ids, or of their own scores."""

    coordinator: bytes
    scored: bool


class RosterCall:
    """A coordinator's request for rosters; replies are signed with its nonce, so none is old."""

    def __init__(self, key: SigningKey, *, scored: bool) -> None:
        self._nonce, self._scored = os.urandom(_NONCE_BYTES), scored
        self.request = Envelope.sealed(
            key,
            session=self._nonce,
            stage=ROSTER,
            sender=COORDINATOR,
            recipient=EVERYONE,
            body=Wanted(coordinator=key.public, scored=scored).to_bytes(),
        ).to_bytes()

    def read(self, reply: bytes) -> Roster:
        """The roster in a reply, unless it is not one that can be used."""
        envelope = Envelope.from_bytes(reply)
        roster = Roster.from_bytes(envelope.body)
        envelope.check(
            roster.party,
            session=self._nonce,
            stage=ROSTER,
            sender=EVERYONE,  # parties have no numbers yet
            recipients={COORDINATOR},
        )
        if not roster.examples:
            raise ProtocolError("its roster has no examples.")
        if roster.is_scored != self._scored:
            raise ProtocolError("its roster names examples in another way than was asked for.")
        return roster


class OwnLabels(NamedTuple):
    """A party's labels, named by ids or, where it `scored` its examples itself, by scores."""

    read: Callable[[], Any]  # gives a mapping, or a pair of columns, the second with labels
    scored: bool
    few_values: bool = False  # says that what could be labels are scores

    def roster(self, key: SigningKey) -> Roster:
        """Which examples there are; labels are not looked at."""
        keys, _ = self._columns()
        if self.scored:
            scores = floats_of(read_leniently("scores", keys))
            return Roster.of_scores(scores, key, few_values=self.few_values)
        return Roster.of_ids(keys, key)

    def placed(self, places: Places) -> Data:
        """Rows to count: labels, and bins for scores."""
        keys, labels = self._columns()
        if self.scored:
            named = pa.array(floats_of(read_leniently("scores", keys)) + 0.0)  # -0 and 0 are one
        else:
            named = ids_of("labels", keys)
        return PlacedRows(KeyedColumns(named, labels), places)

    def _columns(self) -> tuple[Any, Any]:
        given = self.read()
        if isinstance(given, Mapping):
            return list(given), list(given.values())
        if isinstance(given, tuple) and len(given) == 2:
            return given
        raise InputError("labels must be a mapping from ids, or a pair of columns: ids, labels.")


class LabelParty:
    """Who answers for a party's labels, whatever carries the messages.

    `make` makes who takes part in sums, of the rows to count or, before these are due, of None.
    `site` is None where the party is simulated, and trusts everybody. `tell` takes what its
    operator should know.
    """

    def __init__(
        self,
        labels: OwnLabels,
        key: SigningKey,
        make: Callable[[Callable[[], Data] | None], Answering],
        *,
        site: Site | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._labels = labels
        self._key = key
        self._make = make
        self._site = site
        self._tell = tell

    def answer(self, request: bytes, bins: bytes | None = None) -> bytes:
        """The reply to a request; bins come with the one to count, and with no other."""
        envelope = Envelope.from_bytes(request)
        if (bins is not None) != (envelope.stage == Stage.MASK):
            raise ProtocolError("bins must come with the request to count, and with no other.")
        if envelope.stage == ROSTER:
            return self._send_roster(envelope)
        if bins is None:
            return self._make(None).answer(request)
        # Before the budget is spent. Places are checked once, so they are what is counted by.
        plan = self._make(None).session(envelope.session).invitation.plan
        told = Bins.from_bytes(bins)
        places = told.check(plan, self._key.public)
        if places.by_id == self._labels.scored:
            raise ProtocolError("the bins name examples in another way than this party does.")
        if self._site is not None:
            require_listed(self._site, told.ids, told.scores)
        return self._make(lambda: self._labels.placed(places)).answer(request)

    def _send_roster(self, envelope: Envelope) -> bytes:
        wanted = Wanted.from_bytes(envelope.body)
        envelope.check(
            wanted.coordinator,
            session=envelope.session,
            stage=ROSTER,
            sender=COORDINATOR,
            recipients={EVERYONE},
        )
        if self._site is not None:
            judge_coordinator(self._site, wanted.coordinator)
            refuse_unread(self._site)
        if wanted.scored != self._labels.scored:
            asked, own = ("scores", "ids") if wanted.scored else ("ids", "scores")
            raise PlanRefused(
                f"the coordinator asks for a roster of {asked}, and this party names its examples "
                f"by {own}. Who scores the examples is agreed beforehand (scored)."
            )
        roster = self._labels.roster(self._key)
        if self._site is not None:
            roster.keep(self._site)
        few = roster.has_few_values and not self._labels.few_values
        unsure = " Its scores have few distinct values: make sure that they are no labels."
        self._tell(
            f"A roster of {roster.examples:,} examples goes to the coordinator.{unsure * few}"
        )
        reply = Envelope.sealed(
            self._key,
            session=envelope.session,
            stage=ROSTER,
            sender=EVERYONE,
            recipient=COORDINATOR,
            body=roster.to_bytes(),
        )
        return reply.to_bytes()
