"""Evaluations that a site joined and nobody finished: listed, ended by hand, given up in time."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from commands import run
from consortium import COORDINATOR, Consortium
from exchange import CLIENTS, EXACT, NAMES, NOISY, A, B, begun, copied, every_stage, make_world
from flwr.clientapp import ClientApp
from sites import open_policy
from standin import StandInGrid

import fedgauge as fg
from fedgauge.engines import flower
from fedgauge.engines.participant import Participant
from fedgauge.plan import plan
from fedgauge.secagg import Stage

pytestmark = pytest.mark.usefixtures("few_redraws")
DAY = timedelta(days=1)


@pytest.fixture
def later(monkeypatch):
    """Sets the clock of all sites to some time from now."""

    def set_clock(span):
        monkeypatch.setattr(plan, "now", lambda: datetime.now(UTC) + span)

    return set_clock


@pytest.fixture
def expiring():
    """A plan that expires in ten days."""
    return NOISY.with_not_after(f"{datetime.now(UTC) + 10 * DAY:%Y-%m-%dT%H:%M:%SZ}")


def ledger(world, verb, *arguments, name=A, code=0):
    done = run("ledger", verb, *arguments, "--site", world.site_file(name), columns=160)
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


def balance(world, name=A):
    (only,) = world.site(name).ledger.balances()
    return only.spent.epsilon, only.reserved.epsilon


def kept(world, name=A):
    """What is left of sessions at a site."""
    return sorted(path.suffix for path in (world.folder / name / "sessions").glob("*.*"))


def session_of(world, run="run"):
    return world.exchange(world.folder / run).invitation().session


def copied_state(world, name=A):
    return {path: path.read_bytes() for path in (world.folder / name / "sessions").iterdir()}


@every_stage
def test_release_ends_what_exchange_abandon_would(noisy_steps, stage):
    with copied(noisy_steps[stage, "advance"]) as world:
        digits = session_of(world).hex()
        if stage == Stage.OPEN:
            assert "No evaluation is open" in ledger(world, "pending")
            told = ledger(world, "release", digits[:8], code=1)
            assert f"evaluation {digits[:8]} is over, and its cost stays" in told
            assert balance(world) == (1.0, 0.0)
            return
        assert digits[:8] in ledger(world, "pending")
        told = ledger(world, "release", digits[:8])
        assert f"Ended evaluation {digits[:8]}; its keys are deleted" in told
        assert ("Given back to stroke-2026" in told) == (stage < Stage.MASK)
        assert ("and stays: epsilon 1" in told) == (stage >= Stage.MASK)
        assert balance(world) == ((0.0, 0.0) if stage < Stage.MASK else (1.0, 0.0))
        assert not [suffix for suffix in kept(world) if suffix != ".lock"]
        assert "No evaluation is open" in ledger(world, "pending")
        # It is out for good, and a second time there is nothing to end.
        world.advance(world.run)
        with pytest.raises(fg.ExchangeError, match="or has ended it"):
            world.answer(world.run, A, Stage(stage + 1), CLIENTS[A])
        became = "was released" if stage < Stage.MASK else "is over, and its cost stays"
        assert became in ledger(world, "release", digits[:8], code=1)


def test_abandon_says_that_a_cost_stays(noisy_steps):
    for stage, said in ((Stage.SHARE, False), (Stage.MASK, True)):
        with copied(noisy_steps[stage, "advance"]) as world:
            done = run(*world.arguments(A, "abandon", "--yes"))
            assert done.exit_code == 0
            assert ("Its cost stays" in done.stdout) == said


def test_a_session_of_flower_is_listed_and_released(tmp_path):
    """Over Flower there is no folder to abandon."""
    sites = Consortium.make(tmp_path, NAMES)
    app = ClientApp()
    flower.attach(app, lambda _, context: CLIENTS[NAMES[context.node_config["partition-id"]]])
    configs = {
        node: {"partition-id": node, "fedgauge-site": str(sites.site_file(name))}
        for node, name in enumerate(NAMES)
    }

    def courier(node, message):
        """The server dies once all have joined."""
        if len(grid.log) > 2 * len(NAMES):
            raise ConnectionError
        return grid.call(node, message)

    grid = StandInGrid(dict.fromkeys(configs, app), configs, courier)
    with pytest.raises(ConnectionError):
        flower.evaluate(grid, NOISY, timeout=0.01, site=sites.site_file(COORDINATOR))
    (pending,) = Participant(sites.site(A)).pending()
    assert (pending.spend.status, pending.overdue) == ("reserved", False)
    assert "nothing counted" in ledger(sites, "pending")
    assert "Given back" in ledger(sites, "release", pending.session.hex()[:12])
    assert balance(sites) == (0.0, 0.0)
    assert balance(sites, B) == (0.0, 1.0)


def test_listing_changes_nothing(noisy_steps, later):
    with copied(noisy_steps[Stage.SHARE, "answer"]) as world:
        later(31 * DAY)
        before = copied_state(world), world.entries(A)
        assert "nothing counted; time is over" in ledger(world, "pending")
        ledger(world, "show")
        assert (copied_state(world), world.entries(A)) == before


def test_a_state_that_cannot_be_read_can_be_ended(noisy_steps):
    with copied(noisy_steps[Stage.MASK, "answer"]) as world:
        world.state().write_bytes(b"junk")
        ledger(world, "release", session_of(world).hex()[:8])
        assert balance(world) == (0.0, 0.0)
        assert not [suffix for suffix in kept(world) if suffix != ".lock"]


@pytest.mark.parametrize("digits", ["", "3f9a02c", "3f9a02cx", "3F9A02C1", "3f9a02c1 ", "0" * 65])
def test_what_is_no_beginning_of_an_id(world, digits):
    told = ledger(world, "release", digits, code=1)
    assert "first 8 hexadecimal digits" in told


def test_unknown_and_ambiguous_ids(world):
    assert "no evaluation in the ledger begins with 3f9a02c1" in ledger(
        world, "release", "3f9a02c1", code=1
    )
    site = world.site(A)
    twins = [b"\x3f\x9a\x02\xc1" + bytes([end]) * 28 for end in (1, 2)]
    for session in twins:
        site.reserve(session, NOISY)
    told = ledger(world, "release", "3f9a02c1", code=1)
    assert all(session.hex() in told for session in twins)
    assert balance(world) == (0.0, 2.0)
    ledger(world, "release", twins[1].hex()[:10])
    assert [site.ledger.status(session) for session in twins] == ["reserved", "released"]


@pytest.mark.parametrize(("days", "given_up"), [(29, False), (31, True)])
@pytest.mark.parametrize("stage", [Stage.SHARE, Stage.MASK], ids=["share", "submit"])
def test_a_late_request_is_refused_before_anything_is_counted(
    noisy_steps, later, stage, days, given_up
):
    with copied(noisy_steps[stage, "answer"]) as world:
        later(days * DAY)
        request = world.request(stage).read_bytes()
        asked = []

        def data():
            asked.append(1)
            return CLIENTS[A]

        if not given_up:
            assert Participant(world.site(A), data).answer(request)
            return
        with pytest.raises(fg.ExchangeError, match=r"after some days \(session_days\)"):
            Participant(world.site(A), data).answer(request)
        assert not asked
        assert world.entries(A) == ["reserve", "release"]
        assert balance(world) == (0.0, 0.0)
        assert not [suffix for suffix in kept(world) if suffix != ".lock"]


def test_keys_of_what_was_counted_are_deleted_too(noisy_steps, later):
    with copied(noisy_steps[Stage.AGREE, "answer"]) as world:
        later(31 * DAY)
        with pytest.raises(fg.ExchangeError, match="session_days"):
            world.answer(world.run, A, Stage.AGREE)
        assert balance(world) == (1.0, 0.0)
        assert not [suffix for suffix in kept(world) if suffix != ".lock"]


def test_what_was_joined_by_a_clock_far_ahead_is_given_up(noisy_steps, later):
    """Set right, the clock would reach the end of such a session in years: its keys would stay."""
    with copied(noisy_steps[Stage.MASK, "answer"]) as world:
        later(-31 * DAY)
        with pytest.raises(fg.ExchangeError, match="or has ended it"):
            world.answer(world.run, A, Stage.MASK, CLIENTS[A])
        assert not [suffix for suffix in kept(world) if suffix != ".lock"]
        assert balance(world) == (0.0, 0.0)


def test_the_site_says_after_how_many_days(folder, later):
    world = begun(folder, plan=NOISY, policy=open_policy(session_days=2))
    world.answer(world.run, A, Stage.ADVERTISE)
    later(3 * DAY)
    (pending,) = Participant(world.site(A)).pending()
    assert pending.overdue


def test_a_budget_that_was_set_aside_for_nothing_is_there_for_the_next(folder, later):
    world = make_world(folder, plan=NOISY, policy=open_policy(budget_epsilon=1.0))
    for number in (1, 2):
        world.start(world.folder / f"run-{number}", NOISY)
    world.answer(world.folder / "run-1", A, Stage.ADVERTISE)
    with pytest.raises(fg.BudgetExceeded):
        world.answer(world.folder / "run-2", A, Stage.ADVERTISE)
    later(31 * DAY)
    world.answer(world.folder / "run-2", A, Stage.ADVERTISE)
    assert world.entries(A) == ["reserve", "release", "reserve"]
    (left,) = (world.folder / A / "sessions").glob("*.client")
    assert left.stem == session_of(world, "run-2").hex()[:32]


def test_a_kill_after_the_budget_came_back_leaves_no_keys_for_long(noisy_steps):
    with copied(noisy_steps[Stage.MASK, "answer"]) as world:
        world.site(A).ledger.release(session_of(world))
        assert "given back; keys left" in ledger(world, "pending")
        world.start(world.folder / "next", NOISY)
        world.answer(world.folder / "next", A, Stage.ADVERTISE)
        (left,) = (world.folder / A / "sessions").glob("*.client")
        assert left.stem == session_of(world, "next").hex()[:32]


def test_a_report_that_was_never_made_gives_its_budget_back(folder, later):
    """Killed between reserving and counting, where there is no state at all."""
    world = make_world(folder, plan=NOISY)
    world.site(A).reserve(b"r" * 32, NOISY)
    later(31 * DAY)
    world.start(world.run, NOISY)
    world.answer(world.run, A, Stage.ADVERTISE)
    assert world.entries(A) == ["reserve", "release", "reserve"]


def test_an_expired_plan_is_neither_started_nor_joined(folder, later, expiring):
    world = begun(folder, plan=expiring)
    later(11 * DAY)
    with pytest.raises(fg.PlanRefused, match="not_after"):
        world.answer(world.run, A, Stage.ADVERTISE)
    assert world.entries(A) == []
    done = run(
        *("exchange", "start", world.folder / "plan.json", world.folder / "again"),
        *("--site", world.site_file(COORDINATOR)),
    )
    assert done.exit_code == 2
    assert "not_after" in done.stderr
    with pytest.raises(fg.PlanRefused, match="not_after"):
        flower.evaluate(None, expiring)


def test_a_plan_that_expires_after_joining_is_not_counted(folder, later, expiring):
    world = begun(folder, plan=expiring)
    world.play(world.run, world.clients, until=Stage.SHARE)
    later(11 * DAY)
    (pending,) = Participant(world.site(A)).pending()
    assert pending.overdue
    with pytest.raises(fg.ExchangeError, match=r"when its plan expired \(not_after\)"):
        world.answer(world.run, A, Stage.MASK, CLIENTS[A])
    assert world.entries(A) == ["reserve", "release"]
    assert not [suffix for suffix in kept(world) if suffix != ".lock"]


def test_a_plan_that_expires_before_it_is_confirmed_is_not_opened(folder, later, expiring):
    world = begun(folder, plan=expiring)
    world.play(world.run, world.clients, until=Stage.MASK)
    later(11 * DAY)
    with pytest.raises(fg.PlanRefused, match="not_after"):
        world.answer(world.run, A, Stage.AGREE, CLIENTS[A])
    assert balance(world) == (1.0, 0.0)


def test_what_was_confirmed_in_time_is_opened(folder, later, expiring):
    world = begun(folder, plan=expiring)
    world.play(world.run, world.clients, until=Stage.AGREE)
    later(11 * DAY)
    result = world.finish(Stage.OPEN)
    assert result.record.plan == expiring
    assert np.isfinite(result.roc_auc.value)


def test_an_attempt_that_was_paid_for_and_killed_is_not_counted_late(folder, later):
    """Committed, so its budget does not come back; killed before anything was stored."""
    plan = EXACT.with_not_after(f"{datetime.now(UTC) + 10 * DAY:%Y-%m-%d}")
    world = begun(folder, plan=plan)
    world.play(world.run, world.clients, until=Stage.SHARE)
    world.site(A).ledger.commit(session_of(world))
    later(12 * DAY)
    with pytest.raises(fg.PlanRefused, match="not_after"):
        world.answer(world.run, A, Stage.MASK, CLIENTS[A])
    assert world.entries(A) == ["reserve", "commit"]
