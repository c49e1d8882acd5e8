"""Labels whose id no score has: how many, why that may be, and when it is too many to go on.

Ids are told of, and never told: how many there are, and in which way of writing more of them would
match. That is asked of ids which did not, so that what matches is never joined by a guess.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedgauge.errors import InputError
from fedgauge.typing import Indices

_MOST_PARTIES: Final = 3  # that are named
Rewrite = Callable[[pa.Array], pa.Array]


def _without(pattern: str, kept: str = "") -> Rewrite:
    return lambda ids: pc.replace_substring_regex(ids, pattern=pattern, replacement=kept)


# What exports do to ids, in words that go on after "would have one".
_WAYS: Final[Mapping[str, Rewrite]] = {
    "without the blanks around ids": pc.utf8_trim_whitespace,
    "without leading zeros": _without(r"^0+([0-9])", r"\1"),
    "without the .0 at the end of ids": _without(r"\.0+$"),
    "if upper and lower case were one": pc.utf8_lower,
    "in one form of Unicode (NFC)": lambda ids: pc.utf8_normalize(ids, form="NFC"),
}


class _Way(NamedTuple):
    """A way to write ids, and how many labels of each party would then have a score."""

    words: str
    matches: Indices


@dataclass(frozen=True, eq=False)
class Unscored:
    """Labels that no score goes with.

    Attributes
    ----------
    parties, sizes
        Names of the label parties, and how many labels each has.
    scored
        Ids of the scores.
    ids, party
        Ids of the labels that have no score, and which party each is of.
    """

    parties: Sequence[str]
    sizes: Indices
    scored: pa.Array
    ids: pa.Array
    party: Indices

    def told(self) -> str | None:
        """What to know of them, None where there are none; refuses where the ids cannot be right.

        That is where no label of a party has a score, or where more of them would have one if ids
        were written alike than do as they are: a few are no reason, for a registry knows more
        people than a laboratory has scored.
        """
        missing = np.bincount(self.party, minlength=len(self.sizes))
        if not missing.any():
            return None
        way = self._best_way()
        matched = self.sizes - missing
        wrong = np.flatnonzero((matched == 0) | (way.matches > matched))
        if wrong.size:
            raise InputError(self._refusal(wrong, matched, way))
        lost = np.flatnonzero(missing)
        told = f"{self._amounts(lost, missing)} have no score and are left out."
        rest = int(way.matches.sum())
        return f"{told} {rest:,} of them would have one {way.words}." if rest else told

    def _refusal(self, wrong: Indices, matched: Indices, way: _Way) -> str:
        first = wrong[0]
        name, size = self.parties[first], self.sizes[first]
        have = f"only {matched[first]:,} of {size:,} labels" if matched[first] else "no label"
        more = f" (and {wrong.size - 1:,} more parties)" if wrong.size > 1 else ""
        told = f"{have} of party {name!r}{more} {'have' if matched[first] else 'has'} a score"
        if mended := way.matches[first]:
            return f"{told}: {mended:,} would have one {way.words}. Write ids alike on both sides."
        own = _kind(self.ids.filter(pa.array(self.party == first)))
        other = _kind(self.scored)
        kinds = "" if own == other else f": its ids are {own}, those of the scores {other}"
        return f"{told}{kinds}. Check that both sides use the same ids."

    def _amounts(self, lost: Indices, missing: Indices) -> str:
        """How many labels of which parties."""
        named = [
            f"{missing[k]:,} of {self.sizes[k]:,} labels of party {self.parties[k]!r}"
            for k in lost[:_MOST_PARTIES]
        ]
        if lost.size > _MOST_PARTIES:
            rest = lost[_MOST_PARTIES:]
            named.append(f"{missing[rest].sum():,} of {rest.size:,} more parties")
        return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"

    def _best_way(self) -> _Way:
        """The way to write ids in which most labels would have a score."""
        none = _Way("", np.zeros_like(self.sizes))
        if pa.types.is_integer(self.ids.type):
            return none
        ways = [self._tried(words, [rewrite]) for words, rewrite in _WAYS.items()]
        ways.append(self._tried("without blanks, zeros and the like", list(_WAYS.values())))
        return max([none, *ways], key=lambda way: int(way.matches.sum()))

    def _tried(self, words: str, rewrites: Sequence[Rewrite]) -> _Way:
        ids, scored = self.ids, self.scored
        for rewrite in rewrites:
            ids, scored = rewrite(ids), rewrite(scored)
        found = pc.is_in(ids, value_set=scored).to_numpy(zero_copy_only=False)
        return _Way(words, np.bincount(self.party[found], minlength=len(self.sizes)))


def written_otherwise(ids: pa.Array, wanted: pa.Array) -> tuple[int, str]:
    """How many of these ids would be among those wanted, and written in which way.

    Examples
    --------
    >>> written_otherwise(pa.array(["007", "x"]), pa.array(["7", "8"]))
    (1, 'without leading zeros')
    """
    party = np.zeros(len(ids), dtype=np.intp)
    way = Unscored([""], np.array([len(ids)]), wanted, ids, party)._best_way()
    return int(way.matches[0]), way.words


def _kind(ids: pa.Array) -> str:
    """What ids look like."""
    if pa.types.is_integer(ids.type):
        return "whole numbers"
    return "whole numbers" if pc.all(pc.match_substring_regex(ids, r"^[0-9]+$")).as_py() else "text"
