"""The planner's predictions and choices on synthetic scores, against measurement and a sweep.

48 cells: number of examples x positive rate x epsilon x shape of the scores; and 24 further ones
(`--held-out`) of other sizes, rates, epsilons and shapes. The planner knows real scores of other
models, and nothing of these shapes: real_scores.py does the same with real ones. In each cell the
error of the planner's choice is measured and compared with its prediction and the range of that,
and with the best of a sweep over axes and trees, all read with shrinkage, as results are.

`--no-hints` compares the plan made without hints with the same sweep, in 45 cells of scores that
are smooth, tied at 0 and 1, rounded to 0.05, saturated, or votes of a forest on scikit-learn's
digits; withheld results count as errors of 0.5. About six minutes.
"""

import argparse
import itertools
import time
from collections.abc import Iterator

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.special import expit, logit

import fedgauge as fg
import score_sets
from fedgauge import planner
from fedgauge.estimation.counts import PooledCounts, redraw
from fedgauge.metrics import curves
from fedgauge.metrics.ranking import Reading

EXAMPLES = (5_000, 20_000, 100_000, 500_000)
POSITIVE_RATES = (0.05, 0.3)
EPSILONS = (1.0, 0.3)
SHAPES = ("beta", "unequal", "skewed")
HELD_OUT = {
    "examples": (10_000, 50_000, 200_000),
    "rates": (0.1, 0.4),
    "epsilons": (2.0, 0.5),
    "shapes": ("heavy", "mixture"),
}
WITHOUT_HINTS = {
    "examples": (5_000, 20_000, 100_000),
    "rates": (0.2,),
    "epsilons": (1.0, 0.3, 0.1),
    "shapes": ("beta", "ties", "grid", "saturated", "forest"),
}
CLIENTS = 20
AT = (np.arange(1000) + 0.5) / 1000


def draw(
    shape: str, n: int, rate: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores of one synthetic data set."""
    if shape == "beta":  # calibrated, AUC about 0.87
        weight = 6.0 if rate < 0.1 else 1.6
        scores = rng.beta(weight * rate, weight * (1 - rate), n)
        return (rng.random(n) < scores).astype(np.int64), scores
    if shape == "forest":
        votes = score_sets.load("digits forest test")
        rows = rng.integers(0, len(votes.labels), n)
        return votes.labels[rows].astype(np.int64), votes.scores[rows]
    labels = (rng.random(n) < rate).astype(np.int64)
    if shape in ("ties", "grid", "saturated"):
        x = rng.normal(1.8 * labels, 1.0)
        smooth = expit(1.8 * (x - 0.9) + logit(rate))
        if shape == "grid":
            return labels, np.round(smooth * 20) / 20
        if shape == "saturated":
            return labels, expit(12 * (x - 1.3))
        return labels, np.where(x < 0.0, 0.0, np.where(x > 1.8, 1.0, smooth))
    if shape == "unequal":  # the positives vary more than the negatives
        x = rng.normal(1.9 * labels, 1.0 + 0.5 * labels)
        return labels, expit(1.5 * (x - 1.2) + logit(rate))
    if shape == "heavy":  # log-odds with long tails on both sides
        return labels, expit(rng.standard_t(4, n) + 2.2 * labels - 1.1 + logit(rate))
    if shape == "mixture":  # a third of the positives is easy, the rest hard
        easy = rng.random(n) < 1 / 3
        x = rng.normal(labels * np.where(easy, 3.5, 1.2), 1.0)
        return labels, expit(1.6 * (x - 1.3) + logit(rate))
    # Skewed: log-odds with a long tail on one side, a little under-confident.
    x = rng.gumbel(1.8 * labels, 0.9)
    return labels, expit(1.2 * (x - 1.4) + logit(rate))


def sweep_plans(privacy: fg.DistributedDP, rate: float) -> Iterator[tuple[str, fg.EvaluationPlan]]:
    """Designs that a careful user might try."""
    cohort = fg.Cohort(CLIENTS)
    designs = [("reference", tree) for tree in ((8,), (16,), (24,), (32,), (64,), (128,), (16, 16))]
    designs += [("uniform", tree) for tree in ((16,), (32,), (64,), (128,), (16, 16))]
    designs += [("logit", tree) for tree in ((16,), (32,), (64,))]
    for kind, tree in designs:
        bins = int(np.prod(tree))
        axis = {
            "reference": lambda bins=bins: planner.reference_axis(bins, rate),
            "uniform": lambda bins=bins: fg.Axis.uniform(bins, outside="clip"),
            "logit": lambda bins=bins: fg.Axis.logit(bins, limit=8.0, outside="clip"),
        }[kind]()
        plan = fg.EvaluationPlan.for_histogram(axis, cohort, tree=tree, privacy=privacy)
        yield f"{kind} {'x'.join(map(str, tree))}", plan


def measure(
    plan: fg.EvaluationPlan, worlds: list, rng: np.random.Generator, runs: int
) -> np.ndarray:
    """Mean ROC and PR Area Error (on a grid) and AUC error of a plan; 0.5 where withheld."""
    variances = tuple(law.variance for law in plan.noise_laws(shares=CLIENTS))
    errors = []
    for labels, scores, tpr, precision, auc in worlds:
        histogram = fg.ScoreHistogram(plan.axis)
        histogram.update(labels, scores)
        for _ in range(runs):
            counts = redraw(histogram.counts.astype(float), plan.tree, variances, rng)
            pooled = PooledCounts(plan.axis, counts, plan.tree, variances)
            try:
                distribution = Reading(pooled, fg.Aligned(), 0.95).distribution
            except fg.UndefinedMetric:
                distribution = None
            if distribution is None or pooled.hidden:
                errors.append((0.5, 0.5, 0.5))
                continue
            roc, pr = curves.roc_curve(distribution), curves.pr_curve(distribution)
            errors.append(
                (
                    np.abs(roc(AT) - tpr).mean(),
                    np.abs(pr(AT) - precision).mean(),
                    abs(roc.path.area() - auc),
                )
            )
    return np.mean(errors, axis=0)


def drawn_worlds(shape: str, n: int, rate: float, rng: np.random.Generator, many: int) -> list:
    """Data sets of one cell with their exact curves."""
    worlds = []
    for _ in range(many):
        labels, scores = draw(shape, n, rate, rng)
        roc, pr = fg.exact_roc_curve(labels, scores), fg.exact_pr_curve(labels, scores)
        worlds.append((labels, scores, roc(AT), pr(AT), roc.path.area()))
    return worlds


def without_hints(worlds: int, runs: int) -> None:
    """Print how far the plan made without hints is from the best of the sweep."""
    start = time.perf_counter()
    console = Console(width=150)
    table = Table(title="ROC Area Error without hints", title_justify="left")
    for heading in ("examples", "epsilon", "scores", "choice", "error"):
        table.add_column(heading, justify="right")
    for heading in ("best of the sweep", "ratio", "best of other runs"):
        table.add_column(heading, justify="right")
    ratios = []
    for n, rate, epsilon, shape in itertools.product(*WITHOUT_HINTS.values()):
        rng = np.random.default_rng([n, int(100 * epsilon), WITHOUT_HINTS["shapes"].index(shape)])
        drawn = drawn_worlds(shape, n, rate, rng, worlds)
        privacy = fg.DistributedDP(epsilon)
        plan = planner.propose(privacy=privacy, clients=CLIENTS)
        sweep = dict(sweep_plans(privacy, rate))
        ours, *others = (
            [measure(each, drawn, rng, runs)[0] for _ in range(2)]
            for each in (plan, *sweep.values())
        )
        by_design, mean = np.array(others), float(np.mean(ours))
        best = by_design.mean(axis=1).argmin()
        crossed = [
            ours[half] / by_design[by_design[:, 1 - half].argmin(), half] for half in range(2)
        ]
        ratios.append((mean / min(by_design[best].mean(), mean), np.prod(crossed) ** 0.5))
        table.add_row(
            *(f"{n:,}", f"{epsilon:g}", shape, "x".join(map(str, plan.tree)), f"{mean:.1e}"),
            *(list(sweep)[best], f"{ratios[-1][0]:.2f}", f"{ratios[-1][1]:.2f}"),
        )
    console.print(table)
    for what, each, wanted in zip(
        ("the best of the sweep", "the best of it in other runs"),
        np.array(ratios).T,
        ((1.4, 3.2), (1.1, 2.4)),
        strict=True,
    ):
        console.print(
            f"Over {what}: geometric mean {np.exp(np.log(each).mean()):.2f} (wanted {wanted[0]}), "
            f"at most {each.max():.2f} (wanted {wanted[1]})."
        )
    console.print(f"{len(ratios)} cells. {time.perf_counter() - start:.0f} s.")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=6, help="data sets drawn in each cell")
    parser.add_argument("--runs", type=int, default=12, help="noise draws on each of them")
    parser.add_argument("--held-out", action="store_true", help="the further cells")
    parser.add_argument("--no-hints", action="store_true", help="the plan made without hints")
    options = parser.parse_args()
    if options.no_hints:
        without_hints(min(options.worlds, 2), min(options.runs, 3))
        return
    cells = (EXAMPLES, POSITIVE_RATES, EPSILONS, SHAPES)
    if options.held_out:
        cells = tuple(HELD_OUT.values())
    table = Table(title="ROC Area Error in synthetic cells", title_justify="left")
    for heading in ("examples", "rate", "epsilon", "shape", "choice", "expected", "range"):
        table.add_column(heading, justify="right")
    for heading in ("measured", "ratio", "best of the sweep", "", "choice / best"):
        table.add_column(heading, justify="right")
    ratios, regrets, held = [], [], []
    start = time.perf_counter()
    for n, rate, epsilon, shape in itertools.product(*cells):
        rng = np.random.default_rng(abs(hash((n, rate, epsilon))) % 2**32)
        worlds = drawn_worlds(shape, n, rate, rng, options.worlds)
        privacy = fg.DistributedDP(epsilon)
        plan = planner.propose(privacy=privacy, clients=CLIENTS, examples=n, positive_rate=rate)
        ours = measure(plan, worlds, rng, options.runs)
        others = {
            name: measure(other, worlds, rng, options.runs)[0]
            for name, other in sweep_plans(privacy, rate)
        }
        best = min(others, key=others.get)
        low, high = (end.roc_area_error for end in plan.predicted.span)
        held.append(low <= ours[0] <= high)
        ratios.append(ours[0] / plan.predicted.roc_area_error)
        regrets.append(ours[0] / min(others[best], ours[0]))
        table.add_row(
            *(f"{n:,}", f"{rate:g}", f"{epsilon:g}", shape, "x".join(map(str, plan.tree))),
            *(f"{plan.predicted.roc_area_error:.1e}", f"{low:.1e} to {high:.1e}"),
            *(f"{ours[0]:.1e}", f"{ratios[-1]:.2f}"),
            *(best, f"{others[best]:.1e}", f"{regrets[-1]:.2f}"),
        )
    console = Console(width=150)
    console.print(table)
    good = np.mean([1 / 1.5 <= r <= 1.5 for r in ratios])
    near = np.mean([r <= 1.3 for r in regrets])
    console.print(
        f"{len(ratios)} cells. Measured within the range: {np.mean(held):.0%}, within a factor 1.5 "
        f"of what is expected: {good:.0%}. "
        f"Choice within 1.3x of the best: {near:.0%} (wanted 90%). "
        f"{time.perf_counter() - start:.0f} s."
    )


if __name__ == "__main__":
    main()
