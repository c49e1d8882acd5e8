"""Estimates as they print, levels, and the arithmetic of intervals."""

import math
import operator
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from rows import draw_rows, split
from scipy.special import ndtri

import fedgauge as fg
from fedgauge.estimation.counts import PooledCounts
from fedgauge.metrics import areas, ranking
from fedgauge.metrics.estimate import (
    Estimate,
    Interval,
    accepted,
    check_level,
    critical,
    holding,
    logit_interval,
    show,
    within,
)
from fedgauge.metrics.ranking import Reading

ROWS = ([0, 0, 1, 1, 0, 1], [0.1, 0.4, 0.35, 0.8, 0.2, 0.9])


def test_levels_change_nothing_but_themselves_and_some_are_none():
    result = fg.evaluate({"a": ROWS})
    for level in (0.3, 0.499, 1, 1.0, 1.5, -0.95, 95, True, "x", None, math.nan):
        for check in (check_level, result.at_level):
            with pytest.raises(fg.InputError, match=r"level must lie from 0\.5 to below 1"):
                check(level)
    result = fg.evaluate({"a": ROWS}, estimator=fg.Aligned("linear"))
    other = result.at_level(0.8)
    assert (other.estimator, other.plan, other.clients) == (
        result.estimator,
        result.plan,
        result.clients,
    )
    assert other.with_estimator(fg.Aligned()).level == 0.8
    assert result.level == 0.95


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999999, np.float64(0.8)])
def test_levels(level):
    assert check_level(level) == level
    assert type(check_level(level)) is float
    assert critical(level) == pytest.approx(float(ndtri((1 + level) / 2)))
    result = fg.evaluate({"a": ROWS}).at_level(level)
    assert result.level == result.roc_auc.level == level


def test_numbers_as_they_print():
    printed = {0.0: "0.0000", 0.12345: "0.1235", 1.0: "1.0000", 1.5: "1.5000", 2.0: "2"}
    printed |= {
        -0.25: "-0.2500",
        99.99: "99.9900",
        100.4: "100",
        12_345.0: "12,345",
        -250.0: "-250",
    }
    assert {number: show(number) for number in printed} == printed


def test_an_estimate_in_words():
    with_interval = Estimate(0.9, (0.89, 0.91), 0.85, 0.94, 0.95)
    assert str(with_interval) == "0.9000 (0.8500 to 0.9400 at 95%)"
    assert repr(with_interval) == "Estimate(0.9000, interval 0.8500..0.9400 at 95%)"
    rough = Estimate(0.9, (0.89, 0.91), 0.85, 0.94, 0.999, caution="few examples")
    assert str(rough) == "0.9000 (0.8500 to 0.9400 at 99.9%, rough: few examples)"
    assert str(Estimate(7.0, (7.0, 7.0))) == "7"
    assert str(Estimate(7.0, (5.0, 9.0))) == "7 (pooled data: 5 to 9)"
    assert "at 90%" in str(Estimate(7.0, (5.0, 9.0), level=0.9))
    assert str(Estimate(53.4213, (41.7, 64.9), level=0.95)) == "53 (pooled data: 42 to 65 at 95%)"
    assert repr(Estimate(0.0, (0.0, 3.2573))) == "Estimate(0, bounds 0..3)"
    assert str(Estimate(1.0, (1.0, 1.0))) == "1"
    assert repr(Estimate(0.5, (0.25, 0.75))) == "Estimate(0.5000, bounds 0.2500..0.7500)"
    assert float(with_interval) == 0.9


def test_accepted_values_at_the_ends_in_range_and_beyond():
    for start, variance, expected in (
        (0.5, 1.0, (0.0, 1.0)),  # nothing is rejected
        (0.5, 0.0, (0.5, 0.5)),  # everything else is
        *((0.0, 0.01, (0.0, 0.2)), (1.0, 0.01, (0.8, 1.0)), (0.5, 0.01, (0.3, 0.7))),
        *((0.0, 0.0, (0.0, 0.0)), (1.0, 0.0, (1.0, 1.0))),
    ):
        found = accepted(start, lambda x, s=start: s - x, lambda _, v=variance: v, 2.0)
        assert found == pytest.approx(expected, abs=1e-12)
        assert found.low <= start <= found.high
    # A count above the line at 0 only: unbiased counts can be negative.
    low, high = accepted(0.0, lambda x: -0.1 - x, lambda _: 0.01, 2.0)
    assert 0 <= low <= high <= 1
    assert high == pytest.approx(0.1, abs=1e-12)
    assert holding(Interval(0.2, 0.4), 0.3) == (0.2, 0.4)
    assert holding(Interval(0.2, 0.4), 0.5, 0.1) == (0.1, 0.5)
    assert within(Interval(-0.2, 1.4), 0, 1) == (0, 1)
    assert within(Interval(1.2, 1.4), 0, 1) == (1, 1)
    assert logit_interval(1e-12, 0.5, 3.0) == (0.0, 1.0)  # far out, without overflow


def test_intervals_that_are_rough_say_so():
    for half, words in ((10, "fewer than 20 examples"), (100, None)):
        result = fg.evaluate({"a": ([0, 1] * half, np.arange(2 * half) / (2 * half))})
        for estimate in (result.average_precision, result.auprg, result.partial_auc(0.5)):
            assert (words is None) == (estimate.caution is None)
            assert words is None or words in estimate.caution
            assert ("rough" in str(estimate)) == (words is not None)
        assert result.roc_auc.caution is None  # made for few examples


def test_a_bootstrap_that_shows_no_error_says_so_and_one_pair_is_rough():
    labels = np.repeat([0, 1], 50)
    result = fg.evaluate({"a": (labels, labels * 0.5 + 0.2)}, axis=fg.Axis.from_values([0.2, 0.7]))
    for estimate in (result.auprg, result.partial_auc(0.3)):
        assert "hardly any example is misplaced" in estimate.caution
    for labels in ([0, 1], [1, 0]):
        axis = fg.Axis.from_values([0.2, 0.8])
        result = fg.evaluate({"a": (labels, [0.2, 0.8])}, axis=axis)
        auc = result.roc_auc
        assert auc.value == labels[1]
        assert auc.parts["sampling"] == 0
        assert auc.high - auc.low > 0.7
        assert 0 <= auc.low <= auc.value <= auc.high <= 1
        assert result.average_precision.low < result.average_precision.value
        assert result.average_precision.caution is not None


def test_faint_totals_say_so():
    clients, axis = split(*draw_rows(300, rate=0.5), 3), fg.Axis.uniform(64, outside="clip")
    faint = "the noise is a large part of the number of examples of a class"
    for epsilon, told in ((0.5, faint), (8.0, None)):
        result = fg.evaluate(clients, privacy=fg.DistributedDP(epsilon), axis=axis, seed=3)
        assert result.roc_auc.caution == told


def test_intervals_under_noise_stand_on_unbiased_counts():
    axis = fg.Axis.uniform(4, outside="clip")
    released = np.array([[400.0, 90.0, -60.0, 20.0], [20.0, -60.0, 90.0, 400.0]])
    pooled = PooledCounts(axis, released, (4,), (400.0,))
    found = ranking.roc_auc(Reading(pooled, fg.Aligned("linear", shrink=False), 0.95))
    unbiased, repaired = (areas.straight_auc(*c) for c in (released, pooled.counts))
    assert found.value == pytest.approx(repaired, abs=1e-9)
    assert unbiased < repaired - 0.02
    z, spread = critical(0.95), math.hypot(found.parts["noise"], found.parts["sampling"])
    assert found.low < unbiased - 0.8 * z * spread
    axis = fg.Axis.uniform(12, outside="clip")
    released = np.array([[20.0] + [0.0] * 11, [0.2] * 4 + [0.0] * 7 + [20.0]])
    pooled = PooledCounts(axis, released, (3, 4), (0.1, 0.1))
    found = ranking.average_precision(Reading(pooled, fg.Quantile(6), 0.95))
    assert found.value == found.high == 1
    assert 0 < found.low < 0.9


def test_an_interval_shrinks_with_examples_and_covers_a_half_where_a_model_is_useless():
    widths = []
    for size in (5, 50, 500):
        labels = np.repeat([0, 1], size)
        result = fg.evaluate({"a": (labels, labels * 0.5 + 0.2)}, axis=fg.Axis.uniform(10))
        assert result.roc_auc.high == 1
        widths.append(1 - result.roc_auc.low)
        assert 0 < 1 - result.average_precision.low < 1
    assert widths[0] > 3 * widths[1] > 9 * widths[2]
    rng = np.random.default_rng(2)
    result = fg.evaluate({"a": (np.arange(2000) % 2, rng.random(2000))})
    assert result.roc_auc.low < 0.5 < result.roc_auc.high
    assert result.roc_auc.high - result.roc_auc.low == pytest.approx(4 * 0.01291, rel=0.05)


def test_binning_adds_to_an_interval_in_full():
    """An offset does not average out: in squares, coverage would fall as examples grow."""
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 2, 4000)
    scores = np.clip(rng.normal(0.4 + 0.2 * labels, 0.15), 0, 1)
    auc = fg.evaluate({"a": (labels, scores)}, axis=fg.Axis.uniform(10)).roc_auc
    alone = logit_interval(auc.value, auc.parts["sampling"], critical(0.95))
    assert auc.low == pytest.approx(alone.low - (auc.value - auc.bounds[0]), abs=1e-9)
    assert auc.high == pytest.approx(alone.high + (auc.bounds[1] - auc.value), abs=1e-9)


auc = Estimate(0.875, (0.85, 0.9), 0.8, 0.95, 0.95, {"binning": 0.02})
count = Estimate(578.0, (570.0, 590.0))


def test_formats_converts_and_is_frozen():
    assert f"{auc:.3f} {auc:6.2%} {auc:>8.1e}" == "0.875 87.50%  8.8e-01"
    assert f"{count:,.0f}" == "578"
    assert f"{auc}" == str(auc)
    with pytest.raises(ValueError, match="format"):
        f"{auc:nonsense}"
    assert (float(auc), int(count), math.sqrt(Estimate(0.25, (0, 1)))) == (0.875, 578, 0.5)
    assert (round(auc, 1), round(Estimate(2.6, (2, 3)))) == (0.9, 3)
    assert type(round(auc, 1)) is float
    assert type(round(count)) is int
    assert auc.interval == (auc.interval.low, auc.interval.high) == (0.8, 0.95)
    assert count.interval is None
    parts = {"binning": 0.02}
    estimate = Estimate(0.5, (0.4, 0.6), parts=parts)
    parts["binning"] = 1.0
    assert estimate.parts == {"binning": 0.02}
    with pytest.raises(TypeError):
        estimate.parts["binning"] = 1.0
    with pytest.raises(AttributeError):
        estimate.value = 1.0


def test_compares_with_numbers_other_estimates_and_nan():
    for less in (0.5, 0, np.float64(0.5), np.int64(0), Fraction(1, 2)):
        assert [auc > less, auc >= less, less < auc, less <= auc] == [True] * 4
        assert [auc < less, auc <= less, less > auc, less >= auc] == [False] * 4
    same = 0.875
    assert [auc >= same, auc <= same, auc > same, auc < same] == [True, True, False, False]
    assert sorted([count, auc]) == [auc, count]
    assert max(auc, count) is count
    nothing = Estimate(math.nan, (math.nan, math.nan))
    assert f"{nothing:.3f}" == "nan"
    assert [nothing > 0.5, nothing <= 0.5] == [False, False]
    assert nothing != 0.5
    assert nothing != math.nan


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


def test_arithmetic_gives_floats_also_with_numpy():
    other = Estimate(0.5, (0.4, 0.6), 0.3, 0.7, 0.95)
    assert (auc - other, auc + other, auc * other, auc / other) == (0.375, 1.375, 0.4375, 1.75)
    assert (2 * auc - 1, 1 - auc, 1 + auc, 1.75 / auc) == (0.75, 0.125, 1.875, 2.0)
    assert (-auc, abs(Estimate(-0.5, (-1, 0)))) == (-0.875, 0.5)
    assert sum([auc, other]) == 1.375
    for made in (auc - other, auc - 1, 1 - auc, 2 * auc, auc / 2, auc + np.float64(1), -auc):
        assert type(made) is float
    for bad in ("0.5", None, [0.5]):
        for action in (operator.gt, operator.le, operator.sub, operator.add):
            with pytest.raises(TypeError):
                action(auc, bad)
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
