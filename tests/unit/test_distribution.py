from fractions import Fraction

import numpy as np
import pytest
from scipy.interpolate import PchipInterpolator

from fedgauge import Aligned, Axis, InputError, PlanError, Quantile, UndefinedMetric
from fedgauge.estimation.distribution import estimate, from_exact_quantiles
from fedgauge.estimation.piecewise import horner

COUNTS = np.array([[5, 0, 3, 2, 0, 1, 0, 0], [0, 0, 1, 4, 0, 2, 3, 0]])
ESTIMATORS = [
    Aligned(),
    Aligned(interpolation="linear"),
    Quantile(quantiles=5),
    Quantile(quantiles=16, interpolation="linear"),
    Quantile(quantiles=16, pr="combine"),
    Quantile(quantiles=2, interpolation="linear", pr="combine"),
]
estimators = pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)


def path_ends(d):
    """Rates at the start of every piece and at its end."""
    at_start = np.vstack([d.fpr_pieces[-1], d.tpr_pieces[-1]])
    at_end = np.vstack([horner(d.fpr_pieces, d.width), horner(d.tpr_pieces, d.width)])
    return at_start, at_end


def left_edge_quantiles(axis, row, quantiles):
    """The left edge of the first bin up to which a share k / (Q - 1) of the examples lie."""
    total, found = int(row.sum()), []
    for k in range(quantiles):
        reached, i = int(row[0]), 0
        while reached * (quantiles - 1) < k * total:
            i += 1
            reached += int(row[i])
        found.append(axis.edges[i])
    return found


def mean_levels(found):
    """Each distinct quantile with the mean of its levels."""
    levels = {}
    for k, quantile in enumerate(found):
        levels.setdefault(quantile, []).append(Fraction(k, len(found) - 1))
    return np.array([[q, float(sum(ks) / len(ks))] for q, ks in sorted(levels.items())]).T


def survival_at(thresholds, found, interpolation):
    """Share of the class at or above each threshold, by the words of the estimator."""
    knots, levels = mean_levels(found)
    if interpolation == "pchip" and len(knots) > 2:
        inside = 1 - PchipInterpolator(knots, levels)(np.clip(thresholds, knots[0], knots[-1]))
    else:
        inside = 1 - np.interp(thresholds, knots, levels)
    return np.where(thresholds <= knots[0], 1.0, np.where(thresholds > knots[-1], 0.0, inside))


@estimators
def test_a_path_joins_and_leads_from_nobody_to_everybody(estimator):
    d = estimate(Axis.uniform(8), COUNTS, estimator)
    start, end = path_ends(d)
    np.testing.assert_array_equal(start[:, 0], 0.0)
    np.testing.assert_allclose(end[:, -1], 1.0, rtol=0, atol=1e-15)
    np.testing.assert_allclose(end[:, :-1], start[:, 1:], rtol=0, atol=1e-15)
    assert np.all(d.width > 0)


@estimators
def test_knots_lie_between_threshold_infinity_and_everybody(estimator):
    d = estimate(Axis.uniform(8), COUNTS, estimator)
    assert d.thresholds[0] == np.inf
    assert np.all(np.diff(d.thresholds) < 0)
    assert len(d.thresholds) == len(d.fpr) == len(d.tpr)
    assert (d.fpr[0], d.tpr[0], d.fpr[-1], d.tpr[-1]) == (0, 0, 1, 1)


@estimators
def test_class_totals_are_kept(estimator):
    d = estimate(Axis.uniform(8), COUNTS, estimator)
    assert (d.negatives, d.positives) == (11, 10)


@estimators
@pytest.mark.parametrize("row", [0, 1])
def test_one_class_has_no_distribution(estimator, row):
    counts = COUNTS.copy()
    counts[row] = 0
    with pytest.raises(UndefinedMetric, match=["negative", "positive"][row]):
        estimate(Axis.uniform(8), counts, estimator)


def test_aligned_knots_are_the_counts_at_the_edges():
    d = estimate(Axis.uniform(8), COUNTS, Aligned())
    np.testing.assert_array_equal(d.thresholds[1:], [6 / 8, 5 / 8, 3 / 8, 2 / 8, 0])
    np.testing.assert_array_equal(d.fpr, np.array([0, 0, 1, 3, 6, 11]) / 11)
    np.testing.assert_array_equal(d.tpr, np.array([0, 3, 5, 9, 10, 10]) / 10)


@pytest.mark.parametrize("interpolation", ["pchip", "linear"])
def test_separate_counts_flagged_examples_of_both_classes(interpolation):
    for estimator in (Aligned(interpolation), Quantile(5, interpolation)):
        d = estimate(Axis.uniform(8), COUNTS, estimator)
        np.testing.assert_allclose(
            d.flagged_pieces, 11 * d.fpr_pieces + 10 * d.tpr_pieces, rtol=1e-14
        )


def test_aligned_linear_is_straight_between_knots():
    d = estimate(Axis.uniform(8), COUNTS, Aligned("linear"))
    assert not d.fpr_pieces[:2].any()
    assert not d.tpr_pieces[:2].any()
    middle = horner(d.tpr_pieces, d.width / 2)
    np.testing.assert_allclose(middle, (d.tpr[1:] + d.tpr[:-1]) / 2, rtol=1e-14)


def test_aligned_pchip_is_curved_between_knots():
    d = estimate(Axis.uniform(8), COUNTS, Aligned("pchip"))
    assert np.abs(horner(d.tpr_pieces, d.width / 2) - (d.tpr[1:] + d.tpr[:-1]) / 2).max() > 1e-3


@pytest.mark.parametrize("outside", ["refuse", "clip"])
def test_known_values_are_joined_straight_and_step(outside):
    """Also under noise, where an axis clips: whoever lists the values says that there are ties."""
    d = estimate(Axis.from_values(range(8), outside), COUNTS, Aligned("pchip"))
    assert d.steps.all()
    assert not d.fpr_pieces[:2].any()


@pytest.mark.parametrize("interpolation", ["pchip", "linear"])
@pytest.mark.parametrize("quantiles", [2, 3, 7, 32])
@pytest.mark.parametrize("seed", range(4))
def test_quantiles_are_left_edges_joined_at_their_mean_level(seed, quantiles, interpolation):
    rng = np.random.default_rng(seed)
    axis = Axis.uniform(12)
    counts = rng.multinomial([97, 41], rng.dirichlet(np.ones(12), size=2))
    counts[:, rng.integers(1, 12, 3)] = 0
    counts[:, 11] += 1  # no class in one bin only
    d = estimate(axis, counts, Quantile(quantiles, interpolation))
    found = [left_edge_quantiles(axis, row, quantiles) for row in counts]
    np.testing.assert_array_equal(d.thresholds[1:], np.unique(np.concatenate(found))[::-1])
    for rate, own in zip((d.fpr, d.tpr), found, strict=True):
        expected = survival_at(d.thresholds[1:], own, interpolation)
        np.testing.assert_allclose(rate[1:], expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("quantiles", [11, 21, 50, 101])
def test_a_quantile_whose_rank_is_whole_stays_in_its_bin(quantiles):
    # 0.1 * 3 * 10 is more than 3 in floats: a rank must be compared in whole numbers.
    bins = quantiles - 1
    axis = Axis.uniform(bins)
    counts = np.ones((2, bins), dtype=int)
    d = estimate(axis, counts, Quantile(quantiles, "linear"))
    found = left_edge_quantiles(axis, counts[0], quantiles)
    np.testing.assert_array_equal(d.thresholds[1:], np.unique(found)[::-1])
    expected = survival_at(d.thresholds[1:], found, "linear")
    np.testing.assert_allclose(d.tpr[1:], expected, rtol=0, atol=1e-13)


def test_equal_quantiles_are_one_knot_at_their_mean_level():
    counts = np.array([[4, 4, 4], [0, 12, 0]])
    d = estimate(Axis.from_edges([0.0, 1.0, 2.0, 3.0]), counts, Quantile(5, "linear"))
    np.testing.assert_array_equal(d.thresholds, [np.inf, 2.0, 1.0, 0.0])
    # Levels 0, 1/4 | 1/2 | 3/4, 1 of the negatives; 0 | 1/4, ..., 1 of the positives.
    np.testing.assert_allclose(d.fpr, [0, 1 - 7 / 8, 1 - 1 / 2, 1], atol=1e-15)
    np.testing.assert_allclose(d.tpr, [0, 0, 1 - 5 / 8, 1], atol=1e-15)


@pytest.mark.parametrize("pr", ["separate", "combine"])
@pytest.mark.parametrize("interpolation", ["pchip", "linear"])
def test_quantiles_crowded_in_the_first_bin_still_reach_the_corner(interpolation, pr):
    counts = np.array([[95, 3, 1, 1], [60, 20, 15, 5]])
    d = estimate(Axis.uniform(4), counts, Quantile(8, interpolation, pr))
    start, end = path_ends(d)
    np.testing.assert_array_equal(start[:, 0], 0)
    np.testing.assert_allclose(end[:, -1], 1, atol=1e-15)
    assert horner(d.flagged_pieces, d.width)[-1] == pytest.approx(200)


@pytest.mark.parametrize("pr", ["separate", "combine"])
@pytest.mark.parametrize("interpolation", ["pchip", "linear"])
@pytest.mark.parametrize(
    "counts", [[[3], [2]], [[3, 0], [2, 0]], [[9, 0, 0], [1, 5, 3]], [[1, 5, 3], [9, 0, 0]]]
)
def test_a_class_whose_quantiles_are_all_equal_jumps_once(counts, interpolation, pr):
    counts = np.array(counts)
    d = estimate(Axis.uniform(counts.shape[1]), counts, Quantile(8, interpolation, pr))
    assert (d.fpr[0], d.tpr[0], d.fpr[-1], d.tpr[-1]) == (0, 0, 1, 1)
    for row, rate in zip(counts, (d.fpr, d.tpr), strict=True):
        if not row[1:].any():
            np.testing.assert_array_equal(np.unique(rate), [0, 1])


@pytest.mark.parametrize("seed", [2, 24, 26, 33, 34, 44])
@pytest.mark.parametrize("examples", [50, 200, 1000])
def test_rates_at_quantile_knots_are_rates_and_never_fall(examples, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, examples)
    labels[:2] = 0, 1
    scores = rng.beta(1 + labels, 2 - labels)
    if seed % 2 == 0:
        scores = np.round(scores, 1)
    counts = np.array([np.histogram(scores[labels == k], 64, (0, 1))[0] for k in (0, 1)])
    d = estimate(Axis.uniform(64), counts, Quantile(16))
    for rate in (d.fpr, d.tpr):
        assert rate.min() >= 0
        assert rate.max() <= 1
        assert np.all(np.diff(rate) >= 0)


def test_combine_takes_flagged_examples_from_all_quantiles():
    axis, estimator = Axis.uniform(8), Quantile(5, "linear", "combine")
    d = estimate(axis, COUNTS, estimator)
    found = left_edge_quantiles(axis, COUNTS.sum(axis=0), 5)
    expected = 21 * survival_at(d.thresholds[1:], found, "linear")
    np.testing.assert_allclose(horner(d.flagged_pieces, d.width)[::2], expected, rtol=0, atol=1e-12)


def test_exact_quantiles_are_those_of_numpy():
    rng = np.random.default_rng(5)
    y_true = np.repeat([0, 1], [30, 20])
    y_score = rng.normal(y_true)
    d = from_exact_quantiles(y_true, y_score, Quantile(6, "linear"))
    own = [np.quantile(y_score[y_true == k], np.linspace(0, 1, 6)) for k in (0, 1)]
    np.testing.assert_array_equal(d.thresholds[1:], np.unique(np.concatenate(own))[::-1])
    for rate, quantiles in zip((d.fpr, d.tpr), own, strict=True):
        expected = survival_at(d.thresholds[1:], list(quantiles), "linear")
        np.testing.assert_allclose(rate[1:], expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("estimator", [e for e in ESTIMATORS if isinstance(e, Quantile)], ids=repr)
@pytest.mark.parametrize("scores", [[0.5, 0.5, 0.5, 0.5], [0.5, 0.5, 0.1, 0.9], [1, 2, 3, 4]])
def test_exact_quantiles_lead_from_nobody_to_everybody(estimator, scores):
    d = from_exact_quantiles([0, 0, 1, 1], scores, estimator)
    assert (d.fpr[0], d.tpr[0], d.fpr[-1], d.tpr[-1]) == (0, 0, 1, 1)


@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 1, -1], [0.0, 1.0, np.nan]])
def test_exact_quantiles_refuse_other_labels(labels):
    with pytest.raises(InputError, match="labels 0 and 1"):
        from_exact_quantiles(labels, [0.1, 0.2, 0.3], Quantile())


@pytest.mark.parametrize("labels", [[0, 0], [1, 1], []])
def test_exact_quantiles_need_both_classes(labels):
    with pytest.raises(UndefinedMetric):
        from_exact_quantiles(labels, np.arange(len(labels)), Quantile())


@pytest.mark.parametrize("quantiles", [1, 0, -4])
def test_too_few_quantiles_are_refused(quantiles):
    with pytest.raises(
        PlanError, match=f"quantiles must be a whole number from 2, got {quantiles}"
    ):
        Quantile(quantiles)


@pytest.mark.parametrize("kind", [Aligned, Quantile])
@pytest.mark.parametrize("interpolation", ["cubic", "", None])
def test_unknown_interpolation_is_refused(kind, interpolation):
    with pytest.raises(PlanError, match="interpolation must be one of pchip, linear"):
        kind(interpolation=interpolation)


def test_unknown_pr_is_refused():
    with pytest.raises(PlanError, match="pr must be one of separate, combine, got 'both'"):
        Quantile(pr="both")


@pytest.mark.parametrize("estimator", [Aligned(), Quantile()], ids=repr)
def test_estimators_are_frozen(estimator):
    with pytest.raises(AttributeError):
        estimator.interpolation = "linear"
