"""Scores of many scales for studies: two normal classes, and what a model may make of them."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from scipy.special import expit

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "scores"
SEPARATION = 1.47  # an AUC of 0.85
ROWS = 50_000

SCALES: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "margins": lambda z: 3.0 * (z - 0.7),
    "points": lambda z: np.clip(np.round(575.0 + 70.0 * z), 300, 850),
    "lognormal": lambda z: np.exp(1.5 * z),
    "tiny": lambda z: 1e-4 * z,
    "large": lambda z: 3e5 + 1e5 * z,
    "heavy tails": lambda z: np.sinh(2.0 * z),
    "two modes": lambda z: np.where(z > 1.0, 40.0 + 3.0 * z, -40.0 + z),
    "atom": lambda z: np.where(np.abs(z - 0.5) < 0.55, 0.0, 3.0 * (z - 0.5)),
    "probabilities": lambda z: expit(SEPARATION * z - 1.93),
    "saturated": lambda z: expit(12.0 * (z - 0.7)),
    "float32": lambda z: expit((20.0 * (z - 0.7)).astype(np.float32)).astype(np.float64),
    "zeros and ones": lambda z: np.clip(1.4 * expit(SEPARATION * z - 1.93) - 0.2, 0.0, 1.0),
}
REAL = ("adult_xgboost", "adult_logistic", "bank_xgboost", "bank_logistic")
CROWDED = ("atom", "float32", "zeros and ones")
PROBABILITIES = ("probabilities", "saturated", "float32", "zeros and ones", *REAL)


def draw(
    scale: str, rate: float, rng: np.random.Generator, rows: int = ROWS
) -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores: drawn anew, or the real ones of that name."""
    if scale in REAL:
        return _real(scale)
    labels = rng.random(rows) < rate
    return labels.astype(np.int64), SCALES[scale](rng.normal(SEPARATION * labels))


def available(scale: str) -> bool:
    """Whether real scores are at hand; others always are."""
    return scale not in REAL or (SHARED / f"{scale}.parquet").is_file()


def _real(name: str) -> tuple[np.ndarray, np.ndarray]:
    import pyarrow.parquet as pq

    table = pq.read_table(SHARED / f"{name}.parquet", columns=["y", "p"])
    return table["y"].to_numpy().astype(np.int64), table["p"].to_numpy().astype(np.float64)
