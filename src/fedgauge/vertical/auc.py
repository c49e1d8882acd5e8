"""The AUC alone, where nothing else was asked for: `LabelAuc`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from fedgauge import notebook
from fedgauge.errors import RecordError, located
from fedgauge.measures.intervals import Estimate
from fedgauge.privacy import PrivacyStatement
from fedgauge.results.proof import Signature
from fedgauge.results.record import MetricRecord
from fedgauge.storage.whole import MALFORMED, read_whole, write_whole

FORMAT: Final = "fedgauge-label-auc/1"


@dataclass(frozen=True, eq=False)
class LabelAuc:
    """An AUC of scores at one party and labels at others, under privacy for labels.

    Attributes
    ----------
    roc_auc
        The AUC with its interval.
    privacy
        What may be claimed.
    mechanism
        How labels were counted: ``"histogram"`` or one of the pairs of Sun et al. 2022.
    parties, examples
        Label parties, and examples that have both a score and a label.
    predicted
        For each mechanism that could have been chosen, the error it was expected to add, from what
        is public.

    Examples
    --------
    >>> import fedgauge as fg
    >>> scores = {i: (i % 10) / 10 for i in range(2000)}
    >>> labels = {"a": {i: i % 10 > 6 for i in range(900)}}
    >>> labels["b"] = {i: i % 10 > 4 for i in range(900, 2000)}
    >>> result = fg.evaluate_vertical(
    ...     scores, labels, only="roc_auc", mechanism="adaptive", seed=1
    ... )
    >>> result.mechanism, result.roc_auc.value > 0.9
    ('adaptive', True)
    """

    roc_auc: Estimate
    privacy: PrivacyStatement
    mechanism: str
    parties: int
    examples: int
    predicted: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "predicted", MappingProxyType(dict(self.predicted)))

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self.roc_auc, self.privacy, self.mechanism, self.parties, self.examples)
        return LabelAuc, (*fields, dict(self.predicted))

    def __str__(self) -> str:
        return "\n".join(f"{name + ':':12}{words}" for name, words in self._rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return notebook.table(self._rows(), caption="AUC under label privacy")

    def _rows(self) -> list[tuple[str, str]]:
        stated = self.privacy
        parties = "party" if self.parties == 1 else "parties"
        delta = f", delta {stated.delta:g}" if stated.delta else ""
        return [
            ("AUC", str(self.roc_auc)),
            ("noise", f"{self.roc_auc.parts['noise']:.2g} (standard deviation)"),
            ("mechanism", self.mechanism),
            ("labels", f"{self.examples:,}, at {self.parties:,} {parties}"),
            ("privacy", f"label-DP, one label flipped: epsilon {stated.epsilon:g}{delta}"),
            ("claim", stated.claim),
        ]

    @property
    def signature(self) -> Signature:
        """That nobody signed it."""
        return Signature("unsigned", simulated=self.privacy.claim == "simulated")

    @property
    def record(self) -> "AucRecord":
        """The result as plain data."""
        return AucRecord(
            FORMAT,
            MetricRecord.of(self.roc_auc),
            self.privacy,
            self.mechanism,
            self.parties,
            self.examples,
            dict(self.predicted),
        )

    def to_json(self, path: str | Path) -> None:
        """Save the result."""
        write_whole(path, self.record.to_json())

    @classmethod
    def from_json(cls, path: str | Path) -> "LabelAuc":
        """Load a saved result."""
        data = read_whole(path)
        with located(str(path)):
            return _read(data)


def is_auc(path: str | Path) -> bool:
    """Whether a file holds an AUC alone, and not a whole result."""
    try:
        return msgspec.json.decode(read_whole(path), type=_Header).format == FORMAT
    except MALFORMED:
        return False


def _read(data: bytes) -> LabelAuc:
    try:
        record = msgspec.json.decode(data, type=AucRecord)
    except MALFORMED:
        raise RecordError("this is not an AUC that fedgauge saved.") from None
    if record.format != FORMAT:
        raise RecordError(f"this is not {FORMAT}. It may be from another version of fedgauge.")
    m = record.roc_auc
    auc = Estimate(m.value, m.bounds, m.low, m.high, m.level, m.parts, m.caution)
    r = record
    return LabelAuc(auc, r.privacy, r.mechanism, r.parties, r.examples, r.predicted)


class _Header(msgspec.Struct):
    format: str


class AucRecord(msgspec.Struct, frozen=True):
    """A :class:`LabelAuc` as plain data."""

    format: str
    roc_auc: MetricRecord
    privacy: PrivacyStatement
    mechanism: str
    parties: int
    examples: int
    predicted: dict[str, float]

    def to_json(self) -> bytes:
        """The result as JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"
