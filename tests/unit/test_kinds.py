"""A curve is a row: results and displays offer what it says."""

import numpy as np
import pytest

import fedgauge as fg
from fedgauge.measures.kinds import DET, GAIN, PR, PR_GAIN, ROC
from fedgauge.measures.metric import Metric

DISPLAYS = {
    ROC: fg.RocCurveDisplay,
    PR: fg.PrecisionRecallDisplay,
    DET: fg.DetCurveDisplay,
    PR_GAIN: fg.PrGainDisplay,
    GAIN: fg.GainDisplay,
}
every_kind = pytest.mark.parametrize("kind", DISPLAYS, ids=lambda kind: kind.name)


@pytest.fixture(scope="module")
def result():
    rng = np.random.default_rng(8)
    labels = rng.integers(0, 2, 400)
    scores = np.clip(rng.normal(0.4 + 0.2 * labels, 0.15), 0, 1)
    return fg.evaluate({"a": (labels, scores)}, axis=fg.Axis.uniform(24))


def test_names_and_titles_differ():
    assert len({kind.name for kind in DISPLAYS}) == len({kind.title for kind in DISPLAYS}) == 5


@every_kind
def test_points_lie_on_the_curve_that_a_result_has(kind, result):
    curve = getattr(result, f"{kind.name}_curve")()
    x, y = curve.points()
    assert len(x) == len(y) > 500
    assert np.all(np.diff(x) > -1e-12)
    assert (x[0], x[-1]) == pytest.approx((0, 1))
    # Where the curve is vertical, both ends of it and all between have one abscissa.
    apart = np.diff(x) > 1e-6
    single = np.flatnonzero(apart[:-1] & apart[1:]) + 1
    assert len(single) > 300
    np.testing.assert_allclose(curve(x[single]), y[single], atol=1e-6)


@every_kind
@pytest.mark.parametrize("band", ["pointwise", "simultaneous"])
def test_a_display_draws_what_the_row_says(kind, band, result):
    display = DISPLAYS[kind].from_evaluation(result, band=band)
    for drawn, read in zip(display.band, getattr(result, f"{kind.name}_band")(band), strict=True):
        np.testing.assert_array_equal(drawn, read)
    if kind.area is None:
        assert display.area is None
    else:
        name, _ = kind.area
        assert isinstance(getattr(fg.Evaluation, name), Metric)
        assert display.area is getattr(result, name)
