"""Results under distributed differential privacy with little or no signal in them."""

import json

import numpy as np
import pytest
from ddp import POLYA, ROWS, clipping, easy_rows, every_model
from rows import split

import fedgauge as fg

pytestmark = pytest.mark.usefixtures("few_redraws")


@every_model
def test_no_signal_is_no_curve(clients, privacy, tmp_path):
    privacy = fg.DistributedDP(0.02, delta=privacy.delta, noise=privacy.noise)
    found = fg.evaluate(clients, privacy=privacy, seed=1)
    for ask in (
        lambda: found.roc_auc,
        lambda: found.average_precision,
        found.roc_curve,
        found.pr_curve,
    ):
        with pytest.raises(fg.NoSignal, match=r"no signal: the noise .* Use a larger epsilon"):
            ask()
    assert "no signal" in str(found)
    assert len(str(found).splitlines()) == 5
    for estimator in (fg.Quantile(16), fg.Range()):
        with pytest.raises(fg.NoSignal):
            found.with_estimator(estimator).roc_curve()

    found.to_json(tmp_path / "r.json")
    plain = json.loads((tmp_path / "r.json").read_text())["slices"][0]
    assert plain["metrics"] == {}
    assert plain["curves"] == {"roc": None, "pr": None}
    loaded = fg.Evaluation.from_json(tmp_path / "r.json")
    assert loaded.record == found.record
    with pytest.raises(fg.NoSignal):
        loaded.roc_curve()


def test_no_signal_tells_which_class_is_hidden_or_nowhere():
    labels, scores = easy_rows(3_000, seed=3, rate=0.004)
    found = fg.evaluate(split(labels, scores, 6), privacy=POLYA, seed=1)
    with pytest.raises(fg.NoSignal, match="hides the number of positives"):
        found.roc_curve()
    # Whether a class is missing is not said for sure: that would be a leak.
    labels, scores = ROWS
    found = fg.evaluate(split(np.ones_like(labels), scores, 6), privacy=POLYA, seed=1)
    with pytest.raises(fg.NoSignal, match="negatives"):
        found.roc_curve()


@pytest.mark.parametrize("seed", range(5))
def test_pure_noise_draws_no_curve(seed):
    """Each class needs four standard deviations: a false alarm has a chance below 1e-3 each."""
    tiny = {"a": ([0], [0.1]), "b": ([1], [0.9]), "c": ([1], [0.4])}
    found = fg.evaluate(tiny, privacy=fg.DistributedDP(0.3), seed=seed)
    with pytest.raises(fg.NoSignal):
        found.roc_curve()


ESTIMATORS = {
    "aligned": fg.Aligned(),
    "linear": fg.Aligned("linear"),
    "quantile": fg.Quantile(16),
    "combine": fg.Quantile(16, pr="combine"),
    "range l1": fg.Range("l1"),
    "range l2": fg.Range("l2"),
}


def is_rate(*values):
    return all(np.all((np.asarray(v) >= 0) & (np.asarray(v) <= 1)) for v in values)


@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS.keys())
@pytest.mark.parametrize("options", [{"axis": clipping(16)}, {"tree": (4, 4)}], ids=str)
def test_curves_of_few_noisy_rows_stay_within_their_range(estimator, options):
    """Tiny data near the gate: many negative counts, and curves wherever there is a signal."""
    clients, drawn = split(*easy_rows(240, seed=4, rate=0.4), 4), 0
    options = {"privacy": fg.DistributedDP(0.5), "estimator": estimator, **options}
    grid = np.linspace(0, 1, 101)
    for seed in range(60):
        found = fg.evaluate(clients, seed=seed, **options)
        assert found.negatives >= 0
        assert found.positives >= 0
        try:
            roc, pr = found.roc_curve(), found.pr_curve()
        except fg.NoSignal:
            continue
        drawn += 1
        assert is_rate(roc.fpr, roc.tpr, roc(grid), pr.precision, pr.recall, pr(grid))
        assert np.all(np.diff(roc.fpr) >= 0)
        assert np.all(np.diff(roc.tpr) >= 0)
        assert np.all(np.diff(pr.recall) <= 0)
        assert (roc.fpr[0], roc.tpr[0]) == (0, 0)
        assert (roc.fpr[-1], roc.tpr[-1]) == pytest.approx((1, 1))
        assert is_rate(roc.path.area(), pr.path.area())
        assert np.any(found.released.counts < 0)
    assert drawn >= 10


@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS.keys())
def test_estimates_of_few_noisy_rows_lie_within_their_bounds(estimator):
    clients = split(*easy_rows(240, seed=4, rate=0.4), 4)
    options = {"privacy": fg.DistributedDP(1.0), "axis": clipping(16), "estimator": estimator}
    for seed in range(8):
        found = fg.evaluate(clients, seed=seed, **options)
        for estimate in (found.roc_auc, found.average_precision):
            low, high = estimate.bounds
            assert 0 <= low <= estimate.value <= high <= 1
            assert estimate.level == 0.95
            assert estimate.parts["noise"] > 0
            assert estimate.parts["binning"] >= 0


def test_negative_totals_do_not_crash():
    """Of 40 seeds some make a class, or both, come out below zero."""
    tiny = {"a": ([0], [0.1]), "b": ([1], [0.9]), "c": ([1], [0.4])}
    below = 0
    for seed in range(40):
        found = fg.evaluate(tiny, privacy=fg.DistributedDP(0.1), tree=(8,), seed=seed)
        below += bool(np.any(found.released.counts.sum(axis=1) < 0))
        text = str(found)
        assert len(text.splitlines()) == 5
        assert "nan" not in text
        assert found.negatives >= 0
        assert found.positives >= 0
    assert below > 10
