"""What an approved but hostile coordinator has at hand, and sites that let it begin. What a site
must allow so that an attack can be tried at all stands here, in one place each."""

import re
import shutil
from dataclasses import dataclass, field, replace

import numpy as np
from consortium import COORDINATOR, Consortium
from flwr.app import RecordDict
from rows import draw_client

import fedgauge as fg
from fedgauge.engines.flower import digest_records
from fedgauge.keys import key_to_text
from fedgauge.plan.task import BinaryTask
from fedgauge.secagg import Stage, Sum, SummationServer
from fedgauge.site import Policy, add_trust, create_site
from fedgauge.site.policy import MODELS

VICTIM = "victim"


def small_sites(others=3):
    """Rows of the victim and of so many other sites."""
    rest = {f"site-{i}": draw_client(50, seed=i) for i in range(others)}
    return {VICTIM: draw_client(70, seed=9), **rest}


def larger_sites(*, inside=False):
    """Rows of the victim and of three others; their scores may keep off both ends."""
    rest = {f"site-{i}": draw_client(200 + i, seed=i) for i in range(3)}
    rows = {VICTIM: draw_client(300, seed=5), **rest}
    return {n: (y, 0.1 + 0.8 * s) for n, (y, s) in rows.items()} if inside else rows


def exact_policy(**options):
    """A site whose operator allows exact sums, and what else is asked for."""
    return Policy(**({"models": MODELS} | options))


def exact_plan(members, axis=None, *, bins=8, positive=None, **options):
    """An exact sum over all of so many sites, as coarse as sites allow."""
    return fg.EvaluationPlan.for_histogram(
        axis or fg.Axis.uniform(bins, outside="clip"),
        fg.Cohort(members, 1),
        task=BinaryTask(positive),
        **({"min_cell": 10} | options),
    )


def noisy_plan(members, epsilon=1.0, *, bins=8, positive=None, privacy=None, **options):
    """A sum under differential privacy over so many sites."""
    return fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(bins, outside="clip"),
        fg.Cohort(members, 1),
        task=BinaryTask(positive),
        privacy=privacy or fg.DistributedDP(epsilon),
        **options,
    )


def invite(plan, members, key, arrays=None):
    """A hostile server's invitation to score with a model."""
    content = RecordDict({} if arrays is None else {"arrays": arrays})
    return SummationServer.invite(plan, members, key, model=digest_records(content))


@dataclass(frozen=True)
class Answer:
    """What came of one evaluation: the opened numbers, the result, who refused what and when."""

    members: tuple[str, ...]
    total: np.ndarray | None = None
    result: fg.Evaluation | None = None
    refusals: dict[str, tuple[Stage, fg.FedgaugeError]] = field(default_factory=dict)

    @property
    def counts(self):
        """The sum by class and bin, as the coordinator has it; None where nothing was opened."""
        return None if self.total is None else self.total.reshape(2, -1)


class Attacker:
    """A coordinator that runs exchanges by files, goes on without who refuses, and keeps all."""

    def __init__(self, folder, clients, *, policy=None):
        self.folder, self.clients = folder, dict(clients)
        self.sites = Consortium.make(folder / "sites", list(clients), policy=policy)
        self.sessions = []

    def ask(self, plan, members=None, *, silent=None):
        """Evaluate over some members, some of whom are not asked from a stage on."""
        return self.ask_together([(plan, members)], silent=silent)[0]

    def ask_together(self, questions, *, silent=None):
        """Several evaluations at once: in all of them a round ends before the next begins."""
        begun = [self.begin(plan, members, silent=silent) for plan, members in questions]
        for stage in Stage:
            for session in begun:
                session.play(stage)
        return [session.answer for session in begun]

    def begin(self, plan, members=None, *, silent=None):
        members = tuple(members or self.clients)
        run = self.folder / f"run-{len(self.sessions)}"
        self.sites.start(run, plan, invited=list(members))
        self.sessions.append(Session(self, run, members, silent or {}))
        return self.sessions[-1]

    @property
    def answers(self):
        return [session.answer for session in self.sessions]

    def rename(self, name, dataset):
        path = self.sites.site_file(name)
        path.write_text(re.sub(r'dataset = "[^"]*"', f'dataset = "{dataset}"', path.read_text()))

    def second_coordinator(self):
        """From now on ask in the name of another coordinator that all sites approve."""
        other = self.folder / "other"
        made = create_site(other / COORDINATOR, name=COORDINATOR, dataset="none")
        for name in self.clients:
            add_trust(
                self.sites.site_file(name), "coordinator", "other", key_to_text(made.key.public)
            )
            add_trust(made.path, "peer", name, key_to_text(self.sites.keys[name]))
        shutil.rmtree(self.sites.folder / COORDINATOR)
        shutil.copytree(other / COORDINATOR, self.sites.folder / COORDINATOR)

    def shown(self, name=VICTIM):
        """Counts of one site from all sums that were opened; None where they do not show it."""
        return solved([a for a in self.answers if a.total is not None], self.clients, name)

    def truth(self, plan, name=VICTIM):
        return own_counts(plan, self.clients[name])

    def entries(self, name=VICTIM):
        return self.sites.entries(name)


class Session:
    """One evaluation by files, round by round."""

    def __init__(self, attacker, run, members, silent):
        self._sites, self._clients = attacker.sites, attacker.clients
        self._run, self._silent = run, silent
        self._stopped = False
        self.answer = Answer(members)

    def play(self, *stages):
        """Ask all members in some rounds, all rounds by default, and go on without the missing."""
        for stage in stages or Stage:
            for name in self.answer.members:
                self._ask(name, stage)
            if not self._stopped:
                self._advance(stage)
        return self.answer

    def _ask(self, name, stage):
        refused = name in self.answer.refusals or stage >= self._silent.get(name, len(Stage) + 1)
        if self._stopped or refused:
            return
        try:
            self._sites.answer(self._run, name, stage, self._clients[name])
        except fg.FedgaugeError as error:
            self.answer.refusals[name] = (stage, error)

    def _advance(self, stage):
        try:
            total = self._opened() if stage == Stage.OPEN else None
            outcome = self._sites.advance(self._run, without_missing=True)
        except fg.FedgaugeError:
            self._stopped = True
            return
        if stage == Stage.OPEN:
            self.answer = replace(self.answer, total=total, result=outcome)

    def _opened(self):
        """The sum as the coordinator has it, before anything is done to what others read."""
        exchange, site = self._sites.exchange(self._run), self._sites.site(COORDINATOR)
        session = exchange.invitation().session.hex()[:32]
        state = (site.folder / "sessions" / f"{session}.server").read_bytes()
        server = SummationServer.from_bytes(state, site.key)
        replies, _ = exchange.replies(server.invitation, server.stage, server.check)
        outcome = server.step(replies)
        assert isinstance(outcome, Sum)
        return outcome.total


def solved(answers, names, name):
    """The combination of sums that leaves one site: linear algebra, nothing else."""
    if not answers:
        return None
    names = list(names)
    inside = np.array([[float(site in a.members) for site in names] for a in answers])
    wanted = np.array([float(site == name) for site in names])
    weights, *_ = np.linalg.lstsq(inside.T, wanted, rcond=None)
    if not np.allclose(weights @ inside, wanted):
        return None
    found = sum(w * a.counts for w, a in zip(weights, answers, strict=True))
    return np.rint(found).astype(np.int64)


def own_counts(plan, data):
    """The counts of one site's rows, by NumPy alone."""
    labels, scores = (np.asarray(column) for column in data)
    edges = plan.axis.edges
    positive = 1 if plan.task.positive is None else plan.task.positive
    clipped = np.clip(scores, edges[0], edges[-1])
    return np.array([np.histogram(clipped[(labels == positive) == c], edges)[0] for c in (0, 1)])
