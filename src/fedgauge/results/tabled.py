"""The tables of a release, as they are of one group or of all rows."""

from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from numpy.typing import NDArray

from fedgauge.binning.table import Table
from fedgauge.estimation.released import Released
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.slices import Sliced

T = TypeVar("T", bound=Table)


class Cells(NamedTuple, Generic[T]):
    """A table, the sums in its cells, and the variance of the noise in each of them."""

    table: T
    values: NDArray[Any]
    variance: float


def tables_of(
    plan: EvaluationPlan, released: Released, group: str | None, kind: type[T]
) -> Iterator[Cells[T]]:
    """Each table of a kind that tells of a group, or of all rows where that is None.

    Of all rows a table by group is the sum of its groups, and has the noise of each.
    """
    task = plan.task
    told = task.groups_told[group] if group is not None and isinstance(task, Sliced) else None
    variances = plan.table_variances(released.clients)
    for each, variance in zip(released.tables, variances, strict=True):
        if not isinstance(each.table, kind):
            continue
        cells = each.by_group(task.layout)
        if told is None:
            yield Cells(each.table, cells.sum(axis=0), variance * len(cells))
        elif each.table.grouping == told.grouping:
            yield Cells(each.table, cells[told.cell], variance)
