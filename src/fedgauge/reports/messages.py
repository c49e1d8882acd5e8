"""Local reports as bytes: rows to messages at the client, messages to reports at the server.

A message holds reports of one plan, one or many::

    magic "FGR", version 1           4 bytes
    plan digest, its first half     16 bytes
    reports about each level         4 bytes each, little-endian
    for each level: ids             16 random bytes a report
                    payloads        as many bytes a report as the level's oracle says
    CRC-32 of all before             4 bytes, little-endian

Its length follows from the header, so messages in a file need nothing between them.
"""

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import BinaryIO, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgauge.data.examples import Data, read_batches
from fedgauge.data.labels import LabelReader
from fedgauge.errors import InputError, ReportRefused
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy.keystream import Keystream, WordSource
from fedgauge.privacy.oracles import Cells, Payloads
from fedgauge.privacy.response import randomise

ID_BYTES: Final = 16
MOST_BYTES: Final = 1 << 24  # of a message; a server need not hold more at once
_MOST_REPORTS: Final = 1 << 14  # of a message made here
_MAGIC: Final = b"FGR"
_VERSION: Final = 1
_DIGEST_BYTES: Final = 16
_CHECK_BYTES: Final = 4
_CHANGED: Final = (
    "the data changed between two readings. Pass arrays, a file, or a function that returns the "
    "same chunks each time; send none of these reports."
)


class Reason(StrEnum):
    """Why reports are refused; says nothing about what they hold."""

    ALIEN = "not a report"
    VERSION = "unknown version"
    FOREIGN = "of another plan"
    LENGTH = "wrong length"
    DAMAGED = "wrong checksum"
    IMPOSSIBLE = "bits that no report has"
    DUPLICATE = "duplicate"


class LevelReports(NamedTuple):
    """Reports about one level: ids, and payloads in the same order."""

    ids: NDArray[np.uint8]
    payloads: Payloads


class ReportFormat:
    """The form of a plan's reports.

    Parameters
    ----------
    plan
        A plan for local reports.
    """

    def __init__(self, plan: EvaluationPlan) -> None:
        self.oracles = plan.oracles
        plan.check_promise()
        self._start = _MAGIC + bytes([_VERSION]) + bytes.fromhex(plan.digest)[:_DIGEST_BYTES]
        self._counts = struct.Struct(f"<{len(self.oracles)}I")
        self._sizes = [ID_BYTES + oracle.payload_bytes for oracle in self.oracles]

    @property
    def header_bytes(self) -> int:
        """Bytes from which the length of a message is known."""
        return len(self._start) + self._counts.size

    @property
    def most_reports(self) -> int:
        """Reports that a message made here holds at most."""
        return max(1, min(_MOST_REPORTS, MOST_BYTES // (4 * max(self._sizes))))

    def write(self, levels: Sequence[LevelReports]) -> bytes:
        """A message with these reports."""
        parts = [self._start, self._counts.pack(*(len(level.ids) for level in levels))]
        for level in levels:
            parts += [level.ids.tobytes(), level.payloads.tobytes()]
        data = b"".join(parts)
        return data + struct.pack("<I", zlib.crc32(data))

    def length(self, header: bytes) -> int:
        """Length of the message that begins so; refuses what begins no report of this plan."""
        if header[:3] != _MAGIC:
            raise ReportRefused(Reason.ALIEN)
        if header[3:4] and header[3] != _VERSION:
            raise ReportRefused(Reason.VERSION)
        if len(header) >= len(self._start) and not header.startswith(self._start):
            raise ReportRefused(Reason.FOREIGN)
        if len(header) < self.header_bytes:
            raise ReportRefused(Reason.LENGTH)
        counts: tuple[int, ...] = self._counts.unpack_from(header, len(self._start))
        body = sum(count * size for count, size in zip(counts, self._sizes, strict=True))
        length = self.header_bytes + body + _CHECK_BYTES
        if not body or length > MOST_BYTES:
            raise ReportRefused(Reason.LENGTH)
        return length

    def read(self, data: bytes) -> list[LevelReports]:
        """The reports of a message, by level; refuses all of them or none.

        Raises
        ------
        ReportRefused
            With one of a few reasons, which say nothing about the contents.
        """
        if len(data) != self.length(data):
            raise ReportRefused(Reason.LENGTH)
        if zlib.crc32(data[:-_CHECK_BYTES]) != int.from_bytes(data[-_CHECK_BYTES:], "little"):
            raise ReportRefused(Reason.DAMAGED)
        counts = self._counts.unpack_from(data, len(self._start))
        octets = np.frombuffer(data, dtype=np.uint8)
        start, levels = self.header_bytes, []
        for oracle, count in zip(self.oracles, counts, strict=True):
            middle = start + count * ID_BYTES
            end = middle + count * oracle.payload_bytes
            payloads = octets[middle:end].reshape(count, oracle.payload_bytes)
            if not oracle.are_valid(payloads):
                raise ReportRefused(Reason.IMPOSSIBLE)
            levels.append(LevelReports(octets[start:middle].reshape(count, ID_BYTES), payloads))
            start = end
        return levels

    def split(self, file: BinaryIO) -> Iterator[bytes]:
        """The messages of a file, one after another.

        Where no message of this plan begins, what was read is given as the last one, to be
        refused.
        """
        while header := file.read(self.header_bytes):
            try:
                rest = self.length(header) - len(header)
            except ReportRefused:
                yield header
                return
            yield header + file.read(rest)


def encode_rows(
    plan: EvaluationPlan, data: Data, *, source: WordSource | None = None
) -> Iterator[bytes]:
    """Messages with one report for each row of a client's data.

    All rows are checked before the first is reported, so data is read twice. Rows stay in
    order: a report is private even from who knows which row it is of. Each call makes new
    reports and costs the plan's epsilon again: keep the messages, and send the same ones again
    where one may be lost.

    Parameters
    ----------
    plan
        A plan for local reports.
    data
        The client's data, as for :func:`fedgauge.evaluate`.
    source
        Randomness; anything but a :class:`Keystream`, the default, is for simulations.

    Examples
    --------
    >>> from fedgauge import Axis, LocalDP
    >>> plan = EvaluationPlan.for_reports(Axis.uniform(64, outside="clip"), LocalDP(1.0))
    >>> [len(message) for message in encode_rows(plan, ([0, 1], [0.2, 0.7]))]
    [92]
    """
    form = ReportFormat(plan)
    checked = plan.histogram()
    checked.update_batches(read_batches(data), positive=plan.task.positive, may_be_empty=True)
    source = source if source is not None else Keystream()
    left = checked.sum()
    for leaves in _leaf_cells(plan, data, form.most_reports):
        left -= len(leaves)
        yield form.write(
            [
                LevelReports(_new_ids(len(payloads)), payloads)
                for payloads in randomise(form.oracles, leaves, source)
            ]
        )
    if left:
        raise InputError(_CHANGED)


def _leaf_cells(plan: EvaluationPlan, data: Data, rows: int) -> Iterator[Cells]:
    """The cell of every row at the finest level, `rows` at a time, of rows that were checked."""
    # As many each time, whatever the batches: those of a text file end where the lengths of its
    # rows say, so the sizes of messages would tell of rows.
    reader = LabelReader(plan.task.positive)
    waiting = np.empty(0, dtype=np.intp)
    for examples in read_batches(data):
        for batch in examples.split(rows):
            labels = np.multiply(reader(batch.labels), plan.axis.bins, dtype=np.intp)
            waiting = np.append(waiting, plan.axis.index(batch.y_score) + labels)
            if len(waiting) >= rows:
                yield waiting[:rows]
                waiting = waiting[rows:]
    if reader.missing or reader.unusable:
        raise InputError(_CHANGED)
    if len(waiting):
        yield waiting


def _new_ids(count: int) -> NDArray[np.uint8]:
    return np.frombuffer(os.urandom(ID_BYTES * count), dtype=np.uint8).reshape(count, ID_BYTES)
