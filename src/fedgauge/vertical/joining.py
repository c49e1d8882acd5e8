"""Scores and labels joined by id, exactly: what does not match is counted, and never named."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedgauge.data.columns import Column, floats_of, read_column
from fedgauge.data.examples import Examples
from fedgauge.errors import InputError, located
from fedgauge.typing import Floats, Indices


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
    """

    parties: tuple[str, ...]
    party: Indices
    labels: tuple[Column, ...]
    scores: Floats
    unscored: tuple[int, ...]
    unlabelled: int


def join(scores: Any, labels: Mapping[str, Any]) -> Joined:
    """Join scores with the labels of each party by id.

    `scores`, and each party's labels, are a mapping from ids, or two columns: ids and values.

    Examples
    --------
    >>> joined = join({1: 0.2, 2: 0.9, 3: 0.4}, {"a": {1: 0, 2: 1}, "b": {3: 1}})
    >>> joined.party.tolist(), joined.scores.tolist()
    ([0, 0, 1], [0.2, 0.9, 0.4])
    """
    if not isinstance(labels, Mapping) or not labels:
        raise InputError("labels must be a mapping from parties to their labels by id.")
    scored, values = _columns("scores", scores)
    sides = {name: _columns(f"labels of {name!r}", side) for name, side in labels.items()}
    sizes = [len(ids) for ids, _ in sides.values()]
    everybody = _together([ids for ids, _ in sides.values()], scored.type)
    place = pc.index_in(everybody, value_set=scored)
    known = ~place.is_null().to_numpy(zero_copy_only=False)
    found = place.drop_null().to_numpy()
    _refuse_repeated(scored, everybody.filter(pa.array(~known)), found)
    if not known.any():
        raise InputError(
            "no id of the labels is among those of the scores. Check that both use the same ids."
        )
    party = np.repeat(np.arange(len(sizes)), sizes)
    kept = np.split(known, np.cumsum(sizes)[:-1])
    return Joined(
        tuple(map(str, sides)),
        party[known],
        tuple(_take(column, rows) for (_, column), rows in zip(sides.values(), kept, strict=True)),
        floats_of(values)[found],
        tuple(int(np.count_nonzero(~rows)) for rows in kept),
        len(scored) - len(found),
    )


def scored_by_parties(labels: Mapping[str, Any]) -> Joined:
    """Labels and scores that each party holds both of: rows go together by their order.

    Examples
    --------
    >>> joined = scored_by_parties({"a": ([0, 1], [0.2, 0.9]), "b": ([1], [0.4])})
    >>> joined.party.tolist(), joined.scores.tolist()
    ([0, 0, 1], [0.2, 0.9, 0.4])
    """
    if not isinstance(labels, Mapping) or not labels:
        raise InputError("labels must be a mapping from parties to their labels and scores.")
    sides = []
    for name, side in labels.items():
        if not isinstance(side, tuple) or len(side) != 2:
            raise InputError(
                f"without scores, those of {name!r} must be a pair of columns: labels, scores."
            )
        with located(f"party {name!r}"):
            sides.append(Examples(*side))
    sizes = [len(side) for side in sides]
    return Joined(
        tuple(map(str, labels)),
        np.repeat(np.arange(len(sizes)), sizes),
        tuple(side.labels for side in sides),
        np.concatenate([side.y_score for side in sides]),
        (0,) * len(sizes),
        0,
    )


def _columns(what: str, side: Any) -> tuple[pa.Array, Column]:
    """Ids and values of one side."""
    if isinstance(side, Mapping):
        ids, values = list(side), list(side.values())
    elif isinstance(side, tuple) and len(side) == 2:
        ids, values = side
    else:
        raise InputError(f"{what} must be a mapping from ids, or a pair of columns: ids, values.")
    try:
        array = pa.array(ids, from_pandas=True)
    except (pa.ArrowException, OverflowError):
        raise InputError(
            f"ids of the {what} mix kinds of values. Use text or whole numbers."
        ) from None
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    if array.null_count:
        raise InputError(f"{array.null_count:,} ids of the {what} are missing.")
    column = read_column(what, values)
    if len(array) != len(column):
        raise InputError(f"the {what} have {len(array):,} ids and {len(column):,} values.")
    return array, column


def _together(sides: list[pa.Array], kind: pa.DataType) -> pa.Array:
    try:
        return pa.concat_arrays([side.cast(kind) for side in sides])
    except pa.ArrowException:
        raise InputError(
            "ids of labels and scores are of different kinds. Write both as text, or as numbers."
        ) from None


def _refuse_repeated(scored: pa.Array, unscored: pa.Array, found: Indices) -> None:
    """Refuse ids that come twice; `found` are the places of the others among those scored.

    The first of equal ids is what is found, so the rest are among those that no label has: the
    table of all ids, 80 bytes for each, is not made for each side anew.
    """
    times = np.bincount(found, minlength=len(scored))
    rest = np.flatnonzero(times == 0)
    first = (
        pc.index_in(scored.take(pa.array(rest)), value_set=scored).to_numpy() if rest.size else rest
    )
    of_labels = len(found) - np.count_nonzero(times) + len(unscored) - len(unscored.unique())
    for repeated, what in (
        (np.count_nonzero(first != rest), "scores"),
        (of_labels, "labels of all parties"),
    ):
        if repeated:
            raise InputError(f"{repeated:,} ids of the {what} come twice. Each example has one.")


def _take(column: Column, rows: NDArray[np.bool_]) -> Column:
    return column.filter(pa.array(rows)) if isinstance(column, pa.DictionaryArray) else column[rows]
