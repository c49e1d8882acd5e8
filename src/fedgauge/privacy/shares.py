"""Noise shares: what each client adds, what the sum of shares is, and what it costs."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np

from fedgauge.errors import PlanError
from fedgauge.privacy import accounting, laws
from fedgauge.privacy.cohort import Cohort
from fedgauge.privacy.keystream import WordSource
from fedgauge.privacy.laws import Draws, DrawTable
from fedgauge.privacy.models import (
    PROTOCOL_FAILURE,
    Claim,
    DistributedDP,
    LocalDP,
    PrivacyModel,
    PrivacyStatement,
)

# Of epsilon, for score sums where they are sent. Curves come from the counts and need most of it:
# noise a quarter stronger is hardly seen in them.
SUMS_SHARE: Final = Fraction(1, 5)
_TINY: Final = 1e-300


class ShareLaw:
    """The law of the sum of some clients' shares at one node.

    Parameters
    ----------
    spec
        The privacy model.
    parameter
        Strength of the noise at this level, as a plan states it: the level's budget for
        polya, the mean of each Poisson for skellam, sigma squared for the discrete Gaussian.
        It belongs to the sum of `parties` shares.
    parties
        Honest survivors that the noise must come from (M).
    shares
        How many shares are added up; 1 is what one client adds.
    sensitivity
        How far one unit can move all numbers that this noise is on, in the L1 norm; by default
        that of the counts of one level. Only polya noise takes another one.
    """

    def __init__(
        self,
        spec: DistributedDP,
        parameter: float,
        *,
        parties: int,
        shares: int = 1,
        sensitivity: int | None = None,
    ) -> None:
        if sensitivity is not None:
            require_polya(spec)
        self._repeats, self._signed = 1, False
        part = Fraction(shares, parties)
        self._table: DrawTable
        match spec.noise:
            case "polya":
                # M differences of NB(1/M, 1 - a) add up to discrete Laplace with parameter a.
                reach = spec.level_sensitivity if sensitivity is None else sensitivity
                self._table = laws.negative_binomial(part, Fraction(parameter) / reach)
            case "skellam":
                self._table = laws.poisson(Fraction(parameter) * part)
            case "discrete-gaussian":
                # Sums of discrete Gaussians are not discrete Gaussian: draw every share.
                self._table = laws.discrete_gaussian(Fraction(parameter) / parties)
                self._repeats, self._signed = shares, True

    @property
    def variance(self) -> float:
        """Variance of the noise at one node; never quite zero, since it divides."""
        return max(self._table.variance * (self._repeats if self._signed else 2), _TINY)

    @property
    def reach(self) -> int:
        """Largest absolute value that can be drawn: tables are finite."""
        first, last = self._table.first, self._table.first + len(self._table.cumulative)
        if self._signed:
            return self._repeats * max(abs(first), abs(last))
        return last - first

    @property
    def distance(self) -> float:
        """Bound on the total-variation distance of one draw to the ideal law."""
        return self._table.distance * (self._repeats if self._signed else 2)

    def draw(self, source: WordSource, shape: tuple[int, ...]) -> Draws:
        """Independent noise for each node."""
        count = int(np.prod(shape))
        if not self._signed:
            draws = self._table.draw(source, 2 * count)
            return (draws[:count] - draws[count:]).reshape(shape)
        total = np.zeros(count, dtype=np.int64)
        for _ in range(self._repeats):
            total += self._table.draw(source, count)
        return total.reshape(shape)


def honest_parties(cohort: Cohort) -> int:
    """Survivors whose noise nobody else knows; the noise is calibrated to them.

    Whoever reads the result and took part can subtract a share of their own, so shares of
    possible colluders do not count. More survivors than the least only add noise.
    """
    parties = cohort.min_survivors - cohort.max_colluding
    if parties < 1:
        raise PlanError(
            f"no noise is left when {cohort.max_colluding} of {cohort.min_survivors} clients "
            "collude. Raise min_survivors above max_colluding."
        )
    return parties


def require_polya(spec: DistributedDP) -> None:
    """Refuse noise that is accounted for on counts alone."""
    if spec.noise != "polya":
        raise PlanError(
            f"{spec.noise} noise is for counts alone. Use noise='polya', or leave the score sums "
            "out."
        )


def level_parameters(
    spec: DistributedDP,
    cohort: Cohort,
    levels: int,
    weights: Sequence[float] | None = None,
    *,
    share: Fraction = Fraction(1),
) -> tuple[float, ...]:
    """Least noise for each level that keeps the spec's promise.

    `weights` splits polya's budget over levels, evenly by default. `share` is the part of
    epsilon that all levels have together; below 1 for polya alone.
    """
    if share != 1:
        require_polya(spec)
    parties = honest_parties(cohort)
    if spec.noise == "polya":
        split = [1.0] * levels if weights is None else list(weights)
        if len(split) != levels or not all(0 < w < math.inf for w in split):
            raise PlanError(f"weights must be {levels} positive numbers, one for each level.")
        shares = [Fraction(w) for w in split]
        budget = Fraction(spec.epsilon) * share
        return tuple(_at_most(budget * share / sum(shares)) for share in shares)
    if weights is not None:
        raise PlanError("only polya noise takes weights; the others use the same at every level.")
    assert spec.delta is not None  # noqa: S101  (checked by the spec)
    cap, moves = spec.max_per_unit, spec.moves
    if spec.noise == "skellam":
        each = accounting.calibrate_skellam(
            spec.epsilon, spec.delta, levels=levels, cap=cap, moves=moves
        )
    else:
        each = accounting.calibrate_gaussian(
            spec.epsilon, spec.delta, levels=levels, parties=parties, cap=cap, moves=moves
        )
    return (each,) * levels


def sums_parameter(spec: DistributedDP, levels: Sequence[float]) -> float:
    """The budget of score sums: what the levels leave of epsilon."""
    return _at_most(Fraction(spec.epsilon) - sum(map(Fraction, levels)))


def _at_most(budget: Fraction) -> float:
    value = float(budget)
    return value if Fraction(value) <= budget else float(np.nextafter(value, 0.0))


def check_promise(spec: DistributedDP, cohort: Cohort, parameters: Sequence[float]) -> None:
    """Refuse noise that does not keep the promise of the spec."""
    parties = honest_parties(cohort)
    if spec.noise == "polya":
        kept = sum(map(Fraction, parameters)) <= Fraction(spec.epsilon)
    else:
        assert spec.delta is not None  # noqa: S101  (checked by the spec)
        cap, moves = spec.max_per_unit, spec.moves
        if spec.noise == "skellam":
            delta = accounting.skellam_delta(spec.epsilon, means=parameters, cap=cap, moves=moves)
        else:
            delta = accounting.gaussian_delta(
                spec.epsilon, spreads=parameters, parties=parties, cap=cap, moves=moves
            )
        kept = delta <= spec.delta
    if not kept:
        raise PlanError(
            f"the plan promises epsilon {spec.epsilon:g} but its noise costs more. "
            "Make the plan again with EvaluationPlan.for_histogram."
        )


def state(
    privacy: PrivacyModel,
    cohort: Cohort,
    *,
    draws: Sequence[tuple[ShareLaw, int]],
    claim: Claim,
    public_inputs: tuple[str, ...] = (),
) -> PrivacyStatement:
    """What a result under the model may claim.

    `draws` holds the law of one client's share on some numbers, and how many these are. Delta
    includes the distance of their tables from the ideal laws and, where a protocol ran, the chance
    that its graph of neighbours fails to protect.
    """
    if isinstance(privacy, LocalDP):
        # The chances are exact, so nothing escapes epsilon; no protocol runs that could fail.
        return PrivacyStatement(
            model="local-dp",
            unit="example",
            neighbours="replace-one",
            epsilon=privacy.epsilon,
            delta=0.0,
            cohort=cohort,
            public_inputs=(*public_inputs, "number of reports"),
            claim=claim,
        )
    if not isinstance(privacy, DistributedDP):
        return PrivacyStatement(
            "secure-aggregation", None, None, None, None, cohort, public_inputs, claim
        )
    parties = honest_parties(cohort)
    # P and P' are each within the total distance of their ideal laws: delta grows by
    # (1 + e^epsilon) times it.
    distance = sum(parties * count * law.distance for law, count in draws)
    numerical = min(distance * (1.0 + math.exp(min(privacy.epsilon, 700.0))), 1.0)
    if claim == "enforced":
        numerical += PROTOCOL_FAILURE
    # A client's participation shows anyway: added or removed, its counts become zero.
    zeroed = privacy.unit == "client" and privacy.neighbours == "add-remove"
    neighbours = "zero-out" if zeroed else privacy.neighbours
    return PrivacyStatement(
        model="distributed-dp",
        unit=privacy.unit,
        neighbours=neighbours,
        epsilon=privacy.epsilon,
        delta=min((privacy.delta or 0.0) + numerical, 1.0),
        cohort=cohort,
        public_inputs=public_inputs,
        claim=claim,
    )
