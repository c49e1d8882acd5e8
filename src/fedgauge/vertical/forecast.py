"""What an evaluation of labels apart from scores would be worth, before there is any data."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from fedgauge.errors import PlanError, PrivacyWarning
from fedgauge.planner.requirements import EPSILONS, EXAMPLES, Needs, solve, with_epsilon
from fedgauge.privacy import Cohort, DistributedDP
from fedgauge.vertical.auc import PartyRanks
from fedgauge.vertical.bins import (
    LABEL_DP,
    REFERENCE_AUC,
    Expected,
    check_rate,
    choose_tree,
    everybody,
    flipped_deviation,
    predicted,
    predicted_deviations,
)

_TWO_SIDED: Final = 1.96  # deviations to either side of a 95% interval
_WANTS: Final = ("roc_auc", "roc_area_error")


@dataclass(frozen=True)
class LabelOutlook:
    """What to expect of labels apart from scores, from what is public.

    Scores are taken to be binormal, and all parties to have as many examples.

    Attributes
    ----------
    privacy, cohort
        What each label is promised, and which label parties must take part.
    parties, examples
        How many there are.
    positive_rate, auc
        About what they will be.
    tree
        The bins that would be chosen: branchings.
    expected
        Errors to expect of the histogram, which gives everything.
    alike, apart
        What each mechanism adds to the error of the AUC where nothing else is wanted, the least
        first: where the parties' scores are spread alike, and where each has a range of its own.
    flipped
        The same of labels flipped at random with this epsilon, once for any number of evaluations.

    Examples
    --------
    >>> outlook = plan_vertical(parties=4, examples=20_000, positive_rate=0.1)
    >>> outlook.tree, next(iter(outlook.alike))
    ((20,), 'histogram')
    """

    privacy: DistributedDP
    cohort: Cohort
    parties: int
    examples: int
    positive_rate: float
    auc: float
    tree: tuple[int, ...]
    expected: Expected
    alike: Mapping[str, float]
    apart: Mapping[str, float]
    flipped: float

    @property
    def sampling(self) -> float:
        """Standard deviation of the AUC over samples of so many examples: no mechanism helps."""
        return self.expected.roc_auc_sampling

    def over_sampling(self, added: float) -> float:
        """The whole error of the AUC, where noise adds so much, over that of sampling alone."""
        return math.hypot(added, self.sampling) / self.sampling

    def half_width(self, mechanism: str = "histogram") -> float:
        """Half the length of the AUC's 95% interval, where the parties' scores are alike."""
        return _TWO_SIDED * math.hypot(self.alike[mechanism], self.sampling)

    def needs(
        self, wanted: float, *, metric: str = "roc_auc", mechanism: str = "histogram"
    ) -> Needs:
        """The epsilon, or the number of examples, that a wanted error takes.

        Parameters
        ----------
        wanted
            Half the length of the AUC's 95% interval, or the ROC Area Error.
        metric
            ``"roc_auc"`` or ``"roc_area_error"``.
        mechanism
            By which the AUC is had; a curve comes from the histogram alone.

        Examples
        --------
        >>> outlook = plan_vertical(parties=4, examples=20_000, positive_rate=0.1)
        >>> round(outlook.needs(0.005).examples, -4)
        60000
        """
        if metric not in _WANTS:
            raise PlanError(f"metric must be {' or '.join(_WANTS)}, got {metric!r}.")
        if not 0 < wanted < 0.5:
            raise PlanError(f"a wanted error lies between 0 and 0.5, got {wanted!r}.")

        def expected(of_epsilon: float, of_examples: float) -> float:
            privacy = with_epsilon(self.privacy, of_epsilon)
            assert isinstance(privacy, DistributedDP)  # noqa: S101  (with another epsilon)
            there = plan_vertical(
                parties=self.parties,
                examples=max(round(self.examples * of_examples), self.parties, 2),
                privacy=privacy,
                cohort=self.cohort,
                positive_rate=self.positive_rate,
                auc=self.auc,
            )
            if metric == "roc_auc":
                return there.half_width(mechanism)
            return there.expected.roc_area_error

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            epsilon = self.privacy.epsilon
            ends = (EPSILONS[0] / epsilon, EPSILONS[1] / epsilon)
            scale = solve(lambda times: expected(times, 1.0), wanted, ends)
            ends = (EXAMPLES[0] / self.examples, EXAMPLES[1] / self.examples)
            many = solve(lambda times: expected(1.0, times), wanted, ends)
        return Needs(
            None if scale is None else scale * epsilon,
            None if many is None else round(many * self.examples),
            expected(1.0, 1.0),
        )


def plan_vertical(
    *,
    parties: int,
    examples: int,
    privacy: DistributedDP = LABEL_DP,
    cohort: Cohort | None = None,
    positive_rate: float | None = None,
    auc: float = REFERENCE_AUC,
) -> LabelOutlook:
    """What :func:`fedgauge.evaluate_vertical` would be worth, from public figures alone.

    Parameters
    ----------
    parties, examples
        How many label parties there will be, and examples in all.
    privacy
        What each label is to be promised.
    cohort
        Which label parties must take part; by default all of them, as in the evaluation.
    positive_rate, auc
        About what share of examples is positive, and about what the AUC will be: a guess will do.

    Examples
    --------
    >>> outlook = plan_vertical(parties=4, examples=20_000, positive_rate=0.1)
    >>> outlook.tree, list(outlook.alike)[0], list(outlook.apart)[0]
    ((20,), 'histogram', 'histogram')
    """
    if not isinstance(privacy, DistributedDP) or privacy.unit != "label":
        raise PlanError("privacy must be DistributedDP(..., unit='label', neighbours='flip').")
    rate = check_rate(positive_rate)
    for name, number, least in (("parties", parties, 1), ("examples", examples, max(parties, 2))):
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            raise PlanError(f"{name} must be a whole number of at least {least:,}, got {number!r}.")
    if not 0.5 < auc < 1:
        raise PlanError(f"auc must lie between 0.5 and 1, got {auc!r}.")
    chosen = everybody(parties) if cohort is None else cohort
    choose = partial(
        choose_tree, privacy, chosen, parties=parties, examples=examples, positive_rate=rate
    )
    tree, alone = choose(), choose(only="roc_auc")
    alike, apart = (
        predicted_deviations(
            PartyRanks.evenly(examples, parties, alike=each), privacy, chosen, alone, rate, auc
        )
        for each in (True, False)
    )
    return LabelOutlook(
        privacy,
        chosen,
        parties,
        examples,
        rate,
        auc,
        tree,
        predicted(
            privacy, chosen, tree, parties=parties, examples=examples, positive_rate=rate, auc=auc
        ),
        alike,
        apart,
        flipped_deviation(privacy.epsilon, examples=examples, positive_rate=rate, auc=auc),
    )
