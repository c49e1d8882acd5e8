"""Commands of the file exchange: one verb per round for sites, two for the coordinator."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

import fedgauge as fg
from fedgauge.cli.options import Decimal, Dialect, Quiet, Separator, SiteOption, make_dialect
from fedgauge.cli.terminal import (
    as_planned,
    print_result,
    readable_errors,
    require_consent,
    say_counted,
    screen,
    warn,
    with_progress,
)
from fedgauge.data.oddities import Counted
from fedgauge.engines.coordinator import Coordinator
from fedgauge.engines.exchange import Exchange, Progress, examine, take_part
from fedgauge.engines.exchange import join as join_with
from fedgauge.engines.exchange import submit as submit_rows
from fedgauge.engines.named import NamedRows
from fedgauge.engines.participant import Participant
from fedgauge.engines.rehearsal import Rehearsal, rehearse
from fedgauge.engines.review import NAMED_BY, Budget, Joined, Review
from fedgauge.engines.review import approve as approve_as
from fedgauge.engines.review import review as look_at
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.plan.explain import brief, explain
from fedgauge.privacy.belief import chance
from fedgauge.secagg import Invitation, Stage
from fedgauge.site import Cost, Site
from fedgauge.site.books import total_of

app = typer.Typer(
    help="The same evaluation by passing files between sites: a shared folder, or e-mail.\n\n"
    "Sites: check, join, share, submit, confirm, reveal. Coordinator: start, then advance after "
    "each. Officer, where a site has one: review, then approve, before it joins.",
    no_args_is_help=True,
)
Run = Annotated[Path, typer.Argument(help="The folder that the files pass through.")]
Subject = Annotated[
    str | None, typer.Option(help="Column of the subject's id, where the plan protects them.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask, though it was paid for by then.")]
_FILE = "CSV, TSV (also .gz) or Parquet of scores."
_HERE = Path("site.toml")
_COVERED = (
    "  You approve the plan, the sites, the coordinator and the dataset's name. Which file and "
    "which model's scores stand behind that name, the operator chooses at `join`. Write both on "
    "the form."
)


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
    yes: Yes = False,
    site_file: SiteOption = _HERE,
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
        plan = before.invitation().plan
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
        _say(exchange.progress(), run, site)


@app.command()
def review(run: Run, site_file: SiteOption = _HERE, quiet: Quiet = False) -> None:
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
            screen.print(
                f"{_COVERED}\n\nTo approve:\n  fedgauge exchange approve {run} --evaluation "
                f"{evaluation} --key officer.key --site {site_file}",
                markup=False,
            )


@app.command()
def approve(
    run: Run,
    key: Annotated[Path, typer.Option(help="The approver's key file.")],
    evaluation: Annotated[
        str, typer.Option(help=f"How the id begins of what was reviewed: {NAMED_BY} digits.")
    ],
    site_file: SiteOption = _HERE,
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
            f"  on {site.dataset}, at a cost of {_price(site.cost(plan))}",
        ]
        screen.print("\n".join(lines), markup=False)


@app.command()
def check(
    run: Run,
    file: Annotated[Path, typer.Argument(help=_FILE)],
    label: Annotated[str, typer.Option(help="Column of the true label.")],
    score: Annotated[str, typer.Option(help="Column of the score; higher is more positive.")],
    subject: Subject = None,
    separator: Separator = None,
    decimal: Decimal = None,
    site_file: SiteOption = _HERE,
    quiet: Quiet = False,
) -> None:
    """Site, before it joins: what the site file says to the plan, and what a file would count as.

    Nothing is sent, set aside or stored. What it prints is about rows: it stays at this site. It
    ends with 1 where the site would not join, or would stop.

    Example:

      fedgauge exchange check /shared/run-1 scores.csv --label y --score p
    """
    with readable_errors(by_plan=True):
        site = Site.from_toml(site_file)
        rows = _rows(file, label, score, subject, make_dialect(separator, decimal))
        seen = with_progress(quiet, lambda: rehearse(Exchange(run, site), site, rows))
    if not quiet:
        _say_rehearsal(seen, site, rows)
    for told in seen.warnings:
        warn(told)
    if not seen.is_well:
        raise typer.Exit(1)


@app.command()
def join(
    run: Run,
    file: Annotated[Path, typer.Argument(help=_FILE)],
    label: Annotated[str, typer.Option(help="Column of the true label.")],
    score: Annotated[str, typer.Option(help="Column of the score; higher is more positive.")],
    subject: Subject = None,
    separator: Separator = None,
    decimal: Decimal = None,
    site_file: SiteOption = _HERE,
    quiet: Quiet = False,
) -> None:
    """Site, round 1: judge the plan, check the file, set the budget aside, send fresh keys.

    `exchange check` says before what it would cost, and what the file would count as.

    Examples:

      fedgauge exchange join /shared/run-1 scores.csv --label y --score p

      fedgauge exchange join run-1 export.csv --label y --score p --separator ';' --decimal ,
    """
    seen: list[Counted] = []
    with readable_errors(by_plan=True):
        site = Site.from_toml(site_file)
        exchange = Exchange(run, site)
        rows = _rows(file, label, score, subject, make_dialect(separator, decimal))
        path = with_progress(
            quiet, lambda: join_with(exchange, site, rows, tell=warn, show=seen.append)
        )
        plan = exchange.invitation().plan
    if not quiet:
        screen.print(f"{brief(plan)}\n", markup=False)
        for counted in seen:
            say_counted(counted)
        screen.print(f"Joined: {path}", markup=False)


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
    separator: Separator = None,
    decimal: Decimal = None,
    site_file: SiteOption = _HERE,
    quiet: Quiet = False,
) -> None:
    """Site, round 3: count the scores, add noise and masks, send the masked counts.

    The rows are those named at join. The budget is spent before they are read. It says, on this
    screen only, how many there were, how many of them positive, clipped or odd. What was counted
    once stands: run again, it sends the same bytes.

    Example:

      fedgauge exchange submit /shared/run-1 --site hospital-a/site.toml
    """
    seen: list[Counted] = []
    with readable_errors(by_plan=True):
        rows = None
        if file is not None:
            if label is None or score is None:
                raise fg.InputError("a file needs --label and --score too, or leave it out.")
            rows = _rows(file, label, score, subject, make_dialect(separator, decimal))
        elif (label, score, subject, separator, decimal) != (None,) * 5:
            raise fg.InputError("columns are named at join. Leave them out, or name the file too.")
        site = Site.from_toml(site_file)
        exchange = Exchange(run, site)
        sent = with_progress(
            quiet, lambda: submit_rows(exchange, site, rows, tell=warn, show=seen.append)
        )
    if sent.stood:
        warn(
            "this site submitted before, and its first input stands, whatever its file holds now. "
            f"The same bytes are in {sent.path}. To leave, though it is paid for: fedgauge "
            f"exchange abandon {shlex.quote(str(run))} --site {shlex.quote(str(site_file))} --yes"
        )
    elif not quiet:
        for counted in seen:
            say_counted(counted)
        screen.print(f"Submitted: {sent.path}", markup=False)


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
            _say(outcome, run, site)
        return
    print_result(outcome, quiet=quiet)
    for told in exchange.progress().faults:
        warn(told)
    if quiet:
        return
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
        site = Site.from_toml(site_file)
        progress = Exchange(run, site).progress()
    if not quiet:
        _say(progress, run, site)


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
def abandon(
    run: Run, yes: Yes = False, site_file: SiteOption = _HERE, quiet: Quiet = False
) -> None:
    """Stop taking part: delete this site's keys; unspent budget comes back.

    Where its numbers have left it asks first: what they cost stays, and others may lose it too.

    Examples:

      fedgauge exchange abandon /shared/run-1 --site hospital-a/site.toml

      fedgauge exchange abandon /shared/run-1 --site hospital-a/site.toml --yes
    """
    with readable_errors():
        site = Site.from_toml(site_file)
        exchange = Exchange(run, site)
        session = exchange.invitation().session
        _require_leave(exchange, site, run, yes=yes)
        Coordinator(exchange, site).abandon()
        Participant(site).abandon(session)
        paid = site.ledger.status(session) == "committed"
    if not quiet:
        screen.print(f"Abandoned the evaluation in {run}", markup=False)
        if paid:
            screen.print("Its cost stays: rows were counted, or may have been.", markup=False)


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


def _require_leave(exchange: Exchange, site: Site, run: Path, *, yes: bool) -> None:
    """Ask before an attempt is given up that was paid for and can still come to a result."""
    progress, participant = exchange.progress(), Participant(site)
    session = progress.invitation.session
    starts = progress.invitation.coordinator == site.key.public
    if not (starts or participant.has_joined(session)):
        raise fg.ExchangeError(
            f"site {site.name!r} did not join the evaluation in {run}, so there is nothing to "
            "abandon. Name the site file of who did with --site."
        )
    if progress.finished:
        return
    if participant.has_left(session):
        require_consent(
            f"the numbers of {site.name} have left and are paid for, and the others need it until "
            "`reveal`: without it they may have paid for nothing. Waiting costs nothing.",
            yes=yes,
        )
    elif progress.paid and Coordinator(exchange, site).is_under_way:
        require_consent(
            f"{progress.paid} sites have paid for the attempt in {run}, and pay again for another "
            "one. Waiting costs nothing.",
            yes=yes,
        )


def _rows(file: Path, label: str, score: str, subject: str | None, dialect: Dialect) -> NamedRows:
    return NamedRows(str(file.absolute()), label, score, subject, **dialect)


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


def _asked_by(seen: Review) -> str:
    return f"Asked for by {seen.coordinator}, of {len(seen.sites)} sites: {', '.join(seen.sites)}"


def _say_review(seen: Review, site: Site) -> None:
    lines = [_asked_by(seen), ""]
    if seen.plan is not None:
        lines += [explain(seen.plan), ""]
    if seen.budget is not None:
        lines += ["The budget", f"  {_budget_in_words(seen.budget, seen.joined, site)}", ""]
    if seen.joined is not None:
        lines += ["How far it is", f"  {_became(seen.joined)}", ""]
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


def _became(joined: Joined) -> str:
    when, cost = f"{joined.time:%Y-%m-%d %H:%M} UTC", _price(joined.cost)
    match joined.status:
        case "reserved":
            return f"This site joined on {when}. It has counted nothing yet; set aside: {cost}."
        case "released":
            return f"This evaluation is over here: abandoned on {when}, nothing spent."
    if joined.over:
        return f"This evaluation is over here: counted on {when}, cost {cost}."
    return f"This site counted on {when}, cost {cost}. It has not opened the sum yet."


def _budget_in_words(budget: Budget, joined: Joined | None, site: Site) -> str:
    if budget.cost.is_exact_sum:
        count = budget.exact_sums
        told = f"Exact sums on {site.dataset}: {count}. Limit: {site.policy.exact_sums}."
        after = str(count + 1)
    else:
        now = total_of([budget.spent, budget.reserved])
        told = f"Spent or reserved on {site.dataset}: {_price(now)}. Limit: {_price(budget.limit)}."
        after = _price(total_of([now, budget.cost]))
    if joined is None:
        return f"{told} After this evaluation: {after}."
    return told if joined.status == "released" else f"{told} This evaluation is in it."


def _price(cost: Cost) -> str:
    """A cost as an officer reads it."""
    if cost.is_exact_sum:
        return "one exact sum"
    return f"epsilon {cost.epsilon:.12g}, delta {chance(cost.delta) if cost.delta else 0}"


def _say_rehearsal(seen: Rehearsal, site: Site, rows: NamedRows) -> None:
    asked = seen.review
    refused = asked.refusal or seen.refusal
    lines = [
        f"Asked for by {asked.coordinator}, of {len(asked.sites)} sites",
        "The site file allows it." if asked.refusal is None else f"Refuses it: {asked.refusal}",
    ]
    if asked.budget is not None:
        lines.append(_budget_in_words(asked.budget, asked.joined, site))
    if site.approvers and asked.approver is None:
        lines.append("An approver signs first: fedgauge exchange review")
    if seen.counted is not None:
        lines.append(f"{rows.path} would count as {seen.counted.in_words}")
    if seen.refusal is not None:
        lines.append(f"These rows would be refused: {as_planned(seen.refusal)}")
    lines.append("Nothing was sent or set aside. This is about rows: it stays at this site.")
    if refused is None:
        lines.append("This site can join." if asked.joined is None else _became(asked.joined))
    screen.print("\n".join(lines), markup=False)


def _say(progress: Progress, run: Path, site: Site) -> None:
    session = progress.invitation.session.hex()[:8]
    screen.print(f"Evaluation {session}, plan {progress.invitation.plan_digest[:8]}", markup=False)
    for told in progress.faults:
        screen.print(told, markup=False)
    if progress.proved:
        screen.print(
            f"Again without: fedgauge exchange restart {shlex.quote(str(run))} NEW", markup=False
        )
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
        mine = site.name in progress.missing
        screen.print(f"Waiting for {', '.join(progress.missing)}:", markup=False)
        screen.print(f"  {_command(progress.verb, run, progress, site, mine=mine)}", markup=False)
        if progress.stage > Stage.MASK:
            screen.print(
                "All of them have paid: wait. To start again would charge everybody once more.",
                markup=False,
            )
    else:
        mine = progress.invitation.coordinator == site.key.public
        screen.print("Waiting for the coordinator:", markup=False)
        screen.print(f"  {_command('advance', run, progress, site, mine=mine)}", markup=False)


def _command(verb: str, run: Path, progress: Progress, site: Site, *, mine: bool) -> str:
    """A step as it is typed; `mine` says whether it is this site's."""
    words = ["fedgauge exchange", verb, shlex.quote(str(run))]
    if verb == "join":
        words.append("FILE --label COLUMN --score COLUMN")
        words += ["--subject COLUMN"] if _wants_subjects(progress.invitation, site) else []
    # Of others only they know where their site file is.
    words.append(f"--site {shlex.quote(str(site.path)) if mine else 'site.toml'}")
    return " ".join(words)


def _wants_subjects(invitation: Invitation, site: Site) -> bool:
    """Whether rows need ids; a stranger's plan is not read for that."""
    if invitation.coordinator not in {*site.coordinators, site.key.public}:
        return False
    cap = invitation.plan.privacy.unit_cap
    return cap is not None and cap.unit == "subject"
