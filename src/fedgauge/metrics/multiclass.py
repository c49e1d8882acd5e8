"""Averages over classes or labels with their errors, and the confusion matrix of classes.

Noise is of channels, so what it does to an average follows from each channel's weight. Counts tell
how each score spreads within a class, not how the scores of one example go together. So the
sampling deviation is the largest that any dependence allows: within a class those of different
scores add up (Cauchy and Schwarz), classes are independent, and intervals are conservative. Local
reports about different scores are of different rows: there all are independent.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgauge import _html
from fedgauge.arrays import Floats
from fedgauge.errors import InputError, NoSignal, UndefinedMetric
from fedgauge.estimation import repair
from fedgauge.estimation.counts import FAINT, SIGNAL, DrawnBlock
from fedgauge.metrics import areas
from fedgauge.metrics.estimate import (
    UNIT,
    Estimate,
    Interval,
    add_noise,
    critical,
    holding,
    logit_interval,
    metric,
    metrics_of,
    within,
)
from fedgauge.metrics.ranking import Reading
from fedgauge.metrics.thresholds import Corner, Formula, Outcomes, Ratio, ThresholdOutcomes
from fedgauge.plan.task import Contrast


class Influence(NamedTuple):
    """What one more example of each side and bin does to a metric, and how it runs across bins."""

    gradient: Floats
    runs: Floats
    shift: float = 0.0  # where unbiased counts would put the value, less where repaired ones do


def of_auc(reading: Reading) -> Influence:
    """What examples do to the area under the ROC curve."""
    pooled = reading.pooled
    shift = 0.0
    if pooled.noisy:
        shift = areas.straight_auc(*pooled.unbiased) - areas.straight_auc(*pooled.counts)
    runs = np.where(reading.atoms, 0.0, 1.0)
    return Influence(areas.auc_gradient(pooled.counts), runs * areas.auc_runs(pooled.counts), shift)


def of_average_precision(reading: Reading) -> Influence:
    """What examples do to average precision."""
    counts = reading.pooled.counts
    runs = np.where(reading.atoms, 0.0, 1.0)
    return Influence(
        areas.average_precision_gradient(counts), runs * areas.average_precision_runs(counts)
    )


def of_formula(reading: Reading, threshold: float, formula: Formula) -> Influence:
    """What examples do to a metric at a threshold."""
    outcomes = ThresholdOutcomes(reading.unshrunk.pooled, threshold)
    tp, fp, fn, tn = formula.slopes(outcomes.likely)
    first, is_open, share = outcomes.split
    flags = np.zeros(reading.pooled.axis.bins)
    flags[first:] = 1.0
    if is_open:
        flags[first - 1] = share
    return Influence(
        np.array([tn + flags * (fp - tn), fn + flags * (tp - fn)]), np.zeros((2, len(flags)))
    )


class Part(NamedTuple):
    """One estimate in an average, what it was read from, and how much it counts."""

    estimate: Estimate
    reading: Reading
    contrast: Contrast
    weight: float
    influence: Influence | None


class Move(NamedTuple):
    """Channels whose examples are part of a weight, and what one more moves the average by that."""

    rows: tuple[int, ...]
    amount: float


class JointErrors(NamedTuple):
    """How the errors of parts go together."""

    noise: float  # standard deviation of the average by noise
    dependence: float  # that by sampling, as a share of what wholly dependent parts have
    weights: float = 0.0  # the sampling deviation of the weights, which is not in it


@dataclass(frozen=True, eq=False)
class Shared:
    """The channels that parts have in common."""

    counts: Floats  # by channel and bin, none negative
    blocks: NDArray[np.intp]  # which score each channel is of
    strata: NDArray[np.intp]  # which of the strata that all scores share
    tree: tuple[int, ...]  # of the noise: branchings; empty without
    variances: tuple[float, ...]  # of a node at each level
    drawn: tuple[DrawnBlock, ...] = ()  # of local reports: blocks, with a side for each channel

    def errors(self, parts: Sequence[Part], moves: Sequence[Move] = ()) -> JointErrors:
        """How the errors of parts, and of their weights, go together."""
        asked = [*(side for part in parts for side in part.contrast), *(m.rows for m in moves)]
        used = np.unique(np.concatenate([np.array(rows, dtype=np.intp) for rows in asked]))
        of_used = replace(
            self, counts=self.counts[used], blocks=self.blocks[used], strata=self.strata[used]
        )
        return of_used._errors(parts, moves, used)

    def _errors(
        self, parts: Sequence[Part], moves: Sequence[Move], used: NDArray[np.intp]
    ) -> JointErrors:
        """The same, where these channels are those `used` of all."""
        gradient, runs = np.zeros_like(self.counts), np.zeros_like(self.counts)
        for rows, amount in moves:
            gradient[np.searchsorted(used, rows)] += amount
        alone = 0.0
        for part in parts:
            if part.influence is None:
                return self._apart(parts, gradient)
            mine, across, _ = part.influence
            for side, rows in enumerate(part.contrast):
                places = np.searchsorted(used, rows)
                gradient[places] += part.weight * mine[side]
                runs[places] += part.weight * across[side]
            squares = part.reading.pooled.counts * (mine**2 + across**2 / 12.0)
            alone += part.weight * math.sqrt(float(squares.sum()))
        together = self._sampling(gradient**2 + runs**2 / 12.0)
        return JointErrors(self._noise(gradient), together / alone if alone > 0 else 1.0)

    def _apart(self, parts: Sequence[Part], of_weights: Floats) -> JointErrors:
        """As if the parts were as dependent as can be; they have no channel in common."""
        noise = math.hypot(*(p.weight * p.estimate.parts.get("noise", 0.0) for p in parts))
        return JointErrors(noise, 1.0, self._sampling(of_weights**2))

    def _sampling(self, squares: Floats) -> float:
        by_channel = (self.counts * squares).sum(axis=1)
        if self.drawn:  # a row is in one block, so that all scores of all rows are independent
            return math.sqrt(float(by_channel.sum()))
        table = np.zeros((self.blocks.max() + 1, self.strata.max() + 1))
        np.add.at(table, (self.blocks, self.strata), by_channel)
        return math.sqrt(float(np.sum(np.sqrt(table).sum(axis=0) ** 2)))

    def _noise(self, gradient: Floats) -> float:
        if not self.variances:
            return 0.0
        if self.drawn:
            ends = np.cumsum([len(block.sides) for block in self.drawn])[:-1]
            each = zip(self.drawn, np.split(gradient, ends), strict=True)
            sums = (b.covariance(self.tree, self.variances, own, own) for b, own in each)
            return math.sqrt(float(sum(sums)))
        by_channel = repair.noise_covariance(self.tree, self.variances, gradient, gradient)
        return math.sqrt(float(np.sum(by_channel)))


def average(
    parts: Sequence[Part], errors: JointErrors, level: float, scale: Interval, caution: str | None
) -> Estimate:
    """The weighted mean of parts, with where the truth lies.

    Distances to the ends of intervals add up as if parts were wholly dependent, then shrink to how
    dependent they can be; noise is added in squares (Zou & Donner 2008, MOVER). All of it is of
    counts as noise left them; the value is the mean of the parts' own.
    """
    bare = [part._replace(estimate=part.estimate.unshrunk) for part in parts]
    return _average(bare, errors, level, scale, caution).moved_to(_mean(parts))


def _mean(parts: Sequence[Part]) -> float:
    return float(sum(part.weight * part.estimate.value for part in parts))


def _average(
    parts: Sequence[Part], errors: JointErrors, level: float, scale: Interval, caution: str | None
) -> Estimate:
    z, noisy = critical(level), any("noise" in part.estimate.parts for part in parts)
    value = _mean(parts)
    shift = sum(part.weight * _shift(part) for part in parts)
    lowest, highest, below, above = 0.0, 0.0, 0.0, 0.0
    for part in parts:
        inner, reach = _inner(part, z, scale), _reach(part, z)
        lowest, highest = lowest + part.weight * inner.low, highest + part.weight * inner.high
        below, above = below + part.weight * reach.low, above + part.weight * reach.high
    below, above = (errors.dependence * each + z * errors.weights for each in (below, above))
    reach_of_noise = z * errors.noise
    bounds = holding(Interval(lowest - reach_of_noise, highest + reach_of_noise), value)
    if noisy:
        low = value + shift - math.hypot(below, reach_of_noise)
        high = value + shift + math.hypot(above, reach_of_noise)
    else:  # what binning allows is an offset: it adds up in full
        low = sum(part.weight * _spread(part).low for part in parts) - below
        high = sum(part.weight * _spread(part).high for part in parts) + above
    interval = within(holding(Interval(low, high), value), *scale)
    bounds = within(bounds, *scale)
    told = {
        "binning": sum(p.weight * p.estimate.parts.get("binning", 0.0) for p in parts),
        "sampling": errors.weights
        + errors.dependence * sum(p.weight * p.estimate.parts["sampling"] for p in parts),
    }
    told |= {"noise": errors.noise} if noisy else {}
    rough = next((part.estimate.caution for part in parts if part.estimate.caution), None)
    return Estimate(value, (bounds.low, bounds.high), *interval, level, told, caution or rough)


def _shift(part: Part) -> float:
    return 0.0 if part.influence is None else part.influence.shift


def _inner(part: Part, z: float, scale: Interval) -> Interval:
    """What binning alone allows: bounds less the reach of noise, but where they were cut off."""
    low, high = part.estimate.bounds
    noise = z * part.estimate.parts.get("noise", 0.0)
    return Interval(
        low + noise if low > scale.low else low, high - noise if high < scale.high else high
    )


def _spread(part: Part) -> Interval:
    """What binning allows where bins that look like ties are some."""
    value, binning = part.estimate.value, part.estimate.parts.get("binning", math.inf)
    return within(Interval(value - binning, value + binning), *part.estimate.bounds)


def _reach(part: Part, z: float) -> Interval:
    """How far sampling alone carries the ends of a part's interval."""
    estimate = part.estimate
    low, high = estimate.interval or Interval(*estimate.bounds)
    if "noise" not in estimate.parts:
        lowest, highest = _spread(part)
        return Interval(max(lowest - low, 0.0), max(high - highest, 0.0))
    centre, noise = estimate.value + _shift(part), z * estimate.parts["noise"]
    ends = (math.sqrt(max(gap * abs(gap) - noise**2, 0.0)) for gap in (centre - low, high - centre))
    return Interval(*ends)


Normalize = Literal["true", "pred", "all"]
_SHARE: Final = Ratio(Outcomes(tp=1), Outcomes(fn=1))
_SIGNED: Final = Interval(-1.0, 1.0)


class _Read(NamedTuple):
    """A metric of a matrix, and what one more example in each cell does to it."""

    value: float
    slopes: Floats


@dataclass(frozen=True, eq=False)
class ClassConfusion:
    """How many examples of each class were predicted as each: rows are true, columns predicted.

    Attributes
    ----------
    labels
        The classes.
    counts
        By true and by predicted class: whole numbers, or under noise unbiased estimates.
    variance
        Of the noise in one cell; 0 without.
    level
        Confidence of intervals and, under noise, of bounds.

    Examples
    --------
    >>> matrix = ClassConfusion(("cat", "dog"), np.array([[8, 2], [1, 9]]), 0.0, 0.95)
    >>> matrix.accuracy.value, matrix.normalized("true").tolist()
    (0.85, [[0.8, 0.2], [0.1, 0.9]])
    """

    labels: tuple[str, ...]
    counts: NDArray[Any]
    variance: float
    level: float

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        del copy  # that of the class: it shares nothing
        return np.array(self.counts, dtype=dtype)

    def normalized(self, normalize: Normalize) -> Floats:
        """Shares of cells in their row (``"true"``), column (``"pred"``) or all; NaN where none."""
        bases = self._bases(normalize)
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(bases > 0, self._matrix / bases, np.nan)
        return np.clip(shares, 0.0, 1.0)

    def intervals(self, normalize: Normalize) -> tuple[Floats, Floats]:
        """Wilson's intervals, with the noise, of each of the population's shares by itself."""
        low, high = np.full((2, *self.counts.shape), np.nan)
        bases, sizes = self._bases(normalize), self._sizes(normalize)
        for place in np.ndindex(*self.counts.shape):
            if bases[place] > SIGNAL * math.sqrt(self.variance * sizes):
                part = float(self._matrix[place])
                corner = self._corner(part, float(bases[place]), 1, sizes)
                low[place], high[place] = _SHARE.interval(corner, self._z, sampling=True)
        return low, high

    @metric("accuracy")
    def accuracy(self) -> Estimate:
        """Share of examples predicted rightly."""
        return self.share_of(np.eye(len(self.labels), dtype=bool))

    @metric("balanced accuracy")
    def balanced_accuracy(self) -> Estimate:
        """Mean recall of the classes; those without examples are left out."""
        return self._delta(self._balanced, UNIT, self._absent)

    @metric("macro F1")
    def macro_f1(self) -> Estimate:
        """Mean F1 of the classes; those that neither are nor were predicted are left out."""
        return self._delta(self._f1, UNIT)

    @metric("Cohen's kappa")
    def kappa(self) -> Estimate:
        """Agreement of true and predicted class beyond that of chance (Cohen 1960)."""
        return self._delta(_kappa, _SIGNED)

    @metric("MCC")
    def mcc(self) -> Estimate:
        """Matthews correlation of several classes (Gorodkin 2004)."""
        return self._delta(_correlation, _SIGNED)

    def share_of(self, cells: NDArray[np.bool_]) -> Estimate:
        """The share of all examples that are in some cells."""
        self._require_examples()
        part, total = float(self._matrix[cells].sum()), float(self._matrix.sum())
        sizes = int(cells.sum()), cells.size
        corner = self._corner(part, total, *sizes)
        value = min(max(part / total, 0.0), 1.0)
        interval = holding(_SHARE.interval(corner, self._z, sampling=True), value)
        bounds = Interval(value, value)
        noise, sampling = map(math.sqrt, _SHARE.variances(corner))
        if self.variance:
            bounds = holding(_SHARE.interval(corner, self._z, sampling=False), value)
        return self._estimate(value, bounds, interval, noise, sampling, None)

    @property
    def _matrix(self) -> Floats:
        return np.asarray(self.counts, dtype=np.float64)

    @property
    def _z(self) -> float:
        return critical(self.level)

    @property
    def _deviation(self) -> float:
        """Of the noise in a row or a column."""
        return math.sqrt(self.variance * len(self.labels))

    def _bases(self, normalize: Normalize) -> Floats:
        if normalize not in ("true", "pred", "all"):
            raise InputError(f"normalize must be one of true, pred, all, got {normalize!r}.")
        axis = {"true": 1, "pred": 0, "all": None}[normalize]
        return np.broadcast_to(self._matrix.sum(axis=axis, keepdims=True), self.counts.shape)

    def _sizes(self, normalize: Normalize) -> int:
        """Cells in what a share is of."""
        return len(self.labels) ** (2 if normalize == "all" else 1)

    def _corner(self, part: float, total: float, cells: int, of: int) -> Corner:
        """A share as outcomes: those in it, and those not."""
        outcomes = Outcomes(tp=part, fn=total - part)
        noise = np.diag([self.variance * cells, 0.0, self.variance * (of - cells), 0.0])
        return Corner(outcomes, outcomes, noise)

    @cached_property
    def _present(self) -> NDArray[np.bool_]:
        """Classes with examples, that stand out of the noise."""
        return np.asarray(self._matrix.sum(axis=1) > SIGNAL * self._deviation)

    @property
    def _absent(self) -> str | None:
        named = [
            label for label, there in zip(self.labels, self._present, strict=True) if not there
        ]
        if not named:
            return None
        told = ", ".join(named[:5]) + (", ..." if len(named) > 5 else "")
        return f"left out, without examples or hidden by noise: {told}"

    def _balanced(self, matrix: Floats) -> _Read:
        kept = self._present
        rows = np.where(kept, matrix.sum(axis=1), 1.0)
        recall = np.where(kept, np.diag(matrix) / rows, 0.0)
        count = np.count_nonzero(kept)
        slopes = (np.eye(len(rows)) - recall[:, np.newaxis]) / rows[:, np.newaxis] / count
        return _Read(float(recall.sum()) / count, np.where(kept[:, np.newaxis], slopes, 0.0))

    def _f1(self, matrix: Floats) -> _Read:
        both = matrix.sum(axis=1) + matrix.sum(axis=0)
        kept = both > SIGNAL * math.sqrt(2.0) * self._deviation
        both = np.where(kept, both, 1.0)
        f1 = np.where(kept, 2.0 * np.diag(matrix) / both, 0.0)
        count = np.count_nonzero(kept)
        pull = f1 / both
        slopes = -(pull[:, np.newaxis] + pull) + np.diag(np.where(kept, 2.0 / both, 0.0))
        return _Read(float(f1.sum()) / count, slopes / count)

    def _require_examples(self) -> None:
        total, deviation = self._matrix.sum(), math.sqrt(self.variance) * len(self.labels)
        if total <= SIGNAL * deviation or not self._present.any():
            if self.variance:
                raise NoSignal("no signal: the noise hides the number of examples of all classes.")
            raise UndefinedMetric("there is no example.")

    def _delta(
        self, read: Callable[[Floats], _Read], scale: Interval, caution: str | None = None
    ) -> Estimate:
        """An estimate from derivatives: cells are independent, in samples and in noise."""
        self._require_examples()
        value, slopes = read(self._matrix)
        if math.isnan(value):
            raise UndefinedMetric("all examples are of one class, or were predicted as one.")
        value = float(min(max(value, scale.low), scale.high))
        counts = np.maximum(self._matrix, 0.0)
        sampling = math.sqrt(float(np.sum(counts * slopes**2)))
        noise = math.sqrt(self.variance * float(np.sum(slopes**2)))
        width = scale.high - scale.low
        share = (value - scale.low) / width
        if 0.0 < share < 1.0:
            on_unit = logit_interval(share, sampling / width, self._z)
        else:  # none of m examples went wrong (Clopper & Pearson 1934), m of the smallest class
            smallest = float(self._matrix.sum(axis=1)[self._present].min())
            open_ = 1.0 - ((1.0 - self.level) / 2.0) ** (1.0 / smallest)
            on_unit = Interval(1.0 - open_, 1.0) if share > 0.5 else Interval(0.0, open_)
        moved = Interval(*(scale.low + width * end for end in on_unit))
        interval = add_noise(value, moved, noise, self._z)
        reach = self._z * noise
        bounds = within(Interval(value - reach, value + reach), *scale)
        return self._estimate(value, bounds, within(interval, *scale), noise, sampling, caution)

    def _estimate(
        self,
        value: float,
        bounds: Interval,
        interval: Interval,
        noise: float,
        sampling: float,
        caution: str | None,
    ) -> Estimate:
        parts = {"binning": 0.0, "sampling": sampling} | ({"noise": noise} if self.variance else {})
        rows = self._matrix.sum(axis=1)[self._present]
        if self.variance and rows.min() < FAINT * self._deviation:
            caution = caution or "the noise is a large part of the number of examples of a class"
        return Estimate(value, (bounds.low, bounds.high), *interval, self.level, parts, caution)

    def _repr_html_(self) -> str:
        rows = []
        for row in metrics_of(type(self)):
            try:
                rows.append((row.title, str(getattr(self, row.name))))
            except UndefinedMetric:
                rows.append((row.title, "undefined"))
        return _html.table(rows, caption=f"Confusion matrix of {len(self.labels)} classes")


def _kappa(matrix: Floats) -> _Read:
    total = matrix.sum()
    rows, columns = matrix.sum(axis=1), matrix.sum(axis=0)
    agree, chance = np.trace(matrix) / total, float(rows @ columns) / total**2
    if not chance < 1.0:
        return _Read(math.nan, np.zeros_like(matrix))
    of_agree = (np.eye(len(rows)) - agree) / total
    of_chance = (columns[:, np.newaxis] + rows) / total**2 - 2.0 * chance / total
    slopes = of_agree / (1.0 - chance) - (1.0 - agree) / (1.0 - chance) ** 2 * of_chance
    return _Read(float((agree - chance) / (1.0 - chance)), slopes)


def _correlation(matrix: Floats) -> _Read:
    total = matrix.sum()
    rows, columns = matrix.sum(axis=1), matrix.sum(axis=0)
    of_rows, of_columns = (total**2 - float(side @ side) for side in (rows, columns))
    if min(of_rows, of_columns) <= 0:
        return _Read(math.nan, np.zeros_like(matrix))
    scale = math.sqrt(of_rows * of_columns)
    value = float((total * np.trace(matrix) - rows @ columns) / scale)
    top = np.trace(matrix) + total * np.eye(len(rows)) - (columns[:, np.newaxis] + rows)
    inner = (total - rows)[:, np.newaxis] / of_rows + (total - columns) / of_columns
    return _Read(value, top / scale - value * inner)
