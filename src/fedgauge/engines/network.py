"""A secure sum over any carrier of requests and replies: rounds, timeouts, dropouts."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from fedgauge.engines.contribution import find_bins, release
from fedgauge.estimation.counts import Released
from fedgauge.estimation.distribution import Estimator
from fedgauge.keys import SigningKey
from fedgauge.results.evaluation import Evaluation
from fedgauge.secagg import Replies, Sum, SummationServer


class KnownTotals(Protocol):
    """How many examples each member has in each bin: known where it sends its positives alone."""

    @property
    def parties(self) -> tuple[bytes, ...]:
        """Public keys of the members that were given bins."""

    @property
    def hints(self) -> tuple[str, ...]:
        """What was publicly known and used."""

    def complete(self, released: Released, survivors: Iterable[bytes]) -> Released:
        """What is known once the positives of these members are."""


class Carrier(Protocol):
    """Takes requests to members and brings back the replies that came in time."""

    def carry(self, server: SummationServer, requests: Mapping[int, bytes]) -> Replies:
        """Replies by member; those who did not answer are missing."""


def drive(
    server: SummationServer,
    carrier: Carrier,
    *,
    key: SigningKey | None,
    estimator: Estimator,
    hand_over: Callable[[SummationServer], None] = lambda _: None,
    totals: KnownTotals | None = None,
) -> Evaluation:
    """All rounds of a summation; who falls silent is a dropout.

    Where its plan searches, the sum finds bins, and a second one follows. `key` and `totals` as for
    :func:`conclude`. However a sum ends, its server is handed over first: it knows who broke the
    rules.
    """
    while True:
        try:
            outcome = server.step(carrier.carry(server, server.requests))
            while not isinstance(outcome, Sum):
                outcome = server.step(carrier.carry(server, outcome))
        finally:
            hand_over(server)
        if not server.invitation.plan.is_search:
            return conclude(server, outcome, key=key, estimator=estimator, totals=totals)
        server = follow(server, outcome)


def follow(server: SummationServer, outcome: Sum) -> SummationServer:
    """The second of two rounds, whose bins follow from the sum that the first opened."""
    invitation = server.invitation
    released = release(invitation.plan, outcome.total, len(outcome.survivors))
    return server.invite_again(find_bins(invitation.plan, released, invitation.session))


def conclude(
    server: SummationServer,
    outcome: Sum,
    *,
    key: SigningKey | None,
    estimator: Estimator,
    totals: KnownTotals | None = None,
) -> Evaluation:
    """What an opened sum says, signed with the coordinator's `key`.

    Without one the members were simulated: nothing is claimed, and nothing signed. `totals` are for
    labels apart from scores: how many examples the survivors have in each bin.
    """
    plan, members = server.invitation.plan, server.invitation.members
    hints = () if totals is None else totals.hints
    statement = plan.statement("simulated" if key is None else "enforced", hints)
    released = release(plan, outcome.total, len(outcome.survivors))
    if totals is not None:
        released = totals.complete(released, [members[each] for each in outcome.survivors])
    result = Evaluation(plan, statement, released, estimator=estimator)
    return result if key is None else result.signed(server.confirmed, key)
