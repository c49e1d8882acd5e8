"""Files of label parties: rosters, bins and ranks, and what the scoring party keeps of them."""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedgauge import storage
from fedgauge.arrays import Floats
from fedgauge.data.examples import Label
from fedgauge.data.row_checks import NO_BIN, Places, ids_of
from fedgauge.errors import ExchangeError, InputError, PlanError, ProtocolError, SiteError
from fedgauge.estimation.counts import Released
from fedgauge.histograms.axis import Axis
from fedgauge.keys import KEY_BYTES, SigningKey, verify
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.label_rounds import PairName
from fedgauge.plan.plan import decode_axis, encode_axis
from fedgauge.plan.rounds import NO_SUM_ALONE, NO_SUM_OF_FLIPS
from fedgauge.plan.task import LabelTask
from fedgauge.privacy import AnyPrivacyModel, Cohort, DistributedDP
from fedgauge.site import Site
from fedgauge.storage import MALFORMED, read_bounded
from fedgauge.vertical.auc import MECHANISMS, PartyRanks, PartyTerms, Ranks, require_finite
from fedgauge.vertical.bins import bin_scores

MOST_BYTES: Final = 1 << 30  # ids of some tens of millions of examples


class Formatted(Protocol):
    """A file that names its format."""

    @property
    def format(self) -> str:
        """The format's name."""


F = TypeVar("F", bound=Formatted)


def read_file(path: str | Path) -> bytes:
    """A file that another party sent, unless it is too large to be one."""
    try:
        return read_bounded(path, MOST_BYTES)
    except OSError as error:
        raise InputError(f"cannot read the file: {error.strerror}.") from None


def decoded(kind: type[F], data: bytes, wanted: str) -> F | None:
    """What a file says; None where it is not of this kind and format, in its one form.

    In two forms one file would have two digests, and two signatures.
    """
    try:
        file = msgspec.msgpack.decode(data, type=kind)
    except MALFORMED:
        return None
    return file if file.format == wanted and msgspec.msgpack.encode(file) == data else None


def covered(file: msgspec.Struct, signed_as: bytes) -> bytes:
    """What the party that a file names signs: all of it but the signature."""
    return signed_as + msgspec.msgpack.encode(msgspec.structs.replace(file, signature=b""))


ROSTER_FORMAT: Final = "fedgauge-roster/1"
_SIGNED_AS: Final = b"fedgauge roster\0"
_TWO: Final = 2  # distinct values: labels of two classes, in whatever numbers
_FEW: Final = 10  # distinct whole numbers: classes, grades, or two classes and codes of the missing
MOST_EXAMPLES: Final = 1 << 27  # a few bytes of a party can claim any number of them


class Roster(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A label party's list of examples, as it sends it to whoever scores them.

    Ids stand in the order of their text, scores in theirs: the order of rows may tell of labels.

    Examples
    --------
    >>> roster = Roster.of_ids([3, 1, 2], SigningKey.generate())
    >>> roster.ids, Roster.from_bytes(roster.to_bytes()) == roster
    (('1', '2', '3'), True)
    """

    format: str  # ``"fedgauge-roster/1"``
    party: bytes
    ids: tuple[str, ...]  # as text, none twice; empty where the party scored its examples itself
    scores: bytes  # then the distinct scores, as little-endian numbers
    rows: bytes  # and how many examples have each
    signature: bytes

    @classmethod
    def of_ids(cls, ids: Any, key: SigningKey) -> Self:
        """The roster of examples that somebody else scores."""
        texts = ids_of("labels", ids)
        repeated = len(texts) - len(texts.unique())
        if repeated:
            raise InputError(
                f"{repeated:,} of {len(texts):,} ids come again. Each example has one: check that "
                "this is the column of ids."
            )
        return cls._signed(key, ids=tuple(sorted(texts.to_pylist())))

    @classmethod
    def of_scores(cls, scores: Floats, key: SigningKey, *, few_values: bool = False) -> Self:
        """The roster of examples that the party scored itself.

        Of a column of labels it would show how many are positive, and nobody pays for a roster:
        scores that may be labels are refused, unless `few_values` says that they are scores.
        """
        require_finite(scores)
        values, rows = np.unique(scores + 0.0, return_counts=True)  # -0 and 0 are one score
        if len(values) and np.isin(values, (0.0, 1.0)).all():
            raise InputError(
                "all scores are 0 or 1, as labels are, and a roster would show how many are 1. "
                "Name the column of scores; if a model gives no others, write 0.25 and 0.75."
            )
        whole = bool(np.all(values == np.floor(values)))
        if not few_values and 0 < len(values) <= (_FEW if whole else _TWO):
            raise InputError(
                "the scores have so few distinct values that they may be labels, and a roster "
                "would show how many examples have each. Name the column of scores. If these are "
                "scores, say so: --few-values, or few_values=True."
            )
        return cls._signed(
            key, scores=values.astype("<f8").tobytes(), rows=rows.astype("<i8").tobytes()
        )

    @property
    def has_few_values(self) -> bool:
        """Whether scores have few distinct values, as labels of several classes do."""
        return self.is_scored and len(self.values) <= _FEW

    @classmethod
    def _signed(cls, key: SigningKey, **examples: Any) -> Self:
        fields: dict[str, Any] = {"ids": (), "scores": b"", "rows": b"", **examples}
        unsigned = cls(ROSTER_FORMAT, key.public, **fields, signature=b"")
        return msgspec.structs.replace(unsigned, signature=key.sign(covered(unsigned, _SIGNED_AS)))

    def to_bytes(self) -> bytes:
        """The roster as a file."""
        return msgspec.msgpack.encode(self)

    def keep(self, site: Site) -> None:
        """Let a site remember that it made this roster, before anybody else sees it.

        It remembers a digest, and so answers for these examples, all of them and no others.
        """
        digest = _examples_digest(self.ids, self.scores)
        _keep(_record(site, digest), digest.encode())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a roster; refused unless it is whole, in its one form, and its party signed it."""
        roster = decoded(cls, data, ROSTER_FORMAT)
        if roster is None:
            raise ProtocolError(
                f"this is not a roster as this fedgauge writes them ({ROSTER_FORMAT}), or not all "
                "of it. `fedgauge vertical roster` makes one."
            )
        if not verify(roster.party, covered(roster, _SIGNED_AS), roster.signature):
            raise ProtocolError("the roster is not signed by the party it names.")
        roster._check()
        return roster

    def _check(self) -> None:
        if self.ids and (self.scores or self.rows):
            raise ProtocolError("the roster has ids and scores. It must have one of both.")
        if any(len(data) % 8 for data in (self.scores, self.rows)):
            raise ProtocolError("the roster's scores are cut off.")
        if len(self.scores) != len(self.rows):
            raise ProtocolError("the roster does not say how many examples have each score.")
        if self.is_scored:
            rising = np.all(self.values[1:] > self.values[:-1]) and np.isfinite(self.values).all()
            # Each within what all may be, so that their sum does not wrap around.
            if not rising or np.any((self.times < 1) | (self.times > MOST_EXAMPLES)):
                raise ProtocolError("the roster's scores are not as they must be: each once.")
        elif any(a >= b for a, b in zip(self.ids, self.ids[1:], strict=False)):
            raise ProtocolError("the roster has an id twice, or out of order.")

    @property
    def is_scored(self) -> bool:
        """Whether the party scored its examples itself."""
        return bool(self.scores)

    @property
    def values(self) -> Floats:
        """The distinct scores."""
        return np.frombuffer(self.scores, "<f8")

    @property
    def times(self) -> NDArray[np.int64]:
        """How many examples have each of these scores."""
        return np.frombuffer(self.rows, "<i8")

    @cached_property
    def keys(self) -> pa.Array:
        """What names the examples: ids, or distinct scores."""
        return pa.array(self.values) if self.is_scored else ids_of("roster", list(self.ids))

    @property
    def examples(self) -> int:
        """How many examples the party answers for."""
        return int(self.times.sum()) if self.is_scored else len(self.ids)

    def for_all(self, values: NDArray[Any]) -> NDArray[Any]:
        """A value for each example, where one stands for all that have a score."""
        return np.repeat(values, self.times) if self.is_scored else values

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the roster."""
        return hashlib.sha256(covered(self, _SIGNED_AS)).digest()


def require_listed(site: Site, ids: tuple[str, ...], scores: bytes) -> None:
    """Refuse examples that are not those of a roster which this site made.

    Whoever scores would else choose which of a party's labels are counted: a few, or others.
    """
    digest = _examples_digest(ids, scores)
    try:
        listed = _record(site, digest).read_bytes() == digest.encode()
    except FileNotFoundError:
        listed = False
    except OSError as error:
        raise SiteError(f"cannot read {_record(site, digest)}: {error.strerror}.") from None
    if not listed:
        raise ProtocolError(
            "the examples are not those of a roster that this site made: some are others, or "
            "missing, or written otherwise. Ask the scorer for bins of the roster that you sent. "
            "If this site lost its record of it, make it again: `fedgauge vertical roster`."
        )


def _examples_digest(ids: tuple[str, ...], scores: bytes) -> str:
    text = b"fedgauge examples\0" + msgspec.msgpack.encode((ids, scores))
    return hashlib.sha256(text).hexdigest()


def _record(site: Site, digest: str) -> Path:
    return site.folder / "rosters" / digest[:32]


def check_rosters(rosters: Mapping[bytes, Roster]) -> None:
    """Refuse rosters that do not go together: an id at two parties, ids and scores mixed."""
    if not rosters:
        raise InputError("there are no rosters. Each label party makes one.")
    if len({roster.is_scored for roster in rosters.values()}) > 1:
        raise InputError(
            "some rosters have ids and others scores. Either one party scores all examples, or "
            "each its own."
        )
    if sum(roster.examples for roster in rosters.values()) > MOST_EXAMPLES:
        raise InputError(f"the rosters have more than {MOST_EXAMPLES:,} examples in all.")
    if any(not roster.examples for roster in rosters.values()):
        raise InputError("a roster has no examples. Leave that party out.")
    ids = pa.chunked_array([roster.keys for roster in rosters.values()])
    repeated = len(ids) - len(ids.unique())
    if repeated and not next(iter(rosters.values())).is_scored:
        raise InputError(
            f"{repeated:,} ids are on the rosters of two parties. Each example has one label party."
        )


RANKS_FORMAT: Final = "fedgauge-ranks/1"
# Examples, and what is counted of them: far more than there are people.
Many = Annotated[int, msgspec.Meta(ge=0, le=1 << 48)]
T = TypeVar("T")


class RankTotals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What whoever scored keeps of ranks: all that is public of them, by party."""

    format: str  # ``"fedgauge-ranks/1"``
    assignment: str  # the digest of the ranks
    examples: Many  # in all
    # By public key: mean, reach and highest rank, as :class:`fedgauge.vertical.auc.PartyRanks` has
    # them, and the rank of each of its examples as little-endian numbers.
    by_party: tuple[tuple[bytes, tuple[Many, Many, Many], bytes], ...]
    hints: tuple[str, ...] = ()  # what was publicly known and used

    @property
    def parties(self) -> tuple[bytes, ...]:
        """Public keys of the label parties."""
        return tuple(party for party, *_ in self.by_party)

    @property
    def known(self) -> PartyRanks:
        """What is known of ranks, in the order of the parties."""
        facts = np.array([facts for _, facts, _ in self.by_party], dtype=np.int64)
        return PartyRanks(self.examples, *facts.T)

    @property
    def ranks(self) -> list[Ranks]:
        """Of every example of each party, in the order of the parties."""
        return [np.frombuffer(told, "<i4").astype(np.int64) for *_, told in self.by_party]

    def fits(self, plan: EvaluationPlan) -> bool:
        """Whether they can be those of a plan."""
        if plan.paired is None or self.examples != plan.paired.examples:
            return False
        return are_parties(self.parties) and all(
            len(told) % 4 == 0
            and all(0 <= each < plan.paired.places for each in facts)
            and np.all((ranks := np.frombuffer(told, "<i4")) >= 0)
            and np.all(ranks < plan.paired.places)
            for _, facts, told in self.by_party
        )

    def keep(self, site: Site) -> Path:
        """Keep them in the folder of the site that scored, readable by its owner alone."""
        return _keep(_path(site, self.assignment), msgspec.json.encode(self))

    @classmethod
    def kept(cls, site: Site, plan: EvaluationPlan) -> Self:
        """Those of a plan, as kept by this site."""
        return kept(site, plan, cls, RANKS_FORMAT)


def _keep(path: Path, data: bytes) -> Path:
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        storage.replace(path, data)
    except OSError as error:
        raise SiteError(f"cannot keep {path}: {error.strerror}.") from None
    return path


def are_parties(parties: Sequence[bytes]) -> bool:
    """Whether these are the public keys of some parties, none of them twice."""
    return 0 < len(parties) == len({*parties}) and {*map(len, parties)} == {KEY_BYTES}


def kept(site: Site, plan: EvaluationPlan, kind: type[T], form: str) -> T:
    """What a site kept of the assignment of a plan."""
    assignment = getattr(plan.task, "assignment", "")
    path = _path(site, assignment)
    found: Any
    try:
        found = msgspec.json.decode(read_bounded(path, MOST_BYTES), type=kind, dec_hook=decode_axis)
    except FileNotFoundError:
        raise ExchangeError(
            f"site {site.name!r} did not assign the bins of this plan. Only the site that ran "
            "`fedgauge vertical assign` can do this, with the same --site."
        ) from None
    except OSError as error:
        raise SiteError(f"cannot read {path}: {error.strerror}.") from None
    except MALFORMED:
        found = None
    if (
        found is None
        or (found.format, found.assignment) != (form, assignment)
        or not found.fits(plan)
    ):
        raise SiteError(f"{path} was damaged or changed. Assign the bins again.")
    return cast("T", found)


def _path(site: Site, assignment: str) -> Path:
    return site.folder / "assignments" / f"{assignment[:32]}.json"


ASSIGNMENT_FORMAT: Final = "fedgauge-bins/1"
KEPT_FORMAT: Final = "fedgauge-totals/1"
MOST_ALONE: Final = 2  # parties: from three on a secure sum takes less noise
_SALT_BYTES: Final = 32
_AGAIN: Final = "Ask the scorer for the bins of this evaluation."

Commitments = tuple[tuple[bytes, bytes], ...]


class Bins(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The bins of one label party's examples, as it is told them."""

    format: str  # ``"fedgauge-bins/1"``
    party: bytes
    number: int  # of bins; of pairs, of doubled ranks
    ids: tuple[str, ...]  # its examples, as on its roster
    scores: bytes  # or these
    # The bin of each, or its doubled midrank among all, as little-endian numbers; -1 for none.
    places: bytes
    salt: bytes  # random bytes, without which others could guess bins from a commitment
    commitments: Commitments = ()  # of every party, by public key: a digest of its places

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
        bins = decoded(cls, data, ASSIGNMENT_FORMAT)
        if bins is None:
            raise ProtocolError(
                "these are not a party's bins as this fedgauge writes them "
                f"({ASSIGNMENT_FORMAT}), or not all of them. Name the file that the scorer sent."
            )
        return bins

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read the file of a party's bins."""
        return cls.from_bytes(read_file(path))

    def check(self, plan: EvaluationPlan, party: bytes) -> Places:
        """The bin of each example, unless these are not the bins of this plan and party.

        Privacy holds for any bins. The result is right if all parties count by one assignment.
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
    return plan.axis.bins if plan.paired is None else plan.paired.places


def assignment_digest(commitments: Commitments) -> str:
    """SHA-256, in hexadecimal, of what all parties were told."""
    text = b"fedgauge assignment\0" + msgspec.msgpack.encode(commitments)
    return hashlib.sha256(text).hexdigest()


class Totals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What whoever scored keeps: where bins lie, and how many examples each party has in them."""

    format: str  # ``"fedgauge-totals/1"``
    assignment: str  # the digest of the bins
    axis: Axis  # the scores that bins reach from and to
    by_party: tuple[tuple[bytes, tuple[Many, ...]], ...]  # examples by bin, by public key
    hints: tuple[str, ...] = ()  # what was publicly known and used

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
        data = msgspec.json.encode(self, enc_hook=encode_axis)
        return _keep(_path(site, self.assignment), data)

    @classmethod
    def kept(cls, site: Site, plan: EvaluationPlan) -> Self:
        """Those of a plan, as kept by this site."""
        return kept(site, plan, cls, KEPT_FORMAT)


def totals_for(site: Site, plan: EvaluationPlan) -> Totals | None:
    """What this site keeps of the bins it assigned; None where rows have labels and scores."""
    if plan.is_alone:
        raise PlanError(NO_SUM_OF_FLIPS if plan.privacy.flips_labels else NO_SUM_ALONE)
    return Totals.kept(site, plan) if plan.task.of_labels else None


def completed(released: Released, axis: Axis, totals: NDArray[np.int64]) -> Released:
    """What is known once the positives are: the rest of every bin is negative."""
    (positives,) = released.counts
    return replace(released, axis=axis, counts=np.array([totals - positives, positives]))


K = TypeVar("K", Totals, RankTotals)


class RosterBins(NamedTuple, Generic[K]):
    """What comes of scores and rosters."""

    plan: EvaluationPlan
    bins: dict[bytes, Bins]  # by public key
    totals: K  # for whoever scored
    unscored: dict[bytes, int]  # how many examples of each party have no score
    unlabelled: int  # how many scores are on no roster


def assign_bins(
    scores: tuple[Any, Floats] | None,
    rosters: Mapping[bytes, Roster],
    privacy: AnyPrivacyModel,
    **wanted: Any,
) -> RosterBins[Totals]:
    """Give each example on the rosters its bin, and make the plan that is bound to these bins.

    `scores` are ids and scores of all examples, None where parties scored theirs themselves; the
    rest is as for :func:`fedgauge.vertical.bins.bin_scores`. One or two parties answer alone, each
    with all of the noise, unless there is a cohort; so do more with a cohort of one.

    Examples
    --------
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
    return RosterBins(
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
    require_finite(values)
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
    scores = np.concatenate([rosters[party].for_all(each) for party, each in known.items()])
    pooled: Floats = scores[~np.isnan(scores)]
    if not pooled.size:
        raise InputError(
            "no id of the rosters is among those of the scores. Check that all use the same ids."
        )
    return pooled


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
            ASSIGNMENT_FORMAT,
            roster.party,
            number,
            roster.ids,
            roster.scores,
            places.tobytes(),
            salt,
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


def assign_ranks(
    scores: tuple[Any, Floats] | None,
    rosters: Mapping[bytes, Roster],
    privacy: AnyPrivacyModel,
    mechanism: PairName = "adaptive",
    *,
    positive: Label | None = None,
) -> RosterBins[RankTotals]:
    """Give each example on the rosters its rank, and make the plan that is bound to these ranks.

    A party learns the order of its own examples among those of all, more than bins tell it.
    `scores` and `rosters` are as for :func:`assign_bins`; `mechanism` is what each party sends of
    its labels.

    Examples
    --------
    >>> key = SigningKey.generate()
    >>> rosters = {key.public: Roster.of_ids(range(3000), key)}
    >>> privacy = DistributedDP(1.0, unit="label", neighbours="flip")
    >>> made = assign_ranks((range(3000), np.linspace(0, 1, 3000)), rosters, privacy)
    >>> made.totals.known.highest.tolist()
    [5998]
    """
    known = scores_of(scores, rosters)
    ordered = np.sort(pooled_scores(known, rosters))
    task = LabelTask(positive, self_scored=scores is None)
    plan = EvaluationPlan.for_pairs(mechanism, len(ordered), privacy, task=task)

    def ranks(values: Floats) -> NDArray[np.int64]:
        # Twice those below, and once those tied with, less the example itself.
        below = np.searchsorted(ordered, values, "left")
        return below + np.searchsorted(ordered, values, "right") - 1

    assert plan.paired is not None  # noqa: S101  (made for pairs)
    told, digest = tell(rosters, known, plan.paired.places, ranks)
    facts = [
        (party, _facts(bins, len(ordered)), _ranks(bins, rosters[party]).tobytes())
        for party, bins in told.items()
    ]
    return RosterBins(
        msgspec.structs.replace(plan, task=msgspec.structs.replace(task, assignment=digest)),
        told,
        RankTotals(RANKS_FORMAT, digest, len(ordered), tuple(facts)),
        unscored(known),
        0 if scores is None else len(scores[1]) - len(ordered),
    )


def terms_of(plan: EvaluationPlan, places: Places) -> PartyTerms:
    """What a party draws its noise from, by the ranks that it was told, whoever chose them.

    Centre and reach are of the distinct places on its list: a rank is on it, so no label moves the
    sum further than the noise is for.
    """
    round_, privacy = plan.paired, plan.privacy
    if round_ is None or not isinstance(privacy, DistributedDP):
        raise PlanError("this plan is not for pairs. Make one with EvaluationPlan.for_pairs.")
    (terms,) = MECHANISMS[round_.mechanism].terms(_known(places.bins, round_.examples), privacy)
    return terms


def _facts(bins: Bins, examples: int) -> tuple[int, int, int]:
    known = _known(np.frombuffer(bins.places, "<i4"), examples)
    return int(known.mean[0]), int(known.reach[0]), int(known.highest[0])


def _ranks(bins: Bins, roster: Roster) -> NDArray[np.int32]:
    places = roster.for_all(np.frombuffer(bins.places, "<i4"))
    ranks: NDArray[np.int32] = places[places != NO_BIN]
    return ranks


def _known(places: NDArray[np.int32], examples: int) -> PartyRanks:
    ranks: Ranks = places[places != NO_BIN].astype(np.int64)
    own = PartyRanks.of(ranks, np.zeros(len(ranks), dtype=np.intp), 1)
    return replace(own, examples=examples)
