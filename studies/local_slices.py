"""Slices under local DP: whether intervals cover, and what a report about one block saves.

    python studies/local_slices.py                # 300 datasets in each cell
    python studies/local_slices.py --quick        # a small, seeded run
    python studies/local_slices.py --only "kind=classes"

Each report is about one class's score, one model's, or one way to group rows, drawn at random. A
cell is what is told apart, into how many parts, a number of rows and an epsilon. `error` is the
mean distance of each part's AUC from that of all the same rows; `split` is how many times as large
it is where each row reports about every block with its share of epsilon. Intervals are for the
population, of which a million further rows are counted; `bounds` for the rows at hand.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

import fedgauge as fg
from fedgauge.engines.reports import release_reports, simulate_block
from fedgauge.engines.simulation import simulate
from fedgauge.estimation.counts import PooledCounts, Released
from fedgauge.estimation.distribution import estimate
from fedgauge.metrics.curves import roc_curve
from fedgauge.metrics.estimate import Estimate
from fedgauge.plan import Slice
from fedgauge.privacy.keystream import SimulatedKeystream
from fedgauge.privacy.oracles import debias_drawn
from runner import Check, Found, Study, describe, main

AXIS = fg.planner.reference_axis(16, 0.3)
AT = float(AXIS.edges[8])
LEAST = 0.93  # coverage
CHANCE = 3.0  # standard deviations of a count of covering intervals that the limit leaves room for
POPULATION, CHUNK = 1_000_000, 50_000
GROUPS = ("women", "men")


@dataclass(frozen=True)
class Cell:
    """One setting."""

    kind: Literal["classes", "labels", "models", "groups"]
    parts: int
    examples: int
    epsilon: float

    @property
    def task(self) -> fg.BinaryTask | fg.MulticlassTask | fg.MultilabelTask:
        """What is told apart."""
        names = [f"part {number}" for number in range(self.parts)]
        if self.kind == "classes":
            return fg.MulticlassTask(labels=names)
        if self.kind == "labels":
            return fg.MultilabelTask(labels=names)
        if self.kind == "models":
            return fg.BinaryTask(models=names)
        return fg.BinaryTask(groups=dict.fromkeys(names, GROUPS))

    def rows(self, rng: np.random.Generator, examples: int) -> fg.Examples:
        """Labels and probabilities; scores of one row go together."""
        names = [f"part {number}" for number in range(self.parts)]
        shared = rng.normal(size=(examples, 1))
        scores = rng.normal(size=(examples, self.parts)) + shared
        if self.kind == "classes":
            kind = rng.choice(self.parts, examples)
            scores[np.arange(examples), kind] += 1.5
            odds = np.exp(scores)
            return fg.Examples(np.array(names)[kind], odds / odds.sum(axis=1, keepdims=True))
        labels = rng.random((examples, self.parts if self.kind == "labels" else 1)) < 0.3
        scores += 2.0 * labels
        probabilities = 1 / (1 + np.exp(1.0 - scores))
        if self.kind == "labels":
            return fg.Examples(labels, probabilities)
        if self.kind == "models":
            return fg.Examples(labels[:, 0], dict(zip(names, probabilities.T, strict=True)))
        drawn = {name: rng.choice([*GROUPS, "?"], examples, p=[0.5, 0.4, 0.1]) for name in names}
        return fg.Examples(labels[:, 0], probabilities[:, 0], group=drawn)

    def plan(self, epsilon: float | None = None) -> fg.EvaluationPlan:
        """For reports, on bins that a planner would take."""
        privacy = fg.LocalDP(epsilon or self.epsilon)
        return fg.EvaluationPlan.for_reports(AXIS, privacy, task=self.task)


def told(task: fg.BinaryTask | fg.MulticlassTask | fg.MultilabelTask) -> list[Slice]:
    """The slices that are measured: all but those of rows of no listed group, which are few."""
    return [each for each in task.slices if not (each.group or "").endswith("other")]


def _of(result: fg.Evaluation, slice_: Slice) -> fg.Evaluation:
    return result.select(model=slice_.model, group=slice_.group, label=slice_.label)


def answers(result: fg.Evaluation) -> dict[str, Estimate]:
    """The AUC of each part, and what compares or averages them."""
    named = {f"AUC of {each}": _of(result, each).roc_auc for each in told(result.plan.task)}
    if result.has_average:
        named["macro AUC"] = result.macro("roc_auc")
        named["micro AUC"] = result.macro("roc_auc", average="micro")
        named["macro recall"] = result.macro("recall", at=AT)
    if isinstance(result.plan.task, fg.MulticlassTask):
        named["one-vs-one AUC"] = result.macro("roc_auc", against="one")
    if result.plan.task.models:
        compared = result.compare("part 0", "part 1")
        named |= {"AUC gap of models": compared.roc_auc}
        named |= {"recall gap of models": compared.at_threshold(AT).recall}
    if result.plan.task.groups:
        named["AUC gap of groups"] = result.gaps("roc_auc").pairs[0].difference
        named["recall gap of groups"] = result.gaps("recall", at=AT).pairs[0].difference
    return named


def counted(cell: Cell, batches: list[fg.Examples]) -> dict[str, float]:
    """What all of some rows give."""
    axis = fg.Axis.from_edges(np.union1d(np.linspace(0, 1, 2049), [AT]))
    plan = fg.EvaluationPlan.for_histogram(axis, fg.Cohort(1), task=cell.task)
    return {
        name: each.value for name, each in answers(simulate({"all": lambda: batches}, plan)).items()
    }


def divided(cell: Cell, rows: fg.Examples, seed: int) -> list[float]:
    """The AUC of each part from reports about every block, each with its share of epsilon."""
    blocks = len(cell.task.layout.blocks)
    plan, source = cell.plan(cell.epsilon / blocks), SimulatedKeystream(seed)
    histogram, layout = plan.histogram(), plan.task.layout
    histogram.update_batches([rows])
    tallies, reports = [], []
    for oracles, block in zip(plan.reported.by_block(plan.terms), layout.blocks, strict=True):
        told = simulate_block(oracles, histogram.counts[layout.rows(block)], source)
        tallies, reports = tallies + told[0], reports + told[1]
    levels = debias_drawn(plan.reported.by_block(plan.terms), tallies, reports, layout.sizes)
    levels = [level / blocks for level in levels]  # each row is there as often
    noise = plan.noise_variances(len(rows))
    released = release_reports(plan, levels, noise, clients=1, reports=len(rows))
    return areas(plan, released)


def areas(plan: fg.EvaluationPlan, released: Released) -> list[float]:
    """The AUC of each part, also where noise would hide it."""
    found = []
    for slice_ in told(plan.task):
        counts = PooledCounts.of(plan, released, slice_).counts
        found.append(roc_curve(estimate(plan.axis, counts, fg.Aligned())).path.area())
    return found


def run(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """Errors, then coverage of each answer by its interval and its bounds."""
    plan = cell.plan()
    truth = counted(cell, [cell.rows(rng, CHUNK) for _ in range(POPULATION // CHUNK)])
    errors, split, held, bound, lengths, values = [], [], [], [], [], []
    for _ in range(runs):
        rows = cell.rows(rng, cell.examples)
        pooled, seed = counted(cell, [rows]), int(rng.integers(2**63))
        result = simulate({"all": rows}, plan, seed=seed)
        found = answers(result)
        exact = np.array([pooled[f"AUC of {each}"] for each in told(cell.task)])
        errors.append(np.abs(areas(plan, result.released) - exact))
        split.append(np.abs(divided(cell, rows, seed) - exact))
        held.append([e.low <= truth[name] <= e.high for name, e in found.items()])
        bound.append([e.bounds[0] <= pooled[n] <= e.bounds[1] for n, e in found.items()])
        lengths.append([e.high - e.low for e in found.values()])
        values.append([e.value for e in found.values()])
    measured = {"error": float(np.mean(errors)), "split": float(np.mean(split) / np.mean(errors))}
    usual = 2 * 1.96 * np.std(values, axis=0)
    shares = zip(np.mean(held, 0), np.mean(bound, 0), np.mean(lengths, 0) / usual, strict=True)
    for name, (covers, bounds, width) in zip(truth, shares, strict=True):
        measured |= {f"{name} covers": float(covers), f"{name} bounds": float(bounds)}
        measured |= {f"{name} width": float(width)}
    return measured


def table(found: Sequence[Found[Cell]]) -> None:
    """Errors and coverage, by cell."""
    for each in found:
        print(f"{describe(each.cell)}: error {each['error']:.1e}, split {each['split']:.1f} times")
        for name in (n.removesuffix(" covers") for n in each.values if n.endswith(" covers")):
            covers, bounds = each[f"{name} covers"], each[f"{name} bounds"]
            width = each[f"{name} width"]
            print(f"    {name:<32} covers {covers:.1%}, bounds {bounds:.1%}, width {width:.2f}")


def checks(found: Sequence[Found[Cell]]) -> Iterator[Check]:
    """Coverage above its limit, but for chance; and that one block at a time is better."""
    low = [
        f"{describe(each.cell)}: {name} {share:.1%}"
        for each in found
        for name, share in each.values.items()
        if name.endswith((" covers", " bounds"))
        and share < LEAST - CHANCE * math.sqrt(LEAST * (1 - LEAST) / each.runs)
    ]
    yield Check(f"intervals and bounds cover at least {LEAST:.0%}", not low, "; ".join(low))
    worse = [describe(each.cell) for each in found if each["split"] < 1]
    yield Check("a share of epsilon for each block is worse", not worse, "; ".join(worse))


CELLS = [
    Cell("classes", 3, 50_000, 4.0),
    Cell("classes", 5, 100_000, 4.0),
    Cell("labels", 3, 50_000, 4.0),
    Cell("models", 2, 50_000, 4.0),
    Cell("models", 2, 100_000, 1.0),
    Cell("groups", 1, 50_000, 4.0),
    Cell("groups", 2, 50_000, 4.0),
]
STUDY = Study(
    "local_slices",
    __doc__,
    cells=CELLS,
    run=run,
    runs=300,
    quick_runs=40,
    table=table,
    checks=checks,
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
