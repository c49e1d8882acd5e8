"""Databases for tests: a PostgreSQL that is started on a socket in a folder, and tables in them."""

import contextlib
import os
import pwd
import shutil
import sqlite3
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import adbc_driver_postgresql.dbapi as adbc
import duckdb
import ibis
import psycopg
import pytest

PLACES = ("usr/lib/postgresql/*/bin", "usr/local/pgsql/bin", "usr/bin", "usr/local/bin")
MISSING = "PostgreSQL is not installed: apt-get install postgresql"
OWNERS = ("postgres", "nobody")  # it refuses to run as root
IN_POSTGRES = {
    "bool": "boolean",
    "int64": "bigint",
    "double": "double precision",
    "float": "real",
    "string": "text",
    "decimal128(38, 30)": "numeric",
}


def as_owner():
    """What to put before a command, so that a user runs it whom PostgreSQL accepts."""
    if os.geteuid():
        return []
    known = {entry.pw_name for entry in pwd.getpwall()}
    return ["runuser", "-u", next(name for name in OWNERS if name in known), "--"]


def find_postgres():
    """The folder of its programs; None where it is not installed."""
    found = [place for each in PLACES for place in sorted(Path("/").glob(f"{each}/initdb"))]
    return found[0].parent if found else None


@contextlib.contextmanager
def serving_postgres():
    """Run a server of its own on a socket in a folder, without a port; the folder."""
    programs = find_postgres()
    if programs is None:
        pytest.skip(MISSING)
    # Short: the path of a socket has at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    folder.chmod(0o777)
    data = folder / "data"

    def run(program, *options):
        command = [*as_owner(), programs / program, "-D", data, *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)

    try:
        run("initdb", "-A", "trust", "-U", "tester", "-E", "UTF8", "--no-sync")
        options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"
        run("pg_ctl", "-w", "-l", folder / "log", "-o", options, "start")
        try:
            yield folder
        finally:
            run("pg_ctl", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Databases(NamedTuple):
    """Connections of every kind to empty databases; PostgreSQL has two, or none."""

    psycopg: psycopg.Connection | None
    adbc: adbc.Connection | None
    sqlite: sqlite3.Connection
    duckdb: duckdb.DuckDBPyConnection
    ibis: ibis.BaseBackend

    def fill(self, table, *, but=()):
        """Put a table of Arrow into all of them, as `scores`, `but` into those named."""
        for connection in (self.duckdb, self.ibis.con):
            connection.register("given", table)
            connection.execute("create or replace table scores as select * from given")
            connection.unregister("given")
        columns = table.to_pydict()
        rows = list(zip(*columns.values(), strict=True))
        if "sqlite" not in but:
            self.sqlite.execute("drop table if exists scores")
            self.sqlite.execute(f"create table scores ({', '.join(columns)})")
            marks = ", ".join("?" * len(columns))
            self.sqlite.executemany(f"insert into scores values ({marks})", rows)  # noqa: S608
        if self.psycopg is None:
            return
        kinds = [IN_POSTGRES[str(kind)] for kind in table.schema.types]
        named = ", ".join(map(" ".join, zip(columns, kinds, strict=True)))
        with self.psycopg.cursor() as cursor:
            cursor.execute(f"drop table if exists scores; create table scores ({named})")
            with cursor.copy("copy scores from stdin") as copy:
                for row in rows:
                    copy.write_row(row)
        self.psycopg.commit()


@contextlib.contextmanager
def connected():
    """Empty databases of every kind, PostgreSQL among them."""
    with contextlib.ExitStack() as stack:
        one = other = None
        if find_postgres() is not None:
            folder = stack.enter_context(serving_postgres())
            one = stack.enter_context(psycopg.connect(f"host={folder} user=tester dbname=postgres"))
            other = adbc.connect(f"postgresql://tester@/postgres?host={folder}", autocommit=True)
            stack.enter_context(contextlib.closing(other))
        lite = stack.enter_context(contextlib.closing(sqlite3.connect(":memory:")))
        duck = stack.enter_context(duckdb.connect())
        yield Databases(one, other, lite, duck, ibis.duckdb.connect())
