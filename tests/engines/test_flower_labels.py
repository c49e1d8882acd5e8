"""Labels and scores apart over Flower, on a stand-in for its Grid: results, what nodes send,
and a hostile server."""

import logging
import re
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from consortium import COORDINATOR, Consortium
from envelopes import sealed
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from platform_world import BOUGHT, LABEL_DP, SCORES, SHOPS
from shops import FIRST, IDS, ODD, stage_of, with_bins
from sklearn.metrics import roc_auc_score
from standin import StandInGrid, with_reply

import fedgauge as fg
from fedgauge.data.row_checks import Places, ids_of
from fedgauge.engines import flower
from fedgauge.engines.participant import SimulatedParticipant, require_labels
from fedgauge.errors import ProtocolError
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.protocol import Envelope
from fedgauge.secagg import Stage, SummationServer
from fedgauge.site import add_trust
from fedgauge.vertical import flower as flower_labels
from fedgauge.vertical.files import Roster, assign_bins, assignment_digest
from fedgauge.vertical.label_party import ROSTER, LabelParty, OwnLabels, RosterCall
from poison import at, poison

APPS = Path(__file__).parent / "flower_apps"
DOCS = Path(__file__).parents[2] / "docs"
pytestmark = pytest.mark.usefixtures("quick_disk")


def test_the_sum_gives_what_all_labels_give(make_shops):
    shops = make_shops()
    result = shops.evaluate()
    shops.assert_over(result, 0, 1, 2, 3)
    assert (result.privacy.unit, result.privacy.neighbours) == ("label", "flip")
    assert result.privacy.claim == make_shops.claim
    assert result.privacy.public_inputs == ("positive_rate 0.3",)
    signed = "unsigned" if make_shops.claim == "simulated" else "unknown key"
    assert result.signature.state == signed


def test_nodes_that_score_themselves(make_shops):
    shops = make_shops(scored=True)
    shops.assert_over(shops.evaluate(), 0, 1, 2, 3)


def test_scores_are_a_mapping_or_columns_and_strangers_are_left_out(make_shops, caplog):
    shops = make_shops()
    scores = {int(i): float(SCORES[i]) for i in IDS[:3000]} | {10_000: 0.5}
    with caplog.at_level(logging.WARNING):
        result = shops.evaluate(scores)
    assert int(result.released.counts.sum()) == 3000
    assert caplog.text.count("has 250 examples without a score: left out") == 4
    assert "1 scores are on no roster" in caplog.text


@pytest.mark.parametrize("since", [ROSTER, *Stage], ids=["roster", *(s.name for s in Stage)])
def test_totals_are_over_the_nodes_that_stay(make_shops, since):
    shops = make_shops(answered=lambda p, stage, r: None if p == ODD and stage >= since else r)
    stay = (0, 1, 3) if since <= Stage.MASK else (0, 1, 2, 3)
    shops.assert_over(shops.evaluate(), *stay)


def test_every_evaluation_is_charged_once(enforced_shops):
    shops = enforced_shops()
    for _ in range(2):
        shops.evaluate()
    for name in shops.names:
        assert [kind for kind in shops.sites.entries(name) if kind == "commit"] == ["commit"] * 2
        (balance,) = shops.sites.site(name).ledger.balances()
        assert (balance.account.unit, balance.account.neighbours) == ("label", "flip")


def rosters_sent(shops):
    said = [m.content["fedgauge"].get("reply") for m in shops.grid.replies]
    return [reply for reply in said if reply and Envelope.from_bytes(reply).stage == ROSTER]


def test_labels_are_asked_for_ids_before_and_for_counts_after_the_budget_is_spent(enforced_shops):
    shops = enforced_shops()
    shops.evaluate()
    assert sorted(shops.calls[:4]) == [(place, False) for place in range(4)]
    assert sorted(shops.calls[4:]) == [(place, True) for place in range(4)]


def test_labels_change_neither_rosters_nor_the_number_or_size_of_messages(make_shops):
    sent = []
    for turn, bought in enumerate((BOUGHT, ~BOUGHT, np.zeros_like(BOUGHT))):
        shops = make_shops(f"turn {turn}")
        shops.bought = bought
        shops.evaluate()
        said = [m.content["fedgauge"]["reply"] for m in shops.grid.replies]
        assert all(list(m.content["fedgauge"]) == ["reply"] for m in shops.grid.replies)
        rosters = [Envelope.from_bytes(reply).body for reply in rosters_sent(shops)]
        ids = [msgspec.msgpack.decode(body)["ids"] for body in rosters]
        sent.append(([len(reply) for reply in said], ids))
    assert sent[0] == sent[1] == sent[2]


def test_a_coordinator_that_is_not_approved_gets_no_roster(enforced_shops, folder, caplog):
    shops = enforced_shops()
    stranger = Consortium.make(folder / "theirs", shops.names)
    with pytest.raises(fg.CohortTooSmall, match="0 nodes sent a roster and 3 are needed"):
        shops.evaluate(site=stranger.site_file(COORDINATOR))
    assert caplog.text.count("the coordinator is not approved here") == 4
    assert not any(m.content["fedgauge"] for m in shops.grid.replies)
    assert not shops.calls


def test_nodes_with_site_files_answer_no_made_up_coordinator(enforced_shops, monkeypatch):
    monkeypatch.setenv("FEDGAUGE_SIMULATION", "1")
    shops = enforced_shops()
    with pytest.raises(fg.CohortTooSmall, match="pass site="):
        shops.evaluate(site=None)
    assert not shops.calls


def test_a_request_for_rosters_in_an_approved_name_must_be_signed_by_it(enforced_shops, caplog):
    shops = enforced_shops()
    mallory = SigningKey.generate()

    def asked(_place, stage, message):
        if stage != ROSTER:
            return message
        real = Envelope.from_bytes(message.content["fedgauge"]["request"])
        forged = sealed(mallory, real.session, ROSTER, real.sender, real.recipient, real.body)
        record = ConfigRecord({"request": forged.to_bytes()})
        return Message(RecordDict({"fedgauge": record}), metadata=message.metadata)

    shops.grid.asked = asked
    with pytest.raises(fg.CohortTooSmall, match="0 nodes sent a roster"):
        shops.evaluate()
    assert "not signed by the one who is said to send it" in caplog.text
    assert not shops.calls


def test_a_site_with_approvers_sends_no_roster(enforced_shops, caplog):
    shops = enforced_shops()
    for name in shops.names[:2]:
        officer = key_to_text(SigningKey.generate().public)
        add_trust(shops.sites.site_file(name), "approver", "officer", officer)
    with pytest.raises(fg.CohortTooSmall, match="2 nodes sent a roster"):
        shops.evaluate()
    assert "nobody can read and sign while a run waits" in caplog.text


def test_a_roster_of_another_day_is_set_aside(make_shops, caplog):
    old = []

    def answered(place, stage, reply):
        if place != ODD or stage != ROSTER:
            return reply
        old.append(reply.content["fedgauge"]["reply"])
        return with_reply(reply, old[0])

    shops = make_shops(answered=answered)
    shops.assert_over(shops.evaluate(), 0, 1, 2, 3)
    shops.assert_over(shops.evaluate(), 0, 1, 3)
    assert "a message belongs to another session" in caplog.text


@pytest.mark.parametrize("reply", [b"", b"junk"], ids=["empty", "junk"])
def test_what_is_no_roster_is_set_aside(make_shops, reply):
    shops = make_shops(
        answered=lambda p, s, r: with_reply(r, reply) if p == ODD and s == ROSTER else r
    )
    shops.assert_over(shops.evaluate(), 0, 1, 3)


def test_a_roster_in_another_partys_name_is_set_aside(make_shops, caplog):
    """The first of two is kept: later rounds go to the node that signs them."""
    seen = []

    def answered(place, stage, reply):
        if stage == ROSTER:
            seen.append(reply.content["fedgauge"]["reply"])
            return with_reply(reply, seen[0]) if place == ODD else reply
        return reply

    shops = make_shops(answered=answered)
    shops.assert_over(shops.evaluate(), 0, 1, 3)
    assert "its party sent a roster already" in caplog.text


def test_who_signed_decides_whose_reply_it_is(make_shops):
    """Not the node that it says it is from."""

    def answered(place, stage, reply):
        if stage == ROSTER:
            return reply
        reply = Message(reply.content, metadata=reply.metadata)
        reply.metadata.__dict__["_src_node_id"] = FIRST + (place + 1) % 4
        return reply

    shops = make_shops(answered=answered)
    shops.assert_over(shops.evaluate(), 0, 1, 2, 3)


def test_what_labels_are_read_with_is_the_same_at_every_node(make_shops):
    """But for the node's own config: what a server can set there, no digest covers."""
    shops, seen = make_shops(), []

    def labels(context):
        seen.append((context.node_id, [*context.run_config], [*context.state]))
        return shops.labels(context)

    app = ClientApp()
    flower_labels.attach_labels(app, labels)
    shops.grid.apps = dict.fromkeys(shops.grid.apps, app)
    for place, context in enumerate(shops.grid.contexts.values()):
        context.node_id = FIRST + place
        context.run_config = dict([("a", 1), ("b", 2)][:: (-1) ** place])
        context.state["left"] = ConfigRecord({"at": place})
    shops.assert_over(shops.evaluate(), 0, 1, 2, 3)
    assert len({*map(repr, seen)}) == 1


def test_a_node_that_is_no_peer_is_set_aside(enforced_shops, caplog):
    shops = enforced_shops()
    file = shops.sites.site_file(COORDINATOR)
    block = rf'\n\[\[peers\]\]\nname = "{SHOPS[ODD]}"\nkey = "[^"]+"\n'
    file.write_text(re.sub(block, "", file.read_text()))
    shops.assert_over(shops.evaluate(), 0, 1, 3)
    assert "is none of the peers in site.toml" in caplog.text


def test_a_node_without_examples_is_left_out(make_shops, caplog):
    shops = make_shops()
    labels = shops.rows
    shops.rows = lambda *places: IDS[:0] if places == (ODD,) else labels(*places)
    result = shops.evaluate()
    assert int(result.released.counts.sum()) == 3000
    assert "its roster has no examples" in caplog.text


def test_whoever_scores_is_agreed(make_shops, caplog):
    """Scores do not leave for a coordinator that asks for ids, nor the reverse."""
    shops = make_shops(scored=True)
    shops.scored = False  # what the server thinks
    with pytest.raises(fg.CohortTooSmall, match="0 nodes sent a roster"):
        shops.evaluate()
    assert caplog.text.count("asks for a roster of ids, and this party names") == 4
    assert not shops.calls


def test_a_roster_that_names_examples_in_another_way_is_set_aside():
    boss, party = SigningKey.generate(), SigningKey.generate()
    asked, other = RosterCall(boss, scored=False), RosterCall(boss, scored=True)
    other._nonce = asked._nonce
    own = OwnLabels(lambda: ([0.5], [1]), scored=True, few_values=True)
    reply = LabelParty(own, party, lambda _: None).answer(other_request(other, asked))
    with pytest.raises(ProtocolError, match="in another way than was asked for"):
        asked.read(reply)


def other_request(other, asked):
    """The request of `other` under the nonce of `asked`."""
    key = SigningKey.generate()
    told = Envelope.from_bytes(other.request)
    body = msgspec.msgpack.encode([key.public, True])
    made = sealed(key, asked._nonce, ROSTER, told.sender, told.recipient, body)
    return made.to_bytes()


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_nodes_are_told_what_to_do(make_shops, count, monkeypatch):
    monkeypatch.setattr(flower, "_POLL_SECONDS", 0.01)
    shops = make_shops(shops=SHOPS[:count])
    with pytest.raises(fg.CohortTooSmall, match=r"plan needs 3.* `fedgauge vertical answer`"):
        shops.evaluate(cohort=None)
    assert not shops.grid.log


def test_two_rosters_are_too_few(make_shops):
    shops = make_shops(answered=lambda p, _stage, reply: reply if p < 2 else None)
    with pytest.raises(fg.CohortTooSmall, match=r"2 nodes sent.* `fedgauge vertical answer`"):
        shops.evaluate()
    with pytest.raises(fg.CohortTooSmall, match=r"2 nodes sent.* lower min_survivors"):
        shops.evaluate(cohort=fg.Cohort(4, 1))


def test_labels_that_cannot_be_read_leave_noise_alone(enforced_shops, caplog):
    """A node that fell silent would tell of its labels; its operator is told."""
    shops = enforced_shops()
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


def test_labels_are_columns_or_a_mapping(make_shops, caplog):
    shops = make_shops()
    app, other = ClientApp(), ClientApp()
    flower_labels.attach_labels(app, lambda context: dict(zip(*shops.labels(context), strict=True)))
    flower_labels.attach_labels(other, lambda context: [shops.labels(context)])
    shops.grid.apps = dict.fromkeys(shops.grid.apps, app) | {FIRST + ODD: other}
    shops.assert_over(shops.evaluate(), 0, 1, 3)
    assert "labels must be a mapping from ids, or a pair of columns" in caplog.text


def test_rows_in_memory_are_named_and_not_quoted():
    own = OwnLabels(lambda: (["user-17"], ["bought"]), scored=False)
    assert str(own.placed(Places(ids_of("bins", ["user-17"]), np.zeros(1)))) == "labels in memory"


def test_an_app_gets_the_evaluation_by_the_lines_of_the_page(tmp_path, monkeypatch):
    shown = (DOCS / "vertical.md").read_text().split("## In Flower")[1].split("\n## ")[0]
    client, labels, server = (
        [line for line in block.splitlines() if line]
        for block in re.findall(r"```python\n(.*?)```", shown, flags=re.DOTALL)
    )
    added = {}
    for file in ("client_app.py", "server_app.py", "task.py"):
        lines = (APPS / "after" / "shops_app" / file).read_text().splitlines()
        added[file] = [line.strip() for line in lines if "fedgauge" in line or "to_json" in line]
        rest = "\n".join(line for line in lines if line.strip() not in added[file])
        compile(rest, file, "exec")
    assert added["client_app.py"] == client
    assert added["server_app.py"] == [*server, 'result.to_json("vertical.json")']
    assert added["task.py"] == []
    assert "\n".join(labels) in (APPS / "after" / "shops_app" / "client_app.py").read_text()
    monkeypatch.syspath_prepend(APPS / "after")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDGAUGE_SIMULATION", "1")
    from shops_app import client_app, server_app, task

    try:
        configs = {node: {"partition-id": node - 1} for node in range(1, 5)}
        grid = StandInGrid(dict.fromkeys(configs, client_app.app), configs)
        server_app.app(grid, Context(1, 1, {}, RecordDict(), {}))
        users, scores = task.score_users()
        bought = np.zeros(len(users), dtype=bool)
        for shop in range(4):
            bought[shop::4] = task.read_orders(shop)[1]
    finally:
        for name in [name for name in sys.modules if name.startswith("shops_app")]:
            del sys.modules[name]
    result = fg.Evaluation.from_json(tmp_path / "vertical.json")
    assert result.privacy.claim == "simulated"
    # The noise has a deviation of 0.0053 here (400 runs): 0.04 is met less than once in 10^6.
    assert result.roc_auc.value == pytest.approx(roc_auc_score(bought, scores), abs=0.04)


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


def test_anothers_bins(enforced_shops, caplog, monkeypatch):
    shops, made = enforced_shops(), []

    def watched(*args, **options):
        made.append(assign_bins(*args, **options))
        return made[-1]

    monkeypatch.setattr(flower_labels, "assign_bins", watched)
    other = shops.sites.keys[SHOPS[0]]
    shops.grid.asked = at_odd(lambda message: with_bins(message, made[0].bins[other].to_bytes()))
    refused(shops, caplog, "the bins are for another party")


def assigned_by(shops):
    """Another assignment to the same nodes."""
    rosters = {}
    for place, name in enumerate(shops.names):
        key = shops.sites.site(name).key
        rosters[key.public] = Roster.of_ids(shops.rows(place), key)
    return assign_bins((IDS, SCORES), rosters, LABEL_DP, cohort=fg.Cohort(3, 1))


def test_bins_of_another_evaluation(enforced_shops, caplog):
    shops = enforced_shops()
    other = assigned_by(shops).bins[shops.sites.keys[SHOPS[ODD]]].to_bytes()
    shops.grid.asked = at_odd(lambda message: with_bins(message, other))
    refused(shops, caplog, "the bins are of another evaluation than the plan")


def test_changed_bins(enforced_shops, caplog):
    def change(message):
        bins = msgspec.msgpack.decode(message.content["fedgauge"]["bins"])
        places = np.frombuffer(bins["places"], "<i4")
        return with_bins(message, msgspec.msgpack.encode(bins | {"places": places[::-1].tobytes()}))

    shops = enforced_shops()
    shops.grid.asked = at_odd(change)
    refused(shops, caplog, "the bins were changed since they were assigned")


def test_no_bins(enforced_shops, caplog):
    shops = enforced_shops()
    shops.grid.asked = at_odd(lambda message: with_bins(message, None))
    refused(shops, caplog, "bins must come with the request to count")


@pytest.mark.parametrize("stage", [ROSTER, Stage.ADVERTISE, Stage.SHARE, Stage.AGREE, Stage.OPEN])
def test_bins_at_another_stage(enforced_shops, caplog, stage):
    shops = enforced_shops()
    shops.grid.asked = lambda place, at, message: (
        with_bins(message, b"bins") if place == ODD and at == stage else message
    )
    result = shops.evaluate()
    assert result.clients == (4 if stage > Stage.MASK else 3)
    assert "bins must come with the request to count, and with no other" in caplog.text
    assert ("commit" in shops.entries(ODD)) == (stage > Stage.MASK)


def rebound(shops, change):
    """Assigns bins such that the odd node's are others, and binds the plan to them."""
    replace = msgspec.structs.replace

    def assign(*args, **options):
        made = assign_bins(*args, **options)
        odd = shops.sites.keys[SHOPS[ODD]]
        bins = dict(made.bins) | {odd: replace(made.bins[odd], **change(made.bins[odd]))}
        told = tuple(sorted((party, each.commitment) for party, each in bins.items()))
        task = replace(made.plan.task, assignment=assignment_digest(told))
        bins = {party: replace(each, commitments=told) for party, each in bins.items()}
        return made._replace(plan=replace(made.plan, task=task), bins=bins)

    return assign


SPACED = np.linspace(0, 1, len(IDS) // 4).astype("<f8").tobytes()
WRONG = {  # an id in two places would move the counts by two
    "the bins name an example twice": lambda bins: {"ids": (bins.ids[0], *bins.ids[:-1])},
    "not those of a roster that this site made": lambda bins: {"ids": (*bins.ids[:-1], "99999")},
    "there are 999 bins for 1,000 examples": lambda bins: {"places": bins.places[:-4]},
    "a bin lies outside": lambda bins: {
        "places": np.int32(bins.number).tobytes() + bins.places[4:]
    },
    "the bins name examples in another way": lambda _: {"ids": (), "scores": SPACED},
}


@pytest.mark.parametrize("reason", WRONG)
def test_bins_that_the_plan_is_bound_to_and_that_are_wrong(
    enforced_shops, caplog, monkeypatch, reason
):
    shops = enforced_shops()
    monkeypatch.setattr(flower_labels, "assign_bins", rebound(shops, WRONG[reason]))
    refused(shops, caplog, reason)


def test_a_changed_plan(enforced_shops, caplog, monkeypatch):
    """Bins of one assignment under the plan of another: every node refuses."""
    shops = enforced_shops()
    other = assigned_by(shops).plan
    monkeypatch.setattr(
        flower_labels, "assign_bins", lambda *a, **o: assign_bins(*a, **o)._replace(plan=other)
    )
    with pytest.raises(fg.CohortTooSmall):
        shops.evaluate()
    assert caplog.text.count("the bins are of another evaluation") == 4
    assert all(shops.entries(place) == ["reserve"] for place in range(4))


def test_another_run_config(enforced_shops):
    """Labels may follow a run's config, so nodes go on only with those of the same."""
    shops = enforced_shops()
    shops.grid.contexts[FIRST + ODD].run_config = {"bought-within-days": 7}
    shops.assert_over(shops.evaluate(), 0, 1, 3)
    assert shops.entries(ODD).count("commit") == 0


def test_a_sum_that_no_labels_have_is_a_caution(make_shops, monkeypatch):
    shops, made = make_shops(), []

    def watched(*args, **options):
        made.append(assign_bins(*args, **options))
        poison(monkeypatch, at(made[0].plan, (0, 0, -500), (0, -1, 500)))
        return made[0]

    monkeypatch.setattr(flower_labels, "assign_bins", watched)
    assert "impossible counts" in shops.evaluate().caution


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


def test_nodes_that_score_refuse_a_plan_for_labels(make_shops, caplog):
    shops = make_shops()
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


def test_nodes_that_score_send_no_roster(make_shops, caplog):
    shops = make_shops()
    shops.grid.apps = dict.fromkeys(shops.grid.apps, attached(shops))
    with pytest.raises(fg.CohortTooSmall, match="0 nodes sent a roster"):
        shops.evaluate()
    assert caplog.text.count("This node does not answer") == 4
    assert not shops.calls


def test_label_parties_refuse_a_plan_for_rows_with_scores(make_shops, caplog):
    shops = make_shops()
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
    plan = fg.EvaluationPlan.for_histogram(fg.Axis.uniform(8, outside="clip"), fg.Cohort(3))
    node, *others = (SimulatedParticipant({}, check=require_labels) for _ in range(3))
    members = [each.key.public for each in (node, *others)]
    server = SummationServer.invite(plan, members, SigningKey.generate())
    with pytest.raises(fg.PlanRefused, match="labels apart from scores"):
        node.answer(server.invitation.data)


def test_a_sum_that_label_parties_joined_is_not_counted_with_scores(enforced_shops, caplog):
    """Scores in the place of bins have no protection where labels alone are promised it."""
    shops = enforced_shops()
    scoring, call = attached(shops), shops.grid.call

    def change_apps(node, message):
        hit = node == FIRST + ODD and stage_of(message) == Stage.MASK
        shops.grid.apps[node] = scoring if hit else shops.app
        return call(node, message)

    shops.grid.call = change_apps
    refused(shops, caplog, "the model that arrived is not the one that the invitation names")
