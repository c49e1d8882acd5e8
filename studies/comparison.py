"""How surely is one of two models better? Intervals of differences against those of raw rows.

    python studies/comparison.py               # 1,000 datasets in each cell
    python studies/comparison.py --quick       # a small, seeded run
    python studies/comparison.py --only "epsilon=1.0"

Two models score the same rows: normal scores with the correlation named, told as the probabilities
they mean. 20 sites are summed. `width` is the mean width of an interval over that of the raw rows:
for the ROC AUC DeLong's paired one (1988), for the Brier score that of the mean difference of
losses, for recall at 0.5 that of the mean difference of flags. `covers` is how often the
population's difference is within. `hinted` cells know the number of rows and the
share of positives, and have ranges placed by them. `compared` cells have two groups of half the
rows each, and compare models within one of them, or over all rows.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.stats import binom, norm, rankdata

import fedgauge as fg
from fedgauge.engines.contribution import draw_noise, release, to_numbers
from fedgauge.histograms.tables import NOISY_EDGES, ranges_for
from fedgauge.plan.task import BinaryTask
from fedgauge.privacy.keystream import SimulatedKeystream
from fedgauge.results.evaluation import Evaluation
from runner import Check, Found, Study, describe, main

SITES = 20
FIRST, SECOND = 1.6, 1.5  # how far apart the classes are
MEASURED = 100  # datasets whose raw rows are looked at: their widths hardly differ
FALSE_ALARM = 1 / 400
Z = 1.959964
METRICS = ("AUC", "AP", "Brier", "recall", "benefit")


@dataclass(frozen=True)
class Cell:
    """One setting; `epsilon` 0 is an exact sum."""

    examples: int
    rate: float
    epsilon: float = 0.0
    correlation: float = 0.9
    hinted: bool = False
    compared: str = ""

    def plan(self) -> fg.EvaluationPlan:
        """The plan that `fg.evaluate` makes of two models."""
        task = BinaryTask(
            models=("new", "old"),
            pairs=(("new", "old"),),
            groups={"half": ["one", "other one"]} if self.compared else {},
        )
        if not self.epsilon:
            axis = fg.Axis.uniform(4096)
            return fg.EvaluationPlan.for_histogram(axis, fg.Cohort(SITES), task=task)
        axis = fg.Axis.from_edges(NOISY_EDGES, outside="clip")
        if self.hinted:
            scarce = self.examples * min(self.rate, 1 - self.rate)
            axis = fg.planner.reference_axis(ranges_for(scarce, self.epsilon), self.rate)
        privacy = fg.DistributedDP(self.epsilon)
        return fg.EvaluationPlan.for_histogram(axis, fg.Cohort(SITES), task=task, privacy=privacy)

    @property
    def is_promised(self) -> bool:
        """Whether its interval under noise is at most 1.6 times as wide as that of raw rows."""
        return bool(self.epsilon) and self.examples >= 50_000 and not self.compared

    def groups(self) -> np.ndarray | None:
        """The group of each row, if there are some: every other row is of the same."""
        if not self.compared:
            return None
        return np.where(np.arange(self.examples) % 2, "other one", "one")

    def rows(self, rng: np.random.Generator, examples: int) -> tuple[np.ndarray, ...]:
        """Labels and the scores of both models."""
        labels = rng.random(examples) < self.rate
        shared, own = rng.normal(size=(2, examples))
        other = self.correlation * shared + np.sqrt(1 - self.correlation**2) * own
        return labels, self.told(labels, shared, FIRST), self.told(labels, other, SECOND)

    def told(self, labels: np.ndarray, error: np.ndarray, apart: float) -> np.ndarray:
        """The probability of a positive, given a normal score."""
        odds = np.log(self.rate / (1 - self.rate)) + apart * (apart * labels + error) - apart**2 / 2
        return 1 / (1 + np.exp(-odds))


@cache
def truth(rate: float) -> dict[str, float]:
    """The population's differences, by integrals: rows that stand for it would be off by chance."""
    one, other = (_population(rate, apart) for apart in (FIRST, SECOND))
    return {name: one[name] - other[name] for name in METRICS}


def _population(rate: float, apart: float) -> dict[str, float]:
    """Metrics of one model."""
    score = np.linspace(-12, 12, 240_001) + apart / 2
    flagged = {1: rate * norm.sf(score - apart), 0: (1 - rate) * norm.sf(score)}
    held = {1: rate * norm.pdf(score - apart), 0: (1 - rate) * norm.pdf(score)}
    chance = held[1] / (held[0] + held[1])
    precision = flagged[1] / (flagged[0] + flagged[1])
    losses = held[1] * (1 - chance) ** 2 + held[0] * chance**2
    prior = np.log(rate / (1 - rate))
    half, fifth = ((odds - prior) / apart + apart / 2 for odds in (0.0, -np.log(4)))
    return {
        "AUC": norm.cdf(apart / np.sqrt(2)),
        "AP": np.trapezoid(precision * held[1], score) / rate,
        "Brier": np.trapezoid(losses, score),
        "recall": norm.sf(half - apart),
        "benefit": rate * norm.sf(fifth - apart) - (1 - rate) * norm.sf(fifth) / 4,
    }


def measured(result) -> dict[str, fg.Estimate]:
    """The differences that are looked at."""
    return {
        "AUC": result.roc_auc,
        "AP": result.average_precision,
        "Brier": result.brier_score,
        "recall": result.at_threshold(0.5).recall,
        "benefit": result.net_benefit(0.2),
    }


def raw_widths(labels: np.ndarray, one: np.ndarray, other: np.ndarray) -> dict[str, float]:
    """Widths of the intervals that pooled rows have."""
    placed = [_placements(labels, scores) for scores in (one, other)]
    variance = sum((a - b).var(ddof=1) / len(a) for a, b in zip(*placed, strict=True))
    losses = (one - labels) ** 2 - (other - labels) ** 2
    flags = ((one >= 0.5).astype(float) - (other >= 0.5))[labels]
    return {
        "AUC": 2 * Z * np.sqrt(variance),
        "Brier": 2 * Z * losses.std(ddof=1) / np.sqrt(len(losses)),
        "recall": 2 * Z * flags.std(ddof=1) / np.sqrt(len(flags)),
    }


def _placements(labels: np.ndarray, scores: np.ndarray) -> list[np.ndarray]:
    """Shares of the other class below positives, and above negatives."""
    ranks, found = rankdata(scores), []
    for mine in (labels, ~labels):
        others = len(labels) - mine.sum()
        below = (ranks[mine] - rankdata(scores[mine])) / others
        found.append(below if mine is labels else 1 - below)
    return found


def run(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """Coverage of each metric's interval, and its width over that of raw rows."""
    plan, true, groups = cell.plan(), truth(cell.rate), cell.groups()
    held = dict.fromkeys(METRICS, 0)
    widths: dict[str, list[float]] = {name: [] for name in ("AUC", "Brier", "recall")}
    for number in range(runs):
        labels, one, other = cell.rows(rng, cell.examples)
        histogram = plan.histogram()
        scores = {"new": one, "old": other}
        histogram.update_batches([fg.Examples(labels, scores, group=groups)])
        source = SimulatedKeystream(int(rng.integers(2**63)))
        total = to_numbers(plan, histogram) + draw_noise(plan, source, shares=SITES)
        released, statement = release(plan, total, SITES), plan.statement("simulated")
        result = Evaluation(plan, statement, released, estimator=fg.Aligned())
        if cell.compared == "within":
            result = result.select(group="one")
            labels, one, other = (column[::2] for column in (labels, one, other))
        found = measured(result.compare("new", "old"))
        for name, each in found.items():
            held[name] += each.low <= true[name] <= each.high
        if number >= MEASURED:
            continue
        raw = raw_widths(labels, one, other)
        for name in widths:
            widths[name].append((found[name].high - found[name].low) / raw[name])
    return {f"{name} covers": held[name] / runs for name in METRICS} | {
        f"{name} width": float(np.mean(each)) for name, each in widths.items()
    }


def table(found: Sequence[Found[Cell]]) -> None:
    """Coverage and widths by cell."""
    names = [*(f"{name} covers" for name in METRICS), "AUC width", "Brier width", "recall width"]
    print(f"{'cell':>60}", *(f"{name:>14}" for name in names))
    for each in found:
        values = (each[name] for name in names)
        print(f"{describe(each.cell):>60}", *(f"{value:>14.3f}" for value in values))


def checks(found: Sequence[Found[Cell]]) -> Iterator[Check]:
    """Coverage as of 95% intervals, and intervals no wider than promised.

    Of 1,000 datasets at least 93% must be covered. Of intervals that cover 95% fewer are in one
    cell of 400, and so in one run of ten over all cells and metrics; of such that cover 93%, in
    every other cell.
    """
    for name in METRICS:
        odd = [
            f"{describe(each.cell)}: {each[f'{name} covers']:.1%}"
            for each in found
            if each[f"{name} covers"] < binom.ppf(FALSE_ALARM, each.runs, 0.95) / each.runs
        ]
        yield Check(f"{name} covers at least 93% of 1,000", not odd, "; ".join(odd))
    for name, most, of in (
        ("AUC", 1.05, [each for each in found if not each.cell.epsilon]),
        ("AUC", 1.6, [each for each in found if each.cell.is_promised]),
    ):
        wide = [
            f"{describe(each.cell)}: {each[f'{name} width']:.2f}"
            for each in of
            if each[f"{name} width"] > most
        ]
        yield Check(f"{name} at most {most} times as wide as raw", not wide, "; ".join(wide))


CELLS = [
    Cell(50_000, 0.3),
    Cell(50_000, 0.1),
    Cell(2_000, 0.3),
    Cell(50_000, 0.3, 1.0),
    Cell(50_000, 0.5, 1.0),
    Cell(50_000, 0.1, 1.0),
    Cell(50_000, 0.1, 1.0, hinted=True),
    Cell(200_000, 0.1, 1.0),
    Cell(50_000, 0.3, 1.0, correlation=0.5),
    Cell(20_000, 0.3, 1.0),
    Cell(50_000, 0.3, compared="within"),
    Cell(50_000, 0.3, 1.0, compared="within"),
    Cell(50_000, 0.3, 1.0, compared="over"),
]
STUDY = Study(
    "comparison",
    __doc__,
    cells=CELLS,
    run=run,
    runs=1000,
    quick_runs=20,
    table=table,
    checks=checks,
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
