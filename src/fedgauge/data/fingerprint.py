"""Whether data are those of last time: a keyed digest of rows that their order does not change.

Rows are enciphered under a secret key and added up, so batches can come in any order and size,
and whoever does not hold the key can neither read a row from the digest nor make other rows with
the same one.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from fedgauge.data.columns import Column, distinct
from fedgauge.data.examples import Examples

_BLOCK: Final = 16  # bytes that AES enciphers at once
_ABSENT: Final = b"\0absent"


class Fingerprint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What tells data apart: how many rows, and digests of them.

    `labels` is about labels and subjects, `scores` about scores too; None where a model that is
    sent makes the scores, so that they are no part of the data. `groups` is about groups too; None
    where rows have none.
    """

    rows: int
    labels: str
    scores: str | None = None
    groups: str | None = None

    def fits(self, other: "Fingerprint") -> bool:
        """Whether both can be of the same data."""
        same = (self.rows, self.labels) == (other.rows, other.labels)
        pairs = (self.scores, other.scores), (self.groups, other.groups)
        return same and all(None in pair or pair[0] == pair[1] for pair in pairs)


class Fingerprinter:
    """Takes the fingerprint of batches as they pass.

    Parameters
    ----------
    key
        Secret bytes of whoever holds the data.
    with_scores
        Whether scores are part of the data.

    Examples
    --------
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
        self._labels = np.zeros(2, dtype=np.uint64)
        self._scores = np.zeros(2, dtype=np.uint64)
        self._groups = np.zeros(2, dtype=np.uint64)
        self._with_groups = False

    def watch(self, batches: Iterable[Examples]) -> Iterator[Examples]:
        """The same batches, added as they pass."""
        for batch in batches:
            self.add(batch)
            yield batch

    def add(self, batch: Examples) -> None:
        """Add rows."""
        self._rows += len(batch)
        subjects = self._hashed(batch.subjects, len(batch))
        # Sums of 64 bits wrap on purpose: two of them are 128 bits of a sum over rows.
        whose = self._encipher(self._hashed(batch.labels, len(batch)), subjects)
        self._labels += whose.sum(axis=0, dtype=np.uint64)
        if batch.groups:
            self._with_groups = True
            grouped = whose
            for _, column in sorted(batch.groups.items(), key=lambda each: each[0] or ""):
                hashed = self._hashed(column, len(batch))
                grouped = self._encipher(grouped[:, 0] ^ hashed, grouped[:, 1])
            self._groups += grouped.sum(axis=0, dtype=np.uint64)
        if self._with_scores:
            scores = np.where(np.isnan(batch.y_score), np.nan, batch.y_score + 0.0)  # -0.0 is 0.0
            with_scores = self._encipher(whose[:, 0] ^ scores.view(np.uint64), whose[:, 1])
            self._scores += with_scores.sum(axis=0, dtype=np.uint64)

    def fingerprint(self) -> Fingerprint:
        """The fingerprint of all rows so far."""
        scores = self._scores.tobytes().hex() if self._with_scores else None
        groups = self._groups.tobytes().hex() if self._with_groups else None
        return Fingerprint(self._rows, self._labels.tobytes().hex(), scores, groups)

    def _encipher(self, *halves: NDArray[np.uint64]) -> NDArray[np.uint64]:
        blocks = np.column_stack(halves).astype("<u8")
        enciphered = self._cipher.encryptor().update(blocks.tobytes())
        return np.frombuffer(enciphered, dtype="<u8").reshape(-1, _BLOCK // 8)

    def _hashed(self, column: Column | None, rows: int) -> NDArray[np.uint64]:
        """A keyed hash of every row's value, each distinct value hashed once."""
        if column is None:
            return np.zeros(rows, dtype=np.uint64)
        codes, values = distinct(column)
        words = [*map(_spell, values), _ABSENT]  # code -1, of a missing value, reads the last
        hashed = (hashlib.blake2b(word, key=self._words_key, digest_size=8) for word in words)
        numbers = np.array([int.from_bytes(each.digest(), "little") for each in hashed], np.uint64)
        return numbers.take(codes)


def _spell(value: Any) -> bytes:
    """A value as bytes; 1, 1.0 and True are one label, as they are when rows are counted."""
    if isinstance(value, bool | int | float | np.generic):
        try:
            whole = float(value).is_integer()
            return str(int(value) if whole else float(value)).encode()
        except (TypeError, ValueError, OverflowError):
            pass
    return str(value).encode(errors="surrogatepass")
