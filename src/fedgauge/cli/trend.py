"""Results over time on the terminal: how far two differ, and whether a series has moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table

import fedgauge as fg
from fedgauge.cli.command import command
from fedgauge.cli.options import At, AtLevel
from fedgauge.cli.show import within
from fedgauge.cli.show_slices import Notes, close, first, fitting, reads, slice_table
from fedgauge.cli.slice_options import PartOptions
from fedgauge.cli.terminal import fail, refuse_to_replace, screen, warn, with_progress

_OVER_ALL = (
    "roc_auc",
    "average_precision",
    "brier_score",
    "log_loss",
    "expected_calibration_error",
    "calibration_in_the_large",
    "calibration_slope",
)
_SAVES: Final = (".html", ".json", ".csv")
_ALARM: Final = 3  # an exit code that no failure has
_AT = ("recall", "precision", "fpr")


@command()
def diff(
    first_file: Annotated[Path, typer.Argument(metavar="FIRST", help="A result saved as JSON.")],
    second_file: Annotated[Path, typer.Argument(metavar="SECOND", help="Another one.")],
    at: At = None,
    level: AtLevel = None,
    overlapping: Annotated[
        bool,
        typer.Option(
            "--overlapping", help="Some rows may be in both results. Intervals become wider."
        ),
    ] = False,
    *,
    part: PartOptions,
) -> None:
    """Print how far two results differ, the first less the second, with intervals.

    Examples:
      fedgauge diff june.json may.json
      fedgauge diff june.json may.json --at 0.5 --overlapping
    """
    paths = first_file, second_file
    read = [fg.Evaluation.from_json(path) for path in paths]
    results = [part.of(each) for each in read]
    if level is not None:
        results[0] = results[0].at_level(level)
    for each in results:
        for threshold in at or []:
            within(threshold, each)
    same = first_file.stem == second_file.stem
    names = [str(path) if same else path.stem for path in paths]
    found = fg.diff(
        *results, rows="overlapping" if overlapping else "different", names=(names[0], names[1])
    )
    screen.print(with_progress(lambda: _diff_table(found, at or []), "Measuring"))
    for path, result in zip(paths, read, strict=True):
        if result.signature.state == "broken":
            fail(f"{path} is not what was signed: {result.signature.reason}. Get it again.", 1)


def _diff_table(found: fg.Differences, thresholds: Sequence[float]) -> Table:
    level = f"{found.first.level * 100:g}%"
    title = f"{fitting(found.names[0])} less {fitting(found.names[1])}"
    table, notes = slice_table(title, [f"difference, {level}"]), Notes()
    parts = found.slices
    for part in first(parts):
        where = f"{fitting(part.first.slice)}: " if len(parts) > 1 else ""
        # Of many slices the first number, or a table would have no end.
        for name in _OVER_ALL if len(parts) == 1 else _OVER_ALL[:1]:
            row = getattr(fg.Evaluation, name).title
            table.add_row(f"{where}{row}", notes.number(f"{where}{row}", reads(part, name)))
        table.add_row(f"{where}share positive", notes.number(where, reads(part, "prevalence")))
        for threshold in thresholds:
            for name in _AT:
                row = f"{where}{getattr(fg.AtThreshold, name).title} at {threshold:.6g}"
                table.add_row(row, notes.number(row, reads(part, name, at=threshold)))
    lines = [f"Basis: {found.basis}.", *(f"Note: {note}." for note in found.notes)]
    if len(parts) > len(first(parts)):
        lines.append(f"{len(parts) - len(first(parts)):,} more slices: name one, as --group NAME.")
    return close(table, notes, *lines)


@command()
def trend(
    results: Annotated[
        list[Path], typer.Argument(help="The saved result of each look: files, or their folders.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Save a page (.html) or the numbers (.json, .csv)."),
    ] = None,
    at: At = None,
    rate: Annotated[
        float, typer.Option(help="Largest chance of any false alarm in a whole series.")
    ] = 0.05,
    fail_on_alarm: Annotated[
        bool,
        typer.Option("--fail-on-alarm", help="Exit code 3 if the latest look raises an alarm."),
    ] = False,
    *,
    part: PartOptions,
) -> None:
    """Print how a model did over time, and flag changes larger than chance.

    Exit code 0 with or without alarms, unless you ask for another one.

    Examples:
      fedgauge trend weekly
      fedgauge trend 2026-11-09.json 2026-11-16.json --fail-on-alarm
      fedgauge trend weekly --at 0.5 -o trend.html
    """
    if out is not None and out.suffix not in _SAVES:
        raise fg.InputError(f"-o {out}: name a file that ends in {', '.join(_SAVES)}.")
    refuse_to_replace(trend=out)
    found = fg.read_trend(*results, at=at or (), rate=rate, **asdict(part))
    for threshold in at or []:
        within(threshold, found.results[found.looks[-1]])
    table = with_progress(lambda: _trend_table(found), "Measuring")
    if out is not None:
        getattr(found, f"to_{out.suffix[1:]}")(out)
    for name, reason in found.skipped.items():
        if name.endswith(".json") and out not in [place / name for place in results]:
            warn(f"{name} is left out: {reason}.")
    if screen.quiet:
        for alarm in found.alarms:  # who asks for quiet still hears them
            warn(f"alarm: {alarm}")
    screen.print(table)
    screen.print(str(found))
    if fail_on_alarm and any(alarm.look == found.looks[-1] for alarm in found.alarms):
        raise typer.Exit(_ALARM)


def _trend_table(found: fg.Trend) -> Table:
    """The last looks: a line for each."""
    looks = found.looks[-len(first(found.looks)) :]
    table = slice_table("look", ["examples", "ROC AUC", "positive", "PSI", "by chance"])
    table.add_column("alarm")
    notes = Notes()
    alarmed: dict[str, list[str]] = {}
    for alarm in found.alarms:
        alarmed.setdefault(alarm.look, []).append(alarm.metric)
    for look in looks:
        result, moved = found.results[look], found.shifts[look]
        share = found.estimate(look, "prevalence")
        table.add_row(
            fitting(look),
            f"{result.examples:,}",
            notes.number(look, reads(result, "roc_auc")),
            "" if share is None else f"{share.value:.1%}",
            "" if moved is None else f"{moved.psi:.4f}",
            "" if moved is None else f"{moved.psi_expected:.4f}",
            ", ".join(dict.fromkeys(alarmed.get(look, []))),
        )
    left = len(found.looks) - len(looks)
    return close(
        table, notes, *([f"{left:,} earlier looks: -o trend.html has all."] if left else [])
    )
