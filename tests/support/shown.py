"""Results of every kind that a page is made of, and what the library says where a page shows it."""

import numpy as np
from cases import CASES, clients

import fedgauge as fg
from fedgauge.measures.intervals import show

LONG = "people who were asked and did not answer, whatever the reason was"


def _rows(seed, rows=400):
    rng = np.random.default_rng(seed)
    positive = rng.random(rows) < 0.3
    return rng, positive, np.clip(rng.normal(0.35 + 0.25 * positive, 0.2), 0, 1)


def _classes(seed):
    rng, _, _ = _rows(seed)
    labels = rng.integers(0, 3, 400)
    scores = np.exp(rng.normal(size=(400, 3)) + 1.5 * np.eye(3)[labels])
    names = np.array(["cat", "dog", "<b>owl</b>"])
    return fg.Examples(names[labels], scores / scores.sum(axis=1, keepdims=True))


def _groups(seed):
    rng, positive, scores = _rows(seed)
    return fg.Examples(positive, scores, group=rng.choice(["women", "men", LONG], 400))


def _models(seed):
    rng, positive, scores = _rows(seed)
    return fg.Examples(positive, {"new": scores, "old": rng.permutation(scores)})


def _parties():
    _, positive, scores = _rows(1)
    names = [f"row {place}" for place in range(len(scores))]
    labels = dict(zip(names, positive.astype(int).tolist(), strict=True))
    halves = {"a": names[:200], "b": names[200:]}
    return fg.evaluate_vertical(
        dict(zip(names, scores.tolist(), strict=True)),
        {party: {name: labels[name] for name in held} for party, held in halves.items()},
        privacy=fg.DistributedDP(4.0, unit="label", neighbours="flip"),
        seed=1,
    )


def _three(make):
    return {site: make(place) for place, site in enumerate("abc")}


REPORTS = {
    "exact sum": lambda: fg.evaluate(clients(), axis=fg.Axis.uniform(256)),
    "distributed noise": CASES["polya-tree"],
    "local reports": CASES["local-oue"],
    "classes": lambda: fg.evaluate(
        _three(_classes),
        task=fg.MulticlassTask(labels=["cat", "dog", "<b>owl</b>"]),
        axis=fg.Axis.uniform(32),
    ),
    "groups": lambda: fg.evaluate(
        _three(_groups), groups=["women", "men", LONG], axis=fg.Axis.uniform(32)
    ),
    "models": lambda: fg.evaluate(_three(_models), models=["new", "old"], axis=fg.Axis.uniform(32)),
    "label parties": _parties,
    "no signal": CASES["no-signal"],
    "one class": CASES["one-class"],
}


def at(result, label):
    """What the library says at the threshold that a page calls `label`."""
    ends = {"above all scores": np.inf, "below all scores": -np.inf}
    if label in ends:
        return result.at_threshold(ends[label])
    edges = result.pooled.axis.thresholds
    return result.at_threshold(float(edges[np.abs(edges - float(label)).argmin()]))


def told(holder, metric):
    """A metric as the page tells it: value and interval, in the library's digits."""
    try:
        estimate = getattr(holder, metric)
    except fg.UndefinedMetric:
        return ["undefined", ""]
    interval = estimate.interval
    return [_read(estimate.value), "" if interval is None else " to ".join(map(_read, interval))]


def _read(number):
    return show(number).replace("-0.0000", "0.0000")
