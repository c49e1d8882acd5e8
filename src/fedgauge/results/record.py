"""A result as plain data: the only reader and writer of its JSON."""

from __future__ import annotations

import math
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import numpy as np
from msgspec import UNSET
from msgspec.structs import replace
from numpy.typing import NDArray

from fedgauge.arrays import Floats
from fedgauge.errors import FedgaugeError, RecordError, UndefinedMetric
from fedgauge.estimation.counts import Released
from fedgauge.estimation.distribution import Estimator
from fedgauge.estimation.remapping import check_probabilities
from fedgauge.estimation.sanity import are_names
from fedgauge.estimation.suppression import is_large, is_merging, joined_cells
from fedgauge.histograms.axis import Axis
from fedgauge.histograms.calibrator import Calibrator
from fedgauge.histograms.histogram import ScoreHistogram
from fedgauge.histograms.tables import AnyTable, TableSum
from fedgauge.metrics.estimate import LEVEL, Estimate, check_level, metrics_of
from fedgauge.plan import EvaluationPlan, Slice
from fedgauge.plan.plan import decode_axis, encode_axis
from fedgauge.plan.task import Contrast
from fedgauge.privacy import PrivacyStatement

if TYPE_CHECKING:
    from fedgauge.results.evaluation import Evaluation

FORMAT: Final = "fedgauge-evaluation/1"
Threshold = float | Literal["inf"]
_MOST_SUM: Final = 2**63 - 1
_MOST_EXAMPLES: Final = 2**62  # that counts have room for
_ROWS: Final = len(Contrast._fields)  # of a slice: its negatives and its positives
_WHICH: Final = "Name the JSON file of one, such as `fedgauge evaluate --json` saves."


class MetricRecord(msgspec.Struct, frozen=True):
    """One number of a result."""

    value: float
    bounds: tuple[float, float]
    low: float | None
    high: float | None
    level: float | None
    parts: dict[str, float] = {}
    caution: str | None = None

    @classmethod
    def of(cls, estimate: Estimate) -> MetricRecord:
        """The record of an estimate."""
        e = estimate
        return cls(e.value, e.bounds, e.low, e.high, e.level, dict(e.parts), e.caution)


class RocRecord(msgspec.Struct, frozen=True):
    """The knots of a ROC curve."""

    fpr: list[float]
    tpr: list[float]
    thresholds: list[Threshold]


class PrRecord(msgspec.Struct, frozen=True):
    """The knots of a PR curve."""

    precision: list[float]
    recall: list[float]
    thresholds: list[Threshold]


class CurvesRecord(msgspec.Struct, frozen=True):
    """The curves of one slice; None where a class is missing."""

    roc: RocRecord | None = None
    pr: PrRecord | None = None


class SliceRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One part of a result; `metrics` and `curves` follow from counts and variances.

    `counts` has a row of negatives and a row of positives: whole numbers, or under noise
    least-squares estimates, which may be negative. `variances` are those of their noise.
    `score_sums` are those that the plan asks for, with their noise.
    """

    model: str | None
    group: str | None
    label: str | None
    counts: list[list[int | float]]
    variances: list[list[float]] | None
    metrics: dict[str, MetricRecord]
    curves: CurvesRecord
    score_sums: list[list[int | float]] | None = None


class TableRecord(msgspec.Struct, frozen=True):
    """A table that was counted, and the sums in its cells, with the noise in them."""

    table: AnyTable
    values: list[int]


class Record(msgspec.Struct, frozen=True):
    """A whole result: what was planned, what may be claimed, what was found."""

    format: str
    plan: EvaluationPlan
    privacy: PrivacyStatement
    estimator: Estimator
    clients: int
    slices: list[SliceRecord]
    reports: int | None = None  # local reports behind the counts; the noise depends on it
    level: float = LEVEL
    proof: Any = msgspec.UNSET  # of results between sites; results/signature.py reads it
    axis: Axis | msgspec.UnsetType = msgspec.UNSET  # where bins were merged; else the plan's
    # The map that metrics and curves are read through; counts are as released.
    calibrator: Calibrator | msgspec.UnsetType = msgspec.UNSET
    # Counts by channel, where several slices are made of them; else those of the only slice.
    channels: list[list[int | float]] | msgspec.UnsetType = msgspec.UNSET
    # Groups that are too small to be shown, and so counted in "other"; left out where none is.
    joined: list[str] | msgspec.UnsetType = msgspec.UNSET
    tables: list[TableRecord] | msgspec.UnsetType = msgspec.UNSET  # where the plan has some
    # Label parties that answered alone, and sent what no labels have; left out where none did.
    doubted: list[str] | msgspec.UnsetType = msgspec.UNSET

    def to_json(self) -> bytes:
        """The result as JSON."""
        return msgspec.json.encode(self, enc_hook=encode_axis)

    @classmethod
    def from_json(cls, data: bytes) -> Record:
        """Read a result; fields of later minor versions are ignored."""
        try:
            header = msgspec.json.decode(data, type=_RecordHeader)
            if header.format.startswith("fedgauge-calibrator/"):
                raise RecordError(
                    "this is a map from scores to probabilities, not a result. Name the file that "
                    "`fedgauge evaluate --json` saved."
                )
            if header.format != FORMAT:
                raise RecordError(
                    f"this result has format {header.format!r}; this version of fedgauge reads "
                    f"{FORMAT!r}."
                )
            plain = msgspec.json.decode(data)
            record = msgspec.convert(plain, type=cls, dec_hook=decode_axis)
            record._check_counts()
            record._check_statement()
        except RecordError:
            raise
        except (msgspec.MsgspecError, FedgaugeError) as error:
            told = str(error).removesuffix(".")
            raise RecordError(f"this is not a fedgauge result: {told}. {_WHICH}") from None
        except UnicodeDecodeError:
            raise RecordError(f"this is not a fedgauge result: it is not UTF-8. {_WHICH}") from None
        except (RecursionError, OverflowError):
            raise RecordError(
                "this is not a fedgauge result: it is nested too deeply, or holds numbers that are "
                "too large."
            ) from None
        return record

    def released(self) -> Released:
        """What the result is made of."""
        plan, axis = self.plan, self.released_axis
        kind = np.float64 if plan.is_noisy else int
        first = self.slices[0]
        told = self.channels if isinstance(self.channels, list) else first.counts
        sums = None if first.score_sums is None else np.array(first.score_sums, dtype=np.int64)
        counts = np.array(told, dtype=kind)
        return Released(
            axis,
            counts,
            self.clients,
            sums,
            self.reports,
            joined=self._joined,
            tables=self._table_sums,
            doubted=self._doubted,
        )

    @property
    def _joined(self) -> tuple[str, ...]:
        return tuple(self.joined) if isinstance(self.joined, list) else ()

    @property
    def _doubted(self) -> tuple[str, ...]:
        return tuple(self.doubted) if isinstance(self.doubted, list) else ()

    @property
    def _table_sums(self) -> tuple[TableSum, ...]:
        told = self.tables if isinstance(self.tables, list) else []
        return tuple(TableSum(t.table, np.array(t.values, dtype=np.int64)) for t in told)

    @property
    def released_axis(self) -> Axis:
        """The axis of the counts."""
        return self.axis if isinstance(self.axis, Axis) else self.plan.axis

    def _check_counts(self) -> None:
        told = [Slice(part.model, part.group, part.label) for part in self.slices]
        if told != list(self.plan.task.slices) or self.clients < 1:
            raise RecordError("this is not a fedgauge result: its slices do not fit its plan.")
        check_level(self.level)
        if isinstance(self.calibrator, Calibrator):
            check_probabilities(self.released_axis)
        if self.plan.final.sends_reports and (self.reports or 0) < 1:
            raise RecordError("this is not a fedgauge result: it has no number of reports.")
        if not self.plan.final.sends_reports and self.reports is not None:
            raise RecordError(
                "this is not a fedgauge result: it has a number of reports, and its plan asks for "
                "none."
            )
        if isinstance(self.axis, Axis) and not self._is_axis_of_plan(self.axis):
            raise RecordError("this is not a fedgauge result: its axis does not fit its plan.")
        fits = self._fits_noisy if self.plan.is_noisy else self._fits_exact
        if not all(fits(part) for part in self.slices):
            raise RecordError("this is not a fedgauge result: its counts do not fit its plan.")
        if not self._channels_fit():
            raise RecordError("this is not a fedgauge result: its channels do not fit its slices.")
        if not self._joined_fit():
            raise RecordError("this is not a fedgauge result: its groups do not fit its plan.")
        if not all(self._sums_fit(part) for part in self.slices):
            raise RecordError("this is not a fedgauge result: its score sums do not fit its plan.")
        if not self._tables_fit():
            raise RecordError("this is not a fedgauge result: its tables do not fit its plan.")
        # Whoever is doubted answered alone, and has a name that can be printed.
        alone = len(self._doubted) <= (self.clients if self.plan.is_alone else 0)
        if not (alone and are_names(self._doubted)):
            raise RecordError("this is not a fedgauge result: it doubts who did not answer alone.")

    def _channels_fit(self) -> bool:
        """Whether the counts of slices are those of the channels they are made of."""
        task = self.plan.task
        if not isinstance(self.channels, list):
            return len(task.slices) == 1
        bins = self.released_axis.bins
        if len(self.channels) != task.rows or any(len(row) != bins for row in self.channels):
            return False
        channels = np.array(self.channels, dtype=np.float64)
        exact = not self.plan.is_noisy
        if exact and not (np.all(channels >= 0) and is_large(channels, self.plan.min_cell)):
            return False
        return len(task.slices) > 1 and all(
            np.allclose(channels[list(rows)].sum(axis=0), counts, rtol=1e-9, atol=1e-6)
            for slice_, part in zip(task.slices, self.slices, strict=True)
            for rows, counts in zip(task.contrast(slice_), part.counts, strict=True)
        )

    def _joined_fit(self) -> bool:
        """Whether groups that are said to be counted elsewhere can be, and have no counts."""
        task = self.plan.task
        if not (self._joined and self.plan.min_cell):
            return not self._joined
        empty = {part.group for part in self.slices if not any(map(any, part.counts))}
        last = {each.grouping: name for name, each in task.groups_told.items()}
        return set(self._joined) <= empty & set(task.groups_told) - set(last.values())

    def _tables_fit(self) -> bool:
        """Whether there are the plan's tables, and their cells what rows, or noise, can give."""
        plan, told = self.plan, self.tables if isinstance(self.tables, list) else []
        axis, layout = self.released_axis, plan.task.layout
        for each in told:
            each.table.check(layout, axis)
        if len(told) != len(plan.tables) or not all(
            (
                each.table.is_merging(planned, plan.axis, axis)
                if plan.min_cell
                else each.table == planned
            )
            and each.table.cells(layout, axis) == len(each.values)
            and all(abs(value) <= _MOST_SUM for value in each.values)
            for each, planned in zip(told, plan.tables, strict=True)
        ):
            return False
        released = self.released()
        if plan.is_noisy:
            margins = plan.margins(released.tables)
            return margins is None or np.array_equal(margins, released.counts)
        rows = int(released.counts.sum()) // plan.task.per_row
        return all(
            told.values.min() >= 0
            and sum(told.values.tolist()) == rows
            and is_large(told.values, plan.min_cell)
            and not self._of_joined(told).any()
            for told in released.tables
        )

    def _of_joined(self, told: TableSum) -> NDArray[Any]:
        """A table's cells of groups that are counted elsewhere, which are empty."""
        task = self.plan.task
        rows = joined_cells(task, told.table, self._joined)
        return told.by_group(task.layout)[rows]

    def _is_axis_of_plan(self, axis: Axis) -> bool:
        """Whether counts of this plan can be on this axis."""
        if self.plan.task.of_labels:  # whose plan knows bins by number alone
            return axis.bins == self.plan.axis.bins
        return bool(self.plan.min_cell) and is_merging(self.plan.axis, axis)

    def _check_statement(self) -> None:
        """Refuse a claim about privacy that the plan does not make."""
        stated, due = self.privacy, self.plan.statement(self.privacy.claim)
        changed = [
            name for name in _STATED if not _is_due(getattr(stated, name), getattr(due, name))
        ]
        # Hints come first, what the privacy model makes public last.
        if stated.public_inputs[::-1][: len(due.public_inputs)] != due.public_inputs[::-1]:
            changed.append("public_inputs")
        if changed:
            raise RecordError(
                "this is not a fedgauge result: what it says about privacy does not follow from "
                f"its plan ({', '.join(changed)}), so it was edited. Get it again from where it "
                "was made."
            )

    def _fits_exact(self, part: SliceRecord) -> bool:
        axis = self.released_axis
        try:
            counts = ScoreHistogram.from_counts(axis, part.counts).counts
        except FedgaugeError:
            return False
        # Nobody evaluates no rows; a group may have none.
        held = bool(counts.any()) or part.group is not None
        return held and is_large(counts, self.plan.min_cell)

    def _fits_noisy(self, part: SliceRecord) -> bool:
        return self._is_table(part.counts) and all(
            abs(count) <= _MOST_EXAMPLES for row in part.counts for count in row
        )

    def _sums_fit(self, part: SliceRecord) -> bool:
        steps, sums = self.plan.final.sum_steps, part.score_sums
        if not steps or sums is None:
            return not steps and sums is None
        if not self._is_table(sums) or not all(abs(q) <= _MOST_SUM for row in sums for q in row):
            return False
        pairs = zip(chain(*sums), chain(*part.counts), strict=True)
        exact = not self.plan.is_noisy
        return not exact or all(isinstance(q, int) and 0 <= q <= steps * n for q, n in pairs)

    def _is_table(self, rows: list[list[int | float]]) -> bool:
        bins = self.released_axis.bins
        return len(rows) == _ROWS and all(
            len(row) == bins and all(map(math.isfinite, row)) for row in rows
        )


_STATED: Final = tuple(
    name for name in PrivacyStatement.__struct_fields__ if name not in ("public_inputs", "claim")
)


def _is_due(stated: Any, due: Any) -> bool:
    """Whether a part of a statement is what it should be.

    Delta has a numerical part, about 1e-30, that another version of SciPy may round differently. A
    claim of a protocol adds 1e-12, and is told apart.
    """
    if isinstance(stated, float) and isinstance(due, float):
        return math.isclose(stated, due, rel_tol=1e-9, abs_tol=1e-15)
    return bool(stated == due)


class _RecordHeader(msgspec.Struct):
    format: str


def thresholds_to_plain(thresholds: Floats) -> list[Threshold]:
    """Thresholds as JSON can hold them; it has no infinity."""
    return ["inf" if math.isinf(t) else t for t in thresholds.tolist()]


def facts_of(result: Evaluation) -> Record:
    """What was released, as plain data, without what follows from it."""
    task, released = result.plan.task, result.released
    parts = [
        SliceRecord(
            model=slice_.model,
            group=slice_.group,
            label=slice_.label,
            counts=_of_slice(released.counts, task.contrast(slice_)),
            variances=None,
            metrics={},
            curves=CurvesRecord(),
            score_sums=(
                None if released.sums is None else _of_slice(released.sums, task.contrast(slice_))
            ),
        )
        for slice_ in task.slices
    ]
    return Record(
        FORMAT,
        result.plan,
        result.privacy,
        result.estimator,
        result.clients,
        parts,
        reports=result.reports,
        level=result.level,
        proof=UNSET if result.proof is None else result.proof,
        axis=UNSET if released.axis == result.plan.axis else released.axis,
        calibrator=UNSET if result.mapped_by is None else result.mapped_by,
        channels=released.counts.tolist() if len(task.slices) > 1 else UNSET,
        joined=list(released.joined) or UNSET,
        tables=[TableRecord(t, v.tolist()) for t, v in released.tables] or UNSET,
        doubted=list(released.doubted) or UNSET,
    )


def _of_slice(counts: NDArray[Any], contrast: Contrast) -> list[list[int | float]]:
    """What a slice has of each class."""
    return [counts[list(rows)].sum(axis=0).tolist() for rows in contrast]


def record_of(result: Evaluation) -> Record:
    """The result as plain data."""
    facts = facts_of(result)
    pairs = zip(facts.slices, result.slices, strict=True)
    return replace(facts, slices=[_with_derived(*pair) for pair in pairs])


def _with_derived(part: SliceRecord, result: Evaluation) -> SliceRecord:
    metrics: dict[str, MetricRecord] = {}
    for row in metrics_of(type(result)):
        if row.recorded:
            with suppress(UndefinedMetric):
                metrics[row.name] = MetricRecord.of(getattr(result, row.name))
    released = (result if result.mapped_by is None else result.with_calibrator(None)).pooled
    variances = released.leaf_variances.tolist() if released.noisy else None
    return replace(part, variances=variances, metrics=metrics, curves=_curves_record(result))


def _curves_record(result: Evaluation) -> CurvesRecord:
    try:
        roc, pr = result.roc_curve(), result.pr_curve()
    except UndefinedMetric:
        return CurvesRecord()
    return CurvesRecord(
        roc=RocRecord(roc.fpr.tolist(), roc.tpr.tolist(), thresholds_to_plain(roc.thresholds)),
        pr=PrRecord(pr.precision.tolist(), pr.recall.tolist(), thresholds_to_plain(pr.thresholds)),
    )
