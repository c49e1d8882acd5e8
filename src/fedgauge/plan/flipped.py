"""A round of flipped labels: every label party sends how many are positive, and needs no sum."""

from typing import ClassVar, Self

import msgspec
import numpy as np

from fedgauge.errors import PlanError
from fedgauge.plan.rounds import Terms, alone_in_words
from fedgauge.plan.summed import BYTES_PER_COUNT
from fedgauge.privacy import PrivacyModel, flipping
from fedgauge.privacy.shares import ShareLaw
from fedgauge.typing import Floats


class FlipRound(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="flips"
):
    """Each label party sends, for every bin, how many of its labels are positive once flipped.

    `nodes` is the number of bins, `chance` that of a label to be flipped, out of 2^64. A party
    flips its labels once, and counts the same flipped labels in every evaluation.
    """

    nodes: tuple[int]
    chance: int

    sends_reports: ClassVar[bool] = False
    flips_labels: ClassVar[bool] = True
    is_noisy: ClassVar[bool] = True
    sum_steps: ClassVar[int] = 0

    @classmethod
    def calibrated(cls, privacy: PrivacyModel, bins: int) -> Self:
        """The rarest flips that keep the promise of the model."""
        return cls((bins,), privacy.calibrate_flips())

    def check(self, terms: Terms) -> None:
        """Refuse what no plan of these terms holds."""
        # A larger range has no noise of its own: what its bins add up to is all that is known.
        if terms.tree != self.nodes:
            raise PlanError(
                "flipped labels are counted in bins alone: a tree over them gains nothing. Use "
                "tree='flat', or one branching, the number of bins."
            )
        if not flipping.is_chance(self.chance):
            raise PlanError(
                "the flips of this plan are such as none has. Make the plan again with "
                "EvaluationPlan.for_flips."
            )

    def check_promise(self, terms: Terms) -> None:
        """Refuse flips that cost more than the privacy model promises."""
        terms.privacy.check_flips(self.chance)

    def draws(self, terms: Terms) -> list[tuple[ShareLaw, int]]:
        """None: labels are flipped, and nothing is added to counts."""
        del terms
        return []

    def noise_variances(self, terms: Terms, contributions: int) -> tuple[float, ...]:
        """None of a level: bins differ by the labels they hold (:meth:`node_variances`)."""
        del terms, contributions
        return ()

    def node_variances(self, terms: Terms, leaves: Floats) -> list[Floats]:
        """Variance of each count, where the classes' `leaves` add up to known totals."""
        del terms
        # Rounded: the classes are estimates, and their sum a number of rows.
        totals = np.rint(leaves.sum(axis=0))
        return [np.broadcast_to(flipping.variances(totals, self.chance), leaves.shape)]

    def numbers(self, terms: Terms) -> int:
        """How many counts one party sends."""
        return terms.channels * sum(self.nodes)

    def bytes_sent(self, terms: Terms) -> int:
        """Size of one party's counts."""
        return self.numbers(terms) * BYTES_PER_COUNT

    def in_words(self, terms: Terms) -> list[tuple[str, str]]:
        """Titles and paragraphs for whoever must approve of it."""
        leaves = (
            f"{self.numbers(terms):,} whole numbers: of the rows in each of {terms.axis.bins:,} "
            "ranges, how many are positive once labels were flipped. Each label is flipped or not, "
            "once, by the site's own secure generator; the flipped labels are kept, and counted "
            "again in every evaluation. No row, score, name or identifier leaves."
        )
        learned = (
            "A flipped label leaves the label uncertain. Many add up to estimates of the curves of "
            "all rows together. How many rows of each site lie in each range is known to whoever "
            "scored them."
        )
        return alone_in_words(terms, leaves, learned)
