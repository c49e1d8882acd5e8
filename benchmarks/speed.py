"""Time to count 10 million scores, validation included, against named peers in the same run.

Rounds of all contestants alternate, and the best time of each counts: other work on the
machine can only slow a round down. The slow peer, roc_curve, runs in every third round.
"""

import argparse
import time
from collections.abc import Callable

import boost_histogram as bh
import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.metrics import roc_curve

import fedgauge as fg

BINS = 4096


def make_scores(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels and probabilities of a plausible classifier with 20% positives."""
    rng = np.random.default_rng(0)
    labels = (rng.random(rows) < 0.2).astype(np.int64)
    return labels, 1.0 / (1.0 + np.exp(-rng.normal(2.0 * labels - 2.0, 1.5)))


def fedgauge_on(axis: fg.Axis, labels: np.ndarray, scores: np.ndarray) -> Callable[[], object]:
    """Count with fedgauge."""

    def run() -> object:
        histogram = fg.ScoreHistogram(axis)
        histogram.update(labels, scores)
        return histogram

    return run


def boost(axis: object, labels: np.ndarray, scores: np.ndarray) -> Callable[[], object]:
    """Count with boost-histogram: class by score, one fill."""

    def run() -> object:
        classes = bh.axis.Integer(0, 2, underflow=False, overflow=False)
        return bh.Histogram(classes, axis).fill(labels, scores)

    return run


def numpy_per_class(labels: np.ndarray, scores: np.ndarray) -> Callable[[], object]:
    """Count with np.histogram, once for each class."""
    return lambda: [np.histogram(scores[labels == c], BINS, (0.0, 1.0)) for c in (0, 1)]


def measure(
    contestants: dict[str, Callable[[], object]], rounds: int, slow: str
) -> dict[str, float]:
    """Best time of each contestant over alternating rounds."""
    best = dict.fromkeys(contestants, float("inf"))
    for round_ in range(rounds):
        for name, run in contestants.items():
            if name == slow and round_ % 3:
                continue
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    labels, scores = make_scores(options.rows)

    quantiles = np.unique(np.quantile(scores, np.linspace(0, 1, BINS + 1)[1:-1]))
    axes = {
        "uniform on [0, 1]": fg.Axis.uniform(BINS),
        "uniform, 4,000 bins": fg.Axis.uniform(4000),
        "uniform on [-0.1, 1.3]": fg.Axis.uniform(BINS, -0.1, 1.3),
        "uniform, clipped": fg.Axis.uniform(BINS, 0.1, 0.9, outside="clip"),
        "logit": fg.Axis.logit(BINS),
        "edges at quantiles": fg.Axis.from_edges([0.0, *quantiles, 1.0]),
    }
    ours = {name: fedgauge_on(axis, labels, scores) for name, axis in axes.items()}
    uniform = bh.axis.Regular(BINS, 0, 1)
    variable = bh.axis.Variable(axes["edges at quantiles"].edges)
    peers = {
        "boost-histogram, uniform": boost(uniform, labels, scores),
        "boost-histogram, edges at quantiles": boost(variable, labels, scores),
        "np.histogram per class": numpy_per_class(labels, scores),
        "sklearn.metrics.roc_curve": lambda: roc_curve(labels, scores),
    }
    best = measure(ours | peers, options.rounds, slow="sklearn.metrics.roc_curve")

    table = Table(title=f"{options.rows:,} scores, {BINS:,} bins", title_justify="left")
    for heading in ("", "seconds", "against", "ratio", "wanted"):
        table.add_column(heading, justify="right" if heading == "seconds" else "left")
    mine = best["uniform on [0, 1]"]
    for name, wanted, faster in (
        ("sklearn.metrics.roc_curve", "at least 100x faster", True),
        ("np.histogram per class", "at least 2x faster", True),
        ("boost-histogram, uniform", "at most 1.25x its time", False),
    ):
        ratio = (
            f"{best[name] / mine:.1f}x faster" if faster else f"{mine / best[name]:.2f}x its time"
        )
        table.add_row(
            "uniform on [0, 1]", f"{mine:.4f}", f"{name} ({best[name]:.4f} s)", ratio, wanted
        )
    base = best["boost-histogram, uniform"]
    for name in list(axes)[1:]:
        table.add_row(
            name,
            f"{best[name]:.4f}",
            "boost-histogram, uniform",
            f"{best[name] / base:.2f}x its time",
            "at most 2.5x",
        )
    peer = best["boost-histogram, edges at quantiles"]
    table.add_row(
        "edges at quantiles",
        f"{best['edges at quantiles']:.4f}",
        f"boost-histogram, same edges ({peer:.4f} s)",
        f"{best['edges at quantiles'] / peer:.2f}x its time",
        "at most 2.5x",
    )
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
