"""Does shrinkage help on odd scores? Errors of likely counts over those of counts as released.

    python studies/shrinkage_shapes.py               # 100 paired runs in each cell
    python studies/shrinkage_shapes.py --quick       # a small, seeded run
    python studies/shrinkage_shapes.py --only "shape=valley"

A cell is a shape of scores, a number of examples, an epsilon and a design, fixed beforehand:

- distributed DP, 20 clients: a uniform axis of 64 bins; at 20,000 examples also one of 128 bins
  under a tree of 16 x 8, the reference axis of 16 bins, and 256 bins under a binary tree;
- local DP: a uniform axis of 32 bins;
- label parties: the 64 bins of equal depth that `fg.evaluate_vertical` makes.

Rows are drawn anew after every tenth run. Each run is read twice, with `fg.Aligned()` and with
`fg.Aligned(shrink=False)`. Errors are against the exact curves of the same rows: the mean distance
of the ROC and of the PR curve at 2,000 even points, and the absolute error of the AUC. A ratio is
that of mean errors, below 1 where shrinkage gains. Runs in which noise hides a class have no
result; `answered` is the share of the others, and cells with less than half of them have no ratio.
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np
from scipy.special import expit

import fedgauge as fg
from runner import Check, Found, Study, main

Design = Literal[
    "uniform 64", "uniform 16 x 8", "binary 256", "reference 16", "local 32", "label 64"
]
Rows = tuple[np.ndarray, np.ndarray]

RATE = 0.3
RARE = 0.005
SEPARATION = 1.47  # an AUC of 0.85
CLIENTS = 20
SAME_ROWS = 10
FEWEST = 0.5  # answers, of all runs
POINTS = (np.arange(2000) + 0.5) / 2000
MEASURES = ("ROC", "PR", "AUC")


def _drawn(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Calibrated log-odds."""
    return SEPARATION * rng.normal(SEPARATION * (labels - 0.5)) + math.log(RATE / (1 - RATE))


def _modes(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Three narrow groups of scores, the same in both classes, with other shares."""
    shares = np.array([[0.6, 0.3, 0.1], [0.15, 0.3, 0.55]])
    which = (rng.random(len(labels))[:, np.newaxis] > np.cumsum(shares[labels], axis=1)).sum(axis=1)
    return rng.normal(np.array([-4.0, -1.0, 2.0])[np.minimum(which, 2)], 0.15)


def _valley(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Positives at both ends, negatives in between."""
    ends = rng.choice([-2.5, 2.5], len(labels))
    return rng.normal(np.where(labels == 1, ends, 0.0), 0.6)


def _atoms(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Half of all scores on five values."""
    plain = _drawn(labels, rng)
    tied = np.clip(np.round(plain / 1.5) * 1.5, -4.5, 1.5)
    return np.where(rng.random(len(labels)) < 0.5, tied, plain)


LOG_ODDS: Mapping[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]] = {
    "calibrated": _drawn,
    "several modes": _modes,
    "inverted ratio": lambda labels, rng: -_drawn(labels, rng),
    "valley": _valley,
    "atoms": _atoms,
    "heavy tails": lambda labels, rng: 2 * rng.standard_t(1.5, len(labels)) + 2 * labels - 1,
    "0.5% positive": lambda labels, rng: _drawn(labels, rng) - 4.5,
    "crowded near 0": lambda labels, rng: 1.5 * _drawn(labels, rng) - 6,
    "separated": lambda labels, rng: rng.normal(6.0 * labels - 3.0, 0.5),
    "no separation": lambda labels, rng: rng.normal(-1.0, 1.0, len(labels)),
    "beyond 0 and 1": _drawn,
}


@dataclass(frozen=True)
class Cell:
    """A setting."""

    shape: str
    examples: int
    epsilon: float
    design: Design

    @property
    def probabilities(self) -> bool:
        """Whether scores lie between 0 and 1."""
        return self.shape != "beyond 0 and 1"

    @property
    def rate(self) -> float:
        """The share of positives."""
        return RARE if self.shape == "0.5% positive" else RATE

    def draw(self, rng: np.random.Generator) -> Rows:
        """Labels and scores."""
        labels = (rng.random(self.examples) < self.rate).astype(np.int64)
        log_odds = LOG_ODDS[self.shape](labels, rng)
        return labels, expit(log_odds) if self.probabilities else log_odds

    def axis(self) -> fg.Axis:
        """The bins; those of label parties follow from the scores."""
        if self.design == "reference 16" and self.probabilities:
            return fg.planner.reference_axis(16, self.rate)
        bins = {"uniform 16 x 8": 128, "binary 256": 256, "reference 16": 16, "local 32": 32}
        ends = (0.0, 1.0) if self.probabilities else (-8.0, 8.0)
        return fg.Axis.uniform(bins.get(self.design, 64), *ends, outside="clip")

    def evaluate(self, rows: Rows, seed: int) -> fg.Evaluation:
        """One run."""
        labels, scores = rows
        if self.design == "local 32":
            options = {"axis": self.axis(), "privacy": fg.LocalDP(self.epsilon)}
            return fg.evaluate({"all": rows}, seed=seed, **options)
        if self.design == "label 64":
            ids = np.arange(len(labels))
            parties = {str(k): (ids[k::CLIENTS], labels[k::CLIENTS]) for k in range(CLIENTS)}
            privacy = fg.DistributedDP(self.epsilon, unit="label", neighbours="flip")
            hints = {"tree": (64,), "positive_rate": self.rate, "privacy": privacy}
            return fg.evaluate_vertical((ids, scores), parties, seed=seed, **hints)
        clients = {str(k): (labels[k::CLIENTS], scores[k::CLIENTS]) for k in range(CLIENTS)}
        trees = {"uniform 16 x 8": (16, 8), "binary 256": (2,) * 8}
        tree = trees.get(self.design, (self.axis().bins,))
        privacy = fg.DistributedDP(self.epsilon)
        return fg.evaluate(clients, axis=self.axis(), tree=tree, privacy=privacy, seed=seed)


def errors(result: fg.Evaluation, exact: tuple[np.ndarray, np.ndarray, float]) -> list[float]:
    """Of the ROC curve, the PR curve and the AUC."""
    roc, pr, area = exact
    found = (np.abs(result.roc_curve()(POINTS) - roc), np.abs(result.pr_curve()(POINTS) - pr))
    return [*(float(each.mean()) for each in found), abs(result.roc_auc.value - area)]


def run(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """Ratios of mean errors, and their standard errors."""
    pairs = []
    for number in range(runs):
        if number % SAME_ROWS == 0:
            rows = cell.draw(rng)
            roc, pr = fg.exact_roc_curve(*rows), fg.exact_pr_curve(*rows)
            exact = roc(POINTS), pr(POINTS), roc.path.area()
        try:
            result = cell.evaluate(rows, int(rng.integers(2**32)))
            plain = result.with_estimator(fg.Aligned(shrink=False))
            pairs.append((errors(result, exact), errors(plain, exact)))
        except fg.NoSignal:
            continue
    found = {"answered": len(pairs) / runs}
    if len(pairs) < FEWEST * runs or len(pairs) < 2:
        return found | dict.fromkeys(MEASURES, math.nan)
    shrunk, released = np.moveaxis(np.array(pairs), 1, 0)
    for name, new, old in zip(MEASURES, shrunk.T, released.T, strict=True):
        ratio = new.mean() / old.mean()
        chance = np.std(new - ratio * old, ddof=1) / (old.mean() * math.sqrt(len(pairs)))
        found |= {name: ratio, f"{name} s.e.": chance, f"{name} error": old.mean()}
    return found


def table(found: Sequence[Found[Cell]]) -> None:
    """ROC, PR and AUC by shape, for each design and number of examples."""
    ordered = sorted(found, key=lambda each: (each.cell.design, each.cell.examples))
    for (design, examples), each in groupby(ordered, lambda f: (f.cell.design, f.cell.examples)):
        group = list(each)
        epsilons = sorted({one.cell.epsilon for one in group}, reverse=True)
        print(f"{design}, {examples:,} examples: ROC, PR, AUC error shrunk over unshrunk")
        print(f"{'':16}" + "".join(f"{f'epsilon {epsilon:g}':>20}" for epsilon in epsilons))
        for shape in dict.fromkeys(one.cell.shape for one in group):
            line = {one.cell.epsilon: one for one in group if one.cell.shape == shape}
            texts = ("  ".join(f"{line[e][name]:.2f}" for name in MEASURES) for e in epsilons)
            print(f"{shape:16}" + "".join(f"{text:>20}" for text in texts))


def checks(found: Sequence[Found[Cell]]) -> Iterator[Check]:
    """That it helps on calibrated scores, and nowhere does great harm."""
    for each in found:
        ratios = {name: each[name] for name in MEASURES[:2] if not math.isnan(each[name])}
        if each.cell.shape == "calibrated" and ratios:
            rooms = {name: 3 * each[f"{name} s.e."] for name in ratios}
            kept = all(ratio <= 1 + rooms[name] for name, ratio in ratios.items())
            yield Check(f"{each.cell}: no harm", kept, f"{ratios}")


def grid() -> Iterator[Cell]:
    """All cells."""
    for shape in LOG_ODDS:
        for epsilon in (1.0, 0.3, 0.1):
            for examples in (2_000, 20_000, 200_000):
                yield Cell(shape, examples, epsilon, "uniform 64")
            yield Cell(shape, 20_000, epsilon, "uniform 16 x 8")
            yield Cell(shape, 20_000, epsilon, "binary 256")
            yield Cell(shape, 20_000, epsilon, "reference 16")
            if epsilon > 0.1:
                yield Cell(shape, 20_000, epsilon, "label 64")
        for epsilon in (5.0, 1.0):
            yield Cell(shape, 200_000, epsilon, "local 32")


CELLS = tuple(grid())
STUDY = Study(
    "shrinkage_shapes",
    __doc__,
    cells=CELLS,
    quick_cells=[cell for cell in CELLS if cell.examples == 2_000 and cell.epsilon == 1.0],
    run=run,
    runs=100,
    quick_runs=10,
    table=table,
    checks=checks,
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
