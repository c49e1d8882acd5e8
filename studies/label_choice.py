"""Is the mechanism that is chosen for the AUC alone the best one? Errors of each, measured.

    python studies/label_choice.py                 # 1,000 releases in each cell
    python studies/label_choice.py --quick         # a small, seeded run
    python studies/label_choice.py --only "apart=True"

A cell is a number of examples and of label parties, an epsilon, a share of positives, how many
times the true odds of a positive were hinted, the distance of the classes in deviations, and
whether each party has a range of scores of its own. One dataset is drawn in each, and its labels
are released again and again by every mechanism. Errors are those that noise and bins add: root
mean squares of distances from the AUC of the dataset. `chosen` is what
`fg.evaluate_vertical(..., only="roc_auc")` takes, from ranks and hints alone; `regret` is its
error over that of the best.

Noise of pairs is drawn in floating point here, from the laws that parties draw from exactly.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

import fedgauge as fg
from fedgauge.estimation.counts import LabelCounts
from fedgauge.estimation.distribution import Aligned, estimate
from fedgauge.estimation.repair import consistent
from fedgauge.metrics import curves
from fedgauge.privacy.keystream import SimulatedKeystream
from fedgauge.vertical.auc import MECHANISMS, PairMechanism, PartyRanks, auc_of, doubled_midranks
from fedgauge.vertical.bins import Binned, bin_scores, predicted_deviations, times_odds
from runner import Check, Found, Study, describe, main

NAMES = ("histogram", *(name for name, row in MECHANISMS.items() if row.noise == "polya"))
MOST = 1.1  # times the error of the best, where the hint is right
MOST_OFF = 1.5  # and where it is four times off
CHANCE = 3.0  # standard deviations of a ratio of two errors that a limit leaves room for


@dataclass(frozen=True)
class Cell:
    """One setting."""

    examples: int
    parties: int
    epsilon: float = 1.0
    rate: float = 0.2
    hinted: float = 1.0
    separation: float = 1.5
    apart: bool = False

    @property
    def privacy(self) -> fg.DistributedDP:
        """What each label is promised."""
        return fg.DistributedDP(self.epsilon, unit="label", neighbours="flip")


def by_histogram(
    binned: Binned, labels: np.ndarray, parties: int, runs: int, rng: np.random.Generator
) -> np.ndarray:
    """AUCs from as many releases of positives by bin."""
    plan, tree = binned.plan, binned.plan.tree
    variances = plan.noise_variances(parties)
    positives = np.bincount(binned.bins[labels], minlength=binned.axis.bins)
    source, levels = SimulatedKeystream(int(rng.integers(2**63))), []
    for depth, law in enumerate(plan.noise_laws(shares=parties)):
        exact = positives.reshape(math.prod(tree[: depth + 1]), -1).sum(axis=1)
        levels.append(exact + law.draw(source, (runs, len(exact))))
    found = []
    for noisy in consistent(levels, tree, variances):
        counts = LabelCounts(
            binned.axis, np.array([binned.totals - noisy, noisy]), tree, variances
        ).counts
        roc = curves.roc_curve(estimate(binned.axis, counts, Aligned()))
        found.append(roc.path.area())
    return np.array(found)


def by_pairs(
    mechanism: PairMechanism,
    known: PartyRanks,
    privacy: fg.DistributedDP,
    exact: tuple[int, int],
    runs: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """AUCs from as many releases of every party's pair; `exact` are positives and rank sum."""
    positives, ranks = (np.full(runs, float(number)) for number in exact)
    for terms in mechanism.terms(known, privacy):
        extra = _laplace(terms.positives.scale, runs, rng)
        positives += extra
        ranks += terms.centre * extra + _laplace(terms.ranks.scale, runs, rng)
    return np.clip(auc_of(positives, ranks, known.examples), 0.0, 1.0)


def _laplace(scale: float, runs: int, rng: np.random.Generator) -> np.ndarray:
    if not scale:
        return np.zeros(runs)
    chance = -math.expm1(-1.0 / float(scale))
    return (rng.geometric(chance, runs) - rng.geometric(chance, runs)).astype(float)


def run(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """Errors of every mechanism in one cell, which is chosen, and its regret."""
    labels = rng.random(cell.examples) < cell.rate
    scores = rng.normal(np.where(labels, cell.separation, 0.0))
    order = np.argsort(scores)
    labels, scores = labels[order], scores[order]
    place = np.arange(cell.examples)
    party = place * cell.parties // cell.examples if cell.apart else place % cell.parties
    hint = times_odds(cell.rate, cell.hinted)
    binned = bin_scores(scores, cell.parties, cell.privacy, positive_rate=hint, only="roc_auc")
    ranks = doubled_midranks(scores)
    known = PartyRanks.of(ranks, party, cell.parties)
    exact = int(labels.sum()), int(ranks[labels].sum())
    truth = auc_of(*exact, cell.examples)
    aucs = {"histogram": by_histogram(binned, labels, cell.parties, runs, rng)}
    for name in NAMES[1:]:
        aucs[name] = by_pairs(MECHANISMS[name], known, cell.privacy, exact, 10 * runs, rng)
    errors = {name: math.sqrt(np.mean((each - truth) ** 2)) for name, each in aucs.items()}
    expected = predicted_deviations(known, cell.privacy, binned.plan.cohort, binned.plan.tree, hint)
    chosen, best = next(iter(expected)), min(errors, key=errors.__getitem__)
    found = {f"{name} error": errors[name] for name in NAMES}
    found |= {f"{name} predicted": expected[name] for name in NAMES}
    found |= {"bins": binned.axis.bins, "levels": len(binned.plan.tree)}
    found |= {"chosen": NAMES.index(chosen), "best": NAMES.index(best)}
    return found | {"regret": errors[chosen] / errors[best]}


def table(found: Sequence[Found[Cell]]) -> None:
    """Errors over that of the best."""
    print(f"{'M':>7} {'K':>3} {'eps':>4} {'rate':>5} {'hint':>5} {'sep':>4} {'scores':>6}", end="")
    print(f" {'bins':>8}", *(f"{name:>14}" for name in NAMES), f"{'chosen':>14} regret")
    for each in found:
        c, least = each.cell, min(each[f"{name} error"] for name in NAMES)
        print(f"{c.examples:>7} {c.parties:>3} {c.epsilon:>4} {c.rate:>5}", end="")
        print(f" {c.hinted:>5} {c.separation:>4} {'apart' if c.apart else 'alike':>6}", end="")
        print(f" {each['bins']:>4.0f} ({each['levels']:.0f})", end="")
        print("".join(f" {each[f'{name} error'] / least:>14.2f}" for name in NAMES), end="")
        print(f" {NAMES[int(each['chosen'])]:>14} {each['regret']:>6.2f}")


def checks(found: Sequence[Found[Cell]]) -> Iterator[Check]:
    """The choice is a good one, and errors of pairs are as predicted where the hint is right."""
    for most, right in ((MOST, True), (MOST_OFF, False)):
        odd = [
            f"{describe(each.cell)}: {each['regret']:.2f}"
            for each in found
            if (each.cell.hinted == 1.0) == right and each["regret"] > most * (1 + _stray(each))
        ]
        hint = "right" if right else "four times off"
        yield Check(f"at most {most} of the best error, the hint {hint}", not odd, "; ".join(odd))


def _stray(each: Found[Cell]) -> float:
    """Errors of bins are about normal; those of pairs, ten times as many, have heavier tails."""
    return CHANCE * math.sqrt(0.5 / each.runs + 1.25 / (10 * each.runs))


PARTIES = (1, 2, 3, 4, 5, 8, 10, 16)
CELLS = [
    *(
        Cell(examples, parties, epsilon, apart=apart)
        for examples, epsilon, apart, parties in product(
            (2_000, 20_000, 458_407), (0.3, 1.0, 3.0), (False, True), PARTIES
        )
    ),
    *(
        Cell(examples, parties, 1.0, rate, hinted, separation, apart)
        for examples, (rate, separation), hinted, apart, parties in product(
            (20_000, 458_407),
            ((0.05, 2.0), (0.5, 1.0)),
            (1.0, 4.0, 0.25),
            (False, True),
            (1, 2, 3, 5, 10),
        )
    ),
]
STUDY = Study(
    "label_choice",
    __doc__,
    cells=CELLS,
    quick_cells=[cell for cell in CELLS if cell.examples == 20_000],
    run=run,
    runs=1_000,
    quick_runs=200,
    table=table,
    checks=checks,
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
