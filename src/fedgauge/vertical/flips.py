"""Labels of one party as flipped, once and for all: kept in a file, and told again from it."""

import hmac
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedgauge import storage
from fedgauge.data.examples import Label, meaning
from fedgauge.errors import InputError, SiteError
from fedgauge.privacy import LocalDP
from fedgauge.privacy.keystream import Keystream
from fedgauge.privacy.local import Flags, flip
from fedgauge.storage import MALFORMED, bounded, open_regular, require_own
from fedgauge.vertical.files import MOST_BYTES

FORMAT: Final = "fedgauge-flips/1"
_AGAIN: Final = (
    "To flip again, name another file: that costs epsilon again, also for labels flipped before."
)


@dataclass(frozen=True, eq=False)
class Flips:
    """Labels of one party, each flipped or not at random, by randomized response.

    Whoever sees them learns of each label no more than epsilon allows, and nothing more from seeing
    them again: made once, they serve any number of models and evaluations. Flipped anew for each,
    the labels would pay epsilon each time.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path, ids, labels = Path(folder) / "labels.flips", ["a", "b"], [True, False]
    ...     first = Flips.kept(path, ids, labels, epsilon=1.0)
    ...     again = Flips.kept(path, ids[::-1], labels[::-1], epsilon=1.0)
    >>> first.told.tolist() == again.told[::-1].tolist(), first.digest == again.digest
    (True, True)
    """

    told: Flags  # whether each label is told to be positive, as ids were asked for
    epsilon: float  # the privacy budget of each label
    # Names the flips wherever they are charged: epsilon once, whatever they are used for. That
    # labels were flipped just now is no sign of it: a crash can come before the charge.
    digest: str

    @classmethod
    def kept(
        cls,
        path: str | Path,
        ids: Any,
        labels: Any,
        *,
        epsilon: float,
        positive: Label | None = None,
    ) -> Self:
        """The flipped labels that a file keeps; without the file, they are made and kept there.

        Flip all labels of a party at once, and pick rows of what is told: each further file costs
        epsilon again. Only its owner can read it. Ids are text or whole numbers, in any order, none
        twice; `positive` is as a plan says it.

        Raises
        ------
        SiteError
            If the file keeps flips of other ids, of another positive label, of labels that have
            changed since, or of another epsilon; if it was changed; or if others than its owner can
            read it.
        """
        privacy, path = LocalDP(epsilon, unit="label"), Path(path)
        rows = _Rows.of(ids, labels, positive)
        try:
            # Who else asks at the same time gets the same flips.
            with storage.locked(path.with_name(f".{path.name}.lock")):
                if not path.exists():
                    storage.replace(path, _Kept.of(rows, privacy).to_bytes())
                kept = _read(path)
        except OSError as error:
            raise SiteError(f"cannot keep flips in {path}: {error.strerror}.") from None
        kept.check(path, rows, privacy.epsilon)
        told = np.empty(len(rows.order), dtype=bool)
        told[rows.order] = kept.told(len(rows.order))
        return cls(told, privacy.epsilon, kept.seal.hex())


def count_by_bin(told: Flags, bins: NDArray[np.integer[Any]], number: int) -> NDArray[np.int64]:
    """What a party sends: how many labels in each of so many bins are told to be positive."""
    return np.bincount(bins[told], minlength=number)


@dataclass(frozen=True, eq=False)
class _Rows:
    """What is asked for: ids in an order that does not depend on how they came, and labels in it.

    Whether flips are refused for another question must not depend on labels: whoever chooses the
    positive label would learn of them by the silence.
    """

    order: NDArray[np.int64]
    asked: bytes  # of the ids and of what is called positive, and of no label
    labels: Flags

    @classmethod
    def of(cls, ids: Any, labels: Any, positive: Label | None) -> Self:
        """Check rows, and bring them into order."""
        try:
            array = pa.array(ids, from_pandas=True).cast(pa.large_string())
        except (pa.ArrowException, OverflowError):
            raise InputError("ids mix kinds of values. Use text or whole numbers.") from None
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        flags = np.asarray(labels)
        if flags.dtype != bool or flags.shape != (len(array),):
            raise InputError("labels to be flipped are truth values, one for each id.")
        if array.null_count:
            raise InputError(f"{array.null_count:,} ids are missing.")
        repeated = len(array) - len(array.unique())
        if repeated:
            raise InputError(f"{repeated:,} ids come twice. Each example has one.")
        order = pc.sort_indices(array).to_numpy().astype(np.int64)
        ordered = array.take(pa.array(order))
        sizes = pc.binary_length(ordered).to_numpy().astype("<i8").tobytes()
        text = b"".join(ordered.cast(pa.large_binary()).to_pylist())
        return cls(order, _meaning_of(positive) + b"\n" + sizes + text, flags[order])


def _meaning_of(positive: Label | None) -> bytes:
    """The same for 1, True, 1.0 and "1", which labels are alike by."""
    told = meaning(1 if positive is None else positive)
    if isinstance(told, bool) or (isinstance(told, float) and told.is_integer()):
        told = int(told)
    return f"{type(told).__name__} {told!r}".encode()


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file holds; keyed digests: two files do not tell that their rows are the same."""

    format: str
    epsilon: float
    key: bytes
    ids: bytes
    labels: bytes
    bits: bytes
    seal: bytes = b""

    @classmethod
    def of(cls, rows: _Rows, privacy: LocalDP) -> Self:
        """Flip labels, from the operating system's randomness."""
        key = os.urandom(32)
        told = flip(rows.labels, privacy.calibrate_flips(), Keystream())
        bits = np.packbits(told).tobytes()
        made = cls(FORMAT, privacy.epsilon, key, *_digests(key, rows), bits)
        return msgspec.structs.replace(made, seal=made.sealed())

    def to_bytes(self) -> bytes:
        """The file."""
        return msgspec.json.encode(self)

    def sealed(self) -> bytes:
        """A digest of all the rest."""
        rest = msgspec.structs.replace(self, seal=b"")
        return _digest(self.key, b"seal", rest.to_bytes())

    def check(self, path: Path, rows: _Rows, epsilon: float) -> None:
        """Refuse flips of other rows, or of another epsilon."""
        ids, labels = _digests(self.key, rows)
        if not hmac.compare_digest(self.ids, ids):
            raise SiteError(
                f"{path} keeps flips of other ids than these, or of another positive label. "
                f"{_AGAIN}"
            )
        if not hmac.compare_digest(self.labels, labels):
            # Told beside the old ones, labels changed under the same flips would stand out exactly.
            raise SiteError(
                f"some labels have changed since they were flipped into {path}, and the flips kept "
                f"would show which. Use the labels as they were. {_AGAIN}"
            )
        if self.epsilon != epsilon:
            raise SiteError(
                f"{path} keeps flips of epsilon {self.epsilon:g}, and {epsilon:g} was asked for. "
                f"Ask for {self.epsilon:g}. {_AGAIN}"
            )

    def told(self, rows: int) -> Flags:
        """Whether each label is told to be positive, in the order of the file."""
        return np.unpackbits(np.frombuffer(self.bits, np.uint8), count=rows).astype(bool)


def _read(path: Path) -> _Kept:
    with open_regular(path) as file:
        # Asked of the open file: what is checked is what is read.
        opened, data = os.fstat(file.fileno()), bounded(file, MOST_BYTES)
    require_own(path, SiteError, opened=opened, private=True)
    try:
        kept = msgspec.json.decode(data, type=_Kept)
    except MALFORMED:
        kept = None
    if kept is None or kept.format != FORMAT or not hmac.compare_digest(kept.seal, kept.sealed()):
        raise SiteError(
            f"{path} does not keep flips as fedgauge writes them, or was changed. Restore it from "
            f"a copy. {_AGAIN}"
        )
    return kept


def _digests(key: bytes, rows: _Rows) -> tuple[bytes, bytes]:
    return (
        _digest(key, b"ids", rows.asked),
        _digest(key, b"labels", np.packbits(rows.labels).tobytes()),
    )


def _digest(key: bytes, what: bytes, data: bytes) -> bytes:
    return hmac.digest(key, what + b"\n" + data, "sha256")
