"""Ways to send an AUC under label privacy: a party's noisy positives and rank sum, and no more.

Sun et al. 2022, section 5, in whole numbers. A party with labels y and doubled midranks R sends
P = sum y and W = sum (R - u) y, each with noise of its own; the rank sum is W + u P. A flipped
label moves P by 1 and W by at most D = max |R - u|. With u = 0 this is what they call LocalLaplace
(D the party's highest rank) and GlobalLaplace (the highest rank of all); with u the party's mean
rank it is their orthogonal form.

Noise is on all whole numbers, in steps of 1. D times whole-number noise would look the same and
protect nobody: W modulo D would be exact. u, D and the split of the budget follow from ranks,
which whoever scored the examples knows; told to others, they would say something of scores.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, NamedTuple

import numpy as np

from fedgauge.errors import PlanError
from fedgauge.plan.paired import PairName as PairName
from fedgauge.privacy import DistributedDP
from fedgauge.typing import Floats
from fedgauge.vertical.exact_noise import DiscreteGaussian, DiscreteLaplace, Law
from fedgauge.vertical.ranks import PartyRanks, Ranks, balance_rank

WHOLE: Final = 1 << 16  # parts of a budget: whole numbers, so that both parts add up exactly
_ORDERS: Final = 1.0 + np.exp(np.linspace(-9.0, 12.0, 4000))  # of Renyi divergence


class Split(NamedTuple):
    """What parties send, one entry each: `centre` is u, `reach` is D.

    `share` is the part of the budget that the number of positives gets, out of 2^16.
    """

    centre: Ranks
    reach: Ranks
    share: Ranks


class PartyTerms(NamedTuple):
    """What one party sends: positives, and the sum over them of ranks less `centre`."""

    centre: int
    positives: Law
    ranks: Law


@dataclass(frozen=True)
class PairMechanism:
    """A row of :data:`MECHANISMS`.

    Attributes
    ----------
    noise
        As :class:`fedgauge.DistributedDP` names it: polya noise of one party is discrete Laplace.
    split
        What each party sends, and how it divides the budget: of ranks alone, never of labels.
    about
        In words.
    """

    noise: Literal["polya", "discrete-gaussian"]
    split: Callable[[PartyRanks], Split]
    about: str

    def terms(self, known: PartyRanks, privacy: DistributedDP) -> list[PartyTerms]:
        """What each party draws its noise from, exactly.

        The two budgets add up to the whole: epsilon for discrete Laplace noise, and for discrete
        Gaussian noise the rho of concentrated privacy, 1 / (2 sigma^2) for a shift by 1.
        """
        laplace = self.noise == "polya"
        budget = Fraction(privacy.epsilon) if laplace else 2 * rho_of(*privacy.budget)

        def law(reach: int, share: int) -> Law:
            if not reach:
                return DiscreteLaplace(Fraction(0))
            part = budget * share / WHOLE
            return DiscreteLaplace(reach / part) if laplace else DiscreteGaussian(reach**2 / part)

        return [
            PartyTerms(centre, law(1, share), law(reach, WHOLE - share))
            for centre, reach, share in zip(*map(Ranks.tolist, self.split(known)), strict=True)
        ]

    def deviation(
        self, known: PartyRanks, privacy: DistributedDP, auc: float, positives: float
    ) -> float:
        """Predicted standard deviation of the AUC by noise, where it is `auc`."""
        negatives = known.examples - positives
        variance = float(self.variances(known, privacy, auc, positives).sum())
        return math.sqrt(variance) / (2 * positives * negatives)

    def variances(
        self, known: PartyRanks, privacy: DistributedDP, auc: float, positives: float
    ) -> Floats:
        """Variance of 2 P N AUC by each noise, two for each party."""
        split = self.split(known)
        parts = np.array([split.share, WHOLE - split.share]) / WHOLE
        reach = np.array([np.ones(len(known)), split.reach])
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.noise == "polya":
                each = _laplace_variance(reach / (parts * privacy.epsilon))
            else:
                each = reach**2 / (parts * float(2 * rho_of(*privacy.budget)))
        count, ranks = np.where(reach > 0, each, 0.0)
        off = split.centre - balance_rank(auc, positives, known.examples)
        return np.array([off**2 * count, ranks])


def _laplace_variance(scale: Floats) -> Floats:
    with np.errstate(over="ignore"):
        variance: Floats = 0.5 / np.sinh(0.5 / scale) ** 2
    return variance


def rho_of(epsilon: float, delta: float) -> Fraction:
    """The most concentrated privacy loss that (epsilon, delta) allows, rounded down.

    Discrete Gaussian noise is as concentrated as the continuous one, and losses of both numbers
    of a pair add up (Canonne, Kamath & Steinke 2020, sections 2.2 and 2.3). About 7% more noise
    than the analytic Gaussian mechanism, which is not proven for whole numbers.

    Examples
    --------
    >>> round(float(rho_of(1.0, 1e-6)), 4)
    0.0244
    """
    orders = _ORDERS
    rest = np.log(delta) + np.log(orders - 1) - orders * np.log1p(-1 / orders)
    rho = float(np.max((epsilon + rest / (orders - 1)) / orders))
    if rho <= 0:
        raise PlanError("epsilon and delta are too small for Gaussian noise. Raise one of them.")
    return Fraction(rho * (1 - 1e-9))


def _halved(centre: Ranks, reach: Ranks) -> Split:
    """Half of the budget for each number; all for the first where the second cannot move."""
    return Split(centre, reach, np.where(reach > 0, WHOLE // 2, WHOLE))


def _global(known: PartyRanks) -> Split:
    highest = np.full(len(known), 2 * (known.examples - 1))
    return _halved(np.zeros_like(highest), highest)


def _local(known: PartyRanks) -> Split:
    return _halved(np.zeros_like(known.highest), known.highest)


def _orthogonal(known: PartyRanks) -> Split:
    return _halved(known.mean, known.reach)


def _adaptive(known: PartyRanks) -> Split:
    """The split that gives a party's own rank sum the least noise, as the paper has it.

    The AUC's noise would be least with the distance of the mean from the balance rank in place
    of the mean: that rank hangs on the labels, and is known to be near the middle at best.
    """
    mean, reach = known.mean ** (2 / 3), known.reach ** (2 / 3)
    part = np.divide(mean, mean + reach, out=np.ones(len(known)), where=known.reach > 0)
    share = np.clip(np.rint(part * WHOLE), 1, WHOLE - 1).astype(np.int64)
    return Split(known.mean, known.reach, np.where(known.reach > 0, share, WHOLE))


MECHANISMS: Final[Mapping[str, PairMechanism]] = {
    "adaptive": PairMechanism(
        "polya", _adaptive, "ranks less the party's mean, a budget by how far they lie from it"
    ),
    "orthogonal": PairMechanism("polya", _orthogonal, "ranks less the party's mean, half each"),
    "laplace-global": PairMechanism("polya", _global, "noise for the highest rank of all"),
    "laplace-local": PairMechanism("polya", _local, "noise for the party's highest rank"),
    "gaussian": PairMechanism(
        "discrete-gaussian", _local, "Gaussian noise for the party's highest rank"
    ),
}
