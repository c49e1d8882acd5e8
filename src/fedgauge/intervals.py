"""Estimates: a value with what is known about where the truth lies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np

from fedgauge import repair
from fedgauge.lookup import Floats
from fedgauge.metrics import Bounded
from fedgauge.privacy.response import settle

LEVEL: Final = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number estimated from pooled counts.

    Attributes
    ----------
    value
        The estimate.
    bounds
        Where the number computed from pooled data lies. Under secure aggregation this is
        certain: it is what binning allows. Under differential privacy it also covers the
        noise, with confidence `level`.
    low, high, level
        An interval for the value in the population and its confidence level; None where
        no interval has been computed.
    parts
        How far each source of error can move the value: ``binning`` at most, ``noise`` as a
        standard deviation.

    Examples
    --------
    >>> float(Estimate(0.9, (0.89, 0.91)))
    0.9
    """

    value: float
    bounds: tuple[float, float]
    low: float | None = None
    high: float | None = None
    level: float | None = None
    parts: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        low, high = self.bounds
        surely = f" at {self.level:.0%}" if self.level else ""
        return f"{self.value:.4f} (pooled data: {low:.4f} to {high:.4f}{surely})"

    def __repr__(self) -> str:
        return f"Estimate({self.value:.4f}, bounds {self.bounds[0]:.4f}..{self.bounds[1]:.4f})"


def from_bounds(number: Bounded) -> Estimate:
    """An estimate whose only error is binning."""
    reach = max(number.value - number.lowest, number.highest - number.value)
    return Estimate(
        number.value,
        (number.lowest, number.highest),
        parts=MappingProxyType({"binning": reach}),
    )


def from_noise(number: Bounded, deviations: Floats) -> Estimate:
    """An estimate with binning and noise; `deviations` are what fresh noise did to the value."""
    # Outward: a quantile of few redraws lies inside the true one as often as outside.
    below = np.quantile(deviations, (1 - LEVEL) / 2, method="lower")
    above = np.quantile(deviations, (1 + LEVEL) / 2, method="higher")
    exact = from_bounds(number)
    low = max(number.lowest - max(float(above), 0.0), 0.0)
    high = min(number.highest - min(float(below), 0.0), 1.0)
    parts = {**exact.parts, "noise": float(np.std(deviations))}
    return Estimate(number.value, (low, high), level=LEVEL, parts=MappingProxyType(parts))


def redraw(
    counts: Floats,
    tree: Sequence[int],
    variances: Sequence[float],
    rng: np.random.Generator,
    *,
    spreads: Sequence[Floats] = (),
) -> Floats:
    """Counts as they would come out of the same mechanism again: noise, then least squares.

    A way to see what noise does to a result. The noise here protects nothing. `spreads` are the
    variances of all nodes where these differ, as under local DP, whose counts add up to the
    number of reports.
    """
    levels = []
    noise: Sequence[float | Floats] = spreads or variances
    for depth, variance in enumerate(noise):
        nodes = int(np.prod(tree[: depth + 1]))
        exact = counts.reshape(len(counts), nodes, -1).sum(axis=2)
        levels.append(exact + rng.laplace(0.0, np.sqrt(variance / 2), exact.shape))
    leaves = repair.consistent(levels, tree, variances)
    return settle(leaves, counts.sum()) if spreads else leaves
