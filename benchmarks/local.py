"""Time of local reports: encoding, adding up a million, and taking them in.

    python benchmarks/local.py
    python benchmarks/local.py --peer /tmp/peer/bin/python

The peer is multi-freq-ldpy (one report at a time, compiled by numba, with numpy's insecure
generator). It is not kept up and not part of any requirement; a throw-away environment for it:

    python3 -m venv /tmp/peer && /tmp/peer/bin/pip install multi-freq-ldpy
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable

import numpy as np

import fedgauge as fg
from fedgauge.privacy.keystream import Keystream
from fedgauge.privacy.oracles import HadamardResponse, Oracle, UnaryEncoding

CELLS = 1024
EPSILON = 5.0
BATCH = 20_000
MILLION = 1_000_000
PEER = """
import json, sys, time
import numpy as np
from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI, UE_Client
cells, epsilon, count = json.loads(sys.argv[1])
held = np.random.default_rng(0).integers(0, cells, count)
UE_Client(0, cells, epsilon)  # compile
start = time.perf_counter()
reports = [UE_Client(int(cell), cells, epsilon) for cell in held]
middle = time.perf_counter()
UE_Aggregator_MI(reports, epsilon)
end = time.perf_counter()
print(json.dumps([(middle - start) / count, (end - middle) / count]))
"""


def seconds(run: Callable[[], object], rounds: int = 3) -> float:
    """Least time of some rounds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def time_oracle(name: str, oracle: Oracle) -> tuple[float, float]:
    """Print and return seconds per report, encoded and added up."""
    held = np.random.default_rng(0).integers(0, CELLS, BATCH)
    source = Keystream()
    encoded = seconds(lambda: oracle.encode(held, source)) / BATCH
    payloads = oracle.encode(held, source)
    tallies = np.zeros(oracle.tallies, dtype=np.int64)
    added = seconds(lambda: oracle.add(tallies, payloads)) / BATCH
    print(
        f"{name}, {CELLS:,} cells, {oracle.payload_bytes} bytes: {1000 * encoded:.4f} ms to "
        f"encode a report (wanted: at most 0.05), {MILLION * added:.2f} s to add up a million "
        "(wanted: under 60)"
    )
    return encoded, added


def time_intake() -> None:
    """Print the time to take in a million reports, in memory and on disk."""
    plan = fg.EvaluationPlan.for_reports(
        fg.Axis.uniform(CELLS // 2, outside="clip"), fg.LocalDP(EPSILON)
    )
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 2, MILLION), rng.random(MILLION)
    start = time.perf_counter()
    messages = list(fg.encode_rows(plan, rows))
    took = time.perf_counter() - start
    size = sum(map(len, messages)) / MILLION
    print(f"rows to messages, a million, {size:.0f} bytes each: {took:.1f} s")
    with tempfile.TemporaryDirectory() as folder:
        for place, where in ((None, "in memory"), (folder, "on disk, stored for good")):
            with fg.ReportServer(plan, place) as server:
                start = time.perf_counter()
                accepted = server.accept_all(messages).accepted
                took = time.perf_counter() - start
                print(f"intake of {accepted:,} reports {where}: {took:.1f} s (wanted: under 60)")
                one = [next(fg.encode_rows(plan, ([1], [0.5]))) for _ in range(200)]
                each = seconds(lambda s=server, m=one: [s.accept(x) for x in m], 1) / len(one)
                print(f"  one at a time: {1000 * each:.2f} ms each")


def time_peer(python: str, ours: tuple[float, float]) -> None:
    """Print the ratio to multi-freq-ldpy, run by another interpreter."""
    asked = json.dumps([CELLS, EPSILON, BATCH])
    done = subprocess.run([python, "-c", PEER, asked], check=True, capture_output=True, text=True)
    theirs = json.loads(done.stdout)
    for what, mine, other in zip(("encode", "add up"), ours, theirs, strict=True):
        print(
            f"{what}: fedgauge {1e6 * mine:.2f} us, multi-freq-ldpy {1e6 * other:.2f} us for a "
            f"report: {mine / other:.3f}x"
        )


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", help="Python with multi-freq-ldpy installed.")
    options = parser.parse_args()
    unary = time_oracle("oue", UnaryEncoding.calibrated(EPSILON, cells=CELLS))
    time_oracle("hadamard", HadamardResponse.calibrated(EPSILON, cells=CELLS))
    if options.peer:
        time_peer(options.peer, unary)
    time_intake()


if __name__ == "__main__":
    main()
