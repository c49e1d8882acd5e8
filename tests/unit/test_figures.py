"""Plots of a result: PNG files with the curves in them."""

import itertools

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.image import imread
from rows import split

import fedgauge as fg
from fedgauge.plots import Overlay, save_plots
from fedgauge.plots.figures import NAMES, OF_SLICES

POOLED, PALE_EXACT = (0, 114, 178), (240, 189, 136)


@pytest.fixture(scope="module")
def result():
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 2, 3000)
    scores = 1 / (1 + np.exp(-rng.normal(2 * labels - 1, 1)))
    return fg.evaluate({"a": (labels, scores)})


def is_near(image, colour):
    return np.abs(image[..., :3] * 255 - colour).max(axis=-1) < 12


def pixels_near(image, colour):
    return int(np.count_nonzero(is_near(image, colour)))


def test_four_pictures_in_the_folder(result, tmp_path):
    before = pyplot.get_fignums()
    exact = Overlay("exact", "exact", [0.0, 0.0, 1.0], [0.0, 0.5, 1.0])
    paths = save_plots(result, str(tmp_path), roc=[exact])
    names = ("roc.png", "pr.png", "reliability.png", "decision.png")
    assert paths == [tmp_path / name for name in names]
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    images = [imread(path) for path in paths]
    for image in images:
        assert image.shape[0] > 400
        assert image.shape[1] > 400
        assert pixels_near(image, POOLED) > 500
    # Overlays are drawn half transparent on white: paler than the colour itself.
    assert pixels_near(images[0], PALE_EXACT) > 500
    assert pixels_near(images[1], PALE_EXACT) == 0
    assert len({path.read_bytes() for path in paths}) == 4
    assert pyplot.get_fignums() == before


def test_curve_lies_where_the_numbers_say(tmp_path):
    # A perfect classifier's ROC curve runs along the top, a reversed one's along the bottom.
    heights = []
    for labels in ([0, 0, 1, 1], [1, 1, 0, 0]):
        axis = fg.Axis.uniform(64, -1, 2)  # of no probabilities: two pictures in place of four
        result = fg.evaluate({"a": (labels, [0.1, 0.2, 0.8, 0.9])}, axis=axis)
        image = imread(save_plots(result, tmp_path)[0])
        rows, columns = np.nonzero(is_near(image, POOLED))
        heights.append(np.median(rows[(columns > 200) & (columns < 300)]) / len(image))
    assert heights[0] < 0.2
    assert heights[1] > 0.7


@pytest.fixture
def figures(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "matplotlib.figure.Figure.savefig", lambda figure, *_, **__: drawn.append(figure)
    )
    return drawn


def texts(figure):
    """All that stands in a picture, but for ticks: around the axes, in the legend, at the foot."""
    (axes,) = figure.axes
    entries = [text.get_text() for text in axes.get_legend().get_texts()]
    around = [text.get_text() for text in (*axes.texts, *figure.texts)]
    return entries, "\n".join(around).replace("\n", " ")


def at_four(scale=1.0, **options):
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 2, 3000)
    scores = scale / (1 + np.exp(-rng.normal(2 * labels - 1, 1)))
    return fg.evaluate(split(labels, scores, 4), seed=1, **options)


def test_a_picture_says_what_was_measured(figures, tmp_path):
    result = at_four(privacy=fg.DistributedDP(1.0))
    save_plots(result, tmp_path, name="triage 2")
    reliability, decision = (texts(figure)[0][0] for figure in figures[2:])
    assert reliability.startswith("triage 2\n(ECE 0.")
    assert decision.startswith("triage 2 (useful 0.")
    for figure, area in zip(figures, (result.roc_auc, result.average_precision), strict=False):
        entries, around = texts(figure)
        assert entries[0].startswith("triage 2 (A")
        assert f"{area.low:.2f}"[:4] in entries[0]
        assert entries[1:] == ["95% band, pointwise", "chance"]
        assert str(result).splitlines()[0] in around
        assert "epsilon 1, delta" in around
        assert "caution" not in around


def test_reports_and_exact_sums_say_so(figures, result, tmp_path):
    save_plots(result, tmp_path)
    save_plots(at_four(privacy=fg.LocalDP(5.0)), tmp_path)
    assert "1 client, 3,000 examples" in texts(figures[0])[1]
    assert "exact sum" in texts(figures[0])[1]
    assert "4 clients, 3,000 reports, about " in texts(figures[4])[1]


def test_cautions_stand_at_the_foot(figures, tmp_path):
    save_plots(at_four(scale=100.0, privacy=fg.DistributedDP(1.0)), tmp_path)
    few = fg.evaluate({"a": ([0, 1] * 6, np.linspace(0.1, 0.9, 12))})
    save_plots(few, tmp_path)
    for figure in figures[:4]:
        assert "caution: the last bin of the axis" in texts(figure)[1]
        assert figure.texts[0].get_color() == "#b00020"
    entries, around = texts(figures[5])
    assert entries[0].endswith("rough)")
    assert f"rough: {few.average_precision.caution}" in around


def test_nothing_lies_on_anything_else(figures, tmp_path):
    """Title, facts, square, legend and foot, from above, whatever they hold."""
    for name in ("p", "a very long name of a model, trained twice, by many people " * 3):
        save_plots(at_four(scale=100.0, privacy=fg.DistributedDP(1.0)), tmp_path, name=name)
    for figure in figures:
        figure.draw_without_rendering()
        (axes,) = figure.axes
        parts = [axes.title, axes.texts[0], axes, axes.xaxis.label, axes.get_legend()]
        boxes = [part.get_window_extent() for part in (*parts, figure.texts[0])]
        gaps = [above.y0 - below.y1 for above, below in itertools.pairwise(boxes)]
        assert min(gaps) >= 0, gaps
        assert boxes[0].y1 <= figure.bbox.y1
        assert boxes[-1].y0 >= 0
        assert boxes[-1].x0 >= 0


def test_a_picture_says_who_held_what(figures, tmp_path):
    """Labels apart from scores: on one line that fits the picture."""
    scores = np.linspace(0.01, 0.99, 3000)
    bought = np.arange(3000) % 7 < 7 * scores**2
    shops = {f"shop {k}": (range(k, 3000, 4), bought[k::4]) for k in range(4)}
    save_plots(fg.evaluate_vertical((range(3000), scores), shops, tree=(8,), seed=1), tmp_path)
    for figure in figures:
        figure.draw_without_rendering()
        (axes,) = figure.axes
        first, second = axes.texts[0].get_text().splitlines()
        assert first.startswith("scores at one party, labels at 4 others; 3,000 examples, about ")
        assert second.startswith("label-DP, one label flipped: epsilon 1")
        box = axes.texts[0].get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.x1


def test_many_clients_share_one_entry_in_the_legend(figures, tmp_path):
    """Of scores that are no probabilities, which have two pictures."""
    labels, scores = np.arange(200) % 2, np.linspace(-4, 4, 200)
    result = fg.evaluate({"a": (labels, scores)}, axis=fg.Axis.uniform(64, -5, 5))
    shown, unseen = Overlay("each", "client", [0, 1], [0, 1]), Overlay("more", "client", [], [])
    for overlays in ([shown], [shown, unseen], [unseen]):
        paths = save_plots(result, tmp_path, roc=overlays)
        assert paths == [tmp_path / "roc.png", tmp_path / "pr.png"]
    assert len(figures) == 6
    one, both, other = (texts(figure)[0] for figure in figures[::2])
    assert one == both != other


def test_nothing_to_draw_and_nowhere_to_write(result, tmp_path):
    for labels in ([0, 0], [1, 1]):
        alone = fg.evaluate({"a": (labels, [0.1, 0.2])})
        with pytest.raises(fg.UndefinedMetric, match="no curves to draw"):
            save_plots(alone, tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(fg.RecordError, match=r"cannot write .*file.*roc\.png: File exists"):
        save_plots(result, tmp_path / "file")


@pytest.mark.parametrize(
    ("kind", "more"),
    [("groups", "gaps.png"), ("classes", "confusion.png"), ("models", "comparison.png")],
)
def test_slices_have_pictures_of_their_own(kind, more, figures, tmp_path):
    rng = np.random.default_rng(6)
    y, axis = rng.integers(0, 2, 1000), fg.Axis.uniform(32)
    score = 1 / (1 + np.exp(-rng.normal(2 * y - 1, 1)))
    if kind == "groups":
        rows = fg.Examples(y, score, group=rng.choice(["women", "men"], 1000))
        result = fg.evaluate({"a": rows}, groups=["women", "men"], axis=axis)
        named = ["all", "women", "men"]
    elif kind == "classes":
        task = fg.MulticlassTask(labels=[0, 1], also=["confusion"])
        rows = fg.Examples(y, np.column_stack([1 - score, score]))
        result = fg.evaluate({"a": rows}, task=task, axis=axis)
        named = ["macro average", "0", "1"]
    else:
        result = fg.evaluate(
            {"a": fg.Examples(y, {"new": score, "old": score**2})}, models=["new", "old"], axis=axis
        )
        named = ["new", "old"]
    paths = save_plots(result, tmp_path, name="score")
    assert [path.name for path in paths] == [*NAMES, more]
    assert more in OF_SLICES
    roc, last = figures[0], figures[-1]
    entries = [text.get_text().split(" (")[0] for text in roc.axes[0].get_legend().get_texts()]
    assert entries[: len(named)] == named
    assert "1 client, 1,000 examples" in last.get_suptitle()
    assert last.get_supxlabel() == "simulated"


def test_a_selected_slice_has_its_curves_alone(figures, tmp_path):
    rng = np.random.default_rng(6)
    y = rng.integers(0, 2, 600)
    rows = fg.Examples(y, rng.uniform(0.3 * y, 1), group=rng.choice(["women", "men"], 600))
    result = fg.evaluate({"a": rows}, groups=["women", "men"], axis=fg.Axis.uniform(32))
    paths = save_plots(result.select(group="men"), tmp_path, name="score")
    assert [path.name for path in paths] == [*NAMES]
    assert texts(figures[0])[0][0].startswith("score (AUC")


def test_classes_of_several_models_have_averages_alone(figures, tmp_path):
    """A reliability diagram is of one class: there is none of averages."""
    rng = np.random.default_rng(6)
    y = rng.integers(0, 2, 600)
    score = rng.uniform(0.3 * y, 1)
    both = {name: np.column_stack([1 - s, s]) for name, s in (("new", score), ("old", score**2))}
    task = fg.MulticlassTask(labels=[0, 1], models=("new", "old"))
    result = fg.evaluate({"a": fg.Examples(y, both)}, task=task, axis=fg.Axis.uniform(32))
    assert [path.name for path in save_plots(result, tmp_path)] == ["roc.png", "pr.png"]
    assert [each.split(" (")[0] for each in texts(figures[0])[0]] == ["new", "old", "chance"]
