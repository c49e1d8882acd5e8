"""Spends from a ledger in processes of its own, which end when told to: at a call, or by the clock.

Reads one JSON request a line and answers each with a line. Every request is carried out in
forks, so that the imports are paid once.
"""

import fcntl
import json
import os
import signal
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

from fedgauge.errors import BudgetExceeded
from fedgauge.site import Account, Cost, Ledger

ACCOUNT = Account("stroke", "example", "add-remove")


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
        for module, names in (
            (os, ("open", "close", "chmod", "fsync", "replace", "fdopen")),
            (tempfile, ("mkstemp",)),
            (fcntl, ("flock",)),
        ):
            for name in names:
                setattr(module, name, self.around(getattr(module, name)))
        execute = self.around(sqlite3.Connection.execute)
        connect = self.around(sqlite3.connect)
        factory = type("Watched", (sqlite3.Connection,), {"execute": execute})
        sqlite3.connect = lambda *args, **options: connect(*args, **options, factory=factory)


def open_ledger(request):
    folder = Path(request["folder"])
    return Ledger(folder / "ledger.sqlite", head=folder / "head")


def reserve(ledger, session, request):
    ledger.reserve(
        session, ACCOUNT, Cost(request["cost"], 0.0), default_limit=Cost(request["limit"], 0.0)
    )


def spend_once(request, report):
    """Reserve and commit one session, saying when each call has returned."""
    ledger, session = open_ledger(request), bytes.fromhex(request["session"])
    Deadline(request["last"]).watch()
    reserve(ledger, session, request)
    os.write(report, b"reserve ")
    ledger.commit(session)
    os.write(report, b"commit ")


def spend_on(request, report):
    """Spend until killed, naming each session committed."""
    ledger = open_ledger(request)
    while True:
        session = os.urandom(32)
        reserve(ledger, session, request)
        ledger.commit(session)
        os.write(report, f"{session.hex()} ".encode())


def spend_all(request, report):
    """Try a number of times, naming each session committed."""
    ledger = open_ledger(request)
    for _ in range(request["tries"]):
        session = os.urandom(32)
        try:
            reserve(ledger, session, request)
        except BudgetExceeded:
            continue
        ledger.commit(session)
        os.write(report, f"{session.hex()} ".encode())


def fork(work, request, report):
    child = os.fork()
    if child:
        return child
    try:
        work(request, report)
        os._exit(0)
    except BaseException as error:
        os.write(2, f"{error!r}\n".encode())
        os._exit(1)


def answer(request):
    work = {"once": spend_once, "on": spend_on, "all": spend_all}[request["work"]]
    reading, writing = os.pipe()
    children = [fork(work, request, writing) for _ in range(request.get("processes", 1))]
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        said = b""
        if "seconds" in request:
            said = pipe.read(1)  # until something is spent, on however slow a machine
            time.sleep(request["seconds"])
            for child in children:
                os.kill(child, signal.SIGKILL)
        said += pipe.readall()
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return {"said": said.decode().split(), "codes": codes}


def main():
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
