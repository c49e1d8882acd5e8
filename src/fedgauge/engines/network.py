"""A secure sum over any carrier of requests and replies: rounds, timeouts, dropouts."""

from collections.abc import Mapping
from typing import Protocol

from fedgauge.engines.contribution import release
from fedgauge.estimation.distribution import Estimator
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy import Claim
from fedgauge.results.evaluation import Evaluation
from fedgauge.secagg import Stage, Sum, SummationServer


class Carrier(Protocol):
    """Takes requests to members and brings back the replies that came in time."""

    def carry(self, stage: Stage, requests: Mapping[int, bytes]) -> Mapping[int, bytes]:
        """Replies by member; those who did not answer are missing."""


def drive(
    server: SummationServer, carrier: Carrier, *, claim: Claim, estimator: Estimator
) -> Evaluation:
    """All rounds of a summation; who falls silent is a dropout."""
    outcome = server.step(carrier.carry(server.stage, server.requests))
    while not isinstance(outcome, Sum):
        outcome = server.step(carrier.carry(server.stage, outcome))
    return conclude(server.invitation.plan, outcome, claim=claim, estimator=estimator)


def conclude(
    plan: EvaluationPlan, outcome: Sum, *, claim: Claim, estimator: Estimator
) -> Evaluation:
    """What an opened sum says."""
    released = release(plan, outcome.total, len(outcome.survivors))
    return Evaluation(plan, plan.statement(claim), released, estimator=estimator)
