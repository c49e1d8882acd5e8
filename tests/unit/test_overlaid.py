"""Displays of results with slices: which curves are on the axes, how they look, what is said."""

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_rgb

import fedgauge as fg

matplotlib.use("agg")

AXIS = fg.Axis.uniform(32)
CURVES = [fg.RocCurveDisplay, fg.PrecisionRecallDisplay]
OTHERS = [fg.DetCurveDisplay, fg.PrGainDisplay, fg.GainDisplay]
OF_PROBABILITIES = [fg.ReliabilityDisplay, fg.DecisionCurveDisplay]
SOME = [fg.RocCurveDisplay, fg.DetCurveDisplay, fg.ReliabilityDisplay]
EVERY = [*CURVES, *OTHERS, *OF_PROBABILITIES]


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
        options["axis"] = AXIS
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
    return fg.evaluate({"a": data}, task=task, axis=AXIS)


def by_model(models, groups=None, rows=3000):
    rng = np.random.default_rng(3)
    y, shared = rng.random(rows) < 0.3, rng.normal(size=rows)
    scores = {name: sigmoid((1.5 - 0.3 * k) * y - 1 + shared) for k, name in enumerate(models)}
    group = rng.choice(groups, rows) if groups else None
    options = {"groups": groups} if groups else {}
    return fg.evaluate(
        {"a": fg.Examples(y, scores, group=group)}, models=models, axis=AXIS, **options
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


@pytest.fixture(autouse=True)
def _closed():
    yield
    pyplot.close("all")


def legend(display):
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


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
def test_by_none_is_one_curve_of_all_rows(groups, cls):
    drawn = cls.from_evaluation(groups, name="A", by=None).plot()
    assert names(drawn) == ["A"]
    assert drawn.overlaid is None
    assert drawn.band_ is not None


@pytest.mark.parametrize("cls", SOME)
def test_a_selected_slice_is_one_curve(groups, models, cls):
    for result in (groups.select(group="men"), models.select(model="old")):
        assert cls.from_evaluation(result).overlaid is None


@pytest.mark.parametrize("cls", CURVES)
def test_classes_have_an_average_in_bold(classes, cls):
    drawn = cls.from_evaluation(classes).plot()
    assert names(drawn) == ["macro average", "c0", "c1", "c2"]
    thin = {each.get_linewidth() for each in drawn.lines_[1:]}
    assert drawn.line_.get_linewidth() > max(thin)
    roc = cls is fg.RocCurveDisplay
    metric, curve = (
        ("roc_auc", classes.macro_roc_curve())
        if roc
        else ("average_precision", classes.macro_pr_curve())
    )
    assert drawn.area == classes.macro(metric)
    np.testing.assert_array_equal(drawn.x, curve.points()[0])
    for each, name in zip(drawn.overlaid.others, ("c0", "c1", "c2"), strict=True):
        assert_same(each, classes.select(label=name), cls)


@pytest.mark.parametrize("cls", [fg.DetCurveDisplay, fg.ReliabilityDisplay])
def test_classes_without_an_average(classes, cls):
    drawn = cls.from_evaluation(classes).plot()
    assert names(drawn) == ["c0", "c1", "c2"]
    assert_same(drawn, classes.select(label="c0"), cls)
    assert drawn.band_ is not None


@pytest.mark.parametrize("cls", CURVES)
def test_the_average_alone(classes, cls):
    drawn = cls.from_evaluation(classes, by=None).plot()
    assert drawn.overlaid is None
    assert len(drawn.lines_) == 1


def test_chance_of_an_average_is_that_of_all_classes(classes):
    display = fg.PrecisionRecallDisplay.from_evaluation(classes)
    shares = [each.positive_rate for each in display.overlaid.others]
    assert display.positive_rate == pytest.approx(np.mean(shares)) == pytest.approx(1 / 3)


@pytest.mark.parametrize("cls", SOME)
def test_models_are_drawn_one_by_one(models, cls):
    drawn = cls.from_evaluation(models).plot()
    assert names(drawn) == ["new", "old"]
    assert_same(drawn, models.select(model="new"), cls)
    assert all(each.band_ is not None for each in (drawn, *drawn.overlaid.others))
    assert drawn.overlaid.others[0].chance_level_ is drawn.chance_level_


def test_lift_of_slices(groups):
    drawn = fg.GainDisplay.from_evaluation(groups, lift=True).plot()
    for each in drawn.overlaid.others:
        alone = fg.GainDisplay.from_evaluation(groups.select(group=each.name), lift=True)
        np.testing.assert_array_equal(each.y, alone.y)


def test_by_what_slices_are_told_apart(both):
    roc = fg.RocCurveDisplay
    assert names(roc.from_evaluation(both).plot()) == ["new", "old"]
    old = both.select(model="old")
    assert roc.from_evaluation(old).overlaid is None
    drawn = roc.from_evaluation(old, by="group").plot()
    assert names(drawn) == ["all", "women", "men"]
    assert_same(drawn.overlaid.others[1], both.select(model="old", group="men"), roc)
    women = both.select(group="women")
    assert names(roc.from_evaluation(women).plot()) == ["new", "old"]


def test_what_cannot_be_told_apart(models, both, classes):
    roc = fg.RocCurveDisplay.from_evaluation
    with pytest.raises(fg.InputError, match=r"by='label' .* It has 'model', 'group'\."):
        roc(both, by="label")
    with pytest.raises(fg.InputError, match="Leave it out: it is of one slice"):
        roc(models.select(model="old"), by="model")
    with pytest.raises(fg.InputError, match=r"result\.select\(model=\.\.\.\)"):
        roc(both, by="group")  # of which model?
    with pytest.raises(fg.InputError, match=r"result\.select\(model=\.\.\.\)"):
        roc(models, by=None)
    with pytest.raises(fg.InputError, match=r"result\.select\(label=\.\.\.\)"):
        fg.DetCurveDisplay.from_evaluation(classes, by=None)


def test_groups_of_several_classes_are_averages():
    rng = np.random.default_rng(4)
    kind, group = rng.integers(0, 3, 3000), rng.choice(["women", "men"], 3000)
    odds = np.exp(rng.normal(size=(3000, 3)) + 1.5 * (kind[:, None] == np.arange(3)))
    rows = fg.Examples(kind, odds / odds.sum(axis=1, keepdims=True), group=group)
    task = fg.MulticlassTask(labels=[0, 1, 2], groups={"sex": ["women", "men"]})
    result = fg.evaluate({"a": rows}, task=task, axis=AXIS)
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


def test_ten_slices_are_told_apart():
    drawn = fg.RocCurveDisplay.from_evaluation(by_class(10)).plot()
    looks = {(line.get_color(), str(line._unscaled_dash_pattern)) for line in drawn.lines_[1:]}
    assert len(looks) == 10


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


def test_joined_groups_are_withheld():
    task = fg.BinaryTask(groups={"by": ["women", "men", "not said"]})
    plan = fg.EvaluationPlan.for_histogram(AXIS, fg.Cohort(3), task=task, min_cell=400)
    drawn = fg.RocCurveDisplay.from_evaluation(
        by_group(["women", "men", "not said"], plan=plan)
    ).plot()
    assert names(drawn)[0] == "all"
    assert "not said (withheld)" in legend(drawn)
    assert len(drawn.lines_) == 1 + len(drawn.overlaid.others)


def test_all_rows_are_drawn_where_every_group_is_withheld():
    noisy = by_group(list("abcdefghijkl"), privacy=fg.DistributedDP(0.4))
    drawn = fg.RocCurveDisplay.from_evaluation(noisy).plot()
    assert drawn.overlaid.others == ()
    assert drawn.band_ is not None
    assert names(drawn) == ["all", "12 groups"]
    assert "12 groups (withheld)" in legend(drawn)


def test_nothing_to_draw_of_any_slice():
    rows = fg.Examples([0, 0, 0], {"new": [0.1, 0.2, 0.3], "old": [0.1, 0.2, 0.3]})
    result = fg.evaluate({"a": rows}, models=["new", "old"], axis=AXIS)
    with pytest.raises(fg.UndefinedMetric):
        fg.RocCurveDisplay.from_evaluation(result)


def test_names_before_those_of_slices(groups):
    drawn = fg.RocCurveDisplay.from_evaluation(groups, name="2024").plot()
    fg.RocCurveDisplay.from_evaluation(groups).plot(ax=drawn.ax_, name="2025")
    years = ("2024", "2025")
    assert names(drawn) == [f"{year}, {n}" for year in years for n in ("all", "women", "men")]


def test_lines_as_the_user_wants_them(groups):
    drawn = fg.RocCurveDisplay.from_evaluation(groups).plot(linewidth=0.5, plot_chance_level=False)
    assert {line.get_linewidth() for line in drawn.lines_} == {0.5}
    assert drawn.chance_level_ is None
    assert "chance" not in legend(drawn)


def test_treating_all_is_worth_something_else_in_each_group():
    rng = np.random.default_rng(5)
    group = np.repeat(["few", "many"], 1500)
    y = rng.random(3000) < np.where(group == "few", 0.1, 0.5)
    rows = fg.Examples(y, sigmoid(rng.normal(2 * y - 1, 1)), group=group)
    result = fg.evaluate({"a": rows}, groups=["few", "many"], axis=AXIS)
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


def test_dark_style(classes):
    with pyplot.style.context("dark_background"):
        drawn = fg.RocCurveDisplay.from_evaluation(classes).plot()
    assert to_rgb(drawn.line_.get_color()) == (1, 1, 1)
