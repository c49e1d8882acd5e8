"""Peak memory of `fedgauge evaluate` on a Parquet file of 10 million rows against 1 million."""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SITES = 20


def write(path: Path, rows: int) -> None:
    """Write score rows of many sites as one row group: the hardest case for a reader."""
    rng = np.random.default_rng(1)
    labels = (rng.random(rows) < 0.2).astype(np.int8)
    table = pa.table(
        {
            "site": pa.array([f"site-{i}" for i in range(SITES)]).take(
                pa.array(rng.integers(0, SITES, rows))
            ),
            "y": labels,
            "p": 1.0 / (1.0 + np.exp(-rng.normal(2.0 * labels - 2.0, 1.5))),
        }
    )
    pq.write_table(table, path, row_group_size=rows)


def peak_of_evaluation(path: Path) -> int:
    """Peak resident bytes of the command line evaluating the file, in a process of its own."""
    arguments = ["evaluate", str(path), "--client", "site", "--label", "y", "--score", "p", "-q"]
    fedgauge = Path(sys.executable).with_name("fedgauge")
    watcher = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    command = [sys.executable, "-c", watcher, str(fedgauge), *arguments]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    unit = 1 if sys.platform == "darwin" else 1024
    return int(printed) * unit


def main() -> None:
    """Print both peaks and their ratio."""
    peaks = {}
    with tempfile.TemporaryDirectory() as folder:
        for rows in (1_000_000, 10_000_000):
            path = Path(folder) / f"{rows}.parquet"
            write(path, rows)
            peaks[rows] = peak_of_evaluation(path)
            size = path.stat().st_size
            print(f"{rows:>11,} rows, {size / 2**20:6.1f} MiB: peak {peaks[rows] / 2**20:6.1f} MiB")
    few, many = peaks.values()
    print(
        f"Peak memory of 10 million rows over 1 million: {many / few:.2f}x (wanted: at most 1.3x)"
    )


if __name__ == "__main__":
    main()
