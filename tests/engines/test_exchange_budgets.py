"""What evaluations by files cost: budgets, cohorts that differ by few sites, and
how sessions end."""

import math
import re
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from commands import complaint, run
from consortium import COORDINATOR, NAMES, A, B, C, Consortium, D
from counts import counts_of, pooled_counts
from exchange import CLIENTS, EXACT, NOISY, assert_refused, begun, copied, every_stage, make_world
from flwr.clientapp import ClientApp
from plans import plan_for
from refusals import refused
from rows import draw_client
from sites import open_policy
from standin import StandInGrid

import fedgauge as fg
from fedgauge.engines import flower
from fedgauge.engines.participant import Participant
from fedgauge.plan import plan
from fedgauge.secagg import Stage
from fedgauge.site import Policy

pytestmark = pytest.mark.usefixtures("few_redraws")


def balance(world, name=A):
    (only,) = world.site(name).ledger.balances()
    return only.spent.epsilon, only.reserved.epsilon


@every_stage
def test_abandon_gives_back_what_did_not_leave(noisy_steps, commands, stage):
    with copied(noisy_steps[stage, "advance"]) as world:
        (done,) = commands({"arguments": world.arguments(A, "abandon", "--yes")})
        assert done.code == 0
        lost = "Its cost stays spent: epsilon 1, .* On stroke-2026 epsilon 1, .* of epsilon 10,"
        assert bool(re.search(lost, done.out)) == (stage >= Stage.MASK)
        assert balance(world) == ((0.0, 0.0) if stage < Stage.MASK else (1.0, 0.0))
        assert balance(world, B) == ((0.0, 1.0) if stage < Stage.MASK else (1.0, 0.0))
        # It is out for good: neither the next round nor a new start of this one.
        (joined,) = commands({"arguments": world.arguments(A, "join")})
        assert joined.code == 1
        assert "A new attempt needs a new session" in joined.err
        if stage < Stage.OPEN:
            world.advance(world.run)
            with pytest.raises(fg.ExchangeError, match="did not join"):
                world.answer(world.run, A, Stage(stage + 1), CLIENTS[A])


def test_abandon_by_the_coordinator(noisy_steps, commands):
    with copied(noisy_steps[Stage.MASK, "advance"]) as world:
        (done,) = commands({"arguments": world.arguments(COORDINATOR, "abandon", "--yes")})
        assert done.code == 0
        assert not list((world.folder / COORDINATOR / "sessions").glob("*.server"))
        (advanced,) = commands({"arguments": world.arguments(COORDINATOR, "advance")})
        assert advanced.code == 1
        assert "did not start this exchange, or has abandoned it" in advanced.err


@pytest.mark.parametrize("stage", [Stage.ADVERTISE, Stage.SHARE], ids=["joined", "shared"])
def test_old_state_put_back_after_the_counts_left(noisy_steps, stage):
    """It would add new noise under the old masks."""
    with copied(noisy_steps[stage, "advance"]) as world:
        old = world.state().read_bytes()
        world.advance(world.run)
        world.play(world.run, world.clients, since=stage + 1, until=Stage.SHARE)
        world.answer(world.run, A, Stage.MASK, CLIENTS[A])
        sent = world.reply(Stage.MASK).read_bytes()
        world.state().write_bytes(old)
        for now in (Stage.SHARE, Stage.MASK):
            if now > stage:
                with pytest.raises((fg.ExchangeError, fg.ProtocolError)):
                    world.answer(world.run, A, now, CLIENTS[A])
        assert world.reply(Stage.MASK).read_bytes() == sent
        assert balance(world) == (1.0, 0.0)


def test_bad_data_cost_nothing(noisy_steps, commands):
    """A file that cannot be read is the operator's to mend: the session waits."""
    with copied(noisy_steps[Stage.MASK, "answer"]) as world:
        path, state = world.folder / f"{A}.csv", world.state().read_bytes()
        good = path.read_text()
        for bad in ("y,p\n1,high\n", "y,q\n1,0.5\n"):
            path.write_text(bad)
            (done,) = commands({"arguments": world.arguments(A, "submit")})
            assert done.code == 2
            assert re.fullmatch(r"fedgauge: .*\n", done.err)
            assert "high" not in done.err
            assert world.state().read_bytes() == state
            assert balance(world) == (0.0, 1.0)
            assert not world.reply(Stage.MASK).exists()
        path.write_text(good)
        (done,) = commands({"arguments": world.arguments(A, "submit")})
        assert done.code == 0
        assert balance(world) == (1.0, 0.0)


def torn():
    raise OSError(5, "the tape is torn")


def test_data_that_fail_to_come_leave_noise_alone(noisy_steps):
    """The budget was spent before they were read: the site goes on, and its operator is told."""
    with copied(noisy_steps[Stage.MASK, "answer"]) as world:
        request, told, seen = world.request(Stage.MASK).read_bytes(), [], []

        def data():
            seen.append((balance(world), world.entries(A)))
            torn()

        reply = Participant(world.site(A), data, tell=told.append).answer(request)
        assert seen == [((1.0, 0.0), ["reserve", "commit"])]
        assert len(reply) == len(world.reply(Stage.MASK, B).read_bytes())
        assert balance(world) == (1.0, 0.0)
        assert world.entries(A) == ["reserve", "commit", "sent"]
        assert told
        assert Participant(world.site(A), torn).answer(request) == reply


def test_rows_that_changed_since_join_end_an_exact_sum(exact_steps, commands):
    """The difference to what the others think is summed would be those rows."""
    with copied(exact_steps[Stage.MASK, "answer"]) as world:
        path = world.folder / f"{A}.csv"
        path.write_text(path.read_text() + "1,0.5\n")
        (done,) = commands({"arguments": world.arguments(A, "submit")})
        assert done.code == 2
        assert "the rows changed since this site joined" in done.err
        assert not world.reply(Stage.MASK).exists()
        assert balance(world) == (math.inf, 0.0)
        assert world.entries(A) == ["reserve", "commit"]
        refused(fg.ExchangeError, "did not join", world.answer, world.run, A, Stage.MASK)
        refused(fg.LedgerError, "new session", world.answer, world.run, A, Stage.ADVERTISE)


def test_rows_are_not_read_at_join_to_a_noisy_sum_nor_before_a_plan_is_judged(world):
    world.start(world.folder / "fine", plan_for(bins=8192))
    too_fine = world.exchange(world.folder / "fine").invitation()
    refused(fg.PlanRefused, "max_bins", Participant(world.site(A), torn).answer, too_fine.data)
    world.start(world.run, NOISY)
    invitation = world.exchange(world.run).invitation()
    Participant(world.site(A), torn).answer(invitation.data)
    assert world.entries(A) == ["reserve"]


def test_other_rows_named_at_a_second_join_are_checked(noisy_steps):
    """As at the first: who joins again has been joined already."""
    with copied(noisy_steps[Stage.SHARE, "answer"]) as world:
        (world.folder / "bad.csv").write_text("y,p\n1,high\n")
        arguments = ["--label", "y", "--score", "p", "--site", world.site_file(A)]
        told = complaint(run("exchange", "join", world.run, world.folder / "bad.csv", *arguments))
        assert "column 'p' holds values that are not numbers" in told
        assert world.named(A) == world.rows(A)
        done = run("exchange", "join", world.run, world.folder / f"{B}.csv", *arguments)
        assert done.exit_code == 0  # nothing was counted so far
        assert world.named(A) == world.rows(B)


@pytest.mark.parametrize("kind", ["counted", "exact"])
def test_other_rows_are_not_said_to_have_joined(noisy_steps, exact_steps, kind):
    """Once rows were counted, or their digest is in the ledger, they are the session's."""
    steps, stage = (noisy_steps, Stage.AGREE) if kind == "counted" else (exact_steps, Stage.SHARE)
    with copied(steps[stage, "answer"]) as world:
        arguments = ["--label", "y", "--score", "p", "--site", world.site_file(A)]
        other = run("exchange", "join", world.run, world.folder / f"{B}.csv", *arguments)
        assert "this site joined with" in complaint(other, code=1)
        assert world.named(A) == world.rows(A)
        assert run(*world.arguments(A, "join")).exit_code == 0  # the same again


def run_with(world, number, names, plan=EXACT):
    """One evaluation among some of the sites, up to their confirmation."""
    run = world.folder / f"run-{number}"
    clients = {name: world.clients[name] for name in names}
    world.start(run, plan, invited=names)
    world.play(run, clients, until=Stage.MASK)
    return run, clients


def finish_with(world, run, clients):
    return world.play(run, clients, since=Stage.AGREE)


def test_cohorts_that_differ_by_one_site(world):
    first = finish_with(world, *run_with(world, 1, NAMES))
    np.testing.assert_array_equal(counts_of(first), world.truth())
    run = world.folder / "run-2"
    world.start(run, EXACT, invited=NAMES[:3])
    for name in NAMES[:3]:
        before = world.entries(name)
        with pytest.raises(fg.PlanRefused, match="would or could show the sum over 1 site"):
            world.answer(run, name, Stage.ADVERTISE)
        assert world.entries(name) == before
        assert not list(run.glob("*.reply.fgx"))
    with pytest.raises(fg.CohortTooSmall):
        world.advance(run, without_missing=True)
    # The same sites as before may go on.
    third = finish_with(world, *run_with(world, 3, NAMES))
    np.testing.assert_array_equal(counts_of(third), world.truth())


def test_cohort_that_grew_by_one_site_after_a_dropout(world):
    """The sum over all but one, then over all: the one who dropped out would be laid bare."""
    world.start(world.run, EXACT)
    world.play(world.run, world.clients, until=Stage.SHARE)
    np.testing.assert_array_equal(
        counts_of(world.finish(Stage.MASK, skip={D})), world.truth(NAMES[:3])
    )
    run = world.folder / "run-2"
    world.start(run, EXACT)
    for name in NAMES:  # the one who dropped out does not know whose sum the first became
        with pytest.raises(fg.PlanRefused, match="would or could show the sum over 1 site"):
            world.answer(run, name, Stage.ADVERTISE)
    Participant(world.site(D)).abandon(world.exchange(world.run).invitation().session)
    world.answer(run, D, Stage.ADVERTISE)  # its counts never left; and it is not heard alone
    with pytest.raises(fg.CohortTooSmall):
        world.advance(run, without_missing=True)


def test_a_sum_that_would_lay_a_site_bare_stops_before_anything_is_counted(world):
    """The sum over all is known; one of them is lost before the counts are asked for."""
    finish_with(world, *run_with(world, 1, NAMES))
    run = world.folder / "run-2"
    world.start(run, EXACT)
    world.play(run, world.clients, until=Stage.ADVERTISE)
    world.play(run, world.clients, since=Stage.SHARE, until=Stage.SHARE, skip={D})
    for name in NAMES[:3]:
        with pytest.raises(fg.PlanRefused, match="would or could show the sum over 1 site"):
            world.answer(run, name, Stage.MASK)
        assert world.entries(name)[-1] == "reserve"
        assert not list(run.glob("3-*.reply.fgx"))


def test_a_sum_that_was_never_confirmed_is_not_forgotten(world):
    """Whoever submitted and was not asked to confirm may be in a sum that others confirmed. However
    many others confirm: without its vote the coordinator gets nothing."""
    run, clients = run_with(world, 1, NAMES)
    for name in (B, C, D):
        world.answer(run, name, Stage.AGREE)
    again = world.folder / "run-2"
    world.start(again, EXACT)
    refused(fg.PlanRefused, "would or could show", world.answer, again, A, Stage.ADVERTISE)
    with pytest.raises(fg.CohortTooSmall, match="3 members answered and 4 are needed"):
        world.advance(run, without_missing=True)
    assert finish_with(world, run, clients).clients == 4


def test_cohorts_that_differ_by_enough_sites(folder):
    names = [f"site-{i}" for i in range(6)]
    world = Consortium.make(folder, names)
    clients = {name: draw_client(50, seed=i) for i, name in enumerate(names)}
    for number, chosen in enumerate((names[:3], names, names[3:], names)):
        run = folder / f"run-{number}"
        world.start(run, EXACT, invited=chosen)
        result = world.play(run, {name: clients[name] for name in chosen})
        np.testing.assert_array_equal(counts_of(result), pooled_counts(EXACT, clients, chosen))


def test_exact_sum_after_noise_is_not_joined(world, commands):
    finish_with(world, *run_with(world, 1, NAMES, NOISY))
    world.start(world.run, EXACT)
    (done,) = commands({"arguments": world.arguments(A, "join")})
    assert_refused(world, done, "an exact sum would void that promise", entries=4)


def test_budget_that_is_used_up(folder, commands):
    world = make_world(folder, policy=Policy(budget_epsilon=1.5))
    finish_with(world, *run_with(world, 1, NAMES, NOISY))
    world.start(world.run, NOISY)
    (done,) = commands({"arguments": world.arguments(A, "join")})
    assert_refused(world, done, "spent or reserved epsilon 1,", entries=4)


DAY = timedelta(days=1)


@pytest.fixture
def later(monkeypatch):
    """Sets the clock of all sites to some time from now."""

    def set_clock(span):
        monkeypatch.setattr(plan, "now", lambda: datetime.now(UTC) + span)

    return set_clock


@pytest.fixture
def expiring():
    return NOISY.with_not_after(f"{datetime.now(UTC) + 10 * DAY:%Y-%m-%dT%H:%M:%SZ}")


def ledger(world, verb, *arguments, name=A, code=0):
    done = run("ledger", verb, *arguments, "--site", world.site_file(name), columns=160)
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


def kept(world, name=A):
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
        assert ("and it stays spent: epsilon 1" in told) == (stage >= Stage.MASK)
        assert balance(world) == ((0.0, 0.0) if stage < Stage.MASK else (1.0, 0.0))
        assert not [suffix for suffix in kept(world) if suffix != ".lock"]
        assert "No evaluation is open" in ledger(world, "pending")
        # It is out for good, and a second time there is nothing to end.
        world.advance(world.run)
        with pytest.raises(fg.ExchangeError, match="or has ended it"):
            world.answer(world.run, A, Stage(stage + 1), CLIENTS[A])
        became = "was released" if stage < Stage.MASK else "is over, and its cost stays"
        assert became in ledger(world, "release", digits[:8], code=1)


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


def test_unknown_and_ambiguous_ids(world):
    assert "no evaluation in the ledger begins with 3f9a02c1" in ledger(
        world, "release", "3f9a02c1", code=1
    )
    for digits in ("", "3f9a02c", "3f9a02cx", "3F9A02C1", "3f9a02c1 ", "0" * 65):
        told = ledger(world, "release", digits, code=1)
        assert "first 8 hexadecimal digits" in told
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
        refused(fg.ExchangeError, "session_days", world.answer, world.run, A, Stage.AGREE)
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
    refused(fg.PlanRefused, "not_after", world.answer, world.run, A, Stage.ADVERTISE)
    assert world.entries(A) == []
    done = run(
        *("exchange", "start", world.folder / "plan.json", world.folder / "again"),
        *("--site", world.site_file(COORDINATOR)),
    )
    assert done.exit_code == 2
    assert "not_after" in done.stderr
    refused(fg.PlanRefused, "not_after", flower.evaluate, None, expiring)


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


def test_a_plan_that_is_not_confirmed_before_it_expires_is_not_opened(folder, later, expiring):
    world = begun(folder, plan=expiring)
    world.play(world.run, world.clients, until=Stage.MASK)
    later(11 * DAY)
    refused(fg.PlanRefused, "not_after", world.answer, world.run, A, Stage.AGREE, CLIENTS[A])
    assert balance(world) == (1.0, 0.0)
    later(0 * DAY)
    world.play(world.run, world.clients, since=Stage.AGREE, until=Stage.AGREE)
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
    refused(fg.PlanRefused, "not_after", world.answer, world.run, A, Stage.MASK, CLIENTS[A])
    assert world.entries(A) == ["reserve", "commit"]
