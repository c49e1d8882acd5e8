"""The display of a confusion matrix: its cells, their numbers, and the names of classes."""

import itertools

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot

import fedgauge as fg

matplotlib.use("agg")


@pytest.fixture(autouse=True)
def _closed():
    yield
    pyplot.close("all")


def matrix(counts, labels=None, variance=0.0):
    counts = np.asarray(counts)
    labels = labels or [f"c{k}" for k in range(len(counts))]
    return fg.ClassConfusion(tuple(labels), counts, variance, 0.95)


def random(classes, **options):
    return matrix(np.random.default_rng(1).integers(0, 500, (classes, classes)), **options)


def numbers(display):
    return [[cell.get_text() for cell in row] for row in display.text_]


def test_counts():
    drawn = fg.ConfusionMatrixDisplay.from_matrix(matrix([[1200, 2], [1, 9]])).plot()
    assert numbers(drawn) == [["1,200", "2"], ["1", "9"]]
    assert [each.get_text() for each in drawn.ax_.get_xticklabels()] == ["c0", "c1"]
    assert [each.get_text() for each in drawn.ax_.get_yticklabels()] == ["c0", "c1"]
    assert (drawn.ax_.get_xlabel(), drawn.ax_.get_ylabel()) == ("Predicted label", "True label")
    assert drawn.im_.colorbar.ax.get_ylabel() == "Examples"
    assert drawn.ax_.get_ylim() == (1.5, -0.5)  # the first class is on top


@pytest.mark.parametrize(
    ("normalize", "first", "says"),
    [
        ("true", ["0.80", "0.20"], "Share of the true class"),
        ("pred", ["0.89", "0.18"], "Share of the predicted class"),
        ("all", ["0.40", "0.10"], "Share of all examples"),
    ],
)
def test_shares(normalize, first, says):
    drawn = fg.ConfusionMatrixDisplay.from_matrix(
        matrix([[8, 2], [1, 9]]), normalize=normalize
    ).plot()
    assert numbers(drawn)[0] == first
    assert drawn.im_.colorbar.ax.get_ylabel() == says
    assert drawn.im_.get_clim() == ((0, 1) if normalize != "all" else (0, 0.45))


def test_unknown_share():
    with pytest.raises(fg.InputError, match="normalize must be one of true, pred, all"):
        fg.ConfusionMatrixDisplay.from_matrix(matrix([[1]]), normalize="rows")


def test_a_class_without_examples_has_no_shares():
    drawn = fg.ConfusionMatrixDisplay.from_matrix(matrix([[8, 2], [0, 0]]), normalize="true").plot()
    assert numbers(drawn)[1] == ["-", "-"]
    assert drawn.im_.get_array().mask.tolist() == [[False, False], [True, True]]


def test_noisy_counts_are_not_below_zero():
    noisy = matrix([[80.4, -3.2], [1.0, 90.0]], variance=16.0)
    drawn = fg.ConfusionMatrixDisplay.from_matrix(noisy).plot()
    assert numbers(drawn)[0] == ["80", "0"]
    assert drawn.im_.colorbar.ax.get_ylabel() == "Examples, each with noise of 4"


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


def test_numbers_where_they_fit():
    few, many = (fg.ConfusionMatrixDisplay.from_matrix(random(k)) for k in (20, 21))
    assert few.plot().text_ is not None
    assert many.plot().text_ is None
    _, small = pyplot.subplots(figsize=(2, 2))
    assert few.plot(ax=small).text_ is None
    two = fg.ConfusionMatrixDisplay.from_matrix(random(2))
    assert two.plot(ax=small, include_values=False).text_ is None
    assert two.plot(ax=small, include_values=True).text_ is not None


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


def test_colours_of_the_user():
    drawn = fg.ConfusionMatrixDisplay.from_matrix(random(3)).plot(cmap="viridis")
    assert drawn.im_.get_cmap().name == "viridis"
