"""`LocalDP`: every row is randomised where it is held. Also randomized response of labels."""

import sys
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, Literal, TypeVar, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedgauge.arrays import Floats
from fedgauge.errors import PlanError
from fedgauge.privacy.cohort import Cohort
from fedgauge.privacy.keystream import WordSource
from fedgauge.privacy.models import (
    ANY_SITE,
    COORDINATOR,
    NO_FLIPS,
    ONLOOKER,
    READER,
    Budget,
    Claim,
    PrivacyModel,
    PrivacyStatement,
    ReportNoise,
    beliefs,
    check_epsilon,
    fold,
    together,
)
from fedgauge.privacy.noise import ShareLaw
from fedgauge.privacy.oracles import (
    KEEP,
    WHOLE,
    HadamardResponse,
    Oracle,
    UnaryEncoding,
    draw_bits,
    keeps,
    least,
    odds,
)

Flags = NDArray[np.bool_]
Counts = NDArray[np.int64]


def least_chance(epsilon: float) -> int:
    """Least chance of a flip, out of 2^64, that keeps epsilon: 1 / (e^epsilon + 1), rounded up."""
    return least(epsilon, lambda power: 1 / (power + 1), odds)


def keeps_epsilon(chance: int, epsilon: float) -> bool:
    """Whether flips of this chance tell no more of a label than epsilon allows."""
    return keeps(odds(chance), epsilon)


def flip(labels: Flags, chance: int, source: WordSource) -> Flags:
    """The labels, each the other one with this chance out of 2^64, exactly."""
    return labels ^ draw_bits(source, chance, len(labels))


def debias(told: Counts, totals: Counts, chance: int) -> Floats:
    """Unbiased counts of positives, where so many of `totals` labels are told to be positive."""
    rho, contrast = _rates(chance)
    positives: Floats = (told - rho * totals) / contrast
    return positives


def retold(counts: Floats, chance: int) -> Floats:
    """Labels reported for each class, from the unbiased counts: the inverse of `debias`.

    Examples
    --------
    >>> told, totals, chance = np.array([3, 7]), np.array([10, 9]), least_chance(1.0)
    >>> positives = debias(told, totals, chance)
    >>> retold(np.array([totals - positives, positives]), chance).round(9).tolist()
    [[7.0, 2.0], [3.0, 7.0]]
    """
    rho, contrast = _rates(chance)
    told: Floats = counts * contrast + rho * counts.sum(axis=0)
    return told


def variances(totals: Floats, chance: int) -> Floats:
    """Variance of each unbiased count: it is the same whatever the labels are."""
    rho, contrast = _rates(chance)
    by_bin: Floats = totals * (rho * (1.0 - rho) / contrast**2)
    return by_bin


def _rates(chance: int) -> tuple[float, float]:
    """rho, and 1 - 2 rho, which is divided by: rounded once, also where rho is nearly a half."""
    return chance / WHOLE, (WHOLE - 2 * chance) / WHOLE


OracleKind = Literal["oue", "hadamard"]
LocalUnit = Literal["example", "label"]
_Made = TypeVar("_Made")

_DEFAULT_ORACLE: Final[OracleKind] = "oue"
_LEAST_EPSILON: Final = 1e-6  # of a local report: a billion billion of them would show little
_NONE_HIDES: Final = "The same. No site hides another, so none can expose another."
_ONLY_RESULTS: Final = "Nothing until there is a result. Then as much as its readers."


class LocalDP(PrivacyModel, frozen=True, tag="local-dp", omit_defaults=True):
    """Differential privacy for every row by itself, without trust in anybody's sum.

    Each row is randomised where it is held and sent as one report. Neighbours replace a row by any
    other; the number of reports is public. Far more noise than under distributed DP: errors fall
    with the square root of the number of reports.

    With ``unit="label"`` each label is flipped once, with a chance of 1 / (e^epsilon + 1), and a
    party sends its positives by bin after the flips. See :func:`fedgauge.evaluate_vertical`.

    Parameters
    ----------
    epsilon
        The privacy budget of one report, or of one flip. A further report or flip of the same row
        pays again; kept flips serve any number of evaluations.
    oracle
        ``"oue"``, one bit for each cell of the histogram, or ``"hadamard"``, one to three bytes,
        mostly with more noise. Labels have none.
    unit
        ``"example"``, a row, or ``"label"``, a label apart from its score.

    Examples
    --------
    >>> LocalDP(1.0).oracle
    'oue'
    """

    epsilon: float
    # Values from factories are always written; the unit is left out where it is the usual one.
    oracle: OracleKind = msgspec.field(default_factory=lambda: _DEFAULT_ORACLE)
    unit: LocalUnit = "example"

    adds_noise: ClassVar[bool] = True
    kind: ClassVar[str] = "local DP"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if self.epsilon < _LEAST_EPSILON:
            raise PlanError(
                f"a local report with epsilon below {_LEAST_EPSILON:g} says nothing. Raise it."
            )
        # One form for equal plans: 1 and 1.0 would digest differently.
        msgspec.structs.force_setattr(self, "epsilon", float(self.epsilon))
        if self.oracle not in get_args(OracleKind):
            choices = ", ".join(get_args(OracleKind))
            raise PlanError(f"oracle must be one of {choices}, got {self.oracle!r}.")
        if self.unit not in get_args(LocalUnit):
            choices = ", ".join(get_args(LocalUnit))
            raise PlanError(
                f"under local DP unit must be one of {choices}, got {self.unit!r}. Each row is "
                "protected by itself, and nothing larger."
            )
        # Defaults are left out of bytes where they are the very object: also one that was pickled.
        msgspec.structs.force_setattr(self, "unit", sys.intern(self.unit))
        if self.unit == "label" and self.oracle != _DEFAULT_ORACLE:
            raise PlanError("a label is flipped or not, and has no oracle. Leave oracle out.")

    @property
    def sends_reports(self) -> bool:
        """Whether each row is sent by itself; of flipped labels the positive ones are counted."""
        return not self.flips_labels

    @property
    def flips_labels(self) -> bool:
        """Whether labels are flipped, and counted then."""
        return self.unit == "label"

    @property
    def protects_labels(self) -> bool:
        """Whether labels are what is protected."""
        return self.flips_labels

    @property
    def budget(self) -> Budget:
        """The chances are exact, so nothing escapes epsilon."""
        return Budget(self.epsilon, 0.0)

    def calibrate_reports(self, cells: Sequence[int]) -> ReportNoise:
        """The least noise that keeps the promise."""
        if self.oracle == "oue":
            unary = _of_each(UnaryEncoding.calibrated, self.epsilon, cells)
            return ReportNoise(tuple(oracle.raised for oracle in unary), ())
        hadamard = _of_each(HadamardResponse.calibrated, self.epsilon, cells)
        blanks = tuple(oracle.blank for oracle in hadamard)
        return ReportNoise(blanks, tuple(oracle.blocks for oracle in hadamard))

    def oracles(self, cells: Sequence[int], noise: ReportNoise) -> tuple[Oracle, ...]:
        """The oracle of each level of each block; refuses parameters that none has."""
        blocks = noise.blocks if self.oracle == "hadamard" else noise.chances
        most = KEEP if self.oracle == "oue" else WHOLE
        fits = len(noise.chances) == len(blocks) == len(cells)
        # Rounded, too: where that gives 1, estimates have no variance that a float can say.
        fits = fits and all(chance > 0 and chance / most < 1 for chance in noise.chances)
        if self.oracle == "oue":
            fits = fits and not noise.blocks
        else:
            fits = fits and all(
                0 < count <= cell and count.bit_count() == 1
                for count, cell in zip(blocks, cells, strict=True)
            )
        if not fits:
            raise PlanError(
                f"the reports of this plan are not such as {self.oracle} makes. Make the plan "
                "again with EvaluationPlan.for_reports."
            )
        if self.oracle == "oue":
            return tuple(map(UnaryEncoding, cells, noise.chances))
        return tuple(map(HadamardResponse, cells, noise.chances, noise.blocks))

    def check_reports(self, oracles: Sequence[Oracle]) -> None:
        """Refuse oracles that tell more than is promised; the level and the block tell nothing."""
        ratios = {oracle.worst_ratio for oracle in oracles}
        if not all(keeps(ratio, self.epsilon) for ratio in ratios):
            raise PlanError(
                f"the plan promises epsilon {self.epsilon:g} but its reports cost more. "
                "Make the plan again with EvaluationPlan.for_reports."
            )

    def calibrate_flips(self) -> int:
        """The least chance of a flip that keeps the promise."""
        if not self.flips_labels:
            raise PlanError(NO_FLIPS)
        return least_chance(self.epsilon)

    def check_flips(self, chance: int) -> None:
        """Refuse flips that tell more of a label than is promised."""
        if not (self.flips_labels and keeps_epsilon(chance, self.epsilon)):
            raise PlanError(
                f"the plan promises epsilon {self.epsilon:g} but its flips cost more. Make the "
                "plan again with EvaluationPlan.for_flips."
            )

    def state(
        self,
        cohort: Cohort | None,
        *,
        draws: Sequence[tuple[ShareLaw, int]],  # noqa: ARG002
        claim: Claim,
        public_inputs: tuple[str, ...] = (),
    ) -> PrivacyStatement:
        """What a result may claim: no protocol runs that could fail."""
        public = (*public_inputs, "number of reports") if self.sends_reports else public_inputs
        return PrivacyStatement(
            model=self.name,
            unit=self.unit,
            neighbours="flip" if self.flips_labels else "replace-one",
            epsilon=self.epsilon,
            delta=0.0,
            cohort=cohort,
            public_inputs=public,
            claim=claim,
        )

    @property
    def promise(self) -> str:
        """What is promised, in words."""
        if self.flips_labels:
            return (
                f"Differential privacy with epsilon {self.epsilon:g} for the label of one row, "
                "against every reader of what its party sends. Whatever else is known, the "
                f"chance of all that is sent would change at most {fold(self.epsilon)}-fold if "
                "the label were the other one. Labels are flipped once. More evaluations with "
                "the same flips cost nothing more; flipping again costs epsilon again."
            )
        return (
            f"Differential privacy with epsilon {self.epsilon:g} for one row of data, against "
            "every reader of its report. Whatever else is known, the chance of any report would "
            f"change at most {fold(self.epsilon)}-fold if the row were replaced by another, or "
            "had another label. A row that is reported again pays its epsilon again."
        )

    @property
    def unprotected(self) -> str:
        """What the promise leaves out, in words."""
        if self.flips_labels:
            return (
                "Others see that a party takes part. A party can falsify the result. The scorer "
                "knows which rows there are and what they score. A person with many rows is "
                "protected label by label, not as a whole"
            )
        return (
            "Others see that a site takes part, and with how many rows. A site can falsify the "
            "result. A person with many rows is protected row by row, not as a whole"
        )

    def learned(self, cohort: Cohort | None, min_cell: int) -> list[tuple[str, str]]:
        """Each party, and what it learns in the worst case, in words."""
        del cohort, min_cell  # there are none
        if self.flips_labels:
            return self._learned_of_labels()
        allowed = f"It tells no more of one row than epsilon {self.epsilon:g} allows"
        return [
            (
                COORDINATOR,
                "Every report, and which site sent it, so how many rows each site has. A report "
                f"is blurred. {allowed}, as shown below.",
            ),
            (together(0), _NONE_HIDES),
            (ANY_SITE, _ONLY_RESULTS),
            (READER, f"Estimates made of all reports. {allowed}, whatever else the reader knows."),
            (
                ONLOOKER,
                "As much as the coordinator: reports are not sealed, since each is safe to show "
                "by itself.",
            ),
        ]

    def _learned_of_labels(self) -> list[tuple[str, str]]:
        allowed = f"It tells no more of the label of one row than epsilon {self.epsilon:g} allows"
        return [
            (
                COORDINATOR,
                "How many labels of each site are positive in each range after some were flipped; "
                f"of a row that is alone there, its label as flipped. {allowed}, as shown below.",
            ),
            (together(0), _NONE_HIDES),
            (ANY_SITE, f"The ranges that its own rows are in. {_ONLY_RESULTS}"),
            (READER, f"Estimates made of all counts. {allowed}, whatever else the reader knows."),
            (ONLOOKER, "As much as the coordinator: counts of flipped labels are safe to show."),
        ]

    def worked(self, delta: float | None, min_cell: int) -> tuple[str, str]:
        """What a report, or a flipped label, can make of somebody's belief."""
        del delta, min_cell  # neither plays a part
        read = "its label as flipped" if self.flips_labels else "its report"
        said = "the labels of 3 rows" if self.flips_labels else "the 3 rows"
        often = ", however many evaluations use the same flips" if self.flips_labels else ""
        return (
            f"What epsilon {self.epsilon:g} means",
            "Say somebody is 10% sure, or 50% sure, that a certain row is positive. After "
            f"reading {read}, {beliefs(self.epsilon)}. For what {said} of one person say "
            f"together, {beliefs(3 * self.epsilon)}. These limits never fail (delta is "
            f"0){often}.",
        )


def _of_each(make: Callable[..., _Made], epsilon: float, cells: Sequence[int]) -> list[_Made]:
    """An oracle for each number of cells, those of equal ones made once: many blocks are alike."""
    made = {count: make(epsilon, cells=count) for count in {*cells}}
    return [made[count] for count in cells]
