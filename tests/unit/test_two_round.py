"""Bins of equal depth, from the counts of a coarse axis: which ones, and which are refused."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

import fedgauge as fg
from fedgauge.errors import AxisError
from fedgauge.histograms.axis import Axis
from fedgauge.histograms.two_round import PARTS, CoarseGroups, TwoRound

COARSE = {
    "asinh": Axis.asinh(64),
    "uniform": Axis.uniform(64, outside="clip"),
    "logit": Axis.logit(64, limit=32.0, outside="clip"),
    "uneven": Axis.from_edges([-5.0, -4.0, 0.0, 0.5, 100.0], outside="clip"),
}


def counted(counts, starts=None):
    return CoarseGroups(range(len(counts)) if starts is None else starts, list(map(int, counts)))


def on_eight(counts, bins=8, **options):
    two = TwoRound(bins, coarse=Axis.uniform(8, 0.0, 8.0, outside="clip"), **options)
    return two.axis(counted(counts)).edges.tolist()


@st.composite
def searches(draw):
    """Any two rounds, and counts that a first one could release: noisy, merged, or made up."""
    coarse = COARSE[draw(st.sampled_from(sorted(COARSE)))]
    bins = draw(st.integers(3, 100))
    least = -(-coarse.bins // (bins // 2 or 1))
    widest = draw(st.sampled_from([0, coarse.bins, max(least, 1)]))
    if widest < least:
        widest = 0
    narrowest = draw(st.sampled_from([0.0, 0.0, 1e-3, 0.3]))
    two = TwoRound(bins, coarse=coarse, narrowest=narrowest, widest=widest)
    starts = sorted({0, *draw(st.sets(st.integers(0, coarse.bins - 1)))})
    if draw(st.booleans()):
        starts = list(range(coarse.bins))
    number = st.one_of(st.integers(-50, 50), st.integers(-(2**62), 2**62), st.just(0))
    counts = draw(st.lists(number, min_size=len(starts), max_size=len(starts)))
    return two, CoarseGroups(starts, counts)


@settings(deadline=None, max_examples=300)
@given(searches())
def test_whatever_is_counted_the_bins_are_ones_that_members_accept(search):
    two, found = search
    axis = two.axis(found)
    two.check(axis)
    assert axis.bins <= two.bins
    assert axis == two.axis(CoarseGroups(tuple(found.starts), tuple(found.counts)))


def test_each_bin_holds_the_same():
    assert on_eight([10] * 8, bins=4) == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert on_eight([0, 40, 0, 0, 40, 0, 0, 0], bins=4, widest=8) == [0.0, 1.5, 4.0, 4.5, 8.0]


def test_bins_of_many_smooth_scores_are_of_equal_depth():
    scores = np.random.default_rng(0).normal(3.0, 2.0, 100_000)
    two = TwoRound(48)
    coarse = np.histogram(scores, two.coarse.edges)[0]
    depth = np.histogram(scores, two.axis(counted(coarse)).edges)[0] * 48 / len(scores)
    assert depth.max() < 1.5
    # Few lie between the least positive scores and the least negative ones.
    assert np.sum(depth > 0.5) >= 46


def test_what_noise_adds_to_empty_bins_is_taken_off_again():
    # Cut off at zero, these counts would have two thirds of all in empty bins.
    two = TwoRound(10, coarse=Axis.uniform(100, 0.0, 100.0, outside="clip"), widest=100)
    full = np.where(np.arange(100) < 4, 50, 0)
    edges = two.axis(counted(full + 8 * (-1) ** np.arange(100))).edges
    assert np.sum(edges[:-1] < 4.0) == 9


@pytest.mark.parametrize("counts", [[0] * 8, [-5] * 8, [3, -3, 2, -9, 1, 0, 0, 0]])
def test_where_there_is_nothing_but_noise_bins_are_even(counts):
    assert on_eight(counts) == [float(edge) for edge in range(9)]


@pytest.mark.parametrize("place", [0, 7])
def test_all_scores_at_an_end_are_divided_as_far_as_it_goes(place):
    edges = on_eight([80 * (bin_ == place) for bin_ in range(8)], bins=32)
    inside = [edge for edge in edges if place <= edge <= place + 1]
    assert inside == [place + part / PARTS for part in range(PARTS + 1)]


def test_a_crowded_coarse_bin_has_edges_at_both_ends():
    assert {3.0, 4.0} <= {*on_eight([11, 11, 11, 60, 11, 11, 11, 11], bins=16)}
    # Quantiles alone are at neither.
    assert not {3.0, 4.0} & {*on_eight([11, 11, 11, 30, 11, 11, 11, 11], bins=9)}


def test_no_bin_is_wider_than_allowed():
    two = TwoRound(16, coarse=Axis.uniform(64, outside="clip"), widest=9)
    edges = two.axis(counted([100] + [0] * 63)).edges
    assert np.diff(edges).max() <= 9 / 64
    assert two.axis(counted([100] + [0] * 63)).bins <= 16
    assert TwoRound(16, coarse=Axis.uniform(64, outside="clip")).most_wide == 32
    assert TwoRound(3, coarse=Axis.uniform(64, outside="clip")).most_wide == 64


def test_no_inner_bin_is_narrower_than_allowed():
    edges = on_eight([0, 0, 0, 80, 0, 0, 0, 0], bins=32, narrowest=0.25)
    assert min(b - a for a, b in pairwise(edges[1:-1])) == 0.25


def test_where_bins_may_not_be_narrow_they_may_be_wide():
    # Of this coarse axis half lies between -0.3 and 0.3.
    two = TwoRound(12, coarse=Axis.asinh(64), narrowest=0.3, widest=11)
    axis = two.axis(counted([10] * 64))
    two.check(axis)
    assert np.diff(axis.edges).min() >= 0.3
    with pytest.raises(AxisError, match="wider than 11 coarse bins"):
        two.check(Axis.from_edges([axis.low, axis.edges[-2], axis.high], outside="clip"))


def test_where_floats_are_far_apart_bins_are_accepted():
    two = TwoRound(8, coarse=Axis.logit(512, limit=32.0, outside="clip"))
    for last in range(1, 20):
        axis = two.axis(counted([0] * (512 - last) + [100] * last))
        two.check(axis)
        assert axis.bins <= 8


def test_of_probabilities_both_classes_weigh_the_same():
    # A tenth of the scores are 0.9 and hold half of the positives, were they calibrated.
    counts = [0, 900, 0, 0, 0, 0, 0, 0, 0, 100]
    edges, plain = (
        TwoRound(32, coarse=Axis.uniform(10, 0.0, high, outside="clip")).axis(counted(counts)).edges
        / high
        for high in (1.0, 10.0)
    )
    assert np.sum(plain > 0.9) == 4
    # Half of 32 evenly, and half by depth: a tenth of the one, a quarter of the other.
    assert np.sum(edges > 0.9) == 5
    assert np.sum((edges > 0.2) & (edges < 0.9)) == 11


def test_merged_bins_are_divided_like_others():
    two = TwoRound(4, coarse=Axis.uniform(8, 0.0, 8.0, outside="clip"))
    assert two.axis(counted([40, 40], starts=[0, 4])).edges.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0]


EVEN = TwoRound(4, coarse=Axis.uniform(8, 0.0, 8.0, outside="clip"), widest=4, narrowest=0.5)


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        ([0.0, 2.01, 4.0, 6.0, 8.0], "neither one of the coarse axis"),
        ([0.0, 2.0 + 1 / 32, 4.0, 6.0, 8.0], "neither one of the coarse axis"),
        ([0.0, np.nextafter(2.0, 3.0), 4.0, 6.0, 8.0], "neither one of the coarse axis"),
        ([0.0, 1.0, 2.0, 3.0, 5.0, 8.0], "at most 4 bins"),
        ([0.0, 2.0, 2.25, 6.0, 8.0], "narrower than 0.5"),
        ([0.0, 2.0, 7.0, 8.0], "wider than 4 coarse bins"),
        ([1.0, 2.0, 5.0, 8.0], "reach as far"),
        ([0.0, 2.0, 5.0, 7.0], "reach as far"),
        ([0.0, 2.0, 5.0, 9.0], "reach as far"),
    ],
)
def test_bins_that_no_first_round_gives_are_refused(edges, words):
    with pytest.raises(AxisError, match=words):
        EVEN.check(Axis.from_edges(edges, outside="clip"))


def test_bins_that_treat_scores_beyond_them_otherwise_are_refused():
    edges = [0.0, 2.0, 4.0, 6.0, 8.0]
    EVEN.check(Axis.from_edges(edges, outside="clip"))
    with pytest.raises(AxisError, match="clip as the coarse ones do"):
        EVEN.check(Axis.from_edges(edges))
    with pytest.raises(AxisError, match="are listed"):
        EVEN.check(Axis.uniform(4, 0.0, 8.0, outside="clip"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bins": 1}, "3 to"),
        ({"bins": 2**18 + 1}, "3 to"),
        ({"bins": True}, "whole number"),
        ({"bins": 8.0}, "whole number"),
        ({"coarse": "asinh"}, "must be an Axis"),
        ({"coarse": Axis.from_values([0.0, 1.0])}, "known values"),
        ({"coarse": Axis.uniform(1)}, "a coarse axis has"),
        ({"coarse": Axis.uniform(2**16 + 1)}, "a coarse axis has"),
        ({"share": 0.0}, "between 0.01 and 0.9"),
        ({"share": 0.95}, "between 0.01 and 0.9"),
        ({"share": float("nan")}, "between 0.01 and 0.9"),
        ({"narrowest": -1.0}, "0 or above"),
        ({"narrowest": True}, "0 or above"),
        ({"narrowest": float("inf")}, "0 or above"),
        ({"widest": 127}, "between 128 and 512"),
        ({"widest": 513}, "between 128 and 512"),
    ],
)
def test_two_rounds_that_make_no_sense_are_refused(options, words):
    with pytest.raises(AxisError, match=words):
        TwoRound(**{"bins": 8, **options})


class TestCrowds:
    TWO = TwoRound(5, coarse=Axis.uniform(8, 0.0, 8.0, outside="clip"))
    AXIS = Axis.from_edges([0.0, 2.0, 3.0, 3.25, 4.0, 8.0], outside="clip")

    def crowds(self, *counts):
        return self.TWO.crowds(self.AXIS, np.array(counts, dtype=float)).tolist()

    def test_a_dense_narrow_bin_is_one_value(self):
        assert self.crowds(20, 10, 40, 5, 20) == [False, False, True, False, False]

    def test_where_a_neighbour_is_dense_too_scores_are_smooth(self):
        assert not any(self.crowds(20, 41, 40, 5, 20))
        assert not any(self.crowds(20, 5, 40, 31, 20))

    def test_a_shallow_bin_is_drawn_like_any(self):
        assert not any(self.crowds(20, 2, 15, 2, 40))

    def test_a_wide_bin_is_drawn_like_any(self):
        assert not any(self.crowds(90, 0, 1, 0, 0))

    def test_nothing_crowds_where_nothing_is(self):
        assert not any(self.crowds(0, 0, 0, 0, 0))

    def test_a_value_that_many_share_is_drawn_as_a_tie(self):
        rng = np.random.default_rng(0)
        labels = rng.random(5000) < 0.3
        scores = np.where(rng.random(5000) < 0.4, 0.0, rng.normal(2.0 * labels))
        truth = fg.exact_roc_curve(labels, scores)
        found = fg.evaluate({"all": (labels, scores)}, axis=TwoRound(48))
        assert fg.area_error(found.roc_curve(), truth) < 1e-3
        # Bins alone do not tell whoever gets them without the plan of two rounds.
        given_bins = fg.evaluate({"all": (labels, scores)}, axis=found.axis)
        assert fg.area_error(given_bins.roc_curve(), truth) > 5e-3

    def test_a_crowd_is_one_whatever_maps_its_scores(self):
        rng = np.random.default_rng(0)
        labels = rng.random(5000) < 0.3
        scores = 1.0 / (1.0 + np.exp(-rng.normal(2.0 * labels)))
        rows = {"all": (labels, np.where(rng.random(5000) < 0.4, 0.25, scores))}
        truth = fg.exact_roc_curve(*rows["all"])
        two = TwoRound(48, coarse=Axis.logit(512, limit=32.0, outside="clip"))
        found = fg.evaluate(rows, axis=two)
        mapped = found.with_calibrator(found.calibrator("platt"))
        for result in (found, mapped):
            assert fg.area_error(result.roc_curve(), truth) < 1e-3
        # Merged with its neighbours, nobody can tell it from smooth scores.
        plan = fg.EvaluationPlan.under(fg.SecureAggregation(), two, cohort=fg.Cohort(1))
        merged = fg.evaluate(rows, structs.replace(plan, min_cell=5))
        assert merged.axis.bins < found.axis.bins
        assert 1e-3 < fg.area_error(merged.roc_curve(), truth) < 8e-2
