"""Score files of which no row can spoil another, and what is checked before any is read."""

import gzip
import math
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from calibrators import FORMS, calibrator
from plans import noisy_plan

import fedgauge as fg
from fedgauge.data.named_columns import NamedColumns
from fedgauge.data.oddities import Oddities
from fedgauge.engines.contribution import count_leniently

PLAN = noisy_plan(bins=4)
MANY = 70_000  # rows in several blocks
CLEAN = "0,0.1,a\n1,0.9,b\n"


def csv(folder, rows, *, header="y,p,who\n", name="s.csv"):
    path = folder / name
    content = header.encode() + (rows if isinstance(rows, bytes) else rows.encode())
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    return fg.ScoreFile(path, label="y", score="p", subject="who")


def parquet(folder, **columns):
    pq.write_table(pa.table(columns), folder / "s.parquet", row_group_size=2)
    return fg.ScoreFile(folder / "s.parquet", label="y", score="p")


def count(file, plan=PLAN):
    return count_leniently(plan, lambda: file)


@pytest.mark.parametrize("before", [0, MANY // 2], ids=["first", "late"])
@pytest.mark.parametrize(
    ("row", "cell", "odd"),
    [
        pytest.param("1,x,c\n", (1, 0), "not_finite", id="text"),
        pytest.param("1,,c\n", (1, 0), "not_finite", id="missing"),
        pytest.param("1,NA,c\n", (1, 0), "not_finite", id="NA"),
        pytest.param("1,nan,c\n", (1, 0), "not_finite", id="nan"),
        pytest.param("1,-inf,c\n", (1, 0), "not_finite", id="minus inf"),
        pytest.param("1,inf,c\n", (1, 3), "not_finite", id="inf"),
        pytest.param("1,1e400,c\n", (1, 3), "not_finite", id="no float"),
        pytest.param('1,"0,9",c\n', (1, 0), "not_finite", id="decimal comma"),
        pytest.param("1,7,c\n", (1, 3), "clipped", id="beyond"),
        pytest.param("1, 0.9 ,c\n", (1, 3), None, id="spaces"),
        pytest.param(",0.9,c\n", (0, 3), "missing_labels", id="no label"),
        pytest.param("maybe,0.9,c\n", (0, 3), "other_labels", id="third label"),
        pytest.param("Größe,0.9,c\n".encode("latin-1"), (0, 3), "other_labels", id="latin-1"),
        pytest.param("1\n", None, "malformed", id="short"),
        pytest.param("1,0.9,c,d\n", None, "malformed", id="long"),
        pytest.param("Größe\n".encode("latin-1"), None, "malformed", id="short latin-1"),
    ],
)
@pytest.mark.parametrize("name", ["s.csv", "s.csv.gz"])
def test_one_row_of_a_text_file_spoils_no_other(tmp_path, before, row, cell, odd, name):
    row = row if isinstance(row, bytes) else row.encode()
    half = CLEAN.encode() * (before // 2)
    file = csv(tmp_path, half + row + half + CLEAN.encode(), name=name)
    file.check()
    histogram, oddities = count(file)
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
    histogram, oddities = count(file)
    expected = np.array([[2, 0, 0, 0], [0, 0, 0, 2]])
    expected[0, 3] += b"," in row
    assert np.array_equal(histogram.counts, expected)
    odd = {"other_labels": 1} if b"," in row else {"malformed": 1}
    assert oddities == Oddities(rows=expected.sum(), **odd)


def test_rows_of_a_text_file_without_an_id(tmp_path):
    plan = noisy_plan(bins=4, privacy=fg.DistributedDP(1.0, unit="subject"))
    rows = b"0,0.1,\n1,0.9,7\n1,0.9,7.0\n0,0.1,\xfc\n0,0.1,\xf6\n0,0.1,\n"
    histogram, oddities = count(csv(tmp_path, rows), plan)
    assert histogram.sum() == 4
    assert oddities == Oddities(rows=4, no_subject=2)


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
    ],
)
def test_one_row_of_a_parquet_file_spoils_no_other(tmp_path, label, score, odd):
    file = parquet(tmp_path, y=label, p=score)
    file.check()
    histogram, oddities = count(file)
    assert histogram.sum() == 3
    assert histogram.counts[0, 0] >= 1
    assert histogram.counts[1, 3] == 1
    assert oddities == Oddities(rows=3, **dict.fromkeys(odd, 1))


def test_text_of_a_parquet_file_that_is_not_utf8(tmp_path):
    words = pa.array([b"0", b"1", b"\xfc"]).cast(pa.string(), safe=False)
    file = parquet(tmp_path, y=words, p=[0.1, 0.9, 0.9])
    histogram, oddities = count(file)
    assert histogram.counts.tolist() == [[1, 0, 0, 1], [0, 0, 0, 1]]
    assert oddities == Oddities(rows=3, other_labels=1)


@pytest.mark.parametrize("end", ["", "\n", "\n\n"], ids=["nothing", "newline", "blank"])
def test_a_header_alone_is_no_failure(tmp_path, end):
    file = csv(tmp_path, end, header="y,p,who")
    file.check()
    assert count(file) == (PLAN.histogram(), Oddities())


def test_a_file_that_is_gone_or_breaks_off_counts_as_no_rows(tmp_path):
    file = csv(tmp_path, CLEAN * MANY, name="s.csv.gz")
    content = file.path.read_bytes()
    file.path.write_bytes(content[: len(content) // 2])
    histogram, oddities = count(file)
    assert histogram.sum() == 0
    assert oddities.failure
    file.path.unlink()
    assert count(file)[1].failure


# What is checked before rows are read.


def refusal(file):
    with pytest.raises(fg.InputError) as caught:
        file.check()
    return str(caught.value)


def test_a_score_column_without_a_number_is_refused(tmp_path):
    told = refusal(csv(tmp_path, "0,Ann,a\n1,Bob,b\n"))
    assert "s.csv: column 'p' holds values that are not numbers. Check which column" in told


def test_some_numbers_are_enough(tmp_path):
    csv(tmp_path, "0,Ann,a\n1,0.5,b\n").check()
    csv(tmp_path, "0,,a\n1,,b\n").check()  # nothing but missing scores may be all there is


@pytest.mark.parametrize(
    "scores",
    [
        pytest.param(["Ann", "Bob"], id="text"),
        pytest.param(pa.array([[0.1], [0.2]]), id="lists"),
        pytest.param(pa.array([1, 2], pa.timestamp("s")), id="times"),
    ],
)
def test_parquet_scores_of_a_wrong_type_are_refused(tmp_path, scores):
    assert "column 'p' holds values that are not numbers" in refusal(
        parquet(tmp_path, y=[0, 1], p=scores)
    )


def test_parquet_floats_are_no_wrong_type_whatever_they_are(tmp_path):
    """A model that gives nothing but NaN must not silence a site."""
    parquet(tmp_path, y=[0, 1], p=[np.nan, np.nan]).check()


def test_parquet_types_are_checked_without_rows(tmp_path):
    for scores in (pa.array([], pa.list_(pa.float64())), pa.array([], pa.timestamp("s"))):
        empty = parquet(tmp_path, y=pa.array([], pa.int64()), p=scores)
        assert "not numbers" in refusal(empty)
    parquet(tmp_path, y=pa.array([], pa.int64()), p=pa.array([], pa.string())).check()


def test_nested_labels_and_ids_are_refused(tmp_path):
    nested = pa.array([[0], [1]])
    assert "column 'y' holds lists" in refusal(parquet(tmp_path, y=nested, p=[0.1, 0.2]))
    pq.write_table(pa.table({"y": [0, 1], "p": [0.1, 0.2], "w": nested}), tmp_path / "s.parquet")
    file = fg.ScoreFile(tmp_path / "s.parquet", label="y", score="p", subject="w")
    assert "column 'w' holds lists" in refusal(file)


def test_only_the_first_rows_are_read(tmp_path):
    never_closed = '1,"' + "x" * (4 << 20)
    file = csv(tmp_path, CLEAN * 5 * MANY + never_closed)
    file.check()
    assert count(file)[1].failure  # so a whole reading would have met it


# Time: work that depends on one cell would tell of it


def work(file, plan=PLAN):
    """How many functions are called, of Python and of C, to count a file."""
    count(file, plan)  # what is made once is made
    calls = 0

    def note(frame, event, argument):
        nonlocal calls
        del frame, argument
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        count(file, plan)
    finally:
        sys.setprofile(before)
    return calls


# Functions that are called for the odd cell itself: nothing is done anew with the others.
FEW = 10
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
MAPPED = PLAN.with_calibrator(calibrator(FORMS["beta"]))


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
