"""From a result to the plain data that is saved."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import UNSET

from fedgauge.errors import UndefinedMetric
from fedgauge.measures.metric import metrics_of
from fedgauge.plan import Slice
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


def record_of(result: Evaluation) -> Record:
    """The result as plain data."""
    (slice_,) = result.plan.task.slices
    released = result.released
    return Record(
        FORMAT,
        result.plan,
        result.privacy,
        result.estimator,
        result.clients,
        [_slice_record(result, slice_)],
        reports=result.reports,
        level=result.level,
        axis=UNSET if released.axis == result.plan.axis else released.axis,
    )


def _slice_record(result: Evaluation, slice_: Slice) -> SliceRecord:
    rows = list(result.plan.task.contrast(slice_))
    released, pooled = result.released, result.pooled
    metrics: dict[str, MetricRecord] = {}
    for row in metrics_of(type(result)):
        if row.recorded:
            with suppress(UndefinedMetric):
                metrics[row.name] = MetricRecord.of(getattr(result, row.name))
    return SliceRecord(
        model=slice_.model,
        group=slice_.group,
        label=slice_.label,
        counts=released.counts[rows].tolist(),
        variances=pooled.leaf_variances.tolist() if pooled.noisy else None,
        metrics=metrics,
        curves=_curves_record(result),
        score_sums=None if released.sums is None else released.sums[rows].tolist(),
    )


def _curves_record(result: Evaluation) -> CurvesRecord:
    try:
        roc, pr = result.roc_curve(), result.pr_curve()
    except UndefinedMetric:
        return CurvesRecord()
    return CurvesRecord(
        roc=RocRecord(roc.fpr.tolist(), roc.tpr.tolist(), thresholds_to_plain(roc.thresholds)),
        pr=PrRecord(pr.precision.tolist(), pr.recall.tolist(), thresholds_to_plain(pr.thresholds)),
    )
