"""Commands diff and trend: tables, files, and what is told of mistakes."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import fedgauge as fg
from fedgauge.cli import app


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for n in range(1, 5):
        y = rng.random(3000) < 0.3
        s = 1 / (1 + np.exp(1 - (1.6 if n < 4 else 0.9) * y - rng.normal(size=3000)))
        fg.evaluate({"a": (y, s)}).to_json(tmp_path / f"week-{n}.json")
    return tmp_path


def run(*args):
    return CliRunner().invoke(app, list(map(str, args)), env={"COLUMNS": "120"})


def test_diff_prints_differences_and_what_they_rest_on(folder):
    done = run("diff", folder / "week-4.json", folder / "week-1.json", "--at", 0.5)
    assert done.exit_code == 0, done.output
    assert "week-4 less week-1" in done.output
    assert "recall at 0.5" in done.output
    assert "taken to be of rows of its own" in done.output
    wide = run("diff", folder / "week-4.json", folder / "week-1.json", "--overlapping")
    assert "as wide as can be" in wide.output


def test_diff_of_a_result_with_itself_is_refused(folder):
    done = run("diff", folder / "week-1.json", folder / "week-1.json")
    assert done.exit_code == 2
    assert "same result" in done.stderr


def test_trend_prints_looks_alarms_and_their_rate(folder):
    done = run("trend", folder)
    assert done.exit_code == 0, done.output
    assert "ALARM week-4: ROC AUC" in done.output
    assert "at most 0.05 of series" in done.output


def test_trend_saves_its_numbers_and_overwrites_nothing_else(folder):
    for name in ("t.json", "t.csv"):
        for _ in range(2):  # its own file is written again
            assert run("trend", folder, "-o", folder / name, "--quiet").exit_code == 0
        assert (folder / name).stat().st_size > 1000
    done = run("trend", folder, "-o", folder / "week-1.json")
    assert done.exit_code == 2
    assert "is no trend of fedgauge" in done.stderr
    assert run("trend", folder, "-o", folder / "t.png").exit_code == 2


def test_quiet_still_tells_alarms(folder):
    done = run("trend", folder, "--quiet")
    assert done.stdout == ""
    assert "alarm: week-4" in done.stderr


def test_diff_of_a_result_that_is_not_what_was_signed_fails_after_its_numbers(folder):
    edited = json.loads((folder / "week-1.json").read_text()) | {"proof": 3}
    (folder / "edited.json").write_text(json.dumps(edited))
    done = run("diff", folder / "edited.json", folder / "week-2.json")
    assert done.exit_code == 1
    assert "edited.json is not what was signed" in done.stderr
    assert run("diff", folder / "edited.json", folder / "week-2.json", "-q").exit_code == 1


@pytest.mark.parametrize("command", ["report", "show", "diff", "trend"])
def test_files_that_are_nested_too_deeply_are_named(folder, command):
    deep = folder / "week-5.json"
    deep.write_text('{"format":"fedgauge-evaluation/1","x":' + "[" * 100_000 + "]" * 100_000 + "}")
    named = {"report": [deep, "-o", folder / "r.html"], "show": [deep], "trend": [folder]}
    done = run(command, *named.get(command, [deep, folder / "week-1.json"]))
    assert done.exit_code == 1
    assert "week-5.json: this is not a fedgauge result: it is nested too deeply" in " ".join(
        done.stderr.split()
    )


def test_trend_tells_how_many_looks_are_signed(folder):
    told = " ".join(run("trend", folder, "-o", folder / "t.html").output.split())
    words = "0 of 4 looks signed; nothing shows whether others were edited"
    assert f"signatures: {words}" in told
    assert words in (folder / "t.html").read_text()


def test_a_file_name_is_no_formula_in_a_saved_trend(folder):
    (folder / "week-1.json").rename(folder / "=HYPERLINK(1).json")
    assert run("trend", folder, "-o", folder / "t.csv").exit_code == 0
    looks = {line.split(",")[0] for line in (folder / "t.csv").read_text().splitlines()[1:]}
    assert looks == {"'=HYPERLINK(1)", "week-2", "week-3", "week-4"}


def test_thresholds_in_another_unit_than_scores_are_refused(folder):
    diff = run("diff", folder / "week-1.json", folder / "week-2.json", "--at", 50)
    for done in (diff, run("trend", folder, "--at", 50)):
        assert done.exit_code == 2
        assert "--at 50 lies outside the axis" in done.stderr
