"""The command line: arguments to calls, nothing else."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import click
import typer
from rich.console import Console
from rich.table import Table

import fedgauge as fg
from fedgauge import demo as demonstration
from fedgauge.axis import Outside
from fedgauge.report import save_plots

app = typer.Typer(
    help="Measure a classifier on data nobody may pool.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_out = Console(highlight=False, soft_wrap=True, emoji=False)
_err = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)

# What the library calls its options, and what they are called here.
_AS_OPTIONS = {"positive=...": "--positive LABEL", "outside='clip'": "--clip"}


class AxisKind(StrEnum):
    """Kinds of axis that need no data to be made."""

    UNIFORM = "uniform"
    LOGIT = "logit"


class EstimatorKind(StrEnum):
    """Estimators by name."""

    ALIGNED = "aligned"
    QUANTILE = "quantile"


_INTERRUPTED = 130  # what typer returns when the user stops a command
T = TypeVar("T")
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


def _version(wanted: bool) -> None:
    if wanted:
        _out.print(f"fedgauge {fg.__version__}")
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
    positive: Annotated[
        str | None, typer.Option(help="Label of the positive class, unless labels are 0/1.")
    ] = None,
    bins: Annotated[int, typer.Option(help="Number of bins on the score axis.")] = 4096,
    axis: Annotated[
        AxisKind, typer.Option(help="Bins of equal width in the score, or in log-odds.")
    ] = AxisKind.UNIFORM,
    range_: Annotated[
        tuple[float, float] | None,
        typer.Option("--range", metavar="LO HI", help=r"Range of the scores. \[default: 0 1]"),
    ] = None,
    clip: Annotated[
        bool, typer.Option("--clip", help="Count scores outside the range in the end bins.")
    ] = False,
    estimator: Annotated[
        EstimatorKind, typer.Option(help="How curves are drawn between bin edges.")
    ] = EstimatorKind.ALIGNED,
    quantiles: Annotated[
        int | None, typer.Option(help=r"Quantiles for --estimator quantile. \[default: 256]")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Save the result to this file.")] = None,
    plots: Annotated[
        Path | None, typer.Option(help="Save roc.png and pr.png in this folder.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Evaluate a model over score files as if their rows were pooled.

    Examples:

      fedgauge evaluate scores.parquet --client site --label y --score p --json r.json

      fedgauge evaluate site-*.csv --label outcome --score risk --positive yes
    """
    with _readable_errors():
        result = _with_progress(
            quiet,
            lambda: fg.evaluate(
                _clients(files, client, label, score),
                axis=_axis(axis, bins, range_, clip),
                estimator=_estimator(estimator, quantiles),
                positive=positive,
            ),
        )
        result.roc_curve()  # a result without curves is an error here
        if json is not None:
            result.to_json(json)
        if plots is not None:
            save_plots(result.record, plots)
    if not quiet:
        _out.print(str(result), markup=False)


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
    with _readable_errors():
        found = _with_progress(quiet, lambda: demonstration.run(out))
    if quiet:
        return
    _out.print(_demo_table(found))
    _out.print(f"Saved {', '.join(str(path) for path in found.files)}", markup=False)


def _demo_table(found: demonstration.Demo) -> Table:
    auc = found.result.roc_auc
    examples = found.result.negatives + found.result.positives
    table = Table(
        title=f"One model, {found.result.clients} unlike hospitals, {examples:,} patients",
        title_justify="left",
        show_header=False,
        box=None,
        pad_edge=False,
    )
    wrong = abs(found.mean_client_auc - found.exact_auc)
    table.add_row("AUC, mean of hospitals", f"{found.mean_client_auc:.4f}", f"wrong by {wrong:.4f}")
    table.add_row("AUC, fedgauge", f"{auc.value:.4f}", f"surely in {_span(auc.bounds)}")
    table.add_row("AUC, exact (pooled data)", f"{found.exact_auc:.4f}", "what nobody may compute")
    table.add_row("ROC Area Error", f"{found.roc_area_error:.1e}", "area between the two curves")
    table.add_row("PR Area Error", f"{found.pr_area_error:.1e}", "the same for precision-recall")
    table.add_row("Sent by each hospital", f"{found.result.plan.bytes_per_client:,}", "bytes")
    return table


def _span(bounds: tuple[float, float]) -> str:
    return f"{bounds[0]:.5f} to {bounds[1]:.5f}"


def _clients(files: list[Path], client: str | None, label: str, score: str) -> Any:
    if client is not None:
        return fg.ScoreTable(files, client=client, label=label, score=score)
    clients: dict[str, fg.ScoreFile] = {}
    for path in files:
        file = fg.ScoreFile(path, label=label, score=score)
        if file.name in clients:
            raise fg.InputError(
                f"two files make a client named {file.name!r}: {clients[file.name].path} and "
                f"{path}. Rename one, or name a client column with --client."
            )
        clients[file.name] = file
    return clients


def _axis(kind: AxisKind, bins: int, range_: tuple[float, float] | None, clip: bool) -> fg.Axis:
    outside: Outside = "clip" if clip else "refuse"
    if kind is AxisKind.UNIFORM:
        return fg.Axis.uniform(bins, *(range_ or (0.0, 1.0)), outside=outside)
    if range_ is not None:
        raise fg.AxisError("a logit axis always spans 0 to 1. Drop --range, or use --axis uniform.")
    return fg.Axis.logit(bins, outside=outside)


def _estimator(kind: EstimatorKind, quantiles: int | None) -> fg.Aligned | fg.Quantile:
    if kind is EstimatorKind.QUANTILE:
        return fg.Quantile(256 if quantiles is None else quantiles)
    if quantiles is not None:
        raise fg.PlanError("--quantiles needs --estimator quantile.")
    return fg.Aligned()


def _with_progress(quiet: bool, work: Callable[[], T]) -> T:
    if quiet or not _err.is_terminal:
        return work()
    with _err.status("Counting scores"):
        return work()


@contextmanager
def _readable_errors() -> Iterator[None]:
    """One line on stderr and exit code 2 for what the user can mend, 1 for the rest."""
    try:
        yield
    except fg.RecordError as error:
        _fail(error, 1)
    except fg.FedgaugeError as error:
        _fail(error, 2)
    except MemoryError:
        _fail("not enough memory. Use fewer --bins.", 1)


def _fail(reason: object, code: int) -> NoReturn:
    told = " ".join(str(reason).split())
    for name, option in _AS_OPTIONS.items():
        told = told.replace(name, option)
    _err.print(f"fedgauge: {told}", markup=False)
    raise typer.Exit(code)


def main() -> NoReturn:
    """Run the command line."""
    try:
        code = typer.main.get_command(app).main(prog_name="fedgauge", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        code = error.exit_code  # the help has been printed
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "fedgauge"
        _err.print(
            f"fedgauge: {' '.join(error.format_message().split())} Try '{command} --help'.",
            markup=False,
        )
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    if code == _INTERRUPTED:
        _err.print("fedgauge: stopped.", markup=False)
        code = 1
    sys.exit(code or 0)
