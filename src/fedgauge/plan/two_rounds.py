"""Plans of two rounds: the first finds where scores are, the second counts classes there.

Sites judge, approve and pay for the plan that searches. Its first round's release turns it into the
plan of the second (:func:`located`), with the new bins and the counts they follow from.
"""

from typing import TYPE_CHECKING, Final, Self

import msgspec
import numpy as np
from msgspec import structs

from fedgauge.arrays import Floats
from fedgauge.errors import AxisError, PlanError
from fedgauge.histograms.axis import Axis
from fedgauge.histograms.two_round import PARTS, CoarseGroups, TwoRound
from fedgauge.plan.limits import check_counts, is_session
from fedgauge.plan.rounds import HistogramRound, ReportRound, RoundTerms
from fedgauge.plan.task import ScoredTask, SearchTask, measured_by
from fedgauge.privacy import Cohort, PrivacyModel
from fedgauge.privacy.models import LevelNoise

if TYPE_CHECKING:
    from fedgauge.plan.plan import EvaluationPlan

_MOST: Final = 1 << 62  # that a count of the first round may be
Sent = HistogramRound | ReportRound


class Found(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The release of the first round; the bins of the second follow from it."""

    two: TwoRound
    counts: tuple[int, ...]  # all scores in each coarse bin
    clients: int  # or reports
    starts: tuple[int, ...] = ()  # the coarse bins where counts begin, if small cells were merged
    session: str = ""  # of the secure sum, in hexadecimal; empty without one

    def __post_init__(self) -> None:
        if not is_session(self.session):
            raise PlanError("found.session is the id of a secure sum: 64 hexadecimal digits.")

    def __repr__(self) -> str:  # a plan prints in a few lines
        return f"Found({len(self.counts):,} counts of {self.clients:,}, {self.two!r})"

    @classmethod
    def of(
        cls, two: TwoRound, axis: Axis, counts: Floats, clients: int, session: bytes = b""
    ) -> Self:
        """What was released on the coarse axis, or on one that was merged from it."""
        totals = tuple(int(count) for count in np.rint(counts.sum(axis=0)))
        merged = axis != two.coarse
        starts = np.searchsorted(two.coarse.edges, axis.edges[:-1]).tolist() if merged else ()
        return cls(two, totals, clients, tuple(starts), session.hex())

    @property
    def edges(self) -> Floats:
        """What the counts lie between."""
        coarse = self.two.coarse.edges
        return np.append(coarse[list(self.starts)], coarse[-1]) if self.starts else coarse

    @property
    def axis(self) -> Axis:
        """The bins of the second round; refused where these are no counts of a first one."""
        bins = self.two.coarse.bins
        starts = self.starts or tuple(range(bins))
        rising = all(a < b for a, b in zip(starts, (*starts[1:], bins), strict=True))
        if len(starts) != len(self.counts) or starts[0] != 0 or not rising:
            raise PlanError("the counts of the first round do not fit its axis.")
        if max(map(abs, self.counts)) > _MOST or self.clients < 1:
            raise PlanError("the counts of the first round are of nobody, or too large.")
        try:
            axis = self.two.axis(CoarseGroups(starts, self.counts))
            self.two.check(axis)
        except AxisError as error:
            raise PlanError(str(error)) from None
        return axis


def rounds_for(
    task: SearchTask, privacy: PrivacyModel, cohort: Cohort | None, largest: int
) -> tuple[Sent, Sent]:
    """Both rounds of a plan that searches, with the least noise that keeps its promise."""
    two, coarse = task.two, (task.two.coarse.bins,)
    if privacy.sends_reports:
        first = ReportRound.calibrated(privacy, coarse, task.layout)
        return first, ReportRound.calibrated(privacy, (two.bins,), task.of.layout)
    assert cohort is not None  # noqa: S101  (a sum has one)
    seen = (task.per_row, task.of.per_row)
    shares = (two.share, 1.0 - two.share)
    weights = [
        share / times for share, times in zip(shares, seen, strict=True) for _ in range(times)
    ]
    noise = privacy.calibrate(cohort, sum(seen), weights=weights).levels
    return (
        HistogramRound(coarse, noise[:1], largest),
        HistogramRound((two.bins,), noise[-1:], largest),
    )


def terms_of(plan: "EvaluationPlan") -> tuple[RoundTerms, RoundTerms]:
    """What each round works within. The bins of a second one that is not found yet are the most."""
    task, two = _parts(plan)
    coarse = two.coarse
    search = SearchTask(task, two)
    bins = plan.axis if plan.found is not None else coarse
    tree = plan.tree if plan.found is not None else (two.bins,)
    return (
        RoundTerms.of(plan.privacy, plan.cohort, search, coarse, (coarse.bins,)),
        RoundTerms.of(plan.privacy, plan.cohort, task, bins, tree),
    )


def _parts(plan: "EvaluationPlan") -> tuple[ScoredTask, TwoRound]:
    task = measured_by(plan.task)
    two = plan.task.two if plan.found is None else plan.found.two
    if two is None or not isinstance(task, ScoredTask):
        raise PlanError("a plan of two rounds is for scores and labels in one place.")
    return task, two


def check(plan: "EvaluationPlan") -> None:
    """Refuse a plan of two rounds that does not hang together."""
    if plan.found is not None:
        _check_located(plan, plan.found)
        return
    _, two = _parts(plan)
    if plan.axis != two.coarse or plan.tree != (two.coarse.bins,):
        raise PlanError("the first of two rounds counts over the coarse axis, without a tree.")
    for sent, terms in zip(plan.rounds, terms_of(plan), strict=True):
        _check_kind(sent).check(terms)
    _check_simple(plan)


def _check_simple(plan: "EvaluationPlan") -> None:
    """Refuse what is not counted in two rounds."""
    task, two = _parts(plan)
    if plan.calibrator is not None:
        raise PlanError(
            "two rounds are for scores of an unknown scale, and a map gives probabilities. Leave "
            "out one of them."
        )
    if task.tables(two.coarse, noisy=plan.privacy.adds_noise):
        raise PlanError(
            "two rounds count one score at a time. Leave out pairs and also, or name an axis."
        )
    check_counts(task.per_row, task.rows * two.bins)


def _check_kind(sent: object) -> Sent:
    if not isinstance(sent, Sent) or sent.sum_steps or sent.tables:
        raise PlanError("two rounds are for counts, or reports, without score sums and tables.")
    return sent


def _check_located(plan: "EvaluationPlan", found: Found) -> None:
    if plan.axis != found.axis:
        raise PlanError(
            "the bins of the second round are not those that follow from the counts of the first."
        )
    before(plan)  # refused as the plan of a search would be
    second = _check_kind(plan.rounds[-1])
    if plan.tree != (plan.axis.bins,) or second != _of_bins(plan, second, plan.axis.bins):
        raise PlanError("the second round counts in the bins that were found, without a tree.")


def before(plan: "EvaluationPlan") -> "EvaluationPlan":
    """The plan that searched, of one whose bins were found: what sites approved of."""
    task, two = _parts(plan)
    first, second = (_check_kind(sent) for sent in plan.rounds)
    return structs.replace(
        plan,
        task=SearchTask(task, two),
        axis=two.coarse,
        tree=(two.coarse.bins,),
        rounds=(first, _of_bins(plan, second, two.bins)),
        found=None,
    )


def require_whole(plan: "EvaluationPlan") -> None:
    """Refuse to begin with a second round: its bins were found among other rows, or by nobody."""
    if plan.found is not None:
        raise PlanError(
            "the bins of this plan were found on another occasion. Start with the plan of both "
            "rounds: plan.whole."
        )


def located(plan: "EvaluationPlan", found: Found) -> "EvaluationPlan":
    """The plan of the second round."""
    task, two = _parts(plan)
    if found.two != two:
        raise PlanError("these bins were found under another plan.")
    axis = found.axis
    first, second = (_check_kind(sent) for sent in plan.rounds)
    return structs.replace(
        plan,
        task=task,
        axis=axis,
        tree=(axis.bins,),
        rounds=(first, _of_bins(plan, second, axis.bins)),
        found=found,
    )


def _of_bins(plan: "EvaluationPlan", second: Sent, bins: int) -> Sent:
    """The second round for as many bins as were found: its noise does not depend on them."""
    task, _ = _parts(plan)
    return second.of_bins(bins, plan.privacy, task.layout)


def check_promise(plan: "EvaluationPlan") -> None:
    """Refuse rounds that together cost more than is promised: both sums count the same rows."""
    terms = terms_of(plan)
    rounds = [_check_kind(sent) for sent in plan.rounds]
    summed = [sent for sent in rounds if isinstance(sent, HistogramRound)]
    if not summed:
        for sent, within in zip(rounds, terms, strict=True):
            sent.check_promise(within)
        return
    levels = [sent.seen_by_a_row(within).levels for sent, within in zip(summed, terms, strict=True)]
    plan.privacy.check_promise(LevelNoise(levels[0] + levels[1], 0.0), plan.terms.sum_cohort)


def shares_of(plan: "EvaluationPlan") -> tuple[float, float]:
    """What each round has of the budget, or of the reports."""
    _, two = _parts(plan)
    return two.share, 1.0 - two.share


def facts(plan: "EvaluationPlan") -> list[tuple[str, str]]:
    """Both rounds at a glance."""
    _, two = _parts(plan)
    bins = f"{plan.axis.bins:,} bins" if plan.found is not None else f"at most {two.bins:,} bins"
    depth = "(half of equal depth, half even)" if two.is_of_probabilities else "of equal depth"
    return [("first round", repr(two.coarse)), ("second round", f"{bins} {depth}")]


def in_words(plan: "EvaluationPlan") -> list[tuple[str, str]]:
    """Titles and paragraphs of both rounds, for whoever must approve of them."""
    _, two = _parts(plan)
    first, second = (
        sent.in_words(terms) for sent, terms in zip(plan.rounds, terms_of(plan), strict=True)
    )
    (_, leaves_first), (_, leaves_then), (learned, text), *others = first[0], *second
    share = f"{two.share:.0%}"
    if plan.privacy.sends_reports:
        titles = f"first, for {share} of its rows", "then, for the others"
        text = f"{text} Reports of the first round show where scores lie."
    else:
        titles = "first", "then"
        text = (
            "From the first round, its sum: where scores lie, for both classes together. From "
            f"the second: {text[:1].lower()}{text[1:]}"
        )
    return [
        ("Two rounds", f"{_how(plan, share)} {_why(two, plan)}"),
        (f"What leaves each site {titles[0]}", leaves_first),
        (f"What leaves each site {titles[1]}", leaves_then),
        (learned, text),
        *others,
    ]


def _how(plan: "EvaluationPlan", share: str) -> str:
    """What a row has to do with both rounds."""
    if plan.privacy.sends_reports:
        return (
            f"Each row is reported in one of two rounds: {share} of them, drawn at random whatever "
            "they hold, in the first. The random number that names a report says of which round it "
            "is. The promise is for its one report."
        )
    if plan.privacy.adds_noise:
        return (
            f"Each row counts in two rounds. The first takes {share} of epsilon, and the promise "
            "is for both together. A site that drops out in between is missing in the second."
        )
    return (
        "Each row counts in two rounds, both exact. The second is opened for the same sites and "
        "unchanged rows alone: else the difference of both would show what changed."
    )


def _why(two: TwoRound, plan: "EvaluationPlan") -> str:
    """Where the ranges of the second round come from, and which ones nobody can ask for."""
    what = "estimates" if plan.privacy.sends_reports else "sum"
    depth = "equally many examples in each"
    if two.is_of_probabilities:
        depth = "half of them narrower where more examples are, half equally wide"
    least = f", and none but the outer two than {two.narrowest:g}" if two.narrowest else ""
    return (
        f"The ranges of the second, at most {two.bins:,}, follow from the {what} of the first: "
        f"{depth}, as far as it tells. Each site finds them again from there, and refuses others. "
        f"None is narrower than 1/{PARTS} of a range of the first{least}. What "
        "the first gave is shown with the result."
    )
