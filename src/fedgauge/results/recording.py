"""From a result to the plain data that is saved."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import UNSET
from msgspec.structs import replace
from numpy.typing import NDArray

from fedgauge.errors import UndefinedMetric
from fedgauge.measures.metric import metrics_of
from fedgauge.plan.slices import Contrast
from fedgauge.results.record import (
    FORMAT,
    CurvesRecord,
    MetricRecord,
    PrRecord,
    Record,
    RocRecord,
    SliceRecord,
    TableRecord,
    thresholds_to_plain,
)

if TYPE_CHECKING:  # a result makes its record, and a record is made of a result
    from fedgauge.results.evaluation import Evaluation


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
