"""What label parties send where only the AUC is asked for, and what follows from it."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgauge.errors import NoSignal
from fedgauge.estimation.pooled import SIGNAL
from fedgauge.measures.intervals import (
    LEVEL,
    Estimate,
    Interval,
    add_noise,
    critical,
    holding,
    newcombe_interval,
    within,
)
from fedgauge.privacy import DistributedDP
from fedgauge.privacy.keystream import WordSource
from fedgauge.vertical.exact_noise import RandomBits
from fedgauge.vertical.mechanisms import PairMechanism, PartyTerms
from fedgauge.vertical.ranks import PartyRanks, Ranks, auc_of

_EXCESS: Final = 3.0  # kurtosis of a Laplace law beyond a normal one's


class Pair(NamedTuple):
    """What a party sends: its positives and the sum of their centred ranks, with noise."""

    positives: int
    ranks: int


def noisy_pair(
    labels: NDArray[np.bool_], ranks: Ranks, terms: PartyTerms, source: WordSource
) -> Pair:
    """What a party sends of its labels.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from fedgauge.privacy.keystream import Keystream
    >>> from fedgauge.vertical.exact_noise import DiscreteLaplace
    >>> none = DiscreteLaplace(Fraction(0))
    >>> noisy_pair(
    ...     np.array([True, True]), np.array([3, 6]), PartyTerms(4, none, none), Keystream()
    ... )
    Pair(positives=2, ranks=1)
    """
    positives = int(np.count_nonzero(labels))
    total = int(ranks[labels].sum()) - terms.centre * positives
    bits = RandomBits(source)
    return Pair(positives + terms.positives.draw(bits), total + terms.ranks.draw(bits))


def is_pair_possible(pair: Pair, ranks: Ranks, terms: PartyTerms, chance: float) -> bool:
    """Whether labels of examples with these ranks can give a pair, but for noise.

    Of labels it is True but with this probability: each number has half of it, and the truth is no
    further from what was sent than noise goes. So many positives have ranks that add up to no less
    than the lowest, and no more than the highest.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from fedgauge.vertical.exact_noise import DiscreteLaplace
    >>> none, ranks = DiscreteLaplace(Fraction(0)), np.array([0, 2, 4, 6])
    >>> terms = PartyTerms(0, none, none)
    >>> [is_pair_possible(Pair(2, total), ranks, terms, 1e-6) for total in (1, 2, 10, 11)]
    [False, True, True, False]
    """
    off, reach = terms.positives.reach(chance / 2), terms.ranks.reach(chance / 2)
    fewest = max(math.ceil(pair.positives - off), 0)
    most = min(math.floor(pair.positives + off), len(ranks))
    if fewest > most:
        return False
    centred = np.sort(ranks) - terms.centre
    lowest = np.append(0, np.cumsum(centred))
    highest = np.append(0, np.cumsum(centred[::-1]))
    # Sums fall as long as ranks are negative, and rise from there on.
    falls = int(np.count_nonzero(centred < 0))
    least = int(lowest[min(max(falls, fewest), most)])
    greatest = int(highest[min(max(len(ranks) - falls, fewest), most)])
    return least - reach <= pair.ranks <= greatest + reach


def auc_estimate(
    pairs: Sequence[Pair],
    mechanism: PairMechanism,
    known: PartyRanks,
    privacy: DistributedDP,
    level: float = LEVEL,
) -> Estimate:
    """The AUC from what all parties sent.

    Its interval joins the noise with the sampling variance of Hanley & McNeil 1982, which follows
    from the AUC and the numbers of both classes alone (Newcombe 2006, method 5): pairs hold
    nothing of the placements that DeLong's variance is made of.
    """
    terms = mechanism.terms(known, privacy)
    positives = sum(pair.positives for pair in pairs)
    total = sum(p.ranks + t.centre * p.positives for p, t in zip(pairs, terms, strict=True))
    negatives = known.examples - positives
    _require_signal(positives, negatives, sum(t.positives.variance for t in terms))
    raw = auc_of(positives, total, known.examples)
    value = min(max(raw, 0.0), 1.0)
    variances = mechanism.variances(known, privacy, value, positives)
    noise = math.sqrt(float(variances.sum())) / (2 * positives * negatives)
    z = critical(level)
    excess = _EXCESS if mechanism.noise == "polya" else 0.0
    stretch = _heavier(z, excess * float((variances**2).sum() / variances.sum() ** 2)) / z
    sampling = newcombe_interval(value, positives, negatives, z)
    interval = add_noise(value, sampling, stretch * noise, z)
    reach = stretch * z * noise
    bounds = within(holding(Interval(raw - reach, raw + reach), value), 0.0, 1.0)
    interval = within(holding(interval, value), 0.0, 1.0)
    deviation = (sampling.high - sampling.low) / (2 * z)
    return Estimate(
        value,
        (bounds.low, bounds.high),
        interval.low,
        interval.high,
        level,
        {"sampling": deviation, "noise": noise},
    )


def _heavier(z: float, excess: float) -> float:
    """The quantile of a symmetric law where a normal one has z (Cornish & Fisher 1938).

    One Laplace law is more than 1.96 deviations out with a chance of 6%, not 5%.
    """
    return z + excess * max(z**3 - 3 * z, 0.0) / 24.0


def _require_signal(positives: int, negatives: int, variance: float) -> None:
    deviation = math.sqrt(variance)
    for number, name in ((positives, "positives"), (negatives, "negatives")):
        if number < max(SIGNAL * deviation, 1):
            raise NoSignal(
                f"no signal: the noise (standard deviation {deviation:,.0f}) hides the number of "
                f"{name}. Use a larger epsilon, or more examples."
            )
