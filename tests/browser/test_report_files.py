"""What the buttons of a report save: tables as they are shown, figures that other programs open."""

import csv
import io
import re
from collections import Counter
from xml.etree import ElementTree

import numpy as np
import pytest
from pages import saved
from shown import UNFOLD, at, parts, tables

_SVG = "{http://www.w3.org/2000/svg}"
_FIGURES = """() => [...document.querySelectorAll("figure")].map(each => [
  each.querySelector("figcaption").firstChild.textContent,
  [...each.querySelector("svg").querySelectorAll("*")].map(mark => mark.tagName),
  each.querySelector("svg").viewBox.baseVal.width,
  each.querySelector("svg").viewBox.baseVal.height])"""
_PAPER = "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
ALL = "Save as CSV: all thresholds"


def read(inside):
    return list(csv.reader(io.StringIO(inside.decode("utf-8"), newline=""), strict=True))


@pytest.mark.parametrize("kind", ["exact sum", "classes", "groups under noise", "models"])
def test_every_table_is_saved_as_it_is_shown(open_page, report, kind):
    page = open_page(report(kind)[1])
    page.evaluate(UNFOLD)
    shown, files = tables(page), saved(page)
    assert len(shown) > 8
    for name, caption, rows in shown:
        file, what, inside = files.pop(f"Save as CSV: {caption}")
        assert (file, what) == (f"{name}.csv", "text/csv")
        # What begins like a formula has an apostrophe before it.
        assert [[cell.removeprefix("'") for cell in row] for row in read(inside)] == rows
    assert files.pop(ALL)
    assert {label.partition(":")[0] for label in files} == {"Save as SVG", "Save as PNG"}


@pytest.mark.parametrize("kind", ["exact sum", "models"])
def test_all_thresholds_are_saved_with_the_numbers_of_the_library(open_report, kind):
    result, page = open_report(kind)
    for part in parts(page, result):
        head, *rows = read(saved(page)[ALL][2])
        assert len(rows) > 30
        assert {"threshold", "tn", "tp", "recall", "recall low", "f1 high"} <= set(head)
        for row in rows:
            told = dict(zip(head, row, strict=True))
            here = at(part, told.pop("threshold"))
            for column, cell in told.items():
                wanted = number(here, column)
                found = float(cell) if cell else None
                assert (column, found) == (column, wanted and pytest.approx(wanted, abs=5.1e-5))


def number(here, column):
    """What the library says in a column of thresholds; None where it is not defined."""
    name, _, end = column.partition(" ")
    if name in ("tn", "fp", "fn", "tp"):
        return round(getattr(here.confusion_matrix, name).value)
    estimate = here.as_dict()[name]
    return estimate and getattr(estimate, end or "value")


def test_cells_that_begin_like_formulas_are_guarded(open_page, report):
    page = open_page(report("hostile")[1])
    page.evaluate(UNFOLD)
    cells = {
        cell
        for _, kind, inside in saved(page).values()
        if kind == "text/csv"
        for row in read(inside)
        for cell in row
    }
    formulas = {cell for cell in cells if re.match(r"\s*[=+\-@\uff1d]", cell)}
    # A spreadsheet runs what begins so, but not numbers and their intervals.
    assert [cell for cell in formulas if not re.fullmatch(r"[-+][-\d., to()e]+", cell)] == []
    for sign in ("=", "\uff1d"):
        assert any(f"'{sign}HYPERLINK" in cell for cell in cells)


@pytest.mark.parametrize("dark", [False, True])
def test_every_figure_is_saved_with_all_its_marks(open_page, report, dark):
    page = open_page(report("exact sum")[1], dark=dark)
    page.evaluate(UNFOLD)
    figures, files = page.evaluate(_FIGURES), saved(page)
    paper = page.evaluate(_PAPER)
    assert len(figures) == 8
    for title, marks, *size in figures:
        drawing, looks = drawn(files[f"Save as SVG: {title}"][2])
        found = Counter(each.tag.removeprefix(_SVG) for each in drawing.iter())
        assert found == Counter([*marks, "svg", "rect"])  # and the paper
        assert {"path", "text"} <= set(found)
        assert [each for each in looks if "var(" in each or "currentcolor" in each.lower()] == []
        assert [float(drawing.get(side)) for side in ("width", "height")] == size
        picture = pixels(files[f"Save as PNG: {title}"][2])
        assert picture.shape[:2] == (3 * size[1], 3 * size[0])
        assert picture[0, 0].tolist() == [*paper, 255]
        inked = (picture != picture[0, 0]).any(axis=2)
        assert 0.005 < inked.mean() < 0.9
        assert inked[:, : 3 * 40].any()  # its numbers
        assert inked[3 * 150 : 3 * 190, 3 * 60 :].any()  # its lines


def drawn(inside):
    """A saved figure taken apart, which asks for nothing outside itself; and how it looks."""
    drawing = ElementTree.fromstring(inside)  # noqa: S314
    values = [value for each in drawing.iter() for value in each.attrib.values()]
    here = {each.get("id") for each in drawing.iter()}
    for address in re.findall(r"url\(([^)]*)\)", " ".join(values)):
        assert address.strip("\"'").removeprefix("#") in here
    assert not any("href" in name or name == "src" for e in drawing.iter() for name in e.attrib)
    return drawing, values


def pixels(inside):
    """A PNG as rows of red, green, blue and alpha."""
    from matplotlib import image

    return (image.imread(io.BytesIO(inside)) * 255).round().astype(np.uint8)


def test_the_browser_saves_files_of_each_kind(open_page, report):
    page = open_page(report("exact sum")[1])
    seen = {}
    for label in (ALL, "Save as SVG: ROC curve", "Save as PNG: ROC curve"):
        with page.expect_download() as download:
            page.locator(f'[aria-label="{label}"]').click()
        seen[download.value.suggested_filename] = download.value.path().read_bytes()
    files = saved(page)
    assert set(seen) == {"thresholds.csv", "roc.svg", "roc.png"}
    assert {name: inside for name, _, inside in files.values() if name in seen} == seen
