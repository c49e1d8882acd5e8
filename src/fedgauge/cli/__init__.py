"""The command line: arguments to calls, nothing else."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import click
import typer
from rich.table import Table

import fedgauge as fg
from fedgauge.cli.elsewhere import Commands
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
    HintExamples,
    HintRate,
    MaxPerUnit,
    Model,
    NeighbourKind,
    Neighbours,
    NoiseKind,
    NoiseOption,
    OracleKind,
    OracleOption,
    Plots,
    Privacy,
    Quiet,
    Range,
    ScoreSums,
    Separator,
    UnitKind,
    UnitOption,
    Values,
    hold_whole_numbers,
    make_axis,
    make_clients,
    make_dialect,
    make_estimator,
    make_privacy,
    make_tree,
    naming_labels,
    planned_axis,
    refuse_given,
)
from fedgauge.cli.outputs import refuse_to_replace
from fedgauge.cli.terminal import (
    note,
    print_result,
    readable_errors,
    screen,
    stderr,
    warn,
    with_progress,
)

if TYPE_CHECKING:
    from fedgauge.demo import Demo
    from fedgauge.privacy import PrivacyModel

app = typer.Typer(
    cls=Commands,
    help="Measure a classifier on data nobody may pool.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
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
    "bins",
    "tree",
    "axis",
    "range_",
    "values",
    "clip",
    "score_sums",
    "calibrator",
    "positive",
}
_INTERRUPTED = 130  # what typer returns when the user stops a command


def _version(wanted: bool) -> None:
    if wanted:
        screen.print(f"fedgauge {fg.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def evaluate(
    ctx: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(help="CSV, TSV (also .gz) or Parquet files of labels and scores."),
    ],
    label: Annotated[str, typer.Option(help="Column of the true label.")],
    score: Annotated[str, typer.Option(help="Column of the score; higher is more positive.")],
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
    estimator: Annotated[
        EstimatorKind, typer.Option(help="How curves are drawn between bin edges.")
    ] = EstimatorKind.ALIGNED,
    quantiles: Annotated[
        int | None, typer.Option(help=r"Quantiles for --estimator quantile. \[default: 256]")
    ] = None,
    at: At = None,
    at_fpr: AtFpr = None,
    at_recall: AtRecall = None,
    at_precision: AtPrecision = None,
    level: AtLevel = None,
    json: Annotated[
        Path | None,
        typer.Option(help="Save the result to this file; - is stdout, with the rest on stderr."),
    ] = None,
    plots: Plots = None,
    seed: Annotated[
        int | None, typer.Option(help="Repeatable noise, which protects nobody: for simulation.")
    ] = None,
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
    """
    from fedgauge.cli.results import read_out

    with readable_errors(), naming_labels(files, label, separator):
        refuse_to_replace(json=json, plots=plots)
        asked = AxisOptions(axis, bins, range_, values)
        design: dict[str, Any]
        if plan_file is not None:
            refuse_given(ctx, _IN_PLANS, f"{plan_file} says it: leave out {{}}, or --plan.")
            design = {"plan": fg.EvaluationPlan.load(plan_file)}
            cap = design["plan"].privacy.unit_cap
        else:
            model = make_privacy(
                ctx, privacy, epsilon, delta, noise, unit, neighbours, max_per_unit, oracle
            )
            _refuse_idle_hints(ctx, model, asked)
            design = {
                "privacy": model,
                "axis": make_axis(asked, clip=clip, noisy=model.adds_noise),
                "tree": make_tree(tree),
                "examples": examples,
                "positive_rate": positive_rate,
                "positive": positive,
                "score_sums": score_sums,
                "calibrator": _load_map(calibrator),
            }
            cap = model.unit_cap
        if cap is None or cap.unit != "subject":
            refuse_given(ctx, {"subject"}, "{} needs --privacy ddp --unit subject. Leave it out.")
        dialect = make_dialect(separator, decimal)
        clients = make_clients(files, client, label, score, subject, dialect)
        result = with_progress(
            quiet,
            lambda: fg.evaluate(
                clients, **design, estimator=make_estimator(estimator, quantiles), seed=seed
            ),
        )
        if level is not None:
            result = result.at_level(level)
        rates = (at, at_fpr, at_recall, at_precision)
        told, tables = with_progress(
            quiet, lambda: read_out(result, json, plots, score, rates), "Measuring"
        )
    out = stderr if json == STDOUT else screen
    print_result(result, told, quiet=quiet, to=out)
    if quiet:
        return
    for table in tables:
        out.print()
        out.print(table)
    better = asked.exact_values(result.plan.axis)
    if better is not None and hold_whole_numbers(clients):
        note(f"the scores are whole numbers: {better}")


def _load_map(path: Path | None) -> fg.Calibrator | None:
    return None if path is None else fg.Calibrator.from_json(path)


@app.command()
def plan(
    ctx: typer.Context,
    clients: Annotated[int, typer.Option(help="How many clients will take part.")],
    examples: HintExamples = None,
    positive_rate: HintRate = None,
    privacy: Privacy = Model.DDP,
    epsilon: Epsilon = None,
    delta: Delta = None,
    noise: NoiseOption = NoiseKind.POLYA,
    unit: UnitOption = UnitKind.EXAMPLE,
    neighbours: Neighbours = NeighbourKind.ADD_REMOVE,
    max_per_unit: MaxPerUnit = 1,
    oracle: OracleOption = OracleKind.OUE,
    min_survivors: Annotated[
        int | None,
        typer.Option(help=r"Fewest clients in the sum. \[default: all, so none may drop out]"),
    ] = None,
    max_colluding: Annotated[
        int, typer.Option(help="Clients that may pool what they know with a reader.")
    ] = 1,
    bins: Annotated[int | None, typer.Option(help=r"Number of bins. \[default: planned]")] = None,
    axis: AxisOption = None,
    range_: Range = None,
    values: Values = None,
    positive: Annotated[
        str | None, typer.Option(help="Label of the positive class, unless labels are 0/1.")
    ] = None,
    score_sums: ScoreSums = False,
    calibrator: CalibratorFile = None,
    min_cell: Annotated[
        int | None,
        typer.Option(
            help="Fewest examples of a class that a result shows in a bin, besides none; 0 merges "
            r"nothing. \[default: 10 without noise]"
        ),
    ] = None,
    not_after: Annotated[
        str | None,
        typer.Option(help="Last day, or moment like 2026-12-31T18:00:00Z, of its use, in UTC."),
    ] = None,
    want: Annotated[
        str | None,
        typer.Option(
            help="A ROC Area Error you need, or half-width of a 95% interval, such as "
            "recall@0.5=0.02 or ece=0.01: says what it takes."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Save the plan (.toml or .json).")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Choose axis, tree and noise from public hints, and predict the errors.

    Examples:

      fedgauge plan --examples 50000 --positive-rate 0.1 --clients 40 --epsilon 1 -o plan.toml

      fedgauge plan --examples 50000 --clients 40 --epsilon 0.3 --want 0.001

      fedgauge plan --examples 50000 --clients 40 --privacy sa --want recall@0.5=0.02

      fedgauge plan --examples 50000 --clients 40 --privacy ldp --epsilon 5 --want ece=0.01

      fedgauge plan --examples 50000 --clients 40 --privacy sa --min-cell 20

      fedgauge plan --examples 50000 --clients 40 --epsilon 1 --not-after 2026-12-31

      fedgauge plan --examples 50000 --clients 40 --epsilon 1 --range -8 8

      fedgauge plan --examples 50000 --clients 40 --privacy sa --values 0..10

      fedgauge plan --examples 50000 --clients 40 --epsilon 1 --calibrator map.json
    """
    from fedgauge.cli.wants import answer, read_want, warn_of_useless

    with readable_errors():
        refuse_to_replace(plan=out)
        chosen_map = _load_map(calibrator)
        model = make_privacy(
            ctx, privacy, epsilon, delta, noise, unit, neighbours, max_per_unit, oracle
        )
        asked = AxisOptions(axis, bins, range_, values)
        known: dict[str, Any] = {
            "clients": clients,
            "cohort": fg.Cohort(clients if min_survivors is None else min_survivors, max_colluding),
            "examples": examples,
            "positive_rate": positive_rate,
            "score_sums": score_sums,
            "axis": planned_axis(asked, noisy=model.adds_noise),
        }
        wanted = None if want is None else read_want(want)
        chosen = with_progress(
            quiet,
            lambda: fg.planner.propose(
                privacy=model,
                positive=positive,
                min_cell=min_cell,
                at=None if wanted is None else wanted.at,
                **known,
            ),
            "Planning",
        )
        chosen = chosen.with_not_after(not_after).with_calibrator(chosen_map)
        told = None
        if wanted is not None:
            needed = with_progress(
                quiet,
                lambda: fg.planner.needs(
                    wanted.within,
                    metric=wanted.metric,
                    at=wanted.at,
                    privacy=model,
                    min_cell=min_cell,
                    **known,
                ),
                "Planning",
            )
            told = answer(wanted, needed, noisy=model.adds_noise)
        if out is not None:
            chosen.save(out)
        warn_of_useless(chosen, known, quiet)
        _warn_of_steep_map(chosen)
    if quiet:
        return
    screen.print(_plan_table(chosen, *fg.planner.check_hints(examples, positive_rate)))
    if told is not None:
        screen.print(told, markup=False)
    better = asked.exact_values(chosen.axis)
    if better is not None and chosen.axis.low >= 0:  # others are hardly points
        screen.print(f"If scores are whole numbers: {better}", markup=False)
    if out is not None:
        screen.print(f"Saved {out}", markup=False)


@app.command()
def explain(
    path: Annotated[Path, typer.Argument(help="A plan, .toml or .json, or an invitation.fgx.")],
    quiet: Quiet = False,
) -> None:
    """Say in plain words what leaves each site under a plan, and what each party learns at worst.

    Of an invitation also who asks. It is compared with no site file: `exchange review` does that.

    Examples:

      fedgauge explain plan.toml

      fedgauge explain /shared/run-1/invitation.fgx
    """
    from fedgauge.plan.explain import explain as in_words

    with readable_errors():
        if path.suffix == ".fgx":
            from fedgauge.engines.review import explain_invitation

            text = explain_invitation(path)
        elif path.is_dir():
            raise fg.PlanError(
                f"{path} is a folder. Name a plan, or the invitation.fgx of an exchange in it."
            )
        else:
            text = in_words(fg.EvaluationPlan.load(path))
    if not quiet:
        screen.print(text, markup=False)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the plots and the result.")] = Path(
        "fedgauge-demo"
    ),
    files: Annotated[
        Path | None,
        typer.Option(help="Only write the files that the documentation uses into this folder."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Evaluate a model over five generated, unlike hospitals.

    Examples:

      fedgauge demo --out /tmp/demo

      fedgauge demo --files .
    """
    from fedgauge.demo import run, write_files

    with readable_errors():
        if files is not None:
            written = with_progress(quiet, lambda: write_files(files), "Writing")
            if not quiet:
                names = ", ".join(path.name for path in written)
                screen.print(f"In {files}: {names}", markup=False)
            return
        shown = with_progress(quiet, lambda: run(out), "Counting, measuring and drawing")
    if quiet:
        return
    screen.print(_demo_table(shown))
    screen.print(f"Saved {', '.join(str(path) for path in shown.files)}", markup=False)


def _demo_table(shown: Demo) -> Table:
    auc = shown.result.roc_auc
    examples = shown.result.negatives + shown.result.positives
    table = Table(
        title=f"One model, {shown.result.clients} unlike hospitals, {examples:,} patients",
        title_justify="left",
        show_header=False,
        box=None,
        pad_edge=False,
    )
    wrong = abs(shown.mean_client_auc - shown.exact_auc)
    table.add_row("AUC, mean of hospitals", f"{shown.mean_client_auc:.4f}", f"wrong by {wrong:.4f}")
    table.add_row("AUC, fedgauge", f"{auc.value:.4f}", f"surely in {_span(auc.bounds)}")
    table.add_row("AUC, exact (pooled data)", f"{shown.exact_auc:.4f}", "what nobody may compute")
    table.add_row("ROC Area Error", f"{shown.roc_area_error:.1e}", "area between the two curves")
    table.add_row("PR Area Error", f"{shown.pr_area_error:.1e}", "the same for precision-recall")
    table.add_row("Sent by each hospital", f"{shown.result.plan.bytes_per_client:,}", "bytes")
    return table


def _plan_table(chosen: fg.EvaluationPlan, examples: int, rate: float) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    axis, predicted = chosen.axis, chosen.predicted
    ends = f"[{axis.low:g}, {axis.high:g}]"
    kinds = {
        "uniform": f"bins of equal width on {ends}",
        "logit": "bins of equal width in log-odds",
        "edges": f"bins of widths fit for such scores on {ends}",
        "values": f"known values on {ends}, each a bin of its own",
    }
    tree = "one level" if len(chosen.tree) == 1 else f"tree {' x '.join(map(str, chosen.tree))}"
    table.add_row("Planned for", f"about {examples:,} examples, {rate:.3g} of them positive")
    table.add_row("Axis", f"{axis.bins:,} {kinds[axis.kind]}")
    table.add_row("Tree", tree)
    if chosen.calibrator is not None:
        table.add_row("Map", f"scores go through {chosen.calibrator.in_words()} first")
    if chosen.min_cell:
        table.add_row("Shown", f"bins merged until each holds 0 or at least {chosen.min_cell}")
    if predicted is not None:
        table.add_row("ROC Area Error", f"{predicted.roc_area_error:.1e} expected")
        table.add_row("PR Area Error", f"{predicted.pr_area_error:.1e} expected")
        table.add_row("AUC error", f"{predicted.roc_auc_error:.1e} expected")
    sender = "Sent for each row" if chosen.final.sends_reports else "Sent by each client"
    table.add_row(sender, f"{chosen.bytes_per_client:,} bytes")
    if chosen.not_after is not None:
        table.add_row("Not after", chosen.not_after)
    table.add_row("Plan", chosen.digest[:8])
    return table


def _warn_of_steep_map(chosen: fg.EvaluationPlan) -> None:
    """Say so where sites, unless their files say otherwise, refuse the map in an exact sum."""
    from fedgauge.site.policy import Policy

    least = Policy().min_bin_width
    if chosen.calibrator is None or chosen.is_noisy or chosen.least_width >= least:
        return
    warn(
        f"behind the map bins are as narrow as {chosen.least_width:.2g} on the scores themselves, "
        f"and sites refuse exact sums below {least:g} (min_bin_width). Use fewer --bins, or noise."
    )


def _refuse_idle_hints(ctx: typer.Context, model: PrivacyModel, asked: AxisOptions) -> None:
    """Refuse hints and trees that would change nothing."""
    if not model.adds_noise:
        idle = {"examples", "positive_rate", "tree"}
        refuse_given(ctx, idle, "{} would do nothing: an exact sum has no noise. Leave that out.")
    elif asked.is_given:
        told = "{} would do nothing: it helps to choose bins, and these are given. Leave it out."
        refuse_given(ctx, {"positive_rate"}, told)


def _span(bounds: tuple[float, float]) -> str:
    return f"{bounds[0]:.5f} to {bounds[1]:.5f}"


def main() -> NoReturn:
    """Run the command line."""
    warnings.showwarning = warn
    try:
        code = typer.main.get_command(app).main(prog_name="fedgauge", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        code = error.exit_code  # the help has been printed
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "fedgauge"
        # Typer suggests commands, and later versions of click add the same once more.
        told = error.message if "Did you mean" in error.message else error.format_message()
        stderr.print(f"fedgauge: {' '.join(told.split())} Try '{command} --help'.", markup=False)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    if code == _INTERRUPTED:
        stderr.print("fedgauge: stopped.", markup=False)
        code = 1
    sys.exit(code or 0)
