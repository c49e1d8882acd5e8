"""One way from a client's rows to the numbers it adds, and from the sum to what is released.

Also the summary of its rows that a client's operator gets.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedgauge.data.columns import read_column, read_leniently
from fedgauge.data.examples import Data, Examples, Pair, RowSource, read_batches
from fedgauge.data.row_checks import LenientRows, Oddities, Parts, RowSummary, in_short
from fedgauge.errors import InputError, InputWarning, PlanError, ResultWithheld
from fedgauge.estimation.counts import Released
from fedgauge.estimation.repair import consistent
from fedgauge.estimation.sanity import check_exact
from fedgauge.estimation.suppression import edges_beside, hide_small, merge_at
from fedgauge.histograms.cut_points import CutPoints
from fedgauge.histograms.histogram import Draw, ScoreHistogram, mapped
from fedgauge.histograms.tables import MergedEdges, TableSum
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.task import OTHER, Task
from fedgauge.plan.two_rounds import Found
from fedgauge.privacy.keystream import KeptKeystream, WordSource
from fedgauge.privacy.units import LenientLimiter, limit_rows
from fedgauge.secagg.masking import check_size

Numbers = NDArray[np.int64]
_ENOUGH: Final = 50  # rows of a class, to say that its scores are lower than another class's


def count(batches: Iterable[Pair | Examples], plan: EvaluationPlan) -> ScoreHistogram:
    """Count some of one client's rows by a plan: the one call in each task of a cluster.

    The sum of the tasks' histograms is the client's data: ``fg.evaluate({"site-a": total}, plan)``.

    Parameters
    ----------
    batches
        Chunks of rows, each ``(y_true, y_score)`` or :class:`Examples`.
    plan
        What is counted. Under a plan with noise odd rows count in a stated place, as at a site;
        under others they are refused.

    Examples
    --------
    >>> plan = fg.EvaluationPlan.for_histogram(fg.Axis.uniform(4), fg.Cohort(3))
    >>> tasks = [[([0, 1], [0.1, 0.9])], [([1, 0], [0.6, 0.2])]]
    >>> sum(fg.count(batches, plan) for batches in tasks).counts
    array([[2, 0, 0, 0],
           [0, 0, 1, 1]])
    """
    if not isinstance(plan, EvaluationPlan):
        raise PlanError(f"plan must be an EvaluationPlan, got {type(plan).__name__}.")
    _require_sums(plan)
    if not plan.is_noisy:
        return count_batches(plan, read_batches(lambda: batches), may_be_empty=True)
    histogram, oddities = count_leniently(plan, lambda: lambda: batches)
    if oddities.failure:
        raise InputError(oddities.failure)
    for sentence in oddities.in_words:
        warnings.warn(sentence, InputWarning, stacklevel=2)
    return histogram


def _require_sums(plan: EvaluationPlan) -> None:
    """Refuse a plan under which histograms of parts of the rows do not add up to that of all."""
    if plan.privacy.unit_cap is not None or plan.final.sends_reports or plan.is_search:
        raise PlanError(
            "this plan needs a client's rows in one place: it caps the rows of a unit, has rows "
            "report one by one, or reads them in two rounds. Pass the rows themselves."
        )


def _fitting(
    plan: EvaluationPlan, counted: ScoreHistogram, *, may_be_empty: bool
) -> tuple[ScoreHistogram, Oddities]:
    """Counts that were made elsewhere, if they are of this plan."""
    _require_sums(plan)
    histogram = plan.histogram()
    histogram += counted
    if not (histogram.sum() or may_be_empty):
        raise InputError("there are no examples. Leave this client out, or check its export.")
    return histogram, Oddities(histogram.sum())


def count_rows(
    plan: EvaluationPlan,
    data: Data | ScoreHistogram,
    *,
    may_be_empty: bool = True,
    draw: Draw | None = None,
) -> ScoreHistogram:
    """One client's histogram, maybe of no rows, each unit's rows capped as the plan says."""
    if draw is not None and isinstance(data, ScoreHistogram):
        _require_sums(plan)
    if draw is None and (counted := count_in_place(plan, data, may_be_empty=may_be_empty)):
        return counted[0]
    assert not isinstance(data, ScoreHistogram)  # noqa: S101  (counted or refused)
    rows, cap = read_batches(data), plan.privacy.unit_cap
    if cap is not None:
        rows = limit_rows(rows, cap)
    return count_batches(plan, rows, may_be_empty=may_be_empty, draw=draw)


def count_in_place(
    plan: EvaluationPlan, data: object, *, leniently: bool = False, may_be_empty: bool = False
) -> tuple[ScoreHistogram, Oddities] | None:
    """One client's histogram if its rows are or can be counted elsewhere, and what was odd."""
    if isinstance(data, ScoreHistogram):
        return _fitting(plan, data, may_be_empty=may_be_empty or leniently)
    if not (isinstance(data, RowSource) and needs_no_rows(plan)):
        return None
    cuts, histogram = CutPoints(plan.axis), plan.histogram()
    rows = data.counted(cuts)
    if rows is None:
        return None
    read = read_leniently if leniently else read_column
    labels, scores = read("y_true", rows.labels), cuts.scores(rows.ranks)
    oddities = histogram.update_alike(
        labels, scores, rows.times, leniently=leniently, may_be_empty=may_be_empty
    )
    return histogram, oddities


def needs_no_rows(plan: EvaluationPlan) -> bool:
    """Whether a plan asks of a site only how many rows there are of each score and label."""
    more = plan.tables or plan.final.sum_steps or plan.calibrator or plan.privacy.unit_cap
    return plan.task.layout.is_plain and not (more or plan.final.sends_reports)


def count_batches(
    plan: EvaluationPlan,
    batches: Iterable[Examples],
    *,
    may_be_empty: bool = False,
    draw: Draw | None = None,
) -> ScoreHistogram:
    """The histogram of rows that are within the plan's caps."""
    histogram = plan.histogram(draw)
    histogram.update_batches(batches, may_be_empty=may_be_empty)
    return histogram


def count_exactly(
    plan: EvaluationPlan, batches: Iterable[Examples], data: Data | None = None
) -> tuple[ScoreHistogram, RowSummary]:
    """One client's histogram for an exact sum, and a summary for its operator; refuses odd rows.

    `batches` are those of `data`, as somebody looks on.
    """
    clipped = 0
    layout = plan.task.layout

    def watched() -> Iterator[Examples]:
        nonlocal clipped
        for batch in batches:
            for model in {*(layout.models or (None,))} & {*batch.scores}:
                scores = batch.scores[model]
                clipped += plan.axis.count_beyond(mapped(scores.ravel(), plan.calibrator))
            yield batch

    histogram = count_rows(plan, watched)
    check_size(histogram.counts, plan.summed.largest)
    odd = Oddities(
        histogram.sum(),
        clipped=clipped,
        dropped=data.dropped if isinstance(data, RowSource) else 0,
        by_row=layout.by_row,
        labels_by_row=layout.labels,
        of_classes=bool(layout.classes),
    )
    return histogram, summarise(plan.task, histogram.counts, odd)


def count_leniently(
    plan: EvaluationPlan, data: Callable[[], Data]
) -> tuple[ScoreHistogram, Oddities]:
    """One client's histogram whatever its rows hold, and what was odd about them.

    Between sites under noise nothing about rows may silence a client. Each row counts in one place,
    which that row alone decides (:class:`Oddities`), so the sensitivity is that of clean rows. Data
    that cannot be read at all count as no rows: `data` is called here, and nothing that it, a file
    or a batch raises gets out, not even SystemExit, nor what other libraries derive from
    BaseException (a panic in Rust). Only KeyboardInterrupt does: it is how its owner ends the
    client.
    """
    nothing, histogram = plan.histogram(), plan.histogram()
    try:
        source = data()
        counted = count_in_place(plan, source, leniently=True)
        if counted is not None:
            histogram, oddities = counted
            over = _count_over_largest(plan, histogram)
            return histogram, replace(oddities, over_largest=over)
        rows = LenientRows(source)
        limiter = LenientLimiter(plan.privacy.unit_cap)
        oddities = histogram.update_leniently(limiter.limit(rows))
        return histogram, replace(
            oddities,
            **rows.left_out,
            no_subject=limiter.no_subject,
            over_largest=_count_over_largest(plan, histogram),
        )
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return nothing, Oddities(failure=in_short(error))


def _count_over_largest(plan: EvaluationPlan, histogram: ScoreHistogram) -> int:
    """How many counts, at all levels sent, `to_numbers` cuts down."""
    largest = plan.summed.largest
    sent = [*_levels_sent(plan, histogram), *histogram.tables]
    return sum(int(np.count_nonzero(counts > largest)) for counts in sent)


def to_numbers(plan: EvaluationPlan, histogram: ScoreHistogram) -> Numbers:
    """A client's numbers without noise: its counts at the levels sent, its score sums, its tables.

    A count above the plan's largest is refused, or under noise clipped: there a refusal that
    depends on data would be a leak.
    """
    largest, levels = plan.summed.largest, _levels_sent(plan, histogram)
    counts, sums, tables = histogram.counts, histogram.sums, histogram.tables
    parts = [(level[plan.task.sent], largest) for level in levels]
    if sums is not None:
        parts.append((sums, largest * plan.final.sum_steps))
    parts += [(values, largest) for values in tables]
    if not plan.is_noisy:
        check_size(counts, largest)  # sums may be larger, and then fit too
        for values in tables:
            check_size(values, largest)
        return np.concatenate([values.ravel() for values, _ in parts])
    # Clipping moves nothing further than a row does: the sensitivity stays what it was.
    return np.concatenate([np.minimum(values, most).ravel() for values, most in parts])


def _levels_sent(plan: EvaluationPlan, histogram: ScoreHistogram) -> list[Numbers]:
    """Counts at each level sent; none where a table's cells add up to them."""
    levels = histogram.levels(plan.tree)
    return levels[len(levels) - len(plan.final.nodes) :]


def draw_noise(plan: EvaluationPlan, source: WordSource, *, shares: int = 1) -> Numbers:
    """The noise of so many clients together, for each of the numbers; zeros without noise."""
    if not plan.is_noisy:
        return np.zeros(plan.numbers, dtype=np.int64)
    laws = zip(plan.noise_laws(shares), plan.final.nodes, strict=True)
    parts = [law.draw(source, (plan.task.rows_sent * nodes,)) for law, nodes in laws]
    sums_law = plan.sums_law(shares)
    if sums_law is not None:
        parts.append(sums_law.draw(source, (plan.task.rows_sent * plan.axis.bins,)))
    tables = zip(
        plan.summed.table_laws(plan.terms, shares), plan.summed.cells(plan.terms), strict=True
    )
    parts += [law.draw(source, (cells,)) for law, cells in tables]
    return np.concatenate(parts)


def contribution(plan: EvaluationPlan, histogram: ScoreHistogram, source: WordSource) -> Numbers:
    """What one client adds to the sum: its numbers and its share of the noise."""
    return to_numbers(plan, histogram) + draw_noise(plan, source)


def same_contribution(plan: EvaluationPlan, histogram: ScoreHistogram, key: bytes) -> Numbers:
    """The same, with noise that is a secret function of the numbers.

    Two inputs under one pair of masks reveal their difference. A site whose files were restored
    must not add other noise to the same numbers, nor the same noise to others.
    """
    numbers = to_numbers(plan, histogram)
    if not plan.is_noisy:
        return numbers
    return numbers + draw_noise(plan, KeptKeystream(key, b"noise on " + numbers.tobytes()))


def release(plan: EvaluationPlan, total: Numbers, clients: int) -> Released:
    """What the sum over clients tells, small cells hidden; refuses exact sums that no rows have."""
    ends = np.cumsum([plan.task.rows_sent * count for count in plan.final.nodes]).astype(int)
    counted, tables = _split(plan, total)
    *levels, sums = (part.reshape(plan.task.rows_sent, -1) for part in np.split(counted, ends))
    variances = plan.noise_variances(clients)
    margins = plan.margins(tables)
    levels = levels if margins is None else [margins]
    if not variances:
        check_exact(plan, levels[0], sums, clients, tables)
    counts = consistent(levels, plan.tree, variances) if variances else levels[0]
    if not (variances or counts.any()):
        raise ResultWithheld("there are no examples at any site, so there is nothing to evaluate.")
    released = Released(
        plan.axis, counts, clients, sums if plan.final.sum_steps else None, tables=tables
    )
    if not plan.min_cell:
        return released
    if plan.found is not None:
        released = _beside_first(plan, plan.found, released)
    return hide_small(plan.task, released, plan.min_cell, plan.final.sum_steps)


def _beside_first(plan: EvaluationPlan, found: Found, released: Released) -> Released:
    """The second of two exact sums, such that it and the first together show no small cell."""
    rows = released.counts.sum(axis=0) // len(plan.task.layout.groupings)
    first = np.array(found.counts, dtype=np.int64)
    kept = edges_beside(released.axis.edges, rows, found.edges, first, plan.min_cell)
    return merge_at(released, MergedEdges(kept, kept), plan.min_cell, plan.final.sum_steps)


def find_bins(plan: EvaluationPlan, released: Released, session: bytes = b"") -> EvaluationPlan:
    """The plan of the second round, opened in `session`, from counts of all models and classes."""
    two = plan.task.two
    if two is None:
        raise PlanError("only the first of two rounds finds bins.")
    many = released.reports or released.clients
    return plan.located(Found.of(two, released.axis, released.counts, many, session))


def _split(plan: EvaluationPlan, total: Numbers) -> tuple[Numbers, tuple[TableSum, ...]]:
    cells = [table.cells(plan.task.layout, plan.axis) for table in plan.tables]
    first = plan.numbers - sum(cells)
    counted, *tables = np.split(total, first + np.cumsum([0, *cells[:-1]]).astype(int))
    return counted, tuple(map(TableSum, plan.tables, tables))


def summarise(task: Task, counts: NDArray[Any], oddities: Oddities) -> RowSummary:
    """A summary of a client's rows for its operator, from counts by channel and bin."""
    if task.two is not None:  # no class is told apart yet
        return RowSummary(None, oddities)
    labels, positives = _labels(task, counts), None
    if labels is None:
        (whole, *_) = task.slices  # of all rows, by the first score
        positives = int(counts[list(task.contrast(whole).positives)].sum())
    groups = tuple(_groups(task, counts))
    return RowSummary(positives, oddities, labels, groups, _swapped(task, counts))


def _labels(task: Task, counts: NDArray[Any]) -> Parts | None:
    """Rows of each class, or positives of each label, where there are several."""
    if task.labels_told == (None,):
        return None
    whole = task.slices[: len(task.labels_told)]  # of the first model
    rows = {
        str(each.label): int(counts[list(task.contrast(each).positives)].sum()) for each in whole
    }
    return Parts("of classes" if task.layout.classes else "positive", rows)


def _groups(task: Task, counts: NDArray[Any]) -> list[Parts]:
    """Rows of each value of every grouping, by the first score."""
    layout, parts = task.layout, []
    for name, values in layout.groups:
        block = next(each for each in layout.blocks if name in each.grouping)
        size = layout.cells(block.grouping) * layout.by_block
        rows = counts[block.first : block.first + size].sum(axis=1)
        sizes = [len(dict(layout.groups)[each]) + 1 for each in block.grouping]
        by_value = np.moveaxis(rows.reshape(*sizes, -1), block.grouping.index(name), 0)
        totals = by_value.reshape(len(values) + 1, -1).sum(axis=1).tolist()
        parts.append(Parts(name, dict(zip((*values, OTHER), totals, strict=True))))
    return parts


def _swapped(task: Task, counts: NDArray[Any]) -> tuple[str, ...]:
    """Classes that look mixed up: each scores highest, on average, in another of them."""
    layout, classes, bins = task.layout, len(task.layout.classes), counts.shape[1]
    if not classes:
        return ()
    highest = np.arange(classes)
    for block in layout.blocks[: classes * len(layout.groupings)]:  # of the first model
        size = layout.cells(block.grouping) * classes
        by_class = counts[block.first : block.first + size].reshape(-1, classes, bins).sum(axis=0)
        rows, means = by_class.sum(axis=1), np.full(classes, -np.inf)
        np.divide(by_class @ np.arange(bins), rows, out=means, where=rows >= _ENOUGH)
        if rows[block.column] >= _ENOUGH:
            highest[block.column] = means.argmax()
    wrong = np.flatnonzero(highest != np.arange(classes))
    if not np.array_equal(np.sort(highest[wrong]), wrong):
        return ()
    return tuple(str(layout.classes[number]) for number in wrong.tolist())
