"""`Metrics`: the metrics, curves and calibration of a result, each a row of a registry."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, SupportsFloat

import numpy as np

from fedgauge.metrics import calibration, calibration_tests, decisions, ranking
from fedgauge.metrics.bands import DET, GAIN, PR, PR_GAIN, ROC, Band, BandKind
from fedgauge.metrics.calibration import (
    GROUPS,
    CalibrationCurve,
    ErrorKind,
    Forecasts,
    Groups,
    Strategy,
    calibration_curve,
    calibration_error,
)
from fedgauge.metrics.calibration_tests import (
    BrierDecomposition,
    CalibrationTest,
    brier_decomposition,
    hosmer_lemeshow,
    spiegelhalter,
)
from fedgauge.metrics.curves import DetCurve, GainCurve, PrCurve, PrGainCurve, RocCurve
from fedgauge.metrics.decisions import DecisionCurve
from fedgauge.metrics.estimate import Estimate
from fedgauge.metrics.ranking import Reading
from fedgauge.metrics.thresholds import AtThreshold, choose


class Metrics(ABC):
    """What some negatives and positives can be asked: metrics, curves with bands, calibration."""

    @property
    @abstractmethod
    def _reading(self) -> Reading:
        """What metrics and curves are read from, if the counts say anything."""

    roc_auc = ranking.roc_auc
    average_precision = ranking.average_precision
    auprg = ranking.auprg
    mann_whitney_u = ranking.mann_whitney_u
    ks_statistic = ranking.ks_statistic
    log_loss = ranking.log_loss
    brier_score = ranking.brier_score
    normalized_entropy = ranking.normalized_entropy
    expected_calibration_error = calibration.expected_calibration_error
    maximum_calibration_error = calibration.maximum_calibration_error
    average_calibration_error = calibration.average_calibration_error
    rms_calibration_error = calibration.rms_calibration_error
    calibration_in_the_large = calibration.calibration_in_the_large
    calibration_slope = calibration_tests.calibration_slope
    calibration_intercept = calibration_tests.calibration_intercept
    integrated_calibration_index = calibration_tests.integrated_calibration_index

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

    def partial_auc(self, max_fpr: float, *, standardise: bool = True) -> Estimate:
        """Area under the ROC curve up to a false positive rate.

        Standardised as scikit-learn's ``roc_auc_score(max_fpr=...)`` (McClish 1989), or the
        plain area.
        """
        return ranking.partial_auc(self._reading, max_fpr, standardise=standardise)

    def at_threshold(self, threshold: float) -> AtThreshold:
        """Precision, recall and more when scores from `threshold` up are flagged.

        Examples
        --------
        >>> clients = {"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 0, 1], [0.1, 0.6, 0.4])}
        >>> fg.evaluate(clients).at_threshold(0.5).recall
        Estimate(0.6667, interval 0.2077..0.9385 at 95%)
        """
        return AtThreshold(self._reading.pooled, threshold, self._reading.level)

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
        chosen = choose(
            self._reading.pooled, fpr=fpr, recall=recall, precision=precision, cost=cost
        )
        return self.at_threshold(chosen)

    def threshold_table(self, thresholds: Iterable[float] | None = None) -> list[AtThreshold]:
        """Metrics at several thresholds; by default at up to nine edges over the axis."""
        if thresholds is None:
            axis = self._reading.pooled.axis
            wanted = axis.low + (axis.high - axis.low) * np.arange(1, 10) / 10.0
            near = np.abs(axis.thresholds[:, np.newaxis] - wanted).argmin(axis=0)
            thresholds = axis.thresholds[np.unique(near)].tolist()
        return [self.at_threshold(threshold) for threshold in thresholds]

    def _groups(self, bins: int | Sequence[float], strategy: Strategy) -> Groups:
        """Bins in groups, of scores that are probabilities."""
        return Groups.of(self._reading.once(Forecasts.of), bins, strategy)

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
        >>> curve = fg.evaluate({"a": ([0, 0, 1, 1], [0.2, 0.2, 0.2, 0.9])}).calibration_curve(2)
        >>> curve.observed.round(3).tolist(), curve.count.tolist()
        ([0.333, 1.0], [3.0, 1.0])
        """
        return calibration_curve(self._groups(bins, strategy), self._reading.level)

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
        return calibration_error(self._groups(bins, strategy), kind, self._reading.level)

    def hosmer_lemeshow(
        self, bins: int | Sequence[float] = 10, *, strategy: Strategy = "quantile"
    ) -> CalibrationTest:
        """A test whether scores are calibrated, by groups of bins (Hosmer & Lemeshow 1980)."""
        return hosmer_lemeshow(self._groups(bins, strategy))

    def spiegelhalter(self) -> CalibrationTest:
        """A test whether scores are calibrated, without groups (Spiegelhalter 1986)."""
        return spiegelhalter(self._reading.once(Forecasts.of))

    def brier_decomposition(
        self, bins: int | Sequence[float] = GROUPS, *, strategy: Strategy = "uniform"
    ) -> BrierDecomposition:
        """The Brier score as reliability - resolution + uncertainty (Murphy 1973)."""
        return brier_decomposition(self._groups(bins, strategy), self._reading.level)

    def net_benefit(self, threshold: float) -> Estimate:
        """Net benefit of treating examples that score at least `threshold`, between 0 and 1.

        In true positives for each example, where a false positive counts t / (1 - t) of one
        (Vickers & Elkin 2006). Treating nobody is worth 0.

        Examples
        --------
        >>> clients = {"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 0, 1], [0.1, 0.6, 0.4])}
        >>> round(fg.evaluate(clients).net_benefit(0.25), 4)
        0.4444
        """
        return decisions.net_benefit(self._reading.pooled, threshold, self._reading.level)

    def decision_curve(self, thresholds: Iterable[SupportsFloat] | None = None) -> DecisionCurve:
        """Net benefit along thresholds, and where the model is better than none.

        Parameters
        ----------
        thresholds
            Risks between 0 and 1 from which examples are treated. By default the bin edges nearest
            to 1%, 2%, ..., 99%, and to tenths of the share of positives up to three times it.
        """
        return decisions.decision_curve(self._reading.pooled, thresholds, self._reading.level)


class NamedMetric(NamedTuple):
    """A metric by name: over all thresholds, or at one."""

    name: str
    at: float | None

    @property
    def row(self) -> Any:
        """Its row in the registry."""
        return getattr(Metrics if self.at is None else AtThreshold, self.name)

    def read(self, reading: Reading) -> Estimate:
        """The metric of some negatives and positives."""
        if self.at is None:
            estimate: Estimate = self.row(reading)
        else:
            estimate = getattr(AtThreshold(reading.pooled, self.at, reading.level), self.name)
        return estimate
