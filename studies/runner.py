"""One way to run a study: a grid of cells, in parallel, that can be stopped and gone on with.

A study is a list of cells (frozen dataclasses of plain values), a function that measures one of
them, a table and what must hold:

    STUDY = Study("coin", __doc__, cells=CELLS, run=run, runs=1000, table=table, checks=checks)

    if __name__ == "__main__":
        sys.exit(main(STUDY))

    python studies/coin.py                         # all cells, on all cores
    python studies/coin.py --quick                 # fewer runs, perhaps fewer cells
    python studies/coin.py --list --only "sides=6" # cells that match, without running them

The seed of a cell follows from the study, the cell and `--seed` alone: neither the order, the
number of workers nor the choice of cells changes a figure. Finished cells are kept in a log in
`--out`, by cell, seed, runs and versions (of libraries, and of the code itself): the same command
goes on where it was stopped, and figures of different versions never meet. `--fresh` forgets the
log. At the end, figures and versions are in `STUDY.json` and, one in a line, in `STUDY.csv`, with
the pictures of a study that draws.

Exit codes: 0, 1 where something did not hold, 2 where a cell failed, 130 where it was stopped.
"""

import argparse
import hashlib
import importlib.metadata
import inspect
import json
import math
import multiprocessing
import os
import platform
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

import fedgauge
from cell_log import Log, Record, facts, save
from fedgauge.storage import locked

C = TypeVar("C")
Measure = Callable[[C, np.random.Generator, int], Mapping[str, float]]
THREADS = tuple(f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL"))


@dataclass(frozen=True)
class Found(Generic[C]):
    """What was measured in a cell."""

    cell: C
    runs: int
    values: Mapping[str, float]

    def __getitem__(self, name: str) -> float:
        return self.values[name]


@dataclass(frozen=True)
class Check:
    """Something that must hold, and what was found where it does not."""

    what: str
    kept: bool
    found: str = ""


@dataclass(frozen=True)
class Study(Generic[C]):
    """A grid, how to measure a cell of it, and how to read what came out.

    `run` must be a function of a module, since other processes call it; `quick_cells` are those
    of `--quick`, all if there are none. `draw` puts pictures into the folder of results.
    """

    name: str
    about: str
    cells: Sequence[C]
    run: Measure[C]
    runs: int
    table: Callable[[Sequence[Found[C]]], None]
    checks: Callable[[Sequence[Found[C]]], Iterable[Check]]
    quick_cells: Sequence[C] = ()
    quick_runs: int = 100
    draw: Callable[[Sequence[Found[C]], Path], None] | None = None


def describe(cell: Any) -> str:
    """A cell in a line: what `--list` shows and `--only` looks through."""
    return ", ".join(f"{name}={value}" for name, value in facts(cell).items())


def seed_of(study: str, cell: Any, seed: int) -> int:
    """The seed of a cell: of nothing but the study, the cell and the seed of all."""
    text = json.dumps([study, facts(cell), seed], sort_keys=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest())


def versions_of(study: Study[Any]) -> dict[str, str]:
    """What the figures hang on: libraries, the kind of machine, and the code of all that runs."""
    libraries = {name: importlib.metadata.version(name) for name in ("numpy", "scipy")}
    system = f"{platform.system()} {platform.machine()}"
    versions = {"fedgauge": fedgauge.__version__, "code": _code(study), **libraries}
    return versions | {"python": platform.python_version(), "platform": system}


def _code(study: Study[Any]) -> str:
    """A digest of the package, of the study and of what it imports from its folder."""
    package, beside = Path(fedgauge.__file__).parent, Path(__file__).resolve().parent
    loaded = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    near = {path for name in loaded if name and (path := Path(name).resolve()).parent == beside}
    files = [*package.rglob("*.py"), *(near | {Path(inspect.getfile(study.run)).resolve()})]
    digests = sorted(hashlib.sha256(path.read_bytes()).digest() for path in files)
    return hashlib.sha256(b"".join(digests)).hexdigest()[:12]


def _measure(
    run: Measure[C], cell: C, seed: int, runs: int
) -> tuple[dict[str, float | None], float]:
    """One cell, in a worker; None for what is not a number."""
    start = time.process_time()
    values = run(cell, np.random.default_rng(seed), runs)
    numbers = {name: None if math.isnan(value) else float(value) for name, value in values.items()}
    return numbers, time.process_time() - start


def _start_worker() -> None:
    """A worker ends with its parent, however that ends, and says nothing when stopped."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


@contextmanager
def _workers(number: int) -> Iterator[ProcessPoolExecutor]:
    os.environ.update(dict.fromkeys(THREADS, "1"))  # read by workers, which start anew
    pool = ProcessPoolExecutor(number, multiprocessing.get_context("spawn"), _start_worker)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def progress() -> Progress:
    """A bar where somebody looks."""
    console = Console(stderr=True)
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


def measure(
    study: Study[C],
    cells: Sequence[C],
    log: Log,
    *,
    seed: int,
    runs: int,
    workers: int,
    minutes: float = math.inf,
) -> int:
    """Run the cells that the log does not have, for so many minutes of a core; how many failed."""
    rest = [cell for cell in cells if log.find(cell, seed, runs) is None]
    if len(rest) < len(cells):
        print(f"{len(cells) - len(rest)} of {len(cells)} cells are in {log.path} already")
    failed, spent = 0, 0.0
    with progress() as bar, _workers(workers) as pool:
        task = bar.add_task(study.name, total=len(rest))
        jobs = {
            pool.submit(_measure, study.run, cell, seed_of(study.name, cell, seed), runs): cell
            for cell in rest
        }
        for job in as_completed(jobs):
            bar.advance(task)
            if (error := job.exception()) is not None:
                if not failed:
                    traceback.print_exception(error)
                print(f"failed: {describe(jobs[job])}: {error!r}", file=sys.stderr)
                failed += 1
                continue
            values, seconds = job.result()
            now = datetime.now(UTC).isoformat(timespec="seconds")
            cell = facts(jobs[job])
            log.add(Record(cell, seed, runs, log.versions, values, round(seconds, 3), now))
            spent += seconds
            if spent > 60 * minutes:
                print(f"{minutes:g} minutes are spent; the same command goes on")
                pool.shutdown(wait=True, cancel_futures=True)
                break
    return failed


def judge(checks: Iterable[Check]) -> bool:
    """Print what holds and what does not; whether all holds."""
    kept = True
    for check in checks:
        kept &= check.kept
        verdict = "holds" if check.kept else "DOES NOT HOLD"
        print(f"{verdict}: {check.what}{'; ' if check.found else ''}{check.found}")
    return kept


def _options(study: Study[Any], arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=study.about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, help=f"in each cell (default: {study.runs})")
    parser.add_argument("--quick", action="store_true", help="a small run")
    parser.add_argument("--only", default="", help="cells whose description has this pattern in it")
    parser.add_argument("--list", action="store_true", help="show the cells and end")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="(default: all cores)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="of a core, then it stops")
    parser.add_argument("--out", type=Path, default=Path("study-results"), help="folder of results")
    parser.add_argument("--fresh", action="store_true", help="forget what was measured before")
    return parser.parse_args(arguments)


def main(study: Study[Any], arguments: Sequence[str] | None = None) -> int:
    """Run a study as a command; its exit code."""
    options = _options(study, arguments)
    cells = study.quick_cells if options.quick and study.quick_cells else study.cells
    cells = [cell for cell in cells if fnmatchcase(describe(cell), f"*{options.only}*")]
    if options.list or not cells:
        print("\n".join(map(describe, cells)) or "no such cell")
        return 0 if cells else 2
    seed, workers = options.seed, max(options.workers or 1, 1)
    runs = options.runs or (study.quick_runs if options.quick else study.runs)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{study.name}.cells.jsonl"
    with locked(path.with_suffix(".lock"), timeout=0):
        log = Log.open(path, versions_of(study), fresh=options.fresh)
        try:
            failed = measure(
                study, cells, log, seed=seed, runs=runs, workers=workers, minutes=options.minutes
            )
        except KeyboardInterrupt:
            print(f"stopped; the same command goes on with what is in {path}", file=sys.stderr)
            return 130
        records = {cell: record for cell in cells if (record := log.find(cell, seed, runs))}
        save(study.name, list(records.values()), options.out)
    found = [Found(cell, runs, record.numbers) for cell, record in records.items()]
    if found:
        study.table(found)
    if found and study.draw:
        study.draw(found, options.out)
    kept = judge(study.checks(found)) if found else False
    return 2 if failed else 0 if kept else 1
