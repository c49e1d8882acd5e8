"""What commands load before they begin, and what they say while they work."""

import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest
from commands import run
from scipy import special

import fedgauge as fg
from fedgauge.cli import terminal
from fedgauge.measures.areas import digamma

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
    """The modules that a command in a process of its own has loaded when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


def test_the_version_needs_next_to_nothing(tmp_path):
    modules = loaded("--version", folder=tmp_path)
    assert modules & {*SLOW, "cryptography", "msgspec", "numpy", "pyarrow"} == set()
    assert {name for name in modules if name.startswith("fedgauge.")} <= {
        *("fedgauge.cli", "fedgauge.cli.elsewhere", "fedgauge.cli.options"),
        *("fedgauge.cli.outputs", "fedgauge.cli.terminal", "fedgauge.errors", "fedgauge.escaping"),
    }


def test_an_exact_evaluation_of_small_files_loads_what_it_needs(tmp_path):
    (tmp_path / "a.csv").write_text("y,p\n0,0.2\n1,0.7\n1,0.4\n0,0.5\n")
    modules = loaded("evaluate", "a.csv", "--label", "y", "--score", "p", folder=tmp_path)
    assert "pyarrow" in modules
    assert modules & SLOW == set()


def test_importing_the_package_loads_the_exceptions_alone():
    script = "import fedgauge, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    names = {name for name in done.stdout.split() if name.startswith("fedgauge.")}
    assert names == {"fedgauge.errors", "fedgauge.escaping"}


@pytest.mark.parametrize("start", [1.0, 7.0, 1e3, 1e9])
def test_digamma_is_that_of_scipy(start):
    numbers = start + np.linspace(0, 12, 97)
    assert digamma(numbers) == pytest.approx(special.digamma(numbers), rel=4e-15, abs=4e-15)


@pytest.mark.parametrize("typed", ["shwo", "exchagne"])
def test_commands_that_are_loaded_later_are_suggested(typed, shell, tmp_path):
    done = shell(f"fedgauge {typed}", tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("Did you mean") == 1


def test_the_package_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "fedgauge", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"fedgauge {fg.__version__}\n"


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
