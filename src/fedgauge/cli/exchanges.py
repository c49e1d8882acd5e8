"""Commands of the file exchange; here those of sites, one verb for each round."""

import shlex
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

import fedgauge as fg
from fedgauge.cli.coordinating import advance, restart, start
from fedgauge.cli.options import Decimal, Dialect, Quiet, Separator, SiteOption, make_dialect
from fedgauge.cli.progress import HERE, Run, Yes, became, budget_in_words, say_progress
from fedgauge.cli.reviewing import approve, review
from fedgauge.cli.terminal import (
    as_planned,
    readable_errors,
    require_consent,
    say_counted,
    screen,
    warn,
    with_progress,
)
from fedgauge.data.oddities import Counted
from fedgauge.engines.coordinator import Coordinator
from fedgauge.engines.exchange import Exchange, examine, take_part
from fedgauge.engines.exchange import join as join_with
from fedgauge.engines.exchange import submit as submit_rows
from fedgauge.engines.named import NamedLabels, NamedRows, Rows
from fedgauge.engines.participant import Participant
from fedgauge.engines.rehearsal import Rehearsal, rehearse
from fedgauge.plan.explain import brief
from fedgauge.secagg import Stage
from fedgauge.site import Site

app = typer.Typer(
    help="The same evaluation by passing files between sites: a shared folder, or e-mail.\n\n"
    "Sites: check, join, share, submit, confirm, reveal. Coordinator: start, then advance after "
    "each. Officer, where a site has one: review, then approve, before it joins.",
    no_args_is_help=True,
)
Score = Annotated[str | None, typer.Option(help="Column of the score; higher is more positive.")]
Id = Annotated[
    str | None,
    typer.Option("--id", help="Labels apart from scores: column of the id, instead of --score."),
]
BinsFile = Annotated[
    Path | None,
    typer.Option("--bins", help="Labels apart from scores: the bins that this site was sent."),
]
Subject = Annotated[
    str | None, typer.Option(help="Column of the subject's id, where the plan protects them.")
]
_FILE = "CSV, TSV (also .gz) or Parquet of labels and scores, or of labels and ids."


def check(
    run: Run,
    file: Annotated[Path, typer.Argument(help=_FILE)],
    label: Annotated[str, typer.Option(help="Column of the true label.")],
    score: Score = None,
    key: Id = None,
    bins: BinsFile = None,
    subject: Subject = None,
    separator: Separator = None,
    decimal: Decimal = None,
    site_file: SiteOption = HERE,
    quiet: Quiet = False,
) -> None:
    """Site, before it joins: what the site file says to the plan, and what a file would count as.

    Nothing is sent, set aside or stored. What it prints is about rows: it stays at this site. It
    ends with 1 where the site would not join, or would stop.

    Examples:

      fedgauge exchange check /shared/run-1 scores.csv --label y --score p

      fedgauge exchange check /shared/run-1 bought.csv --label bought --id user --bins shop-a.bins
    """
    with readable_errors(by_plan=True):
        site = Site.from_toml(site_file)
        rows = _rows(
            file, label, Columns(score, key, bins, subject), make_dialect(separator, decimal)
        )
        seen = with_progress(quiet, lambda: rehearse(Exchange(run, site), site, rows))
    if not quiet:
        _say_rehearsal(seen, site, rows)
    for told in seen.warnings:
        warn(told)
    if not seen.is_well:
        raise typer.Exit(1)


def join(
    run: Run,
    file: Annotated[Path, typer.Argument(help=_FILE)],
    label: Annotated[str, typer.Option(help="Column of the true label.")],
    score: Score = None,
    key: Id = None,
    bins: BinsFile = None,
    subject: Subject = None,
    separator: Separator = None,
    decimal: Decimal = None,
    site_file: SiteOption = HERE,
    quiet: Quiet = False,
) -> None:
    """Site, round 1: judge the plan, check the file, set the budget aside, send fresh keys.

    `exchange check` says before what it would cost, and what the file would count as.

    Examples:

      fedgauge exchange join /shared/run-1 scores.csv --label y --score p

      fedgauge exchange join run-1 export.csv --label y --score p --separator ';' --decimal ,

      fedgauge exchange join run-1 bought.csv --label bought --id user --bins shop-a.bins
    """
    seen: list[Counted] = []
    with readable_errors(by_plan=True):
        site = Site.from_toml(site_file)
        exchange = Exchange(run, site)
        rows = _rows(
            file, label, Columns(score, key, bins, subject), make_dialect(separator, decimal)
        )
        path = with_progress(
            quiet, lambda: join_with(exchange, site, rows, tell=warn, show=seen.append)
        )
        plan = exchange.invitation().plan
    if not quiet:
        screen.print(f"{brief(plan)}\n", markup=False)
        for counted in seen:
            say_counted(counted)
        screen.print(f"Joined: {path}", markup=False)


def share(run: Run, site_file: SiteOption = HERE, quiet: Quiet = False) -> None:
    """Site, round 2: spread shares of this site's secrets over the others, sealed.

    Example:

      fedgauge exchange share /shared/run-1 --site hospital-a/site.toml
    """
    _answer(run, site_file, Stage.SHARE, quiet)


def submit(
    run: Run,
    file: Annotated[
        Path | None, typer.Argument(help=rf"{_FILE} \[default: as named at join]")
    ] = None,
    label: Annotated[str | None, typer.Option(help="Column of the true label, as at join.")] = None,
    score: Score = None,
    key: Id = None,
    bins: BinsFile = None,
    subject: Subject = None,
    separator: Separator = None,
    decimal: Decimal = None,
    site_file: SiteOption = HERE,
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
            if label is None or (score is None and key is None):
                raise fg.InputError(
                    "a file needs --label and --score too, or --label, --id and --bins. Or leave "
                    "it out."
                )
            rows = _rows(
                file, label, Columns(score, key, bins, subject), make_dialect(separator, decimal)
            )
        elif (label, score, key, bins, subject, separator, decimal) != (None,) * 7:
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


def confirm(run: Run, site_file: SiteOption = HERE, quiet: Quiet = False) -> None:
    """Site, round 4: sign whose counts are in the sum, unless it would lay one site bare.

    Example:

      fedgauge exchange confirm /shared/run-1 --site hospital-a/site.toml
    """
    _answer(run, site_file, Stage.AGREE, quiet)


def reveal(run: Run, site_file: SiteOption = HERE, quiet: Quiet = False) -> None:
    """Site, round 5: help to take the masks off the sum; this site's keys are then deleted.

    Example:

      fedgauge exchange reveal /shared/run-1 --site hospital-a/site.toml
    """
    _answer(run, site_file, Stage.OPEN, quiet)


def status(run: Run, site_file: SiteOption = HERE, quiet: Quiet = False) -> None:
    """Say which round it is, what is awaited from whom, and who broke the rules.

    Example:

      fedgauge exchange status /shared/run-1 --site hospital-a/site.toml
    """
    with readable_errors():
        site = Site.from_toml(site_file)
        progress = Exchange(run, site).progress()
    if not quiet:
        say_progress(progress, run, site)


def evidence(
    file: Annotated[Path, typer.Argument(help="evidence.fgx, or what a Flower server wrote.")],
    site_file: SiteOption = HERE,
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


def abandon(run: Run, yes: Yes = False, site_file: SiteOption = HERE, quiet: Quiet = False) -> None:
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


class Columns(NamedTuple):
    """What was named besides the label."""

    score: str | None
    key: str | None
    bins: Path | None
    subject: str | None


def _rows(file: Path, label: str, named: Columns, dialect: Dialect) -> Rows:
    """Rows of labels and scores or, with bins, of labels apart from scores."""
    path, (score, key, bins, subject) = str(file.absolute()), named
    if score is not None and key is not None:
        raise fg.InputError(
            "--id and --score are one too many: --id goes with bins by id, --score with rows of "
            "both, or with bins by score."
        )
    if bins is None:
        if key is not None:
            raise fg.InputError("--id needs the bins that this site was sent: --bins FILE.")
        if score is None:
            raise fg.InputError(
                "name the column of the score: --score COLUMN. Where labels are apart from scores: "
                "--id COLUMN --bins FILE."
            )
        return NamedRows(path, label, score, subject, **dialect)
    if subject is not None:
        raise fg.InputError("with --bins each label is protected by itself. Leave out --subject.")
    column = score if key is None else key
    if column is None:
        raise fg.InputError(
            "--bins needs the column that names examples: --id COLUMN, or --score COLUMN where "
            "this site scored them itself."
        )
    return NamedLabels(path, label, column, str(bins.absolute()), scored=key is None, **dialect)


def _answer(run: Path, site_file: Path, stage: Stage, quiet: bool) -> None:
    with readable_errors():
        site = Site.from_toml(site_file)
        path = take_part(Exchange(run, site), site, stage)
    if not quiet:
        screen.print(f"Answered: {path}", markup=False)


def _say_rehearsal(seen: Rehearsal, site: Site, rows: Rows) -> None:
    asked = seen.review
    refused = asked.refusal or seen.refusal
    lines = [
        f"Asked for by {asked.coordinator}, of {len(asked.sites)} sites",
        "The site file allows it." if asked.refusal is None else f"Refuses it: {asked.refusal}",
    ]
    if asked.budget is not None:
        lines.append(budget_in_words(asked.budget, asked.joined, site))
    if site.approvers and asked.approver is None:
        lines.append("An approver signs first: fedgauge exchange review")
    if seen.counted is not None:
        lines.append(f"{rows.path} would count as {seen.counted.in_words}")
    if seen.refusal is not None:
        lines.append(f"These rows would be refused: {as_planned(seen.refusal)}")
    lines.append("Nothing was sent or set aside. This is about rows: it stays at this site.")
    if refused is None and asked.joined is None:
        stands = " and what is warned of then stands, once it is submitted" if seen.warnings else ""
        lines.append(f"This site can join{',' if stands else ''}{stands}.")
    elif refused is None and asked.joined is not None:
        lines.append(became(asked.joined))
    screen.print("\n".join(lines), markup=False)


for _verb in (
    start,
    restart,
    review,
    approve,
    check,
    join,
    share,
    submit,
    confirm,
    reveal,
    advance,
    status,
    evidence,
    abandon,
):
    app.command()(_verb)
