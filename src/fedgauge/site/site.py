"""`Site`: says yes or no to a plan before any data is read. Also approvals by a second person."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

import msgspec

from fedgauge import storage
from fedgauge.data.fingerprint import Fingerprint
from fedgauge.errors import InputError, PlanError, PlanRefused, SiteError, located
from fedgauge.keys import SigningKey, key_from_text, key_to_text, verify
from fedgauge.plan import EvaluationPlan
from fedgauge.plan import plan as plans
from fedgauge.plan.rounds import NO_SUM_ALONE, NO_SUM_OF_FLIPS
from fedgauge.site.exact_sums import ExactRules, ExactSum
from fedgauge.site.ledger import Ledger
from fedgauge.site.ledger_entries import FIRST, NOBODY, Account, Asked, Cost, SumRoster, Turn
from fedgauge.site.policy import (
    LEAST_COHORT,
    Party,
    Policy,
    SiteFile,
    by_key,
    judge_exact_slices,
    judge_slices,
    read_site_file,
)
from fedgauge.site.rows import NamedRows, Rows
from fedgauge.storage import MALFORMED, read_bounded

_NO_UNIT: Final = "-"  # an exact sum protects no unit
_ROUNDING: Final = 1 - 1e-9  # edges of equal bins are not equally far apart in floats


@dataclass(frozen=True, eq=False)
class Site:
    """A client's key, whom it trusts, its limits and its ledger.

    Read with :meth:`from_toml`, first made with :func:`create_site`. The server writes plans, so a
    plan cannot vouch for itself: what a site takes part in is decided here.

    Parameters
    ----------
    name, dataset
        The site's own name, and that of the data that the ledger's accounts are about.
    key
        What the site signs with.
    policy
        What it allows.
    peers
        Names of the approved sites by public key, this one included.
    coordinators
        Names of those who may start an evaluation, by public key.
    approvers
        Names of those of whom one must approve of each evaluation, by public key; none: nobody
        need.
    path
        The site file.
    key_path, ledger_path, witness_path
        The files it names; a witness only where it does.
    data
        The rows that the file declares; None where it declares none. Where they come in periods,
        those of the last period that is over.
    written
        The file itself.

    Examples
    --------
    >>> import tempfile
    >>> from fedgauge.site import create_site
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     site = create_site(folder, name="hospital-a", dataset="stroke-2026")
    >>> site.name, site.policy.max_epsilon
    ('hospital-a', 1.0)
    """

    name: str
    dataset: str
    key: SigningKey
    policy: Policy
    peers: Mapping[bytes, str] = field(repr=False)
    coordinators: Mapping[bytes, str] = field(repr=False)
    approvers: Mapping[bytes, str] = field(repr=False)
    path: Path
    key_path: Path = field(repr=False)
    ledger_path: Path = field(repr=False)
    witness_path: Path | None = field(repr=False)
    data: NamedRows | None = field(repr=False)
    written: SiteFile = field(repr=False)

    @classmethod
    def from_toml(cls, path: str | Path) -> Self:
        """Read a site file and the key it names."""
        path = Path(path).absolute()
        return cls.from_text(read_site_file(path), path)

    @classmethod
    def from_text(cls, text: str, path: Path) -> Self:
        """The site whose file, at an absolute path, holds this text."""
        with located(f"site file {path}"):
            file = SiteFile.from_text(text)
            key_path = path.parent / file.key
            key = SigningKey.load(key_path)
            itself = Party(file.name, key_to_text(key.public))
            by_key("peers", file.peers)
            # The site may list itself, but not its key under another name or the reverse.
            peers = by_key("peers", (itself, *(peer for peer in file.peers if peer != itself)))
            coordinators = by_key("coordinators", file.coordinators)
            approvers = by_key("approvers", file.approvers)
            _check_second(approvers, peers | coordinators)
            witness_path = None if file.witness is None else path.parent / file.witness
            if witness_path is not None:
                _require_apart(witness_path, path.parent)
        return cls(
            name=file.name,
            dataset=file.dataset,
            data=None,
            written=file,
            key=key,
            policy=file.policy,
            peers=MappingProxyType(peers),
            coordinators=MappingProxyType(coordinators),
            approvers=MappingProxyType(approvers),
            path=path,
            key_path=key_path,
            ledger_path=path.parent / file.ledger,
            witness_path=witness_path,
        ).on(plans.now().date())

    def on(self, day: date) -> Self:
        """The site with the rows of the last period that was over before a day, in UTC.

        The dataset is that period's where the site file says that periods are disjoint.
        """
        file = self.written
        rows = None if file.data is None else file.data.on(day, self.folder)
        return replace(self, data=rows, dataset=file.dataset_on(day))

    def in_session(self, session: bytes) -> Self:
        """The site with dataset and rows of the period in which it joined, or first saw, a session.

        That may be an earlier one than today's.
        """
        data = self.data
        if data is None or self.written.data is None or not self.written.data.pattern.period:
            return self  # before anything is read
        spend = self.ledger.sessions().get(session) if self.has_periods else None
        if spend is None:
            day = days_seen(self).get(session.hex())
            return self if day is None else self.on(day)
        path = self.written.path_of(spend.account.dataset)
        if path is None:
            return self
        data = msgspec.structs.replace(data, path=str(self.folder / path))
        return replace(self, dataset=spend.account.dataset, data=data)

    @property
    def has_periods(self) -> bool:
        """Whether each period of its data has a budget of its own."""
        return self.written.data is not None and self.written.data.periods is not None

    def declared_rows(self, plan: EvaluationPlan) -> NamedRows:
        """The rows that the site file declares, with the columns of a plan; reads none."""
        if self.data is None:
            raise InputError(
                f"{self.path} does not say which rows this site has. Name the file and its "
                "columns, or declare them there, in a table [data]."
            )
        self.require_in_place(self.data.path)
        rows = self.data.narrowed(plan)
        if not plan.task.of_labels:
            with located(f"[data] in {self.path} does not fit the plan"):
                rows.by_task(plan.task)
        return rows

    def rows(self, plan: EvaluationPlan, named: Rows | None) -> Rows:
        """The rows that were named or, where none were, those that the site file declares."""
        if named is None:
            return self.declared_rows(plan)
        if self.has_periods and named != self.declared_rows(plan):
            self.refuse_by_hand(f"rows of {named.path}")
        return named

    def require_in_place(self, path: str) -> None:
        """Refuse a file of a period that is a link, or outside the folder of all periods.

        It could be any file of the site, or the rows of another period.
        """
        data = self.written.data
        if data is None or not data.pattern.period:
            return
        folder = self.folder / data.pattern.folder
        within = Path(path).relative_to(folder)
        if os.path.realpath(path) != os.path.join(os.path.realpath(folder), within):
            raise SiteError(
                f"{path} lies outside {folder}, or behind a link. Put the file itself there."
            )

    @property
    def fingerprint_key(self) -> bytes:
        """What fingerprints of this site's rows are taken with; secret."""
        return self.key.derive(b"fingerprint")

    @property
    def folder(self) -> Path:
        """Where the site file is."""
        return self.path.parent

    def called(self, peer: bytes) -> str:
        """The name of a peer, by public key; the key itself where this site knows none."""
        return self.peers.get(peer, key_to_text(peer))

    @cached_property
    def ledger(self) -> Ledger:
        """The privacy ledger."""
        return Ledger(self.ledger_path, head=self.head_path, witness=self.witness_path)

    @property
    def head_path(self) -> Path:
        """Where the ledger's head is: beside the key."""
        return self.key_path.with_name(f"{self.key_path.name}.head")

    def judge(
        self,
        plan: EvaluationPlan,
        *,
        members: Sequence[bytes],
        coordinator: bytes,
        of_model: bool = False,
    ) -> None:
        """Refuse a plan outside the site file, for the operator of this site alone; reads no data.

        `members` are public keys of all sites invited, `coordinator` that of who started it.
        `of_model`: the coordinator sends the model that makes the scores.
        """
        if coordinator not in self.coordinators:
            raise PlanRefused(
                f"coordinator {_key_text(coordinator)} is not approved here. If it should be, add "
                f"it to {self.path.name} as one of the coordinators."
            )
        if plan.privacy.sends_reports:
            raise PlanRefused(
                "the plan is for local reports, which need no sum over sites. Make them with "
                "`fedgauge encode`."
            )
        if plan.is_alone:
            raise PlanRefused(NO_SUM_OF_FLIPS if plan.privacy.flips_labels else NO_SUM_ALONE)
        plan.check_time()
        self._judge_members(members)
        self._judge_cohort(plan, len(members))
        self._judge_privacy(plan)
        self._judge_silence(plan)
        judge_slices(self.policy, plan)
        if plan.final.sum_steps and not self.policy.score_sums:
            raise PlanRefused(
                "the plan asks for score sums, which this site does not allow (score_sums): they "
                "reveal more about bins with few examples than counts do."
            )
        if not plan.privacy.adds_noise:
            self._judge_exact(plan, of_model=of_model)
        judge_promise(plan)

    def judge_reports(self, plan: EvaluationPlan) -> None:
        """Refuse local reports outside the site file; reads no data.

        They need neither peers nor a coordinator: each is private from everybody.
        """
        if not plan.privacy.sends_reports:
            raise PlanRefused("the plan is not for local reports but for a sum over sites.")
        self._judge_alone(plan, "local reports")

    def judge_answer(self, plan: EvaluationPlan) -> None:
        """Refuse to answer alone for labels, outside the site file; reads no data.

        Like local reports, an answer with all of the noise is private from everybody. That it has
        all of it is a matter of accounting: noise of a cohort of one is judged as what one party
        adds.
        """
        if not plan.is_alone:
            raise PlanRefused(
                "the plan is not for label parties that answer alone. A sum over parties is joined "
                "with `fedgauge exchange join`."
            )
        self._judge_alone(plan, "answers alone")

    def _judge_alone(self, plan: EvaluationPlan, what: str) -> None:
        if self.approvers:
            raise PlanRefused(
                "this site requires each evaluation to be approved (approvers), and nobody can "
                f"approve of {what}: there is no invitation to sign. Take part in sums instead."
            )
        self.refuse_by_hand(what)
        plan.check_time()
        self._judge_privacy(plan)
        judge_slices(self.policy, plan)
        judge_promise(plan)

    def refuse_by_hand(self, what: str) -> None:
        """Refuse rows that are not those of `[data]`, where each period has a budget of its own."""
        if self.has_periods:
            raise PlanRefused(
                f"each period of this site's data has a budget of its own (periods), and {what} "
                "would be charged to a period whose rows they need not be. Take part with the rows "
                f"that [data] in {self.path.name} declares, or leave out periods there."
            )

    def _judge_exact(self, plan: EvaluationPlan, *, of_model: bool) -> None:
        """Refuse exact sums by which whoever chooses the plan or the model could single out."""
        policy = self.policy
        if of_model and not policy.exact_of_models:
            raise PlanRefused(
                "the plan asks for an exact sum of a model that the coordinator sends, which can "
                "be made so that the sum shows one patient. This site wants noise: "
                "DistributedDP (exact_of_models)."
            )
        judge_exact_slices(policy, plan)
        if plan.min_cell < policy.min_cell:
            raise PlanRefused(
                f"the plan's result may show fewer than {policy.min_cell} examples in a bin "
                f"(min_cell). Plan with min_cell = {policy.min_cell}."
            )
        if plan.calibrator is not None and plan.final.sum_steps:
            raise PlanRefused(
                "the plan asks for score sums of scores that go through a map, and in an exact sum "
                "a map that is steep within a bin shows single scores. Leave out one of them, or "
                "run with noise."
            )
        self._judge_widths(plan.whole)

    def _judge_widths(self, plan: EvaluationPlan) -> None:
        """Refuse bins of an exact sum that are too narrow, also those that are yet to be found."""
        # Behind a map edges are judged where they lie among the scores themselves.
        policy, axis = self.policy, plan.score_axis
        least = policy.min_bin_width * _ROUNDING
        if plan.least_width < least and axis.digest not in policy.axes:
            remedy = "a wider coarse axis (scores=margins)" if plan.is_search else "fewer bins"
            where = "" if plan.calibrator is None else ", on scores before the plan's map,"
            raise PlanRefused(
                f"the plan's bins{where} are narrower than {policy.min_bin_width:g} "
                f"(min_bin_width), and fine bins single out patients. Plan with {remedy} or with "
                f'noise, or allow this axis: axes = ["{axis.digest}"].'
            )
        if plan.task.two is not None and plan.task.two.narrowest < least:
            raise PlanRefused(
                "the plan's second round may have bins narrower than "
                f"{policy.min_bin_width:g} (min_bin_width), and fine bins single out patients. "
                f"Plan with narrowest={policy.min_bin_width:g}, or with noise."
            )

    def _judge_members(self, members: Sequence[bytes]) -> None:
        if len(set(members)) != len(members):
            raise PlanRefused("the plan names a site twice, which makes the cohort look larger.")
        strangers = [member for member in members if member not in self.peers]
        if strangers:
            raise PlanRefused(
                f"{len(strangers)} of {len(members)} sites are not approved here, first "
                f"{_key_text(strangers[0])}: invented sites would not protect the real ones. If "
                f"they should take part, add them to {self.path.name} as peers."
            )
        if self.key.public not in members:
            raise PlanRefused("this site is not among those invited.")

    def _judge_cohort(self, plan: EvaluationPlan, invited: int) -> None:
        cohort = plan.terms.sum_cohort
        least = max(self.policy.min_cohort, LEAST_COHORT)
        if cohort.min_survivors < least:
            raise PlanRefused(
                f"the plan releases a sum over {cohort.min_survivors} sites, this site wants at "
                f"least {least} (min_cohort)."
            )
        if invited < cohort.min_survivors:
            raise PlanRefused(
                f"the plan needs {cohort.min_survivors} sites but {invited} are invited."
            )
        if cohort.max_colluding < self.policy.min_colluding:
            raise PlanRefused(
                f"the plan holds while {cohort.max_colluding} sites subtract their own parts from "
                "the result and pool what they know (max_colluding), this site wants at least "
                f"{self.policy.min_colluding} (min_colluding)."
            )
        # Colluders subtract their parts from an exact sum: one honest site alone would be bare.
        if not plan.privacy.adds_noise and cohort.min_survivors - cohort.max_colluding < 2:
            raise PlanRefused(
                f"when {cohort.max_colluding} of {cohort.min_survivors} sites collude, an exact "
                "sum shows them the counts of the last one. Raise min_survivors."
            )

    def _judge_privacy(self, plan: EvaluationPlan) -> None:
        policy, model = self.policy, plan.privacy.name
        if model not in policy.models:
            allowed = ", ".join(policy.models) or "none"
            raise PlanRefused(
                f"the privacy model {model} is not among those allowed here: {allowed} (models)."
            )
        budget = plan.privacy.budget
        if budget is None:
            return
        for name, asked in budget._asdict().items():
            most = getattr(policy, f"max_{name}")
            if asked > most:
                raise PlanRefused(
                    f"the plan costs {name} {asked!r}, this site allows {most!r} (max_{name})."
                )

    def _judge_silence(self, plan: EvaluationPlan) -> None:
        """Refuse plans under which this site's silence, after it read its data, tells of them."""
        if plan.axis.outside != "clip":
            raise PlanRefused(
                "under this plan a site stops answering when a score lies outside the axis, which "
                "reveals something about its scores. It needs an axis made with outside='clip'."
            )
        largest = plan.summed.largest
        if not plan.privacy.adds_noise and largest < self.policy.rows_per_bin:
            raise PlanRefused(
                f"under this plan a site stops answering when it has more than {largest:,} rows "
                "in a bin, which reveals something about its counts. This site wants room for "
                f"{self.policy.rows_per_bin:,} (rows_per_bin)."
            )

    def account(self, plan: EvaluationPlan) -> Account:
        """The account that a plan is charged to."""
        stated = plan.whole.statement("enforced")
        return Account(self.dataset, stated.unit or _NO_UNIT, stated.neighbours or _NO_UNIT)

    def cost(self, plan: EvaluationPlan) -> Cost:
        """What a plan is charged, for both of two rounds: rounding of the noise included."""
        stated = plan.whole.statement("enforced")
        if stated.epsilon is None or stated.delta is None:
            return Cost(math.inf, 0.0)
        return Cost(stated.epsilon, stated.delta)

    def rules(self, plan: EvaluationPlan) -> ExactRules:
        """What this site allows of exact sums under a plan."""
        policy = self.policy
        # All exact sums on a dataset are of one plan: none of them allows for more colluders.
        colluding = 0 if plan.cohort is None else plan.cohort.max_colluding
        colluding = max(policy.min_colluding, colluding)
        # Two honest sites, at least, in whatever exact sums show.
        return ExactRules(
            policy.exact_sums,
            policy.exact_dropouts,
            max(policy.min_cohort, colluding + 2),
            policy.min_new_rows,
        )

    def reserve(
        self,
        session: bytes,
        plan: EvaluationPlan,
        *,
        roster: SumRoster | None = None,
        certain: bool = True,
        data: Fingerprint | None = None,
        asked: Asked = NOBODY,
        flips: str | None = None,
        check_only: bool = False,
    ) -> None:
        """Set the plan's cost aside in the ledger, under this site's policy.

        Flipped labels are made, and kept, before this is asked for, and sent once it is committed.
        They cost once: each use is a session of its own, in the ledger and its log.

        Parameters
        ----------
        session
            The session's id.
        plan
            What is to be measured.
        roster, certain
            Of a sum: who is invited, and whether all of them see each other.
        data
            Of an exact sum: the rows, where they are known before it begins.
        asked
            Who asked for it, and who approved of it.
        flips
            The digest of labels as flipped (:class:`fedgauge.vertical.flips.Flips`). Other flips of
            the same labels cost again.
        check_only
            Refuse what would be refused, and write nothing.
        """
        if flips is not None and not plan.privacy.flips_labels:
            # Noise is drawn anew for each evaluation: no digest makes it free.
            raise PlanRefused("the plan is not for labels flipped once and for all.")
        whole, turn = plan.whole, turn_of(plan)
        self.ledger.reserve(
            session,
            self.account(plan),
            self.cost(plan),
            default_limit=self.policy.default_limit,
            mix_exact=self.policy.mix_exact,
            asked=asked if whole.not_after is None else asked._replace(dated=whole.digest),
            # Plans that differ in when they expire measure the same.
            exact=ExactSum(
                roster, whole.with_not_after(None).digest, certain, data=data, turn=turn
            ),
            rules=self.rules(plan),
            flips=flips,
            turn=turn,
            check_only=check_only,
        )


def _check_second(approvers: Mapping[bytes, str], others: Mapping[bytes, str]) -> None:
    """Refuse an approver's key that somebody else signs with: it would be no second one."""
    for key, name in approvers.items():
        if key in others:
            raise SiteError(
                f"approver {name!r} has the key of {others[key]!r}. An approval is signed with a "
                "key of its own: make one with `fedgauge site approver`."
            )


def _require_apart(witness: Path, folder: Path) -> None:
    if Path(os.path.realpath(witness.parent)).is_relative_to(os.path.realpath(folder)):
        raise SiteError(
            f"the witness {witness} lies in the site's own folder, and a copy of that would bring "
            "it along. Choose another disk, a share or a stick."
        )


def turn_of(plan: EvaluationPlan) -> Turn | None:
    """Which of two rounds a plan is for; None where it has one."""
    if plan.found is None:
        return FIRST if plan.is_search else None
    return Turn(bytes.fromhex(plan.found.session), plan.axis.digest, plan.found.clients)


def judge_promise(plan: EvaluationPlan) -> None:
    """Refuse a plan whose noise does not keep what it promises, or cannot be accounted for."""
    try:
        plan.check_promise()
        plan.statement("enforced")  # fails where noise as wide as the plan's cannot be drawn
    except PlanError as error:
        raise PlanRefused(str(error)) from None
    except (ArithmeticError, ValueError):
        raise PlanRefused("the plan's noise is beyond what can be accounted for.") from None


def _key_text(public: bytes) -> str:
    try:
        return key_to_text(public)
    except SiteError:
        return "with a malformed key"


def seen_path(site: Site) -> Path:
    """Where the days are kept on which an agent first saw invitations."""
    return site.folder / "sessions" / "seen.json"


def days_seen(site: Site) -> dict[str, date]:
    """The day on which an agent first saw each invitation, by session."""
    try:
        return msgspec.json.decode(read_bounded(seen_path(site), 1 << 20), type=dict[str, date])
    except (FileNotFoundError, *MALFORMED):
        return {}
    except OSError as error:
        raise SiteError(f"cannot read {seen_path(site)}: {error.strerror}.") from None


_MOST_BYTES: Final = 1000


class _Approval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    approver: str
    signature: bytes


def approval_path(site: Site, session: bytes) -> Path:
    """Where an approval of a session is kept."""
    return site.folder / "sessions" / f"{session.hex()[:32]}.approval"


def approve(site: Site, session: bytes, plan: EvaluationPlan, key: SigningKey) -> Path:
    """Sign that this site may take part in a session, and keep that in its folder."""
    require_approver(site, key)
    approval = _Approval(key_to_text(key.public), key.sign(_signed(site, session, plan)))
    path = approval_path(site, session)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        storage.replace(path, msgspec.json.encode(approval))
    except OSError as error:
        raise SiteError(f"cannot write {path}: {error.strerror}.") from None
    return path


def require_approver(site: Site, key: SigningKey) -> None:
    """Refuse the key of somebody who does not approve of what this site joins."""
    if key.public not in site.approvers:
        raise SiteError(
            f"the key {key_to_text(key.public)} is not an approver's in {site.path}. Add it with "
            "`fedgauge site trust NAME KEY --approver`, if it should be."
        )


def keep_approval(site: Site, first: bytes, session: bytes) -> None:
    """Keep the approval of the first of two rounds with the second; nothing where there is none."""
    try:
        approval = read_bounded(approval_path(site, first), _MOST_BYTES)
        storage.replace(approval_path(site, session), approval)
    except FileNotFoundError:
        return
    except OSError as error:
        raise SiteError(f"cannot keep an approval: {error.strerror}.") from None


def require_approval(site: Site, session: bytes, plan: EvaluationPlan) -> bytes:
    """The public key of who approved of a session here; PlanRefused where nobody has."""
    try:
        data = read_bounded(approval_path(site, session), _MOST_BYTES)
        approval = msgspec.json.decode(data, type=_Approval)
        approver = key_from_text(approval.approver)
    except FileNotFoundError:
        raise PlanRefused(
            "no approver has signed this evaluation, and this site requires one (approvers). They "
            "look at it with `fedgauge exchange review`, which prints the command to sign."
        ) from None
    except OSError as error:
        raise PlanRefused(f"the approval is damaged: {error.strerror}. Approve again.") from None
    except (*MALFORMED, SiteError):
        raise PlanRefused("the approval is damaged. Approve again.") from None
    if approver not in site.approvers:
        raise PlanRefused(
            f"the approval is by {approval.approver}, who is not an approver here, or no longer."
        )
    if not verify(approver, _signed(site, session, plan), approval.signature):
        raise PlanRefused(
            f"what {site.approvers[approver]} approved is not this evaluation on this dataset at "
            "this cost, or the approval is forged. Review it, and approve again."
        )
    return approver


def _signed(site: Site, session: bytes, plan: EvaluationPlan) -> bytes:
    account, cost = site.account(plan), site.cost(plan)
    about = (
        site.key.public,
        session if plan.found is None else bytes.fromhex(plan.found.session),
        account.dataset,
        account.unit,
        account.neighbours,
        cost.epsilon,
        cost.delta,
    )
    return b"fedgauge approval\0" + msgspec.msgpack.encode(about)
