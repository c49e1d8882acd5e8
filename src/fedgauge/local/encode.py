"""Local reports made from data, a result made from reports, and what a file of them costs."""

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, TypedDict

from fedgauge import storage
from fedgauge.data.examples import Data, Examples, RowSource
from fedgauge.data.row_checks import LenientRows, RowSummary, in_short
from fedgauge.engines.contribution import find_bins
from fedgauge.engines.reports import release_reports
from fedgauge.errors import PlanRefused, RecordError
from fedgauge.estimation.distribution import Aligned, Estimator
from fedgauge.histograms.channels import ChannelReader
from fedgauge.keys import SigningKey
from fedgauge.local.messages import ReportFormat, report_rows
from fedgauge.local.rounds import RowsInOrder, SecondPlan
from fedgauge.local.server import ReportCounts, ReportServer
from fedgauge.plan import EvaluationPlan
from fedgauge.results.evaluation import Evaluation
from fedgauge.site import Site
from fedgauge.site.ledger_entries import Departure, Step

_NO_FIRST_AGAIN: Final = (
    "this site made its reports of the first round. Send that file again if it was lost. The "
    "second round goes with the plan that the intake publishes then (`fedgauge find-bins`)."
)
_NO_SECOND_AGAIN: Final = (
    "this site made its reports of the second round, and makes no others, whatever the bins: rows "
    "would be reported twice. Send that file again if it was lost."
)


def approved(plan: EvaluationPlan | SecondPlan, site: Site | None) -> EvaluationPlan:
    """The plan to report under: of a second round if a coordinator of the site signed it."""
    if isinstance(plan, EvaluationPlan) and plan.found is not None:
        raise PlanRefused(
            "the plan of a second round is used as its intake signed it: name the file that "
            "`fedgauge find-bins` wrote."
        )
    if isinstance(plan, EvaluationPlan) and not plan.has_two_rounds:
        return plan
    if site is None:
        raise PlanRefused(
            "the plan has two rounds, and each row is reported in one of them. A site file, with "
            "its key and its ledger, sees to that: name it (--site), or make one with `fedgauge "
            "site init`."
        )
    return plan if isinstance(plan, EvaluationPlan) else plan.signed_by(site.coordinators)


class SiteRecords(TypedDict, total=False):
    """What of a site plays a part when its rows are reported."""

    secret: bytes
    watch: Callable[[Examples], None]


class Charge:
    """What one file of reports costs a site, and that it left."""

    def __init__(self, plan: EvaluationPlan, site: Site) -> None:
        self._plan = plan
        self._site = site
        self._session = os.urandom(32)

    def check(self) -> None:
        """Refuse reports that were made before."""

    def pay(self) -> SiteRecords:
        """Set aside what the reports cost and spend it, before a row is read."""
        self._site.reserve(self._session, self._plan)
        self._site.ledger.commit(self._session)
        return {}

    def record(self, size: int, sha256: str) -> None:
        """Record that they are about to leave."""
        self._site.ledger.record_sent(self._session, Departure("encode", size, sha256))


class _ChargeOfTwo(Charge):
    """The same of two rounds, which are one session of the ledger: the plan names it."""

    def __init__(self, plan: EvaluationPlan, site: Site) -> None:
        super().__init__(plan, site)
        about = f"{plan.whole.digest} {site.dataset}".encode()
        self._session = site.key.derive(b"two rounds of reports " + about)
        self._secret = site.key.derive(b"turns of reports " + about)
        self._step: Step = "encode" if plan.is_search else "second"
        self._rows = RowsInOrder(plan, site.fingerprint_key)

    def check(self) -> None:
        """Refuse a round that was answered, whatever its bins, and a second one without a first."""
        if self._has_left(self._step):
            raise PlanRefused(_NO_FIRST_AGAIN if self._plan.is_search else _NO_SECOND_AGAIN)
        if not self._plan.is_search and not self._has_left("encode"):
            # Charged as a new evaluation, bins of another plan would cost who takes them for the
            # second half of what was paid for.
            raise PlanRefused(
                "this site made no reports of the first round of this plan, so nothing was "
                f"charged: plan {self._plan.whole.digest[:8]}. To take part, make those first, "
                "even if they come too late; then the second costs nothing more."
            )

    def _has_left(self, step: Step) -> bool:
        ledger = self._site.ledger
        known = ledger.status(self._session) is not None
        return known and ledger.spend(self._session).departure(step) is not None

    def pay(self) -> SiteRecords:
        """Set aside what both rounds cost, in the first."""
        ledger = self._site.ledger
        if ledger.status(self._session) != "committed":
            self._site.reserve(self._session, self._plan)
            ledger.commit(self._session)
        return {"secret": self._secret, "watch": self._rows.add}

    def record(self, size: int, sha256: str) -> None:
        """Record that they are about to leave, and of which rows they are."""
        left = Departure(self._step, size, sha256)
        self._site.ledger.record_reports(self._session, left, self._rows.fingerprint())


def charge_of(plan: EvaluationPlan, site: Site) -> Charge:
    """What reports of this plan cost a site."""
    return _ChargeOfTwo(plan, site) if plan.has_two_rounds else Charge(plan, site)


_LOG: Final = logging.getLogger("fedgauge")


def write_reports(
    plan: EvaluationPlan | SecondPlan,
    data: Data,
    path: str | Path,
    *,
    site: Site | None = None,
    tell: Callable[[str], None] = _LOG.warning,
    show: Callable[[RowSummary], None] = lambda _: None,
) -> None:
    """Write a file with a report for each row of one client, to be handed to the server.

    With a site file the plan is judged by it and its epsilon charged to the ledger before a row is
    read. From then on nothing about the rows stops the file: what was odd is told to the operator.
    A crash may cost budget but never leaves reports that nobody paid for. Data without rows make an
    empty file: how many reports a site sends is public.

    Of two rounds there is a file for each, and each row is in one of them. That takes a site file:
    both are charged together, once, and each is made once. The second is refused where rows are not
    those of the first, in the same order. That tells that they changed, and nothing else. Its plan
    is signed by the intake, which is one of the coordinators in the site file.

    For the operator alone, `tell` takes what was odd about the rows, in words, and `show` their
    summary, where they could be read to their end.
    """
    target = Path(path).absolute()
    storage.remove_dead(target)
    if target.exists():
        raise RecordError(
            f"{path} exists. Send those reports again if they were lost: new ones of the same "
            "rows cost privacy again."
        )
    plan = approved(plan, site)
    plan.check_time()
    if site is not None:
        site.judge_reports(plan)
    ReportFormat(plan)  # refuses a plan that breaks its promise, before anything is paid for
    charge = None if site is None else charge_of(plan, site)
    if charge is not None:
        charge.check()
    data = _checked(plan, data)
    told: list[str] = []
    seen: list[RowSummary] = []
    place = target.parent if site is None else site.folder
    try:
        # Without a name: nobody fetches it before the ledger says that it left, and where this is
        # killed it is gone.
        with tempfile.TemporaryFile(dir=place) as file:
            kept: SiteRecords = {} if charge is None else charge.pay()
            messages = report_rows(plan, data, done=seen.append, **kept)
            size, digest = _fill(file, _as_far_as_read(messages, told))
            if charge is not None:
                charge.record(size, digest)
            file.seek(0)
            with storage.replacing(target) as (named, _):
                shutil.copyfileobj(file, named)
                named.flush()
                os.fsync(named.fileno())
        storage.sync_folder(target.parent)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror}.") from None
    for counted in seen:
        show(counted)
        told += counted.warnings(plan.task.positive, plan.axis.low, plan.axis.high)
    for sentence in told:
        tell(f"{data}: {sentence}" if isinstance(data, RowSource) else sentence)


def _fill(file: BinaryIO, messages: Iterable[bytes]) -> tuple[int, str]:
    """Write messages to a file; how many bytes they have, and their SHA-256."""
    digest, size = hashlib.sha256(), 0
    for message in messages:
        size += file.write(message)
        digest.update(message)
    return size, digest.hexdigest()


def _checked(plan: EvaluationPlan, data: Data) -> Data:
    """The data, unless they can be refused as a whole before anything is paid for."""
    if isinstance(data, RowSource):
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
        told.append(f"not all rows were reported, since some could not be read: {in_short(error)}")


def result_of(server: ReportServer, *, estimator: Estimator = Aligned()) -> Evaluation:
    """The result of all reports accepted so far.

    It claims ``"enforced"``: each report was randomised before the server saw it. More reports may
    come; a later result holds them too and costs no further privacy.
    """
    plan = server.plan
    levels, variances, reports = server.counts()
    released = release_reports(plan, levels, variances, clients=reports, reports=reports)
    return Evaluation(plan, plan.statement("enforced"), released, estimator=estimator)


def find_second(server: ReportServer, key: SigningKey) -> SecondPlan:
    """Close the first of two rounds, and sign the plan of the second: the same one at each call."""
    plan = server.plan

    def made(counts: ReportCounts) -> bytes:
        levels, variances, reports = counts
        released = release_reports(plan, levels, variances, clients=reports, reports=reports)
        return SecondPlan.sign(find_bins(plan, released), key).data

    return SecondPlan.from_bytes(server.close_round(made))
