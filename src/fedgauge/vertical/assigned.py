"""Bins as each party is told them, and what whoever scored keeps: held together by one digest."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedgauge.binning.axis import Axis
from fedgauge.data.keyed import NO_BIN, Places, ids_of
from fedgauge.errors import ExchangeError, InputError, ProtocolError, SiteError
from fedgauge.estimation.released import Released
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.plan import decode_axis, encode_axis
from fedgauge.plan.task import LabelTask
from fedgauge.privacy import AnyPrivacyModel
from fedgauge.site import Site
from fedgauge.storage import durable
from fedgauge.typing import Floats
from fedgauge.vertical.binned import Binned, bin_scores
from fedgauge.vertical.roster import Roster, check_rosters, read_file

FORMAT: Final = "fedgauge-bins/1"
KEPT_FORMAT: Final = "fedgauge-totals/1"
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
        How many bins there are.
    ids, scores
        Its examples, as on its roster.
    places
        The bin of each, as little-endian numbers; -1 where it has none.
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
        try:
            bins = msgspec.msgpack.decode(data, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise ProtocolError("these are not a party's bins, or not all of them.") from None
        if bins.format != FORMAT or bins.to_bytes() != data:
            raise ProtocolError(f"these are not bins as this fedgauge writes them ({FORMAT}).")
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
            raise ProtocolError("the bins are for another party.")
        if (party, self.commitment) not in self.commitments:
            raise ProtocolError("the bins were changed since they were assigned.")
        if getattr(plan.task, "assignment", "") != assignment_digest(self.commitments):
            raise ProtocolError(f"the bins are of another evaluation than the plan. {_AGAIN}")
        if self.number != plan.axis.bins:
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
    by_party: tuple[tuple[bytes, tuple[int, ...]], ...]
    hints: tuple[str, ...] = ()

    @property
    def parties(self) -> tuple[bytes, ...]:
        """Public keys of the label parties."""
        return tuple(party for party, _ in self.by_party)

    def complete(self, released: Released, survivors: Iterable[bytes]) -> Released:
        """What is known once the positives of these parties are: the rest of a bin is negative."""
        known = dict(self.by_party)
        totals = np.array([known[party] for party in survivors], dtype=np.int64)
        return completed(released, self.axis, totals.sum(axis=0))

    def keep(self, site: Site) -> Path:
        """Keep them in the folder of the site that scored, readable by its owner alone."""
        path = _kept_path(site, self.assignment)
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            durable.replace(path, msgspec.json.encode(self, enc_hook=encode_axis))
        except OSError as error:
            raise SiteError(f"cannot keep {path}: {error.strerror}.") from None
        return path

    @classmethod
    def kept(cls, site: Site, plan: EvaluationPlan) -> Self:
        """Those of a plan, as kept by this site."""
        assignment = getattr(plan.task, "assignment", "")
        path = _kept_path(site, assignment)
        try:
            totals = msgspec.json.decode(path.read_bytes(), type=cls, dec_hook=decode_axis)
        except FileNotFoundError:
            raise ExchangeError(
                f"site {site.name!r} did not assign the bins of this plan. Whoever ran `fedgauge "
                "vertical assign` starts it, with the same --site."
            ) from None
        except OSError as error:
            raise SiteError(f"cannot read {path}: {error.strerror}.") from None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            totals = None
        if totals is None or (totals.format, totals.assignment) != (KEPT_FORMAT, assignment):
            raise SiteError(f"{path} was damaged or changed. Assign the bins again.")
        return totals


def completed(released: Released, axis: Axis, totals: NDArray[np.int64]) -> Released:
    """What is known once the positives are: the rest of every bin is negative."""
    (positives,) = released.counts
    return Released(axis, np.array([totals - positives, positives]), released.clients)


class Assignment(NamedTuple):
    """What comes of scores and rosters.

    `plan` is for all, `bins` for each party by public key, and `totals` for whoever scored.
    `unscored` says of how many of its examples each party there is no score, `unlabelled` how many
    scores are on no roster.
    """

    plan: EvaluationPlan
    bins: dict[bytes, Bins]
    totals: Totals
    unscored: dict[bytes, int]
    unlabelled: int


def assign_bins(
    scores: tuple[Any, Floats] | None,
    rosters: Mapping[bytes, Roster],
    privacy: AnyPrivacyModel,
    **wanted: Any,
) -> Assignment:
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
        As for :func:`fedgauge.vertical.binned.bin_scores`.

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
    check_rosters(rosters)
    known = _scores_of(scores, rosters)
    pooled = np.concatenate(
        [_repeated(values[~np.isnan(values)], rosters[party]) for party, values in known.items()]
    )
    if not pooled.size:
        raise InputError(
            "no id of the rosters is among those of the scores. Check that all use the same ids."
        )
    binned = bin_scores(pooled, len(rosters), privacy, **wanted)
    told = {party: _told(binned, rosters[party], values) for party, values in known.items()}
    commitments = tuple(sorted((party, bins.commitment) for party, bins in told.items()))
    plan = _bound(binned.plan, assignment_digest(commitments))
    missing = {party: int(np.count_nonzero(np.isnan(values))) for party, values in known.items()}
    return Assignment(
        plan,
        {party: msgspec.structs.replace(b, commitments=commitments) for party, b in told.items()},
        Totals(
            KEPT_FORMAT,
            assignment_digest(commitments),
            binned.axis,
            tuple((party, _totals(bins, rosters[party])) for party, bins in told.items()),
            binned.hints,
        ),
        missing,
        0 if scores is None else len(scores[1]) - len(pooled),
    )


def _scores_of(
    scores: tuple[Any, Floats] | None, rosters: Mapping[bytes, Roster]
) -> dict[bytes, Floats]:
    """The score of each key on a roster, NaN where there is none."""
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


def _repeated(values: Floats, roster: Roster) -> Floats:
    """The score of each example, where one stands for all that have it."""
    return np.repeat(values, roster.times) if roster.is_scored else values


def _told(binned: Binned, roster: Roster, values: Floats) -> Bins:
    places = np.full(len(values), NO_BIN, dtype="<i4")
    known = ~np.isnan(values)
    places[known] = binned.axis.index(values[known])
    return Bins(
        FORMAT,
        roster.party,
        binned.axis.bins,
        roster.ids,
        roster.scores,
        places.tobytes(),
        os.urandom(_SALT_BYTES),
    )


def _totals(bins: Bins, roster: Roster) -> tuple[int, ...]:
    places = np.frombuffer(bins.places, "<i4")
    weights = roster.times if roster.is_scored else np.ones(len(places), dtype=np.int64)
    totals = np.zeros(bins.number, dtype=np.int64)
    np.add.at(totals, places[places != NO_BIN], weights[places != NO_BIN])
    return tuple(totals.tolist())


def _bound(plan: EvaluationPlan, assignment: str) -> EvaluationPlan:
    """The plan, held to one assignment of bins."""
    return msgspec.structs.replace(plan, task=LabelTask(plan.task.positive, assignment))


def _kept_path(site: Site, assignment: str) -> Path:
    return site.folder / "assignments" / f"{assignment[:32]}.json"
