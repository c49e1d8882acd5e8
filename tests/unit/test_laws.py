"""The tables against the true laws, in more digits than the tables have."""

from fractions import Fraction
from functools import partial
from itertools import pairwise

import mpmath
import numpy as np
import pytest

from fedgauge.errors import PlanError
from fedgauge.privacy import laws
from fedgauge.privacy.keystream import SimulatedKeystream
from fedgauge.privacy.laws import BITS

SHAPES = [Fraction(1, 1000), Fraction(1, 19), Fraction(1, 2), Fraction(1), Fraction(41, 19)]
RATES = [Fraction(1, 10**6), Fraction(1, 3), Fraction(1), Fraction(37, 2), Fraction(5000)]
SPREADS = [Fraction(1, 20), Fraction(1, 2), Fraction(1), Fraction(301, 19), Fraction(4000)]


def negative_binomial(shape, epsilon):
    """P(k) by gamma functions, with success probability p = 1 - a."""
    epsilon = mpmath.mpf(epsilon)
    p = -mpmath.expm1(-epsilon)
    r = mpmath.mpf(shape.numerator) / shape.denominator
    start = r * mpmath.log(p) - mpmath.loggamma(r)
    mean = r * (1 - p) / p

    def mass(k):
        return mpmath.exp(start + mpmath.loggamma(k + r) - mpmath.loggamma(k + 1) - k * epsilon)

    return mass, mean, mean / p


def poisson(rate):
    rate = mpmath.mpf(rate.numerator) / rate.denominator

    def mass(k):
        return mpmath.exp(k * mpmath.log(rate) - rate - mpmath.loggamma(k + 1))

    return mass, rate, rate


def discrete_laplace(epsilon):
    half = mpmath.mpf(epsilon) / 2
    # 2 a / (1 - a)^2 = 1 / (2 sinh^2(epsilon / 2)); (1 - a) / (1 + a) = tanh(epsilon / 2).
    return (
        lambda k: mpmath.tanh(half) * mpmath.exp(-2 * half * abs(k)),
        mpmath.mpf(0),
        1 / (2 * mpmath.sinh(half) ** 2),
    )


def discrete_gaussian(spread):
    s = mpmath.mpf(spread.numerator) / spread.denominator

    # Poisson summation turns the slow series for a wide law into a fast one.
    def total(t):
        return mpmath.sqrt(mpmath.pi / t) * mpmath.nsum(
            lambda j: mpmath.exp(-((mpmath.pi * j) ** 2) / t), [-mpmath.inf, mpmath.inf]
        )

    weight = total(1 / (2 * s))
    # E k^2 = -d/dt log total(t).
    variance = -mpmath.diff(lambda t: mpmath.log(total(t)), 1 / (2 * s))
    return lambda k: mpmath.exp(-k * k / (2 * s)) / weight, mpmath.mpf(0), variance


CASES = {
    **{
        f"negative binomial {shape} {epsilon}": (
            partial(laws.negative_binomial, shape, epsilon),
            partial(negative_binomial, shape, epsilon),
        )
        for shape in SHAPES
        for epsilon in (0.1, 1.0, 6.0)
    },
    **{f"poisson {rate}": (partial(laws.poisson, rate), partial(poisson, rate)) for rate in RATES},
    **{
        f"laplace {epsilon}": (
            partial(laws.discrete_laplace, epsilon),
            partial(discrete_laplace, epsilon),
        )
        for epsilon in (0.02, 0.5, 1.0, 8.0)
    },
    **{
        f"gaussian {spread}": (
            partial(laws.discrete_gaussian, spread),
            partial(discrete_gaussian, spread),
        )
        for spread in SPREADS
    },
}
every_law = pytest.mark.parametrize("name", CASES)


def masses(table):
    """The table's law, as exact numbers of 2^-128."""
    edges = [0, *table.cumulative, 2**BITS]
    return [high - low for low, high in pairwise(edges)]


def numbered(table):
    return enumerate(masses(table), start=table.first)


@every_law
def test_the_distance_to_the_true_law_is_within_the_bound(name):
    make, truth = CASES[name]
    table = make()
    with mpmath.workprec(300):
        mass = truth()[0]
        inside = distance = mpmath.mpf(0)
        for k, drawn in numbered(table):
            true = mass(k)
            inside += true
            distance += abs(mpmath.ldexp(drawn, -BITS) - true)
        outside = 1 - inside
        assert -(mpmath.mpf(2) ** -200) < outside < 2.0**-119
        distance = (distance + outside) / 2
        assert distance <= table.distance
        assert table.distance <= 2.0**-100


@every_law
def test_moments_are_those_of_the_true_law_and_of_the_table(name):
    make, truth = CASES[name]
    table = make()
    with mpmath.workprec(300):
        _, mean, variance = truth()
        assert table.mean == pytest.approx(float(mean), rel=1e-14, abs=1e-30)
        assert table.variance == pytest.approx(float(variance), rel=1e-14)
    first = Fraction(sum(k * mass for k, mass in numbered(table)), 2**BITS)
    second = Fraction(sum(k * k * mass for k, mass in numbered(table)), 2**BITS)
    assert float(first) == pytest.approx(table.mean, rel=1e-12, abs=1e-25)
    assert float(second - first**2) == pytest.approx(table.variance, rel=1e-12)


@every_law
def test_tables_rise_to_the_end(name):
    table = CASES[name][0]()
    assert all(mass >= 0 for mass in masses(table))
    assert table.cumulative[-1] <= 2**BITS
    if name.startswith(("laplace", "gaussian")):
        drawn = masses(table)
        assert len(drawn) == 1 - 2 * table.first
        # Rounding may differ by a unit on each side; what is cut goes to the last value.
        assert all(abs(a - b) <= 2 for a, b in zip(drawn[1:-1], drawn[-2:0:-1], strict=True))


class Scripted:
    """Words as they are written down."""

    def __init__(self, words):
        self.left = list(words)

    def words(self, count):
        taken, self.left = self.left[:count], self.left[count:]
        assert len(taken) == count
        return np.array(taken, dtype=np.uint64)


def inverse(table, number):
    return table.first + sum(edge <= number for edge in table.cumulative)


def crafted(table):
    """128-bit numbers on, beside and between the edges of a table."""
    edges = {0, 2**BITS - 1}
    for edge in table.cumulative[:: max(1, len(table.cumulative) // 40)]:
        edges |= {edge - 1, edge, edge + 1, (edge >> 64) << 64, edge | (2**64 - 1)}
        edges |= {edge - 2**64, edge + 2**64}
    return sorted(edge for edge in edges if 0 <= edge < 2**BITS)


@pytest.mark.parametrize(
    "make",
    [
        partial(laws.negative_binomial, Fraction(1, 3), 0.7),
        partial(laws.poisson, Fraction(9, 2)),
        partial(laws.discrete_laplace, 0.5),
        partial(laws.discrete_gaussian, Fraction(7)),
        partial(laws.discrete_gaussian, Fraction(4000)),  # its last edge is 2^128
    ],
)
def test_draws_invert_all_128_bits(make):
    table = make()
    seen = set()
    for number in crafted(table):
        source = Scripted([number >> 64, number & (2**64 - 1)])
        assert table.draw(source, 1).tolist() == [inverse(table, number)]
        # The low word is read when, and only when, the high one leaves the value open.
        tied = (number >> 64) in {edge >> 64 for edge in table.cumulative}
        assert len(source.left) == (0 if tied else 1)
        seen.add(tied)
    assert seen == {True, False}


def test_ties_are_settled_one_by_one_in_order():
    table = laws.poisson(Fraction(2))
    edge = table.cumulative[1]
    high, low = edge >> 64, edge & (2**64 - 1)
    source = Scripted([high, 0, high, 2**63, high, low - 1, low, low + 1])
    expected = [table.first + 1, 0, table.first + 2, inverse(table, 1 << 127), table.first + 2]
    assert table.draw(source, 5).tolist() == expected
    assert source.left == []


def test_edges_that_share_a_high_word_are_told_apart():
    table = laws.discrete_laplace(0.5)
    shared = [edge for edge in table.cumulative if edge >> 64 == 2**64 - 1]
    assert len(shared) > 20
    for edge in shared:
        for number in (edge - 1, edge):
            source = Scripted([number >> 64, number & (2**64 - 1)])
            assert table.draw(source, 1).tolist() == [inverse(table, number)]


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_as_many_draws_as_asked_for(count):
    draws = laws.poisson(Fraction(3)).draw(SimulatedKeystream(1), count)
    assert draws.shape == (count,)
    assert draws.dtype == np.int64


@pytest.mark.parametrize(
    "make",
    [
        partial(laws.negative_binomial, Fraction(1, 3), 100.0),
        partial(laws.poisson, Fraction(1, 2**130)),
        partial(laws.discrete_laplace, 100.0),
        partial(laws.discrete_gaussian, Fraction(1, 1000)),
    ],
)
def test_a_law_of_one_value_draws_that_value(make):
    assert make().draw(SimulatedKeystream(1), 3).tolist() == [0, 0, 0]


def test_a_law_too_wide_for_a_table_is_refused(monkeypatch):
    monkeypatch.setattr(laws, "_MOST_VALUES", 100)
    laws.negative_binomial.cache_clear()
    with pytest.raises(PlanError, match="too wide"):
        laws.negative_binomial(Fraction(1, 7), 0.1)
    assert len(laws.negative_binomial(Fraction(1, 7), 1.0).cumulative) < 100


def test_a_law_that_no_float_measures_is_too_wide():
    with pytest.raises(PlanError, match="too wide"):
        laws.negative_binomial(Fraction(1, 7), Fraction(5e-324) / 128)


@pytest.mark.parametrize("shape", [Fraction(1, 19), Fraction(1), Fraction(5, 2)])
def test_a_wide_table_is_right_wherever_it_is_looked_at(shape):
    # As wide as the noise of score sums; every value would take minutes.
    table = laws.negative_binomial(shape, Fraction(1, 1280))
    assert len(table.cumulative) > 90_000
    with mpmath.workprec(300):
        truth, _, _ = negative_binomial(shape, Fraction(1, 1280))
        for k in (0, 1, 2, 999, 20_011, 70_000, len(table.cumulative) - 1):
            below = table.cumulative[k - 1] if k else 0
            found = mpmath.mpf(table.cumulative[k] - below)
            assert abs(found - mpmath.ldexp(truth(k), BITS)) <= 1  # two roundings


def test_more_shares_than_parties_may_need_longer_tables_than_one_share():
    # Refused after the sum was opened, a result would be lost.
    narrowest = laws._TAIL_BITS * np.log(2) / laws._MOST_VALUES
    table = laws.negative_binomial(Fraction(8), Fraction(float(narrowest) * 1.0001))
    assert len(table.cumulative) > laws._MOST_VALUES
    with pytest.raises(PlanError, match="too wide"):
        laws.negative_binomial(Fraction(8), Fraction(float(narrowest) * 0.999))
