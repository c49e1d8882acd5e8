"""Area Error under distributed DP on real scores, next to a peer's best over its settings.

The peer is fedcurve (Xu & Cormode 2025) with independent noise; for each data set and epsilon
its best mean over Q = 16..1024 counts, ROC and PR each. fedgauge gets 20 sites, of whom one may
collude (M = 19), and public hints: the true number of examples and positive rate, rounded to one
digit. It chooses axis and tree by itself, once, without seeing the data.
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import fedgauge as fg

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
EPSILONS = (1.0, 0.3)
WANTED = {1.0: (0.50, 0.55), 0.3: (0.42, 0.46)}  # most of the peer's ROC and PR error


def peer_best(data: Path) -> dict[tuple[str, str, float], tuple[float, float]]:
    """The peer's least mean ROC and PR Area Error over Q, with independent noise."""
    best: dict[tuple[str, str, float], tuple[float, float]] = {}
    with (data / "fedcurve_area_error.csv").open() as file:
        for row in csv.DictReader(file):
            if row["noise"] != "independent noise":
                continue
            cell = (row["dataset"], row["model"], float(row["epsilon"]))
            roc, pr = float(row["roc_ae_mean"]), float(row["pr_ae_mean"])
            before = best.get(cell, (1.0, 1.0))
            best[cell] = (min(before[0], roc), min(before[1], pr))
    return best


def one_digit(value: float) -> float:
    """The value rounded to one significant digit."""
    return float(f"{value:.1g}")


def measure(path: Path, epsilon: float, runs: int) -> tuple[fg.EvaluationPlan, np.ndarray]:
    """The plan, and ROC and PR Area Error of each run."""
    table = pq.read_table(path)
    labels = table["y"].to_numpy()
    scores = table["p"].to_numpy().astype(np.float64)
    sites = np.array(table["site"].to_pylist())
    clients = {str(s): (labels[sites == s], scores[sites == s]) for s in np.unique(sites)}
    plan = fg.planner.propose(
        privacy=fg.DistributedDP(epsilon),
        clients=len(clients),
        examples=int(one_digit(len(labels))),
        positive_rate=one_digit(labels.mean()),
    )
    roc, pr = fg.exact_roc_curve(labels, scores), fg.exact_pr_curve(labels, scores)
    errors = []
    for _ in range(runs):
        result = fg.evaluate(clients, plan)
        errors.append(
            (fg.area_error(result.roc_curve(), roc), fg.area_error(result.pr_curve(), pr))
        )
    return plan, np.array(errors)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED, help="folder of the real scores")
    parser.add_argument("--runs", type=int, default=200)
    options = parser.parse_args()
    if not options.data.is_dir():
        print(f"The real scores are not at {options.data}; name their folder with --data.")
        return
    peer = peer_best(options.data)
    table = Table(title=f"Area Error, mean of {options.runs} runs", title_justify="left")
    for heading in ("data", "model", "epsilon", "tree", "ROC", "peer", "ratio"):
        table.add_column(heading, justify="right")
    for heading in ("PR", "peer", "ratio"):
        table.add_column(heading, justify="right")
    ratios = []
    start = time.perf_counter()
    for path in sorted((options.data / "scores").glob("*.parquet")):
        name, model = path.stem.split("_")
        for epsilon in EPSILONS:
            plan, errors = measure(path, epsilon, options.runs)
            ours, theirs = errors.mean(axis=0), peer[name, model, epsilon]
            ratio = ours / theirs
            ratios.append((epsilon, *ratio))
            table.add_row(
                name,
                model,
                f"{epsilon:g}",
                "x".join(map(str, plan.tree)),
                *(f"{ours[0]:.2e}", f"{theirs[0]:.2e}", f"{ratio[0]:.2f}"),
                *(f"{ours[1]:.2e}", f"{theirs[1]:.2e}", f"{ratio[1]:.2f}"),
            )
    console = Console(width=110)
    console.print(table)
    for epsilon, wanted in WANTED.items():
        roc, pr = np.array([each[1:] for each in ratios if each[0] == epsilon]).max(axis=0)
        console.print(
            f"epsilon {epsilon:g}: ROC at most {roc:.2f} (wanted {wanted[0]:.2f}), PR at most "
            f"{pr:.2f} (wanted {wanted[1]:.2f})."
        )
    console.print(f"{time.perf_counter() - start:.0f} s.")


if __name__ == "__main__":
    main()
