"""Maps fitted to counts against maps fitted to the scores themselves, on scores of real models.

    python studies/calibrator_loss.py            # 20 random halves of each file
    python studies/calibrator_loss.py --quick    # 3

One half is evaluated, as 20 clients or as single reports, and every calibrator is fitted to the
result. The other half is judged by log loss and by the calibration error of 15 groups of equal
width. Beside them are the scores as they are, and maps that scikit-learn fits to the half itself:
logistic regression on the two logarithms, which is beta calibration, and isotonic regression.
Plans are 4,096 bins for exact sums, the planner's choice otherwise. The scores are read from
`../shared/data/scores`, beside the repository.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from scipy.stats import rankdata
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

import fedgauge as fg
from fedgauge.metrics.calibrators import METHODS
from runner import Check, Found, Study, main

SCORES = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "scores"
FILES = ("adult_logistic", "adult_xgboost", "bank_logistic", "bank_xgboost")
PRIVACY = ("exact", "epsilon 1", "epsilon 0.3", "local 5")
CLIENTS = 20
GROUPS = 15
BINS = 4096
RAW = ("as it is", "raw beta", "raw isotonic")
STRICT = ("auto", "beta", "platt", "temperature")
LOSS = {"exact": 2e-4, "epsilon 1": 2e-4, "epsilon 0.3": 2e-4, "local 5": 1.5e-3}
ISOTONIC = {"epsilon 1": 5e-4, "epsilon 0.3": 5e-4}
SAME = 1e-12
Rows = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Cell:
    """A file, and how its half is evaluated."""

    scores: str
    privacy: str


def read(name: str) -> Rows:
    """Labels and scores of a file."""
    table = pq.read_table(SCORES / f"{name}.parquet", columns=["y", "p"])
    return table["y"].to_numpy().astype(np.int64), table["p"].to_numpy().astype(np.float64)


def plan_for(privacy: str, examples: int, rate: float) -> fg.EvaluationPlan | None:
    """The planner's choice, from how many rows there are and the share of positives."""
    if privacy == "exact":
        return None
    kind, epsilon = privacy.split()
    local = kind == "local"
    model = fg.LocalDP(float(epsilon)) if local else fg.DistributedDP(float(epsilon))
    clients = 1 if local else CLIENTS
    return fg.planner.propose(privacy=model, clients=clients, examples=examples, positive_rate=rate)


def evaluate(rows: Rows, plan: fg.EvaluationPlan | None, seed: int) -> fg.Evaluation:
    """A half, as clients hold it."""
    labels, scores = rows
    if plan is None:
        return fg.evaluate({"all": rows}, axis=fg.Axis.uniform(BINS))
    if isinstance(plan.privacy, fg.LocalDP):
        return fg.evaluate({"all": rows}, plan, seed=seed)
    clients = {str(i): (labels[i::CLIENTS], scores[i::CLIENTS]) for i in range(CLIENTS)}
    return fg.evaluate(clients, plan, seed=seed)


def raw_maps(rows: Rows, scores: np.ndarray) -> dict[str, np.ndarray]:
    """What maps that are fitted to rows make of other scores."""
    labels, seen = rows

    def logarithms(x: np.ndarray) -> np.ndarray:
        x = np.clip(x, 1e-9, 1.0 - 1e-9)
        return np.stack([np.log(x), -np.log1p(-x)], axis=1)

    beta = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000).fit(logarithms(seen), labels)
    isotonic = IsotonicRegression(out_of_bounds="clip").fit(seen, labels)
    each = (scores, beta.predict_proba(logarithms(scores))[:, 1], isotonic.predict(scores))
    return dict(zip(RAW, each, strict=True))


def log_loss(labels: np.ndarray, p: np.ndarray) -> float:
    """Mean negative log-likelihood, with scikit-learn's distance from 0 and 1."""
    least = np.finfo(np.float64).eps
    return float(-np.log(np.clip(np.where(labels == 1, p, 1.0 - p), least, 1.0)).mean())


def calibration_error(labels: np.ndarray, p: np.ndarray) -> float:
    """Of groups of equal width."""
    owners = np.minimum((p * GROUPS).astype(np.int64), GROUPS - 1)
    return float(np.abs(np.bincount(owners, labels - p)).sum() / len(labels))


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Area under the ROC curve, by ranks."""
    positives = int(labels.sum())
    above = rankdata(scores)[labels == 1].sum() - positives * (positives + 1) / 2
    return float(above / positives / (len(labels) - positives))


def one_half(cell: Cell, rows: Rows, rng: np.random.Generator) -> dict[str, float]:
    """Fit to a random half, judge on the other."""
    labels, scores = rows
    order = rng.permutation(len(labels))
    seen, other = np.array_split(order, 2)
    truth, held = labels[other], scores[other]
    plan = plan_for(cell.privacy, len(seen), round(float(labels.mean()), 2))
    result = evaluate((labels[seen], scores[seen]), plan, int(rng.integers(2**32)))
    mapped = raw_maps((labels[seen], scores[seen]), held)
    mapped |= {name: result.calibrator(name).transform(held) for name in METHODS}
    found = {f"loss {name}": log_loss(truth, p) for name, p in mapped.items()}
    found |= {f"error {name}": calibration_error(truth, p) for name, p in mapped.items()}
    moved = [abs(auc(truth, mapped[name]) - auc(truth, held)) for name in STRICT]
    return found | {"AUC moved": max(moved)}


def run(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """Means over halves; of how far the AUC moved, the most."""
    rows = read(cell.scores)
    found = [one_half(cell, rows, rng) for _ in range(runs)]
    means = {name: float(np.mean([each[name] for each in found])) for name in found[0]}
    return means | {"AUC moved": max(each["AUC moved"] for each in found)}


def means(found: Sequence[Found[Cell]], privacy: str) -> dict[str, float]:
    """Over files."""
    cells = [each for each in found if each.cell.privacy == privacy]
    if not cells:
        return {}
    return {name: float(np.mean([each[name] for each in cells])) for name in cells[0].values}


def table(found: Sequence[Found[Cell]]) -> None:
    """Log loss and calibration error by method and privacy model."""
    print(f"{'':16}" + "".join(f"{privacy:>18}" for privacy in PRIVACY))
    columns = [means(found, privacy) for privacy in PRIVACY]
    for name in (*RAW, *METHODS):
        shown = [
            f"{mean[f'loss {name}']:.5f} ({mean[f'error {name}']:.4f})" if mean else ""
            for mean in columns
        ]
        print(f"{name:16}" + "".join(f"{each:>18}" for each in shown))
    print("log loss (calibration error of 15 groups), mean over files and halves")


def checks(found: Sequence[Found[Cell]]) -> Iterator[Check]:
    """Losses beside those of maps that saw the scores."""
    for privacy, most in LOSS.items():
        if mean := means(found, privacy):
            above = mean["loss auto"] - mean["loss raw beta"]
            what = f"{privacy}: auto at most {most:g} above beta calibration of raw scores"
            yield Check(what, above <= most, f"{above:+.1e}")
    for privacy, most in ISOTONIC.items():
        if mean := means(found, privacy):
            above = mean["loss isotonic"] - mean["loss raw isotonic"]
            what = f"{privacy}: isotonic at most {most:g} above scikit-learn's of raw scores"
            yield Check(what, above <= most, f"{above:+.1e}")
    moved = max(each["AUC moved"] for each in found)
    yield Check(f"strict maps leave the AUC as it is, to {SAME:g}", moved <= SAME, f"{moved:.0e}")


CELLS = tuple(Cell(scores, privacy) for scores in FILES for privacy in PRIVACY)
STUDY = Study("calibrator_loss", __doc__, CELLS, run, 20, table, checks, quick_runs=3)

if __name__ == "__main__":
    sys.exit(
        main(STUDY) if SCORES.is_dir() else f"needs {SCORES}, which is not part of the project"
    )
