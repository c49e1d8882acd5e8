"""Which class was predicted of which: a confusion matrix of several classes, and its metrics."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgauge import notebook
from fedgauge.errors import InputError, NoSignal, UndefinedMetric
from fedgauge.estimation.pooled import FAINT, SIGNAL
from fedgauge.measures.intervals import (
    UNIT,
    Estimate,
    Interval,
    add_noise,
    critical,
    holding,
    logit_interval,
    within,
)
from fedgauge.measures.metric import metric, metrics_of
from fedgauge.measures.outcomes import Corner, Outcomes, Ratio
from fedgauge.typing import Floats

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
        """Shares of cells in their row (``"true"``), column (``"pred"``) or in ``"all"``.

        NaN where there is nothing to share. Under noise none is below 0 or above 1.
        """
        bases = self._bases(normalize)
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(bases > 0, self._matrix / bases, np.nan)
        return np.clip(shares, 0.0, 1.0)

    def intervals(self, normalize: Normalize) -> tuple[Floats, Floats]:
        """Where the shares of the population lie, cell by cell; NaN where there is none.

        Wilson's intervals, with the noise; each holds at the level for itself.
        """
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
        return notebook.table(rows, caption=f"Confusion matrix of {len(self.labels)} classes")


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
