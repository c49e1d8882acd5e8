"""Queries as data: which columns, which drivers, and what is said where one fails."""

import sqlite3
import sys
import traceback
from types import SimpleNamespace

import adbc_driver_sqlite.dbapi as adbc_sqlite
import duckdb
import numpy as np
import pytest

import fedgauge as fg
from fedgauge.data.queries import connect_by_environment, counting_query
from fedgauge.engines.contribution import count_leniently, count_rows
from fedgauge.histograms.cut_points import CutPoints

PLAN = fg.EvaluationPlan.for_histogram(fg.Axis.uniform(4), fg.Cohort(3))
CLIPPING = fg.Axis.uniform(4, outside="clip")
NOISY = fg.EvaluationPlan.for_histogram(CLIPPING, fg.Cohort(3), privacy=fg.DistributedDP(1.0))
QUOTED = "0.987654321"


@pytest.fixture
def connection():
    made = sqlite3.connect(":memory:")
    made.execute("create table scores (y, p, q, sex, who)")
    rows = [(0, 0.1, 0.2, "f", "a"), (1, 0.9, 0.3, "m", "a"), (1, 0.6, 0.8, "f", "b")]
    made.executemany("insert into scores values (?, ?, ?, ?, ?)", rows * 50_000)
    yield made
    made.close()


def refused(make):
    with pytest.raises(fg.InputError) as caught:
        make()
    return str(caught.value)


def test_two_columns_need_no_names_and_others_do(connection):
    plain = count_rows(PLAN, fg.ScoreQuery(connection, "select y, p from scores;"))
    assert plain.counts.tolist() == [[50_000, 0, 0, 0], [0, 0, 50_000, 50_000]]
    named = fg.ScoreQuery(connection, "select * from scores", label="y", score="p")
    assert count_rows(PLAN, named) == plain
    assert "returns 5 columns" in refused(fg.ScoreQuery(connection, "select * from scores").check)
    lacking = fg.ScoreQuery(connection, "select y from scores", label="y", score="p")
    assert "there is no column 'p'" in refused(lacking.check)
    assert "there is no column 'p'" in refused(lambda: list(lacking()))


def test_models_groups_and_subjects_are_read_like_those_of_a_file(connection):
    query = fg.ScoreQuery(
        connection,
        "select * from scores limit 30",
        label="y",
        score={"new": "p", "old": "q"},
        group={"sex": "sex"},
        subject="who",
    )
    result = fg.evaluate({"a": query}, models=["new", "old"], groups={"sex": ["f", "m"]})
    assert result.select(model="old", group="f").positives == 10
    capped = fg.DistributedDP(1.0, unit="subject", max_per_unit=3)
    plan = fg.EvaluationPlan.for_histogram(CLIPPING, fg.Cohort(3), privacy=capped)
    one = fg.ScoreQuery(
        connection, "select * from scores limit 30", label="y", score="p", subject="who"
    )
    assert count_leniently(plan, lambda: one)[0].sum() == 6


def test_what_is_no_connection_or_no_query_is_refused(connection):
    assert "got str" in refused(lambda: fg.ScoreQuery("postgresql://a", "select 1"))
    assert "query must be text" in refused(lambda: fg.ScoreQuery(connection, " "))
    assert "of both" in refused(lambda: fg.ScoreQuery(connection, "select 1", label="y"))
    assert "label and score" in refused(lambda: fg.ScoreQuery(connection, "select 1", group="g"))
    table = fg.ScoreQuery(connection, "create table other (y, p)")
    assert "must begin with select" in refused(table.check)


class Quoting:
    """A connection whose driver quotes a row when it fails."""

    def __init__(self, after):
        self._after = after
        self.description = [("y", None), ("p", None)]

    def cursor(self):
        return self

    def close(self):
        pass

    def execute(self, _):
        if not self._after:
            raise RuntimeError(f"invalid input: {QUOTED}")

    def fetchmany(self, _):
        self._after -= 1
        if self._after < 0:
            raise RuntimeError(f"invalid row: ({QUOTED}, 1)")
        return [(1, 0.5)]


@pytest.mark.parametrize("after", [0, 1, 2])
def test_what_a_driver_says_of_a_row_is_told_to_nobody(after):
    data = fg.ScoreQuery(Quoting(after), "select y, p from scores")
    with pytest.raises(fg.InputError, match="RuntimeError") as caught:
        fg.evaluate({"a": data})
    assert QUOTED not in "".join(traceback.format_exception(caught.value))
    histogram, oddities = count_leniently(NOISY, lambda: fg.ScoreQuery(Quoting(after), "select 1"))
    assert histogram.sum() == 0
    assert "RuntimeError" in oddities.failure
    assert QUOTED not in oddities.failure


def test_counting_inside_says_what_it_needs():
    with duckdb.connect() as connection:
        query = fg.ScoreQuery(connection, "select 1 as y, 0.5::double as p", inside=True)
        for use in (query.check, lambda: fg.evaluate({"a": query})):
            assert "type of PostgreSQL" in refused(use)
        assert "type of PostgreSQL" in count_leniently(NOISY, lambda: query)[1].failure


def test_the_counting_query_holds_the_query_and_numbers_alone():
    told = counting_query("select y, p from scores", CutPoints(fg.Axis.uniform(2)), 0, 1, 2)
    assert told.endswith("from (\nselect y, p from scores\n) as scores (c1, c2)\ngroup by 1, 2")
    assert told.startswith(
        "select case when c2 >= '0.0'::float8 and c2 < '1.0'::float8 then "
        "floor(c2 * '2.0'::float8)::int + 2 when "
    )
    many = counting_query("select y, p from scores", CutPoints(fg.Axis.uniform(10)), 1, 0, 2)
    assert many.startswith("select width_bucket(c1::float8, '{-1.7976931348623157e+308,0.0,0.1,")
    assert "1.0,1.0000000000000002,Infinity,NaN}'::float8[]), c2, count(*)\nfrom" in many


def test_a_driver_that_stops_at_one_odd_row_is_refused_where_rows_must_all_count():
    with adbc_sqlite.connect() as connection:
        with connection.cursor() as cursor:
            cursor.execute("create table scores as select 1 as y, 0.5 as p")
        query = fg.ScoreQuery(connection, "select y, p from scores")
        assert count_rows(PLAN, query).sum() == 1
        assert "ADBC driver of SQLite" in refused(query.check)
        assert "ADBC driver of SQLite" in count_leniently(NOISY, lambda: query)[1].failure


def test_rows_of_mappings_are_read_by_name(connection):
    def as_mapping(cursor, row):
        return dict(zip([each[0] for each in cursor.description][::-1], row[::-1], strict=True))

    connection.row_factory = as_mapping
    data = fg.ScoreQuery(connection, "select p, y from scores", label="y", score="p")
    assert count_rows(PLAN, data).counts[1].tolist() == [0, 0, 50_000, 50_000]


def made_elsewhere():
    """What an operator names as module:function."""
    connection = sqlite3.connect(":memory:")
    connection.execute("create table scores as select 1 as y, 0.5 as p")
    return connection


def test_the_environment_names_the_connection(tmp_path, monkeypatch):
    path = tmp_path / "a b.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table scores as select 1 as y, 0.9 as p")
    duck = tmp_path / "scores.duckdb"
    with duckdb.connect(duck) as connection:
        connection.execute("create table scores as select 1 as y, 0.9 as p")
    monkeypatch.setitem(sys.modules, "own", SimpleNamespace(connect=made_elsewhere))
    for place in (f"sqlite:///{path}", f"duckdb:///{duck}", "own:connect"):
        monkeypatch.setenv("FEDGAUGE_DATABASE", place)
        data = fg.ScoreQuery(connect_by_environment, "select y, p from scores")
        assert count_rows(PLAN, data).sum() == 1
        assert len(list(data())) == 1  # opened anew
    for place in ("", "mysql://a", "sqlite://", "scores.db"):
        monkeypatch.setenv("FEDGAUGE_DATABASE", place)
        data = fg.ScoreQuery(connect_by_environment, "select y, p from scores")
        assert "set FEDGAUGE_DATABASE" in refused(data.check)
    monkeypatch.setenv("FEDGAUGE_DATABASE", f"sqlite:///{tmp_path}/none.db")
    assert "no connection to the database: OperationalError" in refused(data.check)


def test_a_large_result_is_read_in_batches(connection):
    batches = list(fg.ScoreQuery(connection, "select y, p from scores")())
    assert [len(batch) for batch in batches] == [65_536, 65_536, 18_928]
    assert all(isinstance(batch.y_score, np.ndarray) for batch in batches)
