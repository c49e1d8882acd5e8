"""The one place through which text from outside passes before it is shown, logged or saved."""

import io
import logging
from pathlib import Path

import pytest
from outside import FORGED, HOSTILE, NAMES, dangers
from rich.table import Table
from rich.text import Text
from rows import draw_client

import fedgauge as fg
from fedgauge.cli.terminal import Screen
from fedgauge.escaping import csv_text, in_one_line, printable
from fedgauge.plots.curves import RocCurveDisplay


def test_names_of_all_scripts_are_left_and_what_is_no_letter_is_written_out():
    for name in (
        *("\u0645\u0633\u062a\u0634\u0641\u0649", "\u75c5\u9662\u3000\u6771\u4eac"),
        *("\u05d1\u05d9\u05ea \u05d7\u05d5\u05dc\u05d9\u05dd", "\u533b\u9662 \u5317\u4eac"),
        *("H\u00f4pital Saint-\u00c9tienne", "Klinik fu\u0308r Ku\u0308che"),
        *("\u0e42\u0e23\u0e07\u0e1e\u0e22\u0e32\u0e1a\u0e32\u0e25", "a\u00a0b \u2026 \u00b5g"),
        "\u2764\ufe0f \U0001f600 \U0001f3e5",
    ):
        assert printable(name) == in_one_line(name) == name
    for name in NAMES.values():
        assert dangers(printable(name)) == []
        assert "\n" not in in_one_line(name)
        assert printable(printable(name)) == printable(name)


_BLANKS = ("", " ", "\n", "\t", "\r", "\u00a0", "\u3000", "\ufeff", "\u200b", " \n ")
_STARTS = ("=1", "+1", "-1", "@A", "\uff1d1", "\uff0b1", "\uff0d1", "\uff20A", "\ufe661", "\u22121")


@pytest.mark.parametrize("start", _STARTS)
@pytest.mark.parametrize("blank", _BLANKS)
def test_no_cell_is_a_formula(blank, start):
    cell = csv_text([[f"{blank}{start}", 1]]).removesuffix(",1\n")
    assert cell.lstrip('" \u00a0\u3000')[0] in "'["
    assert dangers(cell) == []
    text = csv_text([["a;=1", 'b"=1', "c,=1", "plain", -0.5, None, "d\t=1"]])
    assert text == '"a;=1","b""=1","c,=1",plain,-0.5,,d[U+0009]=1\n'


def test_a_style_is_ours_alone():
    """On a terminal with colours: none but those of our own tables."""
    screen = Screen(file=io.StringIO(), force_terminal=True, width=200)
    table = Table(title=HOSTILE, caption=HOSTILE)
    table.add_column(HOSTILE, header_style="bold")
    table.add_row(HOSTILE)
    for each in (HOSTILE, table, Path(HOSTILE), Text(HOSTILE, "bold")):
        screen.print(each)
    told = screen.file.getvalue()
    assert "[bold]" in told
    assert set(dangers(told)) == {"'\\x1b'"}
    styles = {part.split("m")[0] for part in told.split("\x1b[")[1:]}
    assert styles <= {"0", "1", "3", "2;3", "1;3"}


def test_errors_and_warnings_hold_no_odd_character():
    for kind in (fg.RecordError, fg.SiteError, fg.PrivacyWarning, fg.InputWarning):
        told = str(kind(f"{HOSTILE}: no."))
        assert dangers(told) == []
        assert "\n" not in told
        assert told.endswith(": no.")
    line = in_one_line("a" * 50_000 + " Remedy.")  # a long line keeps its ends
    assert len(line) < 2_100
    assert line.startswith("aaa")
    assert line.endswith("a Remedy.")


@pytest.mark.parametrize("name", ["fedgauge", "flwr.fedgauge"])
def test_a_log_holds_no_odd_character(name):
    import fedgauge.engines.flower  # noqa: F401

    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        logger.warning("Set aside the reply of %s: %s", HOSTILE, fg.ProtocolError(HOSTILE))
        try:
            raise RuntimeError(HOSTILE)
        except RuntimeError:
            logger.exception("This node does not answer")
    finally:
        logger.removeHandler(handler)
    told = stream.getvalue()
    assert dangers(told) == []
    assert not any(line.startswith(FORGED) for line in told.splitlines()[:1])


def test_pictures_pages_and_notebooks_hold_no_odd_character(tmp_path):
    result = fg.evaluate({"a": draw_client(300, 1)})
    display = RocCurveDisplay.from_evaluation(result, name=HOSTILE).plot()
    shown = [each.get_text() for each in display.ax_.get_legend().get_texts()]
    assert any("VERIFIED" in text for text in shown)
    assert not any(dangers(text) for text in shown)
    other = fg.evaluate({"a": draw_client(300, 2)})
    found = fg.diff(result, other, names=(HOSTILE, "b"))
    assert dangers(found._repr_html_()) == []
    result.to_html(tmp_path / "r.html", name=HOSTILE)
    assert dangers((tmp_path / "r.html").read_text()) == []
