"""Bayesian binning into quantiles: histogram binning with many numbers of groups, averaged.

Naeini et al. 2015, with the evidence that netcal gives a model, ``exp(-BIC / 2)``. Noise makes a
group's counts tell less than they seem to: of the variance of its excess of positives only a share
is sampling. So its log-likelihood counts by that share, as gained over a beta curve, which is the
same for all models. Without noise shares are 1, the curve cancels, and this is what netcal 1.4
makes of the same scores: groups of equal width, where the paper has groups of equal mass.
"""

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from fedgauge.binning.forms import Steps
from fedgauge.measures.forecasts import Forecasts
from fedgauge.measures.partition import Partition
from fedgauge.measures.shapes import held_beta
from fedgauge.measures.stepped import likely, steps
from fedgauge.typing import Floats, Indices

_SPREAD: Final = 10.0  # the numbers of groups go from n^(1/3) / 10 to 10 n^(1/3)
_FEWEST: Final = 5  # examples in a group, on average
_TRIALS: Final = 64
_HOPELESS: Final = 80.0  # above the least criterion: evidence of e^-40
_ELBOW: Final = 0.001  # of the variance of the evidence: a fall that is none


def bbq(forecasts: Forecasts) -> Steps:
    """The average of histogram binning over numbers of groups of equal width."""
    numbers = _numbers_of_groups(float(forecasts.totals.sum()), noisy=forecasts.pooled.noisy)
    partitions = (Partition.equal_width(forecasts.scores, int(each)) for each in numbers)
    return _average(forecasts, partitions)


def _numbers_of_groups(examples: float, *, noisy: bool) -> Indices:
    """The numbers of groups that are tried.

    All of them, as netcal does; under noise, which takes time for each, some over the same range.
    """
    root = float(np.cbrt(examples))
    most = max(1, min(math.ceil(examples / _FEWEST), math.ceil(root * _SPREAD)))
    least = min(max(1, math.floor(root / _SPREAD)), most)
    if noisy and most - least >= _TRIALS:
        return np.unique(np.geomspace(least, most, _TRIALS).round().astype(np.intp))
    return np.arange(least, most + 1)


def _average(forecasts: Forecasts, partitions: Iterable[Partition]) -> Steps:
    """Histogram binning by these partitions, each as likely as its evidence."""
    _, p = held_beta(forecasts)
    bins = _Bins.of(forecasts, p)
    criteria: list[float] = []
    values: dict[int, Floats] = {}
    for number, groups in enumerate(partitions):
        share, criterion = _model(forecasts, bins, groups)
        criteria.append(criterion)
        # Thousands of models over many bins are not all kept.
        if criterion <= min(criteria) + _HOPELESS:
            values[number] = np.where(np.isnan(share[groups.owners]), p, share[groups.owners])
    weights = _weights(np.array(criteria))
    mean = np.sum([weights[each] * value for each, value in values.items()], axis=0)
    return steps(forecasts, np.arange(len(p)), mean)


class _Bins(NamedTuple):
    """What models sum up, by bin."""

    totals: Floats
    promised: Floats  # positives by the curve
    excess: Floats
    sampling: Floats
    negatives: Floats
    positives: Floats
    curve: Floats  # its log-likelihood
    weights: Floats  # of both classes in the excess

    @classmethod
    def of(cls, forecasts: Forecasts, p: Floats) -> "_Bins":
        totals, released = forecasts.totals, forecasts.pooled.unbiased
        weights = np.array([-p, 1.0 - p])
        excess = (weights * released).sum(axis=0)
        curve = (released * np.log([1.0 - p, p])).sum(axis=0)
        negatives, positives = released
        sampling = totals * p * (1.0 - p)
        return cls(totals, totals * p, excess, sampling, negatives, positives, curve, weights)


def _model(forecasts: Forecasts, bins: _Bins, groups: Partition) -> tuple[Floats, float]:
    """The share of positives in each group of a model, and its BIC less that of the curve."""
    totals, promised, excess, sampling, negatives, positives, curve = map(groups.sums, bins[:-1])
    noise = groups.noise_variance(forecasts, bins.weights)
    with np.errstate(divide="ignore", invalid="ignore"):  # groups without examples: no share
        sure = sampling / (sampling + noise)
        mean = promised / totals
        share = likely(forecasts, mean + excess / totals, mean, totals * sure)
        gained = _times_log(positives, share) + _times_log(negatives, 1.0 - share) - curve
    filled = sampling > 0
    criterion = groups.groups * math.log(bins.totals.sum()) - 2.0 * float(
        sure[filled] @ gained[filled]
    )
    return share, criterion


def _times_log(count: Floats, share: Floats) -> Floats:
    product: Floats = count * np.log(np.where(count > 0, share, 1.0))
    return product


def _weights(criteria: Floats) -> Floats:
    """What each model counts: its evidence, but for those beyond the elbow of the sorted ones."""
    evidence = np.exp((criteria.min() - criteria) / 2.0)
    order = np.argsort(evidence)[::-1]
    falls = -np.diff(evidence[order])
    kept = 0
    while kept < len(falls) and falls[kept] == 0:
        kept += 1
    while kept < len(falls) and falls[kept] > _ELBOW * evidence.var():
        kept += 1
    weights = np.zeros(len(evidence))
    best = order[: kept + 1]
    weights[best] = evidence[best] / evidence[best].sum()
    return weights
