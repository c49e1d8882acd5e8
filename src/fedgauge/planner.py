"""Choose an axis, a tree and noise from public hints, and predict the errors they give.

The planner never sees data. It plays the evaluation through on score distributions that
are plausible for the hints, with the noise the privacy model asks for, and takes the
design with the least error. All of it is repeatable: same hints, same plan.
"""

import math
import warnings
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from numbers import Real
from typing import Final, NamedTuple

import msgspec
import numpy as np
from scipy.special import expit, logit, ndtr

from fedgauge.binning.axis import Axis
from fedgauge.data.examples import Label
from fedgauge.errors import PlanError, PrivacyWarning, UndefinedMetric
from fedgauge.estimation.distribution import Aligned, estimate
from fedgauge.estimation.pooled import redraw
from fedgauge.estimation.repair import monotone
from fedgauge.measures import curves
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.plan import Prediction
from fedgauge.plan.task import BinaryTask
from fedgauge.privacy import AnyPrivacyModel, Cohort, DistributedDP, PrivacyModel
from fedgauge.privacy.distributed import SUMS_SHARE
from fedgauge.typing import Floats

DEFAULT_EXAMPLES: Final = 10_000
DEFAULT_POSITIVE_RATE: Final = 0.2
EXACT_BINS: Final = 4096

_FINE: Final = 12_288  # divisible by every number of bins below
_REFERENCE_TREES: Final = (
    *((bins,) for bins in (8, 12, 16, 24, 32, 48, 64, 96, 128)),
    *((first, second) for first, second in ((8, 8), (16, 8), (16, 16), (32, 16))),
)
_UNIFORM_TREES: Final = ((16,), (32,), (64,), (128,), (16, 16))
_FEW_DRAWS: Final = 6
_DRAWS: Final = 24
_PROMISING: Final = 5
_AT: Final = (np.arange(400) + 0.5) / 400
_POINTS: Final = 9  # on a piece, enough for a mean over the curve
_DIGITS: Final = 9
_LOG_ODDS: Final = (-45.0, 30.0)  # float64 tells no finer scores apart close to 1
_SECANT_STEPS: Final = 5
_CLOSE_ENOUGH: Final = 0.07


class Shape(NamedTuple):
    """Scores whose log-odds are normal in each class.

    `separation` is the distance of the class means in standard deviations of the negatives,
    `spread` the standard deviation of the positives over that of the negatives, `slope` how
    much too confident the scores are (1: calibrated), `calibrated` whether they know the base
    rate.
    """

    separation: float
    spread: float = 1.0
    slope: float = 1.0
    calibrated: bool = True

    def cumulative(self, log_odds: Floats, positive_rate: float) -> tuple[Floats, Floats]:
        """Shares of negatives and of positives with log-odds up to each value."""
        base = float(logit(positive_rate)) if self.calibrated else 0.0
        x = (log_odds / self.slope - base) / self.separation
        half = self.separation / 2
        return ndtr(x + half), ndtr((x - half) / self.spread)


# What models in use look like: weak to strong, well calibrated or not.
SHAPES: Final = (
    Shape(1.2),
    Shape(2.0),
    Shape(2.8),
    Shape(1.8, spread=1.5),
    Shape(2.0, slope=1.8),
    Shape(1.8, calibrated=False),
)


@lru_cache(maxsize=64)
def reference_axis(bins: int, positive_rate: float) -> Axis:
    """Bins that plausible scores fill about equally, both classes counting the same.

    A quarter of the bins is spread evenly over [0, 1], whatever the scores may be.
    """
    inner = _reference_quantiles(bins, positive_rate)
    # Rounded, so that the last bits of a machine's arithmetic do not reach the plan; towards
    # the nearer end, so that edges close to 1 stay apart.
    near_zero = [float(f"{p:.{_DIGITS}g}") for p in expit(inner[inner <= 0])]
    near_one = [float(1 - Decimal(f"{q:.{_DIGITS}g}")) for q in expit(-inner[inner > 0])]
    return Axis.from_edges([0.0, *near_zero, *near_one, 1.0], outside="clip")


def _reference_quantiles(bins: int, positive_rate: float) -> Floats:
    """Inner edges of the reference axis in log-odds."""
    log_odds = np.linspace(*_LOG_ODDS, 30_001)
    shapes = [np.mean(shape.cumulative(log_odds, positive_rate), axis=0) for shape in SHAPES]
    filled = 0.25 * expit(log_odds) + 0.75 * np.mean(shapes, axis=0)
    filled = (filled - filled[0]) / (filled[-1] - filled[0])
    return np.interp(np.arange(1, bins) / bins, filled, log_odds)


def propose(
    *,
    privacy: AnyPrivacyModel,
    clients: int,
    examples: int | None = None,
    positive_rate: float | None = None,
    cohort: Cohort | None = None,
    positive: Label | None = None,
    score_sums: bool = False,
) -> EvaluationPlan:
    """A resolved plan for what is publicly known, with the errors to expect.

    Parameters
    ----------
    privacy
        The privacy model.
    clients
        How many clients will take part.
    examples, positive_rate
        About how many examples there are in all, and the share of positives: public
        knowledge or guesses, never read from the data. By default 10,000 and 0.2.
    cohort
        Who must take part; by default all clients, one of whom may collude.
    positive
        The label of the positive class, where labels are not bool or 0/1.
    score_sums
        Whether the sums of scores within bins are sent, too. Under differential privacy the
        counts are then left with less of the budget, which the errors account for.

    Returns
    -------
    EvaluationPlan
        Its ``predicted`` holds the Area Errors and the AUC error to expect.
    """
    n, rate = check_hints(examples, positive_rate)
    if not isinstance(privacy, PrivacyModel):
        raise PlanError(f"privacy must be such as DistributedDP(1.0), got {privacy!r}.")
    cohort = None if privacy.sends_reports else cohort or Cohort(min_survivors=clients)
    task = BinaryTask(positive)
    if not privacy.adds_noise:
        axis = Axis.uniform(EXACT_BINS, outside="clip")
        plan = _candidate(axis, (axis.bins,), cohort, task, privacy, score_sums=score_sums)
        return plan.with_prediction(predict(plan, examples=n, positive_rate=rate))
    designs = [(reference_axis(math.prod(tree), rate), tree) for tree in _REFERENCE_TREES]
    designs += [(Axis.uniform(math.prod(tree), outside="clip"), tree) for tree in _UNIFORM_TREES]
    candidates = [
        _candidate(axis, tree, cohort, task, privacy, score_sums=score_sums)
        for axis, tree in designs
    ]
    promising = _best(candidates, n, rate, draws=_FEW_DRAWS)[:_PROMISING]
    best = _best(promising, n, rate, draws=_DRAWS)[0]
    return best.with_prediction(predict(best, examples=n, positive_rate=rate))


def _candidate(
    axis: Axis,
    tree: tuple[int, ...],
    cohort: Cohort | None,
    task: BinaryTask,
    privacy: AnyPrivacyModel,
    *,
    score_sums: bool,
) -> EvaluationPlan:
    return EvaluationPlan.under(
        privacy, axis, cohort=cohort, task=task, tree=tree, score_sums=score_sums
    )


def _best(
    plans: list[EvaluationPlan], examples: int, positive_rate: float, *, draws: int
) -> list[EvaluationPlan]:
    """The plans by error, least first."""

    def error(plan: EvaluationPlan) -> float:
        # Every shape counts the same, whatever the size of its errors: geometric means.
        played = _play(plan, examples, positive_rate, draws)
        return float(np.log(played[:, :2]).mean())

    return sorted(plans, key=error)


class Needs(NamedTuple):
    """What a wanted error takes: this epsilon with the data there is, or this much data."""

    epsilon: float
    examples: int


def needs(
    roc_area_error: float,
    *,
    privacy: DistributedDP,
    clients: int,
    examples: int | None = None,
    positive_rate: float | None = None,
    cohort: Cohort | None = None,
    score_sums: bool = False,
) -> Needs:
    """The epsilon, or the number of examples, that brings the ROC Area Error to a wanted value.

    `score_sums` says whether these take their share of epsilon.
    """
    n, rate = check_hints(examples, positive_rate)
    if not isinstance(privacy, DistributedDP):
        raise PlanError("privacy must be DistributedDP: without noise there is nothing to trade.")
    if not 0 < roc_area_error < 0.5:
        raise PlanError(f"a wanted error lies between 0 and 0.5, got {roc_area_error!r}.")

    if score_sums:
        privacy.require_polya()
    # Curves come from the counts: asked without sums, also where their noise would be too wide.
    for_counts = privacy.epsilon * float(1 - SUMS_SHARE if score_sums else 1)

    def error(scale: float, *, by_epsilon: bool) -> float:
        epsilon = for_counts * scale if by_epsilon else for_counts
        asked = msgspec.structs.replace(privacy, epsilon=epsilon)
        plan = propose(
            privacy=asked,
            clients=clients,
            cohort=cohort,
            examples=n if by_epsilon else max(2, round(n * scale)),
            positive_rate=rate,
        )
        assert plan.predicted is not None  # noqa: S101  (propose predicts)
        return plan.predicted.roc_area_error

    def solve(*, by_epsilon: bool) -> float:
        # The error falls about like a power of epsilon or n: a secant in logarithms.
        scale, slope = 1.0, -0.9
        found = error(scale, by_epsilon=by_epsilon)
        for _ in range(_SECANT_STEPS):
            step = (roc_area_error / found) ** (1 / slope)
            before, scale = (scale, found), scale * min(max(step, 1e-3), 1e3)
            found = error(scale, by_epsilon=by_epsilon)
            if abs(math.log(found / roc_area_error)) < _CLOSE_ENOUGH or scale == before[0]:
                break
            measured = math.log(found / before[1]) / math.log(scale / before[0])
            slope = min(max(measured, -1.5), -0.4)
        return scale

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return Needs(
            epsilon=privacy.epsilon * solve(by_epsilon=True),
            examples=round(n * solve(by_epsilon=False)),
        )


def check_hints(examples: int | None, positive_rate: float | None) -> tuple[int, float]:
    """The hints, or what stands in for them."""
    n = DEFAULT_EXAMPLES if examples is None else examples
    rate = DEFAULT_POSITIVE_RATE if positive_rate is None else positive_rate
    if not _is_real(n) or not 2 <= n < 2**62:
        raise PlanError(f"examples must be at least 2, got {examples!r}.")
    if not _is_real(rate) or not 0 < rate < 1:
        raise PlanError(f"positive_rate must lie between 0 and 1, got {positive_rate!r}.")
    return int(n), float(rate)


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def predict(plan: EvaluationPlan, *, examples: int, positive_rate: float) -> Prediction:
    """Errors to expect of a plan: the mean over plausible shapes of scores."""
    roc, pr, auc = _play(plan, examples, positive_rate, _DRAWS).mean(axis=0)
    return Prediction(float(roc), float(pr), float(auc))


def _play(plan: EvaluationPlan, examples: int, positive_rate: float, draws: int) -> Floats:
    """Mean errors of a plan for each shape, by playing the evaluation through."""
    contributions = examples if plan.cohort is None else plan.cohort.min_survivors
    variances = plan.noise_variances(contributions)
    return _played(plan, variances, examples, positive_rate, draws)


@lru_cache(maxsize=4096)
def _played(
    plan: EvaluationPlan,
    variances: tuple[float, ...],
    examples: int,
    positive_rate: float,
    draws: int,
) -> Floats:
    means = []
    for counts, truth, rng in _worlds(plan.axis, examples, positive_rate):
        runs = [
            _errors(plan, counts, truth, variances, rng) for _ in range(draws if variances else 1)
        ]
        means.append(np.mean(runs, axis=0))
    return np.array(means)


class _Truth(NamedTuple):
    """What the pooled data would show, at fixed abscissas."""

    tpr: Floats
    precision: Floats
    auc: float


def _worlds(
    axis: Axis, examples: int, positive_rate: float
) -> Iterator[tuple[Floats, _Truth, np.random.Generator]]:
    """Counts on the axis and the exact curves, for data drawn from each shape."""
    # Finer than the axis: within its bins, and of about equal mass.
    quantiles = expit(_reference_quantiles(_FINE, positive_rate))
    fine = np.unique(np.concatenate([axis.edges, quantiles]))
    with np.errstate(divide="ignore"):
        log_odds = logit(fine)
    owner = np.clip(np.searchsorted(axis.edges, fine[:-1], side="right") - 1, 0, axis.bins - 1)
    for seed, shape in enumerate(SHAPES):
        rng = np.random.default_rng(seed)
        positives = max(1, min(examples - 1, round(examples * positive_rate)))
        sizes = (examples - positives, positives)
        cumulative = shape.cumulative(log_odds, positive_rate)
        drawn = np.array(
            [
                rng.multinomial(size, np.diff(c) / np.diff(c).sum())
                for size, c in zip(sizes, cumulative, strict=True)
            ],
            dtype=np.float64,
        )
        counts = np.array([np.bincount(owner, row, minlength=axis.bins) for row in drawn])
        yield counts, _truth(drawn), rng


def _truth(drawn: Floats) -> _Truth:
    from_top = np.cumsum(drawn[:, ::-1], axis=1)
    wrong, found = (np.append(0.0, row) for row in from_top)
    fpr, tpr = wrong / wrong[-1], found / found[-1]
    at_recall = np.clip(np.searchsorted(tpr, _AT), 1, None)
    precision = found[at_recall] / (found[at_recall] + wrong[at_recall])
    auc = float(np.sum(np.diff(fpr) * (tpr[1:] + tpr[:-1]) / 2))
    return _Truth(np.interp(_AT, fpr, tpr), precision, auc)


def _errors(
    plan: EvaluationPlan,
    counts: Floats,
    truth: _Truth,
    variances: tuple[float, ...],
    rng: np.random.Generator,
) -> tuple[float, float, float]:
    if variances:
        counts = redraw(
            counts, plan.tree, variances, rng, node_variances=plan.node_variances(counts)
        )
    try:
        d = estimate(plan.axis, monotone(counts), Aligned())
    except UndefinedMetric:  # nothing left of a class: as wrong as chance
        return 0.5, 0.5, 0.5
    fpr, tpr = curves.roc_curve(d).path.sample(_POINTS)
    recall, precision = curves.pr_curve(d).path.sample(_POINTS)
    return (
        float(np.abs(np.interp(_AT, fpr, tpr) - truth.tpr).mean()),
        float(np.abs(np.interp(_AT, recall, precision) - truth.precision).mean()),
        abs(float(np.sum(np.diff(fpr) * (tpr[1:] + tpr[:-1]) / 2)) - truth.auc),
    )
