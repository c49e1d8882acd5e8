"""Whether results can be compared: what must be the same in both, and what is noted else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedgauge.errors import InputError

if TYPE_CHECKING:
    from fedgauge.results.evaluation import Evaluation


def kinds(result: Evaluation) -> tuple[Any, Any]:
    """The maps that scores went through: before they were counted, and as they are read."""
    return result.plan.calibrator, result.mapped_by


def require_alike(first: Evaluation, second: Evaluation, names: tuple[str, str]) -> tuple[str, ...]:
    """Refuse results of which no number compares; note what else differs."""
    _require_one_task(first, second, names)
    one, other = (_positive(each) for each in (first, second))
    if one != other:
        raise InputError(
            f"{names[0]} and {names[1]} count different labels as positive, so their numbers do "
            "not compare. Evaluate one of them again with the positive label of the other."
        )
    mine, theirs = ({each.slice for each in result.slices} for result in (first, second))
    lone = len(mine) == 1 == len(theirs)
    if not lone and not mine & theirs:
        raise InputError(
            f"{names[0]} and {names[1]} have no model, class or group in common. Choose what is to "
            "be compared: result.select(model=...) of each."
        )
    return tuple(_notes(first, second, names, len(mine ^ theirs), lone=lone))


def _require_one_task(first: Evaluation, second: Evaluation, names: tuple[str, str]) -> None:
    """A class of several, chosen, may be a task of two classes; several are of one kind."""
    if not (first.is_several or second.is_several):
        return
    if first.is_several != second.is_several:
        several, single = names if first.is_several else names[::-1]
        raise InputError(
            f"{several} is of several classes, labels or models, {single} of one score. Choose one "
            "of the first: result.select(label=...) or select(model=...), --class or --model."
        )
    if type(first.plan.task) is not type(second.plan.task):
        raise InputError(
            f"{names[0]} and {names[1]} are of different kinds of task, so their numbers do not "
            "compare. Choose a class or label of each: result.select(label=...)."
        )


def require_series(results: Mapping[str, Evaluation]) -> None:
    """Refuse results that are no series of one model: other classes, other maps, one twice."""
    (first, result), *others = results.items()
    seen = {result.released.digest: first}
    result._require_one()
    _require_unbroken(results)
    for name, other in others:
        require_alike(result, other, (first, name))
        if other.slice != result.slice:
            raise InputError(f"{first} is of {result.slice}, {name} of {other.slice}: choose one.")
        if kinds(other) != kinds(result):
            raise InputError(
                f"{first} and {name} are of scores that went through different maps, so they are "
                "no series. Read both through one map, or none: result.with_calibrator(...)."
            )
        if other.released.digest in seen:
            raise InputError(
                f"{seen[other.released.digest]} and {name} are the same result. Each look counts "
                "once: leave one of them out."
            )
        seen[other.released.digest] = name
    _require_one_each(results)


def _require_one_each(results: Mapping[str, Evaluation]) -> None:
    """Refuse two signed results of one evaluation.

    Its coordinator can sign other counts each time, and members confirmed one sum.
    """
    looks: dict[str, str] = {}
    for name, result in results.items():
        session = result.signature.session
        if session is not None and (first := looks.setdefault(session, name)) != name:
            raise InputError(
                f"{first} and {name} are of one evaluation, with different counts. Each look "
                "counts once: ask its coordinator which is right, and leave the other one out."
            )


def _require_unbroken(results: Mapping[str, Evaluation]) -> None:
    """Refuse what is not as it was signed, and signed results of different models."""
    models: dict[str, str] = {}
    for name, result in results.items():
        signature = result.signature
        if signature.state == "broken":
            raise InputError(
                f"{name} is not what was signed: {signature.reason}. Ask its coordinator for the "
                "result, or leave this file out."
            )
        if signature.model is not None:
            models.setdefault(signature.model, name)
    if len(models) > 1:
        one, other, *_ = models.values()
        raise InputError(
            f"{one} and {other} were signed for different models, so they are no series. Give each "
            "model a folder of its own; fg.diff compares two results."
        )


def _notes(
    first: Evaluation, second: Evaluation, names: tuple[str, str], unshared: int, *, lone: bool
) -> list[str]:
    one, other = first.plan, second.plan
    notes = []
    if lone and first.slice != second.slice:
        notes.append(f"{names[0]} is of {first.slice}, {names[1]} of {second.slice}")
    elif unshared:
        notes.append(f"{unshared:,} slices are in one of the results only and are left out")
    if kinds(first) != kinds(second):
        notes.append("scores went through different maps (calibrators), or only those of one did")
    if one.axis != other.axis:
        notes.append("the axes differ, so each has a binning error of its own")
    if one.privacy != other.privacy:
        notes.append("privacy differs, so one may be noisier than the other")
    if first.clients != second.clients:
        notes.append(f"{first.clients:,} clients took part in one, {second.clients:,} in the other")
    return notes


def _positive(result: Evaluation) -> str:
    """The positive class; without a name it is 1, or True."""
    if result.is_several:
        return "each"  # as slices name them
    if result.slice.label is not None:
        return result.slice.label
    positive = result.plan.task.positive
    return "1" if positive is None or positive is True else str(positive)
