"""The result a user holds: curves and numbers on demand, from pooled counts alone."""

from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedgauge.errors import NoSignal, UndefinedMetric, located
from fedgauge.estimation.distribution import (
    Estimator,
    ScoreDistribution,
    estimate,
    require_both_classes,
)
from fedgauge.estimation.pooled import PooledCounts
from fedgauge.estimation.repair import leaf_variance
from fedgauge.measures import bands, curves, estimates
from fedgauge.measures.bands import Band
from fedgauge.measures.curves import DetCurve, GainCurve, PrCurve, PrGainCurve, RocCurve
from fedgauge.measures.intervals import LEVEL, Estimate, check_level
from fedgauge.measures.losses import Positions, positions
from fedgauge.measures.thresholds import AtThreshold, choose
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy import PrivacyStatement
from fedgauge.results.record import (
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

RECORDED: Final = (
    "roc_auc",
    "average_precision",
    "ks_statistic",
    "log_loss",
    "brier_score",
    "normalized_entropy",
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
        level: float = LEVEL,
        sums: NDArray[Any] | None = None,
        reports: int | None = None,
    ) -> None:
        self._plan = plan
        self._privacy = privacy
        self._counts = counts
        self._reports = reports
        self._pooled = PooledCounts(
            plan.axis,
            counts,
            plan.tree,
            plan.noise_variances(clients if reports is None else reports),
            plan.noise_spreads if plan.oracles else None,
        )
        self._sums = sums
        self._clients = clients
        self._estimator = estimator
        self._level = check_level(level)

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
    def level(self) -> float:
        """Confidence of the intervals and, under noise, of the bounds."""
        return self._level

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
        return self._again(estimator=estimator)

    def at_level(self, level: float) -> "Evaluation":
        """The same result with intervals of another confidence, such as 0.9."""
        return self._again(level=level)

    def _again(self, **changed: Any) -> "Evaluation":
        kept = {
            "clients": self._clients,
            "estimator": self._estimator,
            "level": self._level,
            "sums": self._sums,
            "reports": self._reports,
        }
        return Evaluation(self._plan, self._privacy, self._counts, **{**kept, **changed})

    @cached_property
    def _signal(self) -> PooledCounts:
        """The counts, if they say anything."""
        hidden = self._pooled.hidden
        if hidden is not None:
            raise NoSignal(
                f"no signal: the noise (standard deviation {self._pooled.spread_of_totals:,.0f}) "
                f"hides the number of {hidden}. Use a larger epsilon, more examples, or fewer "
                "bins or levels."
            )
        return self._pooled

    @cached_property
    def _positions(self) -> Positions | None:
        """Where in the bins the scores lie, if that was measured."""
        if self._sums is None:
            return None
        law = self._plan.sums_law(shares=self._clients)
        return positions(
            self._pooled.counts,
            self._sums,
            self._plan.sum_steps,
            noise=(
                (law.variance, leaf_variance(self._plan.tree, self._pooled.variances))
                if law is not None
                else None
            ),
        )

    @cached_property
    def _distribution(self) -> ScoreDistribution:
        return estimate(self._plan.axis, self._signal.released, self._estimator)

    def roc_curve(self) -> RocCurve:
        """The ROC curve: knots, and a callable between them."""
        return curves.roc_curve(self._distribution)

    def pr_curve(self) -> PrCurve:
        """The PR curve: knots, and a callable between them."""
        return curves.pr_curve(self._distribution)

    def det_curve(self) -> DetCurve:
        """The DET curve: false negative rate against false positive rate."""
        return curves.det_curve(self.roc_curve())

    def prg_curve(self) -> PrGainCurve:
        """The precision-recall-gain curve (Flach & Kull 2015)."""
        return curves.prg_curve(self._distribution)

    def gain_curve(self) -> GainCurve:
        """Recall against the share of examples flagged; also the lift."""
        return curves.gain_curve(self._distribution)

    def roc_band(self, kind: bands.Kind = "simultaneous") -> Band:
        """Where the ROC curve of the population lies.

        Parameters
        ----------
        kind
            ``"simultaneous"`` holds the whole curve, without noise for any sample size.
            ``"pointwise"``, from a bootstrap and Wilson's interval, holds its value at each
            single abscissa; not to be relied on near the ends or with few examples.
        """
        return bands.roc_band(self._signal, self.roc_curve(), self._level, kind)

    def pr_band(self, kind: bands.Kind = "simultaneous") -> Band:
        """Where the PR curve of the population lies; `kind` as for :meth:`roc_band`."""
        return bands.pr_band(self._signal, self.roc_curve(), self._level, kind)

    def det_band(self, kind: bands.Kind = "simultaneous") -> Band:
        """Where the DET curve of the population lies; `kind` as for :meth:`roc_band`."""
        return bands.det_band(self._signal, self.roc_curve(), self._level, kind)

    def prg_band(self, kind: bands.Kind = "simultaneous") -> Band:
        """Where the precision-recall-gain curve lies, the share of positives taken as known."""
        return bands.prg_band(self._signal, self.roc_curve(), self._level, kind)

    def gain_band(self, kind: bands.Kind = "simultaneous") -> Band:
        """Where the cumulative gain curve of the population lies."""
        return bands.gain_band(self._signal, self.roc_curve(), self._level, kind)

    @cached_property
    def roc_auc(self) -> Estimate:
        """Area under the ROC curve."""
        return estimates.roc_auc(self._signal, self._distribution, self._level)

    @cached_property
    def average_precision(self) -> Estimate:
        """Average precision, the area under the PR curve."""
        return estimates.average_precision(self._signal, self._distribution, self._level)

    @cached_property
    def auprg(self) -> Estimate:
        """Area under the precision-recall-gain curve."""
        return estimates.gain_area(self._signal, self._distribution, self._level)

    def partial_auc(self, max_fpr: float, *, standardise: bool = True) -> Estimate:
        """Area under the ROC curve up to a false positive rate.

        Standardised as scikit-learn's ``roc_auc_score(max_fpr=...)`` (McClish 1989), or the
        plain area.
        """
        return estimates.partial_auc(
            self._signal, self._distribution, self._level, max_fpr, standardise=standardise
        )

    @cached_property
    def mann_whitney_u(self) -> Estimate:
        """Pairs of a positive and a negative that are in order, ties counting half."""
        return estimates.mann_whitney_u(self.roc_auc, self._signal)

    @cached_property
    def ks_statistic(self) -> Estimate:
        """Kolmogorov-Smirnov distance: the largest difference of the two rates."""
        require_both_classes(self._signal.negatives, self._signal.positives)
        return estimates.largest_gap(self._signal, self._level)

    @cached_property
    def log_loss(self) -> Estimate:
        """Mean negative log-likelihood of the labels, in nats."""
        return estimates.mean_loss(self._signal, self._level, "log", self._positions)

    @cached_property
    def brier_score(self) -> Estimate:
        """Mean squared difference of score and label."""
        return estimates.mean_loss(self._signal, self._level, "squared", self._positions)

    @cached_property
    def normalized_entropy(self) -> Estimate:
        """Log loss over that of always predicting the share of positives; below 1 is better."""
        return estimates.normalized_entropy(self._signal, self._level, self._positions)

    def at_threshold(self, threshold: float) -> AtThreshold:
        """Precision, recall and more when scores from `threshold` up are flagged.

        Examples
        --------
        >>> import fedgauge as fg
        >>> clients = {"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 0, 1], [0.1, 0.6, 0.4])}
        >>> fg.evaluate(clients).at_threshold(0.5).recall
        Estimate(0.6667, interval 0.2077..0.9385 at 95%)
        """
        return AtThreshold(self._signal, threshold, self._level)

    def threshold_for(
        self,
        *,
        fpr: float | None = None,
        recall: float | None = None,
        precision: float | None = None,
        cost: tuple[float, float] | None = None,
    ) -> AtThreshold:
        """The bin edge that does what is wanted, and the metrics there.

        Parameters
        ----------
        fpr
            At most this false positive rate, with the highest recall.
        recall
            At least this recall, with the lowest false positive rate.
        precision
            At least this precision, with the highest recall.
        cost
            Of a false positive and of a false negative: the least total cost.

        Returns
        -------
        AtThreshold
            Its `threshold` is a bin edge, where counts are exact without noise; or infinity,
            which flags nothing; or on an axis that clips minus infinity, which flags all, in
            place of its lowest edge. Of equally good ones it is the highest.
        """
        chosen = choose(self._signal, fpr=fpr, recall=recall, precision=precision, cost=cost)
        return self.at_threshold(chosen)

    def threshold_table(self, thresholds: Iterable[float] | None = None) -> list[AtThreshold]:
        """Metrics at several thresholds; by default at up to nine edges over the axis."""
        if thresholds is None:
            axis = self._plan.axis
            wanted = axis.low + (axis.high - axis.low) * np.arange(1, 10) / 10.0
            near = np.abs(axis.thresholds[:, np.newaxis] - wanted).argmin(axis=0)
            thresholds = axis.thresholds[np.unique(near)].tolist()
        return [self.at_threshold(threshold) for threshold in thresholds]

    @cached_property
    def record(self) -> Record:
        """The result as plain data."""
        (slice_,) = self._plan.task.slices
        found: dict[str, MetricRecord] = {}
        for name in RECORDED:
            with suppress(UndefinedMetric):
                found[name] = MetricRecord.of(getattr(self, name))
        drawn = CurvesRecord()
        with suppress(UndefinedMetric):
            drawn = _record_curves(self.roc_curve(), self.pr_curve())
        part = SliceRecord(
            model=slice_.model,
            group=slice_.group,
            label=slice_.label,
            counts=self._counts.tolist(),
            variances=self._leaf_variances(),
            metrics=found,
            curves=drawn,
            score_sums=None if self._sums is None else self._sums.tolist(),
        )
        return Record(
            FORMAT,
            self._plan,
            self._privacy,
            self._estimator,
            self._clients,
            [part],
            reports=self._reports,
            level=self._level,
        )

    def _leaf_variances(self) -> list[list[float]] | None:
        if not self._pooled.noisy:
            return None
        rows: list[list[float]] = self._pooled.leaf_variances.tolist()
        return rows

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
            level=record.level,
            sums=None if part.score_sums is None else np.array(part.score_sums),
            reports=record.reports,
        )

    def __str__(self) -> str:
        return "\n".join([self._who(), *self._found(), self._protected(), self._measured()])

    def __repr__(self) -> str:
        examples = self.negatives + self.positives
        return f"<Evaluation of {examples:,} examples at {self._counted()}>"

    def _who(self) -> str:
        examples = self.negatives + self.positives
        if self._pooled.hidden is not None:
            return f"{self._counted()}; noise hides the number of examples"
        about = "about " if self._pooled.noisy else ""
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


def _record_curves(roc: RocCurve, pr: PrCurve) -> CurvesRecord:
    return CurvesRecord(
        roc=RocRecord(roc.fpr.tolist(), roc.tpr.tolist(), thresholds_to_plain(roc.thresholds)),
        pr=PrRecord(pr.precision.tolist(), pr.recall.tolist(), thresholds_to_plain(pr.thresholds)),
    )
