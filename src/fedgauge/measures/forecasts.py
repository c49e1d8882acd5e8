"""Scores read as forecasts: what each bin promised, what came true, and the noise in both."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fedgauge.estimation.pooled import PooledCounts
from fedgauge.measures.losses import (
    LIKELY_OFF,
    Positions,
    likely,
    require_probabilities,
    within_bins,
)
from fedgauge.measures.reading import Reading
from fedgauge.typing import Floats

_ANYWHERE: Final = 12**-0.5  # widths by which scores spread evenly over a bin are off its middle
_CROWD: Final = 4.0  # times the density of its neighbour
_FARTHEST: Final = 1e-9  # from 0 and 1, where log-odds are still told apart


@dataclass(frozen=True, eq=False)
class Forecasts:
    """The mean score of each bin, both classes together, and the counts it is held against.

    The mean is that of all examples of a bin. Means of each class would tell the label: within a
    wide bin positives score higher, and what is left of the label looks like miscalibration.

    Attributes
    ----------
    pooled
        The counts, and the noise in them.
    scores
        The mean score by bin, from 0 to 1.
    lowest, highest
        What the mean score of a bin can be.
    misplaced
        How far the mean score typically is from where it was taken to be.
    """

    pooled: PooledCounts
    scores: Floats
    lowest: Floats
    highest: Floats
    misplaced: Floats

    @classmethod
    def of(cls, reading: Reading) -> "Forecasts":
        """The forecasts of a reading, whose scores must be probabilities."""
        pooled = reading.pooled
        axis = pooled.axis
        require_probabilities(axis, "measures of calibration")
        lower, upper = np.clip([axis.edges[:-1], axis.edges[1:]], 0.0, 1.0)
        scores, misplaced = lower, np.zeros(axis.bins)
        if axis.kind != "values":
            place, off = _places(axis.edges, pooled.counts, reading.positions)
            off = np.where(_crowded(axis.edges, pooled.counts, reading.positions), _ANYWHERE, off)
            scores, misplaced = lower + place * (upper - lower), off * (upper - lower)
        lowest, highest = (scores, scores) if axis.separates_all else (lower, upper)
        if axis.outside == "clip":  # the end bins hold every score beyond them
            lowest, highest = lowest.copy(), highest.copy()
            lowest[0], highest[-1] = 0.0, 1.0
        return cls(pooled, scores, lowest, highest, misplaced)

    @property
    def counts(self) -> Floats:
        """Negatives and positives by bin, none of them negative."""
        return self.pooled.counts

    @cached_property
    def totals(self) -> Floats:
        """Examples by bin."""
        totals: Floats = self.counts.sum(axis=0)
        return totals

    @cached_property
    def log_odds(self) -> Floats:
        """The log-odds of the mean scores."""
        scores = np.clip(self.scores, _FARTHEST, 1.0 - _FARTHEST)
        odds: Floats = np.log(scores) - np.log1p(-scores)
        return odds

    @property
    def hidden(self) -> Floats:
        """How far the mean score is off in bins where examples crowd; 0 in all others.

        There it could be anywhere in the bin; elsewhere neighbours say where, and what they leave
        open is less than chance does.
        """
        widths = self.highest - self.lowest
        return np.where(self.misplaced >= _ANYWHERE * widths, self.misplaced, 0.0)

    @cached_property
    def noise(self) -> Floats:
        """Noise variance of one count, by bin: the mean of both classes."""
        if not self.pooled.noisy:
            return np.zeros(len(self.scores))
        noise: Floats = self.pooled.leaf_variances.mean(axis=0)
        return noise


def _crowded(edges: Floats, counts: Floats, positions: Positions | None) -> NDArray[np.bool_]:
    """Which bins next to 0 or 1 hold so many examples that their neighbours do not say where."""
    crowded = np.zeros(counts.shape[1], dtype=bool)
    if positions is not None or len(crowded) < 2:
        return crowded
    with np.errstate(over="ignore"):  # bins as narrow as floats can be
        density = counts.sum(axis=0) / np.diff(edges)
    crowded[0] = edges[0] <= 0 and density[0] > _CROWD * density[1]
    crowded[-1] = edges[-1] >= 1 and density[-1] > _CROWD * density[-2]
    return crowded


def _places(edges: Floats, counts: Floats, positions: Positions | None) -> tuple[Floats, Floats]:
    """Where in its bin the mean score of both classes lies, from 0 to 1, and how far off."""
    totals = counts.sum(axis=0, keepdims=True)
    _, middle = within_bins(edges, totals)
    if positions is None:
        return middle[0], np.full(len(middle[0]), LIKELY_OFF)
    shares = np.where(totals > 0, counts / np.maximum(totals, 1e-300), 0.5)
    mean = (shares * positions.mean).sum(axis=0)
    with np.errstate(invalid="ignore"):  # no examples of a class: endless deviation, no share
        each = np.where(shares > 0, shares * positions.deviation, 0.0)
    deviation = np.sqrt((each**2).sum(axis=0))
    place = likely(middle[0], Positions(mean, deviation, positions.reach))
    return place, np.minimum(deviation, LIKELY_OFF)
