"""Bins of equal depth, found in a first round: their error next to that of true quantiles.

    python studies/two_rounds.py             # 50 runs in each cell, 10 minutes of a core
    python studies/two_rounds.py --quick
    python studies/two_rounds.py --only "scale=margins*"

50,000 rows of an AUC near 0.85, or real scores, under distributed DP or (epsilon 0) exact sums; a
million local reports at epsilon 5, of which the first round takes a tenth.

- oracle: edges at the true quantiles, a crowded value apart; one round with the whole budget;
- two rounds: as `fg.TwoRound` does it;
- hierarchy: the search of Cormode & Markov (2023), binary, of height 10, by prefix sums; over the
  leaves of the same coarse axis and with the same share of the budget;
- one round: of probabilities the best of 48 equal bins, of 64, of 48 logit bins and of what the
  planner takes; of other scores as many bins on a scale that fits any (asinh).

Area Errors are means over 2,000 false positive rates or recalls. With exact sums the error of the
AUC, its points joined by lines as in the paper, is printed next to 1/(3 B^2): its theorem 4, for
balanced classes, and where the errors of its figure 4 lie.
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

import fedgauge as fg
from runner import Check, Found, Study, main
from score_scales import CROWDED, PROBABILITIES, REAL, ROWS, available, draw

HEIGHT = 10  # of the paper's hierarchy
COARSE = 512
REPORTS = 1_000_000  # under local DP
BUCKETS = (10, 20, 40, 80, 160)
SMOOTH = ("margins", "lognormal", "probabilities")
MOST = {"margins": 1.5, "points": 1.5, "lognormal": 1.5, "tiny": 2.0}  # times the oracle's error
LOCAL_MOST = 2.0
OF_ONE_ROUND = 1.15  # for probabilities
OF_BOUND = 1.5  # buckets are of nearly equal depth
GRID = (np.arange(2_000) + 0.5) / 2_000
MEASURES = ("ROC", "PR", "AUC", "straight AUC")
Rows = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Cell:
    """One setting; epsilon 0 stands for exact sums."""

    scale: str
    epsilon: float
    bins: int = 48
    rate: float = 0.3
    local: bool = False

    @property
    def rows(self) -> int:
        """How many are drawn."""
        return REPORTS if self.local else ROWS

    @property
    def privacy(self) -> fg.DistributedDP | fg.SecureAggregation | fg.LocalDP:
        """Noise of two clients who trust each other: the least that the budget allows."""
        if self.local:
            return fg.LocalDP(self.epsilon)
        return fg.DistributedDP(self.epsilon) if self.epsilon else fg.SecureAggregation()

    def coarse(self, bins: int) -> fg.Axis:
        """What a first round counts over."""
        if self.scale in PROBABILITIES:
            return fg.Axis.logit(bins, limit=32.0, outside="clip")
        return fg.Axis.asinh(bins)

    def evaluate(self, rows: Rows, axis: fg.Axis | fg.TwoRound, seed: int) -> fg.Evaluation:
        """The result on an axis."""
        clients = {str(i): tuple(column[i::2] for column in rows) for i in range(2)}
        cohort = None if self.local else fg.Cohort(2, 0)
        return fg.evaluate(clients, privacy=self.privacy, axis=axis, cohort=cohort, seed=seed)


def true_quantiles(cell: Cell, rows: Rows) -> fg.Axis:
    """Edges at quantiles of all scores, and around values that fill a bin."""
    values, times = np.unique(rows[1], return_counts=True)
    crowds = values[times > len(rows[1]) / cell.bins]
    edges = np.quantile(rows[1], np.linspace(0.0, 1.0, cell.bins + 1))
    edges = np.unique([*edges, *crowds, *np.nextafter(crowds, np.inf)])
    return fg.Axis.from_edges(edges, outside="clip")


def by_hierarchy(
    cell: Cell, rows: Rows, share: float, rng: np.random.Generator
) -> tuple[fg.Axis, float]:
    """Edges found by going down a binary tree of noisy counts; what is left of epsilon."""
    leaves = _coarse(cell, 2**HEIGHT)
    counts = np.bincount(leaves.index(rows[1]), minlength=leaves.bins)
    levels = [counts.reshape(2**level, -1).sum(axis=1) for level in range(1, HEIGHT + 1)]
    if cell.epsilon:
        chance = -math.expm1(-cell.epsilon * share / HEIGHT)
        levels = [
            level + rng.geometric(chance, level.shape) - rng.geometric(chance, level.shape)
            for level in levels
        ]
    wanted = np.arange(1, cell.bins) / cell.bins * levels[0].sum()
    nodes, before = np.zeros(len(wanted), dtype=np.int64), np.zeros(len(wanted))
    for level in levels:
        left = level[2 * nodes]
        right = before + left < wanted
        before += np.where(right, left, 0)
        nodes = 2 * nodes + right
    edges = np.unique([leaves.low, *leaves.edges[nodes], leaves.high])
    return fg.Axis.from_edges(edges, outside="clip"), cell.epsilon * (1.0 - share)


@cache
def _coarse(cell: Cell, bins: int) -> fg.Axis:
    return cell.coarse(bins)


@cache
def fixed(cell: Cell, rows: int, rate: float) -> Mapping[str, fg.Axis]:
    """Axes of one round that need no search; `rows` and `rate` are what a planner is told."""
    if cell.scale not in PROBABILITIES:
        return {"asinh": fg.Axis.asinh(cell.bins)}
    axes = {
        "equal": fg.Axis.uniform(cell.bins, outside="clip"),
        "auto": fg.Axis.uniform(64, outside="clip"),
        "logit": fg.Axis.logit(cell.bins, outside="clip"),
    }
    if not cell.epsilon:
        return axes
    plan = fg.planner.propose(
        privacy=cell.privacy, clients=2, cohort=fg.Cohort(2, 0), examples=rows, positive_rate=rate
    )
    return axes | {"planner": plan.axis} if len(plan.tree) == 1 else axes


class Truth:
    """What curves of pooled rows are at each place of the grid."""

    def __init__(self, rows: Rows) -> None:
        roc = fg.exact_roc_curve(*rows)
        self._roc, self._pr = roc(GRID), fg.exact_pr_curve(*rows)(GRID)
        self._auc = roc.path.area()

    def errors(self, result: fg.Evaluation) -> tuple[float, ...]:
        """ROC and PR Area Error; that of the AUC, and with points joined by lines."""
        curve = result.roc_curve()
        straight = result.with_estimator(fg.Aligned("linear")).roc_curve().path.area()
        return (
            float(np.mean(np.abs(curve(GRID) - self._roc))),
            float(np.mean(np.abs(result.pr_curve()(GRID) - self._pr))),
            abs(curve.path.area() - self._auc),
            abs(straight - self._auc),
        )


def ways(cell: Cell, rows: Rows) -> Mapping[str, Callable[[np.random.Generator], fg.Evaluation]]:
    """Each way to a result, by its name."""
    quantiles = true_quantiles(cell, rows)
    two = fg.TwoRound(cell.bins, coarse=_coarse(cell, COARSE))

    def on(axis: fg.Axis | fg.TwoRound) -> Callable[[np.random.Generator], fg.Evaluation]:
        return lambda rng: cell.evaluate(rows, axis, int(rng.integers(2**32)))

    def searched(rng: np.random.Generator) -> fg.Evaluation:
        axis, left = by_hierarchy(cell, rows, two.share, rng)
        rest = Cell(cell.scale, left, cell.bins, cell.rate)
        return rest.evaluate(rows, axis, int(rng.integers(2**32)))

    axes = fixed(cell, len(rows[0]), round(float(np.mean(rows[0])), 2))
    found = {"oracle": on(quantiles), "two rounds": on(two)}
    if not cell.local:
        found["hierarchy"] = searched
    return found | {name: on(axis) for name, axis in axes.items()}


def run(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """Mean errors of each way."""
    if not available(cell.scale):
        return {}
    found: dict[str, list[tuple[float, ...]]] = {}
    for number in range(runs):
        if number == 0 or cell.scale not in REAL:
            rows = draw(cell.scale, cell.rate, rng, cell.rows)
            truth, each = Truth(rows), ways(cell, rows)
        for name, evaluate in each.items():
            found.setdefault(name, []).append(truth.errors(evaluate(rng)))
    return {
        f"{name} {what}": value
        for name, errors in found.items()
        for what, value in zip(MEASURES, np.mean(errors, axis=0), strict=True)
    }


def one_round(each: Found[Cell], what: str) -> float:
    """The least error of one round without true quantiles."""
    names = [f"{name} {what}" for name in ("asinh", "equal", "auto", "logit", "planner")]
    return min(each[name] for name in names if name in each.values)


def table(found: Sequence[Found[Cell]]) -> None:
    """Errors of the oracle, and what the others have of them."""
    for what in ("ROC", "PR"):
        print(f"{what} Area Error: oracle, and times that of two rounds, hierarchy, one round")
        for each in found:
            if not each.values:
                continue
            cell, oracle = each.cell, each[f"oracle {what}"]
            names = (f"two rounds {what}", f"hierarchy {what}")
            ratios = [each.values.get(name, math.nan) / oracle for name in names]
            ratios.append(one_round(each, what) / oracle)
            print(
                f"{cell.scale:>15} {'local' if cell.local else 'sums'} epsilon {cell.epsilon:<4g} "
                f"rate {cell.rate:<4g} {cell.bins:>4} bins  {oracle:.1e}"
                + "".join(f"{ratio:>8.2f}" for ratio in ratios)
            )
    print("Error of the AUC under exact sums, points joined by lines (and by cubics)")
    for each in found:
        if not each.cell.epsilon and each.values:
            print(
                f"{each.cell.scale:>15} {each.cell.bins:>4} bins  1/(3 B^2) "
                f"{bound(each.cell.bins):.1e}  two rounds {each['two rounds straight AUC']:.1e} "
                f"({each['two rounds AUC']:.1e})  hierarchy {each['hierarchy straight AUC']:.1e}"
            )


def bound(bins: int) -> float:
    """Of the error of the AUC, for buckets of equal depth and balanced classes."""
    return 1.0 / (3.0 * bins**2)


def checks(found: Sequence[Found[Cell]]) -> Iterator[Check]:
    """What two rounds may cost, and how fast the error of the AUC falls."""
    for each in (each for each in found if each.cell.local):
        times = each["two rounds ROC"] / each["oracle ROC"]
        what = f"{each.cell.scale}, local reports: at most {LOCAL_MOST} of the oracle's"
        yield Check(what, times <= LOCAL_MOST, f"{times:.2f}")
    for each in (each for each in found if each.values and each.cell.epsilon == 1.0):
        cell, ours = each.cell, each["two rounds ROC"]
        if cell.rate != Cell.rate:
            continue
        times = ours / each["oracle ROC"]
        if cell.scale in MOST or cell.scale in CROWDED:
            most = MOST.get(cell.scale, 2.0)
            yield Check(
                f"{cell.scale}: at most {most} of the oracle's", times <= most, f"{times:.2f}"
            )
        if cell.scale in PROBABILITIES:
            times = ours / each["equal ROC"]
            what = f"{cell.scale}: at most {OF_ONE_ROUND} of as many equal bins'"
            yield Check(what, times <= OF_ONE_ROUND, f"{times:.2f}")
    for scale in SMOOTH:
        errors = [
            (each.cell.bins, each["two rounds straight AUC"])
            for each in found
            if each.cell.scale == scale and not each.cell.epsilon and each.values
        ]
        if len(errors) == len(BUCKETS):
            slope = float(np.polyfit(*np.log(errors).T, 1)[0])
            most = max(error / bound(bins) for bins, error in errors)
            if scale not in PROBABILITIES:  # of which half of the bins are equally wide instead
                what = f"{scale}: errors of the AUC at most {OF_BOUND} of 1 / (3 B^2)"
                yield Check(what, most <= OF_BOUND, f"{most:.2f}")
            yield Check(f"{scale}: they fall like 1 / B^2", slope < -1.8, f"slope {slope:.2f}")


NOISY = ("margins", "points", "lognormal", "tiny", "large", "heavy tails", "two modes", "atom")
STUDY = Study(
    "two_rounds",
    __doc__,
    cells=[
        *(Cell(scale, 1.0) for scale in (*NOISY, *PROBABILITIES)),
        *(Cell(scale, eps) for eps in (0.3, 0.1) for scale in ("margins", "points", "saturated")),
        *(Cell(scale, 1.0, rate=0.01) for scale in ("margins", "lognormal", "probabilities")),
        *(Cell(scale, 5.0, 32, local=True) for scale in MOST),
        *(Cell(scale, 0.0, bins, rate=0.5) for scale in SMOOTH for bins in BUCKETS),
    ],
    quick_cells=[
        Cell("margins", 1.0),
        Cell("probabilities", 1.0),
        Cell("lognormal", 0.0, 40, rate=0.5),
    ],
    run=run,
    runs=50,
    quick_runs=5,
    table=table,
    checks=checks,
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
