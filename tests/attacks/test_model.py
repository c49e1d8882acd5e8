"""Flower: a model that is not the same for all, so that the sum is one node's histogram. The
attacker is an approved coordinator, the ServerApp. It chooses what each node scores with: the real
model for the victim, and for the others one that puts every row into one bin. All bins but that one
are then the victim's own, in a result that says it was enforced."""

import numpy as np
import pytest
from consortium import COORDINATOR, Consortium
from counts import counts_of
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from hostile import VICTIM, exact_plan, exact_policy, noisy_plan, own_counts
from scipy.special import expit
from standin import StandInGrid

import fedgauge as fg
from fedgauge.engines import flower
from fedgauge.plan.two_rounds import Found
from fedgauge.protocol import Envelope
from fedgauge.secagg import SummationServer

NAMES = [VICTIM, "site-1", "site-2", "site-3"]
REAL = {"weight": np.array([2.0, -1.0]), "bias": np.array([0.3, 0.0])}
CONSTANT = {"weight": np.zeros(2), "bias": np.zeros(2)}
CONSTANT_BIN = 4  # of eight: the score is 0.5


def features(name):
    rng = np.random.default_rng(NAMES.index(name))
    rows = rng.normal(0, 1, (120, 2))
    return (rng.random(120) < 0.4).astype(int), rows


def predict(model, rows):
    return expit(rows @ model["weight"] + model["bias"].sum())


def record(model):
    return ArrayRecord({name: Array(values) for name, values in model.items()})


class Federation:
    """Nodes that score with whatever arrives, and a server that sends what it likes."""

    def __init__(self, folder, *, policy=None, score=None):
        self.sites = Consortium.make(folder, NAMES, policy=policy)
        self.nodes = dict(enumerate(NAMES, start=100))
        self.score = score or (lambda message, _: self.model_in(message))
        apps = {}
        for node, name in self.nodes.items():
            apps[node] = ClientApp()
            flower.attach(apps[node], lambda m, c, name=name: self.scored(m, c, name))
        configs = {
            n: {"fedgauge-site": str(self.sites.site_file(m))} for n, m in self.nodes.items()
        }
        self.grid = StandInGrid(apps, configs, self.carry)
        self.alter = lambda _name, content: content

    def scored(self, message, context, name):
        labels, rows = features(name)
        return labels, predict(self.score(message, context), rows)

    @staticmethod
    def model_in(message):
        return {name: array.numpy() for name, array in message.content["arrays"].items()}

    def carry(self, node, message):
        content = message.content
        if "arrays" in content:
            content = self.alter(self.nodes[node], content.copy())
        return self.grid.call(node, Message(content, metadata=message.metadata))

    def evaluate(self, plan):
        """The result, and None where too few nodes were willing."""
        try:
            return flower.evaluate(
                self.grid,
                plan,
                arrays=record(REAL),
                timeout=0,
                site=self.sites.site_file(COORDINATOR),
            )
        except fg.FedgaugeError:
            return None


def for_others(change):
    def alter(name, content):
        return content if name == VICTIM else change(content)

    return alter


def other_values(content):
    content["arrays"] = record(CONSTANT)
    return content


def swapped_names(content):
    """The same arrays under each other's names: a digest of the bytes alone would not see it."""
    arrays = content["arrays"]
    content["arrays"] = ArrayRecord({"weight": arrays["bias"], "bias": arrays["weight"]})
    return content


def another_record(content):
    """A second record of arrays, for apps that look there first."""
    content["override"] = record(CONSTANT)
    return content


def a_config(content):
    content["config"] = ConfigRecord({"scale": 0.0})
    return content


def reads_override(message, _):
    held = message.content.get("override", message.content["arrays"])
    return {name: array.numpy() for name, array in held.items()}


def reads_config(message, _):
    scale = message.content.get("config", {"scale": 1.0})["scale"]
    return {name: scale * values for name, values in Federation.model_in(message).items()}


ALTERED = {
    "other values": (other_values, None),
    "another record": (another_record, reads_override),
    "a config": (a_config, reads_config),
}


def reads_run(message, context):
    scale = context.run_config.get("scale", 1.0)
    return {name: scale * values for name, values in Federation.model_in(message).items()}


def exact():
    return exact_plan(len(NAMES), bins=8)


@pytest.mark.parametrize("way", ALTERED)
def test_nodes_do_not_score_with_different_models(folder, way):
    """Outside one bin the sum is the victim's histogram."""
    change, score = ALTERED[way]
    nodes = Federation(folder, policy=exact_policy(exact_of_models=True), score=score)
    nodes.alter = for_others(change)
    result = nodes.evaluate(exact())
    labels, rows = features(VICTIM)
    victim = own_counts(exact(), (labels, predict(REAL, rows)))
    seen = np.arange(8) != CONSTANT_BIN
    assert result is None or not np.array_equal(counts_of(result)[:, seen], victim[:, seen])


def first_of(message, _):
    """As Flower's own mods look for a model."""
    held = next(iter(message.content.array_records.values()))
    return {name: array.numpy() for name, array in held.items()}


def signed_for_both(monkeypatch):
    """The coordinator signs two models, which every node is sent."""
    both = RecordDict({"m1": record(REAL), "m2": record(CONSTANT)})
    monkeypatch.setattr(flower, "_model_of", lambda _: flower.digest_records(both))


def with_first(name, content):
    """Both models, and first the one that this node shall score."""
    models = {"m1": record(REAL), "m2": record(CONSTANT)}
    order = list(models) if name == VICTIM else list(models)[::-1]
    own = {key: held for key, held in content.items() if key != "arrays"}
    return RecordDict({key: models[key] for key in order} | own)


@pytest.mark.parametrize("make", [exact, lambda: noisy_plan(4)], ids=["exact", "noisy"])
def test_nodes_do_not_score_with_different_models_by_the_order_of_records(
    folder, monkeypatch, make
):
    """The same records for all, so that one digest fits, in another order for the victim."""
    nodes = Federation(folder, policy=exact_policy(exact_of_models=True))
    used = []
    nodes.score = lambda *given: used.append(first_of(*given)) or used[-1]
    signed_for_both(monkeypatch)
    nodes.alter = with_first
    nodes.evaluate(make())
    assert len({tuple(model["weight"]) for model in used}) == 1


MARKS = {
    int: "run_id src_node_id dst_node_id src_task_id dst_task_id",
    str: "message_id reply_to_message_id group_id delivered_at",
    float: "created_at ttl",
}


def shown(message, context):
    """All that a score function can see, but for the node's own config, in its order."""
    content = [(name, list(held.items())) for name, held in message.content.items()]
    ids = context.run_id, context.node_id, context.series_id
    settings = list(context.run_config.items()), list(context.state.items())
    return repr((message.metadata, content, ids, settings))


def test_what_score_sees_is_the_same_at_every_node(folder, monkeypatch):
    """Whatever a server can set, node by node, and no digest covers."""
    nodes = Federation(folder, policy=exact_policy(exact_of_models=True))
    signed_for_both(monkeypatch)
    nodes.alter = with_first
    seen = []
    nodes.score = lambda *given: seen.append(shown(*given)) or CONSTANT
    for place, (node, context) in enumerate(nodes.grid.contexts.items()):
        context.node_id, context.series_id = node, place
        settings = [("a", 1.0), ("b", "two"), ("c", True)]
        context.run_config = dict(settings[place % 3 :] + settings[: place % 3])
        context.state["left"] = ConfigRecord({"at": place})  # by an earlier message of the run
    call = nodes.grid.call

    def mark(node, message):
        marks = {f"_{n}": kind(node) for kind, names in MARKS.items() for n in names.split()}
        message.metadata.__dict__.update(marks)
        return call(node, message)

    nodes.grid.call = mark
    nodes.evaluate(exact())
    assert len(seen) == len(NAMES)
    assert len({*seen}) == 1


def test_a_run_is_not_configured_otherwise_for_some(folder):
    """The run's config comes from the server's side, too, and apps read settings from it."""
    nodes = Federation(folder, policy=exact_policy(exact_of_models=True), score=reads_run)
    for node, name in nodes.nodes.items():
        if name != VICTIM:
            nodes.grid.contexts[node].run_config["scale"] = 0.0
    result = nodes.evaluate(exact())
    labels, rows = features(VICTIM)
    victim = own_counts(exact(), (labels, predict(REAL, rows)))
    seen = np.arange(8) != CONSTANT_BIN
    assert result is None or not np.array_equal(counts_of(result)[:, seen], victim[:, seen])


def test_a_session_is_not_carried_into_a_run_of_another_config(folder):
    """All nodes join in one run; some are asked to score in a second one, configured otherwise."""
    nodes = Federation(folder, policy=exact_policy(exact_of_models=True), score=reads_run)
    asked = []
    nodes.score = lambda message, context: asked.append(context) or reads_run(message, context)

    def in_another_run(node, message):
        if "arrays" not in message.content or nodes.nodes[node] == VICTIM:
            return nodes.grid.call(node, message)
        config = nodes.grid.contexts[node].node_config
        other = Context(2, node, config, RecordDict(), {"scale": 0.0})
        return nodes.grid.apps[node](message, other)

    nodes.grid = StandInGrid(
        nodes.grid.apps,
        {node: context.node_config for node, context in nodes.grid.contexts.items()},
        in_another_run,
    )
    assert nodes.evaluate(exact()) is None
    assert {context.run_id for context in asked} <= {1}


@pytest.mark.parametrize(
    "change",
    [other_values, swapped_names, another_record, a_config],
    ids=lambda change: change.__name__,
)
@pytest.mark.parametrize("make", [exact, lambda: noisy_plan(4)], ids=["exact", "noisy"])
def test_a_node_told_to_score_with_something_else_does_not(folder, make, change):
    """Whatever differs from what all members agreed on; also under noise. Under noise the victim's
    rows are protected, but the noisy sum is of the victim alone."""
    nodes = Federation(folder, policy=exact_policy(exact_of_models=True))
    asked = []
    nodes.score = lambda message, _: asked.append(message) or nodes.model_in(message)
    nodes.alter = for_others(change)
    nodes.evaluate(make())
    assert len(asked) <= 1  # the victim at most


def test_exact_sums_of_models_need_the_nodes_word(folder):
    """A crafted model singles out a patient, whatever all agreed on. It scores everybody 0 but
    those with one patient's features. A site that did not say that exact sums in Flower are fine
    must not take part."""
    nodes = Federation(folder, policy=exact_policy(exact_of_models=False))
    _, rows = features(VICTIM)
    patient = rows[0]
    crafted = {"weight": 1e6 * patient, "bias": np.array([-1e6 * patient @ patient])}
    nodes.score = lambda *_: crafted
    assert nodes.evaluate(exact()) is None


def test_the_same_model_for_all_is_evaluated(folder):
    nodes = Federation(folder, policy=exact_policy(exact_of_models=True))
    result = nodes.evaluate(exact())
    truth = sum(own_counts(exact(), (y, predict(REAL, x))) for y, x in map(features, NAMES))
    assert counts_of(result).sum() == truth.sum()


# Two rounds: the bins are found for one model, and filled by another


TWO = fg.TwoRound(4, coarse=fg.Axis.uniform(8, outside="clip"))
TWO_ROUNDS = fg.EvaluationPlan.for_histogram(
    TWO, fg.Cohort(len(NAMES), 1), privacy=fg.DistributedDP(1.0)
)


class TwoSums(Federation):
    """Counts how often nodes scored; `then(node, message)` is what they get in the second sum."""

    def __init__(self, folder):
        super().__init__(folder, score=self.count)
        self.scored_times, self.sessions = 0, []
        self.then = lambda _node, message: message

    def count(self, message, _):
        self.scored_times += 1
        return self.model_in(message)

    def carry(self, node, message):
        session = Envelope.from_bytes(message.content["fedgauge"]["request"]).session
        if session not in self.sessions:
            self.sessions.append(session)
        if self.sessions.index(session) == 1:
            message = self.then(node, message)
        return self.grid.call(node, message)


def with_other_model(_node, message):
    content = message.content.copy()
    if "arrays" in content:
        content["arrays"] = record(CONSTANT)
    return Message(content, metadata=message.metadata)


@pytest.fixture
def two_sums(folder):
    nodes = TwoSums(folder)
    yield nodes
    assert nodes.scored_times == len(NAMES)  # in the first round
    for name in NAMES:
        (balance,) = nodes.sites.site(name).ledger.balances()
        assert balance.spent.epsilon == 1.0


def test_another_model_in_the_second_round_is_not_scored_with(two_sums, caplog):
    two_sums.then = with_other_model
    assert two_sums.evaluate(TWO_ROUNDS) is None
    assert "the model that arrived is not the one that the invitation names" in caplog.text


def test_another_model_is_not_invited_to_in_the_second_round(two_sums, caplog, monkeypatch):
    """Signed by the coordinator: all members would score with the same."""
    other = flower.digest_records(RecordDict({"arrays": record(CONSTANT)}))

    def invite_again(server, plan):
        return SummationServer.invite(plan, server.invitation.members, server._key, model=other)

    monkeypatch.setattr(SummationServer, "invite_again", invite_again)
    two_sums.then = with_other_model
    assert two_sums.evaluate(TWO_ROUNDS) is None
    assert "has another model than the first" in caplog.text


def test_the_second_round_is_not_in_a_run_of_another_config(two_sums, caplog):
    """Apps read settings from it, and the digest of the model says nothing of them."""

    def configured(node, message):
        two_sums.grid.contexts[node].run_config["scale"] = 0.0
        return message

    two_sums.then = configured
    assert two_sums.evaluate(TWO_ROUNDS) is None
    assert "the second of two rounds came in another run" in caplog.text


@pytest.mark.parametrize("session", ["", "ab" * 32], ids=["no session", "a session"])
def test_no_evaluation_begins_with_its_second_round(folder, caplog, monkeypatch, session):
    """Its bins follow from counts that the server made up."""
    monkeypatch.setattr(flower, "require_whole", lambda _: None)
    nodes = TwoSums(folder)
    counts = (0, 0, 0, 400, 400, 0, 0, 0)
    plan = TWO_ROUNDS.located(Found(TWO, counts, len(NAMES), session=session))
    assert nodes.evaluate(plan) is None
    assert "this site did not join the first" in caplog.text
    assert not nodes.scored_times
    assert not any(map(nodes.sites.entries, NAMES))
