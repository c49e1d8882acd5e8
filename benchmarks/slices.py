"""Ten classes in five groups over 100 sites: time and memory against scikit-learn on pooled rows.

Both sides find the one-vs-rest ROC AUC, macro average, and the macro average precision of all rows
and of every group, and the confusion matrix. Each runs in a process of its own. It makes the rows,
which count towards its peak of memory, but not towards its time.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np

CLASSES, SITES = 10, 100
GROUPS = ("north", "east", "south", "west", "centre")
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


def make(rows: int) -> Rows:
    """Labels, probabilities of all classes, and groups."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, rows)
    scores = rng.normal(size=(rows, CLASSES))
    scores[np.arange(rows), labels] += 1.5
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return labels, scores, np.array(GROUPS)[rng.integers(0, len(GROUPS), rows)]


def ours(labels: np.ndarray, scores: np.ndarray, groups: np.ndarray) -> list[float]:
    """The numbers from a sum over sites."""
    import fedgauge as fg

    parts = zip(*(np.array_split(each, SITES) for each in (labels, scores, groups)), strict=True)
    sites = {f"site {number}": fg.Examples(y, s, group=g) for number, (y, s, g) in enumerate(parts)}
    task = fg.MulticlassTask(labels=range(CLASSES), groups={"region": GROUPS}, also=["confusion"])
    result = fg.evaluate(sites, task=task)
    told = []
    for part in (result, *(result.select(group=name) for name in GROUPS)):
        told += [part.macro("roc_auc").value, part.macro("average_precision").value]
    return told + result.confusion_matrix().normalized("all").ravel().tolist()


def scikit_learn(labels: np.ndarray, scores: np.ndarray, groups: np.ndarray) -> list[float]:
    """The same from the pooled rows."""
    from sklearn import metrics

    told = []
    for rows in (slice(None), *(groups == name for name in GROUPS)):
        y, s = labels[rows], scores[rows]
        told.append(metrics.roc_auc_score(y, s, multi_class="ovr"))
        told.append(metrics.average_precision_score(y, s))
    said = scores.argmax(axis=1)
    return told + metrics.confusion_matrix(labels, said, normalize="all").ravel().tolist()


CONTESTANTS = {"fedgauge": ours, "scikit-learn": scikit_learn}


def peak() -> float:
    """Most memory that this process ever had, in MiB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def measure(contestant: str, rows: int) -> None:
    """Print what one of them takes, and finds."""
    made, run = make(rows), CONTESTANTS[contestant]
    run(*(each[:2000] for each in made))  # what is loaded is not counted
    start = time.process_time()
    told = run(*made)
    taken = {"seconds": time.process_time() - start, "mebibytes": peak()}
    print(json.dumps(taken | {"of rows": sum(each.nbytes for each in made) / 2**20, "told": told}))


def main() -> None:
    """Print both, and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--contestant", choices=CONTESTANTS, help="run this one alone, in here")
    options = parser.parse_args()
    if options.contestant:
        measure(options.contestant, options.rows)
        return
    found = {}
    for name in CONTESTANTS:
        command = [sys.executable, __file__, "--contestant", name, "--rows", str(options.rows)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found[name] = json.loads(printed)
        seconds, memory, rows = (found[name][key] for key in ("seconds", "mebibytes", "of rows"))
        print(
            f"{name:>12}: {seconds:5.2f} s of a processor, peak {memory:.0f} MiB, rows {rows:.0f}"
        )
    mine, theirs = found.values()
    where = f"{options.rows:,} rows, {CLASSES} classes, {len(GROUPS)} groups, {SITES} sites"
    off = np.abs(np.subtract(mine["told"], theirs["told"])).max()
    print(
        f"{where}: {theirs['seconds'] / mine['seconds']:.1f}x faster, "
        f"{mine['mebibytes'] / theirs['mebibytes']:.2f}x the memory, all numbers within {off:.0e}"
    )


if __name__ == "__main__":
    main()
