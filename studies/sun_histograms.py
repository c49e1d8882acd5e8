"""What fedgauge makes of the labels that the tables of Sun et al. 2022 are made anew with."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import fedgauge as fg
from fedgauge.arrays import Floats
from fedgauge.engines.contribution import (
    count_rows,
    draw_noise,
    release,
    to_numbers,
)
from fedgauge.estimation.counts import Released
from fedgauge.privacy.keystream import SimulatedKeystream
from fedgauge.privacy.local import debias
from fedgauge.results.evaluation import Evaluation
from fedgauge.vertical.evaluate import completed
from sun_worlds import World, chance_of


def label_dp(epsilon: float) -> fg.DistributedDP:
    """What each label is promised."""
    return fg.DistributedDP(epsilon, unit="label", neighbours="flip")


def parties_of(w: World, party: np.ndarray) -> dict[str, Any]:
    """Labels and scores of each party."""
    order = np.argsort(party, kind="stable")
    cuts = np.flatnonzero(np.diff(party[order])) + 1
    rows = np.split(order, cuts)
    return {str(k): (w.labels[each], w.scores[each]) for k, each in enumerate(rows)}


def histogram_aucs(
    parties: Mapping[str, Any],
    w: World,
    privacy: fg.DistributedDP,
    rng: np.random.Generator,
    runs: int,
) -> Floats:
    """AUCs of the histogram that a user gets, with its noise drawn anew."""
    result = fg.evaluate_vertical(None, parties, privacy=privacy, seed=1)
    plan, axis = result.plan, result.released.axis
    bins = axis.index(w.scores)
    exact = to_numbers(plan, count_rows(plan, (w.labels, bins.astype(float))))
    totals = np.bincount(bins, minlength=axis.bins)
    source = SimulatedKeystream(int(rng.integers(2**62)))
    found = []
    for _ in range(runs):
        noise = draw_noise(plan, source, shares=len(parties))
        found.append(_auc_again(result, release(plan, exact + noise, len(parties)), totals))
    return np.array(found)


def flipped_histogram_aucs(w: World, epsilon: float, rng: np.random.Generator, runs: int) -> Floats:
    """AUCs that a user gets of flipped labels, by bins and with repair."""
    privacy = fg.LocalDP(epsilon, unit="label")
    result = fg.evaluate_vertical(None, {"all": (w.labels, w.scores)}, privacy=privacy, seed=1)
    plan, axis = result.plan, result.released.axis
    bins = axis.index(w.scores)
    totals = np.bincount(bins, minlength=axis.bins)
    positives = np.bincount(bins[w.labels], minlength=axis.bins)
    rho, shape = chance_of(epsilon), (runs, axis.bins)
    told = rng.binomial(positives, 1 - rho, shape) + rng.binomial(totals - positives, rho, shape)
    right = debias(told, totals, plan.flipped.chance)
    return np.array(
        [_auc_again(result, Released(plan.axis, each[np.newaxis], 1), totals) for each in right]
    )


def _auc_again(result: Evaluation, released: Released, totals: np.ndarray) -> float:
    """The AUC of a result, with its counts drawn anew."""
    whole = completed(released, result.released.axis, totals)
    again = Evaluation(result.plan, result.privacy, whole, estimator=result.estimator)
    return again.roc_auc.value
