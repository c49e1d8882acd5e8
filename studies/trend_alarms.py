"""How often a quiet series of results raises an alarm, and how soon a change of the AUC does.

    python studies/trend_alarms.py               # 1,000 series of 52 looks in each cell
    python studies/trend_alarms.py --quick       # a small, seeded run
    python studies/trend_alarms.py --only "shift=0.0"

The log-odds of scores are normal in each class. A cell is a number of examples in each look, a
share of positives, the AUC, an epsilon with a tree (or none for an exact sum), and by how much the
AUC falls after the 20th look, if it does. Counts are drawn by bin; noise is Laplace on every node.
All that a trend watches is watched, with recall, FPR and precision at 0.5. `alarmed` is the share
of series that ever raise an alarm, `jump`, `shift` and `drift` those by each test, `auc` those by
the AUC. With a change, `within` is the share of series in which the AUC raises an alarm in one of
the first three looks after it, and `before` the share that had an alarm earlier. `least` is the
least fall that is said at the 20th look to be found so soon in nine of ten cases: the median of
series, not a number where noise leaves nothing to compare.

All cells take about 10 minutes on one core.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

import fedgauge as fg
from fedgauge.estimation import repair
from fedgauge.estimation.counts import redraw
from fedgauge.monitoring.drift import (
    Judged,
    Looks,
    Noise,
    Run,
    Watched,
    follow,
    loudest_node,
    watch,
)
from runner import Check, Found, Study, describe, main

RATE = 0.05
LOOKS = 52
CHANGE = 20  # looks before a change
SOON = 3
AT_ONCE = 50  # series, which bounds memory
AXIS = fg.Axis.uniform(64)
AT = (0.5,)


@dataclass(frozen=True)
class Cell:
    """One setting."""

    examples: int
    rate: float
    auc: float = 0.8
    epsilon: float | None = None
    tree: tuple[int, ...] = (64,)
    shift: float = 0.0

    @property
    def variances(self) -> tuple[float, ...]:
        """Of the noise in a node, by level: a row adds 1 to a node of each."""
        if self.epsilon is None:
            return ()
        return (2.0 * (len(self.tree) / self.epsilon) ** 2,) * len(self.tree)


def bin_shares(cell: Cell, auc: float) -> np.ndarray:
    """Chance that an example is of each class and bin."""
    apart = math.sqrt(2.0) * norm.ppf(auc)
    with np.errstate(divide="ignore"):
        at = np.log(AXIS.edges) - np.log1p(-AXIS.edges)
    base = math.log(cell.rate / (1 - cell.rate))  # so that scores are about calibrated
    low, high = (np.diff(norm.cdf(at - base - side * apart / 2)) for side in (-1, 1))
    return np.array([(1 - cell.rate) * low, cell.rate * high])


def draw(cell: Cell, runs: int, looks: int, rng: np.random.Generator) -> np.ndarray:
    """The counts of many series, by series, look, class and bin, as they are released."""
    every = []
    for auc, number in ((cell.auc, CHANGE), (cell.auc - cell.shift, looks - CHANGE)):
        shares = bin_shares(cell, auc)
        drawn = rng.multinomial(cell.examples, shares.ravel() / shares.sum(), (runs, number))
        every.append(drawn.reshape(runs, number, *shares.shape))
    counts = np.concatenate(every, axis=1).astype(np.float64)
    return redraw(counts, cell.tree, cell.variances, rng) if cell.epsilon else counts


def series(cell: Cell, runs: int, looks: int, rng: np.random.Generator) -> dict[Watched, Run]:
    """How each look of many series stands, in all that is watched."""
    counts = draw(cell, runs, looks, rng)

    def covariance(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        by_class = repair.noise_covariance(cell.tree, cell.variances, left, right)
        return by_class.sum(axis=-1)[..., np.newaxis]  # the same in all looks

    def loudest(weights: np.ndarray, look: int) -> np.ndarray:
        del look  # the same in all
        return loudest_node(cell.tree, cell.variances, weights)

    def first(number: int) -> Looks:
        noise = Noise(covariance, loudest) if cell.epsilon else None
        return Looks(AXIS, counts[:, :number], noise)

    return follow(first, looks, watch(AXIS, AT), RATE)


def run(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """The shares of series that raise alarms."""
    looks = LOOKS if not cell.shift else CHANGE + SOON
    hits: dict[str, list[np.ndarray]] = {}
    for start in range(0, runs, AT_ONCE):
        found = series(cell, min(AT_ONCE, runs - start), looks, rng)
        by_test = {
            test: np.any([run.alarms[test] for run in found.values()], axis=0)
            for test in Judged._fields
        }
        alarmed = np.any([*by_test.values()], axis=0)  # by look and series
        (auc,) = (run for each, run in found.items() if each.name == "roc_auc")
        of_auc = np.any([*auc.alarms.values()], axis=0)
        told = {
            "alarmed": alarmed.any(axis=0),
            **{test: each.any(axis=0) for test, each in by_test.items()},
            "auc": of_auc.any(axis=0),
            "before": alarmed[:CHANGE].any(axis=0),
            "within": of_auc[CHANGE : CHANGE + SOON].any(axis=0),
            "least": auc.least[CHANGE - 1],
        }
        for name, each in told.items():
            hits.setdefault(name, []).append(each)
    least = np.concatenate(hits.pop("least"))
    shares = {name: float(np.concatenate(each).mean()) for name, each in hits.items()}
    return shares | {"least": float(np.median(least))}


def cells() -> Iterator[Cell]:
    """Quiet series and those with a change."""
    settings: list[tuple[float | None, tuple[int, ...]]] = [
        (None, (64,)),
        (1.0, (64,)),
        (1.0, (8, 8)),
        (0.3, (8, 8)),
    ]
    for epsilon, tree in settings:
        for examples, rate in ((10_000, 0.3), (10_000, 0.05), (1_000, 0.3), (1_000, 0.05)):
            yield Cell(examples, rate, epsilon=epsilon, tree=tree)
    for epsilon, tree in settings:
        for rate in (0.3, 0.05):
            yield Cell(10_000, rate, epsilon=epsilon, tree=tree, shift=0.05)


def table(found: Sequence[Found[Cell]]) -> str:
    """The figures in Markdown."""
    head = "| cell | alarmed | jump | shift | drift | AUC | before | within | least |"
    lines = [head, "|" + "---|" * 9]
    for each in found:
        shares = " | ".join(f"{each[name]:.1%}" for name in each.values if name != "least")
        lines.append(f"| {describe(each.cell)} | {shares} | {each['least']:.3f} |")
    return "\n".join(lines)


def checks(found: Sequence[Found[Cell]]) -> Iterator[Check]:
    """Quiet series keep the rate; a change as large as is said is found soon."""
    for each in found:
        cell = each.cell
        most = RATE + 2.0 * math.sqrt(RATE * (1 - RATE) / each.runs)
        told = "before" if cell.shift else "alarmed"
        yield Check(f"quiet: {describe(cell)}", each[told] <= most, f"{each[told]:.3f}")
        if cell.shift >= each["least"]:
            kept = each["within"] >= 0.9
            yield Check(f"found soon: {describe(cell)}", kept, f"{each['within']:.3f}")


STUDY = Study(
    "trend_alarms",
    __doc__ or "",
    cells=list(cells()),
    run=run,
    quick_cells=[each for each in cells() if each.examples == 10_000 and each.rate == 0.3],
    runs=1_000,
    quick_runs=50,
    table=table,
    checks=checks,
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
