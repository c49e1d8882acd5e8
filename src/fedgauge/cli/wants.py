"""What `plan --want` asks for, and what it takes in words."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any, NamedTuple

import fedgauge as fg
from fedgauge.cli.terminal import warn, with_progress

_USELESS = 0.02  # expected error of the AUC; one in twenty is then off by more than 0.05
_OFTEN = 0.1  # share of results that are withheld
_CLOSE = 0.07  # as the planner searches
_SHORT = {
    "roc": "roc_area_error",
    "ece": "expected_calibration_error",
    "auc": "roc_auc",
}


class Want(NamedTuple):
    """What is wanted: a ROC Area Error, or an interval that reaches so far to either side."""

    within: float
    metric: str
    at: float | None

    @property
    def in_words(self) -> str:
        """After "Enough"."""
        if self.metric == _SHORT["roc"]:
            return f"for a ROC Area Error of {self.within:g}"
        where = "" if self.at is None else f" at {self.at:g}"
        name = "AUC" if self.metric == "roc_auc" else self.metric.replace("_", " ")
        return f"to know the {name}{where} within {self.within:g}"


def read_want(text: str) -> Want:
    """A number, or such as recall@0.5=0.02 and ece=0.01."""
    name, equals, within = text.rpartition("=")
    metric, has_threshold, at = name.partition("@")
    metric = metric.strip().lower().replace("-", "_")
    try:
        if bool(equals) != bool(metric):
            raise ValueError
        wanted = Want(float(within), metric or "roc", float(at) if has_threshold else None)
    except ValueError:
        raise fg.PlanError(
            f"--want is written like 0.001, recall@0.5=0.02 or ece=0.01, got {text!r}."
        ) from None
    return wanted._replace(metric=_SHORT.get(wanted.metric, wanted.metric))


def answer(want: Want, needed: fg.planner.Needs, *, noisy: bool) -> str:
    """Whether there is enough, and what would be."""
    if math.isclose(needed.expected, want.within, rel_tol=_CLOSE):
        return f"Enough {want.in_words}? just about."
    enough = "yes" if needed.expected < want.within else "no"
    if want.metric != _SHORT["roc"]:
        enough += f", within {needed.expected:.2g}"
    rough = "" if needed.caution is None else f" A rough answer: {needed.caution}."
    return f"Enough {want.in_words}? {enough}: {takes(needed, noisy=noisy)}{rough}"


def takes(needed: fg.planner.Needs, *, noisy: bool) -> str:
    """What it takes."""
    epsilon, examples = needed.epsilon, needed.examples
    about = "" if examples is None else f"about {int(float(f'{examples:.2g}')):,} examples"
    if not noisy:
        return f"it takes {about}." if about else "no number of examples is enough with such bins."
    if epsilon is None and not about:
        return "no epsilon and no number of examples is enough with such bins."
    if epsilon is None:
        return (
            "no epsilon that protects anybody is enough with these examples; it takes "
            f"{about} with this epsilon."
        )
    if not about:
        return f"it takes epsilon {epsilon:.2g} with these examples; more of them are not enough."
    return f"it takes epsilon {epsilon:.2g} with these examples, or {about} with this epsilon."


def warn_of_useless(chosen: fg.EvaluationPlan, known: dict[str, Any], quiet: bool) -> None:
    """Say so where the AUC to expect is too wrong to be of use, and what would be enough."""
    if chosen.predicted is None or chosen.predicted.roc_auc_error <= _USELESS:
        return
    expected = chosen.predicted.roc_auc_error
    low, high = (f"{end.roc_auc_error:.2g}" for end in chosen.predicted.span)
    by = f" ({low} to {high} by what scores are like)" if low != high else ""
    enough = "It takes more examples, more bins or a smaller --min-cell."
    if chosen.is_noisy:
        enough = "It takes more examples or a larger --epsilon."
    if chosen.is_noisy and len(chosen.task.slices) == 1:  # of several no more is known
        with suppress(fg.FedgaugeError):  # no answer there: the words stay
            # The AUC is off by no more than the area between the curves.
            asked = {"privacy": chosen.privacy, **known}
            needed = with_progress(quiet, lambda: fg.planner.needs(_USELESS, **asked))
            enough = f"For an expected error of {_USELESS:g} {takes(needed, noisy=True)}"
    told = (
        f"the AUC is expected to be off by {expected:.2g}{by}, and one in twenty by more than "
        "twice as much: such a result is of little use."
    )
    if (withheld := chosen.predicted.withheld) >= _OFTEN:
        told = (
            f"in about {withheld:.0%} of such evaluations noise hides a class, and nothing is "
            "told at all."
        )
    warn(f"{told} {enough}")
