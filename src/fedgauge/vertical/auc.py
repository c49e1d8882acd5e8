"""The AUC alone: ranks, the mechanisms that send it, their noise, and `LabelAuc`."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedgauge import _html
from fedgauge.arrays import Floats, Indices
from fedgauge.errors import InputError, NoSignal, PlanError, RecordError, located
from fedgauge.escaping import in_one_line
from fedgauge.estimation.counts import SIGNAL
from fedgauge.estimation.sanity import are_names, doubt
from fedgauge.metrics.estimate import (
    LEVEL,
    Estimate,
    Interval,
    add_noise,
    critical,
    holding,
    newcombe_interval,
    within,
)
from fedgauge.plan.label_rounds import PAIR_NOISE
from fedgauge.plan.label_rounds import PairName as PairName
from fedgauge.privacy import DistributedDP, PrivacyStatement
from fedgauge.privacy.keystream import WordSource
from fedgauge.results.record import MetricRecord
from fedgauge.results.signature import Signature
from fedgauge.storage import MALFORMED, read_whole, write_whole

_WORDS: Final = 16  # read at once


class RandomBits:
    """Uniform numbers and coins from random words."""

    def __init__(self, source: WordSource) -> None:
        self._source = source
        self._words: list[int] = []

    def below(self, limit: int) -> int:
        """A uniform number from 0 to below `limit`, any whole number."""
        bits = (limit - 1).bit_length()
        while True:
            number = self._bits(bits)
            if number < limit:
                return number

    def _bits(self, bits: int) -> int:
        number, words = 0, -(-bits // 64)
        for _ in range(words):
            if not self._words:
                self._words = self._source.words(_WORDS).tolist()
            number = (number << 64) | self._words.pop()
        return number >> (64 * words - bits)

    def happens(self, chance: Fraction) -> bool:
        """True with a chance from 0 to 1."""
        return self.below(chance.denominator) < chance.numerator

    def decays(self, exponent: Fraction) -> bool:
        """True with chance exp(-exponent), for an exponent of at least 0 (algorithm 1)."""
        while exponent > 1:
            if not self.decays(Fraction(1)):
                return False
            exponent -= 1
        terms = 1
        while self.happens(exponent / terms):
            terms += 1
        return terms % 2 == 1


@dataclass(frozen=True)
class DiscreteLaplace:
    """P(k) ~ exp(-|k| / scale) on all whole numbers; 0 for certain where the scale is 0."""

    scale: Fraction

    @property
    def variance(self) -> float:
        """Variance of a draw."""
        if not self.scale or self.scale < Fraction(1, 1000):
            return 0.0  # below 1e-400
        return 0.5 / math.sinh(0.5 / float(self.scale)) ** 2

    def reach(self, chance: float) -> float:
        """How far a draw goes, to either side, with at most this probability beyond it.

        ``P(|k| >= t) = 2 exp(-t / scale) / (1 + exp(-1 / scale))``.
        """
        return float(self.scale) * math.log(2 / chance)

    def draw(self, bits: RandomBits) -> int:
        """One draw (algorithm 2)."""
        if not self.scale:
            return 0
        top, bottom = self.scale.numerator, self.scale.denominator
        while True:
            part = bits.below(top)
            if not bits.decays(Fraction(part, top)):
                continue
            whole = 0
            while bits.decays(Fraction(1)):
                whole += 1
            size, negative = (part + top * whole) // bottom, bits.below(2)
            if size or not negative:  # else 0 would come twice as often
                return -size if negative else size


@dataclass(frozen=True)
class DiscreteGaussian:
    """P(k) ~ exp(-k^2 / (2 sigma2)) on all whole numbers; 0 for certain where that is 0."""

    sigma2: Fraction

    @property
    def variance(self) -> float:
        """At least the variance of a draw, and no more than 3% above it from a sigma of 0.6 on."""
        return float(self.sigma2)

    def reach(self, chance: float) -> float:
        """How far a draw goes, to either side, with at most this probability beyond it.

        Its moment generating function is at most a normal law's (Canonne, Kamath & Steinke 2020),
        and so by Chernoff's bound ``P(|k| >= t) <= 2 exp(-t^2 / (2 sigma2))``.
        """
        return math.sqrt(2 * float(self.sigma2) * math.log(2 / chance))

    def draw(self, bits: RandomBits) -> int:
        """One draw (algorithm 3)."""
        if not self.sigma2:
            return 0
        scale = math.isqrt(self.sigma2.numerator // self.sigma2.denominator) + 1
        proposed = DiscreteLaplace(Fraction(scale))
        while True:
            value = proposed.draw(bits)
            if bits.decays((abs(value) - self.sigma2 / scale) ** 2 / (2 * self.sigma2)):
                return value


Law = DiscreteLaplace | DiscreteGaussian

Ranks = NDArray[np.int64]


def require_finite(scores: Floats) -> None:
    """Refuse scores that are missing or infinite."""
    missing = int(np.count_nonzero(~np.isfinite(scores)))
    if missing:
        raise InputError(f"{missing:,} of {scores.size:,} scores are missing or infinite.")


def doubled_midranks(scores: Floats) -> Ranks:
    """Twice the mean rank from 0 of each score: of scores below it, and of those it ties with.

    Doubled they are whole, so that noise on sums of them can be drawn exactly.
    """
    require_finite(scores)
    _, group, tied = np.unique(scores, return_inverse=True, return_counts=True)
    ranks: Ranks = (2 * (np.cumsum(tied) - tied) + tied - 1)[group]
    return ranks


def auc_of(positives: float, ranks: float, examples: int) -> float:
    """The AUC, from the number of positives and the sum of their doubled midranks.

    Exact where both are; under noise it can lie outside 0 to 1.
    """
    return (ranks - positives * (positives - 1)) / (2 * positives * (examples - positives))


def balance_rank(auc: float, positives: float, examples: int) -> float:
    """The doubled rank at which one positive more, or less, leaves the AUC as it is.

    To first order the AUC moves by ``(dS - c dP) / (2 P N)`` where c is this rank, S the sum of
    doubled ranks over positives, P their number and N that of negatives.
    """
    return 2 * (positives * (1 - auc) + auc * (examples - positives)) - 1


@dataclass(frozen=True, eq=False)
class PartyRanks:
    """What is known of the ranks of each party's examples, which are no secret."""

    examples: int  # in all
    mean: Ranks  # mean doubled rank of each party, rounded: any whole number would do
    reach: Ranks  # how far a rank of the party is from its mean at most
    highest: Ranks  # the highest rank of the party

    @classmethod
    def of(cls, ranks: Ranks, party: Indices, parties: int) -> "PartyRanks":
        """From the rank and the party of every example."""
        rows = np.bincount(party, minlength=parties)
        sums = np.zeros(parties, dtype=np.int64)
        np.add.at(sums, party, ranks)
        mean = sums // np.maximum(rows, 1)
        reach, highest = np.zeros(parties, dtype=np.int64), np.zeros(parties, dtype=np.int64)
        np.maximum.at(reach, party, np.abs(ranks - mean[party]))
        np.maximum.at(highest, party, ranks)
        return cls(len(ranks), mean, reach, highest)

    @classmethod
    def evenly(cls, examples: int, parties: int, *, alike: bool) -> "PartyRanks":
        """Of distinct scores, as many at each party: dealt out in turn, or a range for each."""
        party = np.arange(parties, dtype=np.int64)
        if alike:
            first, last = party, party + (examples - 1 - party) // parties * parties
        else:
            ends = -(-np.arange(parties + 1, dtype=np.int64) * examples // parties)
            first, last = ends[:-1], ends[1:] - 1
        return cls(examples, first + last, last - first, 2 * last)

    def __len__(self) -> int:
        return len(self.mean)


WHOLE: Final = 1 << 16  # parts of a budget: whole numbers, so that both parts add up exactly
_ORDERS: Final = 1.0 + np.exp(np.linspace(-9.0, 12.0, 4000))  # of Renyi divergence


class BudgetSplit(NamedTuple):
    """What parties send, one entry each."""

    centre: Ranks  # u in the paper
    reach: Ranks  # D in the paper
    share: Ranks  # the part of the budget for the number of positives, out of 2^16


class PartyTerms(NamedTuple):
    """What one party sends: positives, and the sum over them of ranks less `centre`."""

    centre: int
    positives: Law
    ranks: Law


@dataclass(frozen=True)
class PairMechanism:
    """A row of :data:`MECHANISMS`."""

    # As :class:`fedgauge.DistributedDP` names it: polya noise of one party is discrete Laplace.
    noise: Literal["polya", "discrete-gaussian"]
    # What each party sends, and how it divides the budget: of ranks alone, never of labels.
    split: Callable[[PartyRanks], BudgetSplit]
    about: str  # in words

    def terms(self, known: PartyRanks, privacy: DistributedDP) -> list[PartyTerms]:
        """What each party draws its noise from, exactly.

        The two budgets add up to the whole: epsilon for discrete Laplace noise, and for discrete
        Gaussian noise the rho of concentrated privacy, 1 / (2 sigma^2) for a shift by 1.
        """
        laplace = self.noise == "polya"
        budget = Fraction(privacy.epsilon) if laplace else 2 * rho_of(*privacy.budget)

        def law(reach: int, share: int) -> Law:
            if not reach:
                return DiscreteLaplace(Fraction(0))
            part = budget * share / WHOLE
            return DiscreteLaplace(reach / part) if laplace else DiscreteGaussian(reach**2 / part)

        return [
            PartyTerms(centre, law(1, share), law(reach, WHOLE - share))
            for centre, reach, share in zip(*map(Ranks.tolist, self.split(known)), strict=True)
        ]

    def deviation(
        self, known: PartyRanks, privacy: DistributedDP, auc: float, positives: float
    ) -> float:
        """Predicted standard deviation of the AUC by noise, where it is `auc`."""
        negatives = known.examples - positives
        variance = float(self.variances(known, privacy, auc, positives).sum())
        return math.sqrt(variance) / (2 * positives * negatives)

    def variances(
        self, known: PartyRanks, privacy: DistributedDP, auc: float, positives: float
    ) -> Floats:
        """Variance of 2 P N AUC by each noise, two for each party."""
        split = self.split(known)
        parts = np.array([split.share, WHOLE - split.share]) / WHOLE
        reach = np.array([np.ones(len(known)), split.reach])
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if self.noise == "polya":
                each = 0.5 / np.sinh(0.5 / (reach / (parts * privacy.epsilon))) ** 2
            else:
                each = reach**2 / (parts * float(2 * rho_of(*privacy.budget)))
        count, ranks = np.where(reach > 0, each, 0.0)
        off = split.centre - balance_rank(auc, positives, known.examples)
        return np.array([off**2 * count, ranks])


def rho_of(epsilon: float, delta: float) -> Fraction:
    """The most concentrated privacy loss that (epsilon, delta) allows, rounded down.

    Discrete Gaussian noise is as concentrated as the continuous one, and losses of both numbers of
    a pair add up (Canonne, Kamath & Steinke 2020, sections 2.2 and 2.3). About 7% more noise than
    the analytic Gaussian mechanism, which is not proven for whole numbers.
    """
    orders = _ORDERS
    rest = np.log(delta) + np.log(orders - 1) - orders * np.log1p(-1 / orders)
    rho = float(np.max((epsilon + rest / (orders - 1)) / orders))
    if rho <= 0:
        raise PlanError("epsilon and delta are too small for Gaussian noise. Raise one of them.")
    return Fraction(rho * (1 - 1e-9))


def _halved(centre: Ranks, reach: Ranks) -> BudgetSplit:
    """Half of the budget for each number; all for the first where the second cannot move."""
    return BudgetSplit(centre, reach, np.where(reach > 0, WHOLE // 2, WHOLE))


def _global(known: PartyRanks) -> BudgetSplit:
    highest = np.full(len(known), 2 * (known.examples - 1))
    return _halved(np.zeros_like(highest), highest)


def _local(known: PartyRanks) -> BudgetSplit:
    return _halved(np.zeros_like(known.highest), known.highest)


def _orthogonal(known: PartyRanks) -> BudgetSplit:
    return _halved(known.mean, known.reach)


def _adaptive(known: PartyRanks) -> BudgetSplit:
    """The split that gives a party's own rank sum the least noise, as the paper has it.

    With the balance rank in place of the mean the AUC's noise would be least, but it hangs on
    labels.
    """
    mean, reach = known.mean ** (2 / 3), known.reach ** (2 / 3)
    part = np.divide(mean, mean + reach, out=np.ones(len(known)), where=known.reach > 0)
    share = np.clip(np.rint(part * WHOLE), 1, WHOLE - 1).astype(np.int64)
    return BudgetSplit(known.mean, known.reach, np.where(known.reach > 0, share, WHOLE))


MECHANISMS: Final[Mapping[str, PairMechanism]] = {
    "adaptive": PairMechanism(
        "polya", _adaptive, "ranks less the party's mean, a budget by how far they lie from it"
    ),
    "orthogonal": PairMechanism("polya", _orthogonal, "ranks less the party's mean, half each"),
    "laplace-global": PairMechanism("polya", _global, "noise for the highest rank of all"),
    "laplace-local": PairMechanism("polya", _local, "noise for the party's highest rank"),
    "gaussian": PairMechanism(
        "discrete-gaussian", _local, "Gaussian noise for the party's highest rank"
    ),
}

FORMAT: Final = "fedgauge-label-auc/1"
_MOST_EXAMPLES: Final = 1 << 62


@dataclass(frozen=True, eq=False)
class LabelAuc:
    """An AUC of scores at one party and labels at others, under privacy for labels.

    Attributes
    ----------
    roc_auc
        The AUC with its interval.
    privacy
        What may be claimed.
    mechanism
        How labels were counted: ``"histogram"`` or one of the pairs of Sun et al. 2022.
    parties, examples
        Label parties, and examples that have both a score and a label.
    predicted
        The error that each possible mechanism was expected to add, from what is public.
    doubted
        Names of label parties that sent what no labels have.

    Examples
    --------
    >>> scores = {i: (i % 10) / 10 for i in range(2000)}
    >>> labels = {"a": {i: i % 10 > 4 for i in range(2000)}}
    >>> result = fg.evaluate_vertical(scores, labels, only="roc_auc", mechanism="adaptive", seed=1)
    >>> result.mechanism, result.roc_auc.value > 0.9
    ('adaptive', True)
    """

    roc_auc: Estimate
    privacy: PrivacyStatement
    mechanism: str
    parties: int
    examples: int
    predicted: Mapping[str, float] = field(default_factory=dict)
    doubted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "predicted", MappingProxyType(dict(self.predicted)))

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self.roc_auc, self.privacy, self.mechanism, self.parties, self.examples)
        return LabelAuc, (*fields, dict(self.predicted), self.doubted)

    def __str__(self) -> str:
        return "\n".join(f"{name + ':':12}{words}" for name, words in self._rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _html.table(self._rows(), caption="AUC under label privacy")

    def _rows(self) -> list[tuple[str, str]]:
        stated = self.privacy
        parties = "party" if self.parties == 1 else "parties"
        delta = f", delta {stated.delta:g}" if stated.delta else ""
        noise, promise = self.roc_auc.parts.get("noise"), "no differential privacy"
        if stated.epsilon is not None:
            promise = f"label-DP, one label flipped: epsilon {stated.epsilon:g}{delta}"
        told = [
            ("AUC", str(self.roc_auc)),
            ("noise", "none" if noise is None else f"{noise:.2g} (standard deviation)"),
            ("mechanism", self.mechanism),
            ("labels", f"{self.examples:,}, at {self.parties:,} {parties}"),
            ("privacy", promise),
            ("claim", stated.claim),
        ]
        return told if self.caution is None else [*told, ("caution", self.caution)]

    @property
    def caution(self) -> str | None:
        """Why not to rely on it: noise does not explain what parties sent; by chance 1 in 10^6."""
        return doubt(self.doubted)

    @property
    def signature(self) -> Signature:
        """That nobody signed it."""
        return Signature("unsigned", simulated=self.privacy.claim == "simulated")

    @property
    def record(self) -> "AucRecord":
        """The result as plain data."""
        return AucRecord(
            FORMAT,
            MetricRecord.of(self.roc_auc),
            self.privacy,
            self.mechanism,
            self.parties,
            self.examples,
            dict(self.predicted),
            list(self.doubted) or msgspec.UNSET,
        )

    def to_json(self, path: str | Path) -> None:
        """Save the result."""
        write_whole(path, self.record.to_json())

    @classmethod
    def from_json(cls, path: str | Path) -> "LabelAuc":
        """Load a saved result."""
        data = read_whole(path)
        with located(str(path)):
            return _read(data)


def is_auc(path: str | Path) -> bool:
    """Whether a file holds an AUC alone, and not a whole result."""
    try:
        return msgspec.json.decode(read_whole(path), type=_AucHeader).format == FORMAT
    except MALFORMED:
        return False


def _read(data: bytes) -> LabelAuc:
    try:
        record = msgspec.json.decode(data, type=AucRecord)
    except MALFORMED:
        record = None
    if record is not None and record.format != FORMAT:
        raise RecordError(f"this is not {FORMAT}. It may be from another version of fedgauge.")
    if record is None or not record.is_whole:
        raise RecordError("this is not an AUC that fedgauge saved. Get it again from who made it.")
    if record.mechanism not in ("histogram", *PAIR_NOISE):
        raise RecordError("it names a mechanism that fedgauge has not.")
    m = record.roc_auc
    caution = m.caution and in_one_line(m.caution)
    auc = Estimate(m.value, m.bounds, m.low, m.high, m.level, m.parts, caution)
    r = record
    return LabelAuc(
        auc, r.privacy, r.mechanism, r.parties, r.examples, r.predicted, r.doubted_parties
    )


class _AucHeader(msgspec.Struct):
    format: str


class AucRecord(msgspec.Struct, frozen=True):
    """A :class:`LabelAuc` as plain data."""

    format: str
    roc_auc: MetricRecord
    privacy: PrivacyStatement
    mechanism: str
    parties: int
    examples: int
    predicted: dict[str, float]
    doubted: list[str] | msgspec.UnsetType = msgspec.UNSET

    @property
    def doubted_parties(self) -> tuple[str, ...]:
        """Names of parties that sent what no labels have."""
        return tuple(self.doubted) if isinstance(self.doubted, list) else ()

    @property
    def is_whole(self) -> bool:
        """Whether all is there that an AUC is shown with, and as it can be."""
        m, stated = self.roc_auc, self.privacy
        if m.low is None or m.high is None or m.level is None:
            return False
        lowest, highest = m.bounds
        words = (m.caution or "", *stated.public_inputs)
        return (
            0 <= m.low <= m.value <= m.high <= 1
            and 0 <= lowest <= m.value <= highest <= 1
            and 0 < m.level < 1
            and all(each >= 0 for each in m.parts.values())
            and (stated.epsilon is None or (stated.epsilon > 0 and "noise" in m.parts))
            and 1 <= self.parties <= self.examples <= _MOST_EXAMPLES
            and {self.mechanism, *self.predicted} <= {"histogram", *MECHANISMS}
            and all(text.isprintable() for text in words)
            and len(self.doubted_parties) <= self.parties
            and are_names(self.doubted_parties)
        )

    def to_json(self) -> bytes:
        """The result as JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


_EXCESS: Final = 3.0  # kurtosis of a Laplace law beyond a normal one's


class PairAnswer(NamedTuple):
    """What a party sends: its positives and the sum of their centred ranks, with noise."""

    positives: int
    ranks: int


def noisy_pair(
    labels: NDArray[np.bool_], ranks: Ranks, terms: PartyTerms, source: WordSource
) -> PairAnswer:
    """What a party sends of its labels."""
    positives = int(np.count_nonzero(labels))
    total = int(ranks[labels].sum()) - terms.centre * positives
    bits = RandomBits(source)
    return PairAnswer(positives + terms.positives.draw(bits), total + terms.ranks.draw(bits))


def is_pair_possible(pair: PairAnswer, ranks: Ranks, terms: PartyTerms, chance: float) -> bool:
    """Whether labels of examples with these ranks can give a pair, but for noise.

    Of true labels it is False with at most this `chance`, half of it for each number. So many
    positives have ranks that add up to no less than the lowest, and no more than the highest.

    Examples
    --------
    >>> none, ranks = DiscreteLaplace(Fraction(0)), np.array([0, 2, 4, 6])
    >>> terms = PartyTerms(0, none, none)
    >>> [is_pair_possible(PairAnswer(2, total), ranks, terms, 1e-6) for total in (1, 2, 10, 11)]
    [False, True, True, False]
    """
    off, reach = terms.positives.reach(chance / 2), terms.ranks.reach(chance / 2)
    fewest = max(math.ceil(pair.positives - off), 0)
    most = min(math.floor(pair.positives + off), len(ranks))
    if fewest > most:
        return False
    centred = np.sort(ranks) - terms.centre
    lowest = np.append(0, np.cumsum(centred))
    highest = np.append(0, np.cumsum(centred[::-1]))
    # Sums fall as long as ranks are negative, and rise from there on.
    falls = int(np.count_nonzero(centred < 0))
    least = int(lowest[min(max(falls, fewest), most)])
    greatest = int(highest[min(max(len(ranks) - falls, fewest), most)])
    return least - reach <= pair.ranks <= greatest + reach


def auc_estimate(
    pairs: Sequence[PairAnswer],
    mechanism: PairMechanism,
    known: PartyRanks,
    privacy: DistributedDP,
    level: float = LEVEL,
) -> Estimate:
    """The AUC from what all parties sent.

    Its interval joins the noise with the sampling variance of Hanley & McNeil 1982 (Newcombe 2006,
    method 5): pairs hold nothing of the placements that DeLong's variance is made of.
    """
    terms = mechanism.terms(known, privacy)
    positives = sum(pair.positives for pair in pairs)
    total = sum(p.ranks + t.centre * p.positives for p, t in zip(pairs, terms, strict=True))
    negatives = known.examples - positives
    _require_signal(positives, negatives, sum(t.positives.variance for t in terms))
    raw = auc_of(positives, total, known.examples)
    value = min(max(raw, 0.0), 1.0)
    variances = mechanism.variances(known, privacy, value, positives)
    noise = math.sqrt(float(variances.sum())) / (2 * positives * negatives)
    z = critical(level)
    excess = _EXCESS if mechanism.noise == "polya" else 0.0
    stretch = _heavier(z, excess * float((variances**2).sum() / variances.sum() ** 2)) / z
    sampling = newcombe_interval(value, positives, negatives, z)
    interval = add_noise(value, sampling, stretch * noise, z)
    reach = stretch * z * noise
    bounds = within(holding(Interval(raw - reach, raw + reach), value), 0.0, 1.0)
    interval = within(holding(interval, value), 0.0, 1.0)
    deviation = (sampling.high - sampling.low) / (2 * z)
    return Estimate(
        value,
        (bounds.low, bounds.high),
        interval.low,
        interval.high,
        level,
        {"sampling": deviation, "noise": noise},
    )


def _heavier(z: float, excess: float) -> float:
    """The quantile of a symmetric law where a normal one has z (Cornish & Fisher 1938).

    One Laplace law is more than 1.96 deviations out with a chance of 6%, not 5%.
    """
    return z + excess * max(z**3 - 3 * z, 0.0) / 24.0


def _require_signal(positives: int, negatives: int, variance: float) -> None:
    deviation = math.sqrt(variance)
    for number, name in ((positives, "positives"), (negatives, "negatives")):
        if number < max(SIGNAL * deviation, 1):
            raise NoSignal(
                f"no signal: the noise (standard deviation {deviation:,.0f}) hides the number of "
                f"{name}. Use a larger epsilon, or more examples."
            )
