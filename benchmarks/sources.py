"""Count rows where they live: processor time next to the database's own aggregate, in one run.

``python benchmarks/sources.py [ROWS]`` makes its tables itself. PostgreSQL is counted with the
processor time of its backend, and left out where it is not installed.
"""

import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fedgauge as fg
from fedgauge.engines.contribution import count_rows

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from databases import MISSING, find_postgres, serving_postgres

ROWS = 10_000_000
PARTS = 10
REPEATS = 3
NAMED = {"label": "y", "score": "p"}
FOLDER = "--folder"  # counts one, in a process of its own
TICK = os.sysconf("SC_CLK_TCK")


def plan_of(bins):
    """A plan on so many equal bins."""
    return fg.EvaluationPlan.for_histogram(fg.Axis.uniform(bins), fg.Cohort(3))


def seconds(run, *, backend=None):
    """The least processor time of some runs: of this process, and of a backend if there is one."""

    def used():
        if backend is None:
            return time.process_time()
        fields = Path(f"/proc/{backend}/stat").read_text().rpartition(")")[2].split()
        return time.process_time() + (int(fields[11]) + int(fields[12])) / TICK

    taken = []
    for _ in range(REPEATS):
        start = used()
        run()
        taken.append(used() - start)
    return min(taken)


def line(what, ours, theirs, limit):
    """Print a ratio next to what it should be."""
    ratio = ours / theirs
    print(f"{what:62s} {ours:7.2f} s {theirs:7.2f} s   ratio {ratio:5.2f}   (at most {limit})")


def in_duckdb(table):
    """A lazy frame next to a query by hand."""
    with duckdb.connect() as connection:
        connection.register("given", table)
        connection.execute("create table scores as select * from given")
        connection.unregister("given")
        by_hand = "select y, floor(p * 4096)::bigint, count(*) from scores group by 1, 2"
        theirs = seconds(lambda: connection.sql(by_hand).fetchall())
        lazy = fg.ScoreTable(connection.table("scores"), **NAMED)
        ours = seconds(lambda: count_rows(plan_of(4096), lazy))
        line("DuckDB, 4,096 bins: lazy frame / its own group by", ours, theirs, 1.5)


def in_postgres(table):
    """Counting inside next to fetching rows in Arrow."""
    import adbc_driver_postgresql.dbapi as adbc

    with (
        serving_postgres() as folder,
        contextlib.closing(adbc.connect(f"postgresql://tester@/postgres?host={folder}")) as made,
    ):
        with made.cursor() as cursor:
            cursor.adbc_ingest("scores", table)
            cursor.execute("set max_parallel_workers_per_gather = 0")
        made.commit()
        with made.cursor() as cursor:
            cursor.execute("select pg_backend_pid()")
            [(backend,)] = cursor.fetchall()
        query = "select y, p from scores"
        for bins, limit in ((4096, 1.2), (128, 0.8)):
            plan = plan_of(bins)
            times = [
                seconds(
                    lambda plan=plan, inside=inside: count_rows(
                        plan, fg.ScoreQuery(made, query, inside=inside)
                    ),
                    backend=backend,
                )
                for inside in (True, False)
            ]
            line(f"PostgreSQL, {bins:,} bins: inside / fetched over ADBC", *times, limit)


def in_folders(table):
    """A folder of ten partitions next to DuckDB's aggregate, and the memory of both sizes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "part.parquet"
        pq.write_table(table, file)
        for part in range(PARTS):
            (folder / "lake" / f"site={part}").mkdir(parents=True)
            os.link(file, folder / "lake" / f"site={part}" / "part.parquet")
        by_hand = (
            f"select y, floor(p * 4096)::bigint, count(*) from read_parquet('{folder}/lake/*/*', "  # noqa: S608
            "hive_partitioning = true) group by 1, 2"
        )
        with duckdb.connect() as connection:
            theirs = seconds(lambda: connection.sql(by_hand).fetchall())
        clients = fg.ScoreTable(folder / "lake", client="site", **NAMED)
        ours = seconds(lambda: fg.evaluate(clients, axis=fg.Axis.uniform(4096)))
        rows = len(table) * PARTS
        line(f"{rows:,} rows in {PARTS} partitions: fedgauge / DuckDB", ours, theirs, 2)
        for what, part in (("one partition", "lake/site=0"), ("all of them", "lake")):
            command = [sys.executable, __file__, FOLDER, str(folder / part)]
            told = subprocess.run(command, capture_output=True, text=True, check=True)
            print(f"  peak memory over {what}: {told.stdout.strip()}")


def main():
    """Print the ratios, and how busy the machine was."""
    if sys.argv[1:2] == [FOLDER]:
        fg.evaluate({"all": fg.ScoreTable(sys.argv[2], **NAMED)}, axis=fg.Axis.uniform(4096))
        print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")
        return
    rows = int(sys.argv[1]) if sys.argv[1:] else ROWS
    print(f"{rows:,} rows; processor time of ours and of the peer; load {os.getloadavg()[0]:.1f}")
    rng = np.random.default_rng(0)
    scores = rng.random(rows)
    table = pa.table({"y": (rng.random(rows) < scores).astype(np.int64), "p": scores})
    in_duckdb(table)
    if find_postgres() is None:
        print(MISSING)
    else:
        in_postgres(table)
    in_folders(table)
    print(f"load at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
