"""Noise drawn one number at a time, against its law, every toss of coins, and opendp."""

import heapq
import itertools
import math
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from scipy import stats

from fedgauge.privacy.keystream import SimulatedKeystream
from fedgauge.vertical.auc import DiscreteGaussian, DiscreteLaplace, RandomBits

dp.enable_features("contrib")

# opendp takes no seed, so tests against it fail by chance once in a thousand million runs.
FALSE_ALARM = 1e-9
DRAWS = 20_000
LAWS = [DiscreteLaplace(Fraction(*scale)) for scale in ((1, 3), (1, 1), (7, 2))]
LAWS += [DiscreteGaussian(Fraction(*sigma2)) for sigma2 in ((1, 4), (2, 1), (31, 3))]


def masses(law, reach=400):
    values = np.arange(-reach, reach + 1)
    if isinstance(law, DiscreteLaplace):
        weights = np.exp(-np.abs(values) / float(law.scale))
    else:
        weights = np.exp(-(values**2) / (2 * float(law.sigma2)))
    return dict(zip(values.tolist(), weights / weights.sum(), strict=True))


class _Undecided(Exception):
    """Something is asked for that no toss says yet."""


class _Scripted(RandomBits):
    """Answers as it was told to, and asks for an answer by the chances of all there are."""

    def __init__(self, tosses):
        self._tosses = iter(tosses)

    def _next(self, chances):
        if (toss := next(self._tosses, None)) is None:
            raise _Undecided(chances)
        return toss

    def below(self, limit):
        return self._next([Fraction(1, limit)] * limit)

    def happens(self, chance):
        return bool(self._next([1 - chance, chance]))


def toss_all(draw, left):
    """The chance of each answer over all tosses, the likeliest first, until `left` is undecided."""
    found, undecided, count = {}, 1.0, itertools.count()
    queue = [(-1.0, next(count), ())]
    while undecided > left:
        chance, _, tosses = heapq.heappop(queue)
        try:
            value = draw(_Scripted(tosses))
        except _Undecided as asked:
            for toss, part in enumerate(asked.args[0]):
                if part:
                    heapq.heappush(queue, (chance * float(part), next(count), (*tosses, toss)))
        else:
            found[value] = found.get(value, 0) - chance
            undecided += chance
    return found


@pytest.mark.parametrize("exponent", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(9, 4)])
def test_all_tosses_together_decay_exponentially(exponent):
    found = toss_all(lambda bits: bits.decays(exponent), 1e-9)
    assert found[True] == pytest.approx(math.exp(-exponent), abs=1e-8)


def test_all_tosses_together_are_discrete_laplace():
    law, left = DiscreteLaplace(Fraction(1)), 0.05
    found, expected = toss_all(law.draw, left), masses(law)
    for value in range(-8, 9):
        chance = found.get(value, 0.0)
        assert expected[value] - left <= chance <= expected[value] * (1 + 1e-9)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_draws_have_the_law(law):
    # Seeded. Of a law that is right, one seed in a million would be rejected.
    bits = RandomBits(SimulatedKeystream(7))
    drawn = np.array([law.draw(bits) for _ in range(DRAWS)])
    expected = masses(law)
    common = [value for value, mass in expected.items() if mass * DRAWS >= 10]
    inside = np.array([np.count_nonzero(drawn == value) for value in common])
    shares = np.array([expected[value] for value in common])
    counts = np.append(inside, DRAWS - inside.sum())
    wanted = DRAWS * np.append(shares, 1 - shares.sum())
    assert stats.chisquare(counts, wanted).pvalue > 1e-6
    assert law.variance == pytest.approx(
        sum(mass * value**2 for value, mass in expected.items()), rel=0.2
    )


LAPLACE = (DiscreteLaplace, 1, dp.m.make_laplace, "i64")
GAUSSIAN = (DiscreteGaussian, 2, dp.m.make_gaussian, "f64")


@pytest.mark.parametrize("scale", [1, 40, 1_000_000])
@pytest.mark.parametrize(("law", "power", "make", "unit"), [LAPLACE, GAUSSIAN])
def test_draws_are_like_opendps(law, power, make, unit, scale):
    bits = RandomBits(SimulatedKeystream(3))
    ours = [law(Fraction(scale**power)).draw(bits) for _ in range(DRAWS)]
    noise = make(dp.atom_domain(T="i64"), dp.absolute_distance(T=unit), scale=float(scale))
    assert same_law(ours, [noise(0) for _ in range(DRAWS)]) > FALSE_ALARM


def same_law(ours, theirs):
    """P-value of a two-sample chi-square test over 20 groups with about as many draws each."""
    both = np.concatenate([ours, theirs])
    edges = np.unique(np.quantile(both, np.linspace(0, 1, 21)[1:-1]))
    groups = [np.searchsorted(edges, each) for each in (ours, theirs)]
    table = np.array([np.bincount(each, minlength=len(edges) + 1) for each in groups])
    return stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue


@pytest.mark.parametrize("limit", [1, 2, 3, 2**64, 2**64 + 1, 3**90])
def test_uniform_numbers_reach_every_size(limit):
    bits = RandomBits(SimulatedKeystream(5))
    drawn = [bits.below(limit) for _ in range(2000)]
    assert min(drawn) >= 0
    assert max(drawn) < limit
    # Seeded: a mean of 2,000 that is 6 deviations off comes once in a thousand million.
    off = (sum(drawn) / 2000 - (limit - 1) / 2) / limit
    assert abs(off) < 6 / math.sqrt(12 * 2000)
