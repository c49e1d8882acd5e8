"""A worked example on generated data: five unlike hospitals and one model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fedgauge.engines.simulation import evaluate
from fedgauge.errors import RecordError
from fedgauge.measures.curves import RocCurve, area_error, exact_pr_curve, exact_roc_curve
from fedgauge.plots import Overlay, save_plots
from fedgauge.results.evaluation import Evaluation
from fedgauge.typing import Floats

_SEED: Final = 7
_ALONE: Final = "each hospital alone"
_POOLED: Final = "exact, pooled data"


@dataclass(frozen=True, slots=True)
class Hospital:
    """How one generated hospital differs from the others.

    `shift` moves all its scores in log-odds: its patients, scanner or coding make the
    same model answer higher or lower. Within the hospital that changes no ranking.
    """

    name: str
    patients: int
    positive_rate: float
    shift: float


HOSPITALS: Final = (
    Hospital("university", 12_000, 0.30, -0.6),
    Hospital("city general", 20_000, 0.10, 0.0),
    Hospital("oncology centre", 4_000, 0.50, -1.2),
    Hospital("rural clinic", 3_000, 0.05, 0.8),
    Hospital("screening van", 15_000, 0.02, 1.2),
)
_SEPARATION: Final = 2.1  # log-odds between the classes, in standard deviations


@dataclass(frozen=True, slots=True, eq=False)
class Demo:
    """What the demo found."""

    result: Evaluation
    mean_client_auc: float
    exact_auc: float
    roc_area_error: float
    pr_area_error: float
    files: tuple[Path, ...]


def generate(hospital: Hospital, seed: int) -> tuple[NDArray[np.int64], Floats]:
    """Labels and scores of one hospital."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(hospital.patients) < hospital.positive_rate).astype(np.int64)
    log_odds = rng.normal(_SEPARATION * labels - 2.5 + hospital.shift, 1.0)
    return labels, 1.0 / (1.0 + np.exp(-log_odds))


def run(folder: Path) -> Demo:
    """Evaluate the model over all hospitals; save curves and result into `folder`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"cannot make folder {folder}: {error.strerror}.") from None
    clients = {h.name: generate(h, _SEED + i) for i, h in enumerate(HOSPITALS)}
    result = evaluate(clients)

    labels, scores = (np.concatenate(column) for column in zip(*clients.values(), strict=True))
    roc, pr = exact_roc_curve(labels, scores), exact_pr_curve(labels, scores)
    by_client = [exact_roc_curve(*data) for data in clients.values()]
    pr_by_client = [exact_pr_curve(*data) for data in clients.values()]
    json = folder / "result.json"
    result.to_json(json)
    plots = save_plots(
        result,
        folder,
        name="fedgauge",
        roc=[
            *(Overlay(_ALONE, "client", curve.fpr, curve.tpr) for curve in by_client),
            Overlay(_POOLED, "exact", roc.fpr, roc.tpr),
        ],
        pr=[
            *(Overlay(_ALONE, "client", curve.recall, curve.precision) for curve in pr_by_client),
            Overlay(_POOLED, "exact", pr.recall, pr.precision),
        ],
    )
    return Demo(
        result=result,
        mean_client_auc=float(np.mean([_area(curve) for curve in by_client])),
        exact_auc=_area(roc),
        roc_area_error=area_error(result.roc_curve(), roc),
        pr_area_error=area_error(result.pr_curve(), pr),
        files=(*plots, json),
    )


def _area(curve: RocCurve) -> float:
    return curve.path.area()
