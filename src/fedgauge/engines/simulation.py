"""Everything in one process: the sum is taken here, so nothing is protected on the way."""

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

from fedgauge.axis import Axis
from fedgauge.distribution import Aligned, Estimator
from fedgauge.errors import InputError, PlanError, located
from fedgauge.evaluation import Evaluation
from fedgauge.files import ScoreFile, ScoreTable
from fedgauge.histogram import ScoreHistogram
from fedgauge.plan import BinaryTask, EvaluationPlan
from fedgauge.privacy import Cohort, SecureAggregation
from fedgauge.scores import Data, Examples, Label, read_batches

Clients = Mapping[str, Data] | Iterable[tuple[str, Data]]
Tree = Literal["auto", "flat"] | tuple[int, ...]

AUTO_BINS: Final = 4096


def evaluate(
    clients: Clients | ScoreTable,
    plan: EvaluationPlan | None = None,
    *,
    privacy: SecureAggregation = SecureAggregation(),
    axis: Axis | Literal["auto"] = "auto",
    tree: Tree = "auto",
    cohort: Cohort | None = None,
    estimator: Estimator = Aligned(),
    positive: Label | None = None,
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
        What to measure. Instead of a plan, the options below (except `estimator`) make one.
    privacy
        The privacy model.
    axis
        The score axis. ``"auto"`` is 4,096 bins of equal width on [0, 1].
    tree
        ``"flat"``, or branchings whose product is the number of bins; ``"auto"`` is flat.
    cohort
        Who must take part; by default all the clients given.
    estimator
        How curves are drawn between bin edges.
    positive
        The label of the positive class, where labels are not bool or 0/1.

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
    if plan is None:
        chosen = axis if isinstance(axis, Axis) else Axis.uniform(AUTO_BINS)
        task = BinaryTask(positive)
    else:
        _refuse_shortcuts(privacy, axis, tree, cohort, positive)
        chosen, task = plan.axis, plan.task

    total, count = _add_up(clients, chosen, task.positive)

    if plan is None:
        plan = EvaluationPlan.for_histogram(
            chosen,
            cohort or Cohort(min_survivors=count),
            task=task,
            tree=_branchings(tree, chosen),
            privacy=privacy,
        )
    if count < plan.cohort.min_survivors:
        raise PlanError(
            f"the plan needs {plan.cohort.min_survivors} clients and {count} took part. "
            "Add clients or lower cohort.min_survivors."
        )
    statement = plan.privacy.statement(plan.cohort, claim="simulated")
    return Evaluation(plan, statement, total.counts, clients=count, estimator=estimator)


def _check_kinds(plan: Any, privacy: Any, axis: Any, cohort: Any, estimator: Any) -> None:
    for name, value, fits, wanted in (
        ("plan", plan, plan is None or isinstance(plan, EvaluationPlan), "an EvaluationPlan"),
        ("privacy", privacy, isinstance(privacy, SecureAggregation), "SecureAggregation()"),
        ("axis", axis, isinstance(axis, Axis) or axis == "auto", "'auto' or an Axis"),
        ("cohort", cohort, cohort is None or isinstance(cohort, Cohort), "a Cohort"),
        ("estimator", estimator, isinstance(estimator, Estimator), "such as Aligned()"),
    ):
        if not fits:
            got = repr(value) if isinstance(value, str) else type(value).__name__
            raise PlanError(f"{name} must be {wanted}, got {got}.")


def _refuse_shortcuts(
    privacy: SecureAggregation,
    axis: Axis | str,
    tree: Tree,
    cohort: Cohort | None,
    positive: Label | None,
) -> None:
    given = {
        "privacy": privacy != SecureAggregation(),
        "axis": axis != "auto",
        "tree": tree != "auto",
        "cohort": cohort is not None,
        "positive": positive is not None,
    }
    named = [name for name, is_given in given.items() if is_given]
    if named:
        raise PlanError(
            f"a plan already says {', '.join(named)}. Pass the plan or these, not both."
        )


def _branchings(tree: Tree, axis: Axis) -> tuple[int, ...]:
    if isinstance(tree, str):
        if tree not in ("auto", "flat"):
            raise PlanError(
                f"tree must be 'auto', 'flat' or branchings such as (16, 16), got {tree!r}."
            )
        return (axis.bins,)
    try:
        return tuple(operator.index(branching) for branching in tree)
    except TypeError:
        raise PlanError("the branchings of a tree must be whole numbers.") from None


def _add_up(
    clients: Clients | ScoreTable, axis: Axis, positive: Label | None
) -> tuple[ScoreHistogram, int]:
    """The pooled histogram and the number of clients in it."""
    if isinstance(clients, ScoreTable):
        return _add_up_table(clients, axis, positive)
    total, count = ScoreHistogram(axis), 0
    for name, data in clients.items() if isinstance(clients, Mapping) else _pairs(clients):
        place = f"client {name!r}"
        with located(f"{place}: {data}" if isinstance(data, ScoreFile) else place):
            total.update_batches(read_batches(data), positive=positive)
        count += 1
    if not count:
        raise InputError("there are no clients. Pass at least one.")
    return total, count


def _add_up_table(
    table: ScoreTable, axis: Axis, positive: Label | None
) -> tuple[ScoreHistogram, int]:
    # The sum does not depend on which client a row belongs to, only on all rows counting.
    names: set[str] = set()

    def examples() -> Iterator[Examples]:
        for found, batch in table.batches():
            names.update(found)
            yield batch

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
