"""Estimates take part in comparisons, arithmetic, formats and NumPy as their value."""

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from fedgauge import Estimate

auc = Estimate(0.875, (0.85, 0.9), 0.8, 0.95, 0.95, {"binning": 0.02})
count = Estimate(578.0, (570.0, 590.0))


def test_formats():
    assert f"{auc:.3f} {auc:6.2%} {auc:>8.1e}" == "0.875 87.50%  8.8e-01"
    assert f"{count:,.0f}" == "578"
    assert f"{auc}" == str(auc)
    with pytest.raises(ValueError, match="format"):
        f"{auc:nonsense}"


def test_converts():
    assert (float(auc), int(count), math.sqrt(Estimate(0.25, (0, 1)))) == (0.875, 578, 0.5)
    assert (round(auc, 1), round(Estimate(2.6, (2, 3)))) == (0.9, 3)
    assert type(round(auc, 1)) is float
    assert type(round(count)) is int


@pytest.mark.parametrize("number", [0.5, 0, np.float64(0.5), np.int64(0), Fraction(1, 2)])
def test_compares_with_a_lesser_number(number):
    assert auc > number
    assert auc >= number
    assert not auc < number
    assert not auc <= number
    assert number < auc
    assert number <= auc
    assert not number > auc
    assert not number >= auc


def test_compares_with_its_own_value_and_another_estimate():
    assert auc >= 0.875
    assert auc <= 0.875
    assert not auc > 0.875
    assert not auc < 0.875
    assert sorted([count, auc]) == [auc, count]
    assert max(auc, count) is count


def test_equality_is_of_everything_with_estimates_and_of_the_value_with_numbers():
    same = Estimate(0.875, (0.85, 0.9), 0.8, 0.95, 0.95, {"binning": 0.02})
    assert same == auc
    assert hash(same) == hash(auc) == hash(0.875)
    for other in (
        Estimate(0.876, (0.85, 0.9), 0.8, 0.95, 0.95, {"binning": 0.02}),
        Estimate(0.875, (0.84, 0.9), 0.8, 0.95, 0.95, {"binning": 0.02}),
        Estimate(0.875, (0.85, 0.9), 0.8, 0.95, 0.9, {"binning": 0.02}),
        Estimate(0.875, (0.85, 0.9), 0.8, 0.95, 0.95, {"binning": 0.03}),
        Estimate(0.875, (0.85, 0.9), 0.8, 0.95, 0.95, {"binning": 0.02}, "rough"),
    ):
        assert other != auc
    assert count == 578
    assert np.float64(0.875) == auc
    assert auc != 0.9
    assert auc != "0.875"
    assert auc is not None
    assert auc != None  # noqa: E711


def test_arithmetic_gives_floats():
    other = Estimate(0.5, (0.4, 0.6), 0.3, 0.7, 0.95)
    assert (auc - other, auc + other, auc * other, auc / other) == (0.375, 1.375, 0.4375, 1.75)
    assert (2 * auc - 1, 1 - auc, 1 + auc, 1.75 / auc) == (0.75, 0.125, 1.875, 2.0)
    assert (-auc, abs(Estimate(-0.5, (-1, 0)))) == (-0.875, 0.5)
    assert sum([auc, other]) == 1.375
    for made in (auc - other, auc - 1, 1 - auc, 2 * auc, auc / 2, auc + np.float64(1), -auc):
        assert type(made) is float


@pytest.mark.parametrize("other", ["0.5", None, [0.5]])
def test_what_is_no_number_is_refused(other):
    for action in (
        lambda: auc > other,
        lambda: auc <= other,
        lambda: auc - other,
        lambda: auc + other,
    ):
        with pytest.raises(TypeError):
            action()


def test_numpy_takes_the_value():
    assert np.asarray(auc).dtype == np.float64
    assert np.asarray(auc) == 0.875
    assert np.asarray(auc, dtype=np.float32).dtype == np.float32
    assert auc.__array__(np.float32).dtype == np.float32
    assert np.array([auc, count]).tolist() == [0.875, 578.0]
    assert np.mean([auc, Estimate(0.125, (0, 1))]) == 0.5
    assert np.isclose(auc, 0.875)
    grid = np.array([0.5, 1.0])
    assert (auc > grid).tolist() == (grid < auc).tolist() == [True, False]
    assert (auc - grid).tolist() == [0.375, -0.125]
    assert (grid - auc).tolist() == [-0.375, 0.125]
    assert (pd.Series(grid) > auc).tolist() == [False, True]


def test_interval():
    low, high = auc.interval
    assert (low, high) == (auc.interval.low, auc.interval.high) == (0.8, 0.95)
    assert count.interval is None


def test_a_value_that_is_none_compares_as_nan_does():
    nothing = Estimate(math.nan, (math.nan, math.nan))
    assert f"{nothing:.3f}" == "nan"
    assert not nothing > 0.5
    assert not nothing <= 0.5
    assert nothing != 0.5
    assert nothing != math.nan


def test_an_estimate_is_frozen():
    parts = {"binning": 0.02}
    estimate = Estimate(0.5, (0.4, 0.6), parts=parts)
    parts["binning"] = 1.0
    assert estimate.parts == {"binning": 0.02}
    with pytest.raises(TypeError):
        estimate.parts["binning"] = 1.0
    with pytest.raises(AttributeError):
        estimate.value = 1.0
