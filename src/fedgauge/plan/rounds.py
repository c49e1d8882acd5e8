"""What every kind of round can be asked, and what a round works within."""

import math
from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple, Protocol

from fedgauge.binning.axis import Axis
from fedgauge.binning.channels import PLAIN, Layout
from fedgauge.errors import PlanError
from fedgauge.plan.slices import TWO_CLASSES
from fedgauge.privacy import Cohort, PrivacyModel
from fedgauge.privacy.shares import ShareLaw
from fedgauge.typing import Floats

NO_COHORT: Final = "a sum needs a cohort: say who must take part."
NO_SUM_OF_REPORTS: Final = (
    "this plan is for local reports, which nobody sums securely. Make them with `fedgauge encode`, "
    "and give the server's intake their messages."
)
NO_SUM_OF_FLIPS: Final = (
    "this plan is for labels that are flipped where they are held, which nobody sums securely. "
    "Each party answers alone: `fedgauge vertical answer`."
)
NO_SUM_ALONE: Final = (
    "under this plan each label party answers alone, with all of the noise, and nothing is summed "
    "securely. Answer with `fedgauge vertical answer`."
)


def nodes_by_level(tree: Sequence[int]) -> tuple[int, ...]:
    """How many nodes a tree has at each level, the root left out."""
    return tuple(math.prod(tree[: level + 1]) for level in range(len(tree)))


class Terms(NamedTuple):
    """What a plan says besides its rounds, as far as a round needs it.

    `per_row` is how many counts, at each level, one row adds to; `layout` which counts there are,
    and `counted` says what they are in words.
    """

    privacy: PrivacyModel
    cohort: Cohort | None
    axis: Axis
    tree: tuple[int, ...]
    channels: int
    per_row: int = 1
    layout: Layout = PLAIN
    counted: str = TWO_CLASSES

    @property
    def sum_cohort(self) -> Cohort:
        """Who must take part in a sum."""
        if self.cohort is None:
            raise PlanError(why_no_sum(self.privacy))
        return self.cohort

    @property
    def is_alone(self) -> bool:
        """Whether a sum may be over one client, so that each adds all of the noise."""
        return self.cohort is not None and self.cohort.min_survivors == 1


def why_no_sum(privacy: PrivacyModel) -> str:
    """Why nothing is summed securely where nobody in particular must take part."""
    if privacy.flips_labels:
        return NO_SUM_OF_FLIPS
    return NO_SUM_OF_REPORTS if privacy.sends_reports else NO_COHORT


class Round(Protocol):
    """One thing that every client sends.

    A kind of round is plain data in a plan, and says all that differs between kinds.

    Attributes
    ----------
    sends_reports
        Whether each row is sent by itself; else a client sends its counts once.
    flips_labels
        Whether labels are flipped at random before they are counted.
    """

    sends_reports: ClassVar[bool]
    flips_labels: ClassVar[bool]

    @property
    def nodes(self) -> tuple[int, ...]:
        """The number of nodes at each level sent."""

    @property
    def sum_steps(self) -> int:
        """Steps that the scores within a bin are summed in; 0 where they are not."""

    @property
    def is_noisy(self) -> bool:
        """Whether what is released is noisy."""

    def check(self, terms: Terms) -> None:
        """Refuse what no plan of these terms holds."""

    def check_promise(self, terms: Terms) -> None:
        """Refuse noise that costs more than the privacy model promises."""

    def draws(self, terms: Terms) -> list[tuple[ShareLaw, int]]:
        """Laws of one client's noise, and how many numbers each is on."""

    def noise_variances(self, terms: Terms, contributions: int) -> tuple[float, ...]:
        """Variance of the noise at one node of each level; empty without noise."""

    def node_variances(self, terms: Terms, leaves: Floats) -> list[Floats]:
        """Variance at every node of each level, where it depends on the counts; else empty."""

    def numbers(self, terms: Terms) -> int:
        """How many numbers one client sends, or a report tells apart."""

    def bytes_sent(self, terms: Terms) -> int:
        """Size of what is sent, before any protocol."""

    def in_words(self, terms: Terms) -> Sequence[tuple[str, str]]:
        """Titles and paragraphs for whoever must approve of it."""


def alone_in_words(terms: Terms, leaves: str, learned: str) -> list[tuple[str, str]]:
    """Titles and paragraphs of a round in which each label party answers by itself."""
    return [
        ("What leaves each site", leaves),
        ("What is learned from it", learned),
        ("What is promised", terms.privacy.promise),
        ("Who must take part", "Nobody in particular: the promise does not rest on others."),
        ("What is not protected", f"{terms.privacy.unprotected}."),
    ]
