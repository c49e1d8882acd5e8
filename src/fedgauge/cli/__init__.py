"""The command line: arguments to calls, nothing else."""

import sys
import warnings
from pathlib import Path
from typing import Annotated, Any, NoReturn, cast

import click
import typer
from rich.table import Table

import fedgauge as fg
from fedgauge import demo as demonstration
from fedgauge.cli import exchanges, ledgers, reporting, results, sites
from fedgauge.cli.options import (
    AxisKind,
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
    Privacy,
    Quiet,
    ScoreSums,
    UnitKind,
    UnitOption,
    make_axis,
    make_clients,
    make_estimator,
    make_privacy,
    make_tree,
)
from fedgauge.cli.results import (
    At,
    AtFpr,
    AtLevel,
    AtPrecision,
    AtRecall,
    Wanted,
    threshold_tables,
)
from fedgauge.cli.terminal import (
    print_result,
    readable_errors,
    screen,
    stderr,
    warn,
    with_progress,
)
from fedgauge.plan.explain import explain as explain_plan
from fedgauge.plots import save_plots

app = typer.Typer(
    help="Measure a classifier on data nobody may pool.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_INTERRUPTED = 130  # what typer returns when the user stops a command


def _version(wanted: bool) -> None:
    if wanted:
        screen.print(f"fedgauge {fg.__version__}")
        raise typer.Exit


app.add_typer(sites.site_app, name="site")
app.add_typer(ledgers.ledger_app, name="ledger")
app.add_typer(exchanges.app, name="exchange")


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def evaluate(
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
    axis: Annotated[
        AxisKind | None,
        typer.Option(help=r"Bins of equal width in the score or in log-odds. \[default: uniform]"),
    ] = None,
    range_: Annotated[
        tuple[float, float] | None,
        typer.Option("--range", metavar="LO HI", help=r"Range of the scores. \[default: 0 1]"),
    ] = None,
    clip: Annotated[
        bool, typer.Option("--clip", help="Count scores outside the range in the end bins.")
    ] = False,
    score_sums: ScoreSums = False,
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
    json: Annotated[Path | None, typer.Option(help="Save the result to this file.")] = None,
    plots: Annotated[
        Path | None, typer.Option(help="Save roc.png and pr.png in this folder.")
    ] = None,
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
    """
    with readable_errors():
        model = make_privacy(privacy, epsilon, delta, noise, unit, neighbours, max_per_unit, oracle)
        result = with_progress(
            quiet,
            lambda: fg.evaluate(
                make_clients(files, client, label, score, subject),
                privacy=model,
                axis=make_axis(axis, bins, range_, clip=clip, noisy=model.adds_noise),
                tree=make_tree(tree),
                estimator=make_estimator(estimator, quantiles),
                examples=examples,
                positive_rate=positive_rate,
                positive=positive,
                score_sums=score_sums,
                seed=seed,
            ),
        )
        if level is not None:
            result = result.at_level(level)
        try:
            result.roc_curve()  # a result without curves is an error here
        except fg.NoSignal:
            if json is not None:  # the budget is spent: keep what was released
                result.to_json(json)
            raise
        if json is not None:
            result.to_json(json)
        if plots is not None:
            save_plots(result, plots, name=score)
        points = Wanted(at, at_fpr, at_recall, at_precision).points(result)
        tables = list(threshold_tables(points, result))
    print_result(result, quiet=quiet)
    if quiet:
        return
    for table in tables:
        screen.print()
        screen.print(table)


app.command()(results.show)
app.command()(results.verify)


@app.command()
def plan(
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
    positive: Annotated[
        str | None, typer.Option(help="Label of the positive class, unless labels are 0/1.")
    ] = None,
    score_sums: ScoreSums = False,
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
        float | None, typer.Option(help="A ROC Area Error you need: says what it takes.")
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

      fedgauge plan --examples 50000 --clients 40 --privacy sa --min-cell 20

      fedgauge plan --examples 50000 --clients 40 --epsilon 1 --not-after 2026-12-31
    """
    with readable_errors():
        model = make_privacy(privacy, epsilon, delta, noise, unit, neighbours, max_per_unit, oracle)
        known: dict[str, Any] = {
            "clients": clients,
            "cohort": fg.Cohort(clients if min_survivors is None else min_survivors, max_colluding),
            "examples": examples,
            "positive_rate": positive_rate,
            "score_sums": score_sums,
        }
        chosen = with_progress(
            quiet,
            lambda: fg.planner.propose(
                privacy=model, positive=positive, min_cell=min_cell, **known
            ),
        ).with_not_after(not_after)
        needed = None
        if want is not None:
            if not isinstance(model, fg.DistributedDP):
                raise fg.PlanError("--want needs --privacy ddp: without noise there is no trade.")
            needed = with_progress(quiet, lambda: fg.planner.needs(want, privacy=model, **known))
        if out is not None:
            chosen.save(out)
    if quiet:
        return
    screen.print(_plan_table(chosen, *fg.planner.check_hints(examples, positive_rate)))
    if needed is not None and chosen.predicted is not None:
        enough = "yes" if chosen.predicted.roc_area_error <= cast(float, want) else "no"
        screen.print(
            f"Enough for a ROC Area Error of {want:g}? {enough}: it takes epsilon "
            f"{needed.epsilon:.2g} with these examples, or about {_round(needed.examples):,} "
            f"examples with this epsilon."
        )
    if out is not None:
        screen.print(f"Saved {out}", markup=False)


@app.command()
def explain(
    path: Annotated[Path, typer.Argument(help="A plan, .toml or .json.")],
    quiet: Quiet = False,
) -> None:
    """Say in plain words what leaves each site under a plan, and what each party learns at worst.

    Example:

      fedgauge explain plan.toml
    """
    with readable_errors():
        text = explain_plan(fg.EvaluationPlan.load(path))
    if not quiet:
        screen.print(text, markup=False)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the plots and the result.")] = Path(
        "fedgauge-demo"
    ),
    quiet: Quiet = False,
) -> None:
    """Evaluate a model over five generated, unlike hospitals.

    Example:

      fedgauge demo --out /tmp/demo
    """
    with readable_errors():
        shown = with_progress(quiet, lambda: demonstration.run(out))
    if quiet:
        return
    screen.print(_demo_table(shown))
    screen.print(f"Saved {', '.join(str(path) for path in shown.files)}", markup=False)


app.command()(sites.doctor)
app.command()(reporting.compare)
app.command()(reporting.encode)
app.command()(reporting.intake)


def _demo_table(shown: demonstration.Demo) -> Table:
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
    widths = "equal width" if axis.kind == "uniform" else "widths fit for such scores"
    tree = "one level" if len(chosen.tree) == 1 else f"tree {' x '.join(map(str, chosen.tree))}"
    table.add_row("Planned for", f"about {examples:,} examples, {rate:.3g} of them positive")
    table.add_row("Axis", f"{axis.bins:,} bins of {widths} on [{axis.low:g}, {axis.high:g}]")
    table.add_row("Tree", tree)
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


def _round(number: int) -> int:
    return int(float(f"{number:.2g}"))


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
        stderr.print(
            f"fedgauge: {' '.join(error.format_message().split())} Try '{command} --help'.",
            markup=False,
        )
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    if code == _INTERRUPTED:
        stderr.print("fedgauge: stopped.", markup=False)
        code = 1
    sys.exit(code or 0)
