"""Second rounds that are not of the first: other bins, other sites, an old first, two of them. The
attacker is an approved coordinator. It opens the sum of the first round, which no site sees, and
says which bins follow from it; whatever it says is signed with its key."""

import msgspec
import numpy as np
import pytest
from forks import fast_folder

import fedgauge as fg
from fedgauge.engines.network import conclude, follow
from fedgauge.engines.review import approve, review
from fedgauge.estimation.distribution import Aligned
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.plan.two_rounds import Found
from fedgauge.secagg import Stage, SummationServer
from fedgauge.site import Policy, add_approver, add_trust
from fedgauge.site.ledger_entries import SumRoster
from two_rounds import (
    CLIENTS,
    EXACT,
    NAMES,
    NOISY,
    TWO,
    A,
    B,
    C,
    D,
    Edited,
    Evaluation,
    invitation_to,
    plan_of,
    sessions,
)

pytestmark = pytest.mark.usefixtures("few_redraws")


@pytest.fixture(scope="module")
def opened():
    """By plan: sites whose first round was opened, and the server of the second."""
    with fast_folder() as folder:
        made = {}
        for name, plan in (("exact", EXACT), ("noisy", NOISY)):
            evaluation = Evaluation.make(folder / name)
            made[name] = evaluation, evaluation.first(plan).to_bytes()
        yield made


def copied(opened, kind, folder):
    """Sites between the rounds, and a server of the second, for a test of its own."""
    evaluation, state = opened[kind]
    mine = evaluation.copied(folder / "sites")
    return mine, SummationServer.from_bytes(state, mine.key)


@pytest.fixture(params=["exact", "noisy"])
def between(request, opened, folder):
    return copied(opened, request.param, folder)


@pytest.fixture
def noisy(opened, folder):
    return copied(opened, "noisy", folder)


@pytest.fixture
def exact(opened, folder):
    return copied(opened, "exact", folder)


def another(second, counts=None, **changes):
    """The plan of a second round that claims something else of the first."""
    plan = second.invitation.plan
    counts = tuple(reversed(plan.found.counts)) if counts is None else counts
    return plan.whole.located(msgspec.structs.replace(plan.found, counts=counts, **changes))


def test_both_rounds_are_charged_once(between):
    evaluation, second = between
    outcome = evaluation.sum(second)
    result = conclude(second, outcome, key=evaluation.key, estimator=Aligned())
    assert result.clients == 4
    site = evaluation.sites.site(A)
    if result.plan.is_noisy:
        assert evaluation.balance() == (1.0, 0.0)
    assert site.ledger.count_exact(site.dataset) == (0 if result.plan.is_noisy else 2)
    assert sessions(site) == [f"{second.invitation.session.hex()[:32]}.client"]


@pytest.mark.parametrize(
    ("edges", "reason"),
    [
        ([0, 0.3, 0.5, 0.7, 1], "not those that follow"),  # no edge of the coarse axis, nor a part
        ([0, 0.5, 0.5 + 1 / 256, 1], "not those that follow"),  # too narrow
        ([0, 0.25, 0.5, 0.75, 1], "not those that follow"),  # allowed, but of other counts
    ],
    ids=["no-part", "narrow", "other"],
)
def test_bins_that_were_edited_are_refused(between, edges, reason):
    evaluation, second = between
    axis = fg.Axis.from_edges(edges, outside="clip")
    plan, bins = second.invitation.plan, len(edges) - 1
    rounds = (plan.rounds[0], msgspec.structs.replace(plan.rounds[1], nodes=(bins,)))
    edited = Edited(plan, axis=axis, tree=(bins,), rounds=rounds)
    assert reason in evaluation.refusal(invitation_to(edited, second, evaluation.key))


def test_whatever_counts_are_claimed_bins_are_within_the_rules(noisy):
    """Nobody but the coordinator knows the sum; what it can choose is bounded, and all see it."""
    _, second = noisy
    rng = np.random.default_rng(3)
    for counts in rng.integers(-1000, 1000, (50, 16)):
        axis = another(second, tuple(counts.tolist())).axis
        TWO.check(axis)
        both = np.unique([*axis.edges[1:-1], *TWO.coarse.edges[1:-1]])
        assert np.diff(both).min() >= TWO.narrowest


def test_a_member_that_is_told_other_bins_is_not_in_the_sum(between):
    evaluation, second = between
    apart = evaluation.begin(another(second))
    replies = [evaluation.answer(name, second.invitation.data) for name in (A, B, C)]
    alone = evaluation.answer(D, apart.invitation.data)
    assert alone is not None  # it cannot know
    member = second.invitation.members.index(evaluation.sites.keys[D])
    with pytest.raises(fg.ProtocolError):
        second.check(member, alone)
    with pytest.raises(fg.CohortTooSmall):
        apart.step({member: alone})
    assert all(replies)
    assert "another second round" in evaluation.refusal(second, D)


def test_one_first_round_has_one_second(between):
    evaluation, second = between
    assert evaluation.answer(A, second.invitation.data)
    for plan in (another(second), second.invitation.plan):
        assert "another second round" in evaluation.refusal(evaluation.begin(plan))
    evaluation.sum(second)
    assert "another second round" in evaluation.refusal(evaluation.begin(another(second)))


def test_a_first_round_of_another_evaluation_is_not_replayed(noisy):
    """Both are of the same plan: what was found in the old one is claimed of the new one."""
    evaluation, old = noisy
    new = evaluation.first(NOISY)
    replayed = evaluation.begin(new.invitation.plan)
    assert evaluation.answer(A, replayed.invitation.data)  # what the new one is entitled to
    assert "another second round" in evaluation.refusal(new)
    found = old.invitation.plan.found
    fewer = another(old, found.counts, clients=3)
    assert "another number of sites" in evaluation.refusal(evaluation.begin(fewer))


def test_a_first_round_of_another_plan_is_refused(between):
    evaluation, second = between
    plan = second.invitation.plan
    other = msgspec.structs.replace(TWO, bins=5)
    changed = plan_of(plan.privacy, other, plan.cohort)
    found = msgspec.structs.replace(plan.found, two=other)
    told = evaluation.refusal(evaluation.begin(changed.located(found)))
    assert "another plan" in told
    dated = plan.whole.with_not_after("2999-01-01").located(plan.found)
    assert "another plan" in evaluation.refusal(evaluation.begin(dated))


def test_a_second_round_without_a_first_of_two_is_refused(folder):
    evaluation = Evaluation.make(folder / "sites")
    for session in (b"", bytes(32)):
        found = Found(TWO, tuple(range(16)), 4, session=session.hex())
        server = evaluation.begin(NOISY.located(found))
        assert "did not join the first" in evaluation.refusal(server)
    plan = fg.EvaluationPlan.for_histogram(
        TWO.coarse, fg.Cohort(3, 1), privacy=fg.DistributedDP(1.0)
    )
    server = evaluation.begin(plan)
    evaluation.sum(server)
    found = Found(TWO, tuple(range(16)), 4, session=server.invitation.session.hex())
    assert "did not join the first" in evaluation.refusal(evaluation.begin(NOISY.located(found)))


def test_another_roster_or_model_is_refused(noisy):
    evaluation, second = noisy
    server = evaluation.begin(second.invitation.plan, (A, B, C))
    assert "another roster" in evaluation.refusal(server)
    server = evaluation.begin(second.invitation.plan, model=bytes(32))
    assert "does not fit" in evaluation.refusal(server)
    ledger, plan = evaluation.sites.site(A).ledger, second.invitation.plan
    (first,) = ledger.sessions().values()
    site = evaluation.sites.site(A)
    with pytest.raises(fg.PlanRefused, match="another model"):
        site.reserve(
            bytes(32), plan, roster=first.roster, asked=first.asked._replace(model=bytes(32))
        )


def test_another_coordinator_or_dataset_is_refused(between):
    evaluation, second = between
    other = SigningKey.generate()
    site = add_trust(
        evaluation.sites.site_file(A), "coordinator", "other", key_to_text(other.public)
    )
    assert other.public in site.coordinators
    server = SummationServer.invite(second.invitation.plan, second.invitation.members, other)
    assert "another coordinator" in evaluation.refusal(server)
    path = evaluation.sites.site_file(A)
    path.write_text(path.read_text().replace('"stroke-2026"', '"stroke-2027"'))
    assert "another dataset" in evaluation.refusal(second)


def judged(plan, **limits):
    limits = {"models": ("secure-aggregation",), "min_cell": 0, **limits}
    with fast_folder() as folder:
        evaluation = Evaluation.make(folder / "sites", **limits)
        server = evaluation.begin(plan)
        reply = evaluation.answer(A, server.invitation.data)
        return None if reply else str(evaluation.refusals[A])


def test_bins_that_could_be_narrow_are_refused_before_the_first_round():
    width = Policy().min_bin_width
    assert judged(EXACT, min_bin_width=width) is None
    wide = msgspec.structs.replace(TWO, narrowest=0.0)
    told = judged(plan_of(two=wide, cohort=EXACT.cohort), min_bin_width=width)
    assert "second round may have bins narrower than 0.0078125" in told
    fine = fg.TwoRound(6, coarse=fg.Axis.asinh(64), narrowest=width)
    plan = plan_of(two=fine, cohort=EXACT.cohort)
    told = judged(plan, min_bin_width=width)
    assert "the plan's bins are narrower" in told
    assert "Plan with a wider coarse axis" in told
    assert judged(plan, min_bin_width=width, axes=(fine.coarse.digest,)) is None


def test_what_the_second_round_asks_for_is_judged_before_the_first():
    groups = fg.BinaryTask(groups={"sex": ["women"]})
    assert "max_groups" in judged(plan_of(cohort=EXACT.cohort, task=groups), max_groups=1)
    many = msgspec.structs.replace(TWO, bins=40)
    plan = plan_of(two=many, cohort=EXACT.cohort)
    assert "40 bins, this site allows 39" in judged(plan, max_bins=39)
    assert "80 counts, this site allows 79" in judged(plan, max_counts=79)
    named = plan_of(cohort=EXACT.cohort, task=fg.BinaryTask("ill"))
    assert "'ill' the positive label" in judged(named)
    small = plan_of(cohort=EXACT.cohort, min_cell=5)
    assert "fewer than 10 examples" in judged(small, min_cell=10)
    assert "Two rounds are two of them" in judged(EXACT, exact_sums=1)
    assert judged(EXACT, exact_sums=2) is None


def test_both_rounds_are_within_the_sizes_that_a_site_allows(noisy):
    """Also where a plan comes in no invitation, whose sizes are judged before it is read."""
    evaluation, second = noisy
    path = evaluation.sites.site_file(A)
    path.write_text(path.read_text().replace("max_bins = 4096", "max_bins = 39"))
    site, many = evaluation.sites.site(A), msgspec.structs.replace(TWO, bins=40)
    with pytest.raises(fg.PlanRefused, match="40 bins, this site allows 39"):
        site.judge(
            plan_of(NOISY.privacy, many),
            members=second.invitation.members,
            coordinator=evaluation.key.public,
        )


def test_the_room_for_the_second_sum_is_kept(folder):
    evaluation = Evaluation.make(folder / "sites", exact_sums=2)
    second = evaluation.first(EXACT)
    again = evaluation.begin(EXACT)
    assert "has had 2 exact sums" in evaluation.refusal(again)
    evaluation.sum(second)
    assert "has had 2 exact sums" in evaluation.refusal(again)


def test_rows_that_changed_between_exact_sums_are_refused(exact):
    evaluation, second = exact
    labels, scores = CLIENTS[A]
    evaluation.clients[A] = (labels[1:], scores[1:])
    told = evaluation.refusal(second)
    assert "not those of the earlier exact sums" in told
    assert "Put them back as they were" in told  # a new name would end the evaluation
    evaluation.clients[A] = CLIENTS[A]
    assert evaluation.answer(A, second.invitation.data)


def test_the_second_exact_sum_is_over_the_sites_of_the_first(exact):
    evaluation, second = exact
    with pytest.raises(fg.CohortTooSmall):
        evaluation.sum(second, silent={D: Stage.MASK})
    site = evaluation.sites.site(A)
    keys = [evaluation.sites.keys[name] for name in (A, B, C)]
    rules = site.rules(EXACT)._replace(exact_dropouts=True, min_cohort=3)
    with pytest.raises(fg.PlanRefused, match="over other sites than the first"):
        site.ledger.check_sites(second.invitation.session, keys, rules=rules)
    with pytest.raises(fg.PlanRefused, match="over other sites than the first"):
        site.ledger.record_survivors(second.invitation.session, keys, rules=rules)


def test_who_was_not_in_the_first_exact_sum_is_not_in_the_second(folder):
    """The difference of the two would be its counts."""
    evaluation = Evaluation.make(folder / "sites")
    for name in NAMES:
        path = evaluation.sites.site_file(name)
        path.write_text(path.read_text().replace("exact_dropouts = false", "exact_dropouts = true"))
    plan = plan_of(cohort=fg.Cohort(3, 1))
    second = evaluation.first(plan, silent={D: Stage.MASK})
    assert second.invitation.plan.found.clients == second.needed == 3
    assert "did not see the first" in evaluation.refusal(second, D)
    assert len(evaluation.sum(second).survivors) == 3


def test_another_evaluation_of_the_same_plan_finds_the_same_bins(exact):
    """Edges that lie close to those of an earlier second round would be as narrow as one likes."""
    evaluation, second = exact
    evaluation.sum(second)
    again = evaluation.first(EXACT)
    lie = evaluation.begin(another(again))
    assert "found other bins" in evaluation.refusal(lie)
    assert again.invitation.plan.axis == second.invitation.plan.axis
    assert evaluation.sum(again) is not None


def test_large_exact_sums_have_one_round(folder):
    site = Evaluation.make(folder / "sites").sites.site(A)
    keys = frozenset(bytes([i]) * 32 for i in range(4))
    with pytest.raises(fg.PlanRefused, match="in one round"):
        site.reserve(bytes(32), EXACT, roster=SumRoster(keys, 4), certain=False)


@pytest.mark.parametrize("stage", [Stage.SHARE, Stage.MASK, Stage.AGREE, Stage.OPEN])
def test_who_drops_out_of_a_noisy_first_round_pays_once(folder, stage):
    evaluation = Evaluation.make(folder / "sites")
    second = evaluation.first(NOISY, silent={A: stage})
    assert evaluation.balance() == ((1.0, 0.0) if stage > Stage.MASK else (0.0, 1.0))
    evaluation.sum(second, until=Stage.SHARE)
    assert evaluation.balance() == ((1.0, 0.0) if stage > Stage.MASK else (0.0, 1.0))
    evaluation.refusals.clear()
    assert evaluation.balance(B) == (1.0, 0.0)


@pytest.mark.parametrize("stage", list(Stage))
def test_who_drops_out_of_a_noisy_second_round_has_paid_once(noisy, stage):
    evaluation, second = noisy
    assert len(evaluation.sum(second, silent={D: stage}).survivors) >= 3
    assert [evaluation.balance(name) for name in NAMES] == [(1.0, 0.0)] * 4


@pytest.mark.parametrize("where", ["reserve", "_take_up", "_store", "_recorded", "_end"])
def test_a_crash_at_the_second_join_costs_nothing_more(folder, monkeypatch, where):
    """Killed before its state is stored or recorded, a site takes up where it was."""
    evaluation = Evaluation.make(folder / "sites")
    second = evaluation.first(NOISY, silent={A: Stage.MASK})

    class Killed(BaseException):
        pass

    def die(*_args, **_options):
        raise Killed

    owner = "site.Site" if where == "reserve" else "engines.participant.Participant"
    with monkeypatch.context() as patch:
        patch.setattr(f"fedgauge.{owner}.{where}", die)
        with pytest.raises(Killed):
            evaluation.answer(A, second.invitation.data)
    assert evaluation.balance() == (0.0, 1.0)
    assert len(evaluation.sum(second).survivors) == 4
    assert [evaluation.balance(name) for name in NAMES] == [(1.0, 0.0)] * 4


def test_the_budget_is_held_for_the_second_round(folder):
    """What another evaluation may spend does not grow between the rounds."""
    evaluation = Evaluation.make(folder / "sites", budget_epsilon=1.5)
    second = evaluation.first(NOISY, silent={A: Stage.MASK})
    assert "does not allow this" in evaluation.refusal(evaluation.begin(NOISY))
    evaluation.sum(second)
    assert "does not allow this" in evaluation.refusal(evaluation.begin(NOISY))
    assert evaluation.balance() == (1.0, 0.0)


def test_who_gave_up_between_the_rounds_is_out(between):
    evaluation, second = between
    evaluation.participant(A).abandon(second.invitation.follows)
    assert "has ended it" in evaluation.refusal(second)
    if second.invitation.plan.is_noisy:
        assert evaluation.balance() == (1.0, 0.0)


def test_who_gave_up_before_counting_gets_it_back(folder):
    evaluation = Evaluation.make(folder / "sites")
    second = evaluation.first(NOISY, silent={A: Stage.MASK})
    assert evaluation.answer(A, second.invitation.data)
    assert evaluation.balance() == (0.0, 1.0)
    evaluation.participant(A).abandon(second.invitation.session, second.invitation.follows)
    assert evaluation.balance() == (0.0, 0.0)


def test_who_gave_up_before_the_second_is_refused_and_pays_nothing(folder):
    evaluation = Evaluation.make(folder / "sites")
    second = evaluation.first(NOISY, silent={A: Stage.MASK})
    evaluation.participant(A).abandon(second.invitation.follows)
    assert evaluation.balance() == (0.0, 0.0)
    assert "did not join the first, or has given it up" in evaluation.refusal(second)


@pytest.mark.parametrize("rows", ["changed", "none", "broken"])
def test_silence_between_noisy_rounds_tells_nothing_of_rows(noisy, rows):
    evaluation, second = noisy

    def broken():
        raise RuntimeError("the disk is gone")

    evaluation.clients[A] = {
        "changed": draw(5),
        "none": (np.zeros(0), np.zeros(0)),
        "broken": broken,
    }[rows]
    assert len(evaluation.sum(second).survivors) == 4
    assert not evaluation.refusals


def draw(seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, 9), rng.random(9)


@pytest.fixture
def approved(folder):
    """A site's approval of both rounds, with which the first took place."""
    evaluation = Evaluation.make(folder / "sites")
    add_approver(evaluation.sites.site_file(A), "officer", folder / "officer.key")
    officer, server = SigningKey.load(folder / "officer.key"), evaluation.begin(NOISY)
    assert "no approver has signed" in evaluation.refusal(server)
    named = server.invitation.session.hex()
    kept = approve(evaluation.sites.site(A), server.invitation, officer, evaluation=named)
    return evaluation, officer, server, kept, follow(server, evaluation.sum(server))


def test_one_approval_is_for_both_rounds(approved):
    evaluation, officer, server, _, second = approved
    site = evaluation.sites.site(A)
    seen = review(site, second.invitation)
    assert (seen.approver, seen.refusal) == ("officer", None)
    assert seen.joined.between
    assert not seen.can_be_approved
    with pytest.raises(fg.ExchangeError, match="covers both"):
        approve(site, second.invitation, officer, evaluation=second.invitation.session.hex())
    assert len(evaluation.sum(second).survivors) == 4
    asked = [site.ledger.spend(s.invitation.session).asked.approver for s in (server, second)]
    assert asked == [officer.public] * 2
    other = evaluation.begin(another(second))
    assert "another second round" in evaluation.refusal(other)


def test_an_approval_that_is_withdrawn_holds_for_neither(approved):
    evaluation, _, _, kept, second = approved
    kept.unlink()
    assert "no approver has signed" in evaluation.refusal(second)
