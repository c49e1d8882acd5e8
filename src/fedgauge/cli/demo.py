"""`demo`: the worked example, and files to try."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fedgauge.cli.command import command
from fedgauge.cli.terminal import screen, with_progress

if TYPE_CHECKING:
    from fedgauge.demo import Demo


@command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the plots and the result.")] = Path(
        "fedgauge-demo"
    ),
    files: Annotated[
        Path | None,
        typer.Option(help="Only write the files that the documentation uses into this folder."),
    ] = None,
) -> None:
    """Evaluate a model over five generated hospitals, all different.

    Examples:
      fedgauge demo --out /tmp/demo
      fedgauge demo --files .
    """
    from fedgauge.demo import run, write_files

    if files is not None:
        written = with_progress(lambda: write_files(files), "Writing")
        screen.print(f"In {files}: {', '.join(path.name for path in written)}")
        return
    shown = with_progress(lambda: run(out), "Counting, measuring and drawing")
    screen.print(_demo_table(shown))
    screen.print(f"Saved {', '.join(str(path) for path in shown.files)}")
    screen.print(f"Open {shown.report} in a browser to see the report.")


def _demo_table(shown: Demo) -> Table:
    auc = shown.result.roc_auc
    low, high = auc.bounds
    examples = shown.result.negatives + shown.result.positives
    table = Table(
        title=f"One model, {shown.result.clients} different hospitals, {examples:,} patients",
        title_justify="left",
        show_header=False,
        box=None,
        pad_edge=False,
    )
    wrong = abs(shown.mean_client_auc - shown.exact_auc)
    table.add_row("AUC, mean of hospitals", f"{shown.mean_client_auc:.4f}", f"wrong by {wrong:.2f}")
    table.add_row("AUC, fedgauge", f"{auc.value:.4f}", f"exact AUC in {low:.5f} to {high:.5f}")
    table.add_row("AUC, exact (pooled data)", f"{shown.exact_auc:.4f}", "needs all rows together")
    table.add_row("ROC Area Error", f"{shown.roc_area_error:.1e}", "area to the exact curve")
    table.add_row("PR Area Error", f"{shown.pr_area_error:.1e}", "the same for precision-recall")
    table.add_row("Sent by each hospital", f"{shown.result.plan.bytes_per_client:,}", "bytes")
    return table
