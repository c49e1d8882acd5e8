"""Commands of the file exchange: one verb per round for sites, two for the coordinator."""

from pathlib import Path
from typing import Annotated

import typer

import fedgauge as fg
from fedgauge.cli.options import Quiet, SiteOption
from fedgauge.cli.terminal import print_result, readable_errors, screen, warn, with_progress
from fedgauge.engines.coordinator import Coordinator
from fedgauge.engines.exchange import Exchange, NamedRows, Progress, examine, take_part
from fedgauge.engines.exchange import join as join_with
from fedgauge.engines.exchange import submit as submit_rows
from fedgauge.engines.participant import Participant
from fedgauge.engines.review import Budget, Review
from fedgauge.engines.review import approve as approve_as
from fedgauge.engines.review import review as look_at
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.plan.explain import brief, explain
from fedgauge.secagg import Stage
from fedgauge.site import Site
from fedgauge.site.books import total_of

app = typer.Typer(
    help="The same evaluation by passing files between sites: a shared folder, or e-mail.\n\n"
    "Sites: join, share, submit, confirm, reveal. Coordinator: start, then advance after each. "
    "Officer, where a site has one: review, then approve, before it joins.",
    no_args_is_help=True,
)
Run = Annotated[Path, typer.Argument(help="The folder that the files pass through.")]
Subject = Annotated[
    str | None, typer.Option(help="Column of the subject's id, where the plan protects them.")
]
_FILE = "CSV, TSV (also .gz) or Parquet of scores."
_HERE = Path("site.toml")


@app.command()
def start(
    plan: Annotated[Path, typer.Argument(help="The plan, .toml or .json.")],
    run: Run,
    take_part_too: Annotated[
        bool, typer.Option("--take-part", help="The coordinator is one of the sites.")
    ] = False,
    invite: Annotated[
        list[str] | None, typer.Option(help=r"A peer to invite; again for more. \[default: all]")
    ] = None,
    site_file: SiteOption = _HERE,
    quiet: Quiet = False,
) -> None:
    """Coordinator: invite the peers in the site file to an evaluation.

    Example:

      fedgauge exchange start plan.toml /shared/run-1 --site consortium/site.toml
    """
    with readable_errors():
        site = Site.from_toml(site_file)
        loaded = fg.EvaluationPlan.load(plan)
        members = _invited(site, invite, take_part_too=take_part_too)
        _start(run, site, loaded, members, quiet)


@app.command()
def restart(
    run: Run,
    new: Annotated[Path, typer.Argument(help="An empty or new folder for the next attempt.")],
    without: Annotated[
        list[str] | None,
        typer.Option(
            help=r"A site to leave out; again for more. \[default: those who broke the rules]"
        ),
    ] = None,
    site_file: SiteOption = _HERE,
    quiet: Quiet = False,
) -> None:
    """Coordinator: the same plan once more, without who broke the rules.

    The attempt before is over for the coordinator; sites end it with `exchange abandon`.

    Examples:

      fedgauge exchange restart /shared/run-1 /shared/run-2 --site consortium/site.toml

      fedgauge exchange restart /shared/run-1 /shared/run-2 --without hospital-c
    """
    with readable_errors():
        site = Site.from_toml(site_file)
        before = Exchange(run, site)
        plan = before.invitation().plan
        members = Coordinator(before, site).members_without(without or ())
        _start(new, site, plan, members, quiet)
        Coordinator(before, site).abandon()
    if not quiet:
        screen.print(f"Sites give up the attempt before:\n  fedgauge exchange abandon {run}")
        if not plan.is_noisy:
            warn(
                "The plan is for an exact sum. A site that submitted before keeps to the sites it "
                "submitted with, and refuses others, unless its file says exact_dropouts = true."
            )


def _start(
    run: Path, site: Site, plan: fg.EvaluationPlan, members: list[bytes], quiet: bool
) -> None:
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise fg.ExchangeError(f"cannot make folder {run}: {error.strerror}.") from None
    exchange = Exchange(run, site)
    if any(run.glob("*.fgx")):
        raise fg.ExchangeError(f"{run} holds an exchange already. Start in an empty folder.")
    server = Coordinator(exchange, site).start(plan, members)
    if not quiet:
        screen.print(
            f"Invited {len(members)} sites; {server.needed} must stay to the end.", markup=False
        )
        _say(exchange.progress(), run)


@app.command()
def review(run: Run, site_file: SiteOption = _HERE, quiet: Quiet = False) -> None:
    """Officer: see who asks for what, what the site file says to it, and what it would cost.

    Example:

      fedgauge exchange review /shared/run-1 --site hospital-a/site.toml
    """
    with readable_errors():
        site = Site.from_toml(site_file)
        invitation = Exchange(run, site).invitation()
        seen = look_at(site, invitation)
    if not quiet:
        _say_review(seen, site)
        if site.approvers and seen.refusal is None and seen.approver is None:
            evaluation = invitation.session.hex()[:16]
            screen.print(
                f"To approve:\n  fedgauge exchange approve {run} --evaluation {evaluation} "
                f"--key officer.key --site {site_file}",
                markup=False,
            )


@app.command()
def approve(
    run: Run,
    key: Annotated[Path, typer.Option(help="The approver's key file.")],
    evaluation: Annotated[
        str | None, typer.Option(help="How the id begins of what was reviewed.")
    ] = None,
    site_file: SiteOption = _HERE,
    quiet: Quiet = False,
) -> None:
    """Officer: sign that this site may join, where its file lists approvers.

    What the site would refuse is not signed. Review it first, which prints this command.

    Example:

      fedgauge exchange approve /shared/run-1 --evaluation 3fa9c2d16be0a457 --key officer.key
    """
    with readable_errors():
        site = Site.from_toml(site_file)
        invitation = Exchange(run, site).invitation()
        path = approve_as(site, invitation, SigningKey.load(key), evaluation=evaluation)
    if not quiet:
        session = invitation.session.hex()[:8]
        screen.print(f"Approved evaluation {session} on {site.dataset}: {path}", markup=False)


@app.command()
def join(
    run: Run,
    file: Annotated[Path, typer.Argument(help=_FILE)],
    label: Annotated[str, typer.Option(help="Column of the true label.")],
    score: Annotated[str, typer.Option(help="Column of the score; higher is more positive.")],
    subject: Subject = None,
    site_file: SiteOption = _HERE,
    quiet: Quiet = False,
) -> None:
    """Site, round 1: judge the plan, check the file, set the budget aside, send fresh keys.

    Example:

      fedgauge exchange join /shared/run-1 scores.csv --label y --score p
    """
    with readable_errors():
        site = Site.from_toml(site_file)
        exchange = Exchange(run, site)
        rows = _rows(file, label, score, subject)
        path = with_progress(quiet, lambda: join_with(exchange, site, rows))
        plan = exchange.invitation().plan
    if not quiet:
        screen.print(brief(plan), markup=False)
        screen.print(f"\nJoined: {path}", markup=False)


@app.command()
def share(run: Run, site_file: SiteOption = _HERE, quiet: Quiet = False) -> None:
    """Site, round 2: spread shares of this site's secrets over the others, sealed.

    Example:

      fedgauge exchange share /shared/run-1 --site hospital-a/site.toml
    """
    _answer(run, site_file, Stage.SHARE, quiet)


@app.command()
def submit(
    run: Run,
    file: Annotated[
        Path | None, typer.Argument(help=rf"{_FILE} \[default: as named at join]")
    ] = None,
    label: Annotated[str | None, typer.Option(help="Column of the true label, as at join.")] = None,
    score: Annotated[str | None, typer.Option(help="Column of the score, as at join.")] = None,
    subject: Subject = None,
    site_file: SiteOption = _HERE,
    quiet: Quiet = False,
) -> None:
    """Site, round 3: count the scores, add noise and masks, send the masked counts.

    The rows are those named at join. The budget is spent before they are read.

    Example:

      fedgauge exchange submit /shared/run-1 --site hospital-a/site.toml
    """
    with readable_errors():
        rows = None
        if file is not None:
            if label is None or score is None:
                raise fg.InputError("a file needs --label and --score too, or leave it out.")
            rows = _rows(file, label, score, subject)
        elif (label, score, subject) != (None, None, None):
            raise fg.InputError("columns are named at join. Leave them out, or name the file too.")
        site = Site.from_toml(site_file)
        exchange = Exchange(run, site)
        path = with_progress(quiet, lambda: submit_rows(exchange, site, rows, tell=warn))
    if not quiet:
        screen.print(f"Submitted: {path}", markup=False)


@app.command()
def confirm(run: Run, site_file: SiteOption = _HERE, quiet: Quiet = False) -> None:
    """Site, round 4: sign whose counts are in the sum, unless it would lay one site bare.

    Example:

      fedgauge exchange confirm /shared/run-1 --site hospital-a/site.toml
    """
    _answer(run, site_file, Stage.AGREE, quiet)


@app.command()
def reveal(run: Run, site_file: SiteOption = _HERE, quiet: Quiet = False) -> None:
    """Site, round 5: help to take the masks off the sum; this site's keys are then deleted.

    Example:

      fedgauge exchange reveal /shared/run-1 --site hospital-a/site.toml
    """
    _answer(run, site_file, Stage.OPEN, quiet)


@app.command()
def advance(
    run: Run,
    without_missing: Annotated[
        bool, typer.Option("--without-missing", help="Go on without those who did not answer.")
    ] = False,
    evaluation: Annotated[
        str | None,
        typer.Option(help="Where the invitation was lost: how the evaluation's id begins."),
    ] = None,
    site_file: SiteOption = _HERE,
    quiet: Quiet = False,
) -> None:
    """Coordinator: begin the next round, or compute the result after the last.

    An invitation or a request that was lost is written again.

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
    if isinstance(outcome, Progress):
        if not quiet:
            _say(outcome, run)
        return
    print_result(outcome, quiet=quiet)
    if quiet:
        return
    for told in exchange.progress().faults:
        warn(told)
    screen.print(f"Saved {exchange.result_path}", markup=False)
    check = f"fedgauge verify {exchange.result_path} --key {key_to_text(site.key.public)}"
    screen.print(f"Signed. Readers check it:\n  {check}", markup=False)


@app.command()
def status(run: Run, site_file: SiteOption = _HERE, quiet: Quiet = False) -> None:
    """Say which round it is, what is awaited from whom, and who broke the rules.

    Example:

      fedgauge exchange status /shared/run-1 --site hospital-a/site.toml
    """
    with readable_errors():
        progress = Exchange(run, Site.from_toml(site_file)).progress()
    if not quiet:
        _say(progress, run)


@app.command()
def evidence(
    file: Annotated[Path, typer.Argument(help="evidence.fgx, or what a Flower server wrote.")],
    site_file: SiteOption = _HERE,
    quiet: Quiet = False,
) -> None:
    """Check evidence of who broke the rules of an evaluation, and say what it shows.

    It holds what members signed, so nobody's word is needed.

    Example:

      fedgauge exchange evidence evidence.fgx --site hospital-a/site.toml
    """
    with readable_errors():
        told = examine(file, Site.from_toml(site_file))
    if not quiet:
        screen.print("\n".join(told) or "It shows nothing.", markup=False)


@app.command()
def abandon(run: Run, site_file: SiteOption = _HERE, quiet: Quiet = False) -> None:
    """Stop taking part: delete this site's keys; unspent budget comes back.

    Example:

      fedgauge exchange abandon /shared/run-1 --site hospital-a/site.toml
    """
    with readable_errors():
        site = Site.from_toml(site_file)
        exchange = Exchange(run, site)
        session = exchange.invitation().session
        Coordinator(exchange, site).abandon()
        Participant(site).abandon(session)
        paid = site.ledger.status(session) == "committed"
    if not quiet:
        screen.print(f"Abandoned the evaluation in {run}", markup=False)
        if paid:
            screen.print("Its cost stays: rows were counted, or may have been.", markup=False)


def _rows(file: Path, label: str, score: str, subject: str | None) -> NamedRows:
    return NamedRows(str(file.absolute()), label, score, subject)


def _answer(run: Path, site_file: Path, stage: Stage, quiet: bool) -> None:
    with readable_errors():
        site = Site.from_toml(site_file)
        path = take_part(Exchange(run, site), site, stage)
    if not quiet:
        screen.print(f"Answered: {path}", markup=False)


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


def _say_review(seen: Review, site: Site) -> None:
    lines = [
        f"Asked for by {seen.coordinator}, of {len(seen.sites)} sites: {', '.join(seen.sites)}",
        "",
    ]
    if seen.plan is not None:
        lines += [explain(seen.plan), ""]
    if seen.budget is not None:
        lines += ["The budget", f"  {_budget_in_words(seen.budget, site)}", ""]
    allowed = "Allows it." if seen.refusal is None else f"Refuses it: {seen.refusal}"
    lines += ["The site file", f"  {allowed}", "", "Approval"]
    if not site.approvers:
        lines.append("  None is wanted: the site file lists no approvers.")
    elif seen.approver is not None:
        lines.append(f"  Approved by {seen.approver}.")
    else:
        lines.append("  None yet." if seen.unapproved is None else f"  None: {seen.unapproved}")
    screen.print("\n".join(lines), markup=False)


def _budget_in_words(budget: Budget, site: Site) -> str:
    _, limit, spent, reserved = budget.balance
    cost, now = budget.cost, total_of([spent, reserved])
    if cost is not None and cost.is_exact_sum:
        return (
            f"An exact sum: {budget.exact_sums} on {site.dataset} so far, {budget.exact_sums + 1} "
            f"after it, of {site.policy.exact_sums}."
        )
    told = f"Spent or reserved on {site.dataset}: {now}. Limit: {limit}."
    if cost is None:
        return f"{told} This evaluation is in it already."
    return f"{told} After this evaluation: {total_of([now, cost])}."


def _say(progress: Progress, run: Path) -> None:
    session = progress.invitation.session.hex()[:8]
    screen.print(f"Evaluation {session}, plan {progress.invitation.plan.digest[:8]}", markup=False)
    for told in progress.faults:
        screen.print(told, markup=False)
    if progress.faults:
        screen.print(f"Again without: fedgauge exchange restart {run} NEW", markup=False)
    if progress.finished:
        screen.print("Finished: the result is in result.json", markup=False)
        return
    asked = len(progress.answered) + len(progress.missing)
    screen.print(
        f"Round {progress.stage:d} of {len(Stage)}, {progress.verb}: "
        f"{len(progress.answered)} of {asked} answered",
        markup=False,
    )
    for name, reason in progress.set_aside.items():
        screen.print(f"Set aside {name}: {reason}", markup=False)
    if progress.missing:
        screen.print(f"Waiting for {', '.join(progress.missing)}:", markup=False)
        screen.print(f"  fedgauge exchange {progress.verb} {run}", markup=False)
    else:
        screen.print("Waiting for the coordinator:", markup=False)
        screen.print(f"  fedgauge exchange advance {run}", markup=False)
