"""What results whose scores are probabilities can be asked: whether 30% is 30%, and what for."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import SupportsFloat

from fedgauge.measures import benefit, recalibration
from fedgauge.measures.benefit import DecisionCurve
from fedgauge.measures.brier import BrierDecomposition, brier_decomposition
from fedgauge.measures.calibration import (
    CalibrationCurve,
    ErrorKind,
    calibration_curve,
    calibration_error,
    calibration_in_the_large,
)
from fedgauge.measures.forecasts import Forecasts
from fedgauge.measures.goodness import CalibrationTest, hosmer_lemeshow, spiegelhalter
from fedgauge.measures.groups import GROUPS, Groups, Strategy
from fedgauge.measures.intervals import Estimate
from fedgauge.measures.metric import metric
from fedgauge.measures.reading import Reading
from fedgauge.results.measured import Measured


class Calibrated(Measured):
    """How well scores say how likely a positive is, and what acting on them is worth."""

    @cached_property
    def _forecasts(self) -> Forecasts:
        """Scores as forecasts, if they are probabilities."""
        return Forecasts.of(self._reading)

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
        return calibration_curve(Groups.of(self._forecasts, bins, strategy), self._reading.level)

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
        return calibration_error(
            Groups.of(self._forecasts, bins, strategy), kind, self._reading.level
        )

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
        return calibration_in_the_large(self._forecasts, self._reading.level)

    @cached_property
    def _line(self) -> recalibration.Line:
        return recalibration.line(self._forecasts, self._reading.level)

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
        return recalibration.integrated_index(self._forecasts, self._reading.level)

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
        return brier_decomposition(Groups.of(self._forecasts, bins, strategy), self._reading.level)

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
        return benefit.net_benefit(self._reading.pooled, threshold, self._reading.level)

    def decision_curve(self, thresholds: Iterable[SupportsFloat] | None = None) -> DecisionCurve:
        """Net benefit along thresholds, and where the model is better than none.

        Parameters
        ----------
        thresholds
            Risks between 0 and 1 from which examples are treated. By default the bin edges nearest
            to 1%, 2%, ..., 99%, and to tenths of the share of positives up to three times it.
        """
        return benefit.decision_curve(self._reading.pooled, thresholds, self._reading.level)


class Contrasted(Calibrated):
    """Some examples against others, with all that a result can be asked."""

    def __init__(self, reading: Reading) -> None:
        self._given = reading

    @property
    def _reading(self) -> Reading:
        return self._given
