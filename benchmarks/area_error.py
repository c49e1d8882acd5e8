"""Area Error under secure aggregation on real scores, next to a peer's published code.

The peer is fedcurve (Xu & Cormode 2025), tree b = 2, h = ceil(log2 Q) + 2. Its figures come
from `fedcurve_area_error.csv`, where the evaluation is described; every method here gets
the same 2^h bins, and its error is exact, taken at all breakpoints.

`Quantile` differs from the peer for one reason, which the column "as the peer" checks by
leaving it out: the peer's search for a quantile goes down the tree and stops once the share
still missing is below half a leaf, so some of its quantiles are left edges of inner nodes.
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
from fedgauge.measures import curves

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
QUANTILES = (16, 64, 256, 1024)


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
    found = [quantiles_as_the_peer(row, levels) for row in counts]
    totals = (float(counts[0].sum()), float(counts[1].sum()))
    methods = {
        "Aligned": distribution.estimate(axis, counts, fg.Aligned()),
        "Quantile": distribution.estimate(axis, counts, fg.Quantile(q)),
        "as the peer": distribution.from_quantiles(found, totals, fg.Quantile(q)),
        "exact quantiles": distribution.from_exact_quantiles(labels, scores, fg.Quantile(q)),
    }
    roc, pr = fg.exact_roc_curve(labels, scores), fg.exact_pr_curve(labels, scores)
    return {
        name: (
            fg.area_error(curves.roc_curve(estimated), roc),
            fg.area_error(curves.pr_curve(estimated), pr),
        )
        for name, estimated in methods.items()
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
    console = Console(width=120)
    for index, curve in enumerate(("ROC", "PR")):
        table = Table(
            title=f"{curve} Area Error, secure aggregation, 4 Q bins", title_justify="left"
        )
        for heading in ("data", "model", "Q", "peer", "Aligned", "peer / Aligned"):
            table.add_column(heading, justify="right")
        for heading in ("Quantile", "as the peer", "as the peer / peer", "exact quantiles"):
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
            )
        console.print(table)
        worst = min(peer[cell][index] / errors["Aligned"][index] for cell, errors in found.items())
        wanted = "at least 2.5x" if curve == "ROC" else "above 1x"
        console.print(f"Smallest gain of Aligned over the peer: {worst:.2f}x (wanted: {wanted})\n")


if __name__ == "__main__":
    main()
