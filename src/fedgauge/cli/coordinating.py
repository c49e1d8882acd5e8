"""Commands of the coordinator of a file exchange: start, restart, advance."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

import fedgauge as fg
from fedgauge.cli.options import Quiet, SiteOption
from fedgauge.cli.progress import HERE, Run, Yes, say_progress
from fedgauge.cli.terminal import (
    print_result,
    readable_errors,
    require_consent,
    screen,
    warn,
    with_progress,
)
from fedgauge.engines.coordinator import Coordinator, totals_for
from fedgauge.engines.exchange import HOLDS_ONE, Exchange, Progress
from fedgauge.keys import key_to_text
from fedgauge.site import Site
from fedgauge.vertical.assigned import Totals


def start(
    plan: Annotated[Path, typer.Argument(help="The plan, .toml or .json.")],
    run: Run,
    take_part_too: Annotated[
        bool, typer.Option("--take-part", help="The coordinator is one of the sites.")
    ] = False,
    invite: Annotated[
        list[str] | None,
        typer.Option(
            help=r"A peer to invite; again for more. \[default: all, or all who were given bins]"
        ),
    ] = None,
    site_file: SiteOption = HERE,
    quiet: Quiet = False,
) -> None:
    """Coordinator: invite the peers in the site file to an evaluation.

    Labels apart from scores: whoever assigned the bins starts it, and invites who was given some.

    Examples:

      fedgauge exchange start plan.toml /shared/run-1 --site consortium/site.toml

      fedgauge exchange start assigned/plan.toml /shared/run-1 --site platform/site.toml
    """
    with readable_errors():
        site = Site.from_toml(site_file)
        loaded = fg.EvaluationPlan.load(plan)
        totals = totals_for(site, loaded)
        if totals is None or invite:
            members = _invited(site, invite, take_part_too=take_part_too)
        else:
            members = _given_bins(site, totals)
        _start(run, site, loaded, members, quiet)


def restart(
    run: Run,
    new: Annotated[Path, typer.Argument(help="An empty or new folder for the next attempt.")],
    without: Annotated[
        list[str] | None,
        typer.Option(
            help=r"A site to leave out; again for more. \[default: those who broke the rules]"
        ),
    ] = None,
    yes: Yes = False,
    site_file: SiteOption = HERE,
    quiet: Quiet = False,
) -> None:
    """Coordinator: the same plan once more, without who broke the rules.

    The attempt before is over for the coordinator; sites end it with `exchange abandon`. Sites
    that have sent their numbers have paid for it, and pay again: it asks first.

    Examples:

      fedgauge exchange restart /shared/run-1 /shared/run-2 --site consortium/site.toml

      fedgauge exchange restart /shared/run-1 /shared/run-2 --without hospital-c --yes
    """
    with readable_errors():
        site = Site.from_toml(site_file)
        before = Exchange(run, site)
        plan = before.invitation().plan.whole
        members = Coordinator(before, site).members_without(without or ())
        paid = _require_restart(before, run, yes=yes)
        _start(new, site, plan, members, quiet)
        Coordinator(before, site).abandon()
    if not quiet:
        end = f"fedgauge exchange abandon {shlex.quote(str(run))}{' --yes' if paid else ''}"
        screen.print(f"Sites give up the attempt before:\n  {end}", markup=False)
        if not plan.is_noisy:
            warn(
                "The plan is for an exact sum. A site that submitted before keeps to the sites it "
                "submitted with, and refuses others, unless its file says exact_dropouts = true."
            )


def advance(
    run: Run,
    without_missing: Annotated[
        bool, typer.Option("--without-missing", help="Go on without those who did not answer.")
    ] = False,
    evaluation: Annotated[
        str | None,
        typer.Option(help="Where the invitation was lost: how the evaluation's id begins."),
    ] = None,
    site_file: SiteOption = HERE,
    quiet: Quiet = False,
) -> None:
    """Coordinator: begin the next round, or compute the result after the last.

    Where a plan has two rounds, the second begins with an invitation of its own, in a folder
    within this one: it is all the same to commands. An invitation or a request that was lost is
    written again.

    Examples:

      fedgauge exchange advance /shared/run-1 --site consortium/site.toml

      fedgauge exchange advance /shared/run-1 --evaluation 3fa9c2d1 --site consortium/site.toml
    """
    with readable_errors():
        site = Site.from_toml(site_file)
        exchange = Exchange(run, site)
        coordinator = Coordinator(exchange, site)
        outcome = with_progress(
            quiet,
            lambda: coordinator.advance(without_missing=without_missing, evaluation=evaluation),
        )
    for told in exchange.in_the_way:
        warn(told)
    if isinstance(outcome, Progress):
        if not quiet:
            say_progress(outcome, run, site)
        return
    print_result(outcome, quiet=quiet)
    for told in exchange.progress().faults:
        warn(told)
    if quiet:
        return
    screen.print(f"Saved {exchange.result_path}", markup=False)
    result = shlex.quote(str(exchange.result_path))
    check = f"fedgauge verify {result} --key {key_to_text(site.key.public)}"
    screen.print(f"Signed. Readers check it:\n  {check}", markup=False)


def _start(
    run: Path, site: Site, plan: fg.EvaluationPlan, members: list[bytes], quiet: bool
) -> None:
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise fg.ExchangeError(f"cannot make folder {run}: {error.strerror}.") from None
    exchange = Exchange(run, site)
    if any(run.glob("*.fgx")):
        raise fg.ExchangeError(HOLDS_ONE.format(run))
    server = Coordinator(exchange, site).start(plan, members)
    if not quiet:
        screen.print(
            f"Invited {len(members)} sites; {server.needed} must stay to the end.", markup=False
        )
        say_progress(exchange.progress(), run, site)


def _require_restart(before: Exchange, run: Path, *, yes: bool) -> int:
    """Ask before another attempt charges sites again; how many have paid for this one."""
    progress = before.progress()
    if progress.paid:
        waits = "Where sites are only late, waiting costs nothing."
        over = f"It is finished: its result is {before.result_path}."
        require_consent(
            f"{progress.paid} sites have paid for the attempt in {run}, and pay again for another "
            f"one. {over if progress.finished else waits}",
            yes=yes,
        )
    return progress.paid


def _given_bins(site: Site, totals: Totals) -> list[bytes]:
    """The label parties of an assignment, as long as all are still trusted."""
    strangers = [key_to_text(party) for party in totals.parties if party not in site.peers]
    if strangers:
        raise fg.SiteError(
            f"{', '.join(strangers)} was given bins and is no peer in {site.path} any more. Trust "
            "it again, or name whom to invite: --invite NAME."
        )
    return list(totals.parties)


def _invited(site: Site, names: list[str] | None, *, take_part_too: bool) -> list[bytes]:
    peers = {
        name: key for key, name in site.peers.items() if take_part_too or key != site.key.public
    }
    unknown = [name for name in names or () if name not in peers]
    if unknown:
        raise fg.SiteError(
            f"{', '.join(unknown)} is not a peer in {site.path}. "
            "Add it with `fedgauge site trust NAME KEY`."
        )
    return [peers[name] for name in names or peers]
