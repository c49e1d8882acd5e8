"""Distributed differential privacy: every client adds a share of the noise to its counts."""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import ClassVar, Final, Literal, assert_never, get_args

import msgspec

from fedgauge.errors import PlanError
from fedgauge.privacy import accounting, models
from fedgauge.privacy.cohort import Cohort
from fedgauge.privacy.models import (
    ALWAYS_UNPROTECTED,
    ANY_SITE,
    COORDINATOR,
    NO_COLLUDERS,
    ONLOOKER,
    PROTOCOL_FAILURE,
    READER,
    SEEN_OF_A_SUM,
    Budget,
    Claim,
    LevelNoise,
    PrivacyModel,
    PrivacyStatement,
    Sensitivity,
    UnitCap,
    beliefs,
    chance,
    check_epsilon,
    delta_of,
    fold,
    is_number,
    together,
)
from fedgauge.privacy.noise import TOO_WIDE, Noise, ShareLaw, at_most, honest_parties, table_values

Unit = Literal["example", "subject", "client", "label"]
Neighbours = Literal["add-remove", "replace-one", "flip"]

# Of epsilon, for score sums where they are sent. Curves come from the counts and need most of it:
# noise a quarter stronger is hardly seen in them.
SUMS_SHARE: Final = Fraction(1, 5)
_MOST_PER_UNIT: Final = 1_000_000  # noise for more hides everything

# Of all tables that a plan's levels need, one for each strength of noise: a second or two of work.
_MOST_VALUES: Final[Mapping[Noise, int]] = {
    "polya": 1 << 19,
    "skellam": 1 << 17,
    "discrete-gaussian": 1 << 16,
}

_WHOSE: Final = {
    "example": "one row of data",
    "subject": "all rows of one person at one site",
    "client": "all data of one site",
    "label": "the label of one row",
}
_CHANGED: Final = {
    "add-remove": "were there or not",
    "replace-one": "were replaced by others, or had other labels",
    "flip": "were the other one",
}
_COUNTED: Final = {
    "example": "a certain row is among those counted",
    "subject": "a certain person is among those counted at a site",
    "client": "the rows of a certain site were counted",
    "label": "a certain row is positive",
}
_OF_THREE: Final = {
    "example": "For a person with 3 rows, there or not",
    "label": "For what the labels of 3 rows of one person say together",
}
_BEYOND: Final = {
    "example": ". A person with many rows is protected row by row, not as a whole",
    "subject": ". A person with rows at two sites is protected at each, not over both",
    "client": "",
    "label": (
        ". The scorer knows which examples there are, their scores and who has their labels, and "
        "can falsify curves by putting examples into wrong ranges. A person with many examples is "
        "protected label by label, not as a whole"
    ),
}


class DistributedDP(PrivacyModel, frozen=True, tag="distributed-dp"):
    """Differential privacy by noise that every client adds a share of.

    Parameters
    ----------
    epsilon
        The privacy budget of the whole evaluation, over all levels and classes.
    delta
        The probability that may escape epsilon; for skellam and discrete-gaussian only.
    noise
        ``"polya"`` shares add up to discrete Laplace noise, ``"skellam"`` shares to a difference of
        Poissons, ``"discrete-gaussian"`` shares nearly to a discrete Gaussian.
    unit
        Whom it protects: one ``"example"`` (row); one ``"subject"``, all rows of a person at one
        client; a whole ``"client"``; or one ``"label"``, if everything else about rows is known.
    neighbours
        ``"add-remove"``: the unit is there or not (a client's counts are there or zero; taking part
        is not hidden). ``"replace-one"``: its rows are swapped for others, which also covers a
        flipped label. ``"flip"``: a label is the other one; only for labels.
    max_per_unit
        Rows of one subject or client that count; the client drops further rows.

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

    adds_noise: ClassVar[bool] = True
    sends_reports: ClassVar[bool] = False
    kind: ClassVar[str] = "distributed DP"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        for name, value, choices in (
            ("noise", self.noise, get_args(Noise)),
            ("unit", self.unit, get_args(Unit)),
            ("neighbours", self.neighbours, get_args(Neighbours)),
        ):
            if value not in choices:
                raise PlanError(f"{name} must be one of {', '.join(choices)}, got {value!r}.")
        self._check_delta()
        # One form for equal plans: 1 and 1.0 would digest differently, and nobody could read 1.
        msgspec.structs.force_setattr(self, "epsilon", float(self.epsilon))
        if self.delta is not None:
            msgspec.structs.force_setattr(self, "delta", float(self.delta))
        if isinstance(self.max_per_unit, bool) or not isinstance(self.max_per_unit, int):
            raise PlanError("max_per_unit must be a whole number.")
        if not 1 <= self.max_per_unit <= _MOST_PER_UNIT:
            raise PlanError(f"max_per_unit must lie between 1 and {_MOST_PER_UNIT:,}.")
        if self.unit in ("example", "label") and self.max_per_unit != 1:
            what = {"example": "an example", "label": "a label"}[self.unit]
            raise PlanError(f"{what} is one row: max_per_unit is for subjects and clients.")
        if (self.unit == "label") != (self.neighbours == "flip"):
            raise PlanError(
                "a label flips: unit='label' goes with neighbours='flip', and no other."
            )

    def _check_delta(self) -> None:
        if self.noise == "polya":
            if self.delta is not None:
                raise PlanError(
                    "polya noise is purely epsilon-private and takes no delta. Leave it out, or "
                    "use noise='skellam', which needs less noise for a small delta."
                )
        elif not is_number(self.delta) or not 0 < self.delta < 1:
            raise PlanError(
                f"{self.noise} noise needs a delta between 0 and 1, well below 1 over the number "
                "of examples, e.g. 1e-6."
            )

    @property
    def protects_labels(self) -> bool:
        """Whether labels are what is protected."""
        return self.unit == "label"

    @property
    def budget(self) -> Budget:
        """Epsilon, and the delta asked for; that of rounding comes on top (:meth:`state`)."""
        return Budget(self.epsilon, self.delta or 0.0)

    @property
    def unit_cap(self) -> UnitCap | None:
        """What the sensitivity of a subject or client rests on."""
        if self.unit == "example" or self.unit == "label":
            return None
        return UnitCap(self.unit, self.max_per_unit)

    @property
    def moves(self) -> int:
        """Groups of rows that change between neighbours: 2 if a unit is replaced, else 1."""
        return 2 if self.neighbours == "replace-one" else 1

    @property
    def level_sensitivity(self) -> int:
        """Counts that one unit can change at one level; replacing a row changes two of them."""
        return self.moves * self.max_per_unit

    def sensitivity(self, levels: int) -> Sensitivity:
        """How far one unit can move all counts of a tree with `levels` levels sent."""
        return Sensitivity(
            l1=float(levels * self.level_sensitivity),
            l2=math.sqrt(levels * self.moves) * self.max_per_unit,
        )

    def calibrate(
        self,
        cohort: Cohort,
        levels: int,
        *,
        weights: Sequence[float] | None = None,
        score_sums: bool = False,
    ) -> LevelNoise:
        """The least noise that keeps the promise; `weights` splits polya's budget over levels."""
        if score_sums:
            self.require_polya()
        parties, (epsilon, delta) = honest_parties(cohort), self.budget
        cap, moves = self.max_per_unit, self.moves
        if self.noise != "polya" and weights is not None:
            raise PlanError(
                "only polya noise takes weights, which two rounds have too; the others use the "
                "same at every level. Use noise='polya'."
            )
        match self.noise:
            case "polya":
                return self._split(levels, weights, score_sums=score_sums)
            case "skellam":
                each = accounting.calibrate_skellam(
                    epsilon, delta, levels=levels, cap=cap, moves=moves
                )
            case "discrete-gaussian":
                each = accounting.calibrate_gaussian(
                    epsilon, delta, levels=levels, parties=parties, cap=cap, moves=moves
                )
            case _:
                assert_never(self.noise)
        return LevelNoise((each,) * levels, 0.0)

    def _split(
        self, levels: int, weights: Sequence[float] | None, *, score_sums: bool
    ) -> LevelNoise:
        """Polya's parameters are budgets, so they are parts of epsilon."""
        parts = [1.0] * levels if weights is None else list(weights)
        if len(parts) != levels or not all(0 < part < math.inf for part in parts):
            raise PlanError(f"weights must be {levels} positive numbers, one for each level.")
        exact = [Fraction(part) for part in parts]
        budget = Fraction(self.epsilon) * (1 - SUMS_SHARE if score_sums else 1)
        noise = tuple(at_most(budget * part / sum(exact)) for part in exact)
        left = Fraction(self.epsilon) - sum(map(Fraction, noise))
        return LevelNoise(noise, at_most(left) if score_sums else 0.0)

    def require_polya(self) -> None:
        """Refuse noise that is accounted for on counts alone, where sums are to be sent."""
        if self.noise != "polya":
            raise PlanError(
                f"{self.noise} noise is for counts alone. Use noise='polya', or leave the score "
                "sums out."
            )

    def check_noise(self, noise: LevelNoise, cohort: Cohort, levels: int, *, sums: bool) -> None:
        """Refuse noise that is not on every level, or on sums."""
        if len(noise.levels) != levels or not all(0 < n < math.inf for n in noise.levels):
            raise PlanError("under distributed DP a plan has positive noise for every level.")
        honest_parties(cohort)
        if sums:
            self.require_polya()
            if not 0 < noise.sums < math.inf:
                raise PlanError("under distributed DP a plan has positive noise for score sums.")

    def check_promise(self, noise: LevelNoise, cohort: Cohort) -> None:
        """Refuse noise that costs more than is promised."""
        if not self._keeps(noise, honest_parties(cohort)):
            raise PlanError(
                f"the plan promises epsilon {self.epsilon:g} but its noise costs more. "
                "Make the plan again with EvaluationPlan.for_histogram."
            )

    def _keeps(self, noise: LevelNoise, parties: int) -> bool:
        cap, moves = self.max_per_unit, self.moves
        match self.noise:
            case "polya":
                return sum(map(Fraction, (*noise.levels, noise.sums))) <= Fraction(self.epsilon)
            case "skellam":
                delta = accounting.skellam_delta(
                    self.epsilon, means=noise.levels, cap=cap, moves=moves
                )
            case "discrete-gaussian":
                delta = accounting.gaussian_delta(
                    self.epsilon, sigma2s=noise.levels, parties=parties, cap=cap, moves=moves
                )
            case _:
                assert_never(self.noise)
        return delta <= self.budget.delta

    def laws(self, noise: LevelNoise, cohort: Cohort, shares: int) -> list[ShareLaw]:
        """The law of the sum of `shares` clients' noise at each level."""
        parties, reach = honest_parties(cohort), self.level_sensitivity
        self._check_width(noise.levels, parties)
        return [
            ShareLaw(self.noise, parameter, parties=parties, shares=shares, sensitivity=reach)
            for parameter in noise.levels
        ]

    def _check_width(self, parameters: Sequence[float], parties: int) -> None:
        """Refuse noise whose tables, one for each strength, take more than a second or two."""
        values = sum(
            table_values(self.noise, each, parties=parties, sensitivity=self.level_sensitivity)
            for each in set(parameters)
        )
        if values > _MOST_VALUES[self.noise]:
            raise PlanError(TOO_WIDE)

    def sums_law(
        self, noise: LevelNoise, steps: int, cohort: Cohort, shares: int
    ) -> ShareLaw | None:
        """The law of `shares` clients' noise on score sums of so many steps to a bin."""
        parties = honest_parties(cohort)
        # A row moves one sum by at most all steps, where it moves one count by 1.
        reach = steps * self.level_sensitivity
        try:
            return ShareLaw(
                self.noise, noise.sums, parties=parties, shares=shares, sensitivity=reach
            )
        except PlanError:
            raise PlanError(
                "the noise of score sums is too wide to be drawn exactly. Raise epsilon, or leave "
                "the score sums out."
            ) from None

    def state(
        self,
        cohort: Cohort | None,
        *,
        draws: Sequence[tuple[ShareLaw, int]],
        claim: Claim,
        public_inputs: tuple[str, ...] = (),
    ) -> PrivacyStatement:
        """The privacy statement of a result.

        Delta includes the distance of the laws' tables from the ideal ones and, after a real
        protocol, the chance that its graph of neighbours fails to protect.
        """
        if cohort is None:
            raise PlanError("noise comes from a cohort: say who must take part.")
        parties = honest_parties(cohort)
        # P and P' are each within the total distance of their ideal laws: delta grows by
        # (1 + e^epsilon) times it.
        distance = math.fsum(parties * count * law.distance for law, count in draws)
        numerical = min(distance * (1.0 + _portable_exp(min(self.epsilon, 700.0))), 1.0)
        if claim == "enforced" and cohort.min_survivors > 1:  # alone nobody runs a protocol
            numerical += PROTOCOL_FAILURE
        # A client's participation shows anyway: added or removed, its counts become zero.
        zeroed = self.unit == "client" and self.neighbours == "add-remove"
        return PrivacyStatement(
            model=self.name,
            unit=self.unit,
            neighbours="zero-out" if zeroed else self.neighbours,
            epsilon=self.epsilon,
            delta=min(self.budget.delta + numerical, 1.0),
            cohort=cohort,
            public_inputs=public_inputs,
            claim=claim,
        )

    @property
    def promise(self) -> str:
        """What is promised, in words."""
        text = (
            f"Differential privacy with epsilon {self.epsilon:g}. Whatever else is known, the "
            f"chance of any result would change at most {fold(self.epsilon)}-fold if "
            f"{_WHOSE[self.unit]} {_CHANGED[self.neighbours]}"
        )
        if self.delta:
            text += f", but for a chance of {chance(self.delta)} (delta)"
        if self.protects_labels:
            text += f". {models.ANY_RANGES}"
        return (
            f"{text}. The promise is for this one evaluation. Each further one adds its own "
            "epsilon."
        )

    @property
    def unprotected(self) -> str:
        """What the promise leaves out, in words."""
        return ALWAYS_UNPROTECTED + _BEYOND[self.unit]

    def learned(self, cohort: Cohort | None, min_cell: int) -> list[tuple[str, str]]:
        """Each party, and what it learns in the worst case, in words."""
        assert cohort is not None  # noqa: S101  (a sum has one)
        del min_cell  # noise hides small cells
        least, colluding = cohort.min_survivors, cohort.max_colluding
        allowed = f"It tells no more of {_WHOSE[self.unit]} than epsilon {self.epsilon:g} allows"
        if least == 1 and self.protects_labels:
            return models.learned_alone(allowed)
        colluders = (
            "The same. They can subtract their own counts and random numbers from the sum. Those "
            f"of the others, at least {least - colluding}, keep epsilon {self.epsilon:g}. With "
            "more colluding sites nothing is promised."
        )
        site = (
            "Then as much as its readers. The noise is large enough even if the site subtracts "
            "its own numbers."
            if colluding
            else NO_COLLUDERS
        )
        if self.protects_labels:
            return [
                (models.SCORER, models.scorer_learns(least, allowed)),
                (together(colluding), colluders if colluding else NO_COLLUDERS),
                (models.ANOTHER, models.party_learns(site)),
                (READER, models.reader_learns(allowed)),
                (ONLOOKER, models.onlooker_learns(SEEN_OF_A_SUM)),
            ]
        return [
            (
                COORDINATOR,
                f"The sum over at least {least} {'site' if least == 1 else 'sites'}, blurred by "
                f"their random numbers, not the counts of one site. {allowed}, as shown below.",
            ),
            (together(colluding), colluders if colluding else NO_COLLUDERS),
            (ANY_SITE, f"Nothing until there is a result. {site}" if colluding else NO_COLLUDERS),
            (READER, f"The same blurred sum. {allowed}, whatever else the reader knows."),
            (ONLOOKER, SEEN_OF_A_SUM),
        ]

    def worked(self, delta: float | None, min_cell: int) -> tuple[str, str]:
        """What a result can make of somebody's belief."""
        del min_cell
        steps = 1
        text = (
            f"Say somebody is 10% sure, or 50% sure, that {_COUNTED[self.unit]}. "
            f"After the result {beliefs(self.epsilon)}. "
        )
        if self.neighbours == "add-remove":
            steps = 2
            text += (
                "Somebody who knows that already may ask what the data say, such as a label. "
                "Another label is two changes, something taken out and something put in, so "
                f"{beliefs(2 * self.epsilon)}. "
            )
        elif not self.protects_labels:
            text += "The same holds for what the data say, such as a label. "
        if self.unit in _OF_THREE:
            steps = 3
            text += f"{_OF_THREE[self.unit]}, {beliefs(3 * self.epsilon)}. "
        assert delta is not None  # noqa: S101  (noise states one)
        title = f"What epsilon {self.epsilon:g} means"
        if not delta:  # as of two noisy numbers, whose noise is drawn exactly
            return title, f"{text}These limits never fail (delta is 0)."
        text += f"The first limit fails with a chance of at most about {chance(delta)} (delta)"
        if steps > 1:
            all_of_them = chance(delta_of(steps, self.epsilon, delta))
            text += f", the others with at most about {all_of_them}"
        text += "."
        return title, text


def _portable_exp(number: float) -> float:
    """To the last digit the same on all machines, as `math.exp` is not: approvals sign delta."""
    import mpmath  # only who draws noise waits for it

    return float(mpmath.exp(number))
