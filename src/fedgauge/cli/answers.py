"""Label parties that answer alone, and whoever scored: `vertical answer` and `vertical result`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

import fedgauge as fg
from fedgauge.cli.options import Decimal, Quiet, Separator, SiteOption, make_dialect
from fedgauge.cli.outputs import refuse_to_replace
from fedgauge.cli.progress import price
from fedgauge.cli.terminal import (
    fail,
    print_result,
    readable_errors,
    say_counted,
    screen,
    warn,
    with_progress,
)
from fedgauge.data.oddities import Counted
from fedgauge.engines.answering import Preview, answer_alone, preview
from fedgauge.engines.answers import conclude_alone
from fedgauge.engines.named import NamedLabels
from fedgauge.plan.explain import brief
from fedgauge.site import Site
from fedgauge.vertical.answer import Answer

_HERE = Path("site.toml")
PlanFile = Annotated[Path, typer.Argument(help="The plan, as whoever scored sent it.")]
BinsFile = Annotated[Path, typer.Argument(help="The bins or ranks that this party was sent.")]
LabelsFile = Annotated[
    Path, typer.Argument(metavar="LABELS", help="CSV, TSV (also .gz) or Parquet of labels.")
]
LabelColumn = Annotated[str, typer.Option(help="Column of the true label.")]
IdColumn = Annotated[str | None, typer.Option("--id", help="Column of the id.")]
ScoreColumn = Annotated[
    str | None,
    typer.Option(help="Instead of --id, where this party scored its examples itself."),
]


def register(app: typer.Typer) -> None:
    """Add these commands to those for labels apart from scores."""
    app.command()(check)
    app.command()(answer)
    app.command()(result)


def check(
    plan: PlanFile,
    bins: BinsFile,
    file: LabelsFile,
    label: LabelColumn,
    key: IdColumn = None,
    score: ScoreColumn = None,
    separator: Separator = None,
    decimal: Decimal = None,
    site_file: SiteOption = _HERE,
    quiet: Quiet = False,
) -> None:
    """Label party, before it answers: what the site file says to the plan, and what would count.

    An answer stands, whatever was wrong with the file. Here nothing is charged, sent or stored.
    What it prints is about rows: it stays at this site. It ends with 1 where the site would not
    answer.

    Example:

      fedgauge vertical check plan.toml a.bins bought.csv --label y --id user
    """
    with readable_errors(by_plan=True), _as_input():
        named = _named(file, bins, label, key, score, separator, decimal)
        site, loaded = Site.from_toml(site_file), fg.EvaluationPlan.load(plan)
        seen = preview(site, loaded, named)
    if not quiet:
        _say_preview(seen, site, loaded, file)
    for sentence in seen.warnings:
        warn(sentence)
    if seen.refusal is not None:
        raise typer.Exit(1)


def _say_preview(seen: Preview, site: Site, plan: fg.EvaluationPlan, file: Path) -> None:
    allowed = "The site file allows it" if seen.refusal is None else f"Refuses it: {seen.refusal}"
    lines = [
        allowed if seen.refusal else f"{allowed}, at a cost of {price(site.cost(plan))}.",
        f"{file} would count as {seen.counted.in_words}",
        "Nothing was charged or stored. This is about rows: it stays at this site.",
    ]
    if seen.stood:
        lines.append("This site answered the plan before: that answer stands, whatever this is.")
    elif seen.refusal is None:
        lines.append(
            "This site can answer, and what is warned of then stands."
            if seen.warnings
            else "This site can answer."
        )
    screen.print("\n".join(lines), markup=False)


def answer(
    plan: PlanFile,
    bins: BinsFile,
    file: LabelsFile,
    label: LabelColumn,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the answer goes.")],
    key: IdColumn = None,
    score: ScoreColumn = None,
    flips: Annotated[
        Path | None,
        typer.Option(
            help=r"Where flipped labels are kept. \[default: labels.flips beside the site file]"
        ),
    ] = None,
    separator: Separator = None,
    decimal: Decimal = None,
    site_file: SiteOption = _HERE,
    quiet: Quiet = False,
) -> None:
    """Label party: answer a plan alone, with all of the noise or with labels flipped once.

    It shows what will leave, charges the ledger, and only then reads labels. On this screen only it
    says how many rows there were, how many of them positive or odd. The site keeps its answer:
    run again, it gives the same one, and nothing is charged. `vertical check` says before what
    would count.

    Example:

      fedgauge vertical answer plan.toml a.bins bought.csv --label y --id user --output a.answer
    """
    seen: list[Counted] = []
    with readable_errors(by_plan=True), _as_input():
        named = _named(file, bins, label, key, score, separator, decimal)
        site, loaded = Site.from_toml(site_file), fg.EvaluationPlan.load(plan)
        if flips is not None and not loaded.privacy.flips_labels:
            raise fg.InputError("the plan flips no labels. Leave out --flips.")

        def explain() -> None:
            if not quiet:
                screen.print(f"{brief(loaded)}\n", markup=False)

        made = answer_alone(
            site, loaded, named, output, flips=flips, ready=explain, tell=warn, show=seen.append
        )
    if made.stood:
        warn(
            f"this site answered the plan before, and that answer stands, whatever its file holds "
            f"now. The same bytes are in {output}, and nothing more is charged."
        )
    if quiet:
        return
    for counted in seen:
        say_counted(counted)
    screen.print(f"Saved {output}: send it to whoever scored", markup=False)


def result(
    plan: PlanFile,
    answers: Annotated[list[Path], typer.Argument(help="The answers of the parties.")],
    without_missing: Annotated[
        bool, typer.Option("--without-missing", help="Go on without parties that did not answer.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Save the result to this file.")] = None,
    site_file: SiteOption = _HERE,
    quiet: Quiet = False,
) -> None:
    """Scorer: make the result of what parties answered alone.

    It shows where bins lie and how many examples are in them to whoever reads it. No party
    confirms it: it is unsigned, and rests on the word of whoever scored.

    Example:

      fedgauge vertical result plan.toml *.answer --site platform/site.toml --json r.json
    """
    with readable_errors(by_plan=True), _as_input():
        refuse_to_replace(json=json)
        site, loaded = Site.from_toml(site_file), fg.EvaluationPlan.load(plan)
        given = [Answer.load(path) for path in answers]
        made = with_progress(
            quiet,
            lambda: conclude_alone(site, loaded, given, without_missing=without_missing),
            "Measuring",
        )
        if json is not None:  # the budget is spent: kept, whatever it shows
            made.to_json(json)
        if isinstance(made, fg.Evaluation):
            _require_curves(made)
    print_result(made, quiet=quiet)
    if json is not None and not quiet:
        screen.print(f"Saved {json}, unsigned", markup=False)


def _require_curves(made: fg.Evaluation) -> None:
    """A result without curves is an error here, which a caution may explain."""
    try:
        made.roc_curve()
    except fg.UndefinedMetric:
        if made.caution is not None:
            warn(made.caution)
        raise


def _named(
    file: Path,
    bins: Path,
    label: str,
    key: str | None,
    score: str | None,
    separator: str | None,
    decimal: str | None,
) -> NamedLabels:
    """Where the labels are, and what names them."""
    if (key is None) == (score is None):
        raise fg.InputError(
            "name one column: of ids (--id) or, where this party scored its examples itself, of "
            "scores (--score)."
        )
    column = key or score
    assert column is not None  # noqa: S101  (one of both is named)
    dialect = make_dialect(separator, decimal)
    return NamedLabels(str(file), label, column, str(bins), score is not None, **dialect)


@contextmanager
def _as_input() -> Iterator[None]:
    """What another party sent is input here: a wrong file is the caller's to mend."""
    try:
        yield
    except fg.ProtocolError as error:
        fail(error, fg.InputError.exit_code)
