"""Labels and scores apart over Flower, on a stand-in for its Grid: what nodes send, and refuse."""

import logging
import re
from dataclasses import dataclass

import msgspec
import numpy as np
import pytest
from consortium import COORDINATOR, Consortium
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from platform_world import BOUGHT, LABEL_DP, SCORES, SHOPS
from sites import open_policy
from sklearn.metrics import roc_auc_score
from standin import StandInGrid, with_reply

import fedgauge as fg
from fedgauge.engines import flower, flower_labels
from fedgauge.engines.label_party import ROSTER, LabelParty, OwnLabels, RosterCall
from fedgauge.engines.participant import require_labels
from fedgauge.engines.simulated import SimulatedParticipant
from fedgauge.errors import ProtocolError
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.protocol import Envelope
from fedgauge.secagg import Stage, SummationServer
from fedgauge.site import add_trust
from fedgauge.vertical.assigned import assign_bins, assignment_digest
from fedgauge.vertical.roster import Roster

FIRST = 1001
IDS = np.arange(len(SCORES))
pytestmark = pytest.mark.usefixtures("quick_disk")
ODD = 2  # the node that something happens to


class Shops:
    """Four nodes with the labels of some examples each, with site files or as in a simulation."""

    def __init__(self, folder=None, *, shops=SHOPS, scored=False, answered=None, asked=None):
        self.names, self.calls = list(shops), []
        self.scored, self.bought = scored, BOUGHT.copy()
        policy = open_policy(max_epsilon=1000.0, budget_epsilon=1e6)
        self.sites = folder and Consortium.make(folder, self.names, policy=policy)
        self.app = ClientApp()
        flower_labels.attach_labels(self.app, self.labels, scored=scored)
        configs = {FIRST + i: self._config(i) for i in range(len(self.names))}
        self.grid = CarriedGrid(dict.fromkeys(configs, self.app), configs, asked, answered)

    def _config(self, place):
        config = {"place": place}
        if self.sites:
            config["fedgauge-site"] = str(self.sites.site_file(self.names[place]))
        return config

    def rows(self, *places):
        return np.sort(np.concatenate([IDS[place :: len(self.names)] for place in places]))

    def labels(self, context):
        place = context.node_config["place"]
        spent = self.sites and "commit" in self.sites.entries(self.names[place])
        self.calls.append((place, spent))
        rows = self.rows(place)
        return (SCORES[rows] if self.scored else rows), self.bought[rows]

    def evaluate(self, scores=(IDS, SCORES), **options):
        site = self.sites and self.sites.site_file(COORDINATOR)
        wanted = {"privacy": LABEL_DP, "cohort": fg.Cohort(3, 1), "positive_rate": 0.3}
        wanted |= {"timeout": 0.01, "site": site} | options
        return flower_labels.evaluate_vertical(self.grid, None if self.scored else scores, **wanted)

    def assert_over(self, result, *places):
        rows = self.rows(*places)
        assert int(result.released.counts.sum()) == len(rows)
        truth = roc_auc_score(BOUGHT[rows], SCORES[rows])
        assert result.roc_auc.value == pytest.approx(truth, abs=4e-3)
        assert result.clients == len(places)

    def entries(self, place):
        return self.sites.entries(self.names[place])


class CarriedGrid(StandInGrid):
    """`asked` and `answered` say what arrives, by place and stage; None where it is lost."""

    def __init__(self, apps, configs, asked, answered):
        super().__init__(apps, configs, self.carry)
        self.asked = asked or (lambda _place, _stage, message: message)
        self.answered = answered or (lambda _place, _stage, reply: reply)

    def carry(self, node, message):
        place, stage = node - FIRST, stage_of(message)
        message = self.asked(place, stage, message)
        return self.answered(place, stage, self.call(node, message))

    @property
    def requests(self):
        return [m for m in self.log if "request" in m.content["fedgauge"]]

    @property
    def replies(self):
        return [m for m in self.log if "request" not in m.content["fedgauge"]]


def stage_of(message):
    request = message.content["fedgauge"]["request"]
    return Envelope.from_bytes(request).stage if request else ROSTER


def with_bins(message, bins):
    """A copy of a request that brings other bins, or none."""
    record = {"request": message.content["fedgauge"]["request"]}
    record |= {} if bins is None else {"bins": bins}
    return Message(RecordDict({"fedgauge": ConfigRecord(record)}), metadata=message.metadata)


@pytest.fixture(params=["enforced", "simulated"])
def make(request, folder, monkeypatch):
    """Makes shops of one claim."""
    if request.param == "simulated":
        monkeypatch.setenv("FEDGAUGE_SIMULATION", "1")

    def made(name="nodes", **options):
        return Shops(folder / name if request.param == "enforced" else None, **options)

    made.claim = request.param
    return made


@pytest.fixture
def enforced(folder):
    """Makes shops with site files."""
    return lambda name="nodes", **options: Shops(folder / name, **options)


# Results


def test_the_sum_gives_what_all_labels_give(make):
    shops = make()
    result = shops.evaluate()
    shops.assert_over(result, 0, 1, 2, 3)
    assert (result.privacy.unit, result.privacy.neighbours) == ("label", "flip")
    assert result.privacy.claim == make.claim
    assert result.privacy.public_inputs == ("positive_rate 0.3",)
    signed = "unsigned" if make.claim == "simulated" else "unknown key"
    assert result.signature.state == signed


def test_nodes_that_score_themselves(make):
    shops = make(scored=True)
    shops.assert_over(shops.evaluate(), 0, 1, 2, 3)


def test_scores_are_a_mapping_or_columns_and_strangers_are_left_out(make, caplog):
    shops = make()
    scores = {int(i): float(SCORES[i]) for i in IDS[:3000]} | {10_000: 0.5}
    with caplog.at_level(logging.WARNING):
        result = shops.evaluate(scores)
    assert int(result.released.counts.sum()) == 3000
    assert caplog.text.count("has 250 examples without a score: left out") == 4
    assert "1 scores are on no roster" in caplog.text


@pytest.mark.parametrize("since", [ROSTER, *Stage], ids=["roster", *(s.name for s in Stage)])
def test_totals_are_over_the_nodes_that_stay(make, since):
    shops = make(answered=lambda p, stage, r: None if p == ODD and stage >= since else r)
    stay = (0, 1, 3) if since <= Stage.MASK else (0, 1, 2, 3)
    shops.assert_over(shops.evaluate(), *stay)


def test_every_evaluation_is_charged_once(enforced):
    shops = enforced()
    for _ in range(2):
        shops.evaluate()
    for name in shops.names:
        assert [kind for kind in shops.sites.entries(name) if kind == "commit"] == ["commit"] * 2
        (balance,) = shops.sites.site(name).ledger.balances()
        assert (balance.account.unit, balance.account.neighbours) == ("label", "flip")


# Rosters


def rosters_sent(shops):
    said = [m.content["fedgauge"].get("reply") for m in shops.grid.replies]
    return [reply for reply in said if reply and Envelope.from_bytes(reply).stage == ROSTER]


def test_labels_are_asked_for_ids_before_and_for_counts_after_the_budget_is_spent(enforced):
    shops = enforced()
    shops.evaluate()
    assert sorted(shops.calls[:4]) == [(place, False) for place in range(4)]
    assert sorted(shops.calls[4:]) == [(place, True) for place in range(4)]


def test_labels_change_neither_rosters_nor_the_number_or_size_of_messages(make):
    sent = []
    for turn, bought in enumerate((BOUGHT, ~BOUGHT, np.zeros_like(BOUGHT))):
        shops = make(f"turn {turn}")
        shops.bought = bought
        shops.evaluate()
        said = [m.content["fedgauge"]["reply"] for m in shops.grid.replies]
        assert all(list(m.content["fedgauge"]) == ["reply"] for m in shops.grid.replies)
        sent.append(([len(reply) for reply in said], [ids_in(r) for r in rosters_sent(shops)]))
    assert sent[0] == sent[1] == sent[2]


def ids_in(reply):
    return msgspec.msgpack.decode(Envelope.from_bytes(reply).body)["ids"]


def test_the_order_of_rows_is_not_in_a_roster():
    party, sorted_by_label = SigningKey.generate(), np.argsort(BOUGHT, kind="stable")
    bodies = []
    for rows in (IDS, sorted_by_label):
        own = OwnLabels(lambda rows=rows: (rows, BOUGHT[rows]), scored=False)
        bodies.append(own.roster(party).to_bytes())
    assert bodies[0] == bodies[1]


def test_a_coordinator_that_is_not_approved_gets_no_roster(enforced, folder, caplog):
    shops = enforced()
    stranger = Consortium.make(folder / "theirs", shops.names)
    with pytest.raises(fg.CohortTooSmall, match="0 nodes sent a roster and 3 are needed"):
        shops.evaluate(site=stranger.site_file(COORDINATOR))
    assert caplog.text.count("the coordinator is not approved here") == 4
    assert not any(m.content["fedgauge"] for m in shops.grid.replies)
    assert not shops.calls


def test_nodes_with_site_files_answer_no_made_up_coordinator(enforced, monkeypatch):
    monkeypatch.setenv("FEDGAUGE_SIMULATION", "1")
    shops = enforced()
    with pytest.raises(fg.CohortTooSmall, match="pass site="):
        shops.evaluate(site=None)
    assert not shops.calls


def test_a_request_for_rosters_in_an_approved_name_must_be_signed_by_it(enforced, caplog):
    shops = enforced()
    mallory = SigningKey.generate()

    def asked(_place, stage, message):
        if stage != ROSTER:
            return message
        real = Envelope.from_bytes(message.content["fedgauge"]["request"])
        forged = Envelope.sealed(
            mallory,
            session=real.session,
            stage=ROSTER,
            sender=real.sender,
            recipient=real.recipient,
            body=real.body,
        )
        record = ConfigRecord({"request": forged.to_bytes()})
        return Message(RecordDict({"fedgauge": record}), metadata=message.metadata)

    shops.grid.asked = asked
    with pytest.raises(fg.CohortTooSmall, match="0 nodes sent a roster"):
        shops.evaluate()
    assert "not signed by the one who is said to send it" in caplog.text
    assert not shops.calls


def test_a_site_with_approvers_sends_no_roster(enforced, caplog):
    shops = enforced()
    for name in shops.names[:2]:
        officer = key_to_text(SigningKey.generate().public)
        add_trust(shops.sites.site_file(name), "approver", "officer", officer)
    with pytest.raises(fg.CohortTooSmall, match="2 nodes sent a roster"):
        shops.evaluate()
    assert "nobody can read and sign while a run waits" in caplog.text


def test_a_roster_of_another_day_is_set_aside(make, caplog):
    old = []

    def answered(place, stage, reply):
        if place != ODD or stage != ROSTER:
            return reply
        old.append(reply.content["fedgauge"]["reply"])
        return with_reply(reply, old[0])

    shops = make(answered=answered)
    shops.assert_over(shops.evaluate(), 0, 1, 2, 3)
    shops.assert_over(shops.evaluate(), 0, 1, 3)
    assert "a message belongs to another session" in caplog.text


@pytest.mark.parametrize("reply", [b"", b"junk"], ids=["empty", "junk"])
def test_what_is_no_roster_is_set_aside(make, reply):
    shops = make(answered=lambda p, s, r: with_reply(r, reply) if p == ODD and s == ROSTER else r)
    shops.assert_over(shops.evaluate(), 0, 1, 3)


def test_a_roster_in_another_partys_name_is_set_aside(make, caplog):
    """The first of two is kept: later rounds go to the node that signs them."""
    seen = []

    def answered(place, stage, reply):
        if stage == ROSTER:
            seen.append(reply.content["fedgauge"]["reply"])
            return with_reply(reply, seen[0]) if place == ODD else reply
        return reply

    shops = make(answered=answered)
    shops.assert_over(shops.evaluate(), 0, 1, 3)
    assert "its party sent a roster already" in caplog.text


def test_a_node_that_is_no_peer_is_set_aside(enforced, caplog):
    shops = enforced()
    file = shops.sites.site_file(COORDINATOR)
    block = rf'\n\[\[peers\]\]\nname = "{SHOPS[ODD]}"\nkey = "[^"]+"\n'
    file.write_text(re.sub(block, "", file.read_text()))
    shops.assert_over(shops.evaluate(), 0, 1, 3)
    assert "is none of the peers in site.toml" in caplog.text


def test_a_node_without_examples_is_left_out(make, caplog):
    shops = make()
    labels = shops.rows
    shops.rows = lambda *places: IDS[:0] if places == (ODD,) else labels(*places)
    result = shops.evaluate()
    assert int(result.released.counts.sum()) == 3000
    assert "its roster has no examples" in caplog.text


def test_whoever_scores_is_agreed(make, caplog):
    """Scores do not leave for a coordinator that asks for ids, nor the reverse."""
    shops = make(scored=True)
    shops.scored = False  # what the server thinks
    with pytest.raises(fg.CohortTooSmall, match="0 nodes sent a roster"):
        shops.evaluate()
    assert caplog.text.count("asks for a roster of ids, and this party names") == 4
    assert not shops.calls


def test_a_roster_that_names_examples_in_another_way_is_set_aside():
    boss, party = SigningKey.generate(), SigningKey.generate()
    asked, other = RosterCall(boss, scored=False), RosterCall(boss, scored=True)
    other._nonce = asked._nonce
    own = OwnLabels(lambda: ([0.5], [1]), scored=True)
    reply = LabelParty(own, party, lambda _: None).answer(other_request(other, asked))
    with pytest.raises(ProtocolError, match="in another way than was asked for"):
        asked.read(reply)


def other_request(other, asked):
    """The request of `other` under the nonce of `asked`."""
    key = SigningKey.generate()
    told = Envelope.from_bytes(other.request)
    body = msgspec.msgpack.encode([key.public, True])
    made = Envelope.sealed(
        key,
        session=asked._nonce,
        stage=ROSTER,
        sender=told.sender,
        recipient=told.recipient,
        body=body,
    )
    return made.to_bytes()


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_nodes_are_told_what_to_do(make, count, monkeypatch):
    monkeypatch.setattr(flower, "_POLL_SECONDS", 0.01)
    shops = make(shops=SHOPS[:count])
    with pytest.raises(fg.CohortTooSmall, match=r"plan needs 3.* `fedgauge vertical answer`"):
        shops.evaluate(cohort=None)
    assert not shops.grid.log


def test_two_rosters_are_too_few(make):
    shops = make(answered=lambda p, _stage, reply: reply if p < 2 else None)
    with pytest.raises(fg.CohortTooSmall, match=r"2 nodes sent.* `fedgauge vertical answer`"):
        shops.evaluate()
    with pytest.raises(fg.CohortTooSmall, match=r"2 nodes sent.* lower min_survivors"):
        shops.evaluate(cohort=fg.Cohort(4, 1))


# A hostile server: all of it is refused before anything is spent


def refused(shops, caplog, reason, **options):
    """Without the odd node the others go on; it looked at no label and spent nothing."""
    result = shops.evaluate(**options)
    assert result.clients == 3
    assert reason in caplog.text
    assert shops.entries(ODD) in (["reserve"], [])
    assert [place for place, _ in shops.calls].count(ODD) == 1  # for the roster


def at_odd(change):
    """Changes the request to count that reaches the odd node."""

    def asked(place, stage, message):
        hit = place == ODD and stage == Stage.MASK
        return change(message) if hit else message

    return asked


def test_anothers_bins(enforced, caplog):
    shops = enforced()
    seen = []

    def asked(place, stage, message):
        if stage != Stage.MASK:
            return message
        seen.append(message.content["fedgauge"]["bins"])
        return with_bins(message, seen[0]) if place == ODD else message

    shops.grid.asked = asked
    shops.grid.apps = dict(sorted(shops.grid.apps.items()))
    # Members are asked in the order of their keys: let somebody else come first.
    first = min(shops.sites.keys[name] for name in shops.names)
    if shops.sites.keys[SHOPS[ODD]] == first:
        seen.append(msgspec.msgpack.encode(bins_of(shops, 0)))
    refused(shops, caplog, "the bins are for another party")


def bins_of(shops, place, ids=None, **wanted):
    """Bins of one node, in an assignment of their own."""
    return assigned_by(shops, ids, **wanted).bins[shops.sites.keys[SHOPS[place]]]


def assigned_by(shops, ids=None, **wanted):
    rosters = {}
    for place, name in enumerate(shops.names):
        key = shops.sites.site(name).key
        rosters[key.public] = Roster.of_ids(shops.rows(place), key)
    wanted = {"cohort": fg.Cohort(3, 1), "positive_rate": 0.3} | wanted
    return assign_bins((IDS, SCORES) if ids is None else ids, rosters, LABEL_DP, **wanted)


def test_bins_of_another_evaluation(enforced, caplog):
    shops = enforced()
    other = bins_of(shops, ODD).to_bytes()
    shops.grid.asked = at_odd(lambda message: with_bins(message, other))
    refused(shops, caplog, "the bins are of another evaluation than the plan")


def test_changed_bins(enforced, caplog):
    def change(message):
        bins = msgspec.msgpack.decode(message.content["fedgauge"]["bins"])
        places = np.frombuffer(bins["places"], "<i4")
        return with_bins(message, msgspec.msgpack.encode(bins | {"places": places[::-1].tobytes()}))

    shops = enforced()
    shops.grid.asked = at_odd(change)
    refused(shops, caplog, "the bins were changed since they were assigned")


def test_no_bins(enforced, caplog):
    shops = enforced()
    shops.grid.asked = at_odd(lambda message: with_bins(message, None))
    refused(shops, caplog, "bins must come with the request to count")


@pytest.mark.parametrize("stage", [ROSTER, Stage.ADVERTISE, Stage.SHARE, Stage.AGREE, Stage.OPEN])
def test_bins_at_another_stage(enforced, caplog, stage):
    shops = enforced()
    shops.grid.asked = lambda place, at, message: (
        with_bins(message, b"bins") if place == ODD and at == stage else message
    )
    result = shops.evaluate()
    assert result.clients == (4 if stage > Stage.MASK else 3)
    assert "bins must come with the request to count, and with no other" in caplog.text
    assert ("commit" in shops.entries(ODD)) == (stage > Stage.MASK)


@dataclass
class Rebound:
    """An assignment in which the odd node's bins are others, and the plan is bound to them."""

    shops: Shops
    change: object

    def __call__(self, *args, **options):
        made = assign_bins(*args, **options)
        odd = self.shops.sites.keys[SHOPS[ODD]]
        bins = dict(made.bins)
        bins[odd] = self.change(bins[odd])
        told = tuple(sorted((party, each.commitment) for party, each in bins.items()))
        replace = msgspec.structs.replace
        digest = assignment_digest(told)
        return made._replace(
            plan=replace(made.plan, task=replace(made.plan.task, assignment=digest)),
            bins={party: replace(each, commitments=told) for party, each in bins.items()},
        )


def twice(bins):
    """The same id in two places: its label would move the counts by two."""
    ids = (bins.ids[0], *bins.ids[:-1])
    return msgspec.structs.replace(bins, ids=ids)


def short(bins):
    return msgspec.structs.replace(bins, places=bins.places[:-4])


def beyond(bins):
    places = np.frombuffer(bins.places, "<i4").copy()
    places[0] = bins.number
    return msgspec.structs.replace(bins, places=places.tobytes())


def by_scores(bins):
    scores = np.linspace(0, 1, len(bins.ids)).astype("<f8").tobytes()
    return msgspec.structs.replace(bins, ids=(), scores=scores)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (twice, "the bins name an example twice"),
        (short, "there are 999 bins for 1,000 examples"),
        (beyond, "a bin lies outside"),
        (by_scores, "the bins name examples in another way"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_bins_that_the_plan_is_bound_to_and_that_are_wrong(
    enforced, caplog, monkeypatch, change, reason
):
    shops = enforced()
    monkeypatch.setattr(flower_labels, "assign_bins", Rebound(shops, change))
    refused(shops, caplog, reason)


def test_a_changed_plan(enforced, caplog, monkeypatch):
    """Bins of one assignment under the plan of another: every node refuses."""
    shops = enforced()
    other = assigned_by(shops).plan
    monkeypatch.setattr(
        flower_labels, "assign_bins", lambda *a, **o: assign_bins(*a, **o)._replace(plan=other)
    )
    with pytest.raises(fg.CohortTooSmall):
        shops.evaluate()
    assert caplog.text.count("the bins are of another evaluation") == 4
    assert all(shops.entries(place) == ["reserve"] for place in range(4))


def test_another_run_config(enforced):
    """Labels may follow a run's config, so nodes go on only with those of the same."""
    shops = enforced()
    shops.grid.contexts[FIRST + ODD].run_config = {"bought-within-days": 7}
    shops.assert_over(shops.evaluate(), 0, 1, 3)
    assert shops.entries(ODD).count("commit") == 0


# Labels with scores, and labels apart from them, are not mixed up


def attached(shops):
    """An app of nodes whose rows have labels and scores."""
    app = ClientApp()

    def score(_message, context):
        rows = shops.rows(context.node_config["place"])
        shops.calls.append((context.node_config["place"], "scored"))
        return BOUGHT[rows], SCORES[rows]

    flower.attach(app, score)
    return app


def test_nodes_that_score_refuse_a_plan_for_labels(make, caplog):
    shops = make()
    shops.grid.apps = dict.fromkeys(shops.grid.apps, attached(shops))
    plan = fg.EvaluationPlan.under(
        LABEL_DP,
        fg.Axis.from_values(list(range(8)), outside="clip"),
        cohort=fg.Cohort(3, 1),
        task=fg.plan.task.LabelTask(None, "a" * 64),
    )
    site = shops.sites and shops.sites.site_file(COORDINATOR)
    with pytest.raises(fg.CohortTooSmall):
        flower.evaluate(shops.grid, plan, timeout=0.01, site=site)
    assert caplog.text.count("this site is asked for rows of both") == 4
    assert not shops.calls


def test_nodes_that_score_send_no_roster(make, caplog):
    shops = make()
    shops.grid.apps = dict.fromkeys(shops.grid.apps, attached(shops))
    with pytest.raises(fg.CohortTooSmall, match="0 nodes sent a roster"):
        shops.evaluate()
    assert caplog.text.count("This node does not answer") == 4
    assert not shops.calls


def test_label_parties_refuse_a_plan_for_rows_with_scores(make, caplog):
    shops = make()
    plan = fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(64, outside="clip"), fg.Cohort(3), privacy=fg.DistributedDP(1.0)
    )
    site = shops.sites and shops.sites.site_file(COORDINATOR)
    with pytest.raises(fg.CohortTooSmall):
        flower.evaluate(shops.grid, plan, timeout=0.01, site=site)
    assert not shops.calls
    assert caplog.text.count("This node does not answer") == 4
    if shops.sites:
        assert caplog.text.count("this site is asked for labels apart from scores") == 4
        assert all(not shops.entries(place) for place in range(4))


def test_simulated_nodes_refuse_plans_for_other_rows():
    plan = fg.EvaluationPlan.for_histogram(fg.Axis.uniform(8, outside="clip"), fg.Cohort(1, 0))
    node = SimulatedParticipant({}, check=require_labels)
    server = SummationServer.invite(plan, [node.key.public], SigningKey.generate())
    with pytest.raises(fg.PlanRefused, match="labels apart from scores"):
        node.answer(server.invitation.data)


def test_a_sum_that_label_parties_joined_is_not_counted_with_scores(enforced, caplog):
    """Scores in the place of bins have no protection where labels alone are promised it."""
    shops = enforced()
    scoring, call = attached(shops), shops.grid.call

    def change_apps(node, message):
        hit = node == FIRST + ODD and stage_of(message) == Stage.MASK
        shops.grid.apps[node] = scoring if hit else shops.app
        return call(node, message)

    shops.grid.call = change_apps
    refused(shops, caplog, "what came to score with is not what the invitation names")


# Labels that cannot be read


def test_labels_that_cannot_be_read_leave_noise_alone(enforced, caplog):
    """A node that fell silent would tell of its labels; its operator is told."""
    shops = enforced()
    read = shops.labels

    def labels(context):
        rows = read(context)
        if context.node_config["place"] == ODD and shops.calls[-1] == (ODD, True):
            raise ZeroDivisionError("user 17")
        return rows

    app = ClientApp()
    flower_labels.attach_labels(app, labels)
    shops.grid.apps = dict.fromkeys(shops.grid.apps, app)
    with caplog.at_level(logging.WARNING):
        assert shops.evaluate().clients == 4
    assert "no row was counted" in caplog.text
    assert "user 17" not in caplog.text


def test_labels_are_columns_or_a_mapping(make, caplog):
    shops = make()
    app, other = ClientApp(), ClientApp()
    flower_labels.attach_labels(app, lambda context: dict(zip(*shops.labels(context), strict=True)))
    flower_labels.attach_labels(other, lambda context: [shops.labels(context)])
    shops.grid.apps = dict.fromkeys(shops.grid.apps, app) | {FIRST + ODD: other}
    shops.assert_over(shops.evaluate(), 0, 1, 3)
    assert "labels must be a mapping from ids, or a pair of columns" in caplog.text
