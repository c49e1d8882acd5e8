"""Sites in an evaluation of two rounds, and whoever coordinates it, honest or not."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from consortium import COORDINATOR, Consortium
from rows import draw_client
from sites import open_policy

import fedgauge as fg
from fedgauge.engines.network import follow
from fedgauge.engines.participant import Participant
from fedgauge.plan.plan import encode_axis
from fedgauge.secagg import Invitation, Stage, Sum, SummationServer

A, B, C, D = NAMES = [f"site-{letter}" for letter in "abcd"]
CLIENTS = {name: draw_client(60 + 10 * i, seed=i) for i, name in enumerate(NAMES)}
TWO = fg.TwoRound(6, share=0.4, coarse=fg.Axis.uniform(16, outside="clip"), narrowest=1 / 128)


def plan_of(privacy=None, two=TWO, cohort=fg.Cohort(3, 1), **options):  # noqa: B008
    return fg.EvaluationPlan.for_histogram(two, cohort, privacy=privacy, **options)


EXACT = plan_of(cohort=fg.Cohort(4, 1))
NOISY = plan_of(fg.DistributedDP(1.0))


@dataclass
class Evaluation:
    """An evaluation whose messages are carried here; sites are read from their files."""

    sites: Consortium
    refusals: dict[str, fg.FedgaugeError] = field(default_factory=dict)
    clients: dict = field(default_factory=lambda: dict(CLIENTS))

    @classmethod
    def make(cls, folder, **limits):
        policy = open_policy(exact_dropouts=False, **limits)
        return cls(Consortium.make(folder, NAMES, policy=policy))

    def copied(self, folder):
        return Evaluation(Consortium(shutil.copytree(self.sites.folder, folder), NAMES))

    @property
    def key(self):
        return self.sites.site(COORDINATOR).key

    def begin(self, plan, names=NAMES, **options):
        members = [self.sites.keys[name] for name in names]
        return SummationServer.invite(plan, members, self.key, **options)

    def participant(self, name):
        return Participant(self.sites.site(name), lambda: self.clients[name])

    def answer(self, name, request):
        """What a site replies; None where it refuses, and why is kept."""
        try:
            return self.participant(name).answer(request)
        except fg.FedgaugeError as error:
            self.refusals[name] = error
            return None

    def refusal(self, server, name=A):
        """Why a site does not join, having written nothing."""
        before = self.sites.site(name).ledger.entries()
        assert self.answer(name, server.invitation.data) is None
        assert self.sites.site(name).ledger.entries() == before
        return str(self.refusals.pop(name))

    def sum(self, server, *, silent=None, until=Stage.OPEN):
        """The sum over whoever answers; sites named in `silent` do not from a stage on."""
        names = {key: name for name, key in self.sites.keys.items()}
        members = [names[key] for key in server.invitation.members]
        outcome = server.requests
        while not isinstance(outcome, Sum) and server.stage <= until:
            stage, replies = server.stage, {}
            for member, request in outcome.items():
                name = members[member]
                if stage < (silent or {}).get(name, len(Stage) + 1):
                    reply = self.answer(name, request)
                    if reply is not None:
                        replies[member] = reply
            if stage == until < Stage.OPEN:
                return None
            outcome = server.step(replies)
        return outcome

    def first(self, plan, **options):
        """The first round to its end; the server of the second."""
        server = self.begin(plan)
        return follow(server, self.sum(server, **options))

    def balance(self, name=A):
        """Epsilon spent and reserved on the dataset."""
        site = self.sites.site(name)
        total = site.ledger.total(site.dataset, default_limit=site.policy.default_limit)
        return total.spent.epsilon, total.reserved.epsilon


class Edited:
    """A plan as bytes that somebody changed by hand: only what builds it refuses it."""

    def __init__(self, plan, **changes):
        plain = msgspec.json.decode(plan.to_bytes()) | msgspec.to_builtins(
            changes, enc_hook=encode_axis
        )
        self._data = msgspec.json.encode(plain)
        self.terms = plan.terms

    def to_bytes(self):
        return self._data


def invitation_to(plan, like, key):
    """An invitation to another plan, whatever it is, of the same members."""
    before = like.invitation
    made = Invitation.made(plan, before.members, key, before.run, before.graph)
    return SummationServer(made, key)


def sessions(site):
    """What a site keeps of sessions, by the names of files."""
    return sorted(path.name for path in Path(site.folder, "sessions").glob("*.*"))
