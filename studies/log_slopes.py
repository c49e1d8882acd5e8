"""Errors that fall with something, their slope in log-log, and bounds to hold it against."""

from typing import NamedTuple

import numpy as np
from scipy import stats


class Bound(NamedTuple):
    """What a theorem allows at each x; `scaled` up to a constant, else with its own."""

    source: str
    values: np.ndarray
    scaled: bool = True


class Series(NamedTuple):
    """Errors of one quantity, runs by x, and the bounds to hold."""

    quantity: str
    x: np.ndarray
    errors: np.ndarray
    bounds: tuple[Bound, ...]


class Fit(NamedTuple):
    """A slope in log-log and its confidence interval."""

    slope: float
    low: float
    high: float


def fit(x: np.ndarray, errors: np.ndarray, level: float = 0.95) -> Fit:
    """The least-squares slope of log mean error; its interval covers chance, not curvature."""
    centred = np.log(x) - np.log(x).mean()
    weights = centred / (centred @ centred)
    mean = errors.mean(axis=0)
    slope = float(weights @ np.log(mean))
    each = errors / mean @ weights  # the delta method: what each run adds to the slope
    runs = len(errors)
    reach = stats.t.isf((1 - level) / 2, runs - 1) * each.std(ddof=1) / np.sqrt(runs)
    return Fit(slope, slope - reach, slope + reach)


def exponent(x: np.ndarray, bound: Bound) -> float:
    """The slope of a bound over the same points."""
    return float(np.polyfit(np.log(x), np.log(bound.values), 1)[0])


def scaled(series: Series, bound: Bound) -> np.ndarray:
    """The bound through the first point, or with its own constant."""
    factor = series.errors[:, 0].mean() / bound.values[0] if bound.scaled else 1.0
    return factor * bound.values


def keeps(series: Series, bound: Bound, level: float = 0.95) -> bool:
    """Whether the errors keep to a bound, up to chance."""
    if bound.scaled:
        return bool(fit(series.x, series.errors, level).low <= exponent(series.x, bound))
    return bool(np.all(series.errors.mean(axis=0) <= bound.values))
