"""Is what `planner.needs` says enough? Its answers, held against evaluations of other scores.

    python studies/needs.py            # all cells, about five minutes
    python studies/needs.py --quick    # a few of them

A cell is a question: a metric, the half-width wanted for it, and hints. The answer, an epsilon or a
number of examples, is tried out: rows are drawn, evaluated by the plan that the planner proposes
there, and the mean half-width of the intervals is divided by the one wanted. The scores have none
of the shapes that the planner plays with, and it is told nothing of them but their number and the
share of positives.
"""

import math
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from scipy.special import expit, logit

import fedgauge as fg
from fedgauge.arrays import Floats
from fedgauge.privacy import AnyPrivacyModel
from runner import Check, Found, Study, main

CLIENTS = 10
WITHIN = 1.5
LEAST = 0.9
MOST_ROWS = 5_000_000  # that are drawn

Rows = tuple[np.ndarray, Floats]


@dataclass(frozen=True)
class Cell:
    """One question, and the scores that its answers are tried out on."""

    scores: str
    rate: float
    examples: int
    privacy: str
    metric: str
    at: float | None
    wanted: float

    @property
    def model(self) -> fg.SecureAggregation | fg.DistributedDP | fg.LocalDP:
        """The privacy model."""
        name, _, epsilon = self.privacy.partition(" ")
        if name == "sa":
            return fg.SecureAggregation()
        return (fg.DistributedDP if name == "ddp" else fg.LocalDP)(float(epsilon))


def beta(rng: np.random.Generator, n: int, rate: float) -> Rows:
    """Probabilities that are beta-distributed, and right."""
    p = rng.beta(1.2 * rate, 1.2 * (1 - rate), n)
    return rng.random(n) < p, p


def bent(rng: np.random.Generator, n: int, rate: float) -> Rows:
    """Probabilities that differ less, told too low."""
    p = rng.beta(3.0 * rate, 3.0 * (1 - rate), n)
    return rng.random(n) < p, p**1.2


def tails(rng: np.random.Generator, n: int, rate: float) -> Rows:
    """Log-odds with Student's tails, of a model that half knows the base rate."""
    labels = rng.random(n) < rate
    log_odds = 2.4 * (labels - 0.5) + rng.standard_t(5.0, n)
    return labels, expit(log_odds + 0.5 * logit(rate))


def skewed(rng: np.random.Generator, n: int, rate: float) -> Rows:
    """Log-odds of which a few are very high, in either class."""
    labels = rng.random(n) < rate
    log_odds = 1.7 * (labels - 0.5) + rng.gumbel(-0.58, 1.0, n)
    return labels, expit(log_odds + logit(rate))


def groups(rng: np.random.Generator, n: int, rate: float) -> Rows:
    """People half of whom are easy to tell apart, the others hard."""
    labels = rng.random(n) < rate
    separation = np.where(rng.random(n) < 0.5, 1.0, 3.0)
    x = rng.normal(separation * (labels - 0.5), 1.0)
    return labels, expit(separation * x + logit(rate))


def missed(rng: np.random.Generator, n: int, rate: float) -> Rows:
    """A fifth of the positives look like negatives."""
    labels = rng.random(n) < rate
    seen = labels & (rng.random(n) < 0.8)
    x = rng.normal(np.where(seen, 1.4, -1.0), 1.0)
    return labels, expit(2.2 * x + logit(rate))


def votes(rng: np.random.Generator, n: int, rate: float) -> Rows:
    """Shares of 40 trees that vote for the positive class: few values, and many of them 0."""
    p = rng.beta(3.0 * rate, 3.0 * (1 - rate), n)
    return rng.random(n) < p, rng.binomial(40, p) / 40


SCORES: dict[str, Callable[[np.random.Generator, int, float], Rows]] = {
    draw.__name__: draw for draw in (beta, bent, tails, skewed, groups, missed, votes)
}
CALIBRATION = "expected_calibration_error"
OF_POSITIVES = ("recall", "precision", "f1", "mcc", "balanced_accuracy", "youden_j", "fnr")
OF_ALL = ("accuracy", "flagged", "specificity", "fpr", "npv")
# How many times as long as without noise intervals may be: where each row is randomised, many.
TIMES = {
    "sa": (0.6, 1.5),
    "ddp 2": (0.6, 1.5, 3.0),
    "ddp 0.5": (0.8, 1.5, 3.0),
    "ddp 0.15": (1.0, 2.0),
    "ldp 6": (3.0, 6.0),
    "ldp 4": (5.0, 9.0),
}


def drawn(cells: int) -> list[Cell]:
    """Questions drawn beforehand: the privacy models in turn, every fifth about calibration.

    Thresholds lie from the share of positives to one half. What is wanted is some times what a
    share of 28% or 72% would have without noise, half of that for calibration, rounded to one
    digit as people do.
    """
    rng = np.random.default_rng(2027)
    found = []
    for number in range(cells):
        privacy = list(TIMES)[number % len(TIMES)]
        rate = float(rng.choice([0.05, 0.12, 0.3, 0.5]))
        examples = int(rng.choice([3_000, 15_000, 50_000])) * (5 if "ldp" in privacy else 1)
        metric = str(rng.choice(OF_POSITIVES + OF_ALL))
        at: float | None = round(float(rng.choice([rate, math.sqrt(rate / 2), 0.5])), 2)
        if number % 5 == 4:
            metric, at = CALIBRATION, None
        base = examples * (rate if metric in OF_POSITIVES else 1.0)
        base *= 4.0 if metric == CALIBRATION else 1.0
        wanted = float(rng.choice(TIMES[privacy])) * 1.96 * math.sqrt(0.2 / base)
        scores = str(rng.choice(list(SCORES)))
        found.append(
            Cell(scores, rate, examples, privacy, metric, at, float(f"{min(wanted, 0.2):.1g}"))
        )
    return found


def run(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """The half-width reached over the one wanted, by either answer; NaN where there is none."""
    hints = {"clients": CLIENTS, "positive_rate": cell.rate}
    question = {"metric": cell.metric, "at": cell.at}
    privacy = cell.model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fg.PrivacyWarning)
        needed = fg.planner.needs(
            cell.wanted, **question, privacy=privacy, examples=cell.examples, **hints
        )
        reached = {"epsilon": math.nan, "examples": math.nan}
        if needed.epsilon is not None:
            larger = msgspec.structs.replace(privacy, epsilon=needed.epsilon)
            reached["epsilon"] = half_width(cell, larger, cell.examples, rng, runs)
        if needed.examples is not None and needed.examples <= MOST_ROWS:
            reached["examples"] = half_width(cell, privacy, needed.examples, rng, runs)
    answers = {"needed epsilon": needed.epsilon, "needed examples": needed.examples}
    told = {name: math.nan if value is None else float(value) for name, value in answers.items()}
    told["rough"] = float(needed.caution is not None)
    return {name: value / cell.wanted for name, value in reached.items()} | told


def half_width(
    cell: Cell, privacy: AnyPrivacyModel, examples: int, rng: np.random.Generator, runs: int
) -> float:
    """The mean over evaluations of rows drawn anew; where nothing is shown, the largest."""
    plan = fg.planner.propose(
        privacy=privacy,
        clients=CLIENTS,
        examples=examples,
        positive_rate=cell.rate,
        at=cell.at,
    )
    widths = []
    for seed in range(runs):
        labels, scores = SCORES[cell.scores](rng, examples, cell.rate)
        clients = {f"s{i}": (labels[i::CLIENTS], scores[i::CLIENTS]) for i in range(CLIENTS)}
        try:
            result = fg.evaluate(clients, plan, seed=seed)
            source = result if cell.at is None else result.at_threshold(cell.at)
            estimate = getattr(source, cell.metric)
        except (fg.UndefinedMetric, fg.ResultWithheld):
            widths.append(1.0 if cell.metric in ("mcc", "youden_j") else 0.5)
            continue
        widths.append((estimate.high - estimate.low) / 2)
    return float(np.mean(widths))


def ratios(found: Iterable[Found[Cell]]) -> list[float]:
    """Of every answer that was tried out."""
    tried = [each[answer] for each in found for answer in ("epsilon", "examples")]
    return [ratio for ratio in tried if not math.isnan(ratio)]


def kept(tried: Sequence[float]) -> float:
    """The share of ratios that are close enough to 1."""
    return float(np.mean([1 / WITHIN <= ratio <= WITHIN for ratio in tried]))


def table(found: Sequence[Found[Cell]]) -> None:
    """Every answer, then shares by privacy, metric and scores."""
    print("half-width reached over the one wanted, by the epsilon and by the examples needed")
    for each in found:
        cell, shown = each.cell, [each[name] for name in ("epsilon", "examples")]
        question = cell.metric if cell.at is None else f"{cell.metric}@{cell.at:g}"
        hints = f"{cell.examples:>7,} {cell.rate:5.0%}  {cell.privacy:8}"
        answers = f"{each['needed epsilon']:8.3g} {each['needed examples']:10.3g}"
        reached = "  ".join(" -  " if math.isnan(ratio) else f"{ratio:4.2f}" for ratio in shown)
        asked = f"{hints}  {question:27} {cell.wanted:7.4g}  {cell.scores:7}"
        print(f"{asked} {answers}   {reached}{'  rough' if each['rough'] else ''}")
    for name in ("privacy", "metric", "scores", "rate", "examples"):
        values = sorted({getattr(each.cell, name) for each in found})
        for value in values:
            tried = ratios(each for each in found if getattr(each.cell, name) == value)
            if tried:
                print(f"{name} {value}: {kept(tried):.0%} of {len(tried)} within {WITHIN}")


def checks(found: Sequence[Found[Cell]]) -> Iterable[Check]:
    """The promise, over all answers that are not called rough."""
    tried, rough = (
        ratios(each for each in found if bool(each["rough"]) == is_rough)
        for is_rough in (False, True)
    )
    told = [
        f"{kept(some):.1%} of {len(some)} {what}"
        for some, what in ((tried, "answers"), (rough, "rough ones"), (tried + rough, "in all"))
        if some
    ]
    what = f"half-widths are within {WITHIN} of what was wanted in {LEAST:.0%} of answers"
    yield Check(what, bool(tried) and kept(tried) >= LEAST, ", ".join(told))


STUDY = Study(
    "needs",
    __doc__,
    cells=drawn(48),
    quick_cells=drawn(12),
    run=run,
    runs=5,
    quick_runs=3,
    table=table,
    checks=checks,
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
