"""All rounds of a secure summation in one process, for studies, tests and benchmarks."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from fedgauge.errors import ProtocolError
from fedgauge.keys import SigningKey
from fedgauge.plan import EvaluationPlan
from fedgauge.secagg import Duties, Stage, Sum, SummationClient, SummationServer

_NOBODY: Final[Mapping[int, Stage]] = MappingProxyType({})


def run_rounds(
    plan: EvaluationPlan, duties: Sequence[Duties], *, silent: Mapping[int, Stage] = _NOBODY
) -> Sum:
    """The sum of what everybody adds, by the real protocol with keys made for it.

    Parameters
    ----------
    plan
        What is summed, and who must stay.
    duties
        What each client adds.
    silent
        Clients that fall silent, and the stage from which on. One that refuses to go on does
        too; what fails while its numbers are made is raised.

    Returns
    -------
    Sum
        Its `survivors` are positions in `duties`.
    """
    keys = [SigningKey.generate() for _ in duties]
    server = SummationServer.invite(plan, [key.public for key in keys], SigningKey.generate())
    invitation = server.invitation
    places = sorted(range(len(keys)), key=lambda place: keys[place].public)
    clients = [SummationClient.join(invitation, keys[place], duties[place]) for place in places]

    def reply(member: int, request: bytes) -> bytes | None:
        if server.stage >= silent.get(places[member], len(Stage) + 1):
            return None
        try:
            return clients[member].receive(request)
        except ProtocolError:
            return None

    requests = server.requests
    while True:
        replies = ((member, reply(member, request)) for member, request in requests.items())
        outcome = server.step((member, said) for member, said in replies if said is not None)
        if isinstance(outcome, Sum):
            survivors = sorted(places[member] for member in outcome.survivors)
            return Sum(outcome.total, tuple(survivors))
        requests = outcome
