"""Refuse files that others than their owner can change or replace."""

import os
import stat
from pathlib import Path

from fedgauge.errors import FedgaugeError


def require_own(what: str, path: Path, mode: int, error: type[FedgaugeError]) -> None:
    """Refuse a file, of a mode, that others than its owner can change, by an error of a class."""
    if os.name != "posix":
        return
    if mode & 0o022:
        raise error(
            f"others than its owner can change {what} {path}. Run `chmod go-w {path}`, and "
            "check what it says."
        )
    # Whoever may write to a folder can put another file, or an old ledger, in a file's place.
    folder = path.resolve().parent
    if folder.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
        raise error(
            f"anybody can replace what is in {folder}. Run `chmod o-w {folder}`, and check the "
            "site file and the ledger."
        )
