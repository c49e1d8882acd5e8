"""Who shares masks and secrets with whom, and the chance that this protects too little.

Every member picks its own neighbours at random, so a server has no say in it (Bell et al.
2020, section 4). A member and the neighbours it picks are the holders of its secrets;
`threshold` of them can open one of these. Up to :data:`MOST_COMPLETE` members everybody picks
everybody, and nothing below is left to chance.

With n members of whom C collude with the server, degree k and threshold t:

*Both secrets* of a member, its own mask and its mask key, could be opened if 2t - (k + 1) of its
holders collude: each honest holder opens one of the two at most. So unless that happens,
a member that helps to open anything keeps its mask key: it saw t of its holders vote for
survivors among whom it is, and these do not open the key.

*Isolation.* Let A be honest members whose sum is learned apart from the other honest ones.
The own mask of each was opened by t holders that told the same story about who shared, so
each of them masks with it, and the honest ones keep their mask keys. Those masks vanish only
if the holders are in A as well. So every member of A has t holders in A or among the
colluders, whatever the server does and tells after it has seen the graph. Over all sets of up
to half of the honest members this has a chance of at most

    sum over a of binom(n - C, a) P[1 + H(a - 1 + C) >= t]^a,

H(g) being the number of a member's k picks among g given ones. Hence at most one sum is learned,
and more than half of the honest members are in it. A plan may not ask for more, unless the graph is
complete: a member that checks only its neighbours cannot tell how many others there are.
"""

import bisect
import math
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgauge.errors import PlanError
from fedgauge.privacy import Cohort
from fedgauge.privacy.models import PROTOCOL_FAILURE
from fedgauge.secagg.masking import aes_ctr, derive

MOST_COMPLETE: Final = 200
MOST_MEMBERS: Final = 20_000
MOST_DEGREE: Final = 1024  # of a sparse graph; its strength takes a second to compute
PRIVACY_BITS: Final = round(-math.log2(PROTOCOL_FAILURE))
COMPLETION_BITS: Final = 20
_CARRIED: Final = 0.1  # share of dropouts that a sparse graph is made for
_CELLS: Final = 1 << 17  # of a table of probabilities that is in memory at once
# Two failures of 2^-41 are one of 2^-40. The millionth of a bit is for members whose processors
# round differently: they must find the graph safe too.
_EACH: Final = -(PRIVACY_BITS + 1.0 + 1e-6)

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class Graph(NamedTuple):
    """Size, degree and threshold of a graph of members."""

    members: int
    degree: int
    threshold: int

    @property
    def is_complete(self) -> bool:
        """Whether everybody picks everybody."""
        return self.degree == self.members - 1


class Strength(NamedTuple):
    """What a graph promises."""

    privacy: float  # binary logarithm of a bound on the chance to learn more than one sum
    dropouts: int  # random ones that a sum survives, but for a chance of 2^-20


def choose_graph(members: int, cohort: Cohort) -> Graph:
    """The smallest graph that keeps what a cohort asks for."""
    check_members(members, cohort)
    if members > MOST_COMPLETE:
        sparse = _search(members, cohort.max_colluding)
        if sparse is not None:
            most = _surely_in_the_sum(sparse, cohort) + cohort.max_colluding
            if cohort.min_survivors > most:
                raise PlanError(
                    f"above {MOST_COMPLETE} members each checks its neighbours only, which proves "
                    f"that {most:,} of {members:,} are in the sum and no more. Lower min_survivors "
                    f"to {most:,} or less."
                )
            return sparse
    return Graph(members, members - 1, (members + cohort.max_colluding) // 2 + 1)


def check_members(members: int, cohort: Cohort) -> None:
    """Refuse numbers of members that no graph fits."""
    if members > MOST_MEMBERS:
        raise PlanError(f"at most {MOST_MEMBERS:,} members can take part, got {members:,}.")
    if members < cohort.min_survivors:
        raise PlanError(
            f"the plan needs {cohort.min_survivors} survivors and there are {members} members. "
            "Invite more, or lower min_survivors."
        )
    if cohort.max_colluding >= members:
        raise PlanError("all members may collude, so nothing can be protected.")


def _surely_in_the_sum(graph: Graph, cohort: Cohort) -> int:
    """Honest members that are in any sum that can be opened."""
    honest = graph.members - cohort.max_colluding
    if graph.is_complete:
        return max(0, max(cohort.min_survivors, graph.threshold) - cohort.max_colluding)
    return honest // 2 + 1


@lru_cache(maxsize=256)
def strength(graph: Graph, cohort: Cohort) -> Strength:
    """What a graph promises to a cohort, computed."""
    n, k, t = graph
    if not (0 < k < n and 1 <= t <= k + 1):
        return Strength(0.0, 0)
    colluding = min(cohort.max_colluding, n)
    failures = (_isolation(n, k, t, colluding), _both_secrets(n, k, t, colluding))
    most = max(0, n - survivors_needed(graph, cohort))
    # The chance to fail grows with the dropouts: find the last number that is still fine.
    dropouts = bisect.bisect_left(
        range(1, most + 1), True, key=lambda d: _completion(n, k, t, d) > -COMPLETION_BITS
    )
    return Strength(min(float(np.logaddexp2.reduce(failures)), 0.0), dropouts)


def survivors_needed(graph: Graph, cohort: Cohort) -> int:
    """Fewest survivors that may be named."""
    return max(cohort.min_survivors, graph.threshold)


def is_safe(graph: Graph, cohort: Cohort) -> bool:
    """Whether a graph that somebody proposes keeps the promises of privacy and of the cohort."""
    if not graph.is_complete and (graph.members <= MOST_COMPLETE or graph.degree > MOST_DEGREE):
        return False
    honest = cohort.min_survivors - cohort.max_colluding
    if honest > _surely_in_the_sum(graph, cohort):
        return False
    return strength(graph, cohort).privacy <= -PRIVACY_BITS


def picks(seed: bytes, me: int, graph: Graph) -> Indices:
    """The neighbours that member `me` picks with its seed: a uniform set, in order."""
    n = graph.members
    if graph.is_complete:
        return np.delete(np.arange(n), me)
    key = derive(seed, session=b"", purpose=b"picks")
    # The k members with the smallest of n uniform words are a uniform set of k.
    words = np.frombuffer(aes_ctr(key, bytes(16), bytes(8 * n)), dtype="<u8").copy()
    words[me] = np.iinfo(np.uint64).max
    return np.sort(np.argpartition(words, graph.degree)[: graph.degree])


def _search(n: int, colluding: int) -> Graph | None:
    dropped = int(_CARRIED * n)
    for k in range(8, min(n - 1, MOST_DEGREE), 2):
        lowest = _lowest_threshold(n, k, colluding)
        if lowest is None or _completion(n, k, lowest, dropped) > -COMPLETION_BITS:
            continue
        for t in range(lowest, k + 2):
            if _completion(n, k, t, dropped) > -COMPLETION_BITS:
                break
            if _isolation(n, k, t, colluding) <= _EACH:
                return Graph(n, k, t)
    return None


def _lowest_threshold(n: int, k: int, colluding: int) -> int | None:
    tails = math.log2(n) + _tail(np.array([colluding]), n - 1, k)[0]
    fits = np.flatnonzero(tails <= _EACH)  # numbers of colluding holders that never happen
    return (int(fits[0]) + k + 2) // 2 if len(fits) else None


def _isolation(n: int, k: int, t: int, colluding: int) -> float:
    largest = (n - colluding) // 2
    if k == n - 1:  # all that are marked are picked: no chance is involved
        certain = _log_choose(n - colluding, np.arange(max(1, t - colluding), largest + 1))
        return float(np.logaddexp2.reduce(certain, initial=-math.inf))
    chance = -math.inf
    rows = max(1, _CELLS // (k + 1))  # at a time, since an invitation may propose any k
    for first in range(1, largest + 1, rows):
        sizes = np.arange(first, min(first + rows, largest + 1))
        each = _tail(sizes - 1 + colluding, n - 1, k)[:, t - 1]
        with np.errstate(invalid="ignore"):
            terms = _log_choose(n - colluding, sizes) + sizes * each
        chance = float(np.logaddexp2(chance, np.logaddexp2.reduce(terms)))
    return chance


def _both_secrets(n: int, k: int, t: int, colluding: int) -> float:
    least = 2 * t - (k + 1)
    if least <= 0:
        return 0.0
    if least > k:
        return -math.inf
    return float(math.log2(n) + _tail(np.array([colluding]), n - 1, k)[0, least])


def _completion(n: int, k: int, t: int, dropped: int) -> float:
    """All survivors keep t holders, themselves included; the dropped ones keep t others."""
    tails = _tail(np.array([dropped, max(dropped - 1, 0)]), n - 1, k)
    tails = np.column_stack([tails, np.full((2, 2), -np.inf)])  # more than k cannot drop
    failures = [tails[0, k - t + 2], tails[1, k - t + 1] if dropped else -math.inf]
    return float(math.log2(n) + np.logaddexp2.reduce(failures))


def _tail(marked: Indices, n: int, k: int) -> Floats:
    """log2 P[H >= j] for j = 0..k, H the marked ones among k of n; a row for each of `marked`."""
    g, j = marked[:, None], np.arange(k + 1)[None, :]
    mass = _log_choose(g, j) + _log_choose(n - g, k - j) - _log_choose(n, k)
    tail = np.logaddexp2.accumulate(mass[:, ::-1], axis=1)[:, ::-1]
    # Rounding must not turn a certain event into one that is only nearly so.
    return np.minimum(np.where(j <= np.maximum(0, k - (n - g)), 0.0, tail), 0.0)


def _log_choose(n: int | Indices, k: int | Indices) -> Floats:
    """log2 of a binomial coefficient; minus infinity where it is zero."""
    n, k = np.broadcast_arrays(np.asarray(n), np.asarray(k))
    fits = (k >= 0) & (k <= n)
    n, k = np.where(fits, n, 0), np.where(fits, k, 0)
    table = _log_factorials(1 << max(10, int(n.max(initial=0)).bit_length()))
    return np.where(fits, table[n] - table[k] - table[n - k], -np.inf)


@lru_cache(maxsize=16)
def _log_factorials(size: int) -> Floats:
    return np.concatenate([[0.0], np.cumsum(np.log2(np.arange(1, size + 1)))])
