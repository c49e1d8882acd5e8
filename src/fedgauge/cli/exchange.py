"""`exchange` for sites: one command for each step, and how an operator names rows."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec
import typer

import fedgauge as fg
from fedgauge.cli.command import command
from fedgauge.cli.exchange_coordinator import (
    Run,
    Yes,
    app,
    became,
    budget_in_words,
    progress_fields,
    say_progress,
)
from fedgauge.cli.options import (
    HERE,
    FileOptions,
    ScoreOption,
    SiteOption,
    read_columns,
    read_lists,
    read_pairs,
)
from fedgauge.cli.terminal import (
    as_planned,
    price,
    require_consent,
    say_counted,
    screen,
    warn,
    with_progress,
)
from fedgauge.data.row_checks import RowSummary
from fedgauge.engines.coordinator import Coordinator
from fedgauge.engines.exchange import Exchange, examine, take_part
from fedgauge.engines.exchange import join as join_with
from fedgauge.engines.exchange import submit as submit_rows
from fedgauge.engines.participant import Participant
from fedgauge.engines.review import Rehearsal, rehearse
from fedgauge.errors import InputError
from fedgauge.plan.explain import brief
from fedgauge.secagg import Invitation, Stage
from fedgauge.site import Site
from fedgauge.site.ledger import Spend, total_of
from fedgauge.site.rows import NamedRows, Rows
from fedgauge.vertical.label_party import ROW_KINDS, NamedLabels

FILE = "CSV, TSV (also .gz) or Parquet of labels and scores, or of labels and ids."
_DECLARED = r"\[default: as the site file says]"
_USUAL = "run file label score site_file quiet"
LABEL = "Column of the true label. For several labels a row: fever=y1,cough=y2."


@dataclass(frozen=True, kw_only=True)
class ScoredColumns(FileOptions):
    """Where a file has labels, scores and groups; what the plan asks for is checked later."""

    panel: ClassVar[str] = "Columns and files"

    label: Annotated[str | None, typer.Option(help=f"{LABEL} As at join.")] = None
    score: ScoreOption = None
    class_scores: Annotated[
        list[str] | None,
        typer.Option(
            help="For several classes or labels, the columns of their scores, instead of --score: "
            "cat=p1,dog=p2."
        ),
    ] = None
    model_score: Annotated[
        list[str] | None,
        typer.Option(
            help="For several models, the column of each one's score, instead of --score: new=p2. "
            "With several classes, all columns in the plan's order: new=p1,p2,p3. Repeat it."
        ),
    ] = None
    group: Annotated[
        list[str] | None,
        typer.Option(
            help="For groups, their column, if it is not named as in the plan: sex=gender. Repeat "
            "it."
        ),
    ] = None

    @property
    def keys(self) -> dict[str, object]:
        """What of a row goes with its label, by option."""
        return {
            "--score": self.score,
            "--class-scores": self.class_scores,
            "--model-score": self.model_score,
        }

    def check_one_key(self) -> None:
        """Refuse two ways to say what goes with a label."""
        given = [option for option, value in self.keys.items() if value]
        if len(given) > 1:
            raise InputError(
                f"{' and '.join(given)} do not go together: --id is for bins by id, --score for "
                "rows with one score or bins by score, and the others for plans with several "
                "scores. Leave one out."
            )

    def scored(self, path: str, subject: str | None = None) -> NamedRows:
        """Rows of labels and scores; what a plan asks for beyond them is told once it is read."""
        self.check_one_key()
        label = self.label or ""
        classes = ",".join(self.class_scores or ())
        return NamedRows(
            path,
            read_pairs("--label", label) if "=" in label else label,
            self.score or "",
            subject,
            classes=read_pairs("--class-scores", classes) if classes else {},
            models=read_lists("--model-score", self.model_score or []),
            groups=read_columns("--group", self.group or []),
            **self.dialect,
        )


@dataclass(frozen=True, kw_only=True)
class SiteColumns(ScoredColumns):
    """The same in an exchange, where labels may be apart from scores."""

    key: Annotated[
        str | None,
        typer.Option(
            "--id", help="For labels apart from scores: column of the id, instead of --score."
        ),
    ] = None
    bins: Annotated[
        Path | None,
        typer.Option(help="For labels apart from scores: the file of bins that this site got."),
    ] = None
    subject: Annotated[
        str | None, typer.Option(help="Column of the subject's id, if the plan protects subjects.")
    ] = None

    @property
    def keys(self) -> dict[str, object]:
        """What of a row goes with its label, by option."""
        return {"--id": self.key, **super().keys}

    @property
    def is_whole(self) -> bool:
        """Whether they name a label, and something that goes with it."""
        return self.label is not None and any(self.keys.values())

    def rows(self, file: Path) -> Rows:
        """Rows of labels and scores or, with bins, of labels apart from scores."""
        path = str(file.absolute())  # commands of later rounds may run elsewhere
        if self.bins is not None:
            return self._labels(path, str(self.bins.absolute()))
        if self.key is not None and not self.score:
            raise InputError("--id needs the bins that this site was sent: --bins FILE.")
        return self.scored(path, self.subject)

    def _labels(self, path: str, bins: str) -> NamedLabels:
        self.check_one_key()
        if self.subject is not None:
            raise InputError(
                "--subject does not go with --bins, under which each label is protected by "
                "itself. Leave it out."
            )
        if self.class_scores or self.model_score or self.group:
            raise InputError(
                "with --bins labels are of two classes, one model and no groups. Leave out "
                "--class-scores, --model-score and --group."
            )
        column = self.key or self.score
        if column is None:
            raise InputError(
                "--bins needs the column that names examples: --id COLUMN, or --score COLUMN where "
                "this site scored them itself."
            )
        label = self.label or ""
        return NamedLabels(path, label, column, bins, scored=self.key is None, **self.dialect)

    def or_before(self, file: Path | None, *, is_enough: bool) -> Rows | None:
        """The rows that are named; None where that is left to what was named before."""
        if file is not None:
            if not is_enough:
                raise InputError(
                    "a file needs --label and --score, or --label, --id and --bins. If it was "
                    "named before, or in the site file, leave it out."
                )
            return self.rows(file)
        if self != SiteColumns():
            raise InputError(
                "there are columns but no file. Name the file too, or leave the columns out."
            )
        return None


@app.command(rich_help_panel="Site")
@command(by_plan=True, usual=_USUAL)
def check(
    run: Run,
    file: Annotated[Path | None, typer.Argument(help=rf"{FILE} {_DECLARED}")] = None,
    site_file: SiteOption = HERE,
    *,
    columns: SiteColumns,
) -> None:
    """Site, before it joins: check the plan against the site file, and rows against the plan.

    Nothing is sent or reserved. The output describes rows, so keep it at this site. Exit code 1 if
    the site would not join, or would stop.

    Examples:
      fedgauge exchange check /shared/run-1
      fedgauge exchange check /shared/run-1 scores.csv --label y --score p
      fedgauge exchange check run-1 scores.csv --label y --score p --group sex=gender
      fedgauge exchange check /shared/run-1 bought.csv --label bought --id user --bins shop-a.bins
    """
    site = Site.from_toml(site_file)
    rows = columns.or_before(file, is_enough=columns.label is not None)
    seen = with_progress(lambda: rehearse(Exchange(run, site), site, rows))
    _say_rehearsal(seen, site)
    for told in seen.warnings:
        warn(told)
    if not seen.is_well:
        raise typer.Exit(1)


@app.command(rich_help_panel="Site")
@command(by_plan=True, usual=_USUAL)
def join(
    run: Run,
    file: Annotated[
        Path | None,
        typer.Argument(help=rf"{FILE} {_DECLARED[:-1]}; in a second round, as in the first]"),
    ] = None,
    site_file: SiteOption = HERE,
    *,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Join with rows that look wrong, too.")
    ] = False,
    columns: SiteColumns,
) -> None:
    """Site, round 1: check the plan and the file, reserve the budget, send new keys.

    `exchange check` shows beforehand what it would cost and what would be counted. If the rows look
    wrong, this stops before anything is sent or reserved. Join the second of two rounds without a
    file: it uses the rows of the first and costs nothing more.

    Examples:
      fedgauge exchange join /shared/run-1 scores.csv --label y --score p
      fedgauge exchange join /shared/run-1 --anyway
      fedgauge exchange join run-1 export.csv --label y --score p --separator ';' --decimal ,
      fedgauge exchange join run-1 pets.csv --label kind --class-scores cat=p1,dog=p2
      fedgauge exchange join run-1 both.csv --label y --model-score new=p2 --model-score old=p1
      fedgauge exchange join run-1 bought.csv --label bought --id user --bins shop-a.bins
      fedgauge exchange join run-1
    """
    seen: list[RowSummary] = []
    site = Site.from_toml(site_file)
    exchange = Exchange(run, site)
    # What goes with a label the plan says, and whoever reads it tells what is missing.
    rows = columns.or_before(file, is_enough=columns.label is not None)
    path = with_progress(
        lambda: join_with(
            exchange, site, rows, kinds=ROW_KINDS, tell=warn, show=seen.append, anyway=anyway
        )
    )
    plan = exchange.invitation().plan
    for told in exchange.in_the_way:
        warn(told)
    screen.print(f"{brief(plan)}\n")
    say_counted(seen)
    screen.print(f"Joined: {path}")


@app.command(rich_help_panel="Site")
@command()
def share(run: Run, site_file: SiteOption = HERE) -> None:
    """Site, round 2: send encrypted shares of this site's secrets to the others.

    Example:
      fedgauge exchange share /shared/run-1 --site hospital-a/site.toml
    """
    _answer(run, site_file, Stage.SHARE)


@app.command(rich_help_panel="Site")
@command(by_plan=True, usual=_USUAL)
def submit(
    run: Run,
    file: Annotated[
        Path | None, typer.Argument(help=rf"{FILE} \[default: as named at join]")
    ] = None,
    site_file: SiteOption = HERE,
    *,
    columns: SiteColumns,
) -> None:
    """Site, round 3: count the scores, add noise and masks, send the masked counts.

    It spends the budget, then reads the rows named at join. Only this screen shows how many rows
    there were, and how many were positive, clipped or odd. The first input stands: run again, it
    sends the same bytes.

    Example:
      fedgauge exchange submit /shared/run-1 --site hospital-a/site.toml
    """
    seen: list[RowSummary] = []
    rows = columns.or_before(file, is_enough=columns.is_whole)
    site = Site.from_toml(site_file)
    exchange = Exchange(run, site)
    sent = with_progress(
        lambda: submit_rows(exchange, site, rows, kinds=ROW_KINDS, tell=warn, show=seen.append)
    )
    for told in exchange.in_the_way:
        warn(told)
    if sent.stood:
        warn(
            "this site submitted before, and its first input stands, whatever its file holds "
            f"now. The same bytes are in {sent.path}. To leave, although the budget is spent: "
            f"fedgauge exchange abandon {shlex.quote(run)} --site "
            f"{shlex.quote(str(site_file))} --yes"
        )
    else:
        say_counted(seen)
        screen.print(f"Submitted: {sent.path}")


@app.command(rich_help_panel="Site")
@command()
def confirm(run: Run, site_file: SiteOption = HERE) -> None:
    """Site, round 4: sign which sites are in the sum; refuses if that would expose a single site.

    Example:
      fedgauge exchange confirm /shared/run-1 --site hospital-a/site.toml
    """
    _answer(run, site_file, Stage.AGREE)


@app.command(rich_help_panel="Site")
@command()
def reveal(run: Run, site_file: SiteOption = HERE) -> None:
    """Site, round 5: help to unmask the sum, then delete this site's keys.

    Example:
      fedgauge exchange reveal /shared/run-1 --site hospital-a/site.toml
    """
    _answer(run, site_file, Stage.OPEN)


@app.command(rich_help_panel="Everybody")
@command()
def status(
    run: Run,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as one line of JSON.")] = False,
    site_file: SiteOption = HERE,
) -> None:
    """Show the current round, who has not answered yet, and who broke the rules.

    Examples:
      fedgauge exchange status /shared/run-1 --site hospital-a/site.toml
      fedgauge exchange status s3://shared/run-1 --json --site hospital-a/site.toml
    """
    site = Site.from_toml(site_file)
    exchange = Exchange(run, site)
    progress = exchange.progress()
    if as_json:
        typer.echo(msgspec.json.encode(progress_fields(progress, run, exchange)))
    else:
        say_progress(progress, run, site)


@app.command(rich_help_panel="Everybody")
@command()
def evidence(
    file: Annotated[Path, typer.Argument(help="evidence.fgx, or what a Flower server wrote.")],
    site_file: SiteOption = HERE,
) -> None:
    """Check evidence that a member broke the rules, and say what it shows.

    It contains signed messages, so you need not trust whoever sent it.

    Example:
      fedgauge exchange evidence evidence.fgx --site hospital-a/site.toml
    """
    told = examine(file, Site.from_toml(site_file))
    screen.print("\n".join(told) or "It shows nothing.")


@app.command(rich_help_panel="Everybody")
@command()
def abandon(run: Run, yes: Yes = False, site_file: SiteOption = HERE) -> None:
    """Stop taking part: delete this site's keys; unspent budget comes back.

    If its numbers have left, it asks first: their cost stays, and the other sites may lose theirs
    too.

    Examples:
      fedgauge exchange abandon /shared/run-1 --site hospital-a/site.toml
      fedgauge exchange abandon /shared/run-1 --site hospital-a/site.toml --yes
    """
    site = Site.from_toml(site_file)
    exchange = Exchange(run, site)
    sessions = _sessions(exchange.invitation())
    _require_leave(exchange, site, run, yes=yes)
    finished = exchange.progress().finished
    Coordinator(exchange, site).abandon()
    Participant(site).abandon(*sessions)
    screen.print(f"Abandoned the evaluation in {run}")
    known = [site.ledger.sessions().get(session) for session in sessions]
    paid = [spend for spend in known if spend is not None and spend.status == "committed"]
    if paid:  # of two rounds in the first, for both
        lost = "" if finished else " Unless the others can finish without this site, it is lost."
        screen.print(f"{_spent(paid[-1], site)}{lost}")


def _spent(spend: Spend, site: Site) -> str:
    """What an evaluation cost for good, and how the budget stands."""
    dataset, told = spend.account.dataset, f"Its cost stays spent: {price(spend.cost)}"
    if spend.cost.is_exact_sum:
        count = site.ledger.count_exact(dataset)
        left = f"{count} of {site.policy.exact_sums} exact sums are used"
    else:
        total = site.ledger.total(dataset, default_limit=site.policy.default_limit)
        used = price(total_of([total.spent, total.reserved]))
        limit = "" if total.limit is None else f" of {price(total.limit)}"
        left = f"{used}{limit} is spent or reserved"
    return f"{told}. On {dataset} {left}."


def _sessions(invitation: Invitation) -> list[bytes]:
    """The sessions of an evaluation: of two rounds that of the second, then that of the first."""
    return [invitation.session, *([] if invitation.follows is None else [invitation.follows])]


def _require_leave(exchange: Exchange, site: Site, run: str, *, yes: bool) -> None:
    """Ask before an attempt is given up that was paid for and can still come to a result."""
    progress, participant = exchange.progress(), Participant(site)
    *second, first = sessions = _sessions(progress.invitation)
    starts = progress.invitation.coordinator == site.key.public
    if not (starts or any(map(participant.has_joined, sessions))):
        raise fg.ExchangeError(
            f"site {site.name!r} did not join the evaluation in {run}, so there is nothing to "
            "abandon. Name the site file of a site that joined with --site."
        )
    if progress.finished:
        return
    two = progress.invitation.plan.has_two_rounds
    if two and participant.is_between(first, *second):
        costs = (
            f"{site.name} sent its numbers in the first of two rounds, which spent the budget of "
            "both, and the other sites need it in the second."
        )
    elif participant.has_left(sessions[0]):
        costs = (
            f"{site.name} sent its numbers, which spent its budget, and the other sites need it "
            "until `reveal`: without it they may have spent theirs for nothing."
        )
    elif progress.paid and Coordinator(exchange, site).is_under_way:
        costs = (
            f"{progress.paid} sites have spent budget on the attempt in {run}, and another one "
            "costs it again."
        )
    else:
        return
    require_consent(f"{costs} Waiting costs nothing.", yes=yes)


def _answer(run: str, site_file: Path, stage: Stage) -> None:
    site = Site.from_toml(site_file)
    exchange = Exchange(run, site)
    path = take_part(exchange, site, stage)
    for told in exchange.in_the_way:
        warn(told)
    screen.print(f"Answered: {path}")


def _say_rehearsal(seen: Rehearsal, site: Site) -> None:
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
    if seen.judged is not None:
        lines.append(f"{seen.judged.path} would count as {seen.judged.counted.in_words}")
        if seen.judged.figures:
            lines.append(f"  at this site alone: {seen.judged.figures}")
    if seen.refusal is not None:
        lines.append(f"These rows would be refused: {as_planned(seen.refusal)}")
    lines.append("Nothing was sent or reserved. This describes rows: keep it at this site.")
    if seen.stops:
        lines.append("This site stops before it joins (findings), unless it joins with --anyway.")
    elif refused is None and asked.joined is None:
        stands = (
            " but the warnings above apply, and an input cannot be changed once it is submitted"
            if seen.warnings
            else ""
        )
        lines.append(f"This site can join{',' if stands else ''}{stands}.")
    elif refused is None and asked.joined is not None:
        lines.append(became(asked.joined))
    screen.print("\n".join(lines))
