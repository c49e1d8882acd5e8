"""A site that takes part in a real evaluation, whatever carries its messages.

It judges the plan before any data is read, keeps the privacy budget, counts its data once, and
remembers every session so that a crash loses nothing and repeats nothing.
"""

import os
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedgauge.data.examples import Data
from fedgauge.engines.contribution import contribution, count_rows
from fedgauge.errors import ExchangeError, PlanRefused, SiteError
from fedgauge.keys import SigningKey
from fedgauge.privacy.keystream import Keystream
from fedgauge.protocol import Envelope
from fedgauge.secagg import Invitation, Stage, SummationClient
from fedgauge.secagg.crypto import KEY_BYTES
from fedgauge.site import Site
from fedgauge.storage import durable

_KEY: Final = "key"


class Participant:
    """One site's side of any number of sessions.

    Parameters
    ----------
    site
        The site's trust anchor.
    data
        The site's data, or a function that finds it; asked for once per session, after the
        plan was judged.

    Notes
    -----
    What fails here is for the site's operator. To the server a site that refuses looks like
    one that fell silent: a refusal that depends on data would be a leak.
    """

    def __init__(self, site: Site, data: Callable[[], Data] | None = None) -> None:
        self._site = site
        self._data = data

    def answer(self, request: bytes) -> bytes:
        """The reply to a request, stored before it is given; the same one if asked again."""
        envelope = Envelope.from_bytes(request)
        if envelope.stage == Stage.ADVERTISE:
            return self._join(request)
        # Two processes that answer at once would both draw noise under the same masks.
        with self._alone():
            client = self.session(envelope.session)
            if client.stage < Stage.MASK:
                _require_reserved(self._site, envelope.session)
            reply = client.receive(request)
            # Stored first, spent next, sent last: a crash in between repeats no noise.
            self._store(client)
            if client.stage == Stage.MASK:
                self._site.ledger.commit(envelope.session)
            return reply

    def session(self, session: bytes) -> SummationClient:
        """The state of a session that this site joined."""
        try:
            state = self._path(session).read_bytes()
        except FileNotFoundError:
            raise ExchangeError(
                "this site did not join that evaluation, or has ended it. Join it first."
            ) from None
        except OSError as error:
            raise SiteError(f"cannot read the state of a session: {error.strerror}.") from None
        duties = _Duties(self._site, session, self._data)
        client = SummationClient.from_bytes(state, self._site.key, duties)
        duties.invitation = client.invitation
        return client

    def abandon(self, session: bytes) -> None:
        """Stop a session and delete its keys; the budget comes back if nothing left."""
        with self._alone():
            if self._site.ledger.status(session) == "reserved":
                self._site.ledger.release(session)
            self.forget(session)

    def forget(self, session: bytes) -> None:
        """Delete what is remembered of a session."""
        path = self._path(session)
        durable.remove_leftovers(path)
        with suppress(FileNotFoundError):
            path.unlink()
            durable.sync_folder(path.parent)

    def _join(self, request: bytes) -> bytes:
        invitation = Invitation(request)
        if self._path(invitation.session).exists():
            return self.session(invitation.session).receive(request)
        if invitation.coordinator not in self._site.coordinators:
            # Before the plan is read: strangers may not make this site work.
            raise PlanRefused(
                "the coordinator is not approved here. If it should be, add its key with "
                "`fedgauge site trust --coordinator`."
            )
        self._site.judge(
            invitation.plan, members=invitation.members, coordinator=invitation.coordinator
        )
        with self._alone():
            if self._path(invitation.session).exists():
                return self.session(invitation.session).receive(request)
            self._site.reserve(invitation.session, invitation.plan)
            duties = _Duties(self._site, invitation.session, self._data)
            client = SummationClient.join(invitation, self._site.key, duties)
            self._store(client)
            return client.receive(request)

    def _store(self, client: SummationClient) -> None:
        path = self._path(client.invitation.session)
        try:
            durable.replace(path, client.to_bytes())
            durable.remove_leftovers(path)  # of a process that was killed; they hold keys
        except OSError as error:
            raise SiteError(f"cannot store the state of a session: {error.strerror}.") from None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes of this site from answering meanwhile."""
        sessions = self._site.folder / "sessions"
        with ExitStack() as stack:
            try:
                sessions.mkdir(mode=0o700, exist_ok=True)
                stack.enter_context(durable.locked(sessions / "lock"))
            except OSError as error:
                raise SiteError(f"cannot use {sessions}: {error.strerror}.") from None
            yield  # outside: what fails meanwhile, such as reading data, is not the folder's fault

    def _path(self, session: bytes) -> Path:
        return self._site.folder / "sessions" / f"{session.hex()[:32]}.client"


def _require_reserved(site: Site, session: bytes) -> None:
    """Refuse to go on from an old copy of a session: it would add new noise under old masks."""
    if site.ledger.status(session) != "reserved":
        raise ExchangeError(
            "this site's numbers already left in that evaluation, or its budget was given "
            "back. A new attempt needs a new invitation."
        )


class _Duties:
    """What the protocol asks of a site: its numbers once, and its word on the survivors."""

    def __init__(self, site: Site, session: bytes, data: Callable[[], Data] | None) -> None:
        self._site = site
        self._session = session
        self._data = data
        self.invitation: Invitation | None = None

    def contribution(self) -> NDArray[np.int64]:
        """Counts and fresh noise, unless some already left in this session."""
        assert self.invitation is not None  # noqa: S101  (set when the session is read)
        _require_reserved(self._site, self._session)
        if self._data is None:
            raise ExchangeError("it is time to submit, and no data was named.")
        plan = self.invitation.plan
        return contribution(plan, count_rows(plan, self._data()), Keystream())

    def agree(self, survivors: Sequence[bytes]) -> None:
        """The differencing guard: two honest sites, at least, in whatever exact sums show."""
        assert self.invitation is not None  # noqa: S101  (set when the session is read)
        cohort = self.invitation.plan.sum_cohort
        self._site.ledger.record_survivors(
            self._session,
            survivors,
            min_cohort=max(self._site.policy.min_cohort, cohort.max_colluding + 2),
            certain=self.invitation.graph.is_complete,
        )


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

    def contribution(self) -> NDArray[np.int64]:
        """Counts and fresh noise."""
        assert self.invitation is not None  # noqa: S101  (set before anything is received)
        plan = self.invitation.plan
        return contribution(plan, count_rows(plan, self._data()), Keystream())

    def agree(self, survivors: Sequence[bytes]) -> None:
        """There is nobody to refuse anything."""
