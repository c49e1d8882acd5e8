"""Privacy models: their facts, words and noise, all on their classes; `SecureAggregation`."""

import math
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeGuard

import msgspec

from fedgauge.errors import PlanError, PrivacyWarning
from fedgauge.privacy.cohort import Cohort
from fedgauge.privacy.noise import ShareLaw
from fedgauge.privacy.oracles import Oracle

Claim = Literal["enforced", "simulated"]

PROTOCOL_FAILURE: Final = 2.0**-40  # chance that a secure sum shows more than the sum
LARGE_EPSILON: Final = 20.0  # above which nobody is protected


class PrivacyStatement(msgspec.Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """The claim of a result about the privacy of its data.

    `epsilon`, `delta`, `unit` and `neighbours` are None without differential privacy, `cohort`
    where nobody else must take part. `public_inputs` names the hints the plan was made from.
    `claim` is ``"enforced"`` only if a real protocol ran between the parties, else ``"simulated"``.
    `shares` are those of two rounds, of epsilon or of local reports; else empty.

    Examples
    --------
    >>> result = fg.evaluate({"a": ([0, 1, 1, 0], [0.2, 0.7, 0.9, 0.6])})
    >>> result.privacy.claim, result.privacy.epsilon
    ('simulated', None)
    """

    model: str
    unit: str | None
    neighbours: str | None
    epsilon: float | None
    delta: float | None
    cohort: Cohort | None
    public_inputs: tuple[str, ...]
    claim: Claim
    shares: tuple[float, ...] = ()


class Sensitivity(NamedTuple):
    """How far one unit can move all counts together, in the L1 and in the L2 norm."""

    l1: float
    l2: float


class UnitCap(NamedTuple):
    """Of each subject, or of the whole client, at most this many rows count."""

    unit: Literal["subject", "client"]
    rows: int


class Budget(NamedTuple):
    """What one evaluation promises to cost at most."""

    epsilon: float
    delta: float


class LevelNoise(NamedTuple):
    """Strength of the noise at each level sent, and on score sums (0 where there are none)."""

    levels: tuple[float, ...]
    sums: float


NO_NOISE: Final = LevelNoise((), 0.0)
NO_FLIPS: Final = "only LocalDP with unit='label' flips labels."
ALWAYS_UNPROTECTED: Final = (
    "Others see that a site takes part. A site can falsify the result by counting wrongly"
)

# Whom an officer asks about, and what is the same for each of them in every secure sum.
COORDINATOR: Final = "The coordinator"
ANY_SITE: Final = "Another site"
READER: Final = "A reader of the result"
ONLOOKER: Final = "Anyone who sees all messages"
NO_COLLUDERS: Final = "The plan does not guard against colluding sites, so no site joins it."
SEEN_OF_A_SUM: Final = (
    "The plan, the model where one is sent, who takes part and who drops out, and the sizes and "
    "times of messages. No counts, and not the sum: only the coordinator can open it."
)


class ReportNoise(NamedTuple):
    """The noise of reports at each level: a chance out of 2^64, and Hadamard response's blocks."""

    chances: tuple[int, ...]
    blocks: tuple[int, ...]


class PrivacyModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="model"):
    """The questions that every privacy model answers, in words and in noise.

    Models with counts answer :meth:`calibrate` to :meth:`sums_law`, models with reports
    :meth:`calibrate_reports` to :meth:`check_reports`, models that flip labels
    :meth:`calibrate_flips` and :meth:`check_flips`. No default goes without noise.
    """

    adds_noise: ClassVar[bool]  # so that the release can claim differential privacy
    kind: ClassVar[str]  # its name

    @property
    def sends_reports(self) -> bool:
        """Whether each row is sent by itself."""
        raise NotImplementedError

    @property
    def flips_labels(self) -> bool:
        """Whether labels are flipped before they are counted."""
        return False

    @property
    def protects_labels(self) -> bool:
        """Whether labels are what is protected, and all else about rows is known."""
        return False

    @property
    def noise(self) -> str | None:
        """The law of the noise on a sum, by name; None where none is added to one."""
        return None

    @property
    def needs_cohort(self) -> bool:
        """Whether the promise rests on others who take part."""
        return not (self.sends_reports or self.flips_labels)

    @property
    def name(self) -> str:
        """The model in plans, site files and results."""
        return tag_of(type(self))

    @property
    def title(self) -> str:
        """The model in words, with its epsilon."""
        budget = self.budget
        return self.kind if budget is None else f"{self.kind}, epsilon {budget.epsilon:g}"

    @property
    def budget(self) -> Budget | None:
        """Epsilon and delta of one evaluation; None where no privacy is promised."""
        raise NotImplementedError

    @property
    def unit_cap(self) -> UnitCap | None:
        """How many rows of a unit count; None where all do."""
        return None

    @property
    def promise(self) -> str:
        """What is promised, in words."""
        raise NotImplementedError

    @property
    def unprotected(self) -> str:
        """What the promise leaves out, in words."""
        raise NotImplementedError

    def learned(self, cohort: Cohort | None, min_cell: int) -> list[tuple[str, str]]:
        """Each party, and what it learns in the worst case, in words."""
        raise NotImplementedError

    def worked(self, delta: float | None, min_cell: int) -> tuple[str, str]:
        """An example in numbers, with its title; `delta` is all that a result may state."""
        raise NotImplementedError

    def calibrate(
        self,
        cohort: Cohort,
        levels: int,
        *,
        weights: Sequence[float] | None = None,
        score_sums: bool = False,
    ) -> LevelNoise:
        """The least noise on a sum that keeps the promise; `weights` splits it over levels."""
        raise NotImplementedError

    def check_noise(self, noise: LevelNoise, cohort: Cohort, levels: int, *, sums: bool) -> None:
        """Refuse noise on counts of so many levels, or on score `sums`, that is none of its own."""
        raise NotImplementedError

    def check_promise(self, noise: LevelNoise, cohort: Cohort) -> None:
        """Refuse noise on a sum that costs more than is promised."""
        raise NotImplementedError

    def laws(self, noise: LevelNoise, cohort: Cohort, shares: int) -> list[ShareLaw]:
        """The law of the sum of `shares` clients' noise at each level; empty without noise."""
        raise NotImplementedError

    def sums_law(
        self, noise: LevelNoise, steps: int, cohort: Cohort, shares: int
    ) -> ShareLaw | None:
        """The law of `shares` clients' noise on score sums; None without noise."""
        raise NotImplementedError

    def calibrate_reports(self, cells: Sequence[int]) -> ReportNoise:
        """The least noise of reports, about levels of so many cells, that keeps the promise."""
        raise PlanError(f"{self.kind} sends no reports. Use LocalDP.")

    def oracles(self, cells: Sequence[int], noise: ReportNoise) -> tuple[Oracle, ...]:
        """What randomises reports with noise such as a plan states; refused if none has it."""
        raise PlanError(f"{self.kind} sends no reports. Use LocalDP.")

    def check_reports(self, oracles: Sequence[Oracle]) -> None:
        """Refuse reports that cost more than is promised."""
        raise PlanError(f"{self.kind} sends no reports. Use LocalDP.")

    def calibrate_flips(self) -> int:
        """The least chance of a flipped label, out of 2^64, that keeps the promise."""
        raise PlanError(NO_FLIPS)

    def check_flips(self, chance: int) -> None:
        """Refuse flips that cost more than is promised."""
        raise PlanError(NO_FLIPS)

    def state(
        self,
        cohort: Cohort | None,
        *,
        draws: Sequence[tuple[ShareLaw, int]],
        claim: Claim,
        public_inputs: tuple[str, ...] = (),
    ) -> PrivacyStatement:
        """The privacy statement of a result; `draws` are laws of shares with their numbers."""
        raise NotImplementedError


class SecureAggregation(PrivacyModel, frozen=True, tag="secure-aggregation"):
    """Release the exact sum over the clients and nothing else.

    There is no differential privacy: the sum itself is public, and sums over cohorts that differ by
    one client reveal that client's histogram.

    Examples
    --------
    >>> result = fg.evaluate({"a": ([0, 1, 1, 0], [0.2, 0.7, 0.9, 0.6])})
    >>> result.privacy.model, result.privacy.epsilon
    ('secure-aggregation', None)
    """

    adds_noise: ClassVar[bool] = False
    sends_reports: ClassVar[bool] = False
    flips_labels: ClassVar[bool] = False
    needs_cohort: ClassVar[bool] = True
    unit_cap: ClassVar[None] = None
    kind: ClassVar[str] = "secure aggregation"

    @property
    def budget(self) -> None:
        """None: an exact sum promises no privacy."""

    @property
    def promise(self) -> str:
        """What is promised, in words."""
        return (
            "Nobody sees the counts of one site: only the sum over all sites is opened. The sum "
            "is exact: no random numbers hide a person in it (no differential privacy). It "
            "protects a person only where many share a range. Two sums that differ by one site, "
            "or by one person, show the difference. So a site's own file limits how many exact "
            "sums it joins, over which sites and on which data."
        )

    @property
    def unprotected(self) -> str:
        """What the promise leaves out, in words."""
        return (
            f"{ALWAYS_UNPROTECTED}. A person who is alone, or nearly so, in a range of the sum is "
            "not hidden"
        )

    def learned(self, cohort: Cohort | None, min_cell: int) -> list[tuple[str, str]]:
        """Each party, and what it learns in the worst case, in words."""
        assert cohort is not None  # noqa: S101  (a sum has one)
        least, colluding = cohort.min_survivors, cohort.max_colluding
        if least - colluding > 1:
            others = f"at least {least - colluding} of them. Not the counts of a single one"
        else:
            others = "which may be a single one. Sites refuse such a plan"
        site = "Nothing until there is a result. Then it can subtract its own counts from it"
        reader = "The same sum as the coordinator: this plan joins no small ranges."
        if min_cell:
            site += f", which can leave fewer than {min_cell} examples of the others in a range"
            reader = (
                "The sum after small ranges were joined: each holds no example of a class or at "
                f"least {min_cell}. Joined ranges show that some of them held fewer."
            )
        return [
            (
                COORDINATOR,
                f"The exact sum over at least {least} {'site' if least == 1 else 'sites'}: how "
                "many positive and how many negative examples of all of them lie in each range, a "
                "single one included. It does not see from which site they are. If it knows in "
                "which range one person's score lies, and finds one example there, it learns "
                "whether that person is positive.",
            ),
            (
                together(colluding),
                f"The exact sum over the other sites, {others}." if colluding else NO_COLLUDERS,
            ),
            (ANY_SITE, f"{site}."),
            (READER, reader),
            (ONLOOKER, SEEN_OF_A_SUM),
        ]

    def worked(self, delta: float | None, min_cell: int) -> tuple[str, str]:
        """What becomes of one example that is alone in its range."""
        del delta  # nothing is promised that could fail
        many = min_cell + 14
        text = f"Say one range holds 1 positive example and the next one {many}. "
        if min_cell:
            text += (
                f"The coordinator sees 1 and {many}. A reader sees {many + 1} in one wider range. "
                f"A site to which {many} of these belong subtracts them, and knows of the last. "
            )
        else:
            text += f"A reader of the result sees 1 and {many}. "
        text += (
            "If the same sum were taken again after one person more, the difference would be that "
            "person: the label, and the range of the score."
        )
        return "What this means for small groups", text

    def calibrate(
        self,
        cohort: Cohort,
        levels: int,
        *,
        weights: Sequence[float] | None = None,
        score_sums: bool = False,
    ) -> LevelNoise:
        """No noise."""
        return NO_NOISE

    def check_noise(self, noise: LevelNoise, cohort: Cohort, levels: int, *, sums: bool) -> None:
        """Refuse noise, since none is added."""
        if noise != NO_NOISE:
            raise PlanError("secure aggregation adds no noise. Use DistributedDP to add some.")

    def check_promise(self, noise: LevelNoise, cohort: Cohort) -> None:
        """There is no promise to keep."""

    def laws(self, noise: LevelNoise, cohort: Cohort, shares: int) -> list[ShareLaw]:
        """Empty: there is no noise."""
        return []

    def sums_law(self, noise: LevelNoise, steps: int, cohort: Cohort, shares: int) -> None:
        """None: there is no noise."""

    def state(
        self,
        cohort: Cohort | None,
        *,
        draws: Sequence[tuple[ShareLaw, int]],
        claim: Claim,
        public_inputs: tuple[str, ...] = (),
    ) -> PrivacyStatement:
        """An exact sum over a cohort, without epsilon."""
        return PrivacyStatement(self.name, None, None, None, None, cohort, public_inputs, claim)


def tag_of(model: type[PrivacyModel]) -> str:
    """The name of a privacy model in plans and site files."""
    return str(model.__struct_config__.tag)


def check_epsilon(epsilon: object) -> None:
    """Refuse what is no epsilon; warn of one that protects nobody."""
    if not is_number(epsilon) or not 0 < epsilon < math.inf:
        raise PlanError(f"epsilon must be a positive number, got {epsilon!r}.")
    if epsilon > LARGE_EPSILON:
        warnings.warn(
            f"epsilon {epsilon:g} protects nobody: 1 is usual, 10 is already weak.",
            PrivacyWarning,
            stacklevel=3,
        )


def together(colluding: int) -> str:
    """The coordinator and the sites that a plan lets collude, in words."""
    sites = "site" if colluding == 1 else "sites"
    return f"The coordinator with {colluding or 'any'} colluding {sites}"


def fold(epsilon: float) -> str:
    """How much an epsilon lets a chance grow, as people read it."""
    return f"{math.exp(min(epsilon, 100.0)):,.2f}"


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value is a number, which a truth value is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


_PRIORS: Final = (0.1, 0.5)
_COUNTABLE: Final = 1e-15  # below, nobody reads the digits, and a float does not hold them


def strongest_belief(prior: float, epsilon: float) -> float:
    """The largest belief after a result: its odds grow at most e^epsilon-fold.

    Examples
    --------
    >>> round(strongest_belief(0.5, 1.0), 4), strongest_belief(0.1, 1000.0)
    (0.7311, 1.0)
    """
    return prior / (prior + (1 - prior) * math.exp(-epsilon))


def percent(share: float) -> str:
    """A share in percent, rounded up to a tenth."""
    tenths = math.ceil(share * 1000 - 1e-9)
    return f"{tenths / 10:g}%"


def beliefs(epsilon: float) -> str:
    """How far a result can raise beliefs, in words."""
    first, second = (f"at most {percent(strongest_belief(prior, epsilon))}" for prior in _PRIORS)
    return f"{_PRIORS[0]:.0%} becomes {first}, and {_PRIORS[1]:.0%} {second}"


def chance(delta: float) -> str:
    """A small probability as a chance, to two digits.

    Examples
    --------
    >>> chance(1e-6), chance(2.0**-40), chance(8e-35)
    ('1 in 1,000,000', '1 in 1,100,000,000,000', '1 in 10^34')
    """
    if delta < _COUNTABLE:
        return f"1 in 10^{math.floor(-math.log10(delta))}"  # no less than it is
    return f"1 in {int(float(f'{1 / delta:.1e}')):,}"


def delta_of(steps: int, epsilon: float, delta: float) -> float:
    """The delta of several steps between neighbours, each of (epsilon, delta)."""
    # docs/privacy.md, "Composition": delta (1 + e^epsilon + ... + e^((steps-1) epsilon))
    growth = sum(math.exp(min(step * epsilon, 700.0)) for step in range(steps))
    return min(delta * growth, 1.0)


ANY_RANGES: Final = "That holds whatever ranges the scorer put the rows into"
ROSTER: Final = (
    "Earlier, a list of the site's examples left, without labels: their ids or, where the site "
    "scored them itself, their scores, sorted."
)
KNOWN: Final = (
    "The scorer knows how many examples each site has in each range, and an example that is not "
    "positive is negative"
)
SHOWN: Final = (
    "where each range of scores begins and ends, and exactly how many examples all sites together "
    "have in it"
)
ALL_NOISE: Final = (
    "Before sending, the site adds random whole numbers to {}, drawn from its operating system's "
    "secure generator: all of the noise itself, whatever others do."
)
SCORER: Final = "The coordinator, who scored the examples"
ANOTHER: Final = "Another site with labels"


def leaves(numbers: int, ranges: int, *, larger: bool) -> str:
    """What a label party sends."""
    text = (
        f"{numbers:,} whole numbers, once: how many of the site's examples in each of {ranges:,} "
        "ranges of the score are positive"
    )
    if larger:
        text += ", and in larger ranges made of these"
    return (
        f"{text}. The scorer told the site which range each example is in. No row, score, label, "
        f"name or identifier leaves with these numbers. {ROSTER}"
    )


def scorer_learns(least: int, allowed: str) -> str:
    """What the party learns that scored, and put examples into ranges as it liked."""
    return (
        "Which examples each site has labels for, from the lists. Then the sum over at least "
        f"{least} sites, blurred by their random numbers. {allowed}, as shown below, whatever "
        "ranges it chose: an approved but hostile coordinator that puts an example into a range "
        "of its own learns no more. The promise is for a label, not for a site: ranges that hold "
        "the examples of one site alone show how many of these are positive, blurred."
    )


def party_learns(told: str) -> str:
    """What a label party learns of the others, and of scores."""
    return (
        "For the examples on its list: whether they were scored, and the range that each is in, "
        "so roughly how they rank. Not where ranges begin and end, and not the scores, unless it "
        "scored them itself. Nobody checks that it has labels for what it lists. Nothing of the "
        f"others until there is a result. {told}"
    )


def reader_learns(allowed: str) -> str:
    """What whoever reads the result learns."""
    return (
        f"The same blurred sum; {SHOWN}. {allowed}, whatever else the reader knows. What examples "
        "score, and how many there are, is not hidden."
    )


def onlooker_learns(told: str) -> str:
    """What whoever sees all messages learns."""
    return (
        f"{told} Anyone who also sees the lists and the files of ranges learns which examples "
        "each site has, and their ranges; no label."
    )


def learned_alone(allowed: str) -> list[tuple[str, str]]:
    """Each party, and what it learns where every site adds all of the noise itself."""
    return [
        (
            SCORER,
            "Which examples each site has labels for, from the lists. Then the blurred numbers of "
            f"each site. {allowed}, as shown below, whatever ranges or places it chose.",
        ),
        (together(0), "The same of all other sites: the noise of each is its own."),
        (
            ANOTHER,
            "For the examples on its list: whether they were scored, and the range or place of "
            "each. For the others: what is in the result.",
        ),
        (READER, f"What follows from all blurred numbers. {allowed}, whatever else is known."),
        (ONLOOKER, onlooker_learns("As much as the coordinator: all noise is in the numbers.")),
    ]
