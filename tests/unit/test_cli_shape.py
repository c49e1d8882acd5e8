"""Commands as they are written: short, and with help that shows first what most need."""

import ast
import re
from pathlib import Path

import pytest
from commands import run

import fedgauge.cli

FILES = sorted(Path(fedgauge.cli.__file__).parent.glob("*.py"))
MOST = 60  # lines of a command: decorators aside, signature and docstring included
FIRST = ["demo", "evaluate", "show", "report", "plan"]
USUAL = [
    *("label", "score", "client", "positive", "privacy"),
    *("epsilon", "at", "json", "html", "quiet"),
]


def is_command(function):
    return any(
        isinstance(each, ast.Call) and getattr(each.func, "id", "") == "command"
        for each in function.decorator_list
    )


def test_commands_are_short():
    sizes = {
        f"{file.name}: {each.name}": each.end_lineno - each.lineno + 1
        for file in FILES
        for each in ast.walk(ast.parse(file.read_text()))
        if isinstance(each, ast.FunctionDef) and is_command(each)
    }
    assert len(sizes) >= 40
    assert {name: size for name, size in sizes.items() if size > MOST} == {}


def panels(*command, columns):
    found = {}
    for line in run(*command, "--help", columns=columns).stdout.splitlines():
        assert len(line) <= columns
        title = re.match(r"╭─ (.+?) ─+╮", line)
        if title:
            found[title[1]] = []
        elif line.startswith("│") and found:
            found[list(found)[-1]].append(line.strip("│ "))
    return found


@pytest.mark.parametrize("columns", [80, 120])
def test_help_shows_first_what_beginners_need(columns):
    shown = panels(columns=columns)
    assert list(shown)[:2] == ["Options", "Start here"]
    names = [row.split()[0] for row in shown["Start here"] if not row.startswith(" ")]
    assert [name for name in names if name in FIRST] == FIRST
    shown = panels("evaluate", columns=columns)
    assert list(shown)[:2] == ["Arguments", "Options"]
    named = [re.search(r"--([a-z-]+)", row) for row in shown["Options"]]
    options = [each[1] for each in named if each and each.string.startswith(("-", "*"))]
    assert options == [*USUAL, "help"]
    assert len(shown) == 8


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("fedgauge evaluate", "Such as: fedgauge evaluate scores.parquet"),
        ("fedgauge show", "Such as: fedgauge show r.json."),
        ("fedgauge show none.json", "cannot read none.json: there is no such file"),
        ("fedgauge site", ""),
        ("fedgauge ledger", ""),
    ],
)
def test_what_cannot_be_done_says_what_to_type_and_ends_with_2(typed, told, shell, tmp_path):
    done = shell(typed, tmp_path)
    assert done.returncode == 2
    assert told in done.stderr
    assert bool(told) == ("Usage" not in done.stdout)


def test_shells_can_complete(shell, tmp_path):
    for words, found in (("fedgauge ev", "evaluate"), ("fedgauge evaluate --at-f", "--at-fpr")):
        asked = {"_FEDGAUGE_COMPLETE": "complete_bash", "COMP_WORDS": words}
        done = shell("fedgauge", tmp_path, COMP_CWORD=str(words.count(" ")), **asked)
        assert done.stdout.split() == [found]
