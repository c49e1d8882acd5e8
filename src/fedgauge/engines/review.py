"""What an officer looks at before a site joins, and signs; a rehearsal on a site's own file."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from fedgauge.data.examples import read_batches
from fedgauge.data.row_checks import RowSummary
from fedgauge.engines.contribution import count_exactly
from fedgauge.engines.exchange import Exchange, load_invitation
from fedgauge.engines.findings import JudgedRows, allow, judge_rows
from fedgauge.engines.participant import (
    Participant,
    check_ledger,
    fingerprint_rows,
    invited,
    judge_invitation,
    judge_origin,
    naming,
)
from fedgauge.errors import ExchangeError, FedgaugeError, InputError, located
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.explain import explain
from fedgauge.secagg import Invitation
from fedgauge.site import Cost, Site
from fedgauge.site.ledger import Status
from fedgauge.site.ledger_entries import Kind
from fedgauge.site.rows import Rows
from fedgauge.site.site import approval_path, judge_promise
from fedgauge.site.site import approve as sign
from fedgauge.site.standing import approval_of, approve_restart, fitting_approvals

NAMED_BY: Final = 32  # digits: with fewer, who makes invitations finds two that begin alike
_ENTRIES: Final[dict[Status, Kind]] = {
    "reserved": "reserve",
    "committed": "commit",
    "released": "release",
}


class BudgetState(NamedTuple):
    """How a dataset stands, what an evaluation costs, and how many exact sums it would be."""

    dataset: str
    limit: Cost
    spent: Cost
    reserved: Cost
    exact_sums: int
    cost: Cost
    sums: int = 1


class JoinedSession(NamedTuple):
    """What became of a joined evaluation, and when; `between` says it is between its two rounds."""

    status: Status
    time: datetime
    cost: Cost
    over: bool
    between: bool = False


class Review(NamedTuple):
    """An invitation as it stands to a site.

    `plan` is None where it is not worth reading, `joined` where the site did not. `refusal` says
    why it would not go on, were it approved; `unapproved` why an approval does not hold.
    """

    coordinator: str
    sites: tuple[str, ...]
    plan: EvaluationPlan | None
    joined: JoinedSession | None
    refusal: str | None
    budget: BudgetState | None
    approver: str | None
    unapproved: str | None

    @property
    def can_be_approved(self) -> bool:
        """Whether an approver's signature is all that is missing."""
        left = self.joined is None or (self.joined.status == "reserved" and not self.joined.between)
        return left and self.refusal is None and self.approver is None


def review(site: Site, invitation: Invitation) -> Review:
    """What an invitation asks, what the site file says to it, and whether it is approved."""
    site = site.in_session(invitation.follows or invitation.session)
    joined = _joined(site, invitation)
    refusal, plan = _judged(site, invitation, joined)
    approver, unapproved = None, None
    session = invitation.session
    if invitation.follows is not None and not approval_path(site, session).exists():
        session = invitation.follows  # what was approved of then stands for both rounds
    ahead = plan is not None and fitting_approvals(site, plan, invited(invitation, session))
    if plan is not None and (ahead or approval_path(site, session).exists()):
        try:
            approved = approval_of(site, plan, invited(invitation, session))
            approver = None if approved.approver is None else site.approvers[approved.approver]
        except FedgaugeError as error:
            unapproved = str(error)
    return Review(
        coordinator=_name(site.coordinators, invitation.coordinator),
        sites=tuple(_name(site.peers, member) for member in invitation.members),
        plan=plan,
        joined=joined,
        refusal=refusal,
        budget=None if plan is None else _budget(site, plan),
        approver=approver,
        unapproved=unapproved,
    )


def explain_invitation(path: Path) -> str:
    """Who asks for what in an invitation, in plain words; compared with nothing that is known."""
    with located(str(path)):
        invitation = load_invitation(path)
        plan = explain(invitation.plan)
    sites = "".join(f"\n  {key_to_text(member)}" for member in invitation.members)
    model = "None travels: each site brings its scores."
    if invitation.plan.task.of_labels:
        model = "None travels: the examples were scored when they were given their ranges."
    if invitation.model:
        model = f"It comes with the questions, and its digest is {invitation.model.hex()}."
    return (
        f"Who asks\n  The holder of the key {key_to_text(invitation.coordinator)}, in evaluation "
        f"{invitation.session.hex()[:16]}, of {len(invitation.members)} sites with the "
        f"keys{sites}\n\n{plan}\n\nThe model\n  {model}\n\nWhat was judged\n  Only that the "
        "holder of that key signed this. `fedgauge exchange review` says whether your site knows "
        "these keys, allows the plan and has the budget."
    )


def approve(site: Site, invitation: Invitation, key: SigningKey, *, evaluation: str) -> Path:
    """Sign that a site may join, unless it would refuse; where the approval is kept.

    `evaluation` is how the id begins of what was reviewed, 32 digits or more: whoever can write to
    the folder can meanwhile put another invitation there, and try many until a few digits agree.
    """
    if len(evaluation) < NAMED_BY:
        raise InputError(
            f"name an evaluation by at least the first {NAMED_BY} digits of its id. Copy the "
            "whole command that `fedgauge exchange review` prints."
        )
    if invitation.follows is not None:
        raise ExchangeError(
            "this is the second of two rounds, and the approval of the first covers both."
        )
    site = site.in_session(invitation.session)
    plan = judge_invitation(site, invitation)
    if not invitation.session.hex().startswith(evaluation.lower()):
        raise ExchangeError(
            "the folder holds another evaluation than the one that was reviewed. Review it again."
        )
    check_ledger(site, invitation)
    path = sign(site, invitation.session, plan, key)
    approve_restart(site, plan, invited(invitation), key)
    return path


def _joined(site: Site, invitation: Invitation) -> JoinedSession | None:
    joined = _became(site, invitation.session)
    if joined is not None or invitation.follows is None:
        return joined
    first = _became(site, invitation.follows)
    return None if first is None else first._replace(between=True)


def _became(site: Site, session: bytes) -> JoinedSession | None:
    spend = site.ledger.sessions().get(session)
    if spend is None:
        return None
    became = (session, _ENTRIES[spend.status])
    (time,) = (e.time for e in site.ledger.entries() if (e.session, e.kind) == became)
    pending = {each.session for each in Participant(site).pending()}
    return JoinedSession(spend.status, time, spend.cost, over=session not in pending)


def _judged(
    site: Site, invitation: Invitation, joined: JoinedSession | None
) -> tuple[str | None, EvaluationPlan | None]:
    """Why a site would refuse, and the plan where it is worth reading."""
    try:
        plan = judge_invitation(site, invitation)
        if joined is None or joined.status == "reserved" or joined.between:
            check_ledger(site, invitation)
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


def _budget(site: Site, plan: EvaluationPlan) -> BudgetState:
    total = site.ledger.total(site.dataset, default_limit=site.policy.default_limit)
    assert total.limit is not None  # noqa: S101  (of a whole dataset there is one)
    exact_sums = site.ledger.count_exact(site.dataset)
    sums = 2 if plan.has_two_rounds else 1
    stands = (total.limit, total.spent, total.reserved, exact_sums)
    return BudgetState(site.dataset, *stands, site.cost(plan), sums)


def _name(names: Mapping[bytes, str], key: bytes) -> str:
    return names.get(key, key_to_text(key))


class Rehearsal(NamedTuple):
    """An invitation and a file, as they stand to a site.

    `review` is of the invitation, by site file and ledger. `judged` is of the rows; None where the
    plan is not worth reading. `stops` says whether what was found there keeps this site from
    joining, and `refusal` why an exact sum would not be joined with these rows, or stop at them.
    """

    review: Review
    judged: JudgedRows | None
    stops: bool
    refusal: str | None

    @property
    def counted(self) -> RowSummary | None:
        """What the rows would count as."""
        return None if self.judged is None else self.judged.counted

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the operator should see to."""
        return () if self.judged is None else self.judged.warnings

    @property
    def is_well(self) -> bool:
        """Whether this site would join with these rows, and count them."""
        return self.review.refusal is None and self.refusal is None and not self.stops


def rehearse(exchange: Exchange, site: Site, rows: Rows | None = None) -> Rehearsal:
    """What would become of these rows, and of the plan, were this site to join with them.

    Nothing of the rows leaves: neither a reply nor an entry in the ledger is made. Declared rows
    that stopped this site may join once nothing is found. An operator who joins or stays away
    because of it tells by that what no engine would.
    """
    invitation = exchange.invitation()
    exchange.require_open(invitation)
    if invitation.follows is not None:
        raise ExchangeError(
            "there is nothing left to check: the second round uses the rows of the first."
        )
    _require_unspent(site, invitation.session)
    site = site.in_session(invitation.session)
    seen = review(site, invitation)
    if seen.plan is None:
        return Rehearsal(seen, None, stops=False, refusal=None)
    plan, declared = seen.plan, rows is None
    rows = site.rows(plan, rows)
    rows.check(plan, site)
    judged = judge_rows(site, plan, rows)
    refusal = None if plan.is_noisy else _refusal(site, invitation, plan, rows)
    stops = bool(judged.findings) and site.policy.findings == "stop"
    if declared and not judged.findings:
        allow(site, rows)
    return Rehearsal(seen, judged, stops, refusal)


def _require_unspent(site: Site, session: bytes) -> None:
    """Refuse to look at rows that change nothing any more."""
    status = site.ledger.status(session)
    if status in ("committed", "released"):
        became = "has submitted, and its first input stands" if status == "committed" else "gave up"
        raise ExchangeError(
            f"there is nothing left to check: in this evaluation site {site.name!r} {became}. "
            "Another attempt needs a new invitation."
        )


def _refusal(site: Site, invitation: Invitation, plan: EvaluationPlan, rows: Rows) -> str | None:
    """Why an exact sum would refuse these rows: they changed, or cannot all be counted."""
    try:
        data = rows.data(plan, site)
        fingerprint, _ = fingerprint_rows(site, plan, data)
        check_ledger(site, invitation, fingerprint)
        with naming(data):
            count_exactly(plan, read_batches(data), data)
    except FedgaugeError as error:
        return str(error)
    return None
