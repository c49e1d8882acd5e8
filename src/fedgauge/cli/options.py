"""Options of the commands, and what they mean to the library."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import fedgauge as fg
from fedgauge.binning.axis import Outside
from fedgauge.privacy import AnyPrivacyModel, PrivacyModel
from fedgauge.privacy.models import tag_of


class AxisKind(StrEnum):
    """Kinds of axis that need no data to be made."""

    UNIFORM = "uniform"
    LOGIT = "logit"


class EstimatorKind(StrEnum):
    """Estimators by name."""

    ALIGNED = "aligned"
    QUANTILE = "quantile"
    RANGE = "range"


class Model(StrEnum):
    """Privacy models by their short names."""

    SA = "sa"
    DDP = "ddp"
    LDP = "ldp"

    @property
    def tag(self) -> str:
        """The model in plans and site files."""
        return tag_of(_KINDS[self])


_KINDS: dict[Model, type[PrivacyModel]] = {
    Model.SA: fg.SecureAggregation,
    Model.DDP: fg.DistributedDP,
    Model.LDP: fg.LocalDP,
}


class OracleKind(StrEnum):
    """Ways to randomise a local report by name."""

    OUE = "oue"
    HADAMARD = "hadamard"


class NoiseKind(StrEnum):
    """Noise by name."""

    POLYA = "polya"
    SKELLAM = "skellam"
    GAUSSIAN = "discrete-gaussian"


class UnitKind(StrEnum):
    """Units of privacy by name."""

    EXAMPLE = "example"
    SUBJECT = "subject"
    CLIENT = "client"


class NeighbourKind(StrEnum):
    """Neighbouring relations by name."""

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"


Privacy = Annotated[
    Model,
    typer.Option(
        "--privacy", help="Exact secure sum (sa), distributed DP (ddp) or local DP (ldp)."
    ),
]
Epsilon = Annotated[float | None, typer.Option(help="Privacy budget of --privacy ddp or ldp.")]
OracleOption = Annotated[
    OracleKind, typer.Option("--oracle", help="How --privacy ldp randomises a row.")
]
Delta = Annotated[float | None, typer.Option(help="For skellam and discrete-gaussian noise.")]
NoiseOption = Annotated[NoiseKind, typer.Option("--noise", help="Noise of --privacy ddp.")]
UnitOption = Annotated[UnitKind, typer.Option("--unit", help="Whom --privacy ddp protects.")]
Neighbours = Annotated[NeighbourKind, typer.Option(help="What may differ about a unit.")]
MaxPerUnit = Annotated[int, typer.Option(help="Rows of one subject or client that count.")]
HintExamples = Annotated[
    int | None, typer.Option("--examples", help="Public hint: about how many examples in all.")
]
HintRate = Annotated[
    float | None, typer.Option("--positive-rate", help="Public hint: about the share of positives.")
]
ScoreSums = Annotated[
    bool, typer.Option("--score-sums", help="Also sum up the scores within each bin.")
]
SiteOption = Annotated[Path, typer.Option("--site", help="The site file.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors and warnings.")]


_DDP_DEFAULTS = (NoiseKind.POLYA, NeighbourKind.ADD_REMOVE, 1)


def make_privacy(
    model: Model,
    epsilon: float | None,
    delta: float | None,
    noise: NoiseKind,
    unit: UnitKind,
    neighbours: NeighbourKind,
    max_per_unit: int,
    oracle: OracleKind = OracleKind.OUE,
) -> AnyPrivacyModel:
    """The privacy model that the options describe."""
    if model is Model.SA:
        if epsilon is not None or delta is not None:
            raise fg.PlanError("an exact sum has no epsilon. Use --privacy ddp.")
        return fg.SecureAggregation()
    if epsilon is None:
        raise fg.PlanError(f"--privacy {model} needs --epsilon, e.g. --epsilon 1.")
    if model is Model.LDP:
        others = (noise, neighbours, max_per_unit)
        if delta is not None or unit is not UnitKind.EXAMPLE or others != _DDP_DEFAULTS:
            raise fg.PlanError("local DP protects each row, without a delta. Drop these options.")
        return fg.LocalDP(epsilon, oracle=oracle.value)
    return fg.DistributedDP(
        epsilon,
        delta=delta,
        noise=noise.value,
        unit=unit.value,
        neighbours=neighbours.value,
        max_per_unit=max_per_unit,
    )


def make_clients(
    files: list[Path], client: str | None, label: str, score: str, subject: str | None
) -> Any:
    """The clients that the files hold."""
    if client is not None:
        return fg.ScoreTable(files, client=client, label=label, score=score, subject=subject)
    clients: dict[str, fg.ScoreFile] = {}
    for path in files:
        file = fg.ScoreFile(path, label=label, score=score, subject=subject)
        if file.name in clients:
            raise fg.InputError(
                f"two files make a client named {file.name!r}: {clients[file.name].path} and "
                f"{path}. Rename one, or name a client column with --client."
            )
        clients[file.name] = file
    return clients


def make_axis(
    kind: AxisKind | None,
    bins: int | None,
    range_: tuple[float, float] | None,
    *,
    clip: bool,
    noisy: bool,
) -> fg.Axis | Literal["auto"]:
    """The axis that the options describe."""
    if kind is None and bins is None and range_ is None and (noisy or not clip):
        return "auto"
    outside: Outside = "clip" if clip or noisy else "refuse"
    if bins is None:
        bins = 64 if noisy else 4096
    if kind is AxisKind.LOGIT:
        if range_ is not None:
            raise fg.AxisError(
                "a logit axis always spans 0 to 1. Drop --range, or use --axis uniform."
            )
        return fg.Axis.logit(bins, outside=outside)
    return fg.Axis.uniform(bins, *(range_ or (0.0, 1.0)), outside=outside)


def make_tree(text: str | None) -> Literal["auto", "flat"] | tuple[int, ...]:
    """The branchings written as text."""
    if text is None:
        return "auto"
    if text == "flat":
        return "flat"
    try:
        return tuple(int(part) for part in text.lower().split("x"))
    except ValueError:
        raise fg.PlanError(f"a tree is written like 16x16, or flat, got {text!r}.") from None


def make_estimator(
    kind: EstimatorKind, quantiles: int | None
) -> fg.Aligned | fg.Quantile | fg.Range:
    """The estimator that the options describe."""
    if kind is EstimatorKind.QUANTILE:
        return fg.Quantile(256 if quantiles is None else quantiles)
    if quantiles is not None:
        raise fg.PlanError("--quantiles needs --estimator quantile.")
    return fg.Range() if kind is EstimatorKind.RANGE else fg.Aligned()
