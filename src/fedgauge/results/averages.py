"""Averages over the classes or labels of a result, and its tables of classes."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedgauge.arrays import Floats
from fedgauge.errors import InputError, NoSignal, UndefinedMetric
from fedgauge.estimation import repair
from fedgauge.estimation.counts import PooledCounts, Released, every_block
from fedgauge.estimation.distribution import ScoreDistribution
from fedgauge.histograms.tables import Table
from fedgauge.metrics import multiclass
from fedgauge.metrics.estimate import UNIT, Estimate, Interval, metrics_of
from fedgauge.metrics.multiclass import ClassConfusion, Influence, Move, Part, Shared
from fedgauge.metrics.ranking import Reading
from fedgauge.metrics.thresholds import AtThreshold
from fedgauge.plan import EvaluationPlan, Slice
from fedgauge.plan.task import CLASS_TABLES, Contrast
from fedgauge.results.metrics import Metrics, NamedMetric

if TYPE_CHECKING:
    from fedgauge.results.evaluation import Evaluation

T = TypeVar("T", bound=Table)


class Cells(NamedTuple, Generic[T]):
    """A table, the sums in its cells, and the variance of the noise in each of them."""

    table: T
    values: NDArray[Any]
    variance: float


def tables_of(
    plan: EvaluationPlan, released: Released, group: str | None, kind: type[T]
) -> Iterator[Cells[T]]:
    """Each table of a kind for a group, or for all rows: the sum of its groups and their noise."""
    task = plan.task
    told = None if group is None else task.groups_told[group]
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


def _influence(wanted: NamedMetric, reading: Reading) -> Influence | None:
    """What examples do to a metric, where that is known."""
    if wanted.at is not None:
        return multiclass.of_formula(reading, wanted.at, wanted.row.formula)
    known = _INFLUENCES.get(wanted.name)
    return None if known is None else known(reading)


def _scale(wanted: NamedMetric) -> Interval:
    """Where a metric can lie, where that is known."""
    if wanted.at is not None:
        scale: Interval = wanted.row.formula.scale
        return scale
    return UNIT if wanted.name in _INFLUENCES else Interval(-math.inf, math.inf)


def macro(
    result: "Evaluation", metric: str, average: Average, against: Against, at: float | None
) -> Estimate:
    """See :meth:`fedgauge.Evaluation.macro`."""
    _check(metric, average, against, at)
    wanted = NamedMetric(metric, at)
    if (average == "micro" or against == "one") and at is None and metric not in _INFLUENCES:
        raise InputError(
            f"{metric} has a macro and a weighted average of each class against the rest. "
            "Others are of roc_auc, average_precision and metrics at a threshold."
        )
    asked = _asked(result, average, against)
    kept, left_out = _defined(result, asked, wanted.read)
    weights, moves = _weights(
        result, [e for e, _, _ in kept], [m.unshrunk.value for *_, m in kept], average
    )
    parts = [
        Part(m, reading, each.contrast, weight, _influence(wanted, reading))
        for (each, reading, m), weight in zip(kept, weights, strict=True)
    ]
    errors = result._shared.errors(parts, moves)
    return multiclass.average(parts, errors, result.level, _scale(wanted), left_out)


def distributions(
    result: "Evaluation", average: Average, against: Against
) -> tuple[list[ScoreDistribution], Floats]:
    """The rates of each class along all thresholds, and its weight in a mean of curves."""
    _check("roc_auc", average, against, None)
    asked = _asked(result, average, against)
    kept, _ = _defined(result, asked, lambda reading: reading.distribution)
    weights, _ = _weights(result, [each for each, _, _ in kept], [0.0] * len(kept), average)
    return [distribution for *_, distribution in kept], weights


def class_table(result: "Evaluation", name: str) -> ClassConfusion:
    """A table of true classes by something else, such as predicted ones."""
    values, variance = _table(result, name)
    labels = tuple(map(str, result.plan.task.layout.classes))
    square = values.reshape(len(labels), len(labels))
    return ClassConfusion(labels, square, variance, result.level)


def top_k_accuracy(result: "Evaluation", k: int) -> Estimate:
    """See :meth:`fedgauge.Evaluation.top_k_accuracy`."""
    ranks = class_table(result, "ranks")
    classes = len(ranks.labels)
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= classes:
        raise InputError(f"k must be a whole number from 1 to {classes}, got {k!r}.")
    return ranks.share_of(np.broadcast_to(np.arange(classes) < k, (classes, classes)))


class TopLabel(Metrics):
    """The highest score of each example, as a forecast that its class is the true one."""

    def __init__(self, reading: Reading) -> None:
        self._given = reading

    @property
    def _reading(self) -> Reading:
        return self._given


def top_label(result: "Evaluation") -> TopLabel:
    """See :meth:`fedgauge.Evaluation.top_label`."""
    values, variance = _table(result, "top")
    axis = result.plan.axis
    noise = (variance,) if variance else ()
    pooled = PooledCounts(axis, values.reshape(2, axis.bins), (axis.bins,), noise)
    return TopLabel(_visible(result, pooled))


def _table(result: "Evaluation", name: str) -> tuple[NDArray[Any], float]:
    """The sums of a table of the task, and the noise variance of one of its cells."""
    task = result.plan.task
    if name not in task.also:
        raise InputError(_NOT_COUNTED.format(name))
    _labelled(result)  # of all classes, and one model
    told = tables_of(result.plan, result.released, result.slice.group, CLASS_TABLES[name])
    for table, values, variance in told:
        if table.model == result.slice.model:
            return values, variance
    if result.slice.group is not None:
        raise InputError("this was counted of all rows, not by group.")
    raise InputError(_NOT_COUNTED.format(name))  # a plan by hand may lack the task's tables


def shared(result: "Evaluation") -> Shared:
    """The channels that classes or labels have in common."""
    plan, released = result.plan, result.released
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


def _asked(result: "Evaluation", average: Average, against: Against) -> list[_Asked]:
    """What an average is over."""
    task, slices = result.plan.task, _labelled(result)
    if against == "one" and average == "micro":
        raise InputError('a micro average is of all pairs at once: against="rest".')
    if average == "micro":
        each = [task.contrast(slice_) for slice_ in slices]
        rows = (tuple(row for c in each for row in c[side]) for side in (0, 1))
        return [_Asked("all", Contrast(*rows))]
    if against == "one":
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


def _visible(result: "Evaluation", pooled: PooledCounts) -> Reading:
    """What metrics of some counts are read from, unless noise hides a class."""
    if pooled.hidden is not None:
        raise NoSignal(
            f"no signal: the noise hides the number of {pooled.hidden}. Use a larger epsilon, "
            "more examples, or fewer bins or levels."
        )
    return Reading(pooled, result.estimator, result.level)


def _defined(
    result: "Evaluation", asked: Sequence[_Asked], read: Callable[[Reading], _Read]
) -> tuple[list[tuple[_Asked, Reading, _Read]], str | None]:
    """The parts that something can be read of, with it, and a word on the others."""
    kept: list[tuple[_Asked, Reading, _Read]] = []
    left_out, why = [], UndefinedMetric("there is no class.")
    for each in asked:
        try:
            pooled = PooledCounts.between(result.plan, result.released, each.contrast)
            reading = _visible(result, pooled)
            kept.append((each, reading, read(reading)))
        except UndefinedMetric as error:
            left_out.append(each.name)
            why = error
    if not kept:
        raise why
    if not left_out:
        return kept, None
    told = ", ".join(left_out[:_NAMED]) + (", ..." if len(left_out) > _NAMED else "")
    return kept, f"left out, without examples or hidden by noise: {told}"


def _weights(
    result: "Evaluation", asked: Sequence[_Asked], values: Sequence[float], average: Average
) -> tuple[Floats, list[Move]]:
    """How much each part counts, and what one more example does to an average by that."""
    if average != "weighted":
        return np.full(len(asked), 1.0 / len(asked)), []
    rows = [result.plan.task.contrast(slice_).positives for slice_ in _labelled(result)]
    counts = result._shared.counts
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


def _labelled(result: "Evaluation") -> list[Slice]:
    """The slices of each class or label that an average is over."""
    task, wanted = result.plan.task, result.slice
    first = task.slices[0]
    if first.label is None:
        raise InputError("averages are over classes or labels, and this task has none.")
    if wanted.label is not None:
        raise InputError(
            "this result is about one label, and an average is over all. Take it from the whole "
            "result."
        )
    if wanted.model is None and first.model is not None:
        raise InputError("this result is of several models. Say which: result.select(model=...).")
    if result.mapped_by is not None:
        raise InputError(
            "averages are of scores as they were counted: with_calibrator(None).macro(...)."
        )
    if result.withheld is not None:
        raise NoSignal(result.withheld)
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
    kind = Metrics if at is None else AtThreshold
    rows = {row.name: row for row in metrics_of(kind)}
    if metric not in rows:
        other = AtThreshold if at is None else Metrics
        hint = ""
        if metric in {row.name for row in metrics_of(other)}:
            hint = " It needs a threshold (at=...)." if at is None else " It takes no threshold."
        raise InputError(f"there is no metric {metric!r}.{hint} There are: {', '.join(rows)}.")
