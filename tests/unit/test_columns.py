"""Columns of text in Arrow: never Python objects on their way, and read as these would be."""

import gzip

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from plans import noisy_plan
from refusals import refused

import fedgauge as fg
from fedgauge import Examples, ScoreFile
from fedgauge.data.columns import coded, pick, read_column, to_numpy
from fedgauge.engines.contribution import count_leniently
from fedgauge.histograms.channels import LabelReader

WORDS = ["no", "yes", None, "no", "maybe", "yes"]
TEXT = {
    "text": pa.array(WORDS),
    "large": pa.array(WORDS, pa.large_string()),
    "chunks": pa.chunked_array([WORDS[:2], WORDS[2:2], WORDS[2:]], pa.string()),
    "codes": pa.array(WORDS).dictionary_encode(),
    "codes in chunks": pa.chunked_array(
        [pa.array(part).dictionary_encode() for part in (WORDS[:3], WORDS[3:])]
    ),
    "more words than used, one missing": pa.DictionaryArray.from_arrays(
        pa.array([1, 2, 3, 1, 4, 2], pa.uint8()), pa.array(["never", "no", "yes", None, "maybe"])
    ),
    "a word twice": pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None, 3, 2, 1]), pa.array(["no", "yes", "maybe", "no"])
    ),
    "part of more": pa.array(["perhaps", *WORDS, "perhaps"]).dictionary_encode()[1:-1],
}
every_text = pytest.mark.parametrize("column", TEXT.values(), ids=TEXT.keys())


@every_text
def test_text_stays_in_arrow(column):
    read = read_column("y_true", column)
    assert isinstance(read, pa.DictionaryArray)
    assert read.to_pylist() == WORDS
    assert to_numpy(read).tolist() == WORDS
    assert read.null_count == read.indices.null_count == 1
    # Codes are those of the rows in order of appearance.
    read = coded(read)
    assert read.to_pylist() == WORDS
    assert list(dict.fromkeys(read.dictionary.to_pylist())) == ["no", "yes", "maybe"]
    last = coded(pick(read, slice(4, 99)))
    assert last.to_pylist() == last.dictionary.to_pylist() == ["maybe", "yes"]


@every_text
@pytest.mark.parametrize(
    "rows",
    [slice(0, 3), slice(3, None), np.array([False, True, False, False, True, True])],
    ids=["first", "last", "mask"],
)
def test_labels_are_read_as_from_objects(column, rows):
    from_text, from_objects = LabelReader("yes"), LabelReader("yes")
    some = Examples(column, np.zeros(6), subject=column).select(rows)
    objects = np.array(WORDS, dtype=object)[rows]
    assert some.y_true.tolist() == some.subject.tolist() == objects.tolist()
    assert from_text(some.labels).tolist() == from_objects(objects).tolist()
    assert from_text.missing == from_objects.missing
    assert from_text.unusable == from_objects.unusable


def test_a_word_that_no_row_holds_is_no_label_and_text_may_spell_numbers():
    column = pa.array(["perhaps", "no", "yes", "no"]).dictionary_encode()
    reader = LabelReader("yes")
    assert reader(Examples(column, np.zeros(4)).select(slice(1, None)).labels).tolist() == [0, 1, 0]
    assert reader.unusable == 0
    reader = LabelReader(None)
    assert reader(read_column("y_true", pa.array(["0", "1.0", "True"]))).tolist() == [0, 1, 1]
    assert (reader.missing, reader.unusable) == (0, 0)
    reader(read_column("y_true", pa.array(["nan", None, "2"])))
    assert (reader.missing, reader.unusable) == (2, 1)
    assert Examples([0, 1], pa.array(["0.25", "1e-3"])).y_score.tolist() == [0.25, 0.001]


@pytest.mark.parametrize("options", [{}, {"dictionary_pagesize_limit": 64}, {"row_group_size": 7}])
def test_files_give_text_in_codes(tmp_path, options):
    words = [f"word {i % 41}" if i % 10 else None for i in range(300)]
    table = pa.table({"s": [i / 300 for i in range(300)], "y": words, "who": words})
    pq.write_table(table, tmp_path / "a.parquet", **options)
    rows = zip(*table.to_pydict().values(), strict=True)
    lines = [",".join("" if value is None else str(value) for value in row) for row in rows]
    (tmp_path / "a.csv").write_text("\n".join(["s,y,who", *lines]))
    for name in ("a.parquet", "a.csv"):
        batches = list(ScoreFile(tmp_path / name, label="y", score="s", subject="who")())
        for column in ("labels", "subjects"):
            parts = [getattr(batch, column) for batch in batches]
            assert all(isinstance(part, pa.DictionaryArray) for part in parts)
            assert [word for part in parts for word in part.to_pylist()] == words


ROWS = 3000
CLASSES = ("cat", "dog", "owl")
MODELS = {"new": ["n1", "n2", "n3"], "old": ["o1", "o2", "o3"]}
GROUPS = {"sex": ("women", "men"), "ward": ("1", "2")}
MULTICLASS = {"label": "kind", "score": MODELS, "group": {"sex": "sex", "ward": "w"}}
MULTILABEL = {"label": ["fever", "cough"], "score": ["n1", "n2"], "group": "sex"}
TASKS = {
    "classes": (MULTICLASS, fg.MulticlassTask(labels=CLASSES, models=list(MODELS), groups=GROUPS)),
    "labels": (
        MULTILABEL,
        fg.MultilabelTask(labels=["fever", "cough"], groups={"sex": GROUPS["sex"]}),
    ),
}


def make_columns():
    rng = np.random.default_rng(8)
    scores = rng.random((6, ROWS))
    return {
        "kind": rng.choice(CLASSES, ROWS),
        "sex": rng.choice(["women", "men", "not said"], ROWS),
        "w": rng.integers(1, 4, ROWS),
        "fever": rng.integers(0, 2, ROWS),
        "cough": rng.random(ROWS) < 0.5,
        "site": rng.choice(["a", "b"], ROWS),
        **dict(zip([name for each in MODELS.values() for name in each], scores, strict=True)),
    }


COLUMNS = make_columns()


def in_memory(label, score, group):
    def table(names):
        return np.column_stack([COLUMNS[name] for name in names])

    return Examples(
        COLUMNS[label] if isinstance(label, str) else table(label),
        {model: table(each) for model, each in score.items()}
        if isinstance(score, dict)
        else table(score),
        group={name: COLUMNS[each] for name, each in group.items()}
        if isinstance(group, dict)
        else COLUMNS[group],
    )


def evaluate(data, task):
    return fg.evaluate(data, task=task, axis=fg.Axis.uniform(8)).record.slices


def save(columns, path):
    table = pa.table(columns)
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=1000)
        return path
    options = pa.csv.WriteOptions(delimiter="\t" if ".tsv" in path.name else ",")
    sink = pa.BufferOutputStream()
    pa.csv.write_csv(table, sink, options)
    content = sink.getvalue().to_pybytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.fixture(scope="module")
def expected():
    return {
        what: evaluate({"a": in_memory(**named)}, task) for what, (named, task) in TASKS.items()
    }


@pytest.mark.parametrize("what", TASKS)
@pytest.mark.parametrize("ending", ["csv", "tsv.gz", "parquet"])
def test_files_count_like_memory_leniently_or_not(expected, what, tmp_path, ending):
    named, task = TASKS[what]
    file = fg.ScoreFile(save(COLUMNS, tmp_path / f"s.{ending}"), **named)
    file.check()
    for batches in (list(file()), list(file.leniently(lambda: None))):
        assert evaluate({"a": lambda batches=batches: batches}, task) == expected[what]


@pytest.mark.parametrize("what", TASKS)
@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table, None])
def test_tables_count_like_memory(expected, what, tmp_path, make):
    named, task = TASKS[what]
    source = save(COLUMNS, tmp_path / "s.csv") if make is None else make(COLUMNS)
    assert evaluate(fg.ScoreTable(source, client="site", **named), task) == expected[what]


SMALL = {"kind": ["cat", "dog"], "n1": ["0.1", "0.9"], "n2": ["0.8", "x"], "sex": ["women", None]}
FILE = {"label": "kind", "score": ["n1", "n2"], "group": {"sex": "sex"}}


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_score_that_is_no_number_is_missing_in_its_column_alone(tmp_path, ending):
    file = fg.ScoreFile(save(SMALL, tmp_path / f"s.{ending}"), **FILE)
    file.check()
    [batch] = file.leniently(lambda: None)
    np.testing.assert_array_equal(batch.scores[None], [[0.1, 0.8], [0.9, np.nan]])
    refused(fg.InputError, "column 'n2' holds values that are not numbers", list, file())


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_frame_names_the_column_that_holds_no_numbers(make):
    table = fg.ScoreTable(
        make(SMALL | {"n1": [0.1, 0.9], "site": ["a", "a"]}), client="site", **FILE
    )
    refused(fg.InputError, r"column 'n2': .* not numbers", list, table.batches())


def test_every_column_of_scores_is_checked_before_rows_are_read(tmp_path):
    file = fg.ScoreFile(
        save(SMALL, tmp_path / "s.csv"), **FILE | {"score": ["n1", "sex"], "group": None}
    )
    refused(fg.InputError, "column 'sex' holds values that are not numbers", file.check)
    nested = save({**SMALL, "sex": [["women"], ["men"]]}, tmp_path / "s.parquet")
    refused(fg.InputError, "column 'sex' holds lists", fg.ScoreFile(nested, **FILE).check)


@pytest.mark.parametrize("leniently", [False, True])
def test_a_group_of_any_type_is_text_and_a_missing_one_is_other(tmp_path, leniently):
    for column in (
        ["1", None, "2"],
        [1, None, 2],
        [1.0, None, 2.0],
        pa.array(["1", None, "2"]).dictionary_encode(),
        pa.array(["1 ", None, " 2"]),
        pa.array(["1.0", None, "2.0"]),
    ):
        path = save({"y": [0, 1, 1], "p": [0.1, 0.9, 0.8], "ward": column}, tmp_path / "s.parquet")
        file = fg.ScoreFile(path, label="y", score="p", group={"ward": "ward"})
        batches = list(file.leniently(lambda: None) if leniently else file())
        counted = fg.evaluate({"a": lambda batches=batches: batches}, groups={"ward": ["1", "2"]})
        found = {str(each.slice): (each.negatives, each.positives) for each in counted.slices}
        assert found == {"all": (1, 2), "group 1": (1, 0), "group 2": (0, 1), "group other": (0, 1)}


def test_columns_that_cannot_be_are_refused(tmp_path):
    for named, told in (
        ({"score": ["kind", "n2"]}, "two things, and 'kind' is"),
        ({"score": ["n1", "n1"]}, "two things, and 'n1' is"),
        ({"score": {"a": "n1", "b": "n1"}}, "two things, and 'n1'"),
        ({"group": {"sex": "kind"}}, "two things, and 'kind' is"),
        ({"label": ["n1", "n1"], "score": "n2"}, "two things"),
        ({"score": {"a": ["n1"], "b": ["n2", "sex"]}}, "as many columns"),
        ({"score": []}, "score must name a column"),
        ({"score": {}}, "as many columns"),
        ({"label": [3]}, "by text, got int"),
        ({"group": {"sex": ["sex"]}}, "by text, got list"),
        ({"group": {"sex": "gender"}}, "no column 'gender'. The columns"),
        ({"score": ["n1", "n3"]}, "no column 'n3'. The columns are"),
    ):
        path = save(SMALL, tmp_path / "s.csv")
        refused(fg.InputError, told, fg.ScoreFile, path, **FILE | named)
        frame = pa.table(SMALL | {"site": ["a", "b"]})
        refused(fg.InputError, told, fg.ScoreTable, frame, client="site", **FILE | named)


def test_labels_of_several_kinds_stay_what_they_are(tmp_path):
    rows = {"a": [0, 1, 1], "b": ["no", "1", "0"], "p": [0.1, 0.2, 0.3], "q": [0.4, 0.5, 0.6]}
    path = save(rows, tmp_path / "s.parquet")
    [batch] = fg.ScoreFile(path, label=["a", "b"], score=["p", "q"])()
    assert batch.labels.tolist() == [[0, "no"], [1, "1"], [1, "0"]]


def test_columns_in_memory_of_which_one_value_is_no_number():
    """In a table of objects, as in a column, it spoils no other value."""
    scores = np.array([[0.1, 0.9], ["x", 0.4]], dtype=object)
    read = Examples.leniently(["cat", "dog"], scores).scores[None]
    np.testing.assert_array_equal(read, [[0.1, 0.9], [np.nan, 0.4]])
    masked = np.ma.MaskedArray([[0.1, 0.9], [0.3, 0.4]], mask=[[0, 0], [1, 0]])
    read = Examples.leniently(["cat", "dog"], masked).scores[None]
    np.testing.assert_array_equal(read, [[0.1, 0.9], [np.nan, 0.4]])
    refused(fg.InputError, "masked", Examples, ["cat", "dog"], masked)
    # What is whole is not copied.
    for order in ("C", "F"):
        scores = np.asarray(np.random.default_rng(0).random((5, 3)), order=order)
        read = Examples([0, 1, 2, 0, 1], scores).scores[None]
        assert np.shares_memory(read, scores)
        np.testing.assert_array_equal(read, scores)


ODD_ROWS = [
    "cat,0.1,x,women,1,0\n",  # one of the scores is no number
    "cat,,7,,1,1\n",  # another is missing, one beyond the axis, no group
    "emu,0.3,0.4,women,,1\n",  # a class that is not listed, a missing label
    ",inf,-inf,men,maybe,2\n",
    "dog,0.2,0.9,SECRET,0,nan\n",
    "owl,0.2,0.9, men ,true,1.0\n",
    "dög,0.2,0.9,wömen,0,1\n".encode("latin-1"),
]
CLEAN_ROWS = "cat,0.9,0.2,women,1,0\ndog,0.3,0.6,men,0,1\n"


@pytest.mark.parametrize(
    ("named", "task"),
    [
        (
            {"label": "kind", "score": {"a": ["p", "q"], "b": ["y", "z"]}, "group": "sex"},
            fg.MulticlassTask(
                labels=CLASSES[:2], also=["confusion"], models=["a", "b"], groups={"sex": ["men"]}
            ),
        ),
        (
            {"label": ["y", "z"], "score": ["p", "q"], "group": {"sex": "sex", "kind": "kind"}},
            fg.MultilabelTask(labels=["y", "z"], groups={"sex": ["men"], "kind": ["owl"]}),
        ),
    ],
    ids=["classes", "labels"],
)
@pytest.mark.parametrize("before", [0, 40_000], ids=["first", "late"])
def test_one_row_decides_about_itself_alone(tmp_path, named, task, before):
    """Each row adds what it adds by itself, whatever rows are beside it: the sensitivity."""
    plan = noisy_plan(bins=4, task=task)

    def count(*rows):
        path = tmp_path / "s.csv"
        path.write_bytes(b"kind,p,q,sex,y,z\n" + b"".join(_bytes(row) for row in rows))
        histogram, oddities = count_leniently(plan, lambda: fg.ScoreFile(path, **named))
        assert not oddities.failure
        return [histogram.counts, *histogram.tables]

    half = CLEAN_ROWS * (before // 2)
    alone = [count(row) for row in ODD_ROWS] + [count(half, half, CLEAN_ROWS)]
    together = count(half, *ODD_ROWS, half, CLEAN_ROWS)
    for counts, *parts in zip(together, *alone, strict=True):
        np.testing.assert_array_equal(counts, sum(parts))
    for row in alone[:-1]:
        assert row[0].sum() == task.per_row


def _bytes(row):
    return row if isinstance(row, bytes) else row.encode()
