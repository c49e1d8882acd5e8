"""Errors on the command line name options of commands, not names of the library."""

import re

import numpy as np
import pandas as pd
import pytest
from commands import complaint, run

from fedgauge.cli.terminal import as_options

COLUMNS = ["--client", "site", "--label", "y", "--score", "p"]
EVALUATE = ["evaluate", "s.csv", *COLUMNS]
DDP = ["--privacy", "ddp", "--epsilon", 1]
LDP = ["--privacy", "ldp", "--epsilon", 1]
PLAN = ["plan", "--clients", 5]
# Words with underscores, classes and calls; numbers in words of a site file are in parentheses.
OF_THE_LIBRARY = re.compile(r"\b[a-z]+_[a-z_]+\b|[A-Z][a-z]+[A-Z]\w+|\w=[\w'\"(]|\(\d+, \d+\)")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working folder with a table of five clients and a plan without reports."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(0, 2, 500), rng.random(500)
    columns = {"y": labels, "p": scores, "pc": 100 * scores, "site": np.arange(500) % 5}
    pd.DataFrame(columns).to_csv("s.csv", index=False)
    run(*PLAN, "--privacy", "sa", "-o", "sa.toml")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["evaluate", "s.csv", "--label", "y", "--score", "pc"], "Cover them with --range LO HI"),
        ([*EVALUATE, "--range", "nan", 1], "--range takes finite numbers, got"),
        ([*EVALUATE, "--range", 5, 1], "Swap or widen --range."),
        ([*EVALUATE, "--level", 5], "--level must lie"),
        ([*EVALUATE, "--at-precision", 2], "--at-precision must lie"),
        ([*EVALUATE, "--at-fpr", 2], "--at-fpr must lie"),
        ([*EVALUATE, "--estimator", "quantile", "--quantiles", 1], "--quantiles must be"),
        ([*EVALUATE, "--privacy", "ddp", "--epsilon", -1], "--epsilon must be"),
        ([*EVALUATE, *DDP, "--tree", "3x5", "--bins", 64], "--tree 3x5 does not divide 64 bins"),
        ([*EVALUATE, *DDP, "--tree", "0x5"], "such as 16x16"),
        ([*EVALUATE, *DDP, "--max-per-unit", 3], "--max-per-unit is for subjects"),
        ([*EVALUATE, *DDP, "--unit", "client", "--max-per-unit", 0], "--max-per-unit must lie"),
        ([*EVALUATE, *DDP, "--examples", -3], "--examples must be"),
        ([*EVALUATE, *DDP, "--positive-rate", 3], "--positive-rate must lie"),
        ([*EVALUATE, *LDP, "--score-sums"], "Leave out --score-sums."),
        ([*PLAN, *DDP, "--min-survivors", 0], "--min-survivors must be"),
        ([*PLAN, *DDP, "--max-colluding", -1], "--max-colluding cannot be"),
        ([*PLAN, *DDP, "--min-cell", 10], "--min-cell is for exact sums"),
        ([*PLAN, "--privacy", "sa", "--min-cell", 1], "--min-cell must be"),
        ([*PLAN, *DDP, "--not-after", "tomorrow"], "--not-after must be"),
        (["intake", "sa.toml", "s.csv"], "Make one with `fedgauge plan --privacy ldp`."),
    ],
)
def test_options_are_named(command, told):
    line = complaint(run(*command))
    assert told in line
    assert not OF_THE_LIBRARY.search(line)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("plan with min_survivors = 5.", "plan with --min-survivors 5."),
        ("Plan with min_cell = 10.", "Plan with --min-cell 10."),
        ("y_score holds values", "the score column holds values"),
        ("tree (8,) does not", "--tree 8 does not"),
        ("two\n  lines", "two lines"),
        ("the plan costs epsilon 2 (max_epsilon)", "the plan costs epsilon 2 (max_epsilon)"),
        ("site.toml: min_cohort must be at least 3", "site.toml: min_cohort must be at least 3"),
    ],
)
def test_words_of_the_library_become_options(reason, told):
    assert as_options(reason) == told
