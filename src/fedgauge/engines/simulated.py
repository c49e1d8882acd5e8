"""A node of a simulation: it makes up a key, trusts everybody and keeps no ledger."""

import os
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedgauge.data.examples import Data
from fedgauge.engines.contribution import contribution, count_rows
from fedgauge.keys import SigningKey
from fedgauge.privacy.keystream import Keystream
from fedgauge.protocol import Envelope
from fedgauge.secagg import Invitation, SummationClient
from fedgauge.secagg.crypto import KEY_BYTES

_KEY: Final = "key"


class SimulatedParticipant:
    """A node of a simulation: it makes up a key, trusts everybody and keeps no ledger.

    Parameters
    ----------
    memory
        Where keys and states stay between messages.
    data
        The node's data.
    """

    def __init__(self, memory: MutableMapping[str, Any], data: Callable[[], Data]) -> None:
        self._memory = memory
        self._data = data
        if _KEY not in memory:
            memory[_KEY] = os.urandom(KEY_BYTES)
        self._key = SigningKey.from_bytes(memory[_KEY])

    def answer(self, request: bytes) -> bytes:
        """The reply to a request; to an empty one, the key that the node made up."""
        if not request:
            return self._key.public
        duties = _SimulatedDuties(self._data)
        envelope = Envelope.from_bytes(request)
        name = envelope.session.hex()
        if name in self._memory:
            client = SummationClient.from_bytes(self._memory[name], self._key, duties)
        else:
            client = SummationClient.join(Invitation(request), self._key, duties)
        duties.invitation = client.invitation
        reply = client.receive(request)
        self._memory[name] = client.to_bytes()
        return reply


class _SimulatedDuties:
    """Counts and noise of a simulated node."""

    def __init__(self, data: Callable[[], Data]) -> None:
        self._data = data
        self.invitation: Invitation | None = None

    def contribution(self, sharers: Sequence[bytes]) -> NDArray[np.int64]:
        """Counts and fresh noise."""
        del sharers
        assert self.invitation is not None  # noqa: S101  (set before anything is received)
        plan = self.invitation.plan
        return contribution(plan, count_rows(plan, self._data()), Keystream())

    def agree(self, survivors: Sequence[bytes]) -> None:
        """There is nobody to refuse anything."""
