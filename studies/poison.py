"""How far one member of 20 moves the ROC AUC of real scores by counts that it did not count.

The member of middle size sends what raises the AUC most, or lowers it most: positives at one end of
the axis and negatives at the other. What it sends is

- as many of each class as it has, or 10 or 100 times as many;
- besides its own rows, half of what the others have in every bin as negative counts, and as many
  at the ends, so that totals stay as they are;
- as much in the two end bins as a sum over all members may hold, where the plan's largest count is
  the largest that any member has in a bin;
- the same where the largest count is the default.

An exact result is refused, one at epsilon 1 has a caution, or nobody notices. That an end bin may
be crowded then, which makes another caution, is left out. Plans are those that the planner
proposes.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import fedgauge as fg
from fedgauge.engines.contribution import draw_noise, release
from fedgauge.estimation import sanity
from fedgauge.privacy.keystream import SimulatedKeystream

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
MODELS = (fg.SecureAggregation(), fg.DistributedDP(1.0))
ENDS = {"raised": (0, -1), "lowered": (-1, 0)}  # bins where the negatives and the positives go
AnyModel = fg.SecureAggregation | fg.DistributedDP
Counts = np.ndarray  # by class and bin


def at_ends(plan: fg.EvaluationPlan, numbers: np.ndarray, ends: tuple[int, int]) -> Counts:
    """So many negatives in one bin, so many positives in another."""
    counts = np.zeros((2, plan.axis.bins), dtype=np.int64)
    counts[[0, 1], ends] = numbers
    return counts


def attacks(
    plan: fg.EvaluationPlan, members: list[Counts], ends: tuple[int, int]
) -> Iterator[tuple[str, fg.EvaluationPlan, Counts]]:
    """What is sent, under which plan, and the sum that comes of it."""
    by_size = sorted(members, key=np.sum)
    hostile = by_size[len(members) // 2]
    total = sum(members)
    others = total - hostile
    for times, name in ((1, "its own number of rows"), (10, "10 times"), (100, "100 times")):
        sent = at_ends(plan, times * hostile.sum(axis=1), ends)
        yield f"{name}, at the ends" if times == 1 else f"{name} as many", plan, others + sent
    taken = others // 2
    covered = total - taken + at_ends(plan, taken.sum(axis=1), ends)
    yield "half of the others' rows, with a minus, and again at the ends", plan, covered
    tight = largest_of(plan, max(int(counts.max()) for counts in members))
    for name, limited in (("near what sites have", tight), ("as by default", plan)):
        full = others.copy()
        full[[0, 1], ends] = limited.summed.largest * len(members)
        yield f"what a sum has room for, `largest` {name}", limited, full


def largest_of(plan: fg.EvaluationPlan, largest: int) -> fg.EvaluationPlan:
    """The same plan with another largest count."""
    sent = msgspec.structs.replace(plan.summed, largest=largest)
    return msgspec.structs.replace(plan, rounds=(sent,))


def evaluated(plan: fg.EvaluationPlan, counts: Counts, clients: int) -> fg.Evaluation:
    """The result of a sum of counts, with the noise of all members."""
    levels = [counts.reshape(2, nodes, -1).sum(axis=2).ravel() for nodes in plan.final.nodes]
    total = np.concatenate(levels) + draw_noise(plan, SimulatedKeystream(0), shares=clients)
    released = release(plan, total, clients)
    return fg.Evaluation(plan, plan.statement("simulated"), released, estimator=fg.Aligned())


def members_of(path: Path, privacy: AnyModel) -> tuple[fg.EvaluationPlan, list[Counts]]:
    """The plan for the rows of one file, and the counts of each of its sites."""
    read = pq.read_table(path)
    labels, scores = read["y"].to_numpy(), read["p"].to_numpy().astype(np.float64)
    sites = read["site"].to_numpy()
    names = np.unique(sites)
    plan = fg.planner.propose(
        privacy=privacy, clients=len(names), examples=len(labels), positive_rate=labels.mean()
    )
    members = []
    for name in names:
        histogram = plan.histogram()
        histogram.update(labels[sites == name], np.clip(scores[sites == name], 0, 1))
        members.append(histogram.counts)
    return plan, members


def moved(path: Path, privacy: AnyModel) -> dict[str, list[float]]:
    """By attack: how far the AUC of one file is raised and lowered unnoticed; NaN if noticed."""
    plan, members = members_of(path, privacy)
    honest = evaluated(plan, sum(members), len(members)).roc_auc.value
    changes: dict[str, list[float]] = {}
    for ends in ENDS.values():
        for name, under, counts in attacks(plan, members, ends):
            try:
                result = evaluated(under, counts, len(members))
                noticed = sanity.impossible_caution(under, result.released) is not None
                change = np.nan if noticed else result.roc_auc.value - honest
            except fg.ProtocolError:
                change = np.nan
            changes.setdefault(name, []).append(change)
    return changes


def farthest(paths: list[Path]) -> dict[str, list[float]]:
    """By attack: raised and lowered in exact sums, then at epsilon 1, by at most so much.

    NaN where it is noticed in all files.
    """
    by_model = [np.array([list(moved(path, each).values()) for path in paths]) for each in MODELS]
    numbers = [
        np.column_stack([np.fmax.reduce(changes[..., 0]), np.fmin.reduce(changes[..., 1])])
        for changes in by_model
    ]
    names = moved(paths[0], MODELS[0])
    return dict(zip(names, np.hstack(numbers).round(2).tolist(), strict=True))


def main() -> None:
    """Print the farthest that the AUC of any file moved."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED, help="folder of the real scores")
    data = parser.parse_args().data
    paths = sorted((data / "scores").glob("*.parquet"))
    if not paths:
        print(f"The real scores are not at {data}; name their folder with --data.")
        return
    table = Table(
        "one member of 20 sends", "exact: raised", "lowered", "epsilon 1: raised", "lowered"
    )
    for name, numbers in farthest(paths).items():
        table.add_row(name, *(f"{number:+.2f}" for number in numbers))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
