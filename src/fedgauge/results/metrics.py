"""What a result can be asked: curves, metrics, calibration, averages over classes, tables."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, Generic, Literal, NamedTuple, SupportsFloat, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedgauge.arrays import Floats
from fedgauge.errors import InputError, NoSignal, UndefinedMetric
from fedgauge.estimation import repair
from fedgauge.estimation.counts import PooledCounts, Released, every_block
from fedgauge.estimation.distribution import Estimator, ScoreDistribution
from fedgauge.histograms.tables import Table
from fedgauge.metrics import calibration_tests, curves, decisions, multiclass, ranking
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
    calibration_in_the_large,
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
from fedgauge.metrics.estimate import Estimate, Interval, metric, metrics_of
from fedgauge.metrics.multiclass import ClassConfusion, Influence, Move, Part, Shared
from fedgauge.metrics.reading import Reading
from fedgauge.metrics.thresholds import AtThreshold, choose
from fedgauge.plan import EvaluationPlan, Slice
from fedgauge.plan.task import CLASS_TABLES, Contrast, MulticlassTask, Sliced


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
        return ranking.roc_auc(self._reading)

    @metric("average precision", recorded=True)
    def average_precision(self) -> Estimate:
        """Average precision, the area under the PR curve."""
        return ranking.average_precision(self._reading)

    @metric("PR-gain area")
    def auprg(self) -> Estimate:
        """Area under the precision-recall-gain curve."""
        return ranking.auprg(self._reading)

    def partial_auc(self, max_fpr: float, *, standardise: bool = True) -> Estimate:
        """Area under the ROC curve up to a false positive rate.

        Standardised as scikit-learn's ``roc_auc_score(max_fpr=...)`` (McClish 1989), or the
        plain area.
        """
        return ranking.partial_auc(self._reading, max_fpr, standardise=standardise)

    @metric("Mann-Whitney U", listed=False)
    def mann_whitney_u(self) -> Estimate:
        """Pairs of a positive and a negative that are in order, ties counting half."""
        return ranking.mann_whitney_u(self._reading, self.roc_auc)

    @metric("KS distance", recorded=True)
    def ks_statistic(self) -> Estimate:
        """Kolmogorov-Smirnov distance: the largest difference of the two rates."""
        return ranking.largest_gap(self._reading)

    @metric("log loss", recorded=True)
    def log_loss(self) -> Estimate:
        """Mean negative log-likelihood of the labels, in nats."""
        return ranking.mean_loss(self._reading, "log")

    @metric("Brier score", recorded=True)
    def brier_score(self) -> Estimate:
        """Mean squared difference of score and label."""
        return ranking.mean_loss(self._reading, "squared")

    @metric("normalized entropy", recorded=True)
    def normalized_entropy(self) -> Estimate:
        """Log loss over that of always predicting the share of positives; below 1 is better."""
        return ranking.normalized_entropy(self._reading)

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
    def _line(self) -> calibration_tests.Line:
        return calibration_tests.line(self._forecasts, self._reading.level)

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
        return calibration_tests.integrated_index(self._forecasts, self._reading.level)

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


class Contrasted(Calibrated):
    """Some examples against others, with all that a result can be asked."""

    def __init__(self, reading: Reading) -> None:
        self._given = reading

    @property
    def _reading(self) -> Reading:
        return self._given


T = TypeVar("T", bound=Table)


class Cells(NamedTuple, Generic[T]):
    """A table, the sums in its cells, and the variance of the noise in each of them."""

    table: T
    values: NDArray[Any]
    variance: float


def tables_of(
    plan: EvaluationPlan, released: Released, group: str | None, kind: type[T]
) -> Iterator[Cells[T]]:
    """Each table of a kind that tells of a group, or of all rows where that is None.

    Of all rows a table by group is the sum of its groups, and has the noise of each.
    """
    task = plan.task
    told = task.groups_told[group] if group is not None and isinstance(task, Sliced) else None
    variances = plan.table_variances(released.clients)
    for each, variance in zip(released.tables, variances, strict=True):
        if not isinstance(each.table, kind):
            continue
        cells = each.by_group(task.layout)
        if told is None:
            yield Cells(each.table, cells.sum(axis=0), variance * len(cells))
        elif each.table.grouping == told.grouping:
            yield Cells(each.table, cells[told.cell], variance)


Average = Literal["macro", "weighted", "micro"]
Against = Literal["rest", "one"]
_Read = TypeVar("_Read")
_NOT_COUNTED: Final = 'the plan does not count this: MulticlassTask(labels, also=["{0}"]).'
_NAMED: Final = 5  # parts that are left out, in words
_INFLUENCES: Final[dict[str, Callable[[Reading], Influence]]] = {
    "roc_auc": multiclass.of_auc,
    "average_precision": multiclass.of_average_precision,
}


class _Asked(NamedTuple):
    """A part of an average: its name, and the labels whose positives are its weight."""

    name: str
    contrast: Contrast
    labels: tuple[int, ...] = ()


class _Wanted(NamedTuple):
    """A metric by name, at a threshold or over all."""

    name: str
    at: float | None

    def read(self, part: Calibrated) -> Estimate:
        """The metric of one contrast."""
        point: Any = part if self.at is None else part.at_threshold(self.at)
        estimate: Estimate = getattr(point, self.name)
        return estimate

    def influence(self, part: Calibrated) -> Influence | None:
        """What examples do to it, where that is known."""
        if self.at is not None:
            formula = getattr(AtThreshold, self.name).formula
            return multiclass.of_formula(part._reading, self.at, formula)
        known = _INFLUENCES.get(self.name)
        return None if known is None else known(part._reading)

    @property
    def scale(self) -> Interval:
        """Where it can lie, where that is known."""
        if self.at is not None:
            scale: Interval = getattr(AtThreshold, self.name).formula.scale
            return scale
        return multiclass._UNIT_RANGE if self.name in _INFLUENCES else Interval(-math.inf, math.inf)


class Averaged(Calibrated):
    """Averages over the classes, or labels, of a result."""

    @property
    @abstractmethod
    def plan(self) -> EvaluationPlan:
        """What was measured."""

    @property
    @abstractmethod
    def released(self) -> Released:
        """What the result is made of."""

    @property
    @abstractmethod
    def estimator(self) -> Estimator:
        """How curves are drawn between the bin edges."""

    @property
    @abstractmethod
    def level(self) -> float:
        """Confidence of the intervals."""

    @property
    @abstractmethod
    def slice(self) -> Slice:
        """Which part of the rows, scores and classes this result is about."""

    @property
    @abstractmethod
    def mapped_by(self) -> Any:
        """The map that scores are read through."""

    @property
    @abstractmethod
    def withheld(self) -> str | None:
        """Why nothing is told of this part of the result."""

    def macro(
        self,
        metric: str,
        *,
        average: Average = "macro",
        against: Against = "rest",
        at: float | None = None,
    ) -> Estimate:
        """A metric averaged over the classes, or the labels, of the task.

        Classes without examples have no metric and are left out, and so are those that noise
        hides; `caution` names them. The interval holds whatever way the scores of one example go
        together, which counts do not tell: it is wide rather than wrong.

        Parameters
        ----------
        metric
            The name of a metric of one slice, such as ``"roc_auc"`` or ``"average_precision"``;
            with `at` of one at a threshold, such as ``"recall"``.
        average
            ``"macro"``: every class counts the same. ``"weighted"``: by its number of examples.
            ``"micro"``: one metric of all pairs of an example and a class.
        against
            ``"rest"``: each class against all others. ``"one"``: every class against every
            other, by the score of the one and by that of the other (Hand & Till 2001); weighted
            by the examples of both.
        at
            The threshold, the same for every score.

        Examples
        --------
        >>> import fedgauge as fg
        >>> scores = [[0.8, 0.1, 0.1], [0.3, 0.6, 0.1], [0.2, 0.5, 0.3], [0.5, 0.1, 0.4]]
        >>> rows = fg.Examples(["cat", "dog", "owl", "cat"], np.array(scores))
        >>> task = fg.MulticlassTask(labels=["cat", "dog", "owl"])
        >>> result = fg.evaluate({"site": rows}, task=task)
        >>> f"{result.macro('roc_auc'):.3f}", f"{result.macro('roc_auc', against='one'):.3f}"
        ('0.889', '0.917')
        """
        _check(metric, average, against, at)
        wanted = _Wanted(metric, at)
        if (average == "micro" or against == "one") and at is None and metric not in _INFLUENCES:
            raise InputError(
                f"{metric} has a macro and a weighted average of each class against the rest. "
                "Others are of roc_auc, average_precision and metrics at a threshold."
            )
        asked = self._asked(average, against)
        kept, left_out = self._defined(asked, wanted.read)
        weights, moves = self._weights(
            [e for e, _, _ in kept], [m.unshrunk.value for *_, m in kept], average
        )
        parts = [
            Part(m, part._reading, each.contrast, weight, wanted.influence(part))
            for (each, part, m), weight in zip(kept, weights, strict=True)
        ]
        errors = self._shared.errors(parts, moves)
        return multiclass.average(parts, errors, self.level, wanted.scale, left_out)

    def macro_roc_curve(self, *, average: Average = "macro", against: Against = "rest") -> RocCurve:
        """The mean of the ROC curves of all classes: of their true positive rates at each FPR.

        Its points belong to no one threshold, so its `thresholds` are NaN; those of a micro
        average, which is one curve, are its own. `average` and `against` are as for :meth:`macro`.
        """
        by_class, weights = self._curves(average, against)
        if average == "micro":
            return ROC.make(by_class[0])
        return curves.average_roc([ROC.make(each) for each in by_class], weights)

    def macro_pr_curve(self, *, average: Average = "macro", against: Against = "rest") -> PrCurve:
        """The mean of the PR curves of all classes: of their precisions at each recall.

        As :meth:`macro_roc_curve`.
        """
        by_class, weights = self._curves(average, against)
        if average == "micro":
            return PR.make(by_class[0])
        return curves.average_pr([PR.make(each) for each in by_class], weights)

    def _curves(self, average: Average, against: Against) -> tuple[list[ScoreDistribution], Floats]:
        _check("roc_auc", average, against, None)
        asked = self._asked(average, against)
        kept, _ = self._defined(asked, lambda part: part._reading.distribution)
        weights, _ = self._weights([each for each, _, _ in kept], [0.0] * len(kept), average)
        return [distribution for *_, distribution in kept], weights

    def confusion_matrix(self) -> ClassConfusion:
        """How often each class was predicted, by its highest score, of examples of each class.

        Of plans whose task counts it: ``MulticlassTask(labels, also=["confusion"])``.

        Examples
        --------
        >>> import fedgauge as fg
        >>> scores = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
        >>> rows = fg.Examples(["cat", "dog", "dog"], scores)
        >>> task = fg.MulticlassTask(labels=["cat", "dog"], also=["confusion"])
        >>> matrix = fg.evaluate({"site": rows}, task=task).confusion_matrix()
        >>> matrix.counts.tolist(), round(matrix.balanced_accuracy.value, 3)
        ([[1, 0], [1, 1]], 0.75)
        """
        return self._class_table("confusion")

    def top_k_accuracy(self, k: int) -> Estimate:
        """Share of examples whose class has one of the `k` highest scores.

        Of equal scores those of earlier classes count as higher. Of plans whose task counts it:
        ``MulticlassTask(labels, also=["ranks"])``.
        """
        ranks = self._class_table("ranks")
        classes = len(ranks.labels)
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= classes:
            raise InputError(f"k must be a whole number from 1 to {classes}, got {k!r}.")
        return ranks.share_of(np.broadcast_to(np.arange(classes) < k, (classes, classes)))

    def top_label(self) -> Calibrated:
        """The highest score of each example, as a forecast that its class is the true one.

        Positives are the examples predicted rightly. So ``expected_calibration_error`` and
        ``calibration_curve()`` are those of the top label. Of plans whose task counts it:
        ``MulticlassTask(labels, also=["top"])``.
        """
        values, variance = self._table("top")
        axis = self.plan.axis
        noise = (variance,) if variance else ()
        pooled = PooledCounts(axis, values.reshape(2, axis.bins), (axis.bins,), noise)
        return self._read(pooled)

    def _class_table(self, name: str) -> ClassConfusion:
        values, variance = self._table(name)
        labels = tuple(map(str, self.plan.task.layout.classes))
        square = values.reshape(len(labels), len(labels))
        return ClassConfusion(labels, square, variance, self.level)

    def _table(self, name: str) -> tuple[NDArray[Any], float]:
        """The sums of a table of the task, and the noise variance of one of its cells."""
        task = self.plan.task
        if not isinstance(task, MulticlassTask) or name not in task.also:
            raise InputError(_NOT_COUNTED.format(name))
        self._labelled()  # of all classes, and one model
        told = tables_of(self.plan, self.released, self.slice.group, CLASS_TABLES[name])
        for table, values, variance in told:
            if table.model == self.slice.model:
                return values, variance
        if self.slice.group is not None:
            raise InputError("this was counted of all rows, not by group.")
        raise InputError(_NOT_COUNTED.format(name))  # a plan by hand may lack the task's tables

    @cached_property
    def _shared(self) -> Shared:
        plan, released = self.plan, self.released
        noisy = plan.is_noisy
        counts = np.asarray(released.counts, dtype=np.float64)
        reported = plan.final.sends_reports
        return Shared(
            repair.monotone(counts) if noisy else counts,
            *plan.task.layout.strata,
            plan.tree if noisy else (released.axis.bins,),
            plan.noise_variances(released.contributions),
            every_block(plan, counts) if reported else (),
        )

    def _asked(self, average: Average, against: Against) -> list[_Asked]:
        """What an average is over."""
        task, slices = self.plan.task, self._labelled()
        if against == "one" and average == "micro":
            raise InputError('a micro average is of all pairs at once: against="rest".')
        if against == "one" and not isinstance(task, MulticlassTask):
            raise InputError('labels are not told from each other: against="rest".')
        if average == "micro":
            each = [task.contrast(slice_) for slice_ in slices]
            rows = (tuple(row for c in each for row in c[side]) for side in (0, 1))
            return [_Asked("all", Contrast(*rows))]
        if isinstance(task, MulticlassTask) and against == "one":
            return [
                _Asked(f"{mine.label} against {theirs.label}", task.pair(mine, theirs), (one, two))
                for one, mine in enumerate(slices)
                for two, theirs in enumerate(slices)
                if one != two
            ]
        return [
            _Asked(str(slice_.label), task.contrast(slice_), (number,))
            for number, slice_ in enumerate(slices)
        ]

    def _defined(
        self, asked: Sequence[_Asked], read: Callable[[Calibrated], _Read]
    ) -> tuple[list[tuple[_Asked, Calibrated, _Read]], str | None]:
        """The parts that something can be read of, with it, and a word on the others."""
        kept: list[tuple[_Asked, Calibrated, _Read]] = []
        left_out, why = [], UndefinedMetric("there is no class.")
        for each in asked:
            try:
                part = self._contrasted(each.contrast)
                kept.append((each, part, read(part)))
            except UndefinedMetric as error:
                left_out.append(each.name)
                why = error
        if not kept:
            raise why
        if not left_out:
            return kept, None
        told = ", ".join(left_out[:_NAMED]) + (", ..." if len(left_out) > _NAMED else "")
        return kept, f"left out, without examples or hidden by noise: {told}"

    def _contrasted(self, contrast: Contrast) -> Calibrated:
        return self._read(PooledCounts.between(self.plan, self.released, contrast))

    def _read(self, pooled: PooledCounts) -> Calibrated:
        if pooled.hidden is not None:
            raise NoSignal(
                f"no signal: the noise hides the number of {pooled.hidden}. Use a larger epsilon, "
                "more examples, or fewer bins or levels."
            )
        return Contrasted(Reading(pooled, self.estimator, self.level))

    def _weights(
        self, asked: Sequence[_Asked], values: Sequence[float], average: Average
    ) -> tuple[Floats, list[Move]]:
        """How much each part counts, and what one more example does to an average by that."""
        if average != "weighted":
            return np.full(len(asked), 1.0 / len(asked)), []
        rows = [self.plan.task.contrast(slice_).positives for slice_ in self._labelled()]
        counts = self._shared.counts
        positives = np.array([counts[list(each)].sum() for each in rows])
        by_part = np.array([positives[list(each.labels)].sum() for each in asked])
        total = float(by_part.sum())
        mean = float(by_part @ values) / total
        moves = [
            Move(rows[label], (value - mean) / total)
            for each, value in zip(asked, values, strict=True)
            for label in each.labels
        ]
        return by_part / total, moves

    def _labelled(self) -> list[Slice]:
        """The slices of each class or label that an average is over."""
        task, wanted = self.plan.task, self.slice
        first = task.slices[0]
        if first.label is None:
            raise InputError("averages are over classes or labels, and this task has none.")
        if wanted.label is not None:
            raise InputError(
                "this result is of one label, and an average over all: ask it of the whole result."
            )
        if wanted.model is None and first.model is not None:
            raise InputError(
                "this result is of several models. Say which: result.select(model=...)."
            )
        if self.mapped_by is not None:
            raise InputError(
                "averages are of scores as they were counted: with_calibrator(None).macro(...)."
            )
        if self.withheld is not None:
            raise NoSignal(self.withheld)
        return [
            each for each in task.slices if (each.model, each.group) == (wanted.model, wanted.group)
        ]


def _check(metric: str, average: str, against: str, at: float | None) -> None:
    for name, got, known in (
        ("average", average, ("macro", "weighted", "micro")),
        ("against", against, ("rest", "one")),
    ):
        if got not in known:
            raise InputError(f"{name} must be one of {', '.join(known)}, got {got!r}.")
    kind = Calibrated if at is None else AtThreshold
    rows = {row.name: row for row in metrics_of(kind)}
    if metric not in rows:
        other = AtThreshold if at is None else Calibrated
        hint = ""
        if metric in {row.name for row in metrics_of(other)}:
            hint = " It needs a threshold (at=...)." if at is None else " It takes no threshold."
        raise InputError(f"there is no metric {metric!r}.{hint} There are: {', '.join(rows)}.")
