"""Commands of a site's officer in a file exchange: review, approve."""

import shlex
from pathlib import Path
from typing import Annotated, Final

import typer

from fedgauge.cli.options import Quiet, SiteOption
from fedgauge.cli.progress import HERE, Run, became, budget_in_words, price
from fedgauge.cli.terminal import readable_errors, screen
from fedgauge.engines.exchange import Exchange
from fedgauge.engines.review import NAMED_BY, Review
from fedgauge.engines.review import approve as approve_as
from fedgauge.engines.review import review as look_at
from fedgauge.keys import SigningKey
from fedgauge.plan.explain import explain
from fedgauge.site import Site

_COVERED: Final = (
    "  You approve the plan, the sites, the coordinator and the dataset's name. Which file and "
    "which model's scores stand behind that name, the operator chooses at `join`. Write both on "
    "the form."
)


def review(run: Run, site_file: SiteOption = HERE, quiet: Quiet = False) -> None:
    """Officer: see who asks for what, what the site file says to it, and what it would cost.

    Example:

      fedgauge exchange review /shared/run-1 --site hospital-a/site.toml
    """
    with readable_errors():
        site = Site.from_toml(site_file)
        exchange = Exchange(run, site)
        invitation = exchange.invitation()
        seen = look_at(site, invitation)
        finished = seen.plan is not None and exchange.is_finished(invitation)
    if not quiet:
        if finished:
            screen.print(f"It is finished: its result is {exchange.result_path}\n", markup=False)
        _say_review(seen, site)
        if site.approvers and seen.can_be_approved:
            evaluation = invitation.session.hex()[:NAMED_BY]
            folder, site_path = (shlex.quote(str(path)) for path in (run, site_file))
            screen.print(
                f"{_COVERED}\n\nTo approve:\n  fedgauge exchange approve {folder} --evaluation "
                f"{evaluation} --key officer.key --site {site_path}",
                markup=False,
            )


def approve(
    run: Run,
    key: Annotated[Path, typer.Option(help="The approver's key file.")],
    evaluation: Annotated[
        str, typer.Option(help=f"How the id begins of what was reviewed: {NAMED_BY} digits.")
    ],
    site_file: SiteOption = HERE,
    quiet: Quiet = False,
) -> None:
    """Officer: sign that this site may join, where its file lists approvers.

    What the site would refuse is not signed. Review it first, which prints this command; copy it
    whole.

    Example:

      fedgauge exchange approve run-1 --evaluation 3fa9c2d16be0a4573fa9c2d16be0a457 --key my.key
    """
    with readable_errors():
        site = Site.from_toml(site_file)
        exchange = Exchange(run, site)
        invitation = exchange.invitation()
        exchange.require_open(invitation)
        path = approve_as(site, invitation, SigningKey.load(key), evaluation=evaluation)
        seen = look_at(site, invitation)
    if not quiet:
        plan, session = invitation.plan, invitation.session.hex()[:NAMED_BY]
        lines = [
            f"Approved evaluation {session}, kept in {path}. Signed:",
            f"  plan {plan.digest[:NAMED_BY]}",
            f"  {_asked_by(seen)}",
            f"  on {site.dataset}, at a cost of {price(site.cost(plan))}",
        ]
        screen.print("\n".join(lines), markup=False)


def _asked_by(seen: Review) -> str:
    return f"Asked for by {seen.coordinator}, of {len(seen.sites)} sites: {', '.join(seen.sites)}"


def _say_review(seen: Review, site: Site) -> None:
    lines = [_asked_by(seen), ""]
    if seen.plan is not None:
        lines += [explain(seen.plan), ""]
    if seen.budget is not None:
        lines += ["The budget", f"  {budget_in_words(seen.budget, seen.joined, site)}", ""]
    if seen.joined is not None:
        lines += ["How far it is", f"  {became(seen.joined)}", ""]
    if seen.joined is None or not seen.joined.over:
        allowed = "Allows it." if seen.refusal is None else f"Refuses it: {seen.refusal}"
        lines += ["The site file", f"  {allowed}", ""]
    lines.append("Approval")
    if not site.approvers:
        lines.append("  None is wanted: the site file lists no approvers.")
    elif seen.approver is not None:
        lines.append(f"  Approved by {seen.approver}.")
    else:
        lines.append("  None yet." if seen.unapproved is None else f"  None: {seen.unapproved}")
    screen.print("\n".join(lines), markup=False)
