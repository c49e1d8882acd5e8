"""`report`: saved results as one HTML file for people."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

import fedgauge as fg
from fedgauge.cli.command import command
from fedgauge.cli.options import AtLevel
from fedgauge.cli.show import KeyOptions
from fedgauge.cli.terminal import fail, refuse_to_replace, screen, with_progress
from fedgauge.vertical.auc import is_auc


@command()
def report(
    paths: Annotated[list[Path], typer.Argument(help="Results saved as JSON.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")],
    level: AtLevel = None,
    client_average: Annotated[
        float | None, typer.Option(help="The average of the clients' own ROC AUCs, where known.")
    ] = None,
    *,
    keys: KeyOptions,
) -> None:
    """Write a report of saved results: one HTML file that a browser opens without a network.

    Examples:
      fedgauge report r.json -o r.html
      fedgauge report week-1.json week-2.json -o both.html
    """
    from fedgauge.report import save_report

    _refuse(out)
    results = {name: _read(path, level) for name, path in _named(paths).items()}
    known, site = keys.read()
    signatures = {name: result.signature.by(known) for name, result in results.items()}
    left = None if site is None else _budget(site)
    with_progress(
        lambda: save_report(
            results, out, signatures=signatures, budget=left, client_average=client_average
        ),
        "Measuring and drawing",
    )
    screen.print(f"Open {out} in a browser.")
    broken = [name for name, signature in signatures.items() if signature.state == "broken"]
    if broken:
        fail(
            f"not what was signed: {', '.join(broken)}. The report says so. Get the file again.", 1
        )


def _refuse(out: Path) -> None:
    """Refuse what cannot be written before anything is measured."""
    if out.is_dir():
        raise fg.InputError(f"{out} is a folder. Name a file in it: --out {out / 'report.html'}")
    if not out.absolute().parent.is_dir():
        raise fg.InputError(f"there is no folder for {out}. Make it first, or name another place.")
    refuse_to_replace(report=out)


def _budget(site: fg.Site) -> str:
    name, policy = site.dataset, site.policy
    try:
        total = site.ledger.total(name, default_limit=policy.default_limit)
        summed = site.ledger.count_exact(name)
    except fg.FedgaugeError as error:
        return f"not known: the ledger cannot be read ({error})"
    if summed:
        return f"{policy.after_exact(summed)}, for {name}, by the site's ledger"
    limit = total.limit or policy.default_limit
    left = max(0.0, limit.epsilon - total.spent.epsilon - total.reserved.epsilon)
    return f"epsilon {left:g} of {limit.epsilon:g} for {name}, by the site's ledger"


def _named(paths: list[Path]) -> dict[str, Path]:
    """Results by the names of their files, or by their paths where files have the same name."""
    by_name = {path.stem: path for path in paths}
    named = by_name if len(by_name) == len(paths) else {str(path): path for path in paths}
    if len(named) < len(paths):
        raise fg.InputError("a result is named twice. Name each once.")
    return named


def _read(path: Path, level: float | None) -> fg.Evaluation:
    if is_auc(path):
        raise fg.InputError(
            f"{path} holds the AUC only, and there is no report for it. `fedgauge show "
            f"{shlex.quote(str(path))}` prints all of it."
        )
    result = fg.Evaluation.from_json(path)
    return result if level is None else result.at_level(level)
