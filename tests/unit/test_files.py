"""Score files: every format reads like memory; a bad file is refused without showing its values."""

import gzip
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import fedgauge as fg
from fedgauge.data.files import PlacedColumn, some_labels

ENDINGS = ["csv", "tsv", "csv.gz", "tsv.gz", "parquet", "pq"]
ROWS = 100_000  # several Parquet row groups and CSV blocks
SECRETS = ("SECRET123", "987654321")
MANY = "0,0.1\n1,0.9\n" * 100_000  # more than one CSV block


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(11)
    score = rng.random(ROWS)
    return pa.table(
        {
            "note": ["quoted, for the comma"] * ROWS,
            "y": (rng.random(ROWS) < score).astype(np.int64),
            "site": [f"site-{i}" for i in rng.integers(0, 7, ROWS)],
            "p": score,
        }
    )


@pytest.fixture(scope="module")
def pooled(table):
    return fg.evaluate({"all": (table["y"].to_numpy(), table["p"].to_numpy())})


def write_table(table, path):
    if path.suffix in (".parquet", ".pq"):
        pq.write_table(table, path, row_group_size=70_000)
        return path
    options = pa.csv.WriteOptions(delimiter="\t" if ".tsv" in path.name else ",")
    compression = "gzip" if path.suffix == ".gz" else None
    with pa.output_stream(path, compression=compression) as stream:
        pa.csv.write_csv(table, stream, options)
    return path


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def parquet(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def parquet_bytes():
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"y": [0, 1], "p": [0.1, 0.987654321]}), sink)
    return sink.getvalue().to_pybytes()


def evaluate_file(path, *, positive=None, label="y", score="p"):
    return fg.evaluate({"here": fg.ScoreFile(path, label=label, score=score)}, positive=positive)


def evaluate_table(*paths, positive=None, client="site"):
    return fg.evaluate(fg.ScoreTable(paths, client=client, label="y", score="p"), positive=positive)


def totals(result):
    return result.negatives, result.positives


def visible(error):
    """All that a traceback would show of an error and those behind it."""
    texts = []
    while error is not None:
        texts.append(f"{error} {error.args!r}")
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join(texts)


def refusal(action, *arguments, **options):
    """The message with which the input is refused; never holds a value of the file."""
    with pytest.raises(fg.InputError) as caught:
        action(*arguments, **options)
    shown = visible(caught.value)
    assert not [secret for secret in SECRETS if secret in shown]
    return str(caught.value)


@pytest.mark.parametrize("ending", ENDINGS)
def test_files_and_tables_count_like_memory(table, pooled, tmp_path, ending):
    path = write_table(table, tmp_path / f"scores.{ending}")
    assert evaluate_file(path).record == pooled.record
    result = evaluate_table(path)
    assert result.record.slices == pooled.record.slices
    assert result.clients == 7


def test_tables_of_several_files_and_formats_add_up(table, pooled, tmp_path):
    paths = [
        write_table(table.slice(start, 25_000), tmp_path / f"part-{start}.{ending}")
        for start, ending in zip(range(0, ROWS, 25_000), ENDINGS[:4], strict=True)
    ]
    result = evaluate_table(*paths)
    assert result.record.slices == pooled.record.slices
    assert result.clients == 7


@pytest.mark.parametrize("ending", ["csv.gz", "parquet"])
def test_large_files_come_in_batches_and_can_be_read_again(table, tmp_path, ending):
    file = fg.ScoreFile(write_table(table, tmp_path / f"s.{ending}"), label="y", score="p")
    first, again = list(file()), list(file())
    sizes = [len(batch) for batch in first]
    assert sum(sizes) == ROWS
    assert max(sizes) <= 65_536
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.y_score, other.y_score)


def test_name_is_the_stem_and_the_case_of_the_ending_does_not_matter(tmp_path):
    content = b"y\tp\n0\t0.1\n1\t0.9\n"
    for name, data in (
        ("site-a.csv", content.replace(b"\t", b",")),
        ("site-a.tsv.gz", gzip.compress(content)),
        ("b.parquet", parquet_bytes()),
    ):
        for written in (name, name.upper(), name.replace("csv", "Csv").replace("gz", "GZ")):
            path = write(tmp_path / written, data)
            named = fg.ScoreFile(str(path), label="y", score="p").name
            assert named == written.split(".")[0]
            assert totals(evaluate_file(path)) == (1, 1)


def test_kinds_of_client_column(tmp_path):
    for column in (
        ["a", "b", "a"],
        [1, 2, 1],
        pa.array(["a", "b", "a"]).dictionary_encode(),
        pa.array(["a", "b", "a"], pa.large_string()),
    ):
        path = parquet(tmp_path / "s.parquet", y=[0, 1, 0], p=[0.1, 0.9, 0.3], site=column)
        result = evaluate_table(path)
        assert (result.clients, *totals(result)) == (2, 2, 1)


def test_clients_are_told_by_any_kind_of_column_alike_in_csv_and_parquet(tmp_path):
    first = write(tmp_path / "s.csv", "y,p,site\n0,0.1,1\n1,0.9,2\n")
    second = parquet(tmp_path / "s.parquet", y=[0, 1], p=[0.1, 0.9], site=[2, 3])
    assert evaluate_table(first, second).clients == 3


def test_rows_without_a_client_are_refused(tmp_path):
    for column, told in (
        (pa.array(["SECRET123", None]), "Fill them in or drop them"),
        (pa.array([987654321, None]), "Fill them in or drop them"),
        (pa.array(["SECRET123", None]).dictionary_encode(), "Fill them in or drop them"),
        (pa.array([["SECRET123"], ["b"]]), ""),
    ):
        paths = [parquet(tmp_path / "export.parquet", y=[0, 1], p=[0.1, 0.9], site=column)]
        paths.append(write(tmp_path / "export.csv", "y,p,site\n0,0.987654321,SECRET123\n1,0.5,\n"))
        for path in paths:
            message = refusal(evaluate_table, path)
            assert path.name in message
            assert "'site'" in message
            assert told in message


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_unicode_names_and_missing_values(tmp_path, ending):
    table = pa.table({"étiquette": [0, 1], "分数": [0.1, 0.9]})
    path = write_table(table, tmp_path / f"hôpital-北.{ending}")
    assert totals(evaluate_file(path, label="étiquette", score="分数")) == (1, 1)
    table = pa.table({"y": pa.array([0, None, 1]), "p": pa.array([0.1, 0.2, 0.3])})
    message = refusal(evaluate_file, write_table(table, tmp_path / f"s.{ending}"))
    assert "1 of 3 labels are missing. Drop those rows." in message


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_only_used_duplicate_columns_are_refused(tmp_path, ending):
    columns = [pa.array([0, 1]), pa.array([0.1, 0.9]), pa.array([0.5, 0.6]), pa.array([0.7, 0.8])]
    table = pa.Table.from_arrays(columns, names=["y", "p", "q", "q"])
    path = write_table(table, tmp_path / f"export.{ending}")
    assert totals(evaluate_file(path)) == (1, 1)
    message = refusal(evaluate_file, path, score="q")
    assert "export" in message
    assert "2 columns are named 'q'. Rename" in message


def test_long_list_of_columns_says_that_it_is_cut(tmp_path):
    names = [f"c{i}" for i in range(40)]
    path = write(tmp_path / "wide.csv", ",".join(names) + "\n" + ",".join(["1"] * 40) + "\n")
    assert refusal(evaluate_file, path).endswith("'c29' and 10 more.")


CSV = b"y,p\nSECRET123,0.987654321\n"
AGAIN = "although its name says so. Export it again"
DAMAGED = "the Parquet file is damaged or cut short. Export it again."
PARQUET = parquet_bytes()


def test_content_that_is_not_what_the_name_says(tmp_path):
    for name, content, told in (
        *((f"x.{end}", b"", r"the file is empty \(0 bytes\)") for end in ("csv", "tsv", "parquet")),
        *((name, CSV, "use .csv, .tsv, .parquet or") for name in ("x.txt", "x", "x.xls", "x.gz")),
        ("x.csv.zip", CSV, "use .csv, .tsv, .parquet or .xlsx"),
        ("x.xlsx", CSV, "not an Excel workbook"),
        ("x.parquet", CSV, f"not a Parquet file, {AGAIN}"),
        ("x.csv", PARQUET, "a Parquet file, not CSV. Rename it to end in .parquet"),
        ("x.csv.gz", CSV, f"not a gzip file, {AGAIN}"),
        ("x.csv", gzip.compress(CSV), "UTF-8|gzip"),
        ("x.csv", CSV.decode().encode("utf-16"), "UTF-8"),
        ("x.csv.gz", gzip.compress(MANY.encode() + CSV[4:])[:-12], "Export it again"),
        ("x.csv", "y,p,Größe\n0,0.1,SECRET123\n1,0.9,2\n".encode("latin-1"), "UTF-8"),
        *(("x.parquet", PARQUET[:size], DAMAGED) for size in (4, len(PARQUET) // 2, -40, -1)),
        # The first row stands in the place of the names: a label and a score of a person.
        ("x.csv", b"0,0.987654321\n1,0.5\n", "The first row looks like data"),
        ("x.csv", b"0;0,987654321\n1;0,5\n", "The first row looks like data"),
        ("x.csv", b"y;p\n0;0,987654321\n", r"one column that holds ';'.*\(separator=\.\.\.\)"),
    ):
        message = refusal(evaluate_file, write(tmp_path / name, content))
        assert name in message
        assert re.search(told, message, re.DOTALL)


def test_places_that_are_no_files(tmp_path):
    (tmp_path / "exports.csv").mkdir()
    message = refusal(evaluate_file, tmp_path / "exports.csv")
    assert "exports.csv: this is a folder. Name the files in it" in message
    for name in ("absent.csv", "absent.parquet", "absent"):
        assert f"{name}: there is no such file" in refusal(evaluate_file, tmp_path / name)
    assert refusal(evaluate_file, tmp_path / ("x" * 300 + ".csv"))
    assert "file" in refusal(evaluate_table)  # of none


def test_random_bytes_and_damaged_parquet_end_in_a_readable_error(tmp_path):
    for seed in range(8):
        noise = np.random.default_rng(seed).bytes(5_000)
        for ending in ("csv", "tsv", "parquet"):
            assert f"x.{ending}" in refusal(evaluate_file, write(tmp_path / f"x.{ending}", noise))
    for seed in range(20):
        rng = np.random.default_rng(seed)
        table = pa.table({"y": rng.integers(0, 2, 3_000), "p": rng.random(3_000)})
        pq.write_table(table, tmp_path / "x.parquet", compression="gzip")
        damaged = bytearray((tmp_path / "x.parquet").read_bytes())
        start = int(rng.integers(4, len(damaged) - 40))
        damaged[start : start + 40] = rng.bytes(40)
        message = refusal(evaluate_file, write(tmp_path / "x.parquet", bytes(damaged)))
        assert "x.parquet" in message


@pytest.mark.parametrize("name", ["ArrowNotImplementedError", "ArrowTypeError", "ArrowMemoryError"])
def test_whatever_arrow_says_of_a_parquet_file(tmp_path, monkeypatch, name):
    """A changed byte can name a type that Arrow lacks, or a size that no machine has."""
    path = write(tmp_path / "x.parquet", parquet_bytes())

    def fails(*_args, **_options):
        raise getattr(pa, name)("SECRET123")

    for place in ("read_metadata", "ParquetFile.iter_batches"):
        with monkeypatch.context() as patched:
            patched.setattr(f"pyarrow.parquet.{place}", fails)
            assert "the Parquet file is damaged" in refusal(evaluate_file, path)


BEFORE = pytest.mark.parametrize("before", ["", "0,0.1\n", MANY], ids=["first", "second", "late"])


@BEFORE
def test_csv_scores_that_are_not_numbers(tmp_path, before):
    for row in ("1,SECRET123\n", '1,"0,987654321"\n'):
        message = refusal(evaluate_file, write(tmp_path / "export.csv", f"y,p\n{before}{row}"))
        assert "export.csv" in message
        assert "column 'p' holds values that are not numbers. Check which column" in message
        assert "(decimal=...)" in message


@pytest.mark.parametrize("name", ["export.csv", "export.csv.gz"])
@BEFORE
def test_rows_of_another_width_are_named_by_line(tmp_path, before, name):
    for row, columns in (("1,0.987654321,SECRET123\n", 3), ("SECRET123\n", 1)):
        content = f"y,p\n{before}{row}".encode()
        path = write(tmp_path / name, gzip.compress(content) if name.endswith("gz") else content)
        line = 2 + before.count("\n")
        told = (
            f"{name}: line {line:,} has {columns} columns where the header has 2. Correct that line"
        )
        assert told in refusal(evaluate_file, path)


def test_lines_are_counted_as_an_editor_counts_them(tmp_path):
    """A row can span lines, and a blank line is no row."""
    text = 'y,p,note\n0,0.1,"one\ntwo"\n\n1,0.9,"a, b"\n1,0.8,"SECRET123\n",x\n'
    told = refusal(evaluate_file, write(tmp_path / "x.csv", text))
    assert "line 6 has 4 columns where the header has 3" in told


def test_separator_and_decimal(tmp_path):
    for text, options in (
        ("y;p\n0;0,25\n1;0,75\n", {"separator": ";", "decimal": ","}),
        ("y|p\n0|0.25\n1|0.75\n", {"separator": "|"}),
        ('y,p\n0,"0,25"\n1,"0,75"\n', {"decimal": ","}),
    ):
        path = write(tmp_path / "x.csv", text)
        strict, lenient = (fg.ScoreFile(path, label="y", score="p", **options) for _ in range(2))
        lenient.check()
        skipped = []
        for batches in (strict(), lenient.leniently(lambda skipped=skipped: skipped.append(1))):
            assert [list(batch.y_score) for batch in batches] == [[0.25, 0.75]]
        assert not skipped


def test_rows_that_the_decimal_comma_does_not_fit_are_told(tmp_path):
    """Read as thousands it would be a thousand times the score."""
    path = write(tmp_path / "x.csv", "y;p\n0;0.25\n1;0,75\n")
    file = fg.ScoreFile(path, label="y", score="p", separator=";", decimal=",")
    assert "not numbers" in refusal(lambda: list(file()))
    (batch,) = file.leniently(lambda: None)
    np.testing.assert_array_equal(batch.y_score, [np.nan, 0.75])
    path = write(tmp_path / "x.csv", "y,p\n0,0,987654321\n1,0,5\n")
    file = fg.ScoreFile(path, label="y", score="p", decimal=",")
    assert "no row has as many columns as the header" in refusal(file.check)


def test_separators_that_cannot_be(tmp_path):
    for name, content, options, told in (
        *(
            ("x.csv", "y,p\n0,0.1\n", {"separator": given}, "separator must be one character")
            for given in (";;", "", '"')
        ),
        ("x.csv", "y,p\n0,0.1\n", {"decimal": ";"}, "decimal must be '.' or ','"),
        ("x.parquet", parquet_bytes(), {"separator": ";"}, "for Parquet files"),
        ("x.parquet", parquet_bytes(), {"decimal": ","}, "for Parquet files"),
    ):
        path = write(tmp_path / name, content)
        message = refusal(fg.ScoreFile, path, label="y", score="p", **options)
        assert name in message
        assert told in message


def test_a_table_takes_each_file_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "x.csv", "y,p,c\n0,0.1,a\n1,0.9,b\n")
    (tmp_path / "link.csv").symlink_to("x.csv")
    columns = {"client": "c", "label": "y", "score": "p"}
    told = refusal(lambda: fg.ScoreTable(["x.csv", "x.csv"], **columns))
    assert "x.csv is given twice, and its rows would count twice" in told
    for other in ("link.csv", tmp_path / "x.csv", "./x.csv"):
        told = refusal(lambda other=other: fg.ScoreTable(["x.csv", other], **columns))
        assert f"{other} is the same file as x.csv" in told


TIMES = pa.array([987654321, 2], pa.timestamp("s"))


def test_parquet_columns_of_no_use(tmp_path):
    path = tmp_path / "export.parquet"
    words = ["SECRET123", "x"]
    for scores in (words, pa.array(words).dictionary_encode(), [[0.987654321], [0.5]], TIMES):
        message = refusal(evaluate_file, parquet(path, y=[0, 1], p=pa.array(scores)))
        assert "export.parquet" in message
        assert "column 'p' holds values that are not numbers. Check which column" in message
    for labels in (TIMES, pa.array([0, 1], pa.date32()), pa.array([["SECRET123"], ["b"]])):
        assert refusal(evaluate_file, parquet(path, y=labels, p=[0.25, 0.75]))


SHARES = pa.array([0.25, 0.75])
SCORES = {
    "text of numbers": ["0.25", "0.75"],
    "float32": SHARES.cast(pa.float32()),
    "float16": pa.array(np.array([0.25, 0.75], np.float16)),
    "decimal": SHARES.cast(pa.decimal128(5, 3)),
    "dictionary": SHARES.dictionary_encode(),
}
LABELS = {
    "bool": [False, True],
    "integers": [0, 1],
    "int8": pa.array([0, 1], pa.int8()),
    "floats": [0.0, 1.0],
    "text": ["0", "1"],
    "words": ["false", "True"],
    "dictionary": pa.array(["0", "1"]).dictionary_encode(),
    "dictionary of integers": pa.array([0, 1]).dictionary_encode(),
    "large text": pa.array(["0", "1"], pa.large_string()),
}


def test_kinds_of_parquet_columns(tmp_path):
    for kind, scores in SCORES.items():
        result = evaluate_file(parquet(tmp_path / "s.parquet", y=[0, 1], p=scores))
        assert result.roc_curve().thresholds.tolist() == [np.inf, 0.75, 0.25], kind
    for kind, labels in LABELS.items():
        result = evaluate_file(parquet(tmp_path / "s.parquet", y=labels, p=[0.25, 0.75]))
        assert result.roc_auc.value == 1.0, kind


WAYS = {
    "byte order mark": "\ufeffy,p\n0,0.1\n1,0.9\n1,0.8\n",
    "crlf": "y,p\r\n0,0.1\r\n1,0.9\r\n1,0.8\r\n",
    "no last newline": "y,p\n0,0.1\n1,0.9\n1,0.8",
    "blank lines": "y,p\n\n0,0.1\n1,0.9\n\n1,0.8\n\n",
    "quoted": '"y","p"\n"0","0.1"\n"1",0.9\n1,"8e-1"\n',
    "quoted text": 'n,y,p\n"a, ""b""",0,0.1\n"c\nd",1,0.9\n,1,0.8\n',
    "true and false": "y,p\ntrue,0.1\nFalse,0.9\nTRUE,0.8\n",
    "float labels": "y,p\n0.0,0.1\n1.0,0.9\n1,0.8\n",
    "order of columns": "p,extra,y\n.1,x,0\n.9,,1\n.8,NA,1\n",
}


@pytest.mark.parametrize("content", WAYS.values(), ids=WAYS)
def test_ways_to_write_csv(tmp_path, content):
    assert totals(evaluate_file(write(tmp_path / "s.csv", content))) == (1, 2)


def test_quoted_newlines_may_stand_anywhere_in_a_large_csv(tmp_path):
    note = "a line of the note\n" * 20
    path = write(tmp_path / "s.csv", "y,p,note\n" + f'0,0.5,"{note}"\n1,0.6,"{note}"\n' * 4_000)
    assert path.stat().st_size > 1 << 20
    assert totals(evaluate_file(path)) == (4_000, 4_000)


def test_text_labels_need_the_positive_one_and_one_other(tmp_path):
    path = write(tmp_path / "s.csv", "y,p\nyes,0.9\nno,0.1\nno,0.2\n")
    assert totals(evaluate_file(path, positive="yes")) == (2, 1)
    assert totals(evaluate_file(path, positive="no")) == (1, 2)
    message = refusal(evaluate_file, path)
    assert "3 of 3 labels are neither bool nor 0/1" in message
    assert "positive" in message
    third = write(tmp_path / "s.csv", "y,p\nyes,0.9\nno,0.1\nSECRET123,0.2\n")
    assert "1 of 3 labels are a third value" in refusal(evaluate_file, third, positive="yes")
    # Reading leaves the file as it was.
    assert path.read_text() == "y,p\nyes,0.9\nno,0.1\nSECRET123,0.2\n"
    assert list(Path(tmp_path).iterdir()) == [path]


@pytest.mark.parametrize("first", ["0", "1", "yes"])
def test_kind_of_label_may_not_change_late_but_look_like_another_at_first(tmp_path, first):
    rows = f"{first},0.1\n" * 200_000
    path = write(tmp_path / "s.csv", f"y,p\n{rows}SECRET123,0.987654321\n")
    assert path.stat().st_size > 1 << 20
    assert "labels are neither bool nor 0/1" in refusal(evaluate_file, path)
    # So many rows of "0" would make the column a number, were the first block to decide.
    if first == "0":
        path = write(tmp_path / "s.csv", f"y,p\n{rows}yes,0.9\n")
        assert totals(evaluate_file(path, positive="yes")) == (200_000, 1)


MISSING = [
    ("y,p\n0,0.987654321\n1,\n1,NA\n0,nan\n", "3 of 4 scores are missing"),
    ("y,p\n,0.987654321\n1,0.5\nNA,0.5\n", "2 of 3 labels are missing"),
    ("y,p\n0,0.987654321\n1,inf\n", "1 of 2 scores are missing"),
    ("y,p\n0,0.5\n1,1.987654321\n", "1 of 2 scores lie outside"),
    ("y,p\nSECRET123,0.5\n1,0.1\n", "1 of 2 labels are neither"),
]


@pytest.mark.parametrize(("content", "told"), MISSING)
def test_bad_values_are_counted_not_shown(tmp_path, content, told):
    header, *rows = content.splitlines()
    lines = [f"{header},site", *(f"{row},a" for row in rows)]
    path = write(tmp_path / "export.csv", "\n".join(lines) + "\n")
    for evaluate in (evaluate_file, evaluate_table):
        message = refusal(evaluate, path)
        assert told in message
        assert "export.csv" in message


@pytest.mark.parametrize("content", ["y,p\n,0.1\n,0.2\n", "y,p\n" + MANY + ",0.5\n" * 300_000])
def test_label_column_without_any_label(tmp_path, content):
    message = refusal(evaluate_file, write(tmp_path / "s.csv", content))
    assert "labels are missing" in message
    path = parquet(tmp_path / "s.parquet", y=pa.nulls(2), p=[0.1, 0.2])
    assert "2 of 2 labels are missing" in refusal(evaluate_file, path)


@pytest.mark.parametrize("name", ["export.csv", "export.csv.gz", "export.parquet"])
@pytest.mark.parametrize("action", [evaluate_file, evaluate_table])
def test_header_without_rows(tmp_path, name, action):
    empty = {"y": pa.array([], pa.int64()), "p": pa.array([], pa.float64())}
    table = pa.table({**empty, "site": pa.array([], pa.string())})
    for path in (write_table(table, tmp_path / name), write(tmp_path / "s.csv", b"y,p,site")):
        message = refusal(action, path)
        assert "no examples" in message
        assert path.name in message


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_few_labels_are_named_and_many_values_are_not(tmp_path, ending):
    files = []
    for number, labels in enumerate((["yes", "no", "no"], ["no", None, "maybe"])):
        files.append(tmp_path / f"{number}.{ending}")
        if ending == "csv":
            text = "".join(f"{label or ''},0.5\n" for label in labels)
            files[-1].write_text(f"y,p\n{text}")
        else:
            parquet(files[-1], y=labels, p=[0.5] * 3)
    columns = [PlacedColumn(path, "y") for path in files]
    assert some_labels(columns, most=3) == ["maybe", "no", "yes"]
    assert some_labels(columns, most=2) is None
    assert some_labels(columns[:1], most=2) == ["no", "yes"]
