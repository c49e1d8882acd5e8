"""Who takes local reports in, or somebody between, tells a site of a second round as it likes. What
a site reports keeps its epsilon whatever the bins: no row is reported twice, and nothing is under a
plan that an approved intake did not sign, or whose bins do not follow from a first round."""

import json

import msgspec
import numpy as np
import pytest

import fedgauge as fg
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.local.encode import find_second, write_reports
from fedgauge.local.messages import Reason, ReportFormat
from fedgauge.local.rounds import SecondPlan
from fedgauge.plan.two_rounds import Found
from fedgauge.site import Policy, create_site
from fedgauge.site.setup import add_trust

TWO = fg.TwoRound(4, coarse=fg.Axis.uniform(8, 0.0, 8.0, outside="clip"))
PLAN = fg.EvaluationPlan.for_reports(TWO, fg.LocalDP(2.0))
LABELS = np.arange(400) % 2
SCORES = np.linspace(0, 7.9, 400)
INTAKE = SigningKey.generate()
STRANGER = SigningKey.generate()
NEUTRAL = bytes([1]) + bytes(31)  # a key of small order, for which anybody can sign


def located(counts, plan=PLAN):
    return plan.located(Found(TWO, counts, sum(counts)))


SECOND = located((1, 9, 9, 30, 9, 9, 2, 1))


class World:
    """A site that trusts an intake, and has reported in the first round."""

    def __init__(self, folder):
        self.folder = folder
        policy = Policy(models=("local-dp",), max_epsilon=2.0, budget_epsilon=20.0)
        site = create_site(folder / "site", name="clinic", dataset="d", policy=policy)
        self.site = add_trust(site.path, "coordinator", "intake", key_to_text(INTAKE.public))
        self.report(PLAN, "1.fgr")

    def report(self, plan, name, rows=(LABELS, SCORES)):
        write_reports(plan, rows, self.folder / name, site=self.site)

    def refuses(self, plan, match=""):
        entries = len(self.site.ledger.entries())
        with pytest.raises(fg.FedgaugeError, match=match):
            self.report(plan, "2.fgr")
        assert len(self.site.ledger.entries()) == entries  # nothing was charged or left
        assert not (self.folder / "2.fgr").exists()

    @property
    def spent(self):
        return [balance.spent.epsilon for balance in self.site.ledger.balances()]

    def ids(self, name, plan):
        form = ReportFormat(plan)
        with (self.folder / name).open("rb") as file:
            parts = [part for message in form.split(file) for part in form.read(message)]
        return {bytes(each) for part in parts for each in part.ids}


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def altered(change, *, sign=True):
    """A second plan whose JSON was changed, signed again or not."""
    form = json.loads(SecondPlan.sign(SECOND, INTAKE).data)
    change(form["plan"])
    plan = msgspec.json.encode(form["plan"])
    if sign:
        form["signature"] = INTAKE.sign(b"fedgauge second plan\0" + plan)
    return SecondPlan.from_bytes(msgspec.json.encode(form | {"plan": msgspec.Raw(plan)}))


def with_edges(*points):
    axis = fg.Axis.from_edges(points, outside="clip")
    assert axis != SECOND.axis

    def change(plan):
        plan["axis"] |= {"points": list(points), "digest": axis.digest}

    return change


def with_counts(plan):
    plan["found"]["counts"][0] += 1000


def test_the_signed_plan_is_taken(world):
    world.report(SecondPlan.sign(SECOND, INTAKE), "2.fgr")
    first, second = world.ids("1.fgr", PLAN), world.ids("2.fgr", SECOND)
    assert not first & second
    assert len(first | second) == 400
    assert world.spent == [2.0]


def test_a_plan_that_nobody_or_somebody_else_signed_is_refused(world):
    world.refuses(SECOND, "as its intake signed it")
    world.refuses(SecondPlan.sign(SECOND, STRANGER), "not approved here")
    claimed = SecondPlan.sign(SECOND, STRANGER).data.replace(
        key_to_text(STRANGER.public).encode(), key_to_text(INTAKE.public).encode()
    )
    world.refuses(SecondPlan.from_bytes(claimed), "is not what")
    world.refuses(altered(with_counts, sign=False), "is not what")


def test_a_signature_for_something_else_or_by_a_key_that_anybody_signs_with_is_none(world):
    """An approval or a message of a sum by the same key stands for no second plan."""
    data = SecondPlan.sign(SECOND, INTAKE).data
    form = json.loads(data)
    plain = INTAKE.sign(SECOND.to_bytes())
    swapped = data.replace(
        form["signature"].encode(), json.loads(msgspec.json.encode(plain)).encode()
    )
    world.refuses(SecondPlan.from_bytes(swapped), "is not what")
    form = json.loads(SecondPlan.sign(SECOND, INTAKE).data)
    form["signer"] = key_to_text(NEUTRAL)
    with pytest.raises(fg.PlanRefused, match="not approved"):
        SecondPlan.from_bytes(json.dumps(form).encode()).signed_by([NEUTRAL])


@pytest.mark.parametrize(
    ("start", "step"),
    [(3.1, 0.1), (3.0, 0.0625), (1.0, 1.5)],
    ids=["no subdivision", "zoomed", "others"],
)
def test_bins_that_do_not_follow_from_the_first_round_are_refused(world, start, step):
    points = [0.0, *(start + step * n for n in range(SECOND.axis.bins - 1)), 8.0]
    world.refuses(altered(with_edges(*points)), "not those that follow")


def test_bins_or_counts_that_do_not_follow_from_a_first_round_are_refused(world):
    world.refuses(altered(with_counts), "not those that follow")
    world.refuses(SecondPlan.sign(PLAN, INTAKE), "not the plan of a second round")


def test_a_site_answers_one_of_two_second_plans(world):
    """An intake that tells sites of different bins, or one site twice, gets one answer."""
    other = located((30, 1, 1, 1, 1, 1, 1, 30))
    assert other.axis != SECOND.axis
    world.report(SecondPlan.sign(other, INTAKE), "answered.fgr")
    world.refuses(SecondPlan.sign(SECOND, INTAKE), "makes no others")
    world.refuses(SecondPlan.sign(other, INTAKE), "makes no others")
    assert world.spent == [2.0]


@pytest.mark.parametrize(
    "other",
    [
        fg.EvaluationPlan.for_reports(TWO, fg.LocalDP(2.0)).with_not_after("2199-12-31"),
        fg.EvaluationPlan.for_reports(TWO, fg.LocalDP(1.9)),
        fg.EvaluationPlan.for_reports(
            fg.TwoRound(4, share=0.01, coarse=TWO.coarse), fg.LocalDP(2.0)
        ),
    ],
    ids=["date", "epsilon", "share"],
)
def test_a_second_plan_of_another_first_is_refused(world, other):
    """Coins of its own would let nearly all rows report again, and who paid would pay again."""
    second = other.located(Found(other.task.two, (1,) * 8, 8))
    world.refuses(SecondPlan.sign(second, INTAKE), "no reports of the first round")
    assert world.spent == [2.0]


def test_a_stolen_file_counts_once_and_in_its_round_alone(world):
    """Whoever copies reports: not again, not in the other round, not as another plan's."""
    with fg.ReportServer(PLAN) as server:
        form = server.form
        with (world.folder / "1.fgr").open("rb") as file:
            (message,) = form.split(file)
        assert server.accept(message).accepted == len(world.ids("1.fgr", PLAN))
        assert set(server.accept(message).refused) == {Reason.DUPLICATE}
        second = find_second(server, INTAKE)
        assert set(server.accept(message).refused) == {Reason.DUPLICATE}
    plan = second.signed_by([INTAKE.public])
    (level,) = form.read(message)
    blank = np.zeros((len(level.ids), plan.oracles[0].payload_bytes), dtype=np.uint8)
    forged = ReportFormat(plan).write([level._replace(payloads=blank)])
    with fg.ReportServer(plan) as server:
        assert server.accept(message).refused == {Reason.FOREIGN: 1}
        assert server.accept(forged).refused == {Reason.ROUND: 1}
        assert server.reports == 0
