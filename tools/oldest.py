"""Print constraints that pin every direct dependency to the oldest version allowed.

``make oldest`` installs them. The floors are read from ``pyproject.toml``, for the package and
its extra ``privacy``; ``flower`` allows one series alone, which the tests run on. What the
dependencies need in turn is as in ``constraints.txt``.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FREE = {"absl-py"}  # dp-accounting below 0.6 wants an older one than constraints.txt has


def floors():
    """The oldest version allowed of each direct dependency, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["privacy"]]
    return dict(re.match(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", one).groups() for one in asked)


def main():
    """Lines for pip."""
    oldest = floors()
    for name, version in oldest.items():
        print(f"{name}=={version}")
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        name = line.split("==")[0]
        if "==" in line and name not in {*oldest, *FREE}:
            print(line)


if __name__ == "__main__":
    main()
