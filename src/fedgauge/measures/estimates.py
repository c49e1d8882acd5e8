"""Metrics over all thresholds as estimates: binning, noise and sampling put together.

An interval is for the population the examples come from. Without noise all that binning
allows is added to it. Under noise bins are coarse, and it takes scores as spread smoothly within
them: the difference between two smooth readings of the same counts counts as error, and what
any data could do is in the bounds.
"""

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from fedgauge.errors import InputError
from fedgauge.estimation.distribution import ScoreDistribution
from fedgauge.estimation.pooled import PooledCounts
from fedgauge.measures import areas as metrics
from fedgauge.measures import losses as probabilities
from fedgauge.measures.areas import Bounded
from fedgauge.measures.curves import roc_curve
from fedgauge.measures.intervals import (
    LEVEL,
    Estimate,
    Interval,
    add_noise,
    critical,
    holding,
    log_interval,
    logit_interval,
    newcombe_interval,
    within,
)
from fedgauge.measures.losses import BinLosses, Loss, Positions
from fedgauge.measures.thresholds import AtThreshold
from fedgauge.typing import Floats

FEW: Final = 20  # examples of a class below which an interval is made for small samples
_DRAWS: Final = 200
_FEW_WRONG: Final = 5.0  # misplaced examples of the smaller class, likewise


class _Findings(NamedTuple):
    """What goes into an estimate.

    `number` has the bounds of binning, `other` is a second reading of the same counts,
    `interval` covers noise and sampling, `noise` and `sampling` are standard deviations,
    `shift` is where unbiased counts would put the value, and `scale` where it can lie.
    """

    number: Bounded
    other: float
    interval: Interval
    noise: float
    sampling: float
    shift: float = 0.0
    scale: tuple[float, float] = (0.0, 1.0)
    caution: str | None = None


def roc_auc(pooled: PooledCounts, distribution: ScoreDistribution, level: float) -> Estimate:
    """Area under the ROC curve."""
    counts, z, tied = pooled.counts, critical(level), pooled.axis.separates_all
    number = metrics.roc_auc(distribution, counts, tied=tied)
    straight = metrics.straight_auc(*counts)
    deviation = math.sqrt(metrics.auc_sampling_variance(counts, tied=tied))
    noise = math.sqrt(pooled.noise_variance(metrics.auc_gradient(counts)))
    wrong = min(number.value, 1.0 - number.value)
    if _few(pooled) or wrong * min(pooled.negatives, pooled.positives) < _FEW_WRONG:
        sampling = newcombe_interval(number.value, pooled.positives, pooled.negatives, z)
    else:
        sampling = logit_interval(number.value, deviation, z)
    shift = metrics.straight_auc(*pooled.unbiased) - straight if pooled.noisy else 0.0
    interval = add_noise(number.value, sampling, noise, z)
    return _estimate(pooled, level, _Findings(number, straight, interval, noise, deviation, shift))


def average_precision(
    pooled: PooledCounts, distribution: ScoreDistribution, level: float
) -> Estimate:
    """Average precision."""
    counts, tied = pooled.counts, pooled.axis.separates_all
    number = metrics.average_precision(distribution, counts, tied=tied)
    straight = float(metrics.straight_average_precision(counts))
    variance = float(metrics.average_precision_variance(counts, tied=tied))
    noise = float(pooled.noise_variance(metrics.average_precision_gradient(counts)))
    if not metrics.misplaced(counts):
        perfect = Interval(_perfect_precision(pooled, level), 1.0)
        interval = add_noise(number.value, perfect, math.sqrt(noise), critical(level))
    elif pooled.noisy:
        interval = _noisy_precision(pooled, level, number.value, math.sqrt(variance + noise))
    else:
        interval = logit_interval(number.value, math.sqrt(variance), critical(level))
    caution = _few_examples(pooled)
    if math.sqrt(noise) > 0.4 * min(number.value, 1.0 - number.value):
        # On the log-odds scale the interval is then up to 1.3 times as wide as it need be.
        caution = caution or "the noise is large next to the distance from 0 or 1: a wide interval"
    return _estimate(
        pooled,
        level,
        _Findings(
            number, straight, interval, math.sqrt(noise), math.sqrt(variance), caution=caution
        ),
    )


def _noisy_precision(
    pooled: PooledCounts, level: float, value: float, deviation: float
) -> Interval:
    """An interval for average precision from examples and noise drawn anew (bootstrap-t).

    A value that noise made too low comes with too small a deviation, so the critical value
    of the upper end comes from the draws. The deviation is the larger of two, because
    repaired counts vary less than those they stand for.
    """
    drawn = _redrawn(pooled, sampling=True)
    again = np.clip(metrics.straight_average_precision(drawn), 1e-9, 1 - 1e-9)
    start = float(metrics.straight_average_precision(pooled.counts))
    gradient = metrics.average_precision_gradient(drawn)
    spread = np.sqrt(
        metrics.average_precision_variance(drawn, tied=False) + pooled.noise_variance(gradient)
    )
    pivots = (_logit(again) - _logit(np.array(start))) * again * (1.0 - again) / spread
    normal = critical(level)
    farther = max(-float(np.quantile(pivots, (1.0 - level) / 2.0)), normal)
    reach = max(deviation, float(again.std()))
    return Interval(
        logit_interval(value, reach, normal).low, logit_interval(value, reach, farther).high
    )


def _perfect_precision(pooled: PooledCounts, level: float) -> float:
    """Least average precision that ordering all examples rightly is compatible with.

    At most a share q of a class of m is misplaced when none of m examples is, with
    (1 - q)**m = (1 - level) / 2 (Clopper & Pearson 1934).
    """
    tail = (1.0 - level) / 2.0
    low, high = (1.0 - tail ** (1.0 / m) for m in (pooled.positives, pooled.negatives))
    # Lowest when the misplaced negatives lie above every positive: precision then runs from 0.
    ahead = high * pooled.negatives / ((1.0 - low) * pooled.positives)
    return float((1.0 - low) * (1.0 - ahead * math.log1p(1.0 / ahead)))


def mean_loss(
    pooled: PooledCounts, level: float, loss: Loss, positions: Positions | None = None
) -> Estimate:
    """Log loss or Brier score."""
    losses = probabilities.bin_losses(pooled.axis, pooled.counts, loss, positions)
    number = probabilities.mean_loss(pooled.counts, losses)
    gradient = (losses.mean - number.value) / pooled.counts.sum()
    scale = (0.0, math.inf if loss == "log" else 1.0)
    caution = f"there are fewer than {FEW} examples" if pooled.counts.sum() < FEW else None
    return _loss_estimate(pooled, level, (losses, positions), number, gradient, 1.0, scale, caution)


def normalized_entropy(
    pooled: PooledCounts, level: float, positions: Positions | None = None
) -> Estimate:
    """Log loss over the entropy of the share of positives (He et al. 2014)."""
    losses = probabilities.bin_losses(pooled.axis, pooled.counts, "log", positions)
    loss = probabilities.mean_loss(pooled.counts, losses)
    total = float(pooled.counts.sum())
    rate = pooled.positives / total
    base = probabilities.entropy(rate)
    slope = math.log((1.0 - rate) / rate)
    towards = np.array([[-rate], [1.0 - rate]]) / total
    gradient = (losses.mean - loss.value) / (total * base) - loss.value * slope * towards / base**2
    number = Bounded(*(each / base for each in loss))
    caution = f"a class has fewer than {FEW} examples" if _few(pooled) else None
    return _loss_estimate(
        pooled, level, (losses, positions), number, gradient, base, (0.0, math.inf), caution
    )


def _loss_estimate(
    pooled: PooledCounts,
    level: float,
    measured: tuple[BinLosses, Positions | None],
    number: Bounded,
    gradient: Floats,
    base: float,
    scale: tuple[float, float],
    caution: str | None,
) -> Estimate:
    """An estimate of a mean loss divided by `base`."""
    losses, positions = measured
    counts, z, total = pooled.counts, critical(level), float(pooled.counts.sum()) * base
    inside = np.maximum(losses.square - losses.mean**2, 0.0) / total**2
    deviation = math.sqrt(float(np.sum(counts * (gradient**2 + inside))))
    noise = math.sqrt(
        pooled.noise_variance(gradient) + _position_noise(pooled, losses, positions) / base**2
    )
    if number.value > 0:
        sampling = log_interval(number.value, deviation, z)
    else:
        sampling = Interval(0.0, number.highest)
    return _estimate(
        pooled,
        level,
        _Findings(
            number,
            float(np.sum(counts * losses.even)) / total,
            add_noise(number.value, sampling, noise, z),
            noise,
            deviation,
            float(np.sum((pooled.unbiased - counts) * gradient)),
            scale,
            caution,
        ),
    )


def _position_noise(pooled: PooledCounts, losses: BinLosses, positions: Positions | None) -> float:
    """Variance that noise in measured positions adds to a mean loss."""
    if positions is None or not pooled.noisy:
        return 0.0
    # A position moves a bin's loss about as fast as the loss runs across the bin.
    reach = (losses.most - losses.least) * pooled.counts / pooled.counts.sum()
    off = np.minimum(positions.deviation, probabilities.LIKELY_OFF)
    return float(np.sum((reach * off) ** 2))


def partial_auc(
    pooled: PooledCounts,
    distribution: ScoreDistribution,
    level: float,
    max_fpr: float,
    *,
    standardise: bool,
) -> Estimate:
    """Area under the ROC curve up to `max_fpr`."""
    if not 0 < max_fpr <= 1:
        raise InputError(f"max_fpr must lie above 0 and at most at 1, got {max_fpr!r}.")

    def scaled(area: float) -> float:
        return metrics.standardised(area, max_fpr) if standardise and max_fpr < 1 else area

    def straight(counts: Floats) -> float:
        return scaled(metrics.area_up_to(*metrics.edge_rates(counts), max_fpr))

    tied = pooled.axis.separates_all
    found = metrics.partial_auc(roc_curve(distribution), pooled.counts, max_fpr, tied=tied)
    number = Bounded(*(scaled(area) for area in found))
    return _bootstrapped(pooled, level, number, straight, (scaled(0.0), scaled(max_fpr)))


def gain_area(pooled: PooledCounts, distribution: ScoreDistribution, level: float) -> Estimate:
    """Area under the precision-recall-gain curve; at most 1, and negative below chance."""

    def straight(counts: Floats) -> float:
        negatives, positives = counts.sum(axis=1)
        return metrics.straight_gain_area(*metrics.edge_rates(counts), positives / negatives)

    tied = pooled.axis.separates_all
    number = metrics.gain_area(roc_curve(distribution), pooled.counts, tied=tied)
    return _bootstrapped(pooled, level, number, straight, (-math.inf, 1.0))


def _bootstrapped(
    pooled: PooledCounts,
    level: float,
    number: Bounded,
    straight: Callable[[Floats], float],
    scale: tuple[float, float],
) -> Estimate:
    """An estimate whose interval comes from examples and noise drawn anew (percentiles)."""
    start = straight(pooled.counts)
    by_noise, by_both = (
        np.array([straight(counts) for counts in _redrawn(pooled, sampling=sampling)])
        for sampling in (False, True)
    )
    ends = np.quantile(by_both, [(1.0 - level) / 2.0, (1.0 + level) / 2.0]) - start
    noise = float(by_noise.std())
    return _estimate(
        pooled,
        level,
        _Findings(
            number,
            start,
            Interval(number.value + min(ends[0], 0.0), number.value + max(ends[1], 0.0)),
            noise,
            math.sqrt(max(float(by_both.var()) - noise**2, 0.0)),
            scale=scale,
            caution=_few_examples(pooled),
        ),
    )


def largest_gap(pooled: PooledCounts, level: float) -> Estimate:
    """Kolmogorov-Smirnov distance of the classes."""
    number, where = metrics.largest_gap(pooled.counts, tied=pooled.axis.separates_all)
    edges = np.append(np.inf, pooled.axis.thresholds[::-1])
    there = AtThreshold(pooled, float(edges[where]), level).youden_j
    low, high = there.low or 0.0, there.high or 0.0
    if there.value < 0:  # the classes are the wrong way round
        low, high = -high, -low
    return _estimate(
        pooled,
        level,
        _Findings(
            number,
            number.value,
            Interval(max(low, 0.0), high),
            there.parts.get("noise", 0.0),
            there.parts["sampling"],
        ),
    )


def mann_whitney_u(auc: Estimate, pooled: PooledCounts) -> Estimate:
    """Pairs of a positive and a negative in the right order, ties counting half."""
    counts = pooled.counts
    pairs = pooled.positives * pooled.negatives
    if not pooled.noisy:
        low, high = (bound * pairs for bound in auc.bounds)
        return Estimate(auc.value * pairs, (low, high))
    # Also the number of pairs is noisy: U moves with the sums it is made of.
    straight = metrics.straight_auc(*counts)
    weights = pairs * (metrics.auc_gradient(counts) + straight / counts.sum(axis=1)[:, np.newaxis])
    reach = critical(auc.level or LEVEL) * math.sqrt(pooled.noise_variance(weights))
    value, half = auc.value * pairs, auc.parts["binning"] * pairs
    shift = metrics.straight_auc(*pooled.unbiased) * pairs - straight * pairs
    bounds = holding(Interval(value + shift - half - reach, value + shift + half + reach), value)
    return Estimate(value, (max(bounds.low, 0.0), bounds.high), level=auc.level)


def _estimate(pooled: PooledCounts, level: float, found: _Findings) -> Estimate:
    bottom, top = found.scale
    value, lowest, highest = (min(max(number, bottom), top) for number in found.number)
    centre = value + found.shift
    bounds = Interval(lowest, highest)
    if pooled.noisy:
        reach = critical(level) * found.noise
        moved = Interval(lowest + found.shift - reach, highest + found.shift + reach)
        bounds = within(holding(moved, value), *found.scale)
        off = Interval(*sorted((found.other - value, 0.0)))
    else:
        off = Interval(lowest - value, highest - value)
    # What binning allows is an offset, not an error that averages out: it adds up in full.
    join = math.hypot if pooled.noisy else _in_full
    low = centre - join(value - found.interval.low, off.low)
    high = centre + join(found.interval.high - value, off.high)
    interval = within(holding(Interval(low, high), value), *found.scale)
    parts = {"binning": max(value - lowest, highest - value), "sampling": found.sampling}
    if pooled.noisy:
        parts["noise"] = found.noise
    return Estimate(
        value,
        (bounds.low, bounds.high),
        interval.low,
        interval.high,
        level,
        MappingProxyType(parts),
        found.caution or pooled.faint,
    )


def _in_full(error: float, offset: float) -> float:
    return error + abs(offset)


def _few_examples(pooled: PooledCounts) -> str | None:
    """Why there are too few examples for an interval, if there are."""
    if _few(pooled):
        return f"a class has fewer than {FEW} examples"
    auc = metrics.straight_auc(*pooled.counts)
    wrong = min(auc, 1.0 - auc)
    if wrong * min(pooled.negatives, pooled.positives) < _FEW_WRONG:
        return "hardly any example is misplaced"
    return None


def _few(pooled: PooledCounts) -> bool:
    return min(pooled.negatives, pooled.positives) < FEW


def _redrawn(pooled: PooledCounts, *, sampling: bool) -> Floats:
    draws = _DRAWS if pooled.noisy or sampling else 1
    return _usable(pooled.redrawn(draws, np.random.default_rng(0), sampling=sampling))


def _usable(drawn: Floats) -> Floats:
    """Draws in which both classes have examples."""
    kept: Floats = drawn[np.all(drawn.sum(axis=2) > 0, axis=1)]
    return kept


def _logit(share: Floats) -> Floats:
    logits: Floats = np.log(share / (1.0 - share))
    return logits
