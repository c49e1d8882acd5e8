"""Files of rows with one column more: every other byte as it was, all of it or nothing."""

import gzip
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fedgauge as fg
from fedgauge.data import rewriting
from fedgauge.data.rewriting import Rewrite


def half(scores):
    return scores / 2


def rewritten(folder, text, *, column="q", transform=half, name="in.csv", **options):
    source, target = folder / name, folder / f"out{name[2:]}"
    source.write_bytes(text)
    rows = Rewrite(source, target, "p", column, **options).run(transform)
    return rows, target.read_bytes()


def test_every_other_byte_of_a_text_is_kept(tmp_path):
    for text, expected in (
        (b"y,p\n1,0.5\n", b"y,p,q\n1,0.5,0.25\n"),
        (b"y,p\r\n1,0.50\r\n0,1\r\n", b"y,p,q\r\n1,0.50,0.25\r\n0,1,0.5\r\n"),
        (b"y,p\n1,0.5", b"y,p,q\n1,0.5,0.25"),
        (b"\xef\xbb\xbfp,y\n0.5, a \n", b"\xef\xbb\xbfp,y,q\n0.5, a ,0.25\n"),
        (b'\xef\xbb\xbf"p",y\n0.5,1\n', b'\xef\xbb\xbf"p",y,q\n0.5,1,0.25\n'),
        (b'n,p\n"a, ""b""","0.5"\n', b'n,p,q\n"a, ""b""","0.5",0.25\n'),
        (b'n,p\n"two\nlines",0.5\nx,1\n', b'n,p,q\n"two\nlines",0.5,0.25\nx,1,0.5\n'),
        (b'n,p\n5" pipe,0.5\n', b'n,p,q\n5" pipe,0.5,0.25\n'),
        (b"p,\xc3\xa4\n0.5,\xc3\xb6\n\n0.1,u", b"p,\xc3\xa4,q\n0.5,\xc3\xb6,0.25\n\n0.1,u,0.05"),
        (b"p,y\n 1e-3 ,1\n", b"p,y,q\n 1e-3 ,1,0.0005\n"),
        (b"p\n0.5\n", b"p,q\n0.5,0.25\n"),
        (b"p,y\n0.5,\n", b"p,y,q\n0.5,,0.25\n"),
        (b"y,p\n", b"y,p,q\n"),
        (b"y,p", b"y,p,q"),
    ):
        assert rewritten(tmp_path, text)[1] == expected


def test_the_place_of_the_scores_dialects_and_names_that_need_quotes(tmp_path):
    text = b'n,p,y\n"a,b",0.5000,1\nc,"1",0\n'
    assert rewritten(tmp_path, text, column=None)[1] == b'n,p,y\n"a,b",0.25,1\nc,0.5,0\n'
    text = b"y;p\n1;0,5\n"
    said = {"separator": ";", "decimal": ","}
    assert rewritten(tmp_path, text, **said)[1] == b"y;p;q\n1;0,5;0,25\n"
    assert rewritten(tmp_path, b'y,p\n1,"0,5"\n', decimal=",")[1] == b'y,p,q\n1,"0,5","0,25"\n'
    assert rewritten(tmp_path, b"y\tp\n1\t0.5\n", name="in.tsv")[1] == b"y\tp\tq\n1\t0.5\t0.25\n"
    assert rewritten(tmp_path, b"p\n0.5\n", column='a,"b"')[1] == b'p,"a,""b"""\n0.5,0.25\n'


def test_compressed_files_and_files_of_two_kinds(tmp_path):
    packed = gzip.compress(b"y,p\n1,0.5\n")
    _, data = rewritten(tmp_path, packed, name="in.csv.gz")
    assert gzip.decompress(data) == b"y,p,q\n1,0.5,0.25\n"
    assert rewritten(tmp_path, packed, name="in.csv.gz")[1] == data
    Rewrite(tmp_path / "in.csv.gz", tmp_path / "plain.csv", "p", "q").run(half)
    assert (tmp_path / "plain.csv").read_bytes() == b"y,p,q\n1,0.5,0.25\n"
    (tmp_path / "in.csv").write_text("p\n0.5\n")
    with pytest.raises(fg.InputError, match=r"rows of a \.csv file .* Give .*out\.parquet that"):
        Rewrite(tmp_path / "in.csv", tmp_path / "out.parquet", "p", "q").run(half)


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_batches_join_to_the_same_file(tmp_path, batch, monkeypatch):
    monkeypatch.setattr(rewriting, "_BATCH_ROWS", batch)
    scores = np.random.default_rng(1).random(10)
    text = "i,p\n" + "".join(f"{i},{p!r}\n" for i, p in enumerate(scores.tolist()))
    rows, data = rewritten(tmp_path, text.encode())
    assert rows == 10
    (tmp_path / "again.csv").write_bytes(data)
    np.testing.assert_array_equal(pd.read_csv(tmp_path / "again.csv")["q"], scores / 2)


def test_parquet_keeps_columns_types_and_order(tmp_path):
    table = pa.table(
        {
            "who": pa.array(["a", "b", None]).dictionary_encode(),
            "p": pa.array([0.5, 0.25, 1.0], pa.float32()),
            "tags": pa.array([[1], [], [2, 3]]),
        }
    ).replace_schema_metadata({"made": "by hand"})
    pq.write_table(table, tmp_path / "in.parquet")
    asked = Rewrite(tmp_path / "in.parquet", tmp_path / "out.parquet", "p", "q")
    assert asked.run(half) == 3
    out = pq.read_table(tmp_path / "out.parquet")
    assert out.drop_columns("q").equals(table)
    assert out.schema.metadata[b"made"] == b"by hand"
    assert out["q"].to_pylist() == [0.25, 0.125, 0.5]
    replaced = asked._replace(column=None, target=tmp_path / "again.parquet")
    replaced.run(half)
    out = pq.read_table(tmp_path / "again.parquet")
    assert out.column_names == table.column_names
    assert out["p"].to_pylist() == [0.25, 0.125, 0.5]


def test_batches_of_parquet_and_missing_scores_reach_the_transform(tmp_path, monkeypatch):
    monkeypatch.setattr(rewriting, "_BATCH_ROWS", 3)
    pq.write_table(pa.table({"p": np.linspace(0, 1, 10)}), tmp_path / "in.parquet")
    assert Rewrite(tmp_path / "in.parquet", tmp_path / "out.parquet", "p", "q").run(half) == 10
    out = pq.read_table(tmp_path / "out.parquet")
    np.testing.assert_array_equal(out["q"], np.linspace(0, 1, 10) / 2)
    seen = []

    def watch(scores):
        seen.extend(scores.tolist())
        return np.zeros(len(scores))

    rewritten(tmp_path, b"y,p\n1,\n1,NA\n1,nan\n", transform=watch)
    assert [math.isnan(score) for score in seen] == [True] * 3


def test_what_is_refused_leaves_no_file(tmp_path):
    for text, told in (
        (b"y,p\n1,high\n", r"in\.csv: column 'p' holds values that are not numbers"),
        (b"y,p\n1,0_5\n", "not numbers"),
        (b"y,p\n1,0.5,7\n", "line 2 has 3 columns where the header has 2"),
        (b'y,p\n"a\nb",1\n1\n', "line 4 has 1 columns where the header has 2"),
        (b'y,p\n"1,0.5\n', "quote that is never closed"),
        (b"y,s\n1,0.5\n", "there is no column 'p'. The columns are 'y', 's'"),
        (b"p,p\n1,0.5\n", "2 columns are named 'p'"),
        (b"q,p\n1,0.5\n", "there is a column 'q' already"),
        (b"\n\ny,p\n1,0.5\n", "first line does not hold the column names"),
    ):
        with pytest.raises(fg.InputError, match=told):
            rewritten(tmp_path, text)
        assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_errors_of_the_transform_name_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(rewriting, "_BATCH_ROWS", 2)

    def refuse(scores):
        if scores.max() > 1:
            raise fg.InputError("too large.")
        return scores

    with pytest.raises(fg.InputError, match=r"in\.csv: rows 3 to 3: too large"):
        rewritten(tmp_path, b"p\n0.1\n0.2\n3\n", transform=refuse)
    assert not (tmp_path / "out.csv").exists()
