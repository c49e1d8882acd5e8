"""Local reports to a result: from a server's intake, or from data that is reported here."""

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fedgauge.binning.channels import ChannelReader
from fedgauge.binning.histogram import Draw, ScoreHistogram
from fedgauge.data.examples import Data
from fedgauge.data.files import ScoreFile
from fedgauge.data.lenient import LenientRows
from fedgauge.data.oddities import Counted, in_short
from fedgauge.errors import RecordError
from fedgauge.estimation.distribution import Aligned, Estimator
from fedgauge.estimation.released import Released
from fedgauge.estimation.repair import consistent
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy import response
from fedgauge.privacy.keystream import WordSource
from fedgauge.privacy.oracles import Oracle, Tallies, draw_topics
from fedgauge.reports.intake import ReportServer
from fedgauge.reports.messages import ReportFormat, report_rows
from fedgauge.results.evaluation import Evaluation
from fedgauge.site import Site
from fedgauge.site.entries import Departure
from fedgauge.storage import durable
from fedgauge.typing import Floats

_LOG: Final = logging.getLogger("fedgauge")
_AT_ONCE: Final = 65_536  # rows reported together


def write_reports(
    plan: EvaluationPlan,
    data: Data,
    path: str | Path,
    *,
    site: Site | None = None,
    tell: Callable[[str], None] = _LOG.warning,
    show: Callable[[Counted], None] = lambda _: None,
) -> None:
    """Write a file with a report for each row of one client, to be handed to the server.

    With a site file the plan is judged by it and its epsilon charged to the ledger before a row
    is read. From then on nothing about the rows stops the file: what was odd is told to the
    operator. A crash may cost budget but never leaves reports that nobody paid for. Data without
    rows make an empty file: how many reports a site sends is public.

    Parameters
    ----------
    plan
        A plan for local reports.
    data
        The client's data, as for :func:`fedgauge.evaluate`.
    path
        The file to write.
    site
        The site's trust anchor; without it nothing is charged.
    tell
        Takes what was odd about the rows, in words, for the operator alone.
    show
        Takes what the rows came to, where they could be read to their end; for the operator alone.
    """
    target = Path(path).absolute()
    if target.exists():
        raise RecordError(
            f"{path} exists. Send those reports again if they were lost: new ones of the same "
            "rows cost privacy again."
        )
    plan.check_time()
    if site is not None:
        site.judge_reports(plan)
    ReportFormat(plan)  # refuses a plan that breaks its promise, before anything is paid for
    data = _checked(plan, data)
    told: list[str] = []
    seen: list[Counted] = []
    temporary = None
    try:
        # Not where others fetch it before the ledger says that it left.
        place = target.parent if site is None else site.folder
        handle, temporary = tempfile.mkstemp(dir=place, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as file:
            if site is not None:
                session = os.urandom(32)
                site.reserve(session, plan)
                site.ledger.commit(session)
            digest, size = hashlib.sha256(), 0
            for message in _as_far_as_read(report_rows(plan, data, done=seen.append), told):
                size += file.write(message)
                digest.update(message)
            file.flush()
            os.fsync(file.fileno())
        if site is not None:
            left = Departure("encode", size, digest.hexdigest())
            site.ledger.record_sent(session, left)
        _move(temporary, target)
    except BaseException as error:
        if temporary is not None:
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise RecordError(f"cannot write {path}: {error.strerror}.") from None
        raise
    durable.sync_folder(target.parent)
    for counted in seen:
        show(counted)
        told += counted.warnings(plan.task.positive, plan.axis.low, plan.axis.high)
    for sentence in told:
        tell(f"{data}: {sentence}" if isinstance(data, ScoreFile) else sentence)


def _move(temporary: str, target: Path) -> None:
    """Give a finished file its name, all at once also where that is on another disk."""
    handle, beside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file, open(temporary, "rb") as source:
            shutil.copyfileobj(source, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException:
        os.unlink(beside)
        raise
    os.unlink(temporary)


def _checked(plan: EvaluationPlan, data: Data) -> Data:
    """The data, unless they can be refused as a whole before anything is paid for."""
    if isinstance(data, ScoreFile):
        data.check()
    if callable(data):
        return data
    (examples,) = LenientRows(data)
    for _ in ChannelReader(plan.task.layout, leniently=True)(examples.select(slice(0, 0))):
        pass  # refused where rows have not the scores, labels or groups of the plan
    return examples


def _as_far_as_read(messages: Iterator[bytes], told: list[str]) -> Iterator[bytes]:
    """The messages up to where the data break off, if they do, and then that is told."""
    try:
        yield from messages
    except Exception as error:
        told.append(f"rows were reported only as far as they could be read: {in_short(error)}")


def result_of(server: ReportServer, *, estimator: Estimator = Aligned()) -> Evaluation:
    """The result of all reports accepted so far.

    It claims ``"enforced"``: each report was randomised before the server saw it. More reports
    may come; a later result holds them too and costs no further privacy.
    """
    plan = server.plan
    levels, variances, reports = server.counts()
    released = release_reports(plan, levels, variances, clients=reports, reports=reports)
    return Evaluation(plan, plan.statement("enforced"), released, estimator=estimator)


def draws_of(plan: EvaluationPlan, source: WordSource) -> Draw | None:
    """What draws the block that each row is reported of; None where there is one."""
    blocks = len(plan.task.layout.blocks)
    return None if blocks == 1 else lambda rows: draw_topics(source, rows, blocks)


def in_this_round(
    plan: EvaluationPlan, pooled: ScoreHistogram, source: WordSource
) -> ScoreHistogram:
    """The rows that report in this round: all, but where there are two.

    Then each has tossed a coin. Here it is tossed anew in the second round, so that now and then a
    row is in both or in none; sums of many rows do not show it.
    """
    chance = plan.chance_to_report
    if chance == 1.0:
        return pooled
    least = np.uint64(min(int(chance * 2.0**64), 2**64 - 1))
    kept, ends = np.zeros(pooled.counts.size, dtype=np.int64), np.cumsum(pooled.counts.ravel())
    for start in range(0, int(ends[-1]), _AT_ONCE):
        rows = np.arange(start, min(start + _AT_ONCE, int(ends[-1])))
        taken = rows[source.words(len(rows)) < least]
        kept += np.bincount(np.searchsorted(ends, taken, side="right"), minlength=kept.size)
    counts = kept.reshape(pooled.counts.shape)
    return ScoreHistogram.from_counts(pooled.axis, counts, layout=plan.task.layout)


def simulate_reports(
    plan: EvaluationPlan, pooled: ScoreHistogram, clients: int, source: WordSource
) -> Released:
    """What a report for every row tells, each randomised by itself.

    `pooled` has each row in the block that is drawn for it (:func:`draws_of`).
    """
    by_block, layout = plan.oracles_by_block, plan.task.layout
    tallies, by_level = [], []
    for oracles, block in zip(by_block, layout.blocks, strict=True):
        found = simulate_block(oracles, pooled.counts[layout.rows(block)], source)
        tallies += found[0]
        by_level += found[1]
    reports = sum(by_level)
    levels = response.debias_drawn(by_block, tallies, by_level, layout.sizes)
    variances = plan.noise_variances(reports)
    return release_reports(plan, levels, variances, clients=clients, reports=reports)


def simulate_block(
    oracles: Sequence[Oracle], counts: NDArray[np.int64], source: WordSource
) -> tuple[list[Tallies], list[int]]:
    """Sums, and numbers, of the reports about each level of one block."""
    tallies = [np.zeros(oracle.tallies, dtype=np.int64) for oracle in oracles]
    by_level = [0] * len(oracles)
    # Sums do not depend on the order of rows, so a row's cell is all there is to know.
    ends = np.cumsum(counts.ravel())
    for start in range(0, int(ends[-1]), _AT_ONCE):
        rows = np.arange(start, min(start + _AT_ONCE, int(ends[-1])))
        leaves = np.searchsorted(ends, rows, side="right")
        for level, payloads in enumerate(response.randomise(oracles, leaves, source)):
            oracles[level].add(tallies[level], payloads)
            by_level[level] += len(payloads)
    return tallies, by_level


def release_reports(
    plan: EvaluationPlan,
    levels: list[Floats],
    variances: tuple[float, ...],
    *,
    clients: int,
    reports: int,
) -> Released:
    """Counts of the bins: least squares over the tree, given the number of reports.

    In every block the counts are of all rows: those that it is not reported of are like the others.
    """
    layout, counts = plan.task.layout, consistent(levels, plan.tree, variances)
    blocks = [response.settle(counts[layout.rows(block)], reports) for block in layout.blocks]
    return Released(plan.axis, np.concatenate(blocks), clients, reports=reports)
