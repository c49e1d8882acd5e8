"""Counting the rows of very many clients at once, where only their sum is wanted."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import numpy as np

from fedgauge.binning.axis import Axis
from fedgauge.binning.histogram import ScoreHistogram
from fedgauge.data.examples import Data, Examples, read_batches
from fedgauge.data.files import ScoreFile, ScoreTable
from fedgauge.data.labels import Label
from fedgauge.errors import InputError, located
from fedgauge.privacy import DifferentialPrivacy, DistributedDP, PrivacyModel
from fedgauge.privacy.units import UnitLimiter, limit_rows

Clients = Mapping[str, Data] | Iterable[tuple[str, Data]]

_SMALL: Final = 1024  # rows of a client that is counted with others
_TOGETHER_ROWS: Final = 16_384
_TOGETHER_CLIENTS: Final = 1024


def add_up(
    clients: Clients | ScoreTable,
    axis: Axis,
    positive: Label | None,
    privacy: PrivacyModel,
    *,
    sum_steps: int = 0,
) -> tuple[ScoreHistogram, int]:
    """The pooled histogram and the number of clients in it."""
    total = ScoreHistogram(axis, sum_steps=sum_steps)
    if isinstance(clients, ScoreTable):
        return total, _add_up_table(clients, total, positive, privacy)
    crowd, count = _Crowd(total, positive, privacy), 0
    for name, data in pairs(clients):
        crowd.count(name, data)
        count += 1
    if not count:
        raise InputError("there are no clients. Pass at least one.")
    crowd.finish()
    return total, count


class _Crowd:
    """Counts clients into a total one after another; small ones in memory are counted together.

    A million clients with one row each would else cost a million calls. When rows counted
    together are refused, they are counted again client by client, to say whose they are.
    """

    def __init__(
        self, total: ScoreHistogram, positive: Label | None, privacy: PrivacyModel
    ) -> None:
        self._total = total
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

    def finish(self) -> None:
        """Count those who still wait."""
        self._count_waiting()

    def _count_alone(self, name: str, data: Data) -> None:
        place = f"client {name!r}"
        with located(f"{place}: {data}" if isinstance(data, ScoreFile) else place):
            rows = limit_rows(read_batches(data), self._privacy)
            # Under privacy a refusal that depends on one row would be a leak.
            empty = isinstance(self._privacy, DifferentialPrivacy)
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
    table: ScoreTable, total: ScoreHistogram, positive: Label | None, privacy: PrivacyModel
) -> int:
    # The sum does not depend on which client a row belongs to, only on all rows counting.
    names: set[str] = set()
    limiter = UnitLimiter(privacy)

    def examples() -> Iterator[Examples]:
        for owners, batch in table.batches():
            names.update(owners.tolist())
            yield limiter(batch, owners)

    with located(str(table)):
        total.update_batches(examples(), positive=positive)
    return len(names)


def pairs(clients: Any) -> Iterator[tuple[str, Data]]:
    """Names and data, one client after another."""
    if isinstance(clients, Mapping):
        yield from clients.items()
        return
    items = clients if isinstance(clients, Iterable) else (None,)
    for item in items:
        if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[0], str):
            raise InputError(
                "clients must be a mapping, or an iterable of (name, data): "
                '{"site-a": (y_true, y_score), ...}.'
            )
        yield item
