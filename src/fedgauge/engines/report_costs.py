"""What a file of local reports costs a site, and that it left; of two rounds once, for both."""

import os
from collections.abc import Callable
from typing import Final, TypedDict

from fedgauge.data.examples import Examples
from fedgauge.errors import PlanRefused
from fedgauge.plan import EvaluationPlan
from fedgauge.reports.rounds import RowsInOrder, SecondPlan
from fedgauge.site import Site
from fedgauge.site.entries import Departure, Step

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


class Kept(TypedDict, total=False):
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

    def pay(self) -> Kept:
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
                "this site made no reports of the first round of this plan, so it is not charged "
                f"for: plan {self._plan.whole.digest[:8]}. If it should take part, make those "
                "first, also where they come too late; then the second costs nothing more."
            )

    def _has_left(self, step: Step) -> bool:
        ledger = self._site.ledger
        known = ledger.status(self._session) is not None
        return known and ledger.has_left(self._session, step)

    def pay(self) -> Kept:
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
