"""The commands calibrate and apply, and a map in evaluate and plan."""

import csv
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import complaint, run, words, worked
from rows import draw_log_odds, split

import fedgauge as fg
from fedgauge.histograms.calibrator import Beta

IN_SAMPLE = "in-sample: on the rows it was fitted to"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Overconfident scores of three sites, other rows of the same kind, a result and a map."""
    monkeypatch.chdir(tmp_path)
    for name, seed in (("scores", 1), ("others", 2)):
        labels, scores = draw_log_odds(6000, 0.3, seed, apart=3.0, deviation=3.0, low=-2.0)
        rows = "".join(f"{y},{p!r}\n" for y, p in zip(labels, scores.tolist(), strict=True))
        Path(f"{name}.csv").write_text("y,p\n" + rows)
    fg.evaluate(split(labels, scores, 3)).to_json("result.json")
    fg.Calibrator("platt", Beta(0.5, 0.5, -0.3)).to_json("map.json")
    return tmp_path


def test_what_was_fitted_is_told():
    done = worked("calibrate", "result.json", "-o", "new.json")
    told = words(done.stdout)
    assert "Map auto (" in told
    assert "about 6,000 examples" in told
    assert IN_SAMPLE in told
    before, after = map(float, re.search(r"Log loss ([\d.]+) ([\d.]+)", told).groups())
    result, made = fg.Evaluation.from_json("result.json"), fg.Calibrator.from_json("new.json")
    assert before == round(result.log_loss.value, 4)
    assert after == round(result.with_calibrator(made).log_loss.value, 4) < before
    assert re.search(r"ECE 0\.\d{4} 0\.\d{4}", told)
    assert "Saved new.json" in told
    assert made == result.calibrator("auto")


def test_the_next_commands_run_as_printed():
    told = run("calibrate", "result.json", "-o", "new.json").stdout
    commands = re.findall(r"^.*: fedgauge (.*)$", told, flags=re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["apply", "evaluate", "show"]
    for command in commands:
        assert run(*command.split()).exit_code == 0
    assert Path("calibrated.csv").exists()


def test_a_map_over_a_map_is_told():
    """Numbers of a score that was mapped twice look like those of a poor map."""
    columns = ("--label", "y", "--score", "p", "--calibrator", "map.json", "--json", "mapped.json")
    assert run("evaluate", "others.csv", *columns).exit_code == 0
    told = run("show", "mapped.json", "--calibrator", "map.json").stderr
    assert "mapped.json has scores that were mapped (platt)" in told
    assert "leave out --calibrator" in told
    read = fg.Evaluation.from_json("result.json")
    read.with_calibrator(fg.Calibrator.from_json("map.json")).to_json("read.json")
    told = run("calibrate", "mapped.json", "-o", "new.json").stderr
    assert "mapped.json is of scores that went through a map (platt)" in told
    refused = run("calibrate", "read.json", "-o", "newer.json")
    assert refused.exit_code == 2
    assert "Name the file of the result as it was counted" in refused.stderr


def test_quiet_says_nothing_but_cautions_and_a_map_that_falls_has_no_next_command(monkeypatch):
    calibrate = ["calibrate", "result.json", "-o", "new.json"]
    assert run(*calibrate, "-q").output == ""
    assert run("apply", "map.json", "scores.csv", "--score", "p", "-o", "c.csv", "-q").output == ""
    fitted = fg.histograms.calibrator.Fitted(9, 1, "exact sum", caution="there is little to fit")
    made = fg.Calibrator("auto", Beta(1, 1, 0), fitted)
    monkeypatch.setattr(fg.Evaluation, "calibrator", lambda *_: made)
    assert "warning: there is little to fit" in run(*calibrate, "-q").stderr
    falls = fg.Calibrator("bbq", fg.histograms.calibrator.Steps([0.5], [0.4, 0.3]))
    monkeypatch.setattr(fg.Evaluation, "calibrator", lambda *_: falls)
    told = run(*calibrate).stdout
    assert "changed: the map falls" in told
    assert "fedgauge evaluate" not in told


def test_a_map_is_written_over_another_map_alone():
    assert run("calibrate", "result.json", "-o", "map.json").exit_code == 0
    before = Path("result.json").read_bytes()
    assert "is no map" in complaint(run("calibrate", "result.json", "-o", "result.json"))
    assert Path("result.json").read_bytes() == before


def test_apply_adds_a_column():
    done = worked("apply", "map.json", "scores.csv", "--score", "p", "-o", "c.csv")
    assert "Saved c.csv: 6,000 rows, column 'p_calibrated'" in words(done.stdout)
    with open("c.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["y", "p", "p_calibrated"]
    expected = fg.Calibrator.from_json("map.json").transform([float(row["p"]) for row in rows])
    np.testing.assert_array_equal([float(row["p_calibrated"]) for row in rows], expected)
    without = [line.rpartition(",")[0] for line in Path("c.csv").read_text().splitlines()]
    assert without == Path("scores.csv").read_text().splitlines()


def test_apply_adds_a_column_of_any_name_or_replaces_one():
    apply = ("apply", "map.json", "scores.csv", "--score", "p")
    assert run(*apply, "--column-out", "q", "-o", "a.csv").exit_code == 0
    assert Path("a.csv").read_text().startswith("y,p,q\n")
    done = run(*apply, "--replace", "-o", "b.csv")
    assert "column 'p'" in done.stdout
    assert Path("b.csv").read_text().startswith("y,p\n")
    assert Path("b.csv").read_text() != Path("scores.csv").read_text()
    pq.write_table(pa.table({"p": [0.1, 0.9], "who": ["a", "b"]}), "s.parquet")
    assert run("apply", "map.json", "s.parquet", "--score", "p", "-o", "c.parquet").exit_code == 0
    assert pq.read_table("c.parquet").column_names == ["p", "who", "p_calibrated"]


def test_evaluate_maps_before_it_counts():
    assert run("apply", "map.json", "scores.csv", "--score", "p", "-o", "c.csv").exit_code == 0
    apart = ["evaluate", "c.csv", "--label", "y", "--score", "p_calibrated"]
    at_once = ["evaluate", "scores.csv", "--label", "y", "--score", "p", "--calibrator", "map.json"]
    told = [run(*each, "--json", f"{n}.json") for n, each in enumerate((apart, at_once))]
    assert [done.exit_code for done in told] == [0, 0]
    a, b = (fg.Evaluation.from_json(f"{n}.json") for n in range(2))
    assert a.record.slices == b.record.slices
    assert "of scores through a map (platt)" in words(told[1].stdout)


def test_a_plan_says_its_map_and_when_it_is_too_steep_for_exact_sums():
    options = ["--clients", 4, "--examples", 6000, "--epsilon", 1]
    done = run("plan", *options, "--calibrator", "map.json", "-o", "plan.toml")
    told = "Map scores go through platt (a smooth curve of three numbers) first"
    assert told in words(done.stdout)
    assert "What scores go through first" in run("explain", "plan.toml").stdout
    assert fg.EvaluationPlan.load("plan.toml").calibrator.method == "platt"
    said = ["--label", "y", "--score", "p", "--plan", "plan.toml", "--calibrator", "map.json"]
    told = "plan.toml says it: leave out --calibrator"
    assert told in complaint(run("evaluate", "scores.csv", *said))
    fg.Calibrator("platt", Beta(3, 3, 0)).to_json("steep.json")
    for more, steep in (
        (["--calibrator", "steep.json", "--bins", 64], True),
        (["--calibrator", "steep.json", "--bins", 8], False),
        (["--calibrator", "map.json", "--bins", 16], False),
        (["--bins", 256], False),
    ):
        done = worked("plan", "--clients", 4, "--examples", 60000, "--privacy", "sa", *more)
        assert ("bins of mapped scores are as narrow as" in words(done.stderr)) == steep


@pytest.mark.parametrize("command", ["calibrate", "apply"])
def test_examples_of_the_help_run(command):
    pq.write_table(pa.table({"p": [0.1, 0.9]}), "scores.parquet")
    text = words(run(command, "--help").stdout)
    examples = re.findall(rf"fedgauge ({command} \S+ .*?)(?= fedgauge| Arguments)", text)
    assert len(examples) == 2
    for example in examples:
        worked(*example.split())
