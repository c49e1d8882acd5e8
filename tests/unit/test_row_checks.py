"""Rows that cannot silence a client: each counts in a stated place, and the operator is told."""

import gc
import gzip
import math
import sys
from asyncio import CancelledError
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from calibrators import FORMS, calibrator
from odd import Raises
from plans import exact_plan, noisy_plan

import fedgauge as fg
from fedgauge.data.files import NamedColumns
from fedgauge.data.row_checks import Oddities, RowSummary
from fedgauge.engines.contribution import (
    count_exactly,
    count_leniently,
    count_rows,
    summarise,
    to_numbers,
)
from fedgauge.histograms.axis import Axis
from fedgauge.histograms.channels import LenientLabelReader
from fedgauge.histograms.histogram import ScoreHistogram

NAN, INF = math.nan, math.inf
PLAN = noisy_plan(bins=4)
LOW, HIGH = 0.1, 0.9
NEGATIVE_LOW, NEGATIVE_HIGH, POSITIVE_LOW, POSITIVE_HIGH = 0, 3, 4, 7
NOT_UTF8 = pa.array([b"a", b"\xfc", b"\xf6", b"\xfc"]).cast(pa.string(), safe=False)
MANY = 70_000  # rows in several blocks
CLEAN = "0,0.1,a\n1,0.9,b\n"
# Functions that are called for the odd cell itself: nothing is done anew with the others.
FEW = 10
MAPPED = PLAN.with_calibrator(calibrator(FORMS["beta"]))


def count(labels, scores, plan=PLAN):
    return count_leniently(plan, lambda: (labels, scores))


def cells(histogram):
    """The cells that hold rows, each as often as it holds one."""
    return np.repeat(np.arange(histogram.counts.size), histogram.counts.ravel()).tolist()


ROWS = [
    # label, score, its cell, what is odd
    *[(0, LOW, NEGATIVE_LOW, {}), (1, "0.9", POSITIVE_HIGH, {}), ("1", HIGH, POSITIVE_HIGH, {})],
    *(
        (1, score, POSITIVE_LOW, {"not_finite"})
        for score in (NAN, -INF, None, pd.NA, "many", [HIGH], 10**400, Decimal("sNaN"), Raises())
    ),
    (1, INF, POSITIVE_HIGH, {"not_finite"}),
    *[(1, 1e300, POSITIVE_HIGH, {"clipped"}), (1, -0.5, POSITIVE_LOW, {"clipped"})],
    *((label, HIGH, NEGATIVE_HIGH, {"missing_labels"}) for label in (None, NAN, pd.NA)),
    *(
        (label, HIGH, NEGATIVE_HIGH, {"other_labels"})
        for label in (2, 2**70, "maybe", "\udc80", b"1", [1], {"a": 1}, Raises())
    ),
    ([1], [1], NEGATIVE_LOW, {"other_labels", "not_finite"}),
]


@pytest.mark.parametrize(("label", "score", "cell", "odd"), ROWS)
def test_every_row_has_a_stated_place(label, score, cell, odd):
    for place in range(3):
        labels, scores = [0, 1], [LOW, HIGH]
        labels.insert(place, label)
        scores.insert(place, score)
        check_place(lambda lists=(labels, scores): lists, cell, odd)
    arrays = [np.fromiter(each, dtype=object, count=3) for each in (labels, scores)]
    check_place(lambda: tuple(arrays), cell, odd)
    chunks = [([0, 1], [LOW, HIGH]), tuple(each[2:] for each in arrays)]
    check_place(lambda: lambda: iter(chunks), cell, odd)


def check_place(data, cell, odd):
    histogram, oddities = count_leniently(PLAN, data)
    assert cells(histogram) == sorted([NEGATIVE_LOW, cell, POSITIVE_HIGH])
    assert oddities == Oddities(rows=3, **dict.fromkeys(odd, 1))


def test_columns_of_every_form():
    for labels, scores in (
        (
            np.ma.array([0, 1, 1, 1], mask=[0, 0, 0, 1]),
            np.ma.array([LOW, HIGH, HIGH, HIGH], mask=[0, 0, 1, 0]),
        ),
        (pd.Series([0, 1, 1, None], dtype="Int64"), pd.Series([LOW, HIGH, None, HIGH])),
        (pd.Series(["0", "1", "1", None]), pd.Series(["0.1", "0.9", "", "0.9"])),
        (pl.Series([0, 1, 1, None]), pl.Series([LOW, HIGH, None, HIGH])),
        (pa.array([0, 1, 1, None]), pa.array([LOW, HIGH, None, HIGH])),
        (
            pa.chunked_array([["0", "1"], ["1", None]]),
            pa.chunked_array([["0.1", "0.9"], ["x", "0.9"]]),
        ),
        (np.array([0, 1, 1, NAN]), np.array([LOW, HIGH, NAN, HIGH])),
        (np.array(["0", "1", "1", "nan"]), np.array(["0.1", "0.9", "?", "0.9"])),
        (
            pa.array([Decimal(0), Decimal(1), Decimal(1), None]),
            pa.array([Decimal("0.1"), Decimal("0.9"), None, Decimal("0.9")]),
        ),
    ):
        histogram, oddities = count(labels, scores)
        assert cells(histogram) == [NEGATIVE_LOW, NEGATIVE_HIGH, POSITIVE_LOW, POSITIVE_HIGH]
        assert oddities == Oddities(rows=4, not_finite=1, missing_labels=1)


def test_one_row_does_not_change_the_kind_of_the_others():
    for labels in (
        *([2**53 + 1, other] for other in (2**53, 0.5, None)),
        *[[2**53 + 1, -1, 2**63], pa.array([2**53 + 1, None]), pl.Series([2**53 + 1, None])],
        pd.Series([2**53 + 1, None], dtype="Int64"),
    ):
        plan = noisy_plan(bins=4, task=fg.BinaryTask(2**53 + 1))
        histogram, _ = count(labels, [HIGH] * len(labels), plan)
        assert histogram.counts.sum(axis=1).tolist() == [len(labels) - 1, 1]


class Panic(BaseException):
    """As PyO3 raises when a library in Rust, such as polars, panics."""


def test_clean_rows_count_as_in_strict_counting():
    rng = np.random.default_rng(1)
    labels, scores = rng.integers(0, 2, 5000), rng.random(5000)
    for plan in (PLAN, noisy_plan(tree=(4, 8), bins=None)):
        for given in (labels, labels.astype(bool), labels.astype(str), labels.tolist()):
            histogram, oddities = count(given, scores, plan)
            assert histogram == count_rows(plan, (given, scores))
            assert oddities == Oddities(rows=5000)
            assert oddities.in_words == []


def test_many_rows_are_counted_on_threads_alike():
    rng = np.random.default_rng(2)
    labels, scores = rng.integers(0, 3, 1 << 20), rng.normal(0.5, 1, 1 << 20)
    scores[::7] = NAN
    histogram, oddities = count(labels, scores)
    assert histogram.sum() == oddities.rows == 1 << 20
    positive = labels == 1
    assert histogram.counts[1].sum() == np.count_nonzero(positive)
    first = np.isnan(scores) | (scores < 0.25)
    assert histogram.counts[1, 0] == np.count_nonzero(first & positive)
    assert oddities.not_finite == np.count_nonzero(np.isnan(scores))
    assert oddities.clipped == np.count_nonzero((scores < 0) | (scores > 1))
    assert oddities.other_labels == np.count_nonzero(labels == 2)


def test_score_sums_take_the_end_of_the_bin():
    histogram = ScoreHistogram(Axis.uniform(4, outside="clip"), sum_steps=8)
    scores = np.array([NAN, -INF, -5.0, INF, 5.0, 0.125])
    oddities = histogram.update_leniently([fg.Examples([0, 0, 0, 1, 1, 1], scores)])
    assert histogram.counts.tolist() == [[3, 0, 0, 0], [1, 0, 0, 2]]
    assert histogram.sums.tolist() == [[0, 0, 0, 0], [4, 0, 0, 16]]
    assert oddities == Oddities(rows=6, not_finite=3, clipped=2)


def test_what_came_first_and_a_label_that_nobody_has_do_not_matter():
    for labels in (["a", "b", "yes"], ["b", "yes", "a"], [7, "a", "yes"], ["yes", [3], "b"]):
        reader = LenientLabelReader("yes")
        read = reader(np.fromiter(labels, dtype=object, count=3))
        assert read.tolist() == [int(label == "yes") for label in labels]
        assert reader.unusable == 1
    plan = noisy_plan(bins=4, task=fg.BinaryTask(7))
    for labels in ([0] * 300, [*[0] * 299, 1]):
        histogram, _ = count(labels, [LOW] * 300, plan)
        assert histogram.counts.tolist() == [[300, 0, 0, 0], [0, 0, 0, 0]]


def by_subject(ids, most=1):
    plan = noisy_plan(bins=4, privacy=fg.DistributedDP(1.0, unit="subject", max_per_unit=most))
    chunks = [fg.Examples.leniently([0] * len(p), [LOW] * len(p), subject=p) for p in ids]
    return count_leniently(plan, lambda: lambda: chunks)


@pytest.mark.parametrize(
    ("ids", "subjects", "without"),
    [
        pytest.param([["a", "b", "a"]], 2, 0, id="clean"),
        pytest.param([["a", None, NAN, "b", None]], 2, 3, id="missing"),
        pytest.param([["a", None], [None, "b"]], 2, 2, id="missing in two chunks"),
        pytest.param([[7, "7", 7.0, Decimal(7)]], 1, 0, id="spelled alike"),
        pytest.param([[7], ["7"], [7.0]], 1, 0, id="spelled alike in chunks"),
        pytest.param([[0.0, -0.0]], 1, 0, id="zeros"),
        pytest.param([[[1, 2], (1, 2), "a", b"a", 2**70]], 5, 0, id="mixed"),
        pytest.param([["None", None, "nan", NAN]], 2, 2, id="words like missing"),
        pytest.param([["a", Raises(), Raises(), None]], 1, 3, id="raising"),
        pytest.param([pa.array([2**60, 2**60 + 1, None, 2**60])], 2, 1, id="long ids"),
        pytest.param([pa.array(["a", None, "b", "a"])], 2, 1, id="arrow text"),
        pytest.param([[], ["a"]], 1, 0, id="empty chunk"),
        pytest.param([NOT_UTF8], 3, 0, id="not utf-8"),
    ],
)
def test_ids_of_any_kind(ids, subjects, without):
    histogram, oddities = by_subject(ids)
    assert histogram.sum() == subjects
    assert oddities == Oddities(rows=subjects, no_subject=without)


def test_rows_without_an_id_are_left_out():
    """Counted as one subject, one of them would move the rows of the others."""
    histogram, _ = by_subject([[None] * 5, ["a"] * 5, [None] * 5], most=3)
    assert histogram.sum() == 3
    plan = noisy_plan(bins=4, privacy=fg.DistributedDP(1.0, unit="subject"))
    histogram, oddities = count([0, 1], [LOW, HIGH], plan)
    assert histogram.sum() == 0
    assert "the id of its subject" in oddities.failure


def breaks(after):
    def chunks():
        for _ in range(after):
            yield [0, 1], [LOW, HIGH]
        raise ValueError("the score is 0.987654321")

    return chunks


def raises(error):
    def data():
        raise error

    return data


FAILURES = {
    "data": raises(ValueError("0.987654321")),
    "memory": raises(MemoryError()),
    "stream at once": lambda: breaks(0),
    "stream midway": lambda: breaks(3),
    "stream that is none": lambda: lambda: 7,
    "no data": lambda: None,
    "three columns": lambda: ([0], [LOW], [1]),
    "lengths": lambda: ([0, 1], [LOW]),
    "two dimensions": lambda: ([0, 1], np.full((2, 2), LOW)),
    "no dimension": lambda: (1, LOW),
    "times": lambda: ([0, 1], np.zeros(2, dtype="M8[s]")),
    "complex": lambda: ([0, 1], np.zeros(2, dtype=complex)),
    "table": lambda: ([0, 1], pd.DataFrame({"p": [LOW, HIGH]})),
    "bad chunk": lambda: lambda: [([0, 1], [LOW, HIGH]), ([0], [LOW, HIGH])],
}


@pytest.mark.parametrize("data", FAILURES.values(), ids=FAILURES)
def test_what_cannot_be_read_counts_as_no_rows(data):
    histogram, oddities = count_leniently(PLAN, data)
    assert histogram == PLAN.histogram()
    assert oddities == Oddities(failure=oddities.failure)
    (told,) = oddities.in_words
    assert told.startswith("no row was counted: ")
    assert "987654321" not in told


@pytest.mark.parametrize("error", [SystemExit(1), Panic(), GeneratorExit(), CancelledError()])
def test_a_score_function_that_exits_counts_as_no_rows(error):
    histogram, oddities = count_leniently(PLAN, raises(error))
    assert histogram == PLAN.histogram()
    assert type(error).__name__ in oddities.failure
    with pytest.raises(KeyboardInterrupt):  # who ends the process is obeyed
        count_leniently(PLAN, raises(KeyboardInterrupt()))


def test_every_oddity_has_its_words_and_large_counts_are_told():
    odd = Oddities(9, *range(1, 8), failure="no file.")
    assert len(odd.in_words) == 8
    for number in range(1, 8):
        assert sum(sentence.startswith(f"{number} ") for sentence in odd.in_words) == 1
    plan = noisy_plan(tree=(2, 2), bins=None, largest=5)
    histogram, oddities = count([0] * 10, [LOW] * 6 + [0.3] * 4, plan)
    assert oddities.over_largest == 2  # the bin, and the two bins together
    assert to_numbers(plan, histogram).max() == 5


def test_one_process_still_refuses_broken_rows():
    axis, clean = Axis.uniform(4, outside="clip"), ([0, 1], [LOW, HIGH])
    for privacy in (fg.DistributedDP(1.0), fg.LocalDP(1.0), fg.SecureAggregation()):
        for odd in (([0, 1], [LOW, NAN]), ([0, 1, 2], [LOW, HIGH, HIGH])):
            with pytest.raises(fg.InputError, match="1 of"):
                fg.evaluate({"a": odd, "b": clean, "c": clean}, privacy=privacy, axis=axis)


def told_of(labels, scores, plan=PLAN, positive=None):
    histogram, oddities = count(labels, scores, plan)
    counted = summarise(plan.task, histogram.counts, oddities)
    return counted, counted.warnings(positive, plan.axis.low, plan.axis.high)


def test_clean_rows_no_rows_and_rows_that_cannot_be_read():
    counted, told = told_of([0, 1, 1], [0.1, 0.2, 0.9])
    assert counted == RowSummary(2, Oddities(rows=3))
    assert counted.in_words == "3 rows: 2 positive, 0 clipped into the end bins, 0 odd"
    assert told == []
    assert told_of([], [])[1] == ["there are no rows that count. Check the export."]
    counted, (told,) = told_of([1], [0.5, 0.7])
    assert counted.oddities.rows == 0
    assert told.startswith("no row was counted: ")


def test_scores_on_another_scale():
    for scores, clipped, warned in (
        ([0.5] * 18 + [1.0000001, 7.0], 2, False),  # a tenth: rounding, a slip
        ([0.5] * 17 + [1.0000001, 7.0, -3.0], 3, True),
        ([50.0] * 20, 20, True),
    ):
        counted, (told, *more) = told_of([0, 1] * 10, scores)
        assert f"{clipped} clipped" in counted.in_words
        assert told.startswith(
            f"{clipped} of 20 scores lie beyond the axis: counted in its end bins."
        )
        assert ("It goes from 0 to 1" in told) == warned
        assert more == []


def test_one_class():
    for labels, positive, told in (
        ([0, 0], None, "none of 2 rows are positive, which in the plan is 1."),
        ([1, 1], None, "all of 2 rows are positive, which in the plan is 1."),
        ([0, 0], "ill", "none of 2 rows are positive, which in the plan is 'ill'."),
        ([0, 0], 0, "none of 2 rows are positive, which in the plan is 0."),
    ):
        _, said = told_of(labels, [0.2, 0.4], positive=positive)
        assert said[-1].startswith(told)
        assert "fedgauge plan --positive LABEL" in said[-1]


def test_odd_rows_of_an_exact_sum_are_refused_and_clipped_ones_are_not():
    odd = Oddities(9, *range(1, 8), failure="no file.")
    told = zip(odd.in_words, odd.as_refused(clips=True), strict=True)
    for number, (counted, refused) in enumerate(told, 1):
        if number in (2, 8):
            assert counted.split(":")[1] == refused.split(":")[1]
        else:
            assert "an exact sum stops at them" in refused
            assert refused.split(":")[0] == counted.split(":")[0]
    assert "an exact sum stops at them" in odd.as_refused(clips=False)[1]


def test_an_exact_count_is_the_count_and_says_what_was_clipped():
    plan = exact_plan(bins=4)
    data = fg.Examples([0, 1, 1, 0], [0.1, 7.0, 0.9, -1.0])
    histogram, counted = count_exactly(plan, [data])
    assert histogram == count_rows(plan, data)
    assert counted == RowSummary(2, Oddities(rows=4, clipped=2))
    with pytest.raises(fg.LabelError, match="1 of 2 labels"):
        count_exactly(plan, [fg.Examples([0, 7], [0.1, 0.2])])
    with pytest.raises(fg.CountOverflow, match="larger than the 1 that"):
        count_exactly(exact_plan(bins=4, largest=1), [fg.Examples([1, 1], [0.1, 0.1])])


def csv(folder, rows, *, header="y,p,who\n", name="s.csv"):
    path = folder / name
    content = header.encode() + (rows if isinstance(rows, bytes) else rows.encode())
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    return fg.ScoreFile(path, label="y", score="p", subject="who")


def parquet(folder, **columns):
    pq.write_table(pa.table(columns), folder / "s.parquet", row_group_size=2)
    return fg.ScoreFile(folder / "s.parquet", label="y", score="p")


def count_files(file, plan=PLAN):
    return count_leniently(plan, lambda: file)


@pytest.mark.parametrize("before", [0, MANY // 2], ids=["first", "late"])
@pytest.mark.parametrize(
    ("row", "cell", "odd"),
    [
        *(
            (f"1,{score},c\n", (1, 0), "not_finite")
            for score in ("x", "", "NA", "nan", "-inf", '"0,9"')  # the last with a decimal comma
        ),
        *((f"1,{score},c\n", (1, 3), "not_finite") for score in ("inf", "1e400")),
        *[("1,7,c\n", (1, 3), "clipped"), ("1, 0.9 ,c\n", (1, 3), None)],
        *[(",0.9,c\n", (0, 3), "missing_labels"), ("maybe,0.9,c\n", (0, 3), "other_labels")],
        ("Größe,0.9,c\n".encode("latin-1"), (0, 3), "other_labels"),
        *((row, None, "malformed") for row in ("1\n", "1,0.9,c,d\n", "Größe\n".encode("latin-1"))),
    ],
)
@pytest.mark.parametrize("name", ["s.csv", "s.csv.gz"])
def test_one_row_of_a_text_file_spoils_no_other(tmp_path, before, row, cell, odd, name):
    row = row if isinstance(row, bytes) else row.encode()
    half = CLEAN.encode() * (before // 2)
    file = csv(tmp_path, half + row + half + CLEAN.encode(), name=name)
    file.check()
    histogram, oddities = count_files(file)
    expected = np.zeros((2, 4), dtype=int)
    expected[0, 0] = expected[1, 3] = 2 * (before // 2) + 1
    if cell:
        expected[cell] += 1
    assert np.array_equal(histogram.counts, expected)
    assert oddities == Oddities(rows=expected.sum(), **({odd: 1} if odd else {}))


@pytest.mark.parametrize("row", [b"Gr\xf6\xdfe,0.9,c", b"Gr\xf6\xdfe"], ids=["whole", "short"])
def test_lines_that_end_as_on_old_systems(tmp_path, row):
    """All of the file is one line to whoever looks for a newline, and no part of the header."""
    clean = CLEAN.encode().replace(b"\n", b"\r")
    file = csv(tmp_path, clean + row + b"\r" + clean)
    file.path.write_bytes(file.path.read_bytes().replace(b"\n", b"\r"))
    histogram, oddities = count_files(file)
    expected = np.array([[2, 0, 0, 0], [0, 0, 0, 2]])
    expected[0, 3] += b"," in row
    assert np.array_equal(histogram.counts, expected)
    odd = {"other_labels": 1} if b"," in row else {"malformed": 1}
    assert oddities == Oddities(rows=expected.sum(), **odd)


@pytest.mark.parametrize(
    ("label", "score", "odd"),
    [
        pytest.param([0, 1, 2], [0.1, 0.9, 0.9], {"other_labels"}, id="third label"),
        pytest.param([0, 1, None], [0.1, 0.9, 0.9], {"missing_labels"}, id="no label"),
        pytest.param([0, 1, 0], [0.1, 0.9, None], {"not_finite"}, id="no score"),
        pytest.param([0, 1, 0], ["0.1", "0.9", "x"], {"not_finite"}, id="text"),
        pytest.param([0, 1, 0], [0, 1, 2**53 + 1], {"clipped"}, id="long number"),
        pytest.param(
            ["0", "1", "no"],
            pa.array(["0.1", "0.9", None]).dictionary_encode(),
            {"other_labels", "not_finite"},
            id="dictionary",
        ),
        pytest.param([0, 1, 0], pa.array([0.1, 0.9, None], pa.float32()), {"not_finite"}, id="32"),
        pytest.param(
            pa.array([b"0", b"1", b"\xfc"]).cast(pa.string(), safe=False),
            [0.1, 0.9, 0.9],
            {"other_labels"},
            id="not utf-8",
        ),
    ],
)
def test_one_row_of_a_parquet_file_spoils_no_other(tmp_path, label, score, odd):
    file = parquet(tmp_path, y=label, p=score)
    file.check()
    histogram, oddities = count_files(file)
    assert histogram.sum() == 3
    assert histogram.counts[0, 0] >= 1
    assert histogram.counts[1, 3] == 1
    assert oddities == Oddities(rows=3, **dict.fromkeys(odd, 1))


@pytest.mark.parametrize("end", ["", "\n", "\n\n"], ids=["nothing", "newline", "blank"])
def test_no_rows_are_not_odd_and_a_header_alone_is_no_failure(tmp_path, end):
    assert count([], []) == (PLAN.histogram(), Oddities())
    file = csv(tmp_path, end, header="y,p,who")
    file.check()
    assert count_files(file) == (PLAN.histogram(), Oddities())


def test_a_file_that_is_gone_or_breaks_off_counts_as_no_rows(tmp_path):
    file = csv(tmp_path, CLEAN * MANY, name="s.csv.gz")
    content = file.path.read_bytes()
    file.path.write_bytes(content[: len(content) // 2])
    histogram, oddities = count_files(file)
    assert histogram.sum() == 0
    assert oddities.failure
    file.path.unlink()
    assert count_files(file)[1].failure


def refusal(file):
    with pytest.raises(fg.InputError) as caught:
        file.check()
    return str(caught.value)


def test_columns_without_numbers_are_refused(tmp_path):
    told = refusal(csv(tmp_path, "0,Ann,a\n1,Bob,b\n"))
    assert "s.csv: column 'p' holds values that are not numbers. Check which column" in told
    csv(tmp_path, "0,Ann,a\n1,0.5,b\n").check()
    csv(tmp_path, "0,,a\n1,,b\n").check()  # nothing but missing scores may be all there is
    for scores in (pa.array([], pa.list_(pa.float64())), pa.array([], pa.timestamp("s"))):
        empty = parquet(tmp_path, y=pa.array([], pa.int64()), p=scores)
        assert "not numbers" in refusal(empty)
    parquet(tmp_path, y=pa.array([], pa.int64()), p=pa.array([], pa.string())).check()
    nested = pa.array([[0], [1]])
    assert "column 'y' holds lists" in refusal(parquet(tmp_path, y=nested, p=[0.1, 0.2]))
    pq.write_table(pa.table({"y": [0, 1], "p": [0.1, 0.2], "w": nested}), tmp_path / "s.parquet")
    file = fg.ScoreFile(tmp_path / "s.parquet", label="y", score="p", subject="w")
    assert "column 'w' holds lists" in refusal(file)


def test_parquet_scores_of_a_wrong_type_are_refused(tmp_path):
    for scores in (["Ann", "Bob"], pa.array([[0.1], [0.2]]), pa.array([1, 2], pa.timestamp("s"))):
        told = refusal(parquet(tmp_path, y=[0, 1], p=scores))
        assert "column 'p' holds values that are not numbers" in told
    # A model that gives nothing but NaN must not silence a site.
    parquet(tmp_path, y=[0, 1], p=[np.nan, np.nan]).check()


def test_a_text_file_is_read_by_its_first_rows_whatever_lacks_an_id(tmp_path):
    never_closed = '1,"' + "x" * (4 << 20)
    file = csv(tmp_path, CLEAN * 5 * MANY + never_closed)
    file.check()
    assert count_files(file)[1].failure  # so a whole reading would have met it
    plan = noisy_plan(bins=4, privacy=fg.DistributedDP(1.0, unit="subject"))
    rows = b"0,0.1,\n1,0.9,7\n1,0.9,7.0\n0,0.1,\xfc\n0,0.1,\xf6\n0,0.1,\n"
    histogram, oddities = count_files(csv(tmp_path, rows), plan)
    assert histogram.sum() == 4
    assert oddities == Oddities(rows=4, no_subject=2)


# Time: work that depends on one cell would tell of it


def work(file, plan=PLAN):
    count_files(file, plan)  # what is made once is made
    calls = 0

    def note(frame, event, argument):
        nonlocal calls
        del frame, argument
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    gc.collect()
    gc.disable()  # finalisers of other tests' objects are calls, too
    sys.setprofile(note)
    try:
        count_files(file, plan)
    finally:
        sys.setprofile(before)
        gc.enable()
    return calls


ODD = {
    "text": "1,unknown,a",
    "no score": "1,,a",
    "spaces": "1, 0.5,a",
    "underscore": "1,1_0,a",
    "infinite": "1,inf,a",
    "nan": "1,NAN,a",
    "beyond": "1,7,a",
    "accent": "1,ü,a",
    "third label": "x,0.5,a",
    "no label": ",0.5,a",
    "label that is nan": "NAN,0.5,a",
    "no id": "1,0.5,",
    "short": "1,0.5",
    "long": "1,0.5,a,a",
}


def many_rows(odd=None):
    rows = [f"{row % 3 // 2},{row / MANY:.5f},a" for row in range(MANY // 2)]
    rows[MANY // 4] = odd or rows[MANY // 4]
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize("plan", [PLAN, MAPPED], ids=["plain", "mapped"])
def test_one_odd_row_of_a_text_file_takes_no_more_work(tmp_path, plan):
    clean = work(csv(tmp_path, many_rows()), plan)
    for name, odd in ODD.items():
        assert abs(work(csv(tmp_path, many_rows(odd)), plan) - clean) <= FEW, name


def test_one_odd_row_of_a_parquet_file_takes_no_more_work(tmp_path):
    labels, scores = [row % 2 for row in range(MANY)], [row / MANY for row in range(MANY)]
    pairs = {"y": [None, 2], "p": [None, math.nan, math.inf, 7.0]}

    def file(y, p):
        pq.write_table(pa.table({"y": y, "p": p}), tmp_path / "s.parquet")
        return fg.ScoreFile(tmp_path / "s.parquet", label="y", score="p")

    clean = work(file(labels, scores))
    for name, cells in pairs.items():
        for cell in cells:
            columns = {"y": [*labels], "p": [*scores]}
            columns[name][MANY // 2] = cell
            assert abs(work(file(**columns)) - clean) <= FEW, (name, cell)


def test_what_text_spells_is_read_as_python_reads_it():
    cells = [*SPELLED, *(f"{sign}{cell}" for cell in SPELLED for sign in "+-")]
    cells += [f"{space}{cell}" for cell in SPELLED for space in (" ", "\t", "\xa0")]
    cells += [f"{cell} " for cell in SPELLED]
    read = NamedColumns.read("y", "p").lenient_scores("p", pa.array(cells))
    alone = [NamedColumns.read("y", "p").lenient_scores("p", pa.array([c]))[0] for c in cells]
    assert np.array_equal(read, alone, equal_nan=True)
    assert np.array_equal(read, [*map(number, cells)], equal_nan=True)


WORDS = (
    "0.1 .5 5. 1e5 1E-5 1e+5 1e400 1e-400 4.9e-324 2.4703282292062327e-324 0.30000000000000004 "
    "1797693134862315807e290 00012 1_0 inf Infinity nan NAN nan(1) 0x10 1d 1,5 1e . e 1.2.3 true "
    "None \u0661 \uff11 \u2212"
)
SPELLED = [*WORDS.split(), "", "-", "1" * 400, "0." + "1" * 800, "1\x00", "1\n", "\n"]


def number(cell):
    try:
        return float(cell)
    except ValueError:
        return math.nan
