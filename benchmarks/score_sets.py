"""Thirty sets of real scores, of which twelve are kept for one final check.

    python benchmarks/score_sets.py            train what is missing, and print a table

Six models on UCI Adult, UCI Bank Marketing (both at `../shared/data`) and scikit-learn's digits,
where positive is a digit of 5 or more. Settings are the library's, except: rounds enough to
converge (logistic), 25 neighbours on Adult and Bank (digits keep 5), and one hidden layer of 32
with early stopping (network). Texts are numbered in the order of their alphabet, and features
standardised by the rows that a model was fitted on.

Adult and Bank are cut into random halves. A model is fitted on one: "training" are its scores of
the same rows, "test" of the other half. Digits have "test" only, from five folds.

The rule of the split was fixed before anything was measured: of the sorted pairs of data and
model of Adult and Bank, shuffled by `random.Random(0)`, the first five are final, of those of
digits the first two. Both kinds of rows of a pair fall on the same side.

Scores are the same in each training on one machine with the same libraries. They are kept in
`.benchmarks/score_sets`: remove that folder after a change of this file or of scikit-learn.
"""

import argparse
import os
import random
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
CACHE = ROOT / ".benchmarks" / "score_sets"
FILES = {"adult": "adult.data.gz", "bank": "bank-full.csv.gz"}
MODELS = ("bayes", "boosting", "forest", "knn", "logistic", "network")

Side = Literal["development", "final", "all"]


class ScoreSet(NamedTuple):
    """Scores that one model gave to the rows of one data set."""

    name: str
    labels: np.ndarray
    scores: np.ndarray


def _first_of_shuffled(pairs: list[str], count: int) -> frozenset[str]:
    shuffled = sorted(pairs)
    random.Random(0).shuffle(shuffled)  # noqa: S311 (a split anyone can repeat)
    return frozenset(shuffled[:count])


_HALVED = [f"{data} {model}" for data in FILES for model in MODELS]
_FOLDED = [f"digits {model}" for model in MODELS]
PAIRS = tuple(sorted([*_HALVED, *_FOLDED]))
FINAL_PAIRS = _first_of_shuffled(_HALVED, 5) | _first_of_shuffled(_FOLDED, 2)


def names(side: Side = "all") -> tuple[str, ...]:
    """Names of the sets on a side of the split, such as "adult forest training"."""
    if side not in ("development", "final", "all"):
        raise ValueError(f'The sides are "development", "final" and "all", not {side!r}.')
    pairs = [pair for pair in PAIRS if side in ("all", _side(pair))]
    return tuple(f"{pair} {rows}" for pair in pairs for rows in _kinds_of_rows(pair))


def load(name: str, cache: Path = CACHE, data: Path = DATA) -> ScoreSet:
    """One set; its model is trained if the cache does not have it."""
    if name not in names():
        raise ValueError(f"No set is named {name!r}. names() lists them.")
    path = _path(name, cache)
    if not path.exists():
        _train(name.rsplit(" ", 1)[0], cache, data)
    with np.load(path) as arrays:
        return ScoreSet(name, arrays["labels"], arrays["scores"])


def prepare(
    side: Side = "all", cache: Path = CACHE, data: Path = DATA, jobs: int = 2
) -> tuple[str, ...]:
    """Train what the cache lacks. Names that can be loaded: without `data` maybe not all."""
    from joblib import Parallel, delayed

    console = Console(stderr=True)
    lacking = [name for name in names(side) if not _path(name, cache).exists()]
    pairs = sorted({name.rsplit(" ", 1)[0] for name in lacking})
    possible = [pair for pair in pairs if _has_rows(pair, data)]
    if len(possible) < len(pairs):
        console.print(
            f"Not all of {' and '.join(FILES.values())} are at {data}: "
            "sets that need what is absent are left out."
        )
    work = (delayed(_train)(pair, cache, data) for pair in possible)
    trained = Parallel(n_jobs=jobs, return_as="generator_unordered")(work)
    for number, pair in enumerate(trained, start=1):
        console.print(f"trained {pair} ({number} of {len(possible)})", highlight=False)
    return tuple(name for name in names(side) if _path(name, cache).exists())


def _side(pair: str) -> Side:
    return "final" if pair in FINAL_PAIRS else "development"


def _kinds_of_rows(pair: str) -> tuple[str, ...]:
    return ("test", "training") if pair in _HALVED else ("test",)


def _path(name: str, cache: Path) -> Path:
    return cache / f"{name.replace(' ', '_')}.npz"


def _has_rows(pair: str, data: Path) -> bool:
    return pair in _FOLDED or (data / FILES[pair.split()[0]]).is_file()


def _train(pair: str, cache: Path, data: Path) -> str:
    """Fit the model of a pair, and keep its scores of each kind of rows."""
    from threadpoolctl import threadpool_limits

    dataset, model = pair.split()
    with threadpool_limits(1):  # sums of floats in another order would be other scores
        if pair in _FOLDED:
            scored = _of_folds(model)
        else:
            scored = _of_halves(model, *_table(dataset, data))
    cache.mkdir(parents=True, exist_ok=True)
    for rows, (labels, scores) in scored.items():
        path = _path(f"{pair} {rows}", cache)
        part = path.with_suffix(f".{os.getpid()}.part")
        with part.open("wb") as file:
            np.savez_compressed(file, labels=labels, scores=scores.astype(np.float64))
        part.replace(path)  # whole or absent, also if two processes train the same
    return pair


def _table(dataset: str, data: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of Adult or Bank."""
    from pyarrow import csv

    path = data / FILES[dataset]
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is absent. Only sets of digits can be trained without it: put it there, "
            "or name the folder that has it."
        )
    adult = dataset == "adult"
    table = csv.read_csv(
        path,
        read_options=csv.ReadOptions(autogenerate_column_names=adult),
        parse_options=csv.ParseOptions(delimiter="," if adult else ";"),
    )
    *features, labels = (column.to_numpy() for column in table.columns)
    positive = np.array([label.strip() in (">50K", "yes") for label in labels])
    return np.column_stack([_numbers(column) for column in features]), positive


def _numbers(column: np.ndarray) -> np.ndarray:
    if column.dtype != object:
        return column.astype(np.float64)
    return np.unique(column.astype(str), return_inverse=True)[1].astype(np.float64)


def _of_halves(
    model: str, features: np.ndarray, labels: np.ndarray
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    order = np.random.default_rng(0).permutation(len(labels))
    fitted_on, other = np.split(order, [len(order) // 2])
    classifier = _classifier(model, neighbours=25)
    classifier.fit(features[fitted_on], labels[fitted_on])
    return {
        rows: (labels[at], classifier.predict_proba(features[at])[:, 1])
        for rows, at in (("test", other), ("training", fitted_on))
    }


def _of_folds(model: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import cross_val_predict

    features, digits = load_digits(return_X_y=True)
    labels = digits >= 5
    classifier = _classifier(model, neighbours=5)
    scores = cross_val_predict(classifier, features, labels, cv=5, method="predict_proba")
    return {"test": (labels, scores[:, 1])}


def _classifier(model: str, neighbours: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    models = {
        "bayes": GaussianNB(),
        "boosting": HistGradientBoostingClassifier(random_state=0),
        "forest": RandomForestClassifier(random_state=0),
        "knn": KNeighborsClassifier(n_neighbors=neighbours),
        "logistic": LogisticRegression(max_iter=1000),
        "network": MLPClassifier(hidden_layer_sizes=(32,), early_stopping=True, random_state=0),
    }
    return make_pipeline(StandardScaler(), models[model])


def _described(scored: ScoreSet) -> list[str]:
    from sklearn.metrics import roc_auc_score

    labels, scores = scored.labels, scored.scores
    distinct, counts = np.unique(scores, return_counts=True)
    return [
        f"{len(scores):,}",
        f"{labels.mean():.3f}",
        f"{roc_auc_score(labels, scores):.3f}",
        f"{len(distinct):,}",
        f"{counts.max() / len(scores):.3f}",
        f"{(scores < 0.01).mean():.3f}",
        f"{(scores > 0.99).mean():.3f}",
        f"{scores.mean():.3f}",
    ]


def main() -> None:
    """Train what is missing, and print what the sets are like."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder of Adult and Bank")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of trained scores")
    options = parser.parse_args()
    table = Table(title="Sets of real scores", title_justify="left")
    table.add_column("set", no_wrap=True)
    table.add_column("side")
    for heading in ("rows", "positive", "AUC", "distinct", "mode"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("< .01", "> .99", "mean"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name in prepare("all", options.cache, options.data):
        side = _side(name.rsplit(" ", 1)[0])
        table.add_row(name, side, *_described(load(name, options.cache)))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
