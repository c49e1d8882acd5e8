"""Databases for tests: a PostgreSQL that is started on a socket in a folder, and rows put in."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

PLACES = ("/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin", "/usr/local/bin", "/usr/bin")
OWNERS = ("postgres", "nobody")  # it refuses to run as root


def find_server():
    """The folder of PostgreSQL's programs; None where it is not installed."""
    for pattern in PLACES:
        found = sorted(Path("/").glob(f"{pattern[1:]}/initdb"))
        if found:
            return found[-1].resolve().parent
    return None


def as_owner(*command):
    """The command as a user that PostgreSQL accepts."""
    if os.geteuid():
        return [*command]
    runuser = shutil.which("runuser")
    for owner in OWNERS:
        with contextlib.suppress(KeyError):
            shutil.os.stat("/")
            __import__("pwd").getpwnam(owner)
            return [runuser, "-u", owner, "--", *command]
    return [*command]


@contextlib.contextmanager
def serving_postgres():
    """Run a server of its own, without a port; how to connect to it."""
    programs = find_server()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    # Short: the path of a socket has at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    folder.chmod(0o777)
    data = folder / "data"

    def run(*command):
        subprocess.run(as_owner(*map(str, command)), check=True, capture_output=True, cwd=folder)

    try:
        run(
            programs / "initdb",
            "-D",
            data,
            "-A",
            "trust",
            "-U",
            "tester",
            "--no-sync",
            "-E",
            "UTF8",
        )
        options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"
        run(programs / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")
        try:
            yield f"host={folder} user=tester dbname=postgres"
        finally:
            run(programs / "pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
