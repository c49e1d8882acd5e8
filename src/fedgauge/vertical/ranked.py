"""Ranks as each party is told them, for the AUC alone."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedgauge.data.keyed import NO_BIN, Places
from fedgauge.data.labels import Label
from fedgauge.errors import PlanError
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.paired import PairName
from fedgauge.plan.task import LabelTask
from fedgauge.privacy import AnyPrivacyModel, DistributedDP
from fedgauge.typing import Floats
from fedgauge.vertical.assigned import Assignment, Bins, pooled_scores, scores_of, tell, unscored
from fedgauge.vertical.kept import RANKS_FORMAT, RankTotals
from fedgauge.vertical.mechanisms import MECHANISMS, PartyTerms
from fedgauge.vertical.ranks import PartyRanks, Ranks
from fedgauge.vertical.roster import Roster


def assign_ranks(
    scores: tuple[Any, Floats] | None,
    rosters: Mapping[bytes, Roster],
    privacy: AnyPrivacyModel,
    mechanism: PairName = "adaptive",
    *,
    positive: Label | None = None,
) -> Assignment[RankTotals]:
    """Give each example on the rosters its rank, and make the plan that is bound to these ranks.

    A party learns the order of its own examples among those of all, more than bins tell it.

    Parameters
    ----------
    scores, rosters, privacy
        As for :func:`fedgauge.vertical.assigned.assign_bins`.
    mechanism
        What each party sends of its labels.
    positive
        The label of the positive class, where labels are not bool or 0/1.

    Examples
    --------
    >>> from fedgauge.keys import SigningKey
    >>> key = SigningKey.generate()
    >>> rosters = {key.public: Roster.of_ids(range(3000), key)}
    >>> privacy = DistributedDP(1.0, unit="label", neighbours="flip")
    >>> made = assign_ranks((range(3000), np.linspace(0, 1, 3000)), rosters, privacy)
    >>> made.totals.known.highest.tolist()
    [5998]
    """
    known = scores_of(scores, rosters)
    ordered = np.sort(pooled_scores(known, rosters))
    task = LabelTask(positive, self_scored=scores is None)
    plan = EvaluationPlan.for_pairs(mechanism, len(ordered), privacy, task=task)

    def ranks(values: Floats) -> NDArray[np.int64]:
        # Twice those below, and once those tied with, less the example itself.
        below = np.searchsorted(ordered, values, "left")
        return below + np.searchsorted(ordered, values, "right") - 1

    assert plan.paired is not None  # noqa: S101  (made for pairs)
    told, digest = tell(rosters, known, plan.paired.places, ranks)
    facts = [
        (party, _facts(bins, len(ordered)), _ranks(bins, rosters[party]).tobytes())
        for party, bins in told.items()
    ]
    return Assignment(
        msgspec.structs.replace(plan, task=msgspec.structs.replace(task, assignment=digest)),
        told,
        RankTotals(RANKS_FORMAT, digest, len(ordered), tuple(facts)),
        unscored(known),
        0 if scores is None else len(scores[1]) - len(ordered),
    )


def terms_of(plan: EvaluationPlan, places: Places) -> PartyTerms:
    """What a party draws its noise from, by the ranks that it was told, whoever chose them.

    Centre and reach are of the distinct places on its list: a rank is on it, so no label moves the
    sum further than the noise is for.
    """
    round_, privacy = plan.paired, plan.privacy
    if round_ is None or not isinstance(privacy, DistributedDP):
        raise PlanError("this plan is not for pairs. Make one with EvaluationPlan.for_pairs.")
    (terms,) = MECHANISMS[round_.mechanism].terms(_known(places.bins, round_.examples), privacy)
    return terms


def _facts(bins: Bins, examples: int) -> tuple[int, int, int]:
    known = _known(np.frombuffer(bins.places, "<i4"), examples)
    return int(known.mean[0]), int(known.reach[0]), int(known.highest[0])


def _ranks(bins: Bins, roster: Roster) -> NDArray[np.int32]:
    """The rank of each example, also where one stands for all that have its score."""
    places = np.frombuffer(bins.places, "<i4")
    places = np.repeat(places, roster.times) if roster.is_scored else places
    ranks: NDArray[np.int32] = places[places != NO_BIN]
    return ranks


def _known(places: NDArray[np.int32], examples: int) -> PartyRanks:
    ranks: Ranks = places[places != NO_BIN].astype(np.int64)
    own = PartyRanks.of(ranks, np.zeros(len(ranks), dtype=np.intp), 1)
    return replace(own, examples=examples)
