"""A study of dice, small and quick, for tests of what runs studies.

The environment says what goes wrong: DICE_FAIL and DICE_WAIT name a number of sides whose cell
fails or never ends. Where DICE_SEEN names a file, every cell that is started is noted there.
"""

import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from runner import Check, Found, Study, main


@dataclass(frozen=True)
class Die:
    sides: int
    loaded: bool


CELLS = [Die(sides, loaded) for sides in (2, 6, 20) for loaded in (False, True)]


def run(die: Die, rng: np.random.Generator, runs: int) -> dict[str, float]:
    if seen := os.environ.get("DICE_SEEN"):
        with Path(seen).open("a") as file:
            file.write(f"{die.sides} {die.loaded}\n")
    if os.environ.get("DICE_FAIL") == str(die.sides):
        raise ValueError("the die fell off the table")
    while os.environ.get("DICE_WAIT") == str(die.sides):
        time.sleep(0.01)
    thrown = np.maximum(*rng.integers(1, die.sides + 1, (2, runs)))
    if not die.loaded:
        thrown = rng.integers(1, die.sides + 1, runs)
    return {"mean": thrown.mean(), "threads": float(os.environ["OMP_NUM_THREADS"]), "odd": math.nan}


def table(found: Sequence[Found[Die]]) -> None:
    for each in found:
        sys.stdout.write(f"{each['mean']:.3f} {each['odd']} of {each.runs}\n")


def checks(found: Sequence[Found[Die]]) -> Iterator[Check]:
    for each in found:
        least = 0.0 if each.cell.loaded else float(os.environ.get("DICE_LEAST", "0"))
        yield Check(f"{each.cell.sides} sides", each["mean"] >= least, f"{each['mean']:.3f}")


STUDY = Study(
    "dice",
    __doc__,
    cells=CELLS,
    quick_cells=CELLS[:2],
    run=run,
    runs=50,
    quick_runs=5,
    table=table,
    checks=checks,
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
