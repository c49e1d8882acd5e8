"""What commands of the file exchange share: how far it is, what is next, what it costs."""

import shlex
from pathlib import Path
from typing import Annotated, Final

import typer

from fedgauge.cli.terminal import screen
from fedgauge.engines.exchange import Progress, knows, place_of
from fedgauge.engines.named import column_options
from fedgauge.engines.review import Budget, Joined
from fedgauge.plan.task import LabelTask
from fedgauge.privacy.belief import chance
from fedgauge.secagg import Invitation, Stage
from fedgauge.site import Cost, Site
from fedgauge.site.books import total_of

Run = Annotated[Path, typer.Argument(help="The folder that the files pass through.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask, though it was paid for by then.")]
HERE: Final = Path("site.toml")


def say_progress(progress: Progress, run: Path, site: Site) -> None:
    """Say which round it is, who is awaited, and what they do."""
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
    where = f"round {progress.stage:d} of {len(Stage)}"
    if knows(site, progress.invitation):
        where = place_of(progress.invitation.plan, progress.stage)
    screen.print(
        f"{where.capitalize()}, {progress.verb}: {len(progress.answered)} of {asked} answered",
        markup=False,
    )
    for name, reason in progress.set_aside.items():
        screen.print(f"Set aside {name}: {reason}", markup=False)
    if progress.missing:
        mine = site.name in progress.missing
        screen.print(f"Waiting for {', '.join(progress.missing)}:", markup=False)
        command = _command(progress.verb, run, progress, site, mine=mine)
        screen.print(f"  {command}", markup=False)
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
    if isinstance(plan.task, LabelTask):
        key = "--score" if plan.task.self_scored else "--id"
        return f"--label COLUMN {key} COLUMN --bins FILE"
    cap = plan.privacy.unit_cap
    of_subjects = cap is not None and cap.unit == "subject"
    return column_options(plan.task) + " --subject COLUMN" * of_subjects


def became(joined: Joined) -> str:
    """What became of an evaluation that this site joined."""
    when, cost = f"{joined.time:%Y-%m-%d %H:%M} UTC", price(joined.cost)
    match joined.status:
        case "reserved":
            return f"This site joined on {when}. It has counted nothing yet; set aside: {cost}."
        case "released":
            return f"This evaluation is over here: abandoned on {when}, nothing spent."
    if joined.between:
        return f"This site counted on {when}, cost {cost}. The second round costs nothing more."
    if joined.over:
        return f"This evaluation is over here: counted on {when}, cost {cost}."
    return f"This site counted on {when}, cost {cost}. It has not opened the sum yet."


def budget_in_words(budget: Budget, joined: Joined | None, site: Site) -> str:
    """What is spent, what is allowed, and what there would be after."""
    if budget.cost.is_exact_sum:
        count = budget.exact_sums
        told = f"Exact sums on {site.dataset}: {count}. Limit: {site.policy.exact_sums}."
        after = str(count + budget.sums)
    else:
        now = total_of([budget.spent, budget.reserved])
        told = f"Spent or reserved on {site.dataset}: {price(now)}. Limit: {price(budget.limit)}."
        after = price(total_of([now, budget.cost]))
    if joined is None:
        return f"{told} After this evaluation: {after}."
    return told if joined.status == "released" else f"{told} This evaluation is in it."


def price(cost: Cost) -> str:
    """A cost as an officer reads it."""
    if cost.is_exact_sum:
        return "one exact sum"
    return f"epsilon {cost.epsilon:.12g}, delta {chance(cost.delta) if cost.delta else 0}"
