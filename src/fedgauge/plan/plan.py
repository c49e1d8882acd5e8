"""`EvaluationPlan`: the frozen, complete statement of what is measured; its bytes and TOML."""

import hashlib
import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedgauge import _html
from fedgauge.arrays import Floats
from fedgauge.errors import AxisError, PlanError, PlanRefused, RecordError
from fedgauge.histograms.axis import MOST_BINS, Axis, AxisSpec
from fedgauge.histograms.calibrator import Calibrator
from fedgauge.histograms.histogram import Draw, ScoreHistogram, check_tree
from fedgauge.histograms.tables import AnyTable, TableSum, margins
from fedgauge.histograms.two_round import TwoRound
from fedgauge.plan import two_rounds
from fedgauge.plan.label_rounds import FlipRound, PairName, PairRound
from fedgauge.plan.limits import (
    MOST_BYTES,
    NO_SMALL_CELLS,
    check_bins,
    check_bytes,
    check_counts,
    check_levels,
    check_rules,
    check_unit,
    has_long_keys,
    plan_errors,
    require_clipping,
)
from fedgauge.plan.prediction import Prediction
from fedgauge.plan.rounds import (
    LARGEST,
    NO_COHORT,
    NO_SUM_ALONE,
    HistogramRound,
    ReportRound,
    Round,
    RoundTerms,
    are_alone,
    why_no_sum,
)
from fedgauge.plan.task import AnyTask, BinaryTask, LabelTask, ScoredTask, SearchTask
from fedgauge.plan.two_rounds import Found
from fedgauge.privacy import AnyPrivacyModel, Claim, Cohort, PrivacyStatement, SecureAggregation
from fedgauge.privacy.noise import ShareLaw
from fedgauge.privacy.oracles import Oracle
from fedgauge.storage import read_bounded, write_whole

# TOML's own moments come with +00:00. Some versions of Python read 24:00:00 as the next day.
_FORM: Final = re.compile(r"(\d{4}-\d\d-\d\d)(T(?!24)\d\d:\d\d:\d\d)?(?(2)(Z|\+00:00))")
_LAST_SECOND: Final = "T23:59:59"
_MOST_AXES: Final = 2  # where there are two rounds


def now() -> datetime:
    """The time by this machine's clock."""
    return datetime.now(UTC)


def written(moment: Any) -> str:
    """A moment as plans store it: UTC, in whole seconds; a day stands for its last second."""
    if not isinstance(moment, str) or not (form := _FORM.fullmatch(moment)):
        raise PlanError(_malformed(moment))
    stored = f"{form[1]}{form[2] or _LAST_SECOND}Z"
    try:
        datetime.fromisoformat(stored)
    except ValueError:  # no such day or hour
        raise PlanError(_malformed(moment)) from None
    return stored


def _malformed(moment: Any) -> str:
    got = repr(moment)[:40] if isinstance(moment, str) else type(moment).__name__
    return (
        "not_after must be a day or a moment in UTC, such as 2026-12-31 or "
        f"2026-12-31T18:00:00Z, got {got}."
    )


def encode_axis(value: Any) -> Any:
    """Plain data for an axis: msgspec's hook for types it does not know."""
    if isinstance(value, Axis):
        return value.spec
    raise NotImplementedError(type(value).__name__)


def decode_axis(kind: type, value: Any, most_bins: int = MOST_BINS) -> Any:
    """The inverse of :func:`encode_axis`; edges of more bins are not worked out."""
    if kind is Axis:
        spec = msgspec.convert(value, AxisSpec)
        check_bins(spec.bins, most_bins)
        return Axis.from_spec(spec)
    raise NotImplementedError(kind.__name__)


def _decode_axes(most_bins: int) -> Callable[[type, Any], Any]:
    """The same for one plan in JSON, whose keys may be repeated: no more than its two axes."""
    numbers = iter(range(_MOST_AXES))

    def decode(kind: type, value: Any) -> Any:
        if next(numbers, None) is None:
            raise PlanError(f"a plan has at most {_MOST_AXES} axes.")
        return decode_axis(kind, value, most_bins)

    return decode


def without_none(value: Any) -> Any:
    """Plain data without what TOML has no null for: a missing field reads back as None."""
    if isinstance(value, dict):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    return value


def is_toml(path: Path) -> bool:
    """Whether a plan's file is TOML, and not JSON."""
    if path.suffix not in (".json", ".toml"):
        raise PlanError(f"a plan file ends in .json or .toml, got {path.name!r}.")
    return path.suffix == ".toml"


_NAMED_BY: Final = 32  # digits: with fewer, who makes maps finds two that begin alike
_MAPPED: Final = (
    "Each site maps its scores as the plan says, and counts the mapped scores: {}. The map keeps "
    "the order of scores, so it only moves where the ranges of scores begin and end. No map is "
    "fitted at a site."
)


def _map_name(calibrator: Calibrator) -> str:
    """What an officer compares: what fitted the map, its form, how its digest begins."""
    return f"{calibrator.in_words()}, map {calibrator.digest[:_NAMED_BY]}"


_FLIPS: Final = "local DP of labels flips them: use EvaluationPlan.for_flips."
_SMALL_CELLS: Final = (
    "Neighbouring ranges are joined before anything is shown, saved or drawn, until each holds no "
    "positive example or at least {0}, and no negative one or at least {0}."
)
_SMALL_GROUPS: Final = (
    " The same holds in each group. A group with too few examples of a class is counted with the "
    "rows of no listed group. If these are still too few, more groups are added, so that nobody "
    "can subtract the other groups from the total."
)
_BEFORE: Final = " The coordinator sees the sum before that."


class EvaluationPlan(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True
):
    """What is measured, how, and under which protection.

    A plan is complete: every party that holds the same bytes, named by :attr:`digest`, does the
    same thing.

    Parameters
    ----------
    task
        The classes, groups and models to measure.
    axis
        How scores are binned.
    tree
        Branchings over the bins, from the root down; ``(bins,)`` is flat.
    privacy
        The privacy model.
    cohort
        Who must take part; None for local reports and flipped labels.
    rounds
        What each client sends, in order.
    min_cell
        Without noise: neighbouring bins are merged until each holds none or at least so many
        examples of a class. 0 merges nothing.
    not_after
        Last second, in UTC, at which sites count under the plan; None: it does not expire.
    calibrator
        A map that never falls, applied to scores before they are binned.
    found
        In the second of two rounds: what the first released. See :meth:`located`.

    Examples
    --------
    >>> plan = EvaluationPlan.for_histogram(Axis.uniform(64), Cohort(min_survivors=5))
    >>> plan.bytes_per_client
    1024
    >>> EvaluationPlan.from_toml(plan.to_toml()) == plan
    True
    """

    task: AnyTask
    axis: Axis
    tree: tuple[int, ...]
    privacy: AnyPrivacyModel
    cohort: Cohort | None = None
    rounds: tuple[HistogramRound | ReportRound | FlipRound | PairRound, ...] = ()
    min_cell: int = 0
    not_after: str | None = None
    calibrator: Calibrator | None = None
    found: Found | None = None

    def __post_init__(self) -> None:
        if self.not_after is not None:
            msgspec.structs.force_setattr(self, "not_after", written(self.not_after))
        check_levels(self.tree)
        try:
            check_tree(self.tree, self.axis.bins)
        except AxisError as error:
            raise PlanError(str(error)) from None
        check_counts(self.task.per_row, self.task.rows * self.axis.bins)
        if len(self.rounds) != 1 + self.has_two_rounds:
            raise PlanError(
                f"a plan has one round, or two where it searches, got {len(self.rounds)}. Make "
                "plans with EvaluationPlan.for_histogram or EvaluationPlan.for_reports."
            )
        if (self.final.sends_reports, self.final.flips_labels) != (
            self.privacy.sends_reports,
            self.privacy.flips_labels,
        ):
            raise PlanError(
                "local DP plans have reports, or flipped labels, others counts; this one mixes "
                "them."
            )
        if self.cohort is not None and not self.privacy.needs_cohort:
            raise PlanError(
                "local DP needs no cohort: every report, or flipped label, is private by itself. "
                "Leave it out."
            )
        if self.privacy.adds_noise:
            require_clipping(self.axis)
            check_unit(self)
        if self.has_two_rounds:
            two_rounds.check(self)
        self.final.check(self.terms)
        check_rules(self)
        if self.calibrator is not None:
            bare = self.calibrator.without_facts()  # what it was fitted on changes no count
            msgspec.structs.force_setattr(self, "calibrator", bare)

    @classmethod
    def under(
        cls,
        privacy: AnyPrivacyModel,
        axis: Axis | TwoRound,
        *,
        cohort: Cohort | None = None,
        task: AnyTask | None = None,
        tree: tuple[int, ...] | None = None,
        score_sums: bool = False,
        min_cell: int = 0,
    ) -> Self:
        """A plan of the kind that a privacy model needs: for counts, reports or flipped labels."""
        if not privacy.needs_cohort:
            what = "report" if privacy.sends_reports else "flipped label"
            if cohort is not None:
                raise PlanError(
                    f"under local DP every {what} is private by itself: leave out cohort."
                )
            if score_sums:
                raise PlanError(f"local {what}s carry no score sums. Leave score_sums out.")
            if min_cell:
                raise PlanError(NO_SMALL_CELLS)
            if privacy.sends_reports:
                return cls.for_reports(axis, privacy, task=task, tree=tree)
            if isinstance(axis, TwoRound):
                raise PlanError("labels are flipped in one round: the bins of scores are known.")
            return cls.for_flips(axis, privacy, task=task, tree=tree)
        if cohort is None:
            raise PlanError(NO_COHORT)
        return cls.for_histogram(
            axis,
            cohort,
            task=task,
            tree=tree,
            privacy=privacy,
            score_sums=score_sums,
            min_cell=min_cell,
        )

    @classmethod
    def for_reports(
        cls,
        axis: Axis | TwoRound,
        privacy: AnyPrivacyModel,
        *,
        task: AnyTask | None = None,
        tree: tuple[int, ...] | None = None,
    ) -> Self:
        """A plan for local reports, with the least noise that keeps the privacy promised."""
        if privacy.flips_labels:
            raise PlanError(_FLIPS)
        task = task or BinaryTask()
        if isinstance(axis, TwoRound):
            return cls._searching(axis, privacy, None, task, tree)
        tree = tree or (axis.bins,)
        sent = ReportRound.calibrated(privacy, tree, task.layout)
        return cls(task, axis, tree, privacy, None, (sent,))

    @classmethod
    def for_flips(
        cls,
        axis: Axis,
        privacy: AnyPrivacyModel,
        *,
        task: AnyTask | None = None,
        tree: tuple[int, ...] | None = None,
    ) -> Self:
        """A plan for flipped labels, with the rarest flips that keep the privacy promised."""
        sent = FlipRound.calibrated(privacy, axis.bins)
        return cls(task or LabelTask(), axis, tree or (axis.bins,), privacy, None, (sent,))

    @classmethod
    def for_pairs(
        cls,
        mechanism: PairName,
        examples: int,
        privacy: AnyPrivacyModel,
        *,
        task: AnyTask | None = None,
    ) -> Self:
        """A plan for two noisy numbers of each label party, which give the AUC of all examples."""
        sent = PairRound(mechanism, examples)
        return cls(task or LabelTask(), sent.axis(), (1,), privacy, Cohort(1, 0), (sent,))

    @classmethod
    def for_histogram(
        cls,
        axis: Axis | TwoRound,
        cohort: Cohort,
        *,
        task: AnyTask | None = None,
        tree: tuple[int, ...] | None = None,
        privacy: AnyPrivacyModel | None = None,
        weights: Sequence[float] | None = None,
        largest: int = LARGEST,
        score_sums: bool = False,
        min_cell: int = 0,
    ) -> Self:
        """A plan for one histogram, with the least noise that keeps the privacy promised.

        `weights` splits the budget over the levels of the tree, evenly by default. `largest` is the
        largest count of one client; a lower one can halve the bytes sent. `score_sums` adds the
        sums of scores within bins, for a fifth of the budget. A :class:`TwoRound` as `axis` makes a
        plan of two rounds.
        """
        privacy = privacy or SecureAggregation()
        if not isinstance(cohort, Cohort):
            raise PlanError(NO_COHORT)
        if privacy.sends_reports:
            raise PlanError("local DP sends reports: use EvaluationPlan.for_reports.")
        if privacy.flips_labels:
            raise PlanError(_FLIPS)
        task = task or BinaryTask()
        if isinstance(axis, TwoRound):
            if weights is not None or score_sums:
                raise PlanError("two rounds have neither weights nor score sums. Leave them out.")
            return cls._searching(axis, privacy, cohort, task, tree, largest, min_cell)
        tree = tree or (axis.bins,)
        tables = task.tables(axis, noisy=privacy.adds_noise)
        terms = RoundTerms(privacy, cohort, axis, tree, task.rows_sent, task.per_row, task.layout)
        sent = HistogramRound.calibrated(
            privacy,
            cohort,
            tree,
            per_row=task.per_row,
            weights=weights,
            largest=largest,
            score_sums=score_sums,
            tables=tables,
            tables_alone=are_alone(tables, terms),
        )
        plan = cls(task, axis, tree, privacy, cohort, (sent,), min_cell)
        plan.sums_law(shares=1)  # refused now where it cannot be drawn
        sent.table_laws(plan.terms, shares=1)
        return plan

    @classmethod
    def _searching(
        cls,
        two: TwoRound,
        privacy: AnyPrivacyModel,
        cohort: Cohort | None,
        task: AnyTask,
        tree: tuple[int, ...] | None,
        largest: int = LARGEST,
        min_cell: int = 0,
    ) -> Self:
        """A plan of two rounds."""
        if not isinstance(task, ScoredTask):
            raise PlanError("two rounds are for scores and labels in one place.")
        if tree is not None and tree != (two.bins,):
            raise PlanError("two rounds have no tree: bins of equal depth need none.")
        search = SearchTask(task, two)
        rounds = two_rounds.rounds_for(search, privacy, cohort, largest)
        return cls(search, two.coarse, (two.coarse.bins,), privacy, cohort, rounds, min_cell)

    @property
    def is_search(self) -> bool:
        """Whether this is the first of two rounds: it finds bins, and there is no result yet."""
        return self.task.two is not None

    @property
    def has_two_rounds(self) -> bool:
        """Whether bins are, or were, found in a first round."""
        return self.is_search or self.found is not None

    @property
    def chance_to_report(self) -> float:
        """The chance that a row is reported in the round that is run; 1 but for two rounds."""
        if self.task.two is not None:
            return self.task.two.share
        return 1.0 if self.found is None else 1.0 - self.found.two.share

    @cached_property
    def whole(self) -> "EvaluationPlan":
        """What sites approve of and pay for: the plan, before any bins were found."""
        return self if self.found is None else two_rounds.before(self)

    def located(self, found: Found) -> "EvaluationPlan":
        """The plan of the second round, of what the first found."""
        return two_rounds.located(self, found)

    @cached_property
    def terms(self) -> RoundTerms:
        """What the round works within that is run under this plan."""
        return RoundTerms.of(self.privacy, self.cohort, self.task, self.axis, self.tree)

    @property
    def terms_by_round(self) -> tuple[RoundTerms, ...]:
        """What each round works within."""
        return two_rounds.terms_of(self) if self.has_two_rounds else (self.terms,)

    @property
    def final(self) -> Round:
        """The round that is run under this plan; but for a search, what the result is made of."""
        return self.rounds[0 if self.is_search else -1]

    @property
    def summed(self) -> HistogramRound:
        """The final round of a plan for a sum; refused where rows are reported or flipped."""
        if isinstance(self.final, PairRound):
            raise PlanError(NO_SUM_ALONE)
        if not isinstance(self.final, HistogramRound):
            raise PlanError(why_no_sum(self.privacy))
        return self.final

    @property
    def reported(self) -> ReportRound:
        """The final round of a plan for local reports; refused where counts are summed."""
        if not isinstance(self.final, ReportRound):
            raise PlanError(
                "this plan is not for local reports. Make one with EvaluationPlan.for_reports."
            )
        return self.final

    @property
    def flipped(self) -> FlipRound:
        """The final round of a plan for flipped labels; refused where none are flipped."""
        if not isinstance(self.final, FlipRound):
            raise PlanError(
                "this plan is not for flipped labels. Make one with EvaluationPlan.for_flips."
            )
        return self.final

    @property
    def paired(self) -> PairRound | None:
        """The final round of a plan for pairs, None of any other."""
        return self.final if isinstance(self.final, PairRound) else None

    @property
    def is_alone(self) -> bool:
        """Whether each label party answers by itself, in private from everybody."""
        return self.task.of_labels and (self.privacy.flips_labels or self.terms.is_alone)

    @property
    def oracles(self) -> tuple[Oracle, ...]:
        """The oracle of each level, block after block; refused unless rows are reported."""
        return self.reported.oracles(self.terms)

    def check_promise(self) -> None:
        """Refuse a plan whose noise costs more than it promises."""
        if self.has_two_rounds:
            two_rounds.check_promise(self)
        else:
            self.final.check_promise(self.terms)

    @property
    def has_expired(self) -> bool:
        """Whether it may no longer be used, by the clock of this machine."""
        if self.not_after is None:
            return False
        # Its own second is within it.
        return now().replace(microsecond=0) > datetime.fromisoformat(self.not_after)

    def check_time(self) -> None:
        """Refuse a plan that has expired."""
        if self.has_expired:
            raise PlanRefused(
                f"the plan could be used until {self.not_after} (not_after), and by the clock of "
                "this machine that is past. It takes a new plan; or set the clock."
            )

    def statement(self, claim: Claim, public_inputs: tuple[str, ...] = ()) -> PrivacyStatement:
        """What a result of this plan may claim about privacy."""
        rounds = zip(self.rounds, self.terms_by_round, strict=True)
        draws = [drawn for sent, terms in rounds for drawn in sent.draws(terms)]
        stated = self.privacy.state(
            self.cohort, draws=draws, claim=claim, public_inputs=public_inputs
        )
        if not (self.has_two_rounds and self.is_noisy):
            return stated
        return msgspec.structs.replace(stated, shares=two_rounds.shares_of(self))

    def noise_laws(self, shares: int) -> list[ShareLaw]:
        """The law of the sum of `shares` clients' noise at each level; empty without noise."""
        return self.summed.laws(self.terms, shares)

    def sums_law(self, shares: int) -> ShareLaw | None:
        """The law of the sum of `shares` clients' noise on score sums; None without noise."""
        return self.summed.sums_law(self.terms, shares)

    @property
    def tables(self) -> tuple[AnyTable, ...]:
        """What is counted besides the histogram."""
        return self.final.tables

    def margins(self, tables: Sequence[TableSum]) -> NDArray[Any] | None:
        """The histogram's counts where they are sums of a table's cells; else None."""
        if self.final.nodes:
            return None
        return margins(tables, self.task.layout, self.axis)

    def table_variances(self, contributions: int) -> tuple[float, ...]:
        """Variance of the noise of so many clients in one cell of each table; 0 without noise."""
        return self.summed.table_variances(self.terms, contributions) if self.tables else ()

    def noise_variances(self, contributions: int) -> tuple[float, ...]:
        """Noise variance of a node by level, for so many clients or reports; empty if exact."""
        return self.final.noise_variances(self.terms, contributions)

    def node_variances(self, leaves: Floats) -> list[Floats]:
        """Noise variance of every node (of the first block) if counts matter; else empty."""
        return self.final.node_variances(self.terms, leaves)

    def in_words(self) -> list[tuple[str, str]]:
        """Titles and paragraphs for whoever must approve of the plan."""
        words = list(
            two_rounds.in_words(self) if self.has_two_rounds else self.final.in_words(self.terms)
        )
        if self.calibrator is not None:
            text = _MAPPED.format(_map_name(self.calibrator))
            words.append(("What scores go through first", text))
        if self.min_cell:
            told = _SMALL_CELLS + (_SMALL_GROUPS if self.task.layout.groups else "") + _BEFORE
            words.append(("What is shown of small groups", told.format(self.min_cell)))
        return words

    @property
    def predicted(self) -> Prediction | None:
        """Errors that the planner which made the plan expects; None for other plans."""
        return self.__dict__.get("predicted_errors")

    def with_prediction(self, prediction: Prediction) -> Self:
        """The same plan, remembering what its planner expects."""
        plan = msgspec.structs.replace(self)
        plan.__dict__["predicted_errors"] = prediction
        return plan

    def with_not_after(self, moment: str | None) -> Self:
        """The same plan with another last moment at which sites count under it."""
        return self._with(not_after=moment)

    def with_calibrator(self, calibrator: Calibrator | None) -> Self:
        """The same plan with a map that scores go through first, without the facts of its fit."""
        return self._with(calibrator=calibrator)

    def _with(self, **changes: Any) -> Self:
        plan = msgspec.structs.replace(self, **changes)
        return plan if self.predicted is None else plan.with_prediction(self.predicted)

    @property
    def least_width(self) -> float:
        """The least distance of inner edges, as scores before any map; infinite without two."""
        return float(np.diff(self.score_axis.edges[1:-1]).min(initial=math.inf))

    @cached_property
    def score_axis(self) -> Axis:
        """The bins of scores before any map: the edges of the axis, pulled back through the map."""
        if self.calibrator is None:
            return self.axis
        inner = np.unique(self.calibrator.pull_back(self.axis.edges[1:-1]))
        # Where the end bins end changes no count: they hold all scores beyond.
        return Axis.from_edges([-1.0, *inner.tolist(), 2.0], outside="clip")

    def __reduce__(self) -> tuple[Any, ...]:
        plan = type(self), msgspec.structs.astuple(self)
        if self.predicted is None:
            return plan
        return *plan, {"predicted_errors": self.predicted}  # which is in no field

    def __copy__(self) -> Self:
        return self  # frozen; Struct's own would lose the prediction

    def _repr_html_(self) -> str:
        return _html.table(_summary(self), caption=f"Plan {self.digest[:8]}")

    @property
    def is_noisy(self) -> bool:
        """Whether the counts of the result are noisy."""
        return self.final.is_noisy

    def histogram(self, draw: Draw | None = None) -> ScoreHistogram:
        """An empty histogram of what one client counts; of each row in one block, with `draw`."""
        return ScoreHistogram(
            self.axis,
            layout=self.task.layout,
            sum_steps=self.final.sum_steps,
            calibrator=self.calibrator,
            tables=self.tables,
            draw=draw,
        )

    @property
    def numbers(self) -> int:
        """How many counts and sums one client sends, in the round that is run."""
        return self.final.numbers(self.terms)

    @cached_property
    def most_per_count(self) -> int:
        """Largest absolute value that one client can send, its noise included: a certain bound."""
        return self.summed.most_per_number(self.terms)

    @property
    def bytes_per_client(self) -> int:
        """Size of one client's counts and sums, or of one report, before any protocol."""
        rounds = zip(self.rounds, self.terms_by_round, strict=True)
        sizes = [sent.bytes_sent(terms) for sent, terms in rounds]
        return max(sizes) if self.final.sends_reports else sum(sizes)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of :meth:`to_bytes`."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """The plan as distributed: JSON in the one form that :meth:`from_bytes` accepts."""
        return msgspec.json.encode(self, enc_hook=encode_axis)

    @classmethod
    def from_bytes(cls, data: bytes, *, most_bins: int = MOST_BINS) -> Self:
        """Read a plan of exactly these bytes; more than `most_bins` bins are refused."""
        check_bytes(len(data))
        with plan_errors("JSON"):
            plan = msgspec.json.decode(data, type=cls, dec_hook=_decode_axes(most_bins))
        if plan.to_bytes() != data:
            raise PlanError(
                "the plan is not in the form it is distributed in, so its digest would differ "
                "between sites. Write it with EvaluationPlan.to_bytes."
            )
        return plan

    def to_toml(self) -> str:
        """The plan as TOML, to be read and edited by people."""
        plain = msgspec.to_builtins(self, enc_hook=encode_axis)
        return msgspec.toml.encode(without_none(plain)).decode()

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Read a plan from TOML."""
        check_bytes(len(text))
        with plan_errors("TOML"):
            if has_long_keys(text):
                raise PlanError("this is not a plan in TOML: a key in it has too many parts.")
            plain = msgspec.toml.decode(text)
            if isinstance(moment := plain.get("not_after"), date):  # TOML has dates of its own
                plain["not_after"] = moment.isoformat()
            return msgspec.convert(plain, type=cls, dec_hook=decode_axis)

    def save(self, path: str | Path) -> None:
        """Write the plan to a ``.json`` (as distributed) or ``.toml`` file."""
        path = Path(path)
        data = self.to_toml().encode() if is_toml(path) else self.to_bytes()
        try:
            write_whole(path, data)
        except RecordError as error:
            raise PlanError(str(error)) from None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a plan from a ``.json`` or ``.toml`` file."""
        path = Path(path)
        try:
            data = read_bounded(path, MOST_BYTES)
            return cls.from_toml(data.decode()) if is_toml(path) else cls.from_bytes(data)
        except OSError as error:
            raise PlanError(f"cannot read plan {path}: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise PlanError(f"{path} is not text, so it is not a TOML plan.") from None


def _summary(plan: EvaluationPlan) -> list[tuple[str, str]]:
    """What a plan is, at a glance."""
    positive = "bool or 0/1" if plan.task.positive is None else repr(plan.task.positive)
    bins = [("axis", repr(plan.axis)), ("tree", " x ".join(map(str, plan.tree)))]
    rows = [
        ("positive label", positive),
        *(two_rounds.facts(plan) if plan.has_two_rounds else bins),
        ("privacy", plan.privacy.title),
    ]
    rows += [(name, words) for name, words in plan.task.told]
    if plan.cohort is not None:
        least, colluding = plan.cohort.min_survivors, plan.cohort.max_colluding
        rows.append(("cohort", f"at least {least:,} clients, {colluding:,} of whom may collude"))
    if plan.calibrator is not None:
        rows.append(("calibrator", _map_name(plan.calibrator)))
    if plan.min_cell:
        rows.append(("min_cell", f"{plan.min_cell:,}"))
    if plan.not_after is not None:
        rows.append(("not after", plan.not_after))
    sender = "report" if plan.final.sends_reports else "client"
    return [*rows, ("sent", f"{plan.bytes_per_client:,} bytes per {sender}")]
