"""Local reports as bytes: what is written is read back, and everything else is refused."""

import hashlib
import io
import math
import struct
import zlib
from contextlib import suppress
from fractions import Fraction

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

import fedgauge as fg
from fedgauge.engines.reports import KeptIds, Turns
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.local.encode import find_second, result_of, write_reports
from fedgauge.local.messages import MOST_BYTES, LevelReports, Reason, ReportFormat, encode_rows
from fedgauge.local.rounds import RowsInOrder, SecondPlan, load_plan, read_plan
from fedgauge.plan.two_rounds import Found
from fedgauge.privacy.keystream import SimulatedKeystream
from fedgauge.site import Policy, create_site
from fedgauge.site.ledger_entries import Account
from fedgauge.site.log import what_left
from fedgauge.site.setup import add_trust

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
    assert next(encode_rows(PLANS[name], ROWS)) != next(encode_rows(PLANS[name], ROWS))


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


def test_payloads_that_cannot_be_said_are_refused():
    for name in ("oue", "oue-tree"):  # bits beyond the last cell
        form = ReportFormat(PLANS[name])
        levels = form.read(message_for(name))
        for level, part in enumerate(levels):
            for bit in range(-PLANS[name].oracles[level].cells % 8):
                payloads = part.payloads.copy()
                payloads[-1, -1] |= 1 << bit
                altered = [*levels]
                altered[level] = LevelReports(part.ids, payloads)
                assert reason_of(name, form.write(altered)) == Reason.IMPOSSIBLE
    (oracle,) = PLANS["hadamard"].oracles
    form = ReportFormat(PLANS["hadamard"])
    (level,) = form.read(message_for("hadamard"))
    for number in (oracle.numbers - 1, oracle.numbers, 255):
        payloads = level.payloads.copy()
        payloads[7] = number
        data = form.write([LevelReports(level.ids, payloads)])
        if number < oracle.numbers:
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


def test_plans_for_sums_and_levels_of_swapped_sizes_are_refused():
    """A payload about one level cannot pass for one about another: its size tells."""
    message = bytearray(message_for("oue-tree", seed=5))
    counts = struct.unpack_from("<2I", message, 20)
    assert counts[0] != counts[1]
    struct.pack_into("<2I", message, 20, *counts[::-1])
    assert reason_of("oue-tree", sealed(bytes(message))) == Reason.LENGTH
    plan = fg.EvaluationPlan.for_histogram(AXIS, fg.Cohort(3))
    refused(fg.PlanError, "for_reports", ReportFormat, plan)


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


def test_a_cut_file_gives_a_last_message_that_is_refused_and_a_foreign_one_is_refused_once():
    whole, other = message_for("oue"), message_for("oue", seed=4)
    for cut in (1, 3, 10, 21, 30, 500):
        *good, last = ReportFormat(PLANS["oue"]).split(io.BytesIO(whole + other[:cut]))
        assert good == [whole]
        assert last == other[:cut]
        reason_of("oue", last)
    foreign = io.BytesIO(message_for("oue-tree") * 50)
    (only,) = ReportFormat(PLANS["oue"]).split(foreign)
    assert reason_of("oue", only) == Reason.FOREIGN


def test_data_that_break_off_are_reported_as_far_as_they_go():
    def chunks():
        yield [0, 1], [0.1, 0.2]
        raise ZeroDivisionError

    messages = encode_rows(PLANS["oue"], chunks)
    (level,) = ReportFormat(PLANS["oue"]).read(next(messages))
    assert len(level.ids) == 2
    with pytest.raises(ZeroDivisionError):
        next(messages)


def test_data_are_read_once_narrow_labels_fit_and_odd_rows_are_logged_where_nobody_is_told(caplog):
    once = iter([([0, 1], [0.2, 0.7])])
    assert len(list(fg.encode_rows(PLANS["oue"], lambda: once))) == 1
    assert list(encode_rows(PLANS["oue"], ([], []))) == []
    plan = fg.EvaluationPlan.for_reports(fg.Axis.uniform(512, outside="clip"), fg.LocalDP(1.0))
    for dtype in (np.bool_, np.int8):
        rows = (np.array([0, 1], dtype=dtype), np.array([0.2, 0.7]))
        assert len(list(fg.encode_rows(plan, rows))) == 1
    assert not caplog.records
    list(encode_rows(PLANS["oue"], ([0, 1], [0.1, math.nan])))
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("fedgauge", "WARNING")
    assert "1 of 2 scores are missing" in caplog.text


def estimated(plan, rows):
    """What the one message of these rows is estimated to hold in each cell."""
    (message,) = encode_rows(plan, rows, tell=[].append)
    ((level,), (oracle,)) = ReportFormat(plan).read(message), plan.oracles
    tallies = np.zeros(2 * AXIS.bins, dtype=np.int64)
    oracle.add(tallies, level.payloads)
    return oracle.estimate(tallies, len(rows[0]))


def test_rows_are_reported_in_the_stated_place_as_the_plan_says():
    plan = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(20.0))
    rows = [(0, math.nan), (7, math.inf), (1, -math.inf), (1, "1e300"), (None, None)]
    last = AXIS.bins - 1
    expected = {0: 800, last: 400, AXIS.bins: 400, AXIS.bins + last: 400}
    for cell, count in enumerate(estimated(plan, tuple(zip(*(rows * 400), strict=True)))):
        assert abs(count - expected.get(cell, 0)) < 100
    plan = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(20.0), task=fg.BinaryTask("yes"))
    counts = estimated(plan, (["yes", "no"] * 2000, [0.99, 0.0] * 2000))
    assert set(np.flatnonzero(counts > 1500)) == {0, 11}  # negatives low, positives high


@pytest.mark.parametrize("part", [2, 2**62])
def test_client_and_server_refuse_reports_that_cost_more_than_the_plan_says(part):
    plan = PLANS["oue"]
    cheap = msgspec.structs.replace(plan.final, noise=(max(plan.final.noise[0] // part, 1),))
    dear = msgspec.structs.replace(plan, rounds=(cheap,))
    for use in (lambda: next(encode_rows(dear, ROWS)), lambda: fg.ReportServer(dear)):
        refused(fg.PlanError, "cost more", use)


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


TWO = fg.TwoRound(4, share=0.3, coarse=fg.Axis.uniform(8, 0.0, 8.0, outside="clip"))
PLAN = fg.EvaluationPlan.for_reports(TWO, fg.LocalDP(2.0))
MODELS = fg.EvaluationPlan.for_reports(
    TWO, fg.LocalDP(2.0), task=fg.BinaryTask(models=("new", "old"))
)
SECRET = bytes(range(32))
KEY = SigningKey.generate()


def second_of(plan, counts=(1, 9, 9, 30, 9, 9, 2, 1)):
    return plan.located(Found(TWO, counts, sum(counts)))


SECOND = second_of(PLAN)


def draw_rows(rows, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, rows)
    return labels, np.clip(rng.normal(3 + 2 * labels, 1.5), 0, 8)


def ids_of(plan, messages):
    levels = [level for message in messages for level in ReportFormat(plan).read(message)]
    return [bytes(each) for level in levels for each in level.ids]


@pytest.mark.parametrize("share", [0.01, 0.1, 1 / 3, 0.9])
def test_the_coin_is_the_share_to_the_last_bit(share):
    plan = fg.EvaluationPlan.for_reports(msgspec.structs.replace(TWO, share=share), fg.LocalDP(1.0))
    limit = Fraction(share) * 2**64
    last = int(limit) - 1 if limit == int(limit) else int(limit)
    numbers = [0, last, last + 1, 2**64 - 1]
    ids = np.array([[*n.to_bytes(8, "little"), *bytes(8)] for n in numbers], dtype=np.uint8)
    assert Turns(plan).fit(ids).tolist() == [True, last < limit, False, False]


@pytest.mark.parametrize("plan", [PLAN, MODELS], ids=["one score", "two models"])
@pytest.mark.parametrize("rows", [1, 7, 40_000])
def test_each_row_is_reported_in_one_round(plan, rows):
    labels, scores = draw_rows(rows)
    data = (labels, {"new": scores, "old": scores}) if plan is MODELS else (labels, scores)
    first, second = (
        ids_of(each, fg.encode_rows(each, data, secret=SECRET)) for each in (plan, second_of(plan))
    )
    every = {bytes(each) for each in KeptIds(plan, SECRET).take(rows).ids}
    assert len(every) == rows == len(first) + len(second)
    assert {*first} | {*second} == every
    if rows > 100:  # 5 deviations: one false alarm in a million
        assert abs(len(first) - 0.3 * rows) < 5 * (0.21 * rows) ** 0.5


def test_whose_turn_it_is_depends_on_the_secret_and_the_plan_alone():
    rows, other = draw_rows(500), draw_rows(500, seed=1)
    other_plan = PLAN.with_not_after("2199-12-31")
    ids = [
        ids_of(plan, fg.encode_rows(plan, data, secret=secret))
        for plan, data, secret in (
            (PLAN, rows, SECRET),
            (PLAN, other, SECRET),
            (PLAN, rows, SECRET[::-1]),
            (other_plan, rows, SECRET),
        )
    ]
    assert ids[0] == ids[1]
    assert not {*ids[0]} & {*ids[2]}
    assert not {*ids[0]} & {*ids[3]}


def test_two_rounds_need_a_secret_and_a_whole_second_plan():
    for plan in (PLAN, SECOND):
        for secret in (None, b"", bytes(31)):
            with pytest.raises(fg.PlanError, match="32 random bytes"):
                next(fg.encode_rows(plan, draw_rows(5), secret=secret))
    for data in (b'{"signer":', b'{"signer":"x","signature":"","plan":{}} ', b"\xff", b"{}"):
        with pytest.raises((fg.PlanError, fg.SiteError)):
            SecondPlan.from_bytes(data)


def test_ids_go_with_the_reports_of_their_rows():
    """Where a row's block is drawn, its id goes there too: a cell told of its own model alone."""
    rows = 2_000
    with pytest.warns(fg.PrivacyWarning, match="nobody"):
        privacy = fg.LocalDP(30.0)
    plan = second_of(fg.EvaluationPlan.for_reports(TWO, privacy, task=MODELS.task.of))
    labels = np.zeros(rows, dtype=int)
    scores = np.linspace(0, 7.99, rows)
    place = {bytes(each): n for n, each in enumerate(KeptIds(plan, SECRET).take(rows).ids)}
    bins = plan.axis.place(scores)
    told = fg.encode_rows(plan, (labels, {"new": scores, "old": scores}), secret=SECRET)
    seen = 0
    for message in told:
        for level in ReportFormat(plan).read(message):
            bits = np.unpackbits(level.payloads, axis=1)[:, : plan.axis.bins]
            for each, raised in zip(level.ids, bits, strict=True):
                # At epsilon 30 a zero is raised once in 10^13; half of the true bits are kept.
                assert {*np.flatnonzero(raised)} <= {bins[place[bytes(each)]]}
                seen += 1
    assert seen > 1_000


def test_rows_are_known_again_in_their_order_whatever_the_batches():
    labels, scores = draw_rows(100)

    def taken(labels, scores, cut, plan=PLAN, key=b"k" * 32):
        rows = RowsInOrder(plan, key)
        rows.add(fg.Examples(labels[:cut], scores[:cut]))
        rows.add(fg.Examples(labels[cut:], scores[cut:]))
        return rows.fingerprint()

    one = taken(labels, scores, 10)
    assert one == taken(labels, scores, 77) == taken(labels, scores, 50, plan=SECOND)
    swapped = np.r_[1, 0, 2:100]
    assert one != taken(labels[swapped], scores[swapped], 10)
    assert one != taken(1 - labels, scores, 10)
    assert one != taken(labels, scores + 1e-12, 10)
    assert one != taken(labels, scores, 10, key=b"l" * 32)


def test_a_second_plan_is_what_was_signed(tmp_path):
    second = SecondPlan.sign(SECOND, KEY)
    second.save(tmp_path / "second.json")
    SECOND.save(tmp_path / "plain.json")
    PLAN.save(tmp_path / "first.toml")
    loaded = load_plan(tmp_path / "second.json")
    assert loaded.signed_by({KEY.public: "intake"}) == SECOND == read_plan(tmp_path / "second.json")
    assert load_plan(tmp_path / "plain.json") == SECOND
    assert read_plan(tmp_path / "first.toml") == PLAN
    refused(fg.PlanError, "cannot read", load_plan, tmp_path / "none.json")


def test_rounds_are_taken_in_one_after_the_other(tmp_path):
    rows = draw_rows(40_000)
    source = SimulatedKeystream(3)
    first = list(fg.encode_rows(PLAN, rows, secret=SECRET, source=source))
    with fg.ReportServer(PLAN, tmp_path) as server:
        taken = server.accept_all(first[:-1]).accepted
        assert not server.is_closed
        second = find_second(server, KEY)
        assert server.is_closed
        late = server.accept_all(first)
        assert late.accepted == 0
        assert late.refused == {Reason.DUPLICATE: taken, Reason.CLOSED: 1}
        assert find_second(server, SigningKey.generate()).data == second.data
    with fg.ReportServer(PLAN, tmp_path) as again:  # after a restart too
        assert again.is_closed
        assert again.reports == taken == second.signed_by([KEY.public]).found.clients
        assert find_second(again, KEY).data == second.data
    plan = second.signed_by([KEY.public])
    assert plan.whole == PLAN
    assert plan.axis.bins == 4
    told = list(fg.encode_rows(plan, rows, secret=SECRET, source=source))
    with fg.ReportServer(plan, tmp_path) as server:
        assert server.accept_all(told).accepted == server.reports
        assert server.accept_all(told).accepted == 0
        assert server.accept_all(first).refused == {Reason.FOREIGN: len(first)}
        result = result_of(server)
    assert result.axis == plan.axis
    assert result.privacy.epsilon == 2.0
    whole = fg.evaluate({"all": rows}, axis=fg.Axis.uniform(512, 0, 8, outside="clip"))
    # Measured over 40 seeds: 0.0073 at most; its deviation is 0.003.
    assert abs(result.roc_auc.value - whole.roc_auc.value) < 0.015


def test_rounds_stay_open_where_nothing_is_found_and_two_servers_publish_one_plan(tmp_path):
    with fg.ReportServer(PLAN, tmp_path) as server:
        with pytest.raises(fg.NoSignal):
            find_second(server, KEY)
        assert not server.is_closed
    with fg.ReportServer(SECOND) as server, pytest.raises(fg.PlanError, match="first of two"):
        find_second(server, KEY)
    with fg.ReportServer(PLAN, tmp_path) as one, fg.ReportServer(PLAN, tmp_path) as other:
        one.accept_all(fg.encode_rows(PLAN, draw_rows(300), secret=SECRET))
        first = find_second(one, KEY)
        more = list(fg.encode_rows(PLAN, draw_rows(300), secret=SECRET[::-1]))
        assert other.accept_all(more).refused == {Reason.CLOSED: 1}
        assert find_second(other, SigningKey.generate()).data == first.data


@pytest.mark.parametrize("plan", [PLAN, SECOND], ids=["first", "second"])
def test_ids_of_the_other_round_are_refused(plan):
    (message,) = fg.encode_rows(plan, draw_rows(300), secret=SECRET)
    form = ReportFormat(plan)
    (level,) = form.read(message)
    other = SECOND if plan is PLAN else PLAN
    turned = level.ids.copy()
    turned[-1, :8] = 0 if other is PLAN else 255
    with fg.ReportServer(plan) as server:
        receipt = server.accept(form.write([level._replace(ids=turned)]))
        assert receipt == (0, {Reason.ROUND: 1})
        assert server.accept(message).accepted == len(level.ids)


@pytest.fixture
def site(tmp_path):
    policy = Policy(models=("local-dp",), max_epsilon=2.0, budget_epsilon=2.0)
    made = create_site(tmp_path / "site", name="clinic", dataset="stroke", policy=policy)
    return add_trust(made.path, "coordinator", "intake", key_to_text(KEY.public))


def spent(site):
    return {balance.account: balance.spent.epsilon for balance in site.ledger.balances()}


def ids_in(path, plan):
    with path.open("rb") as file:
        return ids_of(plan, ReportFormat(plan).split(file))


def test_both_rounds_are_charged_once(site, tmp_path):
    account, rows = Account("stroke", "example", "replace-one"), draw_rows(300)
    write_reports(PLAN, rows, tmp_path / "1.fgr", site=site)
    assert spent(site) == {account: 2.0}
    write_reports(SecondPlan.sign(SECOND, KEY), rows, tmp_path / "2.fgr", site=site)
    assert spent(site) == {account: 2.0}
    first, second = ids_in(tmp_path / "1.fgr", PLAN), ids_in(tmp_path / "2.fgr", SECOND)
    assert len({*first, *second}) == 300 == len(first) + len(second)
    one, two = what_left(site)
    assert [one.step, two.step] == ["encode", "second"]
    assert [one.cost.epsilon, two.cost] == [2.0, None]
    assert two.sha256 == hashlib.sha256((tmp_path / "2.fgr").read_bytes()).hexdigest()
    assert one.evaluation == two.evaluation


def test_the_ledger_itself_lets_no_second_file_of_a_round_leave(site, tmp_path, monkeypatch):
    """Two programs that both found nothing: one of them ends without a file."""
    monkeypatch.setattr("fedgauge.local.encode._ChargeOfTwo.check", lambda _: None)
    write_reports(PLAN, draw_rows(300), tmp_path / "1.fgr", site=site)
    with pytest.raises(fg.LedgerError, match="left before"):
        write_reports(PLAN, draw_rows(300), tmp_path / "2.fgr", site=site)
    assert not (tmp_path / "2.fgr").exists()


def test_rows_that_moved_are_not_reported_twice(site, tmp_path):
    labels, scores = draw_rows(300)
    write_reports(PLAN, (labels, scores), tmp_path / "1.fgr", site=site)
    second = SecondPlan.sign(SECOND, KEY)
    for rows in ((labels[::-1], scores[::-1]), (labels[1:], scores[1:]), (1 - labels, scores)):
        with pytest.raises(fg.PlanRefused, match="same order"):
            write_reports(second, rows, tmp_path / "2.fgr", site=site)
    write_reports(second, (labels, scores), tmp_path / "2.fgr", site=site)
    assert not {*ids_in(tmp_path / "1.fgr", PLAN)} & {*ids_in(tmp_path / "2.fgr", SECOND)}


def test_a_crash_before_the_file_costs_the_budget_once(site, tmp_path):
    labels, scores = draw_rows(300)

    def chunks():
        yield labels, scores
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_reports(PLAN, chunks, tmp_path / "1.fgr", site=site)
    assert [path.name for path in tmp_path.iterdir()] == ["site"]
    assert [*spent(site).values()] == [2.0]
    write_reports(PLAN, (labels[::-1], scores[::-1]), tmp_path / "1.fgr", site=site)
    assert [*spent(site).values()] == [2.0]


def test_a_second_round_without_a_first_is_refused(site, tmp_path):
    """It would cost as a new evaluation does; whoever wants that makes reports of the first."""
    second, rows = SecondPlan.sign(SECOND, KEY), draw_rows(300)
    with pytest.raises(fg.PlanRefused, match=f"plan {PLAN.digest[:8]}"):
        write_reports(second, rows, tmp_path / "2.fgr", site=site)
    assert spent(site) == {}
    write_reports(PLAN, rows, tmp_path / "late.fgr", site=site)
    write_reports(second, rows, tmp_path / "2.fgr", site=site)
    assert [*spent(site).values()] == [2.0]


def test_simulated_rows_report_in_one_round_exactly():
    """Coins tossed anew in the second round would add up to all once in a hundred times."""
    rows = draw_rows(5_000)
    clients = {f"c{n}": (rows[0][n::50], rows[1][n::50]) for n in range(50)}
    for plan, data in ((PLAN, clients), (PLAN, {"one": rows}), (MODELS, two_models(clients))):
        result = fg.evaluate(data, plan=plan, seed=5)
        assert result.plan.found.clients + result.reports == 5_000


def two_models(clients):
    return {name: (y, {"new": p, "old": p}) for name, (y, p) in clients.items()}
