"""Flower nodes with rows of their own, and a grid that may lose or alter what they answer."""

import numpy as np
from consortium import COORDINATOR, Consortium
from counts import pooled_counts
from flwr.app import ArrayRecord
from flwr.clientapp import ClientApp
from rows import draw_clients
from standin import StandInGrid

import fedgauge as fg
from fedgauge.engines import flower
from fedgauge.protocol import Envelope
from fedgauge.secagg import Stage

FIRST = 1001  # ids are far from positions, so that mixing them up shows
PLAN = fg.EvaluationPlan.for_histogram(
    fg.Axis.uniform(64, outside="clip"), fg.Cohort(min_survivors=4)
)
MODEL = ArrayRecord([np.array([0.5, -1.25])])


class Federation:
    """Six nodes, each with rows of its own, with site files or as in a simulation."""

    def __init__(self, folder=None, *, policy=None, answered=None):
        self.clients = draw_clients(6)
        self.names = list(self.clients)
        self.scored = []
        self.sites = folder and Consortium.make(folder, self.names, policy=policy)
        app = ClientApp()
        flower.attach(app, self._score)
        configs = {FIRST + i: self._config(i) for i in range(6)}
        self.grid = AlteredGrid(dict.fromkeys(configs, app), configs, answered)

    def _config(self, place):
        config = {"partition-id": place}
        if self.sites:
            config["fedgauge-site"] = str(self.sites.site_file(self.names[place]))
        return config

    def _score(self, message, context):
        self.scored.append((context.node_config["partition-id"], "arrays" in message.content))
        return self.clients[self.names[context.node_config["partition-id"]]]

    def evaluate(self, plan=PLAN, **options):
        site = self.sites and self.sites.site_file(COORDINATOR)
        return flower.evaluate(self.grid, plan, timeout=0.01, site=site, **options)

    def truth(self, plan=PLAN, *, without=()):
        names = [name for i, name in enumerate(self.names) if i not in without]
        return pooled_counts(plan, self.clients, names)


class AlteredGrid(StandInGrid):
    """`answered(place, stage, reply)` says what arrives of a reply: a list of messages."""

    def __init__(self, apps, configs, answered=None):
        super().__init__(apps, configs)
        self._answered = answered or (lambda _place, _stage, reply: [reply])

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        replies = super().send_and_receive(messages, timeout=timeout)
        return [
            message
            for asked, reply in zip(messages, replies, strict=True)
            for message in self._answered(
                asked.metadata.dst_node_id - FIRST, stage_of(asked), reply
            )
        ]

    @property
    def requests(self):
        return self.log[::2]

    @property
    def replies(self):
        return self.log[1::2]


def stage_of(message):
    request = message.content["fedgauge"]["request"]
    return Stage(Envelope.from_bytes(request).stage) if request else None
