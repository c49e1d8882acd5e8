"""Do intervals of calibration cover? Thousands of simulated datasets per cell.

    python studies/calibration_coverage.py           # 4,000 datasets in each cell, 25 minutes
    python studies/calibration_coverage.py --quick   # a small, seeded run
    python studies/calibration_coverage.py --only "world=bent, privacy=ddp"

A cell is a world (`forecast_worlds`), a privacy model, a number of examples and a rule by which
bins are grouped, with plans as users get them: 4,096 bins for exact sums, the planner's design
for 20 clients otherwise. Counts are drawn from the bins' shares of the population, noise from the
plan's laws. The truth of an error of groups is that of the population in the groups as they were
formed, whose edges hang on the data where they have equal mass.

The slope and intercept are those of a logistic regression on the population. Net benefits are at
half, once and twice the share of positives, moved to the nearest edge as decision curves do, and at
that share itself. What takes long is measured in some of the datasets.

Datasets in which noise hides a class have no result, and are counted apart. Rejected are shares
of p-values below 5%, which for calibrated scores should be 5%.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

import fedgauge as fg
from fedgauge.estimation.counts import PooledCounts
from fedgauge.estimation.repair import consistent
from fedgauge.metrics.calibration import (
    GROUPS,
    ErrorKind,
    Forecasts,
    Groups,
    Strategy,
    calibration_curve,
    calibration_error,
    calibration_in_the_large,
)
from fedgauge.metrics.calibration_tests import (
    hosmer_lemeshow,
    integrated_calibration_index,
    line,
    spiegelhalter,
)
from fedgauge.metrics.decisions import Decision
from fedgauge.metrics.estimate import Estimate
from fedgauge.metrics.ranking import Reading
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy.keystream import SimulatedKeystream
from forecast_worlds import WORLDS, Bins, World
from runner import Check, Found, Study, describe, main

CLIENTS = 20
LEVEL = 0.95
SIGNIFICANT = 0.05
TOGETHER = 100  # datasets drawn at once
OFTEN, SELDOM = 4, 20  # what takes long is measured in every 4th or 20th dataset
BENEFITS = ("benefit 0.5", "benefit 1", "benefit 2", "benefit as asked")
LEAST = {"ECE": 0.93} | dict.fromkeys(("slope", "intercept", *BENEFITS), 0.92)
ALARMS = (0.03, 0.08)
FEWEST = 100  # answers to judge a cell by
RUNS = 4_000
CHANCE = 1e-4  # that a cell of a smaller run is called low which is not


@dataclass(frozen=True)
class Cell:
    """One setting."""

    world: str
    privacy: str
    examples: int
    groups: Strategy

    def plan(self, rate: float) -> EvaluationPlan:
        """What `fg.evaluate` does, where the hints are stated."""
        if self.privacy == "sa":
            axis, cohort = fg.Axis.uniform(4096), fg.Cohort(CLIENTS)
            return EvaluationPlan.under(fg.SecureAggregation(), axis, cohort=cohort)
        return fg.planner.propose(
            privacy=fg.DistributedDP(float(self.privacy.split()[1])),
            clients=CLIENTS,
            examples=self.examples,
            positive_rate=round(rate, 4),
        )


def datasets(
    plan: EvaluationPlan, bins: Bins, examples: int, runs: int, rng: np.random.Generator
) -> Iterator[PooledCounts]:
    """What the server gets, again and again."""
    shares = np.concatenate([bins.negatives, bins.positives])
    laws = plan.noise_laws(shares=CLIENTS)
    variances = tuple(law.variance for law in laws)
    for start in range(0, runs, TOGETHER):
        number = min(TOGETHER, runs - start)
        drawn = rng.multinomial(examples, shares / shares.sum(), number)
        counts = drawn.reshape(number, 2, plan.axis.bins)
        if laws:
            source, levels = SimulatedKeystream(int(rng.integers(2**63))), []
            for depth, law in enumerate(laws):
                exact = counts.reshape(2 * number, math.prod(plan.tree[: depth + 1]), -1).sum(
                    axis=2
                )
                levels.append(exact + law.draw(source, exact.shape))
            counts = consistent(levels, plan.tree, variances).reshape(counts.shape)
        for each in counts:
            yield PooledCounts(plan.axis, each, plan.tree, variances)


@dataclass(frozen=True)
class Truth:
    """The population of a world on an axis."""

    bins: Bins
    line: tuple[float, float]
    index: float
    benefits: tuple[tuple[float, float], ...]  # thresholds, and what they are worth

    @classmethod
    def of(cls, world: World, plan: EvaluationPlan) -> "Truth":
        """By integration."""
        rate, edges = world.prevalence, plan.axis.thresholds
        near = [float(edges[np.abs(edges - rate * times).argmin()]) for times in (0.5, 1.0, 2.0)]
        benefits = tuple((at, world.benefit(at)) for at in (*near, rate))
        return cls(world.bins(plan.axis.edges), world.line(), world.index, benefits)

    def errors(self, groups: Groups) -> dict[ErrorKind, float]:
        """Calibration errors in the groups as they were formed.

        Groups that no example fell into are none; their bins count as one.
        """
        owners = np.where(groups.owners < 0, len(groups), groups.owners)
        excess = np.bincount(owners, self.bins.excess)
        totals = np.maximum(np.bincount(owners, self.bins.totals), 1e-300)
        seen = np.abs(excess / totals)[: len(groups)][groups.visible]
        return {
            "expected": float(np.abs(excess).sum()),
            "rms": math.sqrt(np.sum(excess**2 / totals)),
            "maximum": float(seen.max(initial=0.0)),
            "average": float(seen.mean()) if len(seen) else 0.0,
        }

    def shares(self, groups: Groups) -> np.ndarray:
        """Positives of each group."""
        held = groups.owners >= 0
        owners = groups.owners[held]
        positives = np.bincount(owners, self.bins.positives[held])
        return positives / np.bincount(owners, self.bins.totals[held])


class Tally:
    """Sums over datasets, each by name."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._numbers: dict[str, int] = {}

    def add(self, name: str, value: float) -> None:
        """One more."""
        self._sums[name] = self._sums.get(name, 0.0) + float(value)
        self._numbers[name] = self._numbers.get(name, 0) + 1

    def interval(self, name: str, found: Estimate, truth: float) -> None:
        """Whether it holds the truth, how wide it is, and how far off the value."""
        low, high = found.low, found.high
        self.add(f"{name} covers", low <= truth <= high)
        self.add(f"{name} below", high < truth)
        self.add(f"{name} width", high - low)
        self.add(f"{name} bias", found.value - truth)
        self.add(f"{name} caution", found.caution is not None)

    def means(self) -> dict[str, float]:
        """The mean of each."""
        return {name: total / self._numbers[name] for name, total in self._sums.items()}


def run(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """Simulate one cell."""
    world = WORLDS[cell.world]
    plan = cell.plan(world.prevalence)
    truth, tally, answered = Truth.of(world, plan), Tally(), 0
    for pooled in datasets(plan, truth.bins, cell.examples, runs, rng):
        if pooled.hidden:
            continue
        reading = Reading(pooled, fg.Aligned(), LEVEL)
        of_groups(
            tally, Groups.of(reading.once(Forecasts.of), GROUPS, cell.groups), truth, answered
        )
        if cell.groups == "uniform":
            without_groups(tally, reading, truth, answered)
        answered += 1
    return {"bins": plan.axis.bins, "answered": answered, **tally.means()}


def of_groups(tally: Tally, groups: Groups, truth: Truth, number: int) -> None:
    """Errors, and the points of the curve."""
    true = truth.errors(groups)
    tally.interval("ECE", calibration_error(groups, "expected", LEVEL), true["expected"])
    tally.add("ECE truth", true["expected"])
    curve, shares = calibration_curve(groups, LEVEL), truth.shares(groups)
    tally.add("plain ECE bias", curve.ece - true["expected"])
    tally.add("points covers", np.mean((curve.low <= shares) & (shares <= curve.high)))
    if number % OFTEN == 0:
        tally.interval("RMS", calibration_error(groups, "rms", LEVEL), true["rms"])
        tally.interval("MCE", calibration_error(groups, "maximum", LEVEL), true["maximum"])
        tally.interval("ACE", calibration_error(groups, "average", LEVEL), true["average"])


def without_groups(tally: Tally, reading: Reading, truth: Truth, number: int) -> None:
    """What does not hang on the rule of grouping."""
    forecasts = reading.once(Forecasts.of)
    excess = float(truth.bins.excess.sum())
    tally.interval("in the large", calibration_in_the_large(reading), excess)
    by_mass = Groups.of(forecasts, 10, "quantile")
    tally.add("HL rejects", hosmer_lemeshow(by_mass).p_value < SIGNIFICANT)
    tally.add("Spiegelhalter rejects", spiegelhalter(forecasts).p_value < SIGNIFICANT)
    if number % OFTEN == 0:
        fits(tally, reading, truth)
    if number % SELDOM == 0:
        tally.interval("ICI", integrated_calibration_index(reading), truth.index)


def fits(tally: Tally, reading: Reading, truth: Truth) -> None:
    """Slope, intercept and net benefits."""
    try:
        found = line(reading)
    except fg.UndefinedMetric:
        tally.add("line undefined", True)
    else:
        tally.add("line undefined", False)
        tally.interval("intercept", found.intercept, truth.line[0])
        tally.interval("slope", found.slope, truth.line[1])
    for name, (at, worth) in zip(BENEFITS, truth.benefits, strict=True):
        tally.interval(name, Decision(reading.pooled, at, LEVEL).net_benefit(), worth)


def table(found: Sequence[Found[Cell]]) -> None:
    """Coverage by cell: first what hangs on groups, then what does not."""
    names = ("ECE", "RMS", "MCE", "ACE", "points")
    extra = f"{'true ECE':>8} {'bias':>8} {'plain':>8}"
    print(f"{HEAD} {extra}", *(f"{name:>6}" for name in names))
    for each in found:
        print(_start(each), end="")
        if each["answered"]:
            numbers = (each["ECE truth"], each["ECE bias"], each["plain ECE bias"])
            print("".join(f" {number:>8.4f}" for number in numbers), end="")
            print("".join(f" {each[f'{name} covers']:>6.1%}" for name in names), end="")
        print()
    names = ("slope", "intercept", "in the large", *BENEFITS, "ICI")
    print(f"\n{HEAD}", *(f"{name:>12}" for name in names), "  HL rej.", "Spieg. rej.")
    for each in found:
        if each.cell.groups == "uniform" and each["answered"]:
            print(_start(each), end="")
            covers = (each.values.get(f"{name} covers", math.nan) for name in names)
            print("".join(f" {share:>12.1%}" for share in covers), end="")
            print(f" {each['HL rejects']:>9.1%} {each['Spiegelhalter rejects']:>11.1%}")
    print()


HEAD = f"{'world':>13} {'privacy':>7} {'n':>6} {'groups':>8} {'bins':>4} {'answered':>8}"


def _start(found: Found[Cell]) -> str:
    c, share = found.cell, found["answered"] / found.runs
    where = f"{c.world:>13} {c.privacy:>7} {c.examples:>6} {c.groups:>8}"
    return f"{where} {found['bins']:>4.0f} {share:>8.1%}"


def least_of(name: str, found: Found[Cell]) -> float:
    """The coverage asked for; in a smaller run less what chance may take."""
    often = 1 if name == "ECE" else OFTEN
    number = math.ceil(found["answered"] / often)
    least = LEAST[name]
    return least if found.runs >= RUNS else float(binom.ppf(CHANCE, number, least)) / number


def alarms_of(found: Found[Cell]) -> tuple[float, float]:
    """The same for shares of alarms."""
    if found.runs >= RUNS:
        return ALARMS
    number = round(found["answered"])
    low, high = binom.ppf(CHANCE, number, ALARMS[0]), binom.isf(CHANCE, number, ALARMS[1])
    return float(low) / number, float(high) / number


def checks(found: Sequence[Found[Cell]]) -> Iterator[Check]:
    """Coverage at least as promised; tests that alarm as often as they say."""
    judged = [each for each in found if each["answered"] >= FEWEST]
    for name, least in LEAST.items():
        low, warned = [], []
        for each in judged:
            if (share := each.values.get(f"{name} covers", 1.0)) < least_of(name, each):
                # An error of calibration has no excuse: its intervals are made for noise.
                excused = name != "ECE" and each[f"{name} caution"] > 0.5
                (warned if excused else low).append(f"{describe(each.cell)}: {share:.1%}")
        told = [f"with a caution {each}" for each in warned]
        yield Check(f"{name} covers at least {least:.0%}", not low, "; ".join([*low, *told]))
    for name in ("HL", "Spiegelhalter"):
        odd = []
        for each in judged:
            share = each.values.get(f"{name} rejects")
            if each.cell.world == "calibrated" and share is not None:
                low_end, high_end = alarms_of(each)
                odd += (
                    [] if low_end <= share <= high_end else [f"{describe(each.cell)}: {share:.1%}"]
                )
        what = f"{name} rejects {ALARMS[0]:.0%} to {ALARMS[1]:.0%} of calibrated scores"
        yield Check(what, not odd, "; ".join(odd))


CELLS = [
    Cell(world, privacy, examples, groups)
    for world in WORLDS
    for privacy in ("sa", "ddp 1", "ddp 0.3")
    for examples in (2_000, 50_000)
    for groups in ("uniform", "quantile")
]
STUDY = Study(
    "calibration_coverage",
    __doc__,
    cells=CELLS,
    run=run,
    runs=RUNS,
    quick_runs=200,
    table=table,
    checks=checks,
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
