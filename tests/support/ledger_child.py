"""Spends from a ledger in processes of its own, which end when told to: at a call, or later."""

import fcntl
import os
import tempfile
from pathlib import Path

from forks import Deadline, answer_with, serve

from fedgauge.errors import BudgetExceeded
from fedgauge.site import Account, Cost, Ledger

ACCOUNT = Account("stroke", "example", "add-remove")
FILES = [
    *((os, name) for name in ("open", "close", "chmod", "fsync", "replace", "fdopen")),
    (tempfile, "mkstemp"),
    (fcntl, "flock"),
]


def open_ledger(request):
    folder = Path(request["folder"])
    witness = folder / "elsewhere" / "witness"
    return Ledger(
        folder / "ledger.sqlite",
        head=folder / "head",
        witness=witness if witness.parent.exists() else None,
    )


def reserve(ledger, session, request):
    ledger.reserve(
        session, ACCOUNT, Cost(request["cost"], 0.0), default_limit=Cost(request["limit"], 0.0)
    )


def spend_once(request, report):
    """Reserve and commit one session, saying when each call has returned."""
    ledger, session = open_ledger(request), bytes.fromhex(request["session"])
    Deadline(request["last"]).watch_around(FILES, connection=("execute",))
    reserve(ledger, session, request)
    os.write(report, b"reserve ")
    ledger.commit(session)
    os.write(report, b"commit ")


def begin(request, _):
    """Make a ledger and give it a witness."""
    folder = Path(request["folder"])
    Deadline(request["last"]).watch_around(FILES, connection=("execute",))
    ledger = Ledger.create(folder / "ledger.sqlite", head=folder / "head")
    ledger.appoint(folder / "elsewhere" / "witness")


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


def answer(request):
    work = {"begin": begin, "once": spend_once, "on": spend_on, "all": spend_all}
    return answer_with(work[request["work"]], request)


if __name__ == "__main__":
    serve(answer)
