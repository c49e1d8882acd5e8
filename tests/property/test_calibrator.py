"""Maps of scores: never out of order, and another axis with an axis."""

import hypothesis.strategies as st
import numpy as np
import pytest
from calibrators import FORMS, MONOTONE, calibrator
from hypothesis import given
from scipy.special import logit
from sklearn.metrics import roc_auc_score

import fedgauge as fg
from fedgauge.histograms.calibrator import Beta, LogOddsLine, Steps
from fedgauge.histograms.histogram import mapped

NUMBERS = st.floats(-30, 30)
SHARES = st.floats(0, 1)
SCORES = st.lists(
    SHARES | st.sampled_from([0.0, 1.0, 5e-324, 1e-300, 1e-17, 0.5, 1 - 2**-53]),
    min_size=1,
    max_size=40,
)


@st.composite
def forms(draw):
    kind = draw(st.sampled_from([Beta, LogOddsLine, Steps]))
    if kind is Beta:
        return Beta(draw(st.floats(0, 20)), draw(st.floats(0, 20)), draw(NUMBERS))
    if kind is LogOddsLine:
        x = sorted(draw(st.sets(NUMBERS, min_size=1, max_size=8)))
        y = draw(st.lists(NUMBERS, min_size=len(x), max_size=len(x)))
        return LogOddsLine(np.unique(np.array(x) + 0.0), np.sort(y)[: len(np.unique(x))])
    edges = np.unique(np.array(sorted(draw(st.sets(SHARES, max_size=8)))) + 0.0)
    values = draw(st.lists(SHARES, min_size=len(edges) + 1, max_size=len(edges) + 1))
    return Steps(edges, values)


@given(forms(), st.data())
def test_mutated_bytes_are_refused_or_a_map(form, data):
    whole = bytearray(calibrator(form).to_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(whole) - 1))
        whole[place : place + 1] = data.draw(st.binary(max_size=3))
    try:
        read = fg.Calibrator.from_bytes(bytes(whole))
    except fg.CalibratorError:
        return
    out = read.transform([0.0, 0.3, 1.0])
    assert np.all((out >= 0) & (out <= 1))
    assert fg.Calibrator.from_bytes(read.to_bytes()) == read


@given(forms(), SCORES)
def test_probabilities_come_out_in_order(form, scores):
    scores = np.unique(scores)
    near = np.unique(np.clip(np.nextafter(scores[:, None], [-1.0, 2.0]), 0, 1))
    every = np.unique(np.concatenate([scores, near]))
    out = calibrator(form).transform(every)
    assert np.all((out >= 0) & (out <= 1))
    if form.is_monotone:
        assert np.all(np.diff(out) >= 0)


@pytest.mark.parametrize("form", MONOTONE.values(), ids=MONOTONE)
def test_neighbouring_floats_never_change_places(form):
    rng = np.random.default_rng(7)
    ends = 10.0 ** -rng.uniform(0, 320, 20_000)
    some = np.concatenate([rng.random(50_000), ends, 1 - ends])
    chain = [some]
    for _ in range(4):
        chain.append(np.minimum(np.nextafter(chain[-1], 2.0), 1.0))
    out = np.array([calibrator(form).transform(each) for each in chain])
    assert np.all(np.diff(out, axis=0) >= 0)


def test_pieces_end_below_the_knots_they_lead_to():
    rng = np.random.default_rng(11)
    steps = np.arange(-20, 21) * np.spacing(0.7)
    for _ in range(300):
        low, high = -(10.0 ** rng.uniform(2, 6)), -rng.uniform(0, 30)
        knot = rng.uniform(0.6, 0.8)
        line = LogOddsLine((-1.0, logit(knot), 9.0), (low, high, high))
        assert np.all(np.diff(calibrator(line).transform(knot + steps)) >= 0)


@pytest.mark.parametrize("name", ["identity", "beta", "beta without a", "line", "one knot"])
def test_strict_maps_leave_the_auc_as_it_is(name):
    rng = np.random.default_rng(3)
    labels = rng.random(20_000) < 0.2
    scores = np.clip(rng.beta(2, 5, 20_000) + 0.1 * labels, 0, 1).round(4)
    before = roc_auc_score(labels, scores)
    out = calibrator(FORMS[name]).transform(scores)
    assert roc_auc_score(labels, out) == pytest.approx(before, abs=1e-12)


@given(forms(), SCORES, st.integers(1, 40))
def test_a_map_and_an_axis_are_another_axis(form, scores, bins):
    if not form.is_monotone:
        return
    plan = fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(bins, outside="clip"), fg.Cohort(3)
    ).with_calibrator(calibrator(form))
    scores = np.array([*scores, -0.5, 1.5])
    near = np.concatenate([scores, np.nextafter(plan.score_axis.edges, 0), plan.score_axis.edges])
    index = plan.axis.index(mapped(near, plan.calibrator))
    # Bins that no score reaches have no bin of their own before the map.
    _, compact = np.unique(index, return_inverse=True)
    _, pulled = np.unique(plan.score_axis.index(near), return_inverse=True)
    np.testing.assert_array_equal(compact, pulled)
