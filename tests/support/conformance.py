"""What an engine must be able to do to be tested like every other one. An engine joins the suite by
an adapter with the interface of :class:`Engine`, named in :data:`ENGINES`. The suite gives it a
plan and the clients' data, lets clients fall silent, and alters messages on their way."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest
from consortium import COORDINATOR, Consortium
from counts import counts_of, pooled_counts
from flwr.app import ConfigRecord, Message
from flwr.clientapp import ClientApp
from rows import draw_clients
from sites import open_policy
from standin import StandInGrid, with_reply

import fedgauge as fg
from fedgauge.engines import flower, simulation
from fedgauge.engines.contribution import contribution, count_rows, find_bins, release
from fedgauge.engines.exchange import INVITATION, SECOND, Exchange, take_part
from fedgauge.engines.participant import Participant
from fedgauge.engines.simulation import simulate
from fedgauge.keys import SigningKey
from fedgauge.privacy.keystream import SimulatedKeystream
from fedgauge.protocol import Envelope
from fedgauge.secagg import Invitation, Stage, SummationClient
from fedgauge.site import Site

# Who, in which round, what was sent: what arrives instead; None when it is lost.
Courier = Callable[[str, Stage, bytes], bytes | None]


def as_sent(_name: str, _stage: Stage, data: bytes) -> bytes:
    return data


class Engine(Protocol):
    """One way in which contributions reach the sum."""

    claim: str  # what its results say about privacy
    # Whether the caller holds all data, and so is told what is wrong with some of it. Else a
    # client whose data do not fit refuses, and to the others looks like one that left.
    one_process: bool
    key: SigningKey  # what the coordinator signs with
    refusals: dict[str, fg.FedgaugeError]  # what each client of the last run refused, by its name

    def run(
        self,
        plan: fg.EvaluationPlan,
        clients: Mapping[str, object],
        *,
        silent: Mapping[str, Stage] | None = None,
        silent_then: Mapping[str, Stage] | None = None,
        on_request: Courier = as_sent,
        on_reply: Courier = as_sent,
    ) -> fg.Evaluation:
        """Evaluate a plan; clients named in `silent` say nothing from a stage on. Of two rounds
        that is the first, and `silent_then` says it of the second. A client keeps its signing key
        from run to run. What stops the evaluation is raised."""


class SimulationEngine:
    """`fg.evaluate` where nothing is disturbed, else `run_rounds` with a courier in between."""

    claim = "simulated"
    one_process = True

    def __init__(self, _folder, monkeypatch, *, seed=None):
        self._source = SimulatedKeystream(0 if seed is None else seed)
        self._seed = seed
        self._keys = {}
        self.key = SigningKey.generate()
        self.refusals = {}
        self._monkeypatch = monkeypatch

    def run(
        self, plan, clients, *, silent=None, silent_then=None, on_request=as_sent, on_reply=as_sent
    ):
        self.refusals = {}
        if not (silent or silent_then) and on_request is on_reply is as_sent:
            return simulate(clients, plan, summation="secure", seed=self._seed)
        released = self._sum(plan, clients, silent, on_request, on_reply)
        if plan.is_search:
            plan = find_bins(plan, released)
            released = self._sum(plan, clients, silent_then, on_request, on_reply)
        statement = plan.statement("simulated")
        return fg.Evaluation(plan, statement, released, estimator=fg.Aligned())

    def _sum(self, plan, clients, silent, on_request, on_reply):
        names = list(clients)
        keys = [self._keys.setdefault(name, SigningKey.generate()) for name in names]
        queue = iter([*keys, self.key])
        duties = [_Duties(plan, name, clients[name], self._source) for name in names]

        class KnownKeys:
            generate = staticmethod(lambda: next(queue))

        class Couriers:
            @staticmethod
            def join(_, key, duty):
                return _Carried(key, duty, on_request, on_reply, self.refusals)

        with self._monkeypatch.context() as patch:
            patch.setattr(simulation, "SigningKey", KnownKeys)
            patch.setattr(simulation, "SummationClient", Couriers)
            places = {names.index(name): stage for name, stage in (silent or {}).items()}
            outcome = simulation.run_rounds(plan, duties, silent=places)
        return release(plan, outcome.total, len(outcome.survivors))


class _Duties:
    def __init__(self, plan, name, data, source):
        self.plan, self.name, self.data, self.source = plan, name, data, source

    def contribution(self, sharers):
        del sharers
        with fg.errors.located(f"client {self.name!r}"):
            return contribution(self.plan, count_rows(self.plan, self.data), self.source)

    def agree(self, survivors):
        pass


class _Carried:
    """A member of a summation whose messages pass through couriers."""

    def __init__(self, key, duties, on_request, on_reply, refusals):
        self._key, self._duties = key, duties
        self._on_request, self._on_reply = on_request, on_reply
        self._refusals = refusals
        self._client = None

    def receive(self, request):
        name, stage = self._duties.name, Stage(Envelope.from_bytes(request).stage)
        try:
            reply = self._answer(stage, self._on_request(name, stage, request))
        except fg.ProtocolError as error:
            self._refusals[name] = error
            raise
        return self._on_reply(name, stage, reply)

    def _answer(self, stage, request):
        if request is None:
            raise fg.ProtocolError("no request came.")
        if stage == Stage.ADVERTISE:
            self._client = SummationClient.join(Invitation(request), self._key, self._duties)
        if self._client is None:
            raise fg.ProtocolError("this member did not join.")
        return self._client.receive(request)


class ExchangeEngine:
    """Files, carried by hand between the coordinator's folder and one folder for each site."""

    claim = "enforced"
    one_process = False
    policy = open_policy(
        max_epsilon=50.0,
        budget_epsilon=500.0,
        rows_per_bin=1,
        score_sums=True,
        labels=("1", "ill", "cat", "dog", "owl"),
    )

    def __init__(self, folder, monkeypatch, *, seed=None):
        self._folder = folder
        self._runs = 0
        self._sites = None
        self.refusals = {}
        if seed is not None:
            seeds = iter(range(1000 * seed, 1000 * seed + 1000))
            monkeypatch.setattr(
                "fedgauge.engines.participant.Keystream", lambda: SimulatedKeystream(next(seeds))
            )

    def sites(self, names) -> Consortium:
        if self._sites is None:
            self._sites = Consortium.make(self._folder / "sites", names, policy=self.policy)
        return self._sites

    @property
    def key(self):
        return self._sites.site(COORDINATOR).key

    def run(
        self, plan, clients, *, silent=None, silent_then=None, on_request=as_sent, on_reply=as_sent
    ):
        self._runs += 1
        self.refusals = {}
        sites = self.sites(clients)
        here = self._folder / f"run-{self._runs}"
        mail = {name: here / name for name in (COORDINATOR, *clients)}
        sites.start(mail[COORDINATOR], plan, invited=list(clients))
        for name in clients:
            mail[name].mkdir()
        central = sites.coordinator(mail[COORDINATOR])
        rounds = {"": silent, SECOND: silent_then} if plan.is_search else {"": silent}
        try:
            for (within, quiet), stage in itertools.product(rounds.items(), Stage):
                for name, data in clients.items():
                    if stage >= (quiet or {}).get(name, len(Stage) + 1):
                        continue
                    request = self._request(mail[COORDINATOR] / within, stage, name)
                    if request is None:
                        continue
                    arrived = on_request(name, stage, request.read_bytes())
                    if arrived is not None:
                        (mail[name] / within).mkdir(exist_ok=True)
                        (mail[name] / within / request.name).write_bytes(arrived)
                    reply = self._answer(sites.site(name), mail[name], stage, data)
                    if reply is None:
                        continue
                    arrived = on_reply(name, stage, reply.read_bytes())
                    if arrived is not None:
                        (mail[COORDINATOR] / within / reply.name).write_bytes(arrived)
                outcome = central.advance(without_missing=True)
        except BaseException:
            assert not list(here.rglob("result.json"))
            raise
        assert isinstance(outcome, fg.Evaluation)
        return outcome

    def _request(self, folder, stage, name):
        if stage == Stage.ADVERTISE:
            return folder / INVITATION
        return next(folder.glob(f"{stage:d}-*.{name}.request.fgx"), None)

    def _answer(self, site: Site, folder, stage, data):
        try:
            return Path(take_part(Exchange(folder, site), site, stage, lambda: data))
        except fg.FedgaugeError as error:
            self.refusals.setdefault(site.name, error)
            return None


class FlowerEngine(ExchangeEngine):
    """Flower messages between a stand-in for its Grid and one ClientApp for each site."""

    def __init__(self, folder, monkeypatch, *, seed=None):
        super().__init__(folder, monkeypatch, seed=seed)
        self._monkeypatch = monkeypatch

    def run(
        self, plan, clients, *, silent=None, silent_then=None, on_request=as_sent, on_reply=as_sent
    ):
        self.refusals = {}
        sites = self.sites(clients)
        names = dict(enumerate(clients, start=100))
        apps = {node: ClientApp() for node in names}
        for node, name in names.items():
            flower.attach(apps[node], lambda _message, _context, name=name: clients[name])
        configs = {node: {"fedgauge-site": str(sites.site_file(names[node]))} for node in names}
        sums = {}

        def courier(node, message):
            asked = Envelope.from_bytes(message.content["fedgauge"]["request"])
            name, stage = names[node], Stage(asked.stage)
            sums.setdefault(asked.session, len(sums))
            quiet = (silent, silent_then)[sums[asked.session]] or {}
            if stage >= quiet.get(name, len(Stage) + 1):
                return None
            arrived = on_request(name, stage, message.content["fedgauge"]["request"])
            if arrived is None:
                self.refusals.setdefault(name, fg.ProtocolError("no request came."))
                return None
            content = message.content.copy()
            content["fedgauge"] = ConfigRecord({"request": arrived})
            reply = grid.call(node, Message(content, metadata=message.metadata))
            said = reply.content["fedgauge"].get("reply")
            arrived = None if said is None else on_reply(name, stage, said)
            return None if arrived is None else with_reply(reply, arrived)

        grid = StandInGrid(apps, configs, courier)
        invited = Site.from_toml(sites.site_file(COORDINATOR))
        peers = {key: name for key, name in invited.peers.items() if name in clients}
        coordinator = dataclasses.replace(invited, peers=peers)
        with self._monkeypatch.context() as patch:
            patch.setattr("fedgauge.engines.flower.Participant", self._watched())
            return flower.evaluate(grid, plan, timeout=0, site=coordinator)

    def _watched(self):
        """Participants whose refusals are kept: a server is not told of them."""
        refusals = self.refusals

        class Watched(Participant):
            def answer(self, request):
                try:
                    return super().answer(request)
                except fg.FedgaugeError as error:
                    refusals.setdefault(self._site.name, error)
                    raise

        return Watched


ENGINES = {"simulation": SimulationEngine, "exchange": ExchangeEngine, "flower": FlowerEngine}
CLIENTS = draw_clients(5)
EVERYBODY = list(CLIENTS)
OTHERS = [name for name in CLIENTS if name != "site-1"]
every_stage = pytest.mark.parametrize("stage", Stage, ids=lambda stage: stage.name.lower())


def assert_goes_on(engine, plan, stage, names=None, **run):
    """What becomes of the sum when one client is lost from a stage on. Counts that were sent are in
    the sum, whatever their sender does later. But an exact sum is not opened without the vote of
    everybody in it."""
    if stage == Stage.AGREE and not plan.is_noisy:
        with pytest.raises(fg.CohortTooSmall, match="4 members answered and 5 are needed"):
            engine.run(plan, CLIENTS, **run)
        return
    result = engine.run(plan, CLIENTS, **run)
    stay = names() if names else OTHERS if stage <= Stage.MASK else EVERYBODY
    assert_sum_over(result, plan, CLIENTS, stay)


def assert_sum_over(result, plan, clients, names):
    np.testing.assert_array_equal(counts_of(result), pooled_counts(plan, clients, names))
    assert result.clients == len(names)
    assert result.plan == plan
