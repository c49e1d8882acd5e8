"""Excel workbooks: rows as openpyxl reads them, and files that would fill memory or time."""

import io
import zipfile
from datetime import date

import numpy as np
import openpyxl
import pytest
from workbooks import MAIN, OFFICE, ROWS, cell, pack, parts, relations, rows_of, sheet

import fedgauge as fg
from fedgauge.data import workbooks
from fedgauge.data.row_checks import LenientRows, ids_in


def save(path, rows, *more, **options):
    book = openpyxl.Workbook(**options)
    for row in rows:
        book.active.append(row)
    for name in more:
        book.create_sheet(name)
    book.save(path)
    return path


def read(path, **options):
    file = fg.ScoreFile(path, label="y", score="p", **options)
    file.check()
    return file


def columns(file):
    batches = list(file())
    scores = np.concatenate([batch.y_score for batch in batches])
    return [label for batch in batches for label in batch.y_true], scores


def text(path, decimal="."):
    with path.open("rb") as file:
        return workbooks.SheetText(file, decimal).read().decode()


def refused(path, told):
    with pytest.raises(fg.InputError, match=told):
        list(read(path)())


def test_rows_are_those_that_another_reader_finds(tmp_path):
    rng = np.random.default_rng(3)
    rows = [["id", "y", "p", "flag", "day", "note"]]
    rows += [
        [
            i,
            int(rng.integers(2)),
            rng.random(),
            bool(rng.random() < 0.5),
            date(2026, 1, 1),
            f"<&> {i}\t\n'\"",
        ]
        for i in range(5_000)
    ]
    path = save(tmp_path / "a.xlsx", rows)
    labels, scores = columns(read(path))
    book = openpyxl.load_workbook(path, read_only=True)
    found = list(book.active.iter_rows(min_row=2, values_only=True))
    assert labels == [str(row[1]) for row in found]
    np.testing.assert_array_equal(scores, [row[2] for row in found])
    assert ids_in(path, key="id").to_pylist() == [str(row[0]) for row in found]
    assert ids_in(path, key="note").to_pylist() == [row[5] for row in found]
    (flags,) = fg.ScoreFile(path, label="flag", score="p")()
    assert flags.y_true.tolist() == [str(row[3]).upper() for row in found]


def test_kinds_of_cells(tmp_path):
    words = "<si><t>y</t></si><si><r><t>p</t></r><r><t xml:space='preserve'> q</t></r><rPh><t>no</t></rPh></si>"  # noqa: E501
    rows = (
        '<row r="3"><c r="B3" t="s"><v>0</v></c><c r="C3" t="s"><v>1</v></c></row>'
        '<row r="4"><c r="C4"><v>1E-3</v></c><c r="D4"><v>9</v></c></row>'
        '<row r="6"><c r="B6" t="b"><v>1</v></c><c r="C6" t="e"><v>#N/A</v></c></row>'
        '<row r="7"><c t="str"><f>A1</f><v>out</v></c><c t="d"><v>2026-01-01</v></c></row>'
        '<row r="8"/>'
    )
    path = pack(tmp_path / "a.xlsx", parts(rows, words))
    assert text(path) == "\ty\tp q\n\t\t1E-3\n\n\tTRUE\t#N/A\nout\t2026-01-01\t\n"
    other = rows_of(("y", "p"), (0, 0.5), (1, "0,5"))
    assert text(pack(path, parts(other)), ",") == "y\tp\n0\t0,5\n1\t0,5\n"


def test_the_first_visible_sheet_is_read_wherever_its_parts_lie(tmp_path):
    book = (
        f'<x:workbook xmlns:x="{MAIN}" xmlns:z="{OFFICE}"><x:sheets>'
        '<x:sheet name="hidden" state="hidden" z:id="h"/><x:sheet name="chart" z:id="c"/>'
        '<x:sheet name="rows" z:id="s"/><x:sheet name="more" z:id="h"/></x:sheets></x:workbook>'
    )
    made = {
        "_rels/.rels": relations(r=("officeDocument", "/deep/er/book.xml")),
        "deep/er/book.xml": book,
        "deep/er/_rels/book.xml.rels": relations(
            h=("worksheet", "none.xml"), c=("chartsheet", "none.xml"), s=("worksheet", "../s.xml")
        ),
        "deep/s.xml": sheet(ROWS).encode("utf-16"),
    }
    assert text(pack(tmp_path / "a.xlsx", made)).startswith("y\tp\n0\t0.1\n")


def test_workbooks_count_like_memory_strictly_and_leniently(tmp_path):
    rows = [(i % 2, round(0.01 * i, 2)) for i in range(100)]
    path = save(tmp_path / "a.xlsx", [("y", "p"), *rows])
    clean = fg.evaluate({"a": tuple(np.array(rows).T)})
    assert fg.evaluate({"a": read(path)}).record == clean.record
    assert fg.evaluate(
        fg.ScoreTable(save(tmp_path / "t.xlsx", [("y", "p", "s"), *((*r, "a") for r in rows)]),
                      client="s", label="y", score="p")
    ).record == clean.record  # fmt: skip
    odd = save(tmp_path / "odd.xlsx", [("y", "p"), *rows, (None, "secret"), ("7%", "7%", "more")])
    lenient = LenientRows(read(odd))
    scores = np.concatenate([batch.y_score for batch in lenient])
    np.testing.assert_array_equal(scores[:100], [score for _, score in rows])
    assert np.isnan(scores[100])
    assert (scores[101], lenient.left_out) == (0.07, {"malformed": 0, "dropped": 0})


def test_what_is_no_workbook(tmp_path):
    path = tmp_path / "a.xlsx"
    for content, told in (
        (b"y,p\n0,0.1\n", "not an Excel workbook"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1", "old format, or one with a password"),
        (b"PK\x03\x04", "damaged"),
    ):
        path.write_bytes(content)
        refused(path, told)
    pack(path, {"a": "b"})
    refused(path, "damaged")
    for rows, told in ((HEADER, "no examples"), ("", "no examples")):
        with pytest.raises(fg.InputError, match=told):
            fg.evaluate({"a": read(pack(path, parts(rows)))})
    with pytest.raises(fg.InputError, match="no separator and no encoding"):
        read(pack(path, parts()), separator=";")
    with pytest.raises(fg.InputError, match="Did you mean 'p'"):
        fg.ScoreFile(path, label="y", score="P")


FAR = '<c r="XFD1048576"><v>1</v></c>'
HEADER = rows_of(("y", "p"))


@pytest.mark.parametrize(
    "rows",
    [
        '<row r="1048577"/>',
        '<row r="4294967295"><c><v>1</v></c></row>',
        '<row r="5"/><row r="5"/>',
        '<row r="-5"/>',
        '<row><c r="XFE2"><v>1</v></c></row>',
        '<row><c r="ZZZZZZZ2"><v>1</v></c></row>',
        '<row><c r="2"><v>1</v></c></row>',
        '<row><c r="B2"/><c r="A2"/></row>',
        f"<row>{'<c/>' * 16_385}</row>",
        '<row><c t="s"><v>0</v></c></row>',
        '<row><c t="s"><v>-1</v></c></row>',
        f"<row>{cell('x' * 32_769)}</row>",
        f"<row><c t='inlineStr'><is>{'<t>xxx</t>' * 11_000}</is></c></row>",
        f"<row>{cell('x' * 32_000) * 40}</row>",
        f"<row>{'<t>xxx</t>' * 11_000}</row>",
        "<a>" * 40 + "</a>" * 40,
        f"<row x='{'x' * (2 << 20)}'/>",
        f"<!--{'x' * (2 << 20)}-->",
        "<row>",
        "<row></c></row>",
    ],
)
def test_sheets_beyond_what_excel_allows(tmp_path, rows):
    refused(pack(tmp_path / "a.xlsx", parts(HEADER + rows)), "damaged, or larger than Excel allows")


def test_the_last_cell_of_a_sheet_takes_no_memory(tmp_path):
    """Another reader makes room for 17 billion cells here, and the process ends."""
    path = pack(tmp_path / "a.xlsx", parts(f'{ROWS}<row r="1048576">{FAR}</row>'))
    assert columns(read(path))[1].tolist() == [0.1, 0.9, 0.4, 0.3]


def test_entities_are_refused(tmp_path):
    bomb = '<!DOCTYPE w [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]>'
    path = pack(tmp_path / "a.xlsx", parts(xl__worksheets__one_xml=""))
    made = parts()
    made["xl/worksheets/one.xml"] = bomb + sheet(rows_of(("y", "p"), (0, "&b;")))
    refused(pack(path, made), "damaged")


def test_zips_that_claim_less_than_they_hold(tmp_path, monkeypatch):
    path = pack(tmp_path / "a.xlsx", parts(ROWS + " " * 50_000))
    assert len(columns(read(path))[1]) == 4
    whole = path.read_bytes()
    size = len(parts(ROWS + " " * 50_000)["xl/worksheets/one.xml"]).to_bytes(4, "little")
    assert whole.count(size) == 2  # in the local header and the directory
    path.write_bytes(whole.replace(size, (1_000).to_bytes(4, "little")))
    refused(path, "damaged")
    pack(path, parts(ROWS + " " * 50_000))
    monkeypatch.setattr(workbooks, "_MOST_SHEET", 10_000)
    refused(path, "damaged")
    monkeypatch.setattr(workbooks, "_MOST_SHEET", 1 << 20)
    refused(pack(path, parts(), zipfile.ZIP_LZMA), "damaged")


def test_any_part_may_be_damaged(tmp_path):
    """Whatever the readers of zips and of XML raise, it is one error of ours, without a value."""
    rng, path = np.random.default_rng(5), tmp_path / "a.xlsx"
    pack(path, parts(rows_of(("y", "p"), *((i % 2, 0.987654321) for i in range(50)))))
    whole = path.read_bytes()
    refusals = []
    for _ in range(400):
        data = bytearray(whole)
        for place in rng.integers(len(data), size=rng.integers(1, 4)):
            data[place] = rng.integers(256)
        path.write_bytes(data[: rng.choice((len(data), rng.integers(len(data))))])
        try:
            list(read(path)())
        except fg.InputError as error:
            refusals.append(str(error))
    assert len(refusals) > 200
    assert not [told for told in refusals if "987654321" in told]


def test_reading_takes_what_is_asked_for(tmp_path):
    path = pack(tmp_path / "a.xlsx", parts())
    with path.open("rb") as file:
        parts_read = []
        stream = workbooks.SheetText(file, ".")
        while piece := stream.read(7):
            parts_read.append(piece)
        assert b"".join(parts_read).decode() == text(path)
        assert io.TextIOWrapper(workbooks.SheetText(file, ".")).readline() == "y\tp\n"
