import hypothesis.strategies as st
import numpy as np
from hypothesis import example, given, settings
from sklearn import metrics as sk
from strategies import GRID, ON_GRID, labelled

import fedgauge as fg
from fedgauge import Aligned, Axis, Quantile, area_error, exact_pr_curve, exact_roc_curve
from fedgauge.estimation.distribution import from_exact_quantiles
from fedgauge.metrics.curves import pr_curve, roc_curve

PROBABILITIES = st.one_of(ON_GRID, st.floats(0, 1, allow_subnormal=False))
ANY = st.floats(-1e6, 1e6, allow_subnormal=False)


def edges():
    inner = st.sets(st.integers(1, 2 * GRID - 1), max_size=12)
    return inner.map(
        lambda cuts: Axis.from_edges([0.0, *sorted(c / (2 * GRID) for c in cuts), 1.0])
    )


axes = st.one_of(st.integers(1, 50).map(Axis.uniform), st.integers(1, 50).map(Axis.logit), edges())
interpolations = st.sampled_from(["pchip", "linear"])
quantile_estimators = st.builds(
    Quantile, st.integers(2, 20), interpolations, st.sampled_from(["separate", "combine"])
)
estimators = st.one_of(st.builds(Aligned, interpolations), quantile_estimators)


def pooled(data, axis, estimator=Aligned()):  # noqa: B008
    return fg.evaluate({"a": data}, axis=axis, estimator=estimator)


@settings(deadline=None, max_examples=60)
@given(labelled(ANY))
@example((np.array([0, 1]), np.array([0.0, -0.0])))
def test_known_values_give_scikit_learns_curves_and_areas(data):
    result = pooled(data, Axis.from_values(data[1]))
    for found, exact, wanted in (
        (result.roc_curve(), exact_roc_curve(*data), sk.roc_curve(*data, drop_intermediate=False)),
        (result.pr_curve(), exact_pr_curve(*data), sk.precision_recall_curve(*data)),
    ):
        for part, own, expected in zip(found, exact, wanted, strict=True):
            np.testing.assert_allclose(part, expected, rtol=0, atol=1e-12)
            np.testing.assert_allclose(own, expected, rtol=0, atol=1e-15)
    check_areas(result, data)


def check_areas(result, data):
    for found, value in (
        (result.roc_auc, sk.roc_auc_score(*data)),
        (result.average_precision, sk.average_precision_score(*data)),
    ):
        np.testing.assert_allclose([found.value, *found.bounds], value, rtol=0, atol=1e-12)


@settings(deadline=None, max_examples=60)
@given(labelled(ON_GRID), estimators)
def test_known_values_have_the_same_areas_by_any_estimator(data, estimator):
    check_areas(pooled(data, Axis.from_values(data[1]), estimator), data)


@settings(deadline=None, max_examples=60)
@given(labelled(PROBABILITIES), axes, interpolations)
def test_aligned_knots_are_scikit_learns_rates_at_their_thresholds(data, axis, interpolation):
    fpr, tpr, thresholds = sk.roc_curve(*data, drop_intermediate=False)
    roc = pooled(data, axis, Aligned(interpolation)).roc_curve()
    at = [np.flatnonzero(thresholds >= t)[-1] for t in roc.thresholds]
    np.testing.assert_array_equal(roc.fpr, fpr[at])
    np.testing.assert_array_equal(roc.tpr, tpr[at])


def check_roc(roc):
    assert (roc.fpr[0], roc.tpr[0], roc.fpr[-1], roc.tpr[-1]) == (0, 0, 1, 1)
    for rate in (roc.fpr, roc.tpr):
        assert np.all((rate >= 0) & (rate <= 1))
        assert np.all(np.diff(rate) >= 0)
    x = np.union1d(np.linspace(0, 1, 101), roc.fpr)
    y = roc(x)
    assert np.all((y >= 0) & (y <= 1))
    assert np.all(np.diff(y) >= -1e-9)
    assert y[-1] > 1 - 1e-9
    assert np.all(roc(roc.fpr) >= roc.tpr - 1e-4)
    assert np.all(roc.path.at(roc.fpr, side="start") <= roc.tpr + 1e-4)


def check_pr(pr, base_rate):
    assert (pr.recall[0], pr.recall[-1], pr.precision[-1]) == (1, 0, 1)
    assert abs(pr.precision[0] - base_rate) < 1e-12
    for share in (pr.precision, pr.recall):
        assert np.all((share >= 0) & (share <= 1))
    assert np.all(np.diff(pr.recall) <= 0)
    assert np.all(np.diff(pr.thresholds) > 0)
    y = pr(np.linspace(0, 1, 101))
    assert np.all((y >= 0) & (y <= 1))


@settings(deadline=None, max_examples=150)
@given(labelled(PROBABILITIES), axes, estimators)
@example((np.array([0, 1]), np.array([0.5, 0.5])), Axis.uniform(1), Aligned())
@example((np.array([0, 1]), np.array([0.5, 0.5])), Axis.uniform(4), Quantile(4))
@example((np.array([0, 1, 0, 0]), np.array([0.5, 0.0, 0.0, 0.0])), Axis.uniform(2), Aligned())
@example((np.array([1, 0]), np.array([1 / 24, 1.0])), Axis.uniform(26), Quantile(3))
def test_every_curve_leads_from_corner_to_corner(data, axis, estimator):
    result = pooled(data, axis, estimator)
    check_roc(result.roc_curve())
    check_pr(result.pr_curve(), data[0].mean())


@settings(deadline=None, max_examples=60)
@given(labelled(ON_GRID), quantile_estimators)
def test_curves_of_exact_quantiles_lead_from_corner_to_corner(data, estimator):
    distribution = from_exact_quantiles(*data, estimator)
    check_roc(roc_curve(distribution))
    check_pr(pr_curve(distribution), data[0].mean())


@st.composite
def binned_counts(draw):
    bins = draw(st.integers(1, 6))
    row = st.lists(st.integers(0, 5), min_size=bins, max_size=bins).filter(any)
    return np.array([draw(row), draw(row)])


def arranged(counts, negatives_at, positives_at):
    """Examples with these counts on a uniform axis, put within each bin where told."""
    labels, scores = [], []
    bins = counts.shape[1]
    for i in range(bins):
        for label, place in ((0, negatives_at), (1, positives_at)):
            size = counts[label, i]
            labels += [label] * size
            scores += list((i + place(size)) / bins)
    return np.array(labels), np.array(scores)


@settings(deadline=None, max_examples=60)
@given(binned_counts(), interpolations)
def test_bounds_are_attained(counts, interpolation):
    axis = Axis.uniform(counts.shape[1])
    low, high = (lambda size, at=at: np.full(size, at) for at in (0.25, 0.75))
    first, last = arranged(counts, low, high), arranged(counts, high, low)
    spread = arranged(counts, high, lambda size: np.linspace(0.125, 0.5, size))
    for data in (first, last, spread):
        result = pooled(data, axis, Aligned(interpolation))
        auc, ap = result.roc_auc.bounds, result.average_precision.bounds
        assert abs(auc[0] - sk.roc_auc_score(*last)) < 1e-12
        assert abs(auc[1] - sk.roc_auc_score(*first)) < 1e-12
        assert abs(ap[0] - sk.average_precision_score(*spread)) < 1e-12
        assert abs(ap[1] - sk.average_precision_score(*first)) < 1e-12


@settings(deadline=None, max_examples=100)
@given(labelled(PROBABILITIES), axes, estimators)
def test_area_error_lies_between_the_difference_of_areas_and_one(data, axis, estimator):
    result = pooled(data, axis, estimator)
    for curve, exact in (
        (result.roc_curve(), exact_roc_curve(*data)),
        (result.pr_curve(), exact_pr_curve(*data)),
    ):
        error = area_error(curve, exact)
        assert abs(curve.path.area() - exact.path.area()) - 1e-7 <= error <= 1 + 1e-7


@settings(deadline=None, max_examples=60)
@given(labelled(PROBABILITIES), labelled(PROBABILITIES), labelled(PROBABILITIES))
def test_area_error_between_exact_curves_is_a_distance(one, two, three):
    for make in (exact_roc_curve, exact_pr_curve):
        a, b, c = make(*one), make(*two), make(*three)
        assert area_error(a, a) < 1e-12
        assert abs(area_error(a, b) - area_error(b, a)) < 1e-12
        assert area_error(a, b) >= abs(a.path.area() - b.path.area()) - 1e-12
        assert area_error(a, c) <= area_error(a, b) + area_error(b, c) + 1e-12


@settings(deadline=None, max_examples=60)
@given(labelled(PROBABILITIES))
def test_known_values_have_no_area_error(data):
    result = pooled(data, Axis.from_values(data[1]))
    assert area_error(result.roc_curve(), exact_roc_curve(*data)) < 1e-12
    assert area_error(result.pr_curve(), exact_pr_curve(*data)) < 1e-12
