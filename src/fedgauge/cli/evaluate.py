"""`evaluate`: the rows of files that lie here, as if every client had counted its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import fedgauge as fg
from fedgauge.cli.options import (
    STDOUT,
    At,
    AtFpr,
    AtLevel,
    AtPrecision,
    AtRecall,
    AxisOption,
    AxisOptions,
    CalibratorFile,
    Decimal,
    Delta,
    Epsilon,
    EstimatorKind,
    EstimatorOption,
    HintExamples,
    HintRate,
    Html,
    MaxPerUnit,
    Model,
    NeighbourKind,
    Neighbours,
    NoiseKind,
    NoiseOption,
    NoShrink,
    OracleKind,
    OracleOption,
    Plots,
    Privacy,
    Quantiles,
    Quiet,
    Range,
    SaveJson,
    ScoresOption,
    ScoreSums,
    Seed,
    Separator,
    UnitKind,
    UnitOption,
    Values,
    hold_whole_numbers,
    is_searching,
    joined,
    load_map,
    make_axis,
    make_clients,
    make_dialect,
    make_estimator,
    make_privacy,
    make_tree,
    naming_labels,
    refuse_exact,
    refuse_given,
)
from fedgauge.cli.show import read_out
from fedgauge.cli.slice_options import (
    Also,
    ClassScores,
    Crossed,
    GroupValues,
    Margin,
    ModelScore,
    Named,
    PairedBrier,
    PairOption,
    ScoreOption,
    SliceOptions,
    check_groups,
    columns_of,
    task_and_columns,
)
from fedgauge.cli.terminal import (
    note,
    print_result,
    readable_errors,
    refuse_to_replace,
    screen,
    stderr,
    warn,
    with_progress,
)
from fedgauge.plan.task import measured_by

if TYPE_CHECKING:
    from fedgauge.plan.task import AnyTask
    from fedgauge.privacy import PrivacyModel

# What a plan says of all that `evaluate` can be told.
_IN_PLANS = {
    "privacy",
    "epsilon",
    "delta",
    "noise",
    "unit",
    "neighbours",
    "max_per_unit",
    "oracle",
    "examples",
    "positive_rate",
    "scores",
    "bins",
    "tree",
    "axis",
    "range_",
    "values",
    "clip",
    "score_sums",
    "calibrator",
    "positive",
    "crossed",
    "also",
    "pair",
    "paired_brier",
}


def evaluate(
    ctx: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(help="CSV, TSV (also .gz) or Parquet files of labels and scores."),
    ],
    label: Annotated[
        str,
        typer.Option(help="Column of the true label; of several labels a row fever=y1,cough=y2."),
    ],
    score: ScoreOption = None,
    class_scores: ClassScores = None,
    model_score: ModelScore = None,
    group: GroupValues = None,
    crossed: Crossed = False,
    also: Also = None,
    pair: PairOption = None,
    paired_brier: PairedBrier = False,
    margin: Margin = None,
    client: Annotated[
        str | None,
        typer.Option(help="Column that names the client. Without it each file is one client."),
    ] = None,
    subject: Annotated[
        str | None, typer.Option(help="Column of the subject's id, for --unit subject.")
    ] = None,
    positive: Annotated[
        str | None, typer.Option(help="Label of the positive class, unless labels are 0/1.")
    ] = None,
    plan_file: Annotated[
        Path | None, typer.Option("--plan", help="Rehearse this plan, instead of options for one.")
    ] = None,
    separator: Separator = None,
    decimal: Decimal = None,
    privacy: Privacy = Model.SA,
    epsilon: Epsilon = None,
    delta: Delta = None,
    noise: NoiseOption = NoiseKind.POLYA,
    unit: UnitOption = UnitKind.EXAMPLE,
    neighbours: Neighbours = NeighbourKind.ADD_REMOVE,
    max_per_unit: MaxPerUnit = 1,
    oracle: OracleOption = OracleKind.OUE,
    examples: HintExamples = None,
    positive_rate: HintRate = None,
    scores: ScoresOption = None,
    bins: Annotated[
        int | None, typer.Option(help=r"Number of bins. \[default: 4096, or planned under ddp]")
    ] = None,
    tree: Annotated[
        str | None, typer.Option(help="Branchings over the bins under ddp, such as 16x16.")
    ] = None,
    axis: AxisOption = None,
    range_: Range = None,
    values: Values = None,
    clip: Annotated[
        bool, typer.Option("--clip", help="Count scores outside the range in the end bins.")
    ] = False,
    score_sums: ScoreSums = False,
    calibrator: CalibratorFile = None,
    estimator: EstimatorOption = EstimatorKind.ALIGNED,
    quantiles: Quantiles = None,
    no_shrink: NoShrink = False,
    at: At = None,
    at_fpr: AtFpr = None,
    at_recall: AtRecall = None,
    at_precision: AtPrecision = None,
    level: AtLevel = None,
    json: SaveJson = None,
    plots: Plots = None,
    html: Html = None,
    seed: Seed = None,
    quiet: Quiet = False,
) -> None:
    """Evaluate a model over score files as if their rows were pooled.

    Examples:

      fedgauge evaluate scores.parquet --client site --label y --score p --json r.json

      fedgauge evaluate site-*.csv --label outcome --score risk --positive yes

      fedgauge evaluate s.parquet --client site --label y --score p --privacy ddp --epsilon 1

      fedgauge evaluate site-*.csv --label y --score p --at 0.5 --at-fpr 0.01

      fedgauge evaluate points.csv --label y --score points --values 0..10

      fedgauge evaluate export.csv --label y --score p --separator ';' --decimal ','

      fedgauge evaluate site-*.csv --label y --score p --calibrator map.json

      fedgauge evaluate site-*.csv --label y --score p --plan plan.toml

      fedgauge evaluate site-*.csv --label y --score p --axis two-round

      fedgauge evaluate clinic-*.csv --label y --score new --group sex=women,men --at 0.5

      fedgauge evaluate clinic-*.csv --label y --model-score new=new --model-score old=old

      fedgauge evaluate clinic-*.csv --label kind --class-scores flu=p_flu,cold=p_cold,well=p_well
    """
    with readable_errors(), naming_labels(files, label, separator) as known:
        refuse_to_replace(json=json, plots=plots, html=html)
        asked = AxisOptions(axis, bins, range_, values)
        named = Named(label, score, joined(class_scores), model_score or (), group or ())
        design: dict[str, Any]
        task: AnyTask
        if plan_file is not None:
            refuse_given(ctx, _IN_PLANS, f"{plan_file} says it: leave out {{}}, or --plan.")
            design = {"plan": fg.EvaluationPlan.load(plan_file)}
            task = measured_by(design["plan"].task)
            columns = columns_of(task, named)
            cap = design["plan"].privacy.unit_cap
            if not design["plan"].is_noisy:
                refuse_exact(ctx, {"no_shrink"})
        else:
            model = make_privacy(
                ctx, privacy, epsilon, delta, noise, unit, neighbours, max_per_unit, oracle
            )
            _refuse_idle_hints(ctx, model, asked)
            one_by_one = model.sends_reports or is_searching(asked, scores)
            told = SliceOptions(
                positive, crossed, joined(also), pair or (), paired_brier, one_by_one
            )
            task, columns = task_and_columns(named, told, files)
            design = {
                "privacy": model,
                "axis": make_axis(asked, clip=clip, noisy=model.adds_noise),
                "tree": make_tree(tree),
                "examples": examples,
                "positive_rate": positive_rate,
                "scores": None if scores is None else scores.value,
                "task": task,
                "score_sums": score_sums,
                "calibrator": load_map(calibrator),
            }
            cap = model.unit_cap
        known += map(str, getattr(task, "labels", ()))
        if not getattr(task, "models", ()):
            refuse_given(ctx, {"margin"}, "{} is for two models (--model-score). Leave it out.")
        if cap is None or cap.unit != "subject":
            refuse_given(ctx, {"subject"}, "{} needs --privacy ddp --unit subject. Leave it out.")
        dialect = make_dialect(separator, decimal)
        clients = make_clients(
            files, client, columns.label, columns.score, subject, dialect, columns.group
        )
        design["estimator"] = make_estimator(estimator, quantiles, no_shrink=no_shrink)
        result = with_progress(quiet, lambda: fg.evaluate(clients, **design, seed=seed))
        for warning in check_groups(result, columns, files, dialect["separator"]):
            warn(warning)
        if level is not None:
            result = result.at_level(level)
        rates = (at, at_fpr, at_recall, at_precision)
        words, tables = with_progress(
            quiet,
            lambda: read_out(result, json, plots, columns.name, rates, margin, html),
            "Measuring",
        )
    out = stderr if json == STDOUT else screen
    print_result(result, words, quiet=quiet, to=out)
    if quiet:
        return
    for table in tables:
        out.print()
        out.print(table, markup=False)
    better = asked.exact_values(result.plan.axis)
    if better is not None and hold_whole_numbers(clients):
        note(f"the scores are whole numbers: {better}")


def _refuse_idle_hints(ctx: typer.Context, model: PrivacyModel, asked: AxisOptions) -> None:
    """Refuse hints and trees that would change nothing."""
    if not model.adds_noise:
        refuse_exact(ctx, {"examples", "positive_rate", "tree", "no_shrink"})
    elif asked.is_given:
        told = "{} would do nothing: it helps to choose bins, and these are given. Leave it out."
        refuse_given(ctx, {"positive_rate"}, told)
