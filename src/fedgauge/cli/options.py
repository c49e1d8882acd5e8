"""Options that commands share, names of columns among them, and what they mean to the library."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from textwrap import shorten
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    TypeAlias,
    TypedDict,
    TypeVar,
)

import click
import typer
from click.core import ParameterSource

import fedgauge as fg
from fedgauge.errors import InputError

if TYPE_CHECKING:
    from fedgauge.data.files import GroupColumns, LabelColumns, PlacedColumn, ScoreColumns
    from fedgauge.histograms.axis import Outside
    from fedgauge.privacy import AnyPrivacyModel, PrivacyModel

_Named: TypeAlias = Literal["auto", "two-round"]
_MOST_STEPS = 1000  # whole numbers in a range that are worth a bin each


class AxisKind(StrEnum):
    """Kinds of axis that need no data to be made."""

    UNIFORM = "uniform"
    LOGIT = "logit"
    ASINH = "asinh"
    TWO_ROUND = "two-round"


class ScoresKind(StrEnum):
    """What scores are, as far as is public."""

    PROBABILITIES = "probabilities"
    MARGINS = "margins"
    UNKNOWN = "unknown"


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
        from fedgauge.privacy.models import tag_of

        kinds: dict[Model, type[PrivacyModel]] = {
            Model.SA: fg.SecureAggregation,
            Model.DDP: fg.DistributedDP,
            Model.LDP: fg.LocalDP,
        }
        return tag_of(kinds[self])


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


STDOUT = Path("-")  # as --json names it
SiteOption = Annotated[Path, typer.Option("--site", help="The site file.")]
HERE: Final = Path("site.toml")


def _require_number(seconds: float) -> float:
    if math.isnan(seconds):  # is in every range
        raise typer.BadParameter("nan is not a number of seconds.")
    return seconds


Every = Annotated[
    float,
    typer.Option(help="Seconds between two looks.", min=0.05, max=86_400, callback=_require_number),
]
HintExamples = Annotated[
    int | None, typer.Option("--examples", help="Public hint: about how many examples in all.")
]
HintRate = Annotated[
    float | None, typer.Option("--positive-rate", help="Public hint: about the share of positives.")
]
Epsilon = Annotated[float | None, typer.Option(help="Privacy budget of --privacy ddp or ldp.")]
Delta = Annotated[float | None, typer.Option(help="For skellam and discrete-gaussian noise.")]
NoiseOption = Annotated[NoiseKind, typer.Option("--noise", help="Noise of --privacy ddp.")]
At = Annotated[
    list[float] | None, typer.Option("--at", help="Metrics at this threshold; may be repeated.")
]
AtLevel = Annotated[
    float | None,
    typer.Option("--level", help=r"Confidence level of the intervals. \[default: 0.95]"),
]
Plots = Annotated[
    Path | None,
    typer.Option(
        "--plots",
        help="Save roc.png and pr.png in this folder; of probabilities also reliability.png and "
        "decision.png; of slices also gaps.png, confusion.png or comparison.png.",
    ),
]
Positive = Annotated[
    str | None,
    typer.Option("--positive", help="Label of the positive class, unless labels are 0/1."),
]
ScoreOption = Annotated[
    str | None, typer.Option("--score", help="Column of the score; higher is more positive.")
]
Seed = Annotated[
    int | None, typer.Option(help="Seed of repeatable noise, for simulations. It protects nobody.")
]
TreeOption = Annotated[
    str | None,
    typer.Option(
        "--tree",
        help=r"Branchings of the tree over the bins, such as 16x16, or flat. \[default: planned]",
    ),
]
SaveJson = Annotated[
    Path | None,
    typer.Option(
        "--json", help="Save the result to this file; - is stdout, with the rest on stderr."
    ),
]
ScoreSums = Annotated[
    bool, typer.Option("--score-sums", help="Also sum up the scores within each bin.")
]
CalibratorFile = Annotated[
    Path | None,
    typer.Option(
        "--calibrator", help="A calibrator (.json) to apply to the scores before they are counted."
    ),
]
NoShrink = Annotated[
    bool,
    typer.Option("--no-shrink", help="Read values from the noisy counts, without smoothing."),
]
MinSurvivors = Annotated[
    int | None,
    typer.Option(help=r"Fewest clients in the sum. \[default: all, so none may drop out]"),
]
MaxColluding = Annotated[int, typer.Option(help="Most clients that may collude with a reader.")]


_MOST_LABELS = 5  # that are named; more are no labels, but rows
_MOST_STRANGE = 12  # beside the classes that are known
# Options of privacy that a model has no use for, and why.
_OF_NOISE = {"delta", "noise", "unit", "neighbours", "max_per_unit"}
_IDLE: dict[Model, tuple[set[str], str]] = {
    Model.SA: (
        {"epsilon", "oracle", *_OF_NOISE},
        "an exact sum has no epsilon and no noise. Use --privacy ddp, or leave that out.",
    ),
    Model.DDP: (
        {"oracle"},
        "that is for local reports. Use --privacy ldp, or leave that out.",
    ),
    Model.LDP: (
        {"min_survivors", "max_colluding", *_OF_NOISE},
        "local DP protects each row by itself, without a delta. Use --privacy ddp, or leave that "
        "out.",
    ),
}


def refuse_given(names: Collection[str], told: str) -> None:
    """Refuse options that would do nothing; `told` says why, `{}` standing for them."""
    context = click.get_current_context()
    given = [
        param.opts[0]
        for param in context.command.params
        if param.name in names
        and context.get_parameter_source(str(param.name)) is not ParameterSource.DEFAULT
    ]
    if given:
        raise fg.PlanError(told.format(", ".join(given)))


def refuse_exact(names: Collection[str]) -> None:
    """Refuse options that only noise has a use for."""
    refuse_given(names, "{} would do nothing: an exact sum has no noise. Leave that out.")


def refuse_idle(model: Model) -> None:
    """Refuse options that a privacy model has no use for."""
    idle, reason = _IDLE[model]
    refuse_given(idle, f"{{}} would do nothing under --privacy {model}: {reason}")


@dataclass(frozen=True, kw_only=True)
class PrivacyOptions:
    """Which privacy model, and its parameters."""

    panel: ClassVar[str] = "Privacy"

    privacy: Annotated[
        Model, typer.Option(help="Exact secure sum (sa), distributed DP (ddp) or local DP (ldp).")
    ] = Model.SA
    epsilon: Epsilon = None
    delta: Delta = None
    noise: NoiseOption = NoiseKind.POLYA
    unit: Annotated[UnitKind, typer.Option(help="The unit that --privacy ddp protects.")] = (
        UnitKind.EXAMPLE
    )
    neighbours: Annotated[
        NeighbourKind, typer.Option(help="How neighbouring data sets differ in one unit.")
    ] = NeighbourKind.ADD_REMOVE
    max_per_unit: Annotated[
        int, typer.Option(help="Most rows counted for one subject or client.")
    ] = 1
    oracle: Annotated[OracleKind, typer.Option(help="How --privacy ldp randomises a row.")] = (
        OracleKind.OUE
    )

    def model(self) -> AnyPrivacyModel:
        """The privacy model that the options describe; those it has no use for are refused."""
        refuse_idle(self.privacy)
        if self.privacy is Model.SA:
            return fg.SecureAggregation()
        if self.epsilon is None:
            raise fg.PlanError(f"--privacy {self.privacy} needs --epsilon, e.g. --epsilon 1.")
        if self.privacy is Model.LDP:
            return fg.LocalDP(self.epsilon, oracle=self.oracle.value)
        return fg.DistributedDP(
            self.epsilon,
            delta=self.delta,
            noise=self.noise.value,
            unit=self.unit.value,
            neighbours=self.neighbours.value,
            max_per_unit=self.max_per_unit,
        )


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """How text files are written."""

    panel: ClassVar[str] = "Files"

    separator: Annotated[
        str | None, typer.Option(help=r"Separator of columns in a CSV file. \[default: ,]")
    ] = None
    decimal: Annotated[
        str | None, typer.Option(help=r"Decimal mark in a CSV file. \[default: .]")
    ] = None
    encoding: Annotated[
        str | None,
        typer.Option(help=r"Encoding of a text file, such as cp1252. \[default: utf-8]"),
    ] = None

    @property
    def dialect(self) -> DialectOptions:
        """What the library is told; shells leave a tab as it is written."""
        tab = self.separator in ("\\t", "tab")
        return DialectOptions(
            separator="\t" if tab else self.separator,
            decimal=self.decimal or ".",
            encoding=self.encoding or "utf-8",
        )


@dataclass(frozen=True, kw_only=True)
class EstimatorOptions:
    """How curves are read from counts."""

    panel: ClassVar[str] = "Thresholds and intervals"

    estimator: Annotated[
        EstimatorKind, typer.Option(help="How curves are drawn between bin edges.")
    ] = EstimatorKind.ALIGNED
    quantiles: Annotated[
        int | None, typer.Option(help=r"Quantiles for --estimator quantile. \[default: 256]")
    ] = None
    no_shrink: NoShrink = False

    def make(self) -> fg.Aligned | fg.Quantile | fg.Range:
        """The estimator that the options describe."""
        kind = self.estimator
        if self.no_shrink and kind is not EstimatorKind.ALIGNED:
            raise fg.PlanError(
                f"--no-shrink would do nothing: --estimator {kind.value} shrinks no counts. Leave "
                "it out."
            )
        if kind is EstimatorKind.QUANTILE:
            return fg.Quantile(256 if self.quantiles is None else self.quantiles)
        if self.quantiles is not None:
            raise fg.PlanError("--quantiles needs --estimator quantile.")
        return fg.Range() if kind is EstimatorKind.RANGE else fg.Aligned(shrink=not self.no_shrink)


def make_clients(
    files: list[Path],
    client: str | None,
    label: LabelColumns,
    score: ScoreColumns,
    subject: str | None,
    dialect: DialectOptions,
    group: GroupColumns = None,
    *,
    drop_missing: bool = False,
) -> Any:
    """The clients that the files hold."""
    columns: Any = {"label": label, "score": score, "group": group, "subject": subject, **dialect}
    columns["drop_missing"] = drop_missing
    if client is not None:
        return fg.ScoreTable(files, client=client, **columns)
    from fedgauge.data.files import name_of, refuse_repeated_files

    refuse_repeated_files(files)
    clients: dict[str, fg.ScoreFile | fg.ScoreTable] = {}
    for path in files:
        is_folder = path.is_dir()
        file = (fg.ScoreTable if is_folder else fg.ScoreFile)(path, **columns)
        name = path.name.rpartition("=")[2] if is_folder else name_of(path)
        if name in clients:
            raise fg.InputError(
                f"two files make a client named {name!r}: {clients[name]} and {path}. Rename one, "
                "or name a client column with --client."
            )
        clients[name] = file
    return clients


def load_map(path: Path | None) -> fg.Calibrator | None:
    """The map in a file, if one is named."""
    return None if path is None else fg.Calibrator.from_json(path)


@contextmanager
def naming_labels(columns: Sequence[PlacedColumn]) -> Iterator[list[str]]:
    """Say which labels columns have where they do not fit; classes in what it yields are known."""
    known: list[str] = []
    try:
        yield known
    except fg.LabelError as error:
        if any("=" in each.column for each in columns):  # nobody knows which of several it was
            raise
        from fedgauge.data.files import some_labels

        most = len(known) + _MOST_STRANGE if known else _MOST_LABELS
        labels = some_labels(columns, most=most)
        if labels is None:
            has = f"has more than {most} different values. Is it the label?"
        else:
            strange = [each for each in labels if each.strip() not in known] or labels
            has = "also has" if len(strange) < len(labels) else "has"
            has += f" {', '.join(repr(shorten(each, 24)) for each in strange)}."
        names = " and ".join(sorted({repr(each.column) for each in columns}))
        where = f"Column {names}" + (" of all files together" if len(columns) > 1 else "")
        raise fg.LabelError(f"{error} {where} {has}") from None


def hold_whole_numbers(clients: Any) -> bool:
    """Whether the scores in the first rows of all files are whole numbers."""
    import numpy as np

    if isinstance(clients, fg.ScoreTable):
        first = [next((rows for _, rows in clients.batches()), None)]
    else:
        first = [next(file(), None) for file in clients.values()]
    return not any(
        np.any(scores % 1) for rows in first if rows is not None for scores in rows.scores.values()
    )


class DialectOptions(TypedDict):
    """How text files are written, as the library is told."""

    separator: str | None
    decimal: str
    encoding: str


@dataclass(frozen=True, kw_only=True)
class AxisOptions:
    """What is said about the axis; None where nothing is."""

    panel: ClassVar[str] = "Bins"

    axis: Annotated[
        AxisKind | None,
        typer.Option(
            help="Bins of equal width in the score (uniform) or in log-odds (logit), wider for "
            "larger scores (asinh), or found in a first round, for scores of any scale "
            r"(two-round). \[default: uniform]"
        ),
    ] = None
    bins: Annotated[
        int | None, typer.Option(help=r"Number of bins. \[default: chosen for the privacy model]")
    ] = None
    range_: Annotated[
        tuple[float, float] | None,
        typer.Option("--range", metavar="LO HI", help=r"Range of the scores. \[default: 0 1]"),
    ] = None
    values: Annotated[
        str | None,
        typer.Option(help="The only values that scores take, each its own bin: 0..10, or 0,0.5,1."),
    ] = None
    scores: Annotated[
        ScoresKind | None,
        typer.Option(
            help="Public hint: the kind of scores. For margins and unknown, bins are found in a "
            "first round."
        ),
    ] = None

    @property
    def is_given(self) -> bool:
        """Whether anything was said."""
        return (self.axis, self.bins, self.range_, self.values) != (None, None, None, None)

    def of_bins(self, bins: int, outside: Outside) -> fg.Axis:
        """The axis with so many bins, unless values make them."""
        if self.values is not None:
            if (self.axis, self.bins, self.range_) != (None, None, None):
                raise fg.AxisError(
                    "--values make the bins, one each. Leave out --bins, --axis and --range."
                )
            return fg.Axis.from_values(read_values(self.values), outside)
        if self.axis is AxisKind.LOGIT:
            if self.range_ is not None:
                raise fg.AxisError(
                    "a logit axis always spans 0 to 1. Drop --range, or use --axis uniform."
                )
            return fg.Axis.logit(bins, outside=outside)
        if self.axis is AxisKind.ASINH:
            if self.range_ is not None:
                raise fg.AxisError(
                    "an asinh axis spans all scores. Drop --range, or use --axis uniform."
                )
            return fg.Axis.asinh(bins)
        return fg.Axis.uniform(bins, *(self.range_ or (0.0, 1.0)), outside=outside)

    @property
    def is_search(self) -> bool:
        """Whether bins are found in a first round; refused together with what says them."""
        if self.axis is not AxisKind.TWO_ROUND:
            return False
        if self.range_ is not None or self.values is not None:
            raise fg.AxisError(
                "--axis two-round finds where scores are. Leave out --range and --values, or that."
            )
        return True

    def exact_values(self, axis: fg.Axis) -> str | None:
        """Advice to count whole-number scores by value, where the stated range is one of points."""
        if self.range_ is None:
            return None
        low, high = self.range_
        if low % 1 or high % 1 or not 2 <= high - low <= _MOST_STEPS:
            return None
        width = (high - low) / axis.bins
        why = f"bins {width:.2g} wide join several" if width > 1 else "bins spread them out"
        return f"--values {low:.0f}..{high:.0f} counts each by itself, where {why}."

    @property
    def is_searching(self) -> bool:
        """Whether bins are to be found in a first round; refused where they are said as well."""
        of_any_scale = self.scores in (ScoresKind.MARGINS, ScoresKind.UNKNOWN)
        if of_any_scale and self.is_given and not self.is_search:
            raise fg.PlanError(
                f"of scores that are {self.scores} bins are found in a first round. Leave out "
                "--axis, --bins, --range and --values; or --scores."
            )
        return of_any_scale or self.is_search

    def make(self, *, clip: bool, noisy: bool) -> fg.Axis | fg.TwoRound | _Named:
        """The axis that the options describe, to count the caller's own rows on."""
        if self.is_search:
            if self.bins is None:
                return "two-round"
            return fg.TwoRound(self.bins, coarse=fg.Axis.asinh(512 if noisy else 4096))
        if not self.is_given and (noisy or not clip):
            return "auto"
        bins = (64 if noisy else 4096) if self.bins is None else self.bins
        return self.of_bins(bins, "clip" if clip or noisy else "refuse")

    def planned(self, *, noisy: bool) -> fg.Axis | Callable[[int], fg.Axis] | None:
        """The axis that the options describe, for the planner to complete."""
        if not self.is_given:
            return None
        if self.is_search:
            raise fg.AxisError(
                "a plan of two rounds is chosen by what scores are. Use --scores margins, or "
                "--scores unknown, in the place of --axis two-round."
            )
        if self.values is None and self.bins is None:
            return lambda bins: self.of_bins(bins, "clip")
        # A value that is not listed would make an exact plan inexact; under noise none is refused.
        exact = self.values is not None and not noisy
        return self.of_bins(self.bins or 0, "refuse" if exact else "clip")


def read_values(text: str) -> list[float]:
    """Numbers written like 0..10, which are all whole ones in between, or like 0,0.5,1."""
    from fedgauge.histograms.axis import MOST_POINTS

    values: list[float] = []
    for part in text.split(","):
        first, dots, last = part.partition("..")
        try:
            ends = (int(first), int(last)) if dots else None
            values += () if ends else (float(first),)
        except ValueError:
            raise fg.AxisError(
                f"--values are written like 0..10 or 0,0.5,1, got {text!r}."
            ) from None
        if ends is not None:
            if not 0 <= ends[1] - ends[0] < MOST_POINTS:
                raise fg.AxisError(
                    f"--values {part} must go up, over at most {MOST_POINTS:,} numbers."
                )
            values += range(ends[0], ends[1] + 1)
    return values


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


T = TypeVar("T")
_MODELS = "--model-score"
_BLANKS = " Leave out blanks after commas, or put all of it in quotes."


def read_pairs(option: str, text: str) -> dict[str, str]:
    """Names and the column of each, all in one option, in the order in which they are named.

    A pair that holds a comma stands in quotes; the first ``=`` ends a name.

    >>> read_pairs("--class-scores", '"cat, black=p1", dog=p2')
    {'cat, black': 'p1', 'dog': 'p2'}
    """
    read: dict[str, str] = {}
    for part in _parts(text):
        name, _, column = (each.strip() for each in part.partition("="))
        if not (name and column):
            raise InputError(
                f"{option} takes pairs of a name and a column, such as cat=p1,dog=p2; got {text!r}."
            )
        _add(option, read, name, column)
    return read


def read_lists(
    option: str, texts: Sequence[str], such_as: str | None = None
) -> dict[str, tuple[str, ...]]:
    """Names and the values, or columns, of each: one name each time the option is given.

    >>> read_lists("--group", ["sex=women,men", "ward=1"])
    {'sex': ('women', 'men'), 'ward': ('1',)}
    """
    read: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, _, rest = (each.strip() for each in text.partition("="))
        values = tuple(_parts(rest))
        if not (name and all(values)):
            such_as = such_as or ("new=p1" if option == _MODELS else "sex=women,men")
            blanks = _BLANKS if text.rstrip().endswith(",") else ""
            raise InputError(
                f"{option} takes a name and what belongs to it, such as {such_as}; got {text!r}."
                f"{blanks}"
            )
        _add(option, read, name, values)
    return read


def read_names(option: str, text: str) -> tuple[str, ...]:
    """Several names, with commas between them."""
    names = tuple(_parts(text))
    if not (names and all(names)):
        raise InputError(f"{option} takes names, such as new,old; got {text!r}.")
    return names


def read_columns(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Names and the one column of each: one name each time the option is given.

    >>> read_columns("--group", ["sex=gender", "ward=w"])
    {'sex': 'gender', 'ward': 'w'}
    """
    read: dict[str, str] = {}
    for name, columns in read_lists(option, texts, "sex=COLUMN").items():
        if len(columns) > 1:
            raise InputError(
                f"{option} {name}= takes one column, got {len(columns)}. The plan says which "
                "values it is told apart by."
            )
        read[name] = columns[0]
    return read


def _parts(text: str) -> list[str]:
    """What stands between commas; one in quotes is none."""
    rows = list(csv.reader([text], skipinitialspace=True))
    return [part.strip() for row in rows for part in row] or [""]


def _add(option: str, read: dict[str, T], name: str, value: T) -> None:
    if name in read:
        raise InputError(f"{option} names {name!r} twice. Name it once.")
    read[name] = value
