"""Local reports, and labels apart from scores."""

import io
import shutil
import sqlite3
import struct
import zlib
from contextlib import closing, suppress

import fuzz_inputs
import msgspec
import numpy as np
from alone_world import FLIPS, GAUSSIAN, NOISE, make_alone
from consortium import COORDINATOR
from fuzz_plans import some_plans
from plans import report_plan
from rows import draw_client
from scene import BOSS, KEYS

import fedgauge as fg
from fedgauge.errors import FedgaugeError
from fedgauge.local.encode import result_of
from fedgauge.local.messages import ReportFormat, encode_rows
from fedgauge.local.server import FILE_NAME, ReportServer
from fedgauge.privacy.keystream import SimulatedKeystream
from fedgauge.protocol import COORDINATOR as BOSS_PLACE
from fedgauge.protocol import EVERYONE, Envelope
from fedgauge.vertical import files
from fedgauge.vertical.answers import _SIGNED_AS as AS_ANSWER
from fedgauge.vertical.answers import LabelAnswer, conclude_alone
from fedgauge.vertical.files import _SIGNED_AS as AS_ROSTER
from fedgauge.vertical.flips import Flips, _Kept
from fedgauge.vertical.label_party import RosterCall


def reports():
    plans = [report_plan(fg.LocalDP(1.0), (2, 3)), report_plan(fg.LocalDP(5.0), (6,))]
    plans += [report_plan(fg.LocalDP(1.0, oracle="hadamard"), (3, 2))]
    plans += [plan for plan in some_plans() if plan.has_two_rounds and plan.privacy.sends_reports]
    rows, seeds = ([0, 1, 1, 0, 1], [0.1, 0.7, 0.9, 0.3, 0.5]), []
    for place, plan in enumerate(plans):
        with suppress(FedgaugeError):
            for message in encode_rows(plan, rows, source=SimulatedKeystream(1)):
                seeds.append(fuzz_inputs.pack([place, message[:-4]]))

    def run(data):
        place, message = fuzz_inputs.parts_of(data, int, bytes)
        message += struct.pack("<I", zlib.crc32(message))
        form = ReportFormat(plans[place % len(plans)])
        with suppress(FedgaugeError):
            form.read(message)
        with ReportServer(plans[place % len(plans)]) as server:
            server.accept_all(form.split(io.BytesIO(message * 2)))
            server.accept(message)
            fuzz_inputs.each_alone(server.counts, lambda: str(result_of(server)))

    return seeds, run


def an_intake(folder, plan):
    with ReportServer(plan, folder) as server:
        for message in encode_rows(plan, draw_client(40, 1), source=SimulatedKeystream(1)):
            server.accept(message)
    return folder / FILE_NAME


def read_intake(folder, plan):
    with ReportServer(plan, folder) as server:
        _ = server.reports, server.refused, server.is_closed
        for message in encode_rows(plan, draw_client(5, 2), source=SimulatedKeystream(2)):
            server.accept(message)
        fuzz_inputs.each_alone(server.counts, lambda: str(result_of(server)))


def intake_rows():
    """Other values in an intake's tables."""
    plan, folder = report_plan(fg.LocalDP(1.0), (2, 3)), fuzz_inputs.new_folder()
    whole = an_intake(folder / "whole", plan).read_bytes()
    with closing(sqlite3.connect(folder / "whole" / FILE_NAME)) as database:
        levels = [list(row) for row in database.execute("SELECT * FROM levels")]
        refused = [["duplicate", 3]]
    target = folder / "now"

    def run(data):
        told, content, *tables = fuzz_inputs.parts_of(data, str, bytes, list, list)
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        (target / FILE_NAME).write_bytes(whole)
        with closing(sqlite3.connect(target / FILE_NAME)) as database, database:
            try:
                database.execute("UPDATE plan SET content = ?", (content,))
                for name, rows in zip(("levels", "refused"), tables, strict=True):
                    database.execute(f"DELETE FROM {name}")  # noqa: S608
                    marks = ("(?, ?, ?)", "(?, ?)")[name == "refused"]
                    database.executemany(f"INSERT INTO {name} VALUES {marks}", rows)  # noqa: S608
            except (sqlite3.Error, ValueError, TypeError, OverflowError):
                raise fuzz_inputs.Unmade(told) from None
        read_intake(target, plan)

    return [fuzz_inputs.pack(["", plan.to_bytes(), levels, refused])], run


def intake_file():
    plan, folder = report_plan(fg.LocalDP(1.0), (2, 3)), fuzz_inputs.new_folder()
    path = an_intake(folder, plan)

    def run(data):
        for each in folder.iterdir():
            each.unlink()
        path.write_bytes(data)
        read_intake(folder, plan)

    return [path.read_bytes()], run


def roster():
    own, other = KEYS[0], files.Roster.of_ids(["x", "y"], KEYS[1])
    scored = files.Roster.of_scores(np.linspace(0.1, 0.9, 15), KEYS[1])
    ids = [f"u{i}" for i in range(30)]
    scores = (ids, np.linspace(0, 1, 30))
    seeds = [files.Roster.of_ids(ids[:20], own), files.Roster.of_scores(np.linspace(0, 1, 20), own)]

    def run(data):
        found = files.Roster.from_bytes(
            fuzz_inputs.struct_signed_again(data, files.Roster, AS_ROSTER, own)
        )
        assert found.examples >= 0, found.digest
        rosters = {own.public: found, KEYS[1].public: scored if found.is_scored else other}
        files.check_rosters(rosters)
        files.assign_bins(None if found.is_scored else scores, rosters, NOISE)

    return [each.to_bytes() for each in seeds], run


def bins():
    """Bins of a hostile scorer, whose plan is bound to them."""
    own = KEYS[0]
    made = []
    ids = [f"u{i}" for i in range(30)]
    for rosters, scores in (
        ([files.Roster.of_ids(ids[:20], own)], (ids, np.linspace(0, 1, 30))),
        ([files.Roster.of_scores(np.linspace(0, 1, 20), own)], None),
    ):
        assigned = files.assign_bins(scores, {each.party: each for each in rosters}, NOISE)
        made.append((assigned.plan, assigned.bins[own.public].to_bytes()))

    def run(data):
        place, told = fuzz_inputs.parts_of(data, int, bytes)
        plan, told = made[place % len(made)][0], bytes(told)
        with fuzz_inputs.forgiving():
            bare = msgspec.structs.replace(files.Bins.from_bytes(told), commitments=())
            bound = msgspec.structs.replace(bare, commitments=((own.public, bare.commitment),))
            if fuzz_inputs.every(told, 2):
                told = bound.to_bytes()
            digest = files.assignment_digest(files.Bins.from_bytes(told).commitments)
            task = msgspec.structs.replace(plan.task, assignment=digest)
            plan = msgspec.structs.replace(plan, task=task)
        files.Bins.from_bytes(told).check(plan, own.public)

    return [fuzz_inputs.pack([place, told]) for place, (_, told) in enumerate(made)], run


def some_worlds():
    """Platforms whose shops answered alone, and the plans."""
    for privacy, mechanism in (
        (NOISE, None), (FLIPS, None), (NOISE, "adaptive"), (GAUSSIAN, "gaussian"),
    ):  # fmt: skip
        world = make_alone(fuzz_inputs.new_folder())
        with suppress(FedgaugeError):
            plan = world.told(privacy, mechanism, **({} if mechanism else {"positive_rate": 0.3}))
            yield world, plan.plan, [world.answers(plan.plan, name) for name in world.names]


def answers():
    worlds, seeds = [], []
    for world, plan, given in some_worlds():
        seeds.append(fuzz_inputs.pack([len(worlds), given[0].to_bytes()]))
        keys = [world.site(name).key for name in world.names]
        worlds.append((world.site(COORDINATOR), plan, given[1:], keys[0]))
    path = fuzz_inputs.new_folder() / "an.answer"

    def run(data):
        place, told = fuzz_inputs.parts_of(data, int, bytes)
        site, plan, others, key = worlds[place % len(worlds)]
        path.write_bytes(fuzz_inputs.struct_signed_again(told, LabelAnswer, AS_ANSWER, key))
        found = conclude_alone(site, plan, [LabelAnswer.load(path), *others])
        fuzz_inputs.each_alone(lambda: str(found), lambda: repr(found), lambda: found.record)

    return seeds, run


def totals():
    """What whoever scored kept, damaged."""
    worlds, seeds = [], []
    for world, plan, given in some_worlds():
        (path,) = (world.folder / COORDINATOR / "assignments").iterdir()
        seeds.append(fuzz_inputs.pack([len(worlds), path.read_bytes()]))
        worlds.append((world.site(COORDINATOR), plan, given, path))

    def run(data):
        place, told = fuzz_inputs.parts_of(data, int, bytes)
        site, plan, given, path = worlds[place % len(worlds)]
        path.write_bytes(told)
        (files.Totals if plan.paired is None else files.RankTotals).kept(site, plan)
        str(conclude_alone(site, plan, given))

    return seeds, run


def flips():
    """A party's kept flips, sealed anew."""
    path = fuzz_inputs.new_folder() / "labels.flips"
    ids, labels = [f"u{i}" for i in range(20)], [True, False] * 10
    Flips.kept(path, ids, labels, epsilon=1.0)

    def run(data):
        with fuzz_inputs.forgiving():
            found = msgspec.json.decode(data, type=_Kept)
            data = msgspec.structs.replace(found, seal=found.sealed()).to_bytes()
        path.write_bytes(data)
        Flips.kept(path, ids, labels, epsilon=1.0)

    return [path.read_bytes()], run


def roster_replies():
    call = RosterCall(BOSS, scored=False)
    nonce = Envelope.from_bytes(call.request).session
    body = files.Roster.of_ids(["a", "b"], KEYS[0]).to_bytes()
    place = {"stage": 0, "sender": EVERYONE, "recipient": BOSS_PLACE}
    reply = Envelope.sealed(KEYS[0], session=nonce, body=body, **place)

    def run(data):
        with fuzz_inputs.forgiving():
            envelope = Envelope.from_bytes(data)
            again = fuzz_inputs.struct_signed_again(envelope.body, files.Roster, AS_ROSTER, KEYS[0])
            data = msgspec.structs.replace(envelope, body=again).to_bytes()
        call.read(fuzz_inputs.signed_again(data, KEYS[0]))

    return [reply.to_bytes()], run
