"""Estimates: a value with what is known about where the truth lies."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from fedgauge.metrics import Bounded


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number estimated from pooled counts.

    Attributes
    ----------
    value
        The estimate.
    bounds
        Where the number computed from pooled data lies. Under secure aggregation this is
        certain: it is what binning allows.
    low, high, level
        An interval for the value in the population and its confidence level; None where
        no interval has been computed.
    parts
        How far each source of error can move the value: ``binning``.

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
        return f"{self.value:.4f} (pooled data: {low:.4f} to {high:.4f})"

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
