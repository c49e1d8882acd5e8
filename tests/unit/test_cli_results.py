"""Commands that print results: thresholds asked for, saved results, wrong requests."""

import json
import re
from functools import partial

import commands
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import precision_score, recall_score

import fedgauge as fg

run = partial(commands.run, columns=80)

RNG = np.random.default_rng(3)
LABELS = (RNG.random(2000) < 0.3).astype(int)
SCORES = np.clip(RNG.normal(0.35 + 0.3 * LABELS, 0.15), 0, 1)
SCORES_FILE = ["scores.parquet", "--client", "site", "--label", "y", "--score", "p"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sites = [f"s{i % 3}" for i in range(len(LABELS))]
    pq.write_table(pa.table({"y": LABELS, "p": SCORES, "site": sites}), "scores.parquet")
    return tmp_path


@pytest.fixture
def saved(folder):
    assert run("evaluate", *SCORES_FILE, "--json", "r.json").exit_code == 0
    return folder / "r.json"


def row(text, title):
    """The line of a table that starts with the title, without it."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"{title}  ")]
    return line.removeprefix(title).strip()


def test_metrics_at_a_threshold_are_those_of_pooled_data():
    printed = run("evaluate", *SCORES_FILE, "--at", 0.5).stdout
    flagged = SCORES >= 0.5
    assert row(printed, "precision").startswith(f"{precision_score(LABELS, flagged):.4f}  ")
    assert row(printed, "recall").startswith(f"{recall_score(LABELS, flagged):.4f}  ")
    assert row(printed, "true positives") == str(int((flagged & (LABELS == 1)).sum()))
    assert "95% interval" in printed


def test_thresholds_by_what_they_do_and_how_many_fit_a_line():
    wanted = ["--at-fpr", 0.05, "--at-recall", 0.9, "--at-precision", 0.8, "--at", 0.25]
    printed = run("evaluate", *SCORES_FILE, *wanted).stdout
    for reason in ("fpr <= 0.05", "recall >= 0.9", "precision >= 0.8", "at 0.25"):
        assert reason in printed
    assert max(map(len, printed.split("\n\n", 1)[1].splitlines())) <= 80
    assert printed.count("specificity") == 2


def test_show_gives_what_evaluate_gave(saved):
    first = run("evaluate", *SCORES_FILE, "--at", 0.5).stdout
    again = run("show", saved, "--at", 0.5).stdout
    verdict, table = first.split("\n\n", 1)
    assert again.startswith(verdict)
    assert table.strip() in again
    for title in ("ROC AUC", "log loss", "Brier score", "KS distance", "PR-gain area"):
        assert re.search(rf"^{title}\s+\d\.\d{{4}}\s+\d\.\d{{4}} to \d\.\d{{4}}", again, re.M)


def test_level_narrows_the_intervals(saved):
    auc = fg.Evaluation.from_json(saved).at_level(0.8).roc_auc
    printed = run("show", saved, "--level", 0.8).stdout
    assert f"({auc.low:.4f} to {auc.high:.4f} at 80%)" in printed
    assert "population, 80%" in printed


def test_level_is_saved_with_the_result(folder):
    run("evaluate", *SCORES_FILE, "--level", 0.9, "--json", "r.json")
    assert (
        json.loads((folder / "r.json").read_text())["slices"][0]["metrics"]["roc_auc"]["level"]
        == 0.9
    )
    assert "at 90%" in run("show", "r.json").stdout


def test_show_saves_plots(saved, folder):
    assert run("show", saved, "--plots", "plots", "--quiet").stdout == ""
    assert {path.name for path in (folder / "plots").iterdir()} >= {"roc.png", "pr.png"}


def test_between_edges_it_is_said():
    coarse = [*SCORES_FILE, "--bins", 10]
    assert "divides a bin" in run("evaluate", *coarse, "--at", 0.55).stdout
    assert "divides a bin" not in run("evaluate", *coarse, "--at", 0.5).stdout


def test_undefined_metrics_are_named_as_such(saved):
    printed = run("show", saved, "--at", 2).stdout
    assert row(printed, "precision") == "undefined"
    assert row(printed, "recall").startswith("0.0000")


def test_scores_that_are_no_probabilities_have_no_losses():
    table = pa.table({"y": LABELS, "p": SCORES * 10 - 5, "site": ["a"] * len(LABELS)})
    pq.write_table(table, "scores.parquet")
    run("evaluate", *SCORES_FILE, "--range", -5, 5, "--json", "r.json")
    printed = run("show", "r.json").stdout
    assert row(printed, "log loss") == "undefined"
    auc = fg.evaluate({"a": (LABELS, SCORES)}).roc_auc.value
    assert row(printed, "KS distance").startswith("0.")
    assert re.search(rf"^ROC AUC +{auc:.4f} ", printed, re.M)


@pytest.mark.parametrize(
    ("options", "code", "remedy"),
    [
        (["nothing.json"], 1, "cannot read"),
        (["r.json", "--at", "nan"], 2, "must be a number"),
        (["r.json", "--at-fpr", "2"], 2, "between 0 and 1"),
        (["r.json", "--level", "95"], 2, "such as 0.95"),
        (["scores.parquet"], 1, "not a fedgauge result"),
    ],
    ids=["missing", "nan", "rate", "level", "other file"],
)
@pytest.mark.usefixtures("saved")
def test_wrong_requests_are_told_in_one_line(options, code, remedy):
    result = run("show", *options)
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr.startswith("fedgauge: ")
    assert result.stderr.count("\n") == 1
    assert remedy in result.stderr


def test_a_precision_out_of_reach_names_the_highest():
    noise = pa.table({"y": LABELS, "p": RNG.random(len(LABELS)), "site": ["a"] * len(LABELS)})
    pq.write_table(noise, "scores.parquet")
    result = run("evaluate", *SCORES_FILE, "--bins", 4, "--at-precision", 0.99)
    assert result.exit_code == 2
    assert "the highest at a bin edge is 0.3" in result.stderr
