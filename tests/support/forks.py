"""Processes that fork others, so that imports are paid once, and forks that die when told to. A
script that serves requests calls :func:`serve`; a test talks to it through :func:`serving`."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

KILLED = -signal.SIGKILL


@contextmanager
def fast_folder():
    """A folder in memory where there is one: a killed process loses no less there."""
    memory = Path("/dev/shm")  # noqa: S108  (a fresh folder in it)
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


@contextmanager
def serving(script):
    """Start a script of this folder; what is yielded sends a request and reads the answer."""
    process = subprocess.Popen(
        [sys.executable, Path(__file__).with_name(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )

    def ask(request):
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    with process:
        yield ask
        process.stdin.close()


def serve(answer):
    """Read one JSON request a line and answer each with a line."""
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()


def fork(work, request, report):
    """The process in which the work is done; `report` is where it says how far it came."""
    child = os.fork()
    if child:
        return child
    try:
        work(request, report)
        os._exit(0)
    except BaseException as error:
        os.write(2, f"{error!r}\n".encode())
        os._exit(1)


def answer_with(work, request):
    """Do the work in forks, killed some time after the first has said something if so asked."""
    reading, writing = os.pipe()
    children = [fork(work, request, writing) for _ in range(request.get("processes", 1))]
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        said = b""
        if "seconds" in request:
            said = pipe.read(1)  # until something is done, on however slow a machine
            time.sleep(request["seconds"])
            for child in children:
                os.kill(child, signal.SIGKILL)
        said += pipe.readall()
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return {"said": said.decode().split(), "codes": codes}


class Deadline:
    """Kills this process at the n-th point passed."""

    def __init__(self, last):
        self.last, self.passed = last, 0

    def point(self):
        self.passed += 1
        if self.passed == self.last:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(self, call):
        def watched(*args, **options):
            self.point()
            return call(*args, **options)

        return watched

    def around(self, call):
        def watched(*args, **options):
            self.point()
            result = call(*args, **options)
            self.point()
            return result

        return watched

    def watch_around(self, names, *, connection):
        """Put points around functions of modules, around connecting, and methods of connections."""
        for module, function in names:
            setattr(module, function, self.around(getattr(module, function)))
        calls = {name: self.around(getattr(sqlite3.Connection, name)) for name in connection}
        self._connect(calls, self.around(sqlite3.connect))

    def watch_changes(self):
        """Put a point just before each step that changes a file."""
        for module, name in ((os, "replace"), (os, "unlink"), (os, "mkdir"), (tempfile, "mkstemp")):
            setattr(module, name, self.before(getattr(module, name)))
        execute = sqlite3.Connection.execute

        def watched(connection, statement, *args):
            if statement == "COMMIT":
                self.point()
            return execute(connection, statement, *args)

        self._connect({"execute": watched}, sqlite3.connect)

    @staticmethod
    def _connect(calls, connect):
        factory = type("Watched", (sqlite3.Connection,), calls)
        sqlite3.connect = lambda *args, **options: connect(*args, **options, factory=factory)
