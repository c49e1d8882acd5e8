"""What a site does in an exchange by files: one step for each round, with rows named once."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from fedgauge.data.examples import Data
from fedgauge.data.oddities import Counted
from fedgauge.engines.exchange import Exchange
from fedgauge.engines.named import Rows, read_note
from fedgauge.engines.participant import NOT_JOINED, Participant
from fedgauge.errors import ExchangeError, InputError
from fedgauge.plan import EvaluationPlan
from fedgauge.secagg import Invitation, Stage
from fedgauge.site import Site


def join(
    exchange: Exchange,
    site: Site,
    rows: Rows | None = None,
    *,
    tell: Callable[[str], None] = lambda _: None,
    show: Callable[[Counted], None] = lambda _: None,
) -> Path:
    """Answer an invitation, and remember which rows it is about; the file that was written.

    Joining again may name other rows as long as none were counted; those of an exact sum stay, and
    so do those of a second round, which are named at the first and need not be named again. Before
    an exact sum rows are read: `show` and `tell` as for :func:`submit`.
    """
    invitation = exchange.invitation()
    exchange.require_open(invitation)
    rows = _rows_to_join(site, invitation, rows)
    told = _teller(invitation, rows, tell, show)
    participant = Participant(
        site,
        lambda: rows.data(invitation.plan, site),
        check=lambda plan: rows.check(plan, site),
        show=told,
    )
    reply = participant.answer(invitation.data)
    named = _named_rows(participant, invitation)
    if named != rows:
        counted = participant.session(invitation.session).stage >= Stage.MASK
        if named is not None and (counted or not invitation.plan.is_noisy):
            raise ExchangeError(_other_rows(named, invitation.plan, counted=counted))
        rows.check(invitation.plan, site)  # who joined before was not checked with these
        participant.remember(invitation.session, msgspec.json.encode(rows))
    return exchange.write_reply(invitation, Stage.ADVERTISE, reply)


def _rows_to_join(site: Site, invitation: Invitation, rows: Rows | None) -> Rows:
    """The rows that were named; of a second round, those that were named at the first."""
    if invitation.follows is None:
        if rows is None:
            raise InputError(
                "joining takes the file of this site's rows. Name it, and its columns."
            )
        return rows
    participant = Participant(site)
    note = participant.recall(invitation.session) or participant.recall(invitation.follows)
    if note is None:
        raise ExchangeError(NOT_JOINED)
    named = read_note(note)
    if rows not in (None, named):
        raise ExchangeError(_other_rows(named, invitation.plan, counted=True))
    return named


class Submitted(NamedTuple):
    """The file that was written, and whether it holds what was counted on an earlier occasion."""

    path: Path
    stood: bool


def submit(
    exchange: Exchange,
    site: Site,
    rows: Rows | None = None,
    *,
    tell: Callable[[str], None],
    show: Callable[[Counted], None] = lambda _: None,
) -> Submitted:
    """Answer the third round with the rows named at the first.

    `rows` may say again which they are; others are refused. What was counted once stands: asked
    again, a site sends the same bytes, whatever its file holds by then.

    Parameters
    ----------
    exchange, site, rows
        Where, who, and which rows.
    tell
        Told, in sentences, what is wrong with the rows; for the site's operator alone.
    show
        Shown what the rows came to, once they were counted; for the site's operator alone.
    """
    invitation = exchange.invitation()
    exchange.require_open(invitation)
    request = exchange.request_to_me(invitation, Stage.MASK)
    participant = Participant(site)
    named = _named_rows(participant, invitation)
    if named is None:
        raise ExchangeError(NOT_JOINED)
    stands = participant.session(invitation.session).stage >= Stage.MASK
    if rows not in (None, named):
        raise ExchangeError(_other_rows(named, invitation.plan, counted=stands))
    if not stands:
        named.check(invitation.plan, site)  # once more: a file may have been moved away
    told = _teller(invitation, named, tell, show)
    participant = Participant(site, lambda: named.data(invitation.plan, site), tell=tell, show=told)
    reply = participant.answer(request)
    return Submitted(exchange.write_reply(invitation, Stage.MASK, reply), stands)


def _teller(
    invitation: Invitation,
    rows: Rows,
    tell: Callable[[str], None],
    show: Callable[[Counted], None],
) -> Callable[[Counted], None]:
    """Shows what the rows of a file came to, and warns of what is wrong with them."""

    def told(counted: Counted) -> None:
        show(counted)
        for sentence in rows.warnings(counted, invitation.plan):
            tell(sentence)

    return told


def _named_rows(participant: Participant, invitation: Invitation) -> Rows | None:
    note = participant.recall(invitation.session)
    return None if note is None else read_note(note)


def _other_rows(named: Rows, plan: EvaluationPlan, *, counted: bool) -> str:
    done = "has submitted that: the first input stands" if counted else "submits that"
    if plan.is_noisy and not counted:
        remedy = "join again with them (`fedgauge exchange join`), then submit"
    else:
        remedy = "abandon this evaluation (`fedgauge exchange abandon`) and join a new one"
    return (
        f"this site joined with {named.path} ({named.columns}), and {done}. To evaluate other "
        f"rows, {remedy}."
    )


def take_part(
    exchange: Exchange, site: Site, stage: Stage, data: Callable[[], Data] | None = None
) -> Path:
    """Answer the request of one round; the file that was written."""
    invitation = exchange.invitation()
    if stage < Stage.OPEN:  # a site that reveals late deletes its keys all the same
        exchange.require_open(invitation)
    request = exchange.request_to_me(invitation, stage)
    reply = Participant(site, data).answer(request)
    return exchange.write_reply(invitation, stage, reply)
