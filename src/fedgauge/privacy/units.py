"""Limit what one unit contributes: the cap that a sensitivity rests on, enforced at the client."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedgauge.data.columns import distinct
from fedgauge.data.examples import Examples
from fedgauge.errors import InputError
from fedgauge.privacy.models import UnitCap

Units = tuple[NDArray[Any], list[Any]]  # a number for each row's unit, and what it stands for


def limit_rows(batches: Iterable[Examples], cap: UnitCap | None) -> Iterator[Examples]:
    """One client's batches with as many rows of each subject, or of the client, as the cap says.

    The first rows of a unit count: which stay depends on that unit's rows alone.
    """
    return UnitLimiter(cap).limit(batches)


class UnitLimiter:
    """Tells which rows of a unit are within the cap, over all batches it is shown."""

    def __init__(self, cap: UnitCap | None) -> None:
        self._cap = cap
        self._seen: Counter[Any] = Counter()

    def limit(self, batches: Iterable[Examples]) -> Iterator[Examples]:
        """The batches of one client, without the rows beyond the cap."""
        for batch in batches:
            kept = self.within_cap(batch, "")
            yield batch if kept is None else batch.select(kept)

    def within_cap(self, batch: Examples, clients: str | NDArray[Any]) -> NDArray[np.bool_] | None:
        """Which rows of the batch still count, None for all; `clients` names whose they are."""
        cap = self._cap
        if cap is None:
            return None
        if cap.unit == "subject" and batch.subjects is None:
            raise InputError(
                "the plan protects subjects, so each row needs the id of its subject: "
                "Examples(y_true, y_score, subject=...)."
            )
        names = np.full(len(batch), clients) if isinstance(clients, str) else clients
        units = _number_units([names]) if cap.unit == "client" else self._subjects(batch, names)
        return self._first_rows(*units, cap.rows)

    def _subjects(self, batch: Examples, clients: NDArray[Any]) -> Units:
        return _number_units([clients, batch.subject])

    def _first_rows(self, codes: NDArray[Any], keys: list[Any], cap: int) -> NDArray[np.bool_]:
        before = np.array([self._seen[key] for key in keys], dtype=np.int64)
        # Rank of each row among the rows of its unit in this batch.
        order = np.argsort(codes, kind="stable")
        counts = np.bincount(codes, minlength=len(keys))
        starts = np.cumsum(counts) - counts
        rank = np.empty(len(codes), dtype=np.int64)
        rank[order] = np.arange(len(codes)) - starts[codes[order]]
        self._seen.update(dict(zip(keys, counts.tolist(), strict=True)))
        within: NDArray[np.bool_] = rank + before[codes] < cap
        return within


class LenientLimiter(UnitLimiter):
    """The same for one client whose ids may be anything; rows without one are left out.

    As one subject together, which of their rows count would depend on the others.
    """

    def __init__(self, cap: UnitCap | None) -> None:
        super().__init__(cap)
        self.no_subject = 0

    def _subjects(self, batch: Examples, clients: NDArray[Any]) -> Units:
        del clients  # there is but one
        assert batch.subjects is not None  # noqa: S101  (checked before)
        codes, ids = distinct(batch.subjects)
        numbers: dict[str | None, int] = {}
        # Ids that are spelled alike are one; code -1, of those that are missing, reads the last.
        spelled = [*map(_spell_any, ids), None]
        by_code = [numbers.setdefault(word, len(numbers)) for word in spelled]
        return np.array(by_code).take(codes), list(numbers)

    def _first_rows(self, codes: NDArray[Any], keys: list[Any], cap: int) -> NDArray[np.bool_]:
        named = np.array([key is not None for key in keys], dtype=bool)[codes]
        self.no_subject += int(np.count_nonzero(~named))
        within: NDArray[np.bool_] = super()._first_rows(codes, keys, cap) & named
        return within


def _spell_any(identifier: Any) -> str | None:
    try:
        return _spell(identifier)
    except Exception:  # an object can raise anything
        return None


def _number_units(columns: list[Any]) -> Units:
    """A number for each row's unit, and what each number stands for."""
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        encoded = _encode_ids(column)
        codes = codes * (encoded.max(initial=0) + 1) + encoded
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    keys = zip(*([_spell(value) for value in column[first]] for column in columns), strict=True)
    return codes, list(keys)


def _spell(identifier: Any) -> str:
    # A column read in chunks can turn from numbers to text: 7, 7.0 and "7" are one subject.
    whole = isinstance(identifier, float | np.floating) and float(identifier).is_integer()
    return str(int(identifier) if whole else identifier)


def _encode_ids(ids: Any) -> NDArray[np.int64]:
    try:
        encoded = pa.array(ids, from_pandas=True).dictionary_encode()
    except (pa.ArrowException, OverflowError):
        raise InputError("subject ids mix kinds of values. Use text or whole numbers.") from None
    if pa.types.is_nested(encoded.type.value_type):
        raise InputError("subject ids are lists. Use text or whole numbers.")
    missing = encoded.indices.null_count
    if missing:
        raise InputError(f"{missing:,} rows have no subject id. Give each row one, or drop it.")
    codes: NDArray[np.int64] = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes
