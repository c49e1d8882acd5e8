"""Every way of finding a bin gives the same bin: direct, by table, by binary search."""

import numpy as np
import pytest

from fedgauge.binning.axis import Axis
from fedgauge.binning.lookup import BinLookup, _folded_slots, _linear_slots

CROWDED = np.array([0.0, *(0.3 + np.arange(50) * 2.0**-52), 1.0])

EDGES = {
    "dyadic": (np.arange(65) / 64, "direct"),
    "one bin": (np.array([-2.0, 5.0]), "direct"),
    "one value": (np.array([0.7, 0.7]), "search"),
    "decimal": (np.arange(101) / 100, "table"),
    "shifted": (Axis.uniform(30, -1.7, 2.9).edges, "table"),
    "logit": (Axis.logit(512).edges, "table"),
    "geometric": (2.0 ** -np.arange(40, -1, -1), "table"),
    "crowded": (CROWDED, "search"),
}


def way(lookup):
    if lookup._direct is not None:
        return "direct"
    return "table" if lookup._comparisons <= 4 else "search"


def bins_of(edges, scores):
    return BinLookup(edges)(scores, touches_top=True)


def oracle(edges, scores):
    index = np.searchsorted(edges, scores, side="right") - 1
    return np.minimum(index, len(edges) - 2)


def around(edges):
    near = np.concatenate([edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf)])
    return near[(near >= edges[0]) & (near <= edges[-1])]


@pytest.mark.parametrize("name", EDGES)
def test_each_kind_of_edges_takes_the_expected_way(name):
    edges, expected = EDGES[name]
    assert way(BinLookup(edges)) == expected


@pytest.mark.parametrize("name", EDGES)
def test_bins_equal_a_binary_search_at_and_around_every_edge(name):
    edges, _ = EDGES[name]
    inside = np.random.default_rng(1).uniform(edges[0], edges[-1], 5000)
    scores = np.concatenate([around(edges), inside])
    np.testing.assert_array_equal(bins_of(edges, scores), oracle(edges, scores))


@pytest.mark.parametrize("name", EDGES)
def test_below_the_top_no_cap_is_needed(name):
    edges, _ = EDGES[name]
    scores = around(edges)
    scores = scores[scores < edges[-1]]
    index = BinLookup(edges)(scores, touches_top=False)
    np.testing.assert_array_equal(index, oracle(edges, scores))


def test_decimal_scores_that_multiply_and_floor_misplaces():
    scores = np.arange(100) / 100
    naive = (scores * 100).astype(int)
    assert np.any(naive != np.arange(100))  # the trap is real
    np.testing.assert_array_equal(bins_of(np.arange(101) / 100, scores), np.arange(100))


@pytest.mark.parametrize("name", EDGES)
def test_no_scores_give_no_bins(name):
    assert bins_of(EDGES[name][0], np.array([])).shape == (0,)


@pytest.mark.parametrize("name", EDGES)
def test_the_answer_is_the_callers_to_change(name):
    edges, _ = EDGES[name]
    lookup = BinLookup(edges)
    scores = around(edges)
    kept = scores.copy()
    lookup(scores, touches_top=True)[:] = -1
    np.testing.assert_array_equal(scores, kept)
    np.testing.assert_array_equal(lookup(scores, touches_top=True), oracle(edges, scores))


def test_negative_zero_lies_in_the_bin_that_starts_at_zero():
    for edges in (np.array([0.0, 0.5, 1.0]), np.array([-1.0, 0.0, 0.3, 1.0]), CROWDED):
        assert bins_of(edges, np.array([-0.0])) == oracle(edges, 0.0)


@pytest.mark.parametrize("make", [_linear_slots, _folded_slots])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.5, 2.25), (0.1, 0.9), (1e-9, 1e9)])
def test_slot_functions_are_monotone(make, low, high):
    towards_ends = 10.0 ** -np.linspace(0, 20, 2000)
    unit = np.concatenate([towards_ends, 1 - towards_ends, np.linspace(0, 1, 2001)])
    scores = np.sort(np.clip(low + (high - low) * unit, low, high))
    slots = make(low, high, 4096)(scores)
    assert slots[0] == 0
    assert np.all(np.diff(slots) >= 0)
    assert slots[-1] > 4000


def test_folded_slots_tell_scores_near_both_ends_apart():
    slot = _folded_slots(0.0, 1.0, 4096)
    near_zero, near_one = 2.0 ** -np.arange(2, 50), 1 - 2.0 ** -np.arange(2, 50)
    assert len(np.unique(slot(near_zero))) == 48
    assert len(np.unique(slot(near_one))) == 48


@pytest.mark.parametrize(
    "edges",
    [
        [-1.7e308, 1.7e308],
        [-1.7e308, 0.0, 1.0, 1.7e308],
        [0.0, 5e-324],
        [0.0, 5e-324, 1e-323, 1.0e-322],
        [0.0, 5e-324, 1.0],
    ],
)
def test_ranges_at_the_limits_of_floats(edges):
    edges = np.array(edges)
    scores = around(edges)
    np.testing.assert_array_equal(bins_of(edges, scores), oracle(edges, scores))
