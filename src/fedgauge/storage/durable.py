"""Files that survive a crash: written once and for good, or replaced as a whole."""

import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from fedgauge.errors import LedgerError

WAIT_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.005
_OWN: Final = 0o600  # as temporary files are made
_SUFFIX: Final = ".fgtmp"  # so that nobody's files are taken for ours


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
    with replacing(path) as (file, temporary):
        file.write(data)
        file.flush()
        if mode != _OWN:  # sticks and shares without modes refuse to set one
            set_mode(file, temporary, mode)
        os.fsync(file.fileno())
    sync_folder(path.parent)


@contextmanager
def replacing(path: Path, *, new: bool = False) -> Iterator[tuple[BinaryIO, str]]:
    """A temporary file that takes the place of another one when this ends well, and its name.

    Where it should be new, FileExistsError if there is one by then, whoever was faster.

    It is locked as long as it is in use, so that the next one who writes the same file knows what
    a killed process left, and removes it.
    """
    remove_dead(path)
    handle, temporary = _temporary(path)
    lock = os.dup(handle)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file, temporary
        (_put_new if new else os.replace)(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    finally:
        os.close(lock)


def _put_new(temporary: str, path: Path) -> None:
    """Give a file its name, unless there is one of that name."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # a disk without links: the name is taken first, then filled
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWN))
        os.replace(temporary, path)
    else:
        os.unlink(temporary)


def remove_dead(path: Path) -> None:
    """Delete what killed processes left that were writing a file; what is in use stays."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}{re.escape(_SUFFIX)}")
    with suppress(OSError):  # of folders that cannot be listed, or are not there
        for name in filter(pattern.fullmatch, os.listdir(path.parent)):
            with suppress(OSError):  # another's, in use, or on a disk without locks
                _remove_dead(path.with_name(name))


def _remove_dead(left: Path) -> None:
    found = left.lstat()
    if os.name != "posix" or not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        return
    handle = os.open(left, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        _lock(handle)
        left.unlink()
    finally:
        os.close(handle)


def _temporary(path: Path) -> tuple[int, str]:
    """A new file beside another one, locked where the disk has locks."""
    while True:
        handle, name = tempfile.mkstemp(_SUFFIX, f".{path.name}.", path.parent)
        try:
            _lock(handle)
        except BlockingIOError:  # taken for dead before it was locked: it is about to go
            os.close(handle)
            Path(name).unlink(missing_ok=True)
            continue
        except OSError:
            return handle, name
        if os.fstat(handle).st_nlink:
            return handle, name
        os.close(handle)


def set_mode(file: BinaryIO, name: str, mode: int) -> None:
    """Set the mode of an open file: where others may write, its name can be another file's by now."""
    os.chmod(file.fileno() if os.chmod in os.supports_fd else name, mode)


def _lock(handle: int) -> None:
    """Lock an open file, or raise OSError."""
    try:
        import fcntl
    except ImportError:
        raise OSError("no locks") from None
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


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
