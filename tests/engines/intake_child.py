"""Takes in reports in processes of its own, which are killed when told to: at a call, or later.

Reads one JSON request a line and answers each with a line. Every request is carried out in a
fork, so that the imports are paid once.
"""

import json
import os
import signal
import sqlite3
import sys
import time
from pathlib import Path

import fedgauge as fg


class Deadline:
    """Kills this process at the n-th point passed; there is one before and one after each call."""

    def __init__(self, last):
        self.last, self.passed = last, 0

    def point(self):
        self.passed += 1
        if self.passed == self.last:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, call):
        def watched(*args, **options):
            self.point()
            result = call(*args, **options)
            self.point()
            return result

        return watched

    def watch(self):
        """Put points around everything that touches files."""
        for name in ("open", "fsync", "fdopen"):
            setattr(os, name, self.around(getattr(os, name)))
        calls = {
            name: self.around(getattr(sqlite3.Connection, name))
            for name in ("execute", "executemany", "close")
        }
        connect = self.around(sqlite3.connect)
        factory = type("Watched", (sqlite3.Connection,), calls)
        sqlite3.connect = lambda *args, **options: connect(*args, **options, factory=factory)


def take(request, report):
    """Accept every message in order, naming each that was acknowledged."""
    plan = fg.EvaluationPlan.load(request["plan"])
    messages = [path.read_bytes() for path in sorted(Path(request["inbox"]).iterdir())]
    if "last" in request:
        Deadline(request["last"]).watch()
    with fg.ReportServer(plan, request["folder"]) as server:
        for number, message in enumerate(messages[request.get("first", 0) :]):
            server.accept(message)
            os.write(report, f"{number + request.get('first', 0)} ".encode())


def fork(request, report):
    child = os.fork()
    if child:
        return child
    try:
        take(request, report)
        os._exit(0)
    except BaseException as error:
        os.write(2, f"{error!r}\n".encode())
        os._exit(1)


def answer(request):
    reading, writing = os.pipe()
    child = fork(request, writing)
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        said = b""
        if "seconds" in request:
            said = pipe.read(1)  # until something is taken in, on however slow a machine
            time.sleep(request["seconds"])
            os.kill(child, signal.SIGKILL)
        said += pipe.readall()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {"said": said.decode().split(), "code": code}


def main():
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
