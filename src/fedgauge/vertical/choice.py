"""How noisy the AUC will be by each mechanism, from what is public: ranks, bins and hints."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedgauge.estimation import repair
from fedgauge.measures import areas
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy import AnyPrivacyModel, DistributedDP
from fedgauge.typing import Floats
from fedgauge.vertical.assignment import REFERENCE_AUC
from fedgauge.vertical.mechanisms import MECHANISMS
from fedgauge.vertical.ranks import PartyRanks


def predicted_deviations(
    known: PartyRanks, totals: NDArray[np.int64], plan: EvaluationPlan, positive_rate: float
) -> Mapping[str, float]:
    """The standard deviation of the AUC by the noise of each mechanism, the least first.

    Positives are taken to lie as binormal scores with an AUC of 0.85 have them, `positive_rate` of
    all examples. `totals` are the examples by bin of the plan's histogram.

    Examples
    --------
    >>> from fedgauge import Axis
    >>> from fedgauge.privacy import Cohort
    >>> from fedgauge.plan.task import LabelTask
    >>> from fedgauge.vertical.ranks import PartyRanks
    >>> privacy = DistributedDP(1.0, unit="label", neighbours="flip")
    >>> axis = Axis.from_values(list(range(64)), outside="clip")
    >>> ranks = np.arange(0, 12800, 2)
    >>> def best(parties):
    ...     cohort = Cohort(parties, max_colluding=1)
    ...     plan = EvaluationPlan.under(
    ...         privacy, axis, cohort=cohort, task=LabelTask(), tree=(8, 8)
    ...     )
    ...     known = PartyRanks.of(ranks, np.arange(6400) % parties, parties)
    ...     return next(iter(predicted_deviations(known, np.full(64, 100), plan, 0.2)))
    >>> best(2), best(20)
    ('orthogonal', 'histogram')
    """
    found = {"histogram": _histogram(plan, totals, len(known), positive_rate)}
    found |= _pairs(known, plan.privacy, positive_rate)
    return dict(sorted(found.items(), key=lambda item: item[1]))


def _pairs(known: PartyRanks, privacy: AnyPrivacyModel, rate: float) -> dict[str, float]:
    if not isinstance(privacy, DistributedDP):
        return {}
    positives = rate * known.examples
    return {
        name: mechanism.deviation(known, privacy, REFERENCE_AUC, positives)
        for name, mechanism in MECHANISMS.items()
        if mechanism.noise == privacy.noise
    }


def _histogram(plan: EvaluationPlan, totals: NDArray[np.int64], parties: int, rate: float) -> float:
    positives = _expected_positives(totals, rate)
    counts = np.array([totals - positives, positives])
    gradient = areas.auc_gradient(counts)
    # A positive more is a negative less: their totals are known.
    weights = gradient[1] - gradient[0]
    variances = plan.noise_variances(parties)
    if plan.final.flips_labels:
        ((by_bin, _),) = plan.node_variances(counts)
        return math.sqrt(float(np.sum(weights**2 * by_bin)))
    if not variances:
        return 0.0
    return math.sqrt(float(repair.noise_covariance(plan.tree, variances, weights, weights)))


def _expected_positives(totals: NDArray[np.int64], rate: float) -> Floats:
    """Positives by bin of binormal scores, where all examples together fill the bins so."""
    from scipy.special import ndtr, ndtri

    distance = math.sqrt(2.0) * float(ndtri(REFERENCE_AUC))
    at = np.linspace(-9.0, 9.0 + distance, 20_001)
    everybody = (1.0 - rate) * ndtr(at) + rate * ndtr(at - distance)
    shares = np.cumsum(totals)[:-1] / totals.sum()
    below = ndtr(np.interp(shares, everybody, at) - distance)
    positives: Floats = np.diff(below, prepend=0.0, append=1.0) * rate * totals.sum()
    return positives
