"""Sites that run unattended: what their agents answer, refuse and survive."""

import itertools
import shutil
from contextlib import suppress

import hostile_member
import numpy as np
import pytest
from agents import DAY, MINUTE, MONDAY, WEEK, Hospitals, dying, full_disk
from consortium import COORDINATOR, NAMES, A, B, C, D
from counts import counts_of
from exchange import EXACT, NOISY, copied
from forks import KILLED
from sites import edit

import fedgauge as fg
from fedgauge.engines.coordinator import Coordinator, Finished
from fedgauge.engines.exchange import Exchange, join
from fedgauge.errors import ExchangeError, FedgaugeError, ProtocolError
from fedgauge.secagg import Stage
from two_rounds import NOISY as SEARCHING

TOLERANT = fg.EvaluationPlan.for_histogram(
    fg.Axis.uniform(8, outside="clip"), fg.Cohort(3, 1), privacy=fg.DistributedDP(1.0)
)

pytestmark = pytest.mark.usefixtures("few_redraws", "quick_disk")


@pytest.fixture
def make(folder, monkeypatch):
    with monkeypatch.context() as patch:

        def made(plan=NOISY, **options):
            hospitals = Hospitals.declared(folder, plan, **options)
            hospitals.enter(patch)
            return hospitals

        yield made


def test_an_evaluation_runs_by_itself(make):
    hospitals = make(EXACT)
    hospitals.export_all()
    finished = hospitals.until_finished()
    np.testing.assert_array_equal(counts_of(finished.result), hospitals.truth())
    assert finished.place.startswith("2026-01-05-")
    for name in (A, B, C):
        assert hospitals.entries(name) == ["reserve", "commit", "sent", "survivors"]
        assert hospitals.kinds(name) == ["joined", *["answered"] * 4]
        (spend,) = hospitals.site(name).ledger.sessions().values()
        assert spend.account.dataset == "stroke-2026-W01"


def charged(hospitals, name):
    """What a hospital spent, by dataset, and that nothing is set aside any more."""
    balances = hospitals.site(name).ledger.balances()
    assert all(each.reserved.epsilon == 0 for each in balances)
    return {each.account.dataset: each.spent.epsilon for each in balances}


def assert_released(hospitals, finished, week):
    """The result of a week is that of all its rows, signed, and every site paid for it once."""
    progress = finished.exchange.progress()
    assert progress.finished
    counts, truth = counts_of(finished.result), hospitals.truth(week)
    if hospitals.plan.is_noisy:
        # 48 counts, each with noise of a scale of about 1: beyond 60 once in 10^20 runs.
        assert np.abs(counts - truth).max() < 60
    else:
        np.testing.assert_array_equal(counts, truth)
    for name in hospitals.names:
        spends = hospitals.site(name).ledger.sessions()
        paid = [each for each in spends.values() if each.account.dataset == f"stroke-{week}"]
        assert [each.status for each in paid].count("committed") == 1
        left = paid[-1].departures
        assert [each.step for each in left] == ["join", "share", "submit", "confirm", "reveal"]


def killed_agent(hospitals):
    """Hospital A's agent is killed before its n-th change of a file, for every n."""
    last = itertools.count(1)
    while not isinstance(hospitals.running().step(hospitals.clock), Finished):
        for name in (B, C):
            hospitals.look(name)
        while hospitals.killed(A, next(last)):
            pass
        hospitals.clock += MINUTE
        last = itertools.count(1)
    return hospitals.until_finished()


def killed_coordinator(hospitals):
    """The same of the coordinator, whose result is not lost when it was killed just after."""
    outcome = None
    while not isinstance(outcome, Finished):
        for last in itertools.count(1):
            with dying(last) as deadline:
                outcome = hospitals.running().step(hospitals.clock)
            if deadline.passed < last:
                break
        for name in hospitals.names:
            hospitals.look(name)
        hospitals.clock += MINUTE
    return hospitals.until_finished()


def late_site(hospitals):
    """Hospital C is away for two days; a run that waits for one day ends, and the next goes on."""
    hospitals.down = {C}
    for _ in range(5):
        assert not hospitals.tick(deadline=DAY).overdue
    hospitals.clock += 2 * DAY
    assert hospitals.tick(deadline=DAY).overdue
    hospitals.down = set()
    return hospitals.until_finished()


def full_site(hospitals):
    """The disk of hospital B is full in each round for a while."""
    return with_full(hospitals, hospitals.folder / B)


def full_share(hospitals):
    return with_full(hospitals, hospitals.shared)


def with_full(hospitals, folder):
    for _ in range(100):
        with full_disk(folder, hospitals.patch), suppress(FedgaugeError):
            hospitals.tick()
        hospitals.clock += 5 * MINUTE
        outcome = hospitals.tick()
        if isinstance(outcome, Finished):
            return hospitals.until_finished()
        hospitals.clock += 5 * MINUTE
    raise AssertionError(hospitals.told[-9:])


def removed_folder(hospitals):
    """Somebody takes the evaluation's folder away in every round."""
    rounds = set()
    while not isinstance(outcome := hospitals.tick(), Finished):
        if outcome.progress.stage not in rounds:
            rounds.add(outcome.progress.stage)
            shutil.rmtree(hospitals.shared / outcome.place)
    assert len(rounds) == 5
    return hospitals.until_finished()


def late_rows(hospitals):
    """The export of hospital A comes a week late; the week stays that of the invitation."""
    week, path = hospitals.week, hospitals.export(A, hospitals.week)
    path.rename(hospitals.folder / "kept")
    for _ in range(5):
        hospitals.tick()
    assert "refused" in hospitals.kinds(A)[-1]
    hospitals.clock += 8 * DAY
    assert hospitals.week != week
    (hospitals.folder / "kept").rename(path)
    hospitals.tick()
    return hospitals.until_finished()


def reversed_labels(hospitals):
    """Hospital B's labels are reversed; the coordinator gives up, and nobody has paid."""
    labels, scores = hospitals.rows_of(B, hospitals.week)
    hospitals.export(B, hospitals.week, (1 - np.asarray(labels), scores))
    for _ in range(5):
        outcome = hospitals.tick()
    site = hospitals.site(COORDINATOR)
    Coordinator(outcome.exchange, site).abandon()
    for name in hospitals.names:
        hospitals.look(name)
        assert charged(hospitals, name).get(f"stroke-{hospitals.week}", 0) == 0
    hospitals.running().close()
    why = {event.kind: event.told for name, event in hospitals.told[-20:] if name == B}
    assert "reversed" in why["warning"]
    assert "Nothing was sent, reserved or spent" in why["refused"]
    return


def fresh_agents(hospitals):
    """All agents are started anew at every step, and two of a site take turns."""
    outcome = None
    while not isinstance(outcome, Finished):
        outcome = hospitals.tick()
        for name in hospitals.names:
            hospitals.restart(name)
            hospitals.look(name)
    return hospitals.until_finished()


FAULTS = {
    2: killed_agent,
    5: killed_coordinator,
    8: late_site,
    10: full_site,
    12: full_share,
    14: removed_folder,
    16: late_rows,
    19: reversed_labels,
    22: fresh_agents,
}


def test_half_a_year_of_weekly_evaluations(make):
    hospitals = make(EXACT)
    results = {}
    for number in range(26):
        hospitals.plan = NOISY if number % 2 else EXACT
        hospitals.clock = max(hospitals.clock, MONDAY + number * WEEK)
        week = hospitals.week
        hospitals.export_all()
        finished = FAULTS.get(number, Hospitals.until_finished)(hospitals)
        if finished is not None:
            results[week] = finished
            assert_released(hospitals, finished, week)
    assert len(results) == 25
    assert len({finished.place for finished in results.values()}) == 25
    for name in hospitals.names:
        assert set(charged(hospitals, name)) >= {f"stroke-{week}" for week in results}


def test_two_rounds_run_by_themselves(make):
    """The second round has an invitation of its own, in a folder within the first's."""
    hospitals = make(SEARCHING)
    hospitals.export_all()
    finished = hospitals.until_finished()
    assert finished.result.privacy.claim == "enforced"
    for name in hospitals.names:
        assert hospitals.kinds(name) == ["joined", *["answered"] * 9]
        assert charged(hospitals, name) == {"stroke-2026-W01": 1.0}


def test_an_operator_may_be_asked(make):
    """Each evaluation is joined by hand, in the period of that day; the agent does the rest."""
    hospitals = make()
    hospitals.export_all()
    edit(hospitals.site(A), 'answer = "policy"', 'answer = "ask"')
    for _ in range(5):
        outcome = hospitals.tick()
    (said,) = [event for name, event in hospitals.told if name == A]
    assert said.kind == "waiting"
    assert said.told == f"join it with `fedgauge exchange join {hospitals.shared / outcome.place}`"
    assert hospitals.entries(A) == []
    site = hospitals.site(A)
    join(Exchange(hospitals.shared / outcome.place, site), site)
    assert_released(hospitals, hospitals.until_finished(), hospitals.week)


def test_a_silent_site_is_left_out_after_the_deadline(make):
    """Four sites of which one may be missing: the late one neither pays nor keeps budget back."""
    hospitals = make(TOLERANT, names=NAMES)
    hospitals.export_all()
    hospitals.down = {D}
    for _ in range(5):
        outcome = hospitals.tick(deadline=DAY)
    assert outcome.progress.missing == (D,)
    hospitals.clock += DAY
    assert hospitals.tick(deadline=DAY, min_sites=4).overdue
    finished = hospitals.until_finished(deadline=DAY)
    assert finished.result.clients == 3
    hospitals.down = set()
    hospitals.look(D)
    assert hospitals.entries(D) == []
    for name in (A, B, C):
        assert charged(hospitals, name) == {"stroke-2026-W01": 1.0}


def test_a_site_that_joined_and_was_left_out_gets_its_budget_back(make):
    hospitals = make(TOLERANT, names=NAMES)
    hospitals.export_all()
    hospitals.tick(deadline=DAY)
    hospitals.down = {D}
    hospitals.tick(deadline=DAY)
    hospitals.clock += DAY
    assert hospitals.until_finished(deadline=DAY).result.clients == 3
    hospitals.down = set()
    hospitals.look(D)
    assert charged(hospitals, D) == {"stroke-2026-W01": 0.0}
    assert hospitals.entries(D) == ["reserve", "release"]


def test_an_attempt_that_is_given_up_ends_at_the_sites(make):
    """The coordinator begins again elsewhere: agents give back what they had set aside."""
    hospitals = make()
    hospitals.export_all()
    for _ in range(2):
        outcome = hospitals.tick()
    Coordinator(outcome.exchange, hospitals.site(COORDINATOR)).abandon()
    hospitals.clock += MINUTE
    for name in hospitals.names:
        hospitals.look(name)
        assert hospitals.entries(name) == ["reserve", "release"]
        assert hospitals.kinds(name)[-1] == "ended"
    assert_released(hospitals, hospitals.until_finished(), hospitals.week)


def test_a_result_that_was_taken_away_is_not_paid_for_again(make):
    hospitals = make()
    hospitals.export_all()
    while not isinstance(outcome := hospitals.tick(), Finished):
        pass
    shutil.rmtree(hospitals.shared / outcome.place)
    with pytest.raises(ExchangeError, match="its result is not there"):
        hospitals.tick()
    assert charged(hospitals, A) == {"stroke-2026-W01": 1.0}


def test_a_run_begins_again_without_who_broke_the_rules(make, monkeypatch):
    """Only if told to: everybody pays again."""
    names = [*NAMES, "hospital-e"]
    hospitals = make(TOLERANT, names=names)
    hospitals.export_all()
    guilty = hospitals.site("hospital-e").key
    deeds = [hostile_member.wrong_shares(to_all=True)]
    hostile_member.turn(monkeypatch, guilty, deeds, peer=hospitals.keys[A])
    with pytest.raises(ProtocolError, match="hospital-e"):
        hospitals.until_finished()
    (first,) = hospitals.shared.iterdir()
    finished = hospitals.until_finished(restart=True)
    assert finished.place != first.name
    assert guilty.public not in finished.exchange.invitation().members
    assert finished.result.clients == 4
    assert charged(hospitals, A) == {"stroke-2026-W01": 2.0}


# Processes.


def test_agents_killed_at_every_change_of_a_file(noisy_steps, commands):
    """Really killed before each change of a file in each round: the same reply comes after all."""
    for stage in Stage:
        for last in itertools.count(1):
            with copied(noisy_steps[stage, "answer"]) as world:
                path = world.site_file(A)
                rows = f'path = "../{A}.csv"\nlabel = "y"\nscore = "p"\n'
                path.write_text(f"{path.read_text()}\n[data]\n{rows}")
                site = ["--site", str(world.site_file(A))]
                request = {"arguments": ["site", "run", str(world.run), "--once", *site]}
                (done,) = commands(request | {"last": last})
                kept = world.published()
                (again,) = commands(request)
                assert again.code == 0, again.err
                assert kept.items() <= world.published().items()
                assert world.reply(stage).exists()
                assert world.entries(A).count("commit") == (stage >= Stage.MASK)
                if done.code != KILLED:
                    assert done.code == 0, done.err
                    break
