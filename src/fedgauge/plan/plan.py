"""The evaluation plan: a frozen, fully resolved, digestible statement of what is measured."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedgauge.binning.axis import Axis, AxisSpec
from fedgauge.binning.histogram import check_sums, check_tree
from fedgauge.errors import AxisError, PlanError
from fedgauge.plan.rounds import LARGEST, SUM_STEPS, BinaryTask, HistogramRound, ScoreSums
from fedgauge.privacy import (
    Cohort,
    DistributedDP,
    LocalDP,
    PrivacyModel,
    PrivacyStatement,
    SecureAggregation,
    response,
)
from fedgauge.privacy.models import Claim
from fedgauge.privacy.oracles import Oracle
from fedgauge.privacy.response import ReportRound
from fedgauge.privacy.shares import (
    SUMS_SHARE,
    ShareLaw,
    check_promise,
    honest_parties,
    level_parameters,
    require_polya,
    state,
    sums_parameter,
)

BYTES_PER_COUNT = 8
ALONE = Cohort(min_survivors=1, max_colluding=0)  # of local reports, which need nobody else


class Prediction(NamedTuple):
    """Errors that a planner expects, for the pooled data: not part of a plan's bytes."""

    roc_area_error: float
    pr_area_error: float
    roc_auc_error: float


class EvaluationPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """What is measured, how, and under which protection.

    A plan is complete: nothing in it is left to be chosen later, and every party that
    holds the same bytes does the same thing. :attr:`digest` names those bytes.

    Parameters
    ----------
    task
        What is told apart.
    axis
        How scores are binned.
    tree
        Branchings over the bins, from the root down; ``(bins,)`` is flat.
    privacy
        The privacy model.
    cohort
        Who must take part.
    rounds
        What each client sends, in order.

    Examples
    --------
    >>> plan = EvaluationPlan.for_histogram(Axis.uniform(64), Cohort(min_survivors=5))
    >>> plan.bytes_per_client
    1024
    >>> EvaluationPlan.from_toml(plan.to_toml()) == plan
    True
    """

    task: BinaryTask
    axis: Axis
    tree: tuple[int, ...]
    privacy: PrivacyModel
    cohort: Cohort
    rounds: tuple[HistogramRound | ReportRound, ...]

    def __post_init__(self) -> None:
        try:
            check_tree(self.tree, self.axis.bins)
        except AxisError as error:
            raise PlanError(str(error)) from None
        nodes = _nodes_sent(self.privacy, self.tree)
        if len(self.rounds) != 1 or self.rounds[0].nodes != nodes:
            raise PlanError(
                f"under this privacy model a plan has one round of {nodes} counts; "
                "make plans with EvaluationPlan.for_histogram."
            )
        reports = isinstance(self.rounds[0], ReportRound)
        if reports != isinstance(self.privacy, LocalDP):
            raise PlanError("local DP plans have reports, others counts; this one mixes them.")
        if reports:
            self._check_reports()
            return
        if not 1 <= self.rounds[0].largest <= LARGEST:
            raise PlanError(f"the largest count of a client must lie between 1 and {LARGEST:,}.")
        if isinstance(self.privacy, DistributedDP):
            self._check_noise()
        elif self.rounds[0].noise:
            raise PlanError("secure aggregation adds no noise. Use DistributedDP to add some.")
        if self.rounds[0].sums is not None:
            self._check_sums(self.rounds[0].sums)

    def _check_noise(self) -> None:
        noise = self.rounds[0].noise
        if len(noise) != len(self.tree) or not all(0 < n < math.inf for n in noise):
            raise PlanError("under distributed DP a plan has positive noise for every level.")
        honest_parties(self.cohort)
        require_clipping(self.axis)

    def _check_sums(self, sums: ScoreSums) -> None:
        try:
            check_sums(self.axis, sums.steps)
        except AxisError as error:
            raise PlanError(str(error)) from None
        if isinstance(self.privacy, DistributedDP):
            require_polya(self.privacy)
            if not 0 < sums.noise < math.inf:
                raise PlanError("under distributed DP a plan has positive noise for score sums.")
        elif sums.noise:
            raise PlanError("secure aggregation adds no noise. Use DistributedDP to add some.")

    def _check_reports(self) -> None:
        assert isinstance(self.privacy, LocalDP)  # noqa: S101  (for the type checker)
        assert isinstance(self.rounds[0], ReportRound)  # noqa: S101
        self.rounds[0].check(self.privacy, self.channels)
        require_clipping(self.axis)
        if self.cohort != ALONE:
            raise PlanError(
                "local DP needs no cohort: every report is private by itself. Leave it out."
            )

    @classmethod
    def for_reports(
        cls,
        axis: Axis,
        privacy: LocalDP,
        *,
        task: BinaryTask | None = None,
        tree: tuple[int, ...] | None = None,
    ) -> Self:
        """A plan for local reports, with the least noise that keeps the privacy promised.

        Examples
        --------
        >>> plan = EvaluationPlan.for_reports(Axis.uniform(64, outside="clip"), LocalDP(1.0))
        >>> plan.bytes_per_client
        16
        """
        task, tree = task or BinaryTask(), tree or (axis.bins,)
        nodes = _nodes_sent(privacy, tree)
        sent = ReportRound.calibrated(privacy, nodes, 2 * len(task.slices))
        return cls(task, axis, tree, privacy, ALONE, (sent,))

    @property
    def oracles(self) -> tuple[Oracle, ...]:
        """What randomises a report about each level; empty unless the plan is for reports."""
        sent = self.rounds[0]
        if not isinstance(self.privacy, LocalDP) or not isinstance(sent, ReportRound):
            return ()
        return sent.oracles(self.privacy, self.channels)

    @classmethod
    def for_histogram(
        cls,
        axis: Axis,
        cohort: Cohort,
        *,
        task: BinaryTask | None = None,
        tree: tuple[int, ...] | None = None,
        privacy: PrivacyModel | None = None,
        weights: Sequence[float] | None = None,
        largest: int = LARGEST,
        score_sums: bool = False,
    ) -> Self:
        """A plan for one histogram, with the least noise that keeps the privacy promised.

        `weights` splits the budget over the levels of the tree, evenly by default. `largest`
        is the largest count of one client: a lower one halves what travels, where it and the
        noise of all clients fit 32 bits. `score_sums` adds the sums of scores within bins,
        which take a fifth of the budget.
        """
        tree = tree or (axis.bins,)
        privacy = privacy or SecureAggregation()
        if isinstance(privacy, LocalDP):
            raise PlanError("local DP sends reports: use EvaluationPlan.for_reports.")
        noise: tuple[float, ...] = ()
        sums = ScoreSums(SUM_STEPS) if score_sums else None
        if isinstance(privacy, DistributedDP):
            share = 1 - SUMS_SHARE if score_sums else Fraction(1)
            noise = level_parameters(privacy, cohort, len(tree), weights, share=share)
            if score_sums:
                sums = ScoreSums(SUM_STEPS, sums_parameter(privacy, noise))
        plan = cls(
            task=task or BinaryTask(),
            axis=axis,
            tree=tree,
            privacy=privacy,
            cohort=cohort,
            rounds=(HistogramRound(_nodes_sent(privacy, tree), noise, largest, sums),),
        )
        plan.sums_law(shares=1)  # refused now where it cannot be drawn
        return plan

    def check_promise(self) -> None:
        """Refuse a plan whose noise costs more than it promises."""
        if isinstance(self.privacy, DistributedDP):
            sent = self.rounds[0]
            # Sums have polya noise, whose parameters are budgets: they add up.
            budgets = sent.noise if sent.sums is None else (*sent.noise, sent.sums.noise)
            check_promise(self.privacy, self.cohort, budgets)
        if isinstance(self.privacy, LocalDP):
            response.check_promise(self.privacy, self.oracles)

    def statement(self, claim: Claim, public_inputs: tuple[str, ...] = ()) -> PrivacyStatement:
        """What a result of this plan may claim about privacy."""
        laws = self.noise_laws(shares=1)
        draws = [
            (law, self.channels * count)
            for law, count in zip(laws, self.rounds[0].nodes[: len(laws)], strict=True)
        ]
        sums_law = self.sums_law(shares=1)
        if sums_law is not None:
            draws.append((sums_law, self.channels * self.axis.bins))
        return state(
            self.privacy, self.cohort, draws=draws, claim=claim, public_inputs=public_inputs
        )

    def noise_laws(self, shares: int) -> list[ShareLaw]:
        """The law of the sum of `shares` clients' noise at each level; empty without noise."""
        if not isinstance(self.privacy, DistributedDP):
            return []
        parties = honest_parties(self.cohort)
        return [
            ShareLaw(self.privacy, parameter, parties=parties, shares=shares)
            for parameter in self.rounds[0].noise
        ]

    def sums_law(self, shares: int) -> ShareLaw | None:
        """The law of the sum of `shares` clients' noise on score sums; None without noise."""
        sums = self.rounds[0].sums
        if sums is None or not isinstance(self.privacy, DistributedDP):
            return None
        parties = honest_parties(self.cohort)
        # A row moves one sum by at most all steps, where it moves one count by 1.
        reach = sums.steps * self.privacy.level_sensitivity
        try:
            return ShareLaw(
                self.privacy, sums.noise, parties=parties, shares=shares, sensitivity=reach
            )
        except PlanError:
            raise PlanError(
                "the noise of score sums is too wide to be drawn exactly. Raise epsilon, or leave "
                "the score sums out."
            ) from None

    def noise_variances(self, contributions: int) -> tuple[float, ...]:
        """Variance of the noise at one node of each level; empty without noise.

        `contributions` are the clients in the sum, or the reports under local DP.
        """
        if isinstance(self.privacy, LocalDP):
            return response.variances(self.oracles, contributions)
        return tuple(law.variance for law in self.noise_laws(shares=contributions))

    def noise_spreads(self, leaves: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Variance of every node at each level, where it depends on the counts of the bins.

        Under local DP. Empty elsewhere: all nodes of a level have the same noise.
        """
        return response.spreads(self.oracles, leaves)

    @property
    def predicted(self) -> Prediction | None:
        """Errors that the planner which made the plan expects; None for other plans."""
        return self.__dict__.get("predicted_errors")

    def with_prediction(self, prediction: Prediction) -> Self:
        """The same plan, remembering what its planner expects."""
        plan = msgspec.structs.replace(self)
        plan.__dict__["predicted_errors"] = prediction
        return plan

    @property
    def channels(self) -> int:
        """Slices times classes."""
        return 2 * len(self.task.slices)

    @property
    def sum_steps(self) -> int:
        """Steps that the scores within a bin are summed in; 0 where they are not."""
        sums = self.rounds[0].sums
        return 0 if sums is None else sums.steps

    @property
    def numbers(self) -> int:
        """How many counts and sums one client sends."""
        sums = self.axis.bins if self.sum_steps else 0
        return self.channels * (sum(sum(round_.nodes) for round_ in self.rounds) + sums)

    @cached_property
    def most_per_count(self) -> int:
        """Largest absolute value that one client can send, its noise included: a certain bound."""
        largest = self.rounds[0].largest
        reaches = [law.reach for law in self.noise_laws(shares=1)]
        sums_law = self.sums_law(shares=1)
        sums_reach = 0 if sums_law is None else sums_law.reach
        return max(largest + max(reaches, default=0), largest * self.sum_steps + sums_reach)

    @property
    def bytes_per_client(self) -> int:
        """Size of one client's counts and sums, or of one report, before any protocol."""
        if self.oracles:
            return max(oracle.payload_bytes for oracle in self.oracles)
        return self.numbers * BYTES_PER_COUNT

    @cached_property
    def digest(self) -> str:
        """SHA-256 of :meth:`to_bytes`."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """The plan as distributed: JSON in the one form that :meth:`from_bytes` accepts."""
        return msgspec.json.encode(self, enc_hook=encode_axis)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a distributed plan; its digest is that of exactly these bytes."""
        with _plan_errors("JSON"):
            plan = msgspec.json.decode(data, type=cls, dec_hook=decode_axis)
        if plan.to_bytes() != data:
            raise PlanError(
                "the plan is not in the form it is distributed in, so its digest would differ "
                "between sites. Write it with EvaluationPlan.to_bytes."
            )
        return plan

    def to_toml(self) -> str:
        """The plan as TOML, to be read and edited by people."""
        plain = msgspec.to_builtins(self, enc_hook=encode_axis)
        return msgspec.toml.encode(_without_none(plain)).decode()

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Read a plan from TOML."""
        with _plan_errors("TOML"):
            return msgspec.toml.decode(text, type=cls, dec_hook=decode_axis)

    def save(self, path: str | Path) -> None:
        """Write the plan to a ``.json`` (as distributed) or ``.toml`` file."""
        path = Path(path)
        data = self.to_toml().encode() if _is_toml(path) else self.to_bytes()
        try:
            path.write_bytes(data)
        except OSError as error:
            raise PlanError(f"cannot write {path}: {error.strerror}.") from None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a plan from a ``.json`` or ``.toml`` file."""
        path = Path(path)
        try:
            data = path.read_bytes()
            return cls.from_toml(data.decode()) if _is_toml(path) else cls.from_bytes(data)
        except OSError as error:
            raise PlanError(f"cannot read plan {path}: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise PlanError(f"{path} is not text, so it is not a TOML plan.") from None


@contextmanager
def _plan_errors(form: str) -> Iterator[None]:
    """Turn decoding errors into a PlanError that names the format."""
    try:
        yield
    except AxisError as error:
        raise PlanError(str(error)) from None
    except UnicodeDecodeError:
        raise PlanError(f"this is not a plan in {form}: it is not UTF-8.") from None
    except msgspec.MsgspecError as error:
        raise PlanError(f"this is not a plan in {form}: {error}.") from None


def require_clipping(axis: Axis) -> None:
    """Refuse an axis that refuses scores, where that would leak."""
    if axis.outside != "clip":
        raise PlanError(
            "under differential privacy a client may not refuse scores, since a refusal that "
            'depends on data is a leak. Make the axis with outside="clip".'
        )


def _nodes_sent(privacy: PrivacyModel, tree: Sequence[int]) -> tuple[int, ...]:
    if isinstance(privacy, DistributedDP | LocalDP):
        return tuple(math.prod(tree[: level + 1]) for level in range(len(tree)))
    # Without noise the inner nodes are sums of leaves: only leaves travel.
    return (math.prod(tree),)


def _is_toml(path: Path) -> bool:
    if path.suffix not in (".json", ".toml"):
        raise PlanError(f"a plan file ends in .json or .toml, got {path.name!r}.")
    return path.suffix == ".toml"


def encode_axis(value: Any) -> Any:
    """Plain data for an axis: msgspec's hook for types it does not know."""
    if isinstance(value, Axis):
        return value.spec
    raise NotImplementedError(type(value).__name__)


def decode_axis(kind: type, value: Any) -> Any:
    """The inverse of :func:`encode_axis`."""
    if kind is Axis:
        return Axis.from_spec(msgspec.convert(value, AxisSpec))
    raise NotImplementedError(kind.__name__)


def _without_none(value: Any) -> Any:
    # TOML has no null; a missing field reads back as its default, None.
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value
