"""Nodes of a Flower app with the labels of some examples each: labels apart from scores."""

import numpy as np
import pytest
from consortium import COORDINATOR, Consortium
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from platform_world import BOUGHT, LABEL_DP, SCORES, SHOPS
from sites import open_policy
from sklearn.metrics import roc_auc_score
from standin import StandInGrid

import fedgauge as fg
from fedgauge.protocol import Envelope
from fedgauge.vertical import flower as flower_labels
from fedgauge.vertical.label_party import ROSTER

FIRST = 1001
IDS = np.arange(len(SCORES))
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
        # At epsilon 8 the AUC is off by 5e-4 for the bins, and noise has a deviation of 6e-5.
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
