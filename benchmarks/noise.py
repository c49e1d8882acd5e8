"""Time of noise shares, and a simulation of a million clients with one example each.

Shares of one client for 16,384 counts are timed next to numpy's negative_binomial, which is
not secure. The simulation measures the error of the AUC at epsilon 1 as well.
"""

import argparse
import resource
import sys
import time
from collections.abc import Callable

import numpy as np
from scipy.special import expit

import fedgauge as fg
from fedgauge.privacy.keystream import Keystream
from fedgauge.privacy.noise import ShareLaw

COUNTS = 16_384
CLIENTS = 1_000_000


def best_of(run: Callable[[], object], rounds: int = 30) -> float:
    """Least time of some rounds, in milliseconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1000 * min(times)


def time_shares() -> None:
    """Print the time of one client's shares."""
    source, rng = Keystream(), np.random.default_rng(0)
    for parties in (19, 999):
        law = ShareLaw("polya", 0.5, parties=parties, sensitivity=1)
        ours = best_of(lambda law=law: law.draw(source, (COUNTS,)))
        p = 1 - np.exp(-0.5)
        numpy = best_of(
            lambda parties=parties, p=p: (
                rng.negative_binomial(1 / parties, p, COUNTS)
                - rng.negative_binomial(1 / parties, p, COUNTS)
            )
        )
        print(
            f"polya shares of one of {parties} clients, {COUNTS:,} counts: {ours:.2f} ms "
            f"(wanted: at most 2), {ours / numpy:.2f}x numpy's insecure ones"
        )


def simulate(runs: int) -> None:
    """Print error, time and memory of the million-client simulation."""
    rng = np.random.default_rng(1)
    errors, start = [], time.perf_counter()
    for _ in range(runs):
        labels = rng.integers(0, 2, CLIENTS)
        scores = expit(rng.normal(1.47 * labels - 0.735, 1.0) * 1.47)
        roc = fg.exact_roc_curve(labels, scores)
        # Every client holds one example; their sum does not depend on who holds which.
        plan = fg.planner.propose(
            privacy=fg.DistributedDP(1.0), clients=CLIENTS, examples=CLIENTS, positive_rate=0.5
        )
        single = ((f"c{i}", (labels[i : i + 1], scores[i : i + 1])) for i in range(CLIENTS))
        began = time.perf_counter()
        result = fg.evaluate(single, plan)
        took = time.perf_counter() - began
        errors.append(abs(result.roc_curve().path.area() - roc.path.area()))
        print(f"  run: {took:.0f} s, AUC {roc.path.area():.4f}, off by {errors[-1]:.1e}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
    print(
        f"{CLIENTS:,} clients with one example each, epsilon 1: mean AUC error "
        f"{np.mean(errors):.1e} (wanted: at most 1e-4; the paper: 1e-3), "
        f"{(time.perf_counter() - start) / runs:.0f} s a run (wanted: under 60), "
        f"peak {peak / 2**30:.2f} GiB (wanted: under 2)"
    )


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    time_shares()
    simulate(options.runs)


if __name__ == "__main__":
    main()
