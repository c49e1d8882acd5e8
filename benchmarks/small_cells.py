"""The price of exact sums that show no small cells: Area Error on real scores, before and after.

Rows of each file are dealt to 3 sites of 2,000 rows, or all of them to 20 sites. Four plans are
evaluated: 4,096 bins as they are, which was the plan between sites before small cells were merged;
the same with cells of at least 10; what the planner proposes from the number of rows and the share
of positives, without and with cells of at least 10. Rows that are alone in their cell, the only
ones of their class in their bin, are counted three times: in the sum as it was, in the sum that is
taken now, and in what is shown of it.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import fedgauge as fg

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
SITES = {3: 2_000, 20: None}  # rows of each; None deals out all
FINE, LEAST = 4096, 10
Rows = tuple[np.ndarray, np.ndarray]


class Cost(NamedTuple):
    """What a plan gives: bins shown, Area Errors, and shares of rows and positives alone."""

    bins: int
    roc: float
    pr: float
    alone: float
    positives_alone: float


def dealt(rows: Rows, sites: int, each: int | None) -> dict[str, Rows]:
    """Rows at random to sites."""
    labels, scores = rows
    order = np.random.default_rng(0).permutation(len(labels))[: sites * each if each else None]
    parts = np.array_split(order, sites)
    return {f"site-{i}": (labels[part], scores[part]) for i, part in enumerate(parts)}


def plans(clients: dict[str, Rows]) -> dict[str, fg.EvaluationPlan]:
    """The four plans; the planner is told what is public."""
    labels = np.concatenate([y for y, _ in clients.values()])
    fine = fg.Axis.uniform(FINE, outside="clip")
    known = {"clients": len(clients), "examples": len(labels), "positive_rate": labels.mean()}
    cohort, exact = fg.Cohort(len(clients)), fg.SecureAggregation()
    return {
        f"{FINE} bins": fg.EvaluationPlan.for_histogram(fine, cohort),
        f"{FINE}, merged": fg.EvaluationPlan.for_histogram(fine, cohort, min_cell=LEAST),
        "planned": fg.planner.propose(privacy=exact, min_cell=0, **known),
        "planned, merged": fg.planner.propose(privacy=exact, min_cell=LEAST, **known),
    }


def cost(clients: dict[str, Rows], plan: fg.EvaluationPlan) -> Cost:
    """Errors against the curves of the pooled rows, and who is alone."""
    labels, scores = (np.concatenate(part) for part in zip(*clients.values(), strict=True))
    result = fg.evaluate(clients, plan)
    counts = result.released.counts
    return Cost(
        result.released.axis.bins,
        fg.area_error(result.roc_curve(), fg.exact_roc_curve(labels, scores)),
        fg.area_error(result.pr_curve(), fg.exact_pr_curve(labels, scores)),
        np.count_nonzero(counts == 1) / counts.sum(),
        np.count_nonzero(counts[1] == 1) / counts[1].sum(),
    )


def main() -> None:
    """Print one row for each file and number of sites."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED, help="folder of the real scores")
    data = parser.parse_args().data
    if not data.is_dir():
        print(f"The real scores are not at {data}; name their folder with --data.")
        return
    table = Table(title="Bins shown, ROC and PR Area Error of exact sums", title_justify="left")
    alone = ("alone before", "in the sum", "shown")
    for heading in ("data", "sites", *alone, *plans(_FEW)):
        table.add_column(heading, justify="right")
    for path in sorted((data / "scores").glob("*.parquet")):
        read = pq.read_table(path, columns=["y", "p"])
        rows = read["y"].to_numpy(), read["p"].to_numpy().astype(np.float64)
        for sites, each in SITES.items():
            clients = dealt(rows, sites, each)
            costs = [cost(clients, plan) for plan in plans(clients).values()]
            shares = [f"{c.alone:.2%} {c.positives_alone:.2%}" for c in (costs[0], *costs[2:])]
            errors = [f"{c.bins}  {c.roc:.1e} {c.pr:.1e}" for c in costs]
            table.add_row(path.stem, str(sites), *shares, *errors)
    console = Console(width=180)
    console.print(table)
    console.print("Alone: share of all rows, and of the positives, that are alone in their cell.")


_FEW = {"site": (np.array([0, 1]), np.array([0.2, 0.7]))}  # plans have the same names for all data


if __name__ == "__main__":
    main()
