"""Commands about a site: its key, whom it trusts, and what its data has cost in privacy."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import Annotated, ClassVar

import msgspec
import pyarrow as pa
import typer
from rich.table import Table

from fedgauge import storage
from fedgauge.cli.command import command
from fedgauge.cli.options import HERE, Every, FileOptions, Model, SiteOption
from fedgauge.cli.terminal import epsilon_of, price, print_whole, require_consent, screen, warn
from fedgauge.data.files import ScoreFile
from fedgauge.doctor import examine
from fedgauge.engines.agent import Agent
from fedgauge.engines.agent import Event as AgentEvent
from fedgauge.engines.participant import Participant
from fedgauge.errors import FedgaugeError, InputError, SiteError
from fedgauge.escaping import in_one_line
from fedgauge.keys import SigningKey, key_from_text, key_to_text
from fedgauge.plan import EvaluationPlan
from fedgauge.plan import plan as plans
from fedgauge.privacy import DistributedDP, LocalDP
from fedgauge.privacy.models import tag_of
from fedgauge.site import (
    Cost,
    Policy,
    Site,
    add_approver,
    add_trust,
    add_witness,
    create_site,
    name_dataset,
    rekey,
    replace_trust,
)
from fedgauge.site.log import Left, to_csv, what_left
from fedgauge.site.policy import read_consortium
from fedgauge.site.rows import PERIODS, NamedRows
from fedgauge.site.setup import Role
from fedgauge.site.standing import approve_ahead, standing_approvals
from fedgauge.vertical.label_party import ROW_KINDS

site_app = typer.Typer(
    help="Make and show a site: its key, its limits and its partners.", no_args_is_help=True
)


@command()
def doctor(
    site_file: Annotated[
        Path | None, typer.Option("--site", help="The site file to look at.")
    ] = None,
    run: Annotated[
        str | None, typer.Option(help="The folder that the files of an exchange pass through.")
    ] = None,
) -> None:
    """Check that everything is in place: installation, site, ledger, folder.

    Each problem comes with its remedy. Exit code 1 if something must be fixed.

    Examples:
      fedgauge doctor
      fedgauge doctor --site hospital-a/site.toml --run /shared/run-1
    """
    findings = examine(site_file, run)
    table = Table(show_header=False, box=None, pad_edge=False)
    for finding in findings:
        table.add_row(finding.state, finding.about, finding.told)
    screen.print(table)
    if any(finding.state == "mend" for finding in findings):
        raise typer.Exit(1)


@dataclass(frozen=True, kw_only=True)
class DeclaredRows(FileOptions):
    """Where the rows of a new site are."""

    panel: ClassVar[str] = "Rows"

    data: Annotated[
        str | None,
        typer.Option(
            help="The file of this site's rows, so that later commands need not name it. One for "
            "each period: scores/{year}-W{week}.csv"
        ),
    ] = None
    label: Annotated[str | None, typer.Option(help="With --data: column of the label.")] = None
    score: Annotated[str | None, typer.Option(help="With --data: column of the score.")] = None

    def named(self) -> NamedRows | None:
        """The rows that the site file declares; a file that is there must have the columns."""
        if self.data is None:
            if self != DeclaredRows():
                raise InputError("there are columns but no file. Name it: --data FILE.")
            return None
        if not (self.label and self.score):
            raise InputError("--data needs the columns of the file: --label COLUMN --score COLUMN.")
        rows = NamedRows(os.path.abspath(self.data), self.label, self.score, **self.dialect)
        today = rows.on(plans.now().date(), Path())
        if not rows.pattern.period or Path(today.path).exists():
            ScoreFile(today.path, label=self.label, score=self.score, **self.dialect).check()
        return rows


@site_app.command("init")
@command()
def init(
    name: Annotated[str, typer.Option(help="Name of this site, as others will see it.")],
    dataset: Annotated[str, typer.Option(help="Name of the data that the privacy budget is for.")],
    folder: Annotated[Path, typer.Argument(help="Folder for site.toml and site.key.")] = Path(),
    models: Annotated[
        list[Model] | None,
        typer.Option("--allow", help=r"Privacy models allowed; repeatable. \[default: ddp]"),
    ] = None,
    allow_exact: Annotated[
        bool,
        typer.Option(
            "--allow-exact",
            help="Also allow exact sums. Comments in the site file explain the limits.",
        ),
    ] = False,
    positive: Annotated[
        list[str] | None,
        typer.Option(
            help=r"A label that plans may use as positive, or as a class; repeatable. \[default: 1]"
        ),
    ] = None,
    min_cohort: Annotated[int, typer.Option(help="Fewest sites in a sum.")] = 3,
    max_epsilon: Annotated[float, typer.Option(help="Most that one evaluation may cost.")] = 1.0,
    max_bins: Annotated[int, typer.Option(help="Finest axis allowed.")] = 4096,
    score_sums: Annotated[
        bool, typer.Option("--score-sums", help="Allow plans that sum up scores within bins.")
    ] = False,
    max_groups: Annotated[int, typer.Option(help="Most groups in one plan; 0 allows none.")] = 0,
    budget: Annotated[
        float, typer.Option(help="Most epsilon that all evaluations together may cost.")
    ] = 3.0,
    witness: Annotated[
        Path | None, typer.Option(help="A file in another place, to detect a restored backup.")
    ] = None,
    *,
    rows: DeclaredRows,
) -> None:
    """Make a site: a private key that stays here, a file of what it allows, and a ledger.

    Examples:
      fedgauge site init --name hospital-a --dataset stroke hospital-a
      fedgauge site init --name hospital-a --dataset stroke --data rows.csv --label y --score p
      fedgauge site init --name hospital-a --dataset stroke --positive yes --allow-exact
    """
    policy = Policy(
        models=_allowed(models, allow_exact=allow_exact),
        labels=tuple(positive or Policy().labels),
        min_cohort=min_cohort,
        max_epsilon=max_epsilon,
        max_bins=max_bins,
        score_sums=score_sums,
        max_groups=max_groups,
        budget_epsilon=budget,
    )
    made = create_site(folder, name=name, dataset=dataset, policy=policy, data=rows.named())
    site = made if witness is None else add_witness(made.path, witness)
    screen.print(f"Made {site.path} and {site.key_path}")
    screen.print(f"Send {site.folder / site.name}.card to the coordinator of a consortium. Without")
    screen.print("one, send your partners this key, and let them check with you that it is yours:")
    screen.print(f"  fedgauge site trust {site.name} {key_to_text(site.key.public)}")


@site_app.command("dataset")
@command()
def dataset(
    name: Annotated[str, typer.Argument(help="A new name for new data, or an earlier one.")],
    site_file: SiteOption = HERE,
) -> None:
    """Give new data of the site a new name, or go back to an earlier one.

    Budgets and exact sums are counted by name, so a new name starts at zero. Do not use it to get
    around a budget: a reader can combine the results of both names.

    Example:
      fedgauge site dataset stroke-2026-week-2 --site hospital-a/site.toml
    """
    known = name in Site.from_toml(site_file).ledger.datasets()
    site = name_dataset(site_file, name)
    stands = (
        "its ledger goes on" if known else "nothing is spent on it, so use it for new data only"
    )
    screen.print(f"The data of {site.name} are now {site.dataset}; {stands}")


@site_app.command("run")
@command()
def run(
    folder: Annotated[str, typer.Argument(help="Where invitations come to.")],
    every: Every = 10.0,
    once: Annotated[
        bool, typer.Option("--once", help="Do what can be done now. Exit code 1: something failed.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each event as one line of JSON.")
    ] = False,
    site_file: SiteOption = HERE,
) -> None:
    """Answer invitations unattended, within the site file, until stopped.

    FOLDER holds one folder for each evaluation, as `exchange run` makes them. The rows are those
    that [data] declares in the site file. What it prints describes rows, so keep it at this site.
    It can be stopped and started at any time; one runs for a site.

    Examples:
      fedgauge site run /shared/stroke --site hospital-a/site.toml
      fedgauge site run /shared/stroke --site hospital-a/site.toml --every 60 --json
    """
    agent = Agent(folder, site_file, kinds=ROW_KINDS)
    # Of Arrow's pools this one gives back what a file of rows took.
    pa.set_memory_pool(pa.system_memory_pool())
    stopped = Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    with agent.alone():
        screen.print(f"Waiting for invitations in {in_one_line(folder)}")
        while True:
            events = agent.step(plans.now())
            for told in events:
                _say_event(told, as_json=as_json)
            pa.default_memory_pool().release_unused()
            if once and any(told.kind == "failed" for told in events):
                raise typer.Exit(1)
            if once or stopped.wait(every):
                break


def _say_event(event: AgentEvent, *, as_json: bool) -> None:
    texts = {
        "folder": event.place,
        "evaluation": event.evaluation,
        "event": event.kind,
        "told": event.told,
    }
    texts = {"time": f"{event.time:%Y-%m-%dT%H:%M:%SZ}"} | {
        name: in_one_line(text) for name, text in texts.items()
    }
    line = " ".join(filter(None, texts.values()))
    if as_json:
        typer.echo(msgspec.json.encode(texts))
    elif event.kind in ("warning", "refused", "failed"):
        warn(line)
    else:
        screen.print(line)


@site_app.command("approve")
@command()
def approve(
    plan: Annotated[Path, typer.Argument(help="The plan, .toml or .json.")],
    key: Annotated[Path, typer.Option(help="The approver's key file.")],
    times: Annotated[int, typer.Option(help="Most evaluations that may be joined under it.")],
    until: Annotated[
        datetime, typer.Option(help="The last day, in UTC, on which.", formats=["%Y-%m-%d"])
    ],
    coordinator: Annotated[
        str | None,
        typer.Option(help=r"Who may ask, as the site file says. \[default: its only coordinator]"),
    ] = None,
    site_file: SiteOption = HERE,
) -> None:
    """Officer: sign ahead that this site may join a plan so many times, where it has approvers.

    It is for this plan alone, and for the data that the site file names now: a dataset, or all its
    periods. `fedgauge explain` shows what the plan asks. Nothing is signed that the site would
    refuse.

    Example:
      fedgauge site approve plan.toml --times 26 --until 2027-06-30 --key officer.key
    """
    site = Site.from_toml(site_file)
    asking = _coordinator(site, coordinator)
    loaded = EvaluationPlan.load(plan)
    signer = SigningKey.load(key)
    path = approve_ahead(site, loaded, asking, signer, times=times, until=until.date())
    screen.print(
        f"Approved ahead: plan {loaded.digest[:32]}, asked for by {site.coordinators[asking]}, "
        f"{times:,} times until {until:%Y-%m-%d}, at {price(site.cost(loaded))} each\n"
        f"Kept in {path}. To withdraw it, delete that file."
    )


def _coordinator(site: Site, name: str | None) -> bytes:
    """The key of a coordinator by its name, or of the only one."""
    named = [key for key, known in site.coordinators.items() if name in (None, known)]
    if len(named) != 1:
        listed = ", ".join(site.coordinators.values()) or "none"
        raise SiteError(f"name one of the coordinators in {site.path}: {listed} (--coordinator).")
    return named[0]


@site_app.command("witness")
@command()
def name_witness(
    path: Annotated[
        Path, typer.Argument(help="A file on another disk, a network share or a USB stick.")
    ],
    site_file: SiteOption = HERE,
) -> None:
    """Keep a second copy of the ledger's end elsewhere, to detect a restored backup of the site.

    From then on the site takes part only while it can reach that file. Do not back up, restore or
    clone it together with the site's folder.

    Example:
      fedgauge site witness /mnt/share/hospital-a.head --site hospital-a/site.toml
    """
    site = add_witness(site_file, path)
    screen.print(f"{site.witness_path} is the witness of {site.name}")
    screen.print("Destroy earlier copies of the site's folder: they name no witness.")


@site_app.command("show")
@command()
def show(site_file: SiteOption = HERE) -> None:
    """Show a site's public key, limits, peers, coordinators and approvers.

    Example:
      fedgauge site show --site hospital-a/site.toml
    """
    site = Site.from_toml(site_file)
    print_whole(_site_table(site))


@site_app.command("log")
@command()
def log(
    csv: Annotated[
        str | None, typer.Option(help="Write all values to this file; - is the screen.")
    ] = None,
    site_file: SiteOption = HERE,
) -> None:
    """Show what left this site: when, for whom, how many bytes, their hash, what it cost.

    The hash is that of the file in the exchange's folder, or of the file of reports.

    Examples:
      fedgauge site log --site hospital-a/site.toml
      fedgauge site log --csv left.csv --site hospital-a/site.toml
    """
    rows = what_left(Site.from_toml(site_file))
    if csv not in (None, "-"):
        _write_new(Path(csv), to_csv(rows))
    if csv == "-":
        typer.echo(to_csv(rows).encode(), nl=False)
    elif csv is not None:
        screen.print(f"Saved {csv}: {len(rows):,} rows")
    elif rows:
        print_whole(_log_table(rows))
    else:
        screen.print("Nothing left yet.")


@site_app.command("trust")
@command()
def trust(
    name: Annotated[str, typer.Argument(help="Name of the partner.")],
    key: Annotated[str, typer.Argument(help="Its public key: ed25519:...")],
    coordinator: Annotated[
        bool,
        typer.Option(
            "--coordinator",
            help="The partner is a coordinator: it may start evaluations, and adds no data.",
        ),
    ] = False,
    approver: Annotated[
        bool,
        typer.Option(
            "--approver",
            help="The partner is an approver: the site joins only what an approver signed.",
        ),
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the key of a known partner.")
    ] = False,
    site_file: SiteOption = HERE,
) -> None:
    """Approve a partner by its key. Compare keys over another channel first.

    Examples:
      fedgauge site trust hospital-b ed25519:Xk...
      fedgauge site trust consortium ed25519:9f... --coordinator
      fedgauge site trust officer ed25519:4c... --approver
      fedgauge site trust hospital-b ed25519:Pq... --replace
    """
    role: Role = "coordinator" if coordinator else "approver" if approver else "peer"
    if coordinator and approver:
        raise SiteError("a coordinator cannot also be an approver. Choose one of the two.")
    if replace:
        site, old = replace_trust(site_file, role, name, key)
        _say_replaced(site, role, name, old, key)
    else:
        add_trust(site_file, role, name, key)
        may = "may start evaluations" if coordinator else "is an approved site"
        may = "approves of evaluations" if approver else may
        screen.print(f"{name} {may} for {site_file}")


@site_app.command("rekey")
@command()
def new_key(
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask, even if evaluations are under way.")
    ] = False,
    site_file: SiteOption = HERE,
) -> None:
    """Give the site a new key, if its key is lost or somebody may have read it.

    Ledger, limits and partners stay. The old key signs the new card if it is there, then it is
    deleted. Evaluations under way end. Data that had exact sums get no more of them, since the old
    key recognised their rows.

    Example:
      fedgauge site rekey --site hospital-a/site.toml
    """
    under_way = 0
    with suppress(FedgaugeError):  # a lost key; all else is refused below
        under_way = len(Participant(Site.from_toml(site_file)).pending())
    if under_way:
        ends = (
            f"{under_way} evaluations under way end here. `fedgauge ledger release` gives back "
            "what they reserved and did not spend."
        )
        require_consent(ends, yes=yes)
    site, card = rekey(site_file)
    signed = "signed by its old key" if card.old_key else "not signed by its old key: it is lost"
    screen.print(f"{site.name} has a new key, {signed}.")
    accepted = read_consortium(site.path)
    if accepted is not None and accepted.coordinator == site.name:
        screen.print(f"Run `fedgauge consortium update` on the file of {accepted.name}.")
    else:
        screen.print(f"Send {site.folder / site.name}.card to the coordinator of a consortium.")
        screen.print("Without one, partners run this after they checked the key with you:")
        screen.print(f"  fedgauge site trust {site.name} {card.key} --replace")


@site_app.command("approver")
@command()
def approver(
    name: Annotated[str, typer.Argument(help="Name of the approver.")],
    key_file: Annotated[Path, typer.Argument(help="A new file for the key.")],
    site_file: SiteOption = HERE,
) -> None:
    """Make a key for an approver. From then on the site joins only what an approver signed.

    Example:
      fedgauge site approver officer /media/stick/officer.key --site hospital-a/site.toml
    """
    add_approver(site_file, name, key_file)
    screen.print(f"Made {key_file}; {name} approves of evaluations for {site_file}")
    screen.print(
        f"The key belongs to {name} alone and has no password: anyone with a copy can approve. "
        "Keep it away from this machine, and bring it only to approve."
    )


def _say_replaced(site: Site, role: Role, name: str, old: str, new: str) -> None:
    screen.print(f"{name}, {role} for {site.path}:")
    screen.print(f"  old key  {old}\n  new key  {new}")
    public = key_from_text(old)
    for other, parties in (
        ("", site.peers),
        (" --coordinator", site.coordinators),
        (" --approver", site.approvers),
    ):
        if public in parties:
            screen.print(
                "The old key is still trusted in another role. To replace it there, too:\n"
                f"  fedgauge site trust {parties[public]} {new} --replace{other} "
                f"--site {site.path}"
            )


def _allowed(models: list[Model] | None, *, allow_exact: bool) -> tuple[str, ...]:
    chosen = set(models or [Model.DDP])
    if Model.SA in chosen and not allow_exact:
        raise SiteError(
            "sa means sums without noise, which --allow-exact allows. Add it, or leave out sa."
        )
    return tuple(sorted(model.tag for model in chosen | ({Model.SA} if allow_exact else set())))


def _site_table(site: Site) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    policy = site.policy
    table.add_row("Site", site.name)
    table.add_row("Public key", key_to_text(site.key.public))
    table.add_row("Dataset", site.dataset)
    if site.data is not None:
        table.add_row("Rows", f"{site.data.path}: {site.data.columns}")
    if site.has_periods:
        table.add_row("Periods", PERIODS)
    table.add_row("Sums with noise", _allowed_or_not(tag_of(DistributedDP) in policy.models))
    table.add_row("Local reports, with noise", _allowed_or_not(tag_of(LocalDP) in policy.models))
    for title, told in _exact(policy):
        table.add_row(title, told)
    table.add_row("Sites in a sum", f"at least {policy.min_cohort}")
    table.add_row("Colluding sites to withstand", f"at least {policy.min_colluding}")
    table.add_row("One evaluation may cost", price(Cost(policy.max_epsilon, policy.max_delta)))
    table.add_row("All evaluations of the dataset may cost", _budget(site))
    table.add_row("Ranges of the score", f"at most {policy.max_bins:,}")
    table.add_row("Counts that leave in one evaluation", f"at most {policy.max_counts:,}")
    table.add_row("Average score in each range", _allowed_or_not(policy.score_sums))
    groups = f"at most {policy.max_groups:,}" if policy.max_groups else "refused"
    table.add_row("Groups told apart", groups)
    table.add_row("Labels asked about", ", ".join(policy.labels) or "none")
    none = "none: `fedgauge site witness` names one, to detect a restored backup"
    table.add_row("Witness", str(site.witness_path or none))
    table.add_row("Unfinished evaluations", f"given up after {policy.session_days:,} days")
    stops = "refused before joining" if policy.findings == "stop" else "join all the same"
    table.add_row("Rows that look wrong", stops)
    accepted = read_consortium(site.path)
    if accepted is not None:
        by = f"{accepted.name}, version {accepted.version}, by {accepted.coordinator}"
        table.add_row("Consortium", by)
    for title, parties in (
        ("Other site", site.peers),
        ("Coordinator", site.coordinators),
        ("Approver", site.approvers),
    ):
        for key, name in parties.items():
            if key != site.key.public or title != "Other site":
                table.add_row(f"{title} {name}", key_to_text(key))
    for each in standing_approvals(site):
        told = f"plan {each.plan[:8]} on {each.dataset}: at most {each.times:,} times"
        if each.evaluation:
            told = f"evaluation {each.evaluation[:8]}, or one unpaid restart of it"
        table.add_row("Approved ahead", f"{told}, until {each.until}")
    if not site.coordinators:
        table.add_row(
            "Coordinator",
            "none: `fedgauge consortium accept` or `fedgauge site trust --coordinator` adds one",
        )
    return table


def _budget(site: Site) -> str:
    default = site.policy.default_limit
    try:
        limit = site.ledger.total(site.dataset, default_limit=default).limit
    except FedgaugeError:
        return f"{price(default)}, unless the ledger says otherwise, which cannot be read"
    if limit is None or limit == default:  # there is one, since a default is given
        return price(default)
    return f"{price(limit)} (by the ledger; by the site file {price(default)})"


def _allowed_or_not(allowed: bool) -> str:
    return "allowed" if allowed else "refused"


def _log_table(rows: list[Left]) -> Table:
    table = Table(box=None, pad_edge=False)
    who = ("evaluation", "coordinator", "approver")
    what = ("step", "plan", "model", "bytes", "sha256", "epsilon")
    for column in ("time (UTC)", *who, *what):
        table.add_column(column, no_wrap=True)
    for row in rows:
        shortened = (row.plan[:8], row.model[:8], f"{row.size:,}")
        charged = "" if row.cost is None else epsilon_of(row.cost)
        table.add_row(
            f"{row.time:%Y-%m-%d %H:%M}",
            row.evaluation[:8],
            row.coordinator or row.coordinator_key[:16] or "-",
            # A name has no colon; a key is too long for a column.
            row.approver or row.approver_key[:16] or "-",
            row.step,
            *(text or "-" for text in (*shortened, row.sha256[:8], charged)),
        )
    return table


def _write_new(path: Path, text: str) -> None:
    """Write a file that only its owner can read, unless there is one."""
    try:
        storage.write_new(path, text.encode())
    except FileExistsError:
        raise SiteError(f"{path} exists. Name another file, or move that one away.") from None
    except OSError as error:
        raise SiteError(
            f"cannot write {path}: {error.strerror}. Name a file in a folder that is there."
        ) from None


def _exact(policy: Policy) -> Iterator[tuple[str, str]]:
    """Sums without noise: how many, and what they may show."""
    if not policy.allows_exact:
        yield "Sums without noise", "refused"
        return
    sites = "some sites" if policy.exact_dropouts else "all sites invited"
    yield "Sums without noise", f"at most {policy.exact_sums} on a dataset, over {sites}"
    models = "also from models sent here" if policy.exact_of_models else "not from models sent here"
    pairs = ", two of them together" if policy.exact_pairs else ""
    yield "  their scores", f"at most {policy.exact_scores:,} for each row{pairs}; {models}"
    yield (
        "  their ranges",
        f"at least {policy.min_bin_width:g} wide, each shown with 0 or at least {policy.min_cell} "
        "examples",
    )
    yield "  their groups", ", ".join(policy.exact_groups) or "none"
