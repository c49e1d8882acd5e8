"""The forms that a calibrator's map can take: each with its checks, its arithmetic, its words."""

from functools import cached_property
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedgauge.binning import scalar
from fedgauge.errors import CalibratorError
from fedgauge.typing import Floats

MOST_KNOTS: Final = 1 << 16
_FARTHEST: Final = 1e6  # of any number in log-odds: those of the smallest float are -745


class Stretches(NamedTuple):
    """Parts of the scores from 0 to 1 on which a map rises or stands still.

    `ends` lie between them: a score at one belongs to the upper part. `values` has one more, each
    what all scores of a part become, NaN where the map rises.
    """

    ends: Floats
    values: Floats


class Beta(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="beta"):
    """A smooth map: the log-odds of the result are ``c + a log(x) - b log(1 - x)``.

    Kull et al. 2017. With ``a = b`` a straight line in log-odds, which Platt scaling fits; with
    ``c = 0`` besides, temperature scaling. 0 and 1 stay where they are, unless `a` or `b` is 0.
    """

    a: float
    b: float
    c: float

    def __post_init__(self) -> None:
        for name in ("a", "b", "c"):
            number = _numbers(f"{name} of a beta map", [getattr(self, name)])[0]
            msgspec.structs.force_setattr(self, name, number)
        if self.a < 0 or self.b < 0:
            raise CalibratorError(
                "a and b of a beta map cannot be negative: higher scores would come out lower. "
                "Set a negative one to 0 and fit the other two again."
            )

    @property
    def is_monotone(self) -> bool:
        """Whether a higher score never comes out lower."""
        return True

    @property
    def is_strict(self) -> bool:
        """Whether a higher score always comes out higher."""
        return self.a > 0 or self.b > 0

    def in_words(self) -> str:
        """What it looks like."""
        return "a smooth curve of three numbers"

    def apply(self, scores: Floats) -> Floats:
        """The calibrated scores."""
        log_odds = np.full(scores.shape, self.c)
        with np.errstate(divide="ignore"):  # 0 and 1 have endless log-odds
            if self.a:
                log_odds += self.a * np.log(scores)
            if self.b:
                log_odds -= self.b * np.log1p(-scores)
        return _probabilities(log_odds)

    def stretches(self) -> Stretches:
        """Where it stands still."""
        alike = np.nan if self.is_strict else self.apply(np.array([0.5]))[0]
        return Stretches(np.empty(0), np.array([alike]))

    def to_python(self) -> str:
        """Statements that set `log_odds` from `score`."""
        return scalar.beta(self.a, self.b, self.c)


class LogOddsLine(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="log-odds-line",
    dict=True,
):
    """Straight pieces from the log-odds of scores, `x`, to those of the result, `y`.

    Beyond the first and the last knot log-odds move by as much as they do in the score.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("x", "y"):
            knots = _numbers(f"knots {name} of a map", getattr(self, name))
            msgspec.structs.force_setattr(self, name, knots)
        if not self.x or len(self.x) != len(self.y):
            raise CalibratorError("a map needs at least one knot, and one y for each x.")
        if not _increase(self.x):
            raise CalibratorError("the knots x of a map must increase; sort them, drop repeats.")
        if any(later < earlier for earlier, later in pairwise(self.y)):
            raise CalibratorError(
                "the knots y of a map cannot decrease: higher scores would come out lower. Make "
                "them isotonic first."
            )

    @property
    def is_monotone(self) -> bool:
        """Whether a higher score never comes out lower."""
        return True

    @cached_property
    def is_strict(self) -> bool:
        """Whether a higher score always comes out higher."""
        return _increase(self.y)

    def in_words(self) -> str:
        """What it looks like."""
        return f"straight pieces between {_counted(len(self.x), 'knot')}, in log-odds"

    @cached_property
    def _knots(self) -> tuple[Floats, Floats]:
        return np.array(self.x), np.array(self.y)

    def apply(self, scores: Floats) -> Floats:
        """The calibrated scores."""
        x, y = self._knots
        with np.errstate(divide="ignore"):  # 0 and 1 have endless log-odds
            log_odds = np.log(scores) - np.log1p(-scores)
        last = len(x) - 1
        after = np.searchsorted(x, log_odds, side="right")
        lower, upper = np.maximum(after - 1, 0), np.minimum(after, last)
        with np.errstate(divide="ignore", invalid="ignore"):  # beyond the ends, replaced below
            share = (log_odds - x[lower]) / (x[upper] - x[lower])
            # Rounding may take the end of a piece above the knot it leads to.
            mapped = np.minimum(y[lower] + share * (y[upper] - y[lower]), y[upper])
        mapped = np.where(after == 0, y[0] + (log_odds - x[0]), mapped)
        return _probabilities(np.where(after > last, y[last] + (log_odds - x[last]), mapped))

    def stretches(self) -> Stretches:
        """Where it stands still."""
        x, y = self._knots
        ends = np.concatenate([[0.0], _probabilities(x), [1.0]])
        values = np.where(np.diff(y) > 0, np.nan, _probabilities(y)[:-1])
        values = np.concatenate([[np.nan], values, [np.nan]])
        some = np.diff(ends) > 0  # knots far out are one float
        return _joined(ends[:-1][some][1:], values[some])

    def to_python(self) -> str:
        """Statements that set `log_odds` from `score`."""
        return scalar.log_odds_line(self.x, self.y)


class Steps(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="steps",
    dict=True,
):
    """One value for all scores of a step: from its edge on, up to the next one.

    `values` has one more than `edges`. They need not increase: a map that histogram binning or
    BBQ fitted may fall.
    """

    edges: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("edges", "values"):
            points = _numbers(f"the {name} of a map's steps", getattr(self, name))
            if not all(0.0 <= point <= 1.0 for point in points):
                raise CalibratorError(
                    f"the {name} of a map's steps must lie between 0 and 1. Divide percentages "
                    "by 100."
                )
            msgspec.structs.force_setattr(self, name, points)
        if len(self.values) != len(self.edges) + 1:
            raise CalibratorError("the steps of a map have one value more than edges between them.")
        if not _increase(self.edges):
            raise CalibratorError("the edges of a map's steps must increase; sort, drop repeats.")

    @cached_property
    def is_monotone(self) -> bool:
        """Whether a higher score never comes out lower."""
        return all(low <= high for low, high in pairwise(self.values))

    @property
    def is_strict(self) -> bool:
        """Whether a higher score always comes out higher: never, within a step all are equal."""
        return False

    def in_words(self) -> str:
        """What it looks like."""
        return _counted(len(self.values), "step")

    @cached_property
    def _arrays(self) -> tuple[Floats, Floats]:
        return np.array(self.edges), np.array(self.values)

    def apply(self, scores: Floats) -> Floats:
        """The calibrated scores."""
        edges, values = self._arrays
        mapped: Floats = values[np.searchsorted(edges, scores, side="right")]
        return mapped

    def stretches(self) -> Stretches:
        """Where it stands still: everywhere."""
        return _joined(*self._arrays)

    def to_python(self) -> str:
        """A statement that returns the value of the step of `score`."""
        return scalar.steps(self.edges, self.values)


def _probabilities(log_odds: Floats) -> Floats:
    """The probability of each log-odds: rounded, but never out of order.

    Each step of 1 / (1 + exp(-t)) is monotone when rounded, unlike exp(t) / (1 + exp(t)). Where
    exp(-t) would overflow, exp(t) is what is left of it.
    """
    inside = np.maximum(log_odds, scalar.LOWEST)
    usual = 1.0 / (1.0 + np.exp(-inside))
    probabilities: Floats = np.where(
        log_odds < scalar.LOWEST, np.minimum(np.exp(np.minimum(log_odds, 0.0)), usual), usual
    )
    return probabilities


def _joined(ends: Floats, values: Floats) -> Stretches:
    """Stretches with neighbours that are alike made one."""
    before, after = values[:-1], values[1:]
    changes = ~((before == after) | (np.isnan(before) & np.isnan(after)))
    return Stretches(ends[changes], values[np.append(True, changes)])


def _numbers(name: str, values: Any) -> tuple[float, ...]:
    try:
        array: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise CalibratorError(f"{name} must be numbers.") from None
    if array.ndim != 1 or array.size > MOST_KNOTS:
        raise CalibratorError(f"{name} must be a flat list of at most {MOST_KNOTS:,} numbers.")
    if not np.all(np.abs(array) <= _FARTHEST):
        raise CalibratorError(f"{name} must be finite, and at most {_FARTHEST:,.0f} from 0.")
    return tuple((array + 0.0).tolist())  # -0.0 and 0.0 are one number and must digest alike


def _increase(points: tuple[float, ...]) -> bool:
    return all(low < high for low, high in pairwise(points))


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
