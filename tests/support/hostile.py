"""What an approved but hostile coordinator has at hand, and sites that let it begin.

What a site must allow so that an attack can be tried at all stands here, in one place each.
"""

import shutil
from dataclasses import dataclass, field

import numpy as np
from consortium import COORDINATOR, Consortium

import fedgauge as fg
from fedgauge.keys import key_to_text
from fedgauge.plan.task import BinaryTask
from fedgauge.secagg import Stage, Sum, SummationServer
from fedgauge.site import Policy, add_trust, create_site

VICTIM = "victim"


def exact_policy(**options):
    """A site whose operator allows exact sums, and what else is asked for."""
    # Limits that sites do not know yet are left out: then nothing holds an attacker to them.
    known = {name: value for name, value in options.items() if name in Policy.__struct_fields__}
    return Policy(**known)


def exact_plan(members, axis=None, *, bins=8, positive=None, **options):
    """An exact sum over all of so many sites, as coarse as sites allow."""
    return fg.EvaluationPlan.for_histogram(
        axis or fg.Axis.uniform(bins, outside="clip"),
        fg.Cohort(members, 1),
        task=BinaryTask(positive),
        **options,
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
    del arrays  # the invitation says nothing of the model
    return SummationServer.invite(plan, members, key)


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
    """A coordinator that runs exchanges by files, goes on without whoever refuses, and keeps all.

    Parameters
    ----------
    folder
        Where sites and runs are.
    clients
        Rows of the sites by name.
    policy
        What the sites allow.
    """

    def __init__(self, folder, clients, *, policy=None):
        self.folder, self.clients = folder, dict(clients)
        self.sites = Consortium.make(folder / "sites", list(clients), policy=policy)
        self.answers = []

    def ask(self, plan, members=None, *, silent=None):
        """Evaluate over some members, some of whom are not asked from a stage on."""
        members = tuple(members or self.clients)
        run = self.folder / f"run-{len(self.answers)}"
        self.sites.start(run, plan, invited=list(members))
        answer = self._play(run, members, silent or {})
        self.answers.append(answer)
        return answer

    def _play(self, run, members, silent):
        refusals, total, outcome = {}, None, None
        for stage in Stage:
            for name in members:
                if name in refusals or stage >= silent.get(name, len(Stage) + 1):
                    continue
                try:
                    self.sites.answer(run, name, stage, self.clients[name])
                except fg.FedgaugeError as error:
                    refusals[name] = (stage, error)
            try:
                if stage == Stage.OPEN:
                    total = self._opened(run)
                outcome = self.sites.advance(run, without_missing=True)
            except fg.FedgaugeError:
                return Answer(members, total, None, refusals)
        return Answer(members, total, outcome, refusals)

    def _opened(self, run):
        """The sum as the coordinator has it, before anything is done to what others read."""
        exchange, site = self.sites.exchange(run), self.sites.site(COORDINATOR)
        session = exchange.invitation().session.hex()[:32]
        state = (site.folder / "sessions" / f"{session}.server").read_bytes()
        server = SummationServer.from_bytes(state, site.key)
        replies, _ = exchange.replies(server.stage, server.check)
        outcome = server.step(replies)
        assert isinstance(outcome, Sum)
        return outcome.total

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
        """The site's own counts."""
        return own_counts(plan, self.clients[name])

    def entries(self, name=VICTIM):
        """The kinds of entries in a site's ledger."""
        return self.sites.entries(name)


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
