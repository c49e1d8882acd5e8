"""From a result to the plain data that is saved."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from fedgauge.errors import UndefinedMetric
from fedgauge.measures.metric import metrics_of
from fedgauge.results.record import (
    FORMAT,
    CurvesRecord,
    MetricRecord,
    PrRecord,
    Record,
    RocRecord,
    SliceRecord,
    thresholds_to_plain,
)

if TYPE_CHECKING:  # a result makes its record, and a record is made of a result
    from fedgauge.results.evaluation import Evaluation


def facts_of(result: Evaluation) -> Record:
    """What was released, as plain data, without what follows from it."""
    (slice_,) = result.plan.task.slices
    rows, released = list(result.plan.task.contrast(slice_)), result.released
    part = SliceRecord(
        model=slice_.model,
        group=slice_.group,
        label=slice_.label,
        counts=released.counts[rows].tolist(),
        variances=None,
        metrics={},
        curves=CurvesRecord(),
        score_sums=None if released.sums is None else released.sums[rows].tolist(),
    )
    return Record(
        FORMAT,
        result.plan,
        result.privacy,
        result.estimator,
        result.clients,
        [part],
        reports=result.reports,
        level=result.level,
        proof=UNSET if result.proof is None else result.proof,
        axis=UNSET if released.axis == result.plan.axis else released.axis,
        calibrator=UNSET if result.mapped_by is None else result.mapped_by,
    )


def record_of(result: Evaluation) -> Record:
    """The result as plain data."""
    facts = facts_of(result)
    (part,) = facts.slices
    return replace(facts, slices=[_with_derived(part, result)])


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
