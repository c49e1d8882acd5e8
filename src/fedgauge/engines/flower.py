"""Pooled evaluation inside a Flower app: a few lines on the client, a few on the server.

On each node `attach` answers the server's requests; on the server `evaluate` drives the five rounds
of fedgauge's own secure summation over Flower messages: once, or where bins are to be found first,
twice. Only keys, sealed shares and masked integers leave a node. Flower's SecAgg+ is not used.
"""

import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from fedgauge.data.examples import Data
from fedgauge.engines.findings import require_fit
from fedgauge.engines.network import drive
from fedgauge.engines.participant import (
    NOT_JOINED,
    Delivery,
    Participant,
    SimulatedParticipant,
    require_scores,
)
from fedgauge.errors import (
    CohortTooSmall,
    ExchangeError,
    FedgaugeError,
    PlanRefused,
    ProtocolError,
    SiteError,
)
from fedgauge.escaping import escape_record
from fedgauge.estimation.distribution import Aligned, Estimator
from fedgauge.keys import SigningKey
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.two_rounds import require_whole
from fedgauge.protocol import Envelope
from fedgauge.results.evaluation import Evaluation
from fedgauge.secagg import Invitation, Replies, Stage, SummationServer
from fedgauge.site import Site
from fedgauge.site.rows import NamedRows, read_note
from fedgauge.storage import write_whole

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, Metadata, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid
except ImportError:  # pragma: no cover
    raise ImportError(
        "fedgauge.flower needs Flower. Install it: pip install 'fedgauge[flower]'."
    ) from None

ACTION: Final = "fedgauge"
SITE_OPTION: Final = "fedgauge-site"
SITE_VARIABLE: Final = "FEDGAUGE_SITE"
SIMULATION_VARIABLE: Final = "FEDGAUGE_SIMULATION"
NO_ANCHOR: Final = (
    f"Nodes that have one want a coordinator: pass site=, or set {SITE_VARIABLE}. Nodes of a "
    f"simulation answer where {SIMULATION_VARIABLE}=1 is set."
)
_ARRAYS: Final = "arrays"
_MESSAGE_TYPE: Final = f"evaluate.{ACTION}"
_POLL_SECONDS: Final = 1.0
_SET_ASIDE: Final = "Set aside the reply of node %d: %s"

Score = Callable[[Message, Context], Data]
# Below Flower's name: its processes show what is logged there, and nothing of other libraries.
logger = logging.getLogger("flwr.fedgauge")
logger.addFilter(escape_record)


def attach(app: ClientApp, score: Score | None = None) -> None:
    """Let a ClientApp answer requests for a pooled evaluation.

    Parameters
    ----------
    app
        The app, made without ``client_fn``.
    score
        ``score(message, context)`` returns ``(y_true, y_score)`` of this node's examples for the
        model in ``message.content["arrays"]``: one score, one for each class in the plan's order,
        or a mapping from names of models. Where plans have groups, or protect subjects, it returns
        ``fedgauge.Examples.leniently(y_true, y_score, group=..., subject=...)``, which no odd row
        makes fail. It is called once in an evaluation, or in each of its two rounds, after the
        node's site file allowed the plan and the budget was spent. It treats rows one by one: where
        it fails, the node adds noise and no counts, and says so in its log. Message and context
        hold what all nodes agreed on and the node's own config: records and settings in the order
        of their names, no ids or times, and an empty ``context.state``. Without it a node has its
        scores already, in the rows that its site file declares (``[data]``): no model may be sent.

    Notes
    -----
    A node names its site file in its node config: ``--node-config
    'fedgauge-site="/etc/fedgauge/site.toml"'``. Without one it answers only where its operator set
    ``FEDGAUGE_SIMULATION=1``, as for Flower's simulation; the result says ``claim: "simulated"``.
    """

    @app.evaluate(ACTION)
    def answer(message: Message, context: Context) -> Message:
        return answered(message, lambda: _participant(message, context, score).answer)


def answered(message: Message, find: Callable[[], Callable[[bytes], bytes]]) -> Message:
    """What a node replies; `find` finds who answers for it. Nothing where it refuses."""
    reply = ConfigRecord()
    try:
        request = said(message, "request")
        if request is None:
            raise ProtocolError("a message holds no request.")
        reply["reply"] = find()(request)
    except FedgaugeError as error:
        # For this node's operator alone: to the server a refusal looks like silence.
        logger.error("This node does not answer: %s", error)
    except Exception:
        logger.exception("This node does not answer: something failed that should not")
    return Message(RecordDict({ACTION: reply}), reply_to=message)


def evaluate(
    grid: Grid,
    plan: EvaluationPlan,
    *,
    arrays: ArrayRecord | None = None,
    timeout: float = 60.0,
    site: str | Path | Site | None = None,
    estimator: Estimator = Aligned(),
) -> Evaluation:
    """Evaluate a model on the data of all nodes as if it were pooled.

    Parameters
    ----------
    grid
        What the ServerApp's main function is given.
    plan
        What to measure. Its cohort says how many nodes must stay. Where its axis is a
        :class:`~fedgauge.TwoRound`, a first sum finds the bins, and a second over the same nodes
        counts in them.
    arrays
        The model, sent to the nodes whenever they score.
    timeout
        Seconds to wait for replies each time nodes are asked; who is late is a dropout.
    site
        The coordinator's site file: the key that nodes answer to, and whom to invite. By default
        the file that ``FEDGAUGE_SITE`` names. Without one only a simulation can be evaluated.
    estimator
        How curves are drawn between bin edges.

    Returns
    -------
    Evaluation
        It claims ``"enforced"`` and is signed with the site's key; in Flower's simulation it claims
        ``"simulated"`` and is not signed.
    """
    plan.check_promise()
    plan.check_time()
    require_whole(plan)
    anchor = anchor_of(site)
    wait_for_nodes(grid, plan.terms.sum_cohort.min_survivors, timeout)
    if anchor is None:
        return _evaluate_simulated(grid, plan, arrays, timeout, estimator)
    members = [key for key in anchor.peers if key != anchor.key.public]
    server = SummationServer.invite(
        plan, members, anchor.key, model=_model_of(arrays), names=anchor.peers
    )
    carrier = _GridCarrier(grid, arrays, timeout)
    hand_over = partial(report, folder=anchor.folder)
    return drive(server, carrier, key=anchor.key, estimator=estimator, hand_over=hand_over)


def anchor_of(site: str | Path | Site | None) -> Site | None:
    """The coordinator's site, named here or in the environment; None in a simulation."""
    named = site if site is not None else os.environ.get(SITE_VARIABLE)
    return named if named is None or isinstance(named, Site) else Site.from_toml(named)


def _evaluate_simulated(
    grid: Grid,
    plan: EvaluationPlan,
    arrays: ArrayRecord | None,
    timeout: float,
    estimator: Estimator,
) -> Evaluation:
    """An evaluation of nodes that have no site file: they first say which key they made up."""
    asked = [message_to(node, b"") for node in grid.get_node_ids()]
    keys = {key for _, key in replies_to(grid, asked, timeout)}
    needed = plan.terms.sum_cohort.min_survivors
    if len(keys) < needed:
        raise CohortTooSmall(
            f"{len(keys)} nodes without a site file answered and {needed} are needed. {NO_ANCHOR}"
        )
    server = SummationServer.invite(plan, keys, SigningKey.generate(), model=_model_of(arrays))
    carrier = _GridCarrier(grid, arrays, timeout)
    return drive(server, carrier, key=None, estimator=estimator)


def report(server: SummationServer, *, folder: Path) -> None:
    """Tell who broke the rules, and keep what shows it beside the site file."""
    for member, reason in server.refused.items():
        logger.warning("Set aside the reply of %s: %s", server.name(member), reason)
    for told in server.blame:
        logger.warning("%s", told)
    if server.blame:
        path = folder / f"evidence-{server.invitation.session.hex()[:8]}.fgx"
        write_whole(path, server.evidence.to_bytes())
        logger.warning("What shows it is in %s; others check it: fedgauge exchange evidence", path)


class _GridCarrier:
    """Requests and replies as Flower messages; a member's signed reply shows its node."""

    def __init__(self, grid: Grid, arrays: ArrayRecord | None, timeout: float) -> None:
        self._grid = grid
        self._arrays = arrays
        self._timeout = timeout
        self._nodes: dict[int, int] = {}

    def carry(self, server: SummationServer, requests: Mapping[int, bytes]) -> Replies:
        """Replies by the member that each names as its sender; the server checks who signed."""
        if server.stage == Stage.ADVERTISE:
            return self._invite(server, requests)
        arrays = self._arrays if server.stage == Stage.MASK else None
        asked = [
            message_to(self._nodes[member], request, arrays=arrays)
            for member, request in requests.items()
        ]
        return [(member, reply) for member, _, reply in sent_by(self._grid, asked, self._timeout)]

    def _invite(self, server: SummationServer, requests: Mapping[int, bytes]) -> Replies:
        invitation = requests[0]  # the same for all
        asked = [message_to(node, invitation) for node in self._grid.get_node_ids()]
        replies: dict[int, bytes] = {}
        self._nodes.clear()  # of an earlier sum: who joins now may do so at another node
        for member, node, reply in sent_by(self._grid, asked, self._timeout):
            if member in replies:
                continue
            try:
                server.check(member, reply)
            except ProtocolError as error:
                logger.warning(_SET_ASIDE, node, error)
                continue
            replies[member], self._nodes[member] = reply, node
        return replies


def _participant(
    message: Message, context: Context, score: Score | None
) -> "Participant | SimulatedParticipant | _DeclaredParticipant":
    # The score function sees what the digests are of, and nothing that differs between nodes.
    records = sorted(message.content.items())
    brought = RecordDict({name: record for name, record in records if name != ACTION})
    told = context_of(context)
    delivery = Delivery(digest_records(brought), setting_of(told))

    def data(score: Score) -> Data:
        return score(_message_of(brought, told), told)

    site = site_of(context)
    if site is None and score is not None:
        return SimulatedParticipant(memory_of(context), lambda: data(score))
    if site is None:
        raise SiteError(
            "a node without a site file has no rows of its own. Pass a score function to attach()."
        )
    if score is None:
        return _DeclaredParticipant(site, delivery)
    site.refuse_by_hand("the rows of a score function")
    return Participant(site, lambda: data(score), delivery=delivery, tell=logger.warning)


class _DeclaredParticipant:
    """A node that counts the rows which its site file declares, as it noted them when it joined."""

    def __init__(self, site: Site, delivery: Delivery) -> None:
        self._site = site
        self._delivery = delivery

    def answer(self, request: bytes) -> bytes:
        """The reply to a request."""
        envelope = Envelope.from_bytes(request)
        if envelope.stage == Stage.ADVERTISE:
            return self._join(Invitation(request))
        participant = self._participant()
        if envelope.stage == Stage.MASK:
            note = participant.recall(envelope.session)
            if note is None:
                raise ExchangeError(NOT_JOINED)
            rows, plan = read_note(note), participant.session(envelope.session).invitation.plan
            rows.check(plan, self._site)  # once more: a file may have been moved away
            participant = self._participant(lambda: rows.data(plan, self._site))
        return participant.answer(request)

    def _join(self, invitation: Invitation) -> bytes:
        if invitation.model != _NO_MODEL:
            raise PlanRefused(
                "the server sends a model, and this node has scores already. Pass a score function "
                "to attach(), or send no arrays."
            )
        chosen: list[NamedRows] = []

        def choose(plan: EvaluationPlan) -> None:
            require_scores(plan)
            if invitation.follows is None:  # a second round counts the rows of the first
                rows = self._site.declared_rows(plan)
                rows.check(plan, self._site)
                require_fit(self._site, plan, rows, by_hand=False, tell=logger.warning)
                chosen.append(rows)

        participant = self._participant(check=choose)
        reply = participant.answer(invitation.data)
        for rows in chosen:
            participant.remember(invitation.session, msgspec.json.encode(rows))
        return reply

    def _participant(
        self,
        data: Callable[[], Data] | None = None,
        check: Callable[[EvaluationPlan], None] = require_scores,
    ) -> Participant:
        return Participant(
            self._site, data, check=check, delivery=self._delivery, tell=logger.warning
        )


def site_of(context: Context) -> Site | None:
    """The node's site; None in a simulation, and refused where it is neither."""
    path = context.node_config.get(SITE_OPTION)
    if path is not None:
        return Site.from_toml(str(path))
    # No server can set an environment variable, as it can a run's config. Flower's simulation hands
    # it on to its workers.
    if os.environ.get(SIMULATION_VARIABLE) != "1":
        raise SiteError(
            "this node has no site file, so nothing says whom it trusts. Make one with `fedgauge "
            f"site init` and name it in the node config: {SITE_OPTION}. In a simulation, where no "
            f"data need protection, set {SIMULATION_VARIABLE}=1 where it is started."
        )
    return None


def memory_of(context: Context) -> MutableMapping[str, Any]:
    """Where a simulated node keeps what it remembers."""
    if ACTION not in context.state:
        context.state[ACTION] = ConfigRecord()
    return context.state[ACTION]


def context_of(context: Context) -> Context:
    """A context for the app's functions, without what a server could mark a node with.

    What is left is in the setting that nodes sign, or the node's own. The state is empty: earlier
    messages of the run can have left something else in it at each node.
    """
    return Context(
        run_id=context.run_id,
        node_id=0,
        node_config=dict(context.node_config),
        state=RecordDict(),
        run_config=dict(sorted(context.run_config.items())),
    )


def _message_of(content: RecordDict, context: Context) -> Message:
    """A message for the score function, with metadata of its own: no server can mark it."""
    plain = Metadata(
        run_id=context.run_id,
        message_id="",
        src_node_id=0,
        dst_node_id=0,
        reply_to_message_id="",
        group_id="",
        created_at=0.0,
        ttl=0.0,
        message_type=_MESSAGE_TYPE,
    )
    make: Any = Message  # whose declared forms leave this one out
    made: Message = make(content, metadata=plain)
    return made


def _model_of(arrays: ArrayRecord | None) -> bytes:
    return digest_records(RecordDict({} if arrays is None else {_ARRAYS: arrays}))


def digest_records(content: RecordDict) -> bytes:
    """SHA-256 of records in the order of their names: of all keys, types, shapes and bytes.

    Records hold their keys in an order, and that is part of it.

    >>> one, other = (RecordDict({"arrays": ArrayRecord([np.full(2, x)])}) for x in (0.0, -0.0))
    >>> digest_records(one) == digest_records(other)
    False
    """
    plain = [
        (name, type(record).__name__, [(key, _plain(record[key])) for key in record])
        for name, record in sorted(content.items())
    ]
    return hashlib.sha256(b"fedgauge records\0" + msgspec.msgpack.encode(plain)).digest()


def _plain(value: Any) -> Any:
    if isinstance(value, Array):
        data = hashlib.sha256(value.data).digest()  # arrays can be long
        return (value.dtype, list(value.shape), value.stype, data)
    return value


_NO_MODEL: Final = digest_records(RecordDict())


def setting_of(context: Context) -> bytes:
    """What all nodes of a run have in common besides what they are sent."""
    plain = (context.run_id, sorted(context.run_config.items()))
    return hashlib.sha256(b"fedgauge run\0" + msgspec.msgpack.encode(plain)).digest()


def message_to(
    node: int, request: bytes, *, arrays: ArrayRecord | None = None, bins: bytes | None = None
) -> Message:
    """A request, with what a node counts by: a model that scores, or the bins of its examples."""
    record = ConfigRecord({"request": request})
    if bins is not None:
        record["bins"] = bins
    content = RecordDict({ACTION: record})
    if arrays is not None:
        content[_ARRAYS] = arrays
    return Message(content, dst_node_id=node, message_type=_MESSAGE_TYPE)


def replies_to(grid: Grid, asked: list[Message], timeout: float) -> list[tuple[int, bytes]]:
    """What nodes answered in time; a node that failed or refused did not."""
    replies = []
    for message in grid.send_and_receive(asked, timeout=timeout):
        reply = None if message.has_error() else said(message, "reply")
        if reply is not None:
            replies.append((message.metadata.src_node_id, reply))
    return replies


def sent_by(grid: Grid, asked: list[Message], timeout: float) -> Iterator[tuple[int, int, bytes]]:
    """Replies with the member that each names as its sender, and the node, which is no identity."""
    for node, reply in replies_to(grid, asked, timeout):
        try:
            yield Envelope.from_bytes(reply).sender, node, reply
        except ProtocolError as error:
            logger.warning(_SET_ASIDE, node, error)


def said(message: Message, what: str) -> bytes | None:
    """What fedgauge's record in a message says."""
    record = message.content.get(ACTION)
    said = record.get(what) if isinstance(record, ConfigRecord) else None
    return said if isinstance(said, bytes) else None


def wait_for_nodes(
    grid: Grid, count: int, timeout: float, remedy: str = "or lower min_survivors."
) -> None:
    """Wait until so many nodes are connected."""
    deadline = time.monotonic() + timeout
    while len(list(grid.get_node_ids())) < count:
        if time.monotonic() > deadline:
            raise CohortTooSmall(
                f"{len(list(grid.get_node_ids()))} nodes are connected and the plan needs {count}. "
                f"Start more SuperNodes, {remedy}"
            )
        time.sleep(_POLL_SECONDS)
