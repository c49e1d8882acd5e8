"""Standing approvals: an approver signs ahead that a site may join a plan so many times."""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple, Self

import msgspec

from fedgauge import storage
from fedgauge.errors import PlanRefused, SiteError
from fedgauge.keys import SigningKey, key_from_text, key_to_text, verify
from fedgauge.plan import EvaluationPlan
from fedgauge.plan import plan as plans
from fedgauge.site.ledger_entries import StandingUse
from fedgauge.site.site import Site, approval_path, require_approval, require_approver
from fedgauge.storage import MALFORMED, read_bounded

_MOST_BYTES: Final = 1 << 16
_MOST_TIMES: Final = 1000
_ENDING: Final = ".standing"


class Invited(NamedTuple):
    """An evaluation that a site is asked to join, by whom and with whom."""

    session: bytes
    coordinator: bytes
    members: tuple[bytes, ...]


class StandingApproval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an approver signed, as kept in the site's folder.

    It is for a plan, all of it, asked for by one coordinator, on one dataset of one site or, with
    a pattern such as ``stroke-{year}-W{week}``, on those of its periods: at most `times`
    evaluations, joined on the day `until` at the latest, in UTC. One for restarts also says which
    evaluation was approved, and of which `sites`: a restart is of some of them.
    """

    plan: str
    coordinator: str
    dataset: str
    times: int
    until: str
    approver: str
    signature: bytes = b""
    evaluation: str = ""
    sites: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """What the ledger calls it: all that was signed, and who signed."""
        unsigned = msgspec.structs.replace(self, signature=b"")
        return hashlib.sha256(msgspec.json.encode(unsigned)).hexdigest()[:32]

    def _about(self, site: Site) -> bytes:
        unsigned = msgspec.structs.replace(self, signature=b"")
        about = (site.key.public, msgspec.structs.astuple(unsigned))
        return b"fedgauge standing approval\0" + msgspec.msgpack.encode(about)

    def signed(self, site: Site, key: SigningKey) -> Self:
        """The same with the approver's signature."""
        return msgspec.structs.replace(self, signature=key.sign(self._about(site)))

    def is_valid(self, site: Site) -> bool:
        """Whether somebody who is an approver now signed it for this site."""
        approver = key_from_text(self.approver)
        date.fromisoformat(self.until)
        return approver in site.approvers and verify(approver, self._about(site), self.signature)

    def fits(self, site: Site, plan: EvaluationPlan, asked: Invited) -> bool:
        """Whether it is about this plan, by this coordinator, on the data of today."""
        data = site.dataset if self.evaluation else _data_of(site)
        if self.evaluation == asked.session.hex():
            return False  # which has an approval of its own, or had one
        if self.evaluation and not {*map(key_to_text, asked.members)} <= {*self.sites}:
            return False
        about = (plan.whole.digest, key_to_text(asked.coordinator), data)
        return about == (self.plan, self.coordinator, self.dataset)

    @property
    def use(self) -> StandingUse:
        """One use of it, for the ledger; for a restart, of the evaluation, whoever signed it."""
        return StandingUse(self.evaluation or self.id, self.times)


class Approved(NamedTuple):
    """Who approved of an evaluation, if anybody must, and under which standing approval, if any."""

    approver: bytes | None
    standing: StandingUse | None = None


def approve_ahead(
    site: Site,
    plan: EvaluationPlan,
    coordinator: bytes,
    key: SigningKey,
    *,
    times: int,
    until: date,
) -> Path:
    """Sign that this site may join a plan so many times, unless it would refuse; where it is kept.

    To withdraw it, delete that file. Signed again with the same words it is the same approval.
    """
    require_approver(site, key)
    if not 1 <= times <= _MOST_TIMES:
        raise SiteError(f"a standing approval is for 1 to {_MOST_TIMES:,} times, got {times:,}.")
    if until < plans.now().date():
        raise SiteError(f"the day until which it holds is over: {until}. Name a later one.")
    site.judge(plan, members=tuple(site.peers), coordinator=coordinator)
    approval = StandingApproval(
        plan.whole.digest,
        key_to_text(coordinator),
        _data_of(site),
        times,
        until.isoformat(),
        key_to_text(key.public),
    )
    return _keep(site, approval.signed(site, key))


def approve_restart(site: Site, plan: EvaluationPlan, asked: Invited, key: SigningKey) -> Path:
    """Sign that an evaluation that was approved may be started again, if it cost nothing here."""
    until = plans.now().date() + timedelta(days=site.policy.session_days)
    for path in (site.folder / "sessions").glob(f"*{_ENDING}"):
        with suppress(*MALFORMED, OSError, ValueError):
            old = msgspec.json.decode(read_bounded(path, _MOST_BYTES), type=StandingApproval)
            if old.evaluation and date.fromisoformat(old.until) < plans.now().date():
                path.unlink()
    approval = StandingApproval(
        plan.whole.digest,
        key_to_text(asked.coordinator),
        site.dataset,
        1,
        until.isoformat(),
        key_to_text(key.public),
        evaluation=asked.session.hex(),
        sites=tuple(map(key_to_text, asked.members)),
    )
    return _keep(site, approval.signed(site, key))


def _keep(site: Site, approval: StandingApproval) -> Path:
    path = site.folder / "sessions" / f"{approval.id}{_ENDING}"
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        storage.replace(path, msgspec.json.encode(approval))
    except OSError as error:
        raise SiteError(f"cannot write {path}: {error.strerror}.") from None
    return path


def standing_approvals(site: Site) -> Iterator[StandingApproval]:
    """Those in the site's folder that hold; damaged and forged ones do not."""
    for path in sorted((site.folder / "sessions").glob(f"*{_ENDING}")):
        try:
            found = msgspec.json.decode(read_bounded(path, _MOST_BYTES), type=StandingApproval)
            holds = found.is_valid(site)
        except (*MALFORMED, OSError, SiteError, ValueError):
            continue
        if holds and path.stem == found.id:
            yield found


def fitting_approvals(site: Site, plan: EvaluationPlan, asked: Invited) -> list[StandingApproval]:
    """Those about this plan by this coordinator, of these sites, used up or not."""
    return [each for each in standing_approvals(site) if each.fits(site, plan, asked)]


def approval_of(site: Site, plan: EvaluationPlan, asked: Invited) -> Approved:
    """Who approved of a session here, by itself or ahead; PlanRefused where nobody has.

    Joined under a standing approval, a session goes on until that is withdrawn.
    """
    session = asked.session
    if approval_path(site, session).exists():
        # As StandingApproval.use of its restarts: both together are one.
        return Approved(require_approval(site, session, plan), StandingUse(session.hex(), 1))
    spend = site.ledger.sessions().get(session)
    if spend is not None and spend.asked.standing is not None:
        return _unless_withdrawn(site, spend.asked.standing, plan, asked)
    fitting = [
        each
        for each in fitting_approvals(site, plan, asked)
        if not (each.evaluation and site.ledger.uses(each.evaluation))  # paid, or under way
    ]
    if not fitting:
        return Approved(require_approval(site, session, plan))  # which says why not
    today = _latest(site).date()
    in_time = [each for each in fitting if today <= date.fromisoformat(each.until)]
    if not in_time:
        raise PlanRefused(
            f"the standing approval of this plan was until {max(each.until for each in fitting)}, "
            "and no approver has signed this evaluation. Ask the approver for another."
        )
    left = [each for each in in_time if site.ledger.uses(each.use.approval) < each.times]
    chosen = (left or in_time)[0]  # one that is used up is refused by the ledger, which counts
    return Approved(key_from_text(chosen.approver), chosen.use)


def _unless_withdrawn(
    site: Site, use: StandingUse, plan: EvaluationPlan, asked: Invited
) -> Approved:
    for each in fitting_approvals(site, plan, asked):
        if each.use == use:
            return Approved(key_from_text(each.approver), use)
    raise PlanRefused(
        "no approver has signed this evaluation, or what it was joined under was withdrawn, or is "
        "for other data. Ask the approver for another approval, or abandon the evaluation."
    )


def _data_of(site: Site) -> str:
    """What an approval is on: a dataset or, where each period is one, their pattern."""
    file = site.written
    if file.data is None or not site.has_periods:
        return site.dataset
    return f"{file.dataset}-{file.data.pattern.period}"


def _latest(site: Site) -> datetime:
    """The time, and no earlier than the ledger's last entry: a clock may be set back."""
    return max([plans.now(), *(entry.time for entry in site.ledger.entries()[-1:])])
