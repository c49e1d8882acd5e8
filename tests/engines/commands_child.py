"""Runs commands of fedgauge, each in a process of its own that ends when told to.

Reads one JSON request a line and answers each with a line. Every command is run in a fork, so
that the imports are paid once. A request may name the step at which its process is killed.
"""

import json
import os
import signal
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

import pandas  # noqa: F401  (pyarrow loads it in every process that reads a file)

import fedgauge.engines.exchange
from fedgauge import cli
from fedgauge.engines.participant import Participant


class Deadline:
    """Kills this process just before the n-th step that changes a file."""

    def __init__(self, last):
        self.last, self.passed = last, 0

    def step(self):
        self.passed += 1
        if self.passed == self.last:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(self, call):
        def watched(*args, **options):
            self.step()
            return call(*args, **options)

        return watched

    def watch(self):
        for module, name in ((os, "replace"), (os, "unlink"), (os, "mkdir"), (tempfile, "mkstemp")):
            setattr(module, name, self.before(getattr(module, name)))
        execute = sqlite3.Connection.execute

        def watched(connection, statement, *args):
            if statement == "COMMIT":
                self.step()
            return execute(connection, statement, *args)

        connect = sqlite3.connect
        factory = type("Watched", (sqlite3.Connection,), {"execute": watched})
        sqlite3.connect = lambda *args, **options: connect(*args, **options, factory=factory)


def meet_the_other(folder):
    """Wait for another process just before a session is stored; leave a copy of what is sent."""
    store, write = Participant._store, fedgauge.engines.exchange._write
    own = str(os.getpid())

    def store_together(*args):
        Path(folder, own).touch()
        deadline = time.monotonic() + 1.0
        while len(list(Path(folder).glob("[0-9]*"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        return store(*args)

    def write_copy(path, data):
        Path(folder, f"sent-{own}").write_bytes(data)
        write(path, data)

    Participant._store = store_together
    fedgauge.engines.exchange._write = write_copy


def run(request, out, err):
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    sys.argv = ["fedgauge", *request["arguments"]]
    if "meet" in request:
        meet_the_other(request["meet"])
    if request.get("last"):
        Deadline(request["last"]).watch()
    code = 1
    try:
        cli.main()
    except SystemExit as done:
        code = done.code
    except BaseException as error:
        os.write(2, f"{error!r}\n".encode())
        code = 70
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def begin(request):
    out, err = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115  (closed in `end`)
    child = os.fork()
    if not child:
        run(request, out, err)
    return child, out, err


def end(child, out, err):
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said = []
    for file in (out, err):
        with file:
            file.seek(0)
            said.append(file.read().decode())
    return {"code": code, "out": said[0], "err": said[1]}


def main():
    for line in sys.stdin:
        begun = [begin(request) for request in json.loads(line)]
        sys.stdout.write(json.dumps([end(*each) for each in begun]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
