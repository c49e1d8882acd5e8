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
from fedgauge.results.summary import ThresholdTable


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
        """The ROC curve: knots, and a callable between them.

        Formula: T against F. It unpacks into fpr, tpr and thresholds. Called with F it gives T;
        where the curve is vertical, the upper end.

        Source: Fawcett 2006.
        """
        return ROC.make(self._reading.distribution)

    def pr_curve(self) -> PrCurve:
        """The PR curve: knots, and a callable between them.

        Formula: precision against recall. It unpacks into precision, recall and thresholds. Called
        with a recall it gives the precision at the highest threshold that reaches it.

        Source: Davis & Goadrich 2006.
        """
        return PR.make(self._reading.distribution)

    def det_curve(self) -> DetCurve:
        """The DET curve: false negative rate against false positive rate.

        Formula: 1 - T against F. It unpacks into fpr, fnr and thresholds. Called with F it gives
        1 - T.

        Source: Martin et al. 1997.
        """
        return DET.make(self._reading.distribution)

    def prg_curve(self) -> PrGainCurve:
        """The precision-recall-gain curve.

        Formula: precision gain ``1 - F / T`` against recall gain ``1 + r - r / T``, with
        ``r = n+ / n-``. It unpacks into precision gain, recall gain and thresholds. Called with a
        recall gain it gives the precision gain.

        Source: Flach & Kull 2015.
        """
        return PR_GAIN.make(self._reading.distribution)

    def gain_curve(self) -> GainCurve:
        """Recall against the share of examples flagged; also the lift.

        Formula: T against the share flagged. It unpacks into flagged, recall and thresholds. Called
        with a share it gives T, and ``lift(share)`` gives T / share.

        Source: Piatetsky-Shapiro & Steingold 2000.
        """
        return GAIN.make(self._reading.distribution)

    def roc_band(self, kind: BandKind = "simultaneous") -> Band:
        """Where the ROC curve of the population lies.

        Simultaneous: Kolmogorov's bounds for both classes (Campbell 1994), each at the root of the
        level. They move the curve up and down for the positives, sideways for the negatives.

        Pointwise: percentiles of 300 draws, and Wilson's interval (Wilson 1927) of the rate.

        Parameters
        ----------
        kind
            ``"simultaneous"`` holds the whole curve, without noise for any sample size.
            ``"pointwise"``, from a bootstrap and Wilson's interval, holds its value at each single
            abscissa, but not reliably near the ends or with few examples.
        """
        return ROC.band(self._reading, kind)

    def pr_band(self, kind: BandKind = "simultaneous") -> Band:
        """Where the PR curve of the population lies; `kind` as for :meth:`roc_band`.

        Simultaneous: Kolmogorov's bounds for F at each recall, and Wilson's interval of the share
        of positives: three intervals, each at the cube root of the level.

        Pointwise: percentiles of 300 draws, and Wilson's interval of precision.
        """
        return PR.band(self._reading, kind)

    def det_band(self, kind: BandKind = "simultaneous") -> Band:
        """Where the DET curve of the population lies; `kind` as for :meth:`roc_band`.

        Simultaneous: the band of the ROC curve turned over.

        Pointwise: the same.
        """
        return DET.band(self._reading, kind)

    def prg_band(self, kind: BandKind = "simultaneous") -> Band:
        """Where the precision-recall-gain curve lies, the share of positives taken as known.

        Simultaneous: Kolmogorov's bounds for F at each recall.

        Pointwise: percentiles of 300 draws, and Wilson's interval of F.
        """
        return PR_GAIN.band(self._reading, kind)

    def gain_band(self, kind: BandKind = "simultaneous") -> Band:
        """Where the cumulative gain curve of the population lies.

        Simultaneous: the band of the ROC curve at level^(2/3), along both ends of the interval of
        the share of positives.

        Pointwise: percentiles of 300 draws, and Wilson's interval of recall.
        """
        return GAIN.band(self._reading, kind)

    def partial_auc(self, max_fpr: float, *, standardise: bool = True) -> Estimate:
        """Area under the ROC curve up to a false positive rate.

        Standardised as scikit-learn's ``roc_auc_score(max_fpr=...)``, or the plain area.

        Formula: A, the area over F from 0 to m. Standardised
        ``(1 + (A - m^2 / 2) / (m - m^2 / 2)) / 2``, which is 0.5 for chance.

        Source: McClish 1989.

        Bounds: paths that take the positives of each bin first, or its negatives.

        Interval: percentiles of 200 draws of examples and noise.

        Beware: few examples, or hardly any misplaced; m times ``n-`` only a handful of examples;
        highest bins that hold more than a share m of the negatives.
        """
        return ranking.partial_auc(self._reading, max_fpr, standardise=standardise)

    def at_threshold(self, threshold: float) -> AtThreshold:
        """Precision, recall and more when scores from `threshold` up are flagged.

        Examples
        --------
        >>> clients = {"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 0, 1], [0.1, 0.6, 0.4])}
        >>> fg.evaluate(clients).at_threshold(0.5).recall
        Estimate(0.6667, interval 0.2077..0.9829 at 95%)
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
            At the highest of equally good bin edges, with a caution where a class has fewer than 50
            examples: the best of many is partly luck. Infinity flags nothing; on an axis that
            clips, minus infinity takes the place of the lowest edge and flags all.
        """
        pooled = self._reading.pooled
        chosen = choose(pooled, fpr=fpr, recall=recall, precision=precision, cost=cost)
        return AtThreshold(pooled, chosen, self._reading.level, chosen=True)

    def threshold_table(self, thresholds: Iterable[float] | None = None) -> ThresholdTable:
        """Metrics at several thresholds; by default at up to nine edges over the axis.

        It is a list of :class:`AtThreshold`, and ``.to_frame()`` makes a data frame of it.

        Examples
        --------
        >>> result = fg.evaluate({"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 1], [0.1, 0.4])})
        >>> result.threshold_table([0.3, 0.5]).to_frame()[["threshold", "recall", "tp"]]
           threshold    recall   tp
        0        0.3  1.000000  3.0
        1        0.5  0.666667  2.0
        """
        if thresholds is None:
            axis = self._reading.pooled.axis
            wanted = axis.low + (axis.high - axis.low) * np.arange(1, 10) / 10.0
            near = np.abs(axis.thresholds[:, np.newaxis] - wanted).argmin(axis=0)
            thresholds = axis.thresholds[np.unique(near)].tolist()
        return ThresholdTable(self.at_threshold(threshold) for threshold in thresholds)

    def _groups(self, bins: int | Sequence[float], strategy: Strategy) -> Groups:
        """Bins in groups, of scores that are probabilities."""
        return Groups.of(self._reading.once(Forecasts.of), bins, strategy)

    def calibration_curve(
        self, bins: int | Sequence[float] = GROUPS, *, strategy: Strategy = "uniform"
    ) -> CalibrationCurve:
        """Share of positives against mean score, by groups of bins: a reliability diagram.

        Formula: ``x_g + D_g / N_g`` against ``x_g``. Without noise the first is the share of
        positives.

        Source: DeGroot & Fienberg 1983.

        Interval: a score test for each group by itself. Without noise it is that of Wilson 1927,
        with noise that of Fieller 1954.

        Beware: the intervals do not all hold at once.

        Parameters
        ----------
        bins
            How many groups, or their edges from 0 to 1. Each bin of the axis belongs, whole, to the
            group that its mean score lies in.
        strategy
            ``"uniform"`` for groups of equal width, ``"quantile"`` for equally many examples.

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
        """How far the scores are from observed shares of positives.

        The value and its interval are those of the population. The plain number of other packages
        is above 0 even for perfect scores; it lies within `bounds`, and on
        :meth:`calibration_curve`.

        Formula: a norm of all D_g, one for each kind. The value is the one whose expected plain
        number is the plain number seen.

        Source: Naeini et al. 2015; Neumann et al. 2018; Kumar et al. 2019.

        Bounds: about the plain number of the pooled data, so the value may lie below them. Under
        noise those of MCE and ACE let a group that noise hides be off by anything.

        Interval: all values that a test of the plain number does not reject. D_g is normal with
        deviation s_g. Distances ``|D_g| - l^2 s_g^2 / |D_g|``, none below 0, for l from 0 up, and
        ``|D_g| + c s_g``, for c from 0 up, are a path through what was seen. Along it the plain
        number has a mean and a deviation. The ends are z deviations from the number seen.

        Beware: do not compare results with other groups, or other shares of positives. Under noise
        MCE and ACE leave out groups that do not stand out of it.

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
        """A test whether scores are calibrated, by groups of bins.

        Formula: ``sum_g D_g^2 / (N_g x_g (1 - x_g) + v_g)``, chi-squared with one degree of freedom
        for each group. v_g is the variance by noise, and by where scores lie in a crowded end bin:
        one next to 0 or 1 with over 4 times the density of its neighbour.

        Source: Hosmer & Lemeshow 1980.

        Beware: most scores in one bin, as for rare outcomes on bins of equal width. The test then
        finds nothing: use bins of equal width in log-odds. With many examples a p-value is small
        for differences that do not matter.
        """
        return hosmer_lemeshow(self._groups(bins, strategy))

    def spiegelhalter(self) -> CalibrationTest:
        """A test whether scores are calibrated, without groups.

        Formula: ``sum D_i (1 - 2 x_i) / sqrt(sum N_i (1 - 2 x_i)^2 x_i (1 - x_i) + v)``, standard
        normal.

        Source: Spiegelhalter 1986.

        Beware: as for the Hosmer-Lemeshow test.
        """
        return spiegelhalter(self._reading.once(Forecasts.of))

    def brier_decomposition(
        self, bins: int | Sequence[float] = GROUPS, *, strategy: Strategy = "uniform"
    ) -> BrierDecomposition:
        """The Brier score as reliability - resolution + uncertainty.

        Formula: ``sum_g D_g^2 / N_g / n``, ``sum_g N_g (o_g - o)^2 / n`` and ``o (1 - o)``, with o
        the shares of positives. What chance and noise add to the first two is taken off. So they
        add up to the score on average only, less the spread of scores within groups.

        Source: Murphy 1973; Bröcker 2012.

        Interval: of reliability that of the RMS calibration error, squared; of resolution
        first-order; of uncertainty from Wilson's interval of o.

        Beware: other groups give another decomposition.
        """
        return brier_decomposition(self._groups(bins, strategy), self._reading.level)

    def net_benefit(self, threshold: float) -> Estimate:
        """Net benefit of treating examples that score at least `threshold`, between 0 and 1.

        In true positives for each example, where a false positive counts t / (1 - t) of one.
        Treating nobody is worth 0.

        Formula: ``(tp - w fp) / n`` with ``w = t / (1 - t)``. Treating everybody is worth
        ``o - w (1 - o)``, with o the share of positives.

        Source: Vickers & Elkin 2006.

        Bounds: as at a threshold.

        Interval: score test. A value v stays in if ``(tp - w fp - v n)^2`` is at most z^2 times its
        variance at v (Tango 1998 for w = 1).

        Beware: other shares of positives; scores that are not calibrated, so that t is no risk;
        fewer than 3 true or 3 false positives.

        Examples
        --------
        >>> clients = {"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 0, 1], [0.1, 0.6, 0.4])}
        >>> round(fg.evaluate(clients).net_benefit(0.25), 4)
        0.4444
        """
        return decisions.net_benefit(self._reading.pooled, threshold, self._reading.level)

    def decision_curve(self, thresholds: Iterable[SupportsFloat] | None = None) -> DecisionCurve:
        """Net benefit along thresholds, and where the model is better than none.

        Formula: the net benefit of the model, of treating everybody, and the advantage over the
        better of treating all and none. Against treating all it is ``(w tn - fn) / n``.

        Source: Vickers & Elkin 2006.

        Interval: of each by itself. That of the advantage is of the difference, in which what both
        have in common cancels.

        Beware: the intervals do not all hold at once. At 99 thresholds a useless model looks useful
        at some by chance.

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
