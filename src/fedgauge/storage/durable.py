"""Files that survive a crash: written once and for good, or replaced as a whole."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from fedgauge.errors import LedgerError

WAIT_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.005
_OWN: Final = 0o600  # as temporary files are made


def write_new(path: Path, data: bytes) -> None:
    """Make a file that only its owner can read; FileExistsError when there is one."""
    # The mode is set when the file is made, so that it is never open to others, not even empty.
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(path.parent)
    except BaseException:
        path.unlink()
        raise


def replace(path: Path, data: bytes, *, mode: int = _OWN) -> None:
    """Replace a file so that a crash leaves the old one or the new one, on disk too."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if mode != _OWN:  # sticks and shares without modes refuse to set one
                os.chmod(temporary, mode)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    sync_folder(path.parent)


def remove_leftovers(path: Path) -> None:
    """Delete what a killed :func:`replace` of a file left; only while nobody else replaces it."""
    for leftover in path.parent.glob(f".{path.name}.*"):
        leftover.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, timeout: float = WAIT_SECONDS) -> Iterator[None]:
    """Hold a lock file; waits for another process that does."""
    try:
        import fcntl
    except ImportError:
        raise LedgerError(
            "a site needs file locks that this system does not have. Use Linux or macOS."
        ) from None
    deadline = time.monotonic() + timeout
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LedgerError(
                        f"another process holds {path}. Wait for it to end, and try again."
                    ) from None
            time.sleep(_POLL_SECONDS)
        try:
            yield
        finally:
            # Closing would not do where a fork of this process still holds the file.
            fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Make what was created, renamed or deleted in a folder last."""
    if os.name != "posix":  # elsewhere folders cannot be opened, nor need they be
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
