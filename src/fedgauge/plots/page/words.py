"""What a report says in words, of a result as a whole: verdict, privacy, errors, plan."""

from __future__ import annotations

from html import escape
from typing import Final

from fedgauge.errors import UndefinedMetric
from fedgauge.measures.intervals import show
from fedgauge.plan.explain import paragraphs
from fedgauge.plots.page.markup import facts, folded, paragraph
from fedgauge.results.evaluation import Evaluation
from fedgauge.results.proof import Signature
from fedgauge.results.verdict import by_round, verdict

_CHANCE: Final = 0.5
_TITLES: Final = 19  # characters before the words of a line in a verdict


def in_short(result: Evaluation, signature: Signature) -> str:
    """The verdict: sentences first, then the lines that a terminal prints."""
    told = []
    if signature.state == "broken":
        told.append(paragraph(f"Do not use these numbers: {signature.reason}.", "caution"))
    if result.caution is not None:
        told.append(paragraph(f"Caution: {result.caution}", "caution"))
    told += [paragraph(sentence, "lead") for sentence in _sentences(result)]
    first, *lines = verdict(result, slices=False).splitlines()
    rows = [("who took part", first)]
    rows += [(line[:_TITLES].strip(), line[_TITLES:]) for line in lines]
    return "".join([*told, facts([*rows, ("signature", signature.in_words)])])


def _sentences(result: Evaluation) -> list[str]:
    """What the ROC AUC says, and how far it is from that of pooled data."""
    if result.is_several:
        return [_of_several(result)]
    try:
        auc = result.roc_auc
    except UndefinedMetric as error:
        return [f"There is no verdict: {error}"]
    low, high = auc.interval or auc.bounds
    span = f"{low:.1%} to {high:.1%} at {result.level * 100:g}%"
    ranks = (
        f"Of a positive and a negative drawn at random, the model gives the positive the higher "
        f"score in {auc.value:.1%} of cases ({span})."
    )
    if low <= _CHANCE <= high:
        ranks += " This may be no better than chance."
    elif high < _CHANCE:
        ranks += " This is worse than chance: scores may be the wrong way round."
    return [ranks, how_far(result)]


def how_far(result: Evaluation) -> str:
    """Where the number lies that pooled data would give."""
    low, high = result.roc_auc.bounds
    sure = f"with {result.level * 100:g}% confidence" if result.pooled.noisy else "for certain"
    return (
        f"Had all rows been in one place, their ROC AUC would lie between {show(low)} and "
        f"{show(high)}, {sure}."
    )


def _of_several(result: Evaluation) -> str:
    parts = len({(each.slice.model, each.slice.label) for each in result.slices})
    told = f"This result is of {parts} scores of each row: choose one below."
    if not result.has_average:
        return told
    try:
        return f"The macro average of the ROC AUC is {result.macro('roc_auc')}. {told}"
    except UndefinedMetric as error:
        return f"There is no average: {error} {told}"


def privacy(result: Evaluation, signature: Signature) -> str:
    """What is promised, to whom, whether it was kept up by a protocol, and what that means."""
    stated, cohort = result.privacy, result.privacy.cohort
    claim = {
        "enforced": "enforced: a protocol between the parties kept it",
        "simulated": "simulated: one process held all rows, and nobody was protected from it",
    }[stated.claim]
    rows = [("claim", claim), ("model", result.plan.privacy.title)]
    if stated.epsilon is not None:
        rows += [("epsilon", f"{stated.epsilon:g}"), ("delta", f"{stated.delta or 0:.3g}")]
        rows += [("protects", f"one {stated.unit}"), ("neighbours", stated.neighbours or "")]
        shared = by_round(result)
        rows += [] if shared is None else [("shares", shared)]
    else:
        rows.append(("epsilon", "none: the sum is exact, without differential privacy"))
    if cohort is not None:
        rows.append(("sites needed", f"{cohort.min_survivors:,} or more in the sum"))
        rows.append(("collusion", f"up to {cohort.max_colluding:,} sites may work together"))
    if result.reports is not None:
        rows.append(("reports", f"{result.reports:,}"))
    rows += [("clients counted", f"{result.clients:,}"), ("signature", signature.in_words)]
    if stated.public_inputs:
        rows.append(("public", ", ".join(stated.public_inputs)))
    words = "".join(
        f"<h3>{escape(title)}</h3>{_lines(text)}" for title, text in paragraphs(result.plan)
    )
    return facts(rows) + folded("What leaves a site, and who could learn what", words)


def _lines(text: str) -> str:
    return "".join(paragraph(line.strip()) for line in text.splitlines())


def plan(result: Evaluation) -> str:
    """The plan and its digest."""
    axis = result.released.axis
    sender = "client" if result.reports is None else "report"
    rows = [
        ("digest", result.plan.digest),
        (
            "score axis",
            f"{axis.bins:,} bins from {axis.low:g} to {axis.high:g} ({_origin(result)})",
        ),
        ("sent", f"{result.plan.bytes_per_client:,} bytes per {sender}"),
        ("curves between edges", repr(result.estimator)),
        ("intervals", f"{result.level * 100:g}% confidence"),
    ]
    text = f'<pre tabindex="0">{escape(result.plan.to_toml())}</pre>'
    return facts(rows) + folded("The plan as a file", text)


def _origin(result: Evaluation) -> str:
    """What kind of bins these are, and what they were found over."""
    found = result.plan.found
    if found is None:
        return result.released.axis.kind
    return f"found in a first round over {found.two.coarse.bins:,} bins, {found.two.coarse.kind}"
