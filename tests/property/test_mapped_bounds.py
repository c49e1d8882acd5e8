"""Bounds of a result read through a map hold the number of the mapped pooled data."""

import math

import bounds
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given, settings
from sklearn import metrics as sk
from strategies import GRID, ON_GRID, labelled

from fedgauge import Axis, UndefinedMetric
from fedgauge.histograms.calibrator import Beta, Calibrator, LogOddsLine, Steps

# Floats next to each other may tie once they are mapped; those of people do not.
SCORES = st.one_of(ON_GRID, st.floats(0, 1).map(lambda score: round(score, 6)))
PARTS = 2 * GRID


@st.composite
def maps(draw):
    """Smooth ones, lines that stand still here and there, steps that rise or fall."""
    kind = draw(st.sampled_from(["beta", "flat", "line", "steps"]))
    if kind == "beta":
        a, b = (draw(st.sampled_from([0.0, 0.3, 1.0, 2.0])) for _ in range(2))
        return Calibrator("beta", Beta(a or b, b, draw(st.sampled_from([-1.0, 0.0, 0.7]))))
    if kind == "flat":
        return Calibrator("platt", Beta(0.0, 0.0, draw(st.sampled_from([-2.0, 0.0]))))
    size = draw(st.integers(1, 6))
    if kind == "line":
        x = sorted(draw(st.sets(st.integers(-12, 12), min_size=size, max_size=size)))
        rises = draw(st.lists(st.sampled_from([0.0, 0.0, 0.4, 1.5]), min_size=size, max_size=size))
        y = np.cumsum(rises) + draw(st.sampled_from([-2.0, 0.0]))
        return Calibrator("auto", LogOddsLine([each / 3 for each in x], y.tolist()))
    # On the edges of bins, on scores, at both ends, and elsewhere.
    edges = draw(st.sets(st.integers(0, PARTS), min_size=size, max_size=size))
    off = draw(st.sampled_from([0.0, 0.003]))
    cuts = sorted({min(edge / PARTS + off, 1.0) for edge in edges})
    values = draw(st.lists(st.integers(0, 10), min_size=len(cuts) + 1, max_size=len(cuts) + 1))
    if draw(st.booleans()):
        values = sorted(values)
    return Calibrator("binning", Steps(cuts, [value / 10 for value in values]))


@st.composite
def any_axes(draw):
    """As of results without a map, and known values."""
    if draw(st.integers(0, 5)):
        return draw(bounds.axes())
    return Axis.from_values([i / GRID for i in range(GRID + 1)])


def mapped(examples, axis, calibrator):
    labels, scores = examples
    # Scores between known values may tie with the upper one, or go anywhere.
    if axis.kind == "values" and not (calibrator.is_strict or axis.separates_all):
        assume(False)
    if axis.separates_all:
        scores = np.round(scores * GRID) / GRID
    result = bounds.pooled((labels, scores), axis).with_calibrator(calibrator)
    return result, (labels, calibrator.transform(scores))


@settings(deadline=None, max_examples=150)
@given(labelled(SCORES), any_axes(), maps(), st.sampled_from([0.1, 0.5, 1.0]))
def test_bounds_of_every_area_hold_that_of_mapped_data(examples, axis, calibrator, max_fpr):
    result, (labels, scores) = mapped(examples, axis, calibrator)
    bounds.check(result.roc_auc, sk.roc_auc_score(labels, scores), (0, 1))
    bounds.check(result.average_precision, sk.average_precision_score(labels, scores), (0, 1))
    bounds.check(result.auprg, bounds.auprg_of((labels, scores)), (-math.inf, 1))
    fpr, tpr, _ = sk.roc_curve(labels, scores, drop_intermediate=False)
    bounds.check(result.ks_statistic, np.max(np.abs(tpr - fpr)), (0, 1))
    plain = result.partial_auc(max_fpr, standardise=False)
    bounds.check(plain, bounds.plain_partial((labels, scores), max_fpr), (0, max_fpr))
    pairs = labels.sum() * (1 - labels).sum()
    bounds.check(result.mann_whitney_u, sk.roc_auc_score(labels, scores) * pairs, (0, math.inf))


@settings(deadline=None, max_examples=150)
@given(labelled(SCORES, both=False), any_axes(), maps())
def test_bounds_of_losses_hold_those_of_mapped_data(examples, axis, calibrator):
    result, rows = mapped(examples, axis, calibrator)
    bounds.check_losses(result, *rows)


@settings(deadline=None, max_examples=200)
@given(st.data(), labelled(SCORES, both=False), any_axes(), maps())
def test_bounds_at_any_threshold_hold_the_numbers_of_mapped_data(data, examples, axis, calibrator):
    result, (labels, scores) = mapped(examples, axis, calibrator)
    threshold = data.draw(
        st.one_of(
            st.sampled_from([*scores.tolist(), -math.inf, math.inf]),
            st.integers(-1, 21).map(lambda i: i / 20),
            st.floats(-0.5, 1.5),
        )
    )
    bounds.check_threshold(result.at_threshold(threshold), (labels, scores), threshold)


def test_a_divided_bin_may_be_in_an_open_one_with_all_it_has():
    rests = Calibrator("auto", LogOddsLine([0.0, 1 / 3], [-2.0, -2.0]))
    result, examples = mapped((np.array([0]), np.array([14 / 24])), Axis.uniform(1), rests)
    threshold = float(examples[1][0])
    bounds.check_threshold(result.at_threshold(threshold), examples, threshold)


@settings(deadline=None, max_examples=60)
@given(labelled(SCORES), any_axes(), maps())
def test_bands_hold_the_curve_of_mapped_data(examples, axis, calibrator):
    """Under sampling they are wider; of the data itself they hold every point."""
    result, (labels, scores) = mapped(examples, axis, calibrator)
    fpr, tpr, _ = sk.roc_curve(labels, scores, drop_intermediate=False)
    band = result.roc_band()
    here = np.interp(band.x, fpr, tpr)  # of several at one abscissa any will do
    assert np.all(band.low <= here + 1e-9)
    assert np.all(here <= band.high + 1e-9)


@settings(deadline=None, max_examples=100)
@given(labelled(SCORES), any_axes(), maps())
def test_a_map_that_always_rises_leaves_every_rank(examples, axis, calibrator):
    result, _ = mapped(examples, axis, calibrator)
    before = result.with_calibrator(None)
    if (
        calibrator.is_strict
        and axis.outside == "refuse"
        and axis.kind != "probabilities"  # its narrowest bins may merge, or widen
        and (axis.kind != "logit" or axis != Axis.logit(axis.bins, limit=36))
    ):
        np.testing.assert_array_equal(result.pooled.counts, before.pooled.counts)
        assert result.roc_auc.value == pytest.approx(before.roc_auc.value, abs=1e-12)
        assert result.roc_auc.bounds == pytest.approx(before.roc_auc.bounds, abs=1e-12)
    np.testing.assert_allclose(result.pooled.counts.sum(axis=1), before.pooled.counts.sum(axis=1))
    assert (result.negatives, result.positives) == (before.negatives, before.positives)


def test_one_class_has_no_entropy_whatever_a_map_makes_of_its_counts():
    """Shares of counts that a map divides add up to a total only to the last bits."""
    edges = (0.003, 0.02383333333333333, 0.04466666666666667)
    calibrator = Calibrator(method="binning", form=Steps(edges=edges, values=(0.0, 0.3, 0.1, 0.2)))
    axis = Axis.from_edges([0.0, 0.020833333333333332, 0.041666666666666664, 1.0])
    examples = np.ones(16, dtype=int), np.repeat([0.0, 1 / 24, 1.0], [7, 7, 2])
    result, _ = mapped(examples, axis, calibrator)
    with pytest.raises(UndefinedMetric, match="both classes"):
        result.normalized_entropy  # noqa: B018
