"""Runs commands of fedgauge, each in a process of its own that ends when told to. A request may
name the step at which its process is killed."""

import os
import sys
import tempfile
import time
from pathlib import Path

import warm  # noqa: F401
from forks import Deadline, serve

from fedgauge import cli
from fedgauge.engines.folder import LocalFolder
from fedgauge.engines.participant import Participant


def meet_the_other(folder):
    """Wait for another process just before a session is stored; leave a copy of what is sent."""
    store, write = Participant._store, LocalFolder.write
    own = str(os.getpid())

    def store_together(*args):
        Path(folder, own).touch()
        deadline = time.monotonic() + 1.0
        while len(list(Path(folder).glob("[0-9]*"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        return store(*args)

    def write_copy(where, name, data):
        Path(folder, f"sent-{own}").write_bytes(data)
        return write(where, name, data)

    Participant._store = store_together
    LocalFolder.write = write_copy


def run(request, out, err):
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    sys.argv = ["fedgauge", *request["arguments"]]
    if "meet" in request:
        meet_the_other(request["meet"])
    if request.get("last"):
        Deadline(request["last"]).watch_changes()
    cli.end_at_once = sys.exit
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


def answer(requests):
    begun = [begin(request) for request in requests]
    return [end(*each) for each in begun]


if __name__ == "__main__":
    serve(answer)
