"""Atoms in exact sums: none is seen in smooth scores, and intervals of ties are those of rows.
Under noise a caution stands where ties, or few rows, decide.

Seeds are fixed; a fresh seed would fail a correct implementation with the probability stated.
"""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import rankdata
from scripts import load_script
from sklearn.metrics import average_precision_score, roc_auc_score

import fedgauge as fg
from fedgauge.estimation.counts import PooledCounts

AXES = (fg.Axis.probabilities(), fg.Axis.probabilities([0.3, 0.30001]), fg.Axis.logit(4096))
SMOOTH = {
    "spread": lambda rng, n: rng.beta(1.3, 2.2, n),
    "rare": lambda rng, n: expit(rng.normal(-6.5, 1.4, n)),
    "narrow": lambda rng, n: expit(rng.normal(-1.2, 0.07, n)),
    "saturated": lambda rng, n: expit(rng.normal(0.7, 11, n)),
    "two modes": lambda rng, n: np.where(
        rng.random(n) < 0.4, rng.beta(7, 800, n), rng.beta(90, 9, n)
    ),
}


@pytest.mark.parametrize("world", SMOOTH)
def test_smooth_scores_have_no_atoms(world):
    # One result in 10,000 at most: fails once in 80 for each world, at most.
    for seed in range(20):
        scores = SMOOTH[world](np.random.default_rng([36, seed]), 1000 * 4 ** (seed % 5))
        for axis in AXES:
            rows = np.bincount(axis.index(scores), minlength=axis.bins)
            atoms = PooledCounts(axis, np.stack([rows, rows]), (axis.bins,)).atoms
            np.testing.assert_array_equal(atoms, axis.tied)


def labelled(rng, n):
    labels = rng.random(n) < 0.3
    return labels.astype(int), expit(rng.normal(2.2 * labels - 1.9))


TIED = {
    "predictions": lambda s, _: (s >= 0.4).astype(float),
    "grid": lambda s, _: np.round(20 * s) / 20,
    "at both ends": lambda s, _: np.clip(2.4 * s - 0.5, 0.0, 1.0),
    "at one half": lambda s, u: np.where(u < 0.2, 0.5, s),
}


def delong(labels, scores):
    """The deviation of the AUC by DeLong et al. 1988, from rows."""
    positive, negative = scores[labels == 1], scores[labels == 0]
    ranks, few = rankdata(np.concatenate([positive, negative])), len(positive)
    below = (ranks[:few] - rankdata(positive)) / len(negative)
    above = (ranks[few:] - rankdata(negative)) / few
    return np.sqrt(below.var(ddof=1) / few + above.var(ddof=1) / len(negative))


@pytest.mark.parametrize("world", TIED)
@pytest.mark.parametrize("rows", [2000, 20_000])
def test_intervals_of_ties_are_those_of_rows(world, rows):
    # No chance but that of data without enough ties, which is nil.
    rng = np.random.default_rng(rows)
    labels, smooth = labelled(rng, rows)
    scores = TIED[world](smooth, rng.random(rows))
    result = fg.evaluate({"site": (labels, scores)})
    auc, precision = result.roc_auc, result.average_precision
    assert auc.value == pytest.approx(roc_auc_score(labels, scores), abs=1e-3)
    assert precision.value == pytest.approx(average_precision_score(labels, scores), abs=1e-3)
    assert (auc.high - auc.low) / (3.92 * delong(labels, scores)) == pytest.approx(1.0, abs=0.05)
    assert auc.parts["binning"] < 1e-3
    assert precision.parts["binning"] < 1e-3


def test_few_wrong_scores_of_0_or_1_give_a_caution():
    rng = np.random.default_rng(1)
    labels, scores = labelled(rng, 4000)
    none_wrong = np.where((labels == 0) & (scores < 0.2), 0.0, scores)
    assert "few wrong ones" in fg.evaluate({"site": (labels, none_wrong)}).log_loss.caution
    assert fg.evaluate({"site": (labels, scores)}).log_loss.caution is None
    predictions = fg.evaluate({"site": (labels, (scores >= 0.4).astype(float))})
    assert predictions.log_loss.caution is None  # hundreds are wrong


study = load_script("coverage")
ROUGH = {
    "AP": (study.Cell("grid", "ldp 5", 50_000), "bins are wide"),
    "log loss": (study.Cell("grid", "ldp 5", 500), "scores in an end bin may be 0 or 1"),
    "slope": (study.Cell("forest", "ddp 0.1", 5_000, hinted=False), "next to the slope"),
    "AP of two": (study.Cell("saturated", "exact", 20_000, "models"), "few rows or wide bins"),
}


@pytest.mark.parametrize("metric", ROUGH)
def test_what_ties_or_few_rows_decide_has_a_caution(metric):
    # Nine of ten results at least have one: all three do with a chance of 73%, seeds are fixed.
    cell, text = ROUGH[metric]
    rng = np.random.default_rng(3)
    for _ in range(3):
        rows = cell.rows(rng)
        sites = {f"site-{k}": rows.select(slice(k, None, study.CLIENTS)) for k in range(20)}
        result = fg.evaluate(sites, **cell.options(), seed=int(rng.integers(2**63)))
        told, _ = study.readings(cell)[metric](result)
        assert text in (told.caution or "")


def test_a_smooth_score_in_fine_bins_has_none_of_these_cautions():
    cell = study.Cell("smooth", "ddp 1", 50_000)
    rng = np.random.default_rng(3)
    rows = cell.rows(rng)
    sites = {f"site-{k}": rows.select(slice(k, None, study.CLIENTS)) for k in range(20)}
    result = fg.evaluate(sites, **cell.options(), seed=1)
    assert result.average_precision.caution is result.calibration_slope.caution is None
    assert result.log_loss.caution is None
