"""Approvals: that an officer of the site, with a key of its own, wants an evaluation joined.

What is signed names the site, the session (and so plan, members, coordinator and model), the
dataset, and what it costs whom. So an approval is worth nothing anywhere else. Of two rounds the
first is approved of, and both with it.
"""

from pathlib import Path
from typing import Final

import msgspec

from fedgauge.errors import PlanRefused, SiteError
from fedgauge.keys import SigningKey, key_from_text, key_to_text, verify
from fedgauge.plan import EvaluationPlan
from fedgauge.site.anchor import Site
from fedgauge.storage import durable
from fedgauge.storage.whole import MALFORMED, read_bounded

_MOST_BYTES: Final = 1000


class _Approval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An approval as it is kept."""

    approver: str
    signature: bytes


def approval_path(site: Site, session: bytes) -> Path:
    """Where an approval of a session is kept."""
    return site.folder / "sessions" / f"{session.hex()[:32]}.approval"


def approve(site: Site, session: bytes, plan: EvaluationPlan, key: SigningKey) -> Path:
    """Sign that this site may take part in a session, and keep that in its folder."""
    if key.public not in site.approvers:
        raise SiteError(
            f"the key {key_to_text(key.public)} is not an approver's in {site.path}. Add it with "
            "`fedgauge site trust NAME KEY --approver`, if it should be."
        )
    approval = _Approval(key_to_text(key.public), key.sign(_signed(site, session, plan)))
    path = approval_path(site, session)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        durable.replace(path, msgspec.json.encode(approval))
    except OSError as error:
        raise SiteError(f"cannot write {path}: {error.strerror}.") from None
    return path


def keep_approval(site: Site, first: bytes, session: bytes) -> None:
    """Keep the approval of the first of two rounds with the second; nothing where there is none."""
    try:
        approval = read_bounded(approval_path(site, first), _MOST_BYTES)
        durable.replace(approval_path(site, session), approval)
    except FileNotFoundError:
        return
    except OSError as error:
        raise SiteError(f"cannot keep an approval: {error.strerror}.") from None


def require_approval(site: Site, session: bytes, plan: EvaluationPlan) -> bytes:
    """The public key of who approved of a session here; PlanRefused where nobody has."""
    try:
        data = read_bounded(approval_path(site, session), _MOST_BYTES)
        approval = msgspec.json.decode(data, type=_Approval)
        approver = key_from_text(approval.approver)
    except FileNotFoundError:
        raise PlanRefused(
            "no approver has signed this evaluation, and this site requires one (approvers). They "
            "look at it with `fedgauge exchange review`, which prints the command to sign."
        ) from None
    except OSError as error:
        raise SiteError(f"cannot read an approval: {error.strerror}.") from None
    except (*MALFORMED, SiteError):
        raise PlanRefused("the approval is damaged. Approve again.") from None
    if approver not in site.approvers:
        raise PlanRefused(
            f"the approval is by {approval.approver}, who is not an approver here, or no longer."
        )
    if not verify(approver, _signed(site, session, plan), approval.signature):
        raise PlanRefused(
            f"what {site.approvers[approver]} approved is not this evaluation on this dataset at "
            "this cost, or the approval is forged. Review it, and approve again."
        )
    return approver


def _signed(site: Site, session: bytes, plan: EvaluationPlan) -> bytes:
    account, cost = site.account(plan), site.cost(plan)
    about = (
        site.key.public,
        session if plan.found is None else bytes.fromhex(plan.found.session),
        account.dataset,
        account.unit,
        account.neighbours,
        cost.epsilon,
        cost.delta,
    )
    return b"fedgauge approval\0" + msgspec.msgpack.encode(about)
