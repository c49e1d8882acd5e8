"""Error of the AUC under local DP against the number of reports: it falls like n^(-1/2).

    python studies/local_error.py --runs 40

Balanced rows with an AUC near 0.85; axis and tree as the planner chooses them for a million. The
paper reports 5e-3 at epsilon 5 and a million reports.
"""

import argparse
import math

import numpy as np
from scipy.special import expit

import fedgauge as fg
from fedgauge.privacy.local import OracleKind

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
WANTED = {5.0: 1.5e-3, 1.0: 1e-2}
SEPARATION = 1.47
RATE = 0.5


def draw_rows(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated scores."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(rows) < RATE).astype(np.int64)
    log_odds = rng.normal(SEPARATION * (labels - 0.5), 1.0)
    return labels, expit(SEPARATION * log_odds)


def mean_error(plan: fg.EvaluationPlan, rows: int, runs: int) -> float:
    """Mean absolute error over some runs."""
    data = draw_rows(rows, seed=rows)
    exact = fg.exact_roc_curve(*data).path.area()
    errors = []
    for seed in range(runs):
        result = fg.evaluate({"all": data}, plan, seed=seed)
        try:
            errors.append(abs(result.roc_curve().path.area() - exact))
        except fg.NoSignal:
            errors.append(0.5)
    return float(np.mean(errors))


def study(epsilon: float, oracle: OracleKind, runs: int) -> None:
    """Print the errors of one mechanism and their slope."""
    privacy = fg.LocalDP(epsilon, oracle=oracle)
    plan = fg.planner.propose(privacy=privacy, clients=1, examples=SIZES[-1], positive_rate=RATE)
    print(f"epsilon {epsilon:g}, {oracle}, {plan.axis.bins} bins")
    found = []
    for rows in SIZES:
        found.append(mean_error(plan, rows, runs))
        print(f"  {rows:>9,} reports: {found[-1]:.1e}")
    used = [(n, e) for n, e in zip(SIZES, found, strict=True) if e < 0.05]
    logs = np.log(np.array(used))
    slope = np.polyfit(logs[:, 0], logs[:, 1], 1)[0] if len(used) > 1 else math.nan
    print(
        f"  slope {slope:.2f} (expected: about -0.5); a million reports: {found[-1]:.1e} "
        f"(wanted: at most {WANTED[epsilon]:.1e})"
    )


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=40)
    options = parser.parse_args()
    for epsilon in WANTED:
        for oracle in ("oue", "hadamard"):
            study(epsilon, oracle, options.runs)


if __name__ == "__main__":
    main()
