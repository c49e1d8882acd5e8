"""The result a user holds: curves and numbers on demand, from pooled counts alone."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgauge import curves, metrics
from fedgauge.curves import PrCurve, RocCurve
from fedgauge.distribution import Estimator, ScoreDistribution, estimate
from fedgauge.errors import UndefinedMetric, located
from fedgauge.intervals import Estimate, from_bounds
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy import PrivacyStatement
from fedgauge.record import (
    FORMAT,
    CurvesRecord,
    MetricRecord,
    PrRecord,
    Record,
    RocRecord,
    SliceRecord,
    read_whole,
    thresholds_to_plain,
    write_whole,
)


class Evaluation:
    """A pooled evaluation of a classifier.

    Made by :func:`fedgauge.evaluate` or :meth:`from_json`. It holds the plan, the pooled
    counts and what may be claimed about privacy; everything else follows from these.
    """

    def __init__(
        self,
        plan: EvaluationPlan,
        privacy: PrivacyStatement,
        counts: NDArray[Any],
        *,
        clients: int,
        estimator: Estimator,
    ) -> None:
        self._plan = plan
        self._privacy = privacy
        self._counts = counts
        self._clients = clients
        self._estimator = estimator

    @property
    def plan(self) -> EvaluationPlan:
        """What was measured."""
        return self._plan

    @property
    def privacy(self) -> PrivacyStatement:
        """What may be claimed about privacy."""
        return self._privacy

    @property
    def clients(self) -> int:
        """Number of clients whose examples were counted."""
        return self._clients

    @property
    def estimator(self) -> Estimator:
        """How curves are drawn between the bin edges."""
        return self._estimator

    @property
    def negatives(self) -> int:
        """Number of negative examples."""
        return int(self._counts[0].sum())

    @property
    def positives(self) -> int:
        """Number of positive examples."""
        return int(self._counts[1].sum())

    def with_estimator(self, estimator: Estimator) -> "Evaluation":
        """The same counts read by another estimator."""
        return Evaluation(
            self._plan, self._privacy, self._counts, clients=self._clients, estimator=estimator
        )

    @cached_property
    def _distribution(self) -> ScoreDistribution:
        return estimate(self._plan.axis, self._counts, self._estimator)

    def roc_curve(self) -> RocCurve:
        """The ROC curve: knots, and a callable between them."""
        return curves.roc_curve(self._distribution)

    def pr_curve(self) -> PrCurve:
        """The PR curve: knots, and a callable between them."""
        return curves.pr_curve(self._distribution)

    @cached_property
    def roc_auc(self) -> Estimate:
        """Area under the ROC curve."""
        tied = self._plan.axis.separates_all
        return from_bounds(metrics.roc_auc(self._distribution, self._counts, tied=tied))

    @cached_property
    def average_precision(self) -> Estimate:
        """Average precision, the area under the PR curve."""
        tied = self._plan.axis.separates_all
        return from_bounds(metrics.average_precision(self._distribution, self._counts, tied=tied))

    @cached_property
    def record(self) -> Record:
        """The result as plain data."""
        (slice_,) = self._plan.task.slices
        found: dict[str, MetricRecord] = {}
        drawn = CurvesRecord()
        if self.negatives and self.positives:
            found["roc_auc"] = MetricRecord.of(self.roc_auc)
            found["average_precision"] = MetricRecord.of(self.average_precision)
            drawn = _record_curves(self.roc_curve(), self.pr_curve())
        part = SliceRecord(
            model=slice_.model,
            group=slice_.group,
            label=slice_.label,
            counts=self._counts.tolist(),
            variances=None,
            metrics=found,
            curves=drawn,
        )
        return Record(FORMAT, self._plan, self._privacy, self._estimator, self._clients, [part])

    def to_json(self, path: str | Path) -> None:
        """Save the result."""
        write_whole(path, self.record.to_json())

    @classmethod
    def from_json(cls, path: str | Path) -> "Evaluation":
        """Load a saved result."""
        data = read_whole(path)
        with located(str(path)):
            record = Record.from_json(data)
        (part,) = record.slices
        return cls(
            record.plan,
            record.privacy,
            np.array(part.counts, dtype=np.int64),
            clients=record.clients,
            estimator=record.estimator,
        )

    def __str__(self) -> str:
        return "\n".join([self._who(), *self._found(), self._protected(), self._measured()])

    def __repr__(self) -> str:
        examples = self.negatives + self.positives
        return f"<Evaluation of {examples:,} examples at {self._counted()}>"

    def _who(self) -> str:
        examples = self.negatives + self.positives
        share = self.positives / examples
        return f"{self._counted()}, {examples:,} examples, {share:.1%} positive"

    def _counted(self) -> str:
        return "1 client" if self._clients == 1 else f"{self._clients:,} clients"

    def _found(self) -> list[str]:
        try:
            return [
                f"ROC AUC            {self.roc_auc}",
                f"average precision  {self.average_precision}",
            ]
        except UndefinedMetric as error:
            return ["ROC AUC            undefined", f"average precision  undefined: {error}"]

    def _protected(self) -> str:
        claim = {
            "simulated": "simulated in one process, nothing was protected on the way",
            "enforced": "enforced between the sites",
        }[self._privacy.claim]
        return f"privacy            exact sum, no differential privacy; {claim}"

    def _measured(self) -> str:
        axis, size = self._plan.axis, self._plan.bytes_per_client
        kilobytes = f"{size / 1024:,.0f} KiB" if size >= 1024 else f"{size} bytes"
        return (
            f"measured           {axis.bins:,} {_AXIS_WORDS[axis.kind]}, {kilobytes} per client, "
            f"plan {self._plan.digest[:8]}"
        )


_AXIS_WORDS = {
    "uniform": "bins of equal width",
    "logit": "bins of equal width in log-odds",
    "edges": "bins between given edges",
    "values": "known score values",
}


def _record_curves(roc: RocCurve, pr: PrCurve) -> CurvesRecord:
    return CurvesRecord(
        roc=RocRecord(roc.fpr.tolist(), roc.tpr.tolist(), thresholds_to_plain(roc.thresholds)),
        pr=PrRecord(pr.precision.tolist(), pr.recall.tolist(), thresholds_to_plain(pr.thresholds)),
    )
