"""A round of pairs: every label party sends two noisy numbers, which give the AUC alone."""

from collections.abc import Mapping
from typing import ClassVar, Final, Literal

import msgspec

from fedgauge.binning.axis import Axis
from fedgauge.errors import PlanError
from fedgauge.plan.rounds import Terms, alone_in_words
from fedgauge.privacy import DistributedDP, apart
from fedgauge.privacy.shares import ShareLaw
from fedgauge.typing import Floats

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


class PairRound(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="pair"
):
    """Each label party sends its positives and the sum of their ranks, with all of the noise.

    `examples` is how many there are in all: doubled midranks among them reach from 0 to twice as
    many, less 2. The noise is no part of the round: it follows from a party's own ranks and the
    privacy model, so no plan can ask for too little.
    """

    mechanism: PairName
    examples: int
    nodes: tuple[int] = msgspec.field(default_factory=lambda: (1,))

    sends_reports: ClassVar[bool] = False
    flips_labels: ClassVar[bool] = False
    is_noisy: ClassVar[bool] = True
    sum_steps: ClassVar[int] = 0

    @property
    def places(self) -> int:
        """How many doubled ranks there can be."""
        return 2 * self.examples - 1

    def axis(self) -> Axis:
        """One range of all ranks: nothing is counted by where in it an example lies."""
        return Axis.uniform(1, 0.0, max(self.places - 1, 1), outside="clip")

    def check(self, terms: Terms) -> None:
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

    def check_promise(self, terms: Terms) -> None:
        """Refuse a privacy model whose noise is not that of the mechanism."""
        noise = PAIR_NOISE[self.mechanism]
        if not isinstance(terms.privacy, DistributedDP) or terms.privacy.noise != noise:
            raise PlanError(
                f"{self.mechanism} needs DistributedDP with noise={noise!r}, unit='label' and "
                "neighbours='flip'."
            )

    def draws(self, terms: Terms) -> list[tuple[ShareLaw, int]]:
        """None of a table: noise of a pair is drawn exactly."""
        del terms
        return []

    def noise_variances(self, terms: Terms, contributions: int) -> tuple[float, ...]:
        """None of a level: there are no bins."""
        del terms, contributions
        return ()

    def node_variances(self, terms: Terms, leaves: Floats) -> list[Floats]:
        """None: there are no bins."""
        del terms, leaves
        return []

    def numbers(self, terms: Terms) -> int:
        """Two."""
        del terms
        return 2

    def bytes_sent(self, terms: Terms) -> int:
        """Size of a pair."""
        return self.numbers(terms) * BYTES_PER_NUMBER

    def in_words(self, terms: Terms) -> list[tuple[str, str]]:
        """Titles and paragraphs for whoever must approve of it."""
        leaves = (
            "2 whole numbers, once: how many of the site's examples are positive, and the sum of "
            "the places that these have in the order of all scores. The place of an example, the "
            "site was told by whoever scored it. No row, score, label, name or identifier leaves "
            f"with these numbers. {apart.ROSTER} {apart.ALL_NOISE.format('both')}"
        )
        learned = (
            "The AUC of all sites together, and nothing else; of each site its two blurred "
            "numbers, by whoever scored the examples and knows their places."
        )
        return alone_in_words(terms, leaves, learned)
