"""Alarm limits: how the rate is shared among looks, tests, what is watched, and what may move."""

import math

import numpy as np
import pytest
from scipy.stats import norm

import fedgauge as fg
from fedgauge.measures.drift import WINDOW, Noise, area, judge, jump_limit, moved
from fedgauge.measures.watching import Looks, follow, watch

RATE = 0.06


def test_looks_spend_the_rate_and_never_more():
    chances = [2 * norm.sf(jump_limit(RATE, look)) for look in range(2, 1001)]
    assert sum(chances) == pytest.approx(RATE * (1 - 1 / 1000))


def test_each_of_three_tests_has_a_third_of_the_rate():
    """Zeros, then one comparison at the limit of a jump; as many at the root of three of it."""
    looks = 12
    z = np.zeros(looks)
    z[0], z[-1] = np.nan, jump_limit(RATE / 3, looks)
    assert judge(z, RATE).jump[-1] == pytest.approx(1.0)
    z[-WINDOW:] = jump_limit(RATE / 3, looks) / math.sqrt(WINDOW)
    told = judge(z, RATE)
    assert told.shift[-1] == pytest.approx(1.0)
    assert told.jump[-1] < 1.0


def test_a_drift_is_a_sum_beyond_the_boundary_of_robbins():
    """Of n steps, with a mixture of one more: sqrt((n + 1) (log(n + 1) - 2 log rate))."""
    steps = 30
    boundary = math.sqrt((steps + 1) * (math.log(steps + 1) - 2 * math.log(RATE / 3)))
    z = np.full(steps + 1, boundary / steps)
    z[0] = np.nan
    assert judge(z, RATE).drift[-1] == pytest.approx(1.0)


def test_a_comparison_that_is_missing_is_no_alarm_and_no_step():
    z = np.array([np.nan, 1.0, np.nan, 1.0])
    told = judge(z, RATE)
    assert [each[2] for each in told] == [0, 0, 0]
    assert told.drift[3] == pytest.approx(judge(np.array([np.nan, 1.0, 1.0]), RATE).drift[2])


def looks_of(number=4, bins=20):
    rng = np.random.default_rng(0)
    counts = rng.poisson(60.0, (number, 2, bins)).astype(float)
    return Looks(fg.Axis.uniform(bins), counts, None)


def test_the_rate_is_shared_among_all_that_is_watched_and_all_that_may_move():
    looks = looks_of()
    found = follow(looks.first, 4, watch(looks.axis, [0.5]), RATE)
    assert len(found) == 8
    for watched, run in found.items():
        may_move = run.moved.z.shape[1]
        assert may_move == (9 if watched.name == "score_distribution" else 1)
        told = judge(run.moved.z, RATE / 8 / may_move)
        for test, shares in run.judged._asdict().items():
            assert shares == pytest.approx(getattr(told, test))


def test_looks_before_are_weighed_by_their_precision():
    """Ten times as many rows, ten times the weight."""
    few = np.array([[30.0, 20.0], [20.0, 30.0]])
    many = 10 * np.array([[26.0, 24.0], [24.0, 26.0]])
    counts = np.stack([few, many, few])
    terms = area(counts.sum(axis=0))
    rows = counts.sum(axis=-1)
    values = sum(
        (term.above * counts).sum(axis=(-2, -1)) / rows[:, row]
        for term, row in zip(terms, (1, 0), strict=True)
    )
    expected = values[2] - (values[0] + 10 * values[1]) / 11
    assert moved(counts, terms).by == pytest.approx(expected)
    assert moved(counts, terms).deviation == pytest.approx(
        np.sqrt(
            sum(
                (term.above**2 * counts.sum(axis=0)).sum() / rows[:, row].sum()
                for term, row in zip(terms, (1, 0), strict=True)
            )
            * (1 / 50 + 1 / 550)
        )
    )


def test_a_rise_by_few_rows_is_less_of_an_alarm_than_a_fall():
    """Far values of skewed counts are on one side."""
    counts = np.full((6, 2, 2), 1000.0)
    counts[:, :, 1] = 12.0  # of 1,012 flagged, in each class
    terms = watch(fg.Axis.uniform(2), [0.5])[-3].of(counts.sum(axis=0), fg.Axis.uniform(2), [])[0]
    shares = []
    for by in (-9.0, 9.0):
        changed = counts.copy()
        changed[-1, 1] += [-by, by]
        found = moved(changed, terms)
        shares.append(abs(float(found.z * found.deviation / found.by)))
    assert shares[1] < 0.97 * min(shares[0], 1.0)


def noise_by_look(variances, loud):
    def covariance(left, right):
        return np.array(variances) * (left * right).sum()

    return Noise(covariance, lambda *_: np.full((), loud))


def test_the_noise_of_a_look_is_its_own():
    """Of a later one, however noisy, nothing is known yet."""
    counts = looks_of(3).counts
    terms = area(counts.sum(axis=0))
    every = [4, 1, 9], [4, 1, 9, 1e6], [9, 1, 4]
    alone, before, other = (moved(counts, terms, noise_by_look(each, 1.0)) for each in every)
    assert before.deviation == pytest.approx(alone.deviation)
    assert other.deviation < alone.deviation


def test_no_number_is_louder_than_the_noise_of_its_look_allows():
    """None of the last, and an earlier look may be one number: a part of its share of the noise."""
    counts = np.stack([looks_of(1).counts[0]] * 3)
    terms = area(counts.sum(axis=0))
    one, none = (moved(counts, terms, noise_by_look([4, 4, 4], loud)) for loud in (1.0, 0.0))
    assert one.loud == pytest.approx(1 / 1.5)  # of variances 1, 1/4 and 1/4
    assert none.loud == pytest.approx(0.25 / 1.5)
