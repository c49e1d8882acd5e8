"""A plan in words for a data-protection officer."""

from collections.abc import Iterable, Iterator
from typing import Final

from fedgauge.data.examples import Label
from fedgauge.plan.plan import EvaluationPlan
from fedgauge.plan.task import OTHER, Task, measured_by

_LABELS: Final = {
    "class": "Classes, of which a row has one",
    "label": "Labels, of which a row may have several",
}
LEARNT: Final = "What each party learns in the worst case"
_HOLDS: Final = (
    "In evaluations between sites that each keep their own rows. Their results say enforced. In a "
    "trial run, one program reads the rows of all sites, and the person who runs it sees them. "
    "Such a result says simulated, and none of this protects anybody."
)


def explain(plan: EvaluationPlan) -> str:
    """All that an officer decides by: the brief, each party's worst case, and an example."""
    return _as_text([*paragraphs(plan), _name(plan)])


def paragraphs(plan: EvaluationPlan) -> list[tuple[str, str]]:
    """The same with titles, but for which plan it is; each party's worst case is a line."""
    stated = plan.statement("enforced")
    learned = plan.privacy.learned(plan.cohort, plan.min_cell)
    parties = "\n  ".join(f"{who}: {what}" for who, what in learned)
    return [
        _positive(plan),
        *plan.in_words(),
        *_apart(plan),
        (LEARNT, parties),
        plan.privacy.worked(stated.delta, plan.min_cell),
        ("Where this holds", _HOLDS),
    ]


def brief(plan: EvaluationPlan) -> str:
    """What leaves each site under a plan, what is promised, and what is not protected."""
    return _as_text([_positive(plan), *plan.in_words(), *_apart(plan), _name(plan)])


def _positive(plan: EvaluationPlan) -> tuple[str, str]:
    """Which label is evaluated: the one that the data are about."""
    return "What counts as positive", measured_by(plan.task).positive_in_words


def _all(names: Iterable[Label]) -> str:
    """Every name, however many: what somebody must approve of hides behind no others."""
    return ", ".join(map(str, names))


def _apart(plan: EvaluationPlan) -> Iterator[tuple[str, str]]:
    """What rows are told apart by beyond two classes and one score, and what that shows."""
    task = measured_by(plan.task)
    if len(task.slices) == 1:
        return
    text = f"{' '.join(_kinds(task))} The result shows as much of each of these as of all rows"
    text += ", and how far groups differ." if task.groups else "."
    if task.groups and not plan.is_noisy:
        text += (
            " In an exact sum, groups make small numbers likelier. Someone who knows the group "
            "and range of one person, and finds one example there, learns that person's label."
        )
    yield "What is told apart", text


def _kinds(task: Task) -> Iterator[str]:
    labels = [name for name in task.labels_told if name is not None]
    if labels:
        yield f"{_LABELS[task.label_noun]}, with a score for each: {_all(labels)}."
    if task.models:
        yield f"Models that score the same rows: {_all(task.models)}."
    if task.pairs:
        pairs = "; ".join(f"{one} and {other}" for one, other in task.pairs)
        yield f"Both scores of a row are also counted together, of these models: {pairs}."
    if task.groups:
        every = [f"{name} ({_all([*task.groups[name], OTHER])})" for name in task.groups]
        how = " and ".join(every) + (", all combinations" if task.crossed else "")
        yield (
            f"Groups by {how}. Rows of no listed group, or where that is not known, are in "
            f"{OTHER!r}."
        )


def _name(plan: EvaluationPlan) -> tuple[str, str]:
    which = f"Plan {plan.digest[:32]}. Every site must hold the same one."
    if plan.not_after is not None:
        which += f" No site counts under it after {plan.not_after}, by its own clock."
    return "Which plan this is", which


def _as_text(paragraphs: Iterable[tuple[str, str]]) -> str:
    return "\n\n".join(f"{title}\n  {text}" for title, text in paragraphs)
