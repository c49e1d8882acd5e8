"""Three hospitals with agents and a coordinator, week after week, by a clock that the test sets."""

import errno
import os
import sqlite3
import tempfile
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from consortium import COORDINATOR, NAMES, Consortium
from counts import pooled_counts
from forks import Deadline
from rows import draw_client
from sites import open_policy

from fedgauge import storage
from fedgauge.engines.agent import Agent
from fedgauge.engines.coordinator import EvaluationSeries, Finished
from fedgauge.plan import plan as plans

MONDAY = datetime(2026, 1, 5, 6, tzinfo=UTC)
DAY = timedelta(days=1)
WEEK = timedelta(days=7)
MINUTE = timedelta(minutes=1)
WEEKLY = """
[data]
path = "scores/{year}-W{week}.csv"
label = "y"
score = "p"
periods = "disjoint"
"""


class Killed(BaseException):
    """The end of a process, as far as one test in a process can have it."""


class Raising(Deadline):
    """Ends what runs at the n-th point that is passed."""

    def point(self):
        self.passed += 1
        if self.passed == self.last:
            raise Killed


@contextmanager
def dying(last):
    """What runs in here ends just before its n-th change of a file."""
    patched = [(os, "replace"), (os, "unlink"), (os, "mkdir"), (tempfile, "mkstemp")]
    saved = [(*each, getattr(*each)) for each in [*patched, (sqlite3, "connect")]]
    deadline = Raising(last)
    deadline.watch_changes()
    try:
        yield deadline
    except Killed:
        pass
    finally:
        for module, name, value in saved:
            setattr(module, name, value)


@contextmanager
def full_disk(folder, patch):
    """Nothing can be written below a folder."""
    make = storage._temporary
    connect = sqlite3.connect

    def refusing(path):
        if Path(path).is_relative_to(folder):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return make(path)

    class Full(sqlite3.Connection):
        def execute(self, statement, *args):
            if statement == "COMMIT":
                raise sqlite3.OperationalError("database or disk is full")
            return super().execute(statement, *args)

    def connected(database, *args, **options):
        full = str(folder) in str(database)
        return connect(database, *args, **({"factory": Full} if full else {}) | options)

    with patch.context() as within:
        within.setattr(storage, "_temporary", refusing)
        within.setattr(sqlite3, "connect", connected)
        yield


class Hospitals(Consortium):
    """Their site files declare the rows of each week; agents and the run are made again to restart.

    `clock` is the time everywhere.
    """

    def __init__(self, folder, names):
        super().__init__(folder, names)
        self.clock = MONDAY
        self.shared = self.folder / "shared"
        self.shared.mkdir()
        self.agents = {}
        self.told = []  # what agents said, with the name of the site
        self.down = set()  # sites whose agent does not run

    @classmethod
    def declared(cls, folder, plan, names=NAMES[:3], table=WEEKLY, **policy):
        made = cls.make(
            folder, names, policy=open_policy(**({"findings": "stop"} | policy)), dataset="stroke"
        )
        for name in names:
            path = made.site_file(name)
            path.write_text(path.read_text() + table)
        made.plan = plan
        return made

    def rows_of(self, name, week):
        """The rows of one hospital in a week: these numbers follow from both."""
        number = 1000 * self.names.index(name) + int(week[-2:]) + 53 * int(week[:4])
        return draw_client(60, seed=number)

    def export(self, name, week, rows=None):
        """Write a week's file; the week is named as in 2026-W02."""
        labels, scores = self.rows_of(name, week) if rows is None else rows
        path = self.folder / name / "scores" / f"{week}.csv"
        path.parent.mkdir(exist_ok=True)
        lines = [f"{y},{p!r}\n" for y, p in zip(labels, np.asarray(scores).tolist(), strict=True)]
        path.write_text(f"y,p\n{''.join(lines)}")
        return path

    @property
    def week(self):
        """The last week that is over."""
        iso = (self.clock - WEEK).isocalendar()
        return f"{iso.year}-W{iso.week:02}"

    def export_all(self):
        for name in self.names:
            self.export(name, self.week)

    def agent(self, name):
        if name not in self.agents:
            self.agents[name] = Agent(self.shared, self.site_file(name))
        return self.agents[name]

    def restart(self, name):
        """Kill an agent: all it knows is gone."""
        self.agents.pop(name, None)

    def look(self, name):
        """One step of an agent; what it said."""
        said = self.agent(name).step(self.clock)
        self.told += [(name, event) for event in said]
        return said

    def kinds(self, name):
        return [event.kind for site, event in self.told if site == name]

    def killed(self, name, last):
        """Whether an agent was killed just before its n-th change of a file in one step."""
        with dying(last) as deadline:
            self.look(name)
        self.restart(name)
        return deadline.passed >= last

    def running(self, **options):
        """The coordinator's side of an evaluation: made again, it is one that was restarted."""
        members = [self.keys[name] for name in self.names]
        return EvaluationSeries(self.shared, self.site(COORDINATOR), self.plan, members, **options)

    def tick(self, **options):
        """A minute in the life of all."""
        outcome = self.running(**options).step(self.clock)
        if not isinstance(outcome, Finished):
            for name in self.names:
                if name not in self.down:
                    self.look(name)
        self.clock += MINUTE
        return outcome

    def until_finished(self, ticks=60, **options):
        for _ in range(ticks):
            outcome = self.tick(**options)
            if isinstance(outcome, Finished):
                self.running().close()
                return outcome
        raise AssertionError(f"no result after {ticks} minutes: {outcome}, {self.told[-6:]}")

    def truth(self, week=None):
        """Counts of all rows of a week."""
        return pooled_counts(
            self.plan, {name: self.rows_of(name, week or self.week) for name in self.names}
        )

    def enter(self, patch):
        """Make the clock that of all sites and of their ledgers."""
        self.patch = patch
        patch.setattr(plans, "now", lambda: self.clock)
