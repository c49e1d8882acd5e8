"""Labels and scores at the door: every container, every kind of label, every refusal."""

import math
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fedgauge as fg
from fedgauge import Axis, Examples, InputError, ScoreHistogram
from fedgauge.data.examples import read_batches
from fedgauge.histograms.channels import LabelReader

LABELS = [0, 1, 1, 0, 1]
SCORES = [0.1, 0.9, 0.6, 0.3, 0.3]
COUNTS = [[1, 1, 0, 0], [0, 1, 1, 1]]  # of these rows in four bins


def count(y_true, y_score, axis=None, **options):
    histogram = ScoreHistogram(axis or Axis.uniform(4))
    histogram.update(y_true, y_score, **options)
    return histogram.counts.tolist()


def refusal(y_true, y_score, axis=None, **options):
    with pytest.raises(InputError) as caught:
        count(y_true, y_score, axis, **options)
    return str(caught.value)


CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "numpy": np.array,
    "numpy objects": lambda rows: np.array(rows, dtype=object),
    "pandas": pd.Series,
    "pandas index": pd.Index,
    "pandas array": pd.array,
    "pandas nullable": lambda rows: pd.Series(rows).convert_dtypes(),
    "pandas arrow": lambda rows: pd.Series(rows, dtype=pd.ArrowDtype(pa.array(rows).type)),
    "pandas category": lambda rows: pd.Series(rows, dtype="category"),
    "polars": pl.Series,
    "pyarrow": pa.array,
    "pyarrow chunks": lambda rows: pa.chunked_array([rows[:2], rows[2:]]),
    "pyarrow dictionary": lambda rows: pa.array(rows).dictionary_encode(),
}


def kind_of(column):
    module = type(column).__module__.split(".")[0]
    return f"{module} {type(column).__name__} {getattr(column, 'dtype', '')}".strip()


@pytest.mark.parametrize("container", CONTAINERS)
def test_labels_scores_and_missing_values_in_every_container(container):
    contain = CONTAINERS[container]
    for scores_in, other in CONTAINERS.items():
        assert count(contain(LABELS), other(SCORES)) == COUNTS, scores_in
    assert count(contain([bool(label) for label in LABELS]), SCORES) == COUNTS
    words = contain(["pass" if label else "fail" for label in LABELS])
    assert count(words, SCORES, positive="pass") == COUNTS
    told = refusal(contain(["fail", "pass", None, "pass", None]), SCORES, positive="pass")
    assert told == "2 of 5 labels are missing. Drop those rows."
    told = refusal(LABELS, contain([0.1, None, 0.6, None, 0.3]))
    assert told.startswith("2 of 5 scores are missing, NaN or infinite. Drop those rows")


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series(LABELS, dtype="Int64"),
        pd.Series(LABELS, dtype="Float64"),
        pd.Series(LABELS, dtype="boolean"),
        pd.Series(["0", "1", "1", "0", "1"], dtype="string"),
        pd.Categorical(LABELS),
        pd.Series(LABELS, dtype=pd.CategoricalDtype([2, 1, 0])),
        pl.Series(["0", "1", "1", "0", "1"], dtype=pl.Categorical),
        pl.Series(["0", "1", "1", "0", "1"], dtype=pl.Enum(["1", "0", "2"])),
        pa.array(["0", "1", "1", "0", "1"], pa.large_string()),
        pa.array([Decimal(label) for label in LABELS]),
        ["0", "1", "1", "0", "1"],
        ["false", "true", "TRUE", "0", "1.0"],
    ],
    ids=kind_of,
)
def test_column_types_of_data_frames(labels):
    assert count(labels, SCORES) == COUNTS


def test_a_missing_label_is_never_a_label():
    for labels in (
        pd.Series([1, None, 0], dtype="Int64"),
        pd.Series([True, None, False], dtype="boolean"),
        pd.Series(["1", None, "0"], dtype="string"),
        pd.Series([1, None, 0], dtype="category"),
        pd.Series([1, pd.NA, 0], dtype=object),
        pl.Series([1, None, 0]),
        pl.Series([True, None, False]),
        pa.array([True, None, False]),
        pa.array(["1", None, "0"]).dictionary_encode(),
        pa.chunked_array([pa.array(["1", None, "0"]).dictionary_encode()]),
        np.array([1.0, math.nan, 0.0]),
        [1, None, 0],
        *([None, None, None], np.array([None, None, None]), pa.nulls(3), [math.nan] * 3),
        *(pl.Series([None, None, None]), pd.Series([None, None, None], dtype=object)),
    ):
        known = any(str(label) in ("1", "1.0", "True") for label in labels)
        told = f"{1 if known else 3} of 3 labels are missing. Drop those rows."
        assert refusal(labels, [0.1, 0.2, 0.3]) == told


@pytest.mark.parametrize("outside", ["refuse", "clip"])
def test_a_missing_score_is_never_a_score(outside):
    for missing in (
        pd.Series([0.1, None, 0.3], dtype="Float64"),
        pd.Series([0.1, pd.NA, 0.3], dtype=object),
        pl.Series([0.1, None, 0.3]),
        pa.array([0.1, None, 0.3]),
        pa.array([0.1, None, 0.3]).dictionary_encode(),
        [0.1, None, 0.3],
        [0.1, math.nan, 0.3],
        [0.1, math.inf, 0.3],
        [0.1, -math.inf, 0.3],
    ):
        told = refusal([0, 1, 1], missing, Axis.uniform(4, outside=outside))
        assert told.startswith("1 of 3 scores are missing, NaN or infinite.")


@pytest.mark.parametrize(
    "dtype", ["?", *(f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)), "f2", "f4", "f8"]
)
def test_labels_and_scores_of_every_number_type(dtype):
    labels = np.array(LABELS).astype(dtype)
    assert count(labels, SCORES) == COUNTS
    assert count(labels, SCORES, positive=1) == COUNTS
    assert count(labels, SCORES, positive=0) == COUNTS[::-1]
    assert Examples(LABELS, labels).y_score.dtype == np.float64
    assert count(LABELS, labels) == [[2, 0, 0, 0], [0, 0, 0, 3]]


def test_the_named_label_is_positive_and_the_other_negative():
    for labels, positive in (
        ([1, 2, 2, 1, 2], 2),
        ([2, 1, 1, 2, 1], 1),
        ([1, 0, 0, 1, 0], 0),
        ([-1, 1, 1, -1, 1], 1),
        ([False, True, True, False, True], True),
        ([True, False, False, True, False], False),
        ([1, 2, 2, 1, 2], 2.0),
        ([0.5, 2.5, 2.5, 0.5, 2.5], 2.5),
        (["no", "yes", "yes", "no", "yes"], "yes"),
        (["1", "2", "2", "1", "2"], 2),
        ([1, 2, 2, 1, 2], "2"),
        (["1.0", "2.0", "2.0", "1.0", "2.0"], "2"),
        (["False", "True", "True", "False", "True"], True),
        (["false", "TRUE", "true", "False", "True"], "true"),
        ([" no", "yes ", "yes", "no", "yes"], "yes"),
        ([0, 1, 1, 0, 1], np.int64(1)),
        (["no", "yes", "yes", "no", "yes"], np.str_("yes")),
    ):
        assert count(labels, SCORES, positive=positive) == COUNTS


def test_one_class_alone_is_counted():
    for labels, positive in (
        *((labels, None) for labels in ([0, 0, 0], [1, 1, 1], [True] * 3, [0.0] * 3)),
        *((labels, "yes") for labels in (["no"] * 3, ["yes"] * 3)),
    ):
        counts = count(labels, [0.1, 0.2, 0.9], positive=positive)
        found = int(labels[0] == (1 if positive is None else positive))
        assert counts[found] == [2, 0, 0, 1]
        assert counts[1 - found] == [0, 0, 0, 0]


def test_without_a_name_labels_are_bool_or_zero_and_one():
    for labels, unusable in (
        ([0, 1, 2, 2, 1], 2),
        ([-1, 1, 1, -1, 1], 2),
        (np.array([0, 1, 255, 1, 0], dtype=np.uint8), 1),
        ([0.0, 1.0, 0.5, 1.0, 0.0], 1),
        ([0.0, 1.0, math.inf, 1.0, 0.0], 1),
        (["no", "yes", "yes", "no", "yes"], 5),
        (np.array([2**53, 0, 1, 2**63 - 1, 1]), 2),
    ):
        told = refusal(labels, SCORES)
        assert told.startswith(f"{unusable} of 5 labels are neither bool nor 0/1.")
        assert "positive=" in told


def test_a_third_label_is_refused():
    for labels, positive, third in (
        (["no", "yes", "SECRETLABEL", "SECRETLABEL", "yes"], "yes", 2),
        ([1, 2, 3, 3, 3], 2, 3),
        ([0, 1, 0, 1, 77712345], 0, 1),
        ([0, 1, 0, 1, 77712345], 1, 1),
        ([0.0, 1.0, 0.0, 77712345.5, 77712345.5], 1.0, 2),
        (["no", "NO", "yes", "yes", "yes"], "yes", 1),
    ):
        told = refusal(labels, SCORES, positive=positive)
        assert told.startswith(f"{third} of 5 labels are a third value")
        assert "Recode them" in told
        assert "SECRETLABEL" not in told
        assert "77712345" not in told


def test_large_numbers_stay_apart_spelt_nan_is_missing_and_no_positive_label_is_told():
    labels = [2**53, 2**53 + 1, 2**53 + 2]
    assert "1 of 3 labels are a third value" in refusal(labels, [0.1, 0.2, 0.3], positive=2**53)
    # What NumPy makes of a missing value among words.
    labels = np.array(["yes", "no", math.nan])
    assert refusal(labels, [0.1, 0.2, 0.3], positive="yes").startswith("1 of 3 labels are missing")
    told = refusal(["no", "yes", "no", "yes", "yes"], SCORES, positive="Yes")
    assert told.startswith("3 of 5 labels are neither the positive label, which no row has,")
    assert "Check its spelling" in told


def test_a_third_label_in_a_later_batch_is_refused():
    reader = LabelReader("yes")
    assert reader(np.array(["no", "yes"])).tolist() == [0, 1]
    assert reader(np.array(["yes", "no"])).tolist() == [1, 0]
    assert reader.unusable == 0
    reader(np.array(["maybe", "yes", "maybe"]))
    assert (reader.unusable, reader.missing) == (2, 0)
    for batches in (([0, 1], [5, 1]), ([5, 1], [0, 1]), ([0, 0], [1, 5])):
        reader = LabelReader(1)
        for labels in batches:
            reader(np.array(labels))
        assert reader.unusable == 1
        assert "third value" in reader.complaint()


@pytest.mark.parametrize("positive", [None, "yes"])
def test_labels_of_unusable_kinds_are_refused_without_quoting_them(positive):
    for labels in (
        np.array([0.25, "SECRETLABEL", 1], dtype=object),
        np.array([b"SECRETLABEL", b"other"]),
        np.array([b"SECRETLABEL", b"other"], dtype=object),
        pa.array([b"SECRETLABEL", b"other"]),
        np.array(["2031-07-09", "2031-07-10"], dtype="datetime64[D]"),
        pd.Series(pd.to_datetime(["2031-07-09", "2031-07-10"])),
        np.array([77712345, 2], dtype="timedelta64[s]"),
        np.array([77712345j, 0]),
        np.array([[77712345], [1, 2]], dtype=object),
        np.array([{"SECRETLABEL": 1}, {"SECRETLABEL": 0}]),
        np.array([object(), 1], dtype=object),
        np.array([77712345 * 10**30, 1], dtype=object),
        np.array([-77712345 * 10**30, 1], dtype=object),
    ):
        told = refusal(labels, np.linspace(0, 1, len(labels)), positive=positive)
        assert "label" in told or "y_true" in told
        for secret in ("SECRETLABEL", "77712345", "2031"):
            assert secret not in told


def test_a_refusal_never_quotes_scores_or_labels():
    told = refusal(LABELS, [0.0, 0.5, 1.0, 0.123456789, 1.5], Axis.from_values([0.0, 0.5, 1.0]))
    assert told.startswith("2 of 5 scores lie outside the axis of 3 values.")
    assert "123456789" not in told
    for secret in (1.123456789, -0.123456789, math.nan):
        told = refusal(["no", "yes", "SECRETLABEL"], [0.123456789, 0.5, secret], positive="yes")
        assert "123456789" not in told
        assert "SECRETLABEL" not in told
    scores = np.array([0.1, 0.9, 1.0000001, 0.3, 1.0000001], dtype=np.float32)
    told = refusal(LABELS, scores)
    assert told.startswith("2 of 5 scores lie outside the axis [0, 1].")
    assert "outside='clip'" in told
    assert "float32" in told
    assert "000001" not in told
    assert count(LABELS, scores, Axis.uniform(4, outside="clip")) == [[1, 1, 0, 0], [0, 0, 0, 3]]


def test_scores_that_are_not_numbers_are_refused_without_quoting_them():
    for scores in (
        ["SECRETLABEL", "0.5"],
        np.array(["SECRETLABEL", 0.5], dtype=object),
        pd.Series(["SECRETLABEL", "0.5"]),
        pd.Series(["SECRETLABEL", "0.5"], dtype="category"),
        pl.Series(["SECRETLABEL", "0.5"]),
        pa.array(["SECRETLABEL", "0.5"]),
        [0.123456789j, 0.5],
        np.array([77712345, 2], dtype="datetime64[s]"),
        np.array([{}, 0.5], dtype=object),
        np.array([b"SECRETLABEL", b"0.5"]),
    ):
        told = refusal([0, 1], scores)
        assert told == "y_score holds values that are not numbers. Convert the column to floats."


def test_masked_rows_no_rows_and_unequal_lengths_are_refused():
    mask = [False, False, True, False, False]
    assert refusal(np.ma.array(LABELS, mask=mask), SCORES)
    assert refusal(LABELS, np.ma.array(SCORES, mask=mask))
    told = refusal([0] * 1234, [0.5] * 1233)
    assert told.startswith("y_true has 1,234 rows and y_score 1,233.")
    for container in ("list", "numpy", "pandas", "polars", "pyarrow"):
        empty = CONTAINERS[container]([])
        assert refusal(empty, empty).startswith("there are no examples.")


def test_only_flat_columns_are_taken():
    for many, told in (
        (np.full((2, 1), 0.25), "{} has 2 dimensions"),
        (np.full((2, 2, 2), 0.25), "{} has 3 dimensions"),
        (0.5, "{} has 0 dimensions"),
        (None, "{} has 0 dimensions"),
        ("text", "{} has 0 dimensions"),
        ([[0.123456789], [0.1, 0.2]], "{} is not a flat list of values."),
        *(
            (make({"p": [0.123456789]}), "{} is a table; pass one column of it.")
            for make in (pd.DataFrame, pl.DataFrame, pl.LazyFrame, pa.table)
        ),
    ):
        assert refusal([0, 1], many).startswith(told.format("y_score"))
        assert refusal(many, [0.1, 0.2]).startswith(told.format("y_true"))


def test_examples_hide_their_rows_cannot_change_are_not_copied_and_split_in_order():
    examples = Examples([0, 1], [0.123456789, 0.5])
    assert repr(examples) == "Examples(2 rows)"
    with pytest.raises(AttributeError):
        examples.y_true = np.array([1, 1])
    labels, scores = np.array(LABELS), np.array(SCORES)
    examples = Examples(labels, scores)
    assert np.shares_memory(examples.y_score, scores)
    assert np.shares_memory(examples.y_true, labels)
    for rows, sizes in ((1, [1] * 5), (2, [2, 2, 1]), (5, [5]), (9, [5])):
        parts = list(examples.split(rows))
        assert [len(part) for part in parts] == sizes
        assert np.concatenate([part.y_true for part in parts]).tolist() == LABELS
        assert np.concatenate([part.y_score for part in parts]).tolist() == SCORES


def test_data_comes_as_a_pair_as_examples_or_as_chunks_of_both_read_one_at_a_time():
    chunks = [(LABELS[:2], SCORES[:2]), Examples(LABELS[2:], SCORES[2:])]
    asked = []

    def read():
        for chunk in chunks:
            asked.append(chunk)
            yield chunk

    next(read_batches(read))
    assert len(asked) == 1
    for data in ((LABELS, SCORES), Examples(LABELS, SCORES), read):
        histogram = ScoreHistogram(Axis.uniform(4))
        histogram.update_batches(read_batches(data))
        assert histogram.counts.tolist() == COUNTS
    for data, told in (
        ([[0, 1], [0.1, 0.2]], "got list of 2"),
        (([0], [0.1], [0]), "got tuple of 3"),
        (7, "got int."),
        (lambda: [[0, 1]], "got list of 2"),
        (lambda: 7, "returned int"),
    ):
        with pytest.raises(InputError, match=told):
            list(read_batches(data))


SECRETS = ("0.123456", "secret")
ROWS = 70_000  # more than a batch
MAKERS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
SMALL = {"site": ["a", "b", "a"], "y": [0, 1, 1], "p": [0.1, 0.9, 0.123456]}


def make_columns(rows=ROWS):
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 2, rows)
    scores = np.clip(rng.normal(0.4 + 0.2 * labels, 0.2), 0, 1)
    return {
        "site": [f"s{i % 7}" for i in range(rows)],
        "person": rng.integers(0, rows // 3, rows),
        "y": labels,
        "p": scores,
        "other": ["x"] * rows,
    }


def table_of(source, **options):
    return fg.ScoreTable(source, **({"client": "site", "label": "y", "score": "p"} | options))


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "s.parquet"
    pq.write_table(pa.table(make_columns()), path)
    return path


def refusal_frames(source, **options):
    with pytest.raises(fg.InputError) as caught:
        fg.evaluate(table_of(source, **options))
    assert not [secret for secret in SECRETS if secret in str(caught.value)]
    return str(caught.value)


def test_a_frame_counts_like_a_file_also_by_subject(make, file):
    frame = make(make_columns())
    result = fg.evaluate(table_of(frame))
    assert result.record == fg.evaluate(table_of([file])).record
    assert result.clients == 7
    privacy = fg.DistributedDP(8.0, unit="subject", max_per_unit=2)
    one, other = (
        fg.evaluate(table_of(source, subject="person"), privacy=privacy, tree=(16,), seed=3)
        for source in (frame, [file])
    )
    assert one.record == other.record


def test_rows_come_in_batches_with_their_clients(make):
    columns = make_columns()
    batches = list(table_of(make(columns)).batches())
    assert [len(batch) for _, batch in batches] == [65_536, ROWS - 65_536]
    assert np.concatenate([names for names, _ in batches]).tolist() == columns["site"]
    np.testing.assert_array_equal(
        np.concatenate([batch.y_score for _, batch in batches]), columns["p"]
    )


def test_one_path_is_as_good_as_several(file):
    for source in (str(file), file, [file], (file,), file.parent.glob("*.parquet")):
        assert fg.evaluate(table_of(source)).clients == 7


def test_kinds_of_columns(make):
    for names in ([1, 2, 1], [True, False, True]):
        frame = make(SMALL | {"site": names, "y": ["no", "yes", "yes"]})
        result = fg.evaluate(table_of(frame), positive="yes")
        assert (result.clients, result.positives) == (2, 2)
    frame = pd.DataFrame(SMALL, index=[5, 5, 7])
    expected = fg.evaluate(table_of(frame)).record
    frame = frame.astype({"site": "category", "p": "Float64", "y": "boolean"})
    assert fg.evaluate(table_of(frame)).record == expected


NO_CLIENT = "the data frame: column 'site' names no client in some rows. Fill"
NO_COLUMN = "the data frame: there is no column 'q'. The columns are 'site', 'y', 'p'."


def test_frames_that_cannot_be_read_are_refused(make):
    for changes, options, told in (
        ({"site": ["secret", None, "a"]}, {}, NO_CLIENT),
        ({"site": ["secret", None, None]}, {}, "in some rows"),
        ({"site": [["secret"], ["b"], ["c"]]}, {}, "holds lists"),
        ({}, {"score": "q"}, NO_COLUMN),
        ({}, {"score": "y"}, "one column cannot be two things"),
        ({"p": ["0.123456", "secret", "x"]}, {}, "not numbers"),
        ({name: values[:0] for name, values in SMALL.items()}, {}, "no examples"),
    ):
        assert told in refusal_frames(make(SMALL | changes), **options)


def test_what_is_neither_path_nor_frame_or_a_frame_of_no_use_is_refused():
    frame = pd.DataFrame([["a", 0, 0.1, 1, 2]], columns=["site", "y", "p", "u", "u"])
    assert "columns of the same name" in refusal_frames(frame)
    for source in (SMALL, 3, None, np.zeros(2), ["a.csv", 3], pa.RecordBatch.from_pydict(SMALL)):
        told = refusal_frames(source)
        assert told.startswith("expected a path, several, or a data frame")
        assert told.endswith(f"got {type(source).__name__}.")
