"""Labels and scores apart inside a Flower app: nodes hold labels, the server scores.

The server asks the nodes for rosters, assigns bins, and drives the five rounds of a secure sum;
each node's own bins go with the request to count.
"""

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedgauge.arrays import Tree
from fedgauge.data.examples import Data, Label
from fedgauge.engines.flower import (
    ACTION,
    NO_ANCHOR,
    anchor_of,
    answered,
    context_of,
    logger,
    memory_of,
    message_to,
    replies_to,
    report,
    said,
    sent_by,
    setting_of,
    site_of,
    wait_for_nodes,
)
from fedgauge.engines.network import drive
from fedgauge.engines.participant import Delivery, Participant, SimulatedParticipant, require_labels
from fedgauge.errors import CohortTooSmall, ProtocolError
from fedgauge.estimation.distribution import Aligned, Estimator
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.privacy import AnyPrivacyModel, Cohort
from fedgauge.results.evaluation import Evaluation
from fedgauge.secagg import Replies, Stage, SummationServer
from fedgauge.site import Site
from fedgauge.site.policy import LEAST_COHORT
from fedgauge.vertical.bins import LABEL_DP
from fedgauge.vertical.files import Roster, RosterBins, Totals, assign_bins
from fedgauge.vertical.joining import read_side
from fedgauge.vertical.label_party import Answering, LabelParty, OwnLabels, RosterCall

# In place of a model: no records have this digest, so a request to score is never taken for one to
# count labels, nor the reverse. Bins differ from node to node; the plan's assignment binds them.
NO_MODEL: Final = hashlib.sha256(b"fedgauge labels\0").digest()
_ALONE: Final = (
    "or, where there are only one or two label parties, let each answer alone: `fedgauge vertical "
    "answer`."
)

Labels = Callable[[Context], Any]


def attach_labels(
    app: ClientApp, labels: Labels, *, scored: bool = False, few_values: bool = False
) -> None:
    """Let a ClientApp answer for labels of examples that the server scored.

    Parameters
    ----------
    app
        The app, made without ``client_fn``. It has this or :func:`attach`.
    labels
        ``labels(context)`` returns ids and labels of this node's examples: a pair of columns, or a
        mapping. It is called for the roster, of which labels are no part, and again to count, after
        the node's site file allowed the plan and the budget was spent. Which ids it returns, and
        whether it fails, must not depend on labels: a roster leaves before anything is spent. The
        context is that of :func:`attach`, with an empty ``context.state``.
    scored
        Whether nodes score their examples themselves: then ``labels(context)`` returns scores and
        labels, and the roster shows the scores to the server.
    few_values
        That these are scores, although they have at most two distinct values, or at most ten whole
        ones: such columns are refused, for they may be labels.

    Notes
    -----
    Site files as for :func:`attach`. Any roster that an approved coordinator asks for leaves, as
    often as it asks: ids are agreed beforehand, and not hidden.
    """

    @app.evaluate(ACTION)
    def answer(message: Message, context: Context) -> Message:
        own = OwnLabels(lambda: labels(context_of(context)), scored, few_values)
        bins = said(message, "bins")
        return answered(message, lambda: partial(_party(context, own).answer, bins=bins))


def _party(context: Context, own: OwnLabels) -> LabelParty:
    site = site_of(context)
    if site is None:
        memory = memory_of(context)

        def play(data: Callable[[], Data] | None) -> Answering:
            return SimulatedParticipant(memory, data, check=require_labels)

        return LabelParty(own, SimulatedParticipant(memory).key, play)
    site.refuse_by_hand("labels apart from scores")
    delivery = Delivery(NO_MODEL, setting_of(context))

    def take_part(data: Callable[[], Data] | None) -> Answering:
        return Participant(site, data, check=require_labels, delivery=delivery, tell=logger.warning)

    return LabelParty(own, site.key, take_part, site=site, tell=logger.info)


def evaluate_vertical(
    grid: Grid,
    scores: Any,
    *,
    privacy: AnyPrivacyModel = LABEL_DP,
    cohort: Cohort | None = None,
    tree: Tree = "auto",
    positive_rate: float | None = None,
    positive: Label | None = None,
    timeout: float = 60.0,
    site: str | Path | Site | None = None,
    estimator: Estimator = Aligned(),
) -> Evaluation:
    """Evaluate the server's scores against labels that nodes hold, with privacy for labels.

    Parameters
    ----------
    grid
        What the ServerApp's main function is given.
    scores
        From ids to scores, as for :func:`fedgauge.evaluate_vertical`. None where nodes score their
        examples themselves (``attach_labels(..., scored=True)``).
    privacy, tree, positive_rate, positive
        As for :func:`fedgauge.evaluate_vertical`.
    cohort
        How many of the nodes must stay; by default all that send a roster, of whom one may collude.
    timeout, site, estimator
        As for :func:`evaluate`.

    Returns
    -------
    Evaluation
        Of the examples of those nodes that stayed; claim and signature are as for :func:`evaluate`.
    """
    scored = None if scores is None else read_side("scores", scores, numbers=True)
    anchor = anchor_of(site)
    needed = max(LEAST_COHORT, 0 if cohort is None else cohort.min_survivors)
    wait_for_nodes(grid, needed, timeout, _remedy(needed))
    key = SigningKey.generate() if anchor is None else anchor.key
    rosters = _ask_for_rosters(grid, RosterCall(key, scored=scores is None), anchor, timeout)
    if len(rosters) < needed:
        why = NO_ANCHOR if anchor is None else "Logs of the others say why they do not answer."
        raise CohortTooSmall(
            f"{len(rosters)} nodes sent a roster and {needed} are needed. {why} Start more "
            f"SuperNodes, {_remedy(needed)}"
        )
    assigned = assign_bins(
        scored,
        {party: roster for party, (_, roster) in rosters.items()},
        privacy,
        cohort=cohort,
        tree=tree,
        positive_rate=positive_rate,
        positive=positive,
    )
    names = {} if anchor is None else anchor.peers
    _tell_of(assigned, names)
    server = SummationServer.invite(assigned.plan, rosters, key, model=NO_MODEL, names=names)
    nodes = {party: node for party, (node, _) in rosters.items()}
    return drive(
        server,
        _LabelCarrier(grid, server, nodes, assigned, timeout),
        key=None if anchor is None else key,
        estimator=estimator,
        hand_over=(lambda _: None) if anchor is None else partial(report, folder=anchor.folder),
        totals=assigned.totals,
    )


def _remedy(needed: int) -> str:
    return _ALONE if needed == LEAST_COHORT else "or lower min_survivors."


def _ask_for_rosters(
    grid: Grid, call: RosterCall, anchor: Site | None, timeout: float
) -> dict[bytes, tuple[int, Roster]]:
    """Nodes and their rosters, by public key; with a site, of the peers that it names."""
    asked = [message_to(node, call.request) for node in grid.get_node_ids()]
    rosters: dict[bytes, tuple[int, Roster]] = {}
    for node, reply in replies_to(grid, asked, timeout):
        try:
            roster = call.read(reply)
            party = roster.party
            if anchor and (party not in anchor.peers or party == anchor.key.public):
                raise ProtocolError(
                    f"site {key_to_text(party)} is none of the peers in {anchor.path.name}."
                )
            if party in rosters:
                raise ProtocolError("its party sent a roster already.")
        except ProtocolError as error:
            logger.warning("Set aside the roster of node %d: %s", node, error)
            continue
        rosters[party] = (node, roster)
    return rosters


def _tell_of(assigned: RosterBins[Totals], names: Mapping[bytes, str]) -> None:
    """Tell the server's operator how many examples have no partner."""
    for party, count in assigned.unscored.items():
        if count:
            named = names.get(party, key_to_text(party))
            logger.warning("%s has %d examples without a score: left out.", named, count)
    if assigned.unlabelled:
        logger.warning("%d scores are on no roster: left out.", assigned.unlabelled)


class _LabelCarrier:
    """Requests and replies as Flower messages, between a server and nodes that sent rosters."""

    def __init__(
        self,
        grid: Grid,
        server: SummationServer,
        nodes: Mapping[bytes, int],
        assigned: RosterBins[Totals],
        timeout: float,
    ) -> None:
        self._grid = grid
        self._parties = server.invitation.members
        self._nodes = nodes
        self._assigned = assigned
        self._timeout = timeout

    def carry(self, server: SummationServer, requests: Mapping[int, bytes]) -> Replies:
        """Replies by the member that each names as its sender; the server checks who signed."""
        stage = server.stage
        asked = [self._message(stage, member, request) for member, request in requests.items()]
        return [(member, reply) for member, _, reply in sent_by(self._grid, asked, self._timeout)]

    def _message(self, stage: Stage, member: int, request: bytes) -> Message:
        party = self._parties[member]
        bins = self._assigned.bins[party].to_bytes() if stage == Stage.MASK else None
        return message_to(self._nodes[party], request, bins=bins)
