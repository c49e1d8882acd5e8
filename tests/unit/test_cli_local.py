"""Local DP on the command line: evaluate, plan, encode, intake."""

import json
from functools import partial
from pathlib import Path

import commands
import numpy as np
import pytest
from commands import complaint

import fedgauge as fg
from fedgauge.local.messages import ReportFormat

run, worked = (partial(each, columns=160) for each in (commands.run, commands.worked))

COLUMNS = ["--label", "y", "--score", "p"]
LDP = ["--privacy", "ldp", "--epsilon", 4]
SITES = ("a", "b", "c")
ROWS = 3_000


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(6)
    for site in SITES:
        labels = rng.integers(0, 2, ROWS)
        scores = np.clip(rng.normal(0.4 + 0.2 * labels, 0.2), 0, 1)
        rows = "\n".join(f"{y},{p:.6f}" for y, p in zip(labels, scores, strict=True))
        (tmp_path / f"{site}.csv").write_text(f"y,p\n{rows}\n")
    return tmp_path


@pytest.fixture
def plan(folder):
    made = fg.EvaluationPlan.for_reports(fg.Axis.uniform(16, outside="clip"), fg.LocalDP(4.0))
    made.save(folder / "plan.toml")
    return made


with_plan = pytest.mark.usefixtures("plan")


def encode_all():
    for site in SITES:
        done = worked("encode", "plan.toml", f"{site}.csv", *COLUMNS, "-o", f"{site}.fgr")
        assert "epsilon 4" in done.stdout


def test_evaluate_plan_and_explain_under_local_dp():
    done = worked("evaluate", "a.csv", "b.csv", *COLUMNS, *LDP, "--json", "r.json")
    assert "epsilon 4 for one example (replace-one)" in done.stdout
    saved = json.loads(Path("r.json").read_text())
    assert saved["reports"] == 2 * ROWS
    assert saved["privacy"]["model"] == "local-dp"
    assert fg.Evaluation.from_json("r.json").plan.tree == (32,)
    options = ["--bins", 16, "--tree", "4x4", "--oracle", "hadamard", "--seed", 1]
    done = worked("evaluate", "a.csv", *COLUMNS, *LDP, *options, "--json", "r.json")
    plan = fg.Evaluation.from_json("r.json").plan
    assert (plan.tree, plan.privacy) == ((4, 4), fg.LocalDP(4.0, oracle="hadamard"))
    options = ["--clients", 3, "--examples", 9_000, *LDP, "-o", "p.toml"]
    done = worked("plan", *options)
    assert "Sent for each row" in done.stdout
    assert fg.EvaluationPlan.load("p.toml").privacy == fg.LocalDP(4.0)
    assert "One report for each row" in run("explain", "p.toml").stdout


@with_plan
def test_reports_travel_by_files(folder):
    encode_all()
    (folder / "inbox").mkdir()
    for site in SITES:
        (folder / f"{site}.fgr").rename(folder / "inbox" / f"{site}.fgr")
    done = worked("intake", "plan.toml", "inbox", "--json", "r.json")
    assert "Took in 9,000 reports; 9,000 in all" in done.stdout
    assert "each report was randomised" in done.stdout
    result = fg.Evaluation.from_json("r.json")
    assert result.reports == 3 * ROWS
    assert abs(result.roc_auc.value - 0.76) < 0.1
    twice = run("intake", "plan.toml", "inbox/a.fgr", "inbox/a.fgr", "--state", "other")
    assert "Took in 3,000 reports" in twice.stdout
    again = run("intake", "plan.toml", "inbox")
    assert "Took in 0 reports; 9,000 in all; refused so far: duplicate: 9,000" in again.stdout


def test_reports_under_ids_of_others_keep_nobody_out_and_are_told(plan, folder):
    encode_all()
    form = ReportFormat(plan)
    with (folder / "a.fgr").open("rb") as file:
        ((honest,),) = map(form.read, form.split(file))
    (folder / "b.fgr").write_bytes(form.write([honest._replace(payloads=honest.payloads ^ 1)]))
    done = run("intake", "plan.toml", "b.fgr", "a.fgr")  # which was slower
    assert done.exit_code == 0
    assert f"Took in {2 * ROWS:,} reports; {2 * ROWS:,} in all\n" in done.stdout
    told = "fedgauge: warning: 3,000 reports came with the id of another report and other contents."
    assert done.stderr.startswith(told)
    assert run("intake", "plan.toml", "a.fgr").stderr == done.stderr  # as long as they count


def test_a_cut_and_a_foreign_file_are_refused_and_counted(plan, folder):
    encode_all()
    whole = (folder / "b.fgr").read_bytes()
    (folder / "b.fgr").write_bytes(whole[:-100])
    other = fg.EvaluationPlan.for_reports(plan.axis, fg.LocalDP(3.0))
    (folder / "c.fgr").write_bytes(next(fg.encode_rows(other, ([0, 1], [0.2, 0.9]))))
    done = run("intake", "plan.toml", "a.fgr", "b.fgr", "c.fgr")
    assert done.exit_code == 1
    assert "3,000 in all" in done.stdout
    assert "of another plan: 1, wrong length: 1" in done.stdout
    assert done.stderr.splitlines() == [
        "fedgauge: warning: b.fgr: 1 message refused: wrong length. The file is incomplete: copy "
        "the whole file again. 0 reports of the file were taken in.",
        "fedgauge: warning: c.fgr: 1 message refused: of another plan. Name the plan that the "
        "reports were made with. 0 reports of the file were taken in.",
    ]
    (folder / "b.fgr").write_bytes(whole)
    again = run("intake", "plan.toml", "a.fgr", "b.fgr")
    assert (again.exit_code, again.stderr) == (0, "")  # what came before is no fault


@with_plan
def test_broken_rows_are_reported_and_told(folder):
    encode_all()
    clean = (folder / "a.csv").read_text().splitlines()
    (folder / "odd.csv").write_text("\n".join([*clean[:-2], "7,0.5", "1,SECRET123"]) + "\n")
    done = worked("encode", "plan.toml", "odd.csv", *COLUMNS, "-o", "odd.fgr", "--quiet")
    assert (folder / "odd.fgr").stat().st_size == (folder / "a.fgr").stat().st_size
    assert done.stderr.splitlines() == [
        f"fedgauge: warning: odd.csv: 1 of {ROWS:,} scores are missing, infinite or no numbers: "
        "counted in an end bin.",
        f"fedgauge: warning: odd.csv: 1 of {ROWS:,} labels are neither the positive label nor one "
        "other: counted as negative.",
    ]


@with_plan
def test_what_makes_no_reports_is_told(folder):
    sums = fg.EvaluationPlan.for_histogram(fg.Axis.uniform(16, outside="clip"), fg.Cohort(3))
    sums.save(folder / "sums.toml")
    told = complaint(run("encode", "sums.toml", "a.csv", *COLUMNS, "-o", "a.fgr"))
    assert "not for local reports" in told
    assert not (folder / "a.fgr").exists()
    assert "not for local reports" in complaint(run("intake", "sums.toml", "a.csv"))
    assert "there is no nowhere" in complaint(run("intake", "plan.toml", "nowhere"))


@with_plan
def test_reports_of_scores_in_percent_have_a_caution():
    for site in SITES:
        table = np.loadtxt(f"{site}.csv", delimiter=",", skiprows=1)
        rows = "\n".join(f"{y:.0f},{100 * p:.6f}" for y, p in table)
        Path(f"{site}.csv").write_text(f"y,p\n{rows}\n")
    encode_all()
    printed = run("intake", "plan.toml", ".").stdout
    assert "\ncaution            the last bin of the axis" in printed
    quiet = run("intake", "plan.toml", ".", "-q")
    assert (quiet.exit_code, quiet.stdout) == (0, "")
    assert quiet.stderr.startswith("fedgauge: warning: the last bin of the axis")


@with_plan
def test_the_number_of_reports_is_public_and_not_about():
    encode_all()
    printed = run("intake", "plan.toml", ".").stdout
    assert f"\n{3 * ROWS:,} reports, about " in printed
    assert f"about {3 * ROWS:,}" not in printed
    simulated = run("evaluate", "a.csv", "b.csv", *COLUMNS, *LDP).stdout
    assert simulated.startswith(f"2 clients, {2 * ROWS:,} reports, about ")
    hidden = run("evaluate", "a.csv", *COLUMNS, *LDP[:2], "--epsilon", 0.01, "--json", "r.json")
    assert hidden.exit_code == 2
    shown = str(fg.Evaluation.from_json("r.json"))
    assert shown.startswith(f"1 client, {ROWS:,} reports; noise hides the number of ")


def test_reports_about_models_are_made_and_taken_in():
    task = fg.BinaryTask(models=("new", "old"))
    axis = fg.Axis.uniform(8, outside="clip")
    plan = fg.EvaluationPlan.for_reports(axis, fg.LocalDP(4.0), task=task)
    plan.save(Path("plan.toml"))
    first, *rows = Path("a.csv").read_text().split()
    Path("a.csv").write_text("\n".join([f"{first},p2", *(f"{row},0.5" for row in rows)]))
    columns = ["--label", "y", "--model-score", "new=p", "--model-score", "old=p2"]
    worked("encode", "plan.toml", "a.csv", *columns, "-o", "a.fgr")
    done = worked("intake", "plan.toml", "a.fgr", "--json", "r.json")
    assert f"Took in {ROWS:,} reports" in done.stdout
    new = fg.Evaluation.from_json("r.json").select(model="new")
    assert (new.reports, new.examples) == (ROWS, ROWS)


def test_reports_of_slices_name_columns_by_the_plan(folder):
    task = fg.MulticlassTask(labels=["cat", "dog"], groups={"sex": ["women", "men"]})
    axis = fg.Axis.uniform(8, outside="clip")
    fg.EvaluationPlan.for_reports(axis, fg.LocalDP(8.0), task=task).save("slices.toml")
    kinds = [("cat", 0.8, 0.2, "women"), ("dog", 0.1, 0.9, "F")] * 100
    lines = [",".join(map(str, row)) for row in kinds]
    (folder / "pets.csv").write_text("\n".join(["kind,p1,p2,gender", *lines]))
    named = ["encode", "slices.toml", "pets.csv", "--label", "kind", "-o", "pets.fgr"]
    scores = ["--class-scores", "dog=p2,cat=p1"]
    told = complaint(run(*named, *scores))
    assert "groups by sex, and there is no column of that name. Name it: --group sex=" in told
    assert "--class-scores cat=COLUMN" in complaint(run(*named, "--group", "sex=gender"))
    done = worked(*named, *scores, "--group", "sex=gender")
    assert "Counted 200 rows: of classes cat (100), dog (100), 0 scores" in done.stdout
    assert "; by sex: women (100), men (0), other (100)\n" in done.stdout
    assert "100 of 200 rows are of no listed group of sex, and none are of men" in done.stderr
    assert run("intake", "slices.toml", "pets.fgr").exit_code == 0


def test_a_second_plan_is_explained_and_its_intake_goes_on(folder):
    two = fg.TwoRound(4, coarse=fg.Axis.uniform(8, outside="clip"))
    first = fg.EvaluationPlan.for_reports(two, fg.LocalDP(4.0))
    first.save(folder / "two.toml")
    with fg.ReportServer(first, folder / "intake") as server:
        server.accept_all(fg.encode_rows(first, ([0, 1] * 500, [0.2, 0.7] * 500), secret=bytes(32)))
    worked("site", "init", "boss", "--name", "boss", "--dataset", "none")
    for _ in range(2):  # the same again
        done = worked("find-bins", "two.toml", "--site", "boss/site.toml", "-o", "second.json")
        assert "The first round is closed." in done.stdout
    said = run("explain", "second.json").stdout
    assert "Each row is reported in one of two rounds: 10% of them" in said
    assert "follow from the estimates of the first" in said
    (folder / "none.fgr").write_bytes(b"")
    assert "This round is closed" in run("intake", "two.toml", "none.fgr").stdout
