"""Commands of calibration: fit a map on a result, and apply it to scores."""

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

import fedgauge as fg
from fedgauge.cli.command import command
from fedgauge.cli.options import FileOptions
from fedgauge.cli.slice_options import PartOptions
from fedgauge.cli.terminal import refuse_to_replace, screen, warn, with_progress
from fedgauge.data.rewriting import Rewrite

_IN_SAMPLE = "in-sample: on the rows it was fitted to"


@command()
def calibrate(
    result: Annotated[Path, typer.Argument(help="A saved result, .json.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the map, .json.")],
    method: Annotated[
        str,
        typer.Option(
            help="auto, beta, isotonic, platt, temperature, binning, bbq or scaling-binning."
        ),
    ] = "auto",
    *,
    part: PartOptions,
) -> None:
    """Fit a map from scores to calibrated probabilities on a saved result.

    It uses the released counts only, so it costs no privacy and may be sent to sites. Judge it on
    other rows: `fedgauge evaluate --calibrator`.

    Examples:
      fedgauge calibrate result.json -o map.json
      fedgauge calibrate result.json --method beta -o map.json
    """
    refuse_to_replace(calibrator=out)
    measured = part.of(fg.Evaluation.from_json(result))
    made = with_progress(lambda: measured.calibrator(method), "Fitting")
    tables = [] if screen.quiet else with_progress(lambda: _fit_tables(measured, made))
    made.to_json(out)
    if made.fitted is not None and made.fitted.caution:
        warn(made.fitted.caution)
    before = measured.plan.calibrator
    if before is not None:
        warn(
            f"{result} is of scores that went through a map ({before.method})"
            ", and the new map takes what comes out of that one, not the scores themselves."
        )
    for table in tables:
        screen.print(table)
    screen.print(f"Saved {out}")
    kept = shlex.quote(str(out))
    steps = [("Use it", f"apply {kept} scores.csv --score p -o calibrated.csv")]
    if made.is_monotone:
        on_others = (
            f"evaluate others.csv --label y --score p --calibrator {kept} --json judged.json"
        )
        steps += [("Judge it on other rows", on_others), ("and by log loss", "show judged.json")]
    for what, typed in steps:
        screen.print(f"{what}: fedgauge {typed}")


def _fit_tables(measured: fg.Evaluation, made: fg.Calibrator) -> list[Table]:
    """What was fitted on what, and what it changes on the rows it was fitted to."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("Map", made.in_words())
    if made.fitted is not None:
        on = f"about {made.fitted.examples:,} examples, {made.fitted.positives:,} of them positive"
        table.add_row("Fitted on", f"{on}; {made.fitted.privacy}")
    order = "kept, and so is the AUC" if made.is_strict else "kept, with ties"
    table.add_row("Order of scores", order if made.is_monotone else "changed: the map falls")
    after = measured.with_calibrator(made)
    changed = Table(box=None, pad_edge=False, title=_IN_SAMPLE, title_justify="left")
    for column in ("", "before", "after"):
        changed.add_column(column)
    for title, name in (("Log loss", "log_loss"), ("ECE", "expected_calibration_error")):
        changed.add_row(title, *(f"{getattr(each, name).value:.4f}" for each in (measured, after)))
    return [table, changed]


@command()
def apply(
    calibrator: Annotated[Path, typer.Argument(help="The map, .json.")],
    file: Annotated[Path, typer.Argument(help="CSV, TSV (also .gz) or Parquet file of scores.")],
    score: Annotated[str, typer.Option(help="Column of the score, from 0 to 1.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File for the calibrated scores, of the same kind.")
    ],
    column_out: Annotated[
        str | None, typer.Option(help=r"Name of the new column. \[default: SCORE_calibrated]")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Put calibrated scores in place of the scores.")
    ] = False,
    *,
    files: FileOptions,
) -> None:
    """Apply a map to the scores of a file: adds one column and changes nothing else.

    Examples:
      fedgauge apply map.json scores.csv --score p -o calibrated.csv
      fedgauge apply map.json scores.parquet --score p --replace -o calibrated.parquet
    """
    if replace and column_out is not None:
        raise fg.InputError("--replace adds no column: leave out --column-out, or --replace.")
    refuse_to_replace(rows=out)
    loaded = fg.Calibrator.from_json(calibrator)
    column = None if replace else column_out or f"{score}_calibrated"
    asked = Rewrite(file, out, score, column, **files.dialect)
    rows = with_progress(lambda: asked.run(loaded.transform), "Calibrating scores")
    if not rows:
        warn(f"{file}: there are no rows below the header.")
    noun = "row" if rows == 1 else "rows"
    screen.print(f"Saved {out}: {rows:,} {noun}, column {column or score!r}")
