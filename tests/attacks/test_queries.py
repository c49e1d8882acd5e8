"""A coordinator that wants a database to run something else than the query in the site file, or to
learn of a row from how that fails. It chooses plans: names of groups and models, labels, edges."""

import re
import sqlite3
import traceback
from contextlib import suppress

import pytest
from consortium import NAMES, A
from databases import MISSING, connected, find_postgres
from exchange import CLIENTS, NOISY, begun, make_world
from sites import open_policy

import fedgauge as fg
from fedgauge.engines.contribution import count_leniently
from fedgauge.engines.exchange import Exchange, join
from fedgauge.errors import FedgaugeError
from fedgauge.secagg import Stage
from sources import QUERY

pytestmark = pytest.mark.usefixtures("few_redraws", "quick_disk")
THREE = NAMES[:3]
EVIL = "'; drop table scores; --"
QUOTED = '"); drop table scores; --'
DATA = '\n[data]\nquery = "select y, p from scores"\nlabel = "y"\nscore = "p"\n'


# All that may stand in what is run, besides the site's query and numbers.
WORDS = {
    *[
        "select",
        "from",
        "as",
        "scores",
        "where",
        "false",
        "group",
        "by",
        "case",
        "when",
        "then",
        "and",
        "end",
        "floor",
        "int",
    ]
}
WORDS |= {"width_bucket", "c1", "c2", "count", "float8"}


class Watched:
    """A database that keeps what it was asked to run."""

    def __init__(self, path):
        self.path = path
        self.run = []

    def connect(self):
        connection = sqlite3.connect(self.path)
        connection.set_trace_callback(self.run.append)
        return connection


@pytest.fixture
def database(tmp_path, monkeypatch):
    labels, scores = CLIENTS[A]
    watched = Watched(tmp_path / "scores.db")
    with sqlite3.connect(watched.path) as connection:
        connection.execute("create table scores (y, p)")
        rows = zip(map(int, labels), scores.tolist(), strict=True)
        connection.executemany("insert into scores values (?, ?)", rows)
    monkeypatch.setattr("fedgauge.site.rows.connect_by_environment", watched.connect)
    return watched


def declared(world, database, table=DATA):
    """The site's file names its query; others join with their files."""
    del database
    path = world.site_file(A)
    path.write_text(path.read_text() + table)
    return world


def join_declared(world):
    site = world.site(A)
    return join(Exchange(world.run, site), site)


def hostile_plans():
    axis = fg.Axis.from_edges([-1e308, 0.0, 0.5, 1.0], outside="clip")
    noisy = {"privacy": fg.DistributedDP(1.0)}
    for task in (
        fg.BinaryTask(positive=EVIL),
        fg.BinaryTask(groups={EVIL: ["a", QUOTED]}),
        fg.BinaryTask(models=[EVIL, QUOTED]),
        fg.BinaryTask(groups={QUOTED: [EVIL]}, models=[QUOTED, "b"]),
        fg.MulticlassTask(labels=[EVIL, QUOTED, "c"]),
    ):
        yield fg.EvaluationPlan.for_histogram(axis, fg.Cohort(3, 1), task=task, **noisy)
    yield fg.EvaluationPlan.for_histogram(axis, fg.Cohort(3, 1), **noisy)


@pytest.mark.parametrize("plan", [*hostile_plans()])
def test_no_plan_changes_what_the_database_runs(plan, tmp_path, database):
    world = declared(begun(tmp_path, THREE, plan, open_policy(labels=("1", EVIL))), database)
    with suppress(FedgaugeError):  # the site's data are not of such a plan
        join_declared(world)
    assert {*database.run} <= {QUERY}


def test_an_evaluation_by_a_query_gives_what_files_give(tmp_path, database):
    world = declared(begun(tmp_path, THREE, NOISY), database)
    expected, _ = count_leniently(NOISY, lambda: CLIENTS[A])
    join_declared(world)
    for name in THREE[1:]:
        world.answer(world.run, name, Stage.ADVERTISE)
    world.advance(world.run)
    assert world.finish(Stage.SHARE).clients == 3
    assert {*database.run} == {QUERY}
    site = world.site(A)
    assert count_leniently(NOISY, lambda: site.data.file(NOISY))[0] == expected


@pytest.fixture(scope="module")
def postgres():
    if find_postgres() is None:
        pytest.skip(MISSING)
    with connected() as databases:
        yield databases


class Recorded:
    """A connection that keeps what is run over it."""

    def __init__(self, connection, run):
        self._connection, self._run = connection, run

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def cursor(self):
        cursor, run = self._connection.cursor(), self._run

        class Cursor:
            def __getattr__(self, name):
                return getattr(cursor, name)

            def execute(self, query):
                run.append(query)
                return cursor.execute(query)

        return Cursor()


def test_counted_inside_a_database_the_text_holds_numbers_of_the_plan_alone(postgres):
    import pyarrow as pa

    postgres.fill(pa.table({"y": [0, 1, 1], "p": [0.1, 0.2, 0.9]}))
    run = []
    for plan in hostile_plans():
        if plan.task.layout.is_plain:
            query = fg.ScoreQuery(Recorded(postgres.adbc, run), QUERY, inside=True)
            count_leniently(plan, lambda query=query: query)
    assert len(run) == 4
    for text in run:
        rest = re.sub(r"'\{?([^'{}]*)\}?'::float8", numbers_alone, text.replace(QUERY, "?"))
        assert set(re.findall(r"[a-z]\w*|['\";]|--", rest)) <= WORDS, rest


def numbers_alone(quoted):
    assert all(float(each) is not None for each in quoted[1].split(","))
    return ""


@pytest.mark.parametrize("inside", [False, True])
def test_what_a_database_says_of_a_row_reaches_nobody(postgres, inside):
    """A cast of the site's own fails at a row, and PostgreSQL quotes it."""
    import pyarrow as pa

    postgres.fill(pa.table({"y": [1, 1], "p": ["0.5", "patient 4711"]}))
    cast = "select y, p::float8 as p from scores"
    for connection in (postgres.adbc, postgres.psycopg):
        query = fg.ScoreQuery(connection, cast, inside=inside)
        with pytest.raises(fg.InputError) as caught:
            fg.evaluate({"a": query})
        told = "".join(traceback.format_exception(caught.value))
        _, oddities = count_leniently(NOISY, lambda query=query: query)
        postgres.psycopg.rollback()
        assert oddities.failure
        assert "4711" not in told + oddities.failure


def test_a_site_file_names_a_file_or_a_query_and_a_connection_is_nowhere_in_it(tmp_path, database):
    world = make_world(tmp_path, THREE, NOISY)
    for table, told in (
        ('query = "select 1"\npath = "a.csv"\nlabel = "y"', "one of both"),
        ('label = "y"', "one of both"),
        ('query = "select 1"', "label must name"),
        ('query = "select 1"\nlabel = "y"\nconnection = "postgresql://a"', "connection"),
    ):
        kept = world.site_file(A).read_text()
        declared(world, database, f"\n[data]\n{table}\n")
        with pytest.raises(fg.SiteError, match=told):
            world.site(A)
        world.site_file(A).write_text(kept)
