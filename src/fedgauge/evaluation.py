"""The result a user holds: curves and numbers on demand, from pooled counts alone."""

import math
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedgauge import curves, metrics
from fedgauge.curves import PrCurve, RocCurve
from fedgauge.distribution import Estimator, ScoreDistribution, estimate
from fedgauge.errors import NoSignal, UndefinedMetric, located
from fedgauge.intervals import Estimate, from_bounds, from_noise, redraw
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
from fedgauge.repair import leaf_variance, monotone, total_variance

_SIGNAL: Final = 4.0  # standard deviations that a class must stand out of the noise
_REDRAWS: Final = 200


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
        reports: int | None = None,
    ) -> None:
        self._plan = plan
        self._privacy = privacy
        self._counts = counts
        self._reports = reports
        self._variances = plan.noise_variances(clients if reports is None else reports)
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
    def reports(self) -> int | None:
        """Number of local reports, which is public; None unless under local DP."""
        return self._reports

    @property
    def estimator(self) -> Estimator:
        """How curves are drawn between the bin edges."""
        return self._estimator

    @property
    def negatives(self) -> int:
        """Number of negative examples; an estimate under differential privacy."""
        return max(0, round(float(self._counts[0].sum())))

    @property
    def positives(self) -> int:
        """Number of positive examples; an estimate under differential privacy."""
        return max(0, round(float(self._counts[1].sum())))

    def with_estimator(self, estimator: Estimator) -> "Evaluation":
        """The same counts read by another estimator."""
        return Evaluation(
            self._plan,
            self._privacy,
            self._counts,
            clients=self._clients,
            estimator=estimator,
            reports=self._reports,
        )

    @cached_property
    def _distribution(self) -> ScoreDistribution:
        self._require_signal()
        return estimate(self._plan.axis, self._counts, self._estimator)

    def _require_signal(self) -> None:
        hidden = self._hidden()
        if hidden is not None:
            spread = math.sqrt(total_variance(self._plan.tree, self._variances))
            raise NoSignal(
                f"no signal: the noise (standard deviation {spread:,.0f}) hides the number of "
                f"{hidden}. Use a larger epsilon, more examples, or fewer bins or levels."
            )

    def _hidden(self) -> str | None:
        """The class that does not stand out of the noise, if one does not."""
        if not self._variances:
            return None
        spread = math.sqrt(total_variance(self._plan.tree, self._variances))
        totals = self._counts.sum(axis=1)
        for total, name in zip(totals, ("negatives", "positives"), strict=True):
            if total < _SIGNAL * spread:
                return name
        return None

    @cached_property
    def _deviations(self) -> dict[str, list[float]]:
        """What fresh noise of the same strength does to each number."""
        rng = np.random.default_rng(0)
        likely = monotone(np.asarray(self._counts, dtype=np.float64))
        start = estimate(self._plan.axis, likely, self._estimator)
        roc, pr = _areas(start)
        moved: dict[str, list[float]] = {"roc": [], "pr": []}
        spreads = self._plan.noise_spreads(likely)
        for _ in range(_REDRAWS):
            counts = redraw(likely, self._plan.tree, self._variances, rng, spreads=spreads)
            if min(counts.sum(axis=1)) <= 0:
                continue
            roc_again, pr_again = _areas(estimate(self._plan.axis, counts, self._estimator))
            moved["roc"].append(roc_again - roc)
            moved["pr"].append(pr_again - pr)
        return moved

    def _estimate(self, measure: Callable[..., metrics.Bounded], curve: str) -> Estimate:
        counts = monotone(np.asarray(self._counts, dtype=np.float64))
        tied = self._plan.axis.separates_all
        number = measure(self._distribution, counts, tied=tied)
        if self._variances:
            return from_noise(number, np.array(self._deviations[curve]))
        return from_bounds(number)

    def roc_curve(self) -> RocCurve:
        """The ROC curve: knots, and a callable between them."""
        return curves.roc_curve(self._distribution)

    def pr_curve(self) -> PrCurve:
        """The PR curve: knots, and a callable between them."""
        return curves.pr_curve(self._distribution)

    @cached_property
    def roc_auc(self) -> Estimate:
        """Area under the ROC curve."""
        return self._estimate(metrics.roc_auc, "roc")

    @cached_property
    def average_precision(self) -> Estimate:
        """Average precision, the area under the PR curve."""
        return self._estimate(metrics.average_precision, "pr")

    @cached_property
    def record(self) -> Record:
        """The result as plain data."""
        (slice_,) = self._plan.task.slices
        found: dict[str, MetricRecord] = {}
        drawn = CurvesRecord()
        with suppress(UndefinedMetric):
            found["roc_auc"] = MetricRecord.of(self.roc_auc)
            found["average_precision"] = MetricRecord.of(self.average_precision)
            drawn = _record_curves(self.roc_curve(), self.pr_curve())
        part = SliceRecord(
            model=slice_.model,
            group=slice_.group,
            label=slice_.label,
            counts=self._counts.tolist(),
            variances=self._leaf_variances(),
            metrics=found,
            curves=drawn,
        )
        return Record(
            FORMAT,
            self._plan,
            self._privacy,
            self._estimator,
            self._clients,
            [part],
            reports=self._reports,
        )

    def _leaf_variances(self) -> list[list[float]] | None:
        if not self._variances:
            return None
        each = leaf_variance(self._plan.tree, self._variances)
        return [[each] * self._plan.axis.bins] * 2

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
            np.array(part.counts, dtype=np.float64 if record.plan.rounds[0].noise else np.int64),
            clients=record.clients,
            estimator=record.estimator,
            reports=record.reports,
        )

    def __str__(self) -> str:
        return "\n".join([self._who(), *self._found(), self._protected(), self._measured()])

    def __repr__(self) -> str:
        examples = self.negatives + self.positives
        return f"<Evaluation of {examples:,} examples at {self._counted()}>"

    def _who(self) -> str:
        examples = self.negatives + self.positives
        if self._hidden() is not None:
            return f"{self._counted()}; noise hides the number of examples"
        about = "about " if self._variances else ""
        share = f"{self.positives / examples:.1%}" if examples else "unknown share"
        return f"{self._counted()}, {about}{examples:,} examples, {share} positive"

    def _counted(self) -> str:
        if self._reports == self._clients > 1:  # an intake does not know who sent how many
            return f"{self._clients:,} reports"
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
        p = self._privacy
        if self._reports is not None and p.claim == "enforced":
            claim = "each report was randomised before it was sent"
        if p.epsilon is None:
            return f"privacy            exact sum, no differential privacy; {claim}"
        delta = f", delta {p.delta:.0e}" if p.delta else ""
        promise = f"epsilon {p.epsilon:g}{delta} for one {p.unit} ({p.neighbours})"
        return f"privacy            {promise}; {claim}"

    def _measured(self) -> str:
        axis, size = self._plan.axis, self._plan.bytes_per_client
        whose = "client" if self._reports is None else "report"
        kilobytes = f"{size / 1024:,.0f} KiB" if size >= 1024 else _bytes(size)
        return (
            f"measured           {axis.bins:,} {_AXIS_WORDS[axis.kind]}, {kilobytes} per {whose}, "
            f"plan {self._plan.digest[:8]}"
        )


def _bytes(size: int) -> str:
    return "1 byte" if size == 1 else f"{size} bytes"


_AXIS_WORDS = {
    "uniform": "bins of equal width",
    "logit": "bins of equal width in log-odds",
    "edges": "bins between given edges",
    "values": "known score values",
}


def _areas(distribution: ScoreDistribution) -> tuple[float, float]:
    """Areas under the ROC and the PR curve."""
    roc, pr = curves.roc_curve(distribution), curves.pr_curve(distribution)
    return roc.path.area(), pr.path.area()


def _record_curves(roc: RocCurve, pr: PrCurve) -> CurvesRecord:
    return CurvesRecord(
        roc=RocRecord(roc.fpr.tolist(), roc.tpr.tolist(), thresholds_to_plain(roc.thresholds)),
        pr=PrRecord(pr.precision.tolist(), pr.recall.tolist(), thresholds_to_plain(pr.thresholds)),
    )
