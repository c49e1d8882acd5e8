"""How far off the AUC will be by each mechanism, from what is public: ranks, bins and hints."""

from collections.abc import Sequence
from typing import Final

from fedgauge.errors import PlanError
from fedgauge.privacy import AnyPrivacyModel, Cohort, DistributedDP, LocalDP
from fedgauge.vertical.assignment import REFERENCE_AUC
from fedgauge.vertical.design import flipped_deviation, predicted
from fedgauge.vertical.mechanisms import MECHANISMS
from fedgauge.vertical.ranks import PartyRanks

LABEL_DP: Final = DistributedDP(1.0, unit="label", neighbours="flip")
_DEFAULT_RATE: Final = 0.2


def everybody(parties: int) -> Cohort:
    """All label parties, one of whom may collude; one or two each add all of the noise."""
    return Cohort(parties, max_colluding=max(parties - 1, 0) if parties <= 2 else 1)


def check_rate(positive_rate: float | None) -> float:
    """The hinted share of positives; 0.2 without one."""
    rate = _DEFAULT_RATE if positive_rate is None else positive_rate
    if not 0 < rate < 1:
        raise PlanError(f"positive_rate must lie between 0 and 1, got {positive_rate!r}.")
    return rate


def predicted_deviations(
    known: PartyRanks,
    privacy: AnyPrivacyModel,
    cohort: Cohort | None,
    tree: Sequence[int],
    positive_rate: float,
    auc: float = REFERENCE_AUC,
) -> dict[str, float]:
    """What each mechanism adds to the error of the AUC, the least first.

    Scores are taken to be binormal with this AUC, `positive_rate` of them positive. The histogram
    over `tree` adds noise and binning, pairs add noise alone. Labels flipped at random are counted
    by bin, and there is nothing to choose from. Empty without noise.

    Examples
    --------
    >>> def best(parties, alike=True):
    ...     known = PartyRanks.evenly(100_000, parties, alike=alike)
    ...     return next(iter(predicted_deviations(known, LABEL_DP, everybody(parties), (64,), 0.2)))
    >>> best(2), best(20), best(8), best(8, alike=False)
    ('adaptive', 'histogram', 'histogram', 'adaptive')
    """
    examples = known.examples
    if isinstance(privacy, LocalDP):
        by_flips = flipped_deviation(
            privacy.epsilon, examples=examples, positive_rate=positive_rate, auc=auc
        )
        return {"histogram": by_flips}
    if not isinstance(privacy, DistributedDP) or cohort is None:
        return {}
    by_bins = predicted(
        privacy,
        cohort,
        tree,
        parties=len(known),
        examples=examples,
        positive_rate=positive_rate,
        auc=auc,
    )
    found = {"histogram": by_bins.roc_auc_error}
    for name, mechanism in MECHANISMS.items():
        if mechanism.noise == privacy.noise:
            found[name] = mechanism.deviation(known, privacy, auc, positive_rate * examples)
    return dict(sorted(found.items(), key=lambda item: item[1]))
