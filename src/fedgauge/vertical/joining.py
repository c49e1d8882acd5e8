"""Scores and labels joined by id, exactly: what does not match is counted, and never named."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedgauge.data.columns import Column, distinct, pick, stack
from fedgauge.data.examples import Examples, read_batches
from fedgauge.data.files import ScoreTable
from fedgauge.data.ids import Identified, IdTable, together
from fedgauge.errors import InputError, located
from fedgauge.typing import Floats, Indices
from fedgauge.vertical.mismatches import Unscored


@dataclass(frozen=True, eq=False)
class Joined:
    """Labelled examples with their scores, party after party.

    Attributes
    ----------
    parties
        Names of the label parties.
    party
        Which of them has each example.
    labels
        The label of each example, by party, as it was given.
    scores
        The score of each example.
    unscored
        Labels by party that no score goes with.
    unlabelled
        Scores that no label goes with.
    left_out
        What to know of labels that no score goes with, in words; None where there are none.
    self_scored
        Whether the parties scored their own examples.
    """

    parties: tuple[str, ...]
    party: Indices
    labels: tuple[Column, ...]
    scores: Floats
    unscored: tuple[int, ...]
    unlabelled: int
    left_out: str | None = None
    self_scored: bool = False


def join(scores: Any, labels: Any) -> Joined:
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
    return Joined(
        parties,
        party[known],
        tuple(pick(column, rows) for column, rows in zip(columns, kept, strict=True)),
        np.asarray(values)[found],
        tuple(int(np.count_nonzero(~rows)) for rows in kept),
        len(scored) - len(found),
        left_out,
    )


def scored_by_parties(labels: Any) -> Joined:
    """Labels and scores that each party holds both of: rows go together by their order.

    Each party's are two columns, labels and scores, or what :func:`fedgauge.evaluate` takes of a
    client; a :class:`fedgauge.ScoreTable` holds those of all.

    Examples
    --------
    >>> joined = scored_by_parties({"a": ([0, 1], [0.2, 0.9]), "b": ([1], [0.4])})
    >>> joined.party.tolist(), joined.scores.tolist()
    ([0, 0, 1], [0.2, 0.9, 0.4])
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
    return Joined(
        tuple(held),
        np.repeat(np.arange(len(sizes)), sizes),
        tuple(stack([batch.labels for batch in batches]) for batches in held.values()),
        np.concatenate([batch.y_score for batches in held.values() for batch in batches]),
        (0,) * len(sizes),
        0,
        self_scored=True,
    )


def _sides(labels: Any) -> dict[str, Identified]:
    """Ids and labels of each party."""
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

    The first of equal ids is what is found, so the rest are among those that no label has: the
    table of all ids, 80 bytes for each, is not made for each side anew.
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
