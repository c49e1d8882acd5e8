"""Exchanges with the rows that site files declare, in periods and judged before they are joined."""

from datetime import UTC, date, datetime, timedelta

import pytest
from consortium import NAMES, A
from exchange import CLIENTS, NOISY, begun, make_world
from sites import open_policy

import fedgauge as fg
from fedgauge.engines.exchange import Exchange, join
from fedgauge.engines.participant import Participant
from fedgauge.engines.review import rehearse
from fedgauge.errors import BudgetExceeded, InputError, PlanRefused
from fedgauge.plan import plan as plans
from fedgauge.secagg import Stage
from fedgauge.site.rows import NamedRows, read_note

pytestmark = pytest.mark.usefixtures("few_redraws", "quick_disk")
THREE = NAMES[:3]
MONDAY = date(2026, 11, 16)
DAILY = 'path = "scores/{year}-{month}-{day}.csv"\nlabel = "y"\nscore = "p"'
ALL_APART = f'{DAILY}\nperiods = "disjoint"'
WEEKLY = ALL_APART.replace("{month}-{day}", "W{week}")


@pytest.fixture
def clock(monkeypatch):
    """Says which day it is to all sites, from now on."""

    def set_to(day):
        span = datetime(day.year, day.month, day.day, 12, tzinfo=UTC) - datetime.now(UTC)
        monkeypatch.setattr(plans, "now", lambda: datetime.now(UTC) + span)

    return set_to


def declare(world, table, name=A):
    path = world.site_file(name)
    path.write_text(f"{path.read_text()}\n[data]\n{table}\n")
    return world.site(name)


def export(world, day, name=A):
    """The rows of a day or week, as its site exports them."""
    path = world.folder / name / "scores" / f"{day}.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes((world.folder / f"{name}.csv").read_bytes())
    return path


def start(world, number, plan):
    run = world.folder / f"run-{number}"
    world.start(run, plan)
    return run


def join_declared(world, run):
    site = world.site(A)
    return join(Exchange(run, site), site)


def spent(world):
    """What is reserved by dataset, in evaluations of epsilon 1."""
    balances = world.site(A).ledger.balances()
    return {
        each.account.dataset: round(each.reserved.epsilon + each.spent.epsilon) for each in balances
    }


def test_a_session_lasts_into_the_next_period(tmp_path, clock):
    """It goes on with the rows and the dataset that it was joined with."""
    world = begun(tmp_path, THREE, NOISY)
    declare(world, WEEKLY)
    export(world, "2026-W46")
    clock(MONDAY)
    join_declared(world, world.run)
    assert spent(world) == {"stroke-2026-2026-W46": 1}
    clock(MONDAY + timedelta(weeks=1))
    join_declared(world, world.run)  # again, after a crash
    for name in THREE[1:]:
        world.answer(world.run, name, Stage.ADVERTISE)
    world.advance(world.run)
    result = world.finish(Stage.SHARE)
    assert result.clients == 3
    assert spent(world) == {"stroke-2026-2026-W46": 1}


def test_each_period_has_its_budget_once_whatever_the_clock_says(tmp_path, clock):
    world = make_world(tmp_path, THREE, NOISY, policy=open_policy(budget_epsilon=2.0))
    declare(world, WEEKLY)
    for week in (45, 46):
        export(world, f"2026-W{week}")
    first, second = MONDAY - timedelta(weeks=1), MONDAY
    for number, day in enumerate([first, second, first, second]):
        clock(day)
        join_declared(world, start(world, number, NOISY))
    used_up = {"stroke-2026-2026-W45": 2, "stroke-2026-2026-W46": 2}
    assert spent(world) == used_up
    for number, day in enumerate([first, second], 4):
        clock(day)
        run = start(world, number, NOISY)
        with pytest.raises(BudgetExceeded):
            join_declared(world, run)
    clock(MONDAY + timedelta(weeks=50))  # set ahead: a period that has no rows yet
    with pytest.raises(InputError, match="there is no such file"):
        join_declared(world, start(world, 6, NOISY))
    assert spent(world) == used_up


def test_periods_that_are_not_stated_to_be_disjoint_share_a_budget(tmp_path, clock):
    world = make_world(tmp_path, THREE, NOISY, policy=open_policy(budget_epsilon=2.0))
    declare(world, DAILY)
    for number in range(3):
        clock(MONDAY + timedelta(days=number + 1))
        export(world, MONDAY + timedelta(days=number))
        run = start(world, number, NOISY)
        if number < 2:
            join_declared(world, run)
        else:
            with pytest.raises(BudgetExceeded):
                join_declared(world, run)
    assert spent(world) == {"stroke-2026": 2}


def test_a_file_named_by_hand_gets_no_budget_of_a_period(tmp_path, clock):
    """Rows of one week could otherwise be counted again in each week that follows."""
    world = begun(tmp_path, THREE, NOISY)
    declare(world, WEEKLY)
    clock(MONDAY)
    export(world, "2026-W45")
    export(world, "2026-W46")
    site = world.site(A)
    exchange = Exchange(world.run, site)
    rows = world.rows(A)
    for use in (join, rehearse):
        with pytest.raises(PlanRefused, match="would be charged to a period"):
            use(exchange, site, rows)
    assert world.entries(A) == []
    assert rehearse(exchange, site).counted.oddities.rows == len(CLIENTS[A][0])


@pytest.mark.parametrize("noted", [True, False], ids=["noted", "killed before the note"])
def test_a_session_keeps_to_the_rows_of_its_period(tmp_path, clock, monkeypatch, noted):
    """Rows of the next week would be charged to this one, and again to their own."""
    world = begun(tmp_path, THREE, NOISY)
    declare(world, WEEKLY)
    first, next_week = (export(world, f"2026-W{week}") for week in (46, 47))
    clock(MONDAY)
    with monkeypatch.context() as patch:
        if not noted:
            patch.setattr(Participant, "remember", lambda *_: None)
        join_declared(world, world.run)
    clock(MONDAY + timedelta(weeks=1))
    site = world.site(A)
    exchange = Exchange(world.run, site)
    other = NamedRows(str(next_week), "y", "p")
    for use in (join, rehearse):
        with pytest.raises(PlanRefused, match="would be charged to a period"):
            use(exchange, site, other)
    assert rehearse(exchange, site).judged.path == str(first)
    join_declared(world, world.run)
    note = Participant(site).recall(exchange.invitation().session)
    assert read_note(note).path == str(first)
    assert spent(world) == {"stroke-2026-2026-W46": 1}


def test_the_second_of_two_rounds_is_charged_to_the_period_of_the_first(tmp_path, clock):
    two = fg.TwoRound(6, share=0.4, coarse=fg.Axis.uniform(16, outside="clip"))
    plan = fg.EvaluationPlan.for_histogram(two, fg.Cohort(3, 1), privacy=fg.DistributedDP(1.0))
    world = begun(tmp_path, THREE, plan)
    declare(world, WEEKLY)
    export(world, "2026-W46")
    clock(MONDAY)
    join_declared(world, world.run)
    for name in THREE[1:]:
        world.answer(world.run, name, Stage.ADVERTISE)
    world.advance(world.run)
    world.finish(Stage.SHARE)
    clock(MONDAY + timedelta(weeks=1))
    join_declared(world, world.run)
    for name in THREE[1:]:
        world.answer(world.run, name, Stage.ADVERTISE)
    world.advance(world.run)
    assert world.finish(Stage.SHARE).clients == 3
    assert spent(world) == {"stroke-2026-2026-W46": 1}
