"""Rounds: histograms to be summed, or rows reported one by one; what each is asked."""

import math
from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple, Self

import msgspec
from msgspec import structs

from fedgauge.arrays import Floats
from fedgauge.errors import AxisError, PlanError
from fedgauge.histograms.axis import Axis
from fedgauge.histograms.channels import PLAIN, Layout
from fedgauge.histograms.histogram import check_sums
from fedgauge.histograms.tables import AnyTable, are_all, check_tables
from fedgauge.plan.task import TWO_CLASSES, Task
from fedgauge.privacy import Cohort, PrivacyModel, models, oracles
from fedgauge.privacy.models import LevelNoise, ReportNoise
from fedgauge.privacy.noise import ShareLaw, honest_parties
from fedgauge.privacy.oracles import MOST_CELLS, Oracle

NO_COHORT: Final = "a sum needs a cohort: say who must take part."
NO_SUM_OF_REPORTS: Final = (
    "this plan is for local reports, which nobody sums securely. Make them with `fedgauge encode`, "
    "and give the server's intake their messages."
)
NO_SUM_OF_FLIPS: Final = (
    "this plan is for labels that are flipped where they are held, which nobody sums securely. "
    "Each party answers alone: `fedgauge vertical answer`."
)
NO_SUM_ALONE: Final = (
    "under this plan each label party answers alone, with all of the noise, and nothing is summed "
    "securely. Answer with `fedgauge vertical answer`."
)


BYTES_PER_COUNT: Final = 8


def nodes_by_level(tree: Sequence[int]) -> tuple[int, ...]:
    """How many nodes a tree has at each level, the root left out."""
    return tuple(math.prod(tree[: level + 1]) for level in range(len(tree)))


class RoundTerms(NamedTuple):
    """The parts of a plan that its rounds need.

    One row adds to `per_row` counts at each level; `counted` names those of `layout` in words.
    """

    privacy: PrivacyModel
    cohort: Cohort | None
    axis: Axis
    tree: tuple[int, ...]
    channels: int
    per_row: int = 1
    layout: Layout = PLAIN
    counted: str = TWO_CLASSES

    @classmethod
    def of(
        cls,
        privacy: PrivacyModel,
        cohort: Cohort | None,
        task: Task,
        axis: Axis,
        tree: tuple[int, ...],
    ) -> Self:
        """What a round of a task works within."""
        counts = task.rows_sent, task.per_row, task.layout, task.counted
        return cls(privacy, cohort, axis, tree, *counts)

    @property
    def sum_cohort(self) -> Cohort:
        """Who must take part in a sum."""
        if self.cohort is None:
            raise PlanError(why_no_sum(self.privacy))
        return self.cohort

    @property
    def is_alone(self) -> bool:
        """Whether a sum may be over one client, so that each adds all of the noise."""
        return self.cohort is not None and self.cohort.min_survivors == 1


def why_no_sum(privacy: PrivacyModel) -> str:
    """Why nothing is summed securely where nobody in particular must take part."""
    if privacy.flips_labels:
        return NO_SUM_OF_FLIPS
    return NO_SUM_OF_REPORTS if privacy.sends_reports else NO_COHORT


class Round(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """What every client sends once: plain data in a plan, and all that differs between kinds."""

    sends_reports: ClassVar[bool] = False  # of single rows; else a client sends its counts
    flips_labels: ClassVar[bool] = False  # at random, before they are counted

    @property
    def nodes(self) -> tuple[int, ...]:
        """The number of nodes at each level sent."""
        raise NotImplementedError

    @property
    def sum_steps(self) -> int:
        """Steps that the scores within a bin are summed in; 0 where they are not."""
        return 0

    @property
    def tables(self) -> tuple[AnyTable, ...]:
        """What is counted besides the histogram."""
        return ()

    @property
    def is_noisy(self) -> bool:
        """Whether what is released is noisy."""
        return True

    def check(self, terms: RoundTerms) -> None:
        """Refuse what no plan of these terms holds."""
        raise NotImplementedError

    def check_promise(self, terms: RoundTerms) -> None:
        """Refuse noise that costs more than the privacy model promises."""
        raise NotImplementedError

    def draws(self, terms: RoundTerms) -> list[tuple[ShareLaw, int]]:
        """Laws of one client's noise, and how many numbers each is on; empty without tables."""
        del terms
        return []

    def noise_variances(self, terms: RoundTerms, contributions: int) -> tuple[float, ...]:
        """Variance of the noise at one node of each level; empty without noise of levels."""
        del terms, contributions
        return ()

    def node_variances(self, terms: RoundTerms, leaves: Floats) -> list[Floats]:
        """Variance at every node of each level, where it depends on the counts; else empty."""
        del terms, leaves
        return []

    def numbers(self, terms: RoundTerms) -> int:
        """How many numbers one client sends, or a report tells apart."""
        return terms.channels * sum(self.nodes)

    def bytes_sent(self, terms: RoundTerms) -> int:
        """Size of what is sent, before any protocol."""
        return self.numbers(terms) * BYTES_PER_COUNT

    def in_words(self, terms: RoundTerms) -> list[tuple[str, str]]:
        """Titles and paragraphs for whoever must approve of it."""
        raise NotImplementedError


def alone_in_words(terms: RoundTerms, leaves: str, learned: str) -> list[tuple[str, str]]:
    """Titles and paragraphs of a round in which the promise does not rest on others."""
    return [
        ("What leaves each site", leaves),
        ("What is learned from it", learned),
        ("What is promised", terms.privacy.promise),
        ("Who must take part", "Nobody in particular: the promise does not rest on others."),
        ("What is not protected", f"{terms.privacy.unprotected}."),
    ]


# Rows of one client in one bin: more than any has, and 2^22 of them fit 64 bits.
LARGEST: Final = 2**40

# Steps that the scores within a bin are summed in. Rounding, 1/512 of a bin, is far below what
# sampling and noise do to a mean. More would cost: tables of noise are as long as steps over
# epsilon, and `privacy/noise.py` draws from no longer ones than these steps have at epsilon 0.41.
SUM_STEPS: Final = 256
_NO_SUMS: Final = (
    "score sums are for one score a row, of two classes and without groups. Leave them out."
)


class ScoreSums(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For every class and bin, also the sum of its examples' places within the bin.

    An example at score s in a bin from a to b adds ``round((s - a) / (b - a) * steps)``. `noise` is
    the budget of the noise on these sums; 0 without.

    Examples
    --------
    >>> plan = fg.planner.propose(privacy=fg.SecureAggregation(), clients=3, score_sums=True)
    >>> plan.final.sums
    ScoreSums(steps=256, noise=0.0)
    """

    steps: int
    noise: float = 0.0


class HistogramRound(Round, frozen=True, tag="histogram", omit_defaults=True):
    """Each client sends, for every channel, the counts of the nodes at some tree levels.

    `nodes` lists the number of nodes at each level sent, `noise` the strength of the noise there
    (see :class:`fedgauge.privacy.noise.ShareLaw`). A client refuses a count above `largest`, or
    clips it under differential privacy, where a refusal would leak. `sums` follow the counts, at
    most `largest` times their steps; `tables` come last, each cell at most `largest` times the
    table's weight. If noisy tables add up to the counts, only they are sent, and `nodes` and
    `noise` are empty.

    Examples
    --------
    >>> plan = fg.EvaluationPlan.for_histogram(fg.Axis.uniform(4), fg.Cohort(3, 1))
    >>> plan.final.nodes
    (4,)
    """

    nodes: tuple[int, ...]
    # Values from factories are always written: sums and tables alone are left out of a plan
    # that has none.
    noise: tuple[float, ...] = msgspec.field(default_factory=lambda: ())
    largest: int = msgspec.field(default_factory=lambda: LARGEST)
    sums: ScoreSums | None = None
    tables: tuple[AnyTable, ...] = ()

    @classmethod
    def calibrated(
        cls,
        privacy: PrivacyModel,
        cohort: Cohort,
        tree: Sequence[int],
        *,
        per_row: int = 1,
        weights: Sequence[float] | None = None,
        largest: int = LARGEST,
        score_sums: bool = False,
        tables: tuple[AnyTable, ...] = (),
        tables_alone: bool = False,
    ) -> Self:
        """The least noise that keeps the promise of the model.

        A row that adds to several counts of a level counts as that many levels, and each table as
        one more. `tables_alone` leaves the histogram out.
        """
        if score_sums and (per_row > 1 or tables):
            raise PlanError(_NO_SUMS)
        levels = 0 if tables_alone else len(tree)
        if weights is not None and tables:
            raise PlanError("weights are for the levels of a tree alone. Leave them or tables out.")
        seen = None if weights is None else list(weights) * per_row
        noise = privacy.calibrate(
            cohort, levels * per_row + len(tables), weights=seen, score_sums=score_sums
        )
        sums = ScoreSums(SUM_STEPS, noise.sums) if score_sums else None
        if noise.levels and tables:
            strengths = noise.levels[-len(tables) :]
            pairs = zip(tables, strengths, strict=True)
            tables = tuple(structs.replace(table, noise=each) for table, each in pairs)
        nodes = () if tables_alone else _nodes_sent(privacy, tree)
        return cls(nodes, noise.levels[:levels], largest, sums, tables)

    def of_bins(self, bins: int, privacy: PrivacyModel, layout: Layout) -> Self:
        """The same for as many bins, without a tree: its noise does not depend on them."""
        del privacy, layout
        return structs.replace(self, nodes=(bins,))

    @property
    def sum_steps(self) -> int:
        """Steps that the scores within a bin are summed in; 0 where they are not."""
        return 0 if self.sums is None else self.sums.steps

    @property
    def is_noisy(self) -> bool:
        """Whether clients add noise."""
        return bool(self.noise or self._table_noise)

    @property
    def _table_noise(self) -> tuple[float, ...]:
        return tuple(table.noise for table in self.tables if table.noise)

    @property
    def _level_noise(self) -> LevelNoise:
        return LevelNoise(self.noise, 0.0 if self.sums is None else self.sums.noise)

    def seen_by_a_row(self, terms: RoundTerms) -> LevelNoise:
        """The noise on all counts that one row adds to."""
        noise = self._level_noise
        return noise._replace(levels=noise.levels * terms.per_row + self._table_noise)

    def check(self, terms: RoundTerms) -> None:
        """Refuse what no plan of these terms holds."""
        if self.tables:
            check_tables(self.tables, terms.layout, terms.axis)
        alone = are_alone(self.tables, terms)
        nodes = () if alone else _nodes_sent(terms.privacy, terms.tree)
        if self.nodes != nodes:
            raise PlanError(
                f"under this privacy model a plan has one round of {nodes} counts; "
                "make plans with EvaluationPlan.for_histogram."
            )
        if not 1 <= self.largest <= LARGEST:
            raise PlanError(f"the largest count of a client must lie between 1 and {LARGEST:,}.")
        if len({*self._table_noise}) > 1:  # each strength takes a law of its own, made at length
            raise PlanError("the tables of a plan have noise of one strength.")
        if alone and len(terms.tree) > 1:
            raise PlanError("counts that are sums of a table's cells have a flat tree.")
        noise = self._level_noise
        noise = noise._replace(levels=noise.levels + self._table_noise)
        levels = (0 if alone else len(terms.tree)) + len(self.tables)
        terms.privacy.check_noise(noise, terms.sum_cohort, levels, sums=self.sums is not None)
        if self.sums is not None:
            if terms.channels > 2:
                raise PlanError(_NO_SUMS)
            try:
                check_sums(terms.axis, self.sums.steps)
            except AxisError as error:
                raise PlanError(str(error)) from None

    def check_promise(self, terms: RoundTerms) -> None:
        """Refuse noise that costs more than the privacy model promises."""
        terms.privacy.check_promise(self.seen_by_a_row(terms), terms.sum_cohort)

    def laws(self, terms: RoundTerms, shares: int) -> list[ShareLaw]:
        """The law of the sum of `shares` clients' noise at each level; empty without noise."""
        noise = self._level_noise
        return terms.privacy.laws(noise, terms.sum_cohort, shares) if noise.levels else []

    def sums_law(self, terms: RoundTerms, shares: int) -> ShareLaw | None:
        """The law of the sum of `shares` clients' noise on score sums; None without noise."""
        if self.sums is None:
            return None
        noise = self._level_noise
        return terms.privacy.sums_law(noise, self.sums.steps, terms.sum_cohort, shares)

    def table_laws(self, terms: RoundTerms, shares: int) -> list[ShareLaw]:
        """The law of the sum of `shares` clients' noise in each table; empty without noise."""
        if not self.is_noisy or not self.tables:
            return []
        return terms.privacy.laws(LevelNoise(self._table_noise, 0.0), terms.sum_cohort, shares)

    def noise_parts(self, terms: RoundTerms) -> float:
        """How many independent parts one client's noise on a number has."""
        return (self.laws(terms, shares=1) + self.table_laws(terms, shares=1))[0].parts

    def cells(self, terms: RoundTerms) -> list[int]:
        """How many numbers each table has."""
        return [table.cells(terms.layout, terms.axis) for table in self.tables]

    def draws(self, terms: RoundTerms) -> list[tuple[ShareLaw, int]]:
        """Laws of one client's noise, and how many numbers each is on."""
        laws = self.laws(terms, shares=1)
        drawn = [
            (law, terms.channels * count)
            for law, count in zip(laws, self.nodes[: len(laws)], strict=True)
        ]
        sums_law = self.sums_law(terms, shares=1)
        if sums_law is not None:
            drawn.append((sums_law, terms.channels * terms.axis.bins))
        if self.is_noisy:
            drawn += zip(self.table_laws(terms, shares=1), self.cells(terms), strict=True)
        return drawn

    def noise_variances(self, terms: RoundTerms, contributions: int) -> tuple[float, ...]:
        """Variance of the noise of so many clients at one node of each level."""
        # Of one client's noise, so many times: a table of the sum's would be as long as a result
        # says that it has clients.
        variances = tuple(contributions * law.variance for law in self.laws(terms, shares=1))
        if self.is_noisy and not self.nodes:  # each count is a sum of cells
            by_table = zip(self.tables, self.table_variances(terms, contributions), strict=True)
            summed = (
                variance * table.margin_terms(terms.layout, terms.axis)
                for table, variance in by_table
            )
            return (max(summed),)
        return variances

    def table_variances(self, terms: RoundTerms, contributions: int) -> tuple[float, ...]:
        """Variance of the noise of so many clients in one cell of each table; 0 without."""
        laws = self.table_laws(terms, shares=1)
        return tuple(contributions * law.variance for law in laws) or (0.0,) * len(self.tables)

    def numbers(self, terms: RoundTerms) -> int:
        """How many counts and sums one client sends."""
        sums = terms.axis.bins if self.sum_steps else 0
        return terms.channels * (sum(self.nodes) + sums) + sum(self.cells(terms))

    def most_per_number(self, terms: RoundTerms) -> int:
        """Largest absolute value that one client can send, its noise included: a certain bound."""
        laws = self.laws(terms, shares=1) + self.table_laws(terms, shares=1)
        sums_law = self.sums_law(terms, shares=1)
        sums_reach = 0 if sums_law is None else sums_law.reach
        most_sum = self.largest * self.sum_steps + sums_reach
        return max(self.largest + max((law.reach for law in laws), default=0), most_sum)

    def in_words(self, terms: RoundTerms) -> list[tuple[str, str]]:
        """Titles and paragraphs for whoever must approve of it."""
        if terms.is_alone and terms.privacy.protects_labels:
            return self._alone(terms)
        privacy = terms.privacy
        promise = privacy.promise
        if self.sum_steps and not self.is_noisy:
            promise += (
                " Where only one example of all sites is in a range, the sum shows its score, to "
                f"1/{2 * self.sum_steps} of the range."
            )
        if not self.is_noisy:
            promise += self._exact_slices(terms)
        return [
            ("What leaves each site", self._leaves(terms)),
            ("What is learned from it", self._learned(terms)),
            ("What is promised", promise),
            ("Who must take part", self._participants(terms.sum_cohort)),
            ("What is not protected", f"{privacy.unprotected}."),
        ]

    def _exact_slices(self, terms: RoundTerms) -> str:
        """What an exact sum shows of slices besides."""
        told = ""
        if terms.layout.groups:
            told += " Where a group is one person, it shows that person's label and score ranges."
        if any(table.hides_small for table in self.tables):
            told += (
                " Few examples share the same ranges of both scores: many are alone there. "
                "Someone who knows both scores of an example learns its label."
            )
        return told

    def _alone(self, terms: RoundTerms) -> list[tuple[str, str]]:
        """The same where one label party is enough: it adds all of the noise, for no sum."""
        told = models.leaves(self.numbers(terms), terms.axis.bins, larger=len(self.nodes) > 1)
        leaves = f"{told} {models.ALL_NOISE.format('every count')}"
        learned = (
            "The scorer learns the blurred counts of each site. From those of all sites come the "
            f"ROC and PR curves, AUC and average precision of all together. {models.KNOWN}. The "
            f"result also shows {models.SHOWN}."
        )
        return alone_in_words(terms, leaves, learned)

    def _leaves(self, terms: RoundTerms) -> str:
        larger = len(self.nodes) > 1
        if terms.privacy.protects_labels:
            text = models.leaves(self.numbers(terms), terms.axis.bins, larger=larger)
        else:
            text = self._of_both_classes(terms, larger=larger)
        if self.is_noisy:
            what = "count and every sum" if self.sum_steps else "count"
            text += (
                f" Before sending, the site adds random whole numbers to every {what}, drawn from "
                "its operating system's secure generator."
            )
        cap = terms.privacy.unit_cap
        if cap is not None:
            rows = "1 row" if cap.rows == 1 else f"{cap.rows} rows"
            text += f" Of each {cap.unit} at most {rows} count; the rest are left out."
        return (
            f"{text} These numbers take {self.bytes_sent(terms):,} bytes. Keys and signatures, in "
            "five messages, come on top. The site's log lists all that left."
        )

    def _of_both_classes(self, terms: RoundTerms, *, larger: bool) -> str:
        counted = []
        if self.nodes:
            counted.append(f"{terms.counted} in each of {math.prod(terms.tree):,} ranges")
        if larger:
            counted[0] += ", and in larger ranges made of these"
        counted += [table.in_words(terms.layout, terms.axis) for table in self.tables]
        text = f"{self.numbers(terms):,} whole numbers, once: {'; and '.join(counted)}"
        if self.sum_steps:
            text += (
                "; and how high within each range the scores of the positive and of the negative "
                "examples lie, added up, which gives their average"
            )
        times = len(self.tables) + (terms.per_row if self.nodes else 0)
        if times > 1:
            text += f". Each example counts {times} times"
            text += ", and the promise is for all of them together" if self.is_noisy else ""
        return f"{text}. No row, score, label, name or identifier leaves."

    def _learned(self, terms: RoundTerms) -> str:
        what = "the sum over all sites"
        if self.is_noisy:
            what += ", blurred by the random numbers of all of them"
        follows = "the ROC and PR curves, AUC and average precision"
        if self.sum_steps:
            follows += ", and the average scores within the ranges,"
        learned = (
            f"Only {what}. From it come {follows} of all sites together{_of_slices(terms)}; not "
            "the counts of one site."
        )
        if terms.privacy.protects_labels:
            return f"{learned} {models.KNOWN}. The result also shows {models.SHOWN}."
        return learned

    def _participants(self, cohort: Cohort) -> str:
        text = f"At least {cohort.min_survivors} sites; with fewer nothing is released."
        if self.is_noisy:
            one = cohort.max_colluding == 1
            colluders = "1 other site tells" if one else f"{cohort.max_colluding} others tell"
            text += (
                f" The promise holds when {honest_parties(cohort)} of them add their random "
                f"numbers honestly, even if {colluders} the readers of the result everything."
            )
        return text


def _of_slices(terms: RoundTerms) -> str:
    """What else curves are of, in words."""
    layout = terms.layout
    kinds = {
        "class": layout.classes,
        "label": layout.labels > 1,
        "model": layout.models,
        "group": layout.groups,
    }
    told = [kind for kind, several in kinds.items() if several]
    return f", and of each {' of each '.join(told)}" if told else ""


def are_alone(tables: Sequence[AnyTable], terms: RoundTerms) -> bool:
    """Whether noisy tables replace the histogram: its counts are sums of their cells."""
    return terms.privacy.adds_noise and are_all(tables, terms.layout, terms.axis)


def _nodes_sent(privacy: PrivacyModel, tree: Sequence[int]) -> tuple[int, ...]:
    if not privacy.adds_noise:  # the inner nodes are sums of leaves: only leaves travel
        return (math.prod(tree),)
    return nodes_by_level(tree)


_MOST_IN_ALL: Final = 1 << 20  # cells of all blocks, which a server keeps sums of


class ReportRound(Round, frozen=True, tag="report"):
    """Each row is sent as one report about one level of one block, drawn at random and public.

    A block is one of the row's scores and one way to group rows; a cell is a group, a class and a
    node. `nodes` lists the number of nodes at each level. `noise` is the chance, out of 2^64, that
    a zero is raised (``oue``) or that a report says nothing (``hadamard``), level by level and
    block by block; `blocks` are those of Hadamard response.
    """

    nodes: tuple[int, ...]
    noise: tuple[int, ...]
    blocks: tuple[int, ...] = ()

    sends_reports: ClassVar[bool] = True

    @classmethod
    def calibrated(cls, privacy: PrivacyModel, tree: Sequence[int], layout: Layout) -> Self:
        """The least noise that keeps the promise of the model."""
        nodes = nodes_by_level(tree)
        noise = privacy.calibrate_reports(_cells(nodes, layout))
        return cls(nodes, noise.chances, noise.blocks)

    def of_bins(self, bins: int, privacy: PrivacyModel, layout: Layout) -> Self:
        """The same for as many bins, without a tree."""
        return self.calibrated(privacy, (bins,), layout)

    def oracles(self, terms: RoundTerms) -> tuple[Oracle, ...]:
        """What randomises a report about each level of the first block, of the second and so on."""
        cells = _cells(self.nodes, terms.layout)
        return terms.privacy.oracles(cells, ReportNoise(self.noise, self.blocks))

    def by_block(self, terms: RoundTerms) -> tuple[tuple[Oracle, ...], ...]:
        """What randomises a report about each level of every block."""
        oracles, levels = self.oracles(terms), len(self.nodes)
        return tuple(oracles[n : n + levels] for n in range(0, len(oracles), levels))

    def check(self, terms: RoundTerms) -> None:
        """Refuse what no plan of these terms holds."""
        nodes = nodes_by_level(terms.tree)
        if self.nodes != nodes:
            raise PlanError(
                f"under this privacy model a plan has one round of reports about {nodes} nodes; "
                "make plans with EvaluationPlan.for_reports."
            )
        self.oracles(terms)

    def check_promise(self, terms: RoundTerms) -> None:
        """Refuse reports that cost more than the privacy model promises."""
        terms.privacy.check_reports(self.oracles(terms))

    def noise_variances(self, terms: RoundTerms, contributions: int) -> tuple[float, ...]:
        """Variance of one node's estimate from so many reports, at each level."""
        blocks = self.by_block(terms)
        # Of the first: those of blocks with other groups hardly differ, as weights.
        return oracles.variances(blocks[0], contributions, len(blocks))

    def node_variances(self, terms: RoundTerms, leaves: Floats, block: int = 0) -> list[Floats]:
        """Noise variance of every node for `leaves` rows in a block's bins, not of sampling."""
        blocks = self.by_block(terms)
        return [len(blocks) * each for each in oracles.node_variances(blocks[block], leaves)]

    def bytes_sent(self, terms: RoundTerms) -> int:
        """Size of one report."""
        return max(oracle.payload_bytes for oracle in self.oracles(terms))

    def in_words(self, terms: RoundTerms) -> list[tuple[str, str]]:
        """Titles and paragraphs for whoever must approve of it."""
        count = self.bytes_sent(terms)
        size = "1 byte" if count == 1 else f"{count:,} bytes"
        leaves = (
            f"One report for each row{_about(terms.layout)} ({size}, and a random number that "
            f"names the report): {_told(terms)}, made uncertain by the site's own secure generator "
            "before it is sent. No score, name or identifier leaves."
        )
        estimated = "the curves of all rows together"
        if not terms.layout.is_plain:
            estimated = f"{terms.counted} in each of these ranges, at all sites together"
        learned = (
            f"A report alone leaves its row uncertain. Many add up to estimates of {estimated}. "
            "The number of reports of each site is known."
        )
        return alone_in_words(terms, leaves, learned)


def _about(layout: Layout) -> str:
    """What a report is about, of several things."""
    among = [(layout.by_row, "scores"), (len(layout.groupings), "ways to group rows")]
    told = " and ".join(f"one of {count:,} {what}" for count, what in among if count > 1)
    return told and f", about {told}, drawn at random, whatever the row holds, and stated openly"


def _told(terms: RoundTerms) -> str:
    """What a report says of its row, before it is made uncertain."""
    layout = terms.layout
    of_class = "of which class the row is" if layout.classes else "whether the row is positive"
    of_group = ", of which group" if layout.groups else ""
    score = "its score" if layout.by_row == 1 else "that score"
    where = f"in which of {math.prod(terms.tree):,} ranges {score} lies"
    return where if layout.together else f"{of_class}{of_group} and {where}"


def _cells(nodes: Sequence[int], layout: Layout) -> list[int]:
    """Cells at each level of each block: its channels times nodes."""
    if layout.channels * sum(nodes) > _MOST_IN_ALL:
        raise PlanError(
            f"local reports tell at most {_MOST_IN_ALL:,} cells apart, of all models, labels and "
            "groups. Use fewer of them, or fewer bins."
        )
    sizes = layout.sizes
    if not nodes or any(count < 1 for count in nodes) or max(nodes) * max(sizes) > MOST_CELLS:
        raise PlanError(
            f"a local report tells at most {MOST_CELLS:,} cells apart, groups times classes times "
            "bins. Use fewer bins: 64 are plenty."
        )
    return [count * own for own in sizes for count in nodes]
