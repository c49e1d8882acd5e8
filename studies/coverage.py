"""How often intervals hold the truth, on smooth scores and on those of real classifiers.

    python studies/coverage.py                      # every cell, within an hour of a core
    python studies/coverage.py --minutes 10         # stops after as much, and goes on when repeated
    python studies/coverage.py --only "world=ties, privacy=ddp 1"

A cell is a world (`score_worlds`), a privacy model, a number of examples and what is asked: one
score, two groups (of which the second has smooth scores), two models on the same rows, or three
classes. Plans are those of `fg.evaluate` for 20 clients, with hints or without. Thresholds are 0.5,
which is an edge, and one off all edges. All metrics are read from the same dataset.

Of each metric: how often the interval holds the population's value, in how many results it has a
caution, in how many datasets it is withheld, and its mean width over 3.92 times the root mean
squared error. The truth of the ECE is that of the groups as they were formed.

Low is a coverage below 93%, unless nine of ten results have a caution. By chance so is nearly a
fifth of the metrics that cover 95%, in 60 datasets. So what is low is measured again, alone, in 4
times as many new datasets, and what is low there in 16 times as many. The last figures count alone.
"""

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

import fedgauge as fg
from fedgauge.metrics.bands import Band
from fedgauge.metrics.calibration import GROUPS, Forecasts, Groups
from runner import Check, Found, Study, describe, main
from score_worlds import NAMES, Scores, classes, world

CLIENTS = 20
AGAIN = (4, 16)  # times as many datasets where a metric was low
LOW, CAUTIOUS = 0.93, 0.9
HOPELESS = 0.85  # so low is no chance
FEWEST = 50  # results to judge a metric by
WIDEST, WIDE, WIDEST_OFF = 2.5, 1.5, 3.0
OFF = "off edge"
EXACT = "exact"


@dataclass(frozen=True)
class Cell:
    """One setting."""

    world: str
    privacy: str
    examples: int
    asked: str = "score"
    hinted: bool = True

    @property
    def model(self) -> fg.SecureAggregation | fg.DistributedDP | fg.LocalDP:
        """The privacy model."""
        kind, _, epsilon = self.privacy.partition(" ")
        if kind == EXACT:
            return fg.SecureAggregation()
        return (fg.DistributedDP if kind == "ddp" else fg.LocalDP)(float(epsilon))

    @property
    def off_edge(self) -> float:
        """A threshold that nobody would make an edge."""
        return 0.0137 if self.world == "rare" else 0.3713

    def options(self) -> dict[str, object]:
        """How `fg.evaluate` is asked."""
        hints: dict[str, object] = {}
        if self.hinted and self.privacy != EXACT:
            rate = 0.3 if self.asked == "classes" else world(self.world).rate
            hints = {"examples": self.examples, "positive_rate": rate}
        told: dict[str, dict[str, object]] = {
            "score": {},
            "groups": {"groups": ["a", "b"]},
            "models": {"models": ["new", "old"]},
            "classes": {"task": fg.MulticlassTask(labels=["0", "1", "2"])},
        }
        return {"privacy": self.model, **hints, **told[self.asked]}

    def rows(self, rng: np.random.Generator) -> fg.Examples:
        """One dataset."""
        if self.asked == "classes":
            labels, scores = classes(self.world).draw(self.examples, rng)
            return fg.Examples(labels.astype(str), scores.T)
        labels, (first, second, smooth) = world(self.world).draw(self.examples, rng)
        if self.asked == "models":
            return fg.Examples(labels, {"new": first, "old": second})
        if self.asked == "groups":
            of_b = rng.random(self.examples) < 0.5
            return fg.Examples(
                labels, np.where(of_b, smooth, first), group=np.where(of_b, "b", "a")
            )
        return fg.Examples(labels, first)


Read = Callable[[fg.Evaluation], tuple[fg.Estimate, float]]  # an estimate and the truth
METRICS = {
    "roc_auc": "AUC",
    "average_precision": "AP",
    "brier_score": "Brier",
    "log_loss": "log loss",
}
RATES = ("precision", "recall", "f1", "accuracy")


@cache
def truth(scores: str, kind: int) -> dict[str, float]:
    """The population's values that hang on no threshold."""
    own = world(scores).of(kind)
    return {
        "AUC": own.auc,
        "AP": own.average_precision,
        "Brier": own.loss("squared"),
        "log loss": own.loss("log"),
    }


@cache
def truth_at(scores: str, kind: int, threshold: float) -> dict[str, float]:
    """The population's values at a threshold; NaN where nothing is flagged."""
    own = world(scores).of(kind)
    fpr, recall = own.rates(threshold)
    tp, fp = own.rate * recall, (1 - own.rate) * fpr
    return {
        "precision": tp / (tp + fp) if tp + fp else math.nan,
        "recall": recall,
        "f1": 2 * tp / (tp + fp + own.rate),
        "accuracy": 1 - fp - (own.rate - tp),
        "benefit": tp - fp * threshold / (1 - threshold),
    }


def readings(cell: Cell) -> dict[str, Read]:
    """What is read of a result, by name."""
    return {"score": _of_score, "groups": _of_groups, "models": _of_models, "classes": _of_classes}[
        cell.asked
    ](cell)


def _of_score(cell: Cell) -> dict[str, Read]:
    own = world(cell.world).of(0)
    true = truth(cell.world, 0)
    told: dict[str, Read] = {
        short: lambda r, name=name, short=short: (getattr(r, name), true[short])
        for name, short in METRICS.items()
    }
    for threshold, where in ((0.5, "0.5"), (cell.off_edge, OFF)):
        at = truth_at(cell.world, 0, threshold)
        told |= {
            f"{name} {where}": lambda r, name=name, at=at, threshold=threshold: (
                getattr(r.at_threshold(threshold), name),
                at[name],
            )
            for name in RATES
        }
        told[f"benefit {where}"] = lambda r, at=at, threshold=threshold: (
            r.net_benefit(threshold),
            at["benefit"],
        )
    told["slope"] = lambda r: (r.calibration_slope, own.line[1])
    told["intercept"] = lambda r: (r.calibration_intercept, own.line[0])
    told["ECE"] = lambda r: (r.expected_calibration_error, _ece(r, cell.world))
    told["recall for precision"] = lambda r: _for_precision(r, own)
    return told


def _for_precision(result: fg.Evaluation, own: Scores) -> tuple[fg.Estimate, float]:
    at = result.threshold_for(precision=min(2 * own.rate, 0.6))
    return at.recall, own.rates(at.threshold)[1]


def _ece(result: fg.Evaluation, name: str) -> float:
    """The population's ECE in the groups of bins that a result has."""
    reading = result._reading
    groups, axis = Groups.of(reading.once(Forecasts.of), GROUPS), reading.pooled.axis
    held = groups.owners >= 0
    return float(np.abs(np.bincount(groups.owners[held], _excess(name, axis)[held])).sum())


@cache
def _excess(name: str, axis: fg.Axis) -> np.ndarray:
    own = world(name).of(0)
    scores, weights = own.both
    labels = np.arange(len(scores)) >= len(own.negatives)
    return np.bincount(axis.index(scores), weights * (labels - scores), minlength=axis.bins)


def _apart(name: str, metric: str, other: int) -> float:
    """The first kind of scores less another one: the second model's, or smooth ones."""
    if metric in METRICS.values():
        return truth(name, 0)[metric] - truth(name, other)[metric]
    return truth_at(name, 0, 0.5)[metric] - truth_at(name, other, 0.5)[metric]


def _of_groups(cell: Cell) -> dict[str, Read]:
    def gap(result: fg.Evaluation, metric: str, at: float | None = None) -> fg.Estimate:
        found = [
            each.difference if each.group == "a" else each.turned().difference
            for each in result.gaps(metric, at=at).pairs
            if {each.group, each.against} == {"a", "b"}
        ]
        if not found:
            raise fg.UndefinedMetric("no gap of both groups.")
        return found[0]

    told: dict[str, Read] = {
        "gap of AUC": lambda r: (gap(r, "roc_auc"), _apart(cell.world, "AUC", 2))
    }
    return told | {
        f"gap of {name} 0.5": lambda r, name=name: (
            gap(r, name, 0.5),
            _apart(cell.world, name, 2),
        )
        for name in ("recall", "precision")
    }


def _of_models(cell: Cell) -> dict[str, Read]:
    told: dict[str, Read] = {
        f"{short} of two": lambda r, name=name, short=short: (
            getattr(r.compare("new", "old"), name),
            _apart(cell.world, short, 1),
        )
        for name, short in METRICS.items()
        if name != "log_loss"
    }
    return told | {
        "recall 0.5 of two": lambda r: (
            r.compare("new", "old").at_threshold(0.5).recall,
            _apart(cell.world, "recall", 1),
        )
    }


def _of_classes(cell: Cell) -> dict[str, Read]:
    return {"macro AUC": lambda r: (r.macro("roc_auc"), classes(cell.world).macro_auc)}


@cache
def _curve(name: str) -> tuple[np.ndarray, np.ndarray]:
    return world(name).of(0).steps


def _holds(band: Band, name: str, *, precision: bool) -> bool:
    """Whether a band holds the population's whole curve, between its own abscissae too."""
    fpr, recall = _curve(name)
    x = np.linspace(0.005, 0.995, 400)
    low, high = np.interp(x, band.x, band.low), np.interp(x, band.x, band.high)
    if precision:
        rate = world(name).rate
        y = rate * x / (rate * x + (1 - rate) * np.interp(x, recall, fpr))
    else:
        y = np.interp(x, fpr, recall)
    return bool(np.all((low <= y + 1e-4) & (y <= high + 1e-4)))


BANDS = {"ROC band": ("roc_band", False), "PR band": ("pr_band", True)}


class Tally:
    """What became of one metric over datasets."""

    def __init__(self) -> None:
        self.held: list[bool] = []
        self.cautions: list[bool] = []
        self.errors: list[float] = []
        self.widths: list[float] = []
        self.withheld = 0

    def add(self, told: fg.Estimate, true: float) -> None:
        """One more result."""
        low, high = told.interval or told.bounds
        self.held.append(low <= true <= high)
        self.cautions.append(told.caution is not None)
        self.errors.append(told.value - true)
        self.widths.append(high - low)

    @property
    def is_low(self) -> bool:
        """Whether its coverage may be too low, and chance could be why."""
        few = len(self.held) < FEWEST or np.mean(self.cautions) >= CAUTIOUS
        return not few and HOPELESS <= np.mean(self.held) < LOW

    def figures(self, name: str) -> Iterator[tuple[str, float]]:
        """Its figures."""
        of = len(self.held) + self.withheld
        yield f"{name}: results", float(len(self.held))
        yield f"{name}: withheld", self.withheld / max(of, 1)
        if self.held:
            yield f"{name}: covers", float(np.mean(self.held))
            yield f"{name}: caution", float(np.mean(self.cautions))
        if self.widths:
            error = math.sqrt(float(np.mean(np.square(self.errors))))
            # Without any error there is nothing to compare a width with.
            yield f"{name}: width", float(np.mean(self.widths)) / (3.92 * error) if error else 1.0


def measured(
    cell: Cell, rng: np.random.Generator, runs: int, wanted: Sequence[str] | None = None
) -> dict[str, Tally]:
    """The metrics of so many datasets; all of them, or those wanted."""
    reads = readings(cell)
    bands = BANDS if cell.asked == "score" else {}
    names = [*reads, *bands] if wanted is None else wanted
    tallies, plan = {name: Tally() for name in names}, None
    for _ in range(runs):
        rows, seed = cell.rows(rng), int(rng.integers(2**63))
        sites = {
            f"site-{number}": rows.select(slice(number, None, CLIENTS)) for number in range(CLIENTS)
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if plan is None:
                result = fg.evaluate(sites, **cell.options(), seed=seed)
                plan = result.plan
            else:
                result = fg.evaluate(sites, plan, seed=seed)
            for name, tally in tallies.items():
                try:
                    if name in bands:
                        method, precision = bands[name]
                        band = getattr(result, method)("simultaneous")
                        tally.held.append(_holds(band, cell.world, precision=precision))
                        tally.cautions.append(False)
                    else:
                        tally.add(*reads[name](result))
                except fg.UndefinedMetric:
                    tally.withheld += 1
    return tallies


def run(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """One cell: all metrics, and those found low again."""
    found = measured(cell, rng, runs)
    for times in AGAIN:
        low = [name for name, tally in found.items() if tally.is_low]
        if low:
            found |= measured(cell, rng, times * runs, low)
    return dict(pair for name, tally in found.items() for pair in tally.figures(name))


PRIVACY = (EXACT, "ddp 3", "ddp 1", "ddp 0.3", "ddp 0.1", "ldp 5")
SIZES = (5_000, 50_000, 500)  # the first ones first, where minutes end
ASKED = ("groups", "models", "classes")


def grid() -> list[Cell]:
    """Every world under every model, then what else is asked, then plans without hints."""
    one = [Cell(name, model, n) for n in SIZES for name in NAMES for model in PRIVACY]
    few = [Cell("rare", EXACT, 2_000), Cell("ties", EXACT, 2_000)]
    others = [
        Cell(name, model, 20_000, asked)
        for asked in ASKED
        for name in NAMES
        if asked == "models" or name != "forest"
        for model in (EXACT, "ddp 1", "ddp 0.3", "ldp 5")
        if not (asked == "models" and model.startswith("ldp"))
    ]
    unhinted = [
        Cell(name, model, 5_000, hinted=False) for name in NAMES for model in ("ddp 1", "ddp 0.1")
    ]
    return [*few, *one, *others, *unhinted]


@dataclass(frozen=True)
class Line:
    """A metric in a cell."""

    cell: Cell
    metric: str
    results: int
    withheld: float
    covers: float
    caution: float
    width: float

    @property
    def judged(self) -> bool:
        """Whether there are enough results."""
        return self.results >= FEWEST

    @property
    def is_low(self) -> bool:
        """Whether it covers too little, and does not say so."""
        return self.judged and self.covers < LOW and self.caution < CAUTIOUS

    @property
    def is_wide(self) -> bool:
        """Whether it is wider than it should be, and does not say so."""
        most = WIDEST_OFF if OFF in self.metric else WIDEST
        return self.judged and self.width > most and self.caution < CAUTIOUS

    def __str__(self) -> str:
        return (
            f"{self.metric:<22}{self.covers:>7.1%} caution {self.caution:>4.0%} withheld "
            f"{self.withheld:>4.0%} width {self.width:>5.2f}  {describe(self.cell)}"
        )


def lines(found: Sequence[Found[Cell]]) -> list[Line]:
    """All metrics of all cells."""
    told = []
    for each in found:
        for key in each.values:
            metric, _, what = key.rpartition(": ")
            if what == "results":
                numbers = [
                    each.values.get(f"{metric}: {name}", math.nan)
                    for name in ("withheld", "covers", "caution", "width")
                ]
                told.append(Line(each.cell, metric, round(each[key]), *numbers))
    return told


def table(found: Sequence[Found[Cell]]) -> None:
    """Each metric over the cells, then every cell that is low or wide without a caution."""
    every = lines(found)
    print(f"{'metric':<22}{'cells':>6}{'median':>8}{'lowest':>8}{'low':>5}{'caution':>9}", end="")
    print(f"{'withheld':>10}{'width':>7}{'widest':>8}")
    for metric in dict.fromkeys(line.metric for line in every):
        own = [line for line in every if line.metric == metric]
        told = [line for line in own if line.judged]
        if not told:
            continue
        silent = [line for line in told if line.caution < CAUTIOUS] or told
        widths = [line.width for line in silent if not math.isnan(line.width)] or [math.nan]
        print(
            f"{metric:<22}{len(told):>6}{np.median([line.covers for line in told]):>8.1%}"
            f"{min(line.covers for line in silent):>8.1%}{sum(line.is_low for line in told):>5}"
            f"{np.mean([line.caution for line in told]):>9.0%}"
            f"{np.mean([line.withheld for line in own]):>10.0%}"
            f"{np.median(widths):>7.2f}{max(widths):>8.2f}"
        )
    for title, chosen in (
        (f"Below {LOW:.0%} without a caution:", [line for line in every if line.is_low]),
        ("Too wide without a caution:", [line for line in every if line.is_wide]),
    ):
        print(f"\n{title} {len(chosen)} of {sum(line.judged for line in every)}")
        for line in sorted(chosen, key=lambda line: (line.metric, line.covers)):
            print(line)


def checks(found: Sequence[Found[Cell]]) -> Iterator[Check]:
    """Coverage, and widths against the errors."""
    every = [line for line in lines(found) if line.judged]
    low = [line for line in every if line.covers < LOW - 0.01 and line.caution < CAUTIOUS]
    widths = [line.width for line in every if not math.isnan(line.width)]
    wide = [line for line in every if line.is_wide]
    yield Check("coverage of 92%, or a caution, in every cell", not low, f"{len(low)} cells below")
    middle = float(np.median(widths))
    yield Check(f"a median width of {WIDE:g} errors at most", middle <= WIDE, f"{middle:.2f}")
    yield Check("no width far above the error", not wide, f"{len(wide)} cells above")


STUDY = Study(
    "coverage",
    __doc__,
    cells=grid(),
    quick_cells=[Cell("ties", "ddp 1", 5_000), Cell("grid", EXACT, 5_000)],
    run=run,
    runs=60,
    quick_runs=20,
    table=table,
    checks=checks,
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
