"""A node of a simulation: it makes up a key, trusts everybody and keeps no ledger."""

import os
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedgauge.data.examples import Data
from fedgauge.engines.contribution import contribution, count_rows
from fedgauge.engines.participant import NOT_JOINED, require_scores
from fedgauge.errors import ExchangeError, PlanRefused
from fedgauge.keys import SigningKey
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy.keystream import Keystream
from fedgauge.protocol import Envelope
from fedgauge.secagg import Invitation, Stage, SummationClient
from fedgauge.secagg.crypto import KEY_BYTES

_KEY: Final = "key"


class SimulatedParticipant:
    """A node of a simulation: it makes up a key, trusts everybody and keeps no ledger.

    Parameters
    ----------
    memory
        Where keys and states stay between messages.
    data
        A function that finds the node's data; not needed before they are counted.
    check
        Asked before joining: refuses plans that are not for such data.
    """

    def __init__(
        self,
        memory: MutableMapping[str, Any],
        data: Callable[[], Data] | None = None,
        *,
        check: Callable[[EvaluationPlan], None] = require_scores,
    ) -> None:
        self._memory = memory
        self._data = data
        self._check = check
        if _KEY not in memory:
            memory[_KEY] = os.urandom(KEY_BYTES)
        self.key = SigningKey.from_bytes(memory[_KEY])

    def answer(self, request: bytes) -> bytes:
        """The reply to a request; to an empty one, the key that the node made up."""
        if not request:
            return self.key.public
        session = Envelope.from_bytes(request).session
        known = session.hex() in self._memory
        client = self.session(session) if known else self._joined(request)
        reply = client.receive(request)
        self._memory[session.hex()] = client.to_bytes()
        return reply

    def session(self, session: bytes) -> SummationClient:
        """The state of a session that this node joined."""
        if session.hex() not in self._memory:
            raise ExchangeError(NOT_JOINED)
        duties = _SimulatedDuties(self._data)
        client = SummationClient.from_bytes(self._memory[session.hex()], self.key, duties)
        duties.invitation = client.invitation
        return client

    def _joined(self, request: bytes) -> SummationClient:
        invitation = Invitation(request)
        self._check(invitation.plan)
        if invitation.follows is not None:
            self._require_first(invitation, invitation.follows)
        return SummationClient.join(invitation, self.key, _SimulatedDuties(self._data))

    def _require_first(self, invitation: Invitation, first: bytes) -> None:
        """Stay out where a site would: it did not join the first, or was not in that exact sum."""
        joined = self.session(first)
        if not invitation.plan.is_noisy and joined.stage < Stage.AGREE:
            raise PlanRefused(
                "this node did not see the first of two exact sums to its end, and the difference "
                "of the two would show its counts."
            )


class _SimulatedDuties:
    """Counts and noise of a simulated node."""

    def __init__(self, data: Callable[[], Data] | None) -> None:
        self._data = data
        self.invitation: Invitation | None = None

    def contribution(self, sharers: Sequence[bytes]) -> NDArray[np.int64]:
        """Counts and fresh noise."""
        del sharers
        # Set when the session is read; who is asked to count has named data.
        assert self.invitation is not None and self._data is not None  # noqa: S101, PT018
        plan = self.invitation.plan
        return contribution(plan, count_rows(plan, self._data()), Keystream())

    def agree(self, survivors: Sequence[bytes]) -> None:
        """There is nobody to refuse anything."""
