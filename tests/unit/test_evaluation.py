"""The result a user holds: numbers, words and curves from counts."""

import numpy as np
import pytest

import fedgauge as fg
from fedgauge.estimation.released import Released


def make_evaluation(counts, *, clients=3, estimator=None, axis=None):
    counts = np.array(counts)
    plan = fg.EvaluationPlan.for_histogram(
        axis or fg.Axis.uniform(counts.shape[1]), fg.Cohort(min_survivors=clients)
    )
    statement = plan.statement("simulated")
    estimator = estimator or fg.Aligned()
    released = Released(plan.axis, counts, clients)
    return fg.Evaluation(plan, statement, released, estimator=estimator)


COUNTS = [[30, 15, 4, 1], [2, 5, 6, 12]]


def test_totals():
    result = make_evaluation(COUNTS)
    assert (result.negatives, result.positives, result.clients) == (50, 25, 3)


def test_auc_by_hand():
    # Pairs won outright plus half of those within a bin, over all pairs; then all or none of them.
    won = 12 * 49 + 6 * 45 + 5 * 30
    within = 12 * 1 + 6 * 4 + 5 * 15 + 2 * 30
    auc = make_evaluation(COUNTS, estimator=fg.Aligned("linear")).roc_auc
    assert auc.value == pytest.approx((won + within / 2) / 1250, abs=1e-11)
    assert auc.bounds == pytest.approx((won / 1250, (won + within) / 1250), abs=1e-11)
    assert auc.parts["binning"] == pytest.approx(within / 2 / 1250, abs=1e-11)


def test_average_precision_bounds_by_hand():
    # One bin, one negative before or after two positives.
    low, high = make_evaluation([[1], [2]]).average_precision.bounds
    assert low == pytest.approx((1 / 2 + 2 / 3) / 2, abs=1e-11)
    assert high == pytest.approx(1.0, abs=1e-11)


@pytest.mark.parametrize("estimator", [fg.Aligned(), fg.Aligned("linear"), fg.Quantile(16)])
@pytest.mark.parametrize("alone", [False, True], ids=["mixed bins", "one example in a bin"])
def test_bounds_hold_the_value(estimator, alone):
    # One example in a bin leaves no doubt: the bounds meet, and rounding must not cross them.
    rng = np.random.default_rng(3)
    for _ in range(100):
        positive = rng.permutation([0, 0, 0, 1, 1, 1])
        counts = np.array([1 - positive, positive]) if alone else rng.integers(0, 4, (2, 6)) + 1
        result = make_evaluation(counts, estimator=estimator)
        for estimate in (result.roc_auc, result.average_precision):
            low, high = estimate.bounds
            assert 0.0 <= low <= estimate.value <= high <= 1.0


@pytest.mark.parametrize("pr", ["separate", "combine"])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_quantiles_of_a_class_within_one_bin(place, pr):
    counts = np.array([[0, 0, 0, 0], [3, 2, 4, 5]])
    counts[0, place] = 6
    result = make_evaluation(counts, estimator=fg.Quantile(16, pr=pr))
    assert result.roc_auc.bounds[0] <= result.roc_auc.value <= result.roc_auc.bounds[1]


def test_numbers_are_plain_floats():
    for axis in (fg.Axis.uniform(4), fg.Axis.from_values([0.0, 0.2, 0.5, 1.0])):
        result = make_evaluation(COUNTS, axis=axis)
        for estimate in (result.roc_auc, result.average_precision):
            assert {type(number) for number in (estimate.value, *estimate.bounds)} == {float}


def test_curves_start_and_end_where_curves_do():
    roc, pr = make_evaluation(COUNTS).roc_curve(), make_evaluation(COUNTS).pr_curve()
    assert (roc.fpr[0], roc.tpr[0], roc.fpr[-1], roc.tpr[-1]) == (0, 0, 1, 1)
    assert (pr.recall[0], pr.precision[0]) == (1.0, 25 / 75)
    assert (pr.recall[-1], pr.precision[-1]) == (0.0, 1.0)
    np.testing.assert_array_equal(roc.thresholds, [np.inf, 0.75, 0.5, 0.25, 0.0])


def test_another_estimator_reads_the_same_counts():
    first = make_evaluation(COUNTS)
    second = first.with_estimator(fg.Quantile(8))
    assert second.estimator == fg.Quantile(8)
    assert first.estimator == fg.Aligned()
    assert second.record.slices[0].counts == first.record.slices[0].counts
    assert second.roc_auc.bounds == first.roc_auc.bounds
    assert second.roc_auc.value != first.roc_auc.value
    assert (second.plan, second.privacy, second.clients) == (first.plan, first.privacy, 3)


def test_verdict_in_five_lines():
    who, auc, precision, privacy, measured = str(make_evaluation(COUNTS)).splitlines()
    assert who == "3 clients, 75 examples, 33.3% positive"
    result = make_evaluation(COUNTS)
    assert auc.startswith("ROC AUC ")
    assert f"{result.roc_auc.value:.4f}" in auc
    assert f"{result.roc_auc.low:.4f} to {result.roc_auc.high:.4f} at 95%" in auc
    assert precision.startswith("average precision ")
    assert f"{result.average_precision.value:.4f}" in precision
    low, high = result.average_precision.low, result.average_precision.high
    assert f"{low:.4f} to {high:.4f} at 95%" in precision
    assert "no differential privacy" in privacy
    assert "simulated" in privacy
    assert result.plan.digest[:8] in measured
    assert "64 bytes per client" in measured


@pytest.mark.parametrize(
    ("axis", "words"),
    [
        (fg.Axis.uniform(4), "4 bins of equal width,"),
        (fg.Axis.logit(4), "4 bins of equal width in log-odds,"),
        (fg.Axis.from_edges([0, 0.1, 0.2, 0.3, 1]), "4 bins between given edges,"),
        (fg.Axis.from_values([0, 1, 2, 3]), "4 known score values,"),
    ],
)
def test_verdict_names_the_axis(axis, words):
    text = str(make_evaluation(COUNTS, axis=axis))
    assert len(text.splitlines()) == 5
    assert words in text


def test_verdict_counts_one_client_in_the_singular():
    result = make_evaluation(COUNTS, clients=1)
    assert str(result).startswith("1 client, ")
    assert "1 clients" not in repr(result)


def test_repr_is_short_and_holds_no_counts():
    result = make_evaluation(COUNTS)
    assert repr(result) == f"<Evaluation of 75 examples at 3 clients: ROC AUC {result.roc_auc}>"


@pytest.mark.parametrize(
    ("counts", "missing"),
    [([[0, 0], [3, 4]], "negative"), ([[3, 4], [0, 0]], "positive")],
)
@pytest.mark.parametrize("estimator", [fg.Aligned(), fg.Quantile(8)])
def test_one_class_defines_no_curve(counts, missing, estimator):
    result = make_evaluation(counts, estimator=estimator)
    for ask in (
        lambda: result.roc_auc,
        lambda: result.average_precision,
        result.roc_curve,
        result.pr_curve,
    ):
        with pytest.raises(fg.UndefinedMetric, match=f"no client has a {missing} example"):
            ask()
    lines = str(result).splitlines()
    assert len(lines) == 5
    assert "undefined" in lines[1]
    assert f"no client has a {missing} example" in lines[2]


def test_the_estimator_decides_which_counts_are_likely():
    clients = {f"s{i}": ([0, 0, 1] * 200, [0.2, 0.6, 0.7] * 200) for i in range(3)}
    noisy = fg.evaluate(clients, privacy=fg.DistributedDP(1.0), tree=(8,), seed=1)
    assert noisy.is_shrunk
    for estimator in (fg.Aligned(shrink=False), fg.Quantile(8), fg.Range()):
        read = noisy.with_estimator(estimator)
        assert not read.is_shrunk
        assert read.pooled.likely is read.pooled.counts
        assert "likely counts" not in str(read)
    assert "likely counts" in str(noisy)
    assert not fg.evaluate(clients).is_shrunk
