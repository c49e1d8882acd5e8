"""A round of reports: every row is sent by itself, randomised where it is held."""

from collections.abc import Sequence
from typing import ClassVar, Self

import msgspec

from fedgauge.errors import PlanError
from fedgauge.plan.rounds import Terms, nodes_by_level
from fedgauge.privacy import PrivacyModel, response
from fedgauge.privacy.models import ReportNoise
from fedgauge.privacy.oracles import MOST_CELLS, Oracle
from fedgauge.privacy.shares import ShareLaw
from fedgauge.typing import Floats


class ReportRound(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="report"
):
    """Each row is sent as one report about one level, drawn at random and public.

    `nodes` lists the number of nodes at each level. `noise` is the chance, out of 2^64, that a
    zero is raised (``oue``) or that a report says nothing (``hadamard``) at each of them;
    `blocks` are those of Hadamard response, empty for ``oue``.
    """

    nodes: tuple[int, ...]
    noise: tuple[int, ...]
    blocks: tuple[int, ...] = ()

    sends_reports: ClassVar[bool] = True
    flips_labels: ClassVar[bool] = False
    is_noisy: ClassVar[bool] = True
    sum_steps: ClassVar[int] = 0

    @classmethod
    def calibrated(cls, privacy: PrivacyModel, tree: Sequence[int], channels: int) -> Self:
        """The least noise that keeps the promise of the model."""
        nodes = nodes_by_level(tree)
        noise = privacy.calibrate_reports(_cells(nodes, channels))
        return cls(nodes, noise.chances, noise.blocks)

    def oracles(self, terms: Terms) -> tuple[Oracle, ...]:
        """What randomises a report about each level."""
        cells = _cells(self.nodes, terms.channels)
        return terms.privacy.oracles(cells, ReportNoise(self.noise, self.blocks))

    def check(self, terms: Terms) -> None:
        """Refuse what no plan of these terms holds."""
        if terms.per_row > 1 or terms.channels > 2:
            raise PlanError(
                "local reports are of one score and two classes, without groups. Use DistributedDP."
            )
        nodes = nodes_by_level(terms.tree)
        if self.nodes != nodes:
            raise PlanError(
                f"under this privacy model a plan has one round of reports about {nodes} nodes; "
                "make plans with EvaluationPlan.for_reports."
            )
        self.oracles(terms)

    def check_promise(self, terms: Terms) -> None:
        """Refuse reports that cost more than the privacy model promises."""
        terms.privacy.check_reports(self.oracles(terms))

    def draws(self, terms: Terms) -> list[tuple[ShareLaw, int]]:
        """None: rows are randomised, and nothing is added to counts."""
        del terms
        return []

    def noise_variances(self, terms: Terms, contributions: int) -> tuple[float, ...]:
        """Variance of one node's estimate from so many reports, at each level."""
        return response.variances(self.oracles(terms), contributions)

    def node_variances(self, terms: Terms, leaves: Floats) -> list[Floats]:
        """Variance of every node's estimate, where `leaves` rows are in the bins."""
        return response.node_variances(self.oracles(terms), leaves)

    def numbers(self, terms: Terms) -> int:
        """How many cells a report tells apart at all levels."""
        return terms.channels * sum(self.nodes)

    def bytes_sent(self, terms: Terms) -> int:
        """Size of one report."""
        return max(oracle.payload_bytes for oracle in self.oracles(terms))

    def in_words(self, terms: Terms) -> list[tuple[str, str]]:
        """Titles and paragraphs for whoever must approve of it."""
        privacy, count = terms.privacy, self.bytes_sent(terms)
        size = "1 byte" if count == 1 else f"{count:,} bytes"
        leaves = (
            f"One report for each row ({size}, and a random number that names the report): whether "
            f"the row is positive and in which of {terms.axis.bins:,} ranges its score lies, made "
            "uncertain by the site's own secure generator before it is sent. No score, name or "
            "identifier leaves."
        )
        learned = (
            "A report alone leaves its row uncertain. Many add up to estimates of the curves of "
            "all rows together. The number of reports of each site is known."
        )
        nobody = "Nobody in particular: the promise does not rest on others."
        return [
            ("What leaves each site", leaves),
            ("What is learned from it", learned),
            ("What is promised", privacy.promise),
            ("Who must take part", nobody),
            ("What is not protected", f"{privacy.unprotected}."),
        ]


def _cells(nodes: Sequence[int], channels: int) -> list[int]:
    """Cells at each level, channels times nodes."""
    if not nodes or any(count < 1 for count in nodes) or max(nodes) * channels > MOST_CELLS:
        raise PlanError(
            f"a local report tells at most {MOST_CELLS:,} cells apart, classes times bins. Use "
            "fewer bins: 64 are plenty."
        )
    return [channels * count for count in nodes]
