"""Rounds of labels apart from scores: flipped labels, or two noisy numbers for the AUC alone."""

from collections.abc import Mapping
from typing import ClassVar, Final, Literal, Self

import msgspec
import numpy as np

from fedgauge.arrays import Floats
from fedgauge.errors import PlanError
from fedgauge.histograms.axis import Axis
from fedgauge.plan.rounds import Round, RoundTerms, alone_in_words
from fedgauge.privacy import PrivacyModel, local, models
from fedgauge.privacy.oracles import KEEP


class FlipRound(Round, frozen=True, tag="flips"):
    """Each label party sends, for every bin, its number of positive labels after flips.

    A party flips its labels once, and counts the same flipped labels in every evaluation.
    """

    nodes: tuple[int]
    chance: int  # of a flip, out of 2^64

    flips_labels: ClassVar[bool] = True

    @classmethod
    def calibrated(cls, privacy: PrivacyModel, bins: int) -> Self:
        """The rarest flips that keep the promise of the model."""
        return cls((bins,), privacy.calibrate_flips())

    def check(self, terms: RoundTerms) -> None:
        """Refuse what no plan of these terms holds."""
        # A larger range has no noise of its own: what its bins add up to is all that is known.
        if terms.tree != self.nodes:
            raise PlanError(
                "flipped labels are counted in bins alone: a tree over them gains nothing. Use "
                "tree='flat', or one branching, the number of bins."
            )
        if not 0 < self.chance < KEEP:
            raise PlanError(
                "the flips of this plan are such as none has. Make the plan again with "
                "EvaluationPlan.for_flips."
            )

    def check_promise(self, terms: RoundTerms) -> None:
        """Refuse flips that cost more than the privacy model promises."""
        terms.privacy.check_flips(self.chance)

    def node_variances(self, terms: RoundTerms, leaves: Floats) -> list[Floats]:
        """Variance of each count, where the classes' `leaves` add up to known totals."""
        del terms
        # Rounded: the classes are estimates, and their sum a number of rows.
        totals = np.rint(leaves.sum(axis=0))
        return [np.broadcast_to(local.variances(totals, self.chance), leaves.shape)]

    def in_words(self, terms: RoundTerms) -> list[tuple[str, str]]:
        """Titles and paragraphs for whoever must approve of it."""
        leaves = (
            f"{self.numbers(terms):,} whole numbers: of the rows in each of {terms.axis.bins:,} "
            "ranges, how many are positive once labels were flipped. Each label is flipped or not, "
            "once, by the site's own secure generator; the flipped labels are kept, and counted "
            "again in every evaluation. No row, score, name or identifier leaves."
        )
        learned = (
            "A flipped label leaves the label uncertain. Many add up to estimates of the curves "
            "of all rows together. The scorer knows how many rows of each site lie in each range."
        )
        return alone_in_words(terms, leaves, learned)


PairName = Literal["adaptive", "orthogonal", "laplace-global", "laplace-local", "gaussian"]

# Polya noise of one party is discrete Laplace.
PAIR_NOISE: Final[Mapping[PairName, Literal["polya", "discrete-gaussian"]]] = {
    "adaptive": "polya",
    "orthogonal": "polya",
    "laplace-global": "polya",
    "laplace-local": "polya",
    "gaussian": "discrete-gaussian",
}
BYTES_PER_NUMBER: Final = 16
_MOST_EXAMPLES: Final = 1 << 30  # whose doubled ranks fit 32 bits


class PairRound(Round, frozen=True, tag="pair"):
    """Each label party sends its positives and the sum of their ranks, with all of the noise.

    `examples` counts all parties; doubled midranks run from 0 to twice as many, less 2. Noise
    follows from a party's own ranks and the privacy model: no plan can ask for too little.
    """

    mechanism: PairName
    examples: int
    nodes: tuple[int] = msgspec.field(default_factory=lambda: (1,))

    @property
    def places(self) -> int:
        """How many doubled ranks there can be."""
        return 2 * self.examples - 1

    def axis(self) -> Axis:
        """One range of all ranks: nothing is counted by where in it an example lies."""
        return Axis.uniform(1, 0.0, max(self.places - 1, 1), outside="clip")

    def check(self, terms: RoundTerms) -> None:
        """Refuse what no plan of these terms holds."""
        if not 2 <= self.examples <= _MOST_EXAMPLES:
            raise PlanError(
                f"ranks are of 2 to {_MOST_EXAMPLES:,} examples, got {self.examples:,}."
            )
        if terms.axis != self.axis() or self.nodes != (1,) or not terms.is_alone:
            raise PlanError(
                "a pair is over all ranks, and each party answers alone. Make the plan again with "
                "EvaluationPlan.for_pairs."
            )
        self.check_promise(terms)

    def check_promise(self, terms: RoundTerms) -> None:
        """Refuse a privacy model whose noise is not that of the mechanism."""
        noise = PAIR_NOISE[self.mechanism]
        if terms.privacy.noise != noise:
            raise PlanError(
                f"{self.mechanism} needs DistributedDP with noise={noise!r}, unit='label' and "
                "neighbours='flip'."
            )

    def numbers(self, terms: RoundTerms) -> int:
        """Two."""
        del terms
        return 2

    def bytes_sent(self, terms: RoundTerms) -> int:
        """Size of a pair."""
        return self.numbers(terms) * BYTES_PER_NUMBER

    def in_words(self, terms: RoundTerms) -> list[tuple[str, str]]:
        """Titles and paragraphs for whoever must approve of it."""
        leaves = (
            "2 whole numbers, once: how many of the site's examples are positive, and the sum of "
            "the places that these have in the order of all scores. The scorer told the site the "
            "place of each example. No row, score, label, name or identifier leaves with these "
            f"numbers. {models.ROSTER} {models.ALL_NOISE.format('both')}"
        )
        learned = (
            "The AUC of all sites together, and nothing else; the scorer, who knows the places, "
            "learns the two blurred numbers of each site."
        )
        return alone_in_words(terms, leaves, learned)
