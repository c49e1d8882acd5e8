"""Binormal scores in the place of those of Sun et al. 2022, and AUCs by their mechanisms.

Their Criteo scores are not public. Classes lie as those of binormal scores with the printed AUC, at
quantiles, so that noise is the only thing that is random. Deviations by noise on rank sums, and by
flipped labels, hang on nothing but the numbers of both classes and the AUC.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri

import sun_tables as sun
from fedgauge.arrays import Floats
from fedgauge.vertical.auc import MECHANISMS, WHOLE, PartyRanks, auc_of, balance_rank

EPOCH = 2  # of Tables 2 and 7, which do not say: the last one
BLOCKS = 1024  # of neighbours in a class, whose flips are drawn together
_AT_ONCE = 1 << 20  # draws


class World(NamedTuple):
    """Examples by rising score; `ranks` are doubled."""

    labels: NDArray[np.bool_]
    scores: Floats
    ranks: NDArray[np.int64]
    auc: float

    @property
    def positives(self) -> int:
        """How many there are."""
        return int(self.labels.sum())

    @property
    def pairs(self) -> int:
        """A positive and a negative, counted twice as ranks are."""
        return 2 * self.positives * (len(self.labels) - self.positives)

    @property
    def balance(self) -> float:
        """The rank at which one positive more leaves the AUC as it is."""
        return balance_rank(self.auc, self.positives, len(self.labels))


@lru_cache(maxsize=2)
def world(epoch: int, *, large: bool = False) -> World:
    """Binormal scores at the quantiles of both classes: probabilities, if the model is right."""
    positives = sun.LARGE_POSITIVES if large else sun.POSITIVES
    negatives = sun.LARGE_NEGATIVES if large else sun.NEGATIVES
    distance = math.sqrt(2) * float(ndtri((sun.LARGE_AUCS if large else sun.AUCS)[epoch]))
    above, below = (ndtri((np.arange(n) + 0.5) / n) for n in (positives, negatives))
    scores = np.concatenate([above + distance, below])
    order = np.argsort(scores)
    labels = order < positives
    odds = math.log(positives / negatives) + distance * scores[order] - distance**2 / 2
    ranks = 2 * np.arange(len(order))
    auc = auc_of(positives, int(ranks[labels].sum()), len(order))
    return World(labels, expit(odds), ranks, auc)


def deal(examples: int, parties: int, split: str) -> NDArray[np.int64]:
    """The party of each example: dealt evenly, or by their scores."""
    place = np.arange(examples)
    if split == "apart":
        return place * parties // examples
    return np.random.default_rng(parties).permutation(examples) % parties


@lru_cache(maxsize=2)
def ranks_of(epoch: int, parties: int, split: str) -> PartyRanks:
    """What is known of the parties' ranks."""
    ranks = world(epoch).ranks
    return PartyRanks.of(ranks, deal(len(ranks), parties, split), parties)


class Noise(NamedTuple):
    """Scales of continuous Laplace noise by party, as the paper has it, and what is subtracted."""

    centre: NDArray[np.int64]
    counts: Floats
    ranks: Floats

    def deviation(self, w: World) -> float:
        """Predicted for the AUC, to first order."""
        off = (self.centre - w.balance) * self.counts
        return math.sqrt(2 * float(np.sum(off**2 + self.ranks**2))) / w.pairs


def noise_of(
    mechanism: str, known: PartyRanks, epsilon: float, share: float | None = None
) -> Noise:
    """What parties add. `share` of the budget is for counts; 0 where they are taken as known."""
    centre, reach, own = MECHANISMS[mechanism].split(known)
    part = own / WHOLE if share is None else np.full(len(known), share)
    with np.errstate(divide="ignore", invalid="ignore"):
        counts = np.where(part > 0, 1 / (part * epsilon), 0.0)
        ranks = np.where(reach > 0, reach / ((1 - part) * epsilon), 0.0)
    return Noise(centre, counts, ranks)


def laplace_sums(loads: Floats, rng: np.random.Generator, runs: int) -> Floats:
    """Weighted sums of Laplace noise of scale 1: a row of results for each row of `loads`.

    Laplace noise is the difference of two exponential draws, and n of those with the same load add
    up to a gamma draw: exactly what drawing one by one would give.
    """
    different, times = np.unique(loads, axis=1, return_counts=True)
    rows = max(_AT_ONCE // len(times), 1)
    found = []
    for start in range(0, runs, rows):
        shape = min(rows, runs - start), len(times)
        noise = rng.standard_gamma(times, shape) - rng.standard_gamma(times, shape)
        found.append(noise @ different.T)
    return np.concatenate(found).T


def pair_aucs(w: World, noise: Noise, rng: np.random.Generator, runs: int) -> Floats:
    """AUCs with noise of all pairs drawn anew."""
    loads = np.array([noise.counts, noise.centre * noise.counts])
    counts, moved = laplace_sums(loads, rng, runs)
    (sums,) = laplace_sums(noise.ranks[np.newaxis], rng, runs)
    return _aucs(w, w.positives + counts, int(w.ranks[w.labels].sum()) + moved + sums)


def _aucs(w: World, positives: Floats, sums: Floats) -> Floats:
    size = len(w.labels)
    return (sums - positives * (positives - 1)) / (2 * positives * (size - positives))


class Blocks(NamedTuple):
    """Neighbours in one class: how many there are, and their mean rank."""

    sizes: NDArray[np.int64]
    ranks: Floats

    @classmethod
    def of(cls, ranks: NDArray[np.int64]) -> "Blocks":
        """Ranks of a class, rising."""
        starts = np.arange(BLOCKS) * len(ranks) // BLOCKS
        sizes = np.diff(starts, append=len(ranks))
        return cls(sizes, np.add.reduceat(ranks, starts) / sizes)


class Flipped(NamedTuple):
    """AUCs of labels flipped at random, as they are told and made right again."""

    told: Floats
    mended: Floats


def chance_of(epsilon: float) -> float:
    """The chance of a flip."""
    return 1 / (1 + math.exp(epsilon))


def flipped_aucs(w: World, epsilon: float, rng: np.random.Generator, runs: int) -> Flipped:
    """AUCs with labels flipped anew: how many flip in a block is binomial.

    Their ranks are taken at the mean of the block, a thousandth of all, which changes a deviation
    by less than one part in a million.
    """
    rho, size = chance_of(epsilon), len(w.labels)
    positives, sums = np.zeros(runs), np.zeros(runs)
    for blocks, chance in ((_blocks(w, True), 1 - rho), (_blocks(w, False), rho)):
        told = rng.binomial(blocks.sizes, chance, (runs, BLOCKS))
        positives += told.sum(axis=1)
        sums += told @ blocks.ranks
    noisy = _aucs(w, positives, sums)
    rate = (positives / size - rho) / (1 - 2 * rho)
    alpha = (1 - rate) * rho / (rate * (1 - rho) + (1 - rate) * rho)
    beta = rate * rho / (rate * rho + (1 - rate) * (1 - rho))
    return Flipped(noisy, (noisy - (alpha + beta) / 2) / (1 - alpha - beta))


def _blocks(w: World, positive: bool) -> Blocks:
    return Blocks.of(w.ranks[w.labels == positive])


def flipped_deviation(w: World, epsilon: float) -> float:
    """Predicted deviation of the AUC made right again, to first order."""
    rho = chance_of(epsilon)
    off = float(((w.ranks - w.balance) ** 2).sum())
    return math.sqrt(rho * (1 - rho) * off) / ((1 - 2 * rho) * w.pairs)


def rmse(values: Floats, truth: float) -> float:
    """Root mean squared error."""
    return float(np.sqrt(np.mean((values - truth) ** 2)))
