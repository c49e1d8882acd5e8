"""Commands of local DP: make reports, take them in, find the bins of a second round."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

import fedgauge as fg
from fedgauge.cli.command import command
from fedgauge.cli.exchange import LABEL, ScoredColumns
from fedgauge.cli.options import HERE, SiteOption
from fedgauge.cli.show import require_curves
from fedgauge.cli.terminal import (
    print_result,
    refuse_to_replace,
    say_counted,
    screen,
    warn,
    with_progress,
)
from fedgauge.data.row_checks import RowSummary
from fedgauge.keys import key_to_text
from fedgauge.local.encode import approved, find_second, result_of, write_reports
from fedgauge.local.messages import Reason
from fedgauge.local.rounds import load_plan, read_plan
from fedgauge.local.server import Receipt
from fedgauge.storage import open_regular

PlanFile = Annotated[
    Path,
    typer.Argument(
        help="The plan, .toml or .json. For a second round, the one that `find-bins` wrote."
    ),
]
_COPY_AGAIN = "The file is damaged, or no file of reports: copy it again."
_MENDED: dict[str, str] = {
    Reason.LENGTH: "The file is incomplete: copy the whole file again.",
    Reason.FOREIGN: "Name the plan that the reports were made with.",
    Reason.VERSION: "Use the same version of fedgauge everywhere.",
    Reason.ROUND: "A report's id sets its round: make reports with `fedgauge encode`.",
    Reason.CLOSED: "It came after `fedgauge find-bins`, too late: each row reports once.",
}


@dataclass(frozen=True, kw_only=True)
class ReportedColumns(ScoredColumns):
    """Where a file of one client has labels, scores and groups."""

    label: Annotated[str, typer.Option(help=LABEL)] = field()


@command(by_plan=True, usual="plan file label score out site quiet")
def encode(
    plan: PlanFile,
    file: Annotated[Path, typer.Argument(help="Rows of one client: CSV, TSV or Parquet.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the reports.")],
    site: Annotated[
        Path | None, typer.Option(help="A site file, to check the plan and charge the budget.")
    ] = None,
    *,
    columns: ReportedColumns,
) -> None:
    """Make a local report of each row, to send to the server.

    Only this screen shows how many rows there were, and how many were positive, clipped or odd.

    Examples:
      fedgauge encode plan.toml rows.csv --label y --score p -o site-a.fgr
      fedgauge encode plan.toml rows.csv --label y --score p --group sex=gender -o site-a.fgr
      fedgauge encode second.json rows.csv --label y --score p --site site/site.toml -o a-2.fgr
    """
    seen: list[RowSummary] = []
    loaded = load_plan(plan)
    trusted = None if site is None else fg.Site.from_toml(site)
    run = approved(loaded, trusted)
    rows = columns.scored(str(file)).checked(run)
    with_progress(
        lambda: write_reports(loaded, rows, out, site=trusted, tell=warn, show=seen.append)
    )
    say_counted(seen)
    charged = "" if site is not None else ", charged to no ledger (--site)"
    turns = " in one of two rounds" if run.has_two_rounds else ""
    epsilon = f"epsilon {run.statement('simulated').epsilon or 0.0:g}"
    screen.print(f"Saved {out}: each row{turns} with {epsilon}{charged}")


@command(by_plan=True)
def intake(
    plan: PlanFile,
    reports: Annotated[
        list[Path], typer.Argument(help="Files of reports, or folders of .fgr files.")
    ],
    state: Annotated[
        Path, typer.Option(help="Folder that keeps the state of the intake between runs.")
    ] = Path("intake"),
    json: Annotated[Path | None, typer.Option(help="Save the result to this file.")] = None,
) -> None:
    """Collect local reports, each once, and show the result so far.

    You can repeat a run that stopped: no report is counted twice. Exit code 1 if a file contains
    anything but complete reports of this plan; the file is named.

    Example:
      fedgauge intake plan.toml inbox/ --state intake --json result.json
    """
    refuse_to_replace(json=json)
    run = read_plan(plan)
    if run.is_search and json is not None:
        raise fg.InputError(
            "the first of two rounds has no result. Leave out --json in this round."
        )
    with fg.ReportServer(run, state) as server:
        paths = list(_report_files(reports))
        receipts = with_progress(lambda: [_take(server, path) for path in paths])
        taken_in = sum(receipt.accepted for receipt in receipts)
        text = f"Took in {taken_in:,} reports; {server.reports:,} in all"
        if server.refused:
            told = ", ".join(f"{reason}: {count:,}" for reason, count in server.refused.items())
            text += f"; refused so far: {told}"
        screen.print(text)
        if server.conflicts:
            many = f"{server.conflicts:,} report{'s' if server.conflicts > 1 else ''}"
            warn(
                f"{many} came with the id of another report and other contents. Either somebody "
                "saw ids and forged reports, or a client made reports of the same rows twice. All "
                "of them count. Check who can read and write the files of reports."
            )
        taken = zip(paths, receipts, strict=True)
        broken = [told for path, receipt in taken for told in _broken(path, receipt)]
        for told in broken:
            warn(told)
        if run.is_search:
            _say_next(server, plan, state)
        else:
            result = with_progress(lambda: result_of(server), "Measuring")
            require_curves(result)
            if json is not None:
                result.to_json(json)
            print_result(result)
    if broken:
        raise typer.Exit(1)


@command(by_plan=True)
def find_bins(
    plan: Annotated[Path, typer.Argument(help="The plan of two rounds, .toml or .json.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File for the plan of the second round.")
    ],
    state: Annotated[
        Path, typer.Option(help="Folder of the intake that took in the first round.")
    ] = Path("intake"),
    site_file: SiteOption = HERE,
) -> None:
    """Close the first of two rounds of local reports, and sign the plan of the second.

    Its bins follow from the reports so far; later ones are refused. Sites that report must trust
    the key of this site file as a coordinator's. Run again, it writes the same plan.

    Example:
      fedgauge find-bins plan.toml --state intake --site server/site.toml -o second.json
    """
    refuse_to_replace(second=out)
    loaded = read_plan(plan)
    if not loaded.is_search:
        raise fg.InputError(
            f"{plan} is no plan of two rounds before its bins are found. Name the plan that "
            "`fedgauge encode` made the first reports with."
        )
    site = fg.Site.from_toml(site_file)
    with fg.ReportServer(loaded, state) as server:
        second, reports = find_second(server, site.key), server.reports
    second.save(out)
    bins = second.signed_by([second.signer]).axis.bins
    screen.print(
        f"Saved {out}: {bins:,} bins, found by {reports:,} reports. The first round is "
        "closed.\nSites that report run `fedgauge encode` with it, and trust its signer:\n  "
        f"fedgauge site trust NAME {key_to_text(second.signer)} --coordinator"
    )


def _say_next(server: fg.ReportServer, plan: Path, state: Path) -> None:
    if server.is_closed:
        screen.print(
            "This round is closed: its bins were found. Collect reports of the second round with "
            "the plan that `fedgauge find-bins` wrote; run it again if the plan is lost."
        )
        return
    screen.print(
        "This is the first of two rounds: there is no result yet. Once there are enough reports, "
        f"find the bins of the second:\n  fedgauge find-bins {plan} --state {state} -o second.json"
    )


def _report_files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.exists():
            raise fg.InputError(f"there is no {path}. Name files of reports, or their folder.")
        found = sorted(path.glob("*.fgr")) if path.is_dir() else [path]
        if not found:
            raise fg.InputError(
                f"there is no .fgr file in {path}. Name the folder of reports that `fedgauge "
                "encode` made, or the files."
            )
        yield from found


def _take(server: fg.ReportServer, path: Path) -> Receipt:
    try:
        with open_regular(path) as file:
            return server.accept_all(server.form.split(file))
    except OSError as error:
        raise fg.InputError(f"cannot read {path}: {error.strerror}.") from None


def _broken(path: Path, receipt: Receipt) -> Iterator[str]:
    """What is wrong with a file of reports; reports that came before are no fault of it."""
    for reason, count in receipt.refused.items():
        if reason != Reason.DUPLICATE:
            yield (
                f"{path}: {count:,} message{'s' if count > 1 else ''} refused: {reason}. "
                f"{_MENDED.get(reason, _COPY_AGAIN)} {receipt.accepted:,} reports of the file were "
                "taken in."
            )
