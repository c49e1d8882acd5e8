"""Commands about a site's ledger: what its data has cost in privacy, and what is open."""

import math
from enum import StrEnum
from typing import Annotated

import typer
from rich.table import Table

from fedgauge.cli.command import command
from fedgauge.cli.options import HERE, NeighbourKind, SiteOption
from fedgauge.cli.terminal import epsilon_of, print_whole, screen
from fedgauge.engines.participant import Participant, Pending
from fedgauge.errors import LedgerError, SiteError
from fedgauge.site import Account, Balance, Cost, Entry, Site

_LABELS = (
    "label, flip: what all plans on the dataset cost one label that flips. Plans that protect "
    "adding or removing rows (add-remove, zero-out) cost it twice their epsilon."
)

ledger_app = typer.Typer(
    help="Show and limit the privacy cost of a site's evaluations; end open ones.",
    no_args_is_help=True,
)


class LimitedUnit(StrEnum):
    """Units that can have a limit, by name."""

    EXAMPLE = "example"
    SUBJECT = "subject"
    CLIENT = "client"
    LABEL = "label"


@ledger_app.command("show")
@command()
def show_ledger(
    entries: Annotated[bool, typer.Option("--entries", help="List every entry.")] = False,
    site_file: SiteOption = HERE,
) -> None:
    """Show what evaluations of a site's data have cost, and what is left.

    Example:
      fedgauge ledger show --site hospital-a/site.toml --entries
    """
    site = Site.from_toml(site_file)
    balances = site.ledger.balances()
    totals = site.ledger.totals(default_limit=site.policy.default_limit)
    listed = site.ledger.entries() if entries else []
    exact = {name: site.ledger.count_exact(name) for name in site.ledger.datasets()}
    if not balances and not totals:
        screen.print("Nothing has been spent yet.")
        return
    table = Table(box=None, pad_edge=False)
    for column in ("dataset", "unit", "neighbours", "spent", "reserved", "limit", "left"):
        table.add_column(column)
    whole_first = sorted([*totals, *balances], key=lambda row: row.account.dataset)
    for row in whole_first:
        account = row.account
        table.add_row(
            account.dataset,
            account.unit,
            account.neighbours,
            *_amounts(row, site.policy.after_exact(exact[account.dataset])),
        )
    print_whole(table)
    if any(row.account.is_label for row in balances):
        screen.print(_LABELS)
    for entry in listed:
        screen.print(_entry(entry))


@ledger_app.command("pending")
@command()
def show_pending(site_file: SiteOption = HERE) -> None:
    """List the open evaluations of the site, and since when they are open.

    Example:
      fedgauge ledger pending --site hospital-a/site.toml
    """
    listed = Participant(Site.from_toml(site_file)).pending()
    if not listed:
        screen.print("No evaluation is open.")
        return
    table = Table(box=None, pad_edge=False)
    for column in ("evaluation", "since", "dataset", "cost", "state"):
        table.add_column(column)
    for each in listed:
        spend = each.spend
        table.add_row(
            each.session.hex()[:8],
            f"{spend.since:%Y-%m-%d %H:%M} UTC",
            spend.account.dataset,
            _cost(spend.cost),
            _state(each),
        )
    print_whole(table)
    screen.print("`fedgauge ledger release EVALUATION` ends one for good.")


@ledger_app.command("release")
@command()
def release(
    evaluation: Annotated[
        str,
        typer.Argument(
            help="At least the first 8 digits of its id, as `ledger pending` shows them."
        ),
    ],
    site_file: SiteOption = HERE,
) -> None:
    """End an open evaluation: delete its keys and give back the reserved budget.

    Use it if the evaluation came over Flower, or its folder is gone. If rows may have been counted,
    the cost stays.

    Example:
      fedgauge ledger release 3f9a02c1 --site hospital-a/site.toml
    """
    site = Site.from_toml(site_file)
    participant = Participant(site)
    session = site.ledger.find(evaluation)
    if session not in {each.session for each in participant.pending()}:
        status = site.ledger.status(session)
        became = "was released" if status == "released" else "is over, and its cost stays"
        raise LedgerError(
            f"evaluation {session.hex()[:8]} {became}. No keys of it are left to delete."
        )
    participant.abandon(session)
    spends = site.ledger.sessions()
    spend, first = spends[session], spends.get(spends[session].first or b"")
    screen.print(f"Ended evaluation {session.hex()[:8]}; its keys are deleted")
    if spend.status == "released" and (first is None or first.status == "released"):
        shared = "" if spend.flips is None else ", unless another evaluation uses the same flips"
        screen.print(f"Given back to {spend.account}: {_cost(spend.cost)}{shared}")
    else:
        told = (
            f"Spent on {spend.account}, and it stays spent: {_cost(spend.cost)}. Its rows were "
            "counted, "
        )
        screen.print(f"{told}or may have been.")


@ledger_app.command("set-limit")
@command()
def set_limit(
    epsilon: Annotated[
        float, typer.Option(min=0, help="Most epsilon that all evaluations may cost.")
    ],
    delta: Annotated[
        float | None, typer.Option(min=0, max=1, help=r"Most delta. \[default: as it is now]")
    ] = None,
    unit: Annotated[
        LimitedUnit | None,
        typer.Option(
            help="Limit only plans that protect this unit; label: what all plans cost one label. "
            r"\[default: all plans]"
        ),
    ] = None,
    neighbours: Annotated[
        NeighbourKind | None,
        typer.Option(help=r"With --unit: how neighbouring data sets differ. \[default: each]"),
    ] = None,
    site_file: SiteOption = HERE,
) -> None:
    """Limit what all evaluations of the site's data may cost together.

    With --unit the limit is for plans that protect that unit, on top of the limit for all plans.
    --unit label limits what all plans cost one label that flips.

    Examples:
      fedgauge ledger set-limit --epsilon 3
      fedgauge ledger set-limit --epsilon 1 --unit example
      fedgauge ledger set-limit --epsilon 2 --unit label
    """
    site = Site.from_toml(site_file)
    accounts = _limited(site.dataset, unit, neighbours)
    limits = {account: Cost(epsilon, _delta(site, account, delta)) for account in accounts}
    for account, limit in limits.items():
        site.ledger.set_limit(account, limit)
    for account, limit in limits.items():
        screen.print(f"{account}: at most {limit}")


def _delta(site: Site, account: Account, wanted: float | None) -> float:
    if wanted is not None:
        return wanted
    default = site.policy.default_limit
    balances = (*site.ledger.balances(), *site.ledger.totals(default_limit=default))
    limits = [row.limit for row in balances if row.account == account and row.limit is not None]
    return limits[0].delta if limits else default.delta


def _limited(
    dataset: str, unit: LimitedUnit | None, neighbours: NeighbourKind | None
) -> list[Account]:
    if unit is None:
        if neighbours is not None:
            raise SiteError(
                "--neighbours goes with --unit: without --unit the limit is for all plans."
            )
        return [Account.whole(dataset)]
    if unit is LimitedUnit.LABEL:
        if neighbours is not None:
            raise SiteError("--unit label always means a label that flips. Leave --neighbours out.")
        return [Account.labels(dataset)]
    removed = "zero-out" if unit is LimitedUnit.CLIENT else NeighbourKind.ADD_REMOVE.value
    kinds = [neighbours] if neighbours is not None else list(NeighbourKind)
    return [
        Account(dataset, unit.value, removed if kind is NeighbourKind.ADD_REMOVE else kind.value)
        for kind in kinds
    ]


def _entry(entry: Entry) -> str:
    about = [f"{entry.number:>4}  {entry.time:%Y-%m-%d %H:%M} UTC  {entry.kind:<9}"]
    if entry.session is not None:
        about.append(f"evaluation {entry.session.hex()[:8]}")
    if entry.account is not None:
        about.append(str(entry.account))
    if entry.cost is not None:
        about.append(_cost(entry.cost))
    if entry.flips is not None:
        about.append(f"once for flips {entry.flips[:8]}")
    if entry.turn is not None and entry.turn.first is not None:
        about.append(f"once, with evaluation {entry.turn.first.hex()[:8]}")
    if entry.left is not None:
        about.append(f"{entry.left.step}: {entry.left.size:,} bytes")
    if entry.survivors is not None:
        about.append(f"{len(entry.survivors)} sites in the sum")
    return "  ".join(about)


def _state(pending: Pending) -> str:
    told = {
        "reserved": "nothing counted",
        "committed": "counted, or may have been",
        "released": "given back; keys left",
    }[pending.spend.status]
    return f"{told}; time is over" if pending.overdue else told


def _cost(cost: Cost) -> str:
    return "exact sum" if cost.is_exact_sum else str(cost)


def _amounts(row: Balance, after_exact: str) -> tuple[str, str, str, str]:
    _, limit, spent, reserved = row
    if math.isinf(spent.epsilon + reserved.epsilon):
        return epsilon_of(spent), epsilon_of(reserved), after_exact, "-"
    if limit is None:
        return epsilon_of(spent), epsilon_of(reserved), "-", "-"
    left = max(0.0, limit.epsilon - spent.epsilon - reserved.epsilon)
    return epsilon_of(spent), epsilon_of(reserved), epsilon_of(limit), f"{left:g}"
