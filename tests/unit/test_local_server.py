"""The intake of local reports: each counts once, in any order, whatever comes with them."""

import os
import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cache

import numpy as np
import pytest
from refusals import refused
from rows import draw_rows

import fedgauge as fg
from fedgauge.engines.reports import simulate_reports
from fedgauge.local.encode import result_of
from fedgauge.local.messages import LevelReports, Reason, ReportFormat, encode_rows
from fedgauge.local.server import FILE_NAME
from fedgauge.privacy.keystream import SimulatedKeystream

AXIS = fg.Axis.uniform(16, outside="clip")
PLANS = {
    "oue": fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(3.0)),
    "oue-tree": fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(3.0), tree=(4, 4)),
    "hadamard": fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(3.0, oracle="hadamard")),
}
every_plan = pytest.mark.parametrize("name", PLANS)
ROWS = 200
HALF, QUARTER, FEW = ROWS // 2, ROWS // 4, ROWS // 10


@cache
def single_reports(plan, seed=2):
    labels, scores = draw_rows(ROWS)
    source = SimulatedKeystream(seed)
    return [
        next(encode_rows(plan, (labels[i : i + 1], scores[i : i + 1]), source=source))
        for i in range(ROWS)
    ]


def counts_of(server):
    return [level.tolist() for level in server.counts().levels]


@pytest.fixture(params=["memory", "folder"])
def folder(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "new" / "intake"


@every_plan
def test_order_and_grouping_do_not_matter(name, folder):
    plan, messages = PLANS[name], single_reports(PLANS[name])
    with fg.ReportServer(plan) as plain:
        assert plain.accept_all(messages) == (ROWS, {})
        expected = counts_of(plain)
    form, source = ReportFormat(plan), np.random.default_rng(1)
    shuffled = [messages[i] for i in source.permutation(ROWS)]
    read = [form.read(message) for message in shuffled[HALF:]]
    grouped = form.write(
        [
            LevelReports(*(np.concatenate([getattr(p, part) for p in parts]) for part in _PARTS))
            for parts in zip(*read, strict=True)
        ]
    )
    with fg.ReportServer(plan, folder) as server:
        for message in shuffled[:HALF]:
            assert server.accept(message) == (1, {})
        assert server.accept(grouped) == (HALF, {})
        assert server.reports == ROWS
        assert counts_of(server) == expected


_PARTS = LevelReports._fields


@every_plan
def test_a_tenth_of_bad_reports_is_refused_counted_and_changes_nothing(name, folder):
    plan, messages = PLANS[name], single_reports(PLANS[name])
    other = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(2.9))
    bad = {
        Reason.DUPLICATE: [messages[i] for i in range(FEW)],
        Reason.LENGTH: [messages[i][: 20 + i % 15] for i in range(FEW)],
        Reason.FOREIGN: single_reports(other)[:FEW],
        Reason.ALIEN: [os.urandom(40) for _ in range(FEW - 1)] + [b""],
        Reason.DAMAGED: [m[:-6] + bytes([m[-6] ^ 1]) + m[-5:] for m in messages[:FEW]],
    }
    with fg.ReportServer(plan) as clean:
        clean.accept_all(messages)
        expected = counts_of(clean)
    mixed = messages + [message for some in bad.values() for message in some]
    order = np.random.default_rng(4).permutation(len(mixed))
    with fg.ReportServer(plan, folder) as server:
        receipts = [server.accept(mixed[i]) for i in order]
        assert counts_of(server) == expected
        assert server.reports == ROWS == sum(receipt.accepted for receipt in receipts)
        assert server.refused == {str(reason): FEW for reason in bad}
        told = sum((Counter(receipt.refused) for receipt in receipts), Counter())
        assert dict(told) == dict(server.refused)


def swapped(plan):
    """Two reports, and what somebody who saw the first sends under its id."""
    form, (first, *others) = ReportFormat(plan), single_reports(plan)
    ((one,), *read) = map(form.read, [first, *others])
    two = next(two for (two,) in read if not np.array_equal(two.payloads, one.payloads))
    return first, form.write([LevelReports(one.ids, two.payloads)]), one, two


def test_who_knows_an_id_keeps_no_report_out(folder):
    """Sent first, under the id of an honest report that is still on its way."""
    plan = PLANS["oue"]
    honest, hostile, one, two = swapped(plan)
    with fg.ReportServer(plan, folder) as server:
        assert server.accept(hostile) == (1, {})
        assert server.conflicts == 0
        assert server.accept(honest) == (1, {})
        assert server.conflicts == 1
        for message in (hostile, honest, hostile):  # each counts once
            assert server.accept(message) == (0, {"duplicate": 1})
        assert (server.conflicts, server.reports) == (1, 2)
        levels = server.counts().levels
    both = server.form.write([LevelReports(np.repeat(one.ids, 2, axis=0), np.r_[one[1], two[1]])])
    with fg.ReportServer(plan) as server:
        assert server.accept(both) == (2, {})
        assert server.conflicts == 1
        np.testing.assert_array_equal(server.counts().levels, levels)
    if folder is not None:
        with fg.ReportServer(plan, folder) as server:
            assert (server.conflicts, server.reports) == (1, 2)
            assert server.accept_all([honest, hostile]) == (0, {"duplicate": 2})


def test_an_id_at_another_level_keeps_no_report_out():
    plan = PLANS["oue-tree"]
    form, messages = ReportFormat(plan), single_reports(plan)
    read = [form.read(message) for message in messages]
    above = next(levels for levels in read if len(levels[0].ids))
    below = next(number for number, levels in enumerate(read) if len(levels[1].ids))
    stolen = form.write([above[0]._replace(ids=read[below][1].ids), above[1]])
    with fg.ReportServer(plan) as server:
        assert server.accept(stolen) == (1, {})
        assert server.accept(messages[below]) == (1, {})
        assert server.conflicts == 1


def test_a_message_with_some_known_reports_adds_the_others():
    plan = PLANS["oue-tree"]
    labels, scores = draw_rows(ROWS)
    (all_,) = encode_rows(plan, (labels, scores))
    form = ReportFormat(plan)
    levels = form.read(all_)
    some = form.write([LevelReports(level.ids[::3], level.payloads[::3]) for level in levels])
    held = sum(len(level.ids[::3]) for level in levels)
    with fg.ReportServer(plan) as whole, fg.ReportServer(plan) as server:
        whole.accept(all_)
        assert server.accept(some) == (held, {})
        assert server.accept(all_) == (ROWS - held, {"duplicate": held})
        assert counts_of(server) == counts_of(whole)


def test_threads_can_share_an_intake(tmp_path):
    plan, messages = PLANS["oue"], single_reports(PLANS["oue"])
    with fg.ReportServer(plan, tmp_path) as server, fg.ReportServer(plan, tmp_path) as second:

        def take(target, part):
            for message in messages[part::4]:
                target.accept(message)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(take, (server, second, server, second), range(4)))
        assert server.reports == second.reports == ROWS
    with fg.ReportServer(plan) as plain, fg.ReportServer(plan, tmp_path) as again:
        plain.accept_all(messages)
        assert counts_of(again) == counts_of(plain)


def test_files_of_other_plans_and_programs_are_left_alone(tmp_path):
    path = tmp_path / FILE_NAME
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE mine (x)")
    before = path.read_bytes()
    refused(fg.IntakeError, "another program", fg.ReportServer, PLANS["oue"], tmp_path)
    assert path.read_bytes() == before
    path.write_bytes(b"not a database, but a text of some length" * 30)
    refused(fg.IntakeError, "not an intake", fg.ReportServer, PLANS["oue"], tmp_path)
    (tmp_path / "file").write_text("")
    refused(fg.IntakeError, "cannot use", fg.ReportServer, PLANS["oue"], tmp_path / "file")
    fg.ReportServer(PLANS["oue"], tmp_path / "own").close()
    assert (tmp_path / "own" / FILE_NAME).stat().st_mode & 0o077 == 0
    refused(fg.IntakeError, "another plan", fg.ReportServer, PLANS["hadamard"], tmp_path / "own")


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM plan",
        "DELETE FROM levels",
        "UPDATE levels SET tallies = x'00'",
        "UPDATE levels SET tallies = zeroblob(8)",
        "UPDATE levels SET tallies = 7",
        "UPDATE levels SET reports = 'many'",
        "UPDATE levels SET reports = -1",
        "UPDATE refused SET count = 'many'",
        "UPDATE sqlite_master SET name = CAST(x'ff' AS TEXT), sql = 'CREATE' WHERE name = 'seen'",
    ],
)
def test_an_intake_whose_tables_are_damaged_is_refused(tmp_path, damage):
    message, *_ = single_reports(PLANS["oue"])
    with fg.ReportServer(PLANS["oue"], tmp_path) as server:
        server.accept_all([message, message])
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as other, other:
        other.execute("PRAGMA writable_schema = ON")
        other.execute(damage)
    before = (tmp_path / FILE_NAME).read_bytes()
    refused(fg.IntakeError, "is damaged", fg.ReportServer, PLANS["oue"], tmp_path)
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_reports_are_not_kept(tmp_path):
    """Sums and digests alone, without ids, beside which digests of short payloads would tell."""
    plan = fg.EvaluationPlan.for_reports(fg.Axis.uniform(512, outside="clip"), fg.LocalDP(3.0))
    (message,) = encode_rows(plan, ([1], [0.7]))
    ((level,),) = [ReportFormat(plan).read(message)]
    with fg.ReportServer(plan, tmp_path) as server:
        server.accept(message)
        stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert level.ids.tobytes() not in stored
    assert level.payloads.tobytes() not in stored


@every_plan
def test_no_signal_before_every_level_has_a_report(name):
    with fg.ReportServer(PLANS[name]) as server, pytest.raises(fg.NoSignal, match="no report"):
        server.counts()


@every_plan
def test_the_result_is_that_of_the_simulation(name):
    """The same rows in the same order with the same words: the same counts, bit for bit."""
    plan = PLANS[name]
    labels, scores = draw_rows(8_000)
    order = np.argsort(labels * 16 + AXIS.index(scores), kind="stable")
    rows = labels[order], scores[order]
    with fg.ReportServer(plan) as server:
        server.accept_all(encode_rows(plan, rows, source=SimulatedKeystream(6)))
        result = result_of(server)
    total = fg.ScoreHistogram(AXIS)
    total.update(*rows)
    simulated = simulate_reports(plan, total, 1, SimulatedKeystream(6))
    np.testing.assert_array_equal(result.released.counts, simulated.counts)
    assert (result.reports, result.privacy.claim) == (8_000, "enforced")
    assert result.negatives + result.positives == 8_000
