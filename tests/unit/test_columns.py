"""Columns of text in Arrow: never Python objects on their way, and read as these would be."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedgauge import Examples, ScoreFile
from fedgauge.data.columns import coded, pick, read_column, to_numpy
from fedgauge.data.labels import LabelReader

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


@every_text
def test_codes_are_those_of_the_rows_in_order_of_appearance(column):
    read = coded(read_column("y_true", column))
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


def test_a_word_that_no_row_holds_is_not_taken_for_the_negative_label():
    column = pa.array(["perhaps", "no", "yes", "no"]).dictionary_encode()
    reader = LabelReader("yes")
    assert reader(Examples(column, np.zeros(4)).select(slice(1, None)).labels).tolist() == [0, 1, 0]
    assert reader.unusable == 0


def test_text_that_spells_numbers_is_as_good_as_numbers():
    reader = LabelReader(None)
    assert reader(read_column("y_true", pa.array(["0", "1.0", "True"]))).tolist() == [0, 1, 1]
    assert (reader.missing, reader.unusable) == (0, 0)
    reader(read_column("y_true", pa.array(["nan", None, "2"])))
    assert (reader.missing, reader.unusable) == (2, 1)


def test_scores_in_text_are_numbers_all_the_same():
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
