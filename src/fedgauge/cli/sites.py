"""Commands about a site: its key, whom it trusts, and what its data has cost in privacy."""

import math
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.measure import Measurement
from rich.table import Table

from fedgauge.cli.options import Model, NeighbourKind, Quiet, SiteOption, UnitKind
from fedgauge.cli.terminal import readable_errors, screen
from fedgauge.doctor import examine
from fedgauge.engines.participant import Participant, Pending
from fedgauge.errors import LedgerError, SiteError
from fedgauge.keys import key_to_text
from fedgauge.site import (
    Account,
    Cost,
    Entry,
    Policy,
    Site,
    add_approver,
    add_trust,
    add_witness,
    create_site,
    migrate_site,
    name_dataset,
    new_ledger,
)
from fedgauge.site.log import Left, to_csv, what_left
from fedgauge.storage import durable

_WIDEST: Final = 1000  # characters, more than a row of names and digests has

site_app = typer.Typer(help="Make and show a site: its key, its limits, whom it trusts.")
ledger_app = typer.Typer(
    help="Show and limit what the evaluations of a site's data cost; end those that are open."
)


def doctor(
    site_file: Annotated[
        Path | None, typer.Option("--site", help="The site file to look at.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="The folder that the files of an exchange pass through.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Look whether everything is in place: installation, site, ledger, folder.

    Each finding comes with its remedy. Ends with 1 when something must be mended.

    Examples:

      fedgauge doctor

      fedgauge doctor --site hospital-a/site.toml --run /shared/run-1
    """
    findings = examine(site_file, run)
    if not quiet:
        table = Table(show_header=False, box=None, pad_edge=False)
        for finding in findings:
            table.add_row(finding.state, finding.about, finding.told)
        screen.print(table)
    if any(finding.state == "mend" for finding in findings):
        raise typer.Exit(1)


@site_app.command("init")
def init(
    name: Annotated[str, typer.Option(help="Name of this site, as others will see it.")],
    dataset: Annotated[str, typer.Option(help="Name of the data its privacy budget is about.")],
    folder: Annotated[Path, typer.Argument(help="Where site.toml and site.key go.")] = Path(),
    models: Annotated[
        list[Model] | None,
        typer.Option("--allow", help=r"Privacy models allowed. \[default: those with noise]"),
    ] = None,
    allow_exact: Annotated[
        bool,
        typer.Option("--allow-exact", help="Also sums without noise; the file says what follows."),
    ] = False,
    positive: Annotated[
        list[str] | None,
        typer.Option(help=r"A label that plans may call positive; again for more. \[default: 1]"),
    ] = None,
    min_cohort: Annotated[int, typer.Option(help="Fewest sites in a sum.")] = 3,
    max_epsilon: Annotated[float, typer.Option(help="Most that one evaluation may cost.")] = 1.0,
    max_bins: Annotated[int, typer.Option(help="Finest axis allowed.")] = 4096,
    score_sums: Annotated[
        bool, typer.Option("--score-sums", help="Allow plans that sum up scores within bins.")
    ] = False,
    budget: Annotated[float, typer.Option(help="Most epsilon that all may cost.")] = 10.0,
    quiet: Quiet = False,
) -> None:
    """Make a site: a private key that never leaves, a file of what it allows, a ledger.

    Examples:

      fedgauge site init --name hospital-a --dataset stroke-2026 hospital-a

      fedgauge site init --name hospital-a --dataset stroke-2026 --positive yes --allow-exact
    """
    with readable_errors():
        policy = Policy(
            models=_allowed(models, allow_exact=allow_exact),
            labels=tuple(positive or Policy().labels),
            min_cohort=min_cohort,
            max_epsilon=max_epsilon,
            max_bins=max_bins,
            score_sums=score_sums,
            budget_epsilon=budget,
        )
        site = create_site(folder, name=name, dataset=dataset, policy=policy)
    if quiet:
        return
    screen.print(f"Made {site.path} and {site.key_path}", markup=False)
    screen.print("Tell your partners this key, so that they can check who told them:")
    screen.print(f"  fedgauge site trust {site.name} {key_to_text(site.key.public)}", markup=False)


@site_app.command("migrate")
def migrate(
    allow_exact: Annotated[
        bool, typer.Option("--allow-exact", help="Allow sums without noise, as before.")
    ] = False,
    site_file: SiteOption = Path("site.toml"),
    quiet: Quiet = False,
) -> None:
    """Write the site file of an earlier version anew. The old one is kept beside it.

    Earlier versions allowed exact sums unless told not to; now they must be asked for. The
    ledger stays as it is.

    Example:

      fedgauge site migrate --site hospital-a/site.toml
    """
    with readable_errors():
        aside = migrate_site(site_file, allow_exact=allow_exact)
        site = Site.from_toml(site_file)
    if not quiet:
        exact = "allowed" if allow_exact else "not allowed (--allow-exact)"
        screen.print(f"Wrote {site_file} anew; the old one is {aside}", markup=False)
        screen.print(f"Exact sums are {exact}. Read it through.", markup=False)
        if not site.ledger_path.exists():
            screen.print(
                f"There is no ledger {site.ledger_path}. Put it and its head back or, if this site "
                "never took part in anything, run `fedgauge ledger new`.",
                markup=False,
            )


@site_app.command("dataset")
def dataset(
    name: Annotated[str, typer.Argument(help="A new name for new data, or an earlier one.")],
    site_file: SiteOption = Path("site.toml"),
    quiet: Quiet = False,
) -> None:
    """Give the site's data a new name, once they are new data; or go back to an earlier one.

    Budgets and exact sums are counted by name, so a new one starts with none. Do not use it to
    get around a budget: whoever compares the results sees through both.

    Example:

      fedgauge site dataset stroke-2026-week-2 --site hospital-a/site.toml
    """
    with readable_errors():
        known = name in Site.from_toml(site_file).ledger.datasets()
        site = name_dataset(site_file, name)
    if not quiet:
        stands = "its ledger goes on" if known else "nothing is spent on it: for new data only"
        screen.print(f"The data of {site.name} are now {site.dataset}; {stands}", markup=False)


@site_app.command("witness")
def witness(
    path: Annotated[Path, typer.Argument(help="A file on another disk, a share or a stick.")],
    site_file: SiteOption = Path("site.toml"),
    quiet: Quiet = False,
) -> None:
    """Keep a second copy of the ledger's head elsewhere, and notice old copies of the site by it.

    From then on the site takes part only while that file is in reach. It must not be among what
    is backed up, put back or cloned together with the site's folder.

    Example:

      fedgauge site witness /mnt/share/hospital-a.head --site hospital-a/site.toml
    """
    with readable_errors():
        site = add_witness(site_file, path)
    if not quiet:
        screen.print(f"{site.witness_path} is the witness of {site.name}", markup=False)


@site_app.command("show")
def show(site_file: SiteOption = Path("site.toml"), quiet: Quiet = False) -> None:
    """Show a site's public key, limits, peers, coordinators and approvers.

    Example:

      fedgauge site show --site hospital-a/site.toml
    """
    with readable_errors():
        site = Site.from_toml(site_file)
    if not quiet:
        screen.print(_site_table(site))


@site_app.command("log")
def log(
    csv: Annotated[
        str | None, typer.Option(help="Write all values to this file, or with - to the screen.")
    ] = None,
    site_file: SiteOption = Path("site.toml"),
    quiet: Quiet = False,
) -> None:
    """Show what left this site: when, for whom, how many bytes, their hash, what it cost.

    The hash is that of the file in the exchange's folder, or of the file of reports.

    Examples:

      fedgauge site log --site hospital-a/site.toml

      fedgauge site log --csv left.csv --site hospital-a/site.toml
    """
    with readable_errors():
        rows = what_left(Site.from_toml(site_file))
        if csv not in (None, "-"):
            _write_new(Path(csv), to_csv(rows))
    if csv == "-":
        typer.echo(to_csv(rows), nl=False)
    elif csv is not None and not quiet:
        screen.print(f"Saved {csv}: {len(rows):,} rows", markup=False)
    elif not quiet:
        _print_whole(_log_table(rows)) if rows else screen.print("Nothing left yet.")


@site_app.command("trust")
def trust(
    name: Annotated[str, typer.Argument(help="Name of the partner.")],
    key: Annotated[str, typer.Argument(help="Its public key: ed25519:...")],
    coordinator: Annotated[
        bool, typer.Option("--coordinator", help="It may start evaluations; it adds no data.")
    ] = False,
    approver: Annotated[
        bool, typer.Option("--approver", help="Nothing is joined that no approver signed.")
    ] = False,
    site_file: SiteOption = Path("site.toml"),
    quiet: Quiet = False,
) -> None:
    """Approve a partner by its key. Compare keys over another channel first.

    Examples:

      fedgauge site trust hospital-b ed25519:Xk...

      fedgauge site trust consortium ed25519:9f... --coordinator

      fedgauge site trust officer ed25519:4c... --approver
    """
    with readable_errors():
        if coordinator and approver:
            raise SiteError("who starts evaluations does not approve of them. Choose one of both.")
        add_trust(
            site_file,
            "coordinator" if coordinator else "approver" if approver else "peer",
            name,
            key,
        )
    if not quiet:
        role = "may start evaluations" if coordinator else "is an approved site"
        role = "approves of evaluations" if approver else role
        screen.print(f"{name} {role} for {site_file}", markup=False)


@site_app.command("approver")
def approver(
    name: Annotated[str, typer.Argument(help="Name of the approver.")],
    key_file: Annotated[Path, typer.Argument(help="A new file for the key.")],
    site_file: SiteOption = Path("site.toml"),
    quiet: Quiet = False,
) -> None:
    """Make a key for an approver: from then on nothing is joined that no approver signed.

    Example:

      fedgauge site approver officer /media/stick/officer.key --site hospital-a/site.toml
    """
    with readable_errors():
        add_approver(site_file, name, key_file)
    if not quiet:
        screen.print(
            f"Made {key_file}; {name} approves of evaluations for {site_file}", markup=False
        )
        screen.print(
            f"The key is {name}'s alone. Keep it off this machine: whoever holds it approves.",
            markup=False,
        )


@ledger_app.command("show")
def show_ledger(
    entries: Annotated[bool, typer.Option("--entries", help="List every entry.")] = False,
    site_file: SiteOption = Path("site.toml"),
    quiet: Quiet = False,
) -> None:
    """Show what evaluations of a site's data have cost, and what is left.

    Example:

      fedgauge ledger show --site hospital-a/site.toml --entries
    """
    with readable_errors():
        site = Site.from_toml(site_file)
        balances = site.ledger.balances()
        totals = site.ledger.totals(default_limit=site.policy.default_limit)
        listed = site.ledger.entries() if entries else []
    if quiet:
        return
    if not balances and not totals:
        screen.print("Nothing was spent yet.")
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
            *_amounts(row.spent, row.reserved, row.limit),
        )
    screen.print(table)
    for entry in listed:
        screen.print(_entry(entry), markup=False)


@ledger_app.command("pending")
def show_pending(site_file: SiteOption = Path("site.toml"), quiet: Quiet = False) -> None:
    """List evaluations that the site joined and that are not over, and since when.

    Example:

      fedgauge ledger pending --site hospital-a/site.toml
    """
    with readable_errors():
        listed = Participant(Site.from_toml(site_file)).pending()
    if quiet:
        return
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
    _print_whole(table)
    screen.print("`fedgauge ledger release EVALUATION` ends one for good.", markup=False)


@ledger_app.command("release")
def release(
    evaluation: Annotated[
        str, typer.Argument(help="The first 8 digits of its id, or more, as pending shows them.")
    ],
    site_file: SiteOption = Path("site.toml"),
    quiet: Quiet = False,
) -> None:
    """End an evaluation that is open: delete its keys; what it reserved comes back.

    For one that came over Flower, or whose folder is gone. Once rows were counted, or may have
    been, its cost stays.

    Example:

      fedgauge ledger release 3f9a02c1 --site hospital-a/site.toml
    """
    with readable_errors():
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
        spend = site.ledger.sessions()[session]
    if quiet:
        return
    screen.print(f"Ended evaluation {session.hex()[:8]}; its keys are deleted", markup=False)
    if spend.status == "released":
        screen.print(f"Given back to {spend.account}: {_cost(spend.cost)}", markup=False)
    else:
        told = f"Spent on {spend.account}, and stays: {_cost(spend.cost)}. Its rows were counted, "
        screen.print(f"{told}or may have been.", markup=False)


@ledger_app.command("new")
def new(site_file: SiteOption = Path("site.toml"), quiet: Quiet = False) -> None:
    """Make the ledger of a site that never took part in anything.

    `site init` makes one; this is for site files of before it did. Whatever was spent on the
    site's data before is forgotten: if the site took part, put its ledger back instead.

    Example:

      fedgauge ledger new --site hospital-a/site.toml
    """
    with readable_errors():
        site = new_ledger(site_file)
    if not quiet:
        screen.print(f"Made {site.ledger_path}, in which nothing is spent", markup=False)


@ledger_app.command("set-limit")
def set_limit(
    epsilon: Annotated[
        float, typer.Option(min=0, help="Most epsilon that all evaluations may cost.")
    ],
    delta: Annotated[float, typer.Option(min=0, max=1, help="Most delta.")] = 1e-5,
    unit: Annotated[
        UnitKind | None,
        typer.Option(help=r"Only of plans that protect such a unit. \[default: of all plans]"),
    ] = None,
    neighbours: Annotated[
        NeighbourKind | None,
        typer.Option(help=r"With --unit: what may differ about it. \[default: each]"),
    ] = None,
    site_file: SiteOption = Path("site.toml"),
    quiet: Quiet = False,
) -> None:
    """Limit what all evaluations of the site's data may cost together.

    A limit of plans that protect one kind of unit is met besides that of all plans.

    Examples:

      fedgauge ledger set-limit --epsilon 3

      fedgauge ledger set-limit --epsilon 1 --unit example
    """
    with readable_errors():
        site = Site.from_toml(site_file)
        accounts = _limited(site.dataset, unit, neighbours)
        limit = Cost(epsilon, delta)
        for account in accounts:
            site.ledger.set_limit(account, limit)
    if not quiet:
        for account in accounts:
            screen.print(f"{account}: at most {limit}", markup=False)


def _limited(
    dataset: str, unit: UnitKind | None, neighbours: NeighbourKind | None
) -> list[Account]:
    """The accounts that a limit is for."""
    if unit is None:
        if neighbours is not None:
            raise SiteError("--neighbours goes with --unit: a dataset's limit is for all plans.")
        return [Account.whole(dataset)]
    removed = "zero-out" if unit is UnitKind.CLIENT else NeighbourKind.ADD_REMOVE.value
    kinds = [neighbours] if neighbours is not None else list(NeighbourKind)
    return [
        Account(dataset, unit.value, removed if kind is NeighbourKind.ADD_REMOVE else kind.value)
        for kind in kinds
    ]


def _allowed(models: list[Model] | None, *, allow_exact: bool) -> tuple[str, ...]:
    chosen = set(models or set(Model) - {Model.SA})
    if Model.SA in chosen and not allow_exact:
        raise SiteError("sums without noise are allowed by --allow-exact. Add it, or drop sa.")
    return tuple(sorted(model.tag for model in chosen | ({Model.SA} if allow_exact else set())))


def _site_table(site: Site) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    policy = site.policy
    table.add_row("Site", site.name)
    table.add_row("Public key", key_to_text(site.key.public))
    table.add_row("Dataset", site.dataset)
    table.add_row("Allows", ", ".join(policy.models))
    table.add_row("Fewest sites in a sum", str(policy.min_cohort))
    table.add_row("Fewest colluding", str(policy.min_colluding))
    table.add_row("One evaluation", f"epsilon {policy.max_epsilon:g}, delta {policy.max_delta:g}")
    table.add_row(
        "All on a dataset",
        f"epsilon {policy.budget_epsilon:g}, delta {policy.budget_delta:g}",
    )
    table.add_row("Finest axis", f"{policy.max_bins:,} bins")
    table.add_row("Score sums", "allowed" if policy.score_sums else "refused")
    table.add_row("Positive labels", ", ".join(policy.labels) or "none")
    table.add_row("Exact sums", _exact(policy))
    table.add_row("Witness", _witness(site))
    table.add_row("Evaluations given up", f"after {policy.session_days:,} days")
    for title, parties in (
        ("Peer", site.peers),
        ("Coordinator", site.coordinators),
        ("Approver", site.approvers),
    ):
        for key, name in parties.items():
            if key != site.key.public or title != "Peer":
                table.add_row(f"{title} {name}", key_to_text(key))
    if not site.coordinators:
        table.add_row("Coordinator", "none: `fedgauge site trust --coordinator` adds one")
    return table


def _log_table(rows: list[Left]) -> Table:
    table = Table(box=None, pad_edge=False)
    columns = ("evaluation", "coordinator", "step", "plan", "model", "bytes", "sha256", "epsilon")
    for column in ("time (UTC)", *columns):
        table.add_column(column, no_wrap=True)
    for row in rows:
        shortened = (row.plan[:8], row.model[:8], "" if row.size is None else f"{row.size:,}")
        charged = "" if row.cost is None else _epsilon(row.cost)
        table.add_row(
            f"{row.time:%Y-%m-%d %H:%M}",
            row.evaluation[:8],
            row.coordinator or row.coordinator_key[:16] or "-",
            row.step,
            *(text or "-" for text in (*shortened, row.sha256[:8], charged)),
        )
    return table


def _print_whole(table: Table) -> None:
    """Print a table whose lines may be longer than the screen is wide: nothing is cut off."""
    options = screen.options.update(max_width=_WIDEST)
    table.width = Measurement.get(screen, options, table).maximum
    screen.print(table, crop=False)


def _write_new(path: Path, text: str) -> None:
    """Write a file that only its owner can read, unless there is one."""
    try:
        durable.write_new(path, text.encode())
    except FileExistsError:
        raise SiteError(f"{path} exists. Name another file, or move that one away.") from None
    except OSError as error:
        raise SiteError(f"cannot write {path}: {error.strerror}.") from None


def _witness(site: Site) -> str:
    if site.witness_path is None:
        return "none: `fedgauge site witness` names one, which notices old copies"
    return str(site.witness_path)


def _exact(policy: Policy) -> str:
    if not policy.allows_exact:
        return "refused"
    models = (
        "of scores and of models sent" if policy.exact_of_models else "of scores, not of models"
    )
    sites = "some sites" if policy.exact_dropouts else "all sites invited"
    return (
        f"{policy.exact_sums} on a dataset, {models}, over {sites}; bins at least "
        f"{policy.min_bin_width:g} wide, with none or at least {policy.min_cell} examples"
    )


def _entry(entry: Entry) -> str:
    about = [f"{entry.number:>4}  {entry.time:%Y-%m-%d %H:%M} UTC  {entry.kind:<9}"]
    if entry.session is not None:
        about.append(f"evaluation {entry.session.hex()[:8]}")
    if entry.account is not None:
        about.append(str(entry.account))
    if entry.cost is not None:
        about.append(_cost(entry.cost))
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


def _amounts(spent: Cost, reserved: Cost, limit: Cost | None) -> tuple[str, str, str, str]:
    if math.isinf(spent.epsilon + reserved.epsilon):
        return _epsilon(spent), _epsilon(reserved), "none: exact sums", "-"
    if limit is None:
        return _epsilon(spent), _epsilon(reserved), "-", "-"
    left = max(0.0, limit.epsilon - spent.epsilon - reserved.epsilon)
    return _epsilon(spent), _epsilon(reserved), _epsilon(limit), f"{left:g}"


def _epsilon(cost: Cost) -> str:
    return "exact" if math.isinf(cost.epsilon) else f"{cost.epsilon:g}"
