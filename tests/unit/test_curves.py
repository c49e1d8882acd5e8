import numpy as np
import pytest

import fedgauge as fg
from fedgauge import (
    Aligned,
    Axis,
    InputError,
    Quantile,
    ScoreHistogram,
    UndefinedMetric,
)
from fedgauge.estimation.distribution import estimate, from_exact_quantiles
from fedgauge.metrics.curves import (
    exact_pr_curve,
    exact_roc_curve,
    pr_curve,
    roc_curve,
)

ESTIMATORS = [
    Aligned(),
    Aligned("linear"),
    Quantile(5),
    Quantile(24, "linear"),
    Quantile(24, pr="combine"),
    Quantile(5, "linear", "combine"),
]
# From a histogram of so many bins, from exact quantiles, or the exact curve.
CASES = [(estimator, bins) for estimator in ESTIMATORS for bins in (3, 16, 200)]
CASES += [(estimator, "exact") for estimator in ESTIMATORS if isinstance(estimator, Quantile)]
CASES += [(None, "exact")]
LABELS = np.repeat([0, 1], [60, 40])
SCORES = np.round(np.random.default_rng(0).beta(2 + 2 * LABELS, 4 - 2 * LABELS), 2)


def drawn_from(estimator, bins):
    """What the estimator makes of the examples."""
    if bins == "exact":
        return from_exact_quantiles(LABELS, SCORES, estimator)
    histogram = ScoreHistogram(Axis.uniform(bins))
    histogram.update(LABELS, SCORES)
    return estimate(histogram.axis, histogram.counts, estimator)


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def roc(request):
    if request.param[0] is None:
        return exact_roc_curve(LABELS, SCORES)
    return roc_curve(drawn_from(*request.param))


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def pr(request):
    if request.param[0] is None:
        return exact_pr_curve(LABELS, SCORES)
    return pr_curve(drawn_from(*request.param))


def test_roc_passes_through_its_knots(roc):
    # Where the curve is vertical a knot lies between the two ends of the vertical.
    x = np.clip(roc.fpr, 0, 1)
    assert np.all(roc(x) >= roc.tpr - 1e-6)
    assert np.all(roc.path.at(x, side="start") <= roc.tpr + 1e-6)
    assert roc.thresholds[0] == np.inf
    assert np.all(np.diff(roc.thresholds) < 0)


def test_roc_is_the_upper_end_of_a_vertical(roc):
    just_right = np.append(np.clip(roc.fpr[:-1], 0, 1) + 1e-13, 1.0)
    np.testing.assert_allclose(roc(np.clip(roc.fpr, 0, 1)), roc(just_right), atol=1e-4)


@pytest.mark.parametrize("interpolation", ["pchip", "linear"])
@pytest.mark.parametrize(
    ("labels", "scores", "quantiles"),
    [
        ([1, 0], [1 / 24, 1.0], 3),
        ([1, 0, 0], [0.3, 0.9, 0.1], 4),
        ([1, 1, 0, 0], [0.7, 0.8, 0.9, 0.1], 7),
        ([1, 0, 0, 0], [0.6, 0.9, 0.2, 0.1], 10),
    ],
)
def test_a_jump_of_one_class_alone_is_vertical(labels, scores, quantiles, interpolation):
    # Rounding must not tilt it: read off at a knot, the curve is at the upper end.
    for bins in range(20, 30):
        result = fg.evaluate({"a": (labels, scores)}, axis=Axis.uniform(bins))
        roc = result.with_estimator(Quantile(quantiles, interpolation)).roc_curve()
        assert np.all(roc(roc.fpr) >= roc.tpr - 1e-6)


def test_pr_passes_through_its_knots(pr):
    # Where the curve is vertical, precision falls from its first point to its last.
    # At recall 0 precision can be 0 / 0.
    reached = pr.recall > 0
    x, y = pr.recall[reached], pr.precision[reached]
    assert np.all(pr(x) >= y - 1e-6)
    if pr.path.bottom is not None:
        assert np.all(pr.path.at(x, side="end") <= y + 1e-6)


@pytest.mark.parametrize("interpolation", ["pchip", "linear"])
@pytest.mark.parametrize("bins", [16, 200])
def test_combined_precision_is_the_same_at_knots_and_between(interpolation, bins):
    pr = pr_curve(drawn_from(Quantile(8, interpolation, "combine"), bins))
    lone = np.flatnonzero(np.abs(np.diff(pr.recall, prepend=2)) > 1e-3)
    lone = lone[(pr.recall[lone] > 0) & (pr.recall[lone] < 1)]
    assert len(lone) > 3
    np.testing.assert_allclose(pr(pr.recall[lone]), pr.precision[lone], atol=1e-6)


def test_combine_differs_from_separate_between_the_ends():
    x = np.linspace(0.1, 0.9, 50)
    separate, combine = (
        pr_curve(drawn_from(Quantile(8, pr=pr), 64))(x) for pr in ("separate", "combine")
    )
    assert np.abs(separate - combine).max() > 1e-3


@pytest.mark.parametrize("make", [exact_roc_curve, exact_pr_curve])
@pytest.mark.parametrize("x", [-1e-9, 1.000001, [0.5, 2], np.nan, np.inf, -np.inf])
def test_callable_refuses_what_is_no_rate(make, x):
    with pytest.raises(InputError, match="between 0 and 1"):
        make(LABELS, SCORES)(x)


def test_exact_roc_is_straight_between_knots():
    roc = exact_roc_curve(LABELS, SCORES)
    x = np.random.default_rng(1).uniform(0, 1, 500)
    np.testing.assert_allclose(roc(x), np.interp(x, roc.fpr, roc.tpr), atol=1e-12)


def test_exact_pr_is_the_precision_of_the_highest_threshold_that_reaches_a_recall():
    pr = exact_pr_curve(LABELS, SCORES)
    for recall in [*np.random.default_rng(2).uniform(0.001, 1, 50), 0.25, 0.5, 0.975, 1.0]:
        for t in np.sort(SCORES)[::-1]:
            flagged = t <= SCORES
            if LABELS[flagged].sum() >= 40 * recall - 1e-9:
                break
        assert pr(recall) == pytest.approx(LABELS[flagged].mean(), abs=1e-12)


def test_exact_pr_at_recall_zero_is_the_precision_of_the_highest_score():
    assert exact_pr_curve([0, 1, 1], [0.9, 0.5, 0.1])(0.0) == 0
    assert exact_pr_curve([1, 0, 1], [0.9, 0.9, 0.1])(0.0) == 0.5


@pytest.mark.parametrize("make", [exact_roc_curve, exact_pr_curve])
@pytest.mark.parametrize(
    ("labels", "positive"),
    [
        (["n", "y", "n", "y"], "y"),
        ([2, 7, 2, 7], 7),
        ([False, True, False, True], None),
        ([0.0, 1.0, 0.0, 1.0], None),
        ([1, 0, 1, 0], 0),
    ],
)
def test_exact_curves_read_any_two_labels(make, labels, positive):
    scores = [0.3, 0.7, 0.5, 0.4]
    for found, expected in zip(
        make(labels, scores, positive=positive), make([0, 1, 0, 1], scores), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("make", [exact_roc_curve, exact_pr_curve])
@pytest.mark.parametrize(
    ("labels", "scores", "error", "told"),
    [
        ([0, 1], [0.1, np.nan], InputError, None),
        ([0, 1], [0.1, np.inf], InputError, None),
        ([0, 1, 2], [0.1, 0.2, 0.3], InputError, None),
        ([0, 1, None], [0.1, 0.2, 0.3], InputError, None),
        ([0, 1], [0.1], InputError, None),
        ([[0, 1]], [[0.1, 0.2]], InputError, None),
        ([[0, 1], [1, 1]], [0.1, 0.2], InputError, None),
        ([0, 1], ["a", "b"], InputError, None),
        ([1, 1], [0.1, 0.2], UndefinedMetric, "negative"),
        ([0, 0], [0.1, 0.2], UndefinedMetric, "positive"),
        (np.array([], dtype=int), np.array([]), UndefinedMetric, None),
    ],
)
def test_exact_curves_refuse_what_they_cannot_measure(make, labels, scores, error, told):
    with pytest.raises(error, match=told):
        make(labels, scores)


@pytest.mark.parametrize("make", [exact_roc_curve, exact_pr_curve])
def test_both_zeros_are_one_score(make):
    found, expected = make([0, 1], [0.0, -0.0]), make([0, 1], [0.0, 0.0])
    np.testing.assert_array_equal(found.thresholds, expected.thresholds)


def test_curves_are_frozen_and_short_to_print():
    curve = exact_roc_curve([0, 1], [0.2, 0.8])
    assert "path" not in repr(curve)
    assert next(iter(curve)) is curve.fpr
    with pytest.raises(AttributeError):
        curve.fpr = curve.tpr


@pytest.mark.parametrize("kind", ["roc", "pr", "det", "prg", "gain"])
def test_a_curve_gives_what_it_is_given(kind):
    rows = ([0, 0, 1, 1, 0, 1], [0.1, 0.4, 0.35, 0.8, 0.2, 0.9])
    curve = getattr(fg.evaluate({"a": rows}), f"{kind}_curve")()
    readers = [curve, curve.lift] if kind == "gain" else [curve]
    for read in readers:
        for alone in (0.4, 1, np.float64(0.4), np.array(0.4), fg.Estimate(0.4, (0.3, 0.5))):
            assert type(read(alone)) is float
            assert read(alone) == read([float(alone)])[0]
        grid = np.array([[0.1, 0.2, 0.3], [0.4, 0.0, 1.0]])
        np.testing.assert_array_equal(read(grid), [[read(x) for x in row] for row in grid])
        assert read([0.4]).shape == (1,)
        assert read([]).shape == (0,)
