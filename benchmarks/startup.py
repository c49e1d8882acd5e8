"""Processor time of starting a command, next to importing NumPy alone.

Run with `python benchmarks/startup.py [COMMIT]`. With a commit of this repository, its source is
measured in the same run. At 54c7602, before modules were loaded where they are used, `--version`
took 6.0 times as long as importing NumPy, and `evaluate` on two small files 8.4 times; since then
0.9 and 3.8 times.
"""

import argparse
import io
import math
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROUNDS = 9
NUMPY = ("import numpy", "alone")
_MAIN = ["-c", "from fedgauge.cli import main; main()"]
COMMANDS = {
    "fedgauge --version": [*_MAIN, "--version"],
    "fedgauge --help": [*_MAIN, "--help"],
    "fedgauge evaluate, small CSV": [
        *(*_MAIN, "evaluate", "site-a.csv", "site-b.csv", "--label", "y", "--score", "p"),
    ],
    "fedgauge plan": [
        *(*_MAIN, "plan", "--clients", "3", "--examples", "6000", "--epsilon", "1"),
    ],
    "import fedgauge": ["-c", "import fedgauge"],
}


def main() -> None:
    """Print the least processor time of each, and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit", nargs="?", help="also measure the source of this commit")
    commit = parser.parse_args().commit
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder)
        sources = {"now": ROOT / "src"}
        if commit is not None:
            sources[commit] = unpack(commit, folder / "then")
        report(measure(sources, folder))


def write_rows(folder: Path) -> None:
    """Two files of 500 rows."""
    for shift, site in enumerate("ab"):
        rows = [f"{i % 2},{(i * 37 + shift) % 1000 / 2000 + i % 2 / 4}" for i in range(500)]
        (folder / f"site-{site}.csv").write_text("\n".join(["y,p", *rows]))


def unpack(commit: str, folder: Path) -> Path:
    """The source of a commit."""
    git = ["git", "-C", str(ROOT), "archive", commit, "src"]
    packed = subprocess.run(git, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def measure(sources: dict[str, Path], folder: Path) -> dict[tuple[str, str], float]:
    """Least seconds over some rounds, all measured in turn so that load meets all of them."""
    cases = {
        (what, which): (at, COMMANDS[what]) for what in COMMANDS for which, at in sources.items()
    }
    cases[NUMPY] = (ROOT / "src", ["-c", "import numpy"])
    for source, command in cases.values():
        seconds(source, command, folder)  # files in memory, bytecode written
    least = dict.fromkeys(cases, math.inf)
    for _ in range(ROUNDS):
        for case, (source, command) in cases.items():
            least[case] = min(least[case], seconds(source, command, folder))
    return least


def seconds(source: Path, command: list[str], folder: Path) -> float:
    """Processor time of a new Python."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(source)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def report(least: dict[tuple[str, str], float]) -> None:
    """Print all, as times of NumPy's."""
    print(f"{'':30}{'':>10}{'seconds':>9}{'x numpy':>9}")
    for (what, which), time in least.items():
        print(f"{what:30}{which:>10}{time:9.3f}{time / least[NUMPY]:9.1f}")


if __name__ == "__main__":
    main()
