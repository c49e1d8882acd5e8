"""How many files and functions of fedgauge run in what users do most.

``make trace`` prints the table. ``python tools/trace.py --order evaluate`` lists the functions of
one row, a line for each file that takes over from another. A function counts once, where it is
first called: who follows the code reads it once. Modules are imported before.
"""

import argparse
import pkgutil
import sys
import tempfile
from contextlib import contextmanager
from importlib import import_module
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

import fedgauge as fg
from fedgauge.cli import app
from fedgauge.keys import key_to_text
from fedgauge.site import Site

ROOT = Path(fg.__file__).parent
SITES = ("site-a", "site-b", "site-c")
COORDINATOR = "coordinator"
ROWS = ("evaluate", "roc_auc", "submit", "exchange")


@contextmanager
def traced(calls):
    """Note the calls of fedgauge's functions made within."""

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(f"{ROOT}/"):
            calls.append((code.co_filename[len(f"{ROOT}/") :], code.co_qualname))

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def draw(seed):
    """Labels and scores of a client."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, 200)
    return labels, np.round(rng.beta(2 + labels, 3), 4)


def run(*arguments):
    """Run a command in this process."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exit_code:
        raise SystemExit(f"{' '.join(map(str, arguments))}: {done.output}")


def make_sites(folder):
    """Three sites and a coordinator, who trust each other."""
    keys = {}
    for name in (COORDINATOR, *SITES):
        run("site", "init", "--name", name, "--dataset", "d", "--allow-exact", folder / name)
        keys[name] = key_to_text(Site.from_toml(folder / name / "site.toml").key.public)
    for seed, name in enumerate(SITES):
        rows = "".join(f"{y},{p}\n" for y, p in zip(*draw(seed), strict=True))
        (folder / f"{name}.csv").write_text(f"y,p\n{rows}")
    for name in keys:
        for other in {*keys} - {name}:
            role = ("--coordinator",) if other == COORDINATOR else ()
            run("site", "trust", other, keys[other], *role, "--site", folder / name / "site.toml")
    axis = fg.Axis.uniform(64, outside="clip")
    fg.EvaluationPlan.for_histogram(axis, fg.Cohort(3), min_cell=10).save(folder / "plan.json")


def exchange(folder, rows):
    """An exact exchange from start to result; the first submission also counts by itself."""

    def step(name, verb, *arguments):
        calls = []
        with traced(calls):
            run("exchange", verb, *arguments, "--site", folder / name / "site.toml")
        rows["exchange"] += calls
        rows["submit"] = rows["submit"] or (calls if verb == "submit" else [])

    step(COORDINATOR, "start", folder / "plan.json", folder / "run")
    for verb in ("join", "share", "submit", "confirm", "reveal"):
        for name in SITES:
            file = (folder / f"{name}.csv", "--label", "y", "--score", "p")
            step(name, verb, folder / "run", *(file if verb == "join" else ()))
        step(COORDINATOR, "advance", folder / "run")


def trace():
    """The functions of each row, in the order of their first calls."""
    for module in pkgutil.walk_packages([str(ROOT)], "fedgauge."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    rows = {name: [] for name in ROWS}
    clients = {"a": draw(0), "b": draw(1)}
    fg.evaluate(clients).roc_auc  # noqa: B018  (some things are prepared once)
    with traced(rows["evaluate"]):
        result = fg.evaluate(clients)
    with traced(rows["roc_auc"]):
        result.roc_auc  # noqa: B018
    with tempfile.TemporaryDirectory() as folder:
        make_sites(Path(folder))
        exchange(Path(folder), rows)
    return {name: list(dict.fromkeys(calls)) for name, calls in rows.items()}


def main():
    """Print the table, or one row's functions."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--order", choices=ROWS, help="list the functions of one row")
    asked = parser.parse_args()
    rows = trace()
    if asked.order:
        for file, calls in groupby(rows[asked.order], key=lambda call: call[0]):
            print(f"{file:32} {', '.join(name for _, name in calls)}")
        return
    print(f"{'':10}{'files':>10}{'functions':>12}{'switches of package':>22}")
    for name, calls in rows.items():
        packages = [file.split("/")[0] for file, _ in calls]
        switches = sum(one != other for one, other in pairwise(packages))
        print(f"{name:10}{len({f for f, _ in calls}):10}{len(calls):12}{switches:22}")


if __name__ == "__main__":
    main()
