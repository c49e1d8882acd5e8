"""Local reports as bytes: what is written is read back, and everything else is refused."""

import io
import math
import struct
import zlib
from contextlib import suppress

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from odd import Raises

import fedgauge as fg
from fedgauge.privacy.keystream import SimulatedKeystream
from fedgauge.reports.messages import MOST_BYTES, LevelReports, Reason, ReportFormat, encode_rows

AXIS = fg.Axis.uniform(6, outside="clip")
PLANS = {
    "oue": fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(1.0)),
    "oue-tree": fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(1.0), tree=(2, 3)),
    "hadamard": fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(1.0, oracle="hadamard")),
    "hadamard-tree": fg.EvaluationPlan.for_reports(
        AXIS, fg.LocalDP(5.0, oracle="hadamard"), tree=(3, 2)
    ),
}
every_plan = pytest.mark.parametrize("name", PLANS)
ROWS = ([0, 1, 1, 0, 1] * 8, np.linspace(-0.2, 1.2, 40))


def message_for(name, rows=ROWS, seed=3):
    (message,) = encode_rows(PLANS[name], rows, source=SimulatedKeystream(seed))
    return message


def reason_of(name, data):
    with pytest.raises(fg.ReportRefused) as caught:
        ReportFormat(PLANS[name]).read(data)
    assert str(caught.value) in set(Reason)
    return str(caught.value)


def sealed(data):
    """The message with a checksum that fits, whatever it holds."""
    return data[:-4] + struct.pack("<I", zlib.crc32(data[:-4]))


@every_plan
def test_reports_read_back_as_written(name):
    form, message = ReportFormat(PLANS[name]), message_for(name)
    levels = form.read(message)
    assert sum(len(level.ids) for level in levels) == 40
    assert form.write(levels) == message
    ids = {bytes(row) for level in levels for row in level.ids}
    assert len(ids) == 40


@every_plan
def test_reports_of_the_same_rows_differ(name):
    first, again = (next(encode_rows(PLANS[name], ROWS)) for _ in range(2))
    assert first != again


@every_plan
def test_every_truncation_is_refused(name):
    message = message_for(name)
    for length in range(len(message)):
        reason = reason_of(name, message[:length])
        assert reason == (Reason.ALIEN if length < 3 else Reason.LENGTH)
    assert reason_of(name, message + b"\0") == Reason.LENGTH


@every_plan
def test_every_flipped_bit_is_refused(name):
    message = message_for(name)
    for place in range(8 * len(message)):
        altered = bytearray(message)
        altered[place // 8] ^= 1 << place % 8
        reason = reason_of(name, bytes(altered))
        if place // 8 < 3:
            assert reason == Reason.ALIEN
        elif place // 8 == 3:
            assert reason == Reason.VERSION
        elif place // 8 < 20:
            assert reason == Reason.FOREIGN
        else:
            assert reason in (Reason.LENGTH, Reason.DAMAGED)


@pytest.mark.parametrize("other", PLANS)
@every_plan
def test_reports_of_another_plan_are_refused(name, other):
    if name != other:
        assert reason_of(name, message_for(other)) == Reason.FOREIGN


@pytest.mark.parametrize("name", ["oue", "oue-tree"])
def test_bits_beyond_the_last_cell_are_refused(name):
    form = ReportFormat(PLANS[name])
    levels = form.read(message_for(name))
    for level, part in enumerate(levels):
        unused = -PLANS[name].oracles[level].cells % 8
        for bit in range(unused):
            payloads = part.payloads.copy()
            payloads[-1, -1] |= 1 << bit
            altered = [*levels]
            altered[level] = LevelReports(part.ids, payloads)
            assert reason_of(name, form.write(altered)) == Reason.IMPOSSIBLE


def test_numbers_that_cannot_be_said_are_refused():
    (oracle,) = PLANS["hadamard"].oracles
    form = ReportFormat(PLANS["hadamard"])
    (level,) = form.read(message_for("hadamard"))
    for number, fits in ((oracle.numbers - 1, True), (oracle.numbers, False), (255, False)):
        payloads = level.payloads.copy()
        payloads[7] = number
        data = form.write([LevelReports(level.ids, payloads)])
        if fits:
            assert len(form.read(data)) == 1
        else:
            assert reason_of("hadamard", data) == Reason.IMPOSSIBLE


@every_plan
def test_messages_without_reports_and_huge_ones_are_refused(name):
    form = ReportFormat(PLANS[name])
    empty = [
        LevelReports(np.empty((0, 16), np.uint8), np.empty((0, o.payload_bytes), np.uint8))
        for o in form.oracles
    ]
    assert reason_of(name, form.write(empty)) == Reason.LENGTH
    counts = struct.pack(f"<{len(form.oracles)}I", *[2**32 - 1] * len(form.oracles))
    header = message_for(name)[:20] + counts
    with pytest.raises(fg.ReportRefused, match=Reason.LENGTH):
        form.length(header)  # before anything is read or reserved for it


def test_levels_of_swapped_sizes_are_refused():
    """A payload about one level cannot pass for one about another: its size tells."""
    message = bytearray(message_for("oue-tree", seed=5))
    counts = struct.unpack_from("<2I", message, 20)
    assert counts[0] != counts[1]
    struct.pack_into("<2I", message, 20, *counts[::-1])
    assert reason_of("oue-tree", sealed(bytes(message))) == Reason.LENGTH


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(PLANS)), st.data())
def test_any_bytes_are_refused_or_read_back_the_same(name, data):
    """Random bytes, and messages with a part replaced and the checksum made to fit."""
    form, message = ReportFormat(PLANS[name]), message_for(name)
    start = data.draw(st.integers(0, len(message)))
    size = data.draw(st.integers(0, 12))
    altered = message[:start] + data.draw(st.binary(max_size=12)) + message[start + size :]
    for attempt in (altered, sealed(altered), data.draw(st.binary(max_size=80))):
        levels = []
        with suppress(fg.ReportRefused):  # anything else that is raised fails the test
            levels = form.read(attempt)
            assert form.write(levels) == attempt
        for oracle, level in zip(form.oracles, levels, strict=False):
            tallies = np.zeros(oracle.tallies, dtype=np.int64)
            oracle.add(tallies, level.payloads)
            assert tallies.min() >= 0


def test_many_rows_make_several_messages_that_a_file_gives_back():
    rows = 40_000
    rng = np.random.default_rng(1)
    plan = fg.EvaluationPlan.for_reports(fg.Axis.uniform(512, outside="clip"), fg.LocalDP(5.0))
    form = ReportFormat(plan)
    messages = list(encode_rows(plan, (rng.integers(0, 2, rows), rng.random(rows))))
    assert len(messages) == 3
    assert max(map(len, messages)) <= MOST_BYTES
    stored = io.BytesIO(b"".join(messages))
    assert list(form.split(stored)) == messages
    assert sum(len(level.ids) for m in messages for level in form.read(m)) == rows


@pytest.mark.parametrize("cut", [1, 3, 10, 21, 30, 500])
def test_a_cut_file_gives_a_last_message_that_is_refused(cut):
    whole, part = message_for("oue"), message_for("oue", seed=4)[:cut]
    *good, last = ReportFormat(PLANS["oue"]).split(io.BytesIO(whole + part))
    assert good == [whole]
    assert last == part
    reason_of("oue", last)


def test_a_foreign_file_is_refused_once():
    foreign = io.BytesIO(message_for("oue-tree") * 50)
    (only,) = ReportFormat(PLANS["oue"]).split(foreign)
    assert reason_of("oue", only) == Reason.FOREIGN


BROKEN = {
    "nan": (0, math.nan),
    "inf": (0, math.inf),
    "minus inf": (1, -math.inf),
    "beyond": (1, 1e300),
    "missing": (None, None),
    "third label": (7, 0.5),
    "list": ([1], [0.5]),
    "text": ("x", "x"),
    "object": (Raises(), Raises()),
}


@every_plan
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_row_gives_a_report_like_any_other(name, broken):
    """Sizes and number of messages must not tell of it, wherever it stands."""
    plan, told = PLANS[name], []

    def sizes(rows):
        # The same seed, since which level a report is about is drawn.
        source = SimulatedKeystream(3)
        labels, scores = zip(*rows, strict=True)
        messages = encode_rows(plan, (labels, scores), source=source, tell=told.append)
        return [len(message) for message in messages]

    rows = [(0, 0.1), (1, 0.8)] * 20
    clean = sizes(rows)
    assert told == []
    for place in (0, 20, 39):
        assert sizes([*rows[:place], broken, *rows[place + 1 :]]) == clean
    assert len(told) >= 3
    assert all(" of 40 " in sentence for sentence in told)


def test_broken_rows_are_reported_in_the_stated_place():
    plan = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(20.0))
    rows = [(0, math.nan), (7, math.inf), (1, -math.inf), (1, "1e300"), (None, None)]
    labels, scores = zip(*(rows * 400), strict=True)
    (message,) = encode_rows(plan, (labels, scores), tell=[].append)
    (level,) = ReportFormat(plan).read(message)
    (oracle,) = plan.oracles
    tallies = np.zeros(2 * AXIS.bins, dtype=np.int64)
    oracle.add(tallies, level.payloads)
    counts = oracle.estimate(tallies, 2000)
    last = AXIS.bins - 1
    expected = {0: 800, last: 400, AXIS.bins: 400, AXIS.bins + last: 400}
    for cell, count in enumerate(counts):
        assert abs(count - expected.get(cell, 0)) < 100


def test_data_that_break_off_are_reported_as_far_as_they_go():
    def chunks():
        yield [0, 1], [0.1, 0.2]
        raise ZeroDivisionError

    messages = encode_rows(PLANS["oue"], chunks)
    (level,) = ReportFormat(PLANS["oue"]).read(next(messages))
    assert len(level.ids) == 2
    with pytest.raises(ZeroDivisionError):
        next(messages)


def test_odd_rows_are_logged_where_nobody_is_told(caplog):
    list(encode_rows(PLANS["oue"], ([0, 1], [0.1, math.nan])))
    assert [(record.name, record.levelname) for record in caplog.records] == [
        ("fedgauge", "WARNING")
    ]
    assert "1 of 2 scores are missing" in caplog.text


def test_no_rows_make_no_reports():
    assert list(encode_rows(PLANS["oue"], ([], []))) == []


def test_labels_are_read_as_the_plan_says():
    task = fg.BinaryTask("yes")
    plan = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(20.0), task=task)
    (message,) = encode_rows(plan, (["yes", "no"] * 2000, [0.99, 0.0] * 2000))
    (level,) = ReportFormat(plan).read(message)
    (oracle,) = plan.oracles
    tallies = np.zeros(12, dtype=np.int64)
    oracle.add(tallies, level.payloads)
    counts = oracle.estimate(tallies, 4000)
    assert set(np.flatnonzero(counts > 1500)) == {0, 11}  # negatives low, positives high


def test_plans_for_sums_have_no_reports():
    plan = fg.EvaluationPlan.for_histogram(AXIS, fg.Cohort(3))
    with pytest.raises(fg.PlanError, match="for_reports"):
        ReportFormat(plan)


def test_a_client_refuses_reports_that_cost_more_than_the_plan_says():
    plan = PLANS["oue"]
    cheap = msgspec.structs.replace(plan.final, noise=(plan.final.noise[0] // 2,))
    with pytest.raises(fg.PlanError, match="cost more"):
        next(encode_rows(msgspec.structs.replace(plan, rounds=(cheap,)), ROWS))


def test_sizes_of_messages_do_not_depend_on_the_text_of_rows(tmp_path):
    """Batches of a CSV end where its bytes do, so they must not show in the messages."""
    plan = fg.EvaluationPlan.for_reports(fg.Axis.uniform(16, outside="clip"), fg.LocalDP(1.0))
    sizes = []
    for name, note in (("short", "x"), ("long", "x" * 40)):
        path = tmp_path / f"{name}.csv"
        rows = "\n".join(f"{i % 2},0.{i % 10},{note}" for i in range(120_000))
        path.write_text(f"y,p,note\n{rows}\n")
        data = fg.ScoreFile(path, label="y", score="p")
        sizes.append([len(message) for message in fg.encode_rows(plan, data)])
    assert path.stat().st_size > 2 << 20
    assert len(sizes[0]) > 5
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("dtype", [np.bool_, np.int8], ids=["bool", "int8"])
def test_narrow_labels_fit_many_bins(dtype):
    plan = fg.EvaluationPlan.for_reports(fg.Axis.uniform(512, outside="clip"), fg.LocalDP(1.0))
    labels = np.array([0, 1], dtype=dtype)
    assert len(list(fg.encode_rows(plan, (labels, np.array([0.2, 0.7]))))) == 1


def test_data_are_read_once():
    plan = fg.EvaluationPlan.for_reports(fg.Axis.uniform(16, outside="clip"), fg.LocalDP(1.0))
    once = iter([([0, 1], [0.2, 0.7])])
    assert len(list(fg.encode_rows(plan, lambda: once))) == 1


def test_a_server_refuses_a_plan_that_breaks_its_promise():
    plan = fg.EvaluationPlan.for_reports(fg.Axis.uniform(16, outside="clip"), fg.LocalDP(1.0))
    weak = msgspec.structs.replace(plan, rounds=(msgspec.structs.replace(plan.final, noise=(1,)),))
    with pytest.raises(fg.PlanError, match="cost more"):
        fg.ReportServer(weak)
