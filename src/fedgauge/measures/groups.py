"""Groups of bins: how far what came true is from what the scores promised, and how surely."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from fedgauge.errors import InputError
from fedgauge.estimation.pooled import SIGNAL
from fedgauge.measures.forecasts import Forecasts
from fedgauge.typing import Floats, Indices

Strategy = Literal["uniform", "quantile"]

GROUPS: Final = 15
_MOST: Final = 10_000


class Span(NamedTuple):
    """The least and the most that each group's number can be."""

    least: Floats
    most: Floats


class Reach(NamedTuple):
    """What groups of scores could hold, if not whole bins but scores were put into them.

    By group, those without examples included: the excess (`least`, `most`) and the number of
    examples (`fewest`, `greatest`).
    """

    least: Floats
    most: Floats
    fewest: Floats
    greatest: Floats


@dataclass(frozen=True, eq=False)
class Groups:
    """Neighbouring bins taken together, none of the groups empty.

    Attributes
    ----------
    forecasts
        The bins.
    owners
        The group of each bin, from 0; -1 for bins of groups without examples.
    rule
        How bins were grouped, in words.
    first, last
        The first and the last group that scores of a bin can lie in, empty ones counted.
    """

    forecasts: Forecasts
    owners: Indices
    rule: str
    first: Indices
    last: Indices

    @classmethod
    def of(
        cls, forecasts: Forecasts, bins: int | Sequence[float], strategy: Strategy = "uniform"
    ) -> "Groups":
        """Bins in groups: so many of equal width or mass, or those between given edges.

        A bin belongs to one group as a whole: the one that its mean score lies in, where groups
        are left-closed and the last one closed; or, where they have equal mass, the one that the
        middle one of its examples lies in.
        """
        if strategy not in get_args(Strategy):
            raise InputError(f"strategy must be 'uniform' or 'quantile', got {strategy!r}.")
        if isinstance(bins, Sequence | np.ndarray):
            edges = _checked_edges(bins)
            if strategy != "uniform":
                raise InputError("give either edges or strategy='quantile', not both.")
            rule = f"{len(edges) - 1:,} given groups, left-closed"
        else:
            edges = np.arange(_checked_number(bins) + 1) / bins
            equal = "width, left-closed" if strategy == "uniform" else "mass"
            rule = f"{bins:,} groups of equal {equal}"
        if strategy == "uniform":
            places = forecasts.lowest, forecasts.scores, forecasts.highest
        else:
            places = _ranks(forecasts.totals)
        low, middle, high = places
        owners = _group_of(edges, middle)
        first, last = _group_of(edges, low), _group_of(edges, high, before=True)
        return cls(
            forecasts, _numbered(owners, forecasts.totals), rule, first, np.maximum(first, last)
        )

    def __len__(self) -> int:
        return int(self.owners.max()) + 1

    @cached_property
    def counts(self) -> Floats:
        """Examples by group, none of them negative."""
        return self._sums(self.forecasts.totals)

    @cached_property
    def predicted(self) -> Floats:
        """Mean score by group."""
        return self._sums(self.forecasts.totals * self.forecasts.scores) / self.counts

    @cached_property
    def excess(self) -> Floats:
        """Positives above what the scores promised: right on average also under noise."""
        return self._sums((self._weights * self.forecasts.pooled.unbiased).sum(axis=0))

    @cached_property
    def observed(self) -> Floats:
        """Share of positives by group."""
        return np.clip(self.predicted + self.excess / self.counts, 0.0, 1.0)

    @cached_property
    def covariance(self) -> Floats:
        """Covariance of the excesses: examples drawn anew, the noise, and misplaced scores."""
        counts, scores = self.forecasts.counts, self.forecasts.scores
        squares = counts[0] * scores**2 + counts[1] * (1.0 - scores) ** 2
        squares += (self.forecasts.totals * self.forecasts.misplaced) ** 2
        covariance: Floats = np.diag(self._sums(squares)) + self.noise
        return covariance

    @cached_property
    def hidden(self) -> Floats:
        """Variance of the excess by where scores lie in bins that they crowd in."""
        return self._sums((self.forecasts.totals * self.forecasts.hidden) ** 2)

    @cached_property
    def noise(self) -> Floats:
        """Covariance of the excesses by noise alone."""
        return self.noise_of(self._weights)

    def noise_of(self, weights: Floats) -> Floats:
        """Noise covariance of sums by group, where each bin of a class counts as weighed."""
        pooled = self.forecasts.pooled
        if not pooled.noisy:
            return np.zeros((len(self), len(self)))
        each = weights * self.members[:, np.newaxis, :]
        return pooled.covariance(each[:, np.newaxis], each[np.newaxis, :])

    @cached_property
    def members(self) -> Floats:
        """1 where a bin is in a group, by group and bin."""
        members: Floats = (np.arange(len(self))[:, np.newaxis] == self.owners).astype(np.float64)
        return members

    @cached_property
    def visible(self) -> NDArray[np.bool_]:
        """Whether the number of examples of a group stands out of the noise."""
        deviations = np.sqrt(np.diag(self.noise_of(np.ones_like(self._weights))))
        seen: NDArray[np.bool_] = self.counts >= SIGNAL * deviations
        return seen

    @cached_property
    def reach(self) -> Reach:
        """What is possible wherever in its bin, and so on which side of an edge, a score lies."""
        forecasts = self.forecasts
        positives, totals = forecasts.pooled.unbiased[1], forecasts.totals
        whole = self.first == self.last
        number = int(self.last.max()) + 1

        def sure(by_bin: Floats) -> Floats:
            return _sums(self.first[whole], by_bin[whole], number)

        fewest = sure(totals)
        reach = Reach(
            sure(positives - totals * forecasts.highest),
            sure(positives - totals * forecasts.lowest),
            fewest,
            fewest.copy(),
        )
        for split in np.flatnonzero(~whole & (totals > 0)):
            touched = slice(self.first[split], self.last[split] + 1)
            negative, positive = forecasts.counts[:, split]
            reach.least[touched] -= negative * forecasts.highest[split]
            reach.most[touched] += positive * (1.0 - forecasts.lowest[split])
            reach.greatest[touched] += totals[split]
        return reach

    @cached_property
    def reach_noise(self) -> tuple[Floats, Floats]:
        """Noise deviations of the excess and the number of examples of all that groups can hold."""
        pooled = self.forecasts.pooled
        held = [(self.first <= at) & (at <= self.last) for at in range(len(self.reach.fewest))]
        of_excess, of_count = (
            np.sqrt([max(float(pooled.noise_variance(weights * each)), 0.0) for each in held])
            for weights in (self._weights, np.ones_like(self._weights))
        )
        return of_excess, of_count

    @cached_property
    def edges(self) -> Span:
        """The lowest and the highest score that the bins of a group take."""
        held = [np.flatnonzero(self.owners == group) for group in range(len(self))]
        return Span(
            np.array([self.forecasts.lowest[bins[0]] for bins in held]),
            np.array([self.forecasts.highest[bins[-1]] for bins in held]),
        )

    def intervals(self, z: float) -> Span:
        """Where the share of positives of each group lies, by a score test (Wilson, Fieller).

        A share p is accepted if the positives above it, sum n+ (1 - p) - n- p, are no more than z
        of their deviations from zero: a quadratic inequality in p.
        """
        unbiased = self.forecasts.pooled.unbiased
        negatives, positives = (self._sums(row) for row in unbiased)
        own = np.zeros_like(self._weights)
        own[1] = 1.0
        of_positives = np.diag(self.noise_of(own))
        of_negatives = np.diag(self.noise_of(own[::-1]))
        of_both = np.diag(self.noise_of(np.ones_like(own)))
        shared = (of_both - of_positives - of_negatives) / 2.0
        total = negatives + positives
        square = total**2 + z * z * (self.counts - of_both)
        line = -2.0 * positives * total - z * z * (self.counts - 2.0 * (of_positives + shared))
        rest = positives**2 - z * z * of_positives
        under = line**2 - 4.0 * square * rest
        some = (square > 0) & (total > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            root = np.sqrt(np.maximum(under, 0.0))  # none is accepted: the one nearest to it
            low, high = ((-line - root) / (2 * square), (-line + root) / (2 * square))
        low, high = np.where(some, low, 0.0), np.where(some, high, 1.0)
        return Span(
            np.clip(np.minimum(low, self.observed), 0.0, 1.0),
            np.clip(np.maximum(high, self.observed), 0.0, 1.0),
        )

    @property
    def _weights(self) -> Floats:
        """What an example of each class and bin adds to the excess."""
        scores = self.forecasts.scores
        return np.array([-scores, 1.0 - scores])

    def _sums(self, by_bin: Floats) -> Floats:
        held = self.owners >= 0
        return _sums(self.owners[held], by_bin[held], len(self))


def _sums(owners: Indices, by_bin: Floats, number: int) -> Floats:
    sums = np.bincount(owners, by_bin, minlength=number)
    return sums.astype(np.float64, copy=False)


def _group_of(edges: Floats, places: Floats, *, before: bool = False) -> Indices:
    """The left-closed group of each place, or of all that lies just `before` it."""
    owners = np.searchsorted(edges, places, side="left" if before else "right") - 1
    return np.clip(owners, 0, len(edges) - 2)


def _ranks(totals: Floats) -> tuple[Floats, Floats, Floats]:
    """The share of examples below each bin, below the middle of its own, and up to its end."""
    total = max(float(totals.sum()), 1e-300)
    above = np.cumsum(totals) / total
    below = np.append(0.0, above[:-1])
    return below, (below + above) / 2.0, above


def _numbered(owners: Indices, totals: Floats) -> Indices:
    """Groups numbered from 0 without gaps; bins of groups without examples belong to none."""
    held = np.bincount(owners, totals) > 0
    numbers: Indices = np.where(held, np.cumsum(held) - 1, -1)
    return numbers[owners]


def _checked_number(bins: object) -> int:
    if isinstance(bins, bool) or not isinstance(bins, int | np.integer) or not 1 <= bins <= _MOST:
        raise InputError(f"bins must be a whole number from 1 to {_MOST:,}, or edges of groups.")
    return int(bins)


def _checked_edges(bins: Sequence[float]) -> Floats:
    try:
        edges = np.asarray(bins, dtype=np.float64)
    except (TypeError, ValueError):
        edges = np.empty(0)
    rising = edges.ndim == 1 and len(edges) > 1 and all(low < high for low, high in pairwise(edges))
    if not rising or edges[0] != 0 or edges[-1] != 1:
        raise InputError(
            "bins must be a whole number, or edges of groups that rise from 0 to 1, such as "
            "[0, 0.1, 0.5, 1]."
        )
    return edges
