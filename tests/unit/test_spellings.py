"""Files as people have them: encodings, percent signs, missing values, names nearly right."""

import gzip

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plans import plan_for
from workbooks import pack, parts, rows_of

import fedgauge as fg
from fedgauge.data.columns import spelled_numbers
from fedgauge.data.rewriting import Rewrite
from fedgauge.data.row_checks import LenientRows
from fedgauge.engines.contribution import count_exactly

GERMAN = "Fälle;Maß\nja;0,5\nnein;0,25\nja;0,75\n"
LABELS, SCORES = ["ja", "nein", "ja"], [0.5, 0.25, 0.75]


def german(path, **options):
    asked = {"label": "Fälle", "score": "Maß", "separator": ";", "decimal": ","} | options
    return fg.ScoreFile(path, **asked)


def read(rows):
    batches = list(rows)
    labels = [str(label) for batch in batches for label in batch.y_true]
    return labels, np.concatenate([batch.y_score for batch in batches])


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-16", "utf-16-le", "utf-8-sig"])
@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_any_encoding_reads_like_utf8(tmp_path, encoding, ending):
    text = GERMAN + "nein;0,125\n" * 200_000  # several blocks
    data = text.encode(encoding)
    path = tmp_path / f"a.{ending}"
    path.write_bytes(gzip.compress(data, 1) if ending.endswith("gz") else data)
    file = german(path, encoding=encoding)
    file.check()
    for rows in (file(), LenientRows(file)):
        labels, scores = read(rows)
        assert labels[:3] == LABELS
        assert len(labels) == 200_003
        assert scores[:4].tolist() == [*SCORES, 0.125]


def refusal(file, *arguments, **options):
    with pytest.raises(fg.InputError) as caught:
        list(file(*arguments, **options)())
    return str(caught.value)


@pytest.mark.parametrize(
    ("encoding", "named"),
    [
        ("cp1252", "likely 'cp1252'"),
        ("utf-16", "likely 'utf-16'"),
        ("utf-16-le", "likely 'utf-16'"),
        ("mac_roman", "'mac_roman'"),
    ],
)
def test_a_file_that_is_no_utf8_names_likely_encodings(tmp_path, encoding, named):
    path = tmp_path / "a.csv"
    path.write_bytes(GERMAN.encode(encoding))
    told = refusal(german, path)
    assert "the file is not UTF-8 text. Name its encoding (encoding=...)" in told
    assert named in told
    path.write_bytes(b"y;p\n" + "ja;0,5\nfrüh;0,987654321\n".encode(encoding, "replace"))
    if not encoding.startswith("utf-16"):  # also where only a row is in another encoding
        told = refusal(german, path, label="y", score="p")
        assert named in told
        assert "987654321" not in told


def test_rows_never_become_names_of_columns(tmp_path):
    """As UTF-16 a text in another encoding has no lines: all of it would be its header."""
    path = tmp_path / "a.csv"
    path.write_text("y;p\nja;0,987654321\n" * 3)
    for wrong in ("utf-16", "utf-16-le", "utf-32"):
        told = refusal(german, path, label="y", score="p", encoding=wrong)
        assert f"not {wrong.upper()} text" in told
        assert "'utf-8'" in told
    for wrong in ("klingon", "rot13", "hex", 7):
        assert "encoding must be one" in refusal(german, path, encoding=wrong)
    pq.write_table(pa.table({"y": [1], "p": [0.5]}), tmp_path / "a.parquet")
    with pytest.raises(fg.InputError, match="only text files have"):
        fg.ScoreFile(tmp_path / "a.parquet", label="y", score="p", encoding="cp1252")


def test_one_row_in_another_encoding_spoils_no_other_under_noise(tmp_path):
    path = tmp_path / "a.csv"
    for encoding, odd in (("utf-8", b"\xfc\xff"), ("utf-16-le", b"\x00\xd8"), ("cp1252", b"\x81")):
        rows = [
            f"{label};{score}\n".encode(encoding)
            for label, score in zip("0110", [*SCORES, 0.5], strict=True)
        ]
        rows[1] = odd + rows[1]
        path.write_bytes("y;p\n".encode(encoding) + b"".join(rows))
        file = german(path, label="y", score="p", decimal=".", encoding=encoding)
        file.check()
        rows = LenientRows(file)
        labels, scores = read(rows)
        assert [labels[place] for place in (0, 2, 3)] == ["0", "1", "0"]
        assert len(labels) + rows.left_out["malformed"] == 4
        assert scores[0] == 0.5


def test_rewritten_files_keep_their_encoding(tmp_path):
    for encoding in ("cp1252", "utf-16"):
        path, out = tmp_path / "a.csv", tmp_path / "b.csv"
        path.write_bytes('Maß;wo\r\n45%;Köln\r\n0,5;"a;ü"\r\n'.encode(encoding))
        asked = Rewrite(path, out, "Maß", "neu", separator=";", decimal=",", encoding=encoding)
        assert asked.run(lambda scores: scores / 2) == 2
        wanted = 'Maß;wo;neu\r\n45%;Köln;0,225\r\n0,5;"a;ü";0,25\r\n'
        assert out.read_bytes().decode(encoding) == wanted
    book = pack(tmp_path / "a.xlsx", parts())
    with pytest.raises(fg.InputError, match="Save the sheet as CSV"):
        Rewrite(book, tmp_path / "b.xlsx", "p", "q").run(lambda scores: scores)


PERCENT = ["45%", "0.1 %", "45.3%", "+7%", "100%", " 12.5\u00a0%", ".5%", "0.25", "1e-2"]
AS_NUMBERS = [0.45, 0.001, 0.453, 0.07, 1.0, 0.125, 0.005, 0.25, 0.01]


def test_percent_signs_are_hundredths_in_every_source(tmp_path):
    """To the last bit: 45.3% is the float 0.453, which 45.3 / 100 is not."""
    labels = ["0", "1"] * 4 + ["0"]
    text = "y,p\n" + "".join(f"{y},{p}\n" for y, p in zip(labels, PERCENT, strict=True))
    (tmp_path / "a.csv").write_text(text)
    pack(tmp_path / "a.xlsx", parts(rows_of(("y", "p"), *zip(labels, PERCENT, strict=True))))
    columns = {"y": labels, "p": PERCENT}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    for path in sorted(tmp_path.iterdir()):
        file = fg.ScoreFile(path, label="y", score="p")
        for rows in (file(), LenientRows(file)):
            assert read(rows)[1].tolist() == AS_NUMBERS
    frames = (pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns))
    for frame in frames:
        assert read(fg.ScoreTable(frame, label="y", score="p")())[1].tolist() == AS_NUMBERS
    assert fg.Examples(labels, PERCENT).y_score.tolist() == AS_NUMBERS
    assert fg.Examples.leniently(labels, PERCENT).y_score.tolist() == AS_NUMBERS


@pytest.mark.parametrize("word", ["%", "45%%", "4 5%", "1e3%", "nan%", "inf%", "%45", "a%"])
def test_what_no_percentage_is(tmp_path, word):
    assert np.isnan(spelled_numbers("p", pa.array([word]), ".")).all()
    path = tmp_path / "a.csv"
    path.write_text(f"y,p\n0,5%\n1,{word}\n")
    assert "column 'p' holds values that are not numbers" in refusal(
        fg.ScoreFile, path, label="y", score="p"
    )


def test_percent_signs_may_begin_late_in_a_file(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("y,p,q\n" + "0,0.5,1\n1,0.25,2\n" * 150_000 + "1,75%,3\n")
    labels, scores = read(fg.ScoreFile(path, label="y", score="p")())
    assert len(labels) == 300_001
    assert (scores[-1], scores[:-1].sum()) == (0.75, 112_500.0)


def test_rows_without_a_label_or_a_score_are_dropped_where_that_is_asked_for(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("y,p,s\n0,0.1,a\n,0.2,a\n1,,b\n1,NaN,a\n1,0.9, a \n")
    asked = {"label": "y", "score": "p"}
    with pytest.raises(fg.InputError, match="Drop those rows"):
        fg.evaluate({"a": fg.ScoreFile(path, **asked)})
    file = fg.ScoreFile(path, **asked, drop_missing=True)
    result = fg.evaluate({"a": file})
    assert (result.examples, file.dropped) == (2, 3)
    table = fg.ScoreTable(path, client="s", **asked, drop_missing=True)
    assert (fg.evaluate(table).clients, table.dropped) == (1, 3)  # ' a ' is the client a
    frame = pd.read_csv(path)
    table = fg.ScoreTable(frame, client="s", **asked, drop_missing=True)
    assert (fg.evaluate(table).clients, table.dropped) == (1, 3)
    lazy = fg.ScoreTable(pl.DataFrame(frame).lazy(), **asked, drop_missing=True)
    assert (fg.evaluate({"a": lazy}).examples, lazy.dropped) == (2, 3)
    rows = LenientRows(file)
    assert read(rows)[1].tolist() == [0.1, 0.9]
    assert rows.left_out == {"malformed": 0, "dropped": 3}
    _, summary = count_exactly(plan_for(bins=8), file(), file)
    assert summary.oddities.dropped == 3  # for the operator, at a site as well
    assert "3 left out" in summary.in_words
    told = summary.oddities.as_refused(clips=True)
    assert told == ["3 rows have no label or no score: left out."]
    path.write_text("y,z,p,q\n0,1,0.1,0.2\n0,,0.1,0.2\n0,1,0.1,\n")
    several = fg.ScoreFile(path, label=["y", "z"], score=["p", "q"], drop_missing=True)
    assert (sum(map(len, several())), several.dropped) == (1, 2)


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [("Risk", "risk"), (" risk", "risk"), ("rsik", "risk"), ("LABEL", "Label ")],
)
def test_a_column_that_is_nearly_there_is_named(tmp_path, wanted, meant):
    path = tmp_path / "a.csv"
    path.write_text("Label ,risk,ward\n0,0.1,a\n")
    told = refusal(fg.ScoreFile, path, label=wanted, score="ward")
    assert f"Did you mean {meant!r}? The columns are" in told
    assert "Did you mean" not in refusal(fg.ScoreFile, path, label="xyz", score="ward")
    frame = pd.read_csv(path)
    assert f"Did you mean {meant!r}?" in refusal(fg.ScoreTable, frame, label=wanted, score="ward")
    path.write_text("0,0.987654321\n1,0.5\n")  # a person's row in the place of the names
    assert "987654321" not in refusal(fg.ScoreFile, path, label="0.98765432", score="1")


@pytest.mark.parametrize("names", [["a", " a", "a\t"], ["a", "a ", "b"]])
def test_clients_are_told_apart_by_their_names_without_blanks(tmp_path, names):
    columns = {"s": names, "y": [0, 1, 1], "p": [0.1, 0.2, 0.3]}
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns), path)
    for source in (path, pd.DataFrame(columns)):
        table = fg.ScoreTable(source, client="s", label="y", score="p")
        assert fg.evaluate(table).clients == len({name.strip() for name in names})
    columns["s"][0] = "  "
    pq.write_table(pa.table(columns), path)
    with pytest.raises(fg.InputError, match="names no client in some rows"):
        fg.evaluate(fg.ScoreTable(path, client="s", label="y", score="p"))
