"""The confusion matrix at a threshold."""

import math

import numpy as np
import pytest

import fedgauge as fg
from fedgauge import Axis
from fedgauge.estimation.pooled import PooledCounts
from fedgauge.measures.outcomes import (
    Correlation,
    Outcomes,
    Ratio,
    Split,
    ThresholdOutcomes,
    split,
)
from fedgauge.measures.thresholds import AtThreshold, f_beta_ratio

QUARTERS = Axis.uniform(4)
CLIPPED = Axis.uniform(4, outside="clip")
VALUES = Axis.from_values([0.0, 0.5, 1.0])
CLIPPED_VALUES = Axis.from_values([0.0, 0.5, 1.0], outside="clip")
SINGLE = Axis.from_values([0.5], outside="clip")
ABOVE, BELOW = math.inf, -math.inf
PRECISION = AtThreshold.precision.formula

SPLITS = [
    (QUARTERS, ABOVE, (4, False, 0.0)),
    (QUARTERS, BELOW, (0, False, 0.0)),
    (QUARTERS, 1.5, (4, False, 0.0)),
    (QUARTERS, -0.5, (0, False, 0.0)),
    (QUARTERS, 0.0, (0, False, 0.0)),
    (QUARTERS, 0.25, (1, False, 0.0)),
    (QUARTERS, 0.75, (3, False, 0.0)),
    (QUARTERS, 1.0, (4, True, 0.0)),  # a score of 1 is in the last bin
    (QUARTERS, 0.3125, (2, True, 0.75)),
    (QUARTERS, 0.9375, (4, True, 0.25)),
    (QUARTERS, np.nextafter(0, 1), (1, True, 1.0)),
    (CLIPPED, ABOVE, (4, False, 0.0)),
    (CLIPPED, BELOW, (0, False, 0.0)),
    (CLIPPED, 1.5, (4, True, 0.0)),  # scores above are in the last bin
    (CLIPPED, 1.0, (4, True, 0.0)),
    (CLIPPED, 0.0, (1, True, 1.0)),  # scores below are in the first
    (CLIPPED, -3.0, (1, True, 1.0)),
    (CLIPPED, 0.5, (2, False, 0.0)),
    (CLIPPED, 0.125, (1, True, 0.5)),
    (VALUES, 0.0, (0, False, 0.0)),
    (VALUES, 0.25, (1, False, 0.0)),
    (VALUES, 0.5, (1, False, 0.0)),
    (VALUES, 0.75, (2, False, 0.0)),
    (VALUES, 1.0, (2, False, 0.0)),
    (VALUES, 2.0, (3, False, 0.0)),
    (VALUES, -2.0, (0, False, 0.0)),
    (CLIPPED_VALUES, 0.0, (1, True, 1.0)),
    (CLIPPED_VALUES, 0.5, (1, False, 0.0)),
    (CLIPPED_VALUES, 0.75, (2, True, 0.0)),
    (CLIPPED_VALUES, 1.0, (2, False, 0.0)),  # scores from 1 up, no others
    (CLIPPED_VALUES, 2.0, (3, True, 0.0)),
    (SINGLE, 0.5, (1, True, 1.0)),
    (SINGLE, 0.6, (1, True, 0.0)),
]


@pytest.mark.parametrize(("axis", "threshold", "expected"), SPLITS, ids=repr)
def test_how_a_threshold_divides_the_bins(axis, threshold, expected):
    found = split(axis, threshold)
    assert found[:2] == expected[:2]
    assert found.share == pytest.approx(expected[2], abs=1e-12)
    assert isinstance(found, Split)


@pytest.mark.parametrize("axis", [QUARTERS, CLIPPED, VALUES], ids=repr)
def test_a_threshold_is_a_number(axis):
    with pytest.raises(fg.InputError, match="a threshold must be a number"):
        split(axis, math.nan)
    result = fg.evaluate({"a": ([0, 1], [0.0, 0.5])}, axis=axis)
    with pytest.raises(fg.InputError, match="a threshold must be a number"):
        result.at_threshold(math.nan)


def outcomes(threshold, axis=QUARTERS):
    counts = np.array([[8, 4, 2, 1], [1, 2, 4, 8]])
    return ThresholdOutcomes(PooledCounts(axis, counts, (4,)), threshold)


def test_outcomes_on_an_edge():
    found = outcomes(0.5)
    assert found.likely == Outcomes(tp=12, fp=3, fn=3, tn=12)
    (corner,) = found.corners
    assert corner.outcomes == corner.unbiased == found.likely
    assert not corner.noise.any()


def test_outcomes_between_edges():
    found = outcomes(0.375)
    assert found.likely == Outcomes(tp=13, fp=5, fn=2, tn=10)
    corners = {corner.outcomes for corner in found.corners}
    assert corners == {
        Outcomes(12, 3, 3, 12),
        Outcomes(14, 3, 1, 12),
        Outcomes(12, 7, 3, 8),
        Outcomes(14, 7, 1, 8),
    }
    of_all = Ratio(Outcomes(tp=1), Outcomes(fp=1, fn=1, tn=1))
    assert of_all.extremes(found.corners) == (12 / 30, 14 / 30)
    assert PRECISION.extremes(found.corners) == (12 / 19, 14 / 17)


def test_undefined_corners_are_left_out():
    found = ThresholdOutcomes(
        PooledCounts(QUARTERS, np.array([[1, 0, 0, 1], [1, 0, 0, 1]]), (4,)), 0.9
    )
    assert PRECISION.extremes(found.corners) == (0, 1)
    nothing = ThresholdOutcomes(
        PooledCounts(QUARTERS, np.array([[1, 0, 0, 0], [1, 0, 0, 0]]), (4,)), 0.9
    )
    low, high = PRECISION.extremes(nothing.corners)
    assert math.isnan(low)
    assert math.isnan(high)


def test_noise_of_outcomes_is_that_of_sums_of_bins():
    counts = np.array([[80.0, 40, 20, 10], [10, 20, 40, 80]])
    pooled = PooledCounts(CLIPPED, counts, (4,), (9.0,))
    (corner,) = ThresholdOutcomes(pooled, 0.25).corners
    # Three bins flagged, one not; classes and bins are independent on a flat tree.
    np.testing.assert_allclose(corner.noise, np.diag([27.0, 27.0, 9.0, 9.0]))
    tree = PooledCounts(CLIPPED, counts, (2, 2), (9.0, 9.0))
    (corner,) = ThresholdOutcomes(tree, 0.25).corners
    assert corner.noise[0, 2] == corner.noise[2, 0] != 0
    assert corner.noise[0, 1] == corner.noise[0, 3] == corner.noise[1, 2] == 0
    total = corner.noise[np.ix_([0, 2], [0, 2])].sum()
    assert total == pytest.approx(tree.deviation_of_totals**2)


def test_matthews_correlation():
    mcc = Correlation()
    assert mcc.value(Outcomes(5.0, 0.0, 0.0, 5.0)) == pytest.approx(1)
    assert mcc.value(Outcomes(0.0, 5.0, 5.0, 0.0)) == pytest.approx(-1)
    assert mcc.value(Outcomes(2.0, 2.0, 3.0, 3.0)) == 0
    for empty in (
        Outcomes(0.0, 0.0, 3.0, 4.0),
        Outcomes(3.0, 4.0, 0.0, 0.0),
        Outcomes(3.0, 0.0, 4.0, 0.0),
        Outcomes(0.0, 3.0, 0.0, 4.0),
    ):
        assert math.isnan(mcc.value(empty))


def test_f_beta_is_precision_or_recall_at_its_ends():
    outcomes = Outcomes(6.0, 2.0, 4.0, 9.0)
    assert f_beta_ratio(1e-9).value(outcomes) == pytest.approx(6 / 8)
    assert f_beta_ratio(1e9).value(outcomes) == pytest.approx(6 / 10)
    assert f_beta_ratio(1).value(outcomes) == pytest.approx(2 * 0.75 * 0.6 / 1.35)
