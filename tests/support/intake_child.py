"""Takes in reports in processes of its own, which are killed when told to: at a call, or later."""

import os
from functools import partial
from pathlib import Path

from forks import Deadline, answer_with, serve

import fedgauge as fg
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.local.encode import find_second

FILES = [(os, name) for name in ("open", "fsync", "fdopen")]


def take(request, report):
    """Accept every message in order, naming each that was acknowledged."""
    plan = fg.EvaluationPlan.load(request["plan"])
    messages = [path.read_bytes() for path in sorted(Path(request["inbox"]).iterdir())]
    if "last" in request:
        calls = ("execute", "executemany", "close")
        Deadline(request["last"]).watch_around(FILES, connection=calls)
    with fg.ReportServer(plan, request["folder"]) as server:
        for number, message in enumerate(messages[request.get("first", 0) :]):
            server.accept(message)
            os.write(report, f"{number + request.get('first', 0)} ".encode())
        if plan.is_search:  # signed with another key each time: made twice, it would differ
            second = find_second(server, SigningKey.generate())
            os.write(report, key_to_text(second.signer).encode())


if __name__ == "__main__":
    serve(partial(answer_with, take))
