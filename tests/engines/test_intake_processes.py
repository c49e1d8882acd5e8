"""An intake that is killed at any moment loses nothing it acknowledged and doubles nothing."""

import os
import shutil

import numpy as np
import pytest
from forks import KILLED, fast_folder, serving

import fedgauge as fg
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.local.encode import find_second
from fedgauge.local.server import FILE_NAME
from fedgauge.privacy.keystream import SimulatedKeystream

PLAN = fg.EvaluationPlan.for_reports(
    fg.Axis.uniform(16, outside="clip"), fg.LocalDP(2.0), tree=(4, 4)
)
MESSAGES = 12
PER_MESSAGE = 40


@pytest.fixture(scope="module")
def ask():
    with serving("intake_child.py") as send:

        def ask(place, **request):
            places = {"plan": "plan.json", "inbox": "inbox", "folder": "intake"}
            answer = send(request | {name: str(place / path) for name, path in places.items()})
            return {"said": answer["said"], "code": answer["codes"][0]}

        yield ask


@pytest.fixture
def place():
    with fast_folder() as place:
        (place / "inbox").mkdir()
        PLAN.save(place / "plan.json")
        for number, message in enumerate(messages()):
            (place / "inbox" / f"{number:02}.fgr").write_bytes(message)
        yield place


def messages():
    rng, source = np.random.default_rng(1), SimulatedKeystream(1)
    for _ in range(MESSAGES):
        rows = rng.integers(0, 2, PER_MESSAGE), rng.random(PER_MESSAGE)
        (message,) = fg.encode_rows(PLAN, rows, source=source)
        yield message


def tallies(server):
    return [(count, tally.tolist()) for count, tally in server._levels()]


def expected(place, count):
    """What an undisturbed intake holds after some messages."""
    with fg.ReportServer(PLAN) as server:
        for path in sorted((place / "inbox").iterdir())[:count]:
            server.accept(path.read_bytes())
        return tallies(server)


def check_whole(place, acknowledged):
    """All that was acknowledged is there, and at most the one message under way besides."""
    with fg.ReportServer(PLAN, place / "intake") as server:
        held = tallies(server)
    counts = [count for count, _ in held]
    stored = sum(counts) // PER_MESSAGE
    assert stored in (acknowledged, acknowledged + 1)
    assert held == expected(place, stored)


def test_an_intake_killed_at_any_step_is_whole_and_can_be_taken_up(ask, place):
    """Before and after every call that touches files, from the first to the last."""
    last, codes = 0, set()
    while True:
        last += 7 if last > 60 else 1  # every step of the start and of two messages, then some
        shutil.rmtree(place / "intake", ignore_errors=True)
        done = ask(place, last=last)
        codes.add(done["code"])
        if done["code"] == 0:
            break
        assert done["code"] == KILLED
        check_whole(place, len(done["said"]))
        again = ask(place)  # the senders know of no receipt and send everything again
        assert again["code"] == 0
        with fg.ReportServer(PLAN, place / "intake") as server:
            assert server.reports == MESSAGES * PER_MESSAGE
            assert tallies(server) == expected(place, MESSAGES)
    assert codes == {0, KILLED}
    assert last > 80


@pytest.mark.parametrize("moment", range(6))
def test_an_intake_killed_by_the_clock_goes_on(ask, place, moment):
    said = 0
    for _ in range(3):
        done = ask(place, first=said, seconds=0.003 * moment)
        said += len(done["said"])
        with fg.ReportServer(PLAN, place / "intake") as server:
            held = server.reports // PER_MESSAGE
        assert said <= held <= said + 1
        if done["code"] == 0:
            break
    assert ask(place)["code"] == 0
    with fg.ReportServer(PLAN, place / "intake") as server:
        assert tallies(server) == expected(place, MESSAGES)


@pytest.mark.parametrize("kept", [0.0, 0.25, 0.5, 0.75, 0.99])
def test_a_log_that_ends_anywhere_holds_whole_messages(ask, place, kept):
    """A power cut can leave any first part of what was written since the last checkpoint."""
    done = ask(place, seconds=0.01)
    assert done["code"] in (0, KILLED)
    log = place / "intake" / f"{FILE_NAME}-wal"
    if log.exists():
        os.truncate(log, int(log.stat().st_size * kept))
    with fg.ReportServer(PLAN, place / "intake") as server:
        held = tallies(server)
        assert held == expected(place, server.reports // PER_MESSAGE)
    assert ask(place)["code"] == 0
    with fg.ReportServer(PLAN, place / "intake") as server:
        assert tallies(server) == expected(place, MESSAGES)


def test_a_first_round_killed_at_any_step_publishes_one_second_plan(ask, place):
    """What was published before the end is published again, and never another one."""
    two = fg.TwoRound(4, share=0.5, coarse=fg.Axis.uniform(8, outside="clip"))
    plan = fg.EvaluationPlan.for_reports(two, fg.LocalDP(2.0))
    plan.save(place / "plan.json")
    rows = np.arange(40) % 2, np.linspace(0, 1, 40)
    with fg.ReportServer(plan, place / "first") as server:
        server.accept_all(fg.encode_rows(plan, rows, secret=bytes(32)))
    last, ends = 0, set()
    while (0, True) not in ends:
        last += 1
        shutil.rmtree(place / "intake", ignore_errors=True)
        shutil.copytree(place / "first", place / "intake")
        done = ask(place, first=MESSAGES, last=last)  # takes in nothing more
        with fg.ReportServer(plan, place / "intake") as server:
            again = find_second(server, SigningKey.generate())
        assert done["said"] in ([], [key_to_text(again.signer)])
        ends.add((done["code"], bool(done["said"])))
    assert ends == {(KILLED, False), (KILLED, True), (0, True)}
