"""What exact sums over several sets of sites show together, against brute force."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgauge.site import differencing
from fedgauge.site.differencing import fewest_shown


def named(*sets):
    return [frozenset(bytes([site]) for site in chosen) for chosen in sets]


def fewest_by_rank(sets, sites):
    """The smallest set of columns outside of which the rows lose rank."""
    rows = np.array([[site in chosen for site in range(sites)] for chosen in sets], dtype=float)
    rank = np.linalg.matrix_rank(rows)
    for size in range(1, sites + 1):
        for shown in itertools.combinations(range(sites), size):
            others = [site for site in range(sites) if site not in shown]
            if rank > (np.linalg.matrix_rank(rows[:, others]) if others else 0):
                return size
    return 0


@pytest.mark.parametrize(
    ("sets", "fewest"),
    [
        ([{0, 1, 2}], 3),
        ([{0, 1, 2}, {0, 1, 2}], 3),
        ([{0, 1, 2, 3}, {0, 1, 2}], 1),
        ([{0, 1, 2, 3, 4, 5}, {0, 1, 2}], 3),
        # No two of these differ by fewer than two, but all three show each site.
        ([{0, 1}, {1, 2}, {0, 2}], 1),
        ([set(range(7)), {0, 1, 2}, {3, 4, 5}], 1),
        # Weighted: twice one site and nothing else.
        ([{0, 1, 2, 3}, {0, 1, 4, 5}, {2, 3, 4, 5}, {0, 4, 2, 6}, {1, 3, 5, 6}], 1),
    ],
)
def test_known_cases(sets, fewest):
    assert fewest_shown(named(*sets)) == fewest


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sets(st.integers(0, 6), min_size=1), min_size=1, max_size=5))
def test_random_sets_against_ranks(sets):
    assert fewest_shown(named(*sets)) == fewest_by_rank(sets, 7)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sets(st.integers(0, 9), min_size=1), min_size=2, max_size=5))
def test_one_more_sum_never_hides_anything(sets):
    assert fewest_shown(named(*sets)) <= fewest_shown(named(*sets[:-1]))


def test_too_many_sets_cannot_be_told(monkeypatch):
    monkeypatch.setattr(differencing, "MOST_WORK", 3)
    sets = named(range(10), range(3, 10), range(5, 10), range(7, 10))
    assert fewest_shown(sets) is None
