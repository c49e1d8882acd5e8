"""How many files, functions and packages a call passes through: `python tools/call_trace.py`.

Functions are listed in the order in which they are first entered. A switch is where one of them is
in another package than the one before it. What an import runs does not count. The command ends
with 1 where a call passes through more than it may.
"""

import itertools
import os
import shlex
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from typer.testing import CliRunner

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from consortium import Consortium

import fedgauge as fg
from fedgauge.cli import app
from fedgauge.secagg import Stage

PACKAGE = Path(fg.__file__).parent
CLIENTS = {
    "hospital-a": ([0, 1, 1, 0], [0.2, 0.7, 0.9, 0.4]),
    "hospital-b": ([0, 0, 1, 1], [0.1, 0.6, 0.4, 0.8]),
    "hospital-c": ([0, 1, 0, 1], [0.3, 0.7, 0.5, 0.6]),
}
# The most files, and switches of package, that each may pass through.
LIMITS = {"evaluate, exact": (26, 78), ".roc_auc": (12, None), "exchange submit": (69, None)}


def traced(call: Callable[[], Any]) -> list[tuple[str, str]]:
    """The functions of fedgauge that a call enters, as file and name, in order of first entry."""
    entered: dict[tuple[str, str], None] = {}
    loading = 0

    def watch(frame: FrameType, event: str, _: Any) -> None:
        nonlocal loading
        code = frame.f_code
        if code.co_filename == "<frozen importlib._bootstrap>" and code.co_name == "_find_and_load":
            loading += (event == "call") - (event == "return")
        elif event == "call" and not loading and code.co_name != "<module>":
            path = Path(code.co_filename)
            if path.is_relative_to(PACKAGE):
                entered[str(path.relative_to(PACKAGE)), code.co_qualname] = None

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(entered)


def evaluation() -> Callable[[], Any]:
    """An evaluation of exact counts in one process."""
    return lambda: fg.evaluate(CLIENTS)


def area() -> Callable[[], Any]:
    """The first metric of a result."""
    result = fg.evaluate(CLIENTS)
    return lambda: result.roc_auc


def submission() -> Callable[[], Any]:
    """The command with which a site sends its counts."""
    folder = Path(tempfile.mkdtemp())
    world, run = Consortium.make(folder / "world", CLIENTS), folder / "run"
    axis, cohort = fg.Axis.uniform(64, outside="clip"), fg.Cohort(min_survivors=3, max_colluding=1)
    world.start(run, fg.EvaluationPlan.under(fg.DistributedDP(1.0), axis, cohort=cohort))
    world.play(run, CLIENTS, until=Stage.SHARE)
    name, (labels, scores) = next(iter(CLIENTS.items()))
    rows = "".join(f"{y},{p}\n" for y, p in zip(labels, scores, strict=True))
    (folder / "rows.csv").write_text(f"y,p\n{rows}")
    rows_of = f"{folder / 'rows.csv'} --label y --score p"
    line = f"exchange submit {run} {rows_of} --site {world.site_file(name)}"

    def submit() -> None:
        done = CliRunner().invoke(app, shlex.split(line))
        if done.exit_code:
            raise SystemExit(f"fedgauge {line}: {done.output}")

    return submit


CALLS = {"evaluate, exact": evaluation, ".roc_auc": area, "exchange submit": submission}


def main() -> None:
    """Print the table; end with 1 where a limit is passed."""
    warnings.simplefilter("ignore")
    os.umask(0o022)
    too_many = False
    print(f"{'call':<18}{'files':>6}{'functions':>11}{'switches':>10}")
    for name, prepared in CALLS.items():
        prepared()()  # what is loaded on demand is loaded
        entered = traced(prepared())
        packages = [file.split("/")[0] for file, _ in entered]
        switches = sum(one != other for one, other in itertools.pairwise(packages))
        files = len({file for file, _ in entered})
        print(f"{name:<18}{files:>6}{len(entered):>11}{switches:>10}")
        most, most_switches = LIMITS[name]
        too_many |= files > most or (most_switches is not None and switches > most_switches)
    if too_many:
        raise SystemExit("A call passes through more files or packages than it may: see LIMITS.")


if __name__ == "__main__":
    main()
