"""The privacy models as plain data, and what each one states about a result."""

import math
import warnings
from typing import Final, Literal, NamedTuple, TypeGuard

import msgspec

from fedgauge.errors import PlanError, PrivacyWarning
from fedgauge.privacy.cohort import Cohort

Claim = Literal["enforced", "simulated"]
Noise = Literal["polya", "skellam", "discrete-gaussian"]
Unit = Literal["example", "subject", "client"]
Neighbours = Literal["add-remove", "replace-one"]
OracleKind = Literal["oue", "hadamard"]

PROTOCOL_FAILURE: Final = 2.0**-40  # chance that a secure sum shows more than the sum
_LARGE_EPSILON: Final = 20.0
_LEAST_EPSILON: Final = 1e-6  # of a local report: a billion billion of them would show little
_MOST_PER_UNIT: Final = 1_000_000  # noise for more hides everything


class PrivacyStatement(msgspec.Struct, frozen=True):
    """What a result may claim about the privacy of the data behind it.

    `epsilon` and `delta` are None where no differential privacy is claimed; `unit` and
    `neighbours` then have no meaning and are None too. `public_inputs` names the hints
    the plan was made from. `claim` is ``"enforced"`` only when a real protocol ran
    between the parties; everything computed in one process is ``"simulated"``.
    """

    model: str
    unit: str | None
    neighbours: str | None
    epsilon: float | None
    delta: float | None
    cohort: Cohort
    public_inputs: tuple[str, ...]
    claim: Claim


class Sensitivity(NamedTuple):
    """How far one unit can move all counts together, in the L1 and in the L2 norm."""

    l1: float
    l2: float


class SecureAggregation(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field="model",
    tag="secure-aggregation",
):
    """Release the exact sum over the clients and nothing else.

    No noise is added, so there is no differential privacy: the sum itself is public,
    and sums over cohorts that differ by one client reveal that client's histogram.
    """


class DistributedDP(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field="model",
    tag="distributed-dp",
):
    """Differential privacy by noise that every client adds a share of.

    Parameters
    ----------
    epsilon
        The privacy budget of the whole evaluation, over all levels and classes.
    delta
        The probability that may escape epsilon; needed by skellam and discrete-gaussian,
        refused by polya, which needs none.
    noise
        ``"polya"`` shares add up to discrete Laplace noise, ``"skellam"`` shares to a
        difference of Poissons, ``"discrete-gaussian"`` shares nearly to a discrete Gaussian.
    unit
        Whom it protects: one ``"example"`` (row); one ``"subject"``, all rows of a person at
        one client, by an id column; or a whole ``"client"``.
    neighbours
        ``"add-remove"``: the unit is there or not (for clients: its counts are there or zero;
        that it takes part is not hidden). ``"replace-one"``: the unit's rows are swapped for
        others, which also covers a flipped label.
    max_per_unit
        Rows of one subject or client that count; further rows are dropped at the client.

    Examples
    --------
    >>> DistributedDP(1.0).sensitivity(levels=2).l1
    2.0
    >>> DistributedDP(1.0, neighbours="replace-one").sensitivity(levels=2).l1
    4.0
    """

    epsilon: float
    delta: float | None = msgspec.field(default=None)
    noise: Noise = "polya"
    unit: Unit = "example"
    neighbours: Neighbours = "add-remove"
    max_per_unit: int = 1

    def __post_init__(self) -> None:
        _check_epsilon(self.epsilon)
        for name, value, choices in (
            ("noise", self.noise, ("polya", "skellam", "discrete-gaussian")),
            ("unit", self.unit, ("example", "subject", "client")),
            ("neighbours", self.neighbours, ("add-remove", "replace-one")),
        ):
            if value not in choices:
                raise PlanError(f"{name} must be one of {', '.join(choices)}, got {value!r}.")
        self._check_delta()
        if isinstance(self.max_per_unit, bool) or not isinstance(self.max_per_unit, int):
            raise PlanError("max_per_unit must be a whole number.")
        if not 1 <= self.max_per_unit <= _MOST_PER_UNIT:
            raise PlanError(f"max_per_unit must lie between 1 and {_MOST_PER_UNIT:,}.")
        if self.unit == "example" and self.max_per_unit != 1:
            raise PlanError("an example is one row: max_per_unit is for subjects and clients.")

    def _check_delta(self) -> None:
        if self.noise == "polya":
            if self.delta is not None:
                raise PlanError(
                    "polya noise is purely epsilon-private and takes no delta. Leave it out, or "
                    "use noise='skellam', which needs less noise for a small delta."
                )
        elif not _is_number(self.delta) or not 0 < self.delta < 1:
            raise PlanError(
                f"{self.noise} noise needs a delta between 0 and 1, well below 1 over the number "
                "of examples, e.g. 1e-6."
            )

    @property
    def moves(self) -> int:
        """Groups of rows that change between neighbours: one leaves, or one comes for it."""
        return 1 if self.neighbours == "add-remove" else 2

    @property
    def level_sensitivity(self) -> int:
        """Counts that one unit can change at one level, in the L1 norm.

        The trees of the two classes are disjoint: a row is in one node per level of one of
        them. A replaced row, a flipped label too, leaves one node and enters another.
        """
        return self.moves * self.max_per_unit

    def sensitivity(self, levels: int) -> Sensitivity:
        """How far one unit can move all counts of a tree with `levels` levels sent."""
        return Sensitivity(
            l1=float(levels * self.level_sensitivity),
            l2=math.sqrt(levels * self.moves) * self.max_per_unit,
        )


class LocalDP(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="model", tag="local-dp"
):
    """Differential privacy for every row by itself: nobody's sum has to be trusted.

    Each row is randomised where it is held and sent as one report. Neighbours replace a row by
    any other; how many reports there are is public. Far more noise than under distributed DP:
    errors fall with the square root of the number of reports.

    Parameters
    ----------
    epsilon
        The privacy budget of one report. A row that is reported again pays again.
    oracle
        ``"oue"``, one bit for each cell of the histogram, or ``"hadamard"``, a number of one to
        three bytes, in most cases with more noise.

    Examples
    --------
    >>> LocalDP(1.0).oracle
    'oue'
    """

    epsilon: float
    oracle: OracleKind = "oue"

    def __post_init__(self) -> None:
        _check_epsilon(self.epsilon)
        if self.epsilon < _LEAST_EPSILON:
            raise PlanError(
                f"a local report with epsilon below {_LEAST_EPSILON:g} says nothing. Raise it."
            )
        # One form for equal plans: 1 and 1.0 would digest differently.
        msgspec.structs.force_setattr(self, "epsilon", float(self.epsilon))
        if self.oracle not in ("oue", "hadamard"):
            raise PlanError(f"oracle must be one of oue, hadamard, got {self.oracle!r}.")


def _check_epsilon(epsilon: object) -> None:
    if not _is_number(epsilon) or not 0 < epsilon < math.inf:
        raise PlanError(f"epsilon must be a positive number, got {epsilon!r}.")
    if epsilon > _LARGE_EPSILON:
        warnings.warn(
            f"epsilon {epsilon:g} protects nobody: 1 is usual, 10 is already weak.",
            PrivacyWarning,
            stacklevel=3,
        )


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


DifferentialPrivacy = DistributedDP | LocalDP
PrivacyModel = SecureAggregation | DifferentialPrivacy
