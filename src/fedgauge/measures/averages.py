"""Averages over classes or labels: how the errors of their parts go together.

Every part compares some channels with others. Noise is of channels, so what it does to an average
follows from what each channel weighs in it. Of the examples, counts tell how each score spreads
within a class but not how the scores of one example go together. So the sampling deviation is the
largest that any dependence allows: within a class those of different scores add up (Cauchy and
Schwarz), and classes are independent. Intervals are conservative. Local reports about different
scores are of different rows: there all are independent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgauge.estimation import repair
from fedgauge.estimation.drawn import DrawnBlock
from fedgauge.measures import areas
from fedgauge.measures.intervals import Estimate, Interval, critical, holding, within
from fedgauge.measures.outcomes import Formula, ThresholdOutcomes
from fedgauge.measures.reading import Reading
from fedgauge.plan.slices import Contrast
from fedgauge.typing import Floats

UNIT: Final = Interval(0.0, 1.0)


class Influence(NamedTuple):
    """What one more example of each side and bin does to a metric, and how that runs across bins.

    `shift` is where unbiased counts would put the value, less where repaired ones put it.
    """

    gradient: Floats
    runs: Floats
    shift: float = 0.0


def of_auc(reading: Reading) -> Influence:
    """What examples do to the area under the ROC curve."""
    pooled = reading.pooled
    shift = 0.0
    if pooled.noisy:
        shift = areas.straight_auc(*pooled.unbiased) - areas.straight_auc(*pooled.counts)
    runs = 0.0 if reading.tied else 1.0
    return Influence(areas.auc_gradient(pooled.counts), runs * areas.auc_runs(pooled.counts), shift)


def of_average_precision(reading: Reading) -> Influence:
    """What examples do to average precision."""
    counts = reading.pooled.counts
    runs = 0.0 if reading.tied else 1.0
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


class Errors(NamedTuple):
    """How the errors of parts go together.

    `noise` is the standard deviation of the average by noise, `dependence` that by sampling as a
    share of what wholly dependent parts have, and `weights` what is not in it: that of the weights.
    """

    noise: float
    dependence: float
    weights: float = 0.0


@dataclass(frozen=True, eq=False)
class Shared:
    """The channels that parts have in common.

    Attributes
    ----------
    counts
        By channel and bin, none negative.
    blocks, strata
        Which score each channel is of, and which of the strata that all scores share.
    tree, variances
        Of the noise: branchings, and the variance of a node at each level; empty without.
    drawn
        Of local reports: the blocks, with a side for each channel, in the order of channels.
    """

    counts: Floats
    blocks: NDArray[np.intp]
    strata: NDArray[np.intp]
    tree: tuple[int, ...]
    variances: tuple[float, ...]
    drawn: tuple[DrawnBlock, ...] = ()

    def errors(self, parts: Sequence[Part], moves: Sequence[Move] = ()) -> Errors:
        """How the errors of parts, and of their weights, go together."""
        asked = [*(side for part in parts for side in part.contrast), *(m.rows for m in moves)]
        used = np.unique(np.concatenate([np.array(rows, dtype=np.intp) for rows in asked]))
        of_used = replace(
            self, counts=self.counts[used], blocks=self.blocks[used], strata=self.strata[used]
        )
        return of_used._errors(parts, moves, used)

    def _errors(
        self, parts: Sequence[Part], moves: Sequence[Move], used: NDArray[np.intp]
    ) -> Errors:
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
        return Errors(self._noise(gradient), together / alone if alone > 0 else 1.0)

    def _apart(self, parts: Sequence[Part], of_weights: Floats) -> Errors:
        """As if the parts were as dependent as can be; they have no channel in common."""
        noise = math.hypot(*(p.weight * p.estimate.parts.get("noise", 0.0) for p in parts))
        return Errors(noise, 1.0, self._sampling(of_weights**2))

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
    parts: Sequence[Part], errors: Errors, level: float, scale: Interval, caution: str | None
) -> Estimate:
    """The weighted mean of parts, with where the truth lies.

    Distances to the ends of intervals add up, by parts that are wholly dependent, and are then
    taken for as dependent as they can be; noise is added in squares (Zou & Donner 2008, MOVER).
    All of it is of counts as noise left them; the value is the mean of the parts' own.
    """
    bare = [part._replace(estimate=part.estimate.unshrunk) for part in parts]
    return _average(bare, errors, level, scale, caution).moved_to(_mean(parts))


def _mean(parts: Sequence[Part]) -> float:
    return float(sum(part.weight * part.estimate.value for part in parts))


def _average(
    parts: Sequence[Part], errors: Errors, level: float, scale: Interval, caution: str | None
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
        low, high = lowest - below, highest + above
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


def _reach(part: Part, z: float) -> Interval:
    """How far sampling alone carries the ends of a part's interval."""
    estimate = part.estimate
    low, high = estimate.interval or Interval(*estimate.bounds)
    if "noise" not in estimate.parts:
        lowest, highest = estimate.bounds
        return Interval(max(lowest - low, 0.0), max(high - highest, 0.0))
    centre, noise = estimate.value + _shift(part), z * estimate.parts["noise"]
    ends = (math.sqrt(max(gap * abs(gap) - noise**2, 0.0)) for gap in (centre - low, high - centre))
    return Interval(*ends)
