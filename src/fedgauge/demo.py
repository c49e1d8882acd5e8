"""A worked example on generated data: five unlike hospitals, one model; files to try."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedgauge.arrays import Floats
from fedgauge.engines.simulation import evaluate
from fedgauge.errors import RecordError
from fedgauge.metrics.curves import area_error, exact_pr_curve, exact_roc_curve
from fedgauge.plots import Overlay, save_plots
from fedgauge.results.evaluation import Evaluation
from fedgauge.storage import read_bounded

_SEED: Final = 7
_SMALL, _GROWN, _MANY = 2_000, 2_100, 10_000  # rows of files: a site's, a week later, a phone's
_ILLNESSES: Final = ("flu", "cold", "well")
_PEOPLE, _SHOPS = 12_000, 4
_VISITS = 1_500  # of a clinic
_ALONE: Final = "each hospital alone"
_POOLED: Final = "exact, pooled data"


@dataclass(frozen=True, slots=True)
class Hospital:
    """How one generated hospital differs: `shift` moves all its scores in log-odds."""

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
    report: Path


def generate(hospital: Hospital, seed: int) -> tuple[NDArray[np.int64], Floats]:
    """Labels and scores of one hospital."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(hospital.patients) < hospital.positive_rate).astype(np.int64)
    log_odds = rng.normal(_SEPARATION * labels - 2.5 + hospital.shift, 1.0)
    return labels, 1.0 / (1.0 + np.exp(-log_odds))


def run(folder: Path) -> Demo:
    """Evaluate the model over all hospitals; save curves and result into `folder`."""
    _make(folder)
    clients = {h.name: generate(h, _SEED + i) for i, h in enumerate(HOSPITALS)}
    result = evaluate(clients)

    labels, scores = (np.concatenate(column) for column in zip(*clients.values(), strict=True))
    roc, pr = exact_roc_curve(labels, scores), exact_pr_curve(labels, scores)
    by_client = [exact_roc_curve(*data) for data in clients.values()]
    pr_by_client = [exact_pr_curve(*data) for data in clients.values()]
    json = folder / "result.json"
    result.to_json(json)
    page = folder / "report.html"
    average = float(np.mean([curve.path.area() for curve in by_client]))
    result.to_html(page, name="Five unlike hospitals", client_average=average)
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
        mean_client_auc=average,
        exact_auc=roc.path.area(),
        roc_area_error=area_error(result.roc_curve(), roc),
        pr_area_error=area_error(result.pr_curve(), pr),
        files=(*plots, json),
        report=page,
    )


def write_files(folder: Path) -> tuple[Path, ...]:
    """Write the score files of README and documentation, where no other file has their name."""
    _make(folder)
    files = {folder / name: data for name, data in _files().items()}
    try:
        others = [path for path, data in files.items() if path.exists() and _differs(path, data)]
        if others:
            raise RecordError(
                f"{others[0]} exists and holds something else: nothing was written. Name a new "
                "folder with --files."
            )
        for path, data in files.items():
            if not path.exists():
                with path.open("xb") as file:
                    file.write(data)
    except OSError as error:
        raise RecordError(f"cannot write {error.filename}: {error.strerror}.") from None
    return tuple(files)


def _files() -> dict[str, bytes]:
    """The files by name: labels `y`, scores `p`, and `site` where one file has all sites.

    Clinics have scores of two models, `new` and `old`, and one of each `kind` of illness, such as
    `p_flu`. A platform has scores `p` of every `user`, and four shops know who `bought`.
    """
    import pyarrow.parquet as pq

    files: dict[str, bytes] = {}
    sites = {site: _rows(_SEED + i, _GROWN, 0.3) for i, site in enumerate("abc")}
    for site, rows in sites.items():
        names = (f"site-{site}", site, f"{site}-week-1")
        files |= {f"{name}.csv": _csv(rows[:_SMALL]) for name in names}
        files[f"{site}-week-2.csv"] = _csv(rows)
    for i, phone in enumerate(("phone-a", "phone-b")):
        files[f"{phone}.csv"] = _csv(_rows(_SEED + 10 + i, _MANY, 0.4))
    for i, clinic in enumerate("abc"):
        files[f"clinic-{clinic}.csv"] = _clinic(_SEED + 30 + i)
    people = list(enumerate(_rows(_SEED + 20, _PEOPLE, 0.1), start=10_000))
    scored = (f"{user},{p}\n" for user, (_, p) in people)
    files["platform.csv"] = "".join(["user,p\n", *scored]).encode()
    for shop in range(_SHOPS):
        known = (f"{user},{y}\n" for user, (y, _) in people[shop::_SHOPS])
        files[f"shop-{shop + 1}.csv"] = "".join(["user,bought\n", *known]).encode()
    table = [(site, int(y), float(p)) for site, rows in sites.items() for y, p in rows[:_SMALL]]
    columns = dict(zip(("site", "y", "p"), zip(*table, strict=True), strict=True))
    sink = io.BytesIO()
    pq.write_table(pa.table({name: pa.array(values) for name, values in columns.items()}), sink)
    files["scores.parquet"] = sink.getvalue()
    return files


def _rows(seed: int, count: int, positive_rate: float) -> list[tuple[str, str]]:
    """Labels and scores as they are written."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(count) < positive_rate).astype(np.int64)
    scores = np.clip(rng.normal(0.35 + 0.25 * labels, 0.15), 0.0, 1.0)
    return [(str(y), f"{p:.5f}") for y, p in zip(labels, scores, strict=True)]


def _clinic(seed: int) -> bytes:
    """Rows that two models scored, of two sexes and ages, and of three illnesses."""
    rng = np.random.default_rng(seed)
    y, (shared, own) = rng.random(_VISITS) < 0.3, rng.normal(size=(2, _VISITS))
    sex, age = rng.choice(["women", "men"], _VISITS), rng.choice(["young", "old"], _VISITS)
    illness = rng.choice(len(_ILLNESSES), _VISITS, p=[0.3, 0.5, 0.2])
    shift = 0.6 * (sex == "men") - 1.4
    scores = [1.5 * y + shift + shared, 1.4 * y + shift + 0.9 * shared + 0.44 * own]
    odds = np.exp(rng.normal(size=(_VISITS, len(_ILLNESSES))))
    odds[np.arange(_VISITS), illness] *= 4.0
    columns = [
        *(map(str, column) for column in (y.astype(int), sex, age)),
        *((f"{p:.4f}" for p in 1.0 / (1.0 + np.exp(-each))) for each in scores),
        (_ILLNESSES[each] for each in illness),
        *((f"{p:.4f}" for p in each) for each in (odds / odds.sum(axis=1, keepdims=True)).T),
    ]
    header = ["y", "sex", "age", "new", "old", "kind", *(f"p_{each}" for each in _ILLNESSES)]
    rows = [header, *zip(*columns, strict=True)]
    return "".join(f"{','.join(row)}\n" for row in rows).encode()


def _csv(rows: list[tuple[str, str]]) -> bytes:
    return "".join(["y,p\n", *(f"{y},{p}\n" for y, p in rows)]).encode()


def _differs(path: Path, data: bytes) -> bool:
    """Whether a file holds other rows; Parquet's bytes also change with the version of Arrow."""
    if not path.is_file():
        return True
    if path.suffix == ".csv":
        return path.stat().st_size != len(data) or read_bounded(path, len(data)) != data
    import pyarrow.parquet as pq

    try:
        return not pq.read_table(path).equals(pq.read_table(io.BytesIO(data)))
    except (pa.ArrowInvalid, OSError):
        return True


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"cannot make folder {folder}: {error.strerror}.") from None
