"""What whoever scored keeps of an assignment, in the folder of its site, for the result."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Self, TypeVar, cast

import msgspec
import numpy as np

from fedgauge.errors import ExchangeError, SiteError
from fedgauge.keys import KEY_BYTES
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.form import decode_axis
from fedgauge.site import Site
from fedgauge.storage import durable
from fedgauge.storage.whole import MALFORMED, read_bounded
from fedgauge.vertical.party_file import MOST_BYTES
from fedgauge.vertical.ranks import PartyRanks, Ranks

RANKS_FORMAT: Final = "fedgauge-ranks/2"
# Examples, and what is counted of them: far more than there are people.
Many = Annotated[int, msgspec.Meta(ge=0, le=1 << 48)]
T = TypeVar("T")


class RankTotals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What whoever scored keeps of ranks: all that is public of them, by party.

    Attributes
    ----------
    format
        ``"fedgauge-ranks/1"``.
    assignment
        The digest of the ranks.
    examples
        How many there are in all.
    by_party
        By public key: mean, reach and highest rank, as :class:`fedgauge.vertical.ranks.PartyRanks`
        has them, and the rank of each of its examples as little-endian numbers.
    hints
        What was publicly known and used.
    """

    format: str
    assignment: str
    examples: Many
    by_party: tuple[tuple[bytes, tuple[Many, Many, Many], bytes], ...]
    hints: tuple[str, ...] = ()

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
        return keep(site, self.assignment, msgspec.json.encode(self))

    @classmethod
    def kept(cls, site: Site, plan: EvaluationPlan) -> Self:
        """Those of a plan, as kept by this site."""
        return kept(site, plan, cls, RANKS_FORMAT)


def keep(site: Site, assignment: str, data: bytes) -> Path:
    """Keep what goes with an assignment."""
    path = _path(site, assignment)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        durable.replace(path, data)
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
            f"site {site.name!r} did not assign the bins of this plan. It is for whoever ran "
            "`fedgauge vertical assign`, with the same --site."
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
