"""Make the planner's tables of real scores from the sets for development.

    python benchmarks/score_tables.py     writes src/fedgauge/planner/score_tables.json

A table has quantiles of the log-odds of all rows, both classes counting the same, at the middles
of equal shares: a value that many rows share comes several times, and 0 and 1 are the ends. For
each it has the logarithm of how much more of the positives than of the negatives is around it: of
the rows whose ranks differ by at most 3% of all. Only sets for development are in it: those of the
final check stay unknown to the planner.
"""

import json
from pathlib import Path

import numpy as np
from scipy.special import logit

import score_sets

OUT = Path(__file__).resolve().parents[1] / "src" / "fedgauge" / "planner" / "score_tables.json"
QUANTILES = 64
AROUND = 0.03  # in ranks
END = 40.0  # log-odds that stand for 0 and 1
SETS = (
    "adult bayes test",
    "adult forest test",
    "adult knn test",
    "adult logistic test",
    "bank bayes test",
    "bank boosting test",
    "bank boosting training",
    "bank network test",
    "digits boosting test",
    "digits network test",
)
SOURCE = (
    "Quantiles of log-odds that models gave to public data: UCI Adult (Becker & Kohavi 1996), UCI "
    "Bank Marketing (Moro et al. 2012), both CC BY 4.0, and the digits of scikit-learn (Alpaydin & "
    "Kaynak 1998). Made by benchmarks/score_tables.py of sets that benchmarks/score_sets.py trains."
)


def table(name: str) -> dict[str, object]:
    """The quantiles of one set."""
    _, labels, scores = score_sets.load(name)
    with np.errstate(divide="ignore"):
        log_odds = np.clip(logit(scores), -END, END)
    # Of ties everyone has the rank of their middle.
    values, group = np.unique(log_odds, return_inverse=True)
    sides = [labels == 0, labels == 1]
    negatives, positives = (np.bincount(group, side) / side.sum() for side in sides)
    held = (negatives + positives) / 2
    ranks = np.cumsum(held) - held / 2
    levels = (np.arange(QUANTILES) + 0.5) / QUANTILES
    at = np.minimum(np.searchsorted(np.cumsum(held), levels), len(values) - 1)
    ratios = []
    for place in at:
        near = np.abs(ranks - ranks[place]) <= AROUND
        wrong, right = (
            each[near].sum() + 0.5 / side.sum()
            for each, side in zip((negatives, positives), sides, strict=True)
        )
        ratios.append(np.log(right / wrong))
    return {
        "name": name,
        "positive_rate": round(float(labels.mean()), 4),
        "quantiles": values[at].round(3).tolist(),
        "log_ratios": np.round(ratios, 2).tolist(),
    }


def main() -> None:
    """Write the tables."""
    unknown = set(SETS) - set(score_sets.names("development"))
    if unknown:
        raise SystemExit(f"not for development: {', '.join(sorted(unknown))}")
    made = {"source": SOURCE, "tables": [table(name) for name in SETS]}
    OUT.write_text(json.dumps(made, indent=0).replace(",\n", ", ") + "\n")
    print(f"{OUT.name}: {len(SETS)} tables, {OUT.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
