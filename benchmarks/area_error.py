"""Area Error under secure aggregation on real scores, next to a peer's published code.

The peer is fedcurve (Xu & Cormode 2025), tree b = 2, h = ceil(log2 Q) + 2. Its figures come
from `fedcurve_area_error.csv`, where the evaluation is described; every method here gets
the same 2^h bins, and its error is exact, taken at all breakpoints.

`Quantile` differs from the peer for one reason, which the column "as the peer" checks by
leaving it out: the peer's search for a quantile goes down the tree and stops once the share
still missing is below half a leaf, so some of its quantiles are left edges of inner nodes.

"Two rounds" send no more counts than the peer's leaves are, 8 Q of both classes: Q over a coarse
axis of equal bins, then 3.5 Q bins of equal depth for each class.
"""

import argparse
import csv
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import fedgauge as fg
from fedgauge.estimation import distribution
from fedgauge.metrics import curves

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
QUANTILES = (16, 64, 256, 1024)
MOST_OF_PEER = 0.3  # ROC Area Error of two rounds


def peer_figures(data: Path) -> dict[tuple[str, str, int], tuple[float, float]]:
    """ROC and PR Area Error of the peer by data set, model and number of quantiles."""
    with (data / "fedcurve_area_error.csv").open() as file:
        return {
            (row["dataset"], row["model"], int(row["quantiles"])): (
                float(row["roc_ae_mean"]),
                float(row["pr_ae_mean"]),
            )
            for row in csv.DictReader(file)
            if row["privacy"] == "secure-aggregation"
        }


def quantiles_as_the_peer(row: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Left edges found by a descent that stops early."""
    cumulative = np.append(0, np.cumsum(row)) / row.sum()
    leaves = len(row)
    edges = []
    for level in levels:
        low, high = 0, leaves
        while high - low > 1:
            middle = (low + high) // 2
            if cumulative[middle] < level:
                low = middle
            else:
                high = middle
            if abs(level - cumulative[low]) < 0.5 / leaves:
                break
        edges.append(low / leaves)
    return np.array(edges)


def errors_by_method(
    labels: np.ndarray, scores: np.ndarray, q: int
) -> dict[str, tuple[float, float]]:
    """ROC and PR Area Error of each method at the peer's number of bins."""
    axis = fg.Axis.uniform(2 ** (math.ceil(math.log2(q)) + 2))
    histogram = fg.ScoreHistogram(axis)
    histogram.update(labels, scores)
    counts = histogram.counts
    levels = np.linspace(0.0, 1.0, q)
    as_the_peer = [quantiles_as_the_peer(row, levels) for row in counts]
    totals = (float(counts[0].sum()), float(counts[1].sum()))
    methods = {
        "Aligned": distribution.estimate(axis, counts, fg.Aligned()),
        "Quantile": distribution.estimate(axis, counts, fg.Quantile(q)),
        "as the peer": distribution.from_quantiles(as_the_peer, totals, fg.Quantile(q)),
        "exact quantiles": distribution.from_exact_quantiles(labels, scores, fg.Quantile(q)),
    }
    drawn = {
        name: (curves.roc_curve(estimated), curves.pr_curve(estimated))
        for name, estimated in methods.items()
    }
    two = fg.TwoRound(7 * q // 2, coarse=fg.Axis.uniform(q))
    found = fg.evaluate({"all": (labels, scores)}, axis=two)
    drawn["two rounds"] = found.roc_curve(), found.pr_curve()
    exact = fg.exact_roc_curve(labels, scores), fg.exact_pr_curve(labels, scores)
    return {
        name: (fg.area_error(roc, exact[0]), fg.area_error(pr, exact[1]))
        for name, (roc, pr) in drawn.items()
    }


def cells(data: Path) -> Iterator[tuple[tuple[str, str, int], dict[str, tuple[float, float]]]]:
    """Each cell of the comparison: (data set, model, Q) and the errors of every method."""
    for path in sorted((data / "scores").glob("*.parquet")):
        name, model = path.stem.split("_")
        table = pq.read_table(path, columns=["y", "p"])
        labels, scores = table["y"].to_numpy(), table["p"].to_numpy().astype(np.float64)
        for q in QUANTILES:
            yield (name, model, q), errors_by_method(labels, scores, q)


def main() -> None:
    """Print the ROC and the PR table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED, help="folder of the real scores")
    data = parser.parse_args().data
    if not data.is_dir():
        print(f"The real scores are not at {data}; name their folder with --data.")
        return
    peer = peer_figures(data)
    found = dict(cells(data))
    console = Console(width=150)
    for index, curve in enumerate(("ROC", "PR")):
        table = Table(
            title=f"{curve} Area Error, secure aggregation, 4 Q bins", title_justify="left"
        )
        for heading in ("data", "model", "Q", "peer", "Aligned", "peer / Aligned"):
            table.add_column(heading, justify="right")
        for heading in ("Quantile", "as the peer", "as the peer / peer", "exact quantiles"):
            table.add_column(heading, justify="right")
        for heading in ("two rounds", "two rounds / peer"):
            table.add_column(heading, justify="right")
        for cell, errors in found.items():
            theirs, ours = peer[cell][index], {name: pair[index] for name, pair in errors.items()}
            table.add_row(
                *map(str, cell),
                f"{theirs:.2e}",
                f"{ours['Aligned']:.2e}",
                f"{theirs / ours['Aligned']:.1f}x",
                f"{ours['Quantile']:.2e}",
                f"{ours['as the peer']:.2e}",
                f"{ours['as the peer'] / theirs:.2f}",
                f"{ours['exact quantiles']:.2e}",
                f"{ours['two rounds']:.2e}",
                f"{ours['two rounds'] / theirs:.2f}",
            )
        console.print(table)
        worst = min(peer[cell][index] / errors["Aligned"][index] for cell, errors in found.items())
        wanted = "at least 2.5x" if curve == "ROC" else "above 1x"
        console.print(f"Smallest gain of Aligned over the peer: {worst:.2f}x (wanted: {wanted})")
        most = max(
            errors["two rounds"][index] / peer[cell][index] for cell, errors in found.items()
        )
        wanted = f"at most {MOST_OF_PEER:g}" if curve == "ROC" else "below 1"
        console.print(f"Two rounds: at most {most:.2f} of the peer's (wanted: {wanted})\n")


if __name__ == "__main__":
    main()
