"""Maps of steps, fitted to counts: isotonic regression, histogram binning, scaling-binning."""

from typing import Final

import numpy as np

from fedgauge.binning.forms import Steps
from fedgauge.measures.forecasts import Forecasts
from fedgauge.measures.partition import Partition
from fedgauge.measures.shapes import held_beta
from fedgauge.typing import Floats, Indices

_BALANCE: Final = 18.0  # of bias against noise, where the error was least in trials


def isotonic(forecasts: Forecasts) -> Steps:
    """Shares of positives that never fall, nearest to those of the bins (Zadrozny & Elkan 2002).

    Bins weigh as much as their shares are sure. That takes the probability of a bin, which a
    beta curve gives: by its own share, a bin without positives would seem sure.
    """
    from scipy.optimize import isotonic_regression

    _, p = held_beta(forecasts)
    q, totals = 1.0 - p, forecasts.totals
    filled = np.flatnonzero(totals)
    negatives, positives = forecasts.pooled.unbiased
    with np.errstate(divide="ignore", invalid="ignore"):  # bins that hold nothing are left out
        shares = p + (positives * q - negatives * p) / totals
        weights = totals**2 / (totals + forecasts.noise * (p**2 + q**2) / (p * q))
    found = isotonic_regression(shares[filled], weights=weights[filled])
    firsts = found.blocks[:-1].astype(np.intp)
    sure = np.add.reduceat(weights[filled], firsts)
    curve = np.add.reduceat((weights * p)[filled], firsts) / sure
    values = np.maximum.accumulate(likely(forecasts, found.x[firsts], curve, sure))
    # Bins that hold nothing go half to the block below them, half to the one above.
    before = np.append(-1, filled)[firsts]
    return steps(forecasts, (before + filled[firsts] + 1) // 2, values)


def binning(forecasts: Forecasts) -> Steps:
    """The share of positives in groups of equal mass (Zadrozny & Elkan 2001)."""
    _, p = held_beta(forecasts)
    groups = Partition.equal_mass(forecasts.totals, groups_for(forecasts))
    values = shares(forecasts, p, groups)
    return steps(forecasts, np.arange(len(p)), values[groups.owners])


def scaling_binning(forecasts: Forecasts) -> Steps:
    """The mean of a beta curve in groups of equal mass (Kumar et al. 2019).

    It takes few values, so its calibration error can be measured, as that of a curve cannot.
    """
    _, p = held_beta(forecasts)
    totals = forecasts.totals
    groups = Partition.equal_mass(totals, cube_root(forecasts))
    means = groups.sums(totals * p) / groups.sums(totals)
    return steps(forecasts, np.arange(len(p)), means[groups.owners])


def cube_root(forecasts: Forecasts) -> int:
    """How many groups balance bias and sampling (Cormode & Markov 2023, theorem 7)."""
    return max(1, round(float(np.cbrt(forecasts.totals.sum()))))


def groups_for(forecasts: Forecasts) -> int:
    """How many groups balance bias, sampling and noise."""
    groups = cube_root(forecasts)
    if not forecasts.pooled.noisy:
        return groups
    tried = Partition.equal_mass(forecasts.totals, groups)
    both = tried.noise_variance(forecasts, np.ones_like(forecasts.counts))
    fewer = (forecasts.totals.sum() ** 2 / (_BALANCE * both.mean() / 2.0)) ** 0.25
    return max(1, min(groups, round(float(fewer))))


def shares(forecasts: Forecasts, p: Floats, groups: Partition) -> Floats:
    """Share of positives by group, from counts as released; 0 in a group without examples."""
    totals = groups.sums(forecasts.totals)
    excess, sampling, noise = groups.excess(forecasts, p)
    held = np.maximum(totals, 1e-300)
    curve = groups.sums(forecasts.totals * p) / held
    worth = totals * sampling / np.maximum(sampling + noise, 1e-300)
    return likely(forecasts, curve + excess / held, curve, worth)


def likely(forecasts: Forecasts, values: Floats, curve: Floats, examples: Floats) -> Floats:
    """Values as they are without noise; with it none surer than examples can tell, or the curve.

    Noise makes shares of 0 and 1, and beyond, where exact counts would have some of both
    classes; so the ends are as far off as half an example is of those that the counts are worth.
    """
    if not forecasts.pooled.noisy:
        return values
    margin = 0.5 / (examples + 1.0)
    return np.clip(values, np.minimum(margin, curve), np.maximum(1.0 - margin, curve))


def steps(forecasts: Forecasts, firsts: Indices, values: Floats) -> Steps:
    """Steps that begin with these bins; neighbours of the same value become one."""
    values = np.clip(values, 0.0, 1.0)
    new = np.append(True, np.diff(values) != 0)
    inner = forecasts.pooled.axis.edges[firsts[new][1:]]
    return Steps(tuple(inner.tolist()), tuple(values[new].tolist()))
