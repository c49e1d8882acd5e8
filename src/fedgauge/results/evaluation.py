"""The result a user holds: curves and numbers on demand, from pooled counts alone."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, SupportsFloat

import numpy as np
from msgspec import UNSET

from fedgauge import notebook
from fedgauge.binning.calibrator import Calibrator, Fitted
from fedgauge.errors import NoSignal, UndefinedMetric, located
from fedgauge.estimation import crowded, impossible
from fedgauge.estimation.distribution import Estimator
from fedgauge.estimation.pooled import PooledCounts
from fedgauge.estimation.regrouped import mapped
from fedgauge.estimation.released import Released
from fedgauge.estimation.repair import leaf_variance
from fedgauge.keys import SigningKey
from fedgauge.measures import benefit, calibrators, estimates, recalibration
from fedgauge.measures.bands import Band, BandKind
from fedgauge.measures.benefit import DecisionCurve
from fedgauge.measures.brier import BrierDecomposition, brier_decomposition
from fedgauge.measures.calibration import (
    CalibrationCurve,
    ErrorKind,
    calibration_curve,
    calibration_error,
    calibration_in_the_large,
)
from fedgauge.measures.curves import DetCurve, GainCurve, PrCurve, PrGainCurve, RocCurve
from fedgauge.measures.forecasts import Forecasts
from fedgauge.measures.goodness import CalibrationTest, hosmer_lemeshow, spiegelhalter
from fedgauge.measures.groups import GROUPS, Groups, Strategy
from fedgauge.measures.intervals import LEVEL, Estimate, check_level
from fedgauge.measures.kinds import DET, GAIN, PR, PR_GAIN, ROC
from fedgauge.measures.losses import Positions, positions
from fedgauge.measures.metric import metric
from fedgauge.measures.reading import Reading
from fedgauge.measures.thresholds import AtThreshold, choose
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy import PrivacyStatement
from fedgauge.results.frame import Backend, metrics_frame, thresholds_frame
from fedgauge.results.proof import Signature, examine, follows, prove
from fedgauge.results.record import Record
from fedgauge.results.recording import facts_of, record_of
from fedgauge.results.verdict import counted, promise, verdict
from fedgauge.secagg import Confirmed
from fedgauge.storage.whole import read_whole, write_whole


class Evaluation:
    """A pooled evaluation of a classifier.

    Made by :func:`fedgauge.evaluate` or :meth:`from_json`. It holds the plan, the pooled
    counts and what may be claimed about privacy; everything else follows from these.
    """

    def __init__(
        self,
        plan: EvaluationPlan,
        privacy: PrivacyStatement,
        released: Released,
        *,
        estimator: Estimator,
        level: float = LEVEL,
        proof: Any = None,
        calibrator: Calibrator | None = None,
    ) -> None:
        self._plan = plan
        self._privacy = privacy
        self._released = released
        (self._slice,) = plan.task.slices
        self._counts = PooledCounts.of(plan, released, self._slice)
        self._calibrator = calibrator
        self._pooled = self._counts if calibrator is None else mapped(self._counts, calibrator)
        self._estimator = estimator
        self._level = check_level(level)
        self._proof = proof
        self._saved: bytes | None = None  # what it was read from
        self._origin = self  # what it is another reading of

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
        return self._released.clients

    @property
    def reports(self) -> int | None:
        """Number of local reports, which is public; None unless under local DP."""
        return self._released.reports

    @property
    def released(self) -> Released:
        """What the result is made of: counts as they reached the server."""
        return self._released

    @property
    def pooled(self) -> PooledCounts:
        """The counts of both classes, and the noise in them; of mapped scores under a map."""
        return self._pooled

    @property
    def estimator(self) -> Estimator:
        """How curves are drawn between the bin edges."""
        return self._estimator

    @property
    def mapped_by(self) -> Calibrator | None:
        """The map that scores are read through; None where they are as the model gave them."""
        return self._calibrator

    @property
    def in_sample(self) -> bool:
        """Whether the map it is read through was fitted on these very counts.

        Its numbers then flatter it: what it learned by chance counts as right.
        """
        fitted = None if self._calibrator is None else self._calibrator.fitted
        return fitted is not None and fitted.source == self._released.digest

    @property
    def level(self) -> float:
        """Confidence of the intervals and, under noise, of the bounds."""
        return self._level

    @cached_property
    def caution(self) -> str | None:
        """Why the counts are not to be relied on, where noise does not explain them.

        They are such as no rows have, or an end bin is crowded with both classes, as by scores in
        percent on an axis from 0 to 1. Of sites that counted rows, and have no such crowd, at most
        one result in a million has the one, and one the other. Not saved: it follows from the
        counts.
        """
        told = (
            impossible.caution(self._plan, self._released),
            crowded.caution(self._plan, self._released, self._counts),
        )
        return " ".join(each for each in told if each) or None

    @property
    def proof(self) -> Any:
        """What shows who made the result, as plain data; None where nothing does."""
        return self._proof

    @property
    def signature(self) -> Signature:
        """Whether the result is what its coordinator signed and its members confirmed.

        Whose key signed it is left open: ``result.signature.by({key: name})`` compares it with
        keys that you know.
        """
        return self._origin._examined

    @cached_property
    def _examined(self) -> Signature:
        facts = facts_of(self)
        signature = examine(self._saved or facts.to_json(), facts)
        if signature.state != "unknown key" or self._saved is None:
            return signature
        if not follows(self._saved, self.record):
            return signature.as_broken("its metrics or curves are not those of its counts")
        return signature

    def signed(self, confirmed: Confirmed, key: SigningKey) -> "Evaluation":
        """The same result with a proof: what members confirmed, and the coordinator's signature."""
        return Evaluation(
            self._plan,
            self._privacy,
            self._released,
            estimator=self._estimator,
            level=self._level,
            proof=prove(facts_of(self), confirmed, key),
            calibrator=self._calibrator,
        )

    @property
    def negatives(self) -> int:
        """Number of negative examples; an estimate under differential privacy."""
        return max(0, round(float(self._counts.released[0].sum())))

    @property
    def positives(self) -> int:
        """Number of positive examples; an estimate under differential privacy."""
        return max(0, round(float(self._counts.released[1].sum())))

    def with_estimator(self, estimator: Estimator) -> "Evaluation":
        """The same counts read by another estimator."""
        return self._again(estimator, self._level, self._calibrator)

    def at_level(self, level: float) -> "Evaluation":
        """The same result with intervals of another confidence, such as 0.9."""
        return self._again(self._estimator, level, self._calibrator)

    def with_calibrator(self, calibrator: Calibrator | None) -> "Evaluation":
        """The same result as if every score had been mapped before it was counted.

        Judges a map without new data, on the counts of a result it was not fitted on. Losses,
        calibration and thresholds are then those of mapped scores. Ranks, and so ROC curve and
        AUC, stay where the map always rises; scores that it sends to one value tie.

        A plan that has a map of its own counted scores it had mapped already: this one maps those.
        Score sums say nothing of mapped scores and are left out. A bin within which the map steps,
        or stops rising, is divided as its neighbours suggest; bounds hold for any division, but
        those of calibration measures, which take the likely one.

        Parameters
        ----------
        calibrator
            The map. It takes the place of one the result was read through; None reads scores as
            they were counted.

        Examples
        --------
        >>> import fedgauge as fg
        >>> from fedgauge.binning.calibrator import Beta
        >>> result = fg.evaluate({"a": ([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])})
        >>> softer = fg.Calibrator("temperature", Beta(0.5, 0.5, 0.0))
        >>> after = result.with_calibrator(softer)
        >>> round(result.brier_score.value, 3), round(after.brier_score.value, 3)
        (0.158, 0.177)
        >>> result.roc_auc.value == after.roc_auc.value
        True
        """
        return self._again(self._estimator, self._level, calibrator)

    def _again(
        self, estimator: Estimator, level: float, calibrator: Calibrator | None
    ) -> "Evaluation":
        result = Evaluation(
            self._plan,
            self._privacy,
            self._released,
            estimator=estimator,
            level=level,
            proof=self._proof,
            calibrator=calibrator,
        )
        result._origin = self._origin
        return result

    @cached_property
    def _signal(self) -> PooledCounts:
        """The counts, if they say anything."""
        hidden = self._pooled.hidden
        if hidden is not None:
            deviation = self._pooled.deviation_of_totals
            raise NoSignal(
                f"no signal: the noise (standard deviation {deviation:,.0f}) hides the number of "
                f"{hidden}. Use a larger epsilon, more examples, or fewer bins or levels."
            )
        return self._pooled

    @cached_property
    def _positions(self) -> Positions | None:
        """Where in the bins the scores lie, if that was measured and no map moved them."""
        if self._released.sums is None or self._calibrator is not None:
            return None
        law = self._plan.sums_law(shares=self._released.clients)
        return positions(
            self._counts.counts,
            self._released.sums[list(self._plan.task.contrast(self._slice))],
            self._plan.sum_steps,
            noise=(
                (law.variance, leaf_variance(self._plan.tree, self._counts.variances))
                if law is not None
                else None
            ),
            merged=self._released.axis != self._plan.axis,
        )

    @cached_property
    def _reading(self) -> Reading:
        """What metrics and curves are read from, if the counts say anything."""
        return Reading(self._signal, self._estimator, self._level, self._positions)

    def roc_curve(self) -> RocCurve:
        """The ROC curve: knots, and a callable between them."""
        return ROC.make(self._reading.distribution)

    def pr_curve(self) -> PrCurve:
        """The PR curve: knots, and a callable between them."""
        return PR.make(self._reading.distribution)

    def det_curve(self) -> DetCurve:
        """The DET curve: false negative rate against false positive rate."""
        return DET.make(self._reading.distribution)

    def prg_curve(self) -> PrGainCurve:
        """The precision-recall-gain curve (Flach & Kull 2015)."""
        return PR_GAIN.make(self._reading.distribution)

    def gain_curve(self) -> GainCurve:
        """Recall against the share of examples flagged; also the lift."""
        return GAIN.make(self._reading.distribution)

    def roc_band(self, kind: BandKind = "simultaneous") -> Band:
        """Where the ROC curve of the population lies.

        Parameters
        ----------
        kind
            ``"simultaneous"`` holds the whole curve, without noise for any sample size.
            ``"pointwise"``, from a bootstrap and Wilson's interval, holds its value at each
            single abscissa; not to be relied on near the ends or with few examples.
        """
        return ROC.band(self._reading, kind)

    def pr_band(self, kind: BandKind = "simultaneous") -> Band:
        """Where the PR curve of the population lies; `kind` as for :meth:`roc_band`."""
        return PR.band(self._reading, kind)

    def det_band(self, kind: BandKind = "simultaneous") -> Band:
        """Where the DET curve of the population lies; `kind` as for :meth:`roc_band`."""
        return DET.band(self._reading, kind)

    def prg_band(self, kind: BandKind = "simultaneous") -> Band:
        """Where the precision-recall-gain curve lies, the share of positives taken as known."""
        return PR_GAIN.band(self._reading, kind)

    def gain_band(self, kind: BandKind = "simultaneous") -> Band:
        """Where the cumulative gain curve of the population lies."""
        return GAIN.band(self._reading, kind)

    @metric("ROC AUC", recorded=True)
    def roc_auc(self) -> Estimate:
        """Area under the ROC curve."""
        return estimates.roc_auc(self._reading)

    @metric("average precision", recorded=True)
    def average_precision(self) -> Estimate:
        """Average precision, the area under the PR curve."""
        return estimates.average_precision(self._reading)

    @metric("PR-gain area")
    def auprg(self) -> Estimate:
        """Area under the precision-recall-gain curve."""
        return estimates.auprg(self._reading)

    def partial_auc(self, max_fpr: float, *, standardise: bool = True) -> Estimate:
        """Area under the ROC curve up to a false positive rate.

        Standardised as scikit-learn's ``roc_auc_score(max_fpr=...)`` (McClish 1989), or the
        plain area.
        """
        return estimates.partial_auc(self._reading, max_fpr, standardise=standardise)

    @metric("Mann-Whitney U", listed=False)
    def mann_whitney_u(self) -> Estimate:
        """Pairs of a positive and a negative that are in order, ties counting half."""
        return estimates.mann_whitney_u(self._reading, self.roc_auc)

    @metric("KS distance", recorded=True)
    def ks_statistic(self) -> Estimate:
        """Kolmogorov-Smirnov distance: the largest difference of the two rates."""
        return estimates.largest_gap(self._reading)

    @metric("log loss", recorded=True)
    def log_loss(self) -> Estimate:
        """Mean negative log-likelihood of the labels, in nats."""
        return estimates.mean_loss(self._reading, "log")

    @metric("Brier score", recorded=True)
    def brier_score(self) -> Estimate:
        """Mean squared difference of score and label."""
        return estimates.mean_loss(self._reading, "squared")

    @metric("normalized entropy", recorded=True)
    def normalized_entropy(self) -> Estimate:
        """Log loss over that of always predicting the share of positives; below 1 is better."""
        return estimates.normalized_entropy(self._reading)

    @cached_property
    def _forecasts(self) -> Forecasts:
        """Scores as forecasts, if they are probabilities."""
        return Forecasts.of(self._reading)

    def calibrator(self, method: str = "auto") -> Calibrator:
        """A map from scores to calibrated probabilities, fitted to the counts.

        It costs no privacy beyond the result. What it does to the same examples flatters it:
        judge it on others.

        Parameters
        ----------
        method
            ``"auto"``, a beta curve that is moved where the counts contradict it; ``"beta"``,
            ``"isotonic"``, ``"platt"``, ``"temperature"``, ``"binning"``, ``"bbq"`` or
            ``"scaling-binning"``.

        Examples
        --------
        >>> import fedgauge as fg
        >>> labels, scores = [0, 1, 0, 1, 1] * 200, [0.1, 0.1, 0.6, 0.6, 0.9] * 200
        >>> calibrator = fg.evaluate({"a": (labels, scores)}).calibrator("isotonic")
        >>> calibrator.transform([0.1, 0.6, 0.9]).round(3)
        array([0.5, 0.5, 1. ])
        """
        form = calibrators.fit(self._forecasts, method)
        fitted = Fitted(
            self.negatives + self.positives,
            self.positives,
            promise(self) or "no differential privacy",
            self._privacy.epsilon,
            self._privacy.delta,
            self._plan.digest,
            self._released.digest,
            calibrators.caution(self._forecasts) or "",
        )
        return Calibrator(method, form, fitted)

    def calibration_curve(
        self, bins: int | Sequence[float] = GROUPS, *, strategy: Strategy = "uniform"
    ) -> CalibrationCurve:
        """Share of positives against mean score, by groups of bins: a reliability diagram.

        Parameters
        ----------
        bins
            How many groups, or their edges from 0 to 1. Bins are not divided: each belongs to the
            group that its mean score lies in.
        strategy
            ``"uniform"`` for groups of equal width, ``"quantile"`` for groups with as many
            examples each.

        Examples
        --------
        >>> import fedgauge as fg
        >>> curve = fg.evaluate({"a": ([0, 0, 1, 1], [0.2, 0.2, 0.2, 0.9])}).calibration_curve(2)
        >>> curve.observed.round(3).tolist(), curve.count.tolist()
        ([0.333, 1.0], [3.0, 1.0])
        """
        return calibration_curve(Groups.of(self._forecasts, bins, strategy), self._level)

    def calibration_error(
        self,
        kind: ErrorKind = "expected",
        *,
        bins: int | Sequence[float] = GROUPS,
        strategy: Strategy = "uniform",
    ) -> Estimate:
        """How far the scores are from what comes true.

        The value and its interval are those of the population. The plain number that other
        packages compute from the same examples is above 0 also for scores that are right; it lies
        within `bounds`, and on :meth:`calibration_curve`.

        Parameters
        ----------
        kind
            ``"expected"``: the mean distance over examples (ECE). ``"maximum"``: the largest of a
            group. ``"average"``: the mean over groups. ``"rms"``: the root mean square over
            examples.
        bins, strategy
            As for :meth:`calibration_curve`.
        """
        return calibration_error(Groups.of(self._forecasts, bins, strategy), kind, self._level)

    @metric("expected calibration error", recorded=True)
    def expected_calibration_error(self) -> Estimate:
        """Mean distance of scores from what comes true, in 15 groups of equal width (ECE)."""
        return self.calibration_error("expected")

    @metric("maximum calibration error")
    def maximum_calibration_error(self) -> Estimate:
        """The largest distance of one of 15 groups of equal width (MCE)."""
        return self.calibration_error("maximum")

    @metric("average calibration error", listed=False)
    def average_calibration_error(self) -> Estimate:
        """Mean distance over 15 groups of equal width (ACE)."""
        return self.calibration_error("average")

    @metric("RMS calibration error")
    def rms_calibration_error(self) -> Estimate:
        """Root mean square distance over examples, in 15 groups of equal width."""
        return self.calibration_error("rms")

    @metric("calibration in the large", recorded=True)
    def calibration_in_the_large(self) -> Estimate:
        """Share of positives less the mean score."""
        return calibration_in_the_large(self._forecasts, self._level)

    @cached_property
    def _line(self) -> recalibration.Line:
        return recalibration.line(self._forecasts, self._level)

    @metric("calibration slope")
    def calibration_slope(self) -> Estimate:
        """Slope of the log-odds of a positive in those of the score: 1 where scores are right."""
        return self._line.slope

    @metric("calibration intercept")
    def calibration_intercept(self) -> Estimate:
        """Intercept beside that slope: 0 where scores are right."""
        return self._line.intercept

    @metric("integrated calibration index")
    def integrated_calibration_index(self) -> Estimate:
        """Mean distance of scores from a smooth curve of what comes true (ICI)."""
        return recalibration.integrated_index(self._forecasts, self._level)

    def hosmer_lemeshow(
        self, bins: int | Sequence[float] = 10, *, strategy: Strategy = "quantile"
    ) -> CalibrationTest:
        """A test whether scores are calibrated, by groups of bins (Hosmer & Lemeshow 1980)."""
        return hosmer_lemeshow(Groups.of(self._forecasts, bins, strategy))

    def spiegelhalter(self) -> CalibrationTest:
        """A test whether scores are calibrated, without groups (Spiegelhalter 1986)."""
        return spiegelhalter(self._forecasts)

    def brier_decomposition(
        self, bins: int | Sequence[float] = GROUPS, *, strategy: Strategy = "uniform"
    ) -> BrierDecomposition:
        """The Brier score as reliability - resolution + uncertainty (Murphy 1973)."""
        return brier_decomposition(Groups.of(self._forecasts, bins, strategy), self._level)

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
            axis = self._pooled.axis
            wanted = axis.low + (axis.high - axis.low) * np.arange(1, 10) / 10.0
            near = np.abs(axis.thresholds[:, np.newaxis] - wanted).argmin(axis=0)
            thresholds = axis.thresholds[np.unique(near)].tolist()
        return [self.at_threshold(threshold) for threshold in thresholds]

    def net_benefit(self, threshold: float) -> Estimate:
        """Net benefit of treating examples that score at least `threshold`, between 0 and 1.

        In true positives for each example, where a false positive counts t / (1 - t) of one
        (Vickers & Elkin 2006). Treating nobody is worth 0.

        Examples
        --------
        >>> import fedgauge as fg
        >>> clients = {"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 0, 1], [0.1, 0.6, 0.4])}
        >>> round(fg.evaluate(clients).net_benefit(0.25), 4)
        0.4444
        """
        return benefit.net_benefit(self._signal, threshold, self._level)

    def decision_curve(self, thresholds: Iterable[SupportsFloat] | None = None) -> DecisionCurve:
        """Net benefit along thresholds, and where the model is better than none.

        Parameters
        ----------
        thresholds
            Risks between 0 and 1 from which examples are treated. By default the bin edges nearest
            to 1%, 2%, ..., 99%, and to tenths of the share of positives up to three times it.
        """
        return benefit.decision_curve(self._signal, thresholds, self._level)

    def to_frame(
        self, thresholds: Iterable[SupportsFloat] | None = None, *, backend: Backend = "pandas"
    ) -> Any:
        """The metrics as a data frame, one row for each.

        Its columns are `metric`, `value`, the interval (`low`, `high`), the bounds (`pooled_low`,
        `pooled_high`), `level` and `caution`; what an estimate does not have is missing, and a
        metric that the counts do not define has no value.

        Parameters
        ----------
        thresholds
            Metrics and outcomes at these thresholds, with a column `threshold`, in place of those
            over all thresholds. What :meth:`threshold_table` gives will do.
        backend
            Whose data frame it is: ``"pandas"``, ``"polars"`` or ``"pyarrow"``.

        Examples
        --------
        >>> import fedgauge as fg
        >>> result = fg.evaluate({"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 1], [0.1, 0.4])})
        >>> frame = result.to_frame(thresholds=[0.3, 0.5])
        >>> frame[frame["metric"] == "recall"][["threshold", "value"]].round(3).values.tolist()
        [[0.3, 1.0], [0.5, 0.667]]
        """
        if thresholds is None:
            return metrics_frame(self, backend)
        return thresholds_frame(self.threshold_table(map(float, thresholds)), backend)

    @cached_property
    def record(self) -> Record:
        """The result as plain data."""
        return record_of(self)

    def to_json(self, path: str | Path) -> None:
        """Save the result."""
        write_whole(path, self.record.to_json())

    @classmethod
    def from_json(cls, path: str | Path) -> "Evaluation":
        """Load a saved result."""
        data = read_whole(path)
        with located(str(path)):
            record = Record.from_json(data)
        result = cls(
            record.plan,
            record.privacy,
            record.released(),
            estimator=record.estimator,
            level=record.level,
            proof=None if record.proof is UNSET else record.proof,
            calibrator=None if record.calibrator is UNSET else record.calibrator,
        )
        result._saved = data
        return result

    def __getstate__(self) -> dict[str, Any]:
        # With metrics that were asked for, but without the arrays they were computed from.
        return {
            name: value
            for name, value in vars(self).items()
            if type(getattr(Evaluation, name, None)) is not cached_property
        }

    def __str__(self) -> str:
        return verdict(self)

    def __repr__(self) -> str:
        examples = self.negatives + self.positives
        try:
            auc = str(self.roc_auc)
        except UndefinedMetric:
            auc = "undefined"
        return f"<Evaluation of {examples:,} examples at {counted(self)}: ROC AUC {auc}>"

    def _repr_html_(self) -> str:
        who, *lines = verdict(self).splitlines()
        parts = (line.partition("  ") for line in lines)
        return notebook.table(((title, words.strip()) for title, _, words in parts), caption=who)
