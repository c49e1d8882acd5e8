"""Negatives against positives, and the metrics over all thresholds that are read from both.

Intervals are for the population. Without noise all that binning allows is added, but for bins read
as one value. Under noise bins are coarse: scores are taken as spread smoothly within them, the
difference of two smooth views of the same counts counts as error, and what any data could do is in
the bounds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, wraps
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedgauge.arrays import Floats
from fedgauge.errors import InputError
from fedgauge.estimation.counts import FINE, PooledCounts
from fedgauge.estimation.distribution import (
    Aligned,
    Estimator,
    Range,
    ScoreDistribution,
    estimate,
    require_both_classes,
    shrinks,
)
from fedgauge.metrics import areas
from fedgauge.metrics.areas import BinLosses, Bounded, Loss, Positions, bin_losses
from fedgauge.metrics.curves import PrCurve, RocCurve, pr_curve, roc_curve
from fedgauge.metrics.estimate import (
    LEVEL,
    Estimate,
    Interval,
    Metric,
    add_noise,
    critical,
    holding,
    log_interval,
    logit_interval,
    newcombe_interval,
    next_to_end,
    within,
)
from fedgauge.metrics.thresholds import AtThreshold

_Made = TypeVar("_Made")

FEW: Final = 20  # examples of a class below which an interval is made for small samples
_DRAWS: Final = 200
_CERTAIN: Final = 36.0  # loss of a score of 0 or 1 that is wrong, rounded down
_HIDDEN: Final = 1 / 3  # of the noise's deviation: examples that a count may lack
_FEW_WRONG: Final = 5.0  # misplaced examples of the smaller class, likewise
_TIES: Final = 1.5  # half-widths; rounded scores move the value about a third as far as ties
_WIDE_BINS: Final = (
    "bins are wide for so many examples: were scores equal within them, the value would be beyond "
    "the interval. If scores are rounded, see the bounds"
)


@dataclass(frozen=True, eq=False)
class Reading:
    """The negatives and positives of a :class:`~fedgauge.plan.task.Contrast`, and what follows."""

    pooled: PooledCounts
    estimator: Estimator  # how curves are drawn between the bin edges
    level: float  # confidence of intervals and bands and, under noise, of bounds
    positions: Positions | None = None  # where in the bins the scores lie, if that was measured
    _made: dict[Any, Any] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.pooled.shrinks and not shrinks(self.estimator):
            object.__setattr__(self, "pooled", self.pooled.unshrunk)

    @property
    def tied(self) -> NDArray[np.bool_]:
        """In which bins all scores are surely equal."""
        return self.pooled.axis.tied

    @property
    def atoms(self) -> NDArray[np.bool_]:
        """In which bins they are, surely or as far as counts tell."""
        return self.pooled.atoms

    @property
    def precision_of_rows(self) -> float | None:
        """Average precision of examples, where bins are so fine that they tell it; else None."""
        pooled = self.pooled
        if pooled.noisy or pooled.divided or not isinstance(self.estimator, Aligned):
            return None
        require_both_classes(pooled.negatives, pooled.positives)
        if not pooled.apart and pooled.axis.bins < FINE:
            return None
        return areas.precision_one_by_one(pooled.counts, tied=pooled.apart or pooled.single)

    @cached_property
    def distribution(self) -> ScoreDistribution:
        """The rates of both rows along all thresholds; needs examples of both."""
        pooled, smooths = self.pooled, isinstance(self.estimator, Range)
        counts = pooled.unbiased if smooths else pooled.likely
        return estimate(
            pooled.axis, counts, self.estimator, straight=pooled.apart, single=pooled.single
        )

    @cached_property
    def roc(self) -> RocCurve:
        """The ROC curve."""
        return roc_curve(self.distribution)

    @cached_property
    def pr(self) -> PrCurve:
        """The PR curve."""
        return pr_curve(self.distribution)

    @cached_property
    def rates(self) -> tuple[Floats, Floats]:
        """False and true positive rates at threshold infinity and at each edge, descending."""
        return areas.edge_rates(self.pooled.likely)

    @cached_property
    def unshrunk(self) -> "Reading":
        """The same from counts as noise left them: what intervals and bounds are made of."""
        return replace(self, pooled=self.pooled.unshrunk) if self.pooled.is_shrunk else self

    @cached_property
    def ratio(self) -> float:
        """Number of positives for each negative."""
        require_both_classes(self.pooled.negatives, self.pooled.positives)
        return self.pooled.positives / self.pooled.negatives

    @cached_property
    def worst(self) -> "Reading":
        """The same with positives as low and negatives as high as divided bins allow."""
        return self._moved(negatives_up=True, positives_up=False)

    @cached_property
    def best(self) -> "Reading":
        """The same with positives as high and negatives as low as divided bins allow."""
        return self._moved(negatives_up=False, positives_up=True)

    def _moved(self, *, negatives_up: bool, positives_up: bool) -> "Reading":
        if not self.pooled.divided:
            return self
        pooled = self.pooled.moved(negatives_up=negatives_up, positives_up=positives_up)
        return replace(self, pooled=pooled if self.pooled.shrinks else pooled.unshrunk)

    def once(self, make: Callable[["Reading"], _Made]) -> _Made:
        """What a function makes of it, made when first asked for."""
        if make not in self._made:
            self._made[make] = make(self)
        made: _Made = self._made[make]
        return made

    def losses(self, loss: Loss) -> BinLosses:
        """Losses of examples in each bin."""
        if loss not in self._made:
            counts, axis = self.pooled.counts, self.pooled.axis
            self._made[loss] = bin_losses(axis, counts, loss, self.positions)
        by_bin: BinLosses = self._made[loss]
        return by_bin

    def redrawn(self, draws: int, *, sampling: bool) -> Floats:
        """Counts as they would come out again, where both rows then have examples."""
        drawn = self.pooled.redrawn(draws, sampling=sampling)
        usable = np.all(drawn.sum(axis=-1) > 0, axis=-1)
        return drawn if usable.all() else drawn[usable]


class ReadingMetric(Metric):
    """A metric of a :class:`Reading`: called with one, or an attribute of what has a `_reading`."""

    def __init__(self, compute: Callable[[Reading], Estimate], title: str, **listing: bool) -> None:
        @wraps(compute)
        def of_owner(owner: Any) -> Estimate:
            return compute(owner._reading)

        super().__init__(of_owner, title, **listing)
        self._compute = compute

    def __call__(self, reading: Reading) -> Estimate:
        """The metric of a reading."""
        return self._compute(reading)


def reading_metric(
    title: str, *, listed: bool = True, recorded: bool = False
) -> Callable[[Callable[[Reading], Estimate]], ReadingMetric]:
    """Make a function of a reading a metric; its docstring is that of the metric."""
    return partial(ReadingMetric, title=title, listed=listed, recorded=recorded)


class _Ingredients(NamedTuple):
    number: Bounded  # with the bounds of binning
    spread: Interval  # where it lies if atoms are ties
    other: float  # what a second view of the same counts gives
    interval: Interval  # covers noise and sampling
    noise: float  # standard deviations, this and the next
    sampling: float
    shift: float = 0.0  # where unbiased counts would put the value
    scale: tuple[float, float] = (0.0, 1.0)  # where it can lie
    caution: str | None = None


@reading_metric("ROC AUC", recorded=True)
def roc_auc(reading: Reading) -> Estimate:
    """Area under the ROC curve.

    Formula: ``sum_i p_i (sum_{j<i} n_j + n_i / 2) / (n+ n-)`` where bins hold one value. On other
    axes the area under the smooth curve, which lies within the bounds.

    Source: Bamber 1975; Hanley & McNeil 1982.

    Bounds: the pairs within a bin are all in order, or none is. That is the sum above plus or
    minus ``sum_i p_i n_i / (2 n+ n-)``.

    Interval: DeLong et al. 1988 with placements by bin, normal on the logit scale (Pepe 2003). The
    placement of a positive is the share of negatives below it, and half of those in its bin. With
    fewer than 20 examples of a class, or 5 misplaced, it is method 5 of Newcombe 2006: the values
    from which this one does not differ significantly. Misplaced are the lesser of AUC and 1 - AUC,
    times the smaller class.

    Beware: where positives are rare it says little about a model. Read average precision too.
    """
    return _read(
        reading, _roc_auc, lambda r: areas.roc_auc(r.roc, r.pooled.likely, tied=r.tied).value
    )


def _roc_auc(reading: Reading) -> Estimate:
    pooled, z = reading.pooled, critical(reading.level)
    counts = pooled.counts
    number, spread = _binned(
        reading, lambda r, tied: areas.roc_auc(r.roc, r.pooled.counts, tied=tied)
    )
    straight = areas.straight_auc(*counts)
    deviation = math.sqrt(areas.auc_sampling_variance(counts, tied=reading.atoms))
    noise = math.sqrt(pooled.noise_variance(areas.auc_gradient(counts)))
    wrong = min(number.value, 1.0 - number.value)
    if _few(pooled) or wrong * min(pooled.negatives, pooled.positives) < _FEW_WRONG:
        sampling = newcombe_interval(number.value, pooled.positives, pooled.negatives, z)
    else:
        sampling = logit_interval(number.value, deviation, z)
    shift = areas.straight_auc(*pooled.unbiased) - straight if pooled.noisy else 0.0
    interval = add_noise(number.value, sampling, noise, z)
    found = _Ingredients(number, spread, straight, interval, noise, deviation, shift)
    return _estimate(reading, found._replace(caution=next_to_end(number.value, noise)))


@reading_metric("average precision", recorded=True)
def average_precision(reading: Reading) -> Estimate:
    """Average precision, the area under the PR curve.

    Formula: ``sum_k (R_k - R_{k-1}) P_k`` over distinct scores from the top, with recall R and
    precision P, where bins hold one value: scikit-learn's ``average_precision_score``. In an exact
    sum with 1,024 bins or more it is the mean of that sum over all orders within bins. Elsewhere it
    is the area under the smooth PR curve, lower by up to half an example for each positive.

    Source: Davis & Goadrich 2006; Boyd et al. 2013.

    Bounds: highest if the positives of each bin come first and tie. Lowest if its negatives come
    first and no two positives tie.

    Interval: first-order variance, normal on the logit scale (Boyd et al. 2013). Under noise
    bootstrap-t (Efron & Tibshirani 1993) with 200 draws of examples and noise. If the value is 1,
    what Clopper & Pearson 1934 allow to be misplaced in each class.

    Beware: few positives, hardly any example misplaced, heavy ties. It depends on the share of
    positives, so do not compare data with other shares.
    """
    return _read(
        reading,
        _average_precision,
        lambda r: areas.average_precision(r.pr, r.pooled.likely, tied=r.tied).value,
    )


def _average_precision(reading: Reading) -> Estimate:
    pooled, level = reading.pooled, reading.level
    counts = pooled.counts

    def bounded(tied: NDArray[np.bool_]) -> Bounded:
        of_rows = reading.precision_of_rows
        number = areas.average_precision(reading.pr, counts, tied=tied, of_rows=of_rows)
        if not pooled.divided:
            return number
        worst, best = reading.worst.pooled.counts, reading.best.pooled.counts
        return _joined(number, areas.precision_range(worst, best, tied=tied))

    number, spread = _apart(reading, bounded)
    straight = float(areas.straight_average_precision(counts))
    variance = float(areas.average_precision_variance(counts, tied=reading.atoms))
    noise = float(pooled.noise_variance(areas.average_precision_gradient(counts)))
    if number.value >= 1.0 or not areas.misplaced(counts):
        perfect = Interval(_perfect_precision(pooled, level), 1.0)
        interval = add_noise(number.value, perfect, math.sqrt(noise), critical(level))
    elif pooled.noisy:
        interval = _noisy_precision(reading, number.value, math.sqrt(variance + noise))
    else:
        interval = logit_interval(number.value, math.sqrt(variance), critical(level))
    caution = _few_examples(pooled) or next_to_end(number.value, math.sqrt(noise))
    if pooled.noisy and not (caution or pooled.lumped):
        of_ties = areas.average_precision(reading.pr, counts, tied=True).value
        reach = max(interval.high - number.value, number.value - interval.low)
        caution = _WIDE_BINS if abs(of_ties - number.value) > _TIES * reach else None
    return _estimate(
        reading,
        _Ingredients(
            *(number, spread, straight, interval, math.sqrt(noise), math.sqrt(variance)),
            caution=caution,
        ),
    )


def _noisy_precision(reading: Reading, value: float, deviation: float) -> Interval:
    """An interval for average precision from examples and noise drawn anew (bootstrap-t).

    A value that noise made too low has too small a deviation, so the upper end's critical value
    comes from the draws. The deviation is the larger of two: repaired counts vary too little.
    """
    pooled, level = reading.pooled, reading.level
    drawn = reading.redrawn(_DRAWS, sampling=True)
    again, start = (
        np.clip(areas.straight_average_precision(counts), 1e-9, 1 - 1e-9)
        for counts in (drawn, pooled.counts)
    )
    gradient = areas.average_precision_gradient(drawn)
    deviations = np.sqrt(
        areas.average_precision_variance(drawn, tied=False) + pooled.noise_variance(gradient)
    )
    pivots = (_logit(again) - _logit(start)) * again * (1.0 - again) / deviations
    normal = critical(level)
    farther = max(-float(np.quantile(pivots, (1.0 - level) / 2.0)), normal)
    reach = max(deviation, float(again.std()))
    return Interval(
        logit_interval(value, reach, normal).low, logit_interval(value, reach, farther).high
    )


def _perfect_precision(pooled: PooledCounts, level: float) -> float:
    """Least average precision that ordering all examples rightly is compatible with.

    When none of m examples of a class is misplaced, at most a share q of the population's is: ``(1
    - q)**m = (1 - level) / 2`` (Clopper & Pearson 1934).
    """
    tail = (1.0 - level) / 2.0
    low, high = (1.0 - tail ** (1.0 / m) for m in (pooled.positives, pooled.negatives))
    # Lowest when the misplaced negatives lie above every positive: precision then runs from 0.
    ahead = high * pooled.negatives / ((1.0 - low) * pooled.positives)
    if ahead == 0.0:  # more examples than a float tells from infinitely many
        return float(1.0 - low)
    return float((1.0 - low) * (1.0 - ahead * math.log1p(1.0 / ahead)))


def mean_loss(reading: Reading, loss: Loss) -> Estimate:
    """Log loss or Brier score."""
    pooled = reading.pooled
    by_bin = reading.losses(loss)
    number = _mean_loss(reading, loss)
    gradient = (by_bin.mean - number.value) / pooled.counts.sum()
    scale = (0.0, math.inf if loss == "log" else 1.0)
    caution = f"there are fewer than {FEW} examples" if pooled.counts.sum() < FEW else None
    return _loss_estimate(reading, by_bin, number, gradient, 1.0, scale, caution)


@reading_metric("log loss", recorded=True)
def log_loss(reading: Reading) -> Estimate:
    """Mean negative log-likelihood of the labels, in nats.

    Formula: mean of ``-y ln s - (1 - y) ln(1 - s)``, with scores kept 2.2e-16 away from 0 and 1 as
    in scikit-learn. Within a bin the scores of a class follow a monotone cubic through its
    cumulative counts, or lean towards their mean if the plan has score sums.

    Source: Good 1952.

    Bounds: each example has the least, or the most, loss that its bin allows. If the axis clips,
    its end bins reach to 0 and 1. Exact score sums narrow them: the loss is at least that of the
    mean score (Jensen 1906), and at most that of scores at the ends of the bin.

    Interval: first-order variance, with the spread of losses within bins, normal on the log scale.

    Beware: one positive in a bin that starts at 0, or one negative in a bin that ends at 1, may
    cost up to 36. ``fg.Axis.logit`` makes these bins narrow.
    """
    return mean_loss(reading, "log")


@reading_metric("Brier score", recorded=True)
def brier_score(reading: Reading) -> Estimate:
    """Mean squared difference of score and label.

    Formula: mean of ``(s - y)^2``.

    Source: Brier 1950.

    Bounds: as for log loss.

    Interval: as for log loss.

    Beware: a low score is both ranking and calibration, and does not say which.
    """
    return mean_loss(reading, "squared")


def _mean_loss(reading: Reading, loss: Loss) -> Bounded:
    return _bounded(reading, lambda r: areas.mean_loss(r.pooled.counts, r.losses(loss)))


@reading_metric("normalized entropy", recorded=True)
def normalized_entropy(reading: Reading) -> Estimate:
    """Log loss over that of always predicting the share of positives; below 1 is better.

    Formula: log loss / ``(-q ln q - (1 - q) ln(1 - q))`` with ``q = n+ / n``.

    Source: He et al. 2014.

    Bounds: as for log loss.

    Interval: as for log loss.

    Beware: it changes with the share of positives.
    """
    pooled = reading.pooled
    by_bin = reading.losses("log")
    loss = _mean_loss(reading, "log")
    total = pooled.negatives + pooled.positives  # without either the rate is 0 or 1 to the last bit
    rate = pooled.positives / total
    base = areas.entropy(rate)  # He et al. 2014
    slope = math.log((1.0 - rate) / rate)
    towards = np.array([[-rate], [1.0 - rate]]) / total
    gradient = (by_bin.mean - loss.value) / (total * base) - loss.value * slope * towards / base**2
    number = Bounded(*(each / base for each in loss))
    caution = f"a class has fewer than {FEW} examples" if _few(pooled) else None
    return _loss_estimate(reading, by_bin, number, gradient, base, (0.0, math.inf), caution)


def _unseen_losses(reading: Reading, by_bin: BinLosses, reach: float) -> str | None:
    """Why a log loss may be far off: scores of 0 and 1 cost 36 where wrong, and few were wrong."""
    pooled = reading.pooled
    counts = held = pooled.counts
    if pooled.noisy:  # a bin that seems empty may hold some
        held = np.maximum(counts, _HIDDEN * np.sqrt(pooled.leaf_variances))
    could = np.where(~reading.tied & (by_bin.most > _CERTAIN), by_bin.most - by_bin.mean, 0.0)
    if 2.0 * float(np.sum(held * could)) > reach * float(counts.sum()):
        return "scores in an end bin may be 0 or 1, where each wrong one costs 36: see the bounds"
    worst = reading.tied & (by_bin.mean > _CERTAIN)
    wrong = float(counts[worst].sum())
    # Of none seen there may be three (as many as are missed once in 20 times).
    unseen = _CERTAIN * max(2.0 * math.sqrt(wrong), 3.0) / float(counts.sum())
    if not counts[:, worst.any(axis=0)].any() or wrong >= FEW or 2.0 * unseen < reach:
        return None
    return "scores are exactly 0 or 1, where each wrong one costs 36, and few wrong ones were seen"


def _loss_estimate(
    reading: Reading,
    by_bin: BinLosses,
    number: Bounded,
    gradient: Floats,
    base: float,
    scale: tuple[float, float],
    caution: str | None,
) -> Estimate:
    """An estimate of a mean loss divided by `base`."""
    pooled, z = reading.pooled, critical(reading.level)
    counts, total = pooled.counts, float(pooled.counts.sum()) * base
    inside = np.maximum(by_bin.square - by_bin.mean**2, 0.0) / total**2
    deviation = math.sqrt(float(np.sum(counts * (gradient**2 + inside))))
    noise = math.sqrt(pooled.noise_variance(gradient) + _position_noise(reading, by_bin) / base**2)
    caution = caution or _unseen_losses(reading, by_bin, z * math.hypot(deviation, noise) * base)
    if number.value > 0:
        sampling = log_interval(number.value, deviation, z)
    else:
        sampling = Interval(0.0, number.highest)
    return _estimate(
        reading,
        _Ingredients(
            number,
            Interval(number.lowest, number.highest),
            float(np.sum(counts * by_bin.even)) / total,
            add_noise(number.value, sampling, noise, z),
            noise,
            deviation,
            float(np.sum((pooled.unbiased - counts) * gradient)),
            scale,
            caution,
        ),
    )


def _position_noise(reading: Reading, by_bin: BinLosses) -> float:
    """Variance that noise in measured positions adds to a mean loss."""
    pooled, positions = reading.pooled, reading.positions
    if positions is None or not pooled.noisy:
        return 0.0
    # A position moves a bin's loss about as fast as the loss runs across the bin.
    reach = (by_bin.most - by_bin.least) * pooled.counts / pooled.counts.sum()
    off = np.minimum(positions.deviation, areas.LIKELY_OFF)
    return float(np.sum((reach * off) ** 2))


def partial_auc(reading: Reading, max_fpr: float, *, standardise: bool) -> Estimate:
    """Area under the ROC curve up to `max_fpr`."""
    if not 0 < max_fpr <= 1:
        raise InputError(f"max_fpr must lie above 0 and at most at 1, got {max_fpr!r}.")

    def scaled(area: float) -> float:
        return areas.standardised(area, max_fpr) if standardise and max_fpr < 1 else area

    def straight(fpr: Floats, tpr: Floats, _: float) -> float:
        return scaled(areas.area_up_to(fpr, tpr, max_fpr))

    def area(r: Reading, tied: NDArray[np.bool_]) -> Bounded:
        return Bounded(*map(scaled, areas.partial_auc(r.roc, r.rates, max_fpr, tied=tied)))

    def estimate(r: Reading) -> Estimate:
        return _bootstrapped(r, area, straight, (scaled(0.0), scaled(max_fpr)))

    return _read(reading, estimate, lambda r: area(r, r.atoms).value)


@reading_metric("PR-gain area")
def auprg(reading: Reading) -> Estimate:
    """Area under the precision-recall-gain curve.

    Formula: the area under precision gain ``1 - F / T`` over recall gain ``1 + r - r / T``, from
    recall gain 0 to 1, with ``r = n+ / n-``. At most 1; 0 for chance, negative below chance.

    Source: Flach & Kull 2015.

    Bounds: paths that take the positives of each bin first, or its negatives.

    Interval: percentiles of 200 draws of examples and noise.

    Beware: few examples, or hardly any misplaced. Where none is, drawing again shows no error, and
    the interval shrinks to a point.
    """

    def area(r: Reading, tied: NDArray[np.bool_]) -> Bounded:
        return areas.auprg(r.roc, r.rates, r.ratio, tied=tied)

    def estimate(r: Reading) -> Estimate:
        return _bootstrapped(r, area, areas.straight_auprg, (-math.inf, 1.0))

    return _read(reading, estimate, lambda r: area(r, r.atoms).value)


def _bootstrapped(
    reading: Reading,
    area: Callable[[Reading, NDArray[np.bool_]], Bounded],
    straight: Callable[[Floats, Floats, float], float],
    scale: tuple[float, float],
) -> Estimate:
    """An estimate of an area whose interval comes from examples and noise drawn anew (percentiles).

    `straight` reads the number off rates at the edges and the positives for each negative.
    """

    def read(drawn: Floats) -> Floats:
        totals = drawn.sum(axis=-1)
        ratios = totals[:, 1] / totals[:, 0]
        return np.array([*map(straight, *areas.edge_rates(drawn), ratios)])

    by_noise, by_both = (
        read(reading.redrawn(_DRAWS, sampling=sampling)) for sampling in (False, True)
    )
    number, spread = _binned(reading, area)
    start = float(read(reading.pooled.counts[np.newaxis])[0])
    level = reading.level
    ends = np.quantile(by_both, [(1.0 - level) / 2.0, (1.0 + level) / 2.0]) - start
    noise = float(by_noise.std())
    return _estimate(
        reading,
        _Ingredients(
            number,
            spread,
            start,
            Interval(number.value + min(ends[0], 0.0), number.value + max(ends[1], 0.0)),
            noise,
            math.sqrt(max(float(by_both.var()) - noise**2, 0.0)),
            scale=scale,
            caution=_few_examples(reading.pooled),
        ),
    )


@reading_metric("KS distance", recorded=True)
def ks_statistic(reading: Reading) -> Estimate:
    """Kolmogorov-Smirnov distance: the largest difference of the two rates.

    Formula: the largest ``|T - F|`` at an edge of a bin.

    Source: Smirnov 1939.

    Bounds: from the value to the most that a threshold inside a bin could reach.

    Interval: that of Youden's J at the same edge, and the bounds.

    Beware: it is the best of many thresholds on the same data. If the classes hardly differ it is
    too high, and the interval does not correct for that.
    """
    return _read(reading, _ks_statistic, lambda r: areas.largest_gap(r.rates, tied=True)[0].value)


def _ks_statistic(reading: Reading) -> Estimate:
    pooled = reading.pooled
    require_both_classes(pooled.negatives, pooled.positives)
    _, where = areas.largest_gap(reading.rates, tied=True)

    def bounded(tied: NDArray[np.bool_]) -> Bounded:
        number, _ = areas.largest_gap(reading.rates, tied=tied)
        if not pooled.divided:
            return number
        ends = reading.worst.rates, reading.best.rates
        return _joined(number, areas.gap_range(*ends, tied=tied))

    number, spread = _apart(reading, bounded)
    edges = np.append(np.inf, pooled.axis.thresholds[::-1])
    there = AtThreshold(pooled, float(edges[where]), reading.level).youden_j
    low, high = there.low or 0.0, there.high or 0.0
    if there.value < 0:  # the classes are the wrong way round
        low, high = -high, -low
    return _estimate(
        reading,
        _Ingredients(
            number,
            spread,
            number.value,
            Interval(max(low, 0.0), high),
            there.parts.get("noise", 0.0),
            there.parts["sampling"],
        ),
    )


@reading_metric("Mann-Whitney U", listed=False)
def mann_whitney_u(reading: Reading) -> Estimate:
    """Pairs of a positive and a negative that are in order, ties counting half.

    Formula: AUC times ``n+ n-``.

    Source: Mann & Whitney 1947.

    Bounds: those of the AUC times ``n+ n-``. Under noise also what noise does to ``n+ n-``.

    Interval: none, because it is a count.

    Beware: do not compare data of different sizes by it.
    """
    auc, pairs = roc_auc(reading), reading.pooled.positives * reading.pooled.negatives
    return _mann_whitney_u(reading, auc.unshrunk, pairs).moved_to(auc.value * pairs)


def _mann_whitney_u(reading: Reading, auc: Estimate, pairs: float) -> Estimate:
    pooled = reading.pooled
    counts = pooled.counts
    if not pooled.noisy:
        low, high = (bound * pairs for bound in auc.bounds)
        return Estimate(auc.value * pairs, (low, high))
    # Also the number of pairs is noisy: U moves with the sums it is made of.
    straight = areas.straight_auc(*counts)
    weights = pairs * (areas.auc_gradient(counts) + straight / counts.sum(axis=1)[:, np.newaxis])
    reach = critical(auc.level or LEVEL) * math.sqrt(pooled.noise_variance(weights))
    value, half = auc.value * pairs, auc.parts["binning"] * pairs
    shift = areas.straight_auc(*pooled.unbiased) * pairs - straight * pairs
    bounds = holding(Interval(value + shift - half - reach, value + shift + half + reach), value)
    return Estimate(value, (max(bounds.low, 0.0), bounds.high), level=auc.level)


def _read(
    reading: Reading, estimate: Callable[[Reading], Estimate], value: Callable[[Reading], float]
) -> Estimate:
    """An estimate of counts as noise left them, with the value of likely ones.

    Intervals around that value would be too short: shrinkage turns noise into an unknown bias.
    """
    told = estimate(reading.unshrunk)
    return told if reading.unshrunk is reading else told.moved_to(value(reading))


def _bounded(reading: Reading, measure: Callable[[Reading], Bounded]) -> Bounded:
    """A number that rises or falls with every score of a class, with all that the data allows."""
    number = measure(reading)
    if not reading.pooled.divided:
        return number
    worst, best = measure(reading.worst), measure(reading.best)
    return _joined(number, (min(worst.lowest, best.lowest), max(worst.highest, best.highest)))


def _binned(
    reading: Reading, measure: Callable[[Reading, NDArray[np.bool_]], Bounded]
) -> tuple[Bounded, Interval]:
    """A number with all that the data allows, and where it lies if atoms are ties."""
    return _apart(reading, lambda tied: _bounded(reading, lambda each: measure(each, tied)))


def _apart(
    reading: Reading, bounded: Callable[[NDArray[np.bool_]], Bounded]
) -> tuple[Bounded, Interval]:
    """The same, where all that a number takes is in which bins scores tie."""
    value, low, high = bounded(reading.atoms)
    _, lowest, highest = bounded(reading.tied)
    return Bounded(value, lowest, highest), Interval(low, high)


def _joined(number: Bounded, ends: tuple[float, float]) -> Bounded:
    lowest, highest = ends
    return Bounded(number.value, min(number.lowest, lowest), max(number.highest, highest))


def _estimate(reading: Reading, ingredients: _Ingredients) -> Estimate:
    pooled, level = reading.pooled, reading.level
    bottom, top = ingredients.scale
    value, lowest, highest = (min(max(number, bottom), top) for number in ingredients.number)
    spread = Interval(*(min(max(end, bottom), top) for end in ingredients.spread))
    centre = value + ingredients.shift
    bounds = Interval(lowest, highest)
    if pooled.noisy:
        reach = critical(level) * ingredients.noise
        moved = Interval(lowest + ingredients.shift - reach, highest + ingredients.shift + reach)
        bounds = within(holding(moved, value), *ingredients.scale)
        off = Interval(*sorted((ingredients.other - value, 0.0)))
    else:
        off = Interval(spread.low - value, spread.high - value)
    # What binning allows is an offset, not an error that averages out: it adds up in full.
    join = math.hypot if pooled.noisy else lambda error, offset: error + abs(offset)
    low = centre - join(value - ingredients.interval.low, off.low)
    high = centre + join(ingredients.interval.high - value, off.high)
    interval = within(holding(Interval(low, high), value), *ingredients.scale)
    binning = max(value - spread.low, spread.high - value)
    parts = {"binning": binning, "sampling": ingredients.sampling}
    if pooled.noisy:
        parts["noise"] = ingredients.noise
    return Estimate(
        value,
        (bounds.low, bounds.high),
        interval.low,
        interval.high,
        level,
        parts,
        ingredients.caution or pooled.faint or pooled.lumped,
    )


def _few_examples(pooled: PooledCounts) -> str | None:
    """Why there are too few examples for an interval, if there are."""
    if _few(pooled):
        return f"a class has fewer than {FEW} examples"
    auc = areas.straight_auc(*pooled.counts)
    wrong = min(auc, 1.0 - auc)
    if wrong * min(pooled.negatives, pooled.positives) < _FEW_WRONG:
        return "hardly any example is misplaced"
    return None


def _few(pooled: PooledCounts) -> bool:
    return min(pooled.negatives, pooled.positives) < FEW


def _logit(share: Floats) -> Floats:
    logits: Floats = np.log(share / (1.0 - share))
    return logits
