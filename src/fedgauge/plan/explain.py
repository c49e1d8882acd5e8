"""A plan in a data-protection officer's words: what leaves each site, and what is promised."""

from collections.abc import Iterable
from typing import Final

from fedgauge.plan.plan import EvaluationPlan

_HOLDS: Final = (
    "In evaluations between sites that each keep their own rows; their results say enforced. Where "
    "one program is given the rows of all, whoever runs it sees them, and the result says "
    "simulated: then none of this protects anybody."
)


def explain(plan: EvaluationPlan) -> str:
    """All that an officer decides by: the brief, each party's worst case, and an example."""
    stated = plan.statement("enforced")
    learned = plan.privacy.learned(plan.cohort, plan.min_cell)
    parties = "\n  ".join(f"{who}: {what}" for who, what in learned)
    return _as_text(
        [
            *plan.in_words(),
            ("What each party learns in the worst case", parties),
            plan.privacy.worked(stated.delta, plan.min_cell),
            ("Where this holds", _HOLDS),
            _name(plan),
        ]
    )


def brief(plan: EvaluationPlan) -> str:
    """What leaves each site under a plan, what is promised, and what is not protected."""
    return _as_text([*plan.in_words(), _name(plan)])


def _name(plan: EvaluationPlan) -> tuple[str, str]:
    which = f"Plan {plan.digest[:32]}. Every site must hold the same one."
    if plan.not_after is not None:
        which += f" No site counts under it after {plan.not_after}, by its own clock."
    return "Which plan this is", which


def _as_text(paragraphs: Iterable[tuple[str, str]]) -> str:
    return "\n\n".join(f"{title}\n  {text}" for title, text in paragraphs)
