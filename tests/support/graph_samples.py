"""Random graphs of a secure sum, and exact tails of what can happen in them."""

import itertools
import math
from fractions import Fraction

import numpy as np
import scipy.stats

FALSE_ALARM = 1e-6  # of each statistical test below; their seeds are fixed
SIGMAS = scipy.stats.norm.isf(FALSE_ALARM)


def log2(number):
    """Of an exact number, however small or large."""
    number = Fraction(number)
    if not number:
        return -math.inf
    return math.log2(number.numerator) - math.log2(number.denominator)


def at_least(j, n, g, k):
    """P[H >= j], H the marked ones among k of n of which g are marked, exactly."""
    ways = sum(math.comb(g, i) * math.comb(n - g, k - i) for i in range(max(j, 0), k + 1))
    return Fraction(ways, math.comb(n, k))


def seed_of(*numbers):
    return np.random.default_rng(numbers).bytes(16)


def random_picks(rng, n, k, trials):
    """Who is picked by whom in random graphs: trials x members x members, true or false."""
    order = rng.random((trials, n, n))
    order[:, np.arange(n), np.arange(n)] = 2.0
    return order.argsort(axis=2).argsort(axis=2) < k


def subsets(members, sizes):
    return itertools.chain.from_iterable(itertools.combinations(members, s) for s in sizes)
