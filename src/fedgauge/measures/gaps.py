"""Differences of two estimates, of different rows or not: alone, and as gaps among many groups."""

import math
import operator
from collections.abc import Callable
from typing import Final

from fedgauge.errors import InputError
from fedgauge.measures.intervals import Estimate, Interval, holding

_ALL: Final = Interval(-math.inf, math.inf)


def gap(first: Estimate, second: Estimate, *, overlapping: bool = False) -> Estimate:
    """The difference of two estimates of different rows, with an interval.

    Their sampling and their noise are independent. The distances of both intervals' ends add in
    squares (Zou & Donner 2008, MOVER), so the interval is as skewed as theirs: that of two rates
    comes from score intervals, as Newcombe's (1998, method 10), that of two AUCs from the log-odds
    scale. What binning allows does not average out: without noise it adds up in full.

    Of `overlapping` rows nobody knows how far the errors go together. At worst one is high where
    the other is low: the distances add up, which is conservative.

    Examples
    --------
    >>> women = Estimate(0.8, (0.8, 0.8), 0.7, 0.88, 0.95, {"sampling": 0.045})
    >>> men = Estimate(0.6, (0.6, 0.6), 0.52, 0.68, 0.95, {"sampling": 0.04})
    >>> gap(women, men)
    Estimate(0.2000, interval 0.0719..0.3131 at 95%)
    >>> gap(women, men, overlapping=True)
    Estimate(0.2000, interval 0.0200..0.3600 at 95%)
    """
    told = _gap(first.unshrunk, second.unshrunk, overlapping=overlapping)
    return told.moved_to(first.value - second.value)


def _gap(first: Estimate, second: Estimate, *, overlapping: bool) -> Estimate:
    value = first.value - second.value
    bounds = _bounds(first, second)
    join = operator.add if overlapping else math.hypot
    reaches = _reach(first, second, join), _reach(second, first, join)
    interval = holding(Interval(value - reaches[0], value + reaches[1]), value)
    parts = {
        name: (operator.add if name == "binning" else join)(
            first.parts.get(name, 0.0), second.parts.get(name, 0.0)
        )
        for name in {**first.parts, **second.parts}
    }
    return Estimate(
        value,
        (bounds.low, bounds.high),
        interval.low,
        interval.high,
        first.level,
        parts,
        first.caution or second.caution,
    )


def level_of_each(level: float, comparisons: int) -> float:
    """The level of each of several intervals that all hold at once (Bonferroni).

    Of many groups that are alike some pair is far apart by chance: among ten with 40 positives
    each, some two recalls differ by 0.2 on average (`studies/gap_coverage.py`).
    """
    return 1.0 - (1.0 - level) / max(comparisons, 1)


def _reach(first: Estimate, second: Estimate, join: Callable[[float, float], float]) -> float:
    """How far the difference may lie below its value: the first lower, the second higher."""
    if first.low is None or second.high is None:
        raise InputError("a gap is of metrics that have an interval, and this one has none.")
    below, above = first.value - first.low, second.high - second.value
    sure_below = _sure(first, first.value - first.bounds[0], below)
    sure_above = _sure(second, second.bounds[1] - second.value, above)
    return join(below - sure_below, above - sure_above) + sure_below + sure_above


def _sure(estimate: Estimate, allowed: float, reach: float) -> float:
    """The part of an interval that binning takes, which is added.

    An interval that holds all that binning allows has it added; others took it as an error.
    """
    return allowed if "noise" not in estimate.parts and allowed <= reach else 0.0


def _bounds(first: Estimate, second: Estimate) -> Interval:
    (low, high), (least, most) = first.bounds, second.bounds
    if not all(map(math.isfinite, (low, high, least, most))):
        return _ALL
    return Interval(low - most, high - least)
