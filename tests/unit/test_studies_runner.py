"""Studies: figures that hang on seeds alone, and runs that can be stopped and gone on with."""

import csv
import dataclasses
import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import dice
import numpy as np
import pytest

import runner

ROOT = Path(__file__).parents[2]
LOG = "dice.cells.jsonl"


@pytest.fixture(autouse=True)
def seen(tmp_path, monkeypatch):
    """The cells that workers started, one in a line."""
    path = tmp_path / "seen"
    monkeypatch.setenv("DICE_SEEN", str(path))
    for name in runner.THREADS:  # which a run sets to 1, for workers to find
        monkeypatch.setenv(name, "2")
    return lambda: sorted(path.read_text().splitlines()) if path.exists() else []


def run(folder, *options):
    return runner.main(dice.STUDY, ["--out", str(folder), "--workers", "1", *options])


def figures(folder):
    cells = json.loads((folder / "dice.json").read_bytes())["cells"]
    return {tuple(each["cell"].values()): each["values"]["mean"] for each in cells}


def test_figures_hang_neither_on_order_nor_on_workers_nor_on_which_cells_run(tmp_path):
    assert run(tmp_path / "one") == 0
    assert run(tmp_path / "two", "--workers", "2") == 0
    assert run(tmp_path / "some", "--only", "sides=6") == 0
    everything = figures(tmp_path / "one")
    assert len(everything) == 6
    assert figures(tmp_path / "two") == everything
    some = figures(tmp_path / "some")
    assert some == {cell: mean for cell, mean in everything.items() if cell[0] == 6}


def test_figures_are_those_of_seeds_that_differ(tmp_path):
    run(tmp_path, "--quick")
    for cell, mean in figures(tmp_path).items():
        die = dice.Die(*cell)
        rng = np.random.default_rng(runner.seed_of("dice", die, 1))
        assert dice.run(die, rng, 5)["mean"] == mean
    cells = dice.CELLS
    seeds = {runner.seed_of(s, cell, n) for s in ("dice", "coin") for cell in cells for n in (1, 2)}
    assert len(seeds) == 4 * len(cells)
    # Kept figures are those of such seeds: they must not change by themselves.
    assert runner.seed_of("dice", dice.Die(6, False), 1) % 10**9 == 514_827_911


def test_the_same_command_runs_nothing_twice(tmp_path, seen, capsys):
    run(tmp_path)
    before, first = (tmp_path / "dice.csv").read_bytes(), capsys.readouterr().out
    assert "nan of 50" in first
    run(tmp_path)
    assert len(seen()) == 6
    again = capsys.readouterr().out
    assert "6 of 6 cells are in" in again
    assert again.endswith(first)
    assert (tmp_path / "dice.csv").read_bytes() == before


@pytest.mark.parametrize("other", [["--seed", "2"], ["--runs", "49"], ["--fresh"]])
def test_another_seed_or_number_of_runs_and_fresh_run_again(tmp_path, seen, other):
    run(tmp_path, "--quick", "--runs", "50")
    run(tmp_path, "--quick", "--runs", "50", *other)
    assert len(seen()) == 4


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path, seen, stop):
    script = [sys.executable, str(ROOT / "tests" / "support" / "dice.py")]
    options = ["--out", str(tmp_path), "--workers", "1"]
    paths = os.pathsep.join([str(ROOT / "studies"), *sys.path])
    environment = os.environ | {"PYTHONPATH": paths, "DICE_WAIT": "6"}
    process = subprocess.Popen(
        [*script, *options],
        env=environment,
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    log = tmp_path / LOG
    while len(seen()) < 3 or log.read_bytes().count(b"\n") < 2:  # the third never ends
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    if stop == signal.SIGKILL:
        process.kill()
    else:
        os.killpg(process.pid, stop)  # a terminal tells the workers too
    _, said = process.communicate(timeout=120)  # which ends when no worker is left to write
    assert process.returncode == (-9 if stop == signal.SIGKILL else 130)
    assert ("the same command goes on" in said) == (stop == signal.SIGINT)
    del environment["DICE_WAIT"]
    subprocess.run([*script, *options], env=environment, check=True, stdout=subprocess.DEVNULL)
    assert seen() == sorted(f"{die.sides} {die.loaded}" for die in [*dice.CELLS, dice.CELLS[2]])


def test_a_log_with_a_line_unfinished_goes_on_and_one_that_is_none_is_refused(tmp_path, seen):
    run(tmp_path)
    log, before = tmp_path / LOG, figures(tmp_path)
    log.write_bytes(log.read_bytes()[:-30])
    assert run(tmp_path) == 0
    assert len(seen()) == 7
    assert figures(tmp_path) == before
    for line in log.read_bytes().splitlines():
        json.loads(line)
    run(tmp_path, "--quick")
    log = tmp_path / LOG
    log.write_bytes(b"mean 3.5\n" + log.read_bytes())
    with pytest.raises(SystemExit, match="line 1 is no record"):
        run(tmp_path)


@pytest.mark.parametrize("name", ["code", "numpy", "fedgauge"])
def test_figures_of_other_versions_are_not_used_and_that_is_said(
    tmp_path, seen, capsys, monkeypatch, name
):
    run(tmp_path, "--quick")
    real = runner.versions_of
    monkeypatch.setattr(runner, "versions_of", lambda study: real(study) | {name: "other"})
    run(tmp_path, "--quick")
    assert len(seen()) == 4
    assert "2 cells were measured by other versions; not used" in capsys.readouterr().out
    kept = json.loads((tmp_path / "dice.json").read_bytes())["cells"]
    assert {each["versions"][name] for each in kept} == {"other"}


def test_two_runs_at_once_are_refused(tmp_path):
    from fedgauge.errors import LedgerError
    from fedgauge.storage import locked

    with (
        locked(tmp_path / "dice.cells.lock"),
        pytest.raises(LedgerError, match="another process holds"),
    ):
        run(tmp_path)


def test_a_cell_that_fails_is_named_and_loses_no_other(tmp_path, seen, capfd, monkeypatch):
    monkeypatch.setenv("DICE_FAIL", "6")
    assert run(tmp_path) == 2
    said = capfd.readouterr().err
    assert "failed: sides=6, loaded=False: ValueError" in said
    assert "failed: sides=6, loaded=True: ValueError" in said
    assert said.count("Traceback (most recent call last)") == 1  # one is enough to see why
    assert len(figures(tmp_path)) == 4
    monkeypatch.delenv("DICE_FAIL")
    assert run(tmp_path) == 0
    assert len(seen()) == 8


def test_what_does_not_hold_is_told_by_the_exit_code(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("DICE_LEAST", "5")
    assert run(tmp_path) == 1
    said = capsys.readouterr().out
    assert "holds: 20 sides; " in said
    assert "DOES NOT HOLD: 2 sides; " in said


def test_a_study_that_draws_does_so_in_the_folder_of_results(tmp_path):
    def draw(found, folder):
        (folder / "dice.png").write_text(f"{len(found)} dice")

    study = dataclasses.replace(dice.STUDY, draw=draw)
    assert runner.main(study, ["--out", str(tmp_path), "--workers", "1", "--quick"]) == 0
    assert (tmp_path / "dice.png").read_text() == "2 dice"


def test_a_bar_is_drawn_where_somebody_looks(tmp_path, capsys, monkeypatch):
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    run(tmp_path / "file", "--quick")
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # Rich then takes it for a terminal
    run(tmp_path / "terminal", "--quick")
    assert "dice" in capsys.readouterr().err


def test_quick_has_fewer_cells_and_runs_and_only_lists_some(tmp_path, capsys):
    assert run(tmp_path, "--list", "--only", "sides=2*True") == 0
    assert capsys.readouterr().out == "sides=2, loaded=True\nsides=20, loaded=True\n"
    assert run(tmp_path, "--only", "sides=7") == 2
    assert capsys.readouterr().out == "no such cell\n"
    assert not list(tmp_path.glob("dice*"))
    assert run(tmp_path, "--quick") == 0
    assert set(figures(tmp_path)) == {(2, False), (2, True)}
    assert " of 5" in capsys.readouterr().out
    assert run(tmp_path, "--quick", "--runs", "7") == 0
    assert " of 7" in capsys.readouterr().out


def test_json_and_csv_say_what_was_measured_by_what_and_not_where(tmp_path):
    run(tmp_path, "--quick", "--seed", "3")
    (first, _) = json.loads((tmp_path / "dice.json").read_bytes())["cells"]
    assert first["cell"] == {"sides": 2, "loaded": False}
    assert (first["seed"], first["runs"]) == (3, 5)
    assert set(first["versions"]) == {"fedgauge", "code", "numpy", "scipy", "python", "platform"}
    assert first["versions"]["numpy"] == np.__version__
    assert first["values"]["threads"] == 1.0
    assert first["values"]["odd"] is None  # not a number
    with (tmp_path / "dice.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6
    assert rows[0].items() >= {"study": "dice", "sides": "2", "seed": "3", "runs": "5"}.items()
    assert rows[0].items() >= {"measure": "mean", "value": str(first["values"]["mean"])}.items()
    assert rows[0]["code"] == first["versions"]["code"]
    assert rows[2]["value"] == ""
    run(tmp_path, "--quick")
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("dice*"))
    assert str(ROOT).encode() not in kept
    assert platform.node().encode() not in kept


def test_the_code_of_a_study_is_part_of_its_version(monkeypatch, tmp_path):
    before = runner.versions_of(dice.STUDY)["code"]
    assert runner.versions_of(dice.STUDY)["code"] == before
    other = tmp_path / "dice.py"
    other.write_bytes(Path(dice.__file__).read_bytes() + b"\n")
    monkeypatch.setattr(runner.inspect, "getfile", lambda _: str(other))
    assert runner.versions_of(dice.STUDY)["code"] != before
