"""A round of reports: every row is sent by itself, randomised where it is held."""

import math
from collections.abc import Sequence
from typing import ClassVar, Final, Self

import msgspec

from fedgauge.binning.channels import Layout
from fedgauge.errors import PlanError
from fedgauge.plan.rounds import Terms, nodes_by_level
from fedgauge.privacy import PrivacyModel, response
from fedgauge.privacy.models import ReportNoise
from fedgauge.privacy.oracles import MOST_CELLS, Oracle
from fedgauge.privacy.shares import ShareLaw
from fedgauge.typing import Floats

_MOST_IN_ALL: Final = 1 << 20  # cells of all blocks, which a server keeps sums of


class ReportRound(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="report"
):
    """Each row is sent as one report about one level of one block, drawn at random and public.

    A block is one of the row's scores and one way to group rows: there the row is in one cell, of
    its group, its class and its score's node. `nodes` lists the number of nodes at each level.
    `noise` is the chance, out of 2^64, that a zero is raised (``oue``) or that a report says
    nothing (``hadamard``) at each level of the first block, then of the second and so on; `blocks`
    are those of Hadamard response, empty for ``oue``.
    """

    nodes: tuple[int, ...]
    noise: tuple[int, ...]
    blocks: tuple[int, ...] = ()

    sends_reports: ClassVar[bool] = True
    flips_labels: ClassVar[bool] = False
    is_noisy: ClassVar[bool] = True
    sum_steps: ClassVar[int] = 0

    @classmethod
    def calibrated(cls, privacy: PrivacyModel, tree: Sequence[int], layout: Layout) -> Self:
        """The least noise that keeps the promise of the model."""
        nodes = nodes_by_level(tree)
        noise = privacy.calibrate_reports(_cells(nodes, layout))
        return cls(nodes, noise.chances, noise.blocks)

    def oracles(self, terms: Terms) -> tuple[Oracle, ...]:
        """What randomises a report about each level of the first block, of the second and so on."""
        cells = _cells(self.nodes, terms.layout)
        return terms.privacy.oracles(cells, ReportNoise(self.noise, self.blocks))

    def by_block(self, terms: Terms) -> tuple[tuple[Oracle, ...], ...]:
        """What randomises a report about each level of every block."""
        oracles, levels = self.oracles(terms), len(self.nodes)
        return tuple(oracles[n : n + levels] for n in range(0, len(oracles), levels))

    def check(self, terms: Terms) -> None:
        """Refuse what no plan of these terms holds."""
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
        blocks = self.by_block(terms)
        # Of the first: those of blocks with other groups hardly differ, as weights.
        return response.variances(blocks[0], contributions, len(blocks))

    def node_variances(self, terms: Terms, leaves: Floats, block: int = 0) -> list[Floats]:
        """Variance by noise of every node's estimate, where `leaves` rows are in a block's bins.

        Of several blocks each has a share of the reports; that these are of a sample of the rows
        comes on top.
        """
        blocks = self.by_block(terms)
        return [len(blocks) * each for each in response.node_variances(blocks[block], leaves)]

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
            f"One report for each row{_about(terms.layout)} ({size}, and a random number that "
            f"names the report): {_told(terms)}, made uncertain by the site's own secure generator "
            "before it is sent. No score, name or identifier leaves."
        )
        estimated = "the curves of all rows together"
        if not terms.layout.is_plain:
            estimated = f"{terms.counted} in each of these ranges, at all sites together"
        learned = (
            f"A report alone leaves its row uncertain. Many add up to estimates of {estimated}. "
            "The number of reports of each site is known."
        )
        nobody = "Nobody in particular: the promise does not rest on others."
        return [
            ("What leaves each site", leaves),
            ("What is learned from it", learned),
            ("What is promised", privacy.promise),
            ("Who must take part", nobody),
            ("What is not protected", f"{privacy.unprotected}."),
        ]


def _about(layout: Layout) -> str:
    """What a report is about, of several things."""
    among = [(layout.by_row, "scores"), (len(layout.groupings), "ways to group rows")]
    told = " and ".join(f"one of {count:,} {what}" for count, what in among if count > 1)
    return told and f", about {told}, drawn at random whatever the row holds and said openly"


def _told(terms: Terms) -> str:
    """What a report says of its row, before it is made uncertain."""
    layout = terms.layout
    of_class = "of which class the row is" if layout.classes else "whether the row is positive"
    of_group = ", of which group" if layout.groups else ""
    score = "its score" if layout.by_row == 1 else "that score"
    where = f"in which of {math.prod(terms.tree):,} ranges {score} lies"
    return where if layout.together else f"{of_class}{of_group} and {where}"


def _cells(nodes: Sequence[int], layout: Layout) -> list[int]:
    """Cells at each level of each block: its channels times nodes."""
    if layout.channels * sum(nodes) > _MOST_IN_ALL:
        raise PlanError(
            f"local reports tell at most {_MOST_IN_ALL:,} cells apart, of all models, labels and "
            "groups. Use fewer of them, or fewer bins."
        )
    sizes = layout.sizes
    if not nodes or any(count < 1 for count in nodes) or max(nodes) * max(sizes) > MOST_CELLS:
        raise PlanError(
            f"a local report tells at most {MOST_CELLS:,} cells apart, groups times classes times "
            "bins. Use fewer bins: 64 are plenty."
        )
    return [count * own for own in sizes for count in nodes]
