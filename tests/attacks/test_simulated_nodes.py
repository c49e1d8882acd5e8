"""Nodes that are taken for simulated ones answer without a site file: nothing says whom they trust.
The attacker is the server of a run. It cannot name a site file that suits it, so it tries to have a
node believe that it is simulated, or finds one that uses Ray for work of its own: a node was
simulated where Ray ran in its process."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from standin import StandInGrid

from fedgauge.engines import flower

NODE = 1001
VARIABLE = "FEDGAUGE_SIMULATION"


@pytest.fixture
def node(monkeypatch):
    """A node without a site file, and what it answers when it is asked for its key."""
    monkeypatch.delenv(VARIABLE, raising=False)
    app = ClientApp()
    flower.attach(app, lambda *_: (np.array([0, 1]), np.array([0.2, 0.9])))
    grid = StandInGrid({NODE: app}, {NODE: {"partition-id": 0}})

    def ask(**said):
        content = RecordDict({"fedgauge": ConfigRecord({"request": b""} | said)})
        (reply,) = grid.send_and_receive(
            [Message(content, dst_node_id=NODE, message_type="evaluate.fedgauge")]
        )
        return dict(reply.content["fedgauge"])

    return SimpleNamespace(ask=ask, context=grid.contexts[NODE])


def test_a_node_that_uses_ray_is_not_simulated(node, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True))
    assert node.ask() == {}


@pytest.mark.parametrize("name", [VARIABLE, VARIABLE.lower(), "fedgauge-simulation", "simulation"])
def test_nothing_that_a_server_sends_makes_a_node_simulated(node, name):
    node.context.run_config |= {name: "1"}
    node.context.state["fedgauge"] = ConfigRecord({name: "1"})
    assert node.ask(**{name: "1"}) == {}


def test_its_operator_can(node, monkeypatch):
    monkeypatch.setenv(VARIABLE, "1")
    assert len(node.ask()["reply"]) == 32
