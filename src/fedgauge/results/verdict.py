"""A result in five lines of words and numbers, and a sixth where its counts cannot be right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fedgauge.errors import UndefinedMetric

if TYPE_CHECKING:  # a result prints its verdict
    from fedgauge.results.evaluation import Evaluation

_AXIS_WORDS: Final = {
    "uniform": "bins of equal width",
    "logit": "bins of equal width in log-odds",
    "edges": "bins between given edges",
    "values": "known score values",
}


def verdict(result: Evaluation) -> str:
    """Who took part, what was measured, and what protects it."""
    lines = [_who(result), *_areas(result), _protection(result), _measurement(result)]
    if result.caution is not None:
        lines.append(f"caution            {result.caution}")
    return "\n".join(lines)


def counted(result: Evaluation) -> str:
    """How many clients, or reports, the result is of."""
    if result.reports == result.clients > 1:  # an intake does not know who sent how many
        return f"{result.clients:,} reports"
    return "1 client" if result.clients == 1 else f"{result.clients:,} clients"


def _who(result: Evaluation) -> str:
    examples = result.negatives + result.positives
    if result.pooled.hidden is not None:
        return f"{counted(result)}; noise hides the number of examples"
    about = "about " if result.pooled.noisy else ""
    share = f"{result.positives / examples:.1%}" if examples else "unknown share"
    return f"{counted(result)}, {about}{examples:,} examples, {share} positive"


def _areas(result: Evaluation) -> list[str]:
    try:
        return [
            f"ROC AUC            {result.roc_auc}",
            f"average precision  {result.average_precision}",
        ]
    except UndefinedMetric as error:
        return ["ROC AUC            undefined", f"average precision  undefined: {error}"]


def _protection(result: Evaluation) -> str:
    stated = result.privacy
    claim = {
        "simulated": "simulated in one process, nothing was protected on the way",
        "enforced": "enforced between the sites",
    }[stated.claim]
    if result.reports is not None and stated.claim == "enforced":
        claim = "each report was randomised before it was sent"
    if stated.epsilon is None:
        return f"privacy            exact sum, no differential privacy; {claim}"
    delta = f", delta {stated.delta:.0e}" if stated.delta else ""
    promise = f"epsilon {stated.epsilon:g}{delta} for one {stated.unit} ({stated.neighbours})"
    return f"privacy            {promise}; {claim}"


def _measurement(result: Evaluation) -> str:
    axis, size = result.released.axis, result.plan.bytes_per_client
    whose = "client" if result.reports is None else "report"
    amount = f"{size / 1024:,.0f} KiB" if size >= 1024 else _bytes(size)
    bins = f"{axis.bins:,} {_AXIS_WORDS[axis.kind]}"
    if axis != result.plan.axis:
        merged = f"merged from {result.plan.axis.bins:,}, no count below {result.plan.min_cell}"
        bins = f"{axis.bins:,} bins, {merged}"
    return f"measured           {bins}, {amount} per {whose}, plan {result.plan.digest[:8]}"


def _bytes(size: int) -> str:
    return "1 byte" if size == 1 else f"{size} bytes"
