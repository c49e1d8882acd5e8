"""What a plan says about local reports: which oracle speaks at each level, and what it costs."""

from collections.abc import Sequence

import msgspec
import numpy as np

from fedgauge.errors import NoSignal, PlanError
from fedgauge.privacy.keystream import WordSource
from fedgauge.privacy.models import LocalDP
from fedgauge.privacy.oracles import (
    KEEP,
    MOST_CELLS,
    WHOLE,
    Cells,
    HadamardResponse,
    Oracle,
    Payloads,
    Tallies,
    UnaryEncoding,
    draw_levels,
    keeps,
    mean_variance,
)
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

    @classmethod
    def calibrated(cls, spec: LocalDP, nodes: Sequence[int], channels: int) -> "ReportRound":
        """The least noise that keeps the promise of the spec."""
        _check_cells(nodes, channels)
        cells = [channels * count for count in nodes]
        if spec.oracle == "oue":
            unary = [UnaryEncoding.calibrated(spec.epsilon, cells=count) for count in cells]
            return cls(tuple(nodes), tuple(oracle.raised for oracle in unary))
        hadamard = [HadamardResponse.calibrated(spec.epsilon, cells=count) for count in cells]
        blanks = tuple(oracle.blank for oracle in hadamard)
        return cls(tuple(nodes), blanks, tuple(oracle.blocks for oracle in hadamard))

    @property
    def largest(self) -> int:
        """Rows that one report stands for."""
        return 1

    @property
    def sums(self) -> None:
        """Reports carry no score sums."""

    def check(self, spec: LocalDP, channels: int) -> None:
        """Refuse parameters that no oracle has."""
        _check_cells(self.nodes, channels)
        most = KEEP if spec.oracle == "oue" else WHOLE
        fits = len(self.noise) == len(self.nodes) and all(0 < n < most for n in self.noise)
        if spec.oracle == "oue":
            fits = fits and not self.blocks
        else:
            fits = (
                fits
                and len(self.blocks) == len(self.nodes)
                and all(
                    0 < blocks <= channels * nodes and blocks.bit_count() == 1
                    for blocks, nodes in zip(self.blocks, self.nodes, strict=True)
                )
            )
        if not fits:
            raise PlanError(
                f"the reports of this plan are not such as {spec.oracle} makes. Make the plan "
                "again with EvaluationPlan.for_reports."
            )

    def oracles(self, spec: LocalDP, channels: int) -> tuple[Oracle, ...]:
        """The oracle of each level."""
        cells = [channels * count for count in self.nodes]
        if spec.oracle == "oue":
            return tuple(map(UnaryEncoding, cells, self.noise))
        return tuple(map(HadamardResponse, cells, self.noise, self.blocks))


def check_promise(spec: LocalDP, oracles: Sequence[Oracle]) -> None:
    """Refuse oracles that tell more than the spec promises; the level tells nothing."""
    if not all(keeps(oracle.worst_ratio, spec.epsilon) for oracle in oracles):
        raise PlanError(
            f"the plan promises epsilon {spec.epsilon:g} but its reports cost more. "
            "Make the plan again with EvaluationPlan.for_reports."
        )


def variances(oracles: Sequence[Oracle], reports: int) -> tuple[float, ...]:
    """Variance of one node's estimated count at each level, for a cell of mean frequency.

    With L levels and n reports, n L v + n (L - 1) f (1 - f), where v is the variance that one
    report adds. It grows with the frequency f of a cell; here f = 1 / cells, its mean over the
    cells of a level whatever the data: public, and weights that do not look at the counts keep
    their least-squares estimate unbiased.
    """
    levels = len(oracles)
    return tuple(
        reports
        * (levels * mean_variance(oracle) + (levels - 1) * (1 - 1 / oracle.cells) / oracle.cells)
        for oracle in oracles
    )


def spreads(oracles: Sequence[Oracle], leaves: Floats) -> list[Floats]:
    """Variance of every node's estimated count at each level, where `leaves` rows are in the bins.

    Unlike :func:`variances` this depends on the counts: for redrawing noise, not for weights.
    """
    levels, reports = len(oracles), leaves.sum()
    found = []
    for oracle in oracles:
        counts = leaves.reshape(oracle.cells, -1).sum(axis=1)
        # A level is told about by one in L reports: of a sample, scaled up by L.
        sampled = (levels - 1) * counts * (1 - counts / reports)
        found.append((levels * oracle.spread(counts) + sampled).reshape(len(leaves), -1))
    return found


def randomise(oracles: Sequence[Oracle], leaves: Cells, source: WordSource) -> list[Payloads]:
    """A report for each row, by level; `leaves` are the rows' cells at the last level."""
    drawn = draw_levels(source, len(leaves), len(oracles))
    finest = oracles[-1].cells
    # Bins of a node are next to each other, and a class has a whole number of nodes.
    return [
        oracle.encode(leaves[drawn == level] // (finest // oracle.cells), source)
        for level, oracle in enumerate(oracles)
    ]


def debias(
    oracles: Sequence[Oracle], tallies: Sequence[Tallies], reports: Sequence[int], channels: int
) -> list[Floats]:
    """Unbiased counts of all rows by channel and node, from the reports about each level."""
    if not any(reports):
        raise NoSignal("no signal: there are no reports yet.")
    if not all(reports):
        raise NoSignal(
            "no signal: a level of the tree has no report yet. Wait for more, or use a flat tree."
        )
    total = sum(reports)
    return [
        oracle.estimate(tally, count).reshape(channels, -1) * (total / count)
        for oracle, tally, count in zip(oracles, tallies, reports, strict=True)
    ]


def settle(leaves: Floats, reports: float | Floats) -> Floats:
    """Leaf estimates that add up to the number of reports, which is public.

    All leaves have the same variance and the same covariance with the total, so the
    least-squares estimate given the total shares what is missing equally.
    """
    cells = leaves.shape[-2] * leaves.shape[-1]
    missing = reports - leaves.sum(axis=(-2, -1), keepdims=True)
    return np.asarray(leaves + missing / cells)


def _check_cells(nodes: Sequence[int], channels: int) -> None:
    if not nodes or any(count < 1 for count in nodes) or max(nodes) * channels > MOST_CELLS:
        raise PlanError(
            f"a local report tells at most {MOST_CELLS:,} cells apart, classes times bins. Use "
            "fewer bins: 64 are plenty."
        )
