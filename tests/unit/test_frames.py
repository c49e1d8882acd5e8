"""Data frames with the rows of many clients count as the same rows in files and in memory."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fedgauge as fg

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


def refusal(source, **options):
    with pytest.raises(fg.InputError) as caught:
        fg.evaluate(table_of(source, **options))
    assert not [secret for secret in SECRETS if secret in str(caught.value)]
    return str(caught.value)


def test_a_frame_counts_like_a_file(make, file):
    result = fg.evaluate(table_of(make(make_columns())))
    assert result.record == fg.evaluate(table_of([file])).record
    assert result.clients == 7


def test_a_frame_counts_like_a_file_by_subject(make, file):
    options = {
        "privacy": fg.DistributedDP(8.0, unit="subject", max_per_unit=2),
        "tree": (16,),
        "seed": 3,
    }
    sources = (make(make_columns()), [file])
    one, other = (fg.evaluate(table_of(source, subject="person"), **options) for source in sources)
    assert one.record == other.record


def test_rows_come_in_batches_with_their_clients(make):
    columns = make_columns()
    batches = list(table_of(make(columns)).batches())
    assert [len(batch) for _, batch in batches] == [65_536, ROWS - 65_536]
    assert np.concatenate([names for names, _ in batches]).tolist() == columns["site"]
    np.testing.assert_array_equal(
        np.concatenate([batch.y_score for _, batch in batches]), columns["p"]
    )


@pytest.mark.parametrize(
    "kind", [str, lambda path: path, lambda path: [path], lambda path: (path,)]
)
def test_one_path_is_as_good_as_a_list(file, kind):
    assert fg.evaluate(table_of(kind(file))).clients == 7


def test_paths_may_come_one_by_one(file):
    assert fg.evaluate(table_of(file.parent.glob("*.parquet"))).clients == 7


@pytest.mark.parametrize("names", [[1, 2, 1], [True, False, True]])
def test_kinds_of_client_column(make, names):
    assert fg.evaluate(table_of(make(SMALL | {"site": names}))).clients == 2


def test_pandas_columns_of_their_own_kinds():
    frame = pd.DataFrame(SMALL, index=[5, 5, 7])
    expected = fg.evaluate(table_of(frame)).record
    frame["site"] = frame["site"].astype("category")
    frame["p"] = frame["p"].astype("Float64")
    frame["y"] = frame["y"].astype("boolean")
    assert fg.evaluate(table_of(frame)).record == expected


def test_words_as_labels(make):
    frame = make(SMALL | {"y": ["no", "yes", "yes"]})
    assert fg.evaluate(table_of(frame), positive="yes").positives == 2


def test_rows_without_a_client(make):
    told = refusal(make(SMALL | {"site": ["secret", None, "a"]}))
    assert told.startswith("the data frame: column 'site' names no client in 1 row. Fill")
    told = refusal(make(SMALL | {"site": ["secret", None, None]}))
    assert "in 2 rows" in told


def test_clients_that_are_lists(make):
    assert "holds lists" in refusal(make(SMALL | {"site": [["secret"], ["b"], ["c"]]}))


def test_missing_column(make):
    told = refusal(make(SMALL), score="q")
    assert told == "the data frame: there is no column 'q'. The columns are 'site', 'y', 'p'."


def test_one_column_twice(make):
    assert "one column cannot be two things" in refusal(make(SMALL), score="y")


def test_scores_that_are_not_numbers(make):
    assert "not numbers" in refusal(make(SMALL | {"p": ["0.123456", "secret", "x"]}))


def test_no_rows(make):
    assert "no examples" in refusal(make({name: values[:0] for name, values in SMALL.items()}))


def test_columns_of_one_name():
    frame = pd.DataFrame([["a", 0, 0.1, 1, 2]], columns=["site", "y", "p", "u", "u"])
    assert "columns of the same name" in refusal(frame)


def test_a_lazy_frame_is_to_be_collected():
    assert "collect()" in refusal(pl.DataFrame(SMALL).lazy())


@pytest.mark.parametrize(
    "source", [SMALL, 3, None, np.zeros(2), ["a.csv", 3], pa.RecordBatch.from_pydict(SMALL)]
)
def test_what_is_neither_path_nor_frame(source):
    told = refusal(source)
    assert told.startswith("expected a path, several, or a data frame")
    assert told.endswith(f"got {type(source).__name__}.")
