"""What an officer looks at before a site joins an evaluation, and signs."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fedgauge.data.fingerprint import Fingerprint
from fedgauge.engines.duties import judge_invitation, judge_origin
from fedgauge.errors import ExchangeError, FedgaugeError
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.plan import EvaluationPlan
from fedgauge.secagg import Invitation
from fedgauge.site import Account, Balance, Cost, Site
from fedgauge.site.anchor import judge_promise
from fedgauge.site.approvals import approval_path, require_approval
from fedgauge.site.approvals import approve as sign
from fedgauge.site.entries import Roster


class Budget(NamedTuple):
    """How a dataset stands before an evaluation, and what that adds.

    `cost` is None where it is reserved or spent already. Of exact sums, `exact_sums` counts
    those there were.
    """

    balance: Balance
    cost: Cost | None
    exact_sums: int


class Review(NamedTuple):
    """An invitation as it stands to a site.

    `plan` is None where it is not worth reading. `refusal` says why the
    site would not join, were it approved; `unapproved` why an approval that there is does not hold.
    """

    coordinator: str
    sites: tuple[str, ...]
    plan: EvaluationPlan | None
    refusal: str | None
    budget: Budget | None
    approver: str | None
    unapproved: str | None


def review(site: Site, invitation: Invitation) -> Review:
    """What an invitation asks, what the site file says to it, and whether it is approved.

    Nothing is written but a ledger, empty, where there is none yet.
    """
    refusal, plan = _judged(site, invitation)
    approver, unapproved = None, None
    if plan is not None and approval_path(site, invitation.session).exists():
        try:
            approver = site.approvers[require_approval(site, invitation.session, plan)]
        except FedgaugeError as error:
            unapproved = str(error)
    return Review(
        coordinator=_name(site.coordinators, invitation.coordinator),
        sites=tuple(_name(site.peers, member) for member in invitation.members),
        plan=plan,
        refusal=refusal,
        budget=None if plan is None else _budget(site, invitation.session, plan),
        approver=approver,
        unapproved=unapproved,
    )


def approve(
    site: Site, invitation: Invitation, key: SigningKey, *, evaluation: str | None = None
) -> Path:
    """Sign that a site may join, unless it would refuse; where the approval is kept.

    `evaluation` is how the id begins of what was reviewed: whoever can write to the folder can
    put another invitation of the same coordinator there in the meantime.
    """
    if evaluation is not None and not invitation.session.hex().startswith(evaluation.lower()):
        raise ExchangeError(
            "the folder holds another evaluation than the one that was reviewed. Review it again."
        )
    plan = judge_invitation(site, invitation)
    check_ledger(site, invitation, plan)
    return sign(site, invitation.session, plan, key)


def _judged(site: Site, invitation: Invitation) -> tuple[str | None, EvaluationPlan | None]:
    """Why a site would refuse, and the plan where it is worth reading."""
    try:
        plan = judge_invitation(site, invitation)
        check_ledger(site, invitation, plan)
    except FedgaugeError as error:
        return str(error), _plan_within_reach(site, invitation)
    return None, plan


def _plan_within_reach(site: Site, invitation: Invitation) -> EvaluationPlan | None:
    """The plan of a refused invitation, unless it is huge, a stranger's, or promises in vain."""
    try:
        judge_origin(site, invitation)
        judge_promise(invitation.plan)
    except FedgaugeError:
        return None
    return invitation.plan


def check_ledger(
    site: Site, invitation: Invitation, plan: EvaluationPlan, data: Fingerprint | None = None
) -> None:
    """Refuse what the ledger would, and write nothing; `data` are the rows of an exact sum."""
    site.reserve(
        invitation.session,
        plan,
        roster=Roster(frozenset(invitation.members), invitation.needed),
        certain=invitation.graph.is_complete,
        data=data,
        check_only=True,
    )


def _budget(site: Site, session: bytes, plan: EvaluationPlan) -> Budget:
    limit, whole, nothing = site.policy.default_limit, Account.whole(site.dataset), Cost(0.0, 0.0)
    totals = {each.account: each for each in site.ledger.totals(default_limit=limit)}
    is_new = site.ledger.status(session) is None
    return Budget(
        totals.get(whole, Balance(whole, limit, nothing, nothing)),
        site.cost(plan) if is_new else None,
        site.ledger.count_exact(site.dataset),
    )


def _name(names: Mapping[bytes, str], key: bytes) -> str:
    return names.get(key, key_to_text(key))
