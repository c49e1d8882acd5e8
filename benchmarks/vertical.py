"""Processor time and memory of 4.58 million scores against the labels of 458 parties.

Every party's share of the noise is drawn, and the sum is plain. Data is made in the process that
is measured, and counts towards its peak.
"""

import argparse
import resource
import sys
import time

import numpy as np

from fedgauge.vertical.evaluate import evaluate_vertical

Columns = tuple[np.ndarray, np.ndarray]
SECONDS = 5.0
GIBIBYTES = 1.0


def make(examples: int, parties: int) -> tuple[Columns, dict[str, Columns]]:
    """Scores by id, and the labels of each party by id, in other orders."""
    rng = np.random.default_rng(0)
    labels = rng.random(examples) < 0.2
    scores = 1.0 / (1.0 + np.exp(-rng.normal(2.0 * labels - 2.0, 1.5)))
    ids = rng.permutation(examples)
    held = np.array_split(rng.permutation(examples), parties)
    by_party = {f"party-{place}": (ids[rows], labels[rows]) for place, rows in enumerate(held)}
    return (ids, scores), by_party


def peak() -> float:
    """Most memory that this process ever had, in GiB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def main() -> None:
    """Print both figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=4_580_000)
    parser.add_argument("--parties", type=int, default=458)
    options = parser.parse_args()
    scores, labels = make(options.examples, options.parties)
    before, start = peak(), time.process_time()
    result = evaluate_vertical(scores, labels, summation="every-share")
    seconds, most = time.process_time() - start, peak()
    where = f"{options.examples:,} examples, {options.parties:,} parties"
    print(f"{where}, bins {result.plan.tree}: AUC {result.roc_auc}")
    print(f"Processor time: {seconds:.1f} s (wanted: at most {SECONDS:g} s)")
    print(f"Peak memory: {most:.2f} GiB (wanted: at most {GIBIBYTES:g}), of data {before:.2f}")


if __name__ == "__main__":
    main()
