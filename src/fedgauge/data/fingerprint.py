"""Whether data are those of last time: a keyed digest of rows that their order does not change.

Rows are enciphered under a secret key and added up. Nobody without the key can read a row from the
digest, or make other rows with the same one.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from fedgauge.data.columns import Column, distinct
from fedgauge.data.examples import Y_TRUE, Examples

_BLOCK: Final = 16  # bytes that AES enciphers at once
_ABSENT: Final = b"\0absent"
Words = NDArray[np.uint64]
C = TypeVar("C")


class Fingerprint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What tells data apart: how many rows, and digests of them.

    `labels` is about labels and subjects; `scores` also about all scores of a row, None where a
    model that is sent makes them; `groups` also about groups, None where rows have none. `columns`
    are digests with each score by itself, where rows have several. `named` is also about names of
    columns, where several could be mixed up. Reports in two rounds have one digest, of all rows in
    their order.
    """

    rows: int
    labels: str
    scores: str | None = None
    groups: str | None = None
    columns: tuple[str, ...] = ()
    named: str | None = None

    def fits(self, other: "Fingerprint") -> bool:
        """Whether both can be of the same data."""
        mine, theirs = ((each.scores, each.groups, each.named) for each in (self, other))
        fits = (None in pair or pair[0] == pair[1] for pair in zip(mine, theirs, strict=True))
        return self._same_labels(other) and all(fits)

    def overlaps(self, other: "Fingerprint") -> bool:
        """Whether both can be of the same rows and share a score, whatever their groups."""
        if not self._same_labels(other) or None in (self.scores, other.scores):
            return self._same_labels(other)
        return bool({*self._scores_each} & {*other._scores_each})

    def _same_labels(self, other: "Fingerprint") -> bool:
        return (self.rows, self.labels) == (other.rows, other.labels)

    @property
    def _scores_each(self) -> tuple[str | None, ...]:
        return self.columns or (self.scores,)


def _spell(value: Any) -> bytes:
    """A value as bytes; 1, 1.0 and True are one label, as they are when rows are counted."""
    if isinstance(value, bool | int | float | np.generic):
        try:
            whole = float(value).is_integer()
            return str(int(value) if whole else float(value)).encode()
        except (TypeError, ValueError, OverflowError):
            pass
    return str(value).encode(errors="surrogatepass")


def _spell_group(value: Any) -> bytes:
    """A group's value as bytes, by its text, as rows are sorted into groups: 1 is not True."""
    text = value if isinstance(value, str) else str(value).removesuffix(".0")
    return text.encode(errors="surrogatepass")


class Fingerprinter:
    """Takes the fingerprint of batches as they pass, under a secret `key` of the data's owner.

    >>> one, other = Fingerprinter(b"secret"), Fingerprinter(b"secret")
    >>> one.add(Examples([0, 1], [0.2, 0.7]))
    >>> other.add(Examples([1], [0.7]))
    >>> other.add(Examples([0], [0.2]))
    >>> one.fingerprint() == other.fingerprint()
    True
    """

    def __init__(self, key: bytes, *, with_scores: bool = True) -> None:
        derived = hashlib.blake2b(key, person=b"fedgauge rows").digest()
        self._words_key = derived[32:]
        self._cipher = Cipher(algorithms.AES(derived[:32]), modes.ECB())  # noqa: S305  (of blocks)
        self._with_scores = with_scores
        self._rows = 0
        self._labels = _no_rows()
        self._scores = _no_rows()
        self._groups = _no_rows()
        self._columns: dict[tuple[str, int], Words] = {}
        self._with_groups = False
        self._named: Words | None = None

    def watch(self, batches: Iterable[Examples]) -> Iterator[Examples]:
        """The same batches, added as they pass."""
        for batch in batches:
            self.add(batch)
            yield batch

    def add(self, batch: Examples) -> None:
        """Add rows."""
        self._rows += len(batch)
        # Sums of 64 bits wrap on purpose: two of them are 128 bits of a sum over rows.
        row = whose = self._whose(batch)
        self._labels += whose.sum(axis=0, dtype=np.uint64)
        if self._with_scores:
            # Chained, so that a row's scores and groups belong together: two rows that swap one
            # of them are other rows.
            for place, scores in _columns(batch):
                own = self._encipher(whose[:, 0] ^ scores, whose[:, 1])
                total = self._columns.setdefault(place, _no_rows())
                total += own.sum(axis=0, dtype=np.uint64)
                row = own if row is whose else self._encipher(row[:, 0] ^ scores, row[:, 1])
            self._scores += row.sum(axis=0, dtype=np.uint64)
        if batch.groups:
            self._with_groups = True
            for _, column in _in_order(batch.groups):
                codes = self._hashed(column, len(batch), _spell_group)
                row = self._encipher(row[:, 0] ^ codes, row[:, 1])
            self._groups += row.sum(axis=0, dtype=np.uint64)
        called = self._called(batch)
        if called is not None:
            row = self._encipher(row[:, 0] ^ self._word(called), row[:, 1])
            self._named = (_no_rows() if self._named is None else self._named) + row.sum(
                axis=0, dtype=np.uint64
            )

    def fingerprint(self) -> Fingerprint:
        """The fingerprint of all rows so far."""
        scores = self._scores.tobytes().hex() if self._with_scores else None
        groups = self._groups.tobytes().hex() if self._with_groups else None
        columns = sorted(total.tobytes().hex() for total in self._columns.values())
        several = tuple(columns) if len(columns) > 1 else ()
        named = None if self._named is None else self._named.tobytes().hex()
        return Fingerprint(self._rows, self._labels.tobytes().hex(), scores, groups, several, named)

    def _called(self, batch: Examples) -> bytes | None:
        """What columns are called, where rows have several of one sort."""
        scores = _in_order(batch.scores) if self._with_scores else []
        tables = [batch.labels, *(column for _, column in scores)]
        in_tables = any(getattr(each, "ndim", 1) > 1 for each in tables)
        if not in_tables and max(len(scores), len(batch.groups)) < 2:
            return None
        names = batch.names
        told = (
            names.get(Y_TRUE, ()),
            [(model, names.get(model, ())) for model, _ in scores],
            [name for name, _ in _in_order(batch.groups)],
        )
        return repr(told).encode()

    def _whose(self, batch: Examples) -> Words:
        """Labels and subject of each row, enciphered."""
        rows, labels = len(batch), batch.labels
        several = isinstance(labels, np.ndarray) and labels.ndim == 2
        first, *others = labels.T if several else [labels]
        whose = self._encipher(self._hashed(first, rows), self._hashed(batch.subjects, rows))
        for other in others:
            whose = self._encipher(whose[:, 0] ^ self._hashed(other, rows), whose[:, 1])
        return whose

    def _encipher(self, *halves: Words) -> Words:
        blocks = np.column_stack(halves).astype("<u8")
        enciphered = self._cipher.encryptor().update(blocks.tobytes())
        return np.frombuffer(enciphered, dtype="<u8").reshape(-1, _BLOCK // 8)

    def _hashed(
        self, column: Column | None, rows: int, spell: Callable[[Any], bytes] = _spell
    ) -> Words:
        """A keyed hash of every row's value, each distinct value hashed once."""
        if column is None:
            return np.zeros(rows, dtype=np.uint64)
        codes, values = distinct(column)
        words = [*map(spell, values), _ABSENT]  # code -1, of a missing value, reads the last
        return np.array([*map(self._word, words)], np.uint64).take(codes)

    def _word(self, spelled: bytes) -> np.uint64:
        hashed = hashlib.blake2b(spelled, key=self._words_key, digest_size=8)
        return np.uint64(int.from_bytes(hashed.digest(), "little"))


def _no_rows() -> Words:
    return np.zeros(2, dtype=np.uint64)


def _in_order(columns: Mapping[str | None, C]) -> list[tuple[str | None, C]]:
    return sorted(columns.items(), key=lambda each: each[0] or "")


def _columns(batch: Examples) -> Iterator[tuple[tuple[str, int], Words]]:
    """Each score of the rows, in an order that does not depend on how they came."""
    for model, scores in _in_order(batch.scores):
        for number, column in enumerate(scores.T if scores.ndim == 2 else [scores]):
            plain = np.where(np.isnan(column), np.nan, column + 0.0)  # -0.0 is 0.0
            yield (model or "", number), plain.view(np.uint64)
