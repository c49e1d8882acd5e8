"""How far off the AUC will be by each mechanism, from what is public: ranks, bins and hints."""

import math
from collections.abc import Sequence

import numpy as np

from fedgauge.privacy import AnyPrivacyModel, Cohort, DistributedDP, LocalDP
from fedgauge.privacy.flipping import least_chance, variances
from fedgauge.vertical.assignment import REFERENCE_AUC
from fedgauge.vertical.design import choose_tree, predicted
from fedgauge.vertical.mechanisms import MECHANISMS
from fedgauge.vertical.ranks import PartyRanks, balance_rank


def predicted_deviations(
    known: PartyRanks,
    privacy: AnyPrivacyModel,
    cohort: Cohort | None,
    tree: Sequence[int],
    positive_rate: float,
) -> dict[str, float]:
    """What each mechanism adds to the error of the AUC, the least first.

    Scores are taken to be binormal with an AUC of 0.85, `positive_rate` of them positive. The
    histogram over `tree` adds noise and binning, pairs add noise alone. Labels flipped at random
    are counted by bin, and there is nothing to choose from. Empty without noise.
    """
    examples = known.examples
    if isinstance(privacy, LocalDP):
        return {"histogram": flip_deviation(known, privacy.epsilon, positive_rate)}
    if not isinstance(privacy, DistributedDP) or cohort is None:
        return {}
    by_bins = predicted(
        privacy, cohort, tree, parties=len(known), examples=examples, positive_rate=positive_rate
    )
    found = {"histogram": by_bins.roc_auc_error}
    for name, mechanism in MECHANISMS.items():
        if mechanism.noise == privacy.noise:
            found[name] = mechanism.deviation(
                known, privacy, REFERENCE_AUC, positive_rate * examples
            )
    return _least_first(found)


def flip_deviation(known: PartyRanks, epsilon: float, positive_rate: float) -> float:
    """What labels flipped at random add to the error of the AUC, where it is 0.85.

    Of doubled ranks R and labels y the AUC moves by ``sum (R - c) dy / (2 P N)``, and every label
    has the same variance. Bins and repair take some of it away where it is large.

    Examples
    --------
    >>> known = PartyRanks.of(np.arange(0, 20_000, 2), np.zeros(10_000, dtype=int), 1)
    >>> round(flip_deviation(known, 1.0, 0.2), 4)
    0.0214
    """
    positives = positive_rate * known.examples
    centre = balance_rank(REFERENCE_AUC, positives, known.examples)
    squares = known.spread + known.examples * (known.examples - 1 - centre) ** 2
    each = float(variances(np.ones(()), least_chance(epsilon)))
    return math.sqrt(each * squares) / (2 * positives * (known.examples - positives))


def compare_mechanisms(
    privacy: DistributedDP,
    cohort: Cohort,
    *,
    parties: int,
    examples: int,
    positive_rate: float,
    alike: bool = True,
) -> dict[str, float]:
    """The same before there are scores, where all parties have as many examples.

    Beside these ``"flips"``: labels flipped at random for as much of epsilon.

    Parameters
    ----------
    privacy
        What each label is promised.
    cohort
        Which label parties must take part in a sum.
    parties, examples
        How many parties there are, and how many examples in all.
    positive_rate
        About what share is positive.
    alike
        Whether the parties' scores are spread alike; else each has a range of its own.

    Examples
    --------
    >>> privacy = DistributedDP(1.0, unit="label", neighbours="flip")
    >>> def best(parties, **options):
    ...     cohort = Cohort(parties, max_colluding=1)
    ...     facts = {"parties": parties, "examples": 100_000, "positive_rate": 0.2}
    ...     return next(iter(compare_mechanisms(privacy, cohort, **facts, **options)))
    >>> best(2), best(20), best(5)
    ('adaptive', 'histogram', 'histogram')
    """
    tree = choose_tree(
        privacy,
        cohort,
        parties=parties,
        examples=examples,
        positive_rate=positive_rate,
        only="roc_auc",
    )
    place = np.arange(examples)
    party = place % parties if alike else place * parties // examples
    known = PartyRanks.of(2 * place, party, parties)
    found = predicted_deviations(known, privacy, cohort, tree, positive_rate)
    found["flips"] = flip_deviation(known, privacy.epsilon, positive_rate)
    return _least_first(found)


def _least_first(found: dict[str, float]) -> dict[str, float]:
    return dict(sorted(found.items(), key=lambda item: item[1]))
