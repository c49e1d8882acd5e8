"""What every result can be asked: curves, metrics over all thresholds, metrics at some."""

from abc import ABC, abstractmethod
from collections.abc import Iterable

import numpy as np

from fedgauge.measures import estimates
from fedgauge.measures.bands import Band, BandKind
from fedgauge.measures.curves import DetCurve, GainCurve, PrCurve, PrGainCurve, RocCurve
from fedgauge.measures.intervals import Estimate
from fedgauge.measures.kinds import DET, GAIN, PR, PR_GAIN, ROC
from fedgauge.measures.metric import metric
from fedgauge.measures.reading import Reading
from fedgauge.measures.thresholds import AtThreshold, choose


class Measured(ABC):
    """How well scores tell positives from negatives."""

    @property
    @abstractmethod
    def _reading(self) -> Reading:
        """What metrics and curves are read from, if the counts say anything."""

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

    def at_threshold(self, threshold: float) -> AtThreshold:
        """Precision, recall and more when scores from `threshold` up are flagged.

        Examples
        --------
        >>> import fedgauge as fg
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
