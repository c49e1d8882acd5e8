"""The rows of one client in every form in which they may come."""

import csv

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import fedgauge as fg

QUERY = "select y, p from scores"
NAMED = {"label": "y", "score": "p"}
LAZY = ("polars lazy", "duckdb", "ibis")
INSIDE = ("psycopg, inside", "adbc, inside")


def write_csv(table, path):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.column_names)
        writer.writerows(zip(*table.to_pydict().values(), strict=True))
    return path


def write_parquet(table, path):
    pq.write_table(table, path)
    return path


def sources(table, databases, folder):
    """What a table of labels `y` and scores `p` is, as the data of one client, by the form's name.

    Of forms that cannot hold such columns there is none.
    """
    databases.fill(table, but=("sqlite",) if pa.types.is_decimal(table["p"].type) else ())
    columns = table.to_pydict()
    forms = {
        "lists": (columns["y"], columns["p"]),
        "arrow columns": (table["y"], table["p"]),
        "arrow": fg.ScoreTable(table, **NAMED),
        "pandas": fg.ScoreTable(table.to_pandas(), **NAMED),
        "polars": fg.ScoreTable(pl.from_arrow(table), **NAMED),
        "csv": fg.ScoreFile(write_csv(table, folder / "scores.csv"), **NAMED),
        "parquet": fg.ScoreFile(write_parquet(table, folder / "scores.parquet"), **NAMED),
        "polars lazy": fg.ScoreTable(pl.from_arrow(table).lazy(), **NAMED),
        "duckdb": fg.ScoreTable(databases.duckdb.table("scores"), **NAMED),
        "ibis": fg.ScoreTable(databases.ibis.table("scores"), **NAMED),
        "sqlite query": fg.ScoreQuery(databases.sqlite, QUERY),
        "duckdb query": fg.ScoreQuery(databases.duckdb, QUERY),
    }
    if databases.psycopg is not None:
        for name in ("psycopg", "adbc"):
            connection = getattr(databases, name)
            forms[name] = fg.ScoreQuery(connection, QUERY)
            forms[f"{name}, inside"] = fg.ScoreQuery(connection, QUERY, inside=True)
    if pa.types.is_decimal(table["p"].type):
        del forms["sqlite query"]
    return forms
