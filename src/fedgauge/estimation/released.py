"""What reached the server: the one value that engines make and results are made of."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgauge.binning.axis import Axis
from fedgauge.binning.tables import TableSum


@dataclass(frozen=True, eq=False)
class Released:
    """What a sum over clients, or many reports, tell.

    Attributes
    ----------
    axis
        The score axis of the counts: the plan's, or one with some of its bins merged.
    counts
        By channel and bin: whole numbers, or under noise least-squares estimates, which may be
        negative.
    clients
        How many clients are in the sum.
    sums
        Score sums by channel and bin, with the noise that was added to them; None where none
        were sent.
    reports
        How many local reports there were, which is public; None where there were none.
    joined
        Names of groups with too few examples to be shown, which are counted in the last one of
        their grouping, "other". Their own counts are zeros that say nothing.
    tables
        What the plan counts besides, each with the sums of its cells and the noise in them.
    doubted
        Names of label parties that answered alone, and sent what no labels have.
    """

    axis: Axis
    counts: NDArray[Any]
    clients: int
    sums: NDArray[np.int64] | None = None
    reports: int | None = None
    joined: tuple[str, ...] = ()
    tables: tuple[TableSum, ...] = ()
    doubted: tuple[str, ...] = ()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the counts and their axis: the same once they were saved and loaded."""
        counts = np.asarray(self.counts, dtype="<f8").tobytes()
        return hashlib.sha256(
            f"fedgauge-counts/1 {self.axis.digest}\n".encode() + counts
        ).hexdigest()

    @property
    def contributions(self) -> int:
        """How many shares of noise are in the counts: those of reports, or of clients."""
        return self.clients if self.reports is None else self.reports
