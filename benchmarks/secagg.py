"""Cost of a secure sum: time and bytes of a client and of the server, next to Flower's SecAgg+.

Every client and the server run in this process, through all five rounds and with dropouts in
each of them; what each one does is timed by itself, in processor time. Flower's primitives
(where flwr is installed) do one client's work on the same vector with as many holders of
shares: no signatures, no votes, masks from 32-bit seeds.

Times of 10,000 members take half an hour: ``python benchmarks/secagg.py --members 1000 10000``.
"""

import argparse
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import fedgauge as fg
from fedgauge.keys import SigningKey
from fedgauge.secagg import (
    Invitation,
    Stage,
    Sum,
    SummationClient,
    SummationServer,
)
from fedgauge.secagg.graph import Graph, strength

COUNTS = 16_384
DROPPED = 0.05
ROUNDS = 5


class Numbers:
    """What a client adds."""

    def __init__(self, values: NDArray[np.int64]) -> None:
        self._values = values

    def contribution(self, sharers: Sequence[bytes]) -> NDArray[np.int64]:
        """Made up beforehand."""
        del sharers
        return self._values

    def agree(self, survivors: Sequence[bytes]) -> None:
        """Anything is fine."""


def measure(members: int, colluding: float, largest: int) -> tuple[Graph, float]:
    """Print the cost of one sum over `members` clients, 5% of whom drop out."""
    rng = np.random.default_rng(0)
    cohort = fg.Cohort(members // 2, max(1, int(colluding * members)))
    plan = fg.EvaluationPlan.for_histogram(fg.Axis.uniform(COUNTS // 2), cohort, largest=largest)
    keys = sorted((SigningKey.generate() for _ in range(members)), key=lambda key: key.public)
    start = time.process_time()
    server = SummationServer.invite(plan, [key.public for key in keys], SigningKey.generate())
    invitation, served = server.invitation, time.process_time() - start
    values = rng.integers(0, 1000, COUNTS)
    took, sent, received = np.zeros((3, members))
    clients: dict[int, SummationClient] = {}
    silent = _silent(rng, invitation)
    truth = np.zeros(COUNTS, dtype=np.int64)
    requests = server.requests
    while True:
        replies = {}
        for member in requests:
            start = time.process_time()
            request = requests[member]
            served += time.process_time() - start
            if silent[member] < server.stage:
                continue
            start = time.process_time()
            if member not in clients:
                # Only one client reads the plan here: a real one does that once, too.
                mine = invitation if clients else Invitation(request)
                clients[member] = SummationClient.join(mine, keys[member], Numbers(values + member))
            replies[member] = clients[member].receive(request)
            took[member] += time.process_time() - start
            sent[member] += len(replies[member])
            received[member] += len(request) if server.stage > 1 else 0
        start = time.process_time()
        outcome = server.step(replies)
        served += time.process_time() - start
        if isinstance(outcome, Sum):
            break
        requests = outcome
    for member in outcome.survivors:
        truth += values + member
    if not np.array_equal(outcome.total, truth):
        raise SystemExit("the sum is wrong")
    _report(invitation, cohort, len(outcome.survivors), took, sent + received, sent, served)
    return invitation.graph, float(np.median(took))


def _silent(rng: np.random.Generator, invitation: Invitation) -> NDArray[np.int64]:
    """The last stage that each member answers: some drop out in every round but the first.

    Nor in the vote, where everybody who is in the sum must vote for it.
    """
    members = invitation.graph.members
    last = np.full(members, ROUNDS)
    dropped = rng.choice(members, int(DROPPED * members), replace=False)
    last[dropped] = rng.integers(1, ROUNDS, len(dropped))
    if invitation.is_unanimous:
        last[last == Stage.MASK] = Stage.AGREE
    return last


def _report(
    invitation: Invitation,
    cohort: fg.Cohort,
    survivors: int,
    took: NDArray[np.float64],
    carried: NDArray[np.float64],
    sent: NDArray[np.float64],
    served: float,
) -> None:
    graph, promise = invitation.graph, strength(invitation.graph, cohort)
    members = graph.members
    wanted = {100: "wanted: at most 0.5", 1000: "wanted: at most 5"}.get(members, "")
    print(
        f"{members:,} members, {cohort.max_colluding} may collude, {survivors} in the sum, "
        f"{invitation.bits}-bit words: {graph.degree} picks each, {graph.threshold} open a secret; "
        f"failure of privacy below 2^{max(promise.privacy, -999):.0f}, carries "
        f"{promise.dropouts} dropouts"
    )
    print(
        f"  client: {1000 * np.median(took):.0f} ms median, {1000 * np.quantile(took, 0.95):.0f} "
        f"at 95% (wanted for 1,000: at most 80); {carried.max() / 1024:.0f} KiB sent and received "
        f"(wanted for 1,000: at most 120), {sent.max() / 1024:.0f} of them sent; before that the "
        f"invitation, {len(invitation.data) / 1024:.0f} KiB, the same for all"
    )
    print(f"  server: {served:.2f} s {f'({wanted})' if wanted else ''}")
    print(f"  median client, ms / log2(members): {1000 * np.median(took) / np.log2(members):.1f}")


def compare(graph: Graph, ours: float) -> None:
    """Print one client's work with Flower's primitives, and the ratio of ours to it."""
    try:
        from flwr.common.secure_aggregation.crypto import shamir, symmetric_encryption
        from flwr.common.secure_aggregation.ndarrays_arithmetic import (
            parameters_addition,
            parameters_mod,
        )
        from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
        from flwr.supercore.primitives.asymmetric import generate_key_pairs, private_key_to_bytes
    except ImportError:
        print("  Flower's SecAgg+: flwr is not installed, so there is nothing to compare with")
        return
    holders = [generate_key_pairs()[1] for _ in range(graph.degree)]
    vector = [np.arange(COUNTS, dtype=np.int64)]
    times = []
    for _ in range(3):
        start = time.process_time()
        (mine, _), (box, _) = generate_key_pairs(), generate_key_pairs()
        masks = shamir.create_shares(bytes(32), graph.threshold, graph.degree + 1)
        keys = shamir.create_shares(private_key_to_bytes(mine), graph.threshold, graph.degree + 1)
        total = parameters_addition(vector, pseudo_rand_gen(bytes(32), 2**32, [(COUNTS,)]))
        for holder, mask, key in zip(holders, masks, keys, strict=False):
            shared = symmetric_encryption.generate_shared_key(box, holder)
            sealed = symmetric_encryption.encrypt(shared, mask + key)
            symmetric_encryption.decrypt(shared, sealed)
            seed = symmetric_encryption.generate_shared_key(mine, holder)
            total = parameters_addition(total, pseudo_rand_gen(seed, 2**32, [(COUNTS,)]))
        parameters_mod(total, 2**32)
        times.append(time.process_time() - start)
    print(
        f"  Flower's SecAgg+ primitives, one client with {graph.degree} holders: "
        f"{1000 * min(times):.0f} ms; ours takes {ours / min(times):.3f} of that"
    )


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--colluding", type=float, default=0.02, help="share of the members")
    parser.add_argument("--largest", type=int, default=2**17, help="largest count of a client")
    options = parser.parse_args()
    for members in options.members:
        compare(*measure(members, options.colluding, options.largest))


if __name__ == "__main__":
    main()
