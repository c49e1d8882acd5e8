"""Everything in one process: the sum is taken here, so nothing is protected on the way."""

import math
import operator
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgauge.axis import Axis
from fedgauge.distribution import Aligned, Estimator
from fedgauge.errors import InputError, PlanError, PrivacyWarning, located
from fedgauge.evaluation import Evaluation
from fedgauge.files import ScoreFile, ScoreTable
from fedgauge.histogram import ScoreHistogram
from fedgauge.plan import BinaryTask, EvaluationPlan, require_clipping
from fedgauge.planner import check_hints, propose, reference_axis
from fedgauge.privacy import Cohort, DistributedDP, PrivacyModel, SecureAggregation
from fedgauge.privacy.keystream import Keystream, SimulatedKeystream, WordSource
from fedgauge.privacy.units import UnitLimiter, limit_rows
from fedgauge.repair import consistent
from fedgauge.scores import Data, Examples, Label, read_batches

Clients = Mapping[str, Data] | Iterable[tuple[str, Data]]
Tree = Literal["auto", "flat"] | tuple[int, ...]

AUTO_BINS: Final = 4096
AUTO_NOISY_BINS: Final = 64
_SMALL: Final = 1024  # rows of a client that is counted with others
_TOGETHER_ROWS: Final = 16_384
_TOGETHER_CLIENTS: Final = 1024
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
    seed: int | None = None,
    every_share: bool = False,
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
        What to measure. Instead of a plan, the options from `privacy` to `positive` (except
        `estimator`) make one.
    privacy
        The privacy model.
    axis
        The score axis. ``"auto"`` is 4,096 bins of equal width on [0, 1] without noise; under
        differential privacy what the planner chooses from the hints, or 64 bins without hints.
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
    seed
        Makes the noise repeatable, and worthless as protection: for simulations.
    every_share
        Draw the noise share of each client on its own instead of their sum at once. The law
        is the same.

    Returns
    -------
    Evaluation
        The pooled result. It claims ``"simulated"``: this process saw every client's data.

    Examples
    --------
    >>> clients = {"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 0, 1], [0.1, 0.6, 0.4])}
    >>> evaluate(clients).roc_auc
    Estimate(0.8889, bounds 0.8889..0.8889)
    """
    _check_kinds(plan, privacy, axis, cohort, estimator)
    hints = _Hints(examples, positive_rate)
    check_hints(*hints)
    _warn_of_delta(privacy, examples)
    if plan is None:
        known = len(clients) if isinstance(clients, Sized) else 0
        expected = cohort or Cohort(known or _EXPECTED)
        chosen, branchings = _design(privacy, axis, tree, hints, expected)
        task = BinaryTask(positive)
    else:
        _refuse_shortcuts(privacy, axis, tree, cohort, positive, hints)
        plan.check_promise()
        chosen, task, privacy = plan.axis, plan.task, plan.privacy

    total, count = _add_up(clients, chosen, task.positive, privacy)

    if plan is None:
        plan = EvaluationPlan.for_histogram(
            chosen,
            cohort or Cohort(min_survivors=count),
            task=task,
            tree=branchings,
            privacy=privacy,
        )
    if count < plan.cohort.min_survivors:
        raise PlanError(
            f"the plan needs {plan.cohort.min_survivors} clients and {count} took part. "
            "Add clients or lower cohort.min_survivors."
        )
    source = Keystream() if seed is None else SimulatedKeystream(seed)
    counts = _release(total, plan, count, source, every_share=every_share)
    statement = plan.statement("simulated", hints.named())
    return Evaluation(plan, statement, counts, clients=count, estimator=estimator)


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
    privacy: PrivacyModel, axis: Axis | str, tree: Tree, hints: _Hints, expected: Cohort
) -> tuple[Axis, tuple[int, ...]]:
    """Axis and tree, from what is public; `expected` is who is likely to take part."""
    noisy = isinstance(privacy, DistributedDP)
    if isinstance(axis, Axis):
        if noisy:
            require_clipping(axis)
        return axis, _branchings(tree, axis.bins)
    bins = AUTO_NOISY_BINS if noisy else AUTO_BINS
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
) -> NDArray[Any]:
    """What leaves the sum: exact counts, or least-squares estimates from noisy levels."""
    laws = plan.noise_laws(shares=clients)
    if not laws:
        return total.counts
    noisy = total.levels(plan.tree)
    for _ in range(clients if every_share else 1):
        drawn = plan.noise_laws(shares=1) if every_share else laws
        for level, law in enumerate(drawn):
            noisy[level] = noisy[level] + law.draw(source, noisy[level].shape)
    return consistent(noisy, plan.tree, [law.variance for law in laws])


def _check_kinds(plan: Any, privacy: Any, axis: Any, cohort: Any, estimator: Any) -> None:
    for name, value, fits, wanted in (
        ("plan", plan, plan is None or isinstance(plan, EvaluationPlan), "an EvaluationPlan"),
        ("privacy", privacy, isinstance(privacy, PrivacyModel), "such as SecureAggregation()"),
        ("axis", axis, isinstance(axis, Axis) or axis == "auto", "'auto' or an Axis"),
        ("cohort", cohort, cohort is None or isinstance(cohort, Cohort), "a Cohort"),
        ("estimator", estimator, isinstance(estimator, Estimator), "such as Aligned()"),
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
) -> None:
    given = {
        "privacy": privacy != SecureAggregation(),
        "axis": axis != "auto",
        "tree": tree != "auto",
        "cohort": cohort is not None,
        "positive": positive is not None,
        "hints": bool(hints.named()),
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


def _add_up(
    clients: Clients | ScoreTable, axis: Axis, positive: Label | None, privacy: PrivacyModel
) -> tuple[ScoreHistogram, int]:
    """The pooled histogram and the number of clients in it."""
    if isinstance(clients, ScoreTable):
        return _add_up_table(clients, axis, positive, privacy)
    crowd, count = _Crowd(axis, positive, privacy), 0
    for name, data in clients.items() if isinstance(clients, Mapping) else _pairs(clients):
        crowd.count(name, data)
        count += 1
    if not count:
        raise InputError("there are no clients. Pass at least one.")
    return crowd.total(), count


class _Crowd:
    """Counts clients one after another; small ones in memory are counted together.

    A million clients with one row each would else cost a million calls. When rows counted
    together are refused, they are counted again client by client, to say whose they are.
    """

    def __init__(self, axis: Axis, positive: Label | None, privacy: PrivacyModel) -> None:
        self._total = ScoreHistogram(axis)
        self._positive = positive
        self._privacy = privacy
        self._waiting: list[tuple[str, Examples]] = []
        self._rows = 0
        # A cap holds for one entry; a second one of the same client would get its own.
        self._capped = isinstance(privacy, DistributedDP) and privacy.unit != "example"
        self._names: set[str] = set()

    def count(self, name: str, data: Data) -> None:
        """Count one client, now or with others."""
        if self._capped:
            if name in self._names:
                raise InputError(f"client {name!r} is named twice. Give each client one entry.")
            self._names.add(name)
        with located(f"client {name!r}"):
            examples = data if callable(data) else next(read_batches(data))
        if not isinstance(examples, Examples) or not 0 < len(examples) <= _SMALL:
            self._count_alone(name, data)
            return
        self._waiting.append((name, examples))
        self._rows += len(examples)
        if self._rows >= _TOGETHER_ROWS or len(self._waiting) >= _TOGETHER_CLIENTS:
            self._count_waiting()

    def total(self) -> ScoreHistogram:
        """The histogram of all clients counted."""
        self._count_waiting()
        return self._total

    def _count_alone(self, name: str, data: Data) -> None:
        place = f"client {name!r}"
        with located(f"{place}: {data}" if isinstance(data, ScoreFile) else place):
            rows = limit_rows(read_batches(data), self._privacy)
            # Under privacy a refusal that depends on one row would be a leak.
            empty = isinstance(self._privacy, DistributedDP)
            self._total.update_batches(rows, positive=self._positive, may_be_empty=empty)

    def _count_waiting(self) -> None:
        waiting, self._waiting, self._rows = self._waiting, [], 0
        if not waiting:
            return
        kinds = {examples.y_true.dtype for _, examples in waiting}
        if not self._capped and len(kinds) == 1:  # labels of one kind join without being changed
            labels = np.concatenate([examples.y_true for _, examples in waiting])
            scores = np.concatenate([examples.y_score for _, examples in waiting])
            with suppress(InputError):
                self._total.update(labels, scores, positive=self._positive)
                return
        for name, examples in waiting:
            self._count_alone(name, examples)


def _add_up_table(
    table: ScoreTable, axis: Axis, positive: Label | None, privacy: PrivacyModel
) -> tuple[ScoreHistogram, int]:
    # The sum does not depend on which client a row belongs to, only on all rows counting.
    names: set[str] = set()
    limiter = UnitLimiter(privacy)

    def examples() -> Iterator[Examples]:
        for owners, batch in table.batches():
            names.update(owners.tolist())
            yield limiter(batch, owners)

    total = ScoreHistogram(axis)
    with located(str(table)):
        total.update_batches(examples(), positive=positive)
    return total, len(names)


def _pairs(clients: Iterable[Any]) -> Iterator[tuple[str, Data]]:
    items = clients if isinstance(clients, Iterable) else (None,)
    for item in items:
        if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[0], str):
            raise InputError(
                "clients must be a mapping, or an iterable of (name, data): "
                '{"site-a": (y_true, y_score), ...}.'
            )
        yield item
