"""Flower nodes without a score function: they count the rows that their site files declare."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from consortium import COORDINATOR
from counts import counts_of
from flwr.clientapp import ClientApp
from nodes import FIRST, MODEL, PLAN, AlteredGrid, Federation
from sites import open_policy

import fedgauge as fg
from fedgauge.engines import flower
from fedgauge.plan import plan as plans

NOISY = fg.EvaluationPlan.for_histogram(
    PLAN.axis, fg.Cohort(min_survivors=4), privacy=fg.DistributedDP(1.0)
)


class Declared(Federation):
    """Nodes whose rows are in files, which their site files name."""

    def __init__(self, folder, table='path = "rows.csv"', **options):
        policy = open_policy(findings="stop", exact_of_models=True)
        super().__init__(folder, policy=policy, **options)
        app = ClientApp()
        flower.attach(app)
        configs = {FIRST + i: self._config(i) for i in range(6)}
        self.grid = AlteredGrid(dict.fromkeys(configs, app), configs)
        for name in self.names:
            path = self.sites.site_file(name)
            path.write_text(f'{path.read_text()}\n[data]\n{table}\nlabel = "y"\nscore = "p"\n')
            self.write(name)

    def write(self, name, file="rows.csv", *, flip=False):
        labels, scores = self.clients[name]
        labels = 1 - labels if flip else labels
        rows = "".join(f"{y},{p!r}\n" for y, p in zip(labels, scores.tolist(), strict=True))
        (self.sites.folder / name / file).write_text(f"y,p\n{rows}")

    def kinds(self, place):
        return self.sites.entries(self.names[place])


def test_nodes_count_the_rows_of_their_site_files(tmp_path):
    nodes = Declared(tmp_path)
    result = nodes.evaluate()
    assert np.array_equal(counts_of(result), nodes.truth())
    assert result.privacy.claim == "enforced"


@pytest.mark.parametrize("plan", [PLAN, NOISY], ids=["exact", "noisy"])
def test_a_node_whose_rows_look_wrong_stays_out_at_no_cost(tmp_path, plan, caplog):
    nodes = Declared(tmp_path)
    wrong = max(range(6), key=lambda place: len(nodes.clients[nodes.names[place]][0]))
    nodes.write(nodes.names[wrong], flip=True)
    result = nodes.evaluate(plan)
    assert result.clients == 5
    assert nodes.kinds(wrong) == []
    assert "Are the labels reversed" in caplog.text


def test_a_model_that_is_sent_is_not_taken_for_scores_that_a_node_has(tmp_path, caplog):
    nodes = Declared(tmp_path)
    with pytest.raises(fg.CohortTooSmall):
        nodes.evaluate(arrays=MODEL)
    assert "sends a model, and this node has scores already" in caplog.text
    assert all(nodes.kinds(place) == [] for place in range(6))


def test_a_run_lasts_into_the_next_period(tmp_path, monkeypatch):
    """Nodes count the rows that they joined with, and charge that period."""
    table = 'path = "{year}-{month}-{day}.csv"\nperiods = "disjoint"'
    nodes = Declared(tmp_path, table)
    today = datetime.now(UTC)
    yesterday = f"{today - timedelta(days=1):%Y-%m-%d}"
    for name in nodes.names:
        nodes.write(name, f"{yesterday}.csv")
        nodes.write(name, f"{today:%Y-%m-%d}.csv", flip=True)
    monkeypatch.setattr(plans, "now", lambda: today)
    send = nodes.grid.send_and_receive

    def into_the_next_day(messages, *, timeout=None):
        replies = send(messages, timeout=timeout)
        monkeypatch.setattr(plans, "now", lambda: today + timedelta(days=1))
        return replies

    nodes.grid.send_and_receive = into_the_next_day
    assert np.array_equal(counts_of(nodes.evaluate()), nodes.truth())
    charged = {each.account.dataset for each in nodes.sites.site(nodes.names[0]).ledger.balances()}
    assert charged == {f"stroke-2026-{yesterday}"}


def test_rows_of_a_score_function_get_no_budget_of_a_period(tmp_path, caplog):
    nodes = Declared(tmp_path, 'path = "{year}.csv"\nperiods = "disjoint"')
    app = ClientApp()
    flower.attach(app, nodes._score)
    nodes.grid.apps = dict.fromkeys(nodes.grid.apps, app)
    with pytest.raises(fg.CohortTooSmall):
        nodes.evaluate()
    assert "the rows of a score function would be charged to a period" in caplog.text
    assert nodes.scored == []


def test_a_simulated_node_has_no_site_file_to_read(monkeypatch, caplog):
    monkeypatch.setenv("FEDGAUGE_SIMULATION", "1")
    nodes = Federation()
    app = ClientApp()
    flower.attach(app)
    nodes.grid.apps = dict.fromkeys(nodes.grid.apps, app)
    with pytest.raises(fg.CohortTooSmall):
        nodes.evaluate()
    assert "Pass a score function" in caplog.text
    assert COORDINATOR not in caplog.text
