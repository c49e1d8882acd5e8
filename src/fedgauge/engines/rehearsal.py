"""What joining with a file would come to, for the site's operator; nothing is sent or stored."""

from typing import NamedTuple

from fedgauge.data.examples import read_batches
from fedgauge.data.oddities import Counted
from fedgauge.engines.contribution import count_exactly, count_leniently
from fedgauge.engines.duties import check_ledger, naming
from fedgauge.engines.exchange import Exchange
from fedgauge.engines.named import Rows
from fedgauge.engines.participant import fingerprint_rows
from fedgauge.engines.review import Review, review
from fedgauge.errors import ExchangeError, FedgaugeError
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.searching import Found
from fedgauge.plan.summary import summarise
from fedgauge.plan.task import SearchTask
from fedgauge.secagg import Invitation
from fedgauge.site import Site


class Rehearsal(NamedTuple):
    """An invitation and a file, as they stand to a site.

    `review` says what the site file and the ledger make of the invitation. `counted` is what the
    rows would count as; None where the plan is not worth reading. `refusal` says why an exact sum
    would not be joined with these rows, or would stop at them.
    """

    review: Review
    counted: Counted | None
    warnings: tuple[str, ...]
    refusal: str | None

    @property
    def is_well(self) -> bool:
        """Whether this site could join with these rows, and count them."""
        return self.review.refusal is None and self.refusal is None


def rehearse(exchange: Exchange, site: Site, rows: Rows) -> Rehearsal:
    """What would become of these rows, and of the plan, were this site to join with them.

    Rows are read here and nothing of them leaves: neither a reply nor an entry in the ledger is
    made. Whoever decides by it whether to join tells by that what no engine would.
    """
    invitation = exchange.invitation()
    exchange.require_open(invitation)
    if invitation.follows is not None:
        raise ExchangeError(
            "there is nothing left to check: the rows of the second round are those of the first."
        )
    _require_unspent(site, invitation.session)
    seen = review(site, invitation)
    if seen.plan is None:
        return Rehearsal(seen, None, (), None)
    plan = seen.plan
    rows.check(plan, site)
    told = _with_classes(plan)
    histogram, oddities = count_leniently(told, lambda: rows.data(plan, site))
    counted = summarise(told.task, histogram.counts, oddities)
    refusal = None if plan.is_noisy else _refusal(site, invitation, plan, rows)
    return Rehearsal(seen, counted, tuple(rows.warnings(counted, told)), refusal)


def _with_classes(plan: EvaluationPlan) -> EvaluationPlan:
    """The plan, or of two rounds that of the second, on any bins: the first tells no class.

    A wrong label or group would else show once both rounds are paid for.
    """
    if not isinstance(plan.task, SearchTask):
        return plan
    two = plan.task.two
    return plan.located(Found(two, (1,) * two.coarse.bins, clients=1))


def _require_unspent(site: Site, session: bytes) -> None:
    """Refuse to look at rows that change nothing any more."""
    status = site.ledger.status(session)
    if status in ("committed", "released"):
        became = "has submitted, and its first input stands" if status == "committed" else "gave up"
        raise ExchangeError(
            f"there is nothing left to check: in this evaluation site {site.name!r} {became}. "
            "Another attempt needs a new invitation."
        )


def _refusal(site: Site, invitation: Invitation, plan: EvaluationPlan, rows: Rows) -> str | None:
    """Why an exact sum would refuse these rows: they changed, or cannot all be counted."""
    try:
        data = rows.data(plan, site)
        fingerprint, _ = fingerprint_rows(site, plan, data)
        check_ledger(site, invitation, fingerprint)
        with naming(data):
            count_exactly(plan, read_batches(data))
    except FedgaugeError as error:
        return str(error)
    return None
