"""Shells in which `fedgauge` starts at once: a process with everything imported forks it. Seen from
a script it is a command like any other: it has its own working folder, environment, streams and
exit code. What it does not show is that the installed command finds its imports, which a few tests
of tests/unit/test_cli.py do."""

import json
import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

from forks import fast_folder

# Takes 20 ms where the command itself takes more than a second to import all it needs.
_COMMAND = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    request = {{"arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}
    socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
    code = server.recv(16)
sys.exit(int(code))
"""
# What a script leaves running ends with it, however it ends.
_BEFORE = "set -euo pipefail; trap 'kill $(jobs -p) 2> /dev/null || true' EXIT"
_LONGEST = 1 << 20  # bytes of a request


@contextmanager
def serving_shells():
    """What is yielded runs a script in a folder and gives what became of it."""
    with fast_folder() as folder:
        address, command = folder / "socket", folder / "fedgauge"
        command.write_text(_COMMAND.format(python=sys.executable, address=str(address)))
        command.chmod(command.stat().st_mode | stat.S_IXUSR)
        path = os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])
        server = subprocess.Popen(
            [sys.executable, Path(__file__), address],
            stdout=subprocess.PIPE,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        )
        with server:
            try:
                assert server.stdout.readline() == b"ready\n"

                def run(script, folder, **environment):
                    return subprocess.run(
                        [shutil.which("bash"), "-c", f"{_BEFORE}\n{script}"],
                        cwd=folder,
                        env=os.environ | {"PATH": path} | environment,
                        capture_output=True,
                        text=True,
                        check=False,
                    )

                yield run
            finally:
                server.terminate()


def _serve(address):
    """Run the commands that come, each in a fork, also several at a time."""
    import warm  # noqa: F401

    from fedgauge import cli

    cli.end_at_once = sys.exit
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who watch commands

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        os.write(1, b"ready\n")
        while True:
            connection, _ = server.accept()
            with connection:
                data, streams, _, _ = socket.recv_fds(connection, _LONGEST, 3)
                if not os.fork():
                    server.close()
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    _watch(connection, json.loads(data), streams, cli.main)
                for stream in streams:
                    os.close(stream)


def _watch(connection, request, streams, main):
    """Run one command, say how it ended, and end it when its caller is killed."""
    running, at_work = os.pipe()  # its end is that of the command
    child = os.fork()
    if not child:
        os.close(running)
        connection.close()
        _become(request, streams, main)
    for each in (at_work, *streams):
        os.close(each)
    ready, _, _ = select.select([running, connection], [], [])
    if running not in ready:
        os.kill(child, signal.SIGTERM)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with suppress(OSError):
        connection.sendall(str(code).encode())
    os._exit(0)


def _become(request, streams, main):
    """Run one command as its caller asked, and end."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["fedgauge", *request["arguments"]]
    code = 70
    try:
        main()
    except SystemExit as done:
        code = done.code or 0
    except BaseException as error:
        os.write(2, f"{error!r}\n".encode())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1])
