"""What exact sums over several sets of sites show together.

Sums over sets S1, S2, ... can be added and subtracted. Together they show the weighted sum over
a few sites when some combination of the sets leaves all other sites out. The difference of two
sets is the simplest such combination; three overlapping sets can show one site, too, where no
two of them do.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import combinations
from math import comb
from typing import Final

Site = bytes
Row = list[Fraction]

MOST_WORK: Final = 20_000  # combinations looked at; a second or two


def fewest_shown(sets: Iterable[frozenset[Site]]) -> int | None:
    """Fewest sites that some combination of the sums over these sets leaves.

    None when there are so many different sets that it cannot be told.

    Examples
    --------
    >>> a, b, c, d = (bytes([i]) for i in range(4))
    >>> fewest_shown([frozenset([a, b, c, d]), frozenset([a, b, c])])
    1
    >>> fewest_shown([frozenset([a, b]), frozenset([b, c]), frozenset([a, c])])
    1
    >>> fewest_shown([frozenset([a, b]), frozenset([c, d])])
    2
    """
    distinct = sorted(set(sets), key=sorted)
    everyone = frozenset().union(*distinct)
    # Sites in the same sets stand or fall together: one column for all of them.
    sizes = Counter(tuple(site in chosen for chosen in distinct) for site in everyone)
    columns = [[Fraction(inside) for inside in pattern] for pattern in sizes]
    basis = _independent([list(row) for row in zip(*columns, strict=True)])
    rank = len(basis)
    if not rank:
        return 0
    if comb(len(columns), rank - 1) > MOST_WORK:
        return None
    weights, columns = list(sizes.values()), [list(column) for column in zip(*basis, strict=True)]
    # A combination that leaves fewest sites vanishes on as many columns as possible, so it is
    # determined, up to scale, by rank - 1 of them.
    fewest = sum(weights)
    for chosen in combinations(columns, rank - 1):
        normal = _normal(chosen, rank)
        if normal is not None:
            left = zip(weights, (_dot(normal, column) for column in columns), strict=True)
            fewest = min(fewest, sum(size for size, value in left if value))
    return fewest


def _independent(rows: Sequence[Row]) -> list[Row]:
    """Rows that span the same space, none of them superfluous."""
    kept: list[Row] = []
    for row in rows:
        rest = _reduced(row, kept)
        if any(rest):
            kept.append(rest)
    return kept


def _reduced(row: Row, basis: Sequence[Row]) -> Row:
    """What is left of a row after the basis, whose leading entries are distinct."""
    rest = list(row)
    for other in basis:
        lead = next(i for i, value in enumerate(other) if value)
        if rest[lead]:
            factor = rest[lead] / other[lead]
            rest = [a - factor * b for a, b in zip(rest, other, strict=True)]
    return rest


def _normal(columns: Sequence[Row], dimension: int) -> Row | None:
    """The one direction that vanishes on these columns; None where there are several."""
    basis = _independent(columns)
    if len(basis) < dimension - 1:
        return None
    leads = {next(i for i, value in enumerate(row) if value): row for row in basis}
    free = next(i for i in range(dimension) if i not in leads)
    normal = [Fraction(0)] * dimension
    normal[free] = Fraction(1)
    # Later rows have zeros at the leads of earlier ones, so they are solved first.
    for row in reversed(basis):
        lead = next(i for i, value in enumerate(row) if value)
        normal[lead] = -sum(row[i] * normal[i] for i in range(dimension) if i != lead) / row[lead]
    return normal


def _dot(one: Row, other: Row) -> Fraction:
    return sum((a * b for a, b in zip(one, other, strict=True)), Fraction(0))
