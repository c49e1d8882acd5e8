"""Rules for exact sums: when a site joins one more, and what several show together.

A sum without noise hides a site among others and a patient among others, once. Sums over other
sites, on other rows or on other bins can be subtracted from it. So they are few, of one plan, over
the same sites and on the same rows.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import combinations, product
from math import comb
from operator import mul
from typing import Final, NamedTuple

from fedgauge.data.fingerprint import Fingerprint
from fedgauge.errors import PlanRefused
from fedgauge.site.ledger_entries import SumRoster, Turn

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
            left = zip(weights, columns, strict=True)
            fewest = min(fewest, sum(size for size, each in left if sum(map(mul, normal, each))))
    return fewest


def _independent(rows: Sequence[Row]) -> list[Row]:
    """Rows that span the same space, none of them superfluous."""
    kept: list[Row] = []
    for row in rows:
        rest = list(row)
        for other in kept:  # their leading entries are distinct
            lead = next(i for i, value in enumerate(other) if value)
            if rest[lead]:
                factor = rest[lead] / other[lead]
                rest = [a - factor * b for a, b in zip(rest, other, strict=True)]
        if any(rest):
            kept.append(rest)
    return kept


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
    for lead, row in reversed(leads.items()):
        normal[lead] = -sum(row[i] * normal[i] for i in range(dimension) if i != lead) / row[lead]
    return normal


_ROUNDS: Final = 2
_MOST_STORIES: Final = 200  # ways in which unknown sums may have come out; each is looked at

_UNKNOWN: Final = (
    "the exact sums on this dataset are, or may be, over so many different sets of sites that "
    "nobody can tell what they show together. Run again with the same sites, or with noise "
    "(mix_exact)."
)

Sites = frozenset[bytes]


class ExactRules(NamedTuple):
    """What a site's policy allows; sums may show no fewer than `min_cohort` sites together."""

    exact_sums: int
    exact_dropouts: bool
    min_cohort: int
    min_new_rows: int


class ExactSum(NamedTuple):
    """One exact sum that a site took part in, or is about to."""

    roster: SumRoster | None  # None of what is no sum over sites
    plan: str | None  # its digest
    certain: bool = True  # whether all see each other: a sum over exactly the survivors
    survivors: Sites | None = None  # None where this site was never asked
    data: Fingerprint | None = None
    turn: Turn | None = None

    @property
    def counts_as(self) -> int:
        """How many sums it stands for: the first of two rounds for both, from its beginning on."""
        if self.turn is None:
            return 1
        return _ROUNDS if self.turn.first is None else 0

    def stories(self) -> list[Sites]:
        """Every set of sites that the sum can be over; empty where that is not known."""
        if self.survivors is not None:
            return [self.survivors]
        if self.roster is None:
            return []
        sites, needed = self.roster
        sizes = range(needed, len(sites) + 1)
        if sum(math.comb(len(sites), size) for size in sizes) > _MOST_STORIES:
            return []
        return [frozenset(some) for size in sizes for some in combinations(sorted(sites), size)]


def check_join(earlier: Sequence[ExactSum], asked: ExactSum, rules: ExactRules) -> None:
    """Refuse to join an exact sum that this site will not, or may not, see through."""
    roster, certain = asked.roster, asked.certain
    assert roster is not None  # noqa: S101  (the ledger refuses an exact sum without one)
    had = count_sums(earlier)
    if had + asked.counts_as > rules.exact_sums:
        both = " Two rounds are two of them." if asked.counts_as > 1 else ""
        raise PlanRefused(
            f"this dataset has had {had} exact sums, or is about to, and this site "
            f"allows {rules.exact_sums} (exact_sums): each shows a little more.{both} Run with "
            "noise (mix_exact), or abandon those that were joined and never submitted."
        )
    if asked.turn is not None and not certain:
        raise PlanRefused(
            "the plan is for two exact sums of one evaluation, and in a large one a site cannot be "
            "certain who is in a sum, so it cannot be told what the two show together. Run with "
            "noise, or in one round."
        )
    if any(each.plan != asked.plan for each in earlier):
        raise PlanRefused(
            "earlier exact sums on this dataset were of another plan, and results of two plans "
            "with other edges, other cells merged or another positive label can be subtracted from "
            "each other. Run the same plan again, or with noise (mix_exact)."
        )
    if earlier and not (certain and all(each.certain for each in earlier)):
        raise PlanRefused(
            "this dataset has had an exact sum already, and in a large evaluation a site cannot "
            "be certain who is in the sum, so it cannot be told what the two show together. Run "
            "with noise (mix_exact)."
        )
    if certain and not rules.exact_dropouts and roster.needed < len(roster.sites):
        raise PlanRefused(
            f"the plan opens an exact sum over {roster.needed} of {len(roster.sites)} sites, and "
            "sums over different sites can be subtracted from each other. This site wants all of "
            f"them (exact_dropouts): plan with min_survivors = {len(roster.sites)}."
        )
    check_sites(earlier, roster.sites, rules)


def count_sums(sums: Iterable[ExactSum]) -> int:
    """How many exact sums these are, second rounds that are to come included."""
    return sum(each.counts_as for each in sums)


def check_sites(earlier: Iterable[ExactSum], sites: Sites, rules: ExactRules) -> None:
    """Refuse an exact sum over these sites that, with earlier ones, shows too few of them."""
    if len(sites) < rules.min_cohort:
        raise PlanRefused(
            f"the sum would be over {len(sites)} sites, and this site wants at least "
            f"{rules.min_cohort}. Start again with more sites."
        )
    # The same sites again show nothing that was not shown.
    others = [stories for each in earlier if (stories := each.stories()) != [sites]]
    if not others:
        return
    if not rules.exact_dropouts:
        raise PlanRefused(
            "earlier exact sums on this dataset were over other sites, or may have been, and this "
            "site allows one roster (exact_dropouts). Run again with the same sites, or with noise "
            "(mix_exact)."
        )
    if math.prod(map(len, others)) not in range(1, _MOST_STORIES + 1):
        raise PlanRefused(_UNKNOWN)
    for story in product(*others):
        _check_story([*story, sites], rules.min_cohort)


def check_vote(
    earlier: Iterable[ExactSum], asked: ExactSum, survivors: Sites, rules: ExactRules
) -> None:
    """Refuse to open an exact sum over survivors that this site did not agree to at join."""
    everybody = asked.roster is not None and survivors == asked.roster.sites
    if asked.certain and not rules.exact_dropouts and not everybody:
        raise PlanRefused(
            "sites dropped out of this exact sum, and this site wants all that were invited in it "
            "(exact_dropouts). Start again when all of them are there, or with noise (mix_exact)."
        )
    check_sites(earlier, survivors, rules)


def check_data(
    data: Fingerprint,
    earlier: Iterable[ExactSum],
    elsewhere: Iterable[Fingerprint],
    rules: ExactRules,
) -> None:
    """Refuse an exact sum on rows that differ from those of earlier sums by a few.

    `earlier` are sums on the same dataset, `elsewhere` the data of sums on other datasets.
    """
    for each in earlier:
        if each.data is not None and not data.fits(each.data):
            raise PlanRefused(
                "the rows are not those of the earlier exact sums on this dataset, and the "
                "difference of the sums would show what changed. Put them back as they were. Where "
                f"at least {rules.min_new_rows:,} rows are new, or all scores are, name the data "
                "anew with `fedgauge site dataset NAME`; else run with noise (mix_exact)."
            )
    for other in elsewhere:
        if data.overlaps(other):
            raise PlanRefused(
                "these rows have had exact sums under another name, and a new name does not make "
                "them new data. Go back to that name (dataset), or run with noise."
            )
        if data.labels != other.labels and abs(data.rows - other.rows) < rules.min_new_rows:
            raise PlanRefused(
                "another dataset of this site that had exact sums has nearly as many rows. If one "
                "is the other with a few rows added, the difference of the sums would show them: "
                f"wait for {rules.min_new_rows:,} new rows, or run with noise. If they have "
                "nothing to do with each other, lower min_new_rows in the site file."
            )


def _check_story(sets: Sequence[Sites], min_cohort: int) -> None:
    fewest = fewest_shown(sets)
    if fewest is None:
        raise PlanRefused(_UNKNOWN)
    if fewest < min_cohort:
        shown = f"{fewest} site{'' if fewest == 1 else 's'}"
        raise PlanRefused(
            "this sum, with earlier ones on this dataset, would or could show the sum over "
            f"{shown}: this site wants at least {min_cohort}. Run again with the same sites as "
            "before, or with noise (mix_exact)."
        )
