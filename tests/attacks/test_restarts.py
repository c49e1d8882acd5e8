"""A coordinator that starts again what an officer approved once, and what else it might start so.
One signature covers one evaluation: a restart of it only where the first attempt cost nothing."""

from datetime import timedelta

import pytest
from consortium import NAMES, A, B, C, D
from exchange import NOISY, begun

import fedgauge as fg
from fedgauge.engines.participant import Participant
from fedgauge.engines.review import approve, review
from fedgauge.errors import PlanRefused
from fedgauge.keys import SigningKey
from fedgauge.plan import plan as plans
from fedgauge.secagg import Stage
from fedgauge.site import add_approver

pytestmark = pytest.mark.usefixtures("few_redraws", "quick_disk")


@pytest.fixture
def world(tmp_path):
    """Four sites are invited, and the officer at one of them has approved."""
    world = begun(tmp_path, NAMES, NOISY)
    add_approver(world.site_file(A), "officer", tmp_path / "officer.key")
    sign(world, world.run)
    return world


def sign(world, run, officer="officer"):
    invitation = world.exchange(run, A).invitation()
    key = SigningKey.load(world.folder / f"{officer}.key")
    approve(world.site(A), invitation, key, evaluation=invitation.session.hex())


def restart(world, name, members, plan=NOISY):
    """A new attempt of the coordinator, in a folder of its own."""
    run = world.folder / name
    world.start(run, plan, members)
    return run


def leave(world, run):
    Participant(world.site(A)).abandon(world.exchange(run, A).invitation().session)


def refused_to_join(world, run):
    before = world.site(A).ledger.entries()
    assert review(world.site(A), world.exchange(run, A).invitation()).approver is None
    with pytest.raises(PlanRefused):
        world.answer(run, A, Stage.ADVERTISE)
    assert world.site(A).ledger.entries() == before


def test_a_restart_without_a_late_site_needs_no_second_approval(world):
    world.answer(world.run, A, Stage.ADVERTISE)
    leave(world, world.run)
    run = restart(world, "again", [A, B, C])
    seen = review(world.site(A), world.exchange(run, A).invitation())
    assert seen.approver == "officer"
    for stage in Stage:
        for name in (A, B, C):
            world.answer(run, name, stage)
        result = world.advance(run)
    assert result.clients == 3
    spends = world.site(A).ledger.sessions().values()
    assert sorted(spend.status for spend in spends) == ["committed", "released"]


def test_one_signature_is_for_one_attempt_at_a_time(world):
    world.answer(world.run, A, Stage.ADVERTISE)
    run = restart(world, "again", [A, B, C])
    refused_to_join(world, run)
    leave(world, world.run)
    world.answer(run, A, Stage.ADVERTISE)
    refused_to_join(world, restart(world, "third", [A, B, C]))


def pay(world):
    """Go through the evaluation that was approved, up to what it costs."""
    for name in NAMES:
        world.answer(world.run, name, Stage.ADVERTISE)
    world.advance(world.run)
    for name in NAMES:
        world.answer(world.run, name, Stage.SHARE)
    world.advance(world.run)
    world.answer(world.run, A, Stage.MASK)
    leave(world, world.run)


def test_what_was_paid_for_needs_another_signature(world):
    pay(world)
    run = restart(world, "again", [A, B, C])
    refused_to_join(world, run)
    sign(world, run)
    world.answer(run, A, Stage.ADVERTISE)


@pytest.mark.parametrize("second", ["deputy", "a day later"])
def test_two_signatures_for_one_evaluation_pay_for_one(world, monkeypatch, second):
    """By another officer, or by the same: who signs twice approves of nothing more."""
    if second == "deputy":
        add_approver(world.site_file(A), second, world.folder / "deputy.key")
        sign(world, world.run, second)
    else:
        later = plans.now() + timedelta(days=1)
        monkeypatch.setattr(plans, "now", lambda: later)
        sign(world, world.run)
    pay(world)
    refused_to_join(world, restart(world, "again", [A, B, C]))


def test_a_paid_evaluation_is_not_restarted_among_many_approvals(world):
    """Nor is an approval overlooked that comes after many others."""
    folder = world.folder / A / "sessions"
    (restarts,) = folder.glob("*.standing")
    for number in range(200):
        (folder / f"{number:032}.standing").write_bytes(restarts.read_bytes())
    run = restart(world, "again", [A, B, C])
    assert review(world.site(A), world.exchange(run, A).invitation()).approver == "officer"
    pay(world)
    refused_to_join(world, run)


@pytest.mark.parametrize("other", ["plan", "sites", "dataset"])
def test_a_restart_is_of_what_was_approved(tmp_path, other):
    world = begun(tmp_path, NAMES, NOISY)
    world.start(world.folder / "small", NOISY, [A, B, C])
    add_approver(world.site_file(A), "officer", tmp_path / "officer.key")
    sign(world, world.folder / "small")
    world.answer(world.folder / "small", A, Stage.ADVERTISE)
    leave(world, world.folder / "small")
    plan, members = NOISY, [A, B, C]
    path = world.site_file(A)
    if other == "plan":
        plan = fg.EvaluationPlan.for_histogram(
            fg.Axis.uniform(9, outside="clip"), fg.Cohort(3, 1), privacy=fg.DistributedDP(1.0)
        )
    if other == "sites":
        members = [A, B, D]
    if other == "dataset":
        path.write_text(path.read_text().replace('dataset = "stroke-2026"', 'dataset = "x"'))
    run = restart(world, "again", members, plan)
    refused_to_join(world, run)


def test_a_signature_that_was_withdrawn_restarts_nothing(world):
    """The operator's folder then holds none of its two files."""
    for path in (world.folder / A / "sessions").glob("*"):
        if path.suffix in (".approval", ".standing"):
            path.unlink()
    refused_to_join(world, world.run)
    refused_to_join(world, restart(world, "again", [A, B, C]))


def test_a_withdrawn_approval_leaves_no_way_back_to_its_own_evaluation(world):
    (approval,) = (world.folder / A / "sessions").glob("*.approval")
    world.answer(world.run, A, Stage.ADVERTISE)
    for name in NAMES[1:]:
        world.answer(world.run, name, Stage.ADVERTISE)
    world.advance(world.run)
    for name in NAMES:
        world.answer(world.run, name, Stage.SHARE)
    world.advance(world.run)
    approval.unlink()
    with pytest.raises(PlanRefused):
        world.answer(world.run, A, Stage.MASK)
    assert world.entries(A) == ["reserve"]


def test_a_restart_after_its_last_day_is_refused(world, monkeypatch):
    world.answer(world.run, A, Stage.ADVERTISE)
    leave(world, world.run)
    run = restart(world, "again", [A, B, C])
    later = plans.now() + timedelta(days=world.site(A).policy.session_days + 1)
    monkeypatch.setattr(plans, "now", lambda: later)
    refused_to_join(world, run)
