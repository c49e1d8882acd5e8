"""The command line: exit codes, one-line errors with a remedy, clean output, files that parse."""

import gzip
import json
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from commands import complaint, run, words
from matplotlib.image import imread
from messy import write_messy
from scipy import special

import fedgauge as fg
from fedgauge import cli, demo
from fedgauge.cli import terminal
from fedgauge.cli.terminal import as_options
from fedgauge.histograms.calibrator import Beta
from fedgauge.metrics.areas import digamma
from fedgauge.plots.figures import NAMES

COLUMNS = ["--label", "y", "--score", "p"]
SLICED = ("largest gap in", "new less old", "macro average")  # by groups, models and classes


def make_table(rows=300, seed=6):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, rows)
    scores = np.clip(rng.normal(0.4 + 0.2 * labels, 0.2), 0, 1)
    return pa.table({"y": labels, "p": scores, "site": [f"s{i % 4}" for i in range(rows)]})


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """One table, and the same rows as one CSV file for each site; five clients, and a plan."""
    monkeypatch.chdir(tmp_path)
    table = make_table()
    pq.write_table(table, "scores.parquet")
    site = np.asarray(table["site"].to_pylist())
    for name in np.unique(site):
        table.filter(site == name).to_pandas().to_csv(f"site-{name}.csv", index=False)
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(0, 2, 500), rng.random(500)
    columns = {"y": labels, "p": scores, "pc": 100 * scores, "site": np.arange(500) % 5}
    pd.DataFrame(columns).to_csv("s.csv", index=False)
    run(*PLAN, "--privacy", "sa", "-o", "sa.toml")
    return tmp_path


def evaluate(*arguments):
    return run("evaluate", *arguments, *COLUMNS)


def test_evaluate_prints_the_verdict():
    result = evaluate("scores.parquet", "--client", "site")
    table = make_table()
    expected = fg.evaluate(fg.ScoreTable(["scores.parquet"], client="site", label="y", score="p"))
    assert result.exit_code == 0
    assert result.stderr == ""
    assert result.stdout == f"{expected}\n"
    assert result.stdout.startswith(f"4 clients, {table.num_rows} examples, ")


def test_clients_come_from_files_or_from_a_column(folder):
    files = sorted(folder.glob("site-*.csv"))
    assert len(files) == 4
    split, whole = evaluate(*files), evaluate("scores.parquet", "--client", "site")
    assert split.exit_code == 0
    assert split.stdout == whole.stdout
    whole = evaluate("scores.parquet", "--client", "site")
    assert evaluate(*sorted(folder.glob("site-*.csv")), "--client", "site").stdout == whole.stdout
    assert evaluate("scores.parquet").stdout.startswith("1 client, 300 examples")


def test_json_and_plots_are_the_result(folder):
    assert evaluate("scores.parquet", "--client", "site", "--json", "r.json").exit_code == 0
    data = json.loads(Path("r.json").read_text())
    assert data["format"] == "fedgauge-evaluation/1"
    labels, scores = (make_table()[name].to_numpy() for name in ("y", "p"))
    expected = fg.evaluate({"all": (labels, scores)}).record.slices
    assert fg.Evaluation.from_json("r.json").record.slices == expected
    (folder / "plots").mkdir()
    assert evaluate("scores.parquet", "--plots", "plots").exit_code == 0
    assert {path.name for path in Path("plots").iterdir()} == set(NAMES)
    for path in Path("plots").iterdir():
        colours = imread(path)[..., :3] @ [1, 256, 65536]
        assert len(np.unique(colours)) > 10


def test_options_reach_the_plan_and_have_defaults():
    options = ["--bins", 50, "--range", -1, 2, "--clip", "--estimator", "quantile"]
    result = evaluate("scores.parquet", *options, "--quantiles", 40, "--json", "r.json")
    assert result.exit_code == 0
    loaded = fg.Evaluation.from_json("r.json")
    assert loaded.plan.axis.spec == fg.Axis.uniform(50, -1.0, 2.0, "clip").spec
    assert loaded.estimator == fg.Quantile(40)
    evaluate("scores.parquet", "--json", "r.json")
    loaded = fg.Evaluation.from_json("r.json")
    assert loaded.plan.axis.spec == fg.Axis.probabilities().spec
    assert loaded.estimator == fg.Aligned()
    evaluate("scores.parquet", "--json", "r.json", "--estimator", "quantile")
    assert fg.Evaluation.from_json("r.json").estimator == fg.Quantile(256)
    evaluate("scores.parquet", "--axis", "logit", "--bins", 64, "--clip", "--json", "r.json")
    axis = fg.Evaluation.from_json("r.json").plan.axis
    assert axis.spec == fg.Axis.logit(64, outside="clip").spec


def test_quiet_prints_nothing_but_errors():
    result = evaluate("scores.parquet", "--quiet", "--json", "r.json")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert Path("r.json").exists()
    assert evaluate("scores.parquet", "-q").output == ""
    assert "no such file" in complaint(evaluate("absent.csv", "-q"))


@pytest.mark.parametrize("options", [[], ["--quiet"], ["--at", 0.5]])
def test_json_to_a_pipe(options):
    assert evaluate("scores.parquet", "--json", "r.json").exit_code == 0
    told = evaluate("scores.parquet", *options).stdout
    piped = evaluate("scores.parquet", "--json", "-", *options)
    assert piped.exit_code == 0
    assert piped.stdout_bytes == Path("r.json").read_bytes()
    assert piped.stderr == told
    assert not Path("-").exists()


def test_json_to_a_pipe_where_noise_hides_all():
    Path("s.csv").write_text("y,p\n1,0.9\n0,0.1\n")
    shutil.copy("s.csv", "t.csv")
    options = ["--privacy", "ddp", "--epsilon", 0.1, "--seed", 1, "--json", "-"]
    piped = evaluate("s.csv", "t.csv", *options)
    assert piped.exit_code == 2
    assert "no signal" in piped.stderr
    assert json.loads(piped.stdout)["privacy"]["epsilon"] == 0.1


BAD_OPTIONS = {
    "no bins": (["--bins", 0], "at least 1 bin", "4096"),
    "too many bins": (["--bins", 1_000_000_000], "8.0 GB", "4096"),
    "range of a logit axis": (["--axis", "logit", "--range", 0, 1], "0 to 1", "Drop --range"),
    "quantiles alone": (["--quantiles", 10], "--quantiles", "--estimator quantile"),
    "nothing to shrink": (["--no-shrink"], "exact sum has no noise", "Leave that out"),
}


@pytest.mark.parametrize(("options", "what", "remedy"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_bad_options(options, what, remedy):
    line = complaint(evaluate("scores.parquet", *options))
    assert what in line
    assert remedy in line


def test_files_that_cannot_be_evaluated_together_or_at_all(folder):
    (folder / "old").mkdir()
    shutil.copy("site-s0.csv", "old/site-s0.csv")
    Path("site-s0.csv.gz").write_bytes(gzip.compress(Path("site-s0.csv").read_bytes()))
    line = complaint(evaluate("site-s0.csv", "old/site-s0.csv"))
    assert "'site-s0'" in line
    assert "site-s0.csv and old/site-s0.csv" in line
    assert "--client" in line
    for files, told in (
        (["scores.parquet", "--label", "p"], "one column cannot be two things"),
        (["site-s0.csv", "site-s0.csv.gz"], "Rename one"),
        (["no-*.csv"], "no-*.csv: there is no such file"),
        *([[name], name] for name in ("x[bold]y.csv", "x:id:y.csv", "x[/]y.csv")),
    ):
        assert told in complaint(run("evaluate", *COLUMNS, *files))


def test_a_folder_is_a_client_or_holds_them_by_a_partition():
    Path("lake/site=a").mkdir(parents=True)
    shutil.copy("site-s0.csv", "lake/site=a/rows.csv")
    by_name = run("evaluate", *COLUMNS, "lake/site=a", "site-s1.csv")
    assert (by_name.exit_code, by_name.stdout[:9]) == (0, "2 clients")
    by_partition = run("evaluate", *COLUMNS, "lake", "--client", "site")
    assert (by_partition.exit_code, by_partition.stdout[:9]) == (0, "1 client,")


def test_remedies_are_options_of_the_command():
    for rows, told in (
        ("yes,0.1\nno,0.9\n", ["--positive"]),
        ("0,0.1\n1,1.9\n", ["--clip"]),
        ("0,0.1\n0,0.9\n", ["--positive", "no client has a positive example"]),
    ):
        Path("s.csv").write_text("y,p\n" + rows)
        line = complaint(evaluate("s.csv", "--json", "r.json"))
        assert [words for words in told if words not in line] == []
        assert not Path("r.json").exists()


def test_output_that_cannot_be_written_and_memory_that_ends(monkeypatch):
    for option, place in (("--json", "absent/r.json"), ("--json", "."), ("--plots", "site-s0.csv")):
        line = complaint(evaluate("scores.parquet", option, place), code=1)
        assert "cannot write" in line
        assert place in line

    def exhausted(*_, **__):
        raise MemoryError

    monkeypatch.setattr(fg, "evaluate", exhausted)
    line = complaint(evaluate("scores.parquet"), code=1)
    assert "memory" in line
    assert "--bins" in line


def test_help_shows_examples_and_defaults():
    for command in ([], ["evaluate"], ["demo"]):
        for option in ("--help", "-h"):
            result = run(*command, option)
            assert (result.exit_code, result.stderr) == (0, "")
            assert "Usage: " in result.stdout
    assert "fedgauge demo --out" in words(run("demo", "--help").stdout)
    text = words(run("evaluate", "--help").stdout)
    assert "fedgauge evaluate scores.parquet --client site --label y --score p" in text
    assert "fedgauge evaluate site-*.csv --label" in text
    for option, default in (("--axis", "uniform"), ("--quantiles", "256"), ("--range", "0 1")):
        after = text[text.index(f"{option} ", text.index("Arguments")) :]  # after the examples
        assert f"[default: {default}]" in after[:240]


def test_examples_of_the_help_run(folder):
    for site in ("a", "b"):
        Path(f"other-{site}.csv").write_text("outcome,risk\nyes,0.9\nno,0.2\n")
    text = words(run("evaluate", "--help").stdout)
    first, second, third, fourth, points, european, own, mapped, rehearsed, searched, *sliced = (
        re.findall(r"fedgauge (evaluate \S+ .*?)(?= fedgauge| Arguments)", text)
    )
    assert run(*first.split()).exit_code == 0
    noisy = run("evaluate", "scores.parquet", *third.split()[2:])
    assert noisy.exit_code == 0 or "no signal" in noisy.stderr
    files = sorted(str(path) for path in folder.glob("other-*.csv"))
    assert run("evaluate", *files, *second.split()[2:]).exit_code == 0
    sites = sorted(str(path) for path in folder.glob("site-*.csv"))
    assert "specificity" in run("evaluate", *sites, *fourth.split()[2:]).stdout
    Path("points.csv").write_text("y,points\n0,3\n1,9\n0,4\n1,3\n")
    assert run(*points.split()).exit_code == 0
    Path("export.csv").write_text("y;p\n0;0,25\n1;0,75\n")
    assert run(*shlex.split(european)).exit_code == 0
    write_messy(folder)
    assert run(*own.split()).exit_code == 0
    fg.Calibrator("platt", Beta(0.8, 0.8, -0.1)).to_json("map.json")
    assert run("evaluate", *sites, *mapped.split()[2:]).exit_code == 0
    options = ["--clients", 4, "--examples", 300, "--privacy", "sa", "--min-cell", 0]
    assert run("plan", *options, "-o", "plan.toml").exit_code == 0
    assert run("evaluate", *sites, *rehearsed.split()[2:]).exit_code == 0
    assert "found in a first round" in run("evaluate", *sites, *searched.split()[2:]).stdout
    demo.write_files(folder / "files")
    clinics = sorted(str(path) for path in (folder / "files").glob("clinic-*.csv"))
    told = [run("evaluate", *clinics, *each.split()[2:]).stdout for each in sliced]
    assert [name in text for name, text in zip(SLICED, told, strict=True)] == [True] * len(SLICED)


def test_the_version_is_told_also_by_the_module():
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"fedgauge {fg.__version__}\n")
    done = subprocess.run(
        [sys.executable, "-m", "fedgauge", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"fedgauge {fg.__version__}\n"


@pytest.fixture(scope="module")
def demo_output(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "out"
    return folder, run("demo", "--out", folder)


def test_demo_says_where_its_files_are_and_writes_here_without_options(
    demo_output, tmp_path, monkeypatch
):
    folder, result = demo_output
    saved, last = result.stdout.splitlines()[-2:]
    for name in (*NAMES, "result.json"):
        assert str(folder / name) in saved
        assert (folder / name).stat().st_size > 1000
    assert last.startswith(f"Open {folder / 'report.html'} in a browser")
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    monkeypatch.chdir(tmp_path)
    result = run("demo", "--quiet")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert len(list((tmp_path / "fedgauge-demo").iterdir())) == 6


def main(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["fedgauge", *arguments])
    monkeypatch.setattr(cli, "end_at_once", sys.exit)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return caught.value.code, *capsys.readouterr()


def test_wrong_usage_is_told_in_one_line(monkeypatch, capsys):
    for arguments in (
        ["evaluate", "scores.parquet", "--label", "y"],
        ["evaluate", *COLUMNS],
        ["evaluate", "scores.parquet", *COLUMNS, "--bins", "many"],
        ["evaluate", "scores.parquet", *COLUMNS, "--bin", "9"],
        ["evaluat"],
    ):
        code, out, err = main(monkeypatch, capsys, *arguments)
        assert (code, out) == (2, "")
        assert err.startswith("fedgauge: ")
        assert err.count("\n") == 1


def test_no_arguments_show_help_and_an_interrupt_is_told_in_one_line(monkeypatch, capsys):
    code, out, err = main(monkeypatch, capsys)
    assert code in (0, 2)  # 2 since click 8.2
    assert [word for word in ("Usage: fedgauge", "evaluate", "demo") if word not in out] == []
    assert err == ""

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run", interrupt)
    code, out, err = main(monkeypatch, capsys, "demo")
    assert code in (1, 130)  # 130 is what a shell gives an interrupted command
    assert (out, err) == ("", "fedgauge: stopped.\n")


def installed(*arguments, cwd):
    program = shutil.which("fedgauge", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("fedgauge is not installed next to this Python")
    command = [program, *(str(argument) for argument in arguments)]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, encoding="utf-8", timeout=120, check=False
    )


def test_installed_command_evaluates_or_refuses(folder):
    files = sorted(path.name for path in folder.glob("site-*.csv"))
    done = installed("evaluate", *files, *COLUMNS, "--json", "r.json", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == evaluate(*files).stdout
    assert fg.Evaluation.from_json("r.json").clients == 4
    done = installed("evaluate", "scores.parquet", "--label", "y", "--score", "q", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fedgauge: scores.parquet: there is no column 'q'")
    assert done.stderr.count("\n") == 1


COLUMNS_TERMINAL = ["--client", "site", "--label", "y", "--score", "p"]
EVALUATE = ["evaluate", "s.csv", *COLUMNS_TERMINAL]
DDP = ["--privacy", "ddp", "--epsilon", 1]
LDP = ["--privacy", "ldp", "--epsilon", 1]
PLAN = ["plan", "--clients", 5]
# Words with underscores, classes and calls; numbers in words of a site file are in parentheses.
OF_THE_LIBRARY = re.compile(r"\b[a-z]+_[a-z_]+\b|[A-Z][a-z]+[A-Z]\w+|\w=[\w'\"(]|\(\d+, \d+\)")


def test_options_are_named():
    for command, told in (
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
    ):
        line = complaint(run(*command))
        assert told in line
        assert not OF_THE_LIBRARY.search(line)


def test_words_of_the_library_become_options():
    for reason, told in (
        ("plan with min_survivors = 5.", "plan with --min-survivors 5."),
        ("Plan with min_cell = 10.", "Plan with --min-cell 10."),
        ("y_score holds values", "the score column holds values"),
        ("tree (8,) does not", "--tree 8 does not"),
        ("two\n  lines", "two lines"),
        ("the plan costs epsilon 2 (max_epsilon)", "the plan costs epsilon 2 (max_epsilon)"),
        ("site.toml: min_cohort must be at least 3", "site.toml: min_cohort must be at least 3"),
    ):
        assert as_options(reason) == told


SLOW = {"flwr", "matplotlib", "mpmath", "pandas", "pyarrow.parquet", "ray", "scipy", "sqlite3"}
SCRIPT = """
import sys
from fedgauge.cli import main
try:
    main()
except SystemExit as done:
    assert not done.code
print(*sys.modules)
"""


def loaded(*arguments, folder):
    command = [sys.executable, "-c", SCRIPT, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_modules_are_loaded_where_they_are_needed(tmp_path):
    modules = loaded("--version", folder=tmp_path)
    assert modules & {*SLOW, "cryptography", "msgspec", "numpy", "pyarrow"} == set()
    assert {name for name in modules if name.startswith("fedgauge.")} <= {
        *("fedgauge.cli", "fedgauge.cli.options", "fedgauge.cli.terminal"),
        *("fedgauge.errors", "fedgauge.escaping"),
    }
    (tmp_path / "a.csv").write_text("y,p\n0,0.2\n1,0.7\n1,0.4\n0,0.5\n")
    modules = loaded("evaluate", "a.csv", "--label", "y", "--score", "p", folder=tmp_path)
    assert "pyarrow" in modules
    assert modules & SLOW == set()
    script = [sys.executable, "-c", "import fedgauge, sys; print(*sys.modules)"]
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    names = {name for name in done.stdout.split() if name.startswith("fedgauge.")}
    assert names == {"fedgauge.errors", "fedgauge.escaping"}


def test_digamma_is_that_of_scipy():
    numbers = np.array([1.0, 7.0, 1e3, 1e9])[:, np.newaxis] + np.linspace(0, 12, 97)
    assert digamma(numbers) == pytest.approx(special.digamma(numbers), rel=4e-15, abs=4e-15)


@pytest.mark.parametrize("typed", ["shwo", "exchagne"])
def test_commands_that_are_loaded_later_are_suggested(typed, shell, tmp_path):
    done = shell(f"fedgauge {typed}", tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("Did you mean") == 1


class Watched:
    """A terminal on which somebody watches; keeps what it was told is being done."""

    is_terminal = True

    def __init__(self):
        self.told = []

    @contextmanager
    def status(self, doing):
        self.told.append(doing)
        yield


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("evaluate a.csv --label y --score p --plots pictures", ["Counting scores", "Measuring"]),
        ("show r.json --at 0.5 --plots pictures", ["Measuring", "Drawing"]),
        ("plan --clients 3 --epsilon 1 --examples 500 --want 0.1", ["Planning", "Planning"]),
        ("demo --out demo", ["Counting, measuring and drawing"]),
    ],
)
def test_what_may_take_seconds_says_what_it_does(command, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("y,p\n0,0.2\n1,0.7\n1,0.4\n0,0.5\n")
    run("evaluate", "a.csv", "--label", "y", "--score", "p", "--json", "r.json", "--quiet")
    watched = Watched()
    monkeypatch.setattr(terminal, "stderr", watched)
    assert run(*command.split()).exit_code == 0
    assert watched.told == told
    watched.told.clear()
    assert run(*command.split(), "--quiet").exit_code == 0
    assert watched.told == []


def test_a_command_is_called_as_it_is_named_and_is_of_the_command_line():
    """An import of the same name was taken for the command `show`, which then wanted a number."""
    with click.Context(typer.main.get_command(cli.app)) as context:
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if not isinstance(command, click.Group):
                assert command.callback.__module__.startswith("fedgauge.cli."), name
