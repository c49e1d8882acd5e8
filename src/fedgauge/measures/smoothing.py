"""The default calibrator: a beta curve, bent where the counts say that it is wrong."""

from typing import Final, NamedTuple

import numpy as np

from fedgauge.binning.forms import LogOddsLine
from fedgauge.measures.estimating import probabilities
from fedgauge.measures.forecasts import Forecasts
from fedgauge.measures.partition import Partition
from fedgauge.measures.shapes import held_beta
from fedgauge.measures.stepped import cube_root
from fedgauge.typing import Floats

# What bends are like before any are seen: how far, in log-odds, one goes on, with the logarithm of
# how likely that is; and its size, a log-normal variance. Tried on six shapes of miscalibration,
# from none to a step: a fixed, likely size costs 3% where there is no bend, and saves 25% where
# noise would hide one.
_LENGTHS: Final = {0.25: -4.0, 0.5: -2.0, 1.0: -1.0, 2.0: 0.0, 4.0: 0.0}
_SIZES: Final = np.geomspace(1e-5, 10.0, 31)
_PRIOR: Final = -0.5 * np.log(_SIZES / 0.1) ** 2
_ROUNDS: Final = 20  # of Newton's method at most
_FAR: Final = 1.0  # log-odds that one round moves a group by: from far off it would overshoot
_STILL: Final = 1e-4
_MOST: Final = 200  # groups
_FARTHEST: Final = 20.0  # log-odds of the outermost knots
_APART: Final = 0.25  # log-odds between knots
_LEAST_SLOPE: Final = 0.01  # so that the order of scores, and with it the AUC, stays


class Bend(NamedTuple):
    """A smooth curve over log-odds: for every length, how it is pulled at some centres."""

    centres: Floats
    pulls: Floats

    def at(self, log_odds: Floats) -> Floats:
        """How far it moves log-odds."""
        each = zip(_LENGTHS, self.pulls, strict=True)
        moved: Floats = np.sum(
            [_alike(log_odds, self.centres, length) @ pull for length, pull in each], axis=0
        )
        return moved


def smooth(forecasts: Forecasts) -> LogOddsLine:
    """Beta calibration, bent by what it leaves over, as far as that is surely known.

    In groups of equal mass, what is left over is a difference in log-odds, with a variance by
    sampling and noise. A Gaussian process is fitted to these differences, and averaged over how
    large its bends are and how far they go on, by how likely that makes what was seen.
    """
    curve, p = held_beta(forecasts)
    totals = forecasts.totals
    groups = Partition.equal_mass(totals, min(cube_root(forecasts), _MOST))
    centres = groups.sums(totals * forecasts.log_odds) / groups.sums(totals)
    knots = np.union1d(np.arange(-_FARTHEST, _FARTHEST + _APART, _APART), centres)
    straight, bent = np.log(p) - np.log1p(-p), np.zeros(len(p))
    for _ in range(_ROUNDS):
        now = probabilities(straight + bent)
        excess, sampling, noise = groups.excess(forecasts, now)
        reached = groups.sums(totals * now * (1.0 - now) * bent) / sampling
        variances = (sampling + noise) / sampling**2
        wanted = reached + np.clip(excess / sampling, -_FAR, _FAR)
        bend = _believed(centres, wanted, variances).at(knots)
        before, bent = bent, np.interp(forecasts.log_odds, knots, bend)
        if np.abs(bent - before).max() <= _STILL:
            break
    odds = curve.c - curve.a * np.logaddexp(0.0, -knots) + curve.b * np.logaddexp(0.0, knots)
    weights = np.interp(knots, centres, 1.0 / variances)
    rising = _rising(knots, odds + bend, weights)
    return LogOddsLine(tuple(knots.tolist()), tuple(rising.tolist()))


def _believed(centres: Floats, differences: Floats, variances: Floats) -> Bend:
    """The mean of a Gaussian process that saw the differences, over all sizes and lengths."""
    deviations = np.sqrt(variances)
    evidence, pulls = [], []
    for length, prior in _LENGTHS.items():
        between = _alike(centres, centres, length)
        # In terms of deviations the differences have variance 1, and any size has the same axes.
        values, axes = np.linalg.eigh(between / np.outer(deviations, deviations))
        spreads = 1.0 + _SIZES[:, np.newaxis] * np.maximum(values, 0.0)
        seen = axes.T @ (differences / deviations)
        evidence.append(prior + _PRIOR - 0.5 * (np.log(spreads) + seen**2 / spreads).sum(axis=1))
        pulls.append((axes @ (_SIZES[:, np.newaxis] / spreads * seen).T).T / deviations)
    beliefs = np.exp(np.array(evidence) - np.max(evidence))
    beliefs /= beliefs.sum()
    return Bend(centres, np.einsum("ls,lsg->lg", beliefs, np.array(pulls)))


def _alike(left: Floats, right: Floats, length: float) -> Floats:
    """Correlation of a smooth process at points so far apart."""
    apart = (left[:, np.newaxis] - right) / length
    alike: Floats = np.exp(-0.5 * apart**2)
    return alike


def _rising(x: Floats, y: Floats, weights: Floats) -> Floats:
    """The nearest values that rise by at least the least slope."""
    from scipy.optimize import isotonic_regression

    rising: Floats = isotonic_regression(y - _LEAST_SLOPE * x, weights=weights).x
    return rising + _LEAST_SLOPE * x
