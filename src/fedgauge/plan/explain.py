"""A plan in a data-protection officer's words: what leaves each site, and what is promised."""

from fedgauge.plan.plan import EvaluationPlan


def explain(plan: EvaluationPlan) -> str:
    """What leaves each site under a plan, who learns what, and what is not protected."""
    which = f"Plan {plan.digest[:16]}. Every site must hold the same one."
    if plan.not_after is not None:
        which += f" No site counts under it after {plan.not_after}, by its own clock."
    paragraphs = [*plan.in_words(), ("Which plan this is", which)]
    return "\n\n".join(f"{title}\n  {text}" for title, text in paragraphs)
