"""Differences of two models against raw rows: DeLong's paired variance, and brute force."""

import numpy as np
import pytest
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score, brier_score_loss, recall_score

import fedgauge as fg
from fedgauge.plan.task import BinaryTask

N = 20_000
RNG = np.random.default_rng(5)
Y = RNG.random(N) < 0.3
SHARED, OWN = RNG.normal(size=(2, N))
NEW = 1 / (1 + np.exp(-(1.5 * Y - 1.2 + SHARED)))
OLD = 1 / (1 + np.exp(-(1.4 * Y - 1.2 + 0.9 * SHARED + np.sqrt(0.19) * OWN)))
Z = 1.959964


def sites(names=("new", "old"), scores=(NEW, OLD)):
    return {
        f"site-{k}": fg.Examples(
            Y[k::20], {n: s[k::20] for n, s in zip(names, scores, strict=True)}
        )
        for k in range(20)
    }


def placements(scores):
    """Of positives among negatives, and of negatives among positives (DeLong et al. 1988)."""
    ranks = rankdata(scores)
    of_positives = (ranks[Y] - rankdata(scores[Y])) / (~Y).sum()
    of_negatives = 1 - (ranks[~Y] - rankdata(scores[~Y])) / Y.sum()
    return of_positives, of_negatives


def delong(one, other):
    """The difference of two AUCs on the same rows, and its standard error."""
    gaps = [a - b for a, b in zip(placements(one), placements(other), strict=True)]
    return gaps[0].mean(), np.sqrt(sum(gap.var(ddof=1) / len(gap) for gap in gaps))


@pytest.fixture(scope="module")
def exact():
    return fg.evaluate(sites(), models=["new", "old"]).compare("new", "old", margin=0.01)


def test_the_auc_is_delongs(exact):
    value, error = delong(NEW, OLD)
    auc = exact.roc_auc
    assert auc.value == pytest.approx(value, abs=2e-5)
    assert 1.0 <= (auc.high - auc.low) / (2 * Z * error) <= 1.05
    assert auc.bounds[0] <= value <= auc.bounds[1]


def test_others_are_those_of_raw_rows(exact):
    precision = [average_precision_score(Y, s) for s in (NEW, OLD)]
    assert exact.average_precision.value == pytest.approx(precision[0] - precision[1], abs=1e-4)
    brier = [brier_score_loss(Y, s) for s in (NEW, OLD)]
    assert exact.brier_score.value == pytest.approx(brier[0] - brier[1], abs=1e-5)
    losses = (NEW - Y) ** 2 - (OLD - Y) ** 2
    width = exact.brier_score.high - exact.brier_score.low
    assert 0.99 <= width / (2 * Z * losses.std() / np.sqrt(N)) <= 1.1
    recall = [recall_score(Y, s >= 0.5) for s in (NEW, OLD)]
    at = exact.at_threshold(0.5)
    assert at.recall.value == pytest.approx(recall[0] - recall[1])
    gaps = ((NEW >= 0.5).astype(float) - (OLD >= 0.5))[Y]
    width = at.recall.high - at.recall.low
    assert 0.97 <= width / (2 * Z * gaps.std() / np.sqrt(len(gaps))) <= 1.1
    flags = (NEW >= 0.25) * 1.0 - (OLD >= 0.25)
    worth = np.where(Y, flags, -flags / 3)
    found = exact.net_benefit(0.25)
    assert found.value == pytest.approx(worth.mean(), abs=1e-12)
    assert 0.97 <= (found.high - found.low) / (2 * Z * worth.std() / np.sqrt(N)) <= 1.1


@pytest.mark.parametrize("name", ["precision", "f1", "mcc", "accuracy", "flagged", "npv"])
def test_intervals_at_a_threshold_are_those_of_a_bootstrap(exact, name):
    """Of 400 draws: a deviation is known to 3.5%, and the seed is fixed."""
    rng = np.random.default_rng(3)
    drawn = []
    cells = Y * 4 + (NEW >= 0.5) * 2 + (OLD >= 0.5)
    for counts in rng.multinomial(N, np.bincount(cells, minlength=8) / N, size=400):
        drawn.append(_metric(name, counts, 2) - _metric(name, counts, 1))
    found = getattr(exact.at_threshold(0.5), name)
    assert (found.high - found.low) / (2 * Z * np.std(drawn)) == pytest.approx(1.0, abs=0.12)


def _metric(name, counts, flag):
    """A metric from counts by class, and whether each model flags."""
    flagged = np.array([bool(k & flag) for k in range(8)])
    positive = np.arange(8) >= 4
    tp, fp = counts[flagged & positive].sum(), counts[flagged & ~positive].sum()
    fn, tn = counts[~flagged & positive].sum(), counts[~flagged & ~positive].sum()
    return {
        "precision": tp / (tp + fp),
        "npv": tn / (tn + fn),
        "f1": 2 * tp / (2 * tp + fp + fn),
        "accuracy": (tp + tn) / N,
        "flagged": (tp + fp) / N,
        "mcc": (tp * tn - fp * fn) / np.sqrt(float(tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)),
    }[name]


def test_without_pairs_intervals_are_as_wide_as_can_be(exact):
    alone = fg.evaluate(sites(), task=BinaryTask(models=("new", "old"))).compare("new", "old")
    assert not alone.is_paired
    assert "allow for any correlation" in alone.basis
    assert exact.is_paired
    assert "counted together" in exact.basis
    for name in ("roc_auc", "average_precision", "brier_score"):
        wide, narrow = getattr(alone, name), getattr(exact, name)
        assert wide.value == narrow.value
        assert wide.high - wide.low > 3 * (narrow.high - narrow.low)


def test_the_order_of_models_turns_differences_round(exact):
    turned = fg.evaluate(sites(), models=["new", "old"]).compare("old", "new")
    for name in ("roc_auc", "brier_score"):
        one, other = getattr(exact, name), getattr(turned, name)
        assert (one.value, one.low) == (pytest.approx(-other.value), pytest.approx(-other.high))


def test_under_noise_the_difference_is_within_its_interval():
    task = BinaryTask(models=("new", "old"), pairs=(("new", "old"),))
    result = fg.evaluate(sites(), task=task, privacy=fg.DistributedDP(1.0), seed=2)
    result = result.compare("new", "old")
    value, error = delong(NEW, OLD)
    auc = result.roc_auc
    assert 1.1 <= (auc.high - auc.low) / (2 * Z * error) <= 1.8
    assert auc.low <= value <= auc.high
    gaps = (NEW - Y) ** 2 - (OLD - Y) ** 2
    assert result.brier_score.low <= gaps.mean() <= result.brier_score.high


def test_a_model_against_itself_does_not_differ():
    same = fg.evaluate(sites(scores=(NEW, NEW)), models=["new", "old"]).compare("new", "old")
    assert same.roc_auc.value == 0
    assert same.roc_auc.high < 1e-3
    assert same.at_threshold(0.5).recall.high < 1e-3
