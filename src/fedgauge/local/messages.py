"""Local reports as bytes: rows to messages at the client, messages to reports at the server.

A message holds reports of one plan, one or many::

    magic "FGR", version 1           4 bytes
    plan digest, its first half     16 bytes
    reports about each topic         4 bytes each, little-endian
    for each topic: ids             16 random bytes a report
                    payloads        as many bytes a report as the topic's oracle says
    CRC-32 of all before             4 bytes, little-endian

Topics are the levels of the tree; where a row has several scores or is grouped in several ways, the
levels of the first block (`histograms/channels.py`), then of the second and so on. A report is
about one of them, drawn at random. A message's length follows from the header, so messages in a
file need nothing between them. Of two rounds an id says which one its report is of
(`engines/reports.py`).
"""

import logging
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import BinaryIO, Final, NamedTuple

import numpy as np

from fedgauge.data.examples import Data, Examples
from fedgauge.data.row_checks import LenientRows, Oddities, RowSummary
from fedgauge.engines.contribution import summarise
from fedgauge.engines.reports import ID_BYTES, Ids, KeptIds, Turns
from fedgauge.errors import ReportRefused
from fedgauge.histograms.channels import Block, ChannelReader
from fedgauge.histograms.histogram import mapped
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy.keystream import Keystream, WordSource
from fedgauge.privacy.oracles import Cells, Payloads, draw_topics, randomise_drawn

MOST_BYTES: Final = 1 << 24  # of a message; a server need not hold more at once
_MOST_REPORTS: Final = 1 << 14  # of a message made here
_MAGIC: Final = b"FGR"
_VERSION: Final = 1
_DIGEST_BYTES: Final = 16
_CHECK_BYTES: Final = 4
_LOG: Final = logging.getLogger("fedgauge")


class Reason(StrEnum):
    """Why reports are refused; says nothing about what they hold."""

    ALIEN = "not a report"
    VERSION = "unknown version"
    FOREIGN = "of another plan"
    LENGTH = "wrong length"
    DAMAGED = "wrong checksum"
    IMPOSSIBLE = "bits that no report has"
    ROUND = "of the other round"
    CLOSED = "of a round that is closed"
    DUPLICATE = "duplicate"


class LevelReports(NamedTuple):
    """Reports about one level of a block: ids, and payloads in the same order."""

    ids: Ids
    payloads: Payloads


class ReportFormat:
    """The form of the reports of a plan for local reports."""

    def __init__(self, plan: EvaluationPlan) -> None:
        self.oracles = plan.oracles
        plan.check_promise()
        self._start = _MAGIC + bytes([_VERSION]) + bytes.fromhex(plan.digest)[:_DIGEST_BYTES]
        self._counts = struct.Struct(f"<{len(self.oracles)}I")
        self._sizes = [ID_BYTES + oracle.payload_bytes for oracle in self.oracles]
        self._turns = Turns(plan) if plan.has_two_rounds else None

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
        """The reports of a message, by level, all or none; a refusal tells no contents."""
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
            ids = octets[start:middle].reshape(count, ID_BYTES)
            if self._turns is not None and not self._turns.fit(ids).all():
                raise ReportRefused(Reason.ROUND)
            levels.append(LevelReports(ids, payloads))
            start = end
        return levels

    def split(self, file: BinaryIO) -> Iterator[bytes]:
        """The messages of a file, one after another.

        Where no message of this plan begins, what was read is given as the last one, to be refused.
        """
        while header := file.read(self.header_bytes):
            try:
                rest = self.length(header) - len(header)
            except ReportRefused:
                yield header
                return
            yield header + file.read(rest)


def encode_rows(
    plan: EvaluationPlan,
    data: Data,
    *,
    secret: bytes | None = None,
    source: WordSource | None = None,
    tell: Callable[[str], None] = _LOG.warning,
) -> Iterator[bytes]:
    """Messages with one report for each row of a client's data, whatever the row holds.

    A row that is broken counts in a stated place, since a refusal would tell of it: a score that is
    missing or no number in the first bin, one beyond the axis in the bin at that end, a label that
    is missing or not the positive one among the negatives. A row with several scores, or grouped in
    several ways, is reported of one of them, drawn at random whatever it holds. So the number and
    sizes of messages depend only on the number of rows, which is public, and on the draws. Data
    that break off are reported as far as they go, and then raise.

    Rows stay in order: a report is private even from who knows which row it is of. Each call makes
    new reports and costs the plan's epsilon again: keep the messages, and send the same ones again
    where one may be lost.

    Of two rounds each row is reported in one. Pass the same secret and the same rows, in the same
    order, under both plans; and answer one second plan alone, or rows pay again.

    Parameters
    ----------
    plan
        A plan for local reports.
    data
        The client's data, as for :func:`fedgauge.evaluate`.
    secret
        Of two rounds: random bytes, 32 or more, that are kept until the second. Else not used.
    source
        Randomness; anything but a :class:`Keystream`, the default, is for simulations.
    tell
        Takes what was odd about the rows, in words, after the last message; for the owner of the
        rows alone. By default it is logged.

    Examples
    --------
    >>> plan = fg.EvaluationPlan.for_reports(fg.Axis.uniform(64, outside="clip"), fg.LocalDP(1.0))
    >>> [len(message) for message in fg.encode_rows(plan, ([0, 1], [0.2, 0.7]))]
    [92]
    """

    def done(counted: RowSummary) -> None:
        for sentence in counted.oddities.in_words:
            tell(sentence)

    return report_rows(plan, data, secret=secret, source=source, done=done)


def report_rows(
    plan: EvaluationPlan,
    data: Data,
    *,
    secret: bytes | None = None,
    source: WordSource | None = None,
    watch: Callable[[Examples], None] = lambda _: None,
    done: Callable[[RowSummary], None],
) -> Iterator[bytes]:
    """The messages of :func:`encode_rows`; for the owner `watch` gets rows, `done` a summary."""
    plan.check_time()
    form = ReportFormat(plan)
    source = source if source is not None else Keystream()
    blocks = plan.reported.by_block(plan.terms)
    rows = _LeafCells(plan, data, source, watch)
    kept = KeptIds(plan, secret) if plan.has_two_rounds else None
    for drawn, leaves in rows.read(form.most_reports):
        if kept is None:
            payloads = randomise_drawn(blocks, drawn, leaves, source)
            ids = [_new_ids(len(each)) for each in payloads]
        else:
            turn = kept.take(len(drawn))
            if not turn.mine.any():
                continue
            topics, own = drawn[turn.mine], turn.ids[turn.mine]
            payloads = randomise_drawn(blocks, topics, leaves[turn.mine], source)
            ids = [own[topics == block] for block in range(len(blocks))]  # which have no levels
        yield form.write([LevelReports(*each) for each in zip(ids, payloads, strict=True)])
    done(rows.counted)


class _LeafCells:
    """The block drawn for every row, its cell there at the finest level, and what was odd."""

    def __init__(
        self,
        plan: EvaluationPlan,
        data: Data,
        source: WordSource,
        watch: Callable[[Examples], None] = lambda _: None,
    ) -> None:
        self._watch = watch
        self._axis = plan.axis
        self._calibrator = plan.calibrator
        self._layout = plan.task.layout
        self._source = source
        self._rows = LenientRows(data)
        self._channels = ChannelReader(self._layout, leniently=True)
        self._task = plan.task
        self._counts = np.zeros((self._layout.channels, plan.axis.bins), dtype=np.int64)
        self._rows_read = self._not_finite = self._clipped = 0

    def read(self, rows: int) -> Iterator[Cells]:
        """Blocks and cells, `rows` at a time."""
        # As many each time, whatever the batches: those of a text file end where the lengths of
        # its rows say, so the sizes of messages would tell of rows.
        waiting: Cells = np.empty((2, 0), dtype=np.intp)
        try:
            for examples in self._rows:
                self._watch(examples)
                for batch in examples.split(rows):
                    waiting = np.append(waiting, self._cells(batch), axis=1)
                    if waiting.shape[1] >= rows:
                        yield waiting[:, :rows]
                        waiting = waiting[:, rows:]
        except Exception:
            if waiting.shape[1]:
                yield waiting
            raise
        if waiting.shape[1]:
            yield waiting

    def _cells(self, batch: Examples) -> Cells:
        # Drawn before anything of the rows is known, and so whatever they hold.
        blocks, (grouping, *_) = self._layout.blocks, self._layout.groupings
        drawn = draw_topics(self._source, len(batch), len(blocks))
        cells: Cells = np.empty(len(batch), dtype=np.intp)
        for number, (scores, channels) in enumerate(self._channels(batch)):
            block = blocks[number]
            placed = self._axis.place_any(mapped(scores, self._calibrator))
            row = channels - np.intp(block.first)
            cell = placed.bins + row * self._axis.bins
            np.copyto(cells, cell, where=drawn == number)
            self._count(block, cell)
            if block.grouping == grouping:  # each score once
                self._not_finite += placed.not_finite
                self._clipped += placed.clipped
        self._rows_read += len(batch)
        return np.stack([drawn, cells])

    def _count(self, block: Block, cells: Cells) -> None:
        """Count rows in all blocks, drawn or not: what the operator is told of."""
        size = self._layout.cells(block.grouping) * self._layout.by_block
        counts = self._counts[block.first : block.first + size]
        counts += np.bincount(cells, minlength=counts.size).reshape(counts.shape)

    @property
    def counted(self) -> RowSummary:
        """What the rows so far came to."""
        odd = Oddities(
            rows=self._rows_read,
            not_finite=self._not_finite,
            clipped=self._clipped,
            missing_labels=self._channels.missing,
            other_labels=self._channels.unusable,
            by_row=self._layout.by_row,
            labels_by_row=self._layout.labels,
            of_classes=bool(self._layout.classes),
            **self._rows.left_out,
        )
        return summarise(self._task, self._counts, odd)


def _new_ids(count: int) -> Ids:
    return np.frombuffer(os.urandom(ID_BYTES * count), dtype=np.uint8).reshape(count, ID_BYTES)
