"""Whoever drops out and whenever: the sum over those who stay is right, or there is none."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from duties import Giving
from hypothesis import event, given, settings
from hypothesis import strategies as st
from plans import small_noisy_plan, small_plan

from fedgauge import Axis, Cohort, DistributedDP, EvaluationPlan
from fedgauge.errors import CohortTooSmall
from fedgauge.keys import SigningKey
from fedgauge.protocol import Envelope
from fedgauge.secagg import Invitation, Stage, Sum, SummationClient, SummationServer
from fedgauge.secagg import client as client_module
from fedgauge.secagg import graph as graph_module
from fedgauge.secagg import messages as messages_module
from fedgauge.secagg.graph import Graph, picks, strength
from fedgauge.secagg.messages import Advertisement

KEYS = sorted((SigningKey.from_bytes(bytes([i] * 32)) for i in range(201)), key=lambda k: k.public)
COORDINATOR = SigningKey.from_bytes(b"c" * 32)
NEVER = 9  # a stage that never comes


@dataclass
class Course:
    """What befalls one attempt: from which stage on each member's replies do not arrive. A machine
    is saved and restored, a client asked twice, or a request heard whose reply is lost, with the
    given chances, all out of one seed."""

    silent: list
    seed: int = 0
    restored: float = 0.0
    repeated: float = 0.0
    heard: float = 0.0
    answered: dict = field(default_factory=dict)  # by stage, the replies that arrived


def run(server, values, course):
    """The outcome of an attempt, all messages in memory; None where too few are left."""
    rng = np.random.default_rng(course.seed)
    keys = {key.public: key for key in KEYS}
    keys = [keys[public] for public in server.invitation.members]
    duties = [Giving(row) for row in values]
    clients = {}

    def answer(member, request):
        if server.stage == Stage.ADVERTISE:
            assert request == server.invitation.data
            clients[member] = SummationClient.join(server.invitation, keys[member], duties[member])
            return clients[member].receive(request)
        if rng.random() < course.restored:
            saved = clients[member].to_bytes()
            clients[member] = SummationClient.from_bytes(saved, keys[member], duties[member])
        reply = clients[member].receive(request)
        if rng.random() < course.repeated:
            assert clients[member].receive(request) == reply
        return reply

    def all_answers():
        for member in rng.permutation(list(server.requests)).tolist():
            arrives = course.silent[member] > server.stage
            if not arrives and rng.random() >= course.heard:
                continue
            try:
                reply = answer(member, server.requests[member])
            except CohortTooSmall:
                continue  # too few holders of its secrets are left: it falls silent
            if arrives:
                yield member, reply

    outcome = server.requests
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_module.os, "urandom", rng.bytes)  # so that a failure can be repeated
        while not isinstance(outcome, Sum):
            replies = list(all_answers())
            course.answered[server.stage] = dict(replies)
            if rng.random() < course.restored:
                server = SummationServer.from_bytes(server.to_bytes(), COORDINATOR)
            rng.shuffle(replies)
            try:
                outcome = server.step(replies)
            except CohortTooSmall:
                outcome = None
                break
            assert not server.refused
    for member, duty in enumerate(duties):
        assert (member in course.answered.get(Stage.MASK, ())) <= duty.asked <= 1
        assert (member in course.answered.get(Stage.AGREE, ())) <= len(duty.agreed) <= 1
    return outcome


def expected_survivors(invitation, needed, course):
    """Who is in the sum, by the rules of the protocol written down a second time; or None."""
    graph, threshold = invitation.graph, invitation.graph.threshold
    arrives = [
        {m for m in range(graph.members) if course.silent[m] > stage} for stage in range(1, 6)
    ]
    present = arrives[0]
    holders = {}
    for m, reply in course.answered[Stage.ADVERTISE].items():
        seed = Advertisement.from_bytes(Envelope.from_bytes(reply).body).seed
        holders[m] = {m, *picks(seed, m, graph).tolist()} & present

    def able(members):
        return {m for m in members if len(holders[m] & members) >= threshold}

    if len(present) < needed:
        return None
    sharers = able(present) & arrives[1]
    if len(sharers) < needed:
        return None
    survivors = able(sharers) & arrives[2]
    if len(survivors) < needed:
        return None
    voters = able(survivors) & arrives[3]
    # An exact sum in which all know each other needs the vote of everybody in it.
    unanimous = graph.degree == graph.members - 1 and not invitation.plan.is_noisy
    votes = len(survivors) if unanimous else threshold
    if len(voters) < votes:
        return None
    openers = {m for m in voters if len(holders[m] & voters) >= votes} & arrives[4]
    if any(len(holders[m] & openers) < threshold for m in sharers):
        return None
    return sorted(survivors)


def check(server, values, course):
    """Run an attempt, hold it against what must come out, and give the outcome."""
    invitation, needed = server.invitation, server.needed
    outcome = run(server, values, course)
    expected = expected_survivors(invitation, needed, course)
    if expected is None:
        assert outcome is None
    else:
        assert outcome is not None
        assert list(outcome.survivors) == expected
        np.testing.assert_array_equal(outcome.total, values[expected].sum(axis=0))
    return outcome


def some_values(rng, shape, most):
    """Any numbers that a plan allows, the largest and smallest often."""
    extremes = rng.choice([-most, -1, 0, 1, most], shape)
    anything = rng.integers(-most, most, shape, endpoint=True)
    by_member = rng.choice([0.0, 0.5, 1.0], (shape[0], 1))
    return np.where(rng.random(shape) < by_member, extremes, anything)


def largest_counts(members):
    """Largest counts around where sums stop to fit 32 bits."""
    edge = (2**31 - 1) // members
    return st.sampled_from([1, 1000, edge, edge + 1, 2**40])


@st.composite
def courses(draw, members):
    lost = st.tuples(st.integers(0, members - 1), st.integers(1, 5))
    few = draw(st.booleans())
    silent = [NEVER] * members
    for member, stage in draw(st.lists(lost, max_size=members // 4 if few else members)):
        silent[member] = stage
    return Course(
        silent=silent,
        seed=draw(st.integers(0, 2**32 - 1)),
        restored=draw(st.sampled_from([0.0, 0.3, 1.0])),
        repeated=draw(st.sampled_from([0.0, 0.5])),
        heard=draw(st.sampled_from([0.0, 0.5])),
    )


def invite(plan, members):
    return SummationServer.invite(plan, [key.public for key in KEYS[:members]], COORDINATOR)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_the_sum_is_that_over_the_survivors(data):
    members = data.draw(st.integers(3, 14))
    colluding = data.draw(st.integers(0, min(4, members - 1)) | st.just(members - 1))
    noisy = data.draw(st.booleans())
    survivors = data.draw(st.integers(colluding + 1 if noisy else 1, members))
    largest = data.draw(largest_counts(members))
    make_plan = small_noisy_plan if noisy else small_plan
    plan = make_plan(Cohort(survivors, colluding), data.draw(st.integers(1, 3)), largest)
    server = invite(plan, members)
    assert server.invitation.graph.is_complete
    most = plan.most_per_count if noisy else largest
    assert server.invitation.bits == (32 if members * most < 2**31 else 64)
    course = data.draw(courses(members))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    values = some_values(rng, (members, plan.numbers), plan.most_per_count)
    event("a sum" if check(server, values, course) else "no sum")


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_the_sum_is_that_over_the_survivors_where_few_are_neighbours(data):
    """Small sparse graphs protect nothing, so checks are off; sums must be right all the same. Some
    pairs then picked each other, some one-sidedly, some not at all."""
    members = data.draw(st.integers(4, 14))
    degree = data.draw(st.integers(1, members - 2))
    threshold = data.draw(st.integers(1, degree + 1))
    cohort = Cohort(data.draw(st.integers(1, members)), 0)
    plan = small_plan(cohort, 1, data.draw(largest_counts(members)))
    course = data.draw(courses(members))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages_module, "is_safe", lambda *_: True)
        patch.setattr(
            messages_module, "survivors_needed", lambda g, c: max(c.min_survivors, g.threshold)
        )
        graph = Graph(members, degree, threshold)
        publics = [key.public for key in KEYS[:members]]
        invitation = Invitation.made(plan, publics, COORDINATOR, rng.bytes(32), graph)
        server = SummationServer(invitation, COORDINATOR)
        values = some_values(rng, (members, plan.numbers), plan.most_per_count)
        event("a sum" if check(server, values, course) else "no sum")


def spread(members, lost, rng):
    """Stages of silence: so many members lost at each of the stages, at random."""
    silent = [stage for stage, count in lost.items() for _ in range(count)]
    return rng.permutation(silent + [NEVER] * (members - len(silent))).tolist()


@pytest.mark.parametrize("lost", [{}, {1: 1, 2: 1, 3: 2, 4: 1, 5: 1}], ids=["nobody", "some"])
def test_a_safe_sparse_graph_of_sixty(monkeypatch, lost):
    monkeypatch.setattr(graph_module, "MOST_COMPLETE", 50)
    plan = small_plan(Cohort(20, 1), 2, 2**20)
    server = invite(plan, 60)
    graph = server.invitation.graph
    assert not graph.is_complete
    assert sum(lost.values()) <= strength(graph, plan.cohort).dropouts
    rng = np.random.default_rng(1)
    course = Course(spread(60, lost, rng), seed=1, restored=0.2)
    values = some_values(rng, (60, plan.numbers), plan.most_per_count)
    outcome = check(server, values, course)
    # Within the promised number of dropouts the chance to fail is 2^-20.
    assert len(outcome.survivors) == 60 - sum(lost.get(stage, 0) for stage in (1, 2, 3))


def test_the_first_number_of_members_with_a_sparse_graph_by_itself():
    plan = small_plan(Cohort(100, 1), 1, 2**20)
    server = invite(plan, 201)
    assert not server.invitation.graph.is_complete
    rng = np.random.default_rng(3)
    course = Course(spread(201, {1: 8, 2: 3, 3: 4, 4: 3, 5: 3}, rng), seed=3)
    outcome = check(server, some_values(rng, (201, plan.numbers), plan.most_per_count), course)
    assert len(outcome.survivors) == 201 - 8 - 3 - 4


def test_noise_beyond_the_largest_count_fits():
    privacy = DistributedDP(epsilon=1.0)
    axis = Axis.uniform(2, outside="clip")
    plan = EvaluationPlan.for_histogram(axis, Cohort(3, 1), privacy=privacy, largest=10)
    assert plan.most_per_count > 10
    values = np.full((5, plan.numbers), plan.most_per_count)
    values[1:3] *= -1
    outcome = check(invite(plan, 5), values, Course([NEVER] * 5))
    assert outcome.survivors == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(("largest", "bits"), [(2**29 - 1, 32), (2**29, 64)])
@pytest.mark.parametrize("sign", [1, -1])
def test_sums_at_the_edge_of_32_bits(largest, bits, sign):
    plan = small_plan(Cohort(3, 1), 1, largest)
    server = invite(plan, 4)
    assert server.invitation.bits == bits
    outcome = check(server, np.full((4, plan.numbers), sign * largest), Course([NEVER] * 4))
    assert (outcome.total == sign * 4 * largest).all()


@pytest.mark.parametrize("stage", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("make_plan", [small_plan, small_noisy_plan], ids=["exact", "noisy"])
def test_one_fewer_than_needed_opens_nothing(make_plan, stage):
    """At every stage exactly enough give a sum, and one fewer give none."""
    plan = make_plan(Cohort(6, 1))
    values = np.arange(8 * plan.numbers).reshape(8, -1)
    # From the vote on only the threshold, 5 of 8, counts: who survived is settled. But all who
    # are in an exact sum must vote for it.
    enough = 6 if stage < 4 else 5
    if stage == 4 and not plan.is_noisy:
        enough = 8
    for left, opens in ((enough, True), (enough - 1, False)):
        course = Course([NEVER] * left + [stage] * (8 - left))
        assert (check(invite(plan, 8), values, course) is not None) == opens


def test_a_step_that_fails_can_be_taken_again():
    """Too few replies at first, all of them later: the second try is as if it were the first."""
    plan = small_plan(Cohort(3, 1))
    server = invite(plan, 4)
    values = np.arange(4 * plan.numbers).reshape(4, -1)
    replies = {}
    for member in server.requests:
        joined = SummationClient.join(server.invitation, KEYS[member], Giving(values[member]))
        replies[member] = (joined, joined.receive(server.invitation.data))
    for _ in Stage:
        before = server.to_bytes()
        two = {member: replies[member][1] for member in (3, 1)}
        with pytest.raises(CohortTooSmall):
            server.step(two)
        assert server.to_bytes() == before
        outcome = server.step({member: reply for member, (_, reply) in replies.items()})
        if isinstance(outcome, Sum):
            break
        replies = {m: (replies[m][0], replies[m][0].receive(outcome[m])) for m in outcome}
    np.testing.assert_array_equal(outcome.total, values.sum(axis=0))
