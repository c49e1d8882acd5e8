"""`exchange` for coordinators and officers: start, advance, review, approve."""

import shlex
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, ClassVar, Final

import msgspec
import typer

import fedgauge as fg
from fedgauge.cli.command import command
from fedgauge.cli.options import HERE, Every, SiteOption
from fedgauge.cli.terminal import (
    fail,
    price,
    print_result,
    require_consent,
    screen,
    warn,
    with_progress,
)
from fedgauge.engines.coordinator import Coordinator, EvaluationSeries, Finished, Waiting
from fedgauge.engines.exchange import HOLDS_ONE, Exchange, Progress, knows, place_of
from fedgauge.engines.folder import is_remote, open_folder
from fedgauge.engines.review import NAMED_BY, BudgetState, JoinedSession, Review
from fedgauge.engines.review import approve as approve_as
from fedgauge.engines.review import review as look_at
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.plan import plan as plans
from fedgauge.plan.explain import explain
from fedgauge.secagg import Invitation, Stage
from fedgauge.site import Site
from fedgauge.site.ledger import total_of
from fedgauge.site.rows import PERIODS, column_options
from fedgauge.vertical.files import Totals, totals_for

app = typer.Typer(
    help="Evaluate between sites by passing files, through a shared folder or e-mail.\n\nSites: "
    "check, join, share, submit, confirm, reveal. Coordinator: start, then advance after each "
    "step. Officer, if a site has one: review and approve before the site joins.",
    no_args_is_help=True,
)
Run = Annotated[
    str,
    typer.Argument(help="The folder that the files pass through, or its address (s3://, sftp://)."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask, even if budget was spent.")]


def say_progress(progress: Progress, run: str, site: Site) -> None:
    """Say which round it is, who is awaited, and what they do."""
    session = progress.invitation.session.hex()[:8]
    screen.print(f"Evaluation {session}, plan {progress.invitation.plan_digest[:8]}")
    for told in progress.faults:
        screen.print(told)
    if progress.proved:
        screen.print(f"Again without: fedgauge exchange restart {shlex.quote(run)} NEW")
    if progress.finished:
        screen.print(f"Finished: the result is in {progress.result}")
        return
    asked = len(progress.answered) + len(progress.missing)
    where = f"round {progress.stage:d} of {len(Stage)}"
    if knows(site, progress.invitation):
        where = place_of(progress.invitation.plan, progress.stage)
    screen.print(
        f"{where.capitalize()}, {progress.verb}: {len(progress.answered)} of {asked} answered"
    )
    for name, reason in progress.set_aside.items():
        screen.print(f"Set aside {name}: {reason}")
    if progress.missing:
        mine = site.name in progress.missing
        screen.print(f"Waiting for {', '.join(progress.missing)}:")
        command = _command(progress.verb, run, progress, site, mine=mine)
        screen.print(f"  {command}")
        if progress.stage > Stage.MASK:
            screen.print(
                "All of them have spent their budget: wait. Starting again would charge everybody "
                "again."
            )
    else:
        mine = progress.invitation.coordinator == site.key.public
        screen.print("Waiting for the coordinator:")
        screen.print(f"  {_command('advance', run, progress, site, mine=mine)}")


def progress_fields(progress: Progress, run: str, exchange: Exchange) -> dict[str, object]:
    """The same as plain data."""
    waits = None if progress.finished else "sites" if progress.missing else "coordinator"
    return {
        "evaluation": progress.invitation.session.hex()[:8],
        "plan": progress.invitation.plan_digest[:8],
        "folder": run,
        "second": progress.invitation.follows is not None,
        "round": int(progress.stage),
        "step": progress.verb,
        "answered": progress.answered,
        "missing": progress.missing,
        "waits_for": waits,
        "paid": progress.paid,
        "result": exchange.result_path if progress.finished else None,
        "set_aside": progress.set_aside,
        "faults": progress.faults,
        "proved": progress.proved,
    }


def _command(verb: str, run: str, progress: Progress, site: Site, *, mine: bool) -> str:
    """A step as it is typed; `mine` says whether it is this site's."""
    words = ["fedgauge exchange", verb, shlex.quote(run)]
    if verb == "join" and progress.invitation.follows is None:  # once for both of two rounds
        words.append(f"FILE {_columns(progress.invitation, site)}")
    # Of others only they know where their site file is.
    words.append(f"--site {shlex.quote(str(site.path)) if mine else 'site.toml'}")
    return " ".join(words)


def _columns(invitation: Invitation, site: Site) -> str:
    """What is named of a file; a stranger's plan is not read for that."""
    if not knows(site, invitation):
        return "--label COLUMN --score COLUMN"
    plan = invitation.plan
    if plan.task.of_labels:
        key = "--score" if plan.task.self_scored else "--id"
        return f"--label COLUMN {key} COLUMN --bins FILE"
    cap = plan.privacy.unit_cap
    of_subjects = cap is not None and cap.unit == "subject"
    return column_options(plan.task) + " --subject COLUMN" * of_subjects


def became(joined: JoinedSession) -> str:
    """What became of an evaluation that this site joined."""
    when, cost = f"{joined.time:%Y-%m-%d %H:%M} UTC", price(joined.cost)
    match joined.status:
        case "reserved":
            return f"This site joined on {when}. It has counted nothing yet. Reserved: {cost}."
        case "released":
            return f"This evaluation is over here: abandoned on {when}, nothing spent."
    if joined.between:
        return f"This site counted on {when}, cost {cost}. The second round costs nothing more."
    if joined.over:
        return f"This evaluation is over here: counted on {when}, cost {cost}."
    return f"This site counted on {when}, cost {cost}. It has not opened the sum yet."


def budget_in_words(budget: BudgetState, joined: JoinedSession | None, site: Site) -> str:
    """What is spent, what is allowed, and what there would be after."""
    if budget.cost.is_exact_sum:
        count = budget.exact_sums
        told = f"Exact sums on {budget.dataset}: {count}. Limit: {site.policy.exact_sums}."
        after = str(count + budget.sums)
    else:
        now = total_of([budget.spent, budget.reserved])
        told = f"Spent or reserved on {budget.dataset}: {price(now)}. Limit: {price(budget.limit)}."
        after = price(total_of([now, budget.cost]))
    if joined is None:
        return f"{told} After this evaluation: {after}."
    return told if joined.status == "released" else f"{told} This evaluation is in it."


_STILL_WAITING: Final = 3  # an exit code
_UNITS: Final = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a run waits, and for whom."""

    panel: ClassVar[str] = "How long to wait"

    deadline: Annotated[
        str | None,
        typer.Option(
            help="How long a round waits for all, such as 3d, 12h or 30m. After it, the run goes "
            "on without the others if the plan allows it, or ends with exit code 3."
        ),
    ] = None
    min_sites: Annotated[
        int, typer.Option(help="Fewest answers with which it goes on after the deadline.")
    ] = 0
    restart: Annotated[
        bool,
        typer.Option(
            "--restart", help="If a site breaks the rules, begin again without it; all pay again."
        ),
    ] = False
    once: Annotated[
        bool, typer.Option("--once", help="Do what can be done now. Exit code 3: not done yet.")
    ] = False
    every: Every = 10.0

    def as_time(self) -> timedelta | None:
        """The deadline of a round."""
        if self.deadline is None:
            return None
        try:
            patience = timedelta(**{_UNITS[self.deadline[-1:]]: float(self.deadline[:-1])})
        except (KeyError, ValueError, OverflowError):
            patience = None
        if patience is None or patience < timedelta():
            raise fg.InputError(
                f"--deadline is a time such as 3d, 12h or 30m, got {self.deadline!r}."
            )
        return patience


@app.command("run", rich_help_panel="Coordinator")
@command(usual="plan folder deadline once site_file quiet")
def run_unattended(
    plan: Annotated[Path, typer.Argument(help="The plan, .toml or .json.")],
    folder: Annotated[str, typer.Argument(help="The folder that holds all evaluations.")],
    take_part_too: Annotated[
        bool, typer.Option("--take-part", help="The coordinator takes part as one of the sites.")
    ] = False,
    invite: Annotated[
        list[str] | None,
        typer.Option(help=r"A peer to invite; may be repeated. \[default: all]"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what is new as lines of JSON.")
    ] = False,
    site_file: SiteOption = HERE,
    *,
    patience: Patience,
) -> None:
    """Coordinator: one evaluation from invitation to result, for sites with an agent.

    Its files are in a folder of their own, named by day and evaluation, with result.json and
    report.html in the end. Stopped and run again, it goes on where it was. Exit codes: 0 there is a
    result, 1 it could not finish, 2 wrong input, 3 sites have not answered yet.

    Examples:
      fedgauge exchange run plan.toml /shared/stroke --site consortium/site.toml
      fedgauge exchange run plan.toml /shared/stroke --deadline 3d --site consortium/site.toml
      fedgauge exchange run plan.toml /shared/stroke --once --json --site consortium/site.toml
    """
    site = Site.from_toml(site_file)
    loaded = fg.EvaluationPlan.load(plan)
    totals = totals_for(site, loaded)
    if totals is None or invite:
        members = _invited(site, invite, take_part_too=take_part_too)
    else:
        members = _given_bins(site, totals)
    run = EvaluationSeries(
        folder,
        site,
        loaded,
        members,
        totals=totals_for,
        deadline=patience.as_time(),
        min_sites=patience.min_sites,
        restart=patience.restart,
    )
    with run.alone():
        told = ""
        while isinstance(step := run.step(plans.now()), Waiting):
            line = _waiting_line(step, as_json=as_json)
            if line != told:
                _say_line(line, as_json=as_json)
            told = line
            if patience.once or step.overdue:
                fail("it is not done yet. Run this again to go on.", _STILL_WAITING)
            time.sleep(patience.every)
        _say_finished(step, site, as_json=as_json)
        run.close()


def _waiting_line(step: Waiting, *, as_json: bool) -> str:
    """Where a run is, and who is awaited."""
    progress = step.progress
    session = progress.invitation.session.hex()[:8]
    if as_json:
        fields = {
            "event": "overdue" if step.overdue else "waiting",
            "evaluation": session,
            "folder": step.place,
            "round": int(progress.stage),
            "step": progress.verb,
            "answered": progress.answered,
            "missing": progress.missing,
            "set_aside": progress.set_aside,
            "faults": progress.faults,
        }
        return msgspec.json.encode(fields).decode()
    asked = len(progress.answered) + len(progress.missing)
    where = place_of(progress.invitation.plan, progress.stage).capitalize()
    line = f"Evaluation {session}. {where}, {progress.verb}: {len(progress.answered)} of {asked}"
    if progress.missing:
        late = " The deadline is over, and the plan needs them." if step.overdue else ""
        line += f" answered; waiting for {', '.join(progress.missing)}.{late}"
    aside = [f"Set aside {name}: {reason}" for name, reason in progress.set_aside.items()]
    return "\n".join([line, *progress.faults, *aside])


def _say_line(line: str, *, as_json: bool) -> None:
    if as_json:
        typer.echo(line)
    else:
        screen.print(line)


def _say_finished(step: Finished, site: Site, *, as_json: bool) -> None:
    """Write the report, and say where things are."""
    from fedgauge.report.page import report  # it takes a while to load

    result = step.exchange.result_path
    place = step.exchange.write_report(report({step.place: step.result}))
    for told in step.exchange.in_the_way:
        warn(told)
    if as_json:
        typer.echo(msgspec.json.encode({"event": "finished", "result": result, "report": place}))
        return
    print_result(step.result)
    screen.print(f"Saved {' and '.join(filter(None, (result, place)))}")
    screen.print(f"Readers check it with --key {key_to_text(site.key.public)}")


@app.command(rich_help_panel="Coordinator")
@command()
def start(
    plan: Annotated[Path, typer.Argument(help="The plan, .toml or .json.")],
    run: Run,
    take_part_too: Annotated[
        bool, typer.Option("--take-part", help="The coordinator takes part as one of the sites.")
    ] = False,
    invite: Annotated[
        list[str] | None,
        typer.Option(
            help=r"A peer to invite; may be repeated. \[default: all, or all that got bins]"
        ),
    ] = None,
    site_file: SiteOption = HERE,
) -> None:
    """Coordinator: invite the peers in the site file to an evaluation.

    With labels apart from scores, the scorer starts it and invites the parties that got bins.

    Examples:
      fedgauge exchange start plan.toml /shared/run-1 --site consortium/site.toml
      fedgauge exchange start assigned/plan.toml /shared/run-1 --site platform/site.toml
    """
    site = Site.from_toml(site_file)
    loaded = fg.EvaluationPlan.load(plan)
    totals = totals_for(site, loaded)
    if totals is None or invite:
        members = _invited(site, invite, take_part_too=take_part_too)
    else:
        members = _given_bins(site, totals)
    _start(run, site, loaded, members)


@app.command(rich_help_panel="Coordinator")
@command()
def restart(
    run: Run,
    new: Annotated[str, typer.Argument(help="An empty or new folder for the next attempt.")],
    without: Annotated[
        list[str] | None,
        typer.Option(
            help=r"A site to leave out; may be repeated. \[default: those that broke the rules]"
        ),
    ] = None,
    yes: Yes = False,
    site_file: SiteOption = HERE,
) -> None:
    """Coordinator: start the same plan again, without sites that broke the rules.

    This ends the earlier attempt for the coordinator; sites end it with `exchange abandon`. It asks
    first if sites have sent their numbers, because they then pay twice.

    Examples:
      fedgauge exchange restart /shared/run-1 /shared/run-2 --site consortium/site.toml
      fedgauge exchange restart /shared/run-1 /shared/run-2 --without hospital-c --yes
    """
    site = Site.from_toml(site_file)
    before = Exchange(run, site)
    plan = before.invitation().plan.whole
    members = Coordinator(before, site).members_without(without or ())
    paid = _require_restart(before, run, site, yes=yes)
    _start(new, site, plan, members)
    Coordinator(before, site).abandon()
    end = f"fedgauge exchange abandon {shlex.quote(run)}{' --yes' if paid else ''}"
    screen.print(f"Sites end the earlier attempt with:\n  {end}")
    if not plan.is_noisy:
        warn(
            "The plan is for an exact sum. A site that submitted before accepts only the same "
            "sites again, unless its file says exact_dropouts = true."
        )


@app.command(rich_help_panel="Coordinator")
@command()
def advance(
    run: Run,
    without_missing: Annotated[
        bool, typer.Option("--without-missing", help="Continue without sites that did not answer.")
    ] = False,
    evaluation: Annotated[
        str | None,
        typer.Option(help="If the invitation was lost: the first digits of the evaluation's id."),
    ] = None,
    site_file: SiteOption = HERE,
) -> None:
    """Coordinator: begin the next round, or compute the result after the last.

    The second of two rounds has its own invitation, in a folder inside this one; the commands stay
    the same. A lost invitation or request is written again.

    Examples:
      fedgauge exchange advance /shared/run-1 --site consortium/site.toml
      fedgauge exchange advance /shared/run-1 --evaluation 3fa9c2d1 --site consortium/site.toml
    """
    site = Site.from_toml(site_file)
    exchange = Exchange(run, site)
    coordinator = Coordinator(exchange, site, totals=totals_for)
    outcome = with_progress(
        lambda: coordinator.advance(without_missing=without_missing, evaluation=evaluation)
    )
    for told in exchange.in_the_way:
        warn(told)
    if isinstance(outcome, Progress):
        say_progress(outcome, run, site)
        return
    print_result(outcome)
    for told in exchange.progress().faults:
        warn(told)
    screen.print(f"Saved {exchange.result_path}")
    place = exchange.result_path
    result = place.rpartition("/")[2] if is_remote(run) else shlex.quote(place)
    copy = " copy it and" if is_remote(run) else ""
    check = f"fedgauge verify {result} --key {key_to_text(site.key.public)}"
    screen.print(f"Signed. Readers{copy} check it:\n  {check}")


def _start(run: str, site: Site, plan: fg.EvaluationPlan, members: list[bytes]) -> None:
    folder = open_folder(run)
    folder.make()
    if folder.names("*.fgx"):
        raise fg.ExchangeError(HOLDS_ONE.format(folder))
    exchange = Exchange(folder, site)
    server = Coordinator(exchange, site, totals=totals_for).start(plan, members)
    screen.print(f"Invited {len(members)} sites; {server.needed} must stay to the end.")
    say_progress(exchange.progress(), run, site)


def _require_restart(before: Exchange, run: str, site: Site, *, yes: bool) -> int:
    """Ask before another attempt charges sites again; how many have paid for this one."""
    progress = before.progress()
    if progress.paid:
        waits = "Where sites are only late, waiting costs nothing."
        over = f"It is finished: its result is {before.result_path}."
        cost = price(site.cost(progress.invitation.plan))
        require_consent(
            f"{progress.paid} sites have spent {cost} on the attempt in {run}, which is lost "
            "unless it ends with a result, and another one costs as much again. "
            f"{over if progress.finished else waits}",
            yes=yes,
        )
    return progress.paid


def _given_bins(site: Site, totals: Totals) -> list[bytes]:
    """The label parties of an assignment, as long as all are still trusted."""
    strangers = [key_to_text(party) for party in totals.parties if party not in site.peers]
    if strangers:
        raise fg.SiteError(
            f"{', '.join(strangers)} got bins but is no longer a peer in {site.path}. Trust it "
            "again, or name the peers to invite: --invite NAME."
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


_COVERED: Final = (
    "  You approve the plan, the sites, the coordinator and the dataset's name. The operator "
    "chooses at `join` which file and which model's scores to use under that name. Write both on "
    "the form."
)


@app.command(rich_help_panel="Officer")
@command()
def review(run: Run, site_file: SiteOption = HERE) -> None:
    """Officer: show who asks for what, whether the site file allows it, and what it would cost.

    Example:
      fedgauge exchange review /shared/run-1 --site hospital-a/site.toml
    """
    site = Site.from_toml(site_file)
    exchange = Exchange(run, site)
    invitation = exchange.invitation()
    seen = look_at(site, invitation)
    finished = seen.plan is not None and exchange.is_finished(invitation)
    if finished:
        screen.print(f"It is finished: its result is {exchange.result_path}\n")
    _say_review(seen, site)
    if site.approvers and seen.can_be_approved:
        evaluation = invitation.session.hex()[:NAMED_BY]
        folder, site_path = shlex.quote(run), shlex.quote(str(site_file))
        screen.print(
            f"{_COVERED}\n\nTo approve:\n  fedgauge exchange approve {folder} --evaluation "
            f"{evaluation} --key officer.key --site {site_path}"
        )


@app.command(rich_help_panel="Officer")
@command()
def approve(
    run: Run,
    key: Annotated[Path, typer.Option(help="The approver's key file.")],
    evaluation: Annotated[
        str, typer.Option(help=f"The first {NAMED_BY} digits of the id of the reviewed evaluation.")
    ],
    site_file: SiteOption = HERE,
) -> None:
    """Officer: sign that this site may join, where its file lists approvers.

    Run `exchange review` first; it prints this command to copy. Nothing is signed that the site
    would refuse.

    Example:
      fedgauge exchange approve run-1 --evaluation 3fa9c2d16be0a4573fa9c2d16be0a457 --key my.key
    """
    site = Site.from_toml(site_file)
    exchange = Exchange(run, site)
    invitation = exchange.invitation()
    exchange.require_open(invitation)
    path = approve_as(site, invitation, SigningKey.load(key), evaluation=evaluation)
    seen = look_at(site, invitation)
    plan, session = invitation.plan, invitation.session.hex()[:NAMED_BY]
    dataset = site.in_session(invitation.session).dataset
    lines = [
        f"Approved evaluation {session}, kept in {path}. Signed:",
        f"  plan {plan.digest[:NAMED_BY]}",
        f"  {_asked_by(seen)}",
        f"  on {dataset}, at a cost of {price(site.cost(plan))}",
    ]
    screen.print("\n".join(lines))


def _asked_by(seen: Review) -> str:
    return f"Asked for by {seen.coordinator}, of {len(seen.sites)} sites: {', '.join(seen.sites)}"


def _say_review(seen: Review, site: Site) -> None:
    lines = [_asked_by(seen), ""]
    if seen.plan is not None:
        lines += [explain(seen.plan), ""]
    if seen.budget is not None:
        lines += ["The budget", f"  {budget_in_words(seen.budget, seen.joined, site)}"]
        lines += [f"  {PERIODS}"] * site.has_periods + [""]
    if seen.joined is not None:
        lines += ["How far it is", f"  {became(seen.joined)}", ""]
    if seen.joined is None or not seen.joined.over:
        allowed = "Allows it." if seen.refusal is None else f"Refuses it: {seen.refusal}"
        lines += ["The site file", f"  {allowed}", ""]
    lines.append("Approval")
    if not site.approvers:
        lines.append("  No approval is needed: the site file lists no approvers.")
    elif seen.approver is not None:
        lines.append(f"  Approved by {seen.approver}.")
    else:
        lines.append("  None yet." if seen.unapproved is None else f"  None: {seen.unapproved}")
    screen.print("\n".join(lines))
