"""The default calibrator: a beta curve, moved where the counts say surely that it is wrong."""

from typing import Final

import numpy as np

from fedgauge.binning.forms import Beta, LogOddsLine
from fedgauge.measures.forecasts import Forecasts
from fedgauge.measures.partition import Partition
from fedgauge.measures.shapes import held_beta
from fedgauge.measures.stepped import cube_root
from fedgauge.typing import Floats

_FARTHEST: Final = 20.0  # log-odds of the outermost knots
_APART: Final = 0.25  # log-odds between knots
_LEAST_SLOPE: Final = 0.01  # so that the order of scores, and with it the AUC, stays


def smooth(forecasts: Forecasts) -> Beta | LogOddsLine:
    """Beta calibration, plus what it leaves over, shrunk by how surely that is known.

    In groups of equal mass, what is left over is a difference in log-odds, with a variance by
    sampling and noise. How much the differences vary beyond that (DerSimonian & Laird 1986) says
    how much of each to believe; where they do not, the map is the beta curve alone.
    """
    curve, p = held_beta(forecasts)
    groups = Partition.equal_mass(forecasts.totals, cube_root(forecasts))
    excess, sampling, noise = groups.excess(forecasts, p)
    differences, variances = excess / sampling, (sampling + noise) / sampling**2
    spread = _beyond_chance(differences, variances)
    if spread == 0 and min(curve.a, curve.b) >= _LEAST_SLOPE:
        return curve
    totals = forecasts.totals
    centres = groups.sums(totals * forecasts.log_odds) / groups.sums(totals)
    knots = np.union1d(np.arange(-_FARTHEST, _FARTHEST + _APART, _APART), centres)
    log_odds = curve.c - curve.a * np.logaddexp(0, -knots) + curve.b * np.logaddexp(0, knots)
    log_odds += np.interp(knots, centres, differences * spread / (spread + variances))
    rising = _rising(knots, log_odds, np.interp(knots, centres, 1.0 / variances))
    return LogOddsLine(tuple(knots.tolist()), tuple(rising.tolist()))


def _beyond_chance(differences: Floats, variances: Floats) -> float:
    """How much the differences vary beyond their variances."""
    squares = float((differences**2 / variances).sum()) - len(variances)
    return max(0.0, squares / float((1.0 / variances).sum()))


def _rising(x: Floats, y: Floats, weights: Floats) -> Floats:
    """The nearest values that rise by at least the least slope."""
    from scipy.optimize import isotonic_regression

    rising: Floats = isotonic_regression(y - _LEAST_SLOPE * x, weights=weights).x
    return rising + _LEAST_SLOPE * x
