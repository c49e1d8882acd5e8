"""Where scores are: a public coarse axis that is counted first, and the bins that follow from it.

Everybody who has the counts of the coarse axis finds the same bins, in whole numbers. Made-up
counts can only choose among bins that the rules below allow.
"""

import operator
import sys
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedgauge.arrays import Floats
from fedgauge.errors import AxisError
from fedgauge.histograms.axis import Axis

PARTS: Final = 16  # that a coarse bin may be divided into, evenly
MOST_COARSE: Final = 1 << 16  # coarse bins: their counts travel in the second plan
MOST_FOUND: Final = 1 << 16  # bins of the second round: found again by whoever reads a plan
_COARSE: Final = 512
_WIDEST: Final = 2  # bins at least, whatever was counted: more would be empty ones at the ends
_CROWDED: Final = 4  # times as much as a bin should hold, or as densely as its neighbours
_CERTAIN: Final = 1 << 30  # a probability of 1, in whole numbers
_FEWEST: Final = 3  # bins: one before, one of and one after a crowded value
_FEWEST_COARSE: Final = 2


class CoarseGroups(NamedTuple):
    """Where each group of neighbouring coarse bins begins, and its count, which noise may lower."""

    starts: Sequence[int]
    counts: Sequence[int]


class TwoRound(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Bins of equal depth, found in a first round: for scores whose scale nobody knows.

    A first round counts all scores, both classes together, over a coarse public axis. Edges are put
    where equally many scores lie between them, and a second round counts both classes there
    (Cormode and Markov, 2023).

    Parameters
    ----------
    bins
        The most bins that the second round has.
    share
        Of the privacy budget, or under local DP of the users, for the first round.
    coarse
        What the first round counts over. By default 512 bins from -1e6 to 1e6, in proportion to the
        score: ``Axis.asinh(512)``. For probabilities ``Axis.logit(512, limit=32.0,
        outside="clip")``.
    narrowest
        No bin but the first and the last is narrower, nor what lies between an edge of this round
        and one of the first: sums of both can be subtracted from each other.
    widest
        No bin is wider than so many coarse bins; by default half of them.

    Examples
    --------
    >>> points = np.arange(300, 851)
    >>> fg.evaluate({"bank": (points > 700, points)}, axis=fg.TwoRound(8)).axis.bins
    8
    """

    bins: int
    share: float = 0.1
    coarse: Axis = msgspec.field(default_factory=lambda: Axis.asinh(_COARSE))
    narrowest: float = 0.0
    widest: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.bins, bool) or not isinstance(self.bins, int):
            raise AxisError(f"bins must be a whole number, got {type(self.bins).__name__}.")
        if not _FEWEST <= self.bins <= MOST_FOUND:
            raise AxisError(f"two rounds find {_FEWEST} to {MOST_FOUND:,} bins, got {self.bins:,}.")
        if not isinstance(self.coarse, Axis):
            raise AxisError(f"coarse must be an Axis, got {type(self.coarse).__name__}.")
        if self.coarse.kind == "values":
            raise AxisError("scores of known values need no first round: use Axis.from_values.")
        if not _FEWEST_COARSE <= self.coarse.bins <= MOST_COARSE:
            raise AxisError(
                f"a coarse axis has {_FEWEST_COARSE} to {MOST_COARSE:,} bins, got "
                f"{self.coarse.bins:,}."
            )
        if not (isinstance(self.share, float) and 0.01 <= self.share <= 0.9):
            raise AxisError(
                "share, what the first round may use of the budget, must lie between 0.01 and 0.9."
            )
        number = isinstance(self.narrowest, float | int) and not isinstance(self.narrowest, bool)
        if not (number and 0 <= self.narrowest <= sys.float_info.max):
            raise AxisError("narrowest must be a width, 0 or above.")
        for name in ("share", "narrowest"):  # one form for equal plans
            msgspec.structs.force_setattr(self, name, float(getattr(self, name)))
        least = -(-self.coarse.bins // (self.bins // 2 or 1))
        if not (self.widest == 0 or least <= self.widest <= self.coarse.bins):
            raise AxisError(
                f"widest must lie between {least:,} and {self.coarse.bins:,} coarse bins, so that "
                "half of the bins are free to be where scores are; or be 0."
            )

    @property
    def most_wide(self) -> int:
        """The most coarse bins that one bin holds."""
        least = -(-self.coarse.bins // (self.bins // 2 or 1))
        return self.widest or max(self.coarse.bins // _WIDEST, least, 1)

    @property
    def is_of_probabilities(self) -> bool:
        """Whether scores lie between 0 and 1, so that half of the bins are spread evenly."""
        return (self.coarse.low, self.coarse.high) == (0.0, 1.0)

    def axis(self, counted: CoarseGroups) -> Axis:
        """The bins that follow from the counts of the first round.

        Edges are at quantiles, to a sixteenth of a coarse bin; of probabilities half of them, those
        where both classes weigh the same, and half evenly. A coarse bin that holds four times as
        much as a bin should has an edge at both ends: so does a crowded value.

        >>> two = TwoRound(4, coarse=Axis.uniform(4, 0.0, 4.0, outside="clip"))
        >>> two.axis(CoarseGroups([0, 1, 2, 3], [20, 40, 10, 10])).edges
        array([0. , 1. , 1.5, 2. , 4. ])
        """
        starts = [*counted.starts, self.coarse.bins]
        weights = counts = _not_negative(counted.counts)
        if self.is_of_probabilities:
            weights = _balanced(weights, [float(self.coarse.edges[start]) for start in starts])
        ends, cumulated = [PARTS * start for start in starts], [0, *accumulate(weights)]
        # The ends of a crowded coarse bin, and of empty stretches, take their place among the bins.
        quantiles, rows = self.bins, sum(counts)
        while True:
            crowded = [quantiles * count >= _CROWDED * rows for count in counts]
            places = self._places(quantiles, ends, weights, cumulated, crowded)
            edges = self._apart(places)
            over = len(edges) - 1 - self.bins
            if over <= 0 or quantiles == 1:
                return Axis.from_edges(edges, outside=self.coarse.outside)
            quantiles = max(1, quantiles - over)

    def _places(
        self,
        quantiles: int,
        ends: Sequence[int],
        weights: Sequence[int],
        cumulated: Sequence[int],
        crowded: Sequence[bool],
    ) -> list[int]:
        """Places of edges, in parts of coarse bins: nearest to quantiles, and where they must be.

        `ends` are where the groups begin, and where the last one ends; `cumulated` what is before.
        """
        total, places = cumulated[-1], {ends[0], ends[-1]}
        for number in range(1, quantiles):
            wanted = number * total  # of quantiles * total
            group = bisect_right(cumulated, wanted // quantiles) - 1
            within, span = wanted - quantiles * cumulated[group], ends[group + 1] - ends[group]
            weight = quantiles * weights[group]
            place = ends[group] + (2 * within * span + weight) // (2 * weight)
            if self._is_near(place):
                place = (place + PARTS // 2) // PARTS * PARTS
            places.add(place)
        for group, crowd in enumerate(crowded):
            if crowd and ends[group + 1] - ends[group] == PARTS:
                places |= {ends[group], ends[group + 1]}
        listed, most = sorted(places), PARTS * self.most_wide
        for low, high in pairwise(list(listed)):
            if high - low > most:
                listed += range((low + most) // PARTS * PARTS, high, most)
        return sorted({*listed})

    def _apart(self, places: Sequence[int]) -> list[float]:
        """The edges at places, in sixteenths of coarse bins; of two that are too close the lower.

        Nothing is measured from the first edge or to the last: scores beyond are in the end bins.
        """
        kept = [self._edge(0)]
        for place in places:
            edge = self._edge(place)
            near = len(kept) > 1 and edge - kept[-1] < self.narrowest
            if kept[-1] < edge < self.coarse.high and not near:
                kept.append(edge)
        return [*kept, self.coarse.high]

    def _is_near(self, place: int) -> bool:
        """Whether a place within a coarse bin is too close to one of its ends."""
        bin_, part = divmod(place, PARTS)
        if not part:
            return False
        edge, last = self._edge(place), self.coarse.bins - 1
        low, high = (float(end) for end in self.coarse.edges[bin_ : bin_ + 2])
        return (bin_ > 0 and edge - low < self.narrowest) or (
            bin_ < last and high - edge < self.narrowest
        )

    def _edge(self, place: int) -> float:
        """The score at a place; Python's floats, which round alike on every machine."""
        bin_, part = divmod(place, PARTS)
        low = float(self.coarse.edges[bin_])
        if not part:
            return low
        return low + (float(self.coarse.edges[bin_ + 1]) - low) * (part / PARTS)

    def check(self, axis: Axis) -> None:
        """Refuse bins that no first round could give, whatever was counted."""
        edges = axis.edges.tolist()
        if axis.kind != "edges" or axis.outside != self.coarse.outside:
            raise AxisError(
                "the bins of a second round are listed, and clip as the coarse ones do."
            )
        if axis.bins > self.bins:
            raise AxisError(
                f"a second round has at most {self.bins:,} bins here, got {axis.bins:,}."
            )
        if (edges[0], edges[-1]) != (self.coarse.low, self.coarse.high):
            raise AxisError("the bins of a second round reach as far as the coarse ones.")
        if any(b - a < self.narrowest for a, b in pairwise(edges[1:-1])):
            raise AxisError(f"a bin of the second round is narrower than {self.narrowest:g}.")
        places = [self._place(edge) for edge in edges]
        if any(map(self._is_near, places)):
            raise AxisError(
                f"an edge of the second round is closer than {self.narrowest:g} to one of the "
                "first."
            )
        if any(self._is_wide(a, b, first=a == edges[0]) for a, b in pairwise(edges)):
            raise AxisError(
                f"a bin of the second round is wider than {self.most_wide:,} coarse bins."
            )

    def _is_wide(self, low: float, high: float, *, first: bool) -> bool:
        """Whether a bin holds too many coarse ones, although floats within could divide it."""
        place = self._place(high)
        if (place - self._place(low)) // PARTS <= self.most_wide:
            return False
        # An edge between that is not too close to the high one would be too near the low one.
        return first or self._edge(place - PARTS * self.most_wide) - low >= self.narrowest

    def crowds(self, axis: Axis, counts: Floats) -> NDArray[np.bool_]:
        """Which bins hold a value that many scores share, as far as their counts tell.

        Those no wider than a coarse bin that hold as much as a bin should, or more, and four times
        as densely as both of their neighbours. Smooth scores would be divided further there, or
        crowd in the neighbours, too.

        >>> two = TwoRound(4, coarse=Axis.uniform(4, 0.0, 4.0, outside="clip"))
        >>> found = Axis.from_edges([0.0, 1.0, 1.25, 2.0, 4.0], outside="clip")
        >>> two.crowds(found, np.array([10.0, 50.0, 0.0, 20.0]))
        array([False,  True, False, False])
        """
        places = np.array([self._place(edge) for edge in axis.edges.tolist()])
        density = np.maximum(counts, 0.0) / np.diff(axis.edges)
        beside = np.pad(density, 1)
        denser = density >= _CROWDED * np.maximum(beside[:-2], beside[2:])
        deep = (counts > 0) & (counts * axis.bins >= counts.sum())
        crowded: NDArray[np.bool_] = deep & denser & (np.diff(places) <= PARTS)
        return crowded

    def _place(self, edge: float) -> int:
        coarse = self.coarse.edges
        bin_ = int(np.searchsorted(coarse, edge, side="right")) - 1
        for part in range(PARTS):
            if bin_ >= 0 and self._edge(PARTS * bin_ + part) == edge:
                return PARTS * bin_ + part
        raise AxisError(
            f"an edge of the second round is neither one of the coarse axis nor divides one of its "
            f"bins evenly, into at most {PARTS} parts."
        )


def _not_negative(counts: Sequence[int]) -> list[int]:
    """The nearest counts of the same total, none negative: onto a simplex (Duchi et al., 2008)."""
    total = sum(counts)
    if total <= 0:  # nothing but noise
        return [1] * len(counts)
    highest = sorted(counts, reverse=True)
    best, excess = 1, highest[0] - total
    for many, over in enumerate(accumulate(highest), 1):
        if many * highest[many - 1] > over - total:
            best, excess = many, over - total
    return [max(best * count - excess, 0) for count in counts]


def _balanced(weights: Sequence[int], edges: Sequence[float]) -> list[int]:
    """What each class has in a group, as probabilities tell it, both classes weighing the same.

    Plain quantiles leave few bins to a rare class. Half of the weight is spread evenly: real
    scores, of boosted trees above all, are unlike smooth ones where they are few.
    """
    # None is 0 or certain: something of either class is left wherever scores are.
    chances = [1 + int((low + high) / 2 * (_CERTAIN - 2)) for low, high in pairwise(edges)]
    positives = sum(map(operator.mul, weights, chances))
    negatives = _CERTAIN * sum(weights) - positives
    shares = (chance * negatives + (_CERTAIN - chance) * positives for chance in chances)
    deep = list(map(operator.mul, weights, shares))
    total, widths = sum(deep), [int((high - low) * _CERTAIN) for low, high in pairwise(edges)]
    return [_CERTAIN * each + total * width for each, width in zip(deep, widths, strict=True)]
