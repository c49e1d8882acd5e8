"""`evaluate`: the rows of files that lie here, as if every client had counted its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
import typer

import fedgauge as fg
from fedgauge.cli.client_files import ClientFiles, RowFiles
from fedgauge.cli.command import command
from fedgauge.cli.options import (
    STDOUT,
    AxisOptions,
    CalibratorFile,
    EstimatorOptions,
    FileOptions,
    HintExamples,
    HintRate,
    Plots,
    PrivacyOptions,
    SaveJson,
    ScoreSums,
    Seed,
    TreeOption,
    hold_whole_numbers,
    load_map,
    make_clients,
    make_tree,
    naming_labels,
    refuse_exact,
    refuse_given,
)
from fedgauge.cli.show import ThresholdOptions, read_out
from fedgauge.cli.slice_options import ColumnOptions, Margin, SliceColumns, check_groups
from fedgauge.cli.terminal import (
    note,
    print_result,
    refuse_to_replace,
    screen,
    stderr,
    warn,
    with_progress,
)
from fedgauge.plan.task import measured_by

if TYPE_CHECKING:
    from fedgauge.data.examples import RowSource
    from fedgauge.plan.task import MeasuredTask
    from fedgauge.privacy import PrivacyModel

_USUAL = "files label score client positive privacy epsilon at json html quiet"
# Options of `evaluate` that a plan takes the place of.
_IN_PLANS = {
    *("privacy", "epsilon", "delta", "noise", "unit", "neighbours", "max_per_unit", "oracle"),
    *("examples", "positive_rate", "scores", "bins", "tree", "axis", "range_", "values", "clip"),
    *("score_sums", "calibrator", "positive", "crossed", "also", "pair"),
}
# Options of `evaluate` that a file of settings takes the place of.
_IN_SETTINGS = {
    *("label", "score", "class_scores", "model_score", "positive", "client", "subject"),
    *("separator", "decimal", "encoding", "drop_missing"),
}
_POOLED = SliceColumns("", ())


@dataclass(frozen=True, kw_only=True)
class RowOptions(FileOptions):
    """Whose rows files hold."""

    client: Annotated[
        str | None,
        typer.Option(help="Column that names the client. Without it each file is one client."),
    ] = None
    clients: Annotated[
        Path | None,
        typer.Option(
            help="Settings in TOML in place of files: a table for each client, with its path, "
            "columns and spelling."
        ),
    ] = None
    drop_missing: Annotated[
        bool, typer.Option("--drop-missing", help="Leave out rows without a label or a score.")
    ] = False
    subject: Annotated[
        str | None, typer.Option(help="Column of the subject's id, for --unit subject.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class SimulatedPrivacy(PrivacyOptions):
    """The privacy model or the plan that is tried out here."""

    plan: Annotated[
        Path | None, typer.Option(help="Plan to simulate, in place of plan options such as --bins.")
    ] = None
    seed: Seed = None


@dataclass(frozen=True, kw_only=True)
class BinOptions(AxisOptions):
    """What rows are counted in."""

    examples: HintExamples = None
    positive_rate: HintRate = None
    tree: TreeOption = None
    clip: Annotated[
        bool, typer.Option("--clip", help="Count scores outside the range in the end bins.")
    ] = False
    score_sums: ScoreSums = False
    calibrator: CalibratorFile = None

    def refuse_idle(self, model: PrivacyModel) -> None:
        """Refuse hints and trees that would change nothing."""
        if not model.adds_noise:
            refuse_exact({"examples", "positive_rate", "tree", "no_shrink"})
        elif self.is_given:
            told = (
                "{} would do nothing: it is for choosing bins, and these are given. Leave it out."
            )
            refuse_given({"positive_rate"}, told)


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Where results go."""

    panel: ClassVar[str] = "Output"

    json: SaveJson = None
    html: Annotated[
        Path | None, typer.Option(help="Save a report for people: one HTML file for a browser.")
    ] = None
    plots: Plots = None
    margin: Margin = None


@command(usual=_USUAL)
def evaluate(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="CSV, TSV (also .gz), Parquet or Excel files of labels and scores."),
    ] = None,
    *,
    columns: ColumnOptions,
    rows: RowOptions,
    privacy: SimulatedPrivacy,
    bins: BinOptions,
    thresholds: ThresholdOptions,
    estimator: EstimatorOptions,
    output: OutputOptions,
) -> None:
    """Evaluate a model over score files as if their rows were pooled.

    Examples:
      fedgauge evaluate scores.parquet --client site --label y --score p --json r.json
      fedgauge evaluate site-*.csv --label outcome --score risk --positive yes
      fedgauge evaluate s.parquet --client site --label y --score p --privacy ddp --epsilon 1
      fedgauge evaluate site-*.csv --label y --score p --at 0.5 --at-fpr 0.01
      fedgauge evaluate points.csv --label y --score points --values 0..10
      fedgauge evaluate export.csv --label y --score p --separator ';' --decimal ','
      fedgauge evaluate --clients clients.toml
      fedgauge evaluate site-*.csv --label y --score p --calibrator map.json
      fedgauge evaluate site-*.csv --label y --score p --plan plan.toml
      fedgauge evaluate site-*.csv --label y --score p --axis two-round
      fedgauge evaluate clinic-*.csv --label y --score new --group sex=women,men --at 0.5
      fedgauge evaluate clinic-*.csv --label y --model-score new=new --model-score old=old
      fedgauge evaluate clinic-*.csv --label kind --class-scores flu=p_flu,cold=p_cold,well=p_well
    """
    refuse_to_replace(json=output.json, plots=output.plots, html=output.html)
    settings = _settings(files, rows)
    row_files = (
        RowFiles.alike(files or [], columns.label or "", rows.dialect)
        if settings is None
        else settings.row_files
    )
    with naming_labels(row_files.labels) as known:
        design, task, where = _design(row_files, settings, columns, privacy, bins, thresholds)
        known += filter(None, task.labels_told)
        if not task.models:
            refuse_given({"margin"}, "{} is for two models (--model-score). Leave it out.")
        clients = (
            settings.of_task(task)
            if settings is not None
            else make_clients(
                *(files or [], rows.client, where.label, where.score),
                *(rows.subject, rows.dialect, where.group),
                drop_missing=rows.drop_missing,
            )
        )
        design |= {"estimator": estimator.make(), "seed": privacy.seed}
        result = with_progress(lambda: fg.evaluate(clients, **design))
        _say_dropped(clients)
        _say(result, where, row_files, thresholds, output)
    better = bins.exact_values(result.plan.axis)
    if better is not None and not screen.quiet and hold_whole_numbers(clients):
        note(f"the scores are whole numbers: {better}")


def _settings(files: list[Path] | None, rows: RowOptions) -> ClientFiles | None:
    """The file of settings, or None if files are named one by one."""
    if rows.clients is None:
        if not files:
            context = click.get_current_context()
            (param,) = (each for each in context.command.params if each.name == "files")
            raise click.MissingParameter(ctx=context, param=param)  # as if they were required
        return None
    if files:
        raise fg.InputError(f"{rows.clients} names the files. Leave out {files[0]}, or --clients.")
    refuse_given(_IN_SETTINGS, f"{rows.clients} says it: leave out {{}}, or --clients.")
    return ClientFiles(rows.clients)


def _design(
    files: RowFiles,
    settings: ClientFiles | None,
    columns: ColumnOptions,
    privacy: SimulatedPrivacy,
    bins: BinOptions,
    thresholds: ThresholdOptions,
) -> tuple[dict[str, Any], MeasuredTask, SliceColumns]:
    """What is measured and how: by a plan that stands, or by options."""
    task: MeasuredTask
    if privacy.plan is not None:
        refuse_given(_IN_PLANS, f"{privacy.plan} says it: leave out {{}}, or --plan.")
        plan = fg.EvaluationPlan.load(privacy.plan)
        task, model = measured_by(plan.task), plan.privacy
        design: dict[str, Any] = {"plan": plan}
        where = _POOLED if settings is not None else columns.planned(task)
        if not plan.is_noisy:
            refuse_exact({"no_shrink"})
    else:
        model = privacy.model()
        bins.refuse_idle(model)
        one_by_one = model.sends_reports or bins.is_searching
        if settings is None:
            task, where = columns.task(one_by_one=one_by_one, files=files)
        else:
            groups = columns.groups(files)
            task = settings.task(columns.apart(one_by_one=one_by_one), groups)
            where = _POOLED._replace(group={name: name for name in groups})
        design = {
            "privacy": model,
            "axis": bins.make(clip=bins.clip, noisy=model.adds_noise),
            "tree": make_tree(bins.tree),
            "examples": bins.examples,
            "positive_rate": bins.positive_rate,
            "scores": None if bins.scores is None else bins.scores.value,
            "task": task,
            "score_sums": bins.score_sums,
            "calibrator": load_map(bins.calibrator),
        }
        if design["axis"] == "auto" and not bins.is_searching:
            design["at"] = [at for at in thresholds.at or () if 0 < at < 1] or None
    if model.unit_cap is None or model.unit_cap.unit != "subject":
        refuse_given({"subject"}, "{} needs --privacy ddp --unit subject. Leave it out.")
    return design, task, where


def _say_dropped(clients: fg.ScoreTable | Mapping[str, RowSource]) -> None:
    """How many rows were left out: for whoever holds them, and in no result."""
    for source in (clients,) if isinstance(clients, fg.ScoreTable) else clients.values():
        if source.dropped:
            note(f"{source}: {source.dropped:,} rows without a label or a score were left out.")


def _say(
    result: fg.Evaluation,
    where: SliceColumns,
    files: RowFiles,
    thresholds: ThresholdOptions,
    output: OutputOptions,
) -> None:
    """Save what was asked for, and print the rest."""
    for warning in check_groups(result, where, files):
        warn(warning)
    result = thresholds.at_level(result)
    words, tables = with_progress(
        lambda: read_out(
            result,
            thresholds,
            name=where.name,
            json=output.json,
            plots=output.plots,
            html=output.html,
            margin=output.margin,
        ),
        "Measuring",
    )
    out = stderr if output.json == STDOUT else screen
    print_result(result, words, to=out)
    if not screen.quiet:
        for table in tables:
            out.print()
            out.print(table)
