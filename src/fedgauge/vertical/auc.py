"""The AUC alone, where nothing else was asked for: `LabelAuc`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from fedgauge import notebook
from fedgauge.errors import RecordError, located
from fedgauge.escaping import in_one_line
from fedgauge.estimation.impossible import are_names, doubt
from fedgauge.measures.intervals import Estimate
from fedgauge.plan.paired import PAIR_NOISE
from fedgauge.privacy import PrivacyStatement
from fedgauge.results.proof import Signature
from fedgauge.results.record import MetricRecord
from fedgauge.storage.whole import MALFORMED, read_whole, write_whole
from fedgauge.vertical.mechanisms import MECHANISMS

FORMAT: Final = "fedgauge-label-auc/1"
_MOST_EXAMPLES: Final = 1 << 62


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
    doubted
        Names of label parties that sent what no labels have.

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
    doubted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "predicted", MappingProxyType(dict(self.predicted)))

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self.roc_auc, self.privacy, self.mechanism, self.parties, self.examples)
        return LabelAuc, (*fields, dict(self.predicted), self.doubted)

    def __str__(self) -> str:
        return "\n".join(f"{name + ':':12}{words}" for name, words in self._rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return notebook.table(self._rows(), caption="AUC under label privacy")

    def _rows(self) -> list[tuple[str, str]]:
        stated = self.privacy
        parties = "party" if self.parties == 1 else "parties"
        delta = f", delta {stated.delta:g}" if stated.delta else ""
        noise, promise = self.roc_auc.parts.get("noise"), "no differential privacy"
        if stated.epsilon is not None:
            promise = f"label-DP, one label flipped: epsilon {stated.epsilon:g}{delta}"
        told = [
            ("AUC", str(self.roc_auc)),
            ("noise", "none" if noise is None else f"{noise:.2g} (standard deviation)"),
            ("mechanism", self.mechanism),
            ("labels", f"{self.examples:,}, at {self.parties:,} {parties}"),
            ("privacy", promise),
            ("claim", stated.claim),
        ]
        return told if self.caution is None else [*told, ("caution", self.caution)]

    @property
    def caution(self) -> str | None:
        """Why it is not to be relied on, where noise does not explain what parties sent.

        Of parties that sent what labels of their examples give, at most one result in a million has
        one.
        """
        return doubt(self.doubted)

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
            list(self.doubted) or msgspec.UNSET,
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
        record = None
    if record is not None and record.format != FORMAT:
        raise RecordError(f"this is not {FORMAT}. It may be from another version of fedgauge.")
    if record is None or not record.is_whole:
        raise RecordError("this is not an AUC that fedgauge saved. Get it again from who made it.")
    if record.mechanism not in ("histogram", *PAIR_NOISE):
        raise RecordError("it names a mechanism that fedgauge has not.")
    m = record.roc_auc
    caution = m.caution and in_one_line(m.caution)
    auc = Estimate(m.value, m.bounds, m.low, m.high, m.level, m.parts, caution)
    r = record
    return LabelAuc(
        auc, r.privacy, r.mechanism, r.parties, r.examples, r.predicted, r.doubted_parties
    )


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
    doubted: list[str] | msgspec.UnsetType = msgspec.UNSET

    @property
    def doubted_parties(self) -> tuple[str, ...]:
        """Names of parties that sent what no labels have."""
        return tuple(self.doubted) if isinstance(self.doubted, list) else ()

    @property
    def is_whole(self) -> bool:
        """Whether all is there that an AUC is shown with, and as it can be."""
        m, stated = self.roc_auc, self.privacy
        if m.low is None or m.high is None or m.level is None:
            return False
        lowest, highest = m.bounds
        words = (m.caution or "", *stated.public_inputs)
        return (
            0 <= m.low <= m.value <= m.high <= 1
            and 0 <= lowest <= m.value <= highest <= 1
            and 0 < m.level < 1
            and all(each >= 0 for each in m.parts.values())
            and (stated.epsilon is None or (stated.epsilon > 0 and "noise" in m.parts))
            and 1 <= self.parties <= self.examples <= _MOST_EXAMPLES
            and {self.mechanism, *self.predicted} <= {"histogram", *MECHANISMS}
            and all(text.isprintable() for text in words)
            and len(self.doubted_parties) <= self.parties
            and are_names(self.doubted_parties)
        )

    def to_json(self) -> bytes:
        """The result as JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"
