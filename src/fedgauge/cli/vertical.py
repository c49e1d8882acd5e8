"""`vertical evaluate` and `vertical plan`: labels and scores apart, in one process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from rich.table import Table

import fedgauge as fg
from fedgauge.cli import vertical_parties
from fedgauge.cli.client_files import RowFiles
from fedgauge.cli.command import command
from fedgauge.cli.options import (
    STDOUT,
    Delta,
    EstimatorOptions,
    FileOptions,
    HintRate,
    Model,
    NoiseKind,
    NoiseOption,
    Plots,
    Positive,
    SaveJson,
    Seed,
    TreeOption,
    make_clients,
    make_tree,
    naming_labels,
    refuse_exact,
    refuse_given,
    refuse_idle,
)
from fedgauge.cli.plan import answer, read_want
from fedgauge.cli.show import ThresholdOptions, read_out, save_json
from fedgauge.cli.terminal import (
    note,
    plain_table,
    print_result,
    refuse_to_replace,
    screen,
    stderr,
    warn,
    with_progress,
)

if TYPE_CHECKING:
    from fedgauge.cli.plan import Want
    from fedgauge.privacy import AnyPrivacyModel
    from fedgauge.vertical.joining import JoinedExamples

app = typer.Typer(
    help="Scores at one party, labels at others, with privacy for labels.\n\nSimulated in one "
    "process: plan, evaluate. Between parties: each label party runs roster, the scorer runs "
    "assign; then `fedgauge exchange`, as between sites. With one or two label parties, or "
    "without a sum: label parties run check and answer, the scorer runs result.",
    no_args_is_help=True,
)


class MechanismKind(StrEnum):
    """Mechanisms by name."""

    AUTO = "auto"
    HISTOGRAM = "histogram"
    ADAPTIVE = "adaptive"
    ORTHOGONAL = "orthogonal"
    LAPLACE_GLOBAL = "laplace-global"
    LAPLACE_LOCAL = "laplace-local"
    GAUSSIAN = "gaussian"


class OnlyKind(StrEnum):
    """What can be asked for alone."""

    ROC_AUC = "roc_auc"


_NO_IDS = (
    "{} would do nothing: in --client-scored files each row has its label and its score. Leave it "
    "out."
)
_OR_BOTH = "Where parties hold scores and labels, add --client-scored."
_SIMULATED = (
    "This is a simulation: one process read scores and labels. Between parties each keeps its own."
)
_NO_PROBABILITIES = (
    "scores lie beyond 0 to 1. Curves and AUC are not affected, but there is no calibration. "
    "Divide percentages by 100."
)
_OF_ALL = {
    *("at", "at_fpr", "at_recall", "at_precision", "level", "plots"),
    *("estimator", "quantiles", "no_shrink"),
}
LabelEpsilon = Annotated[
    float | None, typer.Option("--epsilon", help=r"Privacy budget of a label. \[default: 1]")
]


@dataclass(frozen=True, kw_only=True)
class PartyFiles(FileOptions):
    """Where files have ids, labels and scores, and whose they are."""

    label: Annotated[str, typer.Option(help="Column of the true label.")]
    score: Annotated[str, typer.Option(help="Column of the score; higher is more positive.")]
    id_: Annotated[
        str | None, typer.Option("--id", help="Column of the id, in files of both kinds.")
    ] = None
    party: Annotated[
        str | None,
        typer.Option(help="Column that names the label party. Without it each file is one."),
    ] = None
    client_scored: Annotated[
        bool,
        typer.Option(
            "--client-scored",
            help="Parties scored their own examples: each file has labels and scores.",
        ),
    ] = False
    positive: Positive = None


@dataclass(frozen=True, kw_only=True)
class LabelPrivacy:
    """What each label is promised, and what parties send."""

    panel: ClassVar[str] = "Privacy"

    privacy: Annotated[
        Model, typer.Option(help="Distributed DP (ddp), labels flipped (ldp) or an exact sum (sa).")
    ] = Model.DDP
    epsilon: LabelEpsilon = None
    delta: Delta = None
    noise: NoiseOption = NoiseKind.POLYA
    mechanism: Annotated[
        MechanismKind, typer.Option(help="What parties send; all but histogram need --only.")
    ] = MechanismKind.AUTO
    only: Annotated[
        OnlyKind | None, typer.Option(help="Measure the AUC only, with the least noise.")
    ] = None
    positive_rate: HintRate = None
    tree: TreeOption = None
    seed: Seed = None

    def model(self) -> AnyPrivacyModel:
        """The privacy model, where epsilon is 1 unless it is said; idle options are refused."""
        refuse_idle(self.privacy)
        epsilon = 1.0 if self.epsilon is None else self.epsilon
        if self.privacy is Model.SA:
            return fg.SecureAggregation()
        if self.privacy is Model.LDP:
            return fg.LocalDP(epsilon, unit="label")
        return fg.DistributedDP(
            epsilon, delta=self.delta, noise=self.noise.value, unit="label", neighbours="flip"
        )


@dataclass(frozen=True, kw_only=True)
class SavedFiles:
    """Where results go."""

    panel: ClassVar[str] = "Output"

    json: SaveJson = None
    plots: Plots = None


@app.command()
@command(
    usual="files label score id_ party client_scored positive privacy epsilon only at json quiet"
)
def evaluate(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="SCORES LABELS...",
            help="A file of scores, then one of labels for each party: CSV, TSV (also .gz) or "
            "Parquet.",
        ),
    ],
    *,
    columns: PartyFiles,
    privacy: LabelPrivacy,
    thresholds: ThresholdOptions,
    estimator: EstimatorOptions,
    output: SavedFiles,
) -> None:
    """Simulate an evaluation: this process reads all files, and no party is protected from it.

    Ids are compared as they are written; those without a partner are counted and left out.

    Examples:
      fedgauge vertical evaluate scores.csv shop-*.csv --id user --score p --label bought
      fedgauge vertical evaluate scores.csv labels.csv --party shop --id user --score p --label y
      fedgauge vertical evaluate scores.csv shop-*.csv --id user --score p --label y --only roc_auc
      fedgauge vertical evaluate scores.csv shop-*.csv --id user --score p --label y --privacy ldp
      fedgauge vertical evaluate clinic-*.csv --client-scored --score p --label y
    """
    from fedgauge.vertical.evaluate import evaluate_vertical

    of_labels = files if columns.client_scored else files[1:]
    with naming_labels(RowFiles.alike(of_labels, columns.label, columns.dialect).labels):
        refuse_to_replace(json=output.json, plots=output.plots)
        design = _design(privacy, estimator, columns)
        joined = with_progress(lambda: _join(files, columns), "Joining")
        result = with_progress(lambda: evaluate_vertical(None, joined, **design))
        told, tables = with_progress(
            lambda: _told(result, columns.score, thresholds, output), "Measuring"
        )
    if joined.left_out is not None:
        warn(joined.left_out)
    out = stderr if output.json == STDOUT else screen
    print_result(result, told, to=out)
    if screen.quiet:
        return
    for table in tables:
        out.print()
        out.print(table)
    out.print(_SIMULATED)
    for each in _notes(joined, result):
        note(each)


def _design(
    privacy: LabelPrivacy, estimator: EstimatorOptions, columns: PartyFiles
) -> dict[str, Any]:
    """What is measured and how; options that would do nothing are refused."""
    from fedgauge.vertical.evaluate import check_wanted

    if privacy.only is not None:
        refuse_given(_OF_ALL, "{} would do nothing: --only asks for the AUC alone.")
    model = privacy.model()
    if not model.adds_noise:
        refuse_exact({"no_shrink"})
    check_wanted(privacy.mechanism.value, privacy.only, model)
    if columns.client_scored:
        refuse_given({"id_"}, _NO_IDS)
    return {
        "privacy": model,
        "mechanism": privacy.mechanism.value,
        "only": None if privacy.only is None else privacy.only.value,
        "cohort": None,
        "tree": make_tree(privacy.tree),
        "positive_rate": privacy.positive_rate,
        "positive": columns.positive,
        "estimator": estimator.make(),
        "seed": privacy.seed,
        "summation": "plain",
    }


def _join(files: list[Path], columns: PartyFiles) -> JoinedExamples:
    from fedgauge.vertical.joining import join, scored_by_parties

    dialect = columns.dialect
    if columns.client_scored:
        return scored_by_parties(
            make_clients(files, columns.party, columns.label, columns.score, None, dialect)
        )
    if columns.id_ is None:
        raise fg.InputError(f"name the column of the id with --id. {_OR_BOTH}")
    if len(files) < 2:
        raise fg.InputError(
            f"{files[0]} is one file: that of scores comes first, then labels. {_OR_BOTH}"
        )
    from fedgauge.data.files import name_of, refuse_repeated_files

    refuse_repeated_files(files)
    scores = _scores(files[0], columns)
    ids: dict[str, Any] = {"id": columns.id_, "value": columns.label, **dialect}
    if columns.party is not None:
        return join(scores, fg.IdTable(files[1:], party=columns.party, **ids))
    labels: dict[str, fg.IdTable] = {}
    for path in files[1:]:
        name = name_of(path)
        if name in labels:
            raise fg.InputError(
                f"two files make a party named {name!r}: {labels[name]} and {path}. Rename one, or "
                "name a column of parties with --party."
            )
        labels[name] = fg.IdTable(path, **ids)
    return join(scores, labels)


def _scores(path: Path, columns: PartyFiles) -> fg.IdTable:
    """The file of scores; where it is one of labels, that is said."""
    ids: dict[str, Any] = {"id": columns.id_, **columns.dialect}
    try:
        return fg.IdTable(path, value=columns.score, **ids)
    except fg.InputError:
        try:
            fg.IdTable(path, value=columns.label, **ids)
        except fg.InputError:
            pass
        else:
            raise fg.InputError(
                f"{path}: there is no column {columns.score!r}, but there is {columns.label!r}: "
                f"these are labels. Name the file of scores first. {_OR_BOTH}"
            ) from None
        raise


def _told(
    result: fg.Evaluation | fg.LabelAuc,
    score: str,
    thresholds: ThresholdOptions,
    output: SavedFiles,
) -> tuple[str, list[Table | str]]:
    """A result in words and tables; saves what is to be saved."""
    if isinstance(result, fg.Evaluation):
        result = thresholds.at_level(result)
        return read_out(result, thresholds, name=score, json=output.json, plots=output.plots)
    if output.json is not None:
        save_json(result, output.json)
    return str(result), []


def _notes(joined: JoinedExamples, result: fg.Evaluation | fg.LabelAuc) -> Iterator[str]:
    """What to know of the scores, and need be no fault."""
    if joined.unlabelled:
        many = len(joined.scores) + joined.unlabelled
        yield f"{joined.unlabelled:,} of {many:,} scores have no label and are left out."
    beyond = joined.scores.min() < 0 or joined.scores.max() > 1
    if beyond and isinstance(result, fg.Evaluation):
        yield _NO_PROBABILITIES


@app.command()
@command()
def plan(
    parties: Annotated[int, typer.Option(help="How many label parties will take part.")],
    examples: Annotated[int, typer.Option(help="About how many examples there are in all.")],
    epsilon: LabelEpsilon = None,
    delta: Delta = None,
    noise: NoiseOption = NoiseKind.POLYA,
    positive_rate: HintRate = None,
    auc: Annotated[float, typer.Option(help="About what the AUC will be.")] = 0.85,
    only: Annotated[OnlyKind | None, typer.Option(help="Apply --want to the AUC only.")] = None,
    want: Annotated[
        str | None,
        typer.Option(
            help="The accuracy you need: half the width of a 95% interval of the AUC, such as "
            "roc_auc=0.01, or a ROC Area Error, roc=0.001. Prints what it takes."
        ),
    ] = None,
) -> None:
    """Say from public figures which mechanism is best and what to expect of it.

    Examples:
      fedgauge vertical plan --parties 4 --examples 20000 --epsilon 1 --positive-rate 0.1
      fedgauge vertical plan --parties 2 --examples 5000 --epsilon 0.5 --only roc_auc
      fedgauge vertical plan --parties 4 --examples 20000 --want roc_auc=0.01
    """
    budget = 1.0 if epsilon is None else epsilon
    privacy = fg.DistributedDP(
        budget, delta=delta, noise=noise.value, unit="label", neighbours="flip"
    )
    outlook = with_progress(
        lambda: fg.plan_vertical(
            parties=parties,
            examples=examples,
            privacy=privacy,
            positive_rate=positive_rate,
            auc=auc,
        ),
        "Planning",
    )
    told = None
    if want is not None:
        told = with_progress(
            lambda: need_in_words(outlook, want, alone=only is not None), "Planning"
        )
    screen.print(summary_table(outlook))
    screen.print()
    screen.print(mechanism_table(outlook))
    alike, apart = (next(iter(each)) for each in (outlook.alike, outlook.apart))
    alone = alike if alike == apart else f"{alike} where scores are alike, {apart} where apart"
    screen.print(f"Best for everything: histogram. Best for the AUC alone: {alone}.")
    if told is not None:
        screen.print(told)


vertical_parties.register(app)


def summary_table(outlook: fg.LabelOutlook) -> Table:
    """What was planned for, and what to expect of the histogram."""
    table = Table(show_header=False, box=None, pad_edge=False)
    expected, tree = outlook.expected, outlook.tree
    bins = f"{tree[0]} in one level" if len(tree) == 1 else f"tree {' x '.join(map(str, tree))}"
    table.add_row(
        "Planned for",
        f"about {outlook.examples:,} examples, {outlook.positive_rate:.3g} of them positive, at "
        f"{outlook.parties:,} label {'party' if outlook.parties == 1 else 'parties'}",
    )
    table.add_row("Bins", bins)
    table.add_row("ROC Area Error", f"{expected.roc_area_error:.1e} expected")
    table.add_row("PR Area Error", f"{expected.pr_area_error:.1e} expected")
    table.add_row("AUC by chance", f"{outlook.sampling:.1e}, from which examples there are")
    return table


def mechanism_table(outlook: fg.LabelOutlook) -> Table:
    """What each mechanism adds to the error of the AUC."""
    table = plain_table()
    for title in ("mechanism", "gives"):
        table.add_column(title)
    for title in ("scores alike", "scores apart", "whole error"):
        table.add_column(title, justify="right")
    rows = [
        (name, "everything" if name == "histogram" else "AUC alone", alike, outlook.apart[name])
        for name, alike in outlook.alike.items()
    ]
    flips = outlook.flipped
    rows.append(("flipped labels", "everything, repeatedly", flips, flips))
    for name, gives, alike, apart in rows:
        over = outlook.over_sampling(alike)
        table.add_row(name, gives, f"{alike:.1e}", f"{apart:.1e}", f"x {over:.3f}")
    table.caption = (
        "What noise and bins add to the error of the AUC, where the parties' scores are alike and\n"
        "where each has a range of its own; the whole error, alike, over that of chance."
    )
    return table


def need_in_words(outlook: fg.LabelOutlook, text: str, *, alone: bool) -> str:
    """Whether there is enough for what is wanted, and what would be."""
    want = _read(text)
    mechanism = next(iter(outlook.alike)) if alone and want.metric == "roc_auc" else "histogram"
    needed = outlook.needs(want.within, metric=want.metric, mechanism=mechanism)
    return answer(want, needed, noisy=True)


def _read(text: str) -> Want:
    written = f"--want is written like roc_auc=0.01 or roc=0.001, got {text!r}."
    try:
        want = read_want(text)
    except fg.PlanError:
        raise fg.PlanError(written) from None
    if want.at is not None or want.metric not in ("roc_auc", "roc_area_error"):
        raise fg.PlanError(written)
    return want
