"""Bins as each party is told them, and what whoever scored keeps: held together by one digest."""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedgauge.binning.axis import Axis
from fedgauge.data.keyed import NO_BIN, Places, ids_of
from fedgauge.errors import InputError, ProtocolError
from fedgauge.estimation.released import Released
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.form import encode_axis
from fedgauge.plan.task import LabelTask
from fedgauge.privacy import AnyPrivacyModel, Cohort
from fedgauge.site import Site
from fedgauge.typing import Floats
from fedgauge.vertical.binned import bin_scores
from fedgauge.vertical.kept import Many, RankTotals, are_parties, keep, kept
from fedgauge.vertical.party_file import decoded, read_file
from fedgauge.vertical.roster import MOST_EXAMPLES, Roster, check_rosters

FORMAT: Final = "fedgauge-bins/1"
KEPT_FORMAT: Final = "fedgauge-totals/1"
MOST_ALONE: Final = 2  # parties: from three on a secure sum takes less noise
_SALT_BYTES: Final = 32
_AGAIN: Final = "Ask whoever scores for the bins of this evaluation."

Commitments = tuple[tuple[bytes, bytes], ...]


class Bins(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The bins of one label party's examples, as it is told them.

    Attributes
    ----------
    format
        ``"fedgauge-bins/1"``.
    party
        Its public key.
    number
        How many bins there are; of pairs, how many doubled ranks.
    ids, scores
        Its examples, as on its roster.
    places
        The bin of each, or its doubled midrank among all examples, as little-endian numbers; -1
        where it has none.
    salt
        Random bytes, without which others could guess bins from a commitment.
    commitments
        Of every party, by public key: a digest of its places.
    """

    format: str
    party: bytes
    number: int
    ids: tuple[str, ...]
    scores: bytes
    places: bytes
    salt: bytes
    commitments: Commitments = ()

    @property
    def commitment(self) -> bytes:
        """A digest of all that this party is told of its examples."""
        bare = msgspec.structs.replace(self, commitments=())
        return hashlib.sha256(b"fedgauge bins\0" + msgspec.msgpack.encode(bare)).digest()

    def to_bytes(self) -> bytes:
        """The file."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read bins; whether they are those of an evaluation is for :meth:`check`."""
        bins = decoded(cls, data, FORMAT)
        if bins is None:
            raise ProtocolError(
                f"these are not a party's bins as this fedgauge writes them ({FORMAT}), or not all "
                "of them. Name the file that whoever scored sent."
            )
        return bins

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read the file of a party's bins."""
        return cls.from_bytes(read_file(path))

    def check(self, plan: EvaluationPlan, party: bytes) -> Places:
        """The bin of each example, unless these are not the bins of this plan and party.

        Privacy holds for any bins. That all parties count by those of one assignment, and each by
        its own, is what makes the result right.
        """
        if self.party != party:
            raise ProtocolError(
                "the bins are for another party. Name those of this site, or the site file of that "
                "party (--site)."
            )
        if (party, self.commitment) not in self.commitments:
            raise ProtocolError("the bins were changed since they were assigned.")
        if len(dict(self.commitments)) < len(self.commitments):
            # Else one plan would be bound to several bins, and whoever scored could choose late.
            raise ProtocolError("the plan is bound to two files of bins of the same party.")
        if getattr(plan.task, "assignment", "") != assignment_digest(self.commitments):
            raise ProtocolError(f"the bins are of another evaluation than the plan. {_AGAIN}")
        if self.number != _places(plan):
            raise ProtocolError("the plan has another number of bins than were assigned.")
        if len(self.places) % 4 or len(self.scores) % 8:
            raise ProtocolError("the bins are cut off.")
        keys = (
            pa.array(np.frombuffer(self.scores, "<f8"))
            if self.scores
            else ids_of("bins", list(self.ids))
        )
        places = np.frombuffer(self.places, "<i4")
        if len(places) != len(keys):
            raise ProtocolError(f"there are {len(places):,} bins for {len(keys):,} examples.")
        if len(keys.unique()) < len(keys):
            # A label that counts twice moves the counts by two.
            raise ProtocolError("the bins name an example twice.")
        if np.any((places < NO_BIN) | (places >= self.number)):
            raise ProtocolError(f"a bin lies outside 0 to {self.number - 1}.")
        return Places(keys, places)


def _places(plan: EvaluationPlan) -> int:
    """How many bins there are to be in, or ranks to have."""
    return plan.axis.bins if plan.paired is None else plan.paired.places


def assignment_digest(commitments: Commitments) -> str:
    """SHA-256, in hexadecimal, of what all parties were told."""
    text = b"fedgauge assignment\0" + msgspec.msgpack.encode(commitments)
    return hashlib.sha256(text).hexdigest()


class Totals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What whoever scored keeps: where bins lie, and how many examples each party has in them.

    Attributes
    ----------
    format
        ``"fedgauge-totals/1"``.
    assignment
        The digest of the bins.
    axis
        The scores that bins reach from and to.
    by_party
        Examples by bin, by public key.
    hints
        What was publicly known and used.
    """

    format: str
    assignment: str
    axis: Axis
    by_party: tuple[tuple[bytes, tuple[Many, ...]], ...]
    hints: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if any(len(totals) != self.axis.bins for _, totals in self.by_party):
            raise ValueError("each party has a total of each bin.")

    @property
    def parties(self) -> tuple[bytes, ...]:
        """Public keys of the label parties."""
        return tuple(party for party, _ in self.by_party)

    def complete(self, released: Released, survivors: Iterable[bytes]) -> Released:
        """What is known once the positives of these parties are: the rest of a bin is negative."""
        known = dict(self.by_party)
        totals = np.array([known[party] for party in survivors], dtype=np.int64)
        return completed(released, self.axis, totals.sum(axis=0))

    def fits(self, plan: EvaluationPlan) -> bool:
        """Whether they can be those of a plan."""
        return (
            self.axis.bins == plan.axis.bins
            and are_parties(self.parties)
            and all(len(told) == self.axis.bins for _, told in self.by_party)
            and all(0 <= each <= MOST_EXAMPLES for _, told in self.by_party for each in told)
        )

    def keep(self, site: Site) -> Path:
        """Keep them in the folder of the site that scored, readable by its owner alone."""
        return keep(site, self.assignment, msgspec.json.encode(self, enc_hook=encode_axis))

    @classmethod
    def kept(cls, site: Site, plan: EvaluationPlan) -> Self:
        """Those of a plan, as kept by this site."""
        return kept(site, plan, cls, KEPT_FORMAT)


def completed(released: Released, axis: Axis, totals: NDArray[np.int64]) -> Released:
    """What is known once the positives are: the rest of every bin is negative."""
    (positives,) = released.counts
    return replace(released, axis=axis, counts=np.array([totals - positives, positives]))


K = TypeVar("K", Totals, RankTotals)


class Assignment(NamedTuple, Generic[K]):
    """What comes of scores and rosters.

    `plan` is for all, `bins` for each party by public key, and `totals` for whoever scored.
    `unscored` says of how many of its examples each party there is no score, `unlabelled` how many
    scores are on no roster.
    """

    plan: EvaluationPlan
    bins: dict[bytes, Bins]
    totals: K
    unscored: dict[bytes, int]
    unlabelled: int


def assign_bins(
    scores: tuple[Any, Floats] | None,
    rosters: Mapping[bytes, Roster],
    privacy: AnyPrivacyModel,
    **wanted: Any,
) -> Assignment[Totals]:
    """Give each example on the rosters its bin, and make the plan that is bound to these bins.

    Parameters
    ----------
    scores
        Ids and scores of all examples; None where parties scored theirs themselves.
    rosters
        Of the label parties, by public key.
    privacy
        What each label is promised.
    **wanted
        As for :func:`fedgauge.vertical.binned.bin_scores`. One or two parties answer alone, each
        with all of the noise, unless there is a cohort; so do more with a cohort of one.

    Examples
    --------
    >>> from fedgauge.keys import SigningKey
    >>> from fedgauge.privacy import DistributedDP
    >>> keys = [SigningKey.generate() for _ in range(3)]
    >>> rosters = {key.public: Roster.of_ids(range(i, 3000, 3), key) for i, key in enumerate(keys)}
    >>> scored = (range(3000), np.linspace(0, 1, 3000))
    >>> privacy = DistributedDP(1.0, unit="label", neighbours="flip")
    >>> made = assign_bins(scored, rosters, privacy)
    >>> len(made.bins[keys[0].public].check(made.plan, keys[0].public).bins)
    1000
    """
    known = scores_of(scores, rosters)
    pooled = pooled_scores(known, rosters)
    if privacy.needs_cohort and wanted.get("cohort") is None and len(rosters) <= MOST_ALONE:
        wanted["cohort"] = Cohort(1, max_colluding=0)
    binned = bin_scores(pooled, len(rosters), privacy, **wanted)
    bins, digest = tell(rosters, known, binned.axis.bins, binned.axis.index)
    plan = binned.plan
    return Assignment(
        msgspec.structs.replace(
            plan, task=LabelTask(plan.task.positive, digest, self_scored=scores is None)
        ),
        bins,
        Totals(
            KEPT_FORMAT,
            digest,
            binned.axis,
            tuple((party, _totals(told, rosters[party])) for party, told in bins.items()),
            binned.hints,
        ),
        unscored(known),
        0 if scores is None else len(scores[1]) - len(pooled),
    )


def scores_of(
    scores: tuple[Any, Floats] | None, rosters: Mapping[bytes, Roster]
) -> dict[bytes, Floats]:
    """The score of each key on a roster, NaN where there is none."""
    check_rosters(rosters)
    scored_apart = next(iter(rosters.values())).is_scored
    if scores is None or scored_apart:
        if scores is not None or not scored_apart:
            raise InputError(
                "rosters of ids go with scores, and rosters of scores without. Check which of them "
                "the parties sent."
            )
        return {party: roster.values for party, roster in rosters.items()}
    ids, values = ids_of("scores", scores[0]), np.asarray(scores[1], dtype=np.float64)
    if len(ids) != len(values):
        raise InputError(f"there are {len(ids):,} ids and {len(values):,} scores.")
    repeated = len(ids) - len(ids.unique())
    if repeated:
        raise InputError(f"{repeated:,} ids of the scores come twice. Each example has one.")
    if not np.isfinite(values).all():
        missing = int(np.count_nonzero(~np.isfinite(values)))
        raise InputError(f"{missing:,} of {len(values):,} scores are missing or infinite.")
    found = {}
    for party, roster in rosters.items():
        place = pc.fill_null(pc.index_in(roster.keys, value_set=ids), -1).to_numpy()
        found[party] = np.where(place >= 0, values[place], np.nan)
    return found


def unscored(known: Mapping[bytes, Floats]) -> dict[bytes, int]:
    """Of how many of its examples each party there is no score."""
    return {party: int(np.count_nonzero(np.isnan(values))) for party, values in known.items()}


def pooled_scores(known: Mapping[bytes, Floats], rosters: Mapping[bytes, Roster]) -> Floats:
    """The scores of all examples that have one."""
    pooled = np.concatenate(
        [_repeated(values[~np.isnan(values)], rosters[party]) for party, values in known.items()]
    )
    if not pooled.size:
        raise InputError(
            "no id of the rosters is among those of the scores. Check that all use the same ids."
        )
    return pooled


def _repeated(values: Floats, roster: Roster) -> Floats:
    """The score of each example, where one stands for all that have it."""
    return np.repeat(values, roster.times) if roster.is_scored else values


def tell(
    rosters: Mapping[bytes, Roster],
    known: Mapping[bytes, Floats],
    number: int,
    place: Callable[[Floats], NDArray[Any]],
) -> tuple[dict[bytes, Bins], str]:
    """What each party is told of its examples, bound together by the digest that is returned."""
    told = {}
    for party, values in known.items():
        roster, places = rosters[party], np.full(len(values), NO_BIN, dtype="<i4")
        scored = ~np.isnan(values)
        places[scored] = place(values[scored])
        salt = os.urandom(_SALT_BYTES)
        told[party] = Bins(
            FORMAT, roster.party, number, roster.ids, roster.scores, places.tobytes(), salt
        )
    commitments = tuple(sorted((party, bins.commitment) for party, bins in told.items()))
    bound = {p: msgspec.structs.replace(b, commitments=commitments) for p, b in told.items()}
    return bound, assignment_digest(commitments)


def _totals(bins: Bins, roster: Roster) -> tuple[int, ...]:
    places = np.frombuffer(bins.places, "<i4")
    weights = roster.times if roster.is_scored else np.ones(len(places), dtype=np.int64)
    totals = np.zeros(bins.number, dtype=np.int64)
    np.add.at(totals, places[places != NO_BIN], weights[places != NO_BIN])
    return tuple(totals.tolist())
