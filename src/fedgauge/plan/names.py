"""Names in plans: of classes, groups and models, checked at the door."""

import math
import unicodedata
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from fedgauge.data.labels import Label, meaning
from fedgauge.errors import PlanError

MOST_NAMES: Final = 1000  # of classes, groups or models: more are ids
_LONGEST: Final = 200  # characters of a name
_MOST_TOLD: Final = 20  # names in a sentence
_MOST_QUOTED: Final = 200  # characters of a label
_NO_PAIRS: Final = 'pairs must be a list of two of the models each, such as [("new", "old")].'


def listed(names: Sequence[Any]) -> str:
    """Names in a sentence."""
    more = f" and {len(names) - _MOST_TOLD:,} more" if len(names) > _MOST_TOLD else ""
    return ", ".join(map(str, names[:_MOST_TOLD])) + more


def quoted(label: object) -> str:
    """A label in a sentence: a plan may hold any text, and megabytes of it."""
    if isinstance(label, bool):
        return str(label).lower()
    text = repr(label)
    if len(text) <= _MOST_QUOTED:
        return text
    return f"{text[:_MOST_QUOTED]}... and {len(text) - _MOST_QUOTED:,} characters more"


def check_positive(label: Any) -> Label | None:
    """The label of a class; None where none is named."""
    if isinstance(label, np.generic):
        label = label.item()
    if not isinstance(label, bool | int | float | str | None):
        raise PlanError(f"positive must be one label, got {type(label).__name__}.")
    if isinstance(label, float) and not math.isfinite(label):
        raise PlanError("positive must be a finite number, a truth value or text.")
    return label


def check_pairs(pairs: Any, models: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Pairs of the task's models, none of them twice."""
    if isinstance(pairs, str) or not isinstance(pairs, Sequence):
        raise PlanError(_NO_PAIRS)
    read = []
    for pair in pairs:
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise PlanError(_NO_PAIRS)
        first, second = pair
        if first == second or first not in models or second not in models:
            raise PlanError(_NO_PAIRS)
        read.append((first, second))
    if len({frozenset(pair) for pair in read}) < len(read):
        raise PlanError("a pair of models is named twice. Name each once.")
    return tuple(read)


def check_labels(labels: Any) -> tuple[Label, ...]:
    """Labels of classes, no two of which mean the same."""
    if isinstance(labels, str) or not isinstance(labels, Sequence | np.ndarray):
        raise PlanError('labels must be a list of classes, such as ["cat", "dog", "owl"].')
    read = tuple(check_positive(label) for label in labels)
    if any(label is None for label in read) or not 2 <= len(read) <= MOST_NAMES:
        raise PlanError(f"a task of several classes has 2 to {MOST_NAMES:,} labels.")
    for label in read:
        if isinstance(label, str):  # it stands in what officers read, as it is
            check_name("labels", label)
    meanings = [meaning(label) for label in read]
    if any(each != each for each in meanings):
        raise PlanError("a class is called like a missing value (NaN). Call it otherwise.")
    if len({*meanings}) < len(read):
        raise PlanError("two of the labels mean the same class. Name each once.")
    require_apart("labels", [label for label in read if isinstance(label, str)])
    return read  # type: ignore[return-value]


def require_apart(what: str, names: Sequence[Any]) -> None:
    """Refuse names that officers could not tell apart: one text in two forms of Unicode.

    Rows are compared with names as they are, so each would be a group, class or model of its own.
    """
    if len({shown(str(name)) for name in names}) < len(names):
        raise PlanError(
            f"{what} has two names that look the same, as é in one character and in two. Name each "
            "once, in the form that the data have."
        )


def shown(name: str) -> str:
    """What a name looks like: the same for all forms of Unicode that it can have."""
    return unicodedata.normalize("NFKC", name)


def check_names(what: str, names: Any) -> tuple[str, ...]:
    """Several names, none of them twice."""
    if isinstance(names, np.ndarray):
        names = names.tolist()
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise PlanError(f"{what} must be a list of names.")
    read = tuple(check_name(what, name) for name in names)
    if not read or len(read) > MOST_NAMES:
        raise PlanError(f"{what} must be 1 to {MOST_NAMES:,} names.")
    if len(set(read)) < len(read):
        raise PlanError(f"{what} has a name twice. Name each once.")
    require_apart(what, read)
    return read


def check_name(what: str, name: Any) -> str:
    """A name that can be printed and told from others."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise PlanError(f'{what} needs names that are text, and printable: write "1" for 1.')
    if len(name) > _LONGEST or name != name.strip():
        raise PlanError(
            f"{what} needs names of at most {_LONGEST} characters, without blanks around them."
        )
    return name
