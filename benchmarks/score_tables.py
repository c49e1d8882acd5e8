"""Make the planner's tables of real scores from the sets for development.

    python benchmarks/score_tables.py     writes src/fedgauge/planner/score_tables.json

A table has quantiles of the log-odds of both classes, at the middles of equal shares, rounded; a
value that many rows share comes several times. Scores of 0 and 1 are the ends. Only sets for
development are in it: those of the final check stay unknown to the planner.
"""

import json
from pathlib import Path

import numpy as np
from scipy.special import logit

import score_sets

OUT = Path(__file__).resolve().parents[1] / "src" / "fedgauge" / "planner" / "score_tables.json"
QUANTILES = 32
END = 40.0  # log-odds that stand for 0 and 1
SETS = (
    "adult bayes test",
    "adult forest test",
    "adult forest training",
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
    levels = (np.arange(QUANTILES) + 0.5) / QUANTILES
    negatives, positives = (
        np.quantile(log_odds[labels == side], levels, method="inverted_cdf").round(3).tolist()
        for side in (0, 1)
    )
    return {
        "name": name,
        "positive_rate": round(float(labels.mean()), 4),
        "negatives": negatives,
        "positives": positives,
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
