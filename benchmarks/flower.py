"""Seconds per evaluation in Flower's simulation, and the share that is Flower's own waiting.

    python benchmarks/flower.py            4, 20 and 100 nodes
    python benchmarks/flower.py 20         only these

Every node writes down when its handler runs, and the server when it waits for replies. Flower's
own waiting is the time in which the server waits and no handler runs: polling, queues, copies.
The same evaluation through `fg.evaluate`, in one process, stands beside it.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import fedgauge as fg
from fedgauge.engines import simulation

SIZES = (4, 20, 100)
ROWS = 2000
REPEATS = 3
SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "FEDGAUGE_SIMULATION": "1",
}
Interval = tuple[float, float]


def rows(node: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores of one node."""
    rng = np.random.default_rng(node)
    labels = rng.integers(0, 2, ROWS)
    return labels, np.clip(rng.normal(0.4 + 0.2 * labels, 0.2), 0, 1)


def plan_for(nodes: int) -> fg.EvaluationPlan:
    """Most of what people will run: 64 bins with noise, a quarter may leave."""
    return fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(64, outside="clip"),
        fg.Cohort(min_survivors=max(3, nodes * 3 // 4)),
        privacy=fg.DistributedDP(epsilon=1.0),
    )


def simulate(nodes: int, folder: Path) -> None:
    """Run evaluations in Flower's simulation; the times go into the folder."""
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    import fedgauge.flower

    def timed(message: Any, context: Any, call_next: Any) -> Any:
        started = time.time()
        reply = call_next(message, context)
        with (folder / f"handler-{os.getpid()}").open("a") as log:
            log.write(json.dumps([started, time.time()]) + "\n")
        return reply

    client, server = ClientApp(mods=[timed]), ServerApp()
    fedgauge.flower.attach(
        client, lambda _message, context: rows(int(context.node_config["partition-id"]))
    )

    @server.main()
    def main(grid: Any, _context: Any) -> None:
        waits: list[Interval] = []
        ask = grid.send_and_receive

        def waiting(*args: Any, **options: Any) -> Any:
            started = time.time()
            replies = list(ask(*args, **options))
            waits.append((started, time.time()))
            return replies

        grid.send_and_receive = waiting
        evaluations = []
        for _ in range(1 + REPEATS):  # the first one starts Flower's workers
            started = time.time()
            result = fedgauge.flower.evaluate(grid, plan_for(nodes), timeout=300)
            evaluations.append((started, time.time()))
            if result.clients != nodes:
                raise RuntimeError(f"{result.clients} of {nodes} nodes answered")
        (folder / "server.json").write_text(json.dumps([evaluations[1:], waits]))

    run_simulation(
        server,
        client,
        num_supernodes=nodes,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0}},
    )


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time in intervals that do not overlap."""
    merged: list[Interval] = []
    for start, end in sorted(map(tuple, intervals)):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def overlap(one: list[Interval], other: list[Interval]) -> float:
    """Seconds that lie in both."""
    pairs = ((max(a, c), min(b, d)) for a, b in one for c, d in other)
    return sum(end - start for start, end in pairs if end > start)


def measure(nodes: int) -> tuple[float, float, float]:
    """Seconds per evaluation through Flower, of them waiting, and in one process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        done = subprocess.run(
            [sys.executable, __file__, "--simulate", str(nodes), name],
            env=os.environ | SETTINGS | {"FLWR_HOME": name},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if not (folder / "server.json").exists():
            raise SystemExit(f"the simulation failed:\n{done.stdout[-3000:]}")
        evaluations, waits = json.loads((folder / "server.json").read_text())
        logs = (path.read_text().splitlines() for path in folder.glob("handler-*"))
        handlers = union(json.loads(line) for lines in logs for line in lines)
    total = sum(end - start for start, end in evaluations)
    waited = [(start, end) for start, end in waits if start >= evaluations[0][0]]
    idle = sum(end - start for start, end in waited) - overlap(waited, handlers)
    clients = {str(node): rows(node) for node in range(nodes)}
    started = time.perf_counter()
    simulation.simulate(clients, plan_for(nodes), summation="secure")
    return total / REPEATS, idle / REPEATS, time.perf_counter() - started


def main() -> None:
    """Print the table."""
    sizes = [int(argument) for argument in sys.argv[1:]] or list(SIZES)
    print("nodes  seconds per evaluation  Flower's own waiting  in one process, without Flower")
    for nodes in sizes:
        seconds, idle, plain = measure(nodes)
        print(f"{nodes:5}  {seconds:22.2f}  {idle / seconds:20.0%}  {plain:30.2f}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--simulate"]:
        simulate(int(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
