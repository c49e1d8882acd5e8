"""What evaluations by files cost: budgets, and sums over cohorts that differ by few sites."""

import math
import re

import numpy as np
import pytest
from commands import complaint, run
from consortium import COORDINATOR, Consortium
from counts import counts_of, pooled_counts
from exchange import (
    CLIENTS,
    EXACT,
    NAMES,
    NOISY,
    A,
    B,
    C,
    D,
    assert_refused,
    copied,
    every_stage,
    make_world,
)
from rows import draw_client

import fedgauge as fg
from fedgauge.engines.participant import Participant
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


def test_no_data_are_read_before_the_plan_is_judged(world):
    def data():
        raise AssertionError("the data were read")

    too_fine = fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(8192, outside="clip"), fg.Cohort(3, 1)
    )
    world.start(world.run, too_fine)
    site = world.site(A)
    with pytest.raises(fg.PlanRefused, match="max_bins"):
        Participant(site, data).answer(world.exchange(world.run).invitation().data)


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
        request, told = world.request(Stage.MASK).read_bytes(), []
        reply = Participant(world.site(A), torn, tell=told.append).answer(request)
        assert len(reply) == len(world.reply(Stage.MASK, B).read_bytes())
        assert balance(world) == (1.0, 0.0)
        assert world.entries(A) == ["reserve", "commit", "sent"]
        assert told
        assert Participant(world.site(A), torn).answer(request) == reply


def test_data_that_fail_to_come_end_an_exact_sum(exact_steps):
    """It counts, though nothing left: another attempt would be another question."""
    with copied(exact_steps[Stage.MASK, "answer"]) as world:
        request = world.request(Stage.MASK).read_bytes()
        with pytest.raises(fg.InputError, match="could not be read or scored: OSError"):
            Participant(world.site(A), torn).answer(request)
        assert balance(world) == (math.inf, 0.0)
        assert world.entries(A) == ["reserve", "commit"]
        assert not list((world.folder / A / "sessions").glob("*.client"))
        with pytest.raises(fg.ExchangeError, match="did not join"):
            world.answer(world.run, A, Stage.MASK)
        with pytest.raises(fg.LedgerError, match="new session"):
            world.answer(world.run, A, Stage.ADVERTISE)


def test_rows_that_changed_since_join_end_an_exact_sum(exact_steps, commands):
    """The difference to what the others think is summed would be those rows."""
    with copied(exact_steps[Stage.MASK, "answer"]) as world:
        path = world.folder / f"{A}.csv"
        path.write_text(path.read_text() + "1,0.5\n")
        (done,) = commands({"arguments": world.arguments(A, "submit")})
        assert done.code == 2
        assert "the rows changed since this site joined" in done.err
        assert not world.reply(Stage.MASK).exists()
        assert world.entries(A) == ["reserve", "commit"]


def test_the_budget_is_spent_before_rows_are_read(noisy_steps):
    with copied(noisy_steps[Stage.MASK, "answer"]) as world:
        seen = []

        def data():
            seen.append((balance(world), world.entries(A)))
            return CLIENTS[A]

        Participant(world.site(A), data).answer(world.request(Stage.MASK).read_bytes())
        assert seen == [((1.0, 0.0), ["reserve", "commit"])]


def test_rows_of_a_noisy_sum_are_not_read_at_join(world):
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
    """Whoever submitted and was not asked to confirm may be in a sum that others confirmed.

    However many others confirm: without its vote the coordinator gets nothing.
    """
    run, clients = run_with(world, 1, NAMES)
    for name in (B, C, D):
        world.answer(run, name, Stage.AGREE)
    again = world.folder / "run-2"
    world.start(again, EXACT)
    with pytest.raises(fg.PlanRefused, match="would or could show"):
        world.answer(again, A, Stage.ADVERTISE)
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


def test_noisy_sums_are_free_to_differ(world):
    finish_with(world, *run_with(world, 1, NAMES, NOISY))
    assert finish_with(world, *run_with(world, 2, NAMES[:3], NOISY)).clients == 3
    assert world.entries(A) == ["reserve", "commit", "sent", "survivors"] * 2


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
