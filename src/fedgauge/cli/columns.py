"""Options that give names to columns, or values to a name: ``cat=p1,dog=p2``, ``sex=women,men``."""

import csv
from collections.abc import Sequence
from typing import TypeVar

from fedgauge.errors import InputError

T = TypeVar("T")
_MODELS = "--model-score"
_BLANKS = " Leave out blanks after commas, or put all of it in quotes."


def read_pairs(option: str, text: str) -> dict[str, str]:
    """Names and the column of each, all in one option, in the order in which they are named.

    A pair that holds a comma stands in quotes; the first ``=`` ends a name.

    Examples
    --------
    >>> read_pairs("--class-scores", "cat=p1, dog=p2")
    {'cat': 'p1', 'dog': 'p2'}
    >>> read_pairs("--class-scores", '"cat, black=p1",dog=p2')
    {'cat, black': 'p1', 'dog': 'p2'}
    """
    read: dict[str, str] = {}
    for part in _parts(text):
        name, _, column = (each.strip() for each in part.partition("="))
        if not (name and column):
            raise InputError(
                f"{option} takes pairs of a name and a column, such as cat=p1,dog=p2; got {text!r}."
            )
        _add(option, read, name, column)
    return read


def read_lists(
    option: str, texts: Sequence[str], such_as: str | None = None
) -> dict[str, tuple[str, ...]]:
    """Names and the values, or columns, of each: one name each time the option is given.

    Examples
    --------
    >>> read_lists("--group", ["sex=women,men", "ward=1"])
    {'sex': ('women', 'men'), 'ward': ('1',)}
    """
    read: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, _, rest = (each.strip() for each in text.partition("="))
        values = tuple(_parts(rest))
        if not (name and all(values)):
            such_as = such_as or ("new=p1" if option == _MODELS else "sex=women,men")
            blanks = _BLANKS if text.rstrip().endswith(",") else ""
            raise InputError(
                f"{option} takes a name and what belongs to it, such as {such_as}; got {text!r}."
                f"{blanks}"
            )
        _add(option, read, name, values)
    return read


def read_names(option: str, text: str) -> tuple[str, ...]:
    """Several names.

    Examples
    --------
    >>> read_names("--models", "new, old")
    ('new', 'old')
    """
    names = tuple(_parts(text))
    if not (names and all(names)):
        raise InputError(f"{option} takes names, such as new,old; got {text!r}.")
    return names


def read_columns(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Names and the one column of each: one name each time the option is given.

    Examples
    --------
    >>> read_columns("--group", ["sex=gender", "ward=w"])
    {'sex': 'gender', 'ward': 'w'}
    """
    read: dict[str, str] = {}
    for name, columns in read_lists(option, texts, "sex=COLUMN").items():
        if len(columns) > 1:
            raise InputError(
                f"{option} {name}= takes one column, got {len(columns)}. The plan says which "
                "values it is told apart by."
            )
        read[name] = columns[0]
    return read


def joined(texts: Sequence[str] | None) -> str | None:
    """What an option says that was given several times, as if it were once; None if never.

    Examples
    --------
    >>> joined(["cat=p1", "dog=p2"])
    'cat=p1,dog=p2'
    """
    return ",".join(texts) if texts else None


def _parts(text: str) -> list[str]:
    """What stands between commas; one in quotes is none."""
    rows = list(csv.reader([text], skipinitialspace=True))
    return [part.strip() for row in rows for part in row] or [""]


def _add(option: str, read: dict[str, T], name: str, value: T) -> None:
    if name in read:
        raise InputError(f"{option} names {name!r} twice. Name it once.")
    read[name] = value
