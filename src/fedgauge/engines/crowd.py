"""Counting the rows of very many clients, where only their sum is wanted."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import numpy as np

from fedgauge.binning.histogram import Draw, ScoreHistogram
from fedgauge.data.examples import Data, Examples, read_batches
from fedgauge.data.files import ScoreFile, ScoreTable
from fedgauge.engines.contribution import count_batches, count_rows
from fedgauge.errors import InputError, located
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy.units import UnitLimiter

Clients = Mapping[str, Data] | Iterable[tuple[str, Data]]
# Takes the histogram of a client, or of several whose counts no rule of the plan could touch.
Take = Callable[[ScoreHistogram], None]

_SMALL: Final = 1024  # rows of a client that is counted with others
_TOGETHER_ROWS: Final = 16_384
_TOGETHER_CLIENTS: Final = 1024


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

    A million clients with one row each would else cost a million calls. When rows counted
    together are refused, they are counted again client by client, to say whose they are.
    """

    def __init__(self, plan: EvaluationPlan, take: Take, largest: int, draw: Draw | None) -> None:
        self._plan = plan
        self._draw = draw
        self._take = take
        self._waiting: list[tuple[str, Examples]] = []
        self._rows = 0
        self._most_rows = min(_TOGETHER_ROWS, largest)
        # Only plain rows, of which all count, join without being looked at.
        self._alike = plan.privacy.unit_cap is None and plan.task.layout.is_plain

    def count(self, name: str, data: Data) -> None:
        """Count one client, now or with others."""
        with located(f"client {name!r}"):
            examples = data if callable(data) else next(read_batches(data))
        small = min(_SMALL, self._most_rows)
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
        kinds = {(each.y_true.dtype, each.y_true.ndim) for _, each in waiting}
        if self._alike and len(kinds) == 1:  # labels of one kind join without being changed
            with suppress(InputError):
                labels = np.concatenate([examples.y_true for _, examples in waiting])
                scores = np.concatenate([examples.y_score for _, examples in waiting])
                self._take(count_rows(self._plan, (labels, scores), draw=self._draw))
                return
        for name, examples in waiting:
            self._count_alone(name, examples)

    def _count_alone(self, name: str, data: Data) -> None:
        place = f"client {name!r}"
        with located(f"{place}: {data}" if isinstance(data, ScoreFile) else place):
            # Under privacy a refusal that depends on one row would be a leak.
            may_be_empty = self._plan.privacy.adds_noise
            counted = count_rows(self._plan, data, may_be_empty=may_be_empty, draw=self._draw)
            self._take(counted)


def _count_table(
    table: ScoreTable, plan: EvaluationPlan, take: Take, largest: int, draw: Draw | None
) -> int:
    # The sum does not depend on which client a row belongs to, only on all rows counting.
    names: set[str] = set()

    def examples() -> Iterator[Examples]:
        for owners, batch in _capped_batches(table, plan):
            names.update(owners.tolist())
            yield batch

    with located(str(table)):
        pooled = count_batches(plan, examples(), draw=draw)
        coarsest = pooled.levels(plan.tree)[-len(plan.final.nodes) or -1]
        tables = zip(plan.tables, pooled.tables, strict=True)
        small = all(cells.max() <= largest * table.weight for table, cells in tables)
        if small and coarsest.max() <= largest:  # then no count of a client is larger
            take(pooled)
        else:
            _take_apart(table, plan, take)
    return len(names)


def _take_apart(table: ScoreTable, plan: EvaluationPlan, take: Take) -> None:
    """Each client's histogram on its own: read again, since some count may be too large."""
    histograms: defaultdict[str, ScoreHistogram] = defaultdict(plan.histogram)
    for owners, batch in _capped_batches(table, plan):
        names, codes = np.unique(owners, return_inverse=True)
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
        kept = limiter.within_cap(batch, owners)
        yield (owners, batch) if kept is None else (owners[kept], batch.select(kept))


def pairs(clients: Any) -> Iterator[tuple[str, Data]]:
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
