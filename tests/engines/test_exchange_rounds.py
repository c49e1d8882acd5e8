"""Two rounds by files: the same commands twice, rows named once, and folders that get lost."""

import json
import math
import shutil
from pathlib import Path

import commands
import numpy as np
import pytest
from consortium import COORDINATOR, NAMES, A, B, D
from counts import counts_of, pooled_counts
from exchange import begun, make_world
from refusals import refused

import fedgauge as fg
from fedgauge.engines.exchange import SECOND, Exchange, join
from fedgauge.engines.participant import Participant
from fedgauge.keys import key_to_text
from fedgauge.secagg import Stage
from fedgauge.site import Cost, add_approver
from fedgauge.site.log import what_left
from fedgauge.site.rows import NamedRows

pytestmark = pytest.mark.usefixtures("few_redraws", "quick_disk")
TWO = fg.TwoRound(6, share=0.4, coarse=fg.Axis.uniform(16, outside="clip"))
EXACT = fg.EvaluationPlan.for_histogram(TWO, fg.Cohort(4, 1))
NOISY = fg.EvaluationPlan.for_histogram(TWO, fg.Cohort(3, 1), privacy=fg.DistributedDP(1.0))


def answer(world, name, stage):
    """As commands do it: in the second round nobody names rows."""
    if stage == Stage.ADVERTISE and (world.run / SECOND).exists():
        site = world.site(name)
        return join(Exchange(world.run, site), site)
    return world.answer(world.run, name, stage)


def play(world, *, until=Stage.OPEN, skip=()):
    """One round to its end, or to a stage of it."""
    outcome = None
    for stage in Stage:
        if stage <= until:
            for name in NAMES:
                if name not in skip:
                    answer(world, name, stage)
            outcome = world.advance(world.run, without_missing=bool(skip))
    return outcome


@pytest.fixture
def noisy(folder):
    world = begun(folder, plan=NOISY)
    play(world)
    return world


def balance(world, name=A):
    site = world.site(name)
    total = site.ledger.total(site.dataset, default_limit=site.policy.default_limit)
    return total.spent.epsilon, total.reserved.epsilon


def command(world, name, verb, *more, code=0):
    arguments = [verb, *map(str, more), "--site", str(world.site_file(name))]
    done = commands.run("exchange", *arguments, columns=300)
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


@pytest.mark.parametrize("plan", [EXACT, NOISY], ids=["exact", "noisy"])
def test_an_operator_repeats_the_same_commands(folder, plan):
    world = make_world(folder, plan=plan)
    run = world.run

    def step(name, verb, *more, **options):
        return command(world, name, verb, run, *more, **options)

    started = command(world, COORDINATOR, "start", world.folder / "plan.json", run)
    assert "Step 1 of 5 in the first of two rounds, join: 0 of 4 answered" in started
    named = {name: [world.folder / f"{name}.csv", "--label", "y", "--score", "p"] for name in NAMES}
    for which, rows in (("first", named), ("second", {name: [] for name in NAMES})):
        for stage, verb in enumerate(("join", "share", "submit", "confirm", "reveal"), 1):
            for name in NAMES:
                step(name, verb, *(rows[name] if verb == "join" else []))
            told = step(COORDINATOR, "advance")
            if stage < len(Stage):
                assert f"Step {stage + 1} of 5 in the {which} of two rounds" in told
        if which == "first":
            assert "Step 1 of 5 in the second of two rounds, join: 0 of 4 answered" in told
            assert f"fedgauge exchange join {run} --site" in step(A, "status")
            assert "waits for" in step(COORDINATOR, "advance", code=1)
    result = fg.Evaluation.from_json(run / "result.json")
    assert result.axis == result.plan.found.axis
    if plan is EXACT:
        counts = pooled_counts(result.plan, world.clients)
        np.testing.assert_array_equal(counts_of(result), counts)
    else:
        assert balance(world) == (1.0, 0.0)
        assert json.loads((run / "result.json").read_bytes())["privacy"]["epsilon"] == 1.0
    assert "Finished: the result is in result.json" in step(B, "status")
    assert "is finished" in step(A, "join", code=1)
    key = key_to_text(world.keys[COORDINATOR])
    checked = commands.run("verify", run / "result.json", "--key", key, columns=200)
    assert checked.stdout.startswith(f"verified: signed by {key}, confirmed by 4 of 4 sites")
    charged = [row.cost for row in what_left(world.site(A)) if row.step == "submit"]
    exact = Cost(math.inf, 0.0)
    assert charged == ([exact, exact] if plan is EXACT else [world.site(A).cost(plan), None])


def test_each_party_has_a_folder_of_its_own(folder):
    world = make_world(folder, plan=NOISY)
    mail = {name: folder / "mail" / name for name in (COORDINATOR, *NAMES)}
    world.start(mail[COORDINATOR], NOISY)
    for within in ("", SECOND):
        for stage in Stage:
            for name in NAMES:
                here = mail[name] / within
                here.mkdir(parents=True, exist_ok=True)
                request = world.request(stage, name).name
                shutil.copy(mail[COORDINATOR] / within / request, here)
                site = world.site(name)
                if stage == Stage.ADVERTISE:
                    rows = None if within else world.rows(name)
                    reply = Path(join(Exchange(mail[name], site), site, rows))
                else:
                    reply = world.answer(mail[name], name, stage)
                assert reply.parent == here
                shutil.copy(reply, mail[COORDINATOR] / within)
            outcome = world.advance(mail[COORDINATOR])
    assert outcome.clients == 4


def test_rows_are_those_of_the_first_round_and_nothing_is_left_to_check(noisy):
    rows = [noisy.folder / f"{A}.csv", "--label", "y", "--score", "p"]
    told = command(noisy, A, "check", noisy.run, *rows, code=1)
    assert "uses the rows of the first" in told
    site = noisy.site(A)
    exchange = Exchange(noisy.run, site)
    other = NamedRows(str(noisy.folder / f"{B}.csv"), "y", "p")
    refused(fg.ExchangeError, r"joined with .*hospital-a\.csv", join, exchange, site, other)
    join(exchange, site, noisy.rows(A))  # the same may be named again
    join(exchange, site)
    assert noisy.named(A) == noisy.rows(A)


@pytest.mark.parametrize("plan", [EXACT, NOISY], ids=["exact", "noisy"])
def test_classes_are_checked_before_the_first_round(folder, plan):
    """Which tells none: a wrong label would show once both are paid for."""
    world = begun(folder, plan=plan)
    rows = world.folder / f"{A}.csv"
    named = [rows, "--label", "y", "--score", "p"]
    positives = int(np.loadtxt(rows, delimiter=",", skiprows=1)[:, 0].sum())
    assert f" {positives} positive" in command(world, A, "check", world.run, *named)
    assert "does not say which rows this site has" in command(world, A, "join", world.run, code=2)
    assert world.entries(A) == []


@pytest.mark.parametrize(
    "lost", ["second", "second/invitation.fgx", "invitation.fgx", "both", "damaged"]
)
def test_lost_invitations_are_written_again(noisy, lost):
    before = (noisy.run / SECOND / "invitation.fgx").read_bytes()
    if lost == "damaged":
        (noisy.run / "invitation.fgx").write_bytes(before[:-1])
    for each in {"both": ("second", "invitation.fgx"), "damaged": ()}.get(lost, (lost,)):
        path = noisy.run / each
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    refused(fg.ExchangeError, "waits for", noisy.advance, noisy.run)
    assert (noisy.run / SECOND / "invitation.fgx").read_bytes() == before
    assert play(noisy).clients == 4


def test_a_coordinator_that_is_killed_begins_one_second_round(folder, monkeypatch):
    world = begun(folder, plan=NOISY)
    play(world, until=Stage.AGREE)
    for name in NAMES:
        answer(world, name, Stage.OPEN)

    class Killed(BaseException):
        pass

    def die(*_args):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("fedgauge.engines.coordinator.Coordinator._store", die)
        with pytest.raises(Killed):
            world.advance(world.run)
    assert not (world.run / SECOND).exists()
    coordinator = "fedgauge.engines.exchange.Exchange.write_request"
    with monkeypatch.context() as patch:
        write = Exchange.write_request

        def only_first(self, invitation, *more):
            if invitation.follows is not None:
                raise Killed
            write(self, invitation, *more)

        patch.setattr(coordinator, only_first)
        with pytest.raises(Killed):
            world.advance(world.run)
    (state,) = (world.folder / COORDINATOR / "sessions").glob("*.server")
    stored = state.read_bytes()
    refused(fg.ExchangeError, "waits for", world.advance, world.run)
    assert state.read_bytes() == stored
    assert play(world).clients == 4


@pytest.mark.parametrize("kind", ["damaged", "first", "other"])
def test_what_is_no_second_round_of_this_one_is_told(noisy, kind):
    path = noisy.run / SECOND / "invitation.fgx"
    whole = path.read_bytes()
    if kind == "damaged":
        path.write_bytes(whole[:-1])
    elif kind == "first":
        path.write_bytes((noisy.run / "invitation.fgx").read_bytes())
    else:
        other = noisy.folder / "other"
        noisy.start(other, NOISY)
        shutil.copy(other / "invitation.fgx", noisy.run)
    told = command(noisy, A, "join", noisy.run, code=1)
    assert str(path) in told
    assert "Copy it again" in told


def test_a_link_leads_nowhere(folder):
    """Whoever can write to the shared folder must not choose where a party's files go."""
    world = begun(folder, plan=NOISY)
    (folder / "private").mkdir()
    play(world, until=Stage.AGREE)
    for name in NAMES:
        answer(world, name, Stage.OPEN)
    (world.run / SECOND).symlink_to(folder / "private")
    refused(fg.ExchangeError, "is a link", world.advance, world.run)
    assert not list((folder / "private").iterdir())


def test_leaving_between_the_rounds_asks_first(noisy):
    told = command(noisy, A, "abandon", noisy.run, code=1)
    assert "spent the budget of both" in told
    told = command(noisy, A, "abandon", noisy.run, "--yes")
    assert "Its cost stays" in told
    assert balance(noisy) == (1.0, 0.0)
    assert "did not join that evaluation, or has ended it" in command(
        noisy, A, "join", noisy.run, code=1
    )
    assert play(noisy, skip=[A]).clients == 3


def test_leaving_a_second_round_that_was_joined_asks_too(noisy):
    assert answer(noisy, A, Stage.ADVERTISE)
    assert "other sites need it in the second" in command(noisy, A, "abandon", noisy.run, code=1)
    assert "Its cost stays" in command(noisy, A, "abandon", noisy.run, "--yes")


def test_a_site_between_the_rounds_is_in_an_evaluation(noisy):
    """Its keys are there, and can be ended where the second never comes."""
    participant = Participant(noisy.site(A))
    (pending,) = participant.pending()
    assert pending.spend.status == "committed"
    participant.abandon(pending.session)
    assert participant.pending() == []
    assert balance(noisy) == (1.0, 0.0)


def test_the_ledger_says_that_a_second_round_is_paid_for(noisy):
    answer(noisy, A, Stage.ADVERTISE)
    first, second = noisy.site(A).ledger.sessions()
    shown = commands.run("ledger", "show", "--entries", "--site", noisy.site_file(A), columns=200)
    assert f"once, with evaluation {first.hex()[:8]}" in shown.stdout
    ended = commands.run("ledger", "release", second.hex()[:8], "--site", noisy.site_file(A))
    assert ended.exit_code == 0
    assert "and it stays spent" in ended.stdout
    assert "Given back" not in ended.stdout
    assert balance(noisy) == (1.0, 0.0)


def test_another_attempt_is_of_both_rounds_and_is_asked_for(noisy):
    plan = Exchange(noisy.run, noisy.site(A)).invitation().plan
    refused(fg.PlanError, "found on another occasion", noisy.start, noisy.folder / "again", plan)
    new = noisy.folder / "again"
    restart = "restart", noisy.run, new, "--without", D
    assert "4 sites have spent epsilon 1" in command(noisy, COORDINATOR, *restart, code=1)
    command(noisy, COORDINATOR, *restart, "--yes")
    assert Exchange(new, noisy.site(A)).invitation().plan == NOISY


def test_an_officer_sees_the_second_round(folder):
    world = make_world(folder, plan=NOISY)
    add_approver(world.site_file(A), "officer", folder / "officer.key")
    world.start(world.run, NOISY)
    reviewed = command(world, A, "review", world.run)
    (approve,) = [line for line in reviewed.splitlines() if "exchange approve" in line]
    words = approve.replace("officer.key", str(folder / "officer.key")).split()
    assert commands.run(*words[1:]).exit_code == 0
    play(world)
    seen = command(world, A, "review", world.run)
    assert "Approved by officer" in seen
    assert "The second round costs nothing more" in seen
    assert "To approve" not in seen
    assert play(world).clients == 4
    assert "This evaluation is over here" in command(world, A, "review", world.run)
