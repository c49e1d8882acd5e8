"""Labels and scores apart over Flower: what nodes refuse, before anything is spent."""

from dataclasses import dataclass

import msgspec
import numpy as np
import pytest
from consortium import COORDINATOR
from flwr.clientapp import ClientApp
from platform_world import BOUGHT, LABEL_DP, SCORES, SHOPS
from shops import FIRST, IDS, ODD, Shops, stage_of, with_bins

import fedgauge as fg
from fedgauge.engines import flower
from fedgauge.engines.participant import SimulatedParticipant, require_labels
from fedgauge.keys import SigningKey
from fedgauge.secagg import Stage, SummationServer
from fedgauge.vertical import flower as flower_labels
from fedgauge.vertical.files import Roster, assign_bins, assignment_digest
from fedgauge.vertical.label_party import ROSTER
from poison import at, poison

pytestmark = pytest.mark.usefixtures("quick_disk")


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


def unlisted(bins):
    """An example that the node has, and left out of its roster."""
    return msgspec.structs.replace(bins, ids=(*bins.ids[:-1], "99999"))


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
        (unlisted, "not those of a roster that this site made"),
        (short, "there are 999 bins for 1,000 examples"),
        (beyond, "a bin lies outside"),
        (by_scores, "the bins name examples in another way"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_bins_that_the_plan_is_bound_to_and_that_are_wrong(
    enforced_shops, caplog, monkeypatch, change, reason
):
    shops = enforced_shops()
    monkeypatch.setattr(flower_labels, "assign_bins", Rebound(shops, change))
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
    assert "what no rows have" in shops.evaluate().caution


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
    refused(shops, caplog, "what came to score with is not what the invitation names")
