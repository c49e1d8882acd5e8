"""`Estimate`, the arithmetic of intervals, and metrics as rows of a registry."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from numbers import Real
from statistics import NormalDist
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgauge import _html
from fedgauge.errors import InputError


class Number:
    """Takes part in arithmetic as its `value`, and what comes out is a float.

    What interval a difference has depends on whether both come from the same examples, which an
    estimate does not know.
    """

    __slots__ = ()
    value: float

    def __float__(self) -> float:
        return self.value

    def __int__(self) -> int:
        return int(self.value)

    def __round__(self, digits: int | None = None) -> float:
        return round(self.value, digits)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else str(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        del copy  # there is no array yet that could be shared
        return np.array(self.value, dtype=dtype)

    def __lt__(self, other: object) -> bool:
        return NotImplemented if (x := _value(other)) is None else self.value < x

    def __le__(self, other: object) -> bool:
        return NotImplemented if (x := _value(other)) is None else self.value <= x

    def __gt__(self, other: object) -> bool:
        return NotImplemented if (x := _value(other)) is None else self.value > x

    def __ge__(self, other: object) -> bool:
        return NotImplemented if (x := _value(other)) is None else self.value >= x

    def __add__(self, other: object) -> float:
        return NotImplemented if (x := _value(other)) is None else self.value + x

    def __sub__(self, other: object) -> float:
        return NotImplemented if (x := _value(other)) is None else self.value - x

    def __mul__(self, other: object) -> float:
        return NotImplemented if (x := _value(other)) is None else self.value * x

    def __truediv__(self, other: object) -> float:
        return NotImplemented if (x := _value(other)) is None else self.value / x

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: object) -> float:
        return NotImplemented if (x := _value(other)) is None else x - self.value

    def __rtruediv__(self, other: object) -> float:
        return NotImplemented if (x := _value(other)) is None else x / self.value

    def __neg__(self) -> float:
        return -self.value

    def __abs__(self) -> float:
        return abs(self.value)


def _value(other: object) -> float | None:
    """The number that another operand stands for; None where it is none, such as an array."""
    if isinstance(other, Number):
        return other.value
    return float(other) if isinstance(other, Real) else None


LEVEL: Final = 0.95
_HALVINGS: Final = 45


class Interval(NamedTuple):
    """From low to high."""

    low: float
    high: float


UNIT: Final = Interval(0.0, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Estimate(Number):
    """A number estimated from pooled counts.

    It compares, rounds, formats and takes part in ``+ - * /`` and in NumPy as its value; what comes
    out is a plain float, for the interval of a difference follows from neither. It equals a number
    that is its value, and another estimate of which everything is the same. A metric that the
    counts do not define raises :class:`fedgauge.UndefinedMetric`.

    Attributes
    ----------
    value
        The estimate.
    bounds
        Where the number computed from pooled data lies: certain under secure aggregation (what
        binning allows); under differential privacy also covering the noise, at `level`.
    low, high
        An interval for the population's value; None where that has no meaning (counts).
    level
        Confidence of the interval and, under noise, of the bounds.
    parts
        How far each source of error can move the value: ``binning`` at most, ``noise`` and
        ``sampling`` as standard deviations.
    caution
        Why the interval is rough; None is no proof that it is not.
    plain
        Of calibration errors the number that other packages print; None of other metrics. It is
        higher than the value, for chance keeps it above 0 even where scores are right.
    unshrunk
        Under noise, the estimate of counts as noise left them, whose bounds and interval these are,
        widened to hold a value of likely counts. Itself where nothing is shrunk.

    Examples
    --------
    >>> auc = Estimate(0.9, (0.89, 0.91), 0.85, 0.94, 0.95)
    >>> auc > 0.8, f"{auc:.2f}", round(1 - auc, 3)
    (True, '0.90', 0.1)
    >>> auc.interval
    Interval(low=0.85, high=0.94)
    """

    value: float
    bounds: tuple[float, float]
    low: float | None = None
    high: float | None = None
    level: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    caution: str | None = None
    plain: float | None = None
    _unshrunk: "Estimate | None" = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", MappingProxyType(dict(self.parts)))

    @property
    def unshrunk(self) -> "Estimate":
        """The estimate of counts as noise left them: what follows for others is made of these."""
        return self if self._unshrunk is None else self._unshrunk

    @property
    def interval(self) -> Interval | None:
        """From `low` to `high`; None where these are (counts)."""
        if self.low is None or self.high is None:
            return None
        return Interval(self.low, self.high)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Estimate):
            return self._fields == other._fields
        return self.value == other if isinstance(other, Real) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.value)  # which an equal number has too

    def __reduce__(self) -> tuple[Any, ...]:
        return Estimate, (*self._fields, self._unshrunk)

    @property
    def _fields(self) -> tuple[Any, ...]:
        """What it is made of, in plain data: a proxy of a mapping has no copy."""
        return (
            self.value,
            self.bounds,
            self.low,
            self.high,
            self.level,
            dict(self.parts),
            self.caution,
            self.plain,
        )

    def moved_to(self, value: float) -> "Estimate":
        """The same with the value of likely counts; bounds and interval are widened to hold it."""
        if value == self.value:
            return self
        bounds = holding(Interval(*self.bounds), value)
        low, high = (None, None) if self.interval is None else holding(self.interval, value)
        fields = (self.level, self.parts, self.caution, self.plain, self.unshrunk)
        return Estimate(value, (bounds.low, bounds.high), low, high, *fields)

    def _repr_html_(self) -> str:
        return _html.text(str(self))

    def __str__(self) -> str:
        if self.low is None or self.high is None or self.level is None:
            value, low, high = self._without_interval()
            if low == high:
                return value
            surely = f" at {self.level * 100:g}%" if self.level else ""
            return f"{value} (pooled data: {low} to {high}{surely})"
        rough = ""
        if self.plain is not None:
            rough = f"; plain {show(self.plain)}, which chance keeps above 0"
        rough += f", rough: {self.caution}" if self.caution else ""
        span = f"{show(self.low)} to {show(self.high)}"
        return f"{show(self.value)} ({span} at {self.level * 100:g}%{rough})"

    def __repr__(self) -> str:
        if self.low is None or self.high is None or self.level is None:
            value, low, high = self._without_interval()
            return f"Estimate({value}, bounds {low}..{high})"
        level = f"{self.level * 100:g}%"
        level += "" if self.plain is None else f", plain {show(self.plain)}"
        return (
            f"Estimate({show(self.value)}, interval {show(self.low)}..{show(self.high)} at {level})"
        )

    def _without_interval(self) -> tuple[str, str, str]:
        """Value and bounds: without decimals where they count, as all that reach above 1 do."""
        numbers = (self.value, *self.bounds)
        counts = max(numbers) > 1 or all(float(number).is_integer() for number in numbers)
        value, low, high = map(show_count if counts else show, numbers)
        return value, low, high


def show(number: float) -> str:
    """A number as results print it: four decimals, or a whole number where it counts."""
    counts = abs(number) >= 100 or (abs(number) > 1 and number == round(number))
    return f"{number:,.0f}" if counts else f"{number:.4f}"


def show_count(number: float) -> str:
    """A number of examples or pairs, which under noise is an estimate: no decimals."""
    return f"{number:,.0f}"


def check_level(level: float) -> float:
    """A confidence level, if it is one."""
    if isinstance(level, bool) or not isinstance(level, Real) or not 0.5 <= level < 1:
        raise InputError(f"level must lie from 0.5 to below 1, such as 0.95, got {level!r}.")
    return float(level)


def critical(level: float) -> float:
    """Half the width of a normal interval, in standard deviations."""
    return -NormalDist().inv_cdf((1.0 - level) / 2.0)


def logit_interval(value: float, deviation: float, z: float) -> Interval:
    """Normal on the log-odds scale: stays within (0, 1)."""
    odds = math.log(value / (1.0 - value))
    reach = z * deviation / (value * (1.0 - value))
    return Interval(_expit(odds - reach), _expit(odds + reach))


def log_interval(value: float, deviation: float, z: float) -> Interval:
    """Normal on the log scale: stays above 0."""
    reach = math.exp(min(z * deviation / value, 700.0))
    return Interval(value / reach, value * reach)


def add_noise(value: float, sampling: Interval, deviation: float, z: float) -> Interval:
    """Widen a sampling interval by independent noise, in squares (Zou & Donner 2008, MOVER)."""
    return Interval(
        value - math.hypot(value - sampling.low, z * deviation),
        value + math.hypot(sampling.high - value, z * deviation),
    )


def difference(first: Interval, second: Interval, values: tuple[float, float]) -> Interval:
    """An interval for the difference of two independent values (Zou & Donner 2008, MOVER)."""
    one, other = values
    return Interval(
        one - other - math.hypot(one - first.low, second.high - other),
        one - other + math.hypot(first.high - one, other - second.low),
    )


def newcombe_interval(value: float, positives: float, negatives: float, z: float) -> Interval:
    """Interval for an AUC from few examples, or one that is 0 or 1 (Newcombe 2006, method 5).

    Values that do not differ significantly from this one, under Hanley & McNeil's variance (1982).
    """
    half = (positives + negatives) / 2.0 - 1.0

    def variance(auc: float) -> float:
        factor = 1.0 + half * ((1.0 - auc) / (2.0 - auc) + auc / (1.0 + auc))
        return auc * (1.0 - auc) * factor / (positives * negatives)

    return accepted(value, lambda auc: value - auc, variance, z)


def accepted(
    start: float,
    gap: Callable[[float], float],
    variance: Callable[[float], float],
    z: float,
    scale: Interval = UNIT,
) -> Interval:
    """The values x around `start` that a score test accepts: ``gap(x)**2 <= z**2 variance(x)``."""
    square = z * z
    ends = []
    for end in scale:
        inside, outside = start, end
        if gap(end) ** 2 > square * variance(end):
            # Written out: a report asks for a million of these, and calls were a third of the time.
            for _ in range(_HALVINGS):
                middle = 0.5 * (inside + outside)
                if gap(middle) ** 2 > square * variance(middle):
                    outside = middle
                else:
                    inside = middle
        ends.append(outside)
    return Interval(ends[0], ends[1])


def holding(interval: Interval, *values: float) -> Interval:
    """The smallest interval that also holds the values."""
    return Interval(min(interval.low, *values), max(interval.high, *values))


def next_to_end(value: float, noise: float) -> str | None:
    """Why an interval of a share is wide, if it is since noise reaches 0 or 1."""
    if noise <= 0.4 * min(value, 1.0 - value):
        return None
    # On the log-odds scale the interval is then up to 1.3 times as wide as it need be.
    return "the noise is large next to the distance from 0 or 1: a wide interval"


def within(interval: Interval, lowest: float, highest: float) -> Interval:
    """The part of an interval inside a range."""
    low, high = (min(max(end, lowest), highest) for end in interval)
    return Interval(low, high)


def _expit(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x > -700 else math.exp(x)


class Metric(cached_property[Estimate]):
    """What a metric is called, whether tables list it, and whether saved results record it.

    On an :class:`AtThreshold` or :class:`Evaluation` it is an :class:`Estimate`, made when first
    asked for. On the class it is this row, from which tables and saved results follow.
    """

    def __init__(
        self,
        compute: Callable[[Any], Estimate],
        title: str,
        *,
        listed: bool = True,
        recorded: bool = False,
    ) -> None:
        super().__init__(compute)
        self.title = title
        self.listed = listed
        self.recorded = recorded

    @property
    def name(self) -> str:
        """The attribute, and the key in a saved result."""
        return str(self.attrname)

    @property
    def meaning(self) -> str:
        """The first paragraph of its docstring, on one line."""
        return " ".join((self.__doc__ or "").partition("\n\n")[0].split())


def metric(
    title: str, *, listed: bool = True, recorded: bool = False
) -> Callable[[Callable[[Any], Estimate]], Metric]:
    """Make a method a metric; its docstring is that of the metric."""
    return partial(Metric, title=title, listed=listed, recorded=recorded)


def metrics_of(kind: type) -> tuple[Metric, ...]:
    """The metrics of a class, in the order in which it lists them, those of its bases first."""
    return tuple(
        each
        for base in reversed(kind.__mro__)
        for each in vars(base).values()
        if isinstance(each, Metric)
    )
