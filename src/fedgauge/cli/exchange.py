"""`exchange` for sites: one command for each step, and how an operator names rows."""

import shlex
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

import fedgauge as fg
from fedgauge.cli.exchange_coordinator import (
    HERE,
    Run,
    Yes,
    advance,
    approve,
    became,
    budget_in_words,
    restart,
    review,
    say_progress,
    start,
)
from fedgauge.cli.options import (
    Decimal,
    DialectOptions,
    Quiet,
    Separator,
    SiteOption,
    joined,
    make_dialect,
    read_columns,
    read_lists,
    read_pairs,
)
from fedgauge.cli.terminal import (
    as_planned,
    readable_errors,
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
from fedgauge.engines.site_rows import NamedRows, Rows
from fedgauge.errors import InputError
from fedgauge.plan.explain import brief
from fedgauge.secagg import Invitation, Stage
from fedgauge.site import Site
from fedgauge.vertical.label_party import ROW_KINDS, NamedLabels

FILE = "CSV, TSV (also .gz) or Parquet of labels and scores, or of labels and ids."
_LABEL = "Column of the true label; of several labels a row, of each: fever=y1,cough=y2."
Label = Annotated[str, typer.Option(help=_LABEL)]
LabelAgain = Annotated[str | None, typer.Option("--label", help=f"{_LABEL} As at join.")]
Score = Annotated[str | None, typer.Option(help="Column of the score; higher is more positive.")]
ClassScores = Annotated[
    list[str] | None,
    typer.Option(
        help="Where the plan has several classes, or labels a row: columns of their scores, "
        "instead of --score: cat=p1,dog=p2."
    ),
]
ModelScores = Annotated[
    list[str] | None,
    typer.Option(
        help="Where the plan has several models: column of the score of each, instead of --score: "
        "new=p2. Of several classes, columns in the plan's order: new=p1,p2,p3. Repeat it."
    ),
]
Groups = Annotated[
    list[str] | None,
    typer.Option(
        help="Where the plan has groups: their column, unless it has the plan's name: sex=gender. "
        "Repeat it."
    ),
]
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


class SiteColumns(NamedTuple):
    """What was named of a file: each as its option has it."""

    label: str | None
    score: str | None
    class_scores: str | None
    model_scores: list[str] | None
    groups: list[str] | None
    key: str | None = None
    bins: Path | None = None
    subject: str | None = None

    def rows(self, file: Path, dialect: DialectOptions) -> Rows:
        """Rows of labels and scores or, with bins, of labels apart from scores."""
        path = str(file.absolute())  # commands of later rounds may run elsewhere
        if self.bins is not None:
            return self._labels(path, str(self.bins.absolute()), dialect)
        if self.key is not None and not self.score:
            raise InputError("--id needs the bins that this site was sent: --bins FILE.")
        return self.scored(path, dialect)

    def _check_one_key(self) -> None:
        given = [option for option, value in self._keys.items() if value]
        if len(given) > 1:
            raise InputError(
                f"{' and '.join(given)} are one too many: --id goes with bins by id, --score with "
                "rows that have one, or with bins by score, and the others with plans for several."
            )

    @property
    def is_whole(self) -> bool:
        """Whether they name a label, and something that goes with it."""
        return self.label is not None and any(self._keys.values())

    @property
    def _keys(self) -> dict[str, object]:
        """What of a row goes with its label, by option."""
        return {
            "--id": self.key,
            "--score": self.score,
            "--class-scores": self.class_scores,
            "--model-score": self.model_scores,
        }

    def scored(self, path: str, dialect: DialectOptions) -> NamedRows:
        """Rows of labels and scores; what a plan asks for beyond them is told once it is read."""
        self._check_one_key()
        label = self.label or ""
        return NamedRows(
            path,
            read_pairs("--label", label) if "=" in label else label,
            self.score or "",
            self.subject,
            classes=read_pairs("--class-scores", self.class_scores) if self.class_scores else {},
            models=read_lists("--model-score", self.model_scores or []),
            groups=read_columns("--group", self.groups or []),
            **dialect,
        )

    def _labels(self, path: str, bins: str, dialect: DialectOptions) -> NamedLabels:
        self._check_one_key()
        if self.subject is not None:
            raise InputError("with --bins each label is protected by itself. Leave out --subject.")
        if self.class_scores or self.model_scores or self.groups:
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
        return NamedLabels(path, label, column, bins, scored=self.key is None, **dialect)


app = typer.Typer(
    help="The same evaluation by passing files between sites: a shared folder, or e-mail.\n\n"
    "Sites: check, join, share, submit, confirm, reveal. Coordinator: start, then advance after "
    "each. Officer, where a site has one: review, then approve, before it joins.",
    no_args_is_help=True,
)


def check(
    run: Run,
    file: Annotated[Path, typer.Argument(help=FILE)],
    label: Label,
    score: Score = None,
    class_scores: ClassScores = None,
    model_score: ModelScores = None,
    group: Groups = None,
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

      fedgauge exchange check run-1 scores.csv --label y --score p --group sex=gender

      fedgauge exchange check /shared/run-1 bought.csv --label bought --id user --bins shop-a.bins
    """
    with readable_errors(by_plan=True):
        site = Site.from_toml(site_file)
        named = SiteColumns(
            label, score, joined(class_scores), model_score, group, key, bins, subject
        )
        rows = named.rows(file, make_dialect(separator, decimal))
        seen = with_progress(quiet, lambda: rehearse(Exchange(run, site), site, rows))
    if not quiet:
        _say_rehearsal(seen, site, rows)
    for told in seen.warnings:
        warn(told)
    if not seen.is_well:
        raise typer.Exit(1)


def join(
    run: Run,
    file: Annotated[
        Path | None, typer.Argument(help=rf"{FILE} \[default, in a second round: as in the first]")
    ] = None,
    label: LabelAgain = None,
    score: Score = None,
    class_scores: ClassScores = None,
    model_score: ModelScores = None,
    group: Groups = None,
    key: Id = None,
    bins: BinsFile = None,
    subject: Subject = None,
    separator: Separator = None,
    decimal: Decimal = None,
    site_file: SiteOption = HERE,
    quiet: Quiet = False,
) -> None:
    """Site, round 1: judge the plan, check the file, set the budget aside, send fresh keys.

    `exchange check` says before what it would cost, and what the file would count as. Of two rounds
    the second is joined without a file: its rows are those of the first, and it costs nothing more.

    Examples:

      fedgauge exchange join /shared/run-1 scores.csv --label y --score p

      fedgauge exchange join run-1 export.csv --label y --score p --separator ';' --decimal ,

      fedgauge exchange join run-1 pets.csv --label kind --class-scores cat=p1,dog=p2

      fedgauge exchange join run-1 both.csv --label y --model-score new=p2 --model-score old=p1

      fedgauge exchange join run-1 bought.csv --label bought --id user --bins shop-a.bins

      fedgauge exchange join run-1
    """
    seen: list[RowSummary] = []
    with readable_errors(by_plan=True):
        site = Site.from_toml(site_file)
        exchange = Exchange(run, site)
        named = SiteColumns(
            label, score, joined(class_scores), model_score, group, key, bins, subject
        )
        # What goes with a label the plan says, and whoever reads it tells what is missing.
        is_enough = label is not None
        rows = _rows(file, named, make_dialect(separator, decimal), is_enough=is_enough)
        path = with_progress(
            quiet,
            lambda: join_with(exchange, site, rows, kinds=ROW_KINDS, tell=warn, show=seen.append),
        )
        plan = exchange.invitation().plan
    for told in exchange.in_the_way:
        warn(told)
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
        Path | None, typer.Argument(help=rf"{FILE} \[default: as named at join]")
    ] = None,
    label: LabelAgain = None,
    score: Score = None,
    class_scores: ClassScores = None,
    model_score: ModelScores = None,
    group: Groups = None,
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
    seen: list[RowSummary] = []
    with readable_errors(by_plan=True):
        named = SiteColumns(
            label, score, joined(class_scores), model_score, group, key, bins, subject
        )
        dialect = make_dialect(separator, decimal)
        rows = _rows(file, named, dialect, is_enough=named.is_whole)
        site = Site.from_toml(site_file)
        exchange = Exchange(run, site)
        sent = with_progress(
            quiet,
            lambda: submit_rows(exchange, site, rows, kinds=ROW_KINDS, tell=warn, show=seen.append),
        )
    for told in exchange.in_the_way:
        warn(told)
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
        sessions = _sessions(exchange.invitation())
        _require_leave(exchange, site, run, yes=yes)
        Coordinator(exchange, site).abandon()
        Participant(site).abandon(*sessions)
        paid = "committed" in map(site.ledger.status, sessions)
    if not quiet:
        screen.print(f"Abandoned the evaluation in {run}", markup=False)
        if paid:
            screen.print("Its cost stays: rows were counted, or may have been.", markup=False)


def _sessions(invitation: Invitation) -> list[bytes]:
    """The sessions of an evaluation: of two rounds that of the second, then that of the first."""
    return [invitation.session, *([] if invitation.follows is None else [invitation.follows])]


def _require_leave(exchange: Exchange, site: Site, run: Path, *, yes: bool) -> None:
    """Ask before an attempt is given up that was paid for and can still come to a result."""
    progress, participant = exchange.progress(), Participant(site)
    *second, first = sessions = _sessions(progress.invitation)
    starts = progress.invitation.coordinator == site.key.public
    if not (starts or any(map(participant.has_joined, sessions))):
        raise fg.ExchangeError(
            f"site {site.name!r} did not join the evaluation in {run}, so there is nothing to "
            "abandon. Name the site file of who did with --site."
        )
    if progress.finished:
        return
    two = progress.invitation.plan.has_two_rounds
    if two and participant.is_between(first, *second):
        require_consent(
            f"the numbers of {site.name} in the first of two rounds have left and are paid for, "
            "for both, and the others need it in the second. Waiting costs nothing.",
            yes=yes,
        )
    elif participant.has_left(sessions[0]):
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


def _rows(
    file: Path | None, named: SiteColumns, dialect: DialectOptions, *, is_enough: bool
) -> Rows | None:
    """The rows that were named; None where that is left to what was named before."""
    if file is not None:
        if not is_enough:
            raise fg.InputError(
                "a file needs --label and --score too, or --label, --id and --bins. Or leave it "
                "out, once it was named."
            )
        return named.rows(file, dialect)
    if any(named) or dialect != make_dialect(None, None):
        raise fg.InputError("columns are named with a file. Leave them out, or name it too.")
    return None


def _answer(run: Path, site_file: Path, stage: Stage, quiet: bool) -> None:
    with readable_errors():
        site = Site.from_toml(site_file)
        exchange = Exchange(run, site)
        path = take_part(exchange, site, stage)
    for told in exchange.in_the_way:
        warn(told)
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
