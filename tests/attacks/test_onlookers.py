"""Whoever sees the messages: members, those who carry them, those who share the folder. The
attacker holds no key. It reads all files of an exchange, or all messages of a Flower run, and does
with them what the coordinator does."""

import numpy as np
import pytest
from hostile import Attacker, exact_plan, exact_policy, noisy_plan, small_sites

import fedgauge as fg
from fedgauge.keys import SigningKey
from fedgauge.protocol import Envelope
from fedgauge.secagg import Invitation, Stage, Sum, SummationServer


def opened_by_onlooker(run):
    """The sum, from the files alone; None where they do not give it."""
    invitation = Invitation((run / "invitation.fgx").read_bytes())
    server = SummationServer(invitation, SigningKey.generate())
    outcome = None
    for stage in Stage:
        replies = [path.read_bytes() for path in run.glob(f"{stage:d}-*.reply.fgx")]
        try:
            outcome = server.step({Envelope.from_bytes(data).sender: data for data in replies})
        except fg.FedgaugeError:
            return None
    return outcome.total if isinstance(outcome, Sum) else None


@pytest.mark.parametrize("plan", [exact_plan(4), noisy_plan(4)], ids=["exact", "noisy"])
def test_the_sum_is_for_the_coordinator_alone(folder, plan):
    """The network attacker is said to see who takes part, sizes and times. The masked inputs and
    the shares that take the masks off are signed but not sealed, so the sum is everybody's: also
    one that the coordinator would not publish, or only with small cells merged."""
    attack = Attacker(folder, small_sites(), policy=exact_policy())
    answer = attack.ask(plan)
    assert answer.total is not None
    (folder / "run-0" / "result.json").unlink()
    assert not np.array_equal(opened_by_onlooker(folder / "run-0"), answer.total)
