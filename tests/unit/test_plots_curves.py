"""Displays: the arrays of a result's curves, and what is on the axes after drawing them."""

import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_rgb
from refusals import refused
from scipy.special import ndtri

import fedgauge as fg
from fedgauge.plots.base import _along

pytestmark = pytest.mark.usefixtures("figures_closed")

DISPLAYS = [
    fg.RocCurveDisplay,
    fg.PrecisionRecallDisplay,
    fg.DetCurveDisplay,
    fg.PrGainDisplay,
    fg.GainDisplay,
]
AXIS = fg.Axis.uniform(512)  # drawn as finely as one of 4,096 bins, in less time
BANDS = dict(zip(DISPLAYS, ("roc", "pr", "det", "prg", "gain"), strict=True))
AXIS_OVERLAID = fg.Axis.uniform(32)
CURVES = [fg.RocCurveDisplay, fg.PrecisionRecallDisplay]
OTHERS = [fg.DetCurveDisplay, fg.PrGainDisplay, fg.GainDisplay]
OF_PROBABILITIES = [fg.ReliabilityDisplay, fg.DecisionCurveDisplay]
SOME = [fg.RocCurveDisplay, fg.DetCurveDisplay, fg.ReliabilityDisplay]
EVERY = [*CURVES, *OTHERS, *OF_PROBABILITIES]


def scored(n=2000, rate=0.2, separation=2.0, seed=0):
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < rate).astype(int)
    return labels, 1 / (1 + np.exp(-rng.normal(separation * labels - 1, 1)))


@pytest.fixture(scope="module")
def result():
    return fg.evaluate({"a": scored(seed=1), "b": scored(seed=2)}, axis=AXIS)


@pytest.fixture(scope="module")
def other():
    return fg.evaluate({"a": scored(seed=3, separation=1.0)}, axis=AXIS)


@pytest.fixture(scope="module")
def noisy():
    privacy = fg.DistributedDP(epsilon=1.0)
    return fg.evaluate({f"c{i}": scored(1000, seed=i) for i in range(5)}, privacy=privacy, seed=1)


@pytest.fixture(scope="module")
def tiny():
    return fg.evaluate({"a": ([0, 1, 1, 0, 0, 1], [0.2, 0.7, 0.9, 0.1, 0.6, 0.4])})


def legend(display):
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


def outline(band):
    return np.vstack([path.vertices for path in band.get_paths()])


@pytest.mark.parametrize("which", ["result", "noisy", "tiny"])
def test_points_pass_through_the_knots(which, request):
    result = request.getfixturevalue(which)
    pr, prg, gain = result.pr_curve(), result.prg_curve(), result.gain_curve()
    lift = gain.recall[1:] / np.where(gain.flagged[1:] > 0, gain.flagged[1:], np.nan)
    for display, x, y in (
        (fg.PrecisionRecallDisplay.from_evaluation(result), pr.recall[:-1], pr.precision[:-1]),
        (fg.PrGainDisplay.from_evaluation(result), prg.recall_gain, prg.precision_gain),
        (fg.GainDisplay.from_evaluation(result), gain.flagged, gain.recall),
        (fg.GainDisplay.from_evaluation(result, lift=True), gain.flagged[1:], lift),
    ):
        distance = np.hypot(display.x - x[:, None], display.y - y[:, None]).min(axis=1)
        assert np.nanmax(distance) < 1e-6
        assert np.all(np.isfinite(display.x) & np.isfinite(display.y))


def test_few_pieces_are_drawn_smoothly(noisy):
    for display in DISPLAYS:
        drawn = display.from_evaluation(noisy)
        assert len(drawn.x) >= 500
    roc = fg.RocCurveDisplay.from_evaluation(noisy)
    assert np.hypot(np.diff(roc.x), np.diff(roc.y)).max() < 0.02


@pytest.mark.parametrize("display", DISPLAYS)
def test_band_is_that_of_the_result(result, display):
    make = getattr(result, f"{BANDS[display]}_band")
    for kind in ("pointwise", "simultaneous"):
        for mine, theirs in zip(
            display.from_evaluation(result, band=kind).band, make(kind), strict=True
        ):
            np.testing.assert_array_equal(mine, theirs)
    assert display.from_evaluation(result, band=None).band is None
    with pytest.raises(fg.InputError, match="band must be 'pointwise', 'simultaneous' or None"):
        display.from_evaluation(result, band="wide")


@pytest.mark.parametrize("display", DISPLAYS)
def test_what_plot_leaves_behind(result, display):
    drawn = display.from_evaluation(result, name="A")
    assert drawn.plot() is drawn
    assert drawn.ax_.figure is drawn.figure_
    assert drawn.line_ in drawn.ax_.lines
    assert drawn.chance_level_ in drawn.ax_.lines
    assert drawn.band_ in drawn.ax_.collections
    assert drawn.band_.get_zorder() < drawn.line_.get_zorder()
    assert legend(drawn)[1:] == ["95% band, pointwise", "chance"]
    assert drawn.ax_.get_box_aspect() == 1
    bare = display.from_evaluation(result, band=None).plot(plot_chance_level=False)
    assert bare.band_ is None
    assert bare.chance_level_ is None
    assert bare.ax_.lines[:] == [bare.line_]
    assert not bare.ax_.collections


def test_labels_of_the_axes(result):
    for display, options, labels in (
        (fg.RocCurveDisplay, {}, ("False positive rate", "True positive rate")),
        (fg.PrecisionRecallDisplay, {}, ("Recall", "Precision")),
        (fg.DetCurveDisplay, {}, ("False positive rate", "False negative rate")),
        (fg.PrGainDisplay, {}, ("Recall gain", "Precision gain")),
        (fg.GainDisplay, {}, ("Share of examples flagged", "Recall")),
        (fg.GainDisplay, {"lift": True}, ("Share of examples flagged", "Lift (times chance)")),
    ):
        ax = display.from_evaluation(result, **options).plot().ax_
        assert (ax.get_xlabel(), ax.get_ylabel()) == labels


@pytest.mark.parametrize("which", ["result", "noisy", "tiny"])
@pytest.mark.parametrize("kind", ["pointwise", "simultaneous"])
@pytest.mark.parametrize("display", DISPLAYS)
def test_curve_and_band_lie_within_the_limits(which, kind, display, request):
    drawn = display.from_evaluation(request.getfixturevalue(which), band=kind).plot()
    drawn.figure_.canvas.draw()
    (left, right), (bottom, top) = drawn.ax_.get_xlim(), drawn.ax_.get_ylim()
    for points in (drawn.line_.get_xydata(), outline(drawn.band_)):
        assert points[:, 0].min() >= left
        assert points[:, 0].max() <= right
        assert points[:, 1].max() <= top
        assert points[:, 1].min() >= bottom or bottom == -1.0  # precision gain has no least value


def test_det_is_roc_upside_down_in_deviates_and_chance_levels(result):
    roc, det = (D.from_evaluation(result) for D in (fg.RocCurveDisplay, fg.DetCurveDisplay))
    np.testing.assert_array_equal(det.x, roc.x)
    np.testing.assert_array_equal(det.y, 1 - roc.y)
    drawn = fg.DetCurveDisplay.from_evaluation(result).plot()
    x, y = drawn.line_.get_data()
    assert (x.min(), y.min()) == (ndtri(0.001), ndtri(0.001))
    middle = np.argmin(np.abs(drawn.x - 0.3))
    assert (x[middle], y[middle]) == (ndtri(drawn.x[middle]), ndtri(drawn.y[middle]))
    ax = fg.DetCurveDisplay.from_evaluation(result).plot().ax_
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert labels == ["0.1%", "1%", "5%", "20%", "50%", "80%", "95%", "99%", "99.9%"]
    np.testing.assert_allclose(ax.get_yticks(), ndtri([float(t[:-1]) / 100 for t in labels]))
    _, small = pyplot.subplots(figsize=(3, 2))
    fg.DetCurveDisplay.from_evaluation(result).plot(ax=small)
    assert [label.get_text() for label in small.get_xticklabels()] == ["0.1%", "50%", "99.9%"]
    roc, pr, det, prg, gain = (D.from_evaluation(result).plot().chance_level_ for D in DISPLAYS)
    share = result.positives / (result.positives + result.negatives)
    assert list(roc.get_ydata()) == list(gain.get_ydata()) == [0, 1]
    assert list(pr.get_ydata()) == pytest.approx([share, share])
    assert list(det.get_ydata()) == list(-det.get_xdata())
    assert list(prg.get_ydata()) == [0, 0]
    lift = fg.GainDisplay.from_evaluation(result, lift=True).plot().chance_level_
    assert list(lift.get_ydata()) == [1, 1]


def test_legend_has_area_interval_and_level_and_lift_bands_go_over_the_share(result, tiny):
    auc = result.roc_auc
    shown = f"AUC {auc.value:.2f}, {auc.low:.2f} to {auc.high:.2f}"
    assert auc.low < auc.value - 0.005 < auc.value + 0.005 < auc.high
    display = fg.RocCurveDisplay.from_evaluation(result, name="model A")
    assert legend(display.plot())[0] == f"model A ({shown})"
    assert legend(display.plot(name="B"))[0] == f"B ({shown})"
    assert legend(display.plot(label="mine"))[0] == "mine"
    assert legend(fg.RocCurveDisplay.from_evaluation(result).plot())[0] == shown
    assert tiny.average_precision.caution
    shown = legend(fg.PrecisionRecallDisplay.from_evaluation(tiny, name="few").plot())[0]
    assert shown.endswith("rough)")
    drawn = fg.RocCurveDisplay.from_evaluation(result.at_level(0.8), band="simultaneous").plot()
    assert legend(drawn)[1] == "80% band, simultaneous"
    shown = [D.from_evaluation(result, name="A").plot().line_.get_label() for D in DISPLAYS]
    starts = ["A (AUC 0.", "A (AP 0.", "A", "A (AUPRG 0.", "A"]
    assert [text.startswith(start) for text, start in zip(shown, starts, strict=True)] == [True] * 5
    assert shown[2] == shown[4] == "A"
    assert fg.PrecisionRecallDisplay.from_evaluation(result).area == result.average_precision
    gain, lift = (fg.GainDisplay.from_evaluation(result, lift=each).band for each in (False, True))
    np.testing.assert_allclose(lift.low * lift.x, gain.low[1:])
    np.testing.assert_allclose(lift.high * lift.x, gain.high[1:])


def test_decimals_tell_the_ends_apart():
    for value, low, high, text in (
        (0.93, 0.92, 0.94, "AUC 0.93, 0.92 to 0.94"),
        (1.0, 0.9971, 1.0, "AUC 1.000, 0.997 to 1.000"),
        (0.7785, 0.7731, 0.7839, "AUC 0.778, 0.773 to 0.784"),
        (0.99912, 0.99903, 0.99921, "AUC 0.9991, 0.9990 to 0.9992"),
        (1.0, 1.0, 1.0, "AUC 1.0000, 1.0000 to 1.0000"),
        (0.5, None, None, "AUC 0.50"),
    ):
        area = fg.Estimate(value, (value, value), low, high, 0.95)
        line = np.array([0.0, 1.0])
        assert legend(fg.RocCurveDisplay(line, line, None, area).plot())[0] == text


def test_curves_on_one_axis_have_the_same_decimals():
    line = np.array([0.0, 1.0])
    wide, narrow = (
        fg.RocCurveDisplay(line, line, None, fg.Estimate(0.9, (0.9, 0.9), *ends, 0.95), name=name)
        for name, ends in (("wide", (0.8, 0.96)), ("narrow", (0.8991, 0.9009)))
    )
    ax = wide.plot().ax_
    assert legend(wide)[0] == "wide (AUC 0.90, 0.80 to 0.96)"
    narrow.plot(ax=ax)
    wide.plot(ax=ax, label="mine")
    assert legend(narrow)[:3] == [
        "wide (AUC 0.900, 0.800 to 0.960)",
        "narrow (AUC 0.900, 0.899 to 0.901)",
        "mine",
    ]


def covered(display):
    """How much of the curve lies under the legend, in pixels of its path."""
    display.figure_.canvas.draw()
    box = display.ax_.get_legend().get_window_extent()
    return sum(box.contains(x, y) for x, y in _along(display.line_))


@pytest.mark.parametrize("level", [0.05, 0.3, 0.5, 0.7, 0.95])
@pytest.mark.parametrize("end", [0.02, 0.3, 0.6])
def test_the_legend_of_a_pr_curve_lies_off_it(level, end):
    """Whether the curve stays high, falls early, or is low all along."""
    x = np.linspace(0, 1, 201)
    y = np.where(x < level, 0.97, end + (0.97 - end) * np.exp(-12 * np.maximum(x - level, 0)))
    area = fg.Estimate(0.7, (0.7, 0.7), 0.6, 0.8, 0.95)
    drawn = fg.PrecisionRecallDisplay(x, y, None, area, "a model", positive_rate=end).plot()
    assert covered(drawn) == 0


def test_precision_at_the_very_first_recall_is_not_drawn():
    """The highest score is a negative's: no curve falls to 0 at recall 0."""
    labels, scores = np.array([1] * 500 + [0] * 500), np.linspace(0.9, 0.1, 1000)
    scores[-1] = 0.95
    result = fg.evaluate({"a": (labels, scores)})
    assert min(result.pr_curve().points()[1]) == 0
    drawn = fg.PrecisionRecallDisplay.from_evaluation(result).plot()
    assert drawn.line_.get_xdata().min() == 0.01
    assert drawn.line_.get_ydata().min() >= 0.5
    x, y = drawn.x, drawn.y
    backwards = fg.PrecisionRecallDisplay(x[::-1], y[::-1], positive_rate=0.5).plot()
    assert list(backwards.line_.get_ydata()) == list(drawn.line_.get_ydata())


@pytest.mark.parametrize("display", DISPLAYS)
def test_several_on_one_axis(result, other, noisy, display):
    first = display.from_evaluation(result, name="A").plot()
    rest = [
        display.from_evaluation(each).plot(ax=first.ax_, name=n)
        for each, n in ((other, "B"), (noisy, "C"))
    ]
    drawn = [first, *rest]
    assert {each.ax_ for each in drawn} == {first.ax_}
    assert pyplot.get_fignums() == [first.figure_.number]
    colours = [to_rgb(each.line_.get_color()) for each in drawn]
    assert len(set(colours)) == 3
    assert len({each.line_.get_linestyle() for each in drawn}) == 3
    for each, colour in zip(drawn, colours, strict=True):
        assert to_rgb(each.band_.get_facecolor()[0]) == colour
        assert 0 < each.band_.get_alpha() < 0.5
    assert [each.chance_level_ for each in rest] == [first.chance_level_] * 2
    texts = legend(first)
    assert [text[0] for text in texts[:3]] == ["A", "B", "C"]
    assert texts[3:] == ["95% band, pointwise", "chance"]


def test_a_second_curve_on_the_same_axes(result, other):
    first = fg.GainDisplay.from_evaluation(other, lift=True, band=None).plot()
    before = first.ax_.get_ylim()[1]
    fg.GainDisplay.from_evaluation(result, lift=True, band=None).plot(ax=first.ax_)
    assert first.ax_.get_ylim()[1] > before
    ax = fg.RocCurveDisplay.from_evaluation(result).plot().ax_
    ax.set(xlim=(0, 0.1), xlabel="FPR")
    fg.RocCurveDisplay.from_evaluation(other).plot(ax=ax)
    assert (ax.get_xlim(), ax.get_xlabel()) == ((0, 0.1), "FPR")
    balanced = fg.evaluate({"a": scored(rate=0.5)})
    first = fg.PrecisionRecallDisplay.from_evaluation(result).plot()
    second = fg.PrecisionRecallDisplay.from_evaluation(balanced).plot(ax=first.ax_)
    assert second.chance_level_ is not first.chance_level_
    assert legend(first).count("chance") == 1
    _, ax = pyplot.subplots()
    ax.plot([0, 1], [0.2, 0.9], label="from elsewhere")
    drawn = fg.RocCurveDisplay.from_evaluation(result, name="A").plot(ax=ax)
    assert legend(drawn)[0] == "from elsewhere"
    assert drawn.line_.get_color() != ax.lines[0].get_color()


def test_colours_of_the_user_and_a_dark_style_are_kept(result, other):
    assert fg.RocCurveDisplay.from_evaluation(result).plot(color="k").line_.get_color() == "k"
    _, ax = pyplot.subplots()
    ax.set_prop_cycle(color=["red", "lime"])
    lines = [fg.RocCurveDisplay.from_evaluation(r).plot(ax=ax).line_ for r in (result, other)]
    assert [line.get_color() for line in lines] == ["red", "lime"]
    with pyplot.style.context("dark_background"):
        before = dict(matplotlib.rcParams)
        drawn = fg.RocCurveDisplay.from_evaluation(result).plot()
        assert dict(matplotlib.rcParams) == before
    assert to_rgb(drawn.chance_level_.get_color()) == (1, 1, 1)
    assert to_rgb(drawn.ax_.get_legend().get_frame().get_facecolor()) == (0, 0, 0)
    assert to_rgb(drawn.ax_.get_legend().get_texts()[0].get_color()) == (1, 1, 1)


def test_legends_hide_nothing_break_long_names_and_show_every_sign(result):
    name = "a gradient boosted ensemble of survival trees trained at the university hospital"
    drawn = fg.RocCurveDisplay.from_evaluation(result, name=name).plot()
    *lines, area = legend(drawn)[0].split("\n")
    assert lines[0].startswith("a gradient boosted")
    assert lines[-1].endswith("…")
    assert area.startswith("(AUC")
    drawn.figure_.canvas.draw()
    box, inside = drawn.ax_.get_legend().get_window_extent(), drawn.ax_.get_window_extent()
    assert box.x0 > inside.x0
    assert box.x1 < inside.x1
    drawn = fg.PrGainDisplay.from_evaluation(result, name="A").plot()
    drawn.figure_.canvas.draw()
    _, zero = drawn.ax_.transData.transform((0, 0))
    assert drawn.ax_.get_legend().get_window_extent().y0 > zero + 2
    for name, shown in (("_new", "_new"), ("$5 to $7", r"\$5 to \$7")):
        drawn = fg.RocCurveDisplay.from_evaluation(result, name=name).plot()
        drawn.figure_.canvas.draw()
        assert legend(drawn)[0].strip().startswith(shown)


@pytest.mark.parametrize("display", DISPLAYS)
def test_perfect_and_rare(display):
    perfect = fg.evaluate({"a": ([0, 0, 1, 1], [0.1, 0.2, 0.8, 0.9])})
    rare = fg.evaluate({"a": scored(20_000, rate=0.001)})
    for result in (perfect, rare):
        drawn = display.from_evaluation(result).plot()
        drawn.figure_.canvas.draw()
        assert np.all(np.isfinite(drawn.line_.get_xydata()))
    if display is fg.PrecisionRecallDisplay:
        box, inside = (each.get_window_extent() for each in (drawn.ax_.get_legend(), drawn.ax_))
        assert box.y0 > 0.5 * (inside.y0 + inside.y1)  # the curve runs low


@pytest.mark.parametrize("display", DISPLAYS)
def test_no_figure_without_a_curve(display):
    one_class = fg.evaluate({"a": ([0, 0], [0.1, 0.2])})
    with pytest.raises(fg.UndefinedMetric):
        display.from_evaluation(one_class)
    clients = {"a": scored(40), "b": scored(40)}
    hidden = fg.evaluate(clients, privacy=fg.DistributedDP(epsilon=0.01), seed=1)
    with pytest.raises(fg.NoSignal):
        display.from_evaluation(hidden)
    assert pyplot.get_fignums() == []


def test_matplotlib_is_loaded_only_to_draw():
    code = (
        "import sys, fedgauge as fg\n"
        "result = fg.evaluate({'a': ([0, 1], [0.2, 0.7])})\n"
        "display = fg.RocCurveDisplay.from_evaluation(result)\n"
        "assert 'matplotlib' not in sys.modules\n"
        "import matplotlib; matplotlib.use('agg')\n"
        "display.plot()\n"
        "assert 'matplotlib.pyplot' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def sigmoid(odds):
    return 1 / (1 + np.exp(-odds))


def by_group(names, listed=None, rows=3000, task=None, **options):
    rng = np.random.default_rng(1)
    y, group = rng.random(rows) < 0.3, rng.integers(0, len(names), rows)
    score = sigmoid(rng.normal(1.5 * y - 1 + 0.1 * group, 1))
    group = np.array(names)[group]
    data = {k: fg.Examples(y[k::3], score[k::3], group=group[k::3]) for k in range(3)}
    task = task or fg.BinaryTask(groups={"by": listed or names})
    if "privacy" not in options and "plan" not in options:
        options["axis"] = AXIS_OVERLAID
    plan = options.pop("plan", None)
    options |= {"seed": 1} if plan else {"seed": 1, "task": task}
    return fg.evaluate({f"site {k}": rows for k, rows in data.items()}, plan, **options)


def by_class(classes, present=None, rows=3000, **options):
    rng = np.random.default_rng(2)
    names = np.array([f"c{k}" for k in range(classes)])
    kind = rng.integers(0, present or classes, rows)
    apart = np.linspace(0.8, 2.5, classes) * (kind[:, None] == np.arange(classes))
    odds = np.exp(rng.normal(size=(rows, classes)) + apart)
    data = fg.Examples(names[kind], odds / odds.sum(axis=1, keepdims=True))
    task = fg.MulticlassTask(labels=names.tolist(), **options)
    return fg.evaluate({"a": data}, task=task, axis=AXIS_OVERLAID)


def by_model(models, groups=None, rows=3000):
    rng = np.random.default_rng(3)
    y, shared = rng.random(rows) < 0.3, rng.normal(size=rows)
    scores = {name: sigmoid((1.5 - 0.3 * k) * y - 1 + shared) for k, name in enumerate(models)}
    group = rng.choice(groups, rows) if groups else None
    options = {"groups": groups} if groups else {}
    return fg.evaluate(
        {"a": fg.Examples(y, scores, group=group)}, models=models, axis=AXIS_OVERLAID, **options
    )


@pytest.fixture(scope="module")
def groups():
    return by_group(["women", "men"])


@pytest.fixture(scope="module")
def classes():
    return by_class(3)


@pytest.fixture(scope="module")
def models():
    return by_model(["new", "old"])


@pytest.fixture(scope="module")
def both():
    return by_model(["new", "old"], ["women", "men"])


def names(display):
    """Names in the legend, without areas and what is on the axes besides curves."""
    around = ("95%", "chance", "calibrated", "treat")
    entries = [each.split(" (")[0].split("\n")[0] for each in legend(display)]
    return [each for each in entries if not each.startswith(around)]


def assert_same(display, result, cls):
    alone = cls.from_evaluation(result)
    np.testing.assert_array_equal(display.x, alone.x)
    np.testing.assert_array_equal(display.y, alone.y)
    assert (display.area and display.area.value) == (alone.area and alone.area.value)


@pytest.mark.parametrize("cls", EVERY)
def test_groups_are_drawn_beside_all_rows(groups, cls):
    drawn = cls.from_evaluation(groups).plot()
    assert names(drawn) == ["all", "women", "men"]
    assert len(drawn.lines_) == 3
    assert to_rgb(drawn.line_.get_color()) == (0, 0, 0)
    assert len({line.get_color() for line in drawn.lines_}) == 3
    for each, name in zip(drawn.overlaid.others, ("women", "men"), strict=True):
        assert_same(each, groups.select(group=name), cls)
        assert each.ax_ is drawn.ax_
        assert each.band_ in drawn.ax_.collections
    assert drawn.band_ is None
    assert drawn.line_.get_zorder() < drawn.overlaid.others[0].line_.get_zorder()


@pytest.mark.parametrize("cls", SOME)
def test_by_none_or_of_a_selected_slice_there_is_one_curve(groups, models, cls):
    drawn = cls.from_evaluation(groups, name="A", by=None).plot()
    assert names(drawn) == ["A"]
    assert drawn.overlaid is None
    assert drawn.band_ is not None
    for result in (groups.select(group="men"), models.select(model="old")):
        assert cls.from_evaluation(result).overlaid is None


def test_classes_have_an_average_in_bold(classes):
    for cls, metric, curve in (
        (fg.RocCurveDisplay, "roc_auc", fg.Evaluation.macro_roc_curve),
        (fg.PrecisionRecallDisplay, "average_precision", fg.Evaluation.macro_pr_curve),
    ):
        drawn = cls.from_evaluation(classes).plot()
        assert names(drawn) == ["macro average", "c0", "c1", "c2"]
        assert drawn.line_.get_linewidth() > max(each.get_linewidth() for each in drawn.lines_[1:])
        assert drawn.area == classes.macro(metric)
        np.testing.assert_array_equal(drawn.x, curve(classes).points()[0])
        for each, name in zip(drawn.overlaid.others, ("c0", "c1", "c2"), strict=True):
            assert_same(each, classes.select(label=name), cls)
        alone = cls.from_evaluation(classes, by=None).plot()
        assert alone.overlaid is None
        assert len(alone.lines_) == 1


@pytest.mark.parametrize("cls", [fg.DetCurveDisplay, fg.ReliabilityDisplay])
def test_classes_without_an_average(classes, cls):
    drawn = cls.from_evaluation(classes).plot()
    assert names(drawn) == ["c0", "c1", "c2"]
    assert_same(drawn, classes.select(label="c0"), cls)
    assert drawn.band_ is not None


def test_slices_have_an_average_lift_and_one_figure_each(classes, groups):
    display = fg.PrecisionRecallDisplay.from_evaluation(classes)
    shares = [each.positive_rate for each in display.overlaid.others]
    assert display.positive_rate == pytest.approx(np.mean(shares)) == pytest.approx(1 / 3)
    drawn = fg.GainDisplay.from_evaluation(groups, lift=True).plot()
    for each in drawn.overlaid.others:
        alone = fg.GainDisplay.from_evaluation(groups.select(group=each.name), lift=True)
        np.testing.assert_array_equal(each.y, alone.y)


@pytest.mark.parametrize("cls", SOME)
def test_models_are_drawn_one_by_one(models, cls):
    drawn = cls.from_evaluation(models).plot()
    assert names(drawn) == ["new", "old"]
    assert_same(drawn, models.select(model="new"), cls)
    assert all(each.band_ is not None for each in (drawn, *drawn.overlaid.others))
    assert drawn.overlaid.others[0].chance_level_ is drawn.chance_level_


def test_by_what_slices_are_told_apart(both, models, classes):
    roc = fg.RocCurveDisplay
    assert names(roc.from_evaluation(both).plot()) == ["new", "old"]
    old = both.select(model="old")
    assert roc.from_evaluation(old).overlaid is None
    drawn = roc.from_evaluation(old, by="group").plot()
    assert names(drawn) == ["all", "women", "men"]
    assert_same(drawn.overlaid.others[1], both.select(model="old", group="men"), roc)
    women = both.select(group="women")
    assert names(roc.from_evaluation(women).plot()) == ["new", "old"]
    roc = fg.RocCurveDisplay.from_evaluation
    refused(fg.InputError, r"by='label' .* It has 'model', 'group'\.", roc, both, by="label")
    with pytest.raises(fg.InputError, match="Leave it out: it is of one slice"):
        roc(models.select(model="old"), by="model")
    with pytest.raises(fg.InputError, match=r"result\.select\(model=\.\.\.\)"):
        roc(both, by="group")  # of which model?
    refused(fg.InputError, r"result\.select\(model=\.\.\.\)", roc, models, by=None)
    with pytest.raises(fg.InputError, match=r"result\.select\(label=\.\.\.\)"):
        fg.DetCurveDisplay.from_evaluation(classes, by=None)


def test_groups_of_several_classes_are_averages():
    rng = np.random.default_rng(4)
    kind, group = rng.integers(0, 3, 3000), rng.choice(["women", "men"], 3000)
    odds = np.exp(rng.normal(size=(3000, 3)) + 1.5 * (kind[:, None] == np.arange(3)))
    rows = fg.Examples(kind, odds / odds.sum(axis=1, keepdims=True), group=group)
    task = fg.MulticlassTask(labels=[0, 1, 2], groups={"sex": ["women", "men"]})
    result = fg.evaluate({"a": rows}, task=task, axis=AXIS_OVERLAID)
    drawn = fg.RocCurveDisplay.from_evaluation(result, by="group").plot()
    assert names(drawn) == ["all", "women", "men"]
    women = result.select(group="women").macro("roc_auc")
    assert drawn.overlaid.others[0].area == women
    with pytest.raises(fg.InputError, match=r"result\.select\(label=\.\.\.\)"):
        fg.DetCurveDisplay.from_evaluation(result, by="group")


@pytest.mark.parametrize("cls", SOME)
def test_more_than_three_slices_are_lines_alone(cls):
    drawn = cls.from_evaluation(by_group(list("abcd"))).plot()
    assert names(drawn) == ["all", *"abcd"]
    assert [each.band_ for each in (drawn, *drawn.overlaid.others)] == [None] * 5
    assert all(each.band is None for each in drawn.overlaid.others) or cls in OF_PROBABILITIES
    assert not drawn.ax_.collections
    assert len({(line.get_color(), str(line.get_linestyle())) for line in drawn.lines_}) == 5


def test_ten_slices_are_told_apart_and_none_is_an_error():
    drawn = fg.RocCurveDisplay.from_evaluation(by_class(10)).plot()
    looks = {(line.get_color(), str(line._unscaled_dash_pattern)) for line in drawn.lines_[1:]}
    assert len(looks) == 10
    rows = fg.Examples([0, 0, 0], {"new": [0.1, 0.2, 0.3], "old": [0.1, 0.2, 0.3]})
    result = fg.evaluate({"a": rows}, models=["new", "old"], axis=AXIS_OVERLAID)
    with pytest.raises(fg.UndefinedMetric):
        fg.RocCurveDisplay.from_evaluation(result)


@pytest.mark.parametrize("cls", SOME)
def test_more_than_ten_are_one_entry(cls):
    drawn = cls.from_evaluation(by_class(12, present=11)).plot()
    crowd = drawn.lines_[1:] if cls in CURVES else drawn.lines_
    assert len({each.get_color() for each in crowd}) == 1
    assert max(each.get_linewidth() for each in crowd) < 1
    of_all = cls in OF_PROBABILITIES  # also a class without examples has a score to be judged
    own = names(drawn)[-1 if of_all else -2]
    assert own == ("12 classes" if of_all else "11 of 12 classes")
    if not of_all:
        assert legend(drawn)[-2] == "c11 (undefined)"
    if cls is fg.RocCurveDisplay:
        areas = sorted(each.area.value for each in drawn.overlaid.others)
        assert f"(AUC {areas[0]:.2f} to {areas[-1]:.2f})" in legend(drawn)[1]


@pytest.mark.parametrize("cls", SOME)
def test_withheld_groups_are_named_without_a_line(cls):
    noisy = by_group(["women", "men"], ["women", "nobody", "men"], privacy=fg.DistributedDP(4.0))
    drawn = cls.from_evaluation(noisy).plot()
    assert len(drawn.lines_) == 3
    entries = legend(drawn)
    assert "nobody (withheld)" in entries
    assert not any(each.startswith("other") for each in entries)


def test_joined_groups_are_withheld_and_all_rows_drawn():
    task = fg.BinaryTask(groups={"by": ["women", "men", "not said"]})
    plan = fg.EvaluationPlan.for_histogram(AXIS_OVERLAID, fg.Cohort(3), task=task, min_cell=400)
    drawn = fg.RocCurveDisplay.from_evaluation(by_group([*task.groups["by"]], plan=plan)).plot()
    assert names(drawn)[0] == "all"
    assert "not said (withheld)" in legend(drawn)
    assert len(drawn.lines_) == 1 + len(drawn.overlaid.others)
    noisy = by_group(list("abcdefghijkl"), privacy=fg.DistributedDP(0.1))
    drawn = fg.RocCurveDisplay.from_evaluation(noisy).plot()
    assert drawn.overlaid.others == ()
    assert drawn.band_ is not None
    assert names(drawn) == ["all", "12 groups"]
    assert "12 groups (withheld)" in legend(drawn)


def test_names_before_those_of_slices_and_lines_as_the_user_wants_them(groups):
    drawn = fg.RocCurveDisplay.from_evaluation(groups, name="2024").plot()
    fg.RocCurveDisplay.from_evaluation(groups).plot(ax=drawn.ax_, name="2025")
    years = ("2024", "2025")
    assert names(drawn) == [f"{year}, {n}" for year in years for n in ("all", "women", "men")]
    drawn = fg.RocCurveDisplay.from_evaluation(groups).plot(linewidth=0.5, plot_chance_level=False)
    assert {line.get_linewidth() for line in drawn.lines_} == {0.5}
    assert drawn.chance_level_ is None
    assert "chance" not in legend(drawn)


def test_treating_all_is_worth_something_else_in_each_group():
    rng = np.random.default_rng(5)
    group = np.repeat(["few", "many"], 1500)
    y = rng.random(3000) < np.where(group == "few", 0.1, 0.5)
    rows = fg.Examples(y, sigmoid(rng.normal(2 * y - 1, 1)), group=group)
    result = fg.evaluate({"a": rows}, groups=["few", "many"], axis=AXIS_OVERLAID)
    drawn = fg.DecisionCurveDisplay.from_evaluation(result).plot()
    for each in drawn.overlaid.others:
        assert each.chance_level_.get_color() == each.line_.get_color()
        assert each.chance_level_.get_ydata()[0] == pytest.approx(each.positive_rate)
    assert legend(drawn).count("treat all") == 1


def test_a_legend_that_lies_on_curves_stands_beside_them(classes):
    """These calibration curves leave no corner free: the figure grows, and nothing is cut off."""
    drawn = fg.ReliabilityDisplay.from_evaluation(classes).plot()
    drawn.figure_.canvas.draw()
    box, inside = drawn.ax_.get_legend().get_window_extent(), drawn.ax_.get_window_extent()
    assert inside.x1 < box.x0 < box.x1 <= drawn.figure_.bbox.x1
    width, height = drawn.figure_.get_size_inches()
    assert width > height
    assert drawn.ax_.xaxis.label.get_window_extent().y0 >= 0


def test_axes_of_the_user_keep_their_size_and_have_brief_entries():
    figure, ax = pyplot.subplots(figsize=(3.5, 3.5), layout="constrained")
    drawn = fg.RocCurveDisplay.from_evaluation(by_class(5)).plot(ax=ax)
    figure.canvas.draw()
    assert tuple(figure.get_size_inches()) == (3.5, 3.5)
    assert " to " not in "".join(legend(drawn))
    box, inside = ax.get_legend().get_window_extent(), ax.get_window_extent()
    assert inside.x0 <= box.x0 < box.x1 <= inside.x1


def test_unsure_points_of_many_calibration_curves_are_left_out():
    result = by_class(5, rows=200)
    drawn = fg.ReliabilityDisplay.from_evaluation(result)
    for each in (drawn, *drawn.overlaid.others):
        assert np.all(each.band.high - each.band.low < 0.5)
        assert each.scores is None
    alone = fg.ReliabilityDisplay.from_evaluation(result.select(label="c0"))
    assert len(alone.x) > len(drawn.x)
