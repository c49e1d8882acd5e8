"""What a result over several classes or labels can be asked: averages of metrics, and of curves."""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedgauge.errors import InputError, NoSignal, UndefinedMetric
from fedgauge.estimation import repair
from fedgauge.estimation.distribution import Estimator, ScoreDistribution
from fedgauge.estimation.drawn import every_block
from fedgauge.estimation.pooled import PooledCounts
from fedgauge.estimation.released import Released
from fedgauge.measures import averages, averaging
from fedgauge.measures.averages import Influence, Move, Part, Shared
from fedgauge.measures.confusion import ClassConfusion
from fedgauge.measures.curves import PrCurve, RocCurve
from fedgauge.measures.intervals import Estimate, Interval
from fedgauge.measures.kinds import PR, ROC
from fedgauge.measures.metric import metrics_of
from fedgauge.measures.reading import Reading
from fedgauge.measures.thresholds import AtThreshold
from fedgauge.plan import EvaluationPlan, Slice
from fedgauge.plan.slices import Contrast
from fedgauge.plan.task import CLASS_TABLES, MulticlassTask
from fedgauge.results.calibrated import Calibrated, Contrasted
from fedgauge.results.tabled import tables_of
from fedgauge.typing import Floats

Average = Literal["macro", "weighted", "micro"]
Against = Literal["rest", "one"]
_Read = TypeVar("_Read")
_NOT_COUNTED: Final = 'the plan does not count this: MulticlassTask(labels, also=["{0}"]).'
_NAMED: Final = 5  # parts that are left out, in words
_INFLUENCES: Final[dict[str, Callable[[Reading], Influence]]] = {
    "roc_auc": averages.of_auc,
    "average_precision": averages.of_average_precision,
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
            return averages.of_formula(part._reading, self.at, formula)
        known = _INFLUENCES.get(self.name)
        return None if known is None else known(part._reading)

    @property
    def scale(self) -> Interval:
        """Where it can lie, where that is known."""
        if self.at is not None:
            scale: Interval = getattr(AtThreshold, self.name).formula.scale
            return scale
        return averages.UNIT if self.name in _INFLUENCES else Interval(-math.inf, math.inf)


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
        return averages.average(parts, errors, self.level, wanted.scale, left_out)

    def macro_roc_curve(self, *, average: Average = "macro", against: Against = "rest") -> RocCurve:
        """The mean of the ROC curves of all classes: of their true positive rates at each FPR.

        Its points belong to no one threshold, so its `thresholds` are NaN; those of a micro
        average, which is one curve, are its own. `average` and `against` are as for :meth:`macro`.
        """
        curves, weights = self._curves(average, against)
        if average == "micro":
            return ROC.make(curves[0])
        return averaging.average_roc([ROC.make(each) for each in curves], weights)

    def macro_pr_curve(self, *, average: Average = "macro", against: Against = "rest") -> PrCurve:
        """The mean of the PR curves of all classes: of their precisions at each recall.

        As :meth:`macro_roc_curve`.
        """
        curves, weights = self._curves(average, against)
        if average == "micro":
            return PR.make(curves[0])
        return averaging.average_pr([PR.make(each) for each in curves], weights)

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
