"""Fuzz everything that reads what others wrote, guided by coverage of fedgauge's own code.

    python tests/fuzz/run.py --seconds 600           all targets, each its share, on two cores
    python tests/fuzz/run.py --only plan --seconds 60
    python tests/fuzz/run.py --replay plan FILE      one input again, with its traceback

Inputs that reached something new are kept in `.fuzz/`, and are where the next run begins. Exits
with 1 on a finding: an error that is not fedgauge's own, five seconds of the processor for one
input, or too much memory. What was found lies in `.fuzz/TARGET/findings`.
"""

import argparse
import hashlib
import os
import pkgutil
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
KEPT = ROOT / ".fuzz"
CORES = 2
SECONDS_EACH = 5.0  # of the processor, for one input
HANGS_AFTER = 60  # seconds, where no Python runs that could be stopped
MORE_MEMORY = 6 << 30  # bytes of addresses for one input
MOST_RSS = 2048  # MiB
LONGEST = 1 << 20  # bytes of an input
_STATS = re.compile(r"#(\d+)\s+(INITED|DONE|NEW|REDUCE|RELOAD|pulse)\s+cov: (\d+)")


class Slow(BaseException):
    """An input took too long; not an `Exception`, so that nothing takes it for its own."""


class Row(NamedTuple):
    """What became of a target."""

    name: str
    executions: int
    coverage: int
    new: int
    findings: list[Path]


def load():
    """Everything that is fuzzed, loaded now: what is loaded later is not instrumented."""
    import fedgauge

    for module in pkgutil.walk_packages(fedgauge.__path__, "fedgauge."):
        if not module.name.endswith("__main__"):
            __import__(module.name)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="for all targets together")
    parser.add_argument("--only", action="append", default=[], metavar="TARGET")
    parser.add_argument("--replay", nargs=2, metavar=("TARGET", "FILE"))
    asked = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    sys.path[:0] = [str(HERE), str(ROOT / "tests" / "support"), str(ROOT / "tests" / "fixtures")]
    if asked.replay:
        return replay(asked.replay[0], Path(asked.replay[1]))
    import atheris

    with Quiet(KEPT / "load.log"), atheris.instrument_imports(include=["fedgauge"]):
        load()
    from targets import TARGETS

    unknown = set(asked.only) - set(TARGETS)
    if unknown:
        parser.error(f"there is no target {', '.join(sorted(unknown))}: {', '.join(TARGETS)}")
    # The fuzzer ends a process without a word, so what it leaves is removed here.
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108
    with tempfile.TemporaryDirectory(prefix="fedgauge-fuzz-", dir=memory) as folder:
        tempfile.tempdir = folder
        rows = list(run_all(asked.only or list(TARGETS), asked.seconds))
    print_table(rows)
    return int(any(row.findings for row in rows))


def run_all(names, seconds):
    """Every target in a process of its own, so many at once; what became of each."""
    share = seconds * min(CORES, len(names)) / len(names)
    waiting, running = list(names), {}
    while waiting or running:
        while waiting and len(running) < CORES:
            name = waiting.pop(0)
            before = set(findings(name))
            child = os.fork()
            if not child:
                try:
                    become(name, time.monotonic() + share)
                finally:  # not by Python's exit, which would remove the folder of all targets
                    traceback.print_exc()
                    os._exit(1)
            running[child] = (name, before)
        child, status = os.wait()
        name, before = running.pop(child)
        yield told(name, before, status)


def become(name, until):
    """Fuzz one target in this process, and end."""
    import atheris
    from mutants import form_mutant, text_mutant
    from targets import TARGETS, ready

    folder = KEPT / name
    for each in ("corpus", "findings"):
        (folder / each).mkdir(parents=True, exist_ok=True)
    log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    signal.signal(signal.SIGVTALRM, stop)
    with ready(name) as (seeds, attempt):
        for seed in seeds:
            (folder / "corpus" / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
        form, seen = TARGETS[name].form, set()

        def one(data):
            try:
                with_limits(attempt, data)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                keep(folder / "findings", error, data, seen)

        def mutated(data, most, seed):
            rng = random.Random(seed)  # noqa: S311  (to be repeated)
            if rng.random() < 0.25:
                return atheris.Mutate(data, most)
            try:
                return form_mutant(rng, form, data)[:most]
            except Exception:
                return text_mutant(rng, data)[:most]

        options = {
            "max_total_time": max(1, round(until - time.monotonic())),
            "max_len": LONGEST,
            "timeout": HANGS_AFTER,
            "report_slow_units": HANGS_AFTER,
            "rss_limit_mb": MOST_RSS,
            "artifact_prefix": f"{folder / 'findings'}/",
            "print_final_stats": 1,
            "len_control": 0,
            "verbosity": 1,
        }
        command = [name, *(f"-{key}={value}" for key, value in options.items())]
        atheris.Setup([*command, str(folder / "corpus")], one, custom_mutator=mutated)
        atheris.Fuzz()  # which ends this process
    os._exit(0)


def stop(*_):
    raise Slow


def with_limits(attempt, data):
    """One input, for a limited time of the processor and with limited memory.

    Addresses are counted from before the input: where a stream breaks off, Arrow keeps some of them
    (the stack of a thread, 8 MiB) that no later input asked for.
    """
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MORE_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS_EACH)
    try:
        attempt(data)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def keep(folder, error, data, seen):
    """Save an input that failed in a new way, with where it did."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/fedgauge/" in frame.filename] or frames
    where = (type(error).__name__, own[-1].filename, own[-1].lineno)
    if where in seen:
        return
    seen.add(where)
    name = f"{where[0]}-{Path(where[1]).stem}-{where[2]}"
    (folder / name).write_bytes(data)
    told = traceback.format_exception(type(error), error, error.__traceback__)
    (folder / f"{name}.txt").write_text("".join(told), errors="replace")


def findings(name):
    """Inputs that failed; a later run writes those again that still do."""
    folder = KEPT / name / "findings"
    inputs = folder.glob("*") if folder.is_dir() else ()
    return {each: each.stat().st_mtime_ns for each in inputs if each.suffix != ".txt"}.items()


def told(name, before, status):
    """What the log of a target says."""
    log = (KEPT / name / "log.txt").read_text(errors="replace")
    steps = [(int(n), what, int(cov)) for n, what, cov in _STATS.findall(log)]
    first = next((cov for _, what, cov in steps if what == "INITED"), 0)
    count, _, last = steps[-1] if steps else (0, "", 0)
    found = sorted(path for path, _ in set(findings(name)) - before)
    if os.waitstatus_to_exitcode(status) != 0 and not found:
        found = [KEPT / name / "log.txt"]  # it could not even begin, or ended otherwise
    return Row(name, count, last, last - first, found)


def print_table(rows):
    print(f"{'target':20} {'executions':>11} {'coverage':>9} {'new':>6} {'findings':>9}")
    for row in rows:
        numbers = f"{row.executions:>11,} {row.coverage:>9,} {row.new:>6,}"
        print(f"{row.name:20} {numbers} {len(row.findings):>9}")
    for row in rows:
        for path in row.findings:
            print(f"{row.name}: python tests/fuzz/run.py --replay {row.name} {path}")
    print(f"{sum(row.executions for row in rows):,} inputs, ", end="")
    print(f"{sum(len(row.findings) for row in rows)} findings")


def replay(name, path):
    """One input again, outside of the fuzzer; its traceback, and 1, where it still fails."""
    from targets import ready

    signal.signal(signal.SIGVTALRM, stop)
    with ready(name) as (_, attempt):
        try:
            with_limits(attempt, path.read_bytes())
        except BaseException:
            traceback.print_exc()
            return 1
    print("It does not fail.")
    return 0


class Quiet:
    """What is printed goes to a file: one line for each module is no news."""

    def __init__(self, path):
        path.parent.mkdir(exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def __enter__(self):
        sys.stderr.flush()
        self._before = os.dup(2)
        os.dup2(self._file, 2)

    def __exit__(self, *_):
        sys.stderr.flush()
        os.dup2(self._before, 2)
        os.close(self._file)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
