"""A plan in a data-protection officer's words: what leaves each site, and what is promised."""

import math

from fedgauge.plan import EvaluationPlan
from fedgauge.privacy import DistributedDP, LocalDP
from fedgauge.privacy.shares import honest_parties


def explain(plan: EvaluationPlan) -> str:
    """What leaves each site under a plan, who learns what, and what is not protected."""
    privacy = plan.privacy
    if isinstance(privacy, LocalDP):
        return _write(plan, _explain_reports(plan, privacy))
    promise = _promise(privacy) if isinstance(privacy, DistributedDP) else _no_promise(plan)
    paragraphs = [
        ("What leaves each site", _leaves(plan)),
        ("What is learned from it", _learned(plan)),
        ("What is promised", promise),
        ("Who must take part", _cohort(plan)),
        ("What is not protected", _unprotected(plan)),
    ]
    return _write(plan, paragraphs)


def _write(plan: EvaluationPlan, paragraphs: list[tuple[str, str]]) -> str:
    which = f"Plan {plan.digest[:16]}. Every site must hold the same one."
    paragraphs = [*paragraphs, ("Which plan this is", which)]
    return "\n\n".join(f"{title}\n  {text}" for title, text in paragraphs)


def _no_promise(plan: EvaluationPlan) -> str:
    text = (
        "No differential privacy. The exact sum is released: small groups can show in it, and two "
        "sums that differ by one site show that site's counts."
    )
    if plan.sum_steps:
        text += (
            " Where only one example of all sites is in a range, the sum shows its score, to "
            f"1/{2 * plan.sum_steps} of the range."
        )
    return text


def _explain_reports(plan: EvaluationPlan, privacy: LocalDP) -> list[tuple[str, str]]:
    size = "1 byte" if plan.bytes_per_client == 1 else f"{plan.bytes_per_client:,} bytes"
    leaves = (
        f"One report for each row ({size}, and a random number that names the report): whether "
        f"the row is positive and in which of {plan.axis.bins:,} ranges its score lies, made "
        "uncertain by the site's own secure generator before it is sent. No score, name or "
        "identifier leaves."
    )
    learned = (
        "A report alone leaves its row uncertain. Many add up to estimates of the curves of all "
        "rows together. The number of reports of each site is known."
    )
    promise = (
        f"Differential privacy with epsilon {privacy.epsilon:g} for one row of data, whoever "
        f"reads its report. Whatever else is known, the chance of any report changes at most "
        f"{math.exp(min(privacy.epsilon, 100.0)):,.2f}-fold if the row were replaced by another, "
        "or had another label. A row that is reported again pays its epsilon again."
    )
    return [
        ("What leaves each site", leaves),
        ("What is learned from it", learned),
        ("What is promised", promise),
        ("Who must take part", "Nobody in particular: the promise does not rest on others."),
        (
            "What is not protected",
            "That a site takes part, and with how many rows; results that a site falsifies; a "
            "person with many rows, of whom only each row is protected.",
        ),
    ]


def _leaves(plan: EvaluationPlan) -> str:
    text = (
        f"{plan.numbers:,} whole numbers ({plan.bytes_per_client:,} bytes), once: how many "
        f"positive and how many negative examples have a score in each of {plan.axis.bins:,} ranges"
    )
    if len(plan.rounds[0].nodes) > 1:
        text += ", and in larger ranges made of these"
    if plan.sum_steps:
        text += (
            "; and how high within each range the scores of the positive and of the negative "
            "examples lie, added up, which gives their average"
        )
    text += ". No row, score, label, name or identifier leaves."
    if isinstance(plan.privacy, DistributedDP):
        what = "count and every sum" if plan.sum_steps else "count"
        text += (
            f" Before sending, the site adds random whole numbers to every {what}, drawn from its "
            "operating system's secure generator."
        )
        if plan.privacy.unit != "example":
            kept, unit = plan.privacy.max_per_unit, plan.privacy.unit
            rows = "1 row" if kept == 1 else f"{kept} rows"
            text += f" Of each {unit} at most {rows} count; the rest are left out."
    return text


def _learned(plan: EvaluationPlan) -> str:
    what = "the sum over all sites"
    if isinstance(plan.privacy, DistributedDP):
        what += ", blurred by the random numbers of all of them"
    found = "the ROC and PR curves, AUC and average precision"
    if plan.sum_steps:
        found += ", and the average scores within the ranges,"
    return f"Only {what}. From it come {found} of all sites together; nothing about one site alone."


def _promise(privacy: DistributedDP) -> str:
    whose = {
        "example": "one row of data",
        "subject": "all rows of one person at one site",
        "client": "all data of one site",
    }[privacy.unit]
    change = {
        "add-remove": "were there or not",
        "replace-one": "were replaced by others, or had other labels",
    }[privacy.neighbours]
    factor = math.exp(min(privacy.epsilon, 100.0))
    text = (
        f"Differential privacy with epsilon {privacy.epsilon:g}. Whatever else is known, the "
        f"chance of any result changes at most {factor:,.2f}-fold if {whose} {change}"
    )
    if privacy.delta:
        text += f", except with a probability below {privacy.delta:g}"
    return text + ". The promise is for this one evaluation; each further one adds its own epsilon."


def _cohort(plan: EvaluationPlan) -> str:
    cohort = plan.cohort
    text = f"At least {cohort.min_survivors} sites; with fewer nothing is released."
    if isinstance(plan.privacy, DistributedDP):
        parties = honest_parties(cohort)
        text += (
            f" The promise holds when {parties} of them add their random numbers honestly, even "
            f"if {cohort.max_colluding} share all they know with whoever reads the result."
        )
    return text


def _unprotected(plan: EvaluationPlan) -> str:
    text = "That a site takes part; results that a site falsifies by counting wrongly"
    if isinstance(plan.privacy, DistributedDP) and plan.privacy.unit == "subject":
        text += "; a person with rows at two sites, who is protected at each but not over both"
    if isinstance(plan.privacy, DistributedDP) and plan.privacy.unit == "example":
        text += "; a person with many rows, of whom only each row is protected"
    return text + "."
