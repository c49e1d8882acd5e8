"""Reliability diagrams and decision curves: their arrays, and what is on the axes."""

import math

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_rgb

import fedgauge as fg
from fedgauge.metrics.bands import Band
from fedgauge.plots.base import STRIP, drawn_lines, has_role
from fedgauge.plots.calibration import Spread

pytestmark = pytest.mark.usefixtures("figures_closed")

DISPLAYS = [fg.ReliabilityDisplay, fg.DecisionCurveDisplay]


def scored(n=3000, rate=0.2, separation=1.5, seed=0, bend=1.0):
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < rate).astype(int)
    odds = separation * rng.normal(separation * labels) - separation**2 / 2
    return labels, 1 / (1 + np.exp(-bend * (odds + math.log(rate / (1 - rate)))))


@pytest.fixture(scope="module")
def result():
    return fg.evaluate({"a": scored(seed=1), "b": scored(seed=2)}, axis=fg.Axis.uniform(300))


@pytest.fixture(scope="module")
def bent():
    return fg.evaluate({"a": scored(seed=3, bend=2.0)}, axis=fg.Axis.uniform(300))


@pytest.fixture(scope="module")
def noisy():
    privacy = fg.DistributedDP(epsilon=1.0)
    return fg.evaluate({f"c{i}": scored(500, seed=i) for i in range(5)}, privacy=privacy, seed=1)


@pytest.fixture(scope="module")
def rare():
    return fg.evaluate({"a": scored(40_000, rate=0.005, separation=1.8)})


def legend(display):
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


def bars(ax):
    return [line for line in ax.lines if has_role(line, "range")]


def test_points_are_those_of_the_curves(result):
    display, curve = fg.ReliabilityDisplay.from_evaluation(result), result.calibration_curve()
    np.testing.assert_array_equal(display.x, curve.predicted)
    np.testing.assert_array_equal(display.y, curve.observed)
    np.testing.assert_array_equal(display.band.low, curve.low)
    np.testing.assert_array_equal(display.band.high, curve.high)
    assert display.area == result.expected_calibration_error
    other = fg.ReliabilityDisplay.from_evaluation(result, bins=5, strategy="quantile")
    assert len(other.x) == 5
    assert other.area == result.calibration_error(bins=5, strategy="quantile")
    display, curve = fg.DecisionCurveDisplay.from_evaluation(result), result.decision_curve()
    np.testing.assert_array_equal(display.x, curve.thresholds)
    np.testing.assert_array_equal(display.y, curve.net_benefit)
    np.testing.assert_array_equal(display.band.low, curve.low)
    assert display.useful == curve.useful
    few = fg.DecisionCurveDisplay.from_evaluation(result, thresholds=[0.1, 0.3])
    assert list(few.x) == [0.1, 0.3]
    drawn = fg.ReliabilityDisplay.from_evaluation(result).plot()
    x, y = drawn.chance_level_.get_data()
    np.testing.assert_array_equal(x, y)
    for segment, x, low, high in zip(drawn.band_.get_segments(), *drawn.band[:3], strict=True):
        np.testing.assert_allclose(segment, [[x, low], [x, high]])


def test_legend_of_a_reliability_diagram_moves_where_points_run_high(bent):
    drawn = fg.ReliabilityDisplay.from_evaluation(bent, name="model A").plot()
    error = bent.expected_calibration_error
    assert error.plain == bent.calibration_curve().ece > error.value
    ece = f"ECE {error.value:.2f}, {error.low:.2f} to {error.high:.2f}; plain {error.plain:.2f}"
    rule = "95% intervals of 15 groups of equal\nwidth, left-closed"
    assert legend(drawn) == [f"model A\n({ece})", rule, "calibrated"]
    bare = fg.ReliabilityDisplay.from_evaluation(bent, histogram=False)
    assert legend(bare.plot(plot_chance_level=False))[0] == ece
    low = fg.evaluate({"a": scored(seed=4, rate=0.5)}, axis=fg.Axis.uniform(300))
    curve = fg.ReliabilityDisplay.from_evaluation(low)
    curve.y = np.minimum(curve.x + 0.45, 1.0)
    curve.plot()
    curve.figure_.canvas.draw()
    box, axes = curve.ax_.get_legend().get_window_extent(), curve.ax_.get_window_extent()
    assert box.x1 > 0.9 * axes.x1
    straight = fg.ReliabilityDisplay.from_evaluation(bent).plot()
    straight.figure_.canvas.draw()
    assert straight.ax_.get_legend().get_window_extent().x0 < axes.x0 + 0.1 * axes.width


def test_strip_shows_how_scores_spread_and_hides_no_point(result):
    drawn = fg.ReliabilityDisplay.from_evaluation(result).plot()
    edges, density = drawn.scores
    labels_scores = [scored(seed=1), scored(seed=2)]
    scores = np.concatenate([scores for _, scores in labels_scores])
    counts, _ = np.histogram(scores, edges)
    np.testing.assert_allclose(density * np.diff(edges) * len(scores), counts, atol=25)
    assert (density * np.diff(edges)).sum() == pytest.approx(1.0)
    (stairs,) = drawn.strip_.patches
    np.testing.assert_array_equal(stairs.get_data().values, density)
    assert drawn.strip_ in drawn.ax_.child_axes
    assert fg.ReliabilityDisplay.from_evaluation(result, histogram=False).plot().strip_ is None
    drawn.figure_.canvas.draw()
    strip, axes = drawn.strip_.get_window_extent(), drawn.ax_.get_window_extent()
    assert strip.height == pytest.approx(STRIP * axes.height, rel=0.02)
    _, zero = drawn.ax_.transData.transform((0, 0))
    assert zero >= strip.y1
    assert all(tick >= 0 for tick in drawn.ax_.get_yticks())
    box = drawn.ax_.get_legend().get_window_extent()
    assert box.y0 >= strip.y1
    labels, scores = [0, 1, 0, 1, 1], [0.2, 0.2, 0.2, 0.8, 0.8]
    axis = fg.Axis.from_values([0.2, 0.8])
    drawn = fg.ReliabilityDisplay.from_evaluation(fg.evaluate({"a": (labels, scores)}, axis=axis))
    edges, density = drawn.scores
    shares = density * np.diff(edges)
    assert shares[np.searchsorted(edges, 0.2, "right") - 1] == pytest.approx(0.6)
    assert np.count_nonzero(shares) == 2


@pytest.mark.parametrize("display", DISPLAYS)
def test_several_on_one_axis(result, bent, noisy, display):
    first = display.from_evaluation(result, name="A").plot()
    rest = [
        display.from_evaluation(each, name=name).plot(ax=first.ax_)
        for each, name in ((bent, "B"), (noisy, "C"))
    ]
    drawn = [first, *rest]
    assert all(each.ax_.get_box_aspect() == 1 and each.line_ in each.ax_.lines for each in drawn)
    assert all(each.band_ in each.ax_.collections for each in drawn)
    assert pyplot.get_fignums() == [first.figure_.number]
    colours = [to_rgb(each.line_.get_color()) for each in drawn]
    assert colours == [to_rgb(each) for each in ("#0072B2", "#D55E00", "#009E73")]
    assert [text[0] for text in legend(first)[:3]] == ["A", "B", "C"]
    assert len(drawn_lines(first.ax_, "curve")) == 3
    if display is fg.ReliabilityDisplay:
        assert legend(first)[-1] == "calibrated"
        assert {each.strip_ for each in drawn} == {first.strip_}
        assert [patch.get_fill() for patch in first.strip_.patches] == [True, False, False]
        top = max(float(each.scores.density.max()) for each in drawn)
        assert first.strip_.get_ylim()[1] > top
    else:
        assert legend(first)[-2:] == ["treat all", "treat none"]
        assert {to_rgb(bar.get_color()) for bar in bars(first.ax_)} <= set(colours)
        heights = {bar.get_color(): bar.get_ydata()[0] for bar in bars(first.ax_)}
        assert len(set(heights.values())) == len(heights)


def test_axes_end_where_points_do(rare, result):
    drawn = fg.ReliabilityDisplay.from_evaluation(rare, strategy="quantile").plot()
    reached = max(drawn.x.max(), drawn.y.max())
    assert reached < drawn.ax_.get_xlim()[1] < 1.2 * reached
    assert reached < drawn.ax_.get_ylim()[1] < 1.2 * reached
    assert drawn.scores.edges[-1] < 1.2 * reached
    fg.ReliabilityDisplay.from_evaluation(result).plot(ax=drawn.ax_)
    assert drawn.ax_.get_xlim()[1] > 1.0


def test_logarithmic_axes(rare):
    drawn = fg.ReliabilityDisplay.from_evaluation(rare, strategy="quantile", log=True)
    drawn.y[0], drawn.band.low[0] = 0.0, 0.0
    drawn.plot()
    drawn.figure_.canvas.draw()
    assert (drawn.ax_.get_xscale(), drawn.ax_.get_yscale()) == ("log", "log")
    left, right = drawn.ax_.get_xlim()
    assert left < drawn.x.min() < drawn.x.max() < right
    assert drawn.line_.get_ydata()[0] == left  # nothing, at the edge
    assert drawn.band_.get_segments()[0][0, 1] == left
    strip = drawn.strip_.get_window_extent()
    _, lowest = drawn.ax_.transData.transform((left, left))
    assert lowest >= strip.y1 - 1
    np.testing.assert_allclose(np.diff(np.log(drawn.scores.edges)).std(), 0, atol=1e-9)


def test_treating_all_and_none_and_useful_thresholds(result):
    drawn = fg.DecisionCurveDisplay.from_evaluation(result).plot()
    share = result.positives / (result.positives + result.negatives)
    risks, worth = drawn.chance_level_.get_data()
    np.testing.assert_allclose(worth, share - risks / (1 - risks) * (1 - share))
    (none,) = [line for line in drawn.ax_.lines if line.get_label() == "treat none"]
    assert set(none.get_ydata()) == {0.0}
    second = fg.DecisionCurveDisplay.from_evaluation(result).plot(ax=drawn.ax_)
    assert legend(second).count("treat none") == legend(second).count("treat all") == 1
    assert second.chance_level_ is drawn.chance_level_
    drawn = fg.DecisionCurveDisplay.from_evaluation(result, name="A").plot()
    assert [tuple(bar.get_xdata()) for bar in bars(drawn.ax_)] == [*drawn.useful]
    assert drawn.ax_.get_xlim()[1] >= drawn.useful[-1].high
    drawn.figure_.canvas.draw()
    axes = drawn.ax_.get_window_extent()
    for bar in bars(drawn.ax_):
        assert bar.get_window_extent().y1 < axes.y0 + 0.05 * axes.height


def test_limits_do_not_follow_treating_all_down(result, rare):
    for each in (result, rare):
        drawn = fg.DecisionCurveDisplay.from_evaluation(each).plot()
        bottom, top = drawn.ax_.get_ylim()
        assert -0.3 * top < bottom < 0
        assert drawn.positive_rate < top < 1.2 * drawn.positive_rate
    assert drawn.ax_.get_xlim()[1] < 0.6  # nothing is worth anything beyond


@pytest.mark.parametrize(
    ("spans", "text"),
    [
        ((), "A (useful nowhere)"),
        (((0.1, 0.4),), "A (useful 0.1 to 0.4)"),
        (((0.1, 0.4), (0.5, 0.625)), "A (useful 0.1 to 0.4, 0.5 to 0.62)"),
        (((0.1, 0.2), (0.3, 0.4), (0.5, 0.6)), "A (useful 0.1 to 0.6, with gaps)"),
    ],
)
def test_where_it_is_useful_in_words(spans, text):
    from fedgauge.metrics.estimate import Interval

    x = np.linspace(0.1, 0.9, 9)
    useful = tuple(Interval(*span) for span in spans)
    drawn = fg.DecisionCurveDisplay(x, 0.1 - 0.1 * x, name="A", positive_rate=0.2, useful=useful)
    assert " ".join(legend(drawn.plot())[0].split()) == text


@pytest.mark.parametrize("display", DISPLAYS)
def test_one_class_alone_and_scores_that_are_no_probabilities(display):
    result = fg.evaluate({"a": ([0, 1], [-1.0, 2.0])}, axis=fg.Axis.uniform(10, -5, 5))
    with pytest.raises(fg.UndefinedMetric, match="need probabilities"):
        display.from_evaluation(result)
    drawn = display.from_evaluation(fg.evaluate({"a": ([0, 0], [0.1, 0.4])})).plot()
    drawn.figure_.canvas.draw()
    assert np.all(np.isfinite(drawn.line_.get_xydata()))


def test_rough_decisions_say_so(noisy):
    assert fg.DecisionCurveDisplay.from_evaluation(noisy).rough is None
    clients = {f"c{i}": scored(150, seed=i) for i in range(6)}
    few = fg.evaluate(clients, privacy=fg.DistributedDP(epsilon=0.3), seed=1)
    assert few.pooled.faint
    drawn = fg.DecisionCurveDisplay.from_evaluation(few, name="A").plot()
    assert drawn.rough == few.pooled.faint
    assert legend(drawn)[0].endswith(", rough)")


def test_a_display_from_arrays_alone():
    x = np.array([0.1, 0.5, 0.9])
    drawn = fg.ReliabilityDisplay(x, x, scores=Spread(np.array([0.0, 1.0]), np.ones(1))).plot()
    assert drawn.band_ is None
    assert len(drawn.strip_.patches) == 1
    x, low, high = np.array([0.1, 0.5, 0.9]), np.array([0.05, 0.0, 0.6]), np.array([0.2, 0.96, 1.0])
    band = Band(x, low, high, 0.95, "pointwise")
    drawn = fg.ReliabilityDisplay(x, np.array([0.1, 1.0, 0.8]), band).plot()
    np.testing.assert_array_equal(drawn.line_.get_ydata(), [0.1, np.nan, 0.8])  # nor a line to it
    assert len(drawn.band_.get_segments()) == 3
    nothing = Band(x, 0 * x, 0 * x + 1, 0.95, "pointwise")
    assert np.isfinite(fg.ReliabilityDisplay(x, x, nothing).plot().line_.get_ydata()).all()


@pytest.mark.parametrize("display", DISPLAYS)
def test_a_result_read_through_a_map(result, display):
    drawn = display.from_evaluation(result.with_calibrator(result.calibrator("isotonic")))
    if display is fg.ReliabilityDisplay:
        assert (drawn.scores.density * np.diff(drawn.scores.edges)).sum() == pytest.approx(1.0)
    drawn.plot().figure_.canvas.draw()
