"""Standing approvals: an approver signs ahead that a site may join a plan so many times."""

import hashlib
from collections.abc import Iterator
from datetime import date, datetime
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

_MOST_BYTES: Final = 2000
_MOST_TIMES: Final = 1000
_MOST_FILES: Final = 100
_ENDING: Final = ".standing"


class StandingApproval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an approver signed, as kept in the site's folder.

    It is for a plan, all of it, asked for by one coordinator, on one dataset of one site or, with
    a pattern such as ``stroke-{year}-W{week}``, on those of its periods: at most `times`
    evaluations, joined on the day `until` at the latest, in UTC.
    """

    plan: str
    coordinator: str
    dataset: str
    times: int
    until: str
    approver: str
    signature: bytes = b""

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

    def fits(self, site: Site, plan: EvaluationPlan, coordinator: bytes) -> bool:
        """Whether it is about this plan, by this coordinator, on the data of today."""
        asked = (plan.whole.digest, key_to_text(coordinator), _data_of(site))
        return asked == (self.plan, self.coordinator, self.dataset)

    @property
    def use(self) -> StandingUse:
        """One use of it, for the ledger."""
        return StandingUse(self.id, self.times)


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
    ).signed(site, key)
    path = site.folder / "sessions" / f"{approval.id}{_ENDING}"
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        storage.replace(path, msgspec.json.encode(approval))
    except OSError as error:
        raise SiteError(f"cannot write {path}: {error.strerror}.") from None
    return path


def standing_approvals(site: Site) -> Iterator[StandingApproval]:
    """Those in the site's folder that hold; damaged and forged ones do not."""
    for path in sorted((site.folder / "sessions").glob(f"*{_ENDING}"))[:_MOST_FILES]:
        try:
            found = msgspec.json.decode(read_bounded(path, _MOST_BYTES), type=StandingApproval)
            holds = found.is_valid(site)
        except (*MALFORMED, OSError, SiteError, ValueError):
            continue
        if holds and path.stem == found.id:
            yield found


def fitting_approvals(
    site: Site, plan: EvaluationPlan, coordinator: bytes
) -> list[StandingApproval]:
    """Those about this plan by this coordinator, used up or not."""
    return [each for each in standing_approvals(site) if each.fits(site, plan, coordinator)]


def approval_of(site: Site, session: bytes, plan: EvaluationPlan, coordinator: bytes) -> Approved:
    """Who approved of a session here, by itself or ahead; PlanRefused where nobody has.

    Joined under a standing approval, a session goes on until that is withdrawn.
    """
    if approval_path(site, session).exists():
        return Approved(require_approval(site, session, plan))
    spend = site.ledger.sessions().get(session)
    if spend is not None and spend.asked.standing is not None:
        return _unless_withdrawn(site, spend.asked.standing, plan, coordinator)
    fitting = fitting_approvals(site, plan, coordinator)
    if not fitting:
        return Approved(require_approval(site, session, plan))  # which says why not
    today = _latest(site).date()
    in_time = [each for each in fitting if today <= date.fromisoformat(each.until)]
    if not in_time:
        raise PlanRefused(
            f"the standing approval of this plan was until {max(each.until for each in fitting)}, "
            "and no approver has signed this evaluation. Ask the approver for another."
        )
    left = [each for each in in_time if site.ledger.uses(each.id) < each.times]
    chosen = (left or in_time)[0]  # one that is used up is refused by the ledger, which counts
    return Approved(key_from_text(chosen.approver), chosen.use)


def _unless_withdrawn(
    site: Site, use: StandingUse, plan: EvaluationPlan, coordinator: bytes
) -> Approved:
    for each in fitting_approvals(site, plan, coordinator):
        if each.use == use:
            return Approved(key_from_text(each.approver), use)
    raise PlanRefused(
        "the standing approval that this evaluation was joined under was withdrawn, or is for "
        "other data. Ask the approver for another, or abandon the evaluation."
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
