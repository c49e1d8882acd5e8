"""Gaps between groups: a difference of two estimates of different rows, alone and among many."""

import math
from typing import Final

from fedgauge.errors import InputError
from fedgauge.measures.intervals import Estimate, Interval, holding

_ALL: Final = Interval(-math.inf, math.inf)


def gap(first: Estimate, second: Estimate) -> Estimate:
    """The difference of two estimates of different rows, with an interval.

    Their sampling and their noise are independent. The distances of both intervals' ends add in
    squares (Zou & Donner 2008, MOVER), so the interval is as skewed as theirs: that of two rates
    comes from score intervals, as Newcombe's (1998, method 10), that of two AUCs from the log-odds
    scale. What binning allows does not average out: without noise it adds up in full.

    Examples
    --------
    >>> women = Estimate(0.8, (0.8, 0.8), 0.7, 0.88, 0.95, {"sampling": 0.045})
    >>> men = Estimate(0.6, (0.6, 0.6), 0.52, 0.68, 0.95, {"sampling": 0.04})
    >>> gap(women, men)
    Estimate(0.2000, interval 0.0719..0.3131 at 95%)
    """
    value = first.value - second.value
    bounds = _bounds(first, second)
    reaches = _reach(first, second), _reach(second, first)
    interval = holding(Interval(value - reaches[0], value + reaches[1]), value)
    parts = {
        name: _joined(name, first.parts[name], second.parts[name])
        for name in first.parts
        if name in second.parts
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


def _reach(first: Estimate, second: Estimate) -> float:
    """How far the difference may lie below its value: the first lower, the second higher."""
    if first.low is None or second.high is None:
        raise InputError("a gap is of metrics that have an interval, and this one has none.")
    below, above = first.value - first.low, second.high - second.value
    if "noise" in first.parts:
        return math.hypot(below, above)
    # An interval that holds all that binning allows has it added; others took it as an error.
    sure_below, sure_above = first.value - first.bounds[0], second.bounds[1] - second.value
    sure_below = sure_below if sure_below <= below else 0.0
    sure_above = sure_above if sure_above <= above else 0.0
    return math.hypot(below - sure_below, above - sure_above) + sure_below + sure_above


def _bounds(first: Estimate, second: Estimate) -> Interval:
    (low, high), (least, most) = first.bounds, second.bounds
    if not all(map(math.isfinite, (low, high, least, most))):
        return _ALL
    return Interval(low - most, high - least)


def _joined(name: str, first: float, second: float) -> float:
    return first + second if name == "binning" else math.hypot(first, second)
