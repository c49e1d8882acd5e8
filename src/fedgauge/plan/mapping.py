"""The map that scores go through under a plan: which may, its words, the axis it makes."""

from typing import Final

import numpy as np

from fedgauge.binning.axis import Axis
from fedgauge.binning.calibrator import Calibrator, Steps
from fedgauge.errors import PlanError

_NAMED_BY: Final = 32  # digits: with fewer, who makes maps finds two that begin alike
_MAPPED: Final = (
    "Each site takes its scores through a map that is written in the plan, and counts what comes "
    "out: {}. It puts no higher score below a lower one, so it only moves where the ranges of "
    "scores begin and end. No map is fitted at a site."
)


def check(calibrator: Calibrator, axis: Axis) -> None:
    """Refuse a map that plans cannot have, or not on such an axis."""
    if not calibrator.is_monotone:
        raise PlanError(
            "the map falls in places, so higher scores come out lower, and a plan takes none that "
            "does. Map the scores themselves (fedgauge apply, Calibrator.transform), or fit "
            "another: result.calibrator('auto')."
        )
    if axis.low < 0 or axis.high > 1:
        raise PlanError(
            f"a map makes probabilities, and the axis runs from {axis.low:g} to {axis.high:g}. Use "
            "an axis from 0 to 1: divide percentages by 100; of log-odds t take 1 / (1 + exp(-t))."
        )
    if axis.kind == "values" and not isinstance(calibrator.form, Steps):
        raise PlanError(
            "on an axis of known values every score must be one of them to the last digit, and "
            "this map is smooth. Use bins, such as Axis.uniform(64)."
        )


def name(calibrator: Calibrator) -> str:
    """What an officer compares: what fitted the map, its form, how its digest begins."""
    return f"{calibrator.in_words()}, map {calibrator.digest[:_NAMED_BY]}"


def in_words(calibrator: Calibrator) -> tuple[str, str]:
    """A title and a paragraph for whoever must approve of the plan."""
    return "What scores go through first", _MAPPED.format(name(calibrator))


def pulled_back(calibrator: Calibrator, axis: Axis) -> Axis:
    """The axis of scores before the map that counts them as the axis behind it does.

    A map that never falls, and an axis, count like another axis: its edges are the same ones,
    pulled back through the map.
    """
    inner = np.unique(calibrator.pull_back(axis.edges[1:-1]))
    # Where the end bins end changes no count: they hold all scores beyond.
    return Axis.from_edges([-1.0, *inner.tolist(), 2.0], outside="clip")
