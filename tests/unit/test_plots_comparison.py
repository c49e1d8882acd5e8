"""Displays of estimates below each other: groups and their gaps, differences of two models."""

import itertools

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_hex

import fedgauge as fg

pytestmark = pytest.mark.usefixtures("figures_closed")

AXIS = fg.Axis.uniform(64)
STANDS_OUT, USUAL = "#d55e00", "#0072b2"


def grouped(shift, names=("women", "men"), listed=None, **options):
    rng = np.random.default_rng(1)
    y, which = rng.random(3000) < 0.4, rng.integers(0, len(names), 3000)
    score = np.clip(rng.normal(0.35 + 0.2 * y + shift * which, 0.15), 0, 1)
    rows = fg.Examples(y, score, group=np.array(names)[which])
    return fg.evaluate({"a": rows}, groups=list(listed or names), axis=AXIS, **options)


@pytest.fixture(scope="module")
def unequal():
    return grouped(0.1)


@pytest.fixture(scope="module")
def two():
    rng = np.random.default_rng(2)
    y, (shared, own) = rng.random(3000) < 0.3, rng.normal(size=(2, 3000))
    odds = {"new": 1.5 * y + shared, "old": y + shared + 0.4 * own}
    scores = {name: 1 / (1 + np.exp(-each)) for name, each in odds.items()}
    return fg.evaluate({"a": fg.Examples(y, scores)}, models=["new", "old"], axis=AXIS)


def texts(display):
    return [each.get_text() for each in display.ax_.texts]


def rows(display):
    return [each.get_text() for each in display.ax_.get_yticklabels()]


def colours(display):
    return [to_hex(each) for each in display.points_.get_facecolors()]


def test_groups_below_each_other_with_intervals(unequal):
    gaps = unequal.gaps("recall", at=0.5)
    drawn = fg.GapDisplay.from_gaps(gaps).plot()
    assert rows(drawn) == ["women", "men"]  # nobody is in "other"
    values = [gaps.groups[name] for name in ("women", "men")]
    np.testing.assert_allclose(
        drawn.points_.get_offsets(), [[each.value, y] for y, each in enumerate(values)]
    )
    ends = [segment[:, 0].tolist() for segment in drawn.intervals_.get_segments()]
    assert ends == [[each.low, each.high] for each in values]
    bottom, top = drawn.ax_.get_ylim()
    assert bottom > top  # the first is on top
    first = values[0]
    assert texts(drawn)[0] == f"{first.value:.2f} ({first.low:.2f} to {first.high:.2f})"
    # Of three groups, xAUC between two of them is not that of either against the rest.
    three = grouped(0.1, names=("women", "men", "not said"))
    assert fg.GapDisplay.from_gaps(three.gaps("xauc")).plot().span_ is None
    rest = fg.GapDisplay.from_gaps(unequal.gaps("recall", at=0.5, against="rest")).plot()
    assert rest.span_ is not None


def test_the_largest_gap_is_marked(unequal):
    gaps = unequal.gaps("recall", at=0.5)
    drawn = fg.GapDisplay.from_gaps(gaps).plot()
    assert gaps.largest.stands_out
    assert colours(drawn) == [STANDS_OUT] * 2
    assert drawn.ax_.get_title(loc="left").replace("\n", " ") == gaps.verdict
    left, right = drawn.span_.get_extents().transformed(drawn.ax_.transData.inverted()).intervalx
    assert [left, right] == pytest.approx(sorted(e.value for e in gaps.groups.values() if e))
    gaps = grouped(0.0).gaps("recall", at=0.5)
    drawn = fg.GapDisplay.from_gaps(gaps).plot()
    assert not gaps.largest.stands_out
    assert colours(drawn) == [USUAL] * 2
    assert drawn.span_ is not None


def test_groups_that_nobody_is_in_or_that_cannot_be_compared():
    rows_ = fg.Examples([0, 1] * 30, np.linspace(0, 1, 60), group=["women", "men", "men"] * 20)
    result = fg.evaluate({"a": rows_}, groups=["women", "nobody", "men"])
    drawn = fg.GapDisplay.from_gaps(result.gaps("roc_auc")).plot()
    assert rows(drawn) == ["women", "nobody", "men"]
    assert texts(drawn)[1] == "undefined"
    result = grouped(0.0, names=("women",), listed=["women", "men"])
    drawn = fg.GapDisplay.from_gaps(result.gaps("recall", at=0.5)).plot()
    assert drawn.largest is None
    assert drawn.span_ is None
    assert drawn.ax_.get_title(loc="left") == "No two groups can be compared."


def test_withheld_groups_have_a_row_that_says_so():
    rng = np.random.default_rng(3)
    y, sex = rng.random(6000) < 0.4, rng.choice(["women", "men"], 6000)
    score = rng.uniform(0.3 * y, 1)
    sites = {k: fg.Examples(y[k::3], score[k::3], group=sex[k::3]) for k in range(3)}
    result = fg.evaluate(
        {f"site {k}": each for k, each in sites.items()},
        groups=["women", "nobody", "men"],
        privacy=fg.DistributedDP(2.0),
        seed=1,
    )
    drawn = fg.GapDisplay.from_gaps(result.gaps("recall", at=0.5)).plot()
    assert rows(drawn) == ["women", "nobody", "men", "other"]
    assert len(drawn.points_.get_offsets()) == 2
    assert texts(drawn).count("withheld") == 2


def test_many_groups_make_the_figure_higher():
    result = grouped(0.01, names=[f"g{k}" for k in range(25)])
    drawn = fg.GapDisplay.from_gaps(result.gaps("selection_rate", at=0.5)).plot()
    assert 6 < drawn.figure_.get_size_inches()[1] < 8  # low rows
    assert len(rows(drawn)) == 25
    _, small = pyplot.subplots(figsize=(3.5, 2.5))
    drawn = fg.GapDisplay.from_gaps(result.gaps("selection_rate", at=0.5)).plot(ax=small)
    assert len(rows(drawn)) < 25  # those that would lie on each other
    assert len(drawn.points_.get_offsets()) == 25


@pytest.mark.parametrize("width", [3.5, 6.4])
def test_nothing_is_cut_off(width):
    names = ("people who live in a rural municipality", "people who live in cities of over $100")
    gaps = grouped(0.1, names=names).gaps("recall", at=0.5)
    figure, ax = pyplot.subplots(figsize=(width, 3.5), layout="constrained")
    fg.GapDisplay.from_gaps(gaps).plot(ax=ax)
    for _ in range(2):
        figure.canvas.draw()
    for each in (*ax.get_yticklabels(), *ax.texts, ax.xaxis.label, ax._left_title):
        box = each.get_window_extent()
        assert box.x0 >= -1, each
        assert box.x1 <= figure.bbox.x1 + 1, each


def test_verdicts_stay_beside_other_axes(two, unequal):
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 3), layout="constrained")
    fg.ComparisonDisplay.from_comparison(two.compare("new", "old", margin=0.3)).plot(ax=left)
    fg.GapDisplay.from_gaps(unequal.gaps("recall", at=0.5)).plot(ax=right)
    for _ in range(2):
        figure.canvas.draw()
    assert left.get_tightbbox().x1 <= right.get_tightbbox().x0


def test_differences_of_two_models_with_a_margin_and_at_a_threshold(two):
    comparison = two.compare("new", "old")
    drawn = fg.ComparisonDisplay.from_comparison(comparison).plot()
    assert rows(drawn) == ["ROC AUC", "average precision", "Brier score, lower is better"]
    wanted = [comparison.roc_auc, comparison.average_precision, comparison.brier_score]
    assert drawn.points_.get_offsets()[:, 0].tolist() == [each.value for each in wanted]
    assert drawn.ax_.get_xlabel() == "new less old, 95% intervals"
    assert drawn.ax_.get_title(loc="left").replace("\n", " ") == comparison.verdict
    assert any(list(line.get_xdata()) == [0, 0] for line in drawn.ax_.lines)
    assert drawn.margin_ is None
    comparison = two.compare("new", "old", margin=0.02)
    drawn = fg.ComparisonDisplay.from_comparison(comparison).plot()
    assert list(drawn.margin_.get_xdata()) == [-0.02, -0.02]
    assert max(drawn.margin_.get_ydata()) < 0.5  # beside the first row
    assert "margin" in texts(drawn)
    comparison = two.compare("new", "old")
    drawn = fg.ComparisonDisplay.from_comparison(comparison, at=0.25).plot()
    at = ["precision at 0.25", "recall at 0.25", "specificity at 0.25", "net benefit at 0.25"]
    assert rows(drawn)[3:] == at
    differences = comparison.at_threshold(0.25)
    assert drawn.rows[4].estimate.value == differences.recall.value
    assert drawn.rows[6].estimate.value == comparison.net_benefit(0.25).value


def test_scores_that_are_no_probabilities():
    rng = np.random.default_rng(4)
    y = rng.random(500) < 0.5
    scores = {"new": rng.normal(y, 1), "old": rng.normal(y, 2)}
    axis = fg.Axis.uniform(64, -9, 9)
    result = fg.evaluate({"a": fg.Examples(y, scores)}, models=["new", "old"], axis=axis)
    comparison = result.compare("new", "old")
    with pytest.raises(fg.UndefinedMetric, match="net benefits need probabilities"):
        comparison.net_benefit(0.25)
    display = fg.ComparisonDisplay.from_comparison(comparison, at=0.25)
    named = [row.name for row in display.rows]
    assert named[:2] == ["ROC AUC", "average precision"]
    assert not {"Brier score, lower is better", "net benefit at 0.25"} & set(named)


def matrix(counts, labels=None, variance=0.0):
    counts = np.asarray(counts)
    labels = labels or [f"c{k}" for k in range(len(counts))]
    return fg.ClassConfusion(tuple(labels), counts, variance, 0.95)


def random(classes, **options):
    return matrix(np.random.default_rng(1).integers(0, 500, (classes, classes)), **options)


def numbers(display):
    return [[cell.get_text() for cell in row] for row in display.text_]


def test_counts_and_shares_of_noise_and_of_no_examples():
    drawn = fg.ConfusionMatrixDisplay.from_matrix(matrix([[1200, 2], [1, 9]])).plot()
    assert numbers(drawn) == [["1,200", "2"], ["1", "9"]]
    assert [each.get_text() for each in drawn.ax_.get_xticklabels()] == ["c0", "c1"]
    assert [each.get_text() for each in drawn.ax_.get_yticklabels()] == ["c0", "c1"]
    assert (drawn.ax_.get_xlabel(), drawn.ax_.get_ylabel()) == ("Predicted label", "True label")
    assert drawn.im_.colorbar.ax.get_ylabel() == "Examples"
    assert drawn.ax_.get_ylim() == (1.5, -0.5)  # the first class is on top
    noisy = matrix([[80.4, -3.2], [1.0, 90.0]], variance=16.0)
    drawn = fg.ConfusionMatrixDisplay.from_matrix(noisy).plot()
    assert numbers(drawn)[0] == ["80", "0"]
    assert drawn.im_.colorbar.ax.get_ylabel() == "Examples, each with noise of 4"
    drawn = fg.ConfusionMatrixDisplay.from_matrix(matrix([[8, 2], [0, 0]]), normalize="true").plot()
    assert numbers(drawn)[1] == ["-", "-"]
    assert drawn.im_.get_array().mask.tolist() == [[False, False], [True, True]]
    with pytest.raises(fg.InputError, match="normalize must be one of true, pred, all"):
        fg.ConfusionMatrixDisplay.from_matrix(matrix([[1]]), normalize="rows")


def test_shares():
    for normalize, first, says in (
        ("true", ["0.80", "0.20"], "Share of the true class"),
        ("pred", ["0.89", "0.18"], "Share of the predicted class"),
        ("all", ["0.40", "0.10"], "Share of all examples"),
    ):
        few, cls = matrix([[8, 2], [1, 9]]), fg.ConfusionMatrixDisplay
        drawn = cls.from_matrix(few, normalize=normalize).plot()
        assert numbers(drawn)[0] == first
        assert drawn.im_.colorbar.ax.get_ylabel() == says
        assert drawn.im_.get_clim() == ((0, 1) if normalize != "all" else (0, 0.45))


def test_numbers_are_told_from_their_ground():
    for style in ("default", "dark_background"):
        with pyplot.style.context(style):
            drawn = fg.ConfusionMatrixDisplay.from_matrix(
                matrix([[100, 1], [50, 30]]), normalize="all"
            ).plot()
        high, low = drawn.text_[0]
        assert {high.get_color(), low.get_color()} == {"black", "white"}
        ground = drawn.im_.to_rgba(drawn.confusion_matrix)[0, 0, :3].mean()
        assert high.get_color() == ("white" if ground < 0.5 else "black")


def test_numbers_where_they_fit_and_colours_of_the_user():
    few, many = (fg.ConfusionMatrixDisplay.from_matrix(random(k)) for k in (20, 21))
    assert few.plot().text_ is not None
    assert many.plot().text_ is None
    _, small = pyplot.subplots(figsize=(2, 2))
    assert few.plot(ax=small).text_ is None
    two = fg.ConfusionMatrixDisplay.from_matrix(random(2))
    assert two.plot(ax=small, include_values=False).text_ is None
    assert two.plot(ax=small, include_values=True).text_ is not None
    drawn = fg.ConfusionMatrixDisplay.from_matrix(random(3)).plot(cmap="viridis")
    assert drawn.im_.get_cmap().name == "viridis"


@pytest.mark.parametrize("size", [None, (3.5, 3.5)])
def test_numbers_stay_in_their_cells(size):
    labels = [f"a class with a long name, number {k} of $10" for k in range(10)]
    ax = pyplot.subplots(figsize=size, layout="constrained")[1] if size else None
    drawn = fg.ConfusionMatrixDisplay.from_matrix(random(10, labels=labels)).plot(ax=ax)
    drawn.figure_.canvas.draw()
    cell = drawn.ax_.get_window_extent().width / 10
    assert max(text.get_window_extent().width for row in drawn.text_ for text in row) < cell
    for each in drawn.ax_.get_yticklabels():
        assert "…" in each.get_text()
        assert each.get_window_extent().x0 >= 0


def test_names_of_many_classes_do_not_lie_on_each_other():
    _, small = pyplot.subplots(figsize=(2.5, 2.5))
    drawn = fg.ConfusionMatrixDisplay.from_matrix(random(60)).plot(ax=small, colorbar=False)
    drawn.figure_.canvas.draw()
    boxes = [each.get_window_extent() for each in drawn.ax_.get_yticklabels()]
    assert 10 < len(boxes) < 60
    assert all(above.y0 >= below.y1 - 1 for above, below in itertools.pairwise(boxes))
    assert len(small.figure.axes) == 1
