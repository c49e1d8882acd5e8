"""Histograms count every row once, add up, refuse as a whole, and never wrap."""

import math
import operator

import numpy as np
import pytest
from refusals import refused

from fedgauge import Axis, AxisError, AxisMismatch, CountOverflow, Examples, InputError
from fedgauge import ScoreHistogram as Histogram
from fedgauge.histograms.channels import Layout
from fedgauge.histograms.histogram import _BATCH_ROWS as BATCH
from fedgauge.histograms.histogram import _THREADED_ROWS as THREADED
from fedgauge.histograms.histogram import check_tree


def rows(count, seed=0, decimals=None):
    rng = np.random.default_rng(seed)
    labels, scores = rng.integers(0, 2, count), rng.random(count)
    return labels, scores if decimals is None else scores.round(decimals)


def brute_force(axis, labels, scores):
    index = np.clip(np.searchsorted(axis.edges, scores, side="right") - 1, 0, axis.bins - 1)
    return np.stack([np.bincount(index[labels == y], minlength=axis.bins) for y in (0, 1)])


def filled(axis, count=500, seed=0):
    histogram = Histogram(axis)
    histogram.update(*rows(count, seed))
    return histogram


@pytest.mark.parametrize("count", [1, BATCH - 1, BATCH, BATCH + 1, 2 * BATCH + 1])
def test_counts_equal_brute_force_at_and_around_batch_boundaries(count):
    for axis in (
        Axis.uniform(1),
        Axis.uniform(100),
        Axis.uniform(4096),
        Axis.uniform(300_000),
        Axis.uniform(30, -0.7, 1.3),
        Axis.logit(77),
        Axis.from_edges([0.0, 0.1, 0.11, 0.9, 1.0]),
        Axis.from_values(np.arange(101) / 100),
    ):
        labels, scores = rows(count, seed=count, decimals=2)
        histogram = Histogram(axis)
        histogram.update(labels, scores)
        np.testing.assert_array_equal(histogram.counts, brute_force(axis, labels, scores))
        assert histogram.sum() == count


@pytest.mark.parametrize("processors", [None, 1, 2, 3, 64])
def test_many_rows_on_any_number_of_processors(processors, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: processors)
    labels, scores = rows(THREADED + 1, decimals=2)
    axis = Axis.uniform(100)
    histogram = Histogram(axis)
    words = processors == 3
    labelled = np.array(["fail", "pass"])[labels] if words else labels
    histogram.update(labelled, scores, positive="pass" if words else None)
    np.testing.assert_array_equal(histogram.counts, brute_force(axis, labels, scores))


def test_read_only_and_strided_inputs_are_taken_and_left_alone():
    labels, scores = rows(1000)
    table = np.stack([labels, scores], axis=1)
    kept = table.copy()
    table.setflags(write=False)
    for y_true, y_score in ((labels, scores), (table[:, 0], table[::-1, 1][::-1])):
        histogram = Histogram(Axis.uniform(7))
        histogram.update(y_true, y_score)
        expected = brute_force(Axis.uniform(7), labels, scores)
        np.testing.assert_array_equal(histogram.counts, expected)
    np.testing.assert_array_equal(np.stack([labels, scores], axis=1), kept)


def spoiled(count, where, what):
    labels, scores = rows(count)
    labels = labels.astype(float)
    if what == "third label":
        labels[where] = 2
    elif what == "missing label":
        labels[where] = math.nan
    else:
        scores[where] = {"nan": math.nan, "inf": math.inf, "outside": 1.5}[what]
    return labels, scores


FAULTS = {
    "third label": "labels are neither",
    "missing label": "labels are missing",
    "nan": "scores are missing",
    "inf": "scores are missing",
    "outside": "scores lie outside",
}
every_fault = pytest.mark.parametrize("what", FAULTS)


@pytest.mark.parametrize("where", [0, BATCH - 1, BATCH, 2 * BATCH])
@every_fault
def test_one_bad_row_among_many_leaves_counts_and_sums_unchanged(where, what):
    histogram = summed(Axis.uniform(8))
    before, sums = histogram.counts.copy(), histogram.sums.copy()
    with pytest.raises(InputError, match=f"^1 of {2 * BATCH + 1:,} {FAULTS[what]}"):
        histogram.update(*spoiled(2 * BATCH + 1, where, what))
    np.testing.assert_array_equal(histogram.counts, before)
    np.testing.assert_array_equal(histogram.sums, sums)


@every_fault
@pytest.mark.parametrize("where", [0, THREADED])
def test_one_bad_row_in_any_thread_leaves_the_counts_unchanged(where, what, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    histogram = filled(Axis.uniform(8))
    before = histogram.counts.copy()
    with pytest.raises(InputError, match=f"^1 of {THREADED + 1:,} {FAULTS[what]}"):
        histogram.update(*spoiled(THREADED + 1, where, what))
    np.testing.assert_array_equal(histogram.counts, before)


def test_bad_rows_are_counted_over_all_batches_and_threads():
    labels, scores = rows(THREADED + 1)
    labels[:: THREADED // 3] = 5
    histogram = Histogram(Axis.uniform(8))
    with pytest.raises(InputError, match=f"^4 of {THREADED + 1:,} labels are neither"):
        histogram.update(labels, scores)
    assert histogram.sum() == 0

    def batches():
        yield Examples([0, 1], [0.5, 2.0])
        yield Examples([0, 1, 1], [-1.0, 0.5, 3.0])

    with pytest.raises(InputError, match=r"^3 of 5 scores lie outside the axis \[0, 1\]"):
        Histogram(Axis.uniform(4)).update_batches(batches())
    with pytest.raises(InputError, match=r"^2 of 4 scores are missing"):
        Histogram(Axis.uniform(4)).update([0, 1, 0, 1], [0.5, math.nan, 7.0, math.inf])
    batches = [Examples(["no", "yes"], [0.1, 0.2]), Examples(["maybe", "yes"], [0.1, 0.2])]
    histogram = Histogram(Axis.uniform(4))
    with pytest.raises(InputError, match=r"^1 of 4 labels are a third value"):
        histogram.update_batches(batches, positive="yes")
    assert histogram.sum() == 0


def test_a_stream_that_breaks_leaves_the_counts_unchanged():
    def batches():
        yield Examples([0, 1], [0.5, 0.6])
        raise OSError("the disk went away")

    histogram = filled(Axis.uniform(4))
    before = histogram.counts.copy()
    refused(OSError, "disk", histogram.update_batches, batches())
    np.testing.assert_array_equal(histogram.counts, before)
    for level in histogram.levels((2, 2)):
        level += 1  # nor does changing a level
    np.testing.assert_array_equal(histogram.counts, before)


def test_no_rows_are_refused_and_empty_batches_among_others_do_no_harm():
    empty = Examples([], [])
    for batches in ([], [empty], [empty, empty]):
        with pytest.raises(InputError, match="there are no examples"):
            Histogram(Axis.uniform(4)).update_batches(batches)
    histogram = Histogram(Axis.uniform(4))
    histogram.update_batches([empty, Examples([1], [0.5]), empty])
    assert histogram.sum() == 1


def test_histograms_add():
    axis = Axis.uniform(16)
    a, b = filled(axis, 300, 1), filled(axis, 200, 2)
    kept = a.counts.copy()
    total, same = a + b, a
    np.testing.assert_array_equal(total.counts, kept + b.counts)
    np.testing.assert_array_equal(a.counts, kept)
    assert total == b + a == sum([a, b])
    alone = sum([a])
    alone += a
    assert alone == a + a
    np.testing.assert_array_equal(a.counts, kept)  # the sum of one is a copy
    a += b
    assert a is same
    assert a == total
    assert b == filled(axis, 200, 2)
    a += a
    assert a == total + total
    made = Axis.from_edges([i / 16 for i in range(17)])  # equal axes made differently
    assert (b + filled(made, 300, 1)) == total


def test_only_histograms_of_the_same_channels_and_steps_add():
    axis = Axis.uniform(4)
    histogram = filled(axis)
    for other in (1, 0.5, "x", None, [1]):
        for add in (
            lambda other=other: histogram + other,
            lambda other=other: other + histogram,
            lambda other=other: operator.iadd(histogram, other),
        ):
            with pytest.raises(TypeError):
                add()
    with pytest.raises(AxisMismatch, match="of 2 and of 4 channels"):
        Histogram(axis) + Histogram(axis, layout=Layout(groups=(("g", ("a",)),)))
    for one, other in ((0, 256), (256, 0), (256, 8)):
        a, b = (Histogram(axis, sum_steps=steps) for steps in (one, other))
        for add in (operator.add, operator.iadd):
            refused(AxisMismatch, f"score sums of {one} and of {other} steps", add, a, b)


@pytest.mark.parametrize(
    "other", [Axis.uniform(8), Axis.logit(4), Axis.uniform(4, outside="clip")], ids=repr
)
def test_histograms_on_other_axes_do_not_add(other):
    axis = Axis.uniform(4)
    a, b = filled(axis), filled(other)
    before = a.counts.copy()
    for add in (lambda: a + b, lambda: a.__iadd__(b), lambda: sum([a, b])):
        with pytest.raises(AxisMismatch) as caught:
            add()
        assert axis.digest[:8] in str(caught.value)
        assert other.digest[:8] in str(caught.value)
    np.testing.assert_array_equal(a.counts, before)


def test_equality_words_and_channels():
    axis = Axis.uniform(4)
    assert filled(axis) == filled(axis)
    assert filled(axis) != filled(axis, seed=1)
    assert Histogram(axis) != Histogram(Axis.uniform(4, outside="clip"))
    assert Histogram(axis) != 0
    refused(TypeError, "unhashable", hash, Histogram(axis))
    assert repr(Histogram(axis)).startswith("ScoreHistogram(Axis.uniform(4")
    assert "1,500 examples" in repr(filled(axis, 1500))
    axis, counts = Axis.uniform(2), [[1, 0], [0, 2], [3, 4], [5, 0]]
    four = Histogram.from_counts(axis, counts, layout=Layout(groups=(("g", ("a",)),)))
    assert four.counts.tolist() == counts
    assert (four + four).channels == 4
    assert [level.tolist() for level in four.levels((1, 2))] == [[[1], [2], [7], [5]], counts]


def test_from_counts_keeps_a_copy_and_counts_are_a_read_only_view():
    for dtype in ("int8", "uint8", "int32", "uint64", "int64"):
        given = np.array([[1, 2], [3, 4]], dtype=dtype)
        histogram = Histogram.from_counts(Axis.uniform(2), given)
        given[0, 0] = 99
        assert histogram.counts.dtype == np.int64
        assert histogram.counts.tolist() == [[1, 2], [3, 4]]
        assert (histogram.sum(), histogram.sums) == (10, None)
    histogram = Histogram(Axis.uniform(2))
    view = histogram.counts
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 1
    with pytest.raises(AttributeError):
        histogram.counts = view
    histogram.update([1], [0.9])
    assert view.tolist() == [[0, 0], [0, 1]]
    with pytest.raises(ValueError, match="read-only"):
        summed(Axis.uniform(2)).sums[0, 0] = 1


def test_from_counts_refuses_what_is_no_table_of_counts():
    for counts in (
        [[1, 2, 3], [4, 5, 6]],
        [[1, 2]],
        [1, 2, 3, 4],
        [],
        7,
        [[1.0, 2.0], [3.0, 4.0]],
        [[True, False], [True, True]],
        [["1", "2"], ["3", "4"]],
        [[None, 1], [2, 3]],
        [[1, -1], [0, 0]],
        [[2**64, 0], [0, 0]],
        np.array([[2**63, 0], [0, 0]], dtype=np.uint64),
        [[1], [2, 3]],
    ):
        refused(InputError, "counts must", Histogram.from_counts, Axis.uniform(2), counts)


def test_totals_beyond_64_bits_are_refused_and_adding_never_wraps():
    axis, half, quarter = Axis.uniform(2), 2**62, 2**61
    for counts in ([[half, quarter], [0, 0]], [[half, 0], [half, 0]], [[quarter] * 2] * 2):
        refused(CountOverflow, "do not fit", Histogram.from_counts, axis, counts)
    a = Histogram.from_counts(axis, [[half - 5000, 0], [0, 0]])
    b = Histogram.from_counts(axis, [[0, quarter], [0, 0]])
    for add in (lambda: a + b, lambda: a.__iadd__(b), lambda: b.__iadd__(a), lambda: sum([a, b])):
        with pytest.raises(CountOverflow):
            add()
    assert a.counts.tolist() == [[half - 5000, 0], [0, 0]]
    assert b.counts.tolist() == [[0, quarter], [0, 0]]
    full = Histogram.from_counts(axis, [[half, 0], [0, 0]])
    assert full.sum() == half
    with pytest.raises(CountOverflow):
        full.update(*rows(10_000))
    assert full.counts.tolist() == [[half, 0], [0, 0]]
    assert issubclass(CountOverflow, OverflowError)


@pytest.mark.parametrize(
    "tree", [(), (4,), (2, 3), (-2, -6), (0, 12), (12, 0), (2, 2, 4), (12, 12), []]
)
def test_trees_that_do_not_fit_are_refused(tree):
    refused(AxisError, "does not divide 12 bins", check_tree, tree, 12)
    refused(AxisError, "does not divide 12 bins", Histogram(Axis.uniform(12)).levels, tree)
    for other in ((2.0, 6), ("2", "6")):  # branchings are whole numbers
        refused(AxisError, "tree", check_tree, other, 12)


def summed(axis, count=500, seed=0, steps=256):
    histogram = Histogram(axis, sum_steps=steps)
    histogram.update(*rows(count, seed))
    return histogram


def brute_force_sums(axis, labels, scores, steps=256):
    index = np.clip(np.searchsorted(axis.edges, scores, side="right") - 1, 0, axis.bins - 1)
    start, stop = axis.edges[index], axis.edges[index + 1]
    places = np.round((scores - start) / (stop - start) * steps).astype(int)
    return [
        [int(places[(labels == y) & (index == i)].sum()) for i in range(axis.bins)] for y in (0, 1)
    ]


@pytest.mark.parametrize("count", [1, BATCH, BATCH + 1, THREADED + 1])
def test_sums_around_batches_and_threads(count, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    axis = Axis.uniform(10)
    labels, scores = rows(count, seed=count, decimals=3)
    histogram = Histogram(axis, sum_steps=256)
    histogram.update(labels, scores)
    assert histogram.sums.tolist() == brute_force_sums(axis, labels, scores)


def test_sums_add_and_count_for_equality():
    axis = Axis.uniform(16)
    a, b = summed(axis, 300, 1), summed(axis, 200, 2)
    expected = a.sums + b.sums
    assert (a + b).sums.tolist() == expected.tolist()
    assert sum([a, b]) == a + b
    a += b
    assert a.sums.tolist() == expected.tolist()
    one, other = Histogram(axis, sum_steps=256), Histogram(axis, sum_steps=256)
    one.update([1], [0.51])
    other.update([1], [0.55])
    assert one.counts.tolist() == other.counts.tolist()
    assert one != other
    assert Histogram(axis) != Histogram(axis, sum_steps=256)


def test_steps_that_are_none_and_axes_without_places_refuse_sums():
    for steps in (-1, 257, 2.5, True, "256"):
        with pytest.raises(AxisError, match="whole number of steps, from 1 to 256"):
            Histogram(Axis.uniform(4), sum_steps=steps)
    with pytest.raises(AxisError, match=r"known already.*Leave the score sums out"):
        Histogram(Axis.from_values([0.1, 0.9]), sum_steps=256)
    with np.errstate(over="ignore"):
        endless = Axis.from_edges([-1.7e308, 1.7e308])
    refused(AxisError, "too wide", Histogram, endless, sum_steps=256)


def test_sums_never_wrap():
    axis = Axis.uniform(2)
    half = Histogram(axis, sum_steps=256)
    # As large as they get: all scores at the upper ends of their bins.
    half._add(np.array([[2**52, 0], [0, 2**52]]), np.array([[2**60, 0], [0, 2**60]]))
    full = half + half
    assert full.sums.tolist() == [[2**61, 0], [0, 2**61]]
    assert int(full.sums.sum()) == 2**62
    with pytest.raises(CountOverflow, match=r"examples do not fit"):
        full += summed(axis, 2**13)
    assert full.sums.tolist() == [[2**61, 0], [0, 2**61]]
    # Counts alone have room for more.
    assert Histogram.from_counts(axis, [[2**61, 0], [0, 0]]).sum() == 2**61
