"""Bayesian binning into quantiles: histogram binning with many numbers of groups, averaged.

Naeini et al. 2015, with the evidence that netcal gives a model, ``exp(-BIC / 2)``. Noise makes a
group's counts tell less than they seem to: of the variance of its excess of positives only a share
is sampling. So its log-likelihood counts by that share, as gained over a beta curve, which is the
same for all models. Without noise shares are 1, the curve cancels, and this is netcal's average
(whose groups are of equal width).
"""

import math
from collections.abc import Iterable
from typing import Final

import numpy as np

from fedgauge.binning.forms import Steps
from fedgauge.measures.forecasts import Forecasts
from fedgauge.measures.partition import Partition
from fedgauge.measures.shapes import held_beta
from fedgauge.measures.stepped import shares, steps
from fedgauge.typing import Floats

_SPREAD: Final = 10.0  # the numbers of groups go from n^(1/3) / 10 to 10 n^(1/3)
_FEWEST: Final = 5  # examples in a group, on average
_HOPELESS: Final = 80.0  # above the least criterion: evidence of e^-40
_ELBOW: Final = 0.001  # of the variance of the evidence: a fall that is none


def bbq(forecasts: Forecasts) -> Steps:
    """The average of histogram binning over numbers of groups of equal mass."""
    totals = forecasts.totals
    numbers = numbers_of_groups(float(totals.sum()), int(np.count_nonzero(totals)))
    return average(forecasts, (Partition.equal_mass(totals, number) for number in numbers))


def numbers_of_groups(examples: float, bins: int) -> range:
    """The numbers of groups that are tried: no more than there are bins to group."""
    root = float(np.cbrt(examples))
    most = min(math.ceil(examples / _FEWEST), math.ceil(root * _SPREAD), bins)
    return range(min(max(1, math.floor(root / _SPREAD)), most), most + 1)


def average(forecasts: Forecasts, partitions: Iterable[Partition]) -> Steps:
    """Histogram binning by these partitions, each as likely as its evidence."""
    _, p = held_beta(forecasts)
    criteria: list[float] = []
    values: dict[int, Floats] = {}
    for number, groups in enumerate(partitions):
        values[number], criterion = _model(forecasts, p, groups)
        criteria.append(criterion)
        most = min(criteria) + _HOPELESS  # thousands of models over many bins are not all kept
        values = {each: value for each, value in values.items() if criteria[each] <= most}
    weights = _weights(np.array(criteria))
    mean = np.sum([weights[each] * value for each, value in values.items()], axis=0)
    return steps(forecasts, np.arange(len(p)), mean)


def _model(forecasts: Forecasts, p: Floats, groups: Partition) -> tuple[Floats, float]:
    """What one model makes of every bin, and its BIC less that of the curve."""
    examples = float(forecasts.totals.sum())
    _, sampling, noise = groups.excess(forecasts, p)
    filled = sampling > 0
    sure = np.where(filled, sampling / np.where(filled, sampling + noise, 1.0), 0.0)
    share = shares(forecasts, p, groups)
    negatives, positives = (groups.sums(row) for row in forecasts.pooled.unbiased)
    model = _times_log(positives, share) + _times_log(negatives, 1.0 - share)
    curve = groups.sums((forecasts.pooled.unbiased * np.log([1.0 - p, p])).sum(axis=0))
    criterion = groups.groups * math.log(examples) - 2.0 * float((sure * (model - curve)).sum())
    return np.where(filled[groups.owners], share[groups.owners], p), criterion


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
