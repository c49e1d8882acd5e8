"""What a secure summation asks of a site: its numbers once, and its word on the survivors."""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedgauge.binning.histogram import ScoreHistogram
from fedgauge.data.examples import Data, read_batches
from fedgauge.data.files import ScoreFile
from fedgauge.data.fingerprint import Fingerprint, Fingerprinter
from fedgauge.data.keyed import PlacedRows
from fedgauge.data.oddities import Counted
from fedgauge.engines.contribution import count_exactly, count_leniently, same_contribution
from fedgauge.errors import (
    ExchangeError,
    FedgaugeError,
    InputError,
    PlanRefused,
    ProtocolError,
    located,
)
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.sizes import peek
from fedgauge.plan.summary import summarise
from fedgauge.secagg import Invitation
from fedgauge.site import Site
from fedgauge.site.approvals import require_approval
from fedgauge.site.entries import Asked, Roster

_LOG: Final = logging.getLogger("fedgauge")
T = TypeVar("T")


class Delivery(NamedTuple):
    """What comes along with a request where a model travels, by digests.

    `model` is all that this message brings to score with, the same for all members: bins, which
    differ, are bound by the plan. `setting` is the config of the run.
    """

    model: bytes
    setting: bytes


def judge_origin(site: Site, invitation: Invitation) -> None:
    """Refuse an invitation whose plan is not worth reading: strangers' ones, and huge ones."""
    mine = site.key.public
    if invitation.coordinator == mine and mine not in invitation.members:
        raise PlanRefused(
            f"site {site.name!r} started this evaluation and does not take part in it. Name the "
            "site file of one that was invited, with --site."
        )
    judge_coordinator(site, invitation.coordinator)
    sizes = peek(invitation.plan_bytes)
    site.judge_sizes(sizes.bins, sizes.counts)


def judge_coordinator(site: Site, coordinator: bytes) -> None:
    """Refuse whoever may not ask this site for anything."""
    if coordinator not in site.coordinators:
        raise PlanRefused(
            "the coordinator is not approved here. If it should be, add its key with "
            "`fedgauge site trust --coordinator`."
        )


def judge_invitation(
    site: Site, invitation: Invitation, *, of_model: bool = False
) -> EvaluationPlan:
    """The plan of an invitation, unless the site file refuses it; reads no data.

    `of_model` says whether the way it came brings models.
    """
    judge_origin(site, invitation)  # before anything is built
    if of_model != bool(invitation.model):  # one that nobody will bring, or that nobody signed
        raise PlanRefused(
            "the invitation and the way it came do not fit: a model that is sent needs its "
            "digest in the invitation, and scores that a site has need none. Use the same "
            "version of fedgauge, and the same engine, everywhere."
        )
    plan = invitation.plan
    site.judge(
        plan,
        members=invitation.members,
        coordinator=invitation.coordinator,
        of_model=of_model,
    )
    return plan


def check_ledger(site: Site, invitation: Invitation, data: Fingerprint | None = None) -> None:
    """Refuse what the ledger would, and write nothing; `data` are the rows of an exact sum."""
    site.reserve(
        invitation.session,
        invitation.plan,
        roster=Roster(frozenset(invitation.members), invitation.needed),
        certain=invitation.graph.is_complete,
        data=data,
        asked=Asked(invitation.coordinator, invitation.model),
        check_only=True,
    )


def say(tell: Callable[[T], None], told: T) -> None:
    """Tell the operator; where nobody can be told, that must not show in what is sent."""
    try:
        tell(told)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a closed pipe makes a console exit
        _LOG.error("could not tell the operator something: %s", type(error).__name__)


def naming(data: Data) -> AbstractContextManager[None]:
    """Name the file in what is said of its rows, where they are in one."""
    named = isinstance(data, ScoreFile | PlacedRows)
    return located(str(data)) if named else nullcontext()


class Stopped(Exception):
    """Rows that an exact sum cannot count: the session ends here."""

    def __init__(self, reason: FedgaugeError) -> None:
        self.reason = reason


class SiteDuties:
    """What the protocol asks of a site: its numbers once, and its word on the survivors."""

    def __init__(
        self,
        site: Site,
        data: Callable[[], Data] | None,
        delivery: Delivery | None,
        tell: Callable[[str], None],
        show: Callable[[Counted], None] | None = None,
    ) -> None:
        self._site = site
        self._data = data
        self._delivery = delivery
        self._tell = tell
        self._show = show
        self.invitation: Invitation | None = None
        self.setting = b""
        self.noise_key = b""

    def contribution(self, sharers: Sequence[bytes]) -> NDArray[np.int64]:
        """Counts and noise, the same for the same counts.

        The budget is spent before rows are read or a model is called: what they turn out to be
        no longer changes what it costs.
        """
        assert self.invitation is not None  # noqa: S101  (set when the session is read)
        invitation, plan, ledger = self.invitation, self.invitation.plan, self._site.ledger
        if self._data is None:
            raise ExchangeError("it is time to submit, and no data was named.")
        self._check_delivered(invitation)
        self._judge_again()
        ledger.check_account(invitation.session, self._site.account(plan))
        ledger.check_sites(invitation.session, sharers, rules=self._site.rules(plan))
        ledger.commit(invitation.session)
        histogram = self._counted(plan) if plan.is_noisy else self._counted_exactly(plan)
        return same_contribution(plan, histogram, self.noise_key)

    def _check_delivered(self, invitation: Invitation) -> None:
        """Refuse to score with anything that other members did not agree to."""
        if self._delivery is None:
            return
        if self._delivery.model != invitation.model:
            raise ProtocolError(
                "what came to score with is not what the invitation names, so other members may "
                "have got something else. Nothing was scored."
            )
        # A session outlives a run: the request may come in another one than the invitation did.
        if self._delivery.setting != self.setting:
            raise ProtocolError(
                "the request to score came in another run, or with another config, than the one "
                "this node joined in, so other members may count otherwise. Nothing was scored."
            )

    def _judge_again(self) -> None:
        """The site file may have changed since this site joined, or its approval be withdrawn."""
        assert self.invitation is not None  # noqa: S101  (set when the session is read)
        invitation, site = self.invitation, self._site
        site.judge(
            invitation.plan,
            members=invitation.members,
            coordinator=invitation.coordinator,
            of_model=self._delivery is not None,
        )
        # Also where no approver is left: the last one may have been struck off.
        if site.approvers or site.ledger.asked(invitation.session).approver is not None:
            require_approval(site, invitation.session, invitation.plan)

    def _counted(self, plan: EvaluationPlan) -> ScoreHistogram:
        """The rows under noise, whatever they are."""
        assert self._data is not None  # noqa: S101  (checked before)
        histogram, oddities = count_leniently(plan, self._data)
        self._tell_of(summarise(plan.task, histogram.counts, oddities))
        return histogram

    def _tell_of(self, counted: Counted) -> None:
        """Tell the operator what the rows came to: all of it, or what was odd."""
        if self._show is not None:
            say(self._show, counted)
            return
        for sentence in counted.oddities.in_words:
            say(self._tell, sentence)

    def _counted_exactly(self, plan: EvaluationPlan) -> ScoreHistogram:
        """The rows of an exact sum, if all can be counted and none changed."""
        assert self._data is not None and self.invitation is not None  # noqa: S101, PT018
        taken = Fingerprinter(self._site.fingerprint_key, with_scores=self._delivery is None)
        try:
            data = self._data()
            with naming(data):
                histogram, counted = count_exactly(plan, taken.watch(read_batches(data)))
            self._site.ledger.record_data(
                self.invitation.session, taken.fingerprint(), rules=self._site.rules(plan)
            )
        except FedgaugeError as error:
            raise Stopped(error) from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise Stopped(
                InputError(f"the rows could not be read or scored: {type(error).__name__}.")
            ) from error
        self._tell_of(counted)
        return histogram

    def agree(self, survivors: Sequence[bytes]) -> None:
        """The differencing guard, recorded before this site's word is given."""
        assert self.invitation is not None  # noqa: S101  (set when the session is read)
        self._judge_again()
        self._site.ledger.record_survivors(
            self.invitation.session,
            survivors,
            rules=self._site.rules(self.invitation.plan),
            certain=self.invitation.graph.is_complete,
        )
