"""What metrics and curves are read from is worked out once."""

import math

import numpy as np
import pytest

import fedgauge as fg
from fedgauge.estimation import repair
from fedgauge.estimation.pooled import PooledCounts
from fedgauge.measures import losses
from fedgauge.measures.reading import Reading

AXIS = fg.Axis.uniform(4, outside="clip")
COUNTS = np.array([[40.0, 20.0, -3.0, 6.0], [5.0, -2.0, 20.0, 40.0]])


def noisy(counts=COUNTS, variance=9.0, estimator=fg.Aligned()):  # noqa: B008
    return Reading(PooledCounts(AXIS, counts, (4,), (variance,)), estimator, 0.95)


def counting(monkeypatch, module, name):
    calls, function = [], getattr(module, name)
    monkeypatch.setattr(module, name, lambda *given: calls.append(1) or function(*given))
    return calls


@pytest.mark.parametrize("estimator", [fg.Aligned(), fg.Quantile(5)], ids=repr)
def test_counts_are_repaired_once(estimator, monkeypatch):
    calls = counting(monkeypatch, repair, "monotone")
    reading = noisy(estimator=estimator)
    assert reading.distribution.tpr[-1] == 1
    assert reading.pooled.counts.min() == 0
    assert reading.roc.tpr is reading.distribution.tpr
    assert len(calls) == 1


def test_the_range_estimator_reads_counts_as_they_were_released(monkeypatch):
    calls = counting(monkeypatch, repair, "monotone")
    fpr = noisy(estimator=fg.Range()).distribution.fpr
    assert calls == []
    expected = repair.smooth(np.cumsum(COUNTS[0, ::-1]) / COUNTS[0].sum(), "l2")
    np.testing.assert_allclose(fpr[-2:], expected[-2:])


def test_losses_of_bins_are_computed_once(monkeypatch):
    calls = []
    function = losses.bin_losses
    monkeypatch.setattr(
        "fedgauge.measures.reading.bin_losses", lambda *given: calls.append(1) or function(*given)
    )
    reading = noisy()
    assert reading.losses("log") is reading.losses("log")
    assert reading.losses("squared") is not reading.losses("log")
    assert len(calls) == 2


def test_draws_without_a_class_are_left_out():
    few = noisy(np.array([[2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 5.0, 400.0]]), variance=4.0)
    drawn = few.pooled.redrawn(300, sampling=True)
    empty = np.any(drawn.sum(axis=2) <= 0, axis=1)
    assert 0 < empty.sum() < 300
    np.testing.assert_array_equal(few.redrawn(300, sampling=True), drawn[~empty])
    many = noisy()
    assert many.redrawn(50, sampling=True) is many.pooled.redrawn(50, sampling=True)


def test_rates_and_their_ratio():
    counts = np.array([[6.0, 3.0, 1.0, 0.0], [1.0, 0.0, 2.0, 2.0]])
    reading = noisy(counts, estimator=fg.Aligned(shrink=False))
    fpr, tpr = reading.rates
    np.testing.assert_allclose(fpr, [0, 0, 0.1, 0.4, 1])
    np.testing.assert_allclose(tpr, [0, 0.4, 0.8, 0.8, 1])
    assert reading.ratio == pytest.approx(0.5)
    assert not reading.tied
    with pytest.raises(fg.UndefinedMetric, match="negative"):
        noisy(np.array([[0.0] * 4, [1.0] * 4])).ratio  # noqa: B018


def test_a_level_is_that_of_all_that_is_read():
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 2, 300)
    result = fg.evaluate({"a": (labels, np.clip(rng.normal(0.4 + 0.2 * labels, 0.2), 0, 1))})
    other = result.at_level(0.8)
    assert other.roc_auc.level == other.roc_band().level == other.at_threshold(0.5).mcc.level == 0.8
    assert math.isclose(other.roc_auc.value, result.roc_auc.value)


def test_losses_of_a_merged_bin_of_the_value_1_are_those_of_1():
    """It ends a float above 1: that is no probability, and has no loss."""
    axis = fg.Axis.from_edges([0.2, 0.5, 1.0, np.nextafter(1.0, 2.0)])
    found = losses.bin_losses(axis, np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]]), "log")
    assert np.isfinite(found).all()
    assert found.mean[0, -1] == pytest.approx(-math.log(losses.CLIP))
    assert found.mean[1, -1] == pytest.approx(0.0, abs=1e-12)


def spread(bins, *, step=1, rows=2):
    """So many rows of either class in every bin, or in every second one and so on."""
    counts = np.zeros((2, bins))
    counts[:, ::step] = rows
    return counts


def exact(counts, estimator=fg.Aligned(), axis=None):  # noqa: B008
    bins = counts.shape[1]
    return Reading(PooledCounts(axis or fg.Axis.uniform(bins), counts, (bins,)), estimator, 0.95)


def test_rows_that_share_bins_far_apart_are_tied():
    assert exact(spread(64, step=2)).pooled.apart
    touching = spread(64, step=2)
    touching[0, 1] = 1
    few = spread(64, step=8, rows=1)
    assert few.sum() == 16  # eight rows more than bins: ten are asked for
    lonely = spread(64, step=2, rows=1) * [[1.0], [0.0]]
    for counts in (touching, few, lonely):
        assert not exact(counts).pooled.apart
    assert not exact(spread(64, step=2), axis=fg.Axis.uniform(64, outside="clip")).pooled.apart
    noisy_ones = PooledCounts(fg.Axis.uniform(64), spread(64, step=2), (64,), (1.0,))
    assert not noisy_ones.apart


def test_average_precision_is_of_examples_where_bins_are_fine():
    fine = spread(1024)
    assert exact(fine).precision_of_rows > 0.5  # each positive is itself among those flagged
    assert exact(spread(64, step=2)).precision_of_rows == pytest.approx(0.5)  # tied
    pooled = PooledCounts(fg.Axis.uniform(1024), fine, (1024,), (1.0,))
    for coarse_or_other in (
        exact(fine[:, 1:]),
        exact(fine, fg.Quantile(32)),
        exact(fine, axis=fg.Axis.from_values(range(1024))),
        Reading(pooled, fg.Aligned(), 0.95),
    ):
        assert coarse_or_other.precision_of_rows is None
