"""Which rows a site's operator named, in an evaluation by files."""

from contextlib import suppress

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fedgauge.data.examples import Data
from fedgauge.data.files import ScoreFile
from fedgauge.data.keyed import ID, KeyedFile, PlacedRows, Places, ScoredFile, ids_of
from fedgauge.data.oddities import Counted
from fedgauge.errors import ExchangeError, InputError, located
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.task import LabelTask
from fedgauge.site import Site
from fedgauge.vertical.assigned import Bins
from fedgauge.vertical.mismatches import written_otherwise


class NamedRows(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a site's rows are, as its operator named them when joining."""

    path: str
    label: str
    score: str
    subject: str | None = None
    separator: str | None = None
    decimal: str = "."

    def file(self) -> ScoreFile:
        """The file, if it and its columns are there."""
        return ScoreFile(
            self.path,
            label=self.label,
            score=self.score,
            subject=self.subject,
            separator=self.separator,
            decimal=self.decimal,
        )

    def check(self, plan: EvaluationPlan, site: Site) -> None:
        """Refuse, before anything is spent, a file that cannot be counted under a plan."""
        del site  # any site's
        if isinstance(plan.task, LabelTask):
            raise InputError(
                "the plan is for labels apart from scores. Name the column of ids, and the bins "
                "that this site was sent: --id COLUMN --bins FILE."
            )
        if plan.task.layout.groups:
            raise InputError(
                "the plan is for groups, and files name no column of groups yet. Take part with "
                "Examples(y_true, y_score, group=...): fedgauge.engines.exchange.take_part."
            )
        self.file().check()
        cap = plan.privacy.unit_cap
        if cap is not None and cap.unit == "subject" and self.subject is None:
            raise InputError(
                "the plan protects subjects, so each row needs the id of its subject. Name its "
                "column with --subject."
            )

    @property
    def columns(self) -> str:
        """The columns in words."""
        return f"label {self.label}, score {self.score}"

    def data(self, plan: EvaluationPlan, site: Site) -> Data:
        """The rows."""
        del plan, site  # the same for all
        return self.file()

    def warnings(self, counted: Counted, plan: EvaluationPlan) -> list[str]:
        """What is wrong with the rows, as far as they were counted; each names the file."""
        axis = plan.axis
        told = counted.warnings(
            plan.task.positive,
            axis.low,
            axis.high,
            exact=not plan.is_noisy,
            clips=axis.outside == "clip",
        )
        return [f"{self.path}: {sentence}" for sentence in told]


class NamedLabels(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a label party's rows are, and the bins of its examples.

    Rows are named by the column `key`: of ids or, where `scored`, of the party's own scores.
    """

    path: str
    label: str
    key: str
    bins: str
    scored: bool = False
    separator: str | None = None
    decimal: str = "."

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
        )

    def check(self, plan: EvaluationPlan, site: Site) -> None:
        """Refuse, before anything is spent, labels or bins that are not for this plan and site."""
        if not isinstance(plan.task, LabelTask):
            raise InputError(
                "the plan is for rows that have a label and a score. Leave out --id and --bins, "
                "and name the column of scores: --score COLUMN."
            )
        self.source().check()
        self.places(plan, site)

    def places(self, plan: EvaluationPlan, site: Site) -> Places:
        """The bin of each example."""
        with located(self.bins):
            places = Bins.load(self.bins).check(plan, site.key.public)
            if places.by_id == self.scored:
                raise InputError(
                    "these bins go by ids. Name their column: --id COLUMN."
                    if self.scored
                    else "these bins go by scores. Name their column, --score, and leave out --id."
                )
        return places

    def data(self, plan: EvaluationPlan, site: Site) -> Data:
        """The rows: labels, and bins for scores."""
        return PlacedRows(self.source(), self.places(plan, site))

    def warnings(self, counted: Counted, plan: EvaluationPlan) -> list[str]:
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


Rows = NamedRows | NamedLabels


def read_note(note: bytes) -> Rows:
    """Rows as they were noted when a site joined."""
    try:
        try:
            return msgspec.json.decode(note, type=NamedRows)
        except msgspec.ValidationError:
            return msgspec.json.decode(note, type=NamedLabels)
    except msgspec.MsgspecError:
        raise ExchangeError(
            "this site's note on which rows it joined with is damaged. Abandon this evaluation "
            "and join a new one."
        ) from None
