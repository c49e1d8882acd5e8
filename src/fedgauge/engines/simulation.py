"""`evaluate` and `simulate`: everything in one process, which sees all data."""

import math
import operator
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from fedgauge.arrays import Tree
from fedgauge.data.columns import coded, pick, to_numpy
from fedgauge.data.examples import Data, Examples, Label, RowSource, read_batches
from fedgauge.data.files import ScoreTable
from fedgauge.engines.contribution import (
    Numbers,
    contribution,
    count_batches,
    count_in_place,
    count_rows,
    draw_noise,
    find_bins,
    release,
    to_numbers,
)
from fedgauge.engines.reports import draws_of, simulate_reports
from fedgauge.errors import (
    InputError,
    InputWarning,
    PlanError,
    PrivacyWarning,
    ProtocolError,
    located,
)
from fedgauge.estimation.counts import PooledCounts, Released
from fedgauge.estimation.distribution import Aligned, Estimator
from fedgauge.estimation.sanity import reversed_scores
from fedgauge.histograms.axis import Axis
from fedgauge.histograms.calibrator import Calibrator
from fedgauge.histograms.histogram import Draw, ScoreHistogram
from fedgauge.histograms.tables import NOISY_EDGES, ranges_for
from fedgauge.histograms.two_round import TwoRound
from fedgauge.keys import SigningKey
from fedgauge.plan import BinaryTask, EvaluationPlan
from fedgauge.plan.limits import require_clipping
from fedgauge.plan.task import AnyTask
from fedgauge.plan.two_rounds import require_whole
from fedgauge.planner import (
    Scores,
    Thresholds,
    check_hints,
    check_scores,
    check_thresholds,
    propose,
    reference_axis,
    with_edges,
)
from fedgauge.privacy import AnyPrivacyModel, Cohort, PrivacyModel, SecureAggregation
from fedgauge.privacy.keystream import Keystream, SimulatedKeystream, WordSource
from fedgauge.privacy.units import UnitLimiter
from fedgauge.results.evaluation import Evaluation
from fedgauge.secagg import Duties, Stage, Sum, SummationClient, SummationServer

ClientData = Data | ScoreHistogram
Clients = Mapping[str, ClientData] | Iterable[tuple[str, ClientData]]
# Takes the histogram of a client, or of several whose counts no rule of the plan could touch.
Take = Callable[[ScoreHistogram], object]

_SMALL: Final = 1024  # rows of a client that is counted with others
_JUDGED: Final = 64  # clients, the first ones, that are always counted alone and looked at
_TOGETHER_ROWS: Final = 16_384
_TOGETHER_CLIENTS: Final = 1024
_ANY_ROWS: Final = 2**62  # in one histogram, where reports are made of them one by one


def count_clients(
    clients: Clients | ScoreTable,
    plan: EvaluationPlan,
    take: Take,
    *,
    largest: int,
    draw: Draw | None = None,
) -> int:
    """Count everybody's rows by the plan; returns how many clients there are.

    Histograms go to `take` as they come, so memory grows with the clients' names alone. Rows of
    several clients are in one only if it holds at most `largest` rows. With `draw` each row is
    counted in one block, as it is reported, or in none.
    """
    if isinstance(clients, ScoreTable):
        return _count_table(clients, plan, take, largest, draw)
    crowd, count = _Crowd(plan, take, largest, draw), 0
    for name, data in pairs(clients):
        crowd.count(name, data)
        count += 1
    if not count:
        raise InputError("there are no clients. Pass at least one.")
    crowd.finish()
    return count


class _Crowd:
    """Counts clients one after another; small ones in memory are counted together.

    A million clients with one row each would else cost a million calls. When rows counted together
    are refused, they are counted again client by client, to say whose they are.
    """

    def __init__(self, plan: EvaluationPlan, take: Take, largest: int, draw: Draw | None) -> None:
        self._plan = plan
        self._draw = draw
        self._take = take
        self._waiting: list[tuple[str, Examples]] = []
        self._rows = self._seen = 0
        self._most_rows = min(_TOGETHER_ROWS, largest)
        # Only plain rows, of which all count, join without being looked at.
        self._alike = plan.privacy.unit_cap is None and plan.task.layout.is_plain

    def count(self, name: str, data: ClientData) -> None:
        """Count one client, now or with others."""
        with located(f"client {name!r}"):
            if callable(data) or isinstance(data, ScoreHistogram):
                examples: object = data
            else:
                examples = next(read_batches(data))
        self._seen += 1
        small = min(_SMALL, self._most_rows) if self._seen > _JUDGED else 0
        if not isinstance(examples, Examples) or not 0 < len(examples) <= small:
            self._count_alone(name, data)
            return
        if self._rows + len(examples) > self._most_rows:
            self.finish()
        self._waiting.append((name, examples))
        self._rows += len(examples)
        if len(self._waiting) >= _TOGETHER_CLIENTS:
            self.finish()

    def finish(self) -> None:
        """Count those who still wait."""
        waiting, self._waiting, self._rows = self._waiting, [], 0
        if not waiting:
            return
        with suppress(InputError):
            if self._alike:
                rows = [(each.y_true, each.y_score) for _, each in waiting]
                labels, scores = zip(*rows, strict=True)
                if len({(each.dtype, each.ndim) for each in labels}) == 1:  # and join unchanged
                    joined = np.concatenate(labels), np.concatenate(scores)
                    self._take(count_rows(self._plan, joined, draw=self._draw))
                    return
        for name, examples in waiting:
            self._count_alone(name, examples)

    def _count_alone(self, name: str, data: ClientData) -> None:
        place = f"client {name!r}"
        with located(f"{place}: {data}" if isinstance(data, RowSource) else place):
            # Under privacy a refusal that depends on one row would be a leak.
            may_be_empty = self._plan.privacy.adds_noise
            counted = count_rows(self._plan, data, may_be_empty=may_be_empty, draw=self._draw)
            self._take(counted)
        if not self._plan.task.layout.is_plain or self._plan.is_search:
            return
        told = reversed_scores(PooledCounts(counted.axis, counted.counts, (counted.axis.bins,)))
        if told is not None:
            warnings.warn(f"{place}: {told}", InputWarning, stacklevel=2)


def _count_table(
    table: ScoreTable, plan: EvaluationPlan, take: Take, largest: int, draw: Draw | None
) -> int:
    # The sum does not depend on which client a row belongs to, only on all rows counting.
    names: set[str] = set()

    def examples() -> Iterator[Examples]:
        for owners, batch in _capped_batches(table, plan):
            names.update(coded(owners).dictionary.to_pylist())
            yield batch

    with located(str(table)):
        counted = None if draw is not None else count_in_place(plan, table)
        if counted is None:
            pooled = count_batches(plan, examples(), draw=draw)
        else:
            pooled, names = counted[0], table.clients_of_lazy_frame()
        coarsest = pooled.levels(plan.tree)[-len(plan.final.nodes) or -1]
        small = all(cells.max() <= largest for cells in pooled.tables)
        if small and coarsest.max() <= largest:  # then no count of a client is larger
            take(pooled)
        else:
            _take_apart(table, plan, take)
    return len(names)


def _take_apart(table: ScoreTable, plan: EvaluationPlan, take: Take) -> None:
    """Each client's histogram on its own: read again, since some count may be too large."""
    histograms: defaultdict[str, ScoreHistogram] = defaultdict(plan.histogram)
    for owners, batch in _capped_batches(table, plan):
        names, codes = np.unique(to_numpy(owners), return_inverse=True)
        by_client = batch.select(np.argsort(codes, kind="stable"))
        ends = np.cumsum(np.bincount(codes, minlength=len(names)))
        for name, start, end in zip(names, np.append(0, ends), ends, strict=False):
            histograms[name] += count_batches(plan, [by_client.select(slice(start, end))])
    for name, histogram in histograms.items():
        with located(f"client {name!r}"):
            take(histogram)


def _capped_batches(table: ScoreTable, plan: EvaluationPlan) -> Iterator[tuple[Any, Examples]]:
    """Batches with as many rows of each unit as the plan says, and whose each row is."""
    limiter = UnitLimiter(plan.privacy.unit_cap)
    for owners, batch in table.batches():
        kept = (
            None if plan.privacy.unit_cap is None else limiter.within_cap(batch, to_numpy(owners))
        )
        yield (owners, batch) if kept is None else (pick(owners, kept), batch.select(kept))


def pairs(clients: Any) -> Iterator[tuple[str, ClientData]]:
    """Names and data, one client after another, none of them twice."""
    if isinstance(clients, Mapping):
        yield from clients.items()
        return
    items = clients if isinstance(clients, Iterable) else (None,)
    names: set[str] = set()
    for item in items:
        if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[0], str):
            raise InputError(
                "clients must be a mapping, or an iterable of (name, data): "
                '{"site-a": (y_true, y_score), ...}.'
            )
        if item[0] in names:
            # It would be two clients to a cohort, and to a cap that holds for one entry.
            raise InputError(
                f"client {item[0]!r} is named twice, and would count as two. Give each client one "
                "entry with all of its rows."
            )
        names.add(item[0])
        yield item


Summation = Literal["plain", "every-share", "secure"]

AUTO_BINS: Final = 4096
AUTO_NOISY_BINS: Final = 64
_FOUND_BINS: Final = 1024  # of equal depth, without noise
_FEWEST_BINS: Final = 8  # that share a budget with others: fewer tell scores apart too little
_REPORT_BINS: Final = (16, 32)  # below and from the epsilon of a report where more bins pay
_WEAK_EPSILON: Final = 2.0
_EXPECTED: Final = 20  # clients, where their number is not known yet; it hardly matters
_GROUP: Final = "group"  # what a grouping without a name is called
_PAIR: Final = 2  # models that are compared
_FEWEST: Final = 2  # clients that noise can come from, when one of them may collude


def evaluate(
    clients: Clients | ScoreTable,
    plan: EvaluationPlan | None = None,
    *,
    privacy: AnyPrivacyModel = SecureAggregation(),
    axis: Axis | TwoRound | Literal["auto", "two-round"] = "auto",
    tree: Tree = "auto",
    cohort: Cohort | None = None,
    estimator: Estimator = Aligned(),
    task: AnyTask | None = None,
    groups: Mapping[str, Sequence[str]] | Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    examples: int | None = None,
    positive_rate: float | None = None,
    positive: Label | None = None,
    score_sums: bool = False,
    calibrator: Calibrator | None = None,
    scores: Scores | None = None,
    at: Thresholds | None = None,
    seed: int | None = None,
) -> Evaluation:
    """Evaluate a classifier on the data of many clients as if it were pooled.

    Parameters
    ----------
    clients
        A mapping, or an iterable, from client names to data: ``(y_true, y_score)``, ``Examples``, a
        :class:`ScoreFile`, a :class:`ScoreQuery`, a function without arguments that returns chunks
        of these, or what :func:`count` returned. An iterable is read once, client by client, in
        memory that grows with the names alone, none of which may come twice. A :class:`ScoreTable`
        holds all clients, or one of them.
    plan
        What to measure. Instead of a plan, the options from `privacy` to `at` (except `estimator`)
        make one.
    privacy
        The privacy model.
    axis
        The score axis. ``"auto"`` is :meth:`Axis.probabilities` without noise; under
        differential privacy what the planner chooses from the hints, without them as for 30,000
        examples of which 20% are positive (16 or 32 bins under local DP). For scores of any scale
        ``"two-round"``, or a :class:`TwoRound`: a first round finds where scores are.
    tree
        ``"flat"``, or branchings whose product is the number of bins (and sets it, where the axis
        is ``"auto"``).
    cohort
        Who must take part; by default all the clients given, one of whom may collude.
    estimator
        How curves are drawn between bin edges.
    task
        What is told apart: :class:`BinaryTask` by default, :class:`MulticlassTask` or
        :class:`MultilabelTask`.
    groups, models
        Short for a task of two classes with these: names of the groups that rows are of, or of each
        grouping by its name; names of the models whose scores rows have. Two models are a pair to
        be compared, but for local reports and two rounds.
    examples, positive_rate
        Public hints for the planner: about how many examples there are in all, and the share of
        positives. Never read from the data; listed in ``result.privacy``.
    positive
        The label of the positive class, where labels are not bool or 0/1.
    score_sums
        Also sum up the scores within each bin and class. They take a fifth of the budget of
        differential privacy, and an exact sum shows the score of an example that is alone in its
        bin.
    calibrator
        A map that scores go through before they are binned. Judged fairly on rows other than those
        it was fitted on.
    scores
        A public hint, too: ``"probabilities"``, the default, ``"margins"`` or ``"unknown"``. Where
        these are no probabilities and no axis is named, bins are found in a first round.
    at
        Thresholds that matter: they become edges of the automatic axis, where metrics are exact but
        for noise. 0.5 always is one.
    seed
        Makes the noise repeatable, and worthless as protection: for simulations.

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
    _check_kinds(
        plan=plan,
        privacy=privacy,
        axis=axis,
        cohort=cohort,
        estimator=estimator,
        score_sums=score_sums,
        calibrator=calibrator,
    )
    hints = _Hints(examples, positive_rate, scores)
    found = axis == "two-round" or isinstance(axis, TwoRound)
    paired = not (privacy.sends_reports or found or (axis == "auto" and hints.of_any_scale))
    told = _task(task, groups, models, positive, paired=paired)
    hints.check()
    if plan is not None:
        _refuse_shortcuts(
            privacy=privacy != SecureAggregation(),
            axis=axis != "auto",
            tree=tree != "auto",
            cohort=cohort is not None,
            task=task is not None,
            groups=groups is not None,
            models=models is not None,
            positive=positive is not None,
            at=at is not None,
            hints=bool(hints.named()),
            score_sums=score_sums,
            calibrator=calibrator is not None,
        )
        return simulate(clients, plan, estimator=estimator, seed=seed)
    if examples:
        _warn_of_delta(privacy, examples)
    known = len(clients) if isinstance(clients, Mapping | Sequence) else None
    expected = _Expected(cohort, (known or _EXPECTED) if cohort is None else cohort.min_survivors)
    if at is not None and (axis != "auto" or hints.of_any_scale):
        raise PlanError("at= makes edges of the automatic axis for probabilities. Leave it out.")
    edges = () if at is None else check_thresholds(at, None)
    chosen, branchings = _design(privacy, axis, tree, hints, expected, score_sums, told, edges)
    named = hints.named()

    def resolve(count: int) -> EvaluationPlan:
        everybody = Cohort(count) if privacy.needs_cohort else None
        return EvaluationPlan.under(
            privacy,
            chosen,
            cohort=cohort or everybody,
            task=told,
            tree=branchings,
            score_sums=score_sums,
        ).with_calibrator(calibrator)

    # The plan stands before any data is read; only where nobody knows how many clients there
    # are, its cohort comes with their count, and until then is one that no noise refuses.
    planned = resolve(known or _FEWEST)
    counted_only = resolve if known is None else None
    released, plan = run(clients, planned, source_of(seed), "plain", counted_only)
    statement = plan.statement("simulated", named)
    return Evaluation(plan, statement, released, estimator=estimator)


def simulate(
    clients: Clients | ScoreTable,
    plan: EvaluationPlan,
    *,
    estimator: Estimator = Aligned(),
    seed: int | None = None,
    summation: Summation = "plain",
) -> Evaluation:
    """Evaluate a plan in one process, the sum taken in one of several ways.

    `summation` ``"plain"`` adds up in the clear and draws the noise of all clients at once: the
    fast path. ``"every-share"`` draws each client's share on its own; the law is the same.
    ``"secure"`` runs the real protocol between the clients: about 0.1 s for each of a thousand.

    >>> from fedgauge import Axis, Cohort
    >>> plan = EvaluationPlan.for_histogram(Axis.uniform(8), Cohort(3))
    >>> clients = {name: ([0, 1], [0.2, 0.7]) for name in "abc"}
    >>> simulate(clients, plan, summation="secure").roc_auc.value
    1.0
    """
    if not isinstance(plan, EvaluationPlan):
        raise PlanError(f"plan must be an EvaluationPlan, got {type(plan).__name__}.")
    if summation not in get_args(Summation):
        raise PlanError(
            f"summation must be one of {', '.join(get_args(Summation))}, got {summation!r}."
        )
    plan.check_promise()
    require_whole(plan)
    released, plan = run(clients, plan, source_of(seed), summation)
    return Evaluation(plan, plan.statement("simulated"), released, estimator=estimator)


def source_of(seed: int | None) -> WordSource:
    """Where noise comes from: the operating system, or a seed."""
    return Keystream() if seed is None else SimulatedKeystream(seed)


def run(
    clients: Clients | ScoreTable,
    plan: EvaluationPlan,
    source: WordSource,
    summation: Summation,
    resolve: Callable[[int], EvaluationPlan] | None = None,
) -> tuple[Released, EvaluationPlan]:
    """Count, then release; `resolve` makes the plan anew once the clients are counted."""

    def resolved(count: int) -> EvaluationPlan:
        final = plan if resolve is None else resolve(count)
        if final.cohort is not None and count < final.cohort.min_survivors:
            raise PlanError(
                f"the plan needs {final.cohort.min_survivors} clients and {count} took part. "
                "Add clients or lower cohort.min_survivors."
            )
        return final

    if plan.is_search:
        if not isinstance(clients, Mapping | Sequence | ScoreTable):
            raise InputError(
                "two rounds read the data twice, and an iterator gives it once. Pass a mapping of "
                "clients, or a ScoreTable."
            )
        # Of all clients, whose rows report in one of both rounds.
        secret = source.words(4).tobytes() if plan.privacy.sends_reports else b""
        found, plan = _run_once(clients, plan, resolved, source, summation, secret)
        plan = find_bins(plan, found)
        return _run_once(clients, plan, lambda _: plan, source, summation, secret)
    return _run_once(clients, plan, resolved, source, summation)


def _run_once(
    clients: Clients | ScoreTable,
    plan: EvaluationPlan,
    resolved: Callable[[int], EvaluationPlan],
    source: WordSource,
    summation: Summation,
    secret: bytes = b"",
) -> tuple[Released, EvaluationPlan]:
    """Count and release, in one round; of two rounds of reports the secret says who is in it."""
    if summation == "secure":
        return _run_securely(clients, resolved, source)
    if plan.privacy.sends_reports:
        pooled, draw = plan.histogram(), draws_of(plan, source, secret)
        count = count_clients(clients, plan, pooled.__iadd__, largest=_ANY_ROWS, draw=draw)
        return simulate_reports(plan, pooled, count, source), plan
    numbers: Numbers = np.zeros(plan.numbers, dtype=np.int64)

    def add(histogram: ScoreHistogram) -> None:
        np.add(numbers, to_numbers(plan, histogram), out=numbers)

    count = count_clients(clients, plan, add, largest=plan.summed.largest)
    final = resolved(count)
    for shares in [1] * count if summation == "every-share" else [count]:
        numbers += draw_noise(final, source, shares=shares)
    return release(final, numbers, count), final


def _run_securely(
    clients: Clients | ScoreTable, resolved: Callable[[int], EvaluationPlan], source: WordSource
) -> tuple[Released, EvaluationPlan]:
    if isinstance(clients, ScoreTable):
        raise InputError(
            "a secure sum needs each client's data on its own. Pass a mapping of clients, or one "
            "file per client."
        )
    members = list(pairs(clients))
    plan = resolved(len(members))
    outcome = run_rounds(plan, [_Member(plan, *member, source) for member in members])
    return release(plan, outcome.total, len(outcome.survivors)), plan


class _Member:
    """What the protocol asks of a simulated client."""

    def __init__(
        self, plan: EvaluationPlan, name: str, data: ClientData, source: WordSource
    ) -> None:
        self._plan = plan
        self._name = name
        self._data = data
        self._source = source

    def contribution(self, sharers: Sequence[bytes]) -> NDArray[np.int64]:
        """Its counts and its share of the noise."""
        del sharers
        with located(f"client {self._name!r}"):
            # As in a plain sum: who holds all data may be told that some is missing.
            may_be_empty = self._plan.privacy.adds_noise
            rows = count_rows(self._plan, self._data, may_be_empty=may_be_empty)
            return contribution(self._plan, rows, self._source)

    def agree(self, survivors: Sequence[bytes]) -> None:
        """There is nobody to refuse anything."""


class _Hints(NamedTuple):
    """What the caller says is publicly known."""

    examples: int | None
    positive_rate: float | None
    scores: Scores | None = None

    @property
    def are_planned(self) -> bool:
        """Whether there is something to choose bins by."""
        return (self.examples, self.positive_rate) != (None, None)

    @property
    def of_any_scale(self) -> bool:
        """Whether scores are no probabilities."""
        return self.scores in ("margins", "unknown")

    def check(self) -> None:
        """Refuse hints that nothing can be planned by."""
        if self.are_planned:
            check_hints(self.examples, self.positive_rate)
        if self.scores is not None:
            check_scores(self.scores)

    def named(self) -> tuple[str, ...]:
        """The hints given, for the record."""
        return tuple(
            f"{name} {value}" for name, value in self._asdict().items() if value is not None
        )


class _Expected(NamedTuple):
    """Who is likely to take part: a cohort if one is named, and how many clients."""

    cohort: Cohort | None
    clients: int


def _design(
    privacy: AnyPrivacyModel,
    axis: Axis | TwoRound | str,
    tree: Tree,
    hints: _Hints,
    expected: _Expected,
    score_sums: bool,
    task: AnyTask,
    at: tuple[float, ...],
) -> tuple[Axis | TwoRound, tuple[int, ...] | None]:
    """Axis and tree, from what is public."""
    noisy = privacy.adds_noise
    if axis == "auto" and hints.of_any_scale:
        axis = _any_scale(privacy, hints, expected, task)
    if axis == "two-round":
        axis = default_search(privacy, task)
    if isinstance(axis, TwoRound):
        return axis, None if isinstance(tree, str) else _branchings(tree, axis.bins)
    if isinstance(axis, Axis):
        if noisy:
            require_clipping(axis)
        return axis, _branchings(tree, axis.bins)
    planned = isinstance(tree, str)
    bins = _auto_bins(privacy, task) if planned else math.prod(_branchings(tree, None))
    paired = noisy and bool(task.pairs)
    if paired and isinstance(tree, str) and not hints.are_planned:
        # Of two models' scores together; finer, noise would drown them.
        ranges = with_edges(Axis.from_edges(NOISY_EDGES, outside="clip"), at)
        return ranges, _branchings(tree, ranges.bins)
    if noisy and (hints.are_planned or (tree == "auto" and not privacy.sends_reports)):
        examples, rate = check_hints(hints.examples, hints.positive_rate, task)
        if paired and isinstance(tree, str) and privacy.budget is not None:
            bins = ranges_for(examples * min(rate, 1.0 - rate), privacy.budget.epsilon)
        if tree == "auto" and not paired:
            plan = propose(
                privacy=privacy,
                clients=expected.clients,
                cohort=expected.cohort if privacy.needs_cohort else None,
                examples=examples,
                positive_rate=rate,
                score_sums=score_sums,
                at=at,
                task=task,
            )
            return plan.axis, plan.tree
        return with_edges(reference_axis(bins, rate), at), _branchings(tree, bins)
    if noisy:
        return with_edges(Axis.uniform(bins, outside="clip"), at), _branchings(tree, bins)
    if isinstance(tree, str) and not score_sums:  # sums have no place within a bin of one value
        fine = Axis.probabilities(at)
        return fine, _branchings(tree, fine.bins)
    uniform = Axis.uniform(bins)
    return with_edges(uniform, at) if at else uniform, _branchings(tree, bins)


def _any_scale(
    privacy: AnyPrivacyModel, hints: _Hints, expected: _Expected, task: AnyTask
) -> Axis | TwoRound:
    """Bins for scores that are no probabilities: planned where there are hints and noise."""
    if not (privacy.adds_noise and hints.are_planned):
        return default_search(privacy, task)
    plan = propose(
        privacy=privacy,
        clients=expected.clients,
        cohort=expected.cohort if privacy.needs_cohort else None,
        examples=hints.examples,
        positive_rate=hints.positive_rate,
        task=task,
        scores=hints.scores,
    )
    return plan.task.two or plan.axis


def default_search(privacy: PrivacyModel, task: AnyTask) -> TwoRound:
    """Two rounds where nothing else is said: as many bins as each model can bear."""
    if not privacy.adds_noise:
        return TwoRound(_FOUND_BINS, coarse=Axis.asinh(AUTO_BINS))
    return TwoRound(_auto_bins(privacy, task))


def _auto_bins(privacy: PrivacyModel, task: AnyTask) -> int:
    if not privacy.adds_noise or privacy.budget is None:
        return AUTO_BINS
    if privacy.sends_reports:
        return _REPORT_BINS[privacy.budget.epsilon >= _WEAK_EPSILON]
    # The more counts share the budget, the coarser: about what the planner takes of 50,000 rows.
    return max(AUTO_NOISY_BINS // task.per_row, _FEWEST_BINS)


def _warn_of_delta(privacy: PrivacyModel, examples: int) -> None:
    delta = privacy.budget.delta if privacy.budget is not None else 0.0
    if delta and delta >= 1 / examples:
        warnings.warn(
            f"delta {delta:g} is not below 1 / {examples:,}, one over the number of examples: "
            "such a delta would allow publishing a row now and then.",
            PrivacyWarning,
            stacklevel=3,
        )


def _task(
    task: AnyTask | None,
    groups: Mapping[str, Sequence[str]] | Sequence[str] | None,
    models: Sequence[str] | None,
    positive: Label | None,
    *,
    paired: bool,
) -> AnyTask:
    if task is not None:
        if not isinstance(task, AnyTask) or task.of_labels:
            raise PlanError("task must be a BinaryTask, a MulticlassTask or a MultilabelTask.")
        if groups is not None or models is not None or positive is not None:
            raise PlanError("the task already has groups, models and positive. Set them there.")
        return task
    if groups is not None and not isinstance(groups, Mapping):
        groups = {_GROUP: groups}
    told = BinaryTask(positive, groups=groups or {}, models=() if models is None else models)
    if len(told.models) != _PAIR or not paired:
        return told
    return structs.replace(told, pairs=(tuple(told.models),))


_KINDS: Final[Mapping[str, tuple[Any, str]]] = {
    "plan": (EvaluationPlan | None, "an EvaluationPlan"),
    "privacy": (AnyPrivacyModel, "such as SecureAggregation()"),
    "axis": (Axis | TwoRound, "'auto', 'two-round', an Axis or a TwoRound"),
    "cohort": (Cohort | None, "a Cohort"),
    "estimator": (Estimator, "such as Aligned()"),
    "score_sums": (bool, "True or False"),
    "calibrator": (Calibrator | None, "a Calibrator"),
}


_ONE_CLIENT: Final = (
    ' Labels and scores go together, by client: fg.evaluate({"all": (y_true, y_score)}).'
)


def _check_kinds(**given: Any) -> None:
    for name, value in given.items():
        kind, wanted = _KINDS[name]
        named = name == "axis" and isinstance(value, str) and value in ("auto", "two-round")
        if not (named or isinstance(value, kind)):
            got = repr(value) if isinstance(value, str) else type(value).__name__
            told = _ONE_CLIENT if name == "plan" else ""
            raise PlanError(f"{name} must be {wanted}, got {got}.{told}")


def _refuse_shortcuts(**given: bool) -> None:
    named = [name for name, is_given in given.items() if is_given]
    if named:
        raise PlanError(
            f"the plan already has {', '.join(named)}. Pass the plan or these, not both."
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


_NOBODY: Final[Mapping[int, Stage]] = MappingProxyType({})


def run_rounds(
    plan: EvaluationPlan, duties: Sequence[Duties], *, silent: Mapping[int, Stage] = _NOBODY
) -> Sum:
    """The sum of what everybody adds, by the real protocol with keys made for it.

    `duties` are what each client adds; survivors are positions in it. `silent` are clients that
    fall silent, and the stage from which on. One that refuses to go on does too; an error while its
    numbers are made is raised.
    """
    keys = [SigningKey.generate() for _ in duties]
    server = SummationServer.invite(plan, [key.public for key in keys], SigningKey.generate())
    invitation = server.invitation
    places = sorted(range(len(keys)), key=lambda place: keys[place].public)
    clients = [SummationClient.join(invitation, keys[place], duties[place]) for place in places]

    def reply(member: int, request: bytes) -> bytes | None:
        if server.stage >= silent.get(places[member], len(Stage) + 1):
            return None
        try:
            return clients[member].receive(request)
        except ProtocolError:
            return None

    requests = server.requests
    while True:
        replies = ((member, reply(member, request)) for member, request in requests.items())
        outcome = server.step((member, said) for member, said in replies if said is not None)
        if isinstance(outcome, Sum):
            survivors = sorted(places[member] for member in outcome.survivors)
            return Sum(outcome.total, tuple(survivors))
        requests = outcome
