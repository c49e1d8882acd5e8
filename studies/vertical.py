"""The tables of Sun et al. 2022 on binormal scores, next to what fedgauge makes of the same labels.

    python studies/vertical.py                     # 100 runs in each cell, 2,000 where said
    python studies/vertical.py --quick             # a few cells of each table, in seconds
    python studies/vertical.py --only "table=7*parties=458,"

`sun_worlds` says what stands for their scores, `sun_figures` has the figures. Table 1 is a part of
Table 7. Columns: "measured" over as many runs as theirs (100), "longer" over 20 times as many,
"predicted" to first order, "whole" the same mechanism with noise of whole numbers, which can be
drawn exactly (the same up to an epsilon of about 2, and less above). "fedgauge" is a root mean
squared error, bins included: of the histogram for as many parties (Tables 2 and 7), of the same
flips read by bins (5 and 6); or the mean AUC (3). In Table 9, which hides scores and labels, it is
the AUC of ten sites that hold both. Cells of the table "fedgauge" set the histogram beside the
paper's best mechanism, one party colluding, and say what `auto` would take.

Assumptions. Tables 2 and 7 do not name an epoch: the last. In Table 9 scores are calibrated
probabilities. Table 8 fits the first epoch, and among the highest thousand scores none: binormal
scores tell the classes apart the better the higher they are, theirs stop at four of five.

Errors of the paper that show here: Equation 7 lacks 1 / (1 - 2 rho) and the centring (11 times too
small at epsilon 0.1, 1.8 times too large at 10); section N should read sqrt(2 K) (M - 1) /
(P N epsilon); Equation 5 divides by M N and counts ties as 0; Algorithm 3 mixes pi and its
estimate; section 2.3 swaps the axes of ROC curves; Table 2 takes the numbers of both classes as
known, which is not private; two epochs of Table 3 have the same number; what falls with the root of
the size is the deviation of the AUC, not the AUC (section 6.2.1).
"""

import math
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

import fedgauge as fg
import sun_tables as sun
from fedgauge.arrays import Floats
from fedgauge.vertical.auc import MECHANISMS, PartyRanks, auc_of, doubled_midranks
from runner import Check, Found, Study, describe, main
from sun_histograms import flipped_histogram_aucs, histogram_aucs, label_dp, parties_of
from sun_worlds import (
    EPOCH,
    deal,
    flipped_aucs,
    flipped_deviation,
    noise_of,
    pair_aucs,
    ranks_of,
    rmse,
    world,
)

LONGER = 20  # times as many runs, where a prediction or another error is set beside a deviation
MEANS = {"5": sun.TABLE_5_MEANS, "6": sun.TABLE_6_MEANS}
LIMITS = {10: 0.75, 16: 0.6, 458: 0.15, 4_584: 0.05}  # of the histogram's error, over adaptive's


@dataclass(frozen=True)
class Cell:
    """A number that the paper prints, or one beside it."""

    table: str
    mechanism: str
    parties: int = 0
    split: str = ""
    epsilon: float = 1.0
    epoch: int = EPOCH
    paper: float = math.nan


def _pairs(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """A cell of Table 7 or 2; there counts are known, and all of the budget is for rank sums."""
    w, known = world(cell.epoch), ranks_of(cell.epoch, cell.parties, cell.split)
    noise = noise_of(cell.mechanism, known, cell.epsilon, 0.0 if cell.table == "2" else None)
    found = _deviations(pair_aucs(w, noise, rng, LONGER * runs), runs)
    found["predicted"] = noise.deviation(w)
    if cell.table == "7":
        whole = MECHANISMS[cell.mechanism].deviation
        found["whole"] = whole(known, label_dp(cell.epsilon), w.auc, w.positives)
    return found


def _deviations(aucs: Floats, runs: int) -> dict[str, float]:
    return {"measured": float(aucs[:runs].std()), "longer": float(aucs.std())}


def _response(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """A cell of Table 3, 5 or 6, or the first row of Table 7: labels flipped at random."""
    w = world(cell.epoch, large=cell.table == "6")
    told, mended = flipped_aucs(w, cell.epsilon, rng, LONGER * runs)
    by_bins = flipped_histogram_aucs(w, cell.epsilon, rng, runs)
    if cell.table == "3":
        return {"measured": float(told[:runs].mean()), "fedgauge": float(by_bins.mean())}
    return {
        **_deviations(mended, runs),
        "predicted": flipped_deviation(w, cell.epsilon),
        "fedgauge": rmse(by_bins, w.auc),
        "mean": float(mended[:runs].mean()),
    }


def _top(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """A cell of Table 8: precision among the `parties` highest scores."""
    del rng, runs  # nothing is random
    return {"measured": float(world(cell.epoch).labels[-cell.parties :].mean())}


def _noisy_scores(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """A cell of Table 9: the AUC of scores with Laplace noise."""
    w = world(cell.epoch)
    found = []
    for _ in range(max(runs // 20, 1)):  # one run is off by less than 1e-3
        ranks = doubled_midranks(w.scores + rng.laplace(0.0, 1 / cell.epsilon, len(w.scores)))
        found.append(auc_of(w.positives, int(ranks[w.labels].sum()), len(ranks)))
    sites = {str(k): (w.labels[k::10], w.scores[k::10]) for k in range(10)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fg.PrivacyWarning)  # an epsilon of 50 protects nobody
        privacy = fg.DistributedDP(cell.epsilon)
        result = fg.evaluate(sites, privacy=privacy, seed=int(rng.integers(2**31)))
    return {"measured": float(np.mean(found)), "fedgauge": result.roc_auc.value}


def _histogram(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """The histogram's error for so many parties: the same whatever the split."""
    w = world(cell.epoch)
    parties = parties_of(w, deal(len(w.labels), cell.parties, "iid"))
    aucs = histogram_aucs(parties, w, label_dp(cell.epsilon), rng, runs)
    return {"fedgauge": rmse(aucs, w.auc)}


def _beside(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """Errors of the histogram and of the adaptive mechanism, and the one that `auto` takes."""
    w = world(cell.epoch)
    party = deal(len(w.labels), cell.parties, cell.split)
    parties, privacy = parties_of(w, party), label_dp(cell.epsilon)
    chosen = fg.evaluate_vertical(None, parties, privacy=privacy, only="roc_auc", seed=1)
    histogram = rmse(histogram_aucs(parties, w, privacy, rng, LONGER * runs), w.auc)
    known = PartyRanks.of(w.ranks, party, cell.parties)
    aucs = {
        name: MECHANISMS[name].deviation(known, privacy, w.auc, w.positives)
        for name in ("adaptive", "orthogonal", "laplace-local")
    }
    noise = noise_of(cell.mechanism, known, cell.epsilon)
    adaptive = rmse(pair_aucs(w, noise, rng, LONGER * runs), w.auc)
    taken = histogram if chosen.mechanism == "histogram" else aucs[chosen.mechanism]
    return {
        "histogram": histogram,
        "adaptive": adaptive,
        "ratio": histogram / adaptive,
        "auto": taken / min(histogram, *aucs.values()),
        "auto is the histogram": float(chosen.mechanism == "histogram"),
    }


_BY_TABLE = {"fedgauge": _beside, "histogram": _histogram, "8": _top, "9": _noisy_scores}


def run(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """Measure a cell."""
    if cell.mechanism == "response":
        return _response(cell, rng, runs)
    return _BY_TABLE.get(cell.table, _pairs)(cell, rng, runs)


def cells() -> Iterator[Cell]:
    """Every number of the tables, and the comparison."""
    for table in ("7", "2"):
        for (mechanism, split, parties, epsilon), paper in sun.pairs_of(table).items():
            yield Cell(table, mechanism, parties, split, epsilon, paper=paper)
    for epsilon, paper in sun.RESPONSE.items():
        yield Cell("7", "response", epsilon=epsilon, paper=paper)
        for parties in sun.CLIENTS:
            yield Cell("histogram", "histogram", parties, epsilon=epsilon)
    by_epoch = {"3": sun.TABLE_3, "5": sun.TABLE_5, "6": sun.TABLE_6, "9": sun.TABLE_9}
    for table, printed in by_epoch.items():
        mechanism = "scores" if table == "9" else "response"
        for epsilon, values in printed.items():
            for epoch, paper in enumerate(values):
                yield Cell(table, mechanism, epsilon=epsilon, epoch=epoch, paper=paper)
    for top, paper in sun.TABLE_8.items():
        yield Cell("8", "top", top, epoch=0, paper=paper)
    for split in ("iid", "apart"):
        for parties in (1, 2, 5, 10, 16, 458, 4_584):
            yield Cell("fedgauge", "adaptive", parties, split)


CELLS = list(cells())
QUICK = [
    cell
    for cell in CELLS
    if cell.table == "8"
    or (cell.parties in (0, 10, 458) and cell.epsilon == 1.0 and cell.epoch == EPOCH)
]


def table(found: Sequence[Found[Cell]]) -> None:
    """Paper, measured, predicted and fedgauge side by side; then what does not come out."""
    console = Console(width=140)
    histograms = {
        (each.cell.parties, each.cell.epsilon): each["fedgauge"]
        for each in found
        if each.cell.table == "histogram"
    }
    for name in dict.fromkeys(each.cell.table for each in found):
        rows = [(e.cell, _row(e, histograms)) for e in found if e.cell.table == name]
        if name != "histogram":
            console.print(_shown(name, rows))
    print("Do not come out:")
    for each in found:
        if (off := astray(each)) is not None:
            print(f"  {describe(each.cell)}: {off}")


def _row(each: Found[Cell], histograms: Mapping[tuple[int, float], float]) -> dict[str, float]:
    """What is shown of a cell, and in which order."""
    cell, values = each.cell, dict(each.values)
    if cell.table in ("2", "7") and (by_bins := histograms.get((cell.parties, cell.epsilon))):
        values["fedgauge"] = by_bins
    if cell.table in MEANS:
        values["paper's mean"] = MEANS[cell.table][cell.epsilon][cell.epoch]
    else:
        values.pop("mean", None)
    return values if cell.table == "fedgauge" else {"paper": cell.paper, **values}


def _shown(name: str, rows: Sequence[tuple[Cell, Mapping[str, float]]]) -> Table:
    of_cell = ["mechanism", "epsilon", "epoch"]
    of_cell[1:1] = [each for each in ("split", "parties") if any(getattr(c, each) for c, _ in rows)]
    shown = Table(*of_cell, title=f"Table {name}")
    numbers = list(dict.fromkeys(key for _, values in rows for key in values))
    for number in numbers:
        shown.add_column(number, justify="right", no_wrap=True)
    for cell, values in rows:
        told = {"parties": f"{cell.parties:,}" if cell.parties else ""}
        told |= {"epsilon": f"{cell.epsilon:g}", "epoch": str(cell.epoch + 1)}
        shown.add_row(
            *(told.get(each, getattr(cell, each)) for each in of_cell),
            *(_digits(values[number]) if number in values else "" for number in numbers),
        )
    return shown


def _digits(value: float) -> str:
    """Six for an AUC, four for an error."""
    return f"{value:.6g}" if value > 0.1 else f"{value:.4g}"


def astray(each: Found[Cell]) -> str | None:
    """How far a cell is from what the paper prints, where that is too far."""
    cell = each.cell
    if math.isnan(cell.paper):
        return None
    gap, found = abs(each["measured"] - cell.paper), f"{each['measured']:.4g} measured"
    most = {"3": 1e-3, "8": 0.02, "9": 0.01}.get(cell.table)
    if most is not None:
        return f"{found}, off by {gap:.2g}" if gap > most else None
    if (times := _times(each["measured"], cell.paper)) > 1.35:
        return f"{found}, {times:.2f} times"
    if cell.table not in MEANS:
        return None
    truth = (sun.AUCS if cell.table == "5" else sun.LARGE_AUCS)[cell.epoch]
    off = (MEANS[cell.table][cell.epsilon][cell.epoch] - truth) / (cell.paper / math.sqrt(100))
    return f"their mean is {off:+.1f} standard errors from the AUC" if abs(off) > 3 else None


def _times(one: float, other: float) -> float:
    """How many times the larger is of two numbers."""
    return max(one / other, other / one)


def checks(found: Sequence[Found[Cell]]) -> Iterator[Check]:
    """What must hold of the cells that were run."""
    deviations = [each for each in found if "longer" in each.values]
    one = [each for each in deviations if each.cell.table in ("2", "7")]
    laplace = [each for each in one if each.cell.mechanism != "response"]
    flips = [each for each in deviations if each.cell.table in ("5", "6")]
    for what, rows, numbers, most, share in (
        ("Tables 1, 2, 7: predicted within 1.3", laplace, ("predicted", "paper"), 1.3, 1),
        ("Tables 1, 2, 7: measured within 1.35 in 98%", one, ("measured", "paper"), 1.35, 0.98),
        ("Tables 5, 6: within 1.35 in 52 of 54", flips, ("measured", "paper"), 1.35, 52 / 54),
        ("predicted within 10% of measured", deviations, ("predicted", "longer"), 1.1, 1),
    ):
        off = [_times(*({"paper": e.cell.paper, **e.values}[n] for n in numbers)) for e in rows]
        if off:
            inside = sum(each <= most for each in off)
            told = f"{inside} of {len(off)}, at most {max(off):.3f} times"
            yield Check(what, inside >= share * len(off), told)
    for name, most in (("3", 1e-3), ("9", 0.01)):
        gaps = [abs(e["measured"] - e.cell.paper) for e in found if e.cell.table == name]
        if gaps:
            yield Check(f"Table {name}: within {most:g}", max(gaps) <= most, f"{max(gaps):.1e}")
    yield from _checks_of_fedgauge([each for each in found if each.cell.table == "fedgauge"])


def _checks_of_fedgauge(found: Sequence[Found[Cell]]) -> Iterator[Check]:
    for each in found:
        what, parties = f"{each.cell.parties:,} parties, {each.cell.split}", each.cell.parties
        told = f"{each['auto']:.2f}"
        yield Check(f"{what}: auto within 1.1 of the best", each["auto"] <= 1.1, told)
        if each.cell.split == "iid" and parties in LIMITS:
            limit, told = LIMITS[parties], f"{each['ratio']:.3f}"
            yield Check(f"{what}: at most {limit} of adaptive's", each["ratio"] <= limit, told)


STUDY = Study(
    "vertical",
    __doc__,
    cells=CELLS,
    run=run,
    runs=100,
    table=table,
    checks=checks,
    quick_cells=QUICK,
    quick_runs=100,
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
