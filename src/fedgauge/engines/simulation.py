"""Everything in one process: the sum is taken here, so nothing is protected on the way."""

import math
import operator
import warnings
from collections.abc import Callable, Sequence, Sized
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgauge.binning.axis import Axis
from fedgauge.binning.histogram import ScoreHistogram
from fedgauge.data.examples import Data
from fedgauge.data.files import ScoreTable
from fedgauge.data.labels import Label
from fedgauge.engines.contribution import Released, contribution, histogram_of, released
from fedgauge.engines.crowd import Clients, add_up, pairs
from fedgauge.engines.reporting import simulate_reports
from fedgauge.engines.summation import run_rounds
from fedgauge.errors import InputError, PlanError, PrivacyWarning, located
from fedgauge.estimation.distribution import Aligned, Estimator
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.plan import require_clipping
from fedgauge.plan.rounds import NO_LOCAL_SUMS, SUM_STEPS, BinaryTask
from fedgauge.planner import check_hints, propose, reference_axis
from fedgauge.privacy import (
    Cohort,
    DifferentialPrivacy,
    DistributedDP,
    LocalDP,
    PrivacyModel,
    SecureAggregation,
)
from fedgauge.privacy.keystream import Keystream, SimulatedKeystream, WordSource
from fedgauge.results.evaluation import Evaluation

Tree = Literal["auto", "flat"] | tuple[int, ...]

AUTO_BINS: Final = 4096
AUTO_NOISY_BINS: Final = 64
_LOCAL_BINS: Final = (16, 32)  # below and from the epsilon of a report where more bins pay
_WEAK_EPSILON: Final = 2.0
_EXPECTED: Final = 20  # clients, where their number is not known yet; it hardly matters


def evaluate(
    clients: Clients | ScoreTable,
    plan: EvaluationPlan | None = None,
    *,
    privacy: PrivacyModel = SecureAggregation(),
    axis: Axis | Literal["auto"] = "auto",
    tree: Tree = "auto",
    cohort: Cohort | None = None,
    estimator: Estimator = Aligned(),
    examples: int | None = None,
    positive_rate: float | None = None,
    positive: Label | None = None,
    score_sums: bool = False,
    seed: int | None = None,
    every_share: bool = False,
    summation: Literal["plain", "secure"] = "plain",
) -> Evaluation:
    """Evaluate a classifier on the data of many clients as if it were pooled.

    Parameters
    ----------
    clients
        A mapping, or an iterable, from client names to data: ``(y_true, y_score)``,
        ``Examples``, a :class:`ScoreFile`, or a function without arguments that returns
        chunks of these. An iterable is read once, client by client, in memory that does not
        grow with it. A :class:`ScoreTable` holds all clients.
    plan
        What to measure. Instead of a plan, the options from `privacy` to `score_sums` (except
        `estimator`) make one.
    privacy
        The privacy model.
    axis
        The score axis. ``"auto"`` is 4,096 bins of equal width on [0, 1] without noise; under
        differential privacy what the planner chooses from the hints, or 64 bins without hints
        (16 or 32 under local DP).
    tree
        ``"flat"``, or branchings whose product is the number of bins (and sets it, where the
        axis is ``"auto"``).
    cohort
        Who must take part; by default all the clients given, one of whom may collude.
    estimator
        How curves are drawn between bin edges.
    examples, positive_rate
        Public hints for the planner: about how many examples there are in all, and the share
        of positives. Never read from the data; listed in ``result.privacy``.
    positive
        The label of the positive class, where labels are not bool or 0/1.
    score_sums
        Also sum up the scores within each bin and class. They take a fifth of the budget of
        differential privacy, and an exact sum shows the score of an example that is alone in
        its bin.
    seed
        Makes the noise repeatable, and worthless as protection: for simulations.
    every_share
        Draw the noise share of each client on its own instead of their sum at once. The law
        is the same.
    summation
        ``"plain"`` adds up in the clear, the fast path for studies. ``"secure"`` runs the real
        protocol between the clients, all in this process: about 0.1 s for each of a thousand.

    Returns
    -------
    Evaluation
        The pooled result. It claims ``"simulated"``: this process saw every client's data.

    Examples
    --------
    >>> clients = {"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 0, 1], [0.1, 0.6, 0.4])}
    >>> evaluate(clients).roc_auc
    Estimate(0.8889, interval 0.4010..0.9884 at 95%)
    """
    _check_kinds(plan, privacy, axis, cohort, estimator, score_sums, summation)
    hints = _Hints(examples, positive_rate)
    check_hints(*hints)
    _warn_of_delta(privacy, examples)
    if plan is None:
        known = len(clients) if isinstance(clients, Sized) else 0
        expected = cohort or Cohort(known or _EXPECTED)
        chosen, branchings = _design(privacy, axis, tree, hints, expected, score_sums)
        task = BinaryTask(positive)
    else:
        _refuse_shortcuts(privacy, axis, tree, cohort, positive, hints, score_sums)
        plan.check_promise()
        chosen, task, privacy = plan.axis, plan.task, plan.privacy
    local = isinstance(privacy, LocalDP)
    if local and score_sums:
        raise PlanError(NO_LOCAL_SUMS)
    if local and (cohort is not None or summation == "secure"):
        raise PlanError(
            "under local DP every report is private by itself: leave out cohort and summation."
        )

    def made_for(cohort: Cohort) -> EvaluationPlan:
        if isinstance(privacy, LocalDP):
            return EvaluationPlan.for_reports(chosen, privacy, task=task, tree=branchings)
        return EvaluationPlan.for_histogram(
            chosen,
            cohort,
            task=task,
            tree=branchings,
            privacy=privacy,
            score_sums=score_sums,
        )

    def resolved(count: int) -> EvaluationPlan:
        """The plan for as many clients as there are."""
        made = plan or made_for(cohort or Cohort(min_survivors=count))
        if count < made.cohort.min_survivors:
            raise PlanError(
                f"the plan needs {made.cohort.min_survivors} clients and {count} took part. "
                "Add clients or lower cohort.min_survivors."
            )
        return made

    if plan is None and score_sums:
        made_for(expected)  # what cannot be is refused before any data is read
    source = Keystream() if seed is None else SimulatedKeystream(seed)
    reports = None
    if summation == "plain":
        steps = plan.sum_steps if plan else SUM_STEPS * score_sums
        total, count = add_up(clients, chosen, task.positive, privacy, sum_steps=steps)
        final = resolved(count)
        reports = total.sum() if local else None
        found = _release(total, final, count, source, every_share=every_share)
    else:
        final, found, count = _sum_securely(clients, resolved, source)
    statement = final.statement("simulated", hints.named())
    return Evaluation(
        final,
        statement,
        found.counts,
        sums=found.sums,
        clients=count,
        reports=reports,
        estimator=estimator,
    )


def _sum_securely(
    clients: Clients | ScoreTable, resolved: Callable[[int], EvaluationPlan], source: WordSource
) -> tuple[EvaluationPlan, Released, int]:
    """Every client by itself under the protocol: the plan, what is released, the survivors."""
    if isinstance(clients, ScoreTable):
        raise InputError(
            "a secure sum needs each client's data on its own. Pass a mapping of clients, or one "
            "file per client."
        )
    members = list(pairs(clients))
    plan = resolved(len(members))
    outcome = run_rounds(plan, [_Member(plan, *member, source) for member in members])
    found = released(plan, outcome.total, len(outcome.survivors))
    return plan, found, len(outcome.survivors)


class _Member:
    """What the protocol asks of a simulated client."""

    def __init__(self, plan: EvaluationPlan, name: str, data: Data, source: WordSource) -> None:
        self._plan = plan
        self._name = name
        self._data = data
        self._source = source

    def contribution(self) -> NDArray[np.int64]:
        """Its counts and its share of the noise."""
        with located(f"client {self._name!r}"):
            # As in a plain sum: who holds all data may be told that some is missing.
            private = isinstance(self._plan.privacy, DistributedDP)
            rows = histogram_of(self._plan, self._data, may_be_empty=private)
            return contribution(self._plan, rows, self._source)

    def agree(self, survivors: Sequence[bytes]) -> None:
        """There is nobody to refuse anything."""


class _Hints(NamedTuple):
    """What the caller says is publicly known."""

    examples: int | None
    positive_rate: float | None

    def named(self) -> tuple[str, ...]:
        """The hints given, for the record."""
        return tuple(
            f"{name} {value}" for name, value in self._asdict().items() if value is not None
        )


def _design(
    privacy: PrivacyModel,
    axis: Axis | str,
    tree: Tree,
    hints: _Hints,
    expected: Cohort,
    score_sums: bool,
) -> tuple[Axis, tuple[int, ...]]:
    """Axis and tree, from what is public; `expected` is who is likely to take part."""
    noisy = isinstance(privacy, DifferentialPrivacy)
    if isinstance(axis, Axis):
        if noisy:
            require_clipping(axis)
        return axis, _branchings(tree, axis.bins)
    bins = AUTO_NOISY_BINS if noisy else AUTO_BINS
    if isinstance(privacy, LocalDP):
        bins = _LOCAL_BINS[privacy.epsilon >= _WEAK_EPSILON]
    if not isinstance(tree, str):
        bins = math.prod(_branchings(tree, None))
    if noisy and hints.named():
        examples, rate = check_hints(*hints)
        if tree == "auto":
            plan = propose(
                privacy=privacy,
                clients=expected.min_survivors,
                cohort=expected,
                examples=examples,
                positive_rate=rate,
                score_sums=score_sums,
            )
            return plan.axis, plan.tree
        return reference_axis(bins, rate), _branchings(tree, bins)
    uniform = Axis.uniform(bins, outside="clip" if noisy else "refuse")
    return uniform, _branchings(tree, bins)


def _warn_of_delta(privacy: PrivacyModel, examples: int | None) -> None:
    delta = privacy.delta if isinstance(privacy, DistributedDP) else None
    if delta and examples and delta >= 1 / examples:
        warnings.warn(
            f"delta {delta:g} is not below 1 / {examples:,}, the share of one example: it would "
            "allow to publish one now and then.",
            PrivacyWarning,
            stacklevel=3,
        )


def _release(
    total: ScoreHistogram,
    plan: EvaluationPlan,
    clients: int,
    source: WordSource,
    *,
    every_share: bool,
) -> Released:
    """What leaves the sum: it and the noise of all clients, read as a secure sum is."""
    if plan.oracles:
        return Released(simulate_reports(plan, total, source), None)
    if not plan.rounds[0].noise:
        return Released(total.counts, total.sums)
    parts = total.levels(plan.tree)
    if total.sums is not None:
        parts.append(total.sums)
    for _ in range(clients if every_share else 1):
        shares = 1 if every_share else clients
        laws = [*plan.noise_laws(shares), plan.sums_law(shares)]
        for place, law in enumerate(law for law in laws if law is not None):
            parts[place] = parts[place] + law.draw(source, parts[place].shape)
    return released(plan, np.concatenate([part.ravel() for part in parts]), clients)


def _check_kinds(
    plan: Any,
    privacy: Any,
    axis: Any,
    cohort: Any,
    estimator: Any,
    score_sums: Any,
    summation: Any,
) -> None:
    for name, value, fits, wanted in (
        ("plan", plan, plan is None or isinstance(plan, EvaluationPlan), "an EvaluationPlan"),
        ("privacy", privacy, isinstance(privacy, PrivacyModel), "such as SecureAggregation()"),
        ("axis", axis, isinstance(axis, Axis) or axis == "auto", "'auto' or an Axis"),
        ("cohort", cohort, cohort is None or isinstance(cohort, Cohort), "a Cohort"),
        ("estimator", estimator, isinstance(estimator, Estimator), "such as Aligned()"),
        ("score_sums", score_sums, isinstance(score_sums, bool), "True or False"),
        ("summation", summation, summation in ("plain", "secure"), "'plain' or 'secure'"),
    ):
        if not fits:
            got = repr(value) if isinstance(value, str) else type(value).__name__
            raise PlanError(f"{name} must be {wanted}, got {got}.")


def _refuse_shortcuts(
    privacy: PrivacyModel,
    axis: Axis | str,
    tree: Tree,
    cohort: Cohort | None,
    positive: Label | None,
    hints: _Hints,
    score_sums: bool,
) -> None:
    given = {
        "privacy": privacy != SecureAggregation(),
        "axis": axis != "auto",
        "tree": tree != "auto",
        "cohort": cohort is not None,
        "positive": positive is not None,
        "hints": bool(hints.named()),
        "score_sums": score_sums,
    }
    named = [name for name, is_given in given.items() if is_given]
    if named:
        raise PlanError(
            f"a plan already says {', '.join(named)}. Pass the plan or these, not both."
        )


def _branchings(tree: Tree, bins: int | None) -> tuple[int, ...]:
    if isinstance(tree, str):
        if tree not in ("auto", "flat") or bins is None:
            raise PlanError(
                f"tree must be 'auto', 'flat' or branchings such as (16, 16), got {tree!r}."
            )
        return (bins,)
    try:
        branchings = tuple(operator.index(branching) for branching in tree)
    except TypeError:
        raise PlanError("the branchings of a tree must be whole numbers.") from None
    if not branchings or min(branchings) < 1:
        raise PlanError("the branchings of a tree must be positive, such as (16, 16).")
    return branchings
