"""Several classes: how far averages are from the pooled rows', and whether intervals cover.

    python studies/classes.py                # 400 datasets in each cell
    python studies/classes.py --quick        # a small, seeded run
    python studies/classes.py --only "classes=10"

Scores are probabilities of classes from normal logits; with `skew` the classes are of different
sizes. A cell is a number of classes, a number of examples, an epsilon (0: an exact sum of 1,024
bins), and whether the confusion matrix is counted, too. Under noise bins and tree are those that
the planner proposes. `error` is the mean distance of the macro AUC from that of the same rows,
`width` the mean length of an interval over that of one from the true deviation of the estimates:
intervals are made for any dependence of the scores of one example, so they may be too wide. What is
true of the population is measured on a million further examples.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

import fedgauge as fg
from fedgauge.engines.simulation import simulate
from fedgauge.metrics.estimate import Estimate, critical
from runner import Check, Found, Study, describe, main

SITES = 5
LEAST = 0.93  # coverage
CHANCE = 3.0  # standard deviations of a count of covering intervals that the limit leaves room for
TARGETS = {3: 6e-4, 5: 1.3e-3, 10: 3.5e-3}  # macro AUC, 50,000 examples, epsilon 1
POPULATION, CHUNK = 1_000_000, 50_000


@dataclass(frozen=True)
class Cell:
    """One setting."""

    classes: int
    examples: int
    epsilon: float = 0.0
    skew: bool = False
    confusion: bool = False

    @property
    def shares(self) -> np.ndarray:
        """How common each class is."""
        sizes = np.arange(1.0, self.classes + 1) if self.skew else np.ones(self.classes)
        return sizes / sizes.sum()

    def rows(self, rng: np.random.Generator, examples: int) -> fg.Examples:
        """Labels and probabilities."""
        labels = rng.choice(self.classes, examples, p=self.shares)
        logits = rng.normal(size=(examples, self.classes)) + np.log(self.shares)
        logits[np.arange(examples), labels] += 1.5
        scores = np.exp(logits)
        return fg.Examples(labels, scores / scores.sum(axis=1, keepdims=True))

    def plan(self, bins: int = 1024) -> fg.EvaluationPlan:
        """An exact sum, or what the planner proposes."""
        also = ["confusion"] if self.confusion else []
        task = fg.MulticlassTask(labels=range(self.classes), also=also)
        if not self.epsilon:
            return fg.EvaluationPlan.for_histogram(fg.Axis.uniform(bins), fg.Cohort(1), task=task)
        return fg.planner.propose(
            privacy=fg.DistributedDP(self.epsilon),
            clients=SITES,
            examples=self.examples,
            task=task,
        )


def answers(result: fg.Evaluation, cell: Cell) -> dict[str, Estimate]:
    """The averages of a result."""
    named = {
        "macro AUC": result.macro("roc_auc"),
        "weighted AUC": result.macro("roc_auc", average="weighted"),
        "micro AUC": result.macro("roc_auc", average="micro"),
        "one-vs-one AUC": result.macro("roc_auc", against="one"),
        "macro AP": result.macro("average_precision"),
        "macro recall": result.macro("recall", at=1 / cell.classes),
    }
    if cell.confusion:
        matrix = result.confusion_matrix()
        for name in ("accuracy", "balanced_accuracy", "macro_f1", "kappa", "mcc"):
            named[name] = getattr(matrix, name)
    return named


def population(cell: Cell) -> dict[str, float]:
    """What is true, from many more examples."""
    rng = np.random.default_rng(99)
    exact = Cell(cell.classes, cell.examples, 0.0, cell.skew, cell.confusion)
    chunks = [cell.rows(rng, CHUNK) for _ in range(POPULATION // CHUNK)]
    result = simulate({"all": lambda: chunks}, exact.plan(4096))
    return {name: each.value for name, each in answers(result, cell).items()}


def run(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """Error of the macro AUC, then coverage and width of each average."""
    plan, truth = cell.plan(), population(cell)
    exact = Cell(cell.classes, cell.examples, 0.0, cell.skew).plan(4096)
    errors, held, lengths, values = [], [], [], []
    for _ in range(runs):
        rows = cell.rows(rng, cell.examples)
        sites = dict(enumerate(rows.split(math.ceil(cell.examples / SITES))))
        clients = {f"site {number}": part for number, part in sites.items()}
        found = answers(simulate(clients, plan, seed=int(rng.integers(2**63))), cell)
        pooled = simulate({"all": rows}, exact).macro("roc_auc").value
        errors.append(abs(found["macro AUC"].value - pooled))
        held.append([e.low <= truth[name] <= e.high for name, e in found.items()])
        lengths.append([e.high - e.low for e in found.values()])
        values.append([e.value for e in found.values()])
    usual = 2.0 * critical(0.95) * np.std(values, axis=0)
    measured = {"bins": plan.axis.bins, "error": float(np.mean(errors))}
    shares = zip(truth, np.mean(held, axis=0), np.mean(lengths, axis=0) / usual, strict=True)
    for name, covers, width in shares:
        measured |= {f"{name} covers": float(covers), f"{name} width": float(width)}
    return measured


def table(found: Sequence[Found[Cell]]) -> None:
    """Errors, and coverage and width of each average, by cell."""
    print(
        f"{'K':>3} {'examples':>8} {'eps':>4} {'skew':>5} {'bins':>5} {'error':>8}  covers (width)"
    )
    for each in found:
        c = each.cell
        names = [name.removesuffix(" covers") for name in each.values if name.endswith(" covers")]
        told = (f"{n} {each[f'{n} covers']:.1%} ({each[f'{n} width']:.2f})" for n in names)
        start = f"{c.classes:>3} {c.examples:>8,} {c.epsilon:>4g} {c.skew!s:>5}"
        print(f"{start} {each['bins']:>5.0f} {each['error']:>8.1e}  {', '.join(told)}")


def checks(found: Sequence[Found[Cell]]) -> Iterator[Check]:
    """Errors within their targets, and coverage above its limit, but for chance."""
    for each in found:
        c = each.cell
        if c.epsilon == 1.0 and c.examples == 50_000 and not c.confusion:
            target = TARGETS[c.classes]
            what = f"{describe(c)}: macro AUC within {target:g}"
            yield Check(what, each["error"] <= target, f"{each['error']:.1e}")
    stray = {each.cell: CHANCE * math.sqrt(LEAST * (1 - LEAST) / each.runs) for each in found}
    low = [
        f"{describe(each.cell)}: {name} {share:.1%}"
        for each in found
        for name, share in each.values.items()
        if name.endswith(" covers") and share < LEAST - stray[each.cell]
    ]
    yield Check(f"intervals cover at least {LEAST:.0%}", not low, "; ".join(low))


CELLS = [
    *(Cell(classes, 50_000, 1.0) for classes in (3, 5, 10)),
    Cell(3, 1_000),
    Cell(3, 1_000, skew=True, confusion=True),
    Cell(10, 5_000, confusion=True),
    Cell(10, 5_000, skew=True),
    Cell(3, 5_000, 1.0, skew=True),
    Cell(3, 20_000, 1.0, confusion=True),
    Cell(5, 50_000, 1.0, skew=True),
]
STUDY = Study(
    "classes",
    __doc__,
    cells=CELLS,
    run=run,
    runs=400,
    quick_runs=60,
    table=table,
    checks=checks,
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
