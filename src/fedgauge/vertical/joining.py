"""Scores and labels joined by id, and why some ids do not match."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedgauge.arrays import Floats, Indices
from fedgauge.data.columns import Column, distinct, pick, stack
from fedgauge.data.examples import Examples, read_batches
from fedgauge.data.files import ScoreTable
from fedgauge.data.ids import Identified, IdTable, together
from fedgauge.errors import InputError, located

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
    """Labels that no score goes with."""

    parties: Sequence[str]  # names of the label parties
    sizes: Indices  # how many labels each has
    scored: pa.Array  # ids of the scores
    ids: pa.Array  # of the labels that have no score
    party: Indices  # which party each of these is of

    def told(self) -> str | None:
        """What to know of them, None where there are none; refuses where the ids cannot be right.

        That is where no label of a party has a score, or where more would have one if ids were
        written alike. A few are no reason: a registry knows more people than a laboratory has
        scored.
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
    """How many of these ids would be among those wanted, and written in which way."""
    party = np.zeros(len(ids), dtype=np.intp)
    way = Unscored([""], np.array([len(ids)]), wanted, ids, party)._best_way()
    return int(way.matches[0]), way.words


def _kind(ids: pa.Array) -> str:
    if pa.types.is_integer(ids.type):
        return "whole numbers"
    return "whole numbers" if pc.all(pc.match_substring_regex(ids, r"^[0-9]+$")).as_py() else "text"


@dataclass(frozen=True, eq=False)
class JoinedExamples:
    """Labelled examples with their scores, party after party."""

    parties: tuple[str, ...]  # names of the label parties
    party: Indices  # which of them has each example
    labels: tuple[Column, ...]  # of each example, by party, as given
    scores: Floats  # of each example
    unscored: tuple[int, ...]  # labels by party that no score goes with
    unlabelled: int  # scores that no label goes with
    left_out: str | None = None  # on labels without a score, in words; None where there are none
    self_scored: bool = False  # whether the parties scored their own examples


def join(scores: Any, labels: Any) -> JoinedExamples:
    """Join scores with the labels of each party by id.

    `scores`, and each party's labels, are a mapping from ids, two columns: ids and values, or an
    :class:`fedgauge.IdTable`. One with a column of parties holds the labels of all.

    Examples
    --------
    >>> joined = join({1: 0.2, 2: 0.9, 3: 0.4}, {"a": {1: 0, 2: 1}, "b": {3: 1}})
    >>> joined.party.tolist(), joined.scores.tolist()
    ([0, 0, 1], [0.2, 0.9, 0.4])
    """
    scored, values = read_side("scores", scores, numbers=True)
    sides = _sides(labels)
    parties = tuple(map(str, sides))
    columns = [side.values for side in sides.values()]
    scored, *own = together([scored, *(side.ids for side in sides.values())])
    sizes = [len(ids) for ids in own]
    party = np.repeat(np.arange(len(sizes)), sizes)
    everybody = pa.concat_arrays(own)
    place = pc.index_in(everybody, value_set=scored)
    known = ~place.is_null().to_numpy(zero_copy_only=False)
    found = place.drop_null().to_numpy()
    unscored = everybody.filter(pa.array(~known))
    _refuse_repeated(scored, everybody, unscored, found, party)
    left_out = Unscored(parties, np.array(sizes), scored, unscored, party[~known]).told()
    kept = np.split(known, np.cumsum(sizes)[:-1])
    return JoinedExamples(
        parties,
        party[known],
        tuple(pick(column, rows) for column, rows in zip(columns, kept, strict=True)),
        np.asarray(values)[found],
        tuple(int(np.count_nonzero(~rows)) for rows in kept),
        len(scored) - len(found),
        left_out,
    )


def scored_by_parties(labels: Any) -> JoinedExamples:
    """Labels and scores that each party holds both of: rows go together by their order.

    Each party's are two columns, labels and scores, or what :func:`fedgauge.evaluate` takes of a
    client; a :class:`fedgauge.ScoreTable` holds those of all.
    """
    held: dict[str, list[Examples]] = {}
    if isinstance(labels, ScoreTable):
        for names, batch in labels.batches():
            codes, words = distinct(names)
            for code, name in enumerate(words):
                held.setdefault(name, []).append(batch.select(codes == code))
    elif isinstance(labels, Mapping):
        for name, side in labels.items():
            with located(f"party {name!r}"):
                held[str(name)] = list(read_batches(side))
    if not held:
        raise InputError("labels must be a mapping from parties to their labels and scores.")
    sizes = [sum(map(len, batches)) for batches in held.values()]
    return JoinedExamples(
        tuple(held),
        np.repeat(np.arange(len(sizes)), sizes),
        tuple(stack([batch.labels for batch in batches]) for batches in held.values()),
        np.concatenate([batch.y_score for batches in held.values() for batch in batches]),
        (0,) * len(sizes),
        0,
        self_scored=True,
    )


def _sides(labels: Any) -> dict[str, Identified]:
    if isinstance(labels, IdTable) and labels.party is not None:
        return labels.by_party()
    if not isinstance(labels, Mapping) or not labels:
        raise InputError(
            "labels must be a mapping from parties to their labels by id, or an IdTable with a "
            "column of parties."
        )
    return {
        str(name): read_side(f"labels of party {name!r}", side, numbers=False)
        for name, side in labels.items()
    }


def read_side(what: str, side: Any, *, numbers: bool) -> Identified:
    """Ids and values of one side; `numbers` says whether these are scores."""
    if isinstance(side, IdTable):
        read = side.read(numbers=numbers)
    elif isinstance(side, Mapping):
        with located(what):
            read = Identified.of(list(side), list(side.values()), numbers=numbers)
    elif isinstance(side, tuple) and len(side) == 2:
        with located(what):
            read = Identified.of(*side, numbers=numbers)
    else:
        raise InputError(
            f"{what} must be a mapping from ids, a pair of columns: ids, values, or an IdTable of "
            "a file or data frame."
        )
    if not len(read.ids):
        raise InputError(f"{what}: there are none. Leave out a party that has no labels.")
    return read


def _refuse_repeated(
    scored: pa.Array, everybody: pa.Array, unscored: pa.Array, found: Indices, party: Indices
) -> None:
    """Refuse ids that come twice; `found` are the places of labels' ids among those scored.

    The first of equal ids is found; the rest are among those that no label has. So no table of all
    ids, 80 bytes for each, is made for each side anew.
    """
    times = np.bincount(found, minlength=len(scored))
    rest = np.flatnonzero(times == 0)
    first = (
        pc.index_in(scored.take(pa.array(rest)), value_set=scored).to_numpy() if rest.size else rest
    )
    if repeated := np.count_nonzero(first != rest):
        raise InputError(
            f"{repeated:,} of {len(scored):,} scores have an id that another score has. Each "
            "example has one score."
        )
    repeated = len(found) - np.count_nonzero(times) + len(unscored) - len(unscored.unique())
    if not repeated:
        return
    ends = np.bincount(party).cumsum()
    within = sum(len(own) - len(own.unique()) for own in _split(everybody, ends))
    where = "at the same party" if within else "at another party"
    raise InputError(
        f"{within or repeated:,} of {len(everybody):,} labels have an id that another label has "
        f"{where}. Each example has one label, at one party."
    )


def _split(ids: pa.Array, ends: Indices) -> list[pa.Array]:
    return [ids[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
