"""Sites that exchange files: their data, their folders, and what must come of it."""

import re
import shutil
from contextlib import contextmanager

import msgspec
import numpy as np
import pytest
from consortium import NAMES, A, B, C, Shared
from counts import counts_of, pooled_counts
from forks import fast_folder
from rows import draw_client

import fedgauge as fg
from fedgauge.engines.participant import STEPS
from fedgauge.secagg import Stage
from fedgauge.site import add_witness
from fedgauge.site.rows import NamedRows

CLIENTS = {name: draw_client(60 + 10 * i, seed=i) for i, name in enumerate(NAMES)}
EXACT = fg.EvaluationPlan.for_histogram(fg.Axis.uniform(8, outside="clip"), fg.Cohort(3, 1))
NOISY = fg.EvaluationPlan.for_histogram(
    fg.Axis.uniform(8, outside="clip"), fg.Cohort(3, 1), privacy=fg.DistributedDP(1.0)
)
every_stage = pytest.mark.parametrize("stage", Stage, ids=STEPS.values())
later_stages = pytest.mark.parametrize("stage", list(Stage)[1:], ids=list(STEPS.values())[1:])


class World(Shared):
    """The sites, their data as CSV files, and the run folder they share."""

    def write_data(self):
        for name in self.names:
            labels, scores = CLIENTS[name]
            rows = "".join(f"{y},{p!r}\n" for y, p in zip(labels, scores.tolist(), strict=True))
            (self.folder / f"{name}.csv").write_text(f"y,p\n{rows}")

    def arguments(self, name, verb, *more):
        """The command line of one step."""
        site = ["--site", str(self.site_file(name))]
        if verb == "start":
            return ["exchange", verb, str(self.folder / "plan.json"), str(self.run), *more, *site]
        if verb == "join":
            data = [str(self.folder / f"{name}.csv"), "--label", "y", "--score", "p"]
            return ["exchange", verb, str(self.run), *data, *more, *site]
        return ["exchange", verb, str(self.run), *more, *site]

    def rows(self, name):
        return NamedRows(str(self.folder / f"{name}.csv"), "y", "p")

    def named(self, name):
        """The rows that a site joined with, as it remembers them."""
        (note,) = (self.folder / name / "sessions").glob("*.note")
        return msgspec.json.decode(note.read_bytes(), type=NamedRows)

    def adopt_notes(self):
        """Say in the notes of all sites that their files are here, after they were copied."""
        for name in self.names:
            for note in (self.folder / name / "sessions").glob("*.note"):
                note.write_bytes(msgspec.json.encode(self.rows(name)))

    @property
    def clients(self):
        return {name: CLIENTS[name] for name in self.names}

    def finish(self, since=Stage.ADVERTISE, *, skip=()):
        return self.play(self.run, self.clients, since=since, skip=skip)

    def file_name(self, stage, name, kind="reply"):
        """Of a file from or to a site, where all are invited."""
        number = sorted(self.keys[each] for each in self.names).index(self.keys[name]) + 1
        return f"{stage:d}-{STEPS[stage]}.{number}.{name}.{kind}.fgx"

    def reply(self, stage, name=A):
        return self.run / self.file_name(stage, name)

    def request(self, stage, name=A):
        if stage == Stage.ADVERTISE:
            return self.run / "invitation.fgx"
        return self.run / self.file_name(stage, name, "request")

    def published(self):
        """All that others can have read."""
        files = [*self.run.glob("*.fgx"), *self.run.glob("result.json")]
        return {path.name: path.read_bytes() for path in files}

    def state(self, name=A):
        (path,) = (self.folder / name / "sessions").glob("*.client")
        return path

    def truth(self, names=None):
        return pooled_counts(EXACT, self.clients, names)


def make_world(folder, names=NAMES, plan=EXACT, policy=None):
    world = World.make(folder, names, policy=policy)
    world.write_data()
    plan.save(world.folder / "plan.json")
    return world


def begun(folder, names=NAMES, plan=EXACT, policy=None):
    """A world whose coordinator has invited all sites."""
    world = make_world(folder, names, plan, policy)
    world.start(world.run, plan)
    return world


def appoint(world, name=A):
    """Give a site a witness, which is copied together with the whole world."""
    (world.folder / "elsewhere").mkdir()
    path = world.site_file(name)
    witness = add_witness(path, world.folder / "elsewhere" / f"{name}.head").witness_path
    path.write_text(path.read_text().replace(str(witness), f"../elsewhere/{name}.head"))


def snapshots(folder, plan):
    """Three sites before each step of an evaluation: by stage, of the first site or `advance`."""
    world = make_world(folder / "now", NAMES[:3], plan)
    appoint(world)
    saved = {}

    def save(key):
        saved[key] = shutil.copytree(world.folder, folder / "-".join(map(str, key)))

    save((Stage.ADVERTISE, "start"))
    world.start(world.run, plan)
    for stage in Stage:
        for name in (B, C):
            world.answer(world.run, name, stage, CLIENTS[name])
        save((stage, "answer"))
        world.answer(world.run, A, stage, CLIENTS[A])
        save((stage, "advance"))
        world.advance(world.run)
    return saved


@contextmanager
def copied(template):
    with fast_folder() as folder:
        world = World(shutil.copytree(template, folder / "world"), NAMES[:3])
        world.adopt_notes()
        yield world


def assert_right(result, world, names=None):
    np.testing.assert_array_equal(counts_of(result), world.truth(names))
    assert fg.Evaluation.from_json(world.run / "result.json").record == result.record
    assert result.privacy.claim == "enforced"


def assert_refused(world, done, reason, *, entries=0, name=A):
    assert done.code == 2
    assert done.out == ""
    assert re.fullmatch(r"fedgauge: .+\n", done.err)
    assert reason in done.err
    assert len(world.entries(name)) == entries
    assert not (world.folder / name / "sessions").exists() or entries
    assert [path.name for path in world.run.iterdir()] == ["invitation.fgx"]
