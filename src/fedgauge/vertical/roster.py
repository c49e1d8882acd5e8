"""The examples that a label party answers for: their ids, or their scores, and no label."""

import hashlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedgauge.data.keyed import ids_of
from fedgauge.errors import InputError, ProtocolError, SiteError
from fedgauge.keys import SigningKey, verify
from fedgauge.site import Site
from fedgauge.storage import durable
from fedgauge.typing import Floats
from fedgauge.vertical.party_file import covered, decoded

FORMAT: Final = "fedgauge-roster/1"
_SIGNED_AS: Final = b"fedgauge roster\0"
_TWO: Final = 2  # distinct values: labels of two classes, in whatever numbers
_FEW: Final = 10  # distinct whole numbers: classes, grades, or two classes and codes of the missing
MOST_EXAMPLES: Final = 1 << 27  # a few bytes of a party can claim any number of them


class Roster(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A label party's list of examples, as it sends it to whoever scores them.

    Ids stand in the order of their text, scores in theirs: the list says nothing of the order of
    rows, which may tell of labels.

    Attributes
    ----------
    format
        ``"fedgauge-roster/1"``.
    party
        The party's public key.
    ids
        Ids as text; none comes twice. Empty where the party scored its examples itself.
    scores, rows
        Then the distinct scores, and how many examples have each, as little-endian numbers.
    signature
        The party's.

    Examples
    --------
    >>> from fedgauge.keys import SigningKey
    >>> roster = Roster.of_ids([3, 1, 2], SigningKey.generate())
    >>> roster.ids, Roster.from_bytes(roster.to_bytes()) == roster
    (('1', '2', '3'), True)
    """

    format: str
    party: bytes
    ids: tuple[str, ...]
    scores: bytes
    rows: bytes
    signature: bytes

    @classmethod
    def of_ids(cls, ids: Any, key: SigningKey) -> Self:
        """The roster of examples that somebody else scores."""
        texts = ids_of("labels", ids)
        repeated = len(texts) - len(texts.unique())
        if repeated:
            raise InputError(
                f"{repeated:,} of {len(texts):,} ids come again. Each example has one: check that "
                "this is the column of ids."
            )
        return cls._signed(key, ids=tuple(sorted(texts.to_pylist())))

    @classmethod
    def of_scores(cls, scores: Floats, key: SigningKey, *, few_values: bool = False) -> Self:
        """The roster of examples that the party scored itself.

        Of a column of labels it would show how many are positive, and nobody pays for a roster: so
        scores that may be labels are refused, unless `few_values` says that they are scores.
        """
        if not np.isfinite(scores).all():
            missing = int(np.count_nonzero(~np.isfinite(scores)))
            raise InputError(f"{missing:,} of {scores.size:,} scores are missing or infinite.")
        values, rows = np.unique(scores + 0.0, return_counts=True)  # -0 and 0 are one score
        if len(values) and np.isin(values, (0.0, 1.0)).all():
            raise InputError(
                "all scores are 0 or 1, as labels are, and a roster would show how many are 1. "
                "Name the column of scores; if a model gives no others, write 0.25 and 0.75."
            )
        whole = bool(np.all(values == np.floor(values)))
        if not few_values and 0 < len(values) <= (_FEW if whole else _TWO):
            raise InputError(
                "the scores have so few distinct values that they may be labels, and a roster "
                "would show how many examples have each. Name the column of scores. If these are "
                "scores, say so: --few-values, or few_values=True."
            )
        return cls._signed(
            key, scores=values.astype("<f8").tobytes(), rows=rows.astype("<i8").tobytes()
        )

    @property
    def has_few_values(self) -> bool:
        """Whether scores have few distinct values, as labels of several classes do."""
        return self.is_scored and len(self.values) <= _FEW

    @classmethod
    def _signed(cls, key: SigningKey, **examples: Any) -> Self:
        fields: dict[str, Any] = {"ids": (), "scores": b"", "rows": b"", **examples}
        unsigned = cls(FORMAT, key.public, **fields, signature=b"")
        return msgspec.structs.replace(unsigned, signature=key.sign(covered(unsigned, _SIGNED_AS)))

    def to_bytes(self) -> bytes:
        """The roster as a file."""
        return msgspec.msgpack.encode(self)

    def keep(self, site: Site) -> None:
        """Let a site remember that it made this roster, before anybody else sees it.

        It remembers a digest, and so answers for these examples, all of them and no others.
        """
        digest = _examples_digest(self.ids, self.scores)
        path = _record(site, digest)
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            durable.replace(path, digest.encode())
        except OSError as error:
            raise SiteError(f"cannot keep {path}: {error.strerror}.") from None

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a roster; refused unless it is whole, in its one form, and its party signed it."""
        roster = decoded(cls, data, FORMAT)
        if roster is None:
            raise ProtocolError(
                f"this is not a roster as this fedgauge writes them ({FORMAT}), or not all of it. "
                "`fedgauge vertical roster` makes one."
            )
        if not verify(roster.party, covered(roster, _SIGNED_AS), roster.signature):
            raise ProtocolError("the roster is not signed by the party it names.")
        roster._check()
        return roster

    def _check(self) -> None:
        if self.ids and (self.scores or self.rows):
            raise ProtocolError("the roster has ids and scores. It must have one of both.")
        if any(len(data) % 8 for data in (self.scores, self.rows)):
            raise ProtocolError("the roster's scores are cut off.")
        if len(self.scores) != len(self.rows):
            raise ProtocolError("the roster does not say how many examples have each score.")
        if self.is_scored:
            rising = np.all(self.values[1:] > self.values[:-1]) and np.isfinite(self.values).all()
            # Each within what all may be, so that their sum does not wrap around.
            if not rising or np.any((self.times < 1) | (self.times > MOST_EXAMPLES)):
                raise ProtocolError("the roster's scores are not as they must be: each once.")
        elif any(a >= b for a, b in zip(self.ids, self.ids[1:], strict=False)):
            raise ProtocolError("the roster has an id twice, or out of order.")

    @property
    def is_scored(self) -> bool:
        """Whether the party scored its examples itself."""
        return bool(self.scores)

    @property
    def values(self) -> Floats:
        """The distinct scores."""
        return np.frombuffer(self.scores, "<f8")

    @property
    def times(self) -> NDArray[np.int64]:
        """How many examples have each of these scores."""
        return np.frombuffer(self.rows, "<i8")

    @cached_property
    def keys(self) -> pa.Array:
        """What names the examples: ids, or distinct scores."""
        return pa.array(self.values) if self.is_scored else ids_of("roster", list(self.ids))

    @property
    def examples(self) -> int:
        """How many examples the party answers for."""
        return int(self.times.sum()) if self.is_scored else len(self.ids)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the roster."""
        return hashlib.sha256(covered(self, _SIGNED_AS)).digest()


def require_listed(site: Site, ids: tuple[str, ...], scores: bytes) -> None:
    """Refuse examples that are not those of a roster which this site made.

    Whoever scores would else choose which of a party's labels are counted: of examples that it
    never listed, or, with some left out, of a few.
    """
    digest = _examples_digest(ids, scores)
    try:
        listed = _record(site, digest).read_bytes() == digest.encode()
    except FileNotFoundError:
        listed = False
    except OSError as error:
        raise SiteError(f"cannot read {_record(site, digest)}: {error.strerror}.") from None
    if not listed:
        raise ProtocolError(
            "the examples are not those of a roster that this site made: some are others, or "
            "missing, or written otherwise. Ask whoever scores for bins of the roster that you "
            "sent. If this site lost its record of it, make it again: `fedgauge vertical roster`."
        )


def _examples_digest(ids: tuple[str, ...], scores: bytes) -> str:
    text = b"fedgauge examples\0" + msgspec.msgpack.encode((ids, scores))
    return hashlib.sha256(text).hexdigest()


def _record(site: Site, digest: str) -> Path:
    return site.folder / "rosters" / digest[:32]


def check_rosters(rosters: Mapping[bytes, Roster]) -> None:
    """Refuse rosters that do not go together: an id at two parties, ids and scores mixed."""
    if not rosters:
        raise InputError("there are no rosters. Each label party makes one.")
    if len({roster.is_scored for roster in rosters.values()}) > 1:
        raise InputError(
            "some rosters have ids and others scores. Either one party scores all examples, or "
            "each its own."
        )
    if sum(roster.examples for roster in rosters.values()) > MOST_EXAMPLES:
        raise InputError(f"the rosters have more than {MOST_EXAMPLES:,} examples in all.")
    if any(not roster.examples for roster in rosters.values()):
        raise InputError("a roster has no examples. Leave that party out.")
    ids = pa.chunked_array([roster.keys for roster in rosters.values()])
    repeated = len(ids) - len(ids.unique())
    if repeated and not next(iter(rosters.values())).is_scored:
        raise InputError(
            f"{repeated:,} ids are on the rosters of two parties. Each example has one label party."
        )
