"""On every engine: messages altered on their way, two plans at once, and sites that judge."""

import itertools

import pytest
from conformance import (
    CLIENTS,
    ENGINES,
    EVERYBODY,
    OTHERS,
    assert_goes_on,
    assert_sum_over,
    every_stage,
)
from envelopes import sealed
from plans import exact_plan, noisy_plan

import fedgauge as fg
from fedgauge.keys import SigningKey
from fedgauge.protocol import Envelope
from fedgauge.secagg import Invitation, Stage
from fedgauge.secagg.messages import Survivors

pytestmark = pytest.mark.usefixtures("few_redraws", "quick_disk")


def flipped(data):
    place = len(data) // 2
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def at(stage, change, *, name="site-1"):
    """A courier that changes what one client sends or gets in one round."""

    def carry(who, when, data):
        return change(data) if (who, when) == (name, stage) else data

    return carry


class Recorder:
    """A courier that keeps a copy of everything."""

    def __init__(self):
        self.seen = {}

    def __call__(self, name, stage, data):
        self.seen[name, stage] = data
        return data


SPOILED = {
    "flipped": flipped,
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda _: b"",
    "lost": lambda _: None,
}


def spoilings():
    """All of them in all rounds on the first engine, where the machines of secure summation meet.
    The other engines carry messages unread: each way to spoil one, and each round, once."""
    everything = list(itertools.product(Stage, SPOILED))
    each = list(zip(Stage, itertools.cycle(SPOILED), strict=False))
    for number, (engine, kind) in enumerate(ENGINES.items()):
        for stage, name in everything if number == 0 else each:
            told = f"{engine}-{stage.name.lower()}-{name}"
            yield pytest.param(kind, stage, SPOILED[name], id=told)


every_spoiling = pytest.mark.parametrize(
    ("make_engine", "stage", "spoil"), list(spoilings()), indirect=["make_engine"]
)


@every_spoiling
def test_spoiled_reply_counts_as_none(engine, make_plan, stage, spoil):
    assert_goes_on(engine, make_plan(), stage, on_reply=at(stage, spoil))


@every_spoiling
def test_spoiled_request_is_refused(engine, make_plan, stage, spoil):
    assert_goes_on(engine, make_plan(), stage, on_request=at(stage, spoil))
    assert list(engine.refusals) == ["site-1"]


@every_stage
@pytest.mark.parametrize("way", ["on_reply", "on_request"])
def test_a_replay_counts_as_none(engine, noiseless, stage, way):
    """From an earlier run of the same plan between the same parties with the same keys."""
    plan, earlier = noiseless(), Recorder()
    engine.run(plan, CLIENTS, **{way: earlier})
    replay = at(stage, lambda _: earlier.seen["site-1", stage])
    result = engine.run(plan, CLIENTS, **{way: replay})
    assert_sum_over(result, plan, CLIENTS, OTHERS if stage <= Stage.MASK else EVERYBODY)


def test_replay_of_all_replies_gives_nothing(engine):
    plan, earlier = exact_plan(), Recorder()
    engine.run(plan, CLIENTS, on_reply=earlier)
    with pytest.raises(fg.CohortTooSmall):
        engine.run(plan, CLIENTS, on_reply=lambda name, stage, _: earlier.seen[name, stage])


class Mixup:
    """A courier that in one round hands the first client's message over as the second's too."""

    def __init__(self, stage):
        self.stage, self.seen = stage, {}

    def __call__(self, name, stage, data):
        if stage == self.stage:
            self.seen[name] = data
            if len(self.seen) == 2:
                return self.seen[next(iter(self.seen))]
        return data

    @property
    def second(self):
        return list(self.seen)[1]

    def stay(self):
        """Who is in the sum when nobody heard of the second, from then on."""
        return [name for name in CLIENTS if self.stage > Stage.MASK or name != self.second]


@every_stage
def test_reply_of_somebody_else_counts_as_none(engine, make_plan, stage):
    mixup = Mixup(stage)
    assert_goes_on(engine, make_plan(), stage, mixup.stay, on_reply=mixup)


@pytest.mark.parametrize("stage", list(Stage)[1:], ids=lambda stage: stage.name.lower())
def test_request_to_somebody_else_is_refused(engine, make_plan, stage):
    mixup = Mixup(stage)
    assert_goes_on(engine, make_plan(), stage, mixup.stay, on_request=mixup)
    assert list(engine.refusals) == [mixup.second]


@pytest.mark.parametrize("stage", list(Stage)[1:], ids=lambda stage: stage.name.lower())
def test_request_of_an_earlier_round_moves_nobody(engine, make_plan, stage):
    """Asked again what it answered, a client repeats its answer, which is of no use now."""
    asked, answered = Recorder(), Recorder()

    def ask_again(name, when, data):
        asked(name, when, data)
        before = Stage(stage - 1)
        return asked.seen["site-1", before] if (name, when) == ("site-1", stage) else data

    assert_goes_on(engine, make_plan(), stage, on_request=ask_again, on_reply=answered)
    if ("site-1", stage) in answered.seen:
        assert answered.seen["site-1", stage] == answered.seen["site-1", Stage(stage - 1)]


def test_counts_under_another_signature_are_left_out(engine):
    """A reply signed anew by somebody who is not the client, with a body of the right form."""
    plan, stranger = exact_plan(), SigningKey.generate()

    def forge(data):
        said = Envelope.from_bytes(data)
        return sealed(
            stranger, said.session, said.stage, said.sender, said.recipient, said.body
        ).to_bytes()

    result = engine.run(plan, CLIENTS, on_reply=at(Stage.MASK, forge))
    assert_sum_over(result, plan, CLIENTS, OTHERS)


@pytest.mark.parametrize(
    "other",
    [
        exact_plan(bins=16),
        exact_plan(cohort=fg.Cohort(4, 1)),
        exact_plan(largest=1000),
        exact_plan(),
    ],
    ids=["axis", "cohort", "largest", "same plan, another run"],
)
def test_client_that_holds_another_plan_is_left_out(engine, other):
    """Both invitations are signed by the coordinator, and name the same members."""
    plan = exact_plan()

    def invite_elsewhere(data):
        mine = Invitation(data)
        return Invitation.made(other, mine.members, engine.key, bytes(range(32)), mine.graph).data

    result = engine.run(plan, CLIENTS, on_request=at(Stage.ADVERTISE, invite_elsewhere))
    assert_sum_over(result, plan, CLIENTS, OTHERS)


def test_two_plans_for_two_halves_give_no_result(engine):
    plan, other = exact_plan(), exact_plan(bins=16)
    made = []

    def invite_elsewhere(name, stage, data):
        if stage != Stage.ADVERTISE or name in EVERYBODY[:3]:
            return data
        mine = Invitation(data)
        if not made:
            made.append(
                Invitation.made(other, mine.members, engine.key, bytes(32), mine.graph).data
            )
        return made[0]

    with pytest.raises(fg.CohortTooSmall):
        engine.run(plan, CLIENTS, on_request=invite_elsewhere)


def told_otherwise(engine, names):
    """A courier by which a coordinator tells some clients of fewer survivors than there are."""

    def lie(name, stage, data):
        if stage != Stage.AGREE or name not in names:
            return data
        said = Envelope.from_bytes(data)
        left_out = 0b10000000 if said.recipient else 0b00001000  # not the one who is told
        fewer = Survivors.from_bytes(said.body).survivors[0] & ~left_out
        return sealed(
            engine.key,
            said.session,
            said.stage,
            said.sender,
            said.recipient,
            Survivors(survivors=bytes([fewer]), complaints=[]).to_bytes(),
        ).to_bytes()

    return lie


def test_client_told_of_other_survivors_is_outvoted(engine, make_plan):
    """Under noise; an exact sum is stopped by whoever was told of other survivors."""
    lie = told_otherwise(engine, {"site-0"})
    assert_goes_on(engine, make_plan(), Stage.AGREE, on_request=lie)


def test_half_the_clients_told_of_other_survivors(engine, make_plan):
    """A coordinator that tells two stories opens nothing: four must vote for the same one."""
    plan, lie = make_plan(), told_otherwise(engine, {"site-0", "site-3"})
    needed = 4 if plan.is_noisy else 5
    with pytest.raises(fg.CohortTooSmall, match=f"3 members answered and {needed} are needed"):
        engine.run(plan, CLIENTS, on_request=lie)


@pytest.fixture(
    params=[kind for kind in ENGINES.values() if not kind.one_process],
    ids=[name for name, kind in ENGINES.items() if not kind.one_process],
)
def judging(request, folder, monkeypatch):
    engine = request.param(folder, monkeypatch)
    engine.sites(CLIENTS)
    return engine


@pytest.mark.parametrize(
    ("plan", "match"),
    [
        (exact_plan(bins=8192), "max_bins"),
        (exact_plan(cohort=fg.Cohort(2, 1)), "min_cohort"),
        (exact_plan(cohort=fg.Cohort(3, 0)), "max_colluding"),
        (exact_plan(cohort=fg.Cohort(3, 2)), "collude"),
    ],
    ids=["axis", "cohort", "nobody colludes", "one is left"],
)
def test_plan_that_sites_do_not_allow(judging, plan, match):
    with pytest.raises(fg.CohortTooSmall):
        judging.run(plan, CLIENTS)
    assert set(judging.refusals) == set(CLIENTS)
    for name, error in judging.refusals.items():
        assert isinstance(error, fg.PlanRefused)
        assert match in str(error)
        assert judging.sites(CLIENTS).entries(name) == []


def test_budget_is_spent_once_by_each_who_sent(judging):
    judging.run(noisy_plan(), CLIENTS, silent={"site-1": Stage.MASK})
    sites = judging.sites(CLIENTS)
    for name in OTHERS:
        assert sites.entries(name) == ["reserve", "commit", "sent", "survivors"]
        (balance,) = sites.site(name).ledger.balances()
        assert (balance.spent.epsilon, balance.reserved.epsilon) == (1.0, 0.0)
    assert sites.entries("site-1") == ["reserve"]


def test_exact_sums_over_cohorts_that_differ_by_one(judging):
    """The difference of the two sums would be the counts of one site."""
    plan = exact_plan()
    assert_sum_over(judging.run(plan, CLIENTS), plan, CLIENTS, EVERYBODY)
    with pytest.raises(fg.CohortTooSmall):
        judging.run(plan, CLIENTS, silent={"site-1": Stage.MASK})
    assert set(judging.refusals) == set(OTHERS)
    assert {type(error) for error in judging.refusals.values()} == {fg.PlanRefused}
    # What became of that sum they do not know: it may have been over any of them.
    with pytest.raises(fg.CohortTooSmall):
        judging.run(plan, CLIENTS)
    assert set(judging.refusals) >= set(OTHERS)
    assert all("would or could show" in str(error) for error in judging.refusals.values())


def test_exact_sums_over_the_whole_roster_leave_nothing_unknown(judging):
    """One that stopped was over all sites or over none, so the same ones may go on."""
    plan = exact_plan(cohort=fg.Cohort(5, 1))
    for silent in ({}, {"site-1": Stage.MASK}, {"site-1": Stage.AGREE}):
        if silent:
            with pytest.raises(fg.CohortTooSmall, match="4 members answered and 5 are needed"):
                judging.run(plan, CLIENTS, silent=silent)
        else:
            assert_sum_over(judging.run(plan, CLIENTS), plan, CLIENTS, EVERYBODY)
        assert judging.refusals == {}
    assert_sum_over(judging.run(plan, CLIENTS), plan, CLIENTS, EVERYBODY)


def test_noisy_sums_may_differ_by_one(judging, noiseless):
    plan = noiseless()
    judging.run(plan, CLIENTS)
    result = judging.run(plan, CLIENTS, silent={"site-1": Stage.MASK})
    assert_sum_over(result, plan, CLIENTS, OTHERS)
