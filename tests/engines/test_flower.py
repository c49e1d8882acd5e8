"""The Flower engine on a stand-in for Flower's Grid: what is special to it. That results are right,
dropouts survived and tampering noticed is tested for all engines alike in test_conformance.py."""

import io
import json
import logging
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from consortium import COORDINATOR, Consortium
from counts import counts_of, pooled_counts
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from nodes import FIRST, MODEL, PLAN, AlteredGrid, Federation, stage_of
from refusals import refused
from rows import draw_rows
from sites import open_policy
from standin import StandInGrid, with_reply

import fedgauge as fg
from fedgauge.engines import flower
from fedgauge.engines.participant import Participant
from fedgauge.keys import key_to_text
from fedgauge.secagg import Stage, SummationServer
from fedgauge.site import Policy, add_trust

APPS = Path(__file__).parent / "flower_apps"
NOISY = fg.EvaluationPlan.for_histogram(
    fg.Axis.uniform(64, outside="clip"),
    fg.Cohort(min_survivors=4),
    privacy=fg.DistributedDP(epsilon=1.0),
)
WITH_SUMS = fg.EvaluationPlan.for_histogram(
    fg.Axis.uniform(64, outside="clip"), fg.Cohort(min_survivors=4), score_sums=True
)


def test_without_a_model_sums_equal_the_truth_and_replies_are_one_record_of_bytes(federation):
    """No metric, no array: nothing that Flower or a strategy would read."""
    nodes = federation()
    for _ in range(2):
        result = nodes.evaluate(estimator=fg.Quantile(16))
        assert np.array_equal(counts_of(result), nodes.truth())
    assert result.record.estimator == fg.Quantile(16)
    assert result.privacy.claim == federation.claim
    assert result.clients == 6
    assert sorted(nodes.scored) == [(place, False) for place in range(6) for _ in range(2)]
    assert not any("arrays" in message.content for message in nodes.grid.requests)
    for reply in nodes.grid.replies:
        assert list(reply.content) == ["fedgauge"]
        assert list(reply.content["fedgauge"]) == ["reply"]
        assert isinstance(reply.content["fedgauge"]["reply"], bytes)


def test_noise_is_stated_and_nodes_score_once_with_the_model_that_travels_once(federation):
    nodes = federation()
    result = nodes.evaluate(NOISY, arrays=MODEL)
    assert result.privacy.epsilon == 1.0
    assert not np.array_equal(counts_of(result), nodes.truth())
    assert np.allclose(counts_of(result), nodes.truth(), atol=80)
    assert sorted(nodes.scored) == [(place, True) for place in range(6)]
    with_model = [stage_of(m) for m in nodes.grid.requests if "arrays" in m.content]
    assert with_model == [Stage.MASK] * 6


def test_the_coordinators_site_is_found_in_the_environment(tmp_path, monkeypatch):
    nodes = Federation(tmp_path)
    monkeypatch.setenv(flower.SITE_VARIABLE, str(nodes.sites.site_file(COORDINATOR)))
    result = flower.evaluate(nodes.grid, PLAN, timeout=0.01)
    assert result.privacy.claim == "enforced"


WAYS = {
    "junk": lambda reply: [with_reply(reply, b"\x00junk")],
    "wrong_type": lambda reply: [with_reply(reply, "text")],
    "lost": lambda _: [],
    "failed": lambda reply: [Message(Error(2, "the app crashed"), metadata=reply.metadata)],
    "other_content": lambda reply: [
        Message(RecordDict({"fedgauge": ArrayRecord()}), metadata=reply.metadata)
    ],
    "no_content": lambda reply: [Message(RecordDict(), metadata=reply.metadata)],
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("since", [Stage.ADVERTISE, Stage.SHARE, Stage.MASK])
def test_a_node_that_fails_before_its_counts_arrive_is_a_dropout(federation, way, since):
    def answered(place, stage, reply):
        return way(reply) if place == 2 and stage is not None and stage >= since else [reply]

    nodes = federation(answered=answered)
    result = nodes.evaluate()
    assert np.array_equal(counts_of(result), nodes.truth(without=[2]))
    assert result.clients == 5


@pytest.mark.parametrize("since", [Stage.AGREE, Stage.OPEN])
def test_a_node_that_fails_later_is_in_the_sum(federation, since):
    def answered(place, stage, reply):
        return [] if place == 2 and stage is not None and stage >= since else [reply]

    nodes = federation(answered=answered)
    if since == Stage.AGREE:  # an exact sum is not opened without the vote of everybody in it
        refused(fg.CohortTooSmall, "5 members answered and 6 are needed", nodes.evaluate)
    else:
        assert np.array_equal(counts_of(nodes.evaluate()), nodes.truth())
    assert federation(answered=answered, name="noisy").evaluate(NOISY).clients == 6


def test_an_answer_of_a_round_before_is_a_dropout(federation):
    late = []

    def answered(place, stage, reply):
        if place != 2 or stage is None:
            return [reply]
        late.append(reply)
        return late[-2:-1]

    nodes = federation(answered=answered)
    assert np.array_equal(counts_of(nodes.evaluate()), nodes.truth(without=[2]))


def test_an_answer_in_another_nodes_name_is_set_aside(federation):
    """A node that repeats another's join joins as nobody."""
    joins = []

    def answered(place, stage, reply):
        if stage != Stage.ADVERTISE:
            return [reply]
        joins.append(reply)
        return [with_reply(reply, joins[0].content["fedgauge"]["reply"])] if place == 2 else [reply]

    nodes = federation(answered=answered)
    result = nodes.evaluate()
    assert np.array_equal(counts_of(result), nodes.truth(without=[2]))


def from_node(place, reply):
    copy = Message(reply.content, metadata=reply.metadata)
    copy.metadata.__dict__["_src_node_id"] = FIRST + place
    return copy


def forged(reply):
    said = bytearray(reply.content["fedgauge"]["reply"])
    said[-1] ^= 1  # in the signature
    return with_reply(reply, bytes(said))


SECOND_REPLIES = {
    "junk": lambda reply: with_reply(reply, b"junk"),
    "forged": forged,
    "nothing": lambda reply: with_reply(reply, b""),
    "the same": lambda reply: reply,
}


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("other", SECOND_REPLIES)
def test_another_reply_in_a_nodes_name_displaces_nothing(federation, other, first):
    """Who signed decides whose reply it is, not the node that it says it is from."""

    def answered(place, stage, reply):
        if place != 2 or stage is None:
            return [reply]
        return [SECOND_REPLIES[other](reply), reply][:: 1 if first else -1]

    nodes = federation(answered=answered)
    assert np.array_equal(counts_of(nodes.evaluate()), nodes.truth())


def test_replies_that_say_they_are_from_other_nodes_are_their_senders(federation):
    """After joining: then it shows at which node a member is asked. Who joins in another node's
    place hurts itself alone."""

    def late(place, stage, reply):
        joined = stage is not None and stage > Stage.ADVERTISE
        return [from_node((place + 1) % 6, reply) if joined else reply]

    def joining(place, stage, reply):
        return [from_node(1, reply) if (place, stage) == (2, Stage.ADVERTISE) else reply]

    for answered, without in ((late, []), (joining, [2])):
        nodes = federation(answered.__name__, answered=answered)
        assert np.array_equal(counts_of(nodes.evaluate()), nodes.truth(without=without))


def raising(nodes, error):
    """Rows of nodes, the third of which cannot score."""

    class Raises(dict):
        def __getitem__(self, name):
            if name == nodes.names[3]:
                raise error("rows 17 and 23")
            return super().__getitem__(name)

    return Raises(nodes.clients)


@pytest.mark.parametrize("error", [RuntimeError, fg.InputError, ZeroDivisionError, KeyError])
def test_a_score_function_that_raises_is_a_dropout(federation, error, caplog):
    nodes = federation()
    nodes.clients, rows = raising(nodes, error), nodes.clients
    with caplog.at_level(logging.ERROR):
        result = nodes.evaluate()
    nodes.clients = rows
    assert np.array_equal(counts_of(result), nodes.truth(without=[3]))
    assert "does not answer" in caplog.text
    assert b"rows 17" not in b"".join(on_the_wire(reply) for reply in nodes.grid.replies)


def test_a_score_function_that_raises_adds_noise_alone(tmp_path, caplog):
    """Under noise a node that fell silent would tell of its rows; its operator is told."""
    nodes = Federation(tmp_path)
    nodes.clients, rows = raising(nodes, ZeroDivisionError), nodes.clients
    with caplog.at_level(logging.WARNING):
        result = nodes.evaluate(NOISY)
    nodes.clients = rows
    assert result.clients == 6
    assert np.allclose(counts_of(result), nodes.truth(without=[3]), atol=80)
    assert caplog.text
    assert "rows 17" not in caplog.text
    sizes = {}
    for asked, reply in zip(nodes.grid.requests, nodes.grid.replies, strict=True):
        said = reply.content["fedgauge"]["reply"]
        sizes.setdefault(stage_of(asked), set()).add(len(said))
    assert [len(found) for found in sizes.values()] == [1] * 5


def test_too_few_nodes_connected(tmp_path):
    nodes = Federation(tmp_path)
    for place in (1, 3, 5):
        del nodes.grid.apps[FIRST + place]
    refused(fg.CohortTooSmall, "3 nodes are connected and the plan needs 4", nodes.evaluate)
    assert not nodes.grid.log


def test_without_a_site_file_a_node_refuses_outside_a_simulation(caplog):
    nodes = Federation()
    refused(fg.CohortTooSmall, "0 nodes without a site file answered", nodes.evaluate)
    assert "this node has no site file" in caplog.text
    assert "set FEDGAUGE_SIMULATION=1 where it is started" in caplog.text
    assert all(not reply.content["fedgauge"] for reply in nodes.grid.replies)
    assert not nodes.scored


@pytest.mark.parametrize("value", ["", "0", "false", "no", "yes"])
def test_simulation_is_said_in_one_way(value, monkeypatch):
    monkeypatch.setenv("FEDGAUGE_SIMULATION", value)
    nodes = Federation()
    refused(fg.CohortTooSmall, "FEDGAUGE_SIMULATION=1 is set", nodes.evaluate)
    assert not nodes.scored


def test_a_site_file_goes_before_simulation(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDGAUGE_SIMULATION", "1")
    nodes = Federation(tmp_path)
    assert nodes.evaluate().privacy.claim == "enforced"
    assert all("commit" in nodes.sites.entries(name) for name in nodes.names)


def test_a_node_with_a_site_file_answers_no_simulated_request(tmp_path, monkeypatch):
    nodes = Federation(tmp_path)
    monkeypatch.setenv("FEDGAUGE_SIMULATION", "1")
    refused(fg.CohortTooSmall, "pass site=", flower.evaluate, nodes.grid, PLAN, timeout=0.01)
    assert not nodes.scored


@pytest.mark.parametrize(
    ("policy", "plan", "rule"),
    [
        (Policy(), PLAN, "models"),
        (open_policy(max_bins=32), PLAN, "max_bins"),
        (open_policy(min_cohort=5), PLAN, "min_cohort"),
        (open_policy(max_epsilon=0.5), NOISY, "max_epsilon"),
        (open_policy(score_sums=False), WITH_SUMS, "score_sums"),
        (open_policy(exact_of_models=False), PLAN, "exact_of_models"),
        (open_policy(exact_dropouts=False), PLAN, "exact_dropouts"),
        (open_policy(min_cell=10), PLAN, "min_cell"),
        (open_policy(min_bin_width=1 / 63), PLAN, "min_bin_width"),
        (open_policy(labels=("yes",)), NOISY, "labels"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_site_that_refuses_the_plan_says_nothing(tmp_path, caplog, policy, plan, rule):
    nodes = Federation(tmp_path, policy=policy)
    with pytest.raises(fg.CohortTooSmall) as stopped:
        nodes.evaluate(plan)
    assert not nodes.scored
    assert all(not reply.content["fedgauge"] for reply in nodes.grid.replies)
    reasons = re.findall(r"does not answer: (.+)", caplog.text)
    assert len(reasons) == 6
    wire = b"".join(on_the_wire(reply) for reply in nodes.grid.replies)
    for reason in reasons:
        assert f"({rule})" in reason
        assert reason not in str(stopped.value)
        assert reason.encode() not in wire


OTHER_MODEL = ArrayRecord([np.array([0.5, 0.0])])


class TwoFacedGrid(AlteredGrid):
    """Sends one node something else to score with than the others."""

    def __init__(self, grid, change):
        super().__init__(grid.apps, {node: c.node_config for node, c in grid.contexts.items()})
        self._change = change

    def call(self, node, message):
        if node == FIRST + 2 and stage_of(message) == Stage.MASK:
            content = message.content.copy()
            self._change(content)
            message = Message(content, metadata=message.metadata)
        return super().call(node, message)


CHANGES = {
    "other_model": lambda content: content.__setitem__("arrays", OTHER_MODEL),
    "more": lambda content: content.__setitem__("more", ConfigRecord({"shift": 1.0})),
    "nothing": lambda content: content.__delitem__("arrays"),
}


@pytest.mark.parametrize("plan", [PLAN, NOISY], ids=["exact", "noisy"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_node_scores_what_the_invitation_names_and_nothing_else(tmp_path, caplog, change, plan):
    """Else one node's own histogram could be all of a sum: the others get a constant model."""
    nodes = Federation(tmp_path)
    nodes.grid = TwoFacedGrid(nodes.grid, change)
    result = nodes.evaluate(plan, arrays=MODEL)
    assert result.clients == 5
    assert 2 not in [place for place, _ in nodes.scored]
    assert "the model that arrived is not the one that the invitation names" in caplog.text
    # Nothing was spent: it never looked at its rows.
    assert nodes.sites.entries(nodes.names[2]) == ["reserve"]


def test_a_model_that_nobody_signed_is_refused(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("fedgauge.engines.flower._model_of", lambda _: b"")
    nodes = Federation(tmp_path)
    with pytest.raises(fg.CohortTooSmall):
        nodes.evaluate(NOISY, arrays=MODEL)
    assert "the invitation does not fit the way it came" in caplog.text
    assert not nodes.scored


def test_files_do_not_bring_a_model(tmp_path):
    nodes = Federation(tmp_path)
    site = nodes.sites.site(nodes.names[0])
    server = SummationServer.invite(
        NOISY, nodes.sites.keys.values(), nodes.sites.site(COORDINATOR).key, model=b"m" * 32
    )
    with pytest.raises(fg.PlanRefused, match="does not fit the way it came"):
        Participant(site).answer(server.invitation.data)


def digest(*named):
    return flower.digest_records(RecordDict(dict(named)))


def test_digests_tell_records_and_the_order_of_arrays_apart():
    ones = np.ones((2, 3))
    records = [
        [],
        [("arrays", ArrayRecord([ones]))],
        [("arrays", ArrayRecord([ones * 2]))],
        [("arrays", ArrayRecord([ones.reshape(3, 2)]))],
        [("arrays", ArrayRecord([ones.astype(np.float32)]))],
        [("arrays", ArrayRecord([ones, ones]))],
        [("other", ArrayRecord([ones]))],
        [("arrays", ConfigRecord({"a": 1}))],
        [("arrays", ConfigRecord({"a": 1.5}))],
        [("arrays", ConfigRecord({"b": 1}))],
        [("arrays", ConfigRecord({"a": b"1"}))],
        [("arrays", ConfigRecord({"a": "1"}))],
        [("arrays", ArrayRecord([ones])), ("config", ConfigRecord({"a": 1}))],
    ]
    assert len({digest(*record) for record in records}) == len(records)
    assert digest(*records[-1]) == digest(*records[-1][::-1])
    one, two = np.zeros(2), np.ones(2)
    assert digest(("arrays", ArrayRecord([one, two]))) != digest(
        ("arrays", ArrayRecord([two, one]))
    )


def npy(dtype, *, version=(1, 0), order="C"):
    """The bytes of an array file of 1, 2, 3, 4."""
    buffer = io.BytesIO()
    values = np.array([[1, 2], [3, 4]], dtype, order=order)
    np.lib.format.write_array(buffer, values, version=version, allow_pickle=False)
    return buffer.getvalue()


def array(data=None, *, dtype="float32", shape=(2, 2), stype="numpy.ndarray"):
    return ArrayRecord({"w": Array(dtype, shape, stype, data or npy("<f4"))})


NANS = struct.unpack("<3d", struct.pack("<3Q", 0x7FF8 << 48, 0xFFF8 << 48, (0x7FF8 << 48) + 1))


ALIKE = {
    "bytes of an array": [
        array(),
        array(npy("<f4", version=(2, 0))),
        array(npy("<f4", order="F")),
        array(npy(">f4")),
        array(npy("<f8")),
    ],
    "what an array is said to be": [
        array(),
        array(dtype="<f4"),
        array(dtype="FLOAT32"),
        array(shape=(4,)),
        array(shape=(2, 2, True)),
        array(shape=(2, 2, 1)),
        array(stype="numpy"),
    ],
    "keys of a record": [
        kind(pairs)
        for kind, value in ((ArrayRecord, Array(np.ones(1))), (ConfigRecord, 1), (MetricRecord, 1))
        for pairs in ({"a": value, "b": value}, {"b": value, "a": value})
    ],
    "kinds of values": [
        ConfigRecord({"a": value})
        for value in (1, 1.0, True, "1", b"1", [1], [1.0], [True], ["1"], [b"1"])
    ],
    "numbers": [
        ConfigRecord({"a": value})
        for value in (0.0, -0.0, 0, *NANS, "nan", 2**53, 2.0**53, 2**53 + 1)
    ],
    "forms of a name": [ConfigRecord({name: 1}) for name in ("\u00e9", "e\u0301")],
    "no values": [ConfigRecord({"a": value}) for value in ([], "", b"")],
}


def carried_over(content):
    """What Flower makes of records on their way to a node."""
    parts = get_all_nested_objects(content)
    sent = {name: part.deflate() for name, part in parts.items()}
    return inflate_object_from_contents(content.object_id, sent)


@pytest.mark.parametrize("what", ALIKE)
def test_records_that_look_alike_have_digests_of_their_own(what):
    """Else a score function could be told of by one what no digest covers."""
    contents = [RecordDict({"arrays": record}) for record in ALIKE[what]]
    digests = [flower.digest_records(content) for content in contents]
    assert len({*digests}) == len(digests)
    assert [flower.digest_records(carried_over(content)) for content in contents] == digests


def test_an_unknown_coordinator_gets_silence(tmp_path, caplog):
    nodes = Federation(tmp_path / "ours")
    others = Consortium.make(tmp_path / "theirs", ["mallory"])
    site = others.site_file(COORDINATOR)
    for name in nodes.names:
        add_trust(site, "peer", name, key_to_text(nodes.sites.keys[name]))
    with pytest.raises(fg.CohortTooSmall):
        flower.evaluate(nodes.grid, PLAN, timeout=0.01, site=site)
    assert "the coordinator is not approved here" in caplog.text
    assert all(not reply.content["fedgauge"] for reply in nodes.grid.replies)


def test_every_evaluation_is_charged_and_a_spent_budget_is_silence(tmp_path, caplog):
    nodes = Federation(tmp_path, policy=open_policy(budget_epsilon=3.5))
    for _ in range(3):
        nodes.evaluate(NOISY)
    with pytest.raises(fg.CohortTooSmall):
        nodes.evaluate(NOISY)
    assert "does not answer" in caplog.text
    for name in nodes.names:
        kinds = nodes.sites.entries(name)
        assert kinds.count("reserve") == kinds.count("commit") == 3
        (balance,) = nodes.sites.site(name).ledger.balances()
        assert float(balance.spent.epsilon) == pytest.approx(3.0)
    assert len(nodes.scored) == 18


def test_an_empty_message_is_not_answered(tmp_path, caplog):
    nodes = Federation(tmp_path)
    app, context = nodes.grid.apps[FIRST], nodes.grid.contexts[FIRST]
    for content in (RecordDict(), RecordDict({"fedgauge": ConfigRecord({"request": "text"})})):
        asked = Message(content, dst_node_id=FIRST, message_type="evaluate.fedgauge")
        assert not app(asked, context).content["fedgauge"]
    assert "a message holds no request" in caplog.text


SILENT = """
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.task_identity import TaskIdentity
import fedgauge.flower

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
app = ClientApp()
fedgauge.flower.attach(app, print)
content = RecordDict({"fedgauge": ConfigRecord({"request": b""})})
asked = Message(content, dst_node_id=2, message_type="evaluate.fedgauge")
app(asked, Context(1, 2, {}, RecordDict(), {}))
"""


def test_why_a_node_is_silent_shows_where_its_app_runs():
    done = subprocess.run([sys.executable, "-c", SILENT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "does not answer: this node has no site file" in done.stderr


def on_the_wire(message):
    return b"".join(part.deflate() for part in get_all_nested_objects(message).values())


def traces(labels, scores, plan):
    """How a node's rows and counts would look if they were sent as they are."""
    counts = pooled_counts(plan, {"": (labels, scores)})
    totals = [len(labels), int(np.sum(labels)), int(len(labels) - np.sum(labels))]
    found = {
        "labels": np.asarray(labels, dtype=np.int8).tobytes(),
        "labels, wide": np.asarray(labels, dtype=np.int64).tobytes(),
        "scores": np.asarray(scores)[:2].tobytes(),
        "scores, single": np.asarray(scores, dtype=np.float32)[:4].tobytes(),
        "scores, text": repr(float(scores[0])).encode(),
    }
    for kind in ("<i4", "<i8", ">i4", ">i8", "<f8"):
        found[f"counts {kind}"] = counts.astype(kind).tobytes()
        for label in (0, 1):
            middle = counts[label][np.argmax(counts[label]) :][:4]
            found[f"counts {label} {kind}"] = middle.astype(kind).tobytes()
        if kind not in ("<i4", ">i4"):  # four bytes are met by chance
            for total in totals:
                found[f"total {total} {kind}"] = np.array(total).astype(kind).tobytes()
    found |= {f"text {total}": f"num-examples: {total}".encode() for total in totals}
    return found


def test_messages_hold_no_count_score_label_or_number_of_examples(federation):
    nodes = federation()
    nodes.clients = {  # totals and scores that are met nowhere by chance
        name: draw_rows(40_000 + 777 * seed, seed, 0.3, low=0.3)
        for seed, name in enumerate(nodes.names)
    }
    result = nodes.evaluate(arrays=MODEL)
    assert result.negatives + result.positives == sum(len(y) for y, _ in nodes.clients.values())
    wire = b"".join(on_the_wire(message) for message in nodes.grid.log)
    assert MODEL.to_numpy_ndarrays()[0].tobytes() in wire  # the search does find what is sent
    for name, (labels, scores) in nodes.clients.items():
        for what, trace in traces(labels, scores, PLAN).items():
            assert trace not in wire, f"{name}: {what}"


def test_the_search_finds_counts_that_are_not_masked(federation, monkeypatch):
    def no_mask(_key, length, bits):
        return np.zeros(length, dtype=f"<u{bits // 8}")

    monkeypatch.setattr("fedgauge.secagg.masking.mask", no_mask)
    nodes = federation()
    nodes.evaluate()
    wire = b"".join(on_the_wire(message) for message in nodes.grid.log)
    for labels, scores in nodes.clients.values():
        assert any(trace in wire for trace in traces(labels, scores, PLAN).values())


def lines_of_fedgauge(file):
    """What an app has of fedgauge; the rest is an app by itself."""
    lines = (APPS / "after" / "quickstart" / file).read_text().splitlines()
    compile("\n".join(line for line in lines if "fedgauge" not in line), file, "exec")
    return [line for line in lines if "fedgauge" in line]


def test_a_public_style_app_gets_the_evaluation_by_two_and_three_lines(tmp_path, monkeypatch):
    attached = ["import fedgauge.flower", "fedgauge.flower.attach(app, predict_test)"]
    assert lines_of_fedgauge("client_app.py") == attached
    assert len(lines_of_fedgauge("server_app.py")) == 3
    assert lines_of_fedgauge("task.py") == []
    monkeypatch.syspath_prepend(APPS / "after")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDGAUGE_SIMULATION", "1")
    from quickstart import client_app, server_app, task

    try:
        nodes = range(1, 5)
        configs = {node: {"partition-id": node} for node in nodes}
        grid = StandInGrid(dict.fromkeys(nodes, client_app.app), configs)
        context = Context(1, 1, {}, RecordDict(), {})
        server_app.app(grid, context)
        weights = context.state["final"].to_numpy_ndarrays()[0]
        rows = {str(node): task.load_data(node) for node in nodes}
        data = {name: (y, task.predict(weights, x)) for name, (_, x, _, y) in rows.items()}
    finally:
        for name in [name for name in sys.modules if name.startswith("quickstart")]:
            del sys.modules[name]
    result = fg.Evaluation.from_json(tmp_path / "pooled.json")
    assert result.record.slices == fg.evaluate(data, result.plan).record.slices
    assert json.loads((tmp_path / "pooled.json").read_text())["privacy"]["claim"] == "simulated"
